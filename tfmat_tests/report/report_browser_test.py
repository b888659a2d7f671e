"""The report in a real browser: nothing asked for or complained of, readable; pictures are kept (screenshots)."""

import pathlib

import numpy as np
import pytest

from tfmat.report.pages import write_training_report
from tfmat_tests.report import run_folder
from tfmat_tests.report.browser import SCREENS

pytestmark = pytest.mark.pictures


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A page with every section."""
    coverage = {"G0": run_folder.COVERAGE_OF_ONE, "a": run_folder.COVERAGE_OF_ONE}
    content = run_folder.evaluation(
        yardstick=run_folder.yardstick(), coverage=coverage, posterior=run_folder.POSTERIOR
    )
    folder = tmp_path_factory.mktemp("run")
    run_folder.write_run(folder, content=content, with_floor=True)
    run_folder.write_samples(folder)
    return write_training_report(folder)


@pytest.mark.parametrize(("name", "scheme", "width"), SCREENS)
def test_the_page_loads_nothing_and_is_not_blank(browser, page, screenshots, name, scheme, width):
    browser.look(page, screenshots / f"report_{name}.png", scheme, width)


def test_pictures_take_their_colours_from_the_page(browser, page):
    colour = "getComputedStyle(document.querySelector('svg.plot text')).fill"
    browser.open(page, scheme="light")
    light = browser.evaluate(colour)
    browser.open(page, scheme="dark")
    assert browser.evaluate(colour) != light
    assert browser.evaluate("document.querySelectorAll('svg.plot').length") >= 12
    # Every picture is really drawn, with room of its own.
    assert min(browser.heights("svg.plot")) > 150


def test_text_is_large_enough_on_a_telephone(browser, page):
    browser.open(page, width=390)
    assert np.quantile(browser.heights("svg.plot text"), 0.05) > 7


def test_paper_is_white_also_from_a_dark_screen(browser, page, screenshots):
    browser.open(page, scheme="dark", media="print")
    assert (
        browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(31, 41, 51)"
    browser.print_to_pdf(screenshots / "report.pdf")
    assert (screenshots / "report.pdf").read_bytes().startswith(b"%PDF")


def test_an_external_request_would_be_seen(browser, tmp_path):
    """What the other tests rely on."""
    file = tmp_path / "page.html"
    file.write_text(
        '<!DOCTYPE html><img src="http://127.0.0.1:9/a.png"><script>console.log("hello")</script>'
    )
    seen = browser.open(file)
    assert "http://127.0.0.1:9/a.png" in seen.requests
    assert seen.complaints
