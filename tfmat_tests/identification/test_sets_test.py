"""Least squares, likelihood and Bayes risk of records of several tests, against scipy and integrals on a grid."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from tfmat.identification import least_squares
from tfmat.identification.evaluate import bayes_risk
from tfmat.identification.least_squares import fit, fit_with_noise
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors
from tfmat.materials import History, HistoryLaw, Parameter, find_law
from tfmat.materials.law import TestSet
from tfmat.materials.numerics import Residuals, minimise
from tfmat.records.simulation import CurveSettings, Simulator, observed


def _records(count=12, **options):
    settings = CurveSettings(**{"law": "ogden", "num_points": 24, "missing_tests": 0.3, **options})
    simulator = Simulator(settings, seed=5)
    curves = simulator.curves(0, count)
    return settings, simulator, curves, observed(settings, curves.features)


def test_the_fit_finds_what_scipy_finds_from_the_truth():
    _, simulator, curves, (tests, response, valid) = _records()
    law = simulator.law
    found = fit(law, tests, response, valid)
    for i in range(len(response)):
        one, there = tests[i : i + 1], valid[i]

        def residuals(labels, one=one, there=there, i=i):
            return (law.label_stress(one, labels[None])[0] - response[i])[there]

        start = curves.labels[i].astype(np.float64)
        expected = scipy.optimize.least_squares(
            residuals, start, bounds=(0, 1), xtol=1e-12, ftol=1e-12
        )
        cost = 0.5 * (residuals(found.labels[i]) ** 2).sum()
        # Half of chi squared: a twentieth of it is nothing beside the half that one standard deviation costs. Two Ogden
        # terms leave long, bent valleys in which both searches may end a little apart.
        assert cost <= expected.cost + 0.05
    np.testing.assert_array_equal(found.labels, law.sorted_labels(found.labels))
    # In units of the noise, as `observed` gives them.
    assert 0.9 < np.median(found.sigma) < 1.1


def test_the_density_is_that_of_the_points_and_of_the_breaks():
    settings, simulator, _, (tests, response, valid) = _records(200, law="neo_hooke")
    law, noise = simulator.law, settings.resolved().noise_mpa
    low, high = settings.resolved().strength_mpa
    tried = np.linspace(0.02, 0.98, 7)[:, None]
    broken = 0
    many = SimulatedErrors(law, NoiseModel.of(settings), tests, response, valid)
    for i, one in enumerate(many.each()):
        stress = law.label_stress(tests[i : i + 1], tried) * noise
        expected = scipy.stats.norm.logpdf(response[i] * noise, stress, noise)[:, valid[i]].sum(
            axis=1
        )
        held, broke = np.full(7, low), np.full(7, high)
        for test in range(3):
            part = slice(24 * test, 24 * (test + 1))
            count = valid[i, part].sum()
            if count:
                held = np.maximum(held, stress[:, part][:, : count - 1].max(axis=1))
            if 0 < count < 24:
                broke = np.minimum(broke, stress[:, part][:, count - 1])
                broken += 1
        share = np.maximum(np.minimum(broke, high) - np.minimum(held, high), 0.0) / (high - low)
        with np.errstate(divide="ignore"):
            expected = expected + np.log(share)
        density = one.log_density(tried)
        possible = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(density), possible)
        if possible.any():
            difference = (density - expected)[possible]
            np.testing.assert_allclose(difference, difference[0], rtol=1e-9, atol=1e-6)
    assert broken > 5


def test_interchangeable_terms_are_possible_in_one_order_only():
    class TwoSprings(HistoryLaw):
        name = title = formula = source = "two_springs"
        parameters = (Parameter("k1", "MPa", 1.0, 2.0), Parameter("k2", "MPa", 1.0, 2.0))
        strain_measure = stress_measure = "engineering"
        interchangeable = (("k1",), ("k2",))

        def respond(self, history, parameters):
            return parameters.sum(axis=1, keepdims=True) * history.driven

    tests = TestSet((History(strain=np.linspace(0.0, 1.0, 5)[None]),))
    noise = NoiseModel(1.0, 0.0, None, 5)
    one = SimulatedErrors(TwoSprings(), noise, tests, 3.0 * np.linspace(0, 1, 5)[None])
    density = one.log_density(np.array([[0.7, 0.2], [0.2, 0.7]]))
    assert np.isfinite(density[0]) and density[1] == -np.inf


def test_posteriors_hold_the_truth_as_often_as_they_say():
    # Mooney-Rivlin has two parameters: integrated. The mean of 300 squared errors over their variances is 1 with a
    # standard deviation of about sqrt(2 / 300) = 0.08; four of them are allowed.
    settings, _, curves, _ = _records(300, law="mooney_rivlin")
    risk = bayes_risk(settings, curves.features)
    assert risk.method == "quadrature"
    np.testing.assert_allclose(risk.calibration(curves.labels), 1.0, atol=0.33)


def test_noise_in_proportion_weighs_the_points():
    _, simulator, curves, (tests, response, valid) = _records(
        6, law="neo_hooke", noise_relative=0.05
    )
    found = fit_with_noise(simulator.law, tests, response, valid, 1.0, 0.05)
    assert np.abs(found.labels - curves.labels).max() < 0.05
    assert 0.7 < np.median(found.sigma) < 1.3


def test_more_starts_are_never_worse(monkeypatch):
    _, simulator, _, (tests, response, valid) = _records(4, law="ogden_3", missing_tests=0.0)
    many = fit(simulator.law, tests, response, valid).rmse_mpa
    monkeypatch.setattr(least_squares, "_STARTS_ON_TESTS", 1)
    assert (many <= fit(simulator.law, tests, response, valid).rmse_mpa * (1 + 1e-6)).all()


@pytest.mark.parametrize(
    ("rubber", "name", "squares"),
    [
        # Treloar with Ogden: 200 starts of an independent code. The rest: SciPy without ranges.
        ("rubber_treloar_1944", "ogden_1", 7.4818),
        ("rubber_treloar_1944", "ogden", 1.5769),
        ("rubber_treloar_1944", "ogden_3", 0.20849),
        ("rubber_treloar_1944", "yeoh", 1.0088),
        ("rubber_treloar_1944", "arruda_boyce", 1.1650),
        ("rubber_meunier_2008", "ogden", 0.085584),
        ("rubber_meunier_2008", "ogden_3", 0.016286),
        ("rubber_meunier_2008", "mooney_rivlin", 0.25239),
    ],
)
def test_three_tests_of_rubber_end_at_the_best_known_minimum(real_curves, rubber, name, squares):
    histories, responses = [], []
    for file, mode in (("UT", "uniaxial"), ("ET", "equibiaxial"), ("PS", "planar")):
        stress, stretch = np.loadtxt(real_curves / rubber / f"{file}.txt").T
        histories.append(History(mode, strain=stretch[None] - 1.0))
        responses.append(stress)
    law, tests, response = find_law(name), TestSet(tuple(histories)), np.concatenate(responses)
    found = fit(law, tests, response[None])
    residuals = law.label_stress(tests, found.labels)[0] - response
    assert (residuals**2).sum() <= 1.002 * squares


def test_searches_of_a_law_with_time_end_where_scipy_does():
    """Relaxation of Norton's law, by scipy from the truth."""
    law, truth = find_law("norton"), np.array([[150e3, 2000.0, 5.0]])
    time = np.concatenate([np.linspace(0.0, 10.0, 8), 10.0 + np.geomspace(1.0, 1e5, 16)])
    tests = TestSet((History(strain=0.002 * np.minimum(time / 10.0, 1.0)[None], time=time[None]),))
    noise = np.random.default_rng(1).normal(0.0, 1.0, (1, len(time)))
    stress = law.label_stress(tests, law.to_labels(truth)) + noise
    start = np.clip(law.to_labels(truth) + np.linspace(-0.3, 0.3, 7)[:, None], 0.0, 1.0)
    points = Residuals(law, tests, np.repeat(stress, 7, axis=0), np.ones((7, len(time))))
    found = minimise(points, start)
    expected = scipy.optimize.least_squares(
        lambda labels: law.label_stress(tests, labels[None])[0] - stress[0],
        law.to_labels(truth)[0],
        xtol=1e-12,
        ftol=1e-12,
    )
    np.testing.assert_allclose(found.labels[found.cost.argmin()], expected.x, atol=1e-5)
    # Those that are far above the best when it has converged give up; the best stays the best.
    given_up = minimise(points, start, rivalry=(1.5, 3))
    assert given_up.iterations.sum() < found.iterations.sum()
    np.testing.assert_allclose(given_up.cost.min(), found.cost.min(), rtol=1e-9)
