"""A headless Chromium, driven through its DevTools protocol over two pipes: no port, no further package."""

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120.0  # seconds; the machine's cores may be shared


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a page did while it was open.

    Attributes:
      requests: addresses that it asked for, the page's own first.
      complaints: lines of the console, the log, and exceptions.
    """

    requests: list[str]
    complaints: list[str]


class Browser:
    """One open tab; see `open_browser`. Commands are those of https://chromedevtools.github.io/devtools-protocol/."""

    def __init__(self, write: int, read: int):
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._events.append(answer)

    def open(
        self, path: pathlib.Path, *, scheme: str = "light", width: int = 1100, media: str = "screen"
    ) -> Seen:
        """Opens a file as a reader with this colour scheme and width would, and waits until it is drawn."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media=media, features=features)
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self._events.clear()
        self.command("Page.navigate", url=path.resolve().as_uri())
        self._wait_for("Page.loadEventFired")
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        return self._seen()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: pathlib.Path) -> None:
        """The whole page as PNG, also what is below the window."""
        found = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def print_to_pdf(self, path: pathlib.Path) -> None:
        """The page on paper, A4."""
        found = self.command(
            "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False
        )
        path.write_bytes(base64.b64decode(found["data"]))

    def _seen(self) -> Seen:
        requests, complaints = [], []
        for event in self._events:
            params = event.get("params", {})
            if event.get("method") == "Network.requestWillBeSent":
                requests.append(params["request"]["url"])
            elif event.get("method") == "Log.entryAdded":
                complaints.append(params["entry"]["text"])
            elif event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                complaints.append(json.dumps(params))
        return Seen(requests, complaints)

    def _wait_for(self, method: str) -> None:
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def open_browser(program: str) -> Iterator[Browser]:
    """Starts a browser with a profile of its own, and ends it."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol wants descriptors 3 and 4; bash puts them there (dash knows no descriptor above 9).
        command = [
            "bash", "-c", f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}', "bash", program,
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
            "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions",
            "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium refuses to start as root otherwise
        process = subprocess.Popen(
            command,
            pass_fds=(to_browser[0], from_browser[1]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile}, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(to_browser[1], from_browser[0])
        finally:
            # Its own children too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
