"""One process of a mesh: `[mpirun -np N] python -m THIS FOLDER MESH PRECISION CASE ...`.

A case is STAGE-OPTIMIZER[-flow[-fit]|-twice|-sharp]. Trains 20 steps of each case and compares every weight with a
plain Keras loop, and the state with what another backend makes of it; `fit` is what trains behind fits, its labels
interchangeable, `twice` computes activations twice, `sharp` takes sharpness-aware steps.
Says for each `HELD CASE`, and the largest share of the weights and slots that a device held.
Ends of plain loops are kept in FOLDER, for processes of other meshes and stages.
"""

import pathlib
import sys

from tfmat.config import MeshShape
from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras

RHO = 0.05  # of sharpness-aware steps


def make_optimizer(name):
    """A new Keras optimizer."""
    from tfmat_tests.backends.problem import OPTIMIZERS

    return OPTIMIZERS[name]()


def make_model(seed, uncertainty="none", representation="points"):
    """Its layers divide by 2."""
    from tfmat_tests.backends import problem

    terms = [[1], [0]] if representation == "fit" else ()
    kind = {"uncertainty": uncertainty, "representation": representation}
    return problem.make_model(**kind, hidden_units=(24,), terms=terms, seed=seed)


def plain_keras_loop(model, name, batches):
    """Keras's own train_on_batch."""
    from tfmat_tests.backends.problem import loss_of

    optimizer = make_optimizer(name)
    optimizer.build(model.trainable_variables)  # else Keras makes its graph twice
    model.compile(optimizer, loss=loss_of(model))
    for batch in batches:
        model.train_on_batch(*batch)


def plain_sharpness_aware_loop(model, name, batches):
    """The paper's algorithm."""
    from tfmat_tests.backends.problem import SharpnessAwareLoop

    SharpnessAwareLoop(model).train(make_optimizer(name), batches, RHO)


def plain_end(path, plain_loop, name, head, batches):
    """Weights after a plain loop: found in this file, or put there."""
    import numpy as np

    from tfmat.files import write_arrays

    if not path.exists():
        model = make_model(3, *head)
        plain_loop(model, name, batches)
        write_arrays(path, **{str(i): array for i, array in enumerate(model.get_weights())})
    with np.load(path) as arrays:
        return [arrays[str(i)] for i in range(len(arrays))]


def check(backend, name, ours, weights, precision, *head):
    """Every weight, and the way to another backend and back."""
    import numpy as np

    from tfmat.backends import make_backend
    from tfmat.backends.losses import per_example_function
    from tfmat.optimizers import make_functional
    from tfmat_tests.backends.problem import check_weights, loss_of

    check_weights(ours.get_weights(), weights, precision)
    single = make_backend("single")
    optimizer = make_functional(make_optimizer(name))
    again = make_model(3, *head)
    single.build(again, optimizer, per_example_function(loss_of(again)), {})
    before = backend.read()
    single.write(before)
    for key, array in single.read().items():
        np.testing.assert_array_equal(array, before[key])
    backend.write(single.read())
    for key, array in backend.read().items():
        np.testing.assert_array_equal(array, before[key])


def check_drift_is_found(backend):
    """The mesh's last device gets another step number than the others: its own variable, past DTensor."""
    import pytest
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    from tfmat.errors import WorkerLostError

    def change(number):
        if backend.rank == backend.world_size - 1:
            own = dtensor.unpack(backend._variables.slots[0].handle)[-1]
            tf.raw_ops.AssignAddVariableOp(resource=own, value=tf.constant(number, step.dtype))

    step = backend._variables.slots[0]
    last = backend.mesh_shape.num_devices - 1
    change(1)
    told = (
        f"device {last} differ from those of device 0; they began to between step 20 and step 21, "
        r"in slots/0 \(.*iteration"
    )
    with pytest.raises(WorkerLostError, match=told):
        backend.check_replicas(21)
    change(-1)
    backend.check_replicas(22)


def train_and_compare(folder, mesh, precision, case):
    """Every process does the same; what they print, rank 0 prints."""
    import numpy as np

    from tfmat.backends import make_backend
    from tfmat.backends.losses import per_example_function
    from tfmat.optimizers import make_functional
    from tfmat_tests.backends.problem import loss_of

    stage, name, *head = case.split("-")
    processes = find_processes()
    recompute = "every:1" if "twice" in head else "none"
    rho = RHO if "sharp" in head else None
    plain_loop = plain_sharpness_aware_loop if rho else plain_keras_loop
    head = [each for each in head if each not in ("twice", "sharp")]
    options = {"zero_stage": int(stage), "recompute": recompute}
    with make_backend("dtensor", mesh=mesh, **options) as backend:
        assert (backend.rank, backend.world_size) == (processes.rank, processes.size)
        random = np.random.default_rng(0)
        features = random.normal(size=(400, 48, 3)).astype(precision)
        labels = random.uniform(size=(400, 2)).astype(precision)
        indices = np.array([random.permutation(400)[:75] for _ in range(20)], np.int32)
        weights = np.ones(indices.shape, np.float32)
        weights[13, 60:] = 0  # a partial batch; and 75 divides by no even axis
        # What rank 0 does not say must not matter.
        ours = make_model(3 + backend.rank, *head)
        optimizer = make_functional(make_optimizer(name), sam_rho=rho)
        backend.build(ours, optimizer, per_example_function(loss_of(ours)), {})
        backend.synchronize()
        data = backend.place((features, labels))
        for part in (slice(0, 7), slice(7, 20)):
            backend.train(data, indices[part], weights[part], weights[part].sum(axis=1))
        backend.check_replicas(20)
        backend.sync_model()
        chosen = [rows[there > 0] for rows, there in zip(indices, weights, strict=True)]
        batches = [(features[rows], labels[rows]) for rows in chosen]
        path = folder / "-".join([precision, plain_loop.__name__, name, *head, "end.npz"])
        weights = plain_end(path, plain_loop, name, head, batches)
        check(backend, name, ours, weights, precision, *head)
        assert backend.collectives.broadcast(("said by", backend.rank)) == ("said by", 0)
        assert backend.collectives.gather(backend.rank) == list(range(backend.world_size))
        assert backend.collectives.maximum(-backend.rank) == 0
        if backend.mesh_shape.num_devices > 1:
            check_drift_is_found(backend)
        held = backend.bytes_per_device()
        assert len(held["weights"]) == len(held["slots"]) == backend.mesh_shape.num_devices
        whole = sum(weight.nbytes for weight in weights)
        if backend.rank == 0:
            print(
                "HELD", case, max(held["weights"]) / whole, max(held["slots"]) / whole, flush=True
            )


def main(folder, mesh, precision, *cases):
    """All cases, one after the other."""
    processes = find_processes()
    num_devices = MeshShape.parse(mesh).devices_per_process(processes.size)
    prepare_tensorflow(virtual_devices=num_devices, start=processes.size == 1)
    import keras

    keras.config.set_floatx(precision)
    keras.config.set_dtype_policy(precision)
    for case in cases:
        train_and_compare(pathlib.Path(folder), mesh, precision, case)


if __name__ == "__main__":
    main(*sys.argv[1:])
