"""Power laws of batch size and loss, and the figures of the studies."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import least_squares

from tfmat.large_batch.noise_scale import NoiseScale
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

# --------------------------------------------------------------------------------------------------
# Error = limit + A · examples^-α + B · parameters^-β: the fit, its intervals, and what it says of other sizes.
#
# The form is that of Hoffmann et al. 2022, Training compute-optimal large language models, arXiv:2203.15556, eq.
# (10).


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
