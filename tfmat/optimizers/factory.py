"""Makes of the config's `optimizer` section a functional Keras optimizer with its schedule."""

import math
from typing import Any

import keras

from tfmat.config import Config, RunSteps
from tfmat.optimizers.functional import LAMB, LARC, LARS, GradientNoise, NovoGrad, make_functional
from tfmat.optimizers.schedules import (
    Schedule,
    WarmupConstant,
    WarmupCosine,
    WarmupPolynomial,
    WarmupSteps,
)


def batch_scale(optimizer_config: Config, global_batch_size: int) -> float:
    """The factor of the learning rate by `optimizer.scaling`: 1, B / B0 (Goyal 2017) or its square root."""
    ratio = global_batch_size / optimizer_config.reference_batch_size
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[optimizer_config.scaling]


def build_schedule(
    optimizer_config: Config, steps: RunSteps, global_batch_size: int | None = None
) -> Schedule:
    """The learning rate over a run, a pure function of the global step.

    Args:
      optimizer_config: the `optimizer` section of a config.
      steps: of the run, its warm-up and its falls.
      global_batch_size: needed where `optimizer.scaling` is not `none`.
    """
    scale = 1.0
    if optimizer_config.scaling != "none":
        if global_batch_size is None:
            raise ValueError("optimizer.scaling needs global_batch_size")
        scale = batch_scale(optimizer_config, global_batch_size)
    peak = optimizer_config.learning_rate * scale
    # A rate that was scaled up rises from the unscaled one (Goyal et al. 2017, 2.2).
    warmup: dict[str, Any] = {
        "warmup_steps": steps.warmup,
        "warmup_start": 1.0 / scale if scale > 1.0 else 0.0,
    }
    falling = {**warmup, "final_fraction": optimizer_config.final_fraction}
    match optimizer_config.schedule:
        case "cosine":
            return WarmupCosine(peak, steps.total, **falling)
        case "polynomial":
            return WarmupPolynomial(peak, steps.total, optimizer_config.power, **falling)
        case "step":
            return WarmupSteps(peak, list(steps.falls), optimizer_config.step_factor, **warmup)
    return WarmupConstant(peak, **warmup)


def build_optimizer(
    optimizer_config: Config,
    steps: RunSteps,
    *,
    global_batch_size: int | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
) -> keras.optimizers.Optimizer:
    """The optimizer that the config names, functional (see `make_functional`), not built yet.

    Args:
      optimizer_config, ...: as for `build_schedule`.
      seed: of the noise that `optimizer.gradient_noise` adds.
      schedule: instead of the config's.
    """
    schedule = schedule or build_schedule(optimizer_config, steps, global_batch_size)
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
    return make_functional(OPTIMIZER_CLASSES[name](**arguments), noise, optimizer_config.sam_rho)


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
