"""What in a file speaks for inches and pounds, although no unit stands at its stress."""

import re

import numpy as np

from tfmat.curves.columns import columns_named
from tfmat.curves.conditions import fahrenheit_of_rankine
from tfmat.curves.numbers import DecimalMark, number
from tfmat.curves.tables import Table
from tfmat.curves.units import find_unit, split_header
from tfmat.materials.law import Array

_US_UNITS = {"in", "lbf", "kip", "psi", "ksi"}
# No extensometer and no specimen is that short in millimetres; in inches, 1 and 2 are the lengths of ASTM E8.
_SHORTEST_GAUGE_MM, _SHORTEST_GAUGE_INCH = 2.5, 0.05


def us_unit_hints(table: Table, strain: Array, mark: DecimalMark) -> tuple[str, ...]:
    """The signs that a file is in US units, each in a few words; empty where there are none.

    Args:
      strain: [rows], plain, as read from the table.
    """
    hints = []
    for header, unit in zip(table.header, table.units, strict=False):
        text = unit or split_header(header)[1]
        known = find_unit(text) if text else None
        if known is not None and known.name in _US_UNITS:
            hints.append(f"column '{split_header(header)[0]}' is in {known.name}")
        elif re.search(r"temp", header, re.IGNORECASE) and re.search(r"\b°?[FR]\b", text or ""):
            hints.append(f"column '{header}' is in degrees {text}")
    for name, text in table.notes.items():
        fahrenheit = fahrenheit_of_rankine(text) if "temp" in name.lower() else None
        if fahrenheit is not None:
            hints.append(f"the {name} {text} is {fahrenheit} °F in degrees Rankine")
    length = _gauge_length(table, strain, mark)
    if length is not None and _SHORTEST_GAUGE_INCH < length < _SHORTEST_GAUGE_MM:
        hints.append(
            f"displacement over strain is {length:.2g}, a gauge length in inches and not in mm"
        )
    return tuple(hints)


def _gauge_length(table: Table, strain: Array, mark: DecimalMark) -> float | None:
    """Displacement over strain where both are large, in the displacement's own numbers; None where it has a unit."""
    columns = [
        i
        for i in columns_named(table, "displacement")
        if not (table.units[i] or split_header(table.header[i])[1])
    ]
    if len(columns) != 1:
        return None
    cells = [
        number(row[columns[0]], mark) if columns[0] < len(row) else None for _, row in table.rows
    ]
    displacement = np.array([np.nan if value is None else value for value in cells])
    large = strain > 0.5 * strain.max()
    if strain.max() < 1e-3 or not np.isfinite(displacement[large]).all():
        return None
    return float(np.median(displacement[large] / strain[large]))
