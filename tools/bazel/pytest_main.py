"""Runs pytest on the files that Bazel names, among the files that Bazel laid out for it."""

import os
import sys

import pytest

if __name__ == "__main__":
    # Bazel's own temporary folder is removed with the test; pytest's default one is not.
    arguments = [
        "-p",
        "no:cacheprovider",
        "--basetemp",
        os.path.join(os.environ["TEST_TMPDIR"], "pytest"),
    ]
    sys.exit(pytest.main([*arguments, *sys.argv[1:]]))
