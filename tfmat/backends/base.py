"""The seam between training and parallelism: processes that sum, and a backend that runs steps on them.

A backend knows nothing of curves; training knows nothing of parallelism. A new transport is one subclass of
`Collectives`, in one file.
"""

import abc
import atexit
import contextlib
import dataclasses
import itertools
import os
import platform
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tfmat.config import Settings
from tfmat.errors import DivergedError, InputError, Interrupted, TfmatError, WorkerLostError
from tfmat.launch.processes import (
    START_TIMEOUT,
    WORKER_TIMEOUT,
    Processes,
    find_processes,
    seconds_setting,
)
from tfmat.launch.watchdog import (
    AGAIN,
    ByBroadcast,
    ByNote,
    ForgedMessageError,
    Star,
    meet,
    start_timer,
)

# --------------------------------------------------------------------------------------------------
# Talk between the processes of a run.


# In these phases a process is by itself, and may take its time.
_ALONE = frozenset({"simulating curves", "checkpoint"})
# For the watch to end this process, when an error says that another one has gone.
_SECONDS_FOR_THE_WATCH = 10.0
_BARRIERS = 50  # by which clocks are compared


class Messages(Protocol):
    """Messages between ranks; those from one to another are received in the order in which they were sent."""

    def send(self, tensor: Any, to: int, *, one_at_a_time: bool = False) -> Any:
        """Sends a tensor of any shape and type, and waits for nobody; `one_at_a_time`: for what was sent before."""

    def receive(self, shape: Any, dtype: Any, source: int) -> Any:
        """The next tensor that `source` sends to this rank, of that shape (a tensor) and type."""


class ClockOffset(NamedTuple):
    """seconds: a rank's clock minus rank 0's; error: the truth is no further away than this."""

    seconds: float
    error: float


class Collectives:
    """Talk and sums between processes; this class is a process that is alone.

    Every process calls the same methods in the same order. `start` comes first.

    Attributes:
      rank: this process; rank 0 alone writes files and draws progress.
      size: processes of the run.
      clock: this process's against rank 0's, after `compare_clocks`.
      messages: from one rank to another, after `connect`.
      divides: whether `divide` will be called; set before `start`.
      most_bytes: in one sum, see `in_buckets`; None: all tensors in one.
      bytes: that one rank sends in the graph that is being made, counted as a ring does it, in which no byte goes twice
        (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms). A sum over R ranks has each send
        2 (R - 1) / R times its tensors. A sum of which each keeps a part has it send (R - 1) / R times, a collection
        R - 1 times.
    """

    rank: int = 0
    size: int = 1
    clock = ClockOffset(0.0, 0.0)
    messages: Messages
    divides: bool = False
    most_bytes: float | None = None
    bytes: float = 0.0
    started = False
    # The name of a backend of these processes; the reason why XLA compiles no step with their sums.
    title = ""
    without_xla = ""
    # Errors that all processes raise at the same step: each ends by itself, and rank 0 says why.
    alike: ClassVar[tuple[type[BaseException], ...]] = (Interrupted, DivergedError)

    _star: Star | None = None
    _record: Callable[[str], None] | None = None

    def start(self) -> None:
        """Joins the others; a second call does nothing."""

    def close(self, error: BaseException | None = None) -> None:
        """Leaves them: in order, or because of `error`, which they are told."""
        star, self._star = self._star, None
        if star is None:
            return
        if error is None or isinstance(error, self.alike):
            if isinstance(error, Interrupted | DivergedError):
                # Once one has ended with a status, mpirun kills the others, and rank 0 may not have noted the end yet.
                with contextlib.suppress(WorkerLostError):
                    star.barrier()
            else:
                self._leave_together(star)
            if isinstance(error, TfmatError):
                error.said_elsewhere = self.rank > 0
            star.close()
        else:
            star.fail(error)

    def __enter__(self) -> "Collectives":
        self.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.close(error)

    def watch_others(self, processes: Processes) -> None:
        """Meets the others on the link by which each says that it lives; called in `start`, after `broadcast` works."""
        timeout, seconds = seconds_setting(WORKER_TIMEOUT), seconds_setting(START_TIMEOUT)
        deadline = time.monotonic() + seconds
        with start_timer(self.rank, seconds + 5):  # a broadcast may wait without end, too
            timeout = self.broadcast(timeout)
            if timeout:
                star = meet(processes, ByBroadcast(self.broadcast), deadline, self._on_loss)
                star.watch(timeout, deadline)
                self._star = star

    def when_lost(self, record: Callable[[str], None]) -> None:
        """Has `record(message)` called, from another thread, when a process is lost and this one is to end."""
        self._record = record

    def announce(self, phase: str, step: int) -> None:
        """Says what this process does from now on, for the message if it is lost."""
        if self._star:
            self._star.announce(phase, step, collective=phase not in _ALONE)

    def check_build(self, jit_compile: bool) -> None:
        """InputError where a step cannot be built that sums by these; before it is."""
        if self.title and not self.started:
            name = self.title.lower()
            raise InputError(
                f"the {self.title} backend is not started, so that each process would train for itself; use it in a "
                f"with block: with make_backend('{name}') as backend:"
            )
        if self.without_xla and jit_compile:
            raise InputError(
                f"jit_compile is not for several workers: {self.without_xla}; leave it out"
            )

    def broadcast(self, value: Any) -> Any:
        """Rank 0's `value` (see `tfmat.launch.watchdog.pack`) on every rank; named tuples come as plain ones."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value` (small; see `broadcast`), in the order of the ranks, on every rank."""
        return [value]

    def hand_over(self, value: Any, source: int) -> Any:
        """On rank 0 the `value` of `source`; None on other ranks."""
        return value

    def maximum(self, number: int) -> int:
        """The largest of the ranks' numbers, on every rank; cheap enough for every block."""
        return max(self.gather(number))

    def barrier(self) -> None:
        """Returns when all ranks have come."""
        self.maximum(0)

    def begin_graph(self, name: str, stamp: Callable[[Any], Any] | None = None) -> None:
        """Begins the tracing of a graph with sums in it, which has the same name on every rank.

        `stamp` has each exchange in it note its times.
        """
        self.bytes, self._stamp = 0.0, stamp

    def sum(self, tensors: list[Any]) -> list[Any]:
        """The sums over the ranks of tensors of any shapes and types, in a graph."""
        return in_buckets(self._counted_sum, self.most_bytes)(tensors)

    def _counted_sum(self, tensors: list[Any]) -> list[Any]:
        return self._exchanged(self._sum, tensors, 2 * (self.size - 1) / self.size)

    def collect(self, tensors: list[Any]) -> list[Any]:
        """The tensors of all ranks, [size, ...] each, in the order of the ranks; shapes are the same on all of them."""
        return self._exchanged(self._collect, tensors, self.size - 1)

    def scatter(self, tensors: list[Any]) -> list[Any]:
        """This rank's row of the sums over the ranks of tensors [size, numbers]; shapes are the same on all ranks."""
        return self._exchanged(self._scatter, tensors, (self.size - 1) / self.size)

    def _exchanged(
        self, exchange: Callable[[list[Any]], list[Any]], tensors: list[Any], times: float
    ) -> list[Any]:
        if times:
            self.bytes += times * num_bytes(tensors)
        return (self._stamp(exchange) if self._stamp else exchange)(tensors)

    _stamp: Callable[[Any], Any] | None = None

    # A transport has its own of these three.

    def _sum(self, tensors: list[Any]) -> list[Any]:
        return tensors

    def _collect(self, tensors: list[Any]) -> list[Any]:
        return [tensor[None] for tensor in tensors]

    def _scatter(self, tensors: list[Any]) -> list[Any]:
        return [tensor[0] for tensor in tensors]

    def divide(self, groups: Sequence[Sequence[int]]) -> "Collectives":
        """Collectives whose `sum` sums over this rank's group. Every rank is in one of the groups; all call it."""
        return self

    def connect(self) -> None:
        """Prepares `messages`; every rank calls it once."""

    def broadcast_array(
        self, array: np.ndarray | None, shape: Sequence[int], dtype: Any
    ) -> np.ndarray:
        """Rank 0's `array`, of that shape and type, on every rank; other ranks' is not looked at."""
        found: np.ndarray = self.broadcast(array)
        return found

    def broadcast_variables(self, variables: Iterable[Any]) -> None:
        """Assigns rank 0's values to variables, which come in the same order on every rank; one is copied at a time."""
        for variable in variables if self.size > 1 else ():
            mine = variable.numpy() if self.rank == 0 else None
            shape, dtype = tuple(variable.shape), variable.dtype.as_numpy_dtype
            variable.assign(self.broadcast_array(mine, shape, dtype))

    def compare_clocks(self) -> None:
        """Finds `clock`."""
        if self.size > 1:
            barriers = time_barriers(self.barrier, platform.node())
            ranks = [Barriers(*each) for each in self.gather(barriers)]
            self.clock = clock_offsets(ranks)[self.rank]

    def latest(self, times: np.ndarray) -> np.ndarray:
        """The latest among the ranks' for each of float64 `times`, all by this rank's clock."""
        return times

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        """A function that sums that many float32 over the ranks, `count` times one after the other.

        Raises:
          InputError: there is nobody to sum with.
        """
        raise InputError("one process sums over no others")

    def start_timeline(self, path: str) -> bool:
        """Begins to write what the parallel library does into a file, on rank 0; False where there is nothing to."""
        return False

    def stop_timeline(self) -> None:
        """Ends what `start_timeline` began."""

    @contextlib.contextmanager
    def losses_told(self) -> Iterator[None]:
        """Encloses what fails when another process has gone: the watch says which, and ends this one."""
        try:
            yield
        except Exception as error:
            if self.size == 1 or not self._is_loss(error) or isinstance(error, ForgedMessageError):
                raise
            time.sleep(_SECONDS_FOR_THE_WATCH)
            raise WorkerLostError(f"a worker has left; {AGAIN}") from error

    def _is_loss(self, error: Exception) -> bool:
        """Whether the transport raises this where another process has gone."""
        return False

    def _leave_together(self, star: Star) -> None:
        """Waits for the others, where ending now would take something from them."""

    def _on_loss(self, message: str) -> None:
        if self._record:
            self._record(message)


def in_buckets(
    reduce: Callable[[list[Any]], list[Any]], most_bytes: float | None
) -> Callable[[list[Any]], list[Any]]:
    """`reduce` in several collectives of at most so many bytes, each of which begins as soon as its tensors are there.

    A backward pass gives the last layers' gradients first, so buckets are filled from the end of the list. Their sums
    are under way while the rest is computed (Li et al. 2020, PyTorch Distributed, arXiv:2006.15704, section 3.2.3). A
    larger tensor has a bucket to itself; with None all tensors are in one.
    """
    if most_bytes is None:
        return reduce

    def reduced(tensors: list[Any]) -> list[Any]:
        buckets: list[list[int]] = []
        full = most_bytes
        for i in reversed(range(len(tensors))):
            size = num_bytes(tensors[i : i + 1])
            if not buckets or full + size > most_bytes:
                buckets.append([])
                full = 0
            buckets[-1].append(i)
            full += size
        sums = [reduce([tensors[i] for i in bucket]) for bucket in buckets]
        if len(sums) > 1:
            sums = together(*sums)
        found = dict(zip(itertools.chain(*buckets), itertools.chain(*sums), strict=True))
        return [found[i] for i in range(len(tensors))]

    return reduced


def together(*groups: list[Any]) -> list[list[Any]]:
    """The same tensors; none is ready before all are, or the next step would exchange under the same names too soon."""
    import tensorflow as tf

    everything = [tensor for group in groups for tensor in group]
    with tf.control_dependencies(everything):
        return [[tf.identity(tensor) for tensor in group] for group in groups]


def num_bytes(tensors: Sequence[Any]) -> int:
    """Bytes of tensors; one of a shape that is not known before it is there counts nothing."""
    return sum((t.shape.num_elements() or 0) * t.dtype.size for t in tensors)


class StarCollectives(Collectives):
    """Collectives of the processes that any launcher started; every value goes through rank 0.

    They find each other by `folder`, which all can see, where they are on several nodes.
    """

    def __init__(self, processes: Processes, folder: str, settings: Settings | None = None):
        self.processes, self._folder = processes, folder

    def start(self) -> None:
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        if self.size == 1 or self._star:
            return
        timeout, seconds = seconds_setting(WORKER_TIMEOUT), seconds_setting(START_TIMEOUT)
        deadline = time.monotonic() + seconds
        with start_timer(self.rank, seconds + 5):  # a parallel library may wait without end
            star = meet(processes, ByNote(processes, self._folder), deadline, self._on_loss)
            self._join(star)
            star.watch(timeout, deadline)
        self._star = star

    def _join(self, star: Star) -> None:
        """Does what else is to be done while the processes meet."""

    @property
    def star(self) -> Star:
        """The link; WorkerLostError where the processes are not joined, or have parted."""
        if self._star is None:
            raise WorkerLostError("the processes of this run are not joined, or have parted")
        return self._star

    def broadcast(self, value: Any) -> Any:
        if self.size == 1:
            return value
        with self.losses_told():
            return self.star.broadcast(value)

    def gather(self, value: Any) -> list[Any]:
        if self.size == 1:
            return [value]
        with self.losses_told():
            return self.star.gather(value)

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(error, WorkerLostError | OSError | EOFError)


class Barriers(NamedTuple):
    """One rank's own notes: node, name of its machine; came and left, seconds of each barrier by its clock."""

    node: str
    came: list[float]
    left: list[float]


def time_barriers(barrier: Callable[[], object], node: str) -> Barriers:
    """Notes when this rank came to and left some barriers; every rank calls it at the same time."""
    came, left = [], []
    for _ in range(_BARRIERS):
        came.append(time.time())
        barrier()
        left.append(time.time())
    return Barriers(node, came, left)


def clock_offsets(ranks: Sequence[Barriers]) -> list[ClockOffset]:
    """How far each rank's clock is from rank 0's, from barriers and nothing else.

    Nobody leaves a barrier before everybody has come. So, in true time, rank 0 came before rank r left, and rank r came
    before rank 0 left. Each barrier gives an upper and a lower bound of the difference of the two clocks; the narrowest
    bounds of many barriers count. Cristian 1989, Probabilistic clock synchronization, does so with a message there and
    back. Ranks of one node have one clock, and ranks of rank 0's node an offset of zero.
    """
    first = ranks[0]
    bounds: dict[str, tuple[float, float]] = {}
    for rank in ranks:
        upper = float(np.min(np.subtract(rank.left, first.came)))
        lower = float(np.max(np.subtract(rank.came, first.left)))
        known = bounds.get(rank.node, (-np.inf, np.inf))
        bounds[rank.node] = max(known[0], lower), min(known[1], upper)
    bounds[first.node] = 0.0, 0.0
    return [
        ClockOffset((lower + upper) / 2, abs(upper - lower) / 2)
        for lower, upper in (bounds[rank.node] for rank in ranks)
    ]


# --------------------------------------------------------------------------------------------------
# Arrays of a saved state that come into memory one at a time: from a file, or from rank 0.


class SavedArray:
    """An array that is elsewhere: each `np.asarray` of it reads it into memory."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, read: Callable[[], np.ndarray]):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._read = read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._read(), dtype)


# What `Backend.write` takes.
SavedArrays = Mapping[str, np.ndarray | SavedArray]


def from_rank_0(arrays: SavedArrays, collectives: Collectives) -> SavedArrays:
    """Rank 0's arrays by name on every rank; other ranks' own arrays are ignored.

    Each is broadcast whenever it is asked for: every rank must ask for the same ones in the same order.
    """
    if collectives.size == 1:
        return arrays
    specs = collectives.broadcast(
        {name: (tuple(array.shape), array.dtype.name) for name, array in arrays.items()}
    )

    def array_of(name: str, shape: tuple[int, ...], dtype: str) -> SavedArray:
        def read() -> np.ndarray:
            mine = np.asarray(arrays[name]) if collectives.rank == 0 else None
            return collectives.broadcast_array(mine, shape, dtype)

        return SavedArray(shape, dtype, read)

    return {name: array_of(name, *spec) for name, spec in specs.items()}


# --------------------------------------------------------------------------------------------------
# Times within a training step, as its graph notes them (`Stamps`): each part waits for the one before it.
#
# A step is cut into parts by the moments at which something is complete:
#
#     start | input | forward and backward | waiting, moving | optimizer | next start
#           ^ rows gathered                ^ gradients ready ^ sums back ^ state assigned
#
# The clock is the machine's own (seconds since 1970, to the microsecond). Where the workers sum more than once in a
# step (batch normalisation over the whole batch; 16-bit gradients and then the sums of the loss), every sum is noted,
# and one begins after the one before it has ended. With zero_stage the optimizer exchanges too (norms, and the weights
# that each worker has updated), and what it computes before that is its own. On one worker nothing is summed: waiting
# and moving are zero.


# Parts of one worker's step; all but the last as measured in the graph. The file profile.json and the scaling
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


# --------------------------------------------------------------------------------------------------
# The interface of a backend to training.


Arrays = dict[str, np.ndarray]
PerExample = Callable[[Any, Any], Any]
# A function like a loss, or a keras.metrics.Metric whose state adds up over examples, see tfmat.backends.losses.
Metric = Any


# _NUMERICAL: beginnings of the environment variables by which libraries choose kernels, and so the rounding of sums.
_NUMERICAL = (
    "TF_",
    "XLA_",
    "ONEDNN_",
    "DNNL_",
    "MKL_",
    "OMP_",
    "KMP_",
    "OPENBLAS_",
    "CUDNN_",
    "CUBLAS_",
    "NVIDIA_",
)
# _NOT_NUMERICAL: variables among them that do not change any number.
_NOT_NUMERICAL = ("TF_CONFIG", "TF_CPP_", "KMP_DUPLICATE", "NVIDIA_VISIBLE")


def _numerical_settings() -> dict[str, str]:
    """This process's environment variables that change how TensorFlow computes."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_NUMERICAL) and not name.startswith(_NOT_NUMERICAL)
    }


def _differing_settings(environments: Sequence[dict[str, str]]) -> str:
    """The variables that differ between ranks, with the values of rank 0 and of the first other, in a sentence."""
    told = []
    for name in sorted({name for each in environments for name in each}):
        values = [each.get(name, "not set") for each in environments]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            told.append(f"{name} ({values[0]} on rank 0, {values[other]} on rank {other})")
    return f"Ranks differ in the environment: {', '.join(told)}. " if told else ""


class Backend(abc.ABC):
    """Runs training steps. `build` comes first; everything else after it.

    Args:
      settings: how steps are computed.
      collectives: how it talks to the other processes.
      name: as in `--backend=NAME`.
      processes: this process among those of its run; by default what the launcher says.
      folder: that all processes can see, by which those of several nodes find each other; slots on disk lie there where
        `offload_dir` is None.

    Attributes:
      options: the section of the settings on parallelism.
      uses_mesh: whether the network is divided over the axes of the mesh.
      collectives: what is told to the other processes, and by them.
      timed_calls: one in so many calls of `train` notes the times within its steps; 0 where none does.
      step_times: of the last `train`, where that was one of them.
      bytes_per_step: that this worker sends to others in a training step, once one has run; see `Counted`.
      meets_every: steps between two meetings of the workers, whose states differ in between; each call of `train` ends
        with one, or with the weights of the one before where meetings overlap with local steps, see `settle`.
      note: one line for people on what `build` made, or nothing.
    """

    note: str = ""
    uses_mesh: bool = False
    timed_calls: int = 0
    step_times: StepTimes | None = None
    bytes_per_step: float = 0.0
    meets_every: int = 1
    _last_compared = 0

    def __init__(
        self,
        settings: Settings | None = None,
        collectives: Collectives | None = None,
        name: str = "single",
        *,
        processes: Processes | None = None,
        folder: str = ".",
    ):
        self.settings, self.name, self.folder = settings or Settings(), name, folder
        self.options, self.processes = self.settings.parallel, processes or find_processes()
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

    def start_to_the_end(self) -> None:
        """Starts it for a whole program, at whose end the others are left in order, or told of its error.

        A process that ends without a word counts as lost, and the others end with it.
        """
        self.start()
        atexit.register(lambda: self.close(getattr(sys, "last_value", None)))

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
          [steps, sums] over each global batch: of the loss, and those of each metric, see `values_of`.
        """

    @abc.abstractmethod
    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """Does as `train`, in inference mode, and changes nothing."""

    @abc.abstractmethod
    def read(self) -> Arrays:
        """The whole state as plain arrays: `weights/i`, `non_trainable/i`, `slots/i` in Keras's order.

        Every worker calls it. Slots of which each worker holds a part (`zero_stage` over processes) are whole on rank 0
        alone; the others get their own parts, which `write` takes back.
        """

    def read_for_file(self) -> SavedArrays:
        """Does as `read` for a file written before the next step; its arrays may come into memory one by one."""
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

    def check_network(self, build: Callable[[], Any]) -> None:  # noqa: B027
        """InputError where the network that `build` gives cannot be divided, before anything is made for it."""

    def examples_of_a_step(self, global_batch_size: int) -> int:
        """Examples whose gradients make a step: a worker's part alone where each takes steps by itself."""
        apart = self.options.averaging or self.options.local_steps > 1
        return -(-global_batch_size // (self.world_size if apart else 1))

    def sharing(self, global_batch_size: int) -> str:
        """How several workers share the batches, in words."""
        steps = self.options.local_steps
        shares = "take turns at batches" if self.hands_out_batches else "share each batch"
        meet = f", and meet every {steps} steps" if steps > 1 else ""
        beside = ", while they take the next" if self.options.overlap_meetings else ""
        return f"{self.world_size} workers {shares} of {global_batch_size}{meet}{beside}"

    def training_columns(self, global_batch_size: int) -> slice:
        """The part of each global batch for `train`: this worker's, or all where batches are handed out."""
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
        """Figures for metrics.jsonl of the steps since the last `take_figures`, beside their times."""
        return {}

    def synchronize(self) -> None:  # noqa: B027
        """Rank 0's whole state on every rank: before the first step, and after `write` on rank 0."""

    def time_steps(self, one_call_in: int = 1) -> None:
        """Has `train` also note, from `build` on, when each part of a step was complete; on every rank or on none.

        To cost less, after as many calls, which are all timed, only one in so many is. InputError where it cannot.
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

    def _report_differing(self, what: str, differing: Mapping[int, list[str]], step: int) -> None:
        """WorkerLostError where some (`what`: `rank`, `device`) hold other numbers than the first.

        `differing` has the number of each that does, and the names of the variables.
        """
        if differing:

            def told(all_of_them: list[str], most: int) -> str:
                more = len(all_of_them) - most
                return ", ".join(all_of_them[:most]) + (f" and {more} more" if more > 0 else "")

            variables = told(list(dict.fromkeys(itertools.chain(*differing.values()))), 3)
            settings = _differing_settings(self.collectives.gather(_numerical_settings()))
            raise WorkerLostError(
                f"the weights of {what} {told(list(map(str, differing)), 8)} differ from those of {what} 0; they began "
                f"to between step {self._last_compared} and step {step}, in {variables}. "
                f"{settings}Start the same command again to go on from the last checkpoint; where it happens again, a "
                "worker computes or communicates wrongly"
            )
        self._last_compared = step

    def _note_common_state(self, arrays: SavedArrays) -> None:
        """All workers were given this state."""
        if "slots/0" in arrays:  # Keras's `iterations`
            self._last_compared = int(np.asarray(arrays["slots/0"]))


def share_or_copy(array: Any) -> Any:
    """A tensor over the array's own memory where TensorFlow can share it (CPU, aligned), else a copy of it."""
    import tensorflow as tf

    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.size:
        aligned = array.ctypes.data % 64 == 0
        if aligned and array.dtype.kind in "iufc" and array.dtype.isnative:
            # NumPy exports writable arrays alone. TensorFlow does not write here: a file mapped to be read is as good.
            interface = {**array.__array_interface__, "data": (array.ctypes.data, False)}
            lent = np.asarray(types.SimpleNamespace(__array_interface__=interface, lender=array))
            return tf.experimental.dlpack.from_dlpack(lent.__dlpack__())
    return tf.convert_to_tensor(array)
