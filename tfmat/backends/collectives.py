"""What the processes of a run tell each other. A new transport is one subclass of `Collectives`, in one file."""

import contextlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from tfmat.errors import DivergedError, InputError, Interrupted, TfmatError, WorkerLostError
from tfmat.launch.ending import START_TIMEOUT, WORKER_TIMEOUT, seconds_setting, start_timer
from tfmat.launch.processes import Processes
from tfmat.launch.watchdog import AGAIN, ByBroadcast, Star, meet

if TYPE_CHECKING:
    from tfmat.backends.messages import Messages

# In these phases a process is by itself, and may take its time.
_ALONE = frozenset({"simulating curves", "checkpoint"})
# For the watch to end this process, when an error says that another one has gone.
_SECONDS_FOR_THE_WATCH = 10.0
_BARRIERS = 50  # by which clocks are compared


class ClockOffset(NamedTuple):
    """seconds: a rank's clock minus rank 0's; error: the truth is no further away than this."""

    seconds: float
    error: float


class Collectives:
    """What one process tells the others, and sums with them; this class is a process that is alone.

    Every process calls the same methods in the same order. `start` comes first.

    Attributes:
      rank: this process; rank 0 alone writes files and draws progress.
      size: processes of the run.
      clock: this process's against rank 0's, after `compare_clocks`.
      messages: from one rank to another, after `connect`.
    """

    rank: int = 0
    size: int = 1
    clock = ClockOffset(0.0, 0.0)
    messages: "Messages"
    # What all processes raise at the same step: each ends by itself, and rank 0 says why.
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

    def broadcast(self, value: Any) -> Any:
        """Rank 0's `value` (see `tfmat.launch.values.pack`) on every rank; named tuples come as plain ones."""
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

    def begin_graph(self, name: str) -> None:
        """Prepares for the tracing of a graph with `reduce` in it, which has the same name on every rank."""

    def reduce(self, tensors: list[Any]) -> list[Any]:
        """The sums over the ranks of tensors of any shapes and types, in a graph."""
        return tensors

    def collect(self, tensors: list[Any]) -> list[Any]:
        """The tensors of all ranks, [size, ...] each, in the order of the ranks; shapes are the same on all of them."""
        return [tensor[None] for tensor in tensors]

    def reduce_scatter(self, tensors: list[Any]) -> list[Any]:
        """This rank's row of the sums over the ranks of tensors [size, numbers]; shapes are the same on all ranks."""
        return [tensor[0] for tensor in tensors]

    def divide(self, groups: Sequence[Sequence[int]]) -> "Collectives":
        """Collectives whose `reduce` sums over this rank's group. Every rank is in one of the groups; all call it."""
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
            if self.size == 1 or not self._is_loss(error):
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
    before rank 0 left: each barrier gives an upper and a lower bound of the difference of the two clocks, and the
    narrowest of many hold (Cristian 1989, Probabilistic clock synchronization, with the barrier as the message there
    and back). Ranks of one node have one clock, and those of rank 0's node an offset of zero.
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
