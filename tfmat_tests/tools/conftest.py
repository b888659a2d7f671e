"""What tests of the tools share."""

import importlib
import pathlib
import sys

import pytest

from tfmat_tests.cluster import cluster, folder_for_cluster

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def part(monkeypatch):
    """Imports a module of tools/benchmarks by its name, for one test."""
    monkeypatch.syspath_prepend(str(TOOLS))
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def nodes():
    """Two nodes whose links have no limit."""
    with cluster() as running:
        yield running


@pytest.fixture
def no_nodes():
    """A folder without a cluster yet."""
    with folder_for_cluster() as folder:
        yield folder
