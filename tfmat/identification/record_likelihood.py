"""The likelihood of records of tests whose zeroes, machine, or size and correlation of noise are not known. NumPy only.

What is not known of a record is drawn, as its parameters are: so it gets labels of its own, uniform in 0-1, behind
those of the parameters, and the likelihood is that of both. Nothing is linearised: histories are moved, and machines
are solved for, as the simulation does it. Who integrates over all labels has integrated over the errors too.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.curves.apparatus import Apparatus, log_uniform
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.identification.likelihood import CurveLikelihood, Likelihoods, NoiseModel, Rows
from tfmat.materials.history import History, TestSet
from tfmat.materials.law import Array, Law

Value = Callable[[Array], Array]

# Of the differences that slopes are taken from: steps of the parameters' labels (a machine is solved for to 1e-6 of the
# strain, which small steps would show), and of the errors' labels as a share of their distance from the ends.
_STEP, _STEP_OF_SOLVED, _SHARE = 1e-5, 1e-3, 1e-3
# Of the distribution of an offset: its table reaches to so many of the largest standard deviations.
_REACH, _TABLE, _SIZES = 8.0, 4001, 48
_LEAST = 1e-14


@dataclasses.dataclass(frozen=True)
class _Nuisance:
    """One error of a record: what it is, of which test (None: of all), and its value at a label, [k] -> [k]."""

    name: str
    test: int | None
    value: Value


def record_likelihoods(
    law: Law, noise: NoiseModel, tests: TestSet, response: Array, valid: NDArray[np.bool_]
) -> list[CurveLikelihood]:
    """One for each record, whose labels have those of its errors behind them; see `RecordLikelihoods`."""
    many = RecordLikelihoods(law, noise, tests, response, valid)
    return [CurveLikelihood.one_of(many, i) for i in range(len(many))]


class RecordLikelihoods(Likelihoods):
    """The likelihoods of records as functions of their labels and of those of their errors, [k, p + nuisances].

    Errors of a test that is missing change nothing, so that their labels keep their prior.
    """

    def __init__(
        self,
        law: Law,
        noise: NoiseModel,
        tests: TestSet,
        response: Array,
        valid: NDArray[np.bool_],
    ):
        """Takes a test set, responses in its unit, and what is there, [records, points], as `observed` gives them."""
        super().__init__(law, noise, tests, response, valid)
        assert noise.unknown is not None
        self._tests, self._settings = tests, noise.unknown
        self._nuisances = _nuisances(noise.unknown)
        self.nuisances = len(self._nuisances)
        self._own = len(law.identified)
        self._absolute = RecordForm.of(noise.unknown).noise(noise.unknown)

    def log_density(self, curves: Rows, labels: Array) -> Array:
        """See `Likelihoods.log_density`; labels [k, p + nuisances]."""
        own = labels[:, : self._own]
        whitened, logarithm, answer = self._whitened(curves, labels)
        total: Array = -0.5 * np.einsum("kn,kn->k", whitened, whitened) - logarithm
        if self.noise.strength_mpa is not None:
            unit = self._tests[curves].unit
            total = total + self._log_cut_probability(curves, answer / unit)
        unique = self.law.sorted_labels(own)
        if unique is not own:
            total = np.where((unique == own).all(axis=1), total, -np.inf)
        return np.where(np.isnan(total), -np.inf, total)

    def slope_and_curvature(self, curves: Rows, labels: Array) -> tuple[Array, Array]:
        """See `Likelihoods.slope_and_curvature`, by differences; of how the spread of points tells its size, half.

        Returns:
          [k, p + nuisances] and [k, p + nuisances, p + nuisances].
        """
        count, columns = labels.shape
        solved = any(one.name == "machine_stiffness" for one in self._nuisances)
        steps = np.full((count, columns), _STEP_OF_SOLVED if solved else _STEP)
        errors = labels[:, self._own :]
        steps[:, self._own :] = _SHARE * np.minimum(errors, 1.0 - errors) + _LEAST
        moves = steps[:, None, :] * np.eye(columns)
        tried = np.concatenate([labels[:, None] + moves, labels[:, None] - moves], axis=1)
        rows = curves if isinstance(curves, slice) else np.repeat(curves, 2 * columns)
        whitened, logarithm, _ = self._whitened(rows, tried.reshape(-1, columns))
        fit = -0.5 * np.einsum("kn,kn->k", whitened, whitened) - logarithm
        ahead, behind = np.split(fit.reshape(count, 2 * columns), 2, axis=1)
        further, nearer = np.split(whitened.reshape(count, 2 * columns, -1), 2, axis=1)
        slope = (ahead - behind) / (2.0 * steps)
        jacobian = (further - nearer) / (2.0 * steps[:, :, None])
        return slope, jacobian @ np.swapaxes(jacobian, 1, 2)

    def _whitened(self, curves: Rows, labels: Array) -> tuple[Array, Array, Array]:
        """Residuals as independent standard normal numbers, zero where there is no point, [k, points]; the logarithm of
        their density's scale, [k]; and what the specimens answered, in MPa or -, [k, points]."""
        count, tests = len(labels), self._tests[curves]
        parameters = self.law.from_labels(labels[:, : self._own])
        measured, valid, unit = np.broadcast_arrays(
            self.stress[curves], self.valid[curves], tests.unit
        )
        measured = measured * unit
        answers = np.zeros((count, self.noise.num_points))
        whitened, logarithm = np.zeros_like(answers), np.zeros(count)
        points = self.noise.num_points // len(tests.histories)
        correlation = self._value("noise_correlation", None, labels)
        with np.errstate(all="ignore"):
            for test, history in enumerate(tests.histories):
                part = slice(test * points, (test + 1) * points)
                there = valid[:, part]
                if not there.any():
                    continue
                answers[:, part], shown = self._answered(test, history, parameters, labels)
                deviation = np.full((count, 1), self._absolute[part.start])
                share = self._value("noise_of_maximum", test, labels)
                if share is not None:
                    largest = np.where(there, np.abs(shown), 0.0).max(axis=1)
                    deviation = np.hypot(deviation, (share * largest)[:, None])
                elif self._settings.noise_told:
                    deviation = unit[:, part.start, None]
                deviation = np.hypot(deviation, self.noise.noise_relative * shown)
                deviation = np.maximum(deviation, _LEAST)
                logarithm += np.where(there, np.log(deviation), 0.0).sum(axis=1)
                residual = np.where(there, (shown - measured[:, part]) / deviation, 0.0)
                if correlation is not None:
                    fresh = 1.0 - correlation**2
                    after = residual[:, 1:] - correlation[:, None] * residual[:, :-1]
                    after = np.where(there[:, 1:], after, 0.0) / np.sqrt(fresh)[:, None]
                    residual[:, 1:] = after
                    logarithm += 0.5 * there[:, 1:].sum(axis=1) * np.log(fresh)
                whitened[:, part] = residual
        return whitened, logarithm, answers

    def _answered(
        self, test: int, history: History, parameters: Array, labels: Array
    ) -> tuple[Array, Array]:
        """What the specimen of a test answers, and what is measured of it but for noise: [k, points] each."""
        apparatus = Apparatus(
            strain_offset=self._value("strain_offset", test, labels),
            stress_offset=self._value("stress_offset", test, labels),
            stiffness=self._value("machine_stiffness", None, labels),
        )
        count = len(labels)
        rows = history.changed(lambda array: np.broadcast_to(array, (count, *array.shape[1:])))
        answer = apparatus.answer(rows, lambda seen: self.law.respond(seen, parameters))
        return answer, apparatus.shown(rows, answer)

    def _value(self, name: str, test: int | None, labels: Array) -> Array | None:
        """The error of that name at labels, [k]; None where there is none."""
        for column, one in enumerate(self._nuisances, start=self._own):
            if one.name == name and one.test == test:
                return one.value(labels[:, column])
        limits = getattr(self._settings, name)
        told = name == "noise_of_maximum" and self._settings.noise_told
        # One value for all records is no unknown; an offset always is one.
        known = limits is not None and limits[0] == limits[1] and "offset" not in name
        return np.full(len(labels), limits[0]) if known and not told else None


def _nuisances(settings: CurveSettings) -> tuple[_Nuisance, ...]:
    """The errors of a record, in the order of their labels."""
    found = []
    for name in ("noise_correlation", "machine_stiffness"):
        if _is_drawn(limits := getattr(settings, name)):
            found.append(_Nuisance(name, None, _log_uniform_value(limits)))
    drawn = settings.noise_of_maximum
    for test, programme in enumerate(RecordForm.of(settings).programmes):
        if drawn is not None and _is_drawn(drawn) and not settings.noise_told:
            found.append(_Nuisance("noise_of_maximum", test, _log_uniform_value(drawn)))
        if settings.stress_offset is not None:
            found.append(_Nuisance("stress_offset", test, _offset_value(settings.stress_offset)))
        if settings.strain_offset is not None and programme.drives == "strain":
            found.append(_Nuisance("strain_offset", test, _offset_value(settings.strain_offset)))
    return tuple(found)


def _is_drawn(limits: tuple[float, float] | None) -> bool:
    return limits is not None and limits[0] < limits[1]


def _log_uniform_value(limits: tuple[float, float]) -> Value:
    return lambda labels: log_uniform(limits, labels)


def _offset_value(limits: tuple[float, float]) -> Value:
    """The quantile of a normal number whose standard deviation is log-uniform between `limits`.

    Linear between the knots of a table over the normal quantile of the label, where it is nearly straight.
    """
    low, high = limits
    nodes, weights = np.polynomial.legendre.leggauss(_SIZES)
    sizes = low * (high / low) ** (0.5 * (nodes + 1.0))
    values = high * np.sinh(np.linspace(-1.0, 1.0, _TABLE) * np.arcsinh(_REACH * high / low))
    values *= low / high
    below = 0.5 * (scipy.special.ndtr(values[:, None] / sizes) @ weights)
    # By symmetry from the lower half, where small probabilities are not lost.
    lower = scipy.special.ndtri(below[: _TABLE // 2 + 1])
    normal = np.concatenate([lower, -lower[-2::-1]])
    kept = np.concatenate([np.isfinite(normal[:-1]) & (np.diff(normal) > 0), [True]])

    def value(labels: Array) -> Array:
        clipped = np.clip(labels, _LEAST, 1.0 - _LEAST)
        return np.asarray(np.interp(scipy.special.ndtri(clipped), normal[kept], values[kept]))

    return value
