"""The picture of the errors by the kind of curve holds what it was given."""

import numpy as np

from tfmat.report.figures import save_figure
from tfmat.report.yardstick_figure import yardstick_figure
from tfmat_tests.report.yardstick import BIN, SCORES


def test_a_panel_for_each_parameter_and_quantity(tmp_path):
    other = {
        **BIN,
        "low": 0.02,
        "high": 0.04,
        "parameters": {"G0": {**SCORES, "network_mse": 3e-4}},
    }
    figure = yardstick_figure({"max_strain": [BIN, other], "noise_to_signal": [BIN, other]})
    assert len(figure.axes) == 2
    network, least_squares, best = figure.axes[0].lines
    np.testing.assert_allclose(network.get_ydata(), [1e-4, 3e-4])
    np.testing.assert_allclose(network.get_xdata(), [0.015, 0.03])
    np.testing.assert_allclose(least_squares.get_ydata(), [5e-5] * 2)
    np.testing.assert_allclose(best.get_ydata(), [4e-5] * 2)
    # The noise is skewed: a logarithmic axis, and the middle of a bin is its geometric one.
    np.testing.assert_allclose(figure.axes[1].lines[0].get_xdata(), np.sqrt([2e-4, 8e-4]))
    assert figure.axes[1].get_xscale() == "log"
    assert figure.axes[0].get_xlabel() == "maximum strain (–)"
    save_figure(figure, tmp_path / "yardstick.png")


def test_what_was_not_worked_out_is_not_drawn():
    alone = {**BIN, "parameters": {"G0": {"network_mse": 1e-4}}}
    (panel,) = yardstick_figure({"max_strain": [alone]}).axes
    assert [line.get_label() for line in panel.lines] == ["network"]
