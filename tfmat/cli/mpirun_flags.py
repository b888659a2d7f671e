"""`--launcher=mpirun` of `tfmat train`: the flags, what is checked before anything starts, and the supervision."""

import contextlib
import pathlib
import shlex
from typing import Any

from absl.flags import FlagValues

from tfmat.cli.flags import choice, text, whole
from tfmat.cli.launcher_flags import JOB, LAUNCHER_FLAGS, own_command
from tfmat.config import Config, seconds_of
from tfmat.errors import InputError
from tfmat.launch.restarts import (
    Host,
    Policy,
    Progress,
    Restarts,
    RunState,
    count_ranks,
    parse_hosts,
)

_TEXTS = {
    "hosts": (None, "machines and ranks of each, as mpirun -H takes them: server1:4,server2:4"),
    "probe_every": ("30s", "how often a machine that was lost is asked whether it is back"),
    "wait_for_hosts": (
        "10m",
        "how long to wait for machines where fewer than --min_ranks are left",
    ),
}
_NUMBERS = {
    "min_ranks": (1, 1, "ranks without which training does not go on"),
    "restarts": (5, 0, "starts after losses without a new checkpoint in between; with each one they count anew"),
}  # fmt: skip
_OWN = (*_TEXTS, *_NUMBERS)
MPIRUN = (
    choice(
        "launcher",
        ["local", "slurm", "mpirun"],
        "where it runs: in this process; as a job of a SLURM cluster; under an mpirun that is started here, watched, "
        "and started again with what is left where ranks or machines are lost",
    ),
    *JOB,
    *(text(name, default, meaning) for name, (default, meaning) in _TEXTS.items()),
    *(whole(name, default, meaning, least) for name, (default, least, meaning) in _NUMBERS.items()),
)


def wants_mpirun(flag_values: FlagValues) -> bool:
    """Whether `--launcher=mpirun` was given; InputError where its flags and those of a job are mixed up."""
    wanted = flag_values.launcher == "mpirun"
    with_both = ("launcher", "ranks", "dry_run")
    for name in [name for name in LAUNCHER_FLAGS if name not in with_both] if wanted else _OWN:
        if flag_values[name].present:
            launcher = "slurm" if wanted else "mpirun"
            raise InputError(f"--{name} is for --launcher={launcher}, not {flag_values.launcher}")
    return wanted


def train_under_mpirun(flag_values: FlagValues, config: Config, workdir: str) -> int:
    """Trains under mpirun to the end, through losses of ranks and hosts; returns the exit status.

    Raises:
      InputError: what the ranks would refuse, before any is started.
      WorkerLostError, Interrupted, KeyboardInterrupt: see `Restarts.run`.
    """
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
    command = own_command("train", flag_values, left_out=(*LAUNCHER_FLAGS, *_OWN))
    if not given:
        command += (f"--backend={backend}",)
    if flag_values.dry_run:
        from tfmat.launch.restarts import mpirun_command

        print(shlex.join(mpirun_command(hosts, command)))
        return 0
    return _supervised(hosts, command, policy, pathlib.Path(workdir))


def _hosts(flag_values: FlagValues) -> tuple[Host, ...]:
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
    said = str(flag_values[name].value)
    seconds = seconds_of(said)
    if not seconds:
        raise InputError(f"--{name}={said} is no time; give 30s or 10m")
    return seconds


def _supervised(
    hosts: tuple[Host, ...], command: tuple[str, ...], policy: Policy, folder: pathlib.Path
) -> int:
    from tfmat.files import make_folder, read_json
    from tfmat.training.checkpoints import CheckpointFolder
    from tfmat.training.run_folder import ENDED, folder_logger

    checkpoints, file = CheckpointFolder(folder / "checkpoints"), folder / "status.json"
    status: dict[str, Any] = {}

    def state() -> RunState:
        nonlocal status
        # On a network file system a file that another machine replaces just now may not be readable for a moment.
        with contextlib.suppress(InputError):
            status = read_json(file)
        resumed = status.get("resumed_from_steps", [])
        return RunState(len(resumed), status.get("under_way"), status.get("state") in ENDED)

    make_folder(folder)
    progress = Progress(state, checkpoints.latest_clock)
    return Restarts(hosts, command, policy, folder, progress, folder_logger(folder)).run()
