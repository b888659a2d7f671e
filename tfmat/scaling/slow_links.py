"""What pays on the measured network: sums of gradients in every step, fewer bytes, or fewer meetings of the workers.

A step of workers that meet every H steps, in each meeting with messages of n1, n2 … bytes, takes

    T = I + (c + t(n1) + t(n2) + …) / H

or, where a meeting is under way while the next H steps are taken,

    T = max(I, (t(n1) + t(n2) + …) / H) + c / H

I is a step of as many processes at once that exchange nothing, t(n) an all-reduce of n bytes as measured on that
network, and c what a meeting costs beyond that: what exact sums in every step took more than I and theirs.
Written down before the first measurement: a predicted step is within 20 % of the measured one.
"""

import dataclasses
from collections.abc import Sequence

from tfmat.report.formatting import percent_text
from tfmat.scaling.collective_costs import ring_bytes
from tfmat.scaling.exchanges import messages
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
}
# A way must be faster by so much to be worth another result than that of exact sums.
WORTH = 1.25
_AS_GOOD = 1.05


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to exchange gradients, at one number of workers and batch.

    Attributes:
      point: with exact sums, or with the exchange where that was measured.
      exchange: as `Point.exchange`; "" for exact sums in every step.
      bytes_per_step: that each worker sends, by arithmetic.
      predicted: seconds per step; None where it is what the prediction stands on.
      measured: seconds per step; None where it was not.
      times_faster: steps per second over those of exact sums, as measured, else as predicted.
      loss_ratio: validation loss over that of exact sums after as many steps; None where it is not known.
    """

    point: Point
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
        return " ".join(f"--config.{part}" for part in self.exchange.split(","))


def ways(summaries: Sequence[PointSummary], lines: Sequence[LineFit]) -> list[list[Way]]:
    """The ways at each number of workers of which exact sums over several nodes or another exchange were measured.

    Args:
      summaries: of the study.
      lines: all-reduces by themselves.

    Returns:
      For each number of workers and batch that has what a prediction stands on, exact sums first, then the others in
      the order of their predicted steps; the most workers last.
    """
    found = []
    for exact in summaries:
        point = exact.point
        if point.backend != "horovod" or point.exchange or point.scaling != "weak":
            continue
        others = [each for each in summaries if each.point.exchange and _same(each.point, point)]
        alone = _alone(exact, summaries)
        line = next((each for each in lines if _is_of(each, point)), None)
        if alone is None or line is None or not point.model.weights:
            continue
        if others or (point.nodes > 1 and not _has_others(summaries)):
            found.append(_ways(exact, others, alone, line))
    return sorted(found, key=lambda group: (group[0].point.workers, group[0].point.batch_a_worker))


def _has_others(summaries: Sequence[PointSummary]) -> bool:
    return any(each.point.exchange for each in summaries)


def _same(point: Point, other: Point) -> bool:
    return dataclasses.replace(point, exchange="") == other


def _is_of(line: LineFit, point: Point) -> bool:
    first = line.lines[0]
    same = ("hardware", "workers", "nodes", "ranks_per_node")
    return first.library == point.collectives and all(
        getattr(first, name) == getattr(point, name) for name in same
    )


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
    exact: PointSummary, others: Sequence[PointSummary], alone: float, line: LineFit
) -> list[Way]:
    point, seconds = exact.point, exact.step_seconds.value
    # What the outer optimizer does changes no message.
    measured = {traffic(each.point.exchange): each for each in others}

    exact_sums = messages("", point.model.weights, point.workers)
    beyond = max(seconds - exact_sums.seconds(alone, 0.0, line.seconds), 0.0)
    found = []
    for text in dict.fromkeys(["", *LOSS, *(each.point.exchange for each in others)]):
        meeting = messages(text, point.model.weights, point.workers)
        predicted = meeting.seconds(alone, beyond, line.seconds)
        of_text = measured.get(traffic(text))
        took = of_text.step_seconds.value if of_text is not None else None
        found.append(
            Way(
                of_text.point if of_text is not None else point,
                text,
                ring_bytes(sum(meeting.sizes), point.workers) / meeting.every,
                predicted if text else None,
                took if text else seconds,
                seconds / (took or predicted) if text else 1.0,
                LOSS.get(text),
            )
        )
    return [found[0], *sorted(found[1:], key=lambda way: way.predicted or 0.0)]


def traffic(exchange: str) -> str:
    """The exchange without the keys that change no message."""
    outer = ("outer_", "optimizer.")
    return ",".join(part for part in exchange.split(",") if not part.startswith(outer))


def recommend(group: Sequence[Way]) -> str:
    """What to do on this network, in a sentence or two of plain words.

    Args:
      group: of one number of workers and batch, see `ways`.
    """
    point = group[0].point
    nodes = f" on {point.nodes} nodes" if point.nodes > 1 else ""
    where = f"{point.workers} workers{nodes} with {point.batch_a_worker:,} examples each"
    known = [way for way in group if way.loss_ratio is not None]
    good = max(
        (way for way in known if (way.loss_ratio or 0) <= _AS_GOOD), key=lambda w: w.times_faster
    )
    best = max(known, key=lambda way: way.times_faster)
    if best.times_faster < WORTH:
        return (
            f"On the network measured here, leave the sums of {where} exact and in every step: no other way makes "
            f"{WORTH} times as many steps a second."
        )
    chosen = [good] if good.times_faster >= WORTH else []
    if not chosen or best.times_faster >= WORTH * good.times_faster:
        chosen.append(best)
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
