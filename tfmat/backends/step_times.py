"""Times within a training step, as its graph notes them (`Stamps`): each part waits for the one before it.

A step is cut into parts by the moments at which something is complete:

    start | input | forward and backward | waiting, moving | optimizer | next start
          ^ rows gathered                ^ gradients ready ^ sums back ^ state assigned

The clock is the machine's own (seconds since 1970, to the microsecond). Where the workers sum more than once in a step
(batch normalisation over the whole batch; 16-bit gradients and then the sums of the loss), every sum is noted, and
one begins after the one before it has ended. With zero_stage the optimizer exchanges too (norms, and the weights that
each worker has updated), and what it computes before that is its own. On one worker nothing is summed: waiting and
moving are zero.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

# What one worker's step consists of; all but the last as measured in the graph. The file profile.json and the scaling
# study call them so; "moving" is the communication.
PARTS = ("input", "forward_backward", "waiting", "moving", "optimizer", "host")


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Moments of some steps of one worker.

    Attributes:
      moments: float64 [steps, 3 + 2 sums]: start; rows gathered; ready and back of each sum; assigned.
      num_updating: how many of the last sums are the optimizer's.
    """

    moments: NDArray
    num_updating: int = 0

    @property
    def ready(self) -> NDArray:
        """[steps, sums]: when this worker was ready to sum."""
        return self.moments[:, 2:-1:2]

    @property
    def between(self) -> NDArray:
        """[steps - 1]: seconds from the end of a step to the start of the next."""
        return self.moments[1:, 0] - self.moments[:-1, -1]

    def parts(self, latest: NDArray) -> dict[str, NDArray]:
        """Seconds of each part but the host, [steps] each; their sum is the time from start to assigned.

        Args:
          latest: [steps, sums], when the last worker was ready, by this worker's clock.
        """
        start, gathered, back = self.moments[:, 0], self.moments[:, 1], self.moments[:, 3:-1:2]
        before = np.concatenate([gathered[:, None], back[:, :-1]], axis=1)
        computing = self.ready - before
        gradients = computing.shape[1] - self.num_updating
        return {
            "input": gathered - start,
            "forward_backward": computing[:, :gradients].sum(axis=1),
            "waiting": (latest - self.ready).sum(axis=1),
            "moving": (back - latest).sum(axis=1),
            "optimizer": self.moments[:, -1] - back[:, -1] + computing[:, gradients:].sum(axis=1),
        }
