"""Is what a further test is expected to tell what it then tells?

    .venv/bin/python tools/next_test_study.py ogden --sets=20
    .venv/bin/python tools/next_test_study.py voce_chaboche --sets=20
    .venv/bin/python tools/next_test_study.py treloar --data=FOLDER/rubber_treloar_1944

Of simulated materials one test is known, and further ones are ranked; then those are simulated too, and the posterior
is that of both. Printed is the mean logarithm of the ratio of 95 % intervals, as it was expected and as it came.
Written down before the first run: the means of 20 sets differ by less than three standard errors of their difference
and 0.1.
"""

import argparse
import dataclasses
import json
import pathlib
import time
from typing import Any

import numpy as np

import tfmat
from tfmat.curves.arrays_of_tests import measured_records
from tfmat.curves.cleaning import CleaningOptions
from tfmat.curves.reading import ReadingOptions
from tfmat.curves.settings import CurveSettings
from tfmat.identification.further_tests import FurtherTest, asked_for
from tfmat.identification.next_test import Quantities, next_tests
from tfmat.identification.specimen import intervals, known_of, specimen_of
from tfmat.materials.registry import find_law

# Of a law: the first test, further ones, and the prediction; as `--candidate` has them.
_SETS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "ogden": (
        "uniaxial:max_strain=3",
        ("uniaxial:max_strain=3", "equibiaxial:max_strain=2", "planar:max_strain=2"),
        "equibiaxial:max_strain=1",
    ),
    "voce_chaboche": (
        "cyclic:amplitude=0.006,cycles=2",
        ("cyclic:amplitude=0.02,cycles=2",),
        "cyclic:amplitude=0.015,cycles=4",
    ),
}  # fmt: skip
_POINTS = {"ogden": 30, "voce_chaboche": 60}
_TRELOAR = {"equibiaxial": ("ET.txt", 3.45), "planar": ("PS.txt", 4.0)}


def borne(law: Any, values: np.ndarray, test: FurtherTest) -> FurtherTest:
    """The test, to no more strain than a specimen bears: rubber breaks, and whoever plans a test knows about where."""
    if law.strength_mpa is None:
        return test
    whole = test.history(2000)
    broken = np.abs(law.respond(whole, values)[0]) > law.strength_mpa[0]
    last = int(broken.argmax()) - 1 if broken.any() else -1
    end = {"max_strain": float(f"{max(float(whole.driven[0, last]), 1e-3):.3g}")}
    return dataclasses.replace(test, settings={**test.settings, **end})


def simulated(
    law: Any, values: np.ndarray, test: FurtherTest, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Strain and noisy stress of a test of a material."""
    history = test.history(_POINTS[law.name] + 1)
    stress = law.respond(history, values)[0]
    noisy = stress + law.noise_mpa * np.random.default_rng(seed).standard_normal(len(stress))
    # What has no strain yet is no measured point.
    return history.driven[0, 1:], noisy[1:]


def known(law: Any, tests: dict[str, Any], labels: np.ndarray) -> tuple[Any, Any]:
    """A specimen of these tests, and its posterior, whose sampling starts from the truth."""
    reading = ReadingOptions(strain_measure=law.strain_measure, stress_measure=law.stress_measure)
    (record,) = measured_records(tests, None, law, reading, CleaningOptions(toe="off"))
    specimen, best = specimen_of(law, record, CurveSettings(law=law.name), labels)
    return specimen, known_of(specimen, best[None], replicates=4)


def compare(name: str, first_set: int, sets: int) -> list[dict[str, Any]]:
    """One entry a set and further test: expected and realised ln ratio of each quantity."""
    law = find_law(name)
    first, further, predict = _SETS[name]
    kind = first.partition(":")[0]
    wanted = [asked_for(predict, law, "predict")]
    names = [*(p.name for p in law.identified), predict]
    entries = []
    for i in range(first_set, first_set + sets):
        labels = law.sorted_labels(np.random.default_rng(i).random((1, len(law.identified))))
        values = law.from_labels(labels)
        own = simulated(
            law, values, borne(law, values, asked_for(first, law, "candidate")), 1000 + i
        )
        started = time.process_time()
        specimen, before = known(law, {kind: own}, labels[0])
        tests = [borne(law, values, asked_for(text, law, "candidate")) for text in further]
        found = next_tests(specimen, before, wanted, tests)
        seconds = time.process_time() - started
        quantities = Quantities(law, before, wanted)
        width = log_widths(quantities, before)
        for test, gain in found.tests:
            added = simulated(law, values, test, 2000 + i)
            same = test.programme.name == kind
            given = {kind: [own, added]} if same else {kind: own, test.programme.name: added}
            both, after = known(law, given, labels[0])
            entry = {
                "set": i, "test": further[tests.index(test)], "gain": gain.nats, "gain_error": gain.nats_error,
                "by": "sampling" if gain.sampled else "weights", "failed": gain.failed, "seconds": seconds,
                "noise": [specimen.noise[0], both.noise[0]], "converged": before.converged and after.converged,
                "expected": dict(zip(names, gain.log_ratio.tolist(), strict=True)),
                "error": dict(zip(names, gain.log_ratio_error.tolist(), strict=True)),
                "realised": dict(zip(names, (log_widths(quantities, after) - width).tolist(), strict=True)),
            }  # fmt: skip
            entries.append(entry)
            print(json.dumps(entry), flush=True)
    return entries


def log_widths(quantities: Quantities, posterior: Any) -> np.ndarray:
    """ln of the width of the 95 % interval of each quantity, on the scale that it is compared on."""
    ends = intervals(quantities(posterior.labels), np.exp(posterior.log_weights))
    return np.log(ends[:, 1] - ends[:, 0])


def table(entries: list[dict[str, Any]]) -> str:
    """Means over the sets, a row a test and quantity."""
    rows = [
        "| further test | quantity | sets | expected mean ln ratio | realised | difference |",
        "|---|---|---|---|---|---|",
    ]
    for test in dict.fromkeys(entry["test"] for entry in entries):
        own = [entry for entry in entries if entry["test"] == test]
        for name in own[0]["expected"]:
            expected, realised = (
                np.array([e[key][name] for e in own]) for key in ("expected", "realised")
            )
            difference = realised - expected
            error = difference.std(ddof=1) / np.sqrt(len(own))
            rows.append(
                f"| {test} | {name} | {len(own)} | {expected.mean():.2f} | {realised.mean():.2f} | "
                f"{difference.mean():.2f} ± {error:.2f} |"
            )
    return "\n".join(rows)


def treloar(folder: pathlib.Path) -> None:
    """The interval of two predictions from the uniaxial test alone, as expected with another, and as it then is."""
    asked = {"next_test": True, "predict": ["equibiaxial:max_strain=1", "equibiaxial:max_strain=3"]}
    candidate = [f"{mode}:max_strain={end}" for mode, (_, end) in _TRELOAR.items()]
    own = str(folder / "UT.txt")
    for law in ("ogden", "ogden_3", "yeoh", "mooney_rivlin"):
        alone = tfmat.identify({"uniaxial": own}, law=law, candidate=candidate, **asked)
        if alone.next_test is None:
            print(law, alone.warnings[-1].text)
            continue
        before = [q for q in alone.next_test.quantities if q.is_prediction]
        print(law, [q.interval for q in before], "noise", alone.next_test.noise[0], flush=True)
        for test, gain in alone.next_test.tests:
            mode = test.programme.name
            given = {"uniaxial": own, mode: str(folder / _TRELOAR[mode][0])}
            both = tfmat.identify(given, law=law, candidate=[candidate[0]], **asked)
            if both.next_test is None:
                print("  ", mode, both.warnings[-1].text)
                continue
            after = [q for q in both.next_test.quantities if q.is_prediction]
            for old, new, expected in zip(
                before, after, gain.log_ratio[-len(before) :], strict=True
            ):
                scale = np.log if old.logarithmic else np.asarray
                realised = np.ptp(scale(new.interval)) / np.ptp(scale(old.interval))
                print(
                    f"  + {mode}: {old.name} gain {gain.nats:.2f} ± {gain.nats_error:.2f},"
                    f" expected × {np.exp(expected):.3g}, realised × {realised:.3g}, now {new.interval},"
                    f" noise {both.next_test.noise[0]:.3g}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*_SETS, "treloar"])
    parser.add_argument("--first_set", type=int, default=0)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("rubber_treloar_1944"))
    arguments = parser.parse_args()
    if arguments.what == "treloar":
        treloar(arguments.data)
    else:
        print(table(compare(arguments.what, arguments.first_set, arguments.sets)))
