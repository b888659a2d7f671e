"""Least squares for simulated records whose zeroes are off, with slack, and whose machine gives way. NumPy only.

The fit knows nothing of such errors, as one of measured tests does not; its intervals do.
"""

import dataclasses

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.curves.apparatus import Apparatus
from tfmat.curves.settings import CurveSettings
from tfmat.identification.cramer_rao import covariance_of
from tfmat.identification.least_squares import COVERAGE, LeastSquaresFit, fit_with_noise
from tfmat.materials.law import Array, History, Law, TestSet


def fit_with_errors(
    settings: CurveSettings, tests: TestSet, response: Array, valid: NDArray[np.bool_]
) -> LeastSquaresFit:
    """`fit` of records; covariance and intervals hold correlated residuals and what `covariance_by_errors` adds.

    Args:
      settings: resolved; tests, response, valid: as `observed` gives them.
    """
    law = settings.build_law()
    found = fit_with_noise(
        law, tests, response, valid, 1.0, settings.noise_relative, correlated=True
    )
    added = covariance_by_errors(settings, law, tests, valid, found.labels)
    covariance = found.label_covariance + added
    label_std = np.sqrt(np.einsum("cii->ci", covariance))
    half = scipy.special.ndtri(0.5 + COVERAGE / 2) * label_std
    low, high = np.moveaxis(found.interval_labels, 2, 0)
    limits = np.stack(
        [np.minimum(low, found.labels - half), np.maximum(high, found.labels + half)], axis=2
    )
    limits = np.clip(limits, 0.0, 1.0)
    ends = [law.identified_values(limits[:, :, side]) for side in (0, 1)]
    return dataclasses.replace(
        found,
        label_covariance=covariance,
        label_std=label_std,
        std=label_std * law.label_slopes(law.from_labels(found.labels)),
        interval_labels=limits,
        interval=np.stack(ends, axis=2),
        unidentifiable=found.unidentifiable | ~(half < 0.5),
    )


def covariance_by_errors(
    settings: CurveSettings,
    law: Law,
    tests: TestSet,
    valid: NDArray[np.bool_],
    labels: Array,
) -> Array:
    """What zeroes that are off and a machine add to the covariance of a fit without them: [records, p, p].

    To first order an error δ whose effect on the responses is D moves a fit with the slopes J by (JᵀJ)⁻¹JᵀD δ. Errors
    are independent; of the machine's compliance, which a fit takes for zero, the mean square counts.

    Args:
      settings: resolved; tests, valid: as `observed` gives them; labels: of the fit, [records, p].
    """
    points = valid.shape[1] // len(tests.histories)
    slopes = law.label_derivatives(tests, labels) * valid[:, :, None]
    transposed = np.swapaxes(slopes, 1, 2)
    to_labels = covariance_of(transposed @ slopes) @ transposed
    unit = np.broadcast_to(tests.unit, valid.shape)
    parameters = law.from_labels(labels)
    effects: list[Array] = []

    def moved(history: History, **errors: float) -> Array:
        apparatus = Apparatus(**{name: np.full(len(labels), size) for name, size in errors.items()})
        answer = apparatus.answer(history, lambda seen: law.respond(seen, parameters))
        return apparatus.shown(history, answer)

    machine = np.zeros(valid.shape)
    for test, history in enumerate(tests.histories):
        part = slice(test * points, (test + 1) * points)
        rows = history.changed(
            lambda array: np.broadcast_to(array, (len(labels), *array.shape[1:]))
        )
        plain = moved(rows)
        for name, limits in (
            ("strain_offset", settings.strain_offset),
            ("stress_offset", settings.stress_offset),
            ("slack", settings.toe),
        ):
            if limits is not None and (name == "stress_offset" or rows.strain is not None):
                effect = np.zeros(valid.shape)
                effect[:, part] = moved(rows, **{name: np.sqrt(_mean_square(limits))}) - plain
                effects.append(effect)
        if (limits := settings.machine_stiffness) is not None:
            compliance = np.sqrt(_mean_square((1.0 / limits[1], 1.0 / limits[0])))
            machine[:, part] = moved(rows, stiffness=1.0 / compliance) - plain
    effects.append(machine)
    whole = np.stack(effects, axis=2) / unit[:, :, None] * valid[:, :, None]
    shifts = to_labels @ whole
    return np.asarray(shifts @ np.swapaxes(shifts, 1, 2))


def _mean_square(limits: tuple[float, float]) -> float:
    """The mean square of numbers that are log-uniform between the limits."""
    low, high = limits
    return low**2 if low == high else (high**2 - low**2) / (2.0 * np.log(high / low))
