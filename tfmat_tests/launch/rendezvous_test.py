"""How processes find each other, what they tell each other then, and the settings that give its times."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.processes import Processes
from tfmat.launch.runtime import SECONDS, seconds_setting
from tfmat.launch.watchdog import ByNote, Star, meet, start_timer

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


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_what_is_no_number_of_seconds(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InputError, match=f"{name}={text} is no number of seconds"):
        seconds_setting(name)


def test_a_start_in_time_ends_nothing() -> None:
    with start_timer(0, 0.2):
        pass
    time.sleep(0.3)
