"""What lies in a run's folder, read for a report: whatever is missing or damaged is None or empty, never an error."""

import dataclasses
import fcntl
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.report.evaluation import ScoredAnswers, read_answers
from tfmat.report.metrics import read_metrics

# A folder with none of these is no run.
_MARKS = ("config.json", "status.json", "metrics.jsonl", "model.json", "evaluation.json")
_PICTURE = "example_picture.json"


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """One run, from its files.

    Attributes:
      workdir: the folder.
      config, status, sidecar, evaluation: the JSON files' contents, {} where missing.
      metrics: lines of metrics.jsonl.
      sessions: of provenance.json, the oldest first.
      answers: the network's answers to the test curves, or None.
      example: the example curve's answer as `tfmat identify --json` tells it, or {}.
      example_picture: arguments of `curve_figure` for it, or None.
      running: a process is training in the folder now.
    """

    workdir: pathlib.Path
    config: dict[str, Any]
    status: dict[str, Any]
    sidecar: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    answers: ScoredAnswers | None
    example: dict[str, Any]
    example_picture: dict[str, Any] | None
    running: bool


def read_run(workdir: str | os.PathLike) -> RunFiles:
    """Reads a run's folder; raises InputError where it is none."""
    folder = pathlib.Path(workdir)
    if not any((folder / name).is_file() for name in _MARKS):
        what = "holds no run" if folder.is_dir() else "does not exist"
        raise InputError(
            f"{folder} {what}; name a run's folder with --workdir, or train one: tfmat train --workdir={folder}"
        )
    examples = _content(folder / "example.json", list)
    sessions = _content(folder / "provenance.json", dict).get("sessions")
    return RunFiles(
        workdir=folder,
        config=_content(folder / "config.json", dict),
        status=_content(folder / "status.json", dict),
        sidecar=_content(folder / "model.json", dict),
        evaluation=_content(folder / "evaluation.json", dict),
        metrics=read_metrics(folder / "metrics.jsonl"),
        sessions=[s for s in sessions if isinstance(s, dict)] if isinstance(sessions, list) else [],
        answers=read_answers(folder),
        example=examples[0] if examples and isinstance(examples[0], dict) else {},
        example_picture=_picture(folder / _PICTURE),
        running=_is_locked(folder / ".lock"),
    )


def _content(path: pathlib.Path, kind: type) -> Any:
    """A JSON file's content; an empty one where the file is missing, damaged or of another kind."""
    try:
        content = read_json(path)
    except InputError:
        return kind()
    return content if isinstance(content, kind) else kind()


def write_example_picture(workdir: str | os.PathLike, picture: Mapping[str, Any]) -> None:
    """Keeps the arguments of `curve_figure` for the example curve in a run's folder."""
    write_json(
        pathlib.Path(workdir) / _PICTURE, _with(picture, lambda array: np.asarray(array).tolist())
    )


def _picture(path: pathlib.Path) -> dict[str, Any] | None:
    """The example's picture as it was; None where it is missing or damaged."""
    try:
        return _with(_content(path, dict), lambda values: np.asarray(values, np.float64))
    except (KeyError, TypeError, ValueError):
        return None


def _with(picture: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The picture, its arrays changed."""

    def changed(content: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        known = {name: change(content[name]) for name in names if content[name] is not None}
        return {**content, **known}

    whole = changed(picture, ("strain", "stress_mpa", "resimulated_mpa"))
    refined = picture["refined"]
    return {**whole, "refined": changed(refined, ("stress_mpa",)) if refined else None}


def _is_locked(path: pathlib.Path) -> bool:
    """Whether a process trains in the folder: it holds this file, and loses it however it ends."""
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
