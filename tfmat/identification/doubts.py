"""What should make the reader of an answer careful, each in one sentence."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.curves.settings import CurveSettings
from tfmat.curves.toe import noise_of
from tfmat.materials.law import Array, Parameter

# An answer this near to the end of its range (0-1) says little more than that the range ends there.
EDGE = 0.005
# Above this (% of the maximum stress) the law does not describe the curve, whatever its parameters mean.
POOR_RMSE_PERCENT = 5.0
# Of the range of a label. A value of which only the range is known has 0.29, one that is known to lie in some
# two thirds of it has 0.2.
UNIDENTIFIABLE_STD = 0.2
VERDICT = "DO NOT USE THIS ANSWER"
# The best fit of the right law is as far from the curve as the noise; this many times is something else.
_ABOVE_NOISE = 2.0
# A part of the curve where the residual is so many times the typical one; medians of so many points.
_SOMEWHERE, _SMOOTHED = 2.0, 5
# The network's answer against the best fit of the same law.
_ABOVE_FIT = 2.0


def noise_level(curve: MeasuredCurve, settings: CurveSettings | None) -> float:
    """Standard deviation of a curve's noise, MPa: the trained one, or what its points show where that is more."""
    trained = 0.0
    if settings is not None:
        settings = settings.resolved()
        mean_square = float(np.mean(np.square(curve.stress_mpa)))
        trained = float(
            np.hypot(settings.noise_mpa or 0.0, settings.noise_relative * np.sqrt(mean_square))
        )
    return max(trained, noise_of(curve.stress_mpa))


def edge_warnings(parameters: Sequence[Parameter], labels: Array) -> list[str]:
    """Parameters [p] whose labels [p] stand at the end of their range."""
    warnings = []
    for parameter, scaled in zip(parameters, labels, strict=True):
        if not EDGE < scaled < 1 - EDGE:
            end, limit = ("low", parameter.low) if scaled < 0.5 else ("high", parameter.high)
            unit = "" if parameter.unit == "-" else f" {parameter.unit}"
            warnings.append(
                f"{parameter.name} is at the {end} end of its trained range ({limit:.4g}{unit}); "
                "the true value may lie beyond"
            )
    return warnings


def unidentifiable(
    predicted_std: Array | None, by_least_squares: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Parameters [p] of which a curve says next to nothing: the one rule.

    Args:
      predicted_std: the network's, calibrated, on the labels' scale, [p]; None where it gives none.
      by_least_squares: those whose least-squares interval is as wide as their range, [p]; None where not fitted.
    """
    flags = [] if predicted_std is None else [predicted_std > UNIDENTIFIABLE_STD]
    flags += [] if by_least_squares is None else [by_least_squares]
    return np.logical_or.reduce(flags) if flags else np.zeros(0, np.bool_)


def unidentifiable_warnings(
    parameters: Sequence[Parameter],
    predicted_std: Array | None,
    by_least_squares: NDArray[np.bool_] | None,
) -> list[str]:
    """Parameters [p] of which the curve says next to nothing; arguments as in `unidentifiable`."""
    warnings = []
    for i in map(int, np.flatnonzero(unidentifiable(predicted_std, by_least_squares))):
        said = []
        if predicted_std is not None:
            share = 100 * predicted_std[i]
            said.append(f"the network's standard deviation is {share:.0f} % of its range")
        if by_least_squares is not None and by_least_squares[i]:
            said.append("its 95 % interval by least squares is as wide as its range")
        name = parameters[i].name
        warnings.append(f"{name} cannot be identified from this curve: {' and '.join(said)}")
    return warnings


def error_warnings(
    law_name: str, network_mpa: float, fit_mpa: float | None, noise_mpa: float, largest_mpa: float
) -> list[str]:
    """From the root mean square errors of the network's answer and of the law's best fit (None: not made), MPa."""
    percent = 100.0 / largest_mpa
    if fit_mpa is None:
        if network_mpa * percent <= POOR_RMSE_PERCENT:
            return []
        away = f"{network_mpa * percent:.1f} % of the maximum stress away from the measured one"
        causes = "a column or unit is wrong, or the network is too coarse"
        return [f"the re-simulated curve is {away}: law {law_name} does not describe it, {causes}"]
    warnings = []
    if fit_mpa > _ABOVE_NOISE * noise_mpa:
        away = f"{fit_mpa:.3g} MPa ({fit_mpa * percent:.2g} % of the maximum stress)"
        times = f"{fit_mpa / noise_mpa:.2g} times the noise" if noise_mpa > 0 else "without noise"
        if fit_mpa * percent > POOR_RMSE_PERCENT:
            what = f"law {law_name} does not describe this curve: even its best fit is {away} away"
        else:
            what = f"law {law_name} follows this curve only to {away}, {times}: the 95 % intervals are too narrow"
        warnings.append(what)
    if network_mpa > _ABOVE_FIT * max(fit_mpa, noise_mpa):
        warnings.append(
            f"the network's answer is {network_mpa:.3g} MPa ({network_mpa * percent:.2g} %) away from the curve, least "
            f"squares {fit_mpa:.3g} MPa: take the polished or least-squares values"
        )
    return warnings


def local_warning(
    strain: Array, residual_mpa: Array, noise_mpa: float, largest_mpa: float
) -> str | None:
    """Where the law's best fit leaves the curve most, if it does so in one place more than elsewhere; or None.

    Args:
      strain, residual_mpa: [points], in the order of the strain.
    """
    if len(strain) < 3 * _SMOOTHED:
        return None
    # Medians, so that single points (a pause of the machine) are no part of the curve.
    windows = np.lib.stride_tricks.sliding_window_view(residual_mpa, _SMOOTHED)
    smooth = np.abs(np.median(windows, axis=1))
    peak = int(smooth.argmax())
    typical = float(np.sqrt(np.mean(smooth**2)))
    if smooth[peak] < max(3 * noise_mpa, 0.02 * largest_mpa, _SOMEWHERE * typical):
        return None
    near = smooth > 0.5 * smooth[peak]
    first, last = peak, peak
    while first > 0 and near[first - 1]:
        first -= 1
    while last < len(near) - 1 and near[last + 1]:
        last += 1
    start, end = float(strain[first]), float(strain[last + _SMOOTHED - 1])
    return (
        f"the curve leaves the law at strain {start:.2g} to {end:.2g}, by up to {smooth[peak]:.3g} MPa "
        f"({100 * smooth[peak] / largest_mpa:.2g} % of the maximum stress)"
    )


def better_law_warning(law_name: str, fit_mpa: float, better: tuple[str, float]) -> str:
    """Another law of the family fits clearly better: (its name, its error in MPa)."""
    name, error = better
    return (
        f"{name} fits clearly better than {law_name}: {error:.3g} MPa against {fit_mpa:.3g} MPa "
        f"(root mean square, least squares); train it with: tfmat train --law={name}"
    )


def verdict(implausible: bool, fit_percent: float | None, edges: int) -> str | None:
    """One line for an answer that is not to be used at all, or None."""
    reasons = []
    if implausible:
        reasons.append("it is not of the order of magnitude of the law's curves")
    if fit_percent is not None and fit_percent > POOR_RMSE_PERCENT:
        reasons.append("the law does not follow the curve")
    if edges >= 2:
        reasons.append(f"{edges} parameters stand at the end of their range")
    return f"{VERDICT}: {', and '.join(reasons)}" if reasons else None
