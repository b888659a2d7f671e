"""The picture of a network's own intervals shows the numbers that it is given."""

import io

import numpy as np
from rich.console import Console

from tfmat.report.calibration_figure import calibration_figure
from tfmat.report.tables import coverage_table

SCORES = {
    "50": 0.512,
    "90": 0.898,
    "95": 0.953,
    "z_std": 1.0123,
    "nll": -3.4567,
    "mean_std": 0.00812,
    "mean_width_95": 0.0345,
    "curve": {"nominal": [0.5, 0.9], "observed": [0.512, 0.898]},
    "bins": [
        {"mean_std": 0.004, "rms_error": 0.0041, "num_curves": 10},
        {"mean_std": 0.02, "rms_error": 0.018, "num_curves": 10},
    ],
}


def test_the_lines_are_the_numbers():
    figure = calibration_figure({"G0": SCORES, "a": SCORES})
    assert len(figure.axes) == 4
    left, right = figure.axes[2:]
    np.testing.assert_allclose(left.lines[1].get_xydata(), [[50, 51.2], [90, 89.8]])
    np.testing.assert_allclose(right.lines[1].get_xydata(), [[0.004, 0.0041], [0.02, 0.018]])
    assert left.get_ylabel().startswith("a:")
    # A network that is certain of everything cannot be drawn on logarithmic axes.
    certain = SCORES | {"bins": [{"mean_std": 0.0, "rms_error": 0.1, "num_curves": 10}]}
    assert calibration_figure({"a": certain}).axes[1].get_xscale() == "linear"


def test_the_table_has_a_row_a_parameter():
    text = io.StringIO()
    table = coverage_table({"coverage": {"G0": SCORES}})
    Console(file=text, width=160, highlight=False).print(table)
    for expected in ("G0", "51.2 %", "89.8 %", "95.3 %", "1.012", "-3.457", "0.00812", "0.0345"):
        assert expected in text.getvalue()
