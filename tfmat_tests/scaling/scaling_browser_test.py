"""The page on a study in a real browser: nothing asked for, nothing complained of, readable light, dark and narrow.

The pictures of the page are kept: in $TFMAT_SCREENSHOTS where that is set, else in pytest's folder of the test.
"""

import os
import pathlib
import shutil

import numpy as np
import pytest
from matplotlib.image import imread

from tfmat.scaling.measurement_files import FILE
from tfmat.scaling.scaling_report import write_scaling_report
from tfmat_tests.scaling import golden


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A page with every section."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(golden.FOLDER / FILE, folder)
    return write_scaling_report(folder, vars(golden.ASSUMPTIONS))[0]


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("light", "light", 1100), ("dark", "dark", 1100), ("phone", "light", 390)],
)
def test_the_page_loads_nothing_complains_of_nothing_and_is_not_blank(
    browser, page, tmp_path, name, scheme, width
):
    seen = browser.open(page, scheme=scheme, width=width)
    assert seen.complaints == []
    assert seen.requests[0] == page.resolve().as_uri()
    assert {address.partition(":")[0] for address in seen.requests[1:]} <= {"data"}
    # No bar at the bottom: the page is as wide as the window.
    assert browser.evaluate("document.documentElement.scrollWidth") == width

    folder = pathlib.Path(os.environ.get("TFMAT_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    browser.screenshot(folder / f"scaling_{name}.png")
    pixels = imread(folder / f"scaling_{name}.png")[:, :, :3]
    background = pixels[2, 2]
    assert (background.mean() > 0.8) == (scheme == "light")
    for part in np.array_split(pixels, 8):
        assert np.abs(part - background).max(axis=2).mean() > 0.005
    # No text of a picture reaches out of it, where it would be cut off.
    cut = """[...document.querySelectorAll('svg.plot')].flatMap(plot => { const box = plot.getBoundingClientRect();
        return [...plot.querySelectorAll('text')].filter(text => { const at = text.getBoundingClientRect();
        return at.right > box.right + 1 || at.left < box.left - 1; }).map(text => text.textContent); })"""
    assert browser.evaluate(cut) == []
    heights = (
        "[...document.querySelectorAll('svg.plot text')].map(e => e.getBoundingClientRect().height)"
    )
    assert np.quantile(browser.evaluate(heights), 0.05) > 7


def test_every_picture_has_room_of_its_own_and_the_page_s_colours(browser, page):
    browser.open(page, scheme="dark")
    sizes = browser.evaluate(
        "[...document.querySelectorAll('svg.plot')].map(e => e.getBoundingClientRect().height)"
    )
    assert len(sizes) == 15
    assert min(sizes) > 150
    dark = browser.evaluate("getComputedStyle(document.querySelector('svg.plot text')).fill")
    assert dark == "rgb(228, 233, 238)"


def test_paper_is_white_and_shows_all_tables(browser, page, tmp_path):
    browser.open(page, scheme="dark", media="print")
    assert (
        browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    browser.print_to_pdf(tmp_path / "scaling.pdf")
    assert (tmp_path / "scaling.pdf").read_bytes().startswith(b"%PDF")
