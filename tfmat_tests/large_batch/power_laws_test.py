"""The fit of power laws against laws with known constants, against scipy's curve_fit, and its intervals' coverage."""

import math

import numpy as np
import pytest
from scipy.optimize import curve_fit

from tfmat.large_batch.sweeps import fit_power_law

CURVES = np.array([5e3, 1e4, 2e4, 4e4])
NETWORKS = np.array([8e4, 1.6e5, 3.2e5])


def law(curves, networks, limit, a, alpha, b, beta):
    """Of numbers that are errors at 14,000 curves and 160,000 parameters."""
    return limit + a * (curves / 1.4e4) ** -alpha + b * (networks / 1.6e5) ** -beta


def runs(networks, seeds):
    """[runs] curves and parameters: each pair so many times."""
    pairs = np.meshgrid(CURVES, networks)
    return tuple(np.tile(each.ravel(), seeds) for each in pairs)


def test_known_constants_are_found_again():
    curves, networks = runs(NETWORKS, 1)
    truth = (1.1, 0.5, 0.6, 0.2, 0.9)
    found = fit_power_law(curves, networks, law(curves, networks, *truth), floor=1.0)
    alpha, beta = found.exponents()
    assert (alpha.value, beta.value) == pytest.approx((0.6, 0.9), rel=1e-3)
    assert found.error().value == pytest.approx(1.1, rel=1e-3)
    # Sizes that were not measured, and back.
    assert found.error(4e5, 6.4e5).value == pytest.approx(law(4e5, 6.4e5, *truth), rel=1e-3)
    wanted = law(2e5, 1.6e5, *truth)
    assert found.examples_for(wanted, 1.6e5).value == pytest.approx(2e5, rel=0.01)
    wanted = law(4e4, 1e6, *truth)
    assert found.parameters_for(wanted, 4e4).value == pytest.approx(1e6, rel=0.01)
    assert found.parameters_for(wanted).value < 1e6
    assert found.misfit < 1e-6


def test_the_fit_is_that_of_curve_fit():
    curves, networks = runs(NETWORKS[1:2], 3)
    random = np.random.default_rng(5)
    errors = law(curves, 1.6e5, 0.3, 0.5, 0.7, 0.0, 1.0) * np.exp(0.03 * random.normal(size=12))
    found = fit_power_law(curves, networks, errors)

    def logarithm(curves, limit, a, alpha):
        return np.log(law(curves, 1.6e5, limit, a, alpha, 0.0, 1.0))

    best, covariance = curve_fit(logarithm, curves, np.log(errors), (0.1, 0.3, 1.0), xtol=1e-12)
    assert found.error().value == pytest.approx(best[0], rel=1e-3)
    assert found.exponents()[0].value == pytest.approx(best[2], rel=1e-3)
    assert found.error(2e5).value == pytest.approx(math.exp(logarithm(2e5, *best)), rel=1e-4)
    residuals = logarithm(curves, *best) - np.log(errors)
    assert found.misfit == pytest.approx(np.sqrt((residuals**2).sum() / 9), rel=1e-4)
    # Where the law is nearly linear, its interval is the classical one: 1.83 standard errors for 9 degrees of freedom.
    slopes = np.array(
        [(logarithm(1e4, *(best + d)) - logarithm(1e4, *best)) / 1e-4 for d in 1e-4 * np.eye(3)]
    )
    classical = 1.83 * math.sqrt(slopes @ covariance @ slopes)
    middle = found.error(1e4)
    assert math.log(middle.high / middle.low) / 2 == pytest.approx(classical, rel=0.25)


def test_a_floor_is_taken_off_and_put_back():
    curves, networks = runs(NETWORKS[:1], 1)
    errors = np.array([0.9, 0.6, 0.5, 0.4])
    without = fit_power_law(curves, networks, errors)
    above = fit_power_law(curves, networks, 1.0 + errors, floor=1.0)
    assert above.error(8e4).high == pytest.approx(1.0 + without.error(8e4).high, rel=1e-6)
    with pytest.raises(ValueError, match="not all above 1"):
        fit_power_law(curves, networks, errors, floor=1.0)


def test_what_nothing_reaches_is_infinite():
    curves, networks = runs(NETWORKS, 2)
    random = np.random.default_rng(0)
    errors = law(curves, networks, 0.5, 0.3, 0.9, 0.1, 0.9) * np.exp(0.01 * random.normal(size=24))
    found = fit_power_law(curves, networks, errors)
    needed = found.examples_for(0.3, 1.6e5)
    assert (needed.value, needed.low, needed.high) == (math.inf,) * 3
    assert found.parameters_for(0.3).value == math.inf
    # Between what the largest runs reached (0.717) and their limit (0.6) there is a number.
    assert 4e4 < found.examples_for(0.65, 1.6e5).value < math.inf


def test_errors_that_do_not_fall_are_told():
    """By chance 5 % seem to fall; at most 2 of 6 is the binomial's 0.99 quantile."""
    curves, networks = runs(NETWORKS[:1], 2)
    seemed = 0
    for seed in range(6):
        scatter = np.exp(0.1 * np.random.default_rng(seed).normal(size=8))
        found = fit_power_law(curves, networks, scatter)
        seemed += found.fall(5e3, 4e4).low > 0.02
        assert found.examples_for(0.3).high == math.inf
        falling = law(curves, 1.6e5, 0.2, 1.0, 0.5, 0.0, 1.0) * scatter**0.5
        assert fit_power_law(curves, networks, falling).fall(5e3, 4e4).low > 0.2
    assert seemed <= 2


def test_too_few_sizes_or_networks_are_no_law():
    for curves, networks in (([1, 2, 3, 3], [1] * 4), ([1, 2, 3, 4], [1, 1, 2, 2])):
        with pytest.raises(ValueError, match="numbers of examples"):
            fit_power_law(np.array(curves), np.array(networks), np.array([4.0, 3.0, 2.0, 1.5]))
    one = fit_power_law(np.array([1, 2, 3, 4]), np.ones(4), np.array([4.0, 3.0, 2.0, 1.5]))
    with pytest.raises(ValueError, match="one network"):
        one.parameters_for(1.0)


def hits(networks, seeds, studies):
    """How many studies hold the truth in an interval; seeds scatter by 1 to 10 %, half have no limit but it."""
    random, held = (
        np.random.default_rng(1),
        dict.fromkeys(("alpha", "limit", "next", "far", "curves"), 0),
    )
    curves, parameters = runs(networks, seeds)
    several = len(networks) > 1
    for study in range(studies):
        limit = 1e-6 if study % 2 and not several else random.uniform(0.05, 0.4)
        term, other = ((random.uniform(0.1, most), random.uniform(0.3, 1.2)) for most in (1.0, 0.5))
        truth = (1.0 + limit, *term, *(other if several else (0.0, 1.0)))
        scatter = np.exp(random.uniform(0.01, 0.1) * random.normal(size=len(curves)))
        errors = 1.0 + (law(curves, parameters, *truth) - 1.0) * scatter
        found = fit_power_law(curves, parameters, errors, floor=1.0, seed=study)
        middle, true = (
            networks[len(networks) // 2],
            [law(n, 1.6e5, *truth) for n in (8e4, 4e5, 1e99)],
        )
        for name, estimate, value in (
            ("alpha", found.exponents()[0], term[1]),
            ("next", found.error(8e4, middle), true[0]),
            ("far", found.error(4e5, middle), true[1]),
            ("limit", found.error(parameters=middle), true[2]),
            ("curves", found.examples_for(true[0], middle), 8e4),
        ):
            # The limit of a law without one is the end of its interval, to the fit's own smallest number.
            held[name] += estimate.low - 1e-3 <= value <= estimate.high
    return held


@pytest.mark.parametrize(
    ("networks", "studies", "least"), [(NETWORKS[1:2], 20, 13), (NETWORKS, 8, 4)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(networks, studies, least):
    """90 % of the studies, within four standard deviations of the binomial."""
    held = hits(networks, seeds=2, studies=studies)
    assert min(held.values()) >= least, held
