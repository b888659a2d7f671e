"""Searches whose trials are real trainings, small ones: killed, gone on with, promoted."""

import os
import signal

import pytest

from tfmat.config import load_config
from tfmat.files import read_json
from tfmat.training.run_folder import read_metrics
from tfmat_tests.tuning.conftest import Search

SPACE = """
from tfmat.config import default_config
from tfmat.tuning import Choice, Float, Search


def get_config():
    config = default_config()
    config.data.update(num_curves=4_000, num_test=200, num_validation=500)
    config.update(global_batch_size=50, train_for="2epochs", steps_per_call=5)
    config.checkpoint.every = "10steps"
    return config


def get_search():
    space = {
        "optimizer.learning_rate": Float(3e-4, 3e-3, scale="log"),
        "model.hidden_units": Choice((20,), (20, 20)),
    }
    return Search(space=space, max_trials=MAX_TRIALS, algorithm="ALGORITHM", factor=2)
"""
# Cheap steps, and so many epochs of them that a worker is surely met while it trains.
SMALL = (
    "--config.data.num_test=20", "--config.data.num_points=32", "--config.model.conv_filters=2",
    "--config.model.kernel_sizes=3", "--config.train_for=8epochs",
)  # fmt: skip


class RealSearch(Search):
    """Without `--trial_command`."""

    def start(self, *flags: str, **ignored: object):
        """Starts the command with one worker."""
        return self.tune(f"--data_dir={self.workdir.parent / 'data'}", *flags)


@pytest.fixture
def real(programs, tmp_path, monkeypatch):
    """Makes a search of an algorithm; trials are processes of their own and must find tfmat."""

    def make(algorithm: str, max_trials: int | None) -> RealSearch:
        config = tmp_path / "space.py"
        text = SPACE.replace("ALGORITHM", algorithm).replace("MAX_TRIALS", str(max_trials))
        config.write_text(text)
        return RealSearch(programs, tmp_path / "search", config)

    return make


def test_a_killed_worker_costs_no_more_than_a_checkpoint(real):
    search = real("random", 2)
    program = search.start(*SMALL)
    run = search.workdir / "trials" / "0000" / "seed-0"
    program.wait_for(lambda: any((run / "checkpoints").glob("*")) if run.is_dir() else False)
    os.kill(search.worker_pid("0"), signal.SIGKILL)
    ended = search.finish(program)
    assert ended.status == 0, ended.err
    state = search.state()
    assert state.end_order == ["0000", "0001"]
    assert state.trials["0000"].lost == 1
    (resumed,) = read_json(run / "status.json")["resumed_from_steps"]
    assert 0 < resumed < 8 * 60
    for trial in state.trials.values():
        folder = search.workdir / "trials" / trial.folder / "seed-0"
        losses = [line["val_loss"] for line in read_metrics(folder / "metrics.jsonl")]
        assert len(losses) == 8 and trial.value == min(losses)
        assert not (folder / "evaluation.json").exists() and not (folder / "report.html").exists()
    best = load_config(search.workdir / "best.py")
    assert best.optimizer.learning_rate == state.best().values["optimizer.learning_rate"]
    project = search.workdir / "keras_tuner"
    assert [path.parent.name for path in sorted(project.glob("*/trial.json"))] == [
        "trial_0000", "trial_0001",
    ]  # fmt: skip
    search.check_nobody_left()


@pytest.mark.large
def test_hyperband_promotes_a_run_from_its_checkpoint(real):
    search = real("hyperband", None)
    ended = search.finish(search.start())
    assert ended.status == 0, ended.err
    state = search.state()
    promoted = [trial for trial in state.trials.values() if trial.folder != trial.trial_id]
    assert promoted
    for trial in promoted:
        run = search.workdir / "trials" / trial.folder / "seed-0"
        # The first rung is one of two epochs of 60 steps each; it goes on from where SIGTERM met it.
        (resumed,) = read_json(run / "status.json")["resumed_from_steps"]
        assert 60 <= resumed < 120
        assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [60, 120]
