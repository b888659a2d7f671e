"""Ways in which a variant's workers exchange gradients: keys of the config in a text, and the bytes of their messages.

`local_steps=50,compression=fp16` says what `--config.local_steps=50 --config.compression=fp16` says to `tfmat train`.
"""

import itertools
import math
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from tfmat.backends.checks import backend_options, check_config_for
from tfmat.backends.layouts import Weight
from tfmat.config import Config, apply_override, check_config, default_config
from tfmat.errors import InputError, nearest
from tfmat.ranks.processes import Processes

KEYS = (
    "compression", "compression_rank", "compression_fraction", "reduction", "bucket_mb", "local_steps",
    "outer_learning_rate", "outer_momentum", "overlap_meetings", "optimizer.learning_rate",
    "averaging", "quorum", "staleness_scaling",
)  # fmt: skip
# What exchanges in one of these ways, as `--backend=NAME`.
EXCHANGING = ("horovod", "mpi", "asynchronous")
# As in tfmat.backends.compression, which loads TensorFlow: smaller gradients travel as they are.
_SMALLEST = 4_096


def with_exchange(config: Config, text: str) -> Config:
    """A copy of the config with the keys of an exchange changed.

    Args:
      config: checked.
      text: `KEY=VALUE` with commas between; "" changes nothing.

    Raises:
      InputError: a key that does not belong to an exchange, or a value that it does not take.
    """
    changed = Config(config.to_dict())
    for part in text.split(",") if text else ():
        key, _, value = part.partition("=")
        if key not in KEYS:
            raise InputError(f"exchange='{text}' has '{part}'{nearest(key, KEYS)}")
        apply_override(changed, key, value)
    return check_config(changed)


def check_exchange(text: str, backends: Sequence[str], workers: Sequence[int]) -> None:
    """InputError where workers of one of the backends, or one of these numbers of them, cannot exchange in that way."""
    config = with_exchange(default_config(), text)
    for backend, size in itertools.product(backends, workers):
        if backend not in EXCHANGING or size == 1:
            continue
        try:
            options = backend_options(config, processes=Processes(size=size, local_size=size))
            check_config_for(backend, config, options)
        except InputError as error:
            raise InputError(f"exchange='{text}' of {size} workers: {error}") from error


def check_step(config: Config, backends: Set[str]) -> None:
    """InputError where one of a study's backends would take its steps in another way than the config says."""
    for key, value, default, heeding in (
        ("accumulate", config.accumulate, 1, ("single", "horovod", "mpi")),
        ("model.recompute", config.model.recompute, "none", ("single", *EXCHANGING, "dtensor")),
        ("offload", config.offload, "none", ("single", "horovod", "mpi")),
        ("precision", config.precision, "float32", ("single", *EXCHANGING)),
    ):
        others = sorted(backends - set(heeding))
        if value != default and others:
            raise InputError(
                f"{key}={value} is not heeded by {', '.join(others)}, whose steps would be compared with others of "
                f"another kind; leave it at {default}, or these out of get_scaling()"
            )


def check_network(model: Config) -> None:
    """InputError for a network whose steps a study does not take as a run does."""
    for key, timed, why in (
        ("representation", ("points", "plastic_spectrum"), "which is computed once, before the first step,"),
        ("uncertainty", ("none",), "which has another loss,"),
    ):  # fmt: skip
        if model[key] not in timed:
            raise InputError(
                f"model.{key}={model[key]}, {why} does not work with tfmat scale, whose steps are those of whole "
                f"networks with the mean squared error; leave it at {timed[0]}"
            )


class Meeting(NamedTuple):
    """What one meeting of the workers sends.

    Attributes:
      sizes: bytes of each all-reduce, one after the other, even where some are summed while the backward pass computes;
        a collection counts as the all-reduce in a ring that has each worker send as much.
      every: steps between two meetings.
      overlaps: whether it is under way while the next steps are taken.
    """

    sizes: list[float]
    every: int
    overlaps: bool

    def seconds(self, alone: float, beyond: float, all_reduce: Callable[[float], float]) -> float:
        """Seconds per step.

        Args:
          alone: seconds of a step of workers that exchange nothing.
          beyond: seconds that a sum takes in a step beyond those by itself; negative where it takes less.
          all_reduce: bytes -> seconds.
        """
        less, more = min(beyond, 0.0), max(beyond, 0.0)
        exchange = sum(max(all_reduce(size) + less, 0.0) for size in self.sizes) / self.every
        waits = max(alone, exchange) if self.overlaps else alone + exchange
        return waits + more * len(self.sizes) / self.every


def messages(text: str, weights: Sequence[Weight], workers: int) -> Meeting | None:
    """The messages of one meeting of the workers, by pure arithmetic; None where they never all meet.

    Args:
      text: see `with_exchange`.
      weights: of the network.
      workers: that exchange.
    """
    config = with_exchange(default_config(), text)
    if config.averaging or config.quorum or config.staleness_scaling != "none":
        return None
    numbers = [math.prod(weight.shape) for weight in weights]
    whole = sum(n * weight.itemsize for n, weight in zip(numbers, weights, strict=True))
    large = [n for n in numbers if n >= _SMALLEST]
    rest = whole - 4 * sum(large)
    found: dict[str, list[float]] = {
        "none": [whole],
        "fp16": [whole / 2],
        "bf16": [whole / 2 * workers / 2],
        "int8": [sum(large), rest],
        "sign": [sum(n / 8 + 4 for n in large) * workers / 2, rest],
        "topk": [
            sum(8 * max(1, round(config.compression_fraction * n)) for n in large) * workers / 2,
            rest,
        ],
        "powersgd": _of_powersgd(weights, config.compression_rank, whole),
    }
    return Meeting(found[config.compression], config.local_steps, config.overlap_meetings)


def _of_powersgd(weights: Sequence[Weight], rank: int, whole: float) -> list[float]:
    """Two sums: of the left factors with all that is not compressed, and of the right ones."""
    left = right = 0.0
    for weight in weights:
        rows, columns = math.prod(weight.shape[:-1]), weight.shape[-1] if weight.shape else 1
        if (
            rows * columns >= _SMALLEST
            and len(weight.shape) > 1
            and 2 * rank * (rows + columns) <= rows * columns
        ):
            whole -= 4 * rows * columns
            left, right = left + 4 * rank * rows, right + 4 * rank * columns
    return [whole + left, right] if right else [whole]
