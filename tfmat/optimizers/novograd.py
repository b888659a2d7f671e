"""NovoGrad: Adam with one second moment a layer, of the gradient's norm."""

from typing import Any

import keras
from keras import ops

from tfmat.optimizers.layerwise import LayerwiseOptimizer


@keras.saving.register_keras_serializable(package="tfmat")
class NovoGrad(LayerwiseOptimizer):
    """Stochastic gradient with layer-wise second moments (Ginsburg et al. 2019, arXiv:1905.11286, algorithm 1).

        v ← |g|² at the first step, else β2 v + (1 − β2) |g|²;   m ← β1 m + (g / (√v + ε) + d w);   w ← w − λ m

    Each gradient is divided by its layer's norm, that of a bias too: this is the algorithm. Excluded variables have
    no decay d.

    Args:
      learning_rate: λ.
      beta_1, beta_2: of the first and second moments.
      epsilon: ε.
      weight_decay, exclude, **kwargs: see LayerwiseOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        beta_1: float = 0.95,
        beta_2: float = 0.98,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables: list[Any]) -> None:
        """Makes the slots: a scalar second moment a variable."""
        if self.built:
            return
        super().build(variables)
        self._second_moment = [
            self.add_variable((), dtype=variable.dtype, name=f"second_moment_{i}")
            for i, variable in enumerate(variables)
        ]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One update of one variable."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        momentum, second_moment = self._momentum[index], self._second_moment[index]
        square = ops.sum(ops.square(gradient))
        averaged = self.beta_2 * ops.convert_to_tensor(second_moment) + (1 - self.beta_2) * square
        new_second_moment = ops.where(ops.equal(self.iterations, 0), square, averaged)
        update = gradient / (ops.sqrt(new_second_moment) + self.epsilon)
        update += self._decay(variable, self._is_excluded[index])
        new_momentum = self.beta_1 * ops.convert_to_tensor(momentum) + update
        new_variable = ops.convert_to_tensor(variable) - rate * new_momentum
        self.assign(second_moment, new_second_moment)
        self.assign(momentum, new_momentum)
        self.assign(variable, new_variable)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
