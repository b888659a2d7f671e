"""The main job: curves -> network -> accuracy -> the parameters of an example curve."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from tfmat.config import Config, goes_in_pieces
from tfmat.console import log
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import PackedDataset, dataset_folder, is_dataset
from tfmat.errors import InputError
from tfmat.training.plan import RunPlan
from tfmat.workflow.dataset import adopt, curve_settings, make_dataset, seed_and_counts
from tfmat.workflow.memory import check_training_fits
from tfmat.workflow.results import calibrate_run, evaluate_run, identify_example
from tfmat.workflow.train import train

if TYPE_CHECKING:
    from tfmat.backends import Backend, BackendOptions
    from tfmat.ranks.processes import Processes


def main_job(config: Config, *, workdir: str, data_dir: str, backend: str = "single") -> None:
    """Makes the data set if it is not there, trains, evaluates, identifies an example; goes on where it was stopped.

    Args:
      config: checked; see `tfmat.config`.
      workdir: folder of the run.
      data_dir: folder of data sets, or one data set, whose settings then replace those of the config.
      backend: how steps run. With several processes each of them calls this; rank 0 alone writes.

    Raises:
      InputError, DivergedError, Interrupted.
    """
    from tfmat.backends import make_backend
    from tfmat.report.training_report import write_training_report

    job = plan_job(config, workdir=workdir, data_dir=data_dir, backend=backend)
    dataset = job.dataset
    if job.options.processes.size == 1 and backend != "dtensor":  # it needs no TensorFlow for this
        dataset = dataset or make_dataset(config, job.settings, data_dir)
    _prepare_tensorflow(job)
    with make_backend(backend, job.options) as workers:
        if backend == "dtensor":
            from tfmat.backends.planning import plan_of_config

            plan_of_config(
                config, job.options, num_outputs=job.num_outputs, num_points=job.num_points
            )
        dataset = dataset or _dataset_for_all(job, data_dir, workers)
        train(config, dataset, job.plan, backend=workers)
    if workers.rank != 0:
        return
    calibrate_run(workdir, dataset)
    evaluate_run(workdir, dataset)
    identify_example(workdir, dataset.settings)
    log(f"report: {write_training_report(workdir)}")


@dataclasses.dataclass(frozen=True)
class Job:
    """The main job, read and checked before anything is made.

    Attributes:
      config: for the parts of it that are made from its sections: law, network, optimizer.
      plan: how the run trains.
      backend, options: how its steps run; the options know the mesh and the processes.
      settings: what the curves are simulated with.
      dataset: where `--data_dir` is one.
      data: the data set's folder.
    """

    config: Config
    plan: RunPlan
    backend: str
    options: "BackendOptions"
    settings: CurveSettings
    dataset: PackedDataset | None
    data: pathlib.Path

    @property
    def num_outputs(self) -> int:
        """Parameters that the network identifies."""
        dataset = self.dataset
        return len(dataset.parameters if dataset else self.settings.build_law().identified)

    @property
    def num_points(self) -> int:
        """Points per curve."""
        return int(self.dataset.features.shape[1] if self.dataset else self.config.data.num_points)


def plan_job(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    backend: str,
    processes: "Processes | None" = None,
) -> Job:
    """Reads everything once, and refuses what can be refused before anything is made, and without TensorFlow.

    Args:
      config, workdir, data_dir, backend: see `main_job`.
      processes: of a job on another machine; by default those that the launcher started here.

    Raises:
      InputError.
    """
    from tfmat.backends import check_backend
    from tfmat.backends.planning import backend_options, check_dtensor, check_profile
    from tfmat.training.run_folder import check_same_config

    launched = {"processes": processes} if processes else {}
    check_backend(backend)
    options = backend_options(config, folder=workdir, **launched)
    check_profile(config, backend)
    if backend == "dtensor":
        check_dtensor(config)
    _check_processes(backend, options)
    settings = curve_settings(config)
    settings.build_law()
    dataset, folder = None, pathlib.Path(data_dir)
    if is_dataset(data_dir):
        dataset = PackedDataset.open(data_dir)
        adopt(config, dataset)
    else:
        folder = dataset_folder(data_dir, settings, **seed_and_counts(config))
    shard_size = {"shard_size": dataset.shard_size} if dataset else {}
    plan = RunPlan.of_config(config, workdir=workdir, **shard_size)
    job = Job(config, plan, backend, options, settings, dataset, folder)
    check_training_fits(
        config, num_outputs=job.num_outputs, num_points=job.num_points, backend=backend
    )
    num_curves = config.data.num_curves
    _check_lengths(config, plan, num_curves - num_curves // 4)
    # The folder's name tells an edited law file apart.
    check_same_config(workdir, {**config.to_dict(), "data_dir": str(folder.resolve())})
    return job


def _check_processes(backend: str, options: "BackendOptions") -> None:
    processes = options.processes
    if backend == "single" and processes.size > 1:
        raise InputError(
            f"{processes.launcher} started {processes.size} processes, but --backend=single is for one: each would "
            "train for itself in the same folder; use --backend=horovod, or --backend=dtensor with a mesh"
        )
    if backend == "dtensor":
        options.mesh.devices_per_process(processes.size)


def _prepare_tensorflow(job: Job) -> None:
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.ranks.processes import processors_per_rank

    processes, on_mesh = job.options.processes, job.backend == "dtensor"
    several = processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=goes_in_pieces(job.config.model),
        processors=processors_per_rank(processes) if several else None,
        gpu=processes.local_rank if several and job.backend == "horovod" else None,
        virtual_devices=job.options.mesh.devices_per_process(processes.size) if on_mesh else 1,
        start=not (several and on_mesh),
    )


def _dataset_for_all(job: Job, data_dir: str, workers: "Backend") -> PackedDataset:
    """The data set, made by rank 0 while the others wait, and then mapped by each: a node holds it in memory once."""
    if workers.rank == 0:
        workers.collectives.announce("simulating curves", 0)
        dataset = make_dataset(job.config, job.settings, data_dir)
        workers.collectives.announce("starting", 0)
        workers.collectives.broadcast(str(dataset.folder))
        return dataset
    workers.collectives.announce("starting", 0)
    folder = workers.collectives.broadcast(None)
    try:
        # Once a node is enough; rank 0 has read it too.
        return PackedDataset.open(folder, verify=job.options.processes.local_rank == 0)
    except InputError as error:
        raise InputError(
            f"rank {workers.rank}: {error}; every node must see the data set"
        ) from error


def _check_lengths(config: Config, plan: RunPlan, num_train: int) -> None:
    """Refuses, before anything is made, what cannot be trained."""
    if config.global_batch_size > num_train:
        raise InputError(
            f"global_batch_size is {config.global_batch_size}, but data.num_curves={config.data.num_curves} leaves "
            f"{num_train} for training; use a smaller batch or more curves"
        )
    duration, epochs = plan.train_for, plan.epochs(num_train)
    if not (duration.value if duration.seconds is not None else epochs.steps(duration)):
        raise InputError(f"train_for is '{config.train_for}', less than one step; give more")
