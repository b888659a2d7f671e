"""Jobs of SLURM: what a cluster offers, and what becomes of a job."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from tfmat.errors import InputError, nearest

# --------------------------------------------------------------------------------------------------
# What a cluster wants of every job, read from one small file that a user or an administrator writes once.


LAUNCHERS = ("srun", "mpirun")
EXAMPLE = "docs/slurm.md has one with all keys"


@dataclasses.dataclass(frozen=True)
class Site:
    """The keys of a site file, all of them optional.

    Attributes:
      modules: loaded at the start of each job, in this order.
      setup: lines of shell, run after that.
      container: command line in front of every rank's own, say `apptainer exec --nv tfmat.sif`.
      python: the interpreter that has tfmat on the nodes; None for the one that submits.
      environment: variables of every rank.
      offline: the nodes have no network; nothing then waits for one.
      local_disk: a folder on each node's own disk, to which the data set is copied first; may hold `$TMPDIR`.
      memory: of a node, as `--mem` takes it ("16G"; "0" for all of it).
      cores_per_node, gpus_per_node: of the nodes that jobs run on, for whoever asks for GPUs and no processors.
      account, partition: where the command line gives none.
      options: further options of sbatch, say `--qos=long`.
      launcher: what starts several ranks: "srun" or "mpirun".
      mpi: the kind of MPI that srun prepares, see `srun --mpi=list`.
    """

    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    container: str | None = None
    python: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    offline: bool = False
    local_disk: str | None = None
    memory: str | None = None
    cores_per_node: int | None = None
    gpus_per_node: int | None = None
    account: str | None = None
    partition: str | None = None
    options: tuple[str, ...] = ()
    launcher: str = "srun"
    mpi: str = "pmix"


def read_site(path: str | os.PathLike | None = None) -> Site:
    """The site of a TOML file; without one, of `~/.config/tfmat/site.toml`; without that, one that wants nothing.

    Raises:
      InputError: the file is missing or no TOML, or has a key or a value that a site cannot have.
    """
    file = pathlib.Path(path) if path is not None else _default_path()
    if path is None and not file.exists():
        return Site()
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"site file {file}: {error.strerror}; {EXAMPLE}") from error
    except ValueError as error:
        raise InputError(f"site file {file} is not valid TOML ({error}); {EXAMPLE}") from error
    hints = typing.get_type_hints(Site)
    for key in content:
        if key not in hints:
            raise InputError(f"site file {file}: unknown key '{key}'{nearest(key, hints)}")
    site = Site(**{key: _value(file, key, value, hints[key]) for key, value in content.items()})
    if site.launcher not in LAUNCHERS:
        raise InputError(
            f"site file {file}: launcher is '{site.launcher}'; valid: {', '.join(LAUNCHERS)}"
        )
    if site.local_disk and set('"`\\\n') & set(site.local_disk):
        raise InputError(f"site file {file}: local_disk is '{site.local_disk}'; give a plain path")
    return site


def _default_path() -> pathlib.Path:
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return pathlib.Path(home).expanduser() / "tfmat" / "site.toml"


def _value(file: pathlib.Path, key: str, value: Any, hint: Any) -> Any:
    """The value in the type of its key."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if tuple[str, ...] in kinds and isinstance(value, list) and all(map(_is_text, value)):
        return tuple(value)
    if bool in kinds and isinstance(value, bool):
        return value
    if int in kinds and isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if str in kinds and _is_text(value):
        return value
    if hint == Mapping[str, str] and isinstance(value, dict):
        # NAME = 4 is as clear as NAME = "4".
        plain = (str, int, float)
        if all(
            name.isidentifier() and isinstance(each, plain) and not isinstance(each, bool)
            for name, each in value.items()
        ):
            return {name: str(each) for name, each in value.items()}
    wanted = {
        tuple[str, ...]: 'a list of texts, ["…", "…"]',
        bool: "true or false",
        int: "a whole number from 1",
        str: 'a text, "…"',
        Mapping[str, str]: "a table of NAME = VALUE",
    }[kinds[0]]
    raise InputError(f"site file {file}: {key} is {value!r}; give {wanted}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# --------------------------------------------------------------------------------------------------
# What one does with a SLURM job: submit it, watch it, cancel it.


# Seconds. SLURM's clients go on trying for about a minute where no controller answers.
_PATIENCE = 60.0
# A job in one of these states is over.
ENDED = {
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED",
    "REVOKED", "UNKNOWN",
}  # fmt: skip
_GET_SLURM = "use a login node of a cluster, or try it on this machine: tools/slurm start"


def submit(script: pathlib.Path, elements: Iterable[int] = ()) -> str:
    """Hands a job's script to SLURM; returns the job's number.

    Args:
      script: path of job.sh.
      elements: of an array, where not all that the script names.

    Raises:
      InputError: there is no SLURM, or it refuses; one line.
    """
    options = re.findall(r"^#SBATCH --([a-z-]+)", script.read_text("utf-8"), re.MULTILINE)
    only = ",".join(map(str, elements))
    flags = [f"--array={only}"] if only else []
    said = _client(["sbatch", "--parsable", *flags, str(script)], _environment(options))
    return said.strip().split(";")[0]


def job_states(job_ids: Iterable[str]) -> dict[str, str]:
    """SLURM's word for each job: PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, …

    An array is answered by its elements (`12_0`, `12_1`, …); a job that SLURM has forgotten (it remembers finished ones
    for five minutes, as a rule) by UNKNOWN.

    Raises:
      InputError: there is no SLURM, or its controller does not answer in time.
    """
    job_ids = list(job_ids)
    states: dict[str, str] = {}
    for job_id in job_ids:
        found = _states_of(job_id)
        states |= found or {job_id: "UNKNOWN"}
    return states


def cancel(job_id: str) -> None:
    """Takes a job out of the queue, or ends it; one that has ended already is left alone.

    Raises:
      InputError: there is no SLURM, or its controller does not answer in time.
    """
    _client(["scancel", job_id])


def with_size_of_nodes(site: Site, partition: str | None) -> Site:
    """The site with `cores_per_node` and `gpus_per_node` as SLURM says them of the partition's nodes with GPUs.

    The site as it is where SLURM does not answer, or where such nodes differ.
    """
    where = [f"--partition={partition}"] if partition else []
    try:
        said = _client(["sinfo", "--noheader", "--format=%c %G", *where])
    except InputError:
        return site
    # "64 gpu:a100:4(S:0-1)"; without GPUs "64 (null)".
    found = re.findall(r"^([0-9]+)\+? gpu:(?:[a-z][\w.]*:)?([0-9]+)", said, re.MULTILINE)
    if len(set(found)) != 1:
        return site
    cores, gpus = map(int, found[0])
    return dataclasses.replace(
        site,
        cores_per_node=site.cores_per_node or cores,
        gpus_per_node=site.gpus_per_node or gpus,
    )


def _states_of(job_id: str) -> dict[str, str]:
    try:
        said = _client(
            [
                "squeue",
                "--noheader",
                "--array",
                "--states=all",
                "--format=%i %T",
                f"--jobs={job_id}",
            ]
        )
    except InputError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    return dict(line.split(maxsplit=1) for line in said.splitlines() if line.strip())


def _client(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What one of SLURM's programs prints."""
    if shutil.which(command[0]) is None:
        raise InputError(f"there is no {command[0]} on this machine; {_GET_SLURM}")
    try:
        done = subprocess.run(
            command, env=environment, timeout=_PATIENCE,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"{command[0]}: SLURM's controller did not answer within {_PATIENCE:.0f} s; see `sinfo`"
        ) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = "; ".join(lines) or f"ended with status {done.returncode}"
        if "configuration source" in reason:
            raise InputError(
                f"{command[0]}: no cluster is set up here; set SLURM_CONF to its slurm.conf, or {_GET_SLURM}"
            )
        raise InputError(f"{command[0]} refuses: {reason.removeprefix(f'{command[0]}: error: ')}")
    return done.stdout


def _environment(options: Iterable[str]) -> dict[str, str]:
    """This process's environment without what would change the job behind its script's back.

    SBATCH_* variables win over the script's own lines, and the SLURM_* of a job from which another one is submitted
    would be taken for those of the new one.
    """
    replaced = {f"SBATCH_{option.upper().replace('-', '_')}" for option in options}
    kept = {"SLURM_CONF", "SLURM_CLUSTERS"}
    return {
        name: value
        for name, value in os.environ.items()
        if name not in replaced and (not name.startswith("SLURM_") or name in kept)
    }
