"""Medians and spreads over repetitions; speed-up and efficiency against one worker without any parallel library."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfmat.errors import InputError
from tfmat.scaling.labels import Labels
from tfmat.scaling.measurements import Measurements, Point, Repetition

CONFIDENCE = 0.95
# Fewer rounds have no interval worth the name: their lowest and highest value are given, of a slope the value alone.
_FEWEST_ROUNDS = 3
_RESAMPLES = 2000
# Slowest over fastest repetition: from here on a median says nothing.
UNRELIABLE = 3.0


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median and the limits between which it lies."""

    low: float
    value: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """All three, multiplied."""
        return Estimate(factor * self.low, factor * self.value, factor * self.high)

    @classmethod
    def spread(cls, values: NDArray | Sequence[float]) -> "Estimate":
        """The median between the smallest and the largest."""
        return cls(float(np.min(values)), float(np.median(values)), float(np.max(values)))


@dataclasses.dataclass(frozen=True)
class PointSummary:
    """What the repetitions of one point say together.

    Attributes:
      point: what was measured.
      repetitions: of it, in the order of the rounds.
      label: what it is called without its workers, see Labels.
      step_seconds, curves_per_second: median, lowest and highest repetition.
      baseline: what it is compared with; None where that was not measured.
      speedup: curves a second over the baseline's, formed round by round: median and 95 % interval.
      efficiency: speed-up over workers.
      foreign: the baseline ran on other hardware, which was asked for.
      disagreement: slowest over fastest repetition; baseline_disagreement: of the baseline.
    """

    point: Point
    repetitions: tuple[Repetition, ...]
    step_seconds: Estimate
    curves_per_second: Estimate
    label: str = ""
    baseline: Point | None = None
    speedup: Estimate | None = None
    efficiency: Estimate | None = None
    foreign: bool = False
    disagreement: float = 1.0
    baseline_disagreement: float = 1.0

    @property
    def worst_disagreement(self) -> float:
        """Slowest over fastest repetition, its own or the baseline's."""
        return max(self.disagreement, self.baseline_disagreement)

    @property
    def unreliable(self) -> bool:
        """Its repetitions, or those of its baseline, are too far apart for a median or a ratio to say anything."""
        return self.worst_disagreement >= UNRELIABLE

    @property
    def name(self) -> str:
        """`2 × horovod mpi, 75 a worker`; a * where workers outnumber processors, a ? where repetitions disagree."""
        mark = (" *" if self.point.oversubscribed else "") + (" ?" if self.unreliable else "")
        return f"{self.point.workers} × {self.label}{mark}"


def summarise(
    measurements: Measurements, baseline_hardware: str | None = None
) -> list[PointSummary]:
    """One summary a point, in the order of `Labels.order`.

    Args:
      baseline_hardware: compare with baselines of this hardware instead of the point's own; only on request, since
        such a ratio mixes the machine with the parallelism.

    Raises:
      InputError: no baseline was measured on that hardware.
    """
    groups: dict[Point, list[Repetition]] = {}
    for repetition in measurements.repetitions:
        groups.setdefault(repetition.point, []).append(repetition)
    baselines = [point for point in groups if point.is_baseline]
    if baseline_hardware is not None:
        known = sorted({point.hardware for point in baselines})
        if baseline_hardware not in known:
            raise InputError(
                f"no baseline was measured on '{baseline_hardware}'; measured: {', '.join(known) or 'none'}"
            )
    labels = Labels(groups)
    return [
        _summary(point, groups, _baseline_of(point, baselines, baseline_hardware), labels[point])
        for point in sorted(groups, key=labels.order)
    ]


def _baseline_of(
    point: Point, baselines: Sequence[Point], baseline_hardware: str | None
) -> Point | None:
    """One worker with the same batch a worker (weak) or the same global batch (strong), on the same hardware."""
    batch = point.batch_a_worker if point.scaling == "weak" else point.global_batch_size
    hardware = point.hardware if baseline_hardware is None else baseline_hardware
    for other in baselines:
        same = other.model.name == point.model.name and other.dataset_size == point.dataset_size
        processors = other.processors_a_worker == point.processors_a_worker
        here = other.hardware == hardware and (processors or hardware != point.hardware)
        if same and here and other.global_batch_size == batch:
            return other
    return None


def _summary(
    point: Point, groups: dict[Point, list[Repetition]], baseline: Point | None, label: str
) -> PointSummary:
    repetitions = tuple(sorted(groups[point], key=lambda repetition: repetition.round))
    summary = PointSummary(
        point,
        repetitions,
        Estimate.spread([repetition.step_seconds for repetition in repetitions]),
        Estimate.spread([repetition.curves_per_second for repetition in repetitions]),
        label=label,
        disagreement=_disagreement(repetitions),
    )
    if baseline is None:
        return summary
    speedup = Estimate(1.0, 1.0, 1.0)
    if point != baseline:
        speedup = median_with_interval(speedups(repetitions, groups[baseline]))
    return dataclasses.replace(
        summary,
        baseline=baseline,
        speedup=speedup,
        efficiency=speedup.times(1 / point.workers),
        foreign=baseline.hardware != point.hardware,
        baseline_disagreement=_disagreement(groups[baseline]),
    )


def _disagreement(repetitions: Sequence[Repetition]) -> float:
    """Slowest over fastest; the steps of a training are timed otherwise, and only compared with each other."""
    groups = [
        [e.step_seconds for e in repetitions if bool(e.training) is kind] for kind in (False, True)
    ]
    return max(max(seconds) / min(seconds) for seconds in groups if seconds)


def speedups(of: Sequence[Repetition], baseline: Sequence[Repetition]) -> NDArray:
    """Ratios of curves a second, [rounds that both have]; of the medians, [1], where they share no round."""
    rates = {repetition.round: repetition.curves_per_second for repetition in baseline}
    pairs = [(each.curves_per_second, rates[each.round]) for each in of if each.round in rates]
    if not pairs:
        pairs = [(_median_rate(of), _median_rate(baseline))]
    return np.array([rate / other for rate, other in pairs])


def _median_rate(repetitions: Sequence[Repetition]) -> float:
    return float(np.median([repetition.curves_per_second for repetition in repetitions]))


def median_with_interval(values: NDArray | Sequence[float]) -> Estimate:
    """Median with its 95 % bootstrap interval (Efron and Tibshirani, 1993, percentiles); below 3 values the range."""
    values = np.asarray(values, float)
    if len(values) < _FEWEST_ROUNDS or np.ptp(values) == 0:
        return Estimate.spread(values)
    limits = stats.bootstrap(
        (values,),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),  # the same file always gives the same page
    ).confidence_interval
    return Estimate(float(limits.low), float(np.median(values)), float(limits.high))


def series(summaries: Sequence[PointSummary], scaling: str) -> dict[str, list[PointSummary]]:
    """Label -> its points with a speed-up, fewest workers first, the baseline included; without lone ones."""
    found: dict[str, list[PointSummary]] = {}
    of_point = {summary.point: summary for summary in summaries}
    for summary in summaries:
        point = summary.point
        if point.scaling != scaling or summary.baseline is None or point.workers == 1:
            continue
        found.setdefault(summary.label, [of_point[summary.baseline]]).append(summary)
    return {
        name: sorted(group, key=lambda each: each.point.workers) for name, group in found.items()
    }


def added_worker(group: Sequence[PointSummary]) -> Estimate | None:
    """What each further worker adds to the speed-up: k in S = 1 + k (P - 1), least squares, 95 % interval.

    1 is ideal. Less than three ratios have no interval. Oversubscribed and unreliable points are left out; None where
    nothing is left.
    """
    workers, ratios = _ratios(group)
    return _slope(workers - 1, ratios - 1)


def amdahl_share(group: Sequence[PointSummary]) -> Estimate | None:
    """The share s that does not get faster: 1/S = s + (1 - s)/P (Amdahl, 1967), least squares, 95 % interval."""
    workers, ratios = _ratios(group)
    return _slope(1 - 1 / workers, 1 / ratios - 1 / workers)


def _ratios(group: Sequence[PointSummary]) -> tuple[NDArray, NDArray]:
    """Workers and speed-ups, one entry a round of each point that tells of scaling."""
    of_point = {summary.point: summary.repetitions for summary in group}
    pairs = [
        (summary.point.workers, ratio)
        for summary in group
        if summary.baseline in of_point
        and summary.point.workers > 1
        and not summary.point.oversubscribed
        and not summary.unreliable
        for ratio in speedups(summary.repetitions, of_point[summary.baseline])
    ]
    columns = np.array(pairs, float).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _slope(x: NDArray, y: NDArray) -> Estimate | None:
    """Slope of a line through the origin."""
    if not len(x):
        return None
    slope = float(x @ y / (x @ x))
    if len(x) < _FEWEST_ROUNDS:
        return Estimate(slope, slope, slope)
    variance = float(np.sum((y - slope * x) ** 2)) / (len(x) - 1) / float(x @ x)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(x) - 1)) * np.sqrt(variance)
    return Estimate(slope - half, slope, slope + half)
