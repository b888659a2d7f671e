"""Metrics as sums over parts of a set: the value of the whole, by Keras's own update of the whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat
from tfmat.backends.losses import make_metrics, num_sums, sums_of, values_of
from tfmat.errors import InputError

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 2, (50, 1)).astype("f")
OUTPUTS = RANDOM.uniform(0, 1, (50, 1)).astype("f")


class Worst(keras.metrics.Metric):
    """A maximum, which does not add up."""

    def __init__(self):
        super().__init__()
        self.worst = self.add_variable((), "zeros")

    def update_state(self, labels, outputs, sample_weight=None):
        new = keras.ops.max(keras.ops.abs(labels - outputs))
        self.worst.assign(keras.ops.maximum(self.worst, new))

    def result(self):
        return self.worst


class CountsAll(Worst):
    """Does not know of padding."""

    def update_state(self, labels, outputs):
        self.worst.assign_add(keras.ops.sum(labels))


class IgnoresWeights(Worst):
    """Takes weights, and adds up, but counts padding."""

    def update_state(self, labels, outputs, sample_weight=None):
        self.worst.assign_add(keras.ops.sum(keras.ops.abs(labels - outputs)))


def model(units=1):
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(units)])


def test_sums_over_parts_give_the_value_of_the_whole():
    """With padding, which must not count."""
    makers = {
        "auc": keras.metrics.AUC,
        "root": keras.metrics.RootMeanSquaredError,
        "precision": keras.metrics.Precision,
        "r2": keras.metrics.R2Score,
        "f1": lambda: keras.metrics.F1Score(average="macro", threshold=0.5),
    }
    metrics = make_metrics({**{n: m() for n, m in makers.items()}, "mae": "mae"}, model())
    total = np.zeros(num_sums(list(metrics.values())))
    for rows in (slice(0, 13), slice(13, 50)):
        labels, outputs = (
            tf.constant(np.concatenate([array[rows], np.ones((5, 1), "f")]))
            for array in (LABELS, OUTPUTS)
        )
        weights = tf.constant(np.r_[np.ones(len(labels) - 5), np.zeros(5)], tf.float32)
        parts = [sums_of(metric, labels, outputs, weights) for metric in metrics.values()]
        total += np.concatenate([[0.0], *(np.atleast_1d(part) for part in parts)])
    found = values_of(metrics, total, 50)
    for name, make in makers.items():
        metric = make()
        metric.update_state(LABELS, OUTPUTS)
        assert found[name] == pytest.approx(float(metric.result()), rel=1e-5), name
    assert found["mae"] == pytest.approx(np.abs(LABELS - OUTPUTS).mean(), rel=1e-5)


@pytest.mark.parametrize(
    "name",
    ["AUC", "mse", "cosine_similarity", "CosineSimilarity", "poisson", "hinge", "kl_divergence"],
)
def test_names_mean_what_they_mean_in_keras(name):
    """Where a loss has the same name as a metric, which for the cosine similarity has the other sign."""
    metric = make_metrics({"mine": name}, model(2))
    labels, outputs = np.abs(RANDOM.normal(size=(2, 6, 2))).astype("f")
    labels = (labels > 0.5).astype("f") if name == "AUC" else labels
    outputs = outputs / outputs.max()
    sums = sums_of(metric["mine"], tf.constant(labels), tf.constant(outputs), tf.ones(6))
    found = values_of(metric, np.concatenate([[0.0], np.atleast_1d(sums)]), 6)["mine"]
    keras_own = keras.metrics.get(name)
    keras_own.update_state(labels, outputs)
    assert found == pytest.approx(float(keras_own.result()), rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (Worst(), "Worst is no sum over examples"),
        (IgnoresWeights(), "IgnoresWeights is no sum over examples"),
        (CountsAll(), "does not take \\(labels, outputs, sample_weight\\)"),
        (keras.metrics.Mean(), "does not take"),
        (keras.metrics.F1Score(), "gives several numbers; let it give one"),
        (keras.metrics.AUC, "AUC is a class; give an object: AUC\\(\\)"),
        ("AUK", "there is no metric or loss 'AUK' in Keras"),
    ],
)
def test_what_would_be_wrong_is_refused(metric, message):
    with pytest.raises(InputError, match=f"metric 'mine': .*{message}") as caught:
        make_metrics({"mine": metric}, model(3))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [((6,), (6, 1)), ((6, 1), (6, 1)), ((6,), (6, 3)), ((6, 3), (6, 3)), ((6, 4), (6, 4, 3))],
)
def test_a_list_of_metrics_as_in_compile(labels, outputs):
    """Names and values against Keras's own evaluation; accuracy goes by the shapes."""
    random, given = (
        np.random.default_rng(0),
        ["accuracy", ["AUC", keras.metrics.AUC(name="a")], camelCase],
    )
    given = given if labels == outputs else given[:1]
    y = random.integers(0, 2, labels).astype("f")
    if labels == (6, 3):
        y = np.eye(3, dtype="f")[random.integers(0, 3, 6)]
    inputs = keras.Input(outputs[1:])
    last = keras.layers.Activation("softmax" if outputs[-1] > 1 else "sigmoid")
    plain, x = keras.Model(inputs, last(inputs)), random.normal(size=outputs).astype("f")
    plain.compile(loss="mse" if labels == outputs else lambda y, p: p[:, 0], metrics=given)
    expected = plain.evaluate(x, y, batch_size=6, return_dict=True, verbose=0)
    found = make_metrics(given, plain)
    assert {"loss", *found} == set(expected)
    sums = [sums_of(each, tf.constant(y), plain(x), tf.ones(6)) for each in found.values()]
    values = values_of(found, np.concatenate([[0.0], *map(np.ravel, sums)]), 6)
    for name in found:
        assert values[name] == pytest.approx(expected[name], rel=1e-5), name


def camelCase(labels, outputs):  # noqa: N802
    return keras.ops.mean(labels - outputs, -1)


def test_what_is_no_list_of_metrics_is_refused():
    with pytest.raises(InputError, match="metrics is a list of metrics"):
        make_metrics("mae", model())
    with pytest.raises(InputError, match="several metrics have one name: mae, mae; give a dict"):
        make_metrics(["mae", "mae"], model())
    inputs = keras.Input((3,))
    with pytest.raises(InputError, match="which of the model's outputs each is about; give a dict"):
        make_metrics(["mae", "mse"], keras.Model(inputs, [inputs, inputs]))


def test_metrics_by_outputs_are_keras_s():
    """Binary accuracy of one output, sparse categorical of the other, as labels and outputs are formed."""
    random = np.random.default_rng(0)
    features = random.normal(size=(40, 3)).astype("f")
    labels = {"a": (features[:, :1] > 0).astype("f"), "b": random.integers(0, 4, 40)}
    inputs = keras.Input((3,))
    model = keras.Model(
        inputs,
        {
            "a": keras.layers.Dense(1, activation="sigmoid", name="a")(inputs),
            "b": keras.layers.Dense(4, activation="softmax", name="b")(inputs),
        },
    )
    losses = {"a": "binary_crossentropy", "b": "sparse_categorical_crossentropy"}
    metrics = {"b": ["accuracy"], "a": ["accuracy", "mae"]}
    trainer = tfmat.Trainer(model, loss=losses, metrics=metrics, quiet=True)
    found = trainer.evaluate(features, labels)
    model.compile("sgd", losses, metrics=metrics)
    expected = model.evaluate(features, labels, verbose=0, return_dict=True)
    for name in ("a_accuracy", "a_mae", "b_accuracy"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)
    with pytest.raises(InputError, match="one of several outputs, of which the model has a, b"):
        tfmat.Trainer(model, loss=losses, metrics={"c": ["accuracy"]})
    with pytest.raises(InputError, match="'b_AUC': AUC cannot be taken of one of several outputs"):
        tfmat.Trainer(model, loss=losses, metrics={"b": ["AUC"]})
