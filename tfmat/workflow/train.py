"""The network of a config, trained on a data set into a run's folder."""

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.config import Config
from tfmat.console import log
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.files import make_folder, read_json, write_json
from tfmat.training.plan import RunPlan
from tfmat.training.run_folder import ENDED
from tfmat.workflow.fronts import parted, represented

if TYPE_CHECKING:
    import keras

    from tfmat.backends import Backend
    from tfmat.training.run import RunResult


def train(
    config: Config, dataset: PackedDataset, plan: RunPlan, *, backend: "Backend"
) -> "RunResult":
    """Trains the config's network on the data set as planned, with the sidecar that gives its numbers a meaning."""
    from tfmat.backends.schedule import has_stages
    from tfmat.models import build_for
    from tfmat.optimizers import build_optimizer
    from tfmat.training.run import Task
    from tfmat.training.session import Session
    from tfmat.training.sources import make_source

    num_outputs = len(dataset.parameters)
    plan = plan.changed(shard_size=dataset.shard_size)
    num_train = curves_to_train(config, dataset.num_train)
    epochs = plan.epochs(num_train)
    model = build_for(config, dataset)
    if backend.rank == 0:
        log(f"network: {model.count_params():,} parameters, {num_outputs} outputs")
        if backend.world_size > 1:
            log(f"{backend.name}: {_shares(backend, config.global_batch_size)}")
        uses_mesh = backend.name == "dtensor" or has_stages(backend.options.mesh)
        if not uses_mesh and backend.options.mesh.num_devices > 1:
            log(
                f"note: mesh={config.mesh} is for --backend=dtensor; {backend.name} does not use it"
            )

    def make_optimizer(total_steps: int, steps_per_epoch: int) -> "keras.optimizers.Optimizer":
        steps = plan.steps(epochs, total_steps)
        asked = epochs.steps(plan.warmup)
        if backend.rank == 0 and steps.warmup < asked:
            log(
                f"note: optimizer.warmup={config.optimizer.warmup} takes {asked} steps, the whole run {total_steps}; "
                f"the warm-up is cut to a tenth of the run (steps: {steps.warmup})"
            )
        # A local step sees no more of a batch than the worker's own part.
        parts = backend.world_size if backend.options.trains_apart else 1
        return build_optimizer(
            config.optimizer,
            steps,
            global_batch_size=-(-plan.global_batch_size // parts),
            seed=plan.seed,
        )

    front, trained = parted(model)
    task = Task(
        trained,
        whole=model,
        optimizer=make_optimizer,
        **losses_and_metrics(config, dataset, model, compiled=compiles_loss(config, backend)),
        callbacks=_callbacks(config, plan, backend),
        sidecar=sidecar(config, dataset),
        counted="curves",
    )
    session = Session(task, plan, backend)
    rows = (
        slice(num_train),
        slice(dataset.num_train, dataset.num_train + dataset.num_validation),
    )
    features = dataset.features
    if front is not None and not _has_ended(plan, backend):
        features = represented(front, features[: rows[1].stop], backend.collectives, dataset.kept)
    elif front is not None:  # nothing trains; only the shape counts
        features = np.broadcast_to(np.float32(0.0), (rows[1].stop, *front.output_shape[1:]))
    training, validation = ((features[part], dataset.labels[part]) for part in rows)
    saved = {
        **config.to_dict(),
        "data_dir": str(dataset.folder.resolve()),
        "data_id": dataset.manifest["id"],
    }
    return session.run(saved, make_source(*training, plan, backend), backend.place(validation))


def curves_to_train(config: Config, num_train: int) -> int:
    """How many of a data set's `num_train` training curves train; InputError where the config wants more."""
    wanted: int = config.data.num_train or num_train
    if wanted > num_train:
        raise InputError(
            f"data.num_train={wanted} is more than the {num_train} training curves that there are; give fewer, or "
            "more curves"
        )
    return wanted


def _has_ended(plan: RunPlan, backend: "Backend") -> bool:
    """Whether the run was trained before, as rank 0 finds it."""
    file = pathlib.Path(plan.workdir or ".") / "status.json"
    ended = backend.rank == 0 and file.is_file() and read_json(file).get("state") in ENDED
    return bool(backend.collectives.broadcast(ended))


def _callbacks(config: Config, plan: RunPlan, backend: "Backend") -> list[Any]:
    """Keras callbacks of this rank. What begins with the training is done once this process is sure to train."""
    from keras.callbacks import EarlyStopping, LambdaCallback, TensorBoard

    from tfmat.launch.provenance import record_session

    callbacks: list[Any] = []
    workdir = plan.workdir or "."
    if backend.rank == 0:
        folder = make_folder(workdir)
        callbacks = [
            TensorBoard(str(folder / "tensorboard"), write_graph=False),
            LambdaCallback(on_train_begin=lambda logs: record_session(folder)),
        ]
    if backend.name == "dtensor":
        callbacks.append(
            LambdaCallback(on_train_begin=lambda logs: _report_devices(backend, workdir))
        )
    if config.callbacks.early_stopping_patience:
        callbacks.append(EarlyStopping(patience=config.callbacks.early_stopping_patience))
    return callbacks


def _report_devices(workers: "Backend", workdir: str) -> None:
    """What each device of a mesh holds: printed, and in `devices.json`."""
    held = workers.bytes_per_device()  # type: ignore[attr-defined]
    if workers.rank != 0:
        return
    notices = list(workers.plan.notices)  # type: ignore[attr-defined]
    write_json(
        pathlib.Path(workdir) / "devices.json",
        {"mesh": str(workers.options.mesh), "bytes_per_device": held, "notices": notices},
    )
    for notice in notices:
        log(f"note: {notice}")
    parts = ", ".join(f"{part} {max(values):,}" for part, values in held.items() if values)
    log(f"bytes on each device of mesh {workers.options.mesh}: {parts}")


def sidecar(config: Config, dataset: PackedDataset) -> dict[str, Any]:
    """What the network's inputs and outputs mean: `model.json`."""
    uncertainty = config.model.uncertainty
    return {
        "format": {"none": 1, "gaussian": 2, "flow": 3}[uncertainty],
        "law": config.law,
        "parameters": [vars(parameter) for parameter in dataset.parameters],
        "curves": dataset.settings.to_json() if dataset.settings else None,
        "num_points": int(dataset.features.shape[1]),
        "input_scale": list(dataset.input_scale),
        **({} if uncertainty == "none" else {"uncertainty": uncertainty}),
    }


def compiles_loss(config: Config, backend: "Backend") -> bool:
    """Whether XLA compiles the loss of a posterior: not on a mesh, on GPUs, or where it compiles the whole step."""
    import tensorflow as tf

    on_cpu = not tf.config.list_logical_devices("GPU")
    return on_cpu and backend.name != "dtensor" and not config.jit_compile


def losses_and_metrics(
    config: Config, dataset: PackedDataset, model: "keras.Model", *, compiled: bool = False
) -> dict[str, Any]:
    """The Trainer's: the mean squared error, one more a parameter where there are several, and `nll` of a variance.

    A model with a posterior head has one loss: the mean of minus the logarithm of the density of the labels, which can
    be compiled by itself.
    """
    from tfmat.models.flow import POSTERIOR
    from tfmat.models.uncertainty import negative_log_likelihood, squared_error_of_mean

    def squared_error(column: int) -> Callable[[Any, Any], Any]:
        return lambda labels, outputs: (labels[:, column] - outputs[:, column]) ** 2

    count, metrics = len(dataset.parameters), {}
    if count > 1:
        metrics = {f"mse_{p.name}": squared_error(i) for i, p in enumerate(dataset.parameters)}
    _check_loss_weights(config.loss_weights, count)
    if config.model.uncertainty == "flow":
        flow = model.get_layer(POSTERIOR)
        return {"loss": flow.compiled_loss() if compiled else flow.loss}
    loss = squared_error_of_mean(count, config.loss_weights)
    if config.model.uncertainty == "none":
        return {"loss": loss, "metrics": metrics}
    likelihood = negative_log_likelihood(count)
    return {
        "loss": loss,
        "auxiliary_loss": likelihood,
        "metrics": {**metrics, "nll": likelihood},
    }


def _shares(backend: "Backend", global_batch_size: int) -> str:
    workers, steps = backend.world_size, backend.options.local_steps
    every = f" every {steps} steps" if steps > 1 else ""
    if backend.options.averaging:
        return (
            f"{workers} workers take turns at parts of each batch of {global_batch_size}, and average their weights "
            f"two by two{every}"
        )
    shares = "take turns at batches" if backend.hands_out_batches else "share each batch"
    meet = every and f", and meet{every}"
    beside = ", while they take the next" if backend.options.overlap_meetings else ""
    return f"{workers} workers {shares} of {global_batch_size}{meet}{beside}"


def _check_loss_weights(weights: tuple[float, ...] | None, count: int) -> None:
    if weights is not None and len(weights) != count:
        raise InputError(
            f"loss_weights has {len(weights)} numbers, the law has {count} parameters to identify; give one for each"
        )
