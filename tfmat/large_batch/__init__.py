"""Training with large batches, and before long runs: noise scale, range test, batch sweep, learning curve."""
