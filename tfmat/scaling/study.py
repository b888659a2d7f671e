"""The scaling study: measured, analysed, and for slow links."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tfmat.config import BATCH
from tfmat.report.formatting import percent_text
from tfmat.scaling.matrix import EXCHANGING, OF_TF_DISTRIBUTE, Meeting, messages
from tfmat.scaling.measurements import AllReduce, Assumptions, Measurements, Point
from tfmat.scaling.prediction import (
    Cost,
    LineFit,
    Link,
    Network,
    Option,
    PointSummary,
    Prediction,
    Predictor,
    StepModel,
    costs,
    fit_compute,
    fit_network,
    line_fits,
    options,
    predicted_costs,
    relative_deviation,
    ring_bytes,
    series,
    summarise,
    target_of,
    with_own_cost,
)

# --------------------------------------------------------------------------------------------------
# What pays on the measured network: sums of gradients in every step, fewer bytes, or fewer meetings of the workers.
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
# measured on that network, and c what a sum costs in a step beyond that: what exact sums in every step took more than
# I and theirs. It is negative where a library's processes agree on a sum while they compute, which they cannot
# between sums by themselves, and then belongs to t. Workers that never all meet (averaging, a quorum) are measured
# and not predicted. Written down before the first measurement: a predicted step is within 20 % of the measured one.


# Validation loss over that of exact sums after as many steps: docs/slow_networks.md, means of three seeds with four
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
# A way must be faster by so much to be worth another result than that of exact sums, or more loss than another way.
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

    Args:
      summaries: of the study.
      lines: all-reduces by themselves.

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
            if others or (point.nodes > 1 and not _has_others(summaries)):
                found.setdefault(_place(point), _ways(exact, others, alone, lines))
    return sorted(
        found.values(), key=lambda group: (group[0].point.workers, group[0].point.batch_a_worker)
    )


def _has_others(summaries: Sequence[PointSummary]) -> bool:
    return any(each.point.exchange for each in summaries)


def _place(point: Point) -> tuple:
    """What workers that exchange in different ways must have in common to be compared."""
    names = (
        "workers", "global_batch_size", "scaling", "hardware", "model", "dataset_size", "nodes", "ranks_per_node",
        "processors_a_worker", "placement",
    )  # fmt: skip
    return tuple(getattr(point, name) for name in names)


def _is_other_way(point: Point, exact: Point) -> bool:
    """Whether a point exchanges in another way; Horovod over another library or transport than `exact` is none."""
    if point.backend == exact.backend:
        return bool(point.exchange) and dataclasses.replace(point, exchange="") == exact
    return point.backend in EXCHANGING and _place(point) == _place(exact)


def _line_of(point: Point, backend: str, lines: Sequence[LineFit]) -> LineFit | None:
    """The all-reduces by a backend's library where a point's workers are."""
    library = "bare mpi" if backend == "mpi" else point.collectives
    same = ("hardware", "workers", "nodes", "ranks_per_node")
    for each in lines:
        first = each.lines[0]
        if first.library == library and all(
            getattr(first, name) == getattr(point, name) for name in same
        ):
            return each
    return None


def _alone(exact: PointSummary, summaries: Sequence[PointSummary]) -> float | None:
    """I: as many processes that exchange nothing, else the single worker."""
    point = exact.point
    for each in summaries:
        same = ("workers", "nodes", "batch_a_worker", "kind")
        if each.point.exchanges_nothing and all(
            getattr(each.point, name) == getattr(point, name) for name in same
        ):
            return each.step_seconds.value
    for each in summaries:
        if each.point == exact.baseline:
            return each.step_seconds.value
    return None


def _ways(
    exact: PointSummary, others: Sequence[PointSummary], alone: float, lines: Sequence[LineFit]
) -> list[Way]:
    point, seconds = exact.point, exact.step_seconds.value
    weights, workers = point.model.weights, point.workers
    # What the outer optimizer does changes no message.
    measured = {(each.point.backend, traffic(each.point.exchange)): each for each in others}
    measured[point.backend, ""] = exact

    def predict(backend: str, meeting: Meeting | None) -> float | None:
        line, sums = _line_of(point, backend, lines), messages("", weights, workers)
        if meeting is None or sums is None or line is None or backend == "asynchronous":
            return None
        # Of the library's own exact sums, where they were measured.
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
    """What to do on this network, in a sentence or two of plain words.

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
# Which step model a study's measurements give, for which of its combinations, and how far off it is.


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
        # What one step costs with another exchange, the section on slow links says.
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


# --------------------------------------------------------------------------------------------------
# Everything that a study's page says, as numbers: summaries, fits, checks, predictions, costs, the choice.


# The second model of the predictions.
LARGER = 100


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Predictions by the main combination's model.

    Attributes:
      model: T(P, b).
      batch_a_worker: of weak scaling; global_batch_size: of strong scaling; both as measured.
      weak, strong: of the model as measured; weak_larger, strong_larger: of one LARGER times as large.
    """

    model: StepModel
    batch_a_worker: int
    global_batch_size: int
    weak: list[Prediction]
    strong: list[Prediction]
    weak_larger: list[Prediction]
    strong_larger: list[Prediction]


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What was measured and what follows from it.

    Attributes:
      measurements, assumptions: what went in.
      summaries: one a point; weak, strong: its series.
      lines: fits of the all-reduces.
      main: the combination that verdict and predictions are about; None without a baseline and a second worker.
      shown: the main combination's points of the batch with the most of them, the headline's series.
      checks: predictions of what was left out.
      forecast: None where the all-reduces of the main combination were not measured.
      target: validation loss; None where nothing was trained.
      costs: to reach it, as measured; predicted: by workers at one global batch.
      options: forms of parallelism for the main model.
      ways: to exchange gradients over the measured network, see the section on slow links.
    """

    measurements: Measurements
    assumptions: Assumptions
    summaries: list[PointSummary]
    weak: dict[str, list[PointSummary]]
    strong: dict[str, list[PointSummary]]
    lines: list[LineFit]
    main: Combination | None
    shown: list[PointSummary]
    checks: list[Check]
    forecast: Forecast | None
    target: float | None
    costs: list[Cost]
    predicted: list[Cost]
    options: list[Option]
    ways: list[list[Way]]

    @property
    def best(self) -> PointSummary | None:
        """The most workers of the headline's series that are not oversubscribed."""
        points = [each for each in self.shown if each.efficiency is not None]
        return points[-1] if points else None

    @property
    def exchange_seconds(self) -> float | None:
        """Seconds that one gradient takes by itself at `best`'s workers: measured, else by the fit or the model."""
        if self.best is None or self.forecast is None:
            return None
        point = self.best.point
        for line in self.lines:
            first = line.lines[0]
            same = ("hardware", "workers", "nodes", "oversubscribed")
            if (
                first.library == point.collectives
                and first.transport in ("", point.transport)
                and all(getattr(first, name) == getattr(point, name) for name in same)
            ):
                return line.seconds(point.model.gradient_bytes)
        return self.forecast.model.exchange(point.workers)


def analyse(measurements: Measurements, assumptions: Assumptions) -> Analysis:
    """All of it; raises InputError where the assumptions name hardware without a baseline."""
    summaries = summarise(measurements, assumptions.baseline_hardware)
    main, model = main_model(measurements, summaries, assumptions)
    forecast = None if main is None or model is None else _forecast(main, model)
    target = target_of(summaries, assumptions)
    measured = [] if target is None else costs(summaries, target, assumptions)
    shown = [] if main is None else _headline_series(main)
    lines = line_fits(measurements.allreduces)
    return Analysis(
        measurements=measurements,
        assumptions=assumptions,
        summaries=summaries,
        weak=_headline_first(series(summaries, "weak"), shown),
        strong=_headline_first(series(summaries, "strong"), shown),
        lines=lines,
        main=main,
        shown=shown,
        checks=[] if main is None else checks(main, measurements.allreduces, assumptions),
        forecast=forecast,
        target=target,
        costs=measured,
        predicted=_predicted(measured, forecast, main, assumptions),
        options=_options(shown, forecast),
        ways=ways(summaries, lines),
    )


def _headline_series(main: Combination) -> list[PointSummary]:
    """The points of weak scaling, else of strong, whose batch has the most of them; of equals the smallest batch."""
    for scaling in ("weak", "strong"):
        points = [each for each in main.points if each.point.scaling == scaling]
        if points:
            batch = _commonest([_kept(each) for each in points])
            group = [each for each in points if _kept(each) == batch]
            return sorted(group, key=lambda each: each.point.workers)
    return []


def _headline_first(
    groups: dict[str, list[PointSummary]], shown: Sequence[PointSummary]
) -> dict[str, list[PointSummary]]:
    """Pictures have room for the first few, and the verdict's is to be among them."""
    of_headline = {each.label for each in shown}
    return dict(sorted(groups.items(), key=lambda item: item[0] not in of_headline))


def _kept(summary: PointSummary) -> int:
    """The batch that a series keeps."""
    point = summary.point
    return point.batch_a_worker if point.scaling == "weak" else point.global_batch_size


def _commonest(values: Sequence[int]) -> int:
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def _forecast(main: Combination, model: StepModel) -> Forecast:
    points = [each.point for each in main.points]
    weak = [p.batch_a_worker for p in points if p.scaling == "weak"]
    strong = [p.global_batch_size for p in points if p.scaling == "strong"]
    batch = _commonest(weak) if weak else min(p.batch_a_worker for p in points)
    together = _commonest(strong) if strong else max(p.global_batch_size for p in points)
    predictor, larger = Predictor(model), Predictor(model, LARGER)
    return Forecast(
        model,
        batch,
        together,
        predictor.weak(batch),
        predictor.strong(together),
        larger.weak(batch),
        larger.strong(together),
    )


def _predicted(
    measured: Sequence[Cost],
    forecast: Forecast | None,
    main: Combination | None,
    assumptions: Assumptions,
) -> list[Cost]:
    """Costs by workers, at the global batch of the cheapest measured cost of the main model and hardware."""
    if forecast is None or main is None:
        return []
    point = main.point
    same = [cost for cost in measured if cost.point.kind == point.kind]
    if not same:
        return []
    cheapest = min(same, key=lambda cost: cost.device_hours)
    predictions = Predictor(forecast.model).strong(cheapest.point.global_batch_size)
    return predicted_costs(cheapest, predictions, assumptions)


def _options(shown: Sequence[PointSummary], forecast: Forecast | None) -> list[Option]:
    if forecast is None or not shown:
        return []
    point = shown[-1].point
    link = forecast.model.inside.link
    return options(point.model, point.workers, point.batch_a_worker, link)
