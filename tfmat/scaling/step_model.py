"""The time of a data-parallel step from its parts: computing, the wait for the slowest worker, the exchange.

    T(P, b) = T1(b) + σ m(P) + t(P, N) + c

T1(b) = t0 + t1 b is one worker's step of b examples without any library, σ the standard deviation of one worker's step,
m(P) the expected largest of P standard normal numbers, t(P, N) an all-reduce of the gradient, and c what the library
costs beyond that. Nothing is taken to overlap: tfmat exchanges one flat buffer after the backward pass.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from scipy import stats

from tfmat.scaling.collective_costs import Link, hierarchical_seconds
from tfmat.scaling.fits import Fit, fit_times
from tfmat.scaling.network import Network
from tfmat.scaling.summary import PointSummary

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
