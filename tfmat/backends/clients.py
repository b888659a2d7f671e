"""Several processes that share one mesh: DTensor's clients, set up from what the launcher says.

TensorFlow's own service that watches the clients stays off: it ends a process without a word. The watchdog does that,
and knows what is no fault.
"""

import os
import socket
import sys
import time
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor

from tfmat.backends.mesh import MeshShape
from tfmat.errors import InputError
from tfmat.ranks.ending import START_TIMEOUT, WORKER_TIMEOUT, OnLoss, seconds_setting, start_timer
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

# TensorFlow joins once in a process.
_joined: list[str] = []


def join(processes: Processes, mesh_shape: MeshShape, folder: str, on_loss: OnLoss) -> Star:
    """Makes this process one client of the mesh; returns when all have become that, and are watched.

    Args:
      processes: this one among the others.
      mesh_shape: of all of them; each gets the same number of its devices.
      folder: that all can see, where they are on several nodes.
      on_loss: see `tfmat.ranks.rendezvous.meet`.

    Raises:
      InputError: the mesh cannot be shared out, is larger than the devices, or TensorFlow has started already.
    """
    check_not_refused("--backend=dtensor over several processes")
    kind = "" if _joined else _choose_devices(processes, mesh_shape)
    timeout, seconds = seconds_setting(WORKER_TIMEOUT), seconds_setting(START_TIMEOUT)
    deadline = time.monotonic() + seconds
    with start_timer(processes.rank, seconds + 5):  # TensorFlow itself may wait without end
        star = meet(processes, ByNote(processes, folder), deadline, on_loss)
        if not _joined:
            _joined.append(_join_tensorflow(kind, processes, star))
        star.watch(timeout, deadline)
    return star


def _join_tensorflow(kind: str, processes: Processes, star: Star) -> str:
    """TensorFlow's servers, guarded; returns where they are."""
    addresses = star.addresses()
    with socket.create_server(("", 0)) as held:  # until all have theirs: two may be on one host
        ports = star.gather(held.getsockname()[1])
        star.barrier()
    places = star.gather(Neighbour.here())
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
