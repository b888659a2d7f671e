"""The main job: curves -> network -> accuracy -> the parameters of an example curve."""

import contextlib
import pathlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmat.config import Config, default_config
from tfmat.curves.example import example_curve, write_example_curve
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import (
    PackedDataset,
    dataset_folder,
    generate_dataset,
    is_complete,
    is_dataset,
)
from tfmat.durations import Duration
from tfmat.errors import InputError
from tfmat.files import make_folder, write_json

if TYPE_CHECKING:
    from tfmat.backends import Backend, BackendOptions
    from tfmat.launch.processes import Processes
    from tfmat.training.trainer import RunResult

# Up to this many parameters the Bayes risk is integrated: 4 s of one processor for 2,000 curves, once a data set. The
# sampled risk of more parameters takes a minute or so; `tfmat evaluate` adds it.
_QUICK_YARDSTICK, YARDSTICK_CURVES = 2, 2000
Say = Callable[[str], None]


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
    from tfmat.backends import check_backend, make_backend
    from tfmat.launch.processes import find_processes
    from tfmat.report.training_report import write_training_report
    from tfmat.training.run_folder import check_same_config

    # Everything that can be refused is refused before anything is made.
    check_backend(backend)
    _backend_options(config)
    _mesh_devices(config, backend)
    processes = find_processes()
    _check_alone(backend, processes)
    settings = curve_settings(config)
    settings.build_law()
    dataset = None
    if is_dataset(data_dir):
        dataset = PackedDataset.open(data_dir)
        _adopt(config, dataset)
    num_curves, folder = config.data.num_curves, pathlib.Path(data_dir)
    if not dataset:
        folder = dataset_folder(data_dir, settings, **_seed_and_counts(config))
    _check_lengths(config, num_curves - num_curves // 4)
    # The folder's name tells an edited law file apart.
    check_same_config(workdir, {**config.to_dict(), "data_dir": str(folder.resolve())})
    if processes.size == 1:  # a single worker needs no TensorFlow for this
        dataset = dataset or make_dataset(config, settings, data_dir, _say)
    _prepare_tensorflow(config, processes, backend)
    with make_backend(backend, _backend_options(config)) as workers:
        dataset = dataset or _dataset_for_all(config, settings, data_dir, workers)
        train(config, dataset, workdir=workdir, backend=workers)
        _report_devices(workers, workdir)
    if workers.rank != 0:
        return
    calibrate_run(workdir, dataset)
    evaluate_run(workdir, dataset)
    identify_example(workdir, dataset.settings)
    _say(f"report: {write_training_report(workdir)}")


def _check_alone(backend: str, processes: "Processes") -> None:
    if backend in ("single", "dtensor") and processes.size > 1:
        raise InputError(
            f"{processes.launcher} started {processes.size} processes, but --backend={backend} is for one: each would "
            "train for itself in the same folder; use --backend=horovod"
        )


def _prepare_tensorflow(config: Config, processes: "Processes", backend: str) -> None:
    from tfmat.launch.processes import processors_per_rank
    from tfmat.launch.runtime import prepare_tensorflow

    # Layers with state keep a batch in one piece; then each operation had better use all processors.
    in_pieces = config.model.dropout == 0 and config.model.batch_normalization == "none"
    several = processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=in_pieces,
        processors=processors_per_rank(processes) if several else None,
        gpu=processes.local_rank if several and backend == "horovod" else None,
        virtual_devices=_mesh_devices(config, backend),
    )


def _mesh_devices(config: Config, backend: str) -> int:
    from tfmat.backends.mesh import MeshShape

    return MeshShape.parse(config.mesh).num_devices if backend == "dtensor" else 1


def _backend_options(config: Config) -> "BackendOptions":
    from tfmat.backends import BackendOptions
    from tfmat.backends.layouts import parse_rules

    return BackendOptions(
        mesh=config.mesh,
        layouts=parse_rules(config.layouts),
        zero_stage=config.zero_stage,
        compression=config.compression,
        accumulate=config.accumulate,
    )


def _dataset_for_all(
    config: Config, settings: CurveSettings, data_dir: str, workers: "Backend"
) -> PackedDataset:
    """The data set, made by rank 0 while the others wait, and then mapped by each: a node holds it in memory once."""
    if workers.rank == 0:
        workers.announce("simulating curves", 0)
        dataset = make_dataset(config, settings, data_dir, _say)
        workers.announce("starting", 0)
        workers.broadcast(str(dataset.folder))
        return dataset
    from tfmat.launch.processes import find_processes

    workers.announce("starting", 0)
    folder = workers.broadcast(None)
    try:
        # Once a node is enough; rank 0 has read it too.
        return PackedDataset.open(folder, verify=find_processes().local_rank == 0)
    except InputError as error:
        raise InputError(
            f"rank {workers.rank}: {error}; every node must see the data set"
        ) from error


def _report_devices(workers: "Backend", workdir: str) -> None:
    """What each device of a mesh held: printed, and in `devices.json`."""
    if workers.name != "dtensor" or not getattr(workers, "plan", None):
        return
    held = workers.bytes_per_device()  # type: ignore[attr-defined]
    notices = list(workers.plan.notices)  # type: ignore[attr-defined]
    write_json(
        pathlib.Path(workdir) / "devices.json",
        {"mesh": workers.options.mesh, "bytes_per_device": held, "notices": notices},
    )
    for notice in notices:
        _say(f"note: {notice}")
    parts = ", ".join(f"{part} {max(values):,}" for part, values in held.items() if values)
    _say(f"bytes on each device of mesh {workers.options.mesh}: {parts}")


def curve_settings(config: Config) -> CurveSettings:
    """What the config says about curves."""
    data = config.data
    return CurveSettings(
        law=config.law,
        ranges=dict(config.ranges),
        fixed=dict(config.fixed),
        max_strain=data.max_strain,
        strength_mpa=data.strength_mpa,
        strength_cut_off=data.strength_cut_off,
        noise_mpa=data.noise_mpa,
        noise_relative=data.noise_relative,
        num_points=data.num_points,
    )


def make_dataset(config: Config, settings: CurveSettings, data_dir: str, say: Say) -> PackedDataset:
    """The verified data set that the config asks for, made if it is not there or not finished."""
    from tfmat.report.progress import progress_bar

    counts = _seed_and_counts(config)
    folder = dataset_folder(data_dir, settings, **counts)
    if is_complete(folder):
        # Not `generate_dataset`, which would mend a damaged shard without a word: the user must hear of it.
        return PackedDataset.open(folder)
    started = time.monotonic()
    announced = False
    with progress_bar("simulating", "curves") as show:

        def progress(done: int, total: int) -> None:
            nonlocal announced
            if not announced:  # not before it is certain that there is space
                name = settings.build_law().name
                say(f"simulating {config.data.num_curves:,} {name} curves into {folder}")
                announced = True
            if show:
                show(done, total)

        dataset = generate_dataset(settings, data_dir=data_dir, progress=progress, **counts)
    say(f"simulated in {time.monotonic() - started:.1f} s")
    return dataset


def train(
    config: Config, dataset: PackedDataset, *, workdir: str, backend: "Backend"
) -> "RunResult":
    """Trains the config's network on the data set into `workdir`, with the sidecar that gives its numbers a meaning."""
    import keras

    from tfmat.launch.provenance import record_session
    from tfmat.models import build_model
    from tfmat.optimizers import build_optimizer
    from tfmat.training.trainer import Trainer

    num_outputs = len(dataset.parameters)
    model = build_model(
        config.model,
        num_outputs=num_outputs,
        num_points=dataset.features.shape[1],
        input_scale=dataset.input_scale,
        seed=config.seed,
    )
    callbacks: list[keras.callbacks.Callback] = []
    if backend.rank == 0:
        _say(f"network: {model.count_params():,} parameters, {num_outputs} outputs")
        if backend.world_size > 1:
            _say(
                f"{backend.name}: {backend.world_size} workers share each batch of {config.global_batch_size}"
            )
        workdir_path = make_folder(workdir)
        callbacks = [
            keras.callbacks.TensorBoard(str(workdir_path / "tensorboard"), write_graph=False),
            # Called once it is certain that this process trains.
            keras.callbacks.LambdaCallback(
                on_train_begin=lambda logs: record_session(workdir_path)
            ),
        ]
    if config.callbacks.early_stopping_patience:
        callbacks.append(
            keras.callbacks.EarlyStopping(patience=config.callbacks.early_stopping_patience)
        )
    trainer = Trainer(
        model,
        optimizer=lambda total_steps, steps_per_epoch: build_optimizer(
            config.optimizer, total_steps=total_steps, steps_per_epoch=steps_per_epoch
        ),
        **_losses_and_metrics(config, dataset),
        backend=backend,
        workdir=workdir,
        callbacks=callbacks,
        seed=config.seed,
        steps_per_call=config.steps_per_call,
        checkpoint_every=config.checkpoint.every,
        keep_checkpoints=config.checkpoint.keep,
        jit_compile=config.jit_compile,
        config={
            **config.to_dict(),
            "data_dir": str(dataset.folder.resolve()),
            "data_id": dataset.manifest["id"],
        },
        sidecar=sidecar(config, dataset),
    )
    split = dataset.num_train, dataset.num_train + dataset.num_validation
    return trainer.fit(
        dataset.features[: split[0]],
        dataset.labels[: split[0]],
        global_batch_size=config.global_batch_size,
        train_for=config.train_for,
        validation=(dataset.features[split[0] : split[1]], dataset.labels[split[0] : split[1]]),
        num_validation=config.data.num_validation,
        target_val_loss=config.target_val_loss,
        reading=config.data.reading,
        shard_size=dataset.shard_size,
        sharding=config.data.sharding,
    )


def sidecar(config: Config, dataset: PackedDataset) -> dict[str, Any]:
    """What the network's inputs and outputs mean: `model.json`."""
    uncertainty = config.model.uncertainty
    return {
        "format": 1 if uncertainty == "none" else 2,
        "law": config.law,
        "parameters": [vars(parameter) for parameter in dataset.parameters],
        "curves": dataset.settings.to_json() if dataset.settings else None,
        "num_points": int(dataset.features.shape[1]),
        "input_scale": list(dataset.input_scale),
        **({} if uncertainty == "none" else {"uncertainty": uncertainty}),
    }


def calibrate_run(workdir: str, dataset: PackedDataset) -> None:
    """Makes the best model's intervals true on validation curves, once; on rank 0 and after the training."""
    from tfmat.identification.calibrate import calibrate
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.sidecar import read_sidecar, write_calibration

    known = read_sidecar(workdir).calibration
    if known is None or known.num_curves:
        return
    calibration = calibrate(Identifier.open(workdir), dataset)
    if calibration is None:
        _say("too few validation curves to calibrate the network's intervals")
        return
    write_calibration(workdir, calibration)
    _say(f"the network's intervals are calibrated on {calibration.num_curves:,} validation curves")


def evaluate_run(workdir: str, dataset: PackedDataset) -> None:
    """Accuracy on the test curves, with the yardstick where that is quick: printed, and kept in the run's folder."""
    from tfmat.identification.evaluate import add_yardstick, evaluate
    from tfmat.identification.identifier import Identifier
    from tfmat.report.evaluation import write_evaluation
    from tfmat.report.tables import coverage_table, evaluation_table, yardstick_table

    identifier = Identifier.open(workdir)
    evaluation = evaluate(identifier, dataset)
    if len(dataset.parameters) <= _QUICK_YARDSTICK:
        with contextlib.suppress(InputError):  # there can be none, as the report says
            evaluation = add_yardstick(evaluation, identifier, dataset, YARDSTICK_CURVES)
    content = evaluation.to_json()
    write_evaluation(workdir, content, **evaluation.arrays(dataset))
    _print(evaluation_table(content))
    if content["coverage"]:
        _print(coverage_table(content))
    if content["yardstick"]:
        _print(yardstick_table(content))


def identify_example(workdir: str, settings: CurveSettings | None) -> None:
    """Identifies the law's example curve; leaves its picture and its answer in the run's folder."""
    if settings is None:
        return
    from tfmat.curves.measured import load_measured_curves
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.identify import identify
    from tfmat.identification.sidecar import read_sidecar
    from tfmat.report.run_files import write_example_picture
    from tfmat.report.tables import identification_table

    law = settings.build_law()
    own_ranges = law.parameters == type(law).parameters
    path = example_curve(law.name) if own_ranges else None
    if path is None:
        path = write_example_curve(law, pathlib.Path(workdir) / "example_curve.csv")
    curves, errors = load_measured_curves([str(path)], read_sidecar(workdir).target)
    if errors:
        raise InputError(str(errors[0]))
    results = identify(Identifier.open(workdir), curves)
    write_json(pathlib.Path(workdir) / "example.json", [result.to_json() for result in results])
    write_example_picture(workdir, results[0].picture())
    _print(identification_table([result.to_json() for result in results]))
    _say(f"the example curve is simulated: {path}")


def _losses_and_metrics(config: Config, dataset: PackedDataset) -> dict[str, Any]:
    """The Trainer's: the mean squared error, one more a parameter where there are several, and `nll` of a variance."""
    from tfmat.models.uncertainty import negative_log_likelihood, squared_error_of_mean

    def squared_error(column: int) -> Callable[[Any, Any], Any]:
        return lambda labels, outputs: (labels[:, column] - outputs[:, column]) ** 2

    count, metrics = len(dataset.parameters), {}
    if count > 1:
        metrics = {f"mse_{p.name}": squared_error(i) for i, p in enumerate(dataset.parameters)}
    _check_loss_weights(config.loss_weights, count)
    loss = squared_error_of_mean(count, config.loss_weights)
    if config.model.uncertainty == "none":
        return {"loss": loss, "metrics": metrics}
    likelihood = negative_log_likelihood(count)
    return {
        "loss": loss,
        "auxiliary_loss": likelihood,
        "metrics": {**metrics, "nll": likelihood},
    }


def _check_loss_weights(weights: tuple[float, ...] | None, count: int) -> None:
    if weights is not None and len(weights) != count:
        raise InputError(
            f"loss_weights has {len(weights)} numbers, the law has {count} parameters to identify; give one for each"
        )


def _check_lengths(config: Config, num_train: int) -> None:
    """Refuses, before anything is made, what cannot be trained."""
    if config.global_batch_size > num_train:
        raise InputError(
            f"global_batch_size is {config.global_batch_size}, but data.num_curves={config.data.num_curves} leaves "
            f"{num_train} for training; use a smaller batch or more curves"
        )
    duration = Duration.parse(config.train_for)
    steps_per_epoch = -(-num_train // config.global_batch_size)
    total_steps = (
        duration.value if duration.seconds is not None else duration.steps(steps_per_epoch)
    )
    if not total_steps:
        raise InputError(f"train_for is '{config.train_for}', less than one step; give more")
    warmup_steps = Duration.parse(config.optimizer.warmup).steps(steps_per_epoch)
    if duration.seconds is None and warmup_steps and warmup_steps >= total_steps:
        raise InputError(
            f"optimizer.warmup='{config.optimizer.warmup}' takes {warmup_steps} steps, the whole run {total_steps}; "
            "shorten the warm-up"
        )


def _seed_and_counts(config: Config) -> dict[str, int]:
    data = config.data
    seed = config.seed if data.seed is None else data.seed
    return {"seed": seed, "num_curves": data.num_curves, "num_test": data.num_test}


def _adopt(config: Config, dataset: PackedDataset) -> None:
    """Makes the config say what the data set is."""
    settings = dataset.settings
    law = settings.law if settings else "imported"
    if config.law not in (law, default_config().law):
        raise InputError(
            f"the data set {dataset.folder} is of law {law}, --law is {config.law}; leave --law out"
        )
    config.law = law
    config.data.num_curves = dataset.num_train + dataset.num_validation
    config.data.num_test = dataset.num_test
    config.data.num_points = int(dataset.features.shape[1])
    if settings is None:
        return
    for name in ("max_strain", "strength_mpa", "noise_mpa", "noise_relative", "strength_cut_off"):
        with config.data.ignore_type():
            config.data[name] = getattr(settings, name)
    for name, values in (("ranges", settings.ranges), ("fixed", settings.fixed)):
        config[name] = Config(dict(values))


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        print(line, file=sys.stderr, flush=True)


def _print(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)
