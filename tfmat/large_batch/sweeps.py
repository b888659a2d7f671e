"""Runs over learning rates and batches: `tfmat lr_range` and `tfmat batch_sweep`, and the runs of any study."""

import copy
import dataclasses
import functools
import itertools
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from msgspec import Struct, structs

from tfmat.config import Config, Settings, apply_override, check_config, goes_in_pieces, seconds_of
from tfmat.console import clock_text, log
from tfmat.errors import DivergedError, InputError
from tfmat.files import as_json, make_folder, read_json, spreadsheet_text, write_json, write_text
from tfmat.report.figures import (
    MODEL,
    SECOND,
    finish,
    logarithmic,
    new_figure,
    save_png_and_svg,
    worker_axis,
)
from tfmat.report.run_files import read_metrics
from tfmat.training.run_folder import ENDED, RunFolder
from tfmat.workflow import curves_to_train

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.workflow import Job

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
) -> Iterator[tuple[StudyRun, "Job", pathlib.Path]]:
    """Trains what has not ended yet, and yields each run, as it was planned, and its folder as soon as it has.

    Raises:
      InputError: before the first begins, where one of them cannot be trained, or its folder holds a run with other
        settings or data.
      Interrupted.
    """
    from tfmat.workflow import plan_job

    folder = pathlib.Path(workdir)
    jobs = [
        plan_job(run.config, workdir=str(folder / run.name), data_dir=data_dir, backend="single")
        for run in runs
    ]
    make_folder(folder)
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
    from tfmat.launch.processes import prepare_tensorflow
    from tfmat.workflow import curve_settings, curves_to_train, make_dataset, named_dataset

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

    from tfmat.backends.registry import make_backend
    from tfmat.workflow import train

    keras.backend.clear_session()
    make_folder(path)
    with make_backend("single", Settings.of(config), folder=str(path)) as backend:
        try:
            train(dataset, workdir=str(path), backend=backend)
        except DivergedError:
            return  # the folder says so


def state_of(path: pathlib.Path) -> str:
    """The run's state; empty where there is none."""
    return str(RunFolder(path).status().get("state", ""))


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
    lines = read_metrics(path / "metrics.jsonl")
    row = SweepRow(batch=batch, kind=kind, state=state_of(path), workdir=str(path))
    if not lines:
        return row
    # A run of one call of the graph has compiled all the time: what it did a second says nothing of the batch.
    timed = [line["curves_per_second"] for line in lines if line["use"]["graph_seconds"] > 0]
    last, rate = lines[-1], float(np.median(timed)) if timed else math.nan
    record = read_json(path / "status.json").get("last_record", last)
    return structs.replace(
        row,
        epochs=last["epoch"],
        steps=last["step"],
        training_seconds=last["training_seconds"],
        seconds_an_epoch=read_json(path / "config.json")["num_examples"] / rate,
        curves_per_second=rate,
        processor_use=last.get("use", {}).get("cpu_utilisation"),
        loss=last["loss"],
        val_loss=record.get("val_loss_all", last.get("val_loss")),
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
    """

    low: float
    high: float
    steps: int
    config: dict[str, Any]


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
    settings = RangeSettings(low, high, steps, config.to_dict())
    tables, found = [], []

    @functools.cache
    def seen() -> np.ndarray:
        from tfmat.networks.factory import build_for
        from tfmat.workflow import trained_part

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
    from tfmat.backends.losses import per_example_function
    from tfmat.backends.registry import make_backend
    from tfmat.backends.step import choose_for, chosen_layers
    from tfmat.data.pipeline import Span
    from tfmat.networks.factory import build_for
    from tfmat.optimizers import ExponentialRise, build_optimizer
    from tfmat.training.run import make_source
    from tfmat.workflow import losses_and_metrics, parted

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
    bfloat16 = choose_for(backend, config.precision, model, config.global_batch_size)
    auxiliary = losses.get("auxiliary_loss")
    backend.build(
        model,
        optimizer,
        per_example_function(losses["loss"]),
        {},
        auxiliary_loss=per_example_function(auxiliary) if auxiliary else None,
        bfloat16=chosen_layers(model, bfloat16),
    )
    source = make_source(
        features,
        dataset.labels[: len(features)],
        settings,
        backend,
        shard_size=dataset.shard_size,
    )
    spans, step = [], 0
    while step < steps:
        epoch, first = source.plan.locate(step)
        count = min(_STEPS_A_CALL, steps - step, source.plan.steps_in(epoch) - first)
        spans.append(Span(epoch, first, count))
        step += count
    found: list[float] = []
    for block in source.blocks(iter(spans)):
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
