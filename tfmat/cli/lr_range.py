"""Learning-rate range test: the rate rises step by step until the loss does; says where to begin.

    tfmat lr_range                                          batch of configs/quickstart.py, less than a minute
    tfmat lr_range --batches=75,750,5000 --config.optimizer.name=lamb
    tfmat lr_range --low=1e-3 --high=100 --steps=1000 --config.optimizer.name=lars

For each batch a CSV, and lr_range.json, lr_range.png, lr_range.svg in --workdir. A batch that was tested with the same
settings is not tested again. Each test begins with the config's initial weights and is thrown away.
"""

import pathlib

from absl import flags

from tfmat.cli.config_flags import config_help, define_config_flags, read_config, rewrite
from tfmat.cli.outputs import check_output_folder
from tfmat.errors import InputError

__all__ = ["SUMMARY", "define_flags", "extra_help", "rewrite", "run"]

SUMMARY = "learning-rate range test, for one batch or several"
extra_help = config_help


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this command's flags."""
    define_config_flags(flag_values, "configs/quickstart.py")
    flags.DEFINE_string(
        "workdir",
        None,
        "folder of the results [runs/lr_range-<config name>]",
        flag_values=flag_values,
    )
    flags.DEFINE_string("data_dir", "data", "as for tfmat train", flag_values=flag_values)
    flags.DEFINE_list("batches", [], "global batches [the config's]", flag_values=flag_values)
    flags.DEFINE_float("low", 1e-5, "first learning rate", flag_values=flag_values)
    flags.DEFINE_float("high", 10.0, "last learning rate", flag_values=flag_values)
    flags.DEFINE_integer("steps", 300, "steps from the one to the other", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Tests, prints a line a batch; returns the exit status."""
    if arguments:
        raise InputError(f"lr_range takes no argument '{arguments[0]}'")
    config = read_config(flag_values)
    workdir = flag_values.workdir or f"runs/lr_range-{pathlib.Path(flag_values.config).stem}"
    check_output_folder("workdir", workdir)
    from tfmat.large_batch.lr_range import lr_range
    from tfmat.report.progress import progress_bar

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
            f"begin with a peak of {test.suggested:.2g}"
        )
    print(pathlib.Path(workdir) / "lr_range.png")
    return 0


def parse_batches(texts: list[str]) -> list[int]:
    """Positive whole numbers; InputError names the first that is none."""
    for text in texts:
        if not (text.strip().isdecimal() and int(text) > 0):
            raise InputError(
                f"--batches: '{text}' is no batch size; give whole numbers, such as 75,750"
            )
    return [int(text) for text in texts]
