"""Stand-in for rules_java: hands on the rules that are built into Bazel."""

# buildifier: disable-file=native-java
java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
