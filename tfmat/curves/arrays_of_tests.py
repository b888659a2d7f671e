"""Tests of one material as a caller of Python gives them: arrays or files, by the names of the tests."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.curves.axes import ReadingOptions
from tfmat.curves.cleaning import CleaningOptions
from tfmat.curves.cleaning_of_tests import measured_test
from tfmat.curves.measured_tests import MeasuredRecord, MeasuredTest
from tfmat.curves.programmes import programme_class
from tfmat.curves.reading import RawCurve
from tfmat.curves.record_files import (
    TestFile,
    check_test_name,
    find_records,
    load_records,
    load_test,
    takes_tests,
)
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.units import axis_unit
from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array, Law

_CHANNELS = ("strain", "stress", "time", "rate", "temperature")


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
            f"law {law.name} is identified from one curve of rising strain; give strain and stress, or a law "
            "that takes tests, e.g. ogden"
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
        return [MeasuredRecord("+".join(dict.fromkeys(test.curve.name for test in tests)), tests)]
    if stress is not None:
        if len(set(law.tests)) > 1:
            raise InputError(
                f"law {law.name} takes several tests of one material; name them, "
                f"tfmat.identify({{'{law.tests[0]}': (strain, stress), ...}})"
            )
        tests = _tests(law.tests[0], (given, stress), law, reading, cleaning)
        return [MeasuredRecord(tests[0].curve.name, tests)]
    return records_of_files(given, CurveTarget.of_tests(law), law, reading, cleaning)


def records_of_files(
    given: Any,
    target: CurveTarget,
    law: Law | None,
    reading: ReadingOptions,
    cleaning: CleaningOptions,
) -> list[MeasuredRecord]:
    """The records of one or several files, folders or patterns; InputError names all that cannot be read."""
    paths = [given] if isinstance(given, str | os.PathLike) else list(given)
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        raise InputError("strains need their stresses: tfmat.identify(strain, stress)")
    records, errors = load_records(
        find_records([os.fspath(path) for path in paths], law), target, reading, cleaning=cleaning
    )
    if errors:
        raise InputError("; ".join(map(str, errors)))
    return records


def _several(given: Any) -> Sequence[Any]:
    """The tests of one name: a list holds several, everything else is one."""
    return given if isinstance(given, list) else [given]


def _tests(
    name: str, given: Any, law: Law, reading: ReadingOptions, cleaning: CleaningOptions
) -> list[MeasuredTest]:
    check_test_name(name, law)
    if isinstance(given, str | os.PathLike):
        file = TestFile(name, os.fspath(given))
        return load_test(file, CurveTarget.of_tests(law), reading, cleaning)
    if isinstance(given, Mapping):
        for key in given:
            if key not in _CHANNELS:
                raise InputError(
                    f"test {name} has no channel '{key}'{nearest(str(key), _CHANNELS)}"
                )
        channels = dict(given)
    else:
        channels = dict(zip(("strain", "stress", "time"), given, strict=False))
    if not {"strain", "stress"} <= set(channels):
        raise InputError(f"test {name} needs its strain and its stress, [points] each")
    try:
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
            time=None if channels.get("time") is None else _plain("time", channels["time"], None),
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
            key: float(channels[key])
            for key in ("rate", "temperature")
            if channels.get(key) is not None
        }
        return [measured_test(raw, programme_class(name)(), law, settings, cleaning)]
    except InputError as error:
        raise InputError(f"test {name}: {error}") from error


def _plain(axis: str, values: Any, unit: str | None) -> Array:
    """One channel as finite float64 [points], in plain strain, MPa or s."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.ndim != 1:
        raise InputError(
            f"{axis} has type {array.dtype} and shape {array.shape}; give numbers [points]"
        )
    if not np.isfinite(array).all():
        raise InputError(f"{axis} holds NaN or infinity")
    array = array.astype(np.float64)
    if unit is None:
        return array
    known = axis_unit(unit, axis)  # type: ignore[arg-type]
    if known.quantity != axis:
        raise InputError(f"--{axis}_unit={unit} is no unit of {axis}; convert the array first")
    return np.asarray(array * known.factor - (1.0 if known.name == "stretch" else 0.0))
