"""The hosts of a run as `mpirun -H` takes them, and which of them answer through the agent that mpirun uses."""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from tfmat.errors import InputError
from tfmat.launch.children import end_session

# Open MPI's setting for what starts its daemons on other hosts, and what it tries where nobody set it.
AGENT, _DEFAULT_AGENT = "OMPI_MCA_plm_rsh_agent", "ssh : rsh"
PATIENCE = 5.0  # seconds in which a host answers a probe
# Root may be all that a container has.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclasses.dataclass(frozen=True)
class Host:
    """A host and the number of ranks that it takes."""

    name: str
    slots: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, which mpirun starts ranks on without an agent."""
        here = socket.gethostname()
        return self.name in (
            "localhost",
            "127.0.0.1",
            here,
            here.partition(".")[0],
            socket.getfqdn(),
        )


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`server1:4,server2:4`, as `mpirun -H` takes it; a host without a number takes one rank.

    Raises:
      InputError: another form, or a host that stands there twice.
    """
    hosts = []
    for word in text.split(","):
        match = re.fullmatch(r"([A-Za-z0-9_][\w.\-]*)(?::([0-9]{1,6}))?", word.strip(), re.ASCII)
        if not match or (match[2] is not None and not int(match[2])):
            raise InputError(
                f"--hosts={text}: '{word}' is no host with its number of ranks; write server1:4,server2:4"
            )
        hosts.append(Host(match[1], int(match[2] or 1)))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--hosts={text} names {name} twice; give the sum of its ranks once")
    return tuple(hosts)


def count_ranks(hosts: Iterable[Host]) -> int:
    """Ranks of all of them."""
    return sum(host.slots for host in hosts)


def ranks_text(hosts: Sequence[Host]) -> str:
    """`6 ranks on server1:4,server2:2`."""
    count = count_ranks(hosts)
    return f"{count} rank{'' if count == 1 else 's'} on {','.join(map(str, hosts))}"


def agent_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The words that start a command on another host, before the host's name; [] where there is no such program.

    As for mpirun the setting may name several programs between colons, of which the first that is there holds.
    """
    for choice in environment.get(AGENT, _DEFAULT_AGENT).split(":"):
        words = shlex.split(choice)
        if words and shutil.which(words[0]):
            # A probe has nobody who could type a password.
            batch = ["-o", "BatchMode=yes"] if pathlib.Path(words[0]).name == "ssh" else []
            return words + batch
    return []


def missing_hosts(hosts: Sequence[Host]) -> dict[Host, str]:
    """The hosts that cannot take ranks now, with the reason; all are asked at once, silent ones for `PATIENCE` seconds.

    A host is there when it answers through mpirun's agent, has this Python and the present folder, and mpirun starts a
    program on it: one without Open MPI, or that cannot connect back, would end every start of all.
    """
    far = [host for host in hosts if not host.is_local]
    if not far:
        return {}
    with concurrent.futures.ThreadPoolExecutor(min(32, len(far))) as pool:
        found = zip(far, pool.map(_what_is_wrong, far), strict=True)
        return {host: why for host, why in found if why}


def _what_is_wrong(host: Host) -> str:
    """Why a host cannot take ranks; "" where it can."""
    agent = agent_command()
    if not agent:
        return f"there is no {os.environ.get(AGENT, _DEFAULT_AGENT)} to reach it by"
    here, python = shlex.quote(os.getcwd()), shlex.quote(sys.executable)
    status = _ask([*agent, host.name, f"test -d {here} && test -x {python}"])
    if status is None:
        return f"no answer within {PATIENCE:g} s"
    if status == 1:
        return f"it has no folder {os.getcwd()} or no {sys.executable}"
    if status:
        return f"{agent[0]} ended with status {status}"
    if _ask(["mpirun", "-np", "1", "-H", str(Host(host.name)), "true"]) != 0:
        return "it answers, but mpirun starts nothing on it"
    return ""


def _ask(command: Sequence[str]) -> int | None:
    """The exit status of a command, of which nothing is shown; None where it takes longer than `PATIENCE`."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **AS_ROOT},
            start_new_session=True,  # Ctrl-C is for this process
        )
    except OSError:
        return 127  # as a shell says that there is no such program
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        # An agent may be a script, and ssh may have a proxy: with each probe of a lost host one more would stay.
        end_session(process.pid, grace=0)
        process.wait()
        return None
