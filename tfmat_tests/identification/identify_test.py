"""From a measured curve to an answer."""

import json

import numpy as np
import pytest

from tfmat.curves.example import example_curve, write_example_curve
from tfmat.curves.measured import load_measured_curve, load_measured_curves
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
    assert content["parameters"]["G0"] == {"value": pytest.approx(5000, rel=0.2), "unit": "MPa"}
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


def test_fixed_parameters_are_given_back_as_fixed(tmp_path, trained_run):
    import dataclasses

    from tfmat.curves.resampling import CurveTarget
    from tfmat.curves.settings import CurveSettings
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
    assert dataclasses.asdict(result.parameters["G0"]) == {
        "value": 5000.0,
        "unit": "MPa",
        "fixed": False,
    }
    assert result.to_json()["parameters"]["a"] == {
        "value": 2.44e-8,
        "unit": "MPa^-3",
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
