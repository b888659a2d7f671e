"""The loop over blocks, epochs and checkpoints. It decides; the backend computes."""

import dataclasses
import math
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmat.backends.saved_arrays import from_rank_0
from tfmat.console import clock_text
from tfmat.data.pipeline import Span
from tfmat.errors import DivergedError, Interrupted
from tfmat.training.checkpoints import Checkpoint
from tfmat.training.meter import Meter, timed
from tfmat.training.run import Run, StopRequest


@dataclasses.dataclass
class Position:
    """Where a run stands; saved with every checkpoint, so that nothing about the run is lost by stopping."""

    step: int = 0
    epoch_sums: list[float] = dataclasses.field(default_factory=list)
    epoch_examples: float = 0.0
    best_val_loss: float = math.inf
    seconds: float = 0.0
    training_seconds: float = 0.0
    validation_seconds: float = 0.0
    last_record: dict[str, Any] = dataclasses.field(default_factory=dict)
    end_reason: str = ""  # why training ended, once it has


class Loop:
    """Trains a run from a position to its end; `meter` counts where the time goes."""

    def __init__(self, run: Run, meter: Meter):
        self.meter = meter
        self._run, self._backend, self._callbacks = run, run.backend, run.callbacks
        self._epochs, self._total_steps = run.source.plan, run.total_steps
        self._steps_per_call = run.steps_per_call
        # Every worker of a run that keeps files takes part in what leads to one; rank 0 alone has the folder.
        self._keeps = run.backend.collectives.broadcast(run.folder is not None)
        self._folder, self._checkpoint_every = run.folder, run.plan.checkpoint_every
        self.position = Position()
        self._is_under_way = False
        self._last_saved_step = self.first_step = 0
        self._sent_told = False

    def restore(self, checkpoint: Checkpoint) -> None:
        """Takes up the state, the position and the callbacks' memory of a checkpoint, whose arrays rank 0 has."""
        arrays = checkpoint.arrays
        own = {name: array for name, array in arrays.items() if name[:10] == "callbacks/"}
        self._backend.restore({name: a for name, a in arrays.items() if name not in own})
        self._callbacks.restore(
            checkpoint.meta["callbacks"], from_rank_0(own, self._backend.collectives)
        )
        self.position = Position(**checkpoint.meta["position"])
        self._run.source.resume(checkpoint.meta.get("data", {}), self._run.log)
        self._last_saved_step = self.first_step = self.position.step

    def run(self, stop: StopRequest) -> str:
        """Trains to the end; returns why it ended.

        Raises:
          Interrupted: a signal came; the state is saved.
          DivergedError: the loss is not finite any more.
        """
        position = self.position
        self._clock = time.monotonic() - position.seconds
        self._checkpoint_clock = time.monotonic()
        if position.end_reason:
            return position.end_reason
        self.meter.start()
        self._begin_epoch()
        for block in self.meter.each(self._run.source.blocks(self._spans())):
            self._callbacks.call("on_train_batch_begin", position.step)
            self._backend.collectives.announce("training", position.step)
            sums = self.meter.train(block)
            position.training_seconds += self.meter.call_seconds
            self._accumulate(sums, block.num_examples)
            self._tell_under_way()
            self._callbacks.call("on_train_batch_end", position.step - 1, self._epoch_logs())
            self._show()
            reason = None
            if self._epochs.locate(position.step)[1] == 0 or position.step == self._total_steps:
                reason = self._end_epoch()
                if reason is None and position.step < self._total_steps:
                    self._begin_epoch()
            if reason or position.step == self._total_steps:
                position.end_reason = reason or f"all {self._total_steps} steps done"
                return position.end_reason
            # A signal to any worker stops all of them, after the same step.
            with self.meter.time("agreement"):
                received = self._backend.collectives.maximum(stop.received)
            if received or self._checkpoint_is_due():
                self.save()
            if received:
                raise self._interrupted(received)
        return f"all {self._total_steps} steps were done already"

    def _tell_under_way(self) -> None:
        """Once: the start is over, the graph compiled and a block of steps done, which a launcher may wait for."""
        if self._folder and not self._is_under_way:
            self._folder.set_status("running", under_way=time.monotonic() - self._clock)
        self._is_under_way = True

    def _interrupted(self, received: int) -> Interrupted:
        name = signal.Signals(received).name
        step = self.position.step
        return Interrupted(
            f"{name} received; saved at step {step} of {self._total_steps}: "
            "start the same command again to go on"
            if self._keeps
            else f"{name} received; nothing is saved without a workdir"
        )

    @timed("checkpoint")
    def save(self) -> None:
        """Writes a checkpoint of the present position."""
        if not self._keeps or self._last_saved_step == self.position.step:
            return
        self._backend.collectives.announce("checkpoint", self.position.step)
        state = self._backend.read_for_file()
        # A rank may have a part of the state only.
        bad = not all(np.isfinite(np.asarray(array)).all() for array in state.values())
        if self._backend.collectives.maximum(int(bad)):
            raise self._diverged("the weights are not finite after", self.position.step - 1)
        values, arrays = self._callbacks.state()
        self.position.seconds = time.monotonic() - self._clock
        if self._folder:
            meta = {
                "position": dataclasses.asdict(self.position),
                "callbacks": values,
                "data": self._run.source.memory(),
            }
            self._folder.checkpoints.save(self.position.step, {**state, **arrays}, meta)
        self._last_saved_step = self.position.step
        self._checkpoint_clock = time.monotonic()

    def _spans(self) -> Iterator[Span]:
        step, every = self.position.step, self._backend.meets_every
        while step < self._total_steps:
            epoch, first = self._epochs.locate(step)
            meetings = self._steps_per_call // self._epochs.factor(epoch) // every
            left = self._epochs.steps_in(epoch) - first
            # A call ends with a meeting of the workers, which must not depend on how long a call is.
            count = min(max(1, meetings) * every, left, self._total_steps - step)
            if self._checkpoint_every.seconds is None:
                due = self._epochs.next_multiple(self._checkpoint_every, step)
                count = min(count, -(-(due - step) // every) * every)
            yield Span(epoch, first, count)
            step += count

    def _accumulate(self, sums: np.ndarray, num_examples: np.ndarray) -> None:
        """Adds a block's sums step by step, so that the result does not depend on how steps fall into blocks."""
        position = self.position
        bad = np.flatnonzero(~np.isfinite(sums[:, 0]))
        if bad.size:
            raise self._diverged(
                f"the loss became {sums[bad[0], 0]} at", position.step + int(bad[0])
            )
        if not position.epoch_sums:
            position.epoch_sums = [0.0] * sums.shape[1]
        total = np.asarray(position.epoch_sums)
        for row in sums.astype(np.float64):
            total = total + row
        position.epoch_sums = total.tolist()
        position.epoch_examples += float(num_examples.sum(dtype=np.float64))
        position.step += len(sums)

    def _diverged(self, what: str, step: int) -> DivergedError:
        saved = self._folder.checkpoints.steps() if self._folder else []
        last = (
            f"the last good checkpoint is {self._folder.checkpoints.path(saved[-1])}"
            if self._folder and saved
            else "there is no checkpoint yet"
        )
        return DivergedError(
            f"{what} step {step} (epoch {self._epochs.locate(step)[0] + 1}); {last}; lower "
            "optimizer.learning_rate, or give optimizer.warmup or optimizer.clip_norm, in a new --workdir"
        )

    def _epoch_logs(self) -> dict[str, float]:
        position = self.position
        return self._run.task.summary.values(position.epoch_sums, max(position.epoch_examples, 1.0))

    def _begin_epoch(self) -> None:
        epoch = self._epochs.locate(self.position.step)[0]
        self.meter.begin_epoch()
        self._callbacks.call("on_epoch_begin", epoch)

    def _end_epoch(self) -> str | None:
        """Validates, records, keeps the best model, calls the callbacks; returns a reason to end, if there is one."""
        position = self.position
        logs = self._epoch_logs()
        with self.meter.time("agreement"):
            self._backend.settle()
            self._backend.check_replicas(position.step)
        if self._run.validation is not None:
            self._backend.collectives.announce("validation", position.step)
            started = time.monotonic()
            with self.meter.time("validation"):
                logs |= {
                    f"val_{name}": value
                    for name, value in self._run.validate(self._run.plan.num_validation).items()
                }
            position.validation_seconds += time.monotonic() - started
            if not math.isfinite(logs["val_loss"]):
                raise self._diverged(f"val_loss became {logs['val_loss']} after", position.step - 1)
        epoch = self._epochs.locate(position.step - 1)[0]
        position.seconds = time.monotonic() - self._clock
        record = {
            "step": position.step,
            "epoch": self._epochs.epochs(position.step),
            "seconds": round(position.seconds, 3),
            "training_seconds": round(position.training_seconds, 3),
            "validation_seconds": round(position.validation_seconds, 3),
            "curves_per_second": round(self.meter.rate(), 1),
            **logs,
            "use": self.meter.take(),
        }
        position.last_record = record
        self._log_epoch(epoch, record)
        monitored = logs.get("val_loss", logs["loss"])
        improved = monitored < position.best_val_loss
        position.best_val_loss = min(monitored, position.best_val_loss)
        if improved and self._keeps:
            self._backend.sync_model()
        if self._folder:
            self._folder.append_metrics(record)
            if improved:
                with self.meter.time("checkpoint"):
                    self._folder.save_model(self._run.task.whole, "model.keras")
        self._callbacks.call("on_epoch_end", epoch, logs)
        position.epoch_sums, position.epoch_examples = [], 0.0
        reason, target = None, self._run.plan.target_val_loss
        if target is not None and logs.get("val_loss", math.inf) <= target:
            reason = f"val_loss {logs['val_loss']:.4g} reached the target {target:.4g}"
        elif self._run.task.model.stop_training:
            reason = f"a callback stopped the run after epoch {epoch + 1}"
        return self._backend.collectives.broadcast(reason)

    def _log_epoch(self, epoch: int, record: dict[str, Any]) -> None:
        val_loss = f"  val_loss {record['val_loss']:.4g}" if "val_loss" in record else ""
        left = clock_text(self._seconds_left(self.position.step))
        self._run.log(
            f"epoch {epoch + 1}/{self._run.num_epochs}  loss {record['loss']:.4g}{val_loss}  "
            f"{record['curves_per_second']:,.0f} {self._run.task.counted}/s  {left} left"
        )
        for name in (
            "mean_staleness",
            "max_staleness",
            "dropped_gradients",
            "averagings_per_step",
            "consensus_distance",
        ):
            if name in record["use"]:
                self._run.log(f"{name.replace('_', ' ')}: {record['use'][name]:g}")
        sent = record["use"].get("bytes_sent_per_step")
        if sent and not self._sent_told:
            self._sent_told = True
            self._run.log(f"each worker sends {sent / 1e3:,.1f} kB a step to the others")

    def _seconds_left(self, step: int) -> float:
        """The seconds from that step to the end of the run, at the present rate."""
        rate = self.meter.rate()
        epochs = self._epochs.epochs(self._total_steps) - self._epochs.epochs(step)
        return epochs * self._run.source.num_examples / rate if rate else 0.0

    def _show(self) -> None:
        step = self.position.step
        epoch = self._epochs.locate(step - 1)[0] + 1
        self._run.progress.update(
            step=step,
            description=f"epoch {epoch}/{self._run.num_epochs}",
            rate=self.meter.rate(),
            loss=self.position.epoch_sums[0] / max(self.position.epoch_examples, 1.0),
            seconds_left=self._seconds_left(step),
        )

    @timed("agreement")
    def _checkpoint_is_due(self) -> bool:
        step, every = self.position.step, self._checkpoint_every
        if every.seconds is None:
            # Not always at that step itself: it may lie between two meetings of the workers.
            return self._epochs.next_multiple(every, self._last_saved_step) <= step
        waited = time.monotonic() - self._checkpoint_clock
        return self._backend.collectives.broadcast(waited >= every.seconds)  # by rank 0's clock
