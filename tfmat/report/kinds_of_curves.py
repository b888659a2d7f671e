"""Errors over the kind of curve (its largest strain, its noise, its points): from a yardstick, or from the answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.report.accuracy_figures import ParameterAnswers
from tfmat.report.evaluation import Array, ScoredAnswers

_BINS = 5
Bins = dict[str, list[dict[str, Any]]]


def bins_of_yardstick(yardstick: Mapping[str, Any]) -> Bins:
    """Those that the yardstick holds, but for a quantity that all curves share."""
    return {quantity: bins for quantity, bins in yardstick["bins"].items() if len(bins) > 1}


def bins_of_answers(
    answers: ScoredAnswers,
    parameters: Sequence[ParameterAnswers],
    widths: Mapping[str, float],
    noise: tuple[float, float],
) -> Bins:
    """The network's errors alone, in the form of a yardstick's bins, which hold as many curves each.

    Args:
      widths: parameter name -> width of its range; of its natural logarithm for a logarithmic one.
      noise: standard deviation in MPa, and as a fraction of the stress.
    """
    with np.errstate(divide="ignore"):
        noise_to_signal = np.hypot(noise[0] / answers.max_stress_mpa, noise[1])
    found: Bins = {}
    for name, quantity in (
        ("max_strain", answers.max_strain),
        ("noise_to_signal", noise_to_signal),
    ):
        edges = np.unique(np.quantile(quantity, np.linspace(0, 1, _BINS + 1)))
        if len(edges) < 3 or not np.isfinite(edges).all():
            continue
        places = np.clip(np.searchsorted(edges, quantity, side="right") - 1, 0, len(edges) - 2)
        found[name] = [
            {
                "low": float(edges[i]),
                "high": float(edges[i + 1]),
                "num_curves": int((places == i).sum()),
                "parameters": {
                    p.name: {"network_mse": _mse(p, widths[p.name], places == i)}
                    for p in parameters
                },
            }
            for i in range(len(edges) - 1)
        ]
    return found


def _mse(answers: ParameterAnswers, width: float, rows: Array) -> float:
    """Mean squared error of scaled labels over some of the curves."""
    true, identified = answers.true[rows], answers.identified[rows]
    error = np.log(identified / true) if answers.logarithmic else identified - true
    return float(np.mean((error / width) ** 2))
