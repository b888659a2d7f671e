"""Installs for `tools/setup`: `.venv/bin/python -I THIS REQUIREMENT ...`, in the project's folder.

uv takes the same packages from the same places as pip, in a tenth of the time. Where it cannot be had, or fails, pip
has the last word.
"""

import ast
import os
import pathlib
import subprocess
import sys

PIP = [sys.executable, "-I", "-m", "pip"]
INSTALL = [*PIP, "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
# pip's settings of where packages come from, and uv's names for them.
OPTIONS = {
    "constraint": "--constraint",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "index-url": "--default-index",
    "no-index": "--no-index",
    "trusted-host": "--allow-insecure-host",
}
VARIABLES = {"cert": "SSL_CERT_FILE", "client-cert": "SSL_CLIENT_CERT", "proxy": "ALL_PROXY"}
# Settings without effect on what is found. Any other has no counterpart: then pip installs.
HARMLESS = {
    "cache-dir",
    "default-timeout",
    "disable-pip-version-check",
    "log",
    "no-cache-dir",
    "no-color",
    "no-compile",
    "no-input",
    "quiet",
    "retries",
    "timeout",
    "user",
    "verbose",
}


def main(requirements: list[str]) -> int:
    """The exit status of the installer."""
    options = uv_options()
    if options is not None:
        uv = pathlib.Path(sys.executable).with_name("uv")
        if not uv.exists():
            subprocess.run([*INSTALL, "--quiet", "uv"], capture_output=True)
        if uv.exists():
            # As pip does: the best version of all places, and bytecode unless it is not wanted.
            options += ["--index-strategy", "unsafe-best-match"]
            options += [] if "PIP_NO_COMPILE" in os.environ else ["--compile-bytecode"]
            command = [
                str(uv),
                "pip",
                "install",
                "--python",
                sys.executable,
                *options,
                *requirements,
            ]
            if subprocess.run(command).returncode == 0:
                return 0
    return subprocess.run([*INSTALL, *requirements]).returncode


def uv_options() -> list[str] | None:
    """uv's options for pip's settings, some of which become variables; None where uv cannot follow one."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
    given: dict[str, list[str]] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        given.setdefault(name.rpartition(".")[2], []).append(ast.literal_eval(value))
    options: list[str] = []
    for name, values in given.items():
        if name in VARIABLES:
            os.environ.setdefault(VARIABLES[name], values[0])
        elif name == "no-index":
            options += [OPTIONS[name]] * (values[0].lower() in ("1", "true", "yes", "on"))
        elif name in OPTIONS:
            words = dict.fromkeys(" ".join(values).split())
            # The environment is listed first, and decides where there can be one value alone.
            for word in list(words)[: 1 if name == "index-url" else None]:
                options += [OPTIONS[name], word]
        elif name not in HARMLESS:
            return None
    return options


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
