"""Which part of a record a law is identified from: its first loading, up to where a specimen necks."""

import itertools

import numpy as np

from tfmat.curves.cleaning import Caveat, MeasuredCurve, cut_after_failure, keep
from tfmat.curves.tables import MINIMUM_POINTS
from tfmat.curves.tensile import engineering_stress, index_of_maximum_load, running_mean
from tfmat.curves.toe import resolution_of
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
# A true curve whose load falls by no more than this share is left whole: such a record ends about at its maximum load.
_CLEAR_FALL = 0.02
# No specimen strains so far without a neck: the strain is in percent, or the material is none of metal.
_LONGEST_TRUE_STRAIN = 1.5
_NOT_NECKING = (
    "if it is compression or torsion, or was corrected for necking, say --nocut_after_failure"
)


def turning_points(stress_mpa: Array, share: float = _TURN) -> list[int]:
    """The points where the load turns: alternating maxima and minima, the beginning and the end left out.

    Args:
      stress_mpa: [points], in the order in which they were measured; or a driven strain.
      share: of the largest value; a rise or fall by less is none.
    """
    least = share * float(np.abs(stress_mpa).max())
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


def take_first_loading(curve: MeasuredCurve, high: float | None, shear: bool = False) -> None:
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
        why = _refusal(curve, turns, first, is_loading)
        remembers = "ladeveze_shear" if shear else "voce_chaboche"
        raise InputError(f"{why}; a law that remembers takes the whole record, --law={remembers}")
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
        f"it is a cyclic record: the load turns {times}, between {stress.min():.4g} and {stress.max():.4g} MPa, and "
        f"this law describes one loading; {first}"
    )


def _rounded_down(value: float) -> str:
    """Three significant digits, not above the value."""
    step = 10.0 ** (np.floor(np.log10(value)) - 2)
    return f"{np.floor(value / step) * step:.3g}"


def cut_at_maximum_load(curve: MeasuredCurve, measures: tuple[str, str]) -> None:
    """Cuts a tension test where the specimen necks: beyond, the strain is no longer the same along it.

    With true stress the load has its maximum where stress over stretch, the engineering stress, has it (Considère).

    Args:
      measures: of its strain and its stress, `engineering` or `true`.
    """
    advice, load = "", curve.stress_mpa
    if measures[1] == "true":
        if curve.strain.max() > _LONGEST_TRUE_STRAIN:
            cut_after_failure(curve)
            return
        advice, load = _NOT_NECKING, engineering_stress(curve.strain, curve.stress_mpa, measures)
        last = index_of_maximum_load(curve.strain, load, running_mean(load))
    else:
        last = index_of_maximum_load(curve.strain, load, load)
    if measures[1] == "true" and _falls_little(running_mean(load)[last:]):
        return
    # In coarse steps of the load a maximum is known where the load has fallen by more than one.
    if load[last:].min() > load[last] - 1.5 * resolution_of(load):
        return
    strain, end = curve.strain[last], curve.strain.max()
    if end > 1.05 * strain:
        curve.warnings.append(
            Caveat(
                "necking",
                f"from the maximum load at strain {strain:.3g} to the end at {end:.3g} the specimen necks, which the "
                "law does not describe; only the part before was used",
                advice,
            )
        )
    keep(
        curve,
        np.arange(len(curve.strain)) <= last,
        f"cut after the maximum load at strain {strain:.4g}, where necking starts",
    )


def _falls_little(load: Array) -> bool:
    return bool(load.min() > (1.0 - _CLEAR_FALL) * load[0])
