"""From a measured curve to an answer."""

import json

import numpy as np
import pytest
import scipy.optimize

from tfmat.curves.example import example_curve, write_example_curve
from tfmat.curves.measured import load_measured_curve, load_measured_curves
from tfmat.curves.reading import ReadingOptions
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.identification.identifier import Identifier
from tfmat.identification.identify import identify
from tfmat.materials import find_law


@pytest.fixture(scope="module")
def identifier(trained_run):
    return Identifier.open(trained_run.workdir)


def test_the_shipped_example_comes_out_near_its_truth(identifier):
    path = example_curve("hahn_tsai")
    assert path is not None
    curve = load_measured_curve(path, identifier.target)
    (result,) = identify(identifier, [curve])
    # The test's network learned for seconds: R² is about 0.98 for G0 and 0.9 for a.
    assert result.parameters["G0"].value == pytest.approx(6964, rel=0.15)
    assert np.log10(result.parameters["a"].value) == pytest.approx(np.log10(2.44e-8), abs=0.3)
    assert result.rmse_percent is not None
    assert result.rmse_percent < 5
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
    from tfmat.curves.measured import clean
    from tfmat.curves.reading import RawCurve

    curves = [
        clean(RawCurve(str(i), *curve[:, :2].T), identifier.target) for i, curve in enumerate(whole)
    ]
    values = identifier.values(identifier.predict(whole).clip(0, 1))
    for result, expected in zip(identify(identifier, curves), values, strict=True):
        # Only the first point may differ: a cleaned curve starts at (0, 0).
        assert result.parameters["G0"].value == pytest.approx(expected[0], rel=0.01)
        assert np.log10(result.parameters["a"].value) == pytest.approx(
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
        for name, value in result.parameters.items():
            assert alone.parameters[name].value == pytest.approx(value.value, rel=1e-4)
    assert identify(identifier, []) == []


def test_the_picture_holds_the_least_squares_curve_too(tmp_path, identifier):
    path = write_example_curve(find_law("hahn_tsai"), tmp_path / "a.csv")
    curve = load_measured_curve(path, identifier.target)
    (result,) = identify(identifier, [curve])
    refined = result.picture()["refined"]
    found = {name: value.least_squares for name, value in result.parameters.items()}
    assert refined["name"] == "least squares" and refined["values"] == found
    expected = find_law("hahn_tsai").stress(
        curve.strain[None], np.array([[found["G0"], found["a"]]])
    )
    np.testing.assert_allclose(refined["stress_mpa"], expected[0], rtol=1e-6)
    error = np.sqrt(np.mean((expected[0] - curve.stress_mpa) ** 2)) / curve.stress_mpa.max()
    assert refined["rmse_percent"] == pytest.approx(100 * error, rel=1e-6)
    assert refined["rmse_percent"] <= result.rmse_percent * (1 + 1e-6)
    (alone,) = identify(identifier, [curve], least_squares=False)
    assert alone.picture()["refined"] is None


def test_json_form(tmp_path, identifier):
    path = write_example_curve(find_law("hahn_tsai"), tmp_path / "lab 1.csv")
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(content) == [
        "curve",
        "law",
        "parameters",
        "rmse_percent",
        "num_points",
        "steps",
        "warnings",
    ]
    assert content["curve"] == "lab 1"
    entry = content["parameters"]["G0"]
    assert list(entry) == ["value", "unit", "std", "polished", "least_squares", "ci95"]
    assert entry["unit"] == "MPa"
    assert entry["value"] == pytest.approx(5000, rel=0.2)
    assert entry["polished"] == pytest.approx(entry["least_squares"], rel=0.03)
    low, high = entry["ci95"]
    assert low < entry["least_squares"] < high
    # Student's t of 95 % is 1.98.
    assert (high - low) / 2 == pytest.approx(1.98 * entry["std"], rel=0.02)
    assert low < 5000 < high
    (bare,) = identify(
        identifier, [load_measured_curve(path, identifier.target)], least_squares=False
    )
    assert bare.to_json()["parameters"]["G0"] == {
        "value": entry["value"],
        "unit": "MPa",
        **dict.fromkeys(("std", "polished", "least_squares", "ci95")),
    }
    assert content["num_points"] == len(path.read_text().splitlines()) - 1 - sum(
        int(step.split("(")[1].split()[0]) for step in content["steps"] if "dropped)" in step
    )


def test_an_answer_at_the_end_of_its_range_and_a_bad_fit_are_warned_about(tmp_path, identifier):
    law = find_law("hahn_tsai", ranges={"G0": (100.0, 20000.0)})
    path = write_example_curve(law, tmp_path / "stiff.csv", parameters={"G0": 16000.0, "a": 5e-8})
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    assert any(
        "G0 is at the high end of its trained range (8000 MPa)" in line for line in result.warnings
    )
    strain = np.linspace(0, 0.04, 100)
    lines = [
        "strain,stress",
        *(f"{e},{s}" for e, s in zip(strain, 100 * (strain / 0.04) ** 3, strict=True)),
    ]
    (tmp_path / "odd.csv").write_text("\n".join(lines))
    (odd,) = identify(identifier, [load_measured_curve(tmp_path / "odd.csv", identifier.target)])
    assert any("does not describe this curve" in line for line in odd.warnings)
    assert odd.warnings[0].startswith("DO NOT USE THIS ANSWER: ")


def test_fixed_parameters_are_given_back_as_fixed(tmp_path, trained_run):
    from tfmat.identification.sidecar import Sidecar

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
    assert (result.parameters["G0"].value, result.parameters["G0"].fixed) == (5000.0, False)
    assert result.parameters["G0"].least_squares == pytest.approx(6964, rel=0.01)
    assert result.to_json()["parameters"]["a"] == {
        "value": 2.44e-8,
        "unit": "MPa^-3",
        **dict.fromkeys(("std", "polished", "least_squares", "ci95")),
        "fixed": True,
    }


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


def shear_curve(tmp_path, law_name, name="curve", **choices):
    return write_example_curve(find_law(law_name), tmp_path / f"{name}.csv", **choices)


def test_given_parameters_condition_the_others(tmp_path, identifier):
    path = shear_curve(tmp_path, "hahn_tsai", parameters={"G0": 5500.0, "a": 3e-8}, max_strain=0.04)
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
    (outside,) = identify(identifier, [curve], fixed={"G0": 9000.0}, least_squares=False)
    assert any("outside of its trained range" in line for line in outside.warnings)
    with pytest.raises(InputError, match="has no parameter 'E'"):
        identify(identifier, [curve], fixed={"E": 1.0})
    with pytest.raises(InputError, match="leave at least one"):
        identify(identifier, [curve], fixed={"G0": 1.0, "a": 1e-8})


@pytest.mark.parametrize("other", ["tanh_shear", "exponential_shear"])
def test_a_curve_of_another_law_says_which(tmp_path, identifier, other):
    path = shear_curve(tmp_path, other, parameters={"G0": 5000.0, "S": 80.0}, max_strain=0.05)
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    (said,) = [line for line in result.warnings if "fits clearly better" in line]
    assert said.startswith(f"{other} fits clearly better than hahn_tsai")
    assert f"tfmat train --law={other}" in said


def test_curves_of_the_right_law_raise_no_alarm(tmp_path, identifier):
    law = find_law("hahn_tsai")
    random = np.random.default_rng(0)
    paths = []
    for i in range(60):
        values = {"G0": random.uniform(2500, 7500), "a": 10 ** random.uniform(-8.8, -7.2)}
        paths.append(write_example_curve(law, tmp_path / f"{i}.csv", parameters=values, seed=i))
    curves, errors = load_measured_curves(paths, identifier.target)
    assert errors == []
    alarms = [
        line
        for result in identify(identifier, curves)
        for line in result.warnings
        if "clearly better" in line or "does not describe" in line or "leaves the law" in line
    ]
    assert alarms == []


def test_what_a_short_curve_cannot_say_is_said(tmp_path, identifier):
    path = shear_curve(
        tmp_path, "hahn_tsai", parameters={"G0": 3000.0, "a": 1.5e-9}, max_strain=0.01
    )
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    assert any(line.startswith("a cannot be identified") for line in result.warnings)
    assert result.parameters["a"].std is None
    assert result.parameters["G0"].std is not None


def test_progress_is_told(tmp_path, identifier):
    curve = load_measured_curve(shear_curve(tmp_path, "hahn_tsai"), identifier.target)
    told = []
    identify(identifier, [curve] * 130, progress=lambda *counts: told.append(counts))
    assert told == [(128, 130), (130, 130)]


TRELOAR = """1.02 .0255; 1.125 .1344; 1.24 .2256; 1.39 .3169; 1.585 .4081; 1.90 .5003; 2.18 .5886; 2.42 .6769;
3.02 .8633; 3.57 1.0497; 4.03 1.2263; 4.76 1.5892; 5.36 1.9522; 5.75 2.3152; 6.15 2.6879; 6.40 3.0411; 6.60 3.4139;
6.85 3.7769; 7.05 4.1300; 7.15 4.4930; 7.25 4.8658; 7.40 5.2287; 7.50 5.5917; 7.60 6.3176"""


class Middle(Identifier):
    """A network of a law that answers the middle of every range."""

    def __init__(self, law_name):
        self.settings = CurveSettings(law=law_name)
        self.law = self.settings.build_law()
        self.parameters = self.law.identified
        self.target = CurveTarget.of(self.settings, self.law)

    def predict(self, features):
        return np.full((len(features), len(self.parameters)), 0.5)


@pytest.mark.parametrize("law_name", ["voce", "swift", "ramberg_osgood", "hahn_tsai"])
def test_treloars_rubber_is_warned_about_loudly(tmp_path, law_name):
    """Treloar, Trans. Faraday Soc. 40 (1944) 59: stretch and nominal stress (MPa) of vulcanised rubber."""
    rows = [row.split() for row in TRELOAR.split(";")]
    lines = ["stretch,nominal stress [MPa]", *(",".join(row) for row in rows)]
    (tmp_path / "rubber.csv").write_text("\n".join(lines))
    network = Middle(law_name)
    curves, errors = load_measured_curves([tmp_path / "rubber.csv"], network.target)
    if errors:
        assert "modulus is" in str(errors[0])
        return
    (result,) = identify(network, curves)
    assert result.warnings[0].startswith("DO NOT USE THIS ANSWER: ")
    assert any("initial modulus is" in line for line in result.warnings)


def test_the_eight_304l_curves_by_least_squares(real_curves):
    files = sorted(real_curves.glob("304L_astm_e8/*.dat"))
    network = Middle("voce")
    curves, errors = load_measured_curves(files, network.target, ReadingOptions(stress_unit="ksi"))
    assert errors == []
    for result in identify(network, curves):
        values = {name: value.least_squares for name, value in result.parameters.items()}
        # 0.2 % offset stress of the law, against the measured points on either side of the offset line.
        law, strain = find_law("voce"), result.curve.strain
        grid = np.linspace(0.001, 0.01, 2000)
        stress = law.stress(grid[None], np.array([list(values.values())]))[0]
        offset = stress[np.argmax(stress < values["E"] * (grid - 0.002))]
        below = result.curve.stress_mpa < 193e3 * (strain - 0.002)
        measured = result.curve.stress_mpa[np.argmax(below)]
        assert offset == pytest.approx(measured, rel=0.25)
        assert 200 < offset < 300
        fitted = law.stress(strain[None], np.array([list(values.values())]))[0]
        error = np.sqrt(np.mean((fitted - result.curve.stress_mpa) ** 2))
        assert error < 0.02 * result.curve.stress_mpa.max()
        assert any("the specimen necks" in line for line in result.warnings)
        (said,) = [line for line in result.warnings if "the curve leaves the law at" in line]
        assert float(said.split(" to ")[1].split(",")[0]) < 0.02  # the first points
