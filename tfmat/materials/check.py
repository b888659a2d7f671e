"""Trying a law out: what `tfmat laws NAME` reports, and what a new law should pass before curves are made with it."""

import dataclasses
import itertools
import traceback

import numpy as np

from tfmat.materials.law import Array, Law

_POINTS = 50
_MOST_CORNERS = 64
_RANDOM_CURVES = 64
# Central differences of smooth functions in float64 are good to about 1e-9 of the largest value.
_DIFFERENCE_STEP = 1e-5
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
_DIFFERENCE_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Finding:
    """Outcome of one check: what was checked, whether it passed, and what to know about it."""

    check: str
    passed: bool
    detail: str = ""


def check_law(law: Law) -> list[Finding]:
    """Tries `law` at the corners of its ranges and at random inside; a law that is fine passes every check."""
    parameters = _trial_parameters(law)
    ends = np.resize(law.max_strain, len(parameters))
    strain = ends[:, None] * np.linspace(0.0, 1.0, _POINTS) ** law.strain_spacing
    findings = []
    for check in (_check_stress, _check_independence, _check_derivatives):
        try:
            findings.append(check(law, strain, parameters))
        except Exception as error:  # whatever a user's own law raises is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename.rsplit('/', 1)[-1]}, line {frame.lineno}"
            findings.append(
                Finding(check.__name__.removeprefix("_check_"), False, f"{error!r} ({place})")
            )
        if not findings[-1].passed:
            break  # the later ones build on it
    return findings


def _trial_parameters(law: Law) -> Array:
    """[curves, all parameters]: corners of the ranges, then random points of a fixed seed."""
    count = len(law.identified)
    corners = list(itertools.islice(itertools.product((0.0, 1.0), repeat=count), _MOST_CORNERS))
    random = np.random.default_rng(0).random((_RANDOM_CURVES, count))
    return law.from_labels(np.concatenate([np.array(corners), random]))


def _check_stress(law: Law, strain: Array, parameters: Array) -> Finding:
    stress = np.asarray(law.stress(strain, parameters))
    if stress.shape != strain.shape:
        return Finding("stress", False, f"shape {stress.shape} for strain of shape {strain.shape}")
    bad = ~np.isfinite(stress).all(axis=1)
    if bad.any():
        names = (parameter.name for parameter in law.parameters)
        values = ", ".join(
            f"{name}={value:g}" for name, value in zip(names, parameters[bad][0], strict=True)
        )
        return Finding("stress", False, f"not finite at {values}")
    return Finding(
        "stress", True, f"finite, {stress.min():.4g} to {stress.max():.4g} MPa over the ranges"
    )


def _check_independence(law: Law, strain: Array, parameters: Array) -> Finding:
    stress = np.asarray(law.stress(strain, parameters))
    scale = np.abs(stress).max() or 1.0
    for i in (0, len(parameters) // 2, len(parameters) - 1):
        alone = np.asarray(law.stress(strain[i : i + 1], parameters[i : i + 1]))
        if not np.allclose(alone[0], stress[i], rtol=1e-9, atol=1e-12 * scale):
            return Finding(
                "independence", False, "a curve alone differs from the same curve among others"
            )
    return Finding("independence", True, "a curve does not depend on its neighbours")


def _check_derivatives(law: Law, strain: Array, parameters: Array) -> Finding:
    derivatives = np.asarray(law.derivatives(strain, parameters))
    if derivatives.shape != (*strain.shape, len(law.parameters)):
        expected = (*strain.shape, len(law.parameters))
        return Finding("derivatives", False, f"shape {derivatives.shape}, expected {expected}")
    largest = 0.0
    for i, parameter in enumerate(law.parameters):
        step = _DIFFERENCE_STEP * np.maximum(
            np.abs(parameters[:, i]), _DIFFERENCE_STEP * parameter.high
        )
        above, below = parameters.copy(), parameters.copy()
        above[:, i] += step
        below[:, i] -= step
        difference = np.asarray(law.stress(strain, above)) - np.asarray(law.stress(strain, below))
        difference /= 2 * step[:, None]
        # A kink (a sharp yield) spoils the difference at the few points that cross it.
        # What rounding makes of a difference: all there is where a curve does not depend on the parameter.
        stress = np.abs(np.asarray(law.stress(strain, parameters)))
        rounding = _ROUNDING * stress / step[:, None]
        error = np.maximum(np.abs(derivatives[:, :, i] - difference) - rounding, 0.0) / (
            np.abs(difference).max(axis=1, keepdims=True) + 1e-300
        )
        typical = float(np.quantile(error, 0.98))
        if not typical <= _DIFFERENCE_TOLERANCE:
            detail = f"differs from central differences by {typical:.1g} of its largest value"
            return Finding("derivatives", False, f"d stress / d {parameter.name} {detail}")
        largest = max(largest, typical)
    return Finding("derivatives", True, f"agree with central differences to {largest:.1g}")
