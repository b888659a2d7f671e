"""A linear regression that the tests of the Trainer share: 1000 examples, and a small network that learns them."""

import keras
import numpy as np

import tfmat

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(1000, 6)).astype(np.float32)
LABELS = (FEATURES @ RANDOM.normal(size=(6, 2)) + 0.1 * RANDOM.normal(size=(1000, 2))).astype(
    np.float32
)
TRAIN, VALIDATION = (FEATURES[:800], LABELS[:800]), (FEATURES[800:], LABELS[800:])


def make_model(dropout=0.0):
    keras.utils.set_random_seed(4)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((6,)),
            layers.Dense(16, activation="tanh"),
            layers.Dropout(dropout, seed=1),
            layers.Dense(2),
        ]
    )


def make_trainer(model=None, **arguments):
    return tfmat.Trainer(model or make_model(), **{"optimizer": "adam", "quiet": True, **arguments})


def flat_weights(model):
    return np.concatenate([weight.ravel() for weight in model.get_weights()])
