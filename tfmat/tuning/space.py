"""What a config file says about a search: the space and how to go through it."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from tfmat.config import Config
from tfmat.config_schema import OPTIONS
from tfmat.errors import InputError, nearest
from tfmat.files import as_json, check_json
from tfmat.training.plan import RunPlan

ALGORITHMS = ("random", "bayesian", "hyperband")
Condition = Mapping[str, tuple[Any, ...]]


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


@dataclasses.dataclass(frozen=True)
class Search:
    """A search: what `get_search()` of a config file returns, beside `get_config()`, the config that it varies.

    Trials are compared at equal epochs or equal time, as the config's `train_for` says.

    Attributes:
      space: config key -> Float, Int or Choice.
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
        option = OPTIONS.get(name)
        if option is None:
            raise InputError(
                f"search space: unknown config key '{name}'{nearest(name, [*OPTIONS])}"
            )
        if not isinstance(parameter, Float | Int | Choice):
            raise InputError(f"search space: {name} is {parameter!r}; give Float, Int or Choice")
        parameter.check(name)
        values = (
            parameter.values if isinstance(parameter, Choice) else (parameter.low, parameter.high)
        )
        for value in values:
            option.check(value)
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

    def to_json(self) -> dict[str, Any]:
        """The search as plain values, for search.json."""
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["space"] = {
            name: {"kind": type(p).__name__, **as_json(vars(p))} for name, p in self.space.items()
        }
        return content

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

    def check_values(self, values: Mapping[str, Any], where: str) -> None:
        """InputError where the values of a trial are none of this space."""
        for name, parameter in self.space.items():
            value = values.get(name, parameter)
            if value is parameter:
                continue
            if not isinstance(parameter, Choice):
                OPTIONS[name].check(value)
            elif value not in parameter.keys:
                raise InputError(f"{where}: {name} is {value!r}, which is not in the space")

    def config_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
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

    def max_units(self, base: Config) -> int:
        """Hyperband: the parts that a full training has; epochs where it is measured in them."""
        duration = RunPlan.of_config(base).train_for
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
