"""Runs pytest on the files that Bazel names, among the files that Bazel laid out for it."""

import os
import sys

import pytest

if __name__ == "__main__":
    # Else the editable install of .venv finds what a target's deps do not name.
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not getattr(finder, "__module__", "").startswith("__editable__")
    ]
    # Bazel's own temporary folder is removed with the test; pytest's default one is not.
    arguments = [
        "-p",
        "no:cacheprovider",
        "--basetemp",
        os.path.join(os.environ["TEST_TMPDIR"], "pytest"),
    ]
    sys.exit(pytest.main([*arguments, *sys.argv[1:]]))
