"""Installs for `tools/setup`: `.venv/bin/python -I THIS REQUIREMENT ...`, in the project's folder.

`requirements.lock` beside this file names the version of each package and the hashes of its files; `tools/lock` writes
it. uv checks the hashes. pip takes over where uv cannot be had, or fails: it takes the same versions, and checks no
hash.
An index that has not all locked versions is used without the lock. A file with another hash ends the installation.
"""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LOCK = pathlib.Path(__file__).with_name("requirements.lock")
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
    "cache-dir", "default-timeout", "disable-pip-version-check", "log", "no-cache-dir", "no-color", "no-compile",
    "no-input", "quiet", "retries", "timeout", "user", "verbose",
}  # fmt: skip


def main(requirements: list[str]) -> int:
    """The exit status of the installer."""
    lock = LOCK.read_text() if LOCK.exists() and "TFMAT_UNLOCKED" not in os.environ else ""
    options = uv_options()
    with tempfile.TemporaryDirectory() as folder:
        pins = pathlib.Path(folder) / "pins.txt"
        if options is not None:
            uv = pathlib.Path(sys.executable).with_name("uv")
            if not uv.exists():
                fetch_uv(lock, pins)
            if uv.exists():
                # As pip does: the best version of all places, and bytecode unless it is not wanted.
                options += ["--index-strategy", "unsafe-best-match"]
                options += [] if "PIP_NO_COMPILE" in os.environ else ["--compile-bytecode"]
                command = [str(uv), "pip", "install", "--python", sys.executable, *options]
                locked = ["--constraint", str(LOCK), "--build-constraint", str(LOCK)]
                for constraints in [locked, []] if lock else [[]]:
                    status, said = show([*command, *constraints, *requirements])
                    if status == 0 or "hash mismatch" in said.lower():
                        return status
                    if constraints:
                        print(
                            "not all locked versions are to be had here; going on without the lock"
                        )
                        lock = ""
        pins.write_text("\n".join(re.findall(r"^[^\s#].*==[^\\]*", lock, re.M)))
        return subprocess.run([*INSTALL, "--constraint", str(pins), *requirements]).returncode


def fetch_uv(lock: str, pins: pathlib.Path) -> None:
    """Brings uv itself into the environment, with the lock's hashes where it names uv."""
    named = re.search(r"^uv==.*(\n .*)*", lock, re.M)
    pins.write_text(named[0] if named else "uv")
    hashes = ["--require-hashes"] if named else []
    subprocess.run([*INSTALL, "--quiet", *hashes, "-r", str(pins)], capture_output=True)


def show(command: list[str]) -> tuple[int, str]:
    """The exit status of a command and its output, which is also printed as it comes."""
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return process.returncode, "".join(said)


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
