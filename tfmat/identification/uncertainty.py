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
from tfmat.materials.law import Array, Parameter

# The interval that is reported.
COVERAGE = 0.95
# A label is known to lie between 0 and 1, whatever the network expects.
_MOST_STD = float(np.sqrt(PRIOR_VARIANCE))
# A spread is looked for among so many from this part of one to so many times it: half a per cent from each other.
_STEP, _VALUES = 1.2, 73
# What regions of 95 % hold at the least, and standard errors below which holding too many is chance.
_LEAST_COVERAGE, _CHANCE = 0.94, 3.0
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


@dataclasses.dataclass(frozen=True)
class Spread:
    """How much wider the posteriors of a network are that it says too narrow, on curves that it did not learn from.

    A posterior head makes of the labels numbers z that are standard normal where it is right. A network that begins to
    know its records by heart is too sure of others; one factor for all z, as the temperature of a classifier, mends
    that on average: C. Guo et al., On calibration of modern neural networks, ICML 2017, arXiv:1706.04599.

    Attributes:
      num_curves: that it was measured on; 0: not measured, the network taken at its word.
      value: standard deviation of the normal distribution that draws are made of.
    """

    num_curves: int = 0
    value: float = 1.0

    def better(
        self,
        densities: Array,
        squares: Array,
        true_density: Array,
        true_square: Array,
        num_labels: int,
    ) -> "Spread":
        """The spread, near this one, by which joint regions of highest density hold as many truths as they say.

        They do on average over all regions, from 0 to 100 %, and those of 95 % hold 94 at the least, as nearly as any
        spread makes them. It makes posteriors narrower only where they hold more truths than chance would have it.
        Draws of this spread stand for those of another, weighed by the ratio of both densities.

        Args:
          densities: [curves, draws], logarithms of this spread's density at its draws.
          squares: [curves, draws], sums of the squares of the draws' z.
          true_density, true_square: [curves], the same of the true labels.
          num_labels: how many numbers z there are.
        """

        def regions(value: float) -> Array:
            """The smallest region that holds each truth, by its probability: even from 0 to 1 where all is right."""
            more = -0.5 * (value**-2 - self.value**-2)
            weights = np.exp(more * squares - num_labels * np.log(value / self.value))
            denser = densities + more * squares > (true_density + more * true_square)[:, None]
            return np.asarray(np.sum(weights * denser, axis=1) / np.sum(weights, axis=1))

        # A network that has hardly learnt anything is never right on average; the nearest to that is taken.
        values = self.value * np.geomspace(1.0 / _STEP, _STEP, _VALUES)
        needed = np.stack([regions(value) for value in values])
        misses = np.maximum(_LEAST_COVERAGE - np.mean(needed <= COVERAGE, axis=1), 0.0)
        off = np.abs(needed.mean(axis=1) - 0.5)
        value, count = float(values[np.lexsort((off, misses))[0]]), len(true_density)
        if value < 1.0 and regions(1.0).mean() >= 0.5 - _CHANCE * np.sqrt(1.0 / 12.0 / count):
            value = 1.0
        return Spread(count, round(value, 4))

    def to_json(self) -> dict[str, Any]:
        """The entry `spread` of model.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Spread":
        """What `to_json` wrote; KeyError, TypeError or ValueError where it is something else."""
        spread = cls(int(content["num_curves"]), float(content["value"]))
        if not 0.0 < spread.value < np.inf:
            raise ValueError("spread is no positive number")
        return spread


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
