"""Caveats of an answer, beyond the warnings of the curve itself."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.least_squares import ABOVE_NOISE, BestFit, RecordFit, minima_near, widened
from tfmat.materials.law import Array, Law, Parameter
from tfmat.materials.rubber import RubberLaw, elongation
from tfmat.records.programmes import HOT, check_answer
from tfmat.records.record import (
    ENGINEERING_COLUMNS,
    Caveat,
    CurveTarget,
    MeasuredRecord,
    MeasuredTest,
)

# A network's answer this near to the end of its range (0-1) only says that the range ends there.
EDGE = 0.005
# Above this (% of the maximum stress) the law does not describe the curve, whatever its parameters mean.
POOR_RMSE_PERCENT = 5.0
# Below this (% of the maximum stress) nobody minds that the law's curve is not the measured one.
_GOOD_RMSE_PERCENT = 1.0
# On the scale of the label. A value of which only the range is known has 0.29, one that is known to lie in some
# two thirds of it has 0.2.
UNIDENTIFIABLE_STD = 0.2
# An error of the law itself that is smaller than this share of the noise moves no parameter by much.
_OWN_ERROR = 0.25
# _COARSE: share of the elastic strain; steps of the strain that are larger leave few of them to tell a modulus from.
_COARSE = 0.1
# _BELOW_YIELD: share of the upper yield strength; a curve that begins below it holds the yield point.
_BELOW_YIELD = 0.8
# A part of the curve where the residual is so many times the typical one; medians of so many points.
_SOMEWHERE, _SMOOTHED = 2.0, 5
# Advice about a parameter that a curve does not tell; only least squares takes a known one.
_NOT_ALONE = "do not use its value alone"
GIVE_IT = f"give its value with --fix if you know it; {_NOT_ALONE}"
# _MOSTLY_NECKED: strain at which most metals have passed their maximum load.
_MOSTLY_NECKED = 0.25
# _LARGE: strain from which true and engineering stresses differ by more than a test's errors.
_LARGE = 0.03
# _STILL_RISES: of the law's load before the largest, over its strain: a true stress at a maximum load has 1, a load 0.
# _NEAR_END: share of the strain there, from which that is measured.
_STILL_RISES, _NEAR_END = 0.5, 0.98
# _AS_WELL: a law that is so many times as far from another reading of a curve speaks against that reading.
_AS_WELL = 2.0
# Factors by which an elastic modulus differs from the elastic part of the curve.
_MODULUS_DIFFERS, _MODULUS_IS_ANOTHER = 1.25, 2.0


def edge_caveats(parameters: Sequence[Parameter], labels: Array) -> Iterator[Caveat]:
    """Parameters [p] for which the network's labels [p] stand at the end of their range."""
    for parameter, scaled in zip(parameters, labels, strict=True):
        if not EDGE < scaled < 1 - EDGE:
            end, limit = ("low", parameter.low) if scaled < 0.5 else ("high", parameter.high)
            yield Caveat(
                "end of the trained range",
                f"{parameter.name} is at the {end} end of its trained range "
                f"({_with_unit(limit, parameter)}); the true value may lie beyond",
                "identify by least squares, or with a network of wider ranges",
            )


def range_caveats(law: Law, best: BestFit) -> Iterator[Caveat]:
    """Parameters for which least squares went beyond the law's ranges, or to the end of what was searched."""
    for i, parameter in enumerate(law.identified):
        value, label = float(best.values[i]), float(best.labels[i])
        if best.at_bound[i]:
            yield Caveat(
                "no best value",
                f"{parameter.name} went to {_with_unit(value, parameter)}, the {'low' if label < 0.5 else 'high'} "
                "end of what was searched, without reaching a best value",
                "give its value with --fix, choose a law with fewer parameters, or measure further",
            )
        elif not 0.0 <= label <= 1.0:
            yield Caveat(
                "beyond the usual range",
                f"{parameter.name} = {_with_unit(value, parameter)} lies outside of {parameter.low:.4g} to "
                f"{_with_unit(parameter.high, parameter)}, the range of law {law.name}'s simulated curves",
                "check that the value is plausible for the material; least squares needs no such range",
            )


def plausibility_caveats(law: Law, parameters: Array, record: MeasuredRecord) -> Iterator[Caveat]:
    """A modulus that no such material has, alone or together with the largest stress; see `check_answer`."""
    # Metals creep and relax where they are hot.
    usual = HOT if any("hold" in t.settings for t in record.tests) else 20.0
    celsius = max((t.celsius for t in record.tests if t.celsius is not None), default=usual)
    found = check_answer(law, parameters, record.largest_mpa, celsius)
    if found is not None:
        kind, text, blocks = found
        advice = (
            "is the strain the crosshead's, a unit, gauge length or area wrong, or hardly a point elastic? Give the "
            "modulus if it is known (--fix), or choose a law for this material"
        )
        yield Caveat(kind, text, advice, blocks)


def measure_caveats(law: Law, record: MeasuredRecord, fitted: RecordFit | None) -> Iterator[Caveat]:
    """Columns that do not say their measure, where another reading moves a parameter out of its interval.

    A load that has levelled off to its maximum is an engineering one in tension. One that rises until it falls may be
    true values, worked out beyond the maximum load too; before a maximum, columns may also hold compression in positive
    numbers. A curve without tensile properties is known to be compression. Without a fit only a tension beyond the
    strain where most metals neck is told.
    """
    curve, tensile = record.curve, record.tensile
    if curve is None:
        yield from _measure_of_tests(record) if law.strain_measure == "true" else ()
        return
    if ENGINEERING_COLUMNS not in curve.assumed:
        return
    has_fallen = tensile is not None and not tensile.tensile_strength_mpa.at_least
    points = None if fitted is None else fitted.record.curve
    if fitted is None or points is None:
        end = float(np.expm1(curve.strain[-1]))
        if tensile is not None and end > _MOSTLY_NECKED and not has_fallen:
            yield Caveat(
                "engineering or true?",
                "its columns do not say their measure, and were taken as engineering values, whose load still rises at "
                f"strain {end:.3g}, where most metals neck; if they are true, the stress at the end is "
                f"{100.0 * end:.0f} % too high",
                "say --strain_measure=engineering or --strain_measure=true",
            )
        return
    sign, test = (-1.0, "compression") if tensile is None else (1.0, "tension")
    engineering = sign * np.expm1(sign * points.strain)
    load = points.stress_mpa / (1.0 + sign * engineering)
    if has_fallen:
        last = float(points.strain[-1])
        before, end = law.label_stress(
            np.array([[_NEAR_END * last, last]]), fitted.best.labels[None]
        )[0]
        # Considère: at the maximum load true stress rises by itself over the true strain.
        if not np.log(end / before) > (1.0 + _STILL_RISES) * (1.0 - _NEAR_END) * last:
            return
    readings = {"true values": (engineering, load)}
    if has_fallen:
        test = "tension to the maximum load"
        # As true values they hold the maximum load, from which on the strain is not the same along the specimen.
        kept = np.arange(len(load)) <= int((load * np.exp(-engineering)).argmax())
        readings = {"true values up to their own maximum load": (engineering[kept], load[kept])}
    elif tensile is not None and engineering.max() < 1.0:
        readings["engineering values of compression"] = (
            -np.log1p(-engineering),
            load * (1.0 - engineering),
        )
    (own,) = np.sqrt(2.0 * fitted.fitted.cost / len(points))
    wide = widened(fitted.searched.law)
    told = []
    for name, (strain, stress) in readings.items():
        start, even = fitted.fitted.labels, np.ones_like(stress[None])
        with np.errstate(all="ignore"):
            labels, cost = minima_near(wide, strain[None], stress[None], start, even)
        values = wide.identified_values(labels)[0]
        low, high = fitted.best.interval.T
        moved = [
            f"{parameter.name} = {_with_unit(value, parameter)}"
            for parameter, value, is_out in zip(
                law.identified, values, (values < low) | (values > high), strict=True
            )
            if is_out
        ]
        error = float(np.sqrt(2.0 * cost[0] / len(stress)))
        if moved and error < _AS_WELL * own:
            told.append(f"as {name} {', '.join(moved)}, and the law is off by {error:.3g} MPa")
    if told:
        yield Caveat(
            "engineering or true?",
            f"its columns do not say their measure, and were taken as engineering values of {test}, from which the law "
            f"is off by {own:.3g} MPa; {'; '.join(told)}",
            "say --strain_measure=engineering or --strain_measure=true; compression is told by negative numbers, or by "
            "a column called compressive strain",
        )


def _measure_of_tests(record: MeasuredRecord) -> Iterator[Caveat]:
    """Tests whose columns do not say their measure, and whose load rises beyond a strain at which it matters."""
    ends = {
        test.name: float(np.expm1(test.strain.max()))
        for test in record.tests
        if ENGINEERING_COLUMNS in test.assumed
        and (test.tensile is None or test.tensile.tensile_strength_mpa.at_least)
        and "hold" not in test.settings
        and test.strain.max() > _LARGE
    }
    if ends:
        far = max(ends, key=lambda name: ends[name])
        yield Caveat(
            "engineering or true?",
            f"the columns of {len(ends)} tests do not say their measure, and were taken as engineering values; if they "
            f"are true, every stress is too high by the strain, {far} at its end by {100.0 * ends[far]:.0f} %",
            "say --strain_measure=engineering or --strain_measure=true",
        )


def own_error_caveats(law: Law, noise_mpa: float, largest_mpa: float) -> Iterator[Caveat]:
    """A law whose own error is no longer small beside the noise (MPa), for the answer of least squares."""
    if law.own_error * largest_mpa <= _OWN_ERROR * noise_mpa:
        return
    yield Caveat(
        "the law's own error",
        f"law {law.name} is itself off by {100 * law.own_error:.2g} % of the maximum stress, which these intervals "
        "leave out",
        "train a network with it (--config=configs/forward.py), whose posterior knows that error; more runs make "
        "it smaller",
    )


def modulus_caveat(law: Law, values: Array, measured_mpa: float | None) -> Iterator[Caveat]:
    """A Young's modulus E that differs from the curve's own elastic part.

    Args:
      values: [all parameters], in their units; measured_mpa: chord modulus of the curve, or None.
    """
    names = [parameter.name for parameter in law.parameters]
    if measured_mpa is None or "E" not in names:
        return
    at = names.index("E")
    value = float(values[at])
    parameter = law.parameters[at]
    factor = max(value / measured_mpa, measured_mpa / value) if value > 0 else np.inf
    if factor <= _MODULUS_DIFFERS or parameter.fixed is not None:
        return
    # A few noisy points may give any chord modulus: one that no metal has says nothing against the fit.
    low, high = parameter.low / _MODULUS_DIFFERS, parameter.high * _MODULUS_DIFFERS
    another = factor > _MODULUS_IS_ANOTHER and low <= measured_mpa <= high
    yield Caveat(
        "modulus is not the measured one" if another else "modulus differs",
        f"E = {value / 1e3:.3g} GPa fits best, but the elastic part of the curve has {measured_mpa / 1e3:.3g} GPa",
        "few points are elastic, or the law is not the material's; give the modulus that you trust, e.g. "
        "--fix=E=200000",
        blocks=another,
    )


def rounding_caveats(curve: MeasuredTest, law: Law, values: Array) -> Iterator[Caveat]:
    """A strain whose steps are not small beside the elastic strain; `values`: [all], the answer."""
    first, step = law.parameters[0], curve.strain_error.step
    if first.name != "E" or first.fixed is not None or not values[0] > 0:
        return
    elastic = float(np.abs(curve.stress_mpa).max()) / float(values[0])
    if not step > _COARSE * elastic:
        return
    yield Caveat(
        "coarse strain",
        f"its strain goes in steps of {step:.2g}, and the elastic strain is about {elastic:.2g}",
        "E rests on few steps, and its interval holds their rounding; export more digits, or give E (--fix)",
    )


def unidentifiable(predicted_std: Array | None, best: BestFit | None) -> NDArray[np.bool_]:
    """Parameters [p] of which a curve says next to nothing: the one rule.

    Args:
      predicted_std: the network's, calibrated, on the labels' scale, [p]; None where it gives none.
      best: least squares; None where not fitted.
    """
    if best is not None:
        return best.unidentifiable
    return np.zeros(0, np.bool_) if predicted_std is None else predicted_std > UNIDENTIFIABLE_STD


def unidentifiable_caveats(
    parameters: Sequence[Parameter], predicted_std: Array | None, best: BestFit | None
) -> Iterator[Caveat]:
    """Parameters [p] of which the curve says next to nothing; arguments as in `unidentifiable`."""
    for i in map(int, np.flatnonzero(unidentifiable(predicted_std, best))):
        if best is None:
            assert predicted_std is not None
            said = (
                f"the network's standard deviation is {100 * predicted_std[i]:.0f} % of its range"
            )
        elif best.is_open[i].sum() == 1:
            continue  # said by `one_sided_caveats`
        else:
            said = "its 95 % interval is at least as wide as the law's range"
        yield Caveat(
            "cannot be identified",
            f"{parameters[i].name} cannot be identified from this curve: {said}",
            _NOT_ALONE if best is None else GIVE_IT,
        )
    if best is not None:
        yield from one_sided_caveats(parameters, best)


def one_sided_caveats(parameters: Sequence[Parameter], best: BestFit) -> Iterator[Caveat]:
    """Parameters [p] that the measured points bound on one side only."""
    for i in map(int, np.flatnonzero(best.is_open.sum(axis=1) == 1)):
        side = int(best.is_open[i, 0])  # which end is known
        end = _with_unit(float(best.interval[i, side]), parameters[i])
        bound, others = (("at least", "larger"), ("at most", "smaller"))[side]
        yield Caveat(
            "bounded on one side",
            f"{parameters[i].name} is only known to be {bound} {end}: {others} values fit as well",
            GIVE_IT,
        )


def short_caveats(record: MeasuredRecord, target: CurveTarget) -> Iterator[Caveat]:
    """A curve that ends before those that the network was trained on, for the network's answer."""
    end = float(record.strain[-1])
    if target.max_strain is None or end >= target.max_strain[0]:
        return
    yield Caveat(
        "short of the trained strain",
        f"the curve ends at strain {end:.4g}, before {target.max_strain[0]:.4g} where the shortest trained curves "
        "end; the rest is padding and the network's answer is less certain",
    )


def misfit_caveats(
    law_name: str, of_curve: bool, percent: float, noise: float, away: str
) -> Iterator[Caveat]:
    """Caveats of the root mean square error of the law's best fit to one curve, or to tests.

    Args:
      percent, noise: the error, and the noise of single points, % of the largest response; away: the error in words.
    """
    what, these, its = (
        ("curve", "this curve", "the noise")
        if of_curve
        else ("tests", "these tests", "their noise")
    )
    if percent > POOR_RMSE_PERCENT:
        yield Caveat(
            f"law does not follow the {what}",
            f"law {law_name} does not describe {these}: even its best fit is {away} away",
            "another law, or another column or unit, is needed",
            blocks=True,
        )
    elif percent > max(_GOOD_RMSE_PERCENT, ABOVE_NOISE * noise):
        times = f"{percent / noise:.2g} times {its}" if noise > 0 else "without noise"
        yield Caveat(
            "law follows roughly",
            f"law {law_name} follows {these} to {away}, {times}",
            "the 95 % intervals are widened for it; look at the residuals",
        )


def yield_point_caveats(curve: MeasuredTest) -> Iterator[Caveat]:
    """A curve of a metal with an upper yield point, which smooth laws run through."""
    if curve.tensile is None:
        return
    upper = curve.tensile.upper_yield_strength_mpa.value
    lower = curve.tensile.lower_yield_strength_mpa.value
    if upper is None or lower is None:
        return
    if curve.stress_mpa[0] < _BELOW_YIELD * upper:  # else a window leaves yielding out
        yield Caveat(
            "yield point",
            f"the load falls from ReH {upper:.4g} to ReL {lower:.4g} MPa as yielding begins, which no law here does",
            "fit what hardens behind that with the modulus given: --window=STRAIN, --fix=E=VALUE",
        )


def local_caveats(
    strain: Array,
    residual_mpa: Array,
    noise_mpa: float,
    largest_mpa: float,
    noisy: Array | None = None,
) -> Iterator[Caveat]:
    """Where the law's best fit leaves the curve most, if it does so in one place more than elsewhere.

    Args:
      strain, residual_mpa: [points], in the order of the strain.
      noisy: measured strain, [any], whose noise explains the residuals as a whole: a place has some points of it.
    """
    if len(strain) < 3 * _SMOOTHED:
        return
    # Medians, so that single points (a pause of the machine) are no part of the curve.
    windows = np.lib.stride_tricks.sliding_window_view(residual_mpa, _SMOOTHED)
    smooth = np.abs(np.median(windows, axis=1))
    peak = int(smooth.argmax())
    typical = float(np.sqrt(np.mean(smooth**2)))
    if smooth[peak] < max(3 * noise_mpa, 0.02 * largest_mpa, _SOMEWHERE * typical):
        return
    near = smooth > 0.5 * smooth[peak]
    first, last = peak, peak
    while first > 0 and near[first - 1]:
        first -= 1
    while last < len(near) - 1 and near[last + 1]:
        last += 1
    start, end = float(strain[first]), float(strain[last + _SMOOTHED - 1])
    if noisy is not None and np.count_nonzero((noisy >= start) & (noisy <= end)) < _SMOOTHED:
        return
    yield Caveat(
        "leaves the law in one place",
        f"the curve leaves the law at strain {start:.2g} to {end:.2g}, by up to {smooth[peak]:.3g} MPa "
        f"({100 * smooth[peak] / largest_mpa:.2g} % of the maximum stress)",
        "do not rely on the law there",
    )


def too_many_ends(count: int) -> Iterator[Caveat]:
    """Several parameters [count] stand at ends of their ranges: the curve asks for another law, or for none."""
    if count < 2:
        return
    yield Caveat(
        "parameters stand at the end of their range",
        f"{count} parameters stand at the end of their range",
        "another law, or more of the curve, is needed",
        blocks=True,
    )


def _with_unit(value: float, parameter: Parameter) -> str:
    unit = "" if parameter.unit == "-" else f" {parameter.unit}"
    return f"{value:.4g}{unit}"


def stability_caveats(law: Law, parameters: Array, record: MeasuredRecord) -> Iterator[Caveat]:
    """A law of rubber with parameters [all] that is not stable within or near the tested strains, in any mode."""
    if not isinstance(law, RubberLaw):
        return
    tested = max(
        elongation(test.programme.mode, float(strain))
        for test in record.tests
        for strain in (test.strain.min(), test.strain.max())
    )
    limits = law.stability_limits(parameters)
    near = [limit for limit in limits if limit.is_near(tested)]
    if not near:
        return
    yield Caveat(
        "not stable",
        f"law {law.name} is not stable (Drucker) with these parameters in {', '.join(map(str, near))}; the tests "
        f"stretch it by {tested:.3g}",
        "a calculation ends or goes astray there: add a test of that mode, or choose a law that is stable",
    )


# _FELT: share of the stress by which solvers must part from a law's tests to be told.
_FELT = 0.01


def reference_rate_caveats(law: Law, parameters: Array, record: MeasuredRecord) -> Iterator[Caveat]:
    """Tests slower than Johnson and Cook's reference rate, parameters [all]: solvers keep the stress of that rate."""
    values = {p.name: float(value) for p, value in zip(law.parameters, parameters, strict=True)}
    rates = [test.rate for test in record.tests if test.rate is not None]
    if not rates or not {"C", "reference_rate"} <= {*values}:
        return
    slowest, reference = min(rates), values["reference_rate"]
    factor = 1.0 + values["C"] * np.log(slowest / reference)
    if factor < 1.0 - _FELT:
        more = f"{100 * (1 / factor - 1):.3g} % more" if factor > 0.0 else "far more"
        yield Caveat(
            "tests below the reference rate",
            f"a test at {slowest:g} 1/s is slower than the reference rate, {reference:g} 1/s, below which solvers keep "
            f"the stress: that is {more} than law and test have",
            f"for a solver fit with the slowest rate, --fix=reference_rate={slowest:g}",
        )


# _ONE_TEMPERATURE: degrees by which tests of one answer may differ, as rooms do.
_ONE_TEMPERATURE = 20.0


def condition_caveats(law: Law, tests: Iterable[MeasuredTest], separate: str) -> Iterator[Caveat]:
    """Tests at several temperatures under a law that has none; `separate` says how each gets an answer."""
    found = {t.celsius for t in tests if t.celsius is not None and t.temperature is None}
    if found and max(found) - min(found) > _ONE_TEMPERATURE:
        several = ", ".join(f"{celsius:.4g}" for celsius in sorted(found))
        yield Caveat(
            "several temperatures",
            f"the tests were at {several} °C, and law {law.name} has no temperature: what fits all holds at none",
            separate,
            blocks=True,
        )


def derivative_caveats(law: Law, labels: Array, record: MeasuredRecord) -> Iterator[Caveat]:
    """A law whose derivatives at the answer, labels [identified], are not finite: fit and intervals rest on them."""
    with np.errstate(all="ignore"):
        bad = ~np.isfinite(law.label_derivatives(record.driven, labels[None])[0])
    if not bad.any():
        return
    point, parameter = np.argwhere(bad)[0]
    yield Caveat(
        "derivatives not finite",
        f"the derivative of law {law.name} by {law.identified[parameter].name} is not finite at {bad.any(1).sum()} "
        f"of {len(bad)} points, first at point {point + 1}",
        "the fit and its intervals rest on it: `tfmat laws FILE:LAW` says where the law fails",
        blocks=True,
    )
