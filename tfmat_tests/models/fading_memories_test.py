"""Fading memories against point by point integration."""

import keras
import numpy as np

from tfmat.models.fading_memories import memories_of

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
