"""Parameters that the tests of a material leave open, and which test to do next."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from tfmat.errors import InputError, nearest
from tfmat.identification.caveats import GIVE_IT
from tfmat.identification.least_squares import (
    ABOVE_NOISE,
    RecordFit,
    correlated_errors,
    fit,
    repeated,
    residuals_of,
    widened,
)
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors, unknown_likelihood
from tfmat.identification.posterior import Certificate, Posterior
from tfmat.identification.results import COVERAGE, Narrowing, NextTest, Quantity, TestGain
from tfmat.identification.sampling import adaptive_of_many
from tfmat.launch.processes import one_thread_a_product
from tfmat.materials.law import PRIOR_VARIANCE, Array, History, Law, Parameter, TestSet
from tfmat.materials.numerics import Residuals
from tfmat.materials.registry import LAWS
from tfmat.records.programmes import Programme, programme_class, refusal, takes_tests
from tfmat.records.record import Caveat, MeasuredRecord, coarse
from tfmat.records.simulation import CurveSettings

# --------------------------------------------------------------------------------------------------
# One measured specimen: its tests on few points, the noise that they show, and its posterior. NumPy only.


# A measured test counts on so many points; a further one has as many as those have, within limits.
_MOST_POINTS, _FEWEST_POINTS = 100, 16
# A fit inside the ranges whose residuals are no more than this factor larger is nearly as good.
_AS_GOOD = 1.5
# The posterior is sampled so often side by side: their scatter tells the error of its intervals.
_REPLICATES = 8


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

    The noise is from the simulation, or from the fit's residuals where these are larger. Correlated residuals enlarge
    it as they widen the intervals of least squares. The law's ranges are the prior; where no fit inside them is nearly
    as good as the best, the wider ranges of least squares are.
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
    stress = float(np.abs(np.concatenate([t.stress_mpa for t in fewer.tests])).max())
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
    specimen: Specimen, starts: Array, replicates: int = _REPLICATES
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
        target, np.tile(starts, (replicates, 1, 1)), _generators(0, replicates)
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
    ends = 0.5 + np.array([-0.5, 0.5]) * COVERAGE
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


def _generators(seed: int, count: int) -> Sequence[np.random.Generator]:
    return [np.random.default_rng([seed, i]) for i in range(count)]


# --------------------------------------------------------------------------------------------------
# How much a further test of a specimen is expected to tell, by simulating it at draws from the specimen's posterior.
#
# The expected information gain of a test is the mean of ln p(y | parameters) - ln p(y | what is known) over
# parameters drawn from the posterior and records y simulated at them (D. V. Lindley, On a measure of the information
# provided by an experiment, Ann. Math. Statist. 27 (1956) 986-1005). The second density is the mean of the first over
# all draws (nested Monte Carlo: K. J. Ryan, Estimating expected information gains for experimental designs with
# application to the random fatigue-limit model, J. Comput. Graph. Statist. 12 (2003) 585-603): with the draw that the
# record was simulated at among them it is too large, without it too small, so that the truth lies between. The same
# weights give the intervals that are left. Where they stand on few draws, the posterior with the simulated record is
# sampled anew.


# Records that are simulated of each test; of those whose posteriors have to be sampled anew.
_SIMULATED, _SAMPLED = 192, 24
# Weights are not trusted where they fail for more than this share of the simulated records.
_MOST_FAILING = 0.1
# Draws of largest weight that sampling starts from, beside the one that the record was simulated at.
_MOST_WEIGHED = 5
# Fewer draws tell no interval.
_FEWEST_EFFECTIVE = 30.0

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Gain:
    """The information that a further test is expected to give; q quantities.

    Attributes:
      nats, nats_error: expected information gain, and its standard error.
      log_ratio, log_ratio_error: mean of ln(width of the 95 % interval with the test / without it), [q] each.
      sampled: whether posteriors were sampled anew, because weights stood on few draws.
      pareto_k: median over the simulated records of Pareto's k of their weights.
      records: simulated and answered; doubtful: those of them whose sampled posterior did not quite converge; failed:
        those left out, whose weights or sampling stand on too few draws.
    """

    nats: float
    nats_error: float
    log_ratio: Array
    log_ratio_error: Array
    sampled: bool
    pareto_k: float
    records: int
    failed: int
    doubtful: int = 0


class Gains:
    """The information that further tests of one specimen are expected to give of some quantities."""

    def __init__(
        self,
        specimen: Specimen,
        known: Posterior,
        replicate: NDArray[np.intp],
        quantities: Callable[[Array], Array],
    ):
        """Takes `known` and `replicate` as `known_of` gives them.

        Args:
          quantities: the function labels [k, p] -> quantities [k, q], each on the scale that widths are compared on.
        """
        self._specimen, self._known, self._quantities = specimen, known, quantities
        assert known.log_weights is not None
        self._log_weights = known.log_weights
        self._weights = np.exp(known.log_weights)
        self._values = quantities(known.labels)
        self.before = intervals(self._values, self._weights)
        self._log_width = _log_width(self.before)
        own = np.stack(
            [
                _log_width(intervals(self._values[part], self._weights[part]))
                for part in (replicate == i for i in range(replicate.max() + 1))
            ]
        )
        # Standard error of the widths without a further test, as the replicates scatter.
        self._error = own.std(axis=0, ddof=1) / np.sqrt(len(own)) if len(own) > 1 else 0.0 * own[0]
        # All tests are simulated at the same draws, so that chance does not order them.
        generator = np.random.default_rng(0)
        places = (np.arange(_SIMULATED) + generator.random()) / _SIMULATED
        sums = np.cumsum(self._weights)
        chosen = np.searchsorted(sums, places * sums[-1])
        self._at = generator.permutation(np.minimum(chosen, len(sums) - 1))

    def of(self, test: TestSet, progress: Progress | None = None) -> Gain:
        """The information that a test is expected to give.

        Args:
          test: one row, of `points` points; its unit is the noise of a further test.
          progress: called with (done, total) records of those that are sampled anew.
        """
        response, valid, density, linear = self._simulated(test)
        log_weights = self._log_weights + density
        rows = np.arange(_SIMULATED)
        own = density[rows, self._at]
        with_it = scipy.special.logsumexp(log_weights, axis=1)
        log_weights[rows, self._at] = -np.inf
        without_it = scipy.special.logsumexp(log_weights, axis=1)
        # Between both lies the logarithm of the mean density.
        found = [
            Posterior.weighted(self._values, row) if np.isfinite(row).sum() else None
            for row in log_weights
        ]
        tails = np.array([99.0 if one is None else one.certificate.pareto_k for one in found])
        trusted = [one is not None and one.converged for one in found]
        if np.mean(trusted) < 1.0 - _MOST_FAILING:
            records = response, valid, density, linear
            return self._sampled(test, records, float(np.median(tails)), progress)
        good = [one for one, is_good in zip(found, trusted, strict=True) if is_good and one]
        gains = own - 0.5 * (with_it + np.maximum(without_it, with_it - 1.0))
        gap = 0.5 * float(np.mean(with_it - np.maximum(without_it, with_it - 1.0)))
        widths = np.stack([_log_width(_weighted_intervals(g, g.labels)) for g in good])
        failed = len(rows) - len(good)
        return self._gain(gains, linear, widths, False, float(np.median(tails)), failed, gap)

    def _sampled(
        self,
        test: TestSet,
        records: tuple[Array, NDArray[np.bool_], Array, Array],
        pareto_k: float,
        progress: Progress | None,
    ) -> Gain:
        specimen, known = self._specimen, self._known
        response, valid, density, linear = records
        part = slice(0, _SAMPLED)
        both = TestSet(
            (*specimen.tests.histories, *test.histories),
            np.concatenate(
                [_units(specimen.tests, specimen.response.size), _units(test, response.shape[1])]
            ),
        )
        measured = np.tile(specimen.response, (_SAMPLED, 1))
        target = target_of(
            specimen.law,
            both,
            np.concatenate([measured, response[part]], axis=1),
            np.concatenate([np.ones(measured.shape, np.bool_), valid[part]], axis=1),
        )
        likely = np.argsort(-(self._log_weights + density[part]), axis=1)[:, :_MOST_WEIGHED]
        starts = known.labels[np.concatenate([self._at[part, None], likely], axis=1)]
        generators = _generators(1, _SAMPLED)
        found = adaptive_of_many(target, starts, generators, progress)
        # To leave out all that did not quite converge, the sharpest mostly, would make the mean of the others wrong.
        rows = np.array(
            [i for i, one in enumerate(found) if one.effective_draws >= _FEWEST_EFFECTIVE],
            np.intp,
        )
        doubtful = sum(not found[i].converged for i in rows)
        own = density[rows, self._at[rows]]
        evidence = np.array([found[i].log_evidence for i in rows])
        gains = own - (evidence - known.log_evidence)
        widths = [
            _log_width(_weighted_intervals(found[i], self._quantities(found[i].labels)))
            for i in rows
        ]
        shape = (0, len(self._log_width))
        joined = np.stack(widths) if widths else np.empty(shape)
        failed = _SAMPLED - len(rows)
        gain = self._gain(gains, linear[rows], joined, True, pareto_k, failed, 0.0)
        return dataclasses.replace(gain, doubtful=doubtful)

    def _gain(
        self,
        gains: Array,
        linear: Array,
        log_widths: Array,
        sampled: bool,
        pareto_k: float,
        failed: int,
        gap: float,
    ) -> Gain:
        if len(log_widths) < 2:
            nothing = np.full(len(self._log_width), np.nan)
            return Gain(np.nan, np.nan, nothing, nothing, sampled, pareto_k, 0, failed)
        # The gain that a linear law would make of each record by chance has a mean of zero, and much of the scatter.
        spread = linear.var()
        share = np.mean(linear * (gains - gains.mean())) / spread if spread > 0 else 0.0
        gains = gains - share * linear
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        spread = log_widths.std(axis=0, ddof=1) / np.sqrt(len(log_widths))
        return Gain(
            float(gains.mean()),
            float(np.hypot(error, gap)),
            log_widths.mean(axis=0) - self._log_width,
            np.hypot(spread, self._error),
            sampled,
            pareto_k,
            len(log_widths),
            failed,
        )

    def _simulated(self, test: TestSet) -> tuple[Array, NDArray[np.bool_], Array, Array]:
        """Records of a test at the chosen draws, [records, points], what is there, and their log density at all draws.

        The last is each one's gain but for its mean, if the law were linear and the posterior normal, [records].

        A machine ends a test where its response passes what the specimen has borne. The record shows this end, so its
        density counts the points up to there.
        """
        specimen = self._specimen
        (history,) = test.histories
        with np.errstate(all="ignore"):
            answers = specimen.law.label_stress(test, self._known.labels)
        generator = np.random.default_rng(2)
        response = answers[self._at]
        noise = generator.standard_normal(response.shape)
        response = response + noise
        largest = specimen.largest[0 if history.stress is None else 1]
        beyond = np.abs(response * _units(test, response.shape[1])) > largest
        ended = np.cumsum(beyond, axis=1) > beyond
        valid: NDArray[np.bool_] = np.asarray(~ended & np.isfinite(response))
        response = np.where(valid, response, 0.0)
        density = np.empty((len(response), len(answers)))
        for i, (row, there) in enumerate(zip(response, valid, strict=True)):
            with np.errstate(all="ignore"):
                difference = answers[:, there] - row[there]
                density[i] = -0.5 * np.einsum("kn,kn->k", difference, difference)
        linear = self._linear(test, noise, np.asarray(valid.all(axis=0)))
        return response, valid, np.where(np.isfinite(density), density, -np.inf), linear

    def _linear(self, test: TestSet, noise: Array, there: NDArray[np.bool_]) -> Array:
        """-ε'ε/2 + (Jδ + ε)'(JCJ' + 1)⁻¹(Jδ + ε)/2 of each record, at its points that are always there: [records].

        ε is its noise, δ its draw less the mean, C the covariance of the draws, and J the slopes at their mean.
        """
        labels, weights = self._known.labels, self._weights
        mean = weights @ labels / weights.sum()
        centred = labels - mean
        covariance = (centred * weights[:, None]).T @ centred / weights.sum()
        with np.errstate(all="ignore"):
            slopes = self._specimen.law.label_derivatives(test, mean[None])[0][there]
        noise = noise[:, there]
        seen = centred[self._at] @ slopes.T + noise
        spread = slopes @ covariance @ slopes.T + np.eye(len(slopes))
        if not np.isfinite(spread).all():
            return np.zeros(len(noise))
        explained = np.einsum("kn,nk->k", seen, np.linalg.solve(spread, seen.T))
        return np.asarray(0.5 * (explained - np.einsum("kn,kn->k", noise, noise)))


def _weighted_intervals(posterior: Posterior, values: Array) -> Array:
    """95 % intervals [q, 2] of values [draws, q] at the posterior's weighted draws."""
    assert posterior.log_weights is not None
    return intervals(values, np.exp(posterior.log_weights))


def _units(tests: TestSet, points: int) -> Array:
    return np.broadcast_to(np.asarray(tests.unit, np.float64), (points,))


def _log_width(ends: Array) -> Array:
    return np.asarray(np.log(np.maximum(ends[..., 1] - ends[..., 0], 1e-300)))


# --------------------------------------------------------------------------------------------------
# Tests that a law knows and a specimen did not have: candidates for the next one, and what is to be predicted.


# _POINTS: of a proposed test.
_POINTS = 60
# Settings that a test may be repeated with another value of.
_VARIED = ("rate", "temperature", "hold", "stress", "strain")
# Cycles of constant amplitude about zero are the ones that people ask for.
_PLAIN = {"first": 1.0, "irregularity": 0.0, "mean": 0.0}
# Settings that tell nobody which test is meant.
_UNTOLD = (*_PLAIN, "ramp", "unloading")
# Where in its range a test that was not done may end: early and late, beside the middle.
_EARLY_AND_LATE = (0.25, 0.9)


@dataclasses.dataclass(frozen=True)
class FurtherTest:
    """A test that was not done.

    Attributes:
      text: it in words, `a test of equibiaxial tension (equibiaxial=FILE)`.
      programme, settings: what kind of test it is, and the value of each setting.
      told: names of those settings that tell it from others of its kind.
    """

    text: str
    programme: Programme
    settings: Mapping[str, float]
    told: tuple[str, ...] = ()

    def history(self, points: int = _POINTS) -> History:
        """The history of the machine, as one row."""
        # A record may hold more cycles than a programme has points for; the last ones tell nothing new.
        most = {s.name: s.high if s.name == "cycles" else np.inf for s in self.programme.settings}
        row = np.array([[min(self.settings[name], high) for name, high in most.items()]])
        return self.programme.history(row, points, np.random.default_rng(0))

    def tests(self) -> TestSet:
        """The test alone."""
        return TestSet((self.history(),))

    @property
    def name(self) -> str:
        """The way to ask for it: `equibiaxial:max_strain=1`."""
        told = ",".join(f"{name}={self.settings[name]:.4g}" for name in self.told)
        return self.programme.name + (f":{told}" if told else "")

    @property
    def title(self) -> str:
        """The test and what tells it, in words: `equibiaxial tension, max_strain 1`."""
        units = {s.name: "" if s.unit == "-" else f" {s.unit}" for s in self.programme.settings}
        told = [f"{name} {self.settings[name]:.4g}{units[name]}" for name in self.told]
        return ", ".join([self.programme.title, *told])


def other_tests(law: Law, record: MeasuredRecord) -> Iterator[FurtherTest]:
    """Tests of the law that were not done, and those that were done with one other setting."""
    done = {test.programme.name: test for test in record.tests}
    for name in dict.fromkeys(law.tests):
        programme = programme_class(name)()
        told, middle = _told(programme), middle_of(programme)
        test = done.get(name)
        if test is None or ("cycles" in middle and not test.turns):
            text = f"a test of {programme.title} ({name}=FILE)"
            yield FurtherTest(text, programme, middle, told)
            continue
        settings = middle | test.settings
        for setting in programme.settings:
            place = _place(setting, settings[setting.name])
            if setting.name in _VARIED:
                # Half-way to the end of the range that is further away.
                other = float(setting.from_unit_interval(0.5 * (place + (place < 0.5))))
                unit = "" if setting.unit == "-" else f" {setting.unit}"
                text = f"a test at another {setting.name}, such as {other:.3g}{unit},"
            elif setting.name in ("max_strain", "amplitude") and place < 0.8:
                other = setting.high
                text = f"a test to a larger strain, such as {other:.3g},"
            else:
                continue
            yield FurtherTest(text, programme, settings | {setting.name: other}, told)


def candidates(law: Law, record: MeasuredRecord) -> list[FurtherTest]:
    """A handful of tests that could come next: those that were done, others, and others to more or less strain."""
    found = []
    for test in record.tests:
        settings = middle_of(test.programme) | test.settings
        told = tuple(name for name in _told(test.programme) if name in test.settings)
        found.append(FurtherTest("the same test again", test.programme, settings, told))
    done = {test.programme.name for test in record.tests}
    for other in other_tests(law, record):
        other = dataclasses.replace(other, settings=_plain(other.settings))
        found.append(other)
        ends = [s for s in other.programme.settings if s.name in ("max_strain", "amplitude")]
        if other.programme.name in done:
            continue
        for setting in ends:
            for place in _EARLY_AND_LATE:
                value = float(f"{float(setting.from_unit_interval(place)):.2g}")
                settings = {**other.settings, setting.name: value}
                found.append(dataclasses.replace(other, settings=settings))
    return list({candidate.name: candidate for candidate in found}.values())


def asked_for(text: str, law: Law, flag: str) -> FurtherTest:
    """The test that `TEST:SETTING=VALUE,...` names; what is not given is in the middle of its range.

    Args:
      text: `equibiaxial:max_strain=1`, say.
      flag: that it was given with.

    Raises:
      InputError: there is no such test, the law does not answer it, or it has no such setting.
    """
    name, _, given = text.partition(":")
    programme = programme_class(name)()
    why = refusal(programme, law)
    if why is not None:
        raise InputError(f"--{flag}={text}: law {law.name} does not answer test {name}: {why}")
    known = {setting.name: setting for setting in programme.settings}
    settings = _plain(middle_of(programme))
    told = []
    for part in filter(None, given.split(",")):
        key, _, number = part.partition("=")
        if key not in known:
            raise InputError(
                f"--{flag}={text}: test {name} has no setting '{key}'{nearest(key, known)}"
            )
        try:
            settings[key] = float(number)
        except ValueError:
            settings[key] = np.nan
        too_many = key == "cycles" and settings[key] > known[key].high
        if not np.isfinite(settings[key]) or (known[key].low > 0 >= settings[key]) or too_many:
            most = f", at most {known[key].high:g}" if too_many else ""
            raise InputError(
                f"--{flag}={text}: {key} is '{number}'; give {_example(known[key])}{most}"
            )
        told.append(key)
    return FurtherTest(f"a test {text}", programme, settings, tuple(told))


def check_next_test(
    law: Law | None,
    settings: CurveSettings | None,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
) -> None:
    """InputError, in one line, where a law has no other tests, no likelihood, or not the tests that are named."""
    if law is None or settings is None:
        raise InputError(
            "the network is of no known law: nothing tells which test to do next (--next_test)"
        )
    if not takes_tests(law):
        others = [name for name, one in LAWS.items() if takes_tests(one())]
        raise InputError(
            f"law {law.name} knows one test, a curve of rising strain: there is no other to do next (--next_test); "
            f"laws of several tests: {', '.join(others)}"
        )
    # The choice of points that a machine records says nothing of the material.
    why = unknown_likelihood(dataclasses.replace(settings.resolved(), measured_points=None))
    if why is not None:
        raise InputError(f"--next_test needs the law's likelihood: {why}")
    for flag, texts in (("predict", predict), ("candidate", candidate)):
        for text in texts:
            asked_for(text, law, flag)


def predictions(law: Law, record: MeasuredRecord) -> list[FurtherTest]:
    """The default prediction: the end of each kind of test that was not done, half as far as was tested.

    Where all kinds were done, it is their end half-way.
    """
    done = {test.programme.name for test in record.tests}
    names = [name for name in dict.fromkeys(law.tests) if name not in done] or list(
        dict.fromkeys(law.tests)
    )
    found = []
    for name in names:
        programme = programme_class(name)()
        settings = _plain(middle_of(programme)) | half_way(programme, record)
        found.append(FurtherTest("", programme, settings, _told(programme)))
    return found


def half_way(programme: Programme, record: MeasuredRecord) -> dict[str, float]:
    """Half of the largest strain of a record as the end of a test, within its range; {} of one that has no such end."""
    largest = max(float(np.abs(test.strain).max()) for test in record.tests)
    limits = next((s for s in programme.settings if s.name == "max_strain"), None)
    if limits is None:
        return {}
    low, high = sorted((limits.low, limits.high))
    return {"max_strain": min(max(0.5 * largest, low), high)}


def middle_of(programme: Programme) -> dict[str, float]:
    """Every setting in the middle of its range."""
    return {s.name: float(s.from_unit_interval(0.5)) for s in programme.settings}


def last_answer(law: Law, test: FurtherTest, labels: Array) -> Array:
    """The response at the end of a test for labels [k, p]: [k], MPa or -."""
    return np.asarray(law.label_stress(test.tests(), labels)[:, -1])


def _told(programme: Programme) -> tuple[str, ...]:
    """The settings that tell tests of a kind apart."""
    return tuple(s.name for s in programme.settings if s.name not in _UNTOLD)


def _plain(settings: Mapping[str, float]) -> dict[str, float]:
    return {name: _PLAIN.get(name, value) for name, value in settings.items()}


def _example(setting: Parameter) -> str:
    unit = "" if setting.unit == "-" else f" in {setting.unit}"
    return f"a number{unit}, such as {float(setting.from_unit_interval(0.5)):.3g}"


def _place(setting: Parameter, value: float) -> float:
    """Where a value lies in the setting's range, 0-1."""
    if setting.low == setting.high or (setting.scale == "log" and value <= 0):
        return 0.0
    return float(np.clip(setting.to_unit_interval(value), 0.0, 1.0))


# --------------------------------------------------------------------------------------------------
# Left open by the tests of a material: parameters that they cannot tell, other tests that they do not predict.
#
# And which test would tell it. A further test is imagined at the best parameters; what it adds to JᵀJ says how well
# each parameter would be known with it.


# Parameters whose sum of squares is within this factor of the best are as good as the best to anyone who looks at it.
_AS_GOOD_WITHOUT = 1.1
# From the best fit along each axis of its covariance, so many standard deviations to both sides.
_WALK = np.geomspace(0.25, 64.0, 17)
# Predictions that differ by more than this, of their middle, are open.
_OPEN = 0.4
# A further test makes a parameter known where its standard deviation falls to this share at least.
_TELLS = 0.6


def open_caveats(law: Law, record: MeasuredRecord, fitted: RecordFit) -> list[Caveat]:
    """Parameters that the tests cannot tell, with the test that would; tests whose answer is open."""
    with np.errstate(all="ignore"):
        return [*_open_parameters(law, record, fitted), *_open_tests(law, record, fitted)]


def _open_parameters(law: Law, record: MeasuredRecord, fitted: RecordFit) -> list[Caveat]:
    best = fitted.best
    names = [p.name for p in law.identified]
    one_sided = best.is_open.sum(axis=1) == 1  # said by `caveats.one_sided_caveats`
    unknown = np.flatnonzero(best.unidentifiable & ~one_sided).tolist()
    if not unknown:
        return []
    known = residuals_of(law, record)
    labels = np.clip(best.labels, 0.0, 1.0)[None]
    information = known.normal_equations(labels)[0][0]
    freedom = max(record.num_points - len(names), 1)
    # No test is as exact as a perfect fit of few points makes it look.
    least = law.noise_mpa**2 if record.deviation(law) is None else 1.0
    variance = max(float(np.square(known.values(labels)).sum()) / freedom, least)
    before = _deviations(information / variance)
    tellers: dict[str, list[int]] = {}
    offers = [
        (candidate, _offer(law, candidate, labels, variance))
        for candidate in other_tests(law, record)
    ]
    for i in unknown:
        found = [
            (after[i], candidate.text)
            for candidate, added in offers
            if added is not None
            and (after := _deviations(information / variance + added))[i]
            < max(_TELLS * before[i], 1e-12)
        ]
        teller = min(found)[1] if found else ""
        tellers.setdefault(teller, []).append(i)
    caveats = []
    for teller, members in tellers.items():
        which = ", ".join(names[i] for i in members)
        tests = "these tests" if len(record.tests) > 1 else "this test"
        caveats.append(
            Caveat(
                "cannot be identified",
                f"{which} cannot be identified from {tests}: "
                f"{'its' if len(members) == 1 else 'each'} 95 % interval is at least as wide as the law's range"
                + (
                    f"; {teller} would identify {'it' if len(members) == 1 else 'them'}"
                    if teller
                    else ""
                ),
                GIVE_IT,
            )
        )
    return caveats


def _deviations(information: Array) -> Array:
    """Standard deviation of each label, [p], beside what its range says."""
    prior = np.eye(len(information)) / PRIOR_VARIANCE
    return np.asarray(np.sqrt(np.diag(np.linalg.pinv(information + prior, hermitian=True))))


def _offer(law: Law, candidate: FurtherTest, labels: Array, variance: float) -> Array | None:
    """A further test's part of JᵀJ over the variance, [p, p]; None where the law does not answer it."""
    try:
        slopes = law.label_derivatives(candidate.tests(), labels)[0]
    except InputError:
        return None
    found = slopes.T @ slopes / variance
    return found if np.isfinite(found).all() else None


def _open_tests(law: Law, record: MeasuredRecord, fitted: RecordFit) -> list[Caveat]:
    """Other modes that parameters which fit the tests as well answer in different ways."""
    done = {test.programme.name for test in record.tests}
    others = [name for name in dict.fromkeys(law.tests) if name not in done]
    if not others:
        return []
    labels = _as_good(fitted)
    caveats = []
    for name in others:
        programme = programme_class(name)()
        end = half_way(programme, record)
        where = f" at strain {end['max_strain']:.3g}" if end else ""
        test = FurtherTest("", programme, middle_of(programme) | end)
        try:
            answers = last_answer(law, test, labels)
        except InputError:
            continue
        answers = answers[np.isfinite(answers)]
        if not len(answers):
            continue
        low, high = float(answers.min()), float(answers.max())
        if high - low <= _OPEN * max(abs(float(answers[0])), 1e-300):
            continue
        caveats.append(
            Caveat(
                f"{name} is open",
                f"parameters that fit {'these tests' if len(done) > 1 else 'this test'} as well predict "
                f"{low:.3g} to {high:.3g} MPa in {programme.title}{where}",
                f"do not rely on the law in such a test; measure one and add {name}=FILE",
            )
        )
    return caveats


def _as_good(fitted: RecordFit) -> Array:
    """Labels [any, p], the best first, as near as the best: rivals, and along the axes of the covariance."""
    best = fitted.best
    values, axes = np.linalg.eigh(best.label_covariance)
    steps = np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T
    walk = np.concatenate([-_WALK, _WALK])
    tried = np.concatenate(
        [best.labels[None], fitted.rivals, *(best.labels + walk[:, None] * step for step in steps)]
    )
    searched = fitted.searched
    cost = np.square(repeated(searched, len(tried)).values(tried)).sum(axis=1)
    near = cost <= _AS_GOOD_WITHOUT * cost[: 1 + len(fitted.rivals)].min()
    near[0] = True
    return tried[near]


# --------------------------------------------------------------------------------------------------
# The next test of a specimen: every test that its law knows, by the information that it is expected to give.


# _POINTS_A_TURN: of a history that turns, so that its corners are followed.
_POINTS_A_TURN = 8
# Predictions whose ends are further apart than this factor are compared on a log scale.
_FAR = 4.0
# Samples of a network that the sampling starts from, beside the best fit.
_NETWORK_STARTS = 8


@dataclasses.dataclass(frozen=True)
class NextTests:
    """The tests that could come next, those that tell most first.

    Attributes:
      quantities: what is narrowed: parameters, then predictions.
      tests: with what each is expected to tell.
      noise: standard deviation of a point, MPa and -, of tests that drive strain and stress; points: of a further test.
      known: the posterior of the specimen.
    """

    quantities: Sequence[Quantity]
    tests: Sequence[tuple[FurtherTest, Gain]]
    noise: tuple[float, float]
    points: int
    known: Posterior

    def sentences(self) -> list[str]:
        """The best tests' effects, in words: one for each prediction, and for the parameter known least."""
        found = []
        answered = [pair for pair in self.tests if np.isfinite(pair[1].nats)]
        for i, quantity in enumerate(self.quantities):
            if not answered or not quantity.is_prediction:
                continue
            test, gain = min(answered, key=lambda pair: pair[1].log_ratio[i])
            ratio = float(np.exp(gain.log_ratio[i]))
            on_log = " (on a log scale)" if quantity.compared_on == "log" else ""
            found.append(f"{_article(test)} would {_narrowing(ratio, quantity.title)}{on_log}")
        return found

    def entry(self) -> NextTest:
        """The entry `next_test` of an answer."""
        return NextTest(
            effective_samples=self.known.effective_draws,
            pareto_k=self.known.certificate.pareto_k,
            noise_mpa=self.noise[0],
            noise_strain=self.noise[1],
            num_points=self.points,
            quantities=list(self.quantities),
            tests=[self._entry(test, gain) for test, gain in self.tests],
            sentences=self.sentences(),
        )

    def _entry(self, test: FurtherTest, gain: Gain) -> TestGain:
        columns = zip(self.quantities, gain.log_ratio, gain.log_ratio_error, strict=True)
        return TestGain(
            test=test.programme.name,
            name=test.name,
            title=test.title,
            again=test.text == "the same test again",
            settings={name: float(value) for name, value in test.settings.items()},
            gain_nats=finite_or_none(gain.nats),
            gain_error=finite_or_none(gain.nats_error),
            interval_ratio={
                quantity.name: Narrowing(
                    finite_or_none(np.exp(mean)), finite_or_none(np.exp(mean) * error)
                )
                for quantity, mean, error in columns
            },
            by="sampling" if gain.sampled else "weights",
            pareto_k=gain.pareto_k,
            records=gain.records,
            failed=gain.failed,
            doubtful=gain.doubtful,
        )


def next_tests_of(
    law: Law,
    record: MeasuredRecord,
    settings: CurveSettings,
    labels: Array,
    samples: Array | None = None,
    *,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
    progress: Progress | None = None,
) -> "NextTests | Caveat":
    """The tests of a specimen that could come next; a warning where its posterior is not known.

    Args:
      settings: of the simulation whose noise a further test has, where the specimen shows no more.
      labels: [p], of the best fit; samples: [samples, p] of a network's posterior, where the sampling starts too.
      predict: what is to be predicted, as `asked_for` reads it; none: the other tests of the law.
      candidate: the tests to choose from; none: a handful that the law knows.
      progress: called with (done, total) tests.
    """
    with one_thread_a_product():
        specimen, best = specimen_of(law, record, settings, labels)
        starts = best[None]
        if samples is not None and specimen.law is law:
            starts = np.concatenate([starts, samples[:_NETWORK_STARTS]])
        known, replicate = known_of(specimen, starts)
        if not known.certificate.is_exact:
            text = (
                f"the posterior of {record.name} did not converge (Pareto k {known.certificate.pareto_k:.2g}), so that "
                "which test to do next is not known"
            )
            return Caveat("next test not known", text, "give what is known of it (--fix)")
        wanted = [asked_for(text, law, "predict") for text in predict] or predictions(law, record)
        tests = [asked_for(text, law, "candidate") for text in candidate] or candidates(law, record)
        return next_tests(specimen, known, replicate, wanted, tests, progress)


def next_tests(
    specimen: Specimen,
    known: Posterior,
    replicate: NDArray[np.intp],
    wanted: Sequence[FurtherTest],
    tests: Sequence[FurtherTest],
    progress: Progress | None = None,
) -> NextTests:
    """The expected information of each of the tests of a specimen.

    Args:
      known, replicate: its posterior, as `known_of` says; it has converged.
      wanted: predictions.
      progress: called with (done, total) tests.

    Raises:
      InputError: the law answers none of the tests.
    """
    quantities = Quantities(specimen.law, known, wanted)
    gains = Gains(specimen, known, replicate, quantities)
    found = []
    for done, test in enumerate(tests):
        if progress:
            progress(done, len(tests))
        history = test.history(_points_of(test, specimen.points))
        unit = specimen.noise[0 if history.stress is None else 1]
        found.append((test, gains.of(TestSet((history,), unit))))
    if progress:
        progress(len(tests), len(tests))
    found.sort(key=lambda pair: -pair[1].nats if np.isfinite(pair[1].nats) else np.inf)
    return NextTests(
        quantities.described(gains.before), found, specimen.noise, specimen.points, known
    )


def _points_of(test: FurtherTest, points: int) -> int:
    """As many as the specimen's own tests have, but enough to follow the turns of the history."""
    turns = 2.0 * test.settings.get("cycles", 0.0)
    return max(points, int(np.ceil(_POINTS_A_TURN * turns)))


class Quantities:
    """Parameters and predictions at labels, on the scales that widths are compared on."""

    def __init__(self, law: Law, known: Posterior, wanted: Sequence[FurtherTest]):
        self._law, self._wanted = law, wanted
        self._logarithmic = np.zeros(len(wanted), np.bool_)
        answers = self._predicted(known.labels)
        assert known.log_weights is not None
        ends = intervals(answers, np.exp(known.log_weights))
        far = (ends[:, 0] > 0) & (ends[:, 1] > _FAR * ends[:, 0])
        self._logarithmic = far & (answers > 0).all(axis=0)

    def __call__(self, labels: Array) -> Array:
        """[k, p] -> [k, p + predictions]."""
        predicted = self._predicted(labels)
        predicted[:, self._logarithmic] = np.log(
            np.maximum(predicted[:, self._logarithmic], 1e-300)
        )
        return np.concatenate([labels, predicted], axis=1)

    def _predicted(self, labels: Array) -> Array:
        with np.errstate(all="ignore"):
            columns = [last_answer(self._law, test, labels) for test in self._wanted]
        joined = np.stack(columns, axis=1) if columns else np.empty((len(labels), 0))
        return np.nan_to_num(joined, nan=np.inf)

    def described(self, ends: Array) -> list[Quantity]:
        """The quantities with their intervals, given on the scales of the comparison, [p + predictions, 2]."""
        found = []
        for parameter, interval in zip(self._law.identified, ends, strict=False):
            low, high = (float(parameter.from_unit_interval(end)) for end in interval)
            on = "log" if parameter.scale == "log" else "linear"
            name, unit = parameter.name, parameter.unit
            found.append(Quantity(name, name, unit, (low, high), on, False))
        predicted = ends[len(self._law.identified) :]
        by_log = self._logarithmic.tolist()
        for test, is_log, interval in zip(self._wanted, by_log, predicted, strict=True):
            low, high = (float(np.exp(end) if is_log else end) for end in interval)
            strain_driven = test.programme.drives == "strain"
            what = "stress" if strain_driven else "strain"
            title = f"the {what} at the end of {test.title}"
            unit = "MPa" if strain_driven else "-"
            on = "log" if is_log else "linear"
            found.append(Quantity(test.name, title, unit, (low, high), on, True))
        return found


def _article(test: FurtherTest) -> str:
    title = f"{test.programme.name} test" if test.text != "the same test again" else test.text
    told = test.title.removeprefix(test.programme.title).removeprefix(", ")
    named = f"{title} ({told})" if told else title
    if test.text == "the same test again":
        return named
    return f"{'an' if named[0] in 'aeiou' else 'a'} {named}"


def _narrowing(ratio: float, title: str) -> str:
    """The effect of a test on an interval that it makes `ratio` times as wide, such as `halve the interval of ...`."""
    interval = f"the 95 % interval of {title}"
    if ratio > 0.95:
        return f"hardly narrow {interval}"
    if ratio > 0.6:
        return f"narrow {interval} by {100 * (1 - ratio):.0f} %"
    if ratio > 0.42:
        return f"halve {interval}"
    return f"narrow {interval} by a factor of {1 / ratio:.2g}"


def finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
