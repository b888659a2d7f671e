"""The contract on equality under real mpirun: any number of ranks ends with the weights of a plain Keras loop."""

import itertools
import json

import keras
import numpy as np
import pytest

from tfmat_tests.backends.problem import (
    NUM_EXAMPLES,
    OPTIMIZERS,
    TOLERANCE,
    make_data,
    make_model,
    plain_keras_loop,
    relative_error,
    set_precision,
)
from tfmat_tests.mpi import mpirun

# Ranks that run by default; --all takes the others too.
RANKS = [
    pytest.param(ranks, marks=[] if ranks in (2, 3) else [pytest.mark.large])
    for ranks in (1, 2, 3, 4, 8)
]


@pytest.fixture(scope="module")
def expected():
    """(optimizer, precision, number of examples) -> weights of the plain loop; each made once."""
    known, data = {}, make_data()

    def weights(optimizer, precision, num_examples):
        key = optimizer, precision, num_examples
        if key not in known:
            set_precision(precision)
            part = tuple(array[:num_examples] for array in data)
            known[key] = plain_keras_loop(make_model(), OPTIMIZERS[optimizer](), part)
        return known[key]

    before = keras.config.floatx(), keras.config.dtype_policy()
    yield weights
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def _train(cases, ranks, folder):
    (folder / "cases.json").write_text(json.dumps(cases))
    ended = mpirun(ranks, "-m", "tfmat_tests.backends.horovod_rank", str(folder))
    assert ended.returncode == 0, ended.stderr
    return {case["name"]: np.load(folder / f"{case['name']}.npz") for case in cases}


def _check(found, case, expected):
    reference = expected(case["optimizer"], case["precision"], case["num_examples"])
    for i, weight in enumerate(reference):
        error = relative_error(found[f"arr_{i}"], weight)
        assert error < TOLERANCE[case["precision"]], (case["name"], i, error)


@pytest.mark.parametrize("ranks", RANKS)
def test_weights_of_a_plain_keras_loop(ranks, expected, tmp_path):
    """7,919 examples: nothing divides, and the 14th batch is a partial one; 7,800: all batches are whole."""
    cases = [
        {
            "name": f"{optimizer}-{precision}-{count}",
            "optimizer": optimizer,
            "precision": precision,
            "num_examples": count,
        }
        for optimizer, precision, count in itertools.product(
            OPTIMIZERS, ("float64", "float32"), (NUM_EXAMPLES, 7_800)
        )
    ]
    cases += [
        {**cases[0], "name": "stream", "stream": True},
        {**cases[0], "name": "parts", "options": {"accumulate": 7}},
    ]
    found = _train(cases, ranks, tmp_path)
    for case in cases:
        _check(found[case["name"]], case, expected)


def test_halved_gradients_are_near(expected, tmp_path):
    """fp16 has 11 bits: the weights' change over 20 steps of momentum is right to about 1e-3."""
    case = {
        "name": "fp16",
        "optimizer": "nesterov",
        "precision": "float32",
        "num_examples": NUM_EXAMPLES,
        "options": {"compression": "fp16"},
    }
    found = _train([case], 2, tmp_path)["fp16"]
    set_precision("float32")
    start = make_model().get_weights()
    reference = expected("nesterov", "float32", NUM_EXAMPLES)
    errors = [
        relative_error(found[f"arr_{i}"] - begin, weight - begin)
        for i, (weight, begin) in enumerate(zip(reference, start, strict=True))
    ]
    assert 1e-6 < max(errors) < 1e-2, errors
