"""The columns of strain and stress, and their units, from the user's options or the header.

Nothing is guessed that could be guessed in two ways: then the error says which flag decides.
"""

import dataclasses
import itertools
import re
import unicodedata
from typing import Literal

from tfmat.curves.tables import Table, shorten
from tfmat.curves.units import (
    NAMES_IN_BRACKETS,
    Unit,
    axis_unit,
    find_unit,
    plain,
    split_header,
    word_set,
)
from tfmat.errors import InputError, nearest

Measure = Literal["engineering", "true"]
Axis = Literal["strain", "stress"]
ASSUMED, GIVEN = "assumed", "as given"
# The columns of an axis that has none: a displacement (load), which a size makes a strain (stress).
BEFORE_SIZE = {"strain": "displacement", "stress": "load"}

# English, German, French, Spanish, Italian, Portuguese, Dutch, Turkish, Japanese and Chinese.
_WORDS: dict[str, set[str]] = {
    "strain": word_set(
        """
        strain microstrain gamma gamma12 γ γ12 epsilon eps ε epsilon12 eps12 ε12 eps_12 déformation
        deformación deformazione deformação stretch λ lambda verzerrung rek gerinim
        """
    ),
    "stress": word_set(
        """
        stress tau tau12 τ τ12 sigma σ contrainte esfuerzo tensione sforzo tensão gerilme
        """
    ),
    "displacement": word_set(
        """
        displacement extension elongation stroke crosshead position travel weg deformation verformung
        traverse déplacement allongement desplazamiento alargamiento elongación extensión
        spostamento allungamento estensione deslocamento alongamento extensão extensometer
        extensomètre extensómetro estensimetro extensômetro extenso course corsa curso carrera
        traversa uzama écrasement
        """
    ),
    "load": word_set(
        """
        load force charge effort fuerza carga forza carico força kracht kuvvet kraft 力
        """
    ),
}
# A word also counts at the end of a longer one: Zugspannung, Standardkraft, 公称応力.
_ENDINGS = {
    "strain": word_set("dehnung gleitung stauchung ひずみ 歪 歪み 应变"),
    "stress": word_set("spannung 応力 应力"),
    "displacement": word_set(
        """
        weg verlängerung verlaengerung verschiebung längenänderung laengenaenderung 変位
        ストローク 伸び 位移 变形 行程
        """
    ),
    "load": word_set("kraft 荷重 試験力 载荷 负荷"),
}
# _EXTENSOMETER: words of a travel or strain that is measured at the specimen.
_EXTENSOMETER = word_set(
    """
    extensometer extensomètre extensómetro estensimetro extensômetro extenso längenänderung
    laengenaenderung verformung dic video videoextensometer clip feinweg feindehnung 伸び計 引伸计
    """
)
# _CROSSHEAD: words of a travel that machine and grips have a share in.
_CROSSHEAD = word_set(
    """
    crosshead stroke position actuator machine traverse traversenweg kolbenweg maschinenweg course
    corsa curso carrera traversa ストローク 行程 grip grips
    """
)
# _TRAVEL: words of a travel that may be either, and mostly is the crosshead's.
_TRAVEL = word_set(
    """
    displacement travel weg standardweg verschiebung déplacement desplazamiento spostamento deslocamento
    変位 位移
    """
)
# Columns that name a strain or a stress and are not the curve's own.
_OTHER_WORDS = word_set(
    """
    rate speed velocity vitesse velocidad velocità plastic elastic std error deviation transverse
    transversal transversale trasversale lateral radial hoop circumferential volumetric hydrostatic
    thermal residual relative normalized normalised comp width thickness gauge time modulus proof
    yield querdehnung querverformung plastisch command setpoint demand count peak valley maximum
    minimum max min energy work power temperature density
    """
)
_SPECIMEN_WORDS = word_set(
    """
    specimen specimenid specimenname sample sampleid samplename coupon probe probennummer probenname
    probenbezeichnung proben-nr éprouvette probeta muestra provino campione amostra replicate test
    run versuch essai ensayo prova 試験片 試料 试样
    """
)
# Words beside these that only say that it is the name or number of one.
_NAME_WORDS = word_set("id name no nr num number nummer label bezeichnung nom numero n corpo de")
_COMPRESSION = word_set("compress compres druck stauch 圧縮 压缩 ecras raccourciss acortam schiacc")
_TENSION = word_set("tensil tract trac traz zug")
_MEASURE_WORDS: dict[str, Measure] = {
    **dict.fromkeys(
        word_set(
            """
            engineering eng nominal technical tech technische technisch conventionnelle conventionnel nominale
            ingeniería ingegneristica ingegneristico ingénieur 公称 工程
            """
        ),
        "engineering",
    ),
    **dict.fromkeys(
        word_set(
            """
            true cauchy log logarithmic hencky wahre wahr vraie vrai real reale verdadera verdadero vera vero
            verdadeira verdadeiro
            logarithmische logarithmique 真 真实
            """
        ),
        "true",
    ),
}
# _PART: beginnings of words for one part of the strain; a law is identified from the total.
_PART = word_set("plasti plásti elasti élasti elásti 塑性 弾性 弹性")
# _PLASTIC: short names of the plastic strain, without the `_` in them.
_PLASTIC = re.compile(
    r"(?<![^\W\d_])(?:peeq|(?:eps(?:ilon)?|ε|strain|dehnung|e)[ _,.]?(?:pl(?:ast)?|p))(?![^\W_])",
    re.IGNORECASE,
)
# Words beside a name that change neither its unit nor its meaning.
_QUALIFIERS = word_set(
    """
    technical axial longitudinal average averaged avg mean corrected compensated ext gauge gage
    machine video filtered smoothed smooth raw calculated measured shear tensile tension compressive
    compression uniaxial biaxial planar total ratio piola kirchhoff pk1 first second local global
    virtual channel ch kanal canal voie sensor cell signal value values wert data daten curve test
    specimen sample experiment experimental exp simulated simulation sim fem fea model fitted fit
    standard abs absolut absolute optical laser lvdt primary front back left right top bottom at of
    the from by in on over with and de del della du des la le der die das den von per por a à di
    corr necking necked bridgman noisy noise steel aluminium aluminum alloy copper rubber ply
    laminate polymer material batch lab weld base metal plate sheet bar
    en em el lo il al im zu bei durch mit to as gemessen mesuré medido misurato
    zug traction tracción trazione tração unitaire unitaria unitario material direction quasi static
    cyclic monotonic interpolated resampled no nr x y z xx yy zz xy 11 22 33 12 rd td nd
    """
)
_UNDERSTOOD = (
    set().union(*_WORDS.values(), *_ENDINGS.values(), _EXTENSOMETER, _CROSSHEAD, _TRAVEL)
    | _QUALIFIERS
    | _SPECIMEN_WORDS
    | set(_MEASURE_WORDS)
    | {"e", "s", "p"}
)
# A specimen's or channel's own letter and number.
_LABEL = re.compile(r"[a-z]|[a-z]{0,3}\d{1,4}[a-z]{0,2}")
# _FACTOR: words beside a name that multiply its numbers, or divide them: `x1000`, `*10`, `10³`, `thousand`.
_FACTOR = re.compile(
    r"(?:(?<![^\W\d_])[x×]|[*·])\s*\d+|/\s*10+\b|\b1e[+-]?\d+\b|10(?:\^|\*\*|[⁰¹²³⁴-⁹⁻])\S*"
    r"|\b10{3,}\b|\b(?:hundred|thousand|million|tausend|mille|kilo|mega|milli|micro)\b",
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
    """

    index: int
    name: str
    unit: Unit
    unit_source: str

    @property
    def measure(self) -> Measure | None:
        """Engineering or true, where its name says so; a stretch is the engineering strain and 1."""
        if self.unit.name == "stretch":
            return "engineering"
        words = _words(self.name)
        found = {measure for word, measure in _MEASURE_WORDS.items() if _holds(words, word)}
        return found.pop() if len(found) == 1 else None

    @property
    def own_measure(self) -> Measure | None:
        """The measure of the numbers: a load over an area and a travel over a length are engineering by themselves."""
        return "engineering" if self.unit.quantity in ("load", "displacement") else self.measure

    @property
    def is_compression(self) -> bool:
        """Whether its name says that positive numbers are compression."""
        return says_compression(self.name)

    @property
    def is_of_the_machine(self) -> bool:
        """Whether it is a travel, or a strain made of one, that machine and grips have a share in."""
        words = _words(self.name)
        return not words & _EXTENSOMETER and _any_of(words, _CROSSHEAD | _TRAVEL)

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
            index = _wanted_column(table, axis, wanted)
        else:
            index = _named_column(table, axis, measure)
        return _with_unit(table, axis, index, unit, problems)
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
    if axis == "strain" and _is_part(header):
        raise InputError(
            f"column '{shorten(header)}' is a part of the strain; the total strain is needed (plastic strain and "
            "stress over modulus): add that column, or call it total strain where it is"
        )
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
                if known.factor != 1.0:
                    raise InputError(
                        f"column '{name}' is a stretch in '{text}': 150 % may be a strain of 0.5 or 1.5; say "
                        "--strain_unit=stretch or --strain_unit=%"
                    )
                known = axis_unit("stretch", axis)
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
    is_open = axis == "strain" and bool(re.search(r"deformation|verformung", _accented(name)))
    if is_open or (_is_named(name, BEFORE_SIZE[axis]) and not _is_named(name, axis)):
        example = "mm or in" if axis == "strain" else "N, kN or lbf"
        also = ", or - or % for a strain" if is_open else ""
        problems.append(f"column '{name}' has no unit; set --{axis}_unit, {example}{also}")
        return Column(index, name, axis_unit(example.split()[0].strip(","), axis), ASSUMED)
    return Column(index, name, axis_unit("-" if axis == "strain" else "MPa", axis), ASSUMED)


def _check_one_unit(name: str, in_header: str | None, in_row: str | None, axis: Axis) -> None:
    """Raises InputError where a header, what is left of its name, and the row of units say different units."""
    left = split_header(name)[1] if in_header not in (None, name) else None
    said = [
        text
        for text in (in_header, left, in_row)
        if (text is not None and len(text) > 1) or text == "%"
    ]
    known = {text: unit for text in said if (unit := find_unit(text)) is not None}
    if len({(unit.quantity, unit.factor) for unit in known.values()}) > 1:
        raise InputError(
            f"column '{shorten(name)}' says {' and '.join(known)}; say which holds with --{axis}_unit"
        )


def _is_stretch(name: str) -> bool:
    return bool(_words(name) & {"stretch", "λ", "lambda"})


def _not_understood(header: str) -> str:
    """The first word of a header that is no name, no remark and no specimen's number; it may be a unit."""
    for word in re.split(r"[\s_,;:()\[\]{}<>（）［］]+", header):
        parts = [part for part in re.split(r"[\W_]+", plain(word)) if part]
        strange = word.strip("-.#/|@&+'") if not parts else set("^*%×=+<>") & set(word)
        if strange or not all(map(_is_understood, parts)):
            return word
    return ""


def _is_understood(word: str) -> bool:
    known = word in _UNDERSTOOD or (word[:-1] in _UNDERSTOOD and word[-1].isdecimal())
    return known or bool(
        _LABEL.fullmatch(word)
        or word.endswith(tuple(set().union(*_ENDINGS.values())))
        or _begins({word}, _COMPRESSION)
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
        if not words & _SPECIMEN_WORDS or words - _SPECIMEN_WORDS - _NAME_WORDS:
            continue
        order: dict[object, int] = {}
        cells = [cells[i] if i < len(cells) else "" for _, cells in table.rows]
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
    first = next((i for i, quantities in enumerate(named) if quantities), width)
    last = max((i + 1 for i, quantities in enumerate(named) if quantities), default=0)
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
                _part(table, [*shared, *block], label)
                for block, label in zip(blocks, _named(labels, table, blocks), strict=True)
            ]
    return [table]


def _named(labels: list[str], table: Table, blocks: list[range]) -> list[str]:
    """The specimens' names: as the row above the header has them, or the header, or their numbers."""
    above = [
        " ".join(dict.fromkeys(filter(None, table.above[block.start : block.stop])))
        for block in blocks
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


def _part(table: Table, columns: list[int], label: str) -> Table:
    """The table of one specimen, of these columns."""
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
    return [first, *labels]


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


def _wanted_column(table: Table, axis: str, wanted: str) -> int:
    for form in (lambda name: name, plain, lambda name: plain(split_header(name)[0])):
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


def _named_column(table: Table, axis: Axis, measure: str | None) -> int:
    """The only column whose name says that it is a strain (stress), or else a displacement (load).

    An extensometer's column counts before others, and others before a crosshead's.
    """
    if not table.header:
        raise InputError(
            f"it has no header (its first line is '{shorten(' '.join(map(str, table.rows[0][1])))}'); add a line that "
            "names the columns, e.g. strain,stress, or say --strain_column=1 --stress_column=2"
        )
    for quantity in (axis, BEFORE_SIZE[axis]):
        found = columns_named(table, quantity)
        if len(found) > 1 and measure is not None:
            of_measure = [i for i in found if _says(table.header[i], measure)]
            found = of_measure or found
        if len(found) > 1 and axis == "strain":
            nearness = [_nearness(table, i) for i in found]
            found = [i for i, near in zip(found, nearness, strict=True) if near == max(nearness)]
        if len(found) == 1:
            return found[0]
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
    parts = [i for i, name in enumerate(table.header) if _is_part(name)]
    if axis == "strain" and parts:
        return parts[0]  # and is refused
    names = ", ".join(name for name in table.header if name)
    raise InputError(
        f"no column is named as a {axis} (columns: {shorten(names)}); set --{axis}_column"
    )


def _nearness(table: Table, index: int) -> int:
    """How near to the specimen a column is measured: 2 by an extensometer, 0 by the crosshead, 1 for others.

    A change of length, by its unit, counts less than any strain.
    """
    header = table.header[index]
    words, unit = _words(header), find_unit(split_header(header)[1] or table.units[index] or "?")
    is_strain = _is_named(header, "strain")
    less = 3 if is_strain and unit is not None and unit.quantity == "displacement" else 0
    numbered = re.search(r"\((strain|deforma\w*|dehnung) *\d+\)", plain(header))
    if _any_of(words, _EXTENSOMETER) or numbered:
        return 2 - less
    made_of_travel = is_strain and bool(
        words & (_WORDS["displacement"] - _WORDS["strain"] | _TRAVEL)
    )
    return (0 if made_of_travel or _any_of(words, _CROSSHEAD) else 1) - less


def _is_named(header: str, quantity: str) -> bool:
    words = _words(header)
    if {"e", "s"} & words and words & set(_MEASURE_WORDS):
        # The bare letters of the formulas count beside their measure only: `e_true`, `s_eng`.
        words |= {"strain"} if "e" in words else {"stress"}
    if words & _OTHER_WORDS or any(word.endswith("geschwindigkeit") for word in words):
        return False
    if quantity == "strain" and _is_part(header):
        return False
    return _any_of(words, _WORDS[quantity] | _ENDINGS[quantity])


def _is_part(header: str) -> bool:
    """Whether a column's name says that it is the plastic or the elastic strain, and not the total."""
    words = _words(header)
    if "total" in words:
        return False
    names = _WORDS["strain"] | _ENDINGS["strain"] | {"peeq", "e"}
    is_part = any(_begins({word}, _PART) or "塑性" in word or "弾性" in word for word in words)
    return (is_part and _any_of(words, names)) or bool(_PLASTIC.search(_accented(header)))


def _any_of(words: set[str], names: set[str]) -> bool:
    """Whether one of the words is a name, or ends in one that is made for the end of a longer word."""
    endings = tuple(names & set().union(*_ENDINGS.values()))
    return bool(words & names) or any(word.endswith(endings) for word in words if endings)


def _begins(words: set[str], beginnings: set[str]) -> bool:
    return any(word.startswith(tuple(beginnings)) for word in words)


def _holds(words: set[str], name: str) -> bool:
    """Whether a name is one of the words; one of Chinese letters also at the beginning of a word."""
    return name in words or (not name.isascii() and any(word.startswith(name) for word in words))


def _says(header: str, measure: str) -> bool:
    words = _words(header)
    return any(_holds(words, word) for word, of in _MEASURE_WORDS.items() if of == measure)


def _accented(header: str) -> str:
    return unicodedata.normalize("NFC", header).casefold()


def _words(header: str) -> set[str]:
    """The words of a header, plain, with its remarks and without its unit; `strain1` is also `strain`."""
    name = re.sub(r"[\[({<（［][^\])}>）］]*[\])}>）］]", " ", split_header(header)[0]) or header
    words = set(re.split(r"[\W_]+", plain(f"{name} {_remarks(header)}"))) - {""}
    if re.search(r"(?<!\w)tensión(?!\w)", _accented(header)):
        words.add("esfuerzo")
    return words | {word[:-1] for word in words if re.fullmatch(r"[^\W\d_]{3,}\d", word)}


def _remarks(header: str) -> str:
    """The words in brackets that are no unit: `Strain (true)`."""
    found = re.findall(r"[\[({<（［]([^\[\](){}<>（）［］]*)[\])}>）］]", header)
    return " ".join(
        text for text in found if text.lower() in NAMES_IN_BRACKETS or not find_unit(text)
    )
