"""The methods that tools/compare_specimens compares, on the same runs and the same noisy records."""
