"""Loading a run's model, predicting with it, and refusing what is no trained run."""

import json
import shutil

import keras
import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.identification.evaluate import CURVES_PER_CALL
from tfmat.identification.networks import Identifier, read_sidecar


@pytest.fixture
def copied_run(trained_run, tmp_path):
    return shutil.copytree(trained_run.workdir, tmp_path / "run")


def edit(workdir, **changes):
    file = workdir / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_predictions_are_those_of_the_stored_model_for_any_number_of_curves(trained_run):
    identifier = Identifier.open(trained_run.workdir)
    features = np.array(trained_run.dataset.features[: CURVES_PER_CALL + 3])
    expected = keras.saving.load_model(trained_run.workdir / "model.keras").predict(
        features, verbose=0
    )
    np.testing.assert_allclose(identifier.predict(features), expected, atol=1e-5)
    np.testing.assert_allclose(identifier.predict(features[7:8]), expected[7:8], atol=1e-5)
    assert identifier.predict(features[:0]).shape == (0, 2)


def test_the_meaning_of_the_outputs_comes_from_the_sidecar(trained_run):
    identifier = Identifier.open(trained_run.workdir)
    assert [p.name for p in identifier.parameters] == ["G0", "a"]
    assert identifier.law is not None
    assert identifier.law.name == "hahn_tsai"
    assert identifier.target.max_strain == (0.01, 0.05)
    assert identifier.target.max_stress_mpa == 140.0
    values = identifier.values(np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]))
    np.testing.assert_allclose(values, [[2000, 1e-9], [5000, 1e-8], [8000, 1e-7]])


def test_a_folder_without_a_model_is_refused(tmp_path, copied_run):
    with pytest.raises(InputError, match=r"holds no trained model .*tfmat train --workdir="):
        Identifier.open(tmp_path / "none")
    (copied_run / "model.json").unlink()
    with pytest.raises(InputError, match=r"model\.json is missing"):
        Identifier.open(copied_run)


def test_a_damaged_model_is_refused_in_one_line(copied_run):
    content = (copied_run / "model.keras").read_bytes()
    (copied_run / "model.keras").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        Identifier.open(copied_run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 4}, "format 4"),
        ({"parameters": [{"name": "G0"}]}, "is damaged"),
        ({"parameters": None}, "is damaged"),
        ({"curves": [1]}, "is damaged"),
        ({"num_points": 100}, "100 points"),
        ({"num_points": "many"}, "is damaged"),
    ],
)
def test_a_damaged_sidecar_is_refused_in_one_line(copied_run, changes, message):
    edit(copied_run, **changes)
    with pytest.raises(InputError, match=message) as caught:
        read_sidecar(copied_run)
    assert "\n" not in str(caught.value)


def test_a_sidecar_that_is_no_json_object_is_refused(copied_run):
    for text in ("[1, 2]", "{", "null", "3"):
        (copied_run / "model.json").write_text(text)
        with pytest.raises(InputError, match=r"model\.json"):
            read_sidecar(copied_run)


def test_a_model_of_another_shape_is_refused(copied_run):
    curves = json.loads((copied_run / "model.json").read_text())["curves"]
    edit(copied_run, num_points=100, curves=curves | {"num_points": 100})
    with pytest.raises(InputError, match="train again"):
        Identifier.open(copied_run)
    edit(copied_run, num_points=200, curves=curves | {"law": "tanh_shear", "ranges": {}})
    with pytest.raises(InputError, match="not those of law tanh_shear"):
        Identifier.open(copied_run)
