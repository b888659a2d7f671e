"""The methods that tools/compare_posteriors compares, each run in an environment of its own."""
