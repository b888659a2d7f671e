"""The likelihood of measured records of a specimen that a program simulates. NumPy only.

Its machine and the zero of its strain are parameters of its law, so that there is no compliance beside them.
"""

from collections.abc import Sequence

import numpy as np

from tfmat.identification.likelihood import Rows
from tfmat.identification.measured_likelihood import UNLIKE_NOISE, MeasuredLikelihoods
from tfmat.materials.law import Array, History, TestSet


class SpecimenLikelihoods(MeasuredLikelihoods):
    """As `MeasuredLikelihoods`, as functions of the labels of the law alone, [k, p]."""

    nuisances = 0

    def log_density(self, curves: Rows, labels: Array) -> Array:
        """See `Likelihoods.log_density`."""
        return super().log_density(curves, _without_compliance(labels))

    def expansion(self, curves: Rows, labels: Array) -> tuple[Array, Array, Array]:
        """See `MeasuredLikelihoods.expansion`."""
        density, gradient, information = super().expansion(curves, _without_compliance(labels))
        return density, gradient[:, :-1], information[:, :-1, :-1]

    def with_errors(
        self, curve: int, labels: Array, generator: np.random.Generator
    ) -> Array | None:
        """See `Likelihoods.with_errors`."""
        return None if self.beyond_noise(curve) < UNLIKE_NOISE else labels

    def marginal(self, curve: int, labels: Array) -> Array:
        """See `Likelihoods.marginal`."""
        return self.log_density(slice(curve, curve + 1), labels)

    def predictive_p(
        self, curve: int, labels: Array, generator: np.random.Generator
    ) -> tuple[float, float]:
        """See `MeasuredLikelihoods.predictive_p`."""
        return super().predictive_p(curve, _without_compliance(labels), generator)

    def _answer(
        self, history: History, labels: Array, steps: Sequence[float] = (0.0,)
    ) -> list[Array]:
        """See `MeasuredLikelihoods._answer`: nothing moves with a compliance that is not there."""
        return [self.law.label_stress(TestSet((history,)), labels[:, :-1])] * len(steps)


def _without_compliance(labels: Array) -> Array:
    """Labels with that of the compliance in the middle of its range, where it is none."""
    return np.column_stack([labels, np.full(len(labels), 0.5)])
