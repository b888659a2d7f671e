"""The network's own error bars, made true on curves that it did not learn from. NumPy only.

Split conformal prediction on standardised errors: V. Vovk, A. Gammerman, G. Shafer, Algorithmic Learning in a Random
World (2005), ch. 2; J. Lei et al., Distribution-free predictive inference for regression, J. American Statistical
Association 113 (2018) 1094-1111, section 5.2. Quantiles of both signs, so that an interval need not be symmetric.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special

from tfmat.identification.likelihood import PRIOR_VARIANCE
from tfmat.materials.law import Array
from tfmat.materials.parameter import Parameter

# The interval that is reported.
COVERAGE = 0.95
# A label is known to lie between 0 and 1, whatever the network expects.
_MOST_STD = float(np.sqrt(PRIOR_VARIANCE))
# Cumulative probabilities of the stored quantiles.
_PROBABILITIES = np.arange(1, 200) / 200


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How standardised errors z = (label - network's label) / network's std are distributed; p parameters.

    Attributes:
      num_curves: that they were measured on; 0: not measured, Gaussian.
      probabilities: [k], rising.
      quantiles: [p, k], of z.
      z_std: [p], root mean square of z.
    """

    num_curves: int
    probabilities: Array
    quantiles: Array
    z_std: Array

    @classmethod
    def gaussian(cls, num_parameters: int) -> "Calibration":
        """The network taken at its word."""
        quantiles = np.tile(scipy.special.ndtri(_PROBABILITIES), (num_parameters, 1))
        return cls(0, _PROBABILITIES, quantiles, np.ones(num_parameters))

    @classmethod
    def measured(cls, true_labels: Array, labels: Array, std: Array) -> "Calibration":
        """The calibration that curves show which the network did not learn from.

        Args:
          true_labels, labels, std: [curves, p]; the network's labels cut to 0-1, its std as it gives them.
        """
        z = (true_labels - labels) / bounded(std)
        quantiles = np.quantile(z, _PROBABILITIES, axis=0).T
        return cls(len(z), _PROBABILITIES, quantiles, np.sqrt(np.mean(z**2, axis=0)))

    def std(self, std: Array) -> Array:
        """Calibrated standard deviations on the labels' scale; same shape [curves, p] as the network's `std`."""
        return np.minimum(bounded(std) * self.z_std, _MOST_STD)

    def interval(self, labels: Array, std: Array, coverage: float = COVERAGE) -> Array:
        """Limits between which the true label lies with this probability, cut to 0-1: [curves, p, 2].

        Args:
          labels, std: [curves, p], what the network says.
        """
        limits = [
            [np.interp(p, self.probabilities, row) for row in self.quantiles]
            for p in (0.5 - coverage / 2, 0.5 + coverage / 2)
        ]
        ends = [labels + bounded(std) * np.array(limit) for limit in limits]
        return np.clip(np.stack(ends, axis=2), 0.0, 1.0)

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """The entry `calibration` of model.json: `num_curves`, `probabilities`, name -> `quantiles` and `z_std`."""
        return {
            "num_curves": self.num_curves,
            "probabilities": np.round(self.probabilities, 6).tolist(),
            "parameters": {
                name: {
                    "z_std": float(self.z_std[i]),
                    "quantiles": np.round(self.quantiles[i], 5).tolist(),
                }
                for i, name in enumerate(names)
            },
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], names: Sequence[str]) -> "Calibration":
        """What `to_json` wrote; KeyError, TypeError or ValueError where it is something else."""
        entries = [content["parameters"][name] for name in names]
        probabilities = np.array(content["probabilities"], np.float64)
        quantiles = np.array([entry["quantiles"] for entry in entries], np.float64)
        z_std = np.array([entry["z_std"] for entry in entries], np.float64)
        if quantiles.shape != (len(names), len(probabilities)) or not np.all(z_std > 0):
            raise ValueError("quantiles do not fit")
        return cls(int(content["num_curves"]), probabilities, quantiles, z_std)


def bounded(std: Array) -> Array:
    """The network's standard deviations, none larger than that of a label of which nothing is known."""
    return np.minimum(std, _MOST_STD)


def in_units(
    parameters: Sequence[Parameter], labels: Array, std: Array, interval: Array
) -> tuple[Array, Array]:
    """Calibrated std [curves, p] and interval [curves, p, 2] of labels [curves, p] in the parameters' units.

    The std to first order; the ends of the interval exactly, so that it is not symmetric on a logarithmic scale.
    """
    values, limits = np.empty_like(std), np.empty_like(interval)
    for i, parameter in enumerate(parameters):
        values[:, i] = std[:, i] * parameter.slope(parameter.from_unit_interval(labels[:, i]))
        limits[:, i] = parameter.from_unit_interval(interval[:, i])
    return values, limits
