"""A shard of the weights behind a thread that serves it: workers fetch weights and send gradients as they come.

Asynchronous: each gradient moves the weights at once, however many updates came since its worker fetched them: Downpour
SGD (Dean et al. 2012, Large scale distributed deep networks). With a quorum of K: the first K gradients of a step are
summed, and what comes later is dropped (Chen et al. 2016, Revisiting distributed synchronous SGD, arXiv:1604.00981).
"""

import concurrent.futures
import contextlib
import dataclasses
import struct
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.sums import flatten, unflatten
from tfmat.errors import WorkerLostError
from tfmat.optimizers.functional import copy_of
from tfmat.ranks.ending import START_TIMEOUT, seconds_setting
from tfmat.ranks.handshake import accept, connect, listen
from tfmat.ranks.star import Star
from tfmat.ranks.verdict import AGAIN, name_ranks

# Kind of request, version, examples of the gradient, examples of its batch.
_REQUEST, _ANSWER = struct.Struct("<cqdd"), struct.Struct("<q")
_FETCH, _PUSH, _TICKET, _SLOTS, _AVERAGE = b"f", b"p", b"t", b"s", b"a"


class Figures(NamedTuple):
    """What happened in a call: updates, staleness (sum and largest, in updates), gradients that were dropped."""

    updates: int = 0
    staleness: int = 0
    largest: int = 0
    dropped: int = 0


class Shard:
    """Some of the weights with their slots, and the optimizer that moves them; any thread may call it.

    Args:
      optimizer: functional; an equal one is built for these weights.
      weights: of this shard: variables of the model, all of one type.
      quorum: gradients that make a step; None where each is one.
      scaling: by which the weights' step shrinks with the staleness s: `none`, `inverse` (1 / (1 + s)), or `sqrt`.

    Attributes:
      sent: bytes of answers since the call began.
      figures: of the present call.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        weights: Sequence[keras.Variable],
        quorum: int | None,
        scaling: str,
    ):
        self._optimizer = copy_of(optimizer)
        self._optimizer.build(list(weights))
        self.dtype = weights[0].value.dtype.as_numpy_dtype
        self._shapes = [tuple(weight.shape) for weight in weights]
        self._quorum, self._scaling = quorum, scaling
        self._condition = threading.Condition()
        self._sum: np.ndarray | None = None
        self._count, self._examples = 0, 0.0
        self._apply = tf.function(self._update, autograph=False)

    def begin(self, weights: list[Any], slots: list[Any]) -> None:
        """Begins a call: from these values, at version 0."""
        with self._condition:
            self._weights, self._slots = weights, slots
            self._flat = flatten(weights).numpy()
            self.version, self._ticket, self.sent = 0, 0, 0
            self.figures = Figures()
            self._clear()

    def fetch(self, at_least: int) -> tuple[int, np.ndarray]:
        """Version and weights [numbers] once so many updates were made."""
        with self._condition:
            self._condition.wait_for(lambda: self.version >= at_least)
            return self.version, self._flat

    def ticket(self) -> int:
        """The number of the next batch that nobody has taken."""
        with self._condition:
            self._ticket += 1
            return self._ticket - 1

    def slots(self) -> list[np.ndarray]:
        """The optimizer's variables, in Keras's order."""
        with self._condition:
            return [slot.numpy() for slot in self._slots]

    def push(self, version: int, examples: float, total: float, gradient: np.ndarray) -> None:
        """Takes in a gradient [numbers] of the weights of `version`.

        Args:
          version: with a quorum also the number of the step.
          examples: that it is of.
          total: examples of the batch, by whose number its sum over the examples was divided.
        """
        with self._condition:
            staleness = self.version - version
            updates, stale, largest, dropped = self.figures
            if self._quorum is None:
                self._step(gradient, staleness)
                self.figures = Figures(
                    updates + 1, stale + staleness, max(largest, staleness), dropped
                )
                return
            if staleness:
                self.figures = self.figures._replace(dropped=dropped + 1)
                return
            self._sum = gradient if self._sum is None else self._sum + gradient
            self._count, self._examples = self._count + 1, self._examples + examples
            if self._count == self._quorum:
                factor = gradient.dtype.type(total / max(self._examples, 1.0))
                self._step(self._sum * factor, 0)
                self.figures = self.figures._replace(updates=updates + 1)
                self._clear()

    def _clear(self) -> None:
        self._sum = None
        self._count, self._examples = 0, 0.0

    def _step(self, gradient: np.ndarray, staleness: int) -> None:
        self._weights, self._slots, flat = self._apply(
            self._slots, gradient, self._weights, tf.constant(staleness, gradient.dtype)
        )
        self._flat = flat.numpy()
        self.version += 1
        self._condition.notify_all()

    def _update(self, slots: Any, gradient: Any, weights: Any, staleness: Any) -> Any:
        new, slots = self._optimizer.stateless_apply(
            slots, unflatten(gradient, self._shapes), weights
        )
        if self._scaling != "none":
            scale = 1 / (1 + staleness)
            scale = tf.sqrt(scale) if self._scaling == "sqrt" else scale
            new = [old + scale * (value - old) for old, value in zip(weights, new, strict=True)]
        return new, slots, flatten(new)


class RemoteShard:
    """A shard of another rank, with the same methods; arrays travel as their bytes.

    Args:
      connection: to the rank that serves it.
      dtype: of the weights.
      num_values: of the weights.
      slots: shapes and types of the optimizer's variables for them.

    Attributes:
      sent: bytes of gradients since somebody set it to 0.
    """

    def __init__(
        self,
        connection: Connection,
        dtype: Any,
        num_values: int,
        slots: Sequence[tuple[tuple[int, ...], Any]],
    ):
        self._connection, self._dtype, self._num_values = connection, dtype, num_values
        self._slot_specs, self.sent = slots, 0

    def fetch(self, at_least: int) -> tuple[int, np.ndarray]:
        """See Shard.fetch."""
        (version,) = _ANSWER.unpack(self._ask(_FETCH, at_least))
        return version, self._receive((self._num_values,), self._dtype)

    def ticket(self) -> int:
        """See Shard.ticket."""
        self.ask_for_ticket()
        return self.asked_ticket()

    def ask_for_ticket(self) -> None:
        """Asks for one that `asked_ticket` returns, in the order of the questions; nothing else is asked in between."""
        self._connection.send_bytes(_REQUEST.pack(_TICKET, 0, 0, 0))

    def asked_ticket(self) -> int:
        """The answer to the first question for a ticket that has none yet."""
        return int(_ANSWER.unpack(self._connection.recv_bytes())[0])

    def slots(self) -> list[np.ndarray]:
        """See Shard.slots."""
        self._ask(_SLOTS)
        return [self._receive(shape, dtype) for shape, dtype in self._slot_specs]

    def push(self, version: int, examples: float, total: float, gradient: np.ndarray) -> None:
        """See Shard.push; does not wait for the update."""
        self._connection.send_bytes(_REQUEST.pack(_PUSH, version, examples, total))
        self._connection.send_bytes(gradient.data.cast("B"))
        self.sent += gradient.nbytes

    def average(self, weights: np.ndarray) -> np.ndarray:
        """See `tfmat.backends.averaging.Peer.average`."""
        self._connection.send_bytes(_REQUEST.pack(_AVERAGE, 0, 0, 0))
        self._connection.send_bytes(weights.data.cast("B"))
        self.sent += weights.nbytes
        return self._receive((self._num_values,), self._dtype)

    def _ask(self, kind: bytes, version: int = 0) -> bytes:
        self._connection.send_bytes(_REQUEST.pack(kind, version, 0, 0))
        return self._connection.recv_bytes()

    def _receive(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.frombuffer(self._connection.recv_bytes(), dtype).reshape(shape)


class Served:
    """Answers the other ranks, each from a thread of its own, from now until they leave.

    Args:
      asked: rank -> the connection on which it asks.

    Attributes:
      shard: that is served; set before anybody asks.
    """

    shard: Any

    def __init__(self, asked: dict[int, Connection]):
        for rank, connection in asked.items():
            name = f"tfmat-shard-for-{rank}"
            threading.Thread(target=self._serve, args=[connection], name=name, daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                request = _REQUEST.unpack(connection.recv_bytes())
                self._answer(connection, *request)

    def _answer(
        self, connection: Connection, kind: bytes, version: int, examples: float, total: float
    ) -> None:
        shard = self.shard
        if kind == _PUSH:
            gradient = np.frombuffer(connection.recv_bytes(), shard.dtype)
            shard.push(version, examples, total, gradient)
        elif kind == _TICKET:
            connection.send_bytes(_ANSWER.pack(shard.ticket()))
        elif kind == _FETCH:
            version, flat = shard.fetch(version)
            connection.send_bytes(_ANSWER.pack(version))
            connection.send_bytes(flat.data.cast("B"))
            shard.sent += flat.nbytes
        elif kind == _AVERAGE:
            mine = shard.average(np.frombuffer(connection.recv_bytes(), shard.dtype))
            connection.send_bytes(mine.data.cast("B"))
            shard.sent += mine.nbytes
        else:
            connection.send_bytes(_ANSWER.pack(0))
            for slot in shard.slots():
                connection.send_bytes(slot.tobytes())


def connect_all(star: Star) -> tuple[dict[int, Connection], dict[int, Connection]]:
    """Connects every rank with every other one; every rank calls it.

    Returns:
      rank -> the connection on which this rank asks; rank -> the one on which it is asked.

    Raises:
      WorkerLostError: not all had connected in the time that HOROVOD_START_TIMEOUT gives.
    """
    addresses = star.addresses()
    deadline = time.monotonic() + seconds_setting(START_TIMEOUT)
    listener, mine = listen(all(address.startswith("127.") for address in addresses))
    with listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        places = [
            # A secret for each place, so that what is said to one rank means nothing to another.
            dataclasses.replace(mine, addresses=[address], port=port, token=f"{star.secret} {rank}")
            for rank, (address, port) in enumerate(
                zip(addresses, star.gather(mine.port), strict=True)
            )
        ]
        accepting = pool.submit(accept, listener, places[star.rank], star.size, deadline)
        others = [rank for rank in range(star.size) if rank != star.rank]
        asking = {rank: connect(places[rank], star.rank, deadline) for rank in others}
        asked = accepting.result()
    lost = [rank for rank in others if not asking[rank] or rank not in asked]
    if lost:
        raise WorkerLostError(f"{name_ranks(lost)} and rank {star.rank} did not connect; {AGAIN}")
    return (
        {rank: Connection(link.detach()) for rank, link in asking.items() if link},
        {rank: Connection(link.detach()) for rank, (link, _) in sorted(asked.items())},
    )
