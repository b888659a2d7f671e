"""One rank of runs whose slow places are known: `[mpirun -np N] python -m tfmat_tests.training.profile_rank '{...}'`.

Says one JSON line: for each case what profile.json holds of this rank, and the seconds of a step by a clock of its own.
"""

import hashlib
import json
import pathlib
import statistics
import sys
import time

from tfmat.launch.processes import prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras

BATCH, CALL = 100, 5


def clock(backend):
    """A callback with the start of each call, its end: (steps done, time), and when its graph came back."""
    import keras

    class Clock(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.ends, self.begins, self.backs = [], [], []

        def on_train_batch_begin(self, batch, logs=None):
            self.begins.append(time.perf_counter())

        def on_train_batch_end(self, batch, logs=None):
            self.ends.append((batch + 1, time.perf_counter()))

        def step_seconds(self):
            """From graph to graph: a busy machine holds up what follows the last one, which is in no part of a step."""
            (first, _), (last, _) = self.ends[0], self.ends[-1]
            return (self.backs[-1] - self.backs[0]) / (last - first)

        def seconds_between_calls(self):
            """A step's share of them."""
            (first, _), (last, _) = self.ends[0], self.ends[-1]
            pairs = zip(self.ends[:-1], self.begins[1:], strict=True)
            return sum(begin - end for (_, end), begin in pairs) / (last - first)

    watch, train = Clock(), backend.train

    def train_and_look(*block):
        sums = train(*block)
        watch.backs.append(time.perf_counter())
        return sums

    backend.train = train_and_look
    return watch


class Sleeper:
    """Sleeps, and remembers how long that really was: a busy machine wakes late."""

    def __init__(self, seconds):
        self._seconds = seconds
        self.slept, self.woke = [], []

    def sleep(self, value=None):
        started = time.time()
        time.sleep(self._seconds)
        self.woke.append(time.time())
        self.slept.append(self.woke[-1] - started)
        return value

    def callback(self):
        """Sleeps after each call."""
        import keras

        return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: self.sleep())

    def loss(self, labels, outputs):
        """The mean squared error, late."""
        import tensorflow as tf

        error = tf.reduce_mean(tf.square(labels - outputs), axis=1)
        late = tf.numpy_function(self.sleep, [outputs[0, 0]], tf.float32)
        with tf.control_dependencies([late]):
            return tf.identity(error)


def slow_dataset(features, labels, sleeper):
    """Batches that are slow, and read when they are wanted, not ahead."""
    import tensorflow as tf

    def batches():
        for i in range(0, len(features) - BATCH, BATCH):
            sleeper.sleep()
            yield features[i : i + BATCH], labels[i : i + BATCH]

    signature = (
        tf.TensorSpec([None, *features.shape[1:]], tf.float32),
        tf.TensorSpec([None, labels.shape[1]], tf.float32),
    )
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(features) // BATCH - 1))
    return dataset.with_options(options)


def run(case, backend, folder):
    """What one case gives."""
    import tfmat
    from tfmat_tests.backends.problem import DENSE, make_data, make_model

    features, labels = make_data(4000)
    watch, delayed = clock(backend), backend.rank == case.get("rank", 0)
    slow = case.get("slow") if delayed or case.get("slow") == "loss" else None
    sleeper = Sleeper(case.get("seconds", 0.0) if delayed else 0.0)
    callbacks = [watch]
    if slow == "callback":
        callbacks.append(sleeper.callback())
    model = make_model(**DENSE, **case.get("model", {}))
    trainer = tfmat.Trainer(
        model,
        loss=sleeper.loss if slow == "loss" else "mse",
        backend=backend,
        workdir=str(folder / case["name"]),
        callbacks=callbacks,
        seed=5,
        steps_per_call=CALL,
        checkpoint_every="1000epochs",
        profile=case.get("profile", True),
        trace_steps=case.get("trace_steps"),
    )
    data = (features, labels)
    if slow == "dataset":
        data = (slow_dataset(features, labels, sleeper), None)
    trainer.fit(*data, global_batch_size=BATCH, train_for=f"{case.get('steps', 30)}steps")
    del backend.train  # the next case has a clock of its own
    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    return {
        "step_seconds": watch.step_seconds(),
        "weights": hashlib.sha256(weights).hexdigest(),
        "between_calls": watch.seconds_between_calls(),
        "slept": statistics.median(sleeper.slept or [0.0]),
        "woke": sleeper.woke[CALL:],  # the first call is not timed
    }


def main(settings):
    """Runs all cases, one after the other."""
    prepare_tensorflow(one_thread_an_operation=True, processors=settings["processors"])
    from tfmat.backends import make_backend

    folder = pathlib.Path(settings["folder"])
    found = {}
    # A backend that has once been told to note times goes on to: those without come first.
    cases = sorted(settings["cases"], key=lambda case: case.get("profile", True))
    backend = make_backend(settings["backend"], trace_steps=1)
    with backend:
        for case in cases:
            found[case["name"]] = run(case, backend, folder)
        found["rank"] = backend.rank
    (folder / f"rank-{found['rank']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
