"""The filter before a port, and the small program that keeps it up to date; see port_guard.py. Standard library only.

    python -I -S port_filter.py PORT USER LISTENER,LISTENER… [HOST…]

is a process of its own, since TensorFlow waits for its connections with Python's lock in its hands. It ends when its
standard input does, which is when the process that started it has ended, however that ends."""

import dataclasses
import functools
import ipaddress
import os
import pathlib
import select
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from ctypes import addressof, create_string_buffer

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
ESTABLISHED, SYN_SENT, LISTEN = 1, 2, 10  # net/tcp_states.h
_LOOK = 0.15  # seconds between two looks: several before a packet that was dropped comes again
# linux/bpf_common.h: load a word, half a word, a byte; jump always, where equal, or more or equal; return. Loads from
# NETWORK on are of the packet's IP header; others begin at its TCP header, with the sender's port.
_WORD, _HALF, _BYTE, _JUMP, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x28, 0x30, 0x05, 0x15, 0x35, 0x06
_NETWORK = 0xFFF0_0000
_ACCEPT, _DROP = 0xFFFF_FFFF, 0
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Instruction = tuple[int, int, int, int]
End = tuple[Address, int]


@dataclasses.dataclass(frozen=True)
class Line:
    """One socket of /proc/net/tcp or tcp6."""

    local: Address
    local_port: int
    remote: Address
    remote_port: int
    state: int
    user: int
    inode: int


def connections() -> Iterator[Line]:
    for name in ("tcp", "tcp6"):
        path = pathlib.Path("/proc/self/net") / name
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            local, local_port = _address(words[1])
            remote, remote_port = _address(words[2])
            yield Line(
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


def listening_sockets(port: int) -> list[socket.socket]:
    """This process' own sockets that listen on a port, as second descriptors of them."""
    inodes = {
        line.inode for line in connections() if (line.local_port, line.state) == (port, LISTEN)
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


def program(hosts: Sequence[Address], peers: Sequence[tuple[Address, int]]) -> bytes:
    """The filter: instructions of 8 bytes for the kernel's packet filter (Documentation/networking/filter.rst)."""
    drop: Instruction = (_RETURN, 0, 0, _DROP)
    parts: dict[int, list[Instruction]] = {4: [], 6: []}
    for host, port in (*((host, None) for host in hosts), *peers):
        parts[host.version] += _rule(host, port)
    first, second = ([*lines, drop] for lines in parts.values())
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


def is_own(line: Line, port: int, user: int) -> bool:
    """Whether it is the end of a connection to the port that a process of this user holds."""
    return (line.remote_port, line.user) == (port, user) and line.state in (ESTABLISHED, SYN_SENT)


def own_ends(port: int, user: int) -> set[End]:
    """Address and port of all ends that this user holds of connections to the port, also of those that try."""
    return {(line.local, line.local_port) for line in connections() if is_own(line, port, user)}


def set_filter(
    listeners: Sequence[socket.socket], hosts: Sequence[Address], ends: set[End]
) -> None:
    """Lets in these hosts and ends only; OSError where the system has no such filters."""
    content = program(hosts, sorted(ends, key=str))
    instructions = create_string_buffer(content)
    filter_ = struct.pack("HL", len(content) // 8, addressof(instructions))
    for listener in listeners:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)


def main(port: str, user: str, descriptors: str, *hosts: str) -> None:
    """Follows the connections of the user until standard input ends."""
    listeners = [socket.socket(fileno=int(number)) for number in descriptors.split(",")]
    addresses = [ipaddress.ip_address(host) for host in hosts]
    known: set[End] = set()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], _LOOK)[0]:
        ends = own_ends(int(port), int(user))
        if ends != known:
            known = ends
            set_filter(listeners, addresses, ends)


if __name__ == "__main__":
    main(*sys.argv[1:])
