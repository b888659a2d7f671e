"""The conditions of a test, from the head and the name of its file: specimen, temperature, direction, rate; its time.

Only what can be read in one way is taken: a wrong temperature would put a curve among others that it is unlike.
"""

import re
from collections.abc import Mapping

from tfmat.curves.tables import Table, shorten
from tfmat.curves.units import split_header
from tfmat.errors import InputError, nearest

_RANKINE_OF_0_F = 459.67
# Their names in the lines before the table, in lower case and without brackets.
_NAMES = {
    "specimen": r"(specimen|sample|probe|éprouvette|probeta)([ -]?(id|name|no\.?|number|nr\.?|nummer))?",
    "temperature": r"(test |testing |prüf)?(temperatur[ea]?|température|temp\.?)",
    "direction": r"((material|test|loading|rolling) )?(direction|orientation)|(walz|prüf)?richtung",
    "rate": r"(engineering |true |nominal |test )?(strain|shear) rate|rate|dehnrate|dehngeschwindigkeit",
}
TEMPERATURE_UNITS = {
    **dict.fromkeys(("°c", "c", "degc", "deg c", "celsius"), "°C"),
    **dict.fromkeys(("°f", "f", "degf", "deg f", "fahrenheit"), "°F"),
    **dict.fromkeys(("°r", "degr", "rankine"), "°R"),
    **dict.fromkeys(("k", "kelvin"), "K"),
}
_RATE_UNITS = dict.fromkeys(("1/s", "/s", "s-1", "s^-1", "s⁻¹", "1/sec", "per s", "s**-1"), "1/s")
_DIRECTIONS = {"ST", "LT", "TL", "SL", "LS", "RD", "TD", "ND"}
_NUMBER = r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?"


def conditions_of(notes: Mapping[str, str], stem: str) -> dict[str, str]:
    """The conditions in head and file name, by the keys `specimen`, `temperature`, `direction` and `rate`.

    Where both speak, the name's temperature and direction win over a bare number and an unknown word in the head.

    Args:
      notes: name -> text of the lines before the table.
      stem: the file's name without its ending.

    Returns:
      Values with their unit where it is known, `200 °C`; a bare number where it is not. Keys that nothing is said of
      are left out.
    """
    found = _from_notes(notes)
    for key, value in _from_name(stem).items():
        said = found.get(key)
        is_plain = said is not None and (
            (key == "temperature" and not re.fullmatch(_NUMBER, said))
            or (key == "direction" and said.upper() in _DIRECTIONS)
            or key == "rate"
        )
        if not is_plain:
            found[key] = value
    return {key: found[key] for key in _NAMES if key in found}


def fahrenheit_of_rankine(text: str) -> int | None:
    """Degrees Fahrenheit of a bare number that is a whole number of them in Rankine (534.67 is 75 °F); or None."""
    if not re.fullmatch(r"\d{3,4}\.67(0*)", text.strip()):
        return None
    return round(float(text) - _RANKINE_OF_0_F)


def _from_notes(notes: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in notes.items():
        in_brackets = re.search(r"[\[(](.*?)[\])]", name)
        plain = " ".join(re.sub(r"[\[(].*?[\])]|_", " ", name).lower().split())
        for key, pattern in _NAMES.items():
            if key not in found and text.strip() and re.fullmatch(pattern, plain):
                found[key] = value_with_unit(
                    key, text.strip(), in_brackets[1] if in_brackets else ""
                )
    return found


def value_with_unit(key: str, text: str, unit: str) -> str:
    """`text` with its unit as this project writes it, where it is a number; else as it stands."""
    units = {"temperature": TEMPERATURE_UNITS, "rate": _RATE_UNITS}.get(key)
    match = re.fullmatch(rf"({_NUMBER})\s*(.*)", text)
    if units is None or match is None:
        return text
    unit = (match[2] or unit).strip(" []()")
    value = f"{float(match[1].replace(',', '.')):.6g}"
    return f"{value} {units.get(unit.lower(), unit)}".strip()


def _from_name(stem: str) -> dict[str, str]:
    """Forms that can be read in one way only; what stands in a name twice is not taken."""
    seen: dict[str, set[str]] = {"temperature": set(), "direction": set(), "rate": set()}
    words = [
        word for word in re.split(r"[-_ ,;]+", re.sub(r"(?<=\d[eE])-(?=\d)", "−", stem)) if word
    ]
    for before, word in zip(["", *words], words, strict=False):
        word = word.replace("−", "-")
        if match := re.fullmatch(r"(\d{2,4})(?:deg|°)?C", word):
            sign = "-" if re.search(rf"(?:^|[_ ]|--)-{re.escape(word)}", f"{stem}") else ""
            seen["temperature"].add(f"{sign}{int(match[1])} °C")
        elif match := re.fullmatch(r"(\d{3,4})K", word):
            seen["temperature"].add(f"{int(match[1])} K")
        elif word in _DIRECTIONS or (word in ("L", "T", "S") and re.search(r"\d", before)):
            seen["direction"].add(word)
        elif match := re.fullmatch(r"(\d{1,2})(?:deg|°)", word):
            seen["direction"].add(f"{int(match[1])}°")
        # A bare power of ten below one; other decimal numbers may be a thickness.
        elif re.fullmatch(r"0\.0*1|1(\.0)?[eE]-\d+", word):
            seen["rate"].add(f"{float(word):.6g}")
        elif match := re.fullmatch(rf"({_NUMBER})(?:1?/s|s-1|ps)", word):
            seen["rate"].add(f"{float(match[1]):.6g} 1/s")
    return {key: values.pop() for key, values in seen.items() if len(values) == 1}


TIME_UNITS: dict[str, float] = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPELLINGS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds", "sekunden", "secondes"), "s"),
    **dict.fromkeys(("msec", "milliseconds"), "ms"),
    **dict.fromkeys(("mins", "minute", "minutes", "minuten"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours", "std", "stunden", "heures"), "h"),
    **dict.fromkeys(("day", "days", "tage", "jours"), "d"),
}
_WORDS = {
    "time",
    "zeit",
    "temps",
    "tiempo",
    "tempo",
    "t",
    "prüfzeit",
    "testzeit",
    "elapsed",
    "時間",
    "时间",
}


def find_time_unit(text: str) -> tuple[str, float]:
    """A unit of time and its factor to seconds; InputError where it is unknown."""
    spelling = text.strip().strip("[](){}").strip().lower()
    name = _SPELLINGS.get(spelling, spelling)
    if name not in TIME_UNITS:
        raise InputError(
            f"unknown time unit '{text}'{nearest(text, TIME_UNITS)}; set it with --time_unit"
        )
    return name, TIME_UNITS[name]


def find_time_column(table: Table, wanted: str | None, needed: bool = True) -> int | None:
    """The column of the time: the one asked for, or the only one that is called so; None where there is none.

    Raises:
      InputError: there is no such column, or several are called so and one is `needed`.
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
    if len(found) > 1 and not needed:
        return None
    if len(found) > 1:
        several = ", ".join(table.header[i] for i in found)
        raise InputError(
            f"several columns could be the time ({shorten(several)}); set --time_column"
        )
    return found[0] if found else None


def split_time_header(header: str) -> tuple[str, str | None]:
    """Splits the header of a time column into name and unit, which is None where it says none.

    The last bracket is taken for its unit, so that an unknown one is refused by its name.
    """
    name, unit = split_header(header, lambda text: text.lower() in {*TIME_UNITS, *_SPELLINGS})
    in_brackets = re.search(r"[\[({<]([^\[\](){}<>]+)[\])}>]\s*$", name)
    if unit is None and in_brackets:
        return name[: in_brackets.start()].strip(), in_brackets[1]
    return name, unit
