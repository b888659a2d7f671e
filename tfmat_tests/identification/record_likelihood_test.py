"""The likelihood of records with errors that are not known, against dense normal densities and against simulation."""

import dataclasses

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from tfmat.errors import InputError
from tfmat.identification.evaluate import bayes_risk
from tfmat.identification.likelihood import DrawnErrors, NoiseModel, SimulatedErrors, offset_value
from tfmat.records.simulation import CurveSettings, Simulator, observed

# Linear in its one parameter, so that everything has a closed form.
RUBBER = {
    "law": "neo_hooke",
    "tests": ("uniaxial", "planar"),
    "num_points": 16,
    "noise_mpa": 0.02,
    "strength_cut_off": False,
}


def _records(count=6, **options):
    settings = CurveSettings(**{**RUBBER, **options})
    curves = Simulator(settings, 3).curves(0, count)
    tests, response, valid = observed(settings, curves.features)
    law = settings.build_law()
    noise = NoiseModel.of(settings)
    kind = SimulatedErrors if noise.unknown is None else DrawnErrors
    many = kind(law, noise, tests, response, valid)
    return settings, curves, tests, response, many.each()


def _shapes(law, tests, i, move=0.0):
    """d stress / d parameter of each test of record i, at strains that are moved: a list of [points]."""
    return [
        law.respond(
            dataclasses.replace(history, strain=history.strain[i : i + 1] + move), np.ones((1, 1))
        )[0]
        for history in tests.histories
    ]


def test_correlated_noise_of_known_size_has_the_dense_normal_density():
    settings, _, tests, response, found = _records(noise_correlation=(0.7, 0.7))
    law, tried = settings.build_law(), np.array([[0.2], [0.5], [0.51]])
    lag = np.abs(np.subtract.outer(np.arange(16), np.arange(16)))
    dense = scipy.stats.multivariate_normal(np.zeros(16), 0.02**2 * 0.7**lag)
    for i, likelihood in enumerate(found):
        assert likelihood.nuisances == 0
        values = law.from_labels(tried)[:, 0]
        expected = sum(
            dense.logpdf(response[i, part] * 0.02 - np.outer(values, shape))
            for part, shape in zip(
                (slice(0, 16), slice(16, 32)), _shapes(law, tests, i), strict=True
            )
        )
        density = likelihood.log_density(tried)
        np.testing.assert_allclose(
            density - density[0], expected - expected[0], rtol=1e-6, atol=1e-6
        )


def test_offsets_of_the_stress_integrate_to_the_dense_normal_density():
    """An offset of known size adds a constant to the covariance of a test's points; by quadrature over its label."""
    settings, _, tests, response, found = _records(
        3, tests=("uniaxial",), stress_offset=(0.05, 0.05)
    )
    law = settings.build_law()
    dense = scipy.stats.multivariate_normal(
        np.zeros(16), 0.02**2 * np.eye(16) + 0.05**2 * np.ones((16, 16))
    )
    for i, likelihood in enumerate(found):
        expected, integrals = [], []
        middle = float(Simulator(settings, 3).curves(0, 3).labels[i, 0])
        for label in (middle, middle + 0.01):
            value = law.from_labels(np.array([[label]]))[0, 0]
            expected.append(dense.logpdf(response[i] * 0.02 - value * _shapes(law, tests, i)[0]))
            # Over z, with the normal density: the label is its distribution function.
            z = np.linspace(-6, 6, 4001)
            labels = np.stack([np.full(4001, label), scipy.stats.norm.cdf(z)], axis=1)
            terms = likelihood.log_density(labels) + scipy.stats.norm.logpdf(z)
            integrals.append(
                np.log(scipy.integrate.trapezoid(np.exp(terms - terms.max()), z)) + terms.max()
            )
        assert integrals[1] - integrals[0] == pytest.approx(expected[1] - expected[0], abs=1e-4)


def test_an_offset_of_the_strain_moves_the_history():
    settings, _, tests, response, found = _records(strain_offset=(0.01, 0.01))
    law = settings.build_law()
    z = np.array([0.7, -1.2])
    for i, likelihood in enumerate(found):
        assert likelihood.nuisances == 2
        labels = np.concatenate([[0.4], scipy.stats.norm.cdf(z)])
        value = law.from_labels(np.array([[0.4]]))[0, 0]
        model = np.concatenate(
            [value * _shapes(law, tests, i, 0.01 * z[test])[test] for test in (0, 1)]
        )
        expected = scipy.stats.norm.logpdf(response[i] * 0.02, model, 0.02).sum()
        expected += 32 * 0.5 * np.log(2 * np.pi)
        assert likelihood.log_density(labels[None])[0] == pytest.approx(expected, rel=1e-9)


def test_slack_is_what_the_specimen_does_not_see():
    settings, _, tests, response, found = _records(toe=(0.01, 0.1))
    law, labels = settings.build_law(), np.array([[0.4, 0.25, 0.5]])
    value = law.from_labels(labels[:, :1])[0, 0]
    for i, likelihood in enumerate(found):
        model = []
        for history, slack in zip(tests.histories, 0.01 * 10.0 ** labels[0, 1:], strict=True):
            strain = history.strain[i : i + 1]
            seen = dataclasses.replace(history, strain=strain - slack * -np.expm1(-strain / slack))
            model.append(law.respond(seen, np.array([[value]]))[0])
        expected = scipy.stats.norm.logpdf(response[i] * 0.02, np.concatenate(model), 0.02).sum()
        expected += 32 * 0.5 * np.log(2 * np.pi)
        assert likelihood.log_density(labels)[0] == pytest.approx(expected, rel=1e-9)


def test_noise_that_is_told_is_the_unit_of_the_response():
    settings, curves, tests, _, found = _records(
        noise_mpa=0.0, noise_of_maximum=(0.001, 0.1), noise_told=True
    )
    assert NoiseModel.of(settings).unknown is None
    law, told = settings.build_law(), curves.features[:, :, 3].astype(float)
    tried = np.array([[0.3], [0.31]])
    for i, likelihood in enumerate(found):
        values = law.from_labels(tried)[:, 0]
        model = np.outer(values, np.concatenate(_shapes(law, tests, i)))
        expected = scipy.stats.norm.logpdf(curves.features[i, :, 1], model, told[i]).sum(axis=1)
        density = likelihood.log_density(tried)
        assert density[1] - density[0] == pytest.approx(
            expected[1] - expected[0], rel=1e-6, abs=1e-6
        )


def test_noise_that_is_drawn_has_a_label_for_each_test():
    settings, curves, tests, _, found = _records(noise_mpa=0.01, noise_of_maximum=(0.01, 0.1))
    law = settings.build_law()
    labels = np.array([[0.4, 0.2, 0.9], [0.4, 0.7, 0.9], [0.42, 0.7, 0.3]])
    for i, likelihood in enumerate(found):
        assert likelihood.nuisances == 2
        expected = np.zeros(3)
        for test, shape in enumerate(_shapes(law, tests, i)):
            model = np.outer(law.from_labels(labels[:, :1])[:, 0], shape)
            share = 0.01 * 10 ** labels[:, 1 + test]
            size = np.hypot(0.01, share * np.abs(model).max(axis=1))[:, None]
            measured = curves.features[i, 16 * test : 16 * (test + 1), 1]
            expected += scipy.stats.norm.logpdf(measured, model, size).sum(axis=1)
        density = likelihood.log_density(labels)
        np.testing.assert_allclose(
            density - density[0], expected - expected[0], rtol=1e-5, atol=1e-4
        )


def test_breaks_of_records_with_unknown_errors_tell_of_the_strength():
    """The density with the cut over that without it: the strength lies where all tests held, and none that broke."""
    settings, curves, tests, response, found = _records(
        40, noise_of_maximum=(0.01, 0.1), strength_cut_off=True
    )
    law, (low, high) = settings.build_law(), settings.resolved().strength_mpa
    uncut = dataclasses.replace(NoiseModel.of(settings), strength_mpa=None)
    valid, broken = np.concatenate([one.valid for one in found]), 0
    without = DrawnErrors(law, uncut, tests, response, valid)
    for i, likelihood in enumerate(found):
        labels = np.concatenate([curves.labels[i], [0.3, 0.6]])[None]
        value, held, broke = law.from_labels(labels[:, :1])[0, 0], low, high
        for test, shape in enumerate(_shapes(law, tests, i)):
            count = valid[i, 16 * test : 16 * (test + 1)].sum()
            held = max(held, (value * shape)[: max(count - 1, 0)].max(initial=low))
            if 0 < count < 16:
                broke, broken = min(broke, value * shape[count - 1]), broken + 1
        told = likelihood.log_density(labels) - without.log_density(labels, slice(i, i + 1))
        assert told[0] == pytest.approx(np.log((broke - held) / (high - low)), abs=1e-9)
    assert broken


def test_quantiles_of_offsets_are_those_of_their_scale_mixture():
    low, high = 1e-6, 1e-4
    value = offset_value((low, high))
    random = np.random.default_rng(0)
    drawn = low * (high / low) ** random.random(400_000) * random.standard_normal(400_000)
    assert scipy.stats.kstest(scipy.stats.rankdata(drawn) / 400_001, "uniform").pvalue > 0.9
    for share in (0.001, 0.05, 0.3, 0.5, 0.8, 0.99):
        below = (drawn <= value(np.array([share]))[0]).mean()
        assert below == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 400_000))
    known = offset_value((2.0, 2.0))
    z = np.array([-3.0, 0.0, 1.5])
    np.testing.assert_allclose(known(scipy.stats.norm.cdf(z)), 2.0 * z, atol=1e-4)


def test_slopes_are_those_of_the_density():
    *_, found = _records(
        2, noise_of_maximum=(0.01, 0.1), noise_correlation=(0.2, 0.9), strain_offset=(1e-3, 1e-2), toe=(0.01, 0.1),
        machine_stiffness=(20.0, 100.0),
    )  # fmt: skip
    likelihood = found[0]
    labels = np.full((2, 1 + likelihood.nuisances), 0.45)
    labels[1] += np.linspace(0.0, 0.3, labels.shape[1])
    _, slope, curvature = likelihood.expansion(labels)
    for column in range(labels.shape[1]):
        step = 2e-3 * np.eye(labels.shape[1])[column]
        rise = likelihood.log_density(labels + step) - likelihood.log_density(labels - step)
        np.testing.assert_allclose(slope[:, column], rise / 4e-3, rtol=0.02, atol=0.3)
    assert (np.linalg.eigvalsh(curvature) > -1e-6).all()


@pytest.mark.parametrize(
    "options",
    [
        {"noise_of_maximum": (0.01, 0.1), "noise_told": True, "noise_mpa": 0.0},
        {"noise_of_maximum": (0.005, 0.1), "noise_mpa": 0.0, "missing_tests": 0.5},
        {"noise_correlation": (0.3, 0.95), "stress_offset": (0.02, 0.1)},
        {"strain_offset": (0.003, 0.01), "machine_stiffness": (20.0, 200.0)},
        {"measured_points": (8, 16), "noise_correlation": (0.8, 0.8), "toe": (0.01, 0.1)},
        {"noise_of_maximum": (0.01, 0.1), "strength_cut_off": True},
    ],
)
def test_the_posterior_is_calibrated(options):
    """The squared error of posterior means is their variance in the mean, and their ranks are uniform."""
    settings = CurveSettings(**{**RUBBER, **options})
    count = 40
    curves = Simulator(settings, 11).curves(0, count)
    found = bayes_risk(settings, curves.features)
    labels = curves.labels.astype(np.float64)
    # A mean of `count` squares of nearly normal numbers is between these in 998 of 1000 cases, and their own mean too.
    low, high = scipy.stats.chi2.ppf([0.001, 0.999], count) / count
    assert low < found.calibration(labels)[0] < high
    score = (labels - found.mean)[:, 0] / np.sqrt(found.variance[:, 0])
    assert abs(score.mean()) < scipy.stats.norm.ppf(0.999) / np.sqrt(count)
    if found.effective_samples is not None:
        assert np.median(found.effective_samples) > 200


def test_errors_that_are_ignored_would_be_seen():
    """The same records under the likelihood of independent noise alone: far too sure."""
    settings = CurveSettings(**RUBBER, noise_correlation=(0.95, 0.95), stress_offset=(0.1, 0.1))
    curves = Simulator(settings, 11).curves(0, 24)
    right = bayes_risk(settings, curves.features)
    plain = dataclasses.replace(settings, noise_correlation=None, stress_offset=None)
    wrong = bayes_risk(plain, curves.features)
    labels = curves.labels.astype(np.float64)
    assert wrong.calibration(labels)[0] > 10.0 > 2.0 > right.calibration(labels)[0]
    assert (right.risk > wrong.risk).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"misfit": (0.01, 0.1)}, "curves with data.misfit have no exact likelihood"),
        ({"measured_points": (8, 12), "strength_cut_off": True}, "data.measured_points that break"),
        ({"noise_mpa": 0.0}, "the curves have no noise"),
    ],
)  # fmt: skip
def test_what_has_no_likelihood_is_named(options, message):
    with pytest.raises(InputError, match=message):
        NoiseModel.of(CurveSettings(**{**RUBBER, **options}))


def test_curves_with_any_of_it_have_no_likelihood():
    with pytest.raises(InputError, match="curves with data.stress_offset have no exact likelihood"):
        NoiseModel.of(CurveSettings("voce", stress_offset=(0.1, 1.0)))


def test_many_records_are_answered_at_once():
    settings, _, tests, response, found = _records(
        noise_of_maximum=(0.01, 0.1), noise_correlation=(0.2, 0.9), missing_tests=0.4,
        strain_offset=(1e-3, 1e-2), strength_cut_off=True,
    )  # fmt: skip
    law, noise = settings.build_law(), NoiseModel.of(settings)
    valid = np.concatenate([one.valid for one in found])
    many = DrawnErrors(law, noise, tests, response, valid)
    random = np.random.default_rng(0)
    labels = random.uniform(0.1, 0.9, (12, 1 + many.nuisances))
    curves = np.arange(12) % 6
    density, slope, curvature = many.expansion(labels, curves)
    np.testing.assert_array_equal(many.log_density(labels, curves), density)
    for k, curve in enumerate(curves):
        one = found[curve]
        assert one.log_density(labels[k : k + 1])[0] == pytest.approx(density[k], rel=1e-12)
        alone = one.expansion(labels[k : k + 1])[1:]
        np.testing.assert_allclose(alone[0][0], slope[k], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(alone[1][0], curvature[k], rtol=1e-9, atol=1e-9)
