"""Numbers and units as laboratories write them, and the factor of each unit to plain strain, MPa, N or mm."""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from tfmat.errors import InputError, nearest

# A text table holds strings; a sheet's own numbers are numbers already.
Cell = str | float
DecimalMark = Literal[".", ","]

# Signs and separators of thousands that are never a decimal mark.
_CHARACTERS = {ord(c): None for c in "\u00a0\u202f\u2009'’"} | {ord("−"): "-"}
# Every expression here is linear in the length of a cell: no character can be matched in two places.
_NUMBER = re.compile(r"[+-]?[.,]*\d[\d.,]*([eEdD][+-]?\d+)?")
_GROUPED_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?([eE][+-]?\d+)?")
_GROUPED_COMMAS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")
Quantity = Literal["strain", "stress", "load", "displacement"]

_POUND_FORCE = 4.4482216152605  # N
_KILOPOND = 9.80665  # N, a kilogram-force
_INCH = 25.4  # mm

# A unit of stress may also be any load over any area, and a unit of strain any length over any length.
STRAIN_UNITS: dict[str, float] = {
    "-": 1.0,
    "%": 1e-2,
    "‰": 1e-3,
    "mm/mm": 1.0,
    "microstrain": 1e-6,
    "stretch": 1.0,  # and 1 is taken off: see `read_strain`
}
STRESS_UNITS: dict[str, float] = {
    "MPa": 1.0,
    "GPa": 1e3,
    "kPa": 1e-3,
    "Pa": 1e-6,
    "psi": _POUND_FORCE / _INCH**2,
    "ksi": 1e3 * _POUND_FORCE / _INCH**2,
    "Msi": 1e6 * _POUND_FORCE / _INCH**2,
    "tsi": 2240 * _POUND_FORCE / _INCH**2,  # long tons
    "bar": 0.1,
    "atm": 0.101325,
    "N/mm2": 1.0,
    "kgf/mm2": _KILOPOND,
    "kgf/cm2": _KILOPOND / 100,
}
LOAD_UNITS: dict[str, float] = {
    "N": 1.0,
    "kN": 1e3,
    "daN": 10.0,
    "cN": 1e-2,
    "MN": 1e6,
    "mN": 1e-3,
    "lbf": _POUND_FORCE,
    "kip": 1e3 * _POUND_FORCE,
    "kgf": _KILOPOND,
    "gf": 1e-3 * _KILOPOND,
    "tf": 1e3 * _KILOPOND,
    "dyn": 1e-5,
}
DISPLACEMENT_UNITS: dict[str, float] = {
    "mm": 1.0,
    "um": 1e-3,
    "nm": 1e-6,
    "cm": 10.0,
    "m": 1e3,
    "in": _INCH,
    "mil": _INCH / 1e3,
}
AREA_UNITS: dict[str, float] = {"mm2": 1.0, "cm2": 100.0, "m2": 1e6, "in2": _INCH**2}
UNITS: dict[Quantity, dict[str, float]] = {
    "strain": STRAIN_UNITS,
    "stress": STRESS_UNITS,
    "load": LOAD_UNITS,
    "displacement": DISPLACEMENT_UNITS,
}

# Lower-case spellings found in headers, besides the names above, as `_spelling` leaves them.
_SPELLINGS = {
    **dict.fromkeys(("percent", "pct", "prozent", "pourcent", "%strain", "10-2", "%el"), "%"),
    **dict.fromkeys(("permille", "permil", "promille", "0/00", "millistrain", "mstrain"), "‰"),
    **dict.fromkeys(("10-3", "1e-3", "x10-3", "*10-3"), "‰"),
    **dict.fromkeys(
        ("", "1", "strain", "ratio", "fraction", "frac", "unitless", "dimensionless", "none", "--"),
        "-",
    ),
    **dict.fromkeys(("mmmm", "inin"), "mm/mm"),
    **dict.fromkeys(("ue", "um/m", "ustrain", "ustr", "microepsilon", "ppm"), "microstrain"),
    **dict.fromkeys(("10-6", "1e-6", "x10-6", "*10-6"), "microstrain"),
    **dict.fromkeys(("lb", "lbs", "pound", "pounds", "poundforce", "lb-f"), "lbf"),
    **dict.fromkeys(("kips", "klbf", "klb"), "kip"),
    **dict.fromkeys(("newton", "newtons"), "N"),
    **dict.fromkeys(("kilonewton", "kilonewtons"), "kN"),
    **dict.fromkeys(("kg", "kp", "kg-f", "kgs"), "kgf"),
    **dict.fromkeys(("dyne", "dynes"), "dyn"),
    **dict.fromkeys(("inch", "inches", '"', "zoll", "pouces"), "in"),
    **dict.fromkeys(("micron", "microns"), "um"),
    **dict.fromkeys(("mils", "thou"), "mil"),
    **dict.fromkeys(("millimeter", "millimeters", "millimetre", "millimetres"), "mm"),
    **dict.fromkeys(("megapascal", "megapascals"), "MPa"),
    **dict.fromkeys(("sqmm", "mmsq"), "mm2"),
    **dict.fromkeys(("sqcm", "cmsq"), "cm2"),
    **dict.fromkeys(("sqin", "insq"), "in2"),
}
# Letters of a unit that are written in several ways.
_UNIT_LETTERS = {ord("μ"): "u", ord("ε"): "e", ord("ɛ"): "e", ord("ϵ"): "e", ord("−"): "-"} | {
    ord("×"): "x",
    ord("∗"): "*",
}
# No unit is longer, in letters.
_LONGEST_UNIT = 24
# A longer cell is no column's name and unit, in letters; the search for a unit grows with its square.
LONGEST_HEADER = 250
# Words that name a unit in brackets, and something else in a row of words.
_NO_BARE_UNIT = {"", "1", "-", "--", "strain", "ratio", "fraction", "frac", "none", "stretch"}
# Words that say in brackets what a column is, and not its unit: `Ext.1(Strain)`.
NAMES_IN_BRACKETS = {"strain", "stretch"}
# Units that are ordinary words or a specimen's letter where no name stands before them.
_UNIT_AT_END_ONLY = {"in", "m", "n", '"'}
# A unit has up to so many words: `N / mm²`, `lb per sq in`.
_MOST_UNIT_WORDS = 4


def word_set(words: str) -> set[str]:
    """The words of a text, plain, as headers are searched for them."""
    return set(plain(words).split())


def plain(text: str) -> str:
    """A text without case, accents and forms of letters, so that two spellings of one word are the same."""
    decomposed = unicodedata.normalize("NFKD", text.strip().casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


_BRACKETS = re.compile(r"[\[({<（［]([^\[\](){}<>（）［］]*)[\])}>）］]")


def looks_like_a_number(cell: Cell) -> bool:
    """Whether a cell is a number in any notation (NaN and infinity are: they are refused later, by line)."""
    if not isinstance(cell, str):
        return True
    try:
        # By far the most cells.
        float("" if "_" in cell else cell)
        return True
    except ValueError:
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
    text = cell.strip().translate(_CHARACTERS)
    return re.sub(r"(?<=\d) (?=\d{3})", "", text) if " " in text else text


class Unit(NamedTuple):
    """A known unit: what it measures, its name here, and its factor to -, MPa, N or mm."""

    quantity: Quantity
    name: str
    factor: float


@functools.lru_cache(maxsize=4096)
def find_unit(text: str) -> Unit | None:
    """The unit that `text` is a spelling of, or None. Upper and lower case are the same but for mN and MN."""
    if len(text) > _LONGEST_UNIT:
        return None
    spelling = _spelling(text)
    for quantity, units in UNITS.items():
        name = _name_in(units, spelling)
        if name is not None:
            return Unit(quantity, name, units[name])
    above, _, below = (
        re.sub(r"(mm|cm|m|in)-2$", r"/\g<1>2", spelling).replace("per", "/").partition("/")
    )
    for quantity, units, over in (
        ("stress", LOAD_UNITS, AREA_UNITS),
        ("strain", DISPLACEMENT_UNITS, DISPLACEMENT_UNITS),
    ):
        names = _name_in(units, above), _name_in(over, below)
        if names[0] is not None and names[1] is not None:
            factor = units[names[0]] / over[names[1]]
            return Unit(quantity, "/".join(names), factor)  # type: ignore[arg-type]
    return None


def find_size(text: str, units: Mapping[str, float]) -> float | None:
    """The factor of a unit of length or area, or None."""
    name = _name_in(units, _spelling(text))
    return None if name is None else units[name]


def _spelling(text: str) -> str:
    """A unit without blanks, powers' signs and forms of letters: `N / mm²` and `N/mm^2` are `N/mm2`."""
    text = unicodedata.normalize("NFKC", text).strip().strip("[](){}<>").translate(_UNIT_LETTERS)
    return re.sub(r"[\s^.·_]|\*\*", "", text)


def _name_in(units: Mapping[str, float], spelling: str) -> str | None:
    spelling = _SPELLINGS.get(spelling.lower(), spelling)
    if spelling in units:
        return spelling
    alike = [name for name in units if name.lower() == spelling.lower()]
    return alike[0] if len(alike) == 1 else None


def axis_unit(text: str, axis: Literal["strain", "stress"], column: str | None = None) -> Unit:
    """The unit of a strain axis (a strain or a displacement) or stress axis (a stress or a load).

    Args:
      column: the header that says so; None where the user does, who may have mistyped.

    Raises:
      InputError: it is unknown, or one of the other axis.
    """
    quantities: tuple[Quantity, ...] = (
        ("strain", "displacement") if axis == "strain" else ("stress", "load")
    )
    unit = find_unit(text)
    if unit is None or unit.quantity not in quantities:
        text = text if len(text) <= _LONGEST_UNIT else f"{text[:_LONGEST_UNIT]}…"
        valid = [name for quantity in quantities for name in UNITS[quantity]]
        if column is not None:
            # The most similar unit would be another one, with another factor.
            raise InputError(
                f"unknown {axis} unit '{text}' in column '{column}'; if it is none, or if you convert the column, say "
                f"its unit with --{axis}_unit (valid: {', '.join(valid)})"
            )
        hint = nearest(text, valid)
        if "did you mean" in hint:
            hint += f" (valid: {', '.join(valid)})"
        raise InputError(f"unknown {axis} unit '{text}'{hint}; set it with --{axis}_unit")
    return unit


def split_header(
    header: str, is_unit: Callable[[str], object] = find_unit
) -> tuple[str, str | None]:
    """Splits a column's header into name and unit: `stress [ksi]`, `strain_%`, `σ / MPa`, `Kraft in kN`, `% strain`.

    The unit is as the user wrote it, or None where no known one is named.
    """
    header = " ".join(header.split())
    if len(header) > LONGEST_HEADER:
        return header, None
    if "strain" in header.lower() and header.lower() not in _NO_BARE_UNIT and is_unit(header):
        return header, header  # `Microstrain`
    for brackets in reversed(list(_BRACKETS.finditer(header))):
        content = brackets[1].strip()
        name = " ".join((header[: brackets.start()] + header[brackets.end() :]).split())
        if name and content.lower() not in NAMES_IN_BRACKETS and is_unit(content):
            return name, content
    words = [part for word in re.split(r"[\s_,;:]+", header) for part in _halves(word, is_unit)]
    for end in range(len(words), 0, -1):
        for start in range(max(0, end - _MOST_UNIT_WORDS), end):
            text = " ".join(words[start:end]).strip("/ ")
            rest = words[:start] + words[end:]
            is_last = start > 0 and end == len(words)
            if (
                not [word for word in rest if word.strip("/-")]
                or text.lower() in _NO_BARE_UNIT
                or (text.lower() in _UNIT_AT_END_ONLY and not is_last)
                or re.search(r"[\[\](){}<>]", text)
                or not is_unit(text)
            ):
                continue
            if not is_last:
                return " ".join(word for word in rest if word.strip("/-")), text
            # Underscores and signs inside of the name stay.
            name = header[: header.rfind(text.split()[0])].rstrip(" _,;:/-")
            return name.removesuffix(" in").rstrip(), text
    return header, None


def _halves(word: str, is_unit: Callable[[str], object]) -> list[str]:
    """`σ/MPa`, `Strain-%`, `Strain%` and `%strain` as name and unit; any other word alone."""
    for sign in "%‰":
        if len(word) > 1 and word.endswith(sign):
            return [word[:-1], sign]
        if len(word) > 1 and word.startswith(sign):
            return [sign, word[1:]]
    for sign in "/-":
        name, _, unit = word.partition(sign)
        if name and unit and not is_unit(word) and is_unit(unit):
            return [name, unit]
    return [word] if word else []
