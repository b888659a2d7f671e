"""Records -> one recommended answer each, how sure it is, and what to be careful about."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.resampling import resample
from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.answers import Identification
from tfmat.identification.least_squares import stress_by_strain
from tfmat.identification.networks import Sidecar
from tfmat.identification.open_answers import open_caveats
from tfmat.identification.posterior import check_samples
from tfmat.identification.predictions import (
    Predicted,
    network_errors,
    posterior_caveats,
    posterior_of,
    predict,
)
from tfmat.identification.record_fit import (
    BestFit,
    RecordFit,
    better_law,
    conditioned,
    errors_of_tests,
    fit_record,
    rms_percent,
)
from tfmat.identification.side_by_side import all_in_processes
from tfmat.identification.values import Method, Value, recommended_method, values_of
from tfmat.materials.law import Array, Law

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

# A test that the law misses by more than this (% of its largest response) while it meets the others is named.
_ONE_TEST_PERCENT = 5.0
# A parameter that changes the response by less than this share of the largest one is as good as zero.
_IDLE = 0.01
# _LEAST_NOISE: % of the largest response; tests are not taken for more exact where a network's interval is judged.
_LEAST_NOISE = 0.2


def identify(
    source: "Identifier | Sidecar",
    records: Sequence[MeasuredRecord],
    *,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
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
        return _answer(law, source, record, predicted, said, least_squares, samples, correct)

    # The network answers in this process, the law in all.
    given = (
        (
            record.noted(steps, warnings),
            *((None, []) if network is None else predict(network, record, least_squares, samples)),
        )
        for record in records
    )
    return all_in_processes(answered, given, len(records), progress)


def network_of(
    source: "Identifier | Sidecar",
    fixed: Mapping[str, float],
    least_squares: bool,
    samples: int,
    correct: bool,
) -> "Identifier | None":
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
    source: "Identifier", record: MeasuredRecord, answered: Predicted, samples: int
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
    source: "Identifier | Sidecar", fixed: Mapping[str, float]
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
    source: "Identifier | Sidecar",
    record: MeasuredRecord,
    predicted: Predicted | None,
    said: list[Caveat],
    least_squares: bool,
    samples: int,
    correct: bool,
) -> Identification:
    """The answer for one record of a known law; `said`: caveats of what the network predicted."""
    assert source.law is not None
    fitted = fit_record(law, record) if least_squares else None
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
    noise = _noise_percent(record, source)
    predicted = _without_unfounded_interval(predicted, errors, noise, record)
    best = None if fitted is None else fitted.best
    method = recommended_method(law, predicted, best, errors)
    found = _caveats(law, source, record, method, predicted, fitted, of_tests, noise)
    values = values_of(law, method, predicted, best)
    parameters = np.array([value.value for value in values.values()])
    found += caveats.stability_caveats(law, parameters, record)
    found += caveats.plausibility_caveats(law, parameters, record.largest_mpa)
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
    )


def _noise_percent(record: MeasuredRecord, source: "Identifier | Sidecar") -> float:
    """The noise of single points over the largest response, %: the mean of the tests.

    The trained noise of a rising loading counts where that is more.
    """
    shown = float(np.mean(record.noise_percent))
    if record.curve is None or source.settings is None:
        return shown
    settings = source.settings.resolved()
    mean_square = float(np.mean(np.square(record.stress_mpa)))
    trained = np.hypot(settings.noise_mpa or 0.0, settings.noise_relative * np.sqrt(mean_square))
    return max(shown, 100.0 * float(trained) / record.largest_mpa)


def _without_unfounded_interval(
    predicted: Predicted | None, errors: Mapping[str, float], noise: float, record: MeasuredRecord
) -> Predicted | None:
    """The network's answer, without its intervals where the record is not like those that they were calibrated on.

    They hold the truth for records that follow the law up to the noise (%); what the misfit of a real one does to the
    network's answer they do not know.
    """
    if predicted is None or predicted.std is None or predicted.is_exact:
        return predicted
    nearest = errors.get("least_squares", errors["network"])
    if nearest <= caveats.ABOVE_NOISE * max(noise, _LEAST_NOISE if record.curve is None else 0.0):
        return predicted
    return dataclasses.replace(predicted, interval=None)


def _caveats(
    law: Law,
    source: "Identifier | Sidecar",
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
        at_end = caveats.edge_caveats(law.identified, predicted.labels)
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
        found += [*_idle_caveats(law, idle), *caveats.range_caveats(law, told)]
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
        return found + _network_caveats(law, record, predicted, of_tests["network"], noise)
    if record.curve is not None:
        found += _misfit_of_curve(law, source, record.curve, fitted.best, noise)
    else:
        found += _misfit_of_tests(law, record, of_tests["least_squares"], noise)
    better = better_law(law, fitted)
    if better is not None:
        name, error, share = better
        residual = f"its residual is {share:.2g} times as large"
        if record.curve is not None:
            own = 0.01 * rms_percent(of_tests["least_squares"]) * largest
            residual = f"{error:.3g} MPa against {own:.3g} MPa"
        found.append(caveats.better_law_caveat(law.name, name, residual))
    return found


def _network_caveats(
    law: Law, record: MeasuredRecord, predicted: Predicted, of_tests: Array, noise: float
) -> list[Caveat]:
    """Caveats of a network that answers alone; its errors in the tests, [tests], and their noise, %."""
    error = 0.01 * rms_percent(of_tests) * record.largest_mpa
    found = caveats.network_caveats(law.name, error, record.largest_mpa)
    if record.curve is not None and predicted.std is not None and predicted.interval is None:
        found.append(caveats.no_interval(error, 0.01 * noise * record.largest_mpa))
    return found


def _misfit_of_curve(
    law: Law, source: "Identifier | Sidecar", curve: MeasuredCurve, best: BestFit, noise: float
) -> list[Caveat]:
    """How far, and where, the law's best answer is from one rising loading with so much noise, %."""
    largest = float(np.abs(curve.stress_mpa).max())
    noise_mpa = 0.01 * noise * largest
    parameters = law.from_labels(best.labels[None])
    modulus = curve.tensile.modulus_mpa.value if curve.tensile else None
    found = caveats.modulus_caveat(law, parameters[0], modulus)
    answer = law.stress(curve.strain[None], parameters)[0]
    residual = answer - curve.stress_mpa
    fit_mpa = float(np.sqrt(np.mean(np.square(residual))))
    found += caveats.fit_caveats(law.name, fit_mpa, noise_mpa, largest)
    if curve.strain_error.deviation:
        by_strain = 2.0 * stress_by_strain(curve.strain, answer, curve.strain_error)
        residual -= np.clip(residual, -by_strain, by_strain)
        found += caveats.rounding_caveats(curve, law, parameters[0])
    # On evenly spread points, where a pause of the machine is one point and not many.
    target = dataclasses.replace(source.target, max_strain=None)
    strain, residual, valid = resample(curve.strain, residual, target)
    return found + caveats.local_caveats(strain[valid], residual[valid], noise_mpa, largest)


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


def _misfit_of_tests(
    law: Law, record: MeasuredRecord, of_tests: Array, noise: float
) -> list[Caveat]:
    """How far the law's best answer is from each test [tests], and their noise, in % of their largest responses."""
    percent = rms_percent(of_tests)
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
    if percent > max(1.0, caveats.ABOVE_NOISE * noise):
        return [
            Caveat(
                "law follows roughly",
                f"law {law.name} follows these tests to {away}, {percent / max(noise, 1e-9):.2g} times their noise",
                "the 95 % intervals are widened for it; look at the residuals",
            )
        ]
    return []
