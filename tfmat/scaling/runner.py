"""Measures a study: what its folder lacks, with each result on disk before the next launch begins.

What its networks are and what Horovod can do here is asked of a process of its own: the study itself never loads
TensorFlow, which would take its memory and processors.
"""

import contextlib
import dataclasses
import datetime
import importlib.util
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.backends.layouts import weights_of
from tfmat.backends.mesh import Weight
from tfmat.config import Config, check_config, default_config
from tfmat.console import log
from tfmat.errors import InputError
from tfmat.files import (
    as_json,
    check_json,
    first_difference,
    flatten,
    make_folder,
    read_json,
    write_json,
)
from tfmat.ranks.processes import Processes
from tfmat.scaling.laboratory import Answers, Launch, Run, launch_here, measure, run_alone
from tfmat.scaling.matrix import COLLECTIVES
from tfmat.scaling.measurement_files import add_measurements, is_study, read_measurements
from tfmat.scaling.measurements import (
    AllReduce,
    LeftOut,
    Measurements,
    Model,
    Point,
    RankUse,
    Repetition,
    Session,
    TrainingLine,
)
from tfmat.scaling.planning import Study
from tfmat.scaling.variants import Task, Variant
from tfmat.scaling.worker import SPEC


def networks_and_libraries(
    models: dict[str, Any], num_outputs: int, folder: pathlib.Path
) -> tuple[dict[str, Model], set[str]]:
    """The networks, and what can sum here: Horovod's libraries, and `mpi4py`.

    Args:
      models: name -> config as a dictionary.
      num_outputs: of the data set.
      folder: for the files of the process.

    Raises:
      InputError: TensorFlow cannot be loaded, or a model cannot be built.
    """
    program = "tfmat.scaling.runner:describe"
    launch = launch_here("networks", 0, folder, program, models=models, num_outputs=num_outputs)
    try:
        (found,) = run_alone(launch)
    except InputError as error:
        raise InputError(f"the networks of the study cannot be built: {error}") from error
    networks = check_json(found["models"], dict[str, Model], launch.name)
    return networks, set(found["sums_with"])


def describe(spec: dict[str, Any], processes: Processes, folder: pathlib.Path) -> dict[str, Any]:
    """Called by the process, see worker.py: builds each model once."""
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    models = {
        name: dataclasses.asdict(_describe(name, Config(content), spec["num_outputs"]))
        for name, content in spec["models"].items()
    }
    mpi4py = ["mpi4py"] if importlib.util.find_spec("mpi4py") else []
    return {"sums_with": [*_horovod(), *mpi4py], "models": models}


def _describe(name: str, config: Config, num_outputs: int) -> Model:
    from tfmat.models import build_model

    check_config(config)
    model = build_model(config.model, num_outputs=num_outputs, num_points=config.data.num_points)
    # What else is known of a weight is in no older study's points, which have to be the same.
    weights = tuple(Weight(each.path, each.shape, each.itemsize) for each in weights_of(model))
    gradient_bytes = sum(math.prod(weight.shape) * weight.itemsize for weight in weights)
    return Model(name, int(model.count_params()), gradient_bytes, weights)


def _horovod() -> list[str]:
    """Libraries that this Horovod can sum with; none where it cannot be loaded."""
    with contextlib.suppress(ImportError, InputError):
        from tfmat.backends.horovod import built_libraries

        return [library for library in built_libraries() if library in COLLECTIVES]
    return []


CONFIG, LAUNCHES = "config.json", "launches"


def check_same_study(workdir: pathlib.Path, config: Config) -> None:
    """InputError where the folder was measured with another config: its numbers would not compare."""
    path, content = workdir / CONFIG, as_json(config.to_dict())
    if not path.exists():
        write_json(path, content)
        return
    # A key that was added to tfmat after the study had begun had its default.
    before = flatten(as_json(default_config().to_dict()))
    before |= flatten(check_json(read_json(path), dict[str, Any], path))
    now = flatten(content)
    # The first curves are the same in every number of them.
    known = {key: value for key, value in before.items() if key in now}
    name = first_difference(known, now, {"data.num_curves"})
    if name is not None:
        raise InputError(
            f"{workdir} was measured with {name}={before.get(name)}, now it is {now.get(name)}; use another --workdir"
        )


def measure_study(
    study: Study,
    *,
    workdir: pathlib.Path,
    session: dict[str, Any],
    run: Run,
) -> tuple[int, tuple[LeftOut, ...]]:
    """Measures what is still missing in the folder.

    Args:
      study: what.
      workdir: of the study; held by this process.
      session: of `tfmat.launch.provenance.describe_session`.
      run: starts launches, see laboratory.py and slurm_launches.py.

    Returns:
      How many launches there were, and which failed.

    Raises:
      Interrupted, KeyboardInterrupt: what was measured until then is on disk.
    """
    _, absent = study.groups()
    for left in absent:
        log(f"left out: {left.what}: {left.reason}")
    journal = StudyJournal(study, workdir, session, absent)
    rounds = study.rounds(journal.before, make_folder(workdir / LAUNCHES).resolve())
    total = sum(map(len, rounds))
    if not total:
        log("everything is measured already")
        return 0, ()
    measure(rounds, run, journal)
    return total, tuple(journal.failed)


class StudyJournal:
    """Adds what launches answer to measurements.jsonl; `before` is what was in it, `failed` what failed since."""

    def __init__(
        self,
        study: Study,
        workdir: pathlib.Path,
        session: dict[str, Any],
        absent: Sequence[LeftOut],
    ):
        self._study, self._workdir = study, workdir
        self.before = read_measurements(workdir) if is_study(workdir) else Measurements()
        self.failed: list[LeftOut] = []
        self._session = len(self.before.sessions)
        told = [dataclasses.replace(each, session=self._session) for each in absent]
        add_measurements(workdir, [Session(self._session, session), *told])

    def add(self, launch: Launch, answers: Answers) -> str:
        """See Journal."""
        variant = Variant(**launch.spec["variant"])
        if launch.spec["sizes"]:
            sums = self._allreduces(launch, variant, answers)
            add_measurements(self._workdir, [*sums, *self._withdrawn(launch)])
            first, last = sums[0], sums[-1]
            rate = last.bytes / last.median_seconds / 1e6
            return (
                f"{1e6 * first.median_seconds:.3g} µs for {first.bytes:,} bytes, {rate:,.0f} MB/s for "
                f"{last.bytes:,}"
            )
        spoken = [answer["tasks"] for answer in answers if answer.get("tasks")]
        tasks = [Task(**each) for each in launch.spec["tasks"]]
        points = [self._study.point(variant, task) for task in tasks]
        found = [
            self._repetition(launch, point, [of_rank[i] for of_rank in spoken])
            for i, point in enumerate(points)
        ]
        add_measurements(self._workdir, [*found, *self._withdrawn(launch)])
        steps = [f"{e.point.batch_a_worker:,}: {1e3 * e.step_seconds:.3g} ms" for e in found]
        return ", ".join(steps) + " a step"

    def leave_out(self, launch: Launch, reason: str, log: str) -> None:
        """See Journal."""
        left = LeftOut(launch.name, reason, launch.round, log, self._session)
        self.failed.append(left)
        add_measurements(self._workdir, [left])

    def _withdrawn(self, launch: Launch) -> list[LeftOut]:
        """Takes back what is said of the same launch's failure in an earlier session."""
        known = any((e.what, e.round) == (launch.name, launch.round) for e in self.before.left_out)
        return [LeftOut(launch.name, "", launch.round, session=self._session)] * known

    def _repetition(
        self, launch: Launch, point: Point, of_ranks: Sequence[dict[str, Any]]
    ) -> Repetition:
        """The slowest process says how long the steps took."""
        slowest = max(of_ranks, key=lambda answer: answer["seconds"] / answer["steps"])
        ranks = tuple(
            RankUse(rank=rank, **answer["use"])
            for rank, answer in enumerate(of_ranks)
            if "use" in answer
        )
        memory = [rank.memory_bytes for rank in ranks if rank.memory_bytes is not None]
        modified = (launch.folder / SPEC).stat().st_mtime
        started = datetime.datetime.fromtimestamp(modified, datetime.UTC)
        return Repetition(
            point,
            launch.round,
            int(slowest["steps"]),
            float(slowest["seconds"]),
            session=self._session,
            started=started.isoformat(timespec="seconds"),
            ranks=ranks,
            training=tuple(TrainingLine(**line) for line in of_ranks[0].get("training", [])),
            peak_memory_bytes=sum(memory) if len(memory) == len(of_ranks) else None,
        )

    def _allreduces(self, launch: Launch, variant: Variant, answers: Answers) -> list[AllReduce]:
        """One a size: a sum has ended when the last process has it."""
        found = []
        for sizes in zip(*(answer["sums"] for answer in answers), strict=True):
            seconds = np.max([each["seconds"] for each in sizes], axis=0)
            low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
            found.append(
                AllReduce(
                    library=variant.collectives,
                    bytes=sizes[0]["bytes"],
                    median_seconds=float(median),
                    low_seconds=float(low),
                    high_seconds=float(high),
                    repetitions=len(seconds),
                    round=launch.round,
                    session=self._session,
                    **self._study.place(variant),
                )
            )
        return found
