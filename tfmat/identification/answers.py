"""What is told of a curve: its parameters with their intervals, and the same as JSON and for a picture."""

import dataclasses
from typing import Any

import numpy as np

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.materials.law import Array, Law


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of a parameter, in its unit.

    Attributes:
      value: the network's answer; with parameters given, least squares from the network's answer.
      fixed: it was given and not identified; then nothing else is known.
      polished: two steps of least squares from the network's answer.
      least_squares: classical identification without the network.
      std, ci95: standard deviation (to first order, where the scale is logarithmic) and 95 % interval of `value`,
        from the network where it has an uncertainty head, calibrated on held-out curves. Otherwise those of
        `least_squares`, and the next two are None.
      least_squares_std, least_squares_ci95: those of `least_squares` beside the network's.
    """

    value: float
    unit: str
    fixed: bool = False
    std: float | None = None
    polished: float | None = None
    least_squares: float | None = None
    ci95: tuple[float, float] | None = None
    least_squares_std: float | None = None
    least_squares_ci95: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Its entry in the JSON file; `fixed` only where it is, the last two only where they are known."""
        content = dataclasses.asdict(self)
        for name in ("ci95", "least_squares_ci95"):
            content[name] = None if content[name] is None else list(content[name])
        order = ("value", "unit", "std", "polished", "least_squares", "ci95")
        further = ("least_squares_std", "least_squares_ci95")
        return (
            {name: content[name] for name in order}
            | {name: content[name] for name in further if content[name] is not None}
            | ({"fixed": True} if self.fixed else {})
        )


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
      labels: the answer scaled to 0-1, [identified].
    """

    curve: MeasuredCurve
    law: Law | None
    parameters: dict[str, Value]
    resimulated_mpa: Array | None
    rmse_percent: float | None
    warnings: list[str]
    labels: Array

    def to_json(self) -> dict[str, Any]:
        """One entry of the list that `tfmat identify --json` writes."""
        return {
            "curve": self.curve.name,
            "law": self.law.name if self.law else None,
            "parameters": {name: value.to_json() for name, value in self.parameters.items()},
            "rmse_percent": self.rmse_percent,
            "num_points": len(self.curve.strain),
            "steps": list(self.curve.steps),
            "warnings": list(self.warnings),
        }

    def picture(self) -> dict[str, Any]:
        """The arguments of `tfmat.report.figures.curve_figure` for this answer, as plain values and arrays."""
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
            "refined": self._refined(),
            "strain_label": f"{law.strain_measure} strain" if law else "strain",
            "stress_label": f"{law.stress_measure} stress" if law else "stress",
        }

    def _refined(self) -> dict[str, Any] | None:
        """The law's curve with the least-squares values, or with the polished ones where not all of those are known."""
        if self.law is None:
            return None
        for key, name in (("least_squares", "least squares"), ("polished", "polished")):
            found = {n: v.value if v.fixed else getattr(v, key) for n, v in self.parameters.items()}
            if all(v.fixed for v in self.parameters.values()) or None in found.values():
                continue
            values = np.array([[found[parameter.name] for parameter in self.law.parameters]])
            stress = self.law.stress(self.curve.strain[None], values)[0]
            measured = self.curve.stress_mpa
            error = float(np.sqrt(np.mean((stress - measured) ** 2)) / np.abs(measured).max())
            return {
                "name": name,
                "stress_mpa": stress,
                "rmse_percent": 100 * error,
                "values": found,
            }
        return None
