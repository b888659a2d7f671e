"""Learning rates, batches and sizes: `tfmat lr_range`, `batch_sweep`, `learning_curve` and `noise_scale`."""

import copy
import dataclasses
import functools
import itertools
import math
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec import Struct, convert, structs
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import least_squares

from tfmat.backends.base import SavedArrays, share_or_copy
from tfmat.backends.registry import make_backend
from tfmat.config import (
    Config,
    Settings,
    apply_override,
    check_config,
    goes_in_pieces,
    load_saved_config,
    read_run_details,
    seconds_of,
)
from tfmat.console import clock_text, log
from tfmat.data.dataset import PackedDataset, is_dataset
from tfmat.errors import DivergedError, InputError
from tfmat.files import as_json, make_folder, read_json, spreadsheet_text, write_json, write_text
from tfmat.large_batch.landscape import RunLoss, assign
from tfmat.launch.processes import prepare_tensorflow
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
    new_figure,
    save_png_and_svg,
    worker_axis,
)
from tfmat.training.run_folder import MetricsLine, RunFolder, find_run_file, read_metrics
from tfmat.workflow import (
    Job,
    curve_settings,
    curves_to_train,
    evaluation_of,
    make_dataset,
    named_dataset,
    plan_job,
    train,
    trained_part,
)

# --------------------------------------------------------------------------------------------------
# The runs of a study, one after the other: each is an ordinary run in a folder of its own.
#
# One that is done is not repeated, one that was stopped goes on.


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
      about: what it is, in a few words.
      config: its own; where `data_dir` is a data set, `run_all` makes it say what that is.
      work: how long it takes beside the others, for the time that is left.
    """

    name: str
    about: str
    config: Config
    work: float = 1.0


def run_all(
    runs: Sequence[StudyRun], workdir: str, data_dir: str
) -> Iterator[tuple[StudyRun, Job, pathlib.Path]]:
    """Trains what has not ended yet, and yields each run, as it was planned, and its folder as soon as it has.

    Raises:
      InputError: before the first begins, where one of them cannot be trained, or its folder holds a run with other
        settings or data.
      Interrupted.
    """
    folder = pathlib.Path(workdir)
    jobs = [
        plan_job(run.config, workdir=str(folder / run.name), data_dir=data_dir, backend="single")
        for run in runs
    ]
    make_folder(folder)
    dataset, opened, done, seconds = None, None, 0.0, 0.0
    waiting = [not RunFolder(folder / run.name).status().ended for run in runs]
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
    dataset, num_curves = named_dataset(config, data_dir), config.data.num_curves
    num_train = curves_to_train(
        config, dataset.num_train if dataset else num_curves - num_curves // 4
    )
    if largest_batch > num_train:
        raise InputError(
            f"batch {largest_batch} is larger than the {num_train} training curves; leave it out"
        )
    if dataset is None:
        dataset = make_dataset(config, curve_settings(config), data_dir)
    prepare_tensorflow(one_thread_an_operation=goes_in_pieces(config.model), own_program=True)
    return dataset


def run_once(config: Config, dataset: "PackedDataset", path: pathlib.Path) -> None:
    """Trains into `path`, from its last checkpoint if there is one; a run that diverges has ended too."""
    import keras

    keras.backend.clear_session()
    make_folder(path)
    with make_backend("single", Settings.of(config), folder=str(path)) as backend:
        try:
            train(dataset, workdir=str(path), backend=backend)
        except DivergedError:
            return  # the folder says so


def state_of(path: pathlib.Path) -> str:
    """The run's state; empty where there is none."""
    return RunFolder(path).status().state or ""


def range_figure(tables: Sequence[pd.DataFrame], tests: "Sequence[RangeTest]") -> Figure:
    """Smoothed loss over learning rate, a line a batch, the suggested rate marked."""
    figure = new_figure(7.0, 4.2)
    panel = figure.subplots()
    colors = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(tests)))
    lowest = min(float(table.smoothed_loss.min()) for table in tables)
    start = max(float(table.smoothed_loss.iloc[0]) for table in tables)
    for table, test, color in zip(tables, tests, colors, strict=True):
        label, rate = f"batch {test.batch}", test.suggested
        panel.plot(table.learning_rate, table.smoothed_loss, lw=1.6, color=color, label=label)
        at = float(np.interp(np.log(rate), np.log(table.learning_rate), table.smoothed_loss))
        panel.plot([rate], [at], "o", ms=7, mfc="none", mec=color, mew=1.6)
    panel.set_ylim(0.8 * lowest, 2.0 * start)
    finish(panel, "learning rate", "training loss, smoothed", "xy")
    panel.legend(frameon=False, title="circle: suggested", alignment="left")
    return figure


def sweep_figure(table: pd.DataFrame, equal: str) -> Figure:
    """Four panels over batch: time an epoch, curves a second, processor use, validation loss.

    Args:
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
        finish(panel, "global batch", label)
    panel = panels[1, 1]
    for kind, color, label in (
        ("epochs", MODEL, "equal epochs"),
        ("time", SECOND, f"equal time, {equal}"),
    ):
        part = runs[runs.kind == kind].sort_values("batch")
        panel.plot(part.batch, part.val_loss, "o-", ms=4, color=color, label=label)
    panel.legend(frameon=False)
    for each in panels.flat:
        worker_axis(each.xaxis, sorted(runs.batch.unique()))
    finish(panel, "global batch", "validation loss", "y" if len(runs) else "")
    return figure


# --------------------------------------------------------------------------------------------------
# Batch-size sweep: what a batch costs and what it reaches, at equal epochs and at equal time.
#
# Each point is an ordinary run in a folder of its own; one that is done is not repeated, one that was stopped goes on.


class SweepRow(Struct, kw_only=True):
    """A run of batch_sweep.csv; NaN where it wrote no line of metrics.jsonl.

    Attributes:
      kind: `epochs` or `time`: what runs of that kind have in common.
      loss, val_loss: of the last epoch, the latter over all validation curves.
      training_seconds, seconds_an_epoch, curves_per_second: without validation; the last two without calls of the graph
        that compile it, and NaN where a run had no others.
    """

    batch: int
    kind: str
    state: str
    epochs: float = math.nan
    steps: float = math.nan
    training_seconds: float = math.nan
    seconds_an_epoch: float = math.nan
    curves_per_second: float = math.nan
    processor_use: float | None = math.nan
    loss: float = math.nan
    val_loss: float | None = math.nan
    workdir: str


def batch_sweep(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    batches: Sequence[int],
    epochs: float = 2.0,
    equal_time: str = "60s",
) -> pd.DataFrame:
    """Trains each batch for `epochs` and for `equal_time`; writes batch_sweep.csv, .png and .svg as it goes.

    Args:
      config: of all runs; `optimizer.scaling` says how the learning rate follows the batch.
      workdir: folder of the results and of the runs.
      epochs: of the runs at equal epochs.
      equal_time: of the runs at equal time, such as 60s; `0s` leaves them out. Each run's schedule ends then.

    Returns:
      A row a run, with the fields of SweepRow.

    Raises:
      InputError, Interrupted.
    """
    seconds = seconds_of(equal_time)
    if seconds is None:
        raise InputError(
            f"--equal_time={equal_time} is no time; give seconds or minutes, such as 60s"
        )
    if epochs <= 0 or not batches:
        raise InputError(f"--epochs={epochs:g}: give a positive number, and one batch or more")
    lengths = {"epochs": f"{epochs:g}epochs", **({"time": equal_time} if seconds else {})}
    plan = list(itertools.product(lengths, sorted(set(batches))))
    runs = [
        StudyRun(
            name=f"{kind}-batch-{batch:06d}",
            about=f"batch {batch} for {lengths[kind]}",
            config=with_keys(config, global_batch_size=batch, train_for=lengths[kind]),
        )
        for kind, batch in plan
    ]
    folder, rows = pathlib.Path(workdir), []
    for (kind, batch), (_, _, path) in zip(plan, run_all(runs, workdir, data_dir), strict=True):
        rows.append(structs.asdict(read_row(path, batch, kind)))
        table = pd.DataFrame(rows)
        write_text(folder / "batch_sweep.csv", spreadsheet_text(table))
    save_png_and_svg(sweep_figure(table, equal_time), folder / "batch_sweep")
    return table


def with_keys(config: Config, **keys: Any) -> Config:
    """A checked copy of the config with other values of keys, such as `global_batch_size` or `optimizer__name`."""
    changed = copy.deepcopy(config)
    for key, value in keys.items():
        apply_override(changed, key.replace("__", "."), str(value))
    return check_config(changed)


def read_row(path: pathlib.Path, batch: int, kind: str) -> SweepRow:
    """The row of a run that has ended, from its files."""
    lines = convert(read_metrics(path / "metrics.jsonl"), list[MetricsLine])
    row = SweepRow(batch=batch, kind=kind, state=state_of(path), workdir=str(path))
    if not lines:
        return row
    # A run of one call of the graph has compiled all the time: what it did a second says nothing of the batch.
    timed = [line.curves_per_second for line in lines if line.use.graph_seconds > 0]
    rates = [rate for rate in timed if rate is not None]
    last, rate = lines[-1], float(np.median(rates)) if rates else math.nan
    record = RunFolder(path).status().last_record
    return structs.replace(
        row,
        epochs=last.epoch,
        steps=last.step,
        training_seconds=last.training_seconds,
        seconds_an_epoch=read_run_details(path / "config.json").num_examples / rate,
        curves_per_second=rate,
        processor_use=last.use.cpu_utilisation,
        loss=last.loss,
        val_loss=record.get("val_loss_all", last.val_loss),
    )


# --------------------------------------------------------------------------------------------------
# Learning-rate range test (Smith 2015, arXiv:1506.01186, 3.3): the rate rises until the loss does.


Progress = Callable[[int, int], None]
# Steps in one call of the graph: a rate that is too high ends the test after at most so many more.
_STEPS_A_CALL = 10
# Share of the smoothed loss that stays at the next step.
_KEPT = 0.95
# The test ends where the smoothed loss is so many times the lowest.
_TOO_MUCH = 4.0
# The logarithm of the largest width that tells one posterior from another, where a label's range is 1.
_WIDEST = 3.0


@dataclasses.dataclass(frozen=True)
class RangeTest:
    """Rates that a test of one batch found.

    Attributes:
      lowest: rate at which the smoothed loss was lowest.
      steepest: rate at which it fell fastest, per factor of the rate.
      suggested: a third of `lowest`: a peak to begin with.
      open_end: `low` or `high` where the loss was lowest at that end of the rates, which then tell too little; else "".
    """

    batch: int
    lowest: float
    steepest: float
    suggested: float
    steps: int
    open_end: str = ""


class RangeSettings(Struct, frozen=True):
    """The settings of a test but for its batch, as they lie beside its table.

    Attributes:
      low, high: rates at the first and the last step.
      data: the data set, by its `Manifest.id`.
    """

    low: float
    high: float
    steps: int
    config: dict[str, Any]
    data: str


def smooth(losses: Sequence[float]) -> np.ndarray:
    """Exponential moving average, without the pull of its start towards 0: [steps]."""
    average, found = 0.0, []
    for i, loss in enumerate(losses, start=1):
        average = _KEPT * average + (1 - _KEPT) * loss
        found.append(average / (1 - _KEPT**i))
    return np.array(found)


def read_rates(batch: int, table: pd.DataFrame) -> RangeTest:
    """The rates that a table with `learning_rate` and `smoothed_loss` shows."""
    rates, losses = table.learning_rate.to_numpy(), table.smoothed_loss.to_numpy()
    settled = min(20, len(rates) // 4)  # the average knows too little before
    lowest = settled + int(np.argmin(losses[settled:]))
    steepest = lowest
    if lowest > settled + 1:
        slope = np.gradient(np.log(losses[: lowest + 1]), np.log(rates[: lowest + 1]))
        steepest = settled + int(np.argmin(slope[settled:]))
    rate = float(rates[lowest])
    open_end = "high" if lowest == len(rates) - 1 else "low" if lowest == settled else ""
    return RangeTest(batch, rate, float(rates[steepest]), rate / 3, len(rates), open_end)


def lr_range(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    batches: Sequence[int],
    low: float = 1e-5,
    high: float = 10.0,
    steps: int = 300,
    progress: Progress | None = None,
) -> list[RangeTest]:
    """Tests each batch from the config's initial weights; writes a CSV a batch, lr_range.json, .png and .svg.

    A batch whose CSV is there with the same settings is not tested again.

    Args:
      config: a run's; its schedule, warm-up and scaling are not used.
      low, high: rates at the first and the last step.
      progress: called with (steps done, all steps).
    """
    if not 0 < low < high:
        raise InputError(f"--low={low} --high={high}: give two positive rates, the lower one first")
    if steps < 20:
        raise InputError(f"--steps={steps} is too few; give 20 or more")
    dataset = prepare_data(config, data_dir, max(batches))
    folder = make_folder(workdir)
    settings = RangeSettings(low, high, steps, config.to_dict(), dataset.manifest.id)
    tables, found = [], []

    @functools.cache
    def seen() -> np.ndarray:
        from tfmat.networks.factory import build_for

        rows = slice(curves_to_train(config, dataset.num_train))
        return trained_part(build_for(config, dataset), dataset.features[rows], dataset.kept)[1]

    for i, batch in enumerate(sorted(set(batches))):
        path = folder / f"batch-{batch:06d}.csv"
        beside = path.with_suffix(".json")
        known = path.exists() and beside.exists()
        if known and read_json(beside) == as_json(structs.asdict(settings)):
            table = pd.read_csv(path)
        else:
            report = part_of(progress, i, len(set(batches)), steps)
            changed = with_keys(config, global_batch_size=batch)
            table = _test(changed, dataset, seen(), workdir, settings, report)
            write_text(path, spreadsheet_text(table))
            write_json(beside, settings)
        tables.append(table)
        found.append(read_rates(batch, table))
    write_json(folder / "lr_range.json", [dataclasses.asdict(test) for test in found])
    save_png_and_svg(range_figure(tables, found), folder / "lr_range")
    return found


def part_of(progress: Progress | None, i: int, parts: int, size: int) -> Progress | None:
    """Tells the progress of the i-th of several parts of that size as progress of the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(i * size + done, parts * size)


def _test(
    config: Config,
    dataset: "PackedDataset",
    features: np.ndarray,
    workdir: str,
    asked: RangeSettings,
    progress: Progress | None,
) -> pd.DataFrame:
    """`step`, `learning_rate`, `loss`, `smoothed_loss` of one batch's test; `features` of all training curves."""
    from tfmat.networks.factory import build_for, losses_and_metrics, parted
    from tfmat.optimizers import ExponentialRise, build_optimizer
    from tfmat.training.run import build_to_measure, make_source

    # Only what changes how a step is computed: a range test has one worker.
    settings = Settings.of(config)
    backend = make_backend(
        "single",
        folder=workdir,
        accumulate=config.accumulate,
        recompute=config.model.recompute,
        offload=config.offload,
        offload_dir=config.offload_dir,
    )
    whole = build_for(config, dataset)
    losses, (_, model) = losses_and_metrics(config, dataset, whole), parted(whole)
    low, high, steps = asked.low, asked.high, asked.steps
    rise = ExponentialRise(low, high, steps)
    optimizer = build_optimizer(settings.optimizer, rise)
    build_to_measure(backend, model, optimizer, settings, losses.loss, losses.auxiliary_loss)
    source = make_source(
        features,
        dataset.labels[: len(features)],
        settings,
        backend,
        shard_size=dataset.shard_size,
    )
    found: list[float] = []
    for block in source.blocks(source.plan.spans(_STEPS_A_CALL, steps)):
        mean = backend.train(*block)[:, 0] / block.num_examples
        if config.model.uncertainty == "flow":
            # Minus a log density may be negative; the squares of the widths that it means fall as other losses do.
            # It may begin at thousands around fits that nothing has widened yet: no such width is a number.
            mean = np.exp(2.0 * np.minimum(mean / len(dataset.parameters), _WIDEST))
        found.extend(mean.tolist())
        if not np.isfinite(found[0]):
            raise InputError(
                f"batch {config.global_batch_size}: the loss of the first step is {found[0]:g}, before any rate can "
                "matter; look for records or labels that are not finite, or try another --config.seed"
            )
        if progress:
            progress(len(found), steps)
        smoothed = smooth(found)
        if not np.isfinite(smoothed[-1]) or smoothed[-1] > _TOO_MUCH * np.nanmin(smoothed):
            break
    rates = low * (high / low) ** (np.arange(len(found)) / max(steps - 1, 1))
    table = pd.DataFrame(
        {
            "step": np.arange(len(found)),
            "learning_rate": rates,
            "loss": found,
            "smoothed_loss": smooth(found),
        }
    )
    return table[np.isfinite(table.smoothed_loss)]


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

    The intervals hold what all laws say whose sum of squares is at most 1 + F / f times the least. F is the 90 %
    quantile of the F distribution for 1 and f degrees of freedom (profile intervals, Bates and Watts 1988, Nonlinear
    regression analysis and its applications, ch. 6). The laws are found by the sampler of
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
        finish(panel, "training curves", quantity, "xy", name)
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


def weights_at(job: Job, config: Config, width: float) -> int:
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


# --------------------------------------------------------------------------------------------------
# The simple gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1), from two batch sizes.
#
# The squared norm of a gradient over B of N examples is |G|² + tr(Σ) / B (N - B) / (N - 1) in expectation (Cochran,
# Sampling Techniques, 3rd ed. (1977), theorem 2.2). Two sizes give both unknowns without bias; their ratio
# B_simple = tr(Σ) / |G|² is about the batch beyond which larger ones save little.

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
    small_squares: Array,
    big_squares: Array,
    *,
    small: int,
    big: int,
    num_examples: float = math.inf,
    seed: int = 0,
) -> NoiseScale:
    """The noise scale from squared gradient norms.

    Args:
      num_examples: that the examples of a group are drawn from, each once.
      small_squares: [groups], mean of |g|² over the batches of `small` examples of each group.
      big_squares: [groups], |g|² over all `big` examples of each group.
    """
    pairs = np.stack([small_squares, big_squares], axis=1).astype(np.float64)

    # A share B/N of all examples has less noise than as many of endless ones: N/B (N - B)/(N - 1), without infinities.
    in_small, in_big = (
        (1 / size - 1 / num_examples) / (1 - 1 / num_examples) for size in (small, big)
    )

    def solve(means: Array) -> tuple[Array, Array]:
        variance = (means[..., 0] - means[..., 1]) / (in_small - in_big)
        return means[..., 1] - in_big * variance, variance

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
      num_examples: rows are below it; each is at most once in a group, and in all groups as long as that is possible.
      small, big: examples of a small batch and of a group; `big` is a multiple of `small`, and at most `num_examples`.
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
    whole = num_examples // big  # groups that share no example
    rounds = [random.permutation(num_examples)[: whole * big] for _ in range(-(-groups // whole))]
    rows = np.concatenate(rounds).astype(np.int32).reshape(-1, big // small, small)[:groups]
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
    finish(left, "epoch", "examples", "y", "gradient noise scale")
    left.legend(frameon=False, loc="best")
    _draw_trade_off(right, points[-1][2], batch_size)
    return figure


def _draw_trade_off(panel: Axes, scale: NoiseScale, batch_size: int) -> None:
    """Steps and examples over batch, each relative to its smallest (McCandlish et al. 2018, eq. 2.11 and 2.12)."""
    log = ""
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
        panel.legend(frameon=False)
        log = "xy"
    else:
        panel.text(0.5, 0.5, "|G|² not measurable", transform=panel.transAxes, ha="center")
    labels = "batch (examples)", "times the fewest possible"
    finish(panel, *labels, log, "predicted for other batches")


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
        scale = estimate_noise_scale(
            *squares, small=small, big=big, num_examples=num_train, seed=seed
        )
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

    from tfmat.networks.factory import build_for, losses_and_metrics

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
        saved = [arrays.get(f"{part}/{i}") for i in range(len(variables))]
        assign(variables, saved, "the run's checkpoints do")


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
