"""The curve that a set of parameters stands for, and how far it is from the one that was measured."""

import numpy as np

from tfmat.materials.law import Array, Law


def rmse_percent(stress: Array, resimulated: Array, valid: np.ndarray) -> Array:
    """Root mean square of the residual over the curve's maximum stress, in percent.

    Args:
      stress, resimulated: [curves, points], MPa; valid: [curves, points], False where padded.

    Returns:
      [curves], %.
    """
    largest = np.abs(np.where(valid, stress, 0.0)).max(axis=1)
    return 100.0 * _root_mean_square(stress - resimulated, valid) / largest


def rmse_over_noise(
    stress: Array, resimulated: Array, valid: np.ndarray, noise_mpa: float, noise_relative: float
) -> Array | None:
    """Root mean square of the residual over the noise's standard deviation at each point; 1 is perfect.

    Same arguments and result as `rmse_percent`; None where the curves have no noise. `noise_mpa` is the standard
    deviation in MPa, `noise_relative` adds a fraction of the point's own stress in quadrature. Points that have no
    noise (relative noise at no stress) are left out.
    """
    if noise_mpa == 0 and noise_relative == 0:
        return None
    deviation = np.hypot(noise_mpa, noise_relative * resimulated)
    # Purely relative noise vanishes at the origin, where the ratio says nothing.
    counted = valid & (deviation > 1e-6 * deviation.max(axis=1, keepdims=True))
    return _root_mean_square((stress - resimulated) / np.where(counted, deviation, 1.0), counted)


def resimulate(law: Law, strain: Array, labels: Array) -> Array:
    """Stress of the law at `strain` [curves, points] for labels [curves, identified]: [curves, points], MPa."""
    return law.stress(np.asarray(strain, np.float64), law.from_labels(labels))


def _root_mean_square(values: Array, counted: np.ndarray) -> Array:
    return np.sqrt((np.where(counted, values, 0.0) ** 2).sum(axis=1) / counted.sum(axis=1))
