"""What a network says of one curve, or of the tests of one material."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord, MeasuredTest
from tfmat.curves.record_resampling import record_features
from tfmat.curves.records import features_of
from tfmat.curves.resampling import resample
from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.certificate import Posterior
from tfmat.identification.draws import Draws, Samples, independent_normal
from tfmat.identification.uncertainty import COVERAGE, in_units
from tfmat.identification.weighted_draws import SampledPosterior
from tfmat.materials.law import Array, Parameter

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

Interval = tuple[float, float]

# Samples of a whole posterior where none are asked for: mean, standard deviation and interval are made of them.
SAMPLES = 1000
# Of the posterior of each part of a record's tests, where they are weighed by that of all.
_DRAWS_OF_A_PART = 8192


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What the network says of one curve, p identified parameters.

    Attributes:
      labels: [p], cut to 0-1.
      std: [p], calibrated, on the same scale; None where the network gives none.
      interval: [p, 2], 95 %, on the same scale; None with `std`.
      asked: samples that are asked for.
      draws: of the network; None where it has no posterior, or a Gaussian of each label and none were asked for.
      posterior: what became of them, see `certify`; labels, std and interval are its own where it is exact.
    """

    labels: Array
    std: Array | None
    interval: Array | None
    asked: int = 0
    draws: Draws | None = None
    posterior: Posterior | None = None

    @property
    def is_exact(self) -> bool:
        """Whether this is the law's posterior, so that its intervals hold whatever the misfit."""
        return self.posterior is not None and self.posterior.certificate.is_exact

    @property
    def samples(self) -> Samples | None:
        """Samples of the posterior; None where none were asked for."""
        return self.posterior.samples if self.posterior is not None and self.asked else None

    @property
    def covariance(self) -> Array | None:
        """The labels' covariance, [p, p]; None where it is not known."""
        if self.posterior is not None and self.is_exact:
            return np.atleast_2d(np.cov(self.posterior.samples.labels.T))
        return None if self.std is None else np.diag(self.std**2)


def predict(
    network: "Identifier", curve: MeasuredCurve, may_fail: bool, samples: int = 0
) -> Predicted | None:
    """The network's answer; None for a curve that is far too short for it (an error unless it `may_fail`)."""
    try:
        strain, stress, valid = resample(curve.strain, curve.stress_mpa, network.target)
    except InputError:
        if may_fail and network.law is not None:
            return None
        raise
    return _predicted(network, features_of(strain[None], stress[None], valid[None]), samples)


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
        drawn = network.proposals(features, samples or SAMPLES)
    elif samples:
        drawn = network.draws(features, samples)
    return Predicted(labels, std[0], limits[0, 0], samples, drawn)


def without_unfounded_interval(
    predicted: Predicted | None,
    errors: Mapping[str, float],
    noise_mpa: float,
    curve: MeasuredCurve,
) -> Predicted | None:
    """The network's answer, without its intervals where the curve is not like those that they were calibrated on.

    They hold the truth for curves that follow the law up to the noise; what the misfit of a real curve does to the
    network's answer they do not know.
    """
    if predicted is None or predicted.std is None or predicted.is_exact:
        return predicted
    nearest = errors.get("least_squares", errors["network"])
    largest = float(np.abs(curve.stress_mpa).max())
    if 0.01 * nearest * largest <= caveats.ABOVE_NOISE * noise_mpa:
        return predicted
    return dataclasses.replace(predicted, interval=None)


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


def predict_record(
    network: "Identifier", record: MeasuredRecord, samples: int = 0
) -> tuple[Predicted | None, list[Caveat]]:
    """The network's answer to tests, and what it was not trained for; None where it knows none of them.

    A network that has fewer places than there are tests of a kind answers them in parts, see `_weighed`.
    """
    names = [programme.name for programme in network.form.programmes]
    parts = [record]
    if network.uncertainty != "none":
        parts = [dataclasses.replace(record, tests=tests) for tests in _parts(record.tests, names)]
    caveats, known = [], []
    for part in parts:
        features, beyond = record_features(part, network.form)
        caveats += beyond
        if features is not None:
            known.append(features)
    answers = [_predicted(network, features, samples) for features in known]
    if len(answers) < 2:
        return (answers[0] if answers else None), caveats
    kind = "network answered in parts"
    if network.uncertainty == "flow":
        product = _product(network, known, samples)
        if product is not None:
            text = f"the network answered these tests in {len(answers)} parts, whose posteriors were multiplied"
            advice = "its intervals are a little too narrow before correction"
            return product, [*caveats, Caveat(kind, text, advice)]
    text = f"the network answered these tests in {len(answers)} parts, whose answers were weighed by their precision"
    advice = "its standard deviations are those of one part in the mean, which is too much"
    return _weighed(answers), [*caveats, Caveat(kind, text, advice)]


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

    Given the parameters tests know nothing of each other, and before them labels are uniform: so the posterior is the
    product of those of the parts, each record [1, points, channels]. Draws of all parts are weighed by it.
    """
    labels = np.concatenate([network.draws(each, _DRAWS_OF_A_PART).labels[0] for each in parts])
    densities = np.stack([network.log_density(each, labels[None])[0] for each in parts])
    mixture = scipy.special.logsumexp(densities, axis=0) - np.log(len(parts))
    ratios = densities.sum(axis=0) - mixture
    weighed = SampledPosterior.of(labels, ratios, proposals=len(labels))
    if not weighed.converged:
        return None
    count = 2 * (samples or SAMPLES)
    chosen = weighed.resampled(count, np.random.default_rng(0))
    density = densities.sum(axis=0) - weighed.log_evidence
    draws = Draws(labels[None, chosen], density[None, chosen])
    interval = draws.intervals((COVERAGE,))[0, 0]
    return Predicted(draws.mean[0], draws.std[0], interval, samples, draws)


def _weighed(answers: Sequence[Predicted]) -> Predicted:
    """One answer of several to different tests of one material: labels weighed by their precision.

    The standard deviation is that of the mean precision. What tests leave open is alike from test to test, parameters
    that trade against each other above all, so that precisions do not add up: 95 % intervals of added ones held the
    truth of 1,500 pairs of simulated cyclic tests in 90 to 95 %, these in 95 to 99 %.
    """
    labels, std, interval = (
        np.stack([getattr(each, name) for each in answers])
        for name in ("labels", "std", "interval")
    )
    precision = std**-2.0
    mean = (precision * labels).sum(axis=0) / precision.sum(axis=0)
    deviation = precision.mean(axis=0) ** -0.5
    ends = ((interval - labels[..., None]) / std[..., None]).mean(axis=0) * deviation[:, None]
    draws, asked = None, answers[0].asked
    if asked:
        draws = independent_normal(mean[None], deviation[None], asked, 0)
    limits = np.clip(mean[:, None] + ends, 0.0, 1.0)
    return Predicted(mean, deviation, limits, asked, draws)
