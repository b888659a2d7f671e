"""One connection between two processes of a run that know its secret: messages, and values as bytes."""

import collections
import contextlib
import hashlib
import hmac
import json
import secrets
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct("<cQ")  # kind of a frame, and the bytes of its content
_MESSAGE, _VALUE = b"m", b"v"
# _NONCE: bytes of randomness that each side of a connection begins with.
_NONCE = 32
# _TAG: bytes of a frame's proof; 128 bits, which nobody guesses.
_TAG = 16
# _TAGGED: bytes of a frame that its tag is of; 0.2 ms of hashing. Hashing large arrays takes longer than sending them.
_TAGGED = 65_536
# _LONGEST_FROM_STRANGER: content bytes of the first frame, which is read before its proof.
_LONGEST_FROM_STRANGER = 4096
_LARGEST_PIECE = 1 << 20  # bytes in one call of the system


class Link:
    """Messages and values over one connection, each with a proof that the other side of it knows the secret.

    Both sides begin with a nonce, and the first message that a link receives is `["challenge"]`, once the other's nonce
    is there. The secret and both nonces give a key for each direction. Every frame ends with a tag by that key: keyed
    BLAKE2b (RFC 7693) of its number and contents. A frame has a wrong tag where it was heard in another connection, was
    changed, comes a second time or out of order, or comes back to its sender. Then the link closes without reading it.

    Frames are not encrypted. The tag is of a frame's length and its first 64 KB. Whoever can change packets on the way
    can change the numbers of larger arrays, as with MPI.

    Args:
      connection: connected; it is this link's from now on.
      secret: of the run.
      listens: whether this is the side that the other one connected to.
    """

    def __init__(self, connection: socket.socket, secret: str, listens: bool):
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._secret, self._listens, self._nonce = secret, listens, secrets.token_bytes(_NONCE)
        # Keys for what is sent and received, and how many frames were.
        self._keys: tuple[bytes, bytes] | None = None
        self._num_sent = self._num_received = 0
        self._received = bytearray()
        self._messages: list[list[Any]] = []
        self._unsent: collections.deque[memoryview] = collections.deque([memoryview(self._nonce)])
        self._sending = threading.Lock()
        self.closed = False
        self.flush()

    def fileno(self) -> int:
        return self._connection.fileno()

    def peer(self) -> str:
        """The other side's address; OSError where it has gone."""
        address: str = self._connection.getpeername()[0]
        return address.removeprefix("::ffff:")

    def send(self, *message: Any) -> None:
        """Sends a message, without waiting. Where that fails, `receive` finds the connection closed."""
        try:
            self._send(_MESSAGE, json.dumps(message).encode())
        except OSError:
            with self._sending:
                self._unsent.clear()

    def send_bytes(self, *parts: bytes | memoryview) -> None:
        """Sends a value, which comes as `["bytes", data]`; waits while the other side does not read.

        Raises:
          OSError: the connection has ended.
        """
        writable = select.poll()
        writable.register(self.fileno(), select.POLLOUT)
        done = self._send(_VALUE, *parts)
        while not done:
            writable.poll(1000)
            done = self._send()

    def flush(self) -> bool:
        """Sends what goes without waiting; whether nothing is left."""
        try:
            return self._send()
        except OSError:
            return True

    def _send(self, kind: bytes = b"", *parts: bytes | memoryview) -> bool:
        """Queues a frame, if one is given, and sends what goes; whether that was everything. Any thread may call it."""
        with self._sending:
            if kind:
                assert self._keys, "a link sends after the challenge"
                header = _HEADER.pack(kind, sum(len(part) for part in parts))
                frame = (header, *parts, _tag(self._keys[0], self._num_sent, header, *parts))
                self._num_sent += 1
                small = sum(len(part) for part in frame) <= _LARGEST_PIECE
                self._unsent.extend(map(memoryview, [b"".join(frame)] if small else frame))
            try:
                while self._unsent:
                    sent = self._connection.send(self._unsent[0][:_LARGEST_PIECE])
                    self._unsent[0] = self._unsent[0][sent:]
                    if not self._unsent[0]:
                        self._unsent.popleft()
            except BlockingIOError:
                return False
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
        if self._keys is None:
            if len(self._received) < _NONCE:
                return
            self._keys = self._agree(self._cut(_NONCE))
            self._messages.append(["challenge"])
        while len(self._received) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._received)
            end = _HEADER.size + length
            if length > _LONGEST_FROM_STRANGER and not self._num_received:
                self._refuse()
            elif len(self._received) < end + _TAG:
                return
            elif not self._is_genuine(end):
                self._refuse()
            else:
                self._num_received += 1
                # A slice of it all would copy a large value twice.
                _, content, _ = map(self._cut, (_HEADER.size, length, _TAG))
                self._messages.append(["bytes", content] if kind == _VALUE else json.loads(content))

    def _agree(self, theirs: bytes) -> tuple[bytes, bytes]:
        """The keys for what this side sends, and for what it receives."""
        nonces = self._nonce + theirs if self._listens else theirs + self._nonce
        keys = [
            hashlib.blake2b(
                nonces, key=self._secret.encode(), person=sender, digest_size=32
            ).digest()
            for sender in (b"listens", b"connects")
        ]
        mine, other = keys if self._listens else reversed(keys)
        return mine, other

    def _is_genuine(self, end: int) -> bool:
        assert self._keys
        with memoryview(self._received) as view:
            expected = _tag(self._keys[1], self._num_received, view[:end])
            return hmac.compare_digest(expected, view[end : end + _TAG])

    def _refuse(self) -> None:
        """Somebody else said that; nothing after it is looked at."""
        self._received.clear()
        self.closed = True

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

    def detach(self) -> int:
        """The descriptor of the connection, for another user of it, who waits in its calls; the link is closed."""
        self.closed = True
        self._connection.setblocking(True)
        return self._connection.detach()

    def close(self) -> None:
        self.closed = True
        self._connection.close()


def _tag(key: bytes, number: int, *parts: bytes | memoryview) -> bytes:
    digest, left = hashlib.blake2b(number.to_bytes(8), key=key, digest_size=_TAG), _TAGGED
    for part in parts:
        digest.update(part[:left])
        left -= min(left, len(part))
    return digest.digest()


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
