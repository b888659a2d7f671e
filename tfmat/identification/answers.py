"""The answer for a curve: what the network says, the recommended value of each parameter, whether it may be used."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tfmat.curves.cleaning import Caveat, MeasuredCurve, reasons_not_to_use
from tfmat.curves.records import features_of
from tfmat.curves.resampling import resample
from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.cards import card
from tfmat.identification.uncertainty import in_units
from tfmat.materials.law import Array, Law, Parameter

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier


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
      covariance: of `labels`, [identified, identified]; None where it is not known.
    """

    curve: MeasuredCurve
    law: Law | None
    method: Method
    parameters: dict[str, Value]
    stress_mpa: Mapping[str, Array]
    errors_percent: Mapping[str, float]
    warnings: list[Caveat]
    labels: Array
    covariance: Array | None = None

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

    def card(
        self, solver: str, *, poisson_ratio: float | None = None, quantile: float | None = None
    ) -> str:
        """The text of a material card in mm, t, s, MPa, with where it comes from in its comments.

        Args:
          solver: abaqus, ls_dyna, ansys, calculix or code_aster.
          poisson_ratio: which no test here tells; None is 0.3 for metals and 0.4995 for rubber.
          quantile: 0.05 or 0.95, say, gives a soft or stiff variant: the parameters to expect where the mean stress up
            to the tested strain is at that quantile of its uncertainty.

        Raises:
          InputError: this solver has no card for the law, or the uncertainty is not known.
        """
        return card(self, solver, poisson_ratio=poisson_ratio, quantile=quantile)

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


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What the network says of one curve, p identified parameters.

    Attributes:
      labels: [p], cut to 0-1.
      std: [p], calibrated, on the same scale; None where the network gives none.
      interval: [p, 2], 95 %, on the same scale; None with `std`.
    """

    labels: Array
    std: Array | None
    interval: Array | None


def predict(network: "Identifier", curve: MeasuredCurve, may_fail: bool) -> Predicted | None:
    """The network's answer; None for a curve that is far too short for it (an error unless it `may_fail`)."""
    try:
        strain, stress, valid = resample(curve.strain, curve.stress_mpa, network.target)
    except InputError:
        if may_fail and network.law is not None:
            return None
        raise
    raw, std = network.predict_with_std(features_of(strain[None], stress[None], valid[None]))
    if not np.isfinite(raw).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    labels = np.clip(raw, 0.0, 1.0)
    calibration = network.calibration
    if std is None or calibration is None:
        return Predicted(labels[0], None, None)
    return Predicted(labels[0], calibration.std(std)[0], calibration.interval(labels, std)[0])


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
    if predicted is None or predicted.std is None:
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
    return (float(ends[0]), float(ends[1])) if np.isfinite(ends).all() else None
