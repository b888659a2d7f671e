"""How the error falls with the training curves and the network's width: `tfmat learning_curve`."""

import dataclasses
import functools
import itertools
import math
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from msgspec import Struct, structs
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import least_squares

from tfmat.config import Config, Settings
from tfmat.console import log
from tfmat.errors import DivergedError, InputError
from tfmat.files import spreadsheet_text, write_json, write_text
from tfmat.large_batch.sweeps import StudyRun, run_all, state_of, with_keys
from tfmat.report.figures import (
    COLOURS,
    INK,
    MARKERS,
    MEASURED,
    MOST_SERIES,
    finish,
    legend_below,
    logarithmic,
    new_figure,
    save_png_and_svg,
)

if TYPE_CHECKING:
    from tfmat.workflow import Job

# --------------------------------------------------------------------------------------------------
# Error = limit + A · examples^-α + B · parameters^-β: the fit, its intervals, and what it says of other sizes.
#
# The form is from Hoffmann et al. 2022, Training compute-optimal large language models, arXiv:2203.15556, eq. (10).


Array = NDArray[np.floating]


# One for each number that limit and term have, and one to spare; two networks would leave the limit open.
FEWEST_SIZES, FEWEST_NETWORKS = 4, 3
# A steeper decline is no power law any more, but a wall; a gentler one nobody tells from none.
_EXPONENTS = (0.05, 4.0)
# Times the lowest and the highest error found, for the limit and for each term at the middle of the sizes.
_LEAST, _MOST = 1e-3, 10.0
# Scatter of seeds before any run is seen, as if from one more run: seeds differ by some per cent.
_USUAL_SCATTER, _RUNS_KNOWN = 0.05, 1
_CONFIDENCE = 0.9
# Settings of the sampler: its intervals held the truth as often as they say (see the tests).
_WALKERS_A_NUMBER, _ROUNDS, _SETTLING, _KEPT_OF = 80, 600, 100, 5


class Estimate(Struct, frozen=True):
    """A number with its 90 % interval; infinite where nothing reaches what is wanted."""

    value: float
    low: float
    high: float


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
        """The error that examples (0) or parameters (1) leave, [laws]; a law of one network has no second term."""
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
# `learning_curve.json`, in which null stands for infinity.


class Run(Struct, frozen=True):
    """A run that came to its end.

    Attributes:
      width: times the config's dense units.
      errors: parameter of the law -> error on the test curves.
    """

    curves: int
    width: float
    seed: int
    parameters: int
    errors: dict[str, float]


class MeasuredNetwork(Struct):
    """A network of the runs.

    Attributes:
      limit: its error with endless curves.
      reached: geometric mean of its errors with the most curves.
      curves: that give the wanted error.
    """

    width: float
    parameters: int
    limit: Estimate
    reached: float
    curves: Estimate


class Size(Struct):
    """The network that gives the wanted error with so many curves; None for endless ones."""

    curves: int | None
    parameters: Estimate
    width: Estimate


class Answer(Struct):
    """The law of one parameter.

    Attributes:
      alpha, beta: exponents; beta is None with one network.
      misfit: root mean square of the logarithms.
      falls: whether the errors surely fall with the curves.
      networks: each of the measured ones.
      sizes: for the largest measured number of curves, and for endless ones.
    """

    alpha: Estimate
    beta: Estimate | None
    misfit: float
    falls: bool
    networks: list[MeasuredNetwork]
    sizes: list[Size]


class LearningCurve(Struct):
    """The whole study.

    Attributes:
      quantity: of the errors: η where the best possible is known, else root mean square in % of the range.
      wanted: error that is asked for.
      laws: parameter of the law -> its answer.
    """

    quantity: str
    wanted: float
    points: list[Run]
    diverged: list[str]
    laws: dict[str, Answer]


def learning_figure(
    points: Sequence[Run],
    laws: Mapping[str, PowerLaw],
    quantity: str,
    wanted: float,
) -> Figure:
    """A panel a parameter: the errors of the runs over their training curves, and the fit with its interval."""
    figure = new_figure(5.0 * len(laws), 4.4)
    panels = figure.subplots(1, len(laws), squeeze=False)[0]
    networks = sorted({point.parameters for point in points})
    most = max(point.curves for point in points)
    curves = np.geomspace(min(point.curves for point in points), 10 * most, 60)
    for panel, (name, law) in zip(panels, laws.items(), strict=True):
        for i, parameters in enumerate(networks):
            own = [point for point in points if point.parameters == parameters]
            look = {"color": COLOURS[i % MOST_SERIES], "marker": MARKERS[i % MOST_SERIES]}
            x, y = [point.curves for point in own], [point.errors[name] for point in own]
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


ETA, RMSE = "η", "error, % of the range"
# Compilation and evaluation take about as long as the training on so many examples.
_BESIDE = 50_000
# A fall that is not surely more than this part of the error cannot be told from chance.
_LEAST_FALL = 0.02
_WIDTHS = (1e-3, 1e3)

SizeOf = Callable[[float], int]


def learning_curve(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    curves: Sequence[int],
    widths: Sequence[float] = (1.0,),
    seeds: int = 2,
    wanted: float = 1.2,
) -> LearningCurve:
    """Trains every network on every number of curves; writes learning_curve.csv, .json, .png and .svg.

    Args:
      config: of all runs, but for the number of curves, the dense units and the seed.
      workdir: folder of the results and of the runs.
      data_dir: as for `tfmat train`; of a data set, runs train on its first curves.
      curves: training curves; four numbers or more.
      widths: times the config's dense units; three or more to learn what a larger network would gain.
      wanted: error that is asked for: η where the best possible is known, else root mean square in % of the range.

    Returns:
      The content of learning_curve.json.

    Raises:
      InputError: before the first run begins.
      Interrupted.
      DivergedError: so many runs diverged that nothing can be fitted.
    """
    _check(config, curves, widths, seeds, wanted)
    folder = pathlib.Path(workdir)
    plan = list(itertools.product(range(seeds), sorted(set(curves)), sorted(set(widths))))
    runs = [_study_run(config, count, width, seed, data_dir) for seed, count, width in plan]
    points: list[Run] = []
    etas: list[dict[str, float] | None] = []
    diverged: list[str] = []
    for (seed, count, width), (run, job, path) in zip(
        plan, run_all(runs, workdir, data_dir), strict=True
    ):
        if state_of(path) == "diverged":
            log(f"{run.name} diverged and is left out")
            diverged.append(run.name)
            continue
        eta, rmse = _scores(path)
        etas.append(eta)
        points.append(Run(count, width, seed, job.num_weights, rmse))
        write_text(folder / "learning_curve.csv", spreadsheet_text(_table(points, etas)))
    _check_enough(points, diverged, widths)
    quantity = RMSE
    if all(etas):
        quantity = ETA
        points = [
            structs.replace(point, errors=eta) for point, eta in zip(points, etas, strict=True)
        ]
    laws = {name: law_of(points, name, quantity) for name in points[0].errors}
    size_of = functools.partial(weights_at, job, config)
    found = {name: answers(law, points, name, wanted, size_of) for name, law in laws.items()}
    content = LearningCurve(quantity, wanted, points, diverged, found)
    save_png_and_svg(learning_figure(points, laws, quantity, wanted), folder / "learning_curve")
    write_json(folder / "learning_curve.json", content, infinite_is_null=True)
    return content


def weights_at(job: "Job", config: Config, width: float) -> int:
    """Trainable numbers of a run's network with `width` times the config's dense units."""
    settings = Settings.of(_at(config, width=width))
    return dataclasses.replace(job, settings=settings).num_weights


def law_of(points: Sequence[Run], name: str, quantity: str) -> PowerLaw:
    """The power law of the errors of one parameter."""
    return fit_power_law(
        np.array([point.curves for point in points], float),
        np.array([point.parameters for point in points], float),
        np.array([point.errors[name] for point in points]),
        floor=1.0 if quantity == ETA else 0.0,
    )


def answers(
    law: PowerLaw, points: Sequence[Run], name: str, wanted: float, size_of: SizeOf
) -> Answer:
    """The answer of one parameter's law."""
    counts = [point.curves for point in points]
    networks = [
        MeasuredNetwork(
            width,
            parameters,
            limit=law.error(parameters=parameters),
            reached=_reached(points, name, width),
            curves=law.examples_for(wanted, parameters),
        )
        for parameters, width in sorted({(point.parameters, point.width) for point in points})
    ]
    alpha, *beta = law.exponents()
    sizes = []
    for count in (max(counts), None) if beta else ():
        needed = law.parameters_for(wanted, math.inf if count is None else count)
        ends = (needed.value, needed.low, needed.high)
        width = Estimate(*(_width_for(parameters, size_of) for parameters in ends))
        sizes.append(Size(count, needed, width))
    falls = law.fall(min(counts), max(counts)).low > _LEAST_FALL
    return Answer(alpha, beta[0] if beta else None, law.misfit, falls, networks, sizes)


def _reached(points: Sequence[Run], name: str, width: float) -> float:
    own = [point for point in points if point.width == width]
    most = max(point.curves for point in own)
    errors = [point.errors[name] for point in own if point.curves == most]
    return float(np.exp(np.log(errors).mean()))


def _check(
    config: Config, curves: Sequence[int], widths: Sequence[float], seeds: int, wanted: float
) -> None:
    if len(set(curves)) < FEWEST_SIZES:
        raise InputError(
            f"--curves has {len(set(curves))} different numbers; a fit takes {FEWEST_SIZES} or more, such as "
            "10000,20000,40000,80000"
        )
    if min(curves) < max(6, config.global_batch_size):
        raise InputError(
            f"--curves has {min(curves)}, fewer than global_batch_size={config.global_batch_size}; give more, or a "
            "smaller batch"
        )
    shown = ",".join(f"{width:g}" for width in widths)
    if 1 < len(set(widths)) < FEWEST_NETWORKS or min(widths) <= 0:
        raise InputError(
            f"--widths={shown}: give one positive number, or {FEWEST_NETWORKS} or more, such as 0.5,1,2"
        )
    units = Counter(_units(config, width) for width in set(widths))
    if max(units.values()) > 1:
        same = ",".join(map(str, units.most_common(1)[0][0]))
        raise InputError(
            f"--widths={shown}: two of them make the same network, model.hidden_units={same}; give others"
        )
    if seeds < 1:
        raise InputError(f"--seeds={seeds}: give a positive number")
    if not (wanted > 0 and math.isfinite(wanted)):
        raise InputError(f"--wanted={wanted:g}: give a positive number")


def _check_enough(points: Sequence[Run], diverged: Sequence[str], widths: Sequence[float]) -> None:
    counts, left = {point.curves for point in points}, {point.width for point in points}
    if len(counts) < FEWEST_SIZES or len(left) < min(len(set(widths)), FEWEST_NETWORKS):
        raise DivergedError(
            f"{len(diverged)} of {len(diverged) + len(points)} runs diverged, which leaves {len(counts)} numbers of "
            f"curves and {len(left)} networks: too few for a fit; take a lower optimizer.learning_rate and another "
            "--workdir"
        )


def _units(config: Config, width: float) -> tuple[int, ...]:
    return tuple(max(1, round(width * units)) for units in config.model.hidden_units)


def _at(config: Config, width: float, **keys: Any) -> Config:
    """A checked copy with so many times the dense units, and other values of keys such as `data__seed`."""
    units = ",".join(map(str, _units(config, width)))
    return with_keys(config, model__hidden_units=units, **keys)


def _study_run(config: Config, count: int, width: float, seed: int, data_dir: str) -> StudyRun:
    """A run on so many curves: the first ones of a data set, or of a simulated set of that size."""
    from tfmat.data.dataset import is_dataset

    # A quarter of a simulated set validates.
    size = (
        {"data__num_train": count}
        if is_dataset(data_dir)
        else {"data__num_curves": count + count // 3}
    )
    changed = _at(
        config,
        width,
        data__seed=config.seed if config.data.seed is None else config.data.seed,
        seed=config.seed + seed,
        **size,
    )
    train_for = Settings.of(config).train_for
    passes = train_for.value if train_for.unit == "epochs" else 0.0  # else all runs are as long
    return StudyRun(
        name=f"curves-{count:07d}-width-{width:g}-seed-{seed}",
        about=f"{count:,} curves, {width:g} times the units, seed {seed}",
        config=changed,
        work=_BESIDE + count * passes,
    )


def _scores(path: pathlib.Path) -> tuple[dict[str, float] | None, dict[str, float]]:
    """η (None where not known) and root mean square (% of the range) on the test curves: parameter -> number."""
    from tfmat.workflow import evaluation_of

    found = evaluation_of(str(path))
    reference = found.reference
    eta = {name: one.eta for name, one in reference.parameters.items()} if reference else None
    return eta, {name: 100 * math.sqrt(one.mse) for name, one in found.parameters.items()}


def _table(points: Sequence[Run], etas: Sequence[dict[str, float] | None]) -> pd.DataFrame:
    """A row a run; `eta_NAME` where that is known, and `rmse_NAME`."""
    rows = []
    for point, eta in zip(points, etas, strict=True):
        row = structs.asdict(point)
        rmse = row.pop("errors")
        row |= {f"eta_{name}": value for name, value in (eta or {}).items()}
        rows.append(row | {f"rmse_{name}": value for name, value in rmse.items()})
    return pd.DataFrame(rows)


def _width_for(parameters: float, size_of: SizeOf) -> float:
    """Times the config's dense units that make the smallest network of so many parameters; infinite for none."""
    low, high = _WIDTHS
    if size_of(high) < parameters:
        return math.inf
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if size_of(middle) >= parameters else (middle, high)
    return high
