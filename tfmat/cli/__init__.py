"""The command line: one thin module a command; each parses flags and calls one function."""
