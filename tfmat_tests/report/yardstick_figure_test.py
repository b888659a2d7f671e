"""The picture of the yardstick holds what it was given."""

import copy

import numpy as np

from tfmat.report.yardstick_figure import yardstick_figure
from tfmat_tests.report.yardstick import YARDSTICK


def test_a_row_a_parameter_and_a_column_a_quantity():
    yardstick = copy.deepcopy(YARDSTICK)
    yardstick["parameters"]["$a_{"] = yardstick["parameters"]["G0"]
    for bins in yardstick["bins"].values():
        for entry in bins:
            entry["parameters"]["$a_{"] = entry["parameters"]["G0"]
    figure = yardstick_figure(yardstick)
    assert len(figure.axes) == 6
    first = figure.axes[0]
    network, least_squares, best = first.lines
    np.testing.assert_array_equal(network.get_ydata(), [1e-4, 1e-4])
    np.testing.assert_array_equal(least_squares.get_ydata(), [5e-5, 5e-5])
    np.testing.assert_array_equal(best.get_ydata(), [4e-5, 4e-5])
    assert first.get_yscale() == "log"
    assert first.get_ylabel() == "MSE of G0 (scaled 0–1)"
    assert [label.get_text() for label in first.get_xticklabels()] == ["0.010\nto 0.020"] * 2
    assert figure.axes[5].get_xlabel() == "points"
    figure.canvas.draw()
