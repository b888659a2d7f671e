"""The spectrum of a record against the law that made it, point by point integration, and its own meaning."""

import keras
import numpy as np
import pytest

from tfmat.config import default_config
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.materials import find_law
from tfmat.materials.history import History
from tfmat.models import build_model
from tfmat.models.plastic_spectrum import PlasticSpectrum, _flow, _held, _memories

RATES = np.geomspace(1.0, 1000.0, 10)
GAINS = np.geomspace(0.5, 50.0, 6)
SCALE = (0.03, 600.0)


def _cycles(points=400, amplitude=0.02):
    return amplitude * np.interp(
        np.linspace(0, 8, points), range(9), [0, 1, -1, 1, -1, 1, -1, 1, -1]
    )


def _record(law, parameters, strain):
    stress = find_law(law).respond(History("uniaxial", strain=strain[None]), np.array([parameters]))
    return np.stack([strain[None], stress, np.zeros_like(stress)], axis=2)


def _amounts(record):
    """Amounts of the weakest ridge, MPa: memories, gains, first yield stress."""
    layer = PlasticSpectrum(SCALE, dtype="float64")
    numbers = np.asarray(layer(record))[0]
    return np.sinh(3.0 * numbers[:51].reshape(3, 17)[-1]) / 6.0 * SCALE[1]


@pytest.mark.parametrize("rate", [3, 5, 7])
def test_a_law_whose_rates_lie_on_the_grid_has_its_amounts_there(rate):
    law = [200e3, 300.0, 120.0, GAINS[3], 80.0 * RATES[rate], RATES[rate]]
    amounts = _amounts(_record("voce_chaboche_1", law, _cycles()))
    # A ridge regression shares an amount with the neighbouring rates, more so at slow ones.
    assert amounts[:10].argmax() == rate
    assert amounts[rate - 1 : rate + 2].sum() == pytest.approx(80.0, rel=0.2)
    assert amounts[10:16].argmax() == 3
    assert amounts[10:16].sum() == pytest.approx(120.0, rel=0.05)
    assert amounts[-1] == pytest.approx(300.0, rel=0.01)


def test_the_modulus_and_the_plastic_path_are_those_of_the_law():
    parameters = [200e3, 300.0, 50.0, 5.0, 20e3, 100.0]
    strain = _cycles()
    record = _record("voce_chaboche_1", parameters, strain)
    numbers = np.asarray(PlasticSpectrum(SCALE, dtype="float64")(record))[0]
    scale = SCALE[1] / SCALE[0]
    assert np.exp(numbers[-1]) * 10.0 * scale == pytest.approx(200e3, rel=0.02)
    # Integrated independently: the plastic strain is what the elastic strain leaves.
    plastic = strain - record[0, :, 1] / 200e3
    path = np.abs(np.diff(plastic)).sum()
    assert np.exp(numbers[-2]) * SCALE[0] == pytest.approx(path, rel=0.02)


def test_memories_are_the_integral_over_the_plastic_path():
    random = np.random.default_rng(0)
    flow = random.uniform(0.0, 2e-3, (3, 47))
    direction = np.sign(random.normal(size=(3, 47)))
    expected, memory = np.empty((3, 47, 10)), np.zeros((3, 10))
    for i in range(47):
        for _ in range(200):  # small explicit steps of dm = rate (direction - m) dp
            memory = memory + RATES * (direction[:, i, None] - memory) * flow[:, i, None] / 200
        expected[:, i] = memory
    found = np.asarray(
        _memories(keras.ops.convert_to_tensor(flow), keras.ops.convert_to_tensor(direction))
    )
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_plastic_strain_never_goes_back_within_a_branch():
    plastic = np.array([[0.0, 0.1, 0.3, 0.2, 0.4, 0.4, 0.1, 0.2, -0.3]])
    steps = np.array([[0.0, 1.0, 1.0, 1.0, 1.0, 0.0, -1.0, -1.0, -1.0]])
    flow, direction = _flow(
        keras.ops.convert_to_tensor(plastic), keras.ops.convert_to_tensor(steps)
    )
    np.testing.assert_allclose(flow[0], [0, 0.1, 0.2, 0, 0.1, 0, 0.3, 0, 0.4], atol=1e-9)
    np.testing.assert_allclose(direction[0], [0, 1, 1, 1, 1, 1, -1, -1, -1])


def test_a_rest_keeps_the_direction():
    direction = keras.ops.convert_to_tensor(np.array([[0.0, 1, 0, 0, 0, -1, 0, 1]]))
    np.testing.assert_array_equal(_held(direction)[0], [0, 1, 1, 1, 1, -1, -1, 1])


def test_padding_says_nothing():
    record = _record("voce_chaboche_1", [200e3, 300.0, 50.0, 5.0, 20e3, 100.0], _cycles(300))
    padding = np.zeros((1, 100, 3))
    padding[:, :, 2] = 1.0
    whole = np.concatenate([record, padding], axis=1)
    layer = PlasticSpectrum(SCALE, dtype="float64")
    known = np.asarray(layer(whole))
    np.testing.assert_allclose(known, np.asarray(layer(record)), rtol=1e-6, atol=1e-6)
    missing = np.zeros((1, 400, 3))
    missing[:, :, 2] = 1.0
    assert np.isfinite(np.asarray(layer(missing))).all()


def test_tension_and_compression_tell_the_same():
    record = _record("voce_chaboche", [200e3, 300.0, 50.0, 5.0, 50e3, 500.0, 5e3, 30.0], _cycles())
    layer = PlasticSpectrum(SCALE, dtype="float64")
    mirrored = record * [-1.0, -1.0, 1.0]
    np.testing.assert_allclose(np.asarray(layer(mirrored)), np.asarray(layer(record)), rtol=1e-9)


@pytest.mark.parametrize("tokens", [(), ((1.0, 0.0), (0.0, 1.0))])
def test_a_network_of_it_is_saved_whole_and_has_no_convolution(tmp_path, tokens):
    config = default_config().model
    config.representation, config.hidden_units = "plastic_spectrum", (9, 5)
    model = build_model(
        config, num_outputs=8, num_points=120, tokens=tokens, input_scale=(*SCALE, 1.0)
    )
    assert not [layer for layer in model.layers if "conv" in layer.name]
    curves = Simulator(CurveSettings(law="voce_chaboche", num_points=120), seed=0).curves(0, 20)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(again(curves.features).numpy(), model(curves.features).numpy())
