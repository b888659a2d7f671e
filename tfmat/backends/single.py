"""Data parallel training: each worker holds the whole state and computes its part of the global batch.

Many steps run in one call of a graph, the data gathered by index inside it. A worker takes its columns of each global
batch and sums over the others where the step's exchange says so; alone, that is the identity. The loss is divided by
the global batch, so unequal parts are right without further ado."""

import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import (
    Arrays,
    Backend,
    Collectives,
    SavedArrays,
    StepTimes,
)
from tfmat.backends.exchange import Kept
from tfmat.backends.registry import add_extras, check_further, make_exchange
from tfmat.backends.step import (
    Batch,
    Block,
    Stamps,
    State,
    Step,
    assign_all,
    check_coupling,
    check_precision,
    check_whole_batch,
    compiled,
    examples_to_try,
    make_step,
    num_pieces,
    part_of_batch,
    row_spec,
    tensors_of,
    what_couples,
)
from tfmat.errors import InputError
from tfmat.networks.factory import is_synchronized

# --------------------------------------------------------------------------------------------------
# Steps on one worker's part of each batch.


# Before the names of what workers keep for themselves; other backends do not look at these.
_PREFIX = "exchange/"


class SingleBackend(Backend):
    """The state lives in the model's own variables."""

    # Whether examples of a batch change each other's results, once that was tried.
    _coupled: bool | None = None

    def time_steps(self, one_call_in: int = 1) -> None:
        check_further(self, {"profile": True})
        if tf.config.list_logical_devices("GPU"):
            raise InputError(
                "profile=true does not work on GPUs, which say when work was given to them, not when it was done; "
                "leave it out and use trace_steps"
            )
        self.timed_calls = one_call_in
        self.collectives.compare_clocks()

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *arguments: Any,
        jit_compile: bool = False,
        **options: Any,
    ) -> None:
        self.collectives.check_build(jit_compile)
        further = {"jit_compile": jit_compile, "profile": self.timed_calls > 0}
        check_further(self, further, optimizer)
        check_precision(model, optimizer)
        self._model, self._coupled = model, None
        self._functions: dict[Any, Any] = {}
        self._num_calls = 0
        self._step = step = self._make_step(model, optimizer, *arguments, **options)
        self._add_extras(step)
        if not optimizer.built:
            optimizer.build(step.model.trainable_variables)
        self.meets_every, self.note = step.exchange.every, step.note
        self._hold(step)
        self._compute: Any = step.compute
        if jit_compile:
            self._compute = tf.function(self._compute, jit_compile=True, autograph=False)

    def _make_step(self, model: keras.Model, *arguments: Any, **options: Any) -> Step:
        """The step of a model and what it learns by, before extras change it; InputError where there can be none."""
        check_whole_batch(model, "accumulate", self.options.accumulate)
        bucket_mb = self.options.bucket_mb
        self.collectives.most_bytes = None if bucket_mb is None else 1e6 * bucket_mb
        exchange = make_exchange(self.collectives, model.trainable_variables, self.options)
        return make_step(model, *arguments, worker=self.rank, exchange=exchange, **options)

    def _add_extras(self, step: Step) -> None:
        """Has the extras that the settings ask for change the step."""
        add_extras(step, self)

    def place(self, data: Any) -> Any:
        tensors = self.host_tensors(data)
        if tf.config.list_logical_devices("GPU"):
            with tf.device("GPU:0"):
                return tf.nest.map_structure(tf.identity, tensors)
        return tensors

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        self._try_coupling(data, indices)
        missing = -indices.shape[1] % self.options.accumulate
        if missing:  # the parts of a batch have one width
            indices, weights = (np.pad(a, ((0, 0), (0, missing))) for a in (indices, weights))
        self.step_times = None
        if not self._is_timed_call():
            return self._run(self._train_steps, data, indices, weights, num_examples)
        sums, moments = self._run(self._train_timed_steps, data, indices, weights, num_examples)
        self.step_times = StepTimes(moments, self._step.exchange.num_updating)
        return sums

    def settle(self) -> None:
        if self._step.exchange.settles:
            if "settle" not in self._functions:
                self._functions["settle"] = tf.function(self._settle, autograph=False)
            with self.collectives.losses_told():
                self._functions["settle"]()

    def _settle(self) -> None:
        self.collectives.begin_graph("settle")
        self._step.exchange.settle(self._kept_variables)

    def _is_timed_call(self) -> bool:
        """The same on every rank, since all make the same calls."""
        number, every = self._num_calls, self.timed_calls
        self._num_calls += 1
        return every > 0 and (number < every or number % every == every - 1)

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        self._try_coupling(data, indices)
        return self._run(self._evaluate_steps, data, indices, weights, num_examples)

    def columns(self, global_batch_size: int) -> slice:
        return part_of_batch(global_batch_size, self.replica, self.world_size)

    def check_replicas(self, step: int) -> None:
        if self.world_size == 1:
            return
        self.collectives.announce("comparing weights", step)
        mine = self._digests()
        # Hashes of all variables only where something differs.
        whole = hashlib.blake2b("".join(mine.values()).encode(), digest_size=16).hexdigest()
        wholes = self.collectives.gather(whole)
        differing = {
            rank: group[0]
            for group in self._groups()
            for rank in group
            if wholes[rank] != wholes[group[0]]
        }
        every = self.collectives.gather(mine) if differing else []
        self._report_differing(
            "rank",
            {
                rank: [name for name in every[first] if every[rank].get(name) != every[first][name]]
                for rank, first in sorted(differing.items())
            },
            step,
        )

    def _groups(self) -> Sequence[Sequence[int]]:
        """Groups of ranks that hold the same state."""
        return [range(self.world_size)]

    def sync_model(self) -> None:
        """Nothing to do: the state lives in the model's own variables."""

    # The state in the model's own variables, and what is kept between exchanges in variables beside them.
    #
    # A checkpoint holds values that differ between workers once for each, stacked [workers, ...]. The same number of
    # workers take their own again. Another number share them: each takes an equal part of the sum of what has not been
    # sent yet, and the mean of the optimizer's slots. Slots that are divided over workers are whole in it, for any
    # number of workers.

    @property
    def _alike(self) -> Collectives:
        """To the workers that hold the same state."""
        return self.collectives

    def _hold(self, step: Step) -> None:
        """Takes the variables behind a built step, and makes those that are kept."""
        model, optimizer, exchange = step.model, step.optimizer, step.exchange
        self._held = State.variables_of(model, optimizer)
        self._paths = State.paths_of(model, optimizer)
        self._kept = [(each, tf.Variable(each.initial, trainable=False)) for each in exchange.kept]
        self._local_statistics = _local_statistics(model)
        functions_of_step = (optimizer.iterations, optimizer._learning_rate)
        self._own_slots = {
            f"slots/{i}": variable.value
            for i, variable in enumerate(optimizer.variables if step.slots_differ else [])
            if not any(variable is each for each in functions_of_step)
        }
        self._division = step.division
        self._divided = step.division.divided if step.division else {}
        in_memory = step.slots_in_memory or list
        self._variables = self._held._replace(slots=in_memory(self._held.slots))
        if exchange.every == 1:
            self._variables = self._variables._replace(kept=self._kept_variables)

    @property
    def _kept_variables(self) -> list[Any]:
        return [variable for _, variable in self._kept]

    def _common(self) -> Iterator[tuple[str, Any]]:
        """Variables, by name, that must be the same on every worker; its own statistics are averaged first."""
        workers = self._alike.size
        if workers > 1 and self._local_statistics:
            self._alike.begin_graph("statistics")
            for variable in self._local_statistics:
                (total,) = self._alike.sum([tf.convert_to_tensor(variable)])
                variable.assign(total / workers)
        for name, variable in [*self._held.named().items(), *self._named_kept(common=True)]:
            if name not in self._own_slots and name not in self._divided:
                yield name, variable

    def _digests(self) -> dict[str, str]:
        """Hashes of these by name, as people know it; one array is in memory at a time."""
        found = {}
        for name, variable in self._common():
            digest = hashlib.blake2b(digest_size=16)
            for array in variable.blocks() if hasattr(variable, "blocks") else [variable.numpy()]:
                digest.update(np.ascontiguousarray(array).data)
            found[self._paths.get(name, name)] = digest.hexdigest()
        return found

    def read(self) -> Arrays:
        return self._with_own({name: variable.numpy() for name, variable in self._common()})

    def read_for_file(self) -> SavedArrays:
        """See Backend.read_for_file: slots on disk come into memory one at a time."""
        found = {
            name: variable.saved() if hasattr(variable, "saved") else variable.numpy()
            for name, variable in self._common()
        }
        return self._with_own(found)

    def _with_own(self, arrays: Arrays) -> Arrays:
        own = {_PREFIX + name: variable.numpy() for name, variable in self._own_slots.items()}
        own |= {name: variable.numpy() for name, variable in self._named_kept(common=False)}
        if own:
            workers = self._alike.gather(own)
            arrays |= {name: np.stack([each[name] for each in workers]) for name in own}
            for name in self._own_slots:  # for a run that goes on otherwise
                several = arrays[_PREFIX + name]
                arrays[name] = several.mean(axis=0, dtype=np.float64).astype(several.dtype)
        return arrays | self._whole_slots()

    def _whole_slots(self) -> Arrays:
        """Divided slots: whole on rank 0, and elsewhere this rank's part, which takes less memory."""
        variables, arrays = self._held.named(), {}
        self._alike.begin_graph("slots")
        for name in self._divided:
            assert self._division
            part = tf.convert_to_tensor(variables[name])
            with self._alike.losses_told():
                (rows,) = self._alike.collect([part])  # one slot at a time
            alone = self._alike.rank == 0
            arrays[name] = self._division.saved(name, rows) if alone else part.numpy()
        return arrays

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write; what is kept begins anew where the arrays say nothing of it."""
        for each, _ in self._kept:
            self._check_saved(each, arrays)
        own = {
            n: self._division.own(n, arrays[n])
            for n in self._divided
            if self._division and n in arrays
        }
        arrays, variables = {**arrays, **own}, self._held.named()
        self._held.assign(arrays, lambda name, array: variables[name].assign(array))
        for each, variable in self._kept:
            variable.assign(self._saved(each, arrays))
        for name, variable in self._own_slots.items():
            stacked = arrays.get(_PREFIX + name)
            if stacked is not None and stacked.shape[0] == self._alike.size:
                variable.assign(np.asarray(stacked)[self._alike.rank])
        self._note_common_state({"slots/0": self._variables.slots[0].numpy()})

    def synchronize(self) -> None:
        """See Backend.synchronize; what each keeps for itself stays."""
        common = {**self._held.named(), **dict(self._named_kept(common=True))}
        # Each has its own slots from a checkpoint, or all have the optimizer's first ones.
        own = {*self._own_slots, *self._divided}
        common = {name: variable for name, variable in common.items() if name not in own}
        self._alike.broadcast_variables(common.values())

    def _named_kept(self, common: bool) -> list[tuple[str, Any]]:
        return [
            (_PREFIX + each.name, variable)
            for each, variable in self._kept
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
        workers = self._alike.size
        if len(saved) == workers:
            mine: np.ndarray = saved[self._alike.rank]
            return mine
        total: np.ndarray = saved.sum(axis=0)
        return total / workers

    def _try_coupling(self, data: Any, indices: np.ndarray) -> None:
        """Once: finds out whether examples of a batch change each other's results, with the first of `data`.

        Raises:
          InputError: they do, and this worker does not get whole batches in one piece.
        """
        if self._coupled is not None:
            return
        examples = examples_to_try(self._model, data, indices)
        what = what_couples(self._step, self._variables, *examples)
        if self.world_size > 1:
            check_coupling(what, f"each of {self.world_size} workers sees its own part alone")
        if self.options.accumulate > 1:
            check_coupling(what, f"accumulate={self.options.accumulate} takes the batch in parts")
        self._coupled = what is not None

    def _run(self, steps: Any, data: Any, *block: np.ndarray) -> Any:
        """Runs `steps`; without the padding of partial batches where it would change the results."""
        if not self._coupled:
            return self._run_batches(steps, data, *block)
        indices, weights, num_examples = block
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

    def _run_batches(self, steps: Any, data: Any, *block: np.ndarray) -> Any:
        """Runs `steps`, compiled once for each kind of rows and width of batch, whatever the number of steps."""
        width = block[0].shape[1]
        key = (steps.__name__, width, str(tf.nest.map_structure(row_spec, data)))
        if key not in self._functions:
            self._functions[key] = compiled(steps, data, [None, width])
        with self.collectives.losses_told():
            results = self._functions[key](Block(data, *block))
            return tf.nest.map_structure(lambda result: result.numpy(), results)

    def _train_steps(self, block: Block) -> tf.Tensor:
        exchange, kept = self._step.exchange, self._kept_variables
        self.collectives.begin_graph("train")
        counts = exchange.num_examples(block.weights, block.num_examples)
        block = block._replace(num_examples=counts)
        exchange.begin(kept)
        apart = self._step.slots_differ  # each takes the steps of a round by itself
        run = (exchange.every, functools.partial(exchange.round, kept)) if apart else None
        num_parts = self.options.accumulate
        compute = self._step.compute if num_parts > 1 else self._compute

        def step(i: tf.Tensor) -> tf.Tensor:
            batch = block.parts(i, num_parts) if num_parts > 1 else self._pieces(block, i)
            return self._assign(*compute(self._read(), batch))

        sums = block.each(step, rounds=run)
        exchange.end()
        self.bytes_per_step = self.collectives.bytes / self.meets_every
        return sums if run is None else self.collectives.sum([sums])[0]

    def _train_timed_steps(self, block: Block) -> Any:
        """Also gives float64 [steps, moments], see `StepTimes`."""

        def step(i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            stamps = Stamps(several=self.world_size > 1)
            i = stamps.after(i)
            pieces = stamps.after(self._pieces(block, i))
            self.collectives.begin_graph("train", stamps.around)
            state, sums = self._compute(self._read(), pieces)
            return self._assign(state, sums, stamps), stamps.stack()

        timed = block.each(step, (keras.backend.floatx(), "float64"))
        self.bytes_per_step = self.collectives.bytes
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

    def _evaluate_steps(self, block: Block) -> tf.Tensor:
        self.collectives.begin_graph("evaluate")
        sums = block.each(lambda i: self._step.evaluate(self._read(), self._pieces(block, i)))
        # One collective a call, not one a batch: nothing here waits for the other workers' sums.
        return self.collectives.sum([sums])[0]

    def _pieces(self, block: Block, i: Any) -> list[Batch]:
        return block.pieces(i, self._num_pieces(block.indices.shape[1]))

    def _num_pieces(self, width: int) -> int:
        """State such as moving statistics must go through in one piece, and so must coupled examples."""
        return 1 if self._variables.non_trainable or self._coupled else num_pieces(width)

    def _read(self) -> State:
        return State(*(tensors_of(part) for part in self._variables))


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
