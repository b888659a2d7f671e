"""The verdict on a study in plain words, by stated rules, and how far its numbers can be believed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.report.formatting import percent_text
from tfmat.report.page import Finding
from tfmat.scaling.analysis import Analysis
from tfmat.scaling.collective_costs import choose
from tfmat.scaling.prediction import (
    GOOD,
    WORTHWHILE,
    fastest,
    last_worthwhile,
    smallest_good_batch,
)
from tfmat.scaling.slow_links import recommend
from tfmat.scaling.study import GOAL
from tfmat.scaling.summary import UNRELIABLE, PointSummary

# Slowest over fastest repetition, in the median of all points: from here on the machine was not quiet.
NOISY = 1.25
# Fewer repetitions have a range, and no interval.
FEW = 3
_NAMED = 3
RULES = (
    (
        "Speed-up: curves a second over those of one worker that computes with as many processors, on the same "
        "hardware, in a process without any parallel library; weak scaling compares the same batch a worker, strong "
        "scaling the same global batch. Ratios are formed within a round; given are the median and its 95 % bootstrap "
        "interval (below three rounds the lowest and highest). Efficiency: speed-up over workers."
    ),
    (
        f"Parallelism pays from an efficiency of {percent_text(GOOD)}; below {percent_text(WORTHWHILE)} more than half "
        "of what is paid for is lost, and it does not."
    ),
    (
        "Points with more workers than processors are drawn hollow and marked *: they say nothing of scaling, and no "
        "fit and no verdict uses them."
    ),
    (
        f"A point whose slowest repetition took {UNRELIABLE:.0f} times as long as its fastest, or longer, is "
        "unreliable, and so is what is divided by it: marked ?, without a verdict, and in no regression. Where the "
        "interval reaches over one of the two limits, or there is one repetition only, the verdict is open."
    ),
    f"A prediction is near if points left out of its fit are met within {percent_text(GOAL)}.",
)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """level: of the page's parts; badge: two or three words; text: one sentence."""

    level: str
    badge: str
    text: str


def judge(analysis: Analysis) -> Judgement:
    """Whether parallelism pays, or why that cannot be said."""
    best = analysis.best
    if best is None or best.speedup is None or best.efficiency is None:
        text = "Nothing can be said of scaling yet: a baseline or a second worker is missing."
        return Judgement("warn", "incomplete", text)
    if best.unreliable:
        text = f"No verdict: repetitions differ {best.worst_disagreement:.1f} times, the machine was not quiet."
        return Judgement("warn", "unreliable", text)
    share, speedup = best.efficiency, best.speedup
    times = f"{best.point.workers:,} workers train {speedup.value:.3g} times as fast as one"
    if common_rounds(analysis, best) < 2:
        return Judgement("warn", "one repetition", f"No verdict yet: {times}, measured only once.")
    if len({_level(value) for value in (share.low, share.value, share.high)}) > 1:
        times += f", {speedup.low:.3g} to {speedup.high:.3g} with the spread of the repetitions"
        return Judgement("warn", "open", f"It is open how far parallelism pays here: {times}.")
    level = _level(share.value)
    badge, text = {
        "good": ("pays", "Parallelism pays here"),
        "warn": ("pays in part", "Parallelism pays only in part"),
        "bad": ("does not pay", "Parallelism does not pay here"),
    }[level]
    return Judgement(level, badge, f"{text}: {times}.")


def _level(efficiency: float) -> str:
    if efficiency >= GOOD:
        return "good"
    return "warn" if efficiency >= WORTHWHILE else "bad"


def outlook(analysis: Analysis) -> dict[str, Any] | None:
    """What the model predicts for the page; None without one.

    `last`: workers up to which half of the ideal is kept; `least`: the same at the low end of the interval; `larger`:
    of the larger network; `batch`: examples a worker that 64 workers need to be good, None where no batch is enough;
    `quickest`: the prediction for the number of workers by which a fixed global batch is done soonest.
    """
    forecast = analysis.forecast
    if forecast is None or analysis.exchange_seconds is None:
        return None
    return {
        "last": last_worthwhile(forecast.weak),
        "least": last_worthwhile(forecast.weak, "low"),
        "larger": last_worthwhile(forecast.weak_larger),
        "batch": smallest_good_batch(forecast.model, 64),
        "quickest": fastest(forecast.strong),
    }


def independent(analysis: Analysis) -> PointSummary | None:
    """The point of as many processes as the headline's that exchange nothing: the machine's own limit."""
    best = analysis.best
    for each in analysis.summaries if best is not None else ():
        assert best is not None
        same = each.point.workers == best.point.workers and each.baseline == best.baseline
        if each.point.exchanges_nothing and same and each.speedup and not each.unreliable:
            return each
    return None


def findings(analysis: Analysis) -> list[Finding]:
    """What else a reader must know, the most important first."""
    found = []
    if analysis.measurements.label:
        found.append(Finding("warn", f"These measurements are labelled: {analysis.measurements.label}."))  # fmt: skip
    foreign = [each for each in analysis.summaries if each.foreign]
    if foreign:
        there = ", ".join(sorted({each.point.hardware for each in foreign}))
        other = analysis.assumptions.baseline_hardware
        text = (
            f"Asked for: points on {there} are divided by a baseline on {other}. Such ratios mix the machines with the "
            "parallelism."
        )
        found.append(Finding("warn", text))
    found += reliability_findings(analysis)
    found += [Finding("note", recommend(group)) for group in analysis.ways[-1:]]
    found += _about_fits(analysis)
    best = analysis.best
    if analysis.options and best is not None and is_believable(analysis):
        memory = analysis.assumptions.device_memory_bytes
        point = best.point
        found.append(
            Finding("note", choose(analysis.options, point.workers, point.batch_a_worker, memory))
        )
    alone = [e for e in analysis.summaries if e.baseline is None]
    if alone:
        of = f"{len(alone)} of {len(analysis.summaries)}"
        text = f"{of} points have no baseline on their hardware, and so no speed-up."
        found.append(Finding("note", text))
    return found


def _about_fits(analysis: Analysis) -> list[Finding]:
    forecast = analysis.forecast
    if forecast is None:
        if analysis.main is None:
            return []
        text = (
            "No prediction: all-reduces of the library used here were not measured by themselves."
        )
        return [Finding("warn", text)]
    found = []
    if analysis.checks:
        worst = max(abs(check.error) for check in analysis.checks)
        near = sum(abs(check.error) <= GOAL for check in analysis.checks)
        level = "good" if worst <= GOAL else "warn"
        text = (
            f"The model meets {near} of {len(analysis.checks)} points that its fit did not see within "
            f"{percent_text(GOAL)}; the worst is {percent_text(worst)} off."
        )
        found.append(Finding(level, text))
    model = forecast.model
    if model.inside.growth != "as measured":
        text = (
            "Only one number of workers was measured by itself, so that the growth of the latency with workers is "
            "open: predictions take a logarithm, their intervals everything from no growth to growth in proportion."
        )
        found.append(Finding("warn", text))
    if model.between is None and model.outside is None:
        text = (
            f"No network between nodes was measured: predictions beyond {model.ranks_per_node} workers take it to be "
            "as fast as the inside of a node, which no network is."
        )
        found.append(Finding("warn", text))
    elif model.between is None:
        found.append(Finding("note", "The network between nodes is assumed, not measured."))
    return found


def common_rounds(analysis: Analysis, best: PointSummary) -> int:
    """Number of rounds in which both the point and its baseline were measured: as many ratios the speed-up has."""
    rounds = [
        {repetition.round for repetition in each.repetitions}
        for each in analysis.summaries
        if each.point in (best.point, best.baseline)
    ]
    return len(set.intersection(*rounds)) if rounds else 0


def is_believable(analysis: Analysis) -> bool:
    """Whether the headline's speed-up was measured more than once, with repetitions that agree somehow."""
    best = analysis.best
    return best is not None and not best.unreliable and common_rounds(analysis, best) > 1


def reliability_findings(analysis: Analysis) -> list[Finding]:
    """What a reader must know before believing a number, the most important first."""
    points = analysis.summaries
    found = [*_unreliable(points), *_noise(points), *_few(analysis)]
    crowded = sum(each.point.oversubscribed for each in points)
    if crowded:
        are = "point has" if crowded == 1 else "points have"
        text = f"{crowded} {are} more workers than processors (hollow, *): left out of fits and verdict."
        found.append(Finding("note", text))
    if any(each.point.backend == "parameter_server" for each in points):
        text = (
            "The parameter server's chief and server are two more processes, which share the workers' processors: its "
            "numbers are those of this machine, and lower than those of a server with a machine of its own."
        )
        found.append(Finding("note", text))
    return [*found, *_left_out(analysis)]


def _unreliable(points: Sequence[PointSummary]) -> list[Finding]:
    bad = sorted(
        (each for each in points if each.disagreement >= UNRELIABLE),
        key=lambda each: -each.disagreement,
    )
    if not bad:
        return []
    names = "; ".join(f"{e.name} ({e.disagreement:.1f} times)" for e in bad[:_NAMED])
    names += "; …" if len(bad) > _NAMED else ""
    are = "is unreliable: its" if len(bad) == 1 else "are unreliable: their"
    text = (
        f"{len(bad)} of {len(points)} points {are} slowest repetition took {UNRELIABLE:.0f} times as long as the "
        f"fastest or longer, as when something else runs on the machine. No finding rests on them, nor on what is "
        f"divided by them (?): {names}."
    )
    return [Finding("warn", text)]


def _noise(points: Sequence[PointSummary]) -> list[Finding]:
    repeated = [each.disagreement for each in points if len(each.repetitions) > 1]
    if not repeated or np.median(repeated) < NOISY:
        return []
    text = (
        f"The machine was not quiet: in the median of the points the slowest repetition took {np.median(repeated):.2f} "
        f"times as long as the fastest, at worst {max(repeated):.1f} times."
    )
    return [Finding("warn", text)]


def _few(analysis: Analysis) -> list[Finding]:
    best, points = analysis.best, analysis.summaries
    found = []
    rounds = FEW if best is None else common_rounds(analysis, best)
    if 1 < rounds < FEW:
        text = f"The verdict rests on {rounds} repetitions: its brackets are their range, and no interval."
        found.append(Finding("warn", text))
    few = sum(len(each.repetitions) < FEW for each in points)
    if few:
        text = f"{few} of {len(points)} points have fewer than three repetitions: small differences are chance there."
        found.append(Finding("note", text))
    return found


def _left_out(analysis: Analysis) -> list[Finding]:
    entries = analysis.measurements.left_out
    failed = sum(each.round is not None for each in entries)
    absent = len(entries) - failed
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{absent} cannot be had on this machine"] if absent else []
    if not parts:
        return []
    text = f"Of what was planned {' and '.join(parts)}: see \u201cWhat was not measured\u201d."
    return [Finding("warn" if failed else "note", text)]
