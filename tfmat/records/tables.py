"""An exported file as a table: its rows of cells, names and units, numbers as laboratories write them."""

import contextlib
import csv
import dataclasses
import functools
import glob
import heapq
import io
import itertools
import json
import operator
import os
import pathlib
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tfmat.errors import InputError, nearest
from tfmat.files import literal

# --------------------------------------------------------------------------------------------------
# Numbers and units as laboratories write them, and the factor of each unit to plain strain, MPa, N or mm.


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
    "rad": 1.0,
    "mrad": 1e-3,
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
    "hbar": 10.0,
    "kbar": 100.0,
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
    "GN": 1e9,
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
    "uin": _INCH / 1e6,
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
    **dict.fromkeys(
        ("permille", "permil", "promille", "0/00", "o/oo", "millistrain", "mstrain", "me"), "‰"
    ),
    **dict.fromkeys(("10-3", "1e-3", "x10-3", "*10-3"), "‰"),
    **dict.fromkeys(
        ("", "1", "strain", "ratio", "fraction", "frac", "unitless", "dimensionless", "none", "--"),
        "-",
    ),
    **dict.fromkeys(("mmmm", "inin"), "mm/mm"),
    **dict.fromkeys(("ue", "um/m", "ustrain", "ustr", "microepsilon", "ppm"), "microstrain"),
    **dict.fromkeys(("u-strain", "micro-strain", "microstrains"), "microstrain"),
    **dict.fromkeys(("10-6", "1e-6", "x10-6", "*10-6", "x1e-6", "*1e-6"), "microstrain"),
    **dict.fromkeys(("kpsi", "psik"), "ksi"),
    **dict.fromkeys(("mpsi", "psim"), "Msi"),
    **dict.fromkeys(("lb", "lbs", "pound", "pounds", "poundforce", "lb-f"), "lbf"),
    **dict.fromkeys(("kips", "klbf", "klb"), "kip"),
    **dict.fromkeys(("newton", "newtons", "н"), "N"),
    **dict.fromkeys(("kilonewton", "kilonewtons", "кн"), "kN"),
    **dict.fromkeys(("kg", "kp", "kg-f", "kgs", "кгс"), "kgf"),
    **dict.fromkeys(("dyne", "dynes"), "dyn"),
    **dict.fromkeys(("inch", "inches", '"', "zoll", "pouces"), "in"),
    **dict.fromkeys(("micron", "microns"), "um"),
    **dict.fromkeys(("mils", "thou"), "mil"),
    **dict.fromkeys(("millimeter", "millimeters", "millimetre", "millimetres", "мм"), "mm"),
    **dict.fromkeys(("megapascal", "megapascals", "мпа"), "MPa"),
    **dict.fromkeys(("мм2",), "mm2"),
    **dict.fromkeys(("sqmm", "mmsq"), "mm2"),
    **dict.fromkeys(("sqcm", "cmsq"), "cm2"),
    **dict.fromkeys(("sqin", "insq"), "in2"),
}
# _POWER: a power of ten beside a unit is a part of it, `10³ psi`, `psi·10^6`, `10⁶ Pa`; the prefix for it.
_POWER = re.compile(r"\s{0,2}[x×·*]?\s{0,2}10(?:\^|\*\*)?(?:(³|(?<=[\^*])3)|⁶|(?<=[\^*])6)(?!\d)")
# Letters of a unit that are written in several ways.
_UNIT_LETTERS = {ord("μ"): "u", ord("ε"): "e", ord("ɛ"): "e", ord("ϵ"): "e", ord("−"): "-"} | {
    ord("×"): "x",
    ord("∗"): "*",
}
# No unit is longer, in letters.
_LONGEST_UNIT = 24
# A longer cell is no column's name and unit, in letters; the search for a unit grows with its square.
LONGEST_HEADER = 250
# _FEWEST_GROUPED: cells `1.234` beside as many whole numbers, which a point may group by thousands.
_FEWEST_GROUPED = 10
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
    # The sign of an increment looks like the letter.
    decomposed = unicodedata.normalize("NFKD", text.strip().replace("∆", "Δ").casefold())
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
    whole, by_points = 0, []
    for cell in cells:
        if "." in seen and isinstance(cell, str) and "," not in cell and cell.count(".") < 2:
            continue  # by far the most cells: another decimal point
        if not isinstance(cell, str) or ("," not in cell and "." not in cell):
            whole += isinstance(cell, str) and cell.strip("+-0 ").isdecimal()
            continue
        text = _plain(cell)
        if "," not in text:
            grouped = _GROUPED_POINTS.fullmatch(text)
            if text.count(".") > 1 and grouped:
                seen.setdefault(",", cell)
            elif not grouped or text.lstrip("+-").startswith("0"):
                seen.setdefault(".", cell)
            else:
                by_points.append(cell)
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
    if min(whole, len(by_points)) >= _FEWEST_GROUPED:
        doubtful = doubtful or by_points[0]
    if doubtful and not seen:
        mark = "comma" if "," in doubtful else "point"
        raise InputError(
            f"'{doubtful.strip()}' may be a decimal {mark} or a separator of thousands; say --decimal=comma or "
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
    name = _name_in(units, _spelling(text)) if len(text) <= _LONGEST_UNIT else None
    return None if name is None else units[name]


def _spelling(text: str) -> str:
    """A unit without blanks, powers' signs and forms of letters: `N / mm²` and `N/mm^2` are `N/mm2`."""
    text = _POWER.sub(lambda match: "k" if match[1] else "M", text)
    text = re.sub(r"[\s·.*](mm|cm|m|in)\^?(?:⁻¹|[-−]1)(?!\d)", r"/\1", text)
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


# _JOINED: a unit behind a name without a space, `力kN` or `StressMPa`.
_JOINED = re.compile(
    r"(.*[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af])([a-zA-Zµμ]\S*)|(.*[a-z]{3})([MGk]?Pa|k?N|[Pp]ercent|[Pp]ct|[Kk]si|[Pp]si)"
)


def _halves(word: str, is_unit: Callable[[str], object]) -> list[str]:
    """`σ/MPa`, `Strain-%`, `Strain%`, `%strain` and `力kN` as name and unit; any other word alone."""
    joined = _JOINED.fullmatch(word)
    if joined and is_unit(joined[2] or joined[4]):
        return [joined[1] or joined[3], joined[2] or joined[4]]
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


# --------------------------------------------------------------------------------------------------
# The files that hold curves: which are meant, and each as rows of cells, whatever its encoding, delimiter or form.
#
# Text is split by the standard library's csv: pandas does not say in which line a word stands among the numbers, and
# wants to know place, delimiter and decimal mark beforehand. Workbooks are read by openpyxl, row by row.


# Files inside a folder that are taken for curves.
CURVE_FILES = (".csv", ".tsv", ".txt", ".dat", ".asc", ".xlsx", ".xlsm")
Row = tuple[int, list[Cell]]

DELIMITERS = {
    "\t": "tab",
    ";": "semicolon",
    "|": "vertical bar",
    " ": "whitespace",
    ",": "comma",
}
# Lines that the delimiter is found from.
_SAMPLE = 300
# _LAST_NAMES: lines in which names with line breaks are looked for.
_LAST_NAMES = 49
# _MOST_BREAKS: line breaks inside the quotes of one line of names.
_MOST_BREAKS = 12
# _OPENS: a cell's quote that its line does not close; other quotes stand for inches.
_OPENS = re.compile(r"(?:^|[,;\t])\s*\"[^\"]*$")
# _ENCODINGS: older encodings, their names, and parts of columns' names that no other text shows when it is read so.
_ENCODINGS = {
    "cp932": ("Shift-JIS", "応力|ひずみ|荷重|試験力|変位|ストローク|時間"),
    "gb18030": ("GB18030", "应力|应变|试验力|载荷|负荷|位移|变形|时间"),
    "big5": ("Big5", "應力|應變|試驗力|載荷|荷重|位移|變形|時間"),
    "cp949": ("Korean (CP949)", "응력|변형률|하중|변위|시간"),
    "cp1251": ("Windows-1251", "напряж|деформ|нагруз|усил|перемещ|удлин"),
    "cp1250": (
        "Windows-1250",
        "naprężeni|odkształ|wydłuż|siła|napět|napät|síla|prodlouž|predĺž|nyúlás",
    ),
    "cp1254": ("Windows-1254", "şekil|gerilme|birim|süre"),
}
# _LARGEST_FILE: bytes of a file, and of a workbook unpacked; more is no record of a test, and fills the memory.
_LARGEST_FILE = 200_000_000
# _LONGEST_LINE: letters of a line; some thousand columns have fewer.
_LONGEST_LINE = 200_000
# _LONGEST_CELL: letters of a cell; a spreadsheet's own limit.
_LONGEST_CELL = 32_767
# _MOST_CELLS: cells of a sheet that hold something; a hundred columns of a hundred thousand rows have as many.
_MOST_CELLS = 10_000_000
WORKBOOK_ENDINGS = (".xlsx", ".xlsm")
_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


def find_files(arguments: Sequence[str]) -> list[str]:
    """The files that the arguments mean, in order: a file itself, a folder's curves, or what a pattern matches.

    Raises:
      InputError: a folder without curves, or a pattern that matches nothing.
    """
    found: list[str] = []
    for argument in arguments:
        if os.path.isdir(argument):
            files = sorted(
                str(path)
                for path in pathlib.Path(argument).rglob("*")
                if path.is_file()
                and path.suffix.lower() in CURVE_FILES
                and not path.name.startswith((".", "~$"))
            )
            if not files:
                raise InputError(
                    f"folder {argument} holds no curves (files that end in {', '.join(CURVE_FILES)})"
                )
            found += files
        elif not os.path.exists(argument) and glob.has_magic(argument):
            files = sorted(
                path for path in glob.glob(argument, recursive=True) if os.path.isfile(path)
            )
            if not files:
                raise InputError(f"no file matches '{argument}'")
            found += files
        else:
            found.append(argument)
    # A file that two arguments mean is read once.
    return list(dict.fromkeys(found))


def read_rows(path: pathlib.Path) -> tuple[list[Row], list[str]]:
    """Rows of a text file as (line number, cells), blank ones left out; and what was found out, in words.

    Raises:
      InputError: not text, empty, or quotes that do not close.
    """
    text, encoding = _decoded(read_bytes(path))
    if "\\begin{tabular" in text or "\\begin{longtable" in text:
        text = _of_latex(text)
    steps = [] if encoding == "UTF-8" else [f"read as {encoding} text"]
    if text.lstrip()[:1] in ("{", "[") and (found := _of_json(text)):
        return found, [*steps, "from the lists of a JSON file"]
    lines = _numbered_lines(text)
    if not lines:
        raise InputError("the file is empty; a header line and a curve are expected")
    delimiter = _delimiter([line for _, line in lines])
    steps.append(f"columns separated by {DELIMITERS[delimiter]}")
    longest = max(len(line) for _, line in lines)
    if delimiter != " " and longest <= _LONGEST_CELL and '"' not in text and "{" not in text:
        # One reader for all lines takes a fifth of the time of one for each.
        split = csv.reader((line for _, line in lines), delimiter=delimiter, skipinitialspace=True)
        rows: list[Row] = [
            (number, [*cells]) for (number, _), cells in zip(lines, split, strict=True)
        ]
        return _with_whole_names(lines, rows, delimiter), steps
    rows = [(number, _split(line, delimiter, number)) for number, line in lines]
    rows = _with_whole_names(lines, rows, delimiter)
    for (number, line), (_, cells) in zip(lines, rows, strict=True):
        if len(line) > _LONGEST_CELL:
            _check_cells(cells, f"line {number}")
    return rows, steps


def _of_json(text: str) -> list[Row]:
    """Rows of names and numbers for each object of JSON with lists, or list of objects; empty where it holds none.

    What stands beside the lists becomes lines above them, and `units` a row of units.
    """
    tables: list[tuple[str, list[list[Cell]]]] = []

    def add(value: Any, name: str, above: list[list[Cell]]) -> None:
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            if any(isinstance(v, list | dict) for v in value[0].values()):
                for number, each in enumerate(value, start=1):
                    add(each, str(each.get("name", number)), above)
                return
            value = {key: [each.get(key) for each in value] for key in value[0]}
        if not isinstance(value, dict):
            return
        value = dict(_column_of_json(key, v) for key, v in _by_columns(value).items())
        lists = {k: v for k, v in value.items() if isinstance(v, list) and not _is_nested(v)}
        plain_values = {k: v for k, v in value.items() if not isinstance(v, list | dict)}
        notes: list[list[Cell]] = [[f"{key}: {v}"] for key, v in plain_values.items()]
        above = [*above, *notes]
        if len(lists) > 1:
            units = value.get("units")
            row = [units.get(key, "-") for key in lists] if isinstance(units, dict) else []
            columns = itertools.zip_longest(*lists.values(), fillvalue=None)
            cells = [["" if v is None else v for v in each] for each in columns]
            tables.append((name, [*above, [*lists], *([row] if row else []), *cells]))
        for key, v in value.items():
            add(v, key, above)

    with contextlib.suppress(ValueError, RecursionError):
        add(json.loads(text), "", [])
    lines: list[list[Cell]] = []
    for name, rows in tables:
        lines += [[f"Specimen: {name}"], *rows] if len(tables) > 1 else rows
    return list(enumerate(lines, start=1))


def _by_columns(value: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON with its rows as columns, where pandas wrote it by rows (`split`, `index`); else as it is."""
    names, rows = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(rows, list) and _is_nested(rows):
        return dict(zip(map(str, names), map(list, zip(*rows, strict=False)), strict=False))
    rows = list(value.values())
    is_plain = all(isinstance(row, dict) and not _is_nested([*row.values()]) for row in rows)
    if len(rows) < MINIMUM_POINTS or not is_plain or not all(map(str.isdecimal, value)):
        return value
    return {key: [row.get(key) for row in rows] for key in rows[0]}


def _column_of_json(key: str, value: Any) -> tuple[str, Any]:
    """Name and list of a column that is an object: its rows by their numbers, or `{"unit": "%", "values": [...]}`."""
    if not isinstance(value, dict) or not value:
        return key, value
    if all(map(str.isdecimal, value)):
        return key, list(value.values())
    lists = [v for v in value.values() if isinstance(v, list) and not _is_nested(v)]
    unit = value.get("unit", value.get("units"))
    return (
        (f"{key} [{unit}]", lists[0]) if isinstance(unit, str) and len(lists) == 1 else (key, value)
    )


def _is_nested(values: list[Any]) -> bool:
    return any(isinstance(value, list | dict) for value in values)


# _LATEX: what stands for letters, units and blanks in a table of LaTeX.
_LATEX = (
    (r"\\\\(\[[^\[\]]*\])?|\\(hline|(top|mid|bottom|c)(rule|line))\b(\{[^{}]*\})?|\$", ""),
    (r"\\(?:mathrm|mathit|text|textbf|textit|si|SI|unit|num)\{([^{}]*)\}", r"\1"),
    (r"\\(?:var)?epsilon\b", "ε"),
    (r"\\sigma\b", "σ"),
    (r"\\mega\\?pascal|\\MPa\b", "MPa"),
    (r"\\(?=[%&#_])|[{}]", ""),
    (r"\\[,;: ]|~", " "),
)


def _of_latex(text: str) -> str:
    """The rows of a LaTeX table with tabs between their cells, and the other lines without commands."""
    lines = []
    for line in text.splitlines():
        is_row = len(re.findall(r"(?<!\\)&", line)) > 0
        line = re.sub(r"(?<!\\)&", "\t", line)
        for command, letters in _LATEX:
            line = re.sub(command, letters, line)
        lines.append("\t".join(map(str.strip, line.split("\t"))) if is_row else "")
    return "\n".join(lines)


# _MOST_NAMES: lines above the numbers that may hold names, units and comments.
_MOST_NAMES = 3
# _NAMES_APART: what may stand between names where it does not stand between the numbers below them.
_NAMES_APART = (r"\s{2,}|\t", ",", ";")

# _ABAQUS: its short names of quantities that stand before a component, as in `RF:RF2`.
_ABAQUS = {"E": "strain", "NE": "nominal strain", "U": "displacement", "RF": "force"}


def _with_whole_names(lines: list[tuple[int, str]], rows: list[Row], delimiter: str) -> list[Row]:
    """The rows, with lines of names that are divided by something else than the numbers below them divided so.

    `Axial Force   Axial Strain` over columns of blanks, or `# strain, stress`.
    """
    sample = rows[len(rows) // 5 :][:_SAMPLE]
    widths = [len(cells) for _, cells in sample if _all_numbers(cells, len(cells))]
    width = max(set(widths), key=widths.count, default=0)
    begins = (i for i, (_, cells) in enumerate(rows[:_SAMPLE]) if _all_numbers(cells, width))
    first, rows = next(begins, 0), list(rows)
    for i in range(max(first - _MOST_NAMES, 0), first):
        (number, cells), (_, line) = rows[i], lines[i]
        is_divided = len(cells) == width or (len(cells) > 1 and delimiter != " ")
        # Abaqus writes `X   LE:LE22 PI: PART-1-1 E: 1 IP: 1` above a report of curves.
        line, of_abaqus = re.subn(r" (?:PI|SP):(?: ?\S)+", " ", line)
        if of_abaqus:
            line = re.sub(r"(?<!\S)(NE|E|U|RF):(?=\S)", lambda of: f"{_ABAQUS[of[1]]} ", line)
        is_note = re.search(r"[:=]|(?<![^\s,;])\d", line) and not of_abaqus
        if (is_divided and not of_abaqus) or width < 2 or is_note:
            continue
        apart = ([name.strip(' "') for name in re.split(by, line.strip())] for by in _NAMES_APART)
        names = next((names for names in apart if len(names) == width and all(names)), None)
        rows[i] = (number, [*names]) if names else rows[i]
    return rows


def _all_numbers(cells: list[Cell], width: int) -> bool:
    return len(cells) == width and all(map(looks_like_a_number, cells))


def _check_cells(cells: Iterable[Cell], where: str) -> None:
    """Raises InputError for a cell that is longer than any name or number."""
    longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
    if longest > _LONGEST_CELL:
        raise _too_large(f"a cell of {where}", f"{longest:,} letters", f"{_LONGEST_CELL:,}")


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file; InputError, without its name, where it cannot be read."""
    if path.is_dir():
        raise InputError("it is a folder; give the file of a curve")
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise _too_large(
                "it", f"{size / 1e6:,.0f} million bytes", f"{_LARGEST_FILE / 1e6:,.0f}"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})") from error


def _too_large(what: str, size: str, most: str) -> InputError:
    return InputError(
        f"{what} has {size}, and at most {most} are read; export fewer channels, or fewer points a second"
    )


def _decoded(content: bytes) -> tuple[str, str]:
    """Text and the name of its encoding."""
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            return content.decode("utf-16"), "UTF-16"
        # UTF-16 without its mark: every other byte of plain text is zero.
        for encoding, zeros in (("utf-16-le", content[1:400:2]), ("utf-16-be", content[:400:2])):
            if len(zeros) > 20 and zeros.count(0) > 0.9 * len(zeros):
                return content.decode(encoding), "UTF-16"
    except UnicodeDecodeError:
        raise InputError("it begins as UTF-16 text but is damaged; export it again") from None
    if b"\0" in content or re.search(rb"[\x01-\x08\x0e-\x1f]", content[:65536]):
        raise InputError("it is not a text file; a CSV table or an Excel sheet (.xlsx) is expected")
    try:
        return content.decode("utf-8-sig"), "UTF-8"
    except UnicodeDecodeError:
        for encoding, (name, words) in _ENCODINGS.items():
            if re.search(words, content[:65536].decode(encoding, errors="ignore"), re.IGNORECASE):
                return content.decode(encoding, errors="replace"), name
        # Older lab software writes headers such as N/mm² in this encoding.
        return content.decode("cp1252", errors="replace"), "Windows-1252 (Latin-1)"


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    """(number, line) of the lines that hold something; a quoted name with a line break inside becomes one line."""
    found: list[tuple[int, str]] = []
    lines = re.split(r"\r\n|\r|\n", text)
    inside = 0
    for i, line in enumerate(lines):
        if len(line) > _LONGEST_LINE:
            raise _too_large(f"line {i + 1}", f"{len(line):,} letters", f"{_LONGEST_LINE:,}")
        if inside:
            found[-1] = found[-1][0], f"{found[-1][1]} {line}"
            inside -= 1
        elif line.strip():
            found.append((i + 1, line))
            if i < _LAST_NAMES and line.count('"') % 2 and _OPENS.search(line):
                inside = _breaks_in_quotes(lines[i : i + _MOST_BREAKS + 1])
    return found


def _breaks_in_quotes(lines: list[str]) -> int:
    """How many lines after the first one its quotes take to close; 0 where they do not."""
    quotes = 0
    for i, line in enumerate(lines):
        quotes += line.count('"')
        if i and quotes % 2 == 0:
            return i
    return 0


def _delimiter(lines: list[str]) -> str:
    """The delimiter with which most lines hold two numbers or more; in doubt the one that is rarer in numbers."""
    sample = lines[len(lines) // 5 :][:_SAMPLE]
    scores = dict.fromkeys(DELIMITERS, 0)
    for line in sample:
        for delimiter in scores:
            if delimiter == " " or delimiter in line:
                cells = line.split(None if delimiter == " " else delimiter)
                # `1, 2` split at its space would leave `1,`.
                usable = delimiter != " " or not any(c[0] == "," or c[-1] in ",;" for c in cells)
                scores[delimiter] += usable and sum(map(_is_number, cells)) >= 2
    best = max(scores.values())
    if best == 0:  # no table; the header, if there is one, decides for the message
        return max("\t;|,", key="\n".join(lines[:50]).count)
    return next(delimiter for delimiter, score in scores.items() if score >= 0.9 * best)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, which may be in quotes or have its unit behind it."""
    cell = cell.strip().strip('"')
    return looks_like_a_number(cell) or bool(_unit_behind(cell))


def _split(line: str, delimiter: str, number: int) -> list[Cell]:
    if line.lstrip("# ").startswith("{"):  # a dict of states
        return [line]
    if delimiter == " ":
        # A unit belongs to the name before it: `Stress (MPa)`, `Stress [N / mm²]`; so do quoted words.
        cells = re.findall(
            r'"[^"]*"|(?:\[[^\[\]]*\]|\([^()]*\)|[^\s])+(?:\s+[\[(][^\[\]()]*[\])])*', line
        )
        return [cell.strip('"') for cell in cells]
    try:
        (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        return list(cells)
    except csv.Error as error:
        if looks_like_a_number(line.split(delimiter)[0].strip(' "')):
            raise InputError(f"line {number} is not a readable row ({error})") from error
        return [line]


def is_workbook(path: pathlib.Path) -> bool:
    """Whether a file is a workbook, by its ending or its first bytes; InputError for forms that are not read."""
    ending = path.suffix.lower()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        beginning = file.read(4)
    if beginning == _OLD_EXCEL or ending in (".xls", ".xlsb", ".ods"):
        if beginning not in (_OLD_EXCEL, _ZIP):
            return False  # a text file with an Excel name, as many machines write
        raise InputError("this form of workbook is not read; save it as .xlsx or as CSV")
    return ending in WORKBOOK_ENDINGS or beginning == _ZIP


def read_sheets(path: pathlib.Path, wanted: str | None = None) -> dict[str, list[Row]]:
    """Sheet name -> rows as (row number, cells), blank rows left out; only the sheet `wanted` where it is given.

    Raises:
      InputError: it is damaged, or there is no such sheet.
    """
    content = read_bytes(path)
    if not content:
        raise InputError("the file is empty; a sheet with a header row and a curve is expected")
    import openpyxl

    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        unpacked = sum(part.file_size for part in archive.infolist())
        if unpacked > _LARGEST_FILE:
            raise _too_large(
                "it", f"{unpacked / 1e6:,.0f} million bytes unpacked", f"{_LARGEST_FILE / 1e6:,.0f}"
            )
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        names = [sheet.title for sheet in book.worksheets]
        if wanted is not None and wanted not in names:
            raise InputError(f"it has no sheet '{wanted}'{nearest(wanted, names)}")
        found = {}
        for sheet in book.worksheets:
            if wanted is None or sheet.title == wanted:
                content = archive.read(sheet._worksheet_path)
                found[sheet.title] = _rows(sheet, content)
                _check_sheet(sheet.title, content, found[sheet.title])
        return found
    except InputError:
        raise
    except Exception as error:  # anything, from BadZipFile to KeyError, for a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"it is not a readable Excel workbook ({reason})") from error


# _FILTER: a filter of rows in a sheet; _HIDDEN: a row that it hides, or its user.
_FILTER = re.compile(rb"<filterColumn\b")
_HIDDEN = re.compile(rb"<row\b(?=[^<>]*\bhidden=\"(?:1|true)\")[^<>]*\br=\"(\d+)\"")
# _NO_VALUE: a formula without its value; an empty text is one.
_NO_VALUE = re.compile(
    rb"<c\b(?![^<>]*\bt=\"str\")[^<>]*>\s*<f\b[^<>]*>[^<]*</f>\s*(?:<v\s*/>|<v></v>)?\s*</c>"
)


def _check_sheet(name: str, content: bytes, rows: list[Row]) -> None:
    """Raises InputError for a sheet that shows other rows, or other numbers, than the file holds."""
    numbers = {int(number) for number in _HIDDEN.findall(content)}
    hidden = sum(number in numbers and _is_data(cells) for number, cells in rows)
    if hidden and _FILTER.search(content):
        raise InputError(
            f"sheet '{name}' hides {hidden} rows by a filter; take the filter off if they count, or copy the others"
        )
    if hidden:
        raise InputError(
            f"sheet '{name}' hides {hidden} rows of numbers; show them if they count, or delete them"
        )
    if len(_NO_VALUE.findall(content)) >= MINIMUM_POINTS:
        raise InputError(
            f"sheet '{name}' holds formulas without their values; open it in a spreadsheet and save it, which adds them"
        )


# _CELL_OF_A_NUMBER: a cell of row %s that holds a number, or a formula with one.
_CELL_OF_A_NUMBER = (
    rb'<c r="(?P<column>[A-Z]{1,3})%s"(?: s="(?P<style>\d+)")?(?: t="n")?>(?:<f\b[^<>]*(?:/>|>[^<]*</f>))?'
    rb"<v>(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)</v></c>"
)
_CELLS_OF_NUMBERS = re.compile(_CELL_OF_A_NUMBER % rb"\d+")
# _ROW_OF_NUMBERS: a row of such cells alone.
_ROW_OF_NUMBERS = re.compile(
    rb'<row r="(\d{1,7})"[^<>]*>((?:%s)+)</row>'
    % re.sub(rb"\?P<\w+>", rb"?:", _CELL_OF_A_NUMBER % rb"\1")
)
_ROW = re.compile(rb'<row\b(?:[^<>]*?\sr="(\d+)")?')
_WORKSHEET = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def _numbered_rows(sheet: Any, content: bytes) -> Iterator[tuple[int, list[Cell]]]:
    """Row number and cells of a sheet's rows. openpyxl takes five times as long for rows of numbers."""
    from openpyxl.cell.read_only import ReadOnlyCell
    from openpyxl.utils import column_index_from_string

    taken: list[tuple[int, bytes]] = []
    dates = sheet.parent._date_formats

    def take(row: re.Match[bytes]) -> bytes:
        if dates and any(int(cell[1] or 0) in dates for cell in _CELLS_OF_NUMBERS.findall(row[2])):
            return row[0]
        taken.append((int(row[1]), row[2]))
        return b""

    def cells_of(row: bytes) -> list[Cell]:
        cells: list[Cell] = []
        for letters, style, number in _CELLS_OF_NUMBERS.findall(row):
            column = column_index_from_string(letters.decode())
            cells += [""] * (column - len(cells))
            value = float(number)
            cells[column - 1] = (
                _as_shown(ReadOnlyCell(sheet, 1, column, value, "n", int(style)))
                if style
                else value
            )
        return cells

    numbers = [int(number or 0) for number in _ROW.findall(content)]
    # Rows without a number count on from the row before, and comments may hold what is no row.
    in_order = all(before < number for before, number in itertools.pairwise([0, *numbers]))
    if in_order and _WORKSHEET in content and b"<!" not in content:
        content = _ROW_OF_NUMBERS.sub(take, content)
    sheet._get_source = functools.partial(io.BytesIO, content)
    # The size that the file states may be wrong, and blank cells up to there would fill the memory.
    sheet.reset_dimensions()
    others = enumerate(sheet.iter_rows(), start=1)
    return heapq.merge(
        ((number, [_as_shown(cell) for cell in row]) for number, row in others if row),
        ((number, cells_of(row)) for number, row in taken),
        key=operator.itemgetter(0),
    )


def _rows(sheet: Any, content: bytes) -> list[Row]:
    """Rows of a sheet that hold something, all as long as the longest."""
    rows: list[Row] = []
    count = 0
    for number, cells in _numbered_rows(sheet, content):
        while cells and cells[-1] == "":
            cells.pop()
        count += len(cells)
        if count > _MOST_CELLS:
            raise _too_large(f"sheet '{sheet.title}'", "more cells", f"{_MOST_CELLS:,}")
        if cells:
            _check_cells(cells, f"row {number} of sheet '{sheet.title}'")
            rows.append((number, cells))
    width = max((len(cells) for _, cells in rows), default=0)
    if width * len(rows) > _MOST_CELLS:
        raise _too_large(
            f"sheet '{sheet.title}'", f"{width * len(rows):,} cells", f"{_MOST_CELLS:,}"
        )
    return [(number, cells + [""] * (width - len(cells))) for number, cells in rows]


def _as_shown(cell: Any) -> Cell:
    """A cell's value; a number as its format shows it: `0.05` as `5 %`, with a unit behind it, or in thousands."""
    value = _cell(cell.value)
    if not isinstance(value, float) or not cell.has_style:
        return value
    factor, unit = _shown_by(cell.number_format)
    value = value if factor == 1.0 else factor * value
    return f"{value:.15g} {unit}" if unit else value


@functools.cache
def _shown_by(number_format: str) -> tuple[float, str]:
    """The factor of numbers as a format of Excel shows them, and the unit behind them: 100 and `%` of `0.0%`."""
    form, *_ = number_format.split(";")
    bare = re.sub(r'"[^"]*"|\\.|\[[^\]]*\]', "", form)
    if "%" in bare:
        return 100.0, "%"
    thousands = re.search(r"[0#?](,+)(?![0#?,])", bare)
    behind = re.search(r'"\s*([^"]+?)\s*"$', form)
    unit = behind[1] if behind and find_unit(behind[1]) else ""
    return (1e-3 ** len(thousands[1]) if thousands else 1.0), unit


def _cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value == value else ""
    return "" if value is None else str(value).strip()


# --------------------------------------------------------------------------------------------------
# The table inside an exported file: where its numbers begin, the names and units above them, what stands before.
#
# {'temperature': 293}           states (MatCal), or `name: value` lines of a testing machine Gauge length: 50 mm
# Strain;Stress                  the header; units may stand in it, `Strain [%]` %;MPa                          or in
# a row of their own 0,01;12,5                      the data, to the end of the file


# MINIMUM_POINTS: rows of numbers below which a table is no curve but results.
MINIMUM_POINTS = 10
# _NEAR: share of a column's range; rows behind lines of text go on where those before ended, so near.
_NEAR = 0.1
# _BEGUN: so many rows show what a table's rows begin with.
_BEGUN = 20
# BLANKS: what stands in a cell without a number: of a channel that is not recorded, or beyond its range.
BLANKS = {
    "",
    *("nan", "-", "n/a", "n.a.", "na", "<na>", "none", "null", "err", "error"),
    *("#n/a", "#nv", "#div/0!", "#value!", "#num!", "#ref!", "#name?", "#null!"),
    *("ol", "ovl", "ovld", "ovr", "over", "overrange", "overflow", "overload"),
    *("-1.#ind", "1.#qnan", "nan(ind)"),
}
# _NO_WORDS: what stands for a number that is none.
_NO_WORDS = BLANKS | {"inf", "-inf"}
# _RULE: a cell of a line that is drawn, `-----` or `=====`, or of stars for a number that is too long.
_RULE = re.compile(r"[-=_─━*]{2,}|:-+:?|-+:")
# _MOST_BLANK: share of rows without numbers; more of them may hold what matters, such as a load beyond the range.
_MOST_BLANK = 0.1
# _REMARKS: how a row begins that is a comment and no row of numbers, besides `#`.
_REMARKS = ("%", "//", "!", ";")
# _LONGEST_HEAD: lines between two segments of a table in which notes are looked for.
_LONGEST_HEAD = 40
# _TITLE: how a line begins that names a specimen, or a run (the group) of a test.
_TITLE = re.compile(
    r"(?:specimen|sample|coupon|probe|prüfling|éprouvette|eprouvette|probeta|muestra|provino|provetta|campione"
    r"|試験片|試料|试样|(test|run|versuch|essai|ensayo|prova))(?![^\W\d_])",
    re.IGNORECASE,
)

# _CYCLE_TITLE: how a line begins that numbers a cycle of a test.
_CYCLE_TITLE = re.compile(
    r"(?:data acquisition: *)?(?:cycle|zyklus|ciclo|cykl|サイクル|循环)s?(?: (?:no\.?|nr\.?|number))?[ :=#]*"
    r"(\d{1,9})(?!\S)",
    re.IGNORECASE,
)

# _PAIR: a name and its number, with what may be its unit, among other words: `d = 6 mm`.
_PAIR = re.compile(
    r"([^\W\d_][^:=;,()]{0,39}?)\s*[:=]\s*(\d(?:[\d.,]*\d)?(?:\s*(?!\w+\s*[:=])[^\s;,:=()\d][^\s;,()]*)?)"
)
# _SIZE: a name and a number with nothing between them: `Ø 6.02 mm`, `Area (mm²) 30`.
_SIZE = re.compile(
    r"([^\W\d_][^\d:=øØ⌀φ]{0,39}?(?:\([^()]{1,9}\))?(?=\s)|[øØ⌀φ])\s*"
    r"(\d[\d.,]*(?:\s*[^\W\d_]{0,2}\s*[x×*]\s*\d[\d.,]*)?\s*\S{0,9})"
)
# _AFTER: words for a size at the end of a test.
_AFTER = re.compile(r"final|after|fract|break|ruptur|rottura|bruch|nach|après|dopo", re.IGNORECASE)


@dataclasses.dataclass
class Table:
    """One table of a file.

    Attributes:
      sheet: its sheet's name, or None in a text file.
      header: the columns' names; empty where the file has none.
      units: what a row of units says of each column, or None.
      rows: (line number, cells) of the data.
      notes: what the lines before it say, e.g. `Gauge length` -> `50 mm`.
      steps: what was found out, in words.
      above: the lines above the names, which may tell of specimens side by side.
      label: which of several specimens side by side or below each other it is; '' where it is the only one.
      titles: the lines above it that may name a specimen: `Specimen` -> `A1`.
      cycles: the numbers in lines such as `Cycle 5` above its rows or between them.
    """

    sheet: str | None
    header: list[str]
    units: list[str | None]
    rows: list[Row]
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    steps: list[str] = dataclasses.field(default_factory=list)
    above: list[Row] = dataclasses.field(default_factory=list)
    label: str = ""
    titles: dict[str, str] = dataclasses.field(default_factory=dict)
    cycles: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frame:
    """A pandas DataFrame in the place of a file: its columns have names as a file's header has, its index says nothing.

    Two levels of names are a row of names and a row of units.
    """

    stem: str
    frame: Any

    def __str__(self) -> str:
        return self.stem

    def rows(self) -> list[Row]:
        """The rows as a sheet has them."""
        names = list(self.frame.columns)
        header: list[list[Cell]] = []
        if names and isinstance(names[0], tuple):
            header = [[str(level) for level in levels] for levels in zip(*names, strict=True)]
        elif not all(isinstance(name, int) for name in names):
            header = [[str(name) for name in names]]
        known = self.frame.astype(object).where(self.frame.notna(), None)
        columns = [known.iloc[:, i].tolist() for i in range(len(names))]
        rows = [*header, *([_cell(cell) for cell in row] for row in zip(*columns, strict=True))]
        return [(i, row) for i, row in enumerate(rows, start=1) if any(c != "" for c in row)]


def is_frame(value: object) -> bool:
    """Whether a value is a pandas DataFrame, which nobody imports for the question."""
    return hasattr(value, "columns") and hasattr(value, "iloc") and hasattr(value, "notna")


def read_tables(
    path: pathlib.Path | Frame, sheet: str | None = None, cycles: bool = False
) -> list[Table]:
    """The tables of a text file, or of a workbook (only `sheet` where given): one, or one a specimen below each other.

    Args:
      cycles: the test may come back to where it began, so that rows which go on from there need be no other specimen.

    Raises:
      InputError: there is none; the message does not name the file.
    """
    if isinstance(path, Frame):
        return find_tables(path.rows(), ["a DataFrame"], "row", cycles)
    if not is_workbook(path):
        if sheet is not None:
            raise InputError("it is a text file and has no sheets; leave --sheet out")
        rows, steps = read_rows(path)
        return find_tables(rows, steps, cycles=cycles)
    tables: list[Table] = []
    errors: list[str] = []
    others: list[str] = []
    notes: dict[str, str] = {}
    sheets = read_sheets(path, sheet)
    # Sheets of cycles are one test, as rows below lines `Cycle 5` are.
    numbers = {name: int(match[1]) for name in sheets if (match := _CYCLE_TITLE.match(name))}
    titles: list[Row] = [(0, [name]) for name in sorted(numbers, key=numbers.__getitem__)]
    whole = " to ".join(dict.fromkeys(str(cells[0]) for _, cells in titles[:1] + titles[-1:]))
    if titles:
        sheets[whole] = [row for one in titles for row in [one, *sheets.pop(str(one[1][0]))]]
    for name, rows in sheets.items():
        try:
            if not rows:
                raise InputError("the sheet is empty; a header row and a curve are expected")
            for table in find_tables(rows, [f"sheet '{name}'"], "row", cycles or name == whole):
                tables.append(dataclasses.replace(table, sheet=name))
        except InputError as error:
            errors.append(f"sheet '{name}': {error}")
            others.append(name)
            notes |= _notes(rows)
    if others:
        for table in tables:
            table.notes = notes | table.notes
            table.steps.append(f"sheets without a table: {', '.join(others)}")
    if not tables:
        raise InputError(errors[0] if errors else "the workbook has no sheet with cells")
    _add_units(tables, sheets)
    _add_sizes(tables)
    return tables


def _add_units(tables: list[Table], sheets: Mapping[str, list[Row]]) -> None:
    """Adds the units of columns without one that a row of another sheet tells, behind the column's name."""
    told = [
        (sheet, {*_plain_names(cells)}, unit.strip())
        for sheet, rows in sheets.items()
        for _, cells in rows[:_SAMPLE]
        for unit in cells
        if isinstance(unit, str) and _is_unit_row([unit]) and unit.strip() not in ("-", "1")
    ]
    for table, i in [(each, i) for each in tables for i in range(len(each.header))]:
        name = table.header[i]
        if not name or table.units[i] or split_header(name)[1]:
            continue
        plain_name = _plain_names([name])[0]
        found = {
            (unit, sheet)
            for sheet, names, unit in told
            if sheet != table.sheet and plain_name in names
        }
        if len(found) == 1:
            ((unit, sheet),) = found
            table.units[i] = unit
            table.steps.append(f"the unit of '{name}' from sheet '{sheet}'")


def find_tables(
    rows: list[Row], steps: list[str], line: str = "line", cycles: bool = False
) -> list[Table]:
    """Finds the tables among the rows of a file; raises InputError where there is none.

    A table ends at lines of text that further rows of numbers follow: a title, notes, or names of columns. They
    may leave out what is as before. Rows that go on behind such lines are of the same table; see `read_tables` for
    `cycles`.
    """
    rows, line, steps = _upright(rows, line, steps)
    filled: list[Row] = []
    blank: list[Row] = []
    for row in rows:
        (blank if _is_blank_row(row[1]) else filled).append(row)
    rows = _without_units(filled)
    if not rows:
        raise InputError(
            "it holds no numbers; a header and columns of strain and stress are expected"
        )
    first = _first_data_row(rows)
    if first is None:
        raise _no_table(rows)
    steps = [*steps, *blank_rows_between(blank, rows[first:], line)]
    blocks = []
    # A row of separators alone, between names and numbers, names no columns.
    above = [row for row in rows[:first] if any(map(str, row[1]))]
    named = any(_named_columns(cells) >= 2 for _, cells in above)
    while named and _is_part_of_data(above[-1][1]):
        steps.append(f"left out {line} {above.pop()[0]}, which has one number")
    while found := _next_block(rows, first):
        end, following = found
        blocks.append((above, rows[first:end]))
        above, first = rows[end:following], following
    blocks.append((above, rows[first:]))
    tables = [find_table(*blocks[0], steps, line)]
    columns = _columns_of(tables[0].rows) if len(blocks) > 1 else []
    gaps: list[list[str]] = [[]]
    for above, data in blocks[1:]:
        before = tables[-1]
        table = find_table(*_named_as_before(above, data, before, line), [], line)
        table.notes = before.notes | table.notes
        further = _columns_of(table.rows)
        names = shared_names(before, table)
        may_return = cycles and not table.titles
        # A machine may tell anew how it measures; the head of another specimen names that.
        is_of_it = before.notes == table.notes or not table.titles
        if names and is_of_it and _goes_on(columns, further, may_return):
            before.rows.extend(table.rows)
            before.cycles.extend(table.cycles)
            columns = [
                a.and_then(b) if a and b else a or b for a, b in zip(columns, further, strict=False)
            ]
            gaps[-1] += [str(above[0][0])] if above[0][0] else []
            continue
        table.steps[:0] = [*steps, f"the rows below the text in {line} {above[0][0]}"]
        tables.append(table)
        columns = further
        gaps.append([])
    for table, numbers in zip(tables, gaps, strict=True):
        if numbers:
            shown = f"{', '.join(numbers[:6])}{', …' if len(numbers) > 6 else ''}"
            table.steps.append(f"left out the text between the rows in {line} {shown}")
    return _of_specimens(tables, line)


def _upright(rows: list[Row], line: str, steps: list[str]) -> tuple[list[Row], str, list[str]]:
    """The rows, with columns for rows where each row is a channel: a name, a unit perhaps, and its numbers."""
    if len(rows) > MINIMUM_POINTS * MINIMUM_POINTS:
        return rows, line, steps
    of_data = [row for row in rows if _is_data(row[1])]
    long = [cells for _, cells in of_data if sum(map(looks_like_a_number, cells)) >= MINIMUM_POINTS]
    if not 2 <= len(long) <= len(of_data) < MINIMUM_POINTS:
        return rows, line, steps
    above = [row for row in rows[: rows.index(of_data[0])] if _named_columns(row[1]) < 3]
    columns = itertools.zip_longest(*long, fillvalue="")
    turned = [(i, list(cells)) for i, cells in enumerate(columns, start=1) if any(map(str, cells))]
    return [*above, *turned], "column", [*steps, f"took each {line} as a column"]


# _CLOCK_OR_DATE: digits and what stands between them in a time of the day or a date.
_CLOCK_OR_DATE = re.compile(r"\d[\d:./ T-]{0,24}:[\d:./ -]{0,12}")


def _without_units(rows: list[Row]) -> list[Row]:
    """The rows, with a unit behind every number of a column, `0.12 %;35 N`, moved to a row of units above them."""
    found: dict[int, list[str]] = {}
    for i, (_, cells) in enumerate(rows):
        units = [_unit_behind(cell) for cell in cells]
        if any(units) and all(
            u or looks_like_a_number(c) or _CLOCK_OR_DATE.fullmatch(str(c))
            for u, c in zip(units, cells, strict=True)
        ):
            found[i] = units
    common = max(found.values(), key=list(found.values()).count, default=[])
    of_data = [i for i, units in found.items() if units == common]
    if len(of_data) < MINIMUM_POINTS:
        return rows
    for line, cells in rows[of_data[0] :]:
        among = zip(cells, common, strict=False)
        alone = [(c, unit) for c, unit in among if unit and looks_like_a_number(c)]
        if alone and _is_data(cells) and set("123456789") & set(str(alone[0][0])):
            raise InputError(
                f"row {line}: '{alone[0][0]}' has no unit, and other numbers of its column are in '{alone[0][1]}'"
            )
    bare = dict(enumerate(rows))
    for i in of_data:
        line, cells = rows[i]
        bare[i] = (
            line,
            [
                str(cell).strip().removesuffix(unit).strip() if unit else cell
                for cell, unit in zip(cells, common, strict=True)
            ],
        )
    line, above = rows[of_data[0]][0], rows[: of_data[0]]
    said = common
    if above and _is_unit_row(above[-1][1]):
        line, known = above.pop()
        said = [
            unit or str(cell) for unit, cell in itertools.zip_longest(common, known, fillvalue="")
        ]
    return [
        *above,
        (line, list(said)),
        *[bare[i] for i in range(of_data[0], len(rows))],
    ]


def is_blank(cell: Cell) -> bool:
    """Whether a cell stands for no number, or is a part of a line that is drawn."""
    if not isinstance(cell, str):
        return cell != cell
    if cell[-1:].isdecimal():
        return False  # by far the most cells
    return cell.strip().casefold() in BLANKS or bool(_RULE.fullmatch(cell.strip()))


def _is_blank_row(cells: list[Cell]) -> bool:
    """Whether a row is a line that is drawn, or of two numbers or more that are not there: `OL;OL`, `-1.#IND,-1.#IND`.

    `-;-` may be a row of units.
    """
    if cells and not is_blank(cells[0]):
        return False  # by far the most rows
    filled = [str(cell).strip() for cell in cells if cell != ""]
    if any(_RULE.fullmatch(cell) for cell in filled):
        return all(map(is_blank, filled))
    return len(filled) > 1 and set(filled) != {"-"} and all(map(is_blank, filled))


def blank_rows_between(blank: list[Row], data: list[Row], line: str) -> list[str]:
    """Lines about rows without numbers between these rows; InputError where they are many."""
    between = [row for row in blank if data[0][0] < row[0] < data[-1][0]]
    if not between:
        return []
    shown = shorten(" ".join(map(str, between[0][1])), 40)
    where = f"from {line} {between[0][0]} on ({shown})"
    if len(between) > _MOST_BLANK * len(data):
        raise InputError(
            f"{len(between)} rows between its {len(data)} others hold no numbers, {where}; take them out if nothing "
            "was beyond its range there"
        )
    return [f"left out {len(between)} rows without numbers, {where}"]


def _unit_behind(cell: Cell) -> str:
    """The unit behind a cell's number; '' where there is none."""
    if not isinstance(cell, str):
        return ""
    try:
        float(cell)
    except ValueError:
        match = re.fullmatch(r"[-+−\d.,]*\d(?:[eE][-+]?\d+)?\s*([^\d\s.,+-]\S*)", cell.strip())
        return match[1] if match and find_unit(match[1]) else ""
    return ""  # by far the most cells


def _of_specimens(tables: list[Table], line: str) -> list[Table]:
    """The tables that may be of specimens, with labels; short ones under other names are results beside the curves."""
    long = [table for table in tables if len(table.rows) >= MINIMUM_POINTS]
    others = [t for t in tables if not any(shared_names(t, other) for other in long)]
    if long and others:
        tables = [table for table in tables if not any(table is other for other in others)]
        said = ", ".join(f"{line} {table.rows[0][0]}" for table in others)
        tables[0].steps.append(f"left out short tables with other columns, from {said} on")
    if len(tables) > 1:
        for table, label in zip(tables, _labels(tables), strict=True):
            table.label = label
            table.steps.append(f"specimen '{label}' of {len(tables)} below each other")
    _add_sizes([*tables, *others] if long else tables)
    return tables


def _labels(tables: list[Table]) -> list[str]:
    """Names of specimens: the titles of one kind that tell them all apart, or their numbers."""

    def certainty(kind: str) -> tuple[bool, int]:
        # `Specimen` or `Specimen ID` is more of a name than `Specimen width`, and than `Test date`.
        match = _TITLE.match(kind)
        return bool(match and match[1]), len(kind)

    for kind in sorted(tables[0].titles, key=certainty):
        names = [table.titles.get(kind, "") for table in tables]
        if all(names) and len(set(names)) == len(names):
            return names
    return [str(i + 1) for i in range(len(tables))]


def _next_block(rows: list[Row], first: int) -> tuple[int, int] | None:
    """Where the first lines of text between rows of numbers, from `first` on, begin and end; None without such."""
    start, is_clear = None, False
    for i in range(first, len(rows)):
        cells = rows[i][1]
        if _is_worded(cells):
            if start is None:
                start, is_clear = i, False
            is_clear = is_clear or _is_text(cells)
        elif start is None or _is_comment(cells):
            continue
        elif _is_result(cells) and _are_notes(rows[i : i + _LONGEST_HEAD]):
            continue  # `Samples,130,130` between segments
        elif is_clear and _is_data(cells) and i + 1 < len(rows) and _is_data(rows[i + 1][1]):
            return start, i
        else:
            start = None
    return None


def _is_worded(cells: list[Cell]) -> bool:
    """Whether a row begins with a word and is no row of numbers; it may be a note or a damaged row."""
    first = next((cell for cell in cells if cell != ""), 0.0)
    if isinstance(first, float) or looks_like_a_number(first):
        return False
    if _is_comment(cells) or _is_data(cells):
        return False
    return any(letter.isalpha() for letter in first) or _is_unit_row(cells)


def _is_text(cells: list[Cell]) -> bool:
    """Whether a row that begins with a word is a title, names or units, and cannot be a damaged row of numbers."""
    filled = [cell for cell in cells if cell != ""]
    is_title = bool(_TITLE.match(str(filled[0]).strip()))
    return is_title or not any(map(looks_like_a_number, filled))


def _named_as_before(
    above: list[Row], data: list[Row], before: Table, line: str
) -> tuple[list[Row], list[Row]]:
    """The lines above a table and its rows, with the names of the table before where the lines hold none."""
    width = len(data[0][1])
    named = [row for row in above if _named_columns(row[1]) >= min(2, width)]
    if any(_plain_names(cells) == _plain_names(before.header) for _, cells in named):
        return above, data
    has_units = bool(above) and _is_unit_row(above[-1][1])
    rest = above[:-1] if has_units else above
    if rest and len(_plain_names(rest[-1][1])) == width and all(map(_is_name, rest[-1][1][:width])):
        return above, data
    names: list[Row] = [(above[-1][0], list(before.header))] if before.header else []
    units: list[Row] = [above[-1]] if has_units and names else []
    if not units and names and any(before.units):
        units = [(above[-1][0], [unit or "" for unit in before.units])]
    return [*rest, *names, *units], data


def _is_name(cell: Cell) -> bool:
    return isinstance(cell, str) and bool(cell.strip()) and not looks_like_a_number(cell)


def _plain_names(cells: Sequence[Cell]) -> list[str]:
    names = [" ".join(str(cell).split()).casefold() for cell in cells]
    while names and not names[-1]:
        names.pop()
    return names


def shared_names(one: Table, other: Table) -> bool:
    """Whether two tables have the same columns."""
    return _plain_names(one.header) == _plain_names(other.header) and one.units == other.units


@dataclasses.dataclass(frozen=True)
class _Column:
    """The numbers of a column, as far as they show whether further rows go on from them.

    Attributes:
      first, last, low, high: of the numbers; step: the largest from one row to the next.
    """

    first: float
    last: float
    low: float
    high: float
    step: float

    def and_then(self, further: "_Column") -> "_Column":
        """The column with further rows below it."""
        return _Column(
            self.first,
            further.last,
            min(self.low, further.low),
            max(self.high, further.high),
            max(self.step, further.step, abs(further.first - self.last)),
        )


def _columns_of(rows: list[Row]) -> list[_Column | None]:
    """The numbers of each column, as `_Column`; None where one holds fewer than two."""
    try:
        mark = decimal_mark(cell for _, cells in rows for cell in cells)
    except InputError:
        mark = ","  # which one it is may be said with --decimal, and changes little here
    found: list[_Column | None] = []
    for i in range(max(len(cells) for _, cells in rows)):
        cells_here = (cells[i] for _, cells in rows if i < len(cells))
        values = [value for cell in cells_here if (value := number(cell, mark)) is not None]
        step = max((abs(b - a) for a, b in itertools.pairwise(values)), default=None)
        if step is None:
            found.append(None)
        else:
            found.append(_Column(values[0], values[-1], min(values), max(values), step))
    return found


def _goes_on(
    columns: list[_Column | None], further: list[_Column | None], may_return: bool
) -> bool:
    """Whether rows are where those before ended, in every column, and not where those before began.

    A test that `may_return` ends and goes on where it began. One column, the time, may begin again.
    """
    near, at_start = [], []
    for before, after in zip(columns, further, strict=False):
        if before is None or after is None:
            continue
        within = _NEAR * (before.high - before.low)
        near.append(abs(after.first - before.last) <= max(within, 2.0 * before.step))
        at_start.append(abs(after.first - before.first) <= within)
    if all(near):
        return may_return or not all(at_start)
    begun = [i for i, is_near in enumerate(near) if not is_near]
    goes_on = [a and not b for a, b in zip(near, at_start, strict=True)]
    return len(begun) == 1 and at_start[begun[0]] and sum(goes_on) >= 2


def find_table(above: list[Row], rows: list[Row], steps: list[str], line: str = "line") -> Table:
    """The table of these rows, with the lines above it; raises InputError where they do not go together."""
    data = [row for row in rows if not (_is_comment(row[1]) or _is_remark(row[1]))]
    if not data:
        raise InputError(
            f"all rows of numbers begin with '#', from {line} {rows[0][0]} on, which makes them comments; take it away"
        )
    data, summary = _without_summary(data)
    width = len(data[0][1])
    # `% strain` may be a strain in percent where no other line begins so.
    marks = [str(cells[0]).lstrip()[:1] for _, cells in above]
    is_unit = any(str(cells[0]).strip() == "%" for _, cells in above)
    is_matlab = len(marks) > 1 and set(marks) == {"%"} and not is_unit
    above = [(number, _uncommented(cells, width, is_matlab)) for number, cells in above]
    for number, cells in above:
        if len(cells) <= 2 and _FACTOR_OF_ALL.fullmatch("".join(map(str, cells)).strip()):
            raise InputError(
                f"{line} {number}: '{' '.join(map(str, cells)).strip()}' multiplies the numbers below it; write these "
                "as they are (format long g)"
            )
    header, units, used = _header(above, width, line, data)
    before = above[: len(above) - used]
    notes = _notes(before)
    said, steps = pairs_of(" ".join(header)), list(steps)
    if notes:
        shown = ", ".join(f"{name} = {shorten(value)}" for name, value in list(notes.items())[:6])
        steps.append(f"notes before the table: {shown}{', …' if len(notes) > 6 else ''}")
    if any(units):
        steps.append("a row of units below the header")
    if summary:
        shown = shorten(" ".join(str(cell) for cell in summary[0][1]), 30)
        steps.append(
            f"left out {len(summary)} rows of results at the end, from {line} {summary[0][0]} on ({shown})"
        )
    for i, (row, cells) in enumerate(data):
        beyond = [str(cell).strip() for cell in cells[max(len(header), 1) :] if cell != ""]
        if header and beyond and not any(c.isdigit() for c in "".join(beyond)):
            data[i] = row, cells[: len(header)]
            steps.append(f"left out the remark in {line} {row} ({shorten(' '.join(beyond), 30)})")
        # A decimal comma in a comma-separated file shows only here.
        elif header and beyond:
            raise InputError(
                f"{line} {row} has {len(cells)} values, the header names {len(header)} columns "
                "(decimal commas between commas? then use semicolons)"
            )
    titles = dict(_title(cells) for _, cells in before)
    titles.pop("", None)
    numbered = (_CYCLE_TITLE.match(" ".join(map(str, cells)).strip()) for _, cells in before)
    cycles = [int(match[1]) for match in numbered if match]
    return Table(
        None,
        header,
        units,
        data,
        said | notes,
        steps,
        before if used else [],
        titles=titles,
        cycles=cycles,
    )


def _title(cells: list[Cell]) -> tuple[str, str]:
    """The kind and the name of a line such as `Specimen: A1` or `Specimen 2`; '' for another."""
    text = " ".join(str(cell).strip() for cell in cells if str(cell).strip())
    match = _TITLE.match(text)
    if not match:
        return "", ""
    kind, _, name = text.partition(":")
    named = name.strip()
    return (kind if named else match[0]).casefold(), shorten(named or text, 30).replace("/", "-")


def _without_summary(data: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows without those at the end that a word begins, such as `Mean`, where numbers begin the others."""
    end = len(data)
    while end > 0 and _begins_with_a_word(data[end - 1][1]):
        end -= 1
    begun = data[: min(end, _BEGUN)]
    if not begun or not all(cells and looks_like_a_number(cells[0]) for _, cells in begun):
        return data, []
    return data[:end], data[end:]


def _begins_with_a_word(cells: list[Cell]) -> bool:
    """Whether a row begins with a word, and no blank value."""
    first = next((cell for cell in cells if cell != ""), 0.0)
    if not isinstance(first, str) or first.strip().casefold() in _NO_WORDS:
        return False
    return first.strip()[:1].isalpha() and not looks_like_a_number(first)


def _is_result(cells: list[Cell]) -> bool:
    """Whether a row is a word, and no blank value, with numbers behind it."""
    return cells[0] != "" and _begins_with_a_word(cells) and _is_data(cells)


def shorten(text: str, length: int = 60) -> str:
    """`text`, with an ellipsis where it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _first_data_row(rows: list[Row]) -> int | None:
    """Index of the first row that is numbers for its larger part, as its successors are."""
    for i, (_, cells) in enumerate(rows):
        following = [other for _, other in rows[i + 1 : i + 3]]
        if len(following) == 2 and _is_part_of_data(following[0]):
            following = following[1:]
        is_data = _is_data(cells) and all(_is_data(other) for other in following[:1])
        if is_data and not (_is_result(cells) and _are_notes(rows[i:])):
            return i
    return None


def _are_notes(rows: list[Row]) -> bool:
    """Whether rows that a word begins stand above names of columns and rows of numbers: `Area (mm²),80,60`."""
    # LabVIEW closes its notes by a line of stars.
    rest = list(itertools.dropwhile(lambda row: _is_result(row[1]) or _is_rule(row[1]), rows))
    while rest and _named_columns(rest[0][1]) >= 2 and not _is_data(rest[0][1]):
        rest = rest[1:]
        if rest and _is_data(rest[0][1]):
            return looks_like_a_number(rest[0][1][0])
    return False


def _is_rule(cells: list[Cell]) -> bool:
    """Whether a row is a line between parts of a file, such as `***End_of_Header***`."""
    return isinstance(cells[0], str) and cells[0].startswith("***") and not any(cells[1:])


def _is_data(cells: list[Cell]) -> bool:
    filled = [cell for cell in cells if cell != ""]
    numbers = sum(looks_like_a_number(cell) for cell in filled)
    return numbers >= 2 and 2 * numbers >= len(filled)


def _is_part_of_data(cells: list[Cell]) -> bool:
    """Whether a row has a number and blanks, as where one channel was not measured yet."""
    filled = [cell for cell in cells if cell != ""]
    return len(filled) == 1 < len(cells) and looks_like_a_number(filled[0])


def _no_table(rows: list[Row]) -> InputError:
    first = " ".join(str(cell) for cell in rows[0][1])
    numeric = sum(any(looks_like_a_number(cell) for cell in cells) for _, cells in rows)
    if numeric > len(rows) / 2:
        return InputError(
            f"it has one column of numbers (its first line is '{shorten(first)}'); "
            "a strain and a stress column are expected"
        )
    if any(_named_columns(cells) >= 2 for _, cells in rows):
        return InputError(f"it has 0 points; a curve needs at least {MINIMUM_POINTS}")
    return InputError(
        f"no table of numbers was found in it (it begins with '{shorten(first)}'); a header and "
        "columns of strain and stress are expected"
    )


def _named_columns(cells: list[Cell]) -> int:
    return sum(
        isinstance(cell, str) and bool(cell) and not looks_like_a_number(cell) for cell in cells
    )


def _with_units_joined(names: list[str]) -> list[str]:
    """`Strain, %` for `Strain` and `%`, where names and units are divided as the columns are."""
    joined: list[str] = []
    for name in names:
        is_unit = name.lower() not in _NO_BARE_UNIT and (find_unit(name) or _is_other_unit(name))
        if joined and is_unit:
            joined[-1] += f", {name}"
        else:
            joined.append(name)
    return joined


def _are_numbers_of_rows(data: list[Row]) -> bool:
    """Whether the first cells count the rows."""
    first = [str(cells[0]).strip(' "') for _, cells in data]
    return any(first == [str(i + start) for i in range(len(first))] for start in (0, 1))


def _header(
    above: list[Row], width: int, line: str, data: list[Row]
) -> tuple[list[str], list[str | None], int]:
    """Names, units of a row of units, and how many of the rows above the data they take."""
    units: list[str | None] = [None] * width
    used = int(_is_comment_on_columns(above))
    if len(above) > used and _is_unit_row(above[-1 - used][1]):
        row = _unlabelled(above[-1 - used][1])
        units = [(row[i] or None) if i < len(row) else None for i in range(width)]
        used += 1
    if len(above) == used or _named_columns(above[-1 - used][1]) < 2:
        told = [unit.quantity if (unit := find_unit(text or "?")) else "" for text in units]
        if sorted(told) == ["strain", "stress"]:
            return [*told], units, used  # `%,MPa` names both
        if used:
            raise InputError(
                f"{line} {above[-1][0]} holds units, but no line above it names columns"
            )
        return _listed(above, width), units, 0
    number, cells = above[-1 - used]
    higher = above[-2 - used : -1 - used]
    are_numbered = all(_NUMBERED.fullmatch(str(cell).strip()) for cell in cells if cell != "")
    if higher and are_numbered and _named_columns(higher[0][1]) >= _named_columns(cells):
        used += 1
        number, cells = higher[0]
    names = [shorten(" ".join(str(cell).split()), LONGEST_HEADER) for cell in cells]
    # pandas numbers names that are there twice, behind their unit.
    names = [re.sub(r"(?<=[\])])\.(?=\d+$)", " ", name) for name in names]
    # R writes dots for signs and blanks: `Stress..N.mm2.` for `Stress (N/mm2)`.
    of_r = [re.fullmatch(r"(\w[\w.]*?)\.\.(\w[\w.]*)\.", name) for name in names]
    names = [
        f"{match[1].replace('.', ' ')} ({match[2].replace('.', '/')})" if match else name
        for name, match in zip(names, of_r, strict=True)
    ]
    if {"U", "RF"} <= {name.rstrip("123") for name in names}:
        alone = re.compile(r"(U|RF)(?=[123]?$)")
        names = [alone.sub(lambda of: f"{_ABAQUS[of[1]]} ", name).strip() for name in names]
    while len(names) > width and not names[-1]:
        names.pop()
    joined = _with_units_joined(names)
    names = joined if len(joined) == width < len(names) else names
    if sum(map(looks_like_a_number, filter(None, names))):
        raise InputError(
            f"{line} {number}: '{shorten(' '.join(names))}' is neither the columns' names nor a row of numbers"
        )
    if len(names) == width - 1 and _are_numbers_of_rows(data):
        names = ["", *names]  # R leaves out the name of the column that numbers the rows
        units = ["", *units[:-1]]
    if len(names) < width:
        raise InputError(
            f"the header ({line} {number}) names {len(names)} columns, the rows below it have {width} values "
            "(decimal commas between commas? then use semicolons)"
        )
    before = above[-2 - used : -1 - used]
    if not used and before and _is_unit_row(before[0][1]):
        row = [str(cell).strip() for cell in before[0][1]]
        units, used = [*(cell or None for cell in row), *[None] * width][:width], 1
    labelled = [cells for _, cells in above if _unlabelled(cells)[0] != str(cells[0]).strip()]
    if not used and len(labelled) == 1 and _is_unit_row(labelled[0]):
        # LabVIEW writes its row of units well above the names.
        units = [*(cell or None for cell in _unlabelled(labelled[0])), *[None] * width][:width]
    return names, (units + [None] * len(names))[: len(names)], used + 1


def _is_comment_on_columns(above: list[Row]) -> bool:
    """Whether the last line above the data is none of names: Origin writes it below names and units."""
    if len(above) < 3 or _is_unit_row(above[-1][1]) or not _is_unit_row(above[-2][1]):
        return False
    names, comments = ({str(c).strip() for c in above[i][1]} - {""} for i in (-3, -1))
    return _named_columns(above[-3][1]) >= 2 and len(comments) < len(names)


# _LISTED: a line of the head that names a column by its number, such as `Sig1 Time (min)`.
_LISTED = re.compile(
    r"(?:sig|signal|col|column|ch|chan|channel|kanal|spalte|field)[ _.]?(\d{1,3})\s*[:=]?\s+(\S.*)",
    re.IGNORECASE,
)


def _listed(above: list[Row], width: int) -> list[str]:
    """The names of the columns that lines of the head list by their numbers; empty where they do not name each."""
    lines = (" ".join(str(cell).strip() for cell in cells).strip() for _, cells in above)
    listed = [match.groups() for line in lines if (match := _LISTED.fullmatch(line))]
    names = {int(number): name for number, name in listed}
    is_whole = len(listed) == width and names.keys() == set(range(1, width + 1))
    return [names[number] for number in sorted(names)] if is_whole else []


def _is_unit_row(cells: list[Cell]) -> bool:
    """Whether a row holds units only, at least one of which cannot be mistaken for a name."""
    if any(not isinstance(cell, str) for cell in cells):
        return False
    filled = [cell for cell in _unlabelled(cells) if cell]
    if not filled:
        return False
    units = [find_unit(cell) for cell in filled]
    plain_units = [
        u is not None and cell.strip(" []()").lower() not in ("strain", "stretch", "microstrain")
        for u, cell in zip(units, filled, strict=True)
    ]
    known = [
        u is not None or bool(re.fullmatch(r"[\[(<].*[\])>]", cell)) or _is_other_unit(cell)
        for u, cell in zip(units, filled, strict=True)
    ]
    return all(known) and any(plain_units)


def _unlabelled(cells: list[Cell]) -> list[str]:
    """The cells of a row without the word at its beginning that says that units follow."""
    first, *others = (str(cell).strip() for cell in cells)
    return ["" if _UNITS_FOLLOW.fullmatch(first) and any(others) else first, *others]


# _UNITS_FOLLOW: words before a row of units.
_UNITS_FOLLOW = re.compile(
    r"(y_)?units?(_label)?|einheit(en)?|unités?|unidad(es)?|unità", re.IGNORECASE
)
# _OTHER_UNITS: units of columns that are not read, and what stands for none.
_OTHER_UNITS = word_set(
    """
    s sec с сек 秒 초 ms min мин h °c c k °f hz v mv n/a # 1/s j kj mj w a ma deg ° rpm cycle cycles
    segment segments count counts
    """
)
# _NUMBERED: names that a logger gives by itself, below the names by its user.
_NUMBERED = re.compile(r"(channel|chan|ch|kanal|canale?|voie|column|col|spalte)[ _.]?\d{1,3}", re.I)


def _is_other_unit(cell: str) -> bool:
    """Whether a cell is a unit of a time, an area, a rate or another quantity that no column of a curve has."""
    unit = cell.strip(" []()").lower()
    above, slash, below = unit.rpartition("/")
    is_rate = bool(slash) and below in ("s", "sec", "min", "h") and bool(find_unit(above))
    return unit in _OTHER_UNITS or is_rate or bool(find_size(unit, AREA_UNITS))


def _is_comment(cells: list[Cell]) -> bool:
    """Whether a row begins with `#`, and not with an error that a spreadsheet has written, `#DIV/0!`."""
    first = cells[0].strip() if isinstance(cells[0], str) else ""
    return first.startswith("#") and not re.fullmatch(r"#[A-Z/0]+[!?]?", first)


def _is_remark(cells: list[Cell]) -> bool:
    """Whether a row below the names begins with a sign of a comment, such as `% end of test`."""
    return isinstance(cells[0], str) and cells[0].strip().startswith(_REMARKS)


# _COMMENT: signs of a comment before names, besides `%`.
_COMMENT = re.compile(r"\s*(#+|//|!|;)\s*")
# _FACTOR_OF_ALL: the factor that MATLAB writes above a matrix.
_FACTOR_OF_ALL = re.compile(r"\d(\.\d*)?[eE][+-]?\d+ ?\*")


def _uncommented(cells: list[Cell], width: int, is_matlab: bool) -> list[Cell]:
    """A row above a table of this width without the sign of a comment that it begins with; `%` is one for MATLAB."""
    if not isinstance(cells[0], str):
        return cells
    mark = _COMMENT.match(cells[0])
    if mark is None and (is_matlab or (cells[0] == "%" and len(cells) > width)):
        mark = re.match(r"\s*%+\s*", cells[0])
    first = cells[0][mark.end() :].strip() if mark else cells[0]
    return [first, *cells[1:]] if first or mark is None else cells[1:]


def _notes(rows: list[Row]) -> dict[str, str]:
    """`name: value`, `name = value` or two cells -> name and value; and the dict that MatCal writes first."""
    notes = _sizes_in_rows(rows)
    for _, cells in rows:
        texts = [str(cell).strip() for cell in cells if str(cell).strip()]
        text = " ".join(texts)
        if text.startswith("{"):
            notes.update(_states(", ".join(texts)) or _states(text))
        elif sizes := _sizes(texts):
            notes |= sizes
        elif match := re.match(r"([^:=]{1,40}?)\s*[:=]\s*(.+)", text):
            notes[match[1].strip()] = match[2].strip()
            several = {} if _AFTER.search(text) else pairs_of(text)
            is_product = re.match(r"\S{1,20}( ?\w{1,9})? ?[x×*] ?\d", match[2].strip())
            notes |= several if len(several) > 1 and not is_product else several | notes
        elif len(texts) >= 2 and any(c.isdigit() for c in texts[1]):
            # `S0;31;mm²;S0;38;mm²` are of two specimens.
            again = texts.index(texts[0], 1) if texts[0] in texts[1:] else 0
            differ = bool(again) and texts[:again] != texts[again : 2 * again]
            notes[texts[0]] = " ".join(texts[1:] if differ else texts[1:3])
    return notes


def pairs_of(text: str) -> dict[str, str]:
    """The names with numbers among other words: `b = 10 mm, h = 3 mm`, `Force [N] (A0 = 30 mm²)`."""
    return {name.strip(): value for name, value in _PAIR.findall(text)}


def _sizes_in_rows(rows: list[Row]) -> dict[str, str]:
    """The sizes of a row of names with a row of numbers below it, and their units in the names or in a row beside."""
    found: dict[str, str] = {}
    for i, (_, names) in enumerate(rows[:-1]):
        if _named_columns(names) > 1 and all(_is_name(name) for name in names if name):
            below = [cells for _, cells in rows[i + 1 : i + 3]]
            units = [cells for cells in below if _is_unit_row(cells)]
            values = [cells for cells in below if not _is_unit_row(cells)]
            found |= (
                _with_their_units(names, units[0] if units else [], values[0]) if values else {}
            )
    return found


def _with_their_units(
    names: Sequence[Cell], units: Sequence[Cell | None], values: Sequence[Cell]
) -> dict[str, str]:
    """The lengths and areas among the cells of a row, with their units: `Width` -> `6.0 mm`."""
    known = AREA_UNITS | DISPLACEMENT_UNITS
    found = {}
    for header, in_row, value in itertools.zip_longest(names, units, values, fillvalue=""):
        name, unit = split_header(str(header), lambda text: find_size(text, known))
        unit = unit or str(in_row or "")
        if name and looks_like_a_number(value) and unit and find_size(unit, known):
            found[name] = f"{value} {unit}"
    return found


def _add_sizes(tables: list[Table]) -> None:
    """Adds the sizes that the rows of short tables, of results, tell to the notes of the specimens of the others."""
    short = [table for table in tables if table.header and len(table.rows) < MINIMUM_POINTS]
    for table in (each for each in tables if len(each.rows) >= MINIMUM_POINTS):
        names = {plain(name) for name in (table.sheet, table.label, *table.titles.values()) if name}
        numbers = {match[0] for name in names if (match := re.search(r"\d+$", name))}
        for results in short:
            rows = [cells for _, cells in results.rows]
            own = [cells for cells in rows if plain(f"{cells[0]}") in names] or [
                cells for cells in rows if re.sub(r"\.0$", "", f"{cells[0]}") in numbers
            ]
            own = rows if len(rows) == 1 and len(tables) - len(short) == 1 else own
            sizes = _with_their_units(results.header, results.units, own[0]) if own else {}
            if len(own) == 1 and sizes:
                table.notes = sizes | table.notes
                table.steps.append("sizes of the specimen from the table of results")


def _sizes(texts: list[str]) -> dict[str, str]:
    """The sizes of a line that holds nothing else, `Gauge length 50 mm, diameter 8 mm`; empty for any other line."""
    found = [_SIZE.fullmatch(text) for text in re.split(r"[;,]\s+", "; ".join(texts))]
    sizes = {
        match[1].strip(): match[2].strip() for match in found if match and _is_size(*match.groups())
    }
    return sizes if len(sizes) == len(found) else {}


def _is_size(name: str, value: str) -> bool:
    """Whether words before a number say a length or an area, by its unit or the sign of a diameter."""
    units = AREA_UNITS | DISPLACEMENT_UNITS
    unit = split_header(name, lambda text: find_size(text, units))[1]
    return bool(unit or find_size(value.lstrip("0123456789.,x×* "), units) or name in "øØ⌀φ")


def notes_side_by_side(rows: list[Row], count: int) -> list[dict[str, str]]:
    """The notes of each of `count` specimens in a line: `Area (mm²),80,,60` or `S0,80,mm²,S0,60,mm²`."""
    notes: list[dict[str, str]] = [{} for _ in range(count)]
    for _, cells in rows:
        texts = [str(cell).strip() for cell in cells if str(cell).strip()]
        again = [i for i, text in enumerate(texts) if text == texts[0]]
        if len(again) == count:
            of_each = [texts[a:b] for a, b in itertools.pairwise([*again, len(texts)])]
        else:
            values = [text for text in texts[1:] if looks_like_a_number(text)]
            units = [text for text in texts[1:] if not looks_like_a_number(text)]
            if len(values) != count or len(units) > 1:
                continue
            of_each = [[texts[0], value, *units] for value in values]
        for said, (name, *value) in zip(notes, of_each, strict=True):
            if value:
                said[name] = " ".join(value[:2])
    return notes


def titles_side_by_side(rows: list[Row], count: int) -> list[str]:
    """The names of `count` specimens in a line such as `Specimen,A1,,A2`; empty where no line has them."""
    for _, cells in rows:
        texts = [str(cell).strip() for cell in cells if str(cell).strip()]
        if len(texts) == count + 1 == len(set(texts)) and _TITLE.match(texts[0]):
            return texts[1:]
    return []


def _states(text: str) -> dict[str, str]:
    try:
        states = literal(re.sub(r",\s*,", ",", text))
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in states.items()} if isinstance(states, dict) else {}
