"""From the config's `optimizer` section to a functional Keras optimizer with its schedule."""

from typing import Any

import keras

from tfmat.config import Config
from tfmat.durations import Duration
from tfmat.errors import InputError
from tfmat.optimizers.functional import make_functional
from tfmat.optimizers.schedules import Schedule, WarmupConstant, WarmupCosine


def build_schedule(optimizer_config: Config, *, total_steps: int, steps_per_epoch: int) -> Schedule:
    """The learning rate over `total_steps`, a pure function of the global step."""
    warmup_steps = Duration.parse(optimizer_config.warmup).steps(steps_per_epoch)
    if warmup_steps and warmup_steps >= total_steps:
        raise InputError(
            f"optimizer.warmup takes {warmup_steps} steps, the whole run {total_steps}; shorten the warm-up"
        )
    if optimizer_config.schedule == "cosine":
        return WarmupCosine(
            optimizer_config.learning_rate,
            total_steps,
            warmup_steps,
            optimizer_config.final_fraction,
        )
    return WarmupConstant(optimizer_config.learning_rate, warmup_steps)


def build_optimizer(
    optimizer_config: Config, *, total_steps: int, steps_per_epoch: int
) -> keras.optimizers.Optimizer:
    """The optimizer that the config names, functional (see `make_functional`), not built yet."""
    schedule = build_schedule(
        optimizer_config, total_steps=total_steps, steps_per_epoch=steps_per_epoch
    )
    arguments: dict[str, Any] = {
        "learning_rate": schedule,
        "weight_decay": optimizer_config.weight_decay or None,
        "global_clipnorm": optimizer_config.clip_norm,
    }
    if optimizer_config.name == "sgd":
        arguments |= {"momentum": optimizer_config.momentum, "nesterov": optimizer_config.nesterov}
    if optimizer_config.name == "rmsprop":
        arguments |= {"momentum": optimizer_config.momentum}
    if optimizer_config.name == "adamw":
        # Keras's AdamW refuses None: without decay it is Adam.
        arguments["weight_decay"] = optimizer_config.weight_decay
    return make_functional(_CLASSES[optimizer_config.name](**arguments))


_CLASSES = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "nadam": keras.optimizers.Nadam,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "lion": keras.optimizers.Lion,
}
