"""Posteriors: draws against SciPy and the exact posterior of curves, weights, and what answers and ArviZ get."""

import json

import msgspec
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import tfmat
from tfmat import workflow
from tfmat.config import default_config
from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError
from tfmat.identification import posterior as module
from tfmat.identification.evaluate import (
    COVERAGES,
    bayes_risk,
    coverage,
    evaluate,
    posterior_scores,
)
from tfmat.identification.networks import Identifier, Spread
from tfmat.identification.posterior import (
    Certificate,
    Posterior,
    even_normal,
    independent_normal,
    inference_data,
    normal_proposals,
    with_wider_half,
    write_inference_data,
)
from tfmat.materials import find_law
from tfmat.records.files import example_curve
from tfmat.workflow import main_job


def test_independent_gaussians_are_scipys_cut_to_the_ranges():
    labels, std = np.array([[0.3, 0.99]]), np.array([[0.05, 0.2]])
    draws = independent_normal(labels, std, 20_000, seed=1)
    exact = scipy.stats.truncnorm(-labels / std, (1 - labels) / std, loc=labels, scale=std)
    np.testing.assert_allclose(draws.mean, exact.mean(), atol=5e-3)
    np.testing.assert_allclose(draws.std, exact.std(), rtol=0.03)
    expected = exact.logpdf(draws.labels[0]).sum(axis=1)
    np.testing.assert_allclose(draws.label_log_density[0], expected, rtol=1e-9)


def test_a_wider_half_takes_the_tail_from_weights():
    """A network says 0.7 times the standard deviation of a normal posterior: its weights have no variance."""
    normal = np.random.default_rng(0).standard_normal((1, 40_000, 2), np.float32)
    numbers, over_normal = with_wider_half(normal)
    standard, wide = (scipy.stats.norm(scale=scale) for scale in (1.0, 1.5))
    each = [said.pdf(numbers[0]).prod(axis=1) for said in (standard, wide)]
    expected = np.log(np.mean(each, axis=0) / each[0])
    np.testing.assert_allclose(over_normal[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(numbers[0, :20_000], normal[0, :20_000])

    def weighted(drawn, more):
        labels = 0.7 * drawn.astype(float)
        said = scipy.stats.norm(scale=0.7).logpdf(labels).sum(axis=1) + more
        return Posterior.weighted(labels, standard.logpdf(labels).sum(axis=1) - said)

    def square_of_weights(radius):
        """Its mean is the integral over the radius, with the mixture of 0.7 and 1.05 as proposal."""
        square = radius**2
        proposed = 0.5 * sum(np.exp(-0.5 * square / v) / (2 * np.pi * v) for v in (0.49, 1.1025))
        return 2 * np.pi * radius * (np.exp(-0.5 * square) / (2 * np.pi)) ** 2 / proposed

    own, both = weighted(normal[0], 0.0), weighted(numbers[0], over_normal[0])
    share = 1.0 / scipy.integrate.quad(square_of_weights, 0.0, 12.0)[0]
    assert both.effective_draws == pytest.approx(share * 40_000, rel=0.1)
    # 0.51 for the tails of normal densities; the mixture's weights have an end.
    assert own.certificate.pareto_k > 0.4 > 0.0 > both.certificate.pareto_k
    np.testing.assert_allclose(both.variance, 1.0, atol=5 * np.sqrt(2 / both.effective_draws))


def test_intervals_are_the_shortest():
    normal = even_normal(512, 1)[None]
    # Of an exponential all of it from zero on, of a Gaussian the middle.
    exponential = scipy.stats.expon.ppf(scipy.stats.norm.cdf(normal), scale=0.1)
    labels = np.concatenate([exponential, 0.5 + 0.05 * normal], axis=2)
    (found,) = Posterior(labels).intervals([0.9])
    np.testing.assert_allclose(found[0, 0], [0.0, -0.1 * np.log(0.1)], atol=4e-3)
    np.testing.assert_allclose(found[0, 1], 0.5 + 0.05 * 1.645 * np.array([-1, 1]), atol=6e-3)


def test_densities_in_units_are_those_of_the_values():
    parameters = find_law("hahn_tsai").identified
    labels = np.random.default_rng(0).uniform(size=(50, 2))
    samples = Posterior(labels, np.zeros(50), parameters=parameters)
    assert samples.names == ("G0", "a") and samples.units == ("MPa", "MPa^-3")
    (low, high), (least, most) = [(p.low, p.high) for p in parameters]
    # Uniform in G0 and in log a.
    expected = scipy.stats.uniform(low, high - low).logpdf(samples.values[:, 0])
    expected = expected + scipy.stats.loguniform(least, most).logpdf(samples.values[:, 1])
    np.testing.assert_allclose(samples.log_density, expected, rtol=1e-9)


def test_a_network_of_seconds_says_how_little_it_knows(posterior_run, trained_run):
    identifier, dataset = Identifier.open(posterior_run), trained_run.dataset
    rows = slice(dataset.num_train + dataset.num_validation, None)
    features, true = (np.array(part[rows]) for part in (dataset.features, dataset.labels))
    for scores in evaluate(identifier, dataset).scores.coverage.values():
        for percent, held in scores.held.items():
            assert held == pytest.approx(percent / 100, abs=0.07)
    # Far above two independent Gaussians that know their labels to a twentieth.
    bound = scipy.stats.norm.entropy(scale=0.05) * -2
    assert identifier.log_density(features, true).mean() > bound + 0.5
    labels, _, (middle, limits) = identifier.answers(features, (0.5, 0.95))
    assert ((limits[..., 1] - limits[..., 0]) > (middle[..., 1] - middle[..., 0])).all()
    assert np.median(np.abs(labels - true), axis=0) == pytest.approx(0, abs=0.06)


def test_intervals_hold_truths_that_the_network_draws_itself(posterior_run, trained_run):
    """Whatever it has learned: its draws and its intervals are of one posterior."""
    identifier, dataset = Identifier.open(posterior_run), trained_run.dataset
    features = np.array(dataset.features[dataset.num_train + dataset.num_validation :])
    truth = identifier.draws(features, 1, seed=5).labels[:, 0]
    shares = np.array([0.5, 0.9, 0.95])
    _, _, limits = identifier.answers(features, shares)
    held = ((limits[..., 0] <= truth) & (truth <= limits[..., 1])).mean(axis=1)
    error = np.sqrt(shares * (1 - shares) / len(features))
    assert (np.abs(held - shares[:, None]) < 3 * error[:, None]).all()


@pytest.mark.large
@pytest.mark.timeout(600)
def test_a_network_of_two_minutes_is_near_the_exact_posterior(tmp_path):
    """Bounds set before: means within a deviation of the exact ones, widths below 1.6 of them, intervals that hold."""
    folder = tmp_path / "run"
    config = default_config()
    config.data.num_curves, config.data.num_test, config.global_batch_size = 160_000, 2000, 300
    config.train_for, config.optimizer.learning_rate = "2500steps", 4e-3
    config.optimizer.warmup, config.model.uncertainty = "200steps", "flow"
    main_job(config, workdir=str(folder), data_dir=str(tmp_path / "data"))
    identifier = Identifier.open(folder)
    (data,) = (tmp_path / "data").iterdir()
    dataset = PackedDataset.open(data)
    start = dataset.num_train + dataset.num_validation
    features = np.array(dataset.features[start : start + 200])
    exact = bayes_risk(dataset.settings, features)
    deviation = np.sqrt(exact.variance)
    labels, _, (middle, _) = identifier.answers(features, (0.5, 0.95))
    width = (middle[..., 1] - middle[..., 0]) / (2 * scipy.stats.norm.ppf(0.75))
    assert np.median(np.abs(labels - exact.mean) / deviation) < 1
    ratio = np.median(width / deviation, axis=0)
    assert (ratio > 0.9).all() and (ratio < 1.6).all()
    for scores in json.loads((folder / "evaluation.json").read_text())["coverage"].values():
        assert scores["90"] == pytest.approx(0.9, abs=0.03)


def test_draws_follow_their_density_and_repeat(posterior_run, trained_run):
    identifier = Identifier.open(posterior_run)
    features = np.array(trained_run.dataset.features[:3])
    draws = identifier.draws(features, 2000, seed=4)
    np.testing.assert_array_equal(draws.labels, identifier.draws(features, 2000, seed=4).labels)
    assert draws.labels.shape == (3, 2000, 2)
    again = identifier.log_density(np.repeat(features, 2000, axis=0), draws.labels.reshape(-1, 2))
    difference = again.reshape(3, 2000) - draws.label_log_density
    assert np.quantile(np.abs(difference), 0.99) < 0.05  # float32
    labels, std = identifier.predict_with_std(features)
    np.testing.assert_allclose(draws.mean, labels, atol=5 * std.max() / np.sqrt(2000))
    one = identifier.predict(features[:1])
    np.testing.assert_allclose(one[0], labels[0], atol=1e-4)


def test_proposals_are_draws_and_wider_ones_with_the_density_of_both(posterior_run, trained_run):
    identifier, dataset = Identifier.open(posterior_run), trained_run.dataset
    features = np.asarray(dataset.features[-1:])
    found = identifier.proposals(features, 2000)
    own = identifier.draws(features, 4000)
    for name in ("labels", "label_log_density"):
        np.testing.assert_array_equal(getattr(found, name)[:, :2000], getattr(own, name)[:, :2000])
    # Weighed by the network's own density over theirs, they are the network's posterior: means within five standard
    # errors, and weights of mean one.
    weights = np.exp(found.label_log_density - found.proposed)[0]
    assert weights.mean() == pytest.approx(1.0, abs=5 * weights.std() / np.sqrt(4000))
    mean = np.average(found.labels[0], axis=0, weights=weights)
    np.testing.assert_allclose(mean, own.mean[0], atol=5 * own.std[0].max() * 1.5 / np.sqrt(4000))
    assert (found.labels[0, 2000:].std(axis=0) > 1.05 * own.std[0]).all()


def test_answers_carry_samples(posterior_run, uncertain_run, trained_run):
    path = example_curve("hahn_tsai")
    for run in (posterior_run, uncertain_run):
        (answer,) = tfmat.identify(str(path), workdir=run, samples=500)
        assert answer.samples.values.shape == (500, 2)
        assert np.isfinite(answer.samples.log_density).all()
        value = answer.parameters["G0"].network
        drawn = answer.samples.values[:, 0]
        assert abs(np.mean(drawn) - value) < 0.3 * np.std(drawn)
    (plain,) = tfmat.identify(str(path), workdir=posterior_run)
    assert plain.samples is None
    with pytest.raises(InputError, match="samples need least squares of a known law, corrected"):
        tfmat.identify(str(path), workdir=trained_run.workdir, samples=10, correct=False)
    known = {"G0": 6900.0}
    with pytest.raises(InputError, match="samples need least squares of a known law, corrected"):
        tfmat.identify(str(path), workdir=posterior_run, samples=10, fixed=known, correct=False)
    with pytest.raises(InputError, match="give 1 or more"):
        tfmat.identify(str(path), workdir=posterior_run, samples=-1)


def test_a_spread_widens_draws_and_belongs_to_their_density(posterior_run, trained_run, tmp_path):
    """Of an older network without one, and of one that is taken to be twice as wide."""
    content = json.loads((posterior_run / "model.json").read_text())
    content.pop("spread", None)
    features = np.array(trained_run.dataset.features[:20])
    (tmp_path / "model.keras").write_bytes((posterior_run / "model.keras").read_bytes())
    draws = []
    for spread in ({}, {"spread": {"num_curves": 100, "value": 2.0}}):
        (tmp_path / "model.json").write_text(json.dumps({**content, **spread}))
        identifier = Identifier.open(tmp_path)
        draws.append(identifier.draws(features, 1000, seed=2))
        z = identifier.standardized(
            np.repeat(features, 1000, axis=0), draws[-1].labels.reshape(-1, 2)
        )
        assert np.std(z) == pytest.approx(spread.get("spread", {"value": 1.0})["value"], rel=0.02)
    assert (draws[1].std > draws[0].std).all()
    for damaged in ({"num_curves": 1}, {"num_curves": 1, "value": 0}, 3):
        (tmp_path / "model.json").write_text(json.dumps({**content, "spread": damaged}))
        with pytest.raises(InputError, match="is damaged"):
            Identifier.open(tmp_path)


def test_a_spread_is_found_on_the_scale_of_the_labels(posterior_run, trained_run, monkeypatch):
    """Densities of a network's draws are compared with those of the truths, on one scale."""
    identifier, dataset = Identifier.open(posterior_run), trained_run.dataset
    monkeypatch.setattr(workflow, "_SPREAD_CURVES", 20)
    rows = workflow.calibration_rows(identifier, dataset)
    features, true = np.array(dataset.features[rows]), np.array(dataset.labels[rows], np.float64)
    seen = []

    def keep(self, *densities):
        seen.append(densities)
        return self

    monkeypatch.setattr(Spread, "better", keep)
    workflow.calibrate(identifier, dataset)
    ((drawn, _, of_truth, *_),) = seen
    normal = np.random.default_rng(0).standard_normal((*drawn.shape, 2), np.float32)
    labels = identifier.draws_of(features, normal).labels
    np.testing.assert_allclose(drawn, identifier.log_density(features, labels), atol=0.05)
    np.testing.assert_allclose(of_truth, identifier.log_density(features, true), rtol=1e-6)


def test_a_damaged_posterior_is_refused_in_one_line(posterior_run, trained_run, tmp_path):
    content = json.loads((posterior_run / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(content))
    (tmp_path / "model.keras").write_bytes((trained_run.workdir / "model.keras").read_bytes())
    with pytest.raises(InputError, match="the model has no posterior of 2 parameters"):
        Identifier.open(tmp_path)


def test_draws_that_all_stand_at_an_end_have_a_width():
    """A network that is sure of what is wrong is judged, and ends no evaluation with a division by zero."""
    draws = Posterior(np.full((3, 40, 2), 1.0 - 1e-6), np.zeros((3, 40)))
    true = np.full((3, 2), 0.9)
    scores = coverage(["x", "y"], true, draws.mean, draws.std, draws.intervals(COVERAGES))
    checked = posterior_scores(["x", "y"], draws, true, np.full(3, -50.0))
    assert scores["x"].z_std > 1e4 and checked.z_score["x"].rms > 1e4
    json.dumps(msgspec.to_builtins([scores, checked]), allow_nan=False)


def test_proposals_are_a_normal_distribution_and_a_wider_one():
    mean, covariance = np.array([0.4, 0.95]), np.array([[4e-4, 3e-4], [3e-4, 9e-4]])
    draws = normal_proposals(mean, covariance, 20_000)
    own, wide = (scipy.stats.multivariate_normal(mean, s**2 * covariance) for s in (1.0, 1.5))
    np.testing.assert_allclose(draws.label_log_density, own.logpdf(draws.labels), rtol=1e-6)
    mixture = np.log(0.5 * own.pdf(draws.labels) + 0.5 * wide.pdf(draws.labels))
    np.testing.assert_allclose(draws.proposed, mixture, rtol=1e-6, atol=1e-6)
    half = draws.labels[:20_000]
    np.testing.assert_allclose(np.cov(half.T), covariance, rtol=5 * np.sqrt(2 / 20_000) + 0.01)
    # What a test does not tell has the variance of its range, and not an infinite one.
    unknown = normal_proposals(mean, np.full((2, 2), np.inf), 20_000)
    np.testing.assert_allclose(unknown.labels[:20_000].var(axis=0), 1 / 12, rtol=0.05)


def test_one_of_many_curves_is_what_it_is_alone():
    """Also where its draws are weighted: moments of weights are those of NumPy, and count as many as they are worth."""
    random = np.random.default_rng(0)
    labels, weights = random.random((3, 60, 2)), random.random(60)
    many, alone = Posterior(labels, np.zeros((3, 60))), Posterior(labels[1], np.zeros(60))
    for name in ("labels", "label_log_density", "mean", "variance", "std"):
        np.testing.assert_array_equal(getattr(many[1], name), getattr(alone, name))
        np.testing.assert_array_equal(getattr(many, name)[1], getattr(alone, name))
    np.testing.assert_array_equal(many.intervals((0.5, 0.95))[:, 1], alone.intervals((0.5, 0.95)))
    weights /= weights.sum()
    worth = 1.0 / (weights @ weights)
    certificate = Certificate("resampled", pareto_k=0.1, effective_draws=worth)
    weighted = Posterior(labels[1], None, certificate, log_weights=np.log(weights))
    np.testing.assert_allclose(weighted.mean, np.average(labels[1], axis=0, weights=weights))
    covariance = np.cov(labels[1].T, aweights=weights)
    np.testing.assert_allclose(weighted.variance, np.diag(covariance), rtol=1e-9)
    assert not weighted.converged and "worth" in certificate.shortcoming


def test_pareto_k_tells_draws_that_are_too_narrow():
    """Importance ratios of two exponential densities have tails of a known k: 1 - rate of the target over its own."""
    draws = np.random.default_rng(0).exponential(1.0, (20_000, 1))
    for rate, k in ((0.7, 0.3), (0.2, 0.8)):
        found = Posterior.weighted(draws, (1.0 - rate) * draws[:, 0])
        assert abs(found.certificate.pareto_k - k) < 0.1
        assert found.converged == (k < 0.7)
    assert np.exp(found.log_weights).sum() == pytest.approx(1.0)


def test_the_tree_holds_the_samples_and_comes_back_from_its_file(posterior_run, tmp_path):
    path = str(example_curve("hahn_tsai"))
    (answer,) = tfmat.identify(path, workdir=posterior_run, samples=50)
    (without,) = tfmat.identify(path, workdir=posterior_run)
    tree = inference_data([answer, without])
    posterior = tree["posterior"]
    assert posterior["G0"].dims == ("chain", "draw", "curve")
    assert posterior["a"].attrs["units"] == "MPa^-3"
    np.testing.assert_array_equal(posterior["G0"].values[0, :, 0], answer.samples.values[:, 0])
    status = answer.posterior.certificate.status
    assert posterior.attrs["certificate"][0] == status
    lp = tree["sample_stats"]["lp"].values
    np.testing.assert_array_equal(lp[0, :, 0], answer.samples.log_density)
    assert np.isnan(lp[0, :, 1]).all()
    import xarray

    write_inference_data([answer], tmp_path / "x.nc")
    with xarray.open_datatree(tmp_path / "x.nc", engine="h5netcdf") as read:
        np.testing.assert_array_equal(
            read["posterior"]["a"].values[0, :, 0], answer.samples.values[:, 1]
        )
        assert read.attrs["law"] == "hahn_tsai"
        assert np.atleast_1d(read["posterior"].attrs["certificate"]).tolist() == [status]
    with pytest.raises(InputError, match="no answer has samples"):
        inference_data([without])


def test_without_arviz_there_is_one_line(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("arviz_base", "no_such_package"))
    said = r"need no_such_package; run `.* 'arviz-base\[h5netcdf\]'`"
    with pytest.raises(InputError, match=said):
        module.check_arviz()
