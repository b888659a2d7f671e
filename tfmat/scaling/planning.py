"""Which launches a round of a study still needs, in which order, and what each of their processes is told."""

import dataclasses
import os
import pathlib
import random
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from tfmat.config import Config
from tfmat.errors import InputError
from tfmat.files import as_json
from tfmat.launch.hosts import Host, count_ranks
from tfmat.scaling.exchanges import with_exchange
from tfmat.scaling.laboratory import Launch, folder_name
from tfmat.scaling.matrix import BASELINES, Matrix, config_of_model
from tfmat.scaling.measurements import LeftOut, Measurements, Model, Point
from tfmat.scaling.variants import Group, Task, Variant, expand

# Trainings have rounds of their own, so that none is taken for a repetition that only timed its steps.
TRAINING_ROUNDS_FROM = 1000
_OUTSIDE_OF_WORKERS = 2  # a parameter server's chief and server
# Seconds of a quiet machine: a process' start, compiling for one batch size, all-reduces of one size.
_START, _COMPILING, _ONE_SIZE = 9.0, 2.5, 0.4


@dataclasses.dataclass(frozen=True)
class Machine:
    """This one, several that mpirun reaches, or a kind of SLURM node.

    Attributes:
      hardware: its name in the measurements.
      processors: that may be used on one node.
      workers_per_node: that a node takes without being oversubscribed.
      sums_with: libraries that Horovod was built with, `mpi`, `gloo`, `nccl`, and `mpi4py` where it is there.
      mpirun, infiniband: whether they are there.
      gpus: number of them.
      slurm: whether each launch is a job; then `most_nodes` is the most that one gets, None for no limit.
      hosts: the machines over which mpirun starts a launch; none for this one alone.
    """

    hardware: str
    processors: int
    workers_per_node: int
    sums_with: frozenset[str] = frozenset()
    mpirun: bool = False
    infiniband: bool = False
    gpus: int = 0
    slurm: bool = False
    most_nodes: int | None = None
    hosts: tuple[Host, ...] = ()

    def nodes_of(self, variant: Variant) -> int:
        """Nodes that a variant takes."""
        if variant.num_processes == 1 or not (self.slurm or self.hosts):
            return 1
        if variant.placement == "spread":
            return min(variant.workers, self.most_nodes or variant.workers)
        return -(-variant.workers // self.workers_per_node)

    def is_oversubscribed(self, variant: Variant) -> bool:
        """Whether a node gets more workers than it has processors for."""
        return -(-variant.workers // self.nodes_of(variant)) > self.workers_per_node


def local_machine(
    session: dict[str, Any], sums_with: set[str], matrix: Matrix, hosts: tuple[Host, ...] = ()
) -> Machine:
    """This machine, or several like it.

    Args:
      session: of `tfmat.launch.provenance.describe_session`.
      sums_with: as runner.py finds it.
      matrix: says what a worker gets of it, and may name it.
      hosts: machines over which launches go, each with as many workers; none for this one alone.

    Raises:
      InputError: the machines take different numbers of workers.
    """
    if len({host.slots for host in hosts}) > 1:
        raise InputError(
            f"--hosts={','.join(map(str, hosts))}: a study needs machines alike; give each as many workers"
        )
    processors = len(os.sched_getaffinity(0))
    gpus = session["machine"]["gpus"]
    name = gpus[0] if gpus else session["machine"]["processor"]
    return Machine(
        hardware=matrix.hardware or f"{name}, {processors} processors",
        processors=processors,
        workers_per_node=(
            hosts[0].slots if hosts else max(1, processors // matrix.processors_a_worker)
        ),
        sums_with=frozenset(sums_with),
        mpirun=shutil.which("mpirun") is not None,
        infiniband=any(pathlib.Path("/sys/class/infiniband").glob("*")),
        gpus=len(gpus),
        most_nodes=len(hosts) or None,
        hosts=hosts,
    )


@dataclasses.dataclass(frozen=True)
class Study:
    """What is measured, where, on which data.

    Attributes:
      config, matrix, machine: as they are.
      models: by their names.
      dataset: folder of the packed data set that all processes read.
      watch: number of the process with which its processes end; None for those of other machines.
    """

    config: Config
    matrix: Matrix
    machine: Machine
    models: Mapping[str, Model]
    dataset: pathlib.Path
    watch: int | None = None

    def place(self, variant: Variant) -> dict[str, Any]:
        """Where a variant runs and what its messages go over, as Point and AllReduce have it."""
        nodes = self.machine.nodes_of(variant)
        return {
            "workers": variant.workers,
            "hardware": self.machine.hardware,
            "transport": variant.medium,
            "nodes": nodes,
            "ranks_per_node": -(-variant.workers // nodes),
            "oversubscribed": self.machine.is_oversubscribed(variant),
        }

    def point(self, variant: Variant, task: Task) -> Point:
        """What a task measures, as the file has it."""
        server = variant.backend == "parameter_server"
        place = self.place(variant)
        try:
            return Point(
                backend=variant.backend,
                global_batch_size=task.global_batch_size,
                batch_a_worker=task.batch_a_worker,
                scaling=task.scaling,
                model=self.models[variant.model],
                dataset_size=variant.dataset_size,
                processors_a_worker=self.matrix.processors_a_worker,
                collectives=f"{variant.updates} updates" if server else variant.collectives,
                mesh=variant.mesh,
                zero_stage=variant.zero_stage,
                exchange=variant.exchange,
                placement=variant.placement if place["nodes"] > 1 else "",
                **place,
            )
        except InputError as error:
            raise InputError(f"{variant}: {error}") from error

    def _config(self, variant: Variant) -> Config:
        config = config_of_model(self.config, self.matrix, variant.model)
        return with_exchange(config, variant.exchange)

    def groups(self) -> tuple[list[Group], list[LeftOut]]:
        """What can be measured here, and what cannot, with the reasons."""
        found, left_out = [], []
        for group in expand(self.matrix):
            reason = unavailable(group.variant, self.matrix, self.machine)
            if reason is None:
                found.append(group)
            else:
                left_out.append(LeftOut(str(group), reason))
        return found, left_out

    def rounds(self, done: Measurements, folder: pathlib.Path) -> list[list[Launch]]:
        """What each round still needs, in an order of its own, which a seed fixes."""
        groups, _ = self.groups()
        last = max([g.rounds for g in groups] + [t.rounds for g in groups for t in g.tasks], default=0)  # fmt: skip
        planned = []
        for number in range(last):
            of_round = list(self._missing(groups, number, done, folder))
            random.Random(f"{self.matrix.seed}-{number}").shuffle(of_round)
            planned.append(of_round)
        return planned

    def _missing(
        self, groups: list[Group], number: int, done: Measurements, folder: pathlib.Path
    ) -> Iterator[Launch]:
        repetitions = {(each.point, each.round) for each in done.repetitions}
        keys = ("library", "transport", "workers", "nodes", "hardware", "round")
        sums = {tuple(getattr(each, key) for key in keys) for each in done.allreduces}
        for group in groups:
            variant = group.variant
            stored = number + (TRAINING_ROUNDS_FROM if variant.kind == "training" else 0)
            tasks = tuple(
                task
                for task in group.tasks
                if number < task.rounds and (self.point(variant, task), stored) not in repetitions
            )
            of_sums = {**self.place(variant), "library": variant.collectives, "round": number}
            if tasks or (number < group.rounds and tuple(map(of_sums.get, keys)) not in sums):
                yield self._launch(dataclasses.replace(group, tasks=tasks), stored, folder)

    def _launch(self, group: Group, number: int, folder: pathlib.Path) -> Launch:
        variant, matrix = group.variant, self.matrix
        split = number < matrix.split_rounds
        a_task = (_COMPILING + matrix.seconds) + split * (_COMPILING + matrix.seconds / 2)
        guess = _START + a_task * len(group.tasks) + _ONE_SIZE * len(group.sizes)
        gradients = {model.gradient_bytes for model in self.models.values()}
        server = variant.backend == "parameter_server"
        nodes = self.machine.nodes_of(variant)
        devices = variant.workers if variant.has_devices else 1
        processors = matrix.processors_a_worker * devices
        spec = {
            "program": _program(variant),
            "variant": dataclasses.asdict(variant),
            "tasks": [dataclasses.asdict(task) for task in group.tasks],
            "sizes": sorted({*group.sizes, *gradients}) if group.sizes else [],
            "config": as_json(self._config(variant).to_dict()),
            "dataset": str(self.dataset),
            "dataset_size": variant.dataset_size,
            "processors": processors,
            "unbound": _OUTSIDE_OF_WORKERS if server else 0,
            "seconds": matrix.seconds,
            "split": split,
            "environment": _environment(variant),
            "watch": self.watch,
        }
        return Launch(
            name=str(group),
            variant=str(variant),
            round=number,
            folder=folder / folder_name(number, str(group)),
            spec=spec,
            num_processes=variant.num_processes,
            nodes=nodes,
            processors=processors,
            gpus=0 if server else matrix.gpus_a_worker * variant.workers,
            gloo=variant.collectives == "gloo",
            hosts=_filled(self.machine.hosts[:nodes], variant.num_processes),
            guess=guess * max(1.0, variant.num_processes / self.machine.processors),
        )


def unavailable(variant: Variant, matrix: Matrix, machine: Machine) -> str | None:
    """Why a variant cannot be had here, in one line; None where it can."""
    if variant.num_processes > 1 and not machine.mpirun and not machine.slurm:
        return "there is no mpirun; ./tools/setup horovod gets it"
    if variant.backend == "horovod" and variant.collectives not in machine.sums_with:
        built = ", ".join(sorted(machine.sums_with - {"mpi4py"})) or "no Horovod that works"
        return f"{variant.collectives} is not built into Horovod here (there is: {built})"
    if variant.collectives == "gloo" and (machine.slurm or machine.hosts):
        return "Gloo needs horovodrun, which is not started under SLURM or over several machines"
    if variant.collectives == "nccl" and not machine.gpus:
        return "nccl sums on GPUs, and there is none"
    if variant.backend in ("mpi4py", "mpi") and "mpi4py" not in machine.sums_with:
        return "mpi4py is not installed"
    if variant.transport == "rdma" and not machine.infiniband:
        return "there is no InfiniBand or RoCE device"
    if variant.placement == "spread" and not (machine.slurm or machine.hosts):
        return "one machine has nothing to spread over; use --launcher=slurm or --hosts"
    if not machine.slurm and variant.workers > matrix.most_workers:
        return f"more than most_workers={matrix.most_workers} on {machine.processors} processors"
    nodes = machine.nodes_of(variant)
    if machine.most_nodes and nodes > machine.most_nodes:
        known = "--hosts has" if machine.hosts else "--nodes is"
        return f"needs {nodes} nodes of {machine.workers_per_node} workers; {known} {machine.most_nodes}"
    return None


def _filled(hosts: tuple[Host, ...], processes: int) -> tuple[Host, ...]:
    """The hosts with as many of the processes as they take, one host after the other."""
    if processes == 1 or not hosts:
        return ()
    each = -(-processes // len(hosts))
    found: list[Host] = []
    for host in hosts:
        found.append(Host(host.name, min(each, processes - count_ranks(found))))
    return tuple(host for host in found if host.slots > 0)


def _program(variant: Variant) -> str:
    """What the processes call: see worker.py."""
    if variant.kind == "allreduce":
        return "tfmat.scaling.allreduce:measure_sums"
    if variant.backend == "parameter_server":
        return "tfmat.scaling.parameter_server:measure_parameter_server"
    if variant.backend in BASELINES:
        return f"tfmat.scaling.strategies:measure_{variant.backend}"
    return f"tfmat.scaling.step_times:measure_{variant.kind}"


def _environment(variant: Variant) -> dict[str, str]:
    """What makes the libraries take the transport."""
    found = {}
    if variant.backend == "horovod" and variant.collectives == "mpi":
        found["HOROVOD_CPU_OPERATIONS"] = "MPI"
    if variant.transport == "tcp":
        found |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "NCCL_IB_DISABLE": "1"}
    if variant.transport == "rdma":
        found |= {"OMPI_MCA_pml": "ucx"}
    return found
