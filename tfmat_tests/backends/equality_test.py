"""The contract: the same weights as a plain Keras loop over the same batches, after 20 steps."""

import itertools

import keras
import numpy as np
import pytest

from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.data.pipeline import MemorySource, StreamSource
from tfmat.optimizers import make_functional
from tfmat_tests.backends.problem import (
    BATCH,
    NUM_EXAMPLES,
    OPTIMIZERS,
    SAMPLE,
    STEPS,
    blocks,
    check_weights,
    contract_rows,
    keeping_precision,
    make_data,
    make_model,
    plain_keras_loop,
    set_precision,
    train,
)

PRECISIONS = ("float32", "float64")
# Each optimizer, either precision, either source, and batches in pieces; --all takes every combination.
BY_DEFAULT = {
    *((optimizer, MemorySource, "float64") for optimizer in SAMPLE),
    ("adam", MemorySource, "float32"),
    ("nesterov", StreamSource, "float64"),
}
IN_PIECES = {("adamw", "float64")}
# The others' graphs are sooner made: optimizers do not care what the layers are.
CONVOLUTIONAL = ("adam", "lamb")


def _cases(default, *columns):
    return [
        pytest.param(*case, marks=[] if case in default else [pytest.mark.large])
        for case in itertools.product(*columns)
    ]


@pytest.fixture
def precision(request):
    with keeping_precision():
        set_precision(request.param)
        yield request.param


def model_for(optimizer):
    """The same weights each time."""
    if optimizer in CONVOLUTIONAL:
        return make_model()
    return make_model(conv_filters=(), kernel_sizes=())


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def plain(data):
    """(optimizer, precision) -> weights after the plain Keras loop; each trained once."""
    known = {}

    def weights(optimizer, precision):
        if (optimizer, precision) not in known:
            expected = plain_keras_loop(model_for(optimizer), OPTIMIZERS[optimizer](), data)
            known[optimizer, precision] = expected
        return known[optimizer, precision]

    return weights


@pytest.mark.parametrize(
    ("optimizer", "source_class", "precision"),
    _cases(BY_DEFAULT, OPTIMIZERS, (MemorySource, StreamSource), PRECISIONS),
    indirect=["precision"],
)
def test_weights_of_a_plain_keras_loop(optimizer, source_class, precision, data, plain):
    model, backend = model_for(optimizer), make_backend("single")
    sums = train(backend, model, OPTIMIZERS[optimizer](), data, source=source_class)
    assert np.isfinite(sums).all()
    check_weights(model.get_weights(), plain(optimizer, precision), precision)
    assert {weight.dtype for weight in model.get_weights()} == {np.dtype(precision)}
    assert int(backend.read()["slots/0"]) == STEPS


@pytest.mark.parametrize(
    ("optimizer", "precision"), _cases(IN_PIECES, OPTIMIZERS, PRECISIONS), indirect=["precision"]
)
def test_a_batch_in_pieces_trains_the_same_weights(optimizer, precision, data, plain, monkeypatch):
    """As `tfmat train` runs it; here the number is set, since TensorFlow's threads are fixed once it has started."""
    model, backend = model_for(optimizer), make_backend("single")
    # 240 examples: pieces of 34 and 35.
    monkeypatch.setattr(backend, "_num_pieces", lambda width: 7)
    train(backend, model, OPTIMIZERS[optimizer](), data, [14, 6])
    check_weights(model.get_weights(), plain(optimizer, precision), precision)


@pytest.mark.parametrize("pieces", [pytest.param(1, marks=pytest.mark.large), 5])
def test_sums_are_those_of_the_true_examples(data, pieces, monkeypatch):
    """The last, padded batch: sum of squared errors before the update, by NumPy."""
    model, backend = model_for("sgd"), make_backend("single")
    monkeypatch.setattr(backend, "_num_pieces", lambda width: pieces)
    backend.build(
        model,
        make_functional(keras.optimizers.SGD(0.0)),
        per_example_function("mse"),
        {"mae": lambda labels, outputs: abs(labels - outputs)},
    )
    last = NUM_EXAMPLES // BATCH
    *_, block = blocks(backend, data, [last, 1])
    rows = contract_rows(last)
    assert block.num_examples == [len(rows)] and len(rows) < BATCH
    errors = np.asarray(model(data[0][rows])) - data[1][rows]
    expected = [(errors**2).mean(axis=1).sum(), np.abs(errors).mean(axis=1).sum()]
    np.testing.assert_allclose(backend.train(*block)[0], expected, rtol=1e-5)
    np.testing.assert_allclose(backend.evaluate(*block)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("pieces", [pytest.param(1, marks=pytest.mark.large), 3])
def test_regularisers_count_once_a_batch(data, pieces, monkeypatch):
    """Against Keras's own train_on_batch with an L2 penalty."""

    def model():
        keras.utils.set_random_seed(0)
        penalty = keras.regularizers.L2(0.05)
        layers = keras.layers
        return keras.Sequential(
            [layers.Input((48, 3)), layers.Flatten(), layers.Dense(2, kernel_regularizer=penalty)]
        )

    expected = plain_keras_loop(model(), keras.optimizers.SGD(0.01), data)
    ours, backend = model(), make_backend("single")
    monkeypatch.setattr(backend, "_num_pieces", lambda width: pieces)
    train(backend, ours, keras.optimizers.SGD(0.01), data, [14, 6])
    for a, b in zip(expected, ours.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)


def test_arrays_on_the_cpu_are_shared_not_copied():
    backend = make_backend("single")
    rows = np.frombuffer(bytearray(64 * 1024 + 64), np.float32)
    offset = (-rows.ctypes.data % 64) // 4
    rows = rows[offset : offset + 1024].reshape(64, 16)
    tensor = backend.place(rows)
    rows[3, 4] = 7.0
    assert float(tensor[3, 4]) == 7.0


def test_a_file_that_is_mapped_to_be_read_is_shared_not_copied(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((64, 16), np.float32))
    tensor = make_backend("single").place(np.load(path, mmap_mode="r"))
    np.load(path, mmap_mode="r+")[3, 4] = 7.0
    assert float(tensor[3, 4]) == 7.0


@pytest.mark.parametrize("dtype", [">f4", ">i8", "?", "S1"])
def test_arrays_that_cannot_be_shared_are_copied(dtype):
    memory = np.frombuffer(bytearray(b"1" * 1024), np.uint8)
    rows = memory[-memory.ctypes.data % 64 :][:512].view(dtype)
    np.testing.assert_array_equal(make_backend("single").place(rows).numpy(), rows)
