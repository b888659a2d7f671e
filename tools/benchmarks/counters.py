"""What measuring costs: a training with and without it, taking turns block by block in one process.

Of a run with profile=true one call in some is timed: cycles of as many blocks are compared, each of which is a sample.
"""

import pathlib
import random
import time
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import rounds as lab
from tfmat.launch.processes import Processes
from tfmat.scaling.laboratory import Answers, Launch

DESCRIPTIONS = {
    "counters": "the counters of every run, a line of them each block",
    "profile": "--config.profile=true, and these",
}
GOAL = 0.01  # of a step
_CURVES = 20_000
_CYCLE = 8  # as in the trainer: one call in so many is timed
_WARM_UP = _CYCLE + 1  # so many are timed at first, and both graphs compile


def measure_counters(
    folder: pathlib.Path, batch_sizes: list[int], rounds: int, steps: int
) -> dict[str, Any]:
    """What each variant adds to a step, by the clock and by the time of the processors.

    Args:
      folder: for the launch.
      batch_sizes: examples a step.
      rounds: in each of them every variant trains on one block, the same for all, in an order by chance; whole cycles
        of them count, and one at least.
      steps: in a block.
    """
    one = lab.launch(
        "counters",
        0,
        folder,
        "benchmarks.counters:measure",
        batch_sizes=batch_sizes,
        cycles=max(1, rounds // _CYCLE),
        steps=steps,
    )
    samples, _ = lab.measure_variants(lambda _: [one], samples_of=_samples_of)
    rows = []
    for clock in ("seconds", "processor_seconds"):
        timed = [{**s, "rate": s["batch_size"] / s[clock]} for s in samples]
        found = lab.summarize(timed, slower_than="plain")
        plain = {
            row["batch_size"]: lab.milliseconds(row) for row in found if row["variant"] == "plain"
        }
        for row in found:
            if row["variant"] in DESCRIPTIONS:
                row["plain"] = plain[row["batch_size"]]
                added = {key: value - 1 for key, value in row["times"].items()}
                rows.append({**row, "clock": clock, "added": added, "goal": GOAL})
    return {"samples": samples, "summary": rows}


def counters_table(rows: list[lab.Row]) -> Table:
    """One row a batch size, variant and clock."""
    clocks = {"seconds": "the clock", "processor_seconds": "processor time"}
    columns = {
        "batch": lambda row: str(row["batch_size"]),
        "<what is measured": lambda row: DESCRIPTIONS[row["variant"]],
        "<by": lambda row: clocks[row["clock"]],
        "ms a step without": lambda row: row["plain"],
        "added, %": lambda row: lab.spread(row["added"], "{:+.2f}", 100),
    }
    title = "what measuring adds to a step; median (95 % interval) of cycles of blocks"
    return lab.rows_table(title, rows, columns)


def _samples_of(launch: Launch, answers: Answers) -> list[dict[str, Any]]:
    return [
        {**each, "rate": each["batch_size"] / each["seconds"]} for each in answers[0]["samples"]
    ]


class _Variant:
    """A backend and what measures it, if anything does."""

    def __init__(self, measured: bool, profile: bool, features: np.ndarray, labels: np.ndarray):
        from tfmat.backends import make_backend
        from tfmat.backends.losses import per_example_function
        from tfmat.config import default_config
        from tfmat.networks import build_model
        from tfmat.optimizers import make_functional
        from tfmat.training.meter import Meter

        self.backend = make_backend("single")
        if profile:
            self.backend.time_steps(_CYCLE)
        model = build_model(default_config().model, num_outputs=2, seed=1)
        self.backend.build(model, make_functional("adam"), per_example_function("mse"), {})
        self._data = self.backend.place((features, labels))
        self._meter = Meter(self.backend) if measured else None
        self.seconds = np.zeros(2)  # by the clock, and of the processors, since they were taken

    def run(self, rows: np.ndarray) -> None:
        """Trains on `rows` [steps, batch] in one call."""
        block = (
            self._data,
            rows,
            np.ones(rows.shape, np.float32),
            np.full(len(rows), rows.shape[1], np.float32),
        )
        began = np.array([time.perf_counter(), time.process_time()])
        if self._meter is None:
            self.backend.train(*block)
        else:
            self._train_measured(block, self._meter)
        self.seconds += [time.perf_counter(), time.process_time()] - began

    def _train_measured(self, block: Any, meter: Any) -> None:
        from tfmat.data.pipeline import Block

        # What the training loop does; the line of an epoch too, which comes once in many blocks.
        for each in meter.each([Block(*block)]):
            meter.train(each)
            with meter.time("agreement"):
                self.backend.collectives.maximum(0)
        meter.take()


def measure(spec: dict[str, Any], processes: Processes, folder: pathlib.Path) -> dict[str, Any]:
    """Called by the process, see tfmat.scaling.worker: a sample of each variant, cycle and batch size."""
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(one_thread_an_operation=True)
    numbers, order = np.random.default_rng(1), random.Random(0)
    features = numbers.normal(size=(_CURVES, 200, 3)).astype(np.float32)
    labels = numbers.uniform(size=(_CURVES, 2)).astype(np.float32)
    samples = []
    for size in spec["batch_sizes"]:
        variants = {
            "plain": _Variant(False, False, features, labels),
            "counters": _Variant(True, False, features, labels),
            "profile": _Variant(True, True, features, labels),
        }
        for cycle, blocks in [(-1, _WARM_UP), *((i, _CYCLE) for i in range(spec["cycles"]))]:
            for _ in range(blocks):
                rows = numbers.integers(0, _CURVES, (spec["steps"], size), dtype=np.int32)
                for name in order.sample(list(variants), len(variants)):
                    variants[name].run(rows)
            for name, variant in variants.items():
                clock, processors = variant.seconds / (blocks * spec["steps"])
                variant.seconds = np.zeros(2)
                if cycle >= 0:
                    sample = {"batch_size": size, "variant": name, "round": cycle}
                    samples.append({**sample, "seconds": clock, "processor_seconds": processors})
        _check_same({name: variant.backend.read() for name, variant in variants.items()})
    return {"samples": samples}


def _check_same(weights: dict[str, dict[str, np.ndarray]]) -> None:
    plain = weights["plain"]
    for name, found in weights.items():
        if any(not np.array_equal(plain[key], found[key]) for key in plain):
            raise AssertionError(f"{name} changed the weights")
