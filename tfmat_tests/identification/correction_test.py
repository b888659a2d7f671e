"""Corrected posteriors: against the grid, under injected misfit, and what certificates say when it goes wrong."""

import csv
import types

import numpy as np
import pytest
import scipy.stats

import tfmat
from tfmat.cli.identify import write_csv
from tfmat.curves.apparatus import specimen_strain
from tfmat.curves.example import example_curve
from tfmat.curves.records import observed
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.identification import correction, side_by_side
from tfmat.identification.certificate import Certificate, Posterior
from tfmat.identification.classical import ClassicalAnswer
from tfmat.identification.correction import correct
from tfmat.identification.correlated_errors import correlations
from tfmat.identification.draws import Draws, independent_normal
from tfmat.identification.least_squares import fit
from tfmat.identification.likelihood import Likelihoods, NoiseModel
from tfmat.identification.measured_likelihood import MeasuredLikelihoods, MeasuredTests
from tfmat.identification.posterior_grid import likelihoods, posterior_moments
from tfmat.identification.predictions import Predicted
from tfmat.identification.unknown_errors import UnknownErrors
from tfmat.identification.values import recommended_method
from tfmat.materials import find_law


def simulated(count, law="hahn_tsai", **settings):
    """Likelihoods that know the law's own noise, best fits, true labels, and strain, stress and valid."""
    given = CurveSettings(law=law, **settings)
    simulator = Simulator(given, seed=11)
    curves = simulator.curves(0, count)
    points = observed(given, curves.features)
    many = Likelihoods(simulator.law, NoiseModel.of(CurveSettings(law=law)), *points)
    return many, fit(simulator.law, *points), curves.labels.astype(float), points


def guesses(fitted, samples=600, wider=3.0):
    """Draws as a network would give them that knows each label alone, three times as badly as it could."""
    std = np.clip(wider * fitted.label_std, 0.003, 0.2)
    return independent_normal(fitted.labels, std, samples, seed=0)


def test_corrected_samples_are_of_the_exact_posterior():
    many, fitted, _, _ = simulated(12)
    found, certificates = correct(many, guesses(fitted, 4000), 2000)
    assert {one.status for one in certificates} <= {"corrected", "resampled"}
    each = likelihoods(many.law, many.noise, many.strain, many.stress, many.valid)
    for i, one in enumerate(each):
        exact = posterior_moments(one, fitted.labels[i])
        worth = min(certificates[i].effective_draws, 2000)
        deviation = np.sqrt(exact.variance)
        # Five standard errors.
        assert (np.abs(found.mean[i] - exact.mean) < 5 * deviation / np.sqrt(worth)).all()
        spread = found.labels[i].var(axis=0) / exact.variance
        np.testing.assert_allclose(spread, 1.0, atol=5 * np.sqrt(2 / worth))
        assert certificates[i].posterior_predictive_p > 0.001
        # The mean of -log density is the entropy, near that of a normal density of this covariance.
        entropy = scipy.stats.multivariate_normal(cov=np.cov(found.labels[i].T)).entropy()
        assert abs(-found.log_density[i].mean() - entropy) < 0.25


def test_hopeless_draws_are_sampled_anew_and_say_so():
    many, fitted, _, _ = simulated(2)
    far = independent_normal(np.full((2, 2), 0.5), np.full((2, 2), 0.29), 400, seed=1)
    found, certificates = correct(many, far, 300, starts=fitted.labels[:, None])
    assert [one.status for one in certificates] == ["resampled", "resampled"]
    near, _ = correct(many, guesses(fitted), 300)
    np.testing.assert_allclose(found.mean, near.mean, atol=5 * near.std.max() / 10)


@pytest.mark.parametrize("about_modes", [True, False])
def test_the_number_of_processes_changes_no_digit(monkeypatch, about_modes):
    """Neither of sampling about the modes, nor where groups of curves are left to the adaptive sampler."""
    many, fitted, _, _ = simulated(7)
    monkeypatch.setattr(correction, "suits", lambda _: about_modes)
    monkeypatch.setattr(correction, "_TOGETHER", 2)
    told, answers = [], []
    for number in (1, 3):
        monkeypatch.setattr(side_by_side, "processors", lambda number=number: number)
        answers.append(
            correct(many, guesses(fitted, 300, 30.0), 150, progress=lambda *done: told.append(done))
        )
    (alone, certificates), (together, others) = answers
    np.testing.assert_array_equal(alone.labels, together.labels)
    np.testing.assert_array_equal(alone.log_density, together.log_density)
    assert certificates == others and "resampled" in {one.status for one in others}
    assert told[: len(told) // 2] == told[len(told) // 2 :] and told[-1] == (7, 7)
    assert told == sorted(told[: len(told) // 2]) * 2


def test_what_cannot_be_trusted_is_said():
    many, fitted, _, points = simulated(2)
    quieter = Likelihoods(many.law, NoiseModel(0.3, 0.0, None, 200), *points)
    draws = guesses(fitted)
    found, certificates = correct(quieter, draws, 300)
    for one in certificates:
        assert one.status == "do not trust" and "posterior predictive p" in one.reason
    np.testing.assert_array_equal(found.labels, draws.labels[:, :300])
    nowhere = Likelihoods(many.law, many.noise, *(array[:1] for array in points))
    nowhere.stress = nowhere.stress * np.nan
    first = Draws(draws.labels[:1], draws.log_density[:1])
    (one,) = correct(nowhere, first, 300)[1]
    assert one.status == "do not trust" and "not finite" in one.reason
    assert set(certificates[0].to_json()) >= {"status", "reason", "pareto_k", "effective_draws"}


def test_unknown_errors_are_student_distributed():
    """Without anything that is off, each correlation leaves a multivariate t density (SciPy)."""
    random = np.random.default_rng(0)
    residuals = random.normal(size=50) + np.linspace(-1, 1, 50)
    errors = UnknownErrors(residuals, np.zeros((50, 1)), 0.8)
    families = correlations(50)
    count = sum(map(len, families)) - 1
    tried = residuals + 0.3 * random.normal(size=(5, 50))
    each = [
        np.log(0.5 if len(family) == 1 else 0.5 / count)
        + scipy.stats.multivariate_t(np.zeros(50), 0.64 * one.matrix, df=2).logpdf(tried)
        for family in families
        for one in family
    ]
    exact = np.logaddexp.reduce(each)
    found = errors.log_density(tried)
    # Correlations that the best fit leaves less likely than exp(-6) are not integrated over.
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=0.3)


def test_what_is_off_is_integrated_over():
    """Sums of squares of correlations worked out together are those by the inverse of each whole covariance."""
    random = np.random.default_rng(2)
    residuals, effects = np.cumsum(random.normal(size=50)), random.normal(size=(50, 2))
    errors = UnknownErrors(residuals, effects, 0.8)
    tried = residuals + 0.3 * random.normal(size=(5, 50))
    squares = errors._of_each(tried)[1]
    assert len(squares) > 1
    averaged = errors.effects / errors.scale[:, None]
    for kept, found in zip(errors._kept, squares, strict=True):
        correlation = (kept.vectors * kept.variances) @ kept.vectors.T
        known = averaged.T @ np.linalg.inv(correlation) @ averaged
        variance = (np.linalg.inv(kept.taken) - known)[0, 0]
        whole = np.linalg.inv(correlation + averaged @ averaged.T / variance)
        exact = np.einsum("ki,ij,kj->k", tried / errors.scale, whole, tried / errors.scale)
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_stretches_that_stand_out_count_less():
    """Errors of a stretch, 30 times as large as the others, are found; the density is that of errors so much larger."""
    random = np.random.default_rng(1)
    residuals = random.normal(size=200)
    plain = UnknownErrors(residuals, np.zeros((200, 1)), 1.0)
    np.testing.assert_array_equal(plain.scale, 1.0)
    residuals[32:40] *= 30
    errors = UnknownErrors(residuals, np.zeros((200, 1)), 1.0)
    assert np.prod(errors.scale[32:40]) ** (1 / 8) == pytest.approx(30, rel=0.5)
    np.testing.assert_array_equal(np.delete(errors.scale, np.arange(24, 48)), 1.0)
    tried = residuals + 0.3 * random.normal(size=(5, 200)) * errors.scale
    found, same = errors.log_density(tried), plain.log_density(tried / errors.scale)
    np.testing.assert_allclose(found - found[0], same - same[0], atol=0.3)


def test_answers_carry_their_certificate(posterior_run, uncertain_run, tmp_path):
    path = str(example_curve("hahn_tsai"))
    (answer,) = tfmat.identify(path, workdir=posterior_run, samples=200)
    posterior = answer.posterior
    assert posterior.certificate.status in ("corrected", "resampled")
    assert posterior.samples is answer.samples and np.isfinite(answer.samples.log_density).all()
    # The example follows the law: the posterior is about the best fit, and the network's answer is the posterior's.
    for name, entry in answer.to_json()["posterior"]["parameters"].items():
        value = answer.parameters[name]
        assert entry["ci95"][0] < value.least_squares < entry["ci95"][1]
        assert value.network_ci95 == pytest.approx(entry["ci95"])
    assert answer.to_json()["posterior"]["posterior_predictive_p"] > 0.001
    table = tmp_path / "out.csv"
    write_csv(str(table), [answer.to_json()])
    header, row = csv.reader(table.read_text().splitlines())
    assert row[header.index("posterior")] == posterior.certificate.status
    assert float(row[header.index("pareto_k")]) == posterior.certificate.pareto_k
    (plain,) = tfmat.identify(path, workdir=posterior_run, correct=False)
    assert plain.posterior.certificate.status == "amortised" and plain.samples is None
    assert "left out" in plain.posterior.certificate.reason
    # Gaussians of each parameter alone are a start for the same posterior.
    (gaussian,) = tfmat.identify(path, workdir=uncertain_run, samples=200)
    assert gaussian.posterior.certificate.is_exact
    apart = np.abs(gaussian.posterior.mean - posterior.mean) / posterior.std
    assert (apart < 0.5).all()  # five standard errors of 100 independent draws
    (without,) = tfmat.identify(path, workdir=uncertain_run)
    assert "posterior" not in without.to_json()


MISFITS = {
    "noise of twice the assumed size": {"noise_mpa": 2.0},
    "noise of correlation 0.9": {"noise_correlation": (0.9, 0.9)},
    "2 % compliance": None,
    "a knee that the law misses": {},
}


def share_inside(misfit, count, law, samples=500):
    """The share of 95 % intervals that hold the truth, [parameters], and of answers that count."""
    settings = dict(misfit or {})
    if "noise_mpa" in settings:
        settings["noise_mpa"] *= CurveSettings(law=law).build_law().noise_mpa
    many, fitted, true, (strain, stress, valid) = simulated(count, law, **settings)
    if misfit == {}:
        place = np.arange(stress.shape[1])
        stress = stress + 20 * many.law.noise_mpa * np.exp(-(((place - 15) / 4) ** 2))
        fitted = fit(many.law, strain, stress, valid)
    if misfit is None:
        parameters = many.law.from_labels(true)
        start = np.full((count, 1), 1e-6)
        modulus = many.law.stress(start, parameters)[:, 0] / 1e-6
        own = specimen_strain(
            lambda found: many.law.stress(np.maximum(found, 0.0), parameters), strain, 50 * modulus
        )
        noise = many.law.noise_mpa * np.random.default_rng(0).normal(size=stress.shape)
        stress = many.law.stress(own, parameters) + noise
        fitted = fit(many.law, strain, stress, valid)
    tests = [
        MeasuredTests.of_arrays(e[there], s[there])
        for e, s, there in zip(strain, stress, valid, strict=True)
    ]
    measured = MeasuredLikelihoods(many.law, tests, fitted.labels)
    found, certificates = correct(
        measured, guesses(fitted, 2 * samples), samples, starts=fitted.labels[:, None]
    )
    good = np.array([one.is_exact for one in certificates])
    low, high = np.moveaxis(found.intervals((0.95,))[0], 2, 0)
    return ((low <= true) & (true <= high))[good].mean(axis=0), good.mean()


@pytest.mark.parametrize("misfit", MISFITS)
def test_intervals_hold_under_misfit(misfit):
    """95 % intervals hold 90 % and more; of 20 curves a share of 0.95 is 0.75 or more in 999 of 1000 cases."""
    inside, counted = share_inside(MISFITS[misfit], 20, "hahn_tsai", samples=200)
    assert (inside >= 0.75).all() and inside.mean() >= 0.9 and counted > 0.9


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("law", ["hahn_tsai", "voce"])
@pytest.mark.parametrize("misfit", MISFITS)
def test_intervals_of_many_hold_under_misfit(misfit, law):
    """Of 200 curves; the standard error of 0.95 is 0.015."""
    inside, counted = share_inside(MISFITS[misfit], 200, law)
    assert (inside >= 0.9).all() and counted >= 0.9


@pytest.mark.parametrize(
    ("status", "own_error", "method"),
    [
        ("resampled", 0.0, "least_squares"),
        ("resampled", 1e-3, "network"),
        ("amortised", 1e-3, "least_squares"),
    ],
)
def test_samples_change_an_answer_only_where_the_law_itself_errs(status, own_error, method):
    """Least squares knows nothing of what a law is off by. Draws that are the network's own have to fit."""
    law = find_law("hahn_tsai")
    law.own_error = own_error
    draws = Draws(np.random.default_rng(0).random((1, 50, 2)), np.zeros((1, 50)))
    posterior = Posterior.of(draws, Certificate(status), law.identified)
    predicted = Predicted(
        posterior.mean, posterior.std, posterior.interval, draws=draws, posterior=posterior
    )
    fitted = ClassicalAnswer(types.SimpleNamespace(), better=None)
    errors = {"network": 5.0, "least_squares": 0.5}
    assert recommended_method(law, predicted, fitted, errors) == method
