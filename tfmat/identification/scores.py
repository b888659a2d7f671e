"""How good answers are: parameters beside the truth, curves beside the measured ones, and what intervals hold."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array, Parameter

# Nominal coverage, %, as the keys of evaluation.json.
_REPORTED = (50, 90, 95)
_DRAWN = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98)
COVERAGES = tuple(percent / 100 for percent in _DRAWN)
_BINS = 8
MOST_BINS = 5


@dataclasses.dataclass(frozen=True)
class ParameterScore:
    """Accuracy of one parameter.

    Attributes:
      mse: mean squared error of the label scaled to 0-1.
      mae: mean absolute error in the parameter's unit.
      mae_percent: mean of |error| / true value, %; for parameters on a linear scale that are positive.
      mae_decades: mean of |log10 error|; for parameters on a logarithmic scale.
      r2: coefficient of determination of the label scaled to 0-1; None where all true values are the same.
    """

    name: str
    unit: str
    mse: float
    mae: float
    mae_percent: float | None
    mae_decades: float | None
    r2: float | None


def score_parameter(
    parameter: Parameter, true: Array, identified: Array, label: Array
) -> ParameterScore:
    """The score of one parameter's answers.

    Args:
      true, identified: [curves], in the parameter's unit.
      label: [curves], the identified values scaled to 0-1.
    """
    true_label = parameter.to_unit_interval(true)
    error = label - true_label
    logarithmic = parameter.scale == "log"
    spread = np.mean((true_label - true_label.mean()) ** 2)
    decades = float(np.mean(np.abs(np.log10(identified / true)))) if logarithmic else None
    # A share of a value that may be 0 tells nothing.
    positive = bool(np.all(true > 0)) and parameter.low > 0 and not logarithmic
    percent = float(100 * np.mean(np.abs(identified / true - 1.0))) if positive else None
    return ParameterScore(
        name=parameter.name,
        unit=parameter.unit,
        mse=float(np.mean(error**2)),
        mae=float(np.mean(np.abs(identified - true))),
        mae_percent=percent,
        mae_decades=decades,
        r2=float(1 - np.mean(error**2) / spread) if spread > 0 else None,
    )


def rmse_percent(stress: Array, resimulated: Array, valid: np.ndarray) -> Array:
    """Root mean square of the residual over the curve's maximum stress, in percent.

    Args:
      stress, resimulated: [curves, points], MPa; valid: [curves, points], False where padded.

    Returns:
      [curves], %.
    """
    largest = np.abs(np.where(valid, stress, 0.0)).max(axis=1)
    return 100.0 * _root_mean_square(stress - resimulated, valid) / largest


def rmse_over_noise(
    stress: Array, resimulated: Array, valid: np.ndarray, noise_mpa: float, noise_relative: float
) -> Array | None:
    """Root mean square of the residual over the noise's standard deviation at each point; 1 is perfect.

    Same arguments and result as `rmse_percent`; None where the curves have no noise. `noise_mpa` is the standard
    deviation in MPa, `noise_relative` adds a fraction of the point's own stress in quadrature. Points that have no
    noise (relative noise at no stress) are left out.
    """
    if noise_mpa == 0 and noise_relative == 0:
        return None
    deviation = np.hypot(noise_mpa, noise_relative * resimulated)
    # Purely relative noise vanishes at the origin, where the ratio says nothing.
    counted = valid & (deviation > 1e-6 * deviation.max(axis=1, keepdims=True))
    return _root_mean_square((stress - resimulated) / np.where(counted, deviation, 1.0), counted)


def _root_mean_square(values: Array, counted: np.ndarray) -> Array:
    return np.sqrt((np.where(counted, values, 0.0) ** 2).sum(axis=1) / counted.sum(axis=1))


def coverage(
    names: Sequence[str], true_labels: Array, labels: Array, std: Array, limits: Array
) -> dict[str, dict[str, Any]]:
    """The entry `coverage` of evaluation.json: parameter -> numbers, all on the scale of the labels (0-1).

    `50`, `90`, `95`: share (0-1) of the intervals of this nominal coverage (%) that hold the truth; `z_std`: root mean
    square of error / std, 1 is perfect; `nll`: mean negative log likelihood of the truth under a Gaussian of this mean
    and std; `mean_std`; `mean_width_95`: of the 95 % interval, cut to the range; `curve`: the observed for more
    nominal coverages (`nominal`, `observed`, 0-1); `bins`: by predicted std, `mean_std` and `rms_error` of each.

    Args:
      true_labels, labels, std: [curves, p], labels cut to 0-1, std calibrated.
      limits: [coverages, curves, p, 2], of the intervals of the coverages COVERAGES.
    """
    error = true_labels - labels
    held = dict(zip(_DRAWN, _held(true_labels, limits), strict=True))
    width = (limits[..., 1] - limits[..., 0])[_DRAWN.index(95)]
    scores: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(names):
        z, log_std = error[:, i] / std[:, i], np.log(std[:, i])
        scores[name] = {
            **{str(percent): float(held[percent][i]) for percent in _REPORTED},
            "z_std": float(np.sqrt(np.mean(z**2))),
            "nll": float(np.mean(log_std + 0.5 * z**2) + 0.5 * np.log(2 * np.pi)),
            "mean_std": float(std[:, i].mean()),
            "mean_width_95": float(width[:, i].mean()),
            "curve": {
                "nominal": [percent / 100 for percent in _DRAWN],
                "observed": [float(held[percent][i]) for percent in _DRAWN],
            },
            "bins": [
                {
                    "mean_std": float(std[rows, i].mean()),
                    "rms_error": float(np.sqrt(np.mean(error[rows, i] ** 2))),
                    "num_curves": int(rows.sum()),
                }
                for _, _, rows in bins_of(std[:, i], _BINS)
            ],
        }
    return scores


def _held(true_labels: Array, limits: Array) -> Array:
    """Share of the intervals that hold the truth: [coverages, p]."""
    # The true labels of stored curves are float32: one at the end of its range may lie a rounding outside.
    inside = (limits[..., 0] <= true_labels + 1e-6) & (true_labels - 1e-6 <= limits[..., 1])
    return inside.mean(axis=1)


def bins_of(
    quantity: Array, count: int = MOST_BINS
) -> list[tuple[float, float, NDArray[np.bool_]]]:
    """Bins of a quantity: (low, high, which curves), low <= quantity < high, in the last one <= high.

    Quantiles set the limits, so that every bin holds about as many curves. A largest value that many curves share (all
    points of a curve are valid) has a bin of its own, low = high.

    Args:
      quantity: [curves].
      count: bins at the most.
    """
    quantity = np.asarray(quantity, np.float64)
    largest = float(quantity.max())
    at_largest = quantity == largest
    alone = bool(at_largest.mean() > 1.0 / count)
    others = quantity[~at_largest] if alone else quantity
    bins: list[tuple[float, float, NDArray[np.bool_]]] = []
    if len(others):
        edges = np.unique(np.quantile(others, np.linspace(0.0, 1.0, count + 1 - alone)))
        for low, high in itertools.pairwise(edges):
            below = quantity <= high if high == edges[-1] else quantity < high
            inside = (quantity >= low) & below
            if inside.any():  # limits between a few curves may hold none
                bins.append((float(low), float(high), inside))
        if len(edges) == 1:
            bins.append((float(edges[0]), float(edges[0]), quantity == edges[0]))
    if alone:
        bins.append((largest, largest, at_largest))
    return bins
