"""The trial that `tfmat laws NAME` makes: it passes our laws and finds planted mistakes."""

import numpy as np
import pytest

from tfmat.materials import LAWS, History, find_law
from tfmat.materials.law import check_law
from tfmat.materials.registry import MONOTONIC_LAWS


@pytest.mark.parametrize("name", MONOTONIC_LAWS)
def test_shipped_laws_pass(name):
    findings = check_law(find_law(name))
    assert [finding.check for finding in findings] == ["stress", "independence", "derivatives"]
    assert all(finding.passed for finding in findings), findings


def _failure(**methods):
    law = type("Wrong", (LAWS["tanh_shear"],), methods)()
    finding = check_law(law)[-1]
    assert not finding.passed
    return finding


def test_wrong_derivative_is_named():
    def derivatives(self, strain, parameters):
        return LAWS["tanh_shear"].derivatives(self, strain, parameters) * [1.0, 1.001]

    finding = _failure(derivatives=derivatives)
    assert finding.check == "derivatives"
    assert "d stress / d S" in finding.detail


def test_stress_that_is_not_finite_names_the_parameters():
    def stress(self, strain, parameters):
        return np.where(parameters[:, :1] > 7999, np.nan, strain * parameters[:, :1])

    assert "not finite at G0=8000, S=" in _failure(stress=stress).detail


def test_curves_that_depend_on_each_other_are_found():
    def stress(self, strain, parameters):
        return strain * parameters.mean(axis=0)[0] * np.ones((len(parameters), 1))

    assert _failure(stress=stress).check == "independence"


def test_wrong_shape_and_exceptions_are_findings():
    assert "shape (1, 50)" in _failure(stress=lambda self, strain, parameters: strain[:1]).detail
    finding = _failure(stress=lambda self, strain, parameters: parameters["S"])
    assert "IndexError" in finding.detail
    assert "line" in finding.detail


@pytest.mark.parametrize("mode", ["uniaxial", "equibiaxial", "planar"])
def test_a_law_is_tried_over_given_histories(mode):
    def draw(curves, points):
        return History(mode, strain=np.linspace(0.0, 1.0, points)[None])

    findings = check_law(find_law("ogden"), draw)
    assert [finding.check for finding in findings] == ["stress", "independence", "derivatives"]
    assert all(finding.passed for finding in findings), findings
