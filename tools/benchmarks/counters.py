"""What measuring costs: a training with and without it, taking turns block by block in one process.

Of a run with profile=true one call in some is timed: the ways are compared over cycles of as many blocks.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from scipy import stats

from tfmat.backends import Backend, make_backend
from tfmat.backends.losses import per_example_function
from tfmat.config import default_config
from tfmat.models import build_model
from tfmat.optimizers import make_functional
from tfmat.training.meter import Meter

DESCRIPTIONS = {
    "counters": "the counters of every run, a line of them each block",
    "profile": "--config.profile=true, and these",
}
GOAL = 0.01  # of a step
_CURVES = 20_000
_CYCLE = 8  # as in the trainer: one call in so many is timed
_WARM_UP = _CYCLE + 1  # so many are timed at first, and both graphs compile
_CONFIDENCE = 0.95


class _Way:
    """A backend and what measures it, if anything does."""

    def __init__(self, measured: bool, profile: bool, features: np.ndarray, labels: np.ndarray):
        self._backend: Backend = make_backend("single")
        if profile:
            self._backend.time_steps(_CYCLE)
        model = build_model(default_config().model, num_outputs=2, seed=1)
        self._backend.build(model, make_functional("adam"), per_example_function("mse"), {})
        self._data = self._backend.place((features, labels))
        self._meter = Meter(self._backend) if measured else None

    def run(self, rows: np.ndarray) -> tuple[float, float]:
        """Trains on `rows` [steps, batch] in one call; seconds a step by the clock, and of the processors."""
        block = (
            self._data,
            rows,
            np.ones(rows.shape, np.float32),
            np.full(len(rows), rows.shape[1], np.float32),
        )
        began, used = time.perf_counter(), time.process_time()
        if self._meter is None:
            self._backend.train(*block)
        else:
            self._train_measured(block, self._meter)
        seconds = time.perf_counter() - began, time.process_time() - used
        return seconds[0] / len(rows), seconds[1] / len(rows)

    def _train_measured(self, block: Any, meter: Meter) -> None:
        # What the training loop does; the line of an epoch too, which comes once in many blocks.
        for each in meter.each([block]):
            started = time.monotonic()
            sums = self._backend.train(*each)
            meter.called(each[1].shape[1], len(sums), time.monotonic() - started)
            with meter.time("agreement"):
                self._backend.maximum(0)
        meter.take()

    def weights(self) -> dict[str, np.ndarray]:
        """The state."""
        return self._backend.read()


def measure_counters(
    batch_sizes: Sequence[int], rounds: int, steps: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Overhead of each way, with its interval.

    Args:
      batch_sizes: examples a step.
      rounds: in each of them every way trains on one block, the same for all, in an order by chance; whole cycles of
        them count, and one at least.
      steps: in a block.
      say: takes lines.

    Returns:
      {"samples": [...], "summary": [...]}.
    """
    rounds = max(rounds, _CYCLE)
    samples: list[dict[str, Any]] = []
    rows_of = np.random.default_rng(1)
    features = rows_of.normal(size=(_CURVES, 200, 3)).astype(np.float32)
    labels = rows_of.uniform(size=(_CURVES, 2)).astype(np.float32)
    order = random.Random(0)
    for batch_size in batch_sizes:
        ways = {
            "plain": _Way(False, False, features, labels),
            "counters": _Way(True, False, features, labels),
            "profile": _Way(True, True, features, labels),
        }
        for i in range(-_WARM_UP, rounds):
            rows = rows_of.integers(0, _CURVES, (steps, batch_size), dtype=np.int32)
            for name in order.sample(list(ways), len(ways)):
                clock, processors = ways[name].run(rows)
                sample = {"batch_size": batch_size, "round": i, "way": name}
                samples += [{**sample, "seconds": clock, "processor_seconds": processors}] * (
                    i >= 0
                )
            if i >= 0 and (i + 1) % max(1, rounds // 10) == 0:
                say(f"batch {batch_size}: round {i + 1} of {rounds}")
        _check_same(ways)
    return {"samples": samples, "summary": _summarize(samples, batch_sizes)}


def _check_same(ways: dict[str, _Way]) -> None:
    plain = ways["plain"].weights()
    for name, way in ways.items():
        found = way.weights()
        if any(not np.array_equal(plain[key], found[key]) for key in plain):
            raise AssertionError(f"{name} changed the weights")


def _summarize(
    samples: Sequence[dict[str, Any]], batch_sizes: Sequence[int]
) -> list[dict[str, Any]]:
    rows = []
    for batch_size in batch_sizes:
        for quantity in ("seconds", "processor_seconds"):
            times = {
                (s["round"], s["way"]): s[quantity]
                for s in samples
                if s["batch_size"] == batch_size
            }
            rounds = sorted({i for i, _ in times})
            plain = statistics.median(times[i, "plain"] for i in rounds)
            for name in DESCRIPTIONS:
                ratios = np.array(_overheads(times, name, len(rounds)))
                rows.append(
                    {
                        "batch_size": batch_size,
                        "way": name,
                        "quantity": quantity,
                        "plain": plain,
                        "overhead": float(np.median(ratios)),
                        "interval": _interval(ratios),
                        "goal": GOAL,
                    }
                )
    return rows


def _overheads(times: Mapping[tuple[int, str], float], name: str, rounds: int) -> list[float]:
    """Of each whole cycle of rounds."""
    found = []
    for start in range(0, rounds - _CYCLE + 1, _CYCLE):
        cycle = range(start, start + _CYCLE)
        found.append(sum(times[i, name] for i in cycle) / sum(times[i, "plain"] for i in cycle) - 1)
    return found


def _interval(ratios: np.ndarray) -> list[float]:
    """Of the median: bootstrap (Efron and Tibshirani, 1993), percentiles."""
    if len(ratios) < 3:
        return [float(ratios.min()), float(ratios.max())]
    found = stats.bootstrap(
        (ratios,),
        np.median,
        confidence_level=_CONFIDENCE,
        n_resamples=5000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return [float(found.low), float(found.high)]


def counters_table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row a batch size, way and clock."""
    table = Table(title="what measuring adds to a step; median (95 % interval) of cycles of blocks")
    for name in ("batch", "what is measured", "by", "ms a step without", "added, %"):
        table.add_column(name, justify="left" if name in ("what is measured", "by") else "right")
    for row in rows:
        low, high = row["interval"]
        table.add_row(
            str(row["batch_size"]),
            DESCRIPTIONS[row["way"]],
            "the clock" if row["quantity"] == "seconds" else "processor time",
            f"{1e3 * row['plain']:.2f}",
            f"{100 * row['overhead']:+.2f} ({100 * low:+.2f} – {100 * high:+.2f})",
        )
    return table
