"""Least squares of one measured curve: the global minimum, whatever else is in the call, and honest intervals."""

import itertools

import numpy as np
import pytest
import scipy.optimize

import tfmat
from tfmat.errors import InputError
from tfmat.identification.answer import identify
from tfmat.identification.least_squares import (
    ZERO,
    BestFit,
    better_law,
    conditioned,
    correlated_errors,
    fit,
    fit_record,
    missed_knee,
    widened,
)
from tfmat.identification.networks import law_alone
from tfmat.materials import History, find_law
from tfmat.materials.registry import MONOTONIC_LAWS
from tfmat.records.cleaning import clean
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import MeasuredRecord, MeasuredTest
from tfmat.records.simulation import CurveSettings, Simulator, split_features
from tfmat_tests.records.files import load_file

# Ends of curves and numbers of points, as different as files of one call can be; the last has more than a search takes.
LENGTHS = ((0.2, 150), (1.0, 60), (0.05, 25), (0.6, 700))


def best_fit(law, strain, stress) -> BestFit:
    return fit_record(law, MeasuredRecord.of(MeasuredTest("a", strain, stress))).best


def measured(law_name: str, seed: int = 3) -> list[MeasuredRecord]:
    """Curves of a law with noise, of very different lengths."""
    settings = CurveSettings(law_name).resolved()
    law = settings.build_law()
    random = np.random.default_rng(seed)
    assert settings.max_strain is not None
    shortest, longest = settings.max_strain
    curves = []
    for share, points in LENGTHS:
        end = shortest + share * (longest - shortest)
        strain = end * np.linspace(1 / points, 1, points) ** law.strain_spacing
        labels = random.uniform(0.2, 0.8, (1, len(law.identified)))
        stress = law.stress(strain[None], law.from_labels(labels))[0]
        stress += random.normal(0, 1.0, points)
        curves.append(MeasuredRecord.of(MeasuredTest(f"{points} points", strain, stress)))
    return curves


def _in_turn(law_name):
    """Laws whose answers are compared by default: one of shear, and one of metals, which all are compared with."""
    large = law_name not in ("hahn_tsai", "voce")
    return pytest.param(law_name, marks=[pytest.mark.large] if large else [])


@pytest.mark.parametrize("law_name", [_in_turn(name) for name in sorted(MONOTONIC_LAWS)])
def test_an_answer_is_a_function_of_its_own_curve_alone(law_name):
    source, curves = law_alone(law_name), measured(law_name)
    alone = [identify(source, [curve])[0].to_json() for curve in curves]
    together = identify(source, curves[::-1])
    assert [answer.to_json() for answer in together] == alone[::-1]


@pytest.mark.parametrize("law_name", sorted(MONOTONIC_LAWS))
def test_padding_beside_longer_curves_changes_no_fit(law_name):
    """The fit of many curves at once, which measures accuracy: a short one was tried on few of its points."""
    law, curves = find_law(law_name), measured(law_name)
    longest = max(len(curve.strain) for curve in curves)
    strain, stress = (np.zeros((len(curves), longest)) for _ in range(2))
    valid = np.zeros((len(curves), longest), bool)
    for i, curve in enumerate(curves):
        points = slice(0, len(curve.strain))
        strain[i, points], stress[i, points] = curve.strain, curve.stress_mpa
        valid[i, points] = True
    together = fit(law, strain, stress, valid)
    for i, curve in enumerate(curves):
        alone = fit(law, curve.strain[None], curve.stress_mpa[None])
        assert together.rmse_mpa[i] == pytest.approx(alone.rmse_mpa[0], rel=1e-6)


def reference_minimum(law, strain, stress, starts):
    """Least root mean square residual that SciPy finds from random starts within the widened ranges."""
    wide = widened(law)
    random = np.random.default_rng(0)
    best = np.inf
    own = random.uniform(0, 1, (starts, len(law.identified)))
    for start in wide.to_labels(law.from_labels(own)):
        found = scipy.optimize.least_squares(
            lambda labels: wide.stress(strain[None], wide.from_labels(labels[None]))[0] - stress,
            np.clip(start, 1e-6, 1 - 1e-6),
            lambda labels: wide.label_derivatives(strain[None], labels[None])[0],
            bounds=(0, 1),
            x_scale="jac",
            max_nfev=40,
        )
        best = min(best, np.sqrt(2 * found.cost / len(strain)))
    return best


@pytest.mark.parametrize("law_name", sorted(MONOTONIC_LAWS))
def test_no_random_start_of_scipy_finds_a_better_minimum(law_name):
    law = find_law(law_name)
    for curve in measured(law_name)[:3]:
        found = best_fit(law, curve.strain, curve.stress_mpa)
        best = reference_minimum(law, curve.strain, curve.stress_mpa, 10)
        assert found.rmse_mpa <= 1.001 * best


@pytest.mark.parametrize("law_name", ["voce", "swift"])
def test_real_tests_whole_and_cut_short_end_at_the_best_minimum(real_curves, law_name):
    """First yield between two points makes many minima; those of cut curves were missed by up to 2.4 times."""
    law = find_law(law_name)
    files = sorted(real_curves.glob("304L_small_tension/*.csv"))[1::4]
    target = law_alone(law_name).target
    for path in files:
        (curve,) = load_file(path, target, ReadingOptions(stress_unit="ksi"))
        for end in (0.01, 0.1, 1.0):
            kept = curve.strain <= end
            points = curve.strain[kept], curve.stress_mpa[kept]
            found = best_fit(law, *points)
            assert found.rmse_mpa <= 1.005 * reference_minimum(law, *points, 10), (path, end)


def test_least_squares_leaves_the_range_where_the_material_is_beyond():
    law = find_law("voce")
    strain = 0.3 * np.linspace(0, 1, 200) ** 2
    true = np.array([[300e3, 1500.0, 2500.0, 3.0]])
    stress = law.stress(strain[None], true)[0] + np.random.default_rng(0).normal(0, 1, 200)
    found = best_fit(law, strain, stress)
    assert found.values == pytest.approx(true[0], rel=0.05)
    assert (found.labels[[0, 2]] > 1).all() and not found.at_bound.any()


@pytest.mark.parametrize(
    ("law_name", "truth", "end", "poor"),
    [
        ("hockett_sherby", (205e3, 158.0, 263.0, 5.6, 0.77), 0.05, {"Q": 1.3, "N": 1.8}),
        ("swift_voce", (205e3, 700.0, 0.01, 0.2, 250.0, 12.0, 0.3), 0.18, {"K": 3, "alpha": 3}),
    ],
)
def test_what_a_test_of_sheet_metal_hardly_tells_has_a_wide_interval(law_name, truth, end, poor):
    """Saturation is far beyond a short test, and the parts of a mixture are alike before maximum load."""
    law, strain = find_law(law_name), end * np.linspace(0, 1, 150) ** 2
    noise = np.random.default_rng(1).normal(0.0, 1.0, 150)
    stress = law.stress(strain[None], np.array([truth]))[0] + noise
    found = best_fit(law, strain, stress)
    assert found.rmse_mpa < 1.05
    low, high = found.interval.T
    assert ((low <= truth) & (truth <= high)).all()
    ratio = dict(zip((p.name for p in law.parameters), high / low, strict=True))
    assert all(ratio[name] > least for name, least in poor.items())
    assert high[-1] <= 1.0  # neither an exponent nor a weight above 1 is searched for


def test_the_uncertainty_of_a_mean_is_that_of_a_known_process():
    """First-order autoregression: the variance of a mean is (1 + phi) / (1 - phi) times that of independent values."""
    random = np.random.default_rng(0)
    assert correlated_errors(np.ones((100, 1)), random.normal(size=100)) is None
    ratios = []
    for _ in range(200):
        values = np.zeros(400)
        for i in range(1, 400):
            values[i] = 0.9 * values[i - 1] + random.normal()
        found = correlated_errors(np.ones((400, 1)), values - values.mean())
        independent = values.var(ddof=1) / 400
        ratios.append(1.0 if found is None else found.covariance[0, 0] / independent)
    # The lengths of few wanderings are not known well, and the widest of the likely ones is taken.
    assert 0.9 * 19.0 < np.median(ratios) < 2 * 19.0


def test_intervals_hold_the_truth_under_misfit_too():
    """A smooth deviation of 2 % from the law, for which intervals for independent noise are far too narrow."""
    random = np.random.default_rng(1)
    law = find_law("swift")
    strain = 0.2 * np.linspace(0.005, 1, 120) ** 2
    lag = np.abs(np.sqrt(strain)[:, None] - np.sqrt(strain))
    shapes = np.linalg.cholesky(np.exp(-0.5 * (lag / 0.06) ** 2) + 1e-8 * np.eye(120))
    widened_holds, plain_holds, count = 0, 0, 0
    for _ in range(30):
        labels = random.uniform(0.3, 0.7, (1, 4))
        true = law.from_labels(labels)
        stress = law.stress(strain[None], true)[0]
        stress = stress + 0.02 * stress * (shapes @ random.normal(size=120))
        stress += random.normal(0, 1, 120)
        found = best_fit(law, strain, stress)
        plain = fit(widened(law), strain[None], stress[None], start=widened(law).to_labels(
            law.from_labels(found.labels[None])
        ))  # fmt: skip
        for i in (1, 3):
            widened_holds += found.interval[i, 0] <= true[0, i] <= found.interval[i, 1]
            plain_holds += plain.interval[0, i, 0] <= true[0, i] <= plain.interval[0, i, 1]
            count += 1
    assert plain_holds / count < 0.6
    assert widened_holds / count > 0.85


def test_intervals_of_independent_noise_stay_those_of_student():
    simulator = Simulator(CurveSettings("hahn_tsai"), 5)
    count = 80
    curves = simulator.curves(0, count)
    strain, stress, valid = split_features(curves.features)
    held = []
    for i in range(count):
        found = best_fit(simulator.law, strain[i, valid[i]], stress[i, valid[i]])
        true = simulator.law.from_labels(curves.labels[i : i + 1].astype(float))[0]
        held.append((found.interval[:, 0] <= true) & (true <= found.interval[:, 1]))
    share = np.mean(held, axis=0)
    # Three standard deviations; alike residuals are only ever counted against an interval.
    assert (share > 0.95 - 3 * np.sqrt(0.95 * 0.05 / count)).all()


def test_a_given_value_far_from_any_material_is_refused_with_its_unit():
    law = find_law("voce")
    with pytest.raises(InputError, match="E = 69 MPa is far from .* of law voce; give it in MPa"):
        conditioned(law, {"E": 69.0})
    with pytest.raises(InputError, match="has no parameter 'sigma'; did you mean 'sigma0'"):
        conditioned(law, {"sigma": 69.0})
    assert [p.name for p in conditioned(law, {"E": 69e3}).identified] == ["sigma0", "Q", "b"]


def test_a_better_law_is_named_only_with_parameters_inside_its_ranges():
    """A curve of Swift's law with K far beyond its range is not said to be Swift's."""
    swift, strain = find_law("swift"), 0.3 * np.linspace(0.005, 1, 150) ** 2
    for strength, named in ((800.0, True), (3500.0, False)):
        stress = swift.stress(strain[None], np.array([[200e3, strength, 0.002, 0.25]]))[0]
        noisy = stress + np.random.default_rng(0).normal(0, 1, 150)
        record, law = MeasuredRecord.of(MeasuredTest("a", strain, noisy)), find_law("voce")
        better = better_law(law, fit_record(law, record))
        assert (better is not None and better[0] == "swift") == named


def metal(generator, *, coarse=False, strain_noise=0.0, relative=0.0):
    """A tension test that is exactly Voce's law but for noise: strain, stress, and the parameters."""
    law = find_law("voce")
    truth = np.array([205e3, *generator.uniform((250, 150, 8), (450, 350, 22))])
    if coarse:
        points = int(generator.integers(15, 31))
        strain = generator.uniform(0.08, 0.15) * np.arange(1, points + 1) / points
        noise = 0.002 * 600.0
    else:
        strain = np.concatenate([np.linspace(2e-5, 0.0012, 60), np.linspace(0.002, 0.08, 140)])
        noise = 0.3
    stress = law.stress(strain[None], truth[None])[0]
    stress = stress * (1.0 + relative * generator.standard_normal(len(strain)))
    stress = stress + noise * generator.standard_normal(len(strain)) * (relative == 0.0)
    strain = np.sort(strain + strain_noise * generator.standard_normal(len(strain)))
    return strain[strain > 0.0], stress[strain > 0.0], truth


@pytest.mark.parametrize(
    ("kind", "tight"),
    [
        ({"coarse": True}, {}),
        ({"strain_noise": 1.6e-5}, {"sigma0": 0.02, "Q": 0.04, "b": 0.06}),
        ({"relative": 0.01}, {"sigma0": 0.03}),
    ],
)
def test_95_percent_intervals_hold_the_truth_of_curves_that_are_unlike_a_plain_fit(kind, tight):
    """Few elastic points; noise of the strain; noise that grows with the stress. Widths are shares of the values."""
    law, held, widths = find_law("voce"), [], []
    for seed in range(24):
        strain, stress, truth = metal(np.random.default_rng(seed), **kind)
        found = best_fit(law, strain, stress)
        low, high = found.interval.T
        held.append((low <= truth) & (truth <= high))
        widths.append((high - low) / truth)
    # A right interval misses 5 or more of 24 once in 170 trials.
    assert (np.sum(held, axis=0) >= 20).all()
    names = [parameter.name for parameter in law.identified]
    for name, most in tight.items():
        assert np.median(widths, axis=0)[names.index(name)] < most


def test_a_curve_without_elastic_points_bounds_the_modulus_on_one_side():
    """Any stiffer material fits as well: the first point's secant is the least modulus, and there is no largest one."""
    law = find_law("voce")
    for seed in range(4):
        strain, stress, _ = metal(np.random.default_rng(seed), coarse=True)
        found = best_fit(law, strain, stress)
        # The elastic strain ends before the first point.
        assert found.is_open[0].tolist() == [False, True]
        assert found.interval[0, 0] == pytest.approx(stress[0] / strain[0], rel=0.3)
        assert found.is_unknown[0]


@pytest.mark.parametrize("off", [-1.0, 1.0])
def test_one_point_that_may_be_elastic_tells_no_modulus(off):
    """The first point is plastic and off by noise; a seventh of the modulus meets it, and its interval was ± 4 %."""
    law, truth = find_law("voce"), np.array([194e3, 163.0, 160.0, 7.8])
    strain = np.linspace(0.0, 0.12, 22)[1:]
    exact = law.stress(strain[None], truth[None])[0]
    stress = exact + np.random.default_rng(0).normal(0.0, 0.5, len(strain))
    stress[0] = exact[0] + off
    found = best_fit(law, strain, stress)
    assert found.is_open.tolist() == [[False, True], [False] * 2, [False] * 2, [False] * 2]
    low, high = found.interval.T
    assert ((low <= truth) & (truth <= high)).all()
    assert low[0] < 1.02 * stress[0] / strain[0]


def test_a_modulus_that_is_bounded_on_one_side_stays_within_the_usual_range():
    """The fit runs to a modulus of 2,200 GPa, and others fit as well: the parameters of hardening are of use."""
    truth = (189.5e3, 490.7, 133.0, 28.4)  # with noise of 1.2 MPa
    strain = np.linspace(0.0, 0.082944, 15)[1:]
    stress = [502.9, 519.8, 538.7, 550.4, 562.4, 571.7, 579.6, 587.5, 592.8, 595.7]
    stress = np.array([*stress, 599.2, 603.2, 610.1, 612.6])
    measures = {"strain_measure": "true", "stress_measure": "true"}
    answer = tfmat.identify(strain, stress, law="voce", **measures)
    assert answer.do_not_use == []
    assert [caveat.kind for caveat in answer.warnings] == ["bounded on one side"]
    assert answer.parameters["E"].value == pytest.approx(220e3)
    for name, value in zip(answer.parameters, truth, strict=True):
        low, high = answer.parameters[name].ci95
        assert low <= value <= high


def test_no_modulus_is_known_better_than_its_strain():
    """2 % of extensometer and machine, which no number of points tells; other parameters stay as well known."""
    law = find_law("voce")
    strain, stress, _ = metal(np.random.default_rng(1))
    found = best_fit(law, strain, stress)
    plain = fit(law, strain[None], stress[None], correlated=True, zero=ZERO)
    assert found.values == pytest.approx(plain.values[0], rel=1e-5)
    low, high = found.interval[0] / found.values[0]
    assert (low, high) == pytest.approx((np.exp(-0.0392), np.exp(0.0392)), abs=2e-3)
    assert np.ptp(plain.interval[0, 0]) < 0.2 * np.ptp(found.interval[0])
    assert np.ptp(found.interval[1:], axis=1) == pytest.approx(
        np.ptp(plain.interval[0, 1:], axis=1), rel=0.1
    )


@pytest.mark.parametrize("stress_scale", [0.06, 0.12])
def test_a_toe_widens_the_modulus(stress_scale):
    """Slack that closes with the load, 0.1 % in all: whatever of it is taken off, E is known the less."""
    law = find_law("voce")
    strain, stress, truth = metal(np.random.default_rng(5))
    slack = 0.001 * (1.0 - np.exp(-stress / (stress_scale * stress.max())))
    found = {}
    for name, shift in (("plain", 0.0), ("toe", slack)):
        raw = RawCurve(name, strain + shift, stress, strain_measure="true", stress_measure="true")
        curve = clean(raw, law_alone("voce").target)
        best = fit_record(law, MeasuredRecord.of(curve)).best
        low, high = best.interval.T
        assert ((low <= truth) & (truth <= high)).all(), name
        found[name] = curve, np.ptp(best.interval, axis=1) / truth
    assert found["plain"][0].toe == 0.0
    assert "toe" in [caveat.kind for caveat in found["toe"][0].warnings]
    assert found["toe"][1][0] > 3.0 * found["plain"][1][0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slack", [2e-4, 3e-4])
def test_a_toe_too_short_to_be_seen_lets_the_modulus_be_the_steepest_slope(slack, seed):
    law = find_law("voce")
    truth = np.array([110e3, 660.0, 500.0, 12.0])
    strain = np.concatenate([np.linspace(0.0, 0.012, 50), np.linspace(0.013, 0.1, 150)])
    stress = law.stress(strain[None], truth[None])[0]
    strain = strain + slack * (1.0 - np.exp(-stress / (0.1 * stress.max())))
    stress = stress + np.random.default_rng(seed).normal(0.0, 1.0, len(stress))
    raw = RawCurve("short", strain, stress, strain_measure="true", stress_measure="true")
    curve = clean(raw, law_alone("voce").target)
    low, high = fit_record(law, MeasuredRecord.of(curve)).best.interval[0]
    assert curve.toe == 0.0
    assert low <= truth[0] <= high < 1.15 * truth[0]


@pytest.mark.parametrize(
    ("truth", "slack", "removed"),
    [((170e3, 220.0, 350.0, 16.0), 6e-4, True), ((200e3, 300.0, 250.0, 12.0), 1e-3, False)],
)
def test_a_toe_of_few_points_neither_blocks_a_right_modulus_nor_hides(truth, slack, removed):
    """Points every 0.01 % of strain, the first one at 5 % of the load: the chord of the test lies in the toe."""
    law = find_law("voce")
    strain = np.concatenate([np.linspace(1e-4, 0.004, 40), np.linspace(0.005, 0.12, 80)])
    stress = law.stress(strain[None], np.array([truth]))[0]
    strain = strain + slack * (1.0 - np.exp(-stress / (0.05 * stress.max())))
    stress = stress + np.random.default_rng(1).normal(0.0, 0.3, len(stress))
    measures = {"strain_measure": "true", "stress_measure": "true"}
    answer = tfmat.identify(strain, stress, law="voce", **measures)
    kinds = [caveat.kind for caveat in answer.warnings]
    assert "toe" in kinds and answer.do_not_use == []
    assert ("modulus differs" in kinds) == (not removed)
    low, high = answer.parameters["E"].ci95
    assert low <= truth[0] <= high
    assert (high - low < 0.4 * truth[0]) == removed


def _coverage(records, truths):
    """How often intervals of least squares hold the truth, of each of Voce's parameters, and the caveats."""
    source, kinds = law_alone("voce"), []
    held, told = np.zeros(4), np.zeros(4)
    for (strain, stress), truth in zip(records, truths, strict=True):
        raw = RawCurve("a", strain, stress, "engineering", "engineering")
        (answer,) = identify(source, [MeasuredRecord.of(clean(raw, source.target))])
        kinds += [caveat.kind for caveat in answer.warnings]
        for i, value in enumerate(answer.parameters.values()):
            if value.ci95 is not None:
                told[i] += 1
                held[i] += value.ci95[0] <= truth[i] <= value.ci95[1]
    return held / told, kinds


def _records(count, change):
    """Tension of Voce's law, engineering strain and stress, with `change(random, strain, stress)` done to it."""
    random, law, truths, records = np.random.default_rng(0), find_law("voce"), [], []
    low, high = np.array([70e3, 150.0, 80.0, 5.0]), np.array([210e3, 400.0, 300.0, 25.0])
    for _ in range(count):
        truth = random.uniform(low, high)
        strain = random.uniform(0.05, 0.12) * np.linspace(0, 1, int(random.integers(150, 1500)))
        stress = law.stress(np.log1p(strain)[None], truth[None])[0] / (1.0 + strain)
        records.append(change(random, strain, stress + random.normal(0, 0.3, len(strain))))
        truths.append(truth)
    return records, truths


def _rounded(step):
    return lambda random, strain, stress: (np.round(strain / step) * step, stress)


def test_intervals_know_the_steps_of_a_coarse_strain():
    for step in (1e-3, 3e-4):
        held, kinds = _coverage(*_records(5, _rounded(step)))
        assert held.min() >= 0.6  # two misses of five are seldom chance
        assert "load at zero strain" not in kinds
        assert kinds.count("toe") <= 1


def test_intervals_know_the_noise_of_the_strain():
    def noisy(random, strain, stress):
        return strain + random.normal(0, 1.5e-4, len(strain)), stress

    held, kinds = _coverage(*_records(6, noisy))
    assert held.min() >= 0.6
    # Without means over clear steps of the strain there are 6 such caveats, of 6 records.
    assert kinds.count("leaves the law in one place") <= 3


def test_intervals_hold_both_readings_of_a_load_at_the_start():
    def off(random, strain, stress):
        return strain + 0.002, stress + 12.0

    def preloaded(random, strain, stress):
        started = stress > 12.0
        return strain[started] - strain[started][0], stress[started]

    for change in (off, preloaded):
        held, kinds = _coverage(*_records(3, change))
        assert kinds.count("load at zero strain") == 3
        assert held.min() >= 0.6


@pytest.mark.parametrize(("modulus", "first"), [(205e3, 0.003), (400e3, 0.0012)])
def test_a_modulus_that_no_elastic_point_bounds_is_of_its_range_where_it_fits(modulus, first):
    """Voce's curve, noise of 1 MPa, and no point before yield: a steel's, and a tungsten's beyond the range."""
    law = find_law("voce")
    truth = np.array([[modulus, 350.0, 215.0, 10.6]])
    strain = np.r_[first, np.linspace(0.004, 0.12, 40)]
    noise = np.random.default_rng(2).normal(0.0, 1.0, len(strain))
    stress = law.stress(strain[None], truth)[0] + noise
    found = best_fit(law, strain, stress)
    (low, high), usual = found.interval[0], law.identified[0].high
    assert low < modulus < high and high > 2.0 * usual
    if modulus < usual:
        assert found.values[0] == pytest.approx(usual)
    else:
        assert min(found.values[0], low) > usual
    np.testing.assert_allclose(found.values[1:], truth[0, 1:], rtol=0.03)
    # The truth has this error, and no answer a clearly larger one.
    assert found.rmse_mpa <= np.sqrt(np.mean(noise**2))


@pytest.mark.parametrize("name", ["ogden", "ogden_3"])
def test_terms_stand_where_the_ranges_of_the_law_want_them(name):
    """In wider ranges the sum is the same for any order of its terms; a term that has no other place stays."""
    law = find_law(name)
    wide = widened(law)
    drawn = np.random.default_rng(0).uniform(0.05, 0.95, (500, len(law.identified)))
    values = law.from_labels(drawn)
    labels = wide.to_labels(values)
    last = labels.shape[1] - 2
    order = [last, last + 1, *range(2, last), 0, 1]
    moved = wide.to_labels(values[:, order])
    possible = ((moved >= 0.0) & (moved <= 1.0)).all(axis=1)
    assert possible.sum() >= 5
    np.testing.assert_allclose(wide.placed_labels(labels), labels, atol=1e-12)
    np.testing.assert_allclose(
        wide.placed_labels(moved[possible]), labels[possible], rtol=0, atol=1e-9
    )
    stretched = History(mode="planar", strain=np.linspace(0.05, 2.0, 9)[None])
    np.testing.assert_allclose(
        law.respond(stretched, values), law.respond(stretched, values[:, order]), rtol=1e-12
    )


def test_an_interval_holds_no_answer_with_terms_in_each_others_places(tmp_path):
    """Two terms of Ogden's law in one test: the modulus of the second is a thirtieth of the first one's."""
    law, random = find_law("ogden"), np.random.default_rng(1)
    strain = np.linspace(0.0, 3.0, 40)[1:]
    stress = law.respond(History(strain=strain[None]), np.array([[0.4, 1.6, 0.01, 4.0]]))[0]
    noisy = stress + random.normal(0.0, 0.003 * stress.max(), len(stress))
    file = tmp_path / "rubber.csv"
    table = np.column_stack([strain, noisy])
    np.savetxt(
        file, table, delimiter=",", header="nominal strain [-],nominal stress [MPa]", comments=""
    )
    (answer,) = tfmat.identify(f"uniaxial={file}", law="ogden")
    low, high = answer.parameters["mu1"].ci95
    assert 0.1 < low < 0.4 < high


@pytest.mark.parametrize(("limit", "is_open"), [(0.8, True), (0.3, False)])
def test_a_largest_damage_that_the_test_did_not_reach_stays_open(limit, is_open):
    """The damage of the test comes to 0.4. Its noise puts the fit before that, and larger limits fit nearly as well."""
    law, turns = find_law("ladeveze_shear"), [0.0, 0.01, 0.0, 0.025, 0.01, 0.05, 0.025, 0.08]
    strain = np.concatenate([np.linspace(*ends, 25) for ends in itertools.pairwise(turns)])
    truth = np.array([[4500.0, 25.0, 450.0, 0.5, 0.25, 25.0, limit]])
    stress = law.respond(History("shear", strain=strain[None]), truth)[0]
    stress += np.random.default_rng(1001).normal(0.0, 0.5, len(stress))
    answer = tfmat.identify({"cyclic_shear": (strain, stress)}, law="ladeveze_shear")
    low, high = answer.parameters["dmax"].ci95
    assert low <= limit <= high
    assert any("only known to be at least" in each.text for each in answer.warnings) == is_open
    assert is_open or high - low < 0.15


LENGTH = 200
BUMP = 20 * np.exp(-(((np.arange(LENGTH) - 15) / 4) ** 2))
SOFT = np.array([105487.0, 29.44, 1742.8, 6.8])


def soft_curve(law):
    """Strain and stress of 200 points, a tenth of them elastic."""
    strain = 0.0335 * (np.arange(1, LENGTH + 1) / LENGTH) ** law.strain_spacing
    return strain, law.stress(strain[None], SOFT[None])[0]


def test_a_modulus_that_followed_a_missed_knee_is_as_uncertain_as_that():
    """A bump of twenty times the noise within the elastic part: the interval of E holds the value behind the curve."""
    law = find_law("voce")
    strain, stress = soft_curve(law)
    noisy = stress + np.random.default_rng(0).normal(size=LENGTH)
    found, without = best_fit(law, strain, noisy + BUMP), best_fit(law, strain, noisy)
    for low, high in (found.interval.T, without.interval.T):
        assert ((low <= SOFT) & (high >= SOFT)).all()
    assert found.values[0] > 1.3 * SOFT[0]
    assert np.ptp(without.interval[0]) < 0.2 * SOFT[0]


def test_correlated_noise_is_not_taken_for_a_missed_knee():
    law, random = find_law("voce"), np.random.default_rng(0)
    strain, stress = soft_curve(law)
    noise = random.normal(size=(20, LENGTH))
    for i in range(1, LENGTH):
        noise[:, i] = 0.9 * noise[:, i - 1] + np.sqrt(1 - 0.9**2) * noise[:, i]
    for bump, are_missed in ((0.0, False), (BUMP, True)):
        curves = stress + noise + bump
        labels = fit(law, np.tile(strain, (20, 1)), curves).labels
        found = [
            missed_knee(law, History(strain=strain[None]), one[None], curve, np.ones(LENGTH))
            for one, curve in zip(labels, curves, strict=True)
        ]
        assert all((each is not None) == are_missed for each in found)
