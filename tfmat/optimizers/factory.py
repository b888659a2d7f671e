"""From the config's `optimizer` section to a functional Keras optimizer with its schedule."""

import math
from typing import Any

import keras

from tfmat.batch_growth import EpochPlan
from tfmat.config import Config
from tfmat.durations import Duration
from tfmat.optimizers.functional import make_functional
from tfmat.optimizers.gradient_noise import GradientNoise
from tfmat.optimizers.layerwise import LAMB, LARC, LARS, NovoGrad
from tfmat.optimizers.schedules import (
    Schedule,
    WarmupConstant,
    WarmupCosine,
    WarmupPolynomial,
    WarmupSteps,
)

# More steps of a step schedule than these have no rate left.
_MOST_BOUNDARIES = 100


def batch_scale(optimizer_config: Config, global_batch_size: int) -> float:
    """What `optimizer.scaling` multiplies the learning rate by: 1, B / B0 (Goyal 2017) or its square root."""
    ratio = global_batch_size / optimizer_config.reference_batch_size
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[optimizer_config.scaling]


def warmup_steps(optimizer_config: Config, epochs: EpochPlan, total_steps: int) -> int:
    """Steps of the warm-up: as many as asked for, or a tenth of a run that would be over before its warm-up is.

    A config's warm-up of 500 steps is meant for its own data set; the same config on a thousand curves may take 60.
    """
    asked = epochs.steps(Duration.parse(optimizer_config.warmup))
    return asked if asked < total_steps else total_steps // 10


def build_schedule(
    optimizer_config: Config,
    *,
    total_steps: int,
    steps_per_epoch: int,
    global_batch_size: int | None = None,
    plan: EpochPlan | None = None,
) -> Schedule:
    """The learning rate over `total_steps`, a pure function of the global step.

    Args:
      optimizer_config: the `optimizer` section of a config.
      total_steps: of the whole run.
      steps_per_epoch: of the first epoch.
      global_batch_size: needed where `optimizer.scaling` is not `none`.
      plan: where epochs begin, if the batch grows.
    """
    epochs = plan or EpochPlan(steps_per_epoch, 1)
    scale = 1.0
    if optimizer_config.scaling != "none":
        if global_batch_size is None:
            raise ValueError("optimizer.scaling needs global_batch_size")
        scale = batch_scale(optimizer_config, global_batch_size)
    peak = optimizer_config.learning_rate * scale
    # A rate that was scaled up rises from the unscaled one (Goyal et al. 2017, 2.2).
    warmup: dict[str, Any] = {
        "warmup_steps": warmup_steps(optimizer_config, epochs, total_steps),
        "warmup_start": 1.0 / scale if scale > 1.0 else 0.0,
    }
    falling = {**warmup, "final_fraction": optimizer_config.final_fraction}
    match optimizer_config.schedule:
        case "cosine":
            return WarmupCosine(peak, total_steps, **falling)
        case "polynomial":
            return WarmupPolynomial(peak, total_steps, optimizer_config.power, **falling)
        case "step":
            boundaries = _boundaries(
                Duration.parse(optimizer_config.step_every), epochs, total_steps
            )
            return WarmupSteps(peak, boundaries, optimizer_config.step_factor, **warmup)
    return WarmupConstant(peak, **warmup)


def _boundaries(every: Duration, epochs: EpochPlan, total_steps: int) -> list[int]:
    found: list[int] = []
    step = epochs.next_multiple(every, 0)
    while step < total_steps and len(found) < _MOST_BOUNDARIES:
        found.append(step)
        step = epochs.next_multiple(every, step)
    return found


def build_optimizer(
    optimizer_config: Config,
    *,
    total_steps: int,
    steps_per_epoch: int,
    global_batch_size: int | None = None,
    plan: EpochPlan | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
) -> keras.optimizers.Optimizer:
    """The optimizer that the config names, functional (see `make_functional`), not built yet.

    Args:
      optimizer_config, ...: as for `build_schedule`.
      seed: of the noise that `optimizer.gradient_noise` adds.
      schedule: instead of the config's.
    """
    schedule = schedule or build_schedule(
        optimizer_config,
        total_steps=total_steps,
        steps_per_epoch=steps_per_epoch,
        global_batch_size=global_batch_size,
        plan=plan,
    )
    name = optimizer_config.name
    arguments: dict[str, Any] = {
        "learning_rate": schedule,
        "weight_decay": optimizer_config.weight_decay or None,
        "global_clipnorm": optimizer_config.clip_norm,
    }
    if name in ("sgd", "rmsprop", "lars", "larc"):
        arguments["momentum"] = optimizer_config.momentum
    if name == "sgd":
        arguments["nesterov"] = optimizer_config.nesterov
    if name in ("lars", "larc"):
        arguments["trust_coefficient"] = optimizer_config.trust_coefficient
    if name == "adamw":
        # Keras's AdamW refuses None: without decay it is Adam.
        arguments["weight_decay"] = optimizer_config.weight_decay
    noise = None
    if optimizer_config.gradient_noise:
        noise = GradientNoise(
            optimizer_config.gradient_noise, optimizer_config.gradient_noise_decay, seed
        )
    return make_functional(OPTIMIZER_CLASSES[name](**arguments), noise)


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
