"""Directions, curvature and sharpness against NumPy loops, a dense Hessian and closed forms."""

import keras
import numpy as np
import pytest

from tfmat.large_batch import landscape
from tfmat.large_batch.landscape import (
    Curves,
    LossAtWeights,
    RunLoss,
    float_type,
    orthogonal,
    random_directions,
)
from tfmat.networks.factory import Losses

SHAPES = [(3, 2, 4), (4,), (5, 3), (3,), (3, 1), (1,)]


def some_arrays(seed):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape) for shape in SHAPES]


def test_directions_are_orthogonal_in_every_filter_and_come_from_the_seed():
    weights = some_arrays(0)
    directions = random_directions(weights, 7)
    first, second = next(directions), next(directions)
    for a, b, w in zip(first, second, weights, strict=True):
        if w.ndim > 1:
            a, b, w = (each.reshape(-1, each.shape[-1]) for each in (a, b, w))
            np.testing.assert_allclose((a * b).sum(axis=0), 0.0, atol=1e-12)
            np.testing.assert_allclose(
                np.linalg.norm(b, axis=0), np.linalg.norm(w, axis=0), rtol=1e-12
            )
    again = next(random_directions(weights, 7))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    other = next(random_directions(weights, 8))
    assert not np.allclose(first[0], other[0])


def test_a_filter_of_one_number_has_no_second_direction():
    weights = [np.array([[2.0, 3.0]])]
    first = next(random_directions(weights, 0))
    np.testing.assert_allclose(np.abs(first[0]), [[2.0, 3.0]])
    assert not orthogonal([np.array([[0.3, -4.0]])], [first])[0].any()


class Problem:
    """A network of 33 numbers with smooth activation, its loss over 80 examples in 4 blocks, in float64."""

    def __init__(self):
        random = np.random.default_rng(0)
        self.x, self.y = random.standard_normal((4, 20, 6, 1)), random.standard_normal((4, 20, 2))
        with float_type("float64"):
            keras.utils.set_random_seed(1)
            layers = keras.layers
            self.model = keras.Sequential(
                [
                    layers.Input((6, 1)),
                    layers.Conv1D(2, 3, activation="tanh"),
                    layers.Flatten(),
                    layers.Dense(2, activation="tanh"),
                    layers.Dense(2),
                ]
            )
        self.weights = [v.numpy() + 0.1 for v in self.model.trainable_variables]
        self.size = sum(w.size for w in self.weights)

    def losses(self):
        import tensorflow as tf

        def error(labels, outputs):
            return (labels - outputs) ** 2

        loss = RunLoss(self.model, Losses(error))
        return LossAtWeights(loss, [], Curves(tf.constant(self.x), tf.constant(self.y)))

    def loss_by_numpy(self, flat, x, y):
        kernel, bias, first, first_bias, last, last_bias = _split(flat, self.weights)
        channels = np.stack(
            [np.einsum("eji,jio->eo", x[:, p : p + 3], kernel) for p in range(4)], axis=1
        )
        hidden = np.tanh(channels + bias).reshape(len(x), -1)
        outputs = np.tanh(hidden @ first + first_bias) @ last + last_bias
        return np.mean((y - outputs) ** 2)


def _split(flat, weights):
    places = np.cumsum([w.size for w in weights])[:-1]
    parts = np.split(np.asarray(flat), places)
    return [p.reshape(w.shape) for p, w in zip(parts, weights, strict=True)]


def _flat(arrays):
    return np.concatenate([np.ravel(a) for a in arrays])


@pytest.fixture(scope="module")
def problem():
    return Problem()


@pytest.fixture(scope="module")
def dense_hessian(problem):
    """By central differences of the loss in NumPy, [numbers, numbers]; exact to about 1e-7."""
    x, y, start = problem.x.reshape(80, 6, 1), problem.y.reshape(80, 2), _flat(problem.weights)
    step, n = 1e-3, problem.size
    unit = np.eye(n) * step

    def f(change):
        return problem.loss_by_numpy(start + change, x, y)

    found = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            a, b = unit[i], unit[j]
            found[i, j] = found[j, i] = (f(a + b) - f(a - b) - f(b - a) + f(-a - b)) / (4 * step**2)
    return found


def test_gradient_and_products_are_those_of_the_dense_hessian(problem, dense_hessian):
    at_weights, vector = problem.losses(), np.random.default_rng(2).standard_normal(problem.size)
    total, forms = at_weights.product(problem.weights, vector)
    np.testing.assert_allclose(total / 4, dense_hessian @ vector, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(forms.mean(), vector @ dense_hessian @ vector, rtol=1e-4)
    x, y, start = problem.x.reshape(80, 6, 1), problem.y.reshape(80, 2), _flat(problem.weights)
    expected = [
        (problem.loss_by_numpy(start + e, x, y) - problem.loss_by_numpy(start - e, x, y)) / 2e-5
        for e in 1e-5 * np.eye(problem.size)
    ]
    np.testing.assert_allclose(
        at_weights.gradient(problem.weights)[0] / 4, expected, rtol=1e-5, atol=1e-8
    )


def test_eigenvalues_and_trace_are_those_of_the_dense_hessian(problem, dense_hessian):
    at_weights = problem.losses()

    def product(vector):
        total, forms = at_weights.product(problem.weights, vector)
        return total / 4, forms

    values, vectors, forms = landscape.largest_eigenvalues(product, problem.size, 3)
    expected = np.linalg.eigvalsh(dense_hessian)[::-1][:3]
    np.testing.assert_allclose([value.value for value in values], expected, rtol=1e-3)
    for value, each in zip(values, forms, strict=True):
        assert value.residual < 2e-3 * values[0].value
        np.testing.assert_allclose(each.mean(), value.value, rtol=1e-12)
    found = landscape.trace(product, vectors, forms, probes=200)
    assert abs(found.value - np.trace(dense_hessian)) < found.error


def test_the_interval_of_hutchinson_holds_the_trace_as_often_as_it_says():
    """Beside the two largest eigenvalues, which are known."""
    random = np.random.default_rng(0)
    square = random.standard_normal((30, 30))
    hessian = square @ square.T
    values, vectors = np.linalg.eigh(hessian)
    known = vectors[:, -2:], np.tile(values[-2:, None], (1, 3))
    held = 0
    for seed in range(200):
        found = landscape.trace(
            lambda v: (hessian @ v, np.full(3, v @ hessian @ v)), *known, seed=seed
        )
        held += abs(found.value - np.trace(hessian)) < found.error
    assert 180 <= held <= 199  # 95 % of 200 is 190, its standard deviation 3


def test_steps_of_ascent_have_their_radius_and_their_direction():
    weights, gradient = some_arrays(0), _flat(some_arrays(5))
    step = _flat(landscape.ascent(gradient, weights, 0.05))
    np.testing.assert_allclose(step, 0.05 * gradient / np.linalg.norm(gradient), rtol=1e-12)
    sizes = []
    for w in weights:
        if w.ndim == 1:
            sizes.append(np.abs(w))
            continue
        of_filters = [np.linalg.norm(w[..., output]) for output in range(w.shape[-1])]
        sizes.append(np.broadcast_to(of_filters, w.shape))
    adaptive = _flat(landscape.adaptive_ascent(gradient, weights, 0.05))
    np.testing.assert_allclose(np.linalg.norm(adaptive / _flat(sizes)), 0.05, rtol=1e-12)
    expected = _flat(sizes) ** 2 * gradient
    np.testing.assert_allclose(
        adaptive / np.linalg.norm(adaptive), expected / np.linalg.norm(expected), rtol=1e-12
    )


def test_the_adaptive_sharpness_stays_when_one_layer_doubles_and_the_next_halves(problem):
    """Of a ReLU network, whose function then stays (Dinh et al. 2017, arXiv:1703.04933)."""
    random = np.random.default_rng(1)
    x, y = random.standard_normal((50, 4)), random.standard_normal((50, 1))
    weights = [random.standard_normal((4, 6)), random.standard_normal((6, 1))]

    def loss(w):
        return np.array([np.mean((np.maximum(x @ w[0], 0) @ w[1] - y) ** 2)] * 2)

    def gradient(w):
        hidden = np.maximum(x @ w[0], 0)
        error = 2 * (hidden @ w[1] - y) / len(x)
        back = error @ w[1].T * (hidden > 0)
        return _flat([x.T @ back, hidden.T @ error])

    scaled = [2 * weights[0], weights[1] / 2]
    plain, adaptive = [], []
    for w in (weights, scaled):
        g = gradient(w)
        plain.append(landscape.rise(loss, w, landscape.ascent(g, w, 0.1)).value)
        adaptive.append(landscape.rise(loss, w, landscape.adaptive_ascent(g, w, 0.1)).value)
    assert adaptive[0] == pytest.approx(adaptive[1], rel=1e-12)
    assert plain[0] != pytest.approx(plain[1], rel=0.01)
