"""When a trial is hopeless: the median rule.

A trial ends where its best value so far is worse than the median of the values of the trials that are done, at the same
place of the training (Golovin et al., "Google Vizier", KDD 2017, section 3.2.2; in the form of Optuna's MedianPruner,
which takes the others' values and not their running averages: those would let nearly every loss pass).
"""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.files import check_json, read_json
from tfmat.report.run_files import read_metrics
from tfmat.training.plan import RunPlan


@dataclasses.dataclass(frozen=True)
class Curve:
    """The course of one run.

    Attributes:
      position: [records], epochs or seconds: what trials are compared at.
      progress: [records], share of the whole training.
      values: [records], the objective.
    """

    position: NDArray[np.float64]
    progress: NDArray[np.float64]
    values: NDArray[np.float64]

    def until(self, fraction: float) -> "Curve":
        """Its part up to the first record at or after this share of the steps."""
        count = int((self.progress < fraction - 1e-9).sum()) + 1
        return Curve(self.position[:count], self.progress[:count], self.values[:count])


def read_curve(run_folder: pathlib.Path, objective: str, train_for: str) -> Curve:
    """The curve of a run's folder, as far as it has come; empty where there is none.

    Args:
      objective: column of metrics.jsonl.
      train_for: of the config. Where it is in epochs, the share of the training is that of its epochs: with a growing
        batch they have different numbers of steps.
    """
    duration = RunPlan().changed(train_for=train_for).train_for
    position = "epoch" if duration.seconds is None else "seconds"
    of, whole = ("epoch", duration.value) if duration.unit == "epochs" else ("step", 0.0)
    lines = read_metrics(run_folder / "metrics.jsonl")
    if not whole:
        path = run_folder / "config.json"
        try:
            whole = check_json(read_json(path), _Whole, path)["total_steps"]
        except InputError:
            lines = []
    rows = [
        (line[position], line[of] / whole, line[objective])
        for line in lines
        if all(_is_number(line.get(key)) for key in (position, of, objective)) and whole > 0
    ]
    columns = np.array(rows, float).reshape(-1, 3).T
    return Curve(*columns)


class _Whole(TypedDict):
    total_steps: int


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def hopeless(curve: Curve, others: Sequence[Curve], at_least: int, sign: float = 1.0) -> str:
    """Why the trial of this curve is hopeless, or "": see the module.

    Args:
      curve, others: of which small values are good.
      at_least: so many others must be that far.
      sign: by which the objective was multiplied for that.
    """
    if not len(curve.values):
        return ""
    place = curve.position[-1]
    reached = [
        float(other.values[other.position <= place][-1])
        for other in others
        if len(other.values) and other.position[0] <= place <= other.position[-1] + 1e-9
    ]
    if len(reached) < at_least:
        return ""
    best, median = float(curve.values.min()), statistics.median(reached)
    if best <= median:
        return ""
    return f"hopeless: {sign * best:.4g} at best, the median of the others there is {sign * median:.4g}"
