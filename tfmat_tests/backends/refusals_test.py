"""What a step would get wrong is refused before it is made, in one line that names the layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat
from tfmat.backends import make_backend
from tfmat.backends.step import check_whole_batch
from tfmat.errors import InputError
from tfmat.networks.factory import ExampleWeightedBatchNormalization

layers = keras.layers
X, Y = np.ones((8, 4), "f"), np.ones((8, 1), "f")


def model(*more, **options):
    return keras.Sequential([layers.Input((4,)), *more, layers.Dense(1, name="last", **options)])


def step(made, backend, features=X, labels=Y, optimizer="sgd", **options):
    """Loss and metrics of one step on all examples."""
    trainer = tfmat.Trainer(
        made, loss="mse", optimizer=optimizer, backend=backend, quiet=True, **options
    )
    return trainer.fit(features, labels, global_batch_size=8, train_for="1steps").history


@pytest.mark.parametrize(
    ("layer", "optimizer", "options", "message"),
    [
        (layers.Dense(2, dtype="mixed_float16", name="half"), "adam", {}, "layer 'half' computes"),
        (layers.BatchNormalization(name="mine"), "adam", {"accumulate": 2}, "with layer 'mine'"),
        (layers.ActivityRegularization(l2=1.0), "adam", {}, "a layer adds a loss of its own"),
        (layers.Masking(), "adam", {}, "carry a mask"),
    ],
)
def test_layers(layer, optimizer, options, message):
    backend = make_backend("single", **options)
    masked = isinstance(layer, layers.Masking)
    inputs = layers.Input((3, 4) if masked else (4,))
    made = keras.Model(inputs, layers.Dense(1)(layer(inputs)))
    features, labels = (np.ones((8, 3, 4), "f"), np.ones((8, 3, 1), "f")) if masked else (X, Y)
    with pytest.raises(InputError, match=message) as caught:
        step(made, backend, features, labels, optimizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["train_step", "test_step", "compute_loss", "compute_metrics"])
@pytest.mark.parametrize("kind", [keras.Model, keras.Sequential])
def test_own_steps_of_a_model(name, kind):
    inputs = layers.Input((4,))
    parts = [[inputs, layers.Dense(1)]] if kind is keras.Sequential else [inputs, inputs]
    made = type("Mine", (kind,), {name: lambda *arguments: None})(*parts)
    with pytest.raises(InputError, match=f"model Mine has its own {name}.*; give") as caught:
        tfmat.Trainer(made)
    assert "\n" not in str(caught.value)


def test_parts_of_a_batch_that_are_normalised_by_themselves_are_taken():
    backend = make_backend("single", accumulate=2)
    made = model(ExampleWeightedBatchNormalization(synchronized=False))
    assert np.isfinite(step(made, backend, metrics={"auc": keras.metrics.AUC()})["loss"][0])


def test_a_horovod_backend_that_is_not_started(monkeypatch):
    """Each process would train for itself."""
    for name, value in (("RANK", 0), ("SIZE", 2), ("LOCAL_RANK", 0), ("LOCAL_SIZE", 2)):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    with pytest.raises(InputError, match="the Horovod backend is not started"):
        step(model(), make_backend("horovod"))


class Cut(keras.layers.Layer):
    """No gradient goes back through it."""

    def call(self, inputs):
        return tf.stop_gradient(inputs)


def test_a_loss_that_depends_on_no_weight_is_refused():
    made = keras.Sequential([layers.Input((4,)), layers.Dense(1), Cut()])
    with pytest.raises(InputError, match="the loss depends on none of the model's weights"):
        step(made, make_backend("single"))


def test_weights_on_which_the_loss_does_not_depend_are_named_and_stay():
    """As Keras's own loop warns of them, and leaves them."""
    made = model(layers.Dense(3, name="first"), Cut())
    before = [weight.copy() for weight in made.get_weights()]
    with pytest.warns(
        UserWarning, match=r"does not depend on \S+first/kernel, \S+first/bias, which"
    ):
        step(made, make_backend("single"), optimizer="adam")
    changed = [not np.array_equal(a, b) for a, b in zip(before, made.get_weights(), strict=True)]
    assert changed == [False, False, True, True]


@pytest.mark.parametrize("synchronized", [True, False])
def test_local_steps_know_nothing_of_the_whole_batch(synchronized):
    made = model(ExampleWeightedBatchNormalization(synchronized=synchronized, name="mine"))
    if synchronized:
        with pytest.raises(InputError, match="local_steps does not work with layer 'mine'"):
            check_whole_batch(made, "local_steps")
    else:
        check_whole_batch(made, "local_steps")
