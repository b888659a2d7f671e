"""Batch-size sweep: what a batch costs and what it reaches, at equal epochs and at equal time.

Each point is an ordinary run in a folder of its own; one that is done is not repeated, one that was stopped goes on.
"""

import copy
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfmat.config import Config, apply_override, check_config, goes_in_pieces
from tfmat.console import log
from tfmat.durations import seconds_of
from tfmat.errors import DivergedError, InputError
from tfmat.files import make_folder, read_json, write_text
from tfmat.large_batch.figures import save_png_and_svg, sweep_figure
from tfmat.report.run_files import read_metrics
from tfmat.training.plan import RunPlan

if TYPE_CHECKING:
    from tfmat.data.packed import PackedDataset


COLUMNS = (
    "batch", "kind", "state", "epochs", "steps", "training_seconds", "seconds_an_epoch",
    "curves_per_second", "processor_use", "loss", "val_loss", "workdir",
)  # fmt: skip
ENDED = ("done", "diverged")


def batch_sweep(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    batches: Sequence[int],
    epochs: float = 2.0,
    equal_time: str = "60s",
) -> pd.DataFrame:
    """Trains each batch for `epochs` and for `equal_time`; writes batch_sweep.csv, .png and .svg as it goes.

    Args:
      config: of all runs; `optimizer.scaling` says how the learning rate follows the batch.
      workdir: folder of the results and of the runs.
      data_dir: as for `tfmat train`.
      batches: global batch sizes.
      epochs: of the runs at equal epochs.
      equal_time: of the runs at equal time, such as 60s; `0s` leaves them out. Each run's schedule ends then.

    Returns:
      A row a run, with the columns COLUMNS. `loss` and `val_loss` are those of the last epoch, the latter over all
      validation curves; times are without validation.

    Raises:
      InputError, Interrupted.
    """
    seconds = seconds_of(equal_time)
    if seconds is None:
        raise InputError(
            f"--equal_time={equal_time} is no time; give seconds or minutes, such as 60s"
        )
    if epochs <= 0 or not batches:
        raise InputError(f"--epochs={epochs:g}: give a positive number, and one batch or more")
    folder = make_folder(workdir)
    points = [(batch, "epochs", f"{epochs:g}epochs") for batch in sorted(set(batches))]
    if seconds:
        points += [(batch, "time", equal_time) for batch in sorted(set(batches))]
    dataset = None
    table = pd.DataFrame(columns=COLUMNS)
    for i, (batch, kind, train_for) in enumerate(points):
        path = folder / f"{kind}-batch-{batch:06d}"
        log(f"{i + 1} of {len(points)}: batch {batch} for {train_for}")
        if state_of(path) not in ENDED:  # else TensorFlow is not even loaded
            dataset = dataset or prepare_data(config, data_dir, max(batches))
            run_once(at_batch(config, batch, train_for=train_for), dataset, path)
        row = {"batch": batch, "kind": kind, **read_row(path)}
        table = pd.DataFrame([*table.to_dict("records"), row], columns=COLUMNS)
        write_text(folder / "batch_sweep.csv", table.to_csv(index=False))
    save_png_and_svg(sweep_figure(table, equal_time), folder / "batch_sweep")
    return table


def at_batch(config: Config, batch: int, **overrides: Any) -> Config:
    """A copy of the config with another global batch, and further keys (`optimizer__name=...`) as text."""
    changed = copy.deepcopy(config)
    for key, value in {"global_batch_size": batch, **overrides}.items():
        apply_override(changed, key.replace("__", "."), str(value))
    return check_config(changed)


def prepare_data(config: Config, data_dir: str, largest_batch: int) -> "PackedDataset":
    """The data set of the config, made if it is not there; TensorFlow is loaded and set up as `tfmat train` does.

    Raises:
      InputError: also where the largest batch is larger than the training set.
    """
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.workflow import curve_settings, make_dataset
    from tfmat.workflow.dataset import named_dataset

    dataset = named_dataset(config, data_dir)
    if dataset is None:
        dataset = make_dataset(config, curve_settings(config), data_dir)
    if largest_batch > dataset.num_train:
        raise InputError(
            f"batch {largest_batch} is larger than the {dataset.num_train} training curves; leave it out"
        )
    prepare_tensorflow(one_thread_an_operation=goes_in_pieces(config.model), own_program=True)
    return dataset


def run_once(config: Config, dataset: "PackedDataset", path: pathlib.Path) -> None:
    """Trains into `path`, from its last checkpoint if there is one; a run that diverges has ended too."""
    import keras

    from tfmat.backends import make_backend
    from tfmat.workflow.train import train

    keras.backend.clear_session()
    make_folder(path)
    with make_backend("single") as backend:
        try:
            train(config, dataset, RunPlan.of_config(config, workdir=str(path)), backend=backend)
        except DivergedError:
            return  # the folder says so


def state_of(path: pathlib.Path) -> str:
    """The run's state; empty where there is none."""
    status = path / "status.json"
    return str(read_json(status)["state"]) if status.exists() else ""


def read_row(path: pathlib.Path) -> dict[str, Any]:
    """What COLUMNS says of a run that has ended, from its files."""
    lines = read_metrics(path / "metrics.jsonl")
    row: dict[str, Any] = {"state": state_of(path), "workdir": str(path)}
    if not lines:
        return row
    last, rate = lines[-1], float(np.median([line["curves_per_second"] for line in lines]))
    record = read_json(path / "status.json").get("last_record", last)
    return {
        **row,
        "epochs": last["epoch"],
        "steps": last["step"],
        "training_seconds": last["training_seconds"],
        "seconds_an_epoch": read_json(path / "config.json")["num_examples"] / rate,
        "curves_per_second": rate,
        "processor_use": last.get("use", {}).get("cpu_utilisation"),
        "loss": last["loss"],
        "val_loss": record.get("val_loss_all", last.get("val_loss")),
    }
