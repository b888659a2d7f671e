"""Is this a test of the kind that the law is for, in the right units? If not, what would explain it."""

import dataclasses
import itertools
import math
import re

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.law import Law
from tfmat.materials.registry import MONOTONIC_LAWS
from tfmat.records.programmes import (
    METAL,
    POSSIBLE,
    SHEAR,
    Compression,
    Creep,
    Cyclic,
    CyclicShear,
    Expectation,
    Programme,
    Relaxation,
    Uniaxial,
    expectation_of,
    sampled_parameters,
    secant_range,
)
from tfmat.records.reading import SHEAR_WORDS, RawCurve, is_stretch
from tfmat.records.record import Caveat, CurveTarget, MeasuredTest, drift_of_middle, half_cycles
from tfmat.records.tables import MINIMUM_POINTS, STRAIN_UNITS, STRESS_UNITS
from tfmat.records.tensile import elastic_line, engineering_stress, noise_of, stretch_of

# --------------------------------------------------------------------------------------------------
# Is this a curve of the kind that the law is for, and in the right units? If not, which unit or law would explain it.
#
# A stress whose unit is assumed is judged by modulus and strength together, and by what else the file says: the soft
# corners of a law hide a factor of seven, corners of the materials do not.


# _FEW_ELASTIC: curves of fewer points to a tenth of the maximum stress may have two or three elastic ones, or none.
# _STEEPER: their first secant over the line; less may be noise.
_FEW_ELASTIC, _STEEPER = 4, 1.1
# _FIRST_AT: share of the maximum stress from which a first secant is no noise.
_FIRST_AT = 0.1
# Without enough points for a line the modulus is the secant to this share of the maximum stress, to so many of it.
_SECANT_AT, _SECANT_ERROR = 0.2, 0.5
# A law's own range is widened by this factor on both sides before a modulus is called absurd; a material's, because
# few points lie in the elastic part and a crosshead gives way, too.
_TOLERANCE = 1.5
# Distances (natural logarithm) of modulus, strength and strain from the material's: another unit must come as near as
# the second, and be nearer by the third; every sign of US units makes the second as much larger.
_NEAR_ENOUGH, _CLEARLY_NEARER, _CHANGED_UNIT = 0.6, 0.3, 0.2
# Strains to which the elastic part is looked for, besides the whole curve.
_EARLY = (0.004, 0.015)
_STRONGEST_GUESS_MPA = 2300.0
# Among metals with such low moduli, tin and lead are weaker, and magnesium and hot aluminium neck earlier: MPa, MPa, -.
_SOFT_MPA, _STRONGER_THAN_TIN_MPA, _DUCTILE = 60e3, 60.0, 0.3
# Concrete under compression: modulus and strength, MPa, and the strain at its maximum, where no metal necks.
_CONCRETE_MODULUS_MPA, _CONCRETE_STRENGTH_MPA, _CONCRETE_PEAK = (10e3, 60e3), 150.0, 0.005
# A ply across its fibres: modulus and largest strength, MPa, strain at its end (11 to 18 GPa, 27 to 48 MPa and 0.2 to
# 0.44 %: P. D. Soden et al., Composites Science and Technology 58 (1998) 1011-1022; tougher ones have more), and the
# share of the straight line's stress that it keeps there.
_PLY_MODULUS_MPA, _PLY_STRENGTH_MPA, _PLY_END, _NEARLY_STRAIGHT = (5e3, 20e3), 150.0, 0.012, 0.8
RUBBER = "rubber"
# An elastomer is told by what no unit changes, and by a modulus of a few MPa.
_RUBBER_STRENGTH_OVER_MODULUS, _RUBBER_STRAIN, _RUBBER_MODULUS_MPA = 0.1, (0.3, 12.0), 20.0


@dataclasses.dataclass(frozen=True)
class _Measured:
    """Modulus (MPa) and its relative error, strength in engineering stress (MPa), strain at the record's end."""

    modulus: float
    error: float
    strength: float
    end: float


def check_magnitude(curve: MeasuredTest, target: CurveTarget, raw: RawCurve) -> str:
    """Adds a caveat where the curve cannot be what the law is for; returns what it says, or '', for an error.

    Args:
      curve: in the law's measures, before it is cut to the trained range.
      target: without a law nothing is checked.
      raw: the same curve as it was read.
    """
    law = target.law
    if law is None or curve.stress_mpa.max() <= 0:
        return ""
    expectation = expectation_of(law)
    if expectation is None:
        return _check_law(curve, law)
    measured = _measure(curve, target, raw)
    return (
        _check_rubber(curve, raw)
        or (measured and _check_kind(curve, raw, measured, expectation))
        or (measured and _check_concrete(curve, measured, expectation))
        or (measured and _check_material(curve, raw, measured, expectation))
        or ""
    )


def _measure(curve: MeasuredTest, target: CurveTarget, raw: RawCurve) -> _Measured | None:
    measures = target.strain_measure or "", target.stress_measure or ""
    load = engineering_stress(curve.strain, curve.stress_mpa, measures)
    if measures == ("true", "true") and "true" not in (raw.strain_measure, raw.stress_measure):
        # As it was measured: strains in percent that were taken for plain ones have no logarithm that says anything.
        strain, stress = stretch_of(curve.strain, "true") - 1.0, load
    else:
        strain, stress = curve.strain, curve.stress_mpa
    # A soft metal yields below the windows that the whole curve's maximum stress makes; its beginning shows more.
    lines = [
        elastic_line(strain[early], stress[early])
        for early in (strain <= end for end in (*_EARLY, math.inf))
        if np.count_nonzero(early) >= MINIMUM_POINTS
    ]
    found = [line for line in lines if line is not None]
    if found:
        line = max(found, key=lambda line: line.slope - 2 * line.slope_error)
        modulus, error = line.slope, line.slope_error / line.slope
    else:
        loaded = int(np.flatnonzero(stress >= _SECANT_AT * stress.max())[0])
        if strain[loaded] <= 0 or stress[loaded] <= 0:
            return None
        modulus, error = float(stress[loaded] / strain[loaded]), _SECANT_ERROR
    # Windows and secants of few points reach beyond the elastic part, and are lower bounds of the modulus.
    first = int(np.flatnonzero(stress >= _FIRST_AT * stress.max())[0])
    if first < _FEW_ELASTIC and strain[first] > 0:
        secant = float(stress[first] / strain[first])
        is_alone = not found and stress[first] >= _SECANT_AT * stress.max()
        if is_alone or secant > _STEEPER * modulus:
            # A lower bound says nothing against a unit that the file names.
            if not any(assumed.startswith("stress in") for assumed in raw.assumed):
                return None
            modulus, error = secant, _SECANT_ERROR
    strength, end = float(load.max()), float(np.abs(raw.strain).max())
    if not all(0 < value < math.inf for value in (modulus, strength, end)):
        return None
    return _Measured(modulus, min(error, 1.0), strength, end)


def is_rubber(raw: RawCurve) -> bool:
    """Whether a curve is rubber's or another elastomer's."""
    return _rubber_modulus(raw) is not None


def _rubber_modulus(raw: RawCurve) -> float | None:
    """The secant modulus at the start, MPa; None where the curve is of no elastomer."""
    strength, end = float(np.max(raw.stress_mpa)), float(np.max(raw.strain))
    loaded = np.flatnonzero((raw.stress_mpa >= _SECANT_AT * strength) & (raw.strain > 0))
    low, high = _RUBBER_STRAIN
    if not len(loaded) or not low < end < high:
        return None
    modulus = float(raw.stress_mpa[loaded[0]] / raw.strain[loaded[0]])
    if modulus > _RUBBER_MODULUS_MPA or strength < _RUBBER_STRENGTH_OVER_MODULUS * modulus:
        return None
    return modulus


def _check_rubber(curve: MeasuredTest, raw: RawCurve) -> str:
    modulus = _rubber_modulus(raw)
    if modulus is None:
        return ""
    strength, end = float(np.max(raw.stress_mpa)), float(np.max(raw.strain))
    text = (
        f"it is rubber or another elastomer: {_stress(strength)} at strain {end:.3g}, with a modulus of "
        f"{_stress(modulus)} at the start"
    )
    advice = "choose a law of rubber, e.g. --law=ogden uniaxial=FILE"
    curve.warnings.append(Caveat(RUBBER, text, advice, blocks=True))
    return f"{text}; {advice}"


# _ALONG_THE_LOAD: words of a strain or stress that is no shear; _AT_45: of one of two gauges across each other.
_ALONG_THE_LOAD = re.compile(
    r"(?<![a-z])(axial|longitudinal|tensile|tension)|zugspannung", re.IGNORECASE
)
_AT_45 = re.compile(r"(?<![\w/\[])[+−-] ?45(?![\d/])")


def _no_shear(raw: RawCurve) -> Caveat | None:
    """The caveat of a column that is no shear, by its name, under a law of shear."""
    pulled = raw.laminate_in_head and not raw.is_shear
    for name in raw.columns:
        of_one = name == raw.columns[0] and _AT_45.search(name)
        if SHEAR_WORDS.search(name) or not (of_one or pulled or _ALONG_THE_LOAD.search(name)):
            continue
        said = "of one gauge" if of_one else "along the load"
        advice = (
            "the shear strain is the strain at +45° less the strain at -45° (ASTM D5379): add this column"
            if of_one
            else "of a laminate of ±45° under tension (ASTM D3518) the shear stress is half of the axial one, and the "
            "shear strain the axial less the transverse strain: add these columns"
        )
        text = f"column '{name}' is {said}, and the law is for shear"
        return Caveat("a law of shear for a tension test", text, advice, blocks=True)
    return None


def _check_kind(
    curve: MeasuredTest, raw: RawCurve, measured: _Measured, expectation: Expectation
) -> str:
    """A tension test under a law of shear, or the other way round, where its columns or modulus say so."""
    caveat = _no_shear(raw) if expectation is SHEAR else None
    if caveat is not None:
        curve.warnings.append(caveat)
        return f"{caveat.text}; {caveat.advice}"
    if expectation is METAL and raw.is_shear:
        text = "its columns are a shear strain and stress, and the law is for tension"
        other = SHEAR
    elif expectation is SHEAR and not raw.is_shear and (raw.strain_measure or raw.stress_measure):
        text = "its columns are those of a tension test, and the law is for shear"
        other = METAL
    elif expectation is SHEAR and _is_metal(measured):
        modulus, strength = _stress(measured.modulus), _stress(measured.strength)
        text = f"its modulus of {modulus} and strength of {strength} are a metal's, and the law is for shear"
        other = METAL
    else:
        return ""
    kind = "a law of shear for a tension test" if other is METAL else "a law of tension for shear"
    advice = _choose(other)
    curve.warnings.append(Caveat(kind, text, advice, blocks=True))
    return f"{text}; {advice}"


def _check_concrete(curve: MeasuredTest, measured: _Measured, expectation: Expectation) -> str:
    """Compression of concrete in positive numbers: the load falls from a strain at which no metal necks."""
    low, high = _CONCRETE_MODULUS_MPA
    falls_early = curve.strain[-1] < _CONCRETE_PEAK and measured.end > 1.05 * curve.strain[-1]
    is_concrete = low < measured.modulus < high and measured.strength < _CONCRETE_STRENGTH_MPA
    if expectation is not METAL or not falls_early or not is_concrete:
        return ""
    text = (
        f"its load falls from {_stress(measured.strength)} at strain {curve.strain[-1]:.2g} on, with a modulus of "
        f"{_stress(measured.modulus)}: as concrete under compression, and no metal in tension"
    )
    advice = "if it is concrete, call the column compressive strain, or say --law=hognestad; else is a unit wrong?"
    curve.warnings.append(Caveat("concrete?", text, advice, blocks=True))
    return f"{text}; {advice}"


def _choose(expectation: Expectation) -> str:
    names = [name for name, kind in MONOTONIC_LAWS.items() if expectation_of(kind()) is expectation]
    what = "metals in tension" if expectation is METAL else "shear"
    return f"choose a law for {what}: --law={', '.join(names[:-1])} or {names[-1]}"


def _is_metal(measured: _Measured) -> bool:
    far = SHEAR.distance(measured.modulus, measured.strength, measured.end)
    near = METAL.distance(measured.modulus, measured.strength, measured.end)
    return measured.strength > 20 and measured.end < METAL.strain[1] and near < far


def _check_material(
    curve: MeasuredTest, raw: RawCurve, measured: _Measured, expectation: Expectation
) -> str:
    """Units that make it a curve of its material where it is none, or where the file speaks for them."""
    now = expectation.distance(measured.modulus, measured.strength, measured.end)
    stress_unit, strain_unit, best = _nearest_reading(measured, expectation, raw)
    hints = raw.us_unit_hints
    is_sure = {"strain", "stress"} <= raw.sure_units
    in_ksi = _in_units(measured, "ksi", "-")
    ksi_distance = _distance_in(in_ksi, expectation)
    speaks_for_ksi = hints and ksi_distance < min(_NEAR_ENOUGH * len(hints), best + 0.01)
    may_be_ksi = "stress" not in raw.sure_units
    if speaks_for_ksi or (
        may_be_ksi and _is_too_ductile(curve, measured) and ksi_distance < _NEAR_ENOUGH
    ):
        stress_unit, strain_unit, is_doubtful = "ksi", "-", True
    else:
        is_doubtful = now > math.log(_TOLERANCE) and best < min(_NEAR_ENOUGH, now - _CLEARLY_NEARER)
    read = f"{_stress(measured.modulus)} and its maximum stress of {_stress(measured.strength)}"
    usual = " to ".join(_stress(value) for value in expectation.modulus_mpa)
    is_soft = SHEAR.distance(measured.modulus, measured.strength, measured.end) == 0 and not hints
    is_ksi = is_doubtful and (stress_unit, strain_unit) == ("ksi", "-")
    if expectation is METAL and not hints and _is_brittle_ply(curve, measured):
        text = (
            f"its modulus is {read}, and it ends nearly straight at strain {curve.strain[-1]:.2g}, as a ply across its "
            "fibres or a filled plastic does, and far below a metal's"
        )
        advice = (
            "modulus and strength tell all of such a material, and no law of metals is for it"
            f"{'; or is its unit ksi or kgf/mm2 (--stress_unit)?' if may_be_ksi else ''}"
        )
        curve.warnings.append(Caveat("no metal", text, advice, blocks=True))
        return f"{text}; {advice}"
    if expectation is METAL and is_soft and not (is_ksi and best < _CLEARLY_NEARER):
        text = (
            f"its modulus is {read}, as usual for {SHEAR.name} or a polymer and far below a metal's"
        )
        unit = ", or its unit ksi or kgf/mm2 (--stress_unit)" if may_be_ksi else ""
        advice = f"{_choose(SHEAR)}; or is its strain the crosshead's{unit}?"
        # Where units and strain are in no doubt, it is another material, and its modulus is what it is.
        blocks = not is_sure or raw.machine_travel
        curve.warnings.append(Caveat("no metal", text, advice, blocks=blocks))
        return f"{text}; {advice}"
    if is_doubtful:
        modulus, strength, end = _in_units(measured, stress_unit, strain_unit)
        units = [unit for unit in (stress_unit, strain_unit) if unit not in ("MPa", "-")]
        text = (
            f"as read, its modulus is {read}"
            f"{f' at strain {measured.end:.3g}' if strain_unit != '-' else ''}; in {' and '.join(units)} they are "
            f"{_stress(modulus)} and {_stress(strength)}{f' at strain {end:.3g}' if strain_unit != '-' else ''}, as "
            f"usual for {expectation.name}{''.join(f'; {hint}' for hint in hints)}"
        )
        flags = [f"--stress_unit={stress_unit}"] if stress_unit != "MPa" else []
        flags += [f"--strain_unit={strain_unit}"] if strain_unit != "-" else []
        advice = f"is its unit {' and '.join(units)}? Then say {' '.join(flags)}"
        in_kgf = _in_units(measured, "kgf/mm2", "-")
        if is_ksi and not hints and _distance_in(in_kgf, expectation) < _NEAR_ENOUGH:
            text += f"; in kgf/mm2 {_stress(in_kgf[0])} and {_stress(in_kgf[1])}"
            advice += ", or --stress_unit=kgf/mm2"
        if stress_unit != "MPa" and "stress in MPa" in curve.assumed:
            advice += "; if it is MPa, say --stress_unit=MPa"
        kind = f"{'stress' if stress_unit != 'MPa' else 'strain'} in {' and '.join(units)}?"
        curve.warnings.append(Caveat(kind, text, advice, blocks=True))
        return f"{text}; {advice}"
    if hints:
        text = f"its stress has no unit and was taken as MPa, but {' and '.join(hints)}"
        curve.warnings.append(Caveat("unit of the stress assumed", text, "say --stress_unit"))
    if now <= math.log(_TOLERANCE) + 2 * measured.error:
        return ""
    text = f"its modulus is {read}, unlike {expectation.name} ({usual})"
    strength_is_usual = _is_within(measured.strength, expectation.strength_mpa, 1.0)
    crosshead = strength_is_usual and measured.modulus < expectation.modulus_mpa[0]
    # A machine that gives way takes a factor of two; with more, the curve is the machine's rather than the material's.
    is_absurd = not strength_is_usual or not _is_within(
        measured.modulus, expectation.modulus_mpa, POSSIBLE * (1 + 2 * measured.error)
    )
    advice = (
        "is the strain the crosshead's, which holds the machine's own? Then the modulus is not the material's; or a "
        "unit is wrong, or the law is not for this material"
        if crosshead
        else "a unit is wrong, or the law is not for this material"
    )
    curve.warnings.append(Caveat("implausible modulus", text, advice, blocks=is_absurd))
    return text


def _is_brittle_ply(curve: MeasuredTest, measured: _Measured) -> bool:
    """Whether a curve is nearly straight to its early end, with the modulus and strength of a ply across its fibres."""
    low, high = _PLY_MODULUS_MPA
    end = float(curve.strain[-1])
    is_straight = measured.strength > _NEARLY_STRAIGHT * measured.modulus * end
    is_weak = measured.strength < _PLY_STRENGTH_MPA and end < _PLY_END
    return low < measured.modulus < high and is_weak and is_straight


def _is_too_ductile(curve: MeasuredTest, measured: _Measured) -> bool:
    """Whether a modulus of magnesium or tin comes with an elongation and a strength that neither has."""
    soft = measured.modulus < _SOFT_MPA and measured.strength > _STRONGER_THAN_TIN_MPA
    return "stress in MPa" in curve.assumed and soft and curve.strain[-1] > _DUCTILE


def _is_within(value: float, limits: tuple[float, float], factor: float) -> bool:
    return limits[0] / factor <= value <= limits[1] * factor


def _nearest_reading(
    measured: _Measured, expectation: Expectation, raw: RawCurve
) -> tuple[str, str, float]:
    """The units of stress and strain, not both as read, that bring the curve nearest, and its distance then.

    A unit that is in no doubt stays.
    """
    best = "MPa", "-", math.inf
    others = ("GPa", "ksi", "psi", "kPa", "Pa") if "stress" not in raw.sure_units else ()
    strains = ("%", "microstrain") if "strain" not in raw.sure_units else ()
    for stress, strain in itertools.product(("MPa", *others), ("-", *strains)):
        changes = (stress != "MPa") + (strain != "-")
        distance = _distance_in(_in_units(measured, stress, strain), expectation)
        distance += _CHANGED_UNIT * (changes - 1)
        if changes and distance < best[2]:
            best = stress, strain, distance
    return best


def _distance_in(reading: tuple[float, float, float], expectation: Expectation) -> float:
    """How far a reading in other units is from the material; none that makes the rarest of steels of it is guessed."""
    return math.inf if reading[1] > _STRONGEST_GUESS_MPA else expectation.distance(*reading)


def _in_units(measured: _Measured, stress: str, strain: str) -> tuple[float, float, float]:
    """Modulus, strength (MPa) and end of a curve whose numbers are in these units."""
    factor, strain_factor = STRESS_UNITS[stress], STRAIN_UNITS[strain]
    return (
        measured.modulus * factor / strain_factor,
        measured.strength * factor,
        measured.end * strain_factor,
    )


def _check_law(curve: MeasuredTest, law: Law) -> str:
    """A modulus that no curve of the law has, for laws of whose material nothing is known."""
    loaded = np.flatnonzero(curve.stress_mpa >= _SECANT_AT * curve.stress_mpa.max())
    strain = float(curve.strain[loaded[0]])
    if strain <= 0:
        return ""
    secant = float(curve.stress_mpa[loaded[0]]) / strain
    low, high = secant_range(law, np.array([strain]))
    if low / _TOLERANCE <= secant <= high * _TOLERANCE:
        return ""
    relation = "below" if secant < low else "above"
    text = (
        f"its initial modulus is {_stress(secant)}, far {relation} the {_stress(low)} to {_stress(high)} of law "
        f"{law.name}'s curves"
    )
    advice = "a unit is wrong, or the law is not for this material"
    curve.warnings.append(Caveat("implausible modulus", text, advice, blocks=True))
    return text


def _stress(value: float) -> str:
    return f"{value / 1e3:.3g} GPa" if value >= 1e3 else f"{value:.3g} MPa"


# --------------------------------------------------------------------------------------------------
# Evidence against a measured test: another kind of test, a stretch for a strain, another unit, a drift.


# Larger strains are none in plain numbers: of metals and plies, and of rubber.
_LARGEST_STRAIN, _LARGEST_STRETCH = 0.6, 20.0
# A stiffness outside of the law's by this factor is one of another unit or material; it is taken where the stress first
# reaches the share.
_STIFFNESS, _SHARE = 2.0, 0.2
_DRIFT = 0.03
# _GROWS: share of the largest stress by which the stress grows between two cycles that do not follow each other.
_GROWS = 0.04
# _OVER_NOISE: and by so many times the noise.
_OVER_NOISE = 6.0
# _STEP: share of the range of strain; shorter steps tell no stiffness.
_STEP = 0.005
# _FEW_TURNS: steps over half of the range; a record with more holds turns without points between them.
_FEW_TURNS = 3
# _AT_REST: share of the range of strain; a strain that moves less from row to row is held, over so many steps.
_AT_REST, _FEWEST_AT_REST = 1e-3, 4
# _FALLS: share of the largest stress by which it falls in a hold, at the least.
_FALLS = 0.03
# _STILL: share of the range; a strain that moves less between two rows stands still.
_STILL = 0.1
# _WHOLE: share of a cycle's time; a longer step of the time may hold cycles that the file leaves out.
_WHOLE = 0.9
NO_UNLOADING = "no unloading"


def stretch_to_strain(raw: RawCurve, law: Law) -> RawCurve:
    """The same test with stretch - 1 where its strain is a stretch; told, or refused where a unit says otherwise."""
    if law.strain_measure != "engineering" or len(raw.strain) == 0:
        return raw
    if raw.strain.min() <= -1.0:
        raise InputError(
            f"its strain goes down to {raw.strain.min():.3g}, and -1 is a length of nothing; a stretch is 1 at rest: "
            "is it a strain (--strain_unit=-), or are the columns exchanged?"
        )
    if not is_stretch(raw.strain, raw.stress_mpa):
        return raw
    at_rest = raw.strain[np.abs(raw.stress_mpa).argmin()]
    text = f"its strain is {at_rest:.3g} with hardly any stress, as a stretch is"
    if "strain" in raw.sure_units:
        return raw
    if not _is_assumed(raw):
        raise InputError(f"{text}; if it is one, say --strain_unit=stretch")
    assumed = tuple(a for a in raw.assumed if a != "strain in mm/mm")
    return dataclasses.replace(
        raw,
        strain=raw.strain - 1.0,
        steps=(*raw.steps, f"{text}: took 1 off (--strain_unit=- leaves it)"),
        assumed=(*assumed, "stretch and not strain"),
    )


def _is_assumed(raw: RawCurve, what: str = "strain in mm/mm") -> bool:
    return what in raw.assumed


def check_test(test: MeasuredTest, raw: RawCurve, law: Law) -> None:
    """Adds caveats to a test; raises InputError for one of another kind than it is said to be."""
    if (
        "strain" in raw.sure_units
        and law.strain_measure == "engineering"
        and is_stretch(raw.strain, raw.stress_mpa)
    ):
        text = (
            "its strain is about 1 with hardly any stress, as a stretch is, and was taken as given"
        )
        _warn(test, Caveat("stretch?", text, "if it is a stretch, say --strain_unit=stretch"))
    _check_size(test, raw, law)
    if law.strain_measure == "engineering shear" and (caveat := _no_shear(raw)) is not None:
        _warn(test, caveat)
    _check_direction(test, law)
    if isinstance(test.programme, Cyclic | CyclicShear):
        _check_cycles(test)
        if raw.missing_cycles:
            text = (
                f"the file leaves out cycles ({raw.missing_cycles}), and its rows were taken as if they followed each "
                "other: hardening over the cycles is wrong"
            )
            _warn(test, Caveat("cycles missing", text, "export every cycle up to the last", True))
        elif test.turns and (row := _jump_at_rest(test.strain, test.stress_mpa)) is not None:
            before, after = test.stress_mpa[row : row + 2]
            text = (
                f"its stress jumps from {before:.4g} to {after:.4g} MPa at strain {test.strain[row]:.3g}, which stands "
                "still: rows or cycles are missing there, and what was taken for hardening is not"
            )
            _warn(test, Caveat("cycles missing", text, "export every cycle up to the last", True))
        elif raw.time is not None and (gap := _longest_pause(test, raw.time)):
            text = (
                f"its strain stands still for {gap[0]:.4g} s between two rows, the time of {gap[1]:.3g} cycles: they "
                "are missing there if the machine went on, and hardening over the cycles is wrong"
            )
            _warn(test, Caveat("cycles missing?", text, "export every cycle up to the last"))
    if "time" not in test.programme.channels and (
        fall := _fall_at_rest(test.strain, test.stress_mpa)
    ):
        text = (
            f"its stress falls by up to {100 * fall:.2g} % of the largest while the strain is held: it depends on the "
            "time, and the law does not"
        )
        advice = (
            "without the holds the law has the stress of a fast test; the last rows of each hold alone have that of a "
            "slow one"
        )
        _warn(test, Caveat("stress relaxes in holds", text, advice))
    mode, said = raw.mode_in_head
    if isinstance(test.programme, Uniaxial) and mode not in ("", test.programme.mode):
        text = f"it says '{said}', and was taken as a test {test.programme.name}"
        _warn(test, Caveat("another mode?", text, "say which test it is, such as planar=FILE"))
    if isinstance(test.programme, Relaxation | Creep):
        _check_hold(test)
    largest = float(np.abs(raw.stress_mpa).max())
    if (
        isinstance(test.programme, Relaxation)
        and largest in (1.0, 100.0)
        and _is_assumed(raw, "stress in MPa")
    ):
        text = f"its largest stress is {largest:g} exactly, as of a stress over its first value"
        advice = "multiply it by the stress at the start; if it is in MPa, say --stress_unit=MPa"
        _warn(test, Caveat("normalized stress?", text, advice, blocks=True))
    _check_stiffness(test, law)
    if raw.us_unit_hints:
        text = f"its stress has no unit and was taken as MPa, but {' and '.join(raw.us_unit_hints)}"
        _warn(test, Caveat("unit of the stress assumed", text, "say --stress_unit"))


def _warn(test: MeasuredTest, caveat: Caveat) -> None:
    if all(caveat.kind != other.kind for other in test.warnings):
        test.warnings.append(caveat)


def _check_size(test: MeasuredTest, raw: RawCurve, law: Law) -> None:
    largest = float(np.abs(test.strain).max())
    limit = _LARGEST_STRETCH if law.strain_measure == "engineering" else _LARGEST_STRAIN
    if largest > limit and _is_assumed(raw):
        raise InputError(
            f"its strain goes to {float(np.abs(raw.strain).max()):.3g}; if it is in percent, say --strain_unit=%"
        )


def _check_direction(test: MeasuredTest, law: Law) -> None:
    """Compression under the name of tension, and the other way round."""
    programme, strain = test.programme, test.strain
    low, high = float(strain.min()), float(strain.max())
    if isinstance(programme, Compression):
        if high > -low:
            raise InputError(
                f"its strain goes to {high:.3g}, which is tension, and it is called compression; say uniaxial=FILE, or "
                "give compression with negative strain and stress"
            )
    elif isinstance(programme, Uniaxial) and low < -0.02 * (high - low):
        if -low > high:
            advice = "say compression=FILE" if programme.name == "uniaxial" else "give tension"
            raise InputError(
                f"its strain goes to {low:.3g}, which is compression, and it is called {programme.name}; {advice}"
            )
        test.steps.append(f"holds compression too, to strain {low:.3g}")
    elif _drives_one_loading(programme) and -low > high:
        raise InputError(
            f"its strain goes to {low:.3g}, which is compression, and a test {programme.name} is tension; give "
            "compression with positive numbers"
        )


def _drives_one_loading(programme: Programme) -> bool:
    return programme.drives == "strain" and "cycles" not in {s.name for s in programme.settings}


def _check_cycles(test: MeasuredTest) -> None:
    turns = test.turns
    moved = np.abs(np.diff(test.strain)) > 0.5 * np.ptp(test.strain)
    if not turns and np.count_nonzero(moved) > _FEW_TURNS:
        _warn(
            test,
            Caveat(
                NO_UNLOADING,
                "its rows are the turns of its cycles alone, and a law follows the way between them",
                "export the points of every cycle",
                blocks=True,
            ),
        )
        return
    if not turns:
        what = (
            "isotropic hardening and backstresses"
            if test.programme.mode != "shear"
            else "damage and permanent strain"
        )
        _warn(
            test,
            Caveat(
                NO_UNLOADING,
                f"its strain never turns: it is one loading to {test.strain[-1]:.3g}, which cannot tell {what} apart",
                f"measure {test.programme.title}; for one loading choose a law of one loading, e.g. --law="
                f"{'hahn_tsai' if test.programme.mode == 'shear' else 'voce'}",
                blocks=True,
            ),
        )
        return
    number = half_cycles(turns)
    ends = test.strain[turns]
    test.steps.append(
        f"{number} half cycles: the strain turns {len(turns)} times, between {ends.min():.4g} and {ends.max():.4g}"
    )
    drift, amplitude = drift_of_middle(test.strain, turns)
    if abs(drift) > _DRIFT * amplitude > 0:
        _warn(
            test,
            Caveat(
                "drift",
                f"the middle of its cycles moves by strain {drift:.2g} from the first to the last, "
                f"{100 * abs(drift) / amplitude:.0f} % of the amplitude",
                "an extensometer that slips or drifts does that; the strain was left as it is",
            ),
        )


def _jump_at_rest(strain: np.ndarray, stress: np.ndarray) -> int | None:
    """The first point at which the stress [points] grows in one step while the strain stands still; or None."""
    moved, grown = np.abs(np.diff(strain)), np.diff(np.abs(stress))
    far = moved > _STEP * np.ptp(strain)
    if not far.any():
        return None
    stiffest = float((np.abs(np.diff(stress))[far] / moved[far]).max())
    least = max(_GROWS * float(np.abs(stress).max()), _OVER_NOISE * noise_of(stress))
    # Twice the elastic stress of the step: a first step of a loading is none.
    found = (grown > least) & (grown > 2.0 * stiffest * moved) & (stress[1:] * stress[:-1] > 0.0)
    return int(found.argmax()) if found.any() else None


def _fall_at_rest(strain: np.ndarray, stress: np.ndarray) -> float:
    """The largest fall of the stress [points] at a strain that stands still, over the largest stress; 0 if small."""
    steps, size = np.abs(np.diff(strain)), np.abs(stress)
    still = np.concatenate([[False], steps < _AT_REST * np.ptp(strain), [False]])
    edges = np.flatnonzero(np.diff(still.astype(int)))
    runs = [
        (a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= _FEWEST_AT_REST
    ]
    far = steps > _STEP * np.ptp(strain)
    if not runs or not far.any():
        return 0.0
    stiffest = float((np.abs(np.diff(stress))[far] / steps[far]).max())
    # Beyond what an elastic specimen loses by the strain's own change.
    falls = [size[a] - size[b] - 2.0 * stiffest * np.ptp(strain[a : b + 1]) for a, b in runs]
    fall = max(falls)
    least = max(_FALLS * float(size.max()), _OVER_NOISE * noise_of(stress))
    return fall / float(size.max()) if fall > least else 0.0


def _longest_pause(test: MeasuredTest, time: np.ndarray) -> tuple[float, float] | None:
    """The longest step of the time [points] at a strain that stands still, s and in cycles, of one at the least."""
    if len(time) != len(test.strain) or len(test.turns) < _FEW_TURNS:
        return None
    # Where single cycles are logged, every other half of one holds a gap.
    cycle = 2.0 * float(np.quantile(np.diff(time[test.turns]), 0.25))
    still = np.abs(np.diff(test.strain)) < _STILL * np.ptp(test.strain)
    longest = float(np.max(np.diff(time), where=still, initial=0.0))
    return (longest, longest / cycle) if longest > _WHOLE * cycle > 0.0 else None


def _check_hold(test: MeasuredTest) -> None:
    settings = test.settings
    if settings.get("hold", 0.0) <= 0 or np.ptp(test.response) == 0:
        raise InputError(
            f"its {test.programme.drives} is nowhere held, and its test is called {test.programme.name}; is it the "
            "right test, and the right column?"
        )


def _check_stiffness(test: MeasuredTest, law: Law) -> None:
    """A stiffness at the start that the law has nowhere in its ranges."""
    if test.programme.drives != "strain":
        return
    strain, stress = test.strain, test.stress_mpa
    away = np.abs(stress) >= _SHARE * np.abs(stress).max()
    at = int((away & (strain != 0)).argmax())
    if strain[at] == 0 or stress[at] == 0:
        return
    measured = float(stress[at] / strain[at])
    history = test.history.changed(lambda array: array[:, : at + 1])
    try:
        with np.errstate(all="ignore"):
            answers = law.respond(history, sampled_parameters(law))[:, -1] / strain[at]
    except InputError:
        return
    answers = answers[np.isfinite(answers)]
    low, high = float(answers.min()), float(answers.max())
    if measured > 0 and low / _STIFFNESS <= measured <= high * _STIFFNESS:
        return
    relation = "below" if measured < low else "above"
    _warn(
        test,
        Caveat(
            "implausible stiffness",
            f"its first stress over strain is {measured:.3g} MPa, far {relation} the {low:.3g} to {high:.3g} MPa of "
            f"law {law.name}",
            "a unit is wrong (--strain_unit, --stress_unit), or the law is not for this material",
            blocks=True,
        ),
    )
