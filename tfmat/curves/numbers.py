"""Numbers as laboratories write them: decimal points and commas, separators of thousands, signs, exponents."""

import re
from collections.abc import Iterable
from typing import Literal

from tfmat.errors import InputError

# A text table holds strings; a sheet's own numbers are numbers already.
Cell = str | float
DecimalMark = Literal[".", ","]

# Signs and separators of thousands that are never a decimal mark.
_CHARACTERS = {ord(c): None for c in "\u00a0\u202f\u2009'’"} | {ord("−"): "-"}
_NUMBER = re.compile(r"[+-]?[\d.,]*\d[\d.,]*([eEdD][+-]?\d+)?")
_GROUPED_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?([eE][+-]?\d+)?")
_GROUPED_COMMAS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")


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
