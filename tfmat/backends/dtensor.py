"""A mesh of devices in one process: examples, dense layers and optimizer state are divided as layouts say.

One call of the graph is one step, and all calls of a block are under way before the first result is waited for. A loop
over steps inside the graph would take about half the time of small steps; one form of it hung now and then on CPUs
(TensorFlow 2.21, meshes with a batch axis), another did not in 70,000 steps, and what made the difference is not known.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from tfmat.backends.base import Arrays, Backend, BackendOptions, PerExample
from tfmat.backends.batches import share_or_copy
from tfmat.backends.layouts import Plan, Spec, device_parts, make_plan, slot_specs, weights_of
from tfmat.backends.mesh import BATCH, MeshShape
from tfmat.backends.step import Batch, State, Step
from tfmat.backends.zero import DividedOptimizer, GatheringModel
from tfmat.errors import InputError


class DTensorBackend(Backend):
    """One process over a mesh; the state lives in DVariables, the model's own follow at `sync_model`.

    Attributes:
      mesh_shape: the axes.
      plan: layouts of the weights, after `build`.
    """

    name = "dtensor"

    def __init__(self, options: BackendOptions | None = None):
        options = options or BackendOptions()
        super().__init__(options)
        for key in ("compression", "accumulate"):
            value = getattr(options, key)
            if value != getattr(BackendOptions(), key):
                raise InputError(
                    f"{key}={value} is for --backend=horovod; leave it out with --backend=dtensor"
                )
        self.mesh_shape = MeshShape.parse(options.mesh)
        self.plan: Plan | None = None
        self._mesh: Any = None

    def start(self) -> None:
        """See Backend.start. InputError where the mesh is larger than the devices."""
        if self._mesh is not None:
            return
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        self.mesh_shape.check_devices(len(tf.config.list_logical_devices(kind)), kind)
        devices = [f"{kind}:{i}" for i in range(self.mesh_shape.num_devices)]
        self._mesh = dtensor.create_mesh(list(self.mesh_shape.axes), devices=devices)

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, PerExample],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
    ) -> None:
        """See Backend.build. InputError where a layout cannot be followed."""
        if jit_compile:
            raise InputError("jit_compile does not work with --backend=dtensor; leave it out")
        if any(getattr(layer, "synchronized", True) is False for layer in model.layers):
            raise InputError(
                "local batch normalization does not work with --backend=dtensor, whose layers see the global batch; "
                "use model.batch_normalization=synchronized"
            )
        self.start()
        optimizer.build(model.trainable_variables)
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
        self._variables = State(
            *(
                [
                    dtensor.DVariable(self._pack(variable.numpy(), spec))
                    for variable, spec in zip(variables, specs, strict=True)
                ]
                for variables, specs in zip(self._plain, self._specs, strict=True)
            )
        )
        self._step = Step(
            GatheringModel(model, self.plan, self._relayout),
            DividedOptimizer(optimizer, self.plan, self._specs.slots, self._relayout),
            loss,
            metrics,
            auxiliary_loss,
        )
        self._functions = {
            kind: tf.function(function, autograph=False)
            for kind, function in (
                ("train", self._train_step),
                ("evaluate", self._evaluate_step),
                ("predict", self._predict),
            )
        }

    def place(self, data: Any) -> Any:
        """See Backend.place: whole on every device; virtual devices of a CPU share one copy."""
        return tf.nest.map_structure(self._replicate, data)

    def share(self, data: Any) -> Any:
        """See Backend.share."""
        return tf.nest.map_structure(share_or_copy, data)

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.train."""
        return self._run("train", data, indices, weights, num_examples)

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.evaluate."""
        return self._run("evaluate", data, indices, weights, num_examples)

    def predict(self, features: Any) -> np.ndarray:
        """See Backend.predict."""
        arrays = tf.nest.map_structure(np.asarray, features)
        count = len(tf.nest.flatten(arrays)[0])
        parts = tf.nest.map_structure(
            lambda array: self._pack(
                np.concatenate([array, np.repeat(array[:1], self._missing(count), axis=0)]),
                self._batch_spec(array.ndim),
            ),
            arrays,
        )
        return _host(self._functions["predict"](parts))[:count]

    def read(self) -> Arrays:
        """See Backend.read."""
        return {
            f"{part}/{i}": self._whole(variable, spec)
            for part, variables, specs in zip(
                State._fields, self._variables, self._specs, strict=True
            )
            for i, (variable, spec) in enumerate(zip(variables, specs, strict=True))
        }

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """See Backend.write."""
        found = []
        for part, variables, specs in zip(State._fields, self._variables, self._specs, strict=True):
            for i, (variable, spec) in enumerate(zip(variables, specs, strict=True)):
                array = arrays.get(f"{part}/{i}")
                if array is None or array.shape != tuple(variable.shape):
                    shape = "nothing" if array is None else f"shape {list(array.shape)}"
                    raise InputError(
                        f"the saved state does not fit this model: {part} {i} has shape {list(variable.shape)}, "
                        f"saved is {shape}; use the config that the run was started with"
                    )
                found.append((variable, array.astype(variable.dtype.as_numpy_dtype), spec))
        for variable, array, spec in found:
            variable.assign(self._pack(array, spec))

    def sync_model(self) -> None:
        """See Backend.sync_model."""
        arrays = self.read()
        for part, variables in self._plain._asdict().items():
            for i, variable in enumerate(variables):
                variable.assign(arrays[f"{part}/{i}"])

    def bytes_per_device(self) -> dict[str, list[int]]:
        """`weights`, `non_trainable` and `slots` -> bytes that each device holds, from its own shards."""
        return {
            part: [
                sum(shard.numpy().nbytes for shard in shards)
                for shards in zip(*(dtensor.unpack(v.read_value()) for v in variables), strict=True)
            ]
            for part, variables in self._variables._asdict().items()
        }

    def _run(
        self,
        kind: str,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> np.ndarray:
        """One call a step; what does not divide over the batch axis is filled up with examples of weight zero."""
        data = tf.nest.map_structure(self._replicate, data)
        padding, spec = ((0, 0), (0, self._missing(indices.shape[1]))), self._batch_spec(1)
        sums = [
            self._functions[kind](
                data,
                self._pack(rows, spec),
                self._pack(row_weights, spec),
                self._pack(np.asarray(count, np.float32), ()),
            )
            for rows, row_weights, count in zip(
                np.pad(indices, padding), np.pad(weights, padding), num_examples, strict=True
            )
        ]
        return np.stack([_host(row) for row in sums])

    def _train_step(self, data: Any, rows: Any, weights: Any, num_examples: Any) -> Any:
        batch = _batch(data, rows, weights, num_examples)
        state, sums = self._step.compute(self._read(), [batch], _identity)
        # Every write after every read: a variable that is read again after an assign gives its OLD value on a mesh.
        for variables, values in zip(self._variables, state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return sums

    def _evaluate_step(self, data: Any, rows: Any, weights: Any, num_examples: Any) -> Any:
        batch = _batch(data, rows, weights, num_examples)
        return self._step.evaluate(self._read(), [batch], _identity)

    def _predict(self, features: Any) -> Any:
        outputs = self._step.predict(self._read(), features)
        return self._relayout(outputs, (None,) * len(outputs.shape))

    def _read(self) -> State:
        return State(*([variable.read_value() for variable in part] for part in self._variables))

    def _missing(self, count: int) -> int:
        return -count % self.mesh_shape.size(BATCH)

    def _batch_spec(self, rank: int) -> Spec:
        return (BATCH if BATCH in self.mesh_shape.names else None, *[None] * (rank - 1))

    def _relayout(self, tensor: Any, spec: Spec) -> Any:
        return dtensor.relayout(tensor, _layout(spec, self._mesh))

    def _replicate(self, data: Any) -> Any:
        if tf.is_tensor(data) and dtensor.is_dtensor(data):
            return data
        tensor = share_or_copy(data)
        layout = dtensor.Layout.replicated(self._mesh, rank=len(tensor.shape))
        return dtensor.pack([tensor] * self.mesh_shape.num_devices, layout)

    def _pack(self, array: np.ndarray, spec: Spec) -> Any:
        # A copy for each device: tf.constant may keep an array's own memory, which two devices must not write to.
        copies = [
            tf.constant(np.array(array[part]))
            for part in device_parts(array.shape, spec, self.mesh_shape)
        ]
        return dtensor.pack(copies, _layout(spec, self._mesh))

    def _whole(self, variable: Any, spec: Spec) -> np.ndarray:
        whole = np.empty(variable.shape, variable.dtype.as_numpy_dtype)
        shards = dtensor.unpack(variable.read_value())
        for shard, part in zip(
            shards, device_parts(variable.shape, spec, self.mesh_shape), strict=True
        ):
            whole[part] = shard.numpy()
        return whole


def _layout(spec: Spec, mesh: Any) -> Any:
    return dtensor.Layout([axis or dtensor.UNSHARDED for axis in spec], mesh)


def _batch(data: Any, rows: Any, weights: Any, num_examples: Any) -> Batch:
    features, labels = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), data)
    return Batch(features, labels, weights, num_examples)


def _host(tensor: Any) -> np.ndarray:
    return dtensor.unpack(tensor)[0].numpy()


def _identity(tensors: list[Any]) -> list[Any]:
    return tensors
