"""The contract of the methods that `tools/compare_posteriors` runs, each in an environment of its own. NumPy only."""

import argparse
import contextlib
import dataclasses
import json
import math
import pathlib
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# With 199 draws a truth has 200 ranks, of which the middle 190 are 95 %.
SAMPLES = 199
# Between two looks at the clock, where looking costs a call of a graph.
STEPS_PER_CALL = 10
# Share of the seconds in which the learning rate rises, as BayesFlow has it by default.
_WARMUP = 0.05
# Labels stay so far away from the ends of their ranges, whose logits are infinite.
_EDGE = np.float32(1e-6)
_ARRAYS = ("features", "labels", "test_features", "test_labels")


@dataclasses.dataclass(frozen=True)
class Task:
    """Simulated records that every method sees.

    Attributes:
      folder: where they lie, with `dataset`, the same as tfmat's data set.
      features: [n, points, channels], float32; labels: [n, p], float32, within 0-1, drawn evenly: the prior.
      test_features, test_labels: the same of records to be judged by.
      tests: of a record, one after the other in its points.
    """

    folder: pathlib.Path
    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    tests: int = 1

    @classmethod
    def open(cls, folder: pathlib.Path) -> "Task":
        about = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        features, labels, test_features, test_labels = (
            np.load(folder / f"{name}.npy") for name in _ARRAYS
        )
        labels, test_labels = (np.clip(each, _EDGE, 1.0 - _EDGE) for each in (labels, test_labels))
        return cls(folder, features, labels, test_features, test_labels, **about)

    def save(self) -> None:
        for name in _ARRAYS:
            np.save(self.folder / f"{name}.npy", getattr(self, name))

    def scaled(self, features: np.ndarray) -> np.ndarray:
        """Records for networks of one time series: features over the largest of each channel, [n, points, channels].

        The tests of a record stand side by side as channels, beside them the flag of what is not there, which is zero.
        Channels that never change are left out.
        """
        known, given = (self._side_by_side(each) for each in (self.features[:1024], features))
        varied = np.ptp(known, axis=(0, 1)) > 0.0
        return given[..., varied] / np.abs(known).max(axis=(0, 1))[varied]

    def _side_by_side(self, features: np.ndarray) -> np.ndarray:
        count, points, channels = features.shape
        apart = features.reshape(count, self.tests, points // self.tests, channels)
        return apart.transpose(0, 2, 1, 3).reshape(count, -1, self.tests * channels)


@dataclasses.dataclass(frozen=True)
class Answer:
    """Posteriors of the test records.

    Attributes:
      draws: [tests, samples, p], on the scale of the labels.
      log_score: [tests], logarithm of the posterior density at the true labels.
    """

    draws: Any
    log_score: Any


class Clock:
    """Processor seconds of a training, of all threads, from the end of its first step on: compilation is not counted.

    Attributes:
      seconds: that the training may take.
      most_steps: after which it ends all the same; None is as many as there is time for."""

    def __init__(self, seconds: float):
        self.seconds, self._before = seconds, 0.0
        self.most_steps: int | None = None
        self._start: float | None = None
        self._end: float | None = None
        self.steps = 0

    @staticmethod
    def now() -> float:
        """Processor seconds of this process and of its forks that have ended."""
        forks = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + forks.ru_utime + forks.ru_stime

    def step_is_over(self, steps: int = 1) -> bool:
        """Called after each step, or after a few at once; whether there is no time for another."""
        if self._start is None:
            self._start = self.now()
        self.steps += steps
        if self.spent >= self.seconds or (self.most_steps and self.steps >= self.most_steps):
            self._end = self.now()
        return self._end is not None

    def rate(self, peak: float) -> float:
        """The learning rate, alike for all: it rises from a tenth of its peak, then falls by half a cosine to zero."""
        before = min(self._before, 0.99 * self.seconds)
        share = min(1.0, (self.spent - before) / (self.seconds - before))
        if self.most_steps:
            share = max(share, min(1.0, self.steps / self.most_steps))
        if share < _WARMUP:
            return peak * (0.1 + 0.9 * share / _WARMUP)
        return 0.5 * peak * (1.0 + math.cos(math.pi * (share - _WARMUP) / (1.0 - _WARMUP)))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Counts what is done within it before the first step."""
        start = self.now()
        yield
        self._before += self.now() - start

    @property
    def spent(self) -> float:
        """Processor seconds so far."""
        if self._start is None:
            return self._before
        return self._before + (self._end or self.now()) - self._start


def main(train: Callable[[Task, Clock, int], Callable[[], Answer]]) -> None:
    """Runs a method from the command line: METHOD.py TASK OUT SECONDS SEED.

    Args:
      train: takes task, clock and seed; returns what answers the test records. It trains until the clock says so.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    start = Clock.now()
    task, clock = Task.open(given.task), Clock(given.seconds)
    answer = train(task, clock, given.seed)
    trained = Clock.now()
    print(f"{clock.steps:,} steps in {clock.spent:.1f} processor seconds", flush=True)
    found = answer()
    seconds = {
        "training": clock.spent,
        "preparing": trained - start - clock.spent,
        "answering": Clock.now() - trained,
    }
    numbers: dict[str, Any] = {f"{name}_seconds": value for name, value in seconds.items()}
    numbers |= {"draws": np.asarray(found.draws, np.float32), "log_score": found.log_score}
    np.savez(given.out, steps=clock.steps, **numbers)
