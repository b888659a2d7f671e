"""Runs that are stopped in every way and started again: the same weights to the last bit."""

import contextlib
import functools
import pathlib
import shutil
import signal
import time
from typing import Any

import psutil
import pytest

from tfmat.training.run_folder import RunFolder
from tfmat_tests.end_to_end.runs import (
    REASON,
    SMALL_RUN,
    TOTAL_STEPS,
    assert_as_if_never_stopped,
    assert_same_weights,
    leftovers,
    metrics,
    status,
)
from tfmat_tests.processes import PATIENCE, Ended, ForkServer, Program
from tfmat_tests.refused import Refuse, listing


@pytest.fixture(scope="session")
def uninterrupted(programs: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The run folder of SMALL_RUN, never stopped; its data lie beside it."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    ended = programs.run(*SMALL_RUN, cwd=folder)
    assert ended.status == 0, ended.err
    assert status(folder / "run")["resumed_from_steps"] == []
    assert not leftovers(folder)
    return folder / "run"


def _finish(programs: ForkServer, folder: pathlib.Path, *changes: str) -> Ended:
    ended = programs.run(*SMALL_RUN, *changes, cwd=folder)
    assert ended.status == 0, ended.err
    return ended


def _kill_at(programs: ForkServer, folder: pathlib.Path, names: str, number: int) -> None:
    ended = programs.run(*SMALL_RUN, cwd=folder, die_on=names, die_at=number)
    assert ended.status == -signal.SIGKILL, ended.err


# A file is opened under its unfinished name and then renamed; metrics.jsonl and log.txt grow line by line.
def test_killed_at_every_stage(programs, uninterrupted, tmp_path):
    """The last process finds a run that is done, and makes up for what should have followed it."""
    run, kill_at = tmp_path / "run", functools.partial(_kill_at, programs, tmp_path)
    kill_at(".shard-*.tmp", 3)  # while curves are simulated
    kill_at(".config.json.*.tmp", 2)  # at the start
    kill_at(".step-*.tmp", 2)  # while the first checkpoint is written
    kill_at(".step-*.tmp", 4)  # while the second one is
    kill_at(".unfinished.model.keras", 2)  # behind it, while the best model is saved
    kill_at(".unfinished.final.keras", 2)  # while the last one is
    kill_at(".bayes_risk.json.*.tmp", 2)  # while it evaluates, beside the data
    kill_at(".evaluation.json.*.tmp", 2)  # and in the run
    assert status(run)["resumed_from_steps"] == [0, 11, 22, TOTAL_STEPS]
    before = listing(run)
    ended = _finish(programs, tmp_path)
    assert f"the run in run is done: {REASON}\n" in ended.err
    after = listing(run)
    for name in ("final.keras", "model.keras", "model.json", "config.json", "metrics.jsonl"):
        assert after[name] == before[name]
    assert not [name for name in after.keys() - before.keys() if "events" in name]
    assert_as_if_never_stopped(tmp_path, uninterrupted)


@pytest.mark.large
@pytest.mark.timeout(3600)
def test_killed_at_any_file_operation(programs, uninterrupted, tmp_path):
    """At every fourth operation, and then to the end: a copy of the folder is what a kill would have left there."""
    operations, stopping = range(1, 10_000, 4), tmp_path / "stopping"
    stopping.mkdir()
    program = programs.start(*SMALL_RUN, cwd=stopping, die_at=operations, die_of=signal.SIGSTOP)
    number = 0
    for number in operations:
        if not _stops(program):
            break
        folder = tmp_path / str(number)
        shutil.copytree(stopping, folder)
        program.kill(signal.SIGCONT)
        _finish(programs, folder)
        assert_as_if_never_stopped(folder, uninterrupted)
        shutil.rmtree(folder)
    assert number > 50 and program.wait().status == 0


def _stops(program: Program) -> bool:
    """Whether it stops once more before it ends."""
    while program.running():
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(program.pid).status() == psutil.STATUS_STOPPED:
                return True
        time.sleep(0.001)
    return False


# Right before the second checkpoint that a process writes.
SECOND_CHECKPOINT: dict[str, Any] = {"die_on": ".step-*.tmp", "die_at": 3}


def _interrupt_impatiently(programs: ForkServer, folder: pathlib.Path) -> None:
    """Ctrl-C again and again: it leaves at once, saved or not."""
    how = {**SECOND_CHECKPOINT, "die_of": signal.SIGINT}
    program = programs.start(*SMALL_RUN, cwd=folder, **how)
    program.wait_for(lambda: list(folder.glob("run/checkpoints/step-*.npz")))
    deadline = time.monotonic() + PATIENCE
    while program.running():
        program.kill(signal.SIGINT)
        time.sleep(0.02)
        assert time.monotonic() < deadline
    ended = program.wait()
    # Not that of a run that came to its end.
    assert ended.status == 75 and "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].endswith("start the same command again to go on")
    assert not leftovers(folder)


def test_signals_while_training_and_what_may_change_on_the_way(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path, refused: Refuse
) -> None:
    """One signal after the other stops the same run; the last process has other options that change no number."""
    _interrupt_impatiently(programs, tmp_path)
    saved = []
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        ended = programs.run(*SMALL_RUN, cwd=tmp_path, **SECOND_CHECKPOINT, die_of=number)
        assert ended.status == 75 and not ended.out
        line = ended.err.splitlines()[-1]
        assert line.startswith(f"tfmat: {number.name} received; saved at step ")
        assert line.endswith(f" of {TOTAL_STEPS}: start the same command again to go on")
        saved.append(int(line.split(" of ")[0].split()[-1]))
        found = status(tmp_path / "run")
        assert found["state"] == "interrupted" and number.name in found["reason"]
    for change, message in (
        ("--config.optimizer.learning_rate=0.5", "optimizer.learning_rate=0.001, not 0.5"),
        ("--config.model.hidden_units=20", "model.hidden_units=[6], not [20]"),
        ("--config.data.num_curves=3000", "data.num_curves=810, not 3000"),
        ("--law=voce", "law=hahn_tsai, not voce"),
    ):
        assert f"the run in run was started with {message}; use" in refused(*SMALL_RUN, change)
    ended = _finish(
        programs,
        tmp_path,
        "--config.steps_per_call=9",
        "--config.checkpoint.keep=30",
        "--config.checkpoint.every=5steps",
        "--config.data.reading=stream",
        "--noreport",
    )
    assert f"going on from step {saved[-1]}\n" in ended.err
    found = status(tmp_path / "run")
    assert found["resumed_from_steps"][1:] == saved and found["reason"] == REASON
    assert len(list(tmp_path.glob("run/checkpoints/step-*"))) > 3
    assert not leftovers(tmp_path)
    for name in ("final.keras", "model.keras"):
        assert_same_weights(tmp_path / "run" / name, uninterrupted / name)
    assert metrics(tmp_path / "run") == metrics(uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_while_curves_are_simulated(programs, tmp_path, number):
    # So many that the signal surely comes while they are simulated, however late this process looks.
    arguments = [*SMALL_RUN, "--config.data.num_curves=1000000"]
    program = programs.start(*arguments, cwd=tmp_path)
    program.wait_for(lambda: list(tmp_path.glob("data/*/.shard*.tmp")))
    program.kill(number)
    ended = program.wait()
    assert ended.status == 75 and not ended.out
    assert ended.err.splitlines()[-1].endswith("start the same command again to go on")
    assert len(ended.err.splitlines()) == 2, ended.err  # that it simulates, and that it was stopped
    assert not leftovers(tmp_path) and not (tmp_path / "run").exists()


def test_a_second_training_in_the_same_folder(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    """This process has the folder as one that trains has it."""
    with RunFolder(tmp_path / "run"):
        second = programs.run(*SMALL_RUN, cwd=tmp_path)
    assert second.status == 2
    assert second.err.splitlines()[-1] == (
        "tfmat: another process is training in run; wait for it or choose another workdir"
    )
    assert [path.name for path in (tmp_path / "run").iterdir() if path.suffix] == []


def test_a_diverging_run(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    arguments = [*SMALL_RUN, "--config.optimizer.name=sgd", "--config.optimizer.learning_rate=1e30"]
    arguments.append("--config.model.batch_normalization=none")
    for again in (False, True):
        ended = programs.run(*arguments, cwd=tmp_path)
        assert ended.status == 3 and not ended.out
        line = ended.err.splitlines()[-1]
        assert line.startswith(
            "tfmat: the run in run diverged" if again else "tfmat: the loss became"
        )
        assert "step " in line and "there is no checkpoint yet" in line and "learning_rate" in line
        assert status(tmp_path / "run")["state"] == "diverged"
        assert not (tmp_path / "run" / "final.keras").exists()
