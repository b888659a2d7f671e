"""Corner plots and the pictures of uniformity: what they draw, against numbers that are known."""

import msgspec
import numpy as np
import pytest
import scipy.stats

from tfmat.identification.results import PosteriorPicture, PosteriorScores
from tfmat.report.figures import Corner, uniformity
from tfmat_tests.report.run_folder import POSTERIOR

pytestmark = pytest.mark.pictures


def corner(count=2, **changes):
    random = np.random.default_rng(0)
    values = np.exp(random.normal(0.0, [0.2, 2.0, 0.1][:count], (2000, count)))
    names = ["x", "y", "z"][:count]
    known = {"names": names, "units": ["MPa"] * count, "logarithmic": [True] * count}
    return Corner(PosteriorPicture(**known, values=values.tolist(), **changes))


def test_a_corner_has_a_panel_for_each_parameter_and_pair():
    figure = corner(3, recommended={"x": 1.25}, title="a curve").figure
    figure.draw_without_rendering()
    shown = [panel for panel in figure.axes if panel.axison]
    assert len(shown) == 6
    # A logarithmic axis only where the samples spread over decades.
    assert [panel.get_xscale() for panel in figure.axes[6:]] == ["linear", "log", "linear"]
    assert [panel.get_xlabel() for panel in figure.axes[6:]] == ["x (MPa)", "y (MPa)", "z (MPa)"]
    # The middle 95 % of a logarithmic normal distribution, and the recommended value.
    places = sorted(float(line.get_xdata()[0]) for line in figure.axes[0].lines)
    expected = [*scipy.stats.lognorm(0.2).interval(0.95), 1.25]
    np.testing.assert_allclose(places, sorted(expected), rtol=0.04)


@pytest.mark.parametrize("reasons", [[], ["implausible modulus", "nothing converged"]])
def test_a_corner_says_what_its_lines_are_and_that_it_must_not_be_used(reasons):
    figure = corner(3, recommended={"x": 1.25}, title="a curve", do_not_use=reasons).figure
    assert (
        figure.get_suptitle()
        == "a curve" + "\nDO NOT USE: implausible modulus, nothing converged" * bool(reasons)
    )
    (legend,) = (panel.get_legend() for panel in figure.axes if panel.get_legend())
    named = {
        text.get_text(): line for text, line in zip(legend.texts, legend.get_lines(), strict=True)
    }
    # In the colours of the lines that are drawn: the interval's ends, then the recommended value.
    interval, *_, recommended = figure.axes[0].lines
    assert named["95 %, median above"].get_color() == interval.get_color()
    assert named["recommended value"].get_color() == recommended.get_color()


def test_regions_hold_their_shares():
    plot = corner()
    (contours,) = plot.figure.axes[2].collections
    outer = contours.get_paths()[0]
    # Smoothing widens them a little.
    inside = outer.contains_points(plot.values).mean()
    assert 0.9 < inside < 1.0


def test_one_parameter_and_one_value_are_drawn_too():
    plot = Corner(
        PosteriorPicture(names=["x"], units=["MPa"], logarithmic=[False], values=[[3.0]] * 10)
    )
    plot.figure.draw_without_rendering()
    assert "<svg" in plot.svg


def test_the_band_is_that_of_the_share_s_standard_error():
    ((ranks, tarp),) = uniformity(msgspec.convert(POSTERIOR, PosteriorScores))
    (panel,) = ranks.figure.axes
    assert len(panel.lines) == 3  # zero and two parameters
    (band,) = panel.collections
    highest = band.get_paths()[0].vertices[:, 1].max()
    assert highest == pytest.approx(100 * 3.2 * np.sqrt(0.25 / POSTERIOR["num_curves"]))
    assert len(tarp.figure.axes[0].lines) == 2
    assert uniformity(None) == []
