"""How fast an epoch goes, and how long the rest of the run will take."""

from tfmat.durations import EpochPlan


class Pace:
    """Of the present epoch.

    Args:
      plan: of the run's epochs.
      num_examples: of the training set.
      total_steps: of the whole run.
    """

    def __init__(self, plan: EpochPlan, num_examples: int, total_steps: int):
        self._plan, self._num_examples, self._total_steps = plan, num_examples, total_steps
        self._calls: list[tuple[float, float]] = []
        self._batch_size, self._compiling = 0, True

    def begin_epoch(self, epoch: int) -> None:
        """Forgets the epoch before."""
        self._calls = []
        # A batch of another size is compiled anew.
        self._compiling = self._batch_size != self._plan.batch_size(epoch)
        self._batch_size = self._plan.batch_size(epoch)

    def count(self, examples: float, seconds: float) -> None:
        """One call of the backend."""
        self._calls.append((examples, seconds))

    def rate(self) -> float:
        """Examples a second in this epoch; without a first call that compiles, if there are others."""
        calls = self._calls[1:] if self._compiling and len(self._calls) > 1 else self._calls
        return sum(examples for examples, _ in calls) / max(sum(s for _, s in calls), 1e-9)

    def seconds_left(self, step: int) -> float:
        """From that step to the end of the run."""
        rate = self.rate()
        epochs = self._plan.epochs(self._total_steps) - self._plan.epochs(step)
        return epochs * self._num_examples / rate if rate else 0.0
