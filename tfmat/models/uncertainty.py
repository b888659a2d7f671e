"""A mean-and-variance head: how far off the network expects each of its answers to be.

D. A. Nix, A. S. Weigend, Estimating the mean and variance of the target probability distribution, ICNN (1994) 55-60.
Here the variance learns beside the mean and never changes it: the features and the mean that it sees are taken as
given, so that the mean trains on the mean squared error alone, as without a head; only `optimizer.clip_norm`, a norm
over all gradients, would let it feel the head. (M. Seitzer et al., On the pitfalls of heteroscedastic uncertainty
estimation with probabilistic neural networks, ICLR 2022, show what the joint likelihood does to the mean.)
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from keras import layers, ops

PerExample = Callable[[Any, Any], Any]

# Enough for a coverage within a point of what is said; with two outputs 4,098 parameters more.
_UNITS = 32


def with_log_variance(features: Any, mean: Any, activation: str, told: Callable[[Any], Any]) -> Any:
    """The model's output [batch, 2n]: n means (labels scaled 0-1), then the logarithms of n variances.

    Args:
      features: [batch, units], of the last hidden layer.
      mean: [batch, n].
      activation: of the head's hidden layer.
      told: called on what the head makes of the features, and gives the logarithms of the variances.
    """
    seen = ops.stop_gradient(features)
    hidden = layers.Dense(_UNITS, activation=activation, name="uncertainty_hidden")(seen)
    log_variance = told(layers.Dense(mean.shape[-1], name="log_variance")(hidden))
    return layers.Concatenate(name="labels_and_log_variances")([mean, log_variance])


def squared_error_of_mean(num_outputs: int, weights: Sequence[float] | None = None) -> PerExample:
    """The loss of the mean: (labels [batch, n], outputs [batch, n or 2n]) -> [batch].

    Args:
      num_outputs: n.
      weights: of the n squared errors; only their ratios count. None weighs them alike.
    """
    if weights is None:
        weights = [1.0] * num_outputs
    shares = [weight / sum(weights) for weight in weights]

    def squared_error(labels: Any, outputs: Any) -> Any:
        square = ops.square(labels - outputs[:, :num_outputs])
        return ops.sum(square * ops.cast(shares, square.dtype), axis=-1)

    return squared_error


def negative_log_likelihood(num_outputs: int) -> PerExample:
    """What the variance minimises: (labels [batch, n], outputs [batch, 2n]) -> [batch, n], on the labels' scale.

    Minus the logarithm of the Gaussian density of the label; the mean is taken as given.
    """

    def likelihood(labels: Any, outputs: Any) -> Any:
        error = labels - ops.stop_gradient(outputs[:, :num_outputs])
        log_variance = outputs[:, num_outputs:]
        square = ops.square(error) * ops.exp(-log_variance)
        return 0.5 * (log_variance + square + math.log(2.0 * math.pi))

    return likelihood
