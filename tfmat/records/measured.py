"""A test as it was read, made into what a law is identified from: cleaned, converted, cut. Every step in words."""

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array, Law
from tfmat.records.cleaning import (
    Caveat,
    CleaningOptions,
    MeasuredCurve,
    check_numbers,
    check_rises,
    correct_start,
    cut_after_failure,
    cut_at_maximum_load,
    cut_to_window,
    is_negative,
    keep,
    make_strain_rise,
    rate_of,
    take_first_loading,
    temperature_of,
    turn_negative,
    turns_of,
)
from tfmat.records.faults import (
    end_of_measured_strain,
    rows_of,
    start_of_capped_load,
    without_wild_cells,
)
from tfmat.records.plausibility import RUBBER, check_magnitude, check_test, stretch_to_strain
from tfmat.records.programmes import Creep, Programme, RateAndTemperature, Relaxation, Uniaxial
from tfmat.records.reading import RawCurve
from tfmat.records.record import MOST_POINTS, MeasuredTest, without_excess
from tfmat.records.resampling import CurveTarget
from tfmat.records.tables import MINIMUM_POINTS
from tfmat.records.tensile import (
    LARGEST_TRUE_STRAIN,
    TensileProperties,
    engineering_stress,
    running_mean,
    stretch_of,
    tensile_properties,
    with_capped_load,
)
from tfmat.records.toe import StrainError, noise_of

# --------------------------------------------------------------------------------------------------
# A measured curve made into what a law and its network expect: cleaned, converted, on the law's own points.
#
# Every step is recorded in words. Nothing is smoothed but by averaging points that share a grid cell or a noisy
# strain.


# A curve may leave the trained strains behind after a few points: it is answered for, with warnings.
FEWEST_IN_RANGE = 4
# _CLEAR_FALL: share of the maximum load; a load that has fallen by less may still rise.
_CLEAR_FALL = 0.02
# _LARGEST_STRAIN: in rows without a measured strain, a larger number stands for none.
_LARGEST_STRAIN = 2.0
# _BEARS: share of the largest stress; rows that bear less come after a fracture.
_BEARS = 0.5
# _REST: share of the largest value; a strain and a stress below it are those before a test.
_REST = 0.02
# _NOISE_TIMES: standard deviations of the noise of the strain; what rises by less falls to the eye.
_NOISE_TIMES = 6.0


def wanted_measures(target: CurveTarget) -> dict[str, str | None]:
    """Axis -> measure of the columns that the law is identified from; a law of shear takes the engineering ones."""
    shear = target.strain_measure == "engineering shear"
    return {
        "strain": "engineering" if shear else target.strain_measure,
        "stress": "engineering" if shear else target.stress_measure,
    }


def clean(
    raw: RawCurve, target: CurveTarget, options: CleaningOptions | None = None
) -> MeasuredCurve:
    """Cleans a curve as it was measured; raises InputError for what cannot be a curve."""
    options = options or CleaningOptions()
    raw = _within_numbers(raw)
    shear = target.strain_measure == "engineering shear"
    tension = not (shear or (target.law is not None and target.law.compression))
    raw, compressed = _turned(raw) if tension else (raw, False)
    tension = tension and not compressed
    raw = _from_rest(raw)
    beyond: Array = np.empty(0)
    unmeasured: Caveat | None = None
    capped: Caveat | None = None
    if target.strain_measure is not None:
        raw = without_wild_cells(raw)
        raw, beyond, unmeasured = _measured_part(raw)
        raw, beyond, capped = _below_the_cap(raw, beyond)
    curve = MeasuredCurve.of(raw)
    if target.strain_measure is not None:
        curve.strain_error = StrainError.of_rounding(raw.strain)
    curve.warnings.extend(caveat for caveat in (unmeasured, capped) if caveat is not None)
    if not tension and len(curve.strain):
        turn_negative(curve)
    check_rises(curve)
    measures = measures_of(raw)
    low, high = options.bounds()
    if target.strain_measure is not None:
        take_first_loading(curve, high, shear)
    if target.strain_measure is not None and tension and not raw.is_shear:
        curve.tensile = _tensile(curve, beyond, measures, options)
        if curve.tensile is not None and capped is not None:
            curve.tensile = with_capped_load(curve.tensile, float(beyond[0]))
    if options.cut_after_failure and target.strain_measure is not None:
        if shear:
            cut_after_failure(curve)
        elif tension and not (
            capped or (unmeasured and _load_rises_beyond(curve, beyond, measures))
        ):
            cut_at_maximum_load(curve, measures)
    make_strain_rise(curve, options.envelope)
    correct_start(curve, options.toe == "auto")
    if shear:
        to_engineering_shear(curve, raw)
    elif target.strain_measure is not None:
        to_measures_of_the_law(curve, raw, measures, target, compressed)
    if tension and raw.compression_in_head:
        curve.warnings.append(
            Caveat(
                "compression?",
                f"it says '{raw.compression_in_head}', and its positive strain and stress were taken for tension",
                "if they are compression, call the columns so (Compressive strain) or give negative numbers",
            )
        )
    if raw.machine_travel and target.strain_measure is not None:
        curve.warnings.append(strain_of_the_machine(raw))
    doubt = check_magnitude(curve, target, raw) if len(curve.strain) else ""
    if any(caveat.kind == RUBBER for caveat in curve.warnings):
        curve.tensile = None
    cut_to_window(curve, low, high)
    _cut_to_trained_stress(curve, target, doubt)
    _cut_to_trained_range(curve, target, doubt)
    curve.steps.append(
        f"put it on {target.num_points} points: means where measured points are dense, lines between"
    )
    return curve


def _within_numbers(raw: RawCurve) -> RawCurve:
    curve = MeasuredCurve.of(raw)
    check_numbers(curve)
    return dataclasses.replace(raw, strain=curve.strain, stress_mpa=curve.stress_mpa)


def _measured_part(raw: RawCurve) -> tuple[RawCurve, Array, Caveat | None]:
    """The rows whose strain was measured, the engineering stress of the others, and what to say of them."""
    found = end_of_measured_strain(raw.strain, raw.stress_mpa)
    if found is None:
        return raw, np.empty(0), None
    rows, total = found.rows, len(raw.strain)
    beyond = raw.stress_mpa[rows:]
    said = f"{found.why}, from point {rows + 1} of {total} on"
    if rows < MINIMUM_POINTS:
        raise InputError(
            f"{said}: {rows} points have a strain, and a curve needs at least {MINIMUM_POINTS}"
        )
    measured = rows_of(raw, np.arange(total) < rows)
    largest = float(np.abs(measured.stress_mpa).max())
    step = f"left out the rows without a measured strain: {said} ({total - rows} points dropped)"
    measured = dataclasses.replace(measured, steps=(*raw.steps, step))
    if np.abs(beyond).max() < _BEARS * largest:
        return measured, np.empty(0), None
    stress, strain, measures = np.abs(beyond), raw.strain[rows:], measures_of(raw)
    if measures[1] == "true":
        # A number that stands for no strain gives no engineering stress.
        with np.errstate(invalid="ignore"):
            known = (strain > -0.5) & (strain < _LARGEST_STRAIN)
        stress = np.where(known, engineering_stress(strain, stress, measures), np.nan)
    if found.is_harmless:
        return measured, stress, None
    caveat = Caveat(
        "strain not measured to the end",
        f"{said} ({measured.stress_mpa[-1]:.4g} to {beyond[np.abs(beyond).argmax()]:.4g} MPa); the parameters come "
        f"from the points before, to strain {np.nanmax(np.abs(measured.strain)):.3g}",
        "they say nothing of larger strains",
    )
    return measured, stress, caveat


def _below_the_cap(raw: RawCurve, beyond: Array) -> tuple[RawCurve, Array, Caveat | None]:
    """The rows before the load stays at a limit, the load of the others, and what to say of them.

    Args:
      beyond: engineering stress of the rows behind the measured strain, MPa.

    Returns:
      The same where the load does not; else `beyond` is the limit alone.
    """
    load = np.abs(engineering_stress(raw.strain, raw.stress_mpa, measures_of(raw)))
    start = start_of_capped_load(raw.strain, load)
    if start is None:
        known = np.concatenate([load, beyond[np.isfinite(beyond)]])
        later = (
            start_of_capped_load(np.arange(len(known), dtype=float), known) if len(beyond) else None
        )
        if later is None or later <= len(load):
            return raw, beyond, None
        start, load = len(load), known
    cap, total = float(load.max()), len(raw.strain)
    said = f"the load stays at {cap:.5g} MPa over the first area, to the last digit"
    if start < total:
        said += (
            f", from strain {abs(float(raw.strain[start])):.3g} on (point {start + 1} of {total})"
        )
    said += ": the load cell or its amplifier is at its limit"
    if start < MINIMUM_POINTS:
        raise InputError(
            f"{said}; {start} points lie before, and a curve needs at least {MINIMUM_POINTS}"
        )
    caveat = Caveat(
        "load at its limit",
        f"{said}; only the points before were used, and Rm is {cap:.4g} MPa at least",
        "measure with a larger range of the load",
    )
    before = rows_of(raw, np.arange(total) < start)
    if start < total:
        step = f"left out the rows with a load at its limit ({total - start} points dropped)"
        before = dataclasses.replace(before, steps=(*raw.steps, step))
    return before, np.array([cap]), caveat


def _load_rises_beyond(curve: MeasuredCurve, beyond: Array, measures: tuple[str, str]) -> bool:
    """Whether the maximum load may lie in the rows without a strain, so that nothing necks before."""
    if not len(beyond):
        return False
    load = engineering_stress(curve.strain, curve.stress_mpa, measures)
    highest = float(load.max())
    has_not_fallen = running_mean(load)[-1] > (1.0 - _CLEAR_FALL) * highest
    return bool(np.nanmax(beyond, initial=0.0) > highest or has_not_fallen)


def _tensile(
    curve: MeasuredCurve, beyond: Array, measures: tuple[str, str], options: CleaningOptions
) -> TensileProperties | None:
    """The properties of the whole record, also beyond the maximum load, where it rises far enough to have any.

    Args:
      beyond: engineering stress of the rows after the measured strain, MPa; NaN where it is not known.
    """
    stress = engineering_stress(curve.strain, curve.stress_mpa, measures)
    strain = stretch_of(curve.strain, measures[0]) - 1.0 if measures[0] == "true" else curve.strain
    whole = MeasuredCurve(curve.name, strain, stress, strain_error=curve.strain_error)
    try:
        make_strain_rise(whole, options.envelope)
        correct_start(whole, options.toe == "auto")
    except InputError:
        return None
    return tensile_properties(whole.strain, whole.stress_mpa, beyond) if len(whole.strain) else None


def _turned(raw: RawCurve) -> tuple[RawCurve, bool]:
    """A record of compression with positive numbers, and whether it is one; InputError for one negative column."""
    strain, stress = is_negative(raw.strain), is_negative(raw.stress_mpa)
    if strain != stress:
        names = raw.columns if strain else raw.columns[::-1]
        ends = [
            f"{float(values.min() if is_negative(values) else values.max()):.4g}{unit}"
            for values, unit in ((raw.strain, ""), (raw.stress_mpa, " MPa"))
        ]
        raise InputError(
            f"column '{names[0]}' is negative and column '{names[1]}' positive: strain goes to {ends[0]} and stress to "
            f"{ends[1]}; the sign of the {'travel' if strain else 'load'} is turned round: multiply it by -1 for "
            "tension, or both by -1 where compression is positive (negative strain and stress are compression)"
        )
    if not strain:
        return raw, False
    said = "strain and stress are negative: took them as compression, without signs"
    turned = dataclasses.replace(
        raw, strain=-raw.strain, stress_mpa=-raw.stress_mpa, steps=(*raw.steps, said)
    )
    return turned, True


def _from_rest(raw: RawCurve) -> RawCurve:
    """A record whose rows go from the largest strain down to rest, turned round: no test is done so."""
    strain, stress = np.abs(raw.strain), np.abs(raw.stress_mpa)
    if len(strain) < MINIMUM_POINTS or not np.isfinite(strain).all():
        return raw
    if raw.time is not None and raw.time[-1] > raw.time[0]:
        return raw
    rises = float((strain - np.minimum.accumulate(strain)).max())
    ends_at_rest = strain[-1] <= _REST * strain[0] and stress[-1] <= _REST * stress.max()
    if rises > _NOISE_TIMES * noise_of(strain) or not ends_at_rest or not strain[0] > 0.0:
        return raw
    return dataclasses.replace(
        raw,
        strain=raw.strain[::-1],
        stress_mpa=raw.stress_mpa[::-1],
        time=None if raw.time is None else raw.time[::-1],
        steps=(*raw.steps, "the rows go from the largest strain down to rest: turned them round"),
    )


def strain_of_the_machine(raw: RawCurve) -> Caveat:
    """The caveat of a strain that was not measured at the specimen."""
    return Caveat(
        "strain of the crosshead",
        f"its strain is made of column '{raw.columns[0]}', which holds the give of machine and grips: the modulus is "
        "the machine's and the specimen's together, and every strain is too large",
        "use an extensometer's column, or fix the modulus that you know with --fix; a column called extension or "
        "extensometer is taken as measured at the specimen",
    )


def measures_of(raw: RawCurve) -> tuple[str, str]:
    """Strain and stress measure of a curve: as it says, or engineering."""
    named = raw.strain_measure or raw.stress_measure
    return (
        raw.strain_measure or named or "engineering",
        raw.stress_measure or named or "engineering",
    )


def to_engineering_shear(curve: MeasuredCurve, raw: RawCurve) -> None:
    """Doubles a shear strain that is the tensor's component; warns where it may be one."""
    if raw.shear_strain == "tensor":
        curve.strain = 2.0 * curve.strain
        curve.steps.append("took the shear strain as the tensor component gamma / 2 and doubled it")
    elif raw.shear_strain == "epsilon":
        curve.warnings.append(
            Caveat(
                "epsilon taken as gamma",
                "its strain column is called epsilon but was taken as the engineering shear strain gamma",
                "if it is the tensor component gamma / 2, say --shear_strain=tensor",
            )
        )
        curve.assumed.append("engineering shear strain")
    elif raw.shear_strain is None:
        curve.steps.append("took the strain as the engineering shear strain gamma")


def to_measures_of_the_law(
    curve: MeasuredCurve,
    raw: RawCurve,
    measures: tuple[str, str],
    target: CurveTarget,
    compressed: bool = False,
) -> None:
    """Converts strain and stress from the file's measures to the law's, and tells what was assumed.

    Args:
      compressed: positive numbers are compression.
    """
    sign = -1.0 if compressed else 1.0
    # The strain of another unit than it seems to be would be no finite stretch.
    engineering = (
        sign * np.expm1(sign * np.minimum(curve.strain, LARGEST_TRUE_STRAIN))
        if measures[0] == "true"
        else curve.strain
    )
    _convert(curve, engineering, measures, target, sign)
    if raw.strain_measure is None and raw.stress_measure is None:
        wanted = (target.strain_measure, target.stress_measure)
        if wanted != measures:
            curve.steps.append(
                "the columns do not say so, but were taken as engineering strain and stress "
                "(--strain_measure, --stress_measure)"
            )
            curve.assumed.append("engineering columns")
    for axis, said, measure in (
        ("strain", raw.strain_measure, measures[0]),
        ("stress", raw.stress_measure, measures[1]),
    ):
        if said is None and (raw.strain_measure or raw.stress_measure):
            curve.steps.append(
                f"the column of the {axis} does not say so, but was taken as {measure} {axis}, as the other column "
                f"says (--{axis}_measure)"
            )
            curve.assumed.append(f"{measure} {axis}")


def _convert(
    curve: MeasuredCurve,
    engineering_strain: Array,
    measures: tuple[str, str],
    target: CurveTarget,
    sign: float,
) -> None:
    """Converts strain and stress to the law's measures, at constant volume; sign -1 for positive compression."""
    strain_measure, stress_measure = measures
    stretch = 1.0 + sign * engineering_strain
    if measures != (target.strain_measure, target.stress_measure) and stretch.min(initial=1.0) <= 0:
        raise InputError(
            f"its compressive strain goes to {float(engineering_strain.max()):.4g}, and 1 is a length of nothing; if "
            "it is in percent, say --strain_unit=%"
        )
    plus = "-" if sign < 0 else "+"
    if strain_measure != target.strain_measure:
        to_true = target.strain_measure == "true"
        curve.strain = sign * np.log1p(sign * engineering_strain) if to_true else engineering_strain
        formulas = ("-ln(1 - e)", "1 - exp(-e)") if sign < 0 else ("ln(1 + e)", "exp(e) - 1")
        formula = formulas[0] if to_true else formulas[1]
        curve.steps.append(
            f"converted {strain_measure} strain e to {target.strain_measure} strain {formula}"
        )
    if stress_measure != target.stress_measure:
        to_true = target.stress_measure == "true"
        curve.stress_mpa = curve.stress_mpa * stretch if to_true else curve.stress_mpa / stretch
        formula = f"s (1 {plus} e)" if to_true else f"s / (1 {plus} e)"
        curve.steps.append(
            f"converted {stress_measure} stress s to {target.stress_measure} stress {formula}"
        )


def _cut_to_trained_stress(curve: MeasuredCurve, target: CurveTarget, doubt: str) -> None:
    limit = target.max_stress_mpa
    if limit is None or not len(curve.strain) or curve.stress_mpa.max() <= limit:
        return
    largest, before = float(curve.stress_mpa.max()), len(curve.strain)
    # Like the trained curves, which hold the first point above their strength.
    kept = np.arange(len(curve.strain)) <= int((curve.stress_mpa > limit).argmax())
    keep(curve, kept, f"cut at {limit:.4g} MPa, the largest trained strength")
    curve.warnings.append(
        Caveat(
            "beyond the trained stress",
            f"the stress goes on to {largest:.4g} MPa, beyond {limit:.4g} MPa, the largest trained strength; "
            "only the part before was used",
        )
    )
    if len(curve.strain) < MINIMUM_POINTS:
        why = doubt or f"its stress goes to {largest:.4g} MPa; is --stress_unit right?"
        raise InputError(
            f"{len(curve.strain)} of its {before} points lie below {limit:.4g} MPa, the largest trained "
            f"strength ({why})"
        )


def _cut_to_trained_range(curve: MeasuredCurve, target: CurveTarget, doubt: str) -> None:
    before = len(curve.strain)
    if before < FEWEST_IN_RANGE:
        raise InputError(f"{before} points are left of it; a curve needs at least {MINIMUM_POINTS}")
    if target.max_strain is None:
        return
    end, high = float(curve.strain[-1]), target.max_strain[1]
    is_far = end > 10 * high
    advice = "if it is in percent, say --strain_unit=%" if is_far and not doubt else ""
    if end > high:
        keep(curve, curve.strain <= high, f"cut at strain {high:.4g}, the end of the trained range")
        few = f" ({len(curve.strain)} of {before} points)"
        curve.warnings.append(
            Caveat(
                "far beyond the trained strain" if is_far else "beyond the trained strain",
                f"the curve goes on to strain {end:.4g}, beyond {high:.4g} where the trained range ends; "
                f"only the part before was used{few if len(curve.strain) < 0.2 * before else ''}",
                advice,
                blocks=is_far,
            )
        )
    if len(curve.strain) < FEWEST_IN_RANGE:
        raise InputError(
            f"{len(curve.strain)} of its {before} points lie below strain {high:.4g}, the end of the trained range; "
            f"at least {FEWEST_IN_RANGE} are needed "
            f"({'; '.join(filter(None, (f'its strain goes to {end:.4g}', advice, doubt)))})"
        )


# --------------------------------------------------------------------------------------------------
# A test as it was read -> what a law is identified from: ordered, converted, told what it is. Every step in words.


# Of the largest stress: below it a specimen is as good as unloaded. Of the strain's range, and over its noise: a larger
# offset is taken off.
_UNLOADED, _OFFSET, _OVER_NOISE = 0.01, 0.005, 5.0
# _REACHES: share of the largest stress; below it reloading is not compared with the first loading.
_REACHES = 0.2
# _SOFTER: relative difference of both that is worth a word.
_SOFTER = 0.03
# _LOADED: share of the largest load; a specimen that bears less may be slack.
_LOADED = 0.01
# _FIRST_LOADING: share of the largest load; up to it a specimen is as stiff as at the start.
_FIRST_LOADING = 0.08
# _FEWEST_SLACK: rows without a load; fewer are the first points of a loading.
_FEWEST_SLACK = 4
# _LEAST_SLACK: share of the largest strain; less slack hardly moves a parameter.
_LEAST_SLACK = 0.005
# _SLACK_SLOPE: share of the first slope; a material that is that soft at first is not known.
_SLACK_SLOPE = 0.03
# _ROOM_IN_KELVIN: temperatures of laboratories, K, 15 to 27 °C.
_ROOM_IN_KELVIN = (288.0, 299.9)


def measured_test(
    raw: RawCurve,
    programme: Programme,
    law: Law,
    settings: Mapping[str, float] | None = None,
    cleaning: CleaningOptions | None = None,
) -> MeasuredTest:
    """A test as it was read -> what a law is identified from; InputError for what cannot be a test of this kind.

    Args:
      settings: `rate` (1/s) and `temperature` (°C), as far as the user tells them.
    """
    settings, cleaning = dict(settings or {}), cleaning or CleaningOptions()
    target = CurveTarget(
        num_points=MOST_POINTS,
        strain_measure=law.strain_measure,
        stress_measure=law.stress_measure,
        law=None,
    )
    blank = ~np.isfinite(raw.strain)
    raw = rows_of(raw, ~blank)
    if not issubclass(type(programme), Relaxation | Creep):
        raw = without_wild_cells(raw, ends=False)
    raw = stretch_to_strain(raw, law)
    if isinstance(programme, RateAndTemperature):
        # Tension of a metal, as any: up to where it necks, and without its unloadings.
        curve = clean(raw, target, cleaning)
        curve.steps.pop()
        test = MeasuredTest(programme, curve)
    else:
        test = _in_its_own_order(raw, programme, target, cleaning)
        # The give of a machine is nothing beside rubber's.
        if raw.machine_travel and any(parameter.name == "E" for parameter in law.parameters):
            test.curve.warnings.append(strain_of_the_machine(raw))
    if blank.any():
        test.curve.warnings.append(
            Caveat(
                "strain not measured to the end",
                f"the strain is blank from point {int(blank.argmax()) + 1} of {len(blank)} on; only the points before "
                "were used",
            )
        )
    _tell_settings(test, raw, settings, law)
    check_test(test, raw, law)
    return without_excess(test)


def _in_its_own_order(
    raw: RawCurve, programme: Programme, target: CurveTarget, cleaning: CleaningOptions
) -> MeasuredTest:
    """The points in the order in which they were measured, in the law's measures, from their zero of strain on."""
    if cleaning.window is not None and issubclass(type(programme), Relaxation | Creep):
        raise InputError(
            f"--window is for strains; a test {programme.name} is followed over the time: leave it out, and the later "
            "rows out of the file"
        )
    curve = MeasuredCurve.of(raw)
    check_numbers(curve)
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"it has {len(curve.strain)} points; a test needs at least {MINIMUM_POINTS}"
        )
    if np.ptp(curve.stress_mpa) == 0 and programme.drives == "strain":
        raise InputError("its stress is the same at every point (is --stress_column right?)")
    if programme.mode == "shear":
        turn_negative(curve)
        to_engineering_shear(curve, raw)
    else:
        to_measures_of_the_law(curve, raw, measures_of(raw), target)
    _take_off_offset(curve, cleaning.toe == "auto")
    slack = slack_of(curve.strain, curve.stress_mpa) if isinstance(programme, Uniaxial) else None
    if slack is not None:
        raw = _take_off_slack(raw, curve, *slack, cleaning.toe == "auto")
    test = MeasuredTest(programme, curve)
    if "time" in programme.channels:
        test.time = _time(raw, programme)
        if raw.time is not None and raw.time[0] != 0.0:
            curve.steps.append(f"time counts from the first point on, at {raw.time[0]:.3g} s")
    test.turns = turns_of(test.driven) if not isinstance(programme, Relaxation | Creep) else []
    if isinstance(programme, Uniaxial) and test.turns:
        _take_loading(test)
    if cleaning.window is not None:
        _take_window(test, *cleaning.bounds())
    return test


def _time(raw: RawCurve, programme: Programme) -> Array:
    """Seconds from the first point on, [points]."""
    if raw.time is None:
        raise InputError(
            f"a test of {programme.title} needs the time of every point; set --time_column, or name the column time"
        )
    backwards = np.flatnonzero(np.diff(raw.time) < 0)
    if len(backwards):
        i = int(backwards[0])
        raise InputError(
            f"time runs backwards: {raw.time[i + 1]:g} s after {raw.time[i]:g} s, at point {i + 2} of {len(raw.time)}; "
            "sort the rows, or give each run a file of its own"
        )
    if raw.time[-1] <= raw.time[0]:
        raise InputError("its time is the same at every point (is --time_column right?)")
    return np.asarray(raw.time - raw.time[0])


def _take_off_offset(curve: MeasuredCurve, wanted: bool) -> None:
    """Takes off a strain that was not zeroed, where the specimen is unloaded at the start; else tells of it."""
    offset = float(curve.strain[0])
    begins_at = float(curve.stress_mpa[0])
    largest = float(np.abs(curve.stress_mpa).max())
    least = max(_OFFSET * float(np.ptp(curve.strain)), _OVER_NOISE * noise_of(curve.strain))
    if abs(offset) <= least:
        if abs(begins_at) > 0.1 * largest:
            curve.warnings.append(
                Caveat(
                    "loaded at the start",
                    f"the record begins at {begins_at:.3g} MPa without strain",
                    "what was done before the first point is not known; a law begins with a virgin specimen",
                )
            )
        return
    if abs(begins_at) > _UNLOADED * largest:
        return
    if wanted:
        curve.strain = curve.strain - offset
        curve.steps.append(
            f"took {offset:.3g} off the strain, its reading before the load (--toe=off leaves it)"
        )
    else:
        curve.steps.append(f"left a strain of {offset:.3g} at the start, before the load")


def _take_off_slack(
    raw: RawCurve, curve: MeasuredCurve, rows: int, slack: float, wanted: bool
) -> RawCurve:
    """Takes off the strain before a specimen tightened, and its rows; tells of it. Returns the raw rows that stay."""
    done = "was left in the strain"
    if wanted:
        done = "was taken off"
        kept = np.arange(len(curve.strain)) >= rows
        curve.strain = curve.strain - slack
        keep(curve, kept, "left out the rows before the specimen tightened")
        raw = rows_of(raw, kept)
    curve.warnings.append(
        Caveat(
            "slack",
            f"the load stays at zero to a strain of {slack:.3g}, as if the specimen were slack; that {done}",
            "if the strain before was the specimen's own, say --toe=off",
        )
    )
    return raw


def slack_of(strain: Array, stress: Array) -> tuple[int, float] | None:
    """The rows at the start without a load, and the strain at which the load begins; None where a record has no slack.

    Args:
      strain, stress: [points], in the order of measurement, from rest, in either sign.
    """
    strongest = np.abs(stress).argmax()
    side = float(np.sign(strain[strongest])) or 1.0
    e, s = side * strain, stress * (np.sign(stress[strongest]) or 1.0)
    top = int(s.argmax())
    # The bends of few points look like noise.
    noise = min(noise_of(s[: top + 1]), _LOADED * float(s[top]))
    least = max(_LOADED * s[top], 3.0 * noise)
    end = (
        int(np.flatnonzero(s[: top + 1] >= max(_FIRST_LOADING * s[top], 3.0 * least))[:1].sum()) + 1
    )
    unloaded = np.flatnonzero(s[:end] <= least)
    if len(unloaded) < _FEWEST_SLACK:
        return None
    first = int(unloaded[-1]) + 1
    # The first loading behind it, by a line that is drawn on to no load.
    end = max(end, min(first + _FEWEST_SLACK, top + 1))
    if end - first < 2 or np.ptp(e[first:end]) == 0.0:
        return None
    slope = float(np.polyfit(e[first:end], s[first:end], 1)[0])
    slack = float(e[first:end].mean() - s[first:end].mean() / slope) if slope > 0.0 else 0.0
    before = e < 0.9 * slack
    before[first:] = False
    rows = int(np.count_nonzero(before))
    if rows < _FEWEST_SLACK or slack < _LEAST_SLACK * float(e[top]):
        return None
    flat = float(np.polyfit(e[before], s[before], 1)[0]) if np.ptp(e[before]) else 0.0
    bears = float(np.abs(s[before]).max())
    chance = 4.0 * noise / (np.ptp(e[before]) * np.sqrt(rows)) if rows else 0.0
    is_flat = abs(flat) < max(_SLACK_SLOPE * slope, chance) and bears < least + 2.0 * noise
    return (int(np.flatnonzero(before)[-1]) + 1, side * slack) if is_flat else None


def _take_loading(test: MeasuredTest) -> None:
    """Keeps the first loading to every strain, also of several cycles, and tells of what was left out.

    Unloading, reloading to strains that were reached before, and pauses at the turns are none.
    """
    curve = test.curve
    strain, stress = curve.strain, curve.stress_mpa
    loading, reloading = _loading_branches(strain, test.turns)
    kept = int(np.count_nonzero(loading))
    if kept < MINIMUM_POINTS:
        raise InputError(
            f"its strain turns {len(test.turns)} times, and its first loading has {kept} points; a test of "
            f"{test.programme.title} is a loading of at least {MINIMUM_POINTS}"
        )
    dropped = len(strain) - kept
    if dropped:
        order = np.flatnonzero(loading)
        if (strain[order] < 0).any() and (strain[order] > 0).any():
            # Cycles to both sides: an elastic law asks for no order, and averaging wants a rising one.
            order = order[np.argsort(strain[order], kind="stable")]
        curve.strain, curve.stress_mpa = strain[order], stress[order]
        if test.time is not None:
            test.time = test.time[order]
        furthest = float(strain[order][np.abs(strain[order]).argmax()])
        curve.steps.append(
            f"took the first loading to every strain, to {furthest:.4g} ({dropped} points dropped)"
        )
        also = ", reloading to strains reached before" if reloading.any() else ""
        curve.warnings.append(
            Caveat(
                "unloading left out",
                f"{dropped} points of unloading{also} and pauses were left out, of {len(strain)}"
                f"{_softening(strain, stress, order, reloading)}",
                "an elastic law answers loading and unloading alike, and rubber does not",
            )
        )
    # The branches that are left are one to an elastic law.
    test.turns = []


def _loading_branches(
    strain: Array, turns: list[int]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The points that load beyond all before, and those that load again: both [points]."""
    loading, reloading = np.zeros(len(strain), np.bool_), np.zeros(len(strain), np.bool_)
    reached = {1.0: 0.0, -1.0: 0.0}
    noise = _OVER_NOISE * noise_of(strain)
    for first, last in itertools.pairwise([0, *turns, len(strain) - 1]):
        side = 1.0 if strain[last] >= strain[first] else -1.0
        branch = side * strain[first : last + 1]
        # A pause at the turn relaxes: the branch ends where it first comes there.
        end = int((branch >= branch[-1] - noise).argmax()) + 1
        points = first + np.arange(end)
        beyond = branch[:end] > reached[side] + (noise if reached[side] else 0.0)
        if first == 0:
            beyond[:] = True
        loading[points[beyond]] = True
        reloading[points[~beyond & (branch[:end] > 0)]] = True
        reached[side] = max(reached[side], float(branch[-1]))
    return loading, reloading


def _softening(
    strain: Array, stress: Array, order: NDArray[np.intp], reloading: NDArray[np.bool_]
) -> str:
    """How much softer than the first loading the reloading is, in words; nothing where it is not."""
    order = order[np.argsort(strain[order], kind="stable")]
    first = np.interp(strain[reloading], strain[order], stress[order])
    large = np.abs(first) > _REACHES * np.abs(stress).max()
    if not large.any():
        return ""
    share = float(np.median(stress[reloading][large] / first[large]))
    if abs(share - 1.0) < _SOFTER:
        return ""
    return f"; the reloading has {share:.2g} times the stress of the first loading, from which the parameters come"


def _take_window(test: MeasuredTest, low: float | None, high: float | None) -> None:
    """Takes the points of an elastic test that are between two strains; of others those before the strain leaves them.

    A law that remembers must know all that came before a point.
    """
    ends = [f"from {low:g}"] if low is not None else []
    ends += [f"up to {high:g}"] if high is not None else []
    said = " ".join(ends)
    low, high = (-np.inf if low is None else low), (np.inf if high is None else high)
    strain = test.curve.strain
    inside = (strain >= low) & (strain <= high)
    text = f"took the strains {said}"
    if not isinstance(test.programme, Uniaxial):
        if not inside[0]:
            raise InputError(
                f"--window begins at strain {low:g}, and the law must know all that came before; leave that end empty, "
                "or give one below the smallest strain"
            )
        inside = np.logical_and.accumulate(inside)
        text = f"took the test to where its strain leaves the window, {said}"
    if np.count_nonzero(inside) < MINIMUM_POINTS:
        raise InputError(
            f"--window leaves {np.count_nonzero(inside)} points; a test needs at least {MINIMUM_POINTS}"
        )
    keep(test.curve, inside, text)
    if test.time is not None:
        test.time = test.time[inside]
    test.turns = [turn for turn in test.turns if turn < len(test) - 1]


def _is_room_in_kelvin(temperature: float, law: Law) -> bool:
    """Whether a temperature (°C) is a room's in kelvin, beside a law whose room temperature is in °C."""
    in_celsius = any(
        parameter.name == "room" and parameter.unit == "°C" for parameter in law.parameters
    )
    low, high = _ROOM_IN_KELVIN
    return in_celsius and low <= temperature <= high


def _tell_settings(
    test: MeasuredTest, raw: RawCurve, settings: Mapping[str, float], law: Law
) -> None:
    """Rate and temperature of a law that asks for them: as the user says, the file, or its time."""
    curve = test.curve
    for name, unit in (("rate", "1/s"), ("temperature", "°C")):
        if name not in test.programme.channels:
            continue
        if name in settings:
            value, source, assumed = settings[name], "as given", ""
        elif name == "rate":
            value, source, assumed = rate_of(raw, curve.conditions.get(name))
        else:
            value, source, assumed = temperature_of(curve.conditions.get(name))
        setattr(test, name, value)
        if name == "temperature" and _is_room_in_kelvin(value, law):
            curve.warnings.append(
                Caveat(
                    "temperature in kelvin?",
                    f"its temperature is {value:.4g} °C, which is room temperature in kelvin",
                    "if it is in kelvin, give it in °C, or with its unit, 293 K",
                )
            )
        curve.steps.append(f"{name} {value:.4g} {unit} ({source})")
        if assumed:
            curve.assumed.append(assumed)
        curve.conditions[name] = f"{value:.4g} {unit}"
