"""Which step model a study's measurements give, for which of its combinations, and how far off it is."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfmat.backends.mesh import BATCH
from tfmat.scaling.collective_costs import Link
from tfmat.scaling.matrix import BASELINES
from tfmat.scaling.measurement_files import Assumptions
from tfmat.scaling.measurements import AllReduce, Measurements, Point
from tfmat.scaling.network import Network, fit_network
from tfmat.scaling.prediction import (
    StepModel,
    fit_compute,
    relative_deviation,
    with_own_cost,
)
from tfmat.scaling.summary import PointSummary

# Predictions of what was left out should be as near.
GOAL = 0.2


@dataclasses.dataclass(frozen=True)
class Combination:
    """Points that one step model describes: those of one model, hardware and transport of gradients.

    Attributes:
      baselines: one worker, no library.
      points: several workers, data parallel, not oversubscribed.
    """

    baselines: tuple[PointSummary, ...]
    points: tuple[PointSummary, ...]

    @property
    def point(self) -> Point:
        """One of its points."""
        return self.points[0].point


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured step beside its prediction by a model that was fitted without it.

    Attributes:
      summary: what was measured.
      predicted: seconds per step.
      left_out: what the model had not seen: `its batch`, or `the point`; `nothing` for a fit, which proves little.
    """

    summary: PointSummary
    predicted: float
    left_out: str

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.summary.step_seconds.value - 1


def combinations(summaries: Sequence[PointSummary]) -> list[Combination]:
    """The combinations with a baseline and a point that is not oversubscribed, the most reliable points first."""

    def place(point: Point) -> tuple:
        return *point.kind, point.processors_a_worker

    groups: dict[tuple, list[PointSummary]] = {}
    for summary in summaries:
        point = summary.point
        # What one step costs with another exchange, slow_links.py says.
        exchanges = (
            not point.exchange
            and point.backend not in ("asynchronous", *BASELINES)
            and not point.exchanges_nothing
        )
        if point.workers > 1 and exchanges and point.axes == (BATCH,) and not point.oversubscribed:
            variant = point.backend, point.collectives, point.transport, point.zero_stage
            groups.setdefault((*place(point), *variant, point.placement), []).append(summary)
    found = []
    for group in groups.values():
        own = place(group[0].point)
        baselines = [each for each in summaries if each.point.is_baseline and place(each.point) == own]  # fmt: skip
        if baselines:
            found.append(Combination(tuple(baselines), tuple(group)))
    return sorted(found, key=lambda each: (-_reliable(each), -_efficiency(each)))


def _reliable(combination: Combination) -> int:
    return sum(not each.unreliable for each in combination.points)


def _efficiency(combination: Combination) -> float:
    found = [each.efficiency.value for each in combination.points if each.efficiency]
    return float(np.median(found)) if found else 0.0


def main_model(
    measurements: Measurements, summaries: Sequence[PointSummary], assumptions: Assumptions
) -> tuple[Combination | None, StepModel | None]:
    """The first combination whose library's all-reduces were measured too, with its model; else the first."""
    known = combinations(summaries)
    for combination in known:
        networks = _networks(combination.point, measurements.allreduces)
        if networks is not None:
            model = _fit(combination.baselines, combination.points, networks, assumptions)
            return combination, model
    return next(iter(known), None), None


def _networks(
    point: Point, allreduces: Sequence[AllReduce]
) -> tuple[Network, Network | None] | None:
    """The point's library on its hardware within a node, and over nodes (None where not measured)."""
    lines = [
        line
        for line in allreduces
        if line.library == point.collectives
        and line.hardware == point.hardware
        and line.transport in ("", point.transport)
        and not line.oversubscribed
    ]
    inside = fit_network([line for line in lines if line.nodes == 1])
    between = fit_network([line for line in lines if line.nodes > 1])
    if inside is None:
        return None if between is None else (between, between)
    return inside, between


def _fit(
    baselines: Sequence[PointSummary],
    points: Sequence[PointSummary],
    networks: tuple[Network, Network | None],
    assumptions: Assumptions,
) -> StepModel:
    compute = fit_compute(baselines)
    outside = None
    if assumptions.network_latency is not None and assumptions.network_bytes_per_second is not None:
        outside = Link(assumptions.network_latency, 1 / assumptions.network_bytes_per_second)
    most = max((each.point.ranks_per_node for each in points), default=1)
    point = baselines[0].point
    model = StepModel(
        compute=compute,
        deviation=relative_deviation([*baselines, *points], compute),
        own=0.0,
        own_error=0.0,
        inside=networks[0],
        between=networks[1],
        ranks_per_node=assumptions.ranks_per_node or most,
        outside=outside,
        gradient_bytes=point.model.gradient_bytes,
    )
    return with_own_cost(model, points)


def checks(
    combination: Combination, allreduces: Sequence[AllReduce], assumptions: Assumptions
) -> list[Check]:
    """Every point with several workers, predicted by a fit without its batch a worker, else without the point."""
    networks = _networks(combination.point, allreduces)
    if networks is None:
        return []
    found = []
    for summary in combination.points:
        batch = summary.point.batch_a_worker
        baselines = [e for e in combination.baselines if e.point.batch_a_worker != batch]
        points = [e for e in combination.points if e.point.batch_a_worker != batch]
        left_out = "its batch"
        # A line through one batch cannot tell another.
        if len({each.point.batch_a_worker for each in baselines}) < 2:
            baselines, left_out = list(combination.baselines), "the point"
            points = [each for each in combination.points if each is not summary]
        if not points:
            left_out += ", no other point"
        model = _fit(baselines, points, networks, assumptions)
        found.append(Check(summary, model.seconds(summary.point.workers, batch), left_out))
    return found
