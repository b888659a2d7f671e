"""What stands beside a network's errors on records with a laboratory's errors."""

import numpy as np
import pytest

from tfmat.data.dataset import generate_dataset
from tfmat.errors import InputError
from tfmat.identification.evaluate import check_reference, measure
from tfmat.records.simulation import CurveSettings

RUBBER = {"law": "neo_hooke", "num_points": 16, "strength_cut_off": False, "noise_mpa": 0.0}


def _dataset(folder, **options):
    settings = CurveSettings(**{**RUBBER, **options})
    return generate_dataset(settings, seed=3, num_curves=8, num_test=40, data_dir=folder)


def _measured(dataset):
    """The reference for a network that is off by 0.02 everywhere."""
    true = np.asarray(dataset.labels[-40:], np.float64)
    found = measure(dataset, dataset.parameters, np.clip(true + 0.02, 0.0, 1.0))
    return found.scores().parameters["mu"]


def test_errors_that_are_not_known_have_a_reference_without_a_bound(tmp_path):
    dataset = _dataset(
        tmp_path,
        tests=("uniaxial",),
        noise_of_maximum=(0.002, 0.02),
        strain_offset=(1e-3, 1e-2),
        stress_offset=(0.01, 0.05),
        toe=(1e-3, 2e-2),
    )
    check_reference(dataset)
    scores = _measured(dataset)
    assert scores.cramer_rao is None
    assert scores.network_mse == pytest.approx(0.02**2, rel=0.05)
    # Least squares cannot be better than the best that is possible, up to the chance of 40 records.
    assert scores.least_squares_mse > 0.5 * scores.bayes_risk > 0.0
    assert 0.3 < scores.posterior_calibration < 2.5
    assert scores.interval_coverage > 0.9
    assert (dataset.folder / "bayes_risk.json").is_file()


def test_noise_that_is_told_has_the_bound_too(tmp_path):
    dataset = _dataset(tmp_path, noise_of_maximum=(0.002, 0.02), noise_told=True)
    scores = _measured(dataset)
    # One parameter that the stress is proportional to, far from the ends of its range: all three are one.
    assert scores.bayes_risk == pytest.approx(scores.cramer_rao, rel=0.1)
    assert scores.least_squares_mse == pytest.approx(scores.bayes_risk, rel=0.7)


def test_what_has_no_reference_says_why(tmp_path):
    dataset = _dataset(tmp_path, noise_mpa=0.1, misfit=(0.01, 0.02))
    with pytest.raises(InputError, match="on such curves is not known: curves with data.misfit"):
        check_reference(dataset)
