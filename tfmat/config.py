"""The config of a run: its keys and their types, what is allowed, lengths in steps or epochs, files and overrides."""

import dataclasses
import functools
import itertools
import math
import numbers
import os
import pathlib
import re
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_args

from ml_collections import ConfigDict as Config

from tfmat.errors import InputError, nearest
from tfmat.files import check_json, flatten, literal, read_json

# --------------------------------------------------------------------------------------------------
# Lengths of training: durations (`20steps`, `8epochs`, `90s`, `10m`, `2h`), and epochs in steps, also where the batch
# grows from epoch to epoch (Smith et al. 2017, arXiv:1711.00489).


Growth = tuple[tuple[int, int], ...]
_NEVER = 2**62

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_ALSO = {"step": "steps", "epoch": "epochs", "min": "m", "sec": "s"}


@dataclasses.dataclass(frozen=True)
class Duration:
    """A number with a unit."""

    value: float
    unit: Literal["steps", "epochs", "s", "m", "h"]

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Reads a number with a unit; InputError says which units there are."""
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]+)\s*", str(text))
        if match:
            value, unit = float(match[1]), _ALSO.get(match[2], match[2])
            known = unit in ("steps", "epochs", *_SECONDS)
            if known and math.isfinite(value) and (unit != "steps" or value == int(value)):
                return cls(value, unit)  # type: ignore[arg-type]
        raise InputError(
            f"'{text}' is not a duration; give a number with a unit: 20steps, 8epochs, 90s, 10m or 2h"
        )

    @property
    def seconds(self) -> float | None:
        """Seconds for a duration in time; None for one in steps or epochs."""
        return self.value * _SECONDS[self.unit] if self.unit in _SECONDS else None

    def steps(self, steps_per_epoch: int) -> int:
        """Steps for a duration in steps or epochs."""
        if self.seconds is not None:
            raise ValueError(f"{self} is a time; its steps follow from a measured rate")
        return round(self.value * (steps_per_epoch if self.unit == "epochs" else 1))

    def __str__(self) -> str:
        value = int(self.value) if self.value == int(self.value) else self.value
        return f"{value}{self.unit}"


def seconds_of(text: str) -> float | None:
    """Seconds of a time as people write it; None for steps or epochs. InputError where it is no duration."""
    return Duration.parse(text).seconds


def parse_growth(text: str) -> Growth:
    """`4epochs:2,6epochs:4` as pairs of an epoch and how many times the first batch it and later ones have.

    Raises:
      InputError: where it is of another form, or the epochs do not rise.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d+)\s*epochs?\s*:\s*(\d+)", part)
        if not match:
            raise InputError(
                f"'{part}' is no growth of the batch; write whole epochs and a factor: 4epochs:2,6epochs:4"
            )
        found.append((int(match[1]), int(match[2])))
    epochs, factors = [0, *(e for e, _ in found)], [1, *(f for _, f in found)]
    if any(b <= a for a, b in itertools.pairwise(epochs)) or min(factors) < 1:
        raise InputError(
            f"'{text}': epochs must rise from 1 on, and factors (of the first batch) be 1 or more"
        )
    return tuple(found)


def is_growth(text: str) -> bool:
    """Whether `parse_growth` takes it."""
    try:
        parse_growth(text)
    except InputError:
        return False
    return True


class Span(NamedTuple):
    """Batches `first` to `first + steps` of an epoch: what one call of the backend runs."""

    epoch: int
    first: int
    steps: int


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """Batches and steps of each epoch; the order of the examples does not depend on it.

    Attributes:
      num_examples: in an epoch.
      global_batch_size: of the first epoch.
      growth: see `parse_growth`.
    """

    num_examples: int
    global_batch_size: int
    growth: Growth = ()

    def __post_init__(self) -> None:
        largest = self.batch_size(_NEVER)
        if self.growth and largest > self.num_examples:
            raise InputError(
                f"batch_growth makes the batch {largest}, there are {self.num_examples} training examples; "
                "let it grow less"
            )

    def factor(self, epoch: int) -> int:
        """The batch of `epoch` (from 0) over the first batch."""
        return next((factor for first, factor in reversed(self.growth) if epoch >= first), 1)

    def batch_size(self, epoch: int) -> int:
        """Examples per step in `epoch` (from 0)."""
        return self.global_batch_size * self.factor(epoch)

    def steps_in(self, epoch: int) -> int:
        """Steps of `epoch`, a last partial batch included."""
        return -(-self.num_examples // self.batch_size(epoch))

    def first_step(self, epoch: int) -> int:
        """Global step at which `epoch` begins."""
        return sum(
            steps * (min(epoch, stop) - start)
            for start, stop, steps in self._stages()
            if start < epoch
        )

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, step within it) of a global step."""
        stages = [stage for stage in self._stages() if self.first_step(stage[0]) <= step]
        start, _, steps = stages[-1]
        epochs, within = divmod(step - self.first_step(start), steps)
        return start + epochs, within

    def epochs(self, step: int) -> float:
        """Epochs that are done after `step` steps, with their fraction."""
        epoch, within = self.locate(step)
        return epoch + within / self.steps_in(epoch)

    def spans(self, longest: int, steps: int | None = None) -> Iterator[Span]:
        """The first `steps` steps, or all without end, in spans of at most `longest` within an epoch."""
        done = 0
        while steps is None or done < steps:
            epoch, first = self.locate(done)
            left = self.steps_in(epoch) - first
            count = min(longest, left if steps is None else min(left, steps - done))
            yield Span(epoch, first, count)
            done += count

    def steps(self, duration: Duration) -> int:
        """Steps that a duration in steps or epochs takes from the start."""
        if duration.unit != "epochs" or not self.growth:
            return duration.steps(self.steps_in(0))
        epoch = math.floor(duration.value)
        return self.first_step(epoch) + round((duration.value - epoch) * self.steps_in(epoch))

    def next_multiple(self, duration: Duration, step: int) -> int:
        """The first step after `step` at which a whole number of `duration`s is done."""
        if duration.unit == "steps" or not self.growth:
            length = max(1, self.steps(duration))
            return (step // length + 1) * length
        count = math.floor(self.epochs(step) / duration.value + 1e-9)
        while True:
            count += 1
            found = self.steps(Duration(count * duration.value, "epochs"))
            if found > step:
                return found

    def _stages(self) -> list[tuple[int, int, int]]:
        """(first epoch, epoch after the last, steps an epoch) of each batch size."""
        starts = [0, *(first for first, _ in self.growth)]
        stops = [*starts[1:], _NEVER]
        return [
            (start, stop, self.steps_in(start)) for start, stop in zip(starts, stops, strict=True)
        ]


# --------------------------------------------------------------------------------------------------
# Meshes as data: `batch:4,model:2` are two named axes and eight devices; and rules of layouts on them.


# Examples are divided over the axis of this name; dense layers, by default, over the other.
BATCH, MODEL = "batch", "model"
# The network is divided into pipeline stages over the axis of this name.
STAGE = "stage"


@dataclasses.dataclass(frozen=True)
class MeshShape:
    """Named axes and their numbers of devices.

    Attributes:
      axes: (name, devices) in order; neighbours on the last axis are neighbouring devices.
    """

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str) -> "MeshShape":
        """`batch:4,model:2` as a mesh; InputError where it is not one."""
        axes = tuple(_parse_axis(part.strip(), text) for part in text.split(","))
        names = [name for name, _ in axes]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"mesh '{text}' names the axis {name} twice; give each axis once")
        return cls(axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(name for name, _ in self.axes)

    @property
    def num_devices(self) -> int:
        """Devices of the whole mesh."""
        return math.prod(size for _, size in self.axes)

    def size(self, axis: str | None) -> int:
        """Devices along an axis; 1 where there is no such axis."""
        return dict(self.axes).get(axis or "", 1)

    def devices_per_process(self, num_processes: int) -> int:
        """Devices of each process; InputError where they cannot be shared out evenly."""
        if self.num_devices % num_processes:
            raise InputError(
                f"mesh {self} has {self.num_devices} devices for {num_processes} processes, which get unequal parts; "
                f"use a mesh of a multiple of {num_processes} devices, or another number of processes"
            )
        return self.num_devices // num_processes

    def check_devices(self, available: int, kind: str, num_processes: int = 1) -> None:
        """InputError where a process's part of the mesh is larger than the devices that it has."""
        wanted = self.devices_per_process(num_processes)
        if wanted <= available:
            return
        of = f" for each of {num_processes} processes" if num_processes > 1 else ""
        raise InputError(
            f"mesh {self} needs {wanted} devices{of}, there are {available} {kind} devices; "
            f"the nearest that fits is {self.shrunk(available * num_processes)}"
        )

    def shrunk(self, num_devices: int) -> "MeshShape":
        """The largest mesh of these axes on at most `num_devices`: the largest axis gives way first."""
        sizes = dict(self.axes)
        while math.prod(sizes.values()) > max(1, num_devices):
            largest = max(sizes, key=lambda name: sizes[name])
            sizes[largest] -= 1
        return MeshShape(tuple(sizes.items()))

    def __str__(self) -> str:
        return ",".join(f"{name}:{size}" for name, size in self.axes)


def _parse_axis(part: str, text: str) -> tuple[str, int]:
    name, _, size = part.partition(":")
    name, size = name.strip(), size.strip()
    if not (name.isidentifier() and size.isdecimal() and int(size) > 0):
        raise InputError(
            f"mesh '{text}': '{part}' is no axis; write NAME:DEVICES, such as {BATCH}:4,{MODEL}:2"
        )
    return name, int(size)


# (regular expression over paths of variables, layout) in order; the first that matches holds.
Rules = tuple[tuple[str, str], ...]


def parse_rules(text: str) -> Rules:
    """`REGEX=LAYOUT;REGEX=LAYOUT`, as in the config, as rules; InputError where it is not that."""
    rules = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pattern, separator, layout = part.rpartition("=")
        if not (pattern and separator and layout):
            raise InputError(
                f"layouts: '{part}' is no rule; write REGEX=LAYOUT, such as hidden/kernel=-,{MODEL}"
            )
        rules.append((pattern.strip(), layout.strip()))
    return tuple(rules)


# --------------------------------------------------------------------------------------------------
# The keys of a run's config: name, default, type, meaning. The only place where a key is declared.


# ruff: noqa: E501, RUF009 (a table is read by rows; its defaults are fields)


# Sections whose keys are names of the law's parameters,
# or settings of its tests, or names that a program of the user's reads.
FREE_SECTIONS = ("ranges", "fixed", "test_ranges", "own")


@dataclasses.dataclass(frozen=True)
class Option:
    """One key of the config.

    Attributes:
      name: dotted, e.g. `optimizer.learning_rate`.
      default: value when nobody sets it.
      kind: `int`, `float`, `str`, `bool`, `duration`, `steps` (a duration not in time), or `ints`, `floats`, `words` for tuples.
      meaning: one line for `--help`, with the unit.
      valid: the condition in words, for error messages.
      accepts: the condition.
      choices: the valid strings, where there are few.
      optional: whether None (`none` on the command line) is valid.
      read: what a section makes of its text; None: takes it as it is.
      changeable: whether a run may go on with another value: it changes no number that is computed, or its rounding only.
    """

    name: str
    default: Any
    kind: str
    meaning: str
    valid: str = ""
    accepts: Callable[[Any], bool] = lambda value: True
    choices: tuple[str, ...] = ()
    optional: bool = False
    read: Callable[[str], Any] | None = None
    changeable: bool = False

    def parse(self, text: str) -> Any:
        """The value that `text` on the command line means; checked."""
        if self.optional and text.lower() == "none":
            return None
        if self.kind in ("str", "words", "duration", "steps"):
            return self.check(text)
        try:
            value = literal(text.capitalize() if self.kind == "bool" else text)
        except ValueError:
            value = text
        return self.check(value)

    def check(self, value: Any) -> Any:
        """`value` in the key's own type; InputError where it is not of that type or not valid."""
        if value is None and self.optional:
            return None
        convert, wanted = _KINDS[self.kind]
        converted = convert(value)
        if self.kind in ("duration", "steps") and converted is not None:
            self._check_duration(converted)
        if converted is None:
            condition = f", {self.valid}" if self.valid else ""
            raise InputError(f"config key {self.name} is {value!r}; give {wanted}{condition}")
        if self.choices and converted not in self.choices:
            raise InputError(
                f"config key {self.name} is '{converted}'{nearest(converted, self.choices)}"
            )
        if not self.accepts(converted):
            raise InputError(f"config key {self.name} is {value!r}; it must be {self.valid}")
        return converted

    def _check_duration(self, text: str) -> None:
        try:
            duration = Duration.parse(text)
        except InputError as error:
            raise InputError(f"config key {self.name}: {error}") from error
        if self.kind == "steps" and duration.seconds is not None:
            raise InputError(f"config key {self.name} is '{text}'; give it in steps or epochs")


def _to_int(value: Any) -> int | None:
    number = _to_float(value)
    return int(value) if number is not None and number == int(number) else None


def _to_float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return float(value) if math.isfinite(value) else None


def _to_tuple(convert: Callable[[Any], Any]) -> Callable[[Any], tuple | None]:
    def to_tuple(value: Any) -> tuple | None:
        items = tuple(
            convert(item) for item in (value if isinstance(value, tuple | list) else (value,))
        )
        return None if any(item is None for item in items) else items

    return to_tuple


def _to_words(value: Any) -> tuple[str, ...] | None:
    words = tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(words, tuple | list) or not all(isinstance(w, str) and w for w in words):
        return None
    return tuple(words)


def _as_it_is(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


# Kind of a key -> what makes its value of another (None: it cannot be made), and the kind in words.
_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_to_int, "a whole number"),
    "float": (_to_float, "a number"),
    "str": (_as_it_is(str), "a word"),
    "duration": (_as_it_is(str), "a duration such as 20steps, 8epochs or 10m"),
    "steps": (_as_it_is(str), "a duration such as 20steps or 2epochs"),
    "bool": (_as_it_is(bool), "true or false"),
    "ints": (_to_tuple(_to_int), "whole numbers, such as 16,24"),
    "floats": (_to_tuple(_to_float), "numbers, such as 0.01,0.05"),
    "words": (_to_words, "words with commas between them"),
}


def _positive(value: Any) -> bool:
    return value > 0


def _not_negative(value: Any) -> bool:
    return value >= 0


def _fraction(value: Any) -> bool:
    return 0 <= value < 1


def _all_positive(values: tuple) -> bool:
    return len(values) > 0 and all(value > 0 for value in values)


def _rising_pair(values: tuple) -> bool:
    return len(values) == 2 and 0 < values[0] <= values[1]


def _says_where(text: str) -> bool:
    """Whether a model's cuts are said in it, see tfmat.backends.segments; which layers there are is found out later."""
    if text.startswith("every:"):
        return text[6:].isdecimal() and int(text[6:]) > 0
    try:
        return all(re.compile(rule) and rule for rule in text.split(","))
    except re.error:
        return False


def _small_pair(most: float) -> Callable[[Any], bool]:
    return lambda values: _rising_pair(values) and values[1] <= most


# Kind of a key (see Option) by the type of its value; others are read from a word.
_KIND_OF = {
    int: "int",
    float: "float",
    bool: "bool",
    Duration: "duration",
    tuple[int, ...]: "ints",
    tuple[float, ...]: "floats",
    tuple[str, ...]: "words",
}
# More falls of a step schedule than these leave no rate.
_MOST_FALLS = 100
# With momentum and fewer steps between meetings the outer optimizer diverged: val_loss thirty times higher after four.
_FEWEST_STEPS_FOR_MOMENTUM = 16
# Up to so many, a short and persistent outer step ends nearest to exact sums; beyond, a whole and less persistent one.
# Measured with 16 and with 50 (docs/slow_networks.md).
_MOST_STEPS_FOR_LARGE_MOMENTUM = 25
_MICRO_BATCHES_PER_STAGE = 4

ACTIVATIONS = (
    "relu",
    "leaky_relu",
    "elu",
    "selu",
    "softplus",
    "tanh",
    "sigmoid",
    "gelu",
    "silu",
    "linear",
)


@dataclasses.dataclass(frozen=True)
class _Section:
    """Keys of a config that belong together, as a value: each checked, and read where it is text.

    A value that has been read already, such as a Duration, stays.
    """

    # The prefix of the keys' names in a config, such as `data.`; empty at its top.
    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "meaning" not in field.metadata:
                continue
            option, value = OPTIONS[f"{self.prefix}{field.name}"], getattr(self, field.name)
            if option.read is None or isinstance(value, str):
                value = option.check(value)
            if option.read is not None and isinstance(value, str):
                value = option.read(value)
            object.__setattr__(self, field.name, value)

    @classmethod
    def of(cls, config: Config) -> Self:
        """The section of a config that `check_config` has checked; InputError where its text cannot be read."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            kind: Any = field.type
            if _is_section(kind):
                values[field.name] = kind.of(config[field.name] if kind.prefix else config)
            elif field.name in config:
                value = config[field.name]
                values[field.name] = value.to_dict() if isinstance(value, Config) else value
        return cls(**values)


def key(
    default: Any,
    meaning: str,
    valid: str = "",
    accepts: Callable[[Any], bool] = lambda value: True,
    **more: Any,
) -> Any:
    """A key of a section; see Option. The field's annotation is the type that it has once it is read."""
    about = {"meaning": meaning, "valid": valid, "accepts": accepts, **more}
    return dataclasses.field(default=default, metadata=about)


# fmt: off
@dataclasses.dataclass(frozen=True)
class Parallelism(_Section):
    """How steps are shared over devices and processes; these keys stand at the top of a config."""

    mesh: MeshShape = key("batch:1", "named axes: dtensor: with their devices, such as batch:4,model:2; horovod, mpi: with their processes, such as stage:2 or batch:2,stage:2, where each stage has a part of the network (docs/large_networks.md)", read=MeshShape.parse, changeable=True)
    stages: str = key("", "pipeline stages: regular expressions over names of layers behind which the network is cut, with commas between them (none: cuts that balance the bytes of weights)", changeable=True)
    micro_batches: int | None = key(None, "pipeline stages: parts of a worker's batch that go through the stages one after the other (none: four for each stage)", "1 to 64", lambda v: 1 <= v <= 64, changeable=True)
    schedule: str = key("1f1b", "pipeline stages: gpipe: all forward passes, then all backward passes; 1f1b: backward passes as soon as they can begin, with fewer activations in memory", choices=("gpipe", "1f1b"), changeable=True)
    layouts: Rules = key("", "dtensor: rules REGEX=LAYOUT;... over variable paths before the default, such as hidden/kernel=-,model", read=parse_rules, changeable=True)
    zero_stage: int = key(0, "shard over the batch axis or the processes: 0 nothing, 1 slots, 2 also gradients, 3 also weights (dtensor)", "0, 1, 2 or 3", lambda v: v in (0, 1, 2, 3), changeable=True)
    compression: str = key("none", "horovod, mpi: of the gradients on their way between workers, for slow networks (docs/slow_networks.md)", choices=("none", "fp16", "bf16", "int8", "sign", "topk", "powersgd"))
    compression_rank: int = key(4, "powersgd: rank of the product that a gradient is sent as", "1 or more", _positive)
    compression_fraction: float = key(0.01, "topk: share of a gradient's numbers that is sent", "above 0, up to 0.5", lambda v: 0 < v <= 0.5)
    reduction: str = key("flat", "horovod, mpi: flat, or hierarchical: sums within each node first, then between the nodes' first ranks, for nodes of several ranks on a slow network", choices=("flat", "hierarchical"), changeable=True)
    bucket_mb: float | None = key(None, "horovod, mpi: gradients are summed in buckets of so many megabytes, each while the rest of the backward pass computes, for wide networks on fast links (none: all in one)", "positive", _positive, changeable=True)
    local_steps: int = key(1, "horovod, mpi: steps that each worker takes by itself before the workers meet (1: they sum gradients in every step); asynchronous with averaging: between two averagings that a worker begins", "1 or more", _positive)
    outer_learning_rate: float | None = key(None, "local steps: of the step that the weights take at a meeting (none: 0.7 with 16 to 25 local steps, or 0.5 with overlap_meetings, else 1)", "positive", _positive)
    outer_momentum: float | None = key(None, "local steps: Nesterov momentum of that step (none: 0.9 with 16 to 25 local steps, or 0.8 with overlap_meetings, 0.5 with more, 0 with fewer)", "0 or more, below 1", _fraction)
    overlap_meetings: bool = key(False, "local steps: what the workers moved comes together while they take the next local steps, so that nobody waits for a slow network; each meeting brings the mean of the round before")
    quorum: int | None = key(None, "asynchronous: gradients of the workers that make a step; later ones are dropped (none: each moves the weights at once)", "1 or more", _positive)
    averaging: bool = key(False, "asynchronous: each worker trains weights of its own, and averages them with those of one other worker at a time, drawn at random (docs/slow_networks.md)")
    staleness_scaling: str = key("none", "asynchronous: the weights' step as it is (none), times 1 / (1 + staleness) (inverse), or its root (sqrt)", choices=("none", "inverse", "sqrt"))
    accumulate: int = key(1, "horovod, mpi: parts of a worker's batch that go through one after the other, for batches larger than memory", "1 or more", _positive, changeable=True)
    offload: str = key("none", "single, horovod, mpi: the optimizer's slots are in memory (none), or in a temporary file from which they come block by block (slots), for networks beyond memory", choices=("none", "slots"), changeable=True)
    offload_dir: str | None = key(None, "folder of that file, on a fast disk of the machine (none: the run's folder)", changeable=True)

    def __post_init__(self) -> None:
        """InputError where outer momentum would diverge, or meetings overlap with no local steps."""
        super().__post_init__()
        if self.overlap_meetings and self.local_steps == 1:
            raise InputError(
                "overlap_meetings needs steps between two meetings; give local_steps=16, or leave it out"
            )
        if self.outer_momentum and 1 < self.local_steps < _FEWEST_STEPS_FOR_MOMENTUM:
            raise InputError(
                f"outer_momentum={self.outer_momentum:g} with local_steps={self.local_steps} diverges; give at least "
                f"{_FEWEST_STEPS_FOR_MOMENTUM} local steps, or leave outer_momentum out"
            )

    @property
    def has_stages(self) -> bool:
        """Whether the network is divided into pipeline stages."""
        return self.mesh.size(STAGE) > 1

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of a step: those asked for, or four for each stage."""
        return self.micro_batches or _MICRO_BATCHES_PER_STAGE * self.mesh.size(STAGE)

    @property
    def outer_step(self) -> tuple[float, float]:
        """Learning rate and momentum of the step at a meeting.

        Where neither is given they follow the number of local steps: 1 and 0 (plain averaging) below 16, 0.7 and 0.9 up
        to 25, or 0.5 and 0.8 with `overlap_meetings`, 1 and 0.5 beyond.
        """
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        several = self.local_steps >= _FEWEST_STEPS_FOR_MOMENTUM
        few = several and self.local_steps <= _MOST_STEPS_FOR_LARGE_MOMENTUM
        if few and rate is None and momentum is None:
            return (0.5, 0.8) if self.overlap_meetings else (0.7, 0.9)
        if momentum is None:
            momentum = 0.5 if several else 0.0
        return 1.0 if rate is None else rate, momentum


@dataclasses.dataclass(frozen=True)
class DataSection(_Section):
    """The curves, and how they are read."""

    prefix = "data."
    num_curves: int = key(1_000_000, "curves for training (75 %) and validation (25 %)", "8 or more", lambda v: v >= 8)
    num_train: int | None = key(None, "training curves that are used, the first of the data set (none: all)", "1 or more", _positive)
    num_test: int = key(10_000, "further curves that never train", "1 or more", _positive)
    seed: int | None = key(None, "of the curves, if not `seed`", "0 or more", _not_negative)
    noise_mpa: float | None = key(None, "standard deviation of the stress noise, MPa (none: the law's)", "0 or more", _not_negative)
    noise_relative: float = key(0.0, "standard deviation of the stress noise as a fraction of the stress", "0 or more, below 1", _fraction)
    noise_of_maximum: tuple[float, ...] | None = key(None, "range of further noise as a fraction of the curve's largest stress, drawn log-uniformly for each (none: no such noise)", "LOW,HIGH with 0 < low <= high <= 0.5", _small_pair(0.5))
    noise_correlation: tuple[float, ...] | None = key(None, "range of the correlation of neighbouring points' noise, drawn log-uniformly (none: points err independently)", "LOW,HIGH with 0 < low <= high <= 0.999", _small_pair(0.999))
    noise_told: bool = key(False, "whether records of tests tell the network how large each test's noise is")
    measured_points: tuple[int, ...] | None = key(None, "range of the number of points that the machine records, drawn log-uniformly; they go onto the curve's points as a file's do, of tests they stand in the record as they are (none: measured at the curve's points)", "LOW,HIGH with 8 <= low <= high <= 10000", lambda v: len(v) == 2 and 8 <= v[0] <= v[1] <= 10_000)
    strain_offset: tuple[float, ...] | None = key(None, "range of an error of the strain's zero (standard deviation), drawn log-uniformly (none: zero is zero)", "LOW,HIGH with 0 < low <= high <= 0.01", _small_pair(0.01))
    stress_offset: tuple[float, ...] | None = key(None, "range of an error of the stress's zero (standard deviation), MPa, drawn log-uniformly (none: zero is zero)", "LOW,HIGH with 0 < low <= high", _rising_pair)
    toe: tuple[float, ...] | None = key(None, "range of the slack that a strain takes up which rises from zero, drawn log-uniformly (none: the specimen bears from the start)", "LOW,HIGH with 0 < low <= high <= 0.1", _small_pair(0.1))
    machine_stiffness: tuple[float, ...] | None = key(None, "range of the apparent modulus of what gives way beside the specimen, MPa: the measured strain is the specimen's and stress / stiffness; drawn log-uniformly (none: the specimen's own strain is measured)", "LOW,HIGH with 0 < low <= high", _rising_pair)
    misfit: tuple[float, ...] | None = key(None, "range of a smooth deviation from the law as a fraction of the stress (standard deviation), drawn log-uniformly (none: follows the law)", "LOW,HIGH with 0 < low <= high <= 0.5", _small_pair(0.5))
    yield_spread: tuple[float, ...] | None = key(None, "range of half the spread of ln(yield stress) in the specimen, which rounds the knee, drawn log-uniformly (none: a sharp knee)", "LOW,HIGH with 0 < low <= high <= 2", _small_pair(2))
    laboratory: bool = key(False, "whether options of the observation model that are none are those of the law's family (docs/tests.md), drawn noise in place of the law's")
    noise_strain: float | None = key(None, "standard deviation of the strain's noise in tests that drive the stress (none: the law's)", "0 or more", _not_negative)
    missing_tests: float = key(0.0, "probability that a test of several is missing in a record", "0 or more, below 1", _fraction)
    max_strain: tuple[float, ...] | None = key(None, "range of the curves' maximum strain (none: the law's)", "LOW,HIGH with 0 < low <= high", _rising_pair)
    strength_mpa: tuple[float, ...] | None = key(None, "range of the stress at which curves break off, MPa (none: the law's)", "LOW,HIGH with 0 < low <= high", _rising_pair)
    strength_cut_off: bool = key(True, "whether curves break off at the strength")
    num_points: int = key(200, "points a curve", "16 or more", lambda v: v >= 16)
    num_validation: int = key(25_000, "validation curves used after every epoch (all of them at the end)", "1 or more", _positive)
    reading: str = key("auto", "memory, stream, or auto: memory where the set fits", choices=("auto", "memory", "stream"), changeable=True)
    sharding: str = key("partition", "horovod: workers share each global batch (partition), or each draws for itself from the whole set (independent)", choices=("partition", "independent"))


@dataclasses.dataclass(frozen=True)
class ModelSection(_Section):
    """The network."""

    prefix = "model."
    input_scaling: str = key("data_set", "of strain and stress: data_set (divided by the largest of the set), or curve (by each curve's own, whose logarithms are inputs then)", choices=("data_set", "curve"))
    representation: str = key("points", "of a record for the dense layers: points (through convolutions); plastic_spectrum (moduli, plastic path and a spectrum of hardening, of metals whose strain is driven, once or to and fro); or fit (the parameters that fit the record best, how well they are known, and what is left: any law; the network answers around them). No convolutions with the last two", choices=("points", "plastic_spectrum", "fit"))
    conv_filters: tuple[int, ...] = key((16, 24), "filters of each convolution", "positive", _all_positive)
    kernel_sizes: tuple[int, ...] = key((7, 7), "kernel of each convolution, points", "positive", _all_positive)
    convolution: str = key("direct", "direct, or unfolded: as a matrix product, which dtensor can divide over channels (slower on one device)", choices=("direct", "unfolded"))
    pool_size: int = key(2, "max-pooling after each convolution, points (1: none)", "1 or more", _positive)
    hidden_units: tuple[int, ...] = key((125,), "units of each dense layer", "positive", _all_positive)
    activation: str = key("relu", "of convolutions and dense layers", choices=ACTIVATIONS)
    dropout: float = key(0.0, "rate after each dense layer", "0 or more, below 1", _fraction)
    batch_normalization: str = key("none", "none, synchronized (statistics of the whole batch), or local (of each worker's part)", choices=("none", "synchronized", "local"))
    ghost_batch_size: int | None = key(None, "examples a ghost batch of local batch normalization (none: a worker's whole part)", "2 or more", lambda v: v >= 2)
    uncertainty: str = key("none", "none, gaussian: a head that says how far off each answer may be, or flow: the whole joint posterior", choices=("none", "gaussian", "flow"))
    couplings: int = key(6, "with model.uncertainty=flow: bends of the posterior, one after the other, each of half of the parameters given the others", "1 or more", _positive)
    coupling_units: int = key(32, "hidden units of each coupling", "1 or more", _positive)
    recompute: str = key("none", "where the network is cut, so that training keeps only what goes over the cuts and computes the rest twice (docs/large_networks.md): every:K layers with weights, or regular expressions over names of layers, with commas between them", "none, every:K with K of 1 or more, or regular expressions", _says_where, changeable=True)


@dataclasses.dataclass(frozen=True)
class OptimizerSection(_Section):
    """The optimizer, and its learning rate over a run."""

    prefix = "optimizer."
    name: str = key("adam", "optimizer", choices=("sgd", "adam", "adamw", "nadam", "rmsprop", "adagrad", "lion", "lars", "larc", "novograd", "lamb"))
    learning_rate: float = key(1e-3, "peak learning rate", "positive", _positive)
    schedule: str = key("cosine", "of the learning rate over the run", choices=("constant", "step", "cosine", "polynomial"))
    step_every: Duration = key("2epochs", "step schedule: between two falls, in steps or epochs", kind="steps")
    step_factor: float = key(0.1, "step schedule: of the rate at each fall", "above 0, below 1", lambda v: 0 < v < 1)
    power: float = key(1.0, "polynomial schedule: of what is left of the run", "positive", _positive)
    scaling: str = key("none", "learning rate times B / reference_batch_size (linear), its square root (sqrt), or as it is (none); B is the batch of a step: the global one, or with local_steps a worker's part", choices=("none", "linear", "sqrt"))
    reference_batch_size: int = key(75, "global batch that learning_rate is for, where scaling is not none", "1 or more", _positive)
    warmup: Duration = key("0steps", "linear rise from 0 (with scaling: from the unscaled rate) to the peak, in steps or epochs", kind="steps")
    final_fraction: float = key(0.0, "what is left of the peak at the end of cosine and polynomial", "0 to 1", lambda v: 0 <= v <= 1)
    momentum: float = key(0.9, "of SGD, RMSprop, LARS and LARC", "0 or more, below 1", _fraction)
    nesterov: bool = key(True, "Nesterov momentum for SGD")
    weight_decay: float = key(0.0, "decoupled weight decay", "0 or more", _not_negative)
    trust_coefficient: float = key(0.001, "of LARS and LARC", "positive", _positive)
    gradient_noise: float = key(0.0, "variance of noise added to the gradients at the first step (0: none)", "0 or more", _not_negative)
    gradient_noise_decay: float = key(0.55, "the noise's variance falls as 1 / (1 + step) to this power", "0 or more", _not_negative)
    sam_rho: float | None = key(None, "sharpness-aware minimisation: the gradient is taken where the loss is about the largest within this distance, such as 0.05; a step takes about twice as long (none: at the weights)", "positive", _positive)
    clip_norm: float | None = key(None, "clip gradients to this global norm", "positive", _positive)

    def warmup_steps(self, epochs: EpochPlan, total: int) -> int:
        """Steps of the warm-up in a run of `total` steps.

        A config's warm-up of 500 steps is meant for its own data set; the same config on a thousand curves may take 60.
        So a run that would be over before its warm-up is spends a tenth on that.
        """
        warmup = epochs.steps(self.warmup)
        return warmup if warmup < total else total // 10

    def falls(self, epochs: EpochPlan, total: int) -> list[int]:
        """Steps at which the rate of a step schedule falls in a run of `total` steps; none of other schedules."""
        found: list[int] = []
        step = epochs.next_multiple(self.step_every, 0)
        while self.schedule == "step" and step < total and len(found) < _MOST_FALLS:
            found.append(step)
            step = epochs.next_multiple(self.step_every, step)
        return found


@dataclasses.dataclass(frozen=True)
class CheckpointSection(_Section):
    """The checkpoints of a run."""

    prefix = "checkpoint."
    keep: int = key(3, "checkpoints kept", "1 or more", _positive, changeable=True)
    every: Duration = key("1epochs", "a duration between checkpoints: steps, epochs or time", changeable=True)


@dataclasses.dataclass(frozen=True)
class CallbacksSection(_Section):
    """Keras callbacks of a run."""

    prefix = "callbacks."
    early_stopping_patience: int | None = key(None, "stop after so many epochs without a better val_loss", "1 or more", _positive)


@dataclasses.dataclass(frozen=True)
class Settings(_Section):
    """A config that was read once: what the code below is given, section by section.

    Attributes:
      saved: the config as a run's folder keeps it.
      ranges, fixed, test_ranges: by names of the law's parameters, or of settings of its tests.
    """

    law: str = key("hahn_tsai", "material law: a name from `tfmat laws`, or path/to/file.py:ClassName")
    tests: tuple[str, ...] | None = key(None, "programmes of the tests of a record, from `tfmat laws --tests`, or path/to/file.py:ClassName: cyclic, or uniaxial,planar (none: the law's own)")
    seed: int = key(0, "of the curves, the weights and the order of examples", "0 or more", _not_negative)
    global_batch_size: int = key(150, "examples a step, over all workers", "1 or more", _positive)
    batch_growth: Growth = key("", "from which epochs on the batch is how many times global_batch_size: 4epochs:2,6epochs:4", "whole epochs that rise and factors, such as 4epochs:2,6epochs:4", is_growth, read=parse_growth)
    train_for: Duration = key("8epochs", "length of training: 20steps, 8epochs, 90s, 10m, 2h")
    target_val_loss: float | None = key(None, "stop as soon as val_loss is at or below this; negative for a log density")
    loss_weights: tuple[float, ...] | None = key(None, "of the parameters' squared errors, in their order; only their ratios count (none: all alike)", "positive", _all_positive)
    steps_per_call: int | None = key(None, "training steps in one call of the graph (none: about half a second's worth)", "1 or more", _positive, changeable=True)
    profile: bool = key(False, "measure the parts of steps, in one call of the graph in eight: a table at the end, profile.json (docs/scaling.md)", changeable=True)
    trace_steps: int | None = key(None, "record every operation of so many steps in trace.json.gz (none: no trace)", "1 or more", _positive, changeable=True)
    jit_compile: bool = key(False, "compile the step with XLA (slower on CPUs; measure)", changeable=True)
    precision: str = key("float32", "of dense layers in training steps: float32, bfloat16 (weights and sums stay float32), or auto: bfloat16 where a trial finds it faster", choices=("float32", "bfloat16", "auto"))
    parallel: Parallelism = dataclasses.field(default_factory=Parallelism)
    data: DataSection = dataclasses.field(default_factory=DataSection)
    model: ModelSection = dataclasses.field(default_factory=ModelSection)
    optimizer: OptimizerSection = dataclasses.field(default_factory=OptimizerSection)
    checkpoint: CheckpointSection = dataclasses.field(default_factory=CheckpointSection)
    callbacks: CallbacksSection = dataclasses.field(default_factory=CallbacksSection)
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    test_ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    saved: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, config: Config) -> Self:
        for name in config.own:
            raise InputError(
                f"config key own.{name} is for a program of your own (tfmat tune --trial_command), tfmat reads none of "
                "these; leave it out"
            )
        found = super().of(config)
        object.__setattr__(found, "saved", config.to_dict())
        return found

    @classmethod
    def with_keys(cls, **keys: Any) -> "Settings":
        """Settings with some keys of how steps are computed: keys of `Parallelism`, `recompute`, and keys at the top.

        `mesh` and `layouts` may be text, as in a config.
        """
        parallel = {key: keys.pop(key) for key in list(keys) if hasattr(Parallelism, key)}
        model = {key: keys.pop(key) for key in ("recompute",) if key in keys}
        return cls(parallel=Parallelism(**parallel), model=ModelSection(**model), **keys)

    def value(self, key: str) -> Any:
        """The value of a key of the config, by its dotted name; AttributeError where there is none."""
        section = self.parallel if hasattr(Parallelism, key) else self
        return functools.reduce(getattr, key.split("."), section)

    def epochs(self, num_examples: int) -> EpochPlan:
        """Batches and steps of each epoch over so many examples."""
        return EpochPlan(num_examples, self.global_batch_size, self.batch_growth)
# fmt: on


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _Section)


def _options_of(section: type[_Section]) -> Iterator[Option]:
    """The keys of a section and of those in it, in order."""
    for field in dataclasses.fields(section):
        kind: Any = field.type
        if _is_section(kind):
            yield from _options_of(kind)
        elif "meaning" in field.metadata:
            optional = type(None) in get_args(kind)
            if optional:
                (kind,) = (each for each in get_args(kind) if each is not type(None))
            own = {"kind": _KIND_OF.get(kind, "str"), "optional": optional}
            own |= {"read": Duration.parse} if kind is Duration else {}
            name = f"{section.prefix}{field.name}"
            yield Option(name, field.default, **{**own, **field.metadata})


OPTIONS: dict[str, Option] = {option.name: option for option in _options_of(Settings)}


# --------------------------------------------------------------------------------------------------
# The one schema of a run's config: every key with its default, type and meaning; checking; JSON.
#
# A config file is a Python file with `get_config()` that starts from `default_config()` and changes a few keys. On
# the command line `--config.KEY=VALUE` changes one more. Keys under `ranges` and `fixed` are names of the law's
# parameters, so they are free here and checked by the law.


Kind = TypeVar("Kind")


def default_config() -> Config:
    """A config with every key of the schema at its default. `check_config` refuses what is not in the schema."""
    config = Config()
    for option in OPTIONS.values():
        _set(config, option.name, option.default)
    for section in FREE_SECTIONS:
        config[section] = Config()
    return config


def find_config_file(name: str) -> pathlib.Path:
    """`configs/x.py` as given, or the shipped config of that name (also `x` alone)."""
    path = pathlib.Path(name)
    if path.is_file():
        return path
    if path.parent == pathlib.Path(".") or path.parent == pathlib.Path("configs"):
        for folder in shipped_config_folders():
            shipped = folder / f"{path.stem}.py"
            if shipped.is_file():
                return shipped
    valid = [
        f"configs/{file.name}"
        for folder in shipped_config_folders()
        for file in folder.glob("[!_]*.py")
    ]
    raise InputError(f"config file {name} does not exist{nearest(name, valid)}")


def shipped_config_folders() -> list[pathlib.Path]:
    """Where tfmat's own configs lie: beside the package in a checkout, inside it when installed."""
    package = pathlib.Path(__file__).parent
    return [
        folder for folder in (package.parent / "configs", package / "configs") if folder.is_dir()
    ]


def load_config(path: str | os.PathLike) -> Config:
    """Runs `get_config()` of a config file; InputError where it is missing, fails, or sets what does not exist."""
    path = find_config_file(os.fspath(path))
    if path.suffix != ".py":
        raise InputError(
            f"config file {path} is not a Python file; give one that defines get_config()"
        )
    return check_config(
        call_config_function(path, "get_config", Config, "default_config() changed")
    )


def apply_override(config: Config, key: str, text: str) -> None:
    """Sets `key` (dotted) from the text after `--config.KEY=`; InputError names unknown keys and wrong values."""
    section, _, name = key.partition(".")
    if section in FREE_SECTIONS:
        if not name.isidentifier():
            raise InputError(f"--config.{key}={text}: write --config.{section}.NAME=VALUE")
        config[section][name] = _parse_free(section, name, text)
        return
    option = OPTIONS.get(key)
    if option is None:
        raise InputError(f"unknown config key '{key}'{nearest(key, [*OPTIONS, *FREE_SECTIONS])}")
    with config.ignore_type():
        _set(config, key, option.parse(text))


def check_config(config: Config) -> Config:
    """Checks every key's type and value; returns `config`. InputError names the key, the value, and what is valid."""
    known = set(OPTIONS)
    # Once around all keys: each time it looks at every letter of every value.
    with config.ignore_type():
        for key, value in flatten(config).items():
            section = key.partition(".")[0]
            if section in FREE_SECTIONS:
                continue
            if key not in known:
                raise InputError(f"unknown config key '{key}'{nearest(key, known)}")
            _set(config, key, OPTIONS[key].check(value))
    for section in ("ranges", "test_ranges"):
        for name, limits in config[section].items():
            if not _is_pair(limits):
                raise InputError(
                    f"config key {section}.{name} is {limits!r}; give two numbers, low and high"
                )
    for name, value in config.fixed.items():
        if not _is_number(value):
            raise InputError(f"config key fixed.{name} is {value!r}; give a number")
    for name, value in config.own.items():
        check_value(f"own.{name}", value)
    target = config.target_val_loss
    if target is not None and target <= 0 and config.model.uncertainty != "flow":
        raise InputError(
            f"config key target_val_loss is {target!r}; it must be positive: only the loss of model.uncertainty=flow, "
            "minus a log density, may be negative"
        )
    check_layers(config.model, config.data.num_points)
    return config


def check_value(key: str, value: Any) -> Any:
    """A value as the config holds it under a key of the schema, or of the section `own`; InputError where it cannot be."""
    if key in OPTIONS:
        return OPTIONS[key].check(value)
    for one in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(one, bool | int | float | str):
            raise InputError(
                f"config key {key} is {value!r}; give a number, a word, or a tuple of these"
            )
    return value


def is_own(key: str) -> bool:
    """Whether a key is one of the user's own program, own.NAME."""
    section, _, name = key.partition(".")
    return section == "own" and name.isidentifier()


def check_layers(model_config: Config, num_points: int) -> None:
    """Raises InputError where the network that the `model` section describes cannot be built."""
    filters, kernels = model_config.conv_filters, model_config.kernel_sizes
    if len(filters) != len(kernels):
        raise InputError(
            f"model.conv_filters has {len(filters)} entries and model.kernel_sizes {len(kernels)}; "
            "give one kernel size for each convolution"
        )
    if model_config.ghost_batch_size and model_config.batch_normalization != "local":
        raise InputError(
            f"model.ghost_batch_size is for model.batch_normalization=local, not {model_config.batch_normalization}; "
            "set that too, or leave it out"
        )
    for key in ("couplings", "coupling_units"):
        default = OPTIONS[f"model.{key}"].default
        if model_config.uncertainty != "flow" and getattr(model_config, key) != default:
            raise InputError(
                f"model.{key} is for model.uncertainty=flow, not {model_config.uncertainty}; set that too, or leave "
                "it out"
            )
    if model_config.representation != "points":
        if model_config.input_scaling != "data_set":
            raise InputError(
                f"model.representation={model_config.representation} scales for itself; leave out model.input_scaling"
            )
        return
    left = num_points // model_config.pool_size ** len(filters)
    if left < 1:
        raise InputError(
            f"{len(filters)} poolings by model.pool_size={model_config.pool_size} leave nothing of "
            f"{num_points} points; use fewer convolutions or a smaller pool"
        )


def goes_in_pieces(model_config: Config) -> bool:
    """Whether a batch goes through the network in pieces side by side, each on one processor.

    Layers with state, as batch normalization and dropout have it, keep a batch whole; then each operation had better
    use all processors.
    """
    return bool(model_config.dropout == 0 and model_config.batch_normalization == "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDetails:
    """Entries that a run of the main job puts into `config.json` beside its config; other runs lack some."""

    data_dir: str | None = None
    data_id: str | None = None
    num_examples: int = 0
    total_steps: int = 0


def read_run_details(path: str | os.PathLike) -> RunDetails:
    """The entries beside the config in a `config.json`."""
    found: RunDetails = check_json(read_json(path), RunDetails, path)
    return found


def load_saved_config(path: str | os.PathLike) -> tuple[Config, RunDetails]:
    """Reads `config.json`: the config, and what the run put beside it."""
    details = read_run_details(path)
    try:
        return check_saved_config(read_json(path))[0], details
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from error


def check_saved_config(content: Mapping[str, Any]) -> tuple[Config, list[str]]:
    """A config as it was saved, and keys that are none of it; InputError names the key that cannot be."""
    config, others = default_config(), []
    with config.ignore_type():
        for key, value in flatten(content).items():
            section, _, name = key.partition(".")
            if section in FREE_SECTIONS:
                config[section][name] = tuple(value) if isinstance(value, list) else value
            elif key in OPTIONS:
                _set(config, key, tuple(value) if isinstance(value, list) else value)
            else:
                others.append(key)
    return check_config(config), others


def call_config_function(path: pathlib.Path, name: str, kind: type[Kind], wanted: str) -> Kind:
    """The answer of the function `name` of a config file; InputError where there is none, or it fails.

    Compiled here: an import would leave a `__pycache__` beside the file.

    Args:
      kind: of what it has to return; `wanted`: the same for people.
    """
    module = types.ModuleType(f"tfmat_config_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        if not hasattr(module, name):
            raise InputError(f"config file {path} does not define {name}()")
        found = getattr(module, name)()
        if not isinstance(found, kind):
            raise InputError(f"{name}() of {path} returned {type(found).__name__}; return {wanted}")
        return found
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())[:200]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        where = f" (line {lines[-1]})" if lines else ""  # a SyntaxError says it itself
        raise InputError(
            f"config file {path} failed: {type(error).__name__}: {reason}{where}"
        ) from error


def _set(config: Config, name: str, value: Any) -> None:
    *sections, key = name.split(".")
    for section in sections:
        if section not in config:
            config[section] = Config()
        config = config[section]
    config[key] = value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_number, value))


def _parse_free(section: str, name: str, text: str) -> Any:
    try:
        value = literal(text)
    except ValueError:
        value = text
    if section == "own":
        return value
    wanted = "two numbers, LOW,HIGH"
    if section == "fixed":
        if _is_number(value):
            return float(value)
        wanted = "a number"
    elif isinstance(value, tuple) and _is_pair(value):
        return tuple(map(float, value))
    raise InputError(f"--config.{section}.{name}={text}: give {wanted}")
