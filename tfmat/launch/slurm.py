"""Jobs of SLURM: what a cluster offers, a job's script, and what becomes of a job."""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from tfmat.errors import InputError, nearest

# --------------------------------------------------------------------------------------------------
# Requirements of a cluster for every job, read from one small file that a user or an administrator writes once.


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
    """The site of a TOML file, by default `~/.config/tfmat/site.toml`; without any, a site that wants nothing.

    Raises:
      InputError: the file is missing or no TOML, or has a key or a value that a site cannot have.
    """
    home = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    file = home / "tfmat" / "site.toml" if path is None else pathlib.Path(path)
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
# Handling of a SLURM job: submit it, watch it, cancel it.


# Seconds. SLURM's clients go on trying for about a minute where no controller answers.
_PATIENCE = 60.0
# A job in one of these states is over.
ENDED = {
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED",
    "REVOKED", "UNKNOWN",
}  # fmt: skip
_GET_SLURM = "use a login node of a cluster, or try it on this machine: tools/slurm start"


def submit(script: pathlib.Path, elements: Iterable[int] = ()) -> str:
    """Hands a job's script to SLURM, or some elements of its array; returns the job's number.

    InputError where there is no SLURM, or it refuses; one line.
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
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T"]
    states: dict[str, str] = {}
    for job_id in job_ids:
        try:
            lines = _client([*command, f"--jobs={job_id}"]).splitlines()
        except InputError as error:
            if "Invalid job id" not in str(error):
                raise
            lines = []
        found = dict(line.split(maxsplit=1) for line in lines if line.strip())
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

    The site is unchanged where SLURM does not answer, or where such nodes differ.
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


def _client(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """The output of one of SLURM's programs."""
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

    SBATCH_* variables win over the script's own lines. The SLURM_* variables of a job from which another one is
    submitted would be taken for the new job's.
    """
    replaced = {f"SBATCH_{option.upper().replace('-', '_')}" for option in options}
    kept = {"SLURM_CONF", "SLURM_CLUSTERS"}
    return {
        name: value
        for name, value in os.environ.items()
        if name not in replaced and (not name.startswith("SLURM_") or name in kept)
    }


# --------------------------------------------------------------------------------------------------
# One SLURM job, and the text of its script as a pure function of the job and the site.
#
# The script ends in order before the time limit: SLURM sends USR1 to its shell, which hands it on to the ranks; they
# save and end with status 75; then the job is put into the queue again, under the same number, and goes on from there.


ARRAY_INDEX = "{array_index}"
# How long before the time limit a job is asked to save; less where the limit itself is short.
_SIGNAL_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class SlurmJob:
    """A job: its command, and what it asks for.

    Attributes:
      name: in the queue.
      command: one rank's command line; in an array, `{array_index}` in it stands for the element, from 0.
      folder: of job.sh and of the job's output, `job-<number>.out`; absolute.
      start_in: folder in which the command starts; None for that from which the job is submitted.
      data: a data set's folder, copied to each node's own disk where the site has `local_disk`; the ranks find the copy
        by TFMAT_LOCAL_DATA.
      ranks: processes; several are started by srun or mpirun, as the site says.
      starts_ranks: the command itself starts its ranks with srun or mpirun; it runs once, on the first node.
      nodes: None for as many as the GPUs need, or for SLURM's choice.
      cpus_per_rank: None for the share of a node's processors that its ranks' GPUs have of all its GPUs.
      gpus: of the whole job; on as few nodes as have them, the same number on each.
      account, partition: None for the site's.
      time_limit: as sbatch takes it: minutes, H:MM:SS, D-HH.
      exclusive: no other job on these nodes.
      options: further options of sbatch, name -> value ("" for one without), which win over the site's.
      array: number of elements; each is a job of this size.
      requeue: whether the job goes on by itself after a lost node, and after the time limit.
    """

    name: str
    command: tuple[str, ...]
    folder: pathlib.Path
    start_in: pathlib.Path | None = None
    data: pathlib.Path | None = None
    ranks: int = 1
    starts_ranks: bool = False
    nodes: int | None = None
    cpus_per_rank: int | None = None
    gpus: int = 0
    account: str | None = None
    partition: str | None = None
    time_limit: str | None = None
    exclusive: bool = False
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    array: int | None = None
    requeue: bool = True

    @property
    def gpus_per_node(self) -> int:
        """Where the number of nodes is known."""
        return self.gpus // (self.nodes or 1)


def job_script(job: SlurmJob, site: Site = Site()) -> str:
    """The text of job.sh. Pure: the same job and site give the same text.

    Raises:
      InputError: a job that no cluster can run, in one line.
    """
    job = _placed(job, site)
    requeue, script = "yes" if job.requeue else "no", shlex.quote(str(job.folder / "job.sh"))
    # The last element of an array has the number of the whole array: to requeue that would requeue all elements.
    name = "$SLURM_JOB_ID" if job.array is None else "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
    parts = [
        "#!/bin/bash",
        *_directives(job, site),
        "",
        _FORGET_OUTER_LAUNCHERS,
        _TAKE_SIGNALS,
        *_preparation(site),
        *_staging(job, site),
        "",
        _RUN.format(
            command=_command_line(job, site),
            requeue=requeue,
            script=script,
            job=name,
            element="" if job.array is None else "--array=$SLURM_ARRAY_TASK_ID ",
            lost=""
            if job.array is None
            else _LOST.format(requeue=requeue, script=script, job=name),
        ),
    ]
    return "\n".join(parts)


def _placed(job: SlurmJob, site: Site) -> SlurmJob:
    """The job with its nodes and with the processors of each rank, where they are not SLURM's choice."""
    if job.ranks < 1 or (job.nodes or 1) < 1 or job.gpus < 0:
        raise InputError(f"ranks={job.ranks}, nodes={job.nodes}, gpus={job.gpus}: too few")
    if job.gpus and job.nodes is None:
        # Node by node: the next one is begun when this one's are all taken.
        job = dataclasses.replace(job, nodes=-(-job.gpus // (site.gpus_per_node or job.gpus)))
    nodes, on_each = job.nodes, job.gpus_per_node
    if on_each * (nodes or 1) != job.gpus or on_each > (site.gpus_per_node or job.gpus):
        of_each = f" of {site.gpus_per_node} GPUs" if site.gpus_per_node else ""
        raise InputError(
            f"gpus={job.gpus} cannot be spread evenly over {nodes} nodes{of_each}; change gpus or nodes"
        )
    if job.ranks < (nodes or 1):
        raise InputError(f"nodes={nodes} are more than ranks={job.ranks}; some would do nothing")
    ranks_per_node = -(-job.ranks // (nodes or 1))
    cpus = job.cpus_per_rank
    if cpus is None and site.cores_per_node and on_each and site.gpus_per_node:
        share = site.cores_per_node * on_each // site.gpus_per_node
        cpus = max(1, share // ranks_per_node)
    elif cpus is None and site.cores_per_node and job.exclusive and nodes:
        cpus = max(1, site.cores_per_node // ranks_per_node)
    return dataclasses.replace(job, cpus_per_rank=cpus)


def _directives(job: SlurmJob, site: Site) -> list[str]:
    """The #SBATCH lines."""
    output = "job-%j.out" if job.array is None else "job-%A_%a.out"
    limit = limit_seconds(job.time_limit)
    on_each, rest = divmod(job.ranks, job.nodes or 1)
    options = {
        "job-name": job.name,
        "chdir": job.start_in,
        # % stands for itself when it is doubled.
        "output": f"{str(job.folder).replace('%', '%%')}/{output}",
        "open-mode": "append",
        "account": job.account or site.account,
        "partition": job.partition or site.partition,
        "nodes": job.nodes,
        "ntasks": job.ranks,
        "ntasks-per-node": on_each if job.nodes and not rest else None,
        "cpus-per-task": job.cpus_per_rank,
        "gres": f"gpu:{job.gpus_per_node}" if job.gpus else None,
        "mem": site.memory,
        "exclusive": "" if job.exclusive else None,
        "time": job.time_limit,
        "array": f"0-{job.array - 1}" if job.array else None,
        "requeue" if job.requeue else "no-requeue": "",
        # To the batch shell alone (B:), which hands it on.
        "signal": limit and f"B:USR1@{min(_SIGNAL_SECONDS, max(1, limit // 4))}",
        **job.options,
    }
    lines = []
    for name, value in options.items():
        if value is not None:
            lines.append(f"#SBATCH --{name}" + (f"={_quoted(str(value))}" if value != "" else ""))
    given = [f"--{name}" for name in job.options]
    site_options = [each for each in site.options if re.split("[= ]", each)[0] not in given]
    return lines + [f"#SBATCH {option}" for option in site_options]


# Options of sbatch that flags of tfmat say, and those that a job which saves and goes on by itself stands on.
_OF_FLAGS = {
    "time": "time_limit", "nodes": "nodes", "ntasks": "ranks", "cpus-per-task": "cpus_per_rank", "gres": "gpus",
    "gpus": "gpus", "account": "account", "partition": "partition", "exclusive": "exclusive",
}  # fmt: skip
_OWN = (
    "array", "chdir", "ntasks-per-node", "open-mode", "output", "requeue", "no-requeue", "signal", "wrap",
)  # fmt: skip


def sbatch_options(texts: Iterable[str]) -> dict[str, str]:
    """Options of sbatch, from `KEY=VALUE`, or `KEY` for one without a value.

    Raises:
      InputError: no option, given twice, or one that a flag of tfmat or the job itself says.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not re.fullmatch("[a-z][a-z-]+", key) or (equals and not value):
            raise InputError(f"--sbatch={text}: give an option of sbatch, such as qos=long")
        if key in _OF_FLAGS:
            raise InputError(f"--sbatch={text}: use --{_OF_FLAGS[key]}")
        if key in _OWN:
            raise InputError(
                f"--sbatch={text}: tfmat sets {key} itself, so that the job can go on; leave it out"
            )
        if key in found:
            raise InputError(f"--sbatch={text}: {key} is given twice")
        found[key] = value
    return found


def _quoted(value: str) -> str:
    """A value as sbatch reads it in a script: in quotes where there is a space."""
    if set('"\\\n') & set(value):
        raise InputError(f'{value!r}: SLURM takes no ", no \\ and no line break in names')
    return value if re.fullmatch(r"[\w./:@%,=+\-]+", value) else f'"{value}"'


def limit_seconds(time_limit: str | None) -> int | None:
    """Seconds of a time limit in one of sbatch's forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None for none."""
    if time_limit is None:
        return None
    days, dash, rest = time_limit.rpartition("-")
    parts = rest.split(":")
    if (
        not all(re.fullmatch("[0-9]{1,6}", part) for part in [*parts, days or "0"])
        or len(parts) > 3
    ):
        raise InputError(
            f"time limit '{time_limit}': give minutes (90), hours (1:30:00) or days (2-12)"
        )
    numbers = list(map(int, parts))
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, minutes, seconds = [[0, *numbers, 0], [0, *numbers], numbers][len(numbers) - 1]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    if not total:
        raise InputError(f"time limit '{time_limit}' is no time at all; give minutes (90)")
    return total


def _preparation(site: Site) -> list[str]:
    lines = [f"module load {shlex.quote(module)}" for module in site.modules]
    lines += site.setup
    # Google's libraries look for a metadata server, and pip for an index, until they give up.
    offline = {"NO_GCE_CHECK": "true", "PIP_NO_INDEX": "1"} if site.offline else {}
    for name, value in {**offline, **site.environment}.items():
        lines.append(f"export {name}={shlex.quote(value)}")
    return ["", *lines] if lines else []


def _staging(job: SlurmJob, site: Site) -> list[str]:
    if job.data is None or site.local_disk is None:
        return []
    on_each = "srun --mpi=none --ntasks=$SLURM_NNODES --ntasks-per-node=1 --cpus-per-task=1 "
    text = _STAGE.format(
        data=shlex.quote(str(job.data)),
        disk=site.local_disk,
        on_each="" if job.nodes == 1 or job.ranks == 1 else on_each,
    )
    return ["", text]


def _command_line(job: SlurmJob, site: Site) -> str:
    one = " ".join(_word(argument) for argument in job.command)
    if site.container:
        one = f"{site.container} {one}"
    if job.ranks == 1 or job.starts_ranks:
        return one
    if site.launcher == "mpirun":
        return f"mpirun -np {job.ranks} --bind-to none {one}"
    # srun does not take the job's --cpus-per-task for its own since SLURM 22.05.
    cpus = f" --cpus-per-task={job.cpus_per_rank}" if job.cpus_per_rank else ""
    return f"srun --mpi={site.mpi} --ntasks={job.ranks}{cpus} {one}"


def _word(argument: str) -> str:
    parts = [shlex.quote(part) if part else "" for part in argument.split(ARRAY_INDEX)]
    return '"$SLURM_ARRAY_TASK_ID"'.join(parts) or "''"


_FORGET_OUTER_LAUNCHERS = """\
# A job may be submitted from inside of another one, or of mpirun: their marks are not this job's.
unset "${!OMPI_COMM_WORLD_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_STEP_@}\""""

_TAKE_SIGNALS = """
signals=0 save=no stop=no process=
hand_on() { ((signals += 1)); [[ -z $process ]] || kill -s "$1" "$process" 2>/dev/null; }
trap 'save=yes; hand_on USR1' USR1 # the time limit is near
trap 'stop=yes; hand_on TERM' TERM # cancelled
# Putting a job back ends it, and scontrol with it: it may be gone before it can say that it was done.
put_back() { (trap '' TERM && exec scontrol requeue "$1"); }"""

_STAGE = """\
# A copy of the data set on each node's own disk; without it the shared one is read. Where nodes have one disk together,
# they copy one after another: at the same moment cp of one would fail.
data={data} disk="{disk}"
copy=$disk/tfmat-$SLURM_JOB_ID
if [[ -d $data && -d $disk ]] &&
    {on_each}bash -c 'mkdir -p "$2" && exec 9>"$2/.lock" && {{ flock 9 || :; }} && cp -r -- "$1" "$2"' \\
        copy "$data" "$copy"; then
    export TFMAT_LOCAL_DATA=$copy
    trap '{on_each}rm -rf -- "$copy"' EXIT
else
    echo "tfmat job: the data set was not copied to $copy; reading $data"
fi"""

_RUN = """\
status=75
if [[ $save$stop == nono ]]; then
    {command} &
    process=$!
    [[ $save == no ]] || kill -s USR1 "$process"
    # A signal ends `wait` early.
    while
        before=$signals
        wait "$process"
        status=$?
        ((signals != before))
    do :; done
fi
# Asked to save before it could take signals, a process ends by the signal itself: nothing new is lost.
[[ $save == yes && $status == 138 ]] && status=75
if [[ $status == 75 ]]; then
    if [[ {requeue}$stop == yesno ]] && put_back "{job}"; then
        echo "tfmat job: saved; job {job} waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch {element}"{script}
    fi
fi{lost}
exit "$status"
"""

# An element of an array whose process was killed, or lost a rank (status 4), has failed through no fault of its work,
# and the others do not wait for it. An element that is killed again and again is not worth a place.
_LOST = """
if [[ ($status == 4 || $status -gt 128) && {requeue}$stop == yesno && ${{SLURM_RESTART_COUNT:-0}} -lt 10 ]]; then
    if put_back "{job}"; then
        echo "tfmat job: lost (status $status); element $SLURM_ARRAY_TASK_ID waits in the queue again"
    else
        echo "tfmat job: lost (status $status); to go on: sbatch --array=$SLURM_ARRAY_TASK_ID "{script}
    fi
fi"""
