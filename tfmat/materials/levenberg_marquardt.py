"""Levenberg-Marquardt for many curves at once, inside the box 0-1 of the labels. NumPy only.

K. Levenberg, Quart. Appl. Math. 2 (1944) 164-168; D. W. Marquardt, J. SIAM 11 (1963) 431-441. A label is damped by the
size of what Gauss-Newton leaves out, the sum of r d²r/dlabel², which is at most |r| |d²r/dlabel²|: by |r| |dr/dlabel|,
since a model that bends within its range has second derivatives as large as its first ones (|r| alone: J. Fan, Y. Yuan,
Computing 74 (2005) 23-39). In the long, bent valleys of laws that remember searches go on where damping by the diagonal
of the normal equations ends them early. A factor follows the gain (H. B. Nielsen, Damping parameter in Marquardt's
method, IMM-REP-1999-05, DTU).

Bounds by an active set: a label that stands at its bound and is pushed outwards is held there for the step, one that
the step would carry out stops at the bound, and the others are solved for again.
"""

import dataclasses
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.history import Solver, TestSet
from tfmat.materials.law import Array, Law

# A step that promises to lower the sum of squares by less than this fraction is the last one. It is still taken,
# and convergence is nearly quadratic: what remains is far smaller.
TOLERANCE = 1e-8
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 0.03, 1e-9, 1e12
_FIRST_RISE = 2.0
# Curves that are worked on together: their derivatives stay in the cache.
_CHUNK = 256
# Records of tests: a law with memory goes through them point by point, which pays for many of them at once only.
_CHUNK_OF_TESTS = 4096

Flags = NDArray[np.bool_]


@dataclasses.dataclass
class Residuals:
    """Weighted residuals w (model - measured) of many curves.

    Attributes:
      strain, stress: [curves, points], - and MPa; or a test set, and its responses.
      weights: [curves, points], 0 where padded, otherwise 1 / standard deviation (or 1).
      solvers: of all tests, for searches, where the law has them; see `searched`.
    """

    law: Law
    strain: Array | TestSet
    stress: Array
    weights: Array
    solvers: tuple[Solver, ...] = ()
    _found: tuple[Array, Array] | None = None  # labels, and the derivatives of the residuals there

    def __post_init__(self) -> None:
        # Nothing to multiply by where every point counts alike; that saves a tenth of the time.
        self._plain = bool(np.all(self.weights == 1.0))

    def __len__(self) -> int:
        return len(self.stress)

    def rows(self, rows: NDArray[np.integer] | Flags | slice) -> Self:
        """Some of the curves."""
        solvers = tuple(solver.rows(rows) for solver in self.solvers)
        found = self._found and (self._found[0][rows], self._found[1][rows])
        given = (self.strain[rows], self.stress[rows], self.weights[rows])
        return type(self)(self.law, *given, solvers, found)

    def searched(self) -> "Residuals":
        """The same, for answers at many labels one after the other, with the law's solvers where it has them."""
        if not isinstance(self.strain, TestSet):
            return self
        found = [self.law.solver(history) for history in self.strain.histories]
        solvers = tuple(each for each in found if each is not None)
        # They answer all tests together, or none.
        return dataclasses.replace(self, solvers=solvers) if len(solvers) == len(found) else self

    def values(self, labels: Array) -> Array:
        """Residuals at labels [curves, identified]: [curves, points]."""
        if self.solvers:
            values, jacobian = self.law.label_expansion(self.strain, labels, self.solvers)
            self._found = labels, self._weighted(jacobian)
        else:
            values = self.law.label_stress(self.strain, labels)
        values -= self.stress
        if not self._plain:
            values *= self.weights
        return values

    def normal_equations(self, labels: Array, values: Array | None = None) -> tuple[Array, Array]:
        """JᵀJ [curves, p, p] and Jᵀr [curves, p] with J = d residual / d label; `values` are the residuals there."""
        if values is None:
            values = self.values(labels)
        if self._found is not None and np.array_equal(self._found[0], labels):
            jacobian = self._found[1]
        else:
            jacobian = self._weighted(self.law.label_derivatives(self.strain, labels))
        transposed = np.swapaxes(jacobian, 1, 2)
        return transposed @ jacobian, (transposed @ values[:, :, None])[:, :, 0]

    def _weighted(self, jacobian: Array) -> Array:
        if not self._plain:
            jacobian *= self.weights[:, :, None]
        return jacobian


@dataclasses.dataclass
class Minimum:
    """Where the search ended.

    Attributes:
      labels: [curves, p], 0-1.
      cost: half the weighted sum of squares, [curves].
      normal: JᵀJ, [curves, p, p]; of converged curves at the last but one labels, a vanishing step away.
      iterations: steps tried, [curves].
      converged: [curves].
    """

    labels: Array
    cost: Array
    normal: Array
    iterations: NDArray[np.int64]
    converged: Flags


def minimise(
    residuals: Residuals,
    start: Array,
    max_iterations: int = 100,
    tolerance: float | Array = TOLERANCE,
    held: Flags | None = None,
    rivalry: tuple[float, int] | None = None,
) -> Minimum:
    """Least squares from labels `start` [curves, p] (clipped to 0-1); each curve stops by itself.

    A curve ends where a step promises less than `tolerance` of its cost, [curves] or one for all. `held` [curves, p]:
    labels that stay as they are.
    `rivalry`, of searches for one minimum: give up above (factor) times the least that has converged, after (steps).
    """
    held = np.zeros(start.shape, np.bool_) if held is None else held
    tolerance = np.broadcast_to(tolerance, len(start))
    curves, parameters = start.shape
    labels = np.clip(np.asarray(start, np.float64), 0.0, 1.0)
    cost, normal = np.empty(curves), np.empty((curves, parameters, parameters))
    iterations, converged = np.zeros(curves, np.int64), np.zeros(curves, np.bool_)
    found = Minimum(labels, cost, normal, iterations, converged)
    chunk = _CHUNK_OF_TESTS if isinstance(residuals.strain, TestSet) else _CHUNK
    for first in range(0, curves, chunk):
        rows = slice(first, first + chunk)
        _minimise(
            residuals.rows(rows).searched(),
            Minimum(*(array[rows] for array in vars(found).values())),
            max_iterations,
            tolerance[rows],
            held[rows],
            rivalry,
        )
    return found


def _minimise(
    residuals: Residuals,
    found: Minimum,
    max_iterations: int,
    tolerance: Array,
    held: Flags,
    rivalry: tuple[float, int] | None,
) -> None:
    """Works on `found` in place."""
    values = residuals.values(found.labels)
    found.cost[:] = _half_square(values)
    found.normal[:], gradient = residuals.normal_equations(found.labels, values)
    damping = np.full(len(found.cost), _FIRST_DAMPING)
    rise = np.full(len(found.cost), _FIRST_RISE)
    active, part = np.arange(len(found.cost)), residuals
    for step_number in range(1, max_iterations + 1):
        labels, normal, slope = found.labels[active], found.normal[active], gradient[active]
        damped = (damping * np.sqrt(2.0 * found.cost))[active, None] * _norms(normal)
        step = bounded_step(normal, slope, labels, damped, held[active])
        trial = np.clip(labels + step, 0.0, 1.0)
        values = part.values(trial)
        cost = _half_square(values)
        promised = -((slope + 0.5 * (normal @ step[:, :, None])[:, :, 0]) * step).sum(axis=1)
        better = cost <= found.cost[active]  # false for NaN of an overflowing law
        gain = (found.cost[active] - cost) / np.maximum(promised, 1e-250)
        last = promised <= tolerance[active] * found.cost[active]
        taken = active[better]
        found.labels[taken], found.cost[taken] = trial[better], cost[better]
        found.iterations[active] += 1
        damping[active], rise[active] = _next_damping(damping[active], rise[active], gain, better)
        found.converged[active] = last
        goes_on = ~last & (damping[active] < _MOST_DAMPING)
        stays = goes_on
        if rivalry is not None and step_number >= rivalry[1] and found.converged.any():
            stays = goes_on & (found.cost[active] <= rivalry[0] * found.cost[found.converged].min())
        moved = better & goes_on
        if moved.any():
            rows = active[moved]
            found.normal[rows], gradient[rows] = part.rows(moved).normal_equations(
                found.labels[rows], values[moved]
            )
        active = active[stays]
        if not len(active):
            break
        if not stays.all():
            part = part.rows(stays)


def bounded_step(normal: Array, slope: Array, labels: Array, damping: Array, held: Flags) -> Array:
    """The step that minimises the damped quadratic model inside the box: [curves, p].

    Args:
      normal: JᵀJ [curves, p, p]; slope: Jᵀr [curves, p]; labels: [curves, p].
      damping: of each label, [curves, p], added to the diagonal.
      held: [curves, p], labels that do not move.
    """
    parameters = labels.shape[1]
    diagonal = np.einsum("cii->ci", normal)
    # The floor keeps a label that changes nothing from making the system singular.
    floor = 1e-14 * diagonal.max(axis=1, keepdims=True) + 1e-300
    damped = normal.copy()
    np.einsum("cii->ci", damped)[:] += damping + floor
    held = held | ((labels <= 0.0) & (slope > 0.0)) | ((labels >= 1.0) & (slope < 0.0))
    step = np.zeros_like(labels)
    for _ in range(parameters):
        step = np.where(held, step, 0.0)
        right = -slope - (damped @ step[:, :, None])[:, :, 0] if held.any() else -slope
        system = damped
        if held.any():
            free = ~held
            system = np.where(free[:, :, None] & free[:, None, :], damped, 0.0)
            np.einsum("cii->ci", system)[:] += held
            right = np.where(held, step, right)
        step = _solve(system, right)
        outside = ~held & ((labels + step < 0.0) | (labels + step > 1.0))
        if not outside.any():
            return step
        step = np.where(outside, np.where(step < 0.0, -labels, 1.0 - labels), step)
        held |= outside
    return step


def _solve(system: Array, right: Array) -> Array:
    """Solves many small symmetric systems: [curves, p, p], [curves, p] -> [curves, p]."""
    if system.shape[1] == 1:
        return right / system[:, 0]
    if system.shape[1] == 2:
        a, b, c = system[:, 0, 0], system[:, 0, 1], system[:, 1, 1]
        determinant = a * c - b * b
        # Damping keeps it positive but for rounding.
        determinant = np.maximum(determinant, 1e-15 * a * c)
        first, second = right[:, 0], right[:, 1]
        return (
            np.stack([c * first - b * second, a * second - b * first], axis=1)
            / determinant[:, None]
        )
    scale = 1.0 / np.sqrt(np.einsum("cii->ci", system))
    scaled = system * scale[:, :, None] * scale[:, None, :]
    return np.linalg.solve(scaled, (right * scale)[:, :, None])[:, :, 0] * scale


def _next_damping(damping: Array, rise: Array, gain: Array, better: Flags) -> tuple[Array, Array]:
    """Less where the model foretold the gain, more where it did not, and by twice the factor each time."""
    fall = np.maximum(1.0 - (2.0 * np.clip(gain, 0.0, 1.0) - 1.0) ** 3, 1.0 / 3.0)
    found = np.maximum(damping * np.where(better, fall, rise), _LEAST_DAMPING)
    return found, np.where(better, _FIRST_RISE, 2.0 * rise)


def _norms(normal: Array) -> Array:
    """The norms of the columns of J, [curves, p], from JᵀJ [curves, p, p]."""
    return np.sqrt(np.einsum("cii->ci", normal))


def _half_square(values: Array) -> Array:
    return 0.5 * np.einsum("cn,cn->c", values, values)
