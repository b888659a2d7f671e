"""`tfmat app`: a page for files of tests, in the browser and on this machine alone: read, fit, compare, download.

The server's part serves the page of a search, too (`tfmat tune --status --serve`).
`Work` holds files and answers, without a browser; the rest draws them with NiceGUI. NiceGUI is small, starts in two
seconds and brings its figures with it, so that nothing is asked of the internet.
"""

import asyncio
import contextlib
import copy
import dataclasses
import functools
import http.server
import pathlib
import re
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import traceback
import webbrowser
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl.flags import FlagValues

from tfmat.cli.flags import PAGE_FLAGS, command, known_parameters
from tfmat.errors import InputError, Interrupted, TfmatError
from tfmat.files import json_text
from tfmat.identification.answer import Effort, Identification, Value, identify, pool
from tfmat.identification.api import KINDS, Kind, kind_of_plain, options_by_kind, rank, read_as
from tfmat.identification.least_squares import EVIDENCE
from tfmat.identification.networks import law_alone
from tfmat.identification.results import Ranked
from tfmat.materials.cards import SOLVERS
from tfmat.materials.registry import LAWS
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import TestFile, load_test
from tfmat.records.programmes import PROGRAMMES
from tfmat.records.reading import TIME_UNITS, RawCurve, ReadingOptions, read_curves
from tfmat.records.record import MeasuredRecord, MeasuredTest
from tfmat.records.tables import UNITS, read_tables
from tfmat.report.answers import csv_text, picture, workbook
from tfmat.report.tables import (
    format_unit,
    format_value,
    quality_of,
    tensile_texts,
    verdict_of,
    with_unit,
)

# --------------------------------------------------------------------------------------------------
# The work of a page: files in, answers and files out.

# MOST_BYTES: of one file; machines' exports have less, and a page is no place for more.
MOST_BYTES = 50_000_000
# MOST_FILES: of one page.
MOST_FILES = 200
# MOST_POINTS: of a line in a figure; a browser draws more slowly than anybody looks.
MOST_POINTS = 600
# ALL_FILES: what is told of all files that are tests of one material.
ALL_FILES = "all files"


@dataclasses.dataclass
class File:
    """A file that was dropped on the page.

    Attributes:
      path: in the page's own folder.
      sheets: name of a workbook's sheet, or nothing -> its columns; the sheet with the most rows comes first.
      error: why it cannot be read, or nothing.
      read: columns and units as they were read, in words.
      options: how it is read where the user says so, name -> value of `tfmat.identify`.
      test, rate, temperature: of a file that is one of several tests; no test where the user has to say it.
      tests: by what laws and menus ask of a reader -> its tests, or why there are none; for the menus as they are.
      is_open: whether its menus are shown.
    """

    path: pathlib.Path
    sheets: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    error: str = ""
    read: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    test: str = ""
    rate: float | None = None
    temperature: float | None = None
    tests: dict[tuple[Hashable, Hashable], list[MeasuredTest] | InputError] = dataclasses.field(
        default_factory=dict
    )
    is_open: bool = False

    @property
    def columns(self) -> list[str]:
        """Names of the columns of the sheet that is chosen, or of the first."""
        first = next(iter(self.sheets.values()), [])
        return self.sheets.get(self.options.get("sheet", ""), first)


class Work:
    """The files of a page, in a folder of its own below `folder`, and what was found of them.

    Attributes:
      files: name -> file.
      kind: what was tested; laws: names of those that are fitted.
      question: why the files do not say what was tested; nothing is fitted until the user says it.
      known: parameters that are known, name -> value in its unit.
      answers: name of a curve or of a material -> law -> answer.
      errors: (file, law) -> why there is no answer, in one line.
    """

    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.files: dict[str, File] = {}
        self.kind, self.laws = KINDS[0], list(KINDS[0].laws)
        self.question = ""
        self.known: dict[str, float] = {}
        self.answers: dict[str, dict[str, Identification]] = {}
        self.errors: dict[tuple[str, str], str] = {}
        # The points of the last file that was read, for a law that cleans them in its own way.
        self._points: tuple[Hashable, list[RawCurve]] = (None, [])

    def close(self) -> None:
        """Deletes the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def place(self, name: str) -> pathlib.Path:
        """Where a file of this name is kept; InputError where there are too many.

        A name from a browser may be a path; its last part alone counts. The same name again is the file's new version.
        """
        last = pathlib.PurePosixPath(name.replace("\\", "/")).name.replace("\0", "") or "file"
        if len(self.files) >= MOST_FILES and last not in self.files:
            raise InputError(f"there are {MOST_FILES} files already; take some away first")
        return self.folder / last

    def add(self, path: pathlib.Path) -> File:
        """Takes a file that lies at its `place`, and reads its columns."""
        file = self.files[path.name] = File(path)
        self._points = None, []
        if path.stat().st_size > MOST_BYTES:
            path.unlink()
            file.error = f"it has more than {MOST_BYTES // 1_000_000} MB; give fewer points, or use the command"
            return file
        try:
            # Sheets of settings and results stand beside the sheets of curves, and are shorter.
            for table in sorted(read_tables(path), key=lambda table: -len(table.rows)):
                width = max((len(cells) for _, cells in table.rows[:50]), default=0)
                names = table.header or [""] * width
                columns = [name or f"column {i}" for i, name in enumerate(names, start=1)]
                file.sheets.setdefault(table.sheet or "", columns)
        except TfmatError as error:
            file.error = str(error)
        file.test = self.test_of(path)
        return file

    def remove(self, name: str) -> None:
        """Takes a file away."""
        self.files.pop(name).path.unlink(missing_ok=True)

    def find_kind(self) -> None:
        """Chooses the kind of test that the files are, by their points and columns, or notes why they do not say it."""
        good = [str(file.path) for file in self.files.values() if not file.error]
        self.question = ""
        if not good:
            return
        try:
            found = kind_of_plain(good, ReadingOptions(), CleaningOptions())
        except InputError as error:
            # The rest is the command's advice.
            found_out = re.split(r"\. Say |; give each", str(error))[0]
            self.question = f"{found_out}; choose what was tested in the menu above"
            return
        if found != self.kind:
            self.choose(found)

    def choose(self, kind: Kind) -> None:
        """Says what was tested."""
        self.question = ""
        self.kind, self.laws = kind, list(kind.laws)
        for file in self.files.values():
            file.test = self.test_of(file.path)

    def test_of(self, path: pathlib.Path) -> str:
        """The test that a file's name says, or the only one of the kind; nothing where neither tells it."""
        word, tests = path.stem.lower().replace("-", "_"), self.kind.tests
        return next((test for test in tests if test in word), tests[0] if len(tests) == 1 else "")

    def jobs(self) -> list[tuple[str, str, Callable[[], list[Identification]]]]:
        """(file, law, what identifies it) for all that is to be done; the first law of every file comes first."""
        good = [file for file in self.files.values() if not file.error]
        if not good or self.question or not all(file.test for file in good):
            return []
        if not self.kind.takes_one_file:
            together = functools.partial(self._together, good)
            return [(ALL_FILES, law, functools.partial(together, law)) for law in self.laws]
        return [
            (file.path.name, law, functools.partial(self._alone, file, law))
            for law in self.laws
            for file in good
        ]

    def _alone(self, file: File, law: str) -> list[Identification]:
        """The answers for the specimens of a file; files `a.csv` and `a.txt` are told apart by their endings."""
        stem = file.path.stem
        is_one = sum(each.path.stem == stem for each in self.files.values()) == 1
        records = [
            MeasuredRecord(
                test.name if is_one else file.path.name + test.name.removeprefix(stem), [test]
            )
            for test in self._tests_in(file, law)
        ]
        return self._identify(law, records)

    def _together(self, files: Sequence[File], law: str) -> list[Identification]:
        """The answer for files that are tests of one material."""
        kinds = set(LAWS[law].tests)
        fitting = [file for file in files if file.test in kinds]
        if not fitting:
            raise InputError(f"no file is a test for {law}: {', '.join(sorted(kinds))}")
        tests = [test for file in fitting for test in self._tests_in(file, law)]
        return self._identify(law, [MeasuredRecord("material", tests)])

    def _tests_in(self, file: File, law: str) -> list[MeasuredTest]:
        """The tests of a file, read as its own menus say."""
        if file.rate is not None and file.rate <= 0:
            raise InputError(
                f"{file.path.name}: its rate is {file.rate:g}; give a positive number in 1/s"
            )
        settings = {name: getattr(file, name) for name in ("rate", "temperature")}
        source, (_, reading, cleaning) = law_alone(law), options_by_kind(file.options)
        given = TestFile(
            file.test, str(file.path), {n: v for n, v in settings.items() if v is not None}
        )
        menus = (file.test, *settings.values(), reading, cleaning)
        key = menus, read_as(source)
        if key not in file.tests:
            file.tests = {other: tests for other, tests in file.tests.items() if other[0] == menus}
            try:
                file.tests[key] = load_test(given, source.target, reading, cleaning, self._read)
            except InputError as error:
                file.tests[key] = error
        tests = file.tests[key]
        if isinstance(tests, InputError):
            raise tests
        file.read = next(filter(None, map(_how_read, tests[0].steps)), "")
        return tests

    def _read(
        self,
        path: str,
        reading: ReadingOptions,
        measures: Mapping[str, str | None],
        **how: bool,
    ) -> list[RawCurve]:
        """`read_curves`, which does not read the last file again; cleaning changes a copy."""
        key = path, reading, *measures.items(), *how.items()
        if key != self._points[0]:
            self._points = key, read_curves(path, reading, measures, **how)
        return copy.deepcopy(self._points[1])

    def _identify(self, law: str, records: list[MeasuredRecord]) -> list[Identification]:
        names = {parameter.name for parameter in LAWS[law]().parameters}
        fixed = {name: value for name, value in self.known.items() if name in names}
        # Among several laws the ranking says which one fits better.
        effort: Effort = "alone" if len(self.laws) > 1 else "compared"
        return identify(law_alone(law), records, fixed=fixed, effort=effort)

    def take(self, file: str, law: str, found: list[Identification] | str) -> None:
        """Notes the answers for a file, or why there are none."""
        if isinstance(found, str):
            # The page's own folder says nothing to its user.
            self.errors[file, law] = found.replace(f"{self.folder}/", "")
            return
        for answer in found:
            self.answers.setdefault(answer.curve.name, {})[law] = answer

    def ranking(self, name: str) -> list[Ranked]:
        """The laws of a curve, the best first."""
        return rank({law: [answer] for law, answer in self.answers[name].items()})

    def ranked(self, name: str, law: str) -> Identification:
        """The answer of a law for a curve, with the ranking where there are several laws, as the command has it."""
        found = self.answers[name]
        ranking = self.ranking(name) if len(found) > 1 else []
        return dataclasses.replace(found[law], ranking=ranking)

    def best(self) -> list[Identification]:
        """For each curve the answer of the law that is best for all of them, so that they can be compared."""
        each = list(self.answers.values())
        common = [law for law in self.laws if each and all(law in found for found in each)]
        ranking = rank({law: [found[law] for found in each] for law in common})
        if not ranking:
            return []
        kept = ranking if len(ranking) > 1 else []
        return [dataclasses.replace(found[ranking[0].law], ranking=kept) for found in each]


def _how_read(step: str) -> str:
    """The columns and units in a step of reading a file; nothing of other steps."""
    found = re.search(r"^read .*?; (strain from .*)", step)
    return found[1] if found else ""


# --------------------------------------------------------------------------------------------------
# Files to download.


def json_of(answers: Sequence[Identification]) -> str:
    """The text that `tfmat identify --json` writes."""
    return json_text([answer.to_json() for answer in answers]) + "\n"


# --------------------------------------------------------------------------------------------------
# Figures, as options of ECharts.

_COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be185d", "#475569")
# _LEGEND: beside the buttons at the right, also on a phone.
_LEGEND = {"type": "scroll", "top": 4, "left": 66, "right": 100}


def chart_of(answer: Identification) -> dict[str, Any]:
    """The measured points and the law above each other, and what is between them, for each test."""
    series: list[dict[str, Any]] = []
    over_time = False
    assert answer.resimulated_mpa is not None
    responses = answer.curve.split(np.asarray(answer.resimulated_mpa))
    for number, (test, fitted) in enumerate(zip(answer.curve.tests, responses, strict=True)):
        by_time = test.time is not None and test.programme.name in ("relaxation", "creep")
        over_time |= by_time
        x = test.time if by_time and test.time is not None else test.strain
        y = test.response
        kept = _thinned(len(x))
        colour = _COLOURS[number % len(_COLOURS)]
        name = test.name if len(answer.curve.tests) > 1 else "measured"
        law = f"{name}: law" if len(answer.curve.tests) > 1 else _title(answer)
        series += [
            {
                "type": "scatter", "name": name, "data": _pairs(x, y, kept), "symbolSize": 4,
                "color": colour, "large": True,
            },
            {
                "type": "line", "name": law, "data": _pairs(x, fitted, kept), "showSymbol": False,
                "color": "#111827" if name == "measured" else colour, "lineStyle": {"width": 2},
            },
            {
                "type": "line", "name": f"{name}: residual", "data": _pairs(x, y - fitted, kept),
                "xAxisIndex": 1, "yAxisIndex": 1, "showSymbol": False, "color": colour,
                "lineStyle": {"width": 1},
            },
        ]  # fmt: skip
    strains = {test.programme.drives for test in answer.curve.tests} == {"stress"}
    measures = (answer.law.strain_measure, answer.law.stress_measure) if answer.law else ("", "")
    strain, stress = (
        f"{m} {axis}".strip() for m, axis in zip(measures, ("strain", "stress"), strict=True)
    )
    axis = {"type": "value", "scale": True, "nameLocation": "middle"}
    below = "time [s]" if over_time else f"{strain} [-]"
    across = {**axis, "nameGap": 26}
    up = {**axis, "nameGap": 48}
    return {
        "animation": False,
        # Screen readers are told what is drawn.
        "aria": {"enabled": True},
        "tooltip": {"trigger": "axis"},
        "legend": {**_LEGEND, "data": [s["name"] for s in series if "residual" not in s["name"]]},
        "grid": [
            {"left": 66, "right": 16, "top": 36, "height": "56%"},
            {"left": 66, "right": 16, "bottom": 44, "height": "17%"},
        ],
        "xAxis": [{**across, "gridIndex": 0}, {**across, "gridIndex": 1, "name": below}],
        "yAxis": [
            {**up, "gridIndex": 0, "name": f"{strain} [-]" if strains else f"{stress} [MPa]"},
            {**up, "gridIndex": 1, "name": "residual", "splitNumber": 2},
        ],
        "dataZoom": [{"type": "inside", "xAxisIndex": [0, 1]}],
        "toolbox": {"feature": {"dataZoom": {}, "restore": {}}, "right": 12},
        "series": series,
    }  # fmt: skip


def comparison_chart(answers: Sequence[Identification]) -> dict[str, Any]:
    """The measured points of all curves in one figure."""
    chart = chart_of(answers[0])
    series = [
        {
            "type": "line", "name": answer.curve.name, "showSymbol": False,
            "color": _COLOURS[number % len(_COLOURS)],
            "data": _pairs(test.strain, test.stress_mpa, _thinned(len(test.strain))),
        }
        for number, answer in enumerate(answers)
        for test in answer.curve.tests
    ]  # fmt: skip
    return {
        **{key: chart[key] for key in ("animation", "aria", "tooltip", "toolbox")},
        "legend": _LEGEND,
        "grid": {"left": 66, "right": 16, "top": 36, "bottom": 48},
        "xAxis": {**chart["xAxis"][1], "gridIndex": 0},
        "yAxis": chart["yAxis"][0],
        "series": series,
    }


def _title(answer: Identification) -> str:
    return answer.law.title if answer.law else "law"


def _thinned(count: int) -> np.ndarray:
    """The points that are drawn of so many."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(int))


def _pairs(x: np.ndarray, y: np.ndarray, kept: np.ndarray) -> list[list[float]]:
    return [[float(f"{a:.6g}"), float(f"{b:.6g}")] for a, b in zip(x[kept], y[kept], strict=True)]


# --------------------------------------------------------------------------------------------------
# The page.

_NAMES = {
    "strain_column": "strain column",
    "stress_column": "stress or load column",
    "strain_unit": "unit of the strain or displacement",
    "stress_unit": "unit of the stress or load",
    "strain_measure": "strain measure",
    "stress_measure": "stress measure",
    "decimal": "decimal mark",
    "sheet": "sheet",
    "shear_strain": "shear strain",
    "time_column": "time column",
    "time_unit": "unit of the time",
}
_CHOICES = {
    "strain_unit": [*UNITS["strain"], *UNITS["displacement"]],
    "stress_unit": [*UNITS["stress"], *UNITS["load"]],
    "strain_measure": ["engineering", "true"],
    "stress_measure": ["engineering", "true"],
    "decimal": ["point", "comma"],
    "shear_strain": ["engineering", "tensor"],
    "time_unit": [*TIME_UNITS],
}
# _SIZES: numbers that a file may need; _ELSEWHERE: what else on the page does what a flag does.
_SIZES = {"area": "area [mm²]", "gauge_length": "gauge length [mm]"}
_ELSEWHERE = {"fix": "known values", "law": "Laws", "pool": "Compare and pool", "json": "JSON"}


def in_menu_words(text: str, kind: Kind = KINDS[0]) -> str:
    """A warning or an error with the words of the page's menus, where `kind` was tested, in the place of flags."""

    def word(flag: re.Match[str]) -> str:
        if flag["name"] == "law" and flag["value"] in LAWS:
            return _law_in_menus(flag["value"], kind)
        menu = (_NAMES | _SIZES | _ELSEWHERE).get(flag["name"])
        if menu is None:
            return f"the command's {flag[0]}"
        # A value in capitals stands for the user's own.
        value = "" if not flag["value"] or flag["value"].isupper() else f": {flag['value']}"
        return f"“{menu}{value}”"

    return re.sub(r"--(?P<name>[a-z_]+)(?:=(?P<value>[^\s,;)]+))?", word, text)


def _law_in_menus(law: str, kind: Kind) -> str:
    """Where the menus have a law, which may be one for another kind of test."""
    others = (each for each in KINDS if law in each.laws)
    of = kind if law in kind.laws else next(others, kind)
    where = "" if of == kind else f"{of.title}” and “"
    return f"“{where}{LAWS[law]().title}”"


def menus_for(kind: Kind, file: File) -> list[str]:
    """The options of a file that have a menu."""
    shown = [
        name for name in _NAMES if name not in ("sheet", "shear_strain", "time_column", "time_unit")
    ]
    if len(file.sheets) > 1:
        shown.insert(0, "sheet")
    if any("shear" in LAWS[law].strain_measure for law in kind.laws):
        shown.append("shear_strain")
    told = {channel for t in kind.tests if t in PROGRAMMES for channel in PROGRAMMES[t].channels}
    if told & {"time", "rate"}:
        shown += ["time_column", "time_unit"]
    return shown


# One fit at a time for all pages: two would only wait for each other's processors.
_turn = asyncio.Lock()


class Page:
    """One tab of the browser."""

    def __init__(self, folder: str) -> None:
        from nicegui import ui

        self.ui, self.work = ui, Work(folder)
        self.curve, self.law, self.round, self.fitted = "", "", 0, 0
        self.progress: tuple[int, int] | None = None
        self.reading = ""
        self.kind_is_said = False
        ui.page_title("tfmat")
        # Dark enough to be read on white.
        ui.colors(primary=_COLOURS[0])
        ui.add_css(".q-uploader__subtitle { display: none }")
        # For screen readers; NiceGUI does not say it.
        ui.add_head_html("<script>document.documentElement.lang = 'en'</script>")
        ui.context.client.on_delete(self.work.close)
        with ui.header().classes("items-center bg-slate-800 py-2"):
            ui.label("tfmat: parameters of material laws from measured tests").classes("text-lg")
        self.file_list = ui.refreshable(self._file_list)
        self.state = ui.refreshable(self._state)
        self.verdict = ui.refreshable(self._verdict)
        self.parameters = ui.refreshable(self._parameters)
        self.comparison = ui.refreshable(self._comparison)
        with ui.element("div").classes("grid grid-cols-1 md:grid-cols-[22rem_1fr] gap-4 w-full"):
            with ui.column().classes("w-full min-w-0"):
                self.upload = (
                    ui.upload(
                        multiple=True,
                        auto_upload=True,
                        max_file_size=MOST_BYTES,
                        on_multi_upload=self.receive,
                        label="Drop the files of your tests here, or press +",
                    )
                    .props("flat bordered accept='.csv,.txt,.tsv,.dat,.asc,.xlsx,.xlsm,.xls,.ods'")
                    .classes("w-full")
                    .on(
                        "rejected",
                        lambda event: self.reject(event.args),
                        js_handler="(all) => emit(all.map((each) => each.file.name))",
                    )
                )
                ui.label("Nothing leaves this computer.").classes("text-xs text-slate-500")
                self.choices()
                self.file_list()
            with ui.column().classes("w-full min-w-0"):
                self.state()
                self.view = ui.toggle(
                    ["One curve", "Compare and pool"],
                    value="One curve",
                    on_change=lambda: self.show(),
                ).props("no-caps")
                # Figures are made once and change: one that goes before it is drawn is an error of ECharts.
                with ui.column().classes("w-full") as self.one:
                    self.verdict()
                    self.chart = ui.echart({}).classes("w-full h-[28rem]")
                    self.parameters()
                with ui.column().classes("w-full") as self.all:
                    self.overlay = ui.echart({}).classes("w-full h-[24rem]")
                    self.comparison()
        self.show()

    # Each of these draws a part of the page, and is called again where that part changes.

    def choices(self) -> None:
        """Menus for the kind of test and the laws that are fitted."""
        titles = {kind.title: kind for kind in KINDS}

        async def choose(kind: str | None) -> None:
            if kind and (titles[kind] != self.work.kind or self.work.question):
                self.kind_is_said = True
                self.work.choose(titles[kind])
                self.show_kind()
                self.file_list.refresh()
                await self.fit()

        async def take(chosen: list[str]) -> None:
            if chosen != self.work.laws:
                self.work.laws = [law for law in self.work.kind.laws if law in chosen]
                await self.fit()

        self.kinds = self.ui.select(
            list(titles), value=KINDS[0].title, label="What was tested", on_change=lambda e: choose(e.value)
        ).classes("w-full")  # fmt: skip
        self.question = self.ui.label().classes("text-red-700 text-sm break-words")
        self.laws = (
            self.ui.select(
                {law: LAWS[law]().title for law in KINDS[0].laws},
                value=list(KINDS[0].laws),
                multiple=True,
                label="Laws: all that fit the test, ranked",
                on_change=lambda e: take(e.value),
            )
            .props("use-chips")
            .classes("w-full")
        )

        async def know(event: Any) -> None:
            try:
                known = known_parameters([event.sender.value] if event.sender.value else [])
            except InputError as error:
                self.ui.notify(str(error), type="negative", multi_line=True)
                return
            if known != self.work.known:
                self.work.known = known
                await self.fit()

        self.ui.input("known values, such as E=193000").classes("w-full").on("blur", know)

    def show_kind(self) -> None:
        """Sets the menus to what was tested."""
        kind = self.work.kind
        self.question.text = self.work.question
        self.kinds.value = None if self.work.question else kind.title
        self.laws.set_options({law: LAWS[law]().title for law in kind.laws})
        self.laws.value = list(kind.laws)

    def _file_list(self) -> None:
        for name, file in self.work.files.items():
            unquoted = name.replace("'", "").replace('"', "")
            with self.ui.card().classes("w-full p-2 gap-1"):
                with self.ui.row().classes("w-full items-center no-wrap"):
                    self.ui.label(name).classes("grow break-all")
                    self.ui.button(
                        icon="close", on_click=lambda name=name: self.remove(name)
                    ).props(f"flat dense size=sm aria-label='take {unquoted} away'")
                wrong = file.error or next(
                    (text for (of, _), text in self.work.errors.items() if of == name), ""
                )
                if wrong:
                    self.ui.label(in_menu_words(wrong, self.work.kind)).classes(
                        "text-red-700 text-sm break-words"
                    )
                elif file.read:
                    self.ui.label(f"read: {file.read}").classes(
                        "text-xs text-slate-600 break-words"
                    )
                if not self.work.kind.takes_one_file:
                    self._test_of(file)
                if file.columns:
                    self._reading_of(name, file)

    def _test_of(self, file: File) -> None:
        """The kind of a file's test, where all files are one material."""
        tests = list(self.work.kind.tests)
        if not file.test:
            self.ui.label("say which test it is; its name does not").classes("text-red-700 text-sm")
        if len(tests) > 1:
            self.ui.select(tests, value=file.test or None, label="test").classes(
                "w-full"
            ).bind_value_to(file, "test").on_value_change(self.fit)
        if any(test.startswith(("rate", "tension_at")) for test in self.work.kind.tests):
            for name, unit in (("rate", "1/s"), ("temperature", "°C")):
                self.ui.number(f"{name} [{unit}]", value=getattr(file, name)).classes(
                    "w-full"
                ).bind_value_to(file, name).on("blur", self.fit)

    def _reading_of(self, name: str, file: File) -> None:
        """Menus that say how a file is read."""
        ui = self.ui
        given = dict(file.options)
        # The list is drawn anew when fits end; an open part stays open.
        menus = ui.expansion("Columns and units", value=file.is_open).classes("w-full text-sm")
        with menus.bind_value_to(file, "is_open"):
            for option in menus_for(self.work.kind, file):
                label = _NAMES[option]
                choices: dict[str | None, str] = {None: "as tfmat finds it"}
                if option.endswith("_column"):
                    # A column goes by its number, as text.
                    choices |= {str(i): column for i, column in enumerate(file.columns, start=1)}
                else:
                    allowed = list(file.sheets) if option == "sheet" else _CHOICES[option]
                    choices |= {choice: choice for choice in allowed}
                ui.select(
                    choices,
                    value=given.get(option),
                    label=label,
                    on_change=lambda e, option=option: given.update({option: e.value}),
                ).classes("w-full").props("dense options-dense")
            for option, label in _SIZES.items():
                ui.number(
                    label,
                    value=given.get(option),
                    on_change=lambda e, option=option: given.update({option: e.value}),
                ).classes("w-full").props("dense")
            everywhere = ui.checkbox("for all files", value=True)

            async def read_again() -> None:
                said = {key: value for key, value in given.items() if value is not None}
                for each in self.work.files.values() if everywhere.value else [file]:
                    # A sheet is said of the files that have it.
                    each.options = {
                        k: v for k, v in said.items() if k != "sheet" or v in each.sheets
                    }
                await self.fit()

            ui.button("Read again", on_click=read_again).props("dense")

    def _state(self) -> None:
        # Programs that drive the page read how often all was fitted.
        self.ui.element("span").props(f"data-fitted={self.fitted}").classes("hidden")
        if self.reading:
            self.ui.label(f"reading {self.reading}; a large file takes a minute").classes("text-sm")
        if self.progress is not None:
            done, total = self.progress
            self.ui.label(f"fitting: {done} of {total}").classes("text-sm")
            self.ui.linear_progress(done / max(total, 1), show_value=False).classes("w-full")

    def show(self) -> None:
        """Draws the answers anew."""
        answers = self.work.answers
        several = self.view.value != "One curve" and len(answers) > 1
        common = self.work.best() if several else []
        self.view.set_visibility(len(answers) > 1)
        self.one.set_visibility(not several)
        self.all.set_visibility(several)
        self.chart.set_visibility(bool(answers))
        self.overlay.set_visibility(bool(common))
        if several:
            self.comparison.refresh(common)
        else:
            self.verdict.refresh()
            self.parameters.refresh()
        drawn = self.overlay if several else self.chart
        drawn.options.clear()
        if common:
            drawn.options.update(comparison_chart(common))
        elif answers and not several:
            drawn.options.update(chart_of(self.shown))
        drawn.update()

    @property
    def shown(self) -> Identification:
        """The answer of the curve and the law that are looked at."""
        answers = self.work.answers
        self.curve = self.curve if self.curve in answers else next(iter(answers))
        found, ranking = answers[self.curve], self.work.ranking(self.curve)
        law = self.law if self.law in found else ranking[0].law if ranking else next(iter(found))
        return self.work.ranked(self.curve, law)

    def _verdict(self) -> None:
        """The curve, its laws, and whether the answer may be used."""
        ui, answers = self.ui, self.work.answers
        # An error of all files together, such as a law without its test, stands below no file.
        together = [text for (of, _), text in self.work.errors.items() if of == ALL_FILES]
        for text in dict.fromkeys(together):
            ui.label(in_menu_words(text, self.work.kind)).classes(
                "text-red-700 text-sm break-words"
            )
        if not answers:
            if self.work.files and not self.progress:
                ui.label("There is no answer yet; the red lines say why.").classes("text-slate-600")
            elif not self.work.files:
                ui.label(
                    "Drop one file or many: text from a machine, CSV or Excel. The curve, the parameters with their "
                    "intervals, and what speaks against them appear here."
                ).classes("text-slate-600")
            return
        answer = self.shown
        law, ranking = answer.law.name if answer.law else "", self.work.ranking(self.curve)
        if len(answers) > 1:
            ui.select(
                list(answers), value=self.curve, label="curve", on_change=self.look_at
            ).classes("w-full")
        if len(ranking) > 1:
            rows = [
                {
                    "law": each.law,
                    "title": LAWS[each.law]().title,
                    "verdict": verdict_of(place, each),
                    "error": f"{each.rmse_percent:.2f} %",
                    "evidence": f"{each.evidence:.0f}",
                    "shown": each.law == law,
                }
                for place, each in enumerate(ranking)
            ]
            titles = {"title": "law", "verdict": "", "error": "error", "evidence": "evidence"}
            table = self._table(titles, rows)
            # Buttons, so that a keyboard reaches them too.
            table.add_slot("body-cell-title", _LAW_BUTTON)
            table.on("show", lambda e: self.show_law(e.args))
            ui.label(
                "Press a law to see it. Evidence is twice the logarithm of the likelihoods' ratio to the first law, "
                f"less the price of more parameters. A law within {EVIDENCE:g}, or of an error at most a sixth larger, "
                "is as good."
            ).classes("text-xs text-slate-500")
        if answer.do_not_use:
            with (
                ui.card().classes("w-full bg-red-50 border border-red-700 p-3").props("role=alert")
            ):
                ui.label(f"DO NOT USE THIS ANSWER: {', '.join(answer.do_not_use)}").classes(
                    "text-red-800 font-bold"
                )
                ui.label(
                    "The numbers below are the best that this law and these points give, and they would mislead a "
                    "simulation. The warnings say why, and what to do."
                ).classes("text-sm")

    def _parameters(self) -> None:
        """The parameters, what speaks against them, and files to download."""
        if not self.work.answers:
            return
        ui, answer = self.ui, self.shown
        self._values(answer)
        if answer.curve.tensile is not None:
            texts = tensile_texts(answer.entry().tensile or {})
            ui.label("Without a law, after ISO 6892-1").classes("font-bold")
            self._table({title: title for title in texts}, [texts])
        self._downloads([answer], card=True)
        with ui.expansion("What was done to the points").classes("w-full text-sm"):
            for step in answer.curve.steps:
                ui.label(f"· {step}").classes("text-xs break-words")

    def _comparison(self, answers: Sequence[Identification] = ()) -> None:
        """All curves beside each other, and what they say together."""
        ui = self.ui
        if not answers:
            ui.label("No law has an answer for all curves.")
            return
        ui.label(f"{_title(answers[0])}, the best law for all curves together").classes("text-lg")
        try:
            pooled = pool(answers)
        except InputError as error:
            pooled = []
            ui.label(str(error)).classes("text-amber-800 text-sm")
        names = list(answers[0].parameters)
        rows = [
            {
                "curve": answer.curve.name,
                **{name: format_value(answer.parameters[name].value) for name in names},
                "use": "NO" if answer.do_not_use else "yes",
            }
            for answer in [*answers, *pooled]
        ]
        units = {n: with_unit(n, answers[0].parameters[n].unit) for n in names}
        self._table({"curve": "curve", **units, "use": "use"}, rows)
        for answer in pooled:
            ui.label(f"{answer.curve.name}, as one material").classes("font-bold")
            self._values(answer)
        self._downloads([*answers, *pooled], card=False)

    def _values(self, answer: Identification) -> None:
        """The parameters, and what speaks against them."""
        titles = {
            "name": "parameter",
            "value": "value",
            "interval": "95 % interval",
            "unit": "unit",
        }
        self._table(titles, [_row_of(name, value) for name, value in answer.parameters.items()])
        self.ui.label(quality_of(answer.entry())).classes("text-xs text-slate-600")
        for each in answer.warnings:
            said = "; ".join(filter(None, (each.text, each.advice)))
            text = in_menu_words(said, self.work.kind)
            self.ui.label(f"⚠ {text}").classes("text-amber-800 text-sm break-words")

    def _table(self, titles: Mapping[str, str], rows: list[dict[str, Any]]) -> Any:
        columns = [
            {"name": name, "label": title, "field": name, "align": "left"}
            for name, title in titles.items()
        ]
        table = self.ui.table(columns=columns, rows=rows, pagination=0).classes("w-full")
        return table.props("dense flat bordered hide-pagination")

    def _downloads(self, answers: Sequence[Identification], card: bool) -> None:
        ui = self.ui
        if self.progress is not None:
            ui.label("Laws are still being fitted; files to download come when the best is known.")
            return
        stem = answers[0].curve.name if len(answers) == 1 else "answers"

        def offer(label: str, suffix: str, make: Callable[[], str | bytes]) -> None:
            def load() -> None:
                try:
                    made = make()
                except TfmatError as error:
                    ui.notify(str(error), type="warning", multi_line=True)
                    return
                content = made.encode() if isinstance(made, str) else made
                ui.download(content, f"{pathlib.Path(stem).stem}{suffix}")

            ui.button(label, on_click=load).props("dense outline no-caps")

        with ui.row().classes("w-full items-center gap-2"):
            if card:
                for name, solver in SOLVERS.items():
                    offer(
                        f"{solver.title} card",
                        f".{name}.{solver.suffix}",
                        functools.partial(answers[0].card, name),
                    )
                offer("Figure", ".png", lambda: picture(answers[0]))
            offer("JSON", ".json", lambda: json_of(answers))
            offer("CSV", ".csv", lambda: csv_text([answer.entry() for answer in answers]))
            offer("Excel", ".xlsx", lambda: workbook(answers))

    # The user does something.

    async def receive(self, event: Any) -> None:
        """Files came."""
        from nicegui import run

        for each in event.files:
            try:
                path = self.work.place(each.name)
            except InputError as error:
                self.ui.notify(str(error), type="negative", multi_line=True)
                break
            await each.save(path)
            self.reading = path.name
            self.state.refresh()
            await run.io_bound(self.work.add, path)
        self.upload.reset()
        await self.find_kind()

    async def find_kind(self) -> None:
        """Other files may be another kind of test; then all is fitted."""
        from nicegui import run

        if not self.kind_is_said:
            before = self.work.kind, self.work.question
            await run.io_bound(self.work.find_kind)
            if (self.work.kind, self.work.question) != before:
                self.show_kind()
        self.reading = ""
        self.state.refresh()
        self.file_list.refresh()
        await self.fit()

    def reject(self, names: Sequence[str]) -> None:
        """The browser keeps files back."""
        self.ui.notify(
            f"refused: {', '.join(names)}; give text, CSV or Excel of at most {MOST_BYTES // 1_000_000} MB",
            type="negative",
        )

    async def remove(self, name: str) -> None:
        """A file is taken away."""
        self.work.remove(name)
        await self.find_kind()

    def look_at(self, event: Any) -> None:
        """Another curve is shown."""
        self.curve = event.value
        self.show()

    def show_law(self, law: str) -> None:
        """Another law is shown; its button, which is a new one, has the keyboard as the old one had."""
        self.law = law
        self.show()
        self.ui.run_javascript("document.querySelector('td [aria-pressed=true]')?.focus()")

    async def fit(self) -> None:
        """Fits everything anew; a later change ends it."""
        from nicegui import run

        self.round += 1
        mine = self.round
        self.work.answers.clear()
        self.work.errors.clear()
        jobs = self.work.jobs()
        drawn = 0.0
        for done, (file, law, job) in enumerate(jobs):
            self.progress = (done, len(jobs))
            self.state.refresh()
            async with _turn:
                if self.round != mine:
                    return
                found = await run.io_bound(_found_or_why, job)
            if self.round != mine or found is None:
                return
            self.work.take(file, law, found)
            now = asyncio.get_running_loop().time()
            if now - drawn > 1.0:
                self.show()
                drawn = now
        self.progress = None
        self.fitted += bool(jobs)
        self.file_list.refresh()
        self.show()
        self.state.refresh()


# _LAW_BUTTON: the cell of a law's name, in Vue; the one that is shown is pressed.
_LAW_BUTTON = """<q-td :props="props">
  <q-btn flat dense no-caps align="left" color="primary" size="13px" padding="0 2px" style="min-height: 0"
    :label="(props.row.shown ? '● ' : '') + props.value"
    :aria-pressed="props.row.shown ? 'true' : 'false'" @click="$parent.$emit('show', props.row.law)" />
</q-td>"""


def _row_of(name: str, value: Value) -> dict[str, str]:
    """A parameter as texts."""
    interval = "given" if value.fixed else "not known"
    if value.ci95 is not None:
        interval = " to ".join(map(format_value, value.ci95))
    return {
        "name": name,
        "value": format_value(value.value),
        "interval": interval,
        "unit": format_unit(value.unit),
    }


def _found_or_why(job: Callable[[], list[Identification]]) -> list[Identification] | str:
    try:
        return job()
    except TfmatError as error:
        return str(error)
    except Exception as error:
        # One file's fault must not end the page; the terminal keeps what mends it.
        traceback.print_exc()
        return (
            f"a defect of tfmat ({type(error).__name__}: {error}); the terminal has the traceback"
        )


# --------------------------------------------------------------------------------------------------
# A page for its user alone: an address that nobody can guess, no other site's requests, Ctrl-C ends it.


# SECONDS: after how many the browser asks again for a page that changes.
SECONDS = 5


class Place(NamedTuple):
    """Where a page is served."""

    listening: socket.socket
    path: str
    address: str


def open_place(port: int, browser: bool) -> Place:
    """Listens on loopback, prints the address, and opens the browser there.

    Raises:
      InputError: the port cannot be had.
    """
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(
            f"port {port} cannot be had: {error.strerror}; give another one, or leave --port out"
        ) from error
    path = f"/{secrets.token_urlsafe(12)}"
    address = f"http://localhost:{listening.getsockname()[1]}{path}"
    print(f"tfmat: the page is at {address}\ntfmat: Ctrl-C ends it", flush=True)
    if browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    return Place(listening, path, address)


def asked_here(host: str, origin: str | None) -> bool:
    """False for what another site's page sends, and for a name that somebody else pointed here."""
    name = host.rpartition(":")[0] or host
    return name in ("127.0.0.1", "localhost") and origin in (None, f"http://{host}")


def serve_page(render: Callable[[], tuple[str, bool]], *, port: int, browser: bool) -> None:
    """Serves one page that changes, until Ctrl-C.

    Args:
      render: returns the page, and whether it may still change; the browser then asks again by itself.
      port: of this machine; 0 for a free one.
      browser: opens the page.

    Raises:
      InputError: the port cannot be had, or the page cannot be made when the server starts.
    """
    render()
    place = open_place(port, browser)
    turn = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = "tfmat", ""

        def do_GET(self) -> None:
            if not asked_here(self.headers.get("Host", ""), self.headers.get("Origin")):
                self.send_error(403)
            elif self.path != place.path:
                self.send_error(404)
            else:
                self.answer()

        def answer(self) -> None:
            try:
                with turn:
                    page, changes = render()
            except InputError as error:
                print(f"tfmat: {error}", file=sys.stderr)
                self.send_error(503)
                return
            content = page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            if changes:
                self.send_header("Refresh", str(SECONDS))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A browser that leaves in the middle of a page is no fault."""

    server = Server(place.listening.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = place.listening
    with server, contextlib.suppress(KeyboardInterrupt, Interrupted):
        server.serve_forever()


class OnlyThisMachine:
    """Refuses what another site's page sends, or a name that somebody else pointed here (an ASGI middleware)."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """As ASGI asks."""
        if scope["type"] in ("http", "websocket"):
            headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
            if not asked_here(headers.get(b"host", ""), headers.get(b"origin")):
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": 1008})
                    return
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b"only pages of this server\n"})
                return
        await self.app(scope, receive, send)


@command(
    {"page": PAGE_FLAGS},
    no_argument="; drop files on the page",
    shows_config=False,
)
def app(flag_values: FlagValues, arguments: list[str]) -> None:
    """A page to drop files on: curves, parameters with intervals, warnings, cards. For people without a
    shell.

      tfmat app
      tfmat app --port=8050 --nobrowser

    The page is served on this machine alone, at an address that nobody can guess. Files are kept in a
    temporary folder and deleted with the page. Ctrl-C ends it. On a machine far away, forward the port:
    ssh -L 8050:localhost:8050 MACHINE, and open the printed address here.

    The page needs NiceGUI: in a clone pip install --editable '.[app]', else pip install 'tfmat[app]'.
    """
    try:
        import fastapi
        import uvicorn
        from nicegui import ui
    except ImportError as error:
        raise InputError(
            "the page needs NiceGUI; pip install 'tfmat[app]', or in a clone .venv/bin/pip install --editable '.[app]'"
        ) from error
    place = open_place(flag_values.port, flag_values.browser)
    server = fastapi.FastAPI(openapi_url=None)
    server.add_middleware(OnlyThisMachine)

    files = tempfile.TemporaryDirectory(prefix="tfmat-app-")

    @ui.page(place.path)
    def page() -> None:
        Page(files.name)

    ui.run_with(server, title="tfmat", show_welcome_message=False, reconnect_timeout=30.0)
    with files, contextlib.suppress(KeyboardInterrupt, Interrupted):
        uvicorn.Server(uvicorn.Config(server, log_level="error")).run(sockets=[place.listening])
