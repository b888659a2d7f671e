"""Least squares for measured curves of different lengths, and which other law of the family fits one better."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.identification.least_squares import fit, polish
from tfmat.identification.other_laws import compare_laws
from tfmat.materials.law import Array, Law

# A longer curve is averaged in groups of neighbours: the fit is the same, and many curves fit into memory.
_MOST_POINTS = 400


@dataclasses.dataclass(frozen=True)
class ClassicalAnswer:
    """What least squares says of one curve; p identified parameters.

    Attributes:
      polished: [p], two steps from the network's answer, in the parameters' units.
      values, std: [p], from scratch, in the parameters' units; interval: [p, 2], 95 %; labels: [p], scaled to 0-1.
      unidentifiable: [p], the curve says nothing of this parameter.
      better: another law of the family that fits clearly better, and its error in MPa; or None.
    """

    polished: Array
    values: Array
    std: Array
    interval: Array
    labels: Array
    unidentifiable: NDArray[np.bool_]
    better: tuple[str, float] | None


def classical_answers(
    law: Law, curves: Sequence[MeasuredCurve], labels: Array
) -> list[ClassicalAnswer | None]:
    """Least squares of every curve, all at once; `labels` are the network's answers, [curves, p]."""
    points = padded_points(curves)
    best = fit(law, *points)
    polished = polish(law, *points, labels)
    better = compare_laws(law, best, *points).better()
    return [
        ClassicalAnswer(
            polished=polished.values[i],
            values=best.values[i],
            std=best.std[i],
            interval=best.interval[i],
            labels=best.labels[i],
            unidentifiable=best.unidentifiable[i],
            better=better[i],
        )
        for i in range(len(curves))
    ]


def padded_points(curves: Sequence[MeasuredCurve]) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The measured points as they are, not resampled: strain (-), stress (MPa) and valid, each [curves, points]."""
    parts = [_grouped(curve) for curve in curves]
    longest = max(len(strain) for strain, _ in parts)
    shape = len(parts), longest
    strain, stress, valid = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    for i, (e, s) in enumerate(parts):
        strain[i, : len(e)], stress[i, : len(e)], valid[i, : len(e)] = e, s, True
    return strain, stress, valid


def _grouped(curve: MeasuredCurve) -> tuple[Array, Array]:
    group = -(-len(curve.strain) // _MOST_POINTS)
    starts = np.arange(0, len(curve.strain), group)
    count = np.diff([*starts, len(curve.strain)])
    return (
        np.add.reduceat(curve.strain, starts) / count,
        np.add.reduceat(curve.stress_mpa, starts) / count,
    )


def conditioned(law: Law, fixed: Mapping[str, float]) -> Law:
    """`law` with more parameters known; raises InputError for one that it does not have."""
    if not fixed:
        return law
    ranges = {p.name: (p.low, p.high) for p in law.parameters}
    known = {p.name: p.fixed for p in law.parameters if p.fixed is not None}
    return type(law)(ranges=ranges, fixed={**known, **fixed})


def labels_of_others(law: Law, labels: Array, conditioned_law: Law) -> Array:
    """Columns of `labels` [curves, identified by law] that `conditioned_law` still identifies."""
    remaining = {parameter.name for parameter in conditioned_law.identified}
    columns = [i for i, parameter in enumerate(law.identified) if parameter.name in remaining]
    return labels[:, columns]
