"""A page for its user alone: an address that nobody can guess, no other site's requests, Ctrl-C ends it."""

import contextlib
import http.server
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any, NamedTuple

from tfmat.cli.flags import switch, whole
from tfmat.errors import InputError, Interrupted

# PAGE_FLAGS: of a command that serves a page.
PAGE_FLAGS = (
    whole("port", 0, "port of the page on this machine; 0: a free one", 0, 65535),
    switch("browser", True, "open the page in the browser"),
)
# SECONDS: after how many the browser asks again for a page that changes.
SECONDS = 5


class Place(NamedTuple):
    """Where a page is served."""

    listening: socket.socket
    path: str
    address: str


def open_place(port: int, browser: bool) -> Place:
    """Listens on loopback, prints the address, and opens the browser there.

    Raises:
      InputError: the port cannot be had.
    """
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(
            f"port {port} cannot be had: {error.strerror}; give another one, or leave --port out"
        ) from error
    path = f"/{secrets.token_urlsafe(12)}"
    address = f"http://localhost:{listening.getsockname()[1]}{path}"
    print(f"tfmat: the page is at {address}\ntfmat: Ctrl-C ends it", flush=True)
    if browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    return Place(listening, path, address)


def asked_here(host: str, origin: str | None) -> bool:
    """False for what another site's page sends, and for a name that somebody else pointed here."""
    name = host.rpartition(":")[0] or host
    return name in ("127.0.0.1", "localhost") and origin in (None, f"http://{host}")


def serve_page(render: Callable[[], tuple[str, bool]], *, port: int, browser: bool) -> None:
    """Serves one page that changes, until Ctrl-C.

    Args:
      render: returns the page, and whether it may still change; the browser then asks again by itself.
      port: of this machine; 0 for a free one.
      browser: opens the page.

    Raises:
      InputError: the port cannot be had, or the page cannot be made when the server starts.
    """
    render()
    place = open_place(port, browser)
    turn = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = "tfmat", ""

        def do_GET(self) -> None:
            if not asked_here(self.headers.get("Host", ""), self.headers.get("Origin")):
                self.send_error(403)
            elif self.path != place.path:
                self.send_error(404)
            else:
                self.answer()

        def answer(self) -> None:
            try:
                with turn:
                    page, changes = render()
            except InputError as error:
                print(f"tfmat: {error}", file=sys.stderr)
                self.send_error(503)
                return
            content = page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            if changes:
                self.send_header("Refresh", str(SECONDS))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A browser that leaves in the middle of a page is no fault."""

    server = Server(place.listening.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = place.listening
    with server, contextlib.suppress(KeyboardInterrupt, Interrupted):
        server.serve_forever()
