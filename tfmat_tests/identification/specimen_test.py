"""One measured specimen: its points, and the noise that they show."""

import numpy as np
import pytest

from tfmat.identification.next_test import intervals, specimen_of
from tfmat.materials.law import History
from tfmat.materials.registry import find_law
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import measured_records
from tfmat.records.reading import ReadingOptions
from tfmat.records.simulation import CurveSettings

LAW = find_law("mooney_rivlin")
TRUTH = np.array([[0.3, 0.06]])


def specimen(noise, points=60, bend=0.0, seed=0, **settings):
    strain = np.linspace(0.02, 1.5, points)
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    stress = stress + noise * np.random.default_rng(seed).standard_normal(points)
    stress = stress + bend * np.sin(4 * strain)
    given = {"uniaxial": (strain, stress)}
    (record,) = measured_records(given, None, LAW, ReadingOptions(), CleaningOptions())
    labels = LAW.to_labels(TRUTH)[0]
    return specimen_of(LAW, record, CurveSettings(law="mooney_rivlin", **settings), labels)[0]


def test_noise_is_the_model_s_where_the_points_show_no_more():
    assert specimen(0.001).noise[0] == pytest.approx(0.02)
    assert specimen(0.001, noise_mpa=0.05).noise[0] == pytest.approx(0.05)
    largest = 2 * (2.5 - 2.5**-2) * (0.3 + 0.06 / 2.5)
    share = specimen(0.0001, noise_mpa=0.0, noise_of_maximum=(0.01, 0.1)).noise[0]
    assert share == pytest.approx(0.01 * largest, rel=0.01)


def test_noise_is_that_of_the_points_where_they_show_more():
    found = [specimen(0.08, seed=seed).noise[0] for seed in range(5)]
    assert np.median(found) == pytest.approx(0.08, rel=0.2)


def test_a_law_that_misses_smoothly_tells_less_than_its_points():
    """The misfit is 0.07 MPa rms; neighbours are alike, so that every point counts for less than one."""
    assert specimen(0.002, bend=0.1).noise[0] > 0.12


def test_many_points_become_few_that_tell_as_much():
    few, many = specimen(0.001, 100), specimen(0.001, 400)
    assert len(many.response) <= 120 and many.points == 100
    ratio = (many.noise[0] / few.noise[0]) ** 2
    assert ratio == pytest.approx(len(many.response) / 400, rel=0.01)


def test_a_further_test_ends_where_the_specimen_was_never_loaded():
    assert specimen(0.001).largest[0] == pytest.approx(2.0)
    assert specimen(0.001).largest[1] == np.inf


def test_intervals_are_quantiles_of_weighted_draws():
    random = np.random.default_rng(0)
    values = random.standard_normal((40_000, 2)) * [1.0, 3.0]
    # Weights that move the mean by one.
    ends = intervals(values, np.exp(values[:, 0]))
    np.testing.assert_allclose(ends[0], [1 - 1.96, 1 + 1.96], atol=0.08)
    np.testing.assert_allclose(ends[1], [-5.88, 5.88], atol=0.2)
