"""Arrays of a saved state: none is in memory before it is asked for, nor after it was used."""

import weakref

import keras
import numpy as np
import pytest

from tfmat.backends.base import Collectives, SavedArray, from_rank_0
from tfmat.backends.single import SingleBackend
from tfmat.backends.step import Step
from tfmat.backends.zero import Division
from tfmat.errors import InputError
from tfmat.optimizers import make_functional

WORKERS = 3


class Told(Collectives):
    """Rank 0 writes down what it tells, and another rank reads that afterwards."""

    def __init__(self, rank, told):
        self.rank, self.size, self._told = rank, WORKERS, told
        self.most = 0  # bytes that were told at once

    def broadcast(self, value):
        if self.rank:
            return self._told.pop(0)
        self._told.append(np.copy(value) if isinstance(value, np.ndarray) else value)
        self.most = max(self.most, getattr(value, "nbytes", 0))
        return value


class Watched:
    """Arrays of a file of which no two are in memory at the same time."""

    def __init__(self, arrays):
        self._arrays, self._last = arrays, None
        self.saved = {name: self._saved(name) for name in arrays}

    def _saved(self, name):
        def read():
            assert self._last is None or self._last() is None, "another one is still there"
            array = np.array(self._arrays[name])
            self._last = weakref.ref(array)
            return array

        return SavedArray(self._arrays[name].shape, self._arrays[name].dtype, read)


def backend_of(collectives):
    """A network of which each of three workers has a part of the slots."""
    keras.utils.set_random_seed(collectives.rank)
    model = keras.Sequential(
        [keras.layers.Input((5,)), keras.layers.Dense(7), keras.layers.Dense(2)]
    )
    optimizer = make_functional("adam")
    division = Division(model.trainable_variables, WORKERS, collectives.rank)
    division.build(optimizer)
    step = Step(model, optimizer, None, {})
    step.division = division
    backend = SingleBackend(collectives=collectives)
    backend._hold(step)
    return model, backend, division


def whole_state():
    model, optimizer = backend_of(Told(0, []))[0], make_functional("adam")
    optimizer.build(model.trainable_variables)
    random = np.random.default_rng(0)
    parts = {"weights": model.trainable_variables, "slots": optimizer.variables}
    return {
        f"{part}/{i}": (random.normal(size=v.shape) * 100).astype(v.dtype)
        for part, variables in parts.items()
        for i, v in enumerate(variables)
    }


def test_each_worker_takes_its_part_and_has_one_array_in_memory():
    state, told = whole_state(), []
    watched = Watched(state)
    parts = []
    for rank in range(WORKERS):
        collectives = Told(rank, told if rank == 0 else list(told))
        _, backend, division = backend_of(collectives)
        backend.write(from_rank_0(watched.saved if rank == 0 else {}, collectives))
        parts.append({name: v.numpy() for name, v in backend._held.named().items()})
        if rank == 0:
            largest = max(array.nbytes for array in state.values())
            assert collectives.most == largest and len(told) == 1 + len(state)
    for name, array in state.items():
        if name in ("slots/0", "slots/1") or name.startswith("weights"):
            for part in parts:
                np.testing.assert_array_equal(part[name], array)
            continue
        flat = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(flat[: array.size], array.ravel())
        assert not flat[array.size :].any()
    assert len(division.shapes) == 4


def test_what_does_not_fit_is_said_before_anything_is_read():
    state = whole_state()
    state["weights/2"] = state["weights/2"][1:]
    collectives = Told(0, [])
    _, backend, _ = backend_of(collectives)
    before = [v.numpy() for v in backend._held.weights]
    watched = Watched(state)
    said = r"weights/2 .* has shape \[7, 2\], saved is shape \[6, 2\]"
    with pytest.raises(InputError, match=said):
        backend.write(from_rank_0(watched.saved, collectives))
    assert watched._last is None
    for variable, value in zip(backend._held.weights, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
