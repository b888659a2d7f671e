"""How near a network's answers are to the truth, one parameter at a time."""

import dataclasses

import numpy as np

from tfmat.materials.law import Array, Parameter


@dataclasses.dataclass(frozen=True)
class ParameterScore:
    """Accuracy of one parameter.

    Attributes:
      mse: mean squared error of the label scaled to 0-1.
      mae: mean absolute error in the parameter's unit.
      mae_percent: mean of |error| / true value, %; for parameters on a linear scale.
      mae_decades: mean of |log10 error|; for parameters on a logarithmic scale.
      r2: coefficient of determination of the label scaled to 0-1; None where all true values are the same.
    """

    name: str
    unit: str
    mse: float
    mae: float
    mae_percent: float | None
    mae_decades: float | None
    r2: float | None


def score_parameter(
    parameter: Parameter, true: Array, identified: Array, label: Array
) -> ParameterScore:
    """The score of one parameter's answers.

    Args:
      true, identified: [curves], in the parameter's unit.
      label: [curves], the identified values scaled to 0-1.
    """
    true_label = parameter.to_unit_interval(true)
    error = label - true_label
    logarithmic = parameter.scale == "log"
    spread = np.mean((true_label - true_label.mean()) ** 2)
    decades = float(np.mean(np.abs(np.log10(identified / true)))) if logarithmic else None
    percent = None if logarithmic else _mean_percent(identified - true, true)
    return ParameterScore(
        name=parameter.name,
        unit=parameter.unit,
        mse=float(np.mean(error**2)),
        mae=float(np.mean(np.abs(identified - true))),
        mae_percent=percent,
        mae_decades=decades,
        r2=float(1 - np.mean(error**2) / spread) if spread > 0 else None,
    )


def _mean_percent(error: Array, true: Array) -> float | None:
    """Mean |error / true| in %; None for a parameter that can be zero."""
    return float(100 * np.mean(np.abs(error / true))) if np.all(true != 0) else None
