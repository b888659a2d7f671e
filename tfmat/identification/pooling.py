"""Several specimens of one material -> one answer, with the scatter between them."""

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.errors import InputError
from tfmat.identification import doubts
from tfmat.identification.answers import Identification, Value
from tfmat.identification.classical import conditioned, padded_points
from tfmat.identification.identifier import Identifier
from tfmat.identification.least_squares import fit, polish
from tfmat.materials.law import Array, Law

_COVERAGE = 0.95


def pool(
    identifier: Identifier,
    results: Sequence[Identification],
    *,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
) -> Identification:
    """One answer for the material that all specimens are of.

    `value` is the mean of the specimens' answers on the scale of the parameter (a geometric mean where that is
    logarithmic), `std` the standard deviation between the specimens, `ci95` the interval of the mean by Student's t;
    `polished` and `least_squares` fit one set of parameters to all specimens together.

    Args:
      results: what `identify` answered, with the same `fixed`.

    Raises:
      InputError: fewer than two specimens, or the network's law is not known.
    """
    if len(results) < 2:
        raise InputError(f"--pool needs at least two curves; {len(results)} was given")
    if identifier.law is None:
        raise InputError("the network was trained on curves of no known law; nothing can be pooled")
    law = conditioned(identifier.law, fixed or {})
    labels = np.stack([result.labels for result in results])
    mean = labels.mean(axis=0)
    curve = _joined([result.curve for result in results])
    together = _fitted_together(law, results, mean) if least_squares else None
    resimulated = law.stress(curve.strain[None], law.from_labels(mean[None]))[0]
    largest = float(curve.stress_mpa.max())
    error = float(np.sqrt(np.mean(np.square(resimulated - curve.stress_mpa))))
    warnings = [
        f"{result.curve.name}: {line}"
        for result in results
        for line in result.warnings
        if line.startswith(doubts.VERDICT)
    ]
    parameters = _values(law, labels, together)
    return Identification(
        curve, law, parameters, resimulated, 100 * error / largest, warnings, mean
    )


def _fitted_together(
    law: Law, results: Sequence[Identification], mean: Array
) -> tuple[Array, Array]:
    """Polished and least-squares values [identified] of one curve that holds the points of all."""
    strain, stress, valid = padded_points([result.curve for result in results])
    points = strain.reshape(1, -1), stress.reshape(1, -1), valid.reshape(1, -1)
    polished = polish(law, *points, mean[None])
    return polished.values[0], fit(law, *points, start=mean[None]).values[0]


def _joined(curves: Sequence[MeasuredCurve]) -> MeasuredCurve:
    """All points in one curve, in the order of their strain (it is only looked at and compared)."""
    strain = np.concatenate([curve.strain for curve in curves])
    stress = np.concatenate([curve.stress_mpa for curve in curves])
    order = np.argsort(strain, kind="stable")
    names = ", ".join(curve.name for curve in curves)
    step = (
        f"pooled {len(curves)} specimens ({names}): values are means, std is the scatter between specimens, ci95 the "
        "interval of the mean; polished and least squares fit all specimens together"
    )
    return MeasuredCurve(f"pooled ({len(curves)} specimens)", strain[order], stress[order], [step])


def _values(law: Law, labels: Array, together: tuple[Array, Array] | None) -> dict[str, Value]:
    values = law.from_labels(labels)
    mean = labels.mean(axis=0)
    half = (
        scipy.stats.t.ppf(0.5 + _COVERAGE / 2, len(labels) - 1)
        * labels.std(axis=0, ddof=1)
        / np.sqrt(len(labels))
    )
    ends = [law.from_labels((mean + side * half)[None])[0] for side in (-1, 0, 1)]
    found, column = {}, 0
    for i, parameter in enumerate(law.parameters):
        if parameter.fixed is not None:
            found[parameter.name] = Value(parameter.fixed, parameter.unit, fixed=True)
            continue
        found[parameter.name] = Value(
            value=float(ends[1][i]),
            unit=parameter.unit,
            std=float(values[:, i].std(ddof=1)),
            polished=None if together is None else float(together[0][column]),
            least_squares=None if together is None else float(together[1][column]),
            ci95=(float(ends[0][i]), float(ends[2][i])),
        )
        column += 1
    return found
