"""The parts of tools/benchmark: variants that take turns in rounds, the whole job, identification."""
