"""One connection of each process to rank 0, over which they talk and watch each other, and how a process ends."""

import collections
import contextlib
import dataclasses
import errno
import hashlib
import hmac
import itertools
import json
import math
import os
import pathlib
import queue
import resource
import secrets
import select
import selectors
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

import numpy as np

from tfmat.console import printable
from tfmat.errors import InputError, TfmatError, WorkerLostError
from tfmat.files import make_folder, write_error
from tfmat.launch.processes import START_TIMEOUT, Processes, seconds_setting

# --------------------------------------------------------------------------------------------------
# How a process of a run ends, whatever its main thread does at that moment: one line, and the right exit status.


OnLoss = Callable[[str], None]
_LAST_WORDS = 5.0  # seconds for the line and the callback


def end_process(
    message: str | None,
    on_loss: OnLoss | None = None,
    status: int = WorkerLostError.exit_status,
) -> NoReturn:
    """Writes the line, calls `on_loss` with it, and ends the process, whatever its main thread does."""
    last_words(message, on_loss)
    os._exit(status)


def last_words(message: str | None, on_loss: OnLoss | None) -> None:
    """Speaks in a thread: a full pipe, a lock of the main thread or a dead disk may hold each part of it forever."""

    def speak() -> None:
        if message:
            # Not through sys.stderr, whose lock the main thread may hold; one write, so that lines do not mix.
            write_line(f"tfmat: {message}\n")
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if message and on_loss:
            with contextlib.suppress(Exception):
                on_loss(message)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    speaker.join(_LAST_WORDS)


def write_line(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, printable(text).encode(errors="replace"))


@contextlib.contextmanager
def start_timer(rank: int, seconds: float | None = None) -> Iterator[None]:
    """Ends the process with status 4 where the block, in which the ranks find each other, takes too long.

    Rank 0 writes a line, rank 1 where rank 0 is stopped. Without `seconds` HOROVOD_START_TIMEOUT counts.
    """
    seconds = seconds_setting(START_TIMEOUT) if seconds is None else seconds
    message = (
        f"not all ranks appeared within {seconds:g} s (seen from rank {rank}, host {socket.gethostname()}) in phase "
        "starting; look whether every node runs its processes, or allow more seconds with HOROVOD_START_TIMEOUT"
    )
    # mpirun kills all within about two seconds of the first one that ends.
    delay = {0: 0.0, 1: 4.0}.get(rank, 5.0)
    timer = threading.Timer(seconds + delay, end_process, [message if rank < 2 else None])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception of this process, as the others are told of it.

    Attributes:
      text: one line.
      trace: the traceback; empty for what is no defect, since nobody has to look for it in the code.
      status: of the exit: 2 for what the user gave, 4 for everything else.
    """

    text: str
    trace: str
    status: int

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """The text that is told of an exception."""
        trace = ""
        if isinstance(error, TfmatError):
            text = str(error)
        elif _full_disk(error):
            text = str(write_error(error.filename or "the output", error))
        else:
            text = "".join(traceback.format_exception_only(error))
            trace = "".join(traceback.format_exception(error))
        users = isinstance(error, InputError) or _full_disk(error)
        status = (InputError if users else WorkerLostError).exit_status
        return cls(" ".join(text.split())[:1000], trace, status)


def _full_disk(error: BaseException) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# --------------------------------------------------------------------------------------------------
# Values as bytes and back, for the connections of a run: JSON's, tuples, NumPy's arrays. None of them holds code.


_LENGTH = struct.Struct("<Q")  # bytes of the text before the arrays


def pack(value: Any) -> list[bytes | memoryview]:
    """The bytes of a value, in parts; the arrays' are not copied.

    A value is None, a bool, number or string, an array of numbers or strings, or lists, tuples and dictionaries of
    such; TypeError where it holds something else.
    """
    arrays: list[np.ndarray] = []
    text = json.dumps(_described(value, arrays)).encode()
    return [
        _LENGTH.pack(len(text)) + text,
        *(array.reshape(-1).view(np.uint8).data for array in arrays),
    ]


def unpack(data: bytes) -> Any:
    """The value; a named tuple is a plain one."""
    (length,) = _LENGTH.unpack_from(data)
    place = _LENGTH.size + length

    def restored(value: Any) -> Any:
        nonlocal place
        match value:
            case list():
                return [restored(each) for each in value]
            case {"tuple": each}:
                return tuple(restored(each))
            case {"dict": pairs}:
                return dict(map(tuple, restored(pairs)))
            case {"array": [type_name, shape]}:
                numbers = np.empty(shape, type_name)
                numbers.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                    data, np.uint8, numbers.nbytes, place
                )
                place += numbers.nbytes
                return numbers[()]  # an array of no axis is a number
        return value

    return restored(json.loads(data[_LENGTH.size : place]))


def _described(value: Any, arrays: list[np.ndarray]) -> Any:
    """The value in terms of JSON; its arrays are added to the others, in order."""
    match value:
        case np.ndarray() | np.generic() if value.dtype.kind != "O":
            arrays.append(np.ascontiguousarray(value))
            # Types that NumPy does not have itself, such as bfloat16, are known by their names.
            type_name = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
            return {"array": [type_name, value.shape]}
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_described(each, arrays) for each in value]
        case tuple():
            return {"tuple": [_described(each, arrays) for each in value]}
        case dict():
            return {"dict": [[_described(each, arrays) for each in pair] for pair in value.items()]}
    raise TypeError(f"a process of a run cannot send a {type(value).__name__} to another one")


# --------------------------------------------------------------------------------------------------
# Conclusions of the watchdog from the state of each rank, in one line.


AGAIN = "start the same command again to go on from the last checkpoint"


@dataclasses.dataclass
class Member:
    """The state of one rank. Times are of the monotonic clock here, in seconds."""

    rank: int
    host: str
    heard: float
    phase: str = "starting"
    step: int | None = None
    collective: bool = False
    since: float = 0.0
    left: bool = False  # in order: it said goodbye

    def position(self) -> str:
        """`in phase training at step 1200`."""
        return f"in phase {self.phase}" + ("" if self.step is None else f" at step {self.step}")

    def update(self, message: list[Any], now: float) -> None:
        """Takes in a message that came `now`: that it came, and what a `state` says."""
        self.heard = now
        match message:
            case [
                "state",
                str(phase),
                int() | None as step,
                bool(collective),
                float() | int() as age,
            ]:
                self.phase, self.step, self.collective = phase, step, collective
                self.since = now - age


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One thing that went wrong: `kind` is one of KINDS, `text` says more, `ranks` are those it went wrong on."""

    kind: str
    ranks: tuple[int, ...]
    text: str
    status: int = WorkerLostError.exit_status


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The line that is written, the ranks that it blames, and the exit status of all."""

    line: str
    blamed: tuple[int, ...] = ()
    status: int = WorkerLostError.exit_status


# The surest cause first. A process that dies makes others fail or wait, so its death is told and not their complaint;
# one that failed has said so before it ends, and is never counted as dead.
KINDS = ("dead", "failed", "silent", "deadlock")


def describe(evidence: Iterable[Evidence], members: Mapping[int, Member], size: int) -> Verdict:
    """The conclusion from evidence in the order in which it came: the surest kind counts, and its first piece."""
    pieces = list(evidence)
    first = min(pieces, key=lambda piece: KINDS.index(piece.kind))
    if first.kind == "deadlock":
        return Verdict(f"the ranks wait for each other forever: {first.text}; {AGAIN}", first.ranks)
    member = members[first.ranks[0]]
    if first.kind == "failed":
        who = f"{name_ranks(first.ranks)} of {size}"
        line = f"{who} failed (host {member.host}) {member.position()}: {first.text}"
        if first.status == InputError.exit_status:  # a user's mistake, which all ranks may have met
            line = first.text if 0 in first.ranks else f"{who} (host {member.host}): {first.text}"
        return Verdict(line, first.ranks, first.status)
    # A node that goes takes all its ranks along.
    same = [piece for piece in pieces if (piece.kind, piece.text) == (first.kind, first.text)]
    lost = {rank for piece in same for rank in piece.ranks if members[rank].host == member.host}
    who = f"{name_ranks(tuple(lost))} of {size} {'was' if len(lost) == 1 else 'were'} lost"
    line = f"{who} (host {member.host}, {first.text}) {member.position()}; {AGAIN}"
    return Verdict(line, tuple(lost))


def deadlock(members: Iterable[Member], now: float, seconds: float) -> Evidence | None:
    """All ranks that are still there wait in collectives, none has moved for `seconds`, and not at the same place.

    At the same place a rank is only slow; outside a collective it has work of its own, such as a checkpoint on a slow
    disk. Neither is a fault.
    """
    groups: dict[str, list[int]] = {}
    for member in members:
        if member.left:
            continue
        if not member.collective or now - member.since < seconds:
            return None
        groups.setdefault(member.position(), []).append(member.rank)
    if len(groups) < 2:
        return None
    places = [f"{name_ranks(ranks)} {position}" for position, ranks in groups.items()]
    more = f" and {len(places) - 4} other places" if len(places) > 4 else ""
    ranks = tuple(sorted(rank for group in groups.values() for rank in group))
    return Evidence("deadlock", ranks, f"{', '.join(places[:4])}{more}, for {seconds:g} s")


def name_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 7`; the first eight pieces where there are more."""
    # Neighbours are as far from their places in the list.
    runs = itertools.groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])
    pieces = [[rank for _, rank in run] for _, run in runs]
    texts = ["-".join(dict.fromkeys((f"{run[0]}", f"{run[-1]}"))) for run in pieces]
    shown = ", ".join(texts[:8]) + (", ..." if len(texts) > 8 else "")
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}"


# --------------------------------------------------------------------------------------------------
# One connection between two processes of a run that know its secret: messages, and values as bytes.


_HEADER = struct.Struct("<cQ")  # kind of a frame, and the bytes of its content
_MESSAGE, _VALUE = b"m", b"v"
# _NONCE: bytes of randomness that each side of a connection begins with.
_NONCE = 32
# _TAG: bytes of a proof; 128 bits, which nobody guesses.
_TAG = 16
# _PIECE: bytes in one call of the system. A piece is hashed while the one before it is on its way.
_PIECE = 1 << 18
# FORGED: why a link has ended; fits into "rank 1 of 2 was lost (...)".
FORGED = (
    "a message of it lacks the run's proof: somebody changed, repeated or made it up on the way"
)


class ForgedMessageError(WorkerLostError):
    """A connection to another process of the run carried what this process did not send."""


class Link:
    """Messages and values over one connection, each with a proof that the other side of it knows the secret.

    Both sides begin with a nonce, and the first message that a link receives is `["challenge"]`, once the other's nonce
    is there. The secret and both nonces give a key for each direction. Every frame has two tags by that key, after its
    header and at its end: keyed BLAKE2b (RFC 7693) of its number and of all its bytes so far. A frame has a wrong tag
    where it was heard in another connection, was changed, comes a second time or out of order, or comes back to its
    sender. Neither that frame nor what comes after it is read. Frames are not encrypted.

    Attributes:
      closed: the other side has ended the connection.
      forged: a tag was wrong; no message comes any more.
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
        # How many of these bytes are in the digest of the frame that they begin with.
        self._hashed = 0
        self._messages: list[list[Any]] = []
        # Pieces of each frame that is not sent yet; the first piece may have been sent in part.
        self._unsent: collections.deque[Iterator[memoryview]] = collections.deque()
        self._piece = memoryview(self._nonce)
        self._sending = threading.Lock()
        self.closed = self.forged = False
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
                self._piece = memoryview(b"")

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

    def receive_bytes(self) -> bytes:
        """The next value; waits for it, with other messages left out.

        Raises:
          ForgedMessageError: it has a wrong tag.
          EOFError: the connection has ended.
        """
        found = wait_for(self, lambda message: message[0] == "bytes", math.inf)
        if found is not None:
            data: bytes = found[1]
            return data
        if self.forged:
            raise ForgedMessageError(f"{FORGED}; {AGAIN}")
        raise EOFError

    def _send(self, kind: bytes = b"", *parts: bytes | memoryview) -> bool:
        """Queues a frame, if one is given, and sends what goes; whether that was everything. Any thread may call it."""
        with self._sending:
            if kind:
                assert self._keys, "a link sends after the challenge"
                length = sum(len(part) for part in parts)
                digest = _digest(self._keys[0], self._num_sent)
                frame = _frame(digest, _HEADER.pack(kind, length), parts)
                self._unsent.append(
                    frame if length > _PIECE else iter([memoryview(b"".join(frame))])
                )
                self._num_sent += 1
            try:
                while self._piece or self._unsent:
                    if self._piece:
                        self._piece = self._piece[self._connection.send(self._piece) :]
                    elif (piece := next(self._unsent[0], None)) is not None:
                        self._piece = piece
                    else:
                        self._unsent.popleft()
            except BlockingIOError:
                return False
        return True

    def receive(self) -> list[list[Any]]:
        """The messages that have come; `closed` and `forged` say whether more can come. Does not wait."""
        try:
            data = b"" if self.closed else self._connection.recv(_PIECE)
            self.closed = not data
            if not self.forged:
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
            self._digest = _digest(self._keys[1], 0)
            self._messages.append(["challenge"])
        while len(self._received) >= _HEADER.size + _TAG:
            if not self._hashed and not self._proves(_HEADER.size):
                return
            kind, length = _HEADER.unpack_from(self._received)
            if not self._proves(_HEADER.size + _TAG + length):
                return
            self._num_received += 1
            self._hashed, self._digest = 0, _digest(self._keys[1], self._num_received)
            # A slice of it all would copy a large value twice.
            _, content, _ = map(self._cut, (_HEADER.size + _TAG, length, _TAG))
            self._messages.append(["bytes", content] if kind == _VALUE else json.loads(content))

    def _proves(self, end: int) -> bool:
        """Whether a frame's bytes up to `end` have come, with the right tag after them."""
        with memoryview(self._received) as view:
            self._digest.update(view[self._hashed : end])
            self._hashed = min(len(view), end)
            if len(view) < end + _TAG:
                return False
            self._hashed += _TAG
            genuine = hmac.compare_digest(self._digest.digest(), view[end : end + _TAG])
        self.forged = not genuine
        return genuine

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


def _digest(key: bytes, number: int) -> hashlib.blake2b:
    """The hash of a frame, before its first byte."""
    return hashlib.blake2b(number.to_bytes(8), key=key, digest_size=_TAG)


def _frame(
    digest: hashlib.blake2b, header: bytes, parts: Sequence[bytes | memoryview]
) -> Iterator[memoryview]:
    """A frame in pieces, each hashed when it is wanted."""
    digest.update(header)
    yield memoryview(header + digest.digest())
    for part in parts:
        for start in range(0, len(part), _PIECE):
            digest.update(piece := memoryview(part)[start : start + _PIECE])
            yield piece
    yield memoryview(digest.digest())


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
            if link.closed or link.forged or left <= 0:
                return None
            selector.select(None if left == math.inf else left)


# --------------------------------------------------------------------------------------------------
# How connections begin: one side listens, the others prove that they belong to the run, and it proves that it does.


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
    """Addresses by which other nodes may reach this one: its name, then the addresses of its interfaces.

    Some may lead to a bridge of the same address on the other node. Ranks try them all; the proofs show who answers.
    """
    import psutil  # 20 ms, and every command reads what the environment says of the watch

    found = itertools.chain.from_iterable(psutil.net_if_addrs().values())
    addresses = [each.address for each in found if each.family == socket.AF_INET]
    return [each for each in (socket.gethostname(), *addresses) if not each.startswith("127.")]


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
    forged: collections.Counter[str] = collections.Counter()
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
                if (link.closed or link.forged) and link in strangers:
                    forged[strangers[link][0]] += link.forged
                    part_from(link)
                    link.close()
            now = time.monotonic()
            for link in [link for link, (_, until) in strangers.items() if until < now]:
                part_from(link)
                link.close()
    for link in strangers:
        link.close()
    if count := forged.total():
        addresses = ", ".join(address for address, times in forged.items() if times)
        write_line(
            f"tfmat: port {place.port} refused {count} connection{'s' if count > 1 else ''} that did not know this "
            f"run's secret, from {addresses}\n"
        )
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


# --------------------------------------------------------------------------------------------------
# The processes of a run, each joined to rank 0 by one connection that carries everything they tell each other.
#
# Two kinds of messages share the connections. Values go from main thread to main thread: `broadcast`, `gather`,
# `barrier`. The sign of life goes once a second from a thread that every process has for that, because a collective of
# MPI or of TensorFlow waits until every rank has come: a rank that was killed, that is stopped, that raised an
# exception or that came to another collective leaves the others hanging inside C++, where Python runs no signal handler
# and no `except`. Once `watch` was called, the threads end all processes where one fails:
#
# * Every rank tells its phase and step once a second and at each change of the phase, and rank 0 answers, so that they
#   notice its loss too. A few dozen bytes a second each; rank 0 serves all of them in one thread.
# * A connection that closes without a goodbye means that the process died (SIGKILL, os._exit). No word for
#   TFMAT_WORKER_TIMEOUT seconds means that it is stopped or that its node is gone; time in which the listener itself
#   stood still does not count. `fail` tells an exception. Ranks that wait in collectives at different places wait for
#   each other.
# * Rank 0 gathers for a moment what it hears, since one death makes others complain, chooses the surest cause, tells
#   all ranks to be quiet, writes one line to standard error and ends; then all end, with exit status 4. Where rank 0
#   itself is lost, rank 1 writes the line, and the others give it time for that: mpirun kills all ranks about two
#   seconds after the first one ended. Where rank 1 is lost as well (same node), one rank of another node writes it a
#   little later.
#
# A failure is told within a second (a death, an exception), or after the time-out and at most six seconds more.


_SHORTEST_BEAT = 0.05  # seconds between two messages, however often the phase changes
_IDLE_BEAT = 3600.0  # seconds; nobody watches yet
# Seconds in which rank 0 ends after its verdict: last words, and a second for the others.
QUIET = 8.0


class Star(threading.Thread):
    """One process's end; made by `meet`, which also starts its thread.

    On rank 0 the links go to all others, elsewhere to rank 0; the members are at the other ends, on rank 0 also itself.

    Attributes:
      secret: of the run; never sent over a link, because it could be read on the way.
    """

    secret = ""
    # When `_judge` wants to be called at the latest.
    _verdict_time = math.inf

    def __init__(
        self,
        rank: int,
        size: int,
        members: dict[int, Member],
        links: dict[int, Link],
        on_loss: OnLoss | None,
    ):
        super().__init__(name="tfmat-ranks", daemon=True)
        self.rank, self.size = rank, size
        self._on_loss = on_loss
        self._members, self._links = members, links
        # Values that the main thread has not taken yet; None where nothing can come any more.
        self._values: dict[int, queue.SimpleQueue[bytes | None]] = {
            other: queue.SimpleQueue() for other in links
        }
        # Phase, step, whether it waits for others, and since when: set by the main thread, told by the other.
        self._position: tuple[str, int | None, bool, float] = (
            "starting",
            None,
            False,
            time.monotonic(),
        )
        self._timeout, self._interval, self._watches = math.inf, _IDLE_BEAT, False
        self._selector = selectors.DefaultSelector()
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        for other, link in links.items():
            self._selector.register(link, selectors.EVENT_READ, other)
        # Why nothing comes from a process any more.
        self._ends: dict[int, str] = {}
        self._leaving = False
        self._failure: Failure | None = None
        # Set when the end of this process is near, and who speaks is known.
        self._decided = threading.Event()

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value (see `tfmat.launch.watchdog.pack`) on every rank; every rank calls it at the same place.

        Raises:
          WorkerLostError: a process has gone.
        """
        if self.rank:
            return self._receive(0)
        parts = pack(value)
        for other in range(1, self.size):
            self._send(self._links.get(other), parts)
        return value

    def gather(self, value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
        """The result of rank 0's `combine` of every rank's value, in the order of the ranks; see `broadcast`."""
        if self.rank:
            self._send(self._links.get(0), pack(value))
            return self._receive(0)
        others = [self._receive(other) for other in range(1, self.size)]
        return self.broadcast(combine([value, *others]))

    def barrier(self) -> None:
        """Returns when all ranks have come."""
        self.gather(None)

    def addresses(self) -> list[str]:
        """Every rank's host as the others reach it, by rank; every rank calls it."""
        link = self._links.get(0)
        seen = self.gather(link.peer() if link else "")
        # Rank 0's as another host sees it, or loopback where there is none.
        mine = next((address for address in seen[1:] if not _loopback(address)), "127.0.0.1")
        peers = [self._links[other].peer() for other in range(1, self.size) if not self.rank]
        return self.broadcast([mine, *(mine if _loopback(peer) else peer for peer in peers)])

    def watch(self, timeout_seconds: float, deadline: float) -> None:
        """Begins to end all processes where one is lost; every rank calls it.

        Args:
          timeout_seconds: silence after which a rank is lost; rank 0's holds for all. 0 to watch nobody.
          deadline: of the monotonic clock, by which rank 0 must have called it too.
        """
        raise NotImplementedError

    def announce(self, phase: str, step: int | None, collective: bool) -> None:
        """Says what this rank does now; cheap enough for every call of a training loop.

        The phase fits into "in phase ...", as `comparing weights` does. While it is not `collective`, being slow is no
        fault.
        """
        changes = phase != self._position[0]
        self._position = (phase, step, collective, time.monotonic())
        if changes and self.is_alive():
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends all ranks because of an exception on this one: one line from rank 0, and one exit status.

        Returns only where there is nobody to tell: nobody watches, not yet or not any more.
        """
        if not (self._watches and self.is_alive()):
            return
        failure = self._failure = Failure.of(error)
        self._wake()
        if not self._decided.wait(2.0) and self.is_alive():  # rank 0 does not answer
            member = Member(self.rank, socket.gethostname(), 0.0, *self._position)
            evidence = Evidence("failed", (member.rank,), failure.text, failure.status)
            verdict = describe([evidence], {member.rank: member}, self.size)
            end_process(verdict.line, self._on_loss, failure.status)
        self.join(2 * QUIET)
        if self._decided.is_set():
            end_process(None, status=failure.status)

    def close(self) -> None:
        """Leaves in order. Ranks may do so in any order and at different times; rank 0's ends the watch for all."""
        if not self.is_alive():
            return
        self._leaving = True
        self._wake()
        # A moment; or the rest of this process's life, where its end was decided before.
        self.join(2 * QUIET)
        if not self.is_alive():
            self._selector.close()
            os.close(self._alarm)

    def run(self) -> None:
        awake = beat = time.monotonic()
        next_beat = beat + self._interval
        # Messages that came together with the proof: no event will tell of them.
        for other in list(self._links):
            self._read(other, beat)
        while not self._over():
            ready = self._selector.select(
                max(0.0, min(next_beat, self._verdict_time) - time.monotonic())
            )
            now = time.monotonic()
            if now - awake > 2 * self._interval:
                # This process stood still (stopped, or its lock was held), so it cannot say that others were silent.
                for member in self._members.values():
                    member.heard += now - awake
                    member.since += now - awake
            awake = now
            for key, _ in ready:
                if key.fd == self._alarm:
                    os.eventfd_read(self._alarm)
                    next_beat = min(next_beat, beat + _SHORTEST_BEAT)
                elif key.data in self._links:
                    self._read(key.data, now)
            if self._watches and (now >= next_beat or self._failure):
                self._beat(now)
                beat, next_beat = now, now + self._interval
            self._judge(now)

    def _start_watch(self, timeout_seconds: float) -> None:
        """Begins in this thread, which knows that all ranks have come."""
        now = time.monotonic()
        for member in self._members.values():
            member.heard = member.since = now
        self._timeout = timeout_seconds
        # Rank 0 reads a thousand messages a second at most.
        self._interval = min(max(1.0, self.size / 1000), timeout_seconds / 4)
        self._watches = True
        self._wake()

    def _wake(self) -> None:
        """Has the thread look now, not at the next beat."""
        os.eventfd_write(self._alarm, 1)

    def _send(self, link: Link | None, parts: Sequence[bytes | memoryview]) -> None:
        try:
            if link is None:
                raise ConnectionError
            link.send_bytes(*parts)
        except OSError as error:
            raise _left() from error

    def _receive(self, other: int) -> Any:
        data = self._values[other].get()
        if data is None:
            self._values[other].put(None)  # for the next who asks
            raise _left()
        return unpack(data)

    def _read(self, other: int, now: float) -> None:
        link, member = self._links[other], self._members[other]
        messages = link.receive()
        member.heard = now
        for message in messages:
            match message:
                case ["bytes", bytes(data)]:
                    self._values[other].put(data)
                case _:
                    member.update(message, now)
                    self._hear(other, message, now)
            if other not in self._links:
                return
        if link.forged and other not in self._ends:  # it stays open, for the verdict
            self._ends[other] = FORGED
            self._values[other].put(None)
        if link.closed:
            self._drop(other)
        if other in self._ends:
            self._lost(other)

    def _drop(self, other: int) -> None:
        """Closes the link to one process."""
        link = self._links.pop(other)
        self._selector.unregister(link)
        link.close()
        self._ends.setdefault(other, "its process ended")
        self._values[other].put(None)

    def _state(self, now: float) -> list[Any]:
        phase, step, collective, since = self._position
        number = None if step is None else int(step)  # NumPy's integers are no JSON
        return ["state", phase, number, bool(collective), round(now - since, 3)]

    def _tell_all(self, *message: Any) -> None:
        for link in self._links.values():
            link.send(*message)

    def _write_own_trace(self, blamed: tuple[int, ...]) -> None:
        if self._failure and self.rank in blamed:
            write_line(self._failure.trace)

    def _over(self) -> bool:
        """Whether the thread can end; says goodbye where it was asked to leave."""
        raise NotImplementedError

    def _hear(self, other: int, message: list[Any], now: float) -> None:
        """Takes in a message that is no value."""
        raise NotImplementedError

    def _lost(self, other: int) -> None:
        """Takes in that nothing comes from a process any more."""

    def _beat(self, now: float) -> None:
        """Says what this rank does."""
        raise NotImplementedError

    def _judge(self, now: float) -> None:
        """Draws conclusions from what is known of the others."""
        raise NotImplementedError


def _left() -> WorkerLostError:
    return WorkerLostError(f"a worker has left; {AGAIN}")


def _loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


# --------------------------------------------------------------------------------------------------
# The two ends of the star: rank 0 hears all other ranks, and decides; the others end when it says so or is lost.


# mpirun kills all ranks about two seconds after the first one ended, and ranks notice a loss up to one beat apart.
SECOND_SPEAKER = 4.0
_SILENT = 5.0


class Worker(Star):
    """Hears rank 0, and ends the process when rank 0 says so or is lost."""

    def __init__(self, rank: int, size: int, host: str, link: Link, on_loss: OnLoss | None):
        super().__init__(rank, size, {0: Member(0, host, time.monotonic())}, {0: link}, on_loss)
        self._speaks_after: float | None = SECOND_SPEAKER if rank == 1 else None
        self._answered, self._goes = threading.Event(), False

    def watch(self, timeout_seconds: float, deadline: float) -> None:
        # Rank 0 says which ranks are missing; it has some seconds for that before this one ends.
        self._answered.wait(max(0.0, deadline + 3 - time.monotonic()))
        if not self._goes:
            self._give_up("it ended or does not answer")

    def _give_up(self, reason: str) -> NoReturn:
        """Rank 0 is lost: one of the others speaks, and the rest gives it time for that."""
        self._decided.set()
        link = self._links.get(0)
        if link:
            link.send("gave up")
        give_up(self.size, self._members[0], reason, self._speaks_after, self._on_loss)

    def _end_quietly(self, blamed: tuple[int, ...], status: int) -> NoReturn:
        """Rank 0 has decided and speaks; this process ends when rank 0 closes its connection."""
        self._decided.set()
        self._write_own_trace(blamed)
        wait_for(self._links[0], lambda message: False, time.monotonic() + QUIET)
        end_process(None, status=status)

    def _over(self) -> bool:
        if self._links and self._leaving:
            self._beat(time.monotonic())
            self._links[0].send("goodbye")
            self._drop(0)
        return not self._links

    def _hear(self, other: int, message: list[Any], now: float) -> None:
        match message:
            case ["go", int() | float() as timeout_seconds, speaks_after]:
                self._speaks_after = speaks_after
                if timeout_seconds:
                    self._start_watch(timeout_seconds)
                self._goes = True
                self._answered.set()
            case ["verdict", int(status), *blamed]:
                self._end_quietly(tuple(blamed), status)
            case ["goodbye"]:
                self._drop(0)

    def _lost(self, other: int) -> None:
        self._answered.set()
        if self._watches:
            self._give_up(self._ends[0])

    def _beat(self, now: float) -> None:
        self._tell_all(*self._state(now))
        if self._failure:
            self._tell_all("failed", self._failure.text, self._failure.status)

    def _judge(self, now: float) -> None:
        if self._links and now - self._members[0].heard > self._timeout:
            self._give_up(f"no answer for {self._timeout:g} s")


def give_up(
    size: int, rank_0: Member, reason: str, speaks_after: float | None, on_loss: OnLoss | None
) -> NoReturn:
    """Ends this process because rank 0 is lost; writes the line after so many seconds, or leaves it to another rank."""
    message = describe([Evidence("dead", (0,), reason)], {0: rank_0}, size).line
    time.sleep(_SILENT if speaks_after is None else speaks_after)
    end_process(None if speaks_after is None else message, on_loss)


_GRACE = 0.3  # seconds from the first evidence to the verdict; mpirun sends SIGTERM a second after a death


class Rank0(Star):
    """Hears all other ranks that were `found` (connection and host name of each), and decides."""

    def __init__(self, size: int, found: dict[int, tuple[Link, str]], on_loss: OnLoss | None):
        now = time.monotonic()
        members = {0: Member(0, socket.gethostname(), now, since=now)}
        for rank, (_, host) in sorted(found.items()):
            members[rank] = Member(rank, host, now, since=now)
        super().__init__(0, size, members, {rank: found[rank][0] for rank in found}, on_loss)
        self._evidence: list[Evidence] = []
        self._suspects: set[int] = set()

    def watch(self, timeout_seconds: float, deadline: float) -> None:
        """See Star.watch. Tells each of the others after how many seconds it speaks where rank 0 is lost, if at all."""
        here = self._members[0].host
        speakers = {1: 0.0}
        if self._members[1].host == here:
            elsewhere = (m.rank for m in self._members.values() if m.host != here)
            speakers |= dict.fromkeys(list(elsewhere)[:1], SECOND_SPEAKER)
        for rank, link in list(self._links.items()):
            link.send("go", timeout_seconds, speakers.get(rank))
        if timeout_seconds:
            self._start_watch(timeout_seconds)

    def end(self, verdict: Verdict) -> NoReturn:
        """Tells all to be quiet, speaks, and ends all."""
        self._decided.set()
        self._tell_all("verdict", verdict.status, *verdict.blamed)
        self._write_own_trace(verdict.blamed)
        last_words(verdict.line, self._on_loss)
        self._finish()
        os._exit(verdict.status)

    def _finish(self) -> None:
        """Reads until the others have closed: unread data would reset the connection, and lose what was sent."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and not all(
            link.flush() for link in self._links.values()
        ):
            time.sleep(0.01)
        for link in self._links.values():
            link.finish()
        while self._links and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.fd == self._alarm:
                    os.eventfd_read(self._alarm)
                    continue
                self._links[key.data].receive()
                if self._links[key.data].closed:
                    self._drop(key.data)
        for rank in list(self._links):
            self._drop(rank)

    def _over(self) -> bool:
        if self._leaving:
            self._tell_all("goodbye")
            self._finish()
        return self._leaving

    def _hear(self, other: int, message: list[Any], now: float) -> None:
        match message:
            case ["failed", str(text), int(status)]:
                self._suspect(Evidence("failed", (other,), text, status), now)
            case ["goodbye"]:
                self._members[other].left = True
            case ["gave up"]:
                # This process was stopped for long; the others have spoken, and end.
                self._decided.set()
                end_process(None)

    def _suspect(self, evidence: Evidence, now: float) -> None:
        """Notes the first evidence against each rank."""
        if self._suspects.isdisjoint(evidence.ranks):
            self._suspects.update(evidence.ranks)
            self._evidence.append(evidence)
            self._verdict_time = min(self._verdict_time, now + _GRACE)

    def _beat(self, now: float) -> None:
        self._tell_all(*self._state(now))
        if self._failure:
            self._suspect(Evidence("failed", (0,), self._failure.text, self._failure.status), now)

    def _judge(self, now: float) -> None:
        self._members[0].update(self._state(now), now)
        for rank, member in self._members.items():
            if member.left:
                continue
            if self._watches and rank in self._ends:
                self._suspect(Evidence("dead", (rank,), self._ends[rank]), now)
            if now - member.heard > self._timeout:
                text = f"no heartbeat for {self._timeout:g} s"
                self._suspect(Evidence("silent", (rank,), text), now)
        # A rank that was silent lately may be anywhere by now.
        known = all(m.left or now - m.heard < 3 * self._interval for m in self._members.values())
        if known and not self._evidence:
            found = deadlock(self._members.values(), now, self._timeout)
            if found:
                self._suspect(found, now)
        if now >= self._verdict_time:
            self.end(describe(self._evidence, self._members, self.size))


# --------------------------------------------------------------------------------------------------
# How the processes of a run find each other: rank 0 publishes where it listens and a secret, the others come.
#
# with start_timer(processes.rank):                 # MPI_Init, too, waits without end for a rank that is stopped
#     hvd.init()
#     star = meet(processes, ByBroadcast(hvd.broadcast_object), deadline)
# star.watch(20.0, deadline)
# try:
#     star.announce("training", step, collective=True)
#     ...
#     hvd.shutdown()                                # a collective too: still watched
#     star.close()
# except Exception as error:                        # on this rank only; one that all ranks raise alike needs `close`
#     star.fail(error)                              # does not return while all are watched
#     raise


# Launchers' names of this launch, in the order of tfmat.launch.processes' table; each sets all of its row.
_LAUNCH_IDS = {
    "mpirun": ("PMIX_NAMESPACE",),
    "mpiexec": ("PALS_APID",),
    "srun": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    "horovodrun": ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
}
# Seconds with one answer of `find`, which may be an earlier launch's; then it is asked again.
_SECONDS_FOR_A_PLACE = 3.0


class ByBroadcast:
    """A collective that returns rank 0's argument on every rank, `hvd.broadcast_object` for example, tells the place.

    Attributes:
      needs: what to look at where a rank does not come.
      unreachable: what to look at where rank 0 is not reached.
    """

    needs = "may open TCP connections to rank 0, or set TFMAT_WORKER_TIMEOUT=0 to go without the watchdog"
    unreachable = "it cannot be reached: are its ports open to other nodes?"

    def __init__(self, broadcast: Callable[[Any], Any]):
        self._broadcast = broadcast
        self._place: Place | None = None

    def publish(self, place: Place) -> None:
        """Rank 0 says where it is."""
        self._broadcast(dataclasses.asdict(place))

    def forget(self) -> None:
        """Rank 0 needs no more to be found."""

    def find(self) -> Place | None:
        """Rank 0's place; None where that is not known yet."""
        if self._place is None:
            self._place = Place(**self._broadcast(None))
        return self._place


class ByNote:
    """A file that all can see tells the place; methods and attributes as of `ByBroadcast`.

    Its name holds the launch's number, where the launcher gives one. A file that an earlier launch left there does no
    harm: nobody answers there with that secret, and the file is read again until rank 0 has written its own. Where all
    processes are on one node, its folder for temporary files serves in the place of `folder`.
    """

    def __init__(
        self, processes: Processes, folder: str, environment: Mapping[str, str] = os.environ
    ):
        names = _LAUNCH_IDS.get(processes.launcher, ())
        words = [processes.launcher, *(environment.get(name, "") for name in names)]
        launch = "-".join(word for word in words if word).replace("/", "_")
        if _on_one_node(processes):
            self.path = pathlib.Path(tempfile.gettempdir()) / f"tfmat-{os.getuid()}-{launch}"
        else:
            self.path = pathlib.Path(folder) / f".tfmat-{launch}"
        self.needs = f"can see {self.path.parent}, and may open TCP connections to rank 0"
        self.unreachable = (
            f"it was not reached by {self.path}, where it says where it is: does it run, and can host "
            f"{socket.gethostname()} see that folder?"
        )

    def publish(self, place: Place) -> None:
        """Writes the note for this user's eyes only: who knows the secret may send what the run believes.

        Raises:
          InputError: it cannot be written.
        """
        make_folder(self.path.parent)
        try:
            descriptor, temporary = tempfile.mkstemp(
                prefix=f"{self.path.name}.", dir=self.path.parent
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(dataclasses.asdict(place), file)
            os.replace(temporary, self.path)
        except OSError as error:
            raise write_error(self.path, error) from error

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()

    def find(self) -> Place | None:
        try:
            with self.path.open(encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                    return None  # anyone may write into a folder for temporary files
                return Place(**json.load(file))
        except (OSError, ValueError, TypeError):
            return None


Rendezvous = ByBroadcast | ByNote


def meet(
    processes: Processes, rendezvous: Rendezvous, deadline: float, on_loss: OnLoss | None = None
) -> Star:
    """Connects all ranks; every rank calls it, and it returns when all have come.

    Where one does not come by `deadline` (of the monotonic clock), it ends the process as a lost rank does: one line,
    exit status 4. InputError where rank 0 cannot publish where it is.
    """
    wait = _reach_rank_0 if processes.rank else _wait_for_others
    star = wait(processes, rendezvous, deadline, on_loss)
    star.start()
    return star


def _wait_for_others(
    processes: Processes, rendezvous: Rendezvous, deadline: float, on_loss: OnLoss | None
) -> Rank0:
    size = processes.size
    listener, place = listen(_on_one_node(processes))
    try:
        with listener:
            rendezvous.publish(place)
            found = accept(listener, place, size, deadline)
    finally:
        rendezvous.forget()
    star = Rank0(size, found, on_loss)
    star.secret = place.token
    missing = sorted(set(range(1, size)) - set(found))
    if missing:
        line = (
            f"{name_ranks(missing)} of {size} did not reach rank 0 (host {place.host}, "
            f"{' or '.join(place.addresses)}, port {place.port}) in phase starting, in the time that "
            f"HOROVOD_START_TIMEOUT gives; look whether they run and {rendezvous.needs}"
        )
        star.end(Verdict(line))
    return star


def _reach_rank_0(
    processes: Processes, rendezvous: Rendezvous, deadline: float, on_loss: OnLoss | None
) -> Worker:
    rank, size = processes.rank, processes.size
    host = "unknown"
    while (now := time.monotonic()) < deadline:
        place = rendezvous.find()
        if place:
            host = place.host
            link = connect(place, rank, min(deadline, now + _SECONDS_FOR_A_PLACE))
            if link:
                star = Worker(rank, size, host, link, on_loss)
                star.secret = place.token
                return star
        time.sleep(0.05)
    speaks_after = SECOND_SPEAKER if rank == 1 else None
    return give_up(size, Member(0, host, now), rendezvous.unreachable, speaks_after, on_loss)


def _on_one_node(processes: Processes) -> bool:
    return processes.local_size == processes.size
