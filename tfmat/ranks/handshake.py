"""How connections begin: rank 0 listens, the others prove that they belong to the run, and rank 0 that it does."""

import contextlib
import dataclasses
import fcntl
import hashlib
import hmac
import json
import resource
import secrets
import selectors
import socket
import struct
import time
from typing import Any

from tfmat.ranks.link import Link, wait_for

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface


@dataclasses.dataclass(frozen=True)
class Place:
    """The addresses and the port that rank 0 listens on, and the secret of this run."""

    host: str
    addresses: list[str]
    port: int
    token: str

    def proof(self, *words: object) -> str:
        """What only a process that knows the token can say about `words`."""
        text = json.dumps(words).encode()
        return hmac.new(self.token.encode(), text, hashlib.sha256).hexdigest()


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
    """What other nodes may reach this one by: its name, then the address of each interface.

    Which of them leads here from another node (and not to a bridge of the same address there) is found out by trying:
    the proofs show who answers.
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

    Returns:
      rank -> its connection and host name; ranks are missing where the deadline came first. Connections of others are
      closed.
    """
    _allow_open_files(size + 256)
    listener.setblocking(False)
    members: dict[int, tuple[Link, str]] = {}
    strangers: set[Link] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while len(members) < size - 1 and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fileobj is listener:
                    with contextlib.suppress(OSError):
                        stranger = Link(listener.accept()[0])
                        strangers.add(stranger)
                        selector.register(stranger, selectors.EVENT_READ)
                    continue
                link: Link = key.fileobj  # type: ignore[assignment]
                messages = link.receive()
                if not messages and not link.closed:
                    continue
                selector.unregister(link)
                strangers.discard(link)
                known = _check_hello(place, size, messages)
                if known is None:
                    link.close()
                    continue
                rank, host, nonce = known
                if rank in members:  # it tries again, because it had no answer in time
                    members[rank][0].close()
                members[rank] = (link, host)
                link.takes_bytes = True
                link.send("welcome", place.proof("welcome", nonce))
    for link in strangers:
        link.close()
    return members


def _check_hello(place: Place, size: int, messages: list[list[Any]]) -> tuple[int, str, str] | None:
    """Rank, host and nonce of a `hello` with the right proof."""
    match messages:
        case [["hello", int(rank), str(host), str(nonce), str(proof)]] if 0 < rank < size:
            expected = place.proof("hello", rank, host, nonce)
            if _same(expected, proof):
                return rank, host, nonce
    return None


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode(errors="replace"))


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
                # Nothing is unpacked before the proof, which comes as the first message.
                link = Link(connection, takes_bytes=True)
                if _introduce(link, place, rank, deadline):
                    return link
                link.close()
        time.sleep(0.2)
    return None


def _introduce(link: Link, place: Place, rank: int, deadline: float) -> bool:
    """Exchanges the proofs; False where the other side is not rank 0 of this run."""
    host, nonce = socket.gethostname(), secrets.token_hex(16)
    link.send("hello", rank, host, nonce, place.proof("hello", rank, host, nonce))
    deadline = min(deadline, time.monotonic() + 5.0)
    answer = wait_for(link, lambda message: message[0] == "welcome", deadline)
    if answer is None:
        return False
    expected = place.proof("welcome", nonce)
    return len(answer) == 2 and _same(expected, str(answer[1]))
