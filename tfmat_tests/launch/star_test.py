"""The star with real processes: whatever happens to one rank, the others end, and one line says why."""

import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tfmat.launch.watchdog import AGAIN, name_ranks
from tfmat_tests.mpi import PROJECT, is_running, mpirun
from tfmat_tests.processes import rank_environment, wait_for

PROGRAM = [sys.executable, "-m", "tfmat_tests.launch.star_rank"]
PATIENCE = 60.0  # seconds: what is promised
HOST = socket.gethostname()
PLACE = "in phase validation at step 1300"


def environment(**changes: str) -> dict[str, str]:
    given = rank_environment()
    kept = {k: v for k, v in given.items() if k.partition("_")[0] not in ("HOROVOD", "TFMAT")}
    return {**kept, "TFMAT_WORKER_TIMEOUT": "2", **changes}


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
    """Each for rank 0 and for the last one: of three ranks, and, under --all, of two and of eight."""
    return [
        pytest.param(
            size,
            name,
            culprit,
            marks=[] if size == 3 and name not in ("last", "slow") else pytest.mark.large,
            id=f"{name}-{culprit}-of-{size}",
        )
        for size in (3, 2, 8)
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
    line = f"the ranks wait for each other forever: {first}, {second}, for 2 s; {AGAIN}"
    check_one_line(ranks, line)


@pytest.mark.parametrize(("size", "case", "culprit"), cases("first", "checkpoint", "last", "slow"))
def test_what_is_no_fault(start, size, case, culprit):
    ranks = start(size, case, culprit)
    assert ranks.wait() == [0] * size
    assert ranks.said() == "" and ranks.told() == []


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
    # Long enough for the others to start on a busy machine.
    ranks = start(3, "stopped_before_start", 2, HOROVOD_START_TIMEOUT="8")
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
    settings = environment(HOROVOD_START_TIMEOUT="10")
    arguments = (tmp_path, "mpi", "mpi", case, str(culprit))
    done = mpirun(4, *PROGRAM[1:], *arguments, timeout=PATIENCE, environment=settings)
    # A busy mpirun may hear first of a rank that noticed the killed one; then it names that rank, and its status.
    noticed = re.search(r"Process name: \[\[\d+,1\],(\d+)\]\s+Exit code: +4\n", done.stderr)
    if case == "signal_kill" and noticed and int(noticed[1]) != culprit:
        status = 4
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("tfmat: ")]
    assert len(lines) == (status != 0), done.stderr
    if case == "stopped_before_start":
        assert "in phase starting" in lines[0]
    elif case == "exception":
        assert lines[0].endswith("a line that says what to do")
    elif case.startswith("signal"):
        assert f"rank {culprit} of 4 " in lines[0] and PLACE in lines[0]
    # mpirun does not wait for those that it kills.
    wait_for(lambda: not any(is_running(path.read_text()) for path in tmp_path.glob("pid_*")))
