"""Workers with one processor each: what summing gradients costs, and TensorFlow's own tf.distribute beside it.

--part=horovod compares with the machine itself: as many processes with nothing to sum. --part=tf_distribute trains the
default network with Adam by each strategy, and compares with one worker. The slowest worker says the rate.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import rounds as lab
from tfmat.config import Config, default_config
from tfmat.data.dataset import PackedDataset
from tfmat.launch.processes import Processes, prepare_tensorflow
from tfmat.scaling.measure import Answers, Group, Launch, Order, Task, Variant

_STEPS = "tfmat.scaling.measure:measure_steps"
_UNTUNED = {"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_mpi_yield_when_idle": "0"}


class Way(NamedTuple):
    """How workers train together: for people, a backend of tfmat's, and what the libraries are told."""

    title: str
    backend: str
    environment: Mapping[str, str] = {}


RANKS = {
    "alone": Way("processes alone, nothing summed", "single"),
    "mpi": Way("--backend=mpi", "mpi"),
    "tfmat": Way("tfmat: one flat buffer, its own settings", "horovod"),
    "untuned": Way("Horovod's own settings", "horovod", _UNTUNED),
}
STRATEGIES = {
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
_CURVES = 20_000


def measure_workers(
    part: str,
    folder: pathlib.Path,
    workers: int,
    batch_sizes: Sequence[int],
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    """Samples of every variant of a part, and their summary; see rounds.py."""
    dataset, sizes = make_data(folder), sorted(batch_sizes)
    launches, samples_of = (
        (ranks_of, lab.samples_of_steps)
        if part == "horovod"
        else (strategies_of, samples_of_strategies)
    )
    samples, skipped = lab.measure_variants(
        lambda number: launches(folder, dataset, workers, sizes, seconds, number),
        rounds,
        samples_of,
    )
    rows = lab.summarize(samples, share_of="alone")
    return {"workers": workers, "skipped": skipped, "samples": samples, "summary": rows}


def workers_table(part: str, content: dict[str, Any]) -> Table:
    """One row a batch size and variant."""
    ranks = part == "horovod"
    titles = {name: way.title for name, way in RANKS.items()} if ranks else STRATEGIES
    columns = {
        "batch a worker": lambda row: str(row["batch_size"]),
        "<variant": lambda row: titles[row["variant"]],
    }
    if ranks:
        columns["ms a step"] = lab.milliseconds
    else:
        columns["curves/s"] = lambda row: lab.spread(row["rate"], "{:,.0f}")
    share = "of the machine's own rate" if ranks else "speed-up"
    columns[share] = lambda row: lab.spread(row.get("share"))
    rows: list[lab.Row] = content["summary"]
    title = (
        f"{content['workers']} workers, one processor each; median (95 % interval) over the rounds"
    )
    return lab.rows_table(title, rows, columns)


def make_data(folder: pathlib.Path, num_curves: int = _CURVES) -> PackedDataset:
    """Curves to train on."""
    from tfmat.data.dataset import generate_dataset
    from tfmat.records.simulation import CurveSettings

    return generate_dataset(
        CurveSettings(), seed=0, num_curves=num_curves, num_test=10, data_dir=folder
    )


def _order(
    config: Config,
    dataset: PackedDataset,
    seconds: float,
    batch_sizes: Sequence[int],
    backend: str,
    workers: int,
) -> Order:
    """Steps with so many examples of each worker."""
    variant = Variant("steps", backend, workers, dataset_size=dataset.num_train)
    tasks = tuple(Task(size * workers, size) for size in batch_sizes)
    return Order(Group(variant, tasks), config.to_dict(), str(dataset.folder), seconds)


def ranks_of(
    folder: pathlib.Path,
    dataset: PackedDataset,
    ranks: int,
    batch_sizes: Sequence[int],
    seconds: float,
    number: int,
) -> list[Launch]:
    """A launch of each of `RANKS` in round `number`."""
    found = []
    for name, (_, backend, environment) in RANKS.items():
        order = _order(default_config(), dataset, seconds, batch_sizes, backend, ranks)
        # mpirun asks for yielding by itself where it counts more ranks than processors.
        told = {"OMPI_MCA_mpi_yield_when_idle": "1", **environment}
        found.append(lab.launch(name, number, folder, _STEPS, order, ranks, environment=told))
    return found


def strategies_of(
    folder: pathlib.Path,
    dataset: PackedDataset,
    workers: int,
    batch_sizes: Sequence[int],
    seconds: float,
    number: int,
    names: Sequence[str] = tuple(STRATEGIES),
    config: Config | None = None,
) -> list[Launch]:
    """A launch of each of `STRATEGIES` in round `number`."""
    found = []
    for name in names:
        ours, among = name in ("alone", "horovod"), 1 if name == "alone" else workers
        backend = "single" if name == "alone" else name
        order = _order(config or default_config(), dataset, seconds, batch_sizes, backend, among)
        processes = 1 if name in ("alone", "mirrored") else workers + 2 * (name in SERVERS)
        # A server and its chief take any processor, so its processes choose for themselves.
        width = {"mirrored": workers, **dict.fromkeys(SERVERS, os.cpu_count() or 1)}.get(name, 1)
        program = _STEPS if ours else "benchmarks.workers:measure"
        told = {} if ours else {"TF_NUM_INTEROP_THREADS": _THREADS}
        launch = lab.launch(
            name, number, folder, program, order, processes, processors=width, environment=told
        )
        found.append(launch)
    return found


def samples_of_strategies(launch: Launch, answers: Answers) -> list[lab.Sample]:
    """Examples a second of all workers, by the slowest process that measured."""
    found = []
    measured = [answer for answer in answers if answer]
    for task, *of_ranks in zip(launch.spec.order.group.tasks, *measured, strict=True):
        rate = task.global_batch_size / max(each["seconds"] / each["steps"] for each in of_ranks)
        found.append({"batch_size": task.batch_a_worker, "rate": rate})
    return found


def measure(order: Order, processes: Processes, folder: pathlib.Path) -> list[dict[str, Any]]:
    """Called by the processes, see tfmat.scaling.measure: steps, seconds and losses of each batch size."""
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
