"""The picture of the yardstick: error of network and least squares over the kind of curve, with the best possible."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfmat.report.figures import INK, MODEL, SECOND, finish, logarithmic, new_figure
from tfmat.report.formatting import BIN_TITLES

_LINES = (
    ("network_mse", "network", MODEL, "o", "-"),
    ("least_squares_mse", "least squares", SECOND, "s", "-"),
    ("bayes_risk", "best possible (Bayes risk)", INK, "", "--"),
)


def yardstick_figure(bins: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """One row a parameter, one column a quantity that curves are binned by: mean squared errors of scaled labels.

    Args:
      bins: quantity of `BIN_TITLES` -> its bins, as in the entry `yardstick` of evaluation.json; of the errors only
        the network's must be there.
    """
    names = list(next(iter(bins.values()))[0]["parameters"])
    figure = new_figure(3.5 * len(bins), 2.9 * len(names) + 0.6)
    panels = figure.subplots(len(names), len(bins), squeeze=False, sharey="row")
    for row, name in zip(panels, names, strict=True):
        for panel, quantity in zip(row, bins, strict=True):
            draw_bins(panel, bins[quantity], quantity, name)
        for panel in row[1:]:
            panel.set_ylabel("")
    for panel in panels[:-1].flat:
        panel.set_xlabel("")
    handles, labels = panels[0][0].get_legend_handles_labels()
    columns = len(_LINES) if len(bins) > 1 else 1
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def draw_bins(panel: Axes, bins: Sequence[Mapping[str, Any]], quantity: str, name: str) -> None:
    """Mean squared errors of one parameter over the bins of one quantity, each in the middle of its bin."""
    skewed = quantity == "noise_to_signal"
    limits = [(entry["low"], entry["high"]) for entry in bins]
    places = [math.sqrt(low * high) if skewed else (low + high) / 2 for low, high in limits]
    for key, label, color, marker, style in _LINES:
        values = [entry["parameters"][name].get(key, math.nan) for entry in bins]
        if not all(map(math.isnan, values)):
            panel.plot(places, values, style, marker=marker, ms=4, lw=1.5, color=color, label=label)
    finish(panel)
    logarithmic(panel.yaxis)
    if skewed:
        logarithmic(panel.xaxis)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.set_xlabel(BIN_TITLES[quantity])
    panel.set_ylabel(f"MSE of {name} (scaled 0–1)", parse_math=False)
