"""`tfmat.network_answers`: the network alone on arrays."""

import numpy as np
import pytest

import tfmat
from tfmat.errors import InputError
from tfmat.identification.networks import Identifier
from tfmat.materials import find_law


@pytest.fixture(scope="module")
def stored(trained_run):
    """Strain and stress as the data set holds them, padded points NaN; and the network's own answers."""
    features = np.array(trained_run.dataset.features[:2500])
    padded = features[:, :, 2] > 0
    strain, stress = (np.where(padded, np.nan, features[:, :, i]) for i in (0, 1))
    labels = Identifier.open(trained_run.workdir).predict(features).clip(0, 1)
    return strain, stress, labels


def test_stored_arrays_get_the_network_s_own_answer(trained_run, stored):
    strain, stress, labels = stored
    assert np.isnan(strain).any()
    answer = tfmat.network_answers(strain, stress, law="hahn_tsai", workdir=trained_run.workdir)
    np.testing.assert_allclose(answer.labels, labels, atol=1e-6)
    np.testing.assert_allclose(answer.values["G0"], 2000 + 6000 * labels[:, 0], rtol=1e-6)
    assert answer.units == {"G0": "MPa", "a": "MPa^-3"}
    same = answer.stress(np.linspace(0, 0.03, 7))
    assert same.shape == (2500, 7)
    twice = tfmat.network_answers(
        strain.astype(float), stress.astype(float), workdir=trained_run.workdir
    )
    np.testing.assert_allclose(twice.labels, labels, atol=1e-5)


def test_other_points_are_put_on_the_grid(trained_run):
    law, strain = find_law("hahn_tsai"), np.linspace(0, 0.03, 777) ** 1.2
    parameters = np.array([[4000.0, 2e-8], [6000.0, 1e-8]])
    stress = law.stress(strain[None], parameters)
    many = tfmat.network_answers(strain, stress, workdir=trained_run.workdir)
    assert many.values["G0"] == pytest.approx([4000, 6000], rel=0.2)
    one = tfmat.network_answers(strain, stress[1], workdir=trained_run.workdir)
    assert one.values["G0"] == pytest.approx(many.values["G0"][1], rel=1e-4)
    assert np.ndim(one.values["G0"]) == 0
    again = one.stress(strain)
    assert again.shape == strain.shape
    assert np.sqrt(np.mean((again - stress[1]) ** 2)) < 0.2 * stress[1].max()


@pytest.mark.parametrize(
    ("strain", "stress", "message"),
    [
        (np.arange(20.0), np.arange(19.0), "shape"),
        (np.zeros((2, 2, 20)), np.zeros((2, 2, 20)), "shape"),
        (np.arange(5.0), np.arange(5.0), "at least 10 points"),
        (np.full((3, 20), np.nan), np.zeros((3, 20)), "NaN or infinity"),
        (np.linspace(0.05, 0, 20), np.arange(20.0), "strain must rise"),
        (np.linspace(1.0, 20, 20), np.arange(20.0), "trained range"),
        (np.array(["a"] * 20), np.arange(20.0), "give numbers"),
    ],
)
def test_what_is_no_curve_is_refused(trained_run, strain, stress, message):
    with pytest.raises(InputError, match=message):
        tfmat.network_answers(strain, stress, workdir=trained_run.workdir)


def test_the_wrong_network_is_refused(trained_run, tmp_path):
    curve = np.linspace(0, 0.03, 50), np.linspace(0, 60, 50)
    with pytest.raises(InputError, match="is of law hahn_tsai, not voce"):
        tfmat.network_answers(*curve, law="voce", workdir=trained_run.workdir)
    with pytest.raises(InputError, match="holds no trained model"):
        tfmat.network_answers(*curve, workdir=tmp_path)


def test_what_is_no_curve_among_many_is_refused(trained_run, stored):
    strain, stress, _ = (array.copy() for array in stored)
    strain[2000, 3] = np.nan
    with pytest.raises(InputError, match="NaN or infinity before the end"):
        tfmat.network_answers(strain, stress, workdir=trained_run.workdir)
    # Falling strain, near no grid that the network knows.
    strain[2000] = np.linspace(0.03, 0.0, 200)
    with pytest.raises(InputError, match="strain must rise"):
        tfmat.network_answers(strain, stress, workdir=trained_run.workdir)
