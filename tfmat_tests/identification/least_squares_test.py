"""Least squares against SciPy, curve by curve, and its intervals against the truth."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from tfmat.identification.least_squares import (
    ZERO,
    fit,
    fit_with_noise,
    profile_limits,
    student_quantile,
)
from tfmat.materials import find_law
from tfmat.materials.law import History, TestSet
from tfmat.materials.numerics import Residuals, even_labels, minimise
from tfmat.records.simulation import CurveSettings, Simulator, split_features

# Metals on which the noise of 1 MPa that the tests have leaves a fit something to find: not 10 MPa strong.
ORDINARY = {
    "voce": {
        "ranges": {"E": (60e3, 220e3), "sigma0": (50, 1000), "Q": (20, 1600), "b": (1, 50)},
        "scales": {"E": "linear", "sigma0": "linear", "max_strain": "linear"},
        "max_strain": (0.02, 0.6),
    },
    "swift": {
        "ranges": {"E": (60e3, 220e3), "K": (150, 2000), "n": (0.05, 0.7)},
        "scales": {"E": "linear", "K": "linear", "max_strain": "linear"},
        "max_strain": (0.02, 0.6),
    },
}


def simulated(count, seed=77, **settings):
    """Law, strain, stress, valid and true labels of simulated curves."""
    settings = {**ORDINARY.get(settings.get("law"), {}), **settings}
    simulator = Simulator(CurveSettings(**settings), seed)
    curves = simulator.curves(0, count)
    return simulator.law, *split_features(curves.features), curves.labels.astype(np.float64)


def scipy_fit(law, strain, stress, start):
    """SciPy's bounded trust region method on one curve."""
    return scipy.optimize.least_squares(
        lambda labels: law.label_stress(strain[None], labels[None])[0] - stress,
        np.clip(start, 0.01, 0.99),
        lambda labels: law.label_derivatives(strain[None], labels[None])[0],
        bounds=(0, 1),
        method="trf",
        x_scale="jac",
        ftol=1e-15,
        xtol=1e-12,
        gtol=1e-12,
        max_nfev=200,
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("hahn_tsai", 120),
        ("tanh_shear", 120),
        ("exponential_shear", 120),
        ("ramberg_osgood", 80),
        ("voce", 80),
        ("swift", 80),
    ],
)
def test_no_fit_is_worse_than_scipy_s_and_the_parameters_are_the_same(name, count):
    law, strain, stress, valid, labels = simulated(count, law=name)
    found = fit(law, strain, stress, valid)
    assert found.minimum.converged.all()
    cost = 0.5 * found.rmse_mpa**2 * valid.sum(axis=1)
    theirs = [
        scipy_fit(law, strain[i, valid[i]], stress[i, valid[i]], labels[i]) for i in range(count)
    ]
    excess = cost / np.array([result.cost for result in theirs]) - 1
    # First yield is a kink, and its place between two points makes local minima: SciPy, which starts at the truth
    # here, finds the better one for a few curves, and we do for others.
    worse = (excess > 1e-8).sum()
    assert worse == 0 if name not in ("voce", "swift") else worse <= 0.04 * count
    assert (excess < 0.01).all()
    same = np.abs(excess) < 1e-8
    assert same.mean() > 0.92
    distance = np.abs(np.array([result.x for result in theirs]) - found.labels) / found.label_std
    assert distance[same].max() < 0.003


def test_a_fit_from_given_labels_ends_at_the_same_minimum():
    law, strain, stress, valid, labels = simulated(200)
    found = fit(law, strain, stress, valid)
    again = fit(law, strain, stress, valid, start=np.full_like(labels, 0.5))
    assert again.rmse_mpa == pytest.approx(found.rmse_mpa, rel=1e-9)


def test_covariance_and_intervals_are_those_of_curve_fit():
    law, strain, stress, valid, _ = simulated(40)
    found = fit(law, strain, stress, valid)
    quantile = scipy.stats.t.ppf(0.975, valid.sum(axis=1) - 2)
    for i in np.flatnonzero(~found.at_bound.any(axis=1)):
        e, s = strain[i, valid[i]], stress[i, valid[i]]

        def model(e, *labels):
            return law.label_stress(e[None], np.array([labels]))[0]

        best, covariance = scipy.optimize.curve_fit(model, e, s, p0=found.labels[i])
        assert best == pytest.approx(found.labels[i], abs=1e-4 * found.label_std[i].max())
        np.testing.assert_allclose(found.label_covariance[i], covariance, rtol=2e-3)
        half = quantile[i] * np.sqrt(np.diag(covariance))
        # The profile of a wider interval is not symmetric.
        if half.max() < 0.02:
            low, high = np.clip([best - half, best + half], 0, 1)
            assert found.interval_labels[i] == pytest.approx(np.stack([low, high], 1), abs=1e-3)
        # Of the parameter on a logarithmic scale the interval is that of the logarithm.
        np.testing.assert_allclose(
            found.interval[i, 1], 1e-9 * 100 ** found.interval_labels[i, 1], rtol=1e-9
        )
        np.testing.assert_allclose(found.std[i, 0], 6000 * found.label_std[i, 0], rtol=1e-12)
        np.testing.assert_allclose(
            found.std[i, 1], found.values[i, 1] * np.log(100) * found.label_std[i, 1], rtol=1e-12
        )
        assert found.sigma[i] == pytest.approx(
            np.sqrt(np.sum((model(e, *best) - s) ** 2) / (len(e) - 2)), rel=1e-8
        )


@pytest.mark.parametrize("points", [16, 24])
def test_bent_intervals_end_where_the_profile_does(points):
    """A kink between two of few points: searches by scipy, from many starts, find the same rise at each end."""
    law = find_law("voce", ranges={"E": (5e4, 6e5)})
    truth = law.to_labels(np.array([[201103.0, 372.2, 244.6, 21.1]]))
    strain = 0.1 * np.arange(1, points + 1) / points
    noise = np.random.default_rng(3).normal(0.0, 1.0, points)
    stress = law.label_stress(strain[None], truth)[0] + noise
    starts = even_labels(40, 4)
    found = fit(law, strain[None], stress[None], elsewhere=starts)
    least = float(found.rmse_mpa[0]) ** 2 * points
    rise = scipy.stats.t.ppf(0.975, points - 4) ** 2 * least / (points - 4)

    def profile(column, label):
        others = [i for i in range(4) if i != column]

        def residuals(free):
            labels = np.insert(np.clip(free, 0.0, 1.0), column, label)
            return law.label_stress(strain[None], labels[None])[0] - stress

        near = [found.labels[0], truth[0], *starts[:8]]
        searches = [
            scipy.optimize.least_squares(residuals, start[others], bounds=(0.0, 1.0))
            for start in np.clip(near, 1e-3, 1.0 - 1e-3)
        ]
        return 2.0 * min(search.cost for search in searches) - least

    low, high = found.interval_labels[0].T
    for column in range(4):
        for end, outwards in ((low[column], -1.0), (high[column], 1.0)):
            if 0.0 < end < 1.0:
                assert profile(column, end) == pytest.approx(rise, rel=0.15)
                beyond = end + outwards * 0.2 * (high[column] - low[column])
                assert profile(column, np.clip(beyond, 0.0, 1.0)) > rise
            else:
                assert profile(column, end) < rise
    assert ((low <= truth[0]) & (truth[0] <= high)).all()


@pytest.mark.parametrize("name", ["hahn_tsai", "tanh_shear", "ramberg_osgood"])
def test_95_percent_intervals_hold_the_truth_in_95_percent_of_curves(name):
    count = 1500
    law, strain, stress, valid, labels = simulated(count, seed=5, law=name)
    found = fit(law, strain, stress, valid)
    low, high = np.moveaxis(found.interval_labels, 2, 0)
    held = ((low <= labels) & (labels <= high)).sum(axis=0)
    # A band that chance leaves once in ten thousand; a little more, since the law is not linear in its parameters.
    few, many = scipy.stats.binom.interval(0.9999, count, 0.95)
    assert (held > few - 0.005 * count).all()
    assert (held < many + 0.005 * count).all()


def test_intervals_hold_the_truth_where_the_load_is_not_zeroed():
    """Its zero is off by as much as a posterior takes it to be; without a word of it 7 % of σ0's intervals would do."""
    law, count = find_law("voce"), 300
    random = np.random.default_rng(2)
    strain = np.concatenate([np.linspace(1e-4, 0.004, 40), np.linspace(0.005, 0.1, 80)])
    truth = np.array([[200e3, 300.0, 250.0, 12.0]])
    stress = law.stress(strain[None], truth)
    noise = random.normal(0.0, 1e-3, (count, 120)) + random.normal(0.0, ZERO, (count, 1))
    found = fit(
        law,
        np.tile(strain, (count, 1)),
        stress + stress.max() * noise,
        start=np.tile(law.to_labels(truth), (count, 1)),
        zero=ZERO,
    )
    low, high = np.moveaxis(found.interval, 2, 0)
    few = scipy.stats.binom.ppf(1e-3, count, 0.95)
    assert (((low <= truth) & (truth <= high)).sum(axis=0) >= few).all()


def test_each_test_s_zero_widens_a_linear_law_s_intervals_as_linear_algebra_says():
    """The zeroes as unknowns beside the parameters: what the data say of them, times what they move the fit by."""
    law = find_law("mooney_rivlin", scales={"C10": "linear"})
    strain = np.linspace(0.02, 1.0, 30)[None]
    tests = TestSet((History(strain=strain), History(mode="equibiaxial", strain=strain)))
    response = law.label_stress(tests, np.array([[0.2, 0.3]]))
    response = response + np.random.default_rng(4).normal(0.0, 0.02, response.shape)
    plain, found = (fit(law, tests, response, zero=zero) for zero in (0.0, ZERO))
    np.testing.assert_array_equal(found.labels, plain.labels)

    jacobian = law.label_derivatives(tests, found.labels)[0]
    zeroes = np.zeros((60, 2))
    for test, points in enumerate((slice(30), slice(30, 60))):
        zeroes[points, test] = ZERO * np.abs(response[0, points]).max()
    sigma, left = found.sigma[0], (response - law.label_stress(tests, found.labels))[0]
    unknowns = np.vstack([np.hstack([jacobian, zeroes]) / sigma, np.eye(4)[2:]])
    target = np.concatenate([left / sigma, np.zeros(2)])
    mean = np.linalg.lstsq(unknowns, target, rcond=None)[0][2:]
    square = np.linalg.inv(unknowns.T @ unknowns)[2:, 2:] + np.outer(mean, mean)
    assert (np.diag(square) < 1.0).all()
    moved = np.linalg.lstsq(jacobian, zeroes, rcond=None)[0]
    added = moved @ square @ moved.T
    np.testing.assert_allclose(
        found.label_covariance[0], plain.label_covariance[0] + added, rtol=1e-6
    )
    half = np.ptp(found.interval_labels[0], axis=1) / 2.0
    expected = np.hypot(
        np.ptp(plain.interval_labels[0], axis=1) / 2.0, 1.96 * np.sqrt(np.diag(added))
    )
    np.testing.assert_allclose(half, expected, rtol=1e-3)
    assert (half > 1.02 * np.ptp(plain.interval_labels[0], axis=1) / 2.0).any()


def test_a_point_on_the_kink_does_not_tell_how_stiff_the_machine_is():
    """A fit may put first yield exactly on a point, of which E's slope holds to one side; 2 % of E stay open."""
    law = find_law("voce")
    plastic = np.concatenate([[0.0], np.geomspace(1e-5, 0.12, 60)])
    stress = 180 + 120 * (1 - np.exp(-15 * plastic))
    strain = plastic + stress / 70e3
    elastic = np.linspace(0, 180 / 70e3, 10)[:-1]
    strain, stress = np.append(elastic, strain), np.append(70e3 * elastic, stress)
    stress += np.random.default_rng(3).normal(0, 0.5, len(stress))
    found = fit(law, strain[None], stress[None], np.ones((1, len(strain)), bool), compliance=0.02)
    kink = found.values[0, 1] / found.values[0, 0]
    assert np.abs(strain / kink - 1).min() < 1e-6  # or the test shows nothing
    assert found.std[0, 0] / found.values[0, 0] == pytest.approx(0.0201, abs=0.0003)


def test_padding_does_not_count_whatever_stands_there():
    law, strain, stress, valid, _ = simulated(60)
    assert not valid.all()
    found = fit(law, strain, stress, valid)
    strange = fit(law, np.where(valid, strain, 7.0), np.where(valid, stress, np.nan), valid)
    np.testing.assert_array_equal(found.labels, strange.labels)
    np.testing.assert_array_equal(found.sigma, strange.sigma)
    for i in np.flatnonzero(~valid.all(axis=1))[:5]:
        alone = fit(law, strain[i : i + 1, valid[i]], stress[i : i + 1, valid[i]])
        assert alone.labels[0] == pytest.approx(found.labels[i], abs=1e-6)
        assert alone.rmse_mpa[0] == pytest.approx(found.rmse_mpa[i], rel=1e-9)
    assert fit(law, strain[:0], stress[:0], valid[:0]).interval.shape == (0, 2, 2)


def test_an_optimum_beyond_the_range_is_found_at_its_end():
    law = find_law("hahn_tsai")
    strain = np.linspace(0, 0.04, 200)[None]
    for values, bound in (((9500.0, 1e-8), (1, None)), ((5000.0, 3e-7), (None, 1))):
        stress = law.stress(strain, np.array([values]))
        found = fit(law, strain, stress)
        theirs = scipy_fit(law, strain[0], stress[0], np.array([0.5, 0.5]))
        assert 0.5 * found.rmse_mpa[0] ** 2 * 200 <= theirs.cost * (1 + 1e-8)
        assert found.labels[0] == pytest.approx(theirs.x, abs=1e-4)
        for column, end in enumerate(bound):
            assert bool(found.at_bound[0, column]) == (end is not None)
            if end is not None:
                assert found.labels[0, column] == end


def test_what_a_curve_says_nothing_of_is_unidentifiable():
    law = find_law("hahn_tsai")
    random = np.random.default_rng(0)
    # At 0.2 % strain the cubic term is a thousandth of the noise.
    strain = np.linspace(0, 0.002, 200)[None]
    stress = law.stress(strain, np.array([[5000.0, 1e-9]])) + random.normal(0, 1, (1, 200))
    found = fit(law, strain, stress)
    assert found.unidentifiable.tolist() == [[False, True]]
    assert found.interval_labels[0, 1].tolist() == [0, 1]
    # An elastic curve of a metal knows nothing of hardening: its derivatives are exactly zero.
    metal = find_law("voce")
    elastic = fit(metal, np.linspace(0, 1e-4, 50)[None], 2e5 * np.linspace(0, 1e-4, 50)[None])
    assert elastic.values[0, 0] == pytest.approx(2e5, rel=1e-6)
    assert elastic.unidentifiable[0, 2:].all()
    assert np.isfinite(elastic.interval).all()
    few = fit(law, strain[:, [50, 100]], stress[:, [50, 100]])
    assert np.isnan(few.sigma).all()
    assert few.unidentifiable.all()


def test_weights_are_those_of_curve_fit():
    law, strain, stress, valid, _ = simulated(
        20, noise_mpa=0.5, noise_relative=0.05, strength_cut_off=False
    )
    deviation = np.hypot(0.5, 0.05 * np.abs(stress))
    found = fit(law, strain, stress, valid, deviation=deviation)
    for i in np.flatnonzero(~found.at_bound.any(axis=1)):
        best, covariance = scipy.optimize.curve_fit(
            lambda e, *labels: law.label_stress(e[None], np.array([labels]))[0],
            strain[i],
            stress[i],
            p0=found.labels[i],
            sigma=deviation[i],
        )
        assert best == pytest.approx(found.labels[i], abs=1e-3 * found.label_std[i].max())
        np.testing.assert_allclose(found.label_covariance[i], covariance, rtol=5e-3)
    model = law.label_stress(strain, found.labels)
    assert found.rmse_mpa == pytest.approx(np.sqrt(np.mean((model - stress) ** 2, axis=1)))


def test_known_relative_noise_gives_better_answers_and_sigma_one():
    law, strain, stress, valid, labels = simulated(600, noise_mpa=0.2, noise_relative=0.1)
    even = fit(law, strain, stress, valid)
    weighted = fit_with_noise(law, strain, stress, valid, 0.2, 0.1)
    error, other = ((found.labels - labels)[:, 0] ** 2 for found in (weighted, even))
    assert error.mean() < 0.8 * other.mean()
    assert weighted.sigma.mean() == pytest.approx(1, abs=0.01)
    bias = (weighted.labels - labels)[:, 0].mean()
    assert abs(bias) < 4 * np.sqrt(error.mean() / 600)
    assert fit_with_noise(law, strain, stress, valid, 1.0, 0.0).sigma == pytest.approx(even.sigma)


def test_profiles_are_followed_as_far_as_they_count_beside_other_errors():
    """In quadrature with the other errors the ends are those of whole profiles; one creep test bends their valley."""
    law = find_law("norton")
    time = np.concatenate([np.linspace(0.0, 400.0, 40), 400.0 + np.geomspace(1.0, 6e4, 60)])
    history = History(stress=132.0 * np.minimum(time / 400.0, 1.0)[None], time=time[None])
    truth = law.to_labels(np.array([[9e4, 2000.0, 4.9]]))
    clean = law.label_stress(TestSet((history,)), truth)
    strain = clean + np.random.default_rng(0).normal(0.0, 1e-5, clean.shape)
    residuals = Residuals(law, TestSet((history,)), strain, np.full(clean.shape, 1e5))
    found = minimise(residuals, truth)
    half = 2.0 * np.sqrt(np.diag(np.linalg.inv(found.normal[0])))[None]
    rise, best = np.full((1, 3), 4.0), found.labels[:, :, None]

    def widened(ends, off):
        distance = np.hypot(np.abs(ends - best), off[:, :, None])
        return np.clip(best + [-1.0, 1.0] * distance, 0.0, 1.0)

    whole = profile_limits(residuals, found, half, rise)
    assert ((whole > 0.0) & (whole < 1.0)).all()
    for off in ([[0.0, 0.01, 0.01]], [[0.1, 0.3, 0.6]], [[0.6, 0.6, 0.4]]):
        off = np.array(off)
        ends = profile_limits(residuals, found, half, rise, off=off)
        np.testing.assert_allclose(widened(ends, off), widened(whole, off), atol=1e-3)
        outermost = np.broadcast_to([0.0, 1.0], ends.shape)
        beyond = np.abs(outermost - best) < off[:, :, None]
        assert (ends[beyond] == outermost[beyond]).all()


def test_a_profile_that_comes_near_its_limit_and_never_reaches_it_is_open():
    """With the largest b all hardening is over before the first point: the best fit there is the mean."""
    law = find_law("voce", ranges={"b": (1.0, 1000.0)}, fixed={"E": 2e5})
    strain = np.linspace(0.02, 0.1, 12)[None]
    truth = law.to_labels(np.array([[2e5, 250.0, 150.0, 30.0]]))
    stress = law.label_stress(strain, truth) + np.random.default_rng(0).normal(0.0, 8.0, (1, 12))
    residuals = Residuals(law, strain, stress, np.ones((1, 12)))
    found = minimise(residuals, truth)
    saturated = np.square(stress - stress.mean()).sum() - 2.0 * found.cost[0]
    half = np.array([[0.3, 0.3, 0.2]])
    for root, is_open in ((0.95, True), (0.99, True), (1.02, False)):
        rise = np.full((1, 3), saturated / root**2)
        end = profile_limits(residuals, found, half, rise)[0, 2, 1]
        assert bool(end == 1.0) is is_open


def test_student_s_quantile_is_scipy_s():
    freedom = np.array([[1.0, 1.5, 2.0, 3.7], [10.0, 99.0, 1e4, 1e6]])
    expected = scipy.stats.t.ppf(0.975, freedom)
    np.testing.assert_allclose(student_quantile(freedom), expected, rtol=1e-8)


def test_known_parameters_and_a_single_one():
    law, strain, stress, valid, labels = simulated(50, law="voce", fixed={"E": 2e5, "b": 10.0})
    found = fit(law, strain, stress, valid)
    assert found.values.shape == (50, 2)
    assert np.abs(found.labels - labels).max() < 0.05
    law, strain, stress, valid, labels = simulated(50, fixed={"a": 1e-8})
    found = fit(law, strain, stress, valid)
    assert np.median(np.abs(found.labels - labels) / found.label_std) < 1.2
