"""Several specimens of one material in one answer."""

import numpy as np
import pytest
import scipy.stats

from tfmat.curves.example import write_example_curve
from tfmat.curves.measured import load_measured_curves
from tfmat.errors import InputError
from tfmat.identification.identify import identify
from tfmat.identification.pooling import pool
from tfmat.materials import find_law

MODULI = (4600.0, 5000.0, 5500.0)


@pytest.fixture(scope="module")
def results(identifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("specimens")
    law = find_law("hahn_tsai")
    paths = [
        write_example_curve(
            law, folder / f"{i}.csv", parameters={"G0": G0, "a": 3e-8}, seed=i, max_strain=0.03
        )
        for i, G0 in enumerate(MODULI)
    ]
    curves, errors = load_measured_curves(paths, identifier.target)
    assert errors == []
    return identify(identifier, curves)


def test_values_are_means_and_the_scatter_is_that_between_specimens(identifier, results):
    pooled = pool(identifier, results)
    values = np.array([result.parameters["G0"].value for result in results])
    answer = pooled.parameters["G0"]
    assert answer.value == pytest.approx(values.mean())
    assert answer.std == pytest.approx(values.std(ddof=1))
    expected = scipy.stats.t.interval(0.95, 2, values.mean(), scipy.stats.sem(values))
    np.testing.assert_allclose(answer.ci95, expected)
    # A logarithmic parameter: the geometric mean.
    logarithms = np.log([result.parameters["a"].value for result in results])
    assert np.log(pooled.parameters["a"].value) == pytest.approx(logarithms.mean())
    assert pooled.parameters["G0"].least_squares == pytest.approx(5000, rel=0.05)
    content = pooled.to_json()
    assert content["curve"] == "pooled (3 specimens)"
    assert content["num_points"] == sum(len(result.curve.strain) for result in results)
    assert "std is the scatter between specimens" in content["steps"][0]


def test_given_parameters_stay_given(identifier, results):
    conditioned = identify(identifier, [r.curve for r in results], fixed={"G0": 5000.0})
    pooled = pool(identifier, conditioned, fixed={"G0": 5000.0}, least_squares=False)
    assert pooled.parameters["G0"].fixed
    assert pooled.parameters["a"].least_squares is None
    assert pooled.parameters["a"].value == pytest.approx(3e-8, rel=0.3)


def test_one_specimen_is_not_pooled(identifier, results):
    with pytest.raises(InputError, match="at least two"):
        pool(identifier, results[:1])
