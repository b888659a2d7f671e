"""Measured tests on a network's points: a simulated record, measured and put back, is the record again."""

import dataclasses

import numpy as np
import pytest

from tfmat.materials.law import History
from tfmat.materials.registry import find_law
from tfmat.records.cleaning import measured_test
from tfmat.records.programmes import Monotonic, programme_class
from tfmat.records.reading import Measure, RawCurve
from tfmat.records.record import MeasuredRecord, MeasuredTest, record_features
from tfmat.records.simulation import FLAG, CurveSettings, RecordForm


def measured(law, programme, history: History, parameters, dense: int = 1):
    """The test of a history, recorded at `dense` points for each of its own."""
    row = np.arange(history.driven.shape[1])
    fine = np.linspace(0, row[-1], dense * row[-1] + 1)
    history = history.changed(
        lambda array: array if array.shape[1] == 1 else np.interp(fine, row, array[0])[None]
    )
    response = law.respond(history, parameters)[0]
    driven = history.driven[0]
    strain, stress = (driven, response) if programme.drives == "strain" else (response, driven)
    measure: Measure = "true" if law.strain_measure == "true" else "engineering"
    raw = RawCurve(
        programme.name,
        strain,
        stress,
        strain_measure=measure,
        stress_measure=measure,
        time=None if history.time is None else history.time[0],
    )
    settings = {
        name: float(value[0, 0])
        for name in ("rate", "temperature")
        if (value := getattr(history, name)) is not None
    }
    return measured_test(raw, programme, law, settings)


@pytest.mark.parametrize(
    ("law", "tests", "points"),
    [
        ("ogden", ("uniaxial", "equibiaxial", "planar"), 60),
        ("voce_chaboche", ("cyclic",), 240),
        ("ladeveze_shear", ("cyclic_shear",), 200),
        ("perzyna", ("relaxation", "creep"), 120),
    ],
)
def test_a_simulated_record_comes_back(law, tests, points):
    law = find_law(law)
    form = RecordForm(points, tuple(programme_class(name)() for name in tests))
    random = np.random.default_rng(3)
    parameters = law.from_labels(np.full((1, len(law.identified)), 0.5))
    expected = np.zeros((1, *form.shape), np.float32)
    found = []
    for i, programme in enumerate(form.programmes):
        history = programme.draw(random, 1, points)
        form.write(
            expected, i, history, law.respond(history, parameters), np.ones((1, points), bool)
        )
        found.append(measured(law, programme, history, parameters, dense=3))
    features, caveats = record_features(MeasuredRecord("made", found), form)
    assert features is not None and not caveats
    for channel in range(form.shape[1]):
        scale = np.abs(expected[:, :, channel]).max() or 1.0
        close = np.abs(features - expected)[:, :, channel] < 0.02 * scale
        # The ends of ramps are found to a point.
        assert close.mean() > 0.97, form.channels[channel]


def test_missing_tests_are_flagged_and_others_told():
    law = find_law("ogden")
    form = RecordForm(30, tuple(programme_class(name)() for name in ("uniaxial", "planar")))
    parameters = law.from_labels(np.full((1, len(law.identified)), 0.5))
    planar, biaxial = (programme_class(name)() for name in ("planar", "equibiaxial"))
    history = planar.history(np.array([[9.0]]), 40, np.random.default_rng(0))
    tests = [measured(law, planar, history, parameters)]
    tests.append(
        measured(
            law,
            biaxial,
            biaxial.history(np.array([[1.0]]), 40, np.random.default_rng(0)),
            parameters,
        )
    )
    features, caveats = record_features(MeasuredRecord("made", tests), form)
    assert features is not None
    np.testing.assert_array_equal(features[0, :, FLAG], np.repeat([1.0, 0.0], 30))
    assert [caveat.kind for caveat in caveats] == [
        "beyond the trained tests",
        "test unknown to the network",
    ]
    assert "max_strain 9 (0.3 to 5)" in caveats[0].text
    alone, _ = record_features(MeasuredRecord("made", tests[1:]), form)
    assert alone is None


def _noisy_cycles(points: int, noise: float, seed: int = 0):
    """A cyclic test of so many points with so much noise (MPa), of material 0.5."""
    law, programme = find_law("voce_chaboche"), programme_class("cyclic")()
    parameters = law.from_labels(np.full((1, len(law.identified)), 0.5))
    settings = np.array([[0.01, 3.0, 1.0, 0.0, 0.0]])
    history = programme.history(settings, points, np.random.default_rng(0))
    strain = history.driven[0]
    stress = law.respond(history, parameters)[0]
    noisy = stress + np.random.default_rng(seed).normal(0.0, noise, points)
    raw = RawCurve("made", strain, noisy, strain_measure="true", stress_measure="true")
    return measured_test(raw, programme, law, {}), strain, noisy


def test_a_network_is_told_the_noise_that_a_test_shows():
    settings = CurveSettings(
        "voce_chaboche", num_points=100, noise_of_maximum=(0.001, 0.02), noise_told=True
    )
    form = RecordForm.of(settings)
    test, _, stress = _noisy_cycles(800, 3.0)
    features, caveats = record_features(MeasuredRecord("made", [test]), form)
    assert features is not None and not caveats
    # Eight points go into each of the record's: their mean has a root of eight less.
    assert features[0, :, 3] == pytest.approx(3.0 / np.sqrt(8), rel=0.1)
    quiet, _, _ = _noisy_cycles(800, 1e-3)
    features, _ = record_features(MeasuredRecord("made", [quiet]), form)
    assert features is not None
    assert features[0, :, 3] == pytest.approx(0.001 * np.abs(stress).max(), rel=0.05)
    loud, _, _ = _noisy_cycles(100, 40.0)
    _, caveats = record_features(MeasuredRecord("made", [loud]), form)
    assert "noise of" in caveats[-1].text and "% of the largest response" in caveats[-1].text


def test_one_noise_of_a_test_whatever_it_is():
    """Bends of few points are no noise, turns are none, and values in coarse steps are off by their rounding."""
    random, law = np.random.default_rng(0), find_law("swift")
    strain = np.linspace(0.001, 0.1, 200)
    stress = law.stress(strain[None], law.from_labels(np.full((1, 4), 0.5)))[0]
    noisy = stress + random.normal(0.0, 2.0, len(strain))
    curve = MeasuredRecord.of(MeasuredTest("a", strain, noisy)).tests[0]
    assert curve.noise == pytest.approx(2.0, rel=0.2)
    cyclic, _, _ = _noisy_cycles(800, 3.0)
    assert cyclic.noise == pytest.approx(3.0, rel=0.1)
    few = MeasuredTest("a", strain[::20], stress[::20])
    assert MeasuredRecord.of(few).tests[0].noise < 0.01 * stress.max()
    steps = MeasuredTest("a", strain, np.round(stress / 10.0) * 10.0)
    for programme in (Monotonic(), programme_class("rate_and_temperature")()):
        assert dataclasses.replace(steps, programme=programme).noise == pytest.approx(
            10.0 / np.sqrt(12.0), rel=0.01
        )


def test_few_points_stand_as_they_were_measured():
    form = RecordForm.of(CurveSettings("voce_chaboche", num_points=120, measured_points=(20, 120)))
    test, strain, stress = _noisy_cycles(70, 1.0)
    features, caveats = record_features(MeasuredRecord("made", [test]), form)
    assert features is not None and not caveats
    there = features[0, :, FLAG] == 0
    assert there.tolist() == [True] * 70 + [False] * 50
    np.testing.assert_allclose(features[0, there, 0], strain, atol=1e-8)
    np.testing.assert_allclose(features[0, there, 1], stress, rtol=1e-6)
    assert not features[0, ~there, :2].any()
    # A record that does not begin at rest: the specimen did.
    test, strain, stress = _noisy_cycles(70, 1.0)
    test.strain, test.stress_mpa = strain[3:], stress[3:]
    test.turns = [turn - 3 for turn in test.turns]
    features, _ = record_features(MeasuredRecord("made", [test]), form)
    assert features is not None
    np.testing.assert_allclose(features[0, :68, 1], [0.0, *stress[3:]], rtol=1e-6)
    # More points than the record's go onto it as ever.
    test, _, _ = _noisy_cycles(500, 1.0)
    features, _ = record_features(MeasuredRecord("made", [test]), form)
    assert features is not None and not features[0, :, FLAG].any()
