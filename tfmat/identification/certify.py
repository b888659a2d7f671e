"""The posterior of a measured answer by the law's likelihood: from a network's draws, or from the fit alone."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.identification import caveats
from tfmat.identification.certificate import Certificate, Posterior
from tfmat.identification.classical import BestFit, ClassicalAnswer
from tfmat.identification.correction import correct
from tfmat.identification.draws import Draws, Samples, normal_proposals
from tfmat.identification.measured_likelihood import MeasuredLikelihoods, MeasuredTests
from tfmat.identification.predictions import SAMPLES, Predicted
from tfmat.identification.specimen_likelihood import SpecimenLikelihoods
from tfmat.materials.law import Array, Law, Parameter

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.record_fit import RecordFit

# Errors that noise alone makes as seldom are more than noise.
_UNLIKE_NOISE = 0.01


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked for; the attributes are arguments of `identify`."""

    least_squares: bool = True
    samples: int = 0
    correct: bool = True


@dataclasses.dataclass(frozen=True)
class Certified:
    """What is known of one answer's posterior.

    Attributes:
      predicted: the network's answer, that of the posterior where it is exact; None where there is no network's.
      posterior: None where nobody asked and the network has none.
      samples: of the posterior; None where none were asked for.
      caveats: what to be careful about.
    """

    predicted: Predicted | None
    posterior: Posterior | None
    samples: Samples | None
    caveats: list[Caveat]


def certify(
    network: "Identifier | None",
    law: Law | None,
    predicted: Predicted | None,
    measured: MeasuredCurve | MeasuredRecord,
    fitted: "ClassicalAnswer | RecordFit | None",
    asked: Asked,
) -> Certified:
    """The posterior that a network's draws are corrected to; without them that about the fit, where it is asked for.

    Args:
      network: None where none answers.
      law: of the parameters that are not given; None where no law is known.
      predicted: the network's answer.
      fitted: by least squares, perhaps beyond the ranges; None where that was left out.
    """
    fit = None if fitted is None else fitted.best
    if network is None or predicted is None or predicted.draws is None:
        if not asked.samples or law is None or fit is None or not asked.correct:
            return Certified(predicted, None, None, [])
        posterior = _about_fit(law, measured, fit, asked.samples)
        return Certified(predicted, posterior, posterior.samples, _caveats(posterior.certificate))
    draws, parameters = predicted.draws, network.parameters
    count = predicted.asked or SAMPLES
    best = None if fit is None else fit.labels
    why = _amortised(network, asked.correct)
    if why is not None or law is None:
        own = Draws(draws.labels[:, :count], draws.log_density[:, :count])
        posterior = Posterior.of(own, Certificate("amortised", why or ""), parameters)
        predicted = dataclasses.replace(predicted, posterior=posterior)
        return Certified(predicted, posterior, predicted.samples, [])
    started = predicted.labels if best is None else np.clip(best, 0.0, 1.0)
    posterior = _corrected(law, measured, draws, count, np.stack([predicted.labels, started]))
    if best is not None:
        posterior = _leaning(posterior, parameters, best)
    predicted = dataclasses.replace(predicted, posterior=posterior)
    if predicted.is_exact:
        predicted = dataclasses.replace(
            predicted, labels=posterior.mean, std=posterior.std, interval=posterior.interval
        )
    return Certified(predicted, posterior, predicted.samples, _caveats(posterior.certificate))


def _about_fit(
    law: Law, measured: MeasuredCurve | MeasuredRecord, fit: BestFit, samples: int
) -> Posterior:
    """The posterior in the law's ranges, sampled from the normal distribution that least squares says."""
    draws = normal_proposals(fit.labels, fit.label_covariance, samples)
    start = np.clip(fit.labels, 0.0, 1.0)
    return _leaning(
        _corrected(law, measured, draws, samples, start[None]), law.identified, fit.labels
    )


def _corrected(
    law: Law,
    measured: MeasuredCurve | MeasuredRecord,
    draws: Draws,
    count: int,
    starts: Array,
) -> Posterior:
    """What the law's likelihood makes of draws; it is linear in what is off about the nearest of the starts [k, p]."""
    tests = MeasuredTests.of(measured)
    start = tests.nearest(law, starts)
    kind = SpecimenLikelihoods if law.strain_measure == "nominal" else MeasuredLikelihoods
    likelihoods = kind(law, [tests], start[None])
    found, (certificate,) = correct(likelihoods, draws, count, starts=likelihoods.best[:, None])
    return Posterior.of(found, certificate, law.identified)


def _caveats(certificate: Certificate) -> list[Caveat]:
    """What the certificate of a posterior asks to be careful about."""
    if certificate.status == "do not trust":
        return [
            Caveat(
                "posterior is not to be trusted",
                f"the posterior of this answer is not to be trusted: {certificate.reason}",
                "take the values of least squares",
            )
        ]
    p = certificate.independent_noise_p
    if p is None or p >= _UNLIKE_NOISE:
        return []
    return [
        Caveat(
            "more than noise",
            f"the law misses the points by more than their noise (p {p:.1g}): the posterior takes errors to be alike "
            "along the test, and larger where they stand out, and is wider for it",
        )
    ]


def _amortised(network: "Identifier", corrects: bool) -> str | None:
    """Why a network's draws are not corrected; None where they are."""
    if network.law is None:
        return "no likelihood: the network was trained on labelled curves of no known law"
    return None if corrects else "correction was left out"


def _leaning(posterior: Posterior, parameters: Sequence[Parameter], best: Array) -> Posterior:
    """The posterior, not to be trusted where it leans on an end of a range beyond which the best value lies."""
    if not posterior.certificate.is_exact:
        return posterior
    edge = caveats.EDGE
    low = (best < -edge) & (posterior.interval[:, 0] < edge)
    high = (best > 1.0 + edge) & (posterior.interval[:, 1] > 1.0 - edge)
    names = [p.name for p, leans in zip(parameters, low | high, strict=True) if leans]
    if not names:
        return posterior
    reason = (
        f"it leans on the end of the range of {', '.join(names)}, beyond which the best value lies"
    )
    certificate = dataclasses.replace(posterior.certificate, status="do not trust", reason=reason)
    return dataclasses.replace(posterior, certificate=certificate)
