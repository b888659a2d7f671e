"""LARS and LARC: momentum whose rate is scaled, layer by layer, by the norms of weights and gradient."""

from typing import Any

import keras
from keras import ops

from tfmat.optimizers.layerwise import LayerwiseOptimizer, norm, ratio_or_one


@keras.saving.register_keras_serializable(package="tfmat")
class LARS(LayerwiseOptimizer):
    """Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv:1708.03888, algorithm 1).

    For each layer, with global rate γ, trust coefficient η, weight decay β and momentum m:

        λ = η |w| / (|g| + β |w|);   v ← m v + γ λ (g + β w);   w ← w − v

    Excluded variables (biases and normalisation) have λ = 1 and no decay; so has a layer whose norm is 0.

    Args:
      learning_rate: γ; large beside that of SGD, since η scales it.
      trust_coefficient: η.
      momentum: m.
      weight_decay, exclude, **kwargs: see LayerwiseOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        trust_coefficient: float = 0.001,
        momentum: float = 0.9,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.trust_coefficient = trust_coefficient
        self.momentum = momentum

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One update of one variable."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        excluded = self._is_excluded[index]
        velocity = self._momentum[index]
        if not excluded:
            rate = self._layer_rate(rate, norm(variable), norm(gradient))
        update = gradient + self._decay(variable, excluded)
        new_velocity = self.momentum * ops.convert_to_tensor(velocity) + rate * update
        new_variable = ops.convert_to_tensor(variable) - new_velocity
        self.assign(velocity, new_velocity)
        self.assign(variable, new_variable)

    def _local_rate(self, weight_norm: Any, gradient_norm: Any, otherwise: Any) -> Any:
        decayed = gradient_norm + (self.weight_decay or 0.0) * weight_norm
        # A gradient of zeros says nothing either, whatever the decay.
        defined = ops.where(gradient_norm > 0, decayed, ops.zeros_like(decayed))
        return ratio_or_one(self.trust_coefficient * weight_norm, defined, otherwise)

    def _layer_rate(self, rate: Any, weight_norm: Any, gradient_norm: Any) -> Any:
        return rate * self._local_rate(weight_norm, gradient_norm, 1.0)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            **super().get_config(),
            "trust_coefficient": self.trust_coefficient,
            "momentum": self.momentum,
        }


@keras.saving.register_keras_serializable(package="tfmat")
class LARC(LARS):
    """LARS in the form that clips: a layer's rate is min(λ, γ), so the global rate is what no layer exceeds.

    As in NVIDIA's Apex (`apex.parallel.LARC`, `clip=True`), with LARS's momentum. Arguments as for LARS.
    """

    def __init__(self, learning_rate: Any = 0.1, trust_coefficient: float = 0.02, **kwargs: Any):
        super().__init__(learning_rate, trust_coefficient, **kwargs)

    def _layer_rate(self, rate: Any, weight_norm: Any, gradient_norm: Any) -> Any:
        return ops.minimum(self._local_rate(weight_norm, gradient_norm, rate), rate)
