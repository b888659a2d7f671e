"""Records of measured tests -> one recommended answer each, as `identify` gives for curves."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.toe import noise_of
from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.answers import Identification
from tfmat.identification.certify import Asked, certify
from tfmat.identification.classical import BestFit, ClassicalAnswer, conditioned
from tfmat.identification.identify import identify, network_of, notes_on_fixed
from tfmat.identification.networks import Sidecar
from tfmat.identification.open_answers import open_caveats
from tfmat.identification.other_laws import BETTER
from tfmat.identification.predictions import Predicted, predict_record
from tfmat.identification.record_fit import (
    RecordFit,
    better_law,
    errors_of_tests,
    fit_record,
    rms_percent,
)
from tfmat.identification.side_by_side import all_in_processes
from tfmat.identification.values import recommended_method, values_of
from tfmat.materials.law import Law

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

# A test that the law misses by more than this (% of its largest response) while it meets the others is named.
_ONE_TEST_PERCENT = 5.0
# A parameter that changes the response by less than this share of the largest one is as good as zero.
_IDLE = 0.01


def identify_all(
    source: "Identifier | Sidecar",
    measured: Sequence[MeasuredCurve | MeasuredRecord],
    **options: Any,
) -> list[Identification]:
    """Identifies curves, or the tests of materials: `identify` or `identify_records`, by what they are."""
    records = [each for each in measured if isinstance(each, MeasuredRecord)]
    if records:
        return identify_records(source, records, **options)
    curves = [each for each in measured if isinstance(each, MeasuredCurve)]
    return identify(source, curves, **options)


def identify_records(
    source: "Identifier | Sidecar",
    records: Sequence[MeasuredRecord],
    *,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Identification]:
    """Identifies the parameters of materials from all their tests at once.

    Args:
      source, fixed, least_squares, samples, correct, progress: as of `identify`.

    Raises:
      InputError: as `identify`.
    """
    fixed = dict(fixed or {})
    if source.law is None:
        raise InputError("the network is of no known law, and tests need one")
    asked = Asked(least_squares, samples, correct)
    network = network_of(source, fixed, asked)
    law = conditioned(source.law, fixed)
    steps, warnings = notes_on_fixed(source, fixed)
    noted = (
        dataclasses.replace(
            each,
            own_steps=[*each.own_steps, *steps],
            own_warnings=[*each.own_warnings, *warnings],
        )
        for each in records
    )
    # The network answers in this process, the law in all.
    given = (
        (each, (None, []) if network is None else predict_record(network, each, samples))
        for each in noted
    )
    return all_in_processes(
        lambda item: _answer(law, source, *item, asked),
        given,
        len(records),
        progress,
    )


def _answer(
    law: Law,
    source: "Identifier | Sidecar",
    record: MeasuredRecord,
    answered: tuple[Predicted | None, list[Caveat]],
    asked: Asked,
) -> Identification:
    assert source.law is not None
    predicted, warnings = answered
    conditions = len(law.identified) < len(source.law.identified)
    if predicted is None and not asked.least_squares:
        raise InputError(
            f"{record.name}: no test of it is one that the network was trained on; leave --noleast_squares out"
        )
    fitted = fit_record(law, record) if asked.least_squares else None
    if conditions:
        predicted = None
    network = None if isinstance(source, Sidecar) else source
    made = certify(network, law, predicted, record, fitted, asked)
    predicted = made.predicted
    labels = {}
    if fitted is not None:
        labels["least_squares"] = fitted.best.labels
    if predicted is not None:
        labels["network"] = predicted.labels
    tests = record.test_set
    responses = {
        method: law.label_stress(tests, found[None])[0] for method, found in labels.items()
    }
    of_tests = {method: errors_of_tests(record, found) for method, found in responses.items()}
    errors = {method: rms_percent(percent) for method, (_, percent) in of_tests.items()}
    predicted = _without_unfounded_interval(predicted, errors, record)
    classical = None
    if fitted is not None:
        better = None
        # No law comes nearer than the noise.
        if BETTER * errors["least_squares"] > rms_percent(_noise_of_tests(record)):
            better = better_law(law, record, fitted)
        classical = ClassicalAnswer(fitted.best, better)
    method = recommended_method(law, predicted, classical, errors)
    said = [*record.warnings, *(warnings if predicted is not None else []), *made.caveats]
    said += _caveats(law, record, method, predicted, fitted, errors, of_tests)
    if classical is not None and classical.better is not None:
        name, share = classical.better
        residual = f"its residual is {share:.2g} times as large"
        said.append(caveats.better_law_caveat(law.name, name, residual))
    covariance = shared_std = None
    if method == "least_squares" and fitted is not None:
        covariance, shared_std = fitted.best.label_covariance, fitted.best.shared_std
    elif predicted is not None:
        covariance = predicted.covariance
    values = values_of(law, method, predicted, classical)
    parameters = np.array([value.value for value in values.values()])
    said += caveats.stability_caveats(law, parameters, record)
    stresses = [np.abs(test.curve.stress_mpa).max() for test in record.tests]
    said += caveats.plausibility_caveats(law, parameters, float(max(stresses)))
    return Identification(
        record,
        law,
        method,
        values,
        responses,
        errors,
        said,
        labels[method],
        covariance,
        samples=made.samples,
        posterior=made.posterior,
        shared_std=shared_std,
    )


def _without_unfounded_interval(
    predicted: Predicted | None, errors: Mapping[str, float], record: MeasuredRecord
) -> Predicted | None:
    """See `predictions.without_unfounded_interval`; noise is what the points themselves show."""
    if predicted is None or predicted.std is None or predicted.is_exact:
        return predicted
    nearest = errors.get("least_squares", errors["network"])
    if nearest <= caveats.ABOVE_NOISE * max(_noise_percent(record), 0.2):
        return predicted
    return dataclasses.replace(predicted, interval=None)


def _noise_percent(record: MeasuredRecord) -> float:
    """The noise of single points over the largest response, %: the mean of the tests."""
    return float(np.mean(_noise_of_tests(record)))


def _noise_of_tests(record: MeasuredRecord) -> np.ndarray:
    """The noise of single points over the largest response of each test, [tests], %."""
    shares = [noise_of(test.response) / np.abs(test.response).max() for test in record.tests]
    return 100.0 * np.array(shares)


def _caveats(
    law: Law,
    record: MeasuredRecord,
    method: str,
    predicted: Predicted | None,
    fitted: RecordFit | None,
    errors: Mapping[str, float],
    of_tests: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> list[Caveat]:
    """What the answer itself asks to be careful about."""
    found: list[Caveat] = []
    ends, idle = 0, np.zeros(len(law.identified), np.bool_)
    if method == "network":
        assert predicted is not None
        at_end = caveats.edge_caveats(law.identified, predicted.labels)
        ends = len(at_end)
        found += at_end
    elif fitted is not None:
        idle = _idle(law, record, fitted.best)
        ends = int((fitted.best.at_bound & ~idle).sum())
        found += _idle_caveats(law, idle)
        found += caveats.range_caveats(
            law,
            dataclasses.replace(
                fitted.best,
                at_bound=fitted.best.at_bound & ~idle,
                labels=np.where(idle, 0.0, fitted.best.labels),
            ),
        )
    if fitted is None:
        assert predicted is not None
        found += caveats.unidentifiable_caveats(law.identified, predicted.std, None)
    else:
        found += open_caveats(law, record, fitted)
        told = dataclasses.replace(fitted.best, is_open=fitted.best.is_open & ~idle[:, None])
        found += caveats.one_sided_caveats(law.identified, told)
    found += caveats.too_many_ends(ends)
    if fitted is None:
        return found + caveats.network_caveats(law.name, errors["network"], 100.0)
    best = "least_squares"
    return found + _misfit_caveats(law, record, errors[best], of_tests[best][1])


def _idle(law: Law, record: MeasuredRecord, best: BestFit) -> NDArray[np.bool_]:
    """Parameters [p] at the small end of what was searched, where they hardly change the response any more."""
    idle = best.at_bound & (best.labels < 0.5)
    if not idle.any():
        return idle
    parameters = law.from_labels(best.labels[None])
    slopes = law.label_derivatives(record.test_set, best.labels[None])[0]
    change = np.abs(slopes * best.values / law.label_slopes(parameters)[0]).max(axis=0)
    return idle & (change < _IDLE * np.abs(record.response).max())


def _idle_caveats(law: Law, idle: NDArray[np.bool_]) -> list[Caveat]:
    names = [p.name for p, is_idle in zip(law.identified, idle, strict=True) if is_idle]
    if not names:
        return []
    return [
        Caveat(
            "not needed",
            f"{', '.join(names)} went to the smallest value that was searched, and changes the response by less than "
            f"{100 * _IDLE:.0f} % there: the tests ask for no such term",
            "a law with fewer terms says as much",
        )
    ]


def _misfit_caveats(
    law: Law, record: MeasuredRecord, percent: float, of_tests: np.ndarray
) -> list[Caveat]:
    """How far the law's best answer is from the tests, in % of their largest responses: together, and each [tests]."""
    names = [test.curve.name for test in record.tests]
    each = ", ".join(f"{name} {error:.2g} %" for name, error in zip(names, of_tests, strict=True))
    each = f" ({each})" if len(names) > 1 else ""
    away = f"{percent:.2g} % of the largest response{each}"
    if percent > caveats.POOR_RMSE_PERCENT:
        return [
            Caveat(
                "law does not follow the tests",
                f"law {law.name} does not describe these tests: even its best fit is {away} away",
                "another law, or another column or unit, is needed",
                blocks=True,
            )
        ]
    worst = int(np.argmax(of_tests))
    if of_tests[worst] > _ONE_TEST_PERCENT:
        return [
            Caveat(
                "law misses one test",
                f"law {law.name} misses {names[worst]} by {of_tests[worst]:.2g} % of its largest response{each}",
                "do not rely on the law in such a test",
            )
        ]
    noise = _noise_percent(record)
    if percent > max(1.0, caveats.ABOVE_NOISE * noise):
        return [
            Caveat(
                "law follows roughly",
                f"law {law.name} follows these tests to {away}, {percent / max(noise, 1e-9):.2g} times their noise",
                "the 95 % intervals are widened for it; look at the residuals",
            )
        ]
    return []
