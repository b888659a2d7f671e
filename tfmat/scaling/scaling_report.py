"""The report on a scaling study: `scaling_report.html`, its pictures and tables, from measurements.jsonl."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tfmat.files import make_folder, spreadsheet_text, write_text
from tfmat.report.drawing import MOST_SERIES, Picture, save_figure
from tfmat.report.formatting import bytes_text, format_value, percent_text, unbroken
from tfmat.report.page import render_page
from tfmat.scaling.analysis import LARGER, Analysis, analyse
from tfmat.scaling.collective_costs import ALGORITHMS, ring_bytes, server_bytes
from tfmat.scaling.exchange_figures import exchange_pictures, model_pictures, predictions
from tfmat.scaling.labels import Labels
from tfmat.scaling.measurement_files import read_assumptions, read_measurements, write_assumptions
from tfmat.scaling.planning import TRAINING_ROUNDS_FROM
from tfmat.scaling.prediction import GOOD, MOST_WORKERS
from tfmat.scaling.scaling_verdict import (
    RULES,
    findings,
    independent,
    is_believable,
    judge,
    outlook,
)
from tfmat.scaling.slow_links import recommend
from tfmat.scaling.speed_figures import accuracy_pictures, parts_of, speed_pictures, step_bars
from tfmat.scaling.study import GOAL
from tfmat.scaling.summary import UNRELIABLE, PointSummary, added_worker, amdahl_share
from tfmat.scaling.time_to_accuracy import name_among

PAGE = "scaling_report.html"
_NUMBERS = ("step_seconds", "curves_per_second", "speedup", "efficiency")
# What ranks use of the machine: attribute, heading, as text.
_USE = (
    ("cpu_utilisation", "CPU", percent_text), ("gpu_utilisation", "GPU", percent_text),
    ("memory_bytes", "memory a rank", bytes_text), ("gpu_memory_bytes", "GPU memory", bytes_text),
    ("power_watts", "power (W)", format_value),
)  # fmt: skip


def write_scaling_report(
    workdir: str | os.PathLike, changes: Mapping[str, Any] | None = None
) -> tuple[pathlib.Path, str]:
    """Writes the page, figures/scaling_*.png and .svg, and two CSV files; returns the page's path and its verdict.

    Args:
      changes: of the assumptions that are kept in the folder, by their names.

    Raises:
      InputError: the folder is no study's, is damaged, or cannot be written.
    """
    folder = pathlib.Path(workdir)
    measurements = read_measurements(folder)
    assumptions = dataclasses.replace(read_assumptions(folder), **(changes or {}))
    analysis = analyse(measurements, assumptions)
    found = pictures(analysis)
    content = scaling_page(analysis, found, folder.resolve().name)
    write_assumptions(folder, assumptions)
    _save(found, make_folder(folder / "figures"))
    write_text(folder / "scaling_points.csv", spreadsheet_text(point_table(analysis)))
    lines = pd.DataFrame([dataclasses.asdict(line) for line in measurements.allreduces])
    write_text(folder / "scaling_allreduces.csv", spreadsheet_text(lines))
    path = folder / PAGE
    write_text(path, content)
    return path, judge(analysis).text


def pictures(analysis: Analysis) -> dict[str, Picture]:
    """Name -> picture, of all that the measurements allow."""
    found = [
        *speed_pictures(analysis),
        *exchange_pictures(analysis),
        *accuracy_pictures(analysis),
        *model_pictures(analysis),
    ]
    return {picture.name: picture for picture in found}


def _save(found: Mapping[str, Picture], folder: pathlib.Path) -> None:
    """Writes each as scaling_NAME.png and .svg, and removes those of an earlier page that are no more."""
    for old in folder.glob("scaling_*.*"):
        if old.stem.removeprefix("scaling_") not in found and old.suffix in (".png", ".svg"):
            old.unlink()
    for name, picture in found.items():
        for kind in ("png", "svg"):
            save_figure(picture.figure, folder / f"scaling_{name}.{kind}")


def median_and_worst(errors: NDArray) -> str:
    """`7 %, 24 %`: of relative errors."""
    sizes = np.abs(errors[np.isfinite(errors)])
    if not len(sizes):
        return "–"
    return f"{percent_text(float(np.median(sizes)))}, {percent_text(float(sizes.max()))}"


# What the template calls.
_FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        parts_of, added_worker, amdahl_share, name_among, ring_bytes, server_bytes, median_and_worst,
    )
}  # fmt: skip


def scaling_page(analysis: Analysis, found: Mapping[str, Picture], name: str) -> str:
    """The page on a study."""
    points = [each.point for each in analysis.summaries]
    costs = [cost for cost in analysis.costs if cost.seconds.high < UNRELIABLE * cost.seconds.low]
    forecast = analysis.forecast
    return render_page(
        "scaling.html",
        name=name,
        analysis=analysis,
        pictures=found,
        verdict=judge(analysis),
        believable=is_believable(analysis),
        findings=findings(analysis),
        recommendation=recommend(analysis.ways[-1]) if analysis.ways else "",
        rules=RULES,
        hardware=sorted({point.hardware for point in points}),
        usual=Labels(points).usual,
        independent=independent(analysis),
        outlook=outlook(analysis),
        believed=costs,
        predictions={} if forecast is None else predictions(forecast),
        constants=_constants(analysis),
        use=_use(analysis),
        begins_too_early=any(_begins_too_early(each) for each in analysis.summaries),
        assumptions=[
            f"{name} {value:,}" if isinstance(value, int | float) else f"{name} {value}"
            for name, value in vars(analysis.assumptions).items()
            if value is not None
        ],
        step_bars=step_bars(analysis),
        **_FUNCTIONS,
        most_series=MOST_SERIES,
        most_workers=MOST_WORKERS,
        larger=LARGER,
        goal=GOAL,
        good=GOOD,
        training_rounds_from=TRAINING_ROUNDS_FROM,
    )


def _use(analysis: Analysis) -> dict[str, list]:
    """Utilisation, memory and power of each point, medians over ranks and repetitions; what nothing measured is out."""
    rows = []
    for each in analysis.summaries:
        cells = []
        for name, _, text in _USE:
            values = [getattr(rank, name) for r in each.repetitions for rank in r.ranks]
            known = [value for value in values if value is not None]
            cells.append(text(float(np.median(known))) if known else "–")
        if set(cells) != {"–"}:
            rows.append([unbroken(each.name), *cells])
    headings = ["point", *(heading for _, heading, _ in _USE)]
    used = [i for i in range(len(headings)) if any(row[i] != "–" for row in rows)]
    return {
        "headings": [headings[i] for i in used],
        "rows": [[row[i] for i in used] for row in rows],
    }


def _constants(analysis: Analysis) -> list[tuple[str, float, float | None]]:
    """Name, value and standard error of the step model's constants."""
    if analysis.forecast is None:
        return []
    model = analysis.forecast.model
    fixed, an_example = model.compute.values
    errors = model.compute.errors
    network = model.inside
    own, latency, byte_seconds = network.values
    network_errors = network.fit.errors
    law = ALGORITHMS[network.algorithm].title
    return [
        ("step alone, fixed t0 (ms)", 1e3 * fixed, 1e3 * errors[0]),
        ("step alone, an example t1 (µs)", 1e6 * an_example, 1e6 * errors[1]),
        ("spread of a step σ (%)", 100 * model.deviation, None),
        ("library's own cost a step c (ms)", 1e3 * model.own, 1e3 * model.own_error),
        (f"message latency α, {law} (µs)", 1e6 * latency, 1e6 * network_errors[1]),
        ("time a byte β (ns)", 1e9 * byte_seconds, 1e9 * network_errors[2]),
        ("start of an all-reduce (µs)", 1e6 * own, 1e6 * network_errors[0]),
    ]


def _begins_too_early(summary: PointSummary) -> bool:
    """A first epoch in less than half the time of its steps."""
    return any(
        line.seconds < 0.5 * line.epoch * summary.point.steps_an_epoch * each.step_seconds
        for each in summary.repetitions
        for line in each.training[:1]
    )


def point_table(analysis: Analysis) -> pd.DataFrame:
    """One row a point: what it is, median, low and high of its numbers, the parts of its step in seconds."""
    return pd.DataFrame([_row(each) for each in analysis.summaries])


def _row(summary: PointSummary) -> dict[str, object]:
    point = {k: v for k, v in vars(summary.point).items() if k != "model"}
    model = summary.point.model
    row: dict[str, object] = {
        **point, "model": model.name, "parameters": model.parameters, "gradient_bytes": model.gradient_bytes,
        "rounds": len(summary.repetitions),
    }  # fmt: skip
    for name in _NUMBERS:
        estimate = getattr(summary, name)
        for limit in ("value", "low", "high"):
            column = name if limit == "value" else f"{name}_{limit}"
            row[column] = None if estimate is None else getattr(estimate, limit)
    if summary.baseline is not None:
        row["baseline_batch"] = summary.baseline.global_batch_size
        row["baseline_hardware"] = summary.baseline.hardware
    return {**row, **{f"{part}_seconds": value for part, value in parts_of(summary).items()}}
