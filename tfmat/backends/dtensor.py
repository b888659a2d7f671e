"""DTensor: the step on a mesh of devices."""

import contextlib
import dataclasses
import hashlib
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor
from tensorflow.python.ops import gen_stateless_random_ops_v2

from tfmat.backends.base import (
    Arrays,
    Backend,
    Metric,
    PerExample,
    SavedArrays,
    StarCollectives,
    share_or_copy,
)
from tfmat.backends.exchange import Apply, repeated_mesh_sums
from tfmat.backends.layouts import (
    Plan,
    Spec,
    device_parts,
    make_plan,
    plan_of_config,
    slot_specs,
    weights_of,
)
from tfmat.backends.losses import sums_of
from tfmat.backends.registry import add_extras, check_further
from tfmat.backends.step import (
    Batch,
    State,
    Step,
    check_coupling,
    check_precision,
    examples_to_try,
    make_step,
    what_couples,
)
from tfmat.config import BATCH, MeshShape, Settings
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.port_guard import (
    Neighbour,
    PortGuard,
    check_not_refused,
    describe_ports,
    guard_port,
)
from tfmat.launch.processes import Processes
from tfmat.launch.watchdog import Star
from tfmat.networks.factory import ExampleWeightedBatchNormalization

# --------------------------------------------------------------------------------------------------
# Arrays and tensors on a mesh: what goes to which device, and what comes back.


# Part that a device holds -> a hash of it.
Digests = dict[str, str]


class MeshTensors:
    """Packs, gathers and changes layouts; the processes share the devices of the mesh evenly, in their order."""

    def __init__(self, mesh: Any, shape: MeshShape, rank: int = 0, num_processes: int = 1):
        self._mesh, self._shape, self._num_processes = mesh, shape, num_processes
        self._num_local = shape.devices_per_process(num_processes)
        self._local = slice(rank * self._num_local, (rank + 1) * self._num_local)

    def layout(self, spec: Spec) -> Any:
        """A spec as DTensor's layout."""
        return dtensor.Layout([axis or dtensor.UNSHARDED for axis in spec], self._mesh)

    def relayout(self, tensor: Any, spec: Spec) -> Any:
        """The tensor in another layout."""
        return dtensor.relayout(tensor, self.layout(spec))

    def pack(self, array: np.ndarray, spec: Spec) -> Any:
        """A tensor on the mesh; every process gives the whole array."""
        # A copy for each device: tf.constant may keep an array's own memory, which two devices must not write to.
        copies = [
            tf.constant(np.array(array[part])) for part in self._local_parts(array.shape, spec)
        ]
        return dtensor.pack(copies, self.layout(spec))

    def replicate(self, data: Any) -> Any:
        """The array whole on every device; virtual devices of a CPU share one copy."""
        if tf.is_tensor(data) and dtensor.is_dtensor(data):
            return data
        tensor = share_or_copy(data)
        layout = dtensor.Layout.replicated(self._mesh, rank=len(tensor.shape))
        return dtensor.pack([tensor] * self._num_local, layout)

    def whole(self, tensor: Any, spec: Spec) -> np.ndarray:
        """The whole array of a tensor of that layout; every process calls it, and has it then."""
        if not any(spec):
            return host(tensor)
        if self._num_processes > 1:  # some of its parts are with others
            return host(self.relayout(tensor, (None,) * len(spec)))
        self._wait()
        array = np.empty(tensor.shape, tensor.dtype.as_numpy_dtype)
        parts = self._local_parts(array.shape, spec)
        for shard, part in zip(dtensor.unpack(tensor), parts, strict=True):
            array[part] = shard.numpy()
        return array

    def bytes_here(self, variables: list[Any]) -> list[int]:
        """The bytes that each device of this process holds of all the variables."""
        shards = map(_shards, variables)
        return [sum(part.nbytes for part in parts) for parts in zip(*shards, strict=True)]

    def digests_here(self, variables: Iterable[tuple[str, Any, Spec]]) -> list[Digests]:
        """A hash of every part of the (name, variable, its layout) that each device of this process holds."""
        self._wait()
        found: list[Digests] = [{} for _ in range(self._num_local)]
        for name, variable, spec in variables:
            parts = self._local_parts(variable.shape, spec)
            for device, part, shard in zip(found, parts, _shards(variable), strict=True):
                array = np.ascontiguousarray(shard)
                device[f"{name}\n{part}"] = hashlib.blake2b(array.data, digest_size=16).hexdigest()
        return found

    def _wait(self) -> None:
        """Returns when every device of the mesh has done what it was given before; every process calls it.

        `dtensor.unpack` holds Python's lock while it waits for a tensor. A device's thread needs that lock to free the
        arrays of a step that it has done, so the two would wait for each other forever.
        """
        ones = np.ones([self._shape.size(name) for name in self._shape.names], np.float32)
        host(tf.reduce_sum(self.pack(ones, self._shape.names)))

    def _local_parts(self, shape: Any, spec: Spec) -> list[tuple[slice, ...]]:
        return device_parts(shape, spec, self._shape)[self._local]


# Operations that draw Keras's random numbers.
_DRAWS = (
    "stateless_random_uniform_v2",
    "stateless_random_uniform_int_v2",
    "stateless_random_uniform_full_int_v2",
    "stateless_random_normal_v2",
    "stateless_truncated_normal_v2",
)


@contextlib.contextmanager
def drawn_whole(relayout: Callable[[Any, Spec], Any]) -> Iterator[None]:
    """Within it every device draws random numbers for the whole batch, and takes its part of them.

    DTensor gives all draws of a step the seeds of the first one. Where that is divided over more axes than another,
    devices that hold the same part of the other would draw other numbers for it.
    """
    kept = {name: getattr(gen_stateless_random_ops_v2, name) for name in _DRAWS}

    def whole(draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*arguments: Any, **options: Any) -> Any:
            numbers = draw(*arguments, **options)
            return relayout(numbers, (None,) * len(numbers.shape))

        return drawn

    for name, draw in kept.items():
        setattr(gen_stateless_random_ops_v2, name, whole(draw))
    try:
        yield
    finally:
        for name, draw in kept.items():
            setattr(gen_stateless_random_ops_v2, name, draw)


def differing_devices(devices: Sequence[Digests]) -> dict[int, list[str]]:
    """Names of the variables of which a device holds a part with other numbers than the first device that holds it."""
    first: Digests = {}
    found = {
        number: [
            part.partition("\n")[0]
            for part, digest in device.items()
            if first.setdefault(part, digest) != digest
        ]
        for number, device in enumerate(devices)
    }
    return {number: names for number, names in found.items() if names}


def _shards(variable: Any) -> list[np.ndarray]:
    """Each device's part of a variable, read from its own one.

    `unpack(variable.read_value())` would give the first device's value for all, where a variable is whole on every one.
    """
    return [
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype).numpy()
        for handle in dtensor.unpack(variable.handle)
    ]


def host(tensor: Any) -> np.ndarray:
    """A tensor that is whole on every device; other threads run while the devices still compute it."""
    return tensor.numpy()


# --------------------------------------------------------------------------------------------------
# Several processes that share one mesh: DTensor's clients, set up from what the launcher says.
#
# TensorFlow's own service that watches the clients stays off: it ends a process without a word. The star does that,
# and knows what is no fault.


# TensorFlow joins once in a process; where its servers are.
_joined: list[str] = []


class MeshCollectives(StarCollectives):
    """The collectives of processes that share a mesh; sums over its devices are DTensor's own, inside of the step."""

    def __init__(self, processes: Processes, folder: str, settings: Settings):
        super().__init__(processes, folder)
        self._mesh_shape = settings.parallel.mesh
        self._tensors: MeshTensors | None = None

    def start(self) -> None:
        """Makes this process one client of the mesh.

        Raises:
          InputError: the mesh cannot be shared out, is larger than the devices, or TensorFlow has started already.
        """
        if self._tensors:
            return
        self._kind = ""
        if self.processes.size > 1:
            check_not_refused("--backend=dtensor over several processes")
            self._kind = "" if _joined else _choose_devices(self.processes, self._mesh_shape)
        super().start()
        mesh = make_mesh(self._mesh_shape, self.size)
        self._tensors = MeshTensors(mesh, self._mesh_shape, self.rank, self.size)

    def _join(self, star: Star) -> None:
        if not _joined:
            _joined.append(_join_tensorflow(self._kind, self.processes, star))

    @property
    def tensors(self) -> MeshTensors:
        """Packs arrays onto the mesh."""
        if self._tensors is None:
            raise InputError("the backend of a mesh is not started; call its start() first")
        return self._tensors

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        """See Collectives.repeated_sums: over the devices of the batch axis."""
        num_devices = self._mesh_shape.size(BATCH)
        if num_devices == 1:
            return super().repeated_sums(num_values)
        return repeated_mesh_sums(self.tensors, BATCH, num_devices, num_values)

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(
            error, WorkerLostError | tf.errors.UnavailableError | tf.errors.AbortedError
        )

    def _leave_together(self, star: Star) -> None:
        """A process that ended now would take away what another one still receives from it."""
        with contextlib.suppress(WorkerLostError):
            star.barrier()


def _join_tensorflow(kind: str, processes: Processes, star: Star) -> str:
    """TensorFlow's servers, guarded; returns where they are."""
    addresses = star.addresses()
    with socket.create_server(("", 0)) as held:  # until all have theirs: two may be on one host
        ports = star.gather(held.getsockname()[1])
        star.barrier()
    places = [Neighbour(*each) for each in star.gather(dataclasses.astuple(Neighbour.here()))]
    guard = guard_port(ports[processes.rank], places)
    jobs = ",".join(
        f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        for address, port in zip(addresses, ports, strict=True)
    )
    _initialize(kind, processes, jobs)
    _check_guards(star, guard)
    if processes.rank == 0:
        print(describe_ports(ports, places), file=sys.stderr, flush=True)
    return jobs


def _check_guards(star: Star, guard: PortGuard | None) -> None:
    """Returns when all ports are open and guarded; one InputError on all ranks where one cannot be."""
    said = ""
    try:
        if guard:
            guard.wait()
    except InputError as error:
        said = str(error)
    for rank, text in enumerate(star.gather(said)):
        if text:
            failure = InputError(f"rank {rank}: {text}")
            failure.said_elsewhere = said != text
            raise failure


def make_mesh(mesh_shape: MeshShape, num_processes: int) -> Any:
    """The mesh over the devices of all processes; InputError where it is larger than those."""
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    available = len(tf.config.list_logical_devices(kind))
    mesh_shape.check_devices(available, kind, num_processes)
    devices = [f"{kind}:{i}" for i in range(mesh_shape.devices_per_process(num_processes))]
    axes = list(mesh_shape.axes)
    if num_processes == 1:
        return dtensor.create_mesh(axes, devices=devices)
    return dtensor.create_distributed_mesh(axes, local_devices=devices, device_type=kind)


def _choose_devices(processes: Processes, mesh_shape: MeshShape) -> str:
    """CPU or GPU; makes only this process's GPUs visible, where the launcher has not done that."""
    wanted = mesh_shape.devices_per_process(processes.size)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        mesh_shape.check_devices(dtensor.num_local_devices("CPU"), "CPU", processes.size)
        return "CPU"
    mesh_shape.check_devices(len(gpus), "GPU", processes.size)
    first = processes.local_rank * wanted
    mine = gpus[first : first + wanted] if len(gpus) >= first + wanted else gpus[:wanted]
    tf.config.set_visible_devices(mine, "GPU")
    return "GPU"


def _initialize(kind: str, processes: Processes, jobs: str) -> None:
    os.environ["DTENSOR_CLIENT_ID"] = str(processes.rank)
    os.environ["DTENSOR_NUM_CLIENTS"] = str(processes.size)
    os.environ["DTENSOR_JOB_NAME"] = "worker"
    os.environ["DTENSOR_JOBS"] = jobs
    try:
        dtensor.initialize_accelerator_system(kind, enable_coordination_service=False)
    except ValueError as error:
        if "already been initialized" not in str(error):
            raise
        raise InputError(
            "several processes share a mesh only if they join before TensorFlow does anything: start the backend "
            "first, make models and tensors after it"
        ) from error


# --------------------------------------------------------------------------------------------------
# Blocks of steps on a mesh: many in one call of a graph, by a loop in the graph, or one call each.


# step(data, rows [batch], weights [batch], num_examples) -> sums [num_sums]
MeshStep = Callable[[Any, Any, Any, Any], Any]

# DTensor makes functions of a loop, and in TensorFlow 2.21 the name that it gives them is taken now and then:
# seen once in some hundred loops. Nothing has run by then.
_NAME_IS_TAKEN = "a different function with the same name already exists"


def steps_a_call() -> int:
    """50, or as TFMAT_MESH_STEPS_A_CALL says; 1 is no loop."""
    text = os.environ.get("TFMAT_MESH_STEPS_A_CALL", "50")
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InputError(f"TFMAT_MESH_STEPS_A_CALL is '{text}'; give a whole number, 1 or more")
    return int(text)


def _each_batch(step: MeshStep, capacity: int, num_sums: int) -> Callable[..., Any]:
    """`step` for one batch of a block after the other.

    Returns:
      A function of data, indices [capacity, batch], weights (likewise) and num_examples [capacity], all on the mesh; 0
      examples or less end the block. It returns the sums [capacity, num_sums], 0 for the steps that are not run.
    """

    def run(data: Any, indices: Any, weights: Any, num_examples: Any) -> Any:
        # Counted here: DTensor takes small tensors from outside for constants, and compiles anew when they change.
        count = tf.math.count_nonzero(num_examples > 0, dtype=tf.int32)

        def body(i: Any, sums: Any) -> tuple[Any, Any]:
            row = step(
                data, tf.gather(indices, i), tf.gather(weights, i), tf.gather(num_examples, i)
            )
            # Not `row[tf.newaxis]`, on which TensorFlow 2.21 crashes, see docs/dtensor.md; no TensorArray, for which
            # DTensor has no rule; no plain product, which would make every row NaN as soon as one is.
            here = tf.expand_dims(tf.one_hot(i, capacity, dtype=sums.dtype), 1)
            row = tf.expand_dims(tf.cast(row, sums.dtype), 0)
            return i + 1, sums + tf.math.multiply_no_nan(row, here)

        # One iteration after the other: each reads what the one before has assigned.
        _, sums = tf.while_loop(
            lambda i, _: i < count,
            body,
            [tf.zeros_like(count), tf.zeros([capacity, num_sums], keras.backend.floatx())],
            parallel_iterations=1,
        )
        return sums

    return tf.function(run, autograph=False)


# --------------------------------------------------------------------------------------------------
# Weights and optimizer as the step has them when weights, gradients or slots are divided over the batch axis (ZeRO).
#
# Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, arXiv:1910.02054.


# A tensor in another layout.
Relayout = Callable[[Any, Spec], Any]


def gatherer(plan: Plan, relayout: Relayout) -> Callable[[list[Any]], list[Any]]:
    """Makes the weights that the model computes with of the stored ones, which are in parts in stage 3.

    In stages 1 and 2 it only says so: else the layout of the update would travel back through the model.
    """
    if not plan.zero_stage:
        return list
    specs = [layout.compute for layout in plan.layouts]
    return lambda weights: _each(relayout, weights, specs)


def divided(apply: Apply, plan: Plan, slot_specs: Sequence[Spec], relayout: Relayout) -> Apply:
    """The optimizer's step with each device updating the part whose slots it holds."""
    if not plan.zero_stage:
        return apply
    layouts = plan.layouts
    updates = [layout.slots for layout in layouts]

    def apply_in_parts(slots: Any, gradients: Any, weights: Any) -> tuple[Any, Any]:
        if plan.zero_stage < 3:  # in stage 3 they come divided, as the weights do
            # Whole first: a divided gradient of a bias would divide the channels of its convolution.
            gradients = _each(relayout, gradients, [layout.compute for layout in layouts])
        gradients = _each(relayout, gradients, [layout.gradient for layout in layouts])
        gradients = _each(relayout, gradients, updates)
        weights, slots = apply(slots, gradients, _each(relayout, weights, updates))
        stored = [layout.stored for layout in layouts]
        return _each(relayout, weights, stored), _each(relayout, slots, slot_specs)

    return apply_in_parts


def _each(relayout: Relayout, tensors: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    return [relayout(tensor, spec) for tensor, spec in zip(tensors, specs, strict=True)]


# --------------------------------------------------------------------------------------------------
# A mesh of devices, of one process or several: examples, dense layers and optimizer state are divided as layouts say.
#
# Every process gives whole arrays, the same as the others, and its devices take their parts. One call of the graph
# runs many steps, see the section on them.


class DTensorBackend(Backend):
    """A mesh; the state lives in DVariables, the model's own follow at `sync_model`.

    Attributes:
      plan: layouts of the weights, after `build`.
    """

    uses_mesh = True
    collectives: MeshCollectives
    plan: Plan | None = None

    @property
    def mesh_shape(self) -> MeshShape:
        """The axes, over all processes."""
        return self.options.mesh

    def check_network(self, build: Callable[[], Any]) -> None:
        plan_of_config(self.settings, build())

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
        precision = "bfloat16" if bfloat16 else "float32"
        check_further(self, {"jit_compile": jit_compile, "precision": precision}, optimizer)
        check_layers_for_mesh(model)
        _make_constants(model)
        check_precision(model, optimizer)
        self.start()
        self._tensors = self.collectives.tensors
        optimizer.build(model.trainable_variables)
        self._model = model
        named = {f"metric '{name}'": metric for name, metric in metrics.items()}
        self._functions = {"the loss": loss, **named}
        self._plain = State.variables_of(model, optimizer)
        self._paths = State.paths_of(model, optimizer)
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
            optimizer,
            loss,
            metrics,
            auxiliary_loss,
            gather=gatherer(self.plan, relayout),
        )
        self._step.apply = divided(self._step.apply, self.plan, self._specs.slots, relayout)
        add_extras(self._step, self)
        self._coupling_step: Step | None = Step(model, optimizer, loss, metrics, auxiliary_loss)
        self._capacity = steps_a_call()
        self._usable: dict[Any, bool] = {}  # which loops TensorFlow took
        steps = {"train": self._train_step, "evaluate": self._evaluate_step}
        self._single = {kind: tf.function(step, autograph=False) for kind, step in steps.items()}
        self._loops = {
            kind: _each_batch(step, self._capacity, self._step.num_sums)
            for kind, step in steps.items()
        }

    def place(self, data: Any) -> Any:
        """See Backend.place: whole on every device; virtual devices of a CPU share one copy."""
        return tf.nest.map_structure(self.collectives.tensors.replicate, data)

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        self._try_coupling(data, indices)
        return self._run("train", data, indices, weights, num_examples)

    def _try_coupling(self, data: Any, indices: np.ndarray) -> None:
        """Once, with the first examples and the model's own weights: InputError where results are of a whole batch."""
        step, self._coupling_step = self._coupling_step, None
        if step is None:
            return

        def here(tensor: Any) -> Any:
            is_packed = tf.is_tensor(tensor) and dtensor.is_dtensor(tensor)
            return dtensor.unpack(tensor)[0] if is_packed else tensor

        examples = examples_to_try(self._model, tf.nest.map_structure(here, data), indices)
        what = what_couples(step, self._plain, *examples)
        check_coupling(what, "--backend=dtensor divides it over devices and fills it up")

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        return self._run("evaluate", data, indices, weights, num_examples)

    def read(self) -> Arrays:
        specs = self._specs.named()
        with self.collectives.losses_told():
            found = self._variables.named()
            return {
                name: self._tensors.whole(found[name].read_value(), specs[name]) for name in found
            }

    def write(self, arrays: SavedArrays) -> None:
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
            (self._paths[name], variable, specs[name]) for name, variable in variables.items()
        )
        devices = [device for process in self.collectives.gather(held) for device in process]
        self._report_differing("device", differing_devices(devices), step)

    def sync_model(self) -> None:
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

    # Blocks of steps: many in one call of a graph, by a loop in the graph, or one call each.

    def _run(self, kind: str, data: Any, *block: np.ndarray) -> np.ndarray:
        """A batch that does not divide over the batch axis is filled up with examples of weight zero."""
        indices, weights, num_examples = block
        padding = ((0, 0), (0, self._missing(indices.shape[1])))
        block = np.pad(indices, padding), np.pad(weights, padding), num_examples.astype(np.float32)
        with self._refusals_told(), self.collectives.losses_told():
            data = self.place(data)
            # A step without examples would end the loop's block.
            long = min(len(indices), self._capacity) > 1 and num_examples.all()
            loop = long and self._has_loop(kind, data, block)
            return (self._run_loop if loop else self._run_each)(kind, data, *block)

    def _has_loop(self, kind: str, data: Any, block: tuple[np.ndarray, ...]) -> bool:
        """Compiles it by calls of no steps, in which nobody waits for others. Refused on one process, none runs it.

        DTensor takes small tensors for constants until one has another value, and then compiles anew: the second call
        has other values than the first.
        """
        key = (kind, block[0].shape[1], *(tuple(each.shape) for each in tf.nest.flatten(data)))
        if key not in self._usable:
            refused = 0
            try:
                for value, none in ((0, 0.0), (1, -1.0)):
                    rows = (np.full_like(array[:1], value) for array in block[:2])
                    count = np.full(self._capacity, none, np.float32)
                    parts = (np.repeat(row, self._capacity, axis=0) for row in rows)
                    host(self._call_loop(kind, data, *parts, count))
            except tf.errors.InvalidArgumentError as error:
                if _NAME_IS_TAKEN not in str(error):
                    raise
                refused = 1
            self._usable[key] = not self.collectives.maximum(refused)
        return self._usable[key]

    def _run_each(self, kind: str, data: Any, *block: np.ndarray) -> np.ndarray:
        """One call per step; all are under way before the first result is waited for."""
        pack, spec = self._tensors.pack, self._batch_spec(1)
        calls = [
            self._single[kind](
                data, pack(rows, spec), pack(row_weights, spec), pack(np.asarray(count), ())
            )
            for rows, row_weights, count in zip(*block, strict=True)
        ]
        return np.stack([host(sums) for sums in calls])

    def _run_loop(self, kind: str, data: Any, *block: np.ndarray) -> np.ndarray:
        """Many steps per call; all calls are under way before the first result is waited for."""
        length = self._capacity
        parts = [
            [array[first : first + length] for array in block]
            for first in range(0, len(block[0]), length)
        ]
        calls = [(self._call_loop(kind, data, *part), len(part[0])) for part in parts]
        return np.concatenate([host(sums)[:count] for sums, count in calls])

    def _call_loop(self, kind: str, data: Any, *block: np.ndarray) -> Any:
        """A short block is filled up with steps that are not run, so that one graph does for all."""
        spec = (None, *self._batch_spec(1))
        indices, weights, num_examples = (
            np.pad(array, [(0, self._capacity - len(array))] + [(0, 0)] * (array.ndim - 1))
            for array in block
        )
        return self._loops[kind](
            data,
            self._tensors.pack(indices, spec),
            self._tensors.pack(weights, spec),
            self._tensors.pack(num_examples, (None,)),
        )

    def _train_step(self, data: Any, rows: Any, weights: Any, num_examples: Any) -> Any:
        batch = Batch.gather(data, rows, weights, num_examples)
        with self._random_numbers():
            state, sums = self._step.compute(self._read(), [batch])
        # Every write after every read: a variable that is read again after an assign gives its OLD value on a mesh.
        for variables, values in zip(self._variables, state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return sums

    def _evaluate_step(self, data: Any, rows: Any, weights: Any, num_examples: Any) -> Any:
        batch = Batch.gather(data, rows, weights, num_examples)
        return self._step.evaluate(self._read(), [batch])

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


# --------------------------------------------------------------------------------------------------
# DTensor's refusal of an operation, as a line that names the layer and what works.


# DTensor says the first where an operation has no rule at all, the second where its rule does not fit the layouts.
_NO_RULE = re.compile(r"'tf\.(\w+)' op does not implement layout propagation")


_FAILED = re.compile(r"error: (.*?)(?: tensorflow/dtensor|\n|$)")


_OPERATION = re.compile(r'see current operation: .*?"tf\.(\w+)"')


# The first part of a layer's class name that matches -> the nearest thing that works.
_INSTEAD = (
    (r"LSTM|GRU|RNN|Bidirectional", "use Conv1D or MultiHeadAttention instead of a loop over points"),
    (r"Depthwise|Separable", "use Conv1D or Conv2D"),
    (r"^Random", "change the examples before training instead"),
    (r"SpectralNormalization", "leave it out, or use weight decay"),
)  # fmt: skip


def check_layers_for_mesh(model: keras.Model) -> None:
    """InputError where a layer would give other numbers on a mesh than on one device."""
    for layer in model._flatten_layers():
        if isinstance(layer, ExampleWeightedBatchNormalization) and not layer.synchronized:
            raise InputError(
                "local batch normalization does not work with --backend=dtensor, whose layers see the global batch; "
                "use model.batch_normalization=synchronized"
            )


def _make_constants(model: keras.Model) -> None:
    """Tensors that layers keep beside their weights, as an adapted Normalization its mean, become NumPy's arrays.

    A graph holds these itself; a tensor comes into it from outside, where DTensor takes its own alone.
    """
    for layer in model._flatten_layers():
        for name, value in vars(layer).items():
            if isinstance(value, tf.Tensor) and hasattr(value, "numpy") and value.shape.rank:
                setattr(layer, name, value.numpy())


def explain(
    error: Exception, model: keras.Model, functions: Mapping[str, Metric], signature: Any
) -> InputError | None:
    """DTensor's refusal of an operation in one line; None where the error is another one.

    The step is compiled as a whole, so DTensor names no layer. Each layer is traced again, alone, until the operation
    is found, and after the layers the loss and the metrics. `functions` has these by their names in the message,
    `signature` the specs of their labels and outputs.
    """
    text = str(error)
    if "was expecting a DTensor" in text:
        return InputError(
            "a layer keeps a tensor beside its weights, which no mesh takes; let it be a NumPy array, or a weight with "
            "trainable=False, or use backend='single' or 'horovod'"
        )
    without_rule = _NO_RULE.search(text)
    if not without_rule and "SPMD expansion" not in text:
        return None
    operation = without_rule or _OPERATION.search(text)
    name = operation[1] if operation else ""
    reason = f"DTensor has no rule for {name}"
    if not without_rule:
        failed = _FAILED.search(text)
        reason = f"DTensor cannot divide {name or 'an operation'}: {failed[1] if failed else ''}"
    layer = next((layer for layer in _innermost(model) if name in _operations(layer)), None)
    where = f"layer '{layer.name}' ({type(layer).__name__})" if layer else "the model"
    instead = "use another layer"
    if not layer:
        for called, function in functions.items():
            if signature and name in _operations_of_sums(function, *signature):
                where, instead = called, "compute it from the predictions, or use another one"
                break
    for pattern, advice in _INSTEAD:
        if layer and re.search(pattern, type(layer).__name__):
            instead = advice
            break
    return InputError(
        f"{where} does not run on a mesh: {reason.rstrip()}; {instead}, or backend='single' or 'horovod'"
    )


def _innermost(model: keras.Model) -> list[keras.layers.Layer]:
    """Layers that were called with inputs known here; of nested ones the outer where the inner were not."""
    return [
        layer
        for layer in model._flatten_layers(include_self=False)
        if getattr(layer, "_inbound_nodes", None)
        and not isinstance(layer, keras.Model | keras.layers.InputLayer)
    ]


def _operations(layer: keras.layers.Layer) -> set[str]:
    """Types of the operations of a layer, forward and backward."""
    arguments = layer._inbound_nodes[0].arguments

    def forward_and_backward(*inputs: Any) -> Any:
        weights = [variable.value for variable in layer.trainable_variables]
        floats = [tensor for tensor in inputs if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch([*floats, *weights])
            given, options = arguments.fill_in(
                dict(zip(map(id, arguments.keras_tensors), inputs, strict=True))
            )
            if layer._call_has_training_arg:
                options["training"] = True
            total = tf.add_n([tf.reduce_sum(y) for y in tf.nest.flatten(layer(*given, **options))])
        return tape.gradient(total, [*floats, *weights])

    specs = [tf.TensorSpec([2, *t.shape[1:]], t.dtype) for t in arguments.keras_tensors]
    return _traced(forward_and_backward, *specs)


def _operations_of_sums(function: Metric, labels: Any, outputs: Any) -> set[str]:
    """The same of a loss or metric."""

    def forward_and_backward(labels: Any, outputs: Any) -> Any:
        weights = tf.ones(tf.shape(tf.nest.flatten(outputs)[0])[:1])
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            total = sums_of(function, labels, outputs, weights)
        return total, tape.gradient(total, outputs)

    return _traced(forward_and_backward, labels, outputs)


def _traced(function: Callable[..., Any], *specs: Any) -> set[str]:
    """Types of all operations of a function."""
    try:
        graph = tf.function(function, autograph=False).get_concrete_function(*specs)
    except (TypeError, ValueError):
        return set()  # then another layer is found, or none
    definition = graph.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return {node.op for node in nodes}
