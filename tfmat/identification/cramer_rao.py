"""How much a curve tells of its parameters at most: the Cramér-Rao bound. NumPy only."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.materials.law import Array, Law, TestSet, driven_where

# Of the matrix scaled to a unit diagonal. Below it rounding speaks, and the variance is as good as infinite.
_LEAST_EIGENVALUE = 1e-14
_CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class CramerRaoBound:
    """The bound of each curve, [curves, p] each.

    Attributes:
      label_covariance: [curves, p, p], on the scale of the labels.
      label_variance: the bound of the MSE of scaled labels, for a linear or logarithmic scale alike.
      std: in the parameters' units (to first order where the scale is logarithmic).
    """

    label_covariance: Array
    label_variance: Array
    std: Array


def cramer_rao_bound(
    law: Law,
    strain: Array | TestSet,
    labels: Array,
    noise_mpa: float,
    noise_relative: float = 0.0,
    valid: NDArray[np.bool_] | None = None,
) -> CramerRaoBound:
    """The bound at true labels [curves, p], for known strain and Gaussian noise of the stress: σ²(JᵀJ)⁻¹.

    No unbiased estimator has a smaller variance: H. Cramér, Mathematical Methods of Statistics (1946), ch. 32; C. R.
    Rao, Bull. Calcutta Math. Soc. 37 (1945) 81-91.

    With noise in proportion to the stress the spread of the points itself tells of the parameters: the Fisher
    information is Σ (1/σᵢ² + 2 r⁴τᵢ²/σᵢ⁴) Jᵢ Jᵢᵀ then, σᵢ² = noise_mpa² + (r τᵢ)² (S. M. Kay, Fundamentals of
    Statistical Signal Processing 1 (1993), eq. 3.31). Where the cut-off of a curve is drawn at random, what the place
    of the cut tells is left out.

    Args:
      strain: [curves, points], -; valid: [curves, points], None is all.
      noise_mpa, noise_relative: standard deviation in MPa, and as a fraction of the stress, in quadrature.
    """
    labels = np.asarray(labels, np.float64)
    information = np.empty((*labels.shape, labels.shape[1]))
    for first in range(0, len(labels), _CHUNK):
        rows = slice(first, first + _CHUNK)
        information[rows] = fisher_information(
            law,
            strain[rows],
            labels[rows],
            noise_mpa,
            noise_relative,
            None if valid is None else valid[rows],
        )
    covariance = covariance_of(information)
    variance = np.einsum("cii->ci", covariance).copy()
    return CramerRaoBound(
        covariance, variance, np.sqrt(variance) * law.label_slopes(law.from_labels(labels))
    )


def fisher_information(
    law: Law,
    strain: Array | TestSet,
    labels: Array,
    noise_mpa: float,
    noise_relative: float,
    valid: NDArray[np.bool_] | None,
) -> Array:
    """The information matrix of labels [curves, p]: [curves, p, p]. See `cramer_rao_bound`."""
    if not isinstance(strain, TestSet):
        strain = np.asarray(strain, np.float64)
    if valid is not None:
        strain = driven_where(strain, valid)
    jacobian = law.label_derivatives(strain, labels)
    if noise_relative == 0.0:
        weight: ArrayLike = np.float64(noise_mpa**-2)
    else:
        stress = law.label_stress(strain, labels)
        # A floor for points without any noise, at zero stress, whose derivatives are zero too.
        variance = noise_mpa**2 + np.maximum((noise_relative * stress) ** 2, 1e-30)
        weight = 1.0 / variance + 2.0 * noise_relative**4 * stress**2 / variance**2
    weight = np.broadcast_to(weight, jacobian.shape[:2])
    if valid is not None:
        weight = np.where(valid, weight, 0.0)
    return np.swapaxes(jacobian, 1, 2) @ (jacobian * weight[:, :, None])


def covariance_of(information: Array) -> Array:
    """Inverse of symmetric matrices [curves, p, p]; where one is singular, a finite but very large one."""
    diagonal = np.einsum("cii->ci", information)
    largest = np.maximum(diagonal.max(axis=1, keepdims=True), 1e-290)
    scale = 1.0 / np.sqrt(np.maximum(diagonal, 1e-20 * largest))
    eigenvalues, vectors = np.linalg.eigh(information * scale[:, :, None] * scale[:, None, :])
    inverse = 1.0 / np.maximum(eigenvalues, _LEAST_EIGENVALUE)
    scaled = (vectors * inverse[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return scaled * scale[:, :, None] * scale[:, None, :]
