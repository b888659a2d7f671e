"""Networks, their runs and what these run on.

`tfmat train`, `evaluate`, `report`, `tune` and `layouts`; `horovod` and `doctor`.
"""

import contextlib
import dataclasses
import pathlib
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl.flags import FlagValues

import tfmat
from tfmat.cli.flags import (
    DATA_DIR,
    JOB,
    LAUNCHER,
    LAUNCHER_FLAGS,
    PAGE_FLAGS,
    alias,
    check_output_file,
    check_output_folder,
    choice,
    command,
    config_flags,
    given,
    given_to,
    job_of_flags,
    launch,
    number,
    number_of_ranks,
    output_folder,
    overrides,
    own_command,
    read_config,
    refuse,
    refuse_but,
    site_of_flags,
    switch,
    text,
    wants_slurm,
    whole,
)
from tfmat.errors import InputError
from tfmat.files import check_json, json_text, make_folder, read_json, write_json

if TYPE_CHECKING:
    from tfmat.backends.layouts import Collective, Footprint, Plan
    from tfmat.config import Config, Settings
    from tfmat.launch.mpirun import Host, Policy
    from tfmat.workflow import Job

# --------------------------------------------------------------------------------------------------
# `--launcher=mpirun` of `tfmat train`: the flags, what is checked before anything starts, and the supervision.

ALL_LAUNCHERS = (
    choice(
        "launcher",
        ["local", "slurm", "mpirun"],
        "where it runs: in this process; as a job of a SLURM cluster; under an mpirun that is started here, "
        "watched, and started again with what is left where ranks or machines are lost",
    ),
    *JOB,
)
MPIRUN = (
    text("hosts", None, "machines and ranks of each, as mpirun -H takes them: server1:4,server2:4"),
    whole("min_ranks", 1, "ranks without which training does not go on", 1),
    whole("restarts", 5, "starts after losses without a new checkpoint in between; with each one they count anew", 0),
    text("probe_every", "30s", "how often a machine that was lost is asked whether it is back"),
    text("wait_for_hosts", "10m", "how long to wait for machines where fewer than --min_ranks are left"),
)  # fmt: skip
_OF_MPIRUN = tuple(flag.name for flag in MPIRUN)


def wants_mpirun(flag_values: FlagValues) -> bool:
    """Whether `--launcher=mpirun` was given; InputError where its flags are mixed up with flags of a job."""
    wanted = flag_values.launcher == "mpirun"
    of_slurm = [n for n in LAUNCHER_FLAGS if n not in ("launcher", "ranks", "dry_run")]
    others, launcher = (of_slurm, "slurm") if wanted else (_OF_MPIRUN, "mpirun")
    refuse(others, flag_values, f" is for --launcher={launcher}, not {flag_values.launcher}")
    return wanted


def train_under_mpirun(flag_values: FlagValues, config: "Config", workdir: str) -> int:
    """Trains under mpirun to the end, through losses of ranks and hosts; returns the exit status.

    Raises:
      InputError: what the ranks would refuse, before any is started.
      WorkerLostError, Interrupted, KeyboardInterrupt: see `Restarts.run`.
    """
    from tfmat.launch.mpirun import Policy, count_ranks, mpirun_command
    from tfmat.launch.processes import Processes, find_processes
    from tfmat.workflow import plan_job

    hosts = _hosts(flag_values)
    policy = Policy(
        min_ranks=flag_values.min_ranks,
        restarts=flag_values.restarts,
        probe_every=_seconds(flag_values, "probe_every"),
        wait_for_hosts=_seconds(flag_values, "wait_for_hosts"),
    )
    ranks = count_ranks(hosts)
    if policy.min_ranks > ranks:
        raise InputError(
            f"--min_ranks={policy.min_ranks}, but {','.join(map(str, hosts))} are {ranks} ranks; give fewer"
        )
    if find_processes().launcher != "none":
        raise InputError(
            "--launcher=mpirun starts mpirun by itself; start this command once, without a launcher"
        )
    chosen = flag_values["backend"].present
    backend = flag_values.backend if chosen else "horovod"
    if backend == "dtensor":
        raise InputError(
            "--launcher=mpirun is for --backend=horovod and mpi: a mesh has a fixed number of devices, whoever is lost"
        )
    plan_job(
        config,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        backend=backend,
        processes=Processes(size=ranks, local_size=hosts[0].slots, launcher="mpirun"),
    )
    command = own_command("train", flag_values, left_out=(*LAUNCHER_FLAGS, *_OF_MPIRUN))
    if not chosen:
        command += (f"--backend={backend}",)
    if flag_values.dry_run:
        print(shlex.join(mpirun_command(hosts, command)))
        return 0
    return _supervised(hosts, command, policy, pathlib.Path(workdir))


def _hosts(flag_values: FlagValues) -> "tuple[Host, ...]":
    from tfmat.launch.mpirun import Host, parse_hosts

    if flag_values.hosts is not None and flag_values.ranks is not None:
        raise InputError(
            "--hosts says how many ranks each machine takes; leave out --ranks, which is for this machine alone"
        )
    if flag_values.hosts is not None:
        return parse_hosts(flag_values.hosts)
    if flag_values.ranks is None:
        raise InputError(
            "--launcher=mpirun needs --hosts=server1:4,server2:4, or --ranks=4 for this machine alone"
        )
    return (Host("localhost", flag_values.ranks),)


def _seconds(flag_values: FlagValues, name: str) -> float:
    from tfmat.config import seconds_of

    said = str(flag_values[name].value)
    seconds = seconds_of(said)
    if not seconds:
        raise InputError(f"--{name}={said} is no time; give 30s or 10m")
    return seconds


def _supervised(
    hosts: "tuple[Host, ...]", command: tuple[str, ...], policy: "Policy", folder: pathlib.Path
) -> int:
    from tfmat.launch.mpirun import Restarts, RunState, check_mpirun
    from tfmat.training.run_folder import RunFolder, Status

    check_mpirun()
    file, files = folder / "status.json", RunFolder(folder)
    status = Status()

    def state() -> RunState:
        nonlocal status
        # On a network file system a file that another machine replaces just now may not be readable for a moment.
        with contextlib.suppress(InputError):
            status = check_json(read_json(file), Status, file)
        return RunState(len(status.resumed_from_steps), status.under_way, status.ended)

    make_folder(folder)
    log = files.logger()
    return Restarts(hosts, command, policy, folder, state, files.latest_clock, log).run()


# --------------------------------------------------------------------------------------------------
# `tfmat train`.


@command(
    {
        "run": (
            *config_flags("configs/quickstart.py"),
            text("law", None, "material law, same as --config.law"),
            text("workdir", None, "folder of the run [runs/<config name>]"),
            DATA_DIR,
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
        ),
        "on several processes or a cluster": ALL_LAUNCHERS,
        "under mpirun": MPIRUN,
    },
    no_argument="; flags look like --workdir=runs/mine",
)
def train(flag_values: FlagValues, arguments: list[str]) -> int:
    """Simulates curves, trains the network on them, evaluates it, and identifies an example curve.

      tfmat train                                    # a few minutes on two cores
      tfmat train --law=voce --workdir=runs/voce     # another material law
      tfmat train --config=configs/baseline.py --config.global_batch_size=750
      tfmat train --config.train_for=10m             # as many steps as fit into ten minutes
      tfmat train --config.profile=true              # where the time of a step goes: a table, profile.json
      tfmat train --launcher=slurm --time_limit=2:00:00 --gpus=1   # as a job of a cluster; --dry_run shows it first
      tfmat train --launcher=mpirun --hosts=server1:4,server2:4    # goes on with the other where one is lost

    Data sets are made once and kept in --data_dir. A run that was interrupted goes on when the same
    command is given again; one that is done says so. Results lie in --workdir: config.json,
    status.json, metrics.jsonl, model.keras (best), final.keras, report.html, evaluation.json,
    figures/, tensorboard/, checkpoints/, log.txt.
    """
    config = read_config(flag_values)
    workdir = output_folder(flag_values)
    if wants_mpirun(flag_values):
        return train_under_mpirun(flag_values, config, workdir)
    if wants_slurm(flag_values):
        _submit_training(flag_values, config, workdir)
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


def _submit_training(flag_values: FlagValues, config: "Config", workdir: str) -> None:
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


# --------------------------------------------------------------------------------------------------
# `tfmat evaluate`.


@command(
    {
        "run": (
            text("workdir", "runs/quickstart", "folder of the run to evaluate"),
            text("data_dir", None, "folder of the data set; by default the one that the run was trained on"),
        ),
        "answer": (
            switch("reference", True, "compare with the best possible accuracy and with least squares"),
            whole("num_reference", 2000, "test curves that the reference is worked out for", 2),
            text("json", None, "file to write the numbers to, besides WORKDIR/evaluation.json"),
        ),
        "older names": (
            alias("yardstick", "reference"),
            alias("num_yardstick", "num_reference"),
        ),
    },
    no_argument="; name the run with --workdir={}",
)  # fmt: skip
def evaluate(flag_values: FlagValues, arguments: list[str]) -> None:
    """Measures how good a trained network's answers are, on noisy test curves that no training has
    seen.

      tfmat evaluate --workdir=runs/quickstart
      tfmat evaluate --workdir=runs/voce --data_dir=data/voce-1000000-1a2b3c4d --json=voce.json

    For each parameter: mean squared error of the label scaled to 0-1, mean absolute error in its
    own unit, R². For the curves: how far the re-simulated curve is from the noisy one, over its
    maximum stress and over the noise.

    For a network that gives intervals (model.uncertainty): the share of its 50, 90 and 95 %
    intervals that hold the truth. For one with a posterior (model.uncertainty=flow) also its log
    score, z-scores, contraction, and the share of its joint regions of highest density that hold
    the truth. Its calibration, too: whether the truth's ranks among its draws are evenly spread
    (simulation-based calibration), and its distance from random points (TARP).

    Then the reference, on the first --num_reference test curves: the Bayes risk, a mean squared
    error that no method can beat on average. η is how many times that error the network makes (1 is
    perfect). Classical least squares (Levenberg-Marquardt) has an η, too. Both are given for all
    curves, and by maximum strain, noise and number of points. The first time it takes seconds for
    laws of two parameters, minutes for more. Laws with memory take a second or two a record
    (--num_reference=200). The data set's folder keeps the risk. Curves whose posterior has not
    converged are left out, and counted. A posterior is compared with the exact one of the same
    curves: Pareto's k of the weights that would correct it, and the log score that it loses. The
    first 100 also tell how far means and standard deviations are off, and the accuracy of a
    classifier of both (C2ST, 0.5 is perfect). Leave all of it out with --reference=false.

    The tables are also written to evaluation.json in the run's folder, and with pictures into its
    report.html.
    """
    check_output_file("json", flag_values.json)
    if flag_values["num_reference"].present and not flag_values.reference:
        raise InputError("--num_reference is of the reference; leave it or --noreference out")
    from tfmat.workflow import evaluate_run

    num_reference = flag_values.num_reference if flag_values.reference else 0
    scores = evaluate_run(flag_values.workdir, flag_values.data_dir, num_reference)
    from tfmat.console import open_console
    from tfmat.report.pages import write_training_report
    from tfmat.report.tables import evaluation_tables

    report = write_training_report(flag_values.workdir)
    if flag_values.json is not None:
        write_json(flag_values.json, scores)
    console = open_console()
    for table in evaluation_tables(scores, bins=True):
        console.print(table)
    console.print(f"report: {report}", soft_wrap=True, markup=False)


# --------------------------------------------------------------------------------------------------
# `tfmat report`.

# For a scaling study; fields of `tfmat.scaling.study.Assumptions` have these names.
_OF_STUDIES = (
    number("price_per_hour", None, "of one worker's device, in any currency"),
    number("watts_a_worker", None, "electric power of one worker, where it was not measured"),
    number("target_val_loss", None, "accuracy up to which time and cost are counted"),
    number("network_latency", None, "seconds, of the network between nodes, where it was not measured"),
    number("network_bytes_per_second", None, "of that network"),
    text("baseline_hardware", None, "divide by the single worker of this hardware instead of the same one"),
)  # fmt: skip


@command(
    {
        "input": (text("workdir", "runs/quickstart", "folder of the run or study"),),
        "for a scaling study": _OF_STUDIES,
    },
    no_argument="; name the run with --workdir={}",
)
def report(flag_values: FlagValues, arguments: list[str]) -> None:
    """Writes the report on a run or a scaling study: one HTML page that opens offline, with a verdict
    in plain words.

      tfmat report --workdir=runs/quickstart
      tfmat report --workdir=runs/scaling --price_per_hour=2.5 --watts_a_worker=300

    The page of a run, report.html in its folder, says first how good the network is and by which
    rules. Then come its accuracy for each parameter beside the best that is possible, curves that
    are hard, and an example. At the end it says when classical fitting is the better choice, how
    the training went, and what made the run. Its pictures are also in figures/.

    `tfmat train` and `tfmat evaluate` write it by themselves. This command makes it again from the
    files in the folder, at any time, also while the run goes on, or after it was interrupted.

    The page of a study, scaling_report.html, says what several workers bought and where the time
    went, and predicts more workers. Its flags are kept in the folder for the next page.
    """
    said = given(flag_values, *(flag.name for flag in _OF_STUDIES))
    from tfmat.scaling.study import Assumptions, is_study

    if is_study(flag_values.workdir):
        from tfmat.scaling.report import write_scaling_report

        print(write_scaling_report(flag_values.workdir, Assumptions(**said))[0])
        return
    if told := [name for name, value in said.items() if value is not None]:
        raise InputError(
            f"--{told[0]} is for a scaling study, and {flag_values.workdir} is none; leave it out"
        )
    from tfmat.report.pages import write_training_report

    print(write_training_report(flag_values.workdir))


# --------------------------------------------------------------------------------------------------
# `tfmat tune`.

# _PAGE_SECONDS: after how many a page of a search is drawn again where no trial ended, for the time left.
_PAGE_SECONDS = 20.0


@command(
    {
        "search": (
            *config_flags("configs/tune.py"),
            text("workdir", "runs/tune", "folder of the search"),
            switch("status", False, "show where the search stands"),
            switch("serve", False, "with --status: a page that follows the search while it runs"),
            *PAGE_FLAGS,
            whole("max_trials", None, "trials, instead of the config's"),
            whole("num_workers", 1, "trials side by side; they share the cores (slurm: elements of the job array)", 1),
            whole("first_worker", 0, "number of the first of them; above 0 where others work already", 0),
            text("lease", "60s", "a worker on another machine that gives no sign for so long counts as dead"),
        ),
        "trials": (
            text("data_dir", "data", "of the trials: folder of data sets, or one"),
            text("backend", "single", "of the trials: single, horovod, dtensor"),
            switch("trial_reports", False, "measure each trial's network on the test curves, and write its report"),
            text("trial_launcher", "", "what starts a trial of several ranks, such as 'mpirun -np 2 -bind-to none'"),
            text(
                "trial_command", "",
                "a command instead of tfmat train; {config}, {workdir}, {seed} in it are replaced (docs/tuning.md)",
            ),
        ),
        "on a cluster": (
            *LAUNCHER,
            switch("one_job", False, "slurm: all workers in one job on one node, instead of a job array"),
        ),
    },
    no_argument="; flags look like --workdir=runs/tune",
    shows_config=False,  # a file with get_search() loads TensorFlow
)  # fmt: skip
def tune(flag_values: FlagValues, arguments: list[str]) -> None:
    """Searches hyper-parameters that suit the batch, the optimizer or the machine, and can be left
    alone over night.

      tfmat tune --config=configs/tune.py --workdir=runs/tune --num_workers=2
      tfmat tune --status --workdir=runs/tune        # trials, best, workers, time left; writes the page and the CSV
      tfmat tune --status --serve --workdir=runs/tune        # the page in the browser, which follows the search
      tfmat train --config=runs/tune/best.py         # train with what was found
      tfmat tune --config=configs/tune.py --workdir=runs/tune --max_trials=60    # a finished search, extended
      tfmat tune --config=configs/tune.py --launcher=slurm --num_workers=8 --time_limit=4:00:00

    The config file says with get_search() what is searched (docs/tuning.md). Each trial is an
    ordinary `tfmat train` in WORKDIR/trials/NUMBER/seed-0. Ctrl-C, SIGTERM and SIGUSR1 save every
    trial (exit status 75); the same command goes on, also after a kill or a power failure: no trial
    that has ended is repeated. A search that has ended does nothing. Workers on several machines
    share WORKDIR; its lock needs no flock, so NFS works from version 3 on.
    """
    of_page = [flag.name for flag in PAGE_FLAGS]
    if not flag_values.serve:
        refuse(of_page, flag_values, " is for a page that is served; add --status --serve")
    if flag_values.status:
        taken = ("status", "serve", "config", "workdir", "trust", *of_page)
        refuse_but(taken, flag_values, "--status shows the search in --workdir as it is")
        _show_search(flag_values)
        return
    if flag_values.serve:
        raise InputError("--serve shows a search that another command runs; add --status")
    check_output_folder("workdir", flag_values.workdir)
    lease = _lease(flag_values.lease)
    from tfmat.tuning.search import Options, load_search
    from tfmat.tuning.trials import run_search

    base, search = load_search(
        flag_values.config,
        overrides(flag_values),
        flag_values.max_trials,
        own_trials=bool(flag_values.trial_command),
    )
    _check_trials(flag_values, base)
    if wants_slurm(flag_values):
        _submit_search(flag_values)
        return
    if flag_values.one_job:
        raise InputError("--one_job describes a SLURM job; add --launcher=slurm")
    own = given_to(Options, flag_values, "lease", "reports")
    options = Options(lease=lease, reports=flag_values.trial_reports, **own)
    how = given(flag_values, "workdir", "num_workers", "first_worker")
    run_search(base, search, options=options, **how)


def _lease(said: str) -> float:
    from tfmat.config import seconds_of

    seconds = None
    with contextlib.suppress(InputError):
        seconds = seconds_of(said)
    if not seconds:
        raise InputError(f"--lease={said} is no time; give seconds or minutes: 60s, 5m")
    return seconds


def _check_trials(flag_values: FlagValues, base: "Config") -> None:
    """Refuses what no trial could be run with, before there is one."""
    from tfmat.launch.processes import Processes
    from tfmat.workflow import plan_job

    if flag_values.trial_command:
        of_train = ("data_dir", "backend", "trial_launcher", "trial_reports")
        why = " is of trials by tfmat train; --trial_command says all: leave it out"
        refuse(of_train, flag_values, why)
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


def _submit_search(flag_values: FlagValues) -> None:
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


def _show_search(flag_values: FlagValues) -> None:
    workdir = flag_values.workdir
    if flag_values.serve:
        _serve_search(flag_values)
        return
    from tfmat.console import open_console
    from tfmat.report.tables import tuning_tables
    from tfmat.tuning.search import read_state, summarize, trial_rows, write_results

    state = read_state(workdir)
    console = open_console()
    for table in tuning_tables(summarize(workdir, state), trial_rows(state)):
        console.print(table)
    for path in write_results(workdir):
        print(path)


def _serve_search(flag_values: FlagValues) -> None:
    from tfmat.cli.app import serve_page
    from tfmat.tuning.search import read_state, write_page

    folder = pathlib.Path(flag_values.workdir)
    page, drawn = "", (0.0, 0.0)

    def render() -> tuple[str, bool]:
        nonlocal page, drawn
        state = read_state(folder)
        now = ((folder / "search.json").stat().st_mtime, time.monotonic() // _PAGE_SECONDS)
        if now != drawn:
            page, drawn = write_page(folder, state).read_text("utf-8"), now
        return page, not state.ended

    serve_page(render, port=flag_values.port, browser=flag_values.browser)


# --------------------------------------------------------------------------------------------------
# `tfmat layouts`.

_PARTS = ("weights", "gradients", "slots")


@command(
    {
        "network and devices": (
            *config_flags("configs/quickstart.py"),
            choice(
                "backend", ("dtensor", "horovod", "mpi"), "whose devices or processes these are"
            ),
        ),
        "output": (switch("json", False, "print JSON instead of tables"),),
    },
    no_argument="; flags look like --config.mesh=batch:2,model:2",
)
def layouts(flag_values: FlagValues, arguments: list[str]) -> None:
    """Shows how a config's network would lie on a mesh of devices, in stages or over processes, and
    what is exchanged.

      tfmat layouts --config.mesh=batch:2,model:2
      tfmat layouts --config=configs/wide.py --config.mesh=model:2
      tfmat layouts --config=configs/wide.py --config.mesh=batch:4 --config.zero_stage=3 --json
      tfmat layouts --config=configs/wide.py --config.mesh=batch:2,stage:2 --config.micro_batches=8
      tfmat layouts --config=configs/wide.py --backend=mpi --config.mesh=batch:4 --config.zero_stage=2

    Nothing is trained, and the mesh may be larger than this machine. For each variable: shape,
    layout, and the bytes of weights, gradients and optimizer slots on each device. A layout names
    for each dimension the axis of the mesh that divides it, - where it is whole. Below: the
    exchanges of one training step, by arithmetic. docs/dtensor.md explains both. For a mesh with
    the axis `stage` (docs/large_networks.md): the layers of each stage, what a process holds, and
    what it sends in a step. With --backend=horovod or mpi, which share batches over as many
    processes as the axis `batch` says: the same for each process, with config.zero_stage.
    """
    config = read_config(flag_values)
    from tfmat.config import Settings
    from tfmat.workflow import Job, curve_settings

    settings = Settings.of(config)
    job = Job(settings, curve_settings(config), None, pathlib.Path())
    from tfmat.launch.processes import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    if settings.parallel.has_stages:
        _show_stages(job, flag_values.json)
        return
    if flag_values.backend != "dtensor":
        _show_processes(job, flag_values.backend, flag_values.json)
        return
    from tfmat.backends.layouts import collectives_of_step, plan_of_config
    from tfmat.backends.registry import check_config_for
    from tfmat.launch.processes import find_processes

    check_config_for("dtensor", settings, find_processes())
    plan, footprints = plan_of_config(settings, job.build_network())
    notices = list(plan.notices)
    if settings.parallel.layouts:
        notices.append(
            "the exchanges of activations are an estimate here: DTensor chooses some layouts between layers itself"
        )
    collectives = collectives_of_step(plan, config.global_batch_size)
    about: dict[str, str | int] = {"mesh": str(plan.mesh), "zero_stage": plan.zero_stage}
    devices = plan.mesh.num_devices
    title = f"mesh {plan.mesh}, {devices} device{'s' if devices > 1 else ''}"
    _show(flag_values.json, settings, title, about, footprints, collectives, notices, plan)


def _show_stages(job: "Job", as_json: bool) -> None:
    from tfmat.backends.pipeline import plan_stages
    from tfmat.backends.registry import check_config_for
    from tfmat.console import open_console, open_table
    from tfmat.launch.processes import find_processes

    # As on a machine with as many processes.
    settings = job.settings
    mesh = settings.parallel.mesh
    processes = dataclasses.replace(find_processes(), size=mesh.num_devices)
    check_config_for("mpi", settings, processes)
    plan = plan_stages(settings, job.build_network())
    if as_json:
        content = {"mesh": str(mesh), **dataclasses.asdict(plan)}
        print(json_text(content))
        return
    console = open_console(100)
    console.print(
        f"mesh {mesh}; a batch of {settings.global_batch_size} examples in {plan.micro_batches} "
        f"micro-batches of {plan.micro_batch_size}; bytes in each process:",
        markup=False,
    )
    held = (*_PARTS, "activations, gpipe", "1f1b")
    table = open_table(console, "stage", "layers", *held, right=("stage", *held))
    sent = ("stage", "messages a step", "bytes sent", "bytes of gradients summed over batch")
    exchanges = open_table(console, *sent, right=sent)
    for i, stage in enumerate(plan.stages, start=1):
        parts = (getattr(stage, part) for part in _PARTS)
        numbers = (f"{number:,}" for number in (*parts, *stage.activations.values()))
        table.add_row(str(i), f"{stage.layers[0]} to {stage.layers[-1]}", *numbers)
        exchanges.add_row(str(i), *map("{:,}".format, (stage.messages, stage.sent, stage.summed)))
    console.print(table)
    console.print(exchanges)
    console.print(
        f"bubble in theory: {100 * plan.bubble:.1f} % of a step, (stages - 1) / (micro_batches + stages - 1), where "
        "all stages take equally long",
        markup=False,
        soft_wrap=True,
    )
    for notice in plan.notices:
        console.print(f"note: {notice}", markup=False, soft_wrap=True)


def _show_processes(job: "Job", backend: str, as_json: bool) -> None:
    from tfmat.backends.registry import check_config_for
    from tfmat.backends.zero import plan_processes
    from tfmat.config import BATCH
    from tfmat.launch.processes import find_processes

    settings, options = job.settings, job.settings.parallel
    mesh = options.mesh
    workers = mesh.size(BATCH)
    if mesh.num_devices != workers:
        raise InputError(
            f"mesh {mesh}: the processes of --backend={backend} share batches, and stages; give {BATCH}:NUMBER, or "
            "use --backend=dtensor"
        )
    if options.compression not in ("none", "fp16"):
        raise InputError(
            f"compression={options.compression} is not planned, since what it sends depends on the gradients' shapes; "
            "metrics.jsonl of a run tells bytes_sent_per_step"
        )
    # As on a machine with as many processes.
    processes = dataclasses.replace(find_processes(), size=workers)
    check_config_for(backend, settings, processes)
    footprints, collectives = plan_processes(settings, job.build_network(), workers)
    notices = []
    if options.local_steps > 1:
        notices.append(f"the workers exchange once in {options.local_steps} steps")
    if options.offload != "none":
        notices.append("the slots are on the disk of each process, not in its memory")
    if settings.model.batch_normalization == "synchronized" and workers > 1:
        notices.append("the sums of batch normalisation over the processes are left out")
    about: dict[str, str | int] = {
        "backend": backend,
        "processes": workers,
        "zero_stage": options.zero_stage,
    }
    title = f"{workers} process{'es' if workers > 1 else ''} of --backend={backend}"
    _show(as_json, settings, title, about, footprints, collectives, notices)


def _show(
    as_json: bool,
    settings: "Settings",
    title: str,
    about: dict[str, str | int],
    footprints: Sequence["Footprint"],
    collectives: Sequence["Collective"],
    notices: list[str],
    plan: "Plan | None" = None,
) -> None:
    """Prints which bytes lie on a mesh (with a plan) or in processes, and which are sent."""
    from tfmat.backends.layouts import format_spec
    from tfmat.console import open_console, open_table

    if as_json:
        content = {
            **about,
            "variables": footprints,
            "collectives": [
                {**dataclasses.asdict(collective), "sent_in_ring": collective.sent_in_ring}
                for collective in collectives
            ],
            "notices": notices,
        }
        print(json_text(content))
        return
    place = "on each device" if plan else "in each process"
    console = open_console(100)
    title = f"{title}, zero_stage={about['zero_stage']}; bytes {place}:"
    console.print(title, markup=False, soft_wrap=True)
    headings = ["layout"] if plan else []
    if plan and plan.zero_stage:
        headings.append("slots' layout")
    table = open_table(console, "variable", "shape", *headings, *_PARTS, right=_PARTS)
    for footprint in footprints:
        table.add_row(
            footprint.path.removeprefix("curve_to_parameters/"),
            " × ".join(map(str, footprint.shape)) or "number",
            *[format_spec(footprint.layout), format_spec(footprint.slots_layout)][: len(headings)],
            *(f"{getattr(footprint, part):,}" for part in _PARTS),
        )
    sums = (f"{sum(getattr(footprint, part) for footprint in footprints):,}" for part in _PARTS)
    table.add_row("together", "", *[""] * len(headings), *sums)
    console.print(table)
    step = f"one step of {settings.global_batch_size} examples"
    console.print(f"\nexchanges of {step}, bytes {place}:")
    sizes = ("tensors", "bytes", "sent in a ring")
    table = open_table(console, "exchange", "over", "what", *sizes, right=sizes)
    for one in collectives:
        numbers = (f"{number:,}" for number in (one.tensors, one.bytes, one.sent_in_ring))
        table.add_row(one.kind, f"{one.axis}:{one.devices}", one.what, *numbers)
    console.print(table if collectives else "  none")
    for notice in notices:
        console.print(f"note: {notice}", markup=False, soft_wrap=True)


# --------------------------------------------------------------------------------------------------
# `tfmat horovod install`.


@command({})
def horovod(flag_values: FlagValues, arguments: list[str]) -> None:
    """Installs a Horovod that works with this environment's TensorFlow: `tfmat horovod install`.

      tfmat horovod install
      HOROVOD_GPU_OPERATIONS=NCCL tfmat horovod install

    One that is there already is used. Else Horovod 0.28.1 is built, about three minutes the first
    time; the wheel is kept in ~/.cache/tfmat, or $XDG_CACHE_HOME/tfmat. Needs Open MPI or another
    MPI with its headers, CMake and a C++ compiler. Horovod's HOROVOD_* settings are honoured.
    """
    from tfmat.launch.horovod_build import Failed, provide

    if arguments != ["install"]:
        raise InputError("write `tfmat horovod install`")
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.txt"
        log.touch()
        try:
            provide(log)
        except Failed as failure:
            if failure.status == 1:
                print(*log.read_text().splitlines()[-12:], sep="\n    ", file=sys.stderr)
            raise InputError(str(failure)) from None


# --------------------------------------------------------------------------------------------------
# `tfmat doctor`.

_COLOURS = {"ok": "green", "missing": "yellow", "failed": "red"}


@command({"output": (switch("json", False, "print JSON instead of a table"),)}, no_argument="")
def doctor(flag_values: FlagValues, arguments: list[str]) -> None:
    """Says what this machine can do: TensorFlow, GPUs, MPI, Horovod, DTensor, SLURM, CalculiX; and
    how to get the rest.

      tfmat doctor
      tfmat doctor --json

    Everything is tried: two ranks of Horovod and two virtual devices of DTensor really add numbers,
    and SLURM's controller is asked. Takes about ten seconds. The exit status is 0 also where parts
    are missing: a run needs only what it uses.
    """
    from rich.console import Console
    from rich.text import Text

    from tfmat.console import open_console, open_table
    from tfmat.launch.machine import examine

    with Console(stderr=True).status("trying TensorFlow, MPI, Horovod, DTensor and SLURM"):
        findings = examine()
    if flag_values.json:
        print(json_text({"tfmat": tfmat.__version__, "findings": findings}))
        return
    console = open_console(100)
    table = open_table(console, "", "", f"tfmat {tfmat.__version__} on this machine")
    for finding in findings:
        text = Text(finding.detail)
        if finding.remedy:
            text.append(f"\nget it: {finding.remedy}", style="bold")
        table.add_row(finding.part, Text(finding.state, style=_COLOURS[finding.state]), text)
    console.print(table)
