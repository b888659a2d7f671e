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
from tfmat.materials.law import Array, History, Law, Mode, TestSet
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
}
_RUBBER = ("planar", "two_tests", "three_tests")
_OTHERS = ("dense", "few", "noisy", "strain_noise", "extensometer", "zero", "toe")
_LAW = flags.DEFINE_multi_enum("law", list(RANGES), list(RANGES), "laws")
_KIND = flags.DEFINE_multi_enum("kind", [*_OTHERS, *_RUBBER], [*_OTHERS, *_RUBBER], "of records")
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


def tests_of(
    kind: str, law: Law, truth: Array, random: np.random.Generator
) -> dict[str, tuple[Array, Array]]:
    """Tests of rubber by their names, with every error that an interval holds: strain and stress, [25 points] each."""
    modes: dict[str, tuple[Mode, ...]] = {
        "planar": ("planar",),
        "two_tests": ("uniaxial", "equibiaxial"),
    }
    extensometer = 1.0 + random.normal(0.0, 0.02)
    tests: dict[str, tuple[Array, Array]] = {}
    for mode in modes.get(kind, ("uniaxial", "equibiaxial", "planar")):
        strain = np.linspace(0.0, random.uniform(1.0, 3.0 if mode == "uniaxial" else 1.5), 26)[1:]
        history = TestSet((History(mode=mode, strain=strain[None]),))
        stress = law.label_stress(history, law.to_labels(truth[None]))[0]
        noise = random.normal(0.0, 0.01, len(stress)) + random.normal(0.0, 0.005)
        tests[mode] = strain * extensometer, stress + noise * float(stress.max())
    return tests


def study(name: str, kind: str, count: int, samples: int, told: Callable[[str], None]) -> _Counts:
    """How the intervals of `count` records of a law and kind fare."""
    law, source, counts = find_law(name), law_alone(name), None
    measures: Any = (None, None) if "shear" in law.strain_measure else ("true", "true")
    started = time.monotonic()
    for number in range(count):
        if time.monotonic() - started > _SECONDS.value:
            break
        random = np.random.default_rng([number, [*_OTHERS, *_RUBBER].index(kind)])
        truth = truth_of(name, random)
        values = np.array(list(truth.values()))
        counts = counts or _Counts(np.zeros(len(values)), np.zeros(len(values)), [])
        drawn = 1000 if number < samples else 0
        try:
            if name == "ogden":
                data = tests_of(kind, law, values, random)
                (record,) = measured_records(data, None, law, ReadingOptions(), CleaningOptions())
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
            if (kind in _RUBBER) != (name == "ogden") or (kind, name) == ("toe", "hahn_tsai"):
                continue
            counts = study(name, kind, _COUNT.value, _SAMPLES.value, told)
            print(table_row(name, kind, counts, list(RANGES[name])), flush=True)


if __name__ == "__main__":
    app.run(main)
