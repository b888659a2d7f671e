"""Pipeline stages: each process holds one part of the network, and micro-batches go from one to the next and back.

Several processes may hold the same part; they share each batch and sum their gradients.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Arrays, Metric, PerExample
from tfmat.backends.batches import Batch, each_batch, each_batch_in_parts
from tfmat.backends.collectives import Collectives
from tfmat.backends.coupling import check_coupling, rows_to_try, what_couples
from tfmat.backends.exchange import Counted
from tfmat.backends.offload import optimizer_on_disk
from tfmat.backends.options import BackendOptions
from tfmat.backends.pipeline_step import StageStep
from tfmat.backends.recomputation import Recomputation, recomputation_of_stage
from tfmat.backends.refusals import check_parts, check_precision
from tfmat.backends.replica import Replica, tensors_of
from tfmat.backends.saved_arrays import SavedArrays
from tfmat.backends.schedule import Place, bubble, micro_batches_of, order_of_work
from tfmat.backends.single import SingleBackend
from tfmat.backends.stage_state import StageState
from tfmat.backends.stages import Stages, make_stages, slot_places
from tfmat.backends.state import State
from tfmat.backends.step import Step
from tfmat.errors import InputError
from tfmat.models.segments import Segment


class PipelineBackend(SingleBackend):
    """The single backend's loop, with a stage of the network in each process.

    Args:
      name: of the backend whose processes are used.
      options: with a mesh that has the axis `stage`.
      collectives: of the processes.

    Attributes:
      place: this process among stages and replicas.
      stages: of the network, after `build`.
    """

    stages: Stages
    _state: StageState

    def __init__(self, name: str, options: BackendOptions, collectives: Collectives):
        super().__init__(options, collectives)
        self.name = name
        mesh = options.mesh
        self.place_in_mesh = Place.of(mesh, options.processes.rank)
        places = [Place.of(mesh, rank) for rank in range(mesh.num_devices)]
        self._chains = sorted({place.chain for place in places})
        self._peers = sorted({place.peers for place in places})
        self._micro_batches = micro_batches_of(options)
        self._started = False
        self._waited = self._trained = 0.0

    @property
    def world_size(self) -> int:
        """See Backend.world_size: the stages of a replica are one worker together."""
        return self.place_in_mesh.num_replicas

    @property
    def parts_of_a_batch(self) -> int:
        """See Backend.parts_of_a_batch."""
        return self._micro_batches

    @property
    def replica(self) -> int:
        """See Backend.replica."""
        return self.place_in_mesh.replica

    def start(self) -> None:
        """See Backend.start."""
        super().start()
        if not self._started:
            self._started = True
            self._chain = self.collectives.divide(self._chains)
            self._same = self.collectives.divide(self._peers)
            self.collectives.connect()

    def time_steps(self, one_call_in: int = 1) -> None:
        """See Backend.time_steps."""
        raise InputError("profile=true does not work with pipeline stages; leave out one of them")

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
        """See Backend.build; InputError also where the model cannot be cut."""
        self.collectives.check_build(jit_compile)
        check_precision(model, optimizer)
        check_parts(model, self._micro_batches, "micro_batches")
        if optimizer.gradient_noise:
            raise InputError(
                "optimizer.gradient_noise does not work with pipeline stages, each of which would draw for itself; "
                "leave it out"
            )
        if optimizer.sam_rho:
            raise InputError("optimizer.sam_rho does not work with pipeline stages; leave it out")
        here = self.place_in_mesh
        self.stages = make_stages(model, here.num_stages, self.options.stages)
        segment = self.stages.segments[here.stage]
        slots = slot_places(optimizer, model.trainable_variables, segment.trainable_places)
        before = getattr(self, "_state", None)
        self._state = StageState(model, segment, slots, self.collectives, before)
        on_disk = optimizer_on_disk(optimizer, segment.trainable_variables, self.options)
        if on_disk:
            self.note = on_disk.note
        else:
            optimizer.build(segment.trainable_variables)
        self._optimizer, self._segment = on_disk or optimizer, segment
        if optimizer.global_clipnorm:
            optimizer.sum_over_weights = lambda number: self._chain.reduce([number])[0]
        own = {id(layer) for layer in segment._flatten_layers()}
        self._step = Step(
            segment,
            self._optimizer,
            loss,
            metrics,
            auxiliary_loss,
            worker=here.replica,
            bfloat16=[layer for layer in bfloat16 if id(layer) in own],
            recomputation=self._recomputation(model, segment),
        )
        specs = (None, *self.stages.between, None)
        self._stage_step = StageStep(
            self._step, here, self.collectives.messages, (specs[here.stage], specs[here.stage + 1])
        )
        self._replica = self._state.replica = Replica(segment, optimizer, self._same)
        self._variables = self._replica.variables
        if on_disk:
            self._variables = self._variables._replace(slots=on_disk.rest(self._variables.slots))
        self._functions: dict[Any, Any] = {}
        self._model, self._coupled = model, None

    def _recomputation(self, model: keras.Model, segment: Segment) -> Recomputation | None:
        here = self.place_in_mesh
        is_last = here.stage + 1 == here.num_stages
        return recomputation_of_stage(
            segment,
            model,
            self.options.recompute,
            gradients_follow=is_last and self.options.schedule == "1f1b",
        )

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.train."""
        if self._state.is_whole:
            self._state.forget_others()
        self._try_coupling(data, indices)
        missing = -indices.shape[1] % self._micro_batches
        indices, weights = (np.pad(a, ((0, 0), (0, missing))) for a in (indices, weights))
        compiles, started = len(self._functions), time.monotonic()
        sums, waited = self._run(self._train_steps, data, indices, weights, num_examples)
        if len(self._functions) == compiles:
            self._waited += float(waited.sum())
            self._trained += time.monotonic() - started
        return sums

    def _try_coupling(self, data: Any, indices: np.ndarray) -> None:
        """Once; stages behind the first try numbers drawn at random, as what goes between stages may be anything."""
        if self._coupled is not None:
            return
        rows = rows_to_try(self._model, indices)
        features, labels, *_ = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), data)
        here, between = self.place_in_mesh.stage, (None, *self.stages.between)
        spec = between[here]
        if spec:
            random = np.random.default_rng(0).normal(size=[len(rows), *spec.shape])
            features = tf.cast(random, spec.dtype)
        if here + 1 < len(between):
            step = Step(self._segment, self._optimizer, _no_loss, {})
        else:
            step = self._step
        weights, non_trainable = (tensors_of(part) for part in self._variables[:2])
        state = State(weights, non_trainable, [])
        what = what_couples(step, state, features, labels)
        check_coupling(what, f"micro_batches={self._micro_batches} take it in parts")
        self._coupled = False

    def take_figures(self) -> dict[str, float]:
        """See Backend.take_figures."""
        share = self._waited / self._trained if self._trained else 0.0
        self._waited = self._trained = 0.0
        theory = bubble(self.place_in_mesh.num_stages, self._micro_batches)
        return {"waiting_for_stages": share, "bubble_in_theory": theory}

    def predict(self, features: Any) -> Any:
        """See Backend.predict; every process calls it, with the same features."""
        if "predict" not in self._functions:
            self._functions["predict"] = tf.function(
                lambda features: self._predict_stage(features),
                reduce_retracing=True,
                autograph=False,
            )
        with self.collectives.losses_told():
            outputs = self._functions["predict"](features)
            is_last = self.place_in_mesh.stage + 1 == self.place_in_mesh.num_stages
            mine = tf.nest.map_structure(lambda o: o.numpy(), outputs) if is_last else None
            return self.collectives.gather(mine)[self.place_in_mesh.chain[-1]]

    def training_columns(self, global_batch_size: int) -> slice:
        """See Backend.training_columns."""
        columns = self.columns(global_batch_size)
        if columns.stop - columns.start < self._micro_batches:
            raise InputError(
                f"a batch of {columns.stop - columns.start} examples cannot go through the stages as "
                f"micro_batches={self._micro_batches}; use a larger global_batch_size or fewer micro_batches"
            )
        return columns

    def check_replicas(self, step: int) -> None:
        """See Backend.check_replicas: processes of the same stage."""
        if self.world_size == 1:
            return
        self.collectives.announce("comparing weights", step)
        digests = self.collectives.gather(self._replica.digest())
        differing = [
            rank for peers in self._peers for rank in peers if digests[rank] != digests[peers[0]]
        ]
        self._report_differing("rank", sorted(differing), step)

    def read(self) -> Arrays:
        """See Backend.read; the whole state on rank 0 only, on other ranks that of their stage."""
        return self._state.read(first=self.place_in_mesh.replica == 0)

    def read_for_file(self) -> SavedArrays:
        """See Backend.read_for_file: rank 0 has all of it in memory."""
        return self.read()

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write; on ranks other than 0 also what `read` returned there."""
        self._state.write(arrays)
        self._note_common_state(arrays)

    def restore(self, arrays: SavedArrays) -> None:
        """See Backend.restore; what is other processes' follows at `synchronize`."""
        if self.rank == 0:
            self.write(arrays)

    def synchronize(self) -> None:
        """See Backend.synchronize: each process is handed its stage's state by rank 0."""
        self._state.hand_out()
        self._note_common_state({"slots/0": self._variables.slots[0].numpy()})

    def sync_model(self) -> None:
        """See Backend.sync_model; on rank 0 only."""
        self._state.fill_model(self.read())

    def _train_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> Any:
        here = self.place_in_mesh
        counted = Counted(self._same.reduce, self._same.collect, self.world_size)
        for collectives in (self.collectives, self._chain, self._same):
            collectives.begin_graph("train")
        work = order_of_work(
            self.options.schedule, here.stage, here.num_stages, self._micro_batches
        )

        def step(part: Callable[[int], Batch]) -> tuple[tf.Tensor, tf.Tensor]:
            state = self._read()
            gradients, sums, non_trainable, waited = self._stage_step.gradients(
                state, part, work, self._segment.trainable_variables, self._optimizer
            )
            if self.world_size > 1:
                gradients = counted.reduce(gradients)
            new, slots = self._optimizer.stateless_apply(state.slots, gradients, state.weights)
            self._assign(State(new, non_trainable, slots), sums)
            return sums, waited

        dtypes = keras.backend.floatx(), "float64"
        batches = data, indices, weights, num_examples
        sums, waited = each_batch_in_parts(step, self._micro_batches, *batches, dtypes=dtypes)
        self.bytes_per_step = counted.bytes + self._stage_step.bytes
        return self.collectives.reduce([sums])[0], waited

    def _evaluate_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tf.Tensor:
        def step(pieces: list[Batch]) -> tf.Tensor:
            return self._stage_step.evaluated(self._read(), pieces[0])

        self.collectives.begin_graph("evaluate")
        sums = each_batch(step, lambda width: 1, data, indices, weights, num_examples)
        return self.collectives.reduce([sums])[0]

    def _predict_stage(self, features: Any) -> Any:
        self.collectives.begin_graph("predict")
        return self._stage_step.predicted(self._read(), features)


def _no_loss(labels: Any, outputs: Any) -> tf.Tensor:
    """[batch]: a stage that is not the last has none."""
    return tf.zeros(tf.shape(tf.nest.flatten(outputs)[0])[:1])


_no_loss.stands_alone = True  # type: ignore[attr-defined]
