"""The folder of one run: config, status, metrics, log, models and checkpoints. Every file in it is whole or absent."""

import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from tfmat import console
from tfmat.backends.base import SavedArray, SavedArrays
from tfmat.config import FREE_SECTIONS, OPTIONS
from tfmat.errors import InputError
from tfmat.files import (
    as_json,
    atomic_write,
    check_json,
    first_difference,
    flatten,
    locked,
    make_folder,
    parse_json,
    read_json,
    sync_folder,
    write_arrays,
    write_error,
    write_json,
)

if TYPE_CHECKING:
    import keras

# --------------------------------------------------------------------------------------------------
# A checkpoint: one .npz file, whole or absent, verified when read.
#
# A file `step-0000001200.npz` holds the arrays of `Backend.read`, further arrays of the loop, and `meta`, a JSON text.
# It is an ordinary NumPy archive, so its members carry CRC-32 checksums, and any program can open it.


# FORMAT: version of checkpoints; newer ones are refused.
FORMAT = 1
_NAME = re.compile(r"step-(\d{10})\.npz")
# Errors that NumPy raises of a damaged file.
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A saved state: the global step, arrays by name, and JSON-able values.

    An array is read from the file each time that `np.asarray` asks for it. On ranks other than 0 there are none.
    """

    step: int
    arrays: dict[str, SavedArray]
    meta: dict[str, Any]


@contextlib.contextmanager
def _damage_told(path: pathlib.Path) -> Iterator[None]:
    """InputError for what NumPy raises where the file is not what it was."""
    try:
        yield
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"checkpoint {path} is damaged ({reason}); delete it to go on without it"
        ) from error


def _member(path: pathlib.Path, archive: Any, name: str) -> SavedArray:
    """An array of an open .npz file, of which only the head is read now."""
    with archive.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        older = version == (1, 0)
        read_head = (
            np.lib.format.read_array_header_1_0 if older else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_head(file)

    def read() -> np.ndarray:
        with _damage_told(path):
            array: np.ndarray = archive[name]
            return array

    return SavedArray(shape, dtype, read)


# --------------------------------------------------------------------------------------------------
# The folder of one run: config, status, metrics, log, models, checkpoints. Every file in it is whole or absent.


# Settings that may differ when a run goes on. A data set may lie elsewhere than before; its `data_id` may not change.
_CHANGEABLE = frozenset({"data_dir", *(each.name for each in OPTIONS.values() if each.changeable)})

_UNFINISHED = ".unfinished."


class Status(Struct, kw_only=True):
    """`status.json`; its defaults stand for a new run, and for what an older tfmat did not write.

    Attributes:
      state: running, done, diverged, interrupted or failed; None for a new run.
      under_way: the run's clock (seconds) after the first block of steps of this start; None before that.
      step, last_record: of a run that is done.
    """

    state: str | None = None
    reason: str = ""
    started: str = ""
    updated: str = "–"
    resumed_from_steps: list[int] = []
    under_way: float | None = None
    step: int = 0
    last_record: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing trains the run any further."""
        return self.state in ("done", "diverged")


_NotNegative = Annotated[float, Meta(ge=0)]


class LineUse(Struct, frozen=True):
    """The part `use` of a line; see `tfmat.training.meter.Meter.take`."""

    graph_seconds: float = 0.0
    first_call_seconds: float = 0.0
    bytes_sent_per_step: float = 0.0
    cpu_utilisation: float | None = None


class MetricsLine(Struct, kw_only=True):
    """A line of `metrics.jsonl`."""

    step: Annotated[int, Meta(ge=0)]
    training_seconds: float = math.nan
    use: LineUse = LineUse()
    epoch: float | None = None
    seconds: _NotNegative | None = None
    curves_per_second: _NotNegative | None = None
    loss: float | None = None
    val_loss: float | None = None


class RunFolder:
    """One run's files; see contracts for their names. Anybody may read them; `with` it, this process trains in it.

    Args:
      path: made when somebody trains in it.
      keep_checkpoints: how many of the newest stay.
    """

    def __init__(self, path: str | os.PathLike, keep_checkpoints: int = 3):
        self.path, self._keep = pathlib.Path(path), keep_checkpoints
        self.checkpoints, self._status_file = self.path / "checkpoints", self.path / "status.json"
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> "RunFolder":
        """InputError where it cannot be written, or another process trains in it."""
        make_folder(self.path)
        busy = f"another process is training in {self.path}; wait for it or choose another workdir"
        if not self._lock.enter_context(locked(self.path, busy)):
            raise InputError(
                f"cannot lock {self.path}: its file system has no locks; choose another folder"
            )
        # A killed process had not renamed these yet.
        for folder in (self.path, self.checkpoints, self.path / "figures"):
            for stale in [*folder.glob(".*.????????.tmp"), *folder.glob(f"{_UNFINISHED}*.keras")]:
                stale.unlink(missing_ok=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.close()

    def check_config(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The saved config of a run that goes on, or None for a new one.

        Raises:
          InputError: where the run was started with other settings, naming the first that differs.
        """
        path = self.path / "config.json"
        if not path.exists():
            return None
        saved = read_json(path)
        # In a run of the main job, a key that was added to tfmat after the run had begun had its default.
        known = OPTIONS.values() if "data_id" in saved else ()
        whole = {**{option.name: option.default for option in known}, **flatten(saved)}
        before, now = (flatten(as_json(content)) for content in (whole, config))
        # A key of a free section that is not given any more is a difference.
        left_out = {
            k for k in before.keys() - now.keys() if k.partition(".")[0] not in FREE_SECTIONS
        }
        if before.get("local_steps") == now.get("local_steps") == 1:
            # There are no meetings, which these keys are about.
            left_out |= {"outer_learning_rate", "outer_momentum", "overlap_meetings"}
        if "data_id" not in saved:  # a Trainer's; versions before did not note these
            not_noted = {"optimizer", "loss", "network"} - saved.keys()
            left_out |= {k for k in now if k.partition(".")[0] in not_noted}
        # Other data follow from another law or number of curves, which tell a user more.
        key = first_difference(before, now, _CHANGEABLE | left_out | {"data_id"})
        key = key or first_difference(before, now, _CHANGEABLE | left_out)
        if key is not None:
            remedy = "use the same config to go on, or another workdir"
            if self.status().ended:
                remedy = "it has ended: another workdir trains anew"
                final = self.path / "final.keras"
                if "data_id" not in saved and final.exists():
                    remedy += f", or further where the Trainer's model is keras.models.load_model('{final}')"
            raise InputError(
                f"the run in {self.path} was started with {key}={before.get(key)}, not {now.get(key)}; {remedy}"
            )
        return saved

    @staticmethod
    def too_late(saved: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """The first setting that a run which has ended would go on with, and did not have, as KEY=VALUE; or empty."""
        before, now = (flatten(as_json(content)) for content in (saved, config))
        keys = (_CHANGEABLE - {"data_dir"}) & before.keys() & now.keys()
        return next((f"{key}={now[key]}" for key in sorted(keys) if now[key] != before[key]), "")

    def start(self, config: Mapping[str, Any], sidecar: Any = None) -> None:
        """Writes model.json, where there is a sidecar, and then config.json: where this is, that is too."""
        if sidecar is not None:
            write_json(self.path / "model.json", sidecar)
        write_json(self.path / "config.json", config)

    def status(self) -> Status:
        """The content of status.json."""
        found: Status = check_json(self._status(), Status, self._status_file)
        return found

    def set_status(self, state: str, reason: str = "", **values: Any) -> None:
        """Writes status.json; keeps what is not named."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        status = {"resumed_from_steps": [], "started": now, **self._status(), **values}
        write_json(self._status_file, {**status, "state": state, "reason": reason, "updated": now})

    def _status(self) -> Any:
        return read_json(self._status_file) if self._status_file.exists() else {}

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Adds one line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_error(path, error) from error

    def truncate_metrics(self, step: int) -> None:
        """Drops the lines after `step`, and a last line that was cut short: the run will write them again."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return
        kept = [record for record in read_metrics(path) if record["step"] <= step]
        with atomic_write(path, "w") as file:
            file.writelines(json.dumps(record) + "\n" for record in kept)

    def save_model(self, model: "keras.Model", name: str) -> None:
        """Saves an ordinary `.keras` file for inference: no optimizer in it."""
        path = self.path / name
        temporary = self.path / f"{_UNFINISHED}{name}"  # Keras wants the ending
        optimizer, model.optimizer = getattr(model, "optimizer", None), None
        try:
            model.save(temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(self.path)
        except OSError as error:
            raise write_error(path, error) from error
        finally:
            model.optimizer = optimizer
            temporary.unlink(missing_ok=True)

    def logger(self, show: Callable[[str], None] | None = None) -> Callable[[str], None]:
        """A function that adds one line to log.txt and shows it (on standard error by default)."""
        path = self.path / "log.txt"

        def log(line: str) -> None:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            try:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(f"{now} {line}\n")
            except OSError as error:
                raise write_error(path, error) from error
            (show or console.log)(line)

        return log

    # Its checkpoints.

    def saved_steps(self) -> list[int]:
        """Steps of the checkpoints that are there, rising."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def checkpoint_file(self, step: int) -> pathlib.Path:
        """The checkpoint of one step."""
        return self.checkpoints / f"step-{step:010d}.npz"

    def save_checkpoint(self, step: int, arrays: SavedArrays, meta: Mapping[str, Any]) -> None:
        """Writes one checkpoint and removes the oldest beyond those that are kept."""
        make_folder(self.checkpoints)
        text = json.dumps({"format": FORMAT, **meta})
        write_arrays(self.checkpoint_file(step), **{"meta": np.array(text), **arrays})
        self.remove_old_checkpoints()

    def remove_old_checkpoints(self) -> None:
        """Removes the oldest beyond those that are kept."""
        for old in self.saved_steps()[: -self._keep]:
            self.checkpoint_file(old).unlink(missing_ok=True)

    def load_checkpoint(self, step: int) -> Checkpoint:
        """Verifies one checkpoint, a piece at a time; InputError where it is damaged or of a newer tfmat."""
        path = self.checkpoint_file(step)
        with _damage_told(path):
            archive = np.load(path, allow_pickle=False)  # closes its file with the last array
            damaged = archive.zip.testzip()
            if damaged:
                raise ValueError(f"the check sum of {damaged} is wrong")
            arrays = {name: _member(path, archive, name) for name in archive.files}
            meta = json.loads(str(np.asarray(arrays.pop("meta"))))
        if meta["format"] > FORMAT:
            raise InputError(
                f"checkpoint {path} is of a newer tfmat (format {meta['format']}); update tfmat"
            )
        return Checkpoint(step, arrays, meta)

    def latest_clock(self) -> tuple[int, float]:
        """Step and `position.seconds` of the newest checkpoint that can be read, (0, 0.0) for none; not its arrays."""
        for step in reversed(self.saved_steps()):
            with (
                contextlib.suppress(*_DAMAGE),
                np.load(self.checkpoint_file(step), allow_pickle=False) as archive,
            ):
                return step, float(json.loads(str(archive["meta"]))["position"]["seconds"])
        return 0, 0.0

    def latest_checkpoint(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and one line for each newer one that is not."""
        complaints: list[str] = []
        for step in reversed(self.saved_steps()):
            try:
                return self.load_checkpoint(step), complaints
            except InputError as error:
                complaints.append(str(error))
        if complaints:
            raise InputError(f"no checkpoint of this run can be read: {complaints[0]}")
        return None, complaints


def find_run_file(workdir: str | os.PathLike, name: str) -> pathlib.Path:
    """The path of a file that a finished run has; InputError says what to do where it is missing."""
    path = pathlib.Path(workdir) / name
    if not path.exists():
        raise InputError(f"{path} does not exist; train first: tfmat train --workdir={workdir}")
    return path


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
