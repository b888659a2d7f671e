"""Runs at draws from a posterior, beside a curve that is known in closed form with its machine and its zero."""

import numpy as np
import pytest

from tfmat.specimens.campaign import read_description, verify
from tfmat_tests.specimens.bar import END, LENGTH, MODULUS, trouble

STIFFNESS, ZERO = 2e5, 1e-4


@pytest.fixture
def bar(bar):
    with (bar / "simulator.toml").open("a") as file:
        file.write("machine_stiffness = [1e5, 1e6]\nstrain_offset = [1e-5, 1e-4]\n")
    return bar


def recorded(yields, slope):
    """What a machine that gives way records of a bar, at uneven strains."""
    strain = np.sort(np.random.default_rng(0).uniform(0.0, END / LENGTH, 400))
    elastic = np.minimum(strain, yields / MODULUS)
    stress = (MODULUS - slope) * elastic + slope * strain
    return strain + stress / STIFFNESS + ZERO, stress


def test_the_true_values_follow_the_curve_and_others_do_not(bar, tmp_path):
    strain, stress = recorded(200.0, 1000.0)
    samples = {
        "yields": np.array([200.0, 210.0, 200.0]),
        "slope": np.array([1000.0, 1000.0, 1500.0]),
    }
    near, far, steep = verify(read_description(bar), tmp_path / "runs", strain, stress, samples)
    assert near.values == {"yields": 200.0, "slope": 1000.0}
    # The program gives 41 points, so that lines cut the knee.
    assert near.rmse_percent < 1.0 and near.rmse_percent < 0.25 * far.rmse_percent
    assert far.rmse_percent == pytest.approx(100 * 10.0 / stress.max(), rel=0.4)
    assert steep.rmse_percent > near.rmse_percent
    assert near.stress.shape == stress.shape
    # A second time nothing is run.
    program = tmp_path / "started"
    assert not program.exists() and len((tmp_path / "runs" / "started").read_text().split()) == 6
    verify(read_description(bar), tmp_path / "runs", strain, stress, samples)
    assert len((tmp_path / "runs" / "started").read_text().split()) == 6


def test_a_run_that_fails_is_told(bar, tmp_path):
    trouble(tmp_path / "runs", "exit 4")
    strain, stress = recorded(200.0, 1000.0)
    sample = {"yields": np.array([200.0]), "slope": np.array([1000.0])}
    (run,) = verify(read_description(bar), tmp_path / "runs", strain, stress, sample)
    assert run.stress is None and run.failure == "exit status 4"
