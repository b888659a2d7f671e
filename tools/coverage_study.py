"""How often 95 % intervals of `tfmat identify` hold the truth of simulated records, and how wide they are.

  .venv/bin/python tools/coverage_study.py                              all laws and kinds, 200 records each: an hour
  .venv/bin/python tools/coverage_study.py --seconds=60             fewer where they take long: 25 minutes
  .venv/bin/python tools/coverage_study.py --law=voce --kind=few --count=20 --samples=5

One line for each law and kind of record. "held" counts, for each parameter, the records whose interval holds the truth;
an answer that is not to be used ("blocked") is not counted, and "open" counts the records that name the parameter as
bounded on one side or not identified. "over posterior" is the median width over the posterior's, of `--samples`
records.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from tfmat.errors import InputError
from tfmat.identification.answer import Identification, identify
from tfmat.identification.networks import law_alone
from tfmat.materials import find_law
from tfmat.materials.law import Array, History, Law, Mode
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.files import measured_records
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import MeasuredRecord

# RANGES: of true parameters; logarithmic for those that are never negative.
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "voce": {"E": (65e3, 215e3), "sigma0": (150, 600), "Q": (100, 400), "b": (6, 30)},
    "swift": {"E": (65e3, 215e3), "K": (400, 1200), "epsilon0": (2e-3, 0.02), "n": (0.1, 0.3)},
    "hahn_tsai": {"G0": (3000, 7000), "a": (5e-9, 5e-8)},
    "ogden": {"mu1": (0.15, 0.5), "alpha1": (1.2, 2.2), "mu2": (5e-3, 0.03), "alpha2": (3.5, 5.0)},
    "voce_chaboche_1": {
        "E": (170e3, 215e3), "sigma0": (150, 500), "Q": (20, 200), "b": (2, 20), "C1": (5e3, 5e4), "gamma1": (20, 200),
    },
    "ladeveze_shear": {
        "G0": (3500, 6000), "tau_y": (15, 40), "C": (300, 1000), "m": (0.3, 0.6), "alpha": (0.1, 0.3), "S0": (15, 40),
        "dmax": (0.6, 0.95),
    },
    "perzyna": {
        "E": (65e3, 215e3), "sigma0": (50, 300), "Q": (30, 200), "b": (10, 100), "K": (50, 500), "n": (3, 10),
    },
    "norton": {"E": (65e3, 215e3), "K": (500, 5000), "n": (3, 8)},
}  # fmt: skip
# _KINDS: of records, and the laws whose records can be so; those of several tests, or of a history, have all errors
# that an interval holds.
_METALS, _CURVES = ("voce", "swift"), ("voce", "swift", "hahn_tsai")
_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("dense", "few", "noisy", "strain_noise", "extensometer", "zero"), _CURVES),
    "toe": _METALS,
    **dict.fromkeys(("planar", "two_tests", "three_tests"), ("ogden",)),
    "cyclic": ("voce_chaboche_1",),
    "unloading": ("ladeveze_shear",),
    "rates": ("perzyna",),
    "creep": ("norton",),
}
_LAW = flags.DEFINE_multi_enum("law", list(RANGES), list(RANGES), "laws")
_KIND = flags.DEFINE_multi_enum("kind", list(_KINDS), list(_KINDS), "of records")
_COUNT = flags.DEFINE_integer("count", 200, "records for each law and kind", lower_bound=1)
_SECONDS = flags.DEFINE_float("seconds", 3600.0, "no further record of a law and kind after them")
_SAMPLES = flags.DEFINE_integer("samples", 0, "of these records the posterior is sampled too")
_WRONG = flags.DEFINE_bool("wrong", False, "also print each record whose interval misses the truth")


@dataclasses.dataclass
class _Counts:
    held: Array
    open: Array
    ratios: list[Array]
    used: int = 0
    blocked: int = 0
    refused: int = 0


def truth_of(law: str, random: np.random.Generator) -> dict[str, float]:
    """True parameters, even on a logarithmic scale."""
    ranges = RANGES[law].items()
    return {name: float(np.exp(random.uniform(*np.log(ends)))) for name, ends in ranges}


def record_of(
    kind: str, law: Law, truth: Array, random: np.random.Generator
) -> tuple[Array, Array]:
    """Strain and stress of one rising loading, [points], in the law's measures."""
    end = random.uniform(0.08, 0.15) if law.name != "hahn_tsai" else random.uniform(0.04, 0.08)
    strain = np.concatenate([np.linspace(1e-4, 0.004, 40), np.linspace(0.005, end, 80)])
    if kind == "few":
        strain = np.linspace(0.0, end, int(random.integers(15, 31)))[1:]
    stress = law.stress(strain[None], truth[None])[0]
    top = float(np.abs(stress).max())
    noise = {"few": 0.002, "noisy": 0.01}.get(kind, 0.001)
    measured = stress + random.normal(0.0, noise * top, len(stress))
    elastic = stress / truth[0]
    if kind == "strain_noise":
        strain = strain + random.normal(0.0, 16e-6, len(strain))
    elif kind == "extensometer":
        strain = strain + random.normal(0.0, 0.02) * elastic
    elif kind == "zero":
        measured = measured + random.normal(0.0, 0.005) * top
    elif kind == "toe":
        slack = random.uniform(5e-4, 1.5e-3)
        strain = strain + slack * (1.0 - np.exp(-stress / (0.05 * top)))
    order = np.argsort(strain)
    return strain[order], measured[order]


def histories_of(kind: str, truth: Array, random: np.random.Generator) -> list[tuple[str, History]]:
    """The tests of a record by their names, and what the machine drives in each, without errors."""
    if kind == "cyclic":  # three cycles
        turns = random.uniform(0.006, 0.015) * np.array([0, 1, -1, 1, -1, 1, -1])
        strain = np.interp(np.linspace(0, 6, 361), range(7), turns)[None, 1:]
        return [("cyclic", History(strain=strain))]
    if kind == "unloading":  # each loading to a higher peak, the last without unloading
        peaks = random.uniform(0.01, 0.02) * np.array([0, 1, 0.5, 2, 1.2, 3, 2, 4])
        strain = np.interp(np.linspace(0, 7, 281), range(8), peaks)[None, 1:]
        return [("cyclic_shear", History("shear", strain=strain))]
    if kind == "rates":  # tension at three rates, and a strain that is held for an hour
        strain = np.concatenate([np.linspace(1e-4, 0.004, 40), np.linspace(0.005, 0.05, 40)])[None]
        ramp = np.linspace(1e-4, 0.01, 40)
        held = np.append(ramp, np.full(60, 0.01))[None]
        time = np.append(1e3 * ramp, 10.0 + np.geomspace(0.3, 3600, 60))[None]
        tension = [History(strain=strain, time=strain / rate) for rate in (1e-5, 1e-3, 1e-1)]
        return [
            *(("tension_at_rate", one) for one in tension),
            ("relaxation", History(strain=held, time=time)),
        ]
    if kind == "creep":  # three stresses by which a metal creeps 0.1 to 2 % in ten hours
        time = np.append(np.linspace(0.5, 10.0, 20), 10.0 + np.geomspace(1.0, 36e3, 80))[None]
        stresses = truth[1] * (np.array([1e-3, 5e-3, 2e-2]) / 36e3) ** (1.0 / truth[2])
        return [
            ("creep", History(stress=each * np.minimum(time / 10.0, 1.0), time=time))
            for each in stresses
        ]
    modes: dict[str, tuple[Mode, ...]] = {
        "planar": ("planar",),
        "two_tests": ("uniaxial", "equibiaxial"),
    }
    tests: list[tuple[str, History]] = []
    for mode in modes.get(kind, ("uniaxial", "equibiaxial", "planar")):
        largest = random.uniform(1.0, 3.0 if mode == "uniaxial" else 1.5)
        tests.append((mode, History(mode, strain=np.linspace(0.0, largest, 26)[None, 1:])))
    return tests


def tests_of(
    kind: str, law: Law, truth: Array, random: np.random.Generator
) -> dict[str, list[dict[str, Array]]]:
    """Tests by their names: channels, [points], with every error that an interval holds.

    One extensometer is off in all tests, by 2 % of rubber's strain and of a metal's elastic one. The zero of each
    test's load is off by 0.5 %. Its answer has noise of 1 % (rubber) or 0.3 % of the largest.
    """
    gain = random.normal(0.0, 0.02)
    tests: dict[str, list[dict[str, Array]]] = {}
    for name, history in histories_of(kind, truth, random):
        answer = law.respond(history, truth[None])[0]
        noise = random.normal(0.0, 0.01 if law.name == "ogden" else 0.003, len(answer))
        answer = answer + noise * np.abs(answer).max()
        strain, stress = history.driven[0], answer
        if history.stress is not None:
            strain, stress = answer, strain
        strain = strain + gain * (strain if law.name == "ogden" else stress / truth[0])
        stress = stress + random.normal(0.0, 0.005) * np.abs(stress).max()
        channels = {"strain": strain, "stress": stress}
        tests.setdefault(name, []).append(
            channels | ({} if history.time is None else {"time": history.time[0]})
        )
    return tests


def study(name: str, kind: str, count: int, samples: int, told: Callable[[str], None]) -> _Counts:
    """How the intervals of `count` records of a law and kind fare."""
    law, source, counts = find_law(name), law_alone(name), None
    is_true = law.strain_measure == "true"
    measures: Any = ("true", "true") if is_true else (None, None)
    started = time.monotonic()
    for number in range(count):
        if time.monotonic() - started > _SECONDS.value:
            break
        random = np.random.default_rng([number, list(_KINDS).index(kind)])
        truth = truth_of(name, random)
        values = np.array(list(truth.values()))
        counts = counts or _Counts(np.zeros(len(values)), np.zeros(len(values)), [])
        drawn = 1000 if number < samples else 0
        try:
            if name not in _CURVES:
                data = tests_of(kind, law, values, random)
                reading = ReadingOptions(strain_measure=measures[0], stress_measure=measures[1])
                (record,) = measured_records(data, None, law, reading, CleaningOptions())
            else:
                raw = RawCurve("record", *record_of(kind, law, values, random), *measures)
                record = MeasuredRecord.of(clean(raw, source.target))
            # No law is looked for that fits better, which takes most of the time.
            (answer,) = identify(source, [record], samples=drawn, effort="alone")
        except InputError as error:
            counts.refused += 1
            told(f"{name} {kind} {number}: {error}")
            continue
        _count(counts, answer, values, f"{name} {kind} {number}", told)
    assert counts is not None
    return counts


def _count(
    counts: _Counts, answer: Identification, values: Array, what: str, told: Callable[[str], None]
) -> None:
    if answer.do_not_use:
        counts.blocked += 1
        told(f"{what}: {answer.do_not_use}")
        return
    counts.used += 1
    names = list(answer.parameters)
    limits = np.array([answer.parameters[name].ci95 for name in names])
    held = (limits[:, 0] <= values) & (values <= limits[:, 1])
    counts.held += held
    said = [w.text for w in answer.warnings if w.kind in _OPEN]
    counts.open += [any(text.startswith(f"{name} ") for text in said) for name in names]
    if not held.all():
        told(f"{what}: {values} {limits.tolist()} {[w.kind for w in answer.warnings]}")
    if answer.samples is not None:
        ends = np.quantile(answer.samples.values, [0.025, 0.975], axis=0)
        counts.ratios.append(np.ptp(limits, axis=1) / np.ptp(ends, axis=0))


# _OPEN: kinds of warnings that name a parameter as open.
_OPEN = ("bounded on one side", "cannot be identified", "no best value")


def table_row(name: str, kind: str, counts: _Counts, parameters: Sequence[str]) -> str:
    """One line of the table."""
    share = 100.0 / max(counts.used, 1)
    cells: Mapping[str, str] = {
        "records": str(counts.used + counts.blocked + counts.refused),
        "held": ", ".join(f"{value:.0f}" for value in share * counts.held),
        "open": ", ".join(f"{value:.0f}" for value in share * counts.open),
        "blocked": str(counts.blocked),
        "refused": str(counts.refused),
    }
    row = f"| {name} {', '.join(parameters)} | {kind} | {' | '.join(cells.values())} |"
    if counts.ratios:
        ratios = np.array(counts.ratios)
        middle, least = np.median(ratios, axis=0), ratios.min(axis=0)
        row += " " + ", ".join(f"{value:.2f}" for value in middle)
        row += " (least " + ", ".join(f"{value:.2f}" for value in least) + ") |"
    return row


def main(argv: list[str]) -> None:
    """Prints one row for each law and kind."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]}")
    told = print if _WRONG.value else (lambda _: None)
    print(
        "| law | kind | records | held, % | open, % | blocked | refused | over posterior |",
        flush=True,
    )
    for kind in _KIND.value:
        for name in _LAW.value:
            if name not in _KINDS[kind]:
                continue
            counts = study(name, kind, _COUNT.value, _SAMPLES.value, told)
            print(table_row(name, kind, counts, list(RANGES[name])), flush=True)


if __name__ == "__main__":
    app.run(main)
