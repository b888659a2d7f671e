"""Checks of single settings of a simulation; what is refused names the flag."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.curves.apparatus import rises_from_zero
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.curves.programme import Programme

FEWEST_POINTS = 8
_MOST_MEASURED = 10_000
# Options of the observation model, stored only where they are used: an example, and the most that each may be.
_LIMITS: dict[str, tuple[str, float]] = {
    "noise_of_maximum": ("0.0005,0.005", 0.5),
    "noise_correlation": ("0.2,0.9", 0.999),
    "strain_offset": ("5e-6,2e-4", 0.01),
    "stress_offset": ("0.1,2", math.inf),
    "toe": ("1e-4,2e-3", 0.1),
    "machine_stiffness": ("5e4,5e5", math.inf),
    "misfit": ("0.001,0.02", 0.5),
    "yield_spread": ("0.05,0.7", 2.0),
}
OBSERVATION = (*_LIMITS, "measured_points")
# Of these, what is not independent noise.
MORE_THAN_NOISE = tuple(name for name in _LIMITS if name != "noise_of_maximum")
# Histories of a programme that are looked at.
_LOOKED_AT = 32


def refused(name: str, value: object, expected: str) -> InputError:
    return InputError(f"--config.{name} is {value!r}; give {expected}")


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def number(name: str, value: Any) -> float:
    try:
        found = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise refused(name, value, "a number")
    return found


def not_negative(name: str, value: Any) -> float:
    found = number(name, value)
    if found < 0:
        raise refused(name, value, "0 (none) or a positive number")
    return found


def pair(name: str, value: Any) -> tuple[float, float]:
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise refused(name, value, f"two numbers, --config.{name}=LOW,HIGH")
    return number(name, value[0]), number(name, value[1])


def positive_pair(name: str, value: Any, example: str) -> tuple[float, float]:
    low, high = pair(name, value)
    if not 0 < low <= high:
        raise refused(name, value, f"0 < low <= high, e.g. --config.{name}={example}")
    return low, high


def checked_observation(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the observation model, name -> None or a checked pair."""
    checked: dict[str, Any] = {"measured_points": None}
    for name, (example, most) in _LIMITS.items():
        checked[name] = None
        if (limits := given[name]) is not None:
            checked[name] = positive_pair(f"data.{name}", limits, example)
            if checked[name][1] > most:
                raise refused(f"data.{name}", limits, f"{most:g} at most, e.g. {example}")
    if (limits := given["measured_points"]) is not None:
        low, high = positive_pair("data.measured_points", limits, "15,400")
        whole = low == int(low) and high == int(high)
        if not whole or low < FEWEST_POINTS or high > _MOST_MEASURED:
            raise refused(
                "data.measured_points",
                limits,
                f"whole numbers from {FEWEST_POINTS} to {_MOST_MEASURED}, e.g. 15,400",
            )
        checked["measured_points"] = int(low), int(high)
    return checked


def contradiction(given: Mapping[str, Any], programmes: "Sequence[Programme]") -> str | None:
    """What the settings of a simulation say against each other or against the tests; None where nothing."""
    if given["noise_told"] and not programmes:
        return "--config.data.noise_told is for tests; a curve of rising strain has no channel for it: leave it out"
    if given["noise_told"] and given["noise_of_maximum"] is None:
        return (
            "--config.data.noise_told has nothing to tell, since the noise of all records is of one size; draw it with "
            "--config.data.noise_of_maximum=0.0005,0.005"
        )
    is_silent = given["noise_mpa"] == 0 and not given["noise_relative"]
    is_silent &= given["noise_of_maximum"] is None
    if given["noise_correlation"] is not None and is_silent:
        return "--config.data.noise_correlation is of noise, and there is none; leave it out, or noise_mpa=0"
    if given["toe"] is not None and programmes:
        points = given["num_points"]
        drawn = (
            one.draw(np.random.default_rng(0), _LOOKED_AT, points).strain for one in programmes
        )
        if not any(strain is not None and rises_from_zero(strain).mean() > 0.5 for strain in drawn):
            names = " and ".join(programme.name for programme in programmes)
            return (
                f"--config.data.toe is of tests whose strain rises from zero and does not turn, and {names} does not; "
                "leave it out"
            )
    return None
