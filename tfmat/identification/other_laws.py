"""Which other law of the family fits a curve or tests clearly better than the own one. NumPy only."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array, Law
from tfmat.materials.registry import MONOTONIC_LAWS

# Another law fits clearly better when its error is this share of the own law's or less, and the evidence exceeds this
# (a Bayesian information criterion with a wide margin).
BETTER, _EVIDENCE = 0.85, 20.0


@dataclasses.dataclass(frozen=True)
class LawComparison:
    """The best fits of the other laws of a family beside the own law's.

    Attributes:
      own_rmse_mpa: root mean square residual of the own law's fit, [curves].
      rmse_mpa: law name -> the same of its fit, [curves].
      evidence: law name -> twice the logarithm of the likelihoods' ratio to the own law, noise of unknown level, less
        the Bayesian information criterion's price for more parameters (G. Schwarz, Annals of Statistics 6 (1978)
        461-464); positive for the other law, [curves].
    """

    own_rmse_mpa: Array
    rmse_mpa: Mapping[str, Array]
    evidence: Mapping[str, Array]

    def better(self) -> list[tuple[str, float] | None]:
        """The law that fits each curve best of those that fit clearly better, with its error in MPa; or None."""
        best: list[tuple[str, float] | None] = [None] * len(self.own_rmse_mpa)
        for name, error in self.rmse_mpa.items():
            clearly = (error < BETTER * self.own_rmse_mpa) & (self.evidence[name] > _EVIDENCE)
            for i in np.flatnonzero(clearly):
                found = best[i]
                if found is None or error[i] < found[1]:
                    best[i] = name, float(error[i])
        return best


def compare_laws(
    law: Law,
    own_rmse_mpa: Array,
    count: NDArray[np.integer],
    error_of: Callable[[Law], Array],
    others: Iterable[type[Law]] = MONOTONIC_LAWS.values(),
) -> LawComparison:
    """Fits the registered laws of the same strain and stress measure.

    Args:
      own_rmse_mpa: root mean square residual of the fit of `law`, [curves].
      count: points of each curve, [curves].
      error_of: the same residual of another law's fit to the same points, [curves]; infinity where it is of no use.
      others: the laws that answer the same tests.
    """
    errors, evidence = {}, {}
    for other_class in others:
        other, name = other_class(), other_class.name
        same = (other.strain_measure, other.stress_measure) == (
            law.strain_measure,
            law.stress_measure,
        )
        if not same or name == law.name:
            continue
        error = error_of(other)
        more = len(other.identified) - len(law.identified)
        with np.errstate(divide="ignore"):
            evidence[name] = 2 * count * np.log(own_rmse_mpa / error) - more * np.log(count)
        errors[name] = error
    return LawComparison(own_rmse_mpa, errors, evidence)
