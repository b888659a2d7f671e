"""What the studies of large batches share: runs, the gradient noise scale, power laws, figures."""

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import least_squares

from tfmat.config import Config, goes_in_pieces
from tfmat.console import clock_text, log
from tfmat.errors import DivergedError, InputError
from tfmat.files import make_folder, read_json
from tfmat.report.figures import (
    BAND,
    COLOURS,
    INK,
    MARKERS,
    MEASURED,
    MODEL,
    MOST_SERIES,
    SECOND,
    finish,
    legend_below,
    logarithmic,
    new_figure,
    save_figure,
    worker_axis,
)
from tfmat.training.plan import RunPlan
from tfmat.training.run_folder import ENDED

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.workflow.job import Job

# --------------------------------------------------------------------------------------------------
# Error = limit + A · examples^-α + B · parameters^-β: the fit, its intervals, and what it says of other sizes.
#
# The form is that of Hoffmann et al. 2022, Training compute-optimal large language models, arXiv:2203.15556, eq. (10).


Array = NDArray[np.floating]


# One for each number that limit and term have, and one to spare; two networks would leave the limit open.
FEWEST_SIZES, FEWEST_NETWORKS = 4, 3
# A steeper decline is no power law any more, but a wall; a gentler one nobody tells from none.
_EXPONENTS = (0.05, 4.0)
# Times the lowest and the highest error found, for the limit and for each term at the middle of the sizes.
_LEAST, _MOST = 1e-3, 10.0
# What is known before any run is seen, as if from one more: seeds differ by some per cent.
_USUAL_SCATTER, _RUNS_KNOWN = 0.05, 1
_CONFIDENCE = 0.9
# Of the sampler: its intervals held the truth as often as they say (see the tests).
_WALKERS_A_NUMBER, _ROUNDS, _SETTLING, _KEPT_OF = 80, 600, 100, 5


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with its 90 % interval; infinite where nothing reaches what is wanted."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        """`value`, `low` and `high`; None for infinity, which JSON lacks."""
        return {
            name: value if math.isfinite(value) else None
            for name, value in dataclasses.asdict(self).items()
        }


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """A fit by least squares, and the laws that explain the runs nearly as well.

    Attributes:
      floor: that no error can be below: 1 for η.
      scale: (examples, parameters), in units of which the terms are written.
      laws: [laws, 3 or 5]: ln(limit - floor), ln A, ln α, and where networks differ ln B, ln β; the first is the fit.
      misfit: root mean square of ln(found / fitted) over the degrees of freedom, of errors above the floor.
    """

    floor: float
    scale: tuple[float, float]
    laws: Array
    misfit: float

    def error(self, examples: float = math.inf, parameters: float = math.inf) -> Estimate:
        """The error that so many examples and parameters of the network are expected to leave."""
        return _estimate(self._limits() + self._term(0, examples) + self._term(1, parameters))

    def exponents(self) -> tuple[Estimate, ...]:
        """α, and where networks differ β."""
        return tuple(_estimate(np.exp(column)) for column in self.laws.T[2::2])

    def fall(self, low: float, high: float) -> Estimate:
        """The part of the examples' term at `low` examples that `high` of them take away, over the error at `high`."""
        gone = self._term(0, low) - self._term(0, high)
        return _estimate(
            gone / (self._limits() + self._term(0, high) + self._term(1, self.scale[1]))
        )

    def examples_for(self, wanted: float, parameters: float = math.inf) -> Estimate:
        """The examples with which a network of so many parameters comes to the wanted error; infinite: none do."""
        return self._size_for(0, wanted - self._limits() - self._term(1, parameters))

    def parameters_for(self, wanted: float, examples: float = math.inf) -> Estimate:
        """The parameters with which a network comes to the wanted error on so many examples; infinite: none do.

        Raises:
          ValueError: the runs were all of one network.
        """
        if self.laws.shape[1] < 5:
            raise ValueError("a law of one network says nothing of others")
        return self._size_for(1, wanted - self._limits() - self._term(0, examples))

    def _limits(self) -> Array:
        return np.asarray(self.floor + np.exp(self.laws[:, 0]))

    def _term(self, which: int, size: float) -> Array:
        """What examples (0) or parameters (1) leave, [laws]; a law of one network has no second term."""
        if self.laws.shape[1] < 3 + 2 * which:
            return np.zeros(len(self.laws))
        log_factor, log_exponent = self.laws.T[1 + 2 * which], self.laws.T[2 + 2 * which]
        return np.asarray(np.exp(log_factor) * (size / self.scale[which]) ** -np.exp(log_exponent))

    def _size_for(self, which: int, rest: Array) -> Estimate:
        log_factor, log_exponent = self.laws.T[1 + 2 * which], self.laws.T[2 + 2 * which]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sizes = np.exp((log_factor - np.log(rest)) / np.exp(log_exponent)) * self.scale[which]
        return _estimate(np.where(rest > 0.0, sizes, np.inf))


def fit_power_law(
    examples: Array, parameters: Array, errors: Array, *, floor: float = 0.0, seed: int = 0
) -> PowerLaw:
    """Fits the law by least squares to the logarithms of errors above the floor: each counts by its relative misfit.

    The intervals hold what all those laws say whose sum of squares is above the least by no more than the factor
    1 + F / f, with F the 90 % quantile of the F distribution for 1 and f degrees of freedom (profile intervals, Bates
    and Watts 1988, Nonlinear regression analysis and its applications, ch. 6). The laws are found by the sampler of
    Goodman and Weare 2010 (Ensemble samplers with affine invariance, Communications in Applied Mathematics and
    Computational Science 5, 65-80). The misfit counts as if one more run had been 5 % off: four runs may lie on a law
    by chance.

    Args:
      examples, parameters, errors: [runs]; positive, errors above the floor. Networks are a term of the law where they
        differ.
      floor: of the error; 0 or 1.
      seed: of the sampler.

    Raises:
      ValueError: fewer than four different numbers of examples, two different networks, or errors not above the floor.
    """
    networks = len(np.unique(parameters))
    if len(np.unique(examples)) < FEWEST_SIZES or 1 < networks < FEWEST_NETWORKS:
        raise ValueError(f"{len(np.unique(examples))} numbers of examples, {networks} networks")
    excess = np.asarray(errors, float) - floor
    if not np.all(excess > 0.0):
        raise ValueError(f"errors {errors} are not all above {floor:g}")
    scale = float(np.exp(np.log(examples).mean())), float(np.exp(np.log(parameters).mean()))
    sizes = [np.log(examples / scale[0])]
    if networks > 1:
        sizes.append(np.log(parameters / scale[1]))
    term = (_LEAST * excess.min(), _MOST * excess.max())
    bounds = np.log([term, *([term, _EXPONENTS] * len(sizes))])
    misfits = _Misfits(np.stack(sizes), np.log(excess), bounds)
    best = misfits.best()
    squares = float((misfits.of(best) ** 2).sum())
    freedom = len(excess) - len(best)
    laws = misfits.as_good(best, _most(squares, freedom), np.random.default_rng(seed))
    return PowerLaw(floor, scale, np.vstack([best, laws]), math.sqrt(squares / freedom))


def _most(squares: float, freedom: int) -> float:
    """The largest sum of squares of a law inside the intervals."""
    known, freedom = _RUNS_KNOWN * _USUAL_SCATTER**2, freedom + _RUNS_KNOWN
    quantile = float(stats.f.ppf(_CONFIDENCE, 1, freedom))
    return (squares + known) * (1.0 + quantile / freedom) - known


@dataclasses.dataclass(frozen=True)
class _Misfits:
    """ln(fitted / found) as a function of the law's numbers.

    Attributes:
      sizes: [1 or 2, runs]: logarithms of scaled examples, and of parameters.
      logs: [runs], of the errors above the floor.
      bounds: [numbers, 2] of the law.
    """

    sizes: Array
    logs: Array
    bounds: Array

    def of(self, laws: Array) -> Array:
        """[..., runs] for laws [..., numbers]."""
        error = np.exp(laws[..., :1])
        for i, size in enumerate(self.sizes):
            factor, exponent = laws[..., 1 + 2 * i, None], laws[..., 2 + 2 * i, None]
            error = error + np.exp(factor - np.exp(exponent) * size)
        return np.asarray(np.log(error) - self.logs)

    def best(self) -> Array:
        """The law of least squares, from several starts: limits near and far, slopes gentle and steep."""
        lowest, middle = float(self.logs.min()), float(np.median(self.logs))
        starts = []
        for share in (-4.0, -0.7):
            for slopes in np.log([(0.3, 0.3), (0.3, 1.0), (1.0, 0.3), (1.0, 1.0)]):
                terms = [number for slope in slopes for number in (middle - 0.7, slope)]
                starts.append(np.array([lowest + share, *terms])[: len(self.bounds)])
        low, high = self.bounds.T
        fits = [
            least_squares(self.of, np.clip(start, low + 1e-6, high - 1e-6), bounds=(low, high))
            for start in starts
        ]
        return np.asarray(min(fits, key=lambda fit: float(fit.cost)).x)

    def as_good(self, best: Array, most: float, random: np.random.Generator) -> Array:
        """[laws, numbers] with a sum of squares of at most `most`: stretch moves between the halves of an ensemble."""
        walkers, kept = self._start(best, most, random), []
        half, freedom = len(walkers) // 2, len(best) - 1
        for turn in range(_ROUNDS):
            for moved, others in (
                (slice(half), slice(half, None)),
                (slice(half, None), slice(half)),
            ):
                towards = walkers[others][random.permutation(half)]
                stretch = (1.0 + random.random(half)) ** 2 / 2.0  # a = 2
                proposed = towards + stretch[:, None] * (walkers[moved] - towards)
                taken = (random.random(half) < stretch**freedom) & self._inside(proposed, most)
                walkers[moved] = np.where(taken[:, None], proposed, walkers[moved])
            if turn >= _SETTLING and turn % _KEPT_OF == 0:
                kept.append(walkers.copy())
        return np.concatenate(kept)

    def _start(self, best: Array, most: float, random: np.random.Generator) -> Array:
        """[walkers, numbers], scattered about the best as widely as `most` lets them."""
        away = random.standard_normal((_WALKERS_A_NUMBER * len(best), len(best)))
        while not (inside := self._inside(best + away, most)).all():
            away[~inside] /= 2.0
        return np.asarray(best + away)

    def _inside(self, laws: Array, most: float) -> NDArray[np.bool_]:
        within = np.all((laws > self.bounds[:, 0]) & (laws < self.bounds[:, 1]), axis=-1)
        squares = (self.of(np.clip(laws, *self.bounds.T)) ** 2).sum(axis=-1)
        return np.asarray(within & (squares <= most))


def _estimate(values: Array) -> Estimate:
    return Estimate(float(values[0]), float(values.min()), float(values.max()))


# --------------------------------------------------------------------------------------------------
# The simple gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1), from two batch sizes.
#
# The squared norm of a gradient over B examples is |G|² + tr(Σ) / B in expectation. Two sizes give both unknowns
# without
# bias; their ratio B_simple = tr(Σ) / |G|² is about the batch beyond which larger ones save little.


_RESAMPLES = 2000
_BAND = (5.0, 95.0)  # percentiles


@dataclasses.dataclass(frozen=True)
class NoiseScale:
    """What was found at one set of weights.

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

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values; None for infinity."""
        content = dataclasses.asdict(self)
        return {k: None if not math.isfinite(v) else v for k, v in content.items()}


def estimate_noise_scale(
    small_squares: Array, big_squares: Array, *, small: int, big: int, seed: int = 0
) -> NoiseScale:
    """The noise scale from squared gradient norms.

    Args:
      small_squares: [groups], mean of |g|² over the batches of `small` examples of each group.
      big_squares: [groups], |g|² over all `big` examples of each group.
      small, big: examples.
      seed: of the bootstrap.
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
      groups: how many.
      seed: of the draw.
      progress: called with (groups done, groups).
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


# --------------------------------------------------------------------------------------------------
# The pictures of this room: noise scale, range test, batch sweep, learning curve.


def save_png_and_svg(figure: Figure, stem: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes STEM.png and STEM.svg, each whole or not at all."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    save_figure(figure, png)
    save_figure(figure, svg)
    return png, svg


def noise_figure(points: Sequence[tuple[int, float, NoiseScale]], batch_size: int) -> Figure:
    """Left: the noise scale over epochs with its band; right: what it predicts for other batches.

    Args:
      points: (step, epoch, noise scale), rising.
      batch_size: of the run.
    """
    figure = new_figure(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    epochs = np.array([epoch for _, epoch, _ in points])
    value, low, high = (
        np.array([getattr(scale, name) for _, _, scale in points])
        for name in ("value", "low", "high")
    )
    known = np.isfinite(value)
    top = np.where(np.isfinite(high), high, 3 * np.where(known, value, low))
    errors = [np.maximum(value - low, 0)[known], np.maximum(top - value, 0)[known]]
    style: Any = {"fmt": "o-", "ms": 4, "lw": 1.5, "capsize": 3, "color": MODEL}
    left.errorbar(epochs[known], value[known], errors, label="noise scale, 90 % band", **style)
    left.axhline(
        batch_size, color=MEASURED, lw=1.2, ls="--", label=f"batch of the run, {batch_size}"
    )
    left.set_ylim(0.5 * min([batch_size, *low]), 2.0 * max([batch_size, *top[known]]))
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


def range_figure(
    tests: Mapping[int, pd.DataFrame], marks: Mapping[int, Mapping[str, float]]
) -> Figure:
    """Smoothed loss over learning rate, a line a batch, the suggested rate marked.

    Args:
      tests: batch -> table with columns `learning_rate`, `smoothed_loss`.
      marks: batch -> `suggested`, a rate.
    """
    figure = new_figure(7.0, 4.2)
    panel = figure.subplots()
    colors = _colors(len(tests))
    lowest = min(float(table.smoothed_loss.min()) for table in tests.values())
    start = max(float(table.smoothed_loss.iloc[0]) for table in tests.values())
    for (batch, table), color in zip(sorted(tests.items()), colors, strict=True):
        panel.plot(
            table.learning_rate, table.smoothed_loss, lw=1.6, color=color, label=f"batch {batch}"
        )
        rate = marks[batch]["suggested"]
        at = float(np.interp(np.log(rate), np.log(table.learning_rate), table.smoothed_loss))
        panel.plot([rate], [at], "o", ms=7, mfc="none", mec=color, mew=1.6)
    panel.set_ylim(0.8 * lowest, 2.0 * start)
    finish(panel)
    logarithmic(panel.xaxis)
    logarithmic(panel.yaxis)
    panel.set_xlabel("learning rate")
    panel.set_ylabel("training loss, smoothed")
    panel.legend(frameon=False, title="circle: suggested", alignment="left")
    return figure


def sweep_figure(table: pd.DataFrame, equal: str) -> Figure:
    """Four panels over batch: time an epoch, curves a second, processor use, validation loss.

    Args:
      table: rows as in batch_sweep.csv.
      equal: how long the runs of equal time were, for the legend.
    """
    figure = new_figure(10.0, 7.0)
    panels = figure.subplots(2, 2)
    runs = table[table.state == "done"]
    epochs = runs[runs.kind == "epochs"].sort_values("batch")
    for panel, column, label in (
        (panels[0, 0], "seconds_an_epoch", "training time of an epoch (s)"),
        (panels[0, 1], "curves_per_second", "curves/s"),
        (panels[1, 0], "processor_use", "processors in use (%)"),
    ):
        values = epochs[column] * (100 if column == "processor_use" else 1)
        panel.plot(epochs.batch, values, "o-", ms=4, color=MODEL)
        panel.set_ylim(bottom=0, top=1.15 * max(values, default=1.0))
        panel.set_ylabel(label)
    panel = panels[1, 1]
    for kind, color, label in (
        ("epochs", MODEL, "equal epochs"),
        ("time", SECOND, f"equal time, {equal}"),
    ):
        part = runs[runs.kind == kind].sort_values("batch")
        panel.plot(part.batch, part.val_loss, "o-", ms=4, color=color, label=label)
    panel.set_ylabel("validation loss")
    panel.legend(frameon=False)
    for panel in panels.flat:
        finish(panel)
        worker_axis(panel.xaxis, sorted(runs.batch.unique()))
        panel.set_xlabel("global batch")
    if len(runs):
        logarithmic(panels[1, 1].yaxis)
    return figure


def learning_figure(
    points: Sequence[Mapping[str, Any]],
    laws: Mapping[str, PowerLaw],
    quantity: str,
    wanted: float,
) -> Figure:
    """A panel a parameter: the errors of the runs over their training curves, and the fit with its interval.

    Args:
      points: of learning_curve.json.
      laws: parameter -> its fit.
      quantity: what the errors are.
      wanted: error that is asked for.
    """
    figure = new_figure(5.0 * len(laws), 4.4)
    panels = figure.subplots(1, len(laws), squeeze=False)[0]
    networks = sorted({point["parameters"] for point in points})
    most = max(point["curves"] for point in points)
    curves = np.geomspace(min(point["curves"] for point in points), 10 * most, 60)
    for panel, (name, law) in zip(panels, laws.items(), strict=True):
        for i, parameters in enumerate(networks):
            own = [point for point in points if point["parameters"] == parameters]
            look = {"color": COLOURS[i % MOST_SERIES], "marker": MARKERS[i % MOST_SERIES]}
            x, y = ([point["curves"] for point in own], [point["errors"][name] for point in own])
            panel.plot(x, y, ls="", ms=5, label=f"{parameters:,} parameters", **look)
            found = [law.error(count, parameters) for count in curves]
            panel.plot(curves, [each.value for each in found], lw=1.4, color=look["color"])
            low, high = ([getattr(each, end) for each in found] for end in ("low", "high"))
            panel.fill_between(curves, low, high, color=look["color"], alpha=0.15, lw=0)
        panel.axhline(wanted, color=INK, lw=0.9, ls=":", label=f"wanted: {wanted:g}")
        panel.axvline(most, color=MEASURED, lw=0.9, ls="--", label="beyond: predicted")
        finish(panel)
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)
        panel.set_xlabel("training curves")
        panel.set_ylabel(quantity)
        panel.set_title(name, loc="left", fontsize=11, fontweight="bold")
    legend_below(panels[0])
    return figure


def _colors(count: int) -> list[Any]:
    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, max(count, 1))))


# --------------------------------------------------------------------------------------------------
# The runs of a study, one after the other: each is an ordinary run in a folder of its own.
#
# One that is done is not repeated, one that was stopped goes on.


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
      name: of its folder.
      about: what it is, in a few words.
      config: its own; where `data_dir` is a data set, `run_all` makes it say what that is.
      key: of the study's table, as column -> value.
      work: how long it takes beside the others, for the time that is left.
    """

    name: str
    about: str
    config: Config
    key: dict[str, Any]
    work: float = 1.0


def run_all(
    runs: Sequence[StudyRun], workdir: str, data_dir: str
) -> Iterator[tuple[StudyRun, "Job", pathlib.Path]]:
    """Trains what has not ended yet, and yields each run, as it was planned, and its folder as soon as it has.

    Raises:
      InputError: before the first begins, where one of them cannot be trained, or its folder holds a run with other
        settings or data.
      Interrupted.
    """
    from tfmat.workflow import plan_job

    folder = make_folder(workdir)
    jobs = [
        plan_job(run.config, workdir=str(folder / run.name), data_dir=data_dir, backend="single")
        for run in runs
    ]
    dataset, opened, done, seconds = None, None, 0.0, 0.0
    waiting = [state_of(folder / run.name) not in ENDED for run in runs]
    for i, (run, job) in enumerate(zip(runs, jobs, strict=True)):
        path = folder / run.name
        if waiting[i]:  # else TensorFlow is not even loaded
            ahead = sum(
                other.work for other, waits in zip(runs[i:], waiting[i:], strict=True) if waits
            )
            left = f", about {clock_text(ahead / done * seconds)} left" if done else ""
            log(f"{i + 1} of {len(runs)}: {run.about}{left}")
            if job.data != opened:
                dataset = prepare_data(run.config, data_dir, run.config.global_batch_size)
                opened = job.data
            assert dataset is not None
            started = time.monotonic()
            run_once(run.config, dataset, path)
            yield run, job, path
            done, seconds = done + run.work, seconds + time.monotonic() - started
        else:
            yield run, job, path


def prepare_data(config: Config, data_dir: str, largest_batch: int) -> "PackedDataset":
    """The data set of the config, made if it is not there; TensorFlow is loaded and set up as `tfmat train` does.

    Raises:
      InputError: also where the largest batch is larger than the training set.
    """
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.workflow import curve_settings, make_dataset
    from tfmat.workflow.dataset import named_dataset
    from tfmat.workflow.job import curves_to_train

    dataset = named_dataset(config, data_dir)
    if dataset is None:
        dataset = make_dataset(config, curve_settings(config), data_dir)
    num_train = curves_to_train(config, dataset.num_train)
    if largest_batch > num_train:
        raise InputError(
            f"batch {largest_batch} is larger than the {num_train} training curves; leave it out"
        )
    prepare_tensorflow(one_thread_an_operation=goes_in_pieces(config.model), own_program=True)
    return dataset


def run_once(config: Config, dataset: "PackedDataset", path: pathlib.Path) -> None:
    """Trains into `path`, from its last checkpoint if there is one; a run that diverges has ended too."""
    import keras

    from tfmat.backends import make_backend
    from tfmat.backends.options import backend_options
    from tfmat.workflow.job import train

    keras.backend.clear_session()
    make_folder(path)
    with make_backend("single", backend_options(config, folder=str(path))) as backend:
        try:
            train(config, dataset, RunPlan.of_config(config, workdir=str(path)), backend=backend)
        except DivergedError:
            return  # the folder says so


def state_of(path: pathlib.Path) -> str:
    """The run's state; empty where there is none."""
    status = path / "status.json"
    return str(read_json(status)["state"]) if status.exists() else ""
