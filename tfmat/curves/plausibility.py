"""Is this curve of the order of magnitude that the law's curves have? If not, which unit would explain it."""

import numpy as np

from tfmat.curves.caveats import Caveat
from tfmat.curves.cleaning import MeasuredCurve
from tfmat.curves.resampling import CurveTarget
from tfmat.materials.law import Array, Law

# The modulus is the secant to this share of the maximum stress.
_SECANT_AT = 0.2
# The law's own range is widened by this factor on both sides before a modulus is called absurd.
_TOLERANCE = 1.5
_SAMPLES = 512

# What a modulus is multiplied by when the number's unit was mistaken: the right unit -> factor.
_STRESS_MISTAKES = {"GPa": 1e3, "ksi": 6.894757, "psi": 6.894757e-3, "kPa": 1e-3, "Pa": 1e-6}
_STRAIN_MISTAKES = {"%": 1e2, "microstrain": 1e6}


def check_magnitude(curve: MeasuredCurve, target: CurveTarget) -> str:
    """Warns of a modulus that no curve of the law has; returns the same text, or '', for an error.

    Args:
      curve: in the law's measures, before it is cut to the trained range.
      target: without a law nothing is checked.
    """
    law = target.law
    if law is None:
        return ""
    loaded = np.flatnonzero(curve.stress_mpa >= _SECANT_AT * curve.stress_mpa.max())
    strain = float(curve.strain[loaded[0]])
    if strain <= 0:
        return ""
    measured = float(curve.stress_mpa[loaded[0]]) / strain
    low, high = secant_range(law, np.array([strain]))
    if low / _TOLERANCE <= measured <= high * _TOLERANCE:
        return ""
    mistakes = _explanations(measured, strain, curve, target)
    question = f"is its unit {' or '.join(mistakes)}?" if mistakes else ""
    relation = "below" if measured < low else "above"
    text = (
        f"its initial modulus is {_modulus(measured)}, far {relation} the {_modulus(low)} to {_modulus(high)} of "
        f"law {law.name}'s curves"
    )
    advice = question or "a unit is wrong, or the law is not for this material"
    curve.warnings.append(Caveat("implausible modulus", text, advice, blocks=True))
    return f"{text}; {question}" if question else text


def secant_range(law: Law, strain: Array) -> tuple[float, float]:
    """The smallest and the largest secant modulus (MPa) of the law at a strain [1], over its ranges."""
    stress = law.stress(strain[None], _sampled(law))[:, 0]
    secants = stress / strain[0]
    return float(secants.min()), float(secants.max())


def _sampled(law: Law) -> Array:
    """Parameters that fill the ranges, corners included: [samples, all]."""
    random = np.random.default_rng(0)
    count = len(law.identified)
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * min(count, 6)), -1).reshape(-1, min(count, 6))
    labels = random.uniform(size=(_SAMPLES, count))
    if count <= 6:
        labels = np.concatenate([corners, labels])
    return law.from_labels(labels)


def _explanations(
    measured: float, strain: float, curve: MeasuredCurve, target: CurveTarget
) -> list[str]:
    """The mistakes of unit that would make the curve one of the law's, as a user can mend them.

    Args:
      measured: its secant modulus at `strain`, MPa.
    """
    if target.law is None or target.max_strain is None:
        return []
    found = []
    longest = 1.5 * target.max_strain[1]
    for unit, factor in _STRESS_MISTAKES.items():
        low, high = secant_range(target.law, np.array([strain]))
        if low <= measured * factor <= high and curve.strain[-1] <= longest:
            found.append(f"{unit} (--stress_unit={unit})")
    for unit, factor in _STRAIN_MISTAKES.items():
        low, high = secant_range(target.law, np.array([strain / factor]))
        if low <= measured * factor <= high and curve.strain[-1] / factor <= longest:
            found.append(f"{'percent' if unit == '%' else unit} strain (--strain_unit={unit})")
    return found


def _modulus(value: float) -> str:
    return f"{value / 1e3:.3g} GPa" if value >= 1e3 else f"{value:.3g} MPa"
