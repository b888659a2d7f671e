"""The answer for a curve: one recommended value for each parameter, how it was got, and whether it may be used."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from tfmat.curves.cleaning import Caveat, MeasuredCurve, reasons_not_to_use
from tfmat.materials.law import Array, Law

Method = Literal["least_squares", "network", "given", "mean of specimens"]
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of a parameter, in its unit. None is not known, or not asked for.

    Attributes:
      value: the recommended value.
      method: how that was got; `given` for a parameter that was known before.
      std, ci95: standard deviation (to first order, where the scale is logarithmic) and 95 % interval of `value`.
      network, network_ci95: the network's own answer; its calibrated interval where the network gives one, and the
        curve follows the law as closely as the curves that it was calibrated on.
      polished: two steps of least squares from the network's answer.
      least_squares, least_squares_ci95: the best fit.
    """

    value: float
    unit: str
    method: Method
    std: float | None = None
    ci95: Interval | None = None
    network: float | None = None
    network_ci95: Interval | None = None
    polished: float | None = None
    least_squares: float | None = None
    least_squares_ci95: Interval | None = None

    @property
    def fixed(self) -> bool:
        """Whether the value was given and not identified."""
        return self.method == "given"

    def to_json(self) -> dict[str, Any]:
        """The entry of the parameter in the JSON file: the attributes by their names."""
        content = dataclasses.asdict(self)
        return {n: list(v) if isinstance(v, tuple) else v for n, v in content.items()}


@dataclasses.dataclass(frozen=True)
class Identification:
    """The answer for one curve.

    Attributes:
      curve: the measured points that the answer stands on, with the steps of its cleaning.
      law: the law, or None where the network was trained on labelled curves of no known law.
      method: how the recommended values were got.
      parameters: name -> value, the given ones included.
      stress_mpa: method -> stress of the law at the measured strains with its values, [points], MPa: `least_squares`
        and `network`, as far as they are known.
      errors_percent: method -> its root mean square distance from the measured points over the maximum stress, %.
      warnings: those of the curve and those of the answer.
      labels: the recommended values on the scale of the law's ranges, [identified]; 0 and 1 are their ends.
    """

    curve: MeasuredCurve
    law: Law | None
    method: Method
    parameters: dict[str, Value]
    stress_mpa: Mapping[str, Array]
    errors_percent: Mapping[str, float]
    warnings: list[Caveat]
    labels: Array

    @property
    def do_not_use(self) -> list[str]:
        """Why the answer must not be used, in short; empty where it may be."""
        return reasons_not_to_use(self.warnings)

    @property
    def resimulated_mpa(self) -> Array | None:
        """The law's stress at the measured strains with the recommended values, [points], MPa; None without a law."""
        return self.stress_mpa.get(self.method)

    @property
    def rmse_percent(self) -> float | None:
        """Root mean square distance of `resimulated_mpa` from the measured points over the maximum stress, %."""
        return self.errors_percent.get(self.method)

    def to_json(self) -> dict[str, Any]:
        """One entry of the list that `tfmat identify --json` writes."""
        curve = self.curve
        return {
            "curve": curve.name,
            "law": self.law.name if self.law else None,
            "do_not_use": bool(self.do_not_use),
            "reasons": self.do_not_use,
            "method": self.method,
            "parameters": {name: value.to_json() for name, value in self.parameters.items()},
            "rmse_percent": self.rmse_percent,
            "rmse_percent_of": dict(self.errors_percent),
            "conditions": dict(curve.conditions),
            "tensile": curve.tensile.to_json() if curve.tensile else None,
            "assumed": list(curve.assumed),
            "num_points": len(curve.strain),
            "steps": list(curve.steps),
            "warnings": [
                {"kind": caveat.kind, "text": caveat.text, "advice": caveat.advice}
                for caveat in self.warnings
            ],
        }

    def picture(self) -> dict[str, Any]:
        """The arguments of `tfmat.report.figures.curve_figure` for this answer, as plain values and arrays."""
        law = self.law
        refined = None
        if "least_squares" in self.stress_mpa:
            refined = {
                "name": "least squares",
                "stress_mpa": self.stress_mpa["least_squares"],
                "rmse_percent": self.errors_percent["least_squares"],
            }
        return {
            "strain": self.curve.strain,
            "stress_mpa": self.curve.stress_mpa,
            "resimulated_mpa": self.stress_mpa.get("network"),
            "name": self.curve.name,
            "law_title": law.title if law else "",
            "parameters": {n: (value.value, value.unit) for n, value in self.parameters.items()},
            "intervals": {name: value.ci95 for name, value in self.parameters.items()},
            "rmse_percent": self.errors_percent.get("network"),
            "refined": refined,
            "recommended": "network" if self.method == "network" else "least squares",
            "do_not_use": self.do_not_use,
            "assumed": list(self.curve.assumed),
            "strain_label": f"{law.strain_measure} strain" if law else "strain",
            "stress_label": f"{law.stress_measure} stress" if law else "stress",
        }
