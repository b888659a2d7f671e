"""A small problem with its answer from a plain Keras loop: what every backend must reproduce."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.losses import per_example_function
from tfmat.config import EpochPlan, Span, default_config
from tfmat.data.order import ExampleOrder
from tfmat.data.pipeline import MemorySource
from tfmat.networks.factory import build_model
from tfmat.networks.flow import POSTERIOR
from tfmat.optimizers import LAMB, LARC, LARS, NovoGrad, make_functional
from tfmat_tests.backends.numpy_exchange import NumpyExchange

# Nothing divides 3,167; batch 240 makes the 14th batch of an epoch a partial one, so 20 steps meet it. One process
# takes it in one piece: of two pieces a graph takes twice as long to make.
NUM_EXAMPLES, BATCH, STEPS = 3_167, 240, 20
# Examples that make 13 whole batches.
NUM_WHOLE = 13 * BATCH
# Of two workers: the 17th batch of an epoch is a partial one, of which the second has no example.
BATCH_OF_TWO = 192
# Where it is not the layers that matter: a graph that is sooner made.
DENSE = {"conv_filters": (), "kernel_sizes": ()}
OPTIMIZERS = {
    "nesterov": lambda: keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(1e-3),
    "adamw": lambda: keras.optimizers.AdamW(1e-3, weight_decay=0.01),
    # Biases step by the rate itself. With a rate of 1 their loop is ill-conditioned: weights that begin one unit in the
    # last place apart end 8e-5 apart in float32 (1e-15 in float64), with 0.02 and the same steps of kernels 5e-7.
    "lars": lambda: LARS(0.02, 0.5, weight_decay=1e-3),
    "larc": lambda: LARC(0.02, 0.01, weight_decay=1e-3),
    "novograd": lambda: NovoGrad(3e-3, weight_decay=1e-3),
    "lamb": lambda: LAMB(3e-3, weight_decay=0.01),
    # The norm of all gradients is above 0.1 at first, and those of most tensors above 0.01.
    "clipped": lambda: keras.optimizers.SGD(0.02, momentum=0.9, global_clipnorm=0.1),
    "clipped apart": lambda: keras.optimizers.Adam(1e-3, clipnorm=0.01),
}
# What runs by default; --all takes all of them.
SAMPLE = ("nesterov", "adam", "adamw", "lamb")


TOLERANCE = {"float64": 1e-9, "float32": 1e-4}  # of each tensor's norm


def set_precision(name):
    """Everything that Keras makes from now on is of this type."""
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


@contextlib.contextmanager
def keeping_precision() -> Iterator[None]:
    """After it, Keras makes things of the type that it made before."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    try:
        yield
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def make_data(num_examples=NUM_EXAMPLES):
    """(features [examples, 48, 3], labels [examples, 2])."""
    random = np.random.default_rng(0)
    labels = random.uniform(0, 1, (num_examples, 2)).astype(np.float32)
    strain = np.linspace(0, 1, 48, dtype=np.float32)
    stress = np.tanh(labels[:, :1] * 3 * strain) + labels[:, 1:] * strain
    stress += random.normal(0, 0.02, stress.shape)
    features = np.stack(
        [np.broadcast_to(strain, stress.shape), stress, np.zeros_like(stress)], axis=2
    )
    return features.astype(np.float32), labels


def contract_rows(step, num_examples=NUM_EXAMPLES, batch=BATCH):
    """The examples of a step, as the contract on order defines them."""
    epoch, i = divmod(step, -(-num_examples // batch))
    order = ExampleOrder(num_examples, seed=5, shard_size=1024)
    return order.indices(epoch, i * batch, min((i + 1) * batch, num_examples))


def make_model(**options):
    """A small network; options of the config's `model` section, `tests` of a record, `terms` of a flow, `seed`."""
    config, tests, terms = default_config().model, options.pop("tests", 0), options.pop("terms", ())
    seed = options.pop("seed", 3)
    config.conv_filters, config.kernel_sizes, config.hidden_units = (4,), (7,), (25,)
    if options.get("uncertainty") == "flow":
        config.couplings, config.coupling_units = 2, 8
    config.update(options)
    tokens, fit = np.eye(tests).tolist(), means_for_fit(config.representation)
    given = {"tokens": tokens, "fit": fit, "terms": terms, "seed": seed}
    return build_model(config, num_outputs=2, num_points=48, **given)


def means_for_fit(representation):
    """Stands for the fit of a law of two labels: 12 means of the record's numbers; None without a fit.

    What trains behind fits takes them as they are. Answers around real ones have losses of thousands at first, which
    make 1e-6 of float64's rounding in 20 steps with Keras's own loop too.
    """
    layers = keras.layers
    if representation == "fit":
        return keras.Sequential([layers.Reshape((12, 12)), layers.GlobalAveragePooling1D()])
    return None


def loss_of(model, compiled=False):
    """The mean squared error, or that of the model's posterior head, as it is or compiled by itself."""
    layers = {layer.name: layer for layer in model.layers}
    if POSTERIOR not in layers:
        return "mse"
    return layers[POSTERIOR].compiled_loss() if compiled else layers[POSTERIOR].loss


class PlainKerasLoop:
    """Keras's own train_on_batch, as often as one likes from the same state."""

    def __init__(self, model, optimizer):
        optimizer.build(model.trainable_variables)
        model.compile(optimizer, loss=loss_of(model))
        self._model = model
        self._iterations = optimizer.iterations
        self._variables = [*model.weights, *model.non_trainable_variables, *optimizer.variables]
        self.start, self.num_weights = self._values(), len(model.weights)

    def _values(self):
        return [variable.numpy() for variable in self._variables]

    def _assign(self, state):
        for variable, value in zip(self._variables, state, strict=True):
            variable.assign(value)

    def step(self, state, number, features, labels):
        """The state after a batch, step `number` of the schedule; a state begins with the model's weights."""
        self._assign(state)
        self._iterations.assign(number)
        self._model.train_on_batch(features, labels)
        return self._values()

    def train(self, data, batch=BATCH):
        """Weights after 20 steps."""
        self._assign(self.start)
        for step in range(STEPS):
            rows = contract_rows(step, len(data[0]), batch)
            dtype = keras.config.floatx()
            self._model.train_on_batch(data[0][rows].astype(dtype), data[1][rows].astype(dtype))
        return [np.asarray(weight) for weight in self._model.get_weights()]


def plain_keras_loop(model, optimizer, data):
    """Weights after one such loop."""
    return PlainKerasLoop(model, optimizer).train(data)


class SharpnessAwareLoop:
    """Algorithm 1 of Foret et al. 2021, arXiv:2010.01412, with TensorFlow's tape; a model's gradient is traced once."""

    def __init__(self, model):
        self.model = model
        self._start = [(variable, variable.numpy()) for variable in model.variables]

        @tf.function(autograph=False, reduce_retracing=True)
        def gradient(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            return tape.gradient(loss, [w.value for w in model.trainable_variables])

        self._gradient = gradient

    def train(self, optimizer, batches, rho):
        """All weights after these batches, (features, labels) each, from the model's own start."""
        for variable, value in self._start:
            variable.assign(value)
        weights, others = self.model.trainable_variables, self.model.non_trainable_variables
        optimizer.build(weights)

        def restore(variables, values):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

        for x, y in batches:
            x, y = tf.constant(x), tf.constant(y)
            start, before = [w.numpy() for w in weights], [o.numpy() for o in others]
            first = [g.numpy() for g in self._gradient(x, y)]
            after = [o.numpy() for o in others]
            length = np.sqrt(sum((g**2).sum() for g in first))
            restore(weights, [w + rho * g / length for w, g in zip(start, first, strict=True)])
            restore(others, before)  # the same masks
            there = self._gradient(x, y)
            restore(weights, start)
            restore(others, after)  # statistics of w, once
            optimizer.apply(there, weights)
        return [np.asarray(w) for w in self.model.get_weights()]


class PlainWorkers:
    """Two workers in one process: their gradients by TensorFlow's tape, their sums in NumPy, Keras's optimizer."""

    def __init__(self):
        self._data = make_data()
        self.models = [make_model(**DENSE, hidden_units=(100,)) for _ in range(2)]
        self._start = self.models[0].get_weights()

        @tf.function(autograph=False)
        def gradient(weights, features, labels):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                outputs, _ = self.models[0].stateless_call(weights, [], features)
                loss = tf.reduce_sum(tf.reduce_mean((outputs - labels) ** 2, axis=1))
            return loss, tape.gradient(loss, weights)

        examples = [tf.TensorSpec([None, *array.shape[1:]], "float64") for array in self._data]
        weights = [tf.TensorSpec(weight.shape, "float64") for weight in self._start]
        self._gradient = gradient.get_concrete_function(weights, *examples)

    def anew(self):
        """The same two, as they begin."""
        for model in self.models:
            model.set_weights(self._start)
        self._optimizers = [OPTIMIZERS["nesterov"]() for _ in range(2)]
        for model, optimizer in zip(self.models, self._optimizers, strict=True):
            optimizer.build(model.trainable_variables)
        shapes = [tuple(weight.shape) for weight in self.models[0].trainable_variables]
        self.exchange = NumpyExchange("powersgd", shapes, workers=2)
        return self

    def gradients(self, step, alone):
        """Each worker's gradients of the global batch's mean loss, or of its own (`alone`), and the sum of the loss."""
        rows = contract_rows(step, batch=BATCH_OF_TWO)
        found, total = [], 0.0
        for worker, model in enumerate(self.models):
            mine = rows[worker * BATCH_OF_TWO // 2 : (worker + 1) * BATCH_OF_TWO // 2]
            examples = (tf.constant(array[mine].astype("float64")) for array in self._data)
            weights = [variable.value for variable in model.trainable_variables]
            loss, gradients = self._gradient(list(map(tf.identity, weights)), *examples)
            count = max(len(mine), 1) if alone else len(rows)
            found.append([g.numpy() / count for g in gradients])
            total += float(loss)
        return found, total

    def apply(self, worker, gradients):
        """One step of a worker's optimizer."""
        self._optimizers[worker].apply(gradients, self.models[worker].trainable_variables)

    def step_alone(self, step):
        """Each takes a step by itself; the sum of the loss over the global batch."""
        gradients, total = self.gradients(step, alone=True)
        for worker in range(2):
            self.apply(worker, gradients[worker])
        return total

    def moved(self, begun):
        """How far each worker is from `begun`."""
        return [
            [b - w for b, w in zip(weights, model.get_weights(), strict=True)]
            for weights, model in zip(begun, self.models, strict=True)
        ]

    def mean(self, moved, compressed=True):
        """Over the workers, as PowerSGD brings it together, or exactly."""
        halves = [[part / 2 for part in own] for own in moved]
        if compressed:
            return self.exchange.sum(halves)
        return [sum(parts) for parts in zip(*halves, strict=True)]


def spans(source, calls):
    """Spans of as many steps as `calls` says, cut where an epoch ends."""
    position = 0
    for count in calls:
        while count:
            epoch, first = divmod(position, source.steps_per_epoch)
            steps = min(count, source.steps_per_epoch - first)
            yield Span(epoch, first, steps)
            position, count = position + steps, count - steps


def blocks(backend, data, calls=(5, 9, 6), **how):
    """The contract's batches in calls of so many steps; `how`: `num_examples`, `batch`, `source` if others."""
    count, batch = how.get("num_examples", NUM_EXAMPLES), how.get("batch", BATCH)
    data = backend.place(tuple(array[:count] for array in data))
    order = ExampleOrder(count, seed=5, shard_size=1024)
    source = how.get("source", MemorySource)(
        data, order, EpochPlan(count, batch), backend.training_columns
    )
    return source.blocks(spans(source, calls))


def train(backend, model, optimizer, data, calls=(5, 9, 6), sam_rho=None, **how):
    """The sums of the contract's steps; see `blocks`."""
    functional = make_functional(optimizer, sam_rho=sam_rho)
    backend.build(model, functional, per_example_function("mse"), {})
    return np.concatenate([backend.train(*block) for block in blocks(backend, data, calls, **how)])


def check_weights(found, expected, precision, floor=0.0):
    """Those of a plain loop."""
    for i, (mine, weight) in enumerate(zip(found, expected, strict=True)):
        assert relative_error(mine, weight, floor) < TOLERANCE[precision], i


def relative_error(found, reference, floor=0.0):
    """Of a tensor, in norm; a norm below `floor` counts as that."""
    return np.linalg.norm(found - reference) / max(np.linalg.norm(reference), floor)
