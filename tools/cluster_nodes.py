"""The nodes of tools/cluster: start, what runs on them, links, the switch between them, end."""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# --------------------------------------------------------------------------------------------------
# What is wanted of the machine, and asked of the kernel and of other programs.


LIBC = ctypes.CDLL(None, use_errno=True)
PACKAGES = "as root on Debian or Ubuntu: tools/system_packages cluster"


class Refusal(Exception):
    """One line for the user; `status` is the exit status."""

    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status


def check_machine() -> None:
    """Raises Refusal with the first thing that is missing here, and how to get it."""
    if sys.platform != "linux":
        raise Refusal(f"{sys.platform} has no network namespaces; use Linux")
    if os.geteuid() != 0:
        raise Refusal("it needs root; sudo tools/cluster up, or a container that is root's")
    if missing := [
        name for name in ("ip", "tc", "unshare", "nsenter", "cc") if not shutil.which(name)
    ]:
        raise Refusal(f"there is no {', '.join(missing)} here; {PACKAGES}")
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        raise Refusal(
            f"/dev/net/tun: {error.strerror}; modprobe tun, or give the container --device=/dev/net/tun"
        ) from None
    tried = ("unshare", "--fork", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "true")
    done = subprocess.run(tried, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(
            f"root may not make namespaces here ({done.stderr.strip()}); give the container --privileged"
        )


def run_quietly(*command: str | pathlib.Path, prepare: Callable[[], None] | None = None) -> bytes:
    """The output of a program that has to succeed; `prepare` is called in it, before it starts."""
    done = subprocess.run(command, capture_output=True, preexec_fn=prepare)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        line = next((line for line in said if "error" in line), (said or ["no reason told"])[-1])
        raise Refusal(f"{command[0]} failed: {line}", 1)
    return done.stdout


def set_namespace(path: str, kind: int = 0) -> None:
    """Enters the namespace of this file; `kind` is the kernel's CLONE_NEW..., 0 for any."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    failed = LIBC.setns(file, kind)
    os.close(file)
    if failed:
        raise OSError(ctypes.get_errno(), f"setns: {path}")


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """One call at a time changes what belongs to a folder."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refusal("another call of tools/cluster is at work; wait for it") from None
    finally:
        os.close(file)


def all_processes() -> list[int]:
    """The numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def stat(pid: int) -> list[str]:
    """The kernel's words about a process from its state on: state, parent, ...; empty where it has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


# --------------------------------------------------------------------------------------------------
# The switch between the nodes (cluster_wire.c), and the file through which it is told and asked.


MOST_NODES = 16
# `struct state` there: ready, real time; then of each link bits per second, delay, unplugged, frames, bytes, lost,
# lateness: sum and maximum.
_HEAD, _LINK = struct.Struct("QQ"), struct.Struct("dddQQQdd")


class Wire:
    """The one of the cluster whose files lie in this folder."""

    def __init__(self, folder: pathlib.Path):
        self.program, self.state = folder / "wire", folder / "state"

    def make(self, rate: float, delay: float) -> None:
        """Compiles it; all links begin with this rate (bits per second, 0 for no limit) and delay (seconds)."""
        links = _LINK.pack(rate, delay, 0, 0, 0, 0, 0, 0) * MOST_NODES
        self.state.write_bytes(_HEAD.pack(0, 0) + links)
        source = pathlib.Path(__file__).with_name("cluster_wire.c")
        try:
            run_quietly("cc", "-O2", "-o", self.program, source)
        except Refusal as error:  # mostly for headers that are missing
            raise Refusal(f"{error}; {PACKAGES}") from None

    def is_ready(self) -> bool:
        """True when all nodes have their eth0."""
        return bool(self._head()[0])

    def is_real_time(self) -> bool:
        """Whether it goes before everything else on a busy machine."""
        return bool(self._head()[1])

    def set_link(
        self, number: int, rate: float | None, delay: float | None, unplugged: bool | None
    ) -> None:
        """Tells it what is not None about the link of a node; it looks within 0.05 s."""
        with self._mapped() as state:
            for place, value in enumerate((rate, delay, unplugged)):
                if value is not None:
                    offset = _HEAD.size + _LINK.size * number + 8 * place
                    struct.pack_into("d", state, offset, value)

    def link(self, number: int) -> dict[str, float]:
        """Settings and counts of the link of a node; frames and bytes are those that the node sent."""
        with self._mapped() as state:
            values = _LINK.unpack_from(state, _HEAD.size + _LINK.size * number)
        return {
            "rate_bits_per_second": values[0],
            "delay_seconds": values[1],
            "sent_frames": values[3],
            "sent_bytes_on_wire": values[4],
            "lost_frames": values[5],
            "latest_frame_seconds": values[7],
        }

    def _head(self) -> tuple[int, int]:
        with self._mapped() as state:
            return _HEAD.unpack_from(state)

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[mmap.mmap]:
        with open(self.state, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            yield mapped


# --------------------------------------------------------------------------------------------------
# The nodes.


# Of the wire: the network, host-name, IPC and mount namespace of each node.
_NODE_FILES, _NAMESPACES = 100, 4
_MARK = "tfmat-cluster"  # a file in every folder that may be deleted
_PR_SET_PDEATHSIG, _CLONE_NEWPID = 1, 0x20000000

# What mpirun starts its daemons with, in the place of ssh: also with hardly any environment, but with the caller's
# PATH, as where all nodes have the same ~/.bashrc.
_AGENT = """#!/bin/sh
case $1 in
{cases}*) echo "tools/cluster: error: there is no node $1" >&2; exit 255 ;;
esac
shift
node() {{ echo "/proc/1/fd/$((first + $1))"; }}
exec nsenter --net="$(node 0)" --uts="$(node 1)" --ipc="$(node 2)" --mount="$(node 3)" \\
    env -i HOME="$HOME" PATH="$PATH" /bin/sh -c "cd; $*"
"""


class Cluster:
    """The cluster whose files lie in a folder, whether it is up or not."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.slurm = folder / "slurm"
        self.wire = Wire(folder)
        self.environment = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_plm_rsh_agent": f"{folder}/agent",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "self,vader,tcp",
            "OMPI_MCA_btl_tcp_if_include": "eth0",
            "OMPI_MCA_oob_tcp_if_include": "eth0",
            # Nodes of two clusters have the same names and process ids; and what a killed node leaves has to go.
            "OMPI_MCA_orte_tmpdir_base": "/dev/shm",
            # Every node would bind its first rank to the first processor, which is the same one here.
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        if self.slurm.exists():
            self.environment["SLURM_CONF"] = f"{self.slurm}/slurm.conf"

    def start(self, nodes: int, rate: float, delay: float) -> float:
        """Brings nodes up, with links as `Wire.make` takes them; returns the seconds that it took."""
        began = time.monotonic()
        check_machine()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refusal(f"--folder={self.folder} cannot be made ({error.strerror})") from None
        with locked(self.folder):
            if self._first_process():
                raise Refusal(
                    f"a cluster of {len(self.names())} nodes is up already; tools/cluster down ends it"
                )
            if os.listdir(self.folder) and not (self.folder / _MARK).exists():
                raise Refusal(
                    f"--folder={self.folder} holds other things; choose an empty or a new one"
                )
            (self.folder / _MARK).touch()
            try:
                self._start([f"server{number}" for number in range(1, nodes + 1)], rate, delay)
            except BaseException:
                self._clear()
                raise
        return time.monotonic() - began

    def _start(self, names: list[str], rate: float, delay: float) -> None:
        folder = self.folder
        addresses = [f"10.9.0.{number} {name}\n" for number, name in enumerate(names, 1)]
        hosts = pathlib.Path("/etc/hosts").read_text() if os.path.exists("/etc/hosts") else ""
        (folder / "hosts").write_text("".join(addresses) + hosts)
        (folder / "names").write_text("\n".join(names))
        cases = (f"{name}) first={_first_file(number)} ;;\n" for number, name in enumerate(names))
        (folder / "agent").write_text(_AGENT.format(cases="".join(cases)))
        (folder / "agent").chmod(0o755)
        self.wire.make(rate, delay)
        # Its end is the end of the first process, and that of the first process the end of all.
        command = ("unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc")
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                [*command, self.wire.program, folder, *names],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self.wire.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text().strip().rpartition("\n")[2] or "no answer"
                raise Refusal(f"it did not come up: {said}", 1)
            time.sleep(0.01)
        for number, name in enumerate(names, 1):
            # Large segments of a slow link would be bursts. Cubic is what most clusters use.
            lines = (
                f"ip link set eth0 address 02:00:00:00:00:{number:02x} gso_max_size 16384 txqueuelen 2000 up",
                f"ip addr add 10.9.0.{number}/24 dev eth0 noprefixroute",
                "ip route add 10.9.0.0/24 dev eth0 congctl cubic",
            )
            self._run_on(name, "sh", "-ec", "\n".join(lines))
            self._queue(name, rate)

    def stop(self) -> bool:
        """Ends everything; False where there was nothing."""
        if not (self.folder / _MARK).exists() and not self._outer_process():
            return False
        self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have deleted it
        with locked(self.folder):
            self._clear()
        return True

    def _clear(self) -> None:
        known: set[int] = set()
        deadline = time.monotonic() + 30
        while True:
            known |= {self._first_process(), self._outer_process()} - {0}
            if not (alive := [pid for pid in known if stat(pid)[:1] not in ([], ["Z"])]):
                break
            if time.monotonic() > deadline:
                raise Refusal(f"processes do not end: {alive}", 1)
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        shutil.rmtree(self.folder)

    def names(self) -> list[str]:
        """Of the nodes."""
        return (self.folder / "names").read_text().splitlines()

    def popen(
        self, node: str, command: list[str], before: Callable[[], object] = int, **options: Any
    ) -> subprocess.Popen:
        """Starts a command on a node, in its processes' namespace; it is asked to end where this process dies."""
        init, place = self._need(node), os.getcwd()
        set_namespace(f"/proc/{init}/ns/pid", _CLONE_NEWPID)  # for children only
        enter = self._enter(init, node)

        def prepare() -> None:
            LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            enter()
            os.chdir(place)
            before()

        try:
            return subprocess.Popen(
                command, preexec_fn=prepare, env={**os.environ, **self.environment}, **options
            )
        except FileNotFoundError:
            raise Refusal(f"{command[0]}: there is no such command", 127) from None
        except PermissionError:
            raise Refusal(f"{command[0]} cannot be executed", 126) from None

    def set_link(
        self, node: str, rate: float | None, delay: float | None, unplugged: bool | None
    ) -> None:
        """Changes what is not None; returns when it holds."""
        self._need(node)
        with locked(self.folder):
            self.wire.set_link(self.names().index(node), rate, delay, unplugged)
            if rate is not None:
                self._queue(node, rate)
            deadline = time.monotonic() + 10
            while unplugged is not None and _plugged(self._interface(node)) == unplugged:
                if time.monotonic() > deadline:
                    raise Refusal(f"{node}'s link does not follow", 1)
                time.sleep(0.01)

    def kill(self, node: str) -> int:
        """Kills every process of a node; their number."""
        killed: set[int] = set()
        self._need(node)
        while found := self._processes(node):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(found)
            time.sleep(0.01)
        return len(killed)

    def status(self) -> dict[str, Any]:
        """What `tools/cluster status --json` prints."""
        if not self._first_process():
            if (self.folder / _MARK).exists():
                raise Refusal(
                    "the cluster has ended, since its wire did; tools/cluster down clears what is left",
                    1,
                )
            raise Refusal("no cluster is up; tools/cluster up starts one", 1)
        nodes = []
        for number, name in enumerate(self.names()):
            interface = self._interface(name)
            nodes.append(
                {
                    "name": name,
                    "address": f"10.9.0.{number + 1}",
                    "link": "up" if _plugged(interface) else "down",
                    "sent_bytes": interface["stats64"]["tx"]["bytes"],
                    "received_bytes": interface["stats64"]["rx"]["bytes"],
                    **self.wire.link(number),
                    "processes": len(self._processes(name)),
                }
            )
        return {
            "folder": str(self.folder),
            "real_time": self.wire.is_real_time(),
            "nodes": nodes,
        }

    def _queue(self, node: str, rate: float) -> None:
        """A queue before the wire, since TCP sends too much where it sees none.

        It counts 1514 bytes where the wire has 1538.
        """
        if rate:
            burst = max(32768, int(rate * 256e-6))
            tbf = f"root tbf limit 16mb rate {int(0.984 * rate)}bit burst {burst}"
            self._run_on(node, "tc", "qdisc", "replace", "dev", "eth0", *tbf.split())
        elif b"tbf" in self._run_on(node, "tc", "qdisc", "show", "dev", "eth0"):
            self._run_on(node, "tc", "qdisc", "del", "dev", "eth0", "root")

    def _interface(self, node: str) -> dict[str, Any]:
        return json.loads(self._run_on(node, "ip", "-j", "-s", "link", "show", "eth0"))[0]

    def _run_on(self, node: str, *command: str) -> bytes:
        return run_quietly(*command, prepare=self._enter(self._need(node), node))

    def _enter(self, init: int, node: str) -> Callable[[], None]:
        first = _first_file(self.names().index(node))

        def enter() -> None:
            # The mount namespace is the last one, since the path is of this one.
            for file in range(first, first + _NAMESPACES):
                set_namespace(f"/proc/{init}/fd/{file}")

        return enter

    def _need(self, node: str) -> int:
        """The first process, where the cluster is up and has this node."""
        if not (init := self._first_process()):
            raise Refusal("no cluster is up; tools/cluster up starts one")
        if node not in self.names():
            raise Refusal(f"there is no node '{node}'; there are {', '.join(self.names())}")
        return init

    def _processes(self, node: str) -> list[int]:
        init = self._need(node)
        home, found = os.stat(f"/proc/{init}/fd/{_first_file(self.names().index(node))}"), []
        for pid in all_processes():
            with contextlib.suppress(OSError):
                network = os.stat(f"/proc/{pid}/ns/net")
                if (network.st_ino, network.st_dev) == (home.st_ino, home.st_dev):
                    found.append(pid)
        return found

    def _outer_process(self) -> int:
        """The one that waits for the first process of the nodes' process namespace; 0 where there is none."""
        for pid in all_processes():
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0] == b"unshare" and bytes(self.folder) in words:
                    return pid
        return 0

    def _first_process(self) -> int:
        outer = self._outer_process()
        children = (pid for pid in all_processes() if outer and stat(pid)[1:2] == [str(outer)])
        return next((pid for pid in children if stat(pid)[:1] not in ([], ["Z"])), 0)


def _plugged(interface: dict[str, Any]) -> bool:
    return "LOWER_UP" in interface["flags"]


def _first_file(number: int) -> int:
    return _NODE_FILES + _NAMESPACES * number
