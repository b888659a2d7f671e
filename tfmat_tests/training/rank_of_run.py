"""One rank of a run of the Trainer that stops or fails where a test wants it.

`[mpirun -np N] python -m tfmat_tests.training.rank_of_run '{"workdir": ..., ...}' ...`; see `Settings`.
Several runs come one after the other in the same processes, since TensorFlow takes seconds to start; the exit status is
the last one's, and WORKDIR.ended says of each run what its own is.
"""

import dataclasses
import json
import os
import pathlib
import signal
import sys

import numpy as np

from tfmat.config import MeshShape
from tfmat.errors import TfmatError
from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras


@dataclasses.dataclass
class Settings:
    """What the run does.

    Attributes:
      workdir: of the run.
      backend: its name.
      mesh: of the backend dtensor.
      total_steps: of 100 examples each, in epochs of 10 steps; a checkpoint every 5.
      signal_at: the last rank sends itself SIGUSR1 after this step.
      fault: "exception", "SIGKILL", "SIGSTOP", "disk" or none, met by `rank` in `phase`.
      phase: "start", "training", "validation" or "checkpoint".
      fewer_examples: the last rank has one example less than the others.
      sharding: see `Trainer.fit`.
      validation: after each epoch, on 200 examples.
      record_batches: each rank writes the labels that it trained on to WORKDIR-RANK.npy, in their order.
      hidden_units: of the one dense layer.
      options: of the backend.
      skip_reduce: on the last rank, step 12 is done with its own gradients alone.
    """

    workdir: str
    backend: str = "horovod"
    mesh: str = "batch:1"
    total_steps: int = 30
    signal_at: int = -1
    fault: str = ""
    rank: int = 0
    phase: str = ""
    skip_reduce: bool = False
    fewer_examples: bool = False
    sharding: str = "partition"
    validation: bool = True
    record_batches: bool = False
    hidden_units: int = 25
    options: dict = dataclasses.field(default_factory=dict)


def meet(fault):
    """Here it happens."""
    if fault == "exception":
        raise RuntimeError("a defect in one rank")
    if fault == "disk":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    elif fault:
        os.kill(os.getpid(), getattr(signal, fault))


def before(function, action):
    """`function`, after `action`."""

    def both(*arguments):
        action()
        return function(*arguments)

    return both


def callback(settings, backend):
    """A Keras callback for what happens after a step, or before the first."""
    import keras

    class Events(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            if settings.phase == "start" and backend.rank == settings.rank:
                meet(settings.fault)

        def on_train_batch_end(self, batch, logs=None):
            if settings.phase == "training" and backend.rank == settings.rank and batch >= 12:
                meet(settings.fault)
            if batch + 1 >= settings.signal_at >= 0 and backend.rank == backend.world_size - 1:
                os.kill(os.getpid(), signal.SIGUSR1)

    return Events()


def skip_one_reduction(backend, train):
    """The defect that Horovod's own Keras wrapper can have: a step without the others' gradients."""
    import tensorflow as tf

    steps, collectives = 0, backend.collectives
    own_sum = collectives._sum

    def train_and_skip(*block):
        nonlocal steps
        if steps <= 12 < steps + len(block[1]):
            # As many collectives as the others do, and their result thrown away.
            collectives._sum = lambda tensors: [
                tensor + 0 * total for tensor, total in zip(tensors, own_sum(tensors), strict=True)
            ]
            backend._functions.clear()
            tf.get_logger().setLevel("ERROR")
        steps += len(block[1])
        sums = train(*block)
        if collectives._sum is not own_sum:
            collectives._sum = own_sum
            backend._functions.clear()
        return sums

    return train_and_skip


def record_batches(backend):
    """A list that receives the labels of each training block, [steps * batch, 2]."""
    train, found = backend.train, []

    def train_and_record(data, indices, *rest):
        found.append(np.asarray(data[1])[indices.ravel()])
        return train(data, indices, *rest)

    backend.train = train_and_record
    return found


def main(settings):
    """Trains; ends with the exit status of the error, as the command line does."""
    processes = find_processes()
    devices = (
        MeshShape.parse(settings.mesh).devices_per_process(processes.size)
        if settings.backend == "dtensor"
        else 1
    )
    prepare_tensorflow(
        one_thread_an_operation=settings.backend != "dtensor",
        processors=1,
        gpu=processes.local_rank,
        virtual_devices=devices,
        start=settings.backend != "dtensor" or processes.size == 1,
    )
    import tfmat
    from tfmat.backends import make_backend
    from tfmat_tests.backends.problem import DENSE, OPTIMIZERS, make_data, make_model, set_precision

    backend = make_backend(settings.backend, mesh=settings.mesh, **settings.options)
    with backend:
        set_precision("float64")
        features, labels = (array[:1000] for array in make_data())
        mine = backend.rank == settings.rank
        for phase, name in (("validation", "evaluate"), ("checkpoint", "read_for_file")):
            if mine and settings.phase == phase:
                wrapped = before(getattr(backend, name), lambda: meet(settings.fault))
                setattr(backend, name, wrapped)
        if settings.skip_reduce and backend.rank == backend.world_size - 1:
            backend.train = skip_one_reduction(backend, backend.train)
        if settings.fewer_examples and backend.rank == backend.world_size - 1:
            features, labels = features[:-1], labels[:-1]
        batches = record_batches(backend) if settings.record_batches else []
        trainer = tfmat.Trainer(
            # Nothing here depends on the network, and a smaller graph is made sooner.
            make_model(**DENSE, hidden_units=(settings.hidden_units,)),
            optimizer=OPTIMIZERS["nesterov"](),
            backend=backend,
            workdir=settings.workdir,
            callbacks=[callback(settings, backend)],
            seed=5,
            steps_per_call=5,
            checkpoint_every="5steps",
            keep_checkpoints=9,
        )
        trainer.fit(
            features,
            labels,
            global_batch_size=100,
            train_for=f"{settings.total_steps}steps",
            validation=(features[:200], labels[:200]) if settings.validation else None,
            shard_size=1024,
            sharding=settings.sharding,
        )
        if settings.record_batches:
            np.save(f"{settings.workdir}-{backend.rank}.npy", np.concatenate(batches))


if __name__ == "__main__":
    status = 0
    for text in sys.argv[1:]:
        settings, status = Settings(**json.loads(text)), 0
        try:
            main(settings)
        except TfmatError as error:
            if not error.said_elsewhere:
                print(f"tfmat: {error}", file=sys.stderr, flush=True)
            status = error.exit_status
        pathlib.Path(f"{settings.workdir}.ended").write_text(str(status))
    sys.exit(status)
