"""Lets a pytest file be a Bazel test."""

load("@rules_python//python:defs.bzl", "py_test")

def pytest_test(name, srcs, deps, data = [], tags = []):
    """Runs one pytest file as a py_test.

    Args:
      name: the target's name.
      srcs: a list of one file.
      deps: the rooms that it tests.
      data: other files that it reads.
      tags: `tensorflow` or `slow` for tests that ./tools/test leaves to pytest.
    """
    py_test(
        name = name,
        size = "medium",
        srcs = srcs + native.glob(
            ["*.py"],
            exclude = ["*_test.py"],
        ) + ["//tools/bazel:pytest_main.py"],
        args = ["$(rootpath %s)" % srcs[0]],
        data = data + [
            "//:setup.cfg",
            "//docs",
        ],
        # Otherwise Bazel puts an __init__.py beside tfmat/, and pytest takes the folder above for a package.
        legacy_create_init = False,
        main = "//tools/bazel:pytest_main.py",
        tags = tags,
        deps = deps + ["//tfmat_tests:package"],
    )

def pytest_tests(deps, data = [], light = [], slow = [], exclude = []):
    """Runs each pytest file of a folder as a test of its own.

    Args:
      deps: the rooms that they test.
      data: other files that they read.
      light: files that need no TensorFlow; None for all.
      slow: files that ./tools/test leaves to pytest.
      exclude: files that are no tests of Bazel's.
    """
    for file in native.glob(["*_test.py"], exclude = exclude):
        pytest_test(
            name = file[:-len(".py")],
            srcs = [file],
            data = data,
            tags = (["slow"] if file in slow else []) +
                   ([] if light == None or file in light else ["tensorflow"]),
            deps = deps,
        )
