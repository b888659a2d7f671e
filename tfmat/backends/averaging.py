"""Training with peers: each worker moves weights of its own, and averages them with one other worker at a time.

AD-PSGD (Lian et al. 2018, Asynchronous decentralized parallel stochastic gradient descent, arXiv:1710.06952). The
workers of even rank ask those of odd rank, and nobody asks the former: in this bipartite graph (section 4.2 there) no
two workers ever wait for each other. An averaging is under way while its workers compute. One that has been asked moves
half way to the other's weights at once, between two of its own steps; the one that asked moves by as much the other way
as soon as it has the answer. So each averaging leaves the sum of all weights as it is, and no step of anybody is lost.
"""

import concurrent.futures
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.asynchronous import AsynchronousBackend
from tfmat.backends.parameter_server import RemoteShard, Shard
from tfmat.backends.parts_ahead import PartsAhead
from tfmat.backends.replica import assign_all
from tfmat.backends.sums import flatten, unflatten


class Averagings(NamedTuple):
    """What a worker did in a call.

    Attributes:
      steps: that its optimizer took.
      staleness, largest: sum and maximum over these of the averagings since the weights of a gradient.
      asked: averagings that it began.
      distance: squared, of its weights from the mean of all at the end, over the mean's squared norm.
    """

    steps: int = 0
    staleness: int = 0
    largest: int = 0
    asked: int = 0
    distance: float = 0.0


class Peer(Shard):
    """The weights of a worker, with its slots; any thread may call it. Its version counts averagings.

    Args:
      optimizer: functional; an equal one is built for these weights.
      weights: variables of the model, all of one type.
    """

    def __init__(
        self, optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]
    ) -> None:
        super().__init__(optimizer, weights, quorum=None, scaling="none")
        self._move = tf.function(self._moved, autograph=False)

    def begin(self, weights: list[Any], slots: list[Any]) -> None:
        """See Shard.begin; the first of the slots says which step is the first."""
        super().begin(weights, slots)
        self.done = Averagings()
        self._first_step = int(slots[0])

    def step(self, number: int, version: int, gradient: Any) -> None:
        """Has the optimizer take a step.

        Args:
          number: of the batch in this call, by which the rate goes: another worker may have taken the one before.
          version: of the weights that the gradient [numbers] is of.
          gradient: of this worker's part of the batch.
        """
        with self._condition:
            slots = [
                tf.constant(self._first_step + number, self._slots[0].dtype),
                *self._slots[1:],
            ]
            self._slots, flat = self._move(slots, gradient, self._flat)
            self._flat = flat.numpy()
            done, staleness = self.done, self.version - version
            self.done = done._replace(
                steps=done.steps + 1,
                staleness=done.staleness + staleness,
                largest=max(done.largest, staleness),
            )

    def average(self, theirs: np.ndarray) -> np.ndarray:
        """Moves half way to another worker's weights [numbers]; returns those that this worker had before."""
        with self._condition:
            mine = self._flat
            self._take(mine, theirs)
            return mine

    def average_with(self, other: Any) -> None:
        """Does so with a peer, or with a RemoteShard in front of one, which does the same."""
        with self._condition:
            mine = self._flat
        theirs = other.average(mine)
        with self._condition:
            self._take(mine, theirs)

    def _take(self, mine: np.ndarray, theirs: np.ndarray) -> None:
        # Not the mean itself: this worker may have taken steps since its weights were `mine`.
        self._flat = self._flat + (theirs - mine) / 2
        self.version += 1

    def _moved(self, slots: Any, gradient: Any, flat: Any) -> Any:
        weights = unflatten(flat, self._shapes)
        new, slots = self._optimizer.stateless_apply(
            slots, unflatten(gradient, self._shapes), weights
        )
        return slots, flatten(new)


class AveragingBackend(AsynchronousBackend):
    """Workers that take turns at parts of the batches and average their weights two by two.

    At the end of a call of `train` each has the mean of all workers' weights. Slots stay each worker's own.
    """

    _kind_of_figures = Averagings

    def _make_shards(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        weights = model.trainable_variables
        sizes = [int(np.prod(weight.shape)) for weight in weights]
        self._parts = [list(range(len(weights)))]
        self._own = self._served.shard = Peer(optimizer, weights)
        self._peers: dict[int, Any] = {
            rank: RemoteShard(connection, self._dtype, sum(sizes), [])
            for rank, connection in self._asking.items()
        }
        # Nobody averages with rank 0, which asks by itself, so that its answers are all numbers of parts.
        self._parts_ahead = PartsAhead(self._peers[0]) if self.rank else None
        self._peers[self.rank] = self._own
        self._shards = list(self._peers.values())
        asks = self.rank % 2 == 0
        self._partners = [rank for rank in self._peers if rank % 2] if asks else []
        self._under_way: concurrent.futures.Future[None] | None = None

    def training_columns(self, global_batch_size: int) -> slice:
        """See Backend.training_columns."""
        self.columns(global_batch_size)  # refuses a batch that has no part for each
        return slice(0, global_batch_size)

    def take_figures(self) -> dict[str, float]:
        """See Backend.take_figures: of the averagings, and how far apart they left the workers."""
        calls, self._figures = self._figures, []
        if not calls:
            return {}
        workers = [calls[rank :: self.world_size] for rank in range(self.world_size)]
        steps = [sum(call.steps for call in worker) for worker in workers]
        return {
            "averagings_per_step": round(sum(call.asked for call in calls) / sum(steps), 3),
            "mean_staleness": round(sum(call.staleness for call in calls) / sum(steps), 3),
            "max_staleness": max(call.largest for call in calls),
            "fewest_steps": min(steps),
            "most_steps": max(steps),
            "consensus_distance": float(np.sqrt(np.mean([call.distance for call in calls]))),
        }

    def _figures_of_call(self) -> Averagings:
        done: Averagings = self._own.done
        return done

    def _begin(self) -> None:
        weights, _, slots, _ = self._read()
        self._own.begin(weights, slots)
        self._random = np.random.default_rng([self.rank, int(slots[0])])

    def _work(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See AsynchronousBackend._work."""
        num_steps, workers = len(indices), self.world_size
        missing = -indices.shape[1] % workers  # the parts of a batch have one width
        rows, weights = (
            np.pad(array, ((0, 0), (0, missing))).reshape(num_steps, workers, -1)
            for array in (indices, weights)
        )
        gradients = self._gradients_function(data, rows.shape[2])
        sums = np.zeros((num_steps, self._step.num_sums), keras.backend.floatx())
        seen, own = np.zeros(num_steps), self._own
        if self._parts_ahead:
            self._parts_ahead.begin(num_steps // 4)
        for count in itertools.count(1):
            step, part = divmod(self._next_part(), workers)
            if step >= num_steps:
                break
            mine = weights[step, part]
            examples = np.float32(mine.sum())
            if not examples:
                continue  # the last batch of an epoch may have too few for all parts
            version, flat = own.fetch(0)
            gradient, found = gradients(data, rows[step, part], mine, examples, [flat])
            own.step(step, version, gradient)
            if count % self.options.local_steps == 0:
                self._begin_averaging()
            sums[step] += found.numpy()
            seen[step] += examples
        if self._parts_ahead:
            self._parts_ahead.end()
        return sums, seen

    def _next_part(self) -> int:
        """The number of the next part of a batch that nobody has taken, in this call."""
        return self._parts_ahead.take() if self._parts_ahead else self._own.ticket()

    def _begin_averaging(self) -> None:
        """Averages with a partner while this worker goes on, unless it waits for the partner before."""
        if not self._partners or (self._under_way and not self._under_way.done()):
            return
        self._end_averaging()
        partner = self._peers[self._choose_partner()]
        self._under_way = _in_background(lambda: self._own.average_with(partner))

    def _choose_partner(self) -> int:
        return int(self._random.choice(self._partners))

    def _end_averaging(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()
            done = self._own.done
            self._own.done = done._replace(asked=done.asked + 1)

    def _fetch_state(self, num_steps: int) -> None:
        """The mean of all workers' weights, and this worker's own slots, into its variables."""
        self._end_averaging()
        self.collectives.barrier()  # nobody asks any more
        own, workers = self._own, self.world_size
        _, flat = own.fetch(0)
        (total,) = self.collectives.reduce([tf.constant(flat)])
        mean = total.numpy() / workers
        own.sent += flat.nbytes * (1 if self.rank else workers - 1)
        distance = float(np.sum((flat - mean) ** 2) / max(np.sum(mean**2), 1e-300))
        own.done = own.done._replace(distance=distance)
        variables = self._variables
        values = unflatten(mean, [tuple(each.shape) for each in variables.weights])
        assign_all(variables.weights, values)
        assign_all(variables.slots[1:], own.slots()[1:])
        variables.slots[0].assign_add(num_steps)


def _in_background(call: Callable[[], None]) -> "concurrent.futures.Future[None]":
    """Runs `call` in a thread that does not keep the process alive, unlike those of an executor."""
    future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        try:
            call()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tfmat-averaging").start()
    return future
