"""The answer of a network to the tests of one material, and the posterior it is corrected to."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.least_squares import RecordFit
from tfmat.identification.measured_likelihood import (
    UNLIKE_NOISE,
    MeasuredErrors,
    MeasuredTests,
)
from tfmat.identification.networks import COVERAGE, in_units
from tfmat.identification.posterior import (
    Certificate,
    Posterior,
    independent_normal,
    normal_proposals,
)
from tfmat.identification.results import Interval
from tfmat.identification.sampling import sample
from tfmat.materials.law import Array, Law, Parameter
from tfmat.records.record import (
    Caveat,
    MeasuredRecord,
    MeasuredTest,
    record_features,
    resample,
)
from tfmat.records.simulation import features_of

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

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
    network: "Identifier", record: MeasuredRecord, may_fail: bool, samples: int = 0
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
    network: "Identifier", curve: MeasuredTest, may_fail: bool, samples: int
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


def _predicted(network: "Identifier", features: np.ndarray, samples: int) -> Predicted:
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


def _product(network: "Identifier", parts: Sequence[np.ndarray], samples: int) -> Predicted | None:
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

    The standard deviation follows from the mean precision. Tests leave the same things open, parameters that trade
    against each other above all, so that precisions do not add up. 95 % intervals of added ones held the truth of 1,500
    pairs of simulated cyclic tests in 90 to 95 %, these in 95 to 99 %.
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


def posterior_caveats(posterior: Posterior | None) -> list[Caveat]:
    """The warnings that a posterior's certificate asks for."""
    if posterior is None:
        return []
    certificate = posterior.certificate
    if certificate.status == "do not trust":
        return [
            Caveat(
                "posterior is not to be trusted",
                f"the posterior of this answer is not to be trusted: {certificate.reason}",
                "take the values of least squares",
            )
        ]
    p = certificate.independent_noise_p
    if p is None or p >= UNLIKE_NOISE:
        return []
    return [
        Caveat(
            "more than noise",
            f"the law misses the points by more than their noise (p {p:.1g}): the posterior takes errors to be alike "
            "along the test, and larger where they stand out, and is wider for it",
        )
    ]
