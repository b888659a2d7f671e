"""Learning-rate range test: the rate rises step by step until the loss does; says where to begin.

    tfmat lr_range                                          batch of configs/quickstart.py, less than a minute
    tfmat lr_range --batches=75,750,5000 --config.optimizer.name=lamb
    tfmat lr_range --low=1e-3 --high=100 --steps=1000 --config.optimizer.name=lars

For each batch a CSV, and lr_range.json, lr_range.png, lr_range.svg in --workdir. A batch that was tested with the same
settings is not tested again. Each test begins with the config's initial weights and is thrown away.
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
    whole,
)
from tfmat.errors import InputError

FLAGS = (
    *config_flags("configs/quickstart.py"),
    text("workdir", None, "folder of the results [runs/lr_range-<config name>]"),
    DATA_DIR,
    listed("batches", [], "global batches [the config's]"),
    number("low", 1e-5, "first learning rate"),
    number("high", 10.0, "last learning rate"),
    whole("steps", 300, "steps from the one to the other"),
)
NO_ARGUMENT = ""
_WHERE_OPEN = {
    "": "",
    "low": " (the loss was lowest at the first of these rates: give a lower --low)",
    "high": " (the loss was lowest at the last of these rates: give a higher --high)",
}
extra_help = config_help


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Tests, prints a line per batch; returns the exit status."""
    config = read_config(flag_values)
    workdir = output_folder(flag_values, "lr_range-")
    from tfmat.console import progress_bar
    from tfmat.large_batch.lr_range import lr_range

    batches = parse_batches(flag_values.batches) or [config.global_batch_size]
    with progress_bar("range test", "steps") as progress:
        found = lr_range(
            config,
            workdir=workdir,
            data_dir=flag_values.data_dir,
            batches=batches,
            low=flag_values.low,
            high=flag_values.high,
            steps=flag_values.steps,
            progress=progress,
        )
    for test in found:
        print(
            f"batch {test.batch}: loss falls fastest at {test.steepest:.2g}, is lowest at {test.lowest:.2g}; "
            f"begin with a peak of {test.suggested:.2g}{_WHERE_OPEN[test.open_end]}"
        )
    print(pathlib.Path(workdir) / "lr_range.png")
    return 0


def parse_batches(texts: list[str]) -> list[int]:
    """Positive whole numbers; InputError names the first that is none."""
    for batch in texts:
        if not (batch.strip().isdecimal() and int(batch) > 0):
            raise InputError(
                f"--batches: '{batch}' is no batch size; give whole numbers, such as 75,750"
            )
    return [int(batch) for batch in texts]
