"""The oracle behind search.json against keras-tuner alone: the same suggestions, though it is made anew each time."""

import dataclasses
import functools
import json
import pathlib

import keras_tuner
import pytest
import scipy.optimize
import threadpoolctl

from tfmat.tuning.oracle import EXHAUSTED, IDLE, Oracle, hyperparameters
from tfmat.tuning.search import (
    DONE,
    FAILED,
    Choice,
    Float,
    Int,
    Options,
    Search,
    SearchState,
    TrialRecord,
    load_search,
    read_state,
)
from tfmat.tuning.trials import MOST_LOST, Claims, Outcome
from tfmat_tests.tuning.synthetic_trial import known_function

SPACE = pathlib.Path(__file__).with_name("space.py")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """Suggestions of a Gaussian process, theirs and ours, are searched for in a few steps, which take seconds less."""
    minimize = functools.partial(scipy.optimize.minimize, options={"maxiter": 2})
    monkeypatch.setattr(scipy.optimize, "minimize", minimize)


def ours(search, base, num_trials, function=known_function):
    """Values and results of trials one after the other; the oracle is loaded from JSON for each call."""
    state = SearchState(search.to_json(), base.to_dict(), Options())
    trials = []
    while len(trials) < num_trials:
        suggested = step(state)
        if isinstance(suggested, str):
            break
        suggested.oracle_value = function(suggested.values) / suggested.fraction
        suggested.state = DONE
        oracle = Oracle(state)
        oracle.tell(suggested)
        oracle.store(state)
        trials.append((suggested.values, suggested.oracle_value))
    return trials


def step(state) -> TrialRecord | str:
    content = json.loads(json.dumps(state.oracle))
    state.oracle = content
    oracle = Oracle(state)
    suggested = oracle.suggest()
    if isinstance(suggested, TrialRecord):
        state.trials[suggested.trial_id] = suggested
        oracle.store(state)
    return suggested


def alone(oracle, tmp_path, num_trials, max_epochs=None):
    """The same with keras-tuner's own oracle, which lives through the search."""
    oracle._set_project_dir(str(tmp_path), "alone")
    oracle.verbose = 0
    trials = []
    while len(trials) < num_trials:
        with threadpoolctl.threadpool_limits(
            1
        ):  # as ours: sums depend on the number of threads, and so does the time
            trial = oracle.create_trial("one")
        if trial.status != "RUNNING":
            break
        values = dict(trial.hyperparameters.values)
        fraction = values["tuner/epochs"] / max_epochs if max_epochs else 1.0
        value = known_function(values) / fraction
        oracle.update_trial(trial.trial_id, {"objective": value})
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
        trials.append((values, value))
    return trials


@pytest.mark.parametrize("algorithm", ["random", "bayesian", "hyperband"])
def test_suggestions_are_keras_tuners(algorithm, tmp_path):
    base, search = load_search(SPACE)
    search = dataclasses.replace(search, algorithm=algorithm, seed=7, initial_points=3)
    objective = keras_tuner.Objective("objective", "min")
    settings = {"objective": objective, "seed": 7, "hyperparameters": hyperparameters(search)}
    if algorithm == "random":
        theirs = keras_tuner.oracles.RandomSearchOracle(max_trials=20, **settings)
    elif algorithm == "bayesian":
        theirs = keras_tuner.oracles.BayesianOptimizationOracle(
            max_trials=20, num_initial_points=3, **settings
        )
    else:
        theirs = keras_tuner.oracles.HyperbandOracle(max_epochs=4, factor=3, **settings)
    count = 5 if algorithm == "bayesian" else 20
    expected = alone(theirs, tmp_path, count, 4 if algorithm == "hyperband" else None)
    found = ours(search, base, count)
    assert len(found) == len(expected) > 4
    for (values, value), (their_values, their_value) in zip(found, expected, strict=True):
        assert values == their_values
        assert value == their_value


CONDITIONS = {
    "model.uncertainty": Choice("none", "gaussian"),
    "optimizer.name": Choice("adam", "sgd", only_if={"model.uncertainty": ("none",)}),
    "model.dropout": Choice(0.0, 0.1),
    "optimizer.momentum": Float(0.5, 0.9, only_if={"optimizer.name": ("sgd",)}),
    "model.pool_size": Int(1, 4, only_if={"optimizer.name": ("adam", "sgd"), "model.dropout": (0.1,)}),
}  # fmt: skip


@pytest.mark.parametrize(("algorithm", "trials"), [("random", 14), ("bayesian", 9)])
def test_conditions_of_conditions_hold(algorithm, trials):
    """One on a key that itself has one, and two at once."""
    base, _ = load_search(SPACE)
    search = Search(space=CONDITIONS, algorithm=algorithm, initial_points=8)
    search.check()
    found = [values for values, _ in ours(search, base, trials, len)]
    for values in found:
        assert ("optimizer.name" in values) == (values["model.uncertainty"] == "none")
        assert ("optimizer.momentum" in values) == (values.get("optimizer.name") == "sgd")
        pools = "optimizer.name" in values and values["model.dropout"] == 0.1
        assert ("model.pool_size" in values) == pools
    for name in search.space:
        assert sum(name in values for values in found) > 0


@pytest.mark.parametrize("algorithm", ["random", "bayesian"])
def test_no_trial_runs_twice(algorithm):
    """Six combinations are six trials, and then the space is exhausted."""
    base, _ = load_search(SPACE)
    space = {
        "optimizer.name": Choice("adam", "sgd"),
        "model.hidden_units": Choice((1,), (2,), (3,)),
    }
    search = Search(space=space, algorithm=algorithm, initial_points=3)
    found = [tuple(values.values()) for values, _ in ours(search, base, 10, len)]
    assert len(found) == len(set(found)) == 6


def test_keras_tuner_reloads_a_search(tmp_path):
    """Its own oracle knows the trials, their order and what was tried, and goes on."""
    base, search = load_search(SPACE)
    search = dataclasses.replace(search, algorithm="bayesian", seed=7)
    state = SearchState(search.to_json(), base.to_dict(), Options())
    for number in range(5):
        trial = step(state)
        trial.state = FAILED if number == 2 else DONE
        trial.value = None if number == 2 else 10.0**-number
        trial.oracle_value = None if number == 2 else -float(number)
        oracle = Oracle(state)
        oracle.tell(trial)
        oracle.store(state)
        state.end_order.append(trial.trial_id)
    Oracle(state).export(tmp_path / "keras_tuner", state)
    objective = keras_tuner.Objective("val_loss", "min")
    theirs = keras_tuner.oracles.BayesianOptimizationOracle(objective, max_trials=9)
    theirs._set_project_dir(str(tmp_path), "keras_tuner")
    theirs.reload()
    best = theirs.get_best_trials(4)
    assert [trial.trial_id for trial in best] == ["0004", "0003", "0001", "0000"]
    assert [trial.score for trial in best] == [1e-4, 1e-3, 0.1, 1.0]
    values = {name: record.values for name, record in state.trials.items()}
    assert {name: t.hyperparameters.values for name, t in theirs.trials.items()} == values
    following = theirs.create_trial("tuner0")
    assert following.trial_id == "5" and following.status == "RUNNING"


def test_a_trial_that_costs_its_workers_lives_has_failed(tmp_path):
    claims = Claims(tmp_path, "0")
    claims.open(*load_search(SPACE), Options())
    for _ in range(MOST_LOST):
        record = claims.claim()
        assert record.trial_id == "0000"
        claims.release(record, "killed", lost=True)
    assert claims.claim().trial_id == "0001"
    state = read_state(tmp_path)
    assert state.trials["0000"].state == FAILED and state.end_order == ["0000"]
    assert f"its worker was lost {MOST_LOST} times" in state.trials["0000"].reason


def test_trials_of_another_command_or_data_set_are_told(tmp_path, capsys):
    """Such a search went on without a word, and compared them."""
    definition, claims = load_search(SPACE), Claims(tmp_path, "0")
    claims.open(*definition, Options(data_dir="a"))
    claims.open(*definition, Options(data_dir="b"))  # nothing has ended yet
    claims.end(claims.claim(), Outcome(DONE, 0.5, ""))
    claims.open(*definition, Options(data_dir="b", backend="horovod"))
    assert "warning" not in capsys.readouterr().err
    claims.open(*definition, Options(data_dir="c", trial_command="python t.py"))
    said = capsys.readouterr().err
    assert "warning: 1 trials ended with --data_dir=b, further ones run with c" in said
    assert "--trial_command=none, further ones run with python t.py" in said


def test_an_exhausted_space_and_a_rung_that_waits():
    base, _ = load_search(SPACE)
    search = Search(space={"optimizer.name": Choice("adam", "sgd")}, algorithm="random")
    state = SearchState(search.to_json(), base.to_dict(), Options())
    found = [step(state) for _ in range(3)]
    assert found[2] == EXHAUSTED and not isinstance(found[1], str)
    # Hyperband with a single bracket left waits for its lower rung.
    hyperband = dataclasses.replace(load_search(SPACE)[1], algorithm="hyperband", max_trials=None)
    state = SearchState(hyperband.to_json(), base.to_dict(), Options())
    for _ in range(50):
        suggested = step(state)
        if isinstance(suggested, str):
            break
    assert suggested == IDLE
