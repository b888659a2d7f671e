"""Data parallel training: each worker holds the whole state and computes its part of the global batch.

Many steps run in one call of a graph, the data gathered by index inside it. A worker takes its columns of each global
batch and sums over the others where the step's exchange says so; alone, that is the identity. The loss is divided by
the global batch, so unequal parts are right without further ado."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import (
    Arrays,
    Backend,
    Collectives,
    Metric,
    PerExample,
    SavedArray,
    SavedArrays,
    StepTimes,
)
from tfmat.backends.compression import make_exchange
from tfmat.backends.exchange import Collect, Counted, Kept, in_buckets
from tfmat.backends.local_steps import make_meetings
from tfmat.backends.offload import SlotOnDisk, optimizer_on_disk
from tfmat.backends.recomputation import recomputation_of
from tfmat.backends.step import (
    Batch,
    Stamps,
    State,
    assign_all,
    check_coupling,
    check_data_parallel,
    check_timing,
    compiled,
    each_batch,
    each_batch_in_parts,
    each_timed_batch,
    make_step,
    num_pieces,
    part_of_batch,
    row_spec,
    rows_to_try,
    tensors_of,
    what_couples,
)
from tfmat.backends.zero import DividedUpdate, Division, divide
from tfmat.errors import InputError
from tfmat.networks.factory import is_synchronized

# --------------------------------------------------------------------------------------------------
# One worker's copy of what training changes, and what the worker keeps for itself: as tensors, and in checkpoints.


# Before the names of what workers keep for themselves; other backends do not look at these.
_PREFIX = "exchange/"


class Replica:
    """The state in the model's own variables, and what is kept between exchanges in variables beside them.

    What differs between workers is in a checkpoint once for each, stacked [workers, ...]. The same number of workers
    take their own again; another number share it: each takes an equal part of the sum of what has not been sent yet,
    and the mean of the optimizer's slots.

    Args:
      model, optimizer: built.
      collectives: to the other workers.
      kept: between exchanges.
      own_slots: whether the workers' slots differ, as they do where each takes steps by itself.
      division: of the weights over the workers, where each holds the slots of its part alone. A checkpoint has them
        whole, as those of any other number of workers.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        collectives: Collectives,
        kept: Sequence[Kept] = (),
        own_slots: bool = False,
        division: Division | None = None,
    ):
        self.variables = State.variables_of(model, optimizer)
        self.kept = [tf.Variable(each.initial, trainable=False) for each in kept]
        self._kept, self._collectives = kept, collectives
        self._local_statistics = _local_statistics(model)
        functions_of_step = (optimizer.iterations, optimizer._learning_rate)
        self._own_slots = {
            f"slots/{i}": variable.value
            for i, variable in enumerate(optimizer.variables if own_slots else [])
            if not any(variable is each for each in functions_of_step)
        }
        self._division = division
        # Name of each slot that is divided -> the weight that it belongs to.
        self._divided = {
            f"slots/{i}": owner
            for i, owner in enumerate(division.owners(optimizer) if division else [])
            if owner is not None
        }

    def common(self) -> Arrays:
        """What must be the same on every worker; statistics that each keeps for itself are averaged first."""
        return {name: variable.numpy() for name, variable in self._common()}

    def _common(self) -> Iterator[tuple[str, Any]]:
        """The variables behind `common`, by name."""
        workers = self._collectives.size
        if workers > 1 and self._local_statistics:
            self._collectives.begin_graph("statistics")
            for variable in self._local_statistics:
                (total,) = self._collectives.reduce([tf.convert_to_tensor(variable)])
                variable.assign(total / workers)
        for name, variable in [*self.variables.named().items(), *self._named_kept(common=True)]:
            if name not in self._own_slots and name not in self._divided:
                yield name, variable

    def digest(self) -> str:
        """A hash of `common`, of which one array is in memory at a time."""
        digest = hashlib.blake2b(digest_size=16)
        for _, variable in self._common():
            on_disk = isinstance(variable, SlotOnDisk)
            for array in variable.blocks() if on_disk else [variable.numpy()]:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def read(self) -> Arrays:
        """See Backend.read; every worker calls it. Slots that are divided are whole on rank 0 alone."""
        return self._with_own(self.common())

    def read_for_file(self) -> dict[str, Any]:
        """See Backend.read_for_file: slots on disk come into memory one at a time."""
        found = {
            name: variable.saved() if isinstance(variable, SlotOnDisk) else variable.numpy()
            for name, variable in self._common()
        }
        return self._with_own(found)

    def _with_own(self, arrays: dict[str, Any]) -> dict[str, Any]:
        own = {_PREFIX + name: variable.numpy() for name, variable in self._own_slots.items()}
        own |= {name: variable.numpy() for name, variable in self._named_kept(common=False)}
        if own:
            workers = self._collectives.gather(own)
            arrays |= {name: np.stack([each[name] for each in workers]) for name in own}
            for name in self._own_slots:  # for a run that goes on otherwise
                arrays[name] = _mean(arrays[_PREFIX + name])
        return arrays | self._whole_slots()

    def _whole_slots(self) -> Arrays:
        """Divided slots: whole on rank 0, and elsewhere this rank's part, which takes less memory."""
        variables, arrays = self.variables.named(), {}
        self._collectives.begin_graph("slots")
        for name, weight in self._divided.items():
            assert self._division is not None
            part = tf.convert_to_tensor(variables[name])
            with self._collectives.losses_told():
                (rows,) = self._collectives.collect([part])  # one slot at a time
            alone = self._collectives.rank == 0
            arrays[name] = (self._division.whole(rows, weight) if alone else part).numpy()
        return arrays

    def _own_part(self, name: str, array: np.ndarray | SavedArray) -> np.ndarray | SavedArray:
        """This worker's part of a slot, which is whole or, as `read` has it on other ranks, that part already."""
        division, weight = self._division, self._divided[name]
        assert division is not None
        own, shape = tuple(self.variables.named()[name].shape), division.shapes[weight]
        if self._collectives.rank and array.shape == own:
            return array
        if array.shape != shape:
            raise InputError(
                f"the saved state does not fit this model: {name} belongs to a weight of shape {list(shape)}, saved "
                f"is shape {list(array.shape)}; use the config that the run was started with"
            )
        return SavedArray(
            own, array.dtype, lambda: np.asarray(division.part(np.asarray(array), weight))
        )

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write; what is kept begins anew where the arrays say nothing of it."""
        for each in self._kept:
            self._check_saved(each, arrays)
        parts = {n: self._own_part(n, arrays[n]) for n in self._divided if n in arrays}
        arrays, variables = {**arrays, **parts}, self.variables.named()
        self.variables.assign(arrays, lambda name, array: variables[name].assign(array))
        for variable, each in zip(self.kept, self._kept, strict=True):
            variable.assign(self._saved(each, arrays))
        for name, variable in self._own_slots.items():
            stacked = arrays.get(_PREFIX + name)
            if stacked is not None and stacked.shape[0] == self._collectives.size:
                variable.assign(np.asarray(stacked)[self._collectives.rank])

    def synchronize(self) -> None:
        """Rank 0's state on every rank, but for what each keeps for itself."""
        common = {**self.variables.named(), **dict(self._named_kept(common=True))}
        # Each has its own slots from a checkpoint, or all have the optimizer's first ones.
        own = {*self._own_slots, *self._divided}
        common = {name: variable for name, variable in common.items() if name not in own}
        self._collectives.broadcast_variables(common.values())

    def _named_kept(self, common: bool) -> list[tuple[str, Any]]:
        return [
            (_PREFIX + each.name, variable)
            for each, variable in zip(self._kept, self.kept, strict=True)
            if each.common == common
        ]

    def _check_saved(self, kept: Kept, arrays: SavedArrays) -> None:
        saved = arrays.get(_PREFIX + kept.name)
        if saved is None:
            return
        shape = saved.shape if kept.common else saved.shape[1:]
        if shape != kept.initial.shape:
            raise InputError(
                f"the saved state does not fit: {_PREFIX}{kept.name} is of shape {list(shape)}, expected is "
                f"{list(kept.initial.shape)}; use the config that the run was started with"
            )

    def _saved(self, kept: Kept, arrays: SavedArrays) -> np.ndarray:
        if _PREFIX + kept.name not in arrays:
            return kept.initial
        saved = np.asarray(arrays[_PREFIX + kept.name])
        if kept.common:
            return saved
        workers = self._collectives.size
        if len(saved) == workers:
            mine: np.ndarray = saved[self._collectives.rank]
            return mine
        total: np.ndarray = saved.sum(axis=0)
        return total / workers


def _mean(stacked: np.ndarray) -> np.ndarray:
    mean: np.ndarray = stacked.mean(axis=0, dtype=np.float64).astype(stacked.dtype)
    return mean


def _local_statistics(model: keras.Model) -> list[Any]:
    """State that each worker changes by what it alone sees: moving statistics, where not synchronised."""
    synchronized = {
        id(variable)
        for layer in model._flatten_layers()
        if is_synchronized(layer)
        for variable in layer.non_trainable_variables
    }
    return [
        variable.value
        for variable in model.non_trainable_variables
        if id(variable) not in synchronized and variable.value.dtype.is_floating
    ]


# --------------------------------------------------------------------------------------------------
# Data parallel training: each worker holds the whole state and computes its part of the global batch.
#
# Many steps run in one call of a graph, the data gathered by index inside it. A worker takes its columns of each
# global
# batch and sums over the others where the step says `reduce`; alone, that is the identity. The loss is divided by the
# global batch, so unequal parts are right without further ado.


class SingleBackend(Backend):
    """The state lives in the model's own variables."""

    name = "single"
    # Whether examples of a batch change each other's results, once that was tried.
    _coupled: bool | None = None

    def time_steps(self, one_call_in: int = 1) -> None:
        """See Backend.time_steps."""
        check_timing(self.options)
        self.timed_calls = one_call_in
        self.collectives.compare_clocks()

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
        bfloat16: Sequence[keras.layers.Layer] = (),
    ) -> None:
        """See Backend.build."""
        self.collectives.check_build(jit_compile)
        if jit_compile and self.timed_calls:
            raise InputError("profile=true does not work with jit_compile; leave out one of them")
        options = self.options
        check_data_parallel(model, optimizer, options, self.name, jit_compile)
        on_disk = optimizer_on_disk(optimizer, model.trainable_variables, options)
        stage = options.zero_stage
        division = None if on_disk else divide(model, optimizer, stage, self.collectives)
        exchange = make_exchange(
            options.compression,
            [variable.value for variable in model.trainable_variables],
            self.world_size,
            rank=options.compression_rank,
            fraction=options.compression_fraction,
        )
        self._exchange = exchange = DividedUpdate(division, exchange) if division else exchange
        self._meetings = make_meetings(model, options, self.world_size, exchange)
        self.meets_every = options.local_steps if self._meetings else 1
        self._step = make_step(
            model,
            on_disk or optimizer,
            loss,
            metrics,
            auxiliary_loss,
            worker=self.rank,
            exchange=None if self._meetings else exchange,
            bfloat16=bfloat16,
            recomputation=recomputation_of(model, options.recompute),
        )
        kept = (self._meetings or exchange).kept
        apart = self.world_size > 1 and options.trains_apart
        self._replica = Replica(
            model, optimizer, self.collectives, kept, own_slots=apart, division=division
        )
        self._variables = self._replica.variables
        if on_disk:
            self._variables = self._variables._replace(slots=on_disk.rest(self._variables.slots))
            self.note = on_disk.note
        if not self._meetings:
            self._variables = self._variables._replace(kept=self._replica.kept)
        self._compute: Any = self._step.compute
        if jit_compile:
            self._compute = tf.function(self._compute, jit_compile=True, autograph=False)
        self._functions: dict[Any, Any] = {}
        self._num_calls = 0
        self._model, self._coupled = model, None

    def place(self, data: Any) -> Any:
        """See Backend.place."""
        tensors = self.host_tensors(data)
        if tf.config.list_logical_devices("GPU"):
            with tf.device("GPU:0"):
                return tf.nest.map_structure(tf.identity, tensors)
        return tensors

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.train."""
        self._try_coupling(data, indices)
        missing = -indices.shape[1] % self.options.accumulate
        if missing:  # the parts of a batch have one width
            indices, weights = (np.pad(a, ((0, 0), (0, missing))) for a in (indices, weights))
        self.step_times = None
        if not self._is_timed_call():
            return self._run(self._train_steps, data, indices, weights, num_examples)
        sums, moments = self._run(self._train_timed_steps, data, indices, weights, num_examples)
        self.step_times = StepTimes(moments, self._exchange.num_updating)
        return sums

    def settle(self) -> None:
        """See Backend.settle."""
        if self.options.overlap_meetings and self._meetings:
            if "settle" not in self._functions:
                self._functions["settle"] = tf.function(self._settle, autograph=False)
            with self.collectives.losses_told():
                self._functions["settle"]()

    def _settle(self) -> None:
        assert self._meetings
        self.collectives.begin_graph("settle")
        kept, own = self._replica.kept, self.collectives
        self._meetings.settle(kept, own.reduce, own.collect)

    def _is_timed_call(self) -> bool:
        """The same on every rank, since all make the same calls."""
        number, every = self._num_calls, self.timed_calls
        self._num_calls += 1
        return every > 0 and (number < every or number % every == every - 1)

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.evaluate."""
        self._try_coupling(data, indices)
        return self._run(self._evaluate_steps, data, indices, weights, num_examples)

    def predict(self, features: Any) -> Any:
        """See Backend.predict."""
        if "predict" not in self._functions:
            self._functions["predict"] = tf.function(
                lambda features: self._step.predict(self._read(), features),
                reduce_retracing=True,
                autograph=False,
            )
        outputs = self._functions["predict"](features)
        return tf.nest.map_structure(lambda output: output.numpy(), outputs)

    def columns(self, global_batch_size: int) -> slice:
        """See Backend.columns."""
        return part_of_batch(global_batch_size, self.replica, self.world_size)

    def synchronize(self) -> None:
        """See Backend.synchronize."""
        self._replica.synchronize()

    def check_replicas(self, step: int) -> None:
        """See Backend.check_replicas."""
        if self.world_size == 1:
            return
        self.collectives.announce("comparing weights", step)
        digests = self.collectives.gather(self._replica.digest())
        differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
        self._report_differing("rank", differing, step)

    def read(self) -> Arrays:
        """See Backend.read."""
        return self._replica.read()

    def read_for_file(self) -> SavedArrays:
        """See Backend.read_for_file."""
        in_memory = self.options.offload == "none"
        return self.read() if in_memory else self._replica.read_for_file()

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write."""
        self._replica.write(arrays)
        self._note_common_state(arrays)

    def sync_model(self) -> None:
        """Nothing to do: the state lives in the model's own variables."""

    def _try_coupling(self, data: Any, indices: np.ndarray) -> None:
        """Once: finds out whether examples of a batch change each other's results, with the first of `data`.

        Raises:
          InputError: they do, and this worker does not get whole batches in one piece.
        """
        if self._coupled is not None:
            return
        rows = rows_to_try(self._model, indices)
        features, labels, *_ = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), data)
        weights, non_trainable = (tensors_of(part) for part in self._variables[:2])
        state = State(weights, non_trainable, [])
        what = what_couples(self._step, state, features, labels)
        if self.world_size > 1:
            check_coupling(what, f"each of {self.world_size} workers sees its own part alone")
        if self.options.accumulate > 1:
            check_coupling(what, f"accumulate={self.options.accumulate} takes the batch in parts")
        self._coupled = what is not None

    def _run(
        self,
        steps: Any,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> Any:
        """Runs `steps`; without the padding of partial batches where it would change the results."""
        if not self._coupled:
            return self._run_batches(steps, data, indices, weights, num_examples)
        counts = num_examples.astype(int)
        cuts = [0, *(np.flatnonzero(np.diff(counts)) + 1), len(counts)]
        results = [
            self._run_batches(
                steps,
                data,
                indices[start:stop, : counts[start]],
                weights[start:stop, : counts[start]],
                num_examples[start:stop],
            )
            for start, stop in itertools.pairwise(cuts)
        ]
        return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *results)

    def _run_batches(
        self,
        steps: Any,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> Any:
        """Runs `steps`, compiled once for each kind of rows and width of batch, whatever the number of steps."""
        width = indices.shape[1]
        key = (steps.__name__, width, str(tf.nest.map_structure(row_spec, data)))
        if key not in self._functions:
            self._functions[key] = compiled(steps, data, [None, width])
        with self.collectives.losses_told():
            results = self._functions[key](data, indices, weights, num_examples)
            return tf.nest.map_structure(lambda result: result.numpy(), results)

    def _train_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tf.Tensor:
        counted = Counted.over(self.collectives)
        reduce = in_buckets(counted.reduce, self.options.bucket_bytes)
        collect: Collect = counted.collect
        rounds = None
        self.collectives.begin_graph("train")
        if self._meetings:
            reduce, collect = list, list
            # Each worker's loss is a mean over its own examples.
            num_examples = tf.maximum(tf.reduce_sum(weights, 1), 1.0)
            rounds = self._meetings.begin(self._replica.kept, counted.reduce, counted.collect)

        def step(pieces: list[Batch]) -> tf.Tensor:
            state = self._read()
            return self._assign(*self._compute(state, pieces, reduce, collect, counted.scatter))

        def step_in_parts(part: Callable[[tf.Tensor], Batch]) -> tf.Tensor:
            compute, state = self._step.compute_in_parts, self._read()
            return self._assign(*compute(state, part, num_parts, reduce, collect, counted.scatter))

        num_parts = self.options.accumulate
        batches = data, indices, weights, num_examples
        if num_parts > 1:
            sums = each_batch_in_parts(step_in_parts, num_parts, *batches, rounds=rounds)
        else:
            sums = each_batch(step, self._num_pieces, *batches, rounds=rounds)
        if self._meetings:
            self._meetings.end()
        self.bytes_per_step = counted.bytes / self.meets_every
        return self.collectives.reduce([sums])[0] if self._meetings else sums

    def _train_timed_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> Any:
        def step(pieces: list[Batch], stamps: Stamps) -> tf.Tensor:
            reduce, collect = stamps.around(counted.reduce), stamps.around(counted.collect)
            scatter = stamps.around(counted.scatter)
            state, sums = self._compute(self._read(), pieces, reduce, collect, scatter)
            return self._assign(state, sums, stamps)

        counted = Counted.over(self.collectives)
        self.collectives.begin_graph("train")
        several = self.world_size > 1
        timed = each_timed_batch(
            step, self._num_pieces, several, data, indices, weights, num_examples
        )
        self.bytes_per_step = counted.bytes
        return timed

    def _assign(self, state: State, sums: tf.Tensor, stamps: Stamps | None = None) -> tf.Tensor:
        assigned = [
            operation
            for variables, values in zip(self._variables, state, strict=True)
            for operation in assign_all(variables, values)
        ]
        if stamps:
            stamps.note(assigned)
        return sums

    def _evaluate_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tf.Tensor:
        def step(pieces: list[Batch]) -> tf.Tensor:
            return self._step.evaluate(self._read(), pieces, lambda tensors: tensors)

        self.collectives.begin_graph("evaluate")
        sums = each_batch(step, self._num_pieces, data, indices, weights, num_examples)
        # One collective a call, not one a batch: nothing here waits for the other workers' sums.
        return self.collectives.reduce([sums])[0]

    def _num_pieces(self, width: int) -> int:
        """State such as moving statistics must go through in one piece, and so must coupled examples."""
        return 1 if self._variables.non_trainable or self._coupled else num_pieces(width)

    def _read(self) -> State:
        return State(*(tensors_of(part) for part in self._variables))
