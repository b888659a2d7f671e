"""The answer for a curve: what the network says, the recommended value of each parameter, whether it may be used."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tfmat.curves.cleaning import Caveat, MeasuredCurve, reasons_not_to_use
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.settings import CurveSettings
from tfmat.identification.cards import card
from tfmat.identification.certificate import Posterior
from tfmat.identification.classical import ClassicalAnswer
from tfmat.identification.draws import Samples
from tfmat.identification.next_test import NextTests, next_tests_of
from tfmat.identification.predictions import Interval, Predicted, interval_of, network_errors
from tfmat.identification.record_fit import panels_of, tests_json
from tfmat.materials.law import Array, Law

# Where least squares cannot tell a parameter, the network's answer is recommended if its curve is as near to the
# measured one but for this factor.
_AS_NEAR = 1.1

Method = Literal["least_squares", "network", "given", "mean of specimens"]


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of a parameter, in its unit. None is not known, or not asked for.

    Attributes:
      value: the recommended value.
      method: how that was got; `given` for a parameter that was known before.
      std, ci95: standard deviation (to first order, where the scale is logarithmic) and 95 % interval of `value`.
      network, network_ci95: the network's own answer; its calibrated interval where the network gives one, and the
        curve follows the law as closely as the curves that it was calibrated on.
      polished: two steps (of tests: six) of least squares from the network's answer.
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
      curve: the measured points that the answer stands on, with the steps of its cleaning; of a law that takes tests
        the record of all of them.
      law: the law, or None where the network was trained on labelled curves of no known law.
      method: how the recommended values were got.
      parameters: name -> value, the given ones included.
      stress_mpa: method -> stress of the law at the measured strains with its values, [points], MPa: `least_squares`
        and `network`, as far as they are known. Of a record the response to all tests, one after the other.
      errors_percent: method -> its root mean square distance from the measured points over the maximum stress, %.
      warnings: those of the curve and those of the answer.
      labels: the recommended values on the scale of the law's ranges, [identified]; 0 and 1 are their ends.
      covariance: of `labels`, [identified, identified]; None where it is not known.
      samples: of the posterior, whatever `method` is; None where none were asked for, or nothing can draw them.
      posterior: what the network's posterior of this curve became when it was corrected, or, without one, what was
        sampled about least squares, and its certificate; None where there is neither.
    """

    curve: MeasuredCurve | MeasuredRecord
    law: Law | None
    method: Method
    parameters: dict[str, Value]
    stress_mpa: Mapping[str, Array]
    errors_percent: Mapping[str, float]
    warnings: list[Caveat]
    labels: Array
    covariance: Array | None = None
    samples: Samples | None = None
    next_test: NextTests | None = None
    posterior: Posterior | None = None

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
        tests = {}
        if isinstance(curve, MeasuredRecord):
            tests = {"tests": tests_json(curve, self.stress_mpa[self.method])}
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
            **tests,
            **({} if self.next_test is None else {"next_test": self.next_test.to_json()}),
            **({"posterior": self.posterior.to_json()} if self.posterior else {}),
        }

    def with_next_test(self, settings: CurveSettings, **options: Any) -> "Identification":
        """The answer with what further tests are expected to tell, or with a warning why that is not known.

        Args:
          settings: of the simulation whose noise a further test has; options: of `next_tests_of`.
        """
        assert self.law is not None and isinstance(self.curve, MeasuredRecord)
        samples = None if self.samples is None else self.samples.labels
        found = next_tests_of(self.law, self.curve, settings, self.labels, samples, **options)
        if isinstance(found, Caveat):
            return dataclasses.replace(self, warnings=[*self.warnings, found])
        return dataclasses.replace(self, next_test=found)

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

    def posterior_picture(self) -> dict[str, Any] | None:
        """The arguments of `tfmat.report.posterior_figures.Corner`, as values and arrays; None without samples."""
        if self.samples is None:
            return None
        scales = {p.name: p.scale for p in self.law.identified} if self.law else {}
        return {
            "names": list(self.samples.names),
            "units": list(self.samples.units),
            "logarithmic": [scales.get(name) == "log" for name in self.samples.names],
            "values": self.samples.values,
            "recommended": {name: self.parameters[name].value for name in self.samples.names},
            "title": self.curve.name,
        }

    def picture(self) -> dict[str, Any]:
        """The arguments of `tfmat.report.figures.curve_figure` for this answer, as plain values and arrays.

        Of a record those of `tfmat.report.record_figures.record_figure`.
        """
        law, errors = self.law, self.errors_percent
        refined: dict[str, Any] | None = None
        if "least_squares" in self.stress_mpa:
            refined = {"name": "least squares", "rmse_percent": errors["least_squares"]}
        picture = {
            "name": self.curve.name,
            "law_title": law.title if law else "",
            "parameters": {n: (value.value, value.unit) for n, value in self.parameters.items()},
            "intervals": {name: value.ci95 for name, value in self.parameters.items()},
            "rmse_percent": errors.get("network"),
            "refined": refined,
            "do_not_use": self.do_not_use,
            "assumed": list(self.curve.assumed),
            "strain_label": f"{law.strain_measure} strain" if law else "strain",
            "stress_label": f"{law.stress_measure} stress" if law else "stress",
        }
        if isinstance(self.curve, MeasuredRecord):
            return picture | panels_of(self.curve, self.stress_mpa, self.method)
        if refined is not None:
            refined["stress_mpa"] = self.stress_mpa["least_squares"]
        return picture | {
            "strain": self.curve.strain,
            "stress_mpa": self.curve.stress_mpa,
            "resimulated_mpa": self.stress_mpa.get("network"),
            "recommended": "network" if self.method == "network" else "least squares",
        }


def recommended_method(
    predicted: Predicted | None,
    classical: ClassicalAnswer | None,
    errors: Mapping[str, float],
    law: Law | None = None,
) -> Method:
    """Least squares; the network where nothing else answers or tells a parameter, and where the law itself errs.

    Curves that it was trained on differ from such a law as much as the law does from the truth.
    The mean of an exact posterior that is bent need not be near the curve: its intervals hold all the same.
    """
    if classical is None:
        return "network"
    if predicted is None or predicted.interval is None:
        return "least_squares"
    if not classical.best.unidentifiable.any() and (law is None or not law.own_error):
        return "least_squares"
    near = errors["network"] <= _AS_NEAR * errors["least_squares"]
    return "network" if near or predicted.is_exact else "least_squares"


def values_of(
    law: Law, method: Method, predicted: Predicted | None, classical: ClassicalAnswer | None
) -> dict[str, Value]:
    """Every parameter of the law, the given ones included."""
    by_network = None if predicted is None else law.from_labels(predicted.labels[None])[0]
    errors = None if predicted is None else network_errors(law.identified, predicted)
    found, column = {}, 0
    for i, parameter in enumerate(law.parameters):
        if parameter.fixed is not None:
            found[parameter.name] = Value(parameter.fixed, parameter.unit, "given")
            continue
        network = None if by_network is None else float(by_network[i])
        std, network_ci95 = (None, None) if errors is None else errors[column]
        fitted, ci95, polished = None, None, None
        if classical is not None:
            best = classical.best
            fitted, ci95 = float(best.values[column]), interval_of(best.interval[column])
            polished = None if classical.polished is None else classical.polished[column]
        recommended = network if method == "network" else fitted
        assert recommended is not None
        if method == "least_squares" and classical is not None:
            std = _finite(classical.best.std[column])
            std = None if classical.best.unidentifiable[column] else std
        found[parameter.name] = Value(
            recommended,
            parameter.unit,
            method,
            std,
            ci95=network_ci95 if method == "network" else ci95,
            network=network,
            network_ci95=network_ci95,
            polished=None if polished is None else _finite(polished),
            least_squares=fitted,
            least_squares_ci95=ci95,
        )
        column += 1
    return found


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
