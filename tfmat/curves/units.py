"""Numbers and units as laboratories write them, and the factor of each unit to plain strain, MPa, N or mm."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from tfmat.errors import InputError, nearest

# A text table holds strings; a sheet's own numbers are numbers already.
Cell = str | float
DecimalMark = Literal[".", ","]

# Signs and separators of thousands that are never a decimal mark.
_CHARACTERS = {ord(c): None for c in "\u00a0\u202f\u2009'’"} | {ord("−"): "-"}
_NUMBER = re.compile(r"[+-]?[\d.,]*\d[\d.,]*([eEdD][+-]?\d+)?")
_GROUPED_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?([eE][+-]?\d+)?")
_GROUPED_COMMAS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")
Quantity = Literal["strain", "stress", "load", "displacement"]

_POUND_FORCE = 4.4482216152605  # N
_INCH = 25.4  # mm

STRAIN_UNITS: dict[str, float] = {
    "-": 1.0,
    "%": 1e-2,
    "mm/mm": 1.0,
    "microstrain": 1e-6,
    "stretch": 1.0,  # and 1 is taken off: see `to_strain`
}
STRESS_UNITS: dict[str, float] = {
    "MPa": 1.0,
    "GPa": 1e3,
    "kPa": 1e-3,
    "Pa": 1e-6,
    "psi": _POUND_FORCE / _INCH**2,
    "ksi": 1000 * _POUND_FORCE / _INCH**2,
    "N/mm2": 1.0,
}
LOAD_UNITS: dict[str, float] = {"N": 1.0, "kN": 1e3, "lbf": _POUND_FORCE, "kip": 1e3 * _POUND_FORCE}
DISPLACEMENT_UNITS: dict[str, float] = {"mm": 1.0, "um": 1e-3, "m": 1e3, "in": _INCH}
UNITS: dict[Quantity, dict[str, float]] = {
    "strain": STRAIN_UNITS,
    "stress": STRESS_UNITS,
    "load": LOAD_UNITS,
    "displacement": DISPLACEMENT_UNITS,
}

# Lower-case spellings found in headers, besides the names above.
_SPELLINGS = {
    **dict.fromkeys(("n/mm²", "n/mm^2", "n mm-2", "n/sqmm", "n/mm**2"), "N/mm2"),
    **dict.fromkeys(("percent", "pct", "prozent", "% strain"), "%"),
    **dict.fromkeys(("m/m", "in/in", "in./in.", "in/in.", "strain", "1", ""), "-"),
    **dict.fromkeys(
        ("µε", "με", "ue", "µm/m", "μm/m", "um/m", "µstrain", "ustrain"), "microstrain"
    ),
    **dict.fromkeys(("micro strain", "micro-strain", "1e-6", "ppm", "µɛ"), "microstrain"),
    **dict.fromkeys(("lb", "lbs", "pounds", "lb-f", "lb_f"), "lbf"),
    **dict.fromkeys(("kips", "klbf"), "kip"),
    **dict.fromkeys(("newton", "newtons"), "N"),
    **dict.fromkeys(("inch", "inches", '"', "in."), "in"),
    **dict.fromkeys(("µm", "μm", "micron", "microns"), "um"),
    **dict.fromkeys(("megapascal", "megapascals"), "MPa"),
}


def word_set(words: str) -> set[str]:
    """The words of a text, as headers are searched for them."""
    return set(words.split())


# What stands in brackets behind a name and is no unit.
_QUALIFIERS = word_set(
    """
    engineering eng nominal true log logarithmic hencky cauchy technical axial average avg mean
    corrected extensometer extenso ext gauge gage machine crosshead dic video filtered raw
    calculated measured shear tensile total
    """
)
_BRACKETS = re.compile(r"[\[({]([^\[\](){}]*)[\])}]")


def looks_like_a_number(cell: Cell) -> bool:
    """Whether a cell is a number in any notation (NaN and infinity are: they are refused later, by line)."""
    if not isinstance(cell, str):
        return True
    text = _plain(cell)
    return bool(_NUMBER.fullmatch(text)) or text.lower().lstrip("+-") in ("nan", "inf", "infinity")


def decimal_mark(cells: Iterable[Cell]) -> DecimalMark:
    """The decimal mark of a file, from all its cells; a point where nothing says otherwise.

    Raises:
      InputError: the cells contradict each other, or could be read in two ways (`1,234`).
    """
    seen: dict[str, str] = {}
    doubtful = ""
    for cell in cells:
        if not isinstance(cell, str) or ("," not in cell and "." not in cell):
            continue
        text = _plain(cell)
        if "," not in text:
            grouped = _GROUPED_POINTS.fullmatch(text)
            if text.count(".") > 1 and grouped:
                seen.setdefault(",", cell)
            elif not grouped:
                seen.setdefault(".", cell)
        elif "." in text:
            seen.setdefault("," if text.rindex(",") > text.rindex(".") else ".", cell)
        elif text.count(",") > 1:
            seen.setdefault(".", cell)
        elif _GROUPED_COMMAS.fullmatch(text) and not re.match(r"[+-]?0", text):
            doubtful = doubtful or cell
        else:
            seen.setdefault(",", cell)
    if len(seen) == 2:
        raise InputError(
            f"it mixes decimal points ('{seen['.'].strip()}') and commas ('{seen[','].strip()}'); say which holds "
            "with --decimal=point or --decimal=comma"
        )
    if doubtful and not seen:
        raise InputError(
            f"'{doubtful.strip()}' may be a decimal comma or a separator of thousands; say --decimal=comma or "
            "--decimal=point"
        )
    return "," if "," in seen else "."


def number(cell: Cell, mark: DecimalMark) -> float | None:
    """The value of a cell, or None where it is no number with this decimal mark."""
    if not isinstance(cell, str):
        return float(cell)
    try:
        # By far the most cells.
        if "," not in cell and mark == "." and "_" not in cell:
            return float(cell)
    except ValueError:
        pass
    text = _plain(cell)
    if mark == ",":
        if "." in text and not _GROUPED_POINTS.fullmatch(text):
            return None
        text = text.replace(".", "").replace(",", ".")
    elif "," in text:
        if not _GROUPED_COMMAS.fullmatch(text):
            return None
        text = text.replace(",", "")
    try:
        return None if "_" in text else float(re.sub("[dD](?=[+-]?\\d+$)", "e", text))
    except ValueError:
        return None


def _plain(cell: str) -> str:
    return re.sub(r"(?<=\d) (?=\d{3})", "", cell.strip().translate(_CHARACTERS))


class Unit(NamedTuple):
    """A known unit: what it measures, its name here, and its factor to -, MPa, N or mm."""

    quantity: Quantity
    name: str
    factor: float


def find_unit(text: str) -> Unit | None:
    """The unit that `text` is a spelling of, or None. Upper and lower case are the same."""
    spelling = " ".join(text.strip().strip("[](){}").split()).lower()
    spelling = _SPELLINGS.get(spelling, spelling).lower()
    for quantity, units in UNITS.items():
        for name, factor in units.items():
            if name.lower() == spelling:
                return Unit(quantity, name, factor)
    return None


def axis_unit(text: str, axis: Literal["strain", "stress"]) -> Unit:
    """The unit of a strain axis (a strain or a displacement) or stress axis (a stress or a load).

    Raises:
      InputError: it is unknown, or one of the other axis.
    """
    quantities: tuple[Quantity, ...] = (
        ("strain", "displacement") if axis == "strain" else ("stress", "load")
    )
    unit = find_unit(text)
    if unit is None or unit.quantity not in quantities:
        valid = [name for quantity in quantities for name in UNITS[quantity]]
        hint = nearest(text, valid)
        if "did you mean" in hint:
            hint += f" (valid: {', '.join(valid)})"
        raise InputError(f"unknown {axis} unit '{text}'{hint}; set it with --{axis}_unit")
    return unit


def split_header(header: str) -> tuple[str, str | None]:
    """Splits a column's header into name and unit: `stress [ksi]`, `strain_%`, `σ / MPa`, `Kraft in kN`.

    The unit is as the user wrote it (so that an unknown one in brackets can be refused by name), or None.
    """
    header = " ".join(header.split())
    for brackets in reversed(list(_BRACKETS.finditer(header))):
        content, last = brackets[1].strip(), brackets.end() == len(header)
        name = " ".join((header[: brackets.start()] + header[brackets.end() :]).split())
        if name and (find_unit(content) or (last and _looks_like_a_unit(content))):
            return name, content
    # Without brackets only a known unit counts, and only at the end.
    for separator in (" ", "_", ",", "/"):
        for place in [m.start() for m in re.finditer(re.escape(separator), header)]:
            name, text = header[:place], header[place + 1 :].strip()
            known = not re.search(r"[\[\](){}]", text) and find_unit(text)
            if name.strip() and text not in ("", "1", "strain") and known:
                return re.sub(r"(\s+in|[\s_,/:]+)+$", "", name) or name, text
    return header, None


def _looks_like_a_unit(text: str) -> bool:
    """Whether the last brackets of a header are rather an unknown unit than a remark."""
    words = re.findall(r"[a-z]+", text.lower())
    if any(word in _QUALIFIERS for word in words) or len(words) > 2:
        return False
    return not re.fullmatch(r"\d+|[A-Za-z]?\d+|.{9,}", text)
