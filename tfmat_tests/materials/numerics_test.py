"""Modes of posteriors against scipy's minimiser and the logistic distribution."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from tfmat.materials import find_law, numerics
from tfmat.materials.law import History, TestSet
from tfmat.materials.numerics import LogitResiduals, Residuals, likely_modes, minimise

STRAIN = np.linspace(0.0, 0.04, 120)[None]


def _logit(labels):
    return np.log(labels / (1.0 - labels))


def _records(law, count, noise=1.0, strain=STRAIN, seed=0):
    random = np.random.default_rng(seed)
    labels = random.uniform(0.1, 0.9, (count, len(law.identified)))
    labels = law.sorted_labels(labels)
    stress = law.label_stress(strain, labels)
    stress = stress + noise * random.standard_normal(stress.shape)
    weights = np.full(stress.shape, 1.0 / noise)
    if not isinstance(strain, TestSet):
        strain = np.repeat(strain, count, axis=0)
    return labels, LogitResiduals(law, strain, stress, weights)


def test_half_the_square_of_the_prior_s_residual_is_the_logistic_distribution():
    law = find_law("voce")
    _, residuals = _records(law, 1)
    places = np.linspace(0.02, 0.98, 33)[:, None] * np.ones(4)
    many = residuals.rows(np.zeros(33, int))
    found = many.values(places)[:, -4:]
    logits = 16.0 * (places - 0.5)
    expected = scipy.stats.logistic.logpdf(0.0) - scipy.stats.logistic.logpdf(logits)
    np.testing.assert_allclose(0.5 * found**2, expected, atol=1e-12)
    # The derivatives of all residuals, by differences.
    step = 1e-6
    normal, gradient = many.normal_equations(places)
    for i in range(4):
        above, below = places.copy(), places.copy()
        above[:, i] += step
        below[:, i] -= step
        half = 0.5 * (many.values(above) ** 2).sum(axis=1)
        half -= 0.5 * (many.values(below) ** 2).sum(axis=1)
        np.testing.assert_allclose(gradient[:, i], half / (2 * step), rtol=1e-3, atol=10.0)
        slope = (many.values(above) - many.values(below)) / (2 * step)
        np.testing.assert_allclose(normal[:, i, i], (slope**2).sum(axis=1), rtol=1e-3)


@pytest.mark.parametrize(("name", "scale"), [("hahn_tsai", 1.0), ("voce", 20.0)])
def test_a_mode_is_that_of_scipy_and_its_covariance_that_of_the_curvature(name, scale):
    law = find_law(name)
    labels, residuals = _records(law, 3, noise=scale)
    spread = np.full(labels.shape[1], 0.1)
    logits, covariance, left = likely_modes(residuals, np.clip(labels + 0.05, 0.01, 0.99), spread)

    def minus_log_posterior(y, row):
        label = 1.0 / (1.0 + np.exp(-y))
        misfit = (law.label_stress(STRAIN, label[None]) - residuals.stress[row])[0] / scale
        return 0.5 * misfit @ misfit - scipy.stats.logistic.logpdf(y).sum()

    for row in range(len(labels)):
        best = scipy.optimize.minimize(
            minus_log_posterior, _logit(labels[row]), (row,), "Nelder-Mead",
            options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 8000, "maxfev": 8000},
        )  # fmt: skip
        ours = minus_log_posterior(logits[row], row)
        # Never less likely than from the truth on but for the search's tolerance, a share of its cost.
        assert ours <= best.fun + 0.15
        std = np.sqrt(np.diag(covariance[row]))
        if ours > best.fun - 0.01:
            assert np.abs((logits[row] - best.x) / std).max() < 0.5
        label = 1.0 / (1.0 + np.exp(-logits[row]))
        slopes = (law.label_derivatives(STRAIN, label[None])[0] / scale) * (label * (1 - label))
        information = slopes.T @ slopes + np.diag(_squared_slope(logits[row]))
        np.testing.assert_allclose(std, np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-5)
        misfit = law.label_stress(STRAIN, label[None])[0] - residuals.stress[row]
        assert left[row] == pytest.approx((misfit**2).sum() / scale**2, rel=1e-6)


def _squared_slope(y):
    residual = np.sign(y) * np.sqrt(4.0 * np.log(np.cosh(y / 2.0)))
    return (np.tanh(y / 2.0) / residual) ** 2


def test_long_bent_valleys_are_followed_to_a_mode_no_less_likely_than_the_truth():
    """By one search of at most forty steps; the damping by the diagonal of before left 22 of these 100 short."""
    law = find_law("voce_chaboche")
    strain = 0.02 * np.interp(np.linspace(0, 8, 100), range(9), [0, 1, -1, 1, -1, 1, -1, 1, -1])
    tests = TestSet((History("uniaxial", strain=strain[None]),))
    labels, residuals = _records(law, 100, strain=tests)
    places = 0.5 + _logit(labels) / 16.0
    start = labels + 0.12 * np.random.default_rng(1).standard_normal(labels.shape)
    start = law.sorted_labels(np.clip(start, 0.01, 0.99))
    found = minimise(residuals, 0.5 + _logit(start) / 16.0, 40, 3e-4)
    short = found.cost > 0.5 * np.square(residuals.values(places)).sum(axis=1)
    assert short.sum() <= 5


def test_what_a_record_does_not_tell_stays_in_the_middle_as_wide_as_its_range():
    law = find_law("voce")
    _, residuals = _records(law, 3, noise=1e6)
    logits, covariance, _ = likely_modes(residuals, np.full((3, 4), 0.8), np.full(4, 0.1))
    np.testing.assert_allclose(logits, 0.0, atol=0.05)
    # The curvature of the logistic distribution at its mode is a half.
    np.testing.assert_allclose(np.einsum("cii->ci", covariance), 2.0, rtol=0.01)


def test_searches_that_end_at_a_wrong_mode_begin_anew():
    """Starts all over the ranges: a search by itself ends elsewhere for many of these records."""
    law = find_law("voce")
    labels, residuals = _records(law, 100, strain=0.08 * np.linspace(0.0, 1.0, 150)[None] ** 2)
    start = np.random.default_rng(1).uniform(0.1, 0.9, labels.shape)
    _, _, left = likely_modes(residuals, start, np.full(4, 0.3))
    # Twice the expected sum of squares is 17 standard deviations.
    assert (left > 2.0 * 150).mean() < 0.1
    alone, _, _ = likely_modes(residuals.rows(slice(7, 8)), start[7:8], np.full(4, 0.3))
    together, _, _ = likely_modes(residuals, start, np.full(4, 0.3))
    np.testing.assert_allclose(alone[0], together[7], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("record", "misfit", "expected"),
    # Noise alone; a little more than noise; far more; and far more where the first search ends at a wrong mode.
    [(3, 0.0, 1), (3, 0.7, 2), (3, 3.0, 3), (2, 3.0, 4)],
)
def test_searches_go_on_until_others_have_ended_alike(record, misfit, expected, monkeypatch):
    """One other where little more is left than noise leaves, two where far more is; a better mode is not alike."""
    labels, residuals = _records(
        find_law("voce"), 30, strain=0.08 * np.linspace(0.0, 1.0, 150)[None] ** 2
    )
    start = np.random.default_rng(1).uniform(0.1, 0.9, labels.shape)
    residuals.stress = residuals.stress + misfit * np.sin(np.arange(150))
    costs = []

    def counted(*given):
        found = minimise(*given)
        costs.append(float(found.cost[0]))
        return found

    monkeypatch.setattr(numerics, "minimise", counted)
    _, _, left = likely_modes(residuals.rows([record]), start[[record]], np.full(4, 0.3))
    assert len(costs) == expected
    assert left[0] == pytest.approx(2.0 * min(costs), rel=0.05)
    assert (costs[0] > 10.0 * min(costs)) == (expected == 4)


def test_terms_that_can_change_places_are_in_their_order():
    law = find_law("voce_chaboche")
    strain = 0.02 * np.interp(np.linspace(0, 6, 200), range(7), [0, 1, -1, 1, -1, 1, -1])
    tests = TestSet((History("uniaxial", strain=strain[None]),))
    labels, residuals = _records(law, 20, strain=tests)
    names = [parameter.name for parameter in law.identified]
    swapped = labels.copy()
    for one, other in (("C1", "C2"), ("gamma1", "gamma2")):
        swapped[:, [names.index(one), names.index(other)]] = labels[
            :, [names.index(other), names.index(one)]
        ]
    logits, covariance, _ = likely_modes(residuals, swapped, np.full(8, 0.1))
    assert (logits[:, names.index("gamma1")] >= logits[:, names.index("gamma2")]).all()
    assert (np.linalg.eigvalsh(covariance) > 0.0).all()


def test_a_law_that_overflows_has_its_prior_for_an_answer():
    law = find_law("voce")
    _, residuals = _records(law, 2)
    residuals.stress[1] = np.nan
    logits, covariance, left = likely_modes(residuals, np.full((2, 4), 0.4), np.full(4, 0.1))
    assert np.isfinite(logits).all() and np.isfinite(covariance).all()
    assert left[1] > 1e9 and left[0] < 1e3
    np.testing.assert_array_equal(logits[1], 0.0)


class _Rosenbrock:
    """H. H. Rosenbrock's valley (Computer J. 3 (1960) 175-184), a thousand times as steep, with its end at (1, 1)."""

    solves = False

    def label_stress(self, strain, labels):
        x, y = (4.0 * labels - 2.0).T
        return np.stack([1e4 * (y - x**2), 1.0 - x], axis=1)

    def label_derivatives(self, strain, labels):
        x = 4.0 * labels[:, 0] - 2.0
        rows = np.array([[-2e4 * x, np.full_like(x, 1e4)], [-np.ones_like(x), np.zeros_like(x)]])
        return 4.0 * np.moveaxis(rows, 2, 0)


def test_a_bent_valley_is_followed_in_few_steps():
    start = (np.array([[-1.2, 1.0], [0.5, -1.0]]) + 2.0) / 4.0
    points = Residuals(_Rosenbrock(), np.zeros((2, 2)), np.zeros((2, 2)), np.ones((2, 2)))
    found = minimise(points, start, 200)
    assert found.converged.all()
    np.testing.assert_allclose(found.labels, 0.75, atol=1e-6)
