"""A landscape in the report: escaped, left out where damaged, and read off with the pointer in a real browser."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from tfmat.report.pages import write_training_report
from tfmat_tests.report import run_folder

pytestmark = pytest.mark.pictures

AXIS = np.linspace(-1, 1, 9)


def landscape(kind="around", runs=("runs/a",)):
    """A bowl with its minimum at (0, 0), over two decades and more."""
    train = 0.001 + AXIS[None, :] ** 2 + 3 * AXIS[:, None] ** 2
    estimate = {"value": 12.5, "error": 0.5}
    return {
        "format": 1,
        "settings": {"kind": kind, "runs": list(runs), "extent": 1.0, "sam_rho": 0.05},
        "curves": {"train": 10_000, "test": 9_980},
        "x": AXIS.tolist(),
        "y": AXIS.tolist(),
        "loss": {"train": train.tolist(), "test": (1.1 * train).tolist()},
        "curvature": {
            "eigenvalues": [estimate, {"value": 7.25, "error": 0.1}],
            "trace": estimate,
            "sharpness": estimate,
            "adaptive_sharpness": estimate,
        },
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_folder.write_run(folder, **run_folder.NO_PICTURES)
    (folder / "landscape.json").write_text(json.dumps(landscape()))
    between = landscape("between", ["runs/<b>", "runs/'c'"])
    (folder / "landscape_between.json").write_text(json.dumps(between))
    return write_training_report(folder)


def test_the_one_script_of_the_page_is_the_one_that_its_policy_allows(page):
    text = page.read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
        in text
    )
    assert "12.5" in text and "± 0.5" in text and "7.25" in text
    assert "runs/&lt;b&gt;" in text and "runs/<b>" not in text


def test_a_page_without_a_landscape_runs_nothing(tmp_path):
    run_folder.write_run(tmp_path, **run_folder.NO_PICTURES)
    text = write_training_report(tmp_path).read_text()
    assert "<script" not in text and "script-src" not in text


@pytest.mark.parametrize("damage", ["x", "kind"])
def test_a_damaged_landscape_is_left_out_and_named(tmp_path, damage):
    run_folder.write_run(tmp_path, **run_folder.NO_PICTURES)
    content = landscape()
    if damage == "x":
        content["x"] = content["x"][:-1]
    else:
        content["curvature"]["trace"] = "none"
    (tmp_path / "landscape.json").write_text(json.dumps(content))
    text = write_training_report(tmp_path).read_text()
    assert "landscape.json is damaged" in text.replace("\n", " ") or "landscape.json" in text
    assert "data-surface" not in text


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 400)])
def test_the_page_in_a_browser(browser, page, screenshots, scheme, width):
    browser.look(page, screenshots / f"landscape_{scheme}_{width}.png", scheme, width)


def test_the_pointer_reads_the_value_under_it(browser, page):
    browser.open(page, width=1280)
    box = browser.page.locator("#landscape")
    canvas, output = box.locator("canvas"), box.locator("output")
    assert "at 0.00, 0.00: loss 0.001000 on training, 0.001100 on test" in output.text_content()
    canvas.scroll_into_view_if_needed()
    size = canvas.bounding_box()
    # Three quarters to the right is x = 0.5; a quarter from the top y = 0.5.
    browser.page.mouse.move(size["x"] + 0.75 * size["width"], size["y"] + 0.25 * size["height"])
    assert "at 0.50, 0.50: loss 1.001 on training, 1.101 on test" in output.text_content()
    box.locator(".row").fill("0")
    assert "at 0.50, −1.00: loss 3.251" in output.text_content()
    before = canvas.evaluate("element => element.toDataURL()")
    box.locator("input[value=test]").check()
    assert canvas.evaluate("element => element.toDataURL()") != before
    points = box.locator("polyline.train").get_attribute("points").split(" ")
    assert len(points) == len(AXIS)
