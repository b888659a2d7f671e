"""Answer -> material card: where its parameters come from, and the variants that their uncertainty makes."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from tfmat.cards.registry import card_text, check_card
from tfmat.errors import InputError
from tfmat.materials.law import Array

if TYPE_CHECKING:
    from tfmat.identification.answers import Identification

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


def card(
    answer: "Identification",
    solver: str,
    *,
    poisson_ratio: float | None = None,
    quantile: float | None = None,
) -> str:
    """The text of a material card; see `Identification.card`."""
    law = answer.law
    check_card(law, solver, poisson_ratio)
    assert law is not None
    name = answer.curve.name
    values = {name: value.value for name, value in answer.parameters.items()}
    facts = _facts(answer)
    if quantile is not None:
        found = variant(answer, quantile)
        facts += _about_variant(answer, found, quantile)
        values = found.values
        name = f"{name}_{100 * quantile:g}"
    return card_text(
        solver,
        law,
        values,
        tested=float(answer.curve.strain.max()),
        name=name,
        poisson_ratio=poisson_ratio,
        facts=facts,
    )


def variant(answer: "Identification", quantile: float) -> Variant:
    """The parameters to expect where the mean stress up to the tested strain is at this quantile of its uncertainty.

    Parameters hang together: all of them at their own 5 % would be a material that no test here has seen. To first
    order the mean stress is Gaussian, with the variance gᵀ C g of its slopes g and the parameters' covariance C on the
    labels' scale; given that it lies z standard deviations off, the labels are expected to lie z C g / √(gᵀ C g) off.

    Raises:
      InputError: the covariance is not known, or the test does not tell it.
    """
    if not 0.0 < quantile < 1.0:
        raise InputError(
            f"a variant's quantile is {quantile:g}; give a number between 0 and 1, e.g. 0.05"
        )
    law, covariance = answer.law, answer.covariance
    assert law is not None
    if covariance is None or not np.isfinite(covariance).all():
        raise InputError(
            f"no variants of {answer.curve.name}: the covariance of its parameters is not known"
        )
    strain = float(answer.curve.strain.max()) * np.linspace(0.0, 1.0, _STRAINS + 1)[None, 1:]
    slopes = law.label_derivatives(strain, answer.labels[None])[0].mean(axis=0)
    direction = covariance @ slopes
    variance = float(slopes @ direction)
    if not variance > 0.0:
        raise InputError(f"no variants of {answer.curve.name}: its parameters have no scatter")
    shift = scipy.special.ndtri(quantile) * direction / np.sqrt(variance)
    labels = answer.labels + shift
    stress = [_mean_stress(answer, strain, each) for each in (answer.labels, labels)]
    values = law.from_labels(labels[None])[0]
    named = {p.name: float(v) for p, v in zip(law.parameters, values, strict=True)}
    return Variant(named, stress[1] / stress[0] - 1.0)


def _mean_stress(answer: "Identification", strain: Array, labels: Array) -> float:
    assert answer.law is not None
    return float(answer.law.label_stress(strain, labels[None]).mean())


def _facts(answer: "Identification") -> list[str]:
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


def _about_variant(answer: "Identification", found: Variant, quantile: float) -> list[str]:
    percent = f"{100 * quantile:g} %"
    values = ", ".join(f"{name} = {value:.9g}" for name, value in found.values.items())
    meaning = (
        f"what to expect where the mean stress up to the tested strain is at its {percent} quantile "
        f"({100 * found.share:+.3g} %), by {_WHENCE[answer.method]}"
    )
    if answer.method != "mean of specimens":
        meaning += "; so well does the test tell the parameters: not the scatter between specimens"
    return [f"VARIANT {percent}: {values}; {meaning}"]
