"""keras-tuner's oracles, made from search.json and put back into it. Imports keras-tuner, and so TensorFlow."""

import contextlib
import copy
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import keras_tuner
import numpy as np
import threadpoolctl
from keras_tuner.engine.trial import Trial, TrialStatus
from keras_tuner.oracles import (
    BayesianOptimizationOracle,
    HyperbandOracle,
    RandomSearchOracle,
)
from keras_tuner.src.engine.conditions import Parent

from tfmat.errors import InputError
from tfmat.files import as_json, make_folder, write_text
from tfmat.tuning.search import FAILED, Choice, Int, Search, SearchState, TrialRecord

IDLE, EXHAUSTED = "idle", "exhausted"
# _MOST_DRAWS: combinations drawn before a space counts as exhausted. keras-tuner's 20 miss the last of a few ones.
_MOST_DRAWS = 1000


class _WithoutFiles:
    """keras-tuner writes a file a trial; here all is in search.json."""

    def save(self) -> None:
        """Nothing: see `Oracle.store`."""

    def _save_trial(self, trial: Trial) -> None:
        pass


class _Random(_WithoutFiles, RandomSearchOracle):
    pass


class _Hyperband(_WithoutFiles, HyperbandOracle):
    pass


class _Bayesian(_WithoutFiles, BayesianOptimizationOracle):
    """Keeps the state of its random numbers, which keras-tuner forgets.

    It also guesses the values of trials that still run, by a model of the trials that are done. keras-tuner takes the
    model of its previous suggestion, which a freshly loaded oracle lacks.
    """

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        done = [t for t in self.trials.values() if t.status == TrialStatus.COMPLETED]
        if self.ongoing_trials and done:
            with_ongoing = self.__dict__.copy()
            self.__dict__.update(ongoing_trials={}, trials={t.trial_id: t for t in done})
            points, values = self._vectorize_trials()
            self.__dict__.update(with_ongoing)
            self.gpr.fit(np.nan_to_num(points), np.nan_to_num(values))
        found: dict[str, Any] = super().populate_space(trial_id)
        # Among a few combinations the model's favourite may be one that has been tried.
        if found["status"] == TrialStatus.RUNNING and self._duplicate(found["values"]):
            return dict(self._random_populate_space())
        return found

    def get_state(self) -> dict[str, Any]:
        kind, keys, *rest = self._random_state.get_state()
        return {**super().get_state(), "random_state": [kind, keys.tolist(), *rest]}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        kind, keys, *rest = state["random_state"]
        self._random_state.set_state((kind, np.array(keys, np.uint32), *rest))


class Oracle:
    """The oracle of a search, as search.json left it; `store` writes its part of that."""

    def __init__(self, state: SearchState):
        self._search = search = state.search
        self._oracle = _make(search, search.max_units(state.base["train_for"]))
        self._oracle.verbose = 0
        self._oracle._max_collisions = _MOST_DRAWS
        with _kept_state():
            for record in state.trials.values():
                self._oracle.trials[record.trial_id] = self._trial(record)
            if state.oracle:
                self._oracle.set_state(copy.deepcopy(state.oracle))  # it changes what it is given
        if state.oracle and search.algorithm == "hyperband":
            self._oracle.hyperband_iterations = search.iterations

    def suggest(self) -> TrialRecord | str:
        """A new trial, IDLE where that depends on trials that still run, or EXHAUSTED where there is none left."""
        # Small matrices: on cores that others use too, threads that wait for each other took 40 times longer than one.
        with threadpoolctl.threadpool_limits(1), _kept_state():
            trial = self._oracle.create_trial(f"trial {len(self._oracle.trials)}")
        if trial.status == TrialStatus.IDLE:
            return IDLE
        if trial.status != TrialStatus.RUNNING:
            return EXHAUSTED
        values = as_json(trial.hyperparameters.values)
        record = TrialRecord(trial_id=trial.trial_id, values=values, folder=trial.trial_id)
        if self._search.algorithm == "hyperband":
            record.fraction = values["tuner/epochs"] / self._oracle.max_epochs
        return record

    def tell(self, record: TrialRecord) -> None:
        """Takes the end of a trial: `oracle_value`, or nothing where it failed."""
        failed = record.state == FAILED or record.oracle_value is None
        with _kept_state():
            trial = self._oracle.trials[record.trial_id]
            if not failed:
                self._oracle.update_trial(record.trial_id, {"objective": record.oracle_value})
            trial.status = TrialStatus.FAILED if failed else TrialStatus.COMPLETED
            trial.message = record.reason
            self._oracle.end_trial(trial)

    def store(self, state: SearchState) -> None:
        """Puts the oracle's state into the search's."""
        state.oracle = as_json(self._oracle.get_state())

    def export(self, project: pathlib.Path, state: SearchState) -> None:
        """Writes keras-tuner's own files, which its tuners and oracles reload: oracle.json, and a trial.json a trial.

        A trial's score is the objective itself there, not what the oracle was told.
        """
        for record in state.trials.values():
            trial = self._trial(record)
            trial.score, trial.message = record.value, record.reason
            trial.best_step = 0
            if trial.status == TrialStatus.COMPLETED and record.value is None:
                trial.status = TrialStatus.INVALID
            folder = make_folder(project / f"trial_{record.trial_id}")
            write_text(folder / "trial.json", json.dumps(trial.get_state()))
        write_text(project / "oracle.json", json.dumps(as_json(self._oracle.get_state())))

    def _trial(self, record: TrialRecord) -> Trial:
        hyperparameters = self._oracle.hyperparameters.copy()
        hyperparameters.values = dict(record.values)
        status = TrialStatus.RUNNING
        if record.ended:
            told = record.oracle_value is not None
            status = TrialStatus.COMPLETED if told else TrialStatus.FAILED
        trial = Trial(hyperparameters, trial_id=record.trial_id, status=status)
        trial.score = record.oracle_value
        return trial


@contextlib.contextmanager
def _kept_state() -> Iterator[None]:
    """keras-tuner believes what it is given: only its stumbling over it tells that search.json was changed."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        what = " ".join(str(error).split())
        raise InputError(
            f"search.json is damaged: keras-tuner cannot go on from its part, 'oracle' "
            f"({type(error).__name__}: {what}); choose another --workdir"
        ) from error


def hyperparameters(search: Search) -> keras_tuner.HyperParameters:
    """The space in keras-tuner's own words."""
    space = keras_tuner.HyperParameters()
    for name, parameter in search.space.items():
        # Not by nested scopes: these want every parent to have the same conditions as what is inside them.
        space._conditions = [
            Parent(parent, [key for key in choice.keys if choice.value(key) in wanted])
            for parent, wanted in (parameter.only_if or {}).items()
            if isinstance(choice := search.space[parent], Choice)
        ]
        if isinstance(parameter, Choice):
            space.Choice(name, parameter.keys)
        elif isinstance(parameter, Int):
            step = None if parameter.scale == "log" else parameter.step
            space.Int(name, parameter.low, parameter.high, step=step, sampling=parameter.scale)
        else:
            space.Float(name, parameter.low, parameter.high, sampling=parameter.scale)
    space._conditions = []
    return space


def _make(search: Search, max_units: int) -> Any:
    settings: dict[str, Any] = {
        "objective": keras_tuner.Objective("objective", "min"),
        "hyperparameters": hyperparameters(search),
        "tune_new_entries": False,
        "allow_new_entries": False,
        "seed": search.seed,
        # Decided by `Claims`, where a restarted search can still be ended in order.
        "max_consecutive_failed_trials": math.inf,
    }
    if search.algorithm == "hyperband":
        return _Hyperband(
            max_epochs=max_units,
            factor=search.factor,
            hyperband_iterations=search.iterations,
            **settings,
        )
    # How many trials there may be is decided by `Claims`; without a number ids have four digits.
    if search.algorithm == "random":
        return _Random(max_trials=None, **settings)
    return _Bayesian(max_trials=None, num_initial_points=search.initial_points, **settings)
