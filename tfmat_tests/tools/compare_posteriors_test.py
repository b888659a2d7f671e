"""tools/compare_posteriors: its scores against closed forms, and a small comparison of what needs no other package."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.special
from scipy.stats import multivariate_normal, norm

from tfmat.files import read_json
from tfmat_tests.processes import forked_python

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(TOOLS))
    try:
        import compare_posteriors

        yield compare_posteriors
    finally:
        sys.path.remove(str(TOOLS))


def test_scores_of_normal_posteriors_are_those_of_the_closed_form(tool):
    # E|X - t| - E|X - X'| / 2 of a normal distribution: Gneiting and Raftery 2007, equation 21.
    random, spread = np.random.default_rng(0), 0.05
    means = random.uniform(0.3, 0.7, (400, 1))
    truths = means + spread * random.standard_normal(means.shape)
    draws = means[:, None] + spread * random.standard_normal((400, 1000, 1))
    z = (truths - means) / spread
    energy = spread * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    log_score = norm.logpdf(truths, means, spread)[:, 0]
    answer = {"draws": draws, "log_score": log_score, "training_seconds": np.array(3.0)}
    found = tool.scores(answer, truths)
    assert found["energy_score"] == pytest.approx(energy.mean(), rel=0.02)
    assert found["log_score"] == pytest.approx(log_score.mean())
    # Four standard errors of a share of 400.
    assert found["coverage_95"] == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 400))
    assert found["training_seconds"] == 3.0


def test_least_squares_is_scored_on_a_task_of_its_own_and_not_twice(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "RECORDS", 400)
    monkeypatch.setattr(tool, "TESTS", 50)
    folder = tool.frozen_task(tmp_path / "voce", "voce")
    found = tool.answered(folder, "laplace", 1.0, 0)
    result = folder / "laplace-1-0.json"
    # A cut normal distribution of four labels that 200 points tell well: not below the density of the prior, 0 nats.
    assert read_json(result) == found
    assert found["median_log_score"] > 5.0
    written = result.stat().st_mtime_ns
    assert tool.answered(folder, "laplace", 1.0, 0) == found
    assert result.stat().st_mtime_ns == written
    table = tool.table(tmp_path)
    assert "| voce | laplace | 1 |" in table
    assert (tmp_path / "table.md").read_text() == table + "\n"


def test_exact_posteriors_lose_nothing_and_cannot_be_told_from_themselves(
    tool, tmp_path, monkeypatch
):
    monkeypatch.setattr(tool, "RECORDS", 400)
    monkeypatch.setattr(tool, "TESTS", 50)
    folder = tool.frozen_task(tmp_path / "hahn_tsai", "hahn_tsai")
    tool.make_reference(folder, 5)
    exact = np.load(folder / "exact.npz")
    assert exact["draws"].shape == (5, 1000, 2) and exact["converged"].all()
    # The mean of -log density at the truth is near that at draws: the entropy of a nearly normal posterior.
    entropy = [multivariate_normal(cov=np.cov(draws.T)).entropy() for draws in exact["draws"]]
    assert np.mean(exact["log_score"] + entropy) == pytest.approx(0.0, abs=4 / np.sqrt(5))
    itself = {"draws": exact["draws"][:, ::5], "log_score": exact["log_score"]}
    beside = tool.beside_exact(itself, exact)
    assert beside["num_exact"] == 5 and beside["lost"] == 0.0 and beside["c2st"] < 0.6
    even = {"draws": np.random.default_rng(0).random((5, 199, 2)), "log_score": np.zeros(5)}
    beside = tool.beside_exact(even, exact)
    assert beside["lost"] == pytest.approx(exact["log_score"].mean()) and beside["c2st"] > 0.95


def test_one_history_of_a_task_is_the_same_for_all_records(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "RECORDS", 40)
    monkeypatch.setattr(tool, "TESTS", 20)
    folder = tool.frozen_task(tmp_path / "voce_chaboche_fixed", "voce_chaboche_fixed")
    strain = np.load(folder / "test_features.npy")[:, :, 0]
    assert len(np.unique(np.abs(strain), axis=0)) == 1  # begun in tension or compression
    turns = (np.diff(np.sign(np.diff(strain[0]))) != 0).sum()
    assert turns == 11 and np.abs(strain).max() == pytest.approx(0.015)


def test_a_clock_counts_from_the_end_of_the_first_step_and_lets_the_rate_fall_to_nothing(
    tool, monkeypatch
):
    from posteriors import frozen

    # Forks that tests before this one started have ended with any number of seconds.
    now = [100.0]
    monkeypatch.setattr(frozen.Clock, "now", staticmethod(lambda: now[0]))
    clock = frozen.Clock(10.0)
    with clock.running():
        now[0] += 1.0
    now[0] += 50.0  # what is compiled
    assert not clock.step_is_over()
    assert clock.spent == 1.0
    # BayesFlow's: a tenth of the peak at first, a cosine after 5 % of the time.
    assert frozen.Clock(10.0).rate(2.0) == clock.rate(2.0) == pytest.approx(0.2)
    now[0] += 3.0
    # What was prepared is spent, but no step had a rate then: a third of the nine seconds that are left.
    share = (3.0 / 9.0 - 0.05) / 0.95
    assert clock.rate(2.0) == pytest.approx(1.0 + np.cos(np.pi * share))
    now[0] += 6.0
    assert clock.step_is_over(4)
    now[0] += 5.0
    assert (clock.spent, clock.steps, clock.rate(2.0)) == (10.0, 5, 0.0)
    # With a last step, which is sooner here than the last second.
    clock = frozen.Clock(10.0)
    clock.most_steps = 4
    assert not clock.step_is_over(2)
    assert clock.rate(2.0) == pytest.approx(1.0 + np.cos(np.pi * (0.5 - 0.05) / 0.95))
    assert clock.step_is_over(2)
    assert clock.rate(2.0) == 0.0


def test_a_clock_counts_processes_that_have_ended(tool):
    from posteriors import frozen

    before = frozen.Clock.now()
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert frozen.Clock.now() - before >= 0.3


def test_tests_of_a_record_stand_side_by_side_for_networks_of_one_series(tool, tmp_path):
    from posteriors.frozen import Task

    # Two tests of three points; the second is missing in the second record.
    features = np.zeros((2, 6, 3), np.float32)
    features[0, :, 0], features[0, :, 1] = [1, 2, 3, 4, 5, 6], [2, 4, 6, 8, 10, 12]
    features[1, :3], features[1, 3:, 2] = features[0, :3], 1.0
    task = Task(tmp_path, features, np.zeros((2, 1)), features, np.zeros((2, 1)), tests=2)
    found = task.scaled(features)
    # Strain and stress of the first, strain, stress and flag of the second; the first is never missing.
    assert found.shape == (2, 3, 5)
    np.testing.assert_allclose(found[0, :, 0], [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(found[0, :, 3], [8 / 12, 10 / 12, 1])
    np.testing.assert_array_equal(found[1, :, 2:], [[0, 0, 1]] * 3)


def test_labels_around_fits_have_the_density_of_a_logit_normal_distribution(tool):
    from posteriors.frozen import Fits

    random = np.random.default_rng(0)
    mode, log_precision = random.normal(size=(300, 2)), 2.0 + random.normal(size=(300, 2))
    fitted = np.concatenate([random.normal(size=(300, 5)), mode, log_precision], axis=1)
    fits = Fits.of(fitted, fitted, 2, 3.0)
    assert fits.numbers.shape == (300, 5) and fits.seconds == 3.0
    logits = mode + np.exp(-log_precision) * random.normal(size=(300, 2))
    labels = scipy.special.expit(logits)
    targets, slopes = fits.test_targets(labels)
    # log f(x) of x = expit(y), y normal: log n(y) - log(x (1 - x)).
    expected = norm.logpdf(logits, mode, np.exp(-log_precision)) - np.log(labels * (1 - labels))
    # The targets are asinh of standard normal numbers, whose density has the factor cosh.
    standard = norm.logpdf(np.sinh(targets)) + np.log(np.cosh(targets))
    found = standard.sum(axis=1) + slopes
    np.testing.assert_allclose(found, expected.sum(axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fits.targets(labels), targets, atol=1e-5)
    back = fits.test_labels(targets[:, None].astype(float))
    np.testing.assert_allclose(back[:, 0], labels, atol=1e-6)


def test_fits_of_a_task_lie_where_the_truths_are(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "RECORDS", 400)
    monkeypatch.setattr(tool, "TESTS", 50)
    folder = tool.frozen_task(tmp_path / "hahn_tsai", "hahn_tsai")
    from posteriors import fits
    from posteriors.frozen import Task

    fits.main(folder, folder / "fits-9.npz", 9.0)
    task = Task.open(folder, folder / "fits-9.npz")
    assert task.fits.seconds > 0.0
    assert len(task.fits.numbers) == 300 and len(task.fits.test_mode) == 50
    # In units of what the fit says they are nearly standard normal: the middle half lies within 0.674.
    away = np.abs(np.sinh(task.fits.targets(task.labels)))
    assert np.median(away) == pytest.approx(0.674, abs=5 * 0.79 / np.sqrt(away.size))
    assert not list(
        (folder / "dataset").glob("fits-*")
    )  # what a fit costs counts in each comparison


def test_a_method_that_is_not_known_is_refused_in_one_line(tmp_path):
    ended = subprocess.run(
        [
            forked_python(),
            str(TOOLS / "compare_posteriors.py"),
            "--methods=mcmc",
            f"--workdir={tmp_path}",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TOOLS.parent)},
    )
    assert ended.returncode == 2
    assert ended.stderr.strip() == (
        "tools/compare_posteriors: there is no mcmc; choose of tfmat_flow, bayesflow_fits, sbi_fits, bayesflow_npe, "
        "sbi_npe, laplace"
    )
