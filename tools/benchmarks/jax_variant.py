"""The same network in JAX: one jitted call a step, Adam written out, weights donated."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.step import LEARNING_RATE, Data, Timing, endless_rows

Weights = list[tuple[Any, Any]]


class JaxJit:
    """A plain JAX loop; the data is one array, batches picked by index inside the jitted step."""

    least_steps = 2

    def __init__(self, data: Data, batch_size: int):
        self._batch_size = self.work_a_step = batch_size
        self._scale = data.scale
        self._features, self._labels = jnp.asarray(data.scaled()), jnp.asarray(data.labels)
        points, num_outputs = data.features.shape[1], data.labels.shape[1]
        keys = iter(jax.random.split(jax.random.key(0), 4))
        shapes = [(7, 3, 16), (7, 16, 24), (24 * (points // 4), 125), (125, num_outputs)]
        initial = jax.nn.initializers.glorot_uniform(in_axis=-2, out_axis=-1)
        weights = [(initial(next(keys), shape), jnp.zeros(shape[-1])) for shape in shapes]
        zeros = jax.tree.map(jnp.zeros_like, weights)
        self._state = (weights, zeros, jax.tree.map(jnp.zeros_like, weights), jnp.zeros(()))
        self._step = jax.jit(_train_step, donate_argnums=0)
        self._rows = endless_rows(len(data.labels), batch_size)

    def run(self, steps: int) -> Timing:
        """Trains for that many steps."""
        started = time.perf_counter()
        for _ in range(steps):
            self._state = self._step(self._state, self._features, self._labels, next(self._rows))
        jax.block_until_ready(self._state)
        return Timing(steps * self._batch_size, time.perf_counter() - started)

    def loss(self, features: np.ndarray, labels: np.ndarray) -> float:
        """Mean squared error."""
        return float(_loss(self._state[0], jnp.asarray(features / self._scale), labels))


def _loss(weights: Weights, features: Any, labels: Any) -> Any:
    *convolutions, hidden, output = weights
    values = features
    for kernel, bias in convolutions:
        values = lax.conv_general_dilated(
            values, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        values = jax.nn.relu(values + bias)
        values = lax.reduce_window(values, -jnp.inf, lax.max, (1, 2, 1), (1, 2, 1), "VALID")
    values = values.reshape(len(values), -1)
    values = jax.nn.relu(values @ hidden[0] + hidden[1])
    return jnp.mean((values @ output[0] + output[1] - labels) ** 2)


def _train_step(state: Any, features: Any, labels: Any, rows: Any) -> Any:
    """Adam (Kingma & Ba 2015, algorithm 1)."""
    weights, first, second, count = state
    gradients = jax.grad(_loss)(weights, features[rows], labels[rows])
    count = count + 1
    rate = LEARNING_RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    first = jax.tree.map(lambda m, g: m + 0.1 * (g - m), first, gradients)
    second = jax.tree.map(lambda v, g: v + 0.001 * (g * g - v), second, gradients)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-7), weights, first, second
    )
    return weights, first, second, count
