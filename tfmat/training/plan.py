"""The plan of a run: sizes, lengths and choices, read from text once and checked; what is below takes it as it is."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tfmat.backends import Backend
from tfmat.backends.options import STAGE
from tfmat.config import (
    NO_STEPS,
    ONE_EPOCH,
    Config,
    Duration,
    EpochPlan,
    Growth,
    RunSteps,
    parse_growth,
)
from tfmat.errors import InputError

# More falls of a step schedule than these leave no rate.
_MOST_FALLS = 100


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """What a run does with its examples; `tfmat.Trainer` explains each of these under the same name.

    Attributes:
      growth: `batch_growth`, read.
      warmup, step_every: of the learning rate, where a config says them; None: the rate never falls in steps.
    """

    global_batch_size: int = 1
    train_for: Duration = ONE_EPOCH
    growth: Growth = ()
    checkpoint_every: Duration = ONE_EPOCH
    warmup: Duration = NO_STEPS
    step_every: Duration | None = None
    keep_checkpoints: int = 3
    seed: int = 0
    reading: str = "auto"
    sharding: str = "partition"
    shard_size: int = 131_072
    steps_per_epoch: int | None = None
    steps_per_call: int | None = None
    num_validation: int | None = None
    target_val_loss: float | None = None
    jit_compile: bool = False
    precision: str = "float32"
    profile: bool = False
    trace_steps: int | None = None
    workdir: str | None = None
    quiet: bool = False

    def changed(self, **settings: Any) -> "RunPlan":
        """The plan with other settings; lengths may be as people write them. InputError where one cannot be read."""
        for name, value in settings.items():
            if isinstance(value, str) and name in (
                "train_for",
                "checkpoint_every",
                "warmup",
                "step_every",
            ):
                settings[name] = Duration.parse(value)
        if "growth" in settings:
            settings["growth"] = parse_growth(settings["growth"])
        plan = dataclasses.replace(self, **settings)
        if plan.trace_steps and plan.workdir is None:
            raise InputError("trace_steps needs a workdir for its files")
        return plan

    @classmethod
    def of_config(cls, config: Config, **others: Any) -> "RunPlan":
        """The plan of a run with this config, which is checked."""
        optimizer = config.optimizer
        return cls().changed(
            global_batch_size=config.global_batch_size,
            train_for=config.train_for,
            growth=config.batch_growth,
            checkpoint_every=config.checkpoint.every,
            warmup=optimizer.warmup,
            step_every=optimizer.step_every if optimizer.schedule == "step" else None,
            keep_checkpoints=config.checkpoint.keep,
            seed=config.seed,
            reading=config.data.reading,
            sharding=config.data.sharding,
            steps_per_call=config.steps_per_call,
            num_validation=config.data.num_validation,
            target_val_loss=config.target_val_loss,
            jit_compile=config.jit_compile,
            precision=config.precision,
            profile=config.profile,
            trace_steps=config.trace_steps if others.get("workdir") else None,
            **others,
        )

    @property
    def steps_wanted_per_call(self) -> int | None:
        """`steps_per_call`, and no more than are to be traced; None for about half a second's worth."""
        if self.trace_steps:
            return min(self.steps_per_call or self.trace_steps, self.trace_steps)
        return self.steps_per_call

    def epochs(self, num_examples: int) -> EpochPlan:
        """Batches and steps of each epoch over so many examples."""
        return EpochPlan(num_examples, self.global_batch_size, self.growth)

    def total_steps(
        self, epochs: EpochPlan, measure_rate: Callable[[], float], log: Callable[[str], None]
    ) -> int:
        """Steps of the whole run. A time is measured once and then fixed: schedules stay functions of the step.

        Args:
          epochs: of the run's examples.
          measure_rate: -> steps per second; called where `train_for` is a time.
          log: for one line.

        Raises:
          InputError: less than one step.
        """
        duration = self.train_for
        if duration.seconds is None:
            total = epochs.steps(duration)
        else:
            rate = measure_rate()
            # Larger batches later on are done in no less time an epoch: count epochs, not steps.
            total = int(duration.seconds * rate)
            if epochs.growth:
                total = epochs.steps(Duration(total / epochs.steps_in(0), "epochs"))
            log(f"{duration} are {total} steps at the measured {rate:.1f} steps/s")
        if total < 1:
            raise InputError(f"train_for is '{duration}', which is less than one step; give more")
        return total

    def resolved(self, epochs: EpochPlan, total: int, backend: Backend) -> dict[str, Any]:
        """What really happens, for people: the lengths in steps, and where they are done. Part of config.json."""
        steps = self.steps(epochs, total)
        axes = dict(backend.options.mesh.axes)
        mesh = axes if backend.name == "dtensor" or STAGE in axes else None
        every = self.checkpoint_every
        return {
            "backend": backend.name,
            "processes": backend.collectives.size,
            **({"mesh": mesh} if mesh else {}),
            "steps": total,
            "epochs": round(epochs.epochs(total), 6),
            "steps_per_epoch": epochs.steps_in(0),
            "batch_from_epoch": {
                first: epochs.batch_size(first) for first in (0, *dict(self.growth))
            },
            "warmup_steps": steps.warmup,
            **({"rate_falls_at_steps": list(steps.falls)} if self.step_every else {}),
            "first_checkpoint_at_step": None
            if every.seconds is not None
            else min(total, epochs.next_multiple(every, 0)),
        }

    def steps(self, epochs: EpochPlan, total: int) -> RunSteps:
        """The lengths of a run of `total` steps, in steps.

        A config's warm-up of 500 steps is meant for its own data set; the same config on a thousand curves may take 60.
        So a run that would be over before its warm-up is spends a tenth on that.
        """
        warmup = epochs.steps(self.warmup)
        falls: list[int] = []
        if self.step_every:
            step = epochs.next_multiple(self.step_every, 0)
            while step < total and len(falls) < _MOST_FALLS:
                falls.append(step)
                step = epochs.next_multiple(self.step_every, step)
        return RunSteps(total, warmup if warmup < total else total // 10, tuple(falls))
