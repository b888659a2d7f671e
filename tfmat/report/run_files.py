"""What lies in a run's folder, read for a report: whatever is missing or damaged is None or empty, never an error."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmat.errors import InputError
from tfmat.files import check_json, is_locked, parse_json, read_json, write_json
from tfmat.report import example_records, records
from tfmat.report.evaluation import ScoredAnswers, read_answers
from tfmat.report.posterior_figures import Corner

# A folder with none of these is no run.
_MARKS = ("config.json", "status.json", "metrics.jsonl", "model.json", "evaluation.json")
# The example's picture, of a curve or of tests, and what is an array in it.
_PICTURE, _TESTS = "example_picture.json", "example_tests.json"
# Samples of the example's posterior.
_POSTERIOR = "example_posterior.json"
_ARRAYS = ("strain", "stress_mpa", "resimulated_mpa", "time", "answer", "other")


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """One run, from its files.

    Attributes:
      workdir: the folder.
      config, status, sidecar, evaluation: the JSON files' contents, {} where missing.
      metrics: lines of metrics.jsonl.
      sessions: of provenance.json, the oldest first.
      answers: the network's answers to the test curves, or None.
      example: the example's answer as `tfmat identify --json` tells it, or {}.
      example_picture: arguments of `answer_figure` for it, or None.
      example_posterior: the corner plot of its posterior's samples, or None.
      landscape, landscape_between: what `tfmat landscape` measured around the minimum and to another one, or {}.
      running: a process is training in the folder now.
      damaged: files that are there and cannot be used, one line each.
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
    example_posterior: Corner | None
    running: bool
    damaged: tuple[str, ...] = ()
    landscape: dict[str, Any] = dataclasses.field(default_factory=dict)
    landscape_between: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def done(self) -> bool:
        """The training came to its end."""
        return bool(self.status.get("state", "done") == "done")

    @property
    def reference(self) -> dict[str, Any] | None:
        """Errors of the best possible answer and of least squares, with which the network is compared."""
        return self.evaluation.get("reference") or self.evaluation.get("yardstick")


def read_run(workdir: str | os.PathLike) -> RunFiles:
    """Reads a run's folder; raises InputError where it is none."""
    folder = pathlib.Path(workdir)
    if not any((folder / name).is_file() for name in _MARKS):
        what = "holds no run" if folder.is_dir() else "does not exist"
        raise InputError(
            f"{folder} {what}; name a run's folder with --workdir, or train one: tfmat train --workdir={folder}"
        )
    files = _Files(folder)
    sessions = files.content("provenance.json", records.Provenance).get("sessions", [])
    examples = files.content("example.json", list[example_records.Example], empty=[])
    run = RunFiles(
        workdir=folder,
        config=files.content("config.json", records.Configuration),
        status=files.content("status.json", records.Status),
        sidecar=files.content("model.json", records.Sidecar),
        evaluation=files.content("evaluation.json", records.Evaluation),
        metrics=read_metrics(folder / "metrics.jsonl"),
        sessions=sessions,
        answers=read_answers(folder),
        example=examples[0] if examples else {},
        example_picture=_picture(files),
        example_posterior=_posterior(files),
        running=is_locked(folder),
        landscape=_landscape(files, "landscape.json"),
        landscape_between=_landscape(files, "landscape_between.json"),
    )
    return dataclasses.replace(run, damaged=tuple(files.damaged))


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
            check_json(content, records.MetricsLine, path)
        except ValueError:  # an InputError too
            continue
        by_step[content["step"]] = content
    return [by_step[step] for step in sorted(by_step)]


class _Files:
    """Reads the folder's JSON files, and remembers which of them cannot be used."""

    def __init__(self, folder: pathlib.Path):
        self._folder, self.damaged = folder, list[str]()

    def content(self, name: str, kind: Any, empty: Any = None) -> Any:
        """A file's content; an empty one where the file is missing or damaged."""
        empty = {} if empty is None else empty
        path = self._folder / name
        if not path.exists():
            return empty
        try:
            content = read_json(path)
            check_json(content, kind, path)
        except InputError as error:
            self.damaged.append(str(error))
            return empty
        return content

    def refuse(self, name: str, why: str) -> None:
        """Notes a file that cannot be used."""
        self.damaged.append(f"{self._folder / name} is damaged: {why}")


def write_example_picture(workdir: str | os.PathLike, picture: Mapping[str, Any]) -> None:
    """Keeps the picture of the example's answer, arguments of `answer_figure`, in a run's folder."""
    name = _TESTS if "tests" in picture else _PICTURE
    content = _with(picture, lambda array: np.asarray(array).tolist())
    write_json(pathlib.Path(workdir) / name, content)


def write_example_posterior(workdir: str | os.PathLike, posterior: Mapping[str, Any]) -> None:
    """Keeps samples of the example's posterior, arguments of `Corner`, in a run's folder."""
    values = np.asarray(posterior["values"]).tolist()
    write_json(pathlib.Path(workdir) / _POSTERIOR, {**posterior, "values": values})


def _landscape(files: _Files, name: str) -> dict[str, Any]:
    """A landscape whose loss has a number for each point; {} where it is missing or damaged."""
    content: dict[str, Any] = files.content(name, records.Landscape)
    if content:
        shape = (len(content["y"]), len(content["x"]))
        if any(np.shape(content["loss"][part]) != shape for part in ("train", "test")):
            files.refuse(name, "its losses are not those of its points")
            return {}
    return content


def _posterior(files: _Files) -> Corner | None:
    """The example's samples; None where they are missing or damaged."""
    content = files.content(_POSTERIOR, example_records.Posterior)
    if not content:
        return None
    names, units, flags, values = (
        content[key] for key in ("names", "units", "logarithmic", "values")
    )
    lengths = {len(row) for row in (units, flags, *values)}
    if not values or lengths != {len(names)} or not np.isfinite(values).all():
        files.refuse(_POSTERIOR, "its samples are not numbers of each parameter")
        return None
    return Corner(names, units, flags, np.asarray(values), content.get("recommended", {}))


def _picture(files: _Files) -> dict[str, Any] | None:
    """The example's picture as it was; None where it is missing or damaged."""
    kinds: dict[str, Any] = {
        _PICTURE: example_records.Picture,
        _TESTS: example_records.TestsPicture,
    }
    for name, kind in kinds.items():
        content = files.content(name, kind)
        if content:
            picture = _with(content, lambda values: np.asarray(values, np.float64))
            tests = picture.get("tests", [picture])
            if not tests or any(
                len(set(_lengths(test))) > 1 or not len(test["strain"]) for test in tests
            ):
                files.refuse(name, "its curves have different numbers of points")
                return None
            known = kind.__annotations__.keys()
            return {key: value for key, value in picture.items() if key in known}
    return None


def _lengths(curves: Mapping[str, Any]) -> list[int]:
    """The numbers of points of the arrays in a picture, or in one test of it."""
    inside = curves.get("refined") or {}
    return [
        len(each[name])
        for each in (curves, inside)
        for name in _ARRAYS
        if each.get(name) is not None
    ]


def _with(content: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The picture, or a part of it, its arrays changed."""
    found = dict(content)
    for name, value in content.items():
        if name in _ARRAYS and value is not None:
            found[name] = change(value)
        elif name == "tests":
            found[name] = [_with(test, change) for test in value]
        elif name == "refined" and value:
            found[name] = _with(value, change)
    return found
