"""The settings of a test programme as a record shows them: amplitude, cycles, rate, temperature, hold, and such."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tfmat.curves.loading_paths import end_of_ramp, half_cycles
from tfmat.curves.programmes import Programme
from tfmat.curves.reading import RawCurve
from tfmat.errors import InputError
from tfmat.materials.history import Array

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
