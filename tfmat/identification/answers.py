"""The answer for a curve: its values, whether they may be used, what is told of them elsewhere, its material card."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.special

from tfmat.curves.cleaning import Caveat, reasons_not_to_use
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.identification.next_test import NextTests, next_tests_of
from tfmat.identification.posterior import Posterior
from tfmat.identification.record_fit import panels_of, tests_json
from tfmat.identification.values import Method, Value
from tfmat.materials.cards import card_text, check_card
from tfmat.materials.law import Array, Law

_STRAINS = 100
_WHENCE = {
    "least_squares": "the covariance of least squares",
    "network": "the network's calibrated standard deviations, taken as independent",
    "mean of specimens": "the scatter between the specimens",
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Parameters of a soft or stiff material: name -> value in its unit; and by what share its mean stress differs."""

    values: dict[str, float]
    share: float


@dataclasses.dataclass(frozen=True)
class Identification:
    """The answer for one record.

    Attributes:
      curve: the measured points that the answer stands on, with the steps of their cleaning: a record of all tests, or
        of one rising loading.
      law: the law, or None where the network was trained on labelled curves of no known law.
      method: how the recommended values were got.
      parameters: name -> value, the given ones included.
      stress_mpa: method -> stress of the law at the measured strains with its values, [points], MPa: `least_squares`
        and `network`, as far as they are known. Of a record the response to all tests, one after the other.
      errors_percent: method -> its root mean square distance from the measured points over the maximum stress, %.
      warnings: those of the curve and those of the answer.
      labels: the recommended values on the scale of the law's ranges, [identified]; 0 and 1 are their ends.
      covariance: of `labels`, [identified, identified]; None where it is not known.
      shared_std: standard deviations of `labels` by errors that specimens may share, [identified];
        None where it is not known.
      samples: `posterior`, whatever `method` is; None where none were asked for, or nothing can draw them.
      posterior: what the network's posterior of this curve became when it was corrected, or, without one, what was
        sampled about least squares, and its certificate; None where there is neither.
    """

    curve: MeasuredRecord
    law: Law | None
    method: Method
    parameters: dict[str, Value]
    stress_mpa: Mapping[str, Array]
    errors_percent: Mapping[str, float]
    warnings: list[Caveat]
    labels: Array
    covariance: Array | None = None
    samples: Posterior | None = None
    next_test: NextTests | None = None
    posterior: Posterior | None = None
    shared_std: Array | None = None

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
        if curve.curve is None:
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
        assert self.law is not None
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
        name = self.curve.name
        check_card(self.law, solver, poisson_ratio)
        law, values, tested = self.card_values(quantile)
        facts = _facts(self)
        if quantile is not None:
            facts += _about_variant(self.method, self.variant(quantile), quantile)
            name = f"{name}_{100 * quantile:g}"
        return card_text(
            solver,
            law,
            values,
            tested=tested,
            name=name,
            poisson_ratio=poisson_ratio,
            facts=facts,
        )

    def card_values(self, quantile: float | None = None) -> tuple[Law, dict[str, float], float]:
        """The law, the parameters' values and the tested strain of a card; `quantile` as of `card`."""
        assert self.law is not None
        values = {parameter: value.value for parameter, value in self.parameters.items()}
        if quantile is not None:
            values = self.variant(quantile).values
        return self.law, values, float(self.curve.strain.max())

    def variant(self, quantile: float) -> Variant:
        """The parameters to expect where the mean stress up to the tested strain is at a quantile of its uncertainty.

        Parameters hang together: all of them at their own 5 % would be a material that no test here has seen. To first
        order the mean stress is Gaussian, with the variance gᵀ C g of its slopes g and the parameters' covariance C on
        the labels' scale; given that it lies z standard deviations off, the labels are expected to lie
        z C g / √(gᵀ C g) off.

        Raises:
          InputError: the covariance is not known, or the test does not tell it.
        """
        if not 0.0 < quantile < 1.0:
            raise InputError(
                f"a variant's quantile is {quantile:g}; give a number between 0 and 1, e.g. 0.05"
            )
        law, covariance, name = self.law, self.covariance, self.curve.name
        assert law is not None
        if covariance is None or not np.isfinite(covariance).all():
            raise InputError(
                f"no variants of {name}: the covariance of its parameters is not known"
            )
        strain = float(self.curve.strain.max()) * np.linspace(0.0, 1.0, _STRAINS + 1)[None, 1:]
        slopes = law.label_derivatives(strain, self.labels[None])[0].mean(axis=0)
        direction = covariance @ slopes
        variance = float(slopes @ direction)
        if not variance > 0.0:
            raise InputError(f"no variants of {name}: its parameters have no scatter")
        shift = scipy.special.ndtri(quantile) * direction / np.sqrt(variance)
        labels = np.stack([self.labels, self.labels + shift])
        mean, shifted = (float(law.label_stress(strain, each[None]).mean()) for each in labels)
        values = law.from_labels(labels[1:])[0]
        named = {p.name: float(v) for p, v in zip(law.parameters, values, strict=True)}
        return Variant(named, shifted / mean - 1.0)

    def posterior_picture(self) -> dict[str, Any] | None:
        """The arguments of `tfmat.report.figures.Corner`, as values and arrays; None without samples."""
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

        Of a record those of `tfmat.report.figures.record_figure`.
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
        if self.curve.curve is None:
            return picture | panels_of(self.curve, self.stress_mpa, self.method)
        if refined is not None:
            refined["stress_mpa"] = self.stress_mpa["least_squares"]
        return picture | {
            "strain": self.curve.strain,
            "stress_mpa": self.curve.stress_mpa,
            "resimulated_mpa": self.stress_mpa.get("network"),
            "recommended": "network" if self.method == "network" else "least squares",
        }


def _facts(answer: Identification) -> list[str]:
    """Where the parameters come from, and whether they may be used."""
    lines = []
    if answer.do_not_use:
        lines.append(f"DO NOT USE: {', '.join(answer.do_not_use)}")
    curve = answer.curve
    error = (
        ""
        if answer.rmse_percent is None
        else f", error {answer.rmse_percent:.3g} % of the maximum stress"
    )
    lines.append(
        f"from: {curve.name}, {len(curve.strain)} points, by {answer.method.replace('_', ' ')}{error}"
    )
    if curve.conditions:
        lines.append(
            "conditions: " + ", ".join(f"{key} {value}" for key, value in curve.conditions.items())
        )
    if curve.assumed:
        lines.append(f"assumed when the record was read: {', '.join(curve.assumed)}")
    for name, value in answer.parameters.items():
        known = "given" if value.fixed else "interval not known"
        if value.ci95 is not None:
            known = f"95 % interval {value.ci95[0]:.6g} to {value.ci95[1]:.6g}"
        unit = "" if value.unit == "-" else f" {value.unit}"
        lines.append(f"{name} = {value.value:.9g}{unit}, {known}")
    return lines + [f"warning: {warning}" for warning in answer.warnings]


def _about_variant(method: Method, found: Variant, quantile: float) -> list[str]:
    percent = f"{100 * quantile:g} %"
    values = ", ".join(f"{name} = {value:.9g}" for name, value in found.values.items())
    meaning = (
        f"what to expect where the mean stress up to the tested strain is at its {percent} quantile "
        f"({100 * found.share:+.3g} %), by {_WHENCE[method]}"
    )
    if method != "mean of specimens":
        meaning += "; so well does the test tell the parameters: not the scatter between specimens"
    return [f"VARIANT {percent}: {values}; {meaning}"]
