"""Which launches a round still needs, in which order, and what each of their processes is told."""

import dataclasses
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tfmat.config import Config
from tfmat.files import make_folder, write_json
from tfmat.scaling.launches import (
    Launch,
    Task,
    expand,
    point_of,
    processes_of,
    transport_of,
    unavailable,
)
from tfmat.scaling.machine import Machine, Way
from tfmat.scaling.matrix import Matrix, config_of_model
from tfmat.scaling.measurements import LeftOut, Measurements, Model, Point
from tfmat.scaling.worker import SPEC

# Trainings have rounds of their own, so that none is taken for a repetition that only timed its steps.
TRAINING_ROUNDS_FROM = 1000


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

    def point(self, way: Way, task: Task) -> Point:
        """See point_of."""
        return point_of(way, task, self.matrix, self.machine, self.models)


@dataclasses.dataclass(frozen=True)
class Planned:
    """A launch of one round.

    Attributes:
      launch: with the tasks or sizes that are still missing.
      round: as the measurements have it.
      folder: for its files; absolute.
    """

    launch: Launch
    round: int
    folder: pathlib.Path

    @property
    def num_processes(self) -> int:
        """That are started."""
        return processes_of(self.launch.way)


def available_launches(study: Study) -> tuple[list[Launch], list[LeftOut]]:
    """Launches of a round that can be had here, and what cannot, with the reasons."""
    found, left_out = [], []
    for launch in expand(study.matrix):
        reason = unavailable(launch.way, study.matrix, study.machine)
        if reason is None:
            found.append(launch)
        else:
            left_out.append(LeftOut(str(launch), reason))
    return found, left_out


def rounds(
    study: Study, launches: Sequence[Launch], done: Measurements, folder: pathlib.Path
) -> list[list[Planned]]:
    """What each round still needs, in an order of its own, which a seed fixes."""
    repetitions = {(each.point, each.round) for each in done.repetitions}
    sums = {
        (each.library, each.transport, each.workers, each.nodes, each.hardware, each.round)
        for each in done.allreduces
    }
    planned = []
    for number in range(max((launch.rounds for launch in launches), default=0)):
        of_round = []
        for launch in launches:
            stored = number + (TRAINING_ROUNDS_FROM if launch.way.kind == "training" else 0)
            tasks = tuple(
                task
                for task in launch.tasks
                if number < task.rounds
                and (study.point(launch.way, task), stored) not in repetitions
            )
            where = sums_key(study, launch.way)
            missing_sums = launch.sizes and (*where, number) not in sums and number < launch.rounds
            if tasks or missing_sums:
                left = dataclasses.replace(launch, tasks=tasks)
                of_round.append(Planned(left, stored, folder / _folder_name(left, stored)))
        random.Random(f"{study.matrix.seed}-{number}").shuffle(of_round)
        planned.append(of_round)
    return planned


def sums_key(study: Study, way: Way) -> tuple[str, str, int, int, str]:
    """Library, transport, workers, nodes and hardware of all-reduces."""
    machine = study.machine
    nodes = machine.nodes_of(way)
    return way.collectives, transport_of(way), way.workers, nodes, machine.hardware


def _folder_name(launch: Launch, round_number: int) -> str:
    plain = "".join(letter if letter.isalnum() else "_" for letter in str(launch))
    return f"{round_number}-{plain}"[:120]


def write_spec(study: Study, planned: Planned) -> None:
    """Makes the launch's folder with what its processes are told."""
    launch, matrix = planned.launch, study.matrix
    way = launch.way
    tasks = tasks_in_order(planned)
    sizes = {*launch.sizes, *(model.gradient_bytes for model in study.models.values())}
    config = config_of_model(study.config, matrix, way.model)
    make_folder(planned.folder / "tmp")
    write_json(
        planned.folder / SPEC,
        {
            "program": _program(way),
            "way": dataclasses.asdict(way),
            "tasks": [dataclasses.asdict(task) for task in tasks],
            "sizes": sorted(sizes) if launch.sizes else [],
            "config": _plain(config.to_dict()),
            "dataset": str(study.dataset),
            "dataset_size": way.dataset_size,
            "processors": matrix.processors_a_worker,
            "seconds": matrix.seconds,
            "split": planned.round < matrix.split_rounds,
            "environment": {"TMPDIR": str(planned.folder / "tmp"), **_environment(way)},
            "watch": study.watch,
        },
    )


def _program(way: Way) -> str:
    """What the processes call: see worker.py."""
    if way.kind == "allreduce":
        return "tfmat.scaling.allreduce:measure_sums"
    if way.backend == "parameter_server":
        return "tfmat.scaling.parameter_server:measure_parameter_server"
    return f"tfmat.scaling.step_times:measure_{way.kind}"


def _environment(way: Way) -> dict[str, str]:
    """What makes the libraries take the way."""
    found = {}
    if way.backend == "horovod" and way.collectives == "mpi":
        found["HOROVOD_CPU_OPERATIONS"] = "MPI"
    if way.transport == "tcp":
        found |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "NCCL_IB_DISABLE": "1"}
    if way.transport == "rdma":
        found |= {"OMPI_MCA_pml": "ucx"}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def tasks_in_order(planned: Planned) -> list[Task]:
    """As the processes measure and answer them."""
    # Small batches first, since the most memory that a process ever held is all that the system tells.
    return sorted(planned.launch.tasks, key=lambda task: task.batch_a_worker)
