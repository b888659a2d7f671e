"""Cards of answers: what their heads say, and variants against draws from the parameters' uncertainty."""

import dataclasses

import numpy as np
import pytest

import tfmat
from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.records.record import Caveat

VALUES = np.array([[200e3, 300.0, 250.0, 12.0]])


def _answer(seed=0, **options):
    law = find_law("voce")
    strain = np.linspace(0.0, 0.12, 200) ** 1.5 / 0.12**0.5
    noise = np.random.default_rng(seed).normal(0.0, 2.0, len(strain))
    stress = law.stress(strain[None], VALUES)[0] + noise
    return tfmat.identify(
        strain, stress, law="voce", strain_measure="true", stress_measure="true", **options
    )


@pytest.fixture(scope="module")
def answer():
    return _answer()


def test_the_head_says_where_the_parameters_come_from(answer):
    text = answer.card("abaqus", poisson_ratio=0.29)
    sigma0 = answer.parameters["sigma0"]
    assert f"** sigma0 = {sigma0.value:.9g} MPa, 95 % interval {sigma0.ci95[0]:.6g} to" in text
    for expected in ("200 points, by least squares, error", "0.29", "true strain of 0.12;"):
        assert expected in text
    assert "DO NOT USE" not in text and "VARIANT" not in text
    assert "\n** E = 200000 MPa, given\n" in _answer(fixed={"E": 200e3}).card("calculix")


def test_the_card_of_an_answer_that_must_not_be_used_says_so_first(answer):
    caveat = Caveat("wrong unit", "the stress is ksi", "say so", blocks=True)
    text = dataclasses.replace(answer, warnings=[caveat]).card("ansys")
    assert text.splitlines()[1] == "! DO NOT USE: wrong unit"
    assert "! warning: the stress is ksi; say so\n" in text


def test_variants_are_what_draws_with_that_mean_stress_are_on_average(answer):
    law, strain = answer.law, 0.12 * np.linspace(0.01, 1.0, 100)[None]
    draws = np.random.default_rng(1).multivariate_normal(answer.labels, answer.covariance, 40000)
    mean = law.label_stress(strain, draws).mean(axis=1)
    spread = draws.std(axis=0)
    for quantile in (0.05, 0.95):
        low, middle, high = np.quantile(mean, [quantile - 0.01, quantile, quantile + 0.01])
        near = draws[(low < mean) & (mean < high)].mean(axis=0)
        found = answer.variant(quantile)
        labels = law.to_labels([[*found.values.values()]])[0]
        # About 800 draws are near: their mean is good to 0.035 standard deviations.
        np.testing.assert_allclose((labels - near) / spread, 0.0, atol=0.15)
        best = law.label_stress(strain, answer.labels[None]).mean()
        assert found.share == pytest.approx(middle / best - 1, rel=0.05)
        text = answer.card("abaqus", quantile=quantile)
        assert f"VARIANT {100 * quantile:g} %: E = {found.values['E']:.9g}" in text
        assert f"NAME=M_0_{100 * quantile:g}\n" in text


def test_pooled_specimens_vary_as_they_scatter():
    (pooled,) = tfmat.pool([_answer(seed) for seed in range(2)])
    soft, stiff = pooled.variant(0.05), pooled.variant(0.95)
    assert soft.share < 0 < stiff.share
    text = " ".join(pooled.card("code_aster", quantile=0.05).replace("\n#", "").split())
    assert "by the scatter between the specimens" in text and "so well does" not in text


def test_variants_need_a_covariance(answer):
    for covariance in (None, np.full((4, 4), np.nan)):
        blind = dataclasses.replace(answer, covariance=covariance)
        with pytest.raises(InputError, match="no variants of 0: the covariance"):
            blind.card("abaqus", quantile=0.05)
    with pytest.raises(InputError, match="quantile is 5; give a number between 0 and 1"):
        answer.card("abaqus", quantile=5)
    with pytest.raises(InputError, match="did you mean 'ls_dyna'"):
        answer.card("ls-dyna")
