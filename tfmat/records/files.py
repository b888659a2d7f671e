"""Records from files, from arrays of a caller, and the examples that come with tfmat."""

import collections
import csv
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.errors import InputError, nearest
from tfmat.files import atomic_write, make_folder
from tfmat.materials.law import Array, Law
from tfmat.materials.registry import is_file
from tfmat.records.cleaning import (
    CleaningOptions,
    clean,
    measured_test,
    wanted_measures,
)
from tfmat.records.programmes import (
    PROGRAMMES,
    Compression,
    Monotonic,
    Programme,
    RateAndTemperature,
    Uniaxial,
    programme_class,
    refusal,
    takes_tests,
)
from tfmat.records.reading import (
    RawCurve,
    ReadingOptions,
    condition_named,
    find_time_unit,
    read_curves,
    temperature_of,
    value_with_unit,
)
from tfmat.records.record import (
    CurveTarget,
    MeasuredRecord,
    MeasuredTest,
    holds_strain,
    holds_stress,
)
from tfmat.records.simulation import (
    FLAG,
    MONOTONIC,
    STRAIN,
    STRESS,
    CurveSettings,
    RecordForm,
    fill_tests,
)
from tfmat.records.tables import (
    Frame,
    axis_unit,
    find_files,
    is_frame,
    read_bytes,
    shorten,
)

# --------------------------------------------------------------------------------------------------
# The files of each test of each material, and the tests that are read from them.
#
# curve.csv lab/                                        of a law of one rising loading: curves, a material each
# uniaxial=UT.txt equibiaxial=ET.txt planar=PS.txt      tests of one material tests.csv
# a table: file, test, rate, temperature, material example_1.csv example_2.csv                           of a law with
# one kind of test: a material each


TABLE = "tests.csv"
# Columns of a table, and the settings among them, in 1/s and °C.
_SETTINGS = ("rate", "temperature")
_COLUMNS = ("file", "test", "material", *_SETTINGS)
# _ALSO_CALLED: other names of its columns, in lower case; those of settings are as in a file's head.
_ALSO_CALLED = {
    name: column
    for column, names in {
        "file": "filename datei dateiname fichier archivo",
        "test": "versuch prüfung essai ensayo prova",
        "material": "werkstoff matériau materiale",
    }.items()
    for name in names.split()
}
# Letters of a record's name that is made of its files' names.
_LONGEST_NAME = 60


@dataclasses.dataclass(frozen=True)
class TestFile:
    """A file, which test it is, and what is told of that: `rate` in 1/s, `temperature` in °C.

    The test is '' where each curve of the file says its own.
    """

    __test__ = False  # no case of pytest's

    test: str
    path: str | Frame
    settings: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """The files of one material's tests; `apart` where each test that they hold is a material of its own."""

    name: str
    files: tuple[TestFile, ...]
    apart: bool = False


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
    tables, plain = _tables_among(arguments)
    for table in tables:
        records += _read_table(table, law)
    return records + _of_plain_files(find_files(plain), law)


def _tables_among(arguments: Sequence[str]) -> tuple[list[pathlib.Path], list[str]]:
    """The tables of tests among files and folders, and the other arguments."""
    tables, plain = [], []
    for argument in arguments:
        path = pathlib.Path(argument)
        table = path / TABLE if path.is_dir() else path
        if table.is_file() and (table.name == TABLE or _is_table(table)):
            tables.append(table)
        else:
            plain.append(argument)
    return tables, plain


def named_tests(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tests that TEST=FILE and tables of tests name, and the arguments that name none."""
    named = [argument for argument in arguments if names_a_test(argument)]
    tables, plain = _tables_among([argument for argument in arguments if argument not in named])
    tests = [argument.partition("=")[0] for argument in named]
    for table in tables:
        header, rows = _rows_of_table(table)
        tests += [row.get("test") or "" for row in rows] if "test" in header else []
        if "test" not in header and set(header) & set(_SETTINGS):
            tests.append(RateAndTemperature.name)
    return tests, plain


def _of_plain_files(paths: Sequence[str | Frame], law: Law) -> list[RecordFiles]:
    """Files of which nothing is said: a material each, or all tests of one where the law wants several."""
    if not paths:
        return []
    files = [TestFile(law.tests[0] if len({*law.tests}) == 1 else "", path) for path in paths]
    if len(law.tests) > 1:
        return [RecordFiles(_name_of(files), tuple(files))]
    return [_alone(file) for file in files]


def _alone(file: TestFile) -> RecordFiles:
    return RecordFiles(_stem(file), (file,), apart=True)


def _stem(file: TestFile) -> str:
    return file.path.stem if isinstance(file.path, Frame) else pathlib.Path(file.path).stem


def _name_of(files: Sequence[TestFile]) -> str:
    stems = [_stem(file) for file in files]
    name = "+".join(dict.fromkeys(stems))
    return name if len(name) <= _LONGEST_NAME else f"{stems[0]} and {len(files) - 1} more"


def _is_table(path: pathlib.Path) -> bool:
    if path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return False
    with path.open("rb") as file:
        first = file.readline(1000).decode("utf-8-sig", "replace")
    columns = {_column_of_table(cell.strip().strip('"'))[0] for cell in re.split("[,;\t]", first)}
    return "file" in columns and bool(columns & {"test", "material", *_SETTINGS})


def _column_of_table(cell: str) -> tuple[str, str]:
    """The column of a table of tests that a cell of its header names, and its unit: `Dehnrate [1/min]`."""
    name = cell.strip().lower()
    setting, unit = condition_named(cell)
    return (setting, unit) if setting in _SETTINGS else (_ALSO_CALLED.get(name, name), "")


def _rows_of_table(path: pathlib.Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns of a table of tests, and its rows, units beside their values; InputError where it is none."""
    text = read_bytes(path).decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip(" ,;\t")]
    if len(lines) < 2:
        raise InputError(
            f"{path}: it names no file; a header ({', '.join(_COLUMNS)}) and a row a test"
        )
    delimiter = max(",;\t", key=lines[0].count)
    rows = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    split = [_column_of_table(cell) for cell in rows[0]]
    header = [name for name, _ in split]
    for name in header:
        if name not in _COLUMNS:
            raise InputError(
                f"{path}: a table of tests has no column '{name}'{nearest(name, _COLUMNS)}"
            )
    found = []
    for cells in rows[1:]:
        filled = [cell.strip() for cell in cells]
        filled = [
            f"{cell} {unit}" if cell and unit else cell
            for cell, (_, unit) in zip(filled, split, strict=False)
        ]
        found.append(dict(zip(header, filled, strict=False)))
    return header, found


def _read_table(path: pathlib.Path, law: Law) -> list[RecordFiles]:
    """The materials of a table of tests; InputError names the line."""
    header, rows = _rows_of_table(path)
    kinds = list(dict.fromkeys(law.tests))
    if "file" not in header or ("test" not in header and len(kinds) > 1):
        missing = "file" if "file" not in header else "test"
        raise InputError(f"{path}: a table of tests needs a column '{missing}'")
    materials: dict[str, list[TestFile]] = {}
    for number, row in enumerate(rows, start=2):
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
        # `293 K`, `0.06 1/min`; a bare number is in °C, or in 1/s.
        has_unit = bool(re.search(r"[^\d.eE+-]", number))
        said = value_with_unit(name, number, "") if has_unit else number
        if has_unit and name == "temperature":
            value = temperature_of(said)[0]
        else:
            value = float(said.removesuffix(" 1/s"))
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
            paths |= {len(found) + i: str(record.files[0].path) for i in range(len(tests))}
            found += [MeasuredRecord(test.name, [test]) for test in tests]
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
    read: Callable[..., list[RawCurve]] = read_curves,
) -> list[MeasuredTest]:
    """The tests of one file, one a specimen; InputError, one line that names the file, for what cannot be one.

    Args:
      read: in the place of `read_curves`, by who keeps what it returned.
    """
    is_curve = file.test == MONOTONIC
    named = [file.test] if file.test else target.law.tests if target.law else ()
    programmes = [Monotonic() if is_curve else programme_class(name)() for name in named]
    tests = []
    raws = read(
        file.path,
        options,
        wanted_measures(target),
        of_test=not is_curve,
        needs_time=any("time" in programme.channels for programme in programmes),
        # Other tests turn, or are held, and come back to zero.
        one_loading=all(
            isinstance(programme, Monotonic | Uniaxial | RateAndTemperature)
            for programme in programmes
        ),
    )
    for raw in raws:
        try:
            if is_curve:
                tests.append(clean(raw, target, cleaning))
                continue
            assert target.law is not None
            if not file.test:
                name, said = _test_told_by(raw, target.law, isinstance(file.path, Frame))
                raw = dataclasses.replace(raw, steps=(*raw.steps, f"test {name}, as {said}"))
                programmes = [programme_class(name)()]
            tests.append(measured_test(raw, programmes[0], target.law, file.settings, cleaning))
        except InputError as error:
            of = f"curve '{raw.name}': " if len(raws) > 1 else ""
            raise InputError(f"{file.path}: {of}{error}") from error
    return tests


# _MODE_CODES: how rubber is stretched -> words and letters for it that tell it where they are all that a name says.
_MODE_CODES = {
    "uniaxial": "UT ZUG TENSION tension tensile zug zugversuch traction",
    "equibiaxial": "EB ET BT EBT biax",
    "planar": "PS PT",
}


def _test_told_by(raw: RawCurve, law: Law, is_of_frame: bool) -> tuple[str, str]:
    """Which of a law's tests a curve is, and what says so: its held value, its head, or a name; InputError if none."""
    if raw.time is not None:
        known = np.isfinite(raw.strain + raw.stress_mpa)
        rows = raw.time[known], raw.strain[known], raw.stress_mpa[known]
        for test, is_held in (("relaxation", holds_strain), ("creep", holds_stress)):
            if test in law.tests and is_held(*rows):
                return test, f"its {programme_class(test).drives} is held"
    name, said = raw.mode_in_head
    # Two small letters within a name may be any.
    words = {word if word.isupper() else word.lower() for word in re.split(r"[\W_\d]+", raw.name)}
    codes = [mode for mode, names in _MODE_CODES.items() if words & {*names.split()}]
    if not name and len(codes) == 1:
        name, said = codes[0], raw.name
    if not name and not codes and raw.tension_in_head:
        name, said = Uniaxial.name, raw.tension_in_head
    if name in ("", Uniaxial.name) and raw.compression_in_head:
        name, said = Compression.name, raw.compression_in_head
    if name and (name in law.tests or (name == Compression.name and Uniaxial.name in law.tests)):
        return name, f"'{shorten(said)}' says"
    kinds = list(dict.fromkeys(law.tests))
    example = " ".join(f"{kind}=FILE" for kind in kinds)
    if is_of_frame:
        example = f"tfmat.identify({{'{kinds[0]}': DataFrame, ...}})"
    raise InputError(
        f"law {law.name} takes several tests of one material, and nothing says which this is; say {example} (one will "
        f"do), or give a table {TABLE} with the columns file and test"
    )


# --------------------------------------------------------------------------------------------------
# Tests of one material as a caller of Python gives them: arrays or files, by the names of the tests.


_CHANNELS = ("strain", "stress", "time", "rate", "temperature")
# FOR_ARRAYS: options of reading that say something of arrays; tests may have a time, too.
FOR_ARRAYS = ("strain_unit", "stress_unit", "strain_measure", "stress_measure", "shear_strain")


def measured_records(
    given: Any,
    stress: Any,
    law: Law,
    reading: ReadingOptions,
    cleaning: CleaningOptions,
) -> list[MeasuredRecord]:
    """The records of tests that `tfmat.identify` was given by name, or as arrays; InputError for what is none."""
    if not takes_tests(law):
        raise InputError(
            f"law {law.name} is identified from one curve of rising strain; give strain and stress, or a "
            "pandas.DataFrame, or a law that takes tests, e.g. ogden"
        )
    if isinstance(given, Mapping):
        tests = [
            test
            for name, each in given.items()
            for one in _several(each)
            for test in _tests(str(name), one, law, reading, cleaning)
        ]
        if not tests:
            raise InputError("no test given")
        return [MeasuredRecord("+".join(dict.fromkeys(test.name for test in tests)), tests)]
    if stress is not None:
        if len(set(law.tests)) > 1:
            raise InputError(
                f"law {law.name} takes several tests of one material; name them, "
                f"tfmat.identify({{'{law.tests[0]}': (strain, stress), ...}})"
            )
        tests = _tests(law.tests[0], (given, stress), law, reading, cleaning)
        return [MeasuredRecord(tests[0].name, tests)]
    return records_of_files(given, CurveTarget.of_tests(law), law, reading, cleaning)


def records_of_files(
    given: Any,
    target: CurveTarget,
    law: Law | None,
    reading: ReadingOptions,
    cleaning: CleaningOptions,
) -> list[MeasuredRecord]:
    """The records of one or several files, folders or patterns; InputError names all that cannot be read."""
    files = files_given(given)
    frames = [each for each in files if isinstance(each, Frame)]
    found = find_records([each for each in files if isinstance(each, str)], law)
    if law is None or not takes_tests(law):
        found += [_alone(TestFile(MONOTONIC, frame)) for frame in frames]
    else:
        found += _of_plain_files(frames, law)
    records, errors = load_records(found, target, reading, cleaning=cleaning)
    if errors:
        raise InputError("; ".join(map(str, errors)))
    return records


def files_given(given: Any) -> list[str | Frame]:
    """The files, folders, patterns and DataFrames of a caller: one, or several; InputError for anything else."""
    several = isinstance(given, list | tuple) or not (
        isinstance(given, str | os.PathLike) or is_frame(given)
    )
    given = list(given) if several else [given]
    if not all(isinstance(each, str | os.PathLike) or is_frame(each) for each in given):
        raise InputError("strains need their stresses: tfmat.identify(strain, stress)")
    frames = sum(map(is_frame, given))
    found: list[str | Frame] = []
    for number, each in enumerate(given, start=1):
        if is_frame(each):
            found.append(Frame(f"DataFrame {number}" if frames > 1 else "DataFrame", each))
        else:
            found.append(os.fspath(each))
    return found


def _several(given: Any) -> Sequence[Any]:
    """The tests of one name: a list holds several, everything else is one."""
    return given if isinstance(given, list) else [given]


def _tests(
    name: str, given: Any, law: Law, reading: ReadingOptions, cleaning: CleaningOptions
) -> list[MeasuredTest]:
    check_test_name(name, law)
    if isinstance(given, str | os.PathLike) or is_frame(given):
        file = TestFile(name, Frame(name, given) if is_frame(given) else os.fspath(given))
        return load_test(file, CurveTarget.of_tests(law), reading, cleaning)
    if isinstance(given, Mapping):
        for key in given:
            if key not in _CHANNELS:
                raise InputError(
                    f"test {name} has no channel '{key}'{nearest(str(key), _CHANNELS)}"
                )
        channels = dict(given)
    else:
        if not hasattr(given, "__len__") or not 2 <= len(given) <= 3:
            raise InputError(
                f"test {name} is {type(given).__name__}; give a file, a DataFrame, (strain, stress), "
                "(strain, stress, time), or a mapping with rate and temperature"
            )
        channels = dict(zip(("strain", "stress", "time"), given, strict=False))
    if not {"strain", "stress"} <= set(channels):
        raise InputError(f"test {name} needs its strain and its stress, [points] each")
    for field in dataclasses.fields(reading):
        known = field.name in (*FOR_ARRAYS, "time_unit")
        if not known and getattr(reading, field.name) != field.default:
            raise InputError(
                f"option '{field.name}' is for files; leave it out for arrays, as of test {name}"
            )
    try:
        time = None
        if channels.get("time") is not None:
            factor = find_time_unit(reading.time_unit or "s")[1]
            time = factor * _plain("time", channels["time"], None)
        raw = RawCurve(
            name=name,
            strain=_plain("strain", channels["strain"], reading.strain_unit),
            stress_mpa=_plain("stress", channels["stress"], reading.stress_unit),
            strain_measure=reading.strain_measure,  # type: ignore[arg-type]
            stress_measure=reading.stress_measure,  # type: ignore[arg-type]
            shear_strain=reading.shear_strain,  # type: ignore[arg-type]
            steps=(f"took {len(channels['strain'])} points of arrays",),
            assumed=() if reading.strain_unit else ("strain in mm/mm",),
            sure_units=reading.given_units,
            time=time,
        )
        lengths = {
            len(raw.strain),
            len(raw.stress_mpa),
            *([] if raw.time is None else [len(raw.time)]),
        }
        if len(lengths) > 1:
            raise InputError(
                f"its arrays have {' and '.join(map(str, sorted(lengths)))} points; give as many of each"
            )
        settings = {
            key: float(numbers_of(key, channels[key], 0))
            for key in ("rate", "temperature")
            if channels.get(key) is not None
        }
        return [measured_test(raw, programme_class(name)(), law, settings, cleaning)]
    except InputError as error:
        raise InputError(f"test {name}: {error}") from error


def numbers_of(name: str, values: Any, dimensions: int | None = None) -> np.ndarray:
    """An array of numbers with so many dimensions; InputError for anything else, such as points that are masked."""
    array = np.asarray(values)
    if np.ma.is_masked(values):
        count = np.ma.count_masked(values)
        raise InputError(f"{name} is masked at {count} of {array.size} points; leave these out")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} has type {array.dtype}; give numbers")
    if dimensions is not None and array.ndim != dimensions:
        wanted = "numbers [points]" if dimensions else "one number"
        raise InputError(f"{name} has shape {array.shape}; give {wanted}")
    return array


def _plain(axis: str, values: Any, unit: str | None) -> Array:
    """One channel as finite float64 [points], in plain strain, MPa or s."""
    array = numbers_of(axis, values, 1)
    if not np.isfinite(array).all():
        raise InputError(f"{axis} holds NaN or infinity")
    array = array.astype(np.float64)
    if unit is None:
        return array
    known = axis_unit(unit, axis)  # type: ignore[arg-type]
    if known.quantity != axis:
        raise InputError(f"--{axis}_unit={unit} is no unit of {axis}; convert the array first")
    return np.asarray(array * known.factor - (1.0 if known.name == "stretch" else 0.0))


# --------------------------------------------------------------------------------------------------
# Curves and tests to try the program on: those that are shipped, and simulated on the spot for any other law.


# Where the settings of an example's test stand in their ranges, 0-1: large strains, many cycles.
_HIGH = 0.7
_FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples"


def example_curve(law_name: str) -> pathlib.Path | None:
    """The CSV file that is shipped for a law, or None. README.md beside it says how each was made."""
    return next(iter(sorted(_FOLDER.glob(f"{law_name}_simulated_*.csv"))), None)


def write_example_curve(
    law: Law,
    path: str | os.PathLike,
    *,
    parameters: Mapping[str, float] | None = None,
    max_strain: float | None = None,
    noise_mpa: float | None = None,
    seed: int = 0,
) -> pathlib.Path:
    """Simulates one noisy curve, as a testing machine might have exported it, into a CSV file.

    Args:
      parameters: values in the parameters' units; those not named stand in the middle of their range, on its scale.
      max_strain: end of the curve; by default the middle of the law's own range, or before it where a law with a
        strength cut-off exceeds the middle of its range of strengths, or a tension specimen would neck.
      noise_mpa: standard deviation of the stress noise; by default the law's own.

    Returns:
      `path`.
    """
    values = _values(law, parameters or {})
    random = np.random.default_rng(seed)
    end = float(np.mean(law.max_strain)) if max_strain is None else max_strain
    # Unevenly spaced, as a machine that samples in time and does not run at constant speed.
    share = np.cumsum(random.uniform(0.4, 1.6, 150))
    strain = end * (share / share[-1]) ** law.strain_spacing
    stress = law.stress(strain[None], np.array([values]))[0]
    if law.strength_mpa is not None and max_strain is None:
        unbroken = stress <= np.mean(law.strength_mpa)
        strain, stress = strain[unbroken], stress[unbroken]
    if law.stress_measure == "true" and max_strain is None:
        # A specimen necks where stress over stretch, the load, has its maximum; the record of a test ends there.
        before = np.arange(len(strain)) <= int((stress * np.exp(-strain)).argmax())
        strain, stress = strain[before], stress[before]
    stress = stress + random.normal(
        0.0, law.noise_mpa if noise_mpa is None else noise_mpa, len(stress)
    )
    rows = ((f"{e:.6g}", f"{s:.5g}") for e, s in zip(strain, stress, strict=True))
    return _write(path, _header(law), rows)


def write_example_tests(settings: CurveSettings, folder: str | os.PathLike) -> pathlib.Path:
    """Simulates one record of tests, all of them there, into a folder of CSV files with a table of tests.

    The law's parameters stand in the middle of their ranges, on their scales. Parameters of like terms (C1, C2) are
    spread over theirs. Noise and all that no setting says is drawn as for training.

    Returns:
      `folder`.
    """
    settings = dataclasses.replace(settings.resolved(), missing_tests=0.0)
    law, form = settings.build_law(), RecordForm.of(settings)
    form = dataclasses.replace(form, programmes=_telling(form.programmes))
    labels = _middle(law)
    limits = settings.strength_mpa
    features = np.zeros((1, *form.shape), np.float32)
    fill_tests(
        settings,
        form,
        lambda stream: np.random.default_rng([0, stream]),
        lambda history: law.respond(history, law.from_labels(labels)),
        None if limits is None else np.array([np.mean(limits)]),
        features,
    )
    folder = make_folder(folder)
    table = []
    for test, (spec, programme) in enumerate(zip(settings.tests, form.programmes, strict=True)):
        points = features[0, form.part(test)].astype(np.float64)
        points = points[points[:, FLAG] == 0.0]
        names = {name: form.channels.index(name) for name in programme.channels}
        timed = [names["time"]] if "time" in names else []
        header = [*_header(law), *(["time [s]"] if timed else [])]
        name = f"{test + 1}_{programme.name}.csv"
        rows = ([f"{value:.6g}" for value in row] for row in points[:, [STRAIN, STRESS, *timed]])
        _write(folder / name, header, rows)
        told = [
            f"{points[0, names[key]]:.6g}" if key in names else ""
            for key in ("rate", "temperature")
        ]
        table.append([name, spec, *told])
    return _write(folder / TABLE, ["file", "test", "rate", "temperature"], table).parent


def _telling(programmes: Sequence[Programme]) -> tuple[Programme, ...]:
    """The same tests, each with one value of every setting: high in its range, or spread over it among equal tests."""
    random, found = np.random.default_rng(0), list(programmes)
    kinds = [programme.name for programme in programmes]
    for kind in dict.fromkeys(kinds):
        alike = [i for i, name in enumerate(kinds) if name == kind]
        places = (np.arange(len(alike)) + 0.5) / len(alike) if len(alike) > 1 else np.array([_HIGH])
        for setting in programmes[alike[0]].settings:
            for i, place in zip(alike, random.permutation(places), strict=True):
                value = (
                    float(setting.from_unit_interval(place))
                    if setting.low < setting.high
                    else setting.low
                )
                of_others = {s.name: (s.low, s.high) for s in found[i].settings}
                found[i] = type(found[i])({**of_others, setting.name: (value, value)})
    return tuple(found)


def _middle(law: Law) -> Array:
    """Labels [1, identified] in the middle of the ranges; labels of numbered parameters spread over theirs."""
    names = [parameter.name.rstrip("0123456789") for parameter in law.identified]
    counts = collections.Counter(names)
    seen: collections.Counter[str] = collections.Counter()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(1.0 - seen[name] / (counts[name] + 1))
    return law.sorted_labels(np.array([labels]))


def _header(law: Law) -> list[str]:
    kind = {"engineering shear": "shear"}.get(law.strain_measure, law.strain_measure)
    return [f"{kind}_strain [-]", f"{law.stress_measure}_stress [MPa]"]


def _write(
    path: str | os.PathLike, header: Sequence[str], rows: Iterable[Sequence[str]]
) -> pathlib.Path:
    with atomic_write(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return pathlib.Path(path)


def _values(law: Law, given: Mapping[str, float]) -> list[float]:
    """A value for every parameter of the law: given, fixed, or the middle of its range."""
    known = [parameter.name for parameter in law.parameters]
    for name in given:
        if name not in known:
            raise InputError(f"law {law.name} has no parameter '{name}'{nearest(name, known)}")
    middle = [
        p.fixed if p.fixed is not None else float(p.from_unit_interval(0.5)) for p in law.parameters
    ]
    return [given.get(name, value) for name, value in zip(known, middle, strict=True)]
