"""The recommended value of each parameter: what the network and least squares say of it, and which of both it is."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tfmat.identification.predictions import Interval, Predicted, interval_of, network_errors
from tfmat.identification.record_fit import BestFit
from tfmat.materials.law import Law

# A network's curve is as near to the measured one as the best fit, but for this factor.
_AS_NEAR = 1.1

Method = Literal["least_squares", "network", "given", "mean of specimens"]


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of a parameter, in its unit. None is not known, or not asked for.

    Attributes:
      value: the recommended value.
      method: how that was got; `given` for a parameter that was known before.
      std, ci95: standard deviation (to first order, where the scale is logarithmic) and 95 % interval of `value`.
      network, network_ci95: the network's own answer; its calibrated interval where the network gives one, and the
        curve follows the law as closely as the curves that it was calibrated on.
      least_squares, least_squares_ci95: the best fit.
      next_specimen_ci95: of pooled answers, where the value of one more specimen lies in 95 of 100 cases.
    """

    value: float
    unit: str
    method: Method
    std: float | None = None
    ci95: Interval | None = None
    network: float | None = None
    network_ci95: Interval | None = None
    least_squares: float | None = None
    least_squares_ci95: Interval | None = None
    next_specimen_ci95: Interval | None = None

    @property
    def fixed(self) -> bool:
        """Whether the value was given and not identified."""
        return self.method == "given"

    def to_json(self) -> dict[str, Any]:
        """The entry of the parameter in the JSON file: the attributes by their names."""
        content = dataclasses.asdict(self)
        if self.next_specimen_ci95 is None:
            del content["next_specimen_ci95"]
        return {n: list(v) if isinstance(v, tuple) else v for n, v in content.items()}


def recommended_method(
    law: Law,
    predicted: Predicted | None,
    best: BestFit | None,
    errors: Mapping[str, float],
) -> Method:
    """Least squares wherever it is asked for, so that neither a network nor samples change the answer.

    A law that errs itself, such as an emulator, is the exception: curves that its network was trained on differ from
    it as much as the law does from the truth. Its network's answer is recommended where it is as near to the curve, or
    exact: the mean of a posterior that is bent need not be near the curve, and its intervals hold all the same.
    """
    if best is None:
        return "network"
    if not law.own_error or predicted is None or predicted.interval is None:
        return "least_squares"
    near = errors["network"] <= _AS_NEAR * errors["least_squares"]
    return "network" if near or predicted.is_exact else "least_squares"


def values_of(
    law: Law, method: Method, predicted: Predicted | None, best: BestFit | None
) -> dict[str, Value]:
    """Every parameter of the law, the given ones included."""
    by_network = None if predicted is None else law.from_labels(predicted.labels[None])[0]
    errors = None if predicted is None else network_errors(law.identified, predicted)
    found, column = {}, 0
    for i, parameter in enumerate(law.parameters):
        if parameter.fixed is not None:
            found[parameter.name] = Value(parameter.fixed, parameter.unit, "given")
            continue
        network = None if by_network is None else float(by_network[i])
        std, network_ci95 = (None, None) if errors is None else errors[column]
        fitted, ci95 = None, None
        if best is not None:
            fitted, ci95 = float(best.values[column]), interval_of(best.interval[column])
        recommended = network if method == "network" else fitted
        assert recommended is not None
        if method == "least_squares" and best is not None:
            std = _finite(best.std[column])
            std = None if best.is_unknown[column] else std
        found[parameter.name] = Value(
            recommended,
            parameter.unit,
            method,
            std,
            ci95=network_ci95 if method == "network" else ci95,
            network=network,
            network_ci95=network_ci95,
            least_squares=fitted,
            least_squares_ci95=ci95,
        )
        column += 1
    return found


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
