"""The gradient noise scale of a run, at each of its checkpoints."""

import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmat.backends.base import SavedArrays
from tfmat.config import Settings, load_saved_config
from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError
from tfmat.files import make_folder, write_json
from tfmat.large_batch.figures import noise_figure, save_png_and_svg
from tfmat.large_batch.losses import RunLoss
from tfmat.large_batch.noise_scale import NoiseScale, estimate_noise_scale, measure_squares
from tfmat.training.run_folder import CheckpointFolder, find_run_file

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class NoiseOfRun:
    """What `noise_scale_of_run` returns.

    Attributes:
      batch_size: of the run, at the last point.
      points: (global step, epoch, noise scale), rising.
      files: pictures and data that were written.
    """

    batch_size: int
    points: tuple[tuple[int, float, NoiseScale], ...]
    files: tuple[pathlib.Path, ...]


def noise_scale_of_run(
    workdir: str,
    *,
    small: int = 100,
    big: int = 4000,
    groups: int = 40,
    seed: int = 0,
    progress: Progress | None = None,
) -> NoiseOfRun:
    """Measures the noise scale on training examples; writes noise_scale.json and figures/noise_scale.png, .svg.

    Layers with moving statistics or dropout are in inference mode.

    Args:
      workdir: of a run that has checkpoints; it may still be training.
      small, big, groups, seed: see `measure_squares`.
      progress: called with (groups done, all groups).

    Raises:
      InputError: where there is no checkpoint, or the sizes do not fit.
    """
    from tfmat.workflow.job import curves_to_train

    config, extra = load_saved_config(find_run_file(workdir, "config.json"))
    if not 1 <= small < big or big % small or groups < 2:
        raise InputError(
            f"--small={small} --big={big} --groups={groups}: big must be a multiple of small, and groups 2 or more"
        )
    folder = CheckpointFolder(pathlib.Path(workdir) / "checkpoints")
    steps = folder.steps()
    if not steps:
        raise InputError(
            f"{folder.folder} holds no checkpoint; train first, with --config.checkpoint.keep=10 for more of them"
        )
    dataset = PackedDataset.open(extra["data_dir"], verify=False)
    num_train = curves_to_train(config, dataset.num_train)
    if big > num_train:
        raise InputError(f"--big={big} is more than the {num_train} training curves")
    epochs = Settings.of(config).epochs(num_train)
    model, gradient = _gradient_function(config, dataset)
    points = []
    for i, step in enumerate(steps):
        _set_weights(model, folder.load(step).arrays)
        report = _part(progress, i, len(steps), groups)
        squares = measure_squares(
            gradient, num_train, small=small, big=big, groups=groups, seed=seed, progress=report
        )  # fmt: skip
        scale = estimate_noise_scale(*squares, small=small, big=big, seed=seed)
        points.append((step, epochs.epochs(step), scale))
    batch_size = epochs.batch_size(epochs.locate(steps[-1] - 1)[0])
    return _write(pathlib.Path(workdir), batch_size, points)


def _write(
    workdir: pathlib.Path, batch_size: int, points: list[tuple[int, float, NoiseScale]]
) -> NoiseOfRun:
    content = [{"step": step, "epoch": epoch, **scale.to_json()} for step, epoch, scale in points]
    write_json(workdir / "noise_scale.json", {"batch_size": batch_size, "points": content})
    figures = make_folder(workdir / "figures")
    files = save_png_and_svg(noise_figure(points, batch_size), figures / "noise_scale")
    return NoiseOfRun(batch_size, tuple(points), (workdir / "noise_scale.json", *files))


def _part(progress: Progress | None, i: int, parts: int, groups: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(i * groups + done, parts * groups)


def _gradient_function(config: Any, dataset: PackedDataset) -> tuple[Any, Callable[[Any], Any]]:
    """What trains of the run's model, and rows -> gradients of its mean loss with the present weights."""
    import tensorflow as tf

    from tfmat.backends.base import share_or_copy
    from tfmat.networks import build_for
    from tfmat.workflow.job import curves_to_train, losses_and_metrics, trained_part

    train = slice(curves_to_train(config, dataset.num_train))
    whole = build_for(config, dataset)
    model, seen = trained_part(whole, dataset.features[train], dataset.kept)
    loss_of = RunLoss(model, losses_and_metrics(config, dataset, whole))
    features, labels = share_or_copy(seen), share_or_copy(dataset.labels[train])

    def gradient(rows: Any) -> list[Any]:
        weights = [tf.convert_to_tensor(v.value) for v in model.trainable_variables]
        others = [tf.convert_to_tensor(v.value) for v in model.non_trainable_variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            loss = loss_of(weights, others, tf.gather(features, rows), tf.gather(labels, rows))
        return list(
            tape.gradient(loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        )

    return model, gradient


def _set_weights(model: Any, arrays: SavedArrays) -> None:
    for part, variables in (
        ("weights", model.trainable_variables),
        ("non_trainable", model.non_trainable_variables),
    ):
        for i, variable in enumerate(variables):
            array = arrays.get(f"{part}/{i}")
            if array is None or array.shape != tuple(variable.shape):
                raise InputError(
                    "the run's checkpoints do not fit its config.json; is the folder complete?"
                )
            variable.assign(np.asarray(array))


def describe_noise(found: NoiseOfRun) -> str:
    """The table and what it means, as text."""
    lines = [
        f"{'step':>9} {'epoch':>7} {'|G|²':>11} {'tr Σ':>11} {'noise scale':>12}   band (90 %)"
    ]
    lines += [
        f"{step:>9} {epoch:>7.2f} {scale.squared_gradient:>11.3g} {scale.variance:>11.3g} "
        f"{_count(scale.value):>12}   {_count(scale.low)} to {_count(scale.high)}"
        for step, epoch, scale in found.points
    ]
    scale = found.points[-1][2]
    if math.isfinite(scale.value) and scale.value > 0:
        steps, work = 1 + scale.value / found.batch_size, 1 + found.batch_size / scale.value
        lines.append(
            f"critical batch at the end: about {_count(scale.value)}. The run's batch of {found.batch_size} needs "
            f"{steps:.3g} times the fewest steps and {work:.3g} times the fewest curves"
        )
    else:
        lines.append(
            f"|G|² is lost in the noise of {scale.groups} x {scale.big} curves: the critical batch at the end is above "
            f"{_count(scale.low)}; give more --groups or a larger --big"
        )
    return "\n".join([*lines, *map(str, found.files)])


def _count(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "unknown"
