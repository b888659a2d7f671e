"""Faults of the recording, which no specimen does: wild cells, and an extensometer or a load cell at its limit.

Both are looked for in the order of the rows, before anything else is done to a curve."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array
from tfmat.records.reading import RawCurve
from tfmat.records.toe import noise_of, resolution_of

# _LONGEST_BLOCK: so many neighbouring cells at the most are wild together; more are a part of the test.
_LONGEST_BLOCK = 3
# _WINDOW: rows on each side of a cell that show how rough the record is there.
_WINDOW = 15
# _ROUGHNESS: a wild cell departs by so many times the second difference of its neighbourhood.
_ROUGHNESS = 3.0
# _OTHER_WILD: of the largest second differences, so many are left out, as other wild cells make them.
_OTHER_WILD = 6
# _NOISE_TIMES: and by so many standard deviations of the record's noise.
_NOISE_TIMES = 10.0
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
        e_wild = e.candidates(np.zeros(len(local)), _NOISE_TIMES * noise)
        s_wild = s.candidates(least, _NOISE_TIMES * noise_of(stress))
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
            goes_back = (
                side * (strain[i : i + length] - e.before[i])
            ).min() < -_NOISE_TIMES * noise
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
    return bool(way > _NOISE_TIMES * noise and abs(after - before) < 0.5 * way)


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
    least = np.maximum(_NOISE_TIMES * noise_of(strain), _FALL * np.quantile(highest, 0.9))
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
