"""The gain of parallelism: measurements of many runs, cost models fitted to them, and the page about both."""
