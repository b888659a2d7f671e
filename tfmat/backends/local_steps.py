"""Local steps: each worker trains by itself on its part of the batches, and only now and then do the workers meet.

At a meeting an outer optimizer with Nesterov momentum takes as a gradient the mean of how far the workers have moved.
It moves the weights from where all were at the meeting before: DiLoCo (Douillard et al. 2023, arXiv:2311.08105). With
outer rate 1 and momentum 0 that is the mean of the workers' weights (local SGD; Stich 2019, arXiv:1805.09767).

The workers' moves may also come together while they take the next local steps, so that nobody waits for a network that
needs less time than a round. A meeting then brings the mean of the round before. Each worker goes on from where it is
now. It moves by what the mean was off from where it was itself at the end of that round, times a share below 1. The
whole of it, a round late, would have the workers swing about their mean without end (delayed averaging, DaSGD, Zhou et
al. 2020, arXiv:2006.00441). Streaming DiLoCo (Douillard et al. 2025, arXiv:2501.18512, section 2.3) mixes with a share,
too. Their mean does not change by it; on top comes what the outer step of that round goes beyond it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends.base import Backend
from tfmat.backends.exchange import Exchange, Kept, Summed, Tensors
from tfmat.backends.step import Step, assign_all, check_whole_batch, tensors_of

# _PULL: share of a worker's distance from the mean a round ago by which it moves.
# Measured beside 0.5 and 1 (docs/slow_networks.md).
_PULL = 0.7


class Meetings(Exchange):
    """Each worker takes `every` steps by itself; what happens where the workers meet.

    `exchange` brings together what they moved; `rate` and `momentum` are the outer optimizer's, whose momentum is kept.
    """

    def __init__(
        self,
        weights: Sequence[Any],
        workers: int,
        every: int,
        rate: float,
        momentum: float,
        exchange: Exchange,
    ):
        super().__init__()
        self._workers, self.every, self._rate, self._momentum = workers, every, rate, momentum
        self._weights, self._exchange = weights, exchange
        self._anchors = [tf.Variable(weight, trainable=False) for weight in weights]
        self.kept = [*self._zeros("velocity", common=True), *exchange.kept]

    def __call__(self, gradients: Tensors, others: Tensors, kept: Tensors) -> Summed:
        return gradients, others, kept

    def num_examples(self, weights: tf.Tensor, num_examples: tf.Tensor) -> tf.Tensor:
        """See Exchange.num_examples: each worker's loss is a mean over its own examples."""
        return tf.maximum(tf.reduce_sum(weights, 1), 1.0)

    def begin(self, kept: Sequence[Any]) -> None:
        """See Exchange.begin: the workers have the same weights."""
        assign_all(self._anchors, tensors_of(self._weights))

    def round(self, kept: Sequence[Any], steps: Callable[[], Any]) -> Any:
        results = steps()
        anchors, values = tensors_of(self._anchors), tensors_of(kept)
        moved = self._shares(anchors, tensors_of(self._weights))
        weights, _, values = self.outer_step(anchors, moved, values)
        assign_all([*self._weights, *self._anchors, *kept], [*weights, *weights, *values])
        return results

    def outer_step(
        self, anchors: Tensors, moved: Tensors, kept: Tensors
    ) -> tuple[Tensors, Tensors, Tensors]:
        """The weights from which all workers go on, the mean of how far they moved, and new values of `self.kept`.

        Args:
          anchors: weights from which the workers moved, in the mean.
          moved: this worker's share of the mean of how far they moved.
          kept: values of `self.kept`.
        """
        num, num_memory = len(anchors), len(self._exchange.kept)
        memory, rest = kept[num : num + num_memory], kept[num + num_memory :]
        gradients, _, memory = self._exchange(moved, [], memory)
        velocities = [
            self._momentum * velocity + gradient
            for velocity, gradient in zip(kept, gradients, strict=False)
        ]
        weights = [
            anchor - self._rate * (gradient + self._momentum * velocity)
            for anchor, gradient, velocity in zip(anchors, gradients, velocities, strict=True)
        ]
        return weights, gradients, [*velocities, *memory, *rest]

    def _shares(self, begun: Tensors, weights: Tensors) -> Tensors:
        """This worker's share of the mean of how far the workers moved, from `begun` to `weights`."""
        return [(b - w) / self._workers for b, w in zip(begun, weights, strict=True)]

    def _zeros(self, name: str, common: bool = False) -> list[Kept]:
        return [
            Kept(f"{name}/{i}", np.zeros(weight.shape, weight.dtype.as_numpy_dtype), common)
            for i, weight in enumerate(self._weights)
        ]


class OverlappedMeetings(Meetings):
    """Meetings that are under way while the workers take the next local steps; see the head of this file.

    Between two calls the model has the weights from which the round whose moves are under way began, in the mean over
    the workers. Kept is also what goes beyond the mean since then, which is the same on all workers. In shares of
    `1 / workers` it is how far this worker moved in that round, and how far it is from the model's weights now. The
    last is whether anything is under way.
    """

    settles = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.kept = [
            *self.kept,
            *self._zeros("beyond", common=True),
            *self._zeros("moved"),
            *self._zeros("ahead"),
            Kept("is_under_way", np.zeros([], bool), common=True),
        ]

    def begin(self, kept: Sequence[Any]) -> None:
        assign_all(self._anchors, tensors_of(self._weights))
        assign_all(self._weights, self._own(tensors_of(self._anchors), tensors_of(kept)))

    def round(self, kept: Sequence[Any], steps: Callable[[], Any]) -> Any:
        anchors, before = tensors_of(self._anchors), tensors_of(kept)
        outer, mean, values = self._arrived(anchors, before)
        results = steps()  # needs nothing of what arrives, so both are under way at once
        _, beyond, moved, _, _ = self._parts(before)
        begun = [a - m + b for a, m, b in zip(anchors, mean, beyond, strict=True)]
        new_beyond = [o - (a - m) for o, a, m in zip(outer, anchors, mean, strict=True)]
        weights = tensors_of(self._weights)
        ahead = self._shares(
            begun,
            [
                w + _PULL * (self._workers * m - g) + b
                for w, m, g, b in zip(weights, moved, mean, new_beyond, strict=True)
            ],
        )
        first, *_ = self._parts(values)
        moved = self._shares(begun, weights)
        values = [*first, *new_beyond, *moved, *ahead, tf.constant(True)]
        own = self._own(begun, values)
        assign_all([*self._weights, *self._anchors, *kept], [*own, *begun, *values])
        return results

    def end(self) -> None:
        assign_all(self._weights, tensors_of(self._anchors))

    def settle(self, kept: Sequence[Any]) -> None:
        before = tensors_of(kept)
        outer, _, values = self._arrived(tensors_of(self._weights), before)
        first, *_ = self._parts(values)
        _, beyond, *_ = self._parts(before)
        weights = [o + b for o, b in zip(outer, beyond, strict=True)]
        nothing = [tf.zeros_like(value) for value in values[len(first) :]]
        assign_all([*self._weights, *kept], [*weights, *first, *nothing])

    def _arrived(self, anchors: Tensors, kept: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        """`outer_step` by what is under way; no step where nothing is."""

        def step() -> tuple[Tensors, Tensors, Tensors]:
            return self.outer_step(anchors, self._parts(kept)[2], kept)

        def none() -> tuple[Tensors, Tensors, Tensors]:
            return anchors, [tf.zeros_like(anchor) for anchor in anchors], kept

        return tf.cond(kept[-1], step, none)

    def _own(self, anchors: Tensors, kept: Tensors) -> Tensors:
        """This worker's weights."""
        ahead = self._parts(kept)[3]
        return [anchor - self._workers * a for anchor, a in zip(anchors, ahead, strict=True)]

    def _parts(self, kept: Tensors) -> tuple[Tensors, Tensors, Tensors, Tensors, tf.Tensor]:
        """The values that other meetings keep too, then beyond, moved, ahead, and whether anything is under way."""
        num = len(self._weights)
        start = len(kept) - 1 - 3 * num
        beyond, moved, ahead = (
            list(kept[start + i * num : start + (i + 1) * num]) for i in range(3)
        )
        return list(kept[:start]), beyond, moved, ahead, kept[-1]


def add_to(step: Step, backend: Backend) -> None:
    """Has the workers meet after some steps; InputError where a layer needs the others in every step."""
    exchange, options = step.exchange, backend.options
    workers = exchange.collectives.size
    if workers == 1:
        return
    check_whole_batch(step.model, "local_steps")
    weights = [variable.value for variable in step.model.trainable_variables]
    kind = OverlappedMeetings if options.overlap_meetings else Meetings
    exchange.collectives.most_bytes = None  # a meeting's sums go at once
    step.exchange = kind(weights, workers, options.local_steps, *options.outer_step, exchange)
    step.slots_differ = True
