"""Optimizers and learning-rate schedules as functions of state and step."""

from tfmat.optimizers.factory import build_optimizer
from tfmat.optimizers.functional import make_functional
from tfmat.optimizers.schedules import WarmupConstant, WarmupCosine

__all__ = ["WarmupConstant", "WarmupCosine", "build_optimizer", "make_functional"]
