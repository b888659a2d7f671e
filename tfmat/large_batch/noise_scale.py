"""The gradient noise scale of a run, at each of its checkpoints: `tfmat noise_scale`."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tfmat.backends.base import SavedArrays
from tfmat.config import Settings, load_saved_config
from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError
from tfmat.files import make_folder, write_json
from tfmat.large_batch.landscape import RunLoss
from tfmat.large_batch.sweeps import Progress, part_of
from tfmat.report.figures import (
    BAND,
    INK,
    MEASURED,
    MODEL,
    SECOND,
    finish,
    logarithmic,
    new_figure,
    save_png_and_svg,
)
from tfmat.training.run_folder import RunFolder, find_run_file

# --------------------------------------------------------------------------------------------------
# The simple gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1), from two batch sizes.
#
# The squared norm of a gradient over B examples is |G|² + tr(Σ) / B in expectation. Two sizes give both unknowns
# without bias; their ratio B_simple = tr(Σ) / |G|² is about the batch beyond which larger ones save little.


Array = NDArray[np.floating]

# _RESAMPLES: of the bootstrap.
_RESAMPLES = 2000
_BAND = (5.0, 95.0)  # percentiles


@dataclasses.dataclass(frozen=True)
class NoiseScale:
    """The noise scale at one set of weights.

    Attributes:
      squared_gradient: |G|², of the loss over all examples.
      variance: tr(Σ), of the gradient of one example.
      value: tr(Σ) / |G|², examples; infinite where |G|² could not be told from 0.
      low, high: a band of 90 % around it, by bootstrap over groups.
      small, big, groups: examples of the two batches, and how many of the big ones there were.
    """

    squared_gradient: float
    variance: float
    value: float
    low: float
    high: float
    small: int
    big: int
    groups: int


def estimate_noise_scale(
    small_squares: Array, big_squares: Array, *, small: int, big: int, seed: int = 0
) -> NoiseScale:
    """The noise scale from squared gradient norms.

    Args:
      small_squares: [groups], mean of |g|² over the batches of `small` examples of each group.
      big_squares: [groups], |g|² over all `big` examples of each group.
    """
    pairs = np.stack([small_squares, big_squares], axis=1).astype(np.float64)

    def solve(means: Array) -> tuple[Array, Array]:
        squared = (big * means[..., 1] - small * means[..., 0]) / (big - small)
        variance = (means[..., 0] - means[..., 1]) / (1.0 / small - 1.0 / big)
        return squared, variance

    def ratio(squared: Array, variance: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(squared > 0, np.maximum(variance, 0.0) / squared, np.inf)

    squared, variance = solve(pairs.mean(axis=0))
    drawn = np.random.default_rng(seed).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    low, high = np.percentile(
        ratio(*solve(pairs[drawn].mean(axis=1))), _BAND, method="inverted_cdf"
    )
    return NoiseScale(
        float(squared), float(variance), float(ratio(squared, variance)), float(low), float(high),
        small, big, len(pairs),
    )  # fmt: skip


def measure_squares(
    gradient: Callable[[Any], Sequence[Any]],
    num_examples: int,
    *,
    small: int,
    big: int,
    groups: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Array, Array]:
    """Squared gradient norms of random groups of examples: ([groups], [groups]) for `estimate_noise_scale`.

    Args:
      gradient: int32 rows [small] -> gradients (tensors) of the mean loss over these examples; traced once.
      num_examples: rows are below it; each is drawn at most once as long as that is possible.
      small, big: examples of a small batch and of a group; `big` is a multiple of `small`.
    """
    import tensorflow as tf

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([big // small, small], tf.int32)])
    def squares(rows: Any) -> tuple[Any, Any]:
        def add(i: Any, total: Any, square: Any) -> Any:
            found = gradient(rows[i])
            square += tf.add_n([tf.reduce_sum(g**2) for g in found])
            return i + 1, [a + b for a, b in zip(total, found, strict=True)], square

        first = gradient(rows[0])
        start = tf.add_n([tf.reduce_sum(g**2) for g in first])
        count = rows.shape[0]
        _, total, square = tf.while_loop(
            lambda i, *_: i < count, add, (tf.constant(1), list(first), start)
        )
        return square / count, tf.add_n([tf.reduce_sum((g / count) ** 2) for g in total])

    random = np.random.default_rng(seed)
    needed = groups * big
    rounds = [random.permutation(num_examples) for _ in range(-(-needed // num_examples))]
    rows = np.concatenate(rounds)[:needed].astype(np.int32).reshape(groups, big // small, small)
    found = []
    for i, group in enumerate(rows):
        found.append([float(value) for value in squares(group)])
        if progress:
            progress(i + 1, groups)
    array = np.array(found)
    return array[:, 0], array[:, 1]


def noise_figure(points: Sequence[tuple[int, float, NoiseScale]], batch_size: int) -> Figure:
    """Left: the noise scale over epochs with its band; right: what it predicts for other batches.

    Args:
      points: (step, epoch, noise scale), rising.
    """
    figure = new_figure(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    epochs = np.array([epoch for _, epoch, _ in points])
    value, low, high = (
        np.array([getattr(scale, name) for _, _, scale in points])
        for name in ("value", "low", "high")
    )
    known = np.isfinite(value)
    epochs, shown, bottom = epochs[known], value[known], low[known]
    top = np.where(np.isfinite(high[known]), high[known], 3 * shown)
    errors = [np.maximum(shown - bottom, 0), np.maximum(top - shown, 0)]
    style: Any = {"fmt": "o-", "ms": 4, "lw": 1.5, "capsize": 3, "color": MODEL}
    left.errorbar(epochs, shown, errors, label="noise scale, 90 % band", **style)
    left.axhline(
        batch_size, color=MEASURED, lw=1.2, ls="--", label=f"batch of the run, {batch_size}"
    )
    left.set_ylim(0.5 * min([batch_size, *low]), 2.0 * max([batch_size, *top]))
    finish(left)
    logarithmic(left.yaxis)
    left.set_xlabel("epoch")
    left.set_ylabel("examples")
    left.legend(frameon=False, loc="best")
    left.set_title("gradient noise scale", loc="left", fontsize=11, fontweight="bold")
    _draw_trade_off(right, points[-1][2], batch_size)
    return figure


def _draw_trade_off(panel: Axes, scale: NoiseScale, batch_size: int) -> None:
    """Steps and examples over batch, each relative to its smallest (McCandlish et al. 2018, eq. 2.11 and 2.12)."""
    panel.set_title("predicted for other batches", loc="left", fontsize=11, fontweight="bold")
    panel.set_xlabel("batch (examples)")
    panel.set_ylabel("times the fewest possible")
    if np.isfinite(scale.value) and scale.value > 0:
        ends = min(batch_size, scale.value / 20), max(batch_size, 20 * scale.value)
        batches = np.geomspace(*ends, 200)
        panel.plot(batches, 1 + scale.value / batches, color=MODEL, label="steps")
        panel.plot(batches, 1 + batches / scale.value, color=SECOND, label="examples")
        if np.isfinite(scale.high):
            panel.axvspan(scale.low, scale.high, color=BAND, alpha=0.35, lw=0)
        panel.axvline(scale.value, color=INK, lw=0.8)
        panel.axvline(batch_size, color=MEASURED, lw=1.2, ls="--", label="batch of the run")
        panel.set_ylim(1, 20)
        finish(panel)
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)
        panel.legend(frameon=False)
    else:
        finish(panel)
        panel.text(0.5, 0.5, "|G|² not measurable", transform=panel.transAxes, ha="center")


@dataclasses.dataclass(frozen=True)
class NoiseOfRun:
    """The answer of `noise_scale_of_run`.

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
    from tfmat.workflow import curves_to_train

    config, beside = load_saved_config(find_run_file(workdir, "config.json"))
    if not 1 <= small < big or big % small or groups < 2:
        raise InputError(
            f"--small={small} --big={big} --groups={groups}: big must be a multiple of small, and groups 2 or more"
        )
    folder = RunFolder(workdir)
    steps = folder.saved_steps()
    if not steps:
        raise InputError(
            f"{folder.checkpoints} holds no checkpoint; train first, with --config.checkpoint.keep=10 for more of them"
        )
    if beside.data_dir is None:
        raise InputError(f"{workdir} is no run of tfmat train: its config.json names no data set")
    dataset = PackedDataset.open(beside.data_dir, verify=False)
    num_train = curves_to_train(config, dataset.num_train)
    if big > num_train:
        raise InputError(f"--big={big} is more than the {num_train} training curves")
    epochs = Settings.of(config).epochs(num_train)
    model, gradient = _gradient_function(config, dataset)
    points = []
    for i, step in enumerate(steps):
        _set_weights(model, folder.load_checkpoint(step).arrays)
        report = part_of(progress, i, len(steps), groups)
        squares = measure_squares(
            gradient, num_train, small=small, big=big, groups=groups, seed=seed, progress=report
        )  # fmt: skip
        scale = estimate_noise_scale(*squares, small=small, big=big, seed=seed)
        points.append((step, epochs.epochs(step), scale))
    batch_size = epochs.batch_size(epochs.locate(steps[-1] - 1)[0])
    lines = [
        {"step": step, "epoch": epoch, **dataclasses.asdict(scale)} for step, epoch, scale in points
    ]
    file = folder.path / "noise_scale.json"
    write_json(file, {"batch_size": batch_size, "points": lines}, infinite_is_null=True)
    stem = make_folder(folder.path / "figures") / "noise_scale"
    files = save_png_and_svg(noise_figure(points, batch_size), stem)
    return NoiseOfRun(batch_size, tuple(points), (file, *files))


def _gradient_function(config: Any, dataset: PackedDataset) -> tuple[Any, Callable[[Any], Any]]:
    """The trained part of the run's model, and rows -> gradients of its mean loss with the present weights."""
    import tensorflow as tf

    from tfmat.backends.base import share_or_copy
    from tfmat.networks.factory import build_for
    from tfmat.workflow import curves_to_train, losses_and_metrics, trained_part

    train = slice(curves_to_train(config, dataset.num_train))
    whole = build_for(config, dataset)
    model, seen = trained_part(whole, dataset.features[train], dataset.kept)
    loss_of = RunLoss(model, losses_and_metrics(config, dataset, whole))
    features, labels = share_or_copy(seen), share_or_copy(dataset.labels[train])

    def gradient(rows: Any) -> list[Any]:
        weights = [tf.convert_to_tensor(v.value) for v in model.trainable_variables]
        others = [tf.convert_to_tensor(v.value) for v in model.non_trainable_variables]
        x, y = tf.gather(features, rows), tf.gather(labels, rows)
        return list(loss_of.gradient(weights, others, x, y)[0])

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
