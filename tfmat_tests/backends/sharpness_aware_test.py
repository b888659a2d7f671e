"""Sharpness-aware steps against algorithm 1 of Foret et al. 2021 as a plain loop with TensorFlow's tape and Keras."""

import functools

import numpy as np
import pytest

from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.errors import InputError
from tfmat.optimizers import make_functional
from tfmat_tests.backends.horovod_rank import train_cases
from tfmat_tests.backends.problem import (
    DENSE,
    NUM_EXAMPLES,
    OPTIMIZERS,
    SharpnessAwareLoop,
    contract_rows,
    make_data,
    make_model,
    relative_error,
    train,
)

RHO = 0.05
TOLERANCE = 1e-9
NORMALIZED = {"batch_normalization": "synchronized"}
# Of two ranks.
CASE = {
    "optimizer": "nesterov",
    "precision": "float64",
    "num_examples": NUM_EXAMPLES,
    "sam_rho": RHO,
    "model": DENSE,
}
CASES = {
    "batch normalization": {"model": {**DENSE, **NORMALIZED}},
    "accumulated": {"backend": "mpi", "options": {"accumulate": 3}},
    "plain": {},
}

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module")
def data():
    return make_data()


def batches(data, steps=20):
    """The contract's."""
    for step in range(steps):
        rows = contract_rows(step)
        yield tuple(array[rows].astype("float64") for array in data)


@pytest.fixture(scope="module")
def plain():
    """Options of a network -> the loop that trains it."""
    return functools.cache(lambda **options: SharpnessAwareLoop(make_model(**DENSE, **options)))


def trained(model, optimizer, data, steps=(5, 9, 6), pieces=None, accumulate=1):
    """The weights that the single backend ends with, and the sums."""
    backend = make_backend("single", accumulate=accumulate)
    if pieces:
        backend._num_pieces = lambda width: pieces
    sums = train(backend, model, optimizer, data, steps, sam_rho=RHO)
    return model.get_weights(), sums


def check(found, expected, normalized=False):
    for a, b in zip(found, expected, strict=True):
        if np.asarray(b).dtype.kind == "f":
            # As in horovod_test.py: a bias before a normalisation has no gradient but rounding.
            assert relative_error(a, b, 1e-4 if normalized else 0.0) < TOLERANCE
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("optimizer", "how"),
    [
        ("adamw", {"pieces": 2}),
        *(
            pytest.param(optimizer, how, marks=pytest.mark.large)
            for optimizer in ("nesterov", "adamw")
            for how in ({}, {"pieces": 7}, {"accumulate": 3})
        ),
    ],
    ids=str,
)
def test_weights_of_a_plain_loop(optimizer, how, data, plain):
    """The parts of a batch that come one after the other are with the ranks' cases, and moving statistics too."""
    expected = plain().train(OPTIMIZERS[optimizer](), batches(data), RHO)
    found, sums = trained(make_model(**DENSE), OPTIMIZERS[optimizer](), data, **how)
    check(found, expected)
    # Losses are those at the weights themselves.
    rows = contract_rows(0)
    errors = (np.asarray(make_model(**DENSE)(data[0][rows])) - data[1][rows]) ** 2
    np.testing.assert_allclose(sums[0, 0], errors.mean(axis=1).sum(), rtol=1e-9)
    without = plain().train(OPTIMIZERS[optimizer](), batches(data), 0.0)
    assert max(relative_error(a, b) for a, b in zip(found, without, strict=True)) > 1e-5


def test_both_passes_see_the_same_dropout_masks(data, plain):
    """Without a padded batch, whose masks Keras draws in another shape."""
    expected = plain(dropout=0.3).train(OPTIMIZERS["nesterov"](), batches(data, 8), RHO)
    check(
        trained(make_model(**DENSE, dropout=0.3), OPTIMIZERS["nesterov"](), data, [3, 5])[0],
        expected,
    )


@pytest.mark.parametrize(
    "names",
    [("batch normalization", "accumulated"), pytest.param(("plain",), marks=pytest.mark.large)],
    ids=", ".join,
)
def test_two_ranks_end_with_the_weights_of_the_plain_loop(names, data, plain, tmp_path):
    """Moving statistics move once, with the first pass."""
    found = train_cases(2, [{**CASE, **CASES[name], "name": name} for name in names], tmp_path)
    for name in names:
        normalized = name == "batch normalization"
        loop = plain(**(NORMALIZED if normalized else {}))
        expected = loop.train(OPTIMIZERS["nesterov"](), batches(data), RHO)
        weights = [found[name][key] for key in found[name].files if key != "sums"]
        check(weights, expected, normalized)


def test_the_backend_that_does_not_do_it_refuses():
    """On a mesh: `dtensor_equality_test.py`."""
    optimizer = make_functional("sgd", sam_rho=RHO)
    loss = per_example_function("mse")
    with (
        make_backend("asynchronous") as made,
        pytest.raises(InputError, match="sam_rho does not work"),
    ):
        made.build(make_model(**DENSE), optimizer, loss, {})
