"""Keeps strangers from a port on which a library of this process listens without asking who comes.

TensorFlow's servers listen on every address of a machine, and whoever reaches one has it run graphs that read and write
files as this user. The servers take no other address, and ask for no proof. The kernel helps: a socket filter on the
listening socket drops packets before TensorFlow sees them. Any user may set one (SO_ATTACH_FILTER, see socket(7)). It
lets in packets

* from sockets of this user on this machine. The owner of a socket stands in /proc/net/tcp as soon as it tries to
  connect. Its first packet is dropped. The kernel sends another one a second later, and by then the filter knows its
  address and port;
* from the other hosts of the run, from any process or user there, which cannot be seen from here.

The filter comes a moment after the library listens. A connection in this moment is found, and then the run ends."""

import dataclasses
import ipaddress
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from tfmat.errors import InputError
from tfmat.launch import port_filter
from tfmat.launch.port_filter import LISTEN, connections, listening_sockets, own_ends, set_filter
from tfmat.launch.processes import OPEN, REFUSED, TENSOR_PORTS, ports_setting

_LOOK_FIRST = 0.0005  # seconds between two looks while the library starts


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """The place of a process of the run.

    Attributes:
      place: machine and network namespace; the same for processes that see each other's sockets.
      addresses: from which it may come where it is elsewhere.
    """

    place: str
    addresses: tuple[str, ...]

    @classmethod
    def here(cls) -> "Neighbour":
        """This process."""
        import psutil  # 20 ms, and every command reads what the environment says of ports

        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        found = [
            address.address.partition("%")[0]
            for addresses in psutil.net_if_addrs().values()
            for address in addresses
            if address.family in (socket.AF_INET, socket.AF_INET6)
        ]
        outside = [text for text in found if not ipaddress.ip_address(text).is_loopback]
        return cls(f"{boot} {os.readlink('/proc/self/ns/net')}", tuple(outside))

    def elsewhere(self, others: Sequence["Neighbour"]) -> list[str]:
        """The addresses of those that are not here."""
        return sorted({a for other in others if other.place != self.place for a in other.addresses})


def check_not_refused(what: str) -> None:
    """InputError where the user wants no run that opens such ports."""
    if ports_setting() == REFUSED:
        raise InputError(
            f"{what} opens ports of TensorFlow's that ask nobody for a proof of identity, and {TENSOR_PORTS} is "
            f"{REFUSED}; use --backend=horovod, or one process"
        )


def guard_port(port: int, places: Sequence[Neighbour]) -> "PortGuard | None":
    """Guards a port of this process that is about to be opened; None where the user leaves such ports open.

    Args:
      places: of all processes of the run.
    """
    if ports_setting() == OPEN:
        return None
    return PortGuard(port, Neighbour.here().elsewhere(places))


def describe_ports(ports: Sequence[int], places: Sequence[Neighbour]) -> str:
    """The line about TensorFlow's ports that a run begins with: who can reach them."""
    numbers = ", ".join(map(str, ports[:8])) + (" …" if len(ports) > 8 else "")
    text = f"TensorFlow's servers of the {len(ports)} processes listen on port {numbers}"
    if ports_setting() == OPEN:
        return (
            f"{text}, open ({TENSOR_PORTS}={OPEN}): whoever reaches one runs programs as this user; a firewall must "
            "keep strangers away"
        )
    if len({place.place for place in places}) == 1:
        return f"{text}; a filter lets in processes of user {os.geteuid()} on this machine, and nobody else"
    return (
        f"{text}; a filter lets in processes of user {os.geteuid()} on the same host, and every process on the run's "
        "other hosts: no stranger may log into those (docs/dtensor.md, Ports)"
    )


class PortGuard:
    """Guards a port of this process from before it is opened until the process ends.

    It lets in `hosts`, addresses of other machines, and processes of `user` on this one.
    """

    def __init__(self, port: int, hosts: Sequence[str] = (), user: int | None = None):
        self._port, self._user = port, os.geteuid() if user is None else user
        self._hosts = [ipaddress.ip_address(host) for host in hosts]
        self._failure: InputError | None = None
        self._follower: subprocess.Popen[bytes] | None = None
        self._ready, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._start, name="port guard", daemon=True)
        self._thread.start()

    def wait(self, seconds: float = 30.0) -> None:
        """Returns when the port is open and guarded.

        Raises:
          InputError: it cannot be guarded on this system, or somebody was faster.
        """
        if not self._ready.wait(seconds):
            self.close()
            raise InputError(f"nothing listens on port {self._port} after {seconds:g} s")
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Lets nobody new in any more; for tests."""
        self._end.set()
        self._thread.join()
        if self._follower:
            self._follower.communicate()

    def _start(self) -> None:
        listeners: list[socket.socket] = []
        try:
            while not listeners and not self._end.is_set():
                listeners = listening_sockets(self._port)
                time.sleep(_LOOK_FIRST)
            set_filter(listeners, self._hosts, set())
            self._failure = self._stranger()
            if listeners and not self._failure:
                self._follow(listeners)
        except OSError as error:
            self._failure = InputError(
                f"port {self._port}, on which TensorFlow asks nobody for a proof of identity, cannot be guarded on "
                f"this system ({error.strerror or error}); use --backend=horovod, or set {TENSOR_PORTS}={OPEN} where "
                "all who can reach this machine are trusted"
            )
        for listener in listeners:
            listener.close()
        self._ready.set()

    def _follow(self, listeners: Sequence[socket.socket]) -> None:
        """Starts the process that lets in what this user's processes send; returns when it is at work."""
        numbers = [listener.fileno() for listener in listeners]
        arguments = [str(self._port), str(self._user), ",".join(map(str, numbers))]
        self._follower = subprocess.Popen(
            [sys.executable, "-I", "-S", port_filter.__file__, *arguments, *map(str, self._hosts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=numbers,
            start_new_session=True,  # Ctrl-C is for the run, which may save by these connections
        )
        assert self._follower.stdout
        if not self._follower.stdout.readline():
            raise OSError("its process ended")

    def _stranger(self) -> InputError | None:
        """The complaint where somebody connected before the filter was there; None where nobody did."""
        own = own_ends(self._port, self._user)
        for line in connections():
            if line.local_port != self._port or line.state == LISTEN:
                continue
            if (line.remote, line.remote_port) not in own and line.remote not in self._hosts:
                return InputError(
                    f"somebody else connected from {line.remote} to port {self._port} before it was guarded; the "
                    "run ends. Find out who, and start it again"
                )
        return None
