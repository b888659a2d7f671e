"""Where epochs begin, in steps, when the batch grows from epoch to epoch (Smith et al. 2017, arXiv:1711.00489)."""

import dataclasses
import itertools
import math
import re

from tfmat.durations import Duration
from tfmat.errors import InputError

Growth = tuple[tuple[int, int], ...]
_NEVER = 2**62


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
        """Examples a step in `epoch` (from 0)."""
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
