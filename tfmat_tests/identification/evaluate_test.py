"""The metrics against their formulas, written out here once more, curve by curve."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.errors import InputError
from tfmat.files import write_json
from tfmat.identification import evaluate as reference_module
from tfmat.identification.evaluate import (
    add_reference,
    bayes_risk,
    cached_bayes_risk,
    evaluate,
    find_test_data,
)
from tfmat.identification.least_squares import cramer_rao_bound, fit
from tfmat.records.simulation import CurveSettings, split_features
from tfmat.report.run_files import read_evaluation
from tfmat.report.tables import reference_table


def hahn_tsai(strain, modulus, coefficient):
    """The published closed form (Hahn and Tsai 1973, solved for the stress with the hyperbolic Cardano formula)."""
    p = 1.0 / (coefficient * modulus)
    third = np.arcsinh(3 * strain / (2 * coefficient * p) * np.sqrt(3 / p)) / 3
    return 2 * np.sqrt(p / 3) * np.sinh(third)


def test_metrics_equal_their_formulas(trained_run, identifier):
    dataset = trained_run.dataset
    evaluation = evaluate(identifier, dataset)
    features = np.array(dataset.features[-dataset.num_test :], np.float64)
    truth = np.array(dataset.labels[-dataset.num_test :], np.float64)
    labels = identifier.predict(features).clip(0, 1)
    assert evaluation.scores.num_curves == len(truth) == 1000
    assert evaluation.scores.mse == pytest.approx(((labels - truth) ** 2).mean(), rel=1e-10)
    modulus, coefficient = evaluation.scores.parameters.values()
    assert modulus.mse == pytest.approx(((labels[:, 0] - truth[:, 0]) ** 2).mean(), rel=1e-10)
    assert modulus.mae == pytest.approx(6000 * abs(labels[:, 0] - truth[:, 0]).mean(), rel=1e-10)
    true_modulus = 2000 + 6000 * truth[:, 0]
    relative = abs(2000 + 6000 * labels[:, 0] - true_modulus) / true_modulus
    assert modulus.mae_percent == pytest.approx(100 * relative.mean(), rel=1e-10)
    assert modulus.mae_decades is None
    assert coefficient.mae_decades == pytest.approx(
        2 * abs(labels[:, 1] - truth[:, 1]).mean(), rel=1e-10
    )
    absolute = abs(10 ** (2 * labels[:, 1] - 9) - 10 ** (2 * truth[:, 1] - 9))
    assert coefficient.mae == pytest.approx(absolute.mean(), rel=1e-8)
    assert coefficient.mae_percent is None
    for column, score in enumerate(evaluation.scores.parameters.values()):
        expected = 1 - ((labels - truth)[:, column] ** 2).sum() / (
            len(truth) * truth[:, column].var()
        )
        assert score.r2 == pytest.approx(expected, rel=1e-10)
        assert 0.8 < score.r2 < 1.0
    answers, features = evaluation.answers, np.array(dataset.features[-dataset.num_test :])
    np.testing.assert_allclose(answers.true[:, 0], true_modulus)
    np.testing.assert_array_equal(answers.max_strain, features[:, :, 0].max(axis=1))
    np.testing.assert_array_equal(answers.max_stress_mpa, features[:, :, 1].max(axis=1))


def test_resimulated_errors_equal_their_formulas(trained_run, identifier):
    dataset = trained_run.dataset
    evaluation = evaluate(identifier, dataset)
    features = np.array(dataset.features[-dataset.num_test :], np.float64)
    labels = identifier.predict(features).clip(0, 1)
    percent, over_noise = [], []
    for curve, label in zip(features, labels, strict=True):
        strain, stress = curve[curve[:, 2] == 0, :2].T
        residual = hahn_tsai(strain, 2000 + 6000 * label[0], 10 ** (2 * label[1] - 9)) - stress
        root_mean_square = np.sqrt(np.mean(residual**2))
        percent.append(100 * root_mean_square / stress.max())
        over_noise.append(root_mean_square / 1.0)
    assert evaluation.scores.rmse_percent == pytest.approx(np.mean(percent), rel=1e-9)
    assert evaluation.scores.rmse_percent_p95 == pytest.approx(np.percentile(percent, 95), rel=1e-9)
    assert evaluation.scores.rmse_over_noise == pytest.approx(np.mean(over_noise), rel=1e-9)
    # No curve of the law is nearer to the data than the noise lets it be.
    assert 0.98 < np.mean(over_noise) < 3


def test_relative_noise_is_counted_and_no_noise_gives_no_ratio(tmp_path, trained_run, identifier):
    relative = generate_dataset(
        CurveSettings(noise_mpa=0.5, noise_relative=0.02),
        seed=1,
        num_curves=8,
        num_test=200,
        data_dir=tmp_path,
    )
    evaluation = evaluate(identifier, relative)
    features = np.array(relative.features[-200:], np.float64)
    ratios = []
    for curve, label in zip(features, identifier.predict(features).clip(0, 1), strict=True):
        strain, stress = curve[curve[:, 2] == 0, :2].T
        model = hahn_tsai(strain, 2000 + 6000 * label[0], 10 ** (2 * label[1] - 9))
        ratios.append(np.sqrt(np.mean((stress - model) ** 2 / (0.5**2 + (0.02 * model) ** 2))))
    assert evaluation.scores.rmse_over_noise == pytest.approx(np.mean(ratios), rel=1e-9)
    silent = generate_dataset(
        CurveSettings(noise_mpa=0.0), seed=1, num_curves=8, num_test=50, data_dir=tmp_path
    )
    assert evaluate(identifier, silent).scores.rmse_over_noise is None
    only_relative = generate_dataset(
        CurveSettings(noise_mpa=0.0, noise_relative=0.02),
        seed=1,
        num_curves=8,
        num_test=50,
        data_dir=tmp_path,
    )
    ratio = evaluate(identifier, only_relative).scores.rmse_over_noise
    assert ratio is not None
    assert np.isfinite(ratio)


def test_a_data_set_with_other_ranges_is_judged_in_physical_units(tmp_path, identifier):
    ranges = {"G0": (3000.0, 7000.0)}
    other = generate_dataset(
        CurveSettings(ranges=ranges), seed=2, num_curves=8, num_test=300, data_dir=tmp_path
    )
    evaluation = evaluate(identifier, other)
    true_modulus = 3000 + 4000 * np.array(other.labels[-300:, 0], np.float64)
    found = 2000 + 6000 * identifier.predict(np.array(other.features[-300:])).clip(0, 1)[:, 0]
    assert evaluation.scores.parameters["G0"].mae == pytest.approx(
        abs(found - true_modulus).mean(), rel=1e-10
    )


def test_json_is_plain_and_complete(trained_run, identifier, tmp_path):
    content = evaluate(identifier, trained_run.dataset).scores
    write_json(tmp_path / "evaluation.json", content)
    assert read_evaluation(tmp_path / "evaluation.json") == content
    assert list(content.parameters) == ["G0", "a"]
    assert content.parameters["a"].unit == "MPa^-3"
    assert content.law == "hahn_tsai"


def test_a_data_set_of_another_task_is_refused(tmp_path, trained_run, identifier):
    manifest = dataclasses.replace(trained_run.dataset.manifest, num_test=0)
    none = dataclasses.replace(trained_run.dataset, manifest=manifest)
    with pytest.raises(InputError, match="no test curves"):
        evaluate(identifier, none)
    shear = generate_dataset(
        CurveSettings(law="tanh_shear"), seed=0, num_curves=8, num_test=8, data_dir=tmp_path
    )
    said = r"identifies G0 \(MPa\), a \(MPa\^-3\), the data set .* holds G0 .*, S"
    with pytest.raises(InputError, match=said):
        evaluate(identifier, shear)
    short = generate_dataset(
        CurveSettings(num_points=50), seed=0, num_curves=8, num_test=8, data_dir=tmp_path
    )
    with pytest.raises(InputError, match="takes 200 points a curve"):
        evaluate(identifier, short)


def test_the_run_s_data_set_is_found(tmp_path, trained_run):
    folder = trained_run.dataset.folder
    assert find_test_data(trained_run.workdir) == folder
    assert find_test_data(trained_run.workdir, folder.parent) == folder
    assert find_test_data(tmp_path, folder) == folder
    with pytest.raises(InputError, match="is not there"):
        find_test_data(trained_run.workdir, tmp_path)
    with pytest.raises(InputError, match=r"config\.json"):
        find_test_data(tmp_path)


@pytest.fixture
def copied(trained_run, tmp_path):
    """The run's data set where a file may be written beside it."""
    return PackedDataset.open(shutil.copytree(trained_run.dataset.folder, tmp_path / "data"))


def test_the_reference_s_numbers_equal_their_formulas(copied, identifier, tmp_path):
    count = 150
    evaluation = add_reference(evaluate(identifier, copied), identifier, copied, count)
    features = np.array(copied.features[-copied.num_test :][:count])
    truth = np.array(copied.labels[-copied.num_test :][:count], np.float64)
    strain, stress, valid = split_features(features)
    law = copied.settings.build_law()
    network = identifier.predict(features).clip(0, 1)
    fitted = fit(law, strain, stress, valid)
    risk = bayes_risk(copied.settings, features)
    reference = evaluation.scores.reference
    assert reference.num_curves == count
    assert reference.method == "quadrature"
    assert reference.fewest_effective_samples is None
    for i, entry in enumerate(reference.parameters.values()):
        squares = (network - truth)[:, i] ** 2
        variance = risk.variance[:, i]
        # An answer's expected squared error is the posterior variance and its squared distance from the posterior mean.
        excess = (network - risk.mean)[:, i] ** 2
        share = excess.mean() / variance.mean()
        # The delta method for a ratio of two means, with their covariance.
        covariance = np.cov(excess, variance)
        error = np.sqrt(
            (covariance[0, 0] - 2 * share * covariance[0, 1] + share**2 * covariance[1, 1]) / count
        )
        for name, expected in {
            "network_mse": squares.mean(),
            "bayes_risk": variance.mean(),
            "bayes_risk_error": variance.std(ddof=1) / np.sqrt(count),
            "least_squares_mse": ((fitted.labels - truth)[:, i] ** 2).mean(),
            "eta": 1 + share,
            "eta_error": error / variance.mean(),
            "least_squares_eta": 1
            + ((fitted.labels - risk.mean)[:, i] ** 2).mean() / variance.mean(),
            "posterior_calibration": ((risk.mean - truth)[:, i] ** 2 / variance).mean(),
            "unidentifiable_share": fitted.unidentifiable[:, i].mean(),
        }.items():
            assert getattr(entry, name) == pytest.approx(expected, rel=1e-6), name
        bound = cramer_rao_bound(law, strain, truth, 1.0, valid=valid)[:, i, i]
        assert entry.cramer_rao == pytest.approx(np.minimum(bound, 1 / 12).mean())
        assert entry.eta > 1
        assert 0.9 < entry.interval_coverage <= 1
    assert reference.least_squares_curves_per_second > 0 and evaluation.scores.curves_per_second > 0
    for quantity, of_curves in {
        "max_strain": strain.max(axis=1),
        "noise_to_signal": 1 / np.where(valid, stress, 0).max(axis=1),
        "num_points": valid.sum(axis=1),
    }.items():
        bins = reference.bins[quantity]
        assert sum(entry.num_curves for entry in bins) == count
        assert bins[0].low == pytest.approx(of_curves.min())
        assert bins[-1].high == pytest.approx(of_curves.max())
        mean = sum(b.num_curves * b.parameters["a"].network_mse for b in bins) / count
        assert mean == pytest.approx(reference.parameters["a"].network_mse)
    write_json(tmp_path / "evaluation.json", evaluation.scores)
    assert read_evaluation(tmp_path / "evaluation.json") == evaluation.scores


def test_curves_whose_posterior_has_not_converged_are_left_out(copied, identifier, monkeypatch):
    def known_of_some(*arguments, **options):
        found = cached_bayes_risk(*arguments, **options)
        count = len(found.mean)
        k = np.where(np.arange(count) % 10 == 0, 0.71, 0.1)
        return dataclasses.replace(found, pareto_k=k, effective_samples=np.full(count, 200.0))

    monkeypatch.setattr(reference_module, "cached_bayes_risk", known_of_some)
    evaluation = evaluate(identifier, copied)
    reference = add_reference(evaluation, identifier, copied, 60).scores.reference
    assert reference.num_left_out == 6
    assert reference.num_curves == 54
    good = np.arange(60) % 10 > 0
    risk = bayes_risk(copied.settings, copied.features[-copied.num_test :][:60]).variance[good]
    found = [entry.bayes_risk for entry in reference.parameters.values()]
    np.testing.assert_allclose(found, risk.mean(axis=0))
    assert (
        "6 more curves, whose posteriors have not converged"
        in reference_table(reference, 1.0).caption
    )

    monkeypatch.setattr(
        reference_module,
        "cached_bayes_risk",
        lambda *a, **o: dataclasses.replace(known_of_some(*a, **o), pareto_k=np.full(60, 0.9)),
    )
    with pytest.raises(InputError, match="the posteriors of only 0 of 60 curves have converged"):
        add_reference(evaluation, identifier, copied, 60)


def test_the_risk_is_kept_beside_the_data_set(copied, identifier):
    evaluation, calls = evaluate(identifier, copied), []
    first, again = (
        add_reference(evaluation, identifier, copied, 60, lambda *done: calls.append(done))
        for _ in range(2)
    )
    assert calls == [(50, 60)]
    np.testing.assert_array_equal(first.reference.bayes_variance, again.reference.bayes_variance)
    content = json.loads((copied.folder / "bayes_risk.json").read_text())
    assert content["settings"] == copied.settings.to_json()
    assert PackedDataset.open(copied.folder).num_test == copied.num_test


def test_errors_are_on_the_network_s_scale_whatever_ranges_the_data_have(tmp_path, identifier):
    ranges = {"G0": (3000.0, 6000.0), "a": (1e-9, 1e-8)}
    other = generate_dataset(
        CurveSettings(ranges=ranges), seed=2, num_curves=8, num_test=40, data_dir=tmp_path
    )
    reference = add_reference(evaluate(identifier, other), identifier, other, 40).reference
    own = bayes_risk(other.settings, other.features[-40:]).variance
    # Half of G0's range, and one decade of two.
    np.testing.assert_allclose(reference.bayes_variance, own / 4, rtol=1e-6)
    evaluation = evaluate(identifier, other)
    assert reference.network.mean(axis=0) == pytest.approx(
        [score.mse for score in evaluation.scores.parameters.values()]
    )
    values = fit(other.settings.build_law(), *split_features(other.features[-40:])).values
    error = (values[:, 0] - (3000 + 3000 * np.array(other.labels[-40:, 0], np.float64))) / 6000
    np.testing.assert_allclose(reference.least_squares[:, 0], error**2, rtol=1e-3, atol=1e-12)


def test_there_is_no_reference_without_noise_or_law(tmp_path, copied, identifier):
    silent = generate_dataset(
        CurveSettings(noise_mpa=0.0), seed=1, num_curves=8, num_test=50, data_dir=tmp_path
    )
    evaluation = evaluate(identifier, silent)
    with pytest.raises(InputError, match="have no noise"):
        add_reference(evaluation, identifier, silent, 10)
    imported = dataclasses.replace(copied, settings=None)
    with pytest.raises(InputError, match="were not simulated here"):
        add_reference(evaluation, identifier, imported, 10)
    assert evaluation.scores.reference is None
