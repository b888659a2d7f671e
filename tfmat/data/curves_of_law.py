"""A user's own labelled curves as those of a law: names, units and scales must agree."""

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np

from tfmat.curves.settings import CurveSettings
from tfmat.data.labelled import LabelledCurves
from tfmat.errors import InputError
from tfmat.materials.law import Law
from tfmat.materials.parameter import Parameter
from tfmat.materials.registry import law_class


def as_of_law(
    source: pathlib.Path, curves: LabelledCurves, spec: str, fixed: Mapping[str, float]
) -> tuple[LabelledCurves, CurveSettings]:
    """The curves with their columns in the order of the law, on its scales, and the settings to simulate them again."""
    law = law_class(spec)
    wanted = [parameter for parameter in law.parameters if parameter.name not in fixed]
    given = {parameter.name: i for i, parameter in enumerate(curves.parameters)}
    _check_names(source, law, given, fixed)
    columns, parameters = [], []
    for parameter in wanted:
        column = given[parameter.name]
        parameters.append(
            _merged(source, law, parameter, curves.parameters[column], curves.has_scale)
        )
        columns.append(column)
    ordered = dataclasses.replace(
        curves, values=curves.values[:, columns], parameters=tuple(parameters)
    )
    settings = CurveSettings(
        law=spec,
        ranges={parameter.name: (parameter.low, parameter.high) for parameter in parameters},
        fixed=fixed,
        max_strain=_end_strains(curves),
    )
    return ordered, settings


def _check_names(
    source: pathlib.Path, law: type[Law], given: Mapping[str, int], fixed: Mapping[str, float]
) -> None:
    names = [parameter.name for parameter in law.parameters]
    for name in given:
        if name not in names:
            raise InputError(
                f"{source}: law {law.name} has no parameter '{name}'; its parameters are {', '.join(names)}"
            )
        if name in fixed:
            raise InputError(
                f"{source} holds values of {name}, which --fix gives too; leave out one of them"
            )
    for name in names:
        if name not in given and name not in fixed:
            raise InputError(
                f"{source} has no values of {name}, a parameter of law {law.name}; add it or give --fix {name}=VALUE"
            )


def _merged(
    source: pathlib.Path, law: type[Law], parameter: Parameter, given: Parameter, has_scale: bool
) -> Parameter:
    """The law's parameter with the range of the file; unit and scale must agree."""
    if given.unit != parameter.unit:
        raise InputError(
            f"{source}: {given.name} is in {given.unit}, law {law.name} has it in {parameter.unit}; convert it"
        )
    if has_scale and given.scale != parameter.scale:
        raise InputError(
            f"{source}: scale of {given.name} is {given.scale}, law {law.name} has {parameter.scale}; leave scale out"
        )
    if parameter.scale == "log" and given.low <= 0:
        raise InputError(
            f"{source}: {given.name} goes down to {given.low:g} {given.unit}; its log scale in law {law.name} "
            "needs positive values"
        )
    return dataclasses.replace(parameter, low=given.low, high=given.high)


def _end_strains(curves: LabelledCurves) -> tuple[float, float] | None:
    """Smallest and largest last strain of the curves, or None where the law's own range has to do."""
    ends = np.nanmax(curves.strain, axis=1)
    low, high = float(ends.min()), float(ends.max())
    return (low, high) if 0 < low < high else None
