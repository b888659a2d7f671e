"""Measured tests on a network's points: a simulated record, measured and put back, is the record again."""

import numpy as np
import pytest

from tfmat.curves.cleaning_of_tests import measured_test
from tfmat.curves.columns import Measure
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.programmes import programme_class
from tfmat.curves.reading import RawCurve
from tfmat.curves.record_resampling import record_features
from tfmat.curves.records import FLAG, RecordForm
from tfmat.materials.history import History
from tfmat.materials.registry import find_law


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
