"""The analysis of measured speeds: speed-ups, a model of the step, predictions, costs, and what pays."""

import dataclasses
import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from tfmat.backends.layouts import Collective, Plan, collectives_of_step, make_plan
from tfmat.config import BATCH, MeshShape
from tfmat.errors import InputError
from tfmat.report.tables import bytes_text, percent_text, seconds_text
from tfmat.scaling.study import (
    EXCHANGING,
    OF_TF_DISTRIBUTE,
    AllReduce,
    Assumptions,
    Labels,
    Measurements,
    Meeting,
    Model,
    Point,
    Repetition,
    messages,
)

# --------------------------------------------------------------------------------------------------
# Medians and spreads over repetitions; speed-up and efficiency against one worker without any parallel library.


# CONFIDENCE: of all intervals of a study.
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
    """The summary of the repetitions of one point.

    Attributes:
      repetitions: of it, in the order of the rounds.
      label: what it is called without its workers, see Labels.
      step_seconds, curves_per_second: median, lowest and highest repetition.
      disagreement: slowest over fastest repetition; worst_disagreement: its own or the baseline's.
      baseline: what it is compared with; None where that was not measured.
      speedup: curves a second over the baseline's, formed round by round: median and 95 % interval.
    """

    point: Point
    repetitions: tuple[Repetition, ...]
    step_seconds: Estimate
    curves_per_second: Estimate
    label: str
    disagreement: float
    worst_disagreement: float
    baseline: Point | None
    speedup: Estimate | None

    @property
    def efficiency(self) -> Estimate | None:
        """Speed-up over workers."""
        return None if self.speedup is None else self.speedup.times(1 / self.point.workers)

    @property
    def foreign(self) -> bool:
        """Whether the baseline ran on other hardware, which was asked for."""
        return self.baseline is not None and self.baseline.hardware != self.point.hardware

    @property
    def unreliable(self) -> bool:
        """Its repetitions, or its baseline's, are too far apart for a median or a ratio to say anything."""
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
    speedup, disagreement = None, _disagreement(repetitions)
    worst = disagreement
    if baseline is not None:
        speedup = Estimate(1.0, 1.0, 1.0)
        if point != baseline:
            speedup = median_with_interval(speedups(repetitions, groups[baseline]))
        worst = max(disagreement, _disagreement(groups[baseline]))
    return PointSummary(
        point,
        repetitions,
        Estimate.spread([repetition.step_seconds for repetition in repetitions]),
        Estimate.spread([repetition.curves_per_second for repetition in repetitions]),
        label,
        disagreement,
        worst,
        baseline,
        speedup,
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
    """The speed-up by each further worker: k in S = 1 + k (P - 1), least squares, 95 % interval.

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


# --------------------------------------------------------------------------------------------------
# The cost of exchanges by theory, and so whether data, tensor or sharded parallelism suits a model.
#
# Pure functions of workers, bytes, latency α (s) and inverse bandwidth β (s/byte). A message of n bytes takes α + nβ
# (Hockney, 1994). N is the size of the gradient, P the number of workers. Adding numbers up is left out: it is in β as
# it is measured.
#
# Sources: Thakur, Rabenseifner and Gropp (2005), Optimization of collective communication operations in MPICH, sections
# 4.4 and 4.5; Patarasu and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations; Cho et
# al. (2017), PowerAI DDL, arXiv:1708.02188, for rings within and between nodes.


# Slots of an optimizer such as Adam.
_SLOTS = 2


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An algorithm that sums over all workers: it takes `messages` α + `volume` N β.

    Attributes:
      messages: of P, one after the other.
      volume: of P, gradients that pass the busiest link, one after the other.
    """

    title: str
    messages: Callable[[int], float]
    volume: Callable[[int], float]

    def seconds(self, workers: int, num_bytes: float, latency: float, byte_seconds: float) -> float:
        """The time of one all-reduce."""
        return self.messages(workers) * latency + self.volume(workers) * num_bytes * byte_seconds


def _rounds(workers: int) -> int:
    return math.ceil(math.log2(workers))


ALGORITHMS = {
    # Reduce-scatter and all-gather in a ring: P - 1 messages of N/P each.
    "ring": Algorithm("ring", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p),
    # Rabenseifner's: reduce-scatter by halving, all-gather by doubling.
    "halving": Algorithm("halving and doubling", lambda p: 2 * _rounds(p), lambda p: 2 * (p - 1) / p),
    # Reduce to one, then broadcast, both along a binomial tree, the whole message each time.
    "tree": Algorithm("tree", lambda p: 2 * _rounds(p), lambda p: 2 * _rounds(p)),
    # One of the P serves: it gets N from each of the others and sends N to each, all over its own link.
    "server": Algorithm("parameter server", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
}  # fmt: skip


def server_bytes(gradient_bytes: float, workers: int) -> float:
    """2N(P - 1): bytes that pass a parameter server in a step, one of the P workers being the server."""
    return gradient_bytes * ALGORITHMS["server"].volume(workers)


def ring_bytes(gradient_bytes: float, workers: int) -> float:
    """2N(P - 1)/P: bytes that each worker of a ring sends in a step (Patarasu and Yuan, 2009: none can send less)."""
    return gradient_bytes * ALGORITHMS["ring"].volume(workers)


@dataclasses.dataclass(frozen=True)
class Link:
    """Latency of a message (s) and seconds that a byte takes."""

    latency: float
    byte_seconds: float


def hierarchical_seconds(
    num_bytes: float, nodes: int, ranks_per_node: int, inside: Link, between: Link
) -> float:
    """All-reduce in rings: within each node to parts, of each part between nodes, within each node again.

    Each of the L workers of a node then has N/L bytes to sum over the M nodes. They share the node's one link outwards,
    so that this takes as long as N bytes would: 2(L - 1)α + 2(L - 1)/L Nβ inside, 2(M - 1)α' + 2(M - 1)/M Nβ' between.
    """
    ring = ALGORITHMS["ring"]
    return ring.seconds(
        ranks_per_node, num_bytes, inside.latency, inside.byte_seconds
    ) + ring.seconds(nodes, num_bytes, between.latency, between.byte_seconds)


def collective_seconds(collective: Collective, link: Link) -> float:
    """The time of a step's exchanges of one kind, in rings.

    Gradients and weights are joined to one message; activations of one layer wait for the layer before.
    """
    rounds = 2 if collective.kind == "all-reduce" else 1
    tensors = collective.tensors if collective.what.startswith("activations") else 1
    messages = rounds * (collective.devices - 1) * tensors
    return messages * link.latency + collective.sent_in_ring * link.byte_seconds


@dataclasses.dataclass(frozen=True)
class Option:
    """One form of parallelism, which divides the work of a step over the workers.

    Attributes:
      name: `data`, `tensor` or `sharded` parallelism.
      divides: whether there is anything that it can divide.
      exchange_seconds: what its exchanges take in a step, in rings.
      sent_bytes: what each worker sends in a step.
      memory_bytes: weights, gradients and two slots a weight on each worker, without activations.
    """

    name: str
    divides: bool
    exchange_seconds: float
    sent_bytes: int
    memory_bytes: int


def options(model: Model, workers: int, batch_a_worker: int, link: Link) -> list[Option]:
    """Data, tensor and sharded parallelism (ZeRO stage 3) of the default layouts, all with the same global batch.

    Empty where the model's weights are not known. Arithmetic from layouts; see tfmat.backends.layouts.
    """
    if not model.weights or workers < 2:
        return []
    batch = workers * batch_a_worker
    found = []
    for name, axis, stage in (
        ("data", "batch", 0),
        ("tensor", "model", 0),
        ("sharded", "batch", 3),
    ):
        plan = make_plan(model.weights, MeshShape(((axis, workers),)), zero_stage=stage)
        exchanges = collectives_of_step(plan, batch)
        divides = name == "data" or any(any(e.slots) or any(e.compute) for e in plan.layouts)
        seconds = sum(collective_seconds(each, link) for each in exchanges)
        sent = sum(each.sent_in_ring for each in exchanges)
        found.append(Option(name, divides, seconds, sent, _memory(plan)))
    return found


def _memory(plan: Plan) -> int:
    return sum(
        layout.bytes(layout.stored, plan.mesh)
        + layout.bytes(layout.gradient, plan.mesh)
        + _SLOTS * layout.bytes(layout.slots, plan.mesh)
        for layout in plan.layouts
    )


def choose(
    found: Sequence[Option], workers: int, batch_a_worker: int, device_memory_bytes: int | None
) -> str:
    """One sentence: the shortest exchange among those that divide and fit, and why."""
    of = {option.name: option for option in found if option.divides}
    fitting = [
        option
        for option in of.values()
        if device_memory_bytes is None or option.memory_bytes <= device_memory_bytes
    ]
    place = f"{workers:,} workers of {batch_a_worker:,} examples"
    if not fitting:
        least = min(of.values(), key=lambda option: option.memory_bytes)
        return (
            f"None of data, tensor and sharded parallelism fits {place}: {least.name} parallelism needs least, "
            f"{bytes_text(least.memory_bytes)} a worker; take more workers or larger devices."
        )
    best = min(fitting, key=lambda option: option.exchange_seconds)
    others = [
        f"{seconds_text(option.exchange_seconds)} {option.name}"
        for option in of.values()
        if option is not best
    ]
    beside = f", against {' and '.join(others)}" if others else ""
    fits = "needs" if device_memory_bytes is None else "fits, with"
    return (
        f"{best.name.capitalize()} parallelism exchanges fastest among {place}: in "
        f"{seconds_text(best.exchange_seconds)} a step by the measured latency and bandwidth{beside}, and it "
        f"{fits} {bytes_text(best.memory_bytes)} a worker for weights, gradients and optimizer."
    )


# --------------------------------------------------------------------------------------------------
# Non-negative terms fitted to times, robust, on relative errors, with the covariance of what was found.
#
# All-reduces as measured: latency and bandwidth of each library and worker count, and how both grow with workers.


# Relative error beyond which a time counts less: one run that another program disturbed does not bend the fit.
_OUTLIER = 0.1


@dataclasses.dataclass(frozen=True)
class Fit:
    """Seconds = design @ values.

    Attributes:
      values: [terms], none negative.
      covariance: [terms, terms].
      error: root mean square of the relative residuals.
    """

    values: NDArray
    covariance: NDArray
    error: float

    @property
    def errors(self) -> NDArray:
        """[terms]: standard errors."""
        return np.sqrt(np.diag(self.covariance))

    def draw(self, random: np.random.Generator) -> NDArray:
        """[terms]: values as far off as the data allow, none negative."""
        known = self.errors > 0
        found = self.values.copy()
        # Solved by Cholesky, which is the same on every machine; a fixed term has no spread.
        part = self.covariance[np.ix_(known, known)]
        root = np.linalg.cholesky(part * (1 + 1e-9 * np.eye(len(part))))
        found[known] += root @ random.standard_normal(len(part))
        return np.maximum(found, 0.0)


def fit_times(design: NDArray, seconds: NDArray) -> Fit:
    """Least squares of log(design @ values / seconds) with soft absolute loss (scipy `least_squares`, soft_l1).

    Args:
      design: [times, terms], none negative, and no row zero. The term of a column of zeros is 0, without error.
      seconds: [times], positive.
    """
    design, seconds = np.asarray(design, float), np.asarray(seconds, float)
    used = (design != 0).sum(axis=0) > 0
    if not used.all():
        part = fit_times(design[:, used], seconds)
        values, covariance = np.zeros(len(used)), np.zeros((len(used), len(used)))
        values[used], covariance[np.ix_(used, used)] = part.values, part.covariance
        return Fit(values, covariance, part.error)
    # Each term begins with its share of the mean; scaling makes all of them numbers near one.
    scale = np.array([np.median(seconds[c > 0] / c[c > 0]) for c in design.T])
    scaled = design * scale / seconds[:, None]

    def residuals(values: NDArray) -> NDArray:
        return np.log(np.maximum(scaled @ values, 1e-12))

    start = np.full(design.shape[1], 1.0 / design.shape[1])
    found = optimize.least_squares(
        residuals, start, bounds=(0, np.inf), loss="soft_l1", f_scale=_OUTLIER, xtol=1e-12
    )
    values = found.x
    relative = scaled @ values - 1
    free = values > 1e-9  # a term at its bound is not there
    spare = max(len(seconds) - int(free.sum()), 1)
    jacobian = scaled[:, free] / (scaled @ values)[:, None]
    covariance = np.zeros((len(values), len(values)))
    # The spread by the median, which outliers do not widen (Rousseeuw and Croux, 1993).
    deviation = 1.4826 * float(np.median(np.abs(relative))) * np.sqrt(len(seconds) / spare)
    covariance[np.ix_(free, free)] = deviation**2 * np.linalg.pinv(jacobian.T @ jacobian)
    values = np.where(free, values, 0.0)
    error = float(np.sqrt(np.mean(relative**2)))
    return Fit(values * scale, covariance * np.outer(scale, scale), error)


def left_out_errors(design: NDArray, seconds: NDArray, groups: Sequence[object]) -> NDArray:
    """[times]: relative error of each time as predicted by a fit without its group; NaN where none is possible."""
    found = np.full(len(seconds), np.nan)
    for group in dict.fromkeys(groups):
        out = np.array([each == group for each in groups])
        rest = design[~out]
        if len(rest) and np.linalg.matrix_rank(rest) == np.linalg.matrix_rank(design):
            values = fit_times(rest, seconds[~out]).values
            found[out] = design[out] @ values / seconds[out] - 1
    return found


# One worker count does not tell the growth of the latency: these are the limits, and what lies between.
GROWTHS = ("constant", "logarithmic", "linear")


@dataclasses.dataclass(frozen=True)
class LineFit:
    """Time = latency + bytes × seconds a byte, for one library and one number of workers.

    Attributes:
      fit: [latency (s), seconds a byte].
      left_out: [lines], relative error of each size as predicted by a line through the other sizes.
      left_out_between: [sizes - 2], of each size but the first and the last as predicted from its two neighbours.
    """

    lines: tuple[AllReduce, ...]
    fit: Fit
    left_out: NDArray
    left_out_between: NDArray

    @property
    def name(self) -> str:
        """`mpi, 4 workers`."""
        first = self.lines[0]
        nodes = f" on {first.nodes} nodes" if first.nodes > 1 else ""
        return f"{library_name(first)}, {first.workers} workers{nodes}"

    def on_line(self, num_bytes: float) -> float:
        """Seconds of one all-reduce of that many bytes, by the fit."""
        return float(self.fit.values @ [1.0, num_bytes])

    def seconds(self, num_bytes: float) -> float:
        """The same as measured, and beyond the smallest and the largest size by the fit.

        Between two sizes it is the line through both: a library changes its algorithm with the size: each stretch
        has a latency and a bandwidth of its own.
        """
        sizes, seconds = _medians(self.lines)
        if sizes[0] <= num_bytes <= sizes[-1]:
            return float(np.interp(num_bytes, sizes, seconds))
        return self.on_line(num_bytes)


def _medians(lines: Sequence[AllReduce]) -> tuple[NDArray, NDArray]:
    """[sizes] in rising order, and the median time of each."""
    sizes = sorted({line.bytes for line in lines})
    groups = [[line.median_seconds for line in lines if line.bytes == size] for size in sizes]
    return np.array(sizes, float), np.array([np.median(group) for group in groups])


def library_name(line: AllReduce) -> str:
    """`mpi over shared memory`."""
    return f"{line.library} over {line.transport}" if line.transport else line.library


def line_fits(lines: Sequence[AllReduce]) -> list[LineFit]:
    """One fit for each library, transport, hardware, worker count and number of nodes."""
    groups: dict[tuple, list[AllReduce]] = {}
    for line in lines:
        key = (line.hardware, line.library, line.transport, line.nodes, line.workers)
        groups.setdefault(key, []).append(line)
    return [_line_fit(group) for group in groups.values() if len({e.bytes for e in group}) > 1]


def _line_fit(lines: list[AllReduce]) -> LineFit:
    lines = sorted(lines, key=lambda line: line.bytes)
    sizes = np.array([line.bytes for line in lines], float)
    design = np.stack([np.ones(len(sizes)), sizes], axis=1)
    seconds = np.array([line.median_seconds for line in lines])
    left_out = left_out_errors(design, seconds, [line.bytes for line in lines])
    x, y = _medians(lines)
    between = [np.interp(x[i], np.delete(x, i), np.delete(y, i)) for i in range(1, len(x) - 1)]
    fit = fit_times(design, seconds)
    return LineFit(tuple(lines), fit, left_out, np.array(between) / y[1:-1] - 1)


@dataclasses.dataclass(frozen=True)
class Network:
    """An all-reduce for any number of workers: seconds = own + messages × latency + volume × bytes × seconds a byte.

    Attributes:
      algorithm: of `ALGORITHMS`, the one that fits best.
      fit: [own (s), latency (s), seconds a byte]; own is the library's, whatever the message.
      workers: counts that were measured.
      growth: how the latency grows; `as measured` where two counts or more tell it.
    """

    algorithm: str
    fit: Fit
    workers: tuple[int, ...]
    growth: str

    @property
    def values(self) -> NDArray:
        """The values of the fit."""
        return self.fit.values

    @property
    def link(self) -> Link:
        """Latency and inverse bandwidth of a single message."""
        return Link(float(self.values[1]), float(self.values[2]))

    def seconds(self, workers: int, num_bytes: float, algorithm: str | None = None) -> float:
        """The time of one all-reduce, also by another algorithm than the measured one."""
        if workers == 1:
            return 0.0
        law = ALGORITHMS[algorithm or self.algorithm]
        own, latency, byte_seconds = self.values
        if self.growth == "as measured" or algorithm is not None:
            return float(own) + law.seconds(workers, num_bytes, latency, byte_seconds)
        measured = self.workers[0]
        growth = {
            "constant": 1.0,
            "logarithmic": np.log2(workers) / np.log2(measured),
            "linear": (workers - 1) / (measured - 1),
        }[self.growth]
        transfer = law.volume(workers) * num_bytes * byte_seconds
        return float(own + law.messages(measured) * latency * growth + transfer)

    def draw(self, random: np.random.Generator) -> "Network":
        """One as far off as the measurements allow."""
        growth = str(random.choice(GROWTHS)) if self.growth != "as measured" else self.growth
        drawn = dataclasses.replace(self.fit, values=self.fit.draw(random))
        return dataclasses.replace(self, fit=drawn, growth=growth)


def fit_network(lines: Sequence[AllReduce]) -> Network | None:
    """The law of one library on one hardware, over all its worker counts; None for less than two message sizes.

    The algorithm with the smallest error on sizes left out is taken: ring, halving and doubling, or tree. With one
    worker count they cannot be told apart: the ring's volume, which is the least possible, and a latency that grows as
    the logarithm.
    """
    counts = tuple(sorted({line.workers for line in lines}))
    if len({line.bytes for line in lines}) < 2:
        return None
    several = len(counts) > 1
    seconds = np.array([line.median_seconds for line in lines])
    sizes = [line.bytes for line in lines]
    found: dict[str, tuple[float, Fit]] = {}
    for name in ["ring", "halving", "tree"] if several else ["ring"]:
        law = ALGORITHMS[name]
        # One count cannot tell the library's own time from the latency.
        rows = [[several, law.messages(e.workers), law.volume(e.workers) * e.bytes] for e in lines]
        design, fit = np.array(rows, float), fit_times(np.array(rows, float), seconds)
        errors = left_out_errors(design, seconds, sizes)
        known = errors[np.isfinite(errors)]
        found[name] = float(np.sqrt(np.mean(known**2))) if len(known) else fit.error, fit
    best = min(found, key=lambda name: found[name][0])
    return Network(best, found[best][1], counts, "as measured" if several else "logarithmic")


# --------------------------------------------------------------------------------------------------
# Predictions for more workers, with intervals, and where they stop paying.
#
# The time of a data-parallel step is the sum of its parts: computing, the wait for the slowest worker, the exchange.
#
#     T(P, b) = T1(b) + σ m(P) + t(P, N) + c
#
# T1(b) = t0 + t1 b is one worker's step of b examples without any library, σ the standard deviation of one worker's
# step, m(P) the expected largest of P standard normal numbers, t(P, N) an all-reduce of the gradient, and c what the
# library costs beyond that. Nothing is taken to overlap: tfmat exchanges one flat buffer after the backward pass.


_SHORTEST = 1e-9  # seconds


@functools.cache
def expected_maximum(workers: int) -> float:
    """m(P): mean of the largest of P standard normal numbers (Harter, 1961)."""
    return float(stats.order_statistic(stats.Normal(), r=workers, n=workers).mean())


def fit_compute(baselines: Sequence[PointSummary]) -> Fit:
    """T1(b) from baselines of one hardware and model: [t0 (s), t1 (s an example)]; t0 is 0 for one batch size."""
    # Single repetitions, not their medians: their scatter is what makes the standard errors.
    pairs = [(e.point.global_batch_size, r.step_seconds) for e in baselines for r in e.repetitions]
    batches, seconds = np.array(pairs, float).T
    several = float(len(set(batches)) > 1)
    return fit_times(np.stack([np.full(len(batches), several), batches], axis=1), seconds)


@dataclasses.dataclass(frozen=True)
class StepModel:
    """T(P, b) of one model on one hardware with one library.

    Attributes:
      compute: T1(b), see `fit_compute`.
      deviation: σ over T1(b); 0 where it was not measured (the wait is then part of `own`).
      own, own_error: c and its standard error, s.
      inside: all-reduce within a node; between: over nodes, None where none was measured.
      ranks_per_node: workers that fill a node.
      outside: the assumed link between nodes, where none was measured.
      gradient_bytes: N.
      times: how much larger the model is than the measured one.
    """

    compute: Fit
    deviation: float
    inside: Network
    between: Network | None
    ranks_per_node: int
    outside: Link | None
    gradient_bytes: int
    own: float = 0.0
    own_error: float = 0.0
    times: float = 1.0

    def alone(self, batch: float) -> float:
        """T1(b)."""
        fixed, an_example = self.compute.values
        # A draw from two rounds of a busy machine may be of no time at all, by which nothing can be divided.
        return max(float(fixed + self.times * an_example * batch), _SHORTEST)

    def seconds(self, workers: int, batch: float) -> float:
        """T(P, b)."""
        alone = self.alone(batch)
        waiting = self.deviation * alone * expected_maximum(workers)
        return alone + waiting + self.exchange(workers) + (self.own if workers > 1 else 0.0)

    def efficiency(self, workers: int, batch: float) -> float:
        """T1(b) over T(P, b)."""
        return self.alone(batch) / self.seconds(workers, batch)

    def exchange(self, workers: int) -> float:
        """t(P, N): beyond one node by what was measured there, else by the assumed link, else as inside."""
        num_bytes = self.times * self.gradient_bytes
        if workers > self.ranks_per_node:
            if self.between is not None:
                return self.between.seconds(workers, num_bytes)
            if self.outside is not None:
                nodes = -(-workers // self.ranks_per_node)
                own = float(self.inside.values[0])
                link = self.inside.link
                return own + hierarchical_seconds(
                    num_bytes, nodes, self.ranks_per_node, link, self.outside
                )
        return self.inside.seconds(workers, num_bytes)

    def larger(self, times: float) -> "StepModel":
        """A model with so many times the parameters, and so many times the work for an example."""
        return dataclasses.replace(self, times=times)

    def draw(self, random: np.random.Generator) -> "StepModel":
        """One as far off as the measurements allow."""
        return dataclasses.replace(
            self,
            compute=dataclasses.replace(self.compute, values=self.compute.draw(random)),
            own=max(float(random.normal(self.own, self.own_error)), 0.0),
            inside=self.inside.draw(random),
            between=None if self.between is None else self.between.draw(random),
        )


def with_own_cost(model: StepModel, points: Sequence[PointSummary]) -> StepModel:
    """A model without c with c: the median of what points with several workers took beyond it; and its error."""
    if not points:
        return model
    beyond = np.array(
        [
            each.step_seconds.value - model.seconds(each.point.workers, each.point.batch_a_worker)
            for each in points
        ]
    )
    middle = float(np.median(beyond))
    spread = 1.4826 * float(np.median(np.abs(beyond - middle))) / np.sqrt(len(beyond))
    return dataclasses.replace(model, own=max(middle, 0.0), own_error=spread)


def relative_deviation(summaries: Sequence[PointSummary], compute: Fit) -> float:
    """Median of the ranks' standard deviations of a step over T1(b); 0 where none was measured."""
    found = [
        rank.step_deviation / float(compute.values @ [1.0, summary.point.batch_a_worker])
        for summary in summaries
        for repetition in summary.repetitions
        for rank in repetition.ranks
        if rank.step_deviation is not None
    ]
    return float(np.median(found)) if found else 0.0


# MOST_WORKERS, POWERS: how far the model is asked, and at which numbers of workers.
MOST_WORKERS = 1024
POWERS = tuple(2**k for k in range(11))
# Below this efficiency more than half of what is paid for is lost.
WORTHWHILE = 0.5
# From this batch a worker on, little is lost.
GOOD = 0.8
_DRAWS = 300
_LIMITS = (2.5, 97.5)
_LARGEST_BATCH = 2**20


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The prediction for one number of workers: medians and 95 % intervals of what the fits leave open.

    Attributes:
      step_seconds, speedup, efficiency: against one worker with the same batch a worker (weak) or in all (strong).
    """

    workers: int
    batch_a_worker: float
    step_seconds: Estimate
    speedup: Estimate
    efficiency: Estimate


class Predictor:
    """A step model and models drawn around it, all with the same seed: the same file gives the same page."""

    def __init__(self, model: StepModel, times: float = 1.0):
        """`times`: how much larger the model is than the measured one, in parameters and in work."""
        random = np.random.default_rng(0)
        self._draws = [model.draw(random).larger(times) for _ in range(_DRAWS)]
        self.model = model.larger(times)

    def weak(self, batch_a_worker: int) -> list[Prediction]:
        """Each worker keeps its batch."""
        return [self._predict(p, batch_a_worker, batch_a_worker, p) for p in POWERS]

    def strong(self, global_batch_size: int) -> list[Prediction]:
        """The workers share one batch; up to one example each."""
        return [
            self._predict(p, -(-global_batch_size // p), global_batch_size, 1)
            for p in POWERS
            if p <= global_batch_size
        ]

    def _predict(self, workers: int, batch: int, alone: int, gain: int) -> Prediction:
        """`gain` times the examples of one worker alone, whose step has `alone` of them."""

        def speedup(model: StepModel) -> float:
            return gain * model.alone(alone) / model.seconds(workers, batch)

        seconds = self._estimate(lambda model: model.seconds(workers, batch))
        ratio = self._estimate(speedup)
        return Prediction(workers, batch, seconds, ratio, ratio.times(1 / workers))

    def _estimate(self, quantity: Callable[[StepModel], float]) -> Estimate:
        low, high = np.percentile([quantity(model) for model in self._draws], _LIMITS)
        value = quantity(self.model)
        return Estimate(min(float(low), value), value, max(float(high), value))


def last_worthwhile(predictions: Sequence[Prediction], limit: str = "value") -> int:
    """The most workers whose efficiency, as well as with all fewer, is at least WORTHWHILE.

    Args:
      limit: `value`, or `low` or `high` for the ends of the interval.
    """
    last = 1
    for prediction in predictions:
        if getattr(prediction.efficiency, limit) < WORTHWHILE:
            break
        last = prediction.workers
    return last


def fastest(predictions: Sequence[Prediction]) -> Prediction:
    """The one with the shortest step; with more workers a fixed global batch takes longer."""
    return min(predictions, key=lambda each: each.step_seconds.value)


def smallest_good_batch(model: StepModel, workers: int) -> int | None:
    """The smallest batch a worker with an efficiency of GOOD at so many workers; None where none reaches it."""
    if model.efficiency(workers, _LARGEST_BATCH) < GOOD:
        return None
    low, high = 0, _LARGEST_BATCH
    while high - low > 1:  # the efficiency grows with the batch
        middle = (low + high) // 2
        low, high = (low, middle) if model.efficiency(workers, middle) >= GOOD else (middle, high)
    return high


# --------------------------------------------------------------------------------------------------
# The cost of an accuracy: time, device-hours, energy and money, as measured and as predicted for more workers.


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of reaching the target.

    Attributes:
      seconds: of training; low and high are the fastest and slowest repetition.
      epochs: median.
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
        """The cost of so many seconds; `watts` of all workers together, None where not measured."""
        hours, energy = point.workers * seconds.value / 3600, None
        if watts is not None:
            energy = watts * seconds.value / 3.6e6
        elif assumptions.watts_a_worker is not None:
            energy = assumptions.watts_a_worker * hours / 1000
        price = assumptions.price_per_hour
        return cls(
            point, name, seconds, epochs, hours, energy, None if price is None else price * hours
        )


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


# --------------------------------------------------------------------------------------------------
# The best way on the measured network: sums of gradients in every step, fewer bytes, or fewer meetings of the workers.
#
# A step of workers that meet every H steps, in each meeting with messages of n1, n2 … bytes, takes
#
#     T = I + (t(n1) + c + t(n2) + c + …) / H
#
# or, where a meeting is under way while the next H steps are taken,
#
#     T = max(I, (t(n1) + t(n2) + …) / H) + (c + c + …) / H
#
# I is a step of as many processes at once that exchange nothing, t(n) an all-reduce of n bytes by the same library as
# measured on that network, and c what a sum costs in a step beyond that: what exact sums in every step took more than I
# and theirs. It is negative where a library's processes agree on a sum while they compute, which they cannot between
# sums by themselves, and then belongs to t. Workers that never all meet (averaging, a quorum) are measured and not
# predicted. Written down before the first measurement: a predicted step is within 20 % of the measured one.


# Validation loss over the loss of exact sums after as many steps: docs/slow_networks.md, means of three seeds with four
# workers (fp16: one seed there, 1.01 with three in one process).
LOSS = {
    "": 1.0,
    "compression=fp16": 1.01,
    "compression=powersgd": 1.09,
    "compression=powersgd,compression_rank=8": 1.04,
    "local_steps=16": 1.03,
    "local_steps=50": 1.15,
    "local_steps=50,compression=fp16": 1.13,
    "local_steps=16,overlap_meetings=true": 1.11,
    "local_steps=16,overlap_meetings=true,compression=fp16": 1.13,
    "local_steps=16,overlap_meetings=true,compression=powersgd,compression_rank=16": 1.21,
    "local_steps=50,overlap_meetings=true,compression=fp16": 1.28,
}
# A way must be faster by so much to be worth another result than exact sums give, or more loss than another way.
WORTH = 1.25
_AS_GOOD = 1.05


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to exchange gradients, at one number of workers and batch.

    Attributes:
      point: with exact sums, or with the exchange where that was measured.
      backend: `horovod`, `mpi` or `asynchronous`.
      exchange: as `Point.exchange`; "" for exact sums in every step.
      bytes_per_step: that each worker sends, by arithmetic, or as counted where the workers never all meet.
      predicted: seconds per step; None where it is what the prediction stands on, or there is none.
      measured: seconds per step; None where it was not.
      times_faster: steps per second over those of exact sums, as measured, else as predicted.
      loss_ratio: validation loss over that of exact sums after as many steps; None where it is not known.
    """

    point: Point
    backend: str
    exchange: str
    bytes_per_step: float
    predicted: float | None
    measured: float | None
    times_faster: float
    loss_ratio: float | None

    @property
    def error(self) -> float | None:
        """The relative error of the prediction."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted / self.measured - 1

    @property
    def flags(self) -> str:
        """As `tfmat train` takes it."""
        keys = [f"--config.{part}" for part in self.exchange.split(",") if part]
        return " ".join([f"--backend={self.backend}", *keys])

    @property
    def short_name(self) -> str:
        """`16 local steps, overlapped, fp16 (mpi)`, for pictures."""
        words = {
            "local_steps": "{} local steps",
            "overlap_meetings": "overlapped",
            "compression": "{}",
            "compression_rank": "rank {}",
            "averaging": "averaging",
        }
        pairs = [part.partition("=")[::2] for part in traffic(self.exchange).split(",") if part]
        parts = [words.get(key, key + " {}").format(value) for key, value in pairs]
        by = "" if self.backend == "horovod" else f" ({self.backend})"
        return (", ".join(parts) or "exact sums") + by

    @property
    def name(self) -> str:
        """`local_steps=16 by mpi`, or `exact sums in every step`."""
        exact = "exact sums in every step" if self.backend != "asynchronous" else "every gradient"
        by = "" if self.backend == "horovod" else f" by {self.backend}"
        return (self.exchange.replace(",", ", ") or exact) + by


def ways(summaries: Sequence[PointSummary], lines: Sequence[LineFit]) -> list[list[Way]]:
    """The ways at each number of workers of which exact sums over several nodes or another exchange were measured.

    Returns:
      For each number of workers and batch that has what a prediction stands on, exact sums first, then the others in
      the order of their steps; the most workers last. Exact sums are Horovod's, or MPI's where it was not measured.
    """
    found: dict[tuple, list[Way]] = {}
    for backend in ("horovod", "mpi"):
        for exact in summaries:
            point = exact.point
            if point.backend != backend or point.exchange or point.scaling != "weak":
                continue
            others = [e for e in summaries if e is not exact and _is_other_way(e.point, point)]
            alone, line = _alone(exact, summaries), _line_of(point, backend, lines)
            if alone is None or line is None or not point.model.weights:
                continue
            if others or (point.nodes > 1 and not any(each.point.exchange for each in summaries)):
                found.setdefault(_place(point), _ways(exact, others, alone, lines))
    return sorted(
        found.values(), key=lambda group: (group[0].point.workers, group[0].point.batch_a_worker)
    )


# Attributes that workers which exchange in different ways must share to be compared.
_place = operator.attrgetter(
    "workers", "global_batch_size", "scaling", "hardware", "model", "dataset_size", "nodes", "ranks_per_node",
    "processors_a_worker", "placement",
)  # fmt: skip
# Attributes that say where workers are: of a point, and of all-reduces.
_where = operator.attrgetter("hardware", "workers", "nodes", "ranks_per_node")


def _is_other_way(point: Point, exact: Point) -> bool:
    """Whether a point exchanges in another way; Horovod over another library or transport than `exact` is none."""
    if point.backend == exact.backend:
        return bool(point.exchange) and dataclasses.replace(point, exchange="") == exact
    return point.backend in EXCHANGING and _place(point) == _place(exact)


def _line_of(point: Point, backend: str, lines: Sequence[LineFit]) -> LineFit | None:
    """The all-reduces by a backend's library where a point's workers are."""
    library = "bare mpi" if backend == "mpi" else point.collectives
    for each in lines:
        if each.lines[0].library == library and _where(each.lines[0]) == _where(point):
            return each
    return None


def _alone(exact: PointSummary, summaries: Sequence[PointSummary]) -> float | None:
    """I: as many processes that exchange nothing, else the single worker."""
    same = operator.attrgetter("workers", "nodes", "batch_a_worker", "kind")
    together = (
        each
        for each in summaries
        if each.point.exchanges_nothing and same(each.point) == same(exact.point)
    )
    single = (each for each in summaries if each.point == exact.baseline)
    found = next(together, next(single, None))
    return None if found is None else found.step_seconds.value


def _ways(
    exact: PointSummary, others: Sequence[PointSummary], alone: float, lines: Sequence[LineFit]
) -> list[Way]:
    point, seconds = exact.point, exact.step_seconds.value
    weights, workers = point.model.weights, point.workers
    # The outer optimizer changes no message.
    measured = {(each.point.backend, traffic(each.point.exchange)): each for each in others}
    measured[point.backend, ""] = exact

    def predict(backend: str, meeting: Meeting | None) -> float | None:
        line, sums = _line_of(point, backend, lines), messages("", weights, workers)
        if meeting is None or sums is None or line is None or backend == "asynchronous":
            return None
        # The library's own exact sums, where they were measured.
        took = measured.get((backend, ""), exact).step_seconds.value
        beyond = took - sums.seconds(alone, 0.0, line.seconds)
        return meeting.seconds(alone, beyond, line.seconds)

    def way(backend: str, text: str) -> Way | None:
        meeting, of_text = messages(text, weights, workers), measured.get((backend, traffic(text)))
        if backend == "asynchronous":
            meeting = None
        took = of_text.step_seconds.value if of_text is not None else None
        # A prediction stands on exact sums.
        predicted = predict(backend, meeting) if text or took is None else None
        if took is None and predicted is None:
            return None
        return Way(
            of_text.point if of_text is not None else point,
            backend,
            text,
            ring_bytes(sum(meeting.sizes), workers) / meeting.every if meeting else _sent(of_text),
            predicted,
            took,
            seconds / (took or predicted or seconds),
            LOSS.get(text) if meeting else None,
        )

    # Meetings overlap with steps where MPI leaves them the processor.
    known = [("mpi" if "overlap" in text else point.backend, text) for text in LOSS]
    keys = dict.fromkeys([*known, *((e.point.backend, e.point.exchange) for e in others)])
    found = [each for each in (way(*key) for key in keys) if each is not None]
    return [found[0], *sorted(found[1:], key=lambda w: w.predicted or w.measured or 0.0)]


def _sent(summary: PointSummary | None) -> float:
    """Bytes that a worker sends in a step, as they were counted; 0 where they were not."""
    ranks = [rank for each in (summary.repetitions if summary else ()) for rank in each.ranks]
    counted = [rank.bytes_sent_per_step for rank in ranks if rank.bytes_sent_per_step is not None]
    return sum(counted) / len(counted) if counted else 0.0


def traffic(exchange: str) -> str:
    """The exchange without the keys that change no message."""
    outer = ("outer_", "optimizer.")
    return ",".join(part for part in exchange.split(",") if not part.startswith(outer))


def recommend(group: Sequence[Way]) -> str:
    """Advice for this network, in a sentence or two of plain words.

    Named are the fastest way whose loss is as good, and with more loss each that is worth it beside the one before.

    Args:
      group: of one number of workers and batch, see `ways`.
    """
    point = group[0].point
    nodes = f" on {point.nodes} nodes" if point.nodes > 1 else ""
    where = f"{point.workers} workers{nodes} with {point.batch_a_worker:,} examples each"
    known = [way for way in group if way.loss_ratio is not None]
    good = max(
        (w for w in known if (w.loss_ratio or 0.0) <= _AS_GOOD), key=lambda w: w.times_faster
    )
    chosen: list[Way] = []
    for way in [good, *sorted(known, key=lambda w: (w.loss_ratio or 0.0, -w.times_faster))]:
        least = WORTH * (chosen[-1].times_faster if chosen else 1.0)
        if way.times_faster >= least:
            chosen.append(way)
    if not chosen:
        return (
            f"On the network measured here, leave the sums of {where} exact and in every step: no other way makes "
            f"{WORTH} times as many steps a second."
        )
    return f"On the network measured here, with {where}: {', or '.join(map(_told, chosen))}."


def _told(way: Way) -> str:
    assert way.loss_ratio is not None
    loss = way.loss_ratio - 1
    after = f"{percent_text(loss)} more validation loss" if loss >= 0.005 else "the same loss"
    source = "measured" if way.measured is not None else "predicted"
    return (
        f"{way.flags} makes {way.times_faster:.1f} times as many steps a second as exact sums ({source}), at {after} "
        "after as many steps in the study of docs/slow_networks.md"
    )


# --------------------------------------------------------------------------------------------------
# The step model from a study's measurements, its combinations, and how far off it is.


# Predictions of what was left out should be as near.
GOAL = 0.2


@dataclasses.dataclass(frozen=True)
class Combination:
    """Points that one step model describes: of one model, hardware and transport of gradients.

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
        # The section on slow links says what one step costs with another exchange.
        exchanges = (
            not point.exchange
            and point.backend not in ("asynchronous", *OF_TF_DISTRIBUTE)
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
    return sorted(found, key=_worth, reverse=True)


def _worth(combination: Combination) -> tuple[int, float]:
    """How many of its points are reliable, and their median efficiency."""
    found = [each.efficiency.value for each in combination.points if each.efficiency]
    reliable = sum(not each.unreliable for each in combination.points)
    return reliable, float(np.median(found)) if found else 0.0


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


# --------------------------------------------------------------------------------------------------
# Everything that a study's page says, as numbers: summaries, fits, checks, predictions, costs, the choice.


# The second model of the predictions.
LARGER = 100


class Forecast:
    """Predictions by the main combination's model, as measured and LARGER times as large.

    Attributes:
      batch_a_worker: of weak scaling; global_batch_size: of strong scaling; both as measured.
    """

    def __init__(self, main: Combination, model: StepModel):
        points = [each.point for each in main.points]
        weak = [p.batch_a_worker for p in points if p.scaling == "weak"]
        strong = [p.global_batch_size for p in points if p.scaling == "strong"]
        batch = _commonest(weak) if weak else min(p.batch_a_worker for p in points)
        together = _commonest(strong) if strong else max(p.global_batch_size for p in points)
        predictor, larger = Predictor(model), Predictor(model, LARGER)
        self.model, self.batch_a_worker, self.global_batch_size = model, batch, together
        self.weak, self.strong = predictor.weak(batch), predictor.strong(together)
        self.weak_larger, self.strong_larger = larger.weak(batch), larger.strong(together)


@dataclasses.dataclass(frozen=True)
class Analysis:
    """Measurements, and all that follows from them when it is asked for.

    Raises:
      InputError: at the summaries, where the assumptions name hardware without a baseline.
    """

    measurements: Measurements
    assumptions: Assumptions

    @functools.cached_property
    def summaries(self) -> list[PointSummary]:
        """One a point."""
        return summarise(self.measurements, self.assumptions.baseline_hardware)

    @functools.cached_property
    def weak(self) -> dict[str, list[PointSummary]]:
        """Series of weak scaling, the headline's first: pictures have room for the first few."""
        return self._headline_first(series(self.summaries, "weak"))

    @functools.cached_property
    def strong(self) -> dict[str, list[PointSummary]]:
        """Series of strong scaling, see `weak`."""
        return self._headline_first(series(self.summaries, "strong"))

    def _headline_first(
        self, groups: dict[str, list[PointSummary]]
    ) -> dict[str, list[PointSummary]]:
        of_headline = {each.label for each in self.shown}
        return dict(sorted(groups.items(), key=lambda item: item[0] not in of_headline))

    @functools.cached_property
    def lines(self) -> list[LineFit]:
        """Fits of the all-reduces."""
        return line_fits(self.measurements.allreduces)

    @functools.cached_property
    def main(self) -> Combination | None:
        """The combination that verdict and predictions are about: the first whose library's all-reduces were measured
        too, else the first; None without a baseline and a second worker."""
        known = combinations(self.summaries)
        allreduces = self.measurements.allreduces
        measured = (each for each in known if _networks(each.point, allreduces) is not None)
        return next(measured, next(iter(known), None))

    @functools.cached_property
    def forecast(self) -> Forecast | None:
        """None where the all-reduces of the main combination were not measured."""
        main = self.main
        networks = None if main is None else _networks(main.point, self.measurements.allreduces)
        if main is None or networks is None:
            return None
        return Forecast(main, _fit(main.baselines, main.points, networks, self.assumptions))

    @functools.cached_property
    def checks(self) -> list[Check]:
        """Predictions of what was left out."""
        if self.main is None:
            return []
        return checks(self.main, self.measurements.allreduces, self.assumptions)

    @functools.cached_property
    def shown(self) -> list[PointSummary]:
        """The headline's series: the main combination's points of weak scaling, else of strong, whose batch has the
        most of them; of equals the smallest batch."""
        of_main = () if self.main is None else self.main.points
        for scaling in ("weak", "strong"):
            points = [each for each in of_main if each.point.scaling == scaling]
            if points:
                batch = _commonest([_kept(each) for each in points])
                group = [each for each in points if _kept(each) == batch]
                return sorted(group, key=lambda each: each.point.workers)
        return []

    @functools.cached_property
    def target(self) -> float | None:
        """Validation loss; None where nothing was trained."""
        return target_of(self.summaries, self.assumptions)

    @functools.cached_property
    def costs(self) -> list[Cost]:
        """To reach the target, as measured."""
        return [] if self.target is None else costs(self.summaries, self.target, self.assumptions)

    @functools.cached_property
    def predicted(self) -> list[Cost]:
        """Costs by workers, at the global batch of the cheapest measured cost of the main model and hardware."""
        if self.forecast is None or self.main is None:
            return []
        kind = self.main.point.kind
        same = [cost for cost in self.costs if cost.point.kind == kind]
        if not same:
            return []
        cheapest = min(same, key=lambda cost: cost.device_hours)
        # As many steps as measured, since the global batch is the same.
        steps = cheapest.epochs * cheapest.point.steps_an_epoch
        found = []
        for each in Predictor(self.forecast.model).strong(cheapest.point.global_batch_size):
            point = dataclasses.replace(
                cheapest.point, workers=each.workers, batch_a_worker=int(each.batch_a_worker)
            )
            name = f"{point.workers:,} × {point.batch_a_worker:,}"
            seconds = each.step_seconds.times(steps)
            found.append(Cost.of(point, name, seconds, cheapest.epochs, None, self.assumptions))
        return found

    @functools.cached_property
    def options(self) -> list[Option]:
        """Forms of parallelism for the main model."""
        if self.forecast is None or not self.shown:
            return []
        point, link = self.shown[-1].point, self.forecast.model.inside.link
        return options(point.model, point.workers, point.batch_a_worker, link)

    @functools.cached_property
    def ways(self) -> list[list[Way]]:
        """To exchange gradients over the measured network, see the section on slow links."""
        return ways(self.summaries, self.lines)

    @property
    def best(self) -> PointSummary | None:
        """The most workers of the headline's series that are not oversubscribed."""
        points = [each for each in self.shown if each.efficiency is not None]
        return points[-1] if points else None

    @property
    def misses_by(self) -> float | None:
        """The largest error of the model's checks where it is beyond GOAL: then it predicts nothing."""
        worst = max((abs(check.error) for check in self.checks), default=0.0)
        return worst if worst > GOAL else None

    @property
    def exchange_seconds(self) -> float | None:
        """Seconds that one gradient takes by itself at `best`'s workers: measured, else by the fit or the model."""
        if self.best is None or self.forecast is None:
            return None
        point = self.best.point
        lines = [e for e in self.lines if e.lines[0].transport in ("", point.transport)]
        if line := _line_of(point, point.backend, lines):
            return line.seconds(point.model.gradient_bytes)
        return self.forecast.model.exchange(point.workers)


def _kept(summary: PointSummary) -> int:
    """The batch that a series keeps."""
    point = summary.point
    return point.batch_a_worker if point.scaling == "weak" else point.global_batch_size


def _commonest(values: Sequence[int]) -> int:
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))
