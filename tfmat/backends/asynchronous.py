"""Asynchronous training: no worker waits for a slower one, except at the end of a call of `train`.

Every rank is a worker, and the first ones also serve a shard of the weights each. A worker takes the next batch that
nobody has taken, fetches the weights, and sends the gradient of the whole batch, which moves the weights at once. With
`quorum` each worker takes its part of every step's batch, and the first gradients make the step. At the end of a call
all ranks fetch weights and slots, so that validation, checkpoints and the replica check find what they find after
synchronous steps.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Metric, PerExample
from tfmat.backends.batches import Batch, compiled, row_spec
from tfmat.backends.checks import check_options_of_asynchronous
from tfmat.backends.local_steps import check_whole_batch
from tfmat.backends.options import BackendOptions
from tfmat.backends.parameter_server import Figures, RemoteShard, Served, Shard, connect_all
from tfmat.backends.replica import assign_all
from tfmat.backends.shards import divide, owners_of_slots
from tfmat.backends.single import SingleBackend
from tfmat.backends.star_collectives import StarCollectives
from tfmat.backends.sums import flatten, unflatten
from tfmat.errors import InputError


class AsynchronousBackend(SingleBackend):
    """The single backend on each of a launcher's processes, with the optimizer's steps made by servers."""

    name = "asynchronous"
    collectives: StarCollectives
    # What `_figures_of_call` returns; from other ranks it comes as a plain tuple.
    _kind_of_figures: type[tuple[Any, ...]] = Figures

    def __init__(self, options: BackendOptions | None = None):
        options = options or BackendOptions()
        check_options_of_asynchronous(options)
        super().__init__(options, StarCollectives(options.processes, options.folder))

    def time_steps(self, one_call_in: int = 1) -> None:
        """See Backend.time_steps."""
        raise InputError("profile=true does not work with --backend=asynchronous; leave it out")

    def start(self) -> None:
        """See Backend.start: connects every rank with every other one, too."""
        super().start()
        if self.world_size > 1:
            with self.collectives.losses_told():
                self._asking, asked = connect_all(self.collectives.star)
                self._served = Served(asked)

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        *,
        jit_compile: bool = False,
        **options: Any,
    ) -> None:
        """See Backend.build."""
        if jit_compile:
            raise InputError("jit_compile does not work with --backend=asynchronous; leave it out")
        check_optimizer_of_shards(optimizer, whole=self.options.averaging)
        if self.world_size > 1:
            check_whole_batch(model, "--backend=asynchronous")
        super().build(model, optimizer, loss, metrics, **options)
        self._figures: list[Any] = []
        if self.world_size > 1:
            self._dtype = type_of_weights(model)
            self._make_shards(model, optimizer)
            self.collectives.barrier()  # nobody asks before all serve

    def _make_shards(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        weights = model.trainable_variables
        self._parts = divide([int(np.prod(w.shape)) for w in weights], self.world_size)
        owners = owners_of_slots(optimizer, len(weights))
        slots = self._variables.slots
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
            specs = [
                (tuple(slots[i].shape), slots[i].dtype.as_numpy_dtype) for i in self._slots_of[rank]
            ]
            count = sum(int(np.prod(weights[i].shape)) for i in part)
            self._shards.append(RemoteShard(self._asking[rank], self._dtype, count, specs))
        if self._own:
            self._served.shard = self._own

    @property
    def hands_out_batches(self) -> bool:
        """See Backend.hands_out_batches."""
        return self.world_size > 1 and not self.options.quorum

    def training_columns(self, global_batch_size: int) -> slice:
        """See Backend.training_columns."""
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
        """See Backend.train."""
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
            *flats, found = gradients(
                data,
                indices[step],
                weights[step],
                num_examples[step],
                [flat for _, flat in fetched],
            )
            examples = float(weights[step].sum())
            for shard, (version, _), flat in zip(self._shards, fetched, flats, strict=True):
                version = step if self.options.quorum else version
                shard.push(version, examples, float(num_examples[step]), flat.numpy())
            sums[step], seen[step] = found.numpy(), examples

    def _gradients_function(self, data: Any, width: int) -> Any:
        key = "gradients", width, str(tf.nest.map_structure(row_spec, data))
        if key not in self._functions:
            flats = [tf.TensorSpec([None], self._dtype) for _ in self._parts]
            self._functions[key] = compiled(self._gradients, data, [width], flats)
        return self._functions[key]

    def _gradients(
        self, data: Any, rows: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor, flats: Any
    ) -> list[tf.Tensor]:
        """The flat gradient of each shard, and the sums."""
        values: list[Any] = list(self._variables.weights)
        for part, flat in zip(self._parts, flats, strict=True):
            shapes = [tuple(values[i].shape) for i in part]
            for i, value in zip(part, unflatten(flat, shapes), strict=True):
                values[i] = value
        width = rows.shape[0]
        count = self._num_pieces(width)
        cuts = [(width * i // count, width * (i + 1) // count) for i in range(count)]
        pieces = [
            Batch.gather(data, rows[start:stop], weights[start:stop], num_examples)
            for start, stop in cuts
        ]
        state = self._read()._replace(weights=values)
        gradients, sums, non_trainable = self._step.gradients(state, pieces, list)
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


def type_of_weights(model: keras.Model) -> Any:
    """NumPy's type of all the model's weights; InputError where there are several."""
    types = {weight.value.dtype for weight in model.trainable_variables}
    if len(types) > 1:
        raise InputError("--backend=asynchronous takes weights of one type; this model has several")
    return types.pop().as_numpy_dtype


def check_optimizer_of_shards(optimizer: keras.optimizers.Optimizer, whole: bool = False) -> None:
    """InputError where a weight's step depends on others, which another server has unless all are in one `whole`."""
    if optimizer.global_clipnorm and not whole:
        raise InputError(
            "optimizer.clip_norm needs the whole gradient, and --backend=asynchronous divides it over servers; leave "
            "it out, or use another backend"
        )
    for name in ("gradient_noise", "sam_rho"):
        if getattr(optimizer, name, None):
            raise InputError(
                f"optimizer.{name} does not work with --backend=asynchronous; leave it out"
            )
