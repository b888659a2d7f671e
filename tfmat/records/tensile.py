"""What a tension test of a metal tells without any law: modulus, proof stress, strength and elongations."""

import dataclasses
from typing import Any

import numpy as np

from tfmat.materials.law import Array
from tfmat.records.toe import ElasticLine, elastic_line, noise_of

# ISO 6892-1, annex G: the modulus is the slope between these shares of Rp0.2; where few points lie there, between the
# wider ones, and else the chord between two interpolated points.
_CHORDS = ((0.10, 0.40), (0.05, 0.50), (0.0, 0.50))
_FEWEST_POINTS = 5
# A line is preferred to a chord between two points where its standard error is below this share of its slope, and
# where it ends below this share of Rp0.2.
_SURE_LINE, _ELASTIC = 0.1, 0.6
_OFFSET = 0.002
_NEIGHBOURS, _FEWEST_NEIGHBOURS = 2e-4, 12
# Shares of the strength: a load that falls by less after its maximum does not show that this was the maximum; one that
# falls below the second shows fracture, at a step of the third, or else at the end of the record.
_CLEAR_FALL, _BROKEN, _BREAK = 0.005, 0.3, 0.1

# _SURE_FALL: share of the strength; a fall by which a maximum is known whatever the rows without a strain hold.
_SURE_FALL = 0.05

# Field of `TensileProperties` -> its symbol and unit.
SYMBOLS = {
    "modulus_mpa": ("E", "MPa"),
    "proof_stress_mpa": ("Rp0.2", "MPa"),
    "tensile_strength_mpa": ("Rm", "MPa"),
    "uniform_elongation": ("Ag", "-"),
    "total_uniform_elongation": ("Agt", "-"),
    "elongation_after_fracture": ("A", "-"),
    "total_elongation": ("At", "-"),
}
# An upper yield point: the load falls by a share of it within this strain, and stays there for as much again.
_LATEST_YIELD, _YIELD_DROP, _LEAST_YIELD_DROP, _DEEPEST_YIELD_DROP = 0.03, 0.005, 0.02, 0.35
LARGEST_TRUE_STRAIN, _SMALLEST_STRETCH = 100.0, 1e-3


@dataclasses.dataclass(frozen=True)
class Property:
    """One property of a test.

    Attributes:
      value: in the unit of its field, or None where the record cannot tell it.
      how: the way it was got, or why there is none.
      at_least: the record ends too early: the property is this or more.
    """

    value: float | None
    how: str
    at_least: bool = False


@dataclasses.dataclass(frozen=True)
class TensileProperties:
    """The properties of one tension test, in engineering stress and strain.

    Attributes:
      modulus_mpa: chord modulus E, MPa.
      proof_stress_mpa: Rp0.2, the stress at 0.2 % plastic extension, MPa.
      tensile_strength_mpa: Rm, the stress at maximum load, MPa.
      uniform_elongation: Ag, plastic strain at maximum load, -; total_uniform_elongation: Agt, the total strain there.
      elongation_after_fracture: A, plastic strain at the end, -; total_elongation: At, the total strain there.
    """

    modulus_mpa: Property
    proof_stress_mpa: Property
    tensile_strength_mpa: Property
    uniform_elongation: Property
    total_uniform_elongation: Property
    elongation_after_fracture: Property
    total_elongation: Property

    def to_json(self) -> dict[str, Any]:
        """Field -> its symbol, value, unit, how it was got, and `at_least` where it is only a bound."""
        content = {}
        for name, (symbol, unit) in SYMBOLS.items():
            found: Property = getattr(self, name)
            content[name] = {
                "symbol": symbol,
                "value": found.value,
                "unit": unit,
                "how": found.how,
            } | ({"at_least": True} if found.at_least else {})
        return content


def tensile_properties(
    strain: Array, stress_mpa: Array, beyond: Array | None = None
) -> TensileProperties:
    """The properties of a tension test, from its whole record.

    Args:
      strain: [points], -, engineering, rising, zero where the load begins; stress_mpa: [points], MPa, engineering. Both
        beyond the maximum load too, where the record goes on.
      beyond: [rows], MPa, engineering stress of later rows, in which the strain was not measured; NaN where
        it is not known.
    """
    modulus, origin, proof = _modulus_and_proof(strain, stress_mpa)
    top = index_of_maximum_load(strain, stress_mpa, stress_mpa)
    strength = float(stress_mpa[top])
    smooth = running_mean(stress_mpa)
    later = np.empty(0) if beyond is None else running_mean(beyond[np.isfinite(beyond)])
    unknown = beyond is not None and len(later) < len(beyond)
    fall = max(_CLEAR_FALL * strength, 3.0 * noise_of(stress_mpa))
    highest = float(smooth.max())
    if len(later) and later.max() > highest + fall:
        return _without_strain_at_maximum(
            strain, np.concatenate([stress_mpa, later]), modulus, proof
        )
    least = float(smooth[top:].min())
    if unknown:
        fall = max(fall, _SURE_FALL * strength)
    elif later.max(initial=0.0) < highest - fall:
        least = min(least, float(later.min(initial=np.inf)))
    reached = least < strength - fall
    too_early = "" if reached else f"; the record ends at strain {strain[-1]:.4g} without a maximum"
    where = "at the largest stress" if reached else "at the largest stress of the record"
    uniform = float(strain[top]) - origin
    return TensileProperties(
        modulus_mpa=modulus,
        proof_stress_mpa=proof,
        tensile_strength_mpa=Property(
            strength,
            f"largest engineering stress, at strain {strain[top]:.4g}{too_early}",
            not reached,
        ),
        uniform_elongation=_plastic(uniform, strength, modulus, f"{where}{too_early}", not reached),
        total_uniform_elongation=Property(uniform, f"total strain {where}{too_early}", not reached),
        **_elongations(
            strain, stress_mpa, top, origin, modulus, beyond is not None and len(beyond) > 0
        ),
    )


def _without_strain_at_maximum(
    strain: Array, stress: Array, modulus: Property, proof: Property
) -> TensileProperties:
    """The strength from all rows; no elongation where the strain was not measured to the maximum load."""
    none = Property(
        None,
        f"the strain was measured to {strain[-1]:.4g} only, before the maximum load",
    )
    top = int(stress.argmax())
    fall = max(_CLEAR_FALL * float(stress[top]), 3.0 * noise_of(stress))
    reached = bool(running_mean(stress)[top:].min() < stress[top] - fall)
    return TensileProperties(
        modulus_mpa=modulus,
        proof_stress_mpa=proof,
        tensile_strength_mpa=Property(
            float(stress[top]),
            f"largest engineering stress of the record, {top + 1 - len(strain)} points after the measured strain ends"
            f"{'' if reached else '; the record ends without a maximum'}",
            not reached,
        ),
        uniform_elongation=none,
        total_uniform_elongation=none,
        elongation_after_fracture=none,
        total_elongation=none,
    )


def with_capped_load(properties: TensileProperties, cap: float) -> TensileProperties:
    """The properties of a test whose load stayed at a limit (MPa): the strength is more, where it was is not known."""
    none = Property(None, f"the load was not measured beyond {cap:.4g} MPa")
    how = "the limit of the load cell, at which the load stays"
    return dataclasses.replace(
        properties,
        tensile_strength_mpa=Property(cap, how, at_least=True),
        uniform_elongation=none,
        total_uniform_elongation=none,
        elongation_after_fracture=none,
        total_elongation=none,
    )


def _modulus_and_proof(strain: Array, stress: Array) -> tuple[Property, float, Property]:
    """Modulus, the strain at which its line meets zero stress, and Rp0.2; each share of Rp0.2 needs Rp0.2: twice."""
    line = elastic_line(strain, stress)
    if line is None:
        reason = "too few points in the elastic part"
        return Property(None, reason), 0.0, Property(None, reason)
    slope, origin = line.slope, line.origin
    how = "steepest early part, as the record has no Rp0.2"
    for _ in range(3):
        proof = _offset_stress(strain, stress, slope, origin)
        reference = float(stress.max()) if proof is None else proof
        slope, origin, how = _chord(strain, stress, reference, line)
    proof = _offset_stress(strain, stress, slope, origin)
    share = "Rp0.2" if proof is not None else "the largest stress, as the record has no Rp0.2"
    modulus = Property(slope, f"{how} of {share}")
    if proof is None:
        reason = f"the record ends at strain {strain[-1]:.4g}, before 0.2 % plastic strain"
        return modulus, origin, Property(None, reason)
    said = f"0.2 % offset from the line of slope {slope / 1e3:.4g} GPa through strain {origin:.3g}"
    return modulus, origin, Property(proof, said)


def _chord(
    strain: Array, stress: Array, reference: float, line: ElasticLine
) -> tuple[float, float, str]:
    """Slope, origin and their description, between shares of a stress; where few points lie there, of the line."""
    rising = np.arange(len(stress)) <= int(np.argmax(stress >= 0.6 * reference))
    for low, high in _CHORDS:
        held = rising & (stress >= low * reference) & (stress <= high * reference)
        e, s = strain[held], stress[held]
        if len(e) >= _FEWEST_POINTS and np.ptp(s) > 0.5 * (high - low) * reference:
            fitted = float(np.polyfit(e - e.mean(), s, 1)[0])
            if fitted > 0:
                how = (
                    f"least squares through {len(e)} points from {s.min():.3g} to {s.max():.3g} MPa"
                )
                shares = f"{100 * low:.0f} to {100 * high:.0f} %"
                return fitted, float(e.mean() - s.mean() / fitted), f"{how}, {shares}"
    low, high = _CHORDS[0]
    steepest = "few points from 10 to 40 %: least squares over the steepest early part, up to"
    how = f"{steepest} {line.end_stress:.3g} MPa or {100 * line.end_stress / reference:.0f} %"
    if line.slope_error < _SURE_LINE * line.slope and line.end_stress < _ELASTIC * reference:
        return line.slope, line.origin, how
    highest = np.maximum.accumulate(stress)
    bottom, top = max(low * reference, float(stress[0])), high * reference
    ends = np.interp([bottom, top], highest[rising], strain[rising])
    if ends[1] > ends[0] and top > bottom:
        fitted = (top - bottom) / float(ends[1] - ends[0])
        few = "uncertain, as few points lie there: chord between two interpolated points at"
        how = f"{few} {100 * bottom / reference:.0f} and {100 * high:.0f} %"
        return fitted, float(ends[0] - bottom / fitted), how
    return line.slope, line.origin, how


def _offset_stress(strain: Array, stress: Array, slope: float, origin: float) -> float | None:
    """The stress at which the curve meets the line of 0.2 % plastic strain; None where it does not."""
    above = stress - slope * (strain - origin - _OFFSET)
    crossed = np.flatnonzero((above[1:] <= 0) & (above[:-1] > 0))
    if not len(crossed):
        return None
    i = int(crossed[0])
    # In a dense record the noise of single points lets the first crossing come early: a line through its neighbours.
    near = np.abs(strain - strain[i]) < _NEIGHBOURS
    if np.count_nonzero(near) >= _FEWEST_NEIGHBOURS:
        tangent = float(np.polyfit(strain[near] - strain[near].mean(), stress[near], 1)[0])
        ahead = float(np.mean(above[near])) / (slope - tangent)
        return slope * (float(strain[near].mean()) + ahead - origin - _OFFSET)
    share = float(above[i] / (above[i] - above[i + 1]))
    return float(stress[i] + share * (stress[i + 1] - stress[i]))


def _plastic(
    total: float, stress: float, modulus: Property, where: str, at_least: bool = False
) -> Property:
    if modulus.value is None:
        return Property(None, f"without a modulus the plastic part is not known ({modulus.how})")
    return Property(total - stress / modulus.value, f"total less elastic strain {where}", at_least)


def _elongations(
    strain: Array, stress: Array, top: int, origin: float, modulus: Property, goes_on: bool
) -> dict[str, Property]:
    """Elongation at fracture, total and plastic, where the record holds the fracture.

    Args:
      goes_on: the strain was not measured to the end.
    """
    if goes_on:
        none = Property(
            None, f"the strain was measured to {strain[-1]:.4g} only, not to the fracture"
        )
        return {"elongation_after_fracture": none, "total_elongation": none}
    strength = float(stress[top])
    steps = -np.diff(stress[top:])
    if not len(steps) or stress[-1] > _BROKEN * strength:
        none = Property(
            None,
            f"the record ends at strain {strain[-1]:.4g} with {100 * stress[-1] / strength:.0f} % of the maximum load, "
            "without a fracture",
        )
        return {"elongation_after_fracture": none, "total_elongation": none}
    breaks = steps.max() > _BREAK * strength
    last = top + int(steps.argmax()) if breaks else len(strain) - 1
    where = (
        "at the last point before the load breaks down" if breaks else "at the end of the record"
    )
    where += f" ({stress[last]:.3g} MPa), over the gauge length of the strain"
    total = float(strain[last] - origin)
    return {
        "elongation_after_fracture": _plastic(total, float(stress[last]), modulus, where),
        "total_elongation": Property(total, f"total strain {where}"),
    }


def engineering_stress(strain: Array, stress: Array, measures: tuple[str, str]) -> Array:
    """Load over the first cross-section, [points], of a curve in these measures, at constant volume."""
    if measures[1] == "engineering":
        return stress
    return stress / stretch_of(strain, measures[0])


def stretch_of(strain: Array, measure: str) -> Array:
    """Length over first length, [points]; within what is finite, for strains in another unit than they seem to be."""
    if measure == "true":
        return np.exp(np.clip(strain, -LARGEST_TRUE_STRAIN, LARGEST_TRUE_STRAIN))
    return np.maximum(1.0 + strain, _SMALLEST_STRETCH)


def index_of_maximum_load(strain: Array, load: Array, smooth: Array) -> int:
    """The point of maximum load; an upper yield point, from which the load falls to a plateau, is none (ISO 6892-1).

    Args:
      strain, load: [points], in the order in which they were measured; smooth: the load without its noise, [points].
    """
    top = int(load.argmax())
    end = strain[top] + _YIELD_DROP
    later = np.flatnonzero((strain > end) & (np.arange(len(strain)) > top))
    if strain[top] > _LATEST_YIELD or not len(later):
        return int(smooth.argmax())
    plateau = load[later[strain[later] < end + _YIELD_DROP]]
    fall = load[top] - plateau[0] if len(plateau) else 0.0
    drops = _LEAST_YIELD_DROP * load[top] < fall < _DEEPEST_YIELD_DROP * load[top]
    if drops and np.abs(plateau - plateau[0]).max() < 0.25 * fall:
        return int(later[smooth[later].argmax()])
    return int(smooth.argmax())


def running_mean(values: Array) -> Array:
    """Running means over a hundredth of the points, [points]; the ends as they are."""
    half = len(values) // 200
    if not half:
        return values
    smooth = values.copy()
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * half + 1)
    smooth[half : len(values) - half] = windows.mean(axis=1)
    return smooth
