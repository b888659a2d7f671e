"""Learning rates as pure functions of the global step: nothing to save, nothing that a resume can lose."""

import math
from typing import Any

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule as Schedule


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupConstant(Schedule):
    """Rises linearly over `warmup_steps`, then stays.

    Args:
      learning_rate: the value after the warm-up.
      warmup_steps: step s < warmup_steps uses learning_rate * (s + 1) / warmup_steps (Goyal et al. 2017, 2.2).
    """

    def __init__(self, learning_rate: float, warmup_steps: int = 0):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Any:
        """Learning rate at `step` (a number or a scalar tensor), as a scalar tensor."""
        step = ops.cast(step, keras.backend.floatx())
        return self.learning_rate * _warmup(step, self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {"learning_rate": self.learning_rate, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupCosine(Schedule):
    """Rises linearly over `warmup_steps`, then falls on half a cosine (Loshchilov & Hutter 2017, eq. 5).

    Args:
      learning_rate: the peak.
      total_steps: the step at which `final_fraction` of the peak is reached; it stays there.
      warmup_steps: as in WarmupConstant.
      final_fraction: of the peak, at the end.
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        warmup_steps: int = 0,
        final_fraction: float = 0.0,
    ):
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.final_fraction = final_fraction

    def __call__(self, step: Any) -> Any:
        """Learning rate at `step` (a number or a scalar tensor), as a scalar tensor."""
        step = ops.cast(step, keras.backend.floatx())
        length = max(self.total_steps - self.warmup_steps, 1)
        progress = ops.clip((step - self.warmup_steps) / length, 0.0, 1.0)
        cosine = 0.5 * (1.0 + ops.cos(math.pi * progress))
        factor = self.final_fraction + (1.0 - self.final_fraction) * cosine
        return self.learning_rate * factor * _warmup(step, self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "final_fraction": self.final_fraction,
        }


def _warmup(step: Any, warmup_steps: int) -> Any:
    return ops.minimum(1.0, (step + 1.0) / warmup_steps) if warmup_steps else ops.ones_like(step)
