"""What pays on the measured network: sums of gradients in every step, fewer bytes, or fewer meetings of the workers.

A step of workers that meet every H steps, in each meeting with messages of n1, n2 … bytes, takes

    T = I + (t(n1) + c + t(n2) + c + …) / H

or, where a meeting is under way while the next H steps are taken,

    T = max(I, (t(n1) + t(n2) + …) / H) + (c + c + …) / H

I is a step of as many processes at once that exchange nothing, t(n) an all-reduce of n bytes by the same library as
measured on that network, and c what a sum costs in a step beyond that: what exact sums in every step took more than I
and theirs. It is negative where a library's processes agree on a sum while they compute, which they cannot between sums
by themselves, and then belongs to t. Workers that never all meet (averaging, a quorum) are measured and not predicted.
Written down before the first measurement: a predicted step is within 20 % of the measured one.
"""

import dataclasses
from collections.abc import Sequence

from tfmat.report.formatting import percent_text
from tfmat.scaling.collective_costs import ring_bytes
from tfmat.scaling.exchanges import EXCHANGING, Meeting, messages
from tfmat.scaling.measurements import Point
from tfmat.scaling.network import LineFit
from tfmat.scaling.summary import PointSummary

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
