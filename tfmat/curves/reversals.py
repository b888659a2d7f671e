"""Load reversals: a cyclic record is recognised and refused, or cut to its first loading, never thinned in silence."""

import itertools

import numpy as np

from tfmat.curves.caveats import Caveat
from tfmat.curves.cleaning import MeasuredCurve, keep
from tfmat.curves.tables import MINIMUM_POINTS
from tfmat.errors import InputError
from tfmat.materials.law import Array

# Of the largest stress: a fall or rise by less turns no load; a stress that far below zero is compression.
_TURN, _COMPRESSION = 0.25, 0.15
# So many unloadings in tension belong to a tension test; more are cycles where they make up most of the record.
_MOST_LOOPS = 5
# Of the points: with so many of them in the first loading, the record is that loading.
_MOST_OF_RECORD = 0.5
# A window may end so far beyond the first loading's largest strain (toe and conversion come later).
_TOLERANCE = 1.02


def turning_points(stress_mpa: Array) -> list[int]:
    """The points where the load turns: alternating maxima and minima, the beginning and the end left out.

    Args:
      stress_mpa: [points], in the order in which they were measured.
    """
    least = _TURN * float(np.abs(stress_mpa).max())
    turns: list[int] = []
    highest = lowest = 0
    direction = 0
    for i, stress in enumerate(stress_mpa):
        if stress > stress_mpa[highest]:
            highest = i
        if stress < stress_mpa[lowest]:
            lowest = i
        if direction >= 0 and stress < stress_mpa[highest] - least:
            if direction or highest:
                turns.append(highest)
            direction, lowest = -1, i
        elif direction <= 0 and stress > stress_mpa[lowest] + least:
            if direction or (lowest and stress_mpa[lowest] < -_COMPRESSION * least / _TURN):
                turns.append(lowest)
            direction, highest = 1, i
        else:
            continue
        highest = lowest = i
    return turns


def take_first_loading(curve: MeasuredCurve, high: float | None) -> None:
    """Leaves a monotonic record as it is; cuts a cyclic one to its first loading where that is wanted or most of it.

    Args:
      high: the strain at which the window of the user ends, or None where it has no end.

    Raises:
      InputError: the record is cyclic, and its first loading is not asked for.
    """
    strain, stress = curve.strain, curve.stress_mpa
    turns = turning_points(stress)
    if not _is_cyclic(strain, stress, turns):
        return
    first = _end_of_first_loading(strain, stress, turns)
    end = float(strain[: first + 1].max())
    is_loading = bool(stress[turns[0]] > 0) and end > 0 and first + 1 >= MINIMUM_POINTS
    if is_loading and high is not None and high <= _TOLERANCE * end:
        why = "the first loading of a cyclic record"
    elif is_loading and first + 1 > _MOST_OF_RECORD * len(strain):
        why = "the first loading, which is most of the record"
        curve.warnings.append(
            Caveat(
                "load reversal",
                f"the load turns at strain {end:.3g} and goes on to {stress.min():.3g} MPa; only the first loading "
                "was used",
            )
        )
    else:
        raise InputError(_refusal(curve, turns, first, is_loading))
    keep(curve, np.arange(len(strain)) <= first, f"took {why}, to strain {end:.4g}")


def _is_cyclic(strain: Array, stress: Array, turns: list[int]) -> bool:
    if not turns:
        return False
    peaks = [i for i in turns if stress[i] > 0]
    after = stress[peaks[0] :] if peaks else stress[turns[0] :]
    if after.min() < -_COMPRESSION * np.abs(stress).max():
        return True
    loops = sum(
        bool(stress[b] < stress[a] and strain[b] < strain[a]) for a, b in itertools.pairwise(turns)
    )
    rises = strain >= np.maximum.accumulate(strain)
    return loops > _MOST_LOOPS and bool(np.count_nonzero(rises) < _MOST_OF_RECORD * len(strain))


def _end_of_first_loading(strain: Array, stress: Array, turns: list[int]) -> int:
    """The point of largest strain before the first compression, or, in tension only, before the first unloading ends.

    The largest stress may lie before it, at an upper yield point.
    """
    compressed = np.flatnonzero(stress < -_COMPRESSION * np.abs(stress).max())
    compressed = compressed[compressed > turns[0]]
    before = compressed[0] if len(compressed) else turns[min(1, len(turns) - 1)]
    return int(strain[: before + 1].argmax())


def _refusal(curve: MeasuredCurve, turns: list[int], first_turn: int, is_loading: bool) -> str:
    strain, stress = curve.strain, curve.stress_mpa
    if is_loading:
        window = f"--window=,{_rounded_down(float(strain[first_turn]))}"
        first = f"{window} takes its first loading alone ({first_turn + 1} of {len(strain)} points)"
    elif stress[turns[0]] <= 0:
        first = "its first loading is compression, which no law here is identified from"
    else:
        held = f"{first_turn + 1} points to strain {strain[first_turn]:.3g}"
        first = f"its first loading holds {held}, too few for a curve"
    times = f"{len(turns)} time{'s' if len(turns) > 1 else ''}"
    return (
        f"it is a cyclic record: the load turns {times}, between {stress.min():.4g} and {stress.max():.4g} MPa, and a "
        f"law here describes one loading; {first}"
    )


def _rounded_down(value: float) -> str:
    """Three significant digits, not above the value."""
    step = 10.0 ** (np.floor(np.log10(value)) - 2)
    return f"{np.floor(value / step) * step:.3g}"
