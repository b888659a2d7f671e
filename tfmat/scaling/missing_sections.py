"""Sections of a study's page: what was not measured, and how to look closer at one run."""

import dataclasses
import html

from tfmat.report.blocks import Block, Details, Paragraph, Section, Table
from tfmat.scaling.analysis import Analysis
from tfmat.scaling.measurements import LeftOut
from tfmat.scaling.planning import TRAINING_ROUNDS_FROM


@dataclasses.dataclass(frozen=True)
class LogText:
    """Lines as a program printed them; long ones wrap, so that a telephone shows them too."""

    text: str

    def html(self) -> str:
        """A `<pre>`."""
        look = "white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.84rem; margin: 8px 0"
        return f'<pre style="{look}">{html.escape(self.text)}</pre>'


def left_out(analysis: Analysis) -> Section | None:
    """What was planned and has no number, why, and the end of the log of what failed."""
    entries = analysis.measurements.left_out
    if not entries:
        return None
    rows = [[each.what, _when(each), each.reason] for each in entries]
    text = (
        "Planned, and without a number. What failed is tried again when the same command is given again; other "
        "repetitions of it may have been measured."
    )
    blocks: list[Block] = [
        Paragraph(text, quiet=True),
        Table(["what", "repetition", "why"], rows, words=True),
    ]
    blocks += [
        Details(f"End of the log: {each.what}, repetition {_when(each)}", [LogText(each.log)])
        for each in entries
        if each.log.strip()
    ]
    return Section("What was not measured", blocks)


def _when(entry: LeftOut) -> str:
    return "none tried" if entry.round is None else f"{entry.round % TRAINING_ROUNDS_FROM + 1}"


def traces() -> Section:
    """How to see the parts and the operations of a single run."""
    rows = [
        ["the parts of steps, rank by rank", "mpirun -np 2 tfmat train --backend=horovod --config.profile=true",
         "the table that it prints; profile.json in the run's folder"],
        ["every operation of 20 steps", "tfmat train --config.trace_steps=20",
         "drop trace.json.gz of the run's folder into ui.perfetto.dev, or into chrome://tracing"],
        ["every sum of gradients", "mpirun -np 2 tfmat train --backend=horovod --config.trace_steps=20",
         "horovod_timeline.json, in the same viewers: asked for, agreed on, done"],
    ]  # fmt: skip
    text = (
        "This page has means. For one run, tfmat can show every step and every operation (docs/where_time_goes.md says "
        "what each part is). Tracing slows the traced steps down: take no times from it."
    )
    table = Table(["to see", "run", "and open"], rows, words=True)
    return Section("Look closer: profiles and traces", [Paragraph(text), table])
