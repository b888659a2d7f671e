"""The likelihood of records of tests whose zeroes, machine, or size and correlation of noise are not known. NumPy only.

What is not known of a record is drawn, as its parameters are: so it gets labels of its own, uniform in 0-1, behind
those of the parameters, and the likelihood is that of both. Nothing is linearised: histories are moved, and machines
are solved for, as the simulation does it. Who integrates over all labels has integrated over the errors too.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.apparatus import Apparatus
from tfmat.curves.records import RecordForm
from tfmat.identification.likelihood import Likelihoods, NoiseModel, Rows
from tfmat.identification.nuisances import nuisances_of
from tfmat.materials.law import Array, History, Law, TestSet

# Of the differences that slopes are taken from: steps of the parameters' labels (a machine is solved for to 1e-6 of the
# strain, which smaller steps would show), and of the errors' labels as a share of their distance from the ends.
_STEP, _SHARE, _LEAST = 1e-3, 1e-3, 1e-14


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
        assert noise.unknown is not None
        self._settings, self._nuisances = noise.unknown, nuisances_of(noise.unknown)
        super().__init__(law, noise, tests, response, valid)
        self.nuisances = len(self._nuisances)
        self._tests, self._own = tests, len(law.identified)
        self._absolute = RecordForm.of(noise.unknown).noise(noise.unknown)

    def log_density(self, curves: Rows, labels: Array) -> Array:
        """See `Likelihoods.log_density`; labels [k, p + nuisances]."""
        return self._log_density_of(curves, labels, self._fit(curves, labels, False))

    def expansion(self, curves: Rows, labels: Array) -> tuple[Array, Array, Array]:
        """See `Likelihoods.expansion`; of how the spread of points tells its size, half is in the information."""
        fit = self._fit(curves, labels, True)
        transposed = np.swapaxes(fit.jacobian, 1, 2)
        slope = -(transposed @ fit.whitened[:, :, None])[:, :, 0] - fit.slope
        return self._log_density_of(curves, labels, fit), slope, transposed @ fit.jacobian

    def _log_density_of(self, curves: Rows, labels: Array, fit: _Fit) -> Array:
        total: Array = -0.5 * np.einsum("kn,kn->k", fit.whitened, fit.whitened) - fit.logarithm
        if self.noise.strength_mpa is not None:
            unit = self._tests[curves].unit
            total = total + self._log_cut_probability(curves, fit.answers / unit)
        own = labels[:, : self._own]
        unique = self.law.sorted_labels(own)
        if unique is not own:
            total = np.where((unique == own).all(axis=1), total, -np.inf)
        return np.where(np.isnan(total), -np.inf, total)

    def _fit(self, curves: Rows, labels: Array, with_slopes: bool) -> _Fit:
        (count, columns), tests = labels.shape, self._tests[curves]
        measured, valid, unit = np.broadcast_arrays(
            self.stress[curves], self.valid[curves], tests.unit
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
            # What the machine takes moves with every parameter.
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
        """What the specimen of a test answers, and what is measured of it but for noise: [k, points] each."""
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
