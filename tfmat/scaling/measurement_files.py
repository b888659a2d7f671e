"""`measurements.jsonl`: a line a repetition, all-reduce, session, or what was left out; the first says the format.

    {"kind": "format", "format": 1, "label": ""}
    {"kind": "session", "number": 0, "content": {"started": "…", "command": "…", "versions": {…}, …}}
    {"kind": "allreduce", "library": "mpi", "workers": 2, "bytes": 1024, "median_seconds": 2.1e-05, …}
    {"kind": "repetition", "point": {"backend": "horovod", "workers": 2, …}, "round": 0, "steps": 400, …}

The keys are the attributes of the dataclasses in measurements.py; what has a default may be missing. Lines are only
ever added: `left_out` without a reason takes back what an earlier one says of the same launch. `assumptions.json`
beside it holds what a reader of the page adds: prices, power, a target.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from tfmat.errors import InputError, nearest
from tfmat.files import check_json, parse_json, read_json, write_error, write_json, write_text
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
    first = {"kind": "format", "format": _FORMAT, "label": measurements.label}
    write_text(pathlib.Path(workdir) / FILE, _line(first) + "".join(map(_line_of, entries)))


def add_measurements(workdir: str | os.PathLike, entries: Iterable[Entry]) -> None:
    """Adds lines to the folder's file, which may not exist yet; what a killed process left of a line goes first."""
    if not is_study(workdir):
        write_measurements(workdir, Measurements())
    path = pathlib.Path(workdir) / FILE
    try:
        with path.open("r+b") as file:
            whole = _without_torn_line(file.read().decode()).encode()
            file.truncate(len(whole))
            file.seek(0, os.SEEK_END)
            file.write(b"" if whole.endswith(b"\n") else b"\n")
            file.write("".join(map(_line_of, entries)).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise write_error(path, error) from error


def _without_torn_line(text: str) -> str:
    """The text without a last line that a killed process left unfinished."""
    before, newline, last = text.rpartition("\n")
    if not newline or not last:
        return text
    try:
        json.loads(last)
    except ValueError:
        return before + newline
    return text


def _line_of(entry: Entry) -> str:
    names = {kind: name for name, kind in _KINDS.items()}
    return _line({"kind": names[type(entry)], **_without_defaults(entry)})


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def read_measurements(workdir: str | os.PathLike) -> Measurements:
    """Reads a study; raises InputError with the number of the line that cannot be used."""
    path = pathlib.Path(workdir) / FILE
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {error}; name a scaling study's folder with --workdir"
        ) from error
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    label = ""
    lines = _without_torn_line(text).splitlines()
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
                found[kind].append(_decode(_KINDS[kind], content, kind))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}; mend or remove that line") from error
    if not lines:
        raise InputError(f"{path} is empty; measure again in another folder")
    return Measurements(
        tuple(found["repetition"]),
        tuple(found["allreduce"]),
        tuple(found["session"]),
        label,
        _still_left_out(found["left_out"], found["session"]),
    )


def _still_left_out(entries: Sequence[LeftOut], sessions: Sequence[Session]) -> tuple[LeftOut, ...]:
    """What cannot be had on the machine of the last session, and failures that no later entry takes back."""
    last = max((session.number for session in sessions), default=0)
    found: list[LeftOut] = []
    for entry in entries:
        if not entry.reason:
            found = [e for e in found if (e.what, e.round) != (entry.what, entry.round)]
        elif entry.round is not None or entry.session >= last:
            found.append(entry)
    return tuple(found)


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


def _decode(kind: Any, content: dict[str, Any], name: str) -> Any:
    """One entry; InputError where it is none."""
    fields = [field.name for field in dataclasses.fields(kind)]
    for key in content:
        if key not in fields:
            raise InputError(f"{name} has an unknown key '{key}'{nearest(key, fields)}")
    return check_json(content, kind, name)


_ASSUMPTIONS = "assumptions.json"


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """None where nothing is assumed.

    Attributes:
      price_per_hour: of one worker's device, in any currency.
      watts_a_worker: electric power of one worker; measured power goes before it.
      target_val_loss: accuracy up to which time and money are counted; by default the best that every trained point
        reached.
      baseline_hardware: divide by the single-worker speed of this hardware instead of the point's own.
      ranks_per_node: workers that a node takes, for predictions; by default the most that were measured.
      network_latency, network_bytes_per_second: of the network between nodes, for predictions beyond one node where no
        all-reduce between nodes was measured.
      device_memory_bytes: of one worker's device.
    """

    price_per_hour: float | None = None
    watts_a_worker: float | None = None
    target_val_loss: float | None = None
    baseline_hardware: str | None = None
    ranks_per_node: int | None = None
    network_latency: float | None = None
    network_bytes_per_second: float | None = None
    device_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name == "baseline_hardware":
                if not isinstance(value, str):
                    raise InputError(f"baseline_hardware is {value!r}; expected a name")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InputError(f"{field.name} is {value}; expected a number above 0")


def read_assumptions(workdir: str | os.PathLike) -> Assumptions:
    """The assumptions of a folder; the defaults where it has none. Raises InputError for a damaged file."""
    path = pathlib.Path(workdir) / _ASSUMPTIONS
    if not path.exists():
        return Assumptions()
    found: Assumptions = check_json(read_json(path), Assumptions, path)
    return found


def write_assumptions(workdir: str | os.PathLike, assumptions: Assumptions) -> None:
    """Keeps them for the next page."""
    write_json(pathlib.Path(workdir) / _ASSUMPTIONS, dataclasses.asdict(assumptions))
