"""The training loop, checkpoints, callbacks and run folders, for any Keras model."""
