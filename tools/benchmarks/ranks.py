"""Ranks with one processor each: what summing the gradients costs, variant by variant.

The baseline is the machine itself: as many processes with nothing to sum. The slowest rank says the rate.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import rounds as lab
from tfmat.config import Config, default_config
from tfmat.data.dataset import PackedDataset
from tfmat.scaling.measure import Launch
from tfmat.scaling.worker import Group, Order, Task, Variant

STEPS = "tfmat.scaling.worker:measure_steps"
_UNTUNED = {"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_mpi_yield_when_idle": "0"}


class Way(NamedTuple):
    """How ranks train together: for people, a backend of tfmat's, and what the libraries are told."""

    title: str
    backend: str
    environment: Mapping[str, str] = {}


VARIANTS = {
    "alone": Way("processes alone, nothing summed", "single"),
    "mpi": Way("--backend=mpi", "mpi"),
    "tfmat": Way("tfmat: one flat buffer, its own settings", "horovod"),
    "untuned": Way("Horovod's own settings", "horovod", _UNTUNED),
}
_CURVES = 20_000


def steps_order(
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


def make_data(folder: pathlib.Path, num_curves: int = _CURVES) -> PackedDataset:
    """Curves to train on."""
    from tfmat.data.dataset import generate_dataset
    from tfmat.records.simulation import CurveSettings

    return generate_dataset(
        CurveSettings(), seed=0, num_curves=num_curves, num_test=10, data_dir=folder
    )


def measure_ranks(
    folder: pathlib.Path, ranks: int, batch_sizes: Sequence[int], rounds: int, seconds: float
) -> dict[str, Any]:
    """Samples of every variant, and their summary; see rounds.py."""
    dataset = make_data(folder)
    sizes = sorted(batch_sizes)

    def of_round(number: int) -> list[Launch]:
        found = []
        for name, (_, backend, environment) in VARIANTS.items():
            order = steps_order(default_config(), dataset, seconds, sizes, backend, ranks)
            # mpirun asks for yielding by itself where it counts more ranks than processors.
            told = {"OMPI_MCA_mpi_yield_when_idle": "1", **environment}
            found.append(lab.launch(name, number, folder, STEPS, order, ranks, environment=told))
        return found

    samples, skipped = lab.measure_variants(of_round, rounds)
    rows = lab.summarize(samples, share_of="alone")
    return {"ranks": ranks, "skipped": skipped, "samples": samples, "summary": rows}


def ranks_table(content: dict[str, Any]) -> Table:
    """One row a batch size and variant."""
    columns = {
        "batch a rank": lambda row: str(row["batch_size"]),
        "<variant": lambda row: VARIANTS[row["variant"]].title,
        "ms a step": lab.milliseconds,
        "of the machine's own rate": lambda row: lab.spread(row.get("share")),
    }
    rows: list[lab.Row] = content["summary"]
    title = f"{content['ranks']} ranks, one processor each; median (95 % interval) over the rounds"
    return lab.rows_table(title, rows, columns)
