"""Packed data sets, their order, the TFDS builder and the training pipeline."""
