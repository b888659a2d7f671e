"""How processes find, believe and tell each other, and what is concluded where one is lost."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import pickle
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

from tfmat.errors import InputError, WorkerLostError
from tfmat.launch import watchdog
from tfmat.launch.processes import Processes
from tfmat.launch.watchdog import (
    AGAIN,
    ByNote,
    Evidence,
    ForgedMessageError,
    Link,
    Member,
    Place,
    Star,
    deadlock,
    describe,
    meet,
    name_ranks,
    pack,
    start_timer,
    unpack,
    wait_for,
)

SIZE = 3


def on_all(*calls: Callable[[], Any]) -> list[Any]:
    """What each rank's call returns; they run at the same time, as those of processes do."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [called.result(60) for called in [pool.submit(call) for call in calls]]


def meet_by_note(rank: int) -> Star:
    processes = Processes(rank, SIZE, rank, SIZE, "horovodrun")
    return meet(processes, ByNote(processes, "", {}), time.monotonic() + 30)


@pytest.fixture
def note(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where rank 0 of `meet_by_note` leaves its note."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return ByNote(Processes(0, SIZE, 0, SIZE, "horovodrun"), "", {}).path


def test_values_from_rank_to_rank(note: pathlib.Path) -> None:
    stars = on_all(*[lambda rank=rank: meet_by_note(rank) for rank in range(SIZE)])
    assert list(note.parent.iterdir()) == []  # the note is gone
    said = on_all(*[lambda star=star: star.broadcast({"rank": star.rank}) for star in stars])
    assert said == [{"rank": 0}] * SIZE
    expected = ["x" * (1 + 10_000_000 * rank) for rank in range(SIZE)]
    said = on_all(*[lambda star=star: star.gather(expected[star.rank]) for star in stars])
    assert said == [expected] * SIZE
    assert on_all(*[star.addresses for star in stars]) == [["127.0.0.1"] * SIZE] * SIZE
    on_all(*[star.close for star in stars])
    for star in stars:
        with pytest.raises(WorkerLostError, match="a worker has left"):
            star.gather(0)


def test_a_value_for_a_rank_that_has_gone(note: pathlib.Path) -> None:
    stars = on_all(*[lambda rank=rank: meet_by_note(rank) for rank in range(SIZE)])
    stars[2].close()
    asked = concurrent.futures.ThreadPoolExecutor(1).submit(stars[1].gather, 1)
    with pytest.raises(WorkerLostError, match="a worker has left"):
        stars[0].gather(0)
    on_all(*[star.close for star in stars])
    assert isinstance(asked.exception(10), WorkerLostError)


def test_where_nobody_watches_a_loss_ends_nobody(note: pathlib.Path) -> None:
    """As TFMAT_WORKER_TIMEOUT=0 has it: who leaves without a word is missed by those alone that want something."""
    stars = on_all(*[lambda rank=rank: meet_by_note(rank) for rank in range(SIZE)])
    on_all(*[lambda star=star: star.watch(0.0, time.monotonic() + 10) for star in stars])
    stars[2]._links[0].close()
    stars[1].announce("training", 3, collective=True)
    stars[1].fail(InputError("tells nobody"))
    time.sleep(0.6)
    on_all(*[star.close for star in stars])


def test_an_old_note_of_the_same_launch_does_no_harm(note: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # listens, and says nothing
        place = {
            "host": socket.gethostname(),
            "addresses": ["127.0.0.1"],
            "port": nobody.getsockname()[1],
            "token": "old",
        }
        note.write_text(json.dumps(place))
        note.chmod(0o600)

        def late() -> Star:
            time.sleep(0.5)
            return meet_by_note(0)

        # The others come first, and find the old one.
        stars = on_all(late, lambda: meet_by_note(1), lambda: meet_by_note(2))
    said = on_all(*[lambda star=star: star.gather(star.rank) for star in stars])
    assert said == [[0, 1, 2]] * SIZE
    on_all(*[star.close for star in stars])


def test_a_note_that_others_can_read_or_write_is_not_believed(note: pathlib.Path) -> None:
    processes = Processes(1, SIZE, 1, SIZE, "horovodrun")
    note.write_text(json.dumps({"host": "a", "addresses": [], "port": 1, "token": "t"}))
    for mode, believed in ((0o600, True), (0o644, False), (0o606, False)):
        note.chmod(mode)
        assert (ByNote(processes, "", {}).find() is not None) == believed


def test_notes_of_several_nodes_lie_in_the_folder_that_all_can_see(tmp_path: pathlib.Path) -> None:
    processes = Processes(0, 4, 0, 2, "srun")
    environment = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}
    path = ByNote(processes, str(tmp_path), environment).path
    assert path == tmp_path / ".tfmat-srun-12-3"
    alone = dataclasses.replace(processes, local_size=4)
    assert str(os.getuid()) in ByNote(alone, str(tmp_path), environment).path.name


def test_a_start_in_time_ends_nothing() -> None:
    with start_timer(0, 0.2):
        pass
    time.sleep(0.3)


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


def test_only_ranks_with_the_token_are_let_in(capfd: pytest.CaptureFixture[str]) -> None:
    """One that connects is silent, one talks nonsense, one has another token, one is of the run."""
    with accepting(2, 10.0) as (place, found), dial(place), dial(place) as nonsense:
        nonsense.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert not join(dataclasses.replace(place, token="0" * 32), 1, 0.3)
        assert join(place, 1)
        assert {rank: host for rank, (_, host) in found.result().items()} == {
            1: socket.gethostname()
        }
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(r"refused \d connections? that did not know .* from 127\.0\.0\.1$", line)


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
            assert not told.result() and link.forged
        link.close()


def pair() -> tuple[Link, Link]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Link(socket.create_connection(server.getsockname()), "secret", listens=False)
        there = Link(server.accept()[0], "secret", listens=True)
    for link in (here, there):
        assert wait_for(link, lambda message: True, time.monotonic() + 10) == ["challenge"]
    return here, there


def receive_all(link: Link) -> list:
    received: list = []
    while not link.closed:
        received += link.receive()
    return received


def test_messages_come_whole_and_in_order_before_the_end() -> None:
    here, there = pair()
    for number in range(2000):
        here.send("state", number)
    here.close()
    assert receive_all(there) == [["state", number] for number in range(2000)]
    there.close()


def test_values_of_many_bytes_come_between_the_lines() -> None:
    """One of 30 MB, more than the system holds for a connection, while another thread sends lines."""
    here, there = pair()
    value = bytes(range(256)) * 120_000

    def send() -> None:
        here.send("before")
        here.send_bytes(value)
        here.send_bytes(b"")
        here.send("after")
        here.close()

    sender = threading.Thread(target=send)
    sender.start()
    for number in range(100):
        here.send("state", number)
    received = receive_all(there)
    sender.join()
    there.close()
    assert [each for each in received if each[0] != "state"] == [
        ["before"], ["bytes", value], ["bytes", b""], ["after"],
    ]  # fmt: skip
    assert [number for kind, number in (each for each in received if each[0] == "state")] == list(
        range(100)
    )


def changed(frame: bytes, place: int) -> bytes:
    return frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]


@pytest.mark.parametrize(
    "forge",
    [
        lambda first, value, last: [first, first],  # a second time
        lambda first, value, last: [first, last],  # one is missing
        lambda first, value, last: [first, changed(value, 700_000)],
        lambda first, value, last: [first, changed(value, len(value) - 1)],
        lambda first, value, last: [first, changed(value, 7)],  # a length for which one would wait
        lambda first, value, last: [first, b"m" + b"\xff" * 30],
    ],
)
def test_what_was_not_sent_so_is_not_read(forge: Callable) -> None:
    """Messages of a link go through somebody who repeats, leaves out or changes one."""
    here, there = pair()
    connection, here._connection = here._connection, mock.Mock()
    frames = []
    for send in (
        lambda: here.send("state", 0),
        lambda: here._send(b"v", bytes(800_000)),
        lambda: here.send("state", 2),
    ):
        heard: list[bytes] = []
        here._connection.send = lambda data, heard=heard: heard.append(bytes(data)) or len(data)
        send()
        frames.append(b"".join(heard))
    connection.setblocking(True)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(connection.sendall, b"".join(forge(*frames))).add_done_callback(
            lambda sent: connection.close()
        )
        assert receive_all(there) == [["state", 0]]
    assert there.forged
    with pytest.raises(ForgedMessageError):
        there.receive_bytes()
    there.close()


class Named(NamedTuple):
    number: int


@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, 3, -0.0, 1e-320, float("inf"), "\ud800 ö", [], {}],
        (1, (2.5, [(), (None,)])),
        {"a": {"tuple": [1]}, 3: (4,), ("array", 1): {"array": "no"}, "dict": {"list": [[1]]}},
    ],
)
def test_values_come_as_they_went(value):
    assert repr(unpack(b"".join(pack(value)))) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array(3, np.int64),
        np.zeros((0, 5), np.float32),
        np.array([True, False]),
        np.array(["a", "bc"]),
        np.arange(3).astype(ml_dtypes.bfloat16),
        np.arange(3, dtype=">u2"),
    ],
)
def test_arrays_keep_type_shape_and_numbers(array):
    first, found, last = unpack(b"".join(pack([array.T, (array,), np.float32(0.1)])))
    assert found[0].dtype == array.dtype and found[0].shape == array.shape
    np.testing.assert_array_equal(found[0], array)
    np.testing.assert_array_equal(first, array.T)
    assert type(last) is np.float32 and last == np.float32(0.1)
    if array.ndim:
        assert found[0].flags.writeable


def test_nothing_else_goes():
    assert unpack(b"".join(pack(Named(3)))) == (3,)
    for value in ({1}, object(), np.array([None]), [b"bytes"]):
        with pytest.raises(TypeError, match="cannot send a"):
            pack(value)


def test_a_pickle_is_no_value(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "done"),)

    with pytest.raises(UnicodeDecodeError):
        unpack(pickle.dumps(Evil()))
    assert not list(tmp_path.iterdir())


def members(*positions: tuple) -> Mapping[int, Member]:
    """(phase, step, collective, since) of each rank, as of time 100."""
    return {rank: Member(rank, "a", 100.0, *position) for rank, position in enumerate(positions)}


@pytest.mark.parametrize(
    ("positions", "is_deadlock"),
    [
        ([("training", 1, True, 0), ("training", 2, True, 0)], True),
        ([("training", 1, True, 0), ("hashing", 1, True, 0)], True),
        ([("training", 1, True, 0), ("training", 1, True, 0)], False),  # slow
        ([("training", 1, True, 0), ("hashing", 1, True, 95)], False),  # not for long enough
        ([("training", 1, True, 0), ("writing", 1, False, 0)], False),
        ([("training", 1, True, 0), ("training", 2, True, 0, True)], False),  # it has left
    ],
)
def test_deadlock(positions: list, is_deadlock: bool) -> None:
    assert (deadlock(members(*positions).values(), 100.0, 10.0) is not None) == is_deadlock


def test_the_surest_cause_is_told() -> None:
    """A death makes others fail, at times before its connection is seen to close."""
    known = members(*[("training", 7, True, 0)] * 4)
    evidence = [
        Evidence("failed", (1,), "a collective failed"),
        Evidence("dead", (3,), "its process ended"),
        Evidence("failed", (2,), "a collective failed"),
    ]
    verdict = describe(evidence, known, 4)
    line = verdict.line
    assert verdict.blamed == (3,)
    assert (
        line
        == f"rank 3 of 4 was lost (host a, its process ended) in phase training at step 7; {AGAIN}"
    )


def test_the_ranks_of_a_lost_node_are_told_together() -> None:
    known = members(*[("training", 7, True, 0)] * 4)
    known[3].host = "b"
    evidence = [Evidence("silent", (rank,), "no heartbeat for 20 s") for rank in (1, 2, 3)]
    verdict = describe(evidence, known, 4)
    line = verdict.line
    assert verdict.blamed == (1, 2)
    assert line.startswith("ranks 1-2 of 4 were lost (host a, no heartbeat for 20 s) in phase")


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ([3], "rank 3"),
        ([2, 0, 1, 7], "ranks 0-2, 7"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, ..."),
    ],
)
def test_names_of_ranks(ranks, name: str) -> None:
    assert name_ranks(list(ranks)) == name
