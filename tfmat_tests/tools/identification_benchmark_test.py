"""tools/benchmark --part=other_laws, laws and identify: other laws are told apart; how fast is not asserted."""

import resource
import subprocess

import numpy as np
import pytest
import scipy.optimize

from tfmat.curves.records import split_features
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.identification.least_squares import fit
from tfmat.identification.other_laws import compare_laws
from tfmat.materials import LAWS, find_law


@pytest.fixture
def identification(part):
    return part("identification")


def test_curves_of_other_shear_laws_are_told_from_hahn_tsai_s(identification, run_all):
    """The issue's goals, as docs/benchmark.md reads them."""
    content = identification.measure_other_laws(4_000 if run_all else 1_000)
    found = {entry["what"]: entry["value"] for entry in content["quantities"]}
    assert found.pop("false alarms") <= 0.02
    assert len(found) == 4
    for what, value in found.items():
        assert value >= 0.95, what
    assert all(entry.get("reached", True) for entry in content["quantities"])


def test_the_evidence_is_that_of_the_best_fits(identification):
    """Residuals of scipy's fits, and the Bayesian information criterion for noise of unknown level."""
    settings = CurveSettings("tanh_shear", strength_mpa=(60.0, 140.0))
    strain, stress, valid = split_features(Simulator(settings, 0).curves(0, 12).features)
    law, other = find_law("hahn_tsai"), find_law("tanh_shear")
    found = compare_laws(
        law,
        fit(law, strain, stress, valid).rmse_mpa,
        valid.sum(axis=1),
        lambda one: fit(one, strain, stress, valid).rmse_mpa,
    )
    assert set(found.evidence) == {"tanh_shear", "exponential_shear"}
    for i in range(12):
        points = strain[i][valid[i]], stress[i][valid[i]]
        squares = [_least_squares(one, *points) for one in (law, other)]
        expected = len(points[0]) * np.log(squares[0] / squares[1])
        assert found.evidence["tanh_shear"][i] == pytest.approx(expected, rel=1e-3, abs=0.05)


def test_every_law_is_timed_over_its_own_tests(identification):
    from benchmarks.laws import measure_laws

    found = measure_laws(3, 1)
    assert len(found["quantities"]) == 2 * len(LAWS)
    assert all(entry["value"] > 0 for entry in found["quantities"])


def _least_squares(law, strain, stress):
    """The least sum of squares that scipy finds from three starts."""

    def residuals(labels):
        return law.stress(strain[None], law.from_labels(labels[None]))[0] - stress

    results = [
        scipy.optimize.least_squares(residuals, start, bounds=(0, 1), xtol=1e-12, ftol=1e-12)
        for start in ([0.3, 0.3], [0.7, 0.6], [0.5, 0.9])
    ]
    return min(2 * result.cost for result in results)


def test_area_under_the_curve(identification):
    random = np.random.default_rng(0)
    negative, positive = random.integers(0, 9, 40), random.integers(3, 14, 50)
    pairs = [float(p > n) + 0.5 * float(p == n) for p in positive for n in negative]
    assert identification.auroc(negative, positive) == pytest.approx(np.mean(pairs))


def test_the_rate_is_that_of_the_public_function(identification, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = identification.measure_rate(200, 1, None)
    assert content["num_curves"] == 200
    assert set(content["samples"]) == {"float32", "float64", "records"}
    assert all(entry["value"] > 0 for entry in content["quantities"])


def test_a_cold_command_is_measured_by_itself(part, tmp_path, monkeypatch):
    """The memory is that of the command and not that of this process, which is larger."""
    cold = part("cold")
    commands = {"--help": ["--help"], "laws, 1 files": ["laws"]}
    monkeypatch.setattr(cold, "_commands", lambda folder, num_files: commands)
    content = cold.measure_cold(tmp_path, 2)
    assert [len(found) for found in content["samples"].values()] == [2, 2]
    seconds, megabytes, files = (entry["value"] for entry in content["quantities"])
    assert seconds > 0.0 and files > 0.0
    assert 5.0 < megabytes < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2000.0
    commands["--help"] = ["no_such_command"]
    with pytest.raises(subprocess.CalledProcessError):
        cold.measure_cold(tmp_path, 1)
