"""Several specimens of one material in one answer."""

import dataclasses
import json

import msgspec
import numpy as np
import pytest
import scipy.stats

from tfmat.errors import InputError
from tfmat.identification.answer import identify, pool, scatter_over_intervals
from tfmat.identification.networks import law_alone
from tfmat.materials import History, find_law
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import measured_records, write_example_curve
from tfmat.records.reading import ReadingOptions
from tfmat.records.record import Caveat, MeasuredRecord, MeasuredTest
from tfmat_tests.records.files import load_measured_curves

MODULI = (4600.0, 5000.0, 5500.0)


@pytest.fixture(scope="module")
def results(identifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("specimens")
    law = find_law("hahn_tsai")
    paths = [
        write_example_curve(
            law, folder / f"{i}.csv", parameters={"G0": G0, "a": 3e-8}, seed=i, max_strain=0.03
        )
        for i, G0 in enumerate(MODULI)
    ]
    curves, errors = load_measured_curves(paths, identifier.target)
    assert errors == []
    return identify(identifier, curves)


def test_values_are_means_and_the_scatter_is_that_between_specimens(identifier, results):
    (pooled,) = pool(results)
    values = np.array([result.parameters["G0"].value for result in results])
    answer = pooled.parameters["G0"]
    assert answer.value == pytest.approx(values.mean())
    assert answer.std == pytest.approx(values.std(ddof=1))
    expected = scipy.stats.t.interval(0.95, 2, values.mean(), scipy.stats.sem(values))
    np.testing.assert_allclose(answer.ci95, expected)
    # A logarithmic parameter: the geometric mean.
    logarithms = np.log([result.parameters["a"].value for result in results])
    assert np.log(pooled.parameters["a"].value) == pytest.approx(logarithms.mean())
    assert pooled.parameters["G0"].least_squares == pytest.approx(5000, rel=0.05)
    # One more of four: Student's t with the scatter and the mean's own error.
    further = scipy.stats.t.interval(0.95, 2, values.mean(), values.std(ddof=1) * np.sqrt(4 / 3))
    np.testing.assert_allclose(answer.next_specimen_ci95, further)
    content = pooled.to_json()
    assert content["curve"] == "pooled (3 specimens)"
    assert content["num_points"] == sum(len(result.curve.strain) for result in results)
    assert "std is the scatter between specimens" in content["steps"][0]


def test_given_parameters_stay_given(identifier, results):
    conditioned = identify(identifier, [r.curve for r in results], fixed={"G0": 5000.0})
    (pooled,) = pool(conditioned)
    assert pooled.parameters["G0"].fixed
    assert pooled.parameters["a"].least_squares == pytest.approx(3e-8, rel=0.3)
    assert pooled.parameters["a"].value == pytest.approx(3e-8, rel=0.3)


def test_one_specimen_is_not_pooled(identifier, results):
    with pytest.raises(InputError, match="at least two"):
        pool(results[:1])


def test_what_must_not_be_used_is_left_out_by_name(results):
    refused = dataclasses.replace(
        results[0], warnings=[Caveat("wrong unit", "its stress is in ksi", blocks=True)]
    )
    (pooled,) = pool([refused, *results[1:]])
    values = [result.parameters["G0"].value for result in results[1:]]
    assert pooled.parameters["G0"].value == pytest.approx(np.mean(values))
    (said,) = others(pooled)
    assert "0 (wrong unit)" in said.text
    with pytest.raises(InputError, match="at least two usable curves .*not to be used: 0, 1"):
        pool([refused, dataclasses.replace(results[1], warnings=refused.warnings), results[2]])


def test_specimens_of_several_tests_are_pooled(tmp_path):
    """Three specimens of Mooney-Rivlin rubber with two tests each, without noise: their own values come back."""
    law = find_law("mooney_rivlin")
    truth = np.array([[0.2, 0.04], [0.25, 0.05], [0.3, 0.07]])
    records = []
    for i, values in enumerate(truth):
        given = {}
        for mode in ("uniaxial", "equibiaxial"):
            strain = np.linspace(0.05, 2.0, 20 + 5 * i)
            stress = law.respond(History(mode, strain=strain[None]), values[None])[0]
            given[mode] = (strain, stress)
        (record,) = measured_records(given, None, law, ReadingOptions(), CleaningOptions())
        records.append(dataclasses.replace(record, name=f"specimen {i}"))
    results = identify(law_alone("mooney_rivlin"), records)
    (pooled,) = pool(results)
    assert pooled.parameters["C01"].value == pytest.approx(truth[:, 1].mean(), rel=1e-4)
    assert pooled.parameters["C01"].std == pytest.approx(truth[:, 1].std(ddof=1), rel=1e-4)
    logarithms = np.log(truth[:, 0])
    assert np.log(pooled.parameters["C10"].value) == pytest.approx(logarithms.mean(), abs=1e-4)
    # One set of parameters for all: linear least squares.
    basis, stress = [], []
    for record in records:
        for test in record.tests:
            both = [law.respond(test.history, np.array([row]))[0] for row in ([1.0, 0], [0, 1.0])]
            basis.append(np.stack(both, axis=1))
            stress.append(test.response)
    expected = np.linalg.lstsq(np.concatenate(basis), np.concatenate(stress), rcond=None)[0]
    found = [pooled.parameters[name].least_squares for name in ("C10", "C01")]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    content = json.loads(json.dumps(pooled.to_json()))
    assert content["curve"] == "pooled (3 specimens)" and len(content["tests"]) == 6
    assert content["tests"][0]["name"].startswith("specimen 0: ")
    assert len(content["steps"]) == 1
    assert len(pooled.picture().tests) == 6
    assert "*HYPERELASTIC" in pooled.card("abaqus")


def test_what_no_specimen_tells_is_not_told_by_their_scatter(results):
    def without_std(result):
        unknown = msgspec.structs.replace(result.parameters["a"], method="least_squares", std=None)
        return dataclasses.replace(result, parameters={**result.parameters, "a": unknown})

    (pooled,) = pool([without_std(result) for result in results])
    assert (pooled.parameters["a"].std, pooled.parameters["a"].ci95) == (None, None)
    assert pooled.parameters["G0"].ci95 is not None
    (said,) = others(pooled)
    assert said.kind == "cannot be identified" and said.text.startswith("a cannot be identified")
    (pooled,) = pool([*(without_std(result) for result in results[:2]), results[2]])
    assert pooled.parameters["a"].ci95 is not None and others(pooled) == []


def test_specimens_are_pooled_by_their_conditions(results):
    def tested(result, temperature):
        curve = dataclasses.replace(result.curve.curve, conditions={"temperature": temperature})
        return dataclasses.replace(result, curve=MeasuredRecord.of(curve))

    each = [*(tested(result, "20 °C") for result in results[:2]), tested(results[2], "100 °C")]
    hot = tested(results[2], "100 °C")
    cold, warm = pool([*each, hot], ["temperature"])
    (mixed,) = pool([*each, hot], [])
    assert mixed.do_not_use == ["several temperatures"] and not cold.do_not_use
    assert cold.curve.name == "pooled (20 °C, 2 specimens)"
    assert cold.curve.conditions == {"temperature": "20 °C"}
    assert warm.parameters["G0"].value == pytest.approx(results[2].parameters["G0"].value)
    with pytest.raises(InputError, match="no curve says its direction.*known are: temperature"):
        pool(each, ["direction"])


def others(pooled):
    """What is said beside the scatter between the specimens, whose moduli differ."""
    return [caveat for caveat in pooled.warnings if caveat.kind != "specimens disagree"]


@pytest.mark.parametrize("count", [2, 4, 10])
@pytest.mark.parametrize("between", [0.0, 3.0])
def test_scatter_over_intervals_is_that_of_simulated_specimens(count, between):
    """Truths scatter by `between` of the specimens' own standard deviations, which are known: sqrt(1 + between²)."""
    random = np.random.default_rng(0)
    deviation = 0.02
    ratios, chances = [], []
    for _ in range(2000):
        truth = random.normal(0.5, between * deviation, count)
        values = random.normal(truth, deviation)
        ratio, chance = scatter_over_intervals(values, np.full(count, deviation))
        ratios.append(ratio)
        chances.append(chance)
    assert np.mean(np.square(ratios)) == pytest.approx(1.0 + between**2, rel=0.1)
    seldom = np.mean(np.array(chances) < 0.005)
    assert 0.001 < seldom < 0.01 if between == 0 else seldom > 0.3


def voce_specimens(values, noise=1.0):
    """Answers for specimens of Voce's law with these values [specimens, 4], by least squares."""
    source, random = law_alone("voce"), np.random.default_rng(1)
    strain = np.concatenate([np.linspace(1e-5, 0.003, 40), np.linspace(0.0031, 0.15, 160)])
    stress = source.law.stress(np.tile(strain, (len(values), 1)), values)
    stress = stress + noise * random.standard_normal(stress.shape)
    curves = [MeasuredTest(str(i), strain, s) for i, s in enumerate(stress)]
    return identify(source, [MeasuredRecord.of(curve) for curve in curves])


def test_specimens_that_disagree_are_told_with_the_parameter_and_alike_ones_are_not():
    alike = np.tile([200e3, 300.0, 250.0, 12.0], (5, 1))
    specimens = voce_specimens(alike)
    # One extensometer's 2 % are in each interval, and not between the specimens: nothing to tell.
    (pooled,) = pool(specimens)
    assert pooled.warnings == []
    (pooled,) = pool([dataclasses.replace(one, shared_std=None) for one in specimens])
    assert [said.kind for said in pooled.warnings] == ["specimens agree too well"]
    different = alike.copy()
    different[:, 0] *= [0.9, 1.0, 1.1, 0.95, 1.05]
    results = voce_specimens(different)
    (pooled,) = pool(results)
    (said,) = pooled.warnings
    assert said.kind == "specimens disagree"
    assert "E (" in said.text and "sigma0" not in said.text and "Q" not in said.text
    # Both intervals hold what differs: the mean's, and the one of the next specimen.
    low, high = pooled.parameters["E"].next_specimen_ci95
    assert low < 180e3 and high > 220e3
    assert pooled.parameters["E"].ci95[0] < 200e3 < pooled.parameters["E"].ci95[1]
    own = np.array([result.parameters["E"].ci95 for result in results])
    assert np.all(own[:, 1] - own[:, 0] < 0.5 * (high - low))


def test_specimens_that_agree_better_than_their_intervals_share_an_error(results):
    """Six specimens with equal values and intervals of 4 %: the law's error, which all have, is not in the scatter."""
    alike = []
    for i, change in enumerate((0, 1, -1, 0.5, -0.5, 0.2)):
        value = 5000.0 + change
        G0 = msgspec.structs.replace(
            results[0].parameters["G0"], value=value, ci95=(4900.0, 5100.0)
        )
        labels = results[0].labels + 1e-5 * i
        parameters = {**results[0].parameters, "G0": G0}
        changed = {"parameters": parameters, "labels": labels, "shared_std": None}
        alike.append(dataclasses.replace(results[0], **changed))
    (pooled,) = pool(alike)
    (said,) = [caveat for caveat in pooled.warnings if "G0" in caveat.text]
    assert said.kind == "specimens agree too well"
