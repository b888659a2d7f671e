"""Lengths of training: durations (`20steps`, `8epochs`, `90s`, `10m`, `2h`), and epochs in steps, also where the batch
grows from epoch to epoch (Smith et al. 2017, arXiv:1711.00489).
"""

import dataclasses
import itertools
import math
import re
from typing import Literal

from tfmat.errors import InputError

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
        return f"{self.value:g}{self.unit}"


def seconds_of(text: str) -> float | None:
    """Seconds of a time as people write it; None for steps or epochs. InputError where it is no duration."""
    return Duration.parse(text).seconds


ONE_EPOCH, NO_STEPS = Duration(1, "epochs"), Duration(0, "steps")


def parse_growth(text: str) -> Growth:
    """`4epochs:2,6epochs:4` -> ((4, 2), (6, 4)): from which epoch on the batch is how many times the first one.

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
        """How many times the first batch that of `epoch` (from 0) is."""
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

    def steps(self, duration: Duration) -> int:
        """Steps that a duration in steps or epochs takes from the start."""
        if duration.unit == "steps":
            return duration.steps(1)
        if duration.seconds is not None:
            raise ValueError(f"{duration} is a time; its steps follow from a measured rate")
        if not self.growth:
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


@dataclasses.dataclass(frozen=True)
class RunSteps:
    """What a schedule of the learning rate must know of a run.

    Attributes:
      total: steps of the whole run.
      warmup: of these, the first, in which the rate rises.
      falls: steps at which the rate of a step schedule falls.
    """

    total: int
    warmup: int = 0
    falls: tuple[int, ...] = ()
