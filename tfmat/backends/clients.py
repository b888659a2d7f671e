"""Several processes that share one mesh: DTensor's clients, set up from what the launcher says.

TensorFlow's own service that watches the clients stays off: it ends a process without a word. The star does that, and
knows what is no fault.
"""

import contextlib
import dataclasses
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor

from tfmat.backends.collectives import Collectives
from tfmat.backends.mesh import BATCH, MeshShape
from tfmat.backends.mesh_tensors import MeshTensors
from tfmat.backends.sums import repeated_mesh_sums
from tfmat.errors import InputError, WorkerLostError
from tfmat.ranks.ending import START_TIMEOUT, WORKER_TIMEOUT, seconds_setting, start_timer
from tfmat.ranks.port_guard import (
    Neighbour,
    PortGuard,
    check_not_refused,
    describe_ports,
    guard_port,
)
from tfmat.ranks.processes import Processes
from tfmat.ranks.rendezvous import ByNote, meet
from tfmat.ranks.star import Star

# TensorFlow joins once in a process; where its servers are.
_joined: list[str] = []


class MeshCollectives(Collectives):
    """The collectives of processes that share a mesh; sums over its devices are DTensor's own, inside of the step.

    Args:
      processes: this one among the others.
      mesh_shape: of all of them; each gets the same number of its devices.
      folder: that all can see, where they are on several nodes.
    """

    def __init__(self, processes: Processes, mesh_shape: MeshShape, folder: str):
        self.processes, self._mesh_shape, self._folder = processes, mesh_shape, folder
        self._tensors: MeshTensors | None = None

    def start(self) -> None:
        """See Collectives.start: makes this process one client of the mesh.

        Raises:
          InputError: the mesh cannot be shared out, is larger than the devices, or TensorFlow has started already.
        """
        if self._tensors:
            return
        self.rank, self.size = self.processes.rank, self.processes.size
        if self.size > 1:
            self._star = self._join(self.processes)
        mesh = make_mesh(self._mesh_shape, self.size)
        self._tensors = MeshTensors(mesh, self._mesh_shape, self.rank, self.size)

    def _join(self, processes: Processes) -> Star:
        check_not_refused("--backend=dtensor over several processes")
        kind = "" if _joined else _choose_devices(processes, self._mesh_shape)
        timeout, seconds = seconds_setting(WORKER_TIMEOUT), seconds_setting(START_TIMEOUT)
        deadline = time.monotonic() + seconds
        with start_timer(self.rank, seconds + 5):  # TensorFlow itself may wait without end
            star = meet(processes, ByNote(processes, self._folder), deadline, self._on_loss)
            if not _joined:
                _joined.append(_join_tensorflow(kind, processes, star))
            star.watch(timeout, deadline)
        return star

    @property
    def tensors(self) -> MeshTensors:
        """What packs arrays onto the mesh."""
        if self._tensors is None:
            raise InputError("the backend of a mesh is not started; call its start() first")
        return self._tensors

    def broadcast(self, value: Any) -> Any:
        """See Collectives.broadcast."""
        return value if self.size == 1 else self._with_star(lambda star: star.broadcast(value))

    def gather(self, value: Any) -> list[Any]:
        """See Collectives.gather."""
        if self.size == 1:
            return [value]
        found: list[Any] = self._with_star(lambda star: star.gather(value))
        return found

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        """See Collectives.repeated_sums: over the devices of the batch axis."""
        num_devices = self._mesh_shape.size(BATCH)
        if num_devices == 1:
            return super().repeated_sums(num_values)
        return repeated_mesh_sums(self.tensors, BATCH, num_devices, num_values)

    def _with_star(self, action: Callable[[Star], Any]) -> Any:
        if self._star is None:
            raise WorkerLostError("the processes of this mesh are not joined, or have parted")
        with self.losses_told():
            return action(self._star)

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
    """CPU or GPU; of a node's GPUs those of this process, where the launcher has not done that."""
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
