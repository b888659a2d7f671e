"""One connection between two processes of a run: lines of JSON, and whole values as bytes."""

import collections
import contextlib
import json
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

_LONGEST_LINE = 65_536  # bytes
_LARGEST_PIECE = 1 << 20  # bytes in one call of the system


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
