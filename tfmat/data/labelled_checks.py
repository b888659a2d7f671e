"""What is refused of a user's own labelled curves, each in one line that names the file and the first place."""

import pathlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.parameter import Parameter

MIN_CURVES = 10

Array = NDArray[np.float64]


def parameters_of_columns(
    path: pathlib.Path,
    values: Array,
    names: Sequence[str],
    units: Sequence[str],
    scales: Sequence[str],
    low: Array | None,
    high: Array | None,
) -> tuple[Parameter, ...]:
    """Name, unit, range and scale of each column, checked against the values."""
    if len(values) < MIN_CURVES:
        raise InputError(f"{path} holds {len(values)} curves; at least {MIN_CURVES} are needed")
    if not names:
        raise InputError(f"{path} holds no parameters; there is nothing to identify")
    if len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"{path}: parameter names must differ and not be empty; they are: {', '.join(names)}"
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InputError(f"{path}: {names[bad[0, 1]]} of curve {bad[0, 0]} is not a finite number")
    smallest, largest = values.min(axis=0), values.max(axis=0)
    low, high = smallest if low is None else low, largest if high is None else high
    parameters = []
    for i, (name, unit, scale) in enumerate(zip(names, units, scales, strict=True)):
        if smallest[i] == largest[i]:
            raise InputError(
                f"{path}: {name} is {smallest[i]:g} {unit} in every curve; leave out a parameter that does not vary"
            )
        if scale not in ("linear", "log"):
            raise InputError(f"{path}: scale of {name} is '{scale}'; give linear or log")
        if scale == "log" and low[i] <= 0:
            raise InputError(
                f"{path}: {name} goes down to {low[i]:g} {unit}; a log scale needs positive values"
            )
        if not low[i] <= smallest[i] < largest[i] <= high[i] < np.inf:
            raise InputError(
                f"{path}: {name} goes from {smallest[i]:g} to {largest[i]:g} {unit}, "
                f"outside its range low = {low[i]:g} to high = {high[i]:g}"
            )
        kind: Literal["linear", "log"] = "log" if scale == "log" else "linear"
        parameters.append(Parameter(name, unit or "-", float(low[i]), float(high[i]), kind))
    return tuple(parameters)


def check_points(path: pathlib.Path, strain: Array, stress: Array) -> None:
    """Every curve: finite up to its end, NaN after it, at least two points, strain rising."""
    for name, array in (("strain", strain), ("stress", stress)):
        infinite = np.argwhere(np.isinf(array))
        if len(infinite):
            raise InputError(
                f"{path}: {name} of curve {infinite[0, 0]} is infinite at point {infinite[0, 1]}"
            )
    valid = ~(np.isnan(strain) | np.isnan(stress))
    again = np.argwhere(valid[:, 1:] & ~valid[:, :-1])
    if len(again):
        curve, point = again[0]
        raise InputError(
            f"{path}: curve {curve} has NaN at point {point}, before its end; leave such points out"
        )
    short = np.flatnonzero(valid.sum(axis=1) < 2)
    if len(short):
        raise InputError(f"{path}: curve {short[0]} has fewer than two points")
    with np.errstate(invalid="ignore"):
        falls = np.argwhere((np.diff(strain, axis=1) <= 0) & valid[:, 1:])
    if len(falls):
        curve, point = falls[0]
        raise InputError(
            f"{path}: strain of curve {curve} does not rise from point {point} to {point + 1} "
            f"({strain[curve, point]:g} to {strain[curve, point + 1]:g}); only monotonic loading can be used"
        )
