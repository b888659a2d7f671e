"""The folder of one run: config, status, metrics, log, models. Every file in it is whole or absent."""

import contextlib
import datetime
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfmat import console
from tfmat.config import FREE_SECTIONS, OPTIONS
from tfmat.errors import InputError
from tfmat.files import (
    as_json,
    atomic_write,
    first_difference,
    flatten,
    locked,
    make_folder,
    read_json,
    sync_folder,
    write_error,
    write_json,
)
from tfmat.training.checkpoints import CheckpointFolder

if TYPE_CHECKING:
    import keras

# States of a run that nothing trains any further.
ENDED = ("done", "diverged")

# Settings that may differ when a run goes on: they change no number that the run computes, or only its rounding.
# A data set may lie elsewhere than before; its `data_id` may not change.
CHANGEABLE = frozenset(
    {
        "checkpoint.keep",
        "checkpoint.every",
        "data.reading",
        "steps_per_call",
        "data_dir",
        "profile",
        "trace_steps",
        "mesh",
        "layouts",
        "zero_stage",
        "accumulate",
        "model.recompute",
        "stages",
        "micro_batches",
        "schedule",
        "offload",
        "offload_dir",
        "reduction",
        "bucket_mb",
    }
)

_UNFINISHED = ".unfinished."


class RunFolder:
    """One run's files; see contracts for their names. Open it before training, close it after.

    Args:
      path: made when it is not there.
      keep_checkpoints: how many of the newest stay.

    Raises:
      InputError: where it cannot be written, or another process trains in it.
    """

    def __init__(self, path: str | os.PathLike, keep_checkpoints: int = 3):
        self.path = make_folder(path)
        self.checkpoints = CheckpointFolder(self.path / "checkpoints", keep_checkpoints)
        self._lock = contextlib.ExitStack()
        busy = (
            f"another process is training in {self.path}; wait for it or choose another --workdir"
        )
        if not self._lock.enter_context(locked(self.path, busy)):
            raise InputError(
                f"cannot lock {self.path}: its file system has no locks; choose another folder"
            )
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Removes what a killed process had not renamed yet."""
        for folder in (self.path, self.checkpoints.folder, self.path / "figures"):
            for stale in [*folder.glob(".*.????????.tmp"), *folder.glob(f"{_UNFINISHED}*.keras")]:
                stale.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets other processes use the folder."""
        self._lock.close()

    def check_config(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The saved config of a run that goes on, or None for a new one.

        Raises:
          InputError: where the run was started with other settings, naming the first that differs.
        """
        return check_same_config(self.path, config)

    def start(self, config: Mapping[str, Any], sidecar: Mapping[str, Any] | None = None) -> None:
        """Writes model.json, where there is a sidecar, and then config.json: where this is, that is too."""
        if sidecar is not None:
            write_json(self.path / "model.json", sidecar)
        write_json(self.path / "config.json", config)

    def status(self) -> dict[str, Any]:
        """What status.json says; empty for a new run."""
        path = self.path / "status.json"
        return read_json(path) if path.exists() else {}

    def set_status(self, state: str, reason: str = "", **values: Any) -> None:
        """Writes status.json: `state` is running, done, diverged, interrupted or failed. Keeps what is not named."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        status = {"resumed_from_steps": [], "started": now, **self.status(), **values}
        write_json(
            self.path / "status.json", {**status, "state": state, "reason": reason, "updated": now}
        )

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
        kept = []
        for line in path.read_text("utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                break
            if record["step"] > step:
                break
            kept.append(line + "\n")
        with atomic_write(path, "w") as file:
            file.writelines(kept)

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
        return folder_logger(self.path, show)


def folder_logger(
    folder: pathlib.Path, show: Callable[[str], None] | None = None
) -> Callable[[str], None]:
    """`RunFolder.logger` for one who does not hold the folder."""
    path = folder / "log.txt"

    def log(line: str) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{now} {line}\n")
        except OSError as error:
            raise write_error(path, error) from error
        (show or console.log)(line)

    return log


def check_same_config(
    workdir: str | os.PathLike, config: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The saved config of the run in `workdir`, or None for a new one; writes nothing.

    Raises:
      InputError: where the run was started with other settings, naming the first that differs.
    """
    path = pathlib.Path(workdir) / "config.json"
    if not path.exists():
        return None
    saved = read_json(path)
    # In a run of the main job, a key that was added to tfmat after the run had begun had its default.
    known = OPTIONS.values() if "data_id" in saved else ()
    whole = {**{option.name: option.default for option in known}, **flatten(saved)}
    before, now = (flatten(as_json(content)) for content in (whole, config))
    # Of the keys that are not given any more, those of a free section are a difference.
    left_out = {k for k in before.keys() - now.keys() if k.partition(".")[0] not in FREE_SECTIONS}
    if before.get("local_steps") == now.get("local_steps") == 1:
        left_out |= {
            "outer_learning_rate",
            "outer_momentum",
            "overlap_meetings",
        }  # of meetings that there are not
    # Other data follow from another law or number of curves, which tell a user more.
    key = first_difference(before, now, CHANGEABLE | left_out | {"data_id"})
    key = key or first_difference(before, now, CHANGEABLE | left_out)
    if key is not None:
        raise InputError(
            f"the run in {workdir} was started with {key}={before.get(key)}, not {now.get(key)}; "
            "use the same config to go on, or another --workdir"
        )
    return saved


def find_run_file(workdir: str | os.PathLike, name: str) -> pathlib.Path:
    """The path of a file that a finished run has; InputError says what to do where it is missing."""
    path = pathlib.Path(workdir) / name
    if not path.exists():
        raise InputError(f"{path} does not exist; train first: tfmat train --workdir={workdir}")
    return path
