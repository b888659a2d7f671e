"""Where commands run: `--launcher` with its flags, as a SLURM job or under mpirun; and `tfmat doctor`."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Collection
from typing import TYPE_CHECKING, NotRequired, TypedDict

from absl.flags import FlagValues

import tfmat
from tfmat.cli.flags import choice, command, overrides, repeated, switch, text, whole
from tfmat.errors import InputError
from tfmat.files import check_json, make_folder, read_json, write_json, write_text

if TYPE_CHECKING:
    from tfmat.config import Config
    from tfmat.launch.machine import Finding
    from tfmat.launch.mpirun import Host, Policy
    from tfmat.launch.slurm import Site, SlurmJob

# --------------------------------------------------------------------------------------------------
# `--launcher=slurm`: the flags, the job that they describe, and handing it to SLURM.

_JOB_FILE = "job.json"
_JOB = (
    text(
        "time_limit", None,
        "of the job: minutes (90), hours (1:30:00) or days (2-12); shortly before it the job saves and goes into the "
        "queue again",
    ),
    whole("nodes", None, "number of nodes [as many as the GPUs fill, or SLURM's choice]", 1),
    whole("ranks", None, "number of processes [with backends of several processes one for each GPU, else 1]", 1),
    whole("cpus_per_rank", None, "processors of each process [with GPUs, their share of the node's]", 1),
    whole("gpus", None, "GPUs of the whole job, taken node by node", 0),
    text("account", None, "account that pays for the job"),
    text("partition", None, "partition (queue) of the cluster"),
    switch("exclusive", False, "share no node"),
    repeated("sbatch", "KEY=VALUE: a further option of sbatch, such as qos=long or mail-type=END; may be repeated"),
    text("site", None, "file on what a cluster wants of every job (docs/slurm.md) [~/.config/tfmat/site.toml]"),
    switch("dry_run", False, "print the job instead of submitting it"),
)  # fmt: skip
_JOB_FLAGS = tuple(flag.name for flag in _JOB)
LAUNCHER_FLAGS = ("launcher", *_JOB_FLAGS)
LAUNCHER = (
    choice("launcher", ["local", "slurm"], "where it runs: in this process, or as a job of a SLURM cluster"),
    *_JOB,
)  # fmt: skip


def wants_slurm(flag_values: FlagValues) -> bool:
    """Whether `--launcher=slurm` was given; InputError where a flag of a job was given without it."""
    if flag_values.launcher == "slurm":
        return True
    for name in _JOB_FLAGS:
        if flag_values[name].present:
            raise InputError(f"--{name} describes a SLURM job; add --launcher=slurm")
    return False


def number_of_ranks(flag_values: FlagValues, backend: str) -> int:
    """`--ranks`, or one a GPU where the backend has a process for each."""
    if flag_values.ranks is not None:
        return int(flag_values.ranks)
    return 1 if backend in ("single", "dtensor") else max(1, flag_values.gpus or 0)


def job_of_flags(
    flag_values: FlagValues,
    *,
    name: str,
    folder: pathlib.Path,
    site: "Site",
    command: tuple[str, ...],
    ranks: int = 1,
    data: pathlib.Path | None = None,
    array: int | None = None,
    starts_ranks: bool = False,
) -> "SlurmJob":
    """The job of the command line's flags; it starts where this command was started."""
    from tfmat.launch.slurm import SlurmJob, sbatch_options

    return SlurmJob(
        name=name,
        command=command,
        folder=folder.resolve(),
        start_in=pathlib.Path.cwd(),
        data=data.resolve() if data else None,
        ranks=ranks,
        starts_ranks=starts_ranks,
        nodes=flag_values.nodes,
        cpus_per_rank=flag_values.cpus_per_rank,
        gpus=flag_values.gpus or 0,
        account=flag_values.account,
        partition=flag_values.partition,
        time_limit=flag_values.time_limit,
        exclusive=flag_values.exclusive,
        options=sbatch_options(flag_values.sbatch),
        array=array,
    )


def site_of_flags(flag_values: FlagValues) -> "Site":
    """The site of `--site`, or the user's own; what it does not say about nodes with GPUs is asked of SLURM."""
    from tfmat.launch.slurm import read_site, with_size_of_nodes

    site = read_site(flag_values.site)
    if flag_values.gpus and not (site.cores_per_node and site.gpus_per_node):
        return with_size_of_nodes(site, flag_values.partition or site.partition)
    return site


def own_command(
    command: str,
    flag_values: FlagValues,
    python: str | None = None,
    left_out: Collection[str] = LAUNCHER_FLAGS,
) -> tuple[str, ...]:
    """`tfmat COMMAND` with the flags of this command line, without those that describe the job."""
    arguments = []
    for name in sorted(flag_values):
        if not flag_values[name].present or name in left_out:
            continue
        if name == "config_override":
            arguments += [f"--config.{key}={value}" for key, value in overrides(flag_values)]
        else:
            arguments.append(flag_values[name].serialize())
    return (python or sys.executable, "-P", "-m", "tfmat", command, *arguments)


def launch(job: "SlurmJob", site: "Site", *, dry_run: bool) -> None:
    """Writes job.sh and submits it, and says how to watch it; with `dry_run` it prints the script only.

    Where some elements of an array wait or run already, the others are submitted.

    Raises:
      InputError: no cluster can run the job, SLURM refuses it, or all of it waits or runs in this folder already.
    """
    from tfmat.launch.slurm import job_script, submit

    script = job_script(job, site)
    if dry_run:
        print(script, end="")
        return
    living = _living(job.folder)
    elements = _missing_elements(job, living)
    make_folder(job.folder)
    path = job.folder / "job.sh"
    write_text(path, script)
    job_id = submit(path, elements)
    others = sorted({state.partition("_")[0] for state in living})
    write_json(job.folder / _JOB_FILE, {"format": 1, "job": job_id, "others": others})
    first = elements[0] if elements else 0
    output = f"job-{job_id}.out" if job.array is None else f"job-{job_id}_{first}.out"
    print(f"job {job_id}: {job.name}, submitted with {os.path.relpath(path)}")
    if elements:
        again = ", ".join(map(str, elements))
        print(f"  element {again} of {job.array} starts again; {', '.join(sorted(living))} go on")
    print(f"  watch   squeue --jobs={job_id}; tail -F {os.path.relpath(job.folder / output)}")
    print(f"  cancel  scancel {job_id}     (the same command then goes on where it was)")


class _JobRecord(TypedDict):
    """job.json: the last job of a folder, and those before it of which elements lived when it was submitted."""

    job: str
    others: NotRequired[list[str]]


def _living(folder: pathlib.Path) -> dict[str, str]:
    """Job or element (`12`, `12_0`) of this folder -> its state, of those that are not over."""
    from tfmat.launch.slurm import ENDED, job_states

    path = folder / _JOB_FILE
    if not path.exists():
        return {}
    record: _JobRecord = check_json(read_json(path), _JobRecord, path)
    states = job_states([record["job"], *record.get("others", [])])
    return {job: state for job, state in states.items() if state not in ENDED}


def _missing_elements(job: "SlurmJob", living: dict[str, str]) -> list[int]:
    """The elements of an array of which no job waits or runs; [] where none lives, so that all are submitted.

    Raises:
      InputError: nothing is missing, or the folder's job is no array.
    """
    if not living:
        return []
    numbers = {int(job_id.partition("_")[2] or -1) for job_id in living}
    missing = [] if job.array is None or -1 in numbers else [
        number for number in range(job.array) if number not in numbers
    ]  # fmt: skip
    if missing:
        return missing
    job_id, state = next(iter(living.items()))
    raise InputError(
        f"job {job_id} is {state} in {os.path.relpath(job.folder)} already; watch it with squeue, or end it first: "
        f"scancel {' '.join(sorted({each.partition('_')[0] for each in living}))}"
    )


# --------------------------------------------------------------------------------------------------
# `--launcher=mpirun` of `tfmat train`: the flags, what is checked before anything starts, and the supervision.

ALL_LAUNCHERS = (
    choice(
        "launcher",
        ["local", "slurm", "mpirun"],
        "where it runs: in this process; as a job of a SLURM cluster; under an mpirun that is started here, "
        "watched, and started again with what is left where ranks or machines are lost",
    ),
    *_JOB,
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
    with_both = ("launcher", "ranks", "dry_run")
    for name in (
        [name for name in LAUNCHER_FLAGS if name not in with_both] if wanted else _OF_MPIRUN
    ):
        if flag_values[name].present:
            launcher = "slurm" if wanted else "mpirun"
            raise InputError(f"--{name} is for --launcher={launcher}, not {flag_values.launcher}")
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
    given = flag_values["backend"].present
    backend = flag_values.backend if given else "horovod"
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
    if not given:
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
# `tfmat horovod install`.


@command({})
def horovod(flag_values: FlagValues, arguments: list[str]) -> int:
    """Installs a Horovod that works with this environment's TensorFlow: `tfmat horovod install`.

    One that is there already is used. Else Horovod 0.28.1 is built, about three minutes the first
    time; the wheel is kept in ~/.cache/tfmat, or $XDG_CACHE_HOME/tfmat. Needs Open MPI or another
    MPI with its headers, CMake and a C++ compiler. Horovod's HOROVOD_* settings are honoured.

    Examples:
      tfmat horovod install
      HOROVOD_GPU_OPERATIONS=NCCL tfmat horovod install
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
    return 0


# --------------------------------------------------------------------------------------------------
# `tfmat doctor`.

_COLOURS = {"ok": "green", "missing": "yellow", "failed": "red"}


@command({"output": (switch("json", False, "print JSON instead of a table"),)}, no_argument="")
def doctor(flag_values: FlagValues, arguments: list[str]) -> int:
    """Says what this machine can do: TensorFlow, GPUs, MPI, Horovod, DTensor, SLURM, CalculiX; and
    how to get the rest.

    Everything is tried: two ranks of Horovod and two virtual devices of DTensor really add numbers,
    and SLURM's controller is asked. Takes about ten seconds. The exit status is 0 also where parts
    are missing: a run needs only what it uses.

    Examples:
      tfmat doctor
      tfmat doctor --json
    """
    from rich.console import Console

    from tfmat.launch.machine import examine

    with Console(stderr=True).status("trying TensorFlow, MPI, Horovod, DTensor and SLURM"):
        findings = examine()
    if flag_values.json:
        content = {
            "tfmat": tfmat.__version__,
            "findings": [dataclasses.asdict(f) for f in findings],
        }
        print(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        print_findings(findings)
    return 0


def print_findings(findings: list["Finding"]) -> None:
    """Prints the table: part, state, details, and below them how to get what is missing."""
    from rich.text import Text

    from tfmat.console import open_console, open_table

    console = open_console(100)
    table = open_table(console, "", "", f"tfmat {tfmat.__version__} on this machine")
    for finding in findings:
        text = Text(finding.detail)
        if finding.remedy:
            text.append(f"\nget it: {finding.remedy}", style="bold")
        table.add_row(finding.part, Text(finding.state, style=_COLOURS[finding.state]), text)
    console.print(table)
