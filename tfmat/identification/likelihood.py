"""How probable a simulated curve is, given its parameters, and how much it tells of them at most. NumPy only."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.materials.history import TestSet, driven_where
from tfmat.materials.law import Array, Law

# Of a label, uniform between 0 and 1: it bounds what can be unknown.
PRIOR_VARIANCE = 1.0 / 12.0
# Stands in for the standard deviation of a point without noise: relative noise where the stress is zero.
_LEAST_DEVIATION = 1e-9
# Of the matrix scaled to a unit diagonal. Below it rounding speaks, and the variance is as good as infinite.
_LEAST_EIGENVALUE = 1e-14
_CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class NoiseModel:
    """What `CurveSettings` says of chance.

    Attributes:
      noise_mpa, noise_relative: standard deviation in MPa, and as a fraction of the noise-free stress, in quadrature.
      strength_mpa: range of the uniformly drawn strength, or None without a cut-off.
      num_points: points of a whole curve.

    For records of tests responses are in units of their noise, see `tfmat.curves.records.observed`.
    """

    noise_mpa: float
    noise_relative: float
    strength_mpa: tuple[float, float] | None
    num_points: int

    @classmethod
    def of(cls, settings: CurveSettings) -> "NoiseModel":
        """The noise of these settings.

        Raises:
          InputError: there is none, so that nothing is uncertain; or the curves depart from their law by more (see
            `CurveSettings`), so that this is no likelihood of theirs.
        """
        settings = settings.resolved()
        if settings.is_observed:
            raise InputError("curves with an observation model have no exact likelihood")
        if not settings.noise_mpa and not settings.noise_relative:
            raise InputError("the curves have no noise: no answer to them is uncertain")
        form = RecordForm.of(settings)
        if form.programmes:
            if not form.noise(settings).all():
                raise InputError("some tests have no noise: no answer to them is uncertain")
            return cls(1.0, settings.noise_relative, settings.strength_mpa, form.num_points)
        return cls(
            settings.noise_mpa or 0.0,
            settings.noise_relative,
            settings.strength_mpa,
            settings.num_points,
        )


class CurveLikelihood:
    """The likelihood of one curve as a function of its labels.

    What is known of a curve is all that a network gets: strain and noisy stress of the points, and how many points
    there are. The strains tell the grid of the curve exactly, so that its drawn maximum strain is known, and says
    nothing of the parameters, which were drawn apart from it. The number of points m of n does tell of them: with
    strength S drawn uniformly, apart from all else, the curve ends with the first point (of noise-free stress τ) that
    exceeds S, so

        m < n: p(m | labels) = P(max(τ_1 … τ_{m-1}) <= S < τ_m);   m = n: P(S >= max(τ_1 … τ_{n-1})).

    The likelihood is this times the Gaussian density of the valid stresses, whose standard deviation follows the
    noise-free stress where there is relative noise. Without a cut-off the first factor is missing.
    """

    def __init__(
        self,
        law: Law,
        noise: NoiseModel,
        strain: Array | TestSet,
        stress: Array,
        valid: NDArray[np.bool_] | None = None,
    ):
        """Takes the valid points of one curve: strain (-), stress (MPa), [points].

        A record of tests is a test set of one material, its responses, and which points are `valid`.
        """
        self.law, self.noise = law, noise
        self.strain = strain if isinstance(strain, TestSet) else strain[None]
        self.stress = stress
        self._valid = valid
        self._missing = None if valid is None or valid.all() else np.flatnonzero(~valid)
        self._broke = len(stress) < noise.num_points

    def log_density(self, labels: Array) -> Array:
        """Logarithm of the likelihood up to a constant, at labels [k, p] inside 0-1: [k]; -inf where impossible."""
        model = self.law.label_stress(self.strain, labels)
        cut = 0.0 if self.noise.strength_mpa is None else self._log_cut_probability(model)
        if self._missing is not None:
            model[:, self._missing] = self.stress[self._missing]
        noise = self.noise
        difference = model - self.stress
        if noise.noise_relative == 0.0:
            fit = -0.5 / noise.noise_mpa**2 * np.einsum("kn,kn->k", difference, difference)
        else:
            deviation = np.maximum(
                np.hypot(noise.noise_mpa, noise.noise_relative * model), _LEAST_DEVIATION
            )
            difference /= deviation
            fit = -0.5 * np.einsum("kn,kn->k", difference, difference)
            fit -= np.log(deviation).sum(axis=1)
        total: Array = fit + cut
        unique = self.law.sorted_labels(labels)
        if unique is not labels:
            # The prior knows interchangeable terms in one order only.
            total = np.where((unique == labels).all(axis=1), total, -np.inf)
        # A user's law may overflow in a corner of its ranges, where no curve lies.
        return np.where(np.isnan(total), -np.inf, total)

    def slope_and_curvature(self, labels: Array) -> tuple[Array, Array]:
        """Gradient [k, p] of the log density and Fisher information [k, p, p], the cut and the spread left out."""
        model = self.law.label_stress(self.strain, labels)
        jacobian = self.law.label_derivatives(self.strain, labels)
        if self._missing is not None:
            jacobian[:, self._missing] = 0.0
        noise = self.noise
        deviation = np.hypot(noise.noise_mpa, noise.noise_relative * model)
        deviation = np.maximum(deviation, _LEAST_DEVIATION)[:, :, None]
        jacobian /= deviation
        transposed = np.swapaxes(jacobian, 1, 2)
        residual = (self.stress - model)[:, :, None] / deviation
        return (transposed @ residual)[:, :, 0], transposed @ jacobian

    def _log_cut_probability(self, model: Array) -> Array:
        probability: Array
        if isinstance(self.strain, TestSet):
            return self._log_cut_of_tests(self.strain, np.abs(model * self.strain.unit))
        before = model[:, :-1].max(axis=1)
        if self._broke:
            probability = self._strength_below(model[:, -1]) - self._strength_below(before)
        else:
            probability = 1.0 - self._strength_below(before)
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(probability, 0.0))

    def _log_cut_of_tests(self, tests: TestSet, stress: Array) -> Array:
        """The specimens of one record have one strength: it lies where each of them held, and where each broke."""
        assert self._valid is not None
        points = self.noise.num_points // len(tests.histories)
        held, broke = np.full(len(stress), -np.inf), np.full(len(stress), np.inf)
        for test, history in enumerate(tests.histories):
            part = slice(test * points, (test + 1) * points)
            count = int(self._valid[part].sum())
            borne = stress[:, part] if history.stress is None else np.abs(history.stress)
            if count > 1:
                held = np.maximum(held, borne[:, : count - 1].max(axis=1))
            if 0 < count < points:
                broke = np.minimum(broke, borne[:, count - 1])
        probability = self._strength_below(broke) - self._strength_below(held)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(probability, 0.0)))

    def _strength_below(self, stress: Array) -> Array:
        """P(S < stress)."""
        assert self.noise.strength_mpa is not None
        low, high = self.noise.strength_mpa
        if high == low:
            return (stress > low).astype(np.float64)
        return np.clip((stress - low) / (high - low), 0.0, 1.0)


def likelihoods(
    law: Law,
    noise: NoiseModel,
    strain: Array | TestSet,
    stress: Array,
    valid: NDArray[np.bool_],
) -> list[CurveLikelihood]:
    """One for each curve; strain, stress and valid are [curves, points], as `observed` gives them."""
    if isinstance(strain, TestSet):
        return [
            CurveLikelihood(law, noise, strain[i : i + 1], stress[i], valid[i])
            for i in range(len(stress))
        ]
    return [
        CurveLikelihood(law, noise, one_strain[counts], one_stress[counts])
        for one_strain, one_stress, counts in zip(strain, stress, valid, strict=True)
    ]


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
