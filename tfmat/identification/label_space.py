"""Curves in label space: the law and its derivatives over labels scaled to 0-1. NumPy only."""

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array, Law


def split_features(features: NDArray[np.floating]) -> tuple[Array, Array, NDArray[np.bool_]]:
    """[curves, points, 3] -> strain (-), stress (MPa), both float64, and valid, each [curves, points]."""
    strain, stress, padded = np.moveaxis(np.asarray(features, np.float64), 2, 0)
    return np.ascontiguousarray(strain), np.ascontiguousarray(stress), padded == 0


def label_stress(law: Law, strain: Array, labels: Array) -> Array:
    """Stress at strain [curves, points] (or [1, points]) for labels [curves, identified]: [curves, points], MPa."""
    return law.stress(strain, law.from_labels(labels))


def label_derivatives(law: Law, strain: Array, labels: Array) -> Array:
    """d stress / d label by the chain rule: [curves, points, identified], MPa; same arguments as `label_stress`."""
    parameters = law.from_labels(labels)
    derivatives = law.derivatives(strain, parameters)
    columns = identified_columns(law)
    if len(columns) < derivatives.shape[2]:
        derivatives = derivatives[:, :, columns]
    derivatives *= label_slopes(law, parameters)[:, None, :]
    return derivatives


def label_slopes(law: Law, parameters: Array) -> Array:
    """d parameter / d label in the parameters' units; parameters [curves, all] -> [curves, identified]."""
    slopes = np.empty((len(parameters), len(law.identified)))
    for column, i in enumerate(identified_columns(law)):
        slopes[:, column] = law.parameters[i].slope(parameters[:, i])
    return slopes


def identified_columns(law: Law) -> list[int]:
    """Columns of a parameter array that are labels."""
    return [i for i, parameter in enumerate(law.parameters) if parameter.fixed is None]


def identified_values(law: Law, labels: Array) -> Array:
    """Labels [curves, identified] -> values in the parameters' units, same shape."""
    return law.from_labels(labels)[:, identified_columns(law)]
