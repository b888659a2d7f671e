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
from tfmat.files import as_json
from tfmat.scaling.measure import Launch

STEPS = "tfmat.scaling.worker:measure_steps"
_UNTUNED = {"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_mpi_yield_when_idle": "0"}


class Variant(NamedTuple):
    """How ranks train together: for people, a backend of tfmat's, and what the libraries are told."""

    title: str
    backend: str
    environment: Mapping[str, str] = {}


VARIANTS = {
    "alone": Variant("processes alone, nothing summed", "single"),
    "mpi": Variant("--backend=mpi", "mpi"),
    "tfmat": Variant("tfmat: one flat buffer, its own settings", "horovod"),
    "untuned": Variant("Horovod's own settings", "horovod", _UNTUNED),
}
_CURVES = 20_000


def steps_spec(
    config: Config,
    dataset: PackedDataset,
    seconds: float,
    tasks: Sequence[dict[str, int]],
    **variant: Any,
) -> dict[str, Any]:
    """The spec that `tfmat.scaling.worker` reads; see tfmat.scaling.measure."""
    whole = {"backend": "single", "workers": 1, "mesh": "", "zero_stage": 0, **variant}
    return {
        "variant": whole,
        "tasks": list(tasks),
        "config": as_json(config.to_dict()),
        "dataset": str(dataset.folder),
        "dataset_size": dataset.num_train,
        "seconds": seconds,
        "split": False,
    }


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
    tasks = [{"batch_a_worker": b, "global_batch_size": b * ranks} for b in sorted(batch_sizes)]

    def of_round(number: int) -> list[Launch]:
        found = []
        for name, (_, backend, environment) in VARIANTS.items():
            told = steps_spec(default_config(), dataset, seconds, tasks, backend=backend)
            # mpirun asks for yielding by itself where it counts more ranks than processors.
            told["environment"] = {"OMPI_MCA_mpi_yield_when_idle": "1", **environment}
            found.append(lab.launch(name, number, folder, STEPS, ranks, **told))
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
