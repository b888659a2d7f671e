"""One SLURM job, and the text of its script as a pure function of the job and the site.

The script ends in order before the time limit: SLURM sends USR1 to its shell, which hands it on to the ranks; they save
and end with status 75; then the job is put into the queue again, under the same number, and goes on from there.
"""

import dataclasses
import pathlib
import re
import shlex

from tfmat.errors import InputError
from tfmat.launch.slurm import Site

ARRAY_INDEX = "{array_index}"


@dataclasses.dataclass(frozen=True)
class SlurmJob:
    """What runs, and on what.

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
      array: number of elements; each is a job of this size.
      requeue: whether the job goes on by itself after a lost node, and after the time limit.
      signal_seconds: how long before the time limit it is asked to save; less where the limit itself is short.
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
    array: int | None = None
    requeue: bool = True
    signal_seconds: int = 120


@dataclasses.dataclass(frozen=True)
class _Shape:
    """A job's nodes (None for SLURM's choice), GPUs on each, and processors of each rank (None for the default)."""

    nodes: int | None
    gpus_per_node: int
    cpus_per_rank: int | None


def job_script(job: SlurmJob, site: Site = Site()) -> str:  # noqa: B008 (it is frozen)
    """The text of job.sh. Pure: the same job and site give the same text.

    Raises:
      InputError: a job that no cluster can run, in one line.
    """
    shape = _shape(job, site)
    requeue, script = "yes" if job.requeue else "no", shlex.quote(str(job.folder / "job.sh"))
    # The last element of an array has the number of the whole array: to requeue that would requeue all elements.
    name = "$SLURM_JOB_ID" if job.array is None else "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
    parts = [
        "#!/bin/bash",
        *_directives(job, site, shape),
        "",
        _FORGET_OUTER_LAUNCHERS,
        _TAKE_SIGNALS,
        *_preparation(site),
        *_staging(job, site, shape),
        "",
        _RUN.format(
            command=_command_line(job, site, shape),
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


def _shape(job: SlurmJob, site: Site) -> _Shape:
    if job.ranks < 1 or (job.nodes or 1) < 1 or job.gpus < 0:
        raise InputError(f"ranks={job.ranks}, nodes={job.nodes}, gpus={job.gpus}: too few")
    nodes = job.nodes
    if job.gpus and nodes is None:
        # Node by node: the next one is begun when this one's are all taken.
        nodes = -(-job.gpus // (site.gpus_per_node or job.gpus))
    gpus_per_node = job.gpus // (nodes or 1)
    if gpus_per_node * (nodes or 1) != job.gpus or gpus_per_node > (site.gpus_per_node or job.gpus):
        of_each = f" of {site.gpus_per_node} GPUs" if site.gpus_per_node else ""
        raise InputError(
            f"gpus={job.gpus} cannot be spread evenly over {nodes} nodes{of_each}; change gpus or nodes"
        )
    if job.ranks < (nodes or 1):
        raise InputError(f"nodes={nodes} are more than ranks={job.ranks}; some would do nothing")
    ranks_per_node = -(-job.ranks // (nodes or 1))
    cpus = job.cpus_per_rank
    if cpus is None and site.cores_per_node and gpus_per_node and site.gpus_per_node:
        share = site.cores_per_node * gpus_per_node // site.gpus_per_node
        cpus = max(1, share // ranks_per_node)
    elif cpus is None and site.cores_per_node and job.exclusive and nodes:
        cpus = max(1, site.cores_per_node // ranks_per_node)
    return _Shape(nodes, gpus_per_node, cpus)


def _directives(job: SlurmJob, site: Site, shape: _Shape) -> list[str]:
    """The #SBATCH lines."""
    output = "job-%j.out" if job.array is None else "job-%A_%a.out"
    even = shape.nodes and job.ranks % shape.nodes == 0
    options = {
        "job-name": job.name,
        "chdir": job.start_in,
        # % stands for itself when it is doubled.
        "output": f"{str(job.folder).replace('%', '%%')}/{output}",
        "open-mode": "append",
        "account": job.account or site.account,
        "partition": job.partition or site.partition,
        "nodes": shape.nodes,
        "ntasks": job.ranks,
        "ntasks-per-node": job.ranks // shape.nodes if even and shape.nodes else None,
        "cpus-per-task": shape.cpus_per_rank,
        "gres": f"gpu:{shape.gpus_per_node}" if shape.gpus_per_node else None,
        "mem": site.memory,
        "exclusive": "" if job.exclusive else None,
        "time": job.time_limit,
        "array": f"0-{job.array - 1}" if job.array else None,
        "requeue" if job.requeue else "no-requeue": "",
        "signal": _signal(job),
    }
    lines = []
    for name, value in options.items():
        if value is not None:
            lines.append(f"#SBATCH --{name}" + (f"={_quoted(str(value))}" if value != "" else ""))
    return lines + [f"#SBATCH {option}" for option in site.options]


def _quoted(value: str) -> str:
    """A value as sbatch reads it in a script: in quotes where there is a space."""
    if set('"\\\n') & set(value):
        raise InputError(f'{value!r}: SLURM takes no ", no \\ and no line break in names')
    return value if re.fullmatch(r"[\w./:@%,=+\-]+", value) else f'"{value}"'


def _signal(job: SlurmJob) -> str | None:
    """The signal's option: it goes only to the batch shell (B:), which hands it on."""
    limit = limit_seconds(job.time_limit)
    if limit is None or not job.signal_seconds:
        return None
    return f"B:USR1@{min(job.signal_seconds, max(1, limit // 4))}"


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


def _staging(job: SlurmJob, site: Site, shape: _Shape) -> list[str]:
    if job.data is None or site.local_disk is None:
        return []
    on_each = "srun --mpi=none --ntasks=$SLURM_NNODES --ntasks-per-node=1 --cpus-per-task=1 "
    text = _STAGE.format(
        data=shlex.quote(str(job.data)),
        disk=site.local_disk,
        on_each="" if shape.nodes == 1 or job.ranks == 1 else on_each,
    )
    return ["", text]


def _command_line(job: SlurmJob, site: Site, shape: _Shape) -> str:
    one = " ".join(_word(argument) for argument in job.command)
    if site.container:
        one = f"{site.container} {one}"
    if job.ranks == 1 or job.starts_ranks:
        return one
    if site.launcher == "mpirun":
        return f"mpirun -np {job.ranks} --bind-to none {one}"
    # srun does not take the job's --cpus-per-task for its own since SLURM 22.05.
    cpus = f" --cpus-per-task={shape.cpus_per_rank}" if shape.cpus_per_rank else ""
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
# and the others do not wait for it. What is killed again and again is not worth a place.
_LOST = """
if [[ ($status == 4 || $status -gt 128) && {requeue}$stop == yesno && ${{SLURM_RESTART_COUNT:-0}} -lt 10 ]]; then
    if put_back "{job}"; then
        echo "tfmat job: lost (status $status); element $SLURM_ARRAY_TASK_ID waits in the queue again"
    else
        echo "tfmat job: lost (status $status); to go on: sbatch --array=$SLURM_ARRAY_TASK_ID "{script}
    fi
fi"""
