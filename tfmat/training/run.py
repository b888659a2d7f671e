"""What stays the same in a run from its first step to its last, its result, and the signals that ask it to stop."""

import dataclasses
import math
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import keras

from tfmat.backends import Backend
from tfmat.backends.losses import per_example_function
from tfmat.backends.metrics import Summary, make_metrics
from tfmat.backends.precision import chosen_layers
from tfmat.backends.refusals import check_model
from tfmat.data.pipeline import Source
from tfmat.optimizers.functional import check_optimizer, make_functional
from tfmat.training.callbacks import Callbacks
from tfmat.training.plan import RunPlan
from tfmat.training.progress import TrainingProgress
from tfmat.training.run_folder import RunFolder
from tfmat.training.sources import evaluate_all, num_examples, steps_per_call

OptimizerFactory = Callable[[int, int], keras.optimizers.Optimizer]


class Task:
    """A model and what it learns by; `tfmat.Trainer` explains the arguments.

    Attributes:
      model: what is trained.
      whole: what is saved: the model, or one that holds its layers.
      sidecar: saved as model.json.
      summary: of what a backend sums.
      built: whether a backend has it.
      counted: what its examples are called in rates.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        whole: keras.Model | None = None,
        loss: Any = "mean_squared_error",
        optimizer: str | keras.optimizers.Optimizer | OptimizerFactory = "adam",
        metrics: Mapping[str, Any] | Sequence[Any] | None = None,
        auxiliary_loss: Any = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        sidecar: Mapping[str, Any] | None = None,
        counted: str = "examples",
    ):
        check_model(model)
        self.model, self.whole, self.callbacks = model, whole or model, list(callbacks)
        self.sidecar, self.built, self.counted = sidecar, False, counted
        self._loss = per_example_function(loss, getattr(model, "output_names", ()))
        self._metrics = make_metrics(metrics, model)
        self.summary = Summary(self._metrics)
        self._optimizer = optimizer
        self._auxiliary_loss = per_example_function(auxiliary_loss) if auxiliary_loss else None
        check_optimizer(optimizer)

    def build(
        self,
        backend: Backend,
        total_steps: int,
        steps_per_epoch: int,
        *,
        jit_compile: bool,
        bfloat16: Mapping[str, bool] | None = None,
    ) -> None:
        """Hands the model, and its optimizer for a run of that length, to the backend.

        Args:
          backend: started.
          total_steps, steps_per_epoch: of the run.
          jit_compile: compile the step with XLA.
          bfloat16: which layers compute in it, see `tfmat.backends.precision.choose`; None for none.
        """
        optimizer = self._optimizer
        if callable(optimizer) and not isinstance(optimizer, keras.optimizers.Optimizer):
            optimizer = optimizer(total_steps, steps_per_epoch)
        optimizer = make_functional(optimizer)
        backend.build(
            self.model,
            optimizer,
            self._loss,
            self._metrics,
            auxiliary_loss=self._auxiliary_loss,
            jit_compile=jit_compile,
            bfloat16=chosen_layers(self.model, bfloat16 or {}),
        )
        # Where Keras callbacks look for it.
        self.model.optimizer = optimizer
        self.built = True


@dataclasses.dataclass
class Run:
    """One process's part of a run.

    Attributes:
      task, plan: what is trained, and how.
      backend: built.
      source: training examples.
      validation: (features, labels), where the backend wants them; None for none.
      total_steps: global steps of the whole run.
      folder: None for a run that leaves no files, and on every rank but 0.
      progress, log: where lines go.
      callbacks: of the task, with what they have learned.
    """

    task: Task
    plan: RunPlan
    backend: Backend
    source: Source
    validation: Any
    total_steps: int
    folder: RunFolder | None
    progress: TrainingProgress
    log: Callable[[str], None]

    def __post_init__(self) -> None:
        params = {"epochs": self.num_epochs, "steps": self.source.steps_per_epoch, "verbose": 0}
        self.callbacks = Callbacks(self.task.callbacks, self.task.model, params)

    @property
    def num_epochs(self) -> int:
        """Epochs of the whole run, a last partial one included."""
        return math.ceil(self.source.plan.epochs(self.total_steps))

    @property
    def steps_per_call(self) -> int:
        """Steps in one call of the graph."""
        wanted = self.plan.steps_wanted_per_call
        return steps_per_call(self.source, wanted, self.backend.world_size)

    def validate(self, most: int | None = None) -> dict[str, float]:
        """Loss and metrics over the first `most` (None: all) validation examples; empty where there are none."""
        count = 0 if self.validation is None else num_examples(self.validation)
        if not count:
            return {}
        count = min(most or count, count)
        return evaluate_all(self.backend, self.validation, count, self.task.summary)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What `Trainer.fit` returns.

    Attributes:
      reason: why the run ended, in words.
      step: global steps done.
      total_steps: global steps that were planned.
      history: logs by name, one value per epoch of this process, as from Keras `fit`.
      record: the last line of metrics.jsonl, and `val_..._all` over all validation examples.
    """

    reason: str
    step: int
    total_steps: int
    history: dict[str, list[float]]
    record: dict[str, Any]


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Context manager; inside it `received` is the signal that came, 0 for none.

    A second Ctrl-C stops at once, without saving. Outside the main thread, where Python takes no signals, it does
    nothing.
    """

    def __init__(self) -> None:
        self.received: int = 0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
