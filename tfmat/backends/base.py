"""What training asks of a backend. A backend knows nothing of curves; training knows nothing of parallelism."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.backends.collectives import Collectives
from tfmat.backends.options import BackendOptions
from tfmat.backends.saved_arrays import SavedArrays, from_rank_0
from tfmat.backends.step_times import StepTimes
from tfmat.errors import InputError, WorkerLostError

Arrays = dict[str, np.ndarray]
PerExample = Callable[[Any, Any], Any]
# A function like a loss, or a keras.metrics.Metric whose state adds up over examples, see tfmat.backends.losses.
Metric = Any


class Backend(abc.ABC):
    """What runs training steps. `build` comes first; everything else after it.

    Args:
      options: see BackendOptions.
      collectives: how it talks to the other processes.

    Attributes:
      name: as in `--backend=NAME`.
      collectives: what is told to the other processes, and by them.
      timed_calls: one in so many calls of `train` notes the times within its steps; 0 where none does.
      step_times: of the last `train`, where that was one of them.
      bytes_per_step: that this worker sends to others in a training step, once one has run; see `Counted`.
      meets_every: steps between two meetings of the workers, whose states differ in between; each call of `train` ends
        with one, or with the weights of the one before where meetings overlap with local steps, see `settle`.
      note: one line for people on what `build` made, or nothing.
    """

    name: str
    note: str = ""
    timed_calls: int = 0
    step_times: StepTimes | None = None
    bytes_per_step: float = 0.0
    meets_every: int = 1
    _last_compared = 0

    def __init__(
        self, options: BackendOptions | None = None, collectives: Collectives | None = None
    ):
        self.options = options or BackendOptions()
        self.collectives = collectives or Collectives()

    @property
    def rank(self) -> int:
        """This worker; rank 0 alone writes files and draws progress."""
        return self.collectives.rank

    @property
    def world_size(self) -> int:
        """Workers that share a global batch."""
        return self.collectives.size

    @property
    def replica(self) -> int:
        """This worker among those."""
        return self.rank

    def start(self) -> None:
        """Joins the other workers; once, before `build` and after `prepare_tensorflow`."""
        self.collectives.start()

    def close(self, error: BaseException | None = None) -> None:
        """Leaves them: in order, or because of `error`, which they are told."""
        self.collectives.close(error)

    def __enter__(self) -> "Backend":
        self.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.close(error)

    @abc.abstractmethod
    def build(
        self,
        model: Any,
        optimizer: Any,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
        bfloat16: Sequence[Any] = (),
    ) -> None:
        """Takes a built Keras model and a functional optimizer, makes the slots, and compiles nothing yet.

        Args:
          model: its variables are the initial state.
          optimizer: see `tfmat.optimizers.make_functional`.
          loss: (labels, outputs) -> [batch], one value an example.
          metrics: name -> function like `loss`, or a Keras metric from `tfmat.backends.losses.make_metric`.
          auxiliary_loss: like `loss`; added to what is minimised, not to what is reported as the loss.
          jit_compile: compile the step with XLA.
          bfloat16: layers that compute in bfloat16 in training steps, see `tfmat.backends.step`.
        """

    @abc.abstractmethod
    def place(self, data: Any) -> Any:
        """Puts a structure of NumPy arrays where steps read it best (device memory; on CPUs without a copy)."""

    def host_tensors(self, data: Any) -> Any:
        """Tensors in host memory over a structure of NumPy arrays, mapped files included: no copy where possible."""
        import tensorflow as tf

        from tfmat.backends.batches import share_or_copy

        return tf.nest.map_structure(share_or_copy, data)

    @abc.abstractmethod
    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """Runs some training steps in one call.

        Args:
          data: (features, labels), each a tensor or a structure of tensors with the same first axis; or with the
            examples' own weights [examples] behind them, which count in the loss and not in metrics.
          indices: int32 [steps, batch], rows of `data`.
          weights: float32 [steps, batch], 1 for an example, 0 for padding.
          num_examples: float32 [steps], true examples of each GLOBAL batch.

        Returns:
          [steps, sums] over each global batch: of the loss, and those of each metric, see `Summary`.
        """

    @abc.abstractmethod
    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """Does as `train`, in inference mode, and changes nothing."""

    @abc.abstractmethod
    def predict(self, features: Any) -> Any:
        """Outputs of the model with the present state: an array, or a structure of arrays as the model's outputs."""

    @abc.abstractmethod
    def read(self) -> Arrays:
        """The whole state as plain arrays: `weights/i`, `non_trainable/i`, `slots/i` in Keras's order.

        Every worker calls it. Slots of which each worker holds a part (`zero_stage` over processes) are whole on rank 0
        alone; the others get their own parts, which `write` takes back.
        """

    def read_for_file(self) -> SavedArrays:
        """Does as `read` for a file that is written before the next step; arrays may come into memory as it is."""
        return self.read()

    @abc.abstractmethod
    def write(self, arrays: SavedArrays) -> None:
        """Sets the whole state from what any backend's `read` returned; InputError where it does not fit."""

    def restore(self, arrays: SavedArrays) -> None:
        """Does as `write` with rank 0's arrays, of which each rank has one at a time in memory.

        Every rank calls it, and `synchronize` after it; other ranks' arrays are not looked at.
        """
        self.write(from_rank_0(arrays, self.collectives))

    @abc.abstractmethod
    def sync_model(self) -> None:
        """Brings the Keras model's own variables up to date, for callbacks and for saving."""

    def columns(self, global_batch_size: int) -> slice:
        """This worker's contiguous part of each global batch; InputError where a worker would have none."""
        return slice(0, global_batch_size)

    def training_columns(self, global_batch_size: int) -> slice:
        """What `train` is given of each global batch: this worker's part, or all where batches are handed out."""
        return self.columns(global_batch_size)

    def settle(self) -> None:  # noqa: B027
        """Has the workers agree, at the end of an epoch, on all that they have learned; every worker calls it."""

    @property
    def parts_of_a_batch(self) -> int:
        """Parts in which this worker's batch goes through the model, one after the other."""
        return self.options.accumulate

    @property
    def hands_out_batches(self) -> bool:
        """Whether workers take turns at batches, or at parts of them."""
        return False

    def take_figures(self) -> dict[str, float]:
        """What metrics.jsonl tells of the steps since the last `take_figures`, beside their times."""
        return {}

    def synchronize(self) -> None:  # noqa: B027
        """Rank 0's whole state on every rank: before the first step, and after `write` on rank 0."""

    def time_steps(self, one_call_in: int = 1) -> None:
        """Has `train` also note, from `build` on, when each part of a step was complete; on every rank or on none.

        Args:
          one_call_in: to cost less, after as many calls, which are all timed, only one in so many is.

        Raises:
          InputError: where it cannot.
        """
        raise InputError(
            f"profile=true does not work with --backend={self.name} yet; leave it out: metrics.jsonl still has the "
            "times outside of the steps"
        )

    def check_replicas(self, step: int) -> None:  # noqa: B027
        """Compares the copies of the state that the workers hold, by a hash.

        Raises:
          WorkerLostError: they differ; names the steps between which they began to.
        """

    def _report_differing(self, what: str, differing: list[int], step: int) -> None:
        """WorkerLostError where some (`what`: `rank`, `device`) hold other numbers than the first."""
        if differing:
            names = ", ".join(map(str, differing[:8])) + (" ..." if len(differing) > 8 else "")
            raise WorkerLostError(
                f"the weights of {what} {names} differ from those of {what} 0; they began to between step "
                f"{self._last_compared} and step {step}. Start the same command again to go on from the last "
                "checkpoint; where it happens again, a worker computes or communicates wrongly"
            )
        self._last_compared = step

    def _note_common_state(self, arrays: SavedArrays) -> None:
        """All workers were given this state."""
        if "slots/0" in arrays:  # Keras's `iterations`
            self._last_compared = int(np.asarray(arrays["slots/0"]))
