"""The answer for a record: its posterior, what is recommended, whether it may be used; specimens pooled."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy
from msgspec import UNSET
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.files import plain
from tfmat.identification import caveats
from tfmat.identification.caveats import stability_caveats
from tfmat.identification.least_squares import (
    ABOVE_NOISE,
    BestFit,
    RecordFit,
    better_law,
    conditioned,
    deviation_by_strain_noise,
    errors_of_tests,
    fit_record,
    rms_percent,
    stress_by_strain,
)
from tfmat.identification.likelihood import UNLIKE_NOISE, MeasuredErrors, MeasuredTests
from tfmat.identification.networks import Identifier, Sidecar, check_samples, in_units
from tfmat.identification.next_test import NextTests, finite_or_none, next_tests_of, open_caveats
from tfmat.identification.posterior import (
    Certificate,
    Posterior,
    independent_normal,
    inference_data,
    normal_proposals,
)
from tfmat.identification.results import (
    COVERAGE,
    Answer,
    AnsweredTest,
    CurvePicture,
    DrawnTest,
    Fitted,
    Interval,
    Method,
    PosteriorPicture,
    Ranked,
    Setting,
    TensileValue,
    TestsPicture,
    Value,
    Warned,
)
from tfmat.identification.sampling import sample
from tfmat.launch.processes import all_in_processes
from tfmat.materials.cards import card_text, check_card
from tfmat.materials.law import Array, History, Law, Parameter
from tfmat.records.record import (
    Caveat,
    MeasuredRecord,
    MeasuredTest,
    half_cycles,
    reasons_not_to_use,
    record_features,
    resample,
    with_elastic_strain,
)
from tfmat.records.simulation import CurveSettings, features_of
from tfmat.records.tensile import Property, TensileProperties, elastic_part

# --------------------------------------------------------------------------------------------------
# The answer of a network to the tests of one material, and the posterior it is corrected to.


# SAMPLES: of a whole posterior where none are asked for; mean, standard deviation and interval are made of them.
SAMPLES = 1000
# _DRAWS_OF_A_PART: draws of the posterior of each part of a record's tests, which are weighed by the posterior of all.
_DRAWS_OF_A_PART = 8192


@dataclasses.dataclass(frozen=True)
class Predicted:
    """The network's answer for one record, p identified parameters.

    Attributes:
      labels: [p], cut to 0-1.
      std: [p], calibrated, on the same scale; None where the network gives none.
      interval: [p, 2], 95 %, on the same scale; None with `std`.
      posterior: the network's own, or what `posterior_of` made of it, whose mean, std and interval these are where it
        is exact; None where the network has none, or a Gaussian of each label and no samples were asked for.
    """

    labels: Array
    std: Array | None
    interval: Array | None
    posterior: Posterior | None = None

    @property
    def is_exact(self) -> bool:
        """Whether this is the law's posterior, so that its intervals hold whatever the misfit."""
        return self.posterior is not None and self.posterior.certificate.is_exact

    @property
    def covariance(self) -> Array | None:
        """The labels' covariance, [p, p]; None where it is not known."""
        if self.posterior is not None and self.is_exact:
            return np.atleast_2d(np.cov(self.posterior.labels.T))
        return None if self.std is None else np.diag(self.std**2)


def predict(
    network: Identifier, record: MeasuredRecord, may_fail: bool, samples: int = 0
) -> tuple[Predicted | None, list[Caveat]]:
    """The network's answer, and what it was not trained for.

    The answer is None for a curve that is far too short, or where the network knows none of the tests: an error unless
    it `may_fail`. A network that has fewer places than there are tests of a kind answers them in parts, see `_weighed`.
    """
    if record.curve is not None:
        return _predict_curve(network, record.curve, may_fail, samples)
    parts = [record]
    if network.uncertainty != "none":
        names = [programme.name for programme in network.form.programmes]
        parts = [dataclasses.replace(record, tests=tests) for tests in _parts(record.tests, names)]
    caveats, known = [], []
    for part in parts:
        features, beyond = record_features(part, network.form)
        caveats += beyond
        if features is not None:
            known.append(features)
    answers = [_predicted(network, features, samples) for features in known]
    if not answers:
        if may_fail:
            return None, []
        raise InputError(
            f"{record.name}: no test of it is one that the network was trained on; leave --noleast_squares out"
        )
    if len(answers) < 2:
        return answers[0], caveats
    kind = "network answered in parts"
    if network.uncertainty == "flow":
        product = _product(network, known, samples)
        if product is not None:
            text = f"the network answered these tests in {len(answers)} parts, whose posteriors were multiplied"
            advice = "its intervals are a little too narrow before correction"
            return product, [*caveats, Caveat(kind, text, advice)]
    text = f"the network answered these tests in {len(answers)} parts, whose answers were weighed by their precision"
    advice = "its standard deviations are those of one part in the mean, which is too much"
    return _weighed(answers, samples), [*caveats, Caveat(kind, text, advice)]


def _predict_curve(
    network: Identifier, curve: MeasuredTest, may_fail: bool, samples: int
) -> tuple[Predicted | None, list[Caveat]]:
    try:
        strain, stress, valid = resample(curve.strain, curve.stress_mpa, network.target)
    except InputError:
        if may_fail and network.law is not None:
            text = (
                f"the curve ends at strain {curve.strain[-1]:.3g}, far before those that the network was trained on; "
                "least squares alone answered"
            )
            return None, [Caveat("too short for the network", text)]
        raise
    return _predicted(network, features_of(strain[None], stress[None], valid[None]), samples), []


def _predicted(network: Identifier, features: np.ndarray, samples: int) -> Predicted:
    """The answer for one record [1, points, channels]."""
    raw, std, limits = network.answers(features)
    if not np.isfinite(raw).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    labels = np.clip(raw[0], 0.0, 1.0)
    if std is None or limits is None:
        return Predicted(labels, None, None)
    drawn = None
    if network.uncertainty == "flow":
        drawn = network.proposals(features, samples or SAMPLES)[0]
    elif samples:
        drawn = network.draws(features, samples)[0]
    return Predicted(labels, std[0], limits[0, 0], drawn)


def network_errors(
    parameters: Sequence[Parameter], predicted: Predicted
) -> list[tuple[float | None, Interval | None]]:
    """Standard deviation and 95 % interval of each identified parameter, in its unit; None where there is none."""
    if predicted.std is None or predicted.interval is None:
        return [(None, None) for _ in parameters]
    std, limits = in_units(
        parameters, predicted.labels[None], predicted.std[None], predicted.interval[None]
    )
    return [(float(std[0, i]), interval_of(limits[0, i])) for i in range(len(parameters))]


def interval_of(ends: Array) -> Interval | None:
    """Both ends of an interval [2]; None where one is not known."""
    return (float(ends[0]), float(ends[1])) if np.isfinite(ends).all() else None


def _parts(tests: Sequence[MeasuredTest], names: Sequence[str]) -> list[list[MeasuredTest]]:
    """The tests in as few parts as can be, none with more tests of a kind than stand in `names`."""
    parts: list[list[MeasuredTest]] = [[]]
    for test in tests:
        kind = test.programme.name
        most = max(names.count(kind), 1)
        place = sum(each.programme.name == kind for part in parts for each in part) // most
        while len(parts) <= place:
            parts.append([])
        parts[place].append(test)
    return parts


def _product(network: Identifier, parts: Sequence[np.ndarray], samples: int) -> Predicted | None:
    """One answer of whole posteriors of different tests of one material; None where too few of their draws count.

    Given the parameters tests know nothing of each other, and before them labels are uniform. So the posterior is the
    product of the parts' posteriors, each record [1, points, channels]. Draws of all parts are weighed by it.
    """
    labels = np.concatenate([network.draws(each, _DRAWS_OF_A_PART).labels[0] for each in parts])
    densities = np.stack([network.log_density(each, labels[None])[0] for each in parts])
    mixture = scipy.special.logsumexp(densities, axis=0) - np.log(len(parts))
    ratios = densities.sum(axis=0) - mixture
    weighed = Posterior.weighted(labels, ratios, proposals=len(labels))
    if not weighed.converged:
        return None
    count = 2 * (samples or SAMPLES)
    chosen = weighed.resampled(count, np.random.default_rng(0))
    density = densities.sum(axis=0) - weighed.log_evidence
    draws = Posterior(labels[chosen], density[chosen], parameters=network.parameters)
    return Predicted(draws.mean, draws.std, draws.intervals((COVERAGE,))[0], draws)


def _weighed(answers: Sequence[Predicted], samples: int) -> Predicted:
    """One answer of several to different tests of one material: labels weighed by their precision.

    The standard deviation follows from the mean precision. Precisions are not added, because tests leave the
    same things open, above all parameters that make up for each other. For 1,500 pairs of simulated cyclic tests 95 %
    intervals of added precisions held the truth in 90 to 95 %, intervals of the mean precision in 95 to 99 %.
    """
    labels, std, interval = (
        np.stack([getattr(each, name) for each in answers])
        for name in ("labels", "std", "interval")
    )
    precision = std**-2.0
    mean = (precision * labels).sum(axis=0) / precision.sum(axis=0)
    deviation = precision.mean(axis=0) ** -0.5
    ends = ((interval - labels[..., None]) / std[..., None]).mean(axis=0) * deviation[:, None]
    draws = None
    if samples:
        draws = independent_normal(mean[None], deviation[None], samples, 0)[0]
    limits = np.clip(mean[:, None] + ends, 0.0, 1.0)
    return Predicted(mean, deviation, limits, draws)


def posterior_of(
    law: Law | None,
    predicted: Predicted | None,
    record: MeasuredRecord,
    fitted: RecordFit | None,
    samples: int,
    correct: bool,
) -> tuple[Predicted | None, Posterior | None]:
    """The posterior that a network's draws are corrected to; without them the one about the fit, where it is asked for.

    Args:
      law: of the parameters that are not given; None where no law is known.
      predicted: the network's answer; None where none answers.
      fitted: by least squares, perhaps beyond the ranges; None where that was left out.
      samples: that are asked for, perhaps 0; correct: whether the law's likelihood is asked.

    Returns:
      The network's answer, that of the posterior where it is exact, and the posterior; None where there is none.
    """
    best = None if fitted is None else fitted.best
    own = None if predicted is None else predicted.posterior
    if predicted is None or own is None:
        if not samples or law is None or best is None or not correct:
            return predicted, None
        proposals = normal_proposals(best.labels, best.label_covariance, samples)
        starts = np.clip(best.labels, 0.0, 1.0)[None]
        return predicted, _corrected(law, record, proposals, samples, starts, best.labels)
    count = samples or SAMPLES
    if law is None or not correct:
        reason = "correction was left out"
        if law is None:
            reason = "no likelihood: the network was trained on labelled curves of no known law"
        assert own.label_log_density is not None
        amortised = Certificate("amortised", reason)
        posterior = Posterior(
            own.labels[:count], own.label_log_density[:count], amortised, own.parameters
        )
        return dataclasses.replace(predicted, posterior=posterior), posterior
    fit = None if best is None else best.labels
    started = predicted.labels if fit is None else np.clip(fit, 0.0, 1.0)
    posterior = _corrected(law, record, own, count, np.stack([predicted.labels, started]), fit)
    if not posterior.certificate.is_exact:
        return dataclasses.replace(predicted, posterior=posterior), posterior
    exact = Predicted(posterior.mean, posterior.std, posterior.interval, posterior)
    return exact, posterior


def _corrected(
    law: Law,
    record: MeasuredRecord,
    proposals: Posterior,
    count: int,
    starts: Array,
    fit: Array | None,
) -> Posterior:
    """Samples by the law's likelihood, which is linear in what is off about the nearest of the starts [k, p].

    It is not to be trusted where it leans on an end of a range beyond which the best `fit` [p] lies.
    """
    tests = MeasuredTests.of(record)
    target = MeasuredErrors(
        law, tests, tests.nearest(law, starts), compliance=law.strain_measure != "nominal"
    )
    proposals = dataclasses.replace(proposals, starts=target.best[None])
    posterior = sample(target, proposals, count, np.random.default_rng([0, 0]))
    if fit is None or not posterior.certificate.is_exact:
        return posterior
    low = (fit < -caveats.EDGE) & (posterior.interval[:, 0] < caveats.EDGE)
    high = (fit > 1.0 + caveats.EDGE) & (posterior.interval[:, 1] > 1.0 - caveats.EDGE)
    names = [p.name for p, leans in zip(law.identified, low | high, strict=True) if leans]
    if not names:
        return posterior
    reason = (
        f"it leans on the end of the range of {', '.join(names)}, beyond which the best value lies"
    )
    certificate = dataclasses.replace(posterior.certificate, status="do not trust", reason=reason)
    return dataclasses.replace(posterior, certificate=certificate)


def posterior_caveats(posterior: Posterior | None) -> Iterator[Caveat]:
    """The warnings that a posterior's certificate asks for."""
    if posterior is None:
        return
    certificate = posterior.certificate
    p = certificate.independent_noise_p
    if certificate.status == "do not trust":
        yield Caveat(
            "posterior is not to be trusted",
            f"the posterior of this answer is not to be trusted: {certificate.reason}",
            "take the values of least squares",
        )
    elif p is not None and p < UNLIKE_NOISE:
        yield Caveat(
            "more than noise",
            f"the law misses the points by more than their noise (p {p:.1g}): the posterior is wider, as it assumes "
            "correlated errors, which are larger where residuals stand out",
        )


# --------------------------------------------------------------------------------------------------
# The recommended value of each parameter: what the network and least squares say of it, and which of both it is.


# A network's curve is as near to the measured one as the best fit, but for this factor.
_AS_NEAR = 1.1


def recommended_method(
    law: Law,
    predicted: Predicted | None,
    best: BestFit | None,
    errors: Mapping[str, float],
) -> Method:
    """Least squares wherever it is asked for, so that neither a network nor samples change the answer.

    A law that errs itself, such as an emulator, is the exception: its network was trained on curves that differ from
    the law as much as the law does from the truth. The network's answer is recommended where it is as near to the
    curve, or exact. The mean of a bent posterior need not be near the curve; its intervals hold all the same.
    """
    if best is None:
        return "network"
    if not law.own_error or predicted is None or predicted.interval is None:
        return "least_squares"
    near = errors["network"] <= _AS_NEAR * errors["least_squares"]
    return "network" if near or predicted.is_exact else "least_squares"


def values_of(
    law: Law, method: Method, predicted: Predicted | None, best: BestFit | None
) -> dict[str, Value]:
    """Every parameter of the law, the given ones included."""
    network = None if predicted is None else law.identified_values(predicted.labels[None])[0]
    errors = None if predicted is None else network_errors(law.identified, predicted)
    found = []
    for i, parameter in enumerate(law.identified):
        own = None if network is None else float(network[i])
        std, network_ci95 = (None, None) if errors is None else errors[i]
        fitted, ci95 = None, None
        if best is not None:
            fitted, ci95 = float(best.values[i]), interval_of(best.interval[i])
        recommended = own if method == "network" else fitted
        assert recommended is not None
        if method == "least_squares" and best is not None:
            std = None if best.is_unknown[i] else finite_or_none(best.std[i])
        found.append(
            Value(
                recommended,
                parameter.unit,
                method,
                std,
                ci95=network_ci95 if method == "network" else ci95,
                network=own,
                network_ci95=network_ci95,
                least_squares=fitted,
                least_squares_ci95=ci95,
            )
        )
    return _named(law, found)


def _named(law: Law, identified: Iterable[Value]) -> dict[str, Value]:
    """All values by their parameters' names, identified and given ones."""
    others = iter(identified)
    return {
        p.name: next(others) if p.fixed is None else Value(p.fixed, p.unit, "given")
        for p in law.parameters
    }


# --------------------------------------------------------------------------------------------------
# The answer for a curve: its values, whether they may be used, what is told of them elsewhere, its material card.


# _STRAINS: at which the slope of a curve along each parameter is taken.
_STRAINS = 100
_WHENCE = {
    "least_squares": "the covariance of least squares",
    "network": "the network's calibrated standard deviations, taken as independent",
    "mean of specimens": "the scatter between the specimens",
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Parameters of a soft or stiff material: name -> value in its unit; and by what share its mean stress differs."""

    values: dict[str, float]
    share: float


# _SHOWN_BY: the module that prints and draws answers. It stands in a room above, and is looked up when it is needed.
_SHOWN_BY = "tfmat.report.answers"


@dataclasses.dataclass(frozen=True, repr=False)
class Identification:
    """The answer for one record. Notebooks show it as a table with its warnings and its figure.

    Attributes:
      curve: the measured points that the answer stands on, with the steps of their cleaning: a record of all tests, or
        of one rising loading.
      law: the law, or None where the network was trained on labelled curves of no known law.
      method: how the recommended values were got.
      parameters: name -> value, the given ones included.
      stress_mpa: method -> stress of the law at the measured strains with its values, [points], MPa: `least_squares`
        and `network`, as far as they are known. Of a record the response to all tests, one after the other.
      errors_percent: method -> its root mean square distance from the measured points over the maximum stress, %.
      warnings: those of the curve and those of the answer.
      labels: the recommended values on the scale of the law's ranges, [identified]; 0 and 1 are their ends.
      covariance: of `labels`, [identified, identified]; None where it is not known.
      shared_std: standard deviations of `labels` by errors that specimens may share, [identified];
        None where it is not known.
      samples: `posterior`, whatever `method` is; None where none were asked for, or nothing can draw them.
      posterior: what the network's posterior of this curve became when it was corrected, or, without one, what was
        sampled about least squares, and its certificate; None where there is neither.
      ranking: the laws for the kind of test, the best first, where the law was chosen among them; else empty.
      fitted: what least squares found; None of a network alone, and of the mean of specimens.
    """

    curve: MeasuredRecord
    law: Law | None
    method: Method
    parameters: dict[str, Value]
    stress_mpa: Mapping[str, Array]
    errors_percent: Mapping[str, float]
    warnings: list[Caveat]
    labels: Array
    covariance: Array | None = None
    samples: Posterior | None = None
    next_test: NextTests | None = None
    posterior: Posterior | None = None
    shared_std: Array | None = None
    ranking: Sequence[Ranked] = ()
    fitted: RecordFit | None = None

    def __repr__(self) -> str:
        return str(self._shown("line"))

    def _repr_html_(self) -> str:
        return str(self._shown("page_part"))

    def summary(self) -> str:
        """The text that `tfmat identify` prints: tables, steps of cleaning and warnings."""
        return str(self._shown("summary"))

    def plot(self, axes: Any = None) -> Any:
        """Draws the measured points and the law.

        Args:
          axes: matplotlib's axes to draw into, or an array with axes for each kind of test; None makes them.

        Returns:
          The axes, or their array where there are several kinds of tests.
        """
        return self._shown("draw", axes)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a parameter: value, unit, std, the ends of the 95 % interval, and how got."""
        import pandas

        rows = [
            {
                "parameter": name,
                "value": value.value,
                "unit": value.unit,
                "std": value.std,
                "ci95_low": value.ci95[0] if value.ci95 else None,
                "ci95_high": value.ci95[1] if value.ci95 else None,
                "method": value.method,
            }
            for name, value in self.parameters.items()
        ]
        numbers = dict.fromkeys(("value", "std", "ci95_low", "ci95_high"), "float64")
        return pandas.DataFrame(rows).set_index("parameter").astype(numbers)

    def to_inferencedata(self) -> Any:
        """The samples as ArviZ's InferenceData; see `tfmat.identification.posterior.inference_data`."""
        return inference_data([self])

    def _shown(self, how: str, *arguments: Any) -> Any:
        return getattr(importlib.import_module(_SHOWN_BY), how)(self, *arguments)

    @property
    def do_not_use(self) -> list[str]:
        """Why the answer must not be used, in short; empty where it may be."""
        return reasons_not_to_use(self.warnings)

    @property
    def resimulated_mpa(self) -> Array | None:
        """The law's stress at the measured strains with the recommended values, [points], MPa; None without a law."""
        return self.stress_mpa.get(self.method)

    @property
    def rmse_percent(self) -> float | None:
        """Root mean square distance of `resimulated_mpa` from the measured points over the maximum stress, %."""
        return self.errors_percent.get(self.method)

    def entry(self) -> Answer:
        """One entry of the list that `tfmat identify --json` writes."""
        curve = self.curve
        tensile = None
        if curve.tensile:
            found = curve.tensile.to_json().items()
            tensile = {name: TensileValue(**content) for name, content in found}
        return Answer(
            curve=curve.name,
            law=self.law.name if self.law else None,
            do_not_use=bool(self.do_not_use),
            reasons=self.do_not_use,
            method=self.method,
            parameters=self.parameters,
            rmse_percent=self.rmse_percent,
            rmse_percent_of=dict(self.errors_percent),
            conditions=dict(curve.conditions),
            tensile=tensile,
            assumed=list(curve.assumed),
            num_points=len(curve.strain),
            steps=list(curve.steps),
            warnings=[Warned(each.kind, each.text, each.advice) for each in self.warnings],
            tests=UNSET if curve.curve is not None else self._tests(),
            next_test=self.next_test.entry() if self.next_test else UNSET,
            posterior=self.posterior.summary() if self.posterior else UNSET,
            ranking=list(self.ranking) or UNSET,
        )

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries and lists."""
        content: dict[str, Any] = plain(self.entry())
        return content

    def _tests(self) -> list[AnsweredTest]:
        """Each test's kind, and how far the answer is from it."""
        tests = self.curve.tests
        errors = errors_of_tests(self.curve, self.stress_mpa[self.method])
        return [
            AnsweredTest(
                name=test.name,
                test=test.programme.name,
                mode=test.programme.mode,
                drives=test.programme.drives,
                settings={
                    s.name: Setting(float(test.settings[s.name]), s.unit)
                    for s in test.programme.settings
                    if s.name in test.settings
                },
                half_cycles=half_cycles(test.turns) if test.turns else 1,
                num_points=len(test),
                rmse=float(rmse),
                rmse_unit="MPa" if test.programme.drives == "strain" else "-",
                rmse_percent=float(percent),
            )
            for test, rmse, percent in zip(tests, *errors, strict=True)
        ]

    def with_next_test(self, settings: CurveSettings, **options: Any) -> "Identification":
        """The answer with what further tests are expected to tell, or with a warning why that is not known.

        Args:
          settings: of the simulation whose noise a further test has; options: of `next_tests_of`.
        """
        assert self.law is not None
        samples = None if self.samples is None else self.samples.labels
        found = next_tests_of(self.law, self.curve, settings, self.labels, samples, **options)
        if isinstance(found, Caveat):
            return dataclasses.replace(self, warnings=[*self.warnings, found])
        return dataclasses.replace(self, next_test=found)

    def card(
        self, solver: str, *, poisson_ratio: float | None = None, quantile: float | None = None
    ) -> str:
        """The text of a material card in mm, t, s, MPa, with where it comes from in its comments.

        Args:
          solver: abaqus, ls_dyna, ansys, calculix or code_aster.
          poisson_ratio: which no test here tells; None is 0.3 for metals and 0.4995 for rubber.
          quantile: 0.05 or 0.95, say, gives a soft or stiff variant: the parameters to expect where the mean stress up
            to the tested strain is at that quantile of its uncertainty.

        Raises:
          InputError: this solver has no card for the law, or the uncertainty is not known.
        """
        name = self.curve.name
        check_card(self.law, solver, poisson_ratio)
        law, values, tested = self.card_values(quantile)
        facts = _facts(self)
        if quantile is not None:
            facts += _about_variant(self.method, self.variant(quantile), quantile)
            name = f"{name}_{100 * quantile:g}"
        return card_text(
            solver,
            law,
            values,
            tested=tested,
            name=name,
            poisson_ratio=poisson_ratio,
            facts=facts,
        )

    def card_values(self, quantile: float | None = None) -> tuple[Law, dict[str, float], float]:
        """The law, the parameters' values and the tested strain of a card; `quantile` as of `card`."""
        assert self.law is not None
        values = {parameter: value.value for parameter, value in self.parameters.items()}
        if quantile is not None:
            values = self.variant(quantile).values
        return self.law, values, float(self.curve.strain.max())

    def variant(self, quantile: float) -> Variant:
        """The parameters to expect where the mean stress up to the tested strain is at a quantile of its uncertainty.

        Parameters are correlated: all of them at their own 5 % would be a material that no test here has seen. To first
        order the mean stress is Gaussian with the variance gᵀ C g, where g are its slopes and C is the covariance of
        the parameters on the labels' scale. If it lies z standard deviations off, the labels are expected to lie z C g
        / √(gᵀ C g) off.

        Raises:
          InputError: the covariance is not known, or the test does not tell it.
        """
        if not 0.0 < quantile < 1.0:
            raise InputError(
                f"a variant's quantile is {quantile:g}; give a number between 0 and 1, e.g. 0.05"
            )
        law, covariance, name = self.law, self.covariance, self.curve.name
        assert law is not None
        if covariance is None or not np.isfinite(covariance).all():
            raise InputError(
                f"no variants of {name}: the covariance of its parameters is not known"
            )
        strain = float(self.curve.strain.max()) * np.linspace(0.0, 1.0, _STRAINS + 1)[None, 1:]
        slopes = law.label_derivatives(strain, self.labels[None])[0].mean(axis=0)
        direction = covariance @ slopes
        variance = float(slopes @ direction)
        if not variance > 0.0:
            raise InputError(f"no variants of {name}: its parameters have no scatter")
        shift = scipy.special.ndtri(quantile) * direction / np.sqrt(variance)
        labels = np.stack([self.labels, self.labels + shift])
        mean, shifted = (float(law.label_stress(strain, each[None]).mean()) for each in labels)
        values = law.from_labels(labels[1:])[0]
        named = {p.name: float(v) for p, v in zip(law.parameters, values, strict=True)}
        return Variant(named, shifted / mean - 1.0)

    def posterior_picture(self) -> PosteriorPicture | None:
        """The picture of its samples; None without any."""
        if self.samples is None:
            return None
        scales = {p.name: p.scale for p in self.law.identified} if self.law else {}
        why = self.do_not_use
        if self.posterior and self.posterior.certificate.status == "do not trust":
            why = [*why, self.posterior.certificate.reason]
        return PosteriorPicture(
            names=list(self.samples.names),
            units=list(self.samples.units),
            logarithmic=[scales.get(name) == "log" for name in self.samples.names],
            values=self.samples.values.tolist(),
            recommended={name: self.parameters[name].value for name in self.samples.names},
            do_not_use=why,
            title=self.curve.name,
        )

    def picture(self) -> CurvePicture | TestsPicture:
        """The picture of a curve or of tests."""
        law, errors, curve = self.law, self.errors_percent, self.curve
        refined, fitted = None, self.stress_mpa.get("least_squares")
        if fitted is not None:
            refined = Fitted(name="least squares", rmse_percent=errors["least_squares"])
        shared: dict[str, Any] = {
            "name": curve.name,
            "law_title": law.title if law else "",
            "parameters": {n: (value.value, value.unit) for n, value in self.parameters.items()},
            "intervals": {name: value.ci95 for name, value in self.parameters.items()},
            "rmse_percent": errors.get("network"),
            "refined": refined,
            "do_not_use": self.do_not_use,
            "assumed": list(curve.assumed),
            "strain_label": f"{law.strain_measure} strain" if law else "strain",
            "stress_label": f"{law.stress_measure} stress" if law else "stress",
        }
        if curve.curve is None:
            other = next((method for method in self.stress_mpa if method != self.method), None)
            return TestsPicture(
                **shared,
                tests=self._drawn_tests(other),
                method=self.method.replace("_", " "),
                other_method=other.replace("_", " ") if other else None,
            )
        if refined is not None and fitted is not None:
            refined.stress_mpa = fitted.tolist()
        network = self.stress_mpa.get("network")
        return CurvePicture(
            **shared,
            strain=curve.strain.tolist(),
            stress_mpa=curve.stress_mpa.tolist(),
            resimulated_mpa=None if network is None else network.tolist(),
            recommended="network" if self.method == "network" else "least squares",
        )

    def _drawn_tests(self, other: str | None) -> list[DrawnTest]:
        """The measured points of each test, the recommended answer, and the other method's."""
        tests, response = self.curve.tests, self.stress_mpa[self.method]
        errors = errors_of_tests(self.curve, response)[1]
        answers = self.curve.split(response)
        others = self.curve.split(self.stress_mpa[other]) if other else [None] * len(answers)
        return [
            DrawnTest(
                name=test.name,
                title=test.programme.title,
                kind=test.programme.name,
                drives="strain" if test.programme.drives == "strain" else "stress",
                turns=bool(test.turns),
                strain=test.strain.tolist(),
                stress_mpa=test.stress_mpa.tolist(),
                time=None if test.time is None else test.time.tolist(),
                answer=answer.tolist(),
                other=None if other_answer is None else other_answer.tolist(),
                rmse_percent=float(percent),
                settings=", ".join(
                    f"{test.settings[s.name]:.3g}{'' if s.unit == '-' else f' {s.unit}'}"
                    for s in test.programme.settings
                    if s.name in ("rate", "temperature") and s.name in test.settings
                ),
            )
            for test, answer, other_answer, percent in zip(
                tests, answers, others, errors, strict=True
            )
        ]


def _facts(answer: Identification) -> list[str]:
    """Where the parameters come from, and whether they may be used."""
    lines = []
    if answer.do_not_use:
        lines.append(f"DO NOT USE: {', '.join(answer.do_not_use)}")
    curve = answer.curve
    error = (
        ""
        if answer.rmse_percent is None
        else f", error {answer.rmse_percent:.3g} % of the maximum stress"
    )
    lines.append(
        f"from: {curve.name}, {len(curve.strain)} points, by {answer.method.replace('_', ' ')}{error}"
    )
    if curve.conditions:
        lines.append(
            "conditions: " + ", ".join(f"{key} {value}" for key, value in curve.conditions.items())
        )
    if curve.assumed:
        lines.append(f"assumed when the record was read: {', '.join(curve.assumed)}")
    for name, value in answer.parameters.items():
        known = "given" if value.fixed else "interval not known"
        if value.ci95 is not None:
            known = f"95 % interval {value.ci95[0]:.6g} to {value.ci95[1]:.6g}"
        unit = "" if value.unit == "-" else f" {value.unit}"
        lines.append(f"{name} = {value.value:.9g}{unit}, {known}")
    return lines + [f"warning: {warning}" for warning in answer.warnings]


def _about_variant(method: Method, found: Variant, quantile: float) -> list[str]:
    percent = f"{100 * quantile:g} %"
    values = ", ".join(f"{name} = {value:.9g}" for name, value in found.values.items())
    meaning = (
        f"what to expect where the mean stress up to the tested strain is at its {percent} quantile "
        f"({100 * found.share:+.3g} %), by {_WHENCE[method]}"
    )
    if method != "mean of specimens":
        meaning += "; so well does the test tell the parameters: not the scatter between specimens"
    return [f"VARIANT {percent}: {values}; {meaning}"]


# --------------------------------------------------------------------------------------------------
# Several specimens of one material -> one answer, with the scatter between them.


# _SELDOM: probability below which scatter between specimens is no chance; one of 200 parameters warns for nothing.
_SELDOM = 0.005
# _CLEARLY: scatter over what the intervals say, or the inverse, that is worth a word; many specimens show less, too.
_CLEARLY = 1.5
# _MOST_SHARED: share of a standard deviation; by the shared error alone no interval is made.
_MOST_SHARED = 0.999
# Stands for a condition that a file does not say.
_UNKNOWN = "unknown"


def pool(results: Sequence[Identification], keys: Sequence[str] = ()) -> list[Identification]:
    """One answer for each material, or for each set of conditions that the specimens were tested under.

    `value` is the mean of the specimens' recommended values, a geometric mean where the parameter's scale is
    logarithmic. `std` is the standard deviation between the specimens. `ci95` is the interval of the mean by Student's
    t, `next_specimen_ci95` the interval of one more specimen. `least_squares` fits one set of parameters to all.
    Where the specimens scatter more, or less, than their own intervals say, a warning names the parameters. Specimens
    whose answer must not be used are left out, and named. A parameter that no specimen determines has a warning
    instead of values.

    Args:
      results: what `identify` answered, all of one law.
      keys: conditions that tell groups apart, e.g. temperature and direction; none puts all specimens into one group.

    Returns:
      One answer a group, in the order of the specimens; groups of fewer than two usable specimens are left out where
      there are other groups.

    Raises:
      InputError: fewer than two specimens can be used, the law is not known, or no specimen has such a condition.
    """
    if len(results) < 2:
        raise InputError(f"--pool needs at least two curves; {len(results)} was given")
    if any(result.law is None for result in results):
        raise InputError("the network was trained on curves of no known law; nothing can be pooled")
    known = dict.fromkeys(key for result in results for key in result.curve.conditions)
    for key in keys:
        if key not in known:
            said = f"known are: {', '.join(known)}" if known else "no file says any"
            raise InputError(f"no curve says its {key}, so they cannot be pooled by it; {said}")
    groups: dict[tuple[str, ...], list[Identification]] = {}
    for result in results:
        group = tuple(result.curve.conditions.get(key, _UNKNOWN) for key in keys)
        groups.setdefault(group, []).append(result)
    pooled = []
    for values, members in groups.items():
        usable = [member for member in members if not member.do_not_use]
        if len(usable) > 1:
            pooled.append(_pooled(members, usable, dict(zip(keys, values, strict=True))))
    if not pooled:
        unusable = [result.curve.name for result in results if result.do_not_use]
        left_out = f" (not to be used: {', '.join(unusable)})" if unusable else ""
        raise InputError(f"--pool needs at least two usable curves of a kind{left_out}")
    return pooled


def _pooled(
    members: Sequence[Identification],
    usable: Sequence[Identification],
    conditions: dict[str, str],
) -> Identification:
    law = usable[0].law
    assert law is not None
    labels = law.sorted_labels(np.stack([result.labels for result in usable]))
    mean = labels.mean(axis=0)
    record = _of_all(usable, conditions)
    response = law.label_stress(record.driven, mean[None])[0]
    together = None
    if usable[0].method == "least_squares":
        together = fit_record(law, record).best.values
    left_out = [member for member in members if member.do_not_use]
    warnings = []
    if left_out:
        names = ", ".join(f"{m.curve.name} ({', '.join(m.do_not_use)})" for m in left_out)
        warnings.append(Caveat("specimens left out", f"left out of the pooled answer: {names}"))
    unknown = _open_in_all(usable)
    if unknown:
        text = f"{', '.join(unknown)} cannot be identified from any of the specimens"
        warnings.append(Caveat("cannot be identified", text, caveats.GIVE_IT))
    warnings += _scatter_caveats(law, usable)
    warnings += stability_caveats(law, law.from_labels(mean[None])[0], record)
    all_tests = [test for member in usable for test in member.curve.tests]
    separate = "--pool_by=temperature pools those of each"
    warnings += caveats.condition_caveats(law, all_tests, separate)
    method = "mean of specimens"
    return Identification(
        curve=record,
        law=law,
        method="mean of specimens",
        parameters=_values(law, labels, together, unknown),
        stress_mpa={method: response},
        errors_percent={method: rms_percent(errors_of_tests(record, response)[1])},
        warnings=warnings,
        labels=mean,
        covariance=np.atleast_2d(np.cov(labels, rowvar=False)),
    )


def scatter_over_intervals(values: Array, deviations: Array) -> tuple[float, float]:
    """Root of Cochran's Q over its degrees of freedom, 1 on average, and the probability of so large a Q.

    W. G. Cochran, The combination of estimates from different experiments, Biometrics 10 (1954) 101-129; the root is
    the Birge ratio, and R. DerSimonian, N. Laird, Controlled Clinical Trials 7 (1986) 177-188 test scatter between
    studies so.

    Args:
      values: [specimens]; deviations: their own standard deviations, [specimens].
    """
    weights = deviations**-2.0
    mean = np.sum(weights * values) / np.sum(weights)
    free = len(values) - 1
    heterogeneity = float(np.sum(weights * np.square(values - mean)))
    return float(np.sqrt(heterogeneity / free)), float(scipy.special.chdtrc(free, heterogeneity))


def _scatter_caveats(law: Law, usable: Sequence[Identification]) -> list[Caveat]:
    """Parameters whose scatter between the specimens contradicts the specimens' own intervals."""
    more, less = [], []
    for column, parameter in enumerate(law.identified):
        known = [
            (one.value, *one.ci95, 0.0 if result.shared_std is None else result.shared_std[column])
            for result in usable
            if (one := result.parameters[parameter.name]).std is not None and one.ci95
        ]
        labels = np.array([[parameter.to_unit_interval(v) for v in row[:3]] for row in known])
        if len(known) < 2 or not np.all(labels[:, 2] > labels[:, 1]):
            continue
        deviations = (labels[:, 2] - labels[:, 1]) / (2.0 * scipy.special.ndtri(0.975))
        ratio, chance = scatter_over_intervals(labels[:, 0], deviations)
        if chance < _SELDOM and ratio > _CLEARLY:
            more.append(f"{parameter.name} ({ratio:.2g} times)")
            continue
        # Errors of one extensometer or load cell are in every interval, and not between its specimens.
        shared = np.minimum([row[3] for row in known] / deviations, _MOST_SHARED)
        deviations = deviations * np.sqrt(1.0 - np.square(shared))
        ratio, chance = scatter_over_intervals(labels[:, 0], deviations)
        if 1.0 - chance < _SELDOM and ratio < 1.0 / _CLEARLY:
            less.append(f"{parameter.name} ({ratio:.2g} times)")
    found = []
    if more:
        text = (
            f"between the specimens these scatter more than each interval says: {', '.join(more)}"
        )
        advice = (
            "the interval of one specimen leaves out what differs between them: take the pooled one for the mean, and "
            "next_specimen_ci95 for another specimen"
        )
        found.append(Caveat("specimens disagree", text, advice))
    if less:
        text = (
            f"between the specimens these scatter less than each interval says: {', '.join(less)}"
        )
        advice = (
            "all may share an error, such as the law's, which the scatter and the pooled "
            "interval leave out: take the interval of one specimen for it"
        )
        found.append(Caveat("specimens agree too well", text, advice))
    return found


def _open_in_all(usable: Sequence[Identification]) -> list[str]:
    """Parameters that least squares could tell from no specimen: their scatter says nothing of the material."""
    return [
        name
        for name in usable[0].parameters
        if all(
            value.method == "least_squares" and value.std is None
            for value in (result.parameters[name] for result in usable)
        )
    ]


def _of_all(usable: Sequence[Identification], conditions: dict[str, str]) -> MeasuredRecord:
    """The measurements of all specimens: their tests, or of rising loadings one curve with all their points."""
    records = [result.curve for result in usable]
    curves = [record.curve for record in records if record.curve is not None]
    names = ", ".join(result.curve.name for result in usable)
    step = (
        f"pooled {len(usable)} specimens ({names}): values are means, std is the scatter between specimens, ci95 the "
        "interval of the mean; least squares fits all specimens together"
    )
    values = [f"{k} unknown" if v == _UNKNOWN else v for k, v in conditions.items()]
    name = f"pooled ({', '.join([*values, f'{len(usable)} specimens'])})"
    if curves:
        return MeasuredRecord.of(_joined(name, curves, conditions)).noted([step], [])
    return MeasuredRecord(name, _tests_of_all(records), own_steps=[step])


def _tests_of_all(records: Sequence[MeasuredRecord]) -> list[MeasuredTest]:
    """The tests of all specimens, with the specimens' names, and without what was said of each."""
    found = []
    for record in records:
        for test in record.tests:
            name = f"{record.name}: {test.name}" if len(record.tests) > 1 else record.name
            found.append(dataclasses.replace(test, name=name, steps=[], warnings=[]))
    return found


def _joined(name: str, curves: Sequence[MeasuredTest], conditions: dict[str, str]) -> MeasuredTest:
    """All points in one curve, in the order of their strain (it is only looked at and compared)."""
    strain = np.concatenate([curve.strain for curve in curves])
    stress = np.concatenate([curve.stress_mpa for curve in curves])
    order = np.argsort(strain, kind="stable")
    return MeasuredTest(
        name,
        strain[order],
        stress[order],
        assumed=list(dict.fromkeys(text for curve in curves for text in curve.assumed)),
        conditions=conditions,
        tensile=_mean_tensile([curve.tensile for curve in curves]),
    )


def _mean_tensile(each: Sequence[TensileProperties | None]) -> TensileProperties | None:
    """The mean of every property over the specimens that have it; None where no specimen has any."""
    known = [tensile for tensile in each if tensile is not None]
    if not known:
        return None
    means = {}
    for field in dataclasses.fields(TensileProperties):
        found: list[Property] = [getattr(tensile, field.name) for tensile in known]
        values = [one.value for one in found if one.value is not None]
        if not values:
            means[field.name] = found[0]
            continue
        scatter = f", scatter (std) {np.std(values, ddof=1):.3g}" if len(values) > 1 else ""
        means[field.name] = Property(
            float(np.mean(values)),
            f"mean of {len(values)} specimens{scatter}",
            any(one.at_least for one in found if one.value is not None),
        )
    return TensileProperties(**means)


def _values(
    law: Law, labels: Array, together: Array | None, unknown: Sequence[str]
) -> dict[str, Value]:
    mean = labels.mean(axis=0)
    scatter = law.identified_values(labels).std(axis=0, ddof=1)
    half = (
        scipy.special.stdtrit(len(labels) - 1, 0.5 + COVERAGE / 2)
        * labels.std(axis=0, ddof=1)
        / np.sqrt(len(labels))
    )
    further = np.sqrt(1.0 + len(labels))
    sides = np.array([-1.0, 0.0, 1.0, -further, further])
    # [identified, sides]
    ends = law.identified_values(mean + sides[:, None] * half).T.tolist()
    found = []
    for i, parameter in enumerate(law.identified):
        low, middle, high, next_low, next_high = ends[i]
        is_known = parameter.name not in unknown
        found.append(
            Value(
                middle,
                parameter.unit,
                "mean of specimens",
                std=float(scatter[i]) if is_known else None,
                ci95=(low, high) if is_known else None,
                least_squares=None if together is None else float(together[i]),
                next_specimen_ci95=(next_low, next_high) if is_known else UNSET,
            )
        )
    return _named(law, found)


# --------------------------------------------------------------------------------------------------
# Records -> one recommended answer each, how sure it is, and what to be careful about.


# Effort: how much is asked of least squares for an answer.
Effort = Literal["rough", "alone", "compared"]
# A test that the law misses by more than this (% of its largest response) while it meets the others is named.
_ONE_TEST_PERCENT = 5.0
# A parameter that changes the response by less than this share of the largest one is as good as zero.
_IDLE = 0.01
# _LEAST_NOISE: % of the largest response; tests are not taken for more exact where a network's interval is judged.
_LEAST_NOISE = 0.2


def identify(
    source: Identifier | Sidecar,
    records: Sequence[MeasuredRecord],
    *,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    effort: Effort = "compared",
    progress: Callable[[int, int], None] | None = None,
) -> list[Identification]:
    """Identifies the parameters of materials, each by itself: an answer never depends on the other records.

    The recommended answer is least squares, with and without a network or samples. It is the network's where nothing
    else was asked for, where the law is not known, and where the law itself errs (see `recommended_method`).

    Args:
      source: a network, or only the description of one: then least squares alone answers.
      records: all tests of each material, or its curve.
      fixed: parameters that are known, name -> value in its unit. The network was trained without this knowledge, and
        least squares alone answers.
      least_squares: False leaves out everything that is not the network's.
      samples: to draw from the posterior of each record: a network's, or, where there is none, about least squares.
      correct: corrects a whole posterior with the law's likelihood; False leaves it as the network gives it.
      effort: `rough` is enough to rank laws, see `completed`; `compared` also warns where another law fits clearly
        better.
      progress: called with (done, total).

    Raises:
      InputError: the network is of no use, a known parameter is not the law's, or there is nothing to answer with, or
        to draw from.
    """
    fixed = dict(fixed or {})
    if source.law is None and fixed:
        raise InputError("the network is of no known law; nothing can be fixed")
    network = network_of(source, fixed, least_squares, samples, correct)
    law = None if source.law is None else conditioned(source.law, fixed)
    steps, warnings = notes_on_fixed(source, fixed)

    def answered(item: tuple[MeasuredRecord, Predicted | None, list[Caveat]]) -> Identification:
        record, predicted, said = item
        if law is None:
            assert network is not None and predicted is not None
            return _without_law(network, record, predicted, samples)
        fitted = fit_record(law, record, roughly=effort == "rough") if least_squares else None
        compare = effort == "compared"
        return _answer(law, source, record, predicted, said, fitted, samples, correct, compare)

    # The network answers in this process, the law in all.
    given = (
        (
            with_elastic_strain(record, fixed.get("E")).noted(steps, warnings),
            *((None, []) if network is None else predict(network, record, least_squares, samples)),
        )
        for record in records
    )
    return all_in_processes(answered, given, len(records), progress)


def completed(
    source: Sidecar,
    rough: Sequence[Identification],
    progress: Callable[[int, int], None] | None = None,
) -> list[Identification]:
    """Rough answers by one law with intervals that follow the profiles; no search is repeated."""

    def answered(answer: Identification) -> Identification:
        law, record = answer.law, answer.curve
        assert law is not None
        fitted = fit_record(law, record, found=answer.fitted)
        return _answer(law, source, record, None, [], fitted, 0, correct=True, compare=False)

    return all_in_processes(answered, rough, len(rough), progress)


def network_of(
    source: Identifier | Sidecar,
    fixed: Mapping[str, float],
    least_squares: bool,
    samples: int,
    correct: bool,
) -> Identifier | None:
    """The network that answers, if there is one; InputError where nothing answers what is asked for."""
    if samples:
        is_sampled = least_squares and correct and source.law is not None
        check_samples(samples, source.uncertainty, fixed, is_sampled=is_sampled)
    network = None if isinstance(source, Sidecar) else source
    if not least_squares and (fixed or network is None):
        what = "a given parameter (--fix)" if fixed else "a law without a network"
        raise InputError(f"{what} needs least squares; leave --noleast_squares out")
    return network


def _without_law(
    source: Identifier, record: MeasuredRecord, answered: Predicted, samples: int
) -> Identification:
    parameters = source.parameters
    predicted, posterior = posterior_of(None, answered, record, None, samples, correct=False)
    assert predicted is not None
    found = {}
    errors = network_errors(parameters, predicted)
    for parameter, label, (std, ci95) in zip(parameters, predicted.labels, errors, strict=True):
        value = float(parameter.from_unit_interval(label))
        found[parameter.name] = Value(
            value, parameter.unit, "network", std, ci95, network=value, network_ci95=ci95
        )
    warnings = [
        *record.warnings,
        *caveats.short_caveats(record, source.target),
        *caveats.edge_caveats(parameters, predicted.labels),
        *caveats.unidentifiable_caveats(parameters, predicted.std, None),
    ]
    return Identification(
        record,
        None,
        "network",
        found,
        {},
        {},
        warnings,
        predicted.labels,
        samples=posterior if samples else None,
        posterior=posterior,
    )


def notes_on_fixed(
    source: Identifier | Sidecar, fixed: Mapping[str, float]
) -> tuple[list[str], list[Caveat]]:
    """A step, and perhaps warnings, about the parameters that were given."""
    if not fixed:
        return [], []
    given = ", ".join(f"{name} = {value:g}" for name, value in fixed.items())
    warnings = []
    for parameter in source.parameters:
        value = fixed.get(parameter.name)
        if value is not None and not parameter.low <= value <= parameter.high:
            warnings.append(
                Caveat(
                    "given value beyond the usual range",
                    f"{parameter.name} = {value:g} was given, outside of its trained range {parameter.low:g} to "
                    f"{parameter.high:g} {parameter.unit}",
                    "check its unit",
                )
            )
    return [f"{given} given: the other parameters are least squares"], warnings


def _answer(
    law: Law,
    source: Identifier | Sidecar,
    record: MeasuredRecord,
    predicted: Predicted | None,
    said: list[Caveat],
    fitted: RecordFit | None,
    samples: int,
    correct: bool,
    compare: bool,
) -> Identification:
    """The answer for one record of a known law; `said`: caveats of what the network predicted."""
    assert source.law is not None
    if len(law.identified) < len(source.law.identified):
        # It was trained without knowing the given parameters.
        predicted, said = None, []
    predicted, posterior = posterior_of(law, predicted, record, fitted, samples, correct)
    labels = {}
    if fitted is not None:
        labels["least_squares"] = fitted.best.labels
    if predicted is not None:
        labels["network"] = predicted.labels
    responses = {
        method: law.label_stress(record.driven, found[None])[0] for method, found in labels.items()
    }
    of_tests = {method: errors_of_tests(record, found)[1] for method, found in responses.items()}
    errors = {method: rms_percent(percent) for method, percent in of_tests.items()}
    noise = float(np.mean(record.noise_percent))
    predicted = _without_unfounded_interval(predicted, errors, noise, record, source)
    best = None if fitted is None else fitted.best
    method = recommended_method(law, predicted, best, errors)
    found = _caveats(law, source, record, method, predicted, fitted, of_tests, noise)
    better = better_law(law, fitted) if compare and fitted is not None else None
    if better is not None:
        found.append(_better_law_caveat(law, record, better, of_tests["least_squares"]))
    values = values_of(law, method, predicted, best)
    parameters = np.array([value.value for value in values.values()])
    found += caveats.derivative_caveats(law, labels[method], record)
    found += caveats.stability_caveats(law, parameters, record)
    found += caveats.reference_rate_caveats(law, parameters, record)
    separate = "give the tests of each temperature by themselves"
    found += caveats.condition_caveats(law, record.tests, separate)
    found += caveats.plausibility_caveats(law, parameters, record)
    covariance = shared_std = None
    if method == "least_squares" and best is not None:
        covariance, shared_std = best.label_covariance, best.shared_std
    elif predicted is not None:
        covariance = predicted.covariance
    return Identification(
        record,
        law,
        method,
        values,
        responses,
        errors,
        [*record.warnings, *said, *posterior_caveats(posterior), *found],
        labels[method],
        covariance,
        samples=posterior if samples else None,
        posterior=posterior,
        shared_std=shared_std,
        fitted=fitted,
    )


def _without_unfounded_interval(
    predicted: Predicted | None,
    errors: Mapping[str, float],
    noise: float,
    record: MeasuredRecord,
    source: Identifier | Sidecar,
) -> Predicted | None:
    """The network's answer, without its intervals where the record is not like those that they were calibrated on.

    The intervals hold the truth for records that follow the law up to the noise (%), or up to the noise of the training
    where it is larger. They do not include what the misfit of a real record does to the network's answer.
    """
    if predicted is None or predicted.std is None or predicted.is_exact:
        return predicted
    noise = max(noise, _LEAST_NOISE if record.curve is None else 0.0)
    if record.curve is not None and source.settings is not None:
        settings = source.settings.resolved()
        root = np.sqrt(np.mean(np.square(record.stress_mpa)))
        trained = np.hypot(settings.noise_mpa or 0.0, settings.noise_relative * root)
        noise = max(noise, 100.0 * float(trained) / record.largest_mpa)
    nearest = errors.get("least_squares", errors["network"])
    if nearest <= ABOVE_NOISE * noise:
        return predicted
    return dataclasses.replace(predicted, interval=None)


def _caveats(
    law: Law,
    source: Identifier | Sidecar,
    record: MeasuredRecord,
    method: Method,
    predicted: Predicted | None,
    fitted: RecordFit | None,
    of_tests: Mapping[str, Array],
    noise: float,
) -> list[Caveat]:
    """Caveats of the answer itself.

    Args:
      of_tests: method -> its root mean square error in each test, %, [tests].
      noise: of the record, %.
    """
    found: list[Caveat] = []
    largest = record.largest_mpa
    best = told = None if fitted is None else fitted.best
    ends = 0
    if method == "network":
        assert predicted is not None
        at_end = list(caveats.edge_caveats(law.identified, predicted.labels))
        ends = len(at_end)
        found += [*caveats.short_caveats(record, source.target), *at_end]
    elif best is not None:
        idle = _idle(law, record, best)
        told = dataclasses.replace(
            best,
            at_bound=best.at_bound & ~idle,
            labels=np.where(idle, 0.0, best.labels),
            is_open=best.is_open & ~idle[:, None],
        )
        ends = int(told.at_bound.sum())
        if idle.any():
            names = [p.name for p, is_idle in zip(law.identified, idle, strict=True) if is_idle]
            found.append(
                Caveat(
                    "not needed",
                    f"{', '.join(names)} went to the smallest value that was searched, and changes the response by "
                    f"less than {100 * _IDLE:.0f} % there: the tests ask for no such term",
                    "a law with fewer terms says as much",
                )
            )
        found += caveats.range_caveats(law, told)
        found += caveats.own_error_caveats(law, 0.01 * noise * largest, largest)
    if fitted is None or told is None or record.curve is not None:
        std = None if predicted is None else predicted.std
        found += caveats.unidentifiable_caveats(law.identified, std, told)
    else:
        found += open_caveats(law, record, fitted)
        found += caveats.one_sided_caveats(law.identified, told)
    found += caveats.too_many_ends(ends)
    if fitted is None:
        assert predicted is not None
        found += _network_caveats(law, record, predicted, of_tests["network"], noise)
    elif record.curve is not None:
        found += _misfit_of_curve(law, source, record.curve, fitted.best, noise)
    else:
        found += _misfit_of_tests(law, record, of_tests["least_squares"], noise)
    return [*found, *caveats.measure_caveats(law, record, fitted)]


def _better_law_caveat(
    law: Law, record: MeasuredRecord, better: tuple[str, float, float], of_tests: Array
) -> Caveat:
    """Caveat of another law that fits clearly better; `of_tests`: the own errors, %, [tests]."""
    name, error, share = better
    residual = f"its residual is {share:.2g} times as large"
    if record.curve is not None:
        own = 0.01 * rms_percent(of_tests) * record.largest_mpa
        residual = f"{error:.3g} MPa against {own:.3g} MPa"
    return Caveat(
        f"{name} fits better",
        f"{name} fits clearly better than {law.name}: {residual} (root mean square, least squares)",
        f"identify with --law={name}",
    )


def _network_caveats(
    law: Law, record: MeasuredRecord, predicted: Predicted, of_tests: Array, noise: float
) -> Iterator[Caveat]:
    """Caveats of a network that answers alone; its errors in the tests, [tests], and their noise, %."""
    percent, largest = rms_percent(of_tests), record.largest_mpa
    if percent > caveats.POOR_RMSE_PERCENT:
        yield Caveat(
            "network is far from the curve",
            f"the re-simulated curve is {percent:.1f} % of the maximum stress away from the measured one: law "
            f"{law.name} does not describe it, a column or unit is wrong, or the network is too coarse",
            "identify by least squares",
            blocks=True,
        )
    if record.curve is not None and predicted.std is not None and predicted.interval is None:
        yield Caveat(
            "no interval of the network",
            f"the network's curve is {0.01 * percent * largest:.3g} MPa away from the measured one, whose noise is "
            f"{0.01 * noise * largest:.2g} MPa; its intervals are calibrated on curves that differ from their law by "
            "noise",
            "identify by least squares",
        )


def _misfit_of_curve(
    law: Law, source: Identifier | Sidecar, curve: MeasuredTest, best: BestFit, noise: float
) -> Iterator[Caveat]:
    """How far, and where, the law's best answer is from one rising loading with so much noise, %."""
    largest = float(np.abs(curve.stress_mpa).max())
    noise_mpa = 0.01 * noise * largest
    parameters = law.from_labels(best.labels[None])
    chord = curve.tensile.modulus_mpa if curve.tensile else None
    modulus = chord.value if chord and not chord.at_least else None
    if curve.toe and modulus is not None:
        # The chord of a test begins within its toe.
        line = elastic_part(curve.strain, curve.stress_mpa)
        modulus = modulus if line is None else max(modulus, line.slope)
    yield from caveats.modulus_caveat(law, parameters[0], modulus)
    answer = law.stress(curve.strain[None], parameters)[0]
    residual = answer - curve.stress_mpa
    fit_mpa = float(np.sqrt(np.mean(np.square(residual))))
    percent = 100.0 * fit_mpa / largest
    away = f"{fit_mpa:.3g} MPa ({percent:.2g} % of the maximum stress)"
    yield from caveats.misfit_caveats(law.name, True, percent, noise, away)
    if curve.strain_error.deviation:
        by_strain = 2.0 * stress_by_strain(curve.strain, answer, curve.strain_error)
        residual -= np.clip(residual, -by_strain, by_strain)
        yield from caveats.rounding_caveats(curve, law, parameters[0])
    yield from caveats.yield_point_caveats(curve)
    history = History(strain=curve.strain[None])
    by_noise = deviation_by_strain_noise(history, curve.stress_mpa, answer, curve.strain_error)
    noisy = None if by_noise is None else curve.strain
    # On evenly spread points, where a pause of the machine is one point and not many.
    target = dataclasses.replace(source.target, max_strain=None)
    strain, residual, valid = resample(curve.strain, residual, target)
    yield from caveats.local_caveats(strain[valid], residual[valid], noise_mpa, largest, noisy)


def _idle(law: Law, record: MeasuredRecord, best: BestFit) -> NDArray[np.bool_]:
    """Parameters [p] at the small end of what was searched, where they hardly change the response any more."""
    idle = best.at_bound & (best.labels < 0.5)
    if record.curve is not None:
        return np.zeros_like(idle)
    if not idle.any():
        return idle
    parameters = law.from_labels(best.labels[None])
    slopes = law.label_derivatives(record.test_set, best.labels[None])[0]
    change = np.abs(slopes * best.values / law.label_slopes(parameters)[0]).max(axis=0)
    return idle & (change < _IDLE * np.abs(record.response).max())


def _misfit_of_tests(
    law: Law, record: MeasuredRecord, of_tests: Array, noise: float
) -> Iterator[Caveat]:
    """How far the law's best answer is from each test [tests], and their noise, in % of their largest responses."""
    percent = rms_percent(of_tests)
    names = [test.name for test in record.tests]
    each = ", ".join(f"{name} {error:.2g} %" for name, error in zip(names, of_tests, strict=True))
    each = f" ({each})" if len(names) > 1 else ""
    worst = int(np.argmax(of_tests))
    if percent <= caveats.POOR_RMSE_PERCENT and of_tests[worst] > _ONE_TEST_PERCENT:
        yield Caveat(
            "law misses one test",
            f"law {law.name} misses {names[worst]} by {of_tests[worst]:.2g} % of its largest response{each}",
            "do not rely on the law in such a test",
        )
    else:
        away = f"{percent:.2g} % of the largest response{each}"
        yield from caveats.misfit_caveats(law.name, False, percent, noise, away)
