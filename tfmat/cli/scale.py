"""measures what parallelism buys: many runs, interleaved and repeated, and a page about them.

  tfmat scale                                      on this machine; it says how long that takes
  tfmat scale --quick --workdir=runs/try           a few minutes, to see how it works
  tfmat scale --config=my_scaling.py --workdir=runs/mine --price_per_hour=0.05 --watts_a_worker=12
  tfmat scale --hosts=server1:2,server2:2          over several machines, by mpirun
  tfmat scale --launcher=slurm --nodes=4 --exclusive --time_limit=20     one job a point, on up to four nodes

The config file has get_scaling() beside get_config(): backends, workers, batches, libraries, meshes, networks and data
sizes; configs/scaling.py is an example, tfmat/scaling/matrix.py explains every key. One worker without any parallel
library is measured beside the others, on as many processors a worker. Every result is on disk before the next run
begins (measurements.jsonl): a study that was interrupted or killed goes on when the same command is given again, and
new points of the config are added to it. What cannot be had here (no NCCL, say) is left out, with the reason; what
fails is told at the end, with its log. Runs beyond the processors of the machine are marked oversubscribed. The page is
scaling_report.html in --workdir; `tfmat report --workdir=…` makes it again.
"""

import dataclasses
import pathlib
import sys

from absl.flags import FlagValues

from tfmat.cli.flags import (
    DATA_DIR,
    config_flags,
    config_help,
    number,
    output_folder,
    overrides,
    switch,
    text,
)
from tfmat.cli.launcher_flags import (
    LAUNCHER,
    job_of_flags,
    site_of_flags,
    wants_slurm,
)
from tfmat.errors import InputError
from tfmat.launch.restarts import missing_hosts, parse_hosts
from tfmat.launch.slurm import Site
from tfmat.launch.slurm_script import SlurmJob

# As in `tfmat report`.
_ASSUMPTIONS = {
    "price_per_hour": "of one worker's device, in any currency, for the report",
    "watts_a_worker": "electric power of one worker, for the report",
    "target_val_loss": "accuracy up to which time, energy and money are counted [what all trained points reached]",
}
_SAID_BY_CONFIG = ("ranks", "cpus_per_rank", "gpus")
FLAGS = (
    *config_flags(
        "configs/scaling.py",
        "file with get_config() and get_scaling(); --config.KEY=VALUE changes a key of the former",
    ),
    text("workdir", None, "folder of the study [runs/<config name>]"),
    DATA_DIR,
    switch("quick", False, "a small study, for trying"),
    text(
        "hosts",
        None,
        "machines that mpirun reaches, and workers of each: server1:2,server2:2 [this one]",
    ),
    *(number(name, None, meaning) for name, meaning in _ASSUMPTIONS.items()),
    *LAUNCHER,
)
NO_ARGUMENT = "; flags look like --workdir=runs/scaling"
extra_help = config_help


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Runs the study."""
    from tfmat.scaling.matrix import load_matrix
    from tfmat.scaling.measurements import Assumptions
    from tfmat.workflow.scale import scale

    config, matrix = load_matrix(flag_values.config, overrides(flag_values))
    if flag_values.quick:
        matrix = matrix.quick()
    workdir = output_folder(flag_values)
    values = {name: flag_values[name].value for name in _ASSUMPTIONS}
    changes = {name: value for name, value in values.items() if value is not None}
    Assumptions(**changes)  # wrong ones are told before anything is measured
    slurm = _slurm(flag_values, workdir) if wants_slurm(flag_values) else None
    hosts = parse_hosts(flag_values.hosts) if flag_values.hosts else ()
    if slurm and hosts:
        raise InputError("--hosts is for mpirun; under SLURM say --nodes")
    # Or every launch of the study would fail, one after the other.
    if not flag_values.dry_run:
        for host, why in missing_hosts(hosts).items():
            raise InputError(f"--hosts={flag_values.hosts}: {host.name} cannot take workers: {why}")
    if slurm:
        matrix = dataclasses.replace(matrix, share_processes=False)
    scale(
        config,
        matrix,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        assumptions=changes,
        slurm=slurm,
        hosts=hosts,
        dry_run=flag_values.dry_run,
    )
    return 0


def _slurm(flag_values: FlagValues, workdir: str) -> tuple[SlurmJob, Site]:
    """What all jobs have in common."""
    for name in _SAID_BY_CONFIG:
        if flag_values[name].present:
            raise InputError(
                f"--{name}: the config's get_scaling() says it for each point; leave it out"
            )
    site = site_of_flags(flag_values)
    job = job_of_flags(
        flag_values,
        name="scale",
        folder=pathlib.Path(workdir),
        site=site,
        command=(site.python or sys.executable,),
    )
    return job, site
