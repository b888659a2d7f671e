"""A test as it was read -> what a law is identified from: ordered, converted, told what it is. Every step in words."""

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import (
    Caveat,
    CleaningOptions,
    MeasuredCurve,
    check_numbers,
    keep,
    turn_negative,
)
from tfmat.curves.loading_paths import rate_of, temperature_of, turns_of
from tfmat.curves.measured import (
    clean,
    measures_of,
    strain_of_the_machine,
    to_engineering_shear,
    to_measures_of_the_law,
)
from tfmat.curves.measured_tests import MOST_POINTS, MeasuredTest, without_excess
from tfmat.curves.plausible_tests import check_test, stretch_to_strain
from tfmat.curves.programme import Programme
from tfmat.curves.programmes import Creep, RateAndTemperature, Relaxation, Uniaxial
from tfmat.curves.reading import RawCurve
from tfmat.curves.recording_faults import rows_of, without_wild_cells
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.tables import MINIMUM_POINTS
from tfmat.curves.toe import noise_of
from tfmat.errors import InputError
from tfmat.materials.law import Array, Law

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
