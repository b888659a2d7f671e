"""Batch-size sweep: what a batch costs and what it reaches, at equal epochs and at equal time.

Each point is an ordinary run in a folder of its own; one that is done is not repeated, one that was stopped goes on.
"""

import copy
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfmat.config import Config, apply_override, check_config, seconds_of
from tfmat.errors import InputError
from tfmat.files import make_folder, read_json, spreadsheet_text, write_text
from tfmat.large_batch.figures import save_png_and_svg, sweep_figure
from tfmat.large_batch.runs import StudyRun, run_all, state_of
from tfmat.report.run_files import read_metrics

COLUMNS = (
    "batch", "kind", "state", "epochs", "steps", "training_seconds", "seconds_an_epoch",
    "curves_per_second", "processor_use", "loss", "val_loss", "workdir",
)  # fmt: skip


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
    lengths = {"epochs": f"{epochs:g}epochs", **({"time": equal_time} if seconds else {})}
    runs = [
        StudyRun(
            name=f"{kind}-batch-{batch:06d}",
            about=f"batch {batch} for {train_for}",
            config=at_batch(config, batch, train_for=train_for),
            key={"batch": batch, "kind": kind},
        )
        for kind, train_for in lengths.items()
        for batch in sorted(set(batches))
    ]
    folder = make_folder(workdir)
    table = pd.DataFrame(columns=COLUMNS)
    for run, _, path in run_all(runs, workdir, data_dir):
        row = {**run.key, **read_row(path)}
        table = pd.DataFrame([*table.to_dict("records"), row], columns=COLUMNS)
        write_text(folder / "batch_sweep.csv", spreadsheet_text(table))
    save_png_and_svg(sweep_figure(table, equal_time), folder / "batch_sweep")
    return table


def at_batch(config: Config, batch: int, **overrides: Any) -> Config:
    """A copy of the config with another global batch, and further keys (`optimizer__name=...`) as text."""
    changed = copy.deepcopy(config)
    for key, value in {"global_batch_size": batch, **overrides}.items():
        apply_override(changed, key.replace("__", "."), str(value))
    return check_config(changed)


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
