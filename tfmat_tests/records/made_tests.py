"""Records of tests whose truth is known, as files, and what is read of them."""

import itertools
import pathlib
from typing import ClassVar

import numpy as np

from tfmat.materials.law import Array, History, HistoryLaw, Parameter
from tfmat.materials.registry import find_law
from tfmat.records.files import find_records, load_records
from tfmat.records.reading import ReadingOptions
from tfmat.records.record import CurveTarget
from tfmat_tests.records.files import write


class Plastic(HistoryLaw):
    """Elastic, perfectly plastic: the simplest law that remembers."""

    name = "plastic"
    title = "elastic, perfectly plastic"
    formula = "-"
    source = "-"
    parameters = (
        Parameter("E", "MPa", 100e3, 300e3, "log"),
        Parameter("yield_stress", "MPa", 100.0, 600.0, "log"),
    )
    strain_measure = "true"
    stress_measure = "true"
    max_strain = (0.01, 0.1)
    tests: ClassVar[tuple[str, ...]] = ("cyclic",)

    def respond(self, history: History, parameters: Array) -> Array:
        strain = np.broadcast_to(history.driven, (len(parameters), history.driven.shape[1]))
        modulus, limit = parameters.T
        stress, answer = np.zeros(len(parameters)), np.empty(strain.shape)
        for i, step in enumerate(np.diff(strain, axis=1, prepend=0.0).T):
            stress = np.clip(stress + modulus * step, -limit, limit)
            answer[:, i] = stress
        return answer


LAW = Plastic()
TRUTH = np.array([[200e3, 300.0]])


def cycles(amplitudes=(0.01, -0.01, 0.012, -0.012), points=40) -> Array:
    """Strain through these turning points, evenly."""
    knots = [0.0, *amplitudes]
    parts = [np.linspace(a, b, points + 1)[1:] for a, b in itertools.pairwise(knots)]
    return np.concatenate([[0.0], *parts])


def saved(folder: pathlib.Path, header: str, *columns, name: str = "test.csv") -> str:
    rows = "\n".join(
        ",".join(f"{value:.9g}" for value in row) for row in zip(*columns, strict=True)
    )
    return str(write(folder, f"{header}\n{rows}\n", name))


# Rubber: a Neo-Hookean one, whose answers are P = mu (λ - λ^-2), mu (λ - λ^-5) and mu (λ - λ^-3).
OGDEN = find_law("ogden")
STRETCH = np.linspace(1.05, 3.0, 20)


def rubber(folder: pathlib.Path, exponent: int, header="", name="UT.txt", stretch=STRETCH) -> str:
    return saved(folder, header, 0.5 * (stretch - stretch ** float(exponent)), stretch, name=name)


# Johnson-Cook's 4340 steel.
STEEL = find_law("johnson_cook")
STEEL_VALUES = np.array([[200e3, 792.0, 510.0, 0.26, 0.014, 1.03, 1.0, 20.0, 1500.0]])


def tension(
    folder: pathlib.Path, rate: float, temperature: float, name: str, head: str = ""
) -> str:
    strain = 0.2 * np.linspace(0.0, 1.0, 60) ** 2
    history = History(
        strain=strain[None], rate=np.array([[rate]]), temperature=np.array([[temperature]])
    )
    stress = STEEL.respond(history, STEEL_VALUES)[0]
    header = f"{head}true strain,true stress (MPa),time (min)"
    return saved(folder, header, strain, stress, strain / rate / 60.0, name=name)


class Viscous(Plastic):
    """Told the time, and nothing else: enough to read its tests."""

    tests: ClassVar[tuple[str, ...]] = ("relaxation",)

    def respond(self, history: History, parameters: Array) -> Array:
        assert history.time is not None
        if history.strain is None:
            return np.asarray(history.driven / parameters[:, :1])
        return parameters[:, :1] * history.strain * np.exp(-1e-4 * history.time)


def relaxation(folder: pathlib.Path, time=None, strain=None, unit="min") -> str:
    time = (
        np.concatenate([np.linspace(0, 10, 20), 10 + np.geomspace(1, 5000, 50)])
        if time is None
        else time
    )
    strain = np.minimum(time / 10, 1.0) * 0.01 if strain is None else strain
    factor = {"min": 60.0, "s": 1.0}[unit]
    stress = 200e3 * strain * np.exp(-1e-4 * time)
    return saved(folder, f"Time [{unit}],true strain,true stress", time / factor, strain, stress)


def read(law, *arguments, **options):
    """The records of arguments, and the errors of their files."""
    return load_records(
        find_records(arguments, law), CurveTarget.of_tests(law), ReadingOptions(**options)
    )


def only(law, *arguments, **options):
    (record,), errors = read(law, *arguments, **options)
    assert not errors
    return record


def refused(law, *arguments, **options) -> str:
    records, errors = read(law, *arguments, **options)
    assert not records and len(errors) == 1
    assert "\n" not in str(errors[0])
    return str(errors[0])
