"""Least squares for records of tests: starts, minima, intervals, other laws. NumPy only."""

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.errors import InputError
from tfmat.identification.results import COVERAGE
from tfmat.materials.law import Array, History, Law, Parameter, TestSet, driven_where
from tfmat.materials.numerics import Minimum, Residuals, even_labels, minimise
from tfmat.materials.registry import LAWS
from tfmat.records.programmes import refusal
from tfmat.records.record import MeasuredRecord, MeasuredTest, cells_of, coarse
from tfmat.records.tensile import StrainError, elastic_part, noise_of_both

# --------------------------------------------------------------------------------------------------
# Start values for least squares that ask nothing of a law but its stress. NumPy only.


# Number of identified parameters -> labels tried per curve, how many of the best of them start a coarse fit, and the
# points of the thinned curve that it fits. Laws of metals have four, and a kink at first yield: its place between two
# points makes local minima, which thinned curves would only make worse.
_EFFORT = {1: (16, 1, 32), 2: (24, 1, 32), 3: (96, 3, 64)}
_MOST_EFFORT = (384, 3, 1 << 30)
# Points of a curve that the labels are tried on.
_POINTS_TRIED = {1: 8, 2: 8}
_MOST_TRIED_POINTS = 24
_COARSE_ITERATIONS, _COARSE_TOLERANCE = 30, 1e-3
_STARTS_TOGETHER = 256
# A response to histories is not smooth over the labels, and points of a history cannot be thinned: more is tried on
# all points, fewer records at a time.
_TRIED_ON_TESTS, _STARTS_ON_TESTS, _CHUNK_OF_TESTS = 384, 16, 32


def start_labels(law: Law, strain: Array | TestSet, stress: Array, weights: Array) -> Array:
    """Labels near the global minimum, without start values: [curves, identified].

    A fixed set of labels that fills the box evenly is compared on a few points of each curve. Coarse fits to group
    means of the curve start from the best labels, and the best fit wins. The labels of a curve depend on its own
    points alone, however long the other curves are.

    Args:
      strain, stress, weights: [curves, points]; see `Residuals`.
    """
    if isinstance(strain, TestSet):
        return _labels_of_tests(law, strain, stress, weights)
    parameters = len(law.identified)
    count, fitted, points = _EFFORT.get(parameters, _MOST_EFFORT)
    tried = even_labels(count, parameters)
    labels = np.empty((len(strain), parameters))
    for first in range(0, len(strain), _STARTS_TOGETHER):
        rows = slice(first, first + _STARTS_TOGETHER)
        coarse = Residuals(law, *group_means(strain[rows], stress[rows], weights[rows], points))
        minima = [coarse_minimum(coarse, start) for start in _best_tried(coarse, tried, fitted)]
        costs = np.stack([minimum.cost for minimum in minima])
        best = np.where(np.isnan(costs), np.inf, costs).argmin(axis=0)
        found = np.stack([minimum.labels for minimum in minima])
        labels[rows] = found[best, np.arange(len(best))]
    return labels


def _labels_of_tests(law: Law, tests: TestSet, responses: Array, weights: Array) -> Array:
    """`start_labels` for a test set: even labels, of which the best ones each start a search."""
    tried, starts = even_labels(_TRIED_ON_TESTS, len(law.identified)), _STARTS_ON_TESTS
    count, parameters = len(responses), tried.shape[1]
    best = np.empty((count, starts, parameters))
    for first in range(0, count, _CHUNK_OF_TESTS):
        records = np.arange(count)[first : first + _CHUNK_OF_TESTS]
        repeated = tests[np.repeat(records, len(tried))]
        with np.errstate(all="ignore"):
            model = law.label_stress(repeated, np.tile(tried, (len(records), 1)))
            difference = model.reshape(len(records), len(tried), -1) - responses[records, None]
            cost = np.square(difference * weights[records, None]).sum(axis=2)
        cost = np.where(np.isfinite(cost), cost, np.inf)
        best[records] = tried[np.argsort(cost, axis=1)[:, :starts]]
    # All searches at once: see the note on many records in `levenberg_marquardt`.
    every = np.repeat(np.arange(count), starts)
    residuals = Residuals(law, tests[every], responses[every], weights[every])
    found = coarse_minimum(residuals, best.reshape(-1, parameters))
    costs = np.where(np.isnan(found.cost), np.inf, found.cost).reshape(count, starts)
    return found.labels.reshape(best.shape)[np.arange(count), costs.argmin(axis=1)]


def group_means(
    strain: Array, stress: Array, weights: Array, groups: int
) -> tuple[Array, Array, Array]:
    """Weighted means of neighbouring points, at most `groups` for each curve, with the means' weights.

    A curve's points that count (of a weight above zero) are shared out evenly, and its groups stand first: what is
    behind them has no weight.

    Returns:
      strain, stress, weights, each [curves, at most groups].
    """
    counted = weights > 0
    if not counted.all():
        # Points that count come first, in their own order.
        order = np.argsort(~counted, axis=1, kind="stable")
        strain, stress, weights = (
            np.take_along_axis(np.where(counted, array, 0.0), order, axis=1)
            for array in (strain, stress, weights)
        )
    count = counted.sum(axis=1)
    size = np.maximum(1, -(-count // groups))
    curves, points = strain.shape
    width = max(int((-(-count // size)).max()), 1)
    # The last column takes what does not count, and is thrown away.
    group = np.minimum(np.arange(points) // size[:, None], width)
    cell = (group + (width + 1) * np.arange(curves)[:, None]).ravel()

    def summed(values: Array) -> Array:
        sums: Array = np.bincount(cell, values.ravel(), curves * (width + 1)).astype(
            np.float64, copy=False
        )
        return sums.reshape(curves, width + 1)[:, :width]

    square = weights**2
    total = summed(square)
    divisor = np.where(total > 0, total, 1.0)
    return summed(strain * square) / divisor, summed(stress * square) / divisor, np.sqrt(total)


def coarse_minimum(
    residuals: Residuals, labels: Array, rivalry: tuple[float, int] | None = None
) -> Minimum:
    """A short search from labels [curves, parameters]; `rivalry` as of `minimise`."""
    return minimise(residuals, labels, _COARSE_ITERATIONS, _COARSE_TOLERANCE, rivalry=rivalry)


def _best_tried(coarse: Residuals, tried: Array, count: int) -> Array:
    """The `count` labels with the least sum of squares on a few points: [count, curves, parameters]."""
    cost = tried_costs(coarse, tried, _POINTS_TRIED.get(tried.shape[1], _MOST_TRIED_POINTS))
    if count == 1:
        return tried[cost.argmin(axis=1)][None]
    return np.moveaxis(tried[np.argpartition(cost, count, axis=1)[:, :count]], 1, 0)


def tried_costs(coarse: Residuals, tried: Array, points: int) -> Array:
    """Sum of squares of each label of `tried` [count, p] on `points` points of each curve: [curves, count].

    The points are spread evenly over the curve's own, which stand first.
    """
    counted = (coarse.weights > 0).sum(axis=1, keepdims=True)
    chosen = np.maximum((1 + np.arange(points)) * counted // points - 1, 0)
    assert not isinstance(coarse.strain, TestSet)
    strain, stress, weights = (
        np.take_along_axis(array, chosen, axis=1)
        for array in (coarse.strain, coarse.stress, coarse.weights)
    )
    repeated = np.repeat(strain, len(tried), axis=0)
    model = coarse.law.label_stress(repeated, np.tile(tried, (len(strain), 1)))
    difference = (model.reshape(len(strain), len(tried), -1) - stress[:, None]) * weights[:, None]
    cost = np.einsum("ckn,ckn->ck", difference, difference)
    # A law may overflow somewhere in a user's ranges.
    return np.where(np.isfinite(cost), cost, np.inf)


# --------------------------------------------------------------------------------------------------
# How much a curve tells of its parameters at most: the Cramér-Rao bound. NumPy only.


# Least eigenvalue of the matrix scaled to a unit diagonal. Below it rounding speaks, and the variance is as good as
# infinite.
_LEAST_EIGENVALUE = 1e-14
_RECORDS_TOGETHER = 1024


def cramer_rao_bound(
    law: Law,
    strain: Array | TestSet,
    labels: Array,
    noise_mpa: float,
    noise_relative: float = 0.0,
    valid: NDArray[np.bool_] | None = None,
) -> Array:
    """The least covariance of labels [curves, p], for known strain and Gaussian noise of the stress: σ²(JᵀJ)⁻¹.

    No unbiased estimator has a smaller variance: H. Cramér, Mathematical Methods of Statistics (1946), ch. 32; C. R.
    Rao, Bull. Calcutta Math. Soc. 37 (1945) 81-91.

    With noise in proportion to the stress the spread of the points itself tells of the parameters: the Fisher
    information is Σ (1/σᵢ² + 2 r⁴τᵢ²/σᵢ⁴) Jᵢ Jᵢᵀ then, σᵢ² = noise_mpa² + (r τᵢ)² (S. M. Kay, Fundamentals of
    Statistical Signal Processing 1 (1993), eq. 3.31). Where the cut-off of a curve is drawn at random, what the place
    of the cut tells is left out.

    Args:
      strain: [curves, points], -; valid: [curves, points], None is all.
      noise_mpa, noise_relative: standard deviation in MPa, and as a fraction of the stress, in quadrature.

    Returns:
      [curves, p, p].
    """
    labels = np.asarray(labels, np.float64)
    information = np.empty((*labels.shape, labels.shape[1]))
    for first in range(0, len(labels), _RECORDS_TOGETHER):
        rows = slice(first, first + _RECORDS_TOGETHER)
        information[rows] = fisher_information(
            law,
            strain[rows],
            labels[rows],
            noise_mpa,
            noise_relative,
            None if valid is None else valid[rows],
        )
    return covariance_of(information)


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


def covariance_of(information: Array, *, without_open: bool = False) -> Array:
    """Inverse of symmetric matrices [curves, p, p]; where one is singular, a finite but very large one.

    With `without_open` a direction of the labels that changes nothing has no part in it.
    """
    diagonal = np.einsum("cii->ci", information)
    largest = np.maximum(diagonal.max(axis=1, keepdims=True), 1e-290)
    scale = 1.0 / np.sqrt(np.maximum(diagonal, 1e-20 * largest))
    eigenvalues, vectors = np.linalg.eigh(information * scale[:, :, None] * scale[:, None, :])
    inverse = 1.0 / np.maximum(eigenvalues, _LEAST_EIGENVALUE)
    if without_open:
        inverse = np.where(eigenvalues * _MOST_INFLATION > 1.0, inverse, 0.0)
    scaled = (vectors * inverse[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return scaled * scale[:, :, None] * scale[:, None, :]


# --------------------------------------------------------------------------------------------------
# The law of the family that fits a curve or tests clearly better than the own one. NumPy only.


# Another law fits clearly better when its error is this share of the own law's or less, and the evidence exceeds this
# (a Bayesian information criterion with a wide margin).
BETTER, EVIDENCE = 0.85, 20.0


def evidence_for(
    other: Law, law: Law, error: Array | float, own: Array | float, count: NDArray[np.integer] | int
) -> Array:
    """Twice the logarithm of the likelihoods' ratio to the own law, less the price of more parameters.

    The level of the noise is unknown. The price is from the Bayesian information criterion (G. Schwarz, Annals of
    Statistics 6 (1978) 461-464).

    Args:
      error, own: root mean square residual of both laws' best fits; count: points.
    """
    more = len(other.identified) - len(law.identified)
    return np.asarray(2 * count * np.log(own / error) - more * np.log(count))


def clearly_better(own: float, others: Iterable[tuple[str, float, float]]) -> str | None:
    """The law with most evidence of `others` (name, error, evidence) that fit clearly better; None where none does."""
    found = [each for each in others if each[1] < BETTER * own and each[2] > EVIDENCE]
    return max(found, key=lambda each: each[2])[0] if found else None


# --------------------------------------------------------------------------------------------------
# How uncertain least squares is where residuals are alike at neighbouring points, or uneven. NumPy only.
#
# A law that does not quite follow a curve leaves residuals that wander instead of jumping. They carry less
# information than their number says, and the fit has bent towards them. Their covariance is modelled as white noise
# plus noise that is alike along the curve, rough or smooth, of a share and a length that restricted maximum
# likelihood chooses (H. D. Patterson, R. Thompson, Recovery of inter-block information when block sizes are unequal,
# Biometrika 58 (1971) 545-554): it accounts for the parameters that were fitted.


# A longer curve is averaged in so many groups of neighbours.
_MOST_POINTS = 100
# Correlation lengths tried, as shares of the curve, and shares of the correlated part in the variance.
_LENGTHS = (0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.35)
_SHARES = (0.2, 0.5, 0.8, 0.95, 0.995)
# Correlation must raise the log likelihood by more than the two parameters that it costs.
_WORTH = 2.0
# Correlations whose log likelihood is not further than this from the best are as likely.
_LIKELY = 1.0
# The estimate of a few independent stretches is rough: no fewer degrees of freedom are counted.
_FEWEST_FREE = 2.0
# _SELDOM: how seldom even errors look as uneven, for them to be taken so.
_SELDOM = 1e-3
# _PLACES: strains at which a knee is missed, over the strain of first yield, as logarithms. _WIDTHS: of that misfit.
_PLACES, _WIDTHS = np.linspace(-0.5, 1.0, 7), (0.25, 0.5)
# _STANDS_OUT: a misfit raises the log likelihood by more. Noise of correlation 0.9 did so by 10 at most, but for one of
# 200 tests.
_STANDS_OUT = 12.0
# _OUTSIDE: beyond the misfit it is less than this share of its height.
_OUTSIDE = 0.01
# _YIELDED: plastic share of the strain from which a test counts as yielding.
_YIELDED = 0.03


@dataclasses.dataclass(frozen=True)
class Correlated:
    """The uncertainty of a least-squares fit with correlated errors; p parameters.

    Attributes:
      covariance: [p, p], of the labels.
      freedom: degrees of freedom of Student's t.
    """

    covariance: Array
    freedom: float


def correlated_errors(jacobian: Array, residuals: Array) -> Correlated | None:
    """The uncertainty that the residuals of a fit ask for; None where they are as good as independent.

    Args:
      jacobian: d residual / d label at the minimum, [points, p], in the order of the curve; residuals: [points].
    """
    slopes, errors = _grouped(jacobian, residuals)
    points = len(errors)
    finite = np.isfinite(slopes).all() and np.isfinite(errors).all()
    if points <= slopes.shape[1] + 2 or not finite:
        return None
    # On an orthonormal basis of the slopes nothing is singular but for rounding.
    basis, triangle = np.linalg.qr(slopes)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() <= 1e-12 * diagonal.max():
        return None
    tried = [one for alike in correlations(points) for one in alike]
    values = np.array([one.log_likelihood(basis, errors) for one in tried])
    inverse = np.linalg.inv(triangle)
    # The first is for independent errors.
    best = values[1:].max()
    if best <= values[0] + _WORTH:
        # Neighbours inside a group may be alike all the same: its means know of that.
        grouped = points < len(residuals)
        return _uncertainty(tried[0].matrix, basis, inverse, errors) if grouped else None
    likely = [
        _uncertainty(one.matrix, basis, inverse, errors)
        for one, value in zip(tried[1:], values[1:], strict=True)
        if value >= best - _LIKELY
    ]
    # A few wanderings of the residuals do not tell their length well: the widest of the likely answers is given.
    return max(likely, key=lambda one: float(np.trace(triangle @ one.covariance @ triangle.T)))


def uneven_errors(jacobian: Array, residuals: Array, answer: Array) -> Array | None:
    """The covariance [p, p] of a fit whose errors grow or fall with the answer; None where they are as good as even.

    Breusch and Pagan's test (Econometrica 47 (1979) 1287-1294, as R. Koenker has it, J. Econometrics 17 (1981)
    107-112) decides; the covariance is the sandwich HC3 of J. G. MacKinnon and H. White, J. Econometrics 29 (1985)
    305-325.

    Args:
      jacobian: d residual / d label at the minimum, [points, p]; residuals, answer: [points].
    """
    points, parameters = jacobian.shape
    finite = np.isfinite(jacobian).all() and np.isfinite(residuals).all()
    if points <= parameters + 2 or not finite:
        return None
    squares, size = np.square(residuals), np.abs(answer)
    spread = squares.std() * size.std()
    if not spread > 0.0:
        return None
    correlation = float(np.mean((squares - squares.mean()) * (size - size.mean()))) / spread
    # The upper tail of chi-square with one degree of freedom.
    if math.erfc(math.sqrt(0.5 * points * correlation**2)) > _SELDOM:
        return None
    basis, triangle = np.linalg.qr(jacobian)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() <= 1e-12 * diagonal.max():
        return None
    left = residuals / np.maximum(1.0 - np.square(basis).sum(axis=1), 1e-3)
    inverse = np.linalg.inv(triangle)
    return np.asarray(inverse @ ((basis.T * left**2) @ basis) @ inverse.T)


def missed_knee(
    law: Law, history: History, labels: Array, response: Array, deviation: Array
) -> Array | None:
    """Factors by which errors are larger where a law misses the knee of a test, [points]; None where it follows.

    A fit bends towards a knee that its law misses, and leaves little of the misfit. So smooth bumps near first yield
    are fitted one by one, together with the parameters. With a bump and without, the likelihood is the largest that any
    correlation of the errors gives: correlated noise is not taken for a knee.

    Args:
      history: of a test; only rising strain is looked at, and laws with a modulus.
      labels: of the fit, [1, p]; response: measured, [points]; deviation: of each point up to a factor, [points].
    """
    if history.strain is None or (np.diff(history.strain) < 0.0).any() or not _has_modulus(law):
        return None
    tests = TestSet((history,))
    answer = law.label_stress(tests, labels)
    has_yielded = history.strain - elastic_strain(history, answer) > _YIELDED * history.strain
    jacobian = law.label_derivatives(tests, labels)[0] / deviation[:, None]
    residuals = (answer[0] - response) / deviation
    first = int(has_yielded[0].argmax())
    if not (first and np.isfinite(jacobian).all() and np.isfinite(residuals).all()):
        return None
    strain = np.maximum(history.strain[0] / history.strain[0, first], 1e-9)
    places, widths = (each.ravel() for each in np.meshgrid(_PLACES, _WIDTHS))
    bumps = _smooth((np.log(strain)[:, None] - places) / widths)
    grouped, errors = _grouped(np.column_stack([jacobian, bumps / deviation[:, None]]), residuals)
    slopes, seen = np.split(grouped, [jacobian.shape[1]], axis=1)
    basis, sizes, _ = np.linalg.svd(slopes, full_matrices=False)
    basis = basis[:, sizes > 1e-10 * sizes.max(initial=0.0)]
    # The parameters do what the others leave as well.
    left = np.square(seen - basis @ (basis.T @ seen)).sum(axis=0)
    tells = np.flatnonzero(left > 0.01 * np.square(seen).sum(axis=0))
    if len(errors) <= basis.shape[1] + 2 or not len(tells):
        return None
    plain, best, height, chosen = -np.inf, -np.inf, 0.0, 0
    for family in correlations(len(errors)):
        turned = family[0].vectors.T @ np.column_stack([basis, errors, seen[:, tells]])
        for one in family:
            without, each, heights = one.log_likelihoods(turned, basis.shape[1])
            plain = max(plain, without)
            i = int(each.argmax())
            if each[i] > best:
                best, height, chosen = float(each[i]), abs(float(heights[i])), tells[i]
    bump = _smooth((np.log(strain) - places[chosen]) / max(_WIDTHS))
    elsewhere = residuals[bump < _OUTSIDE]
    if not (best - plain > _STANDS_OUT and len(elsewhere)):
        return None
    rest = max(float(np.sqrt(np.mean(np.square(elsewhere)))), 1e-3 * height)
    # Its points are off together: all of them tell no more than one does.
    return np.asarray(np.hypot(1.0, height * bump * np.sqrt(bump.sum()) / rest / deviation))


def _grouped(slopes: Array, residuals: Array) -> tuple[Array, Array]:
    """The means of neighbours, where there are many points: of slopes [points, p] and residuals [points]."""
    points = min(len(residuals), _MOST_POINTS)
    starts = np.arange(points) * len(residuals) // points
    count = np.diff([*starts, len(residuals)])
    means = np.add.reduceat(slopes, starts, axis=0) / count[:, None]
    return means, np.add.reduceat(residuals, starts) / count


def _uncertainty(correlation: Array, basis: Array, inverse: Array, errors: Array) -> Correlated:
    """The uncertainty for errors of this correlation: of the fit without weights, as it was made."""
    rest = np.eye(len(errors)) - basis @ basis.T
    seen = rest @ correlation
    variance = float(errors @ errors) / float(np.trace(seen))
    freedom = float(np.trace(seen) ** 2 / np.sum(seen * seen.T))
    spread = inverse @ (basis.T @ correlation @ basis) @ inverse.T
    return Correlated(variance * spread, max(freedom, _FEWEST_FREE))


@dataclasses.dataclass(frozen=True)
class Correlation:
    """One correlation of errors, by its eigenvectors [points, points] and their variances [points]."""

    vectors: Array
    variances: Array

    @property
    def matrix(self) -> Array:
        """[points, points]."""
        return np.asarray((self.vectors * self.variances) @ self.vectors.T)

    def log_likelihood(self, basis: Array, errors: Array) -> float:
        """Restricted, but for a constant, of a fit's residuals [points]; its slopes have the basis [points, p]."""
        columns = self.vectors.T @ np.column_stack([basis, errors])
        triangle = np.linalg.qr(columns / np.sqrt(self.variances)[:, None])[1]
        diagonal = np.abs(np.diag(triangle))
        # The last element is the length of what the slopes do not explain.
        if diagonal[-1] <= 0:
            return -np.inf
        free = len(errors) - basis.shape[1]
        logarithms = np.log(diagonal[:-1]).sum() + 0.5 * np.log(self.variances).sum()
        return float(-logarithms - free * np.log(diagonal[-1] / np.sqrt(free)))

    def log_likelihoods(self, turned: Array, slopes: int) -> tuple[float, Array, Array]:
        """The same where something is added, and its sizes: the log likelihood without, with each [added], and [added].

        Args:
          turned: a basis of `slopes` columns, then the residuals, then what is added, in the frame of the eigenvectors.
        """
        weighted = turned / np.sqrt(self.variances)[:, None]
        basis, triangle = np.linalg.qr(weighted[:, :slopes])
        left = weighted[:, slopes:] - basis @ (basis.T @ weighted[:, slopes:])
        errors, added = left[:, 0], left[:, 1:]
        squares = np.maximum(np.square(added).sum(axis=0), 1e-300)
        sizes = errors @ added / squares
        whole, half = max(float(errors @ errors), 1e-300), 0.5 * (len(errors) - slopes)
        rest = np.maximum(whole - sizes**2 * squares, 1e-12 * whole)
        logarithms = np.log(np.abs(np.diag(triangle))).sum() + 0.5 * np.log(self.variances).sum()
        return -logarithms - half * np.log(whole), -logarithms - half * np.log(rest), sizes


@functools.lru_cache(maxsize=16)
def correlations(points: int) -> tuple[tuple[Correlation, ...], ...]:
    """Independent errors, and errors of every length and share that is tried; of one length they share vectors."""
    distance = np.abs(np.subtract.outer(np.arange(points), np.arange(points))) / points
    found: list[tuple[Correlation, ...]] = [(Correlation(np.eye(points), np.ones(points)),)]
    for shape in (_rough, _smooth):
        for length in _LENGTHS:
            values, vectors = np.linalg.eigh(shape(distance / length))
            values = np.maximum(values, 0.0)
            found.append(
                tuple(Correlation(vectors, (1.0 - share) + share * values) for share in _SHARES)
            )
    return tuple(found)


def _rough(distance: Array) -> Array:
    """Correlation of noise that jumps a little from point to point, at distances over its length."""
    return np.exp(-distance)


def _smooth(distance: Array) -> Array:
    """Correlation of noise that bends, at distances over its length."""
    return np.exp(-0.5 * distance**2)


# --------------------------------------------------------------------------------------------------
# Classical identification: least squares for many curves at once, with intervals. NumPy only.
#
# The baseline that a network is measured with.


# _MOST_ITERATIONS: steps of a search; tests that leave a direction nearly open have long, bent valleys.
_MOST_ITERATIONS = 200
# Largest inflation of a variance by the other parameters; double precision resolves no more.
_MOST_INFLATION = 1e12

# _NORMAL: half the width of an interval of COVERAGE, in standard deviations of a normal distribution.
_NORMAL = statistics.NormalDist().inv_cdf(0.5 + COVERAGE / 2)
# _NODES, _QUANTILE_STEPS: of the quadrature and of Newton's method by which Student's quantile is found, to rounding.
_NODES, _QUANTILE_STEPS = 32, 10

Flags = NDArray[np.bool_]
# Labels [rows, p], the rise of the sum of squares there [rows], and the curve of each [rows].
_Pool = list[tuple[Array, Array, NDArray[np.intp]]]
# How far the rise of the sum of squares at an end may be from what a linear law gives, as a share of it.
_LINEAR = 0.25
# _LEVEL: a label that raises the sum of squares by less than this many times what ends its interval, at the end of its
# range and without the others, has hardly any effect there.
_LEVEL = 9.0
# _BEND: such a label is not ruled out below this many times the rise that ends other intervals: 8.68 over 3.84, the
# 95 % limits with and without a bend at an unknown place (D. W. K. Andrews, Econometrica 61 (1993) 821-856, table I as
# corrected in 71 (2003) 395-397, one parameter).
_BEND = 2.26
# _ITERATIONS: steps of a search with one label held, at most.
_ITERATIONS = 20
# _TOLERANCE: such a search ends where a step promises less than this share of the rise that ends an interval.
_TOLERANCE = 0.02
# _AT_ONCE: searches side by side in which a few profiles are tried at several places.
_AT_ONCE = 8
# _BETWEEN: an end lies on a line between places where the root of the rise, over its value at the end, is so near 1.
_BETWEEN = 0.1
# _LEAST_NOISE: noise is not smaller than this share of the largest response, since no more digits are written.
_LEAST_NOISE = 1e-4
# ABOVE_NOISE: errors larger than so many times the noise are the law's.
ABOVE_NOISE = 2.0
# _BY_STRAIN: times the noise of the stress; a known error of the strain that makes less of it changes nothing.
_BY_STRAIN = 0.3
# COMPLIANCE: share of an elastic strain that machine and extensometer add or leave out, standard deviation. ISO 9513
# allows an extensometer of class 1 an error of 1 % of its reading; grips and alignment are taken to add as much.
COMPLIANCE = 0.02
# ZERO: standard deviation of the zero of a test's load, and of a strain that is measured, as a share of the largest.
ZERO = 0.005
# _STEP: share of the elastic strain in the difference that gives the effect of a compliance.
_STEP = 1e-4
# _TRIES: places at which a profile is tried, at most.
_TRIES = 16
# _NEAR: how near the end of an interval is found, as a share of its distance from the fit.
_NEAR = 0.02
# _LEAST_DISTANCE: the least distance of labels.
_LEAST_DISTANCE = 1e-7
# How often profiles are followed again from labels that other profiles came to.
_ROUNDS = 4


@dataclasses.dataclass(frozen=True)
class LeastSquaresFit:
    """The parameters that fit each curve best, and how well they are known. p identified parameters, in label order.

    Attributes:
      labels: [curves, p], 0-1; the fit is bounded by the law's ranges.
      values: [curves, p], in the parameters' units.
      sigma: estimated standard deviation of the noise, [curves]: MPa, or over the given deviation (then ideally 1).
        NaN where the curve has no more points than parameters.
      label_covariance: [curves, p, p] = sigma² (JᵀJ)⁻¹ on the scale of the labels, and what `fit` was asked to count.
      std: [curves, p], `label_std` in the parameters' units (to first order).
      interval_labels: 95 % interval by Student's t, [curves, p, 2], cut to 0-1: by the profile of the sum of squares
        where the law is far from linear (see `profile_limits`). 0 and 1 are ends that the curve does not rule out.
      interval: the same in the parameters' units: of a parameter on a logarithmic scale not symmetric.
      rmse_mpa: root mean square residual, [curves].
      at_bound: [curves, p], the answer stands at the end of its range.
      unidentifiable: [curves, p], the interval is wider than the range, or neither end of the range is ruled out, or
        JᵀJ is singular but for rounding: the curve says nothing of this parameter.
      widening: by what factor the standard deviations are larger than those for independent residuals, [curves, p];
        1 unless `fit` is asked for it.
      shared_std: the part of the labels' standard deviations by the usual errors of extensometer and load cell, which
        specimens may share, [curves, p]; 0 where `fit` counts none.
      minimum: where the search ended.
    """

    labels: Array
    values: Array
    sigma: Array
    label_covariance: Array
    std: Array
    interval_labels: Array
    interval: Array
    rmse_mpa: Array
    at_bound: Flags
    unidentifiable: Flags
    widening: Array
    shared_std: Array
    minimum: Minimum

    @property
    def label_std(self) -> Array:
        """The roots of the covariance's diagonal, [curves, p]."""
        return np.sqrt(np.einsum("cii->ci", self.label_covariance))


def fit(
    law: Law,
    strain: Array | TestSet,
    stress: Array,
    valid: Flags | None = None,
    *,
    start: Array | Minimum | None = None,
    deviation: Array | None = None,
    correlated: bool = False,
    compliance: float = 0.0,
    strain_shift: float = 0.0,
    zero: float = 0.0,
    loads: Sequence[float] = (),
    elsewhere: Array | None = None,
    thinned: Residuals | None = None,
    roughly: bool = False,
) -> LeastSquaresFit:
    """Least squares with Levenberg-Marquardt inside the law's ranges.

    Args:
      strain, stress: [curves, points], - and MPa; or a test set and its responses, [materials, points]. What stands at
        points that are not valid does not count.
      valid: [curves, points]; None is all.
      start: labels [curves, p] to start from, or where this search ended before; None finds them (`start_labels`).
      deviation: standard deviation of the noise of each point up to a factor, [curves, points], MPa; None is even.
      correlated: residuals of neighbouring points may be alike, as they are where the law does not follow the curve;
        covariance and intervals then account for it (see `correlated_errors`). Points stand in order.
      compliance: standard deviation of the share of an elastic strain that machine and extensometer add or leave out.
      strain_shift: standard deviation of a strain by which all points are off alike, -.
      zero: standard deviation of the zero of each test's load, and of a strain that is the answer, over the largest.
      loads: stress of each test, MPa, by which the zeroes of all may be off, see `load_effect`; empty is none.
      elsewhere: for one curve, labels [any, p] of other minima and from all over the range: searches from them look for
        what else the curve allows where a law is far from linear in its labels. None is quick, and may miss some.
      thinned: for one record of a law that is slow to answer, fewer of its points, which weigh as much as all do.
        Profiles are followed on them, about the response of the fit in place of the measured one.
      roughly: intervals from the slope at the fit alone.
    """
    residuals = _residuals(law, strain, stress, valid, deviation)
    if start is None:
        start = start_labels(law, residuals.strain, residuals.stress, residuals.weights)
    found = start if isinstance(start, Minimum) else _minimum(residuals, start)
    labels = found.labels
    counted = residuals.weights > 0
    freedom = (counted.sum(axis=1) - labels.shape[1]).astype(np.float64)
    sigma = np.sqrt(2.0 * found.cost / np.where(freedom > 0, freedom, np.nan))
    covariance = sigma[:, None, None] ** 2 * covariance_of(found.normal)
    independent_std = np.sqrt(np.einsum("cii->ci", covariance))
    if correlated:
        _count_correlation(residuals, labels, covariance, freedom)
    label_std = np.sqrt(np.einsum("cii->ci", covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        widening = np.where(label_std == independent_std, 1.0, label_std / independent_std)
    quantile = student_quantile(np.maximum(freedom, 1))
    half = quantile[:, None] * label_std
    rise = ((quantile * sigma)[:, None] * widening) ** 2
    added = shared = np.zeros_like(covariance)
    if compliance or strain_shift or zero or any(loads):
        added, shared = _by_errors(residuals, found, sigma, compliance, strain_shift, zero, loads)
    shared_std = np.sqrt(np.einsum("cii->ci", shared))
    off = _NORMAL * np.sqrt(np.einsum("cii->ci", added))
    interval_labels: Array
    if roughly:
        interval_labels = np.clip(labels[:, :, None] + [-1.0, 1.0] * half[:, :, None], 0.0, 1.0)
    elif thinned is None:
        interval_labels = profile_limits(residuals, found, half, rise, elsewhere)
    else:
        interval_labels = profile_limits(*_noiseless(thinned, found), half, rise, off=off)
        _open_what_levels_off(interval_labels, residuals, found, rise)
    if off.any():
        covariance += added
        label_std = np.sqrt(np.einsum("cii->ci", covariance))
        # Errors of the points and of the whole strain are independent of each other.
        distance = np.hypot(np.abs(interval_labels - labels[:, :, None]), off[:, :, None])
        interval_labels = np.clip(labels[:, :, None] + [-1.0, 1.0] * distance, 0.0, 1.0)
    ends = [law.identified_values(interval_labels[:, :, side]) for side in (0, 1)]
    slopes = law.label_slopes(law.from_labels(labels))
    return LeastSquaresFit(
        labels=labels,
        values=law.identified_values(labels),
        sigma=sigma,
        label_covariance=covariance,
        std=label_std * slopes,
        interval_labels=interval_labels,
        interval=np.stack(ends, axis=2),
        rmse_mpa=_rmse(residuals, found, counted),
        at_bound=(labels <= 0.0) | (labels >= 1.0),
        # Not `half >= 0.5`, so that a NaN (too few points) is unidentifiable too.
        unidentifiable=~(np.ptp(interval_labels, axis=2) < 1.0)
        | ~np.isfinite(half)
        | _singular(found.normal),
        widening=widening,
        shared_std=shared_std,
        minimum=found,
    )


def minima_near(
    law: Law, strain: Array | TestSet, stress: Array, start: Array, deviation: Array
) -> tuple[Array, Array]:
    """The labels [curves, p] of `fit` and their cost [curves], without the errors that take as long."""
    found = _minimum(_residuals(law, strain, stress, None, deviation), start)
    return found.labels, found.cost


def _minimum(residuals: Residuals, start: Array) -> Minimum:
    found = minimise(residuals, start, _MOST_ITERATIONS)
    unique = residuals.law.sorted_labels(found.labels)
    if unique is not found.labels:
        found = minimise(residuals, unique, _MOST_ITERATIONS)
    return found


def fit_with_noise(
    law: Law,
    strain: Array | TestSet,
    stress: Array,
    valid: Flags | None,
    noise_mpa: float,
    noise_relative: float,
    correlated: bool = False,
) -> LeastSquaresFit:
    """`fit` for noise of `noise_mpa` and, in quadrature, `noise_relative` of the stress without noise.

    The weights come from the stress of a first, even fit: weights from the measured stress would favour the points
    that the noise has lowered. `correlated` as of `fit`.
    """
    if noise_relative == 0.0:
        return fit(law, strain, stress, valid, correlated=correlated)
    first = fit(law, strain, stress, valid)
    if not isinstance(strain, TestSet):
        strain = np.asarray(strain, np.float64)
    model = law.label_stress(strain, first.labels)
    deviation = np.hypot(noise_mpa, noise_relative * model)
    # Purely relative noise vanishes at the origin, where the law is right whatever its parameters.
    floor = 1e-3 * deviation.max(axis=1, keepdims=True)
    return fit(
        law,
        strain,
        stress,
        valid,
        start=first.labels,
        deviation=np.maximum(deviation, floor),
        correlated=correlated,
    )


def _residuals(
    law: Law, strain: Array | TestSet, stress: Array, valid: Flags | None, deviation: Array | None
) -> Residuals:
    stress = np.asarray(stress, np.float64)
    weights = np.ones(stress.shape) if deviation is None else 1.0 / np.asarray(deviation)
    weights = np.broadcast_to(weights, stress.shape)
    if valid is not None and not np.all(valid):
        # Zeros, since NaN times a weight of zero is NaN.
        strain, stress = driven_where(strain, valid), np.where(valid, stress, 0.0)
        weights = np.where(valid, weights, 0.0)
    if not isinstance(strain, TestSet):
        strain = np.broadcast_to(np.asarray(strain, np.float64), stress.shape)
    return Residuals(law, strain, stress, weights)


def student_quantile(freedom: Array) -> Array:
    """Half the width of an interval of COVERAGE by Student's t with `freedom` >= 1 degrees of freedom; same shape.

    With t = sqrt(freedom) tan(angle) the density of the angle is cos(angle) ** (freedom - 1). SciPy has it too, but
    takes longer to load than the rest of a fit.
    """
    freedom = np.asarray(freedom, np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    gamma = np.array([math.lgamma(0.5 * f + 0.5) - math.lgamma(0.5 * f) for f in freedom.flat])
    constant = 2.0 / math.sqrt(math.pi) * np.exp(gamma.reshape(freedom.shape))
    angle = np.arctan(_NORMAL / np.sqrt(freedom))
    for _ in range(_QUANTILE_STEPS):
        density = np.cos(0.5 * angle[..., None] * (1.0 + nodes)) ** (freedom[..., None] - 1.0)
        covered = constant * 0.5 * angle * (density @ weights)
        angle += (COVERAGE - covered) / (constant * np.cos(angle) ** (freedom - 1.0))
    return np.sqrt(freedom) * np.tan(angle)


def _noiseless(thinned: Residuals, found: Minimum) -> tuple[Residuals, Minimum]:
    """Fewer points, of the fit's own response, and their fit, which is exact."""
    response = thinned.law.label_stress(thinned.strain, found.labels)
    points = dataclasses.replace(thinned, stress=response)
    return points, dataclasses.replace(found, cost=np.zeros_like(found.cost))


def _count_correlation(
    residuals: Residuals, labels: Array, covariance: Array, freedom: Array
) -> None:
    """Replaces, in place, covariance [curves, p, p] and freedom [curves] of curves whose residuals are correlated."""
    values = residuals.values(labels)
    slopes = residuals.law.label_derivatives(residuals.strain, labels)
    slopes *= residuals.weights[:, :, None]
    for i in range(len(labels)):
        counts = residuals.weights[i] > 0
        jacobian, errors = slopes[i, counts], values[i, counts]
        found = correlated_errors(jacobian, errors)
        if found is not None:
            covariance[i], freedom[i] = found.covariance, found.freedom
        answer = residuals.stress[i, counts] + errors / residuals.weights[i, counts]
        uneven = uneven_errors(jacobian, errors, answer)
        if uneven is not None:
            # Each parameter has the larger of its two standard deviations.
            with np.errstate(invalid="ignore", divide="ignore"):
                more = np.sqrt(np.diag(uneven) / np.diag(covariance[i]))
            more = np.fmax(more, 1.0)
            covariance[i] *= np.outer(more, more)


def _by_errors(
    residuals: Residuals,
    found: Minimum,
    sigma: Array,
    compliance: float,
    shift: float,
    zero: float,
    loads: Sequence[float],
) -> tuple[Array, Array]:
    """The covariance that errors of whole tests add to the labels, and its part that specimens may share.

    Where a point lies on a kink the slopes hold for one of its sides: an error of the strain is taken for the side that
    goes with them.

    Args:
      sigma: standard deviation of the residuals, [curves].
      compliance, shift, zero, loads: as `compliance`, `strain_shift`, `zero` and `loads` of `fit`.

    Returns:
      Two covariances, [curves, p, p].
    """
    law, driven, weights = residuals.law, residuals.strain, residuals.weights
    tests = driven if isinstance(driven, TestSet) else TestSet((History(strain=driven),))
    slopes, values = residuals.jacobian(found.labels), residuals.values(found.labels)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # From these very slopes: the search's JᵀJ is a step older, and long steps hardly change some responses. That
        # step, or rounding where nothing holds a label, would look like errors that the residuals tell of.
        held = covariance_of(np.swapaxes(slopes, 1, 2) @ slopes, without_open=True)

    def by(size: float, effects: Array) -> Array:
        weighted = size * effects * weights[:, :, None]
        return _moved_by(slopes, held, values, sigma, weighted)

    def by_strain(size: float, is_shift: bool) -> Array:
        below, above = (
            strain_effect(law, tests, found.labels, step, is_shift)[:, :, None]
            for step in (-_STEP, _STEP)
        )
        unexplained = (
            np.square(_taken(slopes, held, side * weights[:, :, None])[1]).sum(axis=(1, 2))
            for side in (below, above)
        )
        nearer = np.less(*unexplained)
        return by(size, np.where(nearer[:, None, None], below, above))

    added = np.zeros_like(found.normal)
    shared = np.zeros_like(found.normal)
    if compliance:
        added += by_strain(compliance, False)
        shared += min(COMPLIANCE / compliance, 1.0) ** 2 * added
    if shift:
        added += by_strain(shift, True)
    if zero:
        of_zero = by(zero, _zeroes(law, tests, found.labels, residuals.stress))
        added += of_zero
        # One load cell may be off by as much in the tests of all specimens.
        shared += of_zero
    if any(loads):
        sizes = iter(loads)
        effects = tests.joined(lambda one: load_effect(law, one, found.labels, next(sizes)))
        of_load = by(1.0, effects[:, :, None])
        added += of_load
        shared += of_load
    return added, shared


def _taken(slopes: Array, held: Array, effects: Array) -> tuple[Array, Array]:
    """How far errors move the labels, and what of their effects the slopes leave; arguments as of `_moved_by`."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        moved = held @ (np.swapaxes(slopes, 1, 2) @ effects)
        return moved, effects - slopes @ moved


def _moved_by(slopes: Array, held: Array, values: Array, sigma: Array, effects: Array) -> Array:
    """The covariance that errors add to the labels of a fit which took them for zero, [curves, p, p].

    To first order errors δ whose effects on the responses are D move a fit with the slopes J by (JᵀJ)⁻¹JᵀD δ. The
    part of D that J does not explain shows in the residuals, and tells of δ. So the mean square of δ given the
    residuals counts, or 1 where that is less.

    Args:
      slopes: J, [curves, points, p]; held: (JᵀJ)⁻¹ without what is open, [curves, p, p]; values: the residuals,
        [curves, points], of standard deviation `sigma` [curves].
      effects: D, of errors that are independent and have standard deviation 1, [curves, points, errors].
    """
    variance = np.square(sigma)[:, None, None]
    moved, left = _taken(slopes, held, effects)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Their own axes keep rounding out of errors that the residuals tell nothing of.
        sizes, axes = np.linalg.eigh(np.nan_to_num(np.swapaxes(left, 1, 2) @ left))
        known = variance + np.maximum(sizes, 0.0)[:, :, None]
        mean = np.swapaxes(left @ axes, 1, 2) @ values[:, :, None] / known
        square = variance / known * np.eye(len(known[0])) + mean @ np.swapaxes(mean, 1, 2)
        square = axes @ square @ np.swapaxes(axes, 1, 2)
        root = np.sqrt(np.maximum(np.einsum("cii->ci", square), 1.0))
        square /= root[:, :, None] * root[:, None, :]
        added = moved @ square @ np.swapaxes(moved, 1, 2)
    return np.where(np.isfinite(added), added, 0.0)


def zero_effects(law: Law, history: History, labels: Array, response: Array) -> Array:
    """How far each point of a test moves with its zeroes, over each channel's largest value: [curves, points, 1 or 2].

    The zero of what the law answers moves all points alike. Where the stress is driven, the zero of the load is another
    error: a creep rate is the stress to the power of n.

    Args:
      labels: [curves, p]; response: measured, [curves, points].
    """
    largest = np.abs(response).max(axis=1, keepdims=True)
    effects = [np.broadcast_to(largest, response.shape)]
    if history.stress is not None:
        off = _STEP * np.abs(history.stress).max(axis=1, keepdims=True)
        moved = dataclasses.replace(history, stress=history.stress + off)
        before, after = (law.label_stress(TestSet((one,)), labels) for one in (history, moved))
        effects.append((after - before) / _STEP)
    return np.stack(effects, axis=2)


def load_effect(law: Law, history: History, labels: Array, load: float) -> Array:
    """A standard deviation of a test's points, [curves, points], where the load (MPa) that it began with may be none.

    Without that load the answer lies at the end of a 95 % interval.
    The elastic strain of that load was added to the strain: elastic points lie where they did, others higher. A load
    that is off makes the true stress of a longer specimen too large in proportion.
    """
    answer = law.label_stress(TestSet((history,)), labels)
    if load == 0.0 or history.strain is None:
        return np.zeros_like(answer)
    longer = np.exp(history.strain) if law.stress_measure == "true" else 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        compliance = np.nanmax(elastic_strain(history, answer) / answer, axis=1, keepdims=True)
    before = dataclasses.replace(history, strain=history.strain - _STEP * load * compliance)
    by_strain = (law.label_stress(TestSet((before,)), labels) - answer) / _STEP
    return np.asarray((load * longer + by_strain) / _NORMAL)


def _zeroes(law: Law, tests: TestSet, labels: Array, response: Array) -> Array:
    """The effects of the zeroes of every test, one error after the other: [curves, points, errors]."""
    found, start = [], 0
    for history in tests.histories:
        points = slice(start, start := start + history.driven.shape[1])
        effects = zero_effects(law, history, labels, response[:, points])
        found.append(np.zeros((*response.shape, effects.shape[2])))
        found[-1][:, points] = effects
    return np.concatenate(found, axis=2)


def strain_effect(
    law: Law, tests: TestSet, labels: Array, step: float = _STEP, is_shift: bool = True
) -> Array:
    """The change of the response by a machine that adds a strain as large as the elastic one, [curves, points].

    From a small share `step` of that, of either sign. For a shift it is the change by a strain of 1 everywhere.
    """

    def of_test(history: History) -> Array:
        answer = law.label_stress(TestSet((history,)), labels)
        taken = elastic_strain(history, answer)
        if history.strain is None:
            return np.ones_like(answer) if is_shift else taken
        largest = taken.max(axis=1, keepdims=True)
        by = step * (largest if is_shift else taken)
        moved = dataclasses.replace(history, strain=history.strain - by)
        change = law.label_stress(TestSet((moved,)), labels) - answer
        return np.asarray(change / (step * largest if is_shift else step))

    return tests.joined(of_test)


def deviation_by_strain_noise(
    history: History, response: Array, answer: Array, strain_error: StrainError | None = None
) -> Array | None:
    """The noise of each point over the noise where the curve is flat, [points]; None where noise is as good as even.

    Noise of the strain counts times the slope of the best answer. It is not taken from curves that their law misses by
    more than their noise, whose errors are of another kind. An error that is known beforehand counts whatever the
    points show: steps of the strain also blur the curve where that bends.

    Args:
      history: one rising test; response, answer: [points], measured and of the best fit.
      strain_error: of the points, as far as it is known beforehand.
    """
    if history.strain is None:
        return None
    strain = history.strain[0]
    stress_noise, strain_noise = noise_of_both(strain, response)
    stress_noise = max(stress_noise, _LEAST_NOISE * float(np.abs(response).max()))
    known = stress_by_strain(strain, answer, strain_error or StrainError())
    is_known = bool(known.max() > _BY_STRAIN * stress_noise)
    if strain_noise == 0.0 and not is_known:
        return None
    found = np.gradient(answer, strain) * strain_noise
    deviation = np.hypot(1.0, np.maximum(np.abs(found), known) / stress_noise)
    left = float(np.sqrt(np.mean(np.square((answer - response) / deviation))))
    if left <= ABOVE_NOISE * stress_noise:
        return deviation
    return np.hypot(1.0, known / stress_noise) if is_known else None


def stress_by_strain(strain: Array, answer: Array, error: StrainError) -> Array:
    """The error of the answer's stress [points] where the strain [points] has this error, [points]."""
    if error.deviation == 0.0:
        return np.zeros(len(strain))
    starts_late = int(strain[0] > 0.0)
    # The slope of the first of few points is the one that leads to it.
    strain, answer = (np.concatenate([[0.0][:starts_late], each]) for each in (strain, answer))
    chords = np.diff(answer) / np.diff(strain)
    before, after = np.append(chords[:1], chords), np.append(chords, chords[-1:])
    steepest = np.maximum(np.abs(before), np.abs(after))
    # The mean over a step of a line with a bend in its middle, where it is furthest from the line.
    bend = np.abs(after - before) * error.step / 8.0
    return np.hypot(steepest * error.deviation, bend)[starts_late:]


def elastic_strain(history: History, answer: Array) -> Array:
    """The stress over the largest secant modulus of its test's first rise: [curves, points].

    Zero for a test that never rises, which has no such modulus.

    Args:
      answer: [curves, points], stress where the strain is driven, else strain.
    """
    driven = history.driven
    strain, stress = (answer, driven) if history.strain is None else (driven, answer)
    size = np.abs(driven)
    rising = np.logical_and.accumulate(np.diff(size, prepend=0.0, axis=1) >= 0.0, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        secants = np.where(rising & (strain != 0.0), np.abs(stress / strain), 0.0)
    modulus = secants.max(axis=1, initial=0.0)
    return stress / np.where(modulus > 0.0, modulus, np.inf)[:, None]


def _singular(normal: Array) -> Flags:
    """Parameters that change nothing, or nothing that the others do not change too: [curves, p]."""
    diagonal = np.einsum("cii->ci", normal)
    inflation = diagonal * np.einsum("cii->ci", covariance_of(normal))
    nothing = diagonal <= 1e-18 * diagonal.max(axis=1, keepdims=True)
    return nothing | (inflation > _MOST_INFLATION)


def _rmse(residuals: Residuals, found: Minimum, counted: Flags) -> Array:
    """Root mean square of the residuals that count, MPa: [curves]."""
    count = counted.sum(axis=1)
    weights = residuals.weights
    if np.all((weights == 1.0) | ~counted):
        return np.sqrt(2.0 * found.cost / count)
    model = residuals.law.label_stress(residuals.strain, found.labels)
    difference = np.where(counted, model - residuals.stress, 0.0)
    return np.sqrt((difference**2).sum(axis=1) / count)


def profile_limits(
    residuals: Residuals,
    found: Minimum,
    half: Array,
    rise: Array,
    elsewhere: Array | None = None,
    off: Array | None = None,
) -> Array:
    """Ends of the intervals that the profile of the sum of squares gives; 0 and 1 where the curve leaves them open.

    The profile of a label is the least sum of squares where that label is held and the others are fitted anew. It ends
    the interval where it has risen by `rise`: D. M. Bates, D. G. Watts, Nonlinear Regression Analysis and Its
    Applications (1988), section 6.1. A curve keeps the ends that the slope at the fit gives, if the sum of squares at
    all these ends has risen as it does for a law that is linear in its labels.

    Args:
      found: the fit.
      half: half-width of the intervals that the slope at the fit gives, [curves, p].
      rise: the sum of squares may rise by this much, [curves, p].
      elsewhere: as of `fit`.
      off: half-width that other errors alone give, [curves, p], to be added in quadrature to what is returned. Profiles
        are followed as far as they then count. None is none.

    Returns:
      Ends on the scale of the labels, [curves, p, 2].
    """
    best = found.labels
    room = np.stack([best, 1.0 - best], axis=2)
    distance = np.fmin(half[:, :, None], room)
    with np.errstate(invalid="ignore", divide="ignore"):
        linear = (distance / half[:, :, None]) ** 2
        sides = _Sides.of(residuals, found, rise, off)
        height = sides.height(sides.moved(distance.reshape(-1))).reshape(room.shape)
        bent = ~(np.abs(height - linear) <= _LINEAR * linear).all(axis=(1, 2))
    # Too few points tell no noise, and so no rise.
    bent &= (np.isfinite(rise) & (rise > 0.0)).all(axis=1)
    is_open = (distance >= room) & (height <= 1.0)
    pool: _Pool = []
    if elsewhere is not None:
        placed = residuals.law.placed_labels(elsewhere)
        pool = [sides.rows(np.zeros(len(elsewhere), np.intp)).pooled(placed)]
        bent |= bool((sides.farthest(pool)[1] > distance.reshape(-1)).any())
    if bent.any():
        rows = np.flatnonzero(np.repeat(bent, room[0].size))
        ends = sides.rows(rows).ends(distance.reshape(-1)[rows], pool, elsewhere)
        distance[bent] = ends.reshape(-1, *room.shape[1:])
        is_open[bent] = (distance >= sides.room.reshape(room.shape) * (1.0 - _NEAR))[bent]
    limits = best[:, :, None] + distance * [-1.0, 1.0]
    return np.asarray(np.clip(np.where(is_open, [0.0, 1.0], limits), 0.0, 1.0))


def _open_what_levels_off(limits: Array, residuals: Residuals, found: Minimum, rise: Array) -> None:
    """Opens, in place, ends of intervals [curves, p, 2] to the ends of ranges that the measured points allow.

    A profile about the fit's own response knows no noise. A label may have no effect beyond a bend, such as a largest
    damage that the test did not reach. Then noise decides on which side of the bend the fit stands, and how much worse
    all labels beyond are. The fit has the best of all places of the bend: the sum of squares rises further by chance
    than it does for a label that has an effect everywhere.
    """
    best = found.labels
    sides = _Sides.of(residuals, found, rise)
    far = sides.alone(np.stack([best, 1.0 - best], axis=2).reshape(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        level = sides.height(far) < _LEVEL
    rows = np.flatnonzero(level & ((limits > 0.0) & (limits < 1.0)).reshape(-1))
    if len(rows):
        part = sides.rows(rows)
        rises = part._search(far[rows], [])[1]
        rows = rows[rises <= _BEND * part.rise]
        limits.reshape(-1)[rows] = np.tile([0.0, 1.0], best.size)[rows]


@dataclasses.dataclass(frozen=True)
class _Sides:
    """The two sides of labels of curves, one row each.

    Attributes:
      residuals: of the curve of each row; curve: its number, [rows]; cost: of its best fit, [rows].
      best: its labels, [rows, p]; column: the label that is held, [rows]; side: -1 or 1, [rows].
      slope: the labels' change with the held one to first order, [rows, p].
      rise: of the sum of squares at the end of the interval, [rows].
      off: as of `profile_limits`, [rows].
    """

    residuals: Residuals
    curve: NDArray[np.intp]
    cost: Array
    best: Array
    column: NDArray[np.intp]
    side: Array
    slope: Array
    rise: Array
    off: Array

    @classmethod
    def of(
        cls, residuals: Residuals, found: Minimum, rise: Array, off: Array | None = None
    ) -> "_Sides":
        """Both sides of all labels of all curves, the column changing faster than the curve and the side fastest."""
        curves, parameters = found.labels.shape
        curve = np.repeat(np.arange(curves), 2 * parameters)
        column = np.tile(np.repeat(np.arange(parameters), 2), curves)
        covariance = covariance_of(found.normal)[curve, column]
        slope = covariance / covariance[np.arange(len(curve)), column, None]
        # The effect of a label that changes nothing on the others is not known.
        slope = np.where(np.isfinite(slope).all(axis=1, keepdims=True), slope, 0.0)
        slope[np.arange(len(curve)), column] = 1.0
        return cls(
            residuals.rows(curve),
            curve,
            found.cost[curve],
            found.labels[curve],
            column,
            np.tile([-1.0, 1.0], curves * parameters),
            slope,
            np.repeat(rise.reshape(-1), 2),
            np.zeros(len(curve)) if off is None else np.repeat(off.reshape(-1), 2),
        )

    def rows(self, rows: NDArray[np.intp]) -> "_Sides":
        """Some of them."""
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "residuals"}
        return _Sides(self.residuals.rows(rows), **arrays)

    @property
    def room(self) -> Array:
        """How far a profile counts, [rows]: in quadrature with `off` this reaches the end of the range."""
        at = np.take_along_axis(self.best, self.column[:, None], 1)[:, 0]
        room = np.where(self.side > 0.0, 1.0 - at, at)
        return np.sqrt(np.maximum(np.square(room) - np.square(self.off), 0.0))

    def held(self, labels: Array) -> Array:
        """How far the held label of each row of labels [rows, p] lies on its side of the best, [rows]."""
        return np.asarray(
            self.side * np.take_along_axis(labels - self.best, self.column[:, None], 1)[:, 0]
        )

    def moved(self, distance: Array, labels: Array | None = None) -> Array:
        """Labels [rows, p], from the best or others, with the held one moved to a distance: the others follow it."""
        labels = self.best if labels is None else labels
        step = (self.side * (distance - self.held(labels)))[:, None]
        return np.clip(labels + step * self.slope, 0.0, 1.0)

    def alone(self, distance: Array) -> Array:
        """Labels [rows, p] of the best with the held one alone moved to a distance."""
        labels = self.best.copy()
        at = np.take_along_axis(labels, self.column[:, None], 1) + (self.side * distance)[:, None]
        np.put_along_axis(labels, self.column[:, None], np.clip(at, 0.0, 1.0), 1)
        return labels

    def height(self, labels: Array) -> Array:
        """The rise of the sum of squares at labels [rows, p] over what ends the interval, [rows]."""
        square = np.square(self.residuals.values(labels)).sum(axis=1) - 2.0 * self.cost
        return np.asarray(np.where(np.isnan(square), np.inf, square) / self.rise)

    def pooled(self, labels: Array) -> tuple[Array, Array, NDArray[np.intp]]:
        """Labels [rows, p] as an entry of a pool."""
        return labels, self.height(labels) * self.rise, self.curve

    def ends(self, first: Array, pool: _Pool, elsewhere: Array | None) -> Array:
        """How far each profile reaches, [rows], tried at distances `first` [rows] before others.

        Where a law has kinks, searches from the best fit may miss what other labels make possible. So every search
        tries the pool, all labels that any search has found so far, until none of them extends an interval. A parameter
        may have no influence at the best fit, such as the exponent of a term that went to zero. Then searches from
        elsewhere find what the other parameters can be.
        """
        room, inside = self.room, self.best
        reached, rows = np.zeros(len(first)), np.arange(len(first))
        for _ in range(_ROUNDS if elsewhere is not None else 1):
            part = self.rows(rows)
            found = part._ends(room[rows], inside[rows], first[rows], pool)
            reached[rows] = np.maximum(reached[rows], found)
            if elsewhere is not None:
                part._explore(room[rows], reached[rows], elsewhere, pool)
            inside, farthest = self.farthest(pool)
            rows = np.flatnonzero(farthest > reached * (1.0 + _NEAR) + _LEAST_DISTANCE)
            if not len(rows):
                break
            first = np.minimum(farthest + 0.1 * np.maximum(farthest, first), room)
        return reached

    def _explore(self, room: Array, reached: Array, elsewhere: Array, pool: _Pool) -> None:
        """Searches from elsewhere [any, p] for labels a little beyond what is reached; they join the pool."""
        rows = np.repeat(np.flatnonzero(reached < room), len(elsewhere))
        if not len(rows):
            return
        part = self.rows(rows)
        start = np.tile(elsewhere, (len(rows) // len(elsewhere), 1))
        distance = np.minimum(1.1 * reached + _LEAST_DISTANCE, room)[rows]
        at = np.take_along_axis(part.best, part.column[:, None], 1)[:, 0] + part.side * distance
        np.put_along_axis(start, part.column[:, None], at[:, None], 1)
        part._search(start, pool)

    def _search(self, start: Array, pool: _Pool) -> tuple[Array, Array]:
        """Labels [rows, p] and rise [rows] of the best fits with the held labels as they are in `start` [rows, p]."""
        held = np.zeros(start.shape, np.bool_)
        held[np.arange(len(start)), self.column] = True
        with np.errstate(divide="ignore", invalid="ignore"):
            tolerance = _TOLERANCE * self.rise / (2.0 * self.cost + self.rise)
        found = minimise(self.residuals, start, _ITERATIONS, tolerance, held)
        rise = 2.0 * (found.cost - self.cost)
        rise = np.where(np.isnan(rise), np.inf, rise)
        placed = self.residuals.law.placed_labels(found.labels)
        pool.append((placed, rise, self.curve))
        # Where terms have changed places the answer is another one's, and no part of this profile.
        moved = (placed != found.labels).any(axis=1)
        return found.labels, np.where(moved, np.inf, rise)

    def farthest(self, pool: _Pool) -> tuple[Array, Array]:
        """The labels of a pool inside each row's interval that reach the farthest: [rows, p] and [rows]."""
        labels, rise, curve = (np.concatenate(each) for each in zip(*pool, strict=True))
        inside, farthest = self.best.copy(), np.zeros(len(self.best))
        for row, column in enumerate(self.column):
            own = labels[(curve == self.curve[row]) & (rise <= self.rise[row])]
            distance = self.side[row] * (own[:, column] - self.best[row, column])
            if distance.max(initial=0.0) > 0.0:
                at = int(np.argmax(distance))
                inside[row], farthest[row] = own[at], distance[at]
        return inside, farthest

    def _ends(self, room: Array, inside: Array, first: Array, pool: _Pool) -> Array:
        """How far each profile reaches beyond labels `inside` [rows, p]; all labels that are found join the pool."""
        labels, below = inside.copy(), self.held(inside)
        above = np.full(len(room), np.inf)
        root_below, root_above = np.zeros(len(room)), np.full(len(room), np.inf)
        if below.any():
            root_below = np.sqrt(np.maximum(self.height(inside), 0.0))
        first = np.where(np.isfinite(first) & (first > below), first, 0.5 * (below + room))
        first = np.minimum(first, room)
        some, tried = np.flatnonzero(below < room), first[below < room, None]
        for number in range(_TRIES):
            if not len(some):
                break
            count = tried.shape[1]
            part = self.rows(np.repeat(some, count))
            start = part.moved(tried.reshape(-1), np.repeat(labels[some], count, axis=0))
            found, rise = part._search(start, pool)
            root = np.sqrt(np.maximum(rise / part.rise, 0.0)).reshape(tried.shape)
            for row, distances, roots, of_row in zip(
                some, tried, root, found.reshape(*tried.shape, -1), strict=True
            ):
                low = np.flatnonzero(roots <= 1.0)
                if len(low) and distances[low[-1]] > below[row]:
                    below[row], root_below[row] = distances[low[-1]], roots[low[-1]]
                    labels[row] = of_row[low[-1]]
                high = np.flatnonzero((roots > 1.0) & (distances > below[row]))
                if len(high) and distances[high[0]] < above[row]:
                    above[row], root_above[row] = distances[high[0]], roots[high[0]]
            # A profile that comes near its limit may never reach it: a place beyond has to show that.
            near = np.fmin(np.abs(root_below - 1.0), np.abs(root_above - 1.0)) <= _BETWEEN
            near &= np.isfinite(above)
            is_narrow = above - below <= _NEAR * below + _LEAST_DISTANCE
            some = np.flatnonzero((below < room) & ~near & ~is_narrow)
            lower, upper, root = below[some, None], above[some, None], root_below[some, None]
            is_open, end = np.isinf(upper), room[some, None]
            places = _AT_ONCE // max(len(some), 1)
            with np.errstate(invalid="ignore", divide="ignore"):
                if places > 1:
                    share = np.arange(1, places + 1) / (places + 1.0)
                    outer = lower ** (1.0 - share) * end**share
                    outer[:, -1] = end[:, 0]
                else:
                    # A line through both roots, and every third time the middle, for a kink misleads lines.
                    share = np.full(root.shape, 0.5)
                    if number % 3:
                        share = np.clip((1.0 - root) / (root_above[some, None] - root), 0.1, 0.9)
                    outer = np.minimum(lower * np.clip(1.02 / root, 1.2, 4.0), end)
                tried = np.where(is_open, outer, lower + share * (upper - lower))
        with np.errstate(invalid="ignore", divide="ignore"):
            between = below + (1.0 - root_below) / (root_above - root_below) * (above - below)
        return np.where(np.isinf(above), below, between)


# --------------------------------------------------------------------------------------------------
# Least squares for a record: from many starts, free of the trained ranges, and compared with other laws.
#
# Each record is fitted by itself, so that its answer never depends on what else is in the call.


# Points of all tests together that searches from many starts see. The last search sees all points of tests. Neighbours
# on one rising loading are averaged, and its fit is the same without more.
_SEARCHED_POINTS = 400
# Labels tried on a few points of the curve, and how many of them start a short search.
_TRIED, _TRIED_ONE, _TRIED_POINTS, _STARTS = 1024, 64, 40, 64
# So many start the search of a law that is compared on one rising loading: 501 such errors rose by 0.1 % at the most.
_RIVAL_STARTS = 16
# How many of the minima found so start full searches; minima whose labels all differ by less are one.
_FULL_STARTS, _SAME_MINIMUM = 10, 0.01
# Where fewer than half of these find the best minimum again, each of its parameters is moved to so many places, and all
# are searched for anew, until that finds nothing better by this share (at most so many times).
_HOPS, _WORTH_A_ROUND, MOST_ROUNDS = 12, 1e-4, 4
# Slow laws take no rounds: when short and full searches give up (`rivalry` of `minimise`).
_FAR, _NEARLY = (3.0, 5), (1.5, 10)
# _EXPLORERS: labels all over the ranges from which searches look beyond an end of an interval.
_EXPLORERS = 12
_AS_GOOD = 1.05  # Another law counts where parameters beyond their ranges may stand at their ends, but for this.
# How far beyond its range a parameter is looked for: the ends of a logarithmic range times or over the first; those
# of a positive linear one times or over the others. Factors, so that signs are kept.
_BEYOND_LOG, _BEYOND_HIGH, _BEYOND_LOW = 10.0, 3.0, 10.0
# A minimum that costs more than this times the best is no rival of it.
_RIVAL = 1.5
# Costs that differ by less are one minimum's.
_ALIKE = 1e-5
# Student's t of 95 % for many points.
_QUANTILE = 2.0
# _MANY_POINTS: differences of so many points show the noise, and not the bends of one rising loading.
_MANY_POINTS = 100
# _OF_REMOVED: share of a toe that was taken off which may go on in the elastic part, standard deviation.
_OF_REMOVED = 0.5
# _TO_STEEPEST: standard deviations from the fitted modulus to the steepest slope of a curve with a toe in it.
_TO_STEEPEST = 1.5
# _STEEPER: standard errors by which the steepest of many early parts exceeds a fit where no toe was seen.
_STEEPER = 3.0
# _ALONE: share of what all points tell of a modulus; a point that tells more is the only one.
_ALONE = 0.9


@dataclasses.dataclass(frozen=True)
class BestFit:
    """The parameters that fit one record best, wherever they lie; p identified parameters.

    Attributes:
      values, std: [p], in the parameters' units; interval: [p, 2], 95 %.
      labels: [p], on the scale of the law's ranges: below 0 or above 1 lies beyond.
      label_covariance: [p, p], on the same scale, widened as the intervals are.
      at_bound: [p], the value stands at the end of what was searched, far beyond its range.
      unidentifiable: [p], the interval is as wide as the range.
      is_open: [p, 2], the record does not bound the parameter on this side, as far as was searched.
      rmse_mpa: root mean square residual at the fitted points, over their deviation where they have one.
      widening: by what factor the widest interval is wider than it would be for independent residuals; 1 where they
        are independent.
      shared_std: [p], standard deviation of the labels by errors of extensometer and load cell, which specimens share.
    """

    values: Array
    std: Array
    interval: Array
    labels: Array
    label_covariance: Array
    at_bound: Flags
    unidentifiable: Flags
    is_open: Flags
    rmse_mpa: float
    widening: float
    shared_std: Array

    @property
    def is_unknown(self) -> Flags:
        """Parameters [p] that the record does not tell, or bounds on one side only."""
        return self.unidentifiable | self.is_open.any(axis=1)


@dataclasses.dataclass(frozen=True)
class RecordFit:
    """The best fit to a record, and where else searches ended.

    Attributes:
      best: see `BestFit`: the global minimum, as far as many starts can tell.
      minima: labels [minima, p] on the scale of the widened law, the best first; cost: half their sum of squares on the
        searched points, [minima].
      fitted: where the fit to the weighted points ended, which starts from the first of them.
      percent: root mean square residual of the first of them over the largest response, all points alike, %. It is
        what laws are ranked by: weights differ between laws.
      searched: the residuals that they belong to.
      record: the points that were fitted.
    """

    best: BestFit
    minima: Array
    cost: Array
    fitted: Minimum
    percent: float
    searched: Residuals
    record: MeasuredRecord

    @property
    def rivals(self) -> Array:
        """Minima that fit nearly as well, the best first, on the scale of the law's ranges: [rivals, p]."""
        law, near = self.searched.law, self.cost <= _RIVAL * self.cost[0]
        return law.to_labels(widened(law).from_labels(self.minima[near]))


def residuals_of(law: Law, record: MeasuredRecord) -> Residuals:
    """The weighted residuals of a record under a law."""
    deviation = record.deviation(law)
    weights = np.ones(record.num_points) if deviation is None else 1.0 / deviation
    return Residuals(law, record.driven, record.response[None], weights[None])


def fit_record(
    law: Law, record: MeasuredRecord, *, roughly: bool = False, found: RecordFit | None = None
) -> RecordFit:
    """The parameters that fit all tests of a record best, as far as many starts can tell.

    Labels that fill the law's ranges evenly are compared first; the best start short searches, and the best distinct
    minima of those full ones. The place of a kink (first yield) between two points makes many local minima close by.
    So each parameter of the best one is moved through its range and searched for anew. All searches may leave the
    law's ranges (see `widened`).

    Args:
      roughly: the intervals are those of the slope at the best fit, where their profile takes long.
      found: a rough fit of the same law to the same record, whose searches are not repeated.
    """
    few, whole = _on_points(record, _SEARCHED_POINTS), record
    record = record if record.curve is None else few
    searched = residuals_of(law, few)
    wide, slow = widened(law), _remembers(record)
    points = residuals_of(wide, record)
    # Far from the answer a law may overflow; such labels are not taken.
    with np.errstate(all="ignore"):
        if found is None:
            labels, cost = minima(searched, wide, _rounds(law, record))
            order = _preferred(law.to_labels(wide.from_labels(labels)), cost)
            labels, cost = labels[order], cost[order]
        else:
            labels, cost = found.minima, found.cost
        modulus = float(wide.identified_values(labels[:1])[0, 0]) if _has_modulus(law) else None
        deviation = _deviation(wide, record, points, labels[:1])
        fit_to = functools.partial(
            fit,
            wide,
            points.strain,
            points.stress,
            start=labels[:1],
            deviation=deviation,
            correlated=True,
            compliance=compliance_of(whole, modulus),
            strain_shift=0.0 if record.curve is None else record.curve.strain_error.shift,
            zero=ZERO,
            loads=[test.load_in_doubt for test in record.tests],
            # Laws that remember are slow to answer.
            elsewhere=None if slow else elsewhere(labels, cost),
            thinned=thinned(record, points) if slow else None,
            roughly=roughly,
        )
        fitted = fit_to() if found is None else fit_to(start=found.fitted)
        best = _with_open_ends(wide, points, fitted)
        if record.curve is not None and modulus is not None:
            if not roughly:
                best = _without_its_one_elastic_point(wide, points, best, fit_to)
            if not (roughly or slow):
                (history,) = record.test_set.histories
                off = missed_knee(wide, history, best.labels, points.stress[0], deviation[0])
                if off is not None:
                    if record.curve.toe_removed:  # what looked like a toe may be the misfit
                        fit_to = functools.partial(
                            fit_to, compliance=compliance_of(whole, modulus, toe_in_doubt=True)
                        )
                        wider = fit_to(start=fitted.minimum)
                        best = _with_both(wide, points, best, wider, np.ones(1))
                    refitted = fit_to(deviation=deviation * off, elsewhere=None)
                    best = _with_both(wide, points, best, refitted, off)
                    best = _down_to_toe(law, wide, record.curve, best)
            best = _modulus_in_range(law, wide, points, best)
        answer = wide.label_stress(whole.driven, labels[:1])
    return RecordFit(
        best=within(law, wide, best),
        minima=labels,
        cost=cost,
        fitted=fitted.minimum,
        percent=rms_percent(errors_of_tests(whole, answer[0])[1]),
        searched=searched,
        record=record,
    )


def compliance_of(
    record: MeasuredRecord, fitted_mpa: float | None = None, toe_in_doubt: bool = False
) -> float:
    """Standard deviation of the share of elastic strain that is off: more than usual where a curve begins with a toe.

    Slack and seating that go on where the elastic part was measured make it less steep than the material is. A fit to
    a toe that was left in the strain is less steep than the curve's steepest part, which the material is at least. So
    it is with a toe too short to be seen, where the steepest part differs by more than chance.

    Args:
      fitted_mpa: the modulus that fits best, where the law has one.
    """
    curve = record.curve
    line = None if curve is None else elastic_part(curve.strain, curve.stress_mpa)
    if curve is None or line is None:
        return COMPLIANCE
    share = curve.toe / (curve.toe + line.end_stress / line.slope)
    least = line.slope - (0.0 if curve.toe else _STEEPER * line.slope_error)
    if curve.toe_removed:
        share *= 1.0 if toe_in_doubt else _OF_REMOVED
    elif fitted_mpa is not None and least > fitted_mpa:
        share = max(share, float(np.log(line.slope / fitted_mpa)) / _TO_STEEPEST)
    return float(np.hypot(COMPLIANCE, share))


def _has_modulus(law: Law) -> bool:
    """Whether the law's first unknown is Young's modulus of a metal."""
    return law.identified[0].name == "E"


def _without_its_one_elastic_point(
    wide: Law, points: Residuals, found: LeastSquaresFit, fit_to: Callable[..., LeastSquaresFit]
) -> LeastSquaresFit:
    """The fit with intervals that also hold what the other points say, where one point alone tells the modulus.

    The best fit then takes that point for elastic and meets it exactly, though yield may lie before it. The modulus is
    at least the point's secant, and the other points say whether it may be any larger one.
    """
    slopes = wide.label_derivatives(points.strain, found.labels)[0] * points.weights[0][:, None]
    if not np.isfinite(slopes).all():
        return found
    others = slopes[:, 1:]
    own = slopes[:, 0] - others @ np.linalg.lstsq(others, slopes[:, 0], rcond=None)[0]
    square = np.square(own)
    alone = int(square.argmax())
    if not square[alone] > _ALONE * square.sum() or len(square) <= slopes.shape[1] + 2:
        return found
    valid = np.arange(len(square)) != alone
    without = fit_to(valid=valid[None], elsewhere=None)
    wider = _with_both(wide, points, found, without, np.where(valid, 1.0, np.inf))
    limits = wider.interval_labels.copy()
    limits[0, 0, 0] = found.interval_labels[0, 0, 0]
    return _with_limits(wide, found, limits)


def _with_both(
    wide: Law, points: Residuals, found: LeastSquaresFit, other: LeastSquaresFit, off: Array
) -> LeastSquaresFit:
    """The fit with intervals that include the intervals of a fit whose errors are larger by factors, [points]."""
    weaker = dataclasses.replace(points, weights=points.weights / off)
    other = _with_open_ends(wide, weaker, other)
    limits = found.interval_labels.copy()
    limits[..., 0] = np.minimum(limits[..., 0], other.interval_labels[..., 0])
    limits[..., 1] = np.maximum(limits[..., 1], other.interval_labels[..., 1])
    return _with_limits(wide, found, limits)


def _down_to_toe(
    law: Law, wide: Law, curve: MeasuredTest, found: LeastSquaresFit
) -> LeastSquaresFit:
    """The fit with an interval of the modulus that holds the slope of a removed toe, where the law may have it.

    Where a knee is missed, its flank is steeper than the material: what looks like a toe before it is the elastic part.
    """
    slope, error = curve.slope_of_toe
    modulus = law.identified[0]
    if not (curve.toe_removed and modulus.low <= slope <= modulus.high):
        return found
    least = max(slope - _QUANTILE * error, modulus.low)
    limits = found.interval_labels.copy()
    lowest = wide.identified[0].to_unit_interval(least)
    limits[0, 0, 0] = min(float(limits[0, 0, 0]), float(lowest))
    return _with_limits(wide, found, limits)


def _modulus_in_range(
    law: Law, wide: Law, points: Residuals, found: LeastSquaresFit
) -> LeastSquaresFit:
    """The fit with a modulus within the law's range, where the record does not bound it and it fits as well there."""
    parameter, side = law.identified[0], int(found.values[0, 0] > law.identified[0].high)
    # A rounding inside of the end, so that it counts as within the range.
    usual = (parameter.low * (1.0 + 1e-9), parameter.high * (1.0 - 1e-9))[side]
    is_beyond = not parameter.low <= found.values[0, 0] <= parameter.high
    if not (is_beyond and found.interval_labels[0, 0, side] == side):
        return found
    start = found.labels.copy()
    start[0, 0] = wide.identified[0].to_unit_interval(usual)
    if not found.interval_labels[0, 0, 0] <= start[0, 0] <= found.interval_labels[0, 0, 1]:
        return found
    held = np.zeros(start.shape, np.bool_)
    held[0, 0] = True
    nearest = minimise(points, start, held=held)
    labels, rmse_mpa = nearest.labels, _rmse(points, nearest, points.weights > 0)
    degrees = np.count_nonzero(points.weights) - labels.shape[1]
    if not degrees * (np.square(rmse_mpa / found.rmse_mpa) - 1.0) <= _QUANTILE**2:
        return found
    limits = np.stack(
        [
            np.minimum(found.interval_labels[..., 0], labels),
            np.maximum(found.interval_labels[..., 1], labels),
        ],
        axis=2,
    )
    moved = dataclasses.replace(
        found,
        labels=labels,
        values=wide.identified_values(labels),
        rmse_mpa=rmse_mpa,
        at_bound=(labels <= 0.0) | (labels >= 1.0),
    )
    return _with_limits(wide, moved, limits)


def _with_limits(wide: Law, found: LeastSquaresFit, limits: Array) -> LeastSquaresFit:
    """The fit with other ends of its intervals, labels [1, p, 2]."""
    ends = [wide.identified_values(limits[:, :, side]) for side in (0, 1)]
    return dataclasses.replace(
        found,
        interval_labels=limits,
        interval=np.stack(ends, axis=2),
        unidentifiable=found.unidentifiable | (limits == [0.0, 1.0]).all(axis=2),
    )


def _deviation(law: Law, record: MeasuredRecord, points: Residuals, labels: Array) -> Array:
    """The standard deviation of each point up to a factor, [1, points]; of one rising loading by its strain's noise."""
    curve, even = record.curve, 1.0 / points.weights
    if curve is None:
        return even
    (history,) = record.test_set.histories
    answer = law.label_stress(points.strain, labels)[0]
    found = deviation_by_strain_noise(history, curve.stress_mpa, answer, curve.strain_error)
    return even if found is None else found[None]


def minima(
    curve: Residuals, wide: Law, rounds: int = MOST_ROUNDS, num_starts: int = _STARTS
) -> tuple[Array, Array]:
    """Where searches from many starts end, the best first.

    Args:
      curve: one curve, or the tests of one material, and their law.
      wide: the law with the ranges to search.
      rounds: how often the parameters of the best minimum are moved through their ranges, at most; 0: see `_FAR`.
      num_starts: how many of the labels that are tried start a search.

    Returns:
      Labels [minima, p] on the scale of the wide law, and half the sum of squares at each.
    """
    law, parameters = curve.law, len(curve.law.identified)
    tried = even_labels(_TRIED if parameters > 1 else _TRIED_ONE, parameters)
    cost = _tried(curve, tried)
    starts = tried[np.argsort(cost, kind="stable")[:num_starts]]
    wide_curve = dataclasses.replace(curve, law=wide)
    starts = wide.to_labels(law.from_labels(starts))
    far, near = (None, None) if rounds else (_FAR, _NEARLY)
    coarse = coarse_minimum(repeated(wide_curve, len(starts)), starts, far)
    found = [_searched(wide_curve, _distinct(coarse.labels, coarse.cost), near)]
    agreed = np.median(found[0][1]) <= found[0][1][0] * (1.0 + _WORTH_A_ROUND)
    for _ in range(0 if agreed else rounds):
        best, cost_of_best = found[-1][0][0], found[-1][1][0]
        places = (np.arange(_HOPS) + 0.5) / _HOPS
        moved = np.repeat(best[None], parameters * _HOPS, axis=0)
        for column in range(parameters):
            moved[column * _HOPS : (column + 1) * _HOPS, column] = places
        further = _searched(wide_curve, moved)
        if not further[1][0] < cost_of_best * (1.0 - _WORTH_A_ROUND):
            found.insert(0, further)
            break
        found.append(further)
    # Each round's best is better than the best of the round before.
    found.reverse()
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _tried(curve: Residuals, tried: Array) -> Array:
    """Sum of squares of each of the labels [labels, p], on a few points of a rising loading, on all of tests."""
    if not isinstance(curve.strain, TestSet):
        return tried_costs(curve, tried, _TRIED_POINTS)[0]
    cost = np.square(repeated(curve, len(tried)).values(tried)).sum(axis=1)
    return np.where(np.isfinite(cost), cost, np.inf)


def _searched(
    curve: Residuals, starts: Array, rivalry: tuple[float, int] | None = None
) -> tuple[Array, Array]:
    """Labels [starts, p] and cost of the minima of one curve that full searches find, the best first."""
    minimum = minimise(repeated(curve, len(starts)), starts, rivalry=rivalry)
    cost = np.where(np.isnan(minimum.cost), np.inf, minimum.cost)
    order = np.argsort(cost, kind="stable")
    return minimum.labels[order], cost[order]


def repeated(curve: Residuals, count: int) -> Residuals:
    """One curve as `count` equal ones, so that it is searched from many starts side by side."""
    return curve.rows(np.zeros(count, np.intp))


def _distinct(labels: Array, cost: Array) -> Array:
    """The best of the labels [starts, p], none nearly the same as a better one: [at most _FULL_STARTS, p]."""
    chosen: list[Array] = []
    for i in np.argsort(np.where(np.isnan(cost), np.inf, cost), kind="stable"):
        if all(np.abs(labels[i] - other).max() > _SAME_MINIMUM for other in chosen):
            chosen.append(labels[i])
        if len(chosen) == _FULL_STARTS:
            break
    return np.stack(chosen)


def elsewhere(labels: Array, cost: Array) -> Array:
    """Other minima than the best, of labels [minima, p] and their cost, and labels all over the range: [any, p]."""
    others = _distinct(labels, cost)[1:]
    return np.concatenate([others, even_labels(_EXPLORERS, labels.shape[1])])


def within(law: Law, wide: Law, found: LeastSquaresFit) -> BestFit:
    """The fit of the wide law, seen from the law's own ranges."""
    lower, upper = (
        np.array([p.to_unit_interval(end) for p, end in zip(law.identified, ends, strict=True)])
        for ends in (found.interval[0, :, 0], found.interval[0, :, 1])
    )
    labels = np.array(
        [p.to_unit_interval(v) for p, v in zip(law.identified, found.values[0], strict=True)]
    )
    wider_than_range = ~(upper - lower < 1.0)
    ratio = np.array(
        [w.width / p.width for w, p in zip(wide.identified, law.identified, strict=True)]
    )
    return BestFit(
        values=found.values[0],
        std=found.std[0],
        interval=found.interval[0],
        labels=labels,
        label_covariance=found.label_covariance[0] * np.outer(ratio, ratio),
        at_bound=found.at_bound[0],
        unidentifiable=found.unidentifiable[0] | wider_than_range,
        is_open=found.interval_labels[0] == [0.0, 1.0],
        rmse_mpa=float(found.rmse_mpa[0]),
        widening=float(np.nanmax(found.widening[0])),
        shared_std=found.shared_std[0] * ratio,
    )


def widened(law: Law) -> Law:
    """The same law with ranges far beyond those that curves are simulated in, for searches that need no training."""
    if not law.known_beyond:
        return law
    ranges = {p.name: _widened(law, p) for p in law.identified}
    fixed = {p.name: p.fixed for p in law.parameters if p.fixed is not None}
    return type(law)(ranges=ranges, fixed=fixed, scales={p.name: p.scale for p in law.parameters})


def _widened(law: Law, parameter: Parameter) -> tuple[float, float]:
    low, high = parameter.low, parameter.high
    if parameter.scale == "log":
        low, high = low / _BEYOND_LOG, high * _BEYOND_LOG
    elif low >= 0:
        low, high = low / _BEYOND_LOW, high * _BEYOND_HIGH
    else:
        low, high = low - (high - low), high + (high - low)
    least, most = law.meaningful.get(parameter.name, (low, high))
    return max(low, least), min(high, most)


def error_within(
    law: Law, curve: Residuals, rounds: int = MOST_ROUNDS, num_starts: int = _STARTS
) -> float:
    """The root mean square residual of the law's best fit to one curve or record; infinite beyond its ranges.

    Args:
      curve: its points, of any law.
      rounds, num_starts: as of `minima`.
    """
    wide = widened(law)
    labels, cost = minima(dataclasses.replace(curve, law=law), wide, rounds, num_starts)
    own = np.clip(law.to_labels(wide.from_labels(labels[:1])), 0.0, 1.0)
    cost_inside = 0.5 * np.square(dataclasses.replace(curve, law=law).values(own)).sum()
    found = cost[0] if cost_inside <= _AS_GOOD * cost[0] else np.inf
    return float(np.sqrt(2.0 * found / curve.weights.size))


def _on_points(record: MeasuredRecord, points: int) -> MeasuredRecord:
    """The record on about so many points of all tests together, three in each part between turns at the least."""
    return MeasuredRecord(record.name, coarse(record.tests, _most_a_test(record, points)))


def _most_a_test(record: MeasuredRecord, points: int) -> int:
    return max(points // len(record.tests), 3 * max(len(test.turns) for test in record.tests))


def thinned(record: MeasuredRecord, points: Residuals) -> Residuals:
    """The residuals of a record on fewer points, each of which weighs as much as all the points that it stands for."""
    few = residuals_of(points.law, _on_points(record, _SEARCHED_POINTS))
    most = _most_a_test(record, _SEARCHED_POINTS)
    weights = [
        of_test if len(test) <= most else np.sqrt(cells_of(test, most).sums(np.square(of_test)))
        for test, of_test in zip(record.tests, record.split(points.weights[0]), strict=True)
    ]
    return dataclasses.replace(few, weights=np.concatenate(weights)[None])


# _MORE_PARAMETERS: so many more than the own law has may another law have that is to be named for one curve.
_MORE_PARAMETERS = 1


def comes_to_the_noise(record: MeasuredRecord, error: float) -> bool:
    """Whether an error, %, is so near to the noise of the points that no law can be clearly better."""
    if record.curve is not None and record.num_points < _MANY_POINTS:
        return False
    # The smallest of three estimates is low by chance.
    chance = 1.0 + 1.0 / np.sqrt(record.num_points)
    return bool(BETTER * error <= chance * rms_percent(record.noise_percent))


def better_law(law: Law, fitted: RecordFit) -> tuple[str, float, float] | None:
    """Another law that answers the same tests and fits clearly better, its error, and that over the own one's; or None.

    A law without some of the own law's parameters is the same law with fewer terms, and fits no better. No law comes
    nearer than the noise, so that none is searched for where the own one does. One curve bears no law with many more
    parameters, whose search takes long.
    """
    own_names = {parameter.name for parameter in law.parameters}
    record, points = fitted.record, fitted.searched
    response = law.label_stress(record.driven, fitted.best.labels[None])[0]
    error = rms_percent(errors_of_tests(record, response)[1])
    if comes_to_the_noise(record, error):
        return None
    others = [
        other
        for other in (each() for each in LAWS.values())
        if other.name != law.name
        and other.strain_measure == law.strain_measure
        and other.stress_measure == law.stress_measure
        and not {parameter.name for parameter in other.parameters} < own_names
        and (record.curve is None or len(other.parameters) <= len(own_names) + _MORE_PARAMETERS)
        and all(refusal(test.programme, other) is None for test in record.tests)
    ]
    count = points.weights.size
    own = float(np.sqrt(2.0 * fitted.cost[0] / count))
    errors, evidence = {}, []
    num_starts = _STARTS if record.curve is None else _RIVAL_STARTS
    with np.errstate(all="ignore"):
        for other in others:
            rounds = _rounds(other, record)
            errors[other.name] = error = error_within(other, points, rounds, num_starts)
            known = float(evidence_for(other, law, error, own, count))
            evidence.append((other.name, error, known))
    name = clearly_better(own, evidence)
    return None if name is None else (name, errors[name], errors[name] / own)


# _MOST_MOVED: the most parameters of a hardening law whose minima on one curve are searched in more than one round. A
# round takes longer with each, and minima of so many lie along a valley: more rounds changed no error of seven by 1 %.
_MOST_MOVED = 4


def _rounds(law: Law, record: MeasuredRecord) -> int:
    """How often `minima` goes on: minima of a law that remembers are not so close together."""
    if _remembers(record):
        return 0
    in_a_valley = (
        record.curve is not None and _has_modulus(law) and len(law.identified) > _MOST_MOVED
    )
    return 1 if in_a_valley else MOST_ROUNDS


def _remembers(record: MeasuredRecord) -> bool:
    """Whether the law has to remember what came before, which makes it slow to answer."""
    return any(test.turns or test.time is not None for test in record.tests)


def _with_open_ends(wide: Law, points: Residuals, found: LeastSquaresFit) -> LeastSquaresFit:
    """The fit with intervals that reach to every end of the range which fits as well, the other parameters held.

    Beyond the best fit a threshold that the tests did not reach, such as a largest damage, changes nothing. Below it
    does: the slope at the fit cannot tell.
    """
    parameters = found.labels.shape[1]
    moved = np.repeat(found.labels, 2 * parameters, axis=0)
    columns = np.repeat(np.arange(parameters), 2)
    moved[np.arange(len(moved)), columns] = np.tile([0.0, 1.0], parameters)
    cost = np.square(repeated(points, 1 + len(moved)).values(np.concatenate([found.labels, moved])))
    rise = (cost.sum(axis=1)[1:] - cost[0].sum()).reshape(parameters, 2)
    allowed = np.square(_QUANTILE * found.sigma[:, None] * found.widening)[0]
    is_open = rise <= allowed[:, None]
    return _with_limits(wide, found, np.where(is_open, [0.0, 1.0], found.interval_labels))


def _preferred(labels: Array, cost: Array) -> NDArray[np.intp]:
    """The order of minima: by cost, and of those alike, such as terms that changed places, the one within the ranges.

    Args:
      labels: [minima, p], on the scale of the law's ranges; cost: [minima].
    """
    beyond = (np.maximum(labels - 1.0, 0.0) + np.maximum(-labels, 0.0)).sum(axis=1)
    alike = cost <= cost.min() * (1.0 + _ALIKE)
    return np.lexsort((np.where(alike, beyond, 0.0), np.where(alike, cost.min(), cost)))


def errors_of_tests(record: MeasuredRecord, response: Array) -> tuple[Array, Array]:
    """Root mean square distance of an answer [points] from each test: in MPa or -, and in % of its largest response.

    Points count as they do in the fit.
    """
    rmse, percent = [], []
    parts = zip(record.tests, record.split(response), strict=True)
    for test, answer in parts:
        square = float(np.mean(test.shares * np.square(answer - test.response)))
        rmse.append(np.sqrt(square))
        percent.append(100.0 * rmse[-1] / max(float(np.abs(test.response).max()), 1e-300))
    return np.array(rmse), np.array(percent)


def rms_percent(of_tests: Array) -> float:
    """One error of a record from the errors of its tests [tests], %."""
    return float(np.sqrt(np.mean(np.square(of_tests))))


def conditioned(law: Law, fixed: Mapping[str, float]) -> Law:
    """`law` with more parameters known.

    Raises:
      InputError: a parameter that it does not have, or a value that is far from any material, as a wrong unit makes it.
    """
    if not fixed:
        return law
    wide = {p.name: (p, *_widened(law, p)) for p in law.parameters}
    for name, value in fixed.items():
        if name in wide and not wide[name][1] <= value <= wide[name][2]:
            p = wide[name][0]
            raise InputError(
                f"{name} = {value:g} {p.unit} is far from the {p.low:g} to {p.high:g} {p.unit} of law {law.name}; "
                f"give it in {p.unit}"
            )
    ranges = {p.name: (p.low, p.high) for p in law.parameters}
    known = {p.name: p.fixed for p in law.parameters if p.fixed is not None}
    scales = {p.name: p.scale for p in law.parameters}
    return type(law)(ranges=ranges, fixed={**known, **fixed}, scales=scales)
