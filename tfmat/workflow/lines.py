"""What the main job says while it works."""

import contextlib
import sys
from typing import Any


def say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        print(line, file=sys.stderr, flush=True)


def show_table(table: Any) -> None:
    from tfmat.report.progress import open_console

    open_console().print(table)
