"""The posterior head: densities against SciPy, automatic Jacobians and quadrature, samples against both, its file."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfmat.config import apply_override, default_config
from tfmat.models import build_model
from tfmat.models.flow import POSTERIOR, PosteriorFlow

pytestmark = pytest.mark.usefixtures("double_precision")


def _flow(num_labels, seed=0, bent=0.1):
    """A flow with random weights, and the outputs of one record. Much more bent, a grid would miss its ridges."""
    random = np.random.default_rng(seed)
    flow = PosteriorFlow(num_labels, dtype="float64")
    flow.build((None, flow.columns))
    for weight in flow.weights:
        weight.assign(np.asarray(weight) + random.normal(0, bent, weight.shape))
    return flow, random.normal(0, 0.4, (1, flow.columns))


def _log_density(flow, labels, outputs):
    return np.array(flow.log_density(labels, np.repeat(outputs, len(labels), axis=0)))


def _sample(flow, outputs, normal):
    labels, density = flow.sample(np.repeat(outputs, len(normal), axis=0), normal)
    return np.array(labels), np.array(density)


def test_a_new_flow_is_a_gaussian_of_the_logits():
    p, random = 4, np.random.default_rng(1)
    flow, outputs = _flow(p, bent=0.0)
    mean, log_scale, correlations = np.split(outputs[0, : p * (p + 3) // 2], [p, 2 * p])
    below = np.zeros((p, p))
    below[np.tril_indices(p, -1)] = correlations
    scale = np.exp(10 * np.tanh(log_scale / 10))
    to_normal = np.linalg.inv(np.eye(p) - below) @ np.diag(scale)
    covariance = np.linalg.inv(to_normal.T @ to_normal)
    labels = random.uniform(0.02, 0.98, (50, p))
    expected = scipy.stats.multivariate_normal.logpdf(
        scipy.special.logit(labels), mean, covariance
    ) - np.log(labels * (1 - labels)).sum(axis=1)
    np.testing.assert_allclose(_log_density(flow, labels, outputs), expected, rtol=1e-9)


@pytest.mark.parametrize("num_labels", [1, 2, 3, 5])
def test_the_density_of_samples_is_that_of_their_jacobian(num_labels):
    flow, outputs = _flow(num_labels, seed=num_labels)
    normal = tf.constant(np.random.default_rng(2).normal(size=(40, num_labels)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(normal)
        labels, density = flow.sample(np.repeat(outputs, 40, axis=0), normal)
        each = tf.unstack(labels, axis=1)
    jacobian = np.stack([tape.gradient(label, normal) for label in each], axis=1)
    labels, density = np.array(labels), np.array(density)
    # Not by differences: a coupling's units have kinks, and a narrow density's rounding errors are its digits.
    expected = scipy.stats.norm.logpdf(normal).sum(axis=1) - np.linalg.slogdet(jacobian)[1]
    inside = ((labels > 1e-4) & (labels < 1 - 1e-4)).all(axis=1)
    assert inside.sum() > 20
    np.testing.assert_allclose(density[inside], expected[inside], atol=1e-7)
    np.testing.assert_allclose(
        _log_density(flow, labels, outputs)[inside], density[inside], atol=1e-7
    )


@pytest.mark.parametrize("num_labels", [1, 2])
def test_the_density_holds_all_and_samples_follow_it(num_labels):
    flow, outputs = _flow(num_labels, seed=7, bent=0.05)
    normal = np.random.default_rng(3).normal(size=(40_000, num_labels))
    drawn = _sample(flow, outputs, normal)[0]
    # Midpoints of cells that hold all samples and a margin.
    y = scipy.special.logit(drawn)
    low, high = y.min(axis=0) - 1, y.max(axis=0) + 1
    points = 4000 if num_labels == 1 else 400
    axes = [
        np.linspace(*ends, points, endpoint=False) + 0.5 * np.subtract(*ends[::-1]) / points
        for ends in zip(low, high, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, num_labels)
    labels = scipy.special.expit(grid)
    density = np.exp(_log_density(flow, labels, outputs)) * (labels * (1 - labels)).prod(axis=1)
    weights = density * np.prod((high - low) / points)
    assert weights.sum() == pytest.approx(1.0, abs=1e-3)
    mean = weights @ labels
    deviation = np.sqrt(weights @ (labels - mean) ** 2)
    # Five standard errors of 40,000 samples.
    assert np.abs(drawn.mean(axis=0) - mean) / deviation == pytest.approx(0, abs=0.025)
    assert drawn.std(axis=0) == pytest.approx(deviation, rel=0.03)


def test_labels_at_the_ends_of_their_ranges_have_a_density():
    flow, outputs = _flow(2)
    labels = np.array([[0.0, 1.0], [1.0, 0.5], [0.5, 0.0]])
    assert np.isfinite(_log_density(flow, labels, outputs)).all()
    drawn, density = _sample(flow, 30 * outputs, np.random.default_rng(0).normal(size=(500, 2)))
    assert ((drawn > 0) & (drawn < 1)).all() and np.isfinite(density).all()


def test_a_model_with_a_posterior_is_saved_whole(tmp_path):
    keras.config.set_floatx("float32")
    config = default_config()
    for key, text in {"uncertainty": "flow", "conv_filters": "4,6", "hidden_units": "20"}.items():
        apply_override(config, f"model.{key}", text)
    model = build_model(config.model, num_outputs=3, seed=3)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.1, weight.shape))
    model.save(tmp_path / "model.keras")
    found = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    curves = random.uniform(0, 1, (4, 200, 3)).astype("float32")
    labels = random.uniform(0, 1, (4, 3)).astype("float32")
    assert model.output_shape == (None, model.get_layer(POSTERIOR).columns)
    assert not model.non_trainable_variables  # with one a batch would not go in pieces
    for name in ("log_density", "sample"):
        expected, again = (
            getattr(each.get_layer(POSTERIOR), name)(*arguments)
            for each in (model, found)
            for outputs in [each(curves)]
            for arguments in [(labels, outputs) if name == "log_density" else (outputs, labels)]
        )
        np.testing.assert_array_equal(np.array(expected[0]), np.array(again[0]))
