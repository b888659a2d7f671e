"""What all tests share: the --all option, a quiet TensorFlow, and the folder of real measured curves."""

import os
import pathlib

import pytest

# Before anything imports TensorFlow or matplotlib: its banner drowns the report, and there may be no screen.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", help="also run the larger matrices (@pytest.mark.large)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    skip = pytest.mark.skip(reason="one of the larger matrices: ./tools/test --all")
    for item in items:
        if "large" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def run_all(pytestconfig: pytest.Config) -> bool:
    """True under --all, for tests that choose their own cases."""
    return bool(pytestconfig.getoption("--all"))


@pytest.fixture(scope="session")
def real_curves() -> pathlib.Path:
    """The folder of real measured curves (holds `304L_astm_e8/`); the test is skipped where there is none."""
    folder = os.environ.get("TFMAT_REAL_CURVES")
    if not folder:
        pytest.skip("TFMAT_REAL_CURVES names no folder of real measured curves")
    return pathlib.Path(folder)
