"""Says what this machine can do: TensorFlow, GPUs, MPI, Horovod, DTensor, SLURM, CalculiX; and how to get the rest.

Everything is tried: two ranks of Horovod and two virtual devices of DTensor really add numbers, and SLURM's controller
is asked. Takes about ten seconds. The exit status is 0 also where parts are missing: a run needs only what it uses.

Examples:
  tfmat doctor
  tfmat doctor --json
"""

import dataclasses
import json
from typing import TYPE_CHECKING

from absl.flags import FlagValues

import tfmat
from tfmat.cli.flags import switch

if TYPE_CHECKING:
    from tfmat.launch.doctor import Finding

_COLOURS = {"ok": "green", "missing": "yellow", "failed": "red"}
FLAGS = (switch("json", False, "Print JSON instead of a table."),)
NO_ARGUMENT = ""


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Examines the machine and prints what it found; returns the exit status."""
    from rich.console import Console

    from tfmat.launch.doctor import examine

    with Console(stderr=True).status("trying TensorFlow, MPI, Horovod, DTensor and SLURM"):
        findings = examine()
    if flag_values.json:
        content = {
            "tfmat": tfmat.__version__,
            "findings": [dataclasses.asdict(f) for f in findings],
        }
        print(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        print_findings(findings)
    return 0


def print_findings(findings: list["Finding"]) -> None:
    """Prints the table: part, state, details, and below them how to get what is missing."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from tfmat.console import open_console

    console = open_console(100)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for heading in ("", "", f"tfmat {tfmat.__version__} on this machine"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        text = Text(finding.detail)
        if finding.remedy:
            text.append(f"\nget it: {finding.remedy}", style="bold")
        table.add_row(finding.part, Text(finding.state, style=_COLOURS[finding.state]), text)
    console.print(table)
