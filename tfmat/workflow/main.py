"""The main job: curves -> network -> accuracy -> the parameters of an example curve."""

import pathlib
from typing import TYPE_CHECKING

from tfmat.batch_growth import EpochPlan, parse_growth
from tfmat.config import Config
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import PackedDataset, dataset_folder, is_dataset
from tfmat.durations import Duration
from tfmat.errors import InputError
from tfmat.workflow.dataset import adopt, curve_settings, make_dataset, seed_and_counts
from tfmat.workflow.lines import say
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
    from tfmat.backends.planning import backend_options, plan_of_config
    from tfmat.report.training_report import write_training_report

    options = backend_options(config, folder=workdir)
    processes = options.processes
    settings, dataset, _ = check_main_job(
        config, workdir=workdir, data_dir=data_dir, backend=backend, processes=processes
    )
    if processes.size == 1 and backend != "dtensor":  # it needs no TensorFlow for this
        dataset = dataset or make_dataset(config, settings, data_dir, say)
    _prepare_tensorflow(config, options, backend)
    with make_backend(backend, options) as workers:
        if backend == "dtensor":
            parameters = dataset.parameters if dataset else settings.build_law().identified
            num_points = dataset.features.shape[1] if dataset else config.data.num_points
            plan_of_config(config, options, num_outputs=len(parameters), num_points=num_points)
        dataset = dataset or _dataset_for_all(config, settings, data_dir, workers)
        train(config, dataset, workdir=workdir, backend=workers)
    if workers.rank != 0:
        return
    calibrate_run(workdir, dataset)
    evaluate_run(workdir, dataset)
    identify_example(workdir, dataset.settings)
    say(f"report: {write_training_report(workdir)}")


def check_main_job(
    config: Config, *, workdir: str, data_dir: str, backend: str, processes: "Processes"
) -> tuple[CurveSettings, PackedDataset | None, pathlib.Path]:
    """Refuses what can be refused before anything is made, and without TensorFlow: here, or on another machine.

    Returns:
      What the curves are simulated with; the data set where `data_dir` is one; the data set's folder.

    Raises:
      InputError.
    """
    from tfmat.backends import check_backend
    from tfmat.backends.planning import backend_options, check_dtensor, check_profile
    from tfmat.training.run_folder import check_same_config

    check_backend(backend)
    options = backend_options(config, processes=processes)
    check_profile(config, backend)
    if backend == "dtensor":
        check_dtensor(config)
    _check_processes(backend, options)
    settings = curve_settings(config)
    settings.build_law()
    dataset = None
    if is_dataset(data_dir):
        dataset = PackedDataset.open(data_dir)
        adopt(config, dataset)
    num_curves, folder = config.data.num_curves, pathlib.Path(data_dir)
    if not dataset:
        folder = dataset_folder(data_dir, settings, **seed_and_counts(config))
    check_training_fits(
        config,
        num_outputs=len(dataset.parameters if dataset else settings.build_law().identified),
        num_points=dataset.features.shape[1] if dataset else config.data.num_points,
        backend=backend,
    )
    _check_lengths(config, num_curves - num_curves // 4)
    # The folder's name tells an edited law file apart.
    check_same_config(workdir, {**config.to_dict(), "data_dir": str(folder.resolve())})
    return settings, dataset, folder


def _check_processes(backend: str, options: "BackendOptions") -> None:
    processes = options.processes
    if backend == "single" and processes.size > 1:
        raise InputError(
            f"{processes.launcher} started {processes.size} processes, but --backend=single is for one: each would "
            "train for itself in the same folder; use --backend=horovod, or --backend=dtensor with a mesh"
        )
    if backend == "dtensor":
        options.mesh.devices_per_process(processes.size)


def _prepare_tensorflow(config: Config, options: "BackendOptions", backend: str) -> None:
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.ranks.processes import processors_per_rank

    # Layers with state keep a batch in one piece; then each operation had better use all processors.
    in_pieces = config.model.dropout == 0 and config.model.batch_normalization == "none"
    processes = options.processes
    several = processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=in_pieces,
        processors=processors_per_rank(processes) if several else None,
        gpu=processes.local_rank if several and backend == "horovod" else None,
        virtual_devices=options.mesh.devices_per_process(processes.size)
        if backend == "dtensor"
        else 1,
        start=not (several and backend == "dtensor"),
    )


def _dataset_for_all(
    config: Config, settings: CurveSettings, data_dir: str, workers: "Backend"
) -> PackedDataset:
    """The data set, made by rank 0 while the others wait, and then mapped by each: a node holds it in memory once."""
    if workers.rank == 0:
        workers.announce("simulating curves", 0)
        dataset = make_dataset(config, settings, data_dir, say)
        workers.announce("starting", 0)
        workers.broadcast(str(dataset.folder))
        return dataset
    workers.announce("starting", 0)
    folder = workers.broadcast(None)
    try:
        # Once a node is enough; rank 0 has read it too.
        return PackedDataset.open(folder, verify=workers.options.processes.local_rank == 0)
    except InputError as error:
        raise InputError(
            f"rank {workers.rank}: {error}; every node must see the data set"
        ) from error


def _check_lengths(config: Config, num_train: int) -> None:
    """Refuses, before anything is made, what cannot be trained."""
    if config.global_batch_size > num_train:
        raise InputError(
            f"global_batch_size is {config.global_batch_size}, but data.num_curves={config.data.num_curves} leaves "
            f"{num_train} for training; use a smaller batch or more curves"
        )
    duration = Duration.parse(config.train_for)
    plan = EpochPlan(num_train, config.global_batch_size, parse_growth(config.batch_growth))
    total_steps = duration.value if duration.seconds is not None else plan.steps(duration)
    if not total_steps:
        raise InputError(f"train_for is '{config.train_for}', less than one step; give more")
