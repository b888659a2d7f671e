"""The verdict on a study in plain words, from its numbers by stated rules."""

import dataclasses
from collections.abc import Sequence

from tfmat.report.page import Finding
from tfmat.scaling.analysis import LARGER, Analysis, Forecast
from tfmat.scaling.choice import choose
from tfmat.scaling.prediction import (
    GOOD,
    MOST_WORKERS,
    WORTHWHILE,
    fastest,
    last_worthwhile,
    smallest_good_batch,
)
from tfmat.scaling.reliability import common_rounds, is_believable, reliability_findings
from tfmat.scaling.speed_figures import parts_of
from tfmat.scaling.study import GOAL, Check
from tfmat.scaling.summary import UNRELIABLE, PointSummary
from tfmat.scaling.time_to_accuracy import name_among
from tfmat.scaling.units import bytes_text, percent_text, seconds_text, spread_text

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


def headline(analysis: Analysis) -> tuple[str, str]:
    """(level, one sentence)."""
    found = judge(analysis)
    return found.level, found.text


def judge(analysis: Analysis) -> Judgement:
    """Whether parallelism pays, or why that cannot be said."""
    best = analysis.best
    if best is None or best.speedup is None or best.efficiency is None:
        text = "Nothing can be said of scaling yet: a baseline or a second worker is missing."
        return Judgement("warn", "incomplete", text)
    if best.unreliable:
        text = (
            f"No verdict: repetitions differ {_factor(best):.1f} times, the machine was not quiet."
        )
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


def _factor(summary: PointSummary) -> float:
    return max(summary.disagreement, summary.baseline_disagreement)


def paragraph(analysis: Analysis) -> str:
    """What a reader should take away, in a few sentences of numbers."""
    best = analysis.best
    if best is None or best.speedup is None or best.efficiency is None:
        return (
            "Each point with several workers needs one of a single worker without any parallel library, on the same "
            "hardware, with the same model, data set and batch."
        )
    if best.unreliable:
        return (
            f"{best.point.workers} workers ({best.label}) and the single worker that they are divided by "
            f"took turns, but a repetition of one of them took {_factor(best):.1f} times as long as another. The "
            "medians below are given for completeness and are no finding. Measure again on a quiet machine, in "
            "another folder."
        )
    sentences = [
        (
            f"{best.point.workers} workers ({best.label}) reach {spread_text(best.speedup)} times the "
            f"curves a second of one worker without any parallel library, "
            f"{percent_text(best.efficiency.value)} of the ideal."
        ),
        _limit(analysis, best),
        _where_the_time_goes(best),
    ]
    forecast = analysis.forecast
    if not is_believable(analysis):
        return " ".join(
            [sentences[0], "Once is no finding: the next repetition may be far from it."]
        )
    exchange = analysis.exchange_seconds
    if forecast is not None and exchange is not None:
        num_bytes = forecast.model.gradient_bytes
        sentences.append(
            f"One exchange of the gradient ({bytes_text(num_bytes)}) takes {seconds_text(exchange)} alone, "
            f"{best.point.steps_an_epoch:,} times an epoch."
        )
        sentences += _outlook(forecast, analysis.checks)
    if analysis.costs:
        sentences.append(_accuracy(analysis))
    return " ".join(sentence for sentence in sentences if sentence)


def _limit(analysis: Analysis, best: PointSummary) -> str:
    """What as many processes reach that exchange nothing, with the same batch."""
    for each in analysis.summaries:
        same = each.point.workers == best.point.workers and each.baseline == best.baseline
        if each.point.exchanges_nothing and same and each.speedup and not each.unreliable:
            return (
                f"As many independent processes, which exchange nothing, reach {spread_text(each.speedup)} times: the "
                "machine's own limit."
            )
    return ""


def _where_the_time_goes(best: PointSummary) -> str:
    parts = parts_of(best)
    if not parts:
        return ""
    total = sum(parts.values())
    names = {
        "waiting": "waiting for the slowest worker", "moving": "moving gradients", "input": "waiting for input",
        "host": "the host", "rest": "not told apart",
    }  # fmt: skip
    # A part below half a percent is not worth a word.
    shares = [
        f"{percent_text(parts[part] / total)} {name}"
        for part, name in names.items()
        if parts.get(part, 0.0) > 0.005 * total
    ]
    return f"Where a step's time is lost: {', '.join(shares)}." if shares else ""


def _outlook(forecast: Forecast, checks: Sequence[Check]) -> list[str]:
    last = last_worthwhile(forecast.weak)
    larger = last_worthwhile(forecast.weak_larger)
    batch = smallest_good_batch(forecast.model, 64)
    quickest = fastest(forecast.strong)
    if last >= MOST_WORKERS:
        first = f"even at {MOST_WORKERS:,} workers of {forecast.batch_a_worker:,} examples half of the ideal is kept"
    elif last == 1:
        first = f"with {forecast.batch_a_worker:,} examples a worker already two workers lose more than half"
    else:
        first = f"beyond {last:,} workers of {forecast.batch_a_worker:,} examples more than half of the ideal is lost"
    end = f"even at {MOST_WORKERS:,}" if larger >= MOST_WORKERS else f"up to {larger:,}"
    noun = "worker" if larger == 1 else "workers"
    least = last_worthwhile(forecast.weak, "low")
    if least < last:
        first += f" (the interval begins at {least:,})"
    sentences = [
        f"By the model{_trust(checks)}, {first}; a network {LARGER} times as large keeps half {end} {noun}.",
        (
            f"A fixed batch of {forecast.global_batch_size:,} is done soonest by {quickest.workers:,} "
            f"worker{'s' if quickest.workers > 1 else ''} ({seconds_text(quickest.step_seconds.value)} a step)."
        ),
    ]
    if batch is not None:
        sentences.append(
            f"64 workers would need at least {batch:,} examples each to keep {percent_text(GOOD)}."
        )
    return sentences


def _trust(checks: Sequence[Check]) -> str:
    """What belongs behind the word model where it is not near what was measured."""
    worst = max((abs(check.error) for check in checks), default=0.0)
    if not checks:
        return ", which no measurement has tested"
    return f", which misses measured steps by up to {percent_text(worst)}" if worst > GOAL else ""


def _accuracy(analysis: Analysis) -> str:
    believed = [
        cost for cost in analysis.costs if cost.seconds.high < UNRELIABLE * cost.seconds.low
    ]
    if not believed:
        return "The times to a validation loss differ too much between repetitions to be told."
    quickest = believed[0]
    cheapest = min(believed, key=lambda cost: cost.device_hours)
    text = (
        f"A validation loss of {analysis.target:.3g} is reached soonest by {name_among(quickest, believed)}, in "
        f"{seconds_text(quickest.seconds.value)}"
    )
    if cheapest is not quickest:
        text += (
            f", and with the fewest device-hours by {name_among(cheapest, believed)} "
            f"({cheapest.device_hours:.3g} against {quickest.device_hours:.3g})"
        )
    return f"{text}."


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
