"""The picture of the yardstick: error of network and least squares over the kind of curve, with the best possible."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfmat.report.figures import INK, MODEL, SECOND, finish, new_figure
from tfmat.report.formatting import BIN_TITLES, format_limits

_LINES = (
    ("network_mse", "network", MODEL, "o", "-"),
    ("least_squares_mse", "least squares", SECOND, "s", "-"),
    ("bayes_risk", "best possible (Bayes risk)", INK, "", "--"),
)


def yardstick_figure(yardstick: Mapping[str, Any]) -> Figure:
    """One row a parameter, one column a quantity that curves are binned by: mean squared errors of scaled labels.

    Args:
      yardstick: the entry `yardstick` of evaluation.json.
    """
    names = list(yardstick["parameters"])
    figure = new_figure(10.5, 2.9 * len(names) + 0.6)
    panels = figure.subplots(len(names), len(BIN_TITLES), squeeze=False, sharey="row")
    for row, name in zip(panels, names, strict=True):
        for panel, quantity in zip(row, BIN_TITLES, strict=True):
            _draw(panel, yardstick["bins"][quantity], quantity, name)
        row[0].set_ylabel(f"MSE of {name} (scaled 0–1)", parse_math=False)
    for panel, title in zip(panels[-1], BIN_TITLES.values(), strict=True):
        panel.set_xlabel(title)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(_LINES), frameon=False)
    return figure


def _draw(panel: Axes, bins: Sequence[Mapping[str, Any]], quantity: str, name: str) -> None:
    places = range(len(bins))
    for key, label, color, marker, style in _LINES:
        values = [entry["parameters"][name][key] for entry in bins]
        panel.plot(places, values, style, marker=marker, ms=4, lw=1.5, color=color, label=label)
    panel.set_yscale("log")
    limits = [format_limits(quantity, entry["low"], entry["high"], "\nto ", 2) for entry in bins]
    panel.set_xticks(list(places), limits, fontsize=7)
    panel.set_xlim(-0.5, len(bins) - 0.5)
    finish(panel)
