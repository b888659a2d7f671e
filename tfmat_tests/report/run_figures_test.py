"""The pictures of a run hold the data that they were given, and limits that NumPy gives too."""

import msgspec
import numpy as np
import pytest
from matplotlib.image import imread

from tfmat.identification.results import Bin, Coverage, CoverageCurve, ErrorScores, SpreadBin
from tfmat.report.figures import save_grid
from tfmat.report.pages import calibration, kinds_of_curves, losses, predicted_against_true
from tfmat.report.run_files import ParameterAnswers
from tfmat.training.run_folder import MetricsLine
from tfmat_tests.report.run_folder import BIN

pytestmark = pytest.mark.pictures

RANDOM = np.random.default_rng(0)
COVERAGE = Coverage(
    curve=CoverageCurve([0.5, 0.9], [0.512, 0.898]),
    bins=[SpreadBin(mean_std=0.004, rms_error=0.0041), SpreadBin(mean_std=0.02, rms_error=0.018)],
)
ONE = msgspec.convert(BIN, Bin)


def panels_of(rows):
    return [picture.figure.axes[0] for row in rows for picture in row]


def error_panel(answers):
    return panels_of(predicted_against_true([answers]))[1]


def test_a_row_a_parameter_and_log_axes_for_log_parameters():
    linear, logarithmic = RANDOM.uniform(2000, 8000, 300), 10 ** RANDOM.uniform(-9, -7, 300)
    left, right, other, right_other = panels_of(
        predicted_against_true(
            [
                ParameterAnswers("G0", "MPa", False, linear, linear * 1.05),
                ParameterAnswers("a", "MPa^-3", True, logarithmic, logarithmic * 1.05),
            ]
        )
    )
    assert (left.get_xscale(), other.get_yscale()) == ("linear", "log")
    assert left.get_xlabel() == "true G0 (MPa)"
    np.testing.assert_array_equal(other.lines[0].get_ydata(), logarithmic * 1.05)
    # Every error is 5 %, or log10(1.05) decades.
    np.testing.assert_allclose(right.lines[1].get_ydata(), 5.0)
    np.testing.assert_allclose(right_other.lines[1].get_ydata(), np.log10(1.05))
    assert right.get_ylabel() == "error of G0 (%)"
    assert right_other.get_ylabel() == "error of a (decades)"


def test_limits_hold_95_percent_and_the_floor_is_its_root_mean_square():
    true = RANDOM.uniform(100, 200, 40_000)
    error = RANDOM.normal(scale=0.02, size=true.size)
    floor = np.full(10_000, 1.5)  # %
    panel = error_panel(ParameterAnswers("Q", "MPa", False, true, true * (1 + error), floor))
    _, low, high, median = panel.lines
    np.testing.assert_allclose(high.get_ydata(), 1.96 * 2.0, rtol=0.06)
    np.testing.assert_allclose(low.get_ydata(), -1.96 * 2.0, rtol=0.06)
    np.testing.assert_allclose(median.get_ydata(), 0.0, atol=0.15)
    (band,) = panel.collections
    assert band.get_datalim(panel.transData).y1 == pytest.approx(1.96 * 1.5)


def test_values_that_can_be_zero_have_errors_in_their_unit():
    answers = ParameterAnswers("x", "MPa", False, np.array([0.0, 1.0]), np.array([0.5, 1.5]))
    np.testing.assert_allclose(answers.errors, [0.5, 0.5])
    assert error_panel(answers).get_ylabel() == "error of x (MPa)"


def test_a_single_curve_can_be_drawn(tmp_path):
    answers = ParameterAnswers("$G_0", "MPa", False, np.array([5000.0]), np.array([5000.0]))
    save_grid(predicted_against_true([answers]), tmp_path / "a.png")


def test_a_panel_for_each_parameter_and_kind_of_curve(tmp_path):
    worse = msgspec.structs.replace(ONE.parameters["G0"], network_mse=3e-4)
    other = Bin(low=0.02, high=0.04, parameters={"G0": worse})
    rows = kinds_of_curves({"max_strain": [ONE, other], "noise_to_signal": [ONE, other]})
    panels = panels_of(rows)
    assert len(panels) == 2
    network, least_squares, best = panels[0].lines
    np.testing.assert_allclose(network.get_ydata(), [1e-4, 3e-4])
    np.testing.assert_allclose(network.get_xdata(), [0.015, 0.03])
    np.testing.assert_allclose(least_squares.get_ydata(), [5e-5] * 2)
    np.testing.assert_allclose(best.get_ydata(), [4e-5] * 2)
    # The noise is skewed: a logarithmic axis, and the middle of a bin is its geometric one.
    np.testing.assert_allclose(panels[1].lines[0].get_xdata(), np.sqrt([2e-4, 8e-4]))
    assert panels[1].get_xscale() == "log"
    assert panels[0].get_xlabel() == "maximum strain (–)"
    # One legend a row tells all.
    assert [panel.get_legend() is None for panel in panels] == [False, True]
    save_grid(rows, tmp_path / "kinds.png")


def test_what_was_not_worked_out_is_not_drawn():
    alone = Bin(low=0.01, high=0.02, parameters={"G0": ErrorScores.of_network(1e-4)})
    (panel,) = panels_of(kinds_of_curves({"max_strain": [alone]}))
    assert [line.get_label() for line in panel.lines] == ["network"]


def test_the_lines_of_the_calibration_are_the_numbers():
    panels = panels_of(calibration({"G0": COVERAGE, "a": COVERAGE}))
    assert len(panels) == 4
    left, right = panels[2:]
    np.testing.assert_allclose(left.lines[1].get_xydata(), [[50, 51.2], [90, 89.8]])
    np.testing.assert_allclose(right.lines[1].get_xydata(), [[0.004, 0.0041], [0.02, 0.018]])
    assert left.get_ylabel().startswith("a:")
    # A network that is certain of everything cannot be drawn on logarithmic axes.
    certain = Coverage(curve=COVERAGE.curve, bins=[SpreadBin(mean_std=0.0, rms_error=0.1)])
    assert panels_of(calibration({"a": certain}))[1].get_xscale() == "linear"


def test_losses_are_drawn_over_time_and_over_epochs():
    metrics = [
        MetricsLine(step=1, seconds=60.0, epoch=0.5, loss=0.1),
        MetricsLine(step=2, seconds=120.0, epoch=1.0, loss=0.05, val_loss=0.06),
        MetricsLine(step=3, seconds=180.0, epoch=1.5, loss=float("nan")),
    ]
    by_time, by_epoch = panels_of(losses(metrics))
    assert by_time.get_xlabel() == "training time (min)"
    np.testing.assert_allclose(by_time.lines[0].get_xdata(), [1, 2])
    np.testing.assert_allclose(by_epoch.lines[0].get_xdata(), [0.5, 1])
    np.testing.assert_allclose(by_epoch.lines[1].get_ydata(), [0.06])
    assert by_time.get_yscale() == "log"
    labels = [label.get_text() for label in by_time.get_yticklabels() if label.get_text()]
    assert len(labels) == len(set(labels))
    assert panels_of(losses([]))  # a run that has not written a line yet


def test_losses_of_a_density_may_be_negative():
    metrics = [
        MetricsLine(step=i, epoch=i, seconds=i, loss=1.0 - i, val_loss=1.2 - i) for i in range(1, 4)
    ]
    panel, _ = panels_of(losses(metrics))
    assert panel.get_yscale() == "linear" and "nats" in panel.get_ylabel()
    drawn = [line.get_ydata() for line in panel.lines]
    np.testing.assert_allclose(drawn, [[0, -1, -2], [0.2, -0.8, -1.8]])


def test_panels_of_a_file_begin_and_end_at_one_place_and_hold_their_text(tmp_path):
    """Over each other and beside each other, however wide the text of each is; a last row of fewer is filled up."""
    numbers = np.linspace(1.0, 2.0, 50)
    scales = {"x": 1.0, "stress": 12_345.0, "modulus": 1e-7}
    rows = [
        row
        for name, scale in scales.items()
        for row in predicted_against_true(
            [ParameterAnswers(name, "MPa", False, scale * numbers, scale * numbers[::-1])]
        )
    ]
    rows = [row[1:] * 2 for row in rows]
    rows[-1].pop()
    sizes = [picture.figure.get_size_inches() for picture in rows[0]]
    save_grid(rows, tmp_path / "a.png")
    image = imread(tmp_path / "a.png")
    width = sum(int(144 * size[0]) for size in sizes)
    assert image.shape == (3 * int(144 * sizes[0][1]), width, 4)
    assert (image[-100:, -100:] == 1.0).all()  # where no picture is
    panels = panels_of(rows)
    places = {tuple(panel.get_position(original=True).bounds) for panel in panels}
    assert len(places) == 1
    for panel in panels:
        text = panel.get_tightbbox()
        assert text.x0 >= 0 and text.y0 >= 0
        assert text.x1 <= panel.figure.bbox.width and text.y1 <= panel.figure.bbox.height
