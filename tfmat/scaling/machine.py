"""What is started, and on what: a way to train or to sum, and the machine that has room for it or has not."""

import dataclasses
import os
import pathlib
import shutil
from typing import Any


@dataclasses.dataclass(frozen=True)
class Way:
    """What processes of a launch have in common: what is measured, but for the batch. See Runs and AllReduces.

    Attributes:
      kind: `steps`, `training`, or `allreduce`.
    """

    kind: str
    backend: str
    workers: int
    collectives: str = ""
    transport: str = ""
    mesh: str = ""
    zero_stage: int = 0
    updates: str = ""
    model: str = "default"
    dataset_size: int = 1
    placement: str = ""
    train_for: str = ""

    def __str__(self) -> str:
        what = "all-reduce" if self.kind == "allreduce" else self.backend.replace("_", " ")
        what = "independent processes" if what == "single" and self.workers > 1 else what
        parts = [what, self.updates, self.collectives, self.transport, self.mesh]
        parts += [f"ZeRO {self.zero_stage}"] if self.zero_stage else []
        parts += ["1 worker" if self.workers == 1 else f"{self.workers} workers"]
        parts += [f"model {self.model}"] if self.model != "default" else []
        parts += [f"{self.dataset_size:,} examples, {self.train_for}"] if self.train_for else []
        parts += [self.placement] if self.placement == "spread" else []
        return ", ".join(part for part in parts if part)


@dataclasses.dataclass(frozen=True)
class Machine:
    """Local, or a kind of SLURM node.

    Attributes:
      hardware: its name in the measurements.
      processors: that may be used on one node.
      workers_per_node: that a node takes without being oversubscribed.
      horovod: libraries that Horovod was built with: `mpi`, `gloo`, `nccl`; empty without Horovod.
      mpirun, mpi4py, infiniband: whether they are there.
      gpus: number of them.
      slurm: whether each launch is a job; then `most_nodes` is the most that one gets, None for no limit.
    """

    hardware: str
    processors: int
    workers_per_node: int
    horovod: frozenset[str] = frozenset()
    mpirun: bool = False
    mpi4py: bool = False
    infiniband: bool = False
    gpus: int = 0
    slurm: bool = False
    most_nodes: int | None = None

    def nodes_of(self, way: Way) -> int:
        """Nodes that a way takes."""
        if not self.slurm:
            return 1
        if way.placement == "spread":
            return min(way.workers, self.most_nodes or way.workers)
        return -(-way.workers // self.workers_per_node)

    def is_oversubscribed(self, way: Way) -> bool:
        """Whether a node gets more workers than it has processors for."""
        return -(-way.workers // self.nodes_of(way)) > self.workers_per_node


def local_machine(
    session: dict[str, Any], found: dict[str, Any], processors_a_worker: int, hardware: str
) -> Machine:
    """This machine.

    Args:
      session: of `tfmat.launch.provenance.describe_session`.
      found: what describe.py found.
      processors_a_worker: of the study.
      hardware: a name for it, "" for the processor's.
    """
    processors = len(os.sched_getaffinity(0))
    gpus = session["machine"]["gpus"]
    name = gpus[0] if gpus else session["machine"]["processor"]
    return Machine(
        hardware=hardware or f"{name}, {processors} processors",
        processors=processors,
        workers_per_node=max(1, processors // processors_a_worker),
        horovod=frozenset(found["horovod"]),
        mpirun=shutil.which("mpirun") is not None,
        mpi4py=found["mpi4py"],
        infiniband=any(pathlib.Path("/sys/class/infiniband").glob("*")),
        gpus=len(gpus),
    )
