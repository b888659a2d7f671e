"""The spectrum of a record and its layers against the law, point by point integration and Keras's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import default_config
from tfmat.data.dataset import input_scale
from tfmat.materials import find_law
from tfmat.materials.law import History
from tfmat.materials.registry import MONOTONIC_LAWS
from tfmat.networks.factory import ReshapedMaxPooling1D, UnfoldedConvolution1D, build_model
from tfmat.networks.law_fit import (
    PlasticSpectrum,
    _flow,
    _held,
    _running_maximum,
    _sums,
    memories_of,
    numbers_of,
    spectrum_of,
)
from tfmat.records.simulation import CurveSettings, Simulator

# The spectrum of a record against the law that made it, point by point integration, and its own meaning.


RATES = 2.0 * 2.0 ** np.arange(10)
GAINS = 0.5 * 2.0 ** np.arange(7)
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
    return np.sinh(2.0 * numbers[:54].reshape(3, 18)[-1]) / 60.0 * SCALE[1]


@pytest.mark.parametrize("rate", [3, 5, 7])
def test_a_law_whose_rates_lie_on_the_grid_has_its_amounts_there(rate):
    law = [200e3, 300.0, 120.0, GAINS[4], 80.0 * RATES[rate], RATES[rate]]
    amounts = _amounts(_record("voce_chaboche_1", law, _cycles()))
    # A ridge regression shares an amount with the neighbouring rates, more so at slow ones.
    assert amounts[:10].argmax() == rate
    assert amounts[rate - 1 : rate + 2].sum() == pytest.approx(80.0, rel=0.2)
    assert amounts[10:17].argmax() == 4
    assert amounts[10:17].sum() == pytest.approx(120.0, rel=0.05)
    assert amounts[-1] == pytest.approx(300.0, rel=0.01)


def test_the_amounts_of_a_rising_curve_add_up_to_its_hardening():
    """Memories and gains of one rate are the same where the strain never turns: only their sum means something."""
    record = _record("voce", [200e3, 300.0, 120.0, 16.0], 0.1 * np.linspace(0.0, 1.0, 200) ** 2)
    amounts = _amounts(record)
    plastic = np.linspace(0.002, 0.095, 50)
    rates = np.concatenate([RATES, GAINS])
    hardening = (1.0 - np.exp(-np.multiply.outer(plastic, rates))) @ amounts[:-1]
    expected = 300.0 + 120.0 * (1.0 - np.exp(-16.0 * plastic))
    np.testing.assert_allclose(amounts[-1] + hardening, expected, atol=2.0)
    assert amounts[-1] == pytest.approx(300.0, rel=0.01)
    modulus = np.exp(np.asarray(PlasticSpectrum(SCALE, dtype="float64")(record))[0, -1] / 4.0)
    assert modulus * 10.0 * SCALE[1] / SCALE[0] == pytest.approx(200e3, rel=0.02)


@pytest.mark.parametrize("law", MONOTONIC_LAWS)
def test_curves_of_every_law_have_finite_numbers(law):
    """Also with noise of 2 %, a wrong zero, few recorded points, and where a curve broke off."""
    observed = {"noise_of_maximum": (3e-4, 2e-2), "strain_offset": (5e-6, 2e-4)}
    settings = CurveSettings(law=law, measured_points=(15, 400), **observed)
    features = Simulator(settings, seed=0).curves(0, 128).features
    numbers = np.asarray(PlasticSpectrum(input_scale(features))(features))
    assert np.isfinite(numbers).all() and numbers.std(axis=0).max() > 0.1


def test_the_modulus_and_the_plastic_path_are_those_of_the_law():
    parameters = [200e3, 300.0, 50.0, 5.0, 20e3, 100.0]
    strain = _cycles()
    record = _record("voce_chaboche_1", parameters, strain)
    numbers = np.asarray(PlasticSpectrum(SCALE, dtype="float64")(record))[0]
    scale = SCALE[1] / SCALE[0]
    assert np.exp(numbers[-1] / 4.0) * 10.0 * scale == pytest.approx(200e3, rel=0.02)
    # Integrated independently: the plastic strain is what the elastic strain leaves.
    plastic = strain - record[0, :, 1] / 200e3
    path = np.abs(np.diff(plastic)).sum()
    assert np.exp(numbers[-2]) * SCALE[0] == pytest.approx(path, rel=0.02)


def test_plastic_strain_never_goes_back_within_a_branch():
    plastic = np.array([[0.0, 0.1, 0.3, 0.2, 0.4, 0.4, 0.1, 0.2, -0.3]])
    steps = np.array([[0.0, 1.0, 1.0, 1.0, 1.0, 0.0, -1.0, -1.0, -1.0]])
    direction = np.asarray(_held(keras.ops.convert_to_tensor(np.sign(steps))))
    np.testing.assert_allclose(direction[0], [0, 1, 1, 1, 1, 1, -1, -1, -1])
    turns = np.diff(direction, axis=1, prepend=0.0) != 0
    flow = _flow(
        *map(
            keras.ops.convert_to_tensor,
            (plastic, steps, direction, turns, np.cumsum(turns, axis=1) * 1.0),
        )
    )
    np.testing.assert_allclose(flow[0], [0, 0.1, 0.2, 0, 0.1, 0, 0.3, 0, 0.4], atol=1e-9)


def test_sums_and_maxima_are_those_of_numpy():
    values = np.random.default_rng(0).normal(size=(3, 60))
    tensor = keras.ops.convert_to_tensor(values)
    np.testing.assert_allclose(_sums(tensor), np.cumsum(values, axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(_running_maximum(tensor), np.maximum.accumulate(values, axis=1))


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
    # In a graph, which may sum in another order; 64 points are padded to whole links.
    curves = Simulator(CurveSettings(law="voce_chaboche", num_points=64), seed=0).curves(0, 50)
    found = np.asarray(
        tf.function(PlasticSpectrum(SCALE), autograph=False)(tf.constant(curves.features))
    )
    assert np.isfinite(found).all()


def test_tension_and_compression_tell_the_same():
    record = _record("voce_chaboche", [200e3, 300.0, 50.0, 5.0, 50e3, 500.0, 5e3, 30.0], _cycles())
    layer = PlasticSpectrum(SCALE, dtype="float64")
    mirrored = record * [-1.0, -1.0, 1.0]
    np.testing.assert_allclose(np.asarray(layer(mirrored)), np.asarray(layer(record)), rtol=1e-9)


def test_numbers_are_told_as_deviations_from_the_mean():
    features = (
        Simulator(CurveSettings(law="voce_chaboche", num_points=120), seed=0)
        .curves(0, 200)
        .features
    )
    missing = np.zeros((50, 120, 3), np.float32)
    missing[:, :, 2] = 1.0
    mean, deviation = numbers_of(np.concatenate([features, missing]), SCALE)
    plain = np.asarray(PlasticSpectrum(SCALE)(features))
    told = np.asarray(PlasticSpectrum(SCALE, mean, deviation)(features))
    np.testing.assert_allclose(mean, plain.mean(axis=0), rtol=6e-3, atol=1e-5)
    expected = ((plain - plain.mean(axis=0)) / plain.std(axis=0)).clip(-6, 6)
    np.testing.assert_allclose(told, expected, atol=0.1)


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


def _network(tests):
    config = default_config().model
    config.representation, config.hidden_units = "plastic_spectrum", (9, 5)
    return build_model(
        config, num_outputs=8, num_points=120 * tests, tokens=((1.0, 0.0),) * tests,
        input_scale=(*SCALE, 1.0),
    )  # fmt: skip


def test_tests_of_a_record_are_seen_as_if_each_were_alone():
    simulated = Simulator(CurveSettings(law="voce_chaboche", num_points=120), seed=0)
    one, two, three = np.split(simulated.curves(0, 60).features, 3)
    missing = np.zeros_like(two)
    missing[:, :, 2] = 1.0
    three_tests, two_tests = _network(3), _network(2)
    two_tests.set_weights(three_tests.get_weights())
    seen = keras.Model(three_tests.inputs[0], three_tests.get_layer("seen_tests").output)

    def record(*tests):
        return np.concatenate(tests, axis=1)

    numbers = seen(record(one, missing, two)).numpy()
    alone = PlasticSpectrum(SCALE)
    np.testing.assert_allclose(numbers[:, 0, :-1], alone(one), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(numbers[:, 2, :-1], alone(two), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(numbers[:, :, -1], np.tile([0.0, 1.0, 0.0], (20, 1)))
    known = two_tests(record(one, two)).numpy()
    for order in ((one, missing, two), (missing, two, one)):
        np.testing.assert_allclose(three_tests(record(*order)), known, rtol=1e-4, atol=1e-4)
    # Several tests count: a further one moves the answer.
    assert np.abs(three_tests(record(one, three, two)).numpy() - known).max() > 1e-2


def test_a_network_that_learnt_from_other_numbers_is_refused():
    with pytest.raises(ValueError, match="earlier tfmat"):
        PlasticSpectrum.from_config({"input_scale": list(SCALE)})


# The unfolded convolution and its pooling against Keras's own, with Keras's variables.


@pytest.mark.parametrize("kernel_size", [1, 2, 4, 7])
def test_convolution(kernel_size):
    inputs = np.random.default_rng(0).normal(size=(3, 11, 5)).astype("f")
    reference = keras.layers.Conv1D(4, kernel_size, padding="same", activation="tanh")
    expected = reference(inputs)
    ours = UnfoldedConvolution1D(4, kernel_size, padding="same", activation="tanh")
    ours.build(inputs.shape)
    ours.set_weights(reference.get_weights())
    np.testing.assert_allclose(ours(inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pool_size", [2, 3])
def test_pooling_drops_what_is_left_over(pool_size):
    inputs = np.random.default_rng(0).normal(size=(3, 11, 5)).astype("f")
    expected = keras.layers.MaxPooling1D(pool_size)(inputs)
    np.testing.assert_array_equal(ReshapedMaxPooling1D(pool_size)(inputs), expected)


def test_model_of_the_config_exchanges_weights_and_files_with_the_direct_one(tmp_path):
    config = default_config().model
    direct = build_model(config, num_outputs=2, seed=1)
    config.convolution = "unfolded"
    unfolded = build_model(config, num_outputs=2, seed=1)
    assert [w.path for w in unfolded.weights] == [w.path for w in direct.weights]
    curves = np.random.default_rng(0).uniform(size=(4, 200, 3)).astype("f")
    expected = direct.predict(curves, verbose=0)
    # The same seed makes the same weights.
    np.testing.assert_allclose(unfolded.predict(curves, verbose=0), expected, rtol=1e-4, atol=1e-6)
    unfolded.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(curves, verbose=0), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("setting", [{"padding": "valid"}, {"padding": "same", "strides": 2}])
def test_what_it_does_not_do(setting):
    with pytest.raises(ValueError, match="use Conv1D"):
        UnfoldedConvolution1D(4, 3, **setting)


# Fading memories against point by point integration.


def test_memories_are_the_integral_over_the_plastic_path():
    random = np.random.default_rng(0)
    flow = random.uniform(0.0, 2e-3, (3, 60))
    direction = np.sign(random.normal(size=(3, 60)))
    expected, memory = np.empty((3, 10, 60)), np.zeros((3, 10))
    for i in range(60):
        for _ in range(200):  # small explicit steps of dm = rate (direction - m) dp
            memory = memory + RATES * (direction[:, i, None] - memory) * flow[:, i, None] / 200
        expected[:, :, i] = memory
    found = np.asarray(
        memories_of(keras.ops.convert_to_tensor(flow), keras.ops.convert_to_tensor(direction))
    )
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_amounts_are_those_of_a_ridge_regression_by_lapack():
    """Each number of the spectrum that a stored network was trained with, from NumPy's solution in float64."""
    random = np.random.default_rng(1)
    # Neighbouring terms are nearly alike, as neighbouring rates are.
    terms = np.cumsum(random.normal(size=(4, 18, 50)), axis=1) / 5.0
    stress, weight = random.normal(size=(4, 50)), random.random((4, 50))
    weighted = terms * weight[:, None, :]
    gram = weighted @ terms.transpose(0, 2, 1)
    seen = (weighted @ stress[:, :, None])[:, :, 0]
    held = np.diag(np.append(np.ones(17), 0.1))
    expected = np.stack(
        [
            np.linalg.solve(gram + ridge * held, seen[:, :, None])[:, :, 0]
            for ridge in (1e-1, 1e-2, 1e-3)
        ],
        axis=1,
    )
    for kind, tolerance in (("float64", 1e-9), ("float32", 2e-3)):
        tensors = [
            keras.ops.convert_to_tensor(each.astype(kind)) for each in (terms, stress, weight)
        ]
        numbers, _, left, _ = (np.asarray(each) for each in spectrum_of(*tensors))
        found = np.sinh(2.0 * numbers) / 60.0
        np.testing.assert_allclose(
            found.reshape(4, 3, 18), expected, rtol=tolerance, atol=tolerance
        )
        explained = 2.0 * (expected * seen[:, None]).sum(axis=2)
        explained -= np.einsum("cri,cij,crj->cr", expected, gram, expected)
        rest = (weight * stress**2).sum(axis=1)[:, None] - explained
        rest /= weight.sum(axis=1)[:, None] + 1.0
        np.testing.assert_allclose(left, np.log(rest + 1e-8) / 6.0, rtol=tolerance, atol=tolerance)
