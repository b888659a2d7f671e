"""The pictures hold the data that they were given; they are also looked at by eye when they change."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from tfmat.errors import InputError
from tfmat.identification.results import CurvePicture, Fitted
from tfmat.report.figures import curve_figure, save_figure

pytestmark = pytest.mark.pictures

STRAIN = np.linspace(0, 0.04, 60)
STRESS = 100 * np.tanh(50 * STRAIN)


def make_curve_figure(**changes):
    arguments = {
        "strain": STRAIN,
        "stress_mpa": STRESS,
        "resimulated_mpa": STRESS + 1.5,
        "name": "specimen [1]_$2",
        "law_title": "Hahn–Tsai 1973",
        "parameters": {"G0": (6964.4, "MPa"), "a": (2.44e-8, "MPa^-3"), "n": (0.25, "-")},
        "intervals": {"G0": (6900.0, 7000.0), "n": None},
        "rmse_percent": 1.55,
        "strain_label": "engineering shear strain",
        "stress_label": "shear stress",
    }
    return curve_figure(CurvePicture(**(arguments | changes)))


def test_curve_figure_shows_points_curve_residuals_units_and_parameters():
    figure = make_curve_figure()
    top, bottom = figure.axes
    measured, model = top.lines
    assert model.get_label() == "network: RMSE 1.55 % of maximum stress"
    np.testing.assert_array_equal(measured.get_ydata(), STRESS)
    np.testing.assert_array_equal(model.get_ydata(), STRESS + 1.5)
    np.testing.assert_allclose(bottom.lines[-1].get_ydata(), -1.5)
    assert top.get_ylabel() == "shear stress (MPa)"
    assert bottom.get_xlabel() == "engineering shear strain (–)"
    text = figure.legends[0].get_title().get_text()
    assert text.splitlines() == [
        "G0 = 6964 MPa   (95 %: 6900 … 7000)",
        "a = 2.440e-8 MPa⁻³",
        "n = 0.2500",
    ]


def test_the_recommended_curve_is_bold_sets_the_scale_and_comes_first_in_the_legend():
    refined = Fitted(name="least squares", stress_mpa=(STRESS + 0.4).tolist(), rmse_percent=0.4)
    figure = make_curve_figure(
        resimulated_mpa=3 * STRESS, refined=refined, recommended="least squares"
    )
    top, bottom = figure.axes
    other, best = top.lines[1:]
    np.testing.assert_array_equal(best.get_ydata(), STRESS + 0.4)
    assert other.get_linestyle() == "--" and other.get_linewidth() < 0.5 * best.get_linewidth()
    assert best.get_color() != other.get_color()
    assert top.get_ylim()[1] == pytest.approx(1.06 * (STRESS + 0.4).max())
    np.testing.assert_allclose(bottom.lines[-1].get_ydata(), -0.4)
    assert bottom.get_ylim()[1] < 1
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["measured", "least squares: RMSE 0.400 % of maximum stress"]
    # Where the network's answer is the recommended one, it is the bold one.
    top = make_curve_figure(refined=refined, recommended="network").axes[0]
    np.testing.assert_array_equal(top.lines[-1].get_ydata(), STRESS + 1.5)


def test_what_must_not_be_used_and_what_was_assumed_stand_on_the_picture():
    figure = make_curve_figure(do_not_use=["stress in ksi?"], assumed=["stress in MPa"])
    assert figure.get_suptitle() == "DO NOT USE: stress in ksi?"
    assert "assumed: stress in MPa" in figure.legends[0].get_title().get_text()
    assert not make_curve_figure().get_suptitle()


def test_any_file_name_can_stand_in_the_title(tmp_path):
    figure = make_curve_figure(name="$a_{$" + "long " * 30)
    save_figure(figure, tmp_path / "a.png")
    assert figure.axes[0].get_tightbbox().x1 <= figure.bbox.width


def test_curve_figure_without_a_law_has_one_panel():
    figure = make_curve_figure(resimulated_mpa=None, law_title="", rmse_percent=None)
    assert len(figure.axes) == 1
    assert len(figure.axes[0].lines) == 1


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_text_lies_inside_the_picture_and_off_the_data(scale):
    figure = make_curve_figure(stress_mpa=STRESS * scale, resimulated_mpa=STRESS * scale)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    top = figure.axes[0]
    box = figure.legends[0].get_window_extent(renderer)
    assert box.y0 >= 0 and box.x1 <= figure.bbox.width
    # The legend hides nothing: it stands below every panel.
    assert all(box.y1 <= panel.get_tightbbox(renderer).y0 for panel in figure.axes)
    assert top.get_legend() is None
    for panel in figure.axes:
        extent = panel.get_tightbbox(renderer)
        assert extent.x0 >= 0
        assert extent.x1 <= figure.bbox.width
        assert extent.y0 >= 0
        assert extent.y1 <= figure.bbox.height


def test_saved_figure_is_a_png_of_the_given_size_or_nothing(tmp_path):
    path = tmp_path / "curve.png"
    save_figure(make_curve_figure(), path)
    # Five lines stand below the panels.
    assert imread(path).shape[:2] == (int((5.0 + 0.19 * 5) * 144), round(7.0 * 144))
    with pytest.raises(InputError, match="cannot write"):
        save_figure(make_curve_figure(), tmp_path / "none" / "curve.png")
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]
