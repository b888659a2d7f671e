"""The steps that clean a measured curve. Each is recorded in words, and most can be switched off."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from tfmat.curves.reading import RawCurve
from tfmat.curves.tables import MINIMUM_POINTS
from tfmat.curves.tensile import TensileProperties
from tfmat.curves.toe import StrainError, elastic_line, noise_of, steepest_chord, toe_shift
from tfmat.errors import InputError
from tfmat.materials.law import Array

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
