"""Stand-in for rules_cc: hands on the rules that are built into Bazel."""

# buildifier: disable-file=native-cc
cc_binary = native.cc_binary
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
