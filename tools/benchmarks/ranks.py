"""Ranks with one processor each: what summing the gradients costs, variant by variant.

The baseline is the machine itself: as many processes with nothing to sum. A rate is that of the slowest rank.
"""

import dataclasses
import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import rounds as lab
from tfmat.config import Config, apply_override, default_config
from tfmat.console import log
from tfmat.data.dataset import PackedDataset
from tfmat.files import as_json
from tfmat.scaling.laboratory import Launch

_STEPS = "tfmat.scaling.step_times:measure_steps"
_UNTUNED = {"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_mpi_yield_when_idle": "0"}


class Variant(NamedTuple):
    """A way for ranks to train together.

    Attributes:
      title: for people.
      backend: one of tfmat's, or a class of rank_backends.py; "" for the textbook's loop.
      environment: what the libraries are told.
      keys: of the config, that differ from its defaults.
    """

    title: str
    backend: str
    environment: Mapping[str, str] = {}
    keys: Mapping[str, str] = {}


def _of_config(**keys: str) -> Variant:
    """tfmat's Horovod with other keys of the config."""
    title = " ".join(f"--config.{key}={value}" for key, value in keys.items())
    return Variant(title, "horovod", keys=keys)


VARIANTS = {
    "alone": Variant("processes alone, nothing summed", "single"),
    "mpi": Variant("--backend=mpi", "mpi"),
    "tfmat": Variant("tfmat: one flat buffer, its own settings", "horovod"),
    "silent": Variant("Horovod started, nothing summed", "Silent"),
    "grouped": Variant("Horovod's grouped_allreduce", "Grouped"),
    "each": Variant("one collective a variable", "EachVariable"),
    "halves": _of_config(compression="fp16"),
    "buckets": _of_config(bucket_mb="0.1"),
    "zero": _of_config(zero_stage="2"),
    "stages": _of_config(mesh="stage:{ranks}"),
    **{
        f"cycle {time}": Variant(
            f"HOROVOD_CYCLE_TIME={time}", "horovod", {"HOROVOD_CYCLE_TIME": time}
        )
        for time in ("0.1", "0.25", "0.5", "1", "2", "10")
    },
    "no yield": Variant("without yielding", "horovod", {"OMPI_MCA_mpi_yield_when_idle": "0"}),
    "untuned": Variant("Horovod's own settings", "horovod", _UNTUNED),
    "no cache": Variant("HOROVOD_CACHE_CAPACITY=0", "horovod", {"HOROVOD_CACHE_CAPACITY": "0"}),
    "gloo": Variant("Gloo instead of MPI", "horovod", {"HOROVOD_CPU_OPERATIONS": "GLOO"}),
    "single thread": Variant(
        "HOROVOD_MPI_THREADS_DISABLE=1", "horovod", {"HOROVOD_MPI_THREADS_DISABLE": "1"}
    ),
    "textbook": Variant("Horovod's textbook loop", "", _UNTUNED),
}
SHORT = ("alone", "mpi", "tfmat", "silent", "untuned", "textbook")
_CURVES = 20_000


def steps_spec(
    config: Config,
    dataset: PackedDataset,
    seconds: float,
    tasks: Sequence[dict[str, int]],
    **variant: Any,
) -> dict[str, Any]:
    """What `tfmat.scaling.step_times` wants to know; see tfmat.scaling.laboratory."""
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
    from tfmat.curves.settings import CurveSettings
    from tfmat.data.dataset import generate_dataset

    return generate_dataset(
        CurveSettings(), seed=0, num_curves=num_curves, num_test=10, data_dir=folder
    )


def measure_ranks(
    folder: pathlib.Path,
    names: Sequence[str],
    ranks: int,
    batch_sizes: Sequence[int],
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    """Samples of every variant, and their summary; see rounds.py."""
    dataset = make_data(folder)
    tasks = [{"batch_a_worker": b, "global_batch_size": b * ranks} for b in sorted(batch_sizes)]

    def of_round(number: int) -> list[Launch]:
        found = []
        for name in names:
            _, backend, environment, keys = VARIANTS[name]
            own = not backend or backend[0].isupper()
            config = default_config()
            for key, value in keys.items():
                apply_override(config, key, value.format(ranks=ranks))
            told = steps_spec(
                config, dataset, seconds, tasks, backend="horovod" if own else backend
            )
            if own and backend:
                told["backend"] = f"benchmarks.rank_backends:{backend}"
            # mpirun asks for yielding by itself where it counts more ranks than processors.
            told["environment"] = {"OMPI_MCA_mpi_yield_when_idle": "1", **environment}
            program = _STEPS if backend else "benchmarks.rank_backends:measure_textbook"
            one = lab.launch(name, number, folder, program, ranks, **told)
            found.append(dataclasses.replace(one, gloo=name == "gloo"))
        return found

    absent = {}
    if "mpi" in names and not importlib.util.find_spec("mpi4py"):
        absent["mpi"] = "No module named 'mpi4py'; --with_mpi4py installs it"
        log(f"mpi is left out: {absent['mpi']}")
        names = [name for name in names if name != "mpi"]
    samples, skipped = lab.measure_variants(of_round, rounds)
    rows = lab.summarize(samples, share_of="alone")
    waiting = {
        row["batch_size"]: row["share"]
        for row in lab.summarize(samples, share_of="silent")
        if row["variant"] == "tfmat" and "share" in row
    }
    for row in rows:
        if row["variant"] == "tfmat" and row["batch_size"] in waiting:
            low, value, high = (
                1 - waiting[row["batch_size"]][key] for key in ("high", "value", "low")
            )
            row["waiting"] = {"low": low, "value": value, "high": high}
    return {"ranks": ranks, "skipped": absent | skipped, "samples": samples, "summary": rows}


def ranks_table(content: dict[str, Any]) -> Table:
    """One row a batch size and variant."""
    columns = {
        "batch a rank": lambda row: str(row["batch_size"]),
        "<variant": lambda row: VARIANTS[row["variant"]].title.format(ranks=content["ranks"]),
        "ms a step": lab.milliseconds,
        "of the machine's own rate": lambda row: lab.spread(row.get("share")),
        "waiting": lambda row: lab.spread(row.get("waiting")),
    }
    rows: list[lab.Row] = content["summary"]
    title = f"{content['ranks']} ranks, one processor each; median (95 % interval) over the rounds"
    return lab.rows_table(title, rows, columns)
