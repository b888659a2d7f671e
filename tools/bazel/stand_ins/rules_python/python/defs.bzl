"""Stand-in for rules_python: hands on the rules that are built into Bazel."""

# buildifier: disable-file=native-py
py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
