"""simulates curves, trains the network on them, evaluates it, and identifies an example curve.

  tfmat train                                      a few minutes on two cores
  tfmat train --law=voce --workdir=runs/voce       another material law
  tfmat train --config=configs/baseline.py --config.global_batch_size=750
  tfmat train --config.train_for=10m               as many steps as fit into ten minutes
  tfmat train --config.profile=true                where the time of a step goes: a table, profile.json
  tfmat train --launcher=slurm --time_limit=2:00:00 --gpus=1     as a job of a cluster; --dry_run shows it first
  tfmat train --launcher=mpirun --hosts=server1:4,server2:4      goes on with the other where one is lost

Data sets are made once and kept in --data_dir. A run that was interrupted goes on when the same command is
given again; one that is done says so. Results lie in --workdir: config.json, status.json, metrics.jsonl,
model.keras (best), final.keras, report.html, evaluation.json, figures/, tensorboard/, checkpoints/, log.txt.
"""

import pathlib

from absl.flags import FlagValues

from tfmat.cli.flags import (
    DATA_DIR,
    config_flags,
    config_help,
    output_folder,
    read_config,
    switch,
    text,
)
from tfmat.cli.launcher_flags import (
    job_of_flags,
    launch,
    number_of_ranks,
    own_command,
    site_of_flags,
    wants_slurm,
)
from tfmat.cli.mpirun_flags import MPIRUN, train_under_mpirun, wants_mpirun
from tfmat.config import Config
from tfmat.errors import InputError

FLAGS = (
    *config_flags("configs/quickstart.py"),
    text("workdir", None, "folder of the run [runs/<config name>]"),
    DATA_DIR,
    text("law", None, "material law, same as --config.law"),
    text(
        "backend",
        "single",
        "how steps run: single; under mpirun or srun horovod, mpi or asynchronous; dtensor, on --config.mesh",
    ),
    switch(
        "report",
        True,
        "at the end measure the network on the test curves, identify an example, write a report",
    ),
    *MPIRUN,
)
NO_ARGUMENT = "; flags look like --workdir=runs/mine"
extra_help = config_help


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Runs the main job."""
    config = read_config(flag_values)
    workdir = output_folder(flag_values)
    if wants_mpirun(flag_values):
        return train_under_mpirun(flag_values, config, workdir)
    if wants_slurm(flag_values):
        _submit(flag_values, config, workdir)
        return 0
    from tfmat.workflow import main_job

    main_job(
        config,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        backend=flag_values.backend,
        report=flag_values.report,
    )
    return 0


def _submit(flag_values: FlagValues, config: Config, workdir: str) -> None:
    """The same training as a SLURM job, checked here as far as it can be."""
    from tfmat.launch.processes import Processes
    from tfmat.workflow import plan_job

    site = site_of_flags(flag_values)
    backend = flag_values.backend
    ranks = number_of_ranks(flag_values, backend)
    if backend != "dtensor" and (flag_values.gpus or 0) > ranks:
        raise InputError(
            f"--gpus={flag_values.gpus}, but --backend={backend} with {ranks} rank(s) uses {ranks}; "
            "use --backend=horovod or mpi, which starts one rank a GPU, or fewer GPUs"
        )
    planned = plan_job(
        config,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        backend=backend,
        processes=Processes(size=ranks, local_size=ranks, launcher=site.launcher),
    )
    job = job_of_flags(
        flag_values,
        name=f"tfmat-{pathlib.Path(workdir).name}",
        folder=pathlib.Path(workdir),
        site=site,
        command=own_command("train", flag_values, site.python),
        ranks=ranks,
        data=planned.data,
    )
    launch(job, site, dry_run=flag_values.dry_run)
