"""The pictures of a search: parallel coordinates, importance, the course, and one panel a hyper-parameter."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tfmat.report.drawing import (
    BAND,
    INK,
    MEASURED,
    MODEL,
    SECOND,
    Picture,
    bars,
    finish,
    logarithmic,
)
from tfmat.report.formatting import format_value
from tfmat.report.tuning_table import value_cell

Rows = Sequence[Mapping[str, Any]]
_BEST_SHARE = 0.1
# With fewer trials a picture says nothing.
_FEWEST = 2


def pictures(
    rows: Rows, names: Mapping[str, str], objective: str, direction: str = "min"
) -> dict[str, Any]:
    """Parallel coordinates, one slice a hyper-parameter, and the course; none where a picture would say nothing."""
    rows = [row for row in rows if row[objective] is not None]
    if len(rows) < _FEWEST:
        return {}
    parallel = functools.partial(
        draw_parallel, rows=rows, names=names, objective=objective, direction=direction
    )
    course = functools.partial(draw_course, rows=rows, objective=objective, direction=direction)
    width = max(7.0, 1.35 * len(names) + 2.35)
    return {
        "parallel": Picture("parallel", "parallel coordinates of all trials", parallel, width, 4.4),
        "course": Picture("course", f"{objective} of each trial", course, 7.0, 3.4),
        "slices": [
            Picture(
                f"slice-{i}",
                f"{objective} over {name}",
                functools.partial(
                    draw_slice, rows=rows, name=name, scale=names[name], objective=objective
                ),
                3.1,
                2.5,
            )
            for i, name in enumerate(names)
        ],
    }


def importance(importances: Mapping[str, float]) -> Picture | None:
    """One bar a hyper-parameter: its share, largest on top."""
    if not importances:
        return None

    def draw(panel: Axes) -> None:
        places = bars(panel, list(importances), "share of what the hyper-parameters explain (%)")
        shares = [100 * share for share in importances.values()]
        panel.barh(places, shares, color=SECOND, height=0.62)

    height = 0.6 + 0.34 * len(importances)
    return Picture("importance", "importance of each hyper-parameter", draw, 7.0, height)


def draw_parallel(
    panel: Axes, rows: Rows, names: Mapping[str, str], objective: str, direction: str = "min"
) -> None:
    """One line a trial, one axis a hyper-parameter and one for the objective; the best tenth stands out."""
    order = sorted(rows, key=lambda row: row[objective], reverse=direction == "min")
    axes = [_Axis(name, [row.get(name) for row in rows], scale) for name, scale in names.items()]
    axes.append(_Axis(objective, [row[objective] for row in rows], "log"))
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


def draw_course(panel: Axes, rows: Rows, objective: str, direction: str = "min") -> None:
    """The objective of each trial in the order of their start, and the best so far."""
    ended = [(int(row["trial"]), row[objective], row["state"]) for row in rows]
    for state, color, marker in (("done", MEASURED, "o"), ("stopped", BAND, "x")):
        points = [(number, value) for number, value, of in ended if of == state]
        if points:
            panel.plot(*zip(*points, strict=True), marker, ms=4.5, color=color, label=state)
    best = (np.maximum if direction == "max" else np.minimum).accumulate(
        [value for _, value, _ in ended]
    )
    panel.step(
        [n for n, _, _ in ended], best, where="post", color=MODEL, lw=1.6, label="best so far"
    )
    finish(panel)
    if min(value for _, value, _ in ended) > 0:
        logarithmic(panel.yaxis)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("trial")
    panel.set_ylabel(objective)
    panel.legend(frameon=False)


def draw_slice(panel: Axes, rows: Rows, name: str, scale: str, objective: str) -> None:
    """The objective over the value of one hyper-parameter."""
    axis = _Axis(name, [row.get(name) for row in rows], scale)
    for state, color in (("stopped", BAND), ("done", SECOND)):
        chosen = [row for row in rows if row["state"] == state and row.get(name) is not None]
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
    objectives = [row[objective] for row in rows]
    # One scale for all panels.
    if min(objectives) > 0:
        panel.set_ylim(min(objectives) / 1.2, max(objectives) * 1.2)
        logarithmic(panel.yaxis)
    panel.set_xlabel(name, fontsize=9, parse_math=False)
    panel.set_ylabel(objective)


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
        """A value's place on a panel's x axis."""
        return float(self.words.index(str(value)) if self.words else value)

    def height(self, value: Any) -> float:
        """A value's place on a parallel axis, 0 to 1; not a number where it does not exist: the line is broken."""
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
