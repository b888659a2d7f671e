"""Fading memories against point by point integration."""

import keras
import numpy as np

from tfmat.networks.plastic_spectrum import memories_of, spectrum_of

RATES = 2.0 * 2.0 ** np.arange(10)


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
