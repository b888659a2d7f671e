"""Dense layers in bfloat16: against Keras's own mixed precision, and what a run's files know of it."""

import json
import re
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat
from tfmat.backends import make_backend
from tfmat.backends.step import chosen_layers, dense_layers
from tfmat.config import default_config
from tfmat.errors import InputError, Interrupted
from tfmat.networks.factory import build_model

WIDE, NARROW = "wide", "narrow"
FIT = {"global_batch_size": 32, "train_for": "2epochs"}
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(128, 64)).astype(np.float32)
LABELS = np.tanh(FEATURES[:, :2] + FEATURES[:, 2:4]).astype(np.float32)


def make_model(**options_of_wide):
    """Three dense layers, of which the first has 6,400 weights; the same ones each time."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(100, activation="tanh", name=WIDE, **options_of_wide),
            keras.layers.Dense(40, activation="tanh", name=NARROW),
            keras.layers.Dense(2, name="answer"),
        ]
    )


def make_trainer(precision, **others):
    return tfmat.Trainer(
        make_model(),
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        precision=precision,
        quiet=True,
        **others,
    )


def change(model):
    """Of all weights since the start, in one vector."""
    before, after = make_model().get_weights(), model.get_weights()
    return np.concatenate([(b - a).ravel() for a, b in zip(before, after, strict=True)])


def test_the_step_is_that_of_keras_with_a_mixed_policy_in_those_layers_alone():
    """Keras's mixed_bfloat16, tape and SGD in a graph; 2 % is what the docs promise, and float32 is further away."""
    plain, optimizer = make_model(dtype="mixed_bfloat16"), keras.optimizers.SGD(0.05)

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((plain(FEATURES, training=True) - LABELS) ** 2)
        return tape.gradient(loss, plain.trainable_variables)

    for _ in range(5):
        optimizer.apply(gradients(), plain.trainable_variables)
    changes = {}
    for precision in ("float32", "bfloat16"):
        model, sgd = make_model(), keras.optimizers.SGD(0.05)
        trainer = tfmat.Trainer(model, optimizer=sgd, precision=precision, quiet=True)
        trainer.fit(FEATURES, LABELS, global_batch_size=128, train_for="5steps")
        changes[precision] = np.linalg.norm(change(model) - change(plain))
    size = np.linalg.norm(change(plain))
    assert 2 * changes["bfloat16"] < changes["float32"] < 0.02 * size


def plan_of(folder):
    return json.loads((folder / "config.json").read_text())["plan"]


def test_files_of_the_model_and_of_the_state_know_nothing_of_it(tmp_path):
    make_trainer("bfloat16", workdir=tmp_path).fit(FEATURES, LABELS, **FIT)
    ((path, chosen),) = plan_of(tmp_path)["bfloat16"].items()
    assert path.endswith(WIDE) and chosen
    final = keras.models.load_model(tmp_path / "final.keras")
    assert {layer.dtype_policy.name for layer in final.layers} == {"float32"}
    with np.load(next((tmp_path / "checkpoints").glob("*.npz"))) as arrays:
        kinds = {array.dtype.name for name, array in arrays.items() if name.startswith("weights/")}
    assert kinds == {"float32"}


class _StopInTheSecondEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
def test_a_run_that_goes_on_keeps_to_what_it_began_with(tmp_path, precision):
    """Bit for bit with the same choice; and one trial, whatever the number of starts."""
    workdir = tmp_path / "parts"
    with pytest.raises(Interrupted):
        make_trainer(precision, workdir=workdir, callbacks=[_StopInTheSecondEpoch()]).fit(
            FEATURES, LABELS, **FIT
        )
    (chosen,) = plan_of(workdir)["bfloat16"].values()
    parts = make_trainer(precision, workdir=workdir)
    parts.fit(FEATURES, LABELS, **FIT)
    whole = make_trainer("bfloat16" if chosen else "float32")
    whole.fit(FEATURES, LABELS, **FIT)
    np.testing.assert_array_equal(change(parts.model), change(whole.model))
    trials = re.findall(rf"{WIDE} takes (\d+\.\d\d)", (workdir / "log.txt").read_text())
    if precision == "bfloat16":
        assert chosen and not trials
    else:
        (ratio,) = map(float, trials)
        assert ratio <= 0.95 if chosen else ratio >= 0.95


def test_parts_of_a_batch_sum_in_float32():
    """One step in four parts is the step of the whole, to the rounding of bfloat16 gradients."""
    changes = []
    for accumulate in (1, 4):
        backend = make_backend("single", accumulate=accumulate)
        trainer = make_trainer("bfloat16", backend=backend)
        trainer.fit(FEATURES, LABELS, global_batch_size=128, train_for="1steps")
        changes.append(change(trainer.model))
    assert np.linalg.norm(changes[0] - changes[1]) < 4e-3 * np.linalg.norm(changes[0])


@pytest.mark.parametrize("workers", ["single", "asynchronous"])
def test_it_begins_and_goes_on_alike_or_not_at_all(tmp_path, workers):
    """Each backend that sums by itself computes in it; a start with another precision would train another network."""
    make_trainer("bfloat16", backend=make_backend(workers), workdir=tmp_path).fit(
        FEATURES, LABELS, **FIT
    )
    (tmp_path / "status.json").write_text(json.dumps({"state": "interrupted", "reason": ""}))
    with pytest.raises(InputError, match="started with another precision than float32"):
        make_trainer("float32", workdir=tmp_path).fit(FEATURES, LABELS, **FIT)
    with pytest.raises(InputError, match="started with precision=bfloat16, not auto"):
        make_trainer("auto", workdir=tmp_path).fit(FEATURES, LABELS, **FIT)


def names(model):
    return [path.rpartition("/")[2] for path in dense_layers(model)]


class Residual(keras.Model):
    """A model that keeps its graph to itself, and adds to its inputs what a dense layer makes of them."""

    def __init__(self):
        super().__init__()
        self.same = keras.layers.Dense(64, name="same")
        self.head = keras.layers.Dense(64, name="head")

    def call(self, inputs):
        return self.head(inputs + self.same(inputs))


def make_residual():
    model = Residual()
    model(FEATURES[:1])
    return model


def test_layers_that_give_the_answers_stay_float32():
    """Several heads, a head within a nested model, a head with something behind it, one without a graph."""
    curve = keras.Input((64,))
    features = keras.layers.Dense(64, name="features")(curve)
    nested = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(64, name="last")]
    )
    one = keras.layers.Activation("tanh")(keras.layers.Dense(64, name="one")(features))
    two = keras.layers.Dense(64, name="two")(features)
    model = keras.Model(curve, [keras.layers.Concatenate()([one, two]), nested(features)])
    assert names(model) == ["features", nested.layers[0].name]
    added = keras.Model(curve, keras.layers.Dense(64, name="next")(features) + features)
    assert not names(added)
    assert names(make_residual()) == ["same"]


def test_a_model_may_add_its_inputs_to_what_such_a_layer_gives():
    model = make_residual()
    before = model.get_weights()
    tfmat.Trainer(model, precision="bfloat16", quiet=True).fit(FEATURES, FEATURES, **FIT)
    assert all((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))
    assert "call" not in vars(model.same) and model.same.dtype_policy.name == "float32"


@pytest.mark.parametrize("uncertainty", ["none", "gaussian", "flow"])
def test_of_our_own_networks_the_hidden_layers_can(uncertainty):
    config = default_config().model
    config.uncertainty, config.hidden_units = uncertainty, (2048, 2048)
    hidden = ["hidden1", "hidden2", *["uncertainty_hidden"] * (uncertainty == "gaussian")]
    assert names(build_model(config, num_outputs=3)) == hidden


def test_what_can_compute_in_it():
    assert names(make_model()) == [WIDE]
    assert not dense_layers(make_model(dtype="float64"))
    assert chosen_layers(make_model(), {"made/before": False}) == []
    with pytest.raises(InputError, match="2 dense layers that could .* and this model has 1"):
        chosen_layers(make_model(), {"made/before": False, "made/too": True})
    answer_alone = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(100)])
    for model, precision, message in (
        (answer_alone, "bfloat16", "changes nothing: no dense layer before the last has 4,096"),
        (make_model(), "bfloat61", "precision is 'bfloat61'; did you mean 'bfloat16'"),
    ):
        with pytest.raises(InputError, match=message):
            tfmat.Trainer(model, precision=precision, quiet=True).fit(FEATURES, LABELS, **FIT)
