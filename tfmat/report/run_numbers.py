"""Numbers that pictures of a run are drawn from: answers parameter by parameter, and errors by the kind of curve."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.report.evaluation import Array, ScoredAnswers
from tfmat.report.run_files import RunFiles

_BINS = 5
Bins = dict[str, list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class ParameterAnswers:
    """Answers to the test curves for one parameter.

    Attributes:
      name, unit: of the parameter.
      logarithmic: its labels are on a logarithmic scale.
      true, identified: [curves], in its unit.
      floor: standard deviation of the best possible answer to each of the first curves, [fewer curves], relative
        to the true value for a parameter on a linear scale, in decades on a logarithmic one; None where not known.
    """

    name: str
    unit: str
    logarithmic: bool
    true: Array
    identified: Array
    floor: Array | None = None

    @property
    def errors(self) -> Array:
        """[curves]: in decades on a logarithmic scale; else in % of the true value, in its unit where that can be 0."""
        if self.logarithmic:
            return np.log10(self.identified / self.true)
        if not self.in_percent:
            return self.identified - self.true
        return 100 * (self.identified - self.true) / self.true

    @property
    def in_percent(self) -> bool:
        """Whether `errors` are in %."""
        return not self.logarithmic and bool(np.all(self.true > 0))


def parameter_answers(run: RunFiles) -> list[ParameterAnswers]:
    """The network's answers to the test curves; [] where they are not on disk or not those of this network."""
    entries, answers = run.sidecar.get("parameters", []), run.answers
    if answers is None or answers.true.shape[1] != len(entries) or not len(answers.true):
        return []
    widths, found = label_widths(run), []
    for i, entry in enumerate(entries):
        logarithmic = entry.get("scale") == "log"
        true = answers.true[:, i]
        floor = None
        if len(answers.floor_variance):
            floor = np.sqrt(answers.floor_variance[:, i]) * widths[entry["name"]]
            # To the units of the errors that it is drawn behind.
            if logarithmic:
                floor = floor / math.log(10.0)
            elif np.all(true > 0):
                floor = 100 * floor / true[: len(floor)]
        found.append(
            ParameterAnswers(
                entry["name"], entry["unit"], logarithmic, true, answers.identified[:, i], floor
            )
        )
    return found


def label_widths(run: RunFiles) -> dict[str, float]:
    """Parameter name -> width of its range, which is 1 on the scale of the labels; logarithmic ones in e-folds."""
    return {
        entry["name"]: math.log(entry["high"] / entry["low"])
        if entry.get("scale") == "log"
        else entry["high"] - entry["low"]
        for entry in run.sidecar.get("parameters", [])
    }


def error_bins(run: RunFiles) -> Bins:
    """Errors by the kind of curve: of network, least squares and best possible, or of the network alone; or {}."""
    if run.reference:
        # A quantity that all curves share is no axis.
        return {name: bins for name, bins in run.reference["bins"].items() if len(bins) > 1}
    answers = parameter_answers(run)
    if run.answers is None or not answers:
        return {}
    curves = run.sidecar.get("curves") or {}
    noise = float(curves.get("noise_mpa") or 0.0), float(curves.get("noise_relative") or 0.0)
    return _bins_of_answers(run.answers, answers, label_widths(run), noise)


def _bins_of_answers(
    answers: ScoredAnswers,
    parameters: Sequence[ParameterAnswers],
    widths: Mapping[str, float],
    noise: tuple[float, float],
) -> Bins:
    """The network's errors alone, in bins that hold as many curves each.

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
        edges, places = equal_bins(quantity, _BINS)
        if len(edges) < 3 or not np.isfinite(edges).all():
            continue
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


def equal_bins(values: Array, count: int) -> tuple[Array, Array]:
    """Edges [bins + 1] of bins with as many curves each, at most `count`, and each curve's bin [curves]."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)))
    if len(edges) == 1:  # one value only
        edges = np.repeat(edges, 2)
    return edges, np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _mse(answers: ParameterAnswers, width: float, rows: Array) -> float:
    """Mean squared error of scaled labels over some of the curves."""
    true, identified = answers.true[rows], answers.identified[rows]
    error = np.log(identified / true) if answers.logarithmic else identified - true
    return float(np.mean((error / width) ** 2))


def coverage_gap(coverage: Mapping[str, Mapping[str, Any]]) -> float:
    """Percentage points by which the network's intervals hold the truth more or less often than they say, at most."""
    return max(
        (
            abs(100 * scores[level] - float(level))
            for scores in coverage.values()
            for level in ("50", "90", "95")
            if scores.get(level) is not None
        ),
        default=0.0,
    )


def more_accurate(reference: Mapping[str, Any]) -> dict[str, list[str]]:
    """Method -> parameters whose η is clearly the smaller, by more than twice the standard error of the difference."""
    found: dict[str, list[str]] = {"network": [], "least_squares": []}
    for name, entry in reference["parameters"].items():
        ahead = entry["least_squares_eta"] - entry["eta"]
        error = math.hypot(entry["eta_error"] or 0.0, entry["least_squares_eta_error"] or 0.0)
        if abs(ahead) > 2 * error:
            found["network" if ahead > 0 else "least_squares"].append(name)
    return found
