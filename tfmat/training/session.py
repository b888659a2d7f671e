"""A run from its data to its result: takes up a checkpoint, trains, and leaves the status true whatever happens."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfmat.backends import Backend
from tfmat.backends.precision import choose_for
from tfmat.backends.stages import slots_of
from tfmat.data.pipeline import Source
from tfmat.errors import DivergedError, InputError, Interrupted
from tfmat.training.checkpoints import Checkpoint
from tfmat.training.loop import Loop
from tfmat.training.meter import Meter
from tfmat.training.plan import RunPlan
from tfmat.training.profile import write_profile
from tfmat.training.progress import TrainingProgress
from tfmat.training.run import Run, RunResult, StopRequest, Task
from tfmat.training.run_folder import ENDED, RunFolder
from tfmat.training.sources import (
    check_same_everywhere,
    measure_steps_per_second,
    steps_per_call,
)
from tfmat.training.trace import Trace

_ENDLESS = 2**40
# With profile=true, after the first calls of the graph: stamps within the steps cost a few per cent of them.
_ONE_CALL_IN = 8


class Session:
    """One process's part of a run.

    Args:
      task, plan: what is trained, and how.
      backend: started.
    """

    def __init__(self, task: Task, plan: RunPlan, backend: Backend):
        self._task, self._plan, self._backend = task, plan, backend
        self._progress: TrainingProgress | None = None
        if plan.profile:
            backend.time_steps(_ONE_CALL_IN)

    def run(self, config: Mapping[str, Any], source: Source, validation: Any) -> RunResult:
        """Trains to the end, from the last checkpoint of the plan's workdir if there is one.

        Args:
          config: saved as config.json; a run goes on only with the same one.
          source: training examples.
          validation: (features, labels), where the backend wants them; None for none.

        Raises:
          InputError, Interrupted, DivergedError, or whatever a callback raises; status.json says which.
        """
        with self._run_folder() as folder:
            return self._run(config, source, validation, folder)

    @contextlib.contextmanager
    def _run_folder(self) -> Iterator[RunFolder | None]:
        if self._plan.workdir is None or self._backend.rank != 0:
            yield None
            return
        folder = RunFolder(self._plan.workdir, self._plan.keep_checkpoints)
        self._backend.collectives.when_lost(lambda message: folder.set_status("failed", message))
        try:
            yield folder
        finally:
            folder.close()

    def _run(
        self,
        config: Mapping[str, Any],
        source: Source,
        validation: Any,
        folder: RunFolder | None,
    ) -> RunResult:
        task, plan, backend = self._task, self._plan, self._backend
        log = folder.logger(self._show) if folder else self._show
        lengths = {"num_examples": source.num_examples, "steps_per_epoch": source.steps_per_epoch}
        config = {**config, **lengths}
        # Rank 0 knows what was done before, and all do as it says.
        saved = backend.collectives.broadcast(folder.check_config(config) if folder else None)
        status = backend.collectives.broadcast(folder.status() if folder else {})
        if saved and status.get("state") in ENDED:
            return self._ended(status, saved)
        check_same_everywhere(backend, config)
        if saved:
            total, bfloat16 = saved["total_steps"], saved.get("plan", {}).get("bfloat16")
            if bfloat16 and plan.precision == "float32":
                raise InputError(
                    f"the run in {plan.workdir} was started with another precision than float32; use the same one to "
                    "go on, or another workdir"
                )
        else:
            bfloat16 = choose_for(
                backend,
                plan.precision,
                task.model,
                plan.global_batch_size,
                jit_compile=plan.jit_compile,
                log=log,
            )
            total = plan.total_steps(source.plan, lambda: self._measure_rate(source, bfloat16), log)
        if folder and not saved:
            resolved = plan.resolved(source.plan, total, backend)
            if bfloat16:
                resolved["bfloat16"] = bfloat16
            folder.start({**config, "total_steps": total, "plan": resolved}, task.sidecar)
        self._build(total, source, bfloat16)
        if backend.note:
            log(backend.note)
        task.model.stop_training = False
        visible = not plan.quiet and backend.rank == 0
        with TrainingProgress(total, visible, task.counted) as progress:
            self._progress = progress
            run = Run(task, plan, backend, source, validation, total, folder, progress, log)
            return _Turn(run, Meter(backend, self._trace(log))).take()

    def _build(self, total: int, source: Source, bfloat16: Mapping[str, bool] | None) -> None:
        self._task.build(
            self._backend,
            total,
            source.steps_per_epoch,
            jit_compile=self._plan.jit_compile,
            bfloat16=bfloat16,
        )

    def _measure_rate(self, source: Source, bfloat16: Mapping[str, bool] | None) -> float:
        """Steps per second."""
        # For the trial the run is as good as endless: no schedule may find it too short.
        self._build(_ENDLESS, source, bfloat16)
        count = steps_per_call(source, self._plan.steps_wanted_per_call, self._backend.world_size)
        return measure_steps_per_second(self._backend, source, count)

    def _ended(self, status: dict[str, Any], saved: dict[str, Any]) -> RunResult:
        """The result of a run that had ended before; its weights are put into the model."""
        workdir, model = self._plan.workdir, self._task.whole
        if status["state"] == "diverged":
            raise DivergedError(f"the run in {workdir} diverged: {status['reason']}")
        if self._backend.rank == 0:
            model.optimizer = None  # or Keras would look for its slots in the file
            model.load_weights(pathlib.Path(workdir or "") / "final.keras")
        self._backend.collectives.broadcast_variables(v.value for v in model.variables)
        self._show(f"the run in {workdir} is done: {status['reason']}")
        return RunResult(
            status["reason"], status["step"], saved["total_steps"], {}, status["last_record"]
        )

    def _trace(self, log: Callable[[str], None]) -> Trace | None:
        plan = self._plan
        if not plan.trace_steps or plan.workdir is None or self._backend.rank != 0:
            return None
        return Trace(plan.workdir, plan.trace_steps, self._backend, log)

    def _show(self, line: str) -> None:
        if not self._plan.quiet and self._backend.rank == 0:
            (self._progress or TrainingProgress(1)).show(line)


class _Turn:
    """This process's turn at a run: from the last checkpoint to the end, or to where it is stopped."""

    def __init__(self, run: Run, meter: Meter):
        self._run, self._loop = run, Loop(run, meter)

    def take(self) -> RunResult:
        run = self._run
        checkpoint = self._latest_checkpoint()
        run.callbacks.call("on_train_begin")
        self._resume(checkpoint)
        del checkpoint  # which has its file open
        try:
            with StopRequest() as stop:
                reason = self._loop.run(stop)
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
        """The newest one; its arrays are rank 0's, and too much to tell all others at once."""
        run, checkpoint = self._run, None
        if run.folder:
            checkpoint, complaints = run.folder.checkpoints.load_latest()
            for complaint in complaints:
                run.log(f"warning: {complaint}")
        mine: Any = (checkpoint.step, {}, checkpoint.meta) if checkpoint else None
        told: Any = run.backend.collectives.broadcast(mine)
        return checkpoint or (Checkpoint(*told) if told else None)

    def _resume(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint:
            self._loop.restore(checkpoint)
        self._run.backend.synchronize()
        folder = self._run.folder
        if folder is None:
            return
        step = checkpoint.step if checkpoint else 0
        status = folder.status()
        resumed = status.get("resumed_from_steps", [])
        if status:
            resumed = [*resumed, step]
            self._run.log(f"going on from step {step}")
        folder.truncate_metrics(step)
        folder.set_status("running", resumed_from_steps=resumed, under_way=None)

    def _finish(self, reason: str) -> RunResult:
        run, loop = self._run, self._loop
        loop.save()  # first, so that an interruption from here on costs no step
        path = run.folder.path if run.folder else None
        for line in write_profile(path, loop.meter.summary(), run.backend, loop.first_step):
            run.log(line)
        self._take_averages()
        run.callbacks.call("on_train_end")
        step = loop.position.step
        run.backend.collectives.announce("validation", step)
        record = loop.position.last_record | {
            f"val_{name}_all": value for name, value in run.validate().items()
        }
        run.backend.sync_model()
        if run.folder:
            run.folder.save_model(run.task.whole, "final.keras")
            run.folder.checkpoints.remove_old()  # where an earlier process was killed before it could
            run.folder.set_status("done", reason, step=step, last_record=record)
        run.log(f"done: {reason}")
        return RunResult(reason, step, run.total_steps, run.callbacks.history, record)

    def _take_averages(self) -> None:
        """Averages that the optimizer keeps (`use_ema`) become the weights, as at the end of Keras's `fit`."""
        backend, model = self._run.backend, self._run.task.model
        optimizer = model.optimizer
        if not optimizer.use_ema:
            return
        arrays = dict(backend.read())
        if backend.rank == 0:
            averages: dict[int, str] = {}  # of each weight Keras makes it before other slots
            for i, (owner, _) in enumerate(slots_of(optimizer, model.trainable_variables)):
                if owner is not None:
                    averages.setdefault(owner, f"slots/{i}")
            arrays |= {f"weights/{weight}": arrays[slot] for weight, slot in averages.items()}
        backend.restore(arrays)
        backend.synchronize()

    def _set_status(self, state: str, reason: str) -> None:
        if self._run.folder:
            self._run.folder.set_status(state, reason)
