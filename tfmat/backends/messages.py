"""Messages from one process to another, in graphs; what is given of MPI is mpi4py's."""

import collections
import threading
import time
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tfmat.errors import InputError

# Between two looks at what is under way: short beside a message over a network, and nothing for a processor.
_SECONDS = 0.0005


class Messages(Protocol):
    """Messages between ranks; those from one to another are received in the order in which they were sent."""

    def send(self, tensor: Any, to: int, *, one_at_a_time: bool = False) -> Any:
        """An operation that sends a tensor of any shape and type, and waits for nobody.

        Args:
          tensor: to send.
          to: rank that calls `receive`.
          one_at_a_time: wait until what was sent before has left.
        """

    def receive(self, shape: Any, dtype: Any, source: int) -> Any:
        """The next tensor that `source` sends to this rank, of that shape (a tensor) and type."""


class MpiMessages:
    """Messages by MPI.

    Args:
      mpi: the module; all ranks make this object at the same time.
      size: how many these are.

    Raises:
      InputError: MPI does not see them all.
    """

    def __init__(self, mpi: Any, size: int):
        world = mpi.COMM_WORLD
        if world.size != size:
            raise InputError(
                f"pipeline stages send by MPI, which sees {world.size} of the {size} processes; start them with mpirun "
                "or srun, for the MPI that mpi4py was built for"
            )
        self._mpi, self._world, self._outbox = mpi, world.Dup(), Outbox()

    def send(self, tensor: tf.Tensor, to: int, *, one_at_a_time: bool = False) -> tf.Tensor:
        """See Messages."""

        def put(numbers: np.ndarray) -> np.int32:
            # A copy, which stays until it has left; TensorFlow's own does not.
            contents = numbers.tobytes()
            if one_at_a_time:
                self._outbox.wait()
            self._outbox.add(self._world.Isend([contents, self._mpi.BYTE], to), contents)
            return np.int32(0)

        return tf.numpy_function(put, [tensor], tf.int32, stateful=True)

    def receive(self, shape: tf.Tensor, dtype: tf.DType, source: int) -> tf.Tensor:
        """See Messages."""

        def take(shape: np.ndarray) -> np.ndarray:
            numbers = np.empty(shape, dtype.as_numpy_dtype)
            self._world.Recv([numbers.view(np.uint8), self._mpi.BYTE], source)
            return numbers

        return tf.numpy_function(take, [shape], dtype, stateful=True)


class Outbox:
    """Keeps the buffers of messages until they have been sent, and sees to it that they are.

    MPI moves a large message on only while the sender is in one of its calls, and the sender is computing: its receiver
    would wait for the next call. So a thread makes calls while messages are under way.
    """

    def __init__(self) -> None:
        self._under_way: collections.deque[tuple[Any, Any]] = collections.deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._push, daemon=True, name="outbox").start()

    def add(self, request: Any, buffer: Any) -> None:
        """Takes a message: mpi4py's request, and what it reads from."""
        with self._changed:
            self._under_way.append((request, buffer))
            self._changed.notify_all()

    def wait(self) -> None:
        """Returns when all messages have left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def _push(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._under_way)
                waiting = list(self._under_way)
            # All of them, since they may go to several processes.
            left = [each for each in waiting if not each[0].Test()]
            if len(left) < len(waiting):
                with self._changed:
                    sent = {id(each) for each in waiting} - {id(each) for each in left}
                    kept = [each for each in self._under_way if id(each) not in sent]
                    self._under_way = collections.deque(kept)
                    self._changed.notify_all()
            if left:
                time.sleep(_SECONDS)
