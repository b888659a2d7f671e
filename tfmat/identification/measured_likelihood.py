"""The likelihood of measured curves and records, whose errors nobody told. NumPy only.

Noise, its size and correlation, and the zero of the response are integrated over in closed form (`UnknownErrors`). What
machine, grips and extensometer add to the strain, or leave out, is one label more, behind those of the law: where a law
bends sharply its effect is not linear.

Stretches whose errors stand out count less (see `UnknownErrors`), which changes the best fit, and that the errors.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import scipy.special

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord, coarse
from tfmat.curves.record_resampling import noise_of_test
from tfmat.curves.toe import StrainError, noise_of
from tfmat.identification.least_squares import (
    COMPLIANCE,
    ZERO,
    deviation_by_strain_noise,
    elastic_strain,
    minima_near,
)
from tfmat.identification.likelihood import PRIOR_VARIANCE, Likelihoods, Rows
from tfmat.identification.unknown_errors import UnknownErrors
from tfmat.materials.law import Array, History, Law, TestSet

# Points that a longer curve is averaged to, and the tests of a record together, of which more would be slow to answer.
_MOST_POINTS, _MOST_OF_RECORD = 1000, 400
# Of the differences that slopes are taken from, in standard deviations of the compliance.
_STEP = 1e-3
# Noise is not smaller than this share of the largest response: so many digits are written.
_LEAST_NOISE = 1e-4
# Errors that noise alone makes as seldom are more than noise.
UNLIKE_NOISE = 0.01
# How often the best fit is made anew where errors stand out.
_FITS = 4
# Rows of labels that a law answers together.
_CHUNK = 512


@dataclasses.dataclass(frozen=True)
class MeasuredTests:
    """What was measured of one material: history, response [points], noise and error of the strain of each test."""

    histories: tuple[History, ...]
    responses: tuple[Array, ...]
    noise: tuple[float, ...]
    strain_errors: tuple[StrainError, ...]

    @classmethod
    def of(cls, measured: MeasuredCurve | MeasuredRecord) -> "MeasuredTests":
        """Takes a cleaned curve, or the tests of a record; noise is what the points show."""
        if isinstance(measured, MeasuredRecord):
            tests = measured.tests
            most = _MOST_OF_RECORD // len(tests)
            thinned = coarse(tests, max(most, 3 * max(len(test.turns) for test in tests)))
            return cls(
                tuple(test.history for test in thinned),
                tuple(test.response for test in thinned),
                tuple(_noise(noise_of_test(test), test.response) for test in thinned),
                tuple(test.curve.strain_error for test in thinned),
            )
        return cls.of_arrays(measured.strain, measured.stress_mpa, measured.strain_error)

    @classmethod
    def of_arrays(
        cls, strain: Array, stress: Array, strain_error: StrainError | None = None
    ) -> "MeasuredTests":
        """Takes one curve of rising strain, [points]."""
        if len(strain) > _MOST_POINTS:
            starts = np.arange(_MOST_POINTS) * len(strain) // _MOST_POINTS
            sizes = np.diff([*starts, len(strain)])
            strain, stress = (np.add.reduceat(array, starts) / sizes for array in (strain, stress))
        noise = _noise(noise_of(stress), stress)
        errors = (strain_error or StrainError(),)
        return cls((History(strain=strain[None]),), (stress,), (noise,), errors)

    def nearest(self, law: Law, starts: Array, scales: Sequence[Array] | None = None) -> Array:
        """Labels [p] that fit best, from starts [k, p]; noise counts as larger by scales, [points] of each test."""
        histories = tuple(
            history.changed(lambda array: np.repeat(array, len(starts), axis=0))
            for history in self.histories
        )
        response = np.concatenate(self.responses)
        deviation = np.repeat(self.noise, [len(each) for each in self.responses])
        if scales is not None:
            deviation = deviation * np.concatenate(scales)
        response, deviation = (np.tile(each, (len(starts), 1)) for each in (response, deviation))
        labels, cost = minima_near(law, TestSet(histories), response, starts, deviation)
        return labels[int(np.argmin(np.nan_to_num(cost, nan=np.inf)))]


def _noise(shown: float, response: Array) -> float:
    return max(shown, _LEAST_NOISE * float(np.abs(response).max()), 1e-300)


class MeasuredLikelihoods(Likelihoods):
    """The likelihoods of measured curves or records as functions of the labels of their law and of the compliance.

    The last label is even in 0-1, as the others are: the probability of a smaller compliance.

    Attributes:
      best: labels of the best fits, [curves, p].
    """

    nuisances = 1

    def __init__(self, law: Law, measured: Sequence[MeasuredTests], best: Array):
        """Takes what was measured, and labels [curves, p] of the best fits, or near them."""
        self.law, self._measured = law, measured
        self.best = np.clip(best, 0.0, 1.0)
        with np.errstate(all="ignore"):
            self._errors = [self._settled(i) for i in range(len(measured))]
        self._best = np.column_stack([self.best, np.full(len(best), 0.5)])

    def __len__(self) -> int:
        return len(self._measured)

    def log_density(self, curves: Rows, labels: Array) -> Array:
        """See `Likelihoods.log_density`; labels [k, p + 1]."""
        density = np.empty(len(labels))
        for i, rows in _blocks(curves, len(labels)):
            density[rows] = self._density(i, self._residuals(i, labels[rows]))
        return self._sorted(labels, density)

    def expansion(self, curves: Rows, labels: Array) -> tuple[Array, Array, Array]:
        """See `Likelihoods.expansion`; slopes and information are those for the errors of the best fit."""
        density, gradient = np.empty(len(labels)), np.zeros(labels.shape)
        information = np.zeros((*labels.shape, labels.shape[1]))
        for i, rows in _blocks(curves, len(labels)):
            pairs = [
                self._with_slopes(i, test, labels[rows]) for test in range(len(self._errors[i]))
            ]
            density[rows] = self._density(i, [residuals for residuals, _ in pairs])
            for errors, (residuals, slopes) in zip(self._errors[i], pairs, strict=True):
                weighted = slopes @ errors.precision
                gradient[rows] -= (weighted @ residuals[:, :, None])[:, :, 0]
                information[rows] += weighted @ np.swapaxes(slopes, 1, 2)
        return self._sorted(labels, density), gradient, information

    def _density(self, curve: int, residuals: Sequence[Array]) -> Array:
        pairs = zip(self._errors[curve], residuals, strict=True)
        with np.errstate(all="ignore"):
            return np.sum([errors.log_density(each) for errors, each in pairs], axis=0)

    def _sorted(self, labels: Array, density: Array) -> Array:
        """Log densities, -inf where terms that can change places are not in their order, or a law overflowed."""
        own = labels[:, :-1]
        unique = self.law.sorted_labels(own)
        if unique is not own:
            density = np.where((unique == own).all(axis=1), density, -np.inf)
        return np.where(np.isnan(density), -np.inf, density)

    def with_errors(
        self, curve: int, labels: Array, generator: np.random.Generator
    ) -> Array | None:
        """See `Likelihoods.with_errors`: parameters move with the compliance so that the response stays as it is.

        A network that knows noise alone draws labels from too narrow a range where there is more: their weights cannot
        tell of what they never reached.
        """
        if self.beyond_noise(curve) < UNLIKE_NOISE:
            return None
        _, _, information = self.expansion(slice(curve, curve + 1), self._best[[curve]])
        mixed = information[0, :-1, -1]
        moved = np.linalg.solve(
            information[0, :-1, :-1] + np.eye(len(mixed)) / PRIOR_VARIANCE, mixed
        )
        # One standard deviation of the compliance is so much of its label, where that begins.
        normal = generator.standard_normal((len(labels), 1))
        shift = -normal * moved / np.sqrt(2.0 * np.pi)
        return np.concatenate([labels + shift, scipy.special.ndtr(normal)], axis=1)

    def marginal(self, curve: int, labels: Array) -> Array:
        """See `Likelihoods.marginal`: by a parabola in the compliance."""
        row = slice(curve, curve + 1)
        normal = _normal(labels[:, -1:])
        information = self.expansion(row, self._best[[curve]])[2][0, -1, -1]
        step = 1.0 / np.sqrt(1.0 + information / (2.0 * np.pi))
        heights = []
        for side in (-1.0, 0.0, 1.0):
            tried = normal + side * step
            at = np.concatenate([labels[:, :-1], scipy.special.ndtr(tried)], axis=1)
            heights.append(self.log_density(row, at) - 0.5 * np.square(tried[:, 0]))
        below, here, above = heights
        slope, bend = 0.5 * (above - below), 2.0 * here - above - below
        bend = np.where(bend > 0.1, bend, 1.0)
        return np.asarray(here + 0.5 * slope**2 / bend - 0.5 * np.log(bend) + np.log(step))

    def predictive_p(
        self, curve: int, labels: Array, generator: np.random.Generator
    ) -> tuple[float, float]:
        """See `Likelihoods.predictive_p`; what is compared are errors that stand out in one stretch of a test."""
        pairs = list(zip(self._errors[curve], self._residuals(curve, labels), strict=True))
        of_tests = [errors.stretch_p(each, generator) for errors, each in pairs]
        worst = 1.0 - (1.0 - np.min(of_tests, axis=0)) ** len(of_tests)
        alone = self._beyond_noise(curve, [each for _, each in pairs])
        return float(worst.mean()), float(alone.mean())

    def beyond_noise(self, curve: int) -> float:
        """How probable noise is to leave as much as the best fit of a curve does."""
        return float(self._beyond_noise(curve, self._residuals(curve, self._best[[curve]]))[0])

    def _beyond_noise(self, curve: int, residuals: Sequence[Array]) -> Array:
        """How probable independent noise of the size that the points show is to leave as much, [k]."""
        pairs = list(zip(self._errors[curve], residuals, strict=True))
        ratios = [errors.noise_ratio(each) for errors, each in pairs]
        above, below = np.array([errors.noise_freedom for errors, _ in pairs]).T
        ratio = np.average(ratios, axis=0, weights=above)
        return np.asarray(scipy.special.fdtrc(above.sum(), below.sum(), ratio))

    def _answer(
        self, history: History, labels: Array, steps: Sequence[float] = (0.0,)
    ) -> list[Array]:
        """What is measured at labels [k, p + 1] but for noise, [k, points], the compliance moved by each step."""
        own, normal = labels[:, :-1], _normal(labels[:, -1])
        answer = self.law.label_stress(TestSet((history,)), own)
        if history.strain is None:
            return [answer for _ in steps]
        taken = COMPLIANCE * elastic_strain(history, answer)
        rows = history.changed(lambda array: np.broadcast_to(array, (len(own), *array.shape[1:])))
        found = []
        for step in steps:
            strain = history.strain - (normal + step)[:, None] * taken
            moved = dataclasses.replace(rows, strain=strain)
            is_moved = bool((normal + step).any())
            found.append(self.law.label_stress(TestSet((moved,)), own) if is_moved else answer)
        return found

    def _residuals(self, curve: int, labels: Array) -> list[Array]:
        """Answers minus what was measured, of each test: [k, groups]."""
        measured, found = self._measured[curve], []
        tests = zip(measured.histories, measured.responses, self._errors[curve], strict=True)
        for history, response, errors in tests:
            parts = [
                errors.averaged(self._answer(history, labels[i : i + _CHUNK])[0] - response)
                for i in range(0, len(labels), _CHUNK)
            ]
            found.append(np.concatenate(parts))
        return found

    def _with_slopes(self, curve: int, test: int, labels: Array) -> tuple[Array, Array]:
        """Residuals [k, groups] of a test and d answer / d label, [k, p + 1, groups].

        Those of the law's labels are taken at the strain as it was measured.
        """
        measured, errors = self._measured[curve], self._errors[curve][test]
        history = measured.histories[test]
        answer, ahead = self._answer(history, labels, (0.0, _STEP))
        density = np.exp(-0.5 * _normal(labels[:, -1]) ** 2) / np.sqrt(2.0 * np.pi)
        change = (ahead - answer) / (_STEP * density)[:, None]
        slopes = self.law.label_derivatives(TestSet((history,)), labels[:, :-1])
        joined = np.concatenate([slopes, change[:, :, None]], axis=2)
        residuals = errors.averaged(answer - measured.responses[test])
        return residuals, errors.averaged(np.swapaxes(joined, 1, 2))

    def _settled(self, curve: int) -> list[UnknownErrors]:
        """The errors of each test about the best fit, which is made anew where some of them count less."""
        tests, first = self._measured[curve], self.best[curve].copy()
        errors = self._errors_of(curve)
        for _ in range(_FITS):
            if all((one.scale == 1.0).all() for one in errors):
                break
            pairs = zip(errors, tests.responses, strict=True)
            scales = [one.of_points(len(response)) for one, response in pairs]
            starts = np.stack([first, self.best[curve]])
            self.best[curve] = np.clip(tests.nearest(self.law, starts, scales), 0.0, 1.0)
            errors = self._errors_of(curve)
        return errors

    def _errors_of(self, curve: int) -> list[UnknownErrors]:
        found, tests = [], self._measured[curve]
        best = np.append(self.best[curve], 0.5)[None]
        for history, response, noise, strain_error in zip(*vars(tests).values(), strict=True):
            answer = self._answer(history, best)[0][0]
            zero = np.full((len(response), 1), ZERO * float(np.abs(response).max()))
            noisier = deviation_by_strain_noise(history, response, answer, strain_error)
            found.append(UnknownErrors(np.nan_to_num(answer - response), zero, noise, noisier))
        return found


def _normal(labels: Array) -> Array:
    """Standard normal numbers with these probabilities of a smaller one."""
    return np.asarray(scipy.special.ndtri(np.clip(labels, 1e-12, 1.0 - 1e-12)))


def _blocks(curves: Rows, count: int) -> list[tuple[int, slice]]:
    """Each run of rows that belong to one curve."""
    if isinstance(curves, slice):
        return [(int(curves.start), slice(0, count))]
    ends = np.flatnonzero(np.diff(curves)) + 1
    bounds = [0, *ends.tolist(), count]
    return [(int(curves[a]), slice(a, b)) for a, b in itertools.pairwise(bounds)]
