"""The pictures of a search: parallel coordinates, importance, the course, and one panel a hyper-parameter."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tfmat.report.drawing import BAND, INK, MEASURED, MODEL, SECOND, finish, logarithmic, new_figure
from tfmat.report.formatting import format_value
from tfmat.report.tuning_table import value_cell

Rows = Sequence[Mapping[str, Any]]
_BEST_SHARE = 0.1


def parallel_figure(rows: Rows, names: Mapping[str, str], objective: str) -> Figure:
    """One line a trial, one axis a hyper-parameter and one for the objective; the best tenth stands out."""
    rows = [row for row in rows if row[objective] is not None]
    order = sorted(rows, key=lambda row: -row[objective])
    axes = [_Axis(name, [row.get(name) for row in rows], scale) for name, scale in names.items()]
    axes.append(_Axis(objective, [row[objective] for row in rows], "log"))
    figure = new_figure(max(7.0, 1.35 * len(axes) + 1.0), 4.4)
    panel = figure.subplots()
    best = max(1, round(_BEST_SHARE * len(order)))
    for rank, row in enumerate(order):
        heights = [axis.height(row.get(axis.name)) for axis in axes]
        stands_out = rank >= len(order) - best
        color, width, place = (MODEL, 1.8, 3) if stands_out else (BAND, 0.9, 1)
        panel.plot(range(len(axes)), heights, color=color, lw=width, zorder=place)
    for place, axis in enumerate(axes):
        panel.axvline(place, color=INK, lw=0.8, zorder=2)
        for height, text in axis.ticks():
            panel.annotate(
                text, (place, height), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=7.5, color=INK, zorder=4,
                bbox={"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            )  # fmt: skip
    panel.set_xticks(range(len(axes)), [axis.name.replace(".", ".\n") for axis in axes], fontsize=8)
    panel.set_xlim(-0.15, len(axes) - 0.35)
    panel.set_ylim(-0.06, 1.06)
    panel.set_yticks([])
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, colors=INK)
    return figure


def importance_figure(importances: Mapping[str, float]) -> Figure:
    """One bar a hyper-parameter: its share, largest on top."""
    names = list(importances)[::-1]
    figure = new_figure(7.0, 0.6 + 0.34 * len(names))
    panel = figure.subplots()
    shares = [100 * importances[name] for name in names]
    panel.barh(names, shares, color=SECOND, height=0.62)
    finish(panel)
    panel.grid(False, axis="y")
    panel.set_xlabel("share of what the hyper-parameters explain (%)")
    return figure


def course_figure(rows: Rows, objective: str) -> Figure:
    """The objective of each trial in the order of their start, and the best so far."""
    ended = [
        (int(row["trial"]), row[objective], row["state"])
        for row in rows
        if row[objective] is not None
    ]
    figure = new_figure(7.0, 3.4)
    panel = figure.subplots()
    for state, color, marker in (("done", MEASURED, "o"), ("stopped", BAND, "x")):
        points = [(number, value) for number, value, of in ended if of == state]
        if points:
            panel.plot(*zip(*points, strict=True), marker, ms=4.5, color=color, label=state)
    best = np.minimum.accumulate([value for _, value, _ in ended])
    panel.step(
        [n for n, _, _ in ended], best, where="post", color=MODEL, lw=1.6, label="best so far"
    )
    finish(panel)
    if min(value for _, value, _ in ended) > 0:
        logarithmic(panel.yaxis)
    panel.set_xlabel("trial")
    panel.set_ylabel(objective)
    panel.legend(frameon=False)
    return figure


def slices_figure(rows: Rows, names: Mapping[str, str], objective: str) -> Figure:
    """One panel a hyper-parameter: the objective over its value."""
    rows = [row for row in rows if row[objective] is not None]
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = new_figure(3.1 * columns, 2.5 * lines)
    panels = np.atleast_1d(figure.subplots(lines, columns, sharey=True, squeeze=False)).ravel()
    for panel, name in zip(panels, names, strict=False):
        axis = _Axis(name, [row.get(name) for row in rows], names[name])
        for state, color in (("stopped", BAND), ("done", SECOND)):
            chosen = [r for r in rows if r["state"] == state and r.get(name) is not None]
            panel.plot(
                [axis.place(row[name]) for row in chosen], [row[objective] for row in chosen],
                "o", ms=3.5, color=color, alpha=0.85,
            )  # fmt: skip
        finish(panel)
        if axis.words:
            panel.set_xticks(range(len(axis.words)), axis.words, fontsize=8)
            panel.set_xlim(-0.5, len(axis.words) - 0.5)
        elif axis.log:
            logarithmic(panel.xaxis)
        panel.set_xlabel(name, fontsize=9)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    if rows and min(row[objective] for row in rows) > 0:
        logarithmic(panels[0].yaxis)
    for panel in panels[::columns]:
        panel.set_ylabel(objective)
    return figure


class _Axis:
    """One column: numbers, linear or logarithmic, or words."""

    def __init__(self, name: str, values: Sequence[Any], scale: str):
        self.name = name
        known = [value for value in values if value is not None]
        numbers = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in known
        )
        self.words = [] if numbers and known else sorted({str(value) for value in known})
        self.low: float = min(known) if numbers and known else 0.0
        self.high: float = max(known) if numbers and known else 1.0
        self.log = bool(numbers and known) and self.low > 0 and scale == "log"

    def place(self, value: Any) -> float:
        """Where a value stands on a panel's x axis."""
        return float(self.words.index(str(value)) if self.words else value)

    def height(self, value: Any) -> float:
        """Where a value stands on a parallel axis, 0 to 1; not a number where it does not exist: the line is broken."""
        if value is None:
            return np.nan
        if self.words:
            return self.place(value) / max(1, len(self.words) - 1)
        if self.low == self.high:
            return 0.5
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return float((value - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        """(height, text) of the labels of a parallel axis."""
        if self.words:
            return [(self.height(word), word) for word in self.words]
        if self.low == self.high:
            return [(0.5, value_cell(self.low))]
        middle = (self.low * self.high) ** 0.5 if self.log else (self.low + self.high) / 2
        values = [self.low, middle, self.high]
        if isinstance(self.low, int) and self.high - self.low < 2:
            values = [self.low, self.high]
        return [(self.height(value), format_value(float(value), 3)) for value in values]
