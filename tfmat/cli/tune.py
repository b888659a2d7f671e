"""searches hyper-parameters that suit the batch, the optimizer or the machine, and can be left alone over night.

  tfmat tune --config=configs/tune.py --workdir=runs/tune --num_workers=2
  tfmat tune --status --workdir=runs/tune          trials, best, workers, time left; writes the page and the CSV
  tfmat train --config=runs/tune/best.py           train with what was found
  tfmat tune --config=configs/tune.py --workdir=runs/tune --max_trials=60      a finished search, extended
  tfmat tune --config=configs/tune.py --launcher=slurm --num_workers=8 --time_limit=4:00:00

The config file says with get_search() what is searched (docs/tuning.md). Each trial is an ordinary `tfmat train` in
WORKDIR/trials/NUMBER/seed-0. Ctrl-C, SIGTERM and SIGUSR1 save every trial (exit status 75); the same command goes on,
also after a kill or a power failure: no trial that has ended is repeated. A search that has ended does nothing.
"""

import contextlib
import pathlib

from absl.flags import FlagValues

from tfmat.cli.flags import check_output_folder, config_flags, overrides, switch, text, whole
from tfmat.cli.launcher_flags import (
    LAUNCHER,
    job_of_flags,
    launch,
    number_of_ranks,
    own_command,
    site_of_flags,
    wants_slurm,
)
from tfmat.config import Config, seconds_of
from tfmat.errors import InputError

FLAGS = (
    *config_flags("configs/tune.py"),
    text("workdir", "runs/tune", "folder of the search"),
    text("data_dir", "data", "of the trials: folder of data sets, or one"),
    text("backend", "single", "of the trials: single, horovod, dtensor"),
    text("trial_launcher", "", "what starts a trial of several ranks, such as 'mpirun -np 2'"),
    text(
        "trial_command", "",
        "a command instead of tfmat train; {config}, {workdir}, {seed} in it are replaced (docs/tuning.md)",
    ),
    whole("num_workers", 1, "trials side by side; they share the cores (slurm: elements of the job array)", 1),
    whole("first_worker", 0, "name of the first", 0),
    whole("max_trials", None, "trials, instead of the config's"),
    text("lease", "60s", "a worker on another machine that gives no sign for so long counts as dead"),
    switch("status", False, "show where the search stands"),
    switch("trial_reports", False, "measure each trial's network on the test curves, and write its report"),
    switch("one_job", False, "slurm: all workers in one job on one node, instead of a job array"),
    *LAUNCHER,
)  # fmt: skip
NO_ARGUMENT = "; flags look like --workdir=runs/tune"


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Searches, or shows a search."""
    if flag_values.status:
        return _show(flag_values.workdir)
    check_output_folder("workdir", flag_values.workdir)
    lease = _lease(flag_values.lease)
    from tfmat.tuning.definition import Options, load_search
    from tfmat.tuning.search import run_search

    base, search = load_search(flag_values.config, overrides(flag_values), flag_values.max_trials)
    _check_trials(flag_values, base)
    if wants_slurm(flag_values):
        _submit(flag_values)
        return 0
    options = Options(
        data_dir=flag_values.data_dir,
        backend=flag_values.backend,
        trial_launcher=flag_values.trial_launcher,
        trial_command=flag_values.trial_command,
        lease=lease,
        reports=flag_values.trial_reports,
    )
    run_search(
        base,
        search,
        workdir=flag_values.workdir,
        options=options,
        num_workers=flag_values.num_workers,
        first_worker=flag_values.first_worker,
    )
    return 0


def _lease(text: str) -> float:
    seconds = None
    with contextlib.suppress(InputError):
        seconds = seconds_of(text)
    if not seconds:
        raise InputError(f"--lease={text} is no time; give seconds or minutes: 60s, 5m")
    return seconds


def _check_trials(flag_values: FlagValues, base: Config) -> None:
    """Refuses what no trial could be run with, before there is one."""
    from tfmat.launch.processes import Processes
    from tfmat.workflow import plan_job

    if flag_values.trial_command:
        try:
            flag_values.trial_command.format(config="", workdir="", seed=0)
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(
                f"--trial_command: {error!s} is no place to fill in; valid: {{config}}, {{workdir}}, {{seed}}"
            ) from error
        return
    several = number_of_ranks(flag_values, flag_values.backend) > 1 or flag_values.trial_launcher
    ranks = 2 if several else 1  # how many does not matter here
    plan_job(
        base.copy_and_resolve_references(),  # where --data_dir is one data set, that is written into it
        workdir=str(pathlib.Path(flag_values.workdir) / "trials" / "none"),
        data_dir=flag_values.data_dir,
        backend=flag_values.backend,
        processes=Processes(size=ranks, local_size=ranks, launcher="mpirun" if several else "none"),
    )


def _submit(flag_values: FlagValues) -> None:
    """The search as a job array, worker i its element i; or as one job with all workers."""
    workdir, site = flag_values.workdir, site_of_flags(flag_values)
    ranks = number_of_ranks(flag_values, flag_values.backend)
    command = own_command("tune", flag_values, site.python)
    if ranks > 1 and not flag_values.trial_launcher:
        mpirun, srun = (
            f"mpirun -np {ranks} --bind-to none",
            f"srun --mpi={site.mpi} --ntasks={ranks}",
        )
        command += (f"--trial_launcher={mpirun if site.launcher == 'mpirun' else srun}",)
    if flag_values.one_job and ranks > 1 and flag_values.num_workers > 1:
        raise InputError(
            "--one_job is for trials of one process; leave it out: the array has a job for each worker"
        )
    array = None
    if not flag_values.one_job:
        array = flag_values.num_workers
        command = tuple(word for word in command if not word.startswith("--num_workers="))
        command += ("--num_workers=1", "--first_worker={array_index}")
    job = job_of_flags(
        flag_values,
        name=f"tfmat-{pathlib.Path(workdir).name}",
        folder=pathlib.Path(workdir),
        site=site,
        command=command,
        ranks=ranks,
        starts_ranks=True,
        array=array,
    )
    launch(job, site, dry_run=flag_values.dry_run)


def _show(workdir: str) -> int:
    from tfmat.console import open_console
    from tfmat.report.tables import tuning_tables
    from tfmat.tuning.definition import read_state
    from tfmat.tuning.workers import summarize, trial_rows, write_results

    state = read_state(workdir)
    console = open_console()
    for table in tuning_tables(summarize(workdir, state).to_json(), trial_rows(state)):
        console.print(table)
    for path in write_results(workdir):
        print(path)
    return 0
