"""The files of each test of each material, and the tests that are read from them.

curve.csv lab/                                        of a law of one rising loading: curves, a material each
uniaxial=UT.txt equibiaxial=ET.txt planar=PS.txt      tests of one material
tests.csv                                             a table: file, test, rate, temperature, material
example_1.csv example_2.csv                           of a law with one kind of test: a material each
"""

import collections
import csv
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfmat.curves.axes import ReadingOptions
from tfmat.curves.cleaning import CleaningOptions
from tfmat.curves.cleaning_of_tests import measured_test
from tfmat.curves.conditions import TEMPERATURE_UNITS, value_with_unit
from tfmat.curves.loading_paths import temperature_of
from tfmat.curves.measured import clean, wanted_measures
from tfmat.curves.measured_tests import MeasuredRecord, MeasuredTest
from tfmat.curves.programme import Programme
from tfmat.curves.programmes import (
    PROGRAMMES,
    Monotonic,
    RateAndTemperature,
    Uniaxial,
    programme_class,
)
from tfmat.curves.raw_files import find_files, read_bytes
from tfmat.curves.reading import read_curves
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.settings import MONOTONIC
from tfmat.curves.units import split_header
from tfmat.errors import InputError, nearest
from tfmat.materials.law import Law
from tfmat.materials.registry import is_file

TABLE = "tests.csv"
# Columns of a table, and the settings among them, in 1/s and °C.
_SETTINGS = ("rate", "temperature")
_COLUMNS = ("file", "test", "material", *_SETTINGS)
# Letters of a record's name that is made of its files' names.
_LONGEST_NAME = 60
_TRIAL_POINTS = 64


@dataclasses.dataclass(frozen=True)
class TestFile:
    """A file, which test it is, and what is told of that: `rate` in 1/s, `temperature` in °C."""

    __test__ = False  # no case of pytest's

    test: str
    path: str
    settings: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """The files of one material's tests; `apart` where each test that they hold is a material of its own."""

    name: str
    files: tuple[TestFile, ...]
    apart: bool = False


def takes_tests(law: Law | None) -> bool:
    """Whether a law is identified from tests, and not from a curve of rising strain."""
    return law is not None and law.tests != (MONOTONIC,)


def names_a_test(argument: str) -> bool:
    """Whether an argument says `test=file`, and is no file itself."""
    name, equals, _ = argument.partition("=")
    return (
        bool(equals) and not os.path.exists(argument) and bool(re.fullmatch(r"[\w./:\\-]+", name))
    )


def _refuse_tests(arguments: Sequence[str], law: Law | None) -> None:
    """Raises InputError where an argument says `test=file` for a law of one curve of rising strain."""
    for argument in arguments:
        if names_a_test(argument) and argument.partition("=")[0] in PROGRAMMES:
            which = f"law {law.name}" if law else "the network"
            raise InputError(
                f"{which} is identified from one curve of rising strain, and {argument} names a test; give the file "
                "alone, or a law that takes tests, e.g. --law=ogden"
            )


def find_records(arguments: Sequence[str], law: Law | None) -> list[RecordFiles]:
    """The materials that the arguments mean, in order.

    Args:
      law: None where a network is of none, which takes one rising loading.

    Raises:
      InputError: tests and plain files side by side, a test that the law does not answer, a table that is none, or
        files without a test where the law takes several kinds.
    """
    if law is None or not takes_tests(law):
        _refuse_tests(arguments, law)
        return [_alone(TestFile(MONOTONIC, path)) for path in find_files(arguments)]
    named = [argument for argument in arguments if names_a_test(argument)]
    if named and len(named) < len(arguments):
        other = next(argument for argument in arguments if argument not in named)
        raise InputError(
            f"{other} has no test beside {named[0]}; say which test every file is, TEST=FILE"
        )
    if named:
        pairs = [argument.partition("=")[::2] for argument in named]
        files = [
            TestFile(check_test_name(test, law), path)
            for test, pattern in pairs
            for path in find_files([pattern])
        ]
        return [RecordFiles(_name_of(files), tuple(files))]
    records: list[RecordFiles] = []
    plain: list[str] = []
    for argument in arguments:
        path = pathlib.Path(argument)
        table = path / TABLE if path.is_dir() else path
        if table.is_file() and (table.name == TABLE or _is_table(table)):
            records += _read_table(table, law)
        else:
            plain.append(argument)
    return records + _of_plain_files(find_files(plain), law)


def _of_plain_files(paths: list[str], law: Law) -> list[RecordFiles]:
    """Files of which nothing is said: a material each, or all tests of one where the law wants several of a kind."""
    kinds = list(dict.fromkeys(law.tests))
    if not paths:
        return []
    if len(kinds) > 1:
        example = " ".join(f"{kind}=FILE" for kind in kinds)
        raise InputError(
            f"law {law.name} takes several tests of one material; say which file is which, {example}, or give a table "
            f"{TABLE} with the columns file and test"
        )
    files = [TestFile(kinds[0], path) for path in paths]
    if len(law.tests) > 1:
        return [RecordFiles(_name_of(files), tuple(files))]
    return [_alone(file) for file in files]


def _alone(file: TestFile) -> RecordFiles:
    return RecordFiles(pathlib.Path(file.path).stem, (file,), apart=True)


def _name_of(files: Sequence[TestFile]) -> str:
    stems = [pathlib.Path(file.path).stem for file in files]
    name = "+".join(dict.fromkeys(stems))
    return name if len(name) <= _LONGEST_NAME else f"{stems[0]} and {len(files) - 1} more"


def _is_table(path: pathlib.Path) -> bool:
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return False
    with path.open("rb") as file:
        first = file.readline(1000).decode("utf-8-sig", "replace")
    columns = {cell.strip().strip('"').lower() for cell in re.split("[,;\t]", first)}
    return "file" in columns and bool(columns & {"test", "material", *_SETTINGS})


def _read_table(path: pathlib.Path, law: Law) -> list[RecordFiles]:
    """The materials of a table of tests; InputError names the line."""
    text = read_bytes(path).decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip(" ,;\t")]
    if len(lines) < 2:
        raise InputError(
            f"{path}: it names no file; a header ({', '.join(_COLUMNS)}) and a row a test"
        )
    delimiter = max(",;\t", key=lines[0].count)
    rows = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    # `temperature [K]`
    split = [split_header(cell, lambda unit: unit.lower() in TEMPERATURE_UNITS) for cell in rows[0]]
    header = [name.strip().lower() for name, _ in split]
    for name in header:
        if name not in _COLUMNS:
            raise InputError(
                f"{path}: a table of tests has no column '{name}'{nearest(name, _COLUMNS)}"
            )
    kinds = list(dict.fromkeys(law.tests))
    if "file" not in header or ("test" not in header and len(kinds) > 1):
        missing = "file" if "file" not in header else "test"
        raise InputError(f"{path}: a table of tests needs a column '{missing}'")
    materials: dict[str, list[TestFile]] = {}
    for number, cells in enumerate(rows[1:], start=2):
        filled = [cell.strip() for cell in cells]
        filled = [
            f"{cell} {unit}" if cell and unit else cell
            for cell, (_, unit) in zip(filled, split, strict=False)
        ]
        row = dict(zip(header, filled, strict=False))
        try:
            if not row.get("file"):
                raise InputError("no file")
            file = TestFile(
                check_test_name(row.get("test") or (kinds[0] if len(kinds) == 1 else ""), law),
                str(path.parent / row["file"]),
                {name: _number(name, row[name]) for name in _SETTINGS if row.get(name)},
            )
        except InputError as error:
            raise InputError(f"{path}: row {number}: {error}") from error
        materials.setdefault(row.get("material") or "", []).append(file)
    own = path.parent.name if path.name == TABLE and path.parent.name else path.stem
    return [RecordFiles(name or own, tuple(files)) for name, files in materials.items()]


def _number(name: str, text: str) -> float:
    number = text.replace(",", ".")
    try:
        # `293 K`, `20 °C`; a bare number is in °C.
        has_unit = name == "temperature" and bool(re.search(r"[^\d.eE+-]", number))
        said = value_with_unit(name, number, "") if has_unit else number
        value = temperature_of(said)[0] if has_unit else float(said)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or (name == "rate" and value <= 0):
        unit = (
            "a positive number in 1/s"
            if name == "rate"
            else "a number in °C, or one with its unit, 293 K"
        )
        raise InputError(f"{name} is '{text}'; give {unit}")
    return value


def check_test_name(test: str, law: Law) -> str:
    """The name of a test that the law answers; InputError otherwise."""
    if not is_file(test) and test not in PROGRAMMES:
        answered = [name for name, kind in PROGRAMMES.items() if refusal(kind(), law) is None]
        hint = nearest(test, answered)
        own = [name for name in dict.fromkeys(law.tests) if name in answered]
        hint = hint if "did you mean" in hint else f"; law {law.name} takes {', '.join(own)}"
        raise InputError(f"there is no test '{test}'{hint}" if test else f"no test is named{hint}")
    why = refusal(programme_class(test)(), law)
    if why is not None:
        takes = ", ".join(dict.fromkeys(law.tests))
        raise InputError(f"law {law.name} does not answer a test {test} ({why}); it takes {takes}")
    return test


def refusal(programme: Programme, law: Law) -> str | None:
    """Why a law does not answer a programme; None where it does."""
    if isinstance(programme, Monotonic) or not takes_tests(law):
        both = isinstance(programme, Monotonic) and not takes_tests(law)
        return None if both else "it is identified from one curve of rising strain"
    if programme.mode not in law.modes:
        return f"it answers {' and '.join(law.modes)} tests, and this is {programme.mode}"
    if programme.name in PROGRAMMES and programme.name not in law.tests:
        # Other tests of what the law's own ones tell: compression beside tension, all that is told over time.
        told = {name for own in law.tests for name in programme_class(own).channels}
        beside = programme.name == "compression" and "uniaxial" in law.tests
        if not beside and not (programme.channels and told.issuperset(programme.channels)):
            unknown = [name for name in programme.channels if name not in told]
            return (
                f"it knows no {' and no '.join(unknown)}" if unknown else "it is tested otherwise"
            )
    random = np.random.default_rng(0)
    parameters = law.from_labels(np.full((1, len(law.identified)), 0.5))
    try:
        with np.errstate(all="ignore"):
            law.respond(programme.draw(random, 1, _TRIAL_POINTS), parameters)
    except InputError as error:
        return str(error)
    except Exception as error:  # a user's own law may fail in any way on what it does not know
        return f"{type(error).__name__}: {error}"
    return None


def load_records(
    records: Sequence[RecordFiles],
    target: CurveTarget,
    options: ReadingOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    cleaning: CleaningOptions | None = None,
) -> tuple[list[MeasuredRecord], list[InputError]]:
    """Reads every test, and goes on after a bad one, so that a user sees all of them at once.

    Args:
      target: the law's form of curves; of one that takes tests its law alone counts.
      progress: called with (done, total) after each file.

    Returns:
      The records whose files are all good, and one error, a line that names the file, for each bad file. Rising
      loadings that would have the same name, from different folders, are called by their paths.
    """
    found: list[MeasuredRecord] = []
    paths: dict[int, str] = {}
    errors: list[InputError] = []
    total = sum(len(record.files) for record in records)
    done = 0
    for record in records:
        tests: list[MeasuredTest] = []
        bad = len(errors)
        for file in record.files:
            try:
                tests += load_test(file, target, options, cleaning)
            except InputError as error:
                errors.append(error)
            done += 1
            if progress:
                progress(done, total)
        if len(errors) == bad and record.apart:
            paths |= {len(found) + i: record.files[0].path for i in range(len(tests))}
            found += [MeasuredRecord(test.curve.name, [test]) for test in tests]
        elif len(errors) == bad:
            found.append(MeasuredRecord(record.name, tests))
    names = collections.Counter(record.name for record in found)
    for i, path in paths.items():
        if names[found[i].name] > 1:
            found[i].name = f"{path}{found[i].name.removeprefix(pathlib.Path(path).stem)}"
    return found, errors


def load_test(
    file: TestFile,
    target: CurveTarget,
    options: ReadingOptions | None = None,
    cleaning: CleaningOptions | None = None,
) -> list[MeasuredTest]:
    """The tests of one file, one a specimen; InputError, one line that names the file, for what cannot be one."""
    is_curve = file.test == MONOTONIC
    programme = Monotonic() if is_curve else programme_class(file.test)()
    tests = []
    raws = read_curves(
        file.path,
        options,
        wanted_measures(target),
        of_test=not is_curve,
        needs_time="time" in programme.channels,
        # Other tests turn, or are held, and come back to zero.
        one_loading=isinstance(programme, Monotonic | Uniaxial | RateAndTemperature),
    )
    for raw in raws:
        try:
            if is_curve:
                tests.append(MeasuredTest(programme, clean(raw, target, cleaning)))
                continue
            assert target.law is not None
            tests.append(measured_test(raw, programme, target.law, file.settings, cleaning))
        except InputError as error:
            of = f"curve '{raw.name}': " if len(raws) > 1 else ""
            raise InputError(f"{file.path}: {of}{error}") from error
    return tests
