"""Networks that see a curve's shape and its extent apart."""

import keras
import numpy as np
import pytest

from tfmat.config import apply_override, default_config
from tfmat.networks import build_model
from tfmat.networks.factory import CurveExtent, CurveShape


def _curves(count=6, seed=0):
    random = np.random.default_rng(seed)
    strain = np.linspace(0, 1, 200) ** 2 * random.uniform(0.005, 0.6, (count, 1))
    stress = random.uniform(20, 2000, (count, 1)) * np.tanh(strain / 0.003)
    flag = np.zeros_like(strain)
    flag[0, 150:] = 1
    return np.stack([strain * (flag == 0), stress * (flag == 0), flag], axis=2).astype(np.float32)


def _model(**overrides):
    config = default_config()
    for key, text in {"input_scaling": "curve", **overrides}.items():
        apply_override(config, f"model.{key}", text)
    return build_model(config.model, num_outputs=4, input_scale=(0.6, 2000.0, 1.0))


def test_shape_and_extent_are_what_they_say():
    curves = _curves()
    largest = curves[:, :, :2].max(axis=1)
    shape, extent = (
        np.array(CurveShape()(curves)),
        np.array(CurveExtent((0.6, 2000.0, 1.0))(curves)),
    )
    np.testing.assert_allclose(shape[:, :, :2] * largest[:, None], curves[:, :, :2], rtol=1e-5)
    np.testing.assert_array_equal(shape[:, :, 2], curves[:, :, 2])
    np.testing.assert_allclose(extent, np.log(largest / [0.6, 2000.0]) / 2.5, atol=1e-6)
    nothing = np.zeros((1, 200, 3), np.float32)
    assert np.isfinite(np.array(CurveShape()(nothing))).all()
    assert np.isfinite(np.array(CurveExtent((0.6, 2000.0))(nothing))).all()


@pytest.mark.parametrize("uncertainty", ["none", "gaussian"])
def test_only_the_extent_tells_of_the_size_of_a_curve(uncertainty):
    model, curves = _model(uncertainty=uncertainty), _curves()
    larger = curves * np.array([0.5, 3.0, 1.0], np.float32)
    body = keras.Model(model.input, model.get_layer("flatten").output)
    np.testing.assert_allclose(body(larger), body(curves), atol=1e-5)
    assert np.abs(np.array(model(larger)) - np.array(model(curves))).max() > 1e-3
    assert model.output_shape == (None, 4 if uncertainty == "none" else 8)


def test_it_is_stored_and_read_again(tmp_path):
    model, curves = _model(uncertainty="gaussian"), _curves()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(again(curves), model(curves), rtol=1e-6)
