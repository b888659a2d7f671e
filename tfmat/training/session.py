"""One process's part of a run: takes up a checkpoint, trains, finishes, and leaves the status true whatever happens."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from tfmat.backends import Backend
from tfmat.errors import DivergedError, Interrupted
from tfmat.training.callbacks import Callbacks
from tfmat.training.checkpoints import Checkpoint
from tfmat.training.loop import Loop
from tfmat.training.profile_file import write_profile
from tfmat.training.run_folder import RunFolder
from tfmat.training.signals import StopRequest


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What `Trainer.fit` returns.

    Attributes:
      reason: why the run ended, in words.
      step: global steps done.
      total_steps: global steps that were planned.
      history: logs by name, one value an epoch of this process, as from Keras `fit`.
      record: the last line of metrics.jsonl, and `val_..._all` over all validation examples.
    """

    reason: str
    step: int
    total_steps: int
    history: dict[str, list[float]]
    record: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Session:
    """What runs a loop to its end.

    Attributes:
      loop: at step 0; `run` restores the last checkpoint.
      backend, model, callbacks: those of the loop.
      total_steps: of the whole run.
      validate_all: metrics over all validation examples, by name; empty where there are none.
      folder: None for a run that leaves no files.
      log: for one line.
    """

    loop: Loop
    backend: Backend
    model: keras.Model
    callbacks: Callbacks
    total_steps: int
    validate_all: Callable[[], dict[str, float]]
    folder: RunFolder | None
    log: Callable[[str], None]

    def run(self) -> RunResult:
        """Trains to the end.

        Raises:
          Interrupted, DivergedError, or whatever a callback raises; status.json says which.
        """
        checkpoint = self.backend.broadcast(self._latest_checkpoint())
        self.callbacks.call("on_train_begin")
        self._resume(checkpoint)
        try:
            with StopRequest() as stop:
                reason = self.loop.run(stop)
            return self._finish(reason)
        except (Interrupted, KeyboardInterrupt) as error:
            self._set_status("interrupted", str(error) or "Ctrl-C")
            raise
        except DivergedError as error:
            self._set_status("diverged", str(error))
            raise
        except BaseException as error:
            with contextlib.suppress(Exception):
                self._set_status("failed", f"{type(error).__name__}: {error}")
            raise

    def _latest_checkpoint(self) -> Checkpoint | None:
        if self.folder is None:
            return None
        checkpoint, complaints = self.folder.checkpoints.load_latest()
        for complaint in complaints:
            self.log(f"warning: {complaint}")
        return checkpoint

    def _resume(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint:
            self.loop.restore(checkpoint)
        self.backend.synchronize()
        if self.folder is None:
            return
        step = checkpoint.step if checkpoint else 0
        status = self.folder.status()
        resumed = status.get("resumed_from_steps", [])
        if status:
            resumed = [*resumed, step]
            self.log(f"going on from step {step}")
        self.folder.truncate_metrics(step)
        self.folder.set_status("running", resumed_from_steps=resumed)

    def _finish(self, reason: str) -> RunResult:
        self.loop.save()  # first, so that an interruption from here on costs no step
        self._write_profile()
        self.callbacks.call("on_train_end")
        position = self.loop.position
        self.backend.announce("validation", position.step)
        record = position.last_record | {
            f"val_{name}_all": value for name, value in self.validate_all().items()
        }
        self.backend.sync_model()
        if self.folder:
            self.folder.save_model(self.model, "final.keras")
            self.folder.checkpoints.remove_old()  # where an earlier process was killed before it could
            self.folder.set_status("done", reason, step=position.step, last_record=record)
        self.log(f"done: {reason}")
        history = self.callbacks.history
        return RunResult(reason, position.step, self.total_steps, history, record)

    def _write_profile(self) -> None:
        for line in write_profile(
            self.folder.path if self.folder else None,
            self.loop.meter.summary(),
            self.backend,
            self.loop.first_step,
        ):
            self.log(line)

    def _set_status(self, state: str, reason: str) -> None:
        if self.folder:
            self.folder.set_status(state, reason)
