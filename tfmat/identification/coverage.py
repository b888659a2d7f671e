"""Whether the network's intervals hold the truth as often as they say, and how narrow they are. NumPy only."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.identification.binning import bins_of
from tfmat.identification.uncertainty import Calibration
from tfmat.materials.law import Array

# Nominal coverage, %, as the keys of evaluation.json.
_REPORTED = (50, 90, 95)
_DRAWN = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98)
_BINS = 8


def coverage(
    names: Sequence[str], calibration: Calibration, true_labels: Array, labels: Array, std: Array
) -> dict[str, dict[str, Any]]:
    """The entry `coverage` of evaluation.json: parameter -> numbers, all on the scale of the labels (0-1).

    `50`, `90`, `95`: share (0-1) of the intervals of this nominal coverage (%) that hold the truth; `z_std`: root mean
    square of error / std, 1 is perfect; `nll`: mean negative log likelihood of the truth under a Gaussian of this mean
    and std; `mean_std`; `mean_width_95`: of the 95 % interval, cut to the range; `curve`: the observed for more
    nominal coverages (`nominal`, `observed`, 0-1); `bins`: by predicted std, `mean_std` and `rms_error` of each.

    Args:
      true_labels, labels, std: [curves, p], labels cut to 0-1, std as the network gives it.
    """
    calibrated = calibration.std(std)
    error = true_labels - labels
    held = {percent: _held(calibration, true_labels, labels, std, percent) for percent in _DRAWN}
    limits = calibration.interval(labels, std)
    scores: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(names):
        z, log_std = error[:, i] / calibrated[:, i], np.log(calibrated[:, i])
        scores[name] = {
            **{str(percent): float(held[percent][i]) for percent in _REPORTED},
            "z_std": float(np.sqrt(np.mean(z**2))),
            "nll": float(np.mean(log_std + 0.5 * z**2) + 0.5 * np.log(2 * np.pi)),
            "mean_std": float(calibrated[:, i].mean()),
            "mean_width_95": float(np.mean(limits[:, i, 1] - limits[:, i, 0])),
            "curve": {
                "nominal": [percent / 100 for percent in _DRAWN],
                "observed": [float(held[percent][i]) for percent in _DRAWN],
            },
            "bins": [
                {
                    "mean_std": float(calibrated[rows, i].mean()),
                    "rms_error": float(np.sqrt(np.mean(error[rows, i] ** 2))),
                    "num_curves": int(rows.sum()),
                }
                for _, _, rows in bins_of(calibrated[:, i], _BINS)
            ],
        }
    return scores


def _held(
    calibration: Calibration, true_labels: Array, labels: Array, std: Array, percent: float
) -> Array:
    """Share of the intervals that hold the truth: [p]."""
    limits = calibration.interval(labels, std, percent / 100)
    # The true labels of stored curves are float32: one at the end of its range may lie a rounding outside.
    inside = (limits[:, :, 0] <= true_labels + 1e-6) & (true_labels - 1e-6 <= limits[:, :, 1])
    return inside.mean(axis=0)
