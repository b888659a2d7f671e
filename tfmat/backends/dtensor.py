"""A mesh of devices, of one process or several: examples, dense layers and optimizer state are divided as layouts say.

Every process gives whole arrays, the same as the others, and its devices take their parts. One call of the graph runs
many steps, see mesh_steps.py.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from tfmat.backends.base import Arrays, Backend, Metric, PerExample
from tfmat.backends.batches import Batch
from tfmat.backends.checks import NOT_ON_A_MESH
from tfmat.backends.clients import MeshCollectives
from tfmat.backends.coupling import check_coupling, rows_to_try, what_couples
from tfmat.backends.layouts import Plan, make_plan, slot_specs, weights_of
from tfmat.backends.mesh import BATCH, Spec
from tfmat.backends.mesh_steps import MeshSteps, steps_a_call
from tfmat.backends.mesh_tensors import differing_devices, drawn_whole, host
from tfmat.backends.options import BackendOptions
from tfmat.backends.recomputation import recomputation_of
from tfmat.backends.refusals import check_layers_for_mesh, check_precision, explain
from tfmat.backends.replica import tensors_of
from tfmat.backends.saved_arrays import SavedArrays
from tfmat.backends.sharpness_aware import make_step
from tfmat.backends.state import State
from tfmat.backends.step import Step
from tfmat.backends.zero import DividedOptimizer, gatherer
from tfmat.errors import InputError


class DTensorBackend(Backend):
    """A mesh; the state lives in DVariables, the model's own follow at `sync_model`.

    Attributes:
      mesh_shape: the axes, over all processes.
      plan: layouts of the weights, after `build`.
    """

    name = "dtensor"

    collectives: MeshCollectives

    def __init__(self, options: BackendOptions | None = None):
        options = options or BackendOptions()
        self.mesh_shape = options.mesh
        super().__init__(options, MeshCollectives(options.processes, options.mesh, options.folder))
        for key in ("compression", "accumulate"):
            value = getattr(self.options, key)
            if value != getattr(BackendOptions, key):
                raise InputError(
                    f"{key}={value} is for --backend=horovod and mpi; leave it out with --backend=dtensor"
                )
        self.plan: Plan | None = None

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
        """See Backend.build. InputError where a layout cannot be followed."""
        if jit_compile:
            raise InputError("jit_compile does not work with --backend=dtensor; leave it out")
        if bfloat16:
            raise InputError(f"precision {NOT_ON_A_MESH}")
        check_layers_for_mesh(model)
        check_precision(model, optimizer)
        self.start()
        self._tensors = self.collectives.tensors
        optimizer.build(model.trainable_variables)
        self._model = model
        named = {f"metric '{name}'": metric for name, metric in metrics.items()}
        self._functions = {"the loss": loss, **named}
        self._plain = State.variables_of(model, optimizer)
        options = self.options
        self.plan = make_plan(
            weights_of(model), self.mesh_shape, options.layouts, options.zero_stage
        )
        self._specs = State(
            [layout.stored for layout in self.plan.layouts],
            [(None,) * len(variable.shape) for variable in self._plain.non_trainable],
            slot_specs(optimizer, self.plan),
        )
        arrays = self.collectives.broadcast([[v.numpy() for v in part] for part in self._plain])
        self._variables = State(
            *(
                [
                    dtensor.DVariable(self._tensors.pack(value, spec))
                    for value, spec in zip(values, specs, strict=True)
                ]
                for values, specs in zip(arrays, self._specs, strict=True)
            )
        )
        relayout = self._tensors.relayout
        self._step = make_step(
            model,
            DividedOptimizer(optimizer, self.plan, self._specs.slots, relayout),
            loss,
            metrics,
            auxiliary_loss,
            gather=gatherer(self.plan, relayout),
            recomputation=recomputation_of(model, options.recompute),
        )
        self._predict_step = tf.function(self._predict, autograph=False)
        self._coupling_step: Step | None = Step(model, optimizer, loss, metrics, auxiliary_loss)
        self._steps = MeshSteps(
            {"train": self._train_step, "evaluate": self._evaluate_step},
            self._tensors,
            self._batch_spec(1),
            num_sums=self._step.num_sums,
            capacity=steps_a_call(),
            largest=self.collectives.maximum,
        )

    def place(self, data: Any) -> Any:
        """See Backend.place: whole on every device; virtual devices of a CPU share one copy."""
        return tf.nest.map_structure(self.collectives.tensors.replicate, data)

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.train."""
        self._try_coupling(data, indices)
        return self._run("train", data, indices, weights, num_examples)

    def _try_coupling(self, data: Any, indices: np.ndarray) -> None:
        """Once, with the first examples and the model's own weights: InputError where results are of a whole batch."""
        step, self._coupling_step = self._coupling_step, None
        if step is None:
            return
        rows = rows_to_try(self._model, indices)

        def here(tensor: Any) -> tf.Tensor:
            is_packed = tf.is_tensor(tensor) and dtensor.is_dtensor(tensor)
            return tf.gather(dtensor.unpack(tensor)[0] if is_packed else tensor, rows)

        features, labels, *_ = tf.nest.map_structure(here, data)
        weights, non_trainable = (tensors_of(part) for part in self._plain[:2])
        state = State(weights, non_trainable, [])
        what = what_couples(step, state, features, labels)
        check_coupling(what, "--backend=dtensor divides it over devices and fills it up")

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.evaluate."""
        return self._run("evaluate", data, indices, weights, num_examples)

    def predict(self, features: Any) -> Any:
        """See Backend.predict."""
        arrays = tf.nest.map_structure(np.asarray, features)
        count = len(tf.nest.flatten(arrays)[0])
        parts = tf.nest.map_structure(
            lambda array: self._tensors.pack(
                np.concatenate([array, np.repeat(array[:1], self._missing(count), axis=0)]),
                self._batch_spec(array.ndim),
            ),
            arrays,
        )
        with self._refusals_told(), self.collectives.losses_told():
            outputs = self._predict_step(parts)
            return tf.nest.map_structure(lambda output: host(output)[:count], outputs)

    def read(self) -> Arrays:
        """See Backend.read."""
        specs = self._specs.named()
        with self.collectives.losses_told():
            found = self._variables.named()
            return {
                name: self._tensors.whole(found[name].read_value(), specs[name]) for name in found
            }

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write."""
        variables, specs = self._variables.named(), self._specs.named()

        def assign(name: str, array: np.ndarray) -> None:
            array = array.astype(variables[name].dtype.as_numpy_dtype)
            variables[name].assign(self._tensors.pack(array, specs[name]))

        self._variables.assign(arrays, assign)
        self._note_common_state(arrays)

    def check_replicas(self, step: int) -> None:
        """See Backend.check_replicas: what several devices hold must be the same on each."""
        if self.mesh_shape.num_devices == 1:
            return
        self.collectives.announce("comparing weights", step)
        variables, specs = self._variables.named(), self._specs.named()
        held = self._tensors.digests_here(
            (name, variables[name], specs[name]) for name in variables
        )
        devices = [device for process in self.collectives.gather(held) for device in process]
        self._report_differing("device", differing_devices(devices), step)

    def sync_model(self) -> None:
        """See Backend.sync_model."""
        arrays = self.read()
        for name, variable in self._plain.named().items():
            variable.assign(arrays[name])

    def bytes_per_device(self) -> dict[str, list[int]]:
        """`weights`, `non_trainable` and `slots` -> bytes that each device of all processes holds, counted there."""
        held = {
            part: self._tensors.bytes_here(variables)
            for part, variables in self._variables._asdict().items()
        }
        processes = self.collectives.gather(held)
        return {part: [count for other in processes for count in other[part]] for part in held}

    def _run(
        self,
        kind: str,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> np.ndarray:
        """What does not divide over the batch axis is filled up with examples of weight zero."""
        padding = ((0, 0), (0, self._missing(indices.shape[1])))
        with self._refusals_told(), self.collectives.losses_told():
            return self._steps.run(
                kind,
                self.place(data),
                np.pad(indices, padding),
                np.pad(weights, padding),
                num_examples.astype(np.float32),
            )

    def _train_step(self, data: Any, rows: Any, weights: Any, num_examples: Any) -> Any:
        batch = Batch.gather(data, rows, weights, num_examples)
        with self._random_numbers():
            state, sums = self._step.compute(self._read(), [batch], _identity)
        # Every write after every read: a variable that is read again after an assign gives its OLD value on a mesh.
        for variables, values in zip(self._variables, state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return sums

    def _evaluate_step(self, data: Any, rows: Any, weights: Any, num_examples: Any) -> Any:
        batch = Batch.gather(data, rows, weights, num_examples)
        return self._step.evaluate(self._read(), [batch], _identity)

    def _predict(self, features: Any) -> Any:
        return tf.nest.map_structure(
            lambda output: self._tensors.relayout(output, (None,) * len(output.shape)),
            self._step.predict(self._read(), features),
        )

    @contextlib.contextmanager
    def _refusals_told(self) -> Iterator[None]:
        """InputError for a layer that DTensor cannot divide; it says so at the first call, before any step."""
        try:
            yield
        except tf.errors.OpError as error:
            told = explain(error, self._model, self._functions, self._step.signature)
            raise told or error from error

    def _read(self) -> State:
        return State(*([variable.read_value() for variable in part] for part in self._variables))

    def _random_numbers(self) -> contextlib.AbstractContextManager[None]:
        """Where examples alone are divided, DTensor draws as it should, and every device its own part only."""
        others = [name for name in self.mesh_shape.names if name != BATCH]
        if all(self.mesh_shape.size(name) == 1 for name in others):
            return contextlib.nullcontext()
        return drawn_whole(self._tensors.relayout)

    def _missing(self, count: int) -> int:
        return -count % self.mesh_shape.size(BATCH)

    def _batch_spec(self, rank: int) -> Spec:
        return (BATCH if BATCH in self.mesh_shape.names else None, *[None] * (rank - 1))


def _identity(tensors: list[Any]) -> list[Any]:
    return tensors
