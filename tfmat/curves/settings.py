"""What makes a set of simulated curves: the law, its ranges, and how a test is imagined to go."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tfmat.errors import InputError, nearest
from tfmat.materials import DEFAULT_LAW, Law, find_law
from tfmat.materials.user_law import is_user_law, user_law_digest

_FEWEST_POINTS = 8
# In the JSON form only: tells data of an edited user law from those of the law before.
_DIGEST_KEY = "law_file_sha256"


@dataclasses.dataclass(frozen=True)
class CurveSettings:
    """Settings of a simulation; with a seed they fix every curve. Checked on creation, InputError names the flag.

    Attributes:
      law: registered name or `path/to/file.py:ClassName`.
      ranges: parameter name -> (low, high) in its unit, in place of the law's own range.
      fixed: parameter name -> known value in its unit; it is no label then.
      max_strain: range that the end of a curve is drawn from; None is the law's own.
      strength_mpa: range of the stress at which a curve breaks off; None is the law's own, which may be no cut-off.
      strength_cut_off: False never cuts, whatever `strength_mpa` says.
      noise_mpa: standard deviation of the Gaussian stress noise; None is the law's own, 0 is none.
      noise_relative: standard deviation as a fraction of the point's own stress, added in quadrature.
      num_points: points of a curve.
    """

    law: str = DEFAULT_LAW
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    max_strain: tuple[float, float] | None = None
    strength_mpa: tuple[float, float] | None = None
    strength_cut_off: bool = True
    noise_mpa: float | None = None
    noise_relative: float = 0.0
    num_points: int = 200

    def __post_init__(self) -> None:
        ranges = {name: _pair(f"ranges.{name}", pair) for name, pair in self.ranges.items()}
        fixed = {name: _number(f"fixed.{name}", value) for name, value in self.fixed.items()}
        checked: dict[str, Any] = {"ranges": ranges, "fixed": fixed}
        if self.max_strain is not None:
            checked["max_strain"] = _positive_pair("data.max_strain", self.max_strain, "0.01,0.05")
        if self.strength_mpa is not None:
            checked["strength_mpa"] = _positive_pair(
                "data.strength_mpa", self.strength_mpa, "60,140"
            )
        if self.noise_mpa is not None:
            checked["noise_mpa"] = _not_negative("data.noise_mpa", self.noise_mpa)
        checked["noise_relative"] = _not_negative("data.noise_relative", self.noise_relative)
        if checked["noise_relative"] >= 1:
            raise _refused(
                "data.noise_relative", self.noise_relative, "a fraction below 1, 0.01 for 1 %"
            )
        if not _is_integer(self.num_points) or self.num_points < _FEWEST_POINTS:
            raise _refused(
                "data.num_points", self.num_points, f"a whole number of at least {_FEWEST_POINTS}"
            )
        if not isinstance(self.strength_cut_off, bool):
            raise _refused("data.strength_cut_off", self.strength_cut_off, "true or false")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self.build_law()

    def build_law(self) -> Law:
        """The law with these ranges and fixed values."""
        return find_law(self.law, ranges=self.ranges, fixed=self.fixed)

    def resolved(self) -> "CurveSettings":
        """The same curves with everything that the law decides written out: ranges, strains, strength, noise."""
        law = self.build_law()
        strength = (self.strength_mpa or law.strength_mpa) if self.strength_cut_off else None
        return dataclasses.replace(
            self,
            ranges={
                parameter.name: (parameter.low, parameter.high) for parameter in law.identified
            },
            max_strain=self.max_strain or law.max_strain,
            strength_mpa=strength,
            strength_cut_off=strength is not None,
            noise_mpa=law.noise_mpa if self.noise_mpa is None else self.noise_mpa,
        )

    def to_json(self) -> dict[str, Any]:
        """The resolved settings as plain JSON values; equal for equal curves, whatever was left to the law."""
        resolved = self.resolved()
        content: dict[str, Any] = {
            field.name: getattr(resolved, field.name) for field in dataclasses.fields(resolved)
        }
        content["ranges"] = {name: list(pair) for name, pair in resolved.ranges.items()}
        content["fixed"] = dict(sorted(resolved.fixed.items()))
        for name in ("max_strain", "strength_mpa"):
            content[name] = None if content[name] is None else list(content[name])
        if is_user_law(self.law):
            content[_DIGEST_KEY] = user_law_digest(self.law)
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "CurveSettings":
        """The settings that `to_json` wrote; raises InputError on a key that it does not write."""
        content = {name: value for name, value in content.items() if name != _DIGEST_KEY}
        known = [field.name for field in dataclasses.fields(cls)]
        for name in content:
            if name not in known:
                raise InputError(f"curve settings have no '{name}'{nearest(name, known)}")
        return cls(**content)


def _refused(name: str, value: object, expected: str) -> InputError:
    return InputError(f"--config.{name} is {value!r}; give {expected}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise _refused(name, value, "a number")
    return number


def _not_negative(name: str, value: Any) -> float:
    number = _number(name, value)
    if number < 0:
        raise _refused(name, value, "0 (none) or a positive number")
    return number


def _pair(name: str, pair: Any) -> tuple[float, float]:
    if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
        raise _refused(name, pair, f"two numbers, --config.{name}=LOW,HIGH")
    return _number(name, pair[0]), _number(name, pair[1])


def _positive_pair(name: str, pair: Any, example: str) -> tuple[float, float]:
    low, high = _pair(name, pair)
    if not 0 < low <= high:
        raise _refused(name, pair, f"0 < low <= high, e.g. --config.{name}={example}")
    return low, high
