"""The seam between training and parallelism: how a step runs, where its state lives, who sums over whom."""

from tfmat.backends.base import Backend
from tfmat.backends.registry import check_backend, make_backend

__all__ = ["Backend", "check_backend", "make_backend"]
