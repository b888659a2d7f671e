"""What more workers would bring, with intervals, and where they stop paying.

The time of a data-parallel step is that of its parts: computing, the wait for the slowest worker, the exchange.

    T(P, b) = T1(b) + σ m(P) + t(P, N) + c

T1(b) = t0 + t1 b is one worker's step of b examples without any library, σ the standard deviation of one worker's step,
m(P) the expected largest of P standard normal numbers, t(P, N) an all-reduce of the gradient, and c what the library
costs beyond that. Nothing is taken to overlap: tfmat exchanges one flat buffer after the backward pass.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from tfmat.scaling.collective_costs import Link, hierarchical_seconds
from tfmat.scaling.network import Fit, Network, fit_times
from tfmat.scaling.summary import Estimate, PointSummary

_SHORTEST = 1e-9  # seconds


@functools.cache
def expected_maximum(workers: int) -> float:
    """m(P): mean of the largest of P standard normal numbers (Harter, 1961)."""
    return float(stats.order_statistic(stats.Normal(), r=workers, n=workers).mean())


def fit_compute(baselines: Sequence[PointSummary]) -> Fit:
    """T1(b) from baselines of one hardware and model: [t0 (s), t1 (s an example)]; t0 is 0 for one batch size."""
    # Single repetitions, not their medians: their scatter is what makes the standard errors.
    pairs = [(e.point.global_batch_size, r.step_seconds) for e in baselines for r in e.repetitions]
    batches, seconds = np.array(pairs, float).T
    several = float(len(set(batches)) > 1)
    return fit_times(np.stack([np.full(len(batches), several), batches], axis=1), seconds)


@dataclasses.dataclass(frozen=True)
class StepModel:
    """T(P, b) of one model on one hardware with one library.

    Attributes:
      compute: T1(b), see `fit_compute`.
      deviation: σ over T1(b); 0 where it was not measured (the wait is then part of `own`).
      own, own_error: c and its standard error, s.
      inside: all-reduce within a node; between: over nodes, None where none was measured.
      ranks_per_node: workers that fill a node.
      outside: the assumed link between nodes, where none was measured.
      gradient_bytes: N.
      times: how much larger the model is than the measured one.
    """

    compute: Fit
    deviation: float
    own: float
    own_error: float
    inside: Network
    between: Network | None
    ranks_per_node: int
    outside: Link | None
    gradient_bytes: int
    times: float = 1.0

    def alone(self, batch: float) -> float:
        """T1(b)."""
        fixed, an_example = self.compute.values
        # A draw from two rounds of a busy machine may be of no time at all, by which nothing can be divided.
        return max(float(fixed + self.times * an_example * batch), _SHORTEST)

    def seconds(self, workers: int, batch: float) -> float:
        """T(P, b)."""
        alone = self.alone(batch)
        waiting = self.deviation * alone * expected_maximum(workers)
        return alone + waiting + self.exchange(workers) + (self.own if workers > 1 else 0.0)

    def efficiency(self, workers: int, batch: float) -> float:
        """T1(b) over T(P, b)."""
        return self.alone(batch) / self.seconds(workers, batch)

    def exchange(self, workers: int) -> float:
        """t(P, N): beyond one node by what was measured there, else by the assumed link, else as inside."""
        num_bytes = self.times * self.gradient_bytes
        if workers > self.ranks_per_node:
            if self.between is not None:
                return self.between.seconds(workers, num_bytes)
            if self.outside is not None:
                nodes = -(-workers // self.ranks_per_node)
                own = float(self.inside.values[0])
                link = self.inside.link
                return own + hierarchical_seconds(
                    num_bytes, nodes, self.ranks_per_node, link, self.outside
                )
        return self.inside.seconds(workers, num_bytes)

    def larger(self, times: float) -> "StepModel":
        """A model with so many times the parameters, and so many times the work for an example."""
        return dataclasses.replace(self, times=times)

    def draw(self, random: np.random.Generator) -> "StepModel":
        """One as far off as the measurements allow."""
        return dataclasses.replace(
            self,
            compute=dataclasses.replace(self.compute, values=self.compute.draw(random)),
            own=max(float(random.normal(self.own, self.own_error)), 0.0),
            inside=self.inside.draw(random),
            between=None if self.between is None else self.between.draw(random),
        )


def with_own_cost(model: StepModel, points: Sequence[PointSummary]) -> StepModel:
    """The model with c, the median of what points with several workers took beyond it, and its standard error."""
    bare = dataclasses.replace(model, own=0.0, own_error=0.0)
    beyond = np.array(
        [
            each.step_seconds.value - bare.seconds(each.point.workers, each.point.batch_a_worker)
            for each in points
        ]
    )
    if not len(beyond):
        return bare
    middle = float(np.median(beyond))
    spread = 1.4826 * float(np.median(np.abs(beyond - middle))) / np.sqrt(len(beyond))
    return dataclasses.replace(model, own=max(middle, 0.0), own_error=spread)


def relative_deviation(summaries: Sequence[PointSummary], compute: Fit) -> float:
    """Median of the ranks' standard deviations of a step over T1(b); 0 where none was measured."""
    found = [
        rank.step_deviation / float(compute.values @ [1.0, summary.point.batch_a_worker])
        for summary in summaries
        for repetition in summary.repetitions
        for rank in repetition.ranks
        if rank.step_deviation is not None
    ]
    return float(np.median(found)) if found else 0.0


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
