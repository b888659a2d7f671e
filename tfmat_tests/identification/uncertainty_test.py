"""Calibrated intervals: against closed forms, against distributions that are no Gaussians, and from a stored run."""

import json
import shutil

import msgspec
import numpy as np
import pytest
import scipy.stats

import tfmat
from tfmat.errors import InputError
from tfmat.identification.answer import identify
from tfmat.identification.evaluate import COVERAGES, coverage, evaluate
from tfmat.identification.networks import Calibration, Identifier, Spread, in_units, read_sidecar
from tfmat.materials import find_law
from tfmat.records.cleaning import clean
from tfmat.records.files import example_curve, write_example_curve
from tfmat.records.reading import RawCurve
from tfmat.records.record import MeasuredRecord
from tfmat_tests.records.files import load_measured_curve


def _drawn(seed, count=20_000):
    """Labels whose errors are skewed (exponential) and heavy-tailed (Student), and what a wrong head says of them."""
    random = np.random.default_rng(seed)
    labels = random.uniform(0.3, 0.7, (count, 2))
    std = random.uniform(0.005, 0.02, (count, 2))
    z = np.stack([random.exponential(1.5, count) - 1.5, random.standard_t(4, count)], axis=1)
    return labels + std * z, labels, std


def test_intervals_hold_the_truth_as_often_as_they_say():
    calibration = Calibration.measured(*_drawn(0))
    true, labels, std = _drawn(1)
    for percent in (50, 90, 95):
        limits = calibration.interval(labels, std, percent / 100)
        held = np.mean((limits[:, :, 0] <= true) & (true <= limits[:, :, 1]), axis=0)
        assert held == pytest.approx(percent / 100, abs=0.01)
    # Below: nothing, above: the exponential's own quantiles.
    first = (calibration.interval(labels, std)[:, 0] - labels[:, :1]) / std[:, :1]
    expected = scipy.stats.expon.ppf([0.025, 0.975], scale=1.5) - 1.5
    assert first.mean(axis=0) == pytest.approx(expected, abs=0.1)
    assert calibration.z_std == pytest.approx([1.5, np.sqrt(2)], rel=0.05)
    np.testing.assert_allclose(calibration.std(std), std * calibration.z_std)


def test_a_spread_is_that_by_which_regions_hold_the_truth():
    """Normal truths about normal posteriors: regions are balls, and the spread is the ratio of both deviations."""
    random, (curves, draws, p) = np.random.default_rng(2), (1500, 100, 3)
    z = random.normal(size=(curves, draws, p))
    for deviation in (0.9, 0.99, 1.0, 1.15):
        spread, true = Spread(0, 1.0), random.normal(0, deviation, (curves, p))
        for _ in range(2):
            drawn = spread.value * z
            densities = [
                scipy.stats.norm.logpdf(at, scale=spread.value).sum(axis=-1) for at in (drawn, true)
            ]
            squares = [np.square(at).sum(axis=-1) for at in (drawn, true)]
            spread = spread.better(densities[0], squares[0], densities[1], squares[1], p)
        # Three standard errors of 1,500 truths about the end of a ball: 1.7 % of coverage, 0.055 of its radius.
        assert spread.value == pytest.approx(deviation, abs=0.055)
        # What 1,500 truths cannot tell from 1 makes no posterior narrower.
        assert spread.value >= 1.0 or deviation == 0.9
        assert spread.num_curves == curves


def test_coverage_scores_equal_their_formulas():
    calibration = Calibration.measured(*_drawn(0))
    true, labels, std = _drawn(1)
    limits = np.stack([calibration.interval(labels, std, share) for share in COVERAGES])
    scores = coverage(["x", "y"], true, labels, calibration.std(std), limits)
    for i, name in enumerate(("x", "y")):
        own = std[:, i] * calibration.z_std[i]
        assert scores[name].mean_std == pytest.approx(own.mean())
        z = (true - labels)[:, i] / own
        assert scores[name].z_std == pytest.approx(np.sqrt(np.mean(z**2)))
        nll = -scipy.stats.norm.logpdf(true[:, i], labels[:, i], own).mean()
        assert scores[name].nll == pytest.approx(nll)
        limits = calibration.interval(labels, std, 0.9)[:, i]
        held = np.mean((limits[:, 0] <= true[:, i]) & (true[:, i] <= limits[:, 1]))
        assert scores[name].of_90 == pytest.approx(held, abs=1e-3)
        assert sum(entry.num_curves for entry in scores[name].bins) == len(true)
        at = scores[name].curve.nominal.index(0.9)
        assert scores[name].curve.observed[at] == scores[name].of_90
    plain = msgspec.to_builtins(scores)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_an_uncalibrated_network_is_taken_at_its_word():
    calibration = Calibration.gaussian(1)
    limits = calibration.interval(np.array([[0.5], [0.99]]), np.array([[0.01], [0.01]]))
    np.testing.assert_allclose(limits[0, 0], 0.5 + 0.01 * scipy.stats.norm.ppf([0.025, 0.975]))
    assert limits[1, 0, 1] == 1.0
    # Of a label nothing is known beyond its range, whatever the network says.
    assert calibration.std(np.array([[7.0]])) == pytest.approx(scipy.stats.uniform.std())


def test_units_follow_the_scale():
    law = find_law("hahn_tsai")
    labels, std = np.array([[0.5, 0.5]]), np.array([[0.01, 0.1]])
    interval = np.array([[[0.48, 0.52], [0.3, 0.7]]])
    deviations, limits = in_units(law.identified, labels, std, interval)
    np.testing.assert_allclose(deviations, [[60.0, 1e-8 * np.log(100) * 0.1]])
    np.testing.assert_allclose(limits[0], [[4880, 5120], [10**-8.4, 10**-7.6]])


@pytest.fixture(scope="module")
def run(uncertain_run):
    return uncertain_run


def test_a_stored_run_is_calibrated_on_validation_curves(run, trained_run):
    dataset = trained_run.dataset
    identifier = Identifier.open(run)
    calibration = identifier.calibration
    assert calibration is not None and calibration.num_curves == dataset.num_validation
    rows = slice(dataset.num_train, dataset.num_train + dataset.num_validation)
    labels = identifier.predict(dataset.features[rows]).clip(0, 1)
    z = (np.array(dataset.labels[rows], np.float64) - labels) / [0.02, 0.05]
    np.testing.assert_allclose(
        calibration.quantiles[:, [4, 99, 194]],
        np.quantile(z, [0.025, 0.5, 0.975], axis=0).T,
        atol=2e-3,
    )
    scores = evaluate(identifier, dataset).scores.coverage
    assert list(scores) == ["G0", "a"]
    for score in scores.values():
        for percent, held in score.held.items():
            # 1,000 test curves: three standard deviations of a share are 0.05 at 50 %.
            assert held == pytest.approx(percent / 100, abs=0.05)
        assert score.z_std == pytest.approx(1, abs=0.15)
    assert evaluate(Identifier.open(trained_run.workdir), dataset).scores.coverage is None


def test_answers_carry_the_network_s_own_errors(run):
    path = example_curve("hahn_tsai")
    identifier = Identifier.open(run)
    assert path is not None
    curve = load_measured_curve(path, identifier.target)
    (result,) = identify(identifier, [curve])
    content = result.parameters["a"]
    calibration = identifier.calibration
    assert calibration is not None
    label = np.log(content.network / 1e-9) / np.log(100)
    ends = label + 0.05 * np.array([calibration.quantiles[1, 4], calibration.quantiles[1, 194]])
    np.testing.assert_allclose(content.network_ci95, 1e-9 * 100**ends, rtol=1e-4)
    low, high = content.ci95
    assert content.ci95 == content.least_squares_ci95
    assert low < content.value == content.least_squares < high
    assert high - low < 0.5 * (content.network_ci95[1] - content.network_ci95[0])
    (bare,) = identify(identifier, [curve], least_squares=False)
    alone = bare.parameters["a"]
    assert alone.method == "network"
    assert alone.ci95 == alone.network_ci95 == result.parameters["a"].network_ci95
    assert alone.std == pytest.approx(
        alone.value * np.log(100) * 0.05 * calibration.z_std[1], rel=1e-4
    )
    assert alone.least_squares_ci95 is None
    # Given G0, nothing is the network's.
    (given,) = identify(identifier, [curve], fixed={"G0": 6964.0})
    assert given.parameters["a"].network is given.parameters["a"].network_ci95 is None
    # A zero of the load that is off moves `a` alone then, so that least squares may know it less well than without.
    assert given.parameters["a"].std < alone.std


def test_a_network_s_intervals_are_withheld_where_the_curve_does_not_follow_the_law(run, tmp_path):
    """They are calibrated on curves that differ from the law by noise alone."""
    identifier = Identifier.open(run)
    strain = np.linspace(0, 0.04, 150)
    law = find_law("hahn_tsai")
    stress = law.stress(strain[None], np.array([[5000.0, 3e-8]]))[0]
    for misfit_mpa, known in ((0.0, True), (6.0, False)):
        shape = misfit_mpa * np.sin(strain / 0.004) * np.minimum(strain / 0.01, 1)
        noise = np.random.default_rng(0).normal(0, 1, 150)
        curve = clean(RawCurve("a", strain, stress + shape + noise), identifier.target)
        curve = MeasuredRecord.of(curve)
        (result,) = identify(identifier, [curve])
        value = result.parameters["G0"]
        assert value.network is not None and value.ci95 is not None
        assert (value.network_ci95 is not None) == known


def test_arrays_carry_them_too(run, trained_run):
    features = np.array(trained_run.dataset.features[:40])
    padded = features[:, :, 2] > 0
    strain, stress = (np.where(padded, np.nan, features[:, :, i]) for i in (0, 1))
    many = tfmat.network_answers(strain, stress, workdir=run)
    one = tfmat.network_answers(strain[3], stress[3], workdir=run)
    z_std = read_sidecar(run).calibration.z_std
    np.testing.assert_allclose(many.std["G0"], np.full(40, 6000 * 0.02 * z_std[0]), rtol=1e-5)
    assert many.ci95["a"].shape == (40, 2)
    assert np.all(many.ci95["a"][:, 0] <= many.values["a"])
    assert one.std["a"] == pytest.approx(many.std["a"][3], rel=1e-4)
    np.testing.assert_allclose(one.ci95["a"], many.ci95["a"][3], rtol=1e-4)
    assert not many.unidentifiable["G0"].any()
    assert one.unidentifiable == {"G0": False, "a": False}
    without = tfmat.network_answers(strain, stress, workdir=trained_run.workdir)
    assert without.std is without.ci95 is without.unidentifiable is None


def test_what_the_network_does_not_know_it_says(run, tmp_path):
    identifier = Identifier.open(run)
    assert identifier.calibration is not None
    path = write_example_curve(find_law("hahn_tsai"), tmp_path / "curve.csv", max_strain=0.04)
    curve = load_measured_curve(path, identifier.target)

    class Ignorant(Identifier):
        def __init__(self):
            self.__dict__.update(identifier.__dict__)

        def predict_with_std(self, features):
            return self.predict(features), np.full((len(features), 2), [0.01, 0.4])

    (result,) = identify(Ignorant(), [curve], least_squares=False)
    (said,) = [line for line in result.warnings if line.kind == "cannot be identified"]
    assert said.text.startswith(
        "a cannot be identified from this curve: the network's standard dev"
    )
    assert said.advice == "do not use its value alone"  # a network takes no given values
    # This network learned for seconds: its curve is further away than the noise that its intervals are for.
    assert any(line.kind == "no interval of the network" for line in result.warnings)
    assert result.parameters["a"].ci95 is None


def test_a_damaged_calibration_is_refused_in_one_line(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    content = json.loads((copied / "model.json").read_text())
    for calibration in ({}, {"parameters": {}}, [1], {**content["calibration"], "parameters": 3}):
        (copied / "model.json").write_text(json.dumps(content | {"calibration": calibration or 1}))
        with pytest.raises(InputError, match="is damaged") as caught:
            read_sidecar(copied)
        assert "\n" not in str(caught.value)
    (copied / "model.json").write_text(json.dumps(content | {"uncertainty": "none"}))
    with pytest.raises(InputError, match="train again"):
        Identifier.open(copied)
