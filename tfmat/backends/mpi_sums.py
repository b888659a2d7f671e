"""Sums and collections over the ranks of one of MPI's communicators, in graphs and in host memory."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Seconds after which a patient collective looks for messages again: far less than a slow network takes for one.
_PAUSE = 1e-4


class MpiSums:
    """Collectives in graphs, which every rank calls in the same order.

    Args:
      mpi: mpi4py's module.
      ranks: communicator; all its ranks make this object at the same time.
      nodes: name of each rank's node, however they are placed. Tensors are then summed within each node first, then
        between the nodes' first ranks, which hand the sums back: no number crosses the network twice. None: in one sum.
      patient: whether they leave the processor to others while they wait. MPI itself looks for messages without a
        pause.
    """

    def __init__(
        self, mpi: Any, ranks: Any, nodes: Sequence[str] | None = None, patient: bool = False
    ):
        self._mpi, self._ranks, self._patient = mpi, ranks, patient
        self._node = _find_node(ranks, nodes) if nodes is not None else None

    def sum(self, flat: tf.Tensor) -> tf.Tensor:
        """The sum over the ranks of a flat tensor."""

        # The gradient of a sum over the ranks is the sum of the ranks' gradients.
        @tf.custom_gradient
        def summed(part: tf.Tensor) -> Any:
            # Stateful, so that TensorFlow runs one after the other, in the same order on every rank.
            total = tf.numpy_function(self._sum, [part], part.dtype, stateful=True)
            return tf.ensure_shape(total, part.shape), summed

        return summed(flat)

    def _sum(self, part: np.ndarray) -> np.ndarray:
        total = part.copy()
        if self._node is None:
            self._add_up(self._ranks, total, swaps=self._patient)
            return total
        here, across = self._node
        numbers, add = self._summands(total)
        # The ranks of a node sum among themselves; its first sums with the other nodes' and hands the sum back.
        if here.rank == 0:
            self._do(here, "reduce", self._mpi.IN_PLACE, numbers, add, 0)
            self._add_up(across, total, swaps=True)
        else:
            self._do(here, "reduce", numbers, None, add, 0)
        self._do(here, "bcast", numbers, 0)
        return total

    def _add_up(self, ranks: Any, total: np.ndarray, swaps: bool) -> None:
        """Puts the sum over the ranks in place of each one's numbers; two ranks may swap theirs instead."""
        if swaps and ranks.size == 2:
            self._swap(total, ranks)
            return
        numbers, add = self._summands(total)
        given: Any = self._mpi.IN_PLACE
        if self._patient:
            # A sum that MPI begins at once and makes in place goes up a tree and down again, each time with all bytes.
            given, _ = self._summands(total.copy())
        self._do(ranks, "allreduce", given, numbers, add)

    def _swap(self, total: np.ndarray, two: Any) -> None:
        """Adds the other one's numbers: a message each way, where MPI's own sum has two with half of the bytes."""
        other, partner = np.empty_like(total), 1 - two.rank
        sent, got = ([each.view(np.uint8), self._mpi.BYTE] for each in (total, other))
        self._wait([two.Irecv(got, partner, 0), two.Isend(sent, partner, 0)])
        np.add(total, other, out=total)

    def _do(self, ranks: Any, collective: str, *arguments: Any) -> None:
        """Calls a collective of the communicator `ranks`, and returns when it is done."""
        if not self._patient:
            getattr(ranks, collective.capitalize())(*arguments)
            return
        self._wait([getattr(ranks, f"I{collective}")(*arguments)])

    def _wait(self, requests: list[Any]) -> None:
        """Returns when these are done."""
        if not self._patient:
            self._mpi.Request.Waitall(requests)
            return
        while not self._mpi.Request.Testall(requests):
            time.sleep(_PAUSE)

    def _summands(self, numbers: np.ndarray) -> tuple[Any, Any]:
        """Numbers as MPI takes them, and what adds them: it has no half precision of its own."""
        if numbers.dtype != np.float16:
            return numbers, self._mpi.SUM
        if self._halves is None:
            pair = self._mpi.BYTE.Create_contiguous(2).Commit()
            self._halves = pair, self._mpi.Op.Create(_add_halves, commute=True)
        pair, add = self._halves
        return [numbers, pair], add

    _halves: tuple[Any, Any] | None = None

    def collect(self, row: tf.Tensor) -> tf.Tensor:
        """[1, numbers] -> those of all ranks, [ranks, numbers]."""
        rows = tf.numpy_function(self._collect, [row], row.dtype, stateful=True)
        return tf.ensure_shape(rows, [self._ranks.size, row.shape[1]])

    def _collect(self, row: np.ndarray) -> np.ndarray:
        rows = np.empty((self._ranks.size, row.shape[1]), row.dtype)
        self._do(
            self._ranks,
            "allgather",
            [np.ascontiguousarray(row).view(np.uint8), self._mpi.BYTE],
            [rows.view(np.uint8), self._mpi.BYTE],
        )
        return rows

    def scatter(self, rows: tf.Tensor) -> tf.Tensor:
        """[ranks, numbers] -> this rank's row of their sum over the ranks, [numbers]."""
        part = tf.numpy_function(self._scatter, [rows], rows.dtype, stateful=True)
        return tf.ensure_shape(part, rows.shape[1:])

    def _scatter(self, rows: np.ndarray) -> np.ndarray:
        part = np.empty(rows.shape[1], rows.dtype)
        numbers, add = self._summands(np.ascontiguousarray(rows))
        self._ranks.Reduce_scatter_block(numbers, self._summands(part)[0], add)
        return part


class _Node(NamedTuple):
    """A node as one of its ranks sees it: communicators of its ranks, and of the nodes' first ranks."""

    here: Any
    across: Any


def _find_node(ranks: Any, nodes: Sequence[str]) -> _Node | None:
    """The node of a rank; None where each rank or all ranks are by themselves, and one sum does it."""
    names = sorted(set(nodes))
    if len(names) in (1, len(nodes)):
        return None
    here = ranks.Split(names.index(nodes[ranks.rank]), ranks.rank)
    return _Node(here, ranks.Split(int(here.rank > 0), ranks.rank))


def _add_halves(one: Any, other: Any, kind: Any) -> None:
    """Adds the numbers of one of MPI's buffers to the other's."""
    total = np.frombuffer(other, np.float16)
    np.add(total, np.frombuffer(one, np.float16), out=total)
