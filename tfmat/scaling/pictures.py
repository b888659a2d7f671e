"""The pictures of a study: what there is to draw, by name, for the page and for files of their own."""

import dataclasses
import functools
import io
import pathlib
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfmat.files import atomic_write
from tfmat.report.blocks import Plot
from tfmat.report.drawing import inline_svg, new_figure, save_figure
from tfmat.scaling.analysis import LARGER, Analysis
from tfmat.scaling.exchange_figures import (
    draw_allreduces,
    draw_sync_over_workers,
    draw_syncs_an_epoch,
)
from tfmat.scaling.measurements import Point
from tfmat.scaling.prediction_figures import draw_checks, draw_costs, draw_losses, draw_prediction
from tfmat.scaling.speed_figures import (
    draw_batches,
    draw_efficiency,
    draw_parts,
    draw_speedup,
    parts_of,
)
from tfmat.scaling.summary import PointSummary

# Inches: two stand side by side on a page, and text is still large enough on a telephone.
_WIDTH, _HEIGHT = 4.3, 3.0
# Bars in one picture.
MOST_BARS = 14


@dataclasses.dataclass(frozen=True)
class Picture:
    """One panel: what it shows, for those who cannot see it, and how it is drawn."""

    description: str
    draw: Callable[[Axes], None]
    width: float = _WIDTH
    height: float = _HEIGHT

    @functools.cached_property
    def figure(self) -> Figure:
        """Drawn and laid out, once for all of its files."""
        figure = new_figure(self.width, self.height)
        self.draw(figure.subplots())
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure


Pictures = dict[str, Picture]


def pictures(analysis: Analysis) -> Pictures:
    """Name -> picture, of all that the measurements allow."""
    return {
        **_speed(analysis),
        **_exchanges(analysis),
        **_accuracy(analysis),
        **_predictions(analysis),
    }


def plot(found: Pictures, name: str, caption: str = "") -> list[Plot]:
    """The picture ready for the page, or nothing where there is none."""
    if name not in found:
        return []
    picture = found[name]
    return [Plot(inline_svg(picture.figure, name, picture.description), caption)]


def save(found: Pictures, folder: pathlib.Path) -> None:
    """Writes each as scaling_NAME.png and .svg, and removes those of an earlier page that are no more."""
    for old in folder.glob("scaling_*.*"):
        if old.stem.removeprefix("scaling_") not in found and old.suffix in (".png", ".svg"):
            old.unlink()
    for name, picture in found.items():
        save_figure(picture.figure, folder / f"scaling_{name}.png")
        text = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "tfmat"}):
            picture.figure.savefig(text, format="svg", metadata={"Date": None})
        with atomic_write(folder / f"scaling_{name}.svg", "w") as file:
            file.write(text.getvalue())


def step_bars(analysis: Analysis) -> list[PointSummary]:
    """Points whose steps were split, the headline's and their baselines first, no more than fit in a picture."""
    split = [each for each in analysis.summaries if parts_of(each)]
    first = {each.point for each in analysis.shown} | {each.baseline for each in analysis.shown}
    return sorted(split, key=lambda each: each.point not in first)[:MOST_BARS]


def _speed(analysis: Analysis) -> Pictures:
    found = {}
    for scaling, groups in (("weak", analysis.weak), ("strong", analysis.strong)):
        if groups:
            found[f"speedup_{scaling}"] = Picture(
                f"speed-up over workers, {scaling} scaling, with the ideal line",
                functools.partial(draw_speedup, groups=groups, scaling=scaling),
            )
            found[f"efficiency_{scaling}"] = Picture(
                f"efficiency over workers, {scaling} scaling",
                functools.partial(draw_efficiency, groups=groups),
            )
    bars = step_bars(analysis)
    if bars:
        draw = functools.partial(draw_parts, summaries=bars)
        found["step"] = Picture(
            "parts of a step of each point", draw, height=1.0 + 0.27 * len(bars)
        )
    rows = [e for e in analysis.summaries if e.point.scaling == "weak" or e.point.is_baseline]
    if len({each.point.batch_a_worker for each in rows}) > 1:
        draw = functools.partial(draw_batches, summaries=_of_main(analysis, rows))
        found["batches"] = Picture("curves a second of a worker over its batch", draw)
    return found


def _of_main(analysis: Analysis, rows: Sequence[PointSummary]) -> list[PointSummary]:
    """Those of one model, data set and hardware: others would only look like the same line."""
    point = analysis.main.point if analysis.main is not None else rows[0].point
    return [
        each
        for each in rows
        if each.point.model.name == point.model.name
        and each.point.hardware == point.hardware
        and each.point.dataset_size == point.dataset_size
    ]


def _exchanges(analysis: Analysis) -> Pictures:
    found: Pictures = {}
    model = None if analysis.forecast is None else analysis.forecast.model
    if analysis.lines and analysis.summaries:
        point = _main_point(analysis)
        num_bytes = point.model.gradient_bytes
        here = [
            e for e in analysis.lines if e.lines[0].hardware == point.hardware
        ] or analysis.lines
        found["allreduce"] = Picture(
            "time of an all-reduce over the size of the message",
            functools.partial(draw_allreduces, fits=here, gradient_bytes=num_bytes),
        )
        draw = functools.partial(draw_sync_over_workers, fits=here, model=model, gradient_bytes=num_bytes)  # fmt: skip
        found["sync_over_workers"] = Picture("time of an exchange of gradients over workers", draw)
    if analysis.summaries:
        point = _main_point(analysis)
        draw = functools.partial(
            draw_syncs_an_epoch, summaries=analysis.summaries, dataset_size=point.dataset_size
        )
        found["syncs_an_epoch"] = Picture("exchanges in an epoch over the batch a worker", draw)
    return found


def _main_point(analysis: Analysis) -> Point:
    return analysis.main.point if analysis.main is not None else analysis.summaries[0].point


def _accuracy(analysis: Analysis) -> Pictures:
    fastest = [cost.point for cost in analysis.costs]
    trained = [e for e in analysis.summaries if any(r.training for r in e.repetitions)]
    trained.sort(key=lambda each: fastest.index(each.point) if each.point in fastest else 99)
    found = {}
    for over in ("seconds", "epoch") if trained else ():
        draw = functools.partial(draw_losses, summaries=trained, over=over)
        found[f"loss_over_{over}"] = Picture(f"validation loss over {over}", draw)
    if analysis.costs:
        draw = functools.partial(draw_costs, costs=analysis.costs[:MOST_BARS])
        height = 0.9 + 0.3 * min(len(analysis.costs), MOST_BARS)
        found["time_to_accuracy"] = Picture("time to the target loss", draw, height=height)
    return found


def _predictions(analysis: Analysis) -> Pictures:
    found = {}
    if analysis.checks:
        draw = functools.partial(draw_checks, checks=analysis.checks)
        found["checks"] = Picture("predicted over measured steps", draw)
    forecast = analysis.forecast
    if forecast is None:
        return found
    each, together = (
        f"{forecast.batch_a_worker:,} a worker",
        f"{forecast.global_batch_size:,} in all",
    )
    groups = {
        f"this network, {each}": forecast.weak,
        f"{LARGER} times as large, {each}": forecast.weak_larger,
        f"this network, {together}": forecast.strong,
        f"{LARGER} times as large, {together}": forecast.strong_larger,
    }
    for quantity in ("speedup", "efficiency"):
        draw = functools.partial(draw_prediction, predictions=groups, quantity=quantity)
        found[f"prediction_{quantity}"] = Picture(f"predicted {quantity} over workers", draw)
    return found
