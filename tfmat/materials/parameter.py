"""A parameter of a law, or a setting of a test: its unit, its range, and its scale."""

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tfmat.errors import InputError
from tfmat.materials.history import Array

Scale = Literal["linear", "log"]
# What counts as the size of a value of 0, as a share of its range.
_LEAST_SIZE = 1e-2


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a law.

    Attributes:
      name: as it appears in flags, files and reports, e.g. `G0`.
      unit: e.g. `MPa`; `-` for a pure number.
      low, high: the range that simulated curves are drawn from, in `unit`.
      scale: `linear` or `log`; labels are uniform in 0-1 on this scale.
      description: a few words, e.g. "initial shear modulus".
      fixed: a value in `unit` when the parameter is known and not identified.
    """

    name: str
    unit: str
    low: float
    high: float
    scale: Scale = "linear"
    description: str = ""
    fixed: float | None = None

    def to_unit_interval(self, value: ArrayLike) -> Array:
        """Maps values in `unit` to labels: `low` to 0, `high` to 1. Same shape as `value`."""
        value = np.asarray(value, np.float64)
        if self.scale == "log":
            return np.log(value / self.low) / self.width
        return (value - self.low) / self.width

    def from_unit_interval(self, label: ArrayLike) -> Array:
        """Maps labels back to values in `unit`; the inverse of `to_unit_interval`. Same shape as `label`."""
        label = np.asarray(label, np.float64)
        if self.scale == "log":
            return self.low * (self.high / self.low) ** label
        return self.low + self.width * label

    @property
    def width(self) -> float:
        """The range's width on its scale: high - low, or the natural logarithm of high / low."""
        return float(np.log(self.high / self.low)) if self.scale == "log" else self.high - self.low

    def slope(self, value: ArrayLike) -> Array:
        """d value / d label at values in `unit`, in `unit`. Same shape as `value`."""
        value = np.asarray(value, np.float64)
        return value * self.width if self.scale == "log" else np.full_like(value, self.width)

    def size(self, value: ArrayLike) -> Array:
        """The size of values that a small change of them is measured by, in `unit`: not 0 where they are."""
        least = self.low if self.low > 0 else max(abs(self.low), abs(self.high))
        return np.maximum(np.abs(np.asarray(value, np.float64)), _LEAST_SIZE * least)


def adjusted(
    law: str, parameter: Parameter, limits: tuple[float, float] | None, fixed: float | None
) -> Parameter:
    """`parameter` with the user's range or fixed value, both checked."""
    if limits is not None:
        low, high = (float(limit) for limit in limits)
        if not (np.isfinite([low, high]).all() and low < high) or (
            parameter.scale == "log" and low <= 0
        ):
            condition = "0 < low < high" if parameter.scale == "log" else "low < high"
            raise InputError(
                f"range of {parameter.name} (law {law}) is {low:g} to {high:g} {parameter.unit}; "
                f"give {condition}, e.g. --config.ranges.{parameter.name}={parameter.low:g},{parameter.high:g}"
            )
        parameter = dataclasses.replace(parameter, low=low, high=high)
    if fixed is not None:
        if not np.isfinite(fixed) or (parameter.low > 0 and fixed <= 0):
            raise InputError(
                f"fixed {parameter.name} (law {law}) is {fixed:g} {parameter.unit}; give a positive number"
            )
        parameter = dataclasses.replace(parameter, fixed=float(fixed))
    return parameter
