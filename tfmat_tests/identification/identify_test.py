"""From a measured curve to an answer."""

import json
import shutil

import numpy as np
import pytest
import scipy.optimize

from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.identification.answer import identify
from tfmat.identification.networks import Identifier, find_network, law_alone, source_of
from tfmat.materials import find_law
from tfmat.records.files import example_curve, write_example_curve
from tfmat.records.record import CurveTarget, MeasuredRecord
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_measured_curve, load_measured_curves


def test_the_shipped_example_comes_out_near_its_truth(identifier):
    path = example_curve("hahn_tsai")
    assert path is not None
    curve = load_measured_curve(path, identifier.target)
    (result,) = identify(identifier, [curve])
    # The test's network learned for seconds: R² is about 0.98 for G0 and 0.9 for a.
    assert result.parameters["G0"].network == pytest.approx(6964, rel=0.15)
    assert np.log10(result.parameters["a"].network) == pytest.approx(np.log10(2.44e-8), abs=0.3)
    assert result.method == "least_squares"
    assert result.parameters["G0"].value == pytest.approx(6964, rel=0.01)
    assert result.parameters["a"].value == pytest.approx(2.44e-8, rel=0.1)
    assert result.rmse_percent is not None
    assert result.rmse_percent < 2
    assert result.errors_percent["network"] < 5
    residual = result.resimulated_mpa - curve.stress_mpa
    expected = 100 * np.sqrt(np.mean(residual**2)) / curve.stress_mpa.max()
    assert result.rmse_percent == pytest.approx(expected, rel=1e-12)
    again = find_law("hahn_tsai").stress(
        curve.strain[None],
        np.array([[result.parameters["G0"].value, result.parameters["a"].value]]),
    )
    np.testing.assert_allclose(result.resimulated_mpa, again[0])


def test_the_answer_is_the_network_s_answer_for_a_curve_of_its_own_kind(trained_run, identifier):
    """A training curve that goes through a file and the cleaning gets the same answer as the stored points."""
    features = np.array(trained_run.dataset.features[:50], np.float64)
    whole = features[~features[:, :, 2].any(axis=1)][:5]
    from tfmat.records.cleaning import clean
    from tfmat.records.reading import RawCurve

    curves = [
        MeasuredRecord.of(clean(RawCurve(str(i), *curve[:, :2].T), identifier.target))
        for i, curve in enumerate(whole)
    ]
    values = identifier.values(identifier.predict(whole).clip(0, 1))
    for result, expected in zip(identify(identifier, curves), values, strict=True):
        # Only the first point may differ: a cleaned curve starts at (0, 0).
        assert result.parameters["G0"].network == pytest.approx(expected[0], rel=0.01)
        assert np.log10(result.parameters["a"].network) == pytest.approx(
            np.log10(expected[1]), abs=0.05
        )


def test_many_curves_are_answered_as_one_by_one(tmp_path, identifier):
    law = find_law("hahn_tsai")
    paths = [write_example_curve(law, tmp_path / f"{seed}.csv", seed=seed) for seed in range(7)]
    curves, errors = load_measured_curves(paths, identifier.target)
    assert errors == []
    together = identify(identifier, curves)
    assert [result.curve.name for result in together] == [str(seed) for seed in range(7)]
    for curve, result in zip(curves, together, strict=True):
        alone = identify(identifier, [curve])[0]
        assert alone.to_json() == result.to_json()
    assert identify(identifier, []) == []


def test_the_picture_holds_both_curves_and_the_recommended_one_is_named(tmp_path, identifier):
    path = write_example_curve(find_law("hahn_tsai"), tmp_path / "a.csv")
    curve = load_measured_curve(path, identifier.target)
    (result,) = identify(identifier, [curve])
    picture = result.picture()
    assert picture.recommended == picture.refined.name == "least squares"
    found = {name: value.least_squares for name, value in result.parameters.items()}
    assert {name: entry[0] for name, entry in picture.parameters.items()} == found
    expected = find_law("hahn_tsai").stress(
        curve.strain[None], np.array([[found["G0"], found["a"]]])
    )
    np.testing.assert_allclose(picture.refined.stress_mpa, expected[0], rtol=1e-6)
    error = np.sqrt(np.mean((expected[0] - curve.stress_mpa) ** 2)) / curve.stress_mpa.max()
    assert picture.refined.rmse_percent == pytest.approx(100 * error, rel=1e-6)
    assert result.rmse_percent == picture.refined.rmse_percent <= picture.rmse_percent
    (alone,) = identify(identifier, [curve], least_squares=False)
    assert alone.picture().refined is None
    assert alone.picture().recommended == "network"


def test_json_form(tmp_path, identifier):
    path = write_example_curve(find_law("hahn_tsai"), tmp_path / "lab 1.csv")
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(content) == [
        *("curve", "law", "do_not_use", "reasons", "method", "parameters"),
        *("rmse_percent", "rmse_percent_of", "conditions", "tensile", "assumed", "num_points"),
        *("steps", "warnings"),
    ]
    assert content["curve"] == "lab 1"
    assert (content["do_not_use"], content["reasons"]) == (False, [])
    assert content["rmse_percent"] == content["rmse_percent_of"]["least_squares"]
    entry = content["parameters"]["G0"]
    assert list(entry) == [
        *("value", "unit", "method", "std", "ci95", "network", "network_ci95"),
        *("least_squares", "least_squares_ci95"),
    ]
    assert (entry["unit"], entry["method"]) == ("MPa", "least_squares")
    assert entry["value"] == entry["least_squares"] == pytest.approx(5000, rel=0.02)
    assert entry["network"] == pytest.approx(5000, rel=0.2)
    low, high = entry["ci95"]
    assert low < 5000 < high
    # Student's t of 95 % is 1.98, a little more where the residuals happen to be alike.
    assert 1.95 < (high - low) / 2 / entry["std"] < 2.05
    (bare,) = identify(
        identifier, [load_measured_curve(path, identifier.target)], least_squares=False
    )
    unknown = ("std", "ci95", "network_ci95", "least_squares", "least_squares_ci95")
    assert bare.to_json()["parameters"]["G0"] == {
        "value": entry["network"],
        "unit": "MPa",
        "method": "network",
        "network": entry["network"],
        **dict.fromkeys(unknown),
    }
    assert content["num_points"] == len(path.read_text().splitlines()) - 1 - sum(
        int(step.split("(")[1].split()[0]) for step in content["steps"] if "dropped)" in step
    )


def test_a_law_without_a_network_is_answered_by_least_squares_alone(tmp_path):
    path = write_example_curve(
        find_law("voce"),
        tmp_path / "metal.csv",
        parameters={"E": 70e3, "sigma0": 250.0, "Q": 120.0, "b": 15.0},
        max_strain=0.1,
    )
    source = law_alone("voce")
    (result,) = identify(source, [load_measured_curve(path, source.target)])
    for name, true in (("E", 70e3), ("sigma0", 250.0), ("Q", 120.0), ("b", 15.0)):
        value = result.parameters[name]
        assert value.ci95[0] < true < value.ci95[1], name
        assert (value.network, value.method) == (None, "least_squares")
    with pytest.raises(InputError, match="without a network needs least squares"):
        identify(source, [result.curve], least_squares=False)


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        ({}, False),
        ({"samples": True}, True),
        ({"workdir": find_network(None, "voce")}, True),
        ({"details": True}, True),
        ({"least_squares": False}, True),
    ],
)
def test_a_network_is_loaded_where_it_has_a_part_in_what_is_told(asked, needed):
    assert (source_of("voce", **asked)[1] is not None) is needed
    assert "workdir" in asked or source_of("ludwik", **asked)[1] is None


def test_a_network_of_no_known_law_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(find_network(None, "voce"), "runs/quickstart")
    file = tmp_path / "runs" / "quickstart" / "model.json"
    write_json(file, {**read_json(file), "curves": None})
    assert source_of(None)[1] is not None


def test_a_curve_shorter_than_the_trained_ones(tmp_path, identifier):
    """The network's answer says that it is padded; far too short a curve is answered by least squares alone."""
    law = find_law("hahn_tsai")
    short, tiny = (
        load_measured_curve(
            write_example_curve(law, tmp_path / f"{end}.csv", max_strain=end, noise_mpa=0.1),
            identifier.target,
        )
        for end in (0.006, 0.0002)
    )
    (answer,) = identify(identifier, [short], least_squares=False)
    (said,) = [w.text for w in answer.warnings if w.kind == "short of the trained strain"]
    assert "ends at strain 0.006, before 0.01" in said
    (answer,) = identify(identifier, [tiny])
    assert answer.method == "least_squares" and answer.parameters["G0"].network is None
    assert any(w.kind == "too short for the network" for w in answer.warnings)
    assert answer.parameters["G0"].value == pytest.approx(5000, rel=0.05)
    with pytest.raises(InputError, match=r"far before 0\.01 .*measure further"):
        identify(identifier, [tiny], least_squares=False)


@pytest.mark.parametrize("samples", [0, 100])
def test_neither_a_network_nor_samples_change_the_answer(tmp_path, samples):
    """A short, nearly straight curve says nothing of the cubic term."""
    path = write_example_curve(
        find_law("hahn_tsai"),
        tmp_path / "curve.csv",
        parameters={"G0": 3000.0, "a": 1.5e-9},
        max_strain=0.01,
    )
    network = Identifier.open(find_network(None, "hahn_tsai"))
    curve = load_measured_curve(path, network.target)
    (alone,) = identify(law_alone("hahn_tsai"), [curve])
    (result,) = identify(network, [curve], samples=samples)
    assert result.parameters["a"].network is not None and alone.parameters["a"].network is None
    assert samples or result.warnings == alone.warnings
    for name, value in result.parameters.items():
        assert value.method == "least_squares"
        expected = alone.parameters[name]
        assert [value.value, *value.ci95] == pytest.approx(
            [expected.value, *expected.ci95], rel=1e-6
        )
    low, high = result.parameters["G0"].ci95
    assert low < 3000 < high
    assert result.parameters["a"].std is None


def test_fixed_parameters_are_given_back_as_fixed(tmp_path, trained_run):
    from tfmat.identification.networks import Sidecar

    settings = CurveSettings(fixed={"a": 2.44e-8})
    law = settings.build_law()

    class Constant(Identifier):
        def predict(self, features):
            return np.full((len(features), 1), 0.5)

    import keras

    model = keras.Sequential(
        [keras.layers.Input((200, 3)), keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    sidecar = Sidecar(tmp_path, law.identified, settings, law, CurveTarget.of(settings, law))
    path = example_curve("hahn_tsai")
    assert path is not None
    (result,) = identify(Constant(model, sidecar), [load_measured_curve(path, sidecar.target)])
    assert (result.parameters["G0"].network, result.parameters["G0"].fixed) == (5000.0, False)
    assert result.parameters["G0"].value == pytest.approx(6964, rel=0.01)
    given = result.to_json()["parameters"]["a"]
    assert (given.pop("value"), given.pop("unit"), given.pop("method")) == (
        *(2.44e-8, "MPa^-3"),
        "given",
    )
    assert set(given.values()) == {None}


def test_a_model_that_answers_nan_is_refused(trained_run, identifier):
    class Broken(Identifier):
        def __init__(self):
            self.__dict__.update(identifier.__dict__)

        def predict(self, features):
            return np.full((len(features), 2), np.nan)

    path = example_curve("hahn_tsai")
    assert path is not None
    with pytest.raises(InputError, match="NaN"):
        identify(Broken(), [load_measured_curve(path, identifier.target)])


def test_given_parameters_condition_the_others(tmp_path, identifier):
    path = write_example_curve(
        find_law("hahn_tsai"),
        tmp_path / "curve.csv",
        parameters={"G0": 5500.0, "a": 3e-8},
        max_strain=0.04,
    )
    curve = load_measured_curve(path, identifier.target)
    (result,) = identify(identifier, [curve], fixed={"G0": 5500.0})
    assert result.parameters["G0"].fixed
    assert result.parameters["G0"].value == 5500.0
    assert result.parameters["a"].value == pytest.approx(3e-8, rel=0.05)
    assert "G0 = 5500 given" in result.curve.steps[-1]
    assert curve.steps[-1] != result.curve.steps[-1]
    # The best a for this G0, by another solver.
    law, best = find_law("hahn_tsai"), result.parameters["a"].value
    solved = scipy.optimize.minimize_scalar(
        lambda a: np.sum(
            (law.stress(curve.strain[None], np.array([[5500.0, a]]))[0] - curve.stress_mpa) ** 2
        ),
        bounds=(1e-9, 1e-7),
        method="bounded",
        options={"xatol": 1e-13},
    )
    assert best == pytest.approx(solved.x, rel=1e-3)
    (outside,) = identify(identifier, [curve], fixed={"G0": 9000.0})
    assert any("outside of its trained range" in line.text for line in outside.warnings)
    with pytest.raises(InputError, match="needs least squares"):
        identify(identifier, [curve], fixed={"G0": 9000.0}, least_squares=False)
    with pytest.raises(InputError, match="G0 = 5.5 MPa is far from .*give it in MPa"):
        identify(identifier, [curve], fixed={"G0": 5.5})
    with pytest.raises(InputError, match="has no parameter 'E'"):
        identify(identifier, [curve], fixed={"E": 1.0})
    with pytest.raises(InputError, match="leave at least one"):
        identify(identifier, [curve], fixed={"G0": 4000.0, "a": 1e-8})


def test_progress_is_told(tmp_path, identifier):
    curve = load_measured_curve(
        write_example_curve(find_law("hahn_tsai"), tmp_path / "curve.csv"), identifier.target
    )
    told = []
    identify(identifier, [curve] * 3, progress=lambda *counts: told.append(counts))
    assert told == [(1, 3), (2, 3), (3, 3)]
