"""How probable simulated curves are, given their parameters. NumPy only."""

import dataclasses

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.curves.records import RecordForm
from tfmat.curves.setting_checks import OBSERVATION
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.materials.law import Array, Law, TestSet

# Of a label, uniform between 0 and 1: it bounds what can be unknown.
PRIOR_VARIANCE = 1.0 / 12.0
# Stands in for the standard deviation of a point without noise: relative noise where the stress is zero.
_LEAST_DEVIATION = 1e-9
# Options of the observation model of tests that the likelihood integrates over, and those that the record itself tells.
_NUISANCES = ("noise_correlation", "strain_offset", "stress_offset", "toe", "machine_stiffness")
_KNOWN = ("noise_of_maximum", "measured_points")

Rows = NDArray[np.integer] | slice


@dataclasses.dataclass(frozen=True)
class NoiseModel:
    """What `CurveSettings` says of chance.

    Attributes:
      noise_mpa, noise_relative: standard deviation in MPa, and as a fraction of the noise-free stress, in quadrature.
      strength_mpa: range of the uniformly drawn strength, or None without a cut-off.
      num_points: points of a whole curve.
      unknown: settings of records with errors that are drawn and not told, see `record_likelihood`; None without any.

    For records of tests responses are in units of their noise, see `tfmat.curves.records.observed`.
    """

    noise_mpa: float
    noise_relative: float
    strength_mpa: tuple[float, float] | None
    num_points: int
    unknown: CurveSettings | None = None

    @classmethod
    def of(cls, settings: CurveSettings) -> "NoiseModel":
        """The noise of these settings.

        Raises:
          InputError: there is none, so that nothing is uncertain; or the curves depart from their law by more (see
            `CurveSettings`), so that this is no likelihood of theirs.
        """
        settings = settings.resolved()
        if (why := unknown_likelihood(settings)) is not None:
            raise InputError(why)
        form = RecordForm.of(settings)
        if form.programmes:
            unknown = settings if has_unknown_errors(settings) else None
            cut = settings.strength_mpa
            return cls(1.0, settings.noise_relative, cut, form.num_points, unknown)
        return cls(
            settings.noise_mpa or 0.0,
            settings.noise_relative,
            settings.strength_mpa,
            settings.num_points,
        )


def has_unknown_errors(settings: CurveSettings) -> bool:
    """Whether records of tests have errors beside independent noise of a size that is known or told."""
    drawn = settings.noise_of_maximum is not None and not settings.noise_told
    errors = drawn or any(getattr(settings, name) is not None for name in _NUISANCES)
    return errors and bool(settings.programmes())


def has_known_errors(settings: CurveSettings) -> bool:
    """Whether records of tests have a likelihood, and no errors beside independent noise of a known size."""
    is_known = unknown_likelihood(settings) is None and bool(settings.programmes())
    return is_known and not has_unknown_errors(settings)


def unknown_likelihood(settings: CurveSettings) -> str | None:
    """Why the likelihood of curves of these resolved settings is not known; None where it is."""
    form = RecordForm.of(settings)
    names = [name for name in OBSERVATION if getattr(settings, name) is not None]
    if form.programmes:
        names = [name for name in names if name not in (*_NUISANCES, *_KNOWN)]
    if names:
        listed = " and ".join(f"data.{name}" for name in names)
        return f"curves with {listed} have no exact likelihood"
    if settings.measured_points is not None and settings.strength_mpa is not None:
        return (
            "records with data.measured_points that break off have no exact likelihood: what is missing may not have "
            "been measured, or be broken (--config.data.strength_cut_off=false)"
        )
    if settings.noise_of_maximum is not None:
        return None
    if not settings.noise_mpa and not settings.noise_relative:
        return "the curves have no noise: no answer to them is uncertain"
    if form.programmes and not form.noise(settings).all():
        return "some tests have no noise: no answer to them is uncertain"
    return None


class Likelihoods:
    """The likelihoods of many curves as functions of their labels.

    What is known of a curve is all that a network gets: strain and noisy stress of the points, and how many points
    there are. The strains tell the grid of the curve exactly, so that its drawn maximum strain is known, and says
    nothing of the parameters, which were drawn apart from it. The number of points m of n does tell of them: with
    strength S drawn uniformly, apart from all else, the curve ends with the first point (of noise-free stress τ) that
    exceeds S, so

        m < n: p(m | labels) = P(max(τ_1 … τ_{m-1}) <= S < τ_m);   m = n: P(S >= max(τ_1 … τ_{n-1})).

    The likelihood is this times the Gaussian density of the valid stresses, whose standard deviation follows the
    noise-free stress where there is relative noise. Without a cut-off the first factor is missing. The specimens of one
    record of tests have one strength: it lies where each of them held, and where each broke.

    Attributes:
      nuisances: labels behind those of the law, of errors that are integrated over; see `record_likelihood`.
    """

    nuisances = 0

    def __init__(
        self,
        law: Law,
        noise: NoiseModel,
        strain: Array | TestSet,
        stress: Array,
        valid: NDArray[np.bool_],
    ):
        """Takes strain (-), stress (MPa) and what is valid, each [curves, points], as `observed` gives them."""
        self.law, self.noise = law, noise
        self.strain, self.stress, self.valid = strain, stress, valid

    def __len__(self) -> int:
        return len(self.stress)

    def log_density(self, curves: Rows, labels: Array) -> Array:
        """Logarithm of the likelihood up to a constant of the curve; -inf where impossible.

        Args:
          curves: which curve each row of labels belongs to, [k]; or a slice of one curve for all of them.
          labels: [k, p], inside 0-1.

        Returns:
          [k].
        """
        return self._log_density(curves, labels, self.law.label_stress(self.strain[curves], labels))

    def expansion(self, curves: Rows, labels: Array) -> tuple[Array, Array, Array]:
        """The log density [k], its gradient [k, p] and the Fisher information [k, p, p]; arguments as above.

        The cut and the spread of the noise are left out of the last two.
        """
        valid = self.valid[curves]
        model, jacobian = self.law.label_expansion(self.strain[curves], labels)
        if not valid.all():
            jacobian *= valid[:, :, None]
        deviation = self._deviation(model)
        jacobian /= deviation[..., None]
        transposed = np.swapaxes(jacobian, 1, 2)
        residual = ((self.stress[curves] - model) / deviation)[:, :, None]
        density = self._log_density(curves, labels, model)
        return density, (transposed @ residual)[:, :, 0], transposed @ jacobian

    def slope_and_curvature(self, curves: Rows, labels: Array) -> tuple[Array, Array]:
        """What `expansion` gives but for the density."""
        return self.expansion(curves, labels)[1:]

    def with_errors(
        self, curve: int, labels: Array, generator: np.random.Generator
    ) -> Array | None:
        """Labels [k, p] and those of errors drawn from their prior, [k, p + nuisances].

        None where that is no use: errors are too many, or the curve is unlike those that a network draws labels of.

        The labels may move with the errors, by a shift, so that the response stays what it is.
        """
        return None if self.nuisances else labels

    def marginal(self, curve: int, labels: Array) -> Array:
        """Logarithm of the likelihood, errors integrated over from labels [k, p + nuisances]: [k]; NaN: not known."""
        if self.nuisances:
            return np.full(len(labels), np.nan)
        return self.log_density(slice(curve, curve + 1), labels)

    def predictive_p(
        self, curve: int, labels: Array, generator: np.random.Generator
    ) -> tuple[float, float] | None:
        """How probable misfits as large as this curve's are: mean over posterior draws [k, p + nuisances].

        Returns:
          The posterior predictive p-value of the errors of this likelihood, and that of independent noise alone;
          None where they are not worked out.
        """
        if self.nuisances:
            return None
        row = slice(curve, curve + 1)
        model, valid = self.law.label_stress(self.strain[row], labels), self.valid[row]
        squares = np.square((model - self.stress[row]) / self._deviation(model)) * valid
        p = float(scipy.special.chdtrc(valid.sum(), squares.sum(axis=1)).mean())
        return p, p

    def _log_density(self, curves: Rows, labels: Array, model: Array) -> Array:
        noise, stress, valid = self.noise, self.stress[curves], self.valid[curves]
        cut = 0.0 if noise.strength_mpa is None else self._log_cut_probability(curves, model)
        if not valid.all():
            model = np.where(valid, model, stress)
        difference = model - stress
        if noise.noise_relative == 0.0:
            fit = -0.5 / noise.noise_mpa**2 * np.einsum("kn,kn->k", difference, difference)
        else:
            deviation = self._deviation(model)
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

    def _deviation(self, model: Array) -> Array:
        """Standard deviation of the noise, MPa, where the stress without it is `model`; [1] where it is one for all."""
        if self.noise.noise_relative == 0.0:
            return np.maximum(np.abs([self.noise.noise_mpa]), _LEAST_DEVIATION)
        spread = np.hypot(self.noise.noise_mpa, self.noise.noise_relative * model)
        return np.maximum(spread, _LEAST_DEVIATION)

    def _log_cut_probability(self, curves: Rows, model: Array) -> Array:
        tests, valid = self.strain, self.valid[curves]
        rows = tests[curves] if isinstance(tests, TestSet) else None
        histories = (None,) if rows is None else rows.histories
        whole = self.noise.num_points // len(histories)
        held, broke = np.full(len(model), -np.inf), np.full(len(model), np.inf)
        for test, history in enumerate(histories):
            part = slice(test * whole, (test + 1) * whole)
            borne, there = model[:, part], valid[:, part]
            if history is not None and rows is not None:
                driven = history.stress
                unit = np.broadcast_to(rows.unit, model.shape)[:, part]
                borne = np.abs(borne * unit if driven is None else driven)
            count = there.sum(axis=1)[:, None]
            before = np.where(np.arange(borne.shape[1]) < count - 1, borne, -np.inf)
            held = np.maximum(held, before.max(axis=1, initial=-np.inf))
            last = np.take_along_axis(borne, np.maximum(count - 1, 0), axis=1)
            ended = (count > 0) & (count < whole)
            broke = np.minimum(broke, np.where(ended, last, np.inf)[:, 0])
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
