"""Asynchronous training: servers that step with each gradient as it comes, and workers that average weights."""

import collections
import concurrent.futures
import dataclasses
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import StarCollectives
from tfmat.backends.exchange import Exchange, flatten, reduce_flat, unflatten
from tfmat.backends.single import SingleBackend
from tfmat.backends.step import Block, Step, assign_all, check_whole_batch, compiled, row_spec
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.processes import START_TIMEOUT, seconds_setting
from tfmat.launch.watchdog import (
    AGAIN,
    ForgedMessageError,
    Link,
    Star,
    accept,
    connect,
    listen,
    name_ranks,
    pack,
    unpack,
)
from tfmat.optimizers import copy_of, slot_owners

# --------------------------------------------------------------------------------------------------
# The part of a batch that a worker computes next, asked of rank 0 before the answer is wanted.


# A question that takes a smaller share of a step is asked when its answer is wanted.
_SHORT = 0.05


class PartsAhead:
    """Numbers of the parts that rank 0 hands to this worker, asked for while the parts before are computed.

    A part that a worker has asked for waits for it, however fast the others are. So a worker asks for the fewest parts
    that spare it a wait: as many as it computes during the shortest round trip so far, and none where the round trip is
    short beside a step. Rank 0's shard is asked for nothing else meanwhile.
    """

    def __init__(self, server: Any, clock: Callable[[], float] = time.monotonic):
        self._server, self._clock = server, clock
        self._asked: collections.deque[float] = collections.deque()
        self._round_trip, self._compiled = math.inf, False
        self._steps = self._computing = 0.0
        self.begin(0)

    def begin(self, most: int) -> None:
        """Begins a call, in which at most so many parts are asked for ahead."""
        self._most = most
        self._came: float | None = None
        # The known length of steps, with half its weight in each call after.
        self._steps, self._computing = self._steps / 2, self._computing / 2

    def take(self) -> int:
        """The number of the next part for this worker."""
        if self._came is not None:
            if self._compiled:
                self._steps += 1
                self._computing += self._clock() - self._came
            self._compiled = True  # by the first step of a run, whose length says nothing
        if not self._asked:
            self._ask()
        number = int(self._server.asked_ticket())
        self._came = self._clock()
        self._round_trip = min(self._round_trip, self._came - self._asked.popleft())
        while len(self._asked) < self._ahead():
            self._ask()
        return number

    def end(self) -> None:
        """Takes what was asked for beyond the end of the call, so that the next one begins with answers of its own."""
        while self._asked:
            self._server.asked_ticket()
            self._asked.popleft()

    def _ask(self) -> None:
        self._asked.append(self._clock())
        self._server.ask_for_ticket()

    def _ahead(self) -> int:
        if not self._steps:
            return 0
        step = max(self._computing / self._steps, 1e-9)
        if self._round_trip < _SHORT * step:
            return 0
        return min(math.ceil(self._round_trip / step), self._most)


# --------------------------------------------------------------------------------------------------
# Collectives by the house's own link to rank 0, without MPI or Horovod: for what is small, or seldom.


class ServedCollectives(StarCollectives):
    """Collectives by the house's own link, with sums in a graph."""

    def check_build(self, jit_compile: bool) -> None:
        if self._star is None:
            raise InputError(
                "the backend is not started, so that each process would train for itself; use it in a with block: "
                "with make_backend('asynchronous') as backend:"
            )

    def _sum(self, tensors: list[Any]) -> list[Any]:
        """See Collectives.sum: summed in the order of the ranks."""

        def total(flat: tf.Tensor) -> tf.Tensor:
            summed = tf.numpy_function(lambda mine: self._total(mine), [flat], flat.dtype)
            return tf.ensure_shape(summed, flat.shape)

        return reduce_flat(tensors, total)

    def _total(self, mine: np.ndarray) -> np.ndarray:
        with self.losses_told():
            total: np.ndarray = self.star.gather(
                mine, lambda ranks: np.sum(ranks, axis=0, dtype=mine.dtype)
            )
            return total


# --------------------------------------------------------------------------------------------------
# A shard of the weights behind a thread that serves it: workers fetch weights and send gradients as they come.
#
# Asynchronous: each gradient moves the weights at once, however many updates came since its worker fetched them:
# Downpour SGD (Dean et al. 2012, Large scale distributed deep networks). With a quorum of K: the first K gradients of
# a step are summed, and what comes later is dropped (Chen et al. 2016, Revisiting distributed synchronous SGD,
# arXiv:1604.00981).


# Methods of a shard that other ranks may call.
_CALLED = frozenset({"fetch", "push", "ticket", "slots", "average"})


class Figures(NamedTuple):
    """Counts of a call: updates, staleness (sum and largest, in updates), gradients that were dropped."""

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
    """A shard of another rank, with the same methods, behind the link to that rank.

    Attributes:
      sent: bytes of gradients since somebody set it to 0.
    """

    def __init__(self, link: Link):
        self._link, self.sent = link, 0

    def fetch(self, at_least: int) -> tuple[int, np.ndarray]:
        self._ask("fetch", at_least)
        version, flat = self._answer()
        return version, flat

    def ticket(self) -> int:
        self.ask_for_ticket()
        return self.asked_ticket()

    def ask_for_ticket(self) -> None:
        """Asks for one that `asked_ticket` returns, in the order of the questions; nothing else is asked in between."""
        self._ask("ticket")

    def asked_ticket(self) -> int:
        """The answer to the first question for a ticket that has none yet."""
        return int(self._answer())

    def slots(self) -> list[np.ndarray]:
        self._ask("slots")
        return list(self._answer())

    def push(self, version: int, examples: float, total: float, gradient: np.ndarray) -> None:
        """See Shard.push; does not wait for the update."""
        self._ask("push", version, examples, total, gradient)

    def average(self, weights: np.ndarray) -> np.ndarray:
        """See Peer.average."""
        self._ask("average", weights)
        found: np.ndarray = self._answer()
        return found

    def _ask(self, method: str, *arguments: Any) -> None:
        self._link.send_bytes(*pack((method, *arguments)))
        self.sent += sum(each.nbytes for each in arguments if isinstance(each, np.ndarray))

    def _answer(self) -> Any:
        return unpack(self._link.receive_bytes())


class Served:
    """Answers the other ranks, each from a thread of its own, from now until they leave.

    The shard that is served is set before anybody asks; the star is told of a message which no rank sent.
    """

    shard: Any

    def __init__(self, star: Star, asked: dict[int, Link]):
        self._star = star
        for rank, link in asked.items():
            name = f"tfmat-shard-for-{rank}"
            threading.Thread(target=self._serve, args=[link], name=name, daemon=True).start()

    def _serve(self, link: Link) -> None:
        try:
            while True:
                method, *arguments = unpack(link.receive_bytes())
                assert method in _CALLED, method
                answer = getattr(self.shard, method)(*arguments)
                if method == "push":
                    continue
                head, *arrays = pack(answer)
                link.send_bytes(head, *arrays)
                if method != "slots":  # once a call
                    self.shard.sent += sum(map(len, arrays))
        except ForgedMessageError as error:
            self._star.fail(error)
        except (OSError, EOFError):
            pass  # the other side has left


def connect_all(star: Star) -> tuple[dict[int, Link], dict[int, Link]]:
    """Connects every rank with every other one; every rank calls it.

    Returns:
      rank -> the link on which this rank asks; rank -> the one on which it is asked.

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
        {rank: link for rank, link in asking.items() if link},
        {rank: link for rank, (link, _) in sorted(asked.items())},
    )


# --------------------------------------------------------------------------------------------------
# Asynchronous training: no worker waits for a slower one, except at the end of a call of `train`.
#
# Every rank is a worker, and the first ones also serve a shard of the weights each. A worker takes the next batch
# that nobody has taken, fetches the weights, and sends the gradient of the whole batch, which moves the weights at
# once. With `quorum` each worker takes its part of every step's batch, and the first gradients make the step. At the
# end of a call all ranks fetch weights and slots, so that validation, checkpoints and the replica check find what
# they find after synchronous steps.


class AsynchronousBackend(SingleBackend):
    """The single backend on each of a launcher's processes, with the optimizer's steps made by servers."""

    # The type that `_figures_of_call` returns; from other ranks it comes as a plain tuple.
    _kind_of_figures: type[tuple[Any, ...]] = Figures

    def start(self) -> None:
        """See Backend.start: connects every rank with every other one, too."""
        super().start()
        if self.world_size > 1:
            with self.collectives.losses_told():
                star: Star = self.collectives.star  # type: ignore[attr-defined]
                self._asking, asked = connect_all(star)
                self._served = Served(star, asked)

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *arguments: Any,
        **options: Any,
    ) -> None:
        if self.world_size > 1:
            check_whole_batch(model, "--backend=asynchronous")
        super().build(model, optimizer, *arguments, **options)
        self._figures: list[Any] = []
        if self.world_size > 1:
            self._dtype = type_of_weights(model)
            self._make_shards(model, optimizer)
            self.collectives.barrier()  # nobody asks before all serve

    def _add_extras(self, step: Step) -> None:
        """See SingleBackend._add_extras: a worker's gradients are its own."""
        super()._add_extras(step)
        step.exchange = Exchange()

    def _make_shards(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        weights = model.trainable_variables
        self._parts = divide([int(np.prod(w.shape)) for w in weights], self.world_size)
        owners = slot_owners(optimizer, [weight.shape for weight in weights], same_shape=False)
        self._slots_of = [
            [i for i, owner in enumerate(owners) if owner is None or owner in part]
            for part in self._parts
        ]
        self._shards: list[Any] = []
        self._own: Any = None
        for rank, part in enumerate(self._parts):
            if rank == self.rank:
                mine = [weights[i] for i in part]
                options = self.options
                self._own = Shard(optimizer, mine, options.quorum, options.staleness_scaling)
                self._shards.append(self._own)
                continue
            self._shards.append(RemoteShard(self._asking[rank]))
        if self._own:
            self._served.shard = self._own

    @property
    def hands_out_batches(self) -> bool:
        return self.world_size > 1 and not self.options.quorum

    def training_columns(self, global_batch_size: int) -> slice:
        whole = slice(0, global_batch_size)
        return whole if self.hands_out_batches else self.columns(global_batch_size)

    def take_figures(self) -> dict[str, float]:
        """See Backend.take_figures: mean and largest staleness, or how many gradients came too late."""
        figures, self._figures = self._figures, []
        if not figures:
            return {}
        if self.options.quorum:
            # Each worker sends one to every shard.
            return {"dropped_gradients": sum(each.dropped for each in figures) / len(self._parts)}
        updates = sum(each.updates for each in figures)
        return {
            "mean_staleness": round(sum(each.staleness for each in figures) / max(updates, 1), 3),
            "max_staleness": max(each.largest for each in figures),
        }

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        if self.world_size == 1:
            return super().train(data, indices, weights, num_examples)
        self._try_coupling(data, indices)
        self._begin()
        for shard in self._shards:
            shard.sent = 0
        self.collectives.barrier()
        with self.collectives.losses_told():
            sums, seen = self._work(data, indices, weights, num_examples)
            self._fetch_state(len(indices))
        return self._meet(sums, seen, num_examples)

    def _begin(self) -> None:
        """Has the shard that this worker serves begin a call."""
        if self._own:
            variables, mine = self._variables, self._parts[self.rank]
            self._own.begin(
                [tf.identity(variables.weights[i]) for i in mine],
                [tf.identity(variables.slots[i]) for i in self._slots_of[self.rank]],
            )

    def _work(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Computes gradients until there are no batches; returns [steps, sums] and examples [steps] of this worker."""
        gradients = self._gradients_function(data, indices.shape[1])
        sums = np.zeros((len(indices), self._step.num_sums), keras.backend.floatx())
        seen, first, step = np.zeros(len(indices)), self._shards[0], -1
        while True:
            if self.options.quorum:
                # The step that shard 0 is at: a late worker leaves out what it missed.
                fetched = [first.fetch(step + 1)]
                step = fetched[0][0]
            else:
                step, fetched = first.ticket(), []
            if step >= len(indices):
                return sums, seen
            at_least = step if self.options.quorum else 0
            fetched += [shard.fetch(at_least) for shard in self._shards[len(fetched) :]]
            one = slice(step, step + 1)
            block = Block(data, indices[one], weights[one], num_examples[one])
            *flats, found = gradients(block, [flat for _, flat in fetched])
            examples = float(weights[step].sum())
            for shard, (version, _), flat in zip(self._shards, fetched, flats, strict=True):
                version = step if self.options.quorum else version
                shard.push(version, examples, float(num_examples[step]), flat.numpy())
            sums[step], seen[step] = found.numpy(), examples

    def _gradients_function(self, data: Any, width: int) -> Any:
        key = "gradients", width, str(tf.nest.map_structure(row_spec, data))
        if key not in self._functions:
            flats = [tf.TensorSpec([None], self._dtype) for _ in self._parts]
            self._functions[key] = compiled(self._gradients, data, [1, width], flats)
        return self._functions[key]

    def _gradients(self, block: Block, flats: Any) -> list[tf.Tensor]:
        """The flat gradient of each shard, and the sums."""
        values: list[Any] = list(self._variables.weights)
        for part, flat in zip(self._parts, flats, strict=True):
            shapes = [tuple(values[i].shape) for i in part]
            for i, value in zip(part, unflatten(flat, shapes), strict=True):
                values[i] = value
        pieces = self._pieces(block, 0)
        state = self._read()._replace(weights=values)
        gradients, sums, non_trainable = self._step.gradients(state, pieces)
        assign_all(self._variables.non_trainable, non_trainable)
        return [*(flatten([gradients[i] for i in part]) for part in self._parts), sums]

    def _fetch_state(self, num_steps: int) -> None:
        """Weights and slots of all shards after so many updates, into this worker's variables."""
        for shard, part, slots in zip(self._shards, self._parts, self._slots_of, strict=True):
            _, flat = shard.fetch(num_steps)
            variables = [self._variables.weights[i] for i in part]
            values = unflatten(flat, [tuple(each.shape) for each in variables])
            assign_all(variables, values)
            assign_all([self._variables.slots[i] for i in slots], shard.slots())

    def _figures_of_call(self) -> Any:
        return self._own.figures if self._own else None

    def _meet(self, sums: np.ndarray, seen: np.ndarray, num_examples: np.ndarray) -> np.ndarray:
        """The sums over the workers; whatever else differs between them is made equal."""
        figures = self._figures_of_call()
        seeds = [v for v in self._variables.non_trainable if not v.dtype.is_floating]
        workers = self.collectives.gather((sums, seen, figures, [v.numpy() for v in seeds]))
        self._figures += [self._kind_of_figures(*each[2]) for each in workers if each[2]]
        for i, variable in enumerate(seeds):  # counters, of which each worker made some
            variable.assign(np.max([each[3][i] for each in workers], axis=0))
        # Every push to this rank's shard was an update or came too late, and both are over.
        self.bytes_per_step = sum(shard.sent for shard in self._shards) / len(sums)
        counted = np.maximum(np.sum([each[1] for each in workers], axis=0), 1.0)
        factor = (num_examples / counted).astype(sums.dtype)
        total: np.ndarray = np.sum([each[0] for each in workers], axis=0) * factor[:, None]
        return total


def divide(sizes: Sequence[int], most_parts: int) -> list[list[int]]:
    """Numbers of the weights (of these sizes) that each server holds: whole tensors, as LAMB needs them.

    There are no more servers than relieve the busiest one: every step of every worker asks each of them, and one that
    is slow holds up all. With another one the largest part would shrink by less than a tenth.
    """

    def parts(count: int) -> list[list[int]]:
        """The largest weights first, each to the part with least."""
        found: list[list[int]] = [[] for _ in range(count)]
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            min(found, key=lambda part: (sum(sizes[j] for j in part), len(part))).append(i)
        return [sorted(part) for part in found]

    def largest(found: list[list[int]]) -> int:
        return max(sum(sizes[i] for i in part) for part in found)

    choices = [parts(count) for count in range(1, min(most_parts, len(sizes)) + 1)]
    return next(each for each in choices if largest(each) <= 1.1 * largest(choices[-1]))


def type_of_weights(model: keras.Model) -> Any:
    """NumPy's type of all the model's weights; InputError where there are several."""
    types = {weight.value.dtype for weight in model.trainable_variables}
    if len(types) > 1:
        raise InputError("--backend=asynchronous takes weights of one type; this model has several")
    return types.pop().as_numpy_dtype


# --------------------------------------------------------------------------------------------------
# Training with peers: each worker moves weights of its own, and averages them with one other worker at a time.
#
# AD-PSGD (Lian et al. 2018, Asynchronous decentralized parallel stochastic gradient descent, arXiv:1710.06952). Workers
# of even rank ask workers of odd rank, and nobody asks them: in this bipartite graph (section 4.2 there) no two workers
# ever wait for each other. An averaging is under way while its workers compute. One that has been asked
# moves half way to the other's weights at once, between two of its own steps; the one that asked moves by as much the
# other way as soon as it has the answer. So each averaging keeps the sum of all weights, and no step of anybody is
# lost.


class Averagings(NamedTuple):
    """Counts of a worker in a call.

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
    """The weights of a worker, all of one type, with its slots. Its version counts averagings."""

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
        return self._update(slots, gradient, unflatten(flat, self._shapes), 0)[1:]


class AveragingBackend(AsynchronousBackend):
    """Workers that take turns at parts of the batches and average their weights two by two.

    At the end of a call of `train` each has the mean of all workers' weights. Slots stay each worker's own.
    """

    _kind_of_figures = Averagings

    def _make_shards(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        weights = model.trainable_variables
        self._parts = [list(range(len(weights)))]
        self._own = self._served.shard = Peer(optimizer, weights)
        self._peers: dict[int, Any] = {
            rank: RemoteShard(link) for rank, link in self._asking.items()
        }
        # Nobody averages with rank 0, which asks by itself, so that its answers are all numbers of parts.
        self._parts_ahead = PartsAhead(self._peers[0]) if self.rank else None
        self._peers[self.rank] = self._own
        self._shards = list(self._peers.values())
        asks = self.rank % 2 == 0
        self._partners = [rank for rank in self._peers if rank % 2] if asks else []
        self._under_way: concurrent.futures.Future[None] | None = None

    def _add_extras(self, step: Step) -> None:
        """See SingleBackend._add_extras: slots stay each worker's own."""
        super()._add_extras(step)
        step.slots_differ = self.world_size > 1

    def sharing(self, global_batch_size: int) -> str:
        steps = self.options.local_steps
        every = f" every {steps} steps" if steps > 1 else ""
        return (
            f"{self.world_size} workers take turns at parts of each batch of {global_batch_size}, and average their "
            f"weights two by two{every}"
        )

    def training_columns(self, global_batch_size: int) -> slice:
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
            examples = mine.sum(keepdims=True)
            if not examples:
                continue  # the last batch of an epoch may have too few for all parts
            version, flat = own.fetch(0)
            block = Block(data, rows[step, part][None], mine[None], examples)
            gradient, found = gradients(block, [flat])
            own.step(step, version, gradient)
            if count % self.options.local_steps == 0:
                self._begin_averaging()
            sums[step] += found.numpy()
            seen[step] += examples[0]
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
        (total,) = self.collectives.sum([tf.constant(flat)])
        mean = total.numpy() / workers
        own.sent += flat.nbytes * (1 if self.rank else workers - 1)
        distance = float(np.sum((flat - mean) ** 2) / max(np.sum(mean**2), 1e-300))
        own.done = own.done._replace(distance=distance)
        variables = self._variables
        values = unflatten(mean, [tuple(each.shape) for each in variables.weights])
        assign_all(variables.weights, values)
        assign_all(variables.slots[1:], own.slots()[1:])
        variables.slots[0].assign_add(num_steps)


# With `averaging` the registry takes it for the backend of this name.
instead_of = AveragingBackend


def _in_background(call: Callable[[], None]) -> "concurrent.futures.Future[None]":
    """Runs `call` in a thread that does not keep the process alive, unlike an executor's threads."""
    future: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        try:
            call()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="tfmat-averaging").start()
    return future
