"""Measured curves -> parameters with units, the error of the re-simulated curve, and what to be careful about."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.curves.measured import MeasuredCurve
from tfmat.curves.resampling import resample
from tfmat.curves.simulate import features_of
from tfmat.errors import InputError
from tfmat.identification.identifier import Identifier
from tfmat.identification.resimulation import rmse_percent
from tfmat.materials.law import Array, Law

# An answer this near to the end of its range (0-1) says little more than that the range ends there.
EDGE = 0.005
# Above this the law does not describe the curve, whatever its parameters mean.
POOR_RMSE_PERCENT = 5.0


@dataclasses.dataclass(frozen=True)
class Value:
    """A parameter's value in its unit; `fixed` where it was given and not identified."""

    value: float
    unit: str
    fixed: bool = False


@dataclasses.dataclass(frozen=True)
class Identification:
    """The answer for one curve.

    Attributes:
      curve: the measured points that the answer stands on, with the steps and warnings of its cleaning.
      law: the law, or None where the network was trained on labelled curves of no known law.
      parameters: name -> value.
      resimulated_mpa: stress of the law at the measured strains, [points], MPa, or None without a law.
      rmse_percent: its root mean square distance from the measured points over the maximum stress, %, or None.
      warnings: those of the curve and those of the answer.
    """

    curve: MeasuredCurve
    law: Law | None
    parameters: dict[str, Value]
    resimulated_mpa: Array | None
    rmse_percent: float | None
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        """One entry of the list that `tfmat identify --json` writes."""
        parameters = {
            name: {
                "value": value.value,
                "unit": value.unit,
                **({"fixed": True} if value.fixed else {}),
            }
            for name, value in self.parameters.items()
        }
        return {
            "curve": self.curve.name,
            "law": self.law.name if self.law else None,
            "parameters": parameters,
            "rmse_percent": self.rmse_percent,
            "num_points": len(self.curve.strain),
            "steps": list(self.curve.steps),
            "warnings": list(self.warnings),
        }

    def picture(self) -> dict[str, Any]:
        """The arguments of `tfmat.report.figures.curve_figure` for this answer."""
        law = self.law
        return {
            "strain": self.curve.strain,
            "stress_mpa": self.curve.stress_mpa,
            "resimulated_mpa": self.resimulated_mpa,
            "name": self.curve.name,
            "law_title": law.title if law else "",
            "parameters": {
                name: (value.value, value.unit) for name, value in self.parameters.items()
            },
            "rmse_percent": self.rmse_percent,
            "strain_label": f"{law.strain_measure} strain" if law else "strain",
            "stress_label": f"{law.stress_measure} stress" if law else "stress",
        }


def identify(identifier: Identifier, curves: Sequence[MeasuredCurve]) -> list[Identification]:
    """Identifies the parameters of cleaned curves, all in one call of the network."""
    if not curves:
        return []
    points = [resample(curve.strain, curve.stress_mpa, identifier.target) for curve in curves]
    features = features_of(*(np.stack(arrays) for arrays in zip(*points, strict=True)))
    raw = identifier.predict(features)
    if not np.isfinite(raw).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    labels = np.clip(raw, 0.0, 1.0)
    values = identifier.values(labels)
    return [_answer(identifier, curve, labels[i], values[i]) for i, curve in enumerate(curves)]


def _answer(
    identifier: Identifier, curve: MeasuredCurve, label: Array, values: Array
) -> Identification:
    law = identifier.law
    found = {
        p.name: Value(float(v), p.unit) for p, v in zip(identifier.parameters, values, strict=True)
    }
    warnings = list(curve.warnings)
    for parameter, scaled in zip(identifier.parameters, label, strict=True):
        if not EDGE < scaled < 1 - EDGE:
            end, limit = ("low", parameter.low) if scaled < 0.5 else ("high", parameter.high)
            warnings.append(
                f"{parameter.name} is at the {end} end of its trained range ({limit:.4g} {parameter.unit}); "
                "the true value may lie beyond"
            )
    if law is None:
        return Identification(curve, None, found, None, None, warnings)
    every = {
        p.name: found.get(p.name) or Value(float(p.fixed or 0.0), p.unit, True)
        for p in law.parameters
    }
    parameters = np.array([[every[p.name].value for p in law.parameters]])
    resimulated = law.stress(curve.strain[None], parameters)
    error = rmse_percent(curve.stress_mpa[None], resimulated, np.ones(resimulated.shape, bool))
    if error[0] > POOR_RMSE_PERCENT:
        warnings.append(
            f"the re-simulated curve is {error[0]:.1f} % of the maximum stress away from the measured one: "
            f"law {law.name} does not describe this curve, a column or unit is wrong, or the network is too coarse"
        )
    return Identification(curve, law, every, resimulated[0], float(error[0]), warnings)
