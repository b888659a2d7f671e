"""Errors of a record of tests that nobody knows, as labels behind those of its law's parameters. NumPy only."""

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.special

from tfmat.curves.apparatus import log_uniform
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.materials.law import Array

Value = Callable[[Array], Array]

# Of the distribution of an offset: its table reaches to so many of the largest standard deviations.
_REACH, _TABLE, _SIZES = 8.0, 4001, 48
_LEAST = 1e-14


@dataclasses.dataclass(frozen=True)
class Nuisance:
    """One error of a record: what it is, of which test (None: of all), and its value at a label, [k] -> [k]."""

    name: str
    test: int | None
    value: Value


def nuisances_of(settings: CurveSettings) -> tuple[Nuisance, ...]:
    """The errors of a record, in the order of their labels."""
    found = []
    for name in ("noise_correlation", "machine_stiffness"):
        if _is_drawn(limits := getattr(settings, name)):
            found.append(Nuisance(name, None, _log_uniform_value(limits)))
    drawn = settings.noise_of_maximum
    for test, programme in enumerate(RecordForm.of(settings).programmes):
        if drawn is not None and _is_drawn(drawn) and not settings.noise_told:
            found.append(Nuisance("noise_of_maximum", test, _log_uniform_value(drawn)))
        if settings.stress_offset is not None:
            found.append(Nuisance("stress_offset", test, offset_value(settings.stress_offset)))
        slack = settings.toe
        if slack is not None and _is_drawn(slack) and programme.drives == "strain":
            found.append(Nuisance("toe", test, _log_uniform_value(slack)))
        if settings.strain_offset is not None and programme.drives == "strain":
            found.append(Nuisance("strain_offset", test, offset_value(settings.strain_offset)))
    return tuple(found)


def _is_drawn(limits: tuple[float, float] | None) -> bool:
    return limits is not None and limits[0] < limits[1]


def _log_uniform_value(limits: tuple[float, float]) -> Value:
    return lambda labels: log_uniform(limits, labels)


def offset_value(limits: tuple[float, float]) -> Value:
    """The quantile of a normal number whose standard deviation is log-uniform between `limits`.

    Linear between the knots of a table over the normal quantile of the label, where it is nearly straight.
    """
    low, high = limits
    nodes, weights = np.polynomial.legendre.leggauss(_SIZES)
    sizes = low * (high / low) ** (0.5 * (nodes + 1.0))
    values = high * np.sinh(np.linspace(-1.0, 1.0, _TABLE) * np.arcsinh(_REACH * high / low))
    values *= low / high
    below = 0.5 * (scipy.special.ndtr(values[:, None] / sizes) @ weights)
    # By symmetry from the lower half, where small probabilities are not lost.
    lower = scipy.special.ndtri(below[: _TABLE // 2 + 1])
    normal = np.concatenate([lower, -lower[-2::-1]])
    kept = np.concatenate([np.isfinite(normal[:-1]) & (np.diff(normal) > 0), [True]])

    def value(labels: Array) -> Array:
        clipped = np.clip(labels, _LEAST, 1.0 - _LEAST)
        return np.asarray(np.interp(scipy.special.ndtri(clipped), normal[kept], values[kept]))

    return value
