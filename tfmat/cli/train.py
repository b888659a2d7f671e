"""simulates curves, trains the network on them, evaluates it, and identifies an example curve.

  tfmat train                                      a few minutes on two cores
  tfmat train --law=voce --workdir=runs/voce       another material law
  tfmat train --config=configs/baseline.py --config.global_batch_size=750
  tfmat train --config.train_for=10m               as many steps as fit into ten minutes

Data sets are made once and kept in --data_dir. A run that was interrupted goes on when the same command is
given again; one that is done says so. Results lie in --workdir: config.json, status.json, metrics.jsonl,
model.keras (best), final.keras, report.html, evaluation.json, figures/, tensorboard/, checkpoints/, log.txt.
"""

import pathlib

from absl import flags

from tfmat.cli.config_flags import config_help, define_config_flags, read_config, rewrite
from tfmat.cli.outputs import check_output_folder
from tfmat.errors import InputError

__all__ = ["define_flags", "extra_help", "rewrite", "run"]

extra_help = config_help


def define_flags(flag_values: flags.FlagValues) -> None:
    """Flags of `tfmat train`."""
    define_config_flags(flag_values, "configs/quickstart.py")
    flags.DEFINE_string(
        "workdir", None, "folder of the run [runs/<config name>]", flag_values=flag_values
    )
    flags.DEFINE_string(
        "data_dir", "data", "folder of data sets, or one data set", flag_values=flag_values
    )
    flags.DEFINE_string("law", None, "material law, same as --config.law", flag_values=flag_values)
    flags.DEFINE_string(
        "backend",
        "single",
        "how steps run: single; horovod, under mpirun or srun; dtensor, on --config.mesh",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Runs the main job."""
    if arguments:
        raise InputError(
            f"train takes no argument '{arguments[0]}'; flags look like --workdir=runs/mine"
        )
    law = [] if flag_values.law is None else [f"law={flag_values.law}"]
    config = read_config(flag_values, first=law)
    workdir = flag_values.workdir or f"runs/{pathlib.Path(flag_values.config).stem}"
    check_output_folder("workdir", workdir)
    from tfmat.workflow import main_job

    main_job(config, workdir=workdir, data_dir=flag_values.data_dir, backend=flag_values.backend)
    return 0
