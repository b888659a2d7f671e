"""What a further test is expected to tell: against the closed form of a linear law, and against what then happens."""

import dataclasses

import numpy as np
import pytest

from tfmat.identification.next_test import Gains, Specimen, intervals, known_of
from tfmat.materials.law import History, TestSet
from tfmat.materials.registry import find_law

# Written down before the first run, beside three standard errors: of nats, and of logarithms of widths.
NEAR, SMALL_ERROR = 0.02, 0.2
# Linear in both parameters on these scales, and the posterior is far from the ends of their ranges.
LAW = find_law("mooney_rivlin", scales={"C10": "linear"})
TRUTH = LAW.to_labels([[0.5, 0.15]])[0]
NOISE = 0.02


def specimen(seed=0, stretch=3.0, points=24, law=LAW, truth=TRUTH):
    """A simulated tension test."""
    tests = TestSet((History("uniaxial", strain=np.linspace(0, stretch - 1, points)[None]),), NOISE)
    answer = law.label_stress(tests, truth[None])[0]
    response = answer + np.random.default_rng(seed).standard_normal(points)
    return Specimen(law, tests, response, (NOISE, 1e-5), points, (np.inf, np.inf))


def further(mode, stretch=2.0, noise=NOISE, points=16):
    return TestSet((History(mode, strain=np.linspace(0, stretch - 1, points)[None]),), noise)


def exact(law, tests, test):
    """Gain in nats and ln of the ratio of the labels' standard deviations, of a law that is linear."""
    first, second = (law.label_derivatives(each, TRUTH[None])[0] for each in (tests, test))
    before = first.T @ first
    after = before + second.T @ second
    gain = 0.5 * (np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1])
    widths = [np.sqrt(np.diag(np.linalg.inv(each))) for each in (before, after)]
    return gain, np.log(widths[1] / widths[0])


@pytest.fixture(scope="module")
def linear():
    one = specimen()
    known, replicate = known_of(one, TRUTH[None])
    assert known.certificate.is_exact and known.effective_draws > 1000
    return one, known, Gains(one, known, replicate, lambda labels: labels)


@pytest.mark.parametrize(
    ("mode", "noise", "sampled"),
    [
        ("uniaxial", 0.02, False),
        ("equibiaxial", 0.1, False),
        ("planar", 0.02, False),
        # So exact that weights stand on few draws.
        ("equibiaxial", 0.0005, True),
    ],
)
def test_a_linear_law_s_gain_has_a_closed_form(linear, mode, noise, sampled):
    one, _, gains = linear
    test = further(mode, noise=noise)
    expected, ratio = exact(one.law, one.tests, test)
    found = gains.of(test)
    assert found.sampled == sampled and found.failed == 0
    assert found.nats_error < SMALL_ERROR
    assert abs(found.nats - expected) < 3 * found.nats_error + NEAR
    assert (np.abs(found.log_ratio - ratio) < 3 * found.log_ratio_error + NEAR).all()


def test_a_test_that_tells_nothing_gains_nothing(linear):
    _, _, gains = linear
    found = gains.of(further("uniaxial", noise=1e3))
    assert abs(found.nats) < 1e-3
    np.testing.assert_allclose(found.log_ratio, 0.0, atol=1e-3)


def test_what_is_expected_is_what_happens():
    """Eight specimens with parameters drawn from their ranges, each then tested again in another mode."""
    law, rise, expected, error = find_law("neo_hooke"), [], [], []
    random = np.random.default_rng(1)
    for seed in range(8):
        truth = random.random(1)
        one = specimen(seed, stretch=1.3, points=16, law=law, truth=truth)
        known, replicate = known_of(one, truth[None], replicates=4)
        test = further("equibiaxial", stretch=1.2)
        gains = Gains(one, known, replicate, lambda labels: labels)
        found = gains.of(test)
        answer = law.label_stress(test, truth[None])[0] + random.standard_normal(16)
        both = dataclasses.replace(
            one,
            tests=TestSet((*one.tests.histories, *test.histories), NOISE),
            response=np.concatenate([one.response, answer]),
        )
        after, _ = known_of(both, truth[None], replicates=4)
        width = np.diff(intervals(after.labels, np.exp(after.log_weights))).ravel()
        rise.append(np.log(width / np.diff(gains.before).ravel()))
        expected.append(found.log_ratio)
        error.append(found.log_ratio_error)
    difference = np.array(rise) - np.array(expected)
    standard_error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert abs(difference.mean()) < 3 * standard_error + NEAR
    assert np.mean(expected) < -0.3
