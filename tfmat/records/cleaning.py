"""The steps that clean a test, the part of it that a law is identified from, and the way it was driven."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array
from tfmat.records.programmes import Programme
from tfmat.records.reading import RawCurve
from tfmat.records.tables import MINIMUM_POINTS
from tfmat.records.tensile import (
    TensileProperties,
    engineering_stress,
    index_of_maximum_load,
    running_mean,
)
from tfmat.records.toe import (
    StrainError,
    elastic_line,
    noise_of,
    resolution_of,
    steepest_chord,
    toe_shift,
)

# --------------------------------------------------------------------------------------------------
# The steps that clean a measured curve. Each is recorded in words, and most can be switched off.


# A stress that stays this far under the maximum until the end is taken for what follows failure.
FAILED_BELOW = 0.95
# A strain that dips by more than so many times its noise, or with a stress that falls by as much, is no noise.
_NOISE_TIMES = 6.0
# _NOISY_STRAIN: share of the rows; where the strain falls in more of them its noise is not small beside its steps.
_NOISY_STRAIN = 0.1
# _SEVERAL: share of a step; a mean of several rows at one step has a smaller error, a single row has 1 / sqrt(12).
_SEVERAL = 0.2
# _NEAR_FALL: rows on each side of a fall of the strain that show its noise.
_NEAR_FALL = 6
# _CLEAR_STEP: standard deviations of a mean's noise that the means of neighbouring groups are apart, at least.
_CLEAR_STEP = 2.0
# _SAME_STRAIN: share of the largest strain; strains that differ by less are the same.
_SAME_STRAIN = 1e-9
# _MANY: share of the points; dropping more of them is a caveat, and not only a step.
_MANY = 0.1
# _UNLOADS: share of the stress by which an unloading lowers it.
_UNLOADS = 0.3
# _UNLOADED: share of the largest stress; below it a specimen is as good as unloaded.
_UNLOADED = 0.02
# _FAR_OFFSET: share of the strain's range; a first strain beyond it was not zeroed, whatever the elastic part says.
_FAR_OFFSET = 0.02
# _CLEAR_OFFSET: share of the elastic strain; a smaller offset hardly moves a modulus.
_CLEAR_OFFSET = 0.1
# _NOISE_OF_OFFSET: standard deviations of the first point's noise; a smaller offset may be noise.
_NOISE_OF_OFFSET = 8.0
# _CLEAR_TIMES: standard errors by which the origin of the elastic part must differ from zero.
_CLEAR_TIMES = 4.0
# _FEW_CELLS: so many cells of a column may be wild, and say nothing of its sign.
_FEW_CELLS = 3
# Larger numbers are no strain in any unit and no stress in Pa; smaller ones are zero.
_LARGEST, _SMALLEST = 1e12, 1e-20


@dataclasses.dataclass(frozen=True)
class Caveat:
    """One reason to be careful with the answer for one curve.

    Attributes:
      kind: a few words that are the same for every curve it is true of, e.g. "necking"; a batch is summed up by them.
      text: one sentence with the numbers of this curve, without a full stop.
      advice: what to do about it, the same for every curve of this kind; empty where nothing can be done.
      blocks: the answer must not be used.
    """

    kind: str
    text: str
    advice: str = ""
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}" if self.advice else self.text


def reasons_not_to_use(caveats: Iterable[Caveat]) -> list[str]:
    """The kinds of those that forbid the use of the answer, each once and in order; empty where it can be used."""
    return list(dict.fromkeys(caveat.kind for caveat in caveats if caveat.blocks))


@dataclasses.dataclass(frozen=True)
class CleaningOptions:
    """Which steps are taken. Checked on creation, InputError names the flag.

    Attributes:
      toe: `auto` takes off a toe, an offset of the strain and a preload where there is one; `off` never.
      cut_after_failure: cuts where the load drops for good; an engineering curve of a metal at its maximum load.
      envelope: makes the strain of noisy curves rise; off drops every point whose strain does not exceed all before.
      window: `LOW,HIGH`, strains of the cleaned curve between which points count; either side may be empty.
    """

    toe: str = "auto"
    cut_after_failure: bool = True
    envelope: bool = True
    window: str | None = None

    def __post_init__(self) -> None:
        self.bounds()
        if self.toe not in ("auto", "off"):
            raise InputError(f"--toe is '{self.toe}'; give auto or off")

    def bounds(self) -> tuple[float | None, float | None]:
        """The ends of the window in plain strain, None for one that is open; InputError where they make no sense."""
        if self.window is None:
            return None, None
        sides = self.window.split(",")
        try:
            low, high = (float(side) if side.strip() else None for side in sides)
        except ValueError:
            low = high = math.nan
        if (low is None and high is None) or not (low or 0.0) < (
            math.inf if high is None else high
        ):
            raise InputError(
                f"--window is '{self.window}'; give LOW,HIGH in plain strain, e.g. 0.002,0.05 (2 % is 0.02); one side "
                "may be left empty"
            )
        return low, high


@dataclasses.dataclass
class MeasuredCurve:
    """A cleaned curve in the law's own strain and stress.

    Attributes:
      name: for reports.
      strain: [points], -, rising, within the trained range; stress_mpa: [points], MPa.
      steps: what was done to it, in words, in order.
      warnings: what should make the reader of an answer careful; one that blocks forbids the use of any answer.
      assumed: what was assumed and not read, in short ("stress in MPa"), to be shown wherever the answer is.
      conditions: what head and file name say of the test: `specimen`, `temperature`, `direction`, `rate`, and such.
      tensile: the properties of a tension test of a metal that need no law; None for other tests.
      toe: strain that slack or seating adds before the elastic part, -; 0 where none was found.
      toe_removed: the toe was taken off the strain.
      strain_error: of the points, where the strain is coarse or noisy.
    """

    name: str
    strain: Array
    stress_mpa: Array
    steps: list[str] = dataclasses.field(default_factory=list)
    warnings: list[Caveat] = dataclasses.field(default_factory=list)
    assumed: list[str] = dataclasses.field(default_factory=list)
    conditions: dict[str, str] = dataclasses.field(default_factory=dict)
    tensile: TensileProperties | None = None
    toe: float = 0.0
    toe_removed: bool = False
    strain_error: StrainError = dataclasses.field(default_factory=StrainError)

    @classmethod
    def of(cls, raw: RawCurve) -> "MeasuredCurve":
        """A curve as it was read, before anything is done to it."""
        strain, stress = np.asarray(raw.strain), np.asarray(raw.stress_mpa)
        return cls(
            raw.name,
            strain,
            stress,
            list(raw.steps),
            assumed=list(raw.assumed),
            conditions=dict(raw.conditions),
        )


def keep(curve: MeasuredCurve, kept: np.ndarray, step: str, bore: bool = False) -> None:
    """Keeps some points; says so only where points were dropped.

    Args:
      bore: the others bore a load, so that dropping many of them is worth a caveat.
    """
    dropped = int(np.count_nonzero(~kept))
    if bore and dropped > _MANY * len(kept):
        curve.warnings.append(
            Caveat(
                "many points dropped",
                f"{dropped} of {len(kept)} points are not used: {step}",
                "look at the record: the answer rests on the other points",
            )
        )
    if dropped:
        curve.strain, curve.stress_mpa = curve.strain[kept], curve.stress_mpa[kept]
        curve.steps.append(f"{step} ({dropped} point{'s' if dropped > 1 else ''} dropped)")


def check_numbers(curve: MeasuredCurve) -> None:
    """Raises InputError for numbers that no unit makes a strain or a stress; takes far smaller ones for zero.

    Beyond, squares and quotients would leave what a computer can hold.
    """
    for name in ("strain", "stress_mpa"):
        values = getattr(curve, name)
        size = float(np.nanmax(np.abs(values), initial=0.0))
        if not size <= _LARGEST:
            axis = name.partition("_")[0]
            raise InputError(
                f"its {axis} goes to {size:.3g}, which no unit makes a {axis}; is --{axis}_column right?"
            )
        setattr(curve, name, np.where(np.abs(values) < _SMALLEST, 0.0, values))


def turn_negative(curve: MeasuredCurve) -> None:
    """Shear to the other side is the same test, and compression has either sign in files: turns negative values."""
    for name in ("strain", "stress_mpa"):
        values = getattr(curve, name)
        if is_negative(values):
            setattr(curve, name, -values)
            curve.steps.append(f"changed the sign of the {name.partition('_')[0]}")


def is_negative(values: Array) -> bool:
    """Whether values [points] are negative, but for noise, for what comes after a test, and for a few wild cells."""
    known = np.sort(values[np.isfinite(values)])
    # What is written three times and more in place of a value, such as -999, is none.
    if (known == known[:1]).sum() >= _FEW_CELLS:
        known = known[known > known[0]]
    few = _FEW_CELLS if len(known) > 10 * _FEW_CELLS else 0
    known = known[few : len(known) - few]
    return bool(known.min(initial=0.0) < -5 * known.max(initial=0.0))


def check_rises(curve: MeasuredCurve) -> None:
    """Raises InputError for too few points and for strain or stress that never rises."""
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"it has {len(curve.strain)} points; a curve needs at least {MINIMUM_POINTS}"
        )
    if curve.strain.max() <= 0 or curve.stress_mpa.max() <= 0:
        raise InputError("strain and stress never rise above zero; are the columns the right ones?")
    if np.ptp(curve.stress_mpa) == 0:
        raise InputError("its stress is the same at every point (is --stress_column right?)")


def cut_after_failure(curve: MeasuredCurve) -> None:
    """Cuts behind the last point that still bears nearly the maximum stress."""
    standing = np.flatnonzero(curve.stress_mpa >= FAILED_BELOW * curve.stress_mpa.max())
    keep(curve, np.arange(len(curve.strain)) <= standing[-1], "cut after failure, a drop of load")


def cut_to_window(curve: MeasuredCurve, low: float | None, high: float | None) -> None:
    """Keeps the points between two strains; InputError where too few are left."""
    if low is None and high is None:
        return
    kept = np.ones(len(curve.strain), bool)
    if low is not None:
        kept &= curve.strain >= low
    if high is not None:
        kept &= curve.strain <= high
    count = int(np.count_nonzero(kept))
    ends = f"{'the start' if low is None else f'{low:g}'} to {'the end' if high is None else f'{high:g}'}"
    if count < MINIMUM_POINTS:
        raise InputError(
            f"--window leaves {count} of its {len(kept)} points, from strain {ends} (the curve goes to "
            f"{curve.strain.max():.4g}); at least {MINIMUM_POINTS} are needed"
        )
    keep(curve, kept, f"kept the points of the window, strain {ends}")
    if low is not None and low > 0:
        curve.warnings.append(
            Caveat(
                "window without the start",
                f"the window begins at strain {low:g}: least squares uses the points inside, a network sees a straight "
                "line from zero to them",
                "take the least-squares values, and fix E where the window holds no elastic part",
            )
        )


def make_strain_rise(curve: MeasuredCurve, envelope: bool) -> None:
    """Drops unloadings, and makes the noise of the strain monotonic; InputError where strain does not rise.

    Noise is removed by the nearest rising sequence in the sense of least squares (isotonic regression); points that
    become equal are replaced by their mean. The running maximum alone would follow the noise's upper side.
    """
    strain = curve.strain
    if (np.diff(strain) <= 0).any():
        if envelope:
            found, unexplained = _unloadings(curve)
            many = bool(np.count_nonzero(unexplained) > _MANY * len(strain))
            keep(curve, ~found, "dropped unloadings and slips, where strain falls", many)
            _average_noise(curve)
        else:
            earlier = np.maximum.accumulate(np.concatenate([[-np.inf], strain[:-1]]))
            keep(curve, strain > earlier, "kept the points where strain exceeds all before")
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"its strain rises at {len(curve.strain)} points only; a curve needs at least {MINIMUM_POINTS} "
            "points of rising strain (are the columns the right ones?)"
        )


def _unloadings(curve: MeasuredCurve) -> tuple[np.ndarray, np.ndarray]:
    """True from where strain leaves its running maximum until it is back, unless that is but noise.

    Returns:
      Those points, and the part of them that is no unloading, as the load does not fall: both [points].
    """
    highest = np.maximum.accumulate(curve.strain)
    behind = highest - curve.strain
    below = np.concatenate([[False], behind > 0.0, [False]])
    edges = np.diff(below.astype(int))
    allowed_dip = _NOISE_TIMES * noise_of(curve.strain)
    allowed_fall = _NOISE_TIMES * noise_of(curve.stress_mpa) + 0.01 * float(curve.stress_mpa.max())
    found, unexplained = np.zeros((2, len(curve.strain)), bool)
    for start, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        dip = float(behind[start:end].max())
        fall = float(curve.stress_mpa[start - 1] - curve.stress_mpa[start:end].min())
        found[start:end] = dip > allowed_dip or fall > allowed_fall
        unexplained[start:end] = found[start] and fall < _UNLOADS * curve.stress_mpa[start - 1]
    return found, unexplained


def _average_noise(curve: MeasuredCurve) -> None:
    moved = np.diff(curve.strain)
    if len(curve.strain) < 2 or (moved > 0).all():
        return
    import scipy.optimize

    total = len(curve.strain)
    fitted = scipy.optimize.isotonic_regression(curve.strain).x
    falls = np.concatenate([[0], np.cumsum(moved < 0)])
    # Rows near which the strain falls show its noise, and others how unevenly they stand.
    near = np.minimum(np.arange(total) + _NEAR_FALL, total - 1), np.arange(total) - _NEAR_FALL
    noisy = falls[near[0]] > falls[np.maximum(near[1], 0)]
    noise = noise_of(curve.strain[noisy])
    if falls[-1] > _NOISY_STRAIN * total and noise > curve.strain_error.step:
        # Blocks of an isotonic regression end where noise lets them, which bends steep parts and the start.
        starts = _clear_steps(fitted, noise)
        rows = float(noisy.sum()) / max(float(noisy[starts].sum()), 1.0)
        _average(curve, starts)
        fitted = scipy.optimize.isotonic_regression(curve.strain).x
        curve.strain_error = StrainError(noise / math.sqrt(rows))
    # Means of equal strains differ by the computer's rounding.
    starts = np.flatnonzero(np.diff(fitted, prepend=-np.inf) > _SAME_STRAIN * np.abs(fitted).max())
    _average(curve, starts)
    curve.strain = fitted[starts]
    curve.steps.append(f"monotonic envelope of noisy strain: {total} points became {len(starts)}")


def _average(curve: MeasuredCurve, starts: np.ndarray) -> None:
    """Replaces the points from each of `starts` to the next by their means."""
    count = np.diff([*starts, len(curve.strain)])
    curve.strain = np.add.reduceat(curve.strain, starts) / count
    curve.stress_mpa = np.add.reduceat(curve.stress_mpa, starts) / count


def _clear_steps(strain: Array, noise: float) -> np.ndarray:
    """Where groups of rows begin that are further apart than their means are noisy; strain: [points], not falling."""
    starts, first = [0], 0
    values = strain.tolist()
    for row, value in enumerate(values):
        if row > first and value - values[first] >= _CLEAR_STEP * noise / math.sqrt(row - first):
            starts.append(row)
            first = row
    return np.array(starts)


def correct_start(curve: MeasuredCurve, toe: bool) -> None:
    """Takes off a strain that was not zeroed, a toe or a preload; drops what lies before zero strain."""
    if toe:
        _take_off_offset(curve)
    # Rows from rest to half a step have no strain of their own.
    step = curve.strain_error.step
    starts_at_rest = bool(len(curve.strain)) and abs(float(curve.strain[0])) < 0.5 * step
    many = curve.strain_error.deviation < _SEVERAL * step
    keep(
        curve,
        np.arange(len(curve.strain)) >= (starts_at_rest and many),
        "dropped the first step of the strain, which is half a step wide",
    )
    _take_off_toe(curve, toe)
    before = curve.strain < 0
    bore = float(np.abs(curve.stress_mpa[before]).max(initial=0.0))
    keep(
        curve,
        ~before,
        "dropped negative strains before the start",
        bore > _UNLOADED * float(curve.stress_mpa.max(initial=0.0)),
    )
    share = curve.stress_mpa[0] / curve.stress_mpa.max() if len(curve.strain) else 0.0
    if share > 0.3 and curve.strain[0] < 1e-3 * curve.strain[-1]:
        curve.warnings.append(
            Caveat(
                "stress without strain",
                f"the curve begins at {100 * share:.0f} % of its maximum stress without strain",
                "if this is plastic strain, give the total strain",
            )
        )


def _take_off_offset(curve: MeasuredCurve) -> None:
    """A strain that was not zeroed: the first point, drawn back along the elastic part, lies far from zero."""
    strain, stress = float(curve.strain[0]), float(curve.stress_mpa[0])
    largest = float(curve.stress_mpa.max())
    noise = noise_of(curve.stress_mpa)
    if abs(stress) >= _UNLOADED * largest + 2.0 * noise:
        return
    line = elastic_line(curve.strain, curve.stress_mpa)
    line = line or steepest_chord(curve.strain, curve.stress_mpa)
    offset, least = strain, _FAR_OFFSET * float(np.ptp(curve.strain))
    if line is not None:
        offset = strain - stress / line.slope
        noise = float(np.hypot(noise / line.slope, noise_of(curve.strain)))
        least = max(least, curve.strain_error.step)
        elastic = max(line.end_stress / line.slope, 0.0)
        least = min(least, max(_CLEAR_OFFSET * elastic, _NOISE_OF_OFFSET * noise))
        # The whole elastic part must say the same, and not the noise of the first point alone.
        by_line = line.origin * np.sign(offset)
        if by_line < max(0.5 * abs(offset), _CLEAR_TIMES * line.origin_error):
            return
    if abs(offset) <= least:
        return
    curve.strain = curve.strain - offset
    curve.steps.append(f"took {offset:.4g} off the strain, its reading before the load")
    curve.warnings.append(
        Caveat(
            "strain not zeroed",
            f"its strain reads {offset:.3g} before the load, which was taken off",
            "if the specimen was really strained before, say --toe=off",
        )
    )


def _take_off_toe(curve: MeasuredCurve, wanted: bool) -> None:
    line = elastic_line(curve.strain, curve.stress_mpa)
    found = toe_shift(curve.strain, curve.stress_mpa, line, curve.strain_error.deviation)
    line = line or steepest_chord(curve.strain, curve.stress_mpa)
    if line is None or not found.kind:
        return
    start, shift, first = line.start, found.shift, float(curve.stress_mpa[0])
    slope = f"its elastic part ({line.slope:.4g} MPa) drawn on to zero stress"
    if found.kind == "toe":
        curve.toe, curve.toe_removed = found.size, wanted and found.is_sure
        done = "was taken off" if curve.toe_removed else "was left in the strain"
        curve.warnings.append(
            Caveat(
                "toe",
                f"the curve rises slowly at first, as slack or seating makes it: a toe of {found.size:.3g} in strain "
                f"{done}; the steepest part has {line.slope / 1e3:.3g} GPa, and the material's modulus may be higher",
                "do not take the modulus from this curve: give the one that you trust with --fix",
            )
        )
        if not curve.toe_removed:
            return
        curve.strain = curve.strain - shift
        curve.steps.append(f"took a toe of {shift:.3g} off the strain: {slope}")
        # The line stands for the toe: from zero to the beginning of the elastic part.
        keep(curve, curve.strain >= max(start - shift, 0.0), "dropped the points of the toe")
    elif wanted:
        curve.strain = curve.strain - shift
        side = "added to" if shift < 0 else "taken off"
        curve.steps.append(f"{abs(shift):.3g} {side} the strain for the load at its start: {slope}")
        curve.warnings.append(
            Caveat(
                "load at zero strain",
                f"the load is {first:.3g} MPa at the start, where the strain was set to zero; it was taken for a real "
                f"load, and {abs(shift):.3g} was {side} the strain",
                f"if the load was not zeroed, every stress is {abs(first):.3g} MPa too "
                f"{'high' if first > 0 else 'low'}",
            )
        )


# --------------------------------------------------------------------------------------------------
# Which part of a record a law is identified from: its first loading, up to where a specimen necks.


# Of the largest stress: a fall or rise by less turns no load; a stress that far below zero is compression.
_TURN, _COMPRESSION = 0.25, 0.15
# So many unloadings in tension belong to a tension test; more are cycles where they make up most of the record.
_MOST_LOOPS = 5
# Of the points: with so many of them in the first loading, the record is that loading.
_MOST_OF_RECORD = 0.5
# A window may end so far beyond the first loading's largest strain (toe and conversion come later).
_BEYOND_LOADING = 1.02
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
    if is_loading and high is not None and high <= _BEYOND_LOADING * end:
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


# --------------------------------------------------------------------------------------------------
# The way that a test was driven: turning points, measured points averaged along it, the settings of its programme.
#
# A place is how far the machine has gone: the sum of the driven changes, on which noise takes no part. Settings are
# amplitude, cycles, rate, temperature, hold, and such, as a record shows them.


# The driven value turns where it goes back by this share of the largest value; by more where noise would then turn it
# so often that fewer points than this lie between two turns.
_LEAST_TURN, _FEWEST_BETWEEN = 0.01, 5
# A test with a ramp and a hold: the ramp ends where the driven value first comes this near to its last one.
_REACHED = 0.98
# Half cycles whose amplitudes differ by less than this share are alike; so many in a row tell of a drift, where the
# slope of their middles is so many times its standard error: 1 % of irregular histories then seem to drift.
_ALIKE, _FEWEST_HALVES, _CLEARLY = 0.2, 5, 3.0
# Where a ramp ends on the scale of places; the hold takes the rest, evenly in ln t from this share of its length on.
_RAMP_SHARE, _EARLIEST = 0.3, 1e-3


def turns_of(driven: Array) -> list[int]:
    """The points where the driven value [points] turns, the beginning and the end left out."""
    if not np.any(driven):
        return []
    share = _LEAST_TURN
    while (turns := turning_points(driven, share)) and len(driven) < _FEWEST_BETWEEN * len(turns):
        share *= 2.0
    return turns


def places_on_path(driven: Array, turns: list[int]) -> Array:
    """How far the driven value has gone at each point, [points], not falling; noise does not count as a way."""
    places = np.empty(len(driven))
    ends = [0, *turns, len(driven) - 1]
    gone = 0.0
    for first, last in itertools.pairwise(ends):
        branch = driven[first : last + 1]
        side = 1.0 if branch[-1] >= branch[0] else -1.0
        way = np.clip(side * (branch - branch[0]), 0.0, abs(float(branch[-1] - branch[0])))
        places[first : last + 1] = gone + np.maximum.accumulate(way)
        gone = float(places[last])
    return places


def end_of_ramp(driven: Array) -> int:
    """The point from which on a test with a hold holds its value."""
    reached = np.abs(driven) >= _REACHED * abs(
        float(np.median(driven[-max(len(driven) // 4, 1) :]))
    )
    return int(reached.argmax())


def places_in_time(driven: Array, time: Array) -> Array:
    """Places of a test with a ramp and a hold, [points], 0-1: the ramp evenly, the hold evenly in ln t."""
    end = end_of_ramp(driven)
    begun, hold = float(time[end]), max(float(time[-1] - time[end]), 1e-300)
    ramp = max(begun - float(time[0]), 1e-300)
    share = np.log(np.maximum((time - begun) / hold, _EARLIEST) / _EARLIEST) / -np.log(_EARLIEST)
    held = _RAMP_SHARE + (1.0 - _RAMP_SHARE) * share
    return np.where(np.arange(len(time)) <= end, _RAMP_SHARE * (time - time[0]) / ramp, held)


@dataclasses.dataclass(frozen=True)
class Cells:
    """Which measured points stand for which of the new places: means where they are dense, lines between elsewhere.

    Attributes:
      at: new places, [new], rising; places: of the measured points, [points], not falling.
      kept: (index of a new place, measured point) pairs that are taken as they are.
    """

    at: Array
    places: Array
    kept: tuple[tuple[int, int], ...] = ()

    @property
    def _cell(self) -> NDArray[np.intp]:
        """The new place that each measured point is nearest to, [points]."""
        return np.asarray(np.searchsorted((self.at[1:] + self.at[:-1]) / 2, self.places), np.intp)

    def sums(self, values: Array) -> Array:
        """The sums of a quantity [points] over the points of each new place: [new]."""
        return np.asarray(np.bincount(self._cell, values, len(self.at)))

    def of(self, values: Array) -> Array:
        """A measured quantity [points] at the new places: [new]."""
        cell = self._cell
        count = np.bincount(cell, minlength=len(self.at))
        held = count > 0
        places = np.bincount(cell, self.places, len(self.at))[held] / count[held]
        means = np.bincount(cell, values, len(self.at))[held] / count[held]
        # Cells without a point lie between their neighbours; turning points are no means.
        for new, old in self.kept:
            i = int(np.searchsorted(places, self.at[new]))
            inside = i < len(places) and places[i] == self.at[new]
            if inside:
                means[i] = values[old]
            else:
                places = np.insert(places, i, self.at[new])
                means = np.insert(means, i, values[old])
        return np.interp(self.at, places, means)


def thinned(places: Array, turns: list[int], most: int) -> Cells:
    """Cells of at most `most` points, shared out among the branches by their length, each turning point one."""
    ends = [0, *turns, len(places) - 1]
    length = np.diff(places[ends])
    total = max(float(length.sum()), 1e-300)
    spare = max(most - 1 - len(length), 0)
    steps = np.where(length > 0, 1 + np.floor(spare * length / total), 0).astype(np.int64)
    at = [places[:1]]
    for first, last, count in zip(places[ends[:-1]], places[ends[1:]], steps, strict=True):
        at.append(np.linspace(first, last, count + 1)[1:])
    kept = tuple(zip(np.concatenate([[0], np.cumsum(steps)]).tolist(), ends, strict=True))
    return Cells(np.concatenate(at), places, tuple(dict(kept).items()))


def drift_of_middle(driven: Array, turns: list[int]) -> tuple[float, float]:
    """How far the middle of cycles moves while their amplitude is constant, and the amplitude; 0, 0 without such.

    A programme whose amplitude changes moves the middle by itself, so that blocks of cycles of nearly one amplitude
    alone tell of a drift: what the middle moves in each is added up, where it clearly moves along a line.
    """
    ends = driven[turns]
    middle, half = (ends[1:] + ends[:-1]) / 2, np.abs(ends[1:] - ends[:-1]) / 2
    moved, sizes, first = 0.0, [], 0
    while first < len(half):
        last = first + 1
        while last < len(half) and _alike(half[first : last + 1]):
            last += 1
        if last - first >= _FEWEST_HALVES:
            (slope, _), covariance = np.polyfit(
                np.arange(last - first), middle[first:last], 1, cov=True
            )
            if slope**2 > _CLEARLY**2 * covariance[0, 0]:
                moved += float(slope * (last - first - 1))
            sizes.append(float(np.median(half[first:last])))
        first = last
    return (moved, float(np.mean(sizes))) if sizes else (0.0, 0.0)


def _alike(half: Array) -> bool:
    return bool(np.ptp(half) <= _ALIKE * np.median(half))


def half_cycles(turns: Sequence[int]) -> int:
    """How many half cycles a test with these turning points has: the first and the last loading count."""
    return len(turns) + 1


# A setting may lie so far beyond its range, of its width on its scale, without anyone caring.
_BEYOND_RANGE = 0.02
_ROOM = 20.0
_TO_CELSIUS = {
    "°C": lambda value: value,
    "K": lambda value: value - 273.15,
    "°F": lambda value: (value - 32.0) / 1.8,
    "°R": lambda value: (value - 491.67) / 1.8,
}


def measured_settings(
    programme: Programme,
    driven: Array,
    time: Array | None,
    turns: Sequence[int],
    rate: float | None,
    temperature: float | None,
) -> dict[str, float]:
    """Setting -> value, as far as a record tells those of its programme.

    Args:
      driven: strain (-) or stress (MPa), [points]; time: [points], s, or None.
      turns: points where the driven value turns.
    """
    largest = float(driven[np.abs(driven).argmax()])
    found = {
        "amplitude": abs(largest),
        "max_strain": largest,
        "cycles": max(half_cycles(turns) / 2.0, 1.0),
    }
    if programme.mode == "shear" and turns:
        peaks, valleys = driven[list(turns)[::2]], driven[list(turns)[1::2]]
        both = min(len(peaks), len(valleys))
        if both:
            back = 1.0 - valleys[:both] / np.where(peaks[:both] == 0, 1.0, peaks[:both])
            found["unloading"] = float(np.mean(back))
        found["cycles"] = len(valleys) + 1.0
    if rate is not None:
        found["rate"] = rate
    if temperature is not None:
        found["temperature"] = temperature
    if time is not None:
        end = end_of_ramp(driven)
        held = float(np.median(driven[end:]))
        found |= {"strain": abs(held), "stress": abs(held), "hold": float(time[-1] - time[end])}
        found["ramp"] = float(time[end] - time[0])
        if found["ramp"] > 0:
            found["rate"] = abs(float(driven[end] - driven[0])) / found["ramp"]
    return {s.name: found[s.name] for s in programme.settings if s.name in found}


def settings_beyond(programme: Programme, settings: Mapping[str, float]) -> list[str]:
    """Settings outside of a programme's ranges, each in words: `amplitude 0.08 (0.003 to 0.03)`."""
    found = []
    for setting in programme.settings:
        value = settings.get(setting.name)
        if value is None:
            continue
        if setting.scale == "log" and value <= 0:
            place = -np.inf
        elif setting.low == setting.high:
            place = 0.0 if np.isclose(value, setting.low, rtol=_BEYOND_RANGE) else np.inf
        else:
            place = float(setting.to_unit_interval(value))
        if not -_BEYOND_RANGE <= place <= 1.0 + _BEYOND_RANGE:
            unit = "" if setting.unit == "-" else f" {setting.unit}"
            found.append(
                f"{setting.name} {value:.3g}{unit} ({setting.low:.3g} to {setting.high:.3g}{unit})"
            )
    return found


def rate_of(raw: RawCurve, said: str | None) -> tuple[float, str, str]:
    """The strain rate in 1/s, where it is known from, and what was assumed of it; from the file or from its time.

    Raises:
      InputError: nothing tells it.
    """
    if said is not None and (match := re.fullmatch(r"([-+.\deE]+)( 1/s)?", said)):
        assumed = "" if match[2] else "rate in 1/s"
        return float(match[1]), "from the file's head or name", assumed
    if raw.time is not None and len(raw.time) > 1 and raw.time[-1] > raw.time[0]:
        top = int(np.abs(raw.strain).argmax())
        seconds = float(raw.time[top] - raw.time[0])
        if seconds > 0:
            return abs(float(raw.strain[top] - raw.strain[0])) / seconds, "strain over time", ""
    raise InputError(
        "nothing says its strain rate; give it in a table of tests (columns file, rate in 1/s, temperature in °C), in "
        "the file's head or name (0.01 1/s), or by a column of the time"
    )


def temperature_of(said: str | None) -> tuple[float, str, str]:
    """The temperature in °C, where it is known from, and what was assumed of it; room temperature where none is said.

    Raises:
      InputError: it is said without a unit.
    """
    if said is None:
        return _ROOM, "nothing says another", f"temperature of {_ROOM:g} °C"
    number, _, unit = said.partition(" ")
    try:
        return float(_TO_CELSIUS[unit](float(number))), "from the file's head or name", ""
    except (KeyError, ValueError):
        raise InputError(
            f"its temperature is '{said}', without a unit that is known; give it in °C in a table of tests (columns "
            "file, temperature)"
        ) from None
