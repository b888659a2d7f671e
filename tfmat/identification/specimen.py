"""One measured specimen: its tests on few points, the noise that they show, and its posterior. NumPy only."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.curves.measured_tests import MeasuredRecord, coarse
from tfmat.curves.settings import CurveSettings
from tfmat.identification.caveats import ABOVE_NOISE
from tfmat.identification.correlated_errors import correlated_errors
from tfmat.identification.least_squares import fit
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors
from tfmat.identification.posterior import Certificate, Posterior
from tfmat.identification.record_fit import widened
from tfmat.identification.sampling import adaptive_of_many
from tfmat.materials.law import Array, Law, TestSet
from tfmat.materials.numerics import Residuals

# A measured test counts on so many points; a further one has as many as those have, within limits.
_MOST_POINTS, _FEWEST_POINTS = 100, 16
# A fit inside the ranges whose residuals are no more than this factor larger is nearly as good.
_AS_GOOD = 1.5
# The posterior is sampled so often side by side: their scatter tells the error of its intervals.
_REPLICATES = 8
_COVERAGE = 0.95


@dataclasses.dataclass(frozen=True)
class Specimen:
    """The tests of a specimen, and how a further test of it would be.

    Attributes:
      law: which it follows.
      tests: its tests, one row; their unit is the standard deviation of each point.
      response: what was measured, in that unit, [points].
      noise: standard deviation of a point of a further test, MPa and -, of a driven strain and of a driven stress.
      points: of a further test.
      largest: response that a further test is ended at, MPa and -: what the specimen has borne.
    """

    law: Law
    tests: TestSet
    response: Array
    noise: tuple[float, float]
    points: int
    largest: tuple[float, float]


def specimen_of(
    law: Law, record: MeasuredRecord, settings: CurveSettings, labels: Array
) -> tuple[Specimen, Array]:
    """A measured record with the noise that its best fit shows, and the labels of that fit.

    Noise is as in the simulation, or what the fit leaves where it is more; residuals that are alike at neighbouring
    points make it larger by what they widen the intervals of least squares. The law's ranges are what is known of it
    beforehand; where no fit inside them is nearly as good as the best, it has the wider ones of least squares.
    """
    if ((labels < 0.0) | (labels > 1.0)).any():
        law, labels = _within_reach(law, record, labels)
    fewer = MeasuredRecord(record.name, coarse(record.tests, _MOST_POINTS))
    # Points that were averaged are fewer, and as exact together as all were.
    factor = _noise_factor(law, record, settings, labels)
    factor *= np.sqrt(fewer.num_points / record.num_points)
    unit = factor * _deviation(law, fewer)
    counts = [len(test) for test in fewer.tests]
    # A strength is of the family of laws: a further test goes as far as this specimen did, or not at all.
    stress = float(np.abs(np.concatenate([t.curve.stress_mpa for t in fewer.tests])).max())
    largest = np.inf if law.strength_mpa is None else max(stress, law.strength_mpa[0])
    specimen = Specimen(
        law,
        TestSet(fewer.test_set.histories, unit),
        fewer.response / unit,
        (factor * law.noise_mpa, factor * law.noise_strain),
        int(np.clip(np.median(counts), _FEWEST_POINTS, _MOST_POINTS)),
        (largest, law.rupture_strain),
    )
    return specimen, labels


def _within_reach(law: Law, record: MeasuredRecord, labels: Array) -> tuple[Law, Array]:
    """The law and the labels of its best fit inside its ranges; with wider ones where the fit [p] needs them."""
    weights = 1.0 / _deviation(law, record)
    points = Residuals(law, record.test_set, record.response[None], weights[None])
    wide = widened(law)
    outside = wide.to_labels(law.from_labels(labels[None]))
    with np.errstate(all="ignore"):
        free = np.square(dataclasses.replace(points, law=wide).values(outside)).sum()
        inside = fit(law, points.strain, points.stress, deviation=1.0 / points.weights).labels
        bound = np.square(points.values(inside)).sum()
    if bound <= _AS_GOOD**2 * free:
        return law, inside[0]
    return wide, np.clip(outside[0], 0.0, 1.0)


def _deviation(law: Law, record: MeasuredRecord) -> Array:
    """The standard deviation of each point under the law's own noise, [points], MPa or -."""
    found = record.deviation(law)
    if found is not None:
        return found
    drives = record.tests[0].programme.drives
    return np.full(record.num_points, law.noise_mpa if drives == "strain" else law.noise_strain)


def _noise_factor(
    law: Law, record: MeasuredRecord, settings: CurveSettings, labels: Array
) -> float:
    """The noise of a record over the law's own."""
    settings = settings.resolved()
    share = settings.noise_of_maximum[0] if settings.noise_of_maximum else 0.0
    least = []
    for test in record.tests:
        own, drawn = law.noise_mpa, settings.noise_mpa
        if test.programme.drives == "stress":
            own, drawn = law.noise_strain, settings.noise_strain
        drawn = np.hypot(drawn or 0.0, share * float(np.abs(test.response).max()))
        least.append(drawn / own)
    weights = 1.0 / _deviation(law, record)
    points = Residuals(law, record.test_set, record.response[None], weights[None])
    with np.errstate(all="ignore"):
        residuals = points.values(labels[None])[0]
        slopes = law.label_derivatives(record.test_set, labels[None])[0] * weights[:, None]
    freedom = max(len(residuals) - len(labels), 1)
    left = float(np.sqrt(residuals @ residuals / freedom))
    model = float(np.max(least))
    if left <= ABOVE_NOISE * model:
        return max(left, model)
    # Misfits are alike at neighbouring points, which together tell less than their number says.
    alike = correlated_errors(slopes, residuals)
    if alike is None:
        return left
    information = slopes.T @ slopes / left**2
    return left * float(np.sqrt(np.trace(information @ alike.covariance) / len(labels)))


def known_of(
    specimen: Specimen, starts: Array, seed: int = 0, replicates: int = _REPLICATES
) -> tuple[Posterior, NDArray[np.intp]]:
    """Samples the posterior of a specimen.

    Args:
      starts: labels [starts, p] in or near its mass.
      replicates: samplings, whose scatter tells the error of what they say together.

    Returns:
      The weighted draws of all samplings, which are exact where these have converged, and the sampling of each draw,
      [draws].
    """
    response = np.tile(specimen.response, (replicates, 1))
    target = target_of(specimen.law, specimen.tests, response, np.ones(response.shape, np.bool_))
    found = adaptive_of_many(
        target, np.tile(starts, (replicates, 1, 1)), generators_of(seed, replicates)
    )
    good = [each for each in found if each.converged] or found
    log_weights = [each.log_weights for each in good if each.log_weights is not None]
    joined = np.concatenate(log_weights) - np.log(len(good))
    has_converged = len(good) >= replicates / 2 and all(each.converged for each in good)
    certificate = Certificate(
        "resampled" if has_converged else "do not trust",
        pareto_k=max(each.certificate.pareto_k or 0.0 for each in good),
        effective_draws=float(1.0 / np.exp(2.0 * joined).sum()) if joined.size else 0.0,
    )
    evidence = scipy.special.logsumexp([each.log_evidence for each in good]) - np.log(len(good))
    posterior = Posterior(
        np.concatenate([each.labels for each in good]),
        certificate=certificate,
        parameters=tuple(specimen.law.identified),
        log_weights=joined,
        log_evidence=float(evidence),
    )
    return posterior, np.repeat(np.arange(len(good)), [len(each.labels) for each in good])


def intervals(values: Array, weights: Array) -> Array:
    """The 95 % interval of each column of weighted values [draws, q], between equal tails: [q, 2]."""
    ends = 0.5 + np.array([-0.5, 0.5]) * _COVERAGE
    found = np.empty((values.shape[1], 2))
    for i, column in enumerate(values.T):
        order = np.argsort(column)
        sums = np.cumsum(weights[order])
        found[i] = np.interp(ends * sums[-1], sums - 0.5 * weights[order], column[order])
    return found


def target_of(
    law: Law, tests: TestSet, response: Array, valid: NDArray[np.bool_]
) -> SimulatedErrors:
    return SimulatedErrors(
        law, NoiseModel(1.0, 0.0, None, response.shape[1]), tests, response, valid
    )


def generators_of(seed: int, count: int) -> Sequence[np.random.Generator]:
    return [np.random.default_rng([seed, i]) for i in range(count)]
