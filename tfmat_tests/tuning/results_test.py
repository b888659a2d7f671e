"""What a search leaves for people, from states made here: which trial is best, importance, CSV, HParams, page."""

import csv
import random

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tfmat.config import load_config
from tfmat.tuning.search import (
    Options,
    SearchState,
    TrialRecord,
    importances,
    load_search,
    record_end,
    summarize,
    write_results,
    write_state,
)
from tfmat_tests.report.html_check import checked
from tfmat_tests.tuning.conftest import HERE


def make_state(num_trials: int) -> SearchState:
    """The objective depends on the learning rate alone; every third trial of sgd was stopped early."""
    base, search = load_search(HERE / "space.py")
    state = SearchState(search.to_json(), base.to_dict(), Options())
    draw = random.Random(3)
    for number in range(num_trials):
        rate = 10 ** draw.uniform(-5, 0)
        name = draw.choice(["adam", "sgd"])
        values = {
            "optimizer.learning_rate": rate,
            "model.dropout": draw.uniform(0, 0.5),
            "optimizer.name": name,
            "model.hidden_units": draw.choice(["125", "125,125"]),
            **({"optimizer.momentum": draw.uniform(0.5, 0.9)} if name == "sgd" else {}),
        }
        stopped = name == "sgd" and number % 3 == 0
        state.trials[f"{number:04d}"] = TrialRecord(
            trial_id=f"{number:04d}",
            values=values,
            folder=f"{number:04d}",
            state="stopped" if stopped else "done",
            value=rate + 1e-6,
            oracle_value=rate,
            worker="0",
            intervals=[("0", 100.0 + number, 101.0 + number)],
        )
        state.end_order.append(f"{number:04d}")
    return state


def test_the_best_is_the_smallest_that_trained_to_the_end():
    state = make_state(20)
    state.trials["0003"].fraction, state.trials["0003"].value = 0.5, 0.0
    state.trials["0004"].state, state.trials["0004"].value = "stopped", 0.0
    best = state.best()
    expected = min(
        (t for t in state.trials.values() if t.state == "done" and t.fraction == 1),
        key=lambda trial: trial.value,
    )
    assert best is expected


def test_importance_goes_to_what_matters():
    _, search = load_search(HERE / "space.py")
    shares = importances(search, make_state(60))
    assert next(iter(shares)) == "optimizer.learning_rate"
    assert shares["optimizer.learning_rate"] > 0.9
    assert sum(shares.values()) == pytest.approx(1.0)
    assert importances(search, make_state(7)) == {}


def test_files(tmp_path):
    state = make_state(20)
    write_state(tmp_path, state)
    best, table, page = write_results(tmp_path)
    winner = state.best()
    config = load_config(best)
    assert config.optimizer.learning_rate == winner.values["optimizer.learning_rate"]
    assert config.train_for == "4epochs"
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == list(state.trials)
    for row, trial in zip(rows, state.trials.values(), strict=True):
        assert float(row["val_loss"]) == trial.value
        assert (row["optimizer.momentum"] == "") == (trial.values["optimizer.name"] == "adam")
    text = page.read_text()
    checked(text)
    assert f"The best trial is {winner.trial_id}" in text and "What matters" in text


def test_what_a_trial_said_is_shown_as_text(tmp_path):
    state = make_state(4)
    trial, evil = state.trials["0001"], "<script>alert('x')</script>"
    trial.state, trial.value, trial.reason = "failed", None, evil
    write_state(tmp_path, state)
    page = write_results(tmp_path)[-1].read_text("utf-8")
    assert evil not in page and evil in checked(page).texts


def test_hparams_are_read_by_tensorboard(tmp_path):
    state = make_state(2)
    write_state(tmp_path, state)
    record_end(tmp_path, "0001")
    events = EventAccumulator(str(tmp_path / "tensorboard" / "0001")).Reload()
    (scalar,) = events.Scalars("val_loss")
    assert scalar.value == pytest.approx(state.trials["0001"].value, rel=1e-6)
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"optimizer.learning_rate" in content


def test_summary_of_a_search_that_stands_still(tmp_path):
    state = make_state(4)
    state.trials["0002"].state = "running"
    state.end_order.remove("0002")
    write_state(tmp_path, state)
    summary = summarize(tmp_path)
    assert summary.counts["running"] == 1 and summary.max_trials == 6
    assert summary.median_seconds == 1.0
    assert summary.seconds_left is None and summary.utilization is None
    assert summary.seconds == 4.0
