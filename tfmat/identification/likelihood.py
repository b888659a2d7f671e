"""Targets of sampling: the log density of parameters, given simulated or measured records. NumPy only."""

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.identification.least_squares import (
    COMPLIANCE,
    ZERO,
    correlations,
    deviation_by_strain_noise,
    elastic_strain,
    load_effect,
    minima_near,
    missed_knee,
    strain_effect,
    zero_effects,
)
from tfmat.materials.law import PRIOR_VARIANCE, Array, History, Law, TestSet
from tfmat.records.laboratory import OBSERVATION, Apparatus, log_uniform
from tfmat.records.record import MeasuredRecord, coarse
from tfmat.records.simulation import CurveSettings, RecordForm
from tfmat.records.tensile import StrainError

# --------------------------------------------------------------------------------------------------
# Targets of sampling: how probable records are, given the parameters behind them. NumPy only.
#
# A target is the log density of labels, of one record or of several that are answered together. `SimulatedErrors`
# knows the size of independent noise, as the simulation does. In `DrawnErrors` a record's zeroes, its machine, and the
# size and correlation of its noise were drawn too, and nobody told them. They get labels of their own, uniform in 0-1,
# behind the labels of the parameters, and the likelihood is a function of both. Nothing is linearised: histories are
# moved, and machines are solved for, as the simulation does it. Integrating over all labels integrates over the errors
# too. `MeasuredErrors` is the target of measured tests.


# _LEAST_DEVIATION: stands in for the standard deviation of a point without noise, where the noise is relative and the
# stress zero.
_LEAST_DEVIATION = 1e-9
# _NUISANCES: options of the observation model of tests that the likelihood integrates over.
_NUISANCES = ("noise_correlation", "strain_offset", "stress_offset", "toe", "machine_stiffness")
# _KNOWN: options of the observation model that the record itself tells.
_KNOWN = ("noise_of_maximum", "measured_points")
# _STEP: step of a parameter's label that slopes are taken from; a machine is solved for to 1e-6 of the strain, which
# smaller steps would show.
_STEP = 1e-3
# _SHARE: step of an error's label, as a share of its distance from the nearer end, and at least _LEAST.
_SHARE = 1e-3
# _LEAST: the least step, the least noise, and the least distance of an offset's label from its ends.
_LEAST = 1e-14
# _REACH: the table of an offset's distribution reaches to so many of the largest standard deviations.
_REACH = 8.0
# _TABLE: knots of that table; _SIZES: standard deviations that it is averaged over.
_TABLE, _SIZES = 4001, 48

Rows = NDArray[np.integer] | slice
Value = Callable[[Array], Array]

# ONE: a target's only record, or its first one, for all rows of labels.
ONE = slice(0, 1)


@dataclasses.dataclass(frozen=True)
class NoiseModel:
    """The noise and the strength of specimens, as `CurveSettings` gives them.

    Attributes:
      noise_mpa, noise_relative: standard deviation in MPa, and as a fraction of the noise-free stress, in quadrature.
      strength_mpa: range of the uniformly drawn strength, or None without a cut-off.
      num_points: points of a whole curve.
      unknown: settings of records with errors that are drawn and not told, see `DrawnErrors`; None without any.

    For records of tests responses are in units of their noise, see `tfmat.records.simulation.observed`.
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


class Target(abc.ABC):
    """The log density of labels, of one record or of several that are answered together; the prior is even in 0-1.

    Attributes:
      law: whose p identified parameters the first labels are.
      nuisances: labels behind those of the law, of errors that are integrated over.
    """

    law: Law
    nuisances: int = 0

    @abc.abstractmethod
    def log_density(self, labels: Array, records: Rows = ONE) -> Array:
        """Logarithm of the likelihood up to a constant of the record; -inf where impossible.

        Args:
          labels: [k, p + nuisances], inside 0-1.
          records: which record each row of labels belongs to, [k]; or a slice of one record for all of them.

        Returns:
          [k].
        """

    @abc.abstractmethod
    def expansion(self, labels: Array, records: Rows = ONE) -> tuple[Array, Array, Array]:
        """The log density [k], its gradient [k, d] and the Fisher information [k, d, d] of all d labels."""

    def with_errors(self, labels: Array, generator: np.random.Generator) -> Array | None:
        """Labels [k, p] with labels of errors drawn from their prior, [k, p + nuisances]; of the one record.

        None where that is no use: errors are too many, or the record is unlike those that a network draws labels of.

        The labels may move with the errors, by a shift, so that the response stays what it is.
        """
        return None if self.nuisances else labels

    def marginal(self, labels: Array) -> Array:
        """Logarithm of the likelihood, errors integrated over from labels [k, p + nuisances]: [k]; NaN: not known."""
        return np.full(len(labels), np.nan) if self.nuisances else self.log_density(labels)

    def predictive_p(
        self, labels: Array, generator: np.random.Generator
    ) -> tuple[float, float] | None:
        """How probable misfits as large as the one record's are: mean over posterior draws [k, p + nuisances].

        Returns:
          The posterior predictive p-value of the errors of this likelihood, and that of independent noise alone;
          None where they are not worked out.
        """
        return None


class SimulatedErrors(Target):
    """The likelihoods of simulated records: of one, or of many that are answered together.

    The likelihood knows of a curve what a network gets: strain and noisy stress of the points, and their number. The
    strains tell the grid of the curve exactly, so its drawn maximum strain is known. It says nothing of the parameters,
    which were drawn apart from it. The number of points m of n does: the strength S is drawn uniformly, apart from all
    else, and the curve ends with the first point (of noise-free stress τ) that exceeds S, so

        m < n: p(m | labels) = P(max(τ_1 … τ_{m-1}) <= S < τ_m);   m = n: P(S >= max(τ_1 … τ_{n-1})).

    The likelihood is this times the Gaussian density of the valid stresses, whose standard deviation follows the
    noise-free stress where there is relative noise. Without a cut-off the first factor is missing. The specimens of one
    record of tests have one strength: it lies where each of them held, and where each broke.
    """

    def __init__(
        self,
        law: Law,
        noise: NoiseModel,
        strain: Array | TestSet,
        stress: Array,
        valid: NDArray[np.bool_] | None = None,
    ):
        """Takes strain (-), stress (MPa) and what is valid, each [records, points], as `observed` gives them.

        Records of tests are a test set and their responses in its unit. None: all points are valid.
        """
        self.law, self.noise = law, noise
        self.strain, self.stress = strain, stress
        self.valid: NDArray[np.bool_] = np.ones(stress.shape, np.bool_) if valid is None else valid

    def __len__(self) -> int:
        return len(self.stress)

    def __getitem__(self, records: slice) -> "SimulatedErrors":
        """The likelihoods of some of the records."""
        points = (self.strain[records], self.stress[records], self.valid[records])
        return type(self)(self.law, self.noise, *points)

    def each(self) -> "list[SimulatedErrors]":
        """One target a record; curves without the points that are not there."""
        found = [self[i : i + 1] for i in range(len(self))]
        if not isinstance(self.strain, TestSet):
            for one in found:
                (there,) = one.valid
                one.strain, one.stress = one.strain[:, there], one.stress[:, there]
                one.valid = one.valid[:, there]
        return found

    def log_density(self, labels: Array, records: Rows = ONE) -> Array:
        model = self.law.label_stress(self.strain[records], labels)
        return self._log_density(records, labels, model)

    def expansion(self, labels: Array, records: Rows = ONE) -> tuple[Array, Array, Array]:
        """See `Target`; the cut and the spread of the noise are left out of gradient and information."""
        valid = self.valid[records]
        model, jacobian = self.law.label_expansion(self.strain[records], labels)
        if not valid.all():
            jacobian *= valid[:, :, None]
        deviation = self._deviation(model)
        jacobian /= deviation[..., None]
        transposed = np.swapaxes(jacobian, 1, 2)
        residual = ((self.stress[records] - model) / deviation)[:, :, None]
        density = self._log_density(records, labels, model)
        return density, (transposed @ residual)[:, :, 0], transposed @ jacobian

    def predictive_p(
        self, labels: Array, generator: np.random.Generator
    ) -> tuple[float, float] | None:
        """See `Target`: by the sum of squares, which is distributed as χ²."""
        if self.nuisances:
            return None
        model, valid = self.law.label_stress(self.strain[ONE], labels), self.valid[ONE]
        squares = np.square((model - self.stress[ONE]) / self._deviation(model)) * valid
        p = float(scipy.special.chdtrc(valid.sum(), squares.sum(axis=1)).mean())
        return p, p

    def _log_density(self, records: Rows, labels: Array, model: Array) -> Array:
        noise, stress, valid = self.noise, self.stress[records], self.valid[records]
        cut = 0.0 if noise.strength_mpa is None else self._log_cut_probability(records, model)
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

    def _log_cut_probability(self, records: Rows, model: Array) -> Array:
        tests, valid = self.strain, self.valid[records]
        rows = tests[records] if isinstance(tests, TestSet) else None
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


@dataclasses.dataclass(frozen=True)
class Nuisance:
    """One error of a record: what it is, of which test (None: of all), and its value at a label, [k] -> [k]."""

    name: str
    test: int | None
    value: Value


def nuisances_of(settings: CurveSettings) -> tuple[Nuisance, ...]:
    """The errors of a record, in the order of their labels."""
    found = []
    for name in ("noise_correlation", "machine_stiffness"):
        if _is_drawn(limits := getattr(settings, name)):
            found.append(Nuisance(name, None, _log_uniform_value(limits)))
    drawn = settings.noise_of_maximum
    for test, programme in enumerate(RecordForm.of(settings).programmes):
        if drawn is not None and _is_drawn(drawn) and not settings.noise_told:
            found.append(Nuisance("noise_of_maximum", test, _log_uniform_value(drawn)))
        if settings.stress_offset is not None:
            found.append(Nuisance("stress_offset", test, offset_value(settings.stress_offset)))
        slack = settings.toe
        if slack is not None and _is_drawn(slack) and programme.drives == "strain":
            found.append(Nuisance("toe", test, _log_uniform_value(slack)))
        if settings.strain_offset is not None and programme.drives == "strain":
            found.append(Nuisance("strain_offset", test, offset_value(settings.strain_offset)))
    return tuple(found)


def _is_drawn(limits: tuple[float, float] | None) -> bool:
    return limits is not None and limits[0] < limits[1]


def _log_uniform_value(limits: tuple[float, float]) -> Value:
    return lambda labels: log_uniform(limits, labels)


def offset_value(limits: tuple[float, float]) -> Value:
    """The quantile of a normal number whose standard deviation is log-uniform between `limits`.

    Linear between the knots of a table over the normal quantile of the label, where it is nearly straight.
    """
    low, high = limits
    nodes, weights = np.polynomial.legendre.leggauss(_SIZES)
    sizes = low * (high / low) ** (0.5 * (nodes + 1.0))
    values = high * np.sinh(np.linspace(-1.0, 1.0, _TABLE) * np.arcsinh(_REACH * high / low))
    values *= low / high
    below = 0.5 * (scipy.special.ndtr(values[:, None] / sizes) @ weights)
    # The upper half is the lower one by symmetry: there small probabilities are not lost.
    lower = scipy.special.ndtri(below[: _TABLE // 2 + 1])
    normal = np.concatenate([lower, -lower[-2::-1]])
    kept = np.concatenate([np.isfinite(normal[:-1]) & (np.diff(normal) > 0), [True]])

    def value(labels: Array) -> Array:
        clipped = np.clip(labels, _LEAST, 1.0 - _LEAST)
        return np.asarray(np.interp(scipy.special.ndtri(clipped), normal[kept], values[kept]))

    return value


@dataclasses.dataclass
class _Fit:
    """Records at some labels, d of them: residuals, and how they change.

    Attributes:
      whitened: residuals as independent standard normal numbers, zero where there is no point, [k, points].
      logarithm: of the scale of their density, [k].
      answers: what the specimens answered, MPa or -, [k, points].
      jacobian: d whitened / d label, [k, points, d]; slope: d logarithm / d label, [k, d]; empty where not asked for.
    """

    whitened: Array
    logarithm: Array
    answers: Array
    jacobian: Array
    slope: Array


class DrawnErrors(SimulatedErrors):
    """The likelihoods of records as functions of the labels of parameters and errors, [k, p + nuisances].

    Errors of a test that is missing change nothing, so that their labels keep their prior.
    """

    def __init__(
        self,
        law: Law,
        noise: NoiseModel,
        tests: TestSet,
        response: Array,
        valid: NDArray[np.bool_] | None = None,
    ):
        """Takes a test set, responses in its unit, and what is there, [records, points], as `observed` gives them."""
        assert noise.unknown is not None
        self._settings, self._nuisances = noise.unknown, nuisances_of(noise.unknown)
        super().__init__(law, noise, tests, response, valid)
        self.nuisances = len(self._nuisances)
        self._tests, self._own = tests, len(law.identified)
        self._absolute = RecordForm.of(noise.unknown).noise(noise.unknown)

    def log_density(self, labels: Array, records: Rows = ONE) -> Array:
        return self._log_density_of(records, labels, self._fit(records, labels, False))

    def expansion(self, labels: Array, records: Rows = ONE) -> tuple[Array, Array, Array]:
        """See `Target`; of how the spread of points tells its size, half is in the information."""
        fit = self._fit(records, labels, True)
        transposed = np.swapaxes(fit.jacobian, 1, 2)
        slope = -(transposed @ fit.whitened[:, :, None])[:, :, 0] - fit.slope
        return self._log_density_of(records, labels, fit), slope, transposed @ fit.jacobian

    def _log_density_of(self, records: Rows, labels: Array, fit: _Fit) -> Array:
        total: Array = -0.5 * np.einsum("kn,kn->k", fit.whitened, fit.whitened) - fit.logarithm
        if self.noise.strength_mpa is not None:
            unit = self._tests[records].unit
            total = total + self._log_cut_probability(records, fit.answers / unit)
        own = labels[:, : self._own]
        unique = self.law.sorted_labels(own)
        if unique is not own:
            total = np.where((unique == own).all(axis=1), total, -np.inf)
        return np.where(np.isnan(total), -np.inf, total)

    def _fit(self, records: Rows, labels: Array, with_slopes: bool) -> _Fit:
        (count, columns), tests = labels.shape, self._tests[records]
        measured, valid, unit = np.broadcast_arrays(
            self.stress[records], self.valid[records], tests.unit
        )
        measured = measured * unit
        whole = (count, self.noise.num_points)
        fit = _Fit(
            np.zeros(whole),
            np.zeros(count),
            np.zeros(whole),
            np.zeros((*whole, columns if with_slopes else 0)),
            np.zeros((count, columns if with_slopes else 0)),
        )
        points = self.noise.num_points // len(tests.histories)
        with np.errstate(all="ignore"):
            for test, history in enumerate(tests.histories):
                part = slice(test * points, (test + 1) * points)
                there = valid[:, part]
                if not there.any():
                    continue
                rows = history.changed(
                    lambda array: np.broadcast_to(array, (count, *array.shape[1:]))
                )
                fit.answers[:, part], shown = self._answered(test, rows, labels)
                absolute = np.full(count, self._absolute[part.start])
                share = self._value("noise_of_maximum", test, labels)
                drawn = np.zeros(count)
                if share is not None:
                    drawn = share * np.where(there, np.abs(shown), 0.0).max(axis=1)
                elif self._settings.noise_told:
                    absolute = unit[:, part.start]
                relative = self.noise.noise_relative * shown
                size = np.hypot(np.hypot(absolute, drawn)[:, None], relative)
                size = np.maximum(size, _LEAST)
                fit.logarithm += np.where(there, np.log(size), 0.0).sum(axis=1)
                residual = np.where(there, (shown - measured[:, part]) / size, 0.0)
                slopes: Array = np.zeros((count, points, 0))
                if with_slopes:
                    slopes = self._slopes(test, rows, labels)
                    growth = self._growth(test, np.where(there, shown, 0.0), slopes)
                    growth = growth[:, None] * ((drawn[:, None] / size) ** 2 * there)[:, :, None]
                    slopes = slopes * there[:, :, None] / size[:, :, None]
                    slopes -= residual[:, :, None] * growth
                    fit.slope += growth.sum(axis=1)
                self._whiten(fit, part, there, residual, slopes, labels)
        return fit

    def _whiten(
        self,
        fit: _Fit,
        part: slice,
        there: NDArray[np.bool_],
        residual: Array,
        slopes: Array,
        labels: Array,
    ) -> None:
        """Puts a test's residuals over their size [k, points], and their slopes by the labels, into the fit."""
        correlation = self._value("noise_correlation", None, labels)
        if correlation is not None:
            after = there[:, 1:]
            ρ, root = correlation[:, None], np.sqrt(1.0 - correlation**2)[:, None]
            fit.logarithm += after.sum(axis=1) * np.log(root[:, 0])
            before = residual[:, :-1].copy()
            residual[:, 1:] = np.where(after, (residual[:, 1:] - ρ * before) / root, 0.0)
            if slopes.shape[2]:
                moved = slopes[:, 1:] - ρ[:, :, None] * slopes[:, :-1]
                slopes[:, 1:] = np.where(after[:, :, None], moved / root[:, :, None], 0.0)
                column = self._column("noise_correlation", None)
                if column is not None:
                    low, high = self._settings.noise_correlation or (1.0, 1.0)
                    growth = ρ * np.log(high / low)
                    own = ρ * residual[:, 1:] / root**2 - before / root
                    slopes[:, 1:, column] = np.where(after, own * growth, 0.0)
                    steps = -(ρ * growth / root**2)[:, 0]
                    fit.slope[:, column] += after.sum(axis=1) * steps
        fit.whitened[:, part] = residual
        if slopes.shape[2]:
            fit.jacobian[:, part] = slopes

    def _growth(self, test: int, shown: Array, slopes: Array) -> Array:
        """d ln(noise in proportion to the largest response) / d label of a test, [k, p + nuisances]."""
        if self._settings.noise_of_maximum is None or self._settings.noise_told:
            return np.zeros((len(shown), slopes.shape[2]))
        rows, largest = np.arange(len(shown)), np.abs(shown).argmax(axis=1)
        height = shown[rows, largest][:, None]
        found = slopes[rows, largest] / np.where(height == 0.0, 1.0, height)
        column = self._column("noise_of_maximum", test)
        if column is not None:
            low, high = self._settings.noise_of_maximum
            found[:, column] += np.log(high / low)
        return np.asarray(found)

    def _slopes(self, test: int, rows: History, labels: Array) -> Array:
        """d shown / d label of a test, [k, points, p + nuisances], zero for the size and correlation of noise."""
        columns = {
            column
            for column, one in enumerate(self._nuisances, start=self._own)
            if one.test in (None, test) and not one.name.startswith("noise")
        }
        found = np.zeros((*rows.driven.shape, labels.shape[1]))
        if self._settings.machine_stiffness is None:
            parameters = self.law.from_labels(labels[:, : self._own])
            apparatus = self._apparatus(test, labels)
            slopes = apparatus.answer(rows, lambda seen: self.law.sensitivities(seen, parameters))
            chosen = [i for i, one in enumerate(self.law.parameters) if one.fixed is None]
            found[:, :, : self._own] = slopes[:, :, chosen]
            found[:, :, : self._own] *= self.law.label_slopes(parameters)[:, None]
        else:
            # The machine's share moves with every parameter.
            columns |= set(range(self._own))
        for column in columns:
            label = labels[:, column]
            step = np.full(len(labels), _STEP)
            if column >= self._own:
                step = _SHARE * np.minimum(label, 1.0 - label) + _LEAST
            ahead, behind = labels.copy(), labels.copy()
            ahead[:, column] += step
            behind[:, column] -= step
            further, nearer = (self._answered(test, rows, tried)[1] for tried in (ahead, behind))
            found[:, :, column] = (further - nearer) / (2.0 * step)[:, None]
        return found

    def _answered(self, test: int, rows: History, labels: Array) -> tuple[Array, Array]:
        """The answer of a test's specimen, and the measured one but for noise: [k, points] each."""
        parameters = self.law.from_labels(labels[:, : self._own])
        apparatus = self._apparatus(test, labels)
        answer = apparatus.answer(rows, lambda seen: self.law.respond(seen, parameters))
        return answer, apparatus.shown(rows, answer)

    def _apparatus(self, test: int, labels: Array) -> Apparatus:
        return Apparatus(
            strain_offset=self._value("strain_offset", test, labels),
            stress_offset=self._value("stress_offset", test, labels),
            slack=self._value("toe", test, labels),
            stiffness=self._value("machine_stiffness", None, labels),
        )

    def _column(self, name: str, test: int | None) -> int | None:
        """The column of `labels` that holds an error's label; None where this error is not among the unknown ones."""
        for column, one in enumerate(self._nuisances, start=self._own):
            if one.name == name and one.test == test:
                return column
        return None

    def _value(self, name: str, test: int | None, labels: Array) -> Array | None:
        """The error of that name at labels, [k]; None where there is none."""
        column = self._column(name, test)
        if column is not None:
            return self._nuisances[column - self._own].value(labels[:, column])
        limits = getattr(self._settings, name)
        told = name == "noise_of_maximum" and self._settings.noise_told
        # One value for all records is no unknown; an offset always is one.
        known = limits is not None and limits[0] == limits[1] and "offset" not in name
        return np.full(len(labels), limits[0]) if known and not told else None


# --------------------------------------------------------------------------------------------------
# The target of measured curves and records, whose errors nobody told. NumPy only.
#
# Noise, its size and correlation, and the zero of the response are integrated over in closed form (`UnknownErrors`).
# Machine, grips and extensometer add to the strain, or leave out, an elastic part of it. This compliance is one label
# more, behind the law's: where a law bends sharply its effect is not linear.
#
# Stretches whose errors stand out count less (see `UnknownErrors`), which changes the best fit, and that the errors.


# Points that a longer curve is averaged to, and the tests of a record together, of which more would be slow to answer.
_MOST_POINTS, _MOST_OF_RECORD = 1000, 400
# _COMPLIANCE_STEP: step that slopes by the compliance are taken from, in its standard deviations.
_COMPLIANCE_STEP = 1e-3
# Noise is not smaller than this share of the largest response: so many digits are written.
_LEAST_NOISE = 1e-4
# Errors that noise alone makes as seldom are more than noise.
UNLIKE_NOISE = 0.01
# How often the best fit is made anew where errors stand out.
_FITS = 4
# Rows of labels that a law answers together.
_CHUNK = 512
# _GROUPS: neighbours are averaged into one of these numbers of groups; correlations are worked out once for each.
_GROUPS = (10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200)
# _INDEPENDENT: prior probability of independent errors.
_INDEPENDENT = 0.5
# _FREEDOM: degrees of freedom of the prior of the variance.
_FREEDOM = 2.0
# _WORTH: correlations that are less likely than the best by a factor exp(-_WORTH) are left out.
_WORTH = 8.0
# _SAME_VARIANCE: variances of one correlation that differ by less are the same, to rounding.
_SAME_VARIANCE = 1e-13
# _MOST_KEPT: correlations that are integrated over, at most.
_MOST_KEPT = 40
# _MOST_LARGER: stretches whose errors are larger than the others', at most.
_MOST_LARGER = 8
# _SELDOM: how seldom equal errors make a stretch that stands out so much.
_SELDOM = 1e-3
# _STRETCHES: stretches of a test whose errors are compared with each other.
_STRETCHES = 10
# _FREE_OF_NOISE: degrees of freedom that the noise between neighbours, by their second differences, has of each point.
_FREE_OF_NOISE = 1.0 / 3.0


@dataclasses.dataclass(frozen=True)
class MeasuredTests:
    """Measurements of one material: history, response [points], noise, and errors of strain and load of each test."""

    histories: tuple[History, ...]
    responses: tuple[Array, ...]
    noise: tuple[float, ...]
    strain_errors: tuple[StrainError, ...]
    loads_in_doubt: tuple[float, ...]

    @classmethod
    def of(cls, record: MeasuredRecord) -> "MeasuredTests":
        """Takes the tests of a record; noise is what the points show."""
        tests = record.tests
        most = _MOST_POINTS if record.curve is not None else _MOST_OF_RECORD // len(tests)
        thinned = coarse(tests, max(most, 3 * max(len(test.turns) for test in tests)))
        return cls(
            tuple(test.history for test in thinned),
            tuple(test.response for test in thinned),
            tuple(_noise(test.noise, test.response) for test in thinned),
            tuple(test.strain_error for test in thinned),
            tuple(test.load_in_doubt for test in thinned),
        )

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


@dataclasses.dataclass(frozen=True)
class _Kept:
    """One correlation that the residuals of a test allow, n groups and e effects.

    Attributes:
      vectors: [n, n], see `Correlation`; variances: [n]; shapes: effects over variances in their frame, [n, e].
      taken: covariance of what is off given the residuals, over the errors' variance, [e, e].
      logarithm: of its prior probability over the root of its determinant.
    """

    vectors: Array
    variances: Array
    shapes: Array
    taken: Array
    logarithm: float

    def independent(self, turned: Array) -> Array:
        """Residuals [k, n] as independent numbers of one size: those in its frame are `turned`."""
        roots = np.sqrt(self.variances)
        off = turned @ self.shapes @ self.taken
        left = turned / roots - off @ (self.shapes * roots[:, None]).T
        # The symmetric root of the covariance, so that errors keep their places.
        return np.asarray(left @ self.vectors.T)


@dataclasses.dataclass(frozen=True)
class _Frame:
    """The m correlations of one length, which share their vectors and are likely together.

    Attributes:
      rows: their places among all that are kept.
      rest: inverse of their least variance, [m]: long and smooth errors have few others.
      vectors: the v whose variances differ from it, [n, v]; beyond: their inverses, less `rest`, [m, v].
      shapes: [n, m e], in the order of the test; taken: [m, e, e]; see `_Kept`.
    """

    rows: list[int]
    rest: Array
    vectors: Array
    beyond: Array
    shapes: Array
    taken: Array

    @classmethod
    def of(cls, kept: list[_Kept], rows: list[int]) -> "_Frame":
        few = [kept[i] for i in rows]
        vectors, variances = few[0].vectors, np.stack([one.variances for one in few])
        least = variances.min(axis=1, keepdims=True)
        differ = (variances - least > _SAME_VARIANCE).any(axis=0)
        return cls(
            rows,
            1.0 / least[:, 0],
            vectors[:, differ],
            1.0 / variances[:, differ] - 1.0 / least,
            np.concatenate([vectors @ one.shapes for one in few], axis=1),
            np.stack([one.taken for one in few]),
        )


class UnknownErrors:
    """The density of one test's residuals.

    Residuals are a sum of errors. Noise is independent, or has a correlated part, rough or smooth: that stands for a
    law which does not quite follow the material (M. C. Kennedy, A. O'Hagan, Bayesian calibration of computer models, J.
    Royal Statistical Society B 63 (2001) 425-464). Wrong zeroes and a wrong strain move the response in shapes that the
    law knows. Before the test, independent noise is as likely as all correlations of `correlated_errors` together. The
    variance has the conjugate prior (inverse gamma, two degrees of freedom) at the noise that the points show.
    Variance, zeroes and strain are integrated over in closed form, the correlations one by one.

    Where a law misses a knee, or a specimen slips, errors are larger than elsewhere. Stretches that stand out against
    all others are searched at the best fit, the worst first. Their errors are taken to be larger by the factors that
    they show, so these points count less (iterated reweighting: R. J. Carroll, D. Ruppert, Transformation and weighting
    in regression, 1988).

    Attributes:
      groups: that its points are averaged into, [groups], where each begins.
      scale: what the errors of each group are larger by, [groups], 1 where none stand out.
    """

    def __init__(
        self,
        residuals: Array,
        effects: Array,
        noise: float,
        noisier: Array | None = None,
        off: Array | None = None,
    ):
        """Takes what is known before any parameters are.

        Args:
          residuals: of the best fit, [points], in the order of the test.
          effects: what the response changes by where a zero or the strain is off by a standard deviation, [points, e].
          noise: standard deviation that the points show, in their unit; positive.
          noisier: by what factors the noise of single points is larger, [points]; None where it is even.
          off: by what factors misfit makes errors larger than noise, [points]; None where none stands out.
        """
        count = max([groups for groups in _GROUPS if groups <= len(residuals)], default=0)
        count = count or len(residuals)
        self.groups = np.arange(count) * len(residuals) // count
        self._sizes = np.diff([*self.groups, len(residuals)])
        self._prior = _FREEDOM * noise**2 * count / len(residuals)
        self._noise = noise
        self._freedom = count + _FREEDOM
        self.effects = self.averaged(effects.T).T
        self._best = self.averaged(residuals[None])
        self._noisier = np.ones(count)
        if noisier is not None:
            self._noisier = np.sqrt(self.averaged(noisier[None] ** 2)[0])
        self.scale = self._noisier.copy()
        if off is not None:
            self.scale *= np.sqrt(self.averaged(off[None] ** 2)[0])
        self._keep_likely()
        for _ in range(_MOST_LARGER):
            stretch, factor = self._standing_out()
            if factor <= 1.0:
                break
            self.scale[stretch] *= factor
            self._keep_likely()

    def averaged(self, values: Array) -> Array:
        """Means of the groups: [..., points] -> [..., groups]."""
        return np.asarray(np.add.reduceat(values, self.groups, axis=-1) / self._sizes)

    def _keep_likely(self) -> None:
        self._kept = self._likely(self._best)
        rows: dict[int, list[int]] = {}
        for i, kept in enumerate(self._kept):
            rows.setdefault(id(kept.vectors), []).append(i)
        self._frames = [_Frame.of(self._kept, some) for some in rows.values()]

    def _likely(self, residuals: Array) -> list[_Kept]:
        """The correlations to integrate over, by the residuals of the best fit [1, groups]."""
        families = correlations(residuals.shape[1])
        others = sum(map(len, families)) - 1
        found = []
        for family in families:
            turned = residuals / self.scale @ family[0].vectors
            effects = family[0].vectors.T @ (self.effects / self.scale[:, None])
            share = _INDEPENDENT if len(family) == 1 else (1.0 - _INDEPENDENT) / others
            variances = np.stack([one.variances for one in family])
            found += self._of_family(family[0].vectors, variances, turned, effects, share)
        found.sort(key=lambda pair: -pair[0])
        worth = [kept for density, kept in found if density >= found[0][0] - _WORTH]
        return worth[:_MOST_KEPT]

    def _of_family(
        self, vectors: Array, variances: Array, turned: Array, effects: Array, share: float
    ) -> list[tuple[float, _Kept]]:
        """Correlations of variances [m, n] in one frame, each after the log density of the residuals [1, n]."""
        shapes = effects / variances[:, :, None]
        known, identity = effects.T @ shapes, np.eye(effects.shape[1])
        whole, off = (1.0 / variances) @ np.square(turned[0]), turned[0] @ shapes
        # Wrong zeroes and strains are known in the unit of the response, not relative to the errors' size. This is that
        # size at the best fit. Misfit may be most of the residuals, so it is found step by step.
        explained: Array = np.zeros(len(variances))
        for _ in range(4):
            variance = np.maximum((whole - explained) / turned.shape[1], self._prior / _FREEDOM)
            taken = np.linalg.inv(known + variance[:, None, None] * identity)
            explained = np.einsum("mi,mij,mj->m", off, taken, off)
        determinants = np.linalg.slogdet(identity + known / variance[:, None, None])[1]
        logarithms = np.log(share) - 0.5 * (np.log(variances).sum(axis=1) + determinants)
        densities = self._densities(logarithms, whole - explained).tolist()
        rows = zip(variances, shapes, taken, logarithms.tolist(), strict=True)
        return [
            (density, _Kept(vectors, *row)) for density, row in zip(densities, rows, strict=True)
        ]

    def _densities(self, logarithms: Array, squares: Array) -> Array:
        squares = np.maximum(squares, 0.0) + self._prior
        return np.asarray(logarithms - 0.5 * self._freedom * np.log(squares))

    def _of_each(self, residuals: Array) -> tuple[Array, Array]:
        """Log densities under each correlation, and their sums of squares: [kept, k] each, of groups [k, groups]."""
        residuals = residuals / self.scale
        squares = np.empty((len(self._kept), len(residuals)))
        whole = np.einsum("kn,kn->k", residuals, residuals)
        for frame in self._frames:
            off = residuals @ frame.shapes
            off = np.swapaxes(off.reshape(len(off), len(frame.rows), -1), 0, 1)
            explained = ((off @ frame.taken) * off).sum(axis=2)
            further = frame.beyond @ np.square(residuals @ frame.vectors).T
            squares[frame.rows] = np.outer(frame.rest, whole) + further - explained
        logarithms = np.array([kept.logarithm for kept in self._kept])
        return self._densities(logarithms[:, None], squares), squares

    def log_density(self, residuals: Array) -> Array:
        """Logarithm of the density of residuals [k, groups] up to a constant: [k]."""
        return np.asarray(scipy.special.logsumexp(self._of_each(residuals)[0], axis=0))

    @functools.cached_property
    def precision(self) -> Array:
        """Inverse covariance of the groups' errors, the mean over what the best fit allows: [groups, groups]."""
        densities, squares = self._of_each(self._best)
        shares = np.exp(densities[:, 0] - scipy.special.logsumexp(densities[:, 0]))
        total = np.zeros((len(self.groups), len(self.groups)))
        for kept, share, square in zip(self._kept, shares, squares[:, 0], strict=True):
            inverse = (kept.vectors / kept.variances) @ kept.vectors.T
            turned = kept.vectors @ kept.shapes
            inverse -= turned @ kept.taken @ turned.T
            total += share * self._freedom / (max(square, 0.0) + self._prior) * inverse
        return total / np.outer(self.scale, self.scale)

    def of_points(self, points: int) -> Array:
        """The scale of each point of the test, [points]."""
        return self.scale[np.searchsorted(self.groups, np.arange(points), side="right") - 1]

    def _standing_out(self) -> tuple[slice, float]:
        """The stretch of the best fit's errors that stands out most, and by what factor; 1 where chance would do."""
        densities = self._of_each(self._best)[0]
        kept = self._kept[int(np.argmax(densities[:, 0]))]
        squares = np.square(kept.independent(self._best / self.scale @ kept.vectors))[0]
        count, sums = len(squares), np.concatenate([[0.0], np.cumsum(squares)])
        least, tried, found = 0.0, 0, (slice(0), 1.0)
        for length in (2**i for i in range((count // 2).bit_length())):
            starts = np.arange(0, count - length + 1, max(length // 2, 1))
            inside = sums[starts + length] - sums[starts]
            outside = np.maximum((sums[-1] - inside) / (count - length), 1e-300)
            ratio = inside / length / outside
            with np.errstate(divide="ignore"):
                p = np.log(scipy.special.fdtrc(length, count - length, ratio))
            tried += len(starts)
            i = int(np.argmin(p))
            if p[i] < least:
                stretch = slice(int(starts[i]), int(starts[i]) + length)
                least, found = float(p[i]), (stretch, float(np.sqrt(ratio[i])))
        return found if least + np.log(tried) < np.log(_SELDOM) else (slice(0), 1.0)

    def noise_ratio(self, residuals: Array) -> Array:
        """Mean square of residuals [k, groups] over the mean square of the noise which the points show: [k].

        Zeroes and compliances that are off are taken out. Where the law holds and errors are independent it has
        Fisher's distribution of `noise_freedom`.
        """
        variance = self._noise**2 / self._sizes.mean()
        residuals, effects = residuals / self._noisier, self.effects / self._noisier[:, None]
        taken = np.linalg.inv(effects.T @ effects + variance * np.eye(len(effects.T)))
        off = residuals @ effects
        left = np.square(residuals).sum(axis=1) - np.einsum("ki,ij,kj->k", off, taken, off)
        return np.asarray(left / (variance * len(self.groups)))

    @property
    def noise_freedom(self) -> tuple[float, float]:
        """Degrees of freedom of the numerator and the denominator of `noise_ratio`."""
        return float(len(self.groups)), _FREE_OF_NOISE * float(self._sizes.sum())

    def stretch_p(self, residuals: Array, generator: np.random.Generator) -> Array:
        """How probable errors are that stand out in one stretch of the test as much as these do, [k].

        Correlation and size of the errors are drawn from their posterior, given residuals [k, groups].
        """
        densities, squares = self._of_each(residuals)
        shares = np.exp(densities - scipy.special.logsumexp(densities, axis=0))
        places = generator.random(len(residuals)) > np.cumsum(shares, axis=0)
        chosen = np.minimum(places.sum(axis=0), len(self._kept) - 1)
        found, residuals = np.empty(len(residuals)), residuals / self.scale
        bounds = np.arange(_STRETCHES + 1) * len(self.groups) // _STRETCHES
        for i in np.unique(chosen):
            kept, rows = self._kept[i], np.flatnonzero(chosen == i)
            turned = residuals[rows] @ kept.vectors
            errors = np.square(kept.independent(turned))
            size = (np.maximum(squares[i, rows], 0.0) + self._prior) / generator.chisquare(
                self._freedom, len(rows)
            )
            parts = [
                scipy.special.chdtrc(b - a, errors[:, a:b].sum(axis=1) / size)
                for a, b in itertools.pairwise(bounds)
                if b > a
            ]
            found[rows] = 1.0 - (1.0 - np.min(parts, axis=0)) ** len(parts)
        return found


class MeasuredErrors(Target):
    """The likelihood of a measured curve or record, as a function of the labels of its law and of the compliance.

    The last label is even in 0-1, as the others are: the probability of a smaller compliance. The law of a specimen
    that a program simulates has its machine and the zero of its strain among its parameters: no compliance is beside
    them.

    Attributes:
      best: labels of the best fit, [p].
    """

    def __init__(self, law: Law, measured: MeasuredTests, best: Array, compliance: bool = True):
        """Takes what was measured, and labels [p] of the best fit, or near it; `compliance`: whether it is unknown."""
        self.law, self._measured = law, measured
        self.nuisances = int(compliance)
        self.best = np.clip(best, 0.0, 1.0)
        with np.errstate(all="ignore"):
            self._errors = self._settled()
        self._best = np.append(self.best, 0.5)[None]

    def _with_compliance(self, labels: Array) -> Array:
        """Labels [k, p + 1], the compliance in the middle of its range where it is known."""
        return labels if self.nuisances else np.column_stack([labels, np.full(len(labels), 0.5)])

    def log_density(self, labels: Array, records: Rows = ONE) -> Array:
        labels = self._with_compliance(labels)
        return self._sorted(labels, self._density(self._residuals(labels)))

    def expansion(self, labels: Array, records: Rows = ONE) -> tuple[Array, Array, Array]:
        """See `Target`; slopes and information are those for the errors of the best fit."""
        labels, count = self._with_compliance(labels), labels.shape[1]
        gradient = np.zeros(labels.shape)
        information = np.zeros((*labels.shape, labels.shape[1]))
        pairs = [self._with_slopes(test, labels) for test in range(len(self._errors))]
        density = self._density([residuals for residuals, _ in pairs])
        for errors, (residuals, slopes) in zip(self._errors, pairs, strict=True):
            weighted = slopes @ errors.precision
            gradient -= (weighted @ residuals[:, :, None])[:, :, 0]
            information += weighted @ np.swapaxes(slopes, 1, 2)
        return (
            self._sorted(labels, density),
            gradient[:, :count],
            information[:, :count, :count],
        )

    def _density(self, residuals: Sequence[Array]) -> Array:
        pairs = zip(self._errors, residuals, strict=True)
        with np.errstate(all="ignore"):
            return np.asarray(np.sum([errors.log_density(each) for errors, each in pairs], axis=0))

    def _sorted(self, labels: Array, density: Array) -> Array:
        """Log densities, -inf where terms that can change places are not in their order, or a law overflowed."""
        own = labels[:, :-1]
        unique = self.law.sorted_labels(own)
        if unique is not own:
            density = np.where((unique == own).all(axis=1), density, -np.inf)
        return np.where(np.isnan(density), -np.inf, density)

    def with_errors(self, labels: Array, generator: np.random.Generator) -> Array | None:
        """See `Target`: parameters move with the compliance so that the response stays the same.

        A network that knows noise alone draws labels from too narrow a range where there is more: their weights cannot
        tell of what they never reached.
        """
        if self.beyond_noise() < UNLIKE_NOISE:
            return None
        if not self.nuisances:
            return labels
        _, _, information = self.expansion(self._best)
        mixed = information[0, :-1, -1]
        moved = np.linalg.solve(
            information[0, :-1, :-1] + np.eye(len(mixed)) / PRIOR_VARIANCE, mixed
        )
        # One standard deviation of the compliance is so much of its label, where that begins.
        normal = generator.standard_normal((len(labels), 1))
        shift = -normal * moved / np.sqrt(2.0 * np.pi)
        return np.concatenate([labels + shift, scipy.special.ndtr(normal)], axis=1)

    def marginal(self, labels: Array) -> Array:
        """See `Target`: by a parabola in the compliance."""
        if not self.nuisances:
            return self.log_density(labels)
        normal = _normal(labels[:, -1])
        information = self.expansion(self._best)[2][0, -1, -1]
        step = float(1.0 / np.sqrt(1.0 + information / (2.0 * np.pi)))
        steps = (-step, 0.0, step)
        below, here, above = (
            self._sorted(labels, self._density(residuals)) - 0.5 * np.square(normal + moved)
            for moved, residuals in zip(steps, self._moved_residuals(labels, steps), strict=True)
        )
        slope, bend = 0.5 * (above - below), 2.0 * here - above - below
        bend = np.where(bend > 0.1, bend, 1.0)
        return np.asarray(here + 0.5 * slope**2 / bend - 0.5 * np.log(bend) + np.log(step))

    def predictive_p(self, labels: Array, generator: np.random.Generator) -> tuple[float, float]:
        """See `Target`; what is compared are errors that stand out in one stretch of a test."""
        residuals = self._residuals(self._with_compliance(labels))
        pairs = zip(self._errors, residuals, strict=True)
        of_tests = [errors.stretch_p(each, generator) for errors, each in pairs]
        worst = 1.0 - (1.0 - np.min(of_tests, axis=0)) ** len(of_tests)
        return float(worst.mean()), float(self._beyond_noise(residuals).mean())

    def beyond_noise(self) -> float:
        """How probable noise is to leave as much as the best fit does."""
        return float(self._beyond_noise(self._residuals(self._best))[0])

    def _beyond_noise(self, residuals: Sequence[Array]) -> Array:
        """How probable independent noise of the size that the points show is to leave as much, [k]."""
        pairs = list(zip(self._errors, residuals, strict=True))
        ratios = [errors.noise_ratio(each) for errors, each in pairs]
        above, below = np.array([errors.noise_freedom for errors, _ in pairs]).T
        ratio = np.average(ratios, axis=0, weights=above)
        return np.asarray(scipy.special.fdtrc(above.sum(), below.sum(), ratio))

    def _answer(
        self,
        history: History,
        labels: Array,
        steps: Sequence[float] = (0.0,),
        answer: Array | None = None,
    ) -> list[Array]:
        """The measured answer at labels [k, p + 1] but for noise, [k, points], the compliance moved by each step.

        `answer` is that without a compliance, [k, points], where it is there already.
        """
        own, normal = labels[:, :-1], _normal(labels[:, -1])
        if answer is None:
            answer = self.law.label_stress(TestSet((history,)), own)
        if not self.nuisances:
            return [answer for _ in steps]
        taken = COMPLIANCE * elastic_strain(history, answer)
        if history.strain is None:
            return [answer + (normal + step)[:, None] * taken for step in steps]
        rows = history.changed(lambda array: np.broadcast_to(array, (len(own), *array.shape[1:])))
        found = []
        for step in steps:
            strain = history.strain - (normal + step)[:, None] * taken
            moved = dataclasses.replace(rows, strain=strain)
            is_moved = bool((normal + step).any())
            found.append(self.law.label_stress(TestSet((moved,)), own) if is_moved else answer)
        return found

    def _residuals(self, labels: Array) -> list[Array]:
        """Answers minus what was measured, of each test: [k, groups]."""
        return self._moved_residuals(labels, (0.0,))[0]

    def _moved_residuals(self, labels: Array, steps: Sequence[float]) -> list[list[Array]]:
        """The same for each step by which the compliance is moved."""
        measured, found = self._measured, list[list[Array]]()
        tests = zip(measured.histories, measured.responses, self._errors, strict=True)
        for history, response, errors in tests:
            parts = [
                [
                    errors.averaged(answer - response)
                    for answer in self._answer(history, labels[i : i + _CHUNK], steps)
                ]
                for i in range(0, len(labels), _CHUNK)
            ]
            found.append([np.concatenate(each) for each in zip(*parts, strict=True)])
        return [list(of_tests) for of_tests in zip(*found, strict=True)]

    def _with_slopes(self, test: int, labels: Array) -> tuple[Array, Array]:
        """Residuals [k, groups] of a test and d answer / d label, [k, p + 1, groups].

        Slopes by the law's labels are taken at the strain as it was measured.
        """
        measured, errors = self._measured, self._errors[test]
        history = measured.histories[test]
        stress, slopes = self.law.label_expansion(TestSet((history,)), labels[:, :-1])
        answer, ahead = self._answer(history, labels, (0.0, _COMPLIANCE_STEP), stress)
        density = np.exp(-0.5 * _normal(labels[:, -1]) ** 2) / np.sqrt(2.0 * np.pi)
        change = (ahead - answer) / (_COMPLIANCE_STEP * density)[:, None]
        joined = np.concatenate([slopes, change[:, :, None]], axis=2)
        residuals = errors.averaged(answer - measured.responses[test])
        return residuals, errors.averaged(np.swapaxes(joined, 1, 2))

    def _settled(self) -> list[UnknownErrors]:
        """The errors of each test about the best fit, which is made anew where some of them count less."""
        tests, first = self._measured, self.best.copy()
        off = self._missed_knees()
        errors = self._errors_of_best(off)
        for _ in range(_FITS):
            if all((one.scale == 1.0).all() for one in errors):
                break
            pairs = zip(errors, tests.responses, strict=True)
            scales = [one.of_points(len(response)) for one, response in pairs]
            starts = np.stack([first, self.best])
            self.best = np.clip(tests.nearest(self.law, starts, scales), 0.0, 1.0)
            errors = self._errors_of_best(off)
        return errors

    def _errors_of_best(self, off: Sequence[Array | None]) -> list[UnknownErrors]:
        found, tests = [], self._measured
        best = np.append(self.best, 0.5)[None]
        rows = zip(*vars(tests).values(), off, strict=True)
        for history, response, noise, strain_error, load, misfit in rows:
            answer = self._answer(history, best)[0][0]
            zero = ZERO * zero_effects(self.law, history, best[:, :-1], response[None])[0]
            if load:
                of_load = load_effect(self.law, history, best[:, :-1], load)[0]
                zero = np.column_stack([zero, of_load])
            if strain_error.shift:
                moved = strain_effect(self.law, TestSet((history,)), best[:, :-1])[0]
                zero = np.column_stack([zero, strain_error.shift * moved])
            noisier = deviation_by_strain_noise(history, response, answer, strain_error)
            residuals = np.nan_to_num(answer - response)
            found.append(UnknownErrors(residuals, zero, noise, noisier, misfit))
        return found

    def _missed_knees(self) -> list[Array | None]:
        """See `missed_knee`, of each test."""
        found, tests, best = [], self._measured, self.best[None]
        rows = zip(tests.histories, tests.responses, tests.strain_errors, strict=True)
        for history, response, strain_error in rows:
            answer = self.law.label_stress(TestSet((history,)), best)[0]
            noisier = deviation_by_strain_noise(history, response, answer, strain_error)
            even = np.ones(len(response)) if noisier is None else noisier
            found.append(missed_knee(self.law, history, best, response, even))
        return found


def _normal(labels: Array) -> Array:
    """Standard normal numbers with these probabilities of a smaller one."""
    return np.asarray(scipy.special.ndtri(np.clip(labels, 1e-12, 1.0 - 1e-12)))
