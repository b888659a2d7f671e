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
# Passes over fitted records, which are few where a fit takes long, after which a training ends.
EPOCHS = 50
# What draws around fits are cut to, and their logits: beyond there is nothing.
_MOST_TARGET, _MOST_LOGIT = 20.0, 30.0
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
      fits: which are given in place of the records; None where these are.
    """

    folder: pathlib.Path
    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    tests: int = 1
    fits: "Fits | None" = None

    @classmethod
    def open(cls, folder: pathlib.Path, fits: pathlib.Path | None = None) -> "Task":
        about = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        features, labels, test_features, test_labels = (
            np.load(folder / f"{name}.npy") for name in _ARRAYS
        )
        labels, test_labels = (np.clip(each, _EDGE, 1.0 - _EDGE) for each in (labels, test_labels))
        given = None if fits is None else Fits.open(fits)
        return cls(folder, features, labels, test_features, test_labels, **about, fits=given)

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
class Fits:
    """What the law's own fit tells of each record, as tfmat's network sees it; `posteriors.fits` writes it.

    The numbers tell the mode of the labels' logits, how sharply and with which correlations it is known, and what is
    left. Posteriors are told around it: a label becomes asinh((its logit - mode) * precision). Searches miss some
    modes, so that the argument is thousands for a few labels, which would be all that a standardisation sees.

    Attributes:
      numbers: [n, m], float32, of the first n training records, of order 1; test_numbers: of the test records.
      mode, precision: [n, p], logits and one over their standard deviations; test_mode, test_precision.
      seconds: of a processor, for the training records.
    """

    numbers: np.ndarray
    mode: np.ndarray
    precision: np.ndarray
    test_numbers: np.ndarray
    test_mode: np.ndarray
    test_precision: np.ndarray
    seconds: float

    @classmethod
    def of(cls, fitted: np.ndarray, of_tests: np.ndarray, labels: int, seconds: float) -> "Fits":
        """From what tfmat's `LawFit` gives: the numbers, then logits and logarithms of precisions."""
        found: dict[str, Any] = {"seconds": seconds}
        for name, each in (("", fitted), ("test_", of_tests)):
            numbers, mode, log_precision = np.split(each, [-2 * labels, -labels], axis=1)
            found |= {f"{name}numbers": numbers, f"{name}mode": mode}
            found[f"{name}precision"] = np.exp(log_precision)
        return cls(**found)

    @classmethod
    def open(cls, path: pathlib.Path) -> "Fits":
        with np.load(path) as found:
            return cls(**{field.name: found[field.name] for field in dataclasses.fields(cls)})

    def save(self, file: Any) -> None:
        np.savez(
            file, **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        )

    def targets(self, labels: np.ndarray) -> np.ndarray:
        """What the training records' labels [n or more, p] become: [n, p]."""
        logits = _logit(labels[: len(self.mode)].astype(np.float64))
        return np.arcsinh((logits - self.mode) * self.precision).astype(np.float32)

    def test_targets(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the test labels [tests, p] become, and the logarithm of the density's factor on their scale, [tests]."""
        labels = labels.astype(np.float64)
        away = (_logit(labels) - self.test_mode) * self.test_precision
        slopes = np.log(self.test_precision) - np.log(labels * (1.0 - labels))
        slopes -= 0.5 * np.log1p(away**2)
        return np.arcsinh(away).astype(np.float32), slopes.sum(axis=1)

    def test_labels(self, drawn: np.ndarray) -> np.ndarray:
        """Draws [tests, samples, p] on the scale of the labels."""
        away = np.sinh(np.clip(drawn, -_MOST_TARGET, _MOST_TARGET))
        logits = self.test_mode[:, None] + away / self.test_precision[:, None]
        return 1.0 / (1.0 + np.exp(-np.clip(logits, -_MOST_LOGIT, _MOST_LOGIT)))


def _logit(labels: np.ndarray) -> np.ndarray:
    return np.log(labels / (1.0 - labels))


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

    def count(self, seconds: float) -> None:
        """Counts what was prepared in another process."""
        self._before += seconds

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
    """Runs a method from the command line: METHOD.py TASK OUT SECONDS SEED [--fits=FILE].

    Args:
      train: takes task, clock and seed; returns what answers the test records. It trains until the clock says so.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("--fits", type=pathlib.Path)
    given = parser.parse_args()
    start = Clock.now()
    task, clock = Task.open(given.task, given.fits), Clock(given.seconds)
    elsewhere = 0.0
    if task.fits is not None:
        elsewhere = float(task.fits.seconds)
        clock.count(elsewhere)
    answer = train(task, clock, given.seed)
    trained = Clock.now()
    print(f"{clock.steps:,} steps in {clock.spent:.1f} processor seconds", flush=True)
    found = answer()
    seconds = {
        "training": clock.spent,
        "preparing": trained - start - clock.spent + elsewhere,
        "answering": Clock.now() - trained,
    }
    numbers: dict[str, Any] = {f"{name}_seconds": value for name, value in seconds.items()}
    numbers |= {"draws": np.asarray(found.draws, np.float32), "log_score": found.log_score}
    np.savez(given.out, steps=clock.steps, **numbers)
