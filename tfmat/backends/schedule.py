"""Pipeline stages before anything is made: which process is which stage, what it does in a step and when, and refusals.

A batch goes through the stages as micro-batches. No TensorFlow in here.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfmat.backends.mesh import BATCH, MeshShape
from tfmat.backends.options import BackendOptions
from tfmat.errors import InputError

STAGE = "stage"
SCHEDULES = ("gpipe", "1f1b")
# Backends whose processes can be stages.
TRANSPORTS = ("horovod", "mpi")
# A step is one graph that holds each micro-batch by itself.
MOST_MICRO_BATCHES = 64
_MICRO_BATCHES_PER_STAGE = 4


class Work(NamedTuple):
    """What a stage does next: the forward or the backward pass of a micro-batch."""

    is_forward: bool
    micro_batch: int


def order_of_work(schedule: str, stage: int, num_stages: int, micro_batches: int) -> list[Work]:
    """What one stage does in a step, in order.

    `gpipe` (Huang et al. 2019, arXiv:1811.06965) runs all forward passes, then all backward passes. `1f1b` (Narayanan
    et al. 2019, PipeDream; without stale weights: PipeDream-Flush, 2021, arXiv:2104.04473) begins a backward pass as
    soon as it can, so that a stage holds the activations of no more micro-batches than there are stages from it on.
    """
    ahead = micro_batches
    if schedule == "1f1b":
        ahead = min(num_stages - 1 - stage, micro_batches)
    work = [Work(True, i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        work += [Work(True, ahead + i), Work(False, i)]
    return work + [Work(False, i) for i in range(micro_batches - ahead, micro_batches)]


def most_held(work: Sequence[Work]) -> int:
    """Micro-batches whose activations a stage holds at once."""
    held = np.cumsum([1 if each.is_forward else -1 for each in work])
    return int(held.max())


def bubble(num_stages: int, micro_batches: int) -> float:
    """Share of a step in which a stage waits for others, where all stages take equally long (arXiv:1811.06965, 2.3)."""
    return (num_stages - 1) / (micro_batches + num_stages - 1)


@dataclasses.dataclass(frozen=True)
class Place:
    """One process among stages and replicas.

    Attributes:
      stage, num_stages: its part of the network.
      replica, num_replicas: its part of each global batch.
      chain: ranks of its replica, by stage.
      peers: ranks of its stage, by replica.
    """

    stage: int
    num_stages: int
    replica: int
    num_replicas: int
    chain: tuple[int, ...]
    peers: tuple[int, ...]

    @classmethod
    def of(cls, mesh: MeshShape, rank: int) -> "Place":
        """That of a rank; neighbours on the mesh's last axis are neighbouring ranks."""
        ranks = np.arange(mesh.num_devices).reshape([size for _, size in mesh.axes])
        if BATCH not in mesh.names:
            ranks = ranks[..., None]
        elif mesh.names.index(BATCH) == 0:
            ranks = ranks.T
        ((stage, replica),) = np.argwhere(ranks == rank)
        chain, peers = map(int, ranks[:, replica]), map(int, ranks[stage])
        return cls(int(stage), len(ranks), int(replica), ranks.shape[1], (*chain,), (*peers,))


def has_stages(mesh: MeshShape) -> bool:
    """Whether the network is divided into stages."""
    return mesh.size(STAGE) > 1


def micro_batches_of(options: BackendOptions) -> int:
    """Micro-batches of a step: those asked for, or four for each stage."""
    return options.micro_batches or _MICRO_BATCHES_PER_STAGE * options.mesh.size(STAGE)


def check_mesh(options: BackendOptions, backend: str) -> None:
    """InputError where a mesh with stages, or of a backend whose processes are its devices, cannot be had."""
    mesh, processes = options.mesh, options.processes
    if backend not in TRANSPORTS:
        if STAGE in mesh.names:
            raise InputError(
                f"mesh {mesh}: the axis {STAGE} is for --backend={' or '.join(TRANSPORTS)}, each of whose processes "
                f"takes a part of the network; --backend={backend} has no stages"
            )
        return
    if not has_stages(mesh):
        for key, value in (("stages", options.stages), ("micro_batches", options.micro_batches)):
            if value:
                raise InputError(
                    f"{key}={value} is for pipeline stages; give a mesh such as {STAGE}:2 with it, or leave it out"
                )
        return
    for name in mesh.names:
        if name not in (BATCH, STAGE):
            raise InputError(
                f"mesh {mesh}: --backend={backend} has the axes {BATCH} and {STAGE}; {name} is for --backend=dtensor, "
                "which has no stages"
            )
    if mesh.num_devices != processes.size:
        raise InputError(
            f"mesh {mesh} is for {mesh.num_devices} processes, there {_are(processes.size)}; start "
            f"{mesh.num_devices} (mpirun -np {mesh.num_devices}), or give another mesh"
        )
    _check_with_stages(options)


def _check_with_stages(options: BackendOptions) -> None:
    for key, neutral in (
        ("compression", "none"),
        ("local_steps", 1),
        ("zero_stage", 0),
        ("accumulate", 1),
        ("reduction", "flat"),
        ("bucket_mb", None),
    ):
        value = getattr(options, key)
        if value != neutral:
            instead = ", use more micro_batches" if key == "accumulate" else ""
            raise InputError(
                f"{key}={value} does not work with pipeline stages; leave it out{instead}"
            )
    if options.schedule not in SCHEDULES:
        raise InputError(f"schedule={options.schedule}; give {' or '.join(SCHEDULES)}")
    count = micro_batches_of(options)
    if not 1 <= count <= MOST_MICRO_BATCHES:
        raise InputError(f"micro_batches={count}; give 1 to {MOST_MICRO_BATCHES}")


def _are(count: int) -> str:
    return f"are {count}" if count > 1 else "is one"
