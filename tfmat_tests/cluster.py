"""Real nodes for tests: those of tools/cluster, in a folder of their own for each file of tests that asks for them."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = PROJECT / "tools" / "cluster"
PATIENCE = 300.0  # seconds; two cores may be shared by many


class Nodes:
    """A running cluster, and its command line."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def command(self, name: str, *arguments: object) -> list[str]:
        """The command line of `tools/cluster NAME ARGUMENTS`."""
        return [str(SCRIPT), name, f"--folder={self.folder}", *map(str, arguments)]

    def call(self, name: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess:
        """A finished `tools/cluster NAME ARGUMENTS`: returncode, stdout, stderr."""
        return subprocess.run(
            self.command(name, *arguments), capture_output=True, text=True, timeout=PATIENCE, **options
        )  # fmt: skip

    def check(self, name: str, *arguments: object, **options: Any) -> str:
        """Standard output of a call that has to succeed."""
        done = self.call(name, *arguments, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, node: str, *command: object, **options: Any) -> str:
        """Standard output of a command on a node."""
        return self.check("run", f"--node={node}", "--", *command, **options)

    def status(self) -> dict[str, dict[str, Any]]:
        """What is told about each node, by its name."""
        told = json.loads(self.check("status", "--json"))
        return {node["name"]: node for node in told["nodes"]}


@contextlib.contextmanager
def folder_for_cluster() -> Iterator[Nodes]:
    """A folder in which a cluster may be started; whatever runs there ends with the block."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfmat-cluster-test-", dir="/tmp"))
    nodes = Nodes(folder / "cluster")
    try:
        yield nodes
    finally:
        down = nodes.call("down")
        shutil.rmtree(folder)
        assert down.returncode == 0, down.stderr


@contextlib.contextmanager
def cluster(*options: str) -> Iterator[Nodes]:
    """A cluster that ends with the block. Skips a test where none can be started; CI must have one."""
    with folder_for_cluster() as nodes:
        start(nodes, *options)
        yield nodes


def start(nodes: Nodes, *options: str) -> None:
    """`tools/cluster up`."""
    started = nodes.call("up", *options)
    if started.returncode == 2:
        message = f"{started.stderr.strip()} (tools/system_packages cluster)"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    assert started.returncode == 0, started.stderr


def program(folder: pathlib.Path, name: str, text: str) -> None:
    """A shell script that stands in for a program of the system."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def assert_refused(done: subprocess.CompletedProcess, message: str, status: int = 2) -> None:
    """One line, and nothing else."""
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
