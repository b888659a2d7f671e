"""The Keras model factory: a config becomes a plain Keras 3 model. No parallelism in here."""

from tfmat.networks.factory import build_for, build_model

__all__ = ["build_for", "build_model"]
