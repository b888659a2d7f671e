"""Pictures of how near the network's answers are to the truth, parameter by parameter."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfmat.report.figures import BAND, INK, MODEL, SECOND, Array, finish, logarithmic, new_figure
from tfmat.report.formatting import with_unit

# More scattered points than this only make a picture slow and black.
MAX_SCATTER = 5000
# Of true values, in each of which the errors' limits are drawn; at least so many curves in each.
_BINS, _FEWEST = 10, 20
_TWO_SIDED_95 = 1.96


@dataclasses.dataclass(frozen=True)
class ParameterAnswers:
    """Answers to the test curves for one parameter.

    Attributes:
      name, unit: of the parameter.
      logarithmic: its labels are on a logarithmic scale.
      true, identified: [curves], in its unit.
      floor: standard deviation of the best possible answer to each of the first curves, [fewer curves], relative
        to the true value for a parameter on a linear scale, in decades on a logarithmic one; None where not known.
    """

    name: str
    unit: str
    logarithmic: bool
    true: Array
    identified: Array
    floor: Array | None = None

    @property
    def errors(self) -> Array:
        """[curves]: in decades on a logarithmic scale; else in % of the true value, in its unit where that can be 0."""
        if self.logarithmic:
            return np.log10(self.identified / self.true)
        if not self.in_percent:
            return self.identified - self.true
        return 100 * (self.identified - self.true) / self.true

    @property
    def in_percent(self) -> bool:
        """Whether `errors` are in %."""
        return not self.logarithmic and bool(np.all(self.true > 0))


def predicted_against_true_figure(parameters: Sequence[ParameterAnswers]) -> Figure:
    """One column a parameter: identified over true value with the line where they are equal; below, the error."""
    figure = new_figure(4.2 * len(parameters) + 0.4, 7.4)
    panels = figure.subplots(2, len(parameters), squeeze=False, height_ratios=[1.35, 1])
    for column, answers in zip(panels.T, parameters, strict=True):
        draw_predicted(column[0], answers)
        draw_errors(column[1], answers)
    return figure


def draw_predicted(panel: Axes, answers: ParameterAnswers) -> None:
    """Identified over true value, with the line where they are equal."""
    true, identified = answers.true[:MAX_SCATTER], answers.identified[:MAX_SCATTER]
    low, high = float(min(true.min(), identified.min())), float(max(true.max(), identified.max()))
    if answers.logarithmic:
        margin = (high / low) ** 0.04 if high > low else 1.5
        limits = low / margin, high * margin
    else:
        margin = 0.04 * (high - low) or 0.5
        limits = low - margin, high + margin
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.plot(true, identified, ".", ms=3, color="#3b82f6", alpha=0.3, mew=0, rasterized=True)
    panel.plot(limits, limits, "-", color=INK, lw=0.9)
    panel.set_xlim(limits)
    panel.set_ylim(limits)
    panel.set_box_aspect(1)
    label = with_unit(answers.name, answers.unit)
    panel.set_xlabel(f"true {label}", parse_math=False)
    panel.set_ylabel(f"identified {label}", parse_math=False)
    finish(panel)
    if answers.logarithmic:
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)


def draw_errors(panel: Axes, answers: ParameterAnswers) -> None:
    """The middle 95 % of the errors over the true value, and, where it is known, the least that is possible."""
    errors = answers.errors
    edges, bins = _bins(answers.true)
    middle = (
        np.sqrt(edges[1:] * edges[:-1]) if answers.logarithmic else (edges[1:] + edges[:-1]) / 2
    )
    panel.axhline(0.0, color=INK, lw=0.8)
    if answers.floor is not None:
        of_bins = [answers.floor[bins[: len(answers.floor)] == i] for i in range(len(middle))]
        width = np.array(
            [_TWO_SIDED_95 * np.sqrt(np.mean(f**2)) if len(f) else np.nan for f in of_bins]
        )
        label = "95 %, best possible"
        panel.fill_between(middle, -width, width, color=BAND, alpha=0.45, lw=0, label=label)
    limits = np.array(
        [np.percentile(errors[bins == i], [2.5, 50, 97.5]) for i in range(len(middle))]
    )
    panel.plot(middle, limits[:, 0], "-", color=MODEL, lw=1.6, label="95 %, network")
    panel.plot(middle, limits[:, 2], "-", color=MODEL, lw=1.6)
    panel.plot(middle, limits[:, 1], ":", color=SECOND, lw=1.4, label="median, network")
    finish(panel)
    if answers.logarithmic:
        panel.set_xlim(
            edges[0] / 1.05, edges[-1] * 1.05
        )  # so that an end that is a power of ten has its tick
        logarithmic(panel.xaxis)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    unit = "decades" if answers.logarithmic else "%" if answers.in_percent else answers.unit
    panel.set_xlabel(f"true {with_unit(answers.name, answers.unit)}", parse_math=False)
    panel.set_ylabel(f"error of {answers.name} ({unit})", parse_math=False)
    low, high = panel.get_ylim()
    panel.set_ylim(low, high + 0.34 * (high - low))  # room for the legend
    panel.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)


def _bins(true: Array) -> tuple[Array, Array]:
    """Edges [bins + 1] of bins with as many curves each, and each curve's bin [curves]."""
    count = int(np.clip(len(true) // _FEWEST, 1, _BINS))
    edges = np.unique(np.quantile(true, np.linspace(0, 1, count + 1)))
    if len(edges) == 1:  # one value only
        edges = np.array([edges[0], edges[0]])
    return edges, np.clip(np.searchsorted(edges, true, side="right") - 1, 0, len(edges) - 2)
