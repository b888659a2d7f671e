"""The way that a test was driven: turning points, measured points averaged along it, the settings of its programme.

A place is how far the machine has gone: the sum of the driven changes, on which noise takes no part. Settings are
amplitude, cycles, rate, temperature, hold, and such, as a record shows them.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cutting import turning_points
from tfmat.curves.programme import Programme
from tfmat.curves.reading import RawCurve
from tfmat.errors import InputError
from tfmat.materials.law import Array

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
_TOLERANCE = 0.02
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
            place = 0.0 if np.isclose(value, setting.low, rtol=_TOLERANCE) else np.inf
        else:
            place = float(setting.to_unit_interval(value))
        if not -_TOLERANCE <= place <= 1.0 + _TOLERANCE:
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
