"""Reading what a run wrote while it trained."""

import os
import pathlib
from typing import Any

from tfmat.errors import InputError
from tfmat.files import check_json, parse_json
from tfmat.report.records import MetricsLine


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, in order of their step; [] where the file is missing.

    A run that went on after a kill may have written some steps twice: the later line counts. A line that was cut
    off by the kill, or is damaged, is left out.
    """
    try:
        lines = pathlib.Path(path).read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    by_step: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            content = parse_json(line, nan_is_none=True)
            check_json(content, MetricsLine, path)
        except ValueError:  # an InputError too
            continue
        by_step[content["step"]] = content
    return [by_step[step] for step in sorted(by_step)]
