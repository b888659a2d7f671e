"""The optimizer of a config, and its learning rate: a function of the step, so that a resume can lose nothing.

Every schedule begins with the same gradual warm-up (Goyal et al. 2017, arXiv:1706.02677, 2.2): at step s < W the
schedule's rate is multiplied by `warmup_start + (1 - warmup_start) (s + 1) / W`.

Keras's own schedules give other rates. CosineDecay's warm-up is one step behind, so that the first step moves nothing;
PiecewiseConstantDecay has no warm-up and falls one step later.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule as Schedule

from tfmat.config import EpochPlan, OptimizerSection
from tfmat.optimizers.functional import LAMB, LARC, LARS, GradientNoise, NovoGrad, make_functional


def warmup_done(position: Any, length: float, minimum: Callable[[float, Any], Any] = min) -> Any:
    """The share of a warm-up that is over, at most 1; `tfmat.horovod` has the same.

    Args:
      position: steps or epochs from the start of training, with the present step.
      length: of the warm-up, in the same unit; above 0.
      minimum: of a number and `position`; Keras's own for tensors.
    """
    return minimum(1.0, position / length)


class _OfArguments(Schedule):
    """A schedule with the arguments of its class as attributes."""

    arguments: tuple[str, ...] = ()

    def get_config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.arguments}


class _Warmup(_OfArguments):
    """A subclass says the factor of the peak at a step.

    Args:
      learning_rate: the peak.
      warmup_steps: W, 0 for no warm-up.
      warmup_start: fraction of the rate at which the warm-up begins.
    """

    arguments: tuple[str, ...] = ("learning_rate", "warmup_steps", "warmup_start")

    def __init__(self, learning_rate: float, warmup_steps: int = 0, warmup_start: float = 0.0):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.warmup_start = warmup_start

    def __call__(self, step: Any) -> Any:
        """Learning rate at `step` (a number or a scalar tensor), as a scalar tensor."""
        step = ops.cast(step, keras.backend.floatx())
        rate = self.learning_rate * self._factor(step)
        if not self.warmup_steps:
            return rate
        risen = warmup_done(step + 1.0, self.warmup_steps, ops.minimum)
        return rate * (self.warmup_start + (1.0 - self.warmup_start) * risen)

    def _factor(self, step: Any) -> Any:
        return ops.ones_like(step)


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupConstant(_Warmup):
    """Rises linearly over `warmup_steps`, then stays at `learning_rate`. Arguments: see the base class."""


class _Falling(_Warmup):
    """Falls from the end of the warm-up to the end of the run.

    Args:
      learning_rate: the peak.
      total_steps: the step at which `final_fraction` of the peak is reached; it stays there.
      warmup_steps, warmup_start: see the base class.
      final_fraction: of the peak, at the end.
    """

    arguments: tuple[str, ...] = (*_Warmup.arguments, "total_steps", "final_fraction")

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        warmup_steps: int = 0,
        final_fraction: float = 0.0,
        warmup_start: float = 0.0,
    ):
        super().__init__(learning_rate, warmup_steps, warmup_start)
        self.total_steps = total_steps
        self.final_fraction = final_fraction

    def _factor(self, step: Any) -> Any:
        length = max(self.total_steps - self.warmup_steps, 1)
        left = self._left(ops.clip((step - self.warmup_steps) / length, 0.0, 1.0))
        return self.final_fraction + (1.0 - self.final_fraction) * left

    def _left(self, progress: Any) -> Any:
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupCosine(_Falling):
    """Rises linearly, then falls on half a cosine (Loshchilov & Hutter 2017, eq. 5). Arguments: see the base class."""

    def _left(self, progress: Any) -> Any:
        return 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupPolynomial(_Falling):
    """Rises linearly, then falls as (1 - progress)^power; You et al. 2017 take power 2 with LARS.

    Args:
      power: 1 is a straight line.
      learning_rate, ...: see the base class.
    """

    arguments: tuple[str, ...] = (*_Falling.arguments, "power")

    def __init__(self, learning_rate: float, total_steps: int, power: float = 1.0, **kwargs: Any):
        super().__init__(learning_rate, total_steps, **kwargs)
        self.power = power

    def _left(self, progress: Any) -> Any:
        return ops.power(1.0 - progress, self.power)


@keras.saving.register_keras_serializable(package="tfmat")
class ExponentialRise(_OfArguments):
    """The rate of a range test: `low` at step 0, `high` at step `total_steps - 1`, the same factor at every step."""

    arguments = ("low", "high", "total_steps")

    def __init__(self, low: float, high: float, total_steps: int):
        self.low = low
        self.high = high
        self.total_steps = total_steps

    def __call__(self, step: Any) -> Any:
        """Learning rate at `step` (a number or a scalar tensor), as a scalar tensor."""
        step = ops.cast(step, keras.backend.floatx())
        growth = math.log(self.high / self.low) / max(self.total_steps - 1, 1)
        return self.low * ops.exp(growth * step)


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupSteps(_Warmup):
    """Rises linearly, then is multiplied by `step_factor` at each of the given steps.

    Args:
      learning_rate, warmup_steps, warmup_start: see the base class.
      boundaries: rising global steps.
      step_factor: of the rate at each of them.
    """

    arguments = (*_Warmup.arguments, "boundaries", "step_factor")

    def __init__(
        self,
        learning_rate: float,
        boundaries: Sequence[int],
        step_factor: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.boundaries = [int(boundary) for boundary in boundaries]
        self.step_factor = step_factor

    def _factor(self, step: Any) -> Any:
        passed = ops.zeros_like(step)
        for boundary in self.boundaries:
            passed += ops.cast(step >= boundary, step.dtype)
        return ops.power(ops.cast(self.step_factor, step.dtype), passed)


# --------------------------------------------------------------------------------------------------
# Makes of the config's `optimizer` section a functional Keras optimizer with its schedule.


def batch_scale(section: OptimizerSection, global_batch_size: int) -> float:
    """The factor of the learning rate by `optimizer.scaling`: 1, B / B0 (Goyal 2017) or its square root."""
    ratio = global_batch_size / section.reference_batch_size
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[section.scaling]


def build_schedule(
    section: OptimizerSection,
    epochs: EpochPlan,
    total_steps: int,
    global_batch_size: int | None = None,
) -> Schedule:
    """The learning rate over a run, a pure function of the global step.

    Args:
      section: what a config says of the optimizer.
      epochs: of the run's examples.
      total_steps: of the run.
      global_batch_size: needed where `optimizer.scaling` is not `none`.
    """
    scale = 1.0
    if section.scaling != "none":
        if global_batch_size is None:
            raise ValueError("optimizer.scaling needs global_batch_size")
        scale = batch_scale(section, global_batch_size)
    peak = section.learning_rate * scale
    # A rate that was scaled up rises from the unscaled one (Goyal et al. 2017, 2.2).
    warmup: dict[str, Any] = {
        "warmup_steps": section.warmup_steps(epochs, total_steps),
        "warmup_start": 1.0 / scale if scale > 1.0 else 0.0,
    }
    falling = {**warmup, "final_fraction": section.final_fraction}
    match section.schedule:
        case "cosine":
            return WarmupCosine(peak, total_steps, **falling)
        case "polynomial":
            return WarmupPolynomial(peak, total_steps, section.power, **falling)
        case "step":
            falls = section.falls(epochs, total_steps)
            return WarmupSteps(peak, falls, section.step_factor, **warmup)
    return WarmupConstant(peak, **warmup)


def build_optimizer(
    section: OptimizerSection, schedule: Schedule | None = None, *, seed: int = 0
) -> keras.optimizers.Optimizer:
    """The optimizer that the config names, functional (see `make_functional`), not built yet.

    Args:
      section: what a config says of the optimizer.
      schedule: see `build_schedule`; None where it does not matter, as for the shapes of slots.
      seed: of the noise that `optimizer.gradient_noise` adds.
    """
    name = section.name
    arguments: dict[str, Any] = {
        "learning_rate": schedule or WarmupConstant(section.learning_rate),
        "weight_decay": section.weight_decay or None,
        "global_clipnorm": section.clip_norm,
    }
    if name in ("sgd", "rmsprop", "lars", "larc"):
        arguments["momentum"] = section.momentum
    if name == "sgd":
        arguments["nesterov"] = section.nesterov
    if name in ("lars", "larc"):
        arguments["trust_coefficient"] = section.trust_coefficient
    if name == "adamw":
        # Keras's AdamW refuses None: without decay it is Adam.
        arguments["weight_decay"] = section.weight_decay
    noise = None
    if section.gradient_noise:
        noise = GradientNoise(section.gradient_noise, section.gradient_noise_decay, seed)
    return make_functional(OPTIMIZER_CLASSES[name](**arguments), noise, section.sam_rho)


OPTIMIZER_CLASSES = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "nadam": keras.optimizers.Nadam,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "lion": keras.optimizers.Lion,
    "lars": LARS,
    "larc": LARC,
    "novograd": NovoGrad,
    "lamb": LAMB,
}
