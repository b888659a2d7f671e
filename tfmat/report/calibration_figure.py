"""A picture of the network's own error bars: whether they hold the truth as often as they say and follow the errors."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfmat.report.figures import INK, MODEL, finish, logarithmic, new_figure


def calibration_figure(coverage: Mapping[str, Mapping[str, Any]]) -> Figure:
    """One row a parameter: observed over nominal coverage, and error over predicted std in groups of curves.

    Args:
      coverage: the entry `coverage` of evaluation.json.
    """
    figure = new_figure(7.4, 3.1 * len(coverage) + 0.3)
    panels = figure.subplots(len(coverage), 2, squeeze=False)
    for (left, right), (name, scores) in zip(panels, coverage.items(), strict=True):
        draw_coverage(left, scores["curve"])
        left.set_ylabel(f"{name}: intervals that hold the truth (%)", parse_math=False)
        draw_spread(right, scores["bins"])
        right.set_ylabel(f"error of {name} (root mean square)", parse_math=False)
    panels[-1][0].set_xlabel("as they say (%)")
    panels[-1][1].set_xlabel("standard deviation that it gives (label 0–1)")
    return figure


def draw_coverage(panel: Axes, curve: Mapping[str, Any]) -> None:
    nominal, observed = ([100 * share for share in curve[key]] for key in ("nominal", "observed"))
    panel.plot([0, 100], [0, 100], "--", lw=1.2, color=INK, label="perfect")
    panel.plot(nominal, observed, "-", marker="o", ms=4, lw=1.5, color=MODEL, label="network")
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 100)
    panel.legend(frameon=False, loc="upper left")
    finish(panel)


def draw_spread(panel: Axes, bins: list[Mapping[str, Any]]) -> None:
    predicted, found = ([entry[key] for entry in bins] for key in ("mean_std", "rms_error"))
    ends = [min([*predicted, *found]), max([*predicted, *found])]
    panel.plot(ends, ends, "--", lw=1.2, color=INK)
    panel.plot(predicted, found, "-", marker="o", ms=4, lw=1.5, color=MODEL)
    finish(panel)
    if ends[0] > 0:
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)
