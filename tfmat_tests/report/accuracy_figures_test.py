"""The pictures of the accuracy hold the data that they were given, and limits that NumPy gives too."""

import numpy as np
import pytest

from tfmat.report.accuracy_figures import ParameterAnswers, predicted_against_true_figure
from tfmat.report.figures import save_figure

RANDOM = np.random.default_rng(0)


def test_a_column_a_parameter_and_log_axes_for_log_parameters():
    linear, logarithmic = RANDOM.uniform(2000, 8000, 300), 10 ** RANDOM.uniform(-9, -7, 300)
    figure = predicted_against_true_figure(
        [
            ParameterAnswers("G0", "MPa", False, linear, linear * 1.05),
            ParameterAnswers("a", "MPa^-3", True, logarithmic, logarithmic * 1.05),
        ]
    )
    upper, other, below, below_other = figure.axes
    assert (upper.get_xscale(), other.get_yscale()) == ("linear", "log")
    assert upper.get_xlabel() == "true G0 (MPa)"
    np.testing.assert_array_equal(other.lines[0].get_ydata(), logarithmic * 1.05)
    # Every error is 5 %, or log10(1.05) decades.
    np.testing.assert_allclose(below.lines[1].get_ydata(), 5.0)
    np.testing.assert_allclose(below_other.lines[1].get_ydata(), np.log10(1.05))
    assert below.get_ylabel() == "error of G0 (%)"
    assert below_other.get_ylabel() == "error of a (decades)"


def test_limits_hold_95_percent_and_the_floor_is_its_root_mean_square():
    true = RANDOM.uniform(100, 200, 40_000)
    error = RANDOM.normal(scale=0.02, size=true.size)
    floor = np.full(10_000, 1.5)  # %
    answers = ParameterAnswers("Q", "MPa", False, true, true * (1 + error), floor)
    panel = predicted_against_true_figure([answers]).axes[1]
    _, low, high, median = panel.lines
    np.testing.assert_allclose(high.get_ydata(), 1.96 * 2.0, rtol=0.06)
    np.testing.assert_allclose(low.get_ydata(), -1.96 * 2.0, rtol=0.06)
    np.testing.assert_allclose(median.get_ydata(), 0.0, atol=0.15)
    (band,) = panel.collections
    assert band.get_datalim(panel.transData).y1 == pytest.approx(1.96 * 1.5)


def test_values_that_can_be_zero_have_errors_in_their_unit():
    answers = ParameterAnswers("x", "MPa", False, np.array([0.0, 1.0]), np.array([0.5, 1.5]))
    np.testing.assert_allclose(answers.errors, [0.5, 0.5])
    panel = predicted_against_true_figure([answers]).axes[1]
    assert panel.get_ylabel() == "error of x (MPa)"


def test_a_single_curve_can_be_drawn(tmp_path):
    answers = ParameterAnswers("$G_0", "MPa", False, np.array([5000.0]), np.array([5000.0]))
    save_figure(predicted_against_true_figure([answers]), tmp_path / "a.png")
