"""Measured curves -> parameters with units and intervals, the re-simulated curve, and what to be careful about."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.curves.caveats import Caveat, reasons_not_to_use
from tfmat.curves.cleaning import MeasuredCurve
from tfmat.curves.resampling import resample
from tfmat.curves.simulate import features_of
from tfmat.errors import InputError
from tfmat.identification import doubts
from tfmat.identification.answers import Identification, Value
from tfmat.identification.classical import (
    ClassicalAnswer,
    classical_answers,
    conditioned,
    labels_of_others,
    padded_points,
)
from tfmat.identification.identifier import Identifier
from tfmat.identification.least_squares import fit
from tfmat.identification.uncertainty import in_units
from tfmat.materials.law import Array, Law, Parameter

# Curves whose least squares are computed together; between them the progress is told.
_BLOCK = 128


def identify(
    identifier: Identifier,
    curves: Sequence[MeasuredCurve],
    *,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Identification]:
    """Identifies the parameters of cleaned curves: all in one call of the network, and of least squares.

    Args:
      fixed: parameters that are known, name -> value in its unit. The network was trained without this knowledge: the
        others are then least squares from the network's answer.
      least_squares: False leaves out everything that is not the network's.
      progress: called with (done, total).

    Raises:
      InputError: the network is of no use, or a known parameter is not the law's.
    """
    if not curves:
        return []
    fixed = dict(fixed or {})
    labels, std = network_answers(identifier, curves)
    if identifier.law is None:
        if fixed:
            raise InputError("the network is of no known law; nothing can be fixed")
        return [
            _without_law(identifier, curve, predicted)
            for curve, predicted in zip(curves, _predicted(identifier, labels, std), strict=True)
        ]
    law = conditioned(identifier.law, fixed)
    labels = labels_of_others(identifier.law, labels, law)
    # What the network says of its errors is not true of an answer that it did not give.
    std = None if fixed else std
    results: list[Identification] = []
    for start in range(0, len(curves), _BLOCK):
        part, of_part = curves[start : start + _BLOCK], labels[start : start + _BLOCK]
        if fixed:
            of_part = fit(law, *padded_points(part), start=of_part).labels
        found = classical_answers(law, part, of_part) if least_squares else [None] * len(part)
        predicted = _predicted(
            identifier, of_part, None if std is None else std[start : start + _BLOCK]
        )
        for curve, answer, classical in zip(part, predicted, found, strict=True):
            curve = _with_notes_on_fixed(curve, identifier, fixed)
            results.append(_answer(law, identifier, curve, answer, classical))
        if progress:
            progress(len(results), len(curves))
    return results


@dataclasses.dataclass(frozen=True)
class _Predicted:
    """What the network says of one curve, p identified parameters.

    Attributes:
      labels: [p], cut to 0-1.
      std: [p], calibrated, on the same scale; None where the network gives none.
      interval: [p, 2], 95 %, on the same scale; None with `std`.
    """

    labels: Array
    std: Array | None
    interval: Array | None


def _predicted(identifier: Identifier, labels: Array, std: Array | None) -> list[_Predicted]:
    """One for each row of labels [curves, p] and of the std that the network gives with them."""
    if std is None or identifier.calibration is None:
        return [_Predicted(label, None, None) for label in labels]
    calibration = identifier.calibration
    rows = zip(labels, calibration.std(std), calibration.interval(labels, std), strict=True)
    return [_Predicted(*row) for row in rows]


def network_answers(
    identifier: Identifier, curves: Sequence[MeasuredCurve]
) -> tuple[Array, Array | None]:
    """The network's labels for cleaned curves, cut to 0-1, and its std or None: [curves, identified] each."""
    points = [resample(curve.strain, curve.stress_mpa, identifier.target) for curve in curves]
    features = features_of(*(np.stack(arrays) for arrays in zip(*points, strict=True)))
    raw, std = identifier.predict_with_std(features)
    if not np.isfinite(raw).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    return np.clip(raw, 0.0, 1.0), std


def _without_law(
    identifier: Identifier, curve: MeasuredCurve, predicted: _Predicted
) -> Identification:
    values = identifier.values(predicted.labels[None])[0]
    errors = _network_errors(identifier.parameters, predicted)
    found = {
        parameter.name: Value(float(value), parameter.unit, **known)
        for parameter, value, known in zip(identifier.parameters, values, errors, strict=True)
    }
    warnings = [
        *map(str, curve.warnings),
        *doubts.edge_warnings(identifier.parameters, predicted.labels),
        *doubts.unidentifiable_warnings(identifier.parameters, predicted.std, None),
    ]
    return Identification(curve, None, found, None, None, warnings, predicted.labels)


def _with_notes_on_fixed(
    curve: MeasuredCurve, identifier: Identifier, fixed: Mapping[str, float]
) -> MeasuredCurve:
    """The curve with a step, and perhaps warnings, about the parameters that were given."""
    if not fixed:
        return curve
    given = ", ".join(f"{name} = {value:g}" for name, value in fixed.items())
    step = f"{given} given: the other parameters are least squares from the network's answer"
    warnings = list(curve.warnings)
    for parameter in identifier.parameters:
        value = fixed.get(parameter.name)
        if value is not None and not parameter.low <= value <= parameter.high:
            warnings.append(
                Caveat(
                    "given beyond its trained range",
                    f"{parameter.name} = {value:g} was given, outside of its trained range {parameter.low:g} to "
                    f"{parameter.high:g} {parameter.unit}",
                )
            )
    return dataclasses.replace(curve, steps=[*curve.steps, step], warnings=warnings)


def _answer(
    law: Law,
    identifier: Identifier,
    curve: MeasuredCurve,
    predicted: _Predicted,
    classical: ClassicalAnswer | None,
) -> Identification:
    """The answer for one curve."""
    label = predicted.labels
    values = law.from_labels(label[None])
    resimulated = law.stress(curve.strain[None], values)[0]
    largest = float(np.abs(curve.stress_mpa).max())
    error = _rms(resimulated - curve.stress_mpa)
    noise = doubts.noise_level(curve, identifier.settings)
    edges = doubts.edge_warnings(law.identified, label)
    unknown = doubts.unidentifiable_warnings(
        law.identified, predicted.std, None if classical is None else classical.unidentifiable
    )
    warnings, fit_error = [*map(str, curve.warnings), *edges, *unknown], None
    if classical is not None:
        best = law.stress(curve.strain[None], law.from_labels(classical.labels[None]))[0]
        fit_error = _rms(best - curve.stress_mpa)
        # On the network's points, where a pause of the machine is one point and not many.
        strain, stress, valid = resample(curve.strain, curve.stress_mpa, identifier.target)
        model = law.stress(strain[None], law.from_labels(classical.labels[None]))[0]
        local = doubts.local_warning(strain[valid], (model - stress)[valid], noise, largest)
        warnings += [local] if local else []
    warnings += doubts.error_warnings(law.name, error, fit_error, noise, largest)
    if classical is not None and classical.better and fit_error is not None:
        warnings.append(doubts.better_law_warning(law.name, fit_error, classical.better))
    fit_percent = None if fit_error is None else 100 * fit_error / largest
    verdict = doubts.verdict(bool(reasons_not_to_use(curve.warnings)), fit_percent, len(edges))
    return Identification(
        curve=curve,
        law=law,
        parameters=_values(law, values[0], predicted, classical),
        resimulated_mpa=resimulated,
        rmse_percent=100 * error / largest,
        warnings=[*([verdict] if verdict else []), *warnings],
        labels=label,
    )


def _values(
    law: Law, values: Array, predicted: _Predicted, classical: ClassicalAnswer | None
) -> dict[str, Value]:
    """Every parameter of the law, the fixed ones included; `values` are [all]."""
    found, column = {}, 0
    errors = _errors(law, predicted, classical)
    for parameter, value in zip(law.parameters, values, strict=True):
        if parameter.fixed is not None:
            found[parameter.name] = Value(float(value), parameter.unit, fixed=True)
            continue
        known: dict[str, Any] = errors[column]
        if classical is not None:
            known |= {
                "polished": _finite(classical.polished[column]),
                "least_squares": _finite(classical.values[column]),
            }
        found[parameter.name] = Value(float(value), parameter.unit, **known)
        column += 1
    return found


def _errors(
    law: Law, predicted: _Predicted, classical: ClassicalAnswer | None
) -> list[dict[str, Any]]:
    """Standard deviations and intervals of each identified parameter, by the names of `Value`."""
    errors = _network_errors(law.identified, predicted)
    if classical is not None:
        prefix = "" if predicted.std is None else "least_squares_"
        for i, entry in enumerate(errors):
            ends = classical.interval[i]
            std = None if classical.unidentifiable[i] else float(classical.std[i])
            entry[f"{prefix}std"] = std
            entry[f"{prefix}ci95"] = _pair(ends) if np.isfinite(ends).all() else None
    return errors


def _network_errors(parameters: Sequence[Parameter], predicted: _Predicted) -> list[dict[str, Any]]:
    if predicted.std is None or predicted.interval is None:
        return [{} for _ in parameters]
    std, limits = in_units(
        parameters, predicted.labels[None], predicted.std[None], predicted.interval[None]
    )
    return [{"std": float(std[0, i]), "ci95": _pair(limits[0, i])} for i in range(len(parameters))]


def _pair(ends: Array) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
