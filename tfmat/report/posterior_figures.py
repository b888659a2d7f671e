"""Pictures of posteriors: whether they are right on average, and samples of a joint posterior as a corner plot."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.ndimage
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfmat.report.drawing import (
    BAND,
    INK,
    MODEL,
    SECOND,
    Array,
    Picture,
    finish,
    inline_svg,
    logarithmic,
    new_figure,
    style,
)
from tfmat.report.formatting import format_value, with_unit

# Joint regions of highest density that are drawn, the inner one last.
_REGIONS = (0.95, 0.5)
# Bins a direction of a corner plot, and the smoothing of its densities in bins.
_BINS, _SMOOTHING = 40, 1.2
_PANEL = 1.9  # inches
# An axis shows the samples between these quantiles, and a margin: a stray one would hide the others.
_SHOWN = (0.0025, 0.9975)
# An axis of a parameter with a logarithmic range is logarithmic where its samples spread over more than this factor.
_DECADE = 10.0


def uniformity(posterior: Mapping[str, Any]) -> list[list[Picture]]:
    """One row: how far ranks of the truth, and shares of draws nearer to random points, are from evenly spread.

    Args:
      posterior: the entry `posterior` of evaluation.json; an older one, which has no such curves, gives no picture.
    """
    if "band" not in posterior:
        return []
    data = {"band": posterior["band"], "curves": posterior["num_curves"]}
    tarp = {"all parameters": posterior["tarp"]}
    parts = (
        ("ranks", "rank of the truth among the draws (share)", posterior["ranks"]),
        ("tarp", "draws nearer to a random point than the truth (share)", tarp),
    )
    return [
        [
            Picture(
                f"posterior-{name}",
                label,
                functools.partial(draw_uniformity, found=found, label=label, **data),
            )
            for name, label, found in parts
        ]
    ]


def draw_uniformity(
    panel: Axes, found: Mapping[str, Mapping[str, Any]], label: str, band: float, curves: int
) -> None:
    """Differences of distributions from the uniform one, each a line, over the band that holds 95 % of right ones."""
    length = len(next(iter(found.values()))["difference"])
    places = np.arange(1, length + 1) / (length + 1)
    width = 100 * band * np.sqrt(places * (1 - places) / curves)
    panel.fill_between(
        places, -width, width, color=BAND, alpha=0.45, lw=0, label="95 % of right posteriors"
    )
    panel.axhline(0.0, color=INK, lw=0.8)
    for i, (name, entry) in enumerate(found.items()):
        values = 100 * np.asarray(entry["difference"])
        color = MODEL if len(found) == 1 else style(i)["color"]
        panel.plot(places, values, "-", color=color, lw=1.6, label=name)
    panel.set_xlim(0, 1)
    panel.set_xlabel(label)
    panel.set_ylabel("share of curves below, minus even (%)")
    finish(panel)
    low, high = panel.get_ylim()
    rows = -(-(1 + len(found)) // 2)
    panel.set_ylim(low, high + 0.1 * rows * (high - low))  # room for the legend
    panel.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)


@dataclasses.dataclass(frozen=True)
class Corner:
    """Samples of a joint posterior, drawn label by label and pair by pair.

    Attributes:
      names, units: of the p parameters.
      logarithmic: whether each parameter's range is.
      values: [samples, p], in the units.
      recommended: name -> the value that the answer recommends, drawn as lines; those that are known.
      title: above the picture; "" for none.
    """

    names: Sequence[str]
    units: Sequence[str]
    logarithmic: Sequence[bool]
    values: Array
    recommended: Mapping[str, float] = dataclasses.field(default_factory=dict)
    title: str = ""

    @functools.cached_property
    def figure(self) -> Figure:
        """Histograms on the diagonal; below it the joint regions of highest density of each pair and the samples."""
        count = len(self.names)
        size = max(3.6, _PANEL * count + 0.7)
        figure = new_figure(size, size + (0.35 if self.title else 0.0))
        panels = figure.subplots(count, count, squeeze=False)
        for row, column in itertools.product(range(count), repeat=2):
            panel = panels[row, column]
            if column > row:
                panel.set_axis_off()
            elif column == row:
                self._draw_one(panel, row)
            else:
                self._draw_pair(panel, column, row)
            panel.label_outer()
            if row == count - 1:
                label = with_unit(self.names[column], self.units[column])
                panel.set_xlabel(label, parse_math=False)
            if column == 0 and row:
                label = with_unit(self.names[row], self.units[row])
                panel.set_ylabel(label, parse_math=False)
        if self.title:
            figure.suptitle(self.title, fontsize=11, fontweight="bold", x=0.02, ha="left")
        figure.align_labels()
        return figure

    @property
    def svg(self) -> str:
        """An `<svg>` element for a page."""
        named = ", ".join(self.names)
        return inline_svg(self.figure, "corner", f"samples of the joint posterior of {named}")

    def _is_logarithmic(self, column: int) -> bool:
        values = self.values[:, column]
        return bool(self.logarithmic[column]) and values.max() > _DECADE * values.min()

    def _scaled(self, column: int) -> Array:
        values = self.values[:, column]
        return np.log(values) if self._is_logarithmic(column) else values

    def _edges(self, column: int) -> Array:
        scaled = self._scaled(column)
        low, high = np.quantile(scaled, _SHOWN)
        margin = 0.1 * (high - low) or 1e-6 * (abs(high) or 1.0)
        edges = np.linspace(low - margin, high + margin, _BINS + 1)
        return np.exp(edges) if self._is_logarithmic(column) else edges

    def _draw_one(self, panel: Axes, column: int) -> None:
        edges = self._edges(column)
        counts, _ = np.histogram(self.values[:, column], edges)
        panel.stairs(counts, edges, fill=True, color=BAND, alpha=0.6, lw=0)
        panel.stairs(counts, edges, color=MODEL, lw=1.2)
        low, middle, high = np.quantile(self.values[:, column], [0.025, 0.5, 0.975])
        for place in (low, high):
            panel.axvline(place, color=MODEL, lw=0.9, ls="--")
        if (value := self.recommended.get(self.names[column])) is not None:
            panel.axvline(value, color=SECOND, lw=1.1)
        text = f"{format_value(middle, 3)}\n{format_value(low, 3)} … {format_value(high, 3)}"
        panel.set_title(text, fontsize=8)
        panel.set_ylim(bottom=0.0)
        finish(panel)
        self._fit_axis(panel.xaxis, column)
        panel.grid(False)
        panel.tick_params(left=False, labelleft=False)
        panel.spines["left"].set_visible(False)

    def _draw_pair(self, panel: Axes, x: int, y: int) -> None:
        edges = [self._edges(column) for column in (x, y)]
        counts, *_ = np.histogram2d(self.values[:, x], self.values[:, y], edges)
        density = scipy.ndimage.gaussian_filter(counts, _SMOOTHING)
        panel.plot(
            self.values[:, x],
            self.values[:, y],
            ".",
            ms=2,
            color=MODEL,
            alpha=0.25,
            mew=0,
            rasterized=True,
        )
        middles = [
            np.sqrt(e[1:] * e[:-1]) if self._is_logarithmic(c) else 0.5 * (e[1:] + e[:-1])
            for e, c in zip(edges, (x, y), strict=True)
        ]
        # Where a posterior leans on an end of a range, its region is open there.
        ordered = np.sort(density.ravel())[::-1]
        shares = np.cumsum(ordered) / ordered.sum()
        heights = [float(ordered[np.searchsorted(shares, share)]) for share in _REGIONS]
        if heights[0] < heights[1]:
            panel.contour(*middles, density.T, levels=heights, colors=INK, linewidths=(0.8, 1.4))
        for place, draw in ((x, panel.axvline), (y, panel.axhline)):
            if (value := self.recommended.get(self.names[place])) is not None:
                draw(value, color=SECOND, lw=1.0)
        finish(panel)
        self._fit_axis(panel.xaxis, x)
        self._fit_axis(panel.yaxis, y)

    def _fit_axis(self, axis: Axis, column: int) -> None:
        edges = self._edges(column)
        limits = {("xlim" if axis is axis.axes.xaxis else "ylim"): (edges[0], edges[-1])}
        axis.axes.set(**limits)
        if self._is_logarithmic(column):
            logarithmic(axis)
        else:
            axis.set_major_locator(MaxNLocator(3))
        axis.axes.tick_params(labelsize=8)
