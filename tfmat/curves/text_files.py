"""A text file as rows of cells, whatever its encoding and delimiter. The standard library's csv splits the lines.

pandas reads only a table whose place, delimiter and decimal mark are known beforehand, and does not say in which line
a word stands among the numbers; both are what this is for.
"""

import csv
import pathlib
import re

from tfmat.curves.numbers import Cell, looks_like_a_number
from tfmat.errors import InputError

Row = tuple[int, list[Cell]]

DELIMITERS = {"\t": "tab", ";": "semicolon", " ": "whitespace", ",": "comma"}
# Lines that the delimiter is found from.
_SAMPLE = 300


def read_rows(path: pathlib.Path) -> tuple[list[Row], list[str]]:
    """Rows of a text file as (line number, cells), blank ones left out; and what was found out, in words.

    Raises:
      InputError: not text, empty, or quotes that do not close.
    """
    text, encoding = _decoded(read_bytes(path))
    steps = [] if encoding == "UTF-8" else [f"read as {encoding} text"]
    lines = _numbered_lines(text)
    if not lines:
        raise InputError("the file is empty; a header line and a curve are expected")
    delimiter = _delimiter([line for _, line in lines])
    steps.append(f"columns separated by {DELIMITERS[delimiter]}")
    return [(number, _split(line, delimiter, number)) for number, line in lines], steps


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file; InputError, without its name, where it cannot be read."""
    if path.is_dir():
        raise InputError("it is a folder; give the file of a curve")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})") from error


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
        # Older lab software writes headers such as N/mm² in this encoding.
        return content.decode("cp1252", errors="replace"), "Windows-1252 (Latin-1)"


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    """(number, line) of the lines that hold something; a quoted name with a line break inside becomes one line."""
    found: list[tuple[int, str]] = []
    open_quote = False
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if open_quote and number < 50 and line.count('"') % 2:
            found[-1] = found[-1][0], f"{found[-1][1]} {line}"
            open_quote = False
        elif line.strip():
            found.append((number, line))
            open_quote = bool(line.count('"') % 2)
    return found


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
        return max("\t;,", key="\n".join(lines[:50]).count)
    return next(delimiter for delimiter, score in scores.items() if score >= 0.9 * best)


def _is_number(cell: str) -> bool:
    return looks_like_a_number(cell.strip().strip('"'))


def _split(line: str, delimiter: str, number: int) -> list[Cell]:
    if line.lstrip("# ").startswith("{"):  # a dict of states
        return [line]
    if delimiter == " ":
        # A unit belongs to the name before it: `Stress (MPa)`, `Stress [N / mm²]`; so do quoted words.
        cells = re.findall(
            r'"[^"]*"|(?:\[[^\]]*\]|\([^)]*\)|[^\s])+(?:\s+[\[(][^\])]*[\])])*', line
        )
        return [cell.strip('"') for cell in cells]
    try:
        (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        return list(cells)
    except csv.Error as error:
        if looks_like_a_number(line.split(delimiter)[0].strip(' "')):
            raise InputError(f"line {number} is not a readable row ({error})") from error
        return [line]
