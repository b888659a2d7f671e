"""What a laboratory adds to simulated records of tests, against the law itself and statistics of many records."""

import json

import numpy as np
import pytest
import scipy.stats

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.materials.law import History
from tfmat.records.simulation import (
    BLOCK,
    FLAG,
    STRAIN,
    STRESS,
    CurveSettings,
    RecordForm,
    Simulator,
)

CYCLIC = {"law": "voce_chaboche_1", "num_points": 80, "noise_mpa": 0.0}


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


def test_noise_of_neighbours_is_correlated_as_asked():
    settings = {**CYCLIC, "noise_mpa": 2.0}
    silent, _ = _records(BLOCK, **CYCLIC)
    noisy, _ = _records(BLOCK, **settings, noise_correlation=(0.8, 0.8))
    error = _channel(noisy, STRESS) - _channel(silent, STRESS)
    assert error.std() == pytest.approx(2.0, rel=0.02)
    for lag in (1, 3, 8):
        found = np.mean(error[:, lag:] * error[:, :-lag]) / 4.0
        assert found == pytest.approx(0.8**lag, abs=0.02)
    # Drawn log-uniformly: the mean correlation of neighbours is that of the distribution.
    drawn, _ = _records(BLOCK, **settings, noise_correlation=(0.2, 0.9))
    error = _channel(drawn, STRESS) - _channel(silent, STRESS)
    mean = np.mean(error[:, 1:] * error[:, :-1]) / 4.0
    assert mean == pytest.approx(0.7 / np.log(4.5), abs=0.02)


def test_the_zero_of_the_stress_is_off_by_one_value_a_test():
    silent, _ = _records(BLOCK, **CYCLIC)
    moved, _ = _records(BLOCK, **CYCLIC, stress_offset=(3.0, 3.0))
    offset = _channel(moved, STRESS) - _channel(silent, STRESS)
    np.testing.assert_allclose(offset, np.repeat(offset[:, :1], 80, axis=1), atol=2e-4)
    assert scipy.stats.kstest(offset[:, 0] / 3.0, "norm").pvalue > 1e-3


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


def test_every_option_leaves_the_histories_and_parameters_as_they_were():
    every = {
        "noise_of_maximum": (0.001, 0.005),
        "noise_correlation": (0.2, 0.9),
        "strain_offset": (1e-5, 1e-4),
        "stress_offset": (0.1, 1.0),
        "machine_stiffness": (1e6, 1e7),
        "misfit": (0.001, 0.02),
    }
    (plain, _), (whole, _) = _records(**CYCLIC), _records(**CYCLIC, **every)
    np.testing.assert_array_equal(plain.labels, whole.labels)
    np.testing.assert_array_equal(plain.features[..., STRAIN], whole.features[..., STRAIN])
    simulator = Simulator(CurveSettings(**CYCLIC, **every, measured_points=(20, 80)), 0)
    longer = simulator.curves(0, BLOCK + 50)
    np.testing.assert_array_equal(
        simulator.curves(1000, BLOCK + 7).features, longer.features[1000 : BLOCK + 7]
    )
    assert np.isfinite(longer.features).all()


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"law": "voce", "noise_told": True}, "--config.data.noise_told is for tests; a curve"),
        ({"noise_told": True}, "--config.data.noise_told has nothing to tell"),
        ({"noise_told": 1}, "--config.data.noise_told is 1; give true or false"),
        ({"noise_mpa": 0.0, "noise_correlation": (0.1, 0.5)}, "is of noise, and there is none"),
        ({"noise_correlation": (0.5, 1.0)}, "--config.data.noise_correlation is .*give 0.999 at"),
        ({"noise_correlation": (0.0, 0.5)}, "--config.data.noise_correlation is .*0 < low <= high"),
        ({"toe": (0.001, 0.01)}, "tests whose strain rises from zero and does not turn, and cyclic"),
        ({"law": "ogden", "toe": (0.001, 0.2)}, "--config.data.toe is .*give 0.1 at most"),
        ({"stress_offset": (2.0, 1.0)}, "--config.data.stress_offset is"),
        ({"machine_stiffness": (0.0, 1e5)}, "--config.data.machine_stiffness is"),
        ({"machine_stiffness": "1e5"}, "--config.data.machine_stiffness is '1e5'; give two numbers"),
        ({"law": "hognestad", "laboratory": True}, "law hognestad has no defaults of a laboratory"),
        ({"laboratory": "yes"}, "--config.data.laboratory is 'yes'; give true or false"),
        ({"yield_spread": (0.1, 0.2)}, "data.yield_spread is for one curve of rising strain"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        CurveSettings(**{"law": "voce_chaboche", **arguments})


def test_the_form_writes_what_it_is_told_of_noise():
    form = RecordForm.of(
        CurveSettings("norton", num_points=8, noise_of_maximum=(0.01, 0.1), noise_told=True)
    )
    assert form.channels == ("strain", "stress", "flag", "time", "noise")
    assert form.network()["channels"][-1] == "noise"


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
