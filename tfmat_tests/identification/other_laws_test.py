"""Whether curves of other laws are told apart: false alarms, warnings, and the evidence itself."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from tfmat.identification.least_squares import LawComparison, compare_laws, fit
from tfmat.materials import find_law
from tfmat.records.simulation import CurveSettings, Simulator, split_features

OWN, OTHERS = "hahn_tsai", ("tanh_shear", "exponential_shear")


def compared(features):
    """Hahn-Tsai's fits of simulated curves beside the fits of all other laws of shear."""
    law, points = find_law(OWN), split_features(features)
    own = fit(law, *points).rmse_mpa
    return compare_laws(law, own, points[2].sum(axis=1), lambda one: fit(one, *points).rmse_mpa)


def simulated(law, start, count, **settings):
    return Simulator(CurveSettings(law, **settings), seed=8).curves(start, start + count).features


def test_curves_of_other_shear_laws_are_told_from_hahn_tsai_s(run_all):
    """The goals of docs/benchmark.md; all curves break off at the same strengths, so their length tells nothing."""
    count = 4_000 if run_all else 1_000
    own, law = compared(simulated(OWN, 0, count)), find_law(OWN)
    assert sum(better is not None for better in own.better()) <= 0.02 * count
    strength = CurveSettings(OWN).resolved().strength_mpa
    for name in OTHERS:
        different, start = [], 0
        while sum(map(len, different)) < count:
            silent = simulated(name, start, count, strength_mpa=strength, noise_mpa=0.0)
            strain, stress, valid = split_features(silent)
            best = law.stress(strain, fit(law, strain, stress, valid).values)
            # Without noise, somewhere more than three times the noise of 1 MPa away from the best fit.
            apart = np.where(valid, np.abs(best - stress), 0.0).max(axis=1) > 3.0
            different.append(simulated(name, start, count, strength_mpa=strength)[apart])
            start += count
        found = compared(np.concatenate(different)[:count])
        scores = [np.max(list(each.evidence.values()), axis=0) for each in (found, own)]
        area = scipy.stats.mannwhitneyu(*scores).statistic / count**2
        named = np.mean([better is not None and better[0] == name for better in found.better()])
        assert area >= 0.95 and named >= 0.95, name


def test_the_evidence_is_that_of_the_best_fits():
    """Residuals of scipy's fits, and the Bayesian information criterion for noise of unknown level."""
    settings = CurveSettings("tanh_shear", strength_mpa=(60.0, 140.0))
    strain, stress, valid = split_features(Simulator(settings, 0).curves(0, 12).features)
    law, other = find_law("hahn_tsai"), find_law("tanh_shear")
    found = compare_laws(
        law,
        fit(law, strain, stress, valid).rmse_mpa,
        valid.sum(axis=1),
        lambda one: fit(one, strain, stress, valid).rmse_mpa,
    )
    assert set(found.evidence) == {"tanh_shear", "exponential_shear"}
    for i in range(12):
        points = strain[i][valid[i]], stress[i][valid[i]]
        squares = [_least_squares(one, *points) for one in (law, other)]
        expected = len(points[0]) * np.log(squares[0] / squares[1])
        assert found.evidence["tanh_shear"][i] == pytest.approx(expected, rel=1e-3, abs=0.05)


def _least_squares(law, strain, stress):
    """The least sum of squares that scipy finds from three starts."""

    def residuals(labels):
        return law.stress(strain[None], law.from_labels(labels[None]))[0] - stress

    results = [
        scipy.optimize.least_squares(residuals, start, bounds=(0, 1), xtol=1e-12, ftol=1e-12)
        for start in ([0.3, 0.3], [0.7, 0.6], [0.5, 0.9])
    ]
    return min(2 * result.cost for result in results)


def test_the_law_that_the_ranking_puts_first_is_named():
    """A law of more parameters has a smaller error and less evidence; a third one is not clearly better."""
    errors = {"hockett_sherby": 5.0, "voce": 5.05, "ludwik": 9.0}
    evidence = {"hockett_sherby": 100.0, "voce": 110.0, "ludwik": 120.0}
    found = LawComparison(
        np.array([10.0]),
        {name: np.array([error]) for name, error in errors.items()},
        {name: np.array([value]) for name, value in evidence.items()},
    )
    assert found.better() == [("voce", 5.05)]
