"""How far a study's numbers can be believed: repetitions, noise, oversubscription, what is missing."""

from collections.abc import Sequence

import numpy as np

from tfmat.report.page import Finding
from tfmat.scaling.analysis import Analysis
from tfmat.scaling.summary import UNRELIABLE, PointSummary

# Slowest over fastest repetition, in the median of all points: from here on the machine was not quiet.
NOISY = 1.25
# Fewer repetitions have a range, and no interval.
FEW = 3
_NAMED = 3


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
