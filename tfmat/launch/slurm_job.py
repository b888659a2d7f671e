"""What one does with a SLURM job: submit it, watch it, cancel it."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from tfmat.errors import InputError
from tfmat.launch.site import Site

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
