"""`measurements.jsonl`: a line a repetition, all-reduce, session, or what was left out; the first says the format.

    {"kind": "format", "format": 1, "label": ""}
    {"kind": "session", "number": 0, "content": {"started": "…", "command": "…", "versions": {…}, …}}
    {"kind": "allreduce", "library": "mpi", "workers": 2, "bytes": 1024, "median_seconds": 2.1e-05, …}
    {"kind": "repetition", "point": {"backend": "horovod", "workers": 2, …}, "round": 0, "steps": 400, …}

The keys are the attributes of the dataclasses in measurements.py; what has a default may be missing.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from tfmat.errors import InputError, nearest
from tfmat.files import atomic_write, check_json, parse_json
from tfmat.scaling.measurements import (
    AllReduce,
    LeftOut,
    Measurements,
    Repetition,
    Session,
)

FILE = "measurements.jsonl"
_FORMAT = 1
_KINDS: dict[str, type] = {
    "session": Session,
    "allreduce": AllReduce,
    "repetition": Repetition,
    "left_out": LeftOut,
}
Entry = Repetition | AllReduce | Session | LeftOut


def is_study(workdir: str | os.PathLike) -> bool:
    """Whether the folder is a scaling study's."""
    return (pathlib.Path(workdir) / FILE).is_file()


def write_measurements(workdir: str | os.PathLike, measurements: Measurements) -> None:
    """Writes the whole file into a folder that exists, or leaves the old one."""
    entries: list[Entry] = [*measurements.sessions, *measurements.allreduces]
    entries += [*measurements.repetitions, *measurements.left_out]
    lines: list[dict[str, Any]] = [
        {"kind": "format", "format": _FORMAT, "label": measurements.label}
    ]
    names = {kind: name for name, kind in _KINDS.items()}
    lines += [{"kind": names[type(entry)], **_without_defaults(entry)} for entry in entries]
    with atomic_write(pathlib.Path(workdir) / FILE, "w") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")


def add_measurements(workdir: str | os.PathLike, entries: Iterable[Entry]) -> None:
    """Adds entries to the folder's file, which may not exist yet; a killed process leaves the old file whole."""
    old = read_measurements(workdir) if is_study(workdir) else Measurements()
    write_measurements(workdir, _with_entries(old, entries))


def read_measurements(workdir: str | os.PathLike) -> Measurements:
    """Reads a study; raises InputError with the number of the line that cannot be used."""
    path = pathlib.Path(workdir) / FILE
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {error}; name a scaling study's folder with --workdir"
        ) from error
    entries: list[Entry] = []
    label = ""
    for number, line in enumerate(lines, start=1):
        try:
            content = parse_json(line)
            if not isinstance(content, dict):
                raise InputError("expected an object in braces")
            kind = content.pop("kind", None)
            if number == 1:
                label = _check_format(kind, content)
            elif not isinstance(kind, str) or kind not in _KINDS:
                raise InputError(f"kind is {kind!r}; expected one of {', '.join(_KINDS)}")
            else:
                entries.append(_decode(_KINDS[kind], content, kind))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}; mend or remove that line") from error
    if not lines:
        raise InputError(f"{path} is empty; measure again in another folder")
    return _with_entries(Measurements(label=label), entries)


def _with_entries(old: Measurements, entries: Iterable[Entry]) -> Measurements:
    entries = list(entries)
    return Measurements(
        (*old.repetitions, *(e for e in entries if isinstance(e, Repetition))),
        (*old.allreduces, *(e for e in entries if isinstance(e, AllReduce))),
        (*old.sessions, *(e for e in entries if isinstance(e, Session))),
        old.label,
        (*old.left_out, *(e for e in entries if isinstance(e, LeftOut))),
    )


def _check_format(kind: Any, content: dict[str, Any]) -> str:
    if kind != "format" or content.get("format") != _FORMAT:
        found = content.get("format", "none")
        raise InputError(f"format {found}, this tfmat reads format {_FORMAT}")
    return str(content.get("label", ""))


def _without_defaults(entry: Any) -> dict[str, Any]:
    """A dataclass as JSON, what is at its default left out: lines stay short enough to read."""
    found = {}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _without_defaults(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _decode(kind: Any, content: dict[str, Any], name: str) -> Entry:
    """One entry; InputError where it is none."""
    fields = [field.name for field in dataclasses.fields(kind)]
    for key in content:
        if key not in fields:
            raise InputError(f"{name} has an unknown key '{key}'{nearest(key, fields)}")
    found: Entry = check_json(content, kind, name)
    return found
