"""LAMB: Adam's update with weight decay, scaled layer by layer to the norm of the weights."""

from typing import Any

import keras
from keras import ops

from tfmat.optimizers.layerwise import LayerwiseOptimizer, norm, ratio_or_one


@keras.saving.register_keras_serializable(package="tfmat")
class LAMB(LayerwiseOptimizer):
    """Layer-wise adaptive moments (You et al. 2019, arXiv:1904.00962, algorithm 2, φ the identity).

    With Adam's moments m̂ and v̂, both corrected for their start at 0, and weight decay λ:

        r = m̂ / (√v̂ + ε);   w ← w − η (|w| / |r + λ w|) (r + λ w)

    Keras's own `Lamb` decays the weights before and outside the ratio; here the decay is inside, as in the paper.
    Excluded variables have the ratio 1 and no decay: Adam's update; so has a layer whose norm is 0.

    Args:
      learning_rate: η.
      beta_1, beta_2: of the first and second moments.
      epsilon: ε.
      weight_decay, exclude, **kwargs: see LayerwiseOptimizer.
    """

    slot_names = ("momentum", "velocity")

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One update of one variable."""
        dtype = variable.dtype
        rate, gradient = ops.cast(learning_rate, dtype), ops.cast(gradient, dtype)
        index = self._get_variable_index(variable)
        excluded = self._is_excluded[index]
        step = ops.cast(self.iterations + 1, dtype)
        momentum, velocity = self._momentum[index], self._velocity[index]
        new_momentum = self.beta_1 * ops.convert_to_tensor(momentum) + (1 - self.beta_1) * gradient
        new_velocity = self.beta_2 * ops.convert_to_tensor(velocity) + (
            1 - self.beta_2
        ) * ops.square(gradient)
        # Not `ops.cast`, which rounds a Python number to float32 first: 1 - beta_2 would keep five digits.
        correction_1 = 1 - ops.power(ops.convert_to_tensor(self.beta_1, dtype), step)
        correction_2 = 1 - ops.power(ops.convert_to_tensor(self.beta_2, dtype), step)
        update = (new_momentum / correction_1) / (
            ops.sqrt(new_velocity / correction_2) + self.epsilon
        )
        update += self._decay(variable, excluded)
        if not excluded:
            rate *= ratio_or_one(norm(variable), norm(update))
        new_variable = ops.convert_to_tensor(variable) - rate * update
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        self.assign(variable, new_variable)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
