"""Networks: their layers and heads against Keras's own and closed forms."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfmat.config import apply_override, check_config, default_config
from tfmat.errors import InputError
from tfmat.networks.factory import (
    CurveExtent,
    CurveShape,
    ExampleWeightedBatchNormalization,
    batch_context,
    build_for,
    build_model,
    is_synchronized,
    negative_log_likelihood,
    plain_normalizations,
    squared_error_of_mean,
)
from tfmat.networks.flow import POSTERIOR
from tfmat.workflow import curve_settings, make_dataset

# What a config makes.


def _built(outputs=2, seed=0, scale=(0.05, 140.0, 1.0), **overrides):
    config = default_config()
    for key, text in overrides.items():
        apply_override(config, f"model.{key}", text)
    return build_model(config.model, num_outputs=outputs, input_scale=scale, seed=seed)


def _numbers(*shape):
    return np.random.default_rng(0).uniform(0.0, 1.0, shape).astype(np.float32)


def test_default_network_has_153441_parameters():
    # 352 + 2,712 in the convolutions, 150,125 + 252 in the dense layers: the design's materials page.
    model = _built()
    assert model.count_params() == 153_441
    counts = [layer.count_params() for layer in model.layers if layer.count_params()]
    assert counts == [352, 2712, 150125, 252]
    assert model.input_shape == (None, 200, 3) and model.output_shape == (None, 2)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_same_function_as_the_textbook_order_of_layers(activation):
    """Convolution, activation, pooling; ours pools first where that is the same."""
    ours = _built(activation=activation)
    layers = keras.layers
    textbook = keras.Sequential(
        [
            layers.Input((200, 3)),
            layers.Conv1D(16, 7, padding="same", activation=activation),
            layers.MaxPooling1D(2),
            layers.Conv1D(24, 7, padding="same", activation=activation),
            layers.MaxPooling1D(2),
            layers.Flatten(),
            layers.Dense(125, activation=activation),
            layers.Dense(2),
        ]
    )
    textbook.set_weights(ours.get_weights())
    curves = _numbers(16, 200, 3)
    physical = curves * np.array([0.05, 140.0, 1.0], np.float32)
    np.testing.assert_allclose(ours(physical), textbook(curves), rtol=1e-5, atol=1e-6)


def test_seed_makes_the_initial_weights():
    first, second, other = (_built(seed=seed).get_weights() for seed in (1, 1, 2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(first, other, strict=True))


def test_widths_kernels_and_depth_follow_the_config():
    layers = {"conv_filters": "4,5,6", "kernel_sizes": "3,5,7", "hidden_units": "10,9"}
    model = _built(3, **layers, pool_size="2", dropout="0.1")
    # by hand: 3*3*4+4, 5*4*5+5, 7*5*6+6, 25*6*10+10, 10*9+9, 9*3+3
    assert model.count_params() == 40 + 105 + 216 + 1510 + 99 + 30
    assert sum(isinstance(layer, keras.layers.Dropout) for layer in model.layers) == 2


def test_couplings_and_their_units_follow_the_config():
    layers = {"conv_filters": "4", "kernel_sizes": "3", "hidden_units": "10", "pool_size": "2"}
    model = _built(3, **layers, uncertainty="flow", couplings="4", coupling_units="16")
    # 3 means, 3 scales, 3 correlations, and each coupling's units
    assert model.output_shape == (None, 9 + 4 * 16)
    # of each coupling: 2 labels * 16; 16 * 23 knots of one label, by 8 bins, and 23
    assert model.get_layer("posterior").count_params() == 4 * (32 + 16 * 23 + 23)


@pytest.mark.parametrize(("law", "terms"), [("voce", []), ("voce_chaboche", [[5, 4], [7, 6]])])
def test_a_posterior_knows_which_terms_of_its_law_are_interchangeable(tmp_path, law, terms):
    config = default_config()
    config.law, config.model.uncertainty = law, "flow"
    config.data.num_curves, config.data.num_test = 40, 10
    dataset = make_dataset(config, curve_settings(config), str(tmp_path))
    assert build_for(config, dataset).get_layer(POSTERIOR).terms == terms


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"conv_filters": "16"}, "model.conv_filters has 1 entries and model.kernel_sizes 2"),
        ({"pool_size": "20"}, "leave nothing of 200 points"),
        ({"couplings": "8"}, "model.couplings is for model.uncertainty=flow, not none"),
        (
            {"coupling_units": "64", "uncertainty": "gaussian"},
            "model.coupling_units is for model.uncertainty=flow, not gaussian",
        ),
    ],
)
def test_impossible_networks_are_refused(overrides, message):
    with pytest.raises(InputError, match=message):
        _built(**overrides)


# Normalisation over the true examples of a batch, against Keras's own layer.


RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(3.0, 2.0, (12, 5, 4)).astype(np.float32)


def _identity(tensors):
    return tensors


def _trained(layer, inputs, weights=None, reduce=_identity):
    layer.build(inputs.shape)
    if weights is None:
        return layer(inputs, training=True).numpy()
    with batch_context(tf.constant(weights), reduce):
        return layer(inputs, training=True).numpy()


def test_without_padding_it_is_keras_layer():
    ours, keras_layer = ExampleWeightedBatchNormalization(), keras.layers.BatchNormalization()
    np.testing.assert_allclose(
        _trained(ours, INPUTS, np.ones(12, np.float32)),
        _trained(keras_layer, INPUTS),
        rtol=1e-4,
        atol=1e-5,
    )
    for a, b in zip(ours.non_trainable_variables, keras_layer.non_trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_padding_changes_no_statistic():
    layer = ExampleWeightedBatchNormalization()
    weights = np.r_[np.ones(7), np.zeros(5)].astype(np.float32)
    outputs = _trained(layer, INPUTS, weights)
    true = INPUTS[:7].reshape(-1, 4).astype(np.float64)
    expected = (INPUTS[:7] - true.mean(0)) / np.sqrt(true.var(0) + layer.epsilon)
    np.testing.assert_allclose(outputs[:7], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, 0.01 * true.mean(0), rtol=1e-4)


def test_keras_own_layer_in_a_step():
    """Padding does not count there either, a mask does, and outside of the step it is Keras's again."""
    layer = keras.layers.BatchNormalization()
    layer.build(INPUTS.shape)
    model = keras.Sequential([keras.layers.Input(INPUTS.shape[1:]), layer])
    assert plain_normalizations(model) == [layer] and is_synchronized(layer)
    weights = np.r_[np.ones(7), np.zeros(5)].astype(np.float32)
    mask = RANDOM.uniform(size=INPUTS.shape[:2]) > 0.4
    for chosen in (None, mask):
        with batch_context(tf.constant(weights), _identity, [layer]):
            outputs = layer(INPUTS, training=True, mask=chosen).numpy()
        true = INPUTS[:7][mask[:7] if chosen is not None else np.ones((7, 5), bool)]
        true = true.reshape(-1, 4).astype(np.float64)
        expected = (INPUTS[:7] - true.mean(0)) / np.sqrt(true.var(0) + layer.epsilon)
        np.testing.assert_allclose(outputs[:7], expected, rtol=1e-4, atol=1e-5)
    outputs = layer(INPUTS, training=True).numpy()
    np.testing.assert_allclose(
        outputs, _trained(keras.layers.BatchNormalization(), INPUTS), rtol=1e-5, atol=1e-6
    )


def test_synchronized_sums_over_workers_and_local_does_not():
    """A reducer that doubles stands for a second worker with the same part: means stay, and it is asked."""
    asked = []

    def doubled(tensors):
        asked.append(len(tensors))
        return [2 * tensor for tensor in tensors]

    weights = np.ones(12, np.float32)
    reference = _trained(keras.layers.BatchNormalization(), INPUTS)
    synchronized = _trained(
        ExampleWeightedBatchNormalization(synchronized=True), INPUTS, weights, doubled
    )
    np.testing.assert_allclose(synchronized[:, 0], reference[:, 0], atol=2.0)
    assert asked == [2, 1]
    _trained(ExampleWeightedBatchNormalization(synchronized=False), INPUTS, weights, doubled)
    assert asked == [2, 1]


# Ghost batches against Keras's own layer on each of them.


def _ghost_layer(size, shape):
    layer = ExampleWeightedBatchNormalization(synchronized=False, ghost_batch_size=size)
    layer.build(shape)
    layer.gamma.assign(np.linspace(0.5, 2.0, shape[-1]))
    layer.beta.assign(np.linspace(-1.0, 1.0, shape[-1]))
    return layer


def _of_keras(inputs, gamma, beta):
    layer = keras.layers.BatchNormalization()
    layer.build(inputs.shape)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    return layer(inputs, training=True).numpy(), layer.moving_mean.numpy(), layer.moving_variance


@pytest.mark.parametrize("shape", [(12, 5, 4), (14, 4)])
def test_each_ghost_batch_is_normalised_as_keras_does(shape):
    """14 examples in ghosts of 4: the last has two."""
    inputs = RANDOM.normal(3.0, 2.0, shape).astype(np.float32)
    layer = _ghost_layer(4, shape)
    outputs = layer(inputs, training=True).numpy()
    ghosts = [inputs[i : i + 4] for i in range(0, len(inputs), 4)]
    expected = [_of_keras(ghost, layer.gamma, layer.beta) for ghost in ghosts]
    np.testing.assert_allclose(outputs, np.concatenate([e[0] for e in expected]), atol=2e-5)
    np.testing.assert_allclose(layer.moving_mean, np.mean([e[1] for e in expected], 0), rtol=1e-4)
    np.testing.assert_allclose(
        layer.moving_variance, np.mean([e[2] for e in expected], 0), rtol=1e-4
    )


def test_padding_changes_no_ghost():
    """Seven examples, five of padding: one ghost of four, one of three, one of none."""
    inputs = RANDOM.normal(3.0, 2.0, (12, 5, 4)).astype(np.float32)
    layer = _ghost_layer(4, inputs.shape)
    with batch_context(tf.constant([1.0] * 7 + [0.0] * 5), lambda tensors: tensors):
        outputs = layer(inputs, training=True).numpy()
    expected = [
        _of_keras(inputs[part], layer.gamma, layer.beta) for part in (slice(4), slice(4, 7))
    ]
    np.testing.assert_allclose(outputs[:7], np.concatenate([e[0] for e in expected]), atol=2e-5)
    np.testing.assert_allclose(layer.moving_mean, np.mean([e[1] for e in expected], 0), rtol=1e-4)
    assert np.isfinite(outputs).all()


def test_in_fit_and_from_a_file(tmp_path):
    model = keras.Sequential([keras.layers.Input((5, 4)), _ghost_layer(3, (None, 5, 4))])
    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(1))
    model.compile("sgd", loss="mse")
    inputs = RANDOM.normal(size=(20, 5, 4)).astype(np.float32)
    model.fit(inputs, inputs[:, 0, :1], batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert (loaded.layers[0].ghost_batch_size, loaded.layers[0].synchronized) == (3, False)
    np.testing.assert_allclose(
        loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0), rtol=1e-6
    )


def test_from_the_config():
    config = default_config()
    apply_override(config, "model.ghost_batch_size", "32")
    with pytest.raises(InputError, match="is for model.batch_normalization=local, not none"):
        check_config(config)
    apply_override(config, "model.batch_normalization", "local")
    model = build_model(check_config(config).model, num_outputs=2)
    layers = [la for la in model.layers if isinstance(la, ExampleWeightedBatchNormalization)]
    assert [layer.ghost_batch_size for layer in layers] == [32] * 3


# Networks that see a curve's shape and its extent apart.


SCALE = (0.6, 2000.0, 1.0)


def _curves(count=6, seed=0):
    random = np.random.default_rng(seed)
    strain = np.linspace(0, 1, 200) ** 2 * random.uniform(0.005, 0.6, (count, 1))
    stress = random.uniform(20, 2000, (count, 1)) * np.tanh(strain / 0.003)
    flag = np.zeros_like(strain)
    flag[0, 150:] = 1
    return np.stack([strain * (flag == 0), stress * (flag == 0), flag], axis=2).astype(np.float32)


def test_shape_and_extent_are_what_they_say():
    curves = _curves()
    largest = curves[:, :, :2].max(axis=1)
    shape, extent = (np.array(CurveShape()(curves)), np.array(CurveExtent(SCALE)(curves)))
    np.testing.assert_allclose(shape[:, :, :2] * largest[:, None], curves[:, :, :2], rtol=1e-5)
    np.testing.assert_array_equal(shape[:, :, 2], curves[:, :, 2])
    np.testing.assert_allclose(extent, np.log(largest / [0.6, 2000.0]) / 2.5, atol=1e-6)
    nothing = np.zeros((1, 200, 3), np.float32)
    assert np.isfinite(np.array(CurveShape()(nothing))).all()
    assert np.isfinite(np.array(CurveExtent((0.6, 2000.0))(nothing))).all()


@pytest.mark.parametrize("uncertainty", ["none", "gaussian"])
def test_only_the_extent_tells_of_the_size_of_a_curve(uncertainty):
    model, curves = (
        _built(4, scale=SCALE, input_scaling="curve", uncertainty=uncertainty),
        _curves(),
    )
    larger = curves * np.array([0.5, 3.0, 1.0], np.float32)
    body = keras.Model(model.input, model.get_layer("flatten").output)
    np.testing.assert_allclose(body(larger), body(curves), atol=1e-5)
    assert np.abs(np.array(model(larger)) - np.array(model(curves))).max() > 1e-3
    assert model.output_shape == (None, 4 if uncertainty == "none" else 8)


# The network for records of several tests: shared weights, tokens, and tests that are missing.


TOKENS = ((1.0, 0.0), (0.0, 1.0), (0.0, 1.0))


def _of_tests(scaling="curve", **options):
    config = default_config().model
    config.input_scaling, config.hidden_units, config.conv_filters = scaling, (9,), (4, 5)
    return build_model(config, num_outputs=2, num_points=96, tokens=TOKENS, seed=1, **options)


def _features():
    features = 0.1 + 0.9 * _numbers(4, 96, 3)
    features[:, :, 2] = 0.0
    return features


@pytest.mark.parametrize("scaling", ["curve", "data_set"])
def test_a_missing_test_is_no_matter_what_stands_in_its_place(scaling):
    model, features = _of_tests(scaling), _features()
    features[:, 32:64] = [0.0, 0.0, 1.0]
    known = model(features).numpy()
    features[:, 32:64, :2] = 0.7
    np.testing.assert_allclose(model(features).numpy(), known, rtol=1e-6)
    features[:, 32:64, 2] = 0.0
    assert np.abs(model(features).numpy() - known).max() > 1e-4


def test_tests_of_one_kind_may_change_places_and_others_not():
    model, features = _of_tests(), _features()
    known = model(features).numpy()
    swapped = np.concatenate([features[:, :32], features[:, 64:], features[:, 32:64]], axis=1)
    np.testing.assert_allclose(model(swapped).numpy(), known, rtol=1e-5, atol=1e-6)
    others = np.concatenate([features[:, 32:64], features[:, :32], features[:, 64:]], axis=1)
    assert np.abs(model(others).numpy() - known).max() > 1e-4


@pytest.mark.parametrize("channel", ["rate", "noise"])
def test_rate_and_noise_are_seen_over_decades(channel):
    model = _of_tests(channels=("strain", "stress", "flag", channel))
    features = np.concatenate([_features(), np.ones((4, 96, 1), np.float32)], axis=2)
    answers = []
    for rate in (1e-4, 1e-2, 1.0, 100.0):
        features[:, :, 3] = rate
        answers.append(model(features).numpy())
    steps = np.abs(np.diff(answers, axis=0)).max(axis=(1, 2))
    assert (steps > 1e-3).all() and steps.max() < 20 * steps.min()


# The variance head: what it is worth, that it leaves the mean alone, and that its file is Keras's own.


def test_the_head_stands_beside_the_network():
    with_head, without = _built(seed=3, uncertainty="gaussian"), _built(seed=3)
    # 125 x 32 + 32 and 32 x 2 + 2.
    assert with_head.count_params() == 153_441 + 4_032 + 66
    assert with_head.output_shape == (None, 4)
    weights = {weight.path: weight.numpy() for weight in with_head.weights}
    for weight in without.weights:
        np.testing.assert_array_equal(weights[weight.path], weight.numpy())
    curves = _numbers(5, 200, 3)
    np.testing.assert_array_equal(with_head(curves)[:, :2], without(curves))


def test_losses_are_those_of_scipy():
    labels, mean = RANDOM.uniform(0, 1, (2, 7, 2))
    log_variance = RANDOM.normal(-4, 2, (7, 2))
    outputs = np.concatenate([mean, log_variance], axis=1)
    found = negative_log_likelihood(2)(tf.constant(labels), tf.constant(outputs))
    expected = -scipy.stats.norm.logpdf(labels, mean, np.exp(log_variance / 2))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    squares = squared_error_of_mean(2)(tf.constant(labels), tf.constant(outputs))
    np.testing.assert_allclose(squares, ((labels - mean) ** 2).mean(axis=1), rtol=1e-12)


def test_stored_networks_are_ordinary_keras_files(tmp_path, programs):
    """Without layers of its own in Keras alone, and others where tfmat is there."""
    channels = ("strain", "stress", "flag", "time", "rate", "temperature")
    kinds = {
        "plain": (_built(), 3),
        "head": (_built(uncertainty="gaussian", conv_filters="4,6", hidden_units="20"), 3),
        "curve": (_built(input_scaling="curve", uncertainty="gaussian"), 3),
        "tests": (_of_tests(channels=channels), 6),
    }
    for name, (model, width) in kinds.items():
        model.save(tmp_path / f"{name}.keras")
        again = keras.saving.load_model(tmp_path / f"{name}.keras", compile=False)
        inputs = _numbers(4, model.input_shape[1], width)
        np.testing.assert_allclose(again(inputs), model(inputs), rtol=1e-6)
    curves = _numbers(4, 200, 3)
    np.save(tmp_path / "curves.npy", curves)
    # A fork has tfmat: without its modules, and what they told Keras, it is as if it had none.
    program = """
import os, sys, numpy, keras
for name in [name for name in sys.modules if name.startswith("tfmat")]:
    del sys.modules[name]
sys.modules["tfmat"] = None
keras.saving.get_custom_objects().clear()
os.chdir(sys.argv[1])
model = keras.saving.load_model("head.keras")
numpy.save("outputs.npy", model(numpy.load("curves.npy")))
try:
    keras.saving.load_model("curve.keras")
except TypeError:
    print("tfmat is needed")
"""
    assert programs.python("-c", program, tmp_path) == "tfmat is needed\n"
    expected = kinds["head"][0](curves)
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), expected, rtol=1e-5)
