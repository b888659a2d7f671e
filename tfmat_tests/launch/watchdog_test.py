"""The watchdog with real processes: whatever happens to one rank, the others end, and one line says why."""

import concurrent.futures
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from tfmat.errors import InputError
from tfmat.launch import watchdog_links as links
from tfmat.launch.watchdog import Watchdog, start_timer
from tfmat.launch.watchdog_verdict import AGAIN, Evidence, Member, deadlock, describe, name_ranks
from tfmat_tests.mpi import need_mpirun

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "tfmat_tests.launch.watched_rank"]
PATIENCE = 60.0  # seconds: what is promised
HOST = socket.gethostname()
PLACE = "in phase validation at step 1300"


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k.partition("_")[0] not in ("HOROVOD", "TFMAT")}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**kept, **root, "TFMAT_WORKER_TIMEOUT": "2", **changes}


class Ranks:
    """All ranks of a run; what they write to standard error goes to one file."""

    def __init__(
        self, folder: pathlib.Path, size: int, case: str, culprit: int, **changes: str
    ) -> None:
        self.folder = folder
        with open(folder / "stderr", "ab") as errors:
            self.processes = [
                subprocess.Popen(
                    [*PROGRAM, str(folder), str(rank), str(size), case, str(culprit)],
                    cwd=PROJECT,
                    env=environment(**changes),
                    stderr=errors,
                )
                for rank in range(size)
            ]

    def wait(self, *, apart_from: int | None = None) -> list[int]:
        """The exit statuses, when all have ended."""
        return [
            process.wait(PATIENCE)
            for rank, process in enumerate(self.processes)
            if rank != apart_from
        ]

    def signal_all(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(number)

    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def told(self) -> list[str]:
        """What the callbacks of all ranks were given."""
        return [path.read_text() for path in self.folder.glob("on_loss_*")]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Ranks]]:
    """Starts ranks, and leaves none behind."""
    started: list[Ranks] = []

    def start_ranks(*arguments, **changes):
        started.append(Ranks(tmp_path, *arguments, **changes))
        return started[-1]

    yield start_ranks
    for process in (process for ranks in started for process in ranks.processes):
        process.kill()
        process.wait()


def cases(*names: str) -> list:
    """Each for rank 0 and for the last one: of four ranks, and, under --all, of two and of eight."""
    return [
        pytest.param(
            size,
            name,
            culprit,
            marks=[] if size == 4 else pytest.mark.large,
            id=f"{name}-{culprit}-of-{size}",
        )
        for size in (4, 2, 8)
        for name in names
        for culprit in (0, size - 1)
    ]


def check_one_line(ranks: Ranks, line: str) -> None:
    assert ranks.said() == f"tfmat: {line}\n"
    assert ranks.told() == [line]


def lost(culprit: int, size: int, why: str) -> str:
    return f"rank {culprit} of {size} was lost (host {HOST}, {why}) {PLACE}; {AGAIN}"


@pytest.mark.parametrize(("size", "case", "culprit"), cases("exception"))
def test_a_mistake_of_the_user_ends_all(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait() == [2] * size
    where = f"rank {culprit} of {size} (host {HOST}): " if culprit else ""
    check_one_line(ranks, f"{where}a line that says what to do")


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_defect_shows_its_traceback_too(start, culprit):
    ranks = start(2, "defect", culprit)
    assert ranks.wait() == [4, 4]
    line = (
        f"rank {culprit} of 2 failed (host {HOST}) {PLACE}: ZeroDivisionError: none of the user's"
    )
    assert ranks.said().count("Traceback") == 1
    assert 'raise ZeroDivisionError("' in ranks.said()
    assert [said for said in ranks.said().splitlines() if "tfmat: " in said] == [f"tfmat: {line}"]
    assert ranks.told() == [line]


def test_a_full_disk_is_no_defect(start):
    ranks = start(2, "full_disk", 1)
    assert ranks.wait() == [2, 2]
    said = (
        "cannot write weights.h5: No space left on device; free some space or choose another folder"
    )
    check_one_line(ranks, f"rank 1 of 2 (host {HOST}): {said}")


@pytest.mark.parametrize(("size", "case", "culprit"), cases("signal_kill"))
def test_a_killed_rank_ends_all(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait() == [-9 if rank == culprit else 4 for rank in range(size)]
    check_one_line(ranks, lost(culprit, size, "its process ended"))


@pytest.mark.large
def test_a_lost_node_with_rank_0_is_told_by_a_rank_of_another_node(start):
    ranks = start(4, "node", 0)
    assert ranks.wait() == [-9, -9, 4, 4]
    check_one_line(ranks, lost(0, 4, "its process ended").replace(HOST, "node0"))


@pytest.mark.large
def test_the_ranks_of_another_lost_node_are_told_together(start):
    ranks = start(4, "node", 2)
    assert ranks.wait() == [4, 4, -9, -9]
    line = f"ranks 2-3 of 4 were lost (host node1, its process ended) {PLACE}; {AGAIN}"
    check_one_line(ranks, line)


@pytest.mark.large
@pytest.mark.parametrize(("size", "case", "culprit"), cases("exit"))
def test_a_rank_that_just_leaves_ends_all(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait() == [0 if rank == culprit else 4 for rank in range(size)]
    check_one_line(ranks, lost(culprit, size, "its process ended"))


@pytest.mark.parametrize(("size", "case", "culprit"), cases("signal_stop"))
def test_a_stopped_rank_ends_all_and_is_silent_itself(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait(apart_from=culprit) == [4] * (size - 1)
    line = lost(culprit, size, f"no {'heartbeat' if culprit else 'answer'} for 2 s")
    check_one_line(ranks, line)
    ranks.processes[culprit].send_signal(signal.SIGCONT)
    assert ranks.processes[culprit].wait(PATIENCE) == 4
    check_one_line(ranks, line)


@pytest.mark.parametrize(("size", "case", "culprit"), cases("deadlock"))
def test_ranks_in_different_collectives_end(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait() == [4] * size
    others = name_ranks([rank for rank in range(size) if rank != culprit])
    places = [f"rank {culprit} {PLACE}", f"{others} in phase training at step 1200"]
    first, second = places if culprit == 0 else reversed(places)
    line = f"the ranks wait for each other for ever: {first}, {second}, for 2 s; {AGAIN}"
    check_one_line(ranks, line)


@pytest.mark.parametrize(("size", "case", "culprit"), cases("first", "checkpoint"))
def test_what_is_no_fault(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait() == [0] * size
    assert ranks.said() == "" and ranks.told() == []


@pytest.mark.large
@pytest.mark.parametrize(("size", "case", "culprit"), cases("last", "slow"))
def test_what_is_no_fault_either(start, size, case, culprit):
    test_what_is_no_fault(start, size, case, culprit)


def test_a_run_that_was_suspended_as_a_whole_goes_on(start):
    ranks = start(2, "slow", 0)
    while len(list(ranks.folder.glob("pid_*"))) < 2:
        time.sleep(0.01)
    time.sleep(0.5)
    ranks.signal_all(signal.SIGSTOP)
    time.sleep(3.0)
    ranks.signal_all(signal.SIGCONT)
    assert ranks.wait() == [0, 0]


def test_a_rank_that_does_not_come_is_named(start):
    ranks = start(3, "stopped_before_start", 2, HOROVOD_START_TIMEOUT="3")
    assert ranks.wait(apart_from=2) == [4, 4]
    (line,) = ranks.told()
    check_one_line(ranks, line)
    assert line.startswith(f"rank 2 of 3 did not reach rank 0 (host {HOST}, ")
    assert "in phase starting" in line and "TFMAT_WORKER_TIMEOUT=0" in line


@pytest.mark.large
def test_rank_0_that_does_not_come_is_noticed(start):
    ranks = start(3, "stopped_before_start", 0, HOROVOD_START_TIMEOUT="1")
    assert ranks.wait(apart_from=0) == [4, 4]
    assert ranks.said().startswith("tfmat: not all ranks appeared within 6 s (seen from rank 1, ")
    assert ranks.said().count("\n") == 1


def is_running(pid: str) -> bool:
    """False also for one that has ended and that nobody has asked about yet."""
    try:
        status = pathlib.Path("/proc", pid, "stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("case", "culprit", "status"),
    [
        ("exception", 3, 2),
        ("signal_kill", 0, 137),
        ("signal_kill", 3, 137),
        ("signal_stop", 0, 4),
        pytest.param("signal_stop", 3, 4, marks=pytest.mark.large),
        pytest.param("exception", 0, 2, marks=pytest.mark.large),
        pytest.param("deadlock", 0, 4, marks=pytest.mark.large),
        pytest.param("stopped_before_start", 3, 4, marks=pytest.mark.large),
        pytest.param("first", 3, 0, marks=pytest.mark.large),
    ],
)
def test_under_mpirun_the_line_comes_before_mpirun_kills(tmp_path, case, culprit, status):
    need_mpirun()
    done = subprocess.run(
        [
            "mpirun",
            "-np",
            "4",
            "--oversubscribe",
            *PROGRAM,
            tmp_path,
            "mpi",
            "mpi",
            case,
            str(culprit),
        ],
        cwd=PROJECT,
        env=environment(HOROVOD_START_TIMEOUT="10"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("tfmat: ")]
    assert len(lines) == (status != 0), done.stderr
    if case == "stopped_before_start":
        assert "in phase starting" in lines[0]
    elif case == "exception":
        assert lines[0].endswith("a line that says what to do")
    elif case.startswith("signal"):
        assert f"rank {culprit} of 4 " in lines[0] and PLACE in lines[0]
    deadline = time.monotonic() + 10.0  # mpirun does not wait for those that it kills
    while orphans := [path for path in tmp_path.glob("pid_*") if is_running(path.read_text())]:
        assert time.monotonic() < deadline, orphans
        time.sleep(0.05)


def test_one_rank_needs_nobody() -> None:
    def exchange(value: object) -> object:
        raise AssertionError

    watchdog = Watchdog.start(0, 1, exchange)
    watchdog.announce("training", 0, collective=True)
    watchdog.fail(ValueError())
    watchdog.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("TFMAT_WORKER_TIMEOUT", "0")
    watchdog = Watchdog.start(rank, 2, lambda value: value)
    watchdog.announce("training", 0, collective=True)
    watchdog.close()


@pytest.mark.parametrize("name", ["TFMAT_WORKER_TIMEOUT", "HOROVOD_START_TIMEOUT"])
@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_what_is_no_number_of_seconds(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InputError, match=f"{name}={text} is no number of seconds"):
        Watchdog.start(0, 2, lambda value: value)


def test_a_start_in_time_ends_nothing() -> None:
    with start_timer(0, 0.2):
        pass
    time.sleep(0.3)


# --- connections ---


def test_only_ranks_with_the_token_are_let_in() -> None:
    """Of four that connect, one is silent, one talks nonsense, one has another token, one is of the run."""
    listener, place = links.listen(one_node=True)
    with (
        listener,
        socket.create_connection(("127.0.0.1", place.port)),
        socket.create_connection(("127.0.0.1", place.port)) as nonsense,
        socket.create_connection(("127.0.0.1", place.port)) as stranger,
        socket.create_connection(("127.0.0.1", place.port)) as member,
    ):
        other = links.Place(place.host, place.addresses, place.port, "0" * 32)
        nonsense.sendall(b"GET / HTTP/1.1\r\n\r\n")
        links.Link(stranger).send("hello", 1, "a", "n", other.proof("hello", 1, "a", "n"))
        links.Link(member).send("hello", 1, "b", "n", place.proof("hello", 1, "b", "n"))
        members = links.accept(listener, place, 3, time.monotonic() + 1.0)
        assert {rank: host for rank, (_, host) in members.items()} == {1: "b"}
        members[1][0].close()


@pytest.mark.parametrize(
    "hello", [b"[" * 60_000 + b"\n", b"\xff\n", b'["hello", 1, "a", "n", "\\ud800"]\n', b"{}\n"]
)
def test_nonsense_does_not_disturb(hello: bytes) -> None:
    listener, place = links.listen(one_node=True)
    with listener, socket.create_connection(("127.0.0.1", place.port)) as stranger:
        stranger.sendall(hello)
        assert links.accept(listener, place, 2, time.monotonic() + 0.2) == {}


def test_rank_0_is_reached_from_another_host() -> None:
    """By an address of its interfaces, since only a rank of the same host tries loopback."""
    listener, place = links.listen(one_node=False)
    elsewhere = dataclasses.replace(place, host="elsewhere")
    with listener, concurrent.futures.ThreadPoolExecutor() as pool:
        deadline = time.monotonic() + 10.0
        connecting = pool.submit(links.connect, elsewhere, 1, deadline)
        members = links.accept(listener, place, 2, deadline)
        link = connecting.result()
        assert link is not None and list(members) == [1]
        members[1][0].send("go", None)
        assert links.wait_for(link, lambda message: True, deadline) == ["go", None]
        link.close()
        members[1][0].close()


def test_a_server_without_the_token_is_not_believed() -> None:
    listener, place = links.listen(one_node=True)
    stranger = links.Place(place.host, place.addresses, place.port, "0" * 32)
    with listener:
        assert links.connect(stranger, 1, time.monotonic() + 0.5) is None


def test_messages_come_whole_and_in_order_before_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = links.Link(socket.create_connection(server.getsockname()))
        there = links.Link(server.accept()[0])
    for number in range(2000):
        here.send("state", number)
    here.close()
    received: list = []
    while not there.closed:
        received += there.receive()
    assert received == [["state", number] for number in range(2000)]
    there.close()


# --- conclusions ---


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
