"""Batch-size sweep: time an epoch, curves/s, use of the processors, accuracy at equal epochs and at equal time.

    tfmat batch_sweep --config=configs/baseline.py --epochs=1 --equal_time=60s
    tfmat batch_sweep --batches=75,300,1200 --config.optimizer.scaling=sqrt --config.optimizer.schedule=cosine

Each batch is trained twice: for --epochs, and for --equal_time (0s leaves that out). Every point is an ordinary run in
a folder of its own under --workdir. The same command again goes on where it was stopped; what is done is not repeated.
Results: batch_sweep.csv, batch_sweep.png, batch_sweep.svg.
"""

import pathlib

from absl.flags import FlagValues

from tfmat.cli.flags import (
    DATA_DIR,
    config_flags,
    config_help,
    listed,
    number,
    output_folder,
    read_config,
    text,
)
from tfmat.cli.lr_range import parse_batches

FLAGS = (
    *config_flags("configs/quickstart.py"),
    text("workdir", None, "folder of the results [runs/batch_sweep-<config name>]"),
    DATA_DIR,
    listed("batches", ["75", "150", "300", "600", "1200", "2500", "5000"], "global batches"),
    number("epochs", 2.0, "of the runs at equal epochs"),
    text("equal_time", "60s", "of the runs at equal time"),
)
NO_ARGUMENT = ""
extra_help = config_help


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Sweeps and prints the table; returns the exit status."""
    config = read_config(flag_values)
    workdir = output_folder(flag_values, "batch_sweep-")
    batches = parse_batches(flag_values.batches)
    from tfmat.large_batch.batch_sweep import batch_sweep

    table = batch_sweep(
        config,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        batches=batches,
        epochs=flag_values.epochs,
        equal_time=flag_values.equal_time,
    )
    shown = table.drop(columns="workdir")
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="-"))
    print(pathlib.Path(workdir) / "batch_sweep.png")
    return 0
