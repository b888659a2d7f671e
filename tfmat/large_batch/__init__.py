"""Tools for training with large batches: gradient noise scale, learning-rate range test, batch-size sweep."""
