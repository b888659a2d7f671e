"""A test as it was read, made into what a law is identified from: cleaned, converted, cut. Every step in words."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array, Law
from tfmat.records.plausibility import RUBBER, check_magnitude, check_test, stretch_to_strain
from tfmat.records.programmes import (
    Compression,
    Creep,
    Programme,
    RateAndTemperature,
    Relaxation,
    TensionAtRate,
    Uniaxial,
)
from tfmat.records.reading import RawCurve, rate_of, temperature_of
from tfmat.records.record import (
    _COMPRESSION,
    ENGINEERING_COLUMNS,
    MOST_POINTS,
    ONE_TRUE,
    Caveat,
    CurveTarget,
    MeasuredTest,
    turning_points,
    turns_of,
    without_excess,
)
from tfmat.records.tables import MINIMUM_POINTS
from tfmat.records.tensile import (
    LARGEST_TRUE_STRAIN,
    STIFFEST,
    ElasticLine,
    StrainError,
    TensileProperties,
    elastic_line,
    elastic_part,
    engineering_stress,
    index_of_maximum_load,
    noise_of,
    resolution_of,
    running_mean,
    steepest_chord,
    stretch_of,
    tensile_properties,
    toe_shift,
    with_capped_load,
)

# --------------------------------------------------------------------------------------------------
# Faults of the recording, which no specimen does: wild cells, and an extensometer or a load cell at its limit.
#
# Both are looked for in the order of the rows, before anything else is done to a curve.


# _LONGEST_BLOCK: so many neighbouring cells at the most are wild together; more are a part of the test.
_LONGEST_BLOCK = 3
# _WINDOW: rows on each side of a cell that show how rough the record is there.
_WINDOW = 15
# _ROUGHNESS: a wild cell departs by so many times the second difference of its neighbourhood.
_ROUGHNESS = 3.0
# _OTHER_WILD: of the largest second differences, so many are left out, as other wild cells make them.
_OTHER_WILD = 6
# _NOISE_TIMES: and by so many standard deviations of the record's noise.
_WILD_TIMES = 10.0
# _STEPS: a wild strain departs by so many steps of its neighbours; a slip of fewer drops no points.
_STEPS = 2.0
# _STEPS_AT_END: at the ends of a record only one side speaks, so that more steps are needed.
_STEPS_AT_END = 20.0
# _OVER_LARGEST: and by so many times the largest step of the record.
_OVER_LARGEST = 2.0
# _HIGH: relative departure of a wild stress above its neighbours; serrations rise by less.
_HIGH = 0.03
# _LOW: relative departure below them; serrations and pauses lower the load by less.
_LOW = 0.12
# _JOINED: the sides of a wild cell fit together to this share of its departure.
_JOINED = 0.25
# _MOST_LOW: share of the rows; load drops that are more frequent are a feature of the material.
_MOST_LOW = 0.01
# _TURN: rows on each side of a cell that show whether the strain goes back there.
_TURN = 4
# _PASSES: two wild cells that hide each other need a second look.
_PASSES = 3
# _NAMED: so many wild cells are named one by one.
_NAMED = 4

# _FALL: share of the strain's range; a strain that falls by less is noise or a slip that costs a few points.
_FALL = 0.02
# _LOAD_FOLLOWS: an unloading lowers the load by at least this share of the relative fall of the strain.
_LOAD_FOLLOWS = 0.3
# _NEAR_ZERO: share of the strain before; an extensometer that shows less was taken off.
_NEAR_ZERO = 0.3
# _BACK: steps before; a disturbed strain comes back by a larger one.
_BACK = 3.0
# _DISTURBED: share of the rows within which a disturbed strain jumps back to where it was.
_DISTURBED = 0.1
# _HELD_WITHIN: shares of the strain's range; a strain that stays within one of them to the end creeps, or does not
# move.
_HELD_WITHIN = (1e-2, 1e-3)
# _FEWEST_HELD: rows, and as a share of all rows; of a strain that does not move under a load that falls only.
_FEWEST_HELD, _FEWEST_FALLING = 8, 0.05
# _SLOWER: a held strain stays for so many times the rows that it took before.
_SLOWER = 5.0
# _LOAD_MOVES: share of the largest load; with less the machine stands still, too.
_LOAD_MOVES = 0.01
# _BROKEN: share of the largest load; below it a specimen is broken and its strain of no interest.
_BROKEN = 0.3

# _JUMP: steps of its neighbours; a strain that jumps moves by more in one.
_JUMP = 4.0
# _CLEAR_JUMP: standard errors by which the load stays behind such a jump.
_CLEAR_JUMP = 4.0
# _FEW_JUMPS: of a record; more are the material's.
_FEW_JUMPS = 2
# _STEP_OF_STRESS: shares of the largest stress between which a change of speed moves it; a fracture moves more.
_STEP_OF_STRESS = (0.01, 0.15)
# _LATEST_YIELD: strain; up to it a fall of the stress may be the one behind an upper yield point.
_LATEST_YIELD = 0.03
# _IN_ONE_ROW: share of such a step that one row makes, and by so many times more than other rows near by.
_IN_ONE_ROW, _BEYOND_ROWS = 0.5, 3.0
# _SPREAD: share of a step; points near by are so close to lines on both sides, and twice as many points say the same.
_SPREAD = 0.3
# _FEWEST_AFTER: rows after a fracture; fewer do not show where the load comes to rest.
_FEWEST_AFTER = 4
# _AT_ONCE: rows within which a specimen breaks, from `_BROKEN` of the largest load to a third of that.
_AT_ONCE = 3
# _RETURNS: share of the largest load; a load cell that returns to less has not drifted.
_RETURNS = 0.003
# _FEWEST_CAPPED: rows; a load that stays the same for fewer may do so by its rounding.
_FEWEST_CAPPED = 8
# _SAME_LOAD: share of the largest load; loads that differ by less are the same.
_SAME_LOAD = 1e-5
# _DIGITS: and by so many steps of their rounding.
_DIGITS = 1.5
# _CLEAR_RISE: a load rises by so many times that in fewer than half as many rows before it stops at a limit; the top of
# a parabola has fewer rows than the rise to it.
_CLEAR_RISE = 20.0
# _NO_SLOWER: the least share of its earlier slope that a load keeps to a limit; one that tends to a limit keeps 0.05.
_NO_SLOWER = 0.3
# _NOISY_FALLS: of the rows before a limit, so many lie below the row before; such noise never ends by itself.
_NOISY_FALLS = 3
# _COARSE: share of the largest load; with a coarser rounding a limit cannot be told from a maximum.
_COARSE = 0.01
# _LEAVES: share of what counts as the same; a load that falls by more over a third of the rows is smooth.
_LEAVES = 0.25
# _CUT_OFF: share of the largest load; a limit that cuts off less is not worth a word.
_CUT_OFF = 0.003
# _TO_CORNER: rows on each side of a corner; a hardening curve is straight over some of these numbers.
_TO_CORNER = (60, 30, 15)
# _BELOW_LEVEL: standard deviations of the noise below the largest load; rows below are before a noisy limit, and those
# above the second number within it.
_BELOW_LEVEL = (12.0, 8.0)
# _SHARP: squares of the noise by which a corner must fit better than a smooth curve of fourth degree.
_SHARP = 30.0
# _BY_CHANCE: mean squares of so many points exceed the noise's by this over the root of their number, hardly ever.
_BY_CHANCE = 5.0
# _LIKE_NOISE: the same for all rows, times the noise's square; along the level noise may be correlated a little.
_LIKE_NOISE = 1.5
# _HARDENS: share of the elastic slope; behind a steeper part a level is the material's yield plateau.
_HARDENS = 0.2
# _CUT_BY_NOISE: share of the largest load; a limit within noise that cuts off less is not told from a maximum.
_CUT_BY_NOISE = 0.01


def without_wild_cells(raw: RawCurve, ends: bool = True) -> RawCurve:
    """The same test without rows whose strain or stress cannot belong to their neighbours; its steps name them.

    Args:
      ends: the first and the last rows are judged, too; a relaxation begins with what looks like a wild cell.
    """
    known = np.isfinite(raw.strain)
    if not known.any():
        return raw
    rows = np.arange(len(known))
    # A load beside a blank strain is judged alone.
    strain = np.interp(rows, rows[known], raw.strain[known])
    found: dict[int, str] = {}
    for _ in range(_PASSES):
        left = np.array([row for row in rows if row not in found])
        if len(left) < 2 * _LONGEST_BLOCK + 4:
            break
        new = _wild_cells(strain[left], raw.stress_mpa[left], ends)
        if not new:
            break
        found |= {int(left[row]): axis for row, axis in new.items()}
    if not found:
        return raw
    named = [_said(raw, row, found[row]) for row in sorted(found)[:_NAMED]]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    rows_said = "row" if len(found) == 1 else "rows"
    step = f"left out {len(found)} {rows_said} with a wild cell, unlike its neighbours: {'; '.join(named)}{more}"
    kept = np.ones(len(raw.strain), np.bool_)
    kept[list(found)] = False
    return dataclasses.replace(rows_of(raw, kept), steps=(*raw.steps, step))


def rows_of(raw: RawCurve, kept: NDArray[np.bool_]) -> RawCurve:
    """Some of the rows of a test; `kept`: [points]."""
    time = None if raw.time is None else raw.time[kept]
    return dataclasses.replace(
        raw, strain=raw.strain[kept], stress_mpa=raw.stress_mpa[kept], time=time
    )


def _said(raw: RawCurve, row: int, axis: str) -> str:
    near = [i for i in (row - 1, row + 1) if 0 <= i < len(raw.strain)]
    if axis == "strain":
        beside = " and ".join(f"{raw.strain[i]:.4g}" for i in near)
        return f"point {row + 1}, strain {raw.strain[row]:.4g} beside {beside}"
    beside = " and ".join(f"{raw.stress_mpa[i]:.4g}" for i in near)
    return f"point {row + 1}, stress {raw.stress_mpa[row]:.4g} MPa beside {beside} at strain {raw.strain[row]:.4g}"


def _wild_cells(strain: Array, stress: Array, ends: bool) -> dict[int, str]:
    """Row -> `strain` or `stress`, of the cells that one look finds."""
    found: dict[int, str] = {}
    lows: list[int] = []
    level = float(np.quantile(np.abs(stress), 0.95))
    noise, side = noise_of(strain), np.sign(np.median(strain))
    for length in range(1, _LONGEST_BLOCK + 1):
        e = _Departures.of(strain, length)
        s = _Departures.of(stress, length)
        local = np.fmax(np.abs(s.before), np.abs(s.after))
        both = np.fmin(s.before, s.after) + np.fmax(s.before, s.after)
        loaded = np.where(local > 0.05 * level, both, np.median(stress))
        up = np.where(loaded < 0, -1.0, 1.0) * s.signed > 0
        least = np.where(
            up, np.fmax(_HIGH * local, 0.01 * level), np.fmax(_LOW * local, 0.05 * level)
        )
        e_wild = e.candidates(np.zeros(len(local)), _WILD_TIMES * noise)
        s_wild = s.candidates(least, _WILD_TIMES * noise_of(stress))
        at_end = e.one_sided | s.one_sided
        for i in np.flatnonzero(e_wild | s_wild).tolist():
            if any(row in found for row in range(i, i + length)) or (at_end[i] and not ends):
                continue
            # A strain that begins beyond the next ones would have to fall without a load.
            begins = bool(np.isnan(e.before[i]))
            begins_beyond = begins and bool(e.signed[i] > 0)
            begins_at_zero = begins and not begins_beyond and bool(strain[i] >= 0)
            doubtful = bool(at_end[i]) and not begins_beyond
            strain_is_wild = (
                bool(e_wild[i]) and not begins_at_zero and e.is_rough(i, strain, _STEPS, doubtful)
            )
            stress_is_wild = (
                bool(s_wild[i])
                and s.is_rough(i, stress, 0.0, bool(at_end[i]))
                and not _turns(strain, i, i + length, noise)
            )
            # Both together may be an unloading, unless the load rises.
            goes_back = (side * (strain[i : i + length] - e.before[i])).min() < -_WILD_TIMES * noise
            if not up[i] and (e_wild[i] or at_end[i] or goes_back):
                stress_is_wild = False
            if s_wild[i] and not up[i] and not begins:
                strain_is_wild = False
            if stress_is_wild and not up[i]:
                lows.extend(range(i, i + length))
            if strain_is_wild or stress_is_wild:
                axis = "strain" if strain_is_wild else "stress"
                found |= dict.fromkeys(range(i, i + length), axis)
    if len(lows) > max(_LONGEST_BLOCK, _MOST_LOW * len(strain)):
        found = {row: axis for row, axis in found.items() if row not in set(lows)}
    return found


def _turns(strain: Array, first: int, end: int, noise: float) -> bool:
    """Whether the strain goes back at these rows, where a peak of the stress is the test's own."""
    before, after = strain[max(first - _TURN, 0) : first], strain[end : end + _TURN]
    if not len(before) or not len(after):
        return False
    cell, before, after = strain[first:end].mean(), before.mean(), after.mean()
    way = abs(cell - before) + abs(after - cell)
    return bool(way > _WILD_TIMES * noise and abs(after - before) < 0.5 * way)


@dataclasses.dataclass(frozen=True)
class _Departures:
    """How far blocks of neighbouring cells leave the curve that the cells before and after them make.

    Attributes:
      length: cells of a block.
      signed: [blocks], the least departure of its cells; 0 where they do not all depart to one side.
      gap: [blocks], how badly the sides of the block fit together; 0 where there is one side.
      before, after: [blocks], the neighbours; NaN where there is none.
    """

    length: int
    signed: Array
    gap: Array
    before: Array
    after: Array

    @classmethod
    def of(cls, values: Array, length: int) -> "_Departures":
        """Departures of the blocks of so many cells that begin at each row."""
        missing = np.full(2, np.nan)
        padded = np.concatenate([missing, values, missing])
        blocks = len(values) - length + 1
        first, before = padded[:blocks], padded[1 : blocks + 1]
        after, last = (padded[2 + length + i : 2 + length + i + blocks] for i in (0, 1))
        step, next_step = before - first, last - after
        least, most = np.full(blocks, np.inf), np.full(blocks, -np.inf)
        for j in range(length):
            cell = values[j : j + blocks]
            ways = (
                *(first, before, before + (j + 1) * step),
                *(last, after, after - (length - j) * next_step),
            )
            high, low = np.fmax.reduce(ways), np.fmin.reduce(ways)
            departure = np.where(cell > high, cell - high, np.minimum(cell - low, 0.0))
            least, most = np.minimum(least, departure), np.maximum(most, departure)
        signed = np.where(least > 0, least, np.where(most < 0, most, 0.0))
        ahead, behind = before + (length + 1) * step, after - (length + 1) * next_step
        gap = np.fmin.reduce(
            (np.abs(after - before), np.abs(after - ahead), np.abs(before - behind))
        )
        return cls(length, signed, np.nan_to_num(gap), before, after)

    @property
    def one_sided(self) -> NDArray[np.bool_]:
        """Blocks at the ends of the record, [blocks]."""
        return np.isnan(self.before) | np.isnan(self.after)

    def candidates(self, least: Array, noise: float) -> NDArray[np.bool_]:
        """Blocks that depart by more than `least` [blocks] and the noise, and whose sides fit together: [blocks]."""
        size = np.abs(self.signed)
        return (size > np.fmax(least, noise)) & (self.gap <= _JOINED * size)

    def is_rough(self, i: int, values: Array, steps: float, at_end: bool) -> bool:
        """Whether a block departs by more than the roughness of the record around it."""
        low, high = max(i - _WINDOW, 0), i + self.length + _WINDOW
        sides = values[low:i], values[i + self.length : high]
        second = np.sort(np.abs(np.concatenate([np.diff(side, 2) for side in sides])))
        others = min(_OTHER_WILD, len(second) // 4)
        rough = _ROUGHNESS * float(second[-1 - others]) if len(second) else 0.0
        moved = np.abs(np.concatenate([np.diff(side) for side in sides]))
        moved = moved[moved > 0]
        usual = float(np.median(moved)) if len(moved) else 0.0
        around = np.abs(np.diff(np.delete(values, np.arange(i, i + self.length))))
        resolution = float(around[around > 0].min(initial=np.inf))
        least = [rough, steps * usual, _STEPS * resolution if np.isfinite(resolution) else 0.0]
        if at_end:
            # One side alone says little: no other step of this half of the record may come near.
            half = np.array_split(around, 2)[0 if i == 0 else 1]
            least += [_STEPS_AT_END * usual if steps else 0.0, _OVER_LARGEST * float(half.max())]
        return abs(float(self.signed[i])) > max(least)


@dataclasses.dataclass(frozen=True)
class StrainEnd:
    """Where the strain of a record stops being measured while the test goes on.

    Attributes:
      rows: so many rows at the start are measured.
      why: what happened then, in words.
      is_harmless: the load only falls from there on, as beyond its maximum: nothing but the elongation is lost.
    """

    rows: int
    why: str
    is_harmless: bool = False


def end_of_measured_strain(strain: Array, stress_mpa: Array) -> StrainEnd | None:
    """Finds an extensometer that was taken off, slipped, reached its limit or is blank; None where there is none.

    Args:
      strain: [points], -, in the order of measurement, NaN where it is blank; stress_mpa: [points], MPa.
    """
    found = None
    finite = np.flatnonzero(np.isfinite(strain))
    rows = int(finite[-1]) + 1 if len(finite) else 0
    if rows < len(strain):
        found = StrainEnd(rows, "the strain is blank")
    if rows < 3:
        return found
    e, s = strain[:rows], stress_mpa[:rows]
    loaded = int(np.argmax(np.abs(s) >= 0.5 * np.quantile(np.abs(s), 0.95)))
    e, s = (values * (np.sign(values[loaded]) or 1.0) for values in (e, s))
    fell = _fall_without_load(e, s)
    if fell is not None:
        found, e, s = fell, e[: fell.rows], s[: fell.rows]
    return _held(e, s) or found


def _fall_without_load(strain: Array, stress: Array) -> StrainEnd | None:
    """A strain that falls while the load stays: no specimen does that."""
    highest = np.maximum.accumulate(strain)
    at = np.maximum.accumulate(np.where(strain >= highest, np.arange(len(strain)), 0))
    fall = highest - strain
    least = np.maximum(_WILD_TIMES * noise_of(strain), _FALL * np.quantile(highest, 0.9))
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = (stress[at] - stress) / np.abs(stress[at])
        impossible = (
            (fall > least)
            & (stress[at] > _BROKEN * stress.max())
            & (lost < _LOAD_FOLLOWS * np.minimum(fall / highest, 1.0))
        )
    for first in np.flatnonzero(impossible):
        top = int(at[first])
        if not impossible[top + 1 : first + 2][-2:].all():
            continue
        # Cycles that come back to the load at another strain have been unloaded on the way.
        unloaded = 1.0 - float(stress[top : first + 1].min() / stress[top])
        if unloaded > _LOAD_FOLLOWS * min(float(fall[first] / highest[first]), 1.0):
            continue
        back = np.flatnonzero(strain[first:] >= highest[first])
        if len(back) and back[0] <= max(_DISTURBED * len(strain), 3):
            jump = strain[first + back[0]] - strain[first + back[0] - 1]
            steps = np.diff(strain[max(top - 2 * _WINDOW, 0) : top + 1])
            usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
            if jump > max(0.5 * fall[first : first + back[0]].max(), _BACK * usual):
                continue
        rest = float(np.median(strain[first:]))
        gone = rest < _NEAR_ZERO * highest[first]
        what = "the extensometer was taken off" if gone else "the extensometer slipped"
        return StrainEnd(
            top + 1,
            f"{what}: the strain falls from {highest[first]:.4g} to {strain[first]:.4g} and the load does not",
        )
    return None


def _held(strain: Array, stress: Array) -> StrainEnd | None:
    """A strain that stays where it is to the end, under a load that moves."""
    end = int(np.flatnonzero(stress >= _BROKEN * stress.max())[-1]) + 1
    for within in _HELD_WITHIN:
        found = _held_within(strain[:end], stress[:end], within, len(strain))
        if found is not None:
            return found
    return None


def _held_within(e: Array, s: Array, share: float, total: int) -> StrainEnd | None:
    """The same, for a strain that creeps within a share of its range.

    Args:
      e, s: strain and stress up to the fracture; total: rows of the record.
    """
    noise = noise_of(s)
    creep, noise_of_strain = share * float(np.quantile(e, 0.99) - e.min()), 6.0 * noise_of(e)
    within = max(noise_of_strain, creep)
    final = float(np.median(e[-_FEWEST_HELD:]))
    outside = np.flatnonzero(np.abs(e - final) > within)
    first = int(outside[-1]) + 1 if len(outside) else 0
    rows = len(e) - first
    if first < 2 or rows < _FEWEST_HELD or final < e.max() - max(noise_of_strain, 0.5 * creep):
        return None
    before = np.diff(e[max(first - 2 * _WINDOW, 0) : first])
    usual = float(np.median(before[before > 0])) if (before > 0).any() else 0.0
    if not usual:
        return None
    jump = abs(float(e[first] - e[first - 1]))
    jumped = jump > _STEPS_AT_END * usual
    # A jump to more than twice the strain is the number that stands for none.
    if not (jumped and jump > abs(float(e[first - 1]))):
        expected = 0.0 if jumped else within / usual
        moved = float(np.ptp(s[first:]))
        if rows < _SLOWER * expected or moved < max(_LOAD_MOVES * s.max(), 6.0 * noise):
            return None
    # From the first point within the tolerance on, the strain may still go on as before.
    while not jumped and first + 3 < len(e) and e[first + 3] - e[first] > 1.5 * usual:
        first += 1
    measured = first if jumped else first + 1
    least = s[max(first - 3, 0) : first + 1].max() + max(0.5 * _LOAD_MOVES * s.max(), 3.0 * noise)
    if s[first:].max() <= least and not jumped:
        if rows < _FEWEST_FALLING * total or share > min(_HELD_WITHIN):
            return None
        why = f"the strain stays at {final:.4g} while the load falls: it was held, or the neck lies elsewhere"
        return StrainEnd(measured, why, is_harmless=True)
    return StrainEnd(
        measured,
        f"the extensometer is at its limit or was held: the strain stays at {final:.4g} and the load does not",
    )


def jump_of_strain(strain: Array, stress_mpa: Array) -> tuple[float, float] | None:
    """Where a strain jumps ahead and how far, while the load goes on as if it had not; None where it does not.

    Behind missing rows the load is where the strain says. An extensometer that slips, or a channel that changes from it
    to the crosshead, leaves the load behind.

    Args:
      strain: [points], -, in the order of measurement; stress_mpa: [points], MPa.
    """
    steps, noise = np.diff(strain), noise_of(stress_mpa)
    found = []
    for i in np.flatnonzero(
        steps > max(_JUMP * float(np.median(steps)), _WILD_TIMES * noise_of(strain))
    ):
        sides = slice(max(i + 1 - _WINDOW, 0), i + 1), slice(i + 1, i + 1 + _WINDOW)
        if min(len(strain[side]) for side in sides) < _WINDOW:
            continue
        if not min(float(np.ptp(strain[side])) for side in sides) > 0.0:
            continue
        usual = max(float(np.median(np.diff(strain[side]))) for side in sides)
        if not 0.0 < _JUMP * usual < steps[i]:
            continue
        lines = [np.polyfit(strain[side] - strain[i], stress_mpa[side], 1) for side in sides]
        slope = min(float(line[0]) for line in lines)
        moved = float(lines[1][0] * steps[i] + lines[1][1] - lines[0][1])
        behind = slope * float(steps[i]) - moved
        error = noise * math.sqrt(8.0 / _WINDOW)
        if slope > 0.0 and behind > max(_CLEAR_JUMP * error, 0.5 * slope * float(steps[i])):
            found.append((float(strain[i]), float(steps[i]) - usual))
    # A material that deforms in bursts does so all the time.
    return found[0] if 0 < len(found) <= _FEW_JUMPS else None


def step_of_stress(strain: Array, stress_mpa: Array) -> tuple[float, float] | None:
    """Strain and height (MPa) of a step by which the stress leaves its curve for good; None where it has none.

    A test whose speed is changed in its middle does that, or another range of the load. Pauses come back to the curve,
    and serrations are many.

    Args:
      strain: [points], -, in the order of measurement; stress_mpa: [points], MPa.
    """
    sides, beside = (_WINDOW, 2 * _WINDOW), 2 * _WINDOW + 2
    line = elastic_part(strain, stress_mpa)
    if line is None or len(strain) < 2 * beside:
        return None
    steps, moved, largest = np.diff(stress_mpa), np.diff(strain), float(stress_mpa.max())
    least, most = (share * largest for share in _STEP_OF_STRESS)
    found = []
    for i in np.flatnonzero(np.abs(steps) > max(_IN_ONE_ROW * least, 4.0 * noise_of(stress_mpa))):
        near = np.r_[i - beside : i - 2, i + 3 : i + 3 + 2 * _WINDOW]
        if near[0] < 0 or near[-1] >= len(steps) or not (moved[near].sum() > 0.0 <= moved[i]):
            continue
        if moved[i] > 2.0 * np.median(moved[near]):
            continue
        heights, slopes, off, ranges = [], [], [], []
        for rows in sides:
            ends = []
            for side in (slice(i - 1 - rows, i - 1), slice(i + 3, i + 3 + rows)):
                x, y = strain[side] - strain[i], stress_mpa[side]
                if not np.ptp(x) > 0.0:
                    break
                fitted = np.polyfit(x, y, 1)
                ends.append(float(np.polyval(fitted, 0.5 * moved[i])))
                if rows == _WINDOW:
                    slopes.append(float(fitted[0]))
                    off.append(float(np.std(y - np.polyval(fitted, x))))
                    ranges.append(float(np.ptp(x)))
            heights.append(ends[1] - ends[0] if len(ends) == 2 else 0.0)
        height = heights[0]
        if (
            least < abs(height) < most
            and (height > 0.0 or strain[i] > _LATEST_YIELD)
            and abs(heights[1] - height) < _SPREAD * abs(height)
            and abs(steps[i])
            > max(_IN_ONE_ROW * abs(height), _BEYOND_ROWS * np.abs(steps[near]).max())
            and max(slopes) < line.slope + line.slope_error * _CLEAR_JUMP
            and max(off) < _SPREAD * abs(height)
            and max(ranges) < 3.0 * min(ranges)
        ):
            found.append((float(strain[i]), height))
    return found[0] if 0 < len(found) <= _FEW_JUMPS else None


def load_after_fracture(load: Array) -> float | None:
    """The load [points] at which a record comes to rest behind a fracture, where that is not zero; else None."""
    s = load * (np.sign(load[np.abs(load).argmax()]) or 1.0)
    largest = float(s.max())
    last = int(np.flatnonzero(s >= _BROKEN * largest)[-1])
    broken = np.flatnonzero(np.abs(s[last + 1 :]) < _BROKEN / 3.0 * largest)
    if not len(broken) or broken[0] >= _AT_ONCE:
        return None
    rest = s[last + 1 + int(broken[0]) :]
    if len(rest) < _FEWEST_AFTER or np.abs(rest).max() > _BROKEN / 3.0 * largest:
        return None
    noise = max(noise_of(s[: last + 1]), float(np.std(rest)))
    level = float(np.mean(rest))
    is_clear = abs(level) > max(_RETURNS * largest, _CLEAR_JUMP * noise / math.sqrt(len(rest)))
    return level if is_clear and np.ptp(rest) < _NOISE_TIMES * noise else None


def start_of_capped_load(strain: Array, load: Array) -> int | None:
    """The first row at which the load stays exactly at its largest while the strain goes on; None where it does not.

    A load cell or an amplifier at its limit does that. A load that is largest where a specimen necks comes there, and
    leaves, smoothly; behind a plateau at a yield point the load rises further.

    Args:
      strain: [points], -, in the order of measurement; load: [points], over the first area, MPa; both in any sign.
    """
    if not len(load):
        return None
    e, s = (values * (np.sign(values[np.abs(load).argmax()]) or 1.0) for values in (strain, load))
    largest = float(s.max())
    rounding = resolution_of(s)
    if rounding > _COARSE * largest:
        return None
    within = max(_SAME_LOAD * largest, _DIGITS * rounding)
    capped = np.concatenate([[False], s >= largest - within, [False]])
    edges = np.flatnonzero(np.diff(capped.astype(int)))
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    first, end = int(starts[longest]), int(ends[longest])
    rows = end - first
    if rows < _FEWEST_CAPPED or first == 0:
        return None
    moved, usual = float(np.ptp(e[first:end])), np.diff(e[max(first - _WINDOW, 0) : first + 1])
    if not moved > max(0.5 * rows * float(np.median(usual)), 3.0 * noise_of(e)):
        return None
    third = max(rows // 3, 3)
    if s[first + third : end - third].mean() - s[end - third : end].mean() > _LEAVES * within:
        return None
    before = s[:first]
    falls = np.count_nonzero(np.diff(before[-_WINDOW:]) < -within) >= _NOISY_FALLS
    # The last rows in which it rises clearly, and as many rows before these.
    low = np.flatnonzero(before <= largest - max(_CLEAR_RISE * within, 3.0 * noise_of(before)))
    last = first - int(low[-1]) if len(low) else first
    now, at = s[first] - s[first - last], max(first - 2 * last, 0)
    earlier = (s[first - last] - s[at]) * last / max(first - last - at, 1)
    stops = rows >= 2 * last and (last == 1 or now >= _NO_SLOWER * earlier)
    cut = now / last * rows > _CUT_OFF * largest
    # Noise touches a limit before the load stays there.
    return int(starts[0]) if cut and (stops or falls) else None


def start_of_noisy_cap(strain: Array, load: Array) -> int | None:
    """The same, where noise comes in behind the limit: a level behind a corner in the hardening; None without one."""
    if len(load) < 3 * min(_TO_CORNER):
        return None
    e, s = (values * (np.sign(values[np.abs(load).argmax()]) or 1.0) for values in (strain, load))
    largest, noise = float(s.max()), noise_of(s)
    below, within = (largest - times * noise for times in _BELOW_LEVEL)
    end = int(np.flatnonzero(s >= within)[-1]) + 1
    first = int(np.flatnonzero(s[:end] < below)[-1:].sum())
    line = elastic_part(e[:first], s[:first]) if first >= min(_TO_CORNER) else None
    if line is None or noise == 0.0:
        return None
    for rows in _TO_CORNER:
        if rows > min(first, (end - first) // 2):
            continue
        x, y = e[first - rows : end], s[first - rows : end]
        if not np.ptp(x) > 0.0:
            continue
        # Only rows before a corner have a part in its line.
        corners, centred = range(first - rows // 2, first + rows // 2), y - y.mean()
        inside = x < e[corners.start : corners.stop].max()
        fits = {}
        for corner in corners:
            bent = np.minimum(x[inside] - e[corner], 0.0)
            along = float(bent @ centred[inside])
            slope = along / max(float(bent @ bent - bent.sum() ** 2 / len(x)), 1e-300)
            fits[corner] = slope * along, slope
        corner = max(fits, key=lambda row: fits[row])
        slope = fits[corner][1]
        bent = np.minimum(x - e[corner], 0.0)
        off = (centred - slope * (bent - bent.mean())) / noise
        unit = (x - x.mean()) / np.ptp(x)
        smooth = (y - np.polyval(np.polyfit(unit, y, 4), unit)) / noise
        is_sharp = smooth @ smooth - off @ off > _SHARP
        near, whole = float(np.mean(off[: 2 * rows] ** 2)), float(np.mean(off**2))
        is_noise = near < 1.0 + _BY_CHANCE / math.sqrt(rows) and whole < _LIKE_NOISE
        cut = slope * float(e[end - 1] - e[corner]) > _CUT_BY_NOISE * largest
        if is_sharp and is_noise and cut and slope < _HARDENS * line.slope:
            return corner
    return None


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
# _HARDLY_LOADED: share of the largest stress; behind a larger first one a strain is the specimen's.
_HARDLY_LOADED = 0.1
# _FAR_OFFSET: share of the strain's range; a first strain beyond it was not zeroed, whatever the elastic part says.
_FAR_OFFSET = 0.02
# _CLEAR_OFFSET: share of the elastic strain; a smaller offset hardly moves a modulus.
_CLEAR_OFFSET = 0.1
# _NOISE_OF_OFFSET: standard deviations of the first point's noise; a smaller offset may be noise.
_NOISE_OF_OFFSET = 8.0
# _CLEAR_TIMES: standard errors by which the origin of the elastic part must differ from zero.
_CLEAR_TIMES = 4.0
# _SLACK_ERRORS: standard errors by which the origin of the elastic part lies behind the strain's zero, where slack may.
_SLACK_ERRORS = 2.0
# _MATTERS: strain from which true and engineering values differ by more than a test's errors.
_MATTERS = 0.05
# _LONGEST_TENSION: strain that no metal reaches in tension; a larger one has another unit.
_LONGEST_TENSION = 2.0
# _LEAST_LOAD: share of the largest stress; a smaller load at the start changes no answer.
_LEAST_LOAD = 0.01
# _LOADED_ONCE: share of the largest stress, behind which a load near zero is an unloading's.
_LOADED_ONCE = 0.3
# _MOST_LOAD: share of the largest stress; a record that begins higher may tell a plastic strain.
_MOST_LOAD = 0.3
# _NOISE_OF_LOAD: standard deviations of the first point's noise; a smaller load at the start may be noise.
_NOISE_OF_LOAD = 3.0
# _FEW_CELLS: so many cells of a column may be wild, and say nothing of its sign.
_FEW_CELLS = 3
# Larger numbers are no strain in any unit and no stress in Pa; smaller ones are zero.
_LARGEST, _SMALLEST = 1e12, 1e-20


@dataclasses.dataclass(frozen=True)
class CleaningOptions:
    """The steps that are taken. Checked on creation, InputError names the flag.

    Attributes:
      toe: `auto` takes off a toe, an offset of the strain and a preload where there is one; `off` never.
      cut_after_failure: cuts where the load drops for good; an engineering curve of a metal at its maximum load.
      envelope: makes the strain of noisy curves rise; off drops every point whose strain does not exceed all before.
      window: `LOW,HIGH`, or a pair, strains of the cleaned curve between which points count; either side may be empty
        or None.
    """

    toe: str = "auto"
    cut_after_failure: bool = True
    envelope: bool = True
    window: str | tuple[float | None, float | None] | None = None

    def __post_init__(self) -> None:
        self.bounds()
        if self.toe not in ("auto", "off"):
            raise InputError(f"--toe is '{self.toe}'; give auto or off")

    def bounds(self) -> tuple[float | None, float | None]:
        """The ends of the window in plain strain, None for one that is open; InputError where they make no sense."""
        if self.window is None:
            return None, None
        text = self.window
        sides = map(str.strip, text.split(",")) if isinstance(text, str) else text
        try:
            low, high = (None if side in (None, "") else float(side) for side in sides)
        except (TypeError, ValueError):
            low = high = math.nan
        if (low is None and high is None) or not (low or 0.0) < (
            math.inf if high is None else high
        ):
            raise InputError(
                f"--window is '{self.window}'; give LOW,HIGH in plain strain, e.g. 0.002,0.05 (2 % is 0.02); one side "
                "may be left empty"
            )
        return low, high


def keep(curve: MeasuredTest, kept: np.ndarray, step: str, bore: bool = False) -> None:
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
        curve.time = None if curve.time is None else curve.time[kept]
        curve.steps.append(f"{step} ({dropped} point{'s' if dropped > 1 else ''} dropped)")


def _within_numbers(raw: RawCurve) -> RawCurve:
    """The test with far smaller numbers as zero; InputError for numbers that no unit makes a strain or a stress.

    Beyond, squares and quotients would leave what a computer can hold.
    """
    found = {}
    for axis, values in (("strain", raw.strain), ("stress", raw.stress_mpa)):
        size = float(np.nanmax(np.abs(values), initial=0.0))
        if not size <= _LARGEST:
            raise InputError(
                f"its {axis} goes to {size:.3g}, which no unit makes a {axis}; is --{axis}_column right?"
            )
        found[axis] = np.where(np.abs(values) < _SMALLEST, 0.0, values)
    return dataclasses.replace(raw, strain=found["strain"], stress_mpa=found["stress"])


def turn_negative(curve: MeasuredTest) -> None:
    """Shear to the other side is the same test, and compression has either sign in files: turns negative values."""
    for name in ("strain", "stress_mpa"):
        values = getattr(curve, name)
        if is_negative(values):
            setattr(curve, name, -values)
            curve.steps.append(f"changed the sign of the {name.partition('_')[0]}")


def is_negative(values: Array) -> bool:
    """Whether values [points] are negative, but for noise, for what comes after a test, and for a few wild cells."""
    known = np.sort(values[np.isfinite(values)])
    # A number that stands three times and more for no value, such as -999, is none.
    if (known == known[:1]).sum() >= _FEW_CELLS:
        known = known[known > known[0]]
    few = _FEW_CELLS if len(known) > 10 * _FEW_CELLS else 0
    known = known[few : len(known) - few]
    return bool(known.min(initial=0.0) < -5 * known.max(initial=0.0))


def check_rises(curve: MeasuredTest) -> None:
    """Raises InputError for too few points and for strain or stress that never rises."""
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"it has {len(curve.strain)} points; a curve needs at least {MINIMUM_POINTS}"
        )
    if curve.strain.max() <= 0 or curve.stress_mpa.max() <= 0:
        raise InputError("strain and stress never rise above zero; are the columns the right ones?")
    if np.ptp(curve.stress_mpa) == 0:
        raise InputError("its stress is the same at every point (is --stress_column right?)")


def cut_after_failure(curve: MeasuredTest) -> None:
    """Cuts behind the last point that still bears nearly the maximum stress."""
    standing = np.flatnonzero(curve.stress_mpa >= FAILED_BELOW * curve.stress_mpa.max())
    keep(curve, np.arange(len(curve.strain)) <= standing[-1], "cut after failure, a drop of load")


def cut_to_window(curve: MeasuredTest, low: float | None, high: float | None) -> None:
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


def make_strain_rise(curve: MeasuredTest, envelope: bool) -> None:
    """Drops unloadings, and makes the noise of the strain monotonic; InputError where strain does not rise.

    Noise is removed by the nearest rising sequence in the sense of least squares (isotonic regression); points that
    become equal are replaced by their mean. The running maximum alone would follow the noise's upper side.
    """
    _start_where_strain_does(curve)
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


def _start_where_strain_does(curve: MeasuredTest) -> None:
    """Drops rows at the start in which the load rises at one strain, as where it was held at zero under a preload.

    In coarse steps of the strain the load rises at other strains, too.
    """
    strain, stress = curve.strain, curve.stress_mpa
    first = int((strain != strain[0]).argmax()) - 1
    if first < 1:
        return
    level = strain[first:-1] == strain[first + 1 :]
    later = float(np.diff(stress)[first:][level].max(initial=0.0))
    rise = float(stress[first] - stress[0])
    clear = max(_LEAST_LOAD * float(stress.max()), _NOISE_TIMES * noise_of(stress))
    if rise > clear and rise > _OVER_LARGEST * first * later:
        kept = np.arange(len(strain)) >= first
        keep(curve, kept, f"dropped rows before the strain begins, at {stress[first]:.3g} MPa")


def _unloadings(curve: MeasuredTest) -> tuple[np.ndarray, np.ndarray]:
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


def _average_noise(curve: MeasuredTest) -> None:
    moved = np.diff(curve.strain)
    if len(curve.strain) < 2 or (moved > 0).all():
        return
    total = len(curve.strain)
    fitted = _nearest_rising(curve.strain)
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
        fitted = _nearest_rising(curve.strain)
        curve.strain_error = StrainError(noise / math.sqrt(rows))
    # Means of equal strains differ by the computer's rounding.
    starts = np.flatnonzero(np.diff(fitted, prepend=-np.inf) > _SAME_STRAIN * np.abs(fitted).max())
    _average(curve, starts)
    curve.strain = fitted[starts]
    curve.steps.append(f"monotonic envelope of noisy strain: {total} points became {len(starts)}")


def _nearest_rising(values: Array) -> Array:
    """The sequence that never falls and is nearest to values [points] by least squares.

    Neighbours that fall are pooled in their mean: R. E. Barlow et al., Statistical Inference under Order Restrictions
    (1972), section 1.2.
    """
    means: list[float] = []
    counts: list[int] = []
    for mean in values.tolist():
        count = 1
        while means and means[-1] >= mean:
            pooled = counts[-1] + count
            mean = (counts.pop() * means.pop() + count * mean) / pooled
            count = pooled
        means.append(mean)
        counts.append(count)
    return np.repeat(means, counts)


def _average(curve: MeasuredTest, starts: np.ndarray) -> None:
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


def correct_start(curve: MeasuredTest, toe: bool) -> None:
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
    if share > _MOST_LOAD and curve.strain[0] < 1e-3 * curve.strain[-1]:
        curve.warnings.append(
            Caveat(
                "stress without strain",
                f"the curve begins at {100 * share:.0f} % of its maximum stress without strain",
                "if this is plastic strain, give the total strain",
            )
        )


def _take_off_offset(curve: MeasuredTest) -> None:
    """A strain that was not zeroed: the first point, drawn back along the elastic part, lies far from zero."""
    strain, stress = float(curve.strain[0]), float(curve.stress_mpa[0])
    largest = float(curve.stress_mpa.max())
    noise = noise_of_load = noise_of(curve.stress_mpa)
    if abs(stress) >= _HARDLY_LOADED * largest + 2.0 * noise:
        return
    line = elastic_part(curve.strain, curve.stress_mpa)
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
    is_of_strain = line is not None and abs(strain) > 0.5 * abs(offset)
    is_loaded = abs(stress) >= _UNLOADED * largest + 2.0 * noise_of_load
    if abs(offset) <= least or (is_loaded and not is_of_strain):
        return
    curve.strain = curve.strain - offset
    curve.steps.append(f"took {offset:.4g} off the strain, its reading before the load")
    is_clear = abs(stress) > max(_RETURNS * largest, _CLEAR_TIMES * noise_of_load)
    if line is None or is_of_strain or not is_clear:
        preload = abs(offset) * line.slope if line is not None else np.inf
        may_be = f"; if the load was set to zero under a preload, every stress is {preload:.3g} MPa too low"
        curve.warnings.append(
            Caveat(
                "strain not zeroed",
                f"its strain reads {offset:.3g} before the load, which was taken off"
                f"{may_be if preload < _MOST_LOAD * largest and offset > 0 else ''}",
                "if the specimen was really strained before, say --toe=off",
            )
        )
    if is_clear:
        _doubt_load_at_start(curve, stress, offset, strain)


def _doubt_load_at_start(
    curve: MeasuredTest, stress: float, shift: float, strain: float = 0.0
) -> None:
    """Warns of a load (MPa) at the first point that was taken for a real one, which shifted the strain."""
    side = "added to" if shift < 0 else "taken off"
    zero = "was set to zero" if abs(strain) < abs(shift) / 2 else f"reads {strain:.3g}"
    curve.load_in_doubt = abs(stress) + 2.0 * noise_of(curve.stress_mpa)
    curve.warnings.append(
        Caveat(
            "load at zero strain",
            f"the load is {stress:.3g} MPa at the start, where the strain {zero}; it was taken for a real load, and "
            f"{abs(shift):.3g} was {side} the strain",
            "the 95 % intervals hold both readings: if the load was not zeroed, every stress is "
            f"{abs(stress):.3g} MPa too {'high' if stress > 0 else 'low'}",
        )
    )


def _take_off_toe(curve: MeasuredTest, wanted: bool) -> None:
    line = elastic_line(curve.strain, curve.stress_mpa)
    found = toe_shift(curve.strain, curve.stress_mpa, line, curve.strain_error.deviation)
    line = line or steepest_chord(curve.strain, curve.stress_mpa)
    if line is None:
        return
    if not found.kind:
        # What is too little for a toe beside the noise of the strain may be slack all the same.
        if wanted and line.origin > _SLACK_ERRORS * line.origin_error:
            error = curve.strain_error
            shift = math.hypot(error.shift, line.origin)
            curve.strain_error = dataclasses.replace(error, shift=shift)
        _warn_of_a_load_at_the_start(curve, line)
        return
    start, shift, first = line.start, found.shift, float(curve.stress_mpa[0])
    slope = f"its elastic part ({line.slope:.4g} MPa) drawn on to zero stress"
    if found.kind == "toe":
        curve.toe, curve.toe_removed = found.size, wanted and found.is_sure
        curve.slope_of_toe = line.slope_before, line.slope_before_error
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
        curve.steps.append(f"took {shift:.3g} off the strain for its toe: {slope}")
        # The line stands for the toe: from zero to the beginning of the elastic part.
        keep(curve, curve.strain >= max(start - shift, 0.0), "dropped the points of the toe")
    elif wanted:
        curve.strain = curve.strain - shift
        side = "added to" if shift < 0 else "taken off"
        curve.steps.append(f"{abs(shift):.3g} {side} the strain for the load at its start: {slope}")
        _doubt_load_at_start(curve, first, shift)


def _warn_of_a_load_at_the_start(curve: MeasuredTest, line: ElasticLine) -> None:
    """Warns of a first load that the strain does not know of, where the elastic part is too unsure to shift it."""
    strain, stress = curve.strain, curve.stress_mpa
    steepest = line.slope + 2.0 * line.slope_error
    first = float(stress[0])
    excess = first - steepest * float(strain[0])
    of_strain = max(noise_of(strain, orders=(2, 3, 4, 5)), curve.strain_error.deviation)
    noise = float(np.hypot(noise_of(stress), steepest * of_strain))
    is_clear = excess > max(_LEAST_LOAD * float(stress.max()), _NOISE_OF_LOAD * noise)
    # A chord that is not steep says nothing of a first point beyond the elastic part.
    has_no_strain = float(strain[0]) < min(0.3 * first / steepest, first / STIFFEST)
    goes_on = float(stress[1] - line.slope * strain[1]) > 0.5 * excess
    if not (is_clear and has_no_strain and goes_on and first < _MOST_LOAD * float(stress.max())):
        return
    curve.load_in_doubt = excess + 2.0 * noise
    curve.warnings.append(
        Caveat(
            "load at zero strain",
            f"the load is {first:.3g} MPa at the start, {excess:.3g} MPa more than its strain of {strain[0]:.2g} "
            "tells, and was left in the stress",
            "the 95 % intervals hold both readings: if the load was not zeroed, every stress is "
            f"{excess:.3g} MPa too high",
        )
    )


# --------------------------------------------------------------------------------------------------
# The part of a record that a law is identified from: its first loading, up to where a specimen necks.


# So many unloadings in tension belong to a tension test; more are cycles where they make up most of the record.
_MOST_LOOPS = 5
# _MOST_OF_RECORD: share of the points; with so many in the first loading, the record is that loading.
_MOST_OF_RECORD = 0.5
# A window may end so far beyond the first loading's largest strain (toe and conversion come later).
_BEYOND_LOADING = 1.02
# A true curve whose load falls by no more than this share is left whole: such a record ends about at its maximum load.
_CLEAR_FALL = 0.02
# No specimen strains so far without a neck: the strain is in percent, or the material is none of metal.
_LONGEST_TRUE_STRAIN = 1.5
# _FALLS: standard deviations of running means; a load that falls by less has not passed its maximum.
_FALLS = 8.0
_NOT_NECKING = (
    "if it is compression or torsion, or was corrected for necking, say --nocut_after_failure"
)
_NOT_TRUE = "if the stress is an engineering one, say --stress_measure=engineering"


def take_first_loading(curve: MeasuredTest, high: float | None, shear: bool = False) -> None:
    """Cuts a cyclic record to its first loading where that is wanted or most of it; other records stay.

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


def _refusal(curve: MeasuredTest, turns: list[int], first_turn: int, is_loading: bool) -> str:
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


def cut_at_maximum_load(
    curve: MeasuredTest, measures: tuple[str, str], assumed: bool = False
) -> None:
    """Cuts a tension test where the specimen necks: beyond, the strain is no longer the same along it.

    With true stress the load has its maximum where stress over stretch, the engineering stress, has it (Considère).

    Args:
      measures: of its strain and its stress, `engineering` or `true`.
      assumed: its stress is taken as true because its strain is.
    """
    advice, load = "", curve.stress_mpa
    if measures[1] == "true":
        if curve.strain.max() > _LONGEST_TRUE_STRAIN:
            cut_after_failure(curve)
            return
        advice = f"{_NOT_TRUE}; {_NOT_NECKING}" if assumed else _NOT_NECKING
        load = engineering_stress(curve.strain, curve.stress_mpa, measures)
        last = index_of_maximum_load(curve.strain, load, running_mean(load))
    else:
        last = index_of_maximum_load(curve.strain, load, load)
    later = running_mean(load)[last:]
    if measures[1] == "true" and later.min() > (1.0 - _CLEAR_FALL) * later[0]:
        return
    # In coarse steps of the load a maximum is known where the load has fallen by more than one, and in noise likewise.
    half, smooth = len(load) // 200, running_mean(load)
    least = smooth[last : len(load) - half].min(initial=np.inf)
    in_noise = least > smooth.max() - min(
        _FALLS * noise_of(load) / math.sqrt(2 * half + 1), _CLEAR_FALL * float(load[last])
    )
    if in_noise or load[last:].min() > load[last] - 1.5 * resolution_of(load):
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


# --------------------------------------------------------------------------------------------------
# A measured curve made into what a law and its network expect: cleaned, converted, on the law's own points.
#
# Every step is recorded in words. Nothing is smoothed but by averaging points that share a grid cell or a noisy
# strain.


# A curve may leave the trained strains behind after a few points: it is answered for, with warnings.
FEWEST_IN_RANGE = 4
# _LARGEST_STRAIN: in rows without a measured strain, a larger number stands for none.
_LARGEST_STRAIN = 2.0
# _BEARS: share of the largest stress; rows that bear less come after a fracture.
_BEARS = 0.5
# _REST: share of the largest value; a strain and a stress below it are those before a test.
_REST = 0.02


def wanted_measures(target: CurveTarget) -> dict[str, str | None]:
    """Axis -> measure of the columns that the law is identified from; a law of shear takes the engineering ones."""
    shear = target.strain_measure == "engineering shear"
    return {
        "strain": "engineering" if shear else target.strain_measure,
        "stress": "engineering" if shear else target.stress_measure,
        **({"shear": "engineering"} if shear else {}),
    }


# _COMPRESSION_TEST: names of a test of compression; other lines that speak of it leave open which test it is.
_COMPRESSION_TEST = re.compile(
    r"(druck|stauch)(versuch|prüfung|probe)|(compress(ion|ive)|upsetting) test|test in compression|圧縮試験|压缩试验"
    r"|(type|method|mode|art)\W+(compress|druck|stauch)|(essai|ensayo|prova|ensaio) (de|di|à|a) comp?ress",
    re.IGNORECASE,
)


def clean(
    raw: RawCurve, target: CurveTarget, options: CleaningOptions | None = None
) -> MeasuredTest:
    """Cleans a curve as it was measured; raises InputError for what cannot be a curve."""
    options = options or CleaningOptions()
    raw = _within_numbers(raw)
    shear = target.strain_measure == "engineering shear"
    tension = not (shear or (target.law is not None and target.law.compression))
    raw, compressed = _turned(raw) if tension else (raw, False)
    compressed_by_head = bool(
        tension and not compressed and _COMPRESSION_TEST.search(raw.compression_in_head)
    )
    compressed = compressed or compressed_by_head
    tension = tension and not compressed
    raw = _in_order(_from_rest(raw))
    beyond: Array = np.empty(0)
    unmeasured: Caveat | None = None
    capped: Caveat | None = None
    is_looked_at = target.strain_measure is not None and bool(len(raw.strain))
    if is_looked_at:
        travels = _goes_on_as_a_travel(raw)
        raw = without_wild_cells(raw)
        load = raw.stress_mpa
        raw, beyond, unmeasured = _measured_part(raw)
        raw, beyond, capped = _below_the_cap(raw, beyond)
    curve = MeasuredTest.of(raw)
    if is_looked_at:
        curve.warnings.extend(travels)
        _warn_of_a_jump(curve)
        _warn_of_a_drift(curve, load)
        if tension or compressed:
            _warn_of_a_load_below_zero(curve, load)
        curve.strain_error = StrainError.of_rounding(raw.strain)
    curve.warnings.extend(caveat for caveat in (unmeasured, capped) if caveat is not None)
    if not tension and len(curve.strain):
        turn_negative(curve)
    check_rises(curve)
    measures = measures_of(raw)
    low, high = options.bounds()
    if target.strain_measure is not None:
        take_first_loading(curve, high, shear)
    if target.strain_measure is not None and tension and not raw.is_shear:
        curve.tensile = _tensile(curve, beyond, measures, options)
        if curve.tensile is not None and capped is not None:
            curve.tensile = with_capped_load(curve.tensile, float(beyond[0]))
    if options.cut_after_failure and target.strain_measure is not None:
        if shear:
            cut_after_failure(curve)
        elif tension and not (
            capped or (unmeasured and _load_rises_beyond(curve, beyond, measures))
        ):
            cut_at_maximum_load(curve, measures, raw.stress_measure is None)
    make_strain_rise(curve, options.envelope)
    correct_start(curve, options.toe == "auto")
    if shear:
        to_engineering_shear(curve, raw)
    elif target.strain_measure is not None:
        to_measures_of_the_law(curve, raw, measures, target, compressed)
    if raw.compression_in_head and (tension or compressed_by_head):
        taken = "compression" if compressed_by_head else "tension"
        curve.warnings.append(
            Caveat(
                "compression?",
                f"it says '{raw.compression_in_head}', and its positive strain and stress were taken for {taken}",
                "if they are not, take the line out"
                if compressed_by_head
                else "if they are compression, call the columns so (Compressive strain) or give negative numbers",
            )
        )
    if raw.bending_in_head:
        curve.warnings.append(
            Caveat(
                "bending?",
                f"it says '{raw.bending_in_head}', and strain and stress were taken as the same over the section",
                "no law here is of bending; take the line out if the test was none",
                blocks=True,
            )
        )
    if target.strain_measure is not None:
        curve.warnings.extend(_of_a_travel(curve, raw))
    doubt = check_magnitude(curve, target, raw) if len(curve.strain) else ""
    if any(caveat.kind == RUBBER for caveat in curve.warnings):
        curve.tensile = None
    cut_to_window(curve, low, high)
    _cut_to_trained_stress(curve, target, doubt)
    _cut_to_trained_range(curve, target, doubt)
    curve.steps.append(
        f"put it on {target.num_points} points: means where measured points are dense, lines between"
    )
    return curve


def _measured_part(raw: RawCurve) -> tuple[RawCurve, Array, Caveat | None]:
    """The rows whose strain was measured, the engineering stress of the others, and what to say of them."""
    found = end_of_measured_strain(raw.strain, raw.stress_mpa)
    if found is None:
        return raw, np.empty(0), None
    rows, total = found.rows, len(raw.strain)
    beyond = raw.stress_mpa[rows:]
    said = f"{found.why}, from point {rows + 1} of {total} on"
    if rows < MINIMUM_POINTS:
        raise InputError(
            f"{said}: {rows} points have a strain, and a curve needs at least {MINIMUM_POINTS}"
        )
    measured = rows_of(raw, np.arange(total) < rows)
    largest = float(np.abs(measured.stress_mpa).max())
    step = f"left out the rows without a measured strain: {said} ({total - rows} points dropped)"
    measured = dataclasses.replace(measured, steps=(*raw.steps, step))
    if np.abs(beyond).max() < _BEARS * largest:
        return measured, np.empty(0), None
    stress, strain, measures = np.abs(beyond), raw.strain[rows:], measures_of(raw)
    if measures[1] == "true":
        # A number that stands for no strain gives no engineering stress.
        with np.errstate(invalid="ignore"):
            known = (strain > -0.5) & (strain < _LARGEST_STRAIN)
        stress = np.where(known, engineering_stress(strain, stress, measures), np.nan)
    if found.is_harmless:
        return measured, stress, None
    caveat = Caveat(
        "strain not measured to the end",
        f"{said} ({measured.stress_mpa[-1]:.4g} to {beyond[np.abs(beyond).argmax()]:.4g} MPa); the parameters come "
        f"from the points before, to strain {np.nanmax(np.abs(measured.strain)):.3g}",
        "they say nothing of larger strains",
    )
    return measured, stress, caveat


def _below_the_cap(raw: RawCurve, beyond: Array) -> tuple[RawCurve, Array, Caveat | None]:
    """The rows before the load stays at a limit, the load of the others, and what to say of them.

    Args:
      beyond: engineering stress of the rows behind the measured strain, MPa.

    Returns:
      The same where the load does not; else `beyond` is the limit alone.
    """
    load = np.abs(engineering_stress(raw.strain, raw.stress_mpa, measures_of(raw)))
    if not len(load):
        return raw, beyond, None
    start, how = start_of_capped_load(raw.strain, load), "to the last digit"
    cap, total = float(load.max()), len(raw.strain)
    if start is None and (start := start_of_noisy_cap(raw.strain, load)) is not None:
        level = load[start : start + 2 * min(_TO_CORNER)]
        cap, how = float(np.median(level)), "but for noise"
    if start is None:
        known = np.concatenate([load, beyond[np.isfinite(beyond)]])
        later = (
            start_of_capped_load(np.arange(len(known), dtype=float), known) if len(beyond) else None
        )
        if later is None or later <= len(load):
            return raw, beyond, None
        start, cap = len(load), float(known.max())
    said = f"the load stays at {cap:.5g} MPa over the first area, {how}"
    if start < total:
        said += (
            f", from strain {abs(float(raw.strain[start])):.3g} on (point {start + 1} of {total})"
        )
    said += ": the load cell or its amplifier is at its limit"
    if start < MINIMUM_POINTS:
        raise InputError(
            f"{said}; {start} points lie before, and a curve needs at least {MINIMUM_POINTS}"
        )
    caveat = Caveat(
        "load at its limit",
        f"{said}; only the points before were used, and Rm is {cap:.4g} MPa at least",
        "measure with a larger range of the load",
    )
    before = rows_of(raw, np.arange(total) < start)
    if start < total:
        step = f"left out the rows with a load at its limit ({total - start} points dropped)"
        before = dataclasses.replace(before, steps=(*raw.steps, step))
    return before, np.array([cap]), caveat


def _warn_of_a_drift(curve: MeasuredTest, load: Array) -> None:
    """Warns where the load [rows, MPa] of the whole record does not come back to zero behind a fracture."""
    level = load_after_fracture(load)
    if level is not None:
        share = 100.0 * abs(level) / float(np.abs(load).max())
        curve.warnings.append(
            Caveat(
                "load not zero after fracture",
                f"the load reads {level:.3g} MPa behind the fracture, {share:.2g} % of the largest: its zero was "
                "wrong or drifted during the test",
                "stresses, and with them parameters of hardening, may be off by as much, which the intervals leave "
                "out; zero the load, and take its drift off",
            )
        )


def _warn_of_a_load_below_zero(curve: MeasuredTest, load: Array) -> None:
    """Warns where unloadings go a little below zero [rows, MPa], as where the load was set to zero under a preload."""
    top = int(load.argmax())
    largest = float(load[top])
    loaded = int((load >= _LOADED_ONCE * largest).argmax())
    least = float(load[loaded : top + 1].min(initial=largest))
    clear = max(_LEAST_LOAD * largest, _CLEAR_TIMES * noise_of(load))
    if not clear < -least < _COMPRESSION * largest:
        return
    curve.load_in_doubt = -least
    curve.warnings.append(
        Caveat(
            "load below zero",
            f"the load falls to {least:.3g} MPa in an unloading, {-100.0 * least / largest:.2g} % of the largest below "
            "zero, as where it was set to zero under a preload",
            "the 95 % intervals hold both readings: if the specimen was only unloaded, every stress is that much too "
            "low",
        )
    )


def _warn_of_a_jump(curve: MeasuredTest) -> None:
    step = step_of_stress(np.abs(curve.strain), np.abs(curve.stress_mpa))
    if step is not None:
        curve.warnings.append(
            Caveat(
                "stress jumps",
                f"the stress jumps by {step[1]:.3g} MPa at strain {step[0]:.3g} and goes on from there, as where the "
                "speed or the range of the load is changed",
                "the law is fitted to both parts alike; take one of them with --window",
            )
        )
    found = jump_of_strain(np.abs(curve.strain), np.abs(curve.stress_mpa))
    if found is not None:
        curve.warnings.append(
            Caveat(
                "strain jumps",
                f"the strain jumps by {found[1]:.2g} at {found[0]:.3g}, and the load goes on as if it had not: an "
                "extensometer that slipped, or a change to another one or to the crosshead",
                "the strains behind are shifted; put them right, or leave them out with --window",
            )
        )


def _goes_on_as_a_travel(raw: RawCurve) -> list[Caveat]:
    """The caveat of a strain that an extensometer measured at first, and a travel later."""
    if raw.follows is None or raw.follows[1] == 0:
        return []
    name, row = raw.follows
    strain = abs(float(raw.strain[row]))
    return [
        Caveat(
            "strain goes on as a travel",
            f"from strain {strain:.3g} on (point {row + 1} of {len(raw.strain)}) the strain is column '{name}' over a "
            "length, to the last digit, and before it is not: the extensometer was left for the crosshead",
            f"strains behind hold the give of machine and grips: leave them out with --window=,{strain:.3g}",
        )
    ]


def _load_rises_beyond(curve: MeasuredTest, beyond: Array, measures: tuple[str, str]) -> bool:
    """Whether the maximum load may lie in the rows without a strain, so that nothing necks before."""
    if not len(beyond):
        return False
    load = engineering_stress(curve.strain, curve.stress_mpa, measures)
    highest = float(load.max())
    has_not_fallen = running_mean(load)[-1] > (1.0 - _CLEAR_FALL) * highest
    return bool(np.nanmax(beyond, initial=0.0) > highest or has_not_fallen)


def _tensile(
    curve: MeasuredTest, beyond: Array, measures: tuple[str, str], options: CleaningOptions
) -> TensileProperties | None:
    """The properties of the whole record, also beyond the maximum load, where it rises far enough to have any.

    Args:
      beyond: engineering stress of the rows after the measured strain, MPa; NaN where it is not known.
    """
    stress = engineering_stress(curve.strain, curve.stress_mpa, measures)
    strain = stretch_of(curve.strain, measures[0]) - 1.0 if measures[0] == "true" else curve.strain
    whole = MeasuredTest(curve.name, strain, stress, strain_error=curve.strain_error)
    try:
        make_strain_rise(whole, options.envelope)
        correct_start(whole, options.toe == "auto")
    except InputError:
        return None
    return tensile_properties(whole.strain, whole.stress_mpa, beyond) if len(whole.strain) else None


def _turned(raw: RawCurve) -> tuple[RawCurve, bool]:
    """A record of compression with positive numbers, and whether it is one; InputError for one negative column."""
    strain, stress = is_negative(raw.strain), is_negative(raw.stress_mpa)
    if strain != stress:
        names = raw.columns if strain else raw.columns[::-1]
        ends = [
            f"{float(values.min() if is_negative(values) else values.max()):.4g}{unit}"
            for values, unit in ((raw.strain, ""), (raw.stress_mpa, " MPa"))
        ]
        raise InputError(
            f"column '{names[0]}' is negative and column '{names[1]}' positive: strain goes to {ends[0]} and stress to "
            f"{ends[1]}; the sign of '{names[0]}' is turned round: multiply it by -1 for "
            "tension, or both by -1 where compression is positive (negative strain and stress are compression)"
        )
    if not strain:
        return raw, False
    said = "strain and stress are negative: took them as compression, without signs"
    turned = dataclasses.replace(
        raw, strain=-raw.strain, stress_mpa=-raw.stress_mpa, steps=(*raw.steps, said)
    )
    return turned, True


def _from_rest(raw: RawCurve) -> RawCurve:
    """A record whose rows go from the largest strain down to rest, turned round: no test is done so."""
    strain, stress = np.abs(raw.strain), np.abs(raw.stress_mpa)
    if len(strain) < MINIMUM_POINTS or not np.isfinite(strain).all():
        return raw
    if raw.time is not None and raw.time[-1] > raw.time[0]:
        return raw
    rises = float((strain - np.minimum.accumulate(strain)).max())
    ends_at_rest = strain[-1] <= _REST * strain[0] and stress[-1] <= _REST * stress.max()
    if rises > _NOISE_TIMES * noise_of(strain) or not ends_at_rest or not strain[0] > 0.0:
        return raw
    return dataclasses.replace(
        raw,
        strain=raw.strain[::-1],
        stress_mpa=raw.stress_mpa[::-1],
        time=None if raw.time is None else raw.time[::-1],
        steps=(*raw.steps, "the rows go from the largest strain down to rest: turned them round"),
    )


# _FAR: share of the range of strain; points that were picked in no order are so far apart.
_FAR = 0.1
# _BACKWARDS: share of the rows; in a test so many rows that fall back so far are none of one curve.
_BACKWARDS = 0.25
# _WAY: the way of a stress that rises once, over its range, and the share of its noise in each point.
_WAY, _WAY_OF_NOISE = 1.3, 0.01


def _in_order(raw: RawCurve) -> RawCurve:
    """A record whose rows stand in no order of a test, as points that were picked from a figure, by its strain."""
    strain, stress = raw.strain, raw.stress_mpa
    if len(strain) < MINIMUM_POINTS or not np.isfinite(strain).all():
        return raw
    if raw.time is not None and raw.time[-1] > raw.time[0]:
        return raw
    backwards = np.count_nonzero(np.diff(strain) < -_FAR * np.ptp(strain))
    order = np.argsort(strain, kind="stable")
    way = float(np.abs(np.diff(stress[order])).sum())
    is_one_curve = way <= (_WAY + _WAY_OF_NOISE * len(strain)) * float(np.ptp(stress))
    is_one_curve &= min(-stress.min(), stress.max()) <= _REST * np.abs(stress).max()
    if backwards < _BACKWARDS * len(strain) or not is_one_curve:
        return raw
    ordered = dataclasses.replace(raw, strain=strain[order], stress_mpa=stress[order], time=None)
    said = "its rows stand in no order of a test: sorted them by the strain"
    return dataclasses.replace(ordered, steps=(*raw.steps, said))


# _GIVES: MPa; the give of a machine is nothing beside a softer material's. _STIFF: MPa, a steel's modulus nearly, of
# which machine and grips have taken nothing.
_GIVES, _STIFF = 500.0, 180e3


def _of_a_travel(curve: MeasuredTest, raw: RawCurve) -> Iterator[Caveat]:
    """The caveat of a strain that machine and grips have, or may have, a share in.

    A modulus that a metal has proves no extensometer: steel and a crosshead look like titanium.
    """
    if raw.machine_travel:
        yield strain_of_the_machine(raw)
    elif raw.travel_in_doubt:
        line = elastic_line(curve.strain, curve.stress_mpa)
        if line is None or not _GIVES < line.slope < _STIFF:
            return
        yield Caveat(
            "strain of the crosshead?",
            f"its strain is made of column '{raw.columns[0]}', which may be an extensometer's or the crosshead's: a "
            f"modulus of {line.slope / 1e3:.3g} GPa may be a stiffer material's with the give of machine and grips",
            "call the column extensometer if it is one; else fix the modulus that you know with --fix",
        )


def strain_of_the_machine(raw: RawCurve, has_modulus: bool = True) -> Caveat:
    """The caveat of a strain that was not measured at the specimen, for a law that has, or has not, a modulus."""
    name = raw.follows[0] if raw.follows is not None else raw.columns[0]
    gives, fix = "machine and grips", ""
    if has_modulus:
        wrong = "the modulus is the machine's and the specimen's together, and every strain is too large"
        fix = ", or fix the modulus that you know with --fix"
    else:
        gives += ", and of a specimen's shoulders"
        wrong = "every strain, and so every parameter, holds it too"
    return Caveat(
        "strain of the crosshead",
        f"its strain is made of column '{name}', which holds the give of {gives}: {wrong}",
        f"use an extensometer's column{fix}; a column called extensometer is taken as measured at the specimen",
    )


def measures_of(raw: RawCurve) -> tuple[str, str]:
    """Strain and stress measure of a curve: as it says, or engineering."""
    named = raw.strain_measure or raw.stress_measure
    return (
        raw.strain_measure or named or "engineering",
        raw.stress_measure or named or "engineering",
    )


def to_engineering_shear(curve: MeasuredTest, raw: RawCurve) -> None:
    """Doubles a shear strain that is the tensor's component; warns where it may be one."""
    if raw.shear_strain == "tensor":
        curve.strain = 2.0 * curve.strain
        curve.steps.append("took the shear strain as the tensor component gamma / 2 and doubled it")
    elif raw.shear_strain == "epsilon":
        curve.warnings.append(
            Caveat(
                "epsilon taken as gamma",
                "its strain column is called epsilon but was taken as the engineering shear strain gamma",
                "if it is the tensor component gamma / 2, say --shear_strain=tensor",
            )
        )
        curve.assumed.append("engineering shear strain")
    elif raw.shear_strain is None:
        curve.steps.append("took the strain as the engineering shear strain gamma")


def to_measures_of_the_law(
    curve: MeasuredTest,
    raw: RawCurve,
    measures: tuple[str, str],
    target: CurveTarget,
    compressed: bool = False,
) -> None:
    """Converts strain and stress from the file's measures to the law's, and tells what was assumed.

    Args:
      compressed: positive numbers are compression.
    """
    sign = -1.0 if compressed else 1.0
    if raw.shear_strain == "tensor":
        curve.steps.append(
            "a shear strain's component (tensor) was not doubled: the law is not for shear"
        )
    # The strain of another unit than it seems to be would be no finite stretch.
    engineering = (
        sign * np.expm1(sign * np.minimum(curve.strain, LARGEST_TRUE_STRAIN))
        if measures[0] == "true"
        else curve.strain
    )
    _convert(curve, engineering, measures, target, sign)
    if raw.strain_measure is None and raw.stress_measure is None:
        wanted = (target.strain_measure, target.stress_measure)
        if wanted != measures:
            curve.steps.append(
                "the columns do not say so, but were taken as engineering strain and stress "
                "(--strain_measure, --stress_measure)"
            )
            curve.assumed.append(ENGINEERING_COLUMNS)
    for axis, said, measure in (
        ("strain", raw.strain_measure, measures[0]),
        ("stress", raw.stress_measure, measures[1]),
    ):
        if said is None and (raw.strain_measure or raw.stress_measure):
            curve.steps.append(
                f"the {axis} column does not name its measure and was taken as {measure} {axis}, like the other column "
                f"(--{axis}_measure)"
            )
            curve.assumed.append(f"{measure} {axis}")
            end = float(engineering[-1]) if len(engineering) and not compressed else 0.0
            longest = np.inf if target.strain_measure == "engineering" else _LONGEST_TENSION
            if measure == "true" and _MATTERS < end < longest:
                curve.warnings.append(
                    Caveat(
                        ONE_TRUE,
                        f"the column of the {axis} does not say that it is true, and was taken so as the other one is; "
                        f"if it is an engineering {axis}, the {axis} at the end differs by "
                        f"{100.0 * (end if axis == 'stress' else 1.0 - math.log1p(end) / end):.2g} %",
                        f"say --{axis}_measure=true or --{axis}_measure=engineering",
                    )
                )


def _convert(
    curve: MeasuredTest,
    engineering_strain: Array,
    measures: tuple[str, str],
    target: CurveTarget,
    sign: float,
) -> None:
    """Converts strain and stress to the law's measures, at constant volume; sign -1 for positive compression."""
    strain_measure, stress_measure = measures
    stretch = 1.0 + sign * engineering_strain
    if measures != (target.strain_measure, target.stress_measure) and stretch.min(initial=1.0) <= 0:
        raise InputError(
            f"its compressive strain goes to {float(engineering_strain.max()):.4g}, and 1 is a length of nothing; if "
            "it is in percent, say --strain_unit=%"
        )
    plus = "-" if sign < 0 else "+"
    if strain_measure != target.strain_measure:
        to_true = target.strain_measure == "true"
        curve.strain = sign * np.log1p(sign * engineering_strain) if to_true else engineering_strain
        formulas = ("-ln(1 - e)", "1 - exp(-e)") if sign < 0 else ("ln(1 + e)", "exp(e) - 1")
        formula = formulas[0] if to_true else formulas[1]
        curve.steps.append(
            f"converted {strain_measure} strain e to {target.strain_measure} strain {formula}"
        )
    if stress_measure != target.stress_measure:
        to_true = target.stress_measure == "true"
        curve.stress_mpa = curve.stress_mpa * stretch if to_true else curve.stress_mpa / stretch
        formula = f"s (1 {plus} e)" if to_true else f"s / (1 {plus} e)"
        curve.steps.append(
            f"converted {stress_measure} stress s to {target.stress_measure} stress {formula}"
        )


def _cut_to_trained_stress(curve: MeasuredTest, target: CurveTarget, doubt: str) -> None:
    limit = target.max_stress_mpa
    if limit is None or not len(curve.strain) or curve.stress_mpa.max() <= limit:
        return
    largest, before = float(curve.stress_mpa.max()), len(curve.strain)
    # Like the trained curves, which hold the first point above their strength.
    kept = np.arange(len(curve.strain)) <= int((curve.stress_mpa > limit).argmax())
    keep(curve, kept, f"cut at {limit:.4g} MPa, the largest trained strength")
    curve.warnings.append(
        Caveat(
            "beyond the trained stress",
            f"the stress goes on to {largest:.4g} MPa, beyond {limit:.4g} MPa, the largest trained strength; "
            "only the part before was used",
        )
    )
    if len(curve.strain) < MINIMUM_POINTS:
        why = doubt or f"its stress goes to {largest:.4g} MPa; is --stress_unit right?"
        raise InputError(
            f"{len(curve.strain)} of its {before} points lie below {limit:.4g} MPa, the largest trained "
            f"strength ({why})"
        )


def _cut_to_trained_range(curve: MeasuredTest, target: CurveTarget, doubt: str) -> None:
    before = len(curve.strain)
    if before < FEWEST_IN_RANGE:
        raise InputError(f"{before} points are left of it; a curve needs at least {MINIMUM_POINTS}")
    if target.max_strain is None:
        return
    end, high = float(curve.strain[-1]), target.max_strain[1]
    is_far = end > 10 * high
    advice = "if it is in percent, say --strain_unit=%" if is_far and not doubt else ""
    if end > high:
        keep(curve, curve.strain <= high, f"cut at strain {high:.4g}, the end of the trained range")
        few = f" ({len(curve.strain)} of {before} points)"
        curve.warnings.append(
            Caveat(
                "far beyond the trained strain" if is_far else "beyond the trained strain",
                f"the curve goes on to strain {end:.4g}, beyond {high:.4g} where the trained range ends; "
                f"only the part before was used{few if len(curve.strain) < 0.2 * before else ''}",
                advice,
                blocks=is_far,
            )
        )
    if len(curve.strain) < FEWEST_IN_RANGE:
        raise InputError(
            f"{len(curve.strain)} of its {before} points lie below strain {high:.4g}, the end of the trained range; "
            f"at least {FEWEST_IN_RANGE} are needed "
            f"({'; '.join(filter(None, (f'its strain goes to {end:.4g}', advice, doubt)))})"
        )


# --------------------------------------------------------------------------------------------------
# A test as it was read -> what a law is identified from: ordered, converted, told what it is. Every step in words.


# _AT_REST: share of the largest stress; below it a specimen is as good as unloaded.
_AT_REST = 0.01
# _OFFSET: share of the strain's range; a larger offset is taken off.
_OFFSET = 0.005
# _PART_OF_LOOP: share of the strain's range between points that show how stiff a specimen is.
_PART_OF_LOOP = 0.02
# _PLASTIC: share of the range; a first point within a loop has so much plastic strain or stress.
_PLASTIC = 0.1
# _OVER_NOISE: and by so many times the noise.
_OVER_NOISE = 5.0
# _REACHES: share of the largest stress; below it reloading is not compared with the first loading.
_REACHES = 0.2
# _SOFTER: relative difference of both that is worth a word.
_SOFTER = 0.03
# _LOADED: share of the largest load; a specimen that bears less may be slack.
_LOADED = 0.01
# _FIRST_LOADING: share of the largest load; up to it a specimen is as stiff as at the start.
_FIRST_LOADING = 0.08
# _FEWEST_SLACK: rows without a load; fewer are the first points of a loading.
_FEWEST_SLACK = 4
# _LEAST_SLACK: share of the largest strain; less slack hardly moves a parameter.
_LEAST_SLACK = 0.005
# _SLACK_SLOPE: share of the first slope; a material that is that soft at first is not known.
_SLACK_SLOPE = 0.03
# _UNLOADING: shares of the stress at a turn, between which an unloading is elastic and its start over.
_UNLOADING = (0.3, 0.9)
# _FEWEST_UNLOADING: rows of an unloading between them that make a line; _FEWEST_LATE: unloadings that say the same.
_FEWEST_UNLOADING, _FEWEST_LATE = 3, 4
# _LATE: share of the elastic strain; a shorter lag is within the interval of a modulus.
_LATE = 0.03
# _ROOM_IN_KELVIN: temperatures of laboratories, K, 15 to 27 °C.
_ROOM_IN_KELVIN = (288.0, 299.9)


def measured_test(
    raw: RawCurve,
    programme: Programme,
    law: Law,
    settings: Mapping[str, float] | None = None,
    cleaning: CleaningOptions | None = None,
) -> MeasuredTest:
    """A test as it was read -> what a law is identified from; InputError for what cannot be a test of this kind.

    Args:
      settings: `rate` (1/s) and `temperature` (°C), as far as the user tells them.
    """
    settings, cleaning = dict(settings or {}), cleaning or CleaningOptions()
    target = CurveTarget(
        num_points=MOST_POINTS,
        strain_measure=law.strain_measure,
        stress_measure=law.stress_measure,
        law=None,
    )
    blank = ~np.isfinite(raw.strain)
    raw = rows_of(raw, ~blank)
    if not issubclass(type(programme), Relaxation | Creep):
        raw = without_wild_cells(raw, ends=False)
    raw = stretch_to_strain(raw, law)
    is_positive = raw.strain.max() > -raw.strain.min() and raw.stress_mpa.max() > 0.0
    known = raw.compression_in_head or (is_positive and _stiffens(raw.strain, raw.stress_mpa))
    if isinstance(programme, Compression) and is_positive and known:
        why = f"as '{known}' says" if raw.compression_in_head else "whose stress rises ever faster"
        said = f"took positive numbers as compression, {why}"
        strain, stress = -raw.strain, -raw.stress_mpa
        steps = (*raw.steps, said)
        raw = dataclasses.replace(raw, strain=strain, stress_mpa=stress, steps=steps)
    raw = _engineering_beside_true(raw, law)
    if isinstance(programme, TensionAtRate) and raw.time is None:
        raw = _timed_by_rate(raw, settings.get("rate"))
    if isinstance(programme, RateAndTemperature):
        # Tension of a metal, as any: up to where it necks, and without its unloadings.
        test = clean(raw, target, cleaning)
        test.steps.pop()
        test.programme = programme
    else:
        test = _in_its_own_order(raw, programme, target, cleaning)
        has_modulus = any(parameter.name == "E" for parameter in law.parameters)
        # The give of a machine is nothing beside rubber's between plates; clamps and shoulders of a strip give more.
        is_strip = isinstance(programme, Uniaxial) and programme.name == Uniaxial.name
        if raw.machine_travel and (has_modulus or not isinstance(programme, Compression)):
            test.warnings.append(strain_of_the_machine(raw, has_modulus))
        elif raw.travel_in_doubt and is_strip:
            name = raw.columns[0]
            test.warnings.append(
                Caveat(
                    "strain of the crosshead?",
                    f"its strain is made of column '{name}', which may be an extensometer's or the crosshead's: over "
                    "the gauge length of a dumbbell the crosshead's travel, which its shoulders share, is too large",
                    "call the column extensometer if it is one; over a strip give the length between the clamps",
                )
            )
        if raw.time is not None:
            _warn_of_a_late_start(test, float(raw.time[0]), has_modulus)
    if blank.any():
        test.warnings.append(
            Caveat(
                "strain not measured to the end",
                f"the strain is blank from point {int(blank.argmax()) + 1} of {len(blank)} on; only the points before "
                "were used",
            )
        )
    _tell_settings(test, raw, settings, law)
    check_test(test, raw, law)
    return without_excess(test)


# _STIFFER: ratio of the slopes in the second and the first half of a strain below 1, which rubber in tension never has.
_STIFFER = 1.2


def _stiffens(strain: Array, stress: Array) -> bool:
    """Whether a first loading [points] gets stiffer as rubber between plates does, and in tension only beyond 1."""
    loading = slice(0, int(strain.argmax()) + 1)
    strain, stress = strain[loading], stress[loading]
    if not 0.0 < strain[-1] < 1.0:
        return False
    slopes = [
        float(np.polyfit(strain[half], stress[half], 1)[0]) if half.sum() > 2 else math.nan
        for half in (strain < strain[-1] / 2.0, strain >= strain[-1] / 2.0)
    ]
    return slopes[1] > _STIFFER * slopes[0] > 0.0


def _engineering_beside_true(raw: RawCurve, law: Law) -> RawCurve:
    """A strain that does not say its measure, beside a true stress, as engineering where the law's is, as rubber's."""
    unsaid = raw.strain_measure is None and raw.stress_measure == "true"
    if not unsaid or law.strain_measure != "engineering":
        return raw
    largest = float(raw.strain[np.abs(raw.strain).argmax()])
    said = "took the strain as engineering: its column does not say so, and only the stress is called true"
    doubt = (
        "the column of the strain does not say its measure and was taken as engineering, beside a true stress: the "
        f"stretch goes to {1.0 + largest:.3g}; if the strain is true, to {np.exp(min(largest, 99.0)):.3g}"
    )
    in_doubt = {**raw.in_doubt, **({ONE_TRUE: doubt} if abs(largest) > _MATTERS else {})}
    return dataclasses.replace(
        raw,
        strain_measure="engineering",
        steps=(*raw.steps, said),
        assumed=(*raw.assumed, "engineering strain"),
        in_doubt=in_doubt,
    )


def _in_its_own_order(
    raw: RawCurve, programme: Programme, target: CurveTarget, cleaning: CleaningOptions
) -> MeasuredTest:
    """The points in the order in which they were measured, in the law's measures, from their zero of strain on."""
    if cleaning.window is not None and issubclass(type(programme), Relaxation | Creep):
        raise InputError(
            f"--window is for strains; a test {programme.name} is followed over the time: leave it out, and the later "
            "rows out of the file"
        )
    test = dataclasses.replace(MeasuredTest.of(_within_numbers(raw)), programme=programme)
    if len(test) < MINIMUM_POINTS:
        raise InputError(f"it has {len(test)} points; a test needs at least {MINIMUM_POINTS}")
    if np.ptp(test.stress_mpa) == 0 and programme.drives == "strain":
        raise InputError("its stress is the same at every point (is --stress_column right?)")
    if not isinstance(programme, Creep):
        _find_capped_rows(test, engineering_stress(test.strain, test.stress_mpa, measures_of(raw)))
    if programme.mode == "shear":
        turn_negative(test)
        to_engineering_shear(test, raw)
    else:
        to_measures_of_the_law(test, raw, measures_of(raw), target)
    if "time" in programme.channels:
        test.time = _checked_time(raw, programme)
        test.assumed += filter(None, [raw.time_assumed])
    _zero_strain(test, cleaning.toe == "auto")
    if isinstance(programme, Uniaxial):
        _take_off_slack(test, cleaning.toe == "auto")
    if test.time is not None:
        if test.time[0] != 0.0:
            test.steps.append(f"time counts from the first point on, at {test.time[0]:.3g} s")
        test.time = test.time - test.time[0]
    if not isinstance(programme, Relaxation | Creep):
        test.turns = turns_of(test.driven)
    if test.turns and not isinstance(programme, Uniaxial):
        _warn_of_a_lag(test)
    if isinstance(programme, Uniaxial) and test.turns:
        _take_loading(test)
    if cleaning.window is not None:
        _take_window(test, *cleaning.bounds())
    return test


def _find_capped_rows(test: MeasuredTest, load: Array) -> None:
    """Tells of rows whose load [points] stays at its largest to the last digit; an elastic law goes without them."""
    largest = float(np.abs(load).max())
    within = max(_SAME_LOAD * largest, _DIGITS * resolution_of(load))
    capped = np.zeros(len(load), np.bool_)
    for side in (load, -load):
        at = np.concatenate([[False], side >= side.max() - within, [False]])
        edges = np.flatnonzero(np.diff(at.astype(int)))
        for first, end in zip(edges[::2], edges[1::2], strict=True):
            capped[first:end] |= bool(end - first >= _FEWEST_CAPPED and side[first] > 0.5 * largest)
    # A simulated plateau is as smooth as all other rows.
    if not capped.any() or not noise_of(load[~capped]) > _OVER_NOISE * within:
        return
    elastic = isinstance(test.programme, Uniaxial)
    test.warnings.append(
        Caveat(
            "load at its limit",
            f"the load stays at {float(np.abs(load[capped]).max()):.4g} MPa over {np.count_nonzero(capped)} of "
            f"{len(load)} points, to the last digit: the load cell or its amplifier is at its limit"
            + ("; they were left out" if elastic else ""),
            "measure with a larger range of the load",
            blocks=not elastic,
        )
    )
    if elastic:
        keep(test, ~capped, "left out the rows with a load at its limit")


def _warn_of_a_lag(test: MeasuredTest) -> None:
    """Warns where the stress of cycles goes on rising behind the turns of the strain, as of a channel that is late.

    An unloading, drawn back to the stress at the turn, meets it at the strain of the turn; a viscous specimen's meets
    it beyond, as its stress falls at once.
    """
    strain, stress = test.strain, test.stress_mpa
    found = []
    for turn, following in itertools.pairwise([*test.turns, len(strain)]):
        peak = float(stress[turn])
        rows = np.arange(turn + 1, following)
        share = stress[rows] / peak if peak else np.zeros(len(rows))
        low = np.flatnonzero(share < _UNLOADING[0])
        rows = rows[: low[0]] if len(low) else rows
        rows = rows[stress[rows] / peak < _UNLOADING[1]] if peak else rows[:0]
        if len(rows) < _FEWEST_UNLOADING or not np.ptp(stress[rows]) > 0.0:
            continue
        line = np.polyfit(stress[rows], strain[rows], 1)
        if line[0] > 0.0:
            late = (strain[turn] - np.polyval(line, peak)) / (line[0] * peak)
            found.append(float(late))
    if len(found) < _FEWEST_LATE:
        return
    late = float(np.median(found))
    spread = 1.4826 * float(np.median(np.abs(np.array(found) - late)))
    if late > max(_LATE, 3.0 * spread):
        test.warnings.append(
            Caveat(
                "stress lags behind strain",
                f"at the turns of the strain the stress is late, by {100 * late:.2g} % of the elastic strain, as where "
                "a filter delays the load",
                "E and first yielding are off by about as much: measure slowly, or shift the channels to each other",
            )
        )


def _timed_by_rate(raw: RawCurve, told: float | None) -> RawCurve:
    """A test at a constant strain rate with its times, where the user (1/s) or the file tells the rate alone."""
    said = raw.conditions.get("rate")
    if told is None and said is None:
        return raw
    rate, source, assumed = rate_of(raw, said) if told is None else (told, "as given", "")
    return dataclasses.replace(
        raw,
        time=np.maximum.accumulate(np.abs(raw.strain - raw.strain[0])) / rate,
        steps=(*raw.steps, f"time from the strain, at {rate:.4g} 1/s ({source})"),
        assumed=(*raw.assumed, *filter(None, [assumed])),
    )


def _checked_time(raw: RawCurve, programme: Programme) -> Array:
    """Seconds, [points], which rise."""
    if raw.time is None:
        or_rate = ", or say its rate, 'Strain rate: 0.001 1/s' above the table"
        raise InputError(
            f"a test of {programme.title} needs the time of every point; set --time_column, or name the column time"
            + or_rate * isinstance(programme, TensionAtRate)
        )
    backwards = np.flatnonzero(np.diff(raw.time) < 0)
    if len(backwards):
        i = int(backwards[0])
        raise InputError(
            f"time runs backwards: {raw.time[i + 1]:g} s after {raw.time[i]:g} s, at point {i + 2} of {len(raw.time)}; "
            "sort the rows, or give each run a file of its own"
        )
    if raw.time[-1] <= raw.time[0]:
        raise InputError("its time is the same at every point (is --time_column right?)")
    return raw.time


# _RELAXES: share of the first stress by which it falls within ten first steps; a loading as long took as much away.
_RELAXES = 0.02


def _warn_of_a_late_start(test: MeasuredTest, start: float, has_modulus: bool) -> None:
    """Warns of a relaxation whose first point is loaded: how long the loading took is not known.

    Args:
      start: time of the first point in the file, s.
      has_modulus: the law has one modulus, which the first stress tells; else one for each relaxation time.
    """
    stress = np.abs(test.stress_mpa)
    if not isinstance(test.programme, Relaxation) or stress[0] <= _PLASTIC * stress.max():
        return
    assert test.time is not None
    soon = test.time <= 10.0 * test.time[1]
    has_fallen = has_modulus and bool(stress[soon][-1] < (1.0 - _RELAXES) * stress[0])
    wrong = "moduli with relaxation times of up to ten times the time of loading are too small"
    if has_fallen:
        wrong = "the stress falls from the first point on, so E is too small by what relaxed before, and K with it"
    test.warnings.append(
        Caveat(
            "loaded before the first point",
            f"the record begins loaded, at {start:.3g} s, which was taken for the moment of loading",
            f"{wrong}: give the rows from the loading on"
            + ", or fix the modulus with --fix" * has_fallen,
            blocks=has_fallen,
        )
    )


def _zero_strain(curve: MeasuredTest, wanted: bool) -> None:
    """Takes off a strain that was not zeroed, where the specimen is unloaded at the start; else tells of it."""
    offset = float(curve.strain[0])
    begins_at = float(curve.stress_mpa[0])
    largest = float(np.abs(curve.stress_mpa).max())
    remembers = not isinstance(curve.programme, Uniaxial | Relaxation | Creep)
    if remembers and _begins_within_a_loop(curve.strain, curve.stress_mpa):
        curve.warnings.append(
            Caveat(
                "loaded at the start",
                f"the record begins at strain {offset:.3g} and {begins_at:.3g} MPa, within a loop",
                "what was done before the first point is not known; a law begins with a virgin specimen, so give the "
                "record from its first loading on",
            )
        )
        return
    least = max(_OFFSET * float(np.ptp(curve.strain)), _OVER_NOISE * noise_of(curve.strain))
    if abs(offset) <= least:
        if abs(begins_at) > 0.1 * largest:
            curve.warnings.append(
                Caveat(
                    "loaded at the start",
                    f"the record begins at {begins_at:.3g} MPa without strain",
                    "give the modulus (--fix=E=150000): the elastic strain is then added"
                    if isinstance(curve.programme, Creep)
                    else "what was done before the first point is not known; a law begins with a virgin specimen",
                )
            )
        return
    if abs(begins_at) > _AT_REST * largest:
        return
    if wanted:
        curve.strain = curve.strain - offset
        curve.steps.append(
            f"took {offset:.3g} off the strain, its reading before the load (--toe=off leaves it)"
        )
    else:
        curve.steps.append(f"left a strain of {offset:.3g} at the start, before the load")


def _begins_within_a_loop(strain: Array, stress: Array) -> bool:
    """Whether a specimen is plastically strained at the first point [points] already, as in a loop at half life."""
    span, first = float(np.ptp(strain)), float(strain[0])
    gone = np.cumsum(np.abs(np.diff(strain, prepend=first)))
    if span == 0.0:
        return False
    rows = np.flatnonzero(np.diff(gone // (_PART_OF_LOOP * span), prepend=-1.0))
    if len(rows) < _FEWEST_SLACK:
        return False
    moved = np.diff(strain[rows])
    far = np.abs(moved) > 0.5 * _PART_OF_LOOP * span
    slopes = np.diff(stress[rows])[far] / moved[far]
    stiffest = float(np.quantile(slopes, 0.9)) if len(slopes) else 0.0
    if stiffest <= 0.0 or abs(first - float(stress[0]) / stiffest) < _PLASTIC * span:
        return False
    # An unloaded specimen in a strain that was not zeroed makes the loops lie on one side.
    is_loaded = abs(float(stress[0])) > _PLASTIC * np.abs(stress).max()
    return bool(is_loaded or abs(strain.max() + strain.min()) < _PLASTIC * span)


def _take_off_slack(test: MeasuredTest, wanted: bool) -> None:
    """Takes off the strain before a specimen tightened, and its rows, where there is such; tells of it."""
    found = slack_of(test.strain, test.stress_mpa)
    if found is None:
        return
    rows, slack = found
    if wanted:
        test.strain = test.strain - slack
        kept = np.arange(len(test)) >= rows
        keep(test, kept, "left out the rows before the specimen tightened")
    test.warnings.append(
        Caveat(
            "slack",
            f"the load stays at zero to a strain of {slack:.3g}, as if the specimen were slack; that "
            f"{'was taken off' if wanted else 'was left in the strain'}",
            "if the strain before was the specimen's own, say --toe=off",
        )
    )


def slack_of(strain: Array, stress: Array) -> tuple[int, float] | None:
    """The rows at the start without a load, and the strain at which the load begins; None where a record has no slack.

    Args:
      strain, stress: [points], in the order of measurement, from rest, in either sign.
    """
    strongest = np.abs(stress).argmax()
    side = float(np.sign(strain[strongest])) or 1.0
    e, s = side * strain, stress * (np.sign(stress[strongest]) or 1.0)
    top = int(s.argmax())
    # The bends of few points look like noise.
    noise = min(noise_of(s[: top + 1]), _LOADED * float(s[top]))
    least = max(_LOADED * s[top], 3.0 * noise)
    end = (
        int(np.flatnonzero(s[: top + 1] >= max(_FIRST_LOADING * s[top], 3.0 * least))[:1].sum()) + 1
    )
    unloaded = np.flatnonzero(s[:end] <= least)
    if len(unloaded) < _FEWEST_SLACK:
        return None
    first = int(unloaded[-1]) + 1
    # The first loading behind it, by a line that is drawn on to no load.
    end = max(end, min(first + _FEWEST_SLACK, top + 1))
    if end - first < 2 or np.ptp(e[first:end]) == 0.0:
        return None
    slope = float(np.polyfit(e[first:end], s[first:end], 1)[0])
    slack = float(e[first:end].mean() - s[first:end].mean() / slope) if slope > 0.0 else 0.0
    before = e < 0.9 * slack
    before[first:] = False
    rows = int(np.count_nonzero(before))
    if rows < _FEWEST_SLACK or slack < _LEAST_SLACK * float(e[top]):
        return None
    flat = float(np.polyfit(e[before], s[before], 1)[0]) if np.ptp(e[before]) else 0.0
    bears = float(np.abs(s[before]).max())
    chance = 4.0 * noise / (np.ptp(e[before]) * np.sqrt(rows)) if rows else 0.0
    is_flat = abs(flat) < max(_SLACK_SLOPE * slope, chance) and bears < least + 2.0 * noise
    return (int(np.flatnonzero(before)[-1]) + 1, side * slack) if is_flat else None


def _take_loading(test: MeasuredTest) -> None:
    """Keeps the first loading to every strain, also of several cycles, and tells of what was left out.

    Unloading, reloading to strains that were reached before, and pauses at the turns are none.
    """
    strain, stress = test.strain, test.stress_mpa
    loading, reloading = _loading_branches(strain, test.turns)
    kept = int(np.count_nonzero(loading))
    if kept < MINIMUM_POINTS:
        raise InputError(
            f"its strain turns {len(test.turns)} times, and its first loading has {kept} points; a test of "
            f"{test.programme.title} is a loading of at least {MINIMUM_POINTS}"
        )
    dropped = len(strain) - kept
    if dropped:
        order = np.flatnonzero(loading)
        if (strain[order] < 0).any() and (strain[order] > 0).any():
            # Cycles to both sides: an elastic law asks for no order, and averaging wants a rising one.
            order = order[np.argsort(strain[order], kind="stable")]
        test.strain, test.stress_mpa = strain[order], stress[order]
        if test.time is not None:
            test.time = test.time[order]
        furthest = float(strain[order][np.abs(strain[order]).argmax()])
        test.steps.append(
            f"took the first loading to every strain, to {furthest:.4g} ({dropped} points dropped)"
        )
        also = ", reloading to strains reached before" if reloading.any() else ""
        test.warnings.append(
            Caveat(
                "unloading left out",
                f"{dropped} points of unloading{also} and pauses were left out, of {len(strain)}"
                f"{_softening(strain, stress, order, reloading)}",
                "an elastic law answers loading and unloading alike, and rubber does not",
            )
        )
    # The branches that are left are one to an elastic law.
    test.turns = []


def _loading_branches(
    strain: Array, turns: list[int]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The points that load beyond all before, and those that load again: both [points]."""
    loading, reloading = np.zeros(len(strain), np.bool_), np.zeros(len(strain), np.bool_)
    reached = {1.0: 0.0, -1.0: 0.0}
    noise = _OVER_NOISE * noise_of(strain)
    for first, last in itertools.pairwise([0, *turns, len(strain) - 1]):
        side = 1.0 if strain[last] >= strain[first] else -1.0
        branch = side * strain[first : last + 1]
        # A pause at the turn relaxes: the branch ends where it first comes there.
        end = int((branch >= branch[-1] - noise).argmax()) + 1
        points = first + np.arange(end)
        beyond = branch[:end] > reached[side] + (noise if reached[side] else 0.0)
        if first == 0:
            beyond[:] = True
        loading[points[beyond]] = True
        reloading[points[~beyond & (branch[:end] > 0)]] = True
        reached[side] = max(reached[side], float(branch[-1]))
    return loading, reloading


def _softening(
    strain: Array, stress: Array, order: NDArray[np.intp], reloading: NDArray[np.bool_]
) -> str:
    """How much softer than the first loading the reloading is, in words; nothing where it is not."""
    order = order[np.argsort(strain[order], kind="stable")]
    first = np.interp(strain[reloading], strain[order], stress[order])
    large = np.abs(first) > _REACHES * np.abs(stress).max()
    if not large.any():
        return ""
    share = float(np.median(stress[reloading][large] / first[large]))
    if abs(share - 1.0) < _SOFTER:
        return ""
    return f"; the reloading has {share:.2g} times the stress of the first loading, from which the parameters come"


def _take_window(test: MeasuredTest, low: float | None, high: float | None) -> None:
    """Takes the points of an elastic test that are between two strains; of others those before the strain leaves them.

    A law that remembers must know all that came before a point.
    """
    ends = [f"from {low:g}"] if low is not None else []
    ends += [f"up to {high:g}"] if high is not None else []
    said = " ".join(ends)
    low, high = (-np.inf if low is None else low), (np.inf if high is None else high)
    strain = test.strain
    inside = (strain >= low) & (strain <= high)
    text = f"took the strains {said}"
    if not isinstance(test.programme, Uniaxial):
        if not inside[0]:
            raise InputError(
                f"--window begins at strain {low:g}, and the law must know all that came before; leave that end empty, "
                "or give one below the smallest strain"
            )
        inside = np.logical_and.accumulate(inside)
        text = f"took the test to where its strain leaves the window, {said}"
    if np.count_nonzero(inside) < MINIMUM_POINTS:
        raise InputError(
            f"--window leaves {np.count_nonzero(inside)} points; a test needs at least {MINIMUM_POINTS}"
        )
    keep(test, inside, text)
    test.turns = [turn for turn in test.turns if turn < len(test) - 1]


def _is_room_in_kelvin(temperature: float, law: Law) -> bool:
    """Whether a temperature (°C) is a room's in kelvin, beside a law whose room temperature is in °C."""
    in_celsius = any(
        parameter.name == "room" and parameter.unit == "°C" for parameter in law.parameters
    )
    low, high = _ROOM_IN_KELVIN
    return in_celsius and low <= temperature <= high


def _tell_settings(
    test: MeasuredTest, raw: RawCurve, settings: Mapping[str, float], law: Law
) -> None:
    """Rate and temperature, as the user says, the file, or its time; a law that asks for none has only conditions."""
    for name, unit in (("rate", "1/s"), ("temperature", "°C")):
        if name not in test.programme.channels:
            if name in settings:
                test.conditions[name] = f"{settings[name]:.4g} {unit}"
            continue
        if name in settings:
            value, source, assumed = settings[name], "as given", ""
        elif name == "rate":
            value, source, assumed = rate_of(raw, test.conditions.get(name))
        else:
            first = "".join(raw.warms[:1]) or None
            value, source, assumed = temperature_of(test.conditions.get(name) or first)
            if raw.warms:
                test.warnings.append(
                    Caveat(
                        "temperature changes",
                        f"its temperature goes from {raw.warms[0]} to {raw.warms[1]}, and {value:.4g} °C was taken "
                        "for all rows",
                        "softening by the heat of a fast test counts as less hardening: correct the stress for it, or "
                        "leave these rows out with --window",
                    )
                )
        setattr(test, name, value)
        in_kelvin = name not in settings and (test.conditions.get(name) or "").endswith(" K")
        if name == "temperature" and not in_kelvin and _is_room_in_kelvin(value, law):
            test.warnings.append(
                Caveat(
                    "temperature in kelvin?",
                    f"its temperature is {value:.4g} °C, which is room temperature in kelvin",
                    "if it is in kelvin, give it in °C, or with its unit, 293 K",
                )
            )
        test.steps.append(f"{name} {value:.4g} {unit} ({source})")
        if assumed:
            test.assumed.append(assumed)
        test.conditions[name] = f"{value:.4g} {unit}"
