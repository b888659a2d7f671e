"""The optimizers that look at the norm of whole tensors, layer by layer: LARS, LARC, LAMB, NovoGrad."""

from typing import Any

import keras
from keras import ops

from tfmat.optimizers.whole_norms import LayerwiseOptimizer, Update, ratio_or_one


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

    arguments = ("trust_coefficient", "momentum")

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

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        """See LayerwiseOptimizer.update."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        excluded = self._is_excluded[index]
        velocity = self._momentum[index]
        squares = yield [] if excluded else [variable, gradient]
        if not excluded:
            rate = self._layer_rate(rate, *map(ops.sqrt, squares))
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


@keras.saving.register_keras_serializable(package="tfmat")
class LARC(LARS):
    """LARS in the form that clips: a layer's rate is min(λ, γ), so the global rate is what no layer exceeds.

    As in NVIDIA's Apex (`apex.parallel.LARC`, `clip=True`), with LARS's momentum. Arguments as for LARS.
    """

    def __init__(self, learning_rate: Any = 0.1, trust_coefficient: float = 0.02, **kwargs: Any):
        super().__init__(learning_rate, trust_coefficient, **kwargs)

    def _layer_rate(self, rate: Any, weight_norm: Any, gradient_norm: Any) -> Any:
        return ops.minimum(self._local_rate(weight_norm, gradient_norm, rate), rate)


class _MomentsOptimizer(LayerwiseOptimizer):
    """One with moving averages of the gradient and of its square."""

    arguments = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self, learning_rate: Any, beta_1: float, beta_2: float, epsilon: float, **kwargs: Any
    ):
        super().__init__(learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon


@keras.saving.register_keras_serializable(package="tfmat")
class LAMB(_MomentsOptimizer):
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
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        """See LayerwiseOptimizer.update."""
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
        squares = yield [] if excluded else [variable, update]
        if not excluded:
            rate *= ratio_or_one(*map(ops.sqrt, squares))
        new_variable = ops.convert_to_tensor(variable) - rate * update
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        self.assign(variable, new_variable)


@keras.saving.register_keras_serializable(package="tfmat")
class NovoGrad(_MomentsOptimizer):
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
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)

    def build(self, variables: list[Any]) -> None:
        """Makes the slots: a scalar second moment a variable."""
        if self.built:
            return
        super().build(variables)
        self._second_moment = [
            self.add_variable((), dtype=variable.dtype, name=f"second_moment_{i}")
            for i, variable in enumerate(variables)
        ]

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        """See LayerwiseOptimizer.update."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        momentum, second_moment = self._momentum[index], self._second_moment[index]
        (square,) = yield [gradient]
        averaged = self.beta_2 * ops.convert_to_tensor(second_moment) + (1 - self.beta_2) * square
        new_second_moment = ops.where(ops.equal(self.iterations, 0), square, averaged)
        update = gradient / (ops.sqrt(new_second_moment) + self.epsilon)
        update += self._decay(variable, self._is_excluded[index])
        new_momentum = self.beta_1 * ops.convert_to_tensor(momentum) + update
        new_variable = ops.convert_to_tensor(variable) - rate * new_momentum
        self.assign(second_moment, new_second_moment)
        self.assign(momentum, new_momentum)
        self.assign(variable, new_variable)
