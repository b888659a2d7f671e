"""Weights of examples: against Keras's fit, and what are none."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tfmat.errors import DivergedError, InputError
from tfmat.training.run import unpack, with_weights
from tfmat_tests.training.regression import TRAIN, make_model, make_trainer

X, Y = np.ones((6, 2), "f"), np.array([0, 1, 2, 0, 1, 2])


def test_weights_of_classes_are_those_of_keras():
    from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

    weights = {0: 0.5, 2: 3.0}
    for labels in (Y, Y[:, None], np.eye(3)[Y]):
        expected = class_weight_to_sample_weights(labels, weights)
        np.testing.assert_array_equal(with_weights(X, labels, None, weights)[2], expected)
    both = with_weights(X, Y, np.arange(6), weights)[2]
    np.testing.assert_allclose(both, np.arange(6) * class_weight_to_sample_weights(Y, weights))


def test_validation_and_metrics_are_those_of_keras():
    """val_loss is weighted, metrics are not; a weight of zero is no padding."""
    weights = np.random.default_rng(1).integers(0, 3, 800).astype("f")
    trainer = make_trainer(make_model(), metrics={"mae": "mae"})
    trainer.fit(*TRAIN, global_batch_size=100, train_for="1steps", sample_weight=weights)
    model = trainer.model
    model.compile(loss="mse", metrics=["mae"])
    expected = model.evaluate(*TRAIN, sample_weight=weights, verbose=0)
    found = trainer.evaluate(*TRAIN, weights)
    np.testing.assert_allclose([found["loss"], found["mae"]], expected, rtol=1e-5)


def test_a_weight_of_zero_is_an_example_of_regularisers_and_normalisation():
    """Against Keras fit: weights scale the loss and nothing else."""

    def model():
        keras.utils.set_random_seed(0)
        layers = keras.layers
        penalty = keras.regularizers.L2(0.3)
        return keras.Sequential(
            [
                layers.Input((6,)),
                layers.Dense(5, kernel_regularizer=penalty),
                layers.BatchNormalization(),
                layers.Dense(2),
            ]
        )

    weights = np.random.default_rng(2).integers(0, 3, 800).astype("f")
    dataset = tf.data.Dataset.from_tensor_slices((*TRAIN, weights)).batch(100)
    reference, ours = model(), model()
    reference.compile(keras.optimizers.SGD(0.05), loss="mse")
    reference.fit(dataset, shuffle=False, verbose=0)
    make_trainer(ours, optimizer=keras.optimizers.SGD(0.05)).fit(dataset, global_batch_size=100)
    for found, expected in zip(ours.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), "sample_weight has shape \\[5\\]; give one number for each of the 6 examples"),
        (np.ones((6, 4)), "has shape \\[6, 4\\]"),
        ({"a": np.ones(6)}, "for each of several outputs is not supported"),
        (np.array(["a"] * 6), "give numbers"),
    ],
)
def test_what_are_no_weights_is_refused(weights, message):
    with pytest.raises(InputError, match=message):
        with_weights(X, Y, weights)


def test_tensors_and_frames_are_examples_as_arrays_are():
    features, labels = TRAIN
    arrays, tensors, frames = (
        make_trainer().fit(*each, global_batch_size=800, train_for="2epochs").history["loss"]
        for each in (
            TRAIN,
            (tf.constant(features), tf.constant(labels)),
            (pd.DataFrame(features), pd.DataFrame(labels)),
        )
    )
    assert arrays == tensors == frames


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((TRAIN[0].tolist(), TRAIN[1]), "features has a float; give arrays"),
        ((iter([TRAIN]), None), "features has a .*; give arrays .* or a batched tf.data.Dataset"),
        ((TRAIN[0], None), "labels has a NoneType"),
        ((pd.DataFrame({"a": [1.0], "b": ["x"]}), np.ones(1)), "features has the dtype object"),
        ((TRAIN[0], np.arange(800).astype("M8[s]")), "labels has the dtype datetime64.*; give num"),
        ((TRAIN[0], TRAIN[1][:3]), "differ in length: \\[800, 3\\]"),
        ((tf.data.Dataset.from_tensor_slices(TRAIN),), "batch it: dataset.batch\\(100\\)"),
    ],
)
def test_what_are_no_examples_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        make_trainer().fit(*data, global_batch_size=100)


def test_nan_that_the_loss_hides_ends_the_run():
    """ReLU can make 0 of NaN: the loss stays finite while the weights are lost."""
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((6,)), layers.Dense(8), layers.Lambda(keras.ops.nan_to_num), layers.Dense(2)]
    )
    features = np.where(np.arange(800)[:, None] == 5, np.nan, TRAIN[0])
    with pytest.raises(DivergedError, match="not finite .*; look for NaN in the data"):
        make_trainer(model).fit(features, TRAIN[1], global_batch_size=800, train_for="2steps")


def test_data_of_another_form_is_refused():
    with pytest.raises(InputError, match="validation is \\(features, labels\\) or"):
        unpack("validation", (X,))
    with pytest.raises(InputError, match="class_weight is for labels"):
        with_weights(X, np.ones((6, 2, 2)), None, {0: 1.0})
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).batch(100)
    with pytest.raises(InputError, match="let the tf.data set yield"):
        make_trainer().fit(dataset, global_batch_size=100, sample_weight=np.ones(800))
