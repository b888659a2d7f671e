"""Slots on disk: the same training as with slots in memory, in less memory."""

import errno
import os

import keras
import numpy as np
import pytest

from tfmat.backends import make_backend, offload
from tfmat.backends.losses import per_example_function
from tfmat.errors import InputError
from tfmat.optimizers import GradientNoise, make_functional
from tfmat_tests.backends.problem import OPTIMIZERS
from tfmat_tests.backends.recomputation_test import check_equal, residual_model, trained

CASES = {
    **{name: OPTIMIZERS[name] for name in ("nesterov", "lamb", "novograd")},
    # One number is shared by all weights; slots begin at another value than 0; a schedule; kinds of clipping; noise.
    "nadam": lambda: keras.optimizers.Nadam(1e-3),
    "adagrad": lambda: keras.optimizers.Adagrad(0.01),
    "adamw": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(0.01, 10), weight_decay=0.01, global_clipnorm=0.1
    ),
    "rmsprop": lambda: make_functional(
        keras.optimizers.RMSprop(1e-3, momentum=0.9, clipnorm=0.1), GradientNoise(0.1)
    ),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Most weights have several, of two lengths."""
    monkeypatch.setattr(offload, "BLOCK", 20)


def _small_model():
    """Nothing here depends on the network, and a smaller graph is made sooner."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(6, activation="tanh"),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )


@pytest.mark.usefixtures("float64", "small_blocks")
@pytest.mark.parametrize(
    "name",
    # The others have slots as it has, and more.
    [pytest.param(name, marks=pytest.mark.large) if name == "nesterov" else name for name in CASES],
)
def test_the_same_training(name, tmp_path):
    expected = trained(_small_model(), CASES[name]())
    found = trained(_small_model(), CASES[name](), offload="slots", offload_dir=str(tmp_path))
    check_equal(found, expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_blocks")
def test_going_on_with_slots_in_memory_and_back(tmp_path):
    """Bit for bit with itself, and nothing that was read changes later."""
    options = {"offload": "slots", "offload_dir": str(tmp_path)}

    def built(**options):
        model, backend = _small_model(), make_backend("single", **options)
        backend.build(model, make_functional("adam"), per_example_function("mse"), {})
        return backend

    random = np.random.default_rng(0)
    data = random.normal(size=(8, 8)).astype("f"), random.normal(size=(8, 2)).astype("f")
    block = np.tile(np.arange(8, dtype=np.int32), (2, 1)), np.ones((2, 8), "f"), np.full(2, 8, "f")
    first = built(**options)
    first.train(data, *block)
    saved = first.read()
    kept = {name: array.copy() for name, array in saved.items()}
    first.train(data, *block)
    others = [built(**options), built()]
    for other in others:
        other.write(saved)
        other.train(data, *block)
    end = first.read()
    for name, value in others[0].read().items():
        np.testing.assert_array_equal(value, end[name])
        np.testing.assert_array_equal(saved[name], kept[name])
    check_equal(others[1].read(), end, 1e-5)


MEMORY = """
import resource
import keras, numpy as np, sys
from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.optimizers import make_functional
def peak(count, kind):
    layers = [keras.layers.Input((8,)), *(keras.layers.Dense(1024) for _ in range(count)), keras.layers.Dense(1)]
    backend = make_backend("single", offload=kind, offload_dir=sys.argv[1])
    backend.build(keras.Sequential(layers), make_functional("adam"), per_example_function("mse"), {})
    data = backend.place((np.ones((4, 8), "f"), np.ones((4, 1), "f")))
    backend.train(data, np.tile(np.arange(4, dtype=np.int32), (2, 1)), np.ones((2, 4), "f"), np.full(2, 4, "f"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak(1, "slots"), peak(8, "slots"), peak(8, "none"))
"""


def test_it_takes_less_memory(programs, tmp_path):
    """Slots are 60 MiB, weights and gradients as much."""
    start, on_disk, plain = map(int, programs.python("-c", MEMORY, str(tmp_path)).split())
    assert on_disk - start < 0.75 * (plain - start)


CHECKPOINT = """
import pathlib, resource, sys
import keras, numpy as np
from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.optimizers import make_functional
from tfmat.training.run_folder import RunFolder
def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layers = [keras.layers.Input((8,)), *(keras.layers.Dense(1024) for _ in range(13)), keras.layers.Dense(1)]
backend = make_backend("single", offload="slots", offload_dir=sys.argv[1])
backend.build(keras.Sequential(layers), make_functional("adam"), per_example_function("mse"), {})
folder = RunFolder(sys.argv[1])
values = {name: i for i, name in enumerate(backend.read())}
if sys.argv[2] == "save":
    backend.write({name: np.full(v.shape, values[name]) for name, v in backend._held.named().items()})
start = peak()
if sys.argv[2] == "save":
    folder.save_checkpoint(7, backend.read_for_file(), {})
else:
    backend.restore(folder.load_checkpoint(7).arrays)
print(peak() - start)
for name, array in backend.read().items():
    assert (array == values[name]).all(), name
"""


def test_a_checkpoint_takes_less_memory_than_it_holds(programs, tmp_path):
    """It has 150 MiB, 50 of them weights, and its largest array 4: slots go and come one after the other."""
    for what, most in (("save", 0.6), ("go on", 0.25)):
        taken = int(programs.python("-c", CHECKPOINT, str(tmp_path), what))
        (path,) = (tmp_path / "checkpoints").glob("step-*.npz")
        assert taken < most * path.stat().st_size, what


def test_a_full_disk_is_said_before_anything_is_trained(monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"cannot write .* MiB of slots into .*: No space left"):
        trained(residual_model(), "adam", offload="slots", offload_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (keras.optimizers.SGD(0.1), "SGD has no slots"),
        (keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=1), "with use_ema"),
    ],
)
def test_refused(optimizer, message, tmp_path):
    backend = make_backend("single", offload="slots", folder=str(tmp_path))
    with pytest.raises(InputError, match=message):
        backend.build(residual_model(), make_functional(optimizer), per_example_function("mse"), {})
