"""How connections begin: who is let in, and who is believed."""

import concurrent.futures
import contextlib
import dataclasses
import socket
import time
from collections.abc import Iterator

import pytest

from tfmat.launch import watchdog
from tfmat.launch.watchdog import Link, Place, wait_for

Members = concurrent.futures.Future[dict[int, tuple[Link, str]]]


@contextlib.contextmanager
def accepting(size: int, seconds: float, one_node: bool = True) -> Iterator[tuple[Place, Members]]:
    """A place where somebody listens for the other ranks, and whom it will have let in."""
    listener, place = watchdog.listen(one_node)
    with listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = pool.submit(watchdog.accept, listener, place, size, time.monotonic() + seconds)
        yield place, found
        for link, _ in found.result().values():
            link.close()


def join(place: Place, rank: int, seconds: float = 10.0) -> bool:
    link = watchdog.connect(place, rank, time.monotonic() + seconds)
    if link:
        link.close()
    return link is not None


def dial(place: Place) -> socket.socket:
    return socket.create_connection(("127.0.0.1", place.port), timeout=10)


def test_only_ranks_with_the_token_are_let_in() -> None:
    """One that connects is silent, one talks nonsense, one has another token, one is of the run."""
    with accepting(2, 10.0) as (place, found), dial(place), dial(place) as nonsense:
        nonsense.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert not join(dataclasses.replace(place, token="0" * 32), 1, 0.3)
        assert join(place, 1)
        assert {rank: host for rank, (_, host) in found.result().items()} == {
            1: socket.gethostname()
        }


class Overheard:
    """A connection of which somebody on the way keeps what is sent."""

    def __init__(self, connection: socket.socket):
        self._connection, self.heard = connection, b""

    def send(self, data: memoryview) -> int:
        sent = self._connection.send(data)
        self.heard += data[:sent]
        return sent

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


def test_what_was_overheard_lets_nobody_in() -> None:
    """Rank 1's own words, said again: rank 0 closes the connection, and waits on."""
    with accepting(3, 10.0) as (place, found), dial(place) as connection:
        overheard = Overheard(connection)
        link = Link(overheard, place.token, listens=False)  # type: ignore[arg-type]
        assert watchdog._introduce(link, 1, time.monotonic() + 5)
        with dial(place) as evil:
            evil.sendall(overheard.heard)
            assert evil.recv(1000)  # rank 0's challenge, which is for everybody
            assert evil.recv(1000) == b""
        assert join(place, 2)
        assert list(found.result()) == [1, 2]
        first = found.result()[1][0]
        assert first.receive() == [] and not first.closed


@pytest.mark.parametrize("hello", [b"[" * 60_000, b"\xff\n", bytes(100), b"{}\n"])
def test_nonsense_does_not_disturb(hello: bytes) -> None:
    with accepting(2, 0.2) as (place, found), dial(place) as stranger:
        with contextlib.suppress(OSError):
            stranger.sendall(hello)
        assert found.result() == {}


def test_silent_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are too many, the oldest of their address goes; the rest has a while to say something."""
    monkeypatch.setattr(watchdog, "_STRANGERS", 6)
    with accepting(3, 30.0) as (place, found), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(dial(place)) for _ in range(20)]
        for stranger in silent:
            assert len(stranger.recv(32)) == 32  # every one has been taken
        assert [stranger.recv(1) for stranger in silent[:11]] == [b""] * 11
        monkeypatch.setattr(watchdog, "_PATIENCE", 0.1)
        late = stack.enter_context(dial(place))
        assert len(late.recv(32)) == 32 and late.recv(1) == b""
        monkeypatch.undo()
        assert join(place, 1) and join(place, 2)
        assert sorted(found.result()) == [1, 2]


def test_rank_0_is_reached_from_another_host() -> None:
    """An address of its interfaces leads there, since only a rank of the same host tries loopback."""
    with accepting(2, 10.0, one_node=False) as (place, found):
        elsewhere = dataclasses.replace(place, host="elsewhere")
        deadline = time.monotonic() + 10.0
        link = watchdog.connect(elsewhere, 1, deadline)
        assert link is not None and list(found.result()) == [1]
        found.result()[1][0].send("go", None)
        assert wait_for(link, lambda message: True, deadline) == ["go", None]
        link.close()


def test_a_server_without_the_token_is_not_believed() -> None:
    """It is none, or it repeats what it hears."""
    with accepting(2, 0.5) as (place, _):
        assert not join(dataclasses.replace(place, token="0" * 32), 1, 0.3)
    with socket.create_server(("127.0.0.1", 0)) as echo:
        link = Link(socket.create_connection(echo.getsockname()), "s", listens=False)
        with concurrent.futures.ThreadPoolExecutor(1) as pool, echo.accept()[0] as connection:
            told = pool.submit(watchdog._introduce, link, 1, time.monotonic() + 5)
            for _ in ("challenge", "hello"):
                connection.sendall(connection.recv(1000))
            assert not told.result() and link.closed
        link.close()
