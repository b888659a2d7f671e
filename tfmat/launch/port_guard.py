"""Keeps strangers from a port on which a library of this process listens without asking who comes.

TensorFlow's servers listen on every address of a machine, and whoever reaches one has it run graphs that read and write
files as this user. They can neither be told another address nor to ask for a proof. The kernel can: a socket filter
(SO_ATTACH_FILTER, see socket(7); any user may set one) on the listening socket drops packets before TensorFlow sees
them. It lets in what comes

* from sockets of this user on this machine. Whose a socket is stands in /proc/net/tcp as soon as it tries to connect.
  Its first packet is dropped; the kernel sends another one a second later, and by then the filter knows its address
  and port;
* from the other hosts of the run, whatever process or user it is there: that cannot be seen from here.

Between the library's listening and the filter lies a moment. Who connected in it is found, and then the run ends.
"""

import dataclasses
import functools
import ipaddress
import os
import pathlib
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from ctypes import addressof, create_string_buffer

import psutil

from tfmat.errors import InputError

SETTING = "TFMAT_TENSOR_PORTS"
GUARDED, OPEN, REFUSED = "guarded", "open", "refused"
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_ESTABLISHED, _SYN_SENT, _LISTEN = 1, 2, 10  # net/tcp_states.h
# Seconds between two looks: while the library starts, and afterwards, several times before a packet comes again.
_LOOK_FIRST, _LOOK = 0.0005, 0.15
# linux/bpf_common.h: load a word, half a word, a byte; jump always, where equal, or more or equal; return. Loads from
# NETWORK on are of the packet's IP header; others begin at its TCP header, with the sender's port.
_WORD, _HALF, _BYTE, _JUMP, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x28, 0x30, 0x05, 0x15, 0x35, 0x06
_NETWORK = 0xFFF0_0000
_ACCEPT, _DROP = 0xFFFF_FFFF, 0
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Instruction = tuple[int, int, int, int]


def ports_setting() -> str:
    """What TFMAT_TENSOR_PORTS says: `guarded` where nothing; InputError where it is no such word."""
    text = os.environ.get(SETTING) or GUARDED
    if text not in (GUARDED, OPEN, REFUSED):
        raise InputError(f"{SETTING} is '{text}'; give {GUARDED}, {OPEN} or {REFUSED}")
    return text


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """Where a process of the run is.

    Attributes:
      place: machine and network namespace; the same for processes that see each other's sockets.
      addresses: from which it may come where it is elsewhere.
    """

    place: str
    addresses: tuple[str, ...]

    @classmethod
    def here(cls) -> "Neighbour":
        """This process."""
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
            f"{what} opens ports of TensorFlow's that ask nobody for a proof of identity, and {SETTING} is {REFUSED}; "
            "use --backend=horovod, or one process"
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
            f"{text}, open ({SETTING}={OPEN}): whoever reaches one runs programs as this user; a firewall must keep "
            "strangers away"
        )
    if len({place.place for place in places}) == 1:
        return f"{text}; a filter lets in processes of user {os.geteuid()} on this machine, and nobody else"
    return (
        f"{text}; a filter lets in processes of user {os.geteuid()} on the same host, and every process on the run's "
        "other hosts: no stranger may log into those (docs/dtensor.md, Ports)"
    )


class PortGuard:
    """Guards a port of this process from before it is opened until the process ends.

    Args:
      port: that a library is going to listen on.
      hosts: addresses of other machines that may connect.
      user: whose processes on this machine may.
    """

    def __init__(self, port: int, hosts: Sequence[str] = (), user: int | None = None):
        self._port, self._user = port, os.geteuid() if user is None else user
        self._hosts = [ipaddress.ip_address(host) for host in hosts]
        self._listeners: list[socket.socket] = []
        self._known: set[tuple[Address, int]] = set()
        self._failure: InputError | None = None
        self._ready, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="port guard", daemon=True)
        self._thread.start()

    def wait(self, seconds: float = 10.0) -> None:
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
        for listener in self._listeners:
            listener.close()

    def _watch(self) -> None:
        try:
            while not self._listeners and not self._end.is_set():
                self._listeners = _listening_sockets(self._port)
                time.sleep(_LOOK_FIRST)
            self._set()
            self._failure = self._stranger()
        except OSError as error:
            self._failure = InputError(
                f"port {self._port}, on which TensorFlow asks nobody for a proof of identity, cannot be guarded on "
                f"this system ({error.strerror or error}); use --backend=horovod, or set {SETTING}={OPEN} where "
                "all who can reach this machine are trusted"
            )
        self._ready.set()
        while self._failure is None and not self._end.wait(_LOOK):
            known = {(line.local, line.local_port) for line in _connections() if self._is_own(line)}
            if known != self._known:
                self._known = known
                self._set()

    def _set(self) -> None:
        content = _program(self._hosts, sorted(self._known, key=str))
        instructions = create_string_buffer(content)
        filter_ = struct.pack("HL", len(content) // 8, addressof(instructions))
        for listener in self._listeners:
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)

    def _is_own(self, line: "_Line") -> bool:
        """Whether it is the end of a connection to the port that a process of this user holds."""
        return (
            line.remote_port == self._port
            and line.user == self._user
            and line.state in (_ESTABLISHED, _SYN_SENT)
        )

    def _stranger(self) -> InputError | None:
        """Where somebody connected before the filter was there: what to say."""
        lines = list(_connections())
        own = {(line.local, line.local_port) for line in lines if self._is_own(line)}
        for line in lines:
            peer = line.remote, line.remote_port
            if line.local_port != self._port or line.state == _LISTEN or peer in own:
                continue
            if line.remote not in self._hosts:
                return InputError(
                    f"somebody else connected from {line.remote} to port {self._port} before it was guarded; the "
                    "run ends. Find out who, and start it again"
                )
        return None


@dataclasses.dataclass(frozen=True)
class _Line:
    """One socket of /proc/net/tcp or tcp6."""

    local: Address
    local_port: int
    remote: Address
    remote_port: int
    state: int
    user: int
    inode: int


def _connections() -> Iterator[_Line]:
    for name in ("tcp", "tcp6"):
        path = pathlib.Path("/proc/self/net") / name
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            local, local_port = _address(words[1])
            remote, remote_port = _address(words[2])
            yield _Line(
                local, local_port, remote, remote_port, int(words[3], 16), int(words[7]), int(words[9])
            )  # fmt: skip


@functools.lru_cache(4096)
def _address(text: str) -> tuple[Address, int]:
    """`0100007F:1F90` as 127.0.0.1 and 8080: words of four bytes in the machine's own order."""
    digits, _, port = text.partition(":")
    words = struct.unpack(f"={len(digits) // 8}I", bytes.fromhex(digits))
    packed = b"".join(struct.pack(">I", word) for word in words)
    found = ipaddress.ip_address(packed)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found, int(port, 16)


def _listening_sockets(port: int) -> list[socket.socket]:
    """This process' own sockets that listen on a port, as second descriptors of them."""
    inodes = {
        line.inode for line in _connections() if (line.local_port, line.state) == (port, _LISTEN)
    }
    found = []
    for entry in os.scandir("/proc/self/fd") if inodes else ():
        try:
            status = os.stat(entry.path)
        except OSError:  # closed meanwhile
            continue
        if stat.S_ISSOCK(status.st_mode) and status.st_ino in inodes:
            found.append(socket.socket(fileno=os.dup(int(entry.name))))
    return found


def _program(hosts: Sequence[Address], peers: Sequence[tuple[Address, int]]) -> bytes:
    """The filter: instructions of 8 bytes for the kernel's packet filter (Documentation/networking/filter.rst)."""
    four = [_rule(host, None) for host in hosts if host.version == 4]
    four += [_rule(host, port) for host, port in peers if host.version == 4]
    six = [_rule(host, None) for host in hosts if host.version == 6]
    six += [_rule(host, port) for host, port in peers if host.version == 6]
    drop: Instruction = (_RETURN, 0, 0, _DROP)
    second = [*(line for rule in six for line in rule), drop]
    first = [*(line for rule in four for line in rule), drop]
    # The version is the upper half of the IP header's first byte; a jump that may be long is one that always jumps.
    lines: list[Instruction] = [
        (_BYTE, 0, 0, _NETWORK),
        (_AT_LEAST, 0, 1, 0x60),
        (_JUMP, 0, 0, len(first)),
        *first,
        *second,
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _rule(host: Address, port: int | None) -> list[Instruction]:
    """Accepts what comes from a host, and from this port of it; else goes on behind the rule."""
    packed = host.packed
    where = 12 if host.version == 4 else 8  # of the sender's address in the header
    tests = [
        (_WORD, _NETWORK + where + place, int.from_bytes(packed[place : place + 4]))
        for place in range(0, len(packed), 4)
    ]
    if port is not None:
        tests.append((_HALF, 0, port))
    lines: list[Instruction] = []
    for number, (load, place, value) in enumerate(tests):
        lines += [(load, 0, 0, place), (_EQUAL, 0, 2 * (len(tests) - number) - 1, value)]
    return [*lines, (_RETURN, 0, 0, _ACCEPT)]
