"""Targets of sampling: how probable records are, given the parameters behind them. NumPy only.

A target is the log density of labels, of one record or of several that are answered together. `SimulatedErrors` knows
the size of independent noise, as the simulation does. In `DrawnErrors` a record's zeroes, its machine, and the size and
correlation of its noise were drawn too, and nobody told them. They get labels of their own, uniform in 0-1, behind the
labels of the parameters, and the likelihood is a function of both. Nothing is linearised: histories are moved, and
machines are solved for, as the simulation does it. Integrating over all labels integrates over the errors too.
`measured_likelihood.MeasuredErrors` is the target of measured tests.
"""

import abc
import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array, History, Law, TestSet
from tfmat.records.laboratory import OBSERVATION, Apparatus, log_uniform
from tfmat.records.simulation import CurveSettings, RecordForm

# PRIOR_VARIANCE: of a label, uniform between 0 and 1; it bounds what can be unknown.
PRIOR_VARIANCE = 1.0 / 12.0
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

    What is known of a curve is all that a network gets: strain and noisy stress of the points, and how many points
    there are. The strains tell the grid of the curve exactly, so that its drawn maximum strain is known, and says
    nothing of the parameters, which were drawn apart from it. The number of points m of n does tell of them: with
    strength S drawn uniformly, apart from all else, the curve ends with the first point (of noise-free stress τ) that
    exceeds S, so

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
        """See `Target`."""
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
        """See `Target`."""
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
