"""What an accuracy costs: time, device-hours, energy and money, as measured and as predicted for more workers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.scaling.measurement_files import Assumptions
from tfmat.scaling.measurements import Point, Repetition
from tfmat.scaling.prediction import Prediction
from tfmat.scaling.summary import Estimate, PointSummary


@dataclasses.dataclass(frozen=True)
class Cost:
    """What it costs to reach the target.

    Attributes:
      point: that was trained.
      name: of the point, for people.
      seconds: of training; low and high are the fastest and slowest repetition.
      epochs: median.
      device_hours: workers × hours.
      kilowatt_hours, money: None where neither power nor price is known.
    """

    point: Point
    name: str
    seconds: Estimate
    epochs: float
    device_hours: float
    kilowatt_hours: float | None
    money: float | None

    @classmethod
    def of(
        cls,
        point: Point,
        name: str,
        seconds: Estimate,
        epochs: float,
        watts: float | None,
        assumptions: Assumptions,
    ) -> "Cost":
        """The cost of so many seconds; `watts` are those of all workers together, None where not measured."""
        hours, energy = point.workers * seconds.value / 3600, None
        if watts is not None:
            energy = watts * seconds.value / 3.6e6
        elif assumptions.watts_a_worker is not None:
            energy = assumptions.watts_a_worker * hours / 1000
        price = assumptions.price_per_hour
        return cls(
            point, name, seconds, epochs, hours, energy, None if price is None else price * hours
        )


def training_lines(
    records: Sequence[dict[str, Any]], untimed_steps: int, step_seconds: float
) -> list[dict[str, Any]]:
    """Losses against seconds without compiling: of the calls that compile, the work of their steps counts.

    Args:
      records: of metrics.jsonl.
      untimed_steps: in the calls that compile; each counts as a step of the other calls does: the median over
        records without compiling, else the mean of all timed steps.
      step_seconds: that mean.
    """
    compiling = np.array([record["use"]["first_call_seconds"] for record in records])
    seconds = np.array([record["training_seconds"] for record in records])
    steps = np.diff([record["step"] for record in records], prepend=0)
    later = (compiling == 0) & (steps > 0)
    if later.any():
        step_seconds = float(np.median(np.diff(seconds, prepend=0.0)[later] / steps[later]))
    # Nearly always it is one call, in the first record.
    work = untimed_steps * step_seconds * np.cumsum(compiling) / max(compiling.sum(), 1e-9)
    counted = np.maximum(seconds - np.cumsum(compiling), 0.0) + work
    return [
        {
            "seconds": round(float(each), 6),
            **{name: record.get(name) for name in ("epoch", "loss", "val_loss")},
        }
        for record, each in zip(records, counted, strict=True)
    ]


def target_of(summaries: Sequence[PointSummary], assumptions: Assumptions) -> float | None:
    """The given target, else the lowest validation loss that every trained repetition reached; None without any."""
    if assumptions.target_val_loss is not None:
        return assumptions.target_val_loss
    best = [_best(each) for summary in summaries for each in summary.repetitions]
    reached = [value for value in best if value is not None]
    return max(reached) if reached else None


def _best(repetition: Repetition) -> float | None:
    losses = [line.val_loss for line in repetition.training if line.val_loss is not None]
    return min(losses) if losses else None


def reached(repetition: Repetition, target: float) -> tuple[float, float] | None:
    """(seconds, epochs) of the first line at or below the target; None where there is none."""
    for line in repetition.training:
        if line.val_loss is not None and line.val_loss <= target:
            return line.seconds, line.epoch
    return None


def costs(summaries: Sequence[PointSummary], target: float, assumptions: Assumptions) -> list[Cost]:
    """One for each point all of whose trained repetitions reached the target, the fastest first."""
    found = []
    for summary in summaries:
        trained = [each for each in summary.repetitions if each.training]
        times = [reached(each, target) for each in trained]
        known = [time for time in times if time is not None]
        if not known or len(known) < len(times):
            continue
        spread = Estimate.spread([time[0] for time in known])
        epochs = float(np.median([time[1] for time in known]))
        of_point = summary.point, summary.name, spread, epochs, _watts(trained)
        found.append(Cost.of(*of_point, assumptions))
    return sorted(found, key=lambda cost: cost.seconds.value)


def name_among(cost: Cost, among: Sequence[Cost]) -> str:
    """The point's name, with its data set where there are several, also the usual one."""
    text = f"{cost.point.dataset_size:,} examples"
    several = len({each.point.dataset_size for each in among}) > 1
    return f"{cost.name}, {text}" if several and text not in cost.name else cost.name


def predicted_costs(
    cost: Cost, predictions: Sequence[Prediction], assumptions: Assumptions
) -> list[Cost]:
    """The cost with other numbers of workers at the same global batch, which takes as many steps as measured."""
    steps = cost.epochs * cost.point.steps_an_epoch
    found = []
    for each in predictions:
        seconds = each.step_seconds.times(steps)
        point = dataclasses.replace(
            cost.point, workers=each.workers, batch_a_worker=int(each.batch_a_worker)
        )
        name = f"{point.workers:,} × {point.batch_a_worker:,}"
        found.append(Cost.of(point, name, seconds, cost.epochs, None, assumptions))
    return found


def _watts(repetitions: Sequence[Repetition]) -> float | None:
    """The power of all ranks together, median over repetitions; None unless every rank's was measured."""
    sums = []
    for repetition in repetitions:
        powers = [rank.power_watts for rank in repetition.ranks]
        known = [power for power in powers if power is not None]
        if not known or len(known) < len(powers):
            return None
        sums.append(sum(known))
    return float(np.median(sums)) if sums else None
