"""Optimizers and learning-rate schedules as functions of state and step."""

from tfmat.optimizers.functional import LAMB, LARC, LARS, GradientNoise, NovoGrad, make_functional
from tfmat.optimizers.schedules import (
    WarmupConstant,
    WarmupCosine,
    WarmupPolynomial,
    WarmupSteps,
    build_optimizer,
    build_schedule,
)

__all__ = [
    "LAMB",
    "LARC",
    "LARS",
    "GradientNoise",
    "NovoGrad",
    "WarmupConstant",
    "WarmupCosine",
    "WarmupPolynomial",
    "WarmupSteps",
    "build_optimizer",
    "build_schedule",
    "make_functional",
]
