"""Simulated records: settings, form, and that record i depends on nothing but (law, settings, seed, i)."""

import json
import pickle
import threading

import numpy as np
import pytest
import scipy.stats

from tfmat.data.dataset import dataset_folder
from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.materials.law import History
from tfmat.materials.registry import MONOTONIC_LAWS
from tfmat.records.laboratory import Laboratory
from tfmat.records.simulation import (
    BLOCK,
    FLAG,
    STRAIN,
    STRESS,
    CurveSettings,
    RecordForm,
    Simulator,
    features_of,
)

# Simulated curves: what they hold, and that curve i depends on nothing but (law, settings, seed, i).


# Curve 123,456 of the default settings and seed 0: labels; points 1, 100 and 199.
FROZEN_LABELS = [[0.30755335, 0.5156101]]
FROZEN_FEATURES = [
    [0.00016025885, 1.1695998, 0.0],
    [0.016025886, 55.915474, 0.0],
    [0.03189151, 93.163811, 0.0],
]


def _curves(start=0, stop=BLOCK, seed=0, **settings):
    return Simulator(CurveSettings(**settings), seed).curves(start, stop)


@pytest.mark.parametrize("law", MONOTONIC_LAWS)
def test_shapes_types_and_labels(law):
    simulator = Simulator(CurveSettings(law=law), 0)
    curves = simulator.curves(0, 300)
    assert curves.features.shape == (300, 200, 3)
    assert curves.features.dtype == np.float32
    assert curves.labels.shape == (300, len(simulator.law.identified))
    assert curves.labels.dtype == np.float32
    assert np.all((curves.labels >= 0) & (curves.labels <= 1))
    np.testing.assert_allclose(simulator.law.to_labels(curves.parameters), curves.labels, atol=1e-7)
    np.testing.assert_array_equal(simulator.parameters(0, 300), curves.parameters)
    assert np.isfinite(curves.features).all()


@pytest.mark.parametrize("law", MONOTONIC_LAWS)
def test_noise_free_curve_is_the_law_on_its_grid(law):
    """Recomputed here from the definition: grid, law, cut-off."""
    simulator = Simulator(CurveSettings(law=law, noise_mpa=0, strength_cut_off=False), 3)
    curves = simulator.curves(10, 60)
    strain = curves.features[:, :, 0].astype(np.float64)
    grid = np.linspace(0, 1, 200) ** simulator.law.strain_spacing
    np.testing.assert_allclose(strain, strain[:, -1:] * grid, rtol=1e-6)
    low, high = simulator.law.max_strain
    assert np.all((strain[:, -1] >= low) & (strain[:, -1] <= high))
    stress = simulator.law.stress(strain, curves.parameters)
    np.testing.assert_allclose(curves.features[:, :, 1], stress, rtol=1e-5, atol=1e-6)
    assert np.all(curves.features[:, :, 2] == 0)


EVERY = {
    "noise_of_maximum": (0.001, 0.005),
    "noise_correlation": (0.2, 0.9),
    "strain_offset": (1e-5, 1e-4),
    "stress_offset": (0.1, 1.0),
    "machine_stiffness": (1e6, 1e7),
    "misfit": (0.001, 0.02),
}
OF_CURVES = EVERY | {"law": "voce", "toe": (1e-5, 1e-3), "yield_spread": (0.05, 0.7)}
CYCLIC = {"law": "voce_chaboche_1", "num_points": 80, "noise_mpa": 0.0}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        OF_CURVES | {"num_points": 40, "measured_points": (15, 60)},
        CYCLIC | EVERY | {"num_points": 60, "measured_points": (20, 60)},
    ],
)
def test_a_record_is_the_same_in_every_range(settings):
    simulator = Simulator(CurveSettings(**settings), 7)
    whole = simulator.curves(0, 2 * BLOCK)
    assert np.isfinite(whole.features).all()
    for start, stop in ((0, 1), (1000, 1100), (BLOCK, 2 * BLOCK), (BLOCK - 1, BLOCK + 1)):
        part = simulator.curves(start, stop)
        np.testing.assert_array_equal(part.features, whole.features[start:stop])
        np.testing.assert_array_equal(part.labels, whole.labels[start:stop])
        np.testing.assert_array_equal(part.parameters, whole.parameters[start:stop])
    assert len(simulator.curves(5, 5).features) == 0


@pytest.mark.parametrize(
    ("plain", "options"), [({"law": "voce", "noise_mpa": 0.0}, OF_CURVES), (CYCLIC, EVERY)]
)
def test_every_option_leaves_histories_and_parameters_as_they_were(plain, options):
    without, whole = _curves(stop=300, **plain), _curves(stop=300, **{**options, **plain})
    np.testing.assert_array_equal(without.labels, whole.labels)
    np.testing.assert_array_equal(without.features[..., [0, 2]], whole.features[..., [0, 2]])
    assert (without.features[..., 1] != whole.features[..., 1]).mean() > 0.9


def test_curve_123456_is_frozen():
    """Recorded from SIMULATION_VERSION 1; if this fails, raise that number, since old data sets are other data now."""
    curve = _curves(123_456, 123_457)
    np.testing.assert_allclose(curve.labels, FROZEN_LABELS, rtol=1e-6)
    np.testing.assert_allclose(curve.features[0, [1, 100, 199]], FROZEN_FEATURES, rtol=1e-5)


def test_threads_that_share_a_simulator_make_the_same_curves():
    simulator = Simulator(CurveSettings(law="voce"), 1)
    whole = simulator.curves(0, 2 * BLOCK)
    features, labels = np.empty_like(whole.features), np.empty_like(whole.labels)
    threads = [
        threading.Thread(
            target=simulator.fill,
            args=(start, start + BLOCK, features[start:][:BLOCK], labels[start:][:BLOCK]),
        )
        for start in (0, BLOCK)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(features, whole.features)
    np.testing.assert_array_equal(labels, whole.labels)


def test_seeds_and_blocks_differ():
    curves = Simulator(CurveSettings(), 0).curves(0, 2 * BLOCK)
    assert not np.any(curves.labels[:BLOCK] == curves.labels[BLOCK:])
    assert not np.any(curves.labels[:BLOCK] == _curves(seed=1).labels)


def test_each_setting_changes_nothing_else():
    plain = _curves(strength_cut_off=False)
    other = _curves(strength_cut_off=False, noise_mpa=2.5)
    np.testing.assert_array_equal(plain.labels, other.labels)
    np.testing.assert_array_equal(plain.features[:, :, 0], other.features[:, :, 0])
    clean = _curves(strength_cut_off=False, noise_mpa=0).features[:, :, 1]
    np.testing.assert_allclose(
        other.features[:, :, 1] - clean, 2.5 * (plain.features[:, :, 1] - clean), atol=1e-3
    )
    cut = _curves()
    valid = cut.features[:, :, 2] == 0
    np.testing.assert_array_equal(cut.features[valid], plain.features[valid])
    fixed = Simulator(CurveSettings(fixed={"G0": 5000}, strength_cut_off=False), 0).curves(0, BLOCK)
    np.testing.assert_array_equal(fixed.labels[:, 0], plain.labels[:, 1])
    assert np.all(fixed.parameters[:, 0] == 5000)


def test_draws_are_uniform():
    """Mean and spread of 16,384 uniform draws; five standard errors are 0.011 and 0.006."""
    curves = _curves(0, 16 * BLOCK, law="tanh_shear", noise_mpa=0)
    ends = (curves.features[:, -1, 0] - 0.01) / 0.04
    for sample in (curves.labels[:, 0], curves.labels[:, 1], ends):
        assert sample.mean() == pytest.approx(0.5, abs=0.0113)
        assert sample.std() == pytest.approx(12**-0.5, abs=0.006)
    correlation = np.corrcoef([curves.labels[:, 0], curves.labels[:, 1], ends])
    assert np.abs(correlation - np.eye(3)).max() < 0.04


def test_noise_has_the_asked_spread():
    clean = _curves(strength_cut_off=False, noise_mpa=0).features[:, :, 1]
    noise = _curves(strength_cut_off=False, noise_mpa=2).features[:, :, 1] - clean
    assert noise.mean() == pytest.approx(0, abs=0.023)  # five standard errors of 204,800 values
    assert noise.std() == pytest.approx(2, rel=0.008)
    assert np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1] == pytest.approx(
        0, abs=0.012
    )
    mixed = (
        _curves(strength_cut_off=False, noise_mpa=2, noise_relative=0.05).features[:, :, 1] - clean
    )
    scaled = mixed / np.sqrt(4 + (0.05 * clean) ** 2)
    assert scaled.std() == pytest.approx(1, rel=0.008)
    relative = _curves(strength_cut_off=False, noise_mpa=0, noise_relative=0.05).features[:, :, 1]
    assert np.all(relative[:, 0] == 0)


def test_points_after_the_first_above_the_strength_are_padding():
    settings = CurveSettings(noise_mpa=0, strength_mpa=(80, 80))
    cut = Simulator(settings, 0).curves(0, BLOCK).features
    full = _curves(noise_mpa=0, strength_cut_off=False).features
    broken = 0
    for cut_curve, full_curve in zip(cut, full, strict=True):
        above = np.flatnonzero(full_curve[:, 1] > 80)
        last = above[0] if len(above) else 199
        np.testing.assert_array_equal(cut_curve[: last + 1], full_curve[: last + 1])
        np.testing.assert_array_equal(cut_curve[last + 1 :], np.tile([0, 0, 1], (199 - last, 1)))
        broken += last < 199
    assert 0 < broken < BLOCK
    assert not np.signbit(cut).any()


def test_noise_does_not_move_the_break():
    assert np.array_equal(
        _curves(noise_mpa=0).features[:, :, 2], _curves(noise_mpa=5).features[:, :, 2]
    )


def test_features_of_pads_whatever_stands_there():
    valid = np.array([[True, True, False]])
    features = features_of(np.array([[0, 0.1, np.nan]]), np.array([[1.0, 2.0, np.inf]]), valid)
    np.testing.assert_array_equal(
        features, np.array([[[0, 1, 0], [0.1, 2, 0], [0, 0, 1]]], np.float32)
    )
    assert features.dtype == np.float32


def test_law_that_is_not_finite_is_named(tmp_path):
    path = tmp_path / "my_law.py"
    path.write_text(
        "from tfmat.materials.cyclic import TanhShear\n\n\nclass Bad(TanhShear):\n    name = 'bad'\n\n"
        "    def stress(self, strain, parameters):\n        return strain / (parameters[:, :1] > 2100)\n"
    )
    with (
        np.errstate(all="ignore"),
        pytest.raises(InputError, match=r"not finite at G0=20.*narrow its ranges"),
    ):
        _curves(law=f"{path}:Bad")


# Records of tests: simulated as the law answers, written into arrays, and read back.


LAWS = '''
import numpy as np
from tfmat.materials import HistoryLaw, Parameter


class Rubber(HistoryLaw):
    """Neo-Hooke: nominal stress mu (L - L^(2 e - 1)) with e = -1/2, -2, -1 for the three modes."""

    name = "rubber"
    title = formula = source = "for a test"
    parameters = (Parameter("mu", "MPa", 0.1, 2.0, "log"),)
    strain_measure = stress_measure = "engineering"
    modes = ("uniaxial", "equibiaxial", "planar")
    tests = ("uniaxial", "equibiaxial", "planar")
    noise_mpa = 0.01

    def respond(self, history, parameters):
        stretch = 1.0 + history.strain
        power = {"uniaxial": -2.0, "equibiaxial": -5.0, "planar": -3.0}[history.mode]
        return parameters[:, :1] * (stretch - stretch**power)


class Maxwell(HistoryLaw):
    """A spring and a dashpot; only its creep is needed: strain = stress / E + integral of stress / eta."""

    name = "maxwell"
    title = formula = source = "for a test"
    parameters = (Parameter("E", "MPa", 1e3, 1e4, "log"), Parameter("eta", "MPa s", 1e5, 1e7, "log"))
    strain_measure = stress_measure = "engineering"
    tests = ("creep",)

    def respond(self, history, parameters):
        steps = np.diff(history.time, axis=1, prepend=0.0)
        before = np.concatenate([history.stress[:, :1], history.stress[:, :-1]], axis=1)
        viscous = np.cumsum(0.5 * (history.stress + before) * steps, axis=1)
        return history.stress / parameters[:, :1] + viscous / parameters[:, 1:]
'''


@pytest.fixture
def laws(tmp_path):
    (tmp_path / "laws.py").write_text(LAWS)
    return str(tmp_path / "laws.py")


def test_a_record_holds_what_the_law_answers(laws):
    settings = CurveSettings(law=f"{laws}:Rubber", num_points=40, noise_mpa=0.0, missing_tests=0.3)
    simulator = Simulator(settings, seed=1)
    curves = simulator.curves(0, 1500)
    assert curves.features.shape == (1500, 120, 3)
    tests, stress, valid = simulator.form.split(curves.features)
    assert [history.mode for history in tests.histories] == ["uniaxial", "equibiaxial", "planar"]
    there = valid.reshape(1500, 3, 40)
    assert (there.all(axis=2) | ~there.any(axis=2)).all() and there.any(axis=(1, 2)).all()
    # One test is chosen that stays; each other is missing with probability 0.3.
    np.testing.assert_allclose((~there.any(axis=2)).mean(), 0.2, atol=0.02)
    for test, power in enumerate((-2.0, -5.0, -3.0)):
        stretch = 1.0 + tests.histories[test].strain
        expected = curves.parameters * (stretch - stretch**power)
        part = slice(40 * test, 40 * (test + 1))
        np.testing.assert_allclose(
            stress[:, part][valid[:, part]], expected[valid[:, part]], rtol=1e-5, atol=1e-6
        )
    assert (curves.features[~valid] == [0, 0, 1]).all()


def test_a_driven_stress_and_its_time_stand_in_the_record(laws):
    settings = CurveSettings(law=f"{laws}:Maxwell", num_points=50, noise_strain=0.0)
    simulator = Simulator(settings, seed=0)
    features = simulator.curves(0, 10).features
    assert simulator.form.channels == ("strain", "stress", "flag", "time")
    tests, strain, valid = simulator.form.split(features)
    (history,) = tests.histories
    assert history.strain is None and valid.all()
    modulus, viscosity = simulator.parameters(0, 10).T[:, :, None]
    # Closed form of a ramp of length t1 to a held stress: the integral of the stress is s (t - t1 / 2).
    held = history.stress == history.stress[:, -1:]
    ramp = np.where(held, history.time, np.inf).min(axis=1, keepdims=True)
    expected = history.stress / modulus + history.stress * (history.time - ramp / 2) / viscosity
    np.testing.assert_allclose(strain[held], expected[held], rtol=1e-5)


def test_a_further_test_leaves_those_before_it_as_they_were(laws):
    one, two = (
        Simulator(CurveSettings(law=f"{laws}:Rubber", num_points=16, tests=tests), seed=3)
        .curves(0, 9)
        .features
        for tests in (("planar",), ("planar", "uniaxial"))
    )
    np.testing.assert_array_equal(one, two[:, :16])


TESTS = {"law": "voce_chaboche"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"law": "voze"}, "no law 'voze'; did you mean 'voce'"),
        ({"ranges": {"Q": (1, 2)}}, "no parameter 'Q'"),
        ({"ranges": {"G0": 3}}, "--config.ranges.G0 is 3; give two numbers"),
        ({"fixed": {"G0": "x"}}, "--config.fixed.G0 is 'x'; give a number"),
        ({"fixed": {"G0": float("nan")}}, "--config.fixed.G0 is nan"),
        ({"fixed": {"G0": 5000, "a": 1e-8}}, "every parameter"),
        ({"max_strain": (0.0, 0.1)}, "--config.data.max_strain"),
        ({"max_strain": (0.2, 0.1)}, "--config.data.max_strain"),
        ({"strength_mpa": (1,)}, "--config.data.strength_mpa"),
        ({"noise_mpa": -1}, "--config.data.noise_mpa is -1; give 0"),
        ({"noise_mpa": float("inf")}, "--config.data.noise_mpa"),
        ({"noise_relative": 5}, "--config.data.noise_relative is 5; give a fraction below 1"),
        ({"num_points": 3}, "--config.data.num_points is 3"),
        ({"num_points": 20.5}, "--config.data.num_points"),
        ({"strength_cut_off": 1}, "--config.data.strength_cut_off"),
        ({"noise_of_maximum": (0.0, 0.1)}, "--config.data.noise_of_maximum"),
        ({"noise_of_maximum": (0.1, 0.6)}, "noise_of_maximum is (0.1, 0.6); give 0.5 at most"),
        ({"misfit": 0.01}, "--config.data.misfit is 0.01; give two numbers"),
        ({"measured_points": (4, 100)}, "--config.data.measured_points is (4, 100); give whole"),
        ({"measured_points": (15.5, 100)}, "--config.data.measured_points"),
        ({"yield_spread": (0.5, 3)}, "--config.data.yield_spread"),
        ({"strain_offset": (1e-5, 0.1)}, "--config.data.strain_offset"),
        ({"scales": {"a": "cubic"}}, "scale of a is 'cubic'; give linear or log"),
        ({"scales": {"b": "log"}}, "no parameter 'b'"),
        ({"law": "voce", "noise_told": True}, "--config.data.noise_told is for tests; a curve"),
        ({"noise_told": True, **TESTS}, "--config.data.noise_told has nothing to tell"),
        ({"noise_told": 1}, "--config.data.noise_told is 1; give true or false"),
        ({"noise_mpa": 0.0, "noise_correlation": (0.1, 0.5)}, "is of noise, and there is none"),
        ({"noise_correlation": (0.5, 1.0)}, "noise_correlation is (0.5, 1.0); give 0.999 at"),
        ({"noise_correlation": (0.0, 0.5)}, "noise_correlation is (0.0, 0.5); give 0 < low <= high"),
        ({"toe": (0.001, 0.01), **TESTS}, "whose strain rises from zero and does not turn, and cyclic"),
        ({"law": "ogden", "toe": (0.001, 0.2)}, "--config.data.toe is (0.001, 0.2); give 0.1 at most"),
        ({"stress_offset": (2.0, 1.0)}, "--config.data.stress_offset is"),
        ({"machine_stiffness": (0.0, 1e5)}, "--config.data.machine_stiffness is"),
        ({"machine_stiffness": "1e5"}, "--config.data.machine_stiffness is '1e5'; give two numbers"),
        ({"law": "hognestad", "laboratory": True}, "law hognestad has no defaults of a laboratory"),
        ({"laboratory": "yes"}, "--config.data.laboratory is 'yes'; give true or false"),
        ({"yield_spread": (0.1, 0.2), **TESTS}, "data.yield_spread is for one curve of rising strain"),
        ({"max_strain": (0.1, 0.2), **TESTS}, "data.max_strain is for one curve of rising strain"),
        ({"law": "voce", "tests": ("cyclic",)}, "law voce is for one curve of rising strain; leave tests=cyclic out"),
        ({"law": "ogden", "tests": ("cyclic_shear",)}, "test cyclic_shear is shear; law ogden answers uniaxial"),
        ({"law": "ogden", "missing_tests": 1.0}, "data.missing_tests is 1.0; give a probability below 1"),
    ],
)  # fmt: skip
def test_wrong_settings_name_the_flag(arguments, expected):
    with pytest.raises(InputError) as caught:
        CurveSettings(**arguments)
    assert expected in str(caught.value)


def test_an_unknown_key_and_a_negative_seed_are_refused():
    with pytest.raises(InputError, match="no 'noise'; did you mean 'noise_mpa'"):
        CurveSettings.from_json({"noise": 1})
    with pytest.raises(InputError, match="a laboratory has no 'noise'; did you mean 'noise_mpa'?"):
        Laboratory.of({"noise": 1})
    with pytest.raises(InputError, match="--seed is -1"):
        Simulator(CurveSettings(), -1)


def test_the_form_tells_padding_by_its_flag(laws):
    form = RecordForm.of(CurveSettings(law=f"{laws}:Rubber", num_points=16, tests=("uniaxial",)))
    features = np.zeros((2, *form.shape), np.float32)
    strain = np.linspace(0, 1, 16)[None].repeat(2, axis=0)
    valid = np.arange(16) < np.array([[16], [5]])
    form.write(features, 0, History(strain=strain), strain * 2, valid)
    assert features[1, 5:, FLAG].all() and not features[:, :5, FLAG].any()
    tests, _, found = form.split(features)
    np.testing.assert_array_equal(found, valid)
    np.testing.assert_allclose(tests.histories[0].driven[1, 5:], strain[1, 4], rtol=1e-6)


def test_a_creep_record_ends_before_its_specimen_breaks():
    """A soft draw of Norton's law under a high stress creeps by any number; the record holds what a test would."""
    simulator = Simulator(CurveSettings(law="norton", noise_mpa=0, noise_strain=0), 0)
    form = simulator.form
    creep = [one.name for one in form.programmes].index("creep")
    features = simulator.curves(0, 300).features[:, form.part(creep)]
    valid = features[:, :, 2] == 0
    assert (np.abs(features[:, :, 0]) < simulator.law.rupture_strain).all()
    assert 0.02 < (~valid[:, -1]).mean() < 0.5
    assert (np.diff(valid.astype(int), axis=1) <= 0).all()


# Curve settings: what is checked, and that their JSON form is the same for the same curves.


_REST = {"strength_mpa": None, "strength_cut_off": False} | {"noise_mpa": 1.0, "num_points": 200}
_REST |= {"noise_relative": 0.0}
# What the metals' settings were before their ranges grew and went onto log scales: as stored then, the name of a data
# set of 1,000 curves, and points 1, 100 and 199 of curve 123,456 of seed 0. Recorded from the code of that time.
OLD = [
    (
        {"law": "ramberg_osgood", "fixed": {}, "max_strain": [0.01, 0.3], **_REST,
         "ranges": {"E": [60e3, 220e3], "sigma02": [100.0, 1000.0], "n": [3.0, 30.0]}},
        "ramberg_osgood-1000-34df35e7",
        [[0.52539098, 0.50409687, 0.80398017]],
        [[4.2603333e-06, 1.1671172], [0.042603333, 647.16101], [0.16871345, 699.2373]],
    ),
    (
        {"law": "voce", "fixed": {}, "max_strain": [0.02, 0.6], **_REST,
         "ranges": {"E": [60e3, 220e3], "sigma0": [50.0, 1000.0], "Q": [20.0, 1600.0], "b": [1.0, 50.0]}},
        "voce-1000-16001bb9",
        [[0.17749612, 0.43956473, 0.79790789, 0.065098867]],
        [[8.5206666e-06, 1.3065844], [0.085206665, 532.77655], [0.3374269, 698.06287]],
    ),
    (
        {"law": "swift", "fixed": {}, "max_strain": [0.02, 0.6], **_REST,
         "ranges": {"E": [60e3, 220e3], "K": [150.0, 2000.0], "epsilon0": [1e-4, 0.1], "n": [0.05, 0.7]}},
        "swift-1000-d669d872",
        [[0.17749612, 0.43956473, 0.79790789, 0.065098867]],
        [[8.5206666e-06, 1.3065844], [0.085206665, 780.67041], [0.3374269, 876.67456]],
    ),
]  # fmt: skip


def test_json_resolves_what_the_law_decides():
    content = CurveSettings().to_json()
    assert content == {
        "law": "hahn_tsai",
        "ranges": {"G0": [2000.0, 8000.0], "a": [1e-9, 1e-7]},
        "fixed": {},
        "max_strain": [0.01, 0.05],
        "strength_mpa": [60.0, 140.0],
        "strength_cut_off": True,
        "noise_mpa": 1.0,
        "noise_relative": 0.0,
        "num_points": 200,
    }


NOT_STORED = {
    "noise_of_maximum": (0.001, 0.01),
    "measured_points": (15, 400),
    "strain_offset": (1e-5, 1e-4),
    "misfit": (0.001, 0.02),
    "yield_spread": (0.1, 0.7),
}


@pytest.mark.parametrize(
    ("law", "options"),
    [
        ("voce", {"ranges": {"Q": (100, 800)}, "fixed": {"E": 193e3}, "noise_relative": 0.01}),
        ("voce", {"strength_mpa": (300, 400), "num_points": 64}),
        ("Rubber", {"tests": ("planar",), "test_ranges": {"max_strain": (1.0, 2.0)}}),
        ("Rubber", {"missing_tests": 0.1}),
        *(("voce", {name: limits}) for name, limits in NOT_STORED.items()),
    ],
)
def test_settings_survive_json(laws, law, options):
    settings = CurveSettings(law=f"{laws}:{law}" if law == "Rubber" else law, **options)
    content = json.loads(json.dumps(settings.to_json()))
    for name, value in json.loads(json.dumps(options)).items():
        ranges = name == "ranges"
        assert value.items() <= content[name].items() if ranges else content[name] == value
    assert "E" not in content["ranges"] or "fixed" not in options
    again = CurveSettings.from_json(content)
    assert again == settings.resolved() and again.to_json() == content
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings.is_observed == bool(set(options) & set(NOT_STORED))


@pytest.mark.parametrize("law", ["hahn_tsai", "voce"])
def test_what_is_not_asked_for_is_not_stored(law):
    names = {*NOT_STORED, "tests", "test_ranges", "missing_tests", "noise_strain"}
    assert not names & set(CurveSettings(law).to_json()) and not CurveSettings(law).is_observed


def test_equal_curves_have_equal_json():
    written_out = CurveSettings(ranges={"a": (1e-9, 1e-7)}, max_strain=(0.01, 0.05), noise_mpa=1)
    assert written_out.to_json() == CurveSettings().to_json()
    no_cut = CurveSettings(law="voce", strength_cut_off=False)
    assert no_cut.to_json() == CurveSettings(law="voce").to_json()
    assert CurveSettings(strength_cut_off=False).to_json()["strength_mpa"] is None


@pytest.mark.parametrize(("content", "folder", "labels", "points"), OLD)
def test_old_settings_of_metals_mean_what_they_meant(content, folder, labels, points):
    settings = CurveSettings.from_json(content)
    assert settings.to_json() == content
    assert dataset_folder("", settings, 0, 1000, 10).name == folder
    curve = Simulator(settings, 0).curves(123_456, 123_457)
    np.testing.assert_allclose(curve.labels, labels, rtol=1e-6)
    np.testing.assert_allclose(curve.features[0, [1, 100, 199], :2], points, rtol=1e-5)
    with_fixed = {**content, "fixed": {"E": 70e3}, "ranges": dict(content["ranges"])}
    del with_fixed["ranges"]["E"]
    assert CurveSettings.from_json(with_fixed).to_json() == with_fixed


def test_new_settings_of_metals_say_their_scales():
    content = CurveSettings("voce").to_json()
    assert content["scales"] == {"E": "log", "sigma0": "log", "max_strain": "log"}
    assert CurveSettings.from_json(content) == CurveSettings("voce").resolved()
    ends = Simulator(CurveSettings("voce"), 0).curves(0, 4096).features[:, -1, 0]
    low, high = content["max_strain"]
    share = np.log(ends / low) / np.log(high / low)
    # Five standard errors of 4,096 uniform numbers.
    assert share.mean() == pytest.approx(0.5, abs=0.023)
    assert share.std() == pytest.approx(12**-0.5, abs=0.012)
    assert "scales" not in CurveSettings().to_json()
    linear = CurveSettings("voce", scales={"E": "linear"})
    assert linear.build_law().parameters[0].scale == "linear"
    assert linear.to_json()["scales"] == {"sigma0": "log", "max_strain": "log"}


def test_another_version_of_a_user_law_has_another_json(tmp_path):
    path = tmp_path / "my_law.py"
    text = "from tfmat.materials.cyclic import TanhShear\n\n\nclass Mine(TanhShear):\n    name = 'mine'\n"
    path.write_text(text)
    settings = CurveSettings(law=f"{path}:Mine")
    first = settings.to_json()
    assert CurveSettings.from_json(first).to_json() == first
    path.write_text(
        text + "    noise_mpa = 1.0  # the same curves for all we know, but who can tell\n"
    )
    assert settings.to_json() != first


# What a laboratory adds to simulated records of tests, against the law itself and statistics of many records.


def _records(count=300, **settings):
    simulator = Simulator(CurveSettings(**settings), 0)
    return simulator.curves(0, count), simulator


def _channel(found, channel):
    return found.features[:, :, channel].astype(float)


def test_noise_is_drawn_for_each_record_and_told():
    limits = (0.002, 0.05)
    silent, _ = _records(BLOCK, **CYCLIC)
    noisy, simulator = _records(BLOCK, **CYCLIC, noise_of_maximum=limits, noise_told=True)
    assert simulator.form.channels == ("strain", "stress", "flag", "noise")
    clean = _channel(silent, STRESS)
    told = _channel(noisy, 3)
    assert (told == told[:, :1]).all()
    share = told[:, 0] / np.abs(clean).max(axis=1)
    drawn = np.log(share / limits[0]) / np.log(limits[1] / limits[0])
    assert scipy.stats.kstest(drawn, "uniform").pvalue > 1e-3
    # What is told is what is there: chi-square of 80 points, each record.
    error = (_channel(noisy, STRESS) - clean) / told
    assert scipy.stats.kstest(error.ravel(), "norm").pvalue > 1e-3
    untold, form = _records(BLOCK, **CYCLIC, noise_of_maximum=limits)
    assert form.form.channels == ("strain", "stress", "flag")
    np.testing.assert_array_equal(untold.features, noisy.features[:, :, :3])


def test_a_machine_that_gives_way_is_shared_by_the_tests_of_a_record():
    settings = {**CYCLIC, "tests": ("cyclic", "cyclic"), "machine_stiffness": (3e5, 3e6)}
    found, simulator = _records(200, **settings)
    plain, _ = _records(200, **{**settings, "machine_stiffness": None})
    np.testing.assert_array_equal(found.features[:, :, STRAIN], plain.features[:, :, STRAIN])
    strain, stress = _channel(found, STRAIN), _channel(found, STRESS)
    # On the first, elastic points both springs are in series: 1 / slope - 1 / E is what the machine gives.
    modulus = found.parameters[:, 0]
    gives = np.stack(
        [strain[:, first + 1] / stress[:, first + 1] - 1 / modulus for first in (0, 80)], axis=1
    )
    elastic = np.abs(stress[:, [1, 81]]).max(axis=1) < found.parameters[:, 1]
    stiffness = 1 / gives[elastic]
    assert elastic.sum() > 40
    np.testing.assert_allclose(stiffness[:, 0], stiffness[:, 1], rtol=5e-3)
    assert stiffness.min() > 2.9e5 and stiffness.max() < 3.1e6
    # The law at the specimen's own strain, whole histories through.
    law = simulator.law
    rows = np.flatnonzero(elastic)
    own = strain[rows] - stress[rows] * gives[rows][:, :1]
    answer = law.respond(History(strain=own[:, :80]), found.parameters[rows])
    np.testing.assert_allclose(answer, stress[rows, :80], atol=2.0, rtol=1e-2)


def test_strain_that_is_driven_by_stress_holds_the_machine_s_part():
    settings = {"law": "norton", "tests": ("creep",), "num_points": 40}
    settings |= {"noise_mpa": 0.0, "noise_strain": 0.0}
    plain, _ = _records(200, **settings)
    soft, _ = _records(200, **settings, machine_stiffness=(1e5, 1e5))
    there = (plain.features[:, :, FLAG] == 0) & (soft.features[:, :, FLAG] == 0)
    difference = _channel(soft, STRAIN) - _channel(plain, STRAIN)
    expected = _channel(plain, STRESS) / 1e5
    np.testing.assert_allclose(difference[there], expected[there], rtol=1e-3, atol=2e-8)


def test_a_slack_strip_bears_nothing_at_first():
    settings = {"law": "neo_hooke", "num_points": 60, "noise_mpa": 0.0, "strength_cut_off": False}
    slack, simulator = _records(100, **settings, toe=(0.05, 0.05))
    law = find_law("neo_hooke")
    for test, programme in enumerate(simulator.form.programmes):
        part = simulator.form.part(test)
        strain = _channel(slack, STRAIN)[:, part]
        own = strain - 0.05 * (1 - np.exp(-strain / 0.05))
        expected = law.respond(History(programme.mode, strain=own), slack.parameters)
        np.testing.assert_allclose(_channel(slack, STRESS)[:, part], expected, rtol=1e-4, atol=1e-5)


def test_a_record_holds_the_points_that_were_measured():
    settings = {**CYCLIC, "test_ranges": {"cycles": (1.0, 3.0)}}
    found, simulator = _records(BLOCK, **settings, measured_points=(10, 60))
    there = found.features[:, :, FLAG] == 0
    counts = there.sum(axis=1)
    assert counts.min() == 10 and counts.max() == 60
    drawn = np.log(counts / 9.5) / np.log(60.5 / 9.5)
    assert scipy.stats.kstest(drawn, "uniform").statistic < 0.08  # steps of 0.05
    assert (np.diff(there.astype(int), axis=1) <= 0).all()
    # The law answers to the very history that is recorded, so that nothing of the specimen's is unseen.
    tests, stress, valid = simulator.form.split(found.features)
    answer = tests.joined(lambda history: simulator.law.respond(history, found.parameters))
    np.testing.assert_allclose(stress[valid], answer[valid], rtol=1e-4, atol=0.02)
    # No more than the record's points.
    many, _ = _records(50, **settings, measured_points=(1000, 1000))
    plain, _ = _records(50, **settings)
    np.testing.assert_array_equal(many.features, plain.features)


@pytest.mark.parametrize(
    "law",
    ["voce", "hahn_tsai", "voce_chaboche", "ladeveze_shear", "ogden", "norton", "perzyna", "prony",
     "johnson_cook"],
)  # fmt: skip
def test_each_family_has_a_laboratory_of_its_own(law):
    settings = CurveSettings(law, num_points=60, laboratory=True)
    assert settings.is_observed and settings.noise_mpa == 0.0
    content = json.loads(json.dumps(settings.to_json()))
    assert "laboratory" not in content and "noise_of_maximum" in content
    assert CurveSettings.from_json(content).to_json() == content
    assert not CurveSettings(law).is_observed
    own = CurveSettings(law, num_points=60, laboratory=True, noise_of_maximum=(0.1, 0.2))
    assert own.noise_of_maximum == (0.1, 0.2) and own.strain_offset == settings.strain_offset
    features = Simulator(settings, 0).curves(0, 64).features
    assert np.isfinite(features).all() and (features[:, :, FLAG] == 0).any(axis=1).all()


def test_a_law_of_one_s_own_has_its_laboratory(tmp_path):
    path = tmp_path / "mine.py"
    text = "from tfmat.materials.rubber import NeoHooke\n\n\nclass Mine(NeoHooke):\n    name = 'mine'\n"
    path.write_text(text + "    laboratory = {'stress_offset': (0.1, 0.2)}\n")
    settings = CurveSettings(f"{path}:Mine", laboratory=True)
    # Without drawn noise the law's own stays.
    assert settings.stress_offset == (0.1, 0.2) and settings.resolved().noise_mpa == 0.02
    path.write_text(text + "    laboratory = {'stres_offset': (0.1, 0.2)}\n")
    with pytest.raises(InputError, match="laboratory has 'stres_offset'; did you mean 'stress_o"):
        CurveSettings(f"{path}:Mine", laboratory=True)
