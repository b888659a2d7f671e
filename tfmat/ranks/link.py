"""Connections between the processes of a run: rank 0 listens, the others prove that they belong to the run."""

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import hmac
import json
import resource
import secrets
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

_LONGEST_LINE = 65_536  # bytes
_LARGEST_PIECE = 1 << 20  # bytes in one call of the system
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface


class Link:
    """Lines of JSON over one connection, and between them whole values as bytes.

    Args:
      connection: connected; it is this link's from now on.
      takes_bytes: whether the other side may send values; a stranger may not.
    """

    def __init__(self, connection: socket.socket, takes_bytes: bool = False):
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._received = bytearray()
        self._messages: list[list[Any]] = []
        self._unsent: collections.deque[memoryview] = collections.deque()
        self._sending = threading.Lock()
        self._expected_bytes: int | None = None
        self.takes_bytes = takes_bytes
        self.closed = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def peer(self) -> str:
        """The other side's address; OSError where it has gone."""
        address: str = self._connection.getpeername()[0]
        return address.removeprefix("::ffff:")

    def send(self, *message: Any) -> None:
        """Sends one line, without waiting. Where that fails, `receive` finds the connection closed."""
        self._send(json.dumps(message).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Sends a value, which comes as `["bytes", data]`; waits while the other side does not read.

        Raises:
          OSError: the connection has ended.
        """
        line = json.dumps(["bytes", len(data)]).encode() + b"\n"
        writable = select.poll()
        writable.register(self.fileno(), select.POLLOUT)
        done = self._send(line, data)
        while not done:
            writable.poll(1000)
            done = self._send()

    def flush(self) -> bool:
        """Sends what goes without waiting; whether nothing is left."""
        try:
            return self._send()
        except OSError:
            return True

    def _send(self, *parts: bytes) -> bool:
        """Queues the parts and sends what goes; whether that was everything. Any thread may call it."""
        with self._sending:
            self._unsent.extend(map(memoryview, parts))
            try:
                while self._unsent:
                    sent = self._connection.send(self._unsent[0][:_LARGEST_PIECE])
                    self._unsent[0] = self._unsent[0][sent:]
                    if not self._unsent[0]:
                        self._unsent.popleft()
            except BlockingIOError:
                return False
            except OSError:
                if len(parts) != 1:
                    raise
                self._unsent.clear()
        return True

    def receive(self) -> list[list[Any]]:
        """The messages that have come; `closed` says afterwards whether more can come. Does not wait."""
        try:
            data = b"" if self.closed else self._connection.recv(_LARGEST_PIECE)
            self.closed = not data
            self._received += data
            self._take_apart()
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        messages, self._messages = self._messages, []
        return messages

    def _take_apart(self) -> None:
        """Turns what was received into messages."""
        while True:
            if self._expected_bytes is not None:
                if len(self._received) < self._expected_bytes:
                    return
                self._messages.append(["bytes", self._cut(self._expected_bytes)])
                self._expected_bytes = None
            end = self._received.find(b"\n")
            if end < 0:
                self.closed = self.closed or len(self._received) > _LONGEST_LINE
                return
            match _parsed(self._cut(end + 1)):
                case ["bytes", int(length)] if self.takes_bytes:
                    self._expected_bytes = length
                case [str(), *_] as message:
                    self._messages.append(message)

    def _cut(self, length: int) -> bytes:
        data = bytes(memoryview(self._received)[:length])
        del self._received[:length]
        return data

    def put_back(self, messages: list[list[Any]]) -> None:
        """The next `receive` returns these first."""
        self._messages = messages + self._messages

    def finish(self) -> None:
        """Says that nothing more will be sent; the other side can still read what was."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.closed = True
        self._connection.close()


def _parsed(line: bytes) -> list[Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, list) else None


@dataclasses.dataclass(frozen=True)
class Place:
    """Where rank 0 can be reached, and the secret of this run."""

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


def wait_for(link: Link, wanted: Callable[[list[Any]], bool], deadline: float) -> list[Any] | None:
    """The first message that is `wanted`; None where the connection ends or `deadline` comes before it."""
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        while True:
            messages = link.receive()
            for number, message in enumerate(messages):
                if wanted(message):
                    link.put_back(messages[number + 1 :])
                    return message
            left = deadline - time.monotonic()
            if link.closed or left <= 0:
                return None
            selector.select(left)
