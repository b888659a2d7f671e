"""The report on a scaling study: `scaling_report.html`, its pictures and tables, from measurements.jsonl."""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

import tfmat
from tfmat.files import atomic_write, make_folder
from tfmat.report.blocks import Block, Details, Findings, Page, Paragraph, Section, Tile, Tiles
from tfmat.scaling import missing_sections as missing
from tfmat.scaling import outlook_sections as outlook
from tfmat.scaling import scaling_sections as sections
from tfmat.scaling.analysis import Analysis, analyse
from tfmat.scaling.assumptions import Assumptions, read_assumptions, write_assumptions
from tfmat.scaling.measurement_files import read_measurements
from tfmat.scaling.pictures import Pictures, pictures, save
from tfmat.scaling.prediction import last_worthwhile
from tfmat.scaling.reliability import is_believable
from tfmat.scaling.scaling_verdict import RULES, findings, headline, judge, paragraph
from tfmat.scaling.speed_figures import parts_of
from tfmat.scaling.summary import PointSummary
from tfmat.scaling.units import percent_text, seconds_text

PAGE = "scaling_report.html"
_NUMBERS = ("step_seconds", "curves_per_second", "speedup", "efficiency")


def write_scaling_report(
    workdir: str | os.PathLike, assumptions: Assumptions | None = None
) -> pathlib.Path:
    """Writes the page, figures/scaling_*.png and .svg, and two CSV files; returns the page's path.

    Args:
      assumptions: kept in the folder for the next time; None takes those that were kept.

    Raises:
      InputError: the folder is no study's, is damaged, or cannot be written.
    """
    folder = pathlib.Path(workdir)
    measurements = read_measurements(folder)
    if assumptions is None:
        assumptions = read_assumptions(folder)
    analysis = analyse(measurements, assumptions)
    found = pictures(analysis)
    content = scaling_page(analysis, found, folder.resolve().name).html()
    write_assumptions(folder, assumptions)
    save(found, make_folder(folder / "figures"))
    _write_table(folder / "scaling_points.csv", point_table(analysis))
    lines = pd.DataFrame([dataclasses.asdict(line) for line in measurements.allreduces])
    _write_table(folder / "scaling_allreduces.csv", lines)
    path = folder / PAGE
    with atomic_write(path, "w") as file:
        file.write(content)
    return path


def write_report_with(workdir: str | os.PathLike, changes: Mapping[str, Any]) -> pathlib.Path:
    """As `write_scaling_report`, with some of the kept assumptions changed; names as in `Assumptions`."""
    kept = read_assumptions(workdir)
    return write_scaling_report(workdir, dataclasses.replace(kept, **changes))


def scaling_page(analysis: Analysis, found: Pictures, name: str) -> Page:
    """The page on a study."""
    judged = judge(analysis)
    hardware = sorted({each.point.hardware for each in analysis.summaries})
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        _verdict(analysis),
        sections.speed(analysis, found),
        sections.step(analysis, found),
        sections.synchronisation(analysis, found),
        sections.accuracy(analysis, found),
        outlook.model(analysis, found),
        outlook.prediction(analysis, found),
        outlook.raw(analysis),
        missing.left_out(analysis),
        missing.traces(),
        outlook.provenance(analysis),
    ]
    return Page(
        title=f"{name}: what the parallelism bought",
        subtitle=" · ".join([*hardware, f"{len(analysis.summaries)} points"]),
        badge=(judged.level, judged.badge),
        sections=[section for section in parts if section is not None],
        footer=f"Made by tfmat {tfmat.__version__} on {now} from measurements.jsonl in the study's folder; the "
        "pictures also lie in figures/ there, the tables as CSV. This file needs nothing else.",
    )


def _verdict(analysis: Analysis) -> Section:
    level, text = headline(analysis)
    rules = Details(
        "The rules behind this verdict", [Paragraph(rule, quiet=True) for rule in RULES]
    )
    tiles = _tiles(analysis)
    blocks: list[Block] = [Paragraph(paragraph(analysis)), *([Tiles(tiles)] if tiles else [])]
    return Section(text, [*blocks, Findings(findings(analysis)), rules], level=level)


def _tiles(analysis: Analysis) -> list[Tile]:
    best = analysis.best
    if best is None or best.speedup is None or best.efficiency is None:
        return []
    if not is_believable(analysis):
        return []
    level, _ = headline(analysis)
    limits = f"{best.speedup.low:.3g} – {best.speedup.high:.3g}"
    tiles = [
        Tile(
            f"speed-up of {best.point.workers} workers", f"{best.speedup.value:.3g}", limits, level
        ),
        Tile("efficiency", percent_text(best.efficiency.value), "of the ideal", level),
    ]
    parts = parts_of(best)
    if parts:
        lost = parts.get("waiting", 0.0) + parts.get("moving", 0.0)
        share = percent_text(lost / sum(parts.values()))
        tiles.append(Tile("synchronisation", share, "of a step, waiting and moving"))
    exchange = analysis.exchange_seconds
    if analysis.forecast is not None and exchange is not None:
        tiles.append(Tile("one exchange", seconds_text(exchange), "of gradients, by itself"))
        last = last_worthwhile(analysis.forecast.weak)
        value = f"{last:,}" if last < 1024 else "1,024 or more"
        least = last_worthwhile(analysis.forecast.weak, "low")
        remark = "workers keep it, as predicted"
        remark += f"; the interval begins at {least:,}" if least < last else ""
        tiles.append(Tile("half of the ideal", value, remark))
    return tiles


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


def _write_table(path: pathlib.Path, table: pd.DataFrame) -> None:
    with atomic_write(path, "w") as file:
        table.to_csv(file, index=False)
