"""Curves and tests to try the program on: those that are shipped, and simulated on the spot for any other law."""

import collections
import csv
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tfmat.curves.programme import Programme
from tfmat.curves.record_files import TABLE
from tfmat.curves.records import FLAG, STRAIN, STRESS, RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulated_tests import fill_tests
from tfmat.errors import InputError, nearest
from tfmat.files import atomic_write, make_folder
from tfmat.materials.law import Array, Law

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
    num_points: int = 150,
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
    share = np.cumsum(random.uniform(0.4, 1.6, num_points))
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


def write_example_tests(
    settings: CurveSettings, folder: str | os.PathLike, *, seed: int = 0
) -> pathlib.Path:
    """Simulates one record of tests, all of them there, into a folder of CSV files with a table of tests.

    The law's parameters stand in the middle of their ranges, on their scales, those of like terms (C1, C2) spread over
    theirs; noise and all that no setting says is drawn as for training.

    Returns:
      `folder`.
    """
    settings = dataclasses.replace(settings.resolved(), missing_tests=0.0)
    law, form = settings.build_law(), RecordForm.of(settings)
    form = dataclasses.replace(form, programmes=_telling(form.programmes, seed))
    labels = _middle(law)
    limits = settings.strength_mpa
    features = np.zeros((1, *form.shape), np.float32)
    fill_tests(
        settings,
        form,
        lambda stream: np.random.default_rng([seed, stream]),
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


def _telling(programmes: Sequence[Programme], seed: int) -> tuple[Programme, ...]:
    """The same tests, each with one value of every setting: high in its range, or spread over it among equal tests."""
    random, found = np.random.default_rng(seed), list(programmes)
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
    """Labels [1, identified] in the middle of the ranges; those of numbered parameters spread over theirs."""
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
