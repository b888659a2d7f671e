"""The picture of one curve: measured points, the curves of its answers, the residuals."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfmat.report.drawing import (
    INK,
    MEASURED,
    MODEL,
    SECOND,
    WARNING,
    Array,
    bars,
    finish,
    logarithmic,
    new_figure,
)  # fmt: skip
from tfmat.report.formatting import format_unit, format_value

# Letters of a curve's name, so that the title stays inside the picture.
MAX_NAME = 50


def curve_figure(
    strain: Array,
    stress_mpa: Array,
    resimulated_mpa: Array | None,
    *,
    name: str,
    law_title: str,
    parameters: Mapping[str, tuple[float, str]],
    rmse_percent: float | None,
    refined: Mapping[str, Any] | None = None,
    intervals: Mapping[str, tuple[float, float] | None] | None = None,
    recommended: str = "network",
    do_not_use: Sequence[str] = (),
    assumed: Sequence[str] = (),
    strain_label: str = "strain",
    stress_label: str = "stress",
    width: float = 7.0,
) -> Figure:
    """Measured points and the law's curve with the recommended parameters, bold; residuals below.

    The scale is that of the measured points and the recommended curve, so that a poor other curve hides nothing.

    Args:
      strain: [points], -; stress_mpa: [points], MPa.
      resimulated_mpa: [points], MPa, with the network's parameters; None where no network answered.
      parameters: name -> (recommended value, unit), told below; intervals: name -> its 95 % interval, where known.
      rmse_percent: root mean square residual of the network's curve over the maximum stress, %.
      refined: the other answer: `name` (what it is called), `stress_mpa` [points], `rmse_percent`; or None.
      recommended: `network`, or the name of the refined answer: the one that is drawn bold.
      do_not_use: why the answer must not be used; stands above all.
      assumed: what was assumed of the file.
      width: of the picture, inches.
    """
    curves = []
    if resimulated_mpa is not None:
        curves.append(_Curve("network", resimulated_mpa, rmse_percent))
    if refined is not None:
        curves.append(_Curve(refined["name"], refined["stress_mpa"], refined["rmse_percent"]))
    # The recommended one first; it is the last to be drawn.
    curves.sort(key=lambda curve: curve.name != recommended)
    answer = answer_text(parameters, intervals or {}, assumed)
    lines = len(answer.splitlines()) + len(curves) + 1
    figure = new_figure(width, (5.0 if curves else 3.8) + 0.19 * lines)
    if curves:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
        _draw_residuals(bottom, strain, stress_mpa, curves)
    else:
        top = figure.subplots()
    _draw_curve(top, strain, stress_mpa, curves)
    handles, labels = top.get_legend_handles_labels()
    order = [0, *reversed(range(1, len(handles)))]
    legend = figure.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="outside lower left",
        title=answer or None,
        alignment="left",
        frameon=False,
    )
    legend.get_title().set_fontweight("bold")
    title = f"{short_name(name)}: {law_title}" if law_title else short_name(name)
    top.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    if do_not_use:
        text = textwrap.fill(f"DO NOT USE: {', '.join(do_not_use)}", int(11 * width))
        figure.suptitle(text, color=WARNING, fontsize=11, fontweight="bold")
    top.set_ylabel(f"{stress_label} (MPa)")
    figure.axes[-1].set_xlabel(f"{strain_label} (–)")
    figure.axes[-1].set_xlim(left=0.0)
    figure.align_ylabels()
    return figure


def short_name(name: str, most: int = MAX_NAME) -> str:
    """The end of a name that is longer than `most` letters."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


@dataclasses.dataclass(frozen=True)
class _Curve:
    """One answer's curve: what it is called, its stress [points] in MPa, and its error in % of the maximum stress."""

    name: str
    stress_mpa: Array
    rmse_percent: float | None

    @property
    def label(self) -> str:
        if self.rmse_percent is None:
            return self.name
        return f"{self.name}: RMSE {format_value(self.rmse_percent, 3)} % of maximum stress"


def answer_text(
    parameters: Mapping[str, tuple[float, str]],
    intervals: Mapping[str, tuple[float, float] | None],
    assumed: Sequence[str],
) -> str:
    """The text of the answer, one parameter a line."""
    lines = []
    for name, (value, unit) in parameters.items():
        line = f"{name} = {format_value(value)} {format_unit(unit)}".rstrip()
        if (ends := intervals.get(name)) is not None:
            line += f"   (95 %: {format_value(ends[0])} … {format_value(ends[1])})"
        lines.append(line)
    return "\n".join([*lines, *([f"assumed: {', '.join(assumed)}"] if assumed else [])])


def _draw_curve(panel: Axes, strain: Array, stress_mpa: Array, curves: Sequence[_Curve]) -> None:
    """Measured points and the curves, the first of which is bold and sets the scale."""
    size = 4.0 if len(strain) < 400 else 2.0
    marks: dict[str, Any] = {"ms": size, "mfc": "none", "mec": MEASURED, "mew": 0.8}
    panel.plot(strain, stress_mpa, "o", label="measured", **marks)
    for curve in reversed(curves):
        style = _style(curve is curves[0])
        panel.plot(strain, curve.stress_mpa, label=curve.label, **style)
    seen = [stress_mpa, *(curve.stress_mpa for curve in curves[:1])]
    highest = max(float(stress.max()) for stress in seen)
    panel.set_ylim(bottom=min(0.0, float(stress_mpa.min())), top=1.06 * highest)
    finish(panel)


def _style(bold: bool) -> dict[str, Any]:
    if bold:
        return {"ls": "-", "color": MODEL, "lw": 2.2}
    return {"ls": "--", "color": SECOND, "lw": 0.9}


def _draw_residuals(
    panel: Axes, strain: Array, stress_mpa: Array, curves: Sequence[_Curve]
) -> None:
    """Measured minus re-simulated: points for the recommended curve, a thin line for the other."""
    size = 2.5 if len(strain) < 400 else 1.5
    panel.axhline(0.0, color=INK, lw=0.8)
    for curve in curves[1:]:
        panel.plot(strain, stress_mpa - curve.stress_mpa, **_style(bold=False))
    residual = stress_mpa - curves[0].stress_mpa
    panel.plot(strain, residual, "o", ms=size, mfc="none", mec=MODEL, mew=0.7)
    limit = 1.15 * float(np.abs(residual).max()) or 1.0
    panel.set_ylim(-limit, limit)
    panel.set_ylabel("residual (MPa)")
    finish(panel)


def next_test_figure(name: str, found: Mapping[str, Any]) -> Figure:
    """The 95 % interval of each prediction, now and as each test is expected to leave it.

    Args:
      name: of the specimen.
      found: the entry `next_test` that `tfmat identify --json` writes.
    """
    shown = [one for one in found["quantities"] if one["is_prediction"]] or found["quantities"]
    tests = [test for test in found["tests"] if test["gain_nats"] is not None]
    names = ["now", *(f"{test['title']}{' (again)' if test['again'] else ''}" for test in tests)]
    figure = new_figure(4.6 * len(shown) + 1.6, 0.32 * len(names) + 1.9)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, quantity in zip(panels, shown, strict=True):
        is_log = quantity["compared_on"] == "log"
        unit = "" if quantity["unit"] == "-" else f" ({quantity['unit']})"
        places = bars(
            panel, names if panel is panels[0] else [""] * len(names), quantity["name"] + unit
        )
        low, high = np.log(quantity["ci95"]) if is_log else quantity["ci95"]
        ratios = [1.0, *(test["interval_ratio"][quantity["name"]]["ratio"] for test in tests)]
        for place, ratio in zip(places, ratios, strict=True):
            # Where the test will find it nobody knows yet: in the middle of what is known.
            ends = 0.5 * (low + high) + 0.5 * (high - low) * ratio * np.array([-1.0, 1.0])
            colour = MEASURED if place == places[0] else MODEL
            panel.plot(np.exp(ends) if is_log else ends, [place, place], color=colour, lw=5.0)
        if is_log:
            logarithmic(panel.xaxis)
    figure.suptitle(
        f"{short_name(name)}: 95 % interval expected after a further test",
        fontsize=11,
        fontweight="bold",
        parse_math=False,
    )
    return figure


def verification_figure(
    name: str, strain: Array, stress_mpa: Array, runs: Sequence[Array]
) -> Figure:
    """Measured points, and over them the curves of runs at draws from the posterior; what parts them, below.

    Args:
      name: of the specimen.
      strain: [points], -; stress_mpa: [points], MPa.
      runs: stress of each run at the measured strains, [points], MPa.
    """
    figure = new_figure(7.0, 5.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    size = 4.0 if len(strain) < 400 else 2.0
    top.plot(strain, stress_mpa, "o", label="measured", ms=size, mfc="none", mec=MEASURED, mew=0.8)
    for i, run in enumerate(runs):
        label = {"label": "runs at draws from the posterior"} if i == 0 else {}
        top.plot(strain, run, color=MODEL, lw=1.0, alpha=0.6, **label)
        bottom.plot(strain, stress_mpa - run, color=MODEL, lw=0.8, alpha=0.6)
    bottom.axhline(0.0, color=INK, lw=0.8)
    top.set_ylabel("nominal stress (MPa)")
    bottom.set_ylabel("residual (MPa)")
    bottom.set_xlabel("nominal strain")
    top.legend(loc="lower right", fontsize=8, frameon=False)
    for panel in (top, bottom):
        finish(panel)
    title = f"{short_name(name)}: verified by the program"
    figure.suptitle(title, fontsize=11, fontweight="bold", parse_math=False)
    return figure
