"""What the user says about measured files."""

import dataclasses

import numpy as np

from tfmat.curves.units import axis_unit
from tfmat.errors import InputError

_CHOICES = {
    "strain_measure": ("engineering", "true"),
    "stress_measure": ("engineering", "true"),
    "shear_strain": ("engineering", "tensor"),
    "decimal": ("point", "comma"),
}


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """What the user says about the files; None means: find out. Checked on creation, InputError names the flag.

    Attributes:
      strain_column, stress_column: names of the columns, or their numbers counted from 1.
      strain_unit, stress_unit: see `units`; a length (force) says that the column is a displacement (load).
      specimen_column: name of the column that tells several curves of a file apart; `none` is one curve a table.
      sheet: name of a workbook's sheet; None is every sheet that holds a table.
      strain_measure, stress_measure: `engineering` or `true`.
      shear_strain: `engineering` (gamma) or `tensor` (epsilon12 = gamma / 2).
      area: cross-section in mm², for a load; gauge_length: in mm, for a displacement.
      decimal: `point` or `comma`.
    """

    strain_column: str | None = None
    stress_column: str | None = None
    strain_unit: str | None = None
    stress_unit: str | None = None
    specimen_column: str | None = None
    sheet: str | None = None
    strain_measure: str | None = None
    stress_measure: str | None = None
    shear_strain: str | None = None
    area: float | None = None
    gauge_length: float | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        for axis, unit in (("strain", self.strain_unit), ("stress", self.stress_unit)):
            if unit is not None:
                axis_unit(unit, axis)  # type: ignore[arg-type]
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise InputError(f"--{name} is '{value}'; give {' or '.join(choices)}")
        for name, unit in (("area", "mm²"), ("gauge_length", "mm")):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InputError(f"--{name} is {value:g}; give a positive number in {unit}")
