"""Stand-ins for the rule sets that Bazel wants (tried with 4.2.3), so that it needs no network.

They hand on the rules that are built into Bazel. The real rules_python can replace its stand-in.
"""

_RULES = {
    "cc": ["cc_binary", "cc_library", "cc_test", "cc_toolchain", "cc_toolchain_suite", "objc_library"],
    "java": ["java_binary", "java_import", "java_library", "java_runtime", "java_toolchain"],
    "python": ["py_binary", "py_library", "py_test"],
}

# Every test target names the coverage tools; coverage cannot be collected without the real ones.
_COVERAGE = """
package(default_visibility = ["//visibility:public"])
filegroup(name = "coverage_report_generator")
filegroup(name = "lcov_merger")
"""

def _write(context):
    for path, text in context.attr.files.items():
        context.file(path, text)

_repository = repository_rule(
    implementation = _write,
    attrs = {"files": attr.string_dict()},
)

def stand_ins():
    """Declares the repositories; for WORKSPACE."""
    _repository(name = "remote_coverage_tools", files = {"BUILD": _COVERAGE})
    for language, rules in _RULES.items():
        _repository(
            name = "rules_" + language,
            files = {
                language + "/BUILD": "",
                language + "/defs.bzl": "\n".join(["{0} = native.{0}".format(rule) for rule in rules]),
            },
        )
