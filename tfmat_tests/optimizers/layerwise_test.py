"""LARS, LARC, NovoGrad and LAMB against NumPy transcriptions of the papers' algorithms, in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.optimizers import LAMB, LARC, LARS, NovoGrad

RANDOM = np.random.default_rng(3)
NAMES = ("kernel", "bias", "gamma", "zeros")
START = [RANDOM.normal(size=shape) for shape in ((7, 5), (5,), (5,))] + [np.zeros((3, 2))]
GRADIENTS = [[RANDOM.normal(size=w.shape) for w in START] for _ in range(5)]
GRADIENTS[2][0][:] = 0.0  # a layer may have no gradient
# A schedule: where the rate stands in the algorithm matters then.
RATES = (0.3, 0.2, 0.1, 0.05, 0.02)
DECAY = 0.01


def _norm(array):
    return np.sqrt((array**2).sum())


def lars(w, gradients, excluded, eta=0.02, momentum=0.9, clip=False):
    """You, Gitman, Ginsburg 2017, algorithm 1; `clip`: the rate of a layer is at most the global rate."""
    velocity = 0.0
    for gamma, g in zip(RATES, gradients, strict=True):
        rate, decay = gamma, 0.0 if excluded else DECAY
        if not excluded and _norm(w) > 0 and _norm(g) > 0:
            local = eta * _norm(w) / (_norm(g) + decay * _norm(w))
            rate = min(local, gamma) if clip else gamma * local
        velocity = momentum * velocity + rate * (g + decay * w)
        w = w - velocity
    return w


def larc(w, gradients, excluded):
    return lars(w, gradients, excluded, eta=0.5, clip=True)


def novograd(w, gradients, excluded, beta_1=0.95, beta_2=0.98, epsilon=1e-8):
    """Ginsburg et al. 2019, algorithm 1."""
    decay = 0.0 if excluded else DECAY
    for t, (rate, g) in enumerate(zip(RATES, gradients, strict=True)):
        if t == 0:
            v = (g**2).sum()
            m = g / (np.sqrt(v) + epsilon) + decay * w
        else:
            v = beta_2 * v + (1 - beta_2) * (g**2).sum()
            m = beta_1 * m + (g / (np.sqrt(v) + epsilon) + decay * w)
        w = w - rate * m
    return w


def lamb(w, gradients, excluded, beta_1=0.9, beta_2=0.999, epsilon=1e-6):
    """You et al. 2019, algorithm 2, with φ(z) = z."""
    decay = 0.0 if excluded else DECAY
    m = v = 0.0
    for t, (rate, g) in enumerate(zip(RATES, gradients, strict=True), start=1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        r = (m / (1 - beta_1**t)) / (np.sqrt(v / (1 - beta_2**t)) + epsilon) + decay * w
        ratio = _norm(w) / _norm(r) if not excluded and _norm(w) > 0 and _norm(r) > 0 else 1.0
        w = w - rate * ratio * r
    return w


CASES = {
    "lars": (lars, lambda rate: LARS(rate, 0.02, weight_decay=DECAY)),
    "larc": (larc, lambda rate: LARC(rate, 0.5, weight_decay=DECAY)),
    "novograd": (novograd, lambda rate: NovoGrad(rate, weight_decay=DECAY)),
    "lamb": (lamb, lambda rate: LAMB(rate, weight_decay=DECAY)),
}


@keras.saving.register_keras_serializable(package="tfmat_tests")
class _Rates(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return tf.gather(tf.constant(RATES, tf.float64), tf.cast(step, tf.int32))

    def get_config(self):
        return {}


@pytest.fixture
def variables():
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield [keras.Variable(w, name=n) for w, n in zip(START, NAMES, strict=True)]
    keras.config.set_floatx(before)


def _expected(transcription):
    columns = zip(*GRADIENTS, strict=True)
    return [
        transcription(w, list(g), name in ("bias", "gamma"))
        for w, g, name in zip(START, columns, NAMES, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_papers_algorithm(name, variables):
    transcription, make = CASES[name]
    optimizer = make(_Rates())
    optimizer.build(variables)
    for gradients in GRADIENTS:
        optimizer.apply([tf.constant(g) for g in gradients], variables)
    for found, expected in zip(variables, _expected(transcription), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_other_exclusions(variables):
    """A rule of one's own: nothing is excluded but the kernel."""
    optimizer = LAMB(_Rates(), weight_decay=DECAY, exclude=["^kernel$"])
    optimizer.build(variables)
    for gradients in GRADIENTS:
        optimizer.apply([tf.constant(g) for g in gradients], variables)
    columns = list(zip(*GRADIENTS, strict=True))
    np.testing.assert_allclose(variables[0], lamb(START[0], columns[0], True), rtol=1e-12)
    np.testing.assert_allclose(variables[1], lamb(START[1], columns[1], False), rtol=1e-12)


@pytest.mark.parametrize(("decay", "same"), [(None, True), (DECAY, False)])
def test_keras_has_another_lamb(decay, same, variables):
    """The same without decay and exclusions; its decay is outside of the ratio, and it excludes nothing from that."""
    others = [keras.Variable(w, name=n) for w, n in zip(START, NAMES, strict=True)]
    for own, lamb_class, exclude in (
        (variables, LAMB, {"exclude": ()}),
        (others, keras.optimizers.Lamb, {"epsilon": 1e-6}),
    ):
        optimizer = lamb_class(_Rates(), weight_decay=decay, **exclude)
        optimizer.build(own)
        for gradients in GRADIENTS:
            optimizer.apply([tf.constant(g) for g in gradients], own)
    off = [_norm(a.numpy() - b.numpy()) for a, b in zip(variables, others, strict=True)]
    assert (max(off) < 1e-5) == same, off


@pytest.mark.parametrize("name", CASES)
def test_in_anyones_fit_and_from_a_file(name, tmp_path):
    """Trained for one epoch, saved, loaded, trained on: the same as without the file between."""
    features = RANDOM.normal(size=(64, 6)).astype(np.float32)
    labels = features @ RANDOM.normal(size=(6, 2)).astype(np.float32)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.layers.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    )
    model.compile(CASES[name][1](0.01), loss="mse")
    how = {"batch_size": 16, "shuffle": False, "verbose": 0}
    before = model.fit(features, labels, **how).history["loss"][0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    after, _ = (
        each.fit(features, labels, epochs=5, **how).history["loss"][-1] for each in (model, loaded)
    )
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert after < before
