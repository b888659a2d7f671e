"""Trying a law out: what `tfmat laws NAME` reports, and what a new law should pass before curves are made with it."""

import dataclasses
import itertools
import traceback
from collections.abc import Callable

import numpy as np

from tfmat.materials.history import History
from tfmat.materials.law import Array, Law

_POINTS = 50
_MOST_CORNERS = 64
_RANDOM_CURVES = 64
# Central differences of smooth functions in float64 are good to about 1e-9 of the largest value.
_DIFFERENCE_STEP = 1e-5
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
_DIFFERENCE_TOLERANCE = 1e-5
_INSIDE = 1e-3
# Relative change of the response by a relative change of the parameter that counts as none.
_NO_CHANGE = 1e-4


@dataclasses.dataclass(frozen=True)
class Finding:
    """Outcome of one check: what was checked, whether it passed, and what to know about it."""

    check: str
    passed: bool
    detail: str = ""


def check_law(law: Law, draw: Callable[[int, int], History] | None = None) -> list[Finding]:
    """Tries `law` at the corners of its ranges and at random inside; a law that is fine passes every check.

    Args:
      draw: curves, points -> the histories to try it over; by default strain that rises to the law's `max_strain`.
    """
    parameters = _trial_parameters(law)
    history = (draw or _rising(law))(len(parameters), _POINTS)
    findings = []
    for check in (_check_stress, _check_independence, _check_derivatives):
        try:
            findings.append(check(law, history, parameters))
        except Exception as error:  # whatever a user's own law raises is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename.rsplit('/', 1)[-1]}, line {frame.lineno}"
            findings.append(
                Finding(check.__name__.removeprefix("_check_"), False, f"{error!r} ({place})")
            )
        if not findings[-1].passed:
            break  # the later ones build on it
    return findings


def _rising(law: Law) -> Callable[[int, int], History]:
    def draw(curves: int, points: int) -> History:
        ends = np.resize(law.max_strain, curves)
        share = np.linspace(0.0, 1.0, points) ** law.strain_spacing
        return History(law.modes[0], strain=ends[:, None] * share)

    return draw


def _trial_parameters(law: Law) -> Array:
    """[curves, all parameters]: corners of the ranges, then random points of a fixed seed."""
    count = len(law.identified)
    corners = list(itertools.islice(itertools.product((0.0, 1.0), repeat=count), _MOST_CORNERS))
    random = np.random.default_rng(0).random((_RANDOM_CURVES, count))
    return law.from_labels(np.concatenate([np.array(corners), random]))


def _answer(history: History) -> str:
    return "strain" if history.strain is None else "stress"


def _check_stress(law: Law, history: History, parameters: Array) -> Finding:
    """Stress, or strain where the stress is driven."""
    answered = _answer(history)
    driven, unit = ("strain", "MPa") if answered == "stress" else ("stress", "")
    stress = np.asarray(law.respond(history, parameters))
    expected = (len(parameters), history.driven.shape[1])
    if stress.shape != expected:
        return Finding(answered, False, f"shape {stress.shape} for {driven} of shape {expected}")
    bad = ~np.isfinite(stress).all(axis=1)
    if bad.any():
        names = (parameter.name for parameter in law.parameters)
        values = ", ".join(
            f"{name}={value:g}" for name, value in zip(names, parameters[bad][0], strict=True)
        )
        return Finding(answered, False, f"not finite at {values}")
    extremes = f"{stress.min():.4g} to {stress.max():.4g} {unit}".rstrip()
    return Finding(answered, True, f"finite, {extremes} over the ranges")


def _check_independence(law: Law, history: History, parameters: Array) -> Finding:
    stress = np.asarray(law.respond(history, parameters))
    scale = np.abs(stress).max() or 1.0
    for i in (0, len(parameters) // 2, len(parameters) - 1):
        row = slice(i, i + 1)
        alone = np.asarray(law.respond(history.rows(row), parameters[row]))
        if not np.allclose(alone[0], stress[i], rtol=1e-9, atol=1e-12 * scale):
            return Finding(
                "independence", False, "a curve alone differs from the same curve among others"
            )
    return Finding("independence", True, "a curve does not depend on its neighbours")


def _check_derivatives(law: Law, history: History, parameters: Array) -> Finding:
    derivatives = np.asarray(law.sensitivities(history, parameters))
    expected = (len(parameters), history.driven.shape[1], len(law.parameters))
    if derivatives.shape != expected:
        return Finding("derivatives", False, f"shape {derivatives.shape}, expected {expected}")
    # A difference at a limit would leave the range: a yield stress of 0 would become negative.
    labels = np.clip(law.to_labels(parameters), _INSIDE, 1.0 - _INSIDE)
    parameters = law.from_labels(labels)
    derivatives = np.asarray(law.sensitivities(history, parameters))
    largest = 0.0
    for i, parameter in enumerate(law.parameters):
        step = _DIFFERENCE_STEP * parameter.size(parameters[:, i])
        above, below = parameters.copy(), parameters.copy()
        above[:, i] += step
        below[:, i] -= step
        difference = np.asarray(law.respond(history, above) - law.respond(history, below))
        difference /= 2 * step[:, None]
        # A kink (a sharp yield) spoils the difference at the few points that cross it.
        # What rounding makes of a difference: all there is where a curve does not depend on the parameter.
        stress = np.abs(np.asarray(law.respond(history, parameters)))
        rounding = _ROUNDING * stress / step[:, None]
        error = np.maximum(np.abs(derivatives[:, :, i] - difference) - rounding, 0.0)
        # A curve that the parameter hardly changes tells nothing about its derivative.
        hardly = _NO_CHANGE * stress.max(axis=1) * _DIFFERENCE_STEP / step
        error /= np.maximum(np.abs(difference).max(axis=1), hardly)[:, None] + 1e-300
        typical = float(np.quantile(error, 0.98))
        if not typical <= _DIFFERENCE_TOLERANCE:
            detail = f"differs from central differences by {typical:.1g} of its largest value"
            return Finding(
                "derivatives", False, f"d {_answer(history)} / d {parameter.name} {detail}"
            )
        largest = max(largest, typical)
    return Finding("derivatives", True, f"agree with central differences to {largest:.1g}")
