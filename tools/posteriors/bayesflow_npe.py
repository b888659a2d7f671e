"""BayesFlow: spline couplings behind its network for time series, the labels kept in their ranges by its adapter.

Given fits, it sees their numbers as conditions, without a summary network, and learns where labels lie around them.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import bayesflow as bf
import keras
import numpy as np

from posteriors.frozen import EPOCHS, SAMPLES, STEPS_PER_CALL, Answer, Clock, Fits, Task, main

# But for the rate as its `BasicWorkflow` has them for data that are there already.
RATE, WEIGHT_DECAY, CLIP_NORM, BATCH = 2e-3, 5e-3, 1.5, 200
# Its default reads 200 points one after the other by 128 recurrent units: twenty steps a minute.
SUMMARY = {
    "filters": (32, 32, 32),
    "kernel_sizes": (7, 7, 7),
    "strides": (2, 2, 2),
    "recurrent_dim": 64,
}
# Of all tests at once it would keep gigabytes.
TESTS_PER_CALL = 200


class Timed(keras.callbacks.Callback):
    """Ends the training with its time, and lets the rate follow the clock; a few steps are an epoch to it."""

    def __init__(self, clock: Clock):
        super().__init__()
        self._clock = clock

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:  # the second one is compiled anew
            return
        self.model.stop_training = self._clock.step_is_over(STEPS_PER_CALL)
        self.model.optimizer.learning_rate = self._clock.rate(RATE)


def train(task: Task, clock: Clock, seed: int):
    keras.utils.set_random_seed(seed)
    if task.fits is not None:
        return _around(task.fits, task, clock)

    def data(features, labels):
        records = task.scaled(features).astype(np.float32)
        return {"records": records, "labels": labels.astype(np.float32)}

    adapter = (
        bf.Adapter()
        .convert_dtype("float64", "float32")
        .constrain("labels", lower=0.0, upper=1.0)
        .rename("labels", "inference_variables")
        .rename("records", "summary_variables")
    )
    summary = bf.networks.TimeSeriesNetwork(**SUMMARY)
    workflow = _trained(adapter, summary, data(task.features, task.labels), clock)

    def answer() -> Answer:
        draws, scores = [], []
        for first in range(0, len(task.test_labels), TESTS_PER_CALL):
            rows = slice(first, first + TESTS_PER_CALL)
            tests = data(task.test_features[rows], task.test_labels[rows])
            told = {"records": tests["records"]}
            draws.append(workflow.sample(num_samples=SAMPLES, conditions=told)["labels"])
            scores.append(workflow.log_prob(tests))
        return Answer(np.concatenate(draws), np.concatenate(scores))

    return answer


def _around(fits: Fits, task: Task, clock: Clock):
    adapter = (
        bf.Adapter()
        .convert_dtype("float64", "float32")
        .rename("labels", "inference_variables")
        .rename("numbers", "inference_conditions")
    )
    clock.most_steps = EPOCHS * len(fits.numbers) // BATCH
    known = {"numbers": fits.numbers, "labels": fits.targets(task.labels)}
    workflow = _trained(adapter, None, known, clock)

    def answer() -> Answer:
        truths, slopes = fits.test_targets(task.test_labels)
        told = {"numbers": fits.test_numbers}
        draws = workflow.sample(num_samples=SAMPLES, conditions=told)["labels"]
        scores = workflow.log_prob({**told, "labels": truths})
        return Answer(fits.test_labels(np.asarray(draws)), np.asarray(scores) + slopes)

    return answer


def _trained(adapter: bf.Adapter, summary, data: dict[str, np.ndarray], clock: Clock):
    workflow = bf.BasicWorkflow(
        adapter=adapter,
        inference_network=bf.networks.CouplingFlow(transform="spline"),
        summary_network=summary,
        standardize="all",
    )
    workflow.optimizer = keras.optimizers.AdamW(
        clock.rate(RATE), weight_decay=WEIGHT_DECAY, clipnorm=CLIP_NORM
    )
    workflow.fit_offline(
        data,
        epochs=1_000_000,
        steps_per_epoch=STEPS_PER_CALL,
        batch_size=BATCH,
        verbose=0,
        callbacks=[Timed(clock)],
    )
    return workflow


if __name__ == "__main__":
    main(train)
