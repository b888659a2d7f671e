"""A variance head learns through the trainer's auxiliary loss, and the mean does not notice."""

import numpy as np
import pytest

import tfmat
from tfmat.config import apply_override, default_config
from tfmat.networks.factory import build_model, negative_log_likelihood, squared_error_of_mean

HEAD = "curve_to_parameters/log_variance/kernel"


def _model(uncertainty):
    config = default_config()
    small = {"uncertainty": uncertainty, "conv_filters": "4,6", "hidden_units": "20"}
    for key, text in small.items():
        apply_override(config, f"model.{key}", text)
    return build_model(config.model, num_outputs=2, input_scale=(0.05, 140.0, 1.0), seed=3)


def _weights(model):
    return {weight.path: weight.numpy() for weight in model.weights}


def test_the_mean_trains_as_without_a_head():
    """Thirty steps with and without."""
    random = np.random.default_rng(0)
    features = (random.uniform(0, 1, (600, 200, 3)) * [0.05, 140.0, 0.0]).astype(np.float32)
    labels = random.uniform(0, 1, (600, 2)).astype(np.float32)
    models = {name: _model(name) for name in ("none", "gaussian")}
    before = _weights(models["gaussian"])[HEAD]
    likelihood = negative_log_likelihood(2)
    extra = {
        "none": {},
        "gaussian": {
            "loss": squared_error_of_mean(2),
            "auxiliary_loss": likelihood,
            "metrics": {"nll": likelihood},
        },
    }
    histories = {}
    for name, model in models.items():
        trainer = tfmat.Trainer(model, optimizer="adam", quiet=True, **extra[name])
        result = trainer.fit(
            features,
            labels,
            global_batch_size=60,
            train_for="30steps",
            validation=(features, labels),
        )
        histories[name] = result.history
    weights, expected = _weights(models["gaussian"]), _weights(models["none"])
    for path, value in expected.items():
        np.testing.assert_allclose(weights[path], value, rtol=1e-4, atol=1e-6)
    for name in ("loss", "val_loss"):
        assert histories["gaussian"][name] == pytest.approx(histories["none"][name], rel=1e-5)
    assert np.abs(weights[HEAD] - before).max() > 1e-3
    assert histories["gaussian"]["nll"][-1] < histories["gaussian"]["nll"][0]
