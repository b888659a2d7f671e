"""Tests of one material identified together: made records whose truth is known, and the published numbers."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

import tfmat
from tfmat.errors import InputError
from tfmat.identification.answer import identify, predict
from tfmat.identification.least_squares import fit, fit_record, residuals_of, thinned
from tfmat.identification.networks import find_network, law_alone
from tfmat.materials.law import History
from tfmat.materials.registry import find_law
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import find_records, load_records, measured_records
from tfmat.records.reading import ReadingOptions
from tfmat.records.record import CurveTarget, MeasuredRecord
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.made_tests import STRETCH, cycles, rubber, saved, tension


def answer(law: str, *arguments: str, **options):
    source = law_alone(law)
    assert source.law is not None
    records, errors = load_records(
        find_records(arguments, source.law), CurveTarget.of_tests(source.law)
    )
    assert not errors
    (found,) = identify(source, records, **options)
    return found


def kinds(found) -> list[str]:
    return [caveat.kind for caveat in found.warnings]


# Of voce_chaboche_1.
STEEL = np.array([[200e3, 300.0, 80.0, 8.0, 20e3, 150.0]])


def followed(values, strain):
    """What voce_chaboche_1 answers, with noise: no other law is searched for where this one comes as near as that."""
    law = find_law("voce_chaboche_1")
    noise = np.random.default_rng(0).normal(0.0, 1.0, len(strain))
    return law.respond(History(strain=strain[None]), values)[0] + noise


@pytest.mark.parametrize("dense", [0, 900])
def test_fewer_points_of_profiles_weigh_as_much_as_all(dense):
    """Standard deviations by fewer points against those by all: a test has few points, or most at its start."""
    law = find_law("voce_chaboche_1")
    strains = [
        np.r_[np.linspace(0.0, 0.002, dense + 10), np.linspace(0.002, 0.1, 200 if dense else 30)],
        cycles((0.01, -0.01, 0.012, -0.012), points=150 if dense else 300),
    ]
    given = [(strain, law.respond(History(strain=strain[None]), STEEL)[0]) for strain in strains]
    measures = ReadingOptions(strain_measure="true", stress_measure="true")
    (record,) = measured_records({"cyclic": given}, None, law, measures, CleaningOptions())
    points = residuals_of(law, record)
    few, all_of_them = (
        np.sqrt(np.diag(np.linalg.inv(each.normal_equations(law.to_labels(STEEL))[0][0])))
        for each in (thinned(record, points), points)
    )
    assert few == pytest.approx(all_of_them, rel=0.25)
    assert few[2:4] == pytest.approx(all_of_them[2:4], rel=0.02)  # of the isotropic hardening


def test_three_modes_of_rubber_give_their_parameters_back(tmp_path):
    law = find_law("mooney_rivlin")
    files = []
    for test, power in (("uniaxial", -0.5), ("equibiaxial", -2.0), ("planar", -1.0)):
        # The closed form: 2 (λ - λ^(2c - 1)) (C10 + C01 λ^(-2c - 2)).
        stress = (
            2 * (STRETCH - STRETCH ** (2 * power - 1)) * (0.2 + 0.05 * STRETCH ** (-2 * power - 2))
        )
        files.append(
            f"{test}={saved(tmp_path, 'stress (MPa),stretch', stress, STRETCH, name=f'{test}.csv')}"
        )
    found = answer("mooney_rivlin", *files)
    assert found.parameters["C10"].value == pytest.approx(0.2, rel=1e-5)
    assert found.parameters["C01"].value == pytest.approx(0.05, rel=1e-5)
    assert not found.do_not_use and found.warnings == []
    content = json.loads(json.dumps(found.to_json()))
    assert [test["mode"] for test in content["tests"]] == ["uniaxial", "equibiaxial", "planar"]
    assert max(test["rmse_percent"] for test in content["tests"]) < 1e-4
    assert found.law.name == law.name


def test_one_mode_leaves_another_open(tmp_path):
    """Ogden's two terms from a uniaxial test alone."""
    random = np.random.default_rng(0)
    stress = 0.4 * (STRETCH - STRETCH**-2.0) + 0.005 * random.standard_normal(len(STRETCH))
    path = saved(tmp_path, "stress (MPa),stretch", stress, STRETCH)
    found = answer("ogden", f"uniaxial={path}")
    assert "equibiaxial is open" in kinds(found)
    (caveat,) = (caveat for caveat in found.warnings if caveat.kind == "equibiaxial is open")
    assert "equibiaxial=FILE" in caveat.advice


@pytest.mark.parametrize(("last", "warns"), [(0.6, False), (1.0, True)])
def test_a_rubber_that_is_not_stable_near_the_tested_strain_warns(tmp_path, last, warns):
    """The law's own curve is followed; it softens in equibiaxial tension, which is not tested, from strain 1.25."""
    law, strain = find_law("yeoh"), np.linspace(0.0, last, 60)
    values = np.array([[0.5, -0.015, 1e-5]])
    stress = law.respond(History(strain=strain[None]), values)[0]
    path = saved(tmp_path, "stress (MPa),stretch", stress, 1.0 + strain)
    found = answer("yeoh", f"uniaxial={path}")
    said = [caveat.text for caveat in found.warnings if caveat.kind == "not stable"]
    assert bool(said) == warns
    if warns:
        assert "equibiaxial tension from nominal strain 1.2" in said[0]
        assert "WARNING: not stable (Drucker)" in found.card("abaqus")
        assert not found.do_not_use


def test_one_rate_leaves_its_factor_open_and_so_does_one_temperature(tmp_path):
    head = "temperature: 20 C\n"
    one = tension(tmp_path, 1.0, 20.0, "one.csv", head)
    found = answer("johnson_cook", one)
    texts = [caveat.text for caveat in found.warnings if caveat.kind == "cannot be identified"]
    assert any(
        "C" in text.split(" cannot")[0].split(", ") and "another rate" in text for text in texts
    )
    assert any(
        "m" in text.split(" cannot")[0].split(", ") and "another temperature" in text
        for text in texts
    )
    several = [
        tension(
            tmp_path,
            rate,
            temperature,
            f"{i}.csv",
            f"strain rate: {rate} 1/s\ntemperature: {temperature} C\n",
        )
        for i, (rate, temperature) in enumerate(
            [(1.0, 20.0), (1000.0, 20.0), (1.0, 400.0), (0.001, 200.0)]
        )
    ]
    found = answer("johnson_cook", *several)
    assert "cannot be identified" not in kinds(found)
    assert found.parameters["C"].value == pytest.approx(0.014, rel=1e-3)
    assert found.parameters["m"].value == pytest.approx(1.03, rel=1e-3)
    # 1/(1 - 0.014 ln 1000) = 1.107: a solver is so much stronger than the slowest test.
    (said,) = [str(w) for w in found.warnings if w.kind == "tests below the reference rate"]
    assert "10.7 % more" in said and "--fix=reference_rate=0.001" in said
    assert "10.7 % more" in " ".join(found.card("abaqus").replace("\n**", "").split())
    found = answer("johnson_cook", *several, fixed={"reference_rate": 0.001})
    assert "tests below the reference rate" not in kinds(found)


def test_tests_whose_columns_do_not_say_their_measure_are_asked_about(tmp_path):
    """A strain of 0.2 that passes for an engineering one makes 1.2 times the stress of a true one."""
    named = [tension(tmp_path, rate, 20.0, f"{rate:g} per s.csv") for rate in (1e-3, 1.0)]
    assert "engineering or true?" not in kinds(answer("johnson_cook", *named))
    bare = [saved_without_measure(path) for path in named]
    found = answer("johnson_cook", *bare)
    (said,) = [str(w) for w in found.warnings if w.kind == "engineering or true?"]
    assert "2 tests" in said and "at its end by 20 %" in said


def saved_without_measure(path: str) -> str:
    """The file at `path`, without the word true above its columns."""
    file = pathlib.Path(path)
    file.write_text(file.read_text().replace("true ", ""))
    return path


def test_a_cyclic_law_from_one_loading_must_not_be_used(tmp_path):
    strain = np.linspace(0.0, 0.05, 40)
    # Hardening of two kinds at one pace, which one loading cannot tell apart.
    stress = followed(np.array([[200e3, 300.0, 80.0, 50.0, 4e3, 50.0]]), strain)
    found = answer("voce_chaboche_1", saved(tmp_path, "true strain,true stress", strain, stress))
    assert "no unloading" in found.do_not_use
    unknown = [caveat.text for caveat in found.warnings if caveat.kind == "cannot be identified"]
    assert any("cyclic=FILE" in text for text in unknown)


def test_cyclic_steel_is_found_again(tmp_path):
    law = find_law("voce_chaboche_1")
    strain = cycles((0.01, -0.01, 0.015, -0.015, 0.02, -0.02), points=25)
    stress = law.respond(History(strain=strain[None]), STEEL)[0]
    found = answer(
        "voce_chaboche_1", saved(tmp_path, "true strain,true stress (MPa)", strain, stress)
    )
    values = [found.parameters[p.name].value for p in law.parameters]
    np.testing.assert_allclose(values, STEEL[0], rtol=1e-3)
    assert not found.do_not_use
    assert found.to_json()["tests"][0]["half_cycles"] == 6


def test_a_law_that_misses_the_tests_says_so(tmp_path):
    strain = cycles(points=12)
    path = saved(
        tmp_path, "true strain,true stress (MPa)", strain, 300.0 * np.sign(np.sin(900 * strain))
    )
    assert "law does not follow the tests" in answer("voce_chaboche_1", path).do_not_use


def test_the_python_function_takes_arrays_and_paths(tmp_path):
    stress = 0.5 * (STRETCH - STRETCH**-2.0)
    found = tfmat.identify({"uniaxial": (STRETCH - 1.0, stress)}, law="neo_hooke")
    assert isinstance(found.curve, MeasuredRecord)
    assert found.parameters["mu"].value == pytest.approx(0.5, rel=1e-6)
    path = rubber(tmp_path, -5, name="ET.txt")
    both = tfmat.identify(
        {"uniaxial": (STRETCH - 1.0, stress), "equibiaxial": path}, law="neo_hooke"
    )
    assert [test.programme.name for test in both.curve.tests] == ["uniaxial", "equibiaxial"]
    strain = cycles(points=12)
    one = tfmat.identify(strain, followed(STEEL, strain), law="voce_chaboche_1")
    assert one.curve.tests[0].turns == [12, 24, 36]
    with pytest.raises(InputError, match="did you mean 'uniaxial'"):
        tfmat.identify({"uniaxal": (STRETCH - 1.0, stress)}, law="neo_hooke")
    table = {"strain": STRETCH / 100, "stress": stress, "time": STRETCH[::-1]}
    with pytest.raises(InputError, match="time runs backwards"):
        tfmat.identify({"relaxation": table}, law="perzyna")


def test_a_law_that_explains_the_tests_better_is_named(tmp_path):
    """Mooney-Rivlin rubber in two modes, identified as Neo-Hookean; with its own law nothing is better."""
    law = find_law("mooney_rivlin")
    files = []
    for test in ("uniaxial", "equibiaxial"):
        history = History(test, strain=STRETCH[None] - 1.0)
        stress = law.respond(history, np.array([[0.3, 0.06]]))[0]
        stress = stress + 0.01 * np.random.default_rng(0).standard_normal(len(stress))
        path = saved(tmp_path, "stress (MPa),stretch", stress, STRETCH, name=f"{test}.csv")
        files.append(f"{test}={path}")
    (better,) = [kind for kind in kinds(answer("neo_hooke", *files)) if "fits better" in kind]
    assert better.split()[0] in ("mooney_rivlin", "ogden", "ogden_3")
    assert not any("fits better" in kind for kind in kinds(answer("mooney_rivlin", *files)))


def test_what_a_network_never_saw_is_told_beside_least_squares():
    """A network without training, of tension alone, asked about planar tension too, and at large strains."""
    import keras

    from tfmat.identification.networks import Identifier

    settings = CurveSettings(
        law="mooney_rivlin",
        tests=("uniaxial",),
        num_points=16,
        test_ranges={"max_strain": (0.5, 1.0)},
    )
    described = law_alone("mooney_rivlin")
    source = dataclasses.replace(described, settings=settings)
    model = keras.Sequential(
        [keras.layers.Input(source.form.shape), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    law = find_law("mooney_rivlin")
    given = {}
    for mode in ("uniaxial", "planar"):
        history = History(mode, strain=STRETCH[None] - 1.0)
        given[mode] = (STRETCH - 1.0, law.respond(history, np.array([[0.3, 0.06]]))[0])
    records = measured_records(given, None, law, ReadingOptions(), CleaningOptions())
    (found,) = identify(Identifier(model, source), records)
    assert found.method == "least_squares"
    assert {"test unknown to the network", "beyond the trained tests"} <= set(kinds(found))
    (alone,) = identify(described, records)
    assert kinds(alone) == []


def _strain_weighted(law, values, record) -> float:
    """RESSPyLab's objective: the squared error in MPa², a mean over the path of the strain, summed over the tests."""
    total = 0.0
    for test in record.tests:
        error = (law.respond(test.history, values)[0] - test.response) ** 2
        way = np.abs(np.diff(test.driven))
        total += float((way * (error[1:] + error[:-1]) / 2).sum() / way.sum())
    return total


@pytest.fixture(scope="module")
def resspylab_steel(real_curves):
    """The law of two backstresses, and both tests."""
    law = find_law("voce_chaboche")
    folder = real_curves / "resspylab_cyclic_steel"
    files = [f"cyclic={folder / f'example_{i}.csv'}" for i in (1, 2)]
    ((record,), _) = load_records(find_records(files, law), CurveTarget.of_tests(law))
    return law, record


@pytest.mark.large
def test_resspylab_steel_together(resspylab_steel):
    """The best known of two backstresses is 940.5 MPa² (48 starts of Levenberg-Marquardt with the exact integrator)."""
    law, record = resspylab_steel
    values = fit_record(law, record).best.values
    assert _strain_weighted(law, values[None], record) <= 1.02 * 940.5


def test_resspylab_steel_together_from_the_network_that_comes_with_tfmat(resspylab_steel):
    """A search from its answer to both tests is as good as many starts."""
    from tfmat.identification.networks import Identifier

    law, record = resspylab_steel
    network = Identifier.open(find_network(None, "voce_chaboche"))
    predicted, caveats = predict(network, record, True)
    assert [caveat.kind for caveat in caveats] == ["network answered in parts"]
    points = residuals_of(law, record)
    start, deviation = predicted.labels[None], 1.0 / points.weights
    found = fit(law, points.strain, points.stress, start=start, deviation=deviation)
    assert _strain_weighted(law, found.values, record) <= 1.02 * 940.5


@pytest.mark.parametrize(
    ("law", "squares"), [("ogden_1", 7.48), ("ogden", 1.577), ("ogden_3", 0.2085)]
)
def test_treloar_three_tests(real_curves, law, squares):
    """Least squares of 200 starts, MPa²."""
    folder = real_curves / "rubber_treloar_1944"
    names = {"uniaxial": "UT", "equibiaxial": "ET", "planar": "PS"}
    found = answer(law, *(f"{test}={folder / file}.txt" for test, file in names.items()))
    sum_of_squares = float(np.square(found.resimulated_mpa - found.curve.response).sum())
    assert sum_of_squares <= 1.02 * squares
    assert not any(kind.endswith("is open") for kind in kinds(found))


@pytest.mark.parametrize("law", ["ogden", "ogden_3"])
def test_treloar_uniaxial_alone_leaves_the_biaxial_answer_open(real_curves, law):
    found = answer(law, f"uniaxial={real_curves / 'rubber_treloar_1944' / 'UT.txt'}")
    assert "equibiaxial is open" in kinds(found)


@pytest.mark.parametrize("kind", ["relaxation", "creep", "all"])
def test_a_machine_that_gives_way_counts_in_every_kind_of_test(kind, tmp_path):
    """A compliance of δ σ/E is a modulus of E / (1 + δ) whatever is driven: the modulus is known to 2 % at best."""
    law = find_law("perzyna")
    true = np.array([[200e3, 150.0, 120.0, 25.0, 220.0, 6.0]])
    random = np.random.default_rng(0)
    held = np.concatenate([np.linspace(0, 10, 21), 10 + np.geomspace(0.5, 86400, 40)])
    strain, stress = (np.minimum(held / 10, 1) * size for size in (0.01, 250.0))
    relaxed = law.respond(History(time=held[None], strain=strain[None]), true)[0]
    crept = law.respond(History(time=held[None], stress=stress[None]), true)[0]
    tests = {
        "relaxation": (strain, relaxed + random.normal(0, 1.0, held.shape), held),
        "creep": (crept + random.normal(0, 1e-5, held.shape), stress, held),
    }
    chosen = tests if kind == "all" else {kind: tests[kind]}
    options = {"strain_measure": "true", "stress_measure": "true", "law": "perzyna"}
    # 400 samples, worth some 300 draws: the standard error of their standard deviation is 4 %.
    found = tfmat.identify(chosen, **options, samples=400 * (kind == "creep"))
    if kind == "creep":
        sampled = found.samples.values[:, 0]
        assert sampled.std() == pytest.approx(0.02 * sampled.mean(), rel=0.2)
    modulus = found.parameters["E"]
    low, high = modulus.ci95
    assert modulus.std >= 0.0199 * modulus.value
    assert low <= 200e3 <= high and high - low >= 0.075 * modulus.value


def test_a_wrong_zero_of_the_load_counts_in_creep():
    """Two stresses tell n by n = ln(rate₂ / rate₁) / ln(σ₂ / σ₁): an error of 0.5 % of one moves n by 0.5 % n / ln."""
    law, true = find_law("norton"), np.array([[200e3, 6000.0, 5.0]])
    held = np.concatenate([np.linspace(0, 10, 21), 10 + np.geomspace(1.0, 36e3, 40)])
    random, tests = np.random.default_rng(0), []
    for size in (300.0, 420.0):
        stress = np.minimum(held / 10, 1) * size
        crept = law.respond(History(time=held[None], stress=stress[None]), true)[0]
        tests.append((crept + random.normal(0, 1e-4 * crept.max(), held.shape), stress, held))
    options = {"strain_measure": "true", "stress_measure": "true", "law": "norton"}
    found = tfmat.identify({"creep": tests}, **options, samples=400)
    expected = 5.0 * 0.005 * np.sqrt(2.0) / np.log(420.0 / 300.0)
    assert found.parameters["n"].std == pytest.approx(expected, rel=0.1)
    assert found.samples.values[:, 2].std() == pytest.approx(expected, rel=0.2)


def test_open_parameters_leave_the_intervals_of_others_alone():
    """Tests at one rate and temperature tell A, B, C and m only together; E and n are as sure as with C and m given."""
    law = find_law("johnson_cook")
    given = {"reference_rate": 1e-3, "room": 20.0, "melting": 1450.0}
    true = np.array([[200e3, 350.0, 500.0, 0.3, 0.015, 1.0, *given.values()]])
    strain = np.append(np.linspace(1e-4, 0.004, 40), np.linspace(0.005, 0.12, 80))
    at = {"rate": 1e-3, "temperature": 25.0}
    arrays = {name: np.array([[value]]) for name, value in at.items()}
    stress = law.respond(History(strain=strain[None], **arrays), true)[0]
    random = np.random.default_rng(0)
    tests = [
        {"strain": strain, "stress": stress + random.normal(0, 2.0, strain.shape), **at}
        for _ in range(4)
    ]
    options = {"strain_measure": "true", "stress_measure": "true", "law": "johnson_cook"}
    found, known = (
        tfmat.identify({"rate_and_temperature": tests}, **options, fixed=given | more).parameters
        for more in ({}, {"C": 0.015, "m": 1.0})
    )
    assert found["E"].std >= 0.0199 * found["E"].value
    for name in ("E", "n"):
        assert found[name].ci95 == pytest.approx(known[name].ci95, rel=0.01)


@pytest.mark.parametrize("seed", [0, 2])
def test_parameters_that_hardly_count_do_not_tell_how_stiff_the_machine_is(seed):
    """The curve leaves six of seven parameters nearly open, and the machine E to 2 % all the same."""
    plastic = np.linspace(0.0, 0.11, 240)
    stress = 145 + (95 + 350 * plastic) * (1 - np.exp(-22 * plastic))
    strain = np.append(np.linspace(0, 145 / 71e3, 40)[:-1], plastic + stress / 71e3)
    stress = np.append(71e3 * strain[:39], stress)
    stress += np.random.default_rng(seed).normal(0, 0.5, len(stress))
    options = {"strain_measure": "true", "stress_measure": "true", "law": "swift_voce"}
    modulus = tfmat.identify(strain, stress, **options).parameters["E"]
    assert modulus.std / modulus.value == pytest.approx(0.0201, abs=0.0003)


@pytest.mark.parametrize(
    "header", ["Strain rate (1/s),Temperature (K)", "strain_rate [s^-1],T [K]", "rate /s,T /K"]
)
def test_columns_of_rate_and_temperature_tell_the_tests_of_a_table(tmp_path, header):
    """Johnson and Cook's own formula (1983) at five pairs of rate and temperature, below each other in one file."""
    strain, random = np.linspace(0.0, 0.15, 80), np.random.default_rng(0)
    lines = [f"{header},True strain,True stress (MPa)"]
    for rate, celsius in ((1, 20), (100, 20), (1500, 20), (1, 300), (1, 600)):
        factor = (1 + 0.02 * np.log(rate)) * (1 - max(celsius - 20, 0) / 1480)
        plastic = (350 + 600 * strain**0.4) * factor
        stress = np.r_[0.0, plastic] + random.normal(0, 1.0, 81)
        total = np.r_[0.0, strain + plastic / 200e3]
        lines += [f"{rate},{celsius + 273.15},{e},{s}" for e, s in zip(total, stress, strict=True)]
    path = tmp_path / "all.csv"
    path.write_text("\n".join(lines))
    found = answer("johnson_cook", str(path))
    assert not found.do_not_use
    for name, true in {"A": 350, "B": 600, "n": 0.4, "C": 0.02, "m": 1.0}.items():
        low, high = found.parameters[name].ci95
        assert low < true < high and high - low < 0.05 * true, name


@pytest.mark.parametrize("by_column", [False, True])
def test_a_rate_alone_tells_the_times_of_tension(tmp_path, by_column):
    """Perzyna's steady stress σ0 + Q(1 − exp(−bεp)) + K·rate^(1/n), from two rates and no times."""
    law, random = find_law("perzyna"), np.random.default_rng(0)
    true = np.array([[200e3, 150.0, 120.0, 25.0, 220.0, 6.0]])
    strain = 0.05 * np.linspace(0.0, 1.0, 120) ** 2
    parts = []
    for rate in (1e-4, 1e-2):
        stress = law.respond(History(strain=strain[None], time=strain[None] / rate), true)[0]
        flow = 150 + 120 * (1 - np.exp(-25 * (0.05 - stress[-1] / 200e3))) + 220 * rate ** (1 / 6)
        assert stress[-1] == pytest.approx(flow, rel=0.01)
        parts.append((rate, stress + random.normal(0, 1.0, 120)))
    if by_column:
        rows = [f"{rate},{e},{s}" for rate, of in parts for e, s in zip(strain, of, strict=True)]
        path = tmp_path / "both.csv"
        path.write_text("\n".join(["rate (1/s),True strain,True stress (MPa)", *rows]))
        given = [f"tension_at_rate={path}"]
    else:
        given = []
        for rate, of in parts:
            rows = [f"{e},{s}" for e, s in zip(strain, of, strict=True)]
            path = tmp_path / f"at_{rate}.csv"
            head = [f"Strain rate: {rate} 1/s", "True strain,True stress (MPa)"]
            path.write_text("\n".join([*head, *rows]))
            given.append(f"tension_at_rate={path}")
    found = answer("perzyna", *given)
    assert [test.settings["rate"] for test in found.curve.tests] == pytest.approx(
        [1e-4, 1e-2], rel=0.01
    )
    for parameter, value in zip(law.parameters, true[0], strict=True):
        low, high = found.parameters[parameter.name].ci95
        assert low < value < high, parameter.name


@pytest.mark.parametrize("at", ["600", ""])
def test_a_table_of_creep_at_several_stresses(tmp_path, at):
    """Norton's ε = σ/E + (σ/K)ⁿt with a hot metal's modulus, which none has cold; nothing says how hot it is."""
    hours, random = np.append(0.0, np.geomspace(0.1, 1000, 60)), np.random.default_rng(0)
    lines = [f"{'T (°C)' if at else 'Machine'},True stress (MPa),Time (h),True creep strain"]
    for stress in (150.0, 200.0, 250.0):
        strain = stress / 150e3 + (stress / 2000.0) ** 5 * hours + random.normal(0, 5e-6, 61)
        lines += [f"{at or 'A'},{stress},{t},{e}" for t, e in zip(hours, strain, strict=True)]
    path = tmp_path / "creep.csv"
    path.write_text("\n".join(lines))
    found = answer("norton", f"creep={path}")
    assert [test.name for test in found.curve.tests] == [
        "_".join(filter(None, ("creep", at, str(n)))) for n in (150, 200, 250)
    ]
    for name, true in {"E": 150e3, "n": 5.0, "K": 2000.0 * 3600**0.2}.items():
        low, high = found.parameters[name].ci95
        assert low < true < high, name
    assert not found.warnings


@pytest.mark.parametrize("zeroed", [True, False])
def test_creep_strain_zeroed_under_its_stress_is_answered_with_the_modulus(zeroed):
    """Norton's creep strain (σ/K)ⁿt; without E nothing in the file tells its elastic strain."""
    seconds, random = np.append(0.0, np.geomspace(10, 1e6, 60)), np.random.default_rng(0)
    tests = [
        (
            (stress / 8000.0) ** 5 * seconds
            + (not zeroed) * stress / 150e3
            + random.normal(0, 5e-6, 61),
            np.full(61, stress),
            seconds,
        )
        for stress in (100.0, 125.0, 150.0)
    ]
    options = {"law": "norton", "strain_measure": "true", "stress_measure": "true"}
    found = tfmat.identify({"creep": tests}, fixed={"E": 150e3}, **options)
    for name, true in {"n": 5.0, "K": 8000.0}.items():
        low, high = found.parameters[name].ci95
        assert low < true < high, name
    assert not found.do_not_use and not found.warnings
    assert sum("added the elastic strain of 1" in step for step in found.curve.steps) == 3 * zeroed
    if zeroed:
        without = tfmat.identify({"creep": tests}, **options)
        said = [str(each) for each in without.warnings if each.kind == "loaded at the start"]
        assert without.do_not_use and "the elastic strain is then added" in said[0]


@pytest.mark.parametrize("by_table", [False, True])
@pytest.mark.parametrize(("hot", "blocks"), [(100, True), (30, False)])
def test_temperatures_that_a_law_does_not_know_have_no_one_answer(tmp_path, hot, blocks, by_table):
    """A tenth stiffer at 100 °C, as the network theory of rubber has it nearly (a quarter for 77 K)."""
    stretch = np.linspace(1.0, 2.5, 60)
    paths = []
    for celsius, modulus in ((23, 0.4), (hot, 0.44)):
        stress = modulus * (stretch - stretch**-2.0)
        rows = [f"{e},{s}" for e, s in zip(stretch - 1.0, stress, strict=True)]
        told = [] if by_table else [f"Temperature: {celsius} °C"]
        head = [*told, "Nominal strain (-),Nominal stress (MPa)"]
        paths.append(tmp_path / f"at_{celsius}.csv")
        paths[-1].write_text("\n".join([*head, *rows]))
    table = tmp_path / "tests.csv"
    rows = [
        f"{path.name},uniaxial,{celsius}" for path, celsius in zip(paths, (23, hot), strict=True)
    ]
    table.write_text("\n".join(["file,test,temperature", *rows]))
    given = [str(table)] if by_table else [f"uniaxial={path}" for path in paths]
    found = answer("neo_hooke", *given)
    assert ("several temperatures" in found.do_not_use) == blocks
    text = " ".join(str(caveat) for caveat in found.warnings)
    assert (
        f"the tests were at 23, {hot} °C, and law neo_hooke has no temperature" in text
    ) == blocks


def test_tests_that_begin_at_their_held_value(tmp_path):
    """A relaxation and a creep test without their ramps: one Maxwell element of Prony's, closed forms."""
    time = np.geomspace(1.0, 1e5, 60)
    strain = np.full(60, 0.01)
    stress = 1000.0 * strain * (0.4 + 0.6 * np.exp(-time / 100.0))
    path = saved(tmp_path, "time_s,true strain,true stress (MPa)", time, strain, stress)
    found = answer("prony", path)
    assert found.rmse_percent < 2.0
    assert found.picture().tests[0].settings == ""
    given = answer("prony", path, fixed={next(iter(found.parameters)): 1000.0})
    assert given.curve.steps[-1].endswith("given: the other parameters are least squares")


def test_a_threshold_that_the_test_did_not_reach_is_open(tmp_path):
    """The most damage of a ply, 0.75, where the test ends at some 0.3."""
    law = find_law("ladeveze_shear")
    truth = law.from_labels(np.full((1, len(law.identified)), 0.5))
    strain = cycles((0.02, 0.012, 0.04, 0.025, 0.06, 0.04, 0.08), points=40)
    stress = law.respond(History("shear", strain=strain[None]), truth)[0]
    noisy = stress + np.random.default_rng(0).normal(0.0, 0.3, len(stress))
    found = answer("ladeveze_shear", saved(tmp_path, "gamma12,tau12 (MPa)", strain, noisy))
    for parameter, value in zip(law.parameters, truth[0], strict=True):
        low, high = found.parameters[parameter.name].ci95
        margin = 0.5 * (high - low)
        assert low - margin < value < high + margin, parameter.name
    assert any("dmax is only known to be at least" in caveat.text for caveat in found.warnings)
