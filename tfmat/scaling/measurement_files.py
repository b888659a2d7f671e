"""`measurements.jsonl`: a line a repetition, all-reduce, session, or what was left out; the first says the format.

    {"kind": "format", "format": 1, "label": ""}
    {"kind": "session", "number": 0, "content": {"started": "…", "command": "…", "versions": {…}, …}}
    {"kind": "allreduce", "library": "mpi", "workers": 2, "bytes": 1024, "median_seconds": 2.1e-05, …}
    {"kind": "repetition", "point": {"backend": "horovod", "workers": 2, …}, "round": 0, "steps": 400, …}

The keys are the attributes of the dataclasses in measurements.py; what has a default may be missing.
"""

import dataclasses
import json
import math
import os
import pathlib
import types
import typing
from collections.abc import Iterable
from typing import Any

from tfmat.errors import InputError, nearest
from tfmat.files import atomic_write
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
            content = json.loads(line)
            if not isinstance(content, dict):
                raise InputError("expected an object in braces")
            kind = content.pop("kind", None)
            if number == 1:
                label = _check_format(kind, content)
            elif kind not in _KINDS:
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


def _decode(kind: Any, value: Any, where: str) -> Any:
    """`value` of a JSON file as an object of the annotated type `kind`; InputError where it is none."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, where)
    if isinstance(kind, types.UnionType):
        return None if value is None else _decode(arguments[0], value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_decode(arguments[0], each, where) for each in value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise InputError(f"{where} is {value}; expected a finite number")
        return float(value)
    plain = origin or kind
    if not isinstance(value, plain) or (plain is int and isinstance(value, bool)):
        raise InputError(f"{where} is {value!r}; expected {getattr(plain, '__name__', plain)}")
    return value


def _decode_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{where} is {value!r}; expected an object in braces")
    annotations = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in fields:
            raise InputError(f"{where} has an unknown key '{name}'{nearest(name, fields)}")
    for name, field in fields.items():
        if name not in value and field.default is dataclasses.MISSING:
            raise InputError(f"{where} has no '{name}'")
    return kind(**{name: _decode(annotations[name], value[name], name) for name in value})
