"""Learning-rate range test (Smith 2015, arXiv:1506.01186, 3.3): the rate rises until the loss does."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfmat.config import Config, Settings
from tfmat.errors import InputError
from tfmat.files import as_json, make_folder, read_json, spreadsheet_text, write_json, write_text
from tfmat.large_batch.batch_sweep import at_batch
from tfmat.large_batch.figures import range_figure, save_png_and_svg
from tfmat.large_batch.runs import prepare_data
from tfmat.workflow.job import curves_to_train

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset

Progress = Callable[[int, int], None]
# Steps in one call of the graph: a rate that is too high ends the test after at most so many more.
_STEPS_A_CALL = 10
# The test ends where the smoothed loss is so many times the lowest.
_TOO_MUCH = 4.0
# The logarithm of the largest width that tells one posterior from another, where a label's range is 1.
_WIDEST = 3.0


@dataclasses.dataclass(frozen=True)
class RangeTest:
    """Rates that a test of one batch found.

    Attributes:
      batch: examples per step.
      lowest: rate at which the smoothed loss was lowest.
      steepest: rate at which it fell fastest, per factor of the rate.
      suggested: a third of `lowest`: a peak to begin with.
      steps: steps until the test ended.
      open_end: `low` or `high` where the loss was lowest at that end of the rates, which then tell too little; else "".
    """

    batch: int
    lowest: float
    steepest: float
    suggested: float
    steps: int
    open_end: str = ""


def smooth(losses: Sequence[float], factor: float = 0.95) -> np.ndarray:
    """Exponential moving average, without the pull of its start towards 0: [steps]."""
    average, found = 0.0, []
    for i, loss in enumerate(losses, start=1):
        average = factor * average + (1 - factor) * loss
        found.append(average / (1 - factor**i))
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
      workdir: folder of the results.
      data_dir: as for `tfmat train`.
      batches: global batch sizes.
      low, high: rates at the first and the last step.
      steps: of each test.
      progress: called with (steps done, all steps).
    """
    if not 0 < low < high:
        raise InputError(f"--low={low} --high={high}: give two positive rates, the lower one first")
    if steps < 20:
        raise InputError(f"--steps={steps} is too few; give 20 or more")
    folder = make_folder(workdir)
    dataset = prepare_data(config, data_dir, max(batches))
    settings = {"low": low, "high": high, "steps": steps, "config": config.to_dict()}
    tables, found = {}, []

    @functools.cache
    def seen() -> np.ndarray:
        from tfmat.networks import build_for
        from tfmat.workflow.job import trained_part

        rows = slice(curves_to_train(config, dataset.num_train))
        return trained_part(build_for(config, dataset), dataset.features[rows], dataset.kept)[1]

    for i, batch in enumerate(sorted(set(batches))):
        path = folder / f"batch-{batch:06d}.csv"
        table = _finished(path, settings)
        if table is None:
            report = None if progress is None else _part(progress, i, len(set(batches)), steps)
            changed = at_batch(config, batch)
            table = _test(changed, dataset, seen(), workdir, low, high, steps, report)
            write_text(path, spreadsheet_text(table))
            write_json(path.with_suffix(".json"), settings)
        tables[batch] = table
        found.append(read_rates(batch, table))
    write_json(folder / "lr_range.json", [dataclasses.asdict(test) for test in found])
    marks = {test.batch: dataclasses.asdict(test) for test in found}
    save_png_and_svg(range_figure(tables, marks), folder / "lr_range")
    return found


def _finished(path: pathlib.Path, settings: dict[str, Any]) -> pd.DataFrame | None:
    beside = path.with_suffix(".json")
    if not (path.exists() and beside.exists()):
        return None
    same = read_json(beside) == as_json(settings)
    return pd.read_csv(path) if same else None


def _part(progress: Progress, i: int, parts: int, steps: int) -> Progress:
    return lambda done, total: progress(i * steps + done, parts * steps)


def _test(
    config: Config,
    dataset: "PackedDataset",
    features: np.ndarray,
    workdir: str,
    low: float,
    high: float,
    steps: int,
    progress: Progress | None,
) -> pd.DataFrame:
    """`step`, `learning_rate`, `loss`, `smoothed_loss` of one batch's test; `features` of all training curves."""
    from tfmat.backends import BackendOptions, make_backend
    from tfmat.backends.losses import per_example_function
    from tfmat.backends.step import choose_for, chosen_layers
    from tfmat.data.pipeline import Span
    from tfmat.networks import build_for
    from tfmat.optimizers import build_optimizer
    from tfmat.optimizers.schedules import ExponentialRise
    from tfmat.training.run import make_source
    from tfmat.workflow.job import losses_and_metrics, parted

    # Only what changes how a step is computed: a range test has one worker.
    settings = Settings.of(config)
    options = BackendOptions(
        accumulate=config.accumulate,
        recompute=config.model.recompute,
        offload=config.offload,
        offload_dir=config.offload_dir,
        folder=workdir,
    )
    backend = make_backend("single", options)
    whole = build_for(config, dataset)
    losses, (_, model) = losses_and_metrics(config, dataset, whole), parted(whole)
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
