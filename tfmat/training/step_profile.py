"""Seconds of the parts of steps on one worker, over many blocks: all of them add up to the time of the steps.

A block is what happens from the end of one call of the graph to the end of the next, without validation and files. What
is between the calls is shared out evenly over the block's steps: waiting for the source of examples is input, agreeing
with the other workers (whose slowest one it waits for) is waiting, all else is host.
"""

import collections
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.backends.step_times import PARTS, StepTimes

ALL_PARTS = (*PARTS, "host")
# Of this many steps, the latest, the quartiles are kept.
_KEPT_STEPS = 50_000
_SAMPLE_STEPS = 100


class StepProfile:
    """Takes one block after the other. The process's first call, which compiles, is not to be given."""

    def __init__(self) -> None:
        self._steps = 0
        self._sums = dict.fromkeys(("block", "input", "agreement"), 0.0)
        # [steps, parts] of each block; and [steps], from a step's start until it is ready to sum.
        self._blocks: collections.deque[NDArray] = collections.deque()
        self._alone: collections.deque[NDArray] = collections.deque()

    def add(self, steps: int, block: float, source: float, agreement: float) -> None:
        """Counts a block whose inside is not known.

        Args:
          steps: in it.
          block: seconds of all of it.
          source: of these, waiting for the source of examples.
          agreement: of these, with the other workers between two calls.
        """
        self._steps += steps
        for name, seconds in (("block", block), ("input", source), ("agreement", agreement)):
            self._sums[name] += seconds

    def add_times(
        self, times: StepTimes, latest: NDArray, block: float, source: float, agreement: float
    ) -> None:
        """Counts a block with the times of its steps.

        Args:
          times: of this worker.
          latest: see StepTimes.parts.
          block, source, agreement: see `add`.
        """
        parts = times.parts(latest)
        steps = len(times.moments)
        in_steps = sum(seconds.sum() for seconds in parts.values())
        outside = block - source - agreement - in_steps - times.between.sum()
        parts["input"] += source / steps
        parts["waiting"] += agreement / steps
        parts["host"] = np.append(times.between, 0.0) + outside / steps
        self._blocks.append(np.stack([parts[name] for name in ALL_PARTS], axis=1))
        self._alone.append(times.ready[:, -1] - times.moments[:, 0])
        self.add(steps, block, source, agreement)
        while sum(map(len, self._blocks)) - len(self._blocks[0]) > _KEPT_STEPS:
            self._blocks.popleft()
            self._alone.popleft()

    def means(self) -> dict[str, float]:
        """Seconds of a step on average, by part; without the times in the graph, of `input` alone."""
        if self._blocks:
            means = np.concatenate(self._blocks).mean(axis=0)
            deviation = float(np.std(np.concatenate(self._alone)))
            return {
                **dict(zip(ALL_PARTS, map(float, means), strict=True)),
                "step_deviation": deviation,
            }
        return {"input": self._sums["input"] / self._steps} if self._steps else {}

    def details(self) -> dict[str, Any]:
        """`step_seconds`, the mean; and with the times in the graph `parts`, their quartiles, and a `sample`."""
        if not self._steps:
            return {}
        found: dict[str, Any] = {"timed_steps": self._steps}
        found["step_seconds"] = self._sums["block"] / self._steps
        if not self._blocks:
            return found
        parts = np.concatenate(self._blocks)
        quartiles = np.quantile(parts, [0.25, 0.5, 0.75], axis=0).T
        found["parts"] = {
            name: dict(
                zip(("low_quartile", "median", "high_quartile"), map(float, row), strict=True)
            )
            for name, row in zip(ALL_PARTS, quartiles, strict=True)
        }
        sample = np.round(parts[-_SAMPLE_STEPS:], 7)
        found["sample"] = {
            name: column.tolist() for name, column in zip(ALL_PARTS, sample.T, strict=True)
        }
        return found
