"""The main job: curves -> network -> accuracy -> the parameters of an example curve.

It is read from the config and checked before anything is made: here, or for another machine.
"""

import dataclasses
import math
import pathlib
from typing import TYPE_CHECKING, Any

from tfmat.config import Config, goes_in_pieces
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.data.memory import check_memory
from tfmat.data.packed import PackedDataset, dataset_folder
from tfmat.errors import InputError
from tfmat.training.plan import RunPlan
from tfmat.workflow.dataset import curve_settings, make_dataset, named_dataset, seed_and_counts
from tfmat.workflow.results import calibrate_run, evaluate_run, identify_example, report_run
from tfmat.workflow.train import curves_to_train, train

if TYPE_CHECKING:
    from tfmat.backends import Backend, BackendOptions
    from tfmat.ranks.processes import Processes

_FLOAT = 4  # bytes
# Weights, gradients and one slot of the optimizer; a mesh may divide all but the weights.
_COPIES = 3
# What `tfmat.models.plastic_spectrum` makes of each test, and how many residuals `tfmat.models.law_fit` tells of it.
_SPECTRUM_NUMBERS, _RESIDUALS = 100, 32


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
    def form(self) -> RecordForm:
        """What the points and channels of a record are."""
        return self.dataset.form if self.dataset else RecordForm.of(self.settings)

    @property
    def num_weights(self) -> int:
        """Trainable numbers of the network, see `count_parameters`; a variance head's too."""
        outputs = self.num_outputs * (2 if self.config.model.uncertainty == "gaussian" else 1)
        return count_parameters(self.config, num_outputs=outputs, form=self.form)


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
    from tfmat.backends.checks import backend_options, check_config_for
    from tfmat.training.run_folder import check_same_config

    launched = {"processes": processes} if processes else {}
    check_backend(backend)
    options = backend_options(config, folder=workdir, **launched)
    check_config_for(backend, config, options)
    if config.model.uncertainty == "flow" and config.loss_weights is not None:
        raise InputError(
            "loss_weights weigh squared errors, and model.uncertainty=flow has none; leave them out"
        )
    _check_processes(backend, options)
    settings = curve_settings(config)
    settings.build_law()
    dataset, folder = named_dataset(config, data_dir), pathlib.Path(data_dir)
    if not dataset:
        folder = dataset_folder(data_dir, settings, **seed_and_counts(config))
    shard_size = {"shard_size": dataset.shard_size} if dataset else {}
    plan = RunPlan.of_config(config, workdir=workdir, **shard_size)
    job = Job(config, plan, backend, options, settings, dataset, folder)
    _check_representation(config, job.form, dataset)
    check_training_fits(
        config,
        num_outputs=job.num_outputs,
        form=job.form,
        backend=backend,
        stages=options.mesh.size("stage"),
    )
    num_curves = config.data.num_curves
    num_train = dataset.num_train if dataset else num_curves - num_curves // 4
    _check_lengths(config, plan, curves_to_train(config, num_train))
    # The data set's identity tells an edited law file, and another set of imported curves, apart.
    identity = dataset.manifest["id"] if dataset else folder.name.rpartition("-")[2]
    check_same_config(workdir, {**config.to_dict(), "data_id": identity})
    return job


def _check_processes(backend: str, options: "BackendOptions") -> None:
    processes = options.processes
    if backend == "single" and processes.size > 1:
        raise InputError(
            f"{processes.launcher} started {processes.size} processes, but --backend=single is for one: each would "
            "train for itself in the same folder; use --backend=horovod or mpi, or --backend=dtensor with a mesh"
        )
    if backend == "dtensor":
        options.mesh.devices_per_process(processes.size)


def _check_representation(config: Config, form: RecordForm, dataset: PackedDataset | None) -> None:
    representation, channels = config.model.representation, form.channels[3:]
    if representation == "fit" and dataset and not dataset.settings:
        raise InputError(
            "model.representation=fit needs the law that made the records, and imported curves name none; give "
            "--config.model.representation=points"
        )
    if representation in ("points", "fit"):
        return
    if channels or any(programme.drives == "stress" for programme in form.programmes):
        what = f"records that tell {' and '.join(channels)}" if channels else "driven stress"
        raise InputError(
            f"model.representation={representation} is for tests that drive the strain, not for {what}; "
            "give --config.model.representation=points"
        )


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


def check_training_fits(
    config: Config,
    *,
    num_outputs: int,
    form: RecordForm,
    backend: str = "single",
    stages: int = 1,
) -> None:
    """InputError where the network, or one batch, is larger than the machine's memory."""
    parameters = count_parameters(config, num_outputs=num_outputs, form=form)
    copies = 1.0 if backend == "dtensor" else _COPIES - (config.offload == "slots")
    # Each process makes the whole network once, before it keeps its stage.
    copies = 1 + (copies - 1) / stages
    check_memory(
        f"a network of {parameters:,} parameters (model.hidden_units={_words(config.model.hidden_units)}, "
        f"model.conv_filters={_words(config.model.conv_filters)}, {form.num_points} points)",
        int(copies * _FLOAT * parameters),
        "take a smaller one",
    )
    batch = config.global_batch_size
    if backend == "single":
        check_memory(
            f"a batch of {batch:,} curves of {form.num_points:,} points",
            batch * math.prod(form.shape) * _FLOAT,
            "take a smaller global_batch_size, or fewer points",
        )


def count_parameters(config: Config, *, num_outputs: int, form: RecordForm) -> int:
    """The trainable numbers of `tfmat.models.build_model`'s network, but for normalisation and uncertainty."""
    model, points, inputs, count = config.model, form.points, len(form.channels), 0
    for filters, kernel in zip(model.conv_filters, model.kernel_sizes, strict=True):
        count += (kernel * inputs + 1) * filters
        points, inputs = points // model.pool_size, filters
    inputs *= points
    if model.representation == "plastic_spectrum":
        count, inputs = 0, _SPECTRUM_NUMBERS
    if model.representation == "fit":
        count, inputs = 0, num_outputs * (num_outputs + 3) // 2 + 3
        inputs += _RESIDUALS * form.num_tests * form.more_than_noise
    elif form.num_tests > 1:  # the tests' own dense layer, which sees their tokens too
        count += (inputs + form.modes.shape[1] + 1) * model.hidden_units[0]
        inputs = model.hidden_units[0]
    for units in (*model.hidden_units, num_outputs):
        count += (inputs + 1) * units
        inputs = units
    return count


def _words(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "none"


def main_job(
    config: Config, *, workdir: str, data_dir: str, backend: str = "single", report: bool = True
) -> None:
    """Makes the data set if it is not there, trains, evaluates, identifies an example; goes on where it was stopped.

    Args:
      config: checked; see `tfmat.config`.
      workdir: folder of the run.
      data_dir: folder of data sets, or one data set, whose settings then replace those of the config.
      backend: how steps run. With several processes each of them calls this; rank 0 alone writes.
      report: whether the network is measured on the test curves, an example identified, and a report written.

    Raises:
      InputError, DivergedError, Interrupted.
    """
    from tfmat.backends import make_backend

    job = plan_job(config, workdir=workdir, data_dir=data_dir, backend=backend)
    dataset = job.dataset
    if job.options.processes.size == 1 and backend != "dtensor":  # it needs no TensorFlow for this
        dataset = dataset or make_dataset(config, job.settings, data_dir)
    _prepare_tensorflow(job, workdir)
    with make_backend(backend, job.options) as workers:
        _check_layout(job)
        dataset = dataset or _dataset_for_all(job, data_dir, workers)
        train(config, dataset, job.plan, backend=workers)
    if workers.rank != 0:
        return
    calibrate_run(workdir, dataset)
    if not report:
        return
    evaluate_run(workdir, dataset)
    identify_example(workdir, dataset.settings)
    report_run(workdir)


def _check_layout(job: Job) -> None:
    """InputError where the network cannot be divided over a mesh or into stages, before anything is simulated."""
    from tfmat.backends.planning import plan_of_config
    from tfmat.backends.schedule import has_stages

    network: dict[str, Any] = {"num_outputs": job.num_outputs, "inputs": job.form.network()}
    if job.backend == "dtensor":
        plan_of_config(job.config, job.options, **network)
    elif has_stages(job.options.mesh):
        from tfmat.backends.stage_planning import plan_stages

        plan_stages(job.config, job.options, **network)


def _prepare_tensorflow(job: Job, workdir: str) -> None:
    from tfmat.launch.provenance import recorded_onednn
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.ranks.processes import processors_per_rank

    processes, on_mesh = job.options.processes, job.backend == "dtensor"
    several = processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=goes_in_pieces(job.config.model),
        processors=processors_per_rank(processes) if several else None,
        waiting=int(job.backend == "mpi" and several and job.options.overlap_meetings),
        gpu=processes.local_rank if several and not on_mesh else None,
        virtual_devices=job.options.mesh.devices_per_process(processes.size) if on_mesh else 1,
        start=not (several and on_mesh),
        own_program=True,
        onednn=recorded_onednn(workdir),
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
