"""Units of measured columns: what labs write, as factors to MPa and to plain strain."""

import re

from tfmat.errors import InputError, nearest

STRESS_UNITS: dict[str, float] = {
    "MPa": 1.0,
    "GPa": 1e3,
    "kPa": 1e-3,
    "Pa": 1e-6,
    "psi": 6.894757293168361e-3,
    "ksi": 6.894757293168361,
    "N/mm2": 1.0,
}
STRAIN_UNITS: dict[str, float] = {"-": 1.0, "%": 1e-2}

# Lower-case spellings found in headers, besides the names above.
_SPELLINGS = {
    "n/mm²": "N/mm2",
    "n/mm^2": "N/mm2",
    "n mm-2": "N/mm2",
    "percent": "%",
    "pct": "%",
    "mm/mm": "-",
    "m/m": "-",
    "in/in": "-",
    "1": "-",
    "": "-",
}
_BRACKETS = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\])]*)[\])]\s*$")


def stress_factor(unit: str) -> float:
    """MPa per `unit`; InputError for a unit that is not known."""
    return STRESS_UNITS[_known(unit, STRESS_UNITS, "stress")]


def strain_factor(unit: str) -> float:
    """Plain strain per `unit`; InputError for a unit that is not known."""
    return STRAIN_UNITS[_known(unit, STRAIN_UNITS, "strain")]


def split_header(header: str) -> tuple[str, str | None]:
    """Splits a column's header into name and unit: `stress [ksi]`, `stress (MPa)`, `strain_%`, `stress_ksi`.

    The unit is as the user wrote it (so an unknown one in brackets can be refused by name), or None.
    """
    header = header.strip()
    brackets = _BRACKETS.match(header)
    if brackets and brackets["name"]:
        return brackets["name"].strip(), brackets["unit"].strip()
    # Without brackets only a known unit counts, and only as the last word.
    words = re.split(r"[\s_,]+", header)
    if (
        len(words) > 1
        and words[-1] != "1"
        and _spelled(words[-1], {**STRESS_UNITS, **STRAIN_UNITS})
    ):
        return header[: -len(words[-1])].rstrip(" _,"), words[-1]
    return header, None


def _spelled(unit: str, units: dict[str, float]) -> str | None:
    """The name in `units` that `unit` is a spelling of, or None. Case counts only where it would change the unit."""
    unit = unit.strip()
    by_spelling = {name.lower(): name for name in units}
    spelling = unit.lower()
    name = by_spelling.get(spelling) or _SPELLINGS.get(spelling)
    return name if name in units else None


def _known(unit: str, units: dict[str, float], quantity: str) -> str:
    name = _spelled(unit, units)
    if name is None:
        hint = nearest(unit, units)
        if "did you mean" in hint:
            hint += f" (valid: {', '.join(units)})"
        raise InputError(f"unknown {quantity} unit '{unit}'{hint}; set it with --{quantity}_unit")
    return name
