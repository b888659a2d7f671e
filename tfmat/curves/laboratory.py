"""What a laboratory adds to curves that hold no noise and follow no law that is known here."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfmat.curves.setting_checks import (
    OBSERVATION,
    checked_observation,
    not_negative,
    positive_pair,
    refused,
)
from tfmat.errors import InputError, nearest


@dataclasses.dataclass(frozen=True)
class Laboratory:
    """Options of the same names and meanings as in `CurveSettings`; InputError names the one that is wrong.

    Attributes:
      max_strain: range that the end of a copy is drawn from, never beyond the curve's own; None is the curve's own.
    """

    noise_mpa: float = 0.0
    noise_relative: float = 0.0
    max_strain: tuple[float, float] | None = None
    noise_of_maximum: tuple[float, float] | None = None
    noise_correlation: tuple[float, float] | None = None
    measured_points: tuple[int, int] | None = None
    strain_offset: tuple[float, float] | None = None
    stress_offset: tuple[float, float] | None = None
    toe: tuple[float, float] | None = None
    machine_stiffness: tuple[float, float] | None = None
    misfit: tuple[float, float] | None = None
    yield_spread: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        checked = checked_observation({name: getattr(self, name) for name in OBSERVATION})
        for name in ("noise_mpa", "noise_relative"):
            checked[name] = not_negative(f"data.{name}", getattr(self, name))
        if checked["noise_relative"] >= 1:
            raise refused("data.noise_relative", self.noise_relative, "a fraction below 1")
        if self.max_strain is not None:
            checked["max_strain"] = positive_pair("data.max_strain", self.max_strain, "0.01,0.05")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Laboratory":
        """A laboratory with the given options; InputError for one that there is not."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                raise InputError(f"a laboratory has no '{name}'{nearest(name, known)}")
        return cls(**options)

    def to_json(self) -> dict[str, Any]:
        """The options that are in use."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v}
