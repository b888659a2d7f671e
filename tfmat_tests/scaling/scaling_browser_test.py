"""The page on a study in a real browser: nothing asked for or complained of; pictures are kept (screenshots)."""

import shutil

import numpy as np
import pytest

from tfmat.scaling.report import write_scaling_report
from tfmat.scaling.study import FILE
from tfmat_tests.report.browser import SCREENS
from tfmat_tests.scaling import golden

pytestmark = pytest.mark.pictures


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with every section."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(golden.FOLDER / FILE, folder)
    return write_scaling_report(folder, golden.ASSUMPTIONS)[0]


@pytest.mark.parametrize(("name", "scheme", "width"), SCREENS)
def test_the_page_loads_nothing_and_is_not_blank(browser, page, screenshots, name, scheme, width):
    browser.look(page, screenshots / f"scaling_{name}.png", scheme, width)
    # No text of a picture reaches out of it, where it would be cut off.
    cut = """[...document.querySelectorAll('svg.plot')].flatMap(plot => { const box = plot.getBoundingClientRect();
        return [...plot.querySelectorAll('text')].filter(text => { const at = text.getBoundingClientRect();
        return at.right > box.right + 1 || at.left < box.left - 1; }).map(text => text.textContent); })"""
    assert browser.evaluate(cut) == []
    assert np.quantile(browser.heights("svg.plot text"), 0.05) > 7


def test_every_picture_has_room_of_its_own_and_the_page_s_colours(browser, page):
    browser.open(page, scheme="dark")
    sizes = browser.heights("svg.plot")
    assert len(sizes) == 15
    assert min(sizes) > 150
    dark = browser.evaluate("getComputedStyle(document.querySelector('svg.plot text')).fill")
    assert dark == "rgb(228, 233, 238)"
