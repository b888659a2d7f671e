"""What is told of a curve: its parameters with their intervals, and the same as JSON and for a picture."""

import dataclasses
from typing import Any

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.materials.law import Array, Law


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of a parameter, in its unit.

    Attributes:
      value: the network's answer; with parameters given, least squares from the network's answer.
      fixed: it was given and not identified; then nothing else is known.
      polished: two steps of least squares from the network's answer.
      least_squares: classical identification without the network; std, ci95: its standard deviation and 95 % interval.
    """

    value: float
    unit: str
    fixed: bool = False
    std: float | None = None
    polished: float | None = None
    least_squares: float | None = None
    ci95: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Its entry in the JSON file; `fixed` only where it is."""
        content = dataclasses.asdict(self)
        content["ci95"] = None if self.ci95 is None else list(self.ci95)
        order = ("value", "unit", "std", "polished", "least_squares", "ci95")
        return {name: content[name] for name in order} | ({"fixed": True} if self.fixed else {})


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
