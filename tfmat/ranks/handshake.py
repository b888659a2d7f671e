"""How connections begin: one side listens, the others prove that they belong to the run, and it proves that it does."""

import collections
import contextlib
import dataclasses
import errno
import fcntl
import resource
import secrets
import selectors
import socket
import struct
import time

from tfmat.ranks.link import Link, wait_for

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
# _PATIENCE: seconds in which the two sides of a connection prove themselves. A loaded machine needs one or two.
_PATIENCE = 5.0
# _STRANGERS: connections without a proof beside the ranks' own. Half of the usual limit of 1024 open files stays free.
_STRANGERS = 256


@dataclasses.dataclass(frozen=True)
class Place:
    """The addresses and the port that rank 0 listens on, and the secret of this run."""

    host: str
    addresses: list[str]
    port: int
    token: str


def listen(one_node: bool) -> tuple[socket.socket, Place]:
    """Opens a port of the system's choice: on loopback where all ranks are on this node, else on every address."""
    if one_node:
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        addresses = ["127.0.0.1"]
    else:
        six = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if six else socket.AF_INET
        listener = socket.create_server(("", 0), family=family, backlog=4096, dualstack_ipv6=six)
        addresses = _own_addresses()
    host = socket.gethostname()
    return listener, Place(host, addresses, listener.getsockname()[1], secrets.token_hex(16))


def _own_addresses() -> list[str]:
    """Addresses by which other nodes may reach this one: its name, then the address of each interface.

    Some may lead to a bridge of the same address on the other node. Ranks try them all; the proofs show who answers.
    """
    addresses = [socket.gethostname()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                addresses.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in addresses if not address.startswith("127.")]


def accept(
    listener: socket.socket, place: Place, size: int, deadline: float
) -> dict[int, tuple[Link, str]]:
    """Waits until every other rank has connected and proved itself, or until `deadline` (monotonic, seconds).

    Connections of strangers are closed: after a wrong proof, and after _PATIENCE seconds without one. Where too many
    have shown none yet, the address that holds the most of these loses its oldest one. Silence keeps nobody else out.

    Returns:
      rank -> its connection and host name; ranks are missing where the deadline came first.
    """
    most = size + _STRANGERS
    _allow_open_files(size + most + _STRANGERS)
    listener.setblocking(False)
    members: dict[int, tuple[Link, str]] = {}
    strangers: dict[Link, tuple[str, float]] = {}  # the oldest first: address, and until when
    with selectors.DefaultSelector() as selector:

        def part_from(link: Link) -> None:
            selector.unregister(link)
            del strangers[link]

        def drop_one() -> None:
            counts = collections.Counter(address for address, _ in strangers.values())
            (busiest, _), *_ = counts.most_common(1)
            oldest = next(link for link, (address, _) in strangers.items() if address == busiest)
            part_from(oldest)
            oldest.close()

        selector.register(listener, selectors.EVENT_READ)
        while len(members) < size - 1 and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(min(left, 0.25)):
                if key.fileobj is listener:
                    try:
                        connection, (address, *_) = listener.accept()
                    except OSError as error:
                        if error.errno in (errno.EMFILE, errno.ENFILE) and strangers:
                            drop_one()
                        continue
                    stranger = Link(connection, place.token, listens=True)
                    strangers[stranger] = address, time.monotonic() + _PATIENCE
                    selector.register(stranger, selectors.EVENT_READ)
                    if len(strangers) > most:
                        drop_one()
                    continue
                link: Link = key.fileobj  # type: ignore[assignment]
                for message in link.receive() if link in strangers else ():
                    match message:
                        case ["hello", int(rank), str(host)] if 0 <= rank < size:
                            part_from(link)
                            if rank in members:  # it tries again, because it had no answer in time
                                members[rank][0].close()
                            members[rank] = (link, host)
                            link.send("welcome")
                if link.closed and link in strangers:
                    part_from(link)
                    link.close()
            now = time.monotonic()
            for link in [link for link, (_, until) in strangers.items() if until < now]:
                part_from(link)
                link.close()
    for link in strangers:
        link.close()
    return members


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def connect(place: Place, rank: int, deadline: float) -> Link | None:
    """Connects to rank 0, trying its addresses in turn; None where none had answered by `deadline`."""
    addresses = place.addresses
    if place.host == socket.gethostname():
        addresses = ["127.0.0.1", *addresses]
    while time.monotonic() < deadline:
        for address in addresses:
            with contextlib.suppress(OSError):
                connection = socket.create_connection((address, place.port), timeout=2.0)
                link = Link(connection, place.token, listens=False)
                if _introduce(link, rank, deadline):
                    return link
                link.close()
        time.sleep(0.2)
    return None


def _introduce(link: Link, rank: int, deadline: float) -> bool:
    """Proves who this is; False where the other side is not who listens at that place."""
    deadline = min(deadline, time.monotonic() + _PATIENCE)
    if wait_for(link, lambda message: message == ["challenge"], deadline) is None:
        return False
    link.send("hello", rank, socket.gethostname())
    return wait_for(link, lambda message: message == ["welcome"], deadline) is not None
