"""A search: its space, its definition and its state on disk, where it stands, and what it leaves for people."""

import dataclasses
import itertools
import math
import os
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec
import numpy as np
from msgspec import Struct

from tfmat.config import (
    FREE_SECTIONS,
    OPTIONS,
    Config,
    Duration,
    apply_override,
    call_config_function,
    check_config,
    check_saved_config,
    check_value,
    default_config,
    find_config_file,
    is_own,
    load_config,
)
from tfmat.errors import InputError, nearest
from tfmat.files import (
    Owner,
    as_json,
    check_json,
    first_difference,
    flatten,
    is_dead,
    is_here,
    read_json,
    spreadsheet_text,
    write_json,
    write_text,
)
from tfmat.report.tables import SearchSummary, SearchWorker, TrialRow

# --------------------------------------------------------------------------------------------------
# The definition of a search in a config file: the space and how to go through it.


ALGORITHMS = ("random", "bayesian", "hyperband")
Condition = Mapping[str, tuple[Any, ...]]
# Config key -> value of a trial, as keras-tuner knows it, which adds keys of its own.
Values = dict[str, Any]
# A config as JSON, nested; `check_saved_config` says which of its keys are none.
ConfigContent = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Float:
    """A number between `low` and `high`, both included; `scale` is linear or log.

    `only_if` (also of Int and Choice): name of another hyper-parameter -> its values for which this one exists, such
    as `{"optimizer.name": ("sgd", "lars")}` for a momentum.
    """

    low: float
    high: float
    scale: str = "linear"
    only_if: Condition | None = None

    def check(self, name: str) -> None:
        """InputError where the limits are none."""
        _check_limits(name, self.low, self.high, self.scale)


@dataclasses.dataclass(frozen=True)
class Int:
    """A whole number between `low` and `high`, both included, in steps of `step`; `scale` is linear or log."""

    low: int
    high: int
    step: int = 1
    scale: str = "linear"
    only_if: Condition | None = None

    def check(self, name: str) -> None:
        """InputError where the limits are none."""
        _check_limits(name, self.low, self.high, self.scale)
        if not all(isinstance(v, int) for v in (self.low, self.high, self.step)) or self.step < 1:
            raise InputError(f"search space: {name} is {self}; give whole numbers")
        if self.scale == "log" and self.step != 1:
            raise InputError(f"search space: {name} has scale='log' and a step; leave one out")


class Choice:
    """One of several values; tuples are valid too: `Choice((125,), (250,), (125, 125))`."""

    def __init__(self, *values: Any, only_if: Condition | None = None):
        self.values = tuple(tuple(v) if isinstance(v, list) else v for v in values)
        self.only_if = only_if

    def check(self, name: str) -> None:
        """InputError where there is nothing to choose from."""
        if len(self.values) < 2 or len(set(map(repr, self.values))) < len(self.values):
            raise InputError(f"search space: {name} needs two or more different values to choose")

    @property
    def keys(self) -> list[Any]:
        """The values as keras-tuner knows them: numbers and words as they are, anything else by its text."""
        kinds = {type(value) for value in self.values}
        plain = len(kinds) == 1 and kinds <= {int, float, str}
        return list(self.values) if plain else [value_text(value) for value in self.values]

    def value(self, key: Any) -> Any:
        """The value of a key."""
        return self.values[self.keys.index(key)]


Hyperparameter = Float | Int | Choice
# _SAME_TASK: keys of the data with which trials learn the same task; others change the curves that they are judged by.
_SAME_TASK = ("data.num_curves", "data.num_train", "data.reading", "data.sharding")


@dataclasses.dataclass(frozen=True)
class Search:
    """A search: what `get_search()` of a config file returns, beside `get_config()`, the config that it varies.

    Trials are compared at equal epochs or equal time, as the config's `train_for` says.

    Attributes:
      space: config key -> Float, Int or Choice; for a program of the user's also own.NAME.
      algorithm: random, bayesian or hyperband, of keras-tuner.
      max_trials: how many trials; None only for hyperband, whose brackets then say it.
      seeds: runs of each trial, with the seeds `seed`, `seed` + 1 ... of the config; their mean counts.
      objective: a column of metrics.jsonl; the best epoch counts.
      direction: whether the objective is to be small (min) or large (max).
      objective_scale: the oracle sees the objective's logarithm (log, right for losses) or itself (linear).
      stop_hopeless: end a trial whose best value so far is worse than the median of the others' at the same place.
      hopeless_after: how many trials must have ended before one can be hopeless.
      hopeless_grace: share of the training that no trial is judged in.
      max_failed_trials: so many failed trials in a row end the search.
      seed: of the oracle, 1 or more.
      initial_points: bayesian: random trials before the first model (None: three a hyper-parameter).
      factor, iterations: hyperband: what is left of each rung (one in `factor`), and how often the brackets are run.
      rungs: hyperband, where `train_for` is not in epochs: the training in so many parts.
    """

    space: Mapping[str, Hyperparameter]
    algorithm: str = "bayesian"
    max_trials: int | None = 30
    seeds: int = 1
    objective: str = "val_loss"
    objective_scale: str = "log"
    stop_hopeless: bool = True
    hopeless_after: int = 5
    hopeless_grace: float = 0.25
    max_failed_trials: int = 3
    seed: int = 1
    initial_points: int | None = None
    factor: int = 3
    iterations: int = 1
    rungs: int = 9
    direction: str = "min"

    @property
    def sign(self) -> float:
        """1 or -1: the objective times this is to be small."""
        return -1.0 if self.direction == "max" else 1.0

    def check(self) -> None:
        """InputError where the search cannot be run."""
        if not self.space:
            raise InputError("the search space is empty; name a config key in Search(space={...})")
        if self.algorithm not in ALGORITHMS:
            raise InputError(
                f"search algorithm is '{self.algorithm}'{nearest(self.algorithm, ALGORITHMS)}"
            )
        if self.objective_scale not in ("log", "linear"):
            raise InputError(f"objective_scale is '{self.objective_scale}'; give log or linear")
        if self.direction not in ("min", "max"):
            raise InputError(f"direction of the search is '{self.direction}'; give min or max")
        for name in ("seeds", "hopeless_after", "max_failed_trials", "seed", "iterations", "rungs"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InputError(f"{name} of the search is {getattr(self, name)}; give 1 or more")
        if self.factor < 2:
            raise InputError(f"factor of the search is {self.factor}; give 2 or more")
        if self.max_trials is None and self.algorithm != "hyperband":
            raise InputError("max_trials of the search is None; only hyperband ends by itself")
        if self.max_trials is not None and self.max_trials < 1:
            raise InputError(f"max_trials is {self.max_trials}; give 1 or more")
        for name, parameter in self.space.items():
            self._check_parameter(name, parameter)

    def _check_parameter(self, name: str, parameter: Hyperparameter) -> None:
        if name not in OPTIONS and not is_own(name):
            raise InputError(
                f"search space: unknown config key '{name}'{nearest(name, [*OPTIONS])}; for a --trial_command also "
                "own.NAME"
            )
        if not isinstance(parameter, Float | Int | Choice):
            raise InputError(f"search space: {name} is {parameter!r}; give Float, Int or Choice")
        parameter.check(name)
        values = (
            parameter.values if isinstance(parameter, Choice) else (parameter.low, parameter.high)
        )
        for value in values:
            check_value(name, value)
        # keras-tuner conditions look back only.
        earlier = list(itertools.takewhile(lambda other: other != name, self.space))
        for parent, wanted in (parameter.only_if or {}).items():
            other = self.space.get(parent)
            if parent not in earlier or not isinstance(other, Choice):
                raise InputError(
                    f"search space: {name} exists only for values of {parent}, which must be a Choice before it"
                )
            for value in wanted:
                if value not in other.values:
                    raise InputError(f"search space: {name}: {value!r} is no choice of {parent}")

    def check_comparable(self) -> None:
        """InputError where the space holds what changes the meaning of the objective, so that no trial is the best."""
        for name, parameter in self.space.items():
            if is_own(name):
                raise InputError(
                    f"search space: {name} is for a --trial_command, tfmat train does not read it; leave it out"
                )
            flows = isinstance(parameter, Choice) and "flow" in parameter.values
            if name in ("seed", "train_for"):
                why = "is one for all trials, which could not be compared else"
            elif (
                name in ("law", "tests")
                or (name.startswith("data.") and name not in _SAME_TASK)
                or ("loss" in self.objective and (name == "loss_weights" or flows))
            ):
                why = (
                    f"changes what {self.objective} measures, so that trials could not be compared"
                )
            else:
                continue
            raise InputError(f"search space: {name} {why}; leave it out, or search for each value")

    def to_json(self) -> dict[str, Any]:
        """The search as search.json has it."""
        space = {name: {"kind": type(p).__name__, **vars(p)} for name, p in self.space.items()}
        found: dict[str, Any] = as_json({**vars(self), "space": space})
        return found

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Search":
        """The inverse of `to_json`."""
        content = check_json(content, dict[str, Any], "definition")
        entries = check_json(content.get("space"), dict[str, dict[str, Any]], "definition.space")
        space: dict[str, Hyperparameter] = {}
        for name, saved in entries.items():
            space[name] = _hyperparameter(f"definition.space.{name}", saved)
        kinds = {field.name: field.type for field in dataclasses.fields(cls)}
        given = {name: content[name] for name in kinds if name in content and name != "space"}
        for name, value in given.items():
            check_json(value, kinds[name], f"definition.{name}")
        search = cls(space, **given)
        search.check()
        return search

    def check_values(self, values: Values, where: str) -> None:
        """InputError where the values of a trial are none of this space."""
        for name, parameter in self.space.items():
            value = values.get(name, parameter)
            if value is parameter:
                continue
            if not isinstance(parameter, Choice):
                check_value(name, value)
            elif value not in parameter.keys:
                raise InputError(f"{where}: {name} is {value!r}, which is not in the space")

    def config_values(self, values: Values) -> dict[str, Any]:
        """A trial's values as the config takes them, in the order of the space."""
        return {
            name: parameter.value(values[name]) if isinstance(parameter, Choice) else values[name]
            for name, parameter in self.space.items()
            if name in values
        }

    def scales(self) -> dict[str, str]:
        """Hyper-parameter -> linear or log: how its values are best drawn."""
        scales = {}
        for name, parameter in self.space.items():
            values = parameter.keys if isinstance(parameter, Choice) else []
            numbers = [v for v in values if not isinstance(v, str) and v > 0]
            wide = len(numbers) == len(values) > 0 and max(numbers) >= 8 * min(numbers)
            scales[name] = getattr(parameter, "scale", "log" if wide else "linear")
        return scales

    def max_units(self, train_for: str) -> int:
        """Hyperband: the parts that a full training has; epochs where it is measured in them."""
        duration = Duration.parse(train_for)
        return max(1, round(duration.value)) if duration.unit == "epochs" else self.rungs


def _hyperparameter(where: str, saved: dict[str, Any]) -> Hyperparameter:
    kind = {"Float": Float, "Int": Int, "Choice": _SavedChoice}.get(str(saved.get("kind")))
    if kind is None:
        raise InputError(f"{where}.kind is {saved.get('kind')!r}; expected Float, Int or Choice")
    only_if = check_json(saved.get("only_if"), dict[str, list[Any]] | None, f"{where}.only_if")
    found = check_json({**saved, "only_if": None}, kind, where)
    condition = _tuples(only_if)
    if isinstance(found, _SavedChoice):
        return Choice(*map(_tuples, found.values), only_if=condition)
    return dataclasses.replace(found, only_if=condition)


@dataclasses.dataclass(frozen=True)
class _SavedChoice:
    values: list[Any]


def value_text(value: Any) -> str:
    """A value as on the command line: `125,125` for a tuple."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_limits(name: str, low: float, high: float, scale: str) -> None:
    if scale not in ("linear", "log"):
        raise InputError(f"search space: {name} has scale='{scale}'; give linear or log")
    if not low < high or (scale == "log" and low <= 0):
        wanted = "0 < low < high" if scale == "log" else "low < high"
        raise InputError(f"search space: {name} goes from {low} to {high}; give {wanted}")


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


# --------------------------------------------------------------------------------------------------
# `search.json`: everything that is known of a search, in one file that is whole or absent.


# FORMAT: version of search.json.
FORMAT = 1
# A worker's name, and seconds since 1970 from which and until when it ran a trial; None while it does.
Interval = tuple[str, float, float | None]
# States of a trial. The first two may be run; the others have ended, each counted once.
STATES = ("waiting", "running", "done", "stopped", "diverged", "failed")
WAITING, RUNNING, DONE, STOPPED, DIVERGED, FAILED = STATES


class _Base(TypedDict):
    """The keys of a config that are read; the rest has its defaults."""

    train_for: str
    seed: int
    data: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Options:
    """How the trials of a search are run.

    Attributes:
      trial_launcher: words in front of it, such as `mpirun -np 2`; empty for none.
      trial_command: another command instead of `tfmat train`, in which {config}, {workdir} and {seed} are replaced;
        empty for `tfmat train`. It leaves config.json (`total_steps`), metrics.jsonl and status.json in its workdir.
      lease: seconds without a sign of life after which a worker on another machine counts as dead.
      reports: whether each trial's network is measured on the test curves, and has a report.
    """

    data_dir: str = "data"
    backend: str = "single"
    trial_launcher: str = ""
    trial_command: str = ""
    lease: float = 60.0
    reports: bool = False


@dataclasses.dataclass
class TrialRecord:
    """One trial.

    Attributes:
      trial_id: four digits, in the order of their start.
      values: config key -> value, as keras-tuner knows them; only those that exist for this trial.
      folder: name of the folder in trials/; that of the lower rung where Hyperband goes on with its run.
      fraction: of the whole training, after which this trial ends (rungs of Hyperband).
      reason: why it ended so, one line.
      value: the objective, mean over the seeds; None where there is none.
      oracle_value: what the oracle was told.
      claim: the present claim on it, a word that no other claim shares; its owner and its process see `Claims`.
      worker: who holds it, or held it last.
      owner: process of that worker.
      intervals: one each time that it ran.
      lost: how often the worker that ran it died.
    """

    trial_id: str
    values: Values
    folder: str
    fraction: float = 1.0
    state: str = WAITING
    reason: str = ""
    value: float | None = None
    oracle_value: float | None = None
    claim: str = ""
    worker: str = ""
    owner: Owner = dataclasses.field(default_factory=lambda: Owner())
    intervals: list[Interval] = dataclasses.field(default_factory=list)
    lost: int = 0

    @property
    def ended(self) -> bool:
        """Whether it counts."""
        return self.state not in (WAITING, RUNNING)


@dataclasses.dataclass
class SearchState:
    """A search.

    Attributes:
      definition: the Search as JSON.
      base: the config that it varies.
      oracle: state of keras-tuner's oracle; {} before the first suggestion.
      trials: in the order of their start.
      end_order: ids in the order of their end.
      ended: why no further trial starts, or "".
      failed: the search ended because too many trials failed.
    """

    definition: dict[str, Any]
    base: ConfigContent
    options: Options
    oracle: dict[str, Any] = dataclasses.field(default_factory=dict)
    trials: dict[str, TrialRecord] = dataclasses.field(default_factory=dict)
    end_order: list[str] = dataclasses.field(default_factory=list)
    ended: str = ""
    failed: bool = False

    @property
    def search(self) -> Search:
        """The definition."""
        return Search.from_json(self.definition)

    def with_state(self, *states: str) -> list[TrialRecord]:
        """The trials in one of these states, the oldest first."""
        return [trial for trial in self.trials.values() if trial.state in states]

    def failures_in_a_row(self) -> int:
        """How many trials failed since the last one that did not."""
        states = [self.trials[trial_id].state for trial_id in self.end_order]
        return sum(1 for _ in itertools.takewhile(lambda state: state == FAILED, states[::-1]))

    def best(self) -> TrialRecord | None:
        """The trial with the best value: of those that trained to the end, where there is one."""
        for states, shortest in (((DONE,), 1.0), ((DONE,), 0.0), ((STOPPED,), 0.0)):
            found = [t for t in self.with_state(*states) if t.fraction >= shortest]
            found = [t for t in found if t.value is not None and math.isfinite(t.value)]
            if found:
                sign = self.search.sign
                return min(found, key=lambda trial: sign * (trial.value or 0.0))
        return None

    def median_seconds(self) -> float | None:
        """How long a trial takes, over those that are done."""
        times = [
            sum(end - start for _, start, end in trial.intervals if end is not None)
            for trial in self.with_state(DONE, STOPPED, DIVERGED)
        ]
        return statistics.median(times) if times else None


def state_path(workdir: str | os.PathLike) -> pathlib.Path:
    """Where a search's state lies."""
    return pathlib.Path(workdir) / "search.json"


def read_state(workdir: str | os.PathLike) -> SearchState:
    """Reads search.json; needs no lock, since it is whole at any time.

    Raises:
      InputError: there is no search, or it is of another version of tfmat.
    """
    path = state_path(workdir)
    if not path.exists():
        raise InputError(
            f"{path} does not exist; start a search: tfmat tune --config=configs/tune.py --workdir={workdir}"
        )
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is of another version of tfmat; choose another --workdir")
    state: SearchState = check_json(content, SearchState, path)
    try:
        _check_sense(state)
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    return state


def _check_sense(state: SearchState) -> None:
    """InputError where the parts of a state, each of the right type, do not belong together."""
    check_json(state.base, _Base, "base")
    _, unknown_keys = check_saved_config(state.base)
    if unknown_keys:
        raise InputError(f"base: {', '.join(unknown_keys)} of it is no config key")
    search = state.search
    for trial_id, record in state.trials.items():
        here = f"trials.{trial_id}"
        if record.trial_id != trial_id or not _is_name(record.folder) or not _is_name(trial_id):
            raise InputError(f"{here}: trial_id is {record.trial_id!r}, folder {record.folder!r}")
        if record.state not in STATES:
            raise InputError(f"{here}: state is {record.state!r}")
        if record.ended != (trial_id in state.end_order):
            raise InputError(f"{here}: state is {record.state}, and end_order says otherwise")
        search.check_values(record.values, here)
    unknown = [trial_id for trial_id in state.end_order if trial_id not in state.trials]
    if unknown or len(set(state.end_order)) < len(state.end_order):
        raise InputError(f"end_order: {', '.join(unknown) or 'a trial stands in it twice'}")


def _is_name(text: str) -> bool:
    """Whether it is the name of one folder, and no path that leads elsewhere."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text


def write_state(workdir: str | os.PathLike, state: SearchState) -> None:
    """Writes search.json, whole or not at all; only under the lock."""
    content = {"format": FORMAT, **dataclasses.asdict(state)}
    write_json(state_path(workdir), as_json(content))


# --------------------------------------------------------------------------------------------------
# A config file makes a search, which may go on with another definition or not; a trial's values make a config file.


# Changes that a definition may have when a search goes on: the suggestions stay what they were.
CHANGEABLE = frozenset(
    {
        "max_trials",
        "iterations",
        "max_failed_trials",
        "stop_hopeless",
        "hopeless_after",
        "hopeless_grace",
    }
)


def load_search(
    path: str | os.PathLike,
    overrides: Sequence[tuple[str, str]] = (),
    max_trials: int | None = None,
    own_trials: bool = False,
) -> tuple[Config, Search]:
    """Reads `get_config()`, changed by the overrides (key, text), and `get_search()` of a config file, both checked.

    `max_trials` replaces the file's. With `own_trials` a program of the user's decides what the keys mean.

    Raises:
      InputError: the file is missing, fails, or says what does not exist.
    """
    file = find_config_file(os.fspath(path))
    base = load_config(file)
    search = call_config_function(file, "get_search", Search, "tfmat.tuning.Search(...)")
    for key, text in overrides:
        if key in search.space:
            raise InputError(f"--config.{key}={text}: the search chooses {key}; leave this out")
        apply_override(base, key, text)
    check_config(base)
    search.check()
    if not own_trials:
        search.check_comparable()
    of_loss = "loss" in search.objective and search.objective_scale == "log"
    if base.model.uncertainty == "flow" and of_loss:
        raise InputError(
            f"{search.objective} of model.uncertainty=flow may be negative, which has no logarithm; write "
            "Search(objective_scale='linear')"
        )
    if max_trials is not None:
        search = dataclasses.replace(search, max_trials=max_trials)
        search.check()
    return base, search


def config_text(base: ConfigContent, values: Mapping[str, Any], title: str) -> str:
    """A config file that needs no other: the default config, changed as `base` was, and to a trial's values.

    Args:
      base: a checked config, nested, as plain values.
    """
    changes: dict[str, Any] = {}
    defaults = flatten(default_config().to_dict())
    for key, value in flatten(base).items():
        value = tuple(value) if isinstance(value, list) else value
        if key.partition(".")[0] in FREE_SECTIONS or value != defaults[key]:
            changes[key] = value
    lines = [_assignment(key, value) for key, value in changes.items() if key not in values]
    found = [_assignment(key, value) for key, value in values.items()]
    body = [*lines, *(["# Found by the search:"] if found else []), *found] or ["pass"]
    inside = "\n".join(f"        {line}" for line in body)
    return f'''"""{title}"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    config = default_config()
    with config.ignore_type():
{inside}
    return config
'''


def _assignment(key: str, value: Any) -> str:
    section, _, name = key.partition(".")
    if section in FREE_SECTIONS:
        return f"config.{section}[{name!r}] = {value!r}"
    if key in OPTIONS:
        value = OPTIONS[key].check(value)
    return f"config.{key} = {value!r}"


def is_longer(before: Search, now: Search) -> bool:
    """Whether a search that had ended goes on."""
    if now.iterations > before.iterations:
        return True
    old, new = before.max_trials, now.max_trials
    return old is not None and (new is None or new > old)


def check_same(
    workdir: pathlib.Path, state: SearchState, search: Search, base: ConfigContent
) -> None:
    """InputError where a search was started with other settings, naming the first that differs."""
    # A key that a later version of tfmat added has its default in both.
    defaults = flatten(as_json(default_config().to_dict()))
    for what, before, now, changeable in (
        ("search", flatten(state.search.to_json()), flatten(search.to_json()), CHANGEABLE),
        ("config", defaults | flatten(state.base), defaults | flatten(base), frozenset()),
    ):
        key = first_difference(before, now, changeable)
        if key is not None:
            raise InputError(
                f"the search in {workdir} was started with another {what}: {key} was {before.get(key)}, "
                f"is {now.get(key)}; use the same config file to go on, or another --workdir"
            )


# --------------------------------------------------------------------------------------------------
# Where a search stands, and what it leaves for people: best.py, trials.csv, TensorBoard's HParams, a page.

# With fewer a forest says nothing.
FEWEST_TRIALS = 8


# _TREES: of the forest that ranks what matters.
_TREES = 128


def record_end(workdir: pathlib.Path, trial_id: str) -> None:
    """Writes what a trial leaves when it has ended: its HParams, and best.py where it is the best."""
    state = read_state(workdir)
    write_hparams(workdir, state, state.trials[trial_id])
    best = state.best()
    if best is not None and best.trial_id == trial_id:
        write_best(workdir, state)


def write_results(workdir: str | os.PathLike) -> list[pathlib.Path]:
    """Writes best.py, trials.csv and tuning.html from search.json; returns their paths. At any time."""
    folder = pathlib.Path(workdir)
    state = read_state(folder)
    written = [write_csv(folder, state), write_page(folder, state)]
    return [*write_best(folder, state), *written]


def write_best(workdir: pathlib.Path, state: SearchState) -> list[pathlib.Path]:
    """The best trial's config, as trials take it; nothing before a trial is done."""
    best = state.best()
    if best is None:
        return []
    search = state.search
    path = workdir / "best.py"
    title = (
        f"Trial {best.trial_id}, the best of {len(state.end_order)} trials: {search.objective} {best.value:.4g}.\n\n"
        f"    {_best_command(workdir, state)}\n"
    )
    write_text(path, config_text(state.base, search.config_values(best.values), title))
    return [path]


def _best_command(workdir: pathlib.Path, state: SearchState) -> str:
    command = state.options.trial_command or "tfmat train --config={config}"
    return command.format(config=workdir / "best.py", workdir="WORKDIR", seed=state.base["seed"])


def trial_rows(state: SearchState) -> list[TrialRow]:
    """One row a trial, in the order of their start: what the CSV and the page show."""
    search = state.search
    return [
        TrialRow(
            trial=record.trial_id,
            state=record.state,
            value=record.value,
            values=_shown(search, record),
            fraction=record.fraction,
            seconds=round(seconds_of(record), 1),
            started=record.intervals[0][1] if record.intervals else None,
            worker=record.worker,
            times_lost=record.lost,
            folder=f"trials/{record.folder}",
            reason=record.reason,
        )
        for record in state.trials.values()
    ]


def _shown(search: Search, record: TrialRecord) -> dict[str, Any]:
    """A trial's values, tuples as text."""
    values = search.config_values(record.values)
    return {n: value_text(v) if isinstance(v, tuple) else v for n, v in values.items()}


def seconds_of(record: TrialRecord) -> float:
    """How long a trial has run, over all its workers."""
    now = time.time()
    return sum((now if end is None else end) - start for _, start, end in record.intervals)


def write_csv(workdir: pathlib.Path, state: SearchState) -> pathlib.Path:
    """`trials.csv`: one row a trial."""
    import pandas as pd

    search = state.search
    rows = [msgspec.structs.asdict(row) for row in trial_rows(state)]
    rows = [{search.objective: row.pop("value"), **row.pop("values"), **row} for row in rows]
    first = ["trial", "state", search.objective, *search.space]
    table = pd.DataFrame(rows)
    if len(table):
        table = table.reindex(columns=[*first, *(c for c in table.columns if c not in first)])
        table["started"] = pd.to_datetime(table["started"], unit="s", utc=True).dt.floor("s")
    path = workdir / "trials.csv"
    write_text(path, spreadsheet_text(table))
    return path


def write_hparams(workdir: pathlib.Path, state: SearchState, record: TrialRecord) -> None:
    """One event file for TensorBoard's HParams page: `tensorboard --logdir=WORKDIR/tensorboard`."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import api_pb2, summary_v2
    from tensorboard.plugins.hparams.summary import session_end_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    search = state.search
    folder = workdir / "tensorboard" / record.trial_id
    writer = EventFileWriter(str(folder))
    now = time.time()
    start = record.intervals[0][1] if record.intervals else now
    summaries = [
        summary_v2.hparams_config_pb(
            hparams=[summary_v2.HParam(name) for name in search.space],
            metrics=[summary_v2.Metric(search.objective)],
        ),
        summary_v2.hparams_pb(
            _shown(search, record), trial_id=record.trial_id, start_time_secs=start
        ),
        session_end_pb(
            api_pb2.STATUS_SUCCESS if record.value is not None else api_pb2.STATUS_FAILURE
        ),
    ]
    if record.value is not None:
        metric = summary_pb2.Summary.Value(tag=search.objective, simple_value=record.value)
        summaries.append(summary_pb2.Summary(value=[metric]))
    for summary in summaries:
        # TensorBoard's protocol buffers and TensorFlow's, which HParams takes where it finds them, differ in name only.
        own = summary_pb2.Summary.FromString(summary.SerializeToString())
        writer.add_event(event_pb2.Event(wall_time=now, step=0, summary=own))
    writer.close()


def write_page(workdir: pathlib.Path, state: SearchState) -> pathlib.Path:
    """Writes tuning.html; returns its path."""
    from tfmat.report.pages import write_tuning_report

    search = state.search
    try:
        weights = importances(search, state)
    except InputError:
        weights = {}
    return write_tuning_report(
        workdir, summarize(workdir, state), trial_rows(state), search.scales(), weights
    )


def importances(search: Search, state: SearchState) -> dict[str, float]:
    """Hyper-parameter -> its share of what they all explain, largest first; {} with too few trials.

    The mean decrease in impurity of a random forest (Breiman, Machine Learning 45, 2001) that predicts what the oracle
    was told: the logarithm of the objective for losses. A hyper-parameter that does not exist for a trial has the
    middle of its range there; words are split into one column each, whose shares are added.
    """
    trials = [t for t in state.with_state(DONE, STOPPED, DIVERGED) if t.oracle_value is not None]
    trials = [t for t in trials if t.fraction == max(other.fraction for other in trials)]
    targets = np.array([trial.oracle_value for trial in trials], float)
    if len(trials) < FEWEST_TRIALS or np.ptp(targets) == 0:
        return {}
    from sklearn.ensemble import RandomForestRegressor

    columns, owners = [], []
    for name in search.space:
        for column in _columns(search, name, [trial.values.get(name) for trial in trials]):
            columns.append(column)
            owners.append(name)
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=0)
    forest.fit(np.stack(columns, axis=1), targets)
    shares = dict.fromkeys(search.space, 0.0)
    for owner, share in zip(owners, forest.feature_importances_, strict=True):
        shares[owner] += float(share)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _columns(search: Search, name: str, values: list) -> list[np.ndarray]:
    """One column of numbers, or one a word: [trials] each."""
    parameter = search.space[name]
    if isinstance(parameter, Choice) and isinstance(parameter.keys[0], str):
        return [np.array([value == key for value in values], float) for key in parameter.keys]
    known = [float(value) for value in values if value is not None]
    middle = float(np.median(known)) if known else 0.0
    return [np.array([middle if value is None else float(value) for value in values])]


class WorkerFile(Struct):
    """`workers/NAME.json`.

    Attributes:
      owner: the process that works under that name, or did last.
      sessions: (start, end) of each process of that name, seconds since 1970.
    """

    owner: Owner
    sessions: list[tuple[float, float]]


def read_worker(path: pathlib.Path) -> WorkerFile:
    """The file of a worker; its last session ends with its last sign of life."""
    found: WorkerFile = check_json(read_json(path), WorkerFile, path)
    if not found.sessions or not {"host", "pid"} <= found.owner.keys():
        raise InputError(
            f"{path} is damaged: no session or owner; remove it once that worker ended"
        )
    start = found.sessions[-1][0]
    found.sessions[-1] = (start, max(path.stat().st_mtime, start))
    return found


def summarize(workdir: str | os.PathLike, state: SearchState | None = None) -> SearchSummary:
    """The summary of a search's folder; needs no lock.

    Raises:
      InputError: there is no search in it.
    """
    folder = pathlib.Path(workdir)
    state = state or read_state(folder)
    search = state.search
    workers = [_worker(state, path) for path in sorted((folder / "workers").glob("*.json"))]
    best, alive_seconds = state.best(), sum(worker.alive_seconds for worker in workers)
    busy_seconds = sum(worker.busy_seconds for worker in workers)
    intervals = [interval for trial in state.trials.values() for interval in trial.intervals]
    starts = [start for _, start, _ in intervals]
    ends = [time.time() if end is None else end for _, _, end in intervals]
    return SearchSummary(
        name=folder.resolve().name,
        algorithm=search.algorithm,
        objective=search.objective,
        direction=search.direction,
        seeds=search.seeds,
        train_for=state.base["train_for"],
        counts={name: len(state.with_state(name)) for name in STATES},
        max_trials=search.max_trials,
        ended=state.ended,
        failed=state.failed,
        best=best.trial_id if best else None,
        best_value=best.value if best else None,
        best_command=_best_command(folder, state),
        median_seconds=state.median_seconds(),
        seconds_left=_seconds_left(search, state, sum(worker.alive for worker in workers)),
        seconds=max(ends) - min(starts) if starts else 0.0,
        workers=workers,
        utilization=busy_seconds / alive_seconds if alive_seconds > 0 else None,
    )


def _worker(state: SearchState, path: pathlib.Path) -> SearchWorker:
    """A name that ever worked on the search; whether it lives, as far as can be told from here."""
    name, file, busy, trial = path.stem, read_worker(path), 0.0, ""
    if is_here(file.owner):
        alive = not is_dead(file.owner)
    else:
        alive = time.time() - path.stat().st_mtime < state.options.lease
    if alive:
        file.sessions[-1] = (file.sessions[-1][0], time.time())
    for candidate in state.trials.values():
        for worker, start, end in candidate.intervals:
            if worker != name:
                continue
            # A worker that was killed cannot say when: its trial's time ends with its own.
            last = next((e for s, e in file.sessions if s <= start <= e), start)
            busy += min(last, math.inf if end is None else end) - start
            if end is None and alive:
                trial = candidate.trial_id
    return SearchWorker(
        name=name,
        host=file.owner["host"],
        alive=alive,
        busy_seconds=busy,
        alive_seconds=sum(end - start for start, end in file.sessions),
        starts=len(file.sessions),
        trial=trial,
    )


def _seconds_left(search: Search, state: SearchState, num_workers: int) -> float | None:
    if state.ended:
        return 0.0
    median = state.median_seconds()
    if median is None or search.max_trials is None or not num_workers:
        return None
    now = time.time()
    running = [
        max(0.0, median - (now - trial.intervals[-1][1])) for trial in state.with_state("running")
    ]
    left = search.max_trials - len(state.end_order) - len(running)
    return (sum(running) + max(0, left) * median) / num_workers
