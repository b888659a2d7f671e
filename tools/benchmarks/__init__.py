"""The parts of tools/benchmark: ways of training, one process each; rounds; the whole job; tables."""
