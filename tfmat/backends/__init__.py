"""The seam between training and parallelism: how a step runs, where its state lives, who sums over whom."""

from tfmat.backends.base import Backend, make_backend

__all__ = ["Backend", "make_backend"]
