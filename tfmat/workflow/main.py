"""The main job: curves -> network -> accuracy -> the parameters of an example curve."""

from typing import TYPE_CHECKING

from tfmat.config import Config, goes_in_pieces
from tfmat.console import log
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.workflow.dataset import make_dataset
from tfmat.workflow.job import Job, plan_job
from tfmat.workflow.results import calibrate_run, evaluate_run, identify_example
from tfmat.workflow.train import train

if TYPE_CHECKING:
    from tfmat.backends import Backend


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
                config, job.options, num_outputs=job.num_outputs, inputs=job.form.network()
            )
        dataset = dataset or _dataset_for_all(job, data_dir, workers)
        train(config, dataset, job.plan, backend=workers)
    if workers.rank != 0:
        return
    calibrate_run(workdir, dataset)
    evaluate_run(workdir, dataset)
    identify_example(workdir, dataset.settings)
    log(f"report: {write_training_report(workdir)}")


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
