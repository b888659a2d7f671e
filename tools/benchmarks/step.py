"""Training steps: tfmat against other ways to train the same network, and against the machine's own matrix product."""

import importlib
import math
import pathlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil
from rich.table import Table

from benchmarks import rounds as lab
from tfmat.console import log
from tfmat.errors import InputError
from tfmat.launch.processes import Processes
from tfmat.scaling.measure import Answers, Launch

LEARNING_RATE = 1e-3
LOSS_EXAMPLES = 1_000
# What it is for people, its class, and its options. PyTorch's and JAX's processes never load TensorFlow: PyTorch's
# Triton and TensorFlow each bring an LLVM, and the two end a process that has both.
_OURS, _FIT, _TORCH = "keras_variants:Ours", "keras_variants:Fit", "torch_variants:Torch"
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ours": ("tfmat, data in memory", _OURS, {}),
    "ours_compiled": ("tfmat, jit_compile", _OURS, {"jit_compile": True}),
    "ours_streamed": ("tfmat, streamed", _OURS, {"reading": "stream"}),
    "ours_bfloat16": ("tfmat, dense layers in bfloat16", _OURS, {"precision": "bfloat16"}),
    "ours_auto": ("tfmat, precision=auto", _OURS, {"precision": "auto"}),
    "fit": ("Keras fit, tf.data", _FIT, {}),
    "fit_100": ("Keras fit, tf.data, steps_per_execution=100", _FIT, {"executions": 100}),
    "fit_our_model": ("Keras fit, tf.data, tfmat's model", _FIT, {"our_model": True}),
    "torch": ("PyTorch eager, fused Adam", _TORCH, {}),
    "torch_compiled": ("PyTorch compiled, fused Adam", _TORCH, {"compiled": True}),
    "jax": ("JAX jit, one step a call", "jax_variant:JaxJit", {}),
    "matmul": ("TensorFlow matmul 2048, float32", "keras_variants:MatrixProduct", {}),
}
# (batch size, variant): (quantity, at least)
GOALS = {
    (75, "fit"): ("times", 1.7),
    (75, "torch"): ("times", 1.6),
    (750, "fit"): ("times", 2.5),
    (750, "torch"): ("times", 2.5),
    (750, "ours"): ("share", 0.6),
}


class Data(NamedTuple):
    """features: float32 [curves, 200, 3], physical units; labels: float32 [curves, 2]; scale: divides the features.

    hidden_units: int64 [dense layers], of the network.
    """

    features: np.ndarray
    labels: np.ndarray
    scale: np.ndarray
    hidden_units: np.ndarray

    def scaled(self) -> np.ndarray:
        """Features as a textbook feeds them: brought to about 1 before the training, which costs no step anything."""
        return self.features / self.scale


def endless_rows(count: int, batch_size: int) -> Iterator[np.ndarray]:
    """Rows of whole batches in a new order each epoch, int32 [batch], without end."""
    random, whole = np.random.default_rng(0), count // batch_size * batch_size
    while True:
        yield from random.permutation(count)[:whole].astype(np.int32).reshape(-1, batch_size)


class Timing(NamedTuple):
    """What one run took: work is examples, or floating-point operations where nothing is trained."""

    work: float
    seconds: float


def measure_steps(
    folder: pathlib.Path,
    names: list[str],
    batch_sizes: list[int],
    num_curves: int,
    rounds: int,
    seconds: float,
    hidden_units: tuple[int, ...],
) -> dict[str, Any]:
    """Samples of every variant at every batch size, and their summary; see rounds.py."""
    # A multiple of every batch size: nobody meets a partial batch.
    multiple = int(np.lcm.reduce(batch_sizes))
    num_curves = -(-num_curves // multiple) * multiple
    log(f"simulating {num_curves:,} curves")
    _write_data(folder, num_curves, hidden_units)
    told: dict[str, Any] = {"data": str(folder), "batch_sizes": batch_sizes, "seconds": seconds}

    def of_round(number: int) -> list[Launch]:
        program = "benchmarks.step:measure"
        return [
            lab.launch(name, number, folder, program, {"variant": name, **told}) for name in names
        ]

    samples, skipped = lab.measure_variants(of_round, rounds, _samples_of)
    operations = max(sample["operations"] for sample in samples)
    rows = lab.summarize(samples, slower_than="ours", share_of="matmul", scale=operations)
    checks = {}
    for row in rows:
        name, goal = GOALS.get((row["batch_size"], row["variant"]), ("", 0.0))
        if name in row:
            what = f"{row['variant']} at batch {row['batch_size']}, {name}"
            row["goal"] = checks[what] = lab.quantity(what, row[name]["value"], "", "≥", goal)
        if row["variant"] in ("ours", "matmul"):
            row.pop("times", None)
        if row["variant"] == "matmul":
            row.pop("share", None)
    return {
        "num_curves": num_curves,
        "rounds": rounds,
        "seconds_a_run": seconds,
        "operations_a_curve": operations,
        "skipped": skipped,
        "samples": samples,
        "summary": rows,
        "goals": list(checks.values()),
        "processors_of_others": max(sample["processors_of_others"] for sample in samples),
    }


def steps_table(rows: list[lab.Row]) -> Table:
    """One row a batch size and variant."""

    def rate(row: lab.Row) -> str:
        if row["variant"] == "matmul":
            return f"{lab.spread(row['rate'], '{:,.0f}', 1e-9)} GFLOP/s"
        return lab.spread(row["rate"], "{:,.0f}")

    columns = {
        "batch": lambda row: str(row["batch_size"]),
        "<variant": lambda row: VARIANTS[row["variant"]][0],
        "curves/s": rate,
        "ms a step": lambda row: "" if row["variant"] == "matmul" else lab.milliseconds(row),
        "tfmat is faster by": lambda row: lab.spread(row.get("times")),
        "of matmul's rate, %": lambda row: lab.spread(row.get("share"), "{:.0f}", 100),
        "goal": lambda row: lab.goal_text(row.get("goal")),
    }
    return lab.rows_table(
        "curves a second, training; median (95 % interval) over the rounds", rows, columns
    )


def _write_data(folder: pathlib.Path, num_curves: int, hidden_units: tuple[int, ...]) -> None:
    from tfmat.records.simulation import CurveSettings, Simulator

    curves = Simulator(CurveSettings(), seed=0).curves(0, num_curves)
    scale = np.array([*curves.features[:1024, :, :2].max(axis=(0, 1)), 1.0], np.float32)
    arrays = Data(curves.features, curves.labels, scale, np.array(hidden_units))
    for name, array in arrays._asdict().items():
        np.save(folder / f"{name}.npy", array)


def _samples_of(launch: Launch, answers: Answers) -> list[lab.Sample]:
    (answer,) = answers
    return [{**each, "rate": each["work"] / each["seconds"]} for each in answer]


def measure(order: dict[str, Any], processes: Processes, folder: pathlib.Path) -> list[lab.Sample]:
    """Called by the processes, see tfmat.scaling.measure: a sample of one variant at each batch size."""
    data = Data(*(np.load(f"{order['data']}/{part}.npy") for part in Data._fields))
    _, path, options = VARIANTS[order["variant"]]
    module, _, kind = path.partition(":")
    if module == "keras_variants":
        from tfmat.launch.processes import prepare_tensorflow

        # As `tfmat train` does; Keras `fit` gets TensorFlow as it comes.
        prepare_tensorflow(
            one_thread_an_operation=order["variant"].startswith("ours"), own_program=True
        )
    try:
        variants = importlib.import_module(f"benchmarks.{module}")
    except ImportError as error:
        library = order["variant"].partition("_")[0]
        raise InputError(f"{error}; --with_{library} installs it") from error
    make = getattr(variants, kind)
    sizes = order["batch_sizes"]
    return [_sample(make(data, b, **options), data, b, order["seconds"]) for b in sizes]


def _sample(variant: Any, data: Data, batch_size: int, seconds: float) -> lab.Sample:
    examples = data.features[:LOSS_EXAMPLES], data.labels[:LOSS_EXAMPLES]
    before = variant.loss(*examples)
    variant.run(variant.least_steps)  # compiles
    trial = variant.run(variant.least_steps)
    steps = max(
        variant.least_steps, math.ceil(seconds * trial.work / variant.work_a_step / trial.seconds)
    )
    cpu, busy, started = time.process_time(), _busy_seconds(), time.perf_counter()
    timing = variant.run(steps)
    elapsed = time.perf_counter() - started
    cpu, busy = time.process_time() - cpu, _busy_seconds() - busy
    after = variant.loss(*examples)
    if before is not None and not (np.isfinite(after) and after < before):
        raise InputError(f"it does not train: the loss was {before:.4g} and is {after:.4g}")
    return {
        "batch_size": batch_size,
        "work": timing.work,
        "seconds": timing.seconds,
        "steps": steps,
        "operations": getattr(variant, "operations", 0.0),
        "loss": after,
        "processors": cpu / elapsed,
        "processors_of_others": max(0.0, busy - cpu) / elapsed,
    }


def _busy_seconds() -> float:
    """Processor seconds that this machine has spent on all processes together."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq + times.steal
