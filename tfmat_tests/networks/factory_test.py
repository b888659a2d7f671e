import keras
import numpy as np
import pytest

from tfmat.config import apply_override, default_config
from tfmat.errors import InputError
from tfmat.networks import build_for, build_model
from tfmat.networks.flow import POSTERIOR
from tfmat.workflow.dataset import curve_settings, make_dataset


def _config(**overrides):
    config = default_config()
    for key, text in overrides.items():
        apply_override(config, f"model.{key}", text)
    return config.model


def test_default_network_has_153441_parameters():
    # 352 + 2,712 in the convolutions, 150,125 + 252 in the dense layers: the design's materials page.
    model = build_model(_config(), num_outputs=2)
    assert model.count_params() == 153_441
    assert [layer.count_params() for layer in model.layers if layer.count_params()] == [
        352,
        2712,
        150125,
        252,
    ]
    assert model.input_shape == (None, 200, 3) and model.output_shape == (None, 2)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_same_function_as_the_textbook_order_of_layers(activation):
    """Convolution, activation, pooling; ours pools first where that is the same."""
    ours = build_model(
        _config(activation=activation), num_outputs=2, input_scale=(0.05, 140.0, 1.0)
    )
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
    curves = np.random.default_rng(0).uniform(0, 1, (16, 200, 3)).astype(np.float32)
    physical = curves * np.array([0.05, 140.0, 1.0], np.float32)
    np.testing.assert_allclose(ours(physical), textbook(curves), rtol=1e-5, atol=1e-6)


def test_seed_makes_the_initial_weights():
    first, second, other = (build_model(_config(), num_outputs=2, seed=seed) for seed in (1, 1, 2))
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(
        (a != b).any() for a, b in zip(first.get_weights(), other.get_weights(), strict=True)
    )


def test_widths_kernels_and_depth_follow_the_config():
    model = build_model(
        _config(
            conv_filters="4,5,6",
            kernel_sizes="3,5,7",
            hidden_units="10,9",
            pool_size="2",
            dropout="0.1",
        ),
        num_outputs=3,
        num_points=64,
    )
    # by hand: 3*3*4+4, 5*4*5+5, 7*5*6+6, 8*6*10+10, 10*9+9, 9*3+3
    assert model.count_params() == 40 + 105 + 216 + 490 + 99 + 30
    assert sum(isinstance(layer, keras.layers.Dropout) for layer in model.layers) == 2


def test_couplings_and_their_units_follow_the_config():
    model = build_model(
        _config(
            conv_filters="4",
            kernel_sizes="3",
            hidden_units="10",
            pool_size="2",
            uncertainty="flow",
            couplings="4",
            coupling_units="16",
        ),
        num_outputs=3,
        num_points=64,
    )
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


def test_saved_model_is_an_ordinary_keras_file(tmp_path):
    model = build_model(_config(), num_outputs=2, input_scale=(0.05, 140.0, 1.0))
    model.save(tmp_path / "model.keras")
    curves = np.random.default_rng(0).uniform(0, 1, (4, 200, 3)).astype(np.float32)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(curves), model(curves))


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
        build_model(_config(**overrides), num_outputs=2)
