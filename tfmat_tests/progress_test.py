"""What a log of the tests says, of real pytest workers."""

import os
import re
import subprocess
import sys

from tfmat_tests.processes import PROJECT

CONFTEST = """
import pytest
from tfmat_tests.progress import Progress

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        config.pluginmanager.register(Progress(reporter, {"a folder/slow_test.py": 8.5}))
"""
TESTS = {
    "slow_test.py": """
import pytest
@pytest.mark.parametrize("n", range(5))
def test_slow(n):
    assert n != 3, "three is wrong"
""",
    "quick_test.py": """
import pytest
@pytest.mark.parametrize("n", range(9))
def test_quick(n):
    pass
@pytest.fixture
def broken():
    raise ValueError("cannot begin")
def test_broken(broken):
    pass
""",
}


def test_a_log_says_how_far_the_tests_are_and_names_failures_at_once(tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name, text in {"conftest.py": CONFTEST, **TESTS}.items():
        (folder / name).write_text(text)
    command = [
        "-m",
        "pytest",
        "-n1",
        "--rootdir",
        str(tmp_path),
        "--override-ini=python_files=*_test.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [sys.executable, *command, str(folder)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    log, _, summary = done.stdout.partition("= ERRORS =")
    assert "FAILED a folder/slow_test.py::test_slow[3]: AssertionError: three is wrong\n" in log
    assert "FAILED a folder/quick_test.py::test_broken (setup): ValueError: cannot begin\n" in log
    # Ten quick tests are 15 % of the time, each slow one 17 %: a line where a tenth is passed.
    shares = re.findall(r"^(\d+) % of the tests' time: (\d+) of 15 tests after", log, re.M)
    assert shares == [
        ("10", "7"),
        ("30", "11"),
        ("40", "12"),
        ("60", "13"),
        ("80", "14"),
        ("100", "15"),
    ]
    assert re.search(r"^100 % .* about 0:00 left; 2 failed$", log, re.M)
    assert "1 failed, 13 passed, 1 error" in summary
