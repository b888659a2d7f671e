"""What more workers would bring, with intervals, and where they stop paying."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tfmat.scaling.step_model import StepModel
from tfmat.scaling.summary import Estimate

MOST_WORKERS = 1024
POWERS = tuple(2**k for k in range(11))
# Below this efficiency more than half of what is paid for is lost.
WORTHWHILE = 0.5
# From this batch a worker on, little is lost.
GOOD = 0.8
_DRAWS = 300
_LIMITS = (2.5, 97.5)
_LARGEST_BATCH = 2**20


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What one number of workers brings: medians and 95 % intervals of what the fits leave open.

    Attributes:
      workers: P.
      batch_a_worker: examples.
      step_seconds, speedup, efficiency: against one worker with the same batch a worker (weak) or in all (strong).
    """

    workers: int
    batch_a_worker: float
    step_seconds: Estimate
    speedup: Estimate
    efficiency: Estimate


class Predictor:
    """A step model and models drawn around it, all with the same seed: the same file gives the same page."""

    def __init__(self, model: StepModel, times: float = 1.0):
        """`times`: how much larger the model is than the measured one, in parameters and in work."""
        random = np.random.default_rng(0)
        self._draws = [model.draw(random).larger(times) for _ in range(_DRAWS)]
        self.model = model.larger(times)

    def weak(self, batch_a_worker: int, workers: Sequence[int] = POWERS) -> list[Prediction]:
        """Each worker keeps its batch."""
        return [self._predict(p, batch_a_worker, batch_a_worker, p) for p in workers]

    def strong(self, global_batch_size: int, workers: Sequence[int] = POWERS) -> list[Prediction]:
        """The workers share one batch; up to one example each."""
        return [
            self._predict(p, -(-global_batch_size // p), global_batch_size, 1)
            for p in workers
            if p <= global_batch_size
        ]

    def _predict(self, workers: int, batch: int, alone: int, gain: int) -> Prediction:
        """`gain` times the examples of one worker alone, whose step has `alone` of them."""

        def speedup(model: StepModel) -> float:
            return gain * model.alone(alone) / model.seconds(workers, batch)

        seconds = self._estimate(lambda model: model.seconds(workers, batch))
        ratio = self._estimate(speedup)
        return Prediction(workers, batch, seconds, ratio, ratio.times(1 / workers))

    def _estimate(self, quantity: Callable[[StepModel], float]) -> Estimate:
        low, high = np.percentile([quantity(model) for model in self._draws], _LIMITS)
        value = quantity(self.model)
        return Estimate(min(float(low), value), value, max(float(high), value))


def last_worthwhile(predictions: Sequence[Prediction], limit: str = "value") -> int:
    """The most workers whose efficiency, and that of all fewer, is at least WORTHWHILE.

    Args:
      limit: `value`, or `low` or `high` for the ends of the interval.
    """
    last = 1
    for prediction in predictions:
        if getattr(prediction.efficiency, limit) < WORTHWHILE:
            break
        last = prediction.workers
    return last


def fastest(predictions: Sequence[Prediction]) -> Prediction:
    """The one with the shortest step; with more workers than that a fixed global batch takes longer."""
    return min(predictions, key=lambda each: each.step_seconds.value)


def smallest_good_batch(model: StepModel, workers: int) -> int | None:
    """The smallest batch a worker with an efficiency of GOOD at so many workers; None where none reaches it."""
    if model.efficiency(workers, _LARGEST_BATCH) < GOOD:
        return None
    low, high = 0, _LARGEST_BATCH
    while high - low > 1:  # the efficiency grows with the batch
        middle = (low + high) // 2
        low, high = (low, middle) if model.efficiency(workers, middle) >= GOOD else (middle, high)
    return high
