"""Measured curves -> one recommended answer each, how sure it is, and what to be careful about."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.resampling import resample
from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.answers import Identification
from tfmat.identification.certify import Asked, certify
from tfmat.identification.classical import (
    ClassicalAnswer,
    classical_answer,
    conditioned,
)
from tfmat.identification.draws import check_samples
from tfmat.identification.least_squares import stress_by_strain
from tfmat.identification.networks import Sidecar
from tfmat.identification.predictions import (
    Predicted,
    network_errors,
    predict,
    without_unfounded_interval,
)
from tfmat.identification.side_by_side import all_in_processes
from tfmat.identification.values import Method, Value, recommended_method, values_of
from tfmat.materials.law import Array, Law

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier


def identify(
    source: "Identifier | Sidecar",
    curves: Sequence[MeasuredCurve],
    *,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Identification]:
    """Identifies the parameters of cleaned curves, each by itself: an answer never depends on the other curves.

    The recommended answer is least squares, with and without a network or samples. It is the network's where nothing
    else was asked for, where the law is not known, and where the law itself errs (see `recommended_method`).

    Args:
      source: a network, or only the description of one: then least squares alone answers.
      fixed: parameters that are known, name -> value in its unit. The network was trained without this knowledge, and
        least squares alone answers.
      least_squares: False leaves out everything that is not the network's.
      samples: to draw from the posterior of each curve: a network's, or, where there is none, about least squares.
      correct: corrects a whole posterior with the law's likelihood; False leaves it as the network gives it.
      progress: called with (done, total).

    Raises:
      InputError: the network is of no use, a known parameter is not the law's, or there is nothing to answer with, or
        to draw from.
    """
    fixed = dict(fixed or {})
    if source.law is None and fixed:
        raise InputError("the network is of no known law; nothing can be fixed")
    asked = Asked(least_squares, samples, correct)
    network = network_of(source, fixed, asked)
    law = None if source.law is None else conditioned(source.law, fixed)
    steps, warnings = notes_on_fixed(source, fixed)

    def answered(item: tuple[MeasuredCurve, Predicted | None]) -> Identification:
        curve, predicted = item
        if law is None:
            assert network is not None
            return _without_law(network, curve, predicted)
        curve = dataclasses.replace(
            curve, steps=[*curve.steps, *steps], warnings=[*curve.warnings, *warnings]
        )
        return _answer(law, source, curve, predicted, asked)

    # The network answers in this process, the law in all.
    given = (
        (curve, None if network is None else predict(network, curve, least_squares, samples))
        for curve in curves
    )
    return all_in_processes(answered, given, len(curves), progress)


def network_of(
    source: "Identifier | Sidecar", fixed: Mapping[str, float], asked: Asked
) -> "Identifier | None":
    """The network that answers, if there is one; InputError where nothing answers what is asked for."""
    if asked.samples:
        is_sampled = asked.least_squares and asked.correct and source.law is not None
        check_samples(asked.samples, source.uncertainty, fixed, is_sampled=is_sampled)
    network = None if isinstance(source, Sidecar) else source
    if not asked.least_squares and (fixed or network is None):
        what = "a given parameter (--fix)" if fixed else "a law without a network"
        raise InputError(f"{what} needs least squares; leave --noleast_squares out")
    return network


def _without_law(
    source: "Identifier", curve: MeasuredCurve, predicted: Predicted | None
) -> Identification:
    parameters = source.parameters
    assert predicted is not None
    made = certify(source, None, predicted, curve, None, Asked())
    predicted = made.predicted or predicted
    found = {}
    errors = network_errors(parameters, predicted)
    for parameter, label, (std, ci95) in zip(parameters, predicted.labels, errors, strict=True):
        value = float(parameter.from_unit_interval(label))
        found[parameter.name] = Value(
            value, parameter.unit, "network", std, ci95, network=value, network_ci95=ci95
        )
    warnings = [
        *curve.warnings,
        *caveats.short_caveats(curve, source.target),
        *caveats.edge_caveats(parameters, predicted.labels),
        *caveats.unidentifiable_caveats(parameters, predicted.std, None),
    ]
    return Identification(
        curve,
        None,
        "network",
        found,
        {},
        {},
        warnings,
        predicted.labels,
        samples=made.samples,
        posterior=made.posterior,
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
    curve: MeasuredCurve,
    predicted: Predicted | None,
    asked: Asked,
) -> Identification:
    """The answer for one curve of a known law."""
    assert source.law is not None
    conditions = len(law.identified) < len(source.law.identified)
    classical = classical_answer(law, curve) if asked.least_squares else None
    if conditions:
        # It was trained without knowing the given parameters.
        predicted = None
    network = None if isinstance(source, Sidecar) else source
    made = certify(network, law, predicted, curve, classical, asked)
    predicted = made.predicted
    stress, errors = _compared(law, curve, predicted, classical)
    noise = caveats.noise_level(curve, source.settings)
    predicted = without_unfounded_interval(predicted, errors, noise, curve)
    method = recommended_method(law, predicted, classical, errors)
    warnings = [
        *curve.warnings,
        *made.caveats,
        *_caveats(law, source, curve, method, predicted, classical, errors, noise),
    ]
    if predicted is None and network is not None and not conditions:
        warnings.append(
            Caveat(
                "too short for the network",
                f"the curve ends at strain {curve.strain[-1]:.3g}, far before those that the network was trained on; "
                "least squares alone answered",
            )
        )
    best = predicted.labels if method == "network" and predicted else None
    labels = best if best is not None or classical is None else classical.best.labels
    assert labels is not None
    values = values_of(law, method, predicted, classical)
    parameters = np.array([value.value for value in values.values()])
    largest = float(np.abs(curve.stress_mpa).max())
    warnings += caveats.plausibility_caveats(law, parameters, largest)
    covariance = shared_std = None
    if method == "least_squares" and classical is not None:
        covariance, shared_std = classical.best.label_covariance, classical.best.shared_std
    elif predicted is not None:
        covariance = predicted.covariance
    return Identification(
        curve,
        law,
        method,
        values,
        stress,
        errors,
        warnings,
        labels,
        covariance,
        samples=made.samples,
        posterior=made.posterior,
        shared_std=shared_std,
    )


def _compared(
    law: Law,
    curve: MeasuredCurve,
    predicted: Predicted | None,
    classical: ClassicalAnswer | None,
) -> tuple[dict[str, Array], dict[str, float]]:
    """Stress (MPa) of each method's answer at the measured strains, and its error, % of the maximum stress."""
    labels: dict[str, Array] = {}
    if classical is not None:
        labels["least_squares"] = classical.best.labels
    if predicted is not None:
        labels["network"] = predicted.labels
    largest = float(np.abs(curve.stress_mpa).max())
    stress = {
        method: law.label_stress(curve.strain[None], found[None])[0]
        for method, found in labels.items()
    }
    errors = {
        method: 100 * float(np.sqrt(np.mean(np.square(found - curve.stress_mpa)))) / largest
        for method, found in stress.items()
    }
    return stress, errors


def _caveats(
    law: Law,
    source: "Identifier | Sidecar",
    curve: MeasuredCurve,
    method: Method,
    predicted: Predicted | None,
    classical: ClassicalAnswer | None,
    errors: Mapping[str, float],
    noise_mpa: float,
) -> list[Caveat]:
    """What the answer itself asks to be careful about."""
    found: list[Caveat] = []
    largest = float(np.abs(curve.stress_mpa).max())
    ends = 0
    if method == "network":
        assert predicted is not None
        at_end = caveats.edge_caveats(law.identified, predicted.labels)
        ends = len(at_end)
        found += [*caveats.short_caveats(curve, source.target), *at_end]
        if classical is None:
            error = 0.01 * errors["network"] * largest
            found += caveats.network_caveats(law.name, error, largest)
            if predicted.std is not None and predicted.interval is None:
                found.append(caveats.no_interval(error, noise_mpa))
    elif classical is not None:
        ends = int(classical.best.at_bound.sum())
        found += caveats.range_caveats(law, classical.best)
        found += caveats.own_error_caveats(law, noise_mpa, largest)
    fitted = None if classical is None else classical.best
    std = None if predicted is None else predicted.std
    found += caveats.unidentifiable_caveats(law.identified, std, fitted)
    found += caveats.too_many_ends(ends)
    if classical is None:
        return found
    best = law.from_labels(classical.best.labels[None])
    modulus = curve.tensile.modulus_mpa.value if curve.tensile else None
    found += caveats.modulus_caveat(law, best[0], modulus)
    fit_mpa = 0.01 * errors["least_squares"] * largest
    found += caveats.fit_caveats(law.name, fit_mpa, noise_mpa, largest)
    # On evenly spread points, where a pause of the machine is one point and not many.
    target = dataclasses.replace(source.target, max_strain=None)
    answer = law.stress(curve.strain[None], best)[0]
    residual = answer - curve.stress_mpa
    if curve.strain_error.deviation:
        by_strain = 2.0 * stress_by_strain(curve.strain, answer, curve.strain_error)
        residual -= np.clip(residual, -by_strain, by_strain)
        found += caveats.rounding_caveats(curve, law, best[0])
    strain, residual, valid = resample(curve.strain, residual, target)
    found += caveats.local_caveats(strain[valid], residual[valid], noise_mpa, largest)
    if classical.better:
        name, error = classical.better
        residual = f"{error:.3g} MPa against {fit_mpa:.3g} MPa"
        found.append(caveats.better_law_caveat(law.name, name, residual))
    return found
