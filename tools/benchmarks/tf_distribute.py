"""TensorFlow's own tf.distribute: the default network and Adam by its strategies, beside tfmat's workers.

Every worker has one processor.
"""

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks import rounds as lab
from benchmarks.ranks import STEPS, make_data, steps_order
from tfmat.config import Config, default_config
from tfmat.data.dataset import PackedDataset
from tfmat.launch.processes import Processes, prepare_tensorflow
from tfmat.scaling.measure import Answers, Launch
from tfmat.scaling.worker import Order

VARIANTS = {
    "alone": "one worker without any parallel library",
    "horovod": "Horovod",
    "mirrored": "MirroredStrategy, devices of one process",
    "multi_worker_mirrored": "MultiWorkerMirroredStrategy, processes",
    "asynchronous": "ParameterServerStrategy, asynchronous updates",
    "synchronous": "ParameterServerStrategy, synchronous updates",
}
SERVERS = ("asynchronous", "synchronous")
# _THREADS: operations at a time. One thread would be kept by operations that wait for another process.
_THREADS = "8"


def measure_strategies(
    folder: pathlib.Path, workers: int, batch_sizes: Sequence[int], rounds: int, seconds: float
) -> dict[str, Any]:
    """Samples of every variant, and their summary; see rounds.py."""
    dataset = make_data(folder)
    launches = functools.partial(launches_of, folder, dataset, workers, batch_sizes, seconds)
    samples, skipped = lab.measure_variants(launches, rounds, samples_of)
    rows = lab.summarize(samples, share_of="alone")
    return {"workers": workers, "skipped": skipped, "samples": samples, "summary": rows}


def strategies_table(content: dict[str, Any]) -> Table:
    """One row a batch size and variant."""
    columns = {
        "batch a worker": lambda row: str(row["batch_size"]),
        "<variant": lambda row: VARIANTS[row["variant"]],
        "curves/s": lambda row: lab.spread(row["rate"], "{:,.0f}"),
        "speed-up": lambda row: lab.spread(row.get("share")),
    }
    rows: list[lab.Row] = content["summary"]
    title = f"{content['workers']} workers beside one; median (95 % interval) over the rounds"
    return lab.rows_table(title, rows, columns)


def launches_of(
    folder: pathlib.Path,
    dataset: PackedDataset,
    workers: int,
    batch_sizes: Sequence[int],
    seconds: float,
    number: int,
    names: Sequence[str] = tuple(VARIANTS),
    config: Config | None = None,
) -> list[Launch]:
    """A launch of each variant in round `number`."""
    found = []
    for name in names:
        ours, among = name in ("alone", "horovod"), 1 if name == "alone" else workers
        backend = "single" if name == "alone" else name
        order = steps_order(
            config or default_config(), dataset, seconds, batch_sizes, backend, among
        )
        processes = 1 if name in ("alone", "mirrored") else workers + 2 * (name in SERVERS)
        # A server and its chief take any processor, so its processes choose for themselves.
        width = {"mirrored": workers, **dict.fromkeys(SERVERS, os.cpu_count() or 1)}.get(name, 1)
        program = STEPS if ours else "benchmarks.tf_distribute:measure"
        threads = {} if ours else {"TF_NUM_INTEROP_THREADS": _THREADS}
        found.append(
            lab.launch(
                name,
                number,
                folder,
                program,
                order,
                processes,
                processors=width,
                environment=threads,
            )
        )
    return found


def samples_of(launch: Launch, answers: Answers) -> list[lab.Sample]:
    """Examples a second of all workers, by the slowest process that measured."""
    found = []
    measured = [answer for answer in answers if answer]
    for task, *of_ranks in zip(launch.spec.order.group.tasks, *measured, strict=True):
        rate = task.global_batch_size / max(each["seconds"] / each["steps"] for each in of_ranks)
        found.append({"batch_size": task.batch_a_worker, "rate": rate})
    return found


def measure(order: Order, processes: Processes, folder: pathlib.Path) -> list[dict[str, Any]]:
    """Called by the processes, see tfmat.scaling.worker: steps, seconds and losses of each batch size."""
    name, workers = order.group.variant.backend, order.group.variant.workers
    if name in SERVERS and processes.rank >= 2:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[(processes.rank - 2) % len(processors)]})
    devices = workers if name == "mirrored" else 1
    # MultiWorkerMirroredStrategy must come before anything else that TensorFlow does.
    start = name != "multi_worker_mirrored"
    prepare_tensorflow(processors=devices, virtual_devices=devices, start=start, own_program=True)
    from benchmarks import strategies

    if name == "mirrored":
        devices_of = [f"CPU:{i}" for i in range(workers)]
        training = strategies.Mirrored(strategies.tf.distribute.MirroredStrategy(devices_of))
        return strategies.measure_tasks(training, order)
    return strategies.measure_together(order, processes, folder)
