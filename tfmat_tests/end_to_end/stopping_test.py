"""Runs that are stopped in every way and started again: the same weights to the last bit."""

import functools
import itertools
import pathlib
import random
import shutil
import signal
import time
from typing import Any

import pytest

from tfmat_tests.end_to_end.runs import (
    SMALL_RUN,
    TOTAL_STEPS,
    assert_as_if_never_stopped,
    assert_same_weights,
    leftovers,
    listing,
    metrics,
    status,
)
from tfmat_tests.processes import PATIENCE, ForkServer


@pytest.fixture(scope="session")
def uninterrupted(programs: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The run folder of SMALL_RUN, never stopped; its data lie beside it."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    ended = programs.run(*SMALL_RUN, cwd=folder)
    assert ended.status == 0, ended.err
    assert status(folder / "run")["resumed_from_steps"] == []
    assert not leftovers(folder)
    return folder / "run"


def _finish(programs: ForkServer, folder: pathlib.Path) -> None:
    ended = programs.run(*SMALL_RUN, cwd=folder)
    assert ended.status == 0, ended.err


def _kill_at(programs: ForkServer, folder: pathlib.Path, names: str, number: int) -> None:
    ended = programs.run(*SMALL_RUN, cwd=folder, die_on=names, die_at=number)
    assert ended.status == -signal.SIGKILL, ended.err


# A file is opened under its unfinished name and then renamed; metrics.jsonl and log.txt grow line by line.
def test_killed_at_every_stage_before_the_first_epoch_ends(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kill_at = functools.partial(_kill_at, programs, tmp_path)
    kill_at(".shard-*.tmp", 3)  # while curves are simulated
    kill_at(".config.json.*.tmp", 2)  # at the start
    kill_at(".step-*.tmp", 2)  # while the first checkpoint is written
    kill_at(".step-*.tmp", 4)  # while the second one is
    kill_at("log.txt", 2)  # at the end of the epoch: the first line says where it goes on
    _finish(programs, tmp_path)
    assert status(tmp_path / "run")["resumed_from_steps"] == [0, 11, 22]
    assert_as_if_never_stopped(tmp_path, uninterrupted)


def test_killed_at_every_stage_from_the_first_validation_on(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kill_at = functools.partial(_kill_at, programs, tmp_path)
    shutil.copytree(uninterrupted.parent / "data", tmp_path / "data")
    kill_at("metrics.jsonl", 1)  # right after the validation
    kill_at(".unfinished.model.keras", 2)  # while the best model is saved
    kill_at(".unfinished.final.keras", 2)  # while the last one is
    kill_at(".evaluation.json.*.tmp", 2)  # while it evaluates
    _finish(programs, tmp_path)
    assert status(tmp_path / "run")["resumed_from_steps"] == [22, 22, TOTAL_STEPS]
    assert_as_if_never_stopped(tmp_path, uninterrupted)


@pytest.mark.parametrize(
    "operations", [20, *(pytest.param(n, marks=pytest.mark.large) for n in (1, 3, 5, 8, 13))]
)
def test_killed_again_and_again_at_a_file_operation(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path, operations: int
) -> None:
    """Each process dies at its file operation of this number (a later one where no progress can be made so early)."""
    for number in itertools.count(operations):
        ended = programs.run(*SMALL_RUN, cwd=tmp_path, die_at=number)
        if ended.status == 0:
            break
        assert ended.status == -signal.SIGKILL, ended.err
    assert_as_if_never_stopped(tmp_path, uninterrupted)


@pytest.mark.large
@pytest.mark.timeout(3600)
def test_killed_at_any_file_operation(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Once at every fourth of the operations of a whole run, and then to the end."""
    for number in itertools.count(1, 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        if programs.run(*SMALL_RUN, cwd=folder, die_at=number).status == 0:
            break
        _finish(programs, folder)
        assert_as_if_never_stopped(folder, uninterrupted)
        shutil.rmtree(folder)
    assert number > 50


@pytest.mark.large
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_random_times(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path, seed: int
) -> None:
    generator = random.Random(seed)
    for _ in range(8):
        program = programs.start(*SMALL_RUN, cwd=tmp_path)
        deadline = time.monotonic() + generator.uniform(0.0, 5.0)
        while program.running() and time.monotonic() < deadline:
            time.sleep(0.001)
        program.kill()
        assert program.wait().status in (0, -signal.SIGKILL)
    _finish(programs, tmp_path)
    assert_as_if_never_stopped(tmp_path, uninterrupted)


# Right before the second checkpoint is written.
SECOND_CHECKPOINT: dict[str, Any] = {"die_on": ".step-*.tmp", "die_at": 3}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_while_training(
    programs: ForkServer,
    uninterrupted: pathlib.Path,
    tmp_path: pathlib.Path,
    number: signal.Signals,
    run_all: bool,
) -> None:
    ended = programs.run(*SMALL_RUN, cwd=tmp_path, **SECOND_CHECKPOINT, die_of=number)
    assert ended.status == 75 and not ended.out
    line = ended.err.splitlines()[-1]
    assert line.startswith(f"tfmat: {number.name} received; saved at step ")
    assert line.endswith("start the same command again to go on")
    saved = status(tmp_path / "run")
    assert saved["state"] == "interrupted" and number.name in saved["reason"]
    if number != signal.SIGTERM and not run_all:
        return  # the same code from here on
    ended = programs.run(*SMALL_RUN, cwd=tmp_path)
    assert ended.status == 0, ended.err
    (step,) = status(tmp_path / "run")["resumed_from_steps"]
    assert f"saved at step {step} of {TOTAL_STEPS}" in line
    assert f"going on from step {step}\n" in ended.err
    assert_as_if_never_stopped(tmp_path, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_while_curves_are_simulated(
    programs: ForkServer, tmp_path: pathlib.Path, number: signal.Signals
) -> None:
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


@pytest.mark.parametrize("pause", [0.02, pytest.param(0.3, marks=pytest.mark.large)])
def test_an_impatient_ctrl_c(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path, pause: float
) -> None:
    """Again and again: it leaves at once, saved or not, and the run goes on all the same."""
    how = {**SECOND_CHECKPOINT, "die_of": signal.SIGINT}
    program = programs.start(*SMALL_RUN, cwd=tmp_path, **how)
    program.wait_for(lambda: list(tmp_path.glob("run/checkpoints/step-*.npz")))
    deadline = time.monotonic() + PATIENCE
    while program.running():
        program.kill(signal.SIGINT)
        time.sleep(pause)
        assert time.monotonic() < deadline
    ended = program.wait()
    assert (
        ended.status == 75 and "Traceback" not in ended.err
    )  # not that of a run that came to its end
    assert ended.err.splitlines()[-1].endswith("start the same command again to go on")
    assert not leftovers(tmp_path)
    _finish(programs, tmp_path)
    assert_as_if_never_stopped(tmp_path, uninterrupted)


def test_a_finished_run_says_so_and_changes_nothing_that_it_learned(
    programs: ForkServer, uninterrupted: pathlib.Path
) -> None:
    before = listing(uninterrupted)
    ended = programs.run(*SMALL_RUN, cwd=uninterrupted.parent)
    assert ended.status == 0
    assert f"the run in run is done: all {TOTAL_STEPS} steps done\n" in ended.err
    after = listing(uninterrupted)
    for name in ("final.keras", "model.keras", "model.json", "config.json", "metrics.jsonl"):
        assert after[name] == before[name]
    assert set(after) == set(before)


def test_what_changes_no_number_may_change_on_the_way(
    programs: ForkServer, uninterrupted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    ended = programs.run(*SMALL_RUN, cwd=tmp_path, **SECOND_CHECKPOINT, die_of=signal.SIGTERM)
    assert ended.status == 75
    before = listing(tmp_path)
    for change, message in (
        ("--config.optimizer.learning_rate=0.5", "optimizer.learning_rate=0.001, not 0.5"),
        ("--config.model.hidden_units=20", "model.hidden_units=[125], not [20]"),
        ("--config.data.num_curves=3000", "data.num_curves=2010, not 3000"),
        ("--law=voce", "law=hahn_tsai, not voce"),
    ):
        ended = programs.run(*SMALL_RUN, change, cwd=tmp_path)
        assert ended.status == 2 and f"the run in run was started with {message}; use" in ended.err
        assert len(ended.err.splitlines()) == 1
        assert listing(tmp_path) == before
    ended = programs.run(
        *SMALL_RUN,
        "--config.steps_per_call=9",
        "--config.checkpoint.keep=30",
        "--config.checkpoint.every=5steps",
        "--config.data.reading=stream",
        cwd=tmp_path,
    )
    assert ended.status == 0, ended.err
    assert len(list(tmp_path.glob("run/checkpoints/step-*"))) > 3
    assert_same_weights(tmp_path / "run" / "final.keras", uninterrupted / "final.keras")
    assert metrics(tmp_path / "run") == metrics(uninterrupted)


def test_a_second_training_in_the_same_folder(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    first = programs.start(*SMALL_RUN, "--config.train_for=500epochs", cwd=tmp_path)
    first.wait_for(lambda: list(tmp_path.glob("run/checkpoints/step-*.npz")))
    second = programs.run(*SMALL_RUN, "--config.train_for=500epochs", cwd=tmp_path)
    assert second.status == 2
    assert second.err.splitlines()[-1] == (
        "tfmat: another process is training in run; wait for it or choose another --workdir"
    )
    assert first.running()
    first.kill()
    first.wait()


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
