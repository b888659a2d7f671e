"""The Keras model factory: a config becomes a plain Keras 3 model. No parallelism in here.

Importing any of its modules registers with Keras all layers that a saved network may have.
"""

from tfmat.networks.factory import build_for, build_model

__all__ = ["build_for", "build_model"]
