"""Batch-size sweep: time an epoch, curves/s, use of the processors, accuracy at equal epochs and at equal time.

    tfmat batch_sweep --config=configs/baseline.py --epochs=1 --equal_time=60s
    tfmat batch_sweep --batches=75,300,1200 --config.optimizer.scaling=sqrt --config.optimizer.schedule=cosine

Each batch is trained twice: for --epochs, and for --equal_time (0s leaves that out). Every point is an ordinary run in
a folder of its own under --workdir. The same command again goes on where it was stopped; what is done is not repeated.
Results: batch_sweep.csv, batch_sweep.png, batch_sweep.svg.
"""

import pathlib
import sys

from absl import flags

from tfmat.cli.config_flags import config_help, define_config_flags, read_config, rewrite
from tfmat.cli.lr_range import parse_batches
from tfmat.cli.outputs import check_output_folder
from tfmat.errors import InputError

__all__ = ["SUMMARY", "define_flags", "extra_help", "rewrite", "run"]

SUMMARY = "time and accuracy over batch sizes, at equal epochs and at equal time"
extra_help = config_help
_BATCHES = ["75", "150", "300", "600", "1200", "2500", "5000"]


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this command's flags."""
    define_config_flags(flag_values, "configs/quickstart.py")
    flags.DEFINE_string(
        "workdir",
        None,
        "folder of the results [runs/batch_sweep-<config name>]",
        flag_values=flag_values,
    )
    flags.DEFINE_string("data_dir", "data", "as for tfmat train", flag_values=flag_values)
    flags.DEFINE_list("batches", _BATCHES, "global batches", flag_values=flag_values)
    flags.DEFINE_float("epochs", 2.0, "of the runs at equal epochs", flag_values=flag_values)
    flags.DEFINE_string("equal_time", "60s", "of the runs at equal time", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Sweeps and prints the table; returns the exit status."""
    if arguments:
        raise InputError(f"batch_sweep takes no argument '{arguments[0]}'")
    config = read_config(flag_values)
    workdir = flag_values.workdir or f"runs/batch_sweep-{pathlib.Path(flag_values.config).stem}"
    check_output_folder("workdir", workdir)
    batches = parse_batches(flag_values.batches)
    from tfmat.large_batch.batch_sweep import batch_sweep

    table = batch_sweep(
        config,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        batches=batches,
        epochs=flag_values.epochs,
        equal_time=flag_values.equal_time,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    shown = table.drop(columns="workdir")
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="-"))
    print(pathlib.Path(workdir) / "batch_sweep.png")
    return 0
