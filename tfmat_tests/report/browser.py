"""Debian's Chromium, driven by Playwright, which brings no browser of its own here."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from playwright import sync_api

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120_000  # milliseconds; the machine's cores may be shared


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a page did while it was open.

    Attributes:
      requests: addresses that it asked for, the page's own first.
      complaints: lines of the console and exceptions.
    """

    requests: list[str]
    complaints: list[str]


# Name, colour scheme and width of what a page is looked at on.
SCREENS = [("light", "light", 1100), ("dark", "dark", 1100), ("phone", "light", 390)]


class Browser:
    """One page at a time; see `open_browser`."""

    page: sync_api.Page

    def __init__(self, browser: sync_api.Browser):
        self._browser = browser

    def open(
        self, path: pathlib.Path, *, scheme: Any = "light", width: int = 1100, media: Any = "screen"
    ) -> Seen:
        """Opens a file as a reader with this colour scheme and width would, and waits until it is drawn."""
        for context in self._browser.contexts:
            context.close()
        context = self._browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, is_mobile=width < 500
        )
        context.set_default_timeout(PATIENCE)
        self.page = context.new_page()
        self.page.emulate_media(media=media)
        seen = Seen([], [])
        self.page.on("request", lambda request: seen.requests.append(request.url))
        self.page.on("console", lambda message: seen.complaints.append(message.text))
        self.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        self.page.goto(path.resolve().as_uri())
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        return seen

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.page.evaluate(expression)

    def screenshot(self, path: pathlib.Path) -> None:
        """The whole page as PNG, also what is below the window."""
        self.page.screenshot(path=path, full_page=True)

    def look(self, page: pathlib.Path, picture: pathlib.Path, scheme: str, width: int) -> None:
        """Opens a page of ours: nothing is asked for, complained of, too wide, or blank. Keeps a picture of it."""
        seen = self.open(page, scheme=scheme, width=width)
        assert seen.complaints == []
        assert seen.requests[0] == page.resolve().as_uri()
        assert {address.partition(":")[0] for address in seen.requests[1:]} <= {"data"}
        # No bar at the bottom: the page is as wide as the window.
        assert self.evaluate("document.documentElement.scrollWidth") == width
        self.screenshot(picture)
        pixels = imread(picture)[:, :, :3]
        assert pixels.shape[1] == width
        background = pixels[2, 2]
        assert (background.mean() > 0.8) == (scheme == "light")
        # Something is drawn from top to bottom.
        for part in np.array_split(pixels, 8):
            assert np.abs(part - background).max(axis=2).mean() > 0.005

    def heights(self, selector: str) -> list[float]:
        """Of all elements that it selects."""
        found = f"[...document.querySelectorAll('{selector}')]"
        return self.evaluate(f"{found}.map(e => e.getBoundingClientRect().height)")

    def print_to_pdf(self, path: pathlib.Path) -> None:
        """The page on paper, A4."""
        self.page.pdf(path=path, format="A4")


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser that looks at one page at a time."""
    with open_chromium() as browser:
        yield Browser(browser)


@contextlib.contextmanager
def open_chromium() -> Iterator[sync_api.Browser]:
    """Starts a browser with a home of its own, and ends it; the test is skipped where there is none, but not in CI."""
    program = next((path for path in map(shutil.which, NAMES) if path), None)
    if program is None:
        reason = "there is no Chromium; as root: ./tools/system_packages browser"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=program,
            # Chromium refuses to start as root otherwise.
            chromium_sandbox=os.geteuid() != 0,
            env={**os.environ, "HOME": home},
            timeout=PATIENCE,
        ) as browser,
    ):
        yield browser
