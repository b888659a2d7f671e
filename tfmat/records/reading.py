"""From a file that a testing machine exported to strain and stress, and what it says of the test."""

import contextlib
import dataclasses
import datetime
import itertools
import math
import os
import pathlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array
from tfmat.records.tables import (
    AREA_UNITS,
    DISPLACEMENT_UNITS,
    LOAD_UNITS,
    MINIMUM_POINTS,
    NAMES_IN_BRACKETS,
    STRESS_UNITS,
    Cell,
    DecimalMark,
    Frame,
    Table,
    Unit,
    axis_unit,
    blank_rows_between,
    decimal_mark,
    find_size,
    find_unit,
    is_blank,
    looks_like_a_number,
    notes_side_by_side,
    number,
    plain,
    read_tables,
    shared_names,
    shorten,
    split_header,
    titles_side_by_side,
    word_set,
)

# --------------------------------------------------------------------------------------------------
# The conditions of a test, from the head and the name of its file: specimen, temperature, direction, rate; its time.
#
# Only what can be read in one way is taken: a wrong temperature would put a curve among others that it is unlike.


_RANKINE_OF_0_F = 459.67
# Their names in the lines before the table, in lower case and without brackets.
_NAMES = {
    "specimen": r"(specimen|sample|probe|éprouvette|probeta)([ -]?(id|name|no\.?|number|nr\.?|nummer))?",
    "temperature": r"(test |testing |prüf)?(temperatur[ea]?|température|temp\.?)"
    r"|temperatuur|teplota|sıcaklık|lämpötila|hőmérséklet|температура|温度|온도",
    "direction": r"((material|test|loading|rolling) )?(direction|orientation)|(walz|prüf)?richtung",
    "rate": r"(engineering |true |nominal |test )?(strain|shear) rate|(test )?rate|dehnrate|dehngeschwindigkeit"
    r"|vitesse de déformation|velocidad de deformación|velocità di deformazione|taxa de deformação"
    r"|prędkość odkształcenia|скорость деформации|应变速率|ひずみ速度|변형률 ?속도",
}
TEMPERATURE_UNITS = {
    **dict.fromkeys(("°c", "c", "degc", "deg c", "celsius"), "°C"),
    **dict.fromkeys(("°f", "f", "degf", "deg f", "fahrenheit"), "°F"),
    **dict.fromkeys(("°r", "degr", "rankine"), "°R"),
    **dict.fromkeys(("k", "kelvin"), "K"),
}
# _RATE_UNITS: units of a strain rate, and their factors to 1/s.
_RATE_UNITS = {
    **dict.fromkeys(("1/s", "/s", "s-1", "s^-1", "s⁻¹", "1/sec", "per s", "s**-1", "mm/mm/s"), 1.0),
    **dict.fromkeys(("1/min", "/min", "min-1", "min^-1", "min⁻¹", "mm/mm/min"), 1.0 / 60.0),
    "%/s": 0.01,
    "%/sec": 0.01,
    "%/min": 0.01 / 60.0,
    "%/h": 0.01 / 3600.0,
}
# _SPEED_NOTE: names of the speed at which a specimen is pulled.
_SPEED_NOTE = (
    r"((test(ing)?|cross-?head|head|pulling|loading) )?speed|cross-?head rate"
    r"|(prüf|traversen|abzugs?|zug)geschwindigkeit"
    r"|vitesse (d.essai|de (la )?traverse)|velocidad (de(l)? )?(ensayo|cruceta)|velocità (di prova|della traversa)"
    r"|試験速度|试验速度|拉伸速度|加载速度"
)
_DIRECTIONS = {"ST", "LT", "TL", "SL", "LS", "RD", "TD", "ND"}
_NUMBER = r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?"


def rate_by_speed(notes: Mapping[str, str], length: float) -> tuple[str, str]:
    """The strain rate by the only speed that the head tells over a length (mm), and these in words; '' without one."""
    found = {}
    for name, text in notes.items():
        words, unit = split_header(name, _mm_per_s)
        plain_name = " ".join(re.sub(r"[\[\](){}_,;]", " ", words.lower()).split())
        match = re.fullmatch(rf"({_NUMBER})\s*(.*)", text.strip())
        factor = _mm_per_s(match[2] or unit or "") if match else 0.0
        if match and factor and re.fullmatch(_SPEED_NOTE, plain_name):
            found[float(match[1].replace(",", ".")) * factor / length] = f"'{name}: {text}'"
    if len(found) != 1 or min(found) <= 0.0:
        return "", ""
    ((rate, said),) = found.items()
    return f"{rate:.6g} 1/s", f"rate by {said} over the length of {length:g} mm"


def _mm_per_s(text: str) -> float:
    """The factor of a speed's unit to mm/s; 0 where it is none."""
    above, _, below = re.sub(r"[\s·.]*(min|s)(⁻¹|\^?-1)$", r"/\1", text).partition("/")
    time = TIME_UNITS.get(_SPELLINGS.get(below.strip().lower(), below.strip().lower()), 0.0)
    return (find_size(above, DISPLACEMENT_UNITS) or 0.0) / time if time else 0.0


def conditions_of(notes: Mapping[str, str], stem: str, lines: Iterable[str] = ()) -> dict[str, str]:
    """The conditions in head and file name, by the keys `specimen`, `temperature`, `direction` and `rate`.

    Where both speak, the name's temperature and direction win over a bare number and an unknown word in the head.

    Args:
      notes: name -> text of the lines before the table.
      stem: the file's name without its ending.
      lines: those lines as they stand, for what is told in prose.

    Returns:
      Values with their unit where it is known, `200 °C`; a bare number where it is not. Keys that nothing is said of
      are left out.
    """
    found = _from_prose(lines) | _from_notes(notes)
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
        key, unit = condition_named(name)
        if key and key not in found and text.strip():
            found[key] = value_with_unit(key, text.strip(), unit)
    return found


# _OF_TEST: words of a line about the test. _AT: such a word, and behind it only those that lead to its temperature:
# others may tell at which one the material was annealed, cured or rolled. _LONGEST_PROSE: letters of such a line.
_OF_TEST = re.compile(
    r"test|versuch|prüf|tension|tensile|zug|essai|traction|ensayo|tracción|prova|trazione|druck|compress"
)
_LEADS = (
    r"at|bei|à|a|ad|und|and|et|e|y|t|s|sec|min|mm|strain|shear|rate|dehnrate|of|von|de|elevated|high|low|room"
    r"|erhöhte[rn]?|hohe[rn]?|temp(eratur[ea]?|érature)?"
)
_LONGEST_PROSE = 200
_AT = re.compile(rf"(?:{_OF_TEST.pattern})\w*(?:[\W\d_]|\b(?:{_LEADS})\b)*$")
_IN_PROSE = {
    "temperature": re.compile(rf"(?<![\w.,])({_NUMBER})\s*((?:°|deg\.?)\s?[cf])\b"),
    "rate": re.compile(
        rf"({_NUMBER})\s*({'|'.join(sorted(map(re.escape, _RATE_UNITS), key=len, reverse=True))})(?!\w)"
    ),
}


def _from_prose(lines: Iterable[str]) -> dict[str, str]:
    """The only temperature and rate of lines that speak of a test: `Tension test at 300 °C, 0.001 1/s`."""
    told: dict[str, set[str]] = {key: set() for key in _IN_PROSE}
    is_at = False
    for line in map(str.lower, lines):
        if len(line) > _LONGEST_PROSE or not _OF_TEST.search(line):
            continue
        # A bare C may be a batch.
        line = re.sub(rf"\bt\s?=\s?({_NUMBER})\s?c\b", r"t \1 °c", line)
        for key, pattern in _IN_PROSE.items():
            for match in pattern.finditer(line):
                is_at |= key == "temperature" and bool(_AT.search(line[: match.start()]))
                unit = re.sub(r"^(deg|°)\W*", "°", match[2])
                told[key].add(value_with_unit(key, match[1], unit))
    if not is_at:
        told["temperature"].clear()
    return {key: values.pop() for key, values in told.items() if len(values) == 1}


def condition_named(name: str) -> tuple[str, str]:
    """The condition that a name is of, and its unit, `Dehnrate [1/min]`; '' for what it does not tell."""
    known = TEMPERATURE_UNITS.keys() | _RATE_UNITS.keys()
    name, unit = split_header(name, lambda text: text.lower() in known)
    in_brackets = re.search(r"[\[(](.*?)[\])]", name)
    plain_name = " ".join(re.sub(r"[\[(].*?[\])]|_", " ", name).lower().split())
    keys = (key for key, pattern in _NAMES.items() if re.fullmatch(pattern, plain_name))
    return next(keys, ""), unit or (in_brackets[1] if in_brackets else "")


def value_with_unit(key: str, text: str, unit: str) -> str:
    """`text` with its unit as this project writes it, where it is a number; else as it stands."""
    if key == "rate":
        # `1.5 x 10^3`
        text = re.sub(
            rf"(?:({_NUMBER})\s*[x×·*]\s*)?(?<![\d.])10\s*\^\s*\(?([-+]?\d+)\)?",
            lambda power: f"{power[1] or 1}e{power[2]}",
            text.replace("−", "-"),
        )
    match = re.fullmatch(rf"({_NUMBER})\s*(.*)", text)
    # `1,000` may be a thousand.
    if key not in ("temperature", "rate") or match is None or re.match(r"[1-9]\d*,\d{3}\b", text):
        return text
    unit = (match[2] or unit).strip(" []()")
    value = float(match[1].replace(",", "."))
    factor = _RATE_UNITS.get(unit.lower()) if key == "rate" else None
    if factor is not None:
        return f"{factor * value:.6g} 1/s"
    known = TEMPERATURE_UNITS if key == "temperature" else {}
    return f"{value:.6g} {known.get(unit.lower(), unit)}".strip()


def _from_name(stem: str) -> dict[str, str]:
    """Forms that can be read in one way only; what stands in a name twice is not taken."""
    seen: dict[str, set[str]] = {"temperature": set(), "direction": set(), "rate": set()}
    stem = re.sub(r"(?<=\d)[_ ]?(?:s\^?-1|per[_ ]?s(?:ec)?)(?![^\W_])", "ps", stem)
    # `20 C` may be a batch, but beside a rate.
    sign = "(?:°|deg)?" if re.search(r"\dps(?![^\W_])", stem) else "(?:°|deg)"
    stem = re.sub(rf"(?<=\d\d)[_ ]?{sign}[_ ]?C(?![^\W_])", "C", stem)
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


TIME_UNITS: dict[str, float] = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_SPELLINGS = {
    word: unit
    for unit, words in {
        "s": "sec secs second seconds sekunden secondes с сек 秒 초 sn saniye segundos secondi",
        "ms": "msec milliseconds",
        "us": "µs μs usec microseconds",
        "min": "mins minute minutes minuten мин хв 分 分钟 분 minutos minuti dk",
        "h": "hr hrs hour hours std std. stunden heures heure horas ore ч час uur saat godz hod 小时 시간",
        "d": "day days tage jours",
    }.items()
    for word in words.split()
}
# _TIMES: words that name a column of the time.
_TIMES = word_set(
    """
    time zeit temps tiempo tempo t prüfzeit testzeit elapsed czas čas tijd zaman süre tid время 時間 时间 시간
    """
)
# _CLOCKS: words that name a column of a clock, whose cells show it; it counts where no column is called time.
_CLOCKS = word_set("timestamp datetime uhrzeit clock heure hora ora godzina saat")
# _DATES: words that name a column of the day beside a clock's.
_DATES = word_set("date datum fecha tarih dato päivä")
# _LOGARITHMS: words of a logarithm of the time, and its base; `log` may mean either.
_LOGARITHMS = {"log10": 10.0, "lg": 10.0, "ln": np.e, "log": np.nan}
# _OF_TIMES: words beside them for what is made of a time, and is none.
_OF_TIMES = set(_LOGARITHMS) | word_set("sqrt increment delta interval rate")


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
    if wanted is not None:
        return _wanted_column(table, "time", wanted, split_time_header)
    first = [str(cell).strip() for cell in table.rows[0][1]]
    # A clock shows in the cells, whatever their column is called: `hh:mm:ss`.
    clocks = [i for i, cell in enumerate(first) if table.header[i:] and _CLOCK.fullmatch(cell)]
    found = _called(table, _TIMES) or clocks or _called(table, _TIMES, _LOGARITHMS)
    if len(found) > 1 and not needed:
        return None
    if len(found) > 1:
        several = ", ".join(table.header[i] for i in found)
        raise InputError(
            f"several columns could be the time ({shorten(several)}); set --time_column"
        )
    return found[0] if found else None


def _called(table: Table, names: set[str], of: Collection[str] = ()) -> list[int]:
    """The columns that one of these words names, that are not made of a time, but `of`, and have no other unit."""
    found = []
    for i, header in enumerate(table.header):
        words = set(re.split(r"[\W_]+", plain(header if of else split_time_header(header)[0])))
        unit = split_header(header)[1] or table.units[i] or "?"
        # A temperature, or a modulus E(t).
        has_other = find_unit(unit) or _temperature_unit(header, table.units[i])
        is_other = bool(has_other) and names & words == {"t"}
        if names & words and not is_other and (words & {*of} if of else not _OF_TIMES & words):
            found.append(i)
    return found


# _DEGREES: `T /°C`, `temperature_C`.
_DEGREES = re.compile(r"\b(?:T|temp\w*?\.?)(?: ?/ ?|[ _]| in )(°?[CFK])\s*$", re.IGNORECASE)


def _temperature_unit(header: str, in_row: str | None) -> str:
    """The unit of a temperature in a header's brackets or at its end, or in a row of units; '' where there is none."""
    said = re.search(r"[\[(]([^\[\]()]*)[\])]", header) or _DEGREES.search(header)
    unit = (said[1] if said else in_row or "").strip(" []()").lower()
    return TEMPERATURE_UNITS.get(unit, "")


# _CLOCK: `0:01:02.5`, `1:02.5`, `11:30:00 PM`, `1 day, 0:00:01`, and what stands before it, which may be a date.
_CLOCK = re.compile(
    r"(?:(?P<days>\d+) days?,? )?(?P<date>\d{1,4}[-./]\d{1,2}[-./]\d{2,4}[ T])?"
    r"(?P<first>\d{1,4}):(?P<second>\d{1,2}(?:[.,]\d*)?)(?::(?P<third>\d{1,2}(?:[.,]\d*)?))?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?Z?",
    re.IGNORECASE,
)
_DAY = 86400.0
# _WORKBOOK_DAY_0: the day from which a workbook counts times above 24 hours.
_WORKBOOK_DAY_0 = datetime.date(1899, 12, 31).toordinal()


def seconds_of_clocks(cells: Sequence[Cell], name: str) -> Array | None:
    """Times of a clock, with or without a date, as seconds [rows]; None where the first cell is none.

    Args:
      name: the column's header, which may say `mm:ss` or `hh:mm`.

    Raises:
      InputError: a cell is no such time, or it can be read in two ways.
    """
    found = [_CLOCK.fullmatch(cell.strip()) if isinstance(cell, str) else None for cell in cells]
    if not found or found[0] is None:
        return None
    matches = [match for match in found if match is not None]
    if len(matches) < len(cells):
        bad = shorten(str(cells[found.index(None)]))
        raise InputError(f"column '{name}' holds times such as '{cells[0]}', and '{bad}' is none")
    seconds = [_seconds(match, name) for match in matches]
    days = _days([match["date"] or "" for match in matches], name)
    if days is None:
        # A clock that falls by more than half a day has passed midnight.
        days = list(itertools.accumulate(b < a - _DAY / 2 for a, b in itertools.pairwise(seconds)))
        days = [0, *days]
    return np.array([day * _DAY + second for day, second in zip(days, seconds, strict=True)])


def _seconds(match: re.Match[str], name: str) -> float:
    """Seconds since midnight, or since the test began; days before them count too."""
    first, second, third = (
        None if text is None else float(text.replace(",", ".")) for text in match.group(3, 4, 5)
    )
    assert first is not None and second is not None
    hours, minutes, seconds = first, second, third or 0.0
    if third is None and not match["half"]:
        is_fine = not match["second"].isdecimal()
        says = re.search(r"(?P<hours>h+):m+|m\w*:s", name, re.IGNORECASE)
        if says is None and not is_fine:
            raise InputError(
                f"'{match[0]}' in column '{name}' may be minutes and seconds, or hours and minutes; name the column "
                "'Time (mm:ss)' or 'Time (hh:mm)'"
            )
        if is_fine or (says and not says["hours"]):
            hours, minutes, seconds = 0.0, first, second
    if match["half"]:
        hours = hours % 12 + 12 * (match["half"].lower() == "p")
    return float(match["days"] or 0) * _DAY + hours * 3600.0 + minutes * 60.0 + seconds


def _days(dates: list[str], name: str) -> list[int] | None:
    """The day of each date [rows], counted from the first one; None where no row tells one, or all tell the same."""
    if len(set(dates)) == 1:
        return None
    readings = []
    for is_usual, (year, month, day) in (
        (lambda date: date[:4].isdecimal(), (0, 1, 2)),
        (lambda date: not date[:4].isdecimal(), (2, 1, 0)),
        (lambda date: "/" in date and not date[:4].isdecimal(), (2, 0, 1)),
    ):
        if not all(date == "" or is_usual(date) for date in dates):
            continue
        with contextlib.suppress(ValueError):
            known = {"": _WORKBOOK_DAY_0}
            for date in set(dates) - {""}:
                parts = [int(part) for part in re.findall(r"\d+", date)]
                known[date] = datetime.date(parts[year], parts[month], parts[day]).toordinal()
            readings.append([known[date] - known[dates[0]] for date in dates])
    if len(readings) != 1:
        shown = " and ".join(sorted(filter(None, set(dates)))[:2])
        raise InputError(
            f"the dates of column '{name}' ({shown.strip()}) can be read in {len(readings) or 'no'} ways; write them "
            "as 2026-11-28, or give the time in seconds"
        )
    return readings[0]


def split_time_header(header: str) -> tuple[str, str | None]:
    """Splits the header of a time column into name and unit, which is None where it says none.

    The last bracket, or the word behind a comma, is taken for its unit, so that an unknown one is refused by its name.
    """
    name, unit = split_header(header, lambda text: text.lower() in {*TIME_UNITS, *_SPELLINGS})
    in_brackets = re.search(r"[\[({<]([^\[\](){}<>]+)[\])}>]\s*$", name)
    if unit is None and in_brackets:
        return name[: in_brackets.start()].strip(), in_brackets[1]
    behind = re.search(r"[,/] *([^\s,/]{1,12})$", name)
    if unit is None and behind and plain(behind[1]) not in _TIMES | _CLOCKS | _DATES:
        return name[: behind.start()].strip(), behind[1]
    return name, unit


# --------------------------------------------------------------------------------------------------
# The columns of strain and stress, and their units, from the user's options or the header.
#
# Nothing is guessed that could be guessed in two ways: then the error says which flag decides.


Measure = Literal["engineering", "true"]
Axis = Literal["strain", "stress"]
ASSUMED, GIVEN = "assumed", "as given"
# The columns of an axis that has none: a displacement (load), which a size makes a strain (stress).
BEFORE_SIZE = {"strain": "displacement", "stress": "load"}

# _STRETCH: words of a length over the one at rest.
_STRETCH = word_set("stretch λ lambda streckung verstreckung streckverhältnis dehnungsverhältnis")
# English, German, French, Spanish, Italian, Portuguese, Dutch, Turkish, Polish, Czech, Slovak, Hungarian, Swedish,
# Danish, Norwegian, Finnish, Russian, Ukrainian, Japanese, Chinese and Korean.
_WORDS: dict[str, set[str]] = {
    "strain": _STRETCH
    | word_set(
        """
        strain microstrain gamma gamma12 γ γ12 epsilon eps ε epsilon12 eps12 ε12 eps_12 déformation
        deformación deformazione deformação rek gerinim birim dms exx eyy exy
        epsx epsy epsxx epsyy umformgrad le11 le22 le33 sg sg1 sg2 sg3 sg4
        estrain tstrain odkształcenie přetvoření pretvorenie töjning tøjning tøyning venymä деформация
        παραμόρφωση deformacija regangan деформація
        """
    ),
    "stress": word_set(
        """
        stress tau tau12 τ τ12 sigma sig σ s11 s22 s33 contrainte esfuerzo tensione sforzo tensão gerilme estress
        tstress naprężenie tensiune napětí napätie feszültség spænding spenning jännitys напряжение
        τάση napon napetost įtempis tegangan напруження
        """
    ),
    "displacement": word_set(
        """
        displacement displ disp clip extension elongation elong separation stroke crosshead position travel weg
        deformation deform verformung traverse déplacement allongement desplazamiento alargamiento elongación extensión
        spostamento allungamento estensione deslocamento alongamento extensão extensometer
        extensomètre extensómetro estensimetro extensômetro extensom estens extenso ext exten extens dl δl lvdt lve
        multixtens laserxtens videoxtens course corsa curso carrera
        traversa uzama écrasement wydłużenie przemieszczenie verplaatsing deformace deformácia prodloužení deformație
        posuv predĺženie posunutie nyúlás megnyúlás elmozdulás förlängning forlængelse forlengelse förskjutning
        pidennys siirtymä deplasman удлинение перемещение видовження переміщення
        """
    ),
    "load": word_set(
        """
        load force charge effort fuerza carga forza carico força kuvvet yük kraft siła síla sila erő
        voima сила усилие нагрузка навантаження 力 拉力
        """
    ),
}
# A word also counts at the end of a longer one: Zugspannung, Standardkraft, 公称応力.
_ENDINGS = {
    "strain": word_set(
        "dehnung gleitung stauchung verzerrung ひずみゲージ ひずみ 歪 歪み 应变 應變 伸长率 延伸率 변형률"
    ),
    "stress": word_set("spannung spanning spänning 応力 应力 應力 응력"),
    "displacement": word_set(
        """
        weg aufnehmer verlängerung verlaengerung verschiebung längenänderung laengenaenderung verlenging 変位
        ストローク 伸び 伸び計 引伸计 引伸計 位移 变形 變形 行程 伸长 伸長 변위
        """
    ),
    "load": word_set("kraft kracht 荷重 試験力 试验力 試驗力 载荷 載荷 负荷 하중"),
}
# _EXTENSOMETER: words of a travel or strain that is measured at the specimen.
_EXTENSOMETER = word_set(
    """
    extensometer extensomètre extensómetro estensimetro extensômetro extensom estens extenso längenänderung
    laengenaenderung verformung dic video videoextensometer videoxtens laserxtens multixtens lve
    ansetzaufnehmer feindehnungsaufnehmer clip feinweg feindehnung feine fd ekstensometr
    extenzometr ekstensometre 伸び計 引伸计 引伸計
    """
)
# _CHANGE_OF_LENGTH: words among them that a file without another travel may use for the crosshead's.
_CHANGE_OF_LENGTH = word_set("längenänderung laengenaenderung verformung")
# _CROSSHEAD: words of a travel that machine and grips have a share in.
_CROSSHEAD = word_set(
    """
    crosshead stroke position jaw jaws actuator machine traverse traversenweg kolbenweg maschinenweg grobe course
    corsa curso carrera traversa ストローク 行程 変位 位移 横梁 변위 grip grips ram piston kolbenhub kolben
    actionneur vérin траверсы траверса siłownik
    """
)
# _TRAVEL: words of a travel that may be either, and mostly is the crosshead's.
_TRAVEL = word_set(
    """
    displacement displ disp travel weg standardweg verschiebung déplacement desplazamiento spostamento deslocamento
    przemieszczenie verplaatsing posuv posunutie elmozdulás förskjutning siirtymä deplasman перемещение
    """
)
# _MEANS: words of the mean of several strains, which counts before these.
_MEANS = word_set(
    """
    mean average averaged avg mittel mittelwert mittlere moyenne media medio promedio média średnia gemiddelde
    ortalama průměr среднее 平均
    """
)
# _SIDES: pairs of words for opposite sides of a specimen, whose mean strain is free of bending.
_SIDES = tuple(
    frozenset(pair.split("/"))
    for pair in word_set(
        "front/back front/rear left/right top/bottom vorn/hinten vorne/hinten links/rechts oben/unten avant/arrière "
        "gauche/droite"
    )
)
# _VOLTS: words of a strain gauge's own signal.
_VOLTS = word_set("mv v volt volts bridge output excitation")
# Columns that name a strain or a stress and are not the curve's own.
_OTHER_WORDS = word_set(
    """
    rate speed velocity vitesse velocidad velocità plastic elastic taxa tasa std dev error deviation transverse
    transversal transversale trasversale lateral radial hoop circumferential volumetric hydrostatic
    thermal residual relative normalized normalised comp width thickness gauge time modulus proof
    yield querdehnung querverformung quer breitendehnung dickendehnung umfangsdehnung volumendehnung diametral
    diametrical latérale laterale radiale minor poisson perpendicular deviatoric querkraft vorkraft mittelspannung
    plastisch command cmd setpoint sollwert soll consigne consigna demand count peak valley maximum
    minimum max min sd stdev cv drop intensity bearing energy work power temperature density trans lat rychlost hızı
    break failure fracture ultimate rupture rotura rottura ruptura bruch bruchdehnung bruchspannung gleichmaßdehnung
    höchstkraft maximalkraft разрушения разрыве zerwaniu 断裂应变 断裂应力 破断ひずみ 破断応力 파단변형률 파단응력
    target limit final
    """
)
# _PEAKS: words among them for the ends of cycles.
_PEAKS = word_set("peak valley maximum minimum max min")
# _RATES: ends of words for a rate.
_RATES = tuple(word_set("geschwindigkeit snelheid 速度 速率 应变率 應變率 속도"))
_SPECIMEN_WORDS = word_set(
    """
    specimen specimenid specimenname sample sampleid samplename coupon probe probennummer probenname
    probenbezeichnung proben-nr éprouvette probeta muestra provino campione amostra replicate test
    run versuch essai ensayo prova 試験片 試料 试样
    """
)
# Words beside these that only say that it is the name or number of one.
_NAME_WORDS = word_set("id name no nr num number nummer label bezeichnung nom numero n corpo de")
# _CYCLE_WORDS: names of a column that numbers cycles, and _COUNTER_WORDS what stands beside them.
_CYCLE_WORDS = word_set(
    "cycle cycles zyklus zyklen lastspiel lastwechsel ciclo ciclos cicli cykl cykle サイクル 循环"
)
_COUNTER_WORDS = word_set("count counter elapsed total index axial running")
_COMPRESSION = word_set(
    """
    upset compress compres druck druk stauch 圧縮 压缩 壓縮 압축 ecras raccourciss acortam schiacc ścisk сжат стисн tlak
    tlač tryck tryk puristus puristuma nyomó basma basınç θλίψ θλιπτ
    """
)
_TENSION = word_set("tensil tract trac traz zug")
_MEASURE_WORDS: dict[str, Measure] = {
    **dict.fromkeys(
        word_set(
            """
            engineering eng nominal technical tech technische technisch conventionnelle conventionnel nominale
            ingeniería ingegneristica ingegneristico ingénieur mühendislik 公称 工程 名义 공칭 estrain estress
            inżynierskie inżynierski smluvní условн инженерн teknisk tekniska techn technischer technisches
            nennspannung nenndehnung nominalspannung nominaldehnung ingenieurspannung ingenieurdehnung nominelle
            ingénierie ingenieril ingenieriles convencional convenzionale engenharia nominell nominella nominalne
            nominalna номинальн
            """
        ),
        "engineering",
    ),
    **dict.fromkeys(
        word_set(
            """
            true cauchy log logarithmic hencky wahre wahr vraie vrai real reale verdadera verdadero vera vero
            verdadeira verdadeiro gerçek rzeczywiste rzeczywisty ware skutečné skutečná sann sanna истинн
            logarithmische logarithmique logarítmica logaritmica rationnelle 真 真实 진 tstrain tstress істинн πραγματικ
            valódi todellinen sand reală adevărată skutočné stvarna stvarno sejati werkelijke
            flow fließspannung fliessspannung umformgrad le11 le22 le33
            """
        ),
        "true",
    ),
}
# _PART: beginnings of words for one part of the strain; a law is identified from the total.
_PART = word_set(
    """
    plasti plásti elasti élasti elásti inelast permanent bleibend residu пластич упруг sprężyst pružn képlékeny rugalm
    πλαστικ ελαστικ
    """
)
# _PART_WITHIN: the same within words, which these letters do not divide.
_PART_WITHIN = word_set("塑性 弾性 弹性 소성 탄성")
# _BENDING: beginnings of words for bending, whose stress at the surface is no stress of a law.
_BENDING = word_set(
    """
    flex fless bend bieg randfaser buig zgina zginan ohyb hajlit taivut böjnings bøyning egilme
    изгиб 曲げ 弯曲 彎曲 굽힘
    """
)
# _OVER_THE_SECTION: words of what torsion and bending measure, by the axis that they are taken for.
_OVER_THE_SECTION = {
    "strain": word_set("twist verdrehung verdrehwinkel torsionswinkel deflection durchbiegung"),
    "stress": word_set("torque moment drehmoment torsionsmoment couple coppia 扭矩 トルク"),
}
# _EQUIVALENT: beginnings of words beside a strain that is made of all of its components; _EQUIVALENT_STRAINS: its own.
_EQUIVALENT = word_set(
    "mises equivalent équivalent äquivalent effective effektiv vergleichs 等效 相当"
)
_EQUIVALENT_STRAINS = word_set("vergleichsformänderung vergleichsumformgrad")
# _NORMALIZED: a stress, or a strain, that was divided by another one.
_NORMALIZED = re.compile(
    r"normali[sz]ed|normiert|\bnorm\.|relativ|stress ratio"
    r"|(stress|σ|sigma)[ _]?/[ _(]?(stress|σ|sigma|initial|strength)"
    r"|(strain|ε|eps|epsilon)[ _]?/[ _(]?(strain|ε|eps|epsilon)"
)
# _RANGE: a strain or stress from the lowest to the highest of a cycle.
_RANGE = re.compile(r"(strain|stress|load|force|displacement)[ _-]?range|schwingbreite")
# _PLASTIC: short names of the plastic strain, without the `_` in them.
_PLASTIC = re.compile(
    r"(?<![^\W\d_])(?:peeq|(?:eps(?:ilon)?|ε|strain|dehnung|e)[ _,.]?(?:pl(?:ast)?|p))(?![^\W_])",
    re.IGNORECASE,
)
# Words beside a name that change neither its unit nor its meaning.
_QUALIFIERS = word_set(
    """
    technical axial longitudinal creep average averaged avg mean corrected compensated ext gauge gage
    machine video filtered smoothed smooth raw calculated measured shear tensile tension compressive
    compression uniaxial biaxial planar total ratio piola kirchhoff pk1 first second local global
    virtual channel ch kanal canal voie sensor cell signal value values wert data daten curve test
    specimen sample experiment experimental exp simulated simulation sim fem fea model fitted fit
    standard abs absolut absolute optical laser lvdt primary front back left right top bottom at of
    the from by in on over with and de del della du des la le der die das den von per por a à di
    phi φ kf amplitude major corr necking necked bridgman noisy noise steel aluminium aluminum alloy copper rubber ply
    laminate polymer material batch lab weld base metal plate sheet bar
    şekil değiştirme en em el lo il al im zu bei durch mit to as gemessen mesuré medido misurato
    zug traction tracción trazione tração unitaire unitaria unitario material direction quasi static
    cyclic monotonic interpolated resampled long green lagrange lagrangian
    almansi euler tensor tensorial no nr x y z xx yy zz xy 11 22 33 12 rd td nd vsg
    """
)
_UNDERSTOOD = (
    set().union(*_WORDS.values(), *_ENDINGS.values(), _EXTENSOMETER, _CROSSHEAD, _TRAVEL)
    | _QUALIFIERS
    | _SPECIMEN_WORDS
    | set(_MEASURE_WORDS)
    | {"e", "s", "p", "le"}
)
# A specimen's or channel's own letter and number.
_LABEL = re.compile(r"[a-z]|[a-z]{0,3}\d{1,4}[a-z]{0,2}")
# _OVER_A_SIZE: a unit over an area or a volume, whose letters are no specimen's: `t/cm²`.
_OVER_A_SIZE = re.compile(r"\w/ ?(mm|cm|m|in|ft)[²³23]$", re.IGNORECASE)
# _OTHER_UNIT: what only a unit can be in brackets, volts, `a.u.`, `N/m`, `E-3`; other short words there are labels.
_OTHER_UNIT = re.compile(
    r"[\[(] *(V|[aA]\.? ?[uU]\.?|[eE][-+]\d+|[^\W\d_]{1,3}/[^\W\d_]{1,3}|°[CF]) *[\])]"
)
# _FACTOR: words beside a name that multiply its numbers, or divide them: `x1000`, `*10`, `10³`, `thousand`.
_FACTOR = re.compile(
    r"(?:(?<![^\W\d_])x|[×*·])\s*\d+|/\s*10+\b|\b1e[+-]?\d+\b|10(?:\^|\*\*|[⁰¹²³⁴-⁹⁻])\S*"
    r"|\b10{3,}\b|(?<=[\[(])\s*0[.,]0*1\s*(?=[\])%‰])"
    r"|\b(?:hundred|thousand|million|tausend|mille|kilo|mega|milli|micro)\b",
    re.IGNORECASE,
)
# Wider tables hold no specimens side by side.
_MOST_COLUMNS_SIDE_BY_SIDE = 256


@dataclasses.dataclass(frozen=True)
class Column:
    """A column that was chosen for an axis.

    Attributes:
      index: in the table; name: without its unit.
      unit: what its numbers are in; unit_source: where that is known from, in words.
      opposite: the column of the other side of the specimen, where the mean of both counts.
      beside_true: other columns of the table are called true beside plain ones, which are engineering then.
    """

    index: int
    name: str
    unit: Unit
    unit_source: str
    opposite: "Column | None" = None
    beside_true: bool = False

    @property
    def measure(self) -> Measure | None:
        """Engineering or true, where its name says so; a stretch, or one's square, is made an engineering strain."""
        if self.unit.name == "stretch" or self.square:
            return "engineering"
        words = _words(self.name)
        found = {measure for word, measure in _MEASURE_WORDS.items() if _holds(words, word)}
        if "kirchhoff" in words and not words & {"piola", "pk1"}:
            found.add("true")  # at constant volume
        if not found and self.beside_true:
            return "engineering"
        return found.pop() if len(found) == 1 else None

    @property
    def square(self) -> float:
        """The power of the stretch that its strain is half of the change of: 2 by Green, -2 by Almansi, else 0."""
        words = _words(self.name)
        if words & {"log", "logarithmic", "hencky"}:
            return 0.0
        return (
            -2.0 if "almansi" in words else 2.0 * bool(words & {"green", "lagrange", "lagrangian"})
        )

    @property
    def own_measure(self) -> Measure | None:
        """The measure of the numbers: a load over an area and a travel over a length are engineering by themselves."""
        return "engineering" if self.unit.quantity in ("load", "displacement") else self.measure

    @property
    def is_compression(self) -> bool:
        """Whether its name says that positive numbers are compression."""
        return says_compression(self.name)

    @property
    def is_of_an_extensometer(self) -> bool:
        """Whether its name says that an extensometer measured it."""
        return _is_of_an_extensometer(self.name)

    @property
    def is_of_the_machine(self) -> bool:
        """Whether it is a travel, or a strain made of one, that machine and grips have a share in."""
        words = _words(self.name)
        # Instron's software writes the channel of a strain behind it, and calls the crosshead's so.
        is_channel = re.search(r"\((extension|estensione|extensao)\)", plain(self.name))
        names_it = is_channel is not None and _is_named(self.name, "strain")
        of_it = names_it or _speaks_of(words, _CROSSHEAD | _TRAVEL)
        return not self.is_of_an_extensometer and of_it

    @property
    def assumed(self) -> str:
        """The assumption about its unit, in short; empty where it was read."""
        if self.unit_source != ASSUMED:
            return ""
        return (
            "strain in mm/mm" if self.unit.quantity == "strain" else f"stress in {self.unit.name}"
        )

    @property
    def says(self) -> str:
        """The words of this column in a curve's steps."""
        if self.opposite is not None:
            both = f"columns '{self.name}' and '{self.opposite.name}'"
            return f"the mean of {both} in {self.unit.name} ({self.unit_source})"
        return f"column '{self.name}' in {self.unit.name} ({self.unit_source})"


def says_compression(text: str) -> bool:
    """Whether a column's name, or a line before the table, says compression and not tension beside it."""
    words = _words(text)
    # The same letters are Spanish for a stress.
    both = "tension" in words and not words & {"de", "di"}
    return _begins(words, _COMPRESSION) and not (both or _begins(words, _TENSION))


def find_axis(
    table: Table,
    axis: Axis,
    wanted: str | None,
    unit: str | None,
    measure: str | None,
    problems: list[str],
) -> Column | None:
    """The column of an axis, or None where there is none.

    Args:
      wanted: its name, or its number counted from 1; None finds it by its name.
      unit: what the user says of its unit; None is what the header says.
      measure: engineering or true, which decides between two columns that say so.
      problems: what is missing or doubtful is added to it; the column is then not to be read.
    """
    try:
        if wanted is not None:
            index, *opposite = [_wanted_column(table, axis, wanted)]
        else:
            index, *opposite = _named_columns(table, axis, measure)
        column = _with_unit(table, axis, index, unit, problems)
        if opposite:
            other = _with_unit(table, axis, opposite[0], unit, problems)
            if other.unit != column.unit:
                raise InputError(
                    f"columns '{column.name}' and '{other.name}' differ in their unit; set --{axis}_column"
                )
            column = dataclasses.replace(column, opposite=other)
        return column
    except InputError as error:
        problems.append(str(error))
        return None


def columns_named(table: Table, quantity: str) -> list[int]:
    """The columns whose names say that they are a `strain`, `stress`, `displacement` or `load`."""
    return [i for i, name in enumerate(table.header) if _is_named(name, quantity)]


def _with_unit(
    table: Table, axis: Axis, index: int, unit: str | None, problems: list[str]
) -> Column:
    header = table.header[index] if table.header else f"{index + 1}"
    name, in_header = split_header(header)
    if why := _unusable(header, axis):
        raise InputError(f"column '{shorten(header)}' is {why}")
    if unit is not None:
        return Column(index, name, axis_unit(unit, axis), GIVEN)
    factor = _FACTOR.search(name) if name != in_header else None
    if factor:
        raise InputError(
            f"column '{shorten(name)}': '{factor[0].strip()}' may be a factor of its numbers; convert them, or say "
            f"their unit with --{axis}_unit"
        )
    _check_one_unit(name, in_header, table.units[index], axis)
    # A bracket with another unit than its axis has (`Load [kN]` for the stress) decides between stress and load.
    for text, source in (
        (in_header, "from the header"),
        (table.units[index], "from the row of units"),
    ):
        if text is not None:
            known = axis_unit(text, axis, shorten(header))
            if axis == "strain" and _is_stretch(name):
                is_length = known.quantity == "displacement"
                known = Unit("strain", "stretch", 1.0 if is_length else known.factor)
            return Column(index, name, known, source)
    if axis == "strain" and _is_stretch(name):
        return Column(index, name, axis_unit("stretch", axis), "from its name")
    unknown = _not_understood(header) if table.header else ""
    if unknown:
        axis_unit(unknown, axis, shorten(header))
        raise InputError(
            f"column '{shorten(header)}': the place of '{unknown}' is not understood; say --{axis}_unit"
        )
    # English for a change of length, and French without its accent for a strain.
    is_open = axis == "strain" and bool(
        re.search(
            r"deformation|verformung|deformace|deformácia|deformacija|deformație", _accented(name)
        )
    )
    if is_open or (_is_named(name, BEFORE_SIZE[axis]) and not _is_named(name, axis)):
        example = "mm or in" if axis == "strain" else "N, kN or lbf"
        also = ", or - or % for a strain" if is_open else ""
        problems.append(f"column '{name}' has no unit; set --{axis}_unit, {example}{also}")
        return Column(index, name, axis_unit(example.split()[0].strip(","), axis), ASSUMED)
    return Column(index, name, axis_unit("-" if axis == "strain" else "MPa", axis), ASSUMED)


def _check_one_unit(name: str, in_header: str | None, in_row: str | None, axis: Axis) -> None:
    """Raises InputError where a header, what is left of its name, and the row of units say different units."""
    left = split_header(name)[1] if in_header not in (None, name) else None
    # A letter that is left over may be a label, and a dash in a row of units a blank.
    said = [text for text in (left, in_row) if text is not None and (len(text) > 1 or text == "%")]
    said = said if in_header is None else [in_header, *said]
    known = {text: unit for text in said if (unit := find_unit(text)) is not None}
    if len({(unit.quantity, unit.factor) for unit in known.values()}) > 1:
        raise InputError(
            f"column '{shorten(name)}' says {' and '.join(known)}; say which holds with --{axis}_unit"
        )


def _is_stretch(name: str) -> bool:
    return bool(_words(name) & _STRETCH)


def _not_understood(header: str) -> str:
    """The first word of a header that is no name, no remark and no specimen's number; it may be a unit."""
    other = _OTHER_UNIT.search(header)
    if other:
        return other[1]
    for word in re.split(r"[\s_,;:()\[\]{}<>（）［］]+", header):
        if word != _apart(word) and not _not_understood(_apart(word)):
            continue
        parts = [part for part in re.split(r"[\W_]+", plain(word)) if part]
        strange = word.strip("-.#/|@&+'") if not parts else set("^*%×=+<>") & set(word)
        strange = strange or _OVER_A_SIZE.search(word)
        if strange or not (all(map(_is_understood, parts)) or SHEAR_WORDS.search(word)):
            return word
    return ""


def _is_understood(word: str) -> bool:
    known = word in _UNDERSTOOD or (word[:-1] in _UNDERSTOOD and word[-1].isdecimal())
    return known or bool(
        _LABEL.fullmatch(word)
        or word.endswith(tuple(set().union(*_ENDINGS.values())))
        or _begins({word}, _COMPRESSION)
        or any(_holds({word}, measure) for measure in _MEASURE_WORDS)
    )


def find_specimen_column(table: Table, wanted: str | None) -> int | None:
    """The column that says which specimen a row belongs to: the one asked for, or one called specimen; or None.

    A column whose cells are all different counts rows, and no specimens.

    Raises:
      InputError: two columns divide the rows differently.
    """
    if wanted is not None:
        return _wanted_column(table, "specimen", wanted)
    divisions: dict[tuple[int, ...], int] = {}
    for i, name in enumerate(table.header):
        words = _words(name)
        order: dict[object, int] = {}
        cells = [cells[i] if i < len(cells) else "" for _, cells in table.rows]
        are_modes = _mode_in([str(cells[0])])[0] and all(_mode_in([str(c)])[0] for c in {*cells})
        is_named = words & _SPECIMEN_WORDS and not words - _SPECIMEN_WORDS - _NAME_WORDS
        if not is_named and not are_modes:
            continue
        division = tuple(order.setdefault(cell, len(order)) for cell in cells)
        if len(order) == 1 or len(order) < len(cells):
            divisions.setdefault(division, i)
    several = {division: i for division, i in divisions.items() if max(division, default=0) > 0}
    if len(several) > 1:
        names = ", ".join(table.header[i] for i in several.values())
        raise InputError(
            f"several columns could be the specimen ({shorten(names)}); set --specimen_column"
        )
    return next(iter((several or divisions).values()), None)


def side_by_side(table: Table) -> list[Table]:
    """The tables of specimens that stand side by side under the same names, each with its label; else the table alone.

    `Strain,Stress,Strain,Stress`, `Strain A,Stress A,Strain B,Stress B`, `Time,Force,Stroke,,Time,Force,Stroke`.
    Columns before the first specimen that are no strain, stress, displacement or load belong to all.
    """
    width = len(table.header)
    if not 4 <= width <= _MOST_COLUMNS_SIDE_BY_SIDE:
        return [table]
    words = [_name_words(name) for name in table.header]
    named = [
        {quantity for quantity in _WORDS if _is_named(name, quantity)} for name in table.header
    ]
    if _are_x_and_y(table):
        named = [{"strain" if plain(name) == "x" else "stress"} for name in table.header]
    of_axes = [i for i, quantities in enumerate(named) if quantities]
    if not of_axes:
        return [table]
    first, last = of_axes[0], of_axes[-1] + 1
    starts = [i for i in range(first + 1) if words[i] or i == first]
    # Remarks may stand behind the last specimen.
    for end, start in itertools.product(dict.fromkeys((width, last)), starts):
        for period in range(2, (end - start) // 2 + 2):
            blocks = [range(at, min(at + period, end)) for at in range(start, end, period)]
            quantities = set().union(*named[start : start + period])
            has_axes = quantities & {"strain", "displacement"} and quantities & {"stress", "load"}
            labels = _labels(words, blocks) if has_axes and len(blocks) > 1 else None
            if labels is None:
                continue
            shared = [i for i in range(start) if words[i]]
            return [
                _part(table, [*shared, *block], label, notes)
                for block, label, notes in zip(
                    blocks,
                    _named(labels, table, blocks),
                    notes_side_by_side(table.above, len(blocks)),
                    strict=True,
                )
            ]
    return [table]


def _named(labels: list[str], table: Table, blocks: list[range]) -> list[str]:
    """The specimens' names: as the row above the header has them, or the header, or their numbers."""
    titled = titles_side_by_side(table.above, len(blocks))
    # Rows of sizes, `S0,80,,60,mm²`, may stand between the names and the header.
    rows = [row for row in table.above if not any(notes_side_by_side([row], len(blocks)))]
    nearest = [str(cell).strip() for cell in (rows or table.above)[-1][1]] if table.above else []
    above = titled or [
        " ".join(dict.fromkeys(filter(None, nearest[block.start : block.stop]))) for block in blocks
    ]
    in_header = [
        re.search(
            rf"(?<![^\W\d_]){re.escape(label)}(?![^\W\d_])|\d*{re.escape(label)}$",
            " ".join(table.header[block.start : block.stop]),
            re.IGNORECASE,
        )
        for label, block in zip(labels, blocks, strict=True)
    ]
    written = [found[0] if found else label for found, label in zip(in_header, labels, strict=True)]
    for names in (above, written):
        if all(names) and len(set(names)) == len(names):
            return names
    return [str(number) for number in range(1, len(blocks) + 1)]


def _part(table: Table, columns: list[int], label: str, notes: dict[str, str]) -> Table:
    """The table of one specimen, of these columns; `notes`: what the head says of it alone."""
    return dataclasses.replace(
        table,
        header=[table.header[i] for i in columns],
        units=[table.units[i] for i in columns],
        rows=[
            (number, [cells[i] if i < len(cells) else "" for i in columns])
            for number, cells in table.rows
        ],
        steps=[
            *table.steps,
            f"specimen '{label}' of several side by side, columns {columns[0] + 1} to {columns[-1] + 1}",
        ],
        label=label,
        notes=table.notes | notes,
    )


def _name_words(header: str) -> tuple[str, ...]:
    """The words of a column's name in order, without its unit; `strain1` is two words."""
    name = re.sub(r"(?<=[^\W\d_]{3})(?=\d\b)", " ", plain(split_header(header)[0]))
    return tuple(word for word in re.split(r"[\W_]+", name) if word)


def _labels(words: list[tuple[str, ...]], blocks: list[range]) -> list[str] | None:
    """The label that tells each block apart, '' for none; None where the blocks' names are not the same."""
    first, labels = "", []
    for block in blocks[1:]:
        # The last block may end before blank columns.
        others = [words[i] for i in block] + [()] * (len(blocks[0]) - len(block))
        pairs = {_difference(words[i], other) for i, other in zip(blocks[0], others, strict=True)}
        pairs.discard(("", ""))
        if None in pairs or len(pairs) > 1:
            return None
        first, other_label = (pairs.pop() if pairs else None) or ("", "")
        labels.append(other_label)
    # Components of one specimen's tensors: `eps_11,sig_11,eps_22,sig_22`.
    return None if {first, *labels} <= {"11", "22", "33"} else [first, *labels]


def _difference(first: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, str] | None:
    """The labels in which two names differ, ('', '') where they are the same; None for two different names."""
    if first == other:
        return "", ""
    short, long = sorted((first, other), key=len)
    if len(short) == len(long):
        differing = [(a, b) for a, b in zip(first, other, strict=True) if a != b]
        is_label = len(differing) == 1 and all(_is_label(word) for word in differing[0])
        return differing[0] if is_label else None
    for i, word in enumerate(long):
        if long[:i] + long[i + 1 :] == short and _is_label(word):
            return ("", word) if long is other else (word, "")
    return None


def _is_label(word: str) -> bool:
    is_short = bool(_LABEL.fullmatch(word)) and word not in ("e", "s") and not find_unit(word)
    return word.isdecimal() or is_short or word in ("rd", "td", "nd")


def _wanted_column(
    table: Table,
    axis: str,
    wanted: str,
    split: Callable[[str], tuple[str, str | None]] = split_header,
) -> int:
    for form in (lambda name: name, plain, lambda name: plain(split(name)[0])):
        found = [i for i, name in enumerate(table.header) if name and form(name) == form(wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            numbers = " and ".join(str(i + 1) for i in found)
            raise InputError(
                f"column '{wanted}' appears more than once; give its number, --{axis}_column={found[0] + 1} "
                f"(columns {numbers})"
            )
    width = len(table.header) or len(table.rows[0][1])
    if wanted.isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    hint = nearest(wanted, [name for name in table.header if name])
    if wanted.isdecimal() or not table.header:
        hint = f"; it has {width} columns, counted from 1"
    raise InputError(f"no column '{wanted}' for the {axis}{hint}")


def _named_columns(table: Table, axis: Axis, measure: str | None) -> list[int]:
    """The only column whose name says that it is a strain (stress), or else a displacement (load).

    An extensometer's column counts before others, and others before a crosshead's; the mean of several strains before
    these. Two strains of opposite sides are two columns.
    """
    if not table.header:
        raise InputError(
            f"it has no header (its first line is '{shorten(' '.join(map(str, table.rows[0][1])))}'); add a line that "
            "names the columns, e.g. strain,stress, or say --strain_column=1 --stress_column=2"
        )
    for quantity in (axis, BEFORE_SIZE[axis]):
        found = columns_named(table, quantity)
        if quantity == "strain":
            # `Ext 2 (%)` is a strain, and `Ext 2 (mm)` a change of length.
            found += [
                i
                for i in columns_named(table, "displacement")
                if "ext" in _words(table.header[i]) and _quantity_of(table, i) == "strain"
            ]
            found = sorted(set(found))
        if len(found) > 1 and measure is not None:
            of_measure = [i for i in found if _says(table.header[i], measure)]
            if (
                not of_measure
                and measure == "engineering"
                and _has_plain_beside_true(table, quantity)
            ):
                of_measure = [i for i in found if not _says(table.header[i], "true")]
            found = of_measure or found
        if len(found) > 1 and axis == "strain":
            nearness = [_nearness(table, i) for i in found]
            found = [i for i, near in zip(found, nearness, strict=True) if near == max(nearness)]
            found = _mean_of(table, found) or found
        if len(found) > 1:
            found = _same_numbers(table, found) or _along_the_load(table, found) or found
        if len(found) == 1 or (axis == "strain" and _are_opposite(table, found)):
            return found
        if found:
            called = [table.header[i] for i in found]
            if len(set(called)) == 1:
                numbers = " and ".join(str(i + 1) for i in found)
                raise InputError(
                    f"column '{shorten(called[0])}' appears more than once in the header (columns {numbers}); set "
                    f"--{axis}_column={found[0] + 1}, a number, or give each specimen a file"
                )
            raise InputError(
                f"several columns could be the {axis} ({shorten(', '.join(called))}); set --{axis}_column, a name or "
                f"one of the numbers {', '.join(str(i + 1) for i in found)}"
            )
    refused = [i for i, name in enumerate(table.header) if _unusable(name, axis)]
    if refused:
        return refused[:1]  # and its line says why
    if by_unit := _by_unit(table, axis):
        return by_unit
    of_axes = _WORDS["strain"] | _WORDS["stress"]
    peaks = [n for n in table.header if _words(n) & _PEAKS and _any_of(_words(n), of_axes)]
    if peaks:
        raise InputError(
            f"its columns ({shorten(', '.join(peaks))}) hold the ends of cycles and no points between them; a law that "
            "remembers wants the points of every cycle: export these"
        )
    names = ", ".join(name for name in table.header if name)
    said = f"no column is named as a {axis} (columns: {shorten(names)}); set --{axis}_column"
    if _are_x_and_y(table):
        said += ", or only --strain_unit=% where a strain is in percent"
    if _called(table, _TIMES) and columns_named(table, "stress" if axis == "strain" else "strain"):
        test, note = _HELD[axis]
        said += f"; {test}=FILE with a law takes it from a line above the table, {note}"
    raise InputError(said)


# The quantity that a test holds -> the test, and a line that tells the value.
_HELD = {"stress": ("creep", "Stress: 200 MPa"), "strain": ("relaxation", "Strain: 1 %")}


# _SYMBOLS: of ISO 6892-1 and of textbooks, which count where no column has a name, and their unit agrees.
_SYMBOLS = {"strain": {"e", "et", "agt"}, "stress": {"r", "s", "f", "p"}}
# _NO_SYMBOLS: names of other quantities in the same units.
_NO_SYMBOLS = word_set("pressure mass weight rm rp rp0 reh rel uts ys emod")
# _MANY_USES: units of a strain that other columns have too.
_MANY_USES = ("%", "-", "stretch")


def _by_unit(table: Table, axis: Axis) -> list[int]:
    """The only column whose unit is of a strain (stress or load), where no column is named so; else none.

    A percentage must be called by a symbol of strain, or compression; a length too.
    """
    quantities = ("strain", "displacement") if axis == "strain" else ("stress", "load")
    found = []
    for i, header in enumerate(table.header):
        words = _words(header)
        unit = find_unit(split_header(header)[1] or table.units[i] or "?")
        if unit is None or unit.quantity not in quantities or _unusable(header, axis):
            continue
        known = {"gauge"} if axis == "strain" else set()
        if words & (_OTHER_WORDS - known | _NO_SYMBOLS) or any(
            _is_named(header, of) for of in _WORDS
        ):
            continue
        is_modulus = axis == "stress" and "e" in words
        has_many_uses = unit.name in _MANY_USES or unit.quantity == "displacement"
        is_compression = axis == "strain" and says_compression(header)
        if is_compression or words & _SYMBOLS[axis] or not (is_modulus or has_many_uses):
            found.append(i)
    table.steps += [f"column '{table.header[i]}' is the {axis} by its unit" for i in found[:1]]
    return found if len(found) == 1 else []


def _mean_of(table: Table, found: list[int]) -> list[int]:
    """The column that is called the mean of several strains among these columns, or beside them; else none."""
    alone = [
        i
        for i, name in enumerate(table.header)
        if _words(name)
        and _words(name) <= _MEANS
        and _quantity_of(table, i) in ("strain", "displacement")
    ]
    means = [i for i in found if _words(table.header[i]) & _MEANS] or alone
    others = set(found) - set(means)
    return means if len(means) == 1 and len(others) > 1 else []


def _are_opposite(table: Table, found: list[int]) -> bool:
    """Whether two columns are called the same, but for the opposite sides of the specimen."""
    if len(found) != 2:
        return False
    first, second = (_words(table.header[i]) for i in found)
    return first ^ second in _SIDES and len(first) == len(second)


# _ROUNDED: share of the largest value by which two columns of the same numbers differ, rounded in their units.
_ROUNDED = 1e-3


def _same_numbers(table: Table, found: list[int]) -> list[int]:
    """The finest of several columns that hold the same numbers in units of their own; none where they do not."""
    columns, digits = [], []
    for i in found:
        unit = find_unit(split_header(table.header[i])[1] or table.units[i] or "?")
        cells = [row[i] if i < len(row) else "" for _, row in table.rows]
        try:
            mark = decimal_mark(cells)
        except InputError:
            return []
        if unit is None or _quantity_of(table, i) != _quantity_of(table, found[0]):
            return []
        values = [np.nan if (v := number(cell, mark)) is None else v for cell in cells]
        columns.append(unit.factor * np.array(values))
        digits.append(sum(c.isdigit() for cell in cells for c in str(cell).strip("0.")))
    within = _ROUNDED * np.nanmax(np.abs(columns[0])) if np.isfinite(columns[0]).any() else 0.0
    if not all(np.allclose(columns[0], c, 0.0, within, equal_nan=True) for c in columns[1:]):
        return []
    return [found[int(np.argmax(digits))]]


# _TRANSVERSE: share of the strain along the load; a specimen's transverse strain is smaller, and of the other sign.
_TRANSVERSE = 0.75
# _BESIDE: share of the stress along the load that a stress across it may have.
_BESIDE = 0.02


def _along_the_load(table: Table, found: list[int]) -> list[int]:
    """The one of `exx`, `eyy` and `exy` that lies along the load, by the numbers; none where these tell none."""
    shear = [i for i in found if SHEAR_WORDS.search(table.header[i])]
    stress = [table.header[i] for i in columns_named(table, "stress")]
    if shear and any(map(SHEAR_WORDS.search, stress)):
        return shear if len(shear) == 1 else []
    found = [i for i in found if i not in shear]
    if len(found) == 1 and shear:
        return found
    names = [plain(split_header(table.header[i])[0]) for i in found]
    if len(found) != 2 or _other_direction(names[0]) != names[1]:
        return []
    ends = []
    for i in found:
        cells = [row[i] for _, row in table.rows if i < len(row)]
        try:
            mark = decimal_mark(cells)
        except InputError:
            return []
        values = [v for cell in cells if (v := number(cell, mark)) is not None and np.isfinite(v)]
        ends.append(max(values, key=abs, default=0.0))
    small, large = sorted(ends, key=abs)
    is_stress = all(_is_named(table.header[i], "stress") for i in found)
    if is_stress and not abs(small) <= _BESIDE * abs(large):
        return []
    if not is_stress and not -_TRANSVERSE * abs(large) <= small * np.sign(large) < 0.0:
        return []
    taken = ends.index(large)
    table.steps.append(
        f"took '{table.header[found[taken]]}' as the {'stress' if is_stress else 'strain'} along the load: "
        f"'{table.header[found[1 - taken]]}' is smaller{'' if is_stress else ' and of the other sign'}"
    )
    return [found[taken]]


def _other_direction(name: str) -> str:
    """`eyy` of `exx`, `eps_22` of `eps_11`, and `gauge 90°` of `gauge 0°`."""
    turned = {"x": "y", "y": "x", "11": "22", "22": "11", "90°": "0°", "0°": "90°"}
    return re.sub("|".join(turned), lambda match: turned[match[0]], name)


def _quantity_of(table: Table, index: int) -> str:
    """The quantity that a column's unit is of; '' where it says none."""
    unit = find_unit(split_header(table.header[index])[1] or table.units[index] or "?")
    return unit.quantity if unit is not None else ""


def _nearness(table: Table, index: int) -> int:
    """How near to the specimen a column is measured: 2 by an extensometer, 0 by the crosshead, 1 for others.

    A change of length, by its unit, counts less than any strain.
    """
    header = table.header[index]
    words = _words(header)
    is_strain = _is_named(header, "strain")
    less = 3 if is_strain and _quantity_of(table, index) == "displacement" else 0
    # `Ext1` in mm beside a travel.
    is_ext = "ext" in words and not is_strain and _quantity_of(table, index) == "displacement"
    if _is_of_an_extensometer(header) or (is_ext and not _speaks_of(words, _CROSSHEAD)):
        return 2 - less
    made_of_travel = is_strain and bool(
        words & (_WORDS["displacement"] - _WORDS["strain"] | _TRAVEL)
    )
    return (0 if made_of_travel or _speaks_of(words, _CROSSHEAD) else 1) - less


def _is_of_an_extensometer(header: str) -> bool:
    """Whether a column's name speaks of an extensometer, or of its channel: `Tensile strain (Strain 1)`, `Le`."""
    words = _words(header)
    is_channel = re.search(r"\((strain|deforma\w*|dehnung) *\d+\)", plain(header))
    is_named = _speaks_of(words, _EXTENSOMETER) or {"ext", "gauge"} <= words
    return is_named or words == {"le"} or bool(is_channel)


def _is_of_the_crosshead(header: str) -> bool:
    """Whether a column's name speaks of the crosshead's travel; a displacement beside a strain may be its own."""
    return not _is_of_an_extensometer(header) and _speaks_of(_words(header), _CROSSHEAD)


def _is_named(header: str, quantity: str) -> bool:
    words = _words(header)
    if {"e", "s"} & words and words & set(_MEASURE_WORDS):
        # The bare letters of the formulas count beside their measure only: `e_true`, `s_eng`.
        words |= {"strain"} if "e" in words else {"stress"}
    # A strain gauge measures a strain, and `Ext.(Gauge)` is an extensometer's; a gauge length is none.
    known = {"gauge"} if words & {"strain", "ext", "clip"} and not words & _VOLTS else set()
    if words & _OTHER_WORDS - known or any(word.endswith(_RATES) for word in words):
        return False
    axis: Axis = "strain" if quantity in ("strain", "displacement") else "stress"
    return _any_of(words, _WORDS[quantity] | _ENDINGS[quantity]) and not _unusable(header, axis)


def _unusable(header: str, axis: Axis) -> str:
    """Names the quantity of an axis's column that no law takes, and says what to do; '' for any other column."""
    words = _words(header)
    if axis == "strain" and _is_part(header):
        return (
            "a part of the strain; the total strain is needed (plastic strain and stress over modulus): add that "
            "column, or call it total strain where it is"
        )
    if axis == "stress" and (
        "pk2" in words or (words & {"2nd", "second"} and words & {"piola", "kirchhoff", "pk"})
    ):
        return (
            "the second Piola-Kirchhoff stress; multiply it by the stretch, which makes it an engineering stress, and "
            "call the column so"
        )
    if words & _OVER_THE_SECTION[axis]:
        return (
            "of a torsion or bending test, whose stress differs over the section; give the columns of a shear strain "
            "and a shear stress, as a thin tube has them, or of a tension test"
        )
    of_strain = _any_of(words, _WORDS["strain"] | _ENDINGS["strain"])
    is_equivalent = of_strain and (_begins(words, _EQUIVALENT) or words & {"eq", "eqv", "vm"})
    if axis == "strain" and (is_equivalent or words & _EQUIVALENT_STRAINS):
        return (
            "an equivalent strain (Mises), which has no sign and is smaller than the strain along the load while the "
            "specimen is elastic; export the strain along the load, such as epsilon y or the major strain"
        )
    names = (axis, BEFORE_SIZE[axis])
    if not any(_any_of(words, _WORDS[name] | _ENDINGS[name]) for name in names):
        return ""
    if _NORMALIZED.search(plain(header)):
        unit = "strain in mm/mm" if axis == "strain" else "stress in MPa"
        return f"a {axis} over another one, which tells no {unit}; multiply it by that other one"
    if _begins(words, _BENDING):
        return (
            "of a bending test, whose stress differs over the section, and no law here is of bending; if it is the "
            f"{axis} of tension or compression, call it so"
        )
    if _RANGE.search(plain(header)):
        return "a range, which is twice an amplitude; halve it, and call the column an amplitude"
    return ""


def _is_part(header: str) -> bool:
    """Whether a column's name says that it is the plastic or the elastic strain, and not the total."""
    words = _words(header)
    if "total" in words:
        return False
    names = _WORDS["strain"] | _ENDINGS["strain"] | {"peeq", "e"}
    is_part = _begins(words, _PART) or any(part in word for part in _PART_WITHIN for word in words)
    return (is_part and _any_of(words, names)) or bool(_PLASTIC.search(_accented(header)))


def _any_of(words: set[str], names: set[str]) -> bool:
    """Whether one of the words is a name, or ends in one that is made for the end of a longer word."""
    endings = tuple(names & set().union(*_ENDINGS.values()))
    return bool(words & names) or any(word.endswith(endings) for word in words if endings)


def _speaks_of(words: set[str], names: set[str]) -> bool:
    """The same, also where a word of Chinese letters begins with a name."""
    return _any_of(words, names) or any(_holds(words, name) for name in names)


def _begins(words: set[str], beginnings: set[str]) -> bool:
    return any(word.startswith(tuple(beginnings)) for word in words)


def _holds(words: set[str], name: str) -> bool:
    """Whether a name is one of the words; one of Chinese letters also at the beginning of a word."""
    return name in words or (not name.isascii() and any(word.startswith(name) for word in words))


def _says(header: str, measure: str) -> bool:
    words = _words(header)
    return any(_holds(words, word) for word, of in _MEASURE_WORDS.items() if of == measure)


def _has_plain_beside_true(table: Table, quantity: str) -> bool:
    """Whether some columns of a quantity are called true, and others neither that nor engineering."""
    names = [table.header[i] for i in columns_named(table, quantity)]
    said = {(_says(name, "true"), _says(name, "engineering")) for name in names}
    return (False, False) in said and any(is_true for is_true, _ in said)


def _accented(header: str) -> str:
    return unicodedata.normalize("NFC", header).casefold()


def _apart(name: str) -> str:
    """`True Strain` of `TrueStrain`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name)


def _words(header: str) -> set[str]:
    """The words of a header, plain, with its remarks and without its unit; `strain1` is also `strain`."""
    name = re.sub(r"[\[({<（［][^\])}>）］]*[\])}>）］]", " ", split_header(header)[0]) or header
    words = set(re.split(r"[\W_]+", plain(f"{name} {_apart(name)} {_remarks(header)}"))) - {""}
    if re.search(r"(?<!\w)tensión(?!\w)", _accented(header)):
        words.add("esfuerzo")
    if re.search(r"(extension|draw)[ _]ratio", _accented(header)):
        words = words - {"extension"} | {"stretch"}
    return words | {word[:-1] for word in words if re.fullmatch(r"[^\W\d_]{3,}\d", word)}


def _remarks(header: str) -> str:
    """The words in brackets that are no unit: `Strain (true)`."""
    found = re.findall(r"[\[({<（［]([^\[\](){}<>（）［］]*)[\])}>）］]", header)
    return " ".join(
        text for text in found if text.lower() in NAMES_IN_BRACKETS or not find_unit(text)
    )


# --------------------------------------------------------------------------------------------------
# The options of a user for a file, and the two columns that are a curve's axes, as plain strain and MPa.


_CHOICES = {
    "strain_measure": ("engineering", "true"),
    "stress_measure": ("engineering", "true"),
    "shear_strain": ("engineering", "tensor"),
    "decimal": ("point", "comma"),
}
# _WHOSE: words before a size in the head that name no other one; _COMPOUND: the same in German words.
_WHOSE = (
    r"((initial|original|starting|specimen|sample|coupon|test.?piece|average|mean|mittlere[rs]?) )*"
)
_COMPOUND = r"((anfangs|ausgangs|start|proben|prüf)-?)*"
# _ORIGINAL: words behind a size that name no other one, in French, Italian, Spanish and Portuguese.
_ORIGINAL = r"( (initiale?|iniziale|inicial|transversale?|trasversale|resistente|droite))*"
# Notes before the table, as testing machines call them; words such as `final` are in none.
_AREA_NOTE = (
    rf"{_WHOSE}(gau?ge )?(area( of (the )?(cross.?section|specimen))?|cross.?section(al)?( area)?"
    rf"|(aire( de la section)?|section|sezione|(área|area)( de la sección)?|sección|seção){_ORIGINAL}"
    rf"|{_COMPOUND}(querschnitt(sfläche)?|fläche)|断面積|(试样|横)?截?面积|kesit( alanı)?"
    r"|(pole )?przekr(ój|oju)|doorsnede|oppervlakte?|(plocha )?průřezu?|площадь( сечения)?|tvärsnitt(sarea)?"
    rf"|[as]( ?[o0])?)( [as] ?[o0])?( (initial|original))?"
)
_LENGTH_NOTE = (
    rf"{_WHOSE}(gau?ge.?length|{_COMPOUND}messl(ä|ae)nge|tratto utile|base de mesure"
    r"|długość pomiarowa|meetlengte|měřená délka|počáteční délka|расч[её]тная длина|mätlängd"
    r"|longueur (de (base|jauge|référence)|entre repères)|longitud (de (base|referencia)|entre marcas)"
    r"|标距|標点(間)?距離|ölçü (boyu|uzunluğu)|l ?[0o])( l ?[0o])?( (initial|original|specimen))?"
    # A specimen's length is its gauge length only by the symbol behind it.
    rf"|({_COMPOUND}länge|(longueur|lunghezza|longitud|comprimento|length){_ORIGINAL}) l ?0"
)
# _CLAMPS_NOTE: the length between the clamps, longer than that of the gauge.
_CLAMPS_NOTE = (
    rf"{_WHOSE}((free )?clamp(ed|ing)?|grips?|jaws?).?(length|separation|distance)( l ?[0c])?"
    r"|(freie )?einspann-?(l(ä|ae)nge|abstand)( l ?[0ec])?|distance between (clamps|grips|jaws)"
)
# _HEIGHT_NOTE: the length of a specimen under compression, and of no other.
_HEIGHT_NOTE = (
    rf"{_WHOSE}({_COMPOUND}höhe|height|(hauteur|altezza|altura){_ORIGINAL}|高さ|h ?0)( h ?0)?"
)
_PRELOAD_NOTE = (
    r"pre-? ?(load|force|tension|stress)|vor(kraft|last|spannung)|précharge|precarga|precarico"
)
# _FELT: share of the largest stress; a smaller preload changes no answer. _AT_ZERO: share of the largest strain that is
# none. _PART_OF: share of the preload; a load that begins below it was set to zero, or is from before the preload.
_FELT, _AT_ZERO, _PART_OF = 0.01, 2e-3, 0.3
_DIAMETER_NOTE = (
    rf"{_WHOSE}(gau?ge )?(diameter|dia|diam\.?|{_COMPOUND}durchmesser|diamètre|diámetro|diametro|średnica|průměr"
    r"|çap|диаметр|直径|d ?[o0]|[ø⌀φ])( d ?[o0]?)?"
)
_WIDTH_NOTE = (
    rf"{_WHOSE}(gau?ge )?(width|{_COMPOUND}breite|largeur|anchura|larghezza|szerokość|breedte|šířka|genişlik|ширина"
    r"|largura|宽度|幅|[bw]( ?[o0])?)( [bw] ?[o0]?)?"
)
_THICKNESS_NOTE = (
    rf"{_WHOSE}(gau?ge )?(thickness|{_COMPOUND}dicke|épaisseur|espesor|spessore|grubość|dikte|tloušťka|kalınlık"
    r"|espessura|толщина|厚度|厚さ|板厚|[at] ?[o0]|[th])( [at] ?[o0]?)?"
)
# _SECTION_NOTE: names of a cross-section that is given as a product, `10 x 3 mm`; _BODY_NOTE: of a whole specimen,
# whose two numbers may be its diameter and height under compression.
_SECTION_NOTE = (
    rf"{_AREA_NOTE}|width ?[x×*] ?thickness|[bw] ?[x×*] ?[ht]|[ab] ?0? ?[x×*] ?[ab] ?0?"
    rf"|breite ?[x×*] ?dicke|largeur ?[x×*] ?épaisseur"
)
_BODY_NOTE = (
    rf"{_WHOSE}(size|dimensions?|specimen|sample|coupon|probe|{_COMPOUND}(abmessung(en)?|maße?)|éprouvette|provino"
    r"|probeta)( size| dimensions?)?"
)
# _WIDEST: mm; the two numbers of a whole specimen are its cross-section below, and its length and width above.
_WIDEST = 40.0
_PRODUCT = re.compile(
    r"(\d[\d.,]*)\s{0,3}([^\W\d_]*)\s{0,3}[x×*]\s{0,3}(\d[\d.,]*)\s{0,3}([^\s\d;,]*)(?=$|[;,])"
)
# _HOLLOW: words in the head of a tube, whose diameter gives no area.
_HOLLOW = re.compile(r"\b(inner|inside|wall|tub(e|ular)|pipe)\b|innen|wandst|wanddicke|rohr")
# _SAME_SIZE: ratio of two sizes that are one, but for rounding.
_SAME_SIZE = 1.01
# _LOADED: share of the largest stress from which load over stress tells the area.
_LOADED = 0.2
# _SAME_AREA: ratio of areas along a test, from load over stress, that are one area.
_SAME_AREA = 1.03
# _EXTENSOMETER_NOTE: the length between the edges of an extensometer (Le of ISO 6892-1).
_EXTENSOMETER_NOTE = (
    r"(extensometer.?)?(gau?ge.?length|length|messlänge)( le)|le|extensometer.?(gau?ge.?)?length"
    r"|(gau?ge.?length|base( de (mesure|medida))?|longueur de (base|jauge|référence)|longitud de (base|referencia)"
    r"|lunghezza (di )?base|tratto utile)( del?)?( l['’]|l['’])? ?e[xs]tens[ioóô]m[eè]t(er|re|ro)( l ?[0oe])?"
    r"|(extensometer|geräte|fein).?messl(ä|ae)nge( le)?|messl(ä|ae)nge (fd|fein\w+)"
)
# Quantity of a column that is no strain or stress yet -> option, note and units of its size, words of a note that may
# be meant for it, and what to give.
_SIZES: dict[str, tuple[str, str, dict[str, float], str, str]] = {
    "displacement": (
        "gauge_length",
        _LENGTH_NOTE,
        DISPLACEMENT_UNITS,
        r"gau?ge|messlänge|longueur|lunghezza|longitud|höhe|height|hauteur|altezza|altura|\b[lh] ?0\b",
        "its length with --gauge_length=MM, or the strain with --strain_column",
    ),
    "load": (
        "area",
        _AREA_NOTE,
        AREA_UNITS,
        r"area|section|querschnitt|fläche|diam|durchmesser|width|thickness|breite|dicke|\b[asd] ?0\b",
        "its cross-section with --area=MM2, or the stress with --stress_column",
    ),
}
_SIZE_UNITS = AREA_UNITS | DISPLACEMENT_UNITS
# _CONSTANTS: names of columns that may hold one number.
_CONSTANTS = (
    *(_AREA_NOTE, _DIAMETER_NOTE, _WIDTH_NOTE, _THICKNESS_NOTE, _LENGTH_NOTE),
    *(_NAMES["temperature"], _NAMES["rate"]),
)
# _FEWEST_BLANK: blank cells at the end of a column; fewer are a damaged row, which is refused.
_FEWEST_BLANK = 3
# A stretch is so near to 1 at the least stress.
_AT_REST = 0.15


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """The options of a user for the files; None means: find out. Checked on creation, InputError names the flag.

    Attributes:
      strain_column, stress_column: names of the columns, or their numbers counted from 1.
      strain_unit, stress_unit: see `tables.UNITS`; a length (force) says that the column is a displacement (load).
      specimen_column: name of the column that tells several curves of a file apart; `none` is one curve a table.
      sheet: name of a workbook's sheet; None is every sheet that holds a table.
      strain_measure, stress_measure: `engineering` or `true`.
      shear_strain: `engineering` (gamma) or `tensor` (epsilon12 = gamma / 2).
      area: cross-section in mm², for a load; gauge_length: in mm, for a displacement.
      decimal: `point` or `comma`.
      time_column, time_unit: of a test that tells the time, as above; s, ms, min, h, d.
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
    time_column: str | None = None
    time_unit: str | None = None

    @property
    def given_units(self) -> frozenset[Axis]:
        """The axes whose unit the user says; it is believed."""
        given = {"strain": self.strain_unit, "stress": self.stress_unit}
        return frozenset(axis for axis, unit in given.items() if unit is not None)  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.time_unit is not None:
            find_time_unit(self.time_unit)
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


def find_axes(
    table: Table, options: ReadingOptions, measures: Mapping[str, str | None]
) -> dict[Axis, Column]:
    """The columns of strain and stress; InputError says everything that is missing or doubtful, in one line."""
    axes: dict[Axis, Column] = {}
    problems: list[str] = []
    for axis in ("strain", "stress"):
        wanted, unit = getattr(options, f"{axis}_column"), getattr(options, f"{axis}_unit")
        # One measure that the user gives counts for both axes, so that a pair stays a pair.
        given = options.strain_measure or options.stress_measure
        measure = getattr(options, f"{axis}_measure") or given or measures.get(axis)
        column = find_axis(table, axis, wanted, unit, measure, problems)
        if column is None:
            continue
        axes[axis] = column
        if column.unit.quantity in _SIZES:
            try:
                _size(table, column, options)
            except InputError as error:
                has_no_unit = bool(problems) and f"'{column.name}' has no unit" in problems[-1]
                about = f"column '{column.name}' is a {column.unit.quantity}; "
                if has_no_unit:
                    problems[-1] += f", and {str(error).removeprefix(about)}"
                else:
                    problems.append(str(error))
        candidates = {*columns_named(table, axis), *columns_named(table, BEFORE_SIZE[axis])}
        beside = [table.header[i] for i in sorted(candidates)]
        if wanted is None and len(beside) > 1:
            taken = f"'{column.name}'"
            if column.opposite is not None:
                taken = f"the mean of {taken} and '{column.opposite.name}'"
            table.steps.append(f"of the columns {', '.join(beside)} took {taken}")
    if any(_has_plain_beside_true(table, axis) for axis in ("strain", "stress")):
        axes = {
            axis: dataclasses.replace(column, beside_true=True) for axis, column in axes.items()
        }
    if len(axes) == 2 and axes["strain"].index == axes["stress"].index:
        problems.append(f"column '{axes['strain'].name}' cannot be both strain and stress")
    if problems:
        raise InputError(_joined(problems))
    return axes


def _joined(problems: list[str]) -> str:
    """All problems in one line; two axes without a named column are one problem."""
    unnamed = "no column is named as a"
    if len(problems) == 2 and all(problem.startswith(unnamed) for problem in problems):
        return (
            problems[0]
            .replace("named as a strain", "named as a strain or a stress")
            .replace("set --strain_column", "set --strain_column and --stress_column")
        )
    return "; ".join(dict.fromkeys(problems))


def read_strain(
    table: Table, column: Column, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    """The strain of every row, [rows], -, and where it is from, in words; InputError for a cell that is no number."""
    values = column_numbers(table, column, mark, may_end=True) * column.unit.factor
    if column.opposite is not None:
        other = column_numbers(table, column.opposite, mark, may_end=True) * column.unit.factor
        if np.nansum(values * other) < 0:
            raise InputError(
                f"columns '{column.name}' and '{column.opposite.name}' have strains of different signs, as in bending; "
                "set --strain_column"
            )
        values = (values + other) / 2.0
    if column.unit.name == "stretch":
        # A stretch in percent begins at 100, and a strain at 0.
        is_open = column.unit.factor != 1.0 and not abs(values[0] - 1.0) < _AT_REST
        if is_open or np.nanmin(values) <= 0:
            raise InputError(
                f"column '{column.name}' is a stretch and goes down to {np.nanmin(values):.3g}; a stretch is 1 at "
                "rest: is it a strain (--strain_unit=-, or %), or are the columns exchanged?"
            )
        return values - 1.0, f"{column.says}, less 1"
    if column.square and column.unit.quantity == "strain":
        # (stretch² - 1) / 2 of Green and Lagrange, (1 - stretch⁻²) / 2 of Almansi.
        squared = 1.0 + column.square * values
        if np.nanmin(squared) <= 0:
            raise InputError(
                f"column '{column.name}' holds strains that no stretch has ({np.nanmin(values):.3g} to "
                f"{np.nanmax(values):.3g}); is it in percent (--strain_unit=%)?"
            )
        of = "Almansi" if column.square < 0 else "Green and Lagrange"
        return squared ** (
            1.0 / column.square
        ) - 1.0, f"{column.says}, the strain of {of} made an engineering one"
    if column.unit.quantity != "displacement":
        return values, column.says
    length, source = _size(table, column, options)
    return values / length, f"{column.says} over the gauge length of {length:g} mm ({source})"


def read_stress(
    table: Table, column: Column, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    """The stress of every row, [rows], MPa, and where it is from, in words; InputError for a cell that is no number."""
    values = column_numbers(table, column, mark) * column.unit.factor
    if column.unit.quantity != "load":
        return values, column.says
    area, source = _size(table, column, options)
    return values / area, f"{column.says} over the area of {area:g} mm² ({source})"


def options_without_header(table: Table, options: ReadingOptions) -> tuple[ReadingOptions, str]:
    """The columns of a table of two without names, or called x and y, where one reading is possible, and what it is.

    A stretch is 1 where the stress is 0, and above or below 1 as the stress is in tension or compression; a metal's
    strain is far smaller than its stress in MPa.
    """
    known = options.strain_column or options.stress_column
    is_named = bool(table.header) and not _are_x_and_y(table)
    if is_named or known or any(len(row) != 2 for _, row in table.rows):
        return options, ""
    mark: DecimalMark = "," if options.decimal == "comma" else "."
    if options.decimal is None:
        mark = decimal_mark(cell for _, row in table.rows for cell in row)
    columns = np.array(
        [
            [np.nan if (v := number(cell, mark)) is None else v for cell in row]
            for _, row in table.rows
        ]
    )
    told = axis_unit(options.strain_unit, "strain") if options.strain_unit else None
    factor = told.factor if told is not None and told.quantity == "strain" else 1.0
    readings = [
        (strain, stress, unit)
        for strain, stress in ((0, 1), (1, 0))
        if (unit := _strain_unit_of(factor * columns[:, strain], columns[:, stress]))
    ]
    if len(readings) != 1:
        return options, ""
    strain, stress, unit = readings[0]
    found = dataclasses.replace(
        options,
        strain_column=str(strain + 1),
        stress_column=str(stress + 1),
        strain_unit=options.strain_unit or unit,
    )
    what = "stretch" if unit == "stretch" else "strain"
    why = "names x and y" if table.header else "no header"
    return found, f"{why}: {what} in column {strain + 1}, stress in column {stress + 1}"


def _are_x_and_y(table: Table) -> bool:
    """Whether all columns are called so, as those of a digitized figure."""
    return {plain(name) for name in table.header} == {"x", "y"}


def is_stretch(strain: Array, stress: Array) -> bool:
    """Whether values [points] behave as a stretch beside a stress [points]: 1 at rest, and never 0 or less."""
    if not np.isfinite(strain + stress).all() or strain.min() <= 0:
        return False
    at_rest = abs(float(strain[np.abs(stress).argmin()]) - 1.0) < _AT_REST
    loaded = np.abs(stress) > 0.02 * np.abs(stress).max()
    return at_rest and bool(
        np.mean(np.sign(strain - 1.0)[loaded] == np.sign(stress)[loaded]) > 0.95
    )


def _strain_unit_of(strain: Array, stress: Array) -> str:
    """`stretch`, `-` or nothing for two columns [points] that may be strain and stress in MPa."""
    if is_stretch(strain, stress):
        return "stretch"
    largest = float(np.abs(strain).max())
    return "-" if largest < 1.0 and np.abs(stress).max() > 100.0 * largest else ""


def _size(table: Table, column: Column, options: ReadingOptions) -> tuple[float, str]:
    """The gauge length (mm) of a displacement, the area (mm²) of a load, and where it is known from."""
    name, noted, units, related, missing = _SIZES[column.unit.quantity]
    value = getattr(options, name)
    if value is not None:
        return value, "as given"
    found, source = _noted(table, noted, units), "from the file's head"
    about = f"column '{column.name}' is a {column.unit.quantity}; "
    if not _agree(found.values()):
        raise InputError(f"{about}the head tells {' and '.join(found)}; give {missing}")
    value = next(iter(found.values()), None)
    if name == "gauge_length":
        said = any(map(says_compression, [column.name, *table.header])) or any(_cylinder(table))
        if not found and said:
            value = next(iter(_noted(table, _HEIGHT_NOTE, units).values()), None)
        value = _length_of(table, column, value)
    elif value is None and (made := _area_of_dimensions(table, _of_newtons(column.unit))):
        value, source = made
    if value is None:
        why = _not_taken(table, noted, related)
        raise InputError(f"{about}{why}give {missing}")
    return value, source


def _with_height(table: Table) -> Table:
    """The table with the height of a block or a strip as its length, where the head tells none, and a section without.

    A height may be a side of the section: beside a width alone it is none.
    """
    length, height, area, width, thickness = (
        _noted(table, pattern, units)
        for pattern, units in (
            (_LENGTH_NOTE, DISPLACEMENT_UNITS),
            (_HEIGHT_NOTE, DISPLACEMENT_UNITS),
            (_AREA_NOTE, AREA_UNITS),
            (_WIDTH_NOTE, DISPLACEMENT_UNITS),
            (_THICKNESS_NOTE, DISPLACEMENT_UNITS),
        )
    )
    if length or len(height) != 1 or not (thickness if width else area):
        return table
    ((line, value),) = height.items()
    said = f"took the head's {line} as the length along the load"
    notes = table.notes | {"gauge length": f"{value:.10g} mm"}
    return dataclasses.replace(table, notes=notes, steps=[*table.steps, said])


def _of_newtons(unit: Unit) -> str:
    """The unit of a length without one beside a load in newtons: `Ø 6.02`; an area without one may be in any."""
    return "mm" if unit.name in ("N", "kN") else ""


def _sizes_not_used(axes: Mapping[Axis, Column], options: ReadingOptions) -> list[str]:
    """Lines about a gauge length or an area that was given, and that no column needs."""
    needed = {column.unit.quantity for column in axes.values()}
    return [
        f"{getattr(options, name):g} given as {name} has no part: no column is a {quantity}"
        for quantity, (name, *_) in _SIZES.items()
        if getattr(options, name) is not None and quantity not in needed
    ]


def _agree(values: Iterable[float]) -> bool:
    """Whether there are not two sizes that differ by more than rounding."""
    values = list(values)
    return not values or max(values) <= _SAME_SIZE * min(values)


def _area_of_dimensions(table: Table, bare: str = "") -> tuple[float, str] | None:
    """The area (mm²) by the head's diameter, or width and thickness, and where it is from; None where it is unsure.

    Args:
      bare: the unit of lengths that have none.
    """
    diameter, width, thickness = (
        _noted(table, pattern, DISPLACEMENT_UNITS, bare)
        for pattern in (_DIAMETER_NOTE, _WIDTH_NOTE, _THICKNESS_NOTE)
    )
    products = _products(table, bare, [*width.values(), *thickness.values()])
    areas = dict(products)
    for d in diameter.values():
        areas[np.pi / 4.0 * d**2] = f"the diameter of {d:.4g} mm"
    for w, t in itertools.product(width.values(), thickness.values()):
        areas[w * t] = f"the width of {w:.4g} mm and the thickness of {t:.4g} mm"
    said = (f"{name} {text}".casefold() for name, text in table.notes.items())
    may_be_hollow = (diameter or products) and any(map(_HOLLOW.search, said))
    # A round bar has no thickness, and a disc under compression has.
    is_bar = not (diameter and thickness) or any(map(says_compression, table.header))
    if not areas or not _agree(areas) or may_be_hollow or not is_bar:
        return None
    area, of = next(iter(areas.items()))
    return float(area), f"from {of} in the file's head"


def _products(table: Table, bare: str, sides: list[float]) -> dict[float, str]:
    """The areas (mm²) that the head writes as a product, `10 x 3 mm`, and these lines; `bare` as above.

    Args:
      sides: widths and thicknesses, mm, that the head tells besides; a product without them is no cross-section.
    """
    areas = {}
    is_compression = any(map(says_compression, table.header))
    names = _SECTION_NOTE if is_compression else f"{_SECTION_NOTE}|{_BODY_NOTE}"
    for name, text in table.notes.items():
        words, unit = _split_note(name, DISPLACEMENT_UNITS)
        match = _PRODUCT.match(text)
        if match is None or not re.fullmatch(names, words):
            continue
        unit = match[4] or match[2] or unit or bare
        factor = find_size(unit, DISPLACEMENT_UNITS) or (find_size(unit, AREA_UNITS) or 0.0) ** 0.5
        one, other = ((_size_number(match[i]) or 0.0) * factor for i in (1, 3))
        # A round bar is also told by its diameter and five of them, `5 x 25`.
        is_body = max(one, other) <= _WIDEST and max(one, other) != 5.0 * min(one, other)
        is_body &= all(_agree([side, one]) or _agree([side, other]) for side in sides)
        is_section = bool(re.fullmatch(_SECTION_NOTE, words)) or is_body
        if one * other > 0.0 and is_section:
            areas[one * other] = f"'{name}: {text}'"
    return areas


def _area_in_doubt(table: Table, options: ReadingOptions) -> str:
    """The head's area and what its dimensions give, in words, where they are two areas; else empty."""
    found = _noted(table, _AREA_NOTE, AREA_UNITS)
    made = _area_of_dimensions(table)
    if options.area is not None or not found or made is None:
        return ""
    area, source = next(iter(found.values())), made[1].removeprefix("from ")
    if _agree([area, made[0]]):
        return ""
    return f"the head tells an area of {area:.4g} mm², which was taken, and {source} gives {made[0]:.4g} mm²"


def _load_in_doubt(
    table: Table, column: Column, stress: Array, mark: DecimalMark, options: ReadingOptions
) -> str:
    """The area, and the one that a load's column over the stress [rows] gives, in words, where they differ."""
    area, beside = _known_area(table, options), _load_beside(table, column, mark)
    if area is None or beside is None:
        return ""
    load, values = beside
    loaded = np.abs(stress) > _LOADED * np.nanmax(np.abs(stress))
    areas = np.abs(values[loaded] / stress[loaded])
    low, middle, high = np.nanquantile(areas, [0.1, 0.5, 0.9])
    # A true stress is no load over one area.
    if high > _SAME_AREA * low or _agree([area, float(middle)]):
        return ""
    return (
        f"the stress of column '{column.name}' was taken; column '{load.name}' over it gives an area of {middle:.4g} "
        f"mm², and the area is {area:.4g} mm²: --stress_column takes the load"
    )


def _load_beside(table: Table, column: Column, mark: DecimalMark) -> tuple[Column, Array] | None:
    """The one load that stands beside an engineering stress, and its numbers [rows], N; None where there is none."""
    loads = [i for i in columns_named(table, "load") if i != column.index]
    if len(loads) != 1 or column.own_measure == "true":
        return None
    try:
        load = _with_unit(table, "stress", loads[0], None, [])
        values = column_numbers(table, load, mark) * load.unit.factor
    except InputError:
        return None
    is_load = load.unit.quantity == "load" and load.unit_source != ASSUMED
    return (load, values) if is_load else None


def _known_area(table: Table, options: ReadingOptions) -> float | None:
    """The area (mm²) as given, or as the head tells it or its dimensions."""
    known = next(iter(_noted(table, _AREA_NOTE, AREA_UNITS).values()), None)
    made = _area_of_dimensions(table)
    return options.area or known or (made[0] if made else None)


def _known_length(table: Table, options: ReadingOptions) -> float | None:
    """The gauge length (mm) as given, or as the head tells it."""
    return options.gauge_length or next(
        iter(_noted(table, _LENGTH_NOTE, DISPLACEMENT_UNITS).values()), None
    )


def _preload_in_doubt(
    table: Table,
    column: Column,
    strain: Array,
    stress: Array,
    mark: DecimalMark,
    options: ReadingOptions,
) -> str:
    """A preload, in words, that the head tells where strain and stress [rows] both begin at zero; else empty.

    Or one that a load's column holds, and the stress beside it does not.
    """
    beside = None if column.unit.quantity == "load" else _load_beside(table, column, mark)
    if beside is not None:
        held, values = beside
        known = np.isfinite(values) & np.isfinite(stress)
        if np.count_nonzero(known) > 2 and np.ptp(stress[known]) > 0.0:
            area, at_zero = np.polyfit(stress[known], values[known], 1)
            off = float(np.abs(values[known] - at_zero - area * stress[known]).max())
            preload = float(at_zero / area) if area else 0.0
            # A stress over one area follows its load to the last digit.
            if off < _PART_OF * abs(at_zero) and _FELT <= preload / np.ptp(stress[known]) < 1.0:
                return (
                    f"column '{held.name}' reads {at_zero:.4g} N where the stress of column '{column.name}' is zero: "
                    f"if the load was set to zero under a preload, every stress is {preload:.4g} MPa too low"
                )
    told = [*_noted(table, _PRELOAD_NOTE, STRESS_UNITS).values()]
    for load in _noted(table, _PRELOAD_NOTE, LOAD_UNITS).values():
        told += [load / area] if (area := _known_area(table, options)) else []
    begins = np.abs(strain) <= _AT_ZERO * np.nanmax(np.abs(strain))
    first, largest = np.abs(stress[begins][:1]), float(np.nanmax(np.abs(stress)))
    if not told or not len(first) or told[0] < _FELT * largest or first[0] > _PART_OF * told[0]:
        return ""
    return (
        f"the head tells a preload of {told[0]:.4g} MPa, and at the first strain of zero the stress is {first[0]:.3g} "
        f"MPa: if the load was set to zero there, every stress is {told[0]:.4g} MPa too low"
    )


def _not_taken(table: Table, pattern: str, related: str) -> str:
    """The head's lines that may be meant for a size and are not plain to read, in words that end in a semicolon."""
    lines = []
    for name, text in table.notes.items():
        words, unit = _split_note(name, AREA_UNITS | DISPLACEMENT_UNITS)
        if re.match(r"[\d.,]", text) and re.search(related, words):
            is_bare = re.fullmatch(r"[\d.,]+", text) and not unit
            why = "has no unit" if is_bare else "is not taken for it"
            lines.append(f"the head's '{shorten(f'{name}: {text}')}' {why}")
    return "".join(f"{line}; " for line in lines[:3])


def _length_of(table: Table, column: Column, gauge_length: float | None) -> float | None:
    """The length (mm) that a travel is of: an extensometer's own, where the head tells it beside the specimen's."""
    own = next(iter(_noted(table, _EXTENSOMETER_NOTE, DISPLACEMENT_UNITS).values()), None)
    if own is None or gauge_length is None or own == gauge_length:
        return own if gauge_length is None else gauge_length
    if column.is_of_an_extensometer:
        return own
    if column.is_of_the_machine:
        return gauge_length
    raise InputError(
        f"the head tells two lengths, {gauge_length:g} mm and the extensometer's {own:g} mm, and column "
        f"'{column.name}' may be of either; give the one that it is of with --gauge_length=MM"
    )


def _noted(table: Table, pattern: str, units: dict[str, float], bare: str = "") -> dict[str, float]:
    """The sizes that stand before the table with their unit, or in `bare`, by their lines: `Area: 24,5 mm²`."""
    found = {}
    sizes = {
        name: re.fullmatch(r"[ø⌀φ]?\s*([\d.,]+)\s*(.*)", text, re.IGNORECASE)
        for name, text in table.notes.items()
    }
    try:
        mark = decimal_mark(match[1] for match in sizes.values() if match)
    except InputError:
        mark = None
    for name, text in table.notes.items():
        words, unit = _split_note(name, units)
        match = sizes[name]
        if not match or not re.fullmatch(pattern, words):
            continue
        factor = find_size(match[2] or unit or bare, units)
        value = number(match[1], mark) if mark else _size_number(match[1])
        if factor and value:
            found[f"'{name}: {text}'"] = value * factor
    return found


def _size_number(text: str) -> float | None:
    return number(text, "," if re.fullmatch(r"\d+,\d+", text) else ".")


def _split_note(name: str, units: dict[str, float]) -> tuple[str, str]:
    """The words of a note's name in lower case, with those in brackets, and its unit; `S0 in mm²`, `Area [mm²]`."""
    name, unit = split_header(name, lambda text: find_size(text, units))
    words = " ".join(re.sub(r"[\[\](){}_,;]", " ", _accented(name)).split())
    return re.sub(r" ist\b", "", words), unit or ""


def column_numbers(table: Table, column: Column, mark: DecimalMark, may_end: bool = False) -> Array:
    """One column as finite numbers, [points]; the first cell that is none is refused with its line.

    Args:
      may_end: the column may be blank from a row to the end, as behind an extensometer that was taken off; NaN there.
    """
    values = np.full(len(table.rows), np.nan)
    row_word = "line" if table.sheet is None else "row"
    rows = table.rows
    if may_end:
        blank = [is_blank(row[column.index] if column.index < len(row) else "") for _, row in rows]
        filled = len(blank) - next((i for i, b in enumerate(reversed(blank)) if not b), len(blank))
        rows = rows[:filled] if len(rows) - filled >= _FEWEST_BLANK else rows
    for i, (line, row) in enumerate(rows):
        cell = row[column.index] if column.index < len(row) else ""
        value = number(cell, mark)
        if value is None or not math.isfinite(value):
            shown = shorten(str(cell).strip())
            found = f"'{shown}' is not a number" if shown else "no value"
            if value is not None:
                found = f"'{shown}'; every value must be finite"
            raise InputError(f"{row_word} {line}, column '{column.name}': {found}")
        values[i] = value
    return values


# --------------------------------------------------------------------------------------------------
# A file that a testing machine exported -> its stress-strain curves, in MPa and plain strain.
#
# Text files and Excel sheets. Guesses are told in the curve's steps, and every guess can be replaced by a setting.


SHEAR_WORDS = re.compile(
    r"shear|gamma|(^|[\W_])tau|(?<![\u0370-\u03ff])[γτ](?![\u0370-\u03ff])|gleitung|schub|scher|cisaill|cortante|taglio"
    r"|cisalh|ścinaj|postaciow|smyk|сдвиг|касательн|剪|せん断|전단|(strain|stress|eps|ε|e|sigma|σ)_?(12|xy)",
    re.IGNORECASE,
)
_US_UNITS = {"in", "lbf", "kip", "psi", "ksi"}
# _ENDS_AT: share of the largest strain before; a record that falls back from less was unloading.
_ENDS_AT = 0.5
# _BACK_AT: share of the strain before; a record that begins again is back below it in one step.
_BACK_AT = 0.1
# _UNLOADED: share of the largest stress; a specimen at the beginning of its record bears less. Where its first rows are
# cut off it bears up to _BEGINS_LOADED, and later _RISES times as much.
_UNLOADED, _BEGINS_LOADED, _RISES = 0.2, 0.5, 1.5
# _WHOLE_RUN: share of the largest stress; every record of a specimen reaches it.
_WHOLE_RUN = 0.3
# _FAR: share of the largest strain; every record of a specimen reaches it, and a preload does not.
_FAR = 0.05
# _GOES_ON: share of the strain before lost rows; the record is back above it in one step, but for noise.
_GOES_ON = 0.95
# _STILL_BEARS: share of the stress before lost rows, which the specimen bears behind them.
_STILL_BEARS = 0.8
# _BROKEN: share of the largest stress; a specimen that bears less at its largest strain is broken.
_BROKEN = 0.05
# _LOADED_PART: share of the largest stress; a specimen's own record does not begin with more.
_LOADED_PART = 0.5
# _SAME_LOAD: share of the largest stress between two parts of one test.
_SAME_LOAD = 0.1
# No extensometer and no specimen is that short in millimetres; in inches, 1 and 2 are the lengths of ASTM E8.
_SHORTEST_GAUGE_MM, _SHORTEST_GAUGE_INCH = 2.5, 0.05


@dataclasses.dataclass(frozen=True)
class RawCurve:
    """The two columns of a curve as they were measured, in plain strain and MPa.

    Attributes:
      name: for reports; the file's name without its ending, and the sheet and specimen where it holds several.
      strain: [points], -; stress_mpa: [points], MPa.
      strain_measure, stress_measure: what is said of them, or None where nothing is.
      shear_strain: how it counts where it is a shear strain: `engineering` (gamma), `tensor` (gamma / 2), `epsilon`
        (called epsilon without indices: probably gamma, perhaps not), or None where nothing is said.
      steps: what was done, in words.
      assumed: what was assumed and not read, in short; time_assumed: the same of the time, for tests that need it.
      conditions: what head and file name say of the test, see `MeasuredTest`.
      us_unit_hints: what speaks for US units where the stress has none, in words.
      is_shear: its columns are called shear, gamma or tau.
      time: [points], s, where it was asked for and the file tells it.
      columns: names of the columns of strain and stress.
      sure_units: the axes whose unit is in no doubt: it was given, or it is the read one of a load or a displacement.
      compression_in_head, bending_in_head: the line before the table, or the file's name, that says so.
      tension_in_head: the same of tension, where no mode of rubber is named; laminate_in_head: of plies at ±45°.
      mode_in_head: the mode of rubber that head, names and sheet tell, and the text that does.
      in_doubt: kind of a warning -> what the file tells in two ways, such as two areas.
      machine_travel: the strain is, or is made of, a travel that machine and grips have a share in.
      travel_in_doubt: the strain is made of a travel that may be so too, and no other one stands beside it.
      follows: the name of a travel whose numbers the strain repeats from a row on, and that row; 0 for all rows.
      missing_cycles: the cycles that the file leaves out, `3 to 9`, by a column or by lines between the rows.
      warms: the first temperature and the one farthest from it, where a column of them changes; else nothing.
    """

    name: str
    strain: Array
    stress_mpa: Array
    strain_measure: Measure | None = None
    stress_measure: Measure | None = None
    shear_strain: Literal["engineering", "tensor", "epsilon"] | None = None
    steps: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    time_assumed: str = ""
    conditions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    us_unit_hints: tuple[str, ...] = ()
    is_shear: bool = False
    time: Array | None = None
    columns: tuple[str, str] = ("strain", "stress")
    sure_units: frozenset[Axis] = frozenset()
    machine_travel: bool = False
    travel_in_doubt: bool = False
    follows: tuple[str, int] | None = None
    compression_in_head: str = ""
    bending_in_head: str = ""
    tension_in_head: str = ""
    laminate_in_head: str = ""
    mode_in_head: tuple[str, str] = ("", "")
    in_doubt: Mapping[str, str] = dataclasses.field(default_factory=dict)
    missing_cycles: str = ""
    warms: tuple[str, ...] = ()


def read_curves(
    path: str | os.PathLike | Frame,
    options: ReadingOptions | None = None,
    measures: Mapping[str, str | None] | None = None,
    of_test: bool = False,
    needs_time: bool = False,
    one_loading: bool = True,
) -> list[RawCurve]:
    """Reads the curves of a file; raises InputError, in one line that names the file, for what cannot be a curve.

    Args:
      measures: axis -> engineering or true: which columns to take where a table holds both; None asks the user.
      of_test: of a law that takes tests: also reads the time, and tables of two columns without a header.
      needs_time: several columns that could be the time are refused; else none of them is read.
      one_loading: strain and stress that begin again at zero are another specimen, or another run, below the first.
    """
    options = options or ReadingOptions()
    how = _How(options, measures or {}, of_test, needs_time, one_loading)
    path = path if isinstance(path, Frame) else pathlib.Path(path)
    curves: list[RawCurve] = []
    try:
        tables = read_tables(path, options.sheet, cycles=not one_loading)
        several = len({table.sheet for table in tables}) > 1
        skipped = []
        for table in tables:
            try:
                curves.extend(_curves_of(table, path.stem, several, how))
            except InputError as error:
                where = f"sheet '{table.sheet}': " if table.sheet and options.sheet is None else ""
                # Sheets of results stand beside sheets of curves; their columns and length tell them apart.
                is_other = str(error).startswith("no column is named") or _is_of_results(
                    table, tables
                )
                if not several or not is_other:
                    where += f"specimen '{table.label}': " if table.label else ""
                    raise InputError(f"{where}{error}") from error
                skipped.append(table.sheet)
        if not curves:
            raise InputError("none of its sheets has a strain and a stress column; set --sheet")
        if one_loading:
            for before, curve in itertools.pairwise(curves):
                _refuse_a_part(before, curve)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if skipped:
        named = ", ".join(map(str, dict.fromkeys(skipped)))
        said = f"skipped the sheets without a curve of strain and stress: {named}"
        curves = [dataclasses.replace(c, steps=(*c.steps, said)) for c in curves]
    return curves


def _refuse_a_part(before: RawCurve, curve: RawCurve) -> None:
    """Raises InputError for a curve that begins loaded, with the load at which the one before it ended."""
    end, start = float(before.stress_mpa[-1]), float(curve.stress_mpa[0])
    largest = float(np.abs(curve.stress_mpa).max())
    if abs(start) > _LOADED_PART * largest and abs(start - end) < _SAME_LOAD * largest:
        raise InputError(
            f"'{curve.name}' begins at {start:.4g} MPa, where '{before.name}' ended: they are one specimen, whose "
            f"strain goes from {before.strain[-1]:.4g} to {curve.strain[0]:.4g} there; put the strain right, or take "
            "these rows out"
        )


def _is_of_results(table: Table, tables: list[Table]) -> bool:
    """Whether a table is too short for a curve and has other columns than every longer one."""
    longer = [other for other in tables if len(other.rows) >= MINIMUM_POINTS]
    is_short = len(table.rows) < MINIMUM_POINTS and bool(longer)
    return is_short and not any(shared_names(table, other) for other in longer)


@dataclasses.dataclass(frozen=True)
class _How:
    """The arguments of `read_curves`."""

    options: ReadingOptions
    measures: Mapping[str, str | None]
    of_test: bool
    needs_time: bool
    one_loading: bool


def _curves_of(table: Table, stem: str, several: bool, how: _How) -> list[RawCurve]:
    """The curves of one table, one a specimen, whether these stand side by side, below each other, or by a column."""
    numbers = (how.options.strain_column, how.options.stress_column)
    # A number counts the columns of the whole table.
    whole = any(number is not None and number.isdecimal() for number in numbers)
    parts = [table] if whole else side_by_side(table)
    if len(parts) == 1 and not whole:
        parts = _by_conditions(table, held=how.needs_time)
    name = "_".join([stem, *([str(table.sheet)] if several else [])])
    return [curve for part in parts for curve in _curves_of_part(part, name, stem, how)]


def _curves_of_part(table: Table, name: str, stem: str, how: _How) -> list[RawCurve]:
    table = dataclasses.replace(table, steps=list(table.steps))
    table, time = _without_marked_rows(_with_constants(table)), None
    options, guess = options_without_header(table, how.options)
    if how.of_test:
        table = _with_height(table)
        time = find_time_column(table, options.time_column, how.needs_time)
    if how.needs_time:
        table = _with_held_values(table, f"{stem} {table.sheet or ''}".strip())
    said_before = [f"{key}: {text}" for key, text in table.notes.items()]
    above = [" ".join(filter(None, map(str, cells))) for _, cells in table.above]
    named = [stem, table.sheet or ""]
    laminate = next(filter(_LAMINATE_45.search, [*said_before, *above, *named]), "")
    said_before += [text for text in above if len(text) <= _LONGEST_TITLE]
    gauges = _gauges_of_shear(table, options, laminate) if how.measures.get("shear") else None
    chosen = dataclasses.replace(options, strain_column=str(gauges[0] + 1)) if gauges else options
    axes = find_axes(table, chosen, how.measures)
    table, mark = _with_decimal_mark(table, [column.index for column in axes.values()], options)
    _refuse_two_times(table, axes, mark)
    # A test with a time creeps at a stress, and begins with it; one loading begins with the strain.
    in_time = how.needs_time and time is not None
    held, begins = (axes["stress"].index, time) if in_time else (None, axes["strain"].index)
    begins = begins if how.needs_time or how.one_loading else None
    groups, grouping = _groups(table, options, lambda: _of_conditions(table, held, begins, mark))
    curves = []
    for label, rows in groups.items():
        label = "_".join(filter(None, (table.label, label)))
        if len(rows) < MINIMUM_POINTS:
            # The label of a table is said beside every error of it.
            of = f"specimen '{label}'" if label and label != table.label else "it"
            raise InputError(
                f"{of} has {len(rows)} points; a curve needs at least {MINIMUM_POINTS}"
            )
        part = dataclasses.replace(table, rows=rows, steps=[*table.steps, *grouping])
        curve = _curve("_".join(filter(None, (name, label))), part, axes, mark, options)
        if gauges:
            curve = _in_shear(curve, part, gauges, mark, options)
        if guess:
            assumed = (*curve.assumed, guess.partition(": ")[2])
            # Units that go with the guess, and not with what the user says.
            read = [step.replace("in stretch (as given)", "in stretch") for step in curve.steps]
            curve = dataclasses.replace(curve, steps=(guess, *read), assumed=assumed)
        if time is not None:
            seconds, said = _time(part, time, mark, options)
            curve = dataclasses.replace(
                curve,
                time=seconds,
                time_assumed="time in s" if said.endswith("(assumed)") else "",
                steps=(*curve.steps, said),
            )
        elif not how.of_test and (options.time_column or options.time_unit):
            unused = "the time has no part: the law is for one loading without it"
            curve = dataclasses.replace(curve, steps=(*curve.steps, unused))
        warms: list[str] = []
        found = conditions_of(_with_constants(part, warms).notes, name, said_before) | (
            {"specimen": label} if label else {}
        )
        length = _known_length(table, options)
        if how.of_test and time is None and "rate" not in found and length is not None:
            rate, said = rate_by_speed(table.notes, length)
            found |= {"rate": rate} if rate else {}
            curve = dataclasses.replace(curve, steps=(*curve.steps, *filter(None, [said])))
        texts = [*said_before, stem, *(axes[axis].name for axis in axes)]
        modes = [text for text in texts if any(words.search(text) for words in _MODES.values())]
        curve = dataclasses.replace(
            curve,
            conditions=found,
            compression_in_head=next(
                itertools.chain(
                    filter(_says_compression_test, [*said_before, stem]), _cylinder(table)
                ),
                "",
            ),
            bending_in_head=next(filter(_BENDING_TEST.search, [*said_before, stem]), ""),
            tension_in_head="" if modes else next(filter(_TENSION_TEST.search, texts), ""),
            laminate_in_head=laminate,
            mode_in_head=max(
                # What names one specimen or sheet counts before what names the file.
                _mode_in([label, table.sheet or ""]),
                _mode_in(modes),
                key=lambda found: bool(found[0]),
            ),
            missing_cycles=_missing_cycles(part, mark),
            warms=tuple(warms),
        )
        curve = _measured_as(curve, [*said_before, *named])
        runs = how.one_loading and options.specimen_column != "none"
        curves += _runs(curve, [number for number, _ in rows]) if runs else [curve]
    return curves


# _ACROSS: words of a strain across the load. _PLUS_45, _MINUS_45: of one of two gauges across each other.
_ACROSS = re.compile(r"trans(vers|\b)|trasvers|lat(eral|éral|\b)|quer", re.IGNORECASE)
_PLUS_45, _MINUS_45 = (re.compile(rf"(?<![\w/\[±]){sign} ?45(?![\d/])") for sign in (r"\+", "[−-]"))
# _ALONG_X, _ACROSS_Y: strains along and across the load by their indices.
_ALONG_X, _ACROSS_Y = (
    re.compile(rf"(?<![^\W\d_])(eps|epsilon|ε|e|strain)[_ ]?{x}+\b", re.IGNORECASE) for x in "xy"
)
# _LAMINATE_45: text on tension of a laminate of ±45°, without plies of 0° or 90° that bear the load.
_LAMINATE_45 = re.compile(
    r"(?<!I)D ?3518|ISO ?14129|^(?!.*((?<!\d)(0|90)°?|[\[(](0|90)\w*)\s?/)(?!.*/\s?\(?(0|90)(\d?[\])]|(?!\d)))"
    r".*(±|\+\s?/\s?[−-]|(?<!\d)\+?45°?\s?/\s?[−-])\s?45(?!\d|[.,]\d|\s?k?N)",
    re.IGNORECASE,
)


def _gauges_of_shear(
    table: Table, options: ReadingOptions, said: str
) -> tuple[int, int, str] | None:
    """The columns whose difference is the shear strain, and what is said of a ±45° laminate, '' for gauges at ±45°."""
    found = columns_named(table, "strain")
    if options.strain_column or any(SHEAR_WORDS.search(table.header[i]) for i in found):
        return None
    plus, minus = (
        [i for i in found if sign.search(table.header[i])] for sign in (_PLUS_45, _MINUS_45)
    )
    if len(found) == 2 and len(plus) == len(minus) == 1:
        return plus[0], minus[0], ""
    across = [i for i, name in enumerate(table.header) if _ACROSS.search(name) and i not in found]
    if len(found) == 2 and not across:
        across = [i for i in found if _ACROSS_Y.search(table.header[i])]
        found = [i for i in found if _ALONG_X.search(table.header[i])]
    return (found[0], across[0], said) if said and len(found) == len(across) == 1 else None


def _in_shear(
    curve: RawCurve,
    table: Table,
    gauges: tuple[int, int, str],
    mark: DecimalMark,
    options: ReadingOptions,
) -> RawCurve:
    """A curve of the first gauge with its shear by both (ASTM D3518, D5379)."""
    first, second, said = gauges
    problems: list[str] = []
    other = find_axis(table, "strain", str(second + 1), options.strain_unit, None, problems)
    if other is None or other.unit.quantity != "strain" or problems:
        raise InputError("; ".join(problems) or f"column '{table.header[second]}' is no strain")
    strain = curve.strain - column_numbers(table, other, mark, may_end=True) * other.unit.factor
    strain = strain * np.sign(strain[np.nanargmax(np.abs(strain))])
    step = f"shear strain: '{table.header[first]}' less '{table.header[second]}'"
    is_axial = said and not SHEAR_WORDS.search(curve.columns[1])
    if is_axial:
        step += f"; shear stress: half of the axial one, as '{shorten(said)}' says"
    return dataclasses.replace(
        curve,
        strain=strain,
        stress_mpa=curve.stress_mpa * (0.5 if is_axial else 1.0),
        shear_strain="engineering",
        is_shear=True,
        columns=("γ of two gauges", "τ"),
        steps=(*curve.steps, step),
    )


# _VALID, _INVALID, _STATUS: names of columns whose cells say which rows count, do not, or may not.
_VALID = word_set("valid gültig ok good use used include included keep")
_INVALID = word_set(
    "invalid ungültig exclude excluded outlier outliers ausreißer reject rejected bad"
)
_STATUS = word_set("status quality qc flag")
# _YES, _NO, _FINE, _FAULTY: their cells, of a status the last two.
_FINE = word_set("ok good valid gültig true pass passed")
_FAULTY = word_set(
    "nok bad invalid ungültig false error fail failed reject rejected outlier exclude"
)
_YES = word_set("yes y ja j oui si x 1 1.0") | _FINE
_NO = word_set("no n nein non 0 0.0") | _FAULTY


def _without_marked_rows(table: Table) -> Table:
    """The table without the rows that a column such as `valid` says do not count."""
    for i, header in enumerate(table.header):
        words = _words(header)
        if words & _VALID and not words & _INVALID:
            counts, does_not = _YES, _NO
        elif words & _INVALID:
            counts, does_not = _NO | {""}, _YES
        elif words & _STATUS:
            counts, does_not = _FINE | {""}, _FAULTY
        else:
            continue
        cells = [plain(str(row[i])) if i < len(row) else "" for _, row in table.rows]
        marked = [cell in does_not for cell in cells]
        if not 0 < sum(marked) < len(marked) or not {*cells} <= counts | does_not:
            continue
        rows = [row for row, is_marked in zip(table.rows, marked, strict=True) if not is_marked]
        said = f"left out {sum(marked)} rows that column '{header}' marks"
        return dataclasses.replace(table, rows=rows, steps=[*table.steps, said])
    return table


# _STEADY: share of its value by which a column of one temperature may move; _NEAR_ROOM: and degrees, for small ones.
_STEADY, _NEAR_ROOM = 0.02, 2.0


def _with_constants(table: Table, warms: list[str] | None = None) -> Table:
    """The table with columns of a size, a rate or a temperature that hold one number among its notes.

    Args:
      warms: gets the first temperature and the one farthest from it where a column of them changes.
    """
    found: dict[str, str] = {}
    for i in range(len(table.header)):
        words, unit = _name_and_unit(table, i)
        of_temperature = words == "temperature"
        is_letter = len(words) < 3 and not unit
        if is_letter or not any(re.fullmatch(pattern, words) for pattern in _CONSTANTS):
            continue
        cells = [row[i] for _, row in table.rows if i < len(row) and not is_blank(row[i])]
        try:
            mark = decimal_mark(cells)
        except InputError:
            continue
        values = np.array([np.nan if (v := number(c, mark)) is None else v for c in cells])
        within = np.maximum(_STEADY * np.abs(values), _NEAR_ROOM) if of_temperature else 0.0
        if len(values) and (np.abs(values - np.median(values)) <= within).all():
            found[words] = f"{np.median(values):.6g} {unit}".strip()
        elif of_temperature and unit and warms == [] and np.isfinite(values).all():
            farthest = values[np.abs(values - values[0]).argmax()]
            warms += [f"{value:.6g} {unit}" for value in (values[0], farthest)]
    return dataclasses.replace(table, notes=table.notes | found)


def _name_and_unit(table: Table, i: int) -> tuple[str, str]:
    """Name and unit of a column as a note has them, `temperature` for all that are told in degrees."""
    if unit := _temperature_unit(table.header[i], table.units[i]):
        return "temperature", unit
    words, unit = _split_note(table.header[i], _SIZE_UNITS)
    rate = re.fullmatch(rf"(.*?) ?({'|'.join(map(re.escape, _RATE_UNITS))})", words)
    return (rate[1], rate[2]) if rate else (words, unit or (table.units[i] or "").strip("[]() "))


# _HELD_VALUE: a stress or a strain in a name, `creep_600C_150MPa` or `Strain (%) at 150 MPa`.
_HELD_VALUE = r"(\d+(?:[.,]\d+)?)[ _]?(MPa|GPa|kPa|ksi|psi|N/mm2|N/mm²|%|pct)(?![^\W_])"


# _OF_A_COLUMN: what a column's name tells of its rows: a held stress or strain, a rate, a temperature.
_OF_A_COLUMN = re.compile(
    rf"(?:\b(?:at|bei) |@ ?)?[(\[]?(?<![^\W_])(?<![.,+-])(?P<value>{_NUMBER}) ?"
    r"(?:(?P<stress>MPa|GPa|kPa|ksi|psi|N/mm2|N/mm²)|(?P<strain>%|pct)|(?P<temperature>(?:°|deg ?)?[CF]|K)"
    rf"|(?P<rate>{'|'.join(map(re.escape, sorted(_RATE_UNITS, key=len, reverse=True)))}))(?![^\W_])[)\]]?"
)


def _by_conditions(table: Table, held: bool) -> list[Table]:
    """A table for each column named with its condition, `Strain (%) 150 MPa` or `Stress 0.01/s`, or the table alone.

    Args:
      held: also by a stress or a strain that is held; else by a rate and a temperature only.
    """
    found: dict[int, tuple[str, str, str]] = {}
    for i, header in enumerate(table.header):
        for match in _OF_A_COLUMN.finditer(header):
            (kind,) = (key for key in _CONDITIONS if match[key])
            name = re.sub(r"[ _]{2,}", " ", f"{header[: match.start()]} {header[match.end() :]}")
            name = name.strip(" _,;@-")
            name = name or _title_of_columns(table, kind)
            measured = {"stress": "strain", "strain": "stress"}.get(kind)
            axes = ("strain", "stress") if measured is None else (measured,)
            if (held or measured is None) and any(_is_named(name, axis) for axis in axes):
                found[i] = name, kind, f"{match['value']} {match[kind].replace('pct', '%')}"
    names, kinds, values = (
        (set(each) for each in zip(*found.values(), strict=True)) if found else ((), (), ())
    )
    if len(names) != 1 or len(kinds) != 1 or not 1 < len(values) == len(found):
        return [table]
    shared = [i for i in range(len(table.header)) if i not in found]
    parts = []
    for i, (name, kind, value) in found.items():
        columns = [*shared, i]
        label = value.partition(" ")[0] if kind == "rate" else value
        part = _part(table, columns, label, {kind: value})
        part.header[-1] = name
        parts.append(
            dataclasses.replace(part, rows=[row for row in part.rows if not is_blank(row[1][-1])])
        )
    return parts


# _CONDITIONS: the groups of `_OF_A_COLUMN`.
_CONDITIONS = ("stress", "strain", "temperature", "rate")


def _title_of_columns(table: Table, kind: str) -> str:
    """The name and unit of columns that are called by their condition alone; '' where nothing tells them.

    A strain may be in percent, so that a line above must say its unit: `Creep strain (%) of steel`.
    """
    is_beside = any(
        _is_named(name, of) for name in table.header for of in ("strain", "displacement")
    )
    if kind in ("rate", "temperature"):
        return "stress" if is_beside else ""
    for _, cells in reversed(table.above):
        title = " ".join(filter(None, map(str, cells)))
        unit = split_header(title)[1]
        axis = {"stress": "strain", "strain": "stress"}[kind]
        if (
            unit
            and _is_named(title, axis)
            and (known := find_unit(unit))
            and known.quantity == axis
        ):
            return f"{axis} ({unit})"
    return ""


def _with_held_values(table: Table, stem: str) -> Table:
    """The table with a column for the strain or stress that the head, `Stress: 60 MPa`, or the file's name tells."""
    in_name = set(re.findall(rf"(?:^|(?<=[-_ ])){_HELD_VALUE}", stem))
    for axis in ("strain", "stress"):
        if any(_is_named(name, of) for name in table.header for of in (axis, BEFORE_SIZE[axis])):
            continue
        said = {name: text for name, text in table.notes.items() if _is_named(name, axis)}
        units = [(v, "%" if u == "pct" else u) for v, u in in_name]
        units = [each for each in units if (each[1] == "%") == (axis == "strain")]
        if not said and len(units) == 1:
            said = {axis: " ".join(units[0])}
        values = [re.fullmatch(r"([\d.,]+)\s*(\S.*)", text) for text in said.values()]
        if len(values) != 1 or values[0] is None or not find_unit(values[0][2]):
            continue
        value, unit = values[0].groups()
        table = dataclasses.replace(
            table,
            header=[*table.header, f"{next(iter(said))} [{unit}]"],
            units=[*table.units, None],
            rows=[
                (line, [*cells, *[""] * (len(table.header) - len(cells)), value])
                for line, cells in table.rows
            ],
            steps=[*table.steps, f"{axis} held at {value} {unit}, from the file's head or name"],
        )
    return table


def _missing_cycles(table: Table, mark: DecimalMark) -> str:
    """The cycles before the last one that a record leaves out, `3 to 9`; '' where nothing numbers them, or none is."""
    counted = [i for i, name in enumerate(table.header) if _counts_cycles(name)]
    numbers: list[float] = [*table.cycles]
    if len(counted) == 1:
        cells = (row[counted[0]] for _, row in table.rows if counted[0] < len(row))
        numbers = [value for cell in cells if (value := number(cell, mark)) is not None]
    if not numbers or not np.isfinite(numbers).all() or (np.diff(numbers) < 0).any():
        return ""
    # A count may begin at 0, and hold parts of a cycle.
    known = [0, *dict.fromkeys(int(value) for value in numbers)]
    gaps = [(a + 1, b - 1) for a, b in itertools.pairwise(known) if b > a + 1]
    said = [f"{a} to {b}" if a < b else str(a) for a, b in gaps]
    return ", ".join(said[:4]) + (", …" if len(said) > 4 else "")


def _counts_cycles(header: str) -> bool:
    words = set(re.split(r"[\W_]+", plain(split_header(header)[0]))) - {""}
    return bool(words & _CYCLE_WORDS) and not words - _CYCLE_WORDS - _NAME_WORDS - _COUNTER_WORDS


def _cylinder(table: Table) -> Iterable[str]:
    """The line of the head with the height of a cylinder, which is compressed: it has a diameter, and no length."""
    if _noted(table, _DIAMETER_NOTE, DISPLACEMENT_UNITS) and not _noted(
        table, _LENGTH_NOTE, DISPLACEMENT_UNITS
    ):
        yield from (line.strip("'") for line in _noted(table, _HEIGHT_NOTE, DISPLACEMENT_UNITS))


def _says_compression_test(text: str) -> bool:
    """Whether a line speaks of compression; plates are also compression moulded, and cells are for both."""
    return says_compression(text) and not re.search(
        r"mou?ld|cell|machine|both|compressed|druckdatum|gedruckt|print|3-?d.?druck|druk.?3",
        text,
        re.IGNORECASE,
    )


# _SAME_TIME: share of the time between two rows; two channels whose times differ by less were recorded together.
_SAME_TIME = 0.5


def _refuse_two_times(table: Table, axes: Mapping[Axis, Column], mark: DecimalMark) -> None:
    """Raises InputError where strain and stress have a column of the time each, and were not measured together."""
    times = _called(table, _TIMES)
    own = {max((i for i in times if i < column.index), default=-1) for column in axes.values()}
    if len(own) < 2 or -1 in own:
        return
    seconds = []
    for i in sorted(own):
        cells = [row[i] if i < len(row) else "" for _, row in table.rows]
        values = [np.nan if (v := number(cell, mark)) is None else v for cell in cells]
        with contextlib.suppress(InputError):
            clocks = seconds_of_clocks(cells, table.header[i])
            values = values if clocks is None else clocks.tolist()
        seconds.append(np.array(values))
    apart = np.abs(seconds[0] - seconds[1])
    step = np.abs(np.diff(seconds[0]))
    known = np.isfinite(apart).any() and np.isfinite(step).any()
    if known and np.nanmax(apart) > _SAME_TIME * np.nanmedian(step):
        names = " and ".join(f"'{table.header[i]}'" for i in sorted(own))
        raise InputError(
            f"strain and stress have times of their own (columns {names}), which differ by up to "
            f"{np.nanmax(apart):.3g} in a row; bring one to the times of the other, or take the times out if the rows "
            "belong together"
        )


# _LONGEST_TITLE: letters of a line above a table that may say what kind of test it is; longer ones are remarks.
_LONGEST_TITLE = 60
_BENDING_TEST = re.compile(
    r"\b(?:bend(?:ing)?|flexur(?:e|al)) ?test|\b(?:3|4|three|four)[- ]?(?:point|pt)\b|biegeversuch|biegeprüfung"
    r"|(?:essai|prova|ensayo|ensaio) (?:de|di|a) fle(?:xion|ssione|xión|xão)|曲げ試験|弯曲试验",
    re.IGNORECASE,
)
# _TENSION_TEST: words for tension that leave open how wide the specimen is, and standards of rubber's.
_TENSION_TEST = re.compile(
    r"zug(versuch|prüfung(?!s))|(tensile|tension) tests?\b|(essai|prova|ensayo|ensaio) (de|di|a) tra[cçz]"
    r"|引張試験|拉伸试验|ISO ?37(?!\d)|(?<!I)D ?412(?!\d)|DIN ?53 ?504",
    re.IGNORECASE,
)
# _MODES: how a specimen of rubber is stretched -> words for it.
_MODES = {
    "uniaxial": re.compile(r"uni-?axial|simple tension", re.IGNORECASE),
    "equibiaxial": re.compile(r"biaxial|bulge test|inflation", re.IGNORECASE),
    "planar": re.compile(r"planar|pure[ _-]?shear", re.IGNORECASE),
}


# _MEASURES_IN_HEAD: measure -> words for it in a title, such as `True stress-strain curve`, or in a file's name.
_MEASURES_IN_HEAD: dict[Measure, re.Pattern[str]] = {
    "true": re.compile(
        r"(?<![a-z])true(?![a-z]).{0,12}(stress|strain|curve)|(stress|strain).{0,14}(?<![a-z])true(?![a-z])"
        r"|wahre[rns]?[ _-](spannung|dehnung)|flow[ _-]?(curve|stress)|flie(ß|ss)kurve"
        r"|(contrainte|déformation)s?[ _]vraie|(tensión|deformación|esfuerzo)(es)? verdader|真(应力|応力|实应力)",
        re.IGNORECASE,
    ),
    "engineering": re.compile(
        r"(?<![a-z])(engineering|eng\.?|nominal)[ _-].{0,12}(stress|strain|curve)"
        r"|techn(\.|ische[rns]?)[ _-]?(spannung|dehnung)|(nenn|nominal|ingenieur)dehnung|ingenieurspannung"
        r"|(工程|公称)(应力|応力)|(contrainte|déformation|sforzo|tensione|deformazione)s?[ _](conventionnelle|nominale)"
        r"|(esfuerzo|tensi[óo]n|deformaci[óo]n)(es)?[ _](nominal|ingenieril|convencional)"
        r"|(sforzo|tensione|deformazione)[ _]ingegneristic",
        re.IGNORECASE,
    ),
}


def _measured_as(curve: RawCurve, texts: Iterable[str]) -> RawCurve:
    """The curve, with the only measure that titles, sheet or file name tell, where no column names another one."""
    found = {
        m: text for text in texts for m, words in _MEASURES_IN_HEAD.items() if words.search(text)
    }
    said = {curve.strain_measure, curve.stress_measure}
    if len(found) != 1 or None not in said or not said <= {None, *found} or curve.is_shear:
        return curve
    ((measure, text),) = found.items()
    step = f"took strain and stress as {measure}, as '{shorten(text)}' says"
    return dataclasses.replace(
        curve, strain_measure=measure, stress_measure=measure, steps=(*curve.steps, step)
    )


def _mode_in(texts: Iterable[str]) -> tuple[str, str]:
    """The only mode that texts name, and the first text that does; ('', '') where they name none, or several."""
    found = {mode: text for text in texts for mode, words in _MODES.items() if words.search(text)}
    return next(iter(found.items())) if len(found) == 1 else ("", "")


def _runs(curve: RawCurve, lines: list[int]) -> list[RawCurve]:
    """The curve, or each part of it where strain and stress begin again at zero: specimens below each other."""
    several = _curves_in_turn(curve.stress_mpa) or _curves_in_turn(curve.strain)
    if several:
        raise InputError(
            f"its rows belong to {several} curves in turn, row by row; add a column that names the specimen "
            "(--specimen_column=none takes all rows as one)"
        )
    starts = [0, *begins_again(curve.strain, curve.stress_mpa), len(curve.strain)]
    if len(starts) == 2:
        return [curve]
    again = ", ".join(str(lines[i]) for i in starts[1:-1])
    fewest = min(end - start for start, end in itertools.pairwise(starts))
    if fewest < MINIMUM_POINTS:
        raise InputError(
            f"strain and stress begin again at zero in line {again}: a specimen or run has {fewest} points, and a "
            f"curve needs at least {MINIMUM_POINTS}; --specimen_column=none takes all rows as one"
        )
    said = (
        f"strain and stress begin again at zero in line {again}: {len(starts) - 1} specimens or runs below each other, "
        "each a curve (--specimen_column=none takes them as one)"
    )
    return [
        dataclasses.replace(
            curve,
            name=f"{curve.name}_{number}",
            strain=curve.strain[start:end],
            stress_mpa=curve.stress_mpa[start:end],
            time=None if curve.time is None else curve.time[start:end],
            steps=(*curve.steps, said),
            conditions={**curve.conditions, "specimen": str(number)},
        )
        for number, (start, end) in enumerate(itertools.pairwise(starts), start=1)
    ]


# _MOST_IN_TURN: curves whose rows may take turns; _APART: share of the largest value by which they differ at least;
# _ALIKE: correlation of their differences from one turn to the next, which noise does not have; _FEW_FALLS: share of
# the rows at which a curve by itself falls.
_MOST_IN_TURN, _APART, _ALIKE, _FEW_FALLS = 6, 0.005, 0.9, 0.3


def _curves_in_turn(values: Array) -> int:
    """How many curves take turns in a column [rows], row by row; 0 where it is one curve."""
    values = values[np.isfinite(values)]
    largest = float(np.abs(values).max(initial=0.0))
    loaded = np.flatnonzero(np.abs(values) > 0.5 * largest)
    if not len(loaded):
        return 0
    values = values[loaded[0] : loaded[-1] + 1]
    for count in range(2, _MOST_IN_TURN + 1):
        if len(values) < MINIMUM_POINTS * count:
            return 0
        # A mean over one turn, or over two halves around it, is taken off: the rest tells the curves apart.
        kernel = np.ones(count) if count % 2 else np.r_[0.5, np.ones(count - 1), 0.5]
        off = values - np.convolve(values, kernel / count, "same")
        off = off[count:-count]
        apart = float(np.sqrt(np.mean(off**2)))
        size = np.abs(values)
        falls, own = (
            float(np.mean(size[step:] - size[:-step] < -_APART * largest)) for step in (1, count)
        )
        # Every turn has its fall, and a curve by itself has none.
        if apart > _APART * largest and falls >= 0.8 / count and own < _FEW_FALLS:
            one, next_one = off[:-count], off[count:]
            if float(one @ next_one) > _ALIKE * float(np.sqrt((one @ one) * (next_one @ next_one))):
                return count
    return 0


def begins_again(strain: Array, stress: Array) -> list[int]:
    """The points, but the first, at which a record of one loading begins again at zero strain and stress.

    Args:
      strain, stress: [points], in the order of the file. A fracture or an extensometer that is taken off is followed by
        no second loading, and a cycle comes back in more than one step.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        strain, stress = np.abs(strain - strain[0]), np.abs(stress)
    largest, strongest = float(np.nanmax(strain)), float(stress.max())
    later = np.maximum.accumulate(stress[:0:-1])[::-1]
    farther = np.fmax.accumulate(strain[:0:-1])[::-1]
    is_loaded = (later > _RISES * stress[1:]) & (farther > _FAR * largest)
    least = np.where(is_loaded, _BEGINS_LOADED, _UNLOADED) * strongest
    fell = (strain[1:] < _BACK_AT * strain[:-1]) & (stress[1:] < least)
    strain, fell = _without_returns(strain, stress, fell)
    starts = [0]
    farthest, strongest_yet = np.fmax.accumulate(strain), np.maximum.accumulate(stress)
    for i in (np.flatnonzero(fell) + 1).tolist():
        last = i - 1 - starts[-1]
        is_run = strongest_yet[last] > _WHOLE_RUN * strongest and farthest[last] > _FAR * largest
        ends = strain[i - 1] > _ENDS_AT * farthest[last]
        if is_run and ends and not _goes_on(strain, stress, i):
            starts.append(i)
            farthest = np.fmax.accumulate(strain[i:])
            strongest_yet = np.maximum.accumulate(stress[i:])
    # Noise after the last fracture belongs to that specimen.
    if stress[starts[-1] :].max() <= _WHOLE_RUN * strongest:
        starts.pop()
    return starts[1:]


def _without_returns(
    strain: Array, stress: Array, fell: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_]]:
    """Strain and falls [points] as if the crosshead came back in one step, where it does so without a load.

    A specimen that is unloaded bears a load at the strain from which it comes back, and a broken one does not.
    """
    bare = stress < _BROKEN * stress.max()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], bare, [False]]).astype(np.int8)))
    strain, fell = strain.copy(), fell.copy()
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if first == 0:
            continue
        highest = (
            first + int(np.nanargmax(strain[first:end]))
            if np.isfinite(strain[first:end]).any()
            else first
        )
        back = highest + np.flatnonzero(strain[highest:end] < _BACK_AT * strain[highest])
        if len(back) and strain[highest] > _ENDS_AT * np.nanmax(strain[:first]):
            start = highest + int(np.nanargmin(strain[highest:end]))
            strain[highest:start] = strain[highest]
            fell[start - 1] = True
    return strain, fell


def _goes_on(strain: Array, stress: Array, fell: int) -> bool:
    """Whether a fall of strain and stress [points] is of lost cells: one step later the record is where it was."""
    again = np.flatnonzero(strain[fell:] > _BACK_AT * strain[fell - 1])
    if not len(again):
        return False
    back = fell + int(again[0])
    is_there = strain[back] > _GOES_ON * strain[fell - 1]
    return bool(is_there and stress[back] > _STILL_BEARS * stress[fell - 1])


def _with_decimal_mark(
    table: Table, columns: list[int], options: ReadingOptions
) -> tuple[Table, DecimalMark]:
    """The table without rows that are empty in these columns, or have a cell without a number, and its decimal mark."""
    rows = [row for row in table.rows if any(i < len(row[1]) and row[1][i] != "" for i in columns)]
    cells_of = ([row[i] if i < len(row) else "" for i in columns] for _, row in rows)
    blank = [
        any(map(is_blank, cells)) and all(is_blank(c) or looks_like_a_number(c) for c in cells)
        for cells in cells_of
    ]
    runs = [list(run) for _, run in itertools.groupby(range(len(rows)), blank.__getitem__)]
    # More of them side by side may hold what matters, or are an extensometer that was taken off.
    if len(rows) >= MINIMUM_POINTS and all(blank):
        raise InputError(
            "no row holds both a strain and a stress: they were recorded at other times; bring one to the times of "
            "the other"
        )
    gaps = [len(run) for run in runs[1:-1] if blank[run[0]]]
    both = [len(run) for run in runs[1:-1] if not blank[run[0]]]
    is_slower = len(gaps) >= MINIMUM_POINTS and set(both) == {1} and len(set(gaps)) == 1
    longest = gaps[0] if is_slower else _FEWEST_BLANK - 1
    single = {i for run in runs if blank[run[0]] and len(run) <= longest for i in run}
    kept = [row for i, row in enumerate(rows) if i not in single]
    line = "line" if table.sheet is None else "row"
    left_out = (
        [f"left out {len(single)} rows between those that a slower channel has too"]
        if is_slower
        else blank_rows_between([rows[i] for i in sorted(single)], kept, line)
        if kept
        else []
    )
    rows, steps = kept if left_out else rows, [*table.steps, *left_out]
    if options.decimal is not None:
        mark: DecimalMark = "," if options.decimal == "comma" else "."
    else:
        mark = decimal_mark(cells[i] for _, cells in rows for i in columns if i < len(cells))
        steps += ["decimal commas"] if mark == "," else []
    return dataclasses.replace(table, rows=rows, steps=steps), mark


# _DITTO: signs for a cell that is as the one above it.
_DITTO = {"", '"', "''", "〃", "″", "”", "do.", "ditto", "dito", "id.", '-"-', "-''-", ".."}


def _is_ditto(label: Cell) -> bool:
    return isinstance(label, str) and label.strip().casefold() in _DITTO


def _filled_down(labels: list[Cell]) -> list[Cell]:
    """The labels of all rows, where each stands in the first row of its specimen alone; else as they are."""
    again = [_is_ditto(label) for label in labels]
    written = [label for label, same in zip(labels, again, strict=True) if not same]
    if not written or again[0] or len(set(written)) < len(written) or len(written) > sum(again):
        return labels
    filled: list[Cell] = []
    for label, same in zip(labels, again, strict=True):
        filled.append(filled[-1] if same else label)
    return filled


# Specimen -> rows, and what to say of it; everything under '' where there is one specimen.
_Groups = tuple[dict[str, list], list[str]]


def _groups(table: Table, options: ReadingOptions, without: Callable[[], _Groups]) -> _Groups:
    """The rows by a column of specimens, or `without` one."""
    if options.specimen_column == "none":
        return {"": table.rows}, []
    column = find_specimen_column(table, options.specimen_column)
    if column is None:
        return without()
    groups: dict[str, list] = {}
    labels = [row[column] if column < len(row) else "" for _, row in table.rows]
    for (line, cells), cell in zip(table.rows, _filled_down(labels), strict=True):
        label = f"{cell:g}" if isinstance(cell, float) else cell.strip()
        if not label:
            raise InputError(f"line {line}, column '{table.header[column]}': no specimen")
        groups.setdefault(label, []).append((line, cells))
    if len(groups) == 1 and options.specimen_column is None:
        return {"": table.rows}, []
    name = table.header[column] if table.header else str(column + 1)
    return groups, [f"{len(groups)} specimens by column '{name}'"]


# _BEGINS: share of a column's range below which a specimen begins; a test whose rate or stress jumps goes on.
_BEGINS = 0.05


def _of_conditions(
    table: Table, held: int | None, begins: int | None, mark: DecimalMark
) -> _Groups:
    """The rows by columns of a rate, of a temperature and of what is `held`, under whose every value a test begins.

    Args:
      begins: the column, strain or time, that then stands where it stands in the first row.
    """
    if begins is None:
        return {"": table.rows}, []

    def values(i: int) -> list[float | None]:
        return [number(cells[i], mark) if i < len(cells) else None for _, cells in table.rows]

    columns = []
    for i in range(len(table.header)):
        name, unit = _name_and_unit(table, i)
        if i != held and not re.fullmatch(f"{_NAMES['rate']}|temperature", name):
            continue
        apart = _NEAR_ROOM if name == "temperature" and unit else 0.0
        known = sorted({value for value in values(i) if value is not None})
        are_few = len(known) * MINIMUM_POINTS <= len(table.rows)
        if are_few and all(b - a > apart for a, b in itertools.pairwise(known)):
            columns.append(i)
    told = list(zip(*(values(i) for i in columns), strict=True))
    runs = [list(run) for _, run in itertools.groupby(range(len(told)), told.__getitem__)]
    labels = {"_".join("" if v is None else f"{v:g}" for v in told[run[0]]): run for run in runs}
    if not 1 < len(labels) == len(runs) or min(map(len, runs)) < MINIMUM_POINTS:
        return {"": table.rows}, []
    along = np.array(values(begins), float)
    off = np.abs(along[[run[0] for run in runs]] - along[0])
    if not (off <= _BEGINS * (np.nanmax(along) - np.nanmin(along))).all():
        return {"": table.rows}, []
    names = " and ".join(f"'{table.header[i]}'" for i in columns)
    said = [f"{len(runs)} specimens by {names}"]
    return {label: [table.rows[i] for i in run] for label, run in labels.items()}, said


def _curve(
    name: str, table: Table, axes: dict[Axis, Column], mark: DecimalMark, options: ReadingOptions
) -> RawCurve:
    strain, how_strain = read_strain(table, axes["strain"], mark, options)
    stress, how_stress = read_stress(table, axes["stress"], mark, options)
    shear, how_shear = _shear_strain(axes["strain"].name, options.shear_strain)
    travel = _followed_travel(table, axes["strain"], strain, mark)
    follows = (travel.name, travel.row) if travel is not None else None
    told, why, contradicted = _told_measures(table, axes, strain, stress, travel, mark, options)
    in_doubt = {
        "two areas": _area_in_doubt(table, options)
        if axes["stress"].unit.quantity == "load"
        else _load_in_doubt(table, axes["stress"], stress, mark, options),
        "preload set to zero?": _preload_in_doubt(
            table, axes["stress"], strain, stress, mark, options
        ),
        "two gauge lengths": _length_in_doubt(table, axes["strain"], travel),
        "travel over a gauge length": _clamps_in_doubt(table, axes["strain"], options),
        "name and numbers differ": contradicted,
        "engineering or true?": _letter_of_a_measure(axes, options) if not told else "",
    }
    strain, stress, turned = _compression_negative(strain, stress, axes)
    found = f" ({', '.join(table.steps)})" if table.steps else ""
    steps = [
        f"read {len(table.rows)} points{found}; strain from {how_strain}, stress from {how_stress}"
    ]
    return RawCurve(
        name=name,
        strain=strain,
        stress_mpa=stress,
        strain_measure=options.strain_measure or axes["strain"].own_measure or told.get("strain"),  # type: ignore[arg-type]
        stress_measure=options.stress_measure or axes["stress"].own_measure or told.get("stress"),  # type: ignore[arg-type]
        shear_strain=shear,
        steps=(
            *steps,
            *_sizes_not_used(axes, options),
            *_whose_travel(axes["strain"], follows),
            *how_shear,
            *turned,
            *why,
        ),
        assumed=tuple(column.assumed for column in axes.values() if column.assumed),
        is_shear=any(SHEAR_WORDS.search(column.name) for column in axes.values()),
        us_unit_hints=us_unit_hints(table, strain, mark)
        if axes["stress"].unit_source == ASSUMED
        else (),
        columns=(axes["strain"].name, axes["stress"].name),
        sure_units=frozenset(
            axis
            for axis, column in axes.items()
            if column.unit_source == GIVEN
            or (column.unit.quantity != axis and column.unit_source != ASSUMED)
        ),
        machine_travel=axes["strain"].is_of_the_machine
        or (follows is not None and follows[1] == 0 and _is_of_the_crosshead(follows[0])),
        travel_in_doubt=_is_any_travel(table, axes["strain"]),
        follows=follows,
        in_doubt={kind: text for kind, text in in_doubt.items() if text},
    )


def _whose_travel(column: Column, follows: tuple[str, int] | None) -> list[str]:
    """A travel that may be the specimen's or the machine's, and was taken for the specimen's."""
    is_made = follows is not None and follows[1] == 0
    name = follows[0] if follows is not None and is_made else column.name
    if _is_of_the_crosshead(name) or _is_of_an_extensometer(name) or column.is_of_the_machine:
        return []
    if not is_made and column.unit.quantity != "displacement":
        return []
    made = f", over a length the strain in column '{column.name}'," if is_made else ""
    said = f"took column '{name}'{made} as measured at the specimen"
    return [f"{said}; where it is the crosshead's, the modulus is the machine's"]


def _is_any_travel(table: Table, column: Column) -> bool:
    """Whether a travel is called neither an extensometer's nor the machine's, and the file speaks of neither."""
    is_squeezed = column.is_compression and column.unit.quantity == "displacement"
    is_plain = _is_named(column.name, "displacement") or is_squeezed
    is_plain &= not _is_named(column.name, "strain")
    may_be_either = _any_of(_words(column.name), _CHANGE_OF_LENGTH)
    is_sure = column.is_of_an_extensometer and not may_be_either
    if not is_plain or is_sure or column.is_of_the_machine:
        return False
    if _noted(table, _EXTENSOMETER_NOTE, DISPLACEMENT_UNITS):
        return False
    beside = [name for i, name in enumerate(table.header) if i != column.index]
    return not any(_speaks_of(_words(name), _CROSSHEAD | _TRAVEL) for name in beside)


# _SAME_TRAVEL: share of the range of strain, besides the rounding of both; machine and grips give way by more.
_SAME_TRAVEL = 2e-5
# _TAIL: share of the rows, at the end, and _FAR_ALONG of the strain's range, that follow a travel at least.
_TAIL, _FAR_ALONG = 0.3, 0.2
# _FEWEST_FOLLOWING: rows; fewer may lie on a line by chance.
_FEWEST_FOLLOWING = 20
# _FROM_THE_START: share of the rows, at the start, in which a preload or a zero may be different.
_FROM_THE_START = 0.02


@dataclasses.dataclass(frozen=True)
class _Travel:
    """A travel over a length that a strain is, from a row on to the end.

    Attributes:
      name: of its column; row: the first one.
      measure: of the strain, by what is in proportion to the travel.
      length: in mm; None where the travel has no unit.
    """

    name: str
    row: int
    measure: Measure
    length: float | None


def _followed_travel(
    table: Table, column: Column, strain: Array, mark: DecimalMark
) -> _Travel | None:
    """The travel over a length that a strain [rows] is; None without one."""
    if column.unit.quantity != "strain" or column.is_of_the_machine:
        return None
    for i, header in enumerate(table.header):
        words = _words(header)
        is_travel = _any_of(words, _WORDS["displacement"] | _ENDINGS["displacement"] | _TRAVEL)
        if i == column.index or not is_travel or words & _OTHER_WORDS:
            continue
        cells = [row[i] if i < len(row) else "" for _, row in table.rows]
        values = [number(cell, mark) for cell in cells]
        travel = np.array([np.nan if value is None else value for value in values])
        own = [row[column.index] for _, row in table.rows if column.index < len(row)]
        rounding = column.unit.factor * _last_digit(own, mark), _last_digit(cells, mark)
        name, text = split_header(header)
        unit = find_unit(text or table.units[i] or "?")
        measures: tuple[Measure, Measure] = ("engineering", "true")
        for measure, plain_strain in zip(
            measures, (strain, np.expm1(np.minimum(strain, 1.0))), strict=True
        ):
            row = _follows_from(plain_strain, travel, rounding)
            if row is not None:
                rows = np.flatnonzero(np.isfinite(travel + strain))
                rows = rows[rows >= row]
                slope = float(np.polyfit(travel[rows], plain_strain[rows], 1)[0])
                known = unit is not None and unit.quantity == "displacement"
                length = abs(unit.factor / slope) if unit is not None and known else None
                return _Travel(name, row, measure, length)
    return None


# _GROWN: least logarithm of the stretch from which loads tell a measure; _TELLS: share of it by which two may differ.
_GROWN, _TELLS = 0.01, 0.2


def _told_measures(
    table: Table,
    axes: Mapping[Axis, Column],
    strain: Array,
    stress: Array,
    travel: _Travel | None,
    mark: DecimalMark,
    options: ReadingOptions,
) -> tuple[dict[Axis, Measure], list[str], str]:
    """The measures of columns [rows] that a load or a travel beside them tells.

    A true stress grows over the load as the specimen's length does. Returns the measures, the steps to tell, and what
    contradicts a name.
    """
    told: dict[Axis, Measure] = {}
    because: dict[Axis, str] = {}
    if travel is not None and travel.row == 0:
        told["strain"] = travel.measure
        form = "ln(1 + e)" if travel.measure == "true" else "in proportion"
        because["strain"] = f"it is {form} to column '{travel.name}'".replace(") to", ") of")
    found = _grows_over_the_load(table, axes["stress"], strain, stress, mark)
    if found is not None:
        told["stress"] = found[1]
        form = "grows over" if found[1] == "true" else "is in proportion to"
        because["stress"] = f"it {form} column '{found[0]}'"
        if found[2] is not None and "strain" not in told:
            told["strain"] = found[2]
            because["strain"] = "the stress grows over the load so"
    said = {axis: column.own_measure for axis, column in axes.items()}
    given = {"strain": options.strain_measure, "stress": options.stress_measure}
    wrong = {axis for axis in told if said[axis] not in (None, told[axis]) and not given[axis]}
    contradicted = "; ".join(
        f"column '{axes[axis].name}' was taken as {said[axis]}, and by its numbers it is {told[axis]}: {because[axis]}"
        for axis in told
        if axis in wrong
    )
    steps = [
        f"took the {axis} as {told[axis]}: {because[axis]}" for axis in told if said[axis] is None
    ]
    return told, steps, contradicted


# _LETTERS: letters behind a strain and a stress that may stand for their measure, as `w` for wahr in German does.
_LETTERS = {"t": "true, technical or total", "w": "true (wahr)"}


def _letter_of_a_measure(axes: Mapping[Axis, Column], options: ReadingOptions) -> str:
    """A line about `ε_t` and `σ_t`, whose measure nothing else tells; else empty."""
    shared = _words(axes["strain"].name) & _words(axes["stress"].name) & _LETTERS.keys()
    known = [
        options.strain_measure,
        options.stress_measure,
        *(c.own_measure for c in axes.values()),
    ]
    if len(shared) != 1 or any(known):
        return ""
    (letter,) = shared
    names = " and ".join(f"'{axes[axis].name}'" for axis in axes)
    return f"'{letter}' in {names} may mean {_LETTERS[letter]}, and they were taken as engineering values"


def _grows_over_the_load(
    table: Table, column: Column, strain: Array, stress: Array, mark: DecimalMark
) -> tuple[str, Measure, Measure | None] | None:
    """The only load beside a stress [rows], and the measures of stress and strain by it; None where it tells none."""
    loads = columns_named(table, "load") or [
        i for i in range(len(table.header)) if _quantity_of(table, i) == "load"
    ]
    if len(loads) != 1 or column.unit.quantity != "stress":
        return None
    cells = [row[loads[0]] if loads[0] < len(row) else "" for _, row in table.rows]
    load = np.array([np.nan if (v := number(cell, mark)) is None else v for cell in cells])
    usable = (
        (np.abs(stress) > _LOADED * np.nanmax(np.abs(stress)))
        & (load * stress > 0.0)
        & (strain > -0.5)
    )
    if np.count_nonzero(usable) < MINIMUM_POINTS:
        return None
    grown, over = np.log1p(strain[usable]), np.log(stress[usable] / load[usable])

    def spread(values: Array) -> float:
        low, high = np.nanquantile(values, [0.05, 0.95])
        return float(high - low)

    # The spread under each pair of measures of stress and strain.
    off: dict[tuple[Measure, Measure | None], float] = {
        ("engineering", None): spread(over),
        ("true", "engineering"): spread(over - grown),
        ("true", "true"): spread(over - strain[usable]),
    }
    (stress_measure, strain_measure), least = min(off.items(), key=lambda item: item[1])
    if spread(grown) < _GROWN or least > _TELLS * spread(grown):
        return None
    is_clear = 2.0 * least < max(off["true", "engineering"], off["true", "true"])
    name = split_header(table.header[loads[0]])[0]
    return name, stress_measure, strain_measure if is_clear else None


def _length_in_doubt(table: Table, column: Column, travel: _Travel | None) -> str:
    """The length that a travel over the strain gives, and the lengths of the head, in words, where they differ."""
    said = _noted(table, _LENGTH_NOTE, DISPLACEMENT_UNITS)
    said |= _noted(table, _EXTENSOMETER_NOTE, DISPLACEMENT_UNITS)
    if travel is None or travel.row or travel.length is None or not said:
        return ""
    if any(_agree([travel.length, length]) for length in said.values()):
        return ""
    return (
        f"the strain of column '{column.name}' was taken; column '{travel.name}' over it gives a gauge length of "
        f"{travel.length:.4g} mm, and the head tells {' and '.join(said)}: --strain_column takes the travel"
    )


def _clamps_in_doubt(table: Table, column: Column, options: ReadingOptions) -> str:
    """Which length a machine's travel was taken over, in words, where the head tells one between the clamps too."""
    clamps = _noted(table, _CLAMPS_NOTE, DISPLACEMENT_UNITS)
    is_travel = column.is_of_the_machine and column.unit.quantity == "displacement"
    if not clamps or not is_travel or options.gauge_length is not None:
        return ""
    length, _ = _size(table, column, options)
    if _agree([length, *clamps.values()]):
        return ""
    return (
        f"the travel of column '{column.name}' was taken over the gauge length of {length:g} mm, and the head also "
        f"tells {' and '.join(clamps)}: the machine moves its clamps"
    )


def _follows_from(strain: Array, travel: Array, rounding: tuple[float, float]) -> int | None:
    """The row from which a strain is a line over a travel, both [rows], but for their last digits; None without one."""
    known = np.flatnonzero(np.isfinite(strain) & np.isfinite(travel))
    if len(known) < _FEWEST_FOLLOWING:
        return None
    e, x = strain[known], travel[known]
    start = int((1.0 - _TAIL) * len(e))
    for _ in range(4):
        moved = x[start:] - x[start]
        if len(moved) < _FEWEST_FOLLOWING or not np.ptp(moved) > 0.0:
            return None
        slope, level = np.polyfit(moved, e[start:], 1)
        off = np.abs(e - level - slope * (x - x[start]))
        least = _SAME_TRAVEL * float(np.ptp(e)) + 0.6 * (rounding[0] + abs(slope) * rounding[1])
        if off[start:].max() > least or abs(e[-1] - e[start]) < _FAR_ALONG * np.ptp(e):
            return None
        outside = np.flatnonzero(off > 2.0 * least)
        start = int(outside[-1]) + 1 if len(outside) else 0
    return 0 if start <= _FROM_THE_START * len(e) else int(known[start])


def _last_digit(cells: Sequence[Cell], mark: DecimalMark) -> float:
    """The step of the last digit behind the decimal mark of a column's cells."""
    tails = (
        str(cell).strip().rpartition("." if isinstance(cell, float) else mark) for cell in cells
    )
    return 10.0 ** -max(
        (len(tail) for _, found, tail in tails if found and tail.isdigit()), default=0
    )


def _compression_negative(
    strain: Array, stress: Array, axes: dict[Axis, Column]
) -> tuple[Array, Array, list[str]]:
    """Strain and stress [rows] with compression negative, where a column's name says that it is compression."""
    name = next((column.name for column in axes.values() if column.is_compression), None)
    if name is None:
        return strain, stress, []
    strain, stress = (
        -values if np.nanmax(values) > abs(min(float(np.nanmin(values)), 0.0)) else values
        for values in (strain, stress)
    )
    return strain, stress, [f"took it as compression, as column '{name}' says"]


def _time(
    table: Table, index: int, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    """The time of every row, [rows], s, and where it is from, in words."""
    name, in_header = split_time_header(table.header[index] if table.header else str(index + 1))
    clocks = seconds_of_clocks(
        _with_dates(table, index), table.header[index] if table.header else name
    )
    if clocks is not None:
        return clocks, f"time from column '{name}', the time of a clock"
    said = next(filter(None, (options.time_unit, in_header, table.units[index])), None)
    header = table.header[index] if table.header else name
    bases = [_LOGARITHMS[w] for w in re.split(r"[\W_]+", plain(header)) if w in _LOGARITHMS]
    if bases and np.isnan(bases[0]):
        raise InputError(
            f"column '{header}' is a logarithm of the time, to base 10 or e; call it log10 or ln"
        )
    if bases and said is not None:
        # `log10(t/s)`, `ln(time)`
        said = said.rpartition("/")[2] if "/" in said or said.lower() not in _TIMES else None
    times = None if bases or options.time_unit else _FACTOR.search(name)
    if times:
        raise InputError(
            f"column '{header}': '{times[0].strip()}' may be a factor of its numbers; say their unit with --time_unit"
        )
    unit, factor = find_time_unit(said or "s")
    column = Column(index, name, axis_unit("-", "strain"), "")
    source = "" if said else " (assumed)"
    values = column_numbers(table, column, mark)
    values = bases[0] ** values if bases else values
    return values * factor, f"time from column '{name}' in {unit}{source}"


def _with_dates(table: Table, index: int) -> list[Cell]:
    """The cells of a column of the time, each behind its date where another column tells that."""
    dates = [i for i in _called(table, _DATES) if i != index]
    cells: list[Cell] = []
    for _, row in table.rows:
        cell = row[index] if index < len(row) else ""
        if len(dates) == 1 and isinstance(cell, str) and re.match(r"\d+:\d", cell.strip()):
            date = str(row[dates[0]]).strip().removesuffix(" 00:00:00")
            cell = f"{date} {cell.strip()}" if re.fullmatch(r"[\d./-]+", date) else cell
        cells.append(cell)
    return cells


def _shear_strain(
    name: str, given: str | None
) -> tuple[Literal["engineering", "tensor", "epsilon"] | None, list[str]]:
    """The kind of shear strain by a column's name, and the step to tell."""
    if given is not None:
        return given, []  # type: ignore[return-value]
    text = name.casefold()
    if re.search(r"(eps|epsilon|ε|\be)[ _]?(12|xy)|tensor|(γ|gamma|shear strain)\S*\s?/\s?2", text):
        return "tensor", []
    if "γ" in text or "gamma" in text:
        return "engineering", []
    return ("epsilon" if re.search(r"\b(eps|epsilon)|ε", text) else None), []


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
        elif re.search(r"temp", header, re.IGNORECASE) and (
            degrees := re.search(r"(?<!\w)°?[FR]\b", unit or header)
        ):
            hints.append(f"column '{header}' is in degrees {degrees[0]}")
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
    largest = float(np.nanmax(strain, initial=0.0))
    large = strain > 0.5 * largest
    if largest < 1e-3 or not np.isfinite(displacement[large]).all():
        return None
    return float(np.median(displacement[large] / strain[large]))


# _ROOM: temperature of a laboratory, °C.
_ROOM = 20.0
_TO_CELSIUS = {
    "°C": lambda value: value,
    "K": lambda value: value - 273.15,
    "°F": lambda value: (value - 32.0) / 1.8,
    "°R": lambda value: (value - 491.67) / 1.8,
}


def rate_of(raw: RawCurve, said: str | None) -> tuple[float, str, str]:
    """The strain rate in 1/s, where it is known from, and what was assumed of it; from the file or from its time.

    Raises:
      InputError: nothing tells it.
    """
    if said is not None and (match := re.fullmatch(r"([-+.\deE]+)( 1/s)?", said)):
        assumed = "" if match[2] else "rate in 1/s"
        return float(match[1]), "from the file's head or name", assumed
    if raw.time is not None and len(raw.time) > 1 and raw.time[-1] > raw.time[0]:
        top = int(np.abs(raw.strain).argmax())
        seconds = float(raw.time[top] - raw.time[0])
        if seconds > 0:
            rate = abs(float(raw.strain[top] - raw.strain[0])) / seconds
            return rate, "strain over time", raw.time_assumed
    why = "nothing says its strain rate" if said is None else f"its rate '{said}' is not understood"
    raise InputError(
        f"{why}; give it in a table of tests (columns file, rate in 1/s, temperature in °C), in the file's head or "
        "name (0.01 1/s), or by a column of the time"
    )


def temperature_of(said: str | None) -> tuple[float, str, str]:
    """The temperature in °C, where it is known from, and what was assumed of it; room temperature where none is said.

    Raises:
      InputError: it is said without a unit.
    """
    if said is None:
        return _ROOM, "nothing says another", f"temperature of {_ROOM:g} °C"
    number, _, unit = said.partition(" ")
    try:
        return float(_TO_CELSIUS[unit](float(number))), "from the file's head or name", ""
    except (KeyError, ValueError):
        raise InputError(
            f"its temperature is '{said}', without a unit that is known; give it in °C in a table of tests (columns "
            "file, temperature)"
        ) from None
