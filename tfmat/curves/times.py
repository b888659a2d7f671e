"""The time of a test: which column tells it, and in what unit."""

import re

from tfmat.curves.tables import Table, shorten
from tfmat.errors import InputError, nearest

TIME_UNITS: dict[str, float] = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPELLINGS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds", "sekunden", "secondes"), "s"),
    **dict.fromkeys(("msec", "milliseconds"), "ms"),
    **dict.fromkeys(("mins", "minute", "minutes", "minuten"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours", "std", "stunden", "heures"), "h"),
    **dict.fromkeys(("day", "days", "tage", "jours"), "d"),
}
_WORDS = {"time", "zeit", "temps", "tiempo", "tempo", "t", "prüfzeit", "testzeit", "elapsed"}
# `Time [min]`, `Zeit in h`, `time/s`, `t_s`.
_HEADER = re.compile(r"\s*(.+?)\s*(?:[\[({]\s*([^\])}]+)[\])}]|(?:\s+in|[\s_,/])\s*([A-Za-z]+))\s*")


def find_time_unit(text: str) -> tuple[str, float]:
    """A unit of time and its factor to seconds; InputError where it is unknown."""
    spelling = text.strip().strip("[](){}").strip().lower()
    name = _SPELLINGS.get(spelling, spelling)
    if name not in TIME_UNITS:
        raise InputError(
            f"unknown time unit '{text}'{nearest(text, TIME_UNITS)}; set it with --time_unit"
        )
    return name, TIME_UNITS[name]


def find_time_column(table: Table, wanted: str | None) -> int | None:
    """The column of the time: the one asked for, or the only one that is called so; None where there is none.

    Raises:
      InputError: there is no such column, or several are called so.
    """
    names = [split_time_header(header)[0].strip().casefold() for header in table.header]
    if wanted is not None:
        plain = wanted.strip().casefold()
        asked = [i for i, name in enumerate(names) if plain in (name, table.header[i].casefold())]
        width = len(table.header) or len(table.rows[0][1])
        if not asked and wanted.isdecimal() and 1 <= int(wanted) <= width:
            return int(wanted) - 1
        if len(asked) != 1:
            raise InputError(f"no column '{wanted}' for the time{nearest(wanted, table.header)}")
        return asked[0]
    found = [i for i, name in enumerate(names) if set(re.split(r"[\W_]+", name)) & _WORDS]
    if len(found) > 1:
        several = ", ".join(table.header[i] for i in found)
        raise InputError(
            f"several columns could be the time ({shorten(several)}); set --time_column"
        )
    return found[0] if found else None


def split_time_header(header: str) -> tuple[str, str | None]:
    """Splits the header of a time column into name and unit, which is None where it says none."""
    match = _HEADER.fullmatch(header)
    if match is None:
        return header.strip(), None
    known = match[2] or (match[3] if match[3].lower() in {*TIME_UNITS, *_SPELLINGS} else None)
    return (match[1], known) if known else (header.strip(), None)
