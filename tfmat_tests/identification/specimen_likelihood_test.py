"""Posteriors of a specimen whose law has its machine and its zero: intervals against the values behind the records."""

import numpy as np
import pytest

from tfmat.identification.correction import correct
from tfmat.identification.draws import Draws
from tfmat.identification.measured_likelihood import MeasuredLikelihoods, MeasuredTests
from tfmat.identification.specimen_likelihood import SpecimenLikelihoods
from tfmat.materials import find_law
from tfmat_tests.specimens.forward_test import write_bar_law

# Of 8 records times 4 parameters 95 % intervals hold this many at least: fewer come by chance once in a hundred.
RECORDS, HELD = 8, 27


@pytest.fixture(scope="module")
def law(tmp_path_factory):
    options = {"machine_stiffness": (2e4, 2e5), "strain_offset": (1e-5, 2e-4)}
    return find_law(write_bar_law(tmp_path_factory.mktemp("law"), **options)[1])


@pytest.fixture(scope="module")
def records(law):
    """Labels of some specimens, and their records with noise of 0.3 % of 400 MPa."""
    rng = np.random.default_rng(3)
    labels = rng.uniform(0.1, 0.9, (RECORDS, len(law.identified)))
    strain = 0.05 * np.linspace(0.0, 1.0, 120) ** 1.3
    stress = law.label_stress(strain[None], labels)
    stress = stress + rng.normal(0.0, 1.2, stress.shape)
    return labels, [MeasuredTests.of_arrays(strain, row) for row in stress]


def test_intervals_hold_the_values_that_made_the_records(law, records):
    truth, tests = records
    likelihoods = SpecimenLikelihoods(law, tests, truth)
    rng = np.random.default_rng(0)
    # No network: draws all over the ranges, from which sampling about the modes goes on.
    draws = Draws(rng.random((RECORDS, 1200, 4)), np.zeros((RECORDS, 1200)))
    found, certificates = correct(likelihoods, draws, 300, starts=likelihoods.best[:, None])
    assert [one.status for one in certificates] == ["resampled"] * RECORDS
    low, high = np.quantile(found.labels, [0.025, 0.975], axis=1)
    assert ((low <= truth) & (truth <= high)).sum() >= HELD
    assert (high - low).min(axis=0).max() < 0.5  # so that it says something


def test_it_is_the_likelihood_of_measured_tests_without_a_compliance(law, records):
    truth, tests = records
    own, other = (
        kind(law, tests, truth.copy()) for kind in (SpecimenLikelihoods, MeasuredLikelihoods)
    )
    labels = np.clip(truth[[2]] + np.linspace(-0.01, 0.01, 5)[:, None], 0.0, 1.0)
    at = slice(2, 3)
    middle = np.column_stack([labels, np.full(5, 0.5)])
    np.testing.assert_array_equal(own.log_density(at, labels), other.log_density(at, middle))
    shapes = [array.shape for array in own.expansion(at, labels)]
    assert shapes == [(5,), (5, 4), (5, 4, 4)]
