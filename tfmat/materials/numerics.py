"""Least squares and modes of posteriors, for many records at once. NumPy only."""

import abc
import dataclasses
import itertools
import math
import threading
from collections.abc import Callable
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array, History, Law, TestSet

# --------------------------------------------------------------------------------------------------
# Many curves at once, in blocks that stay in the processor's cache: faster than whole arrays, and little memory.


# 128 curves of 200 points: 200 kB for each float64 array of a block. Smaller blocks stay nearer to the core, but then
# two threads wait for each other between NumPy's calls (32 to 1,024 curves were tried with one and two threads).
_VALUES = 25_600
# Specimens that are taken through their histories together: NumPy's calls cost as much as the arithmetic on some
# hundreds of them, and the state of more, with its derivatives, leaves the processor's cache.
_SPECIMENS = 2048
# Two threads in `in_steps` take half as long again as one after the other: each gives up the interpreter at every one
# of NumPy's short calls, and waits for it again.
_STEPPING = threading.RLock()
# The interval is then 1e-30 of what it was, below rounding wherever the root is not itself that small.
_HALVINGS = 100


def _keep_freed_memory() -> None:
    """Lets the C library keep what a block's arrays free for the next block's.

    glibc hands freed memory back to the system and takes it again, page by page, which took half the time of an
    implicit law. After one large piece was freed it does not. Costs at most twice this piece, and nothing elsewhere.
    """
    np.empty(16 << 20, np.uint8)


_keep_freed_memory()


def rows_in_block(points: int) -> int:
    """Number of curves of `points` points that one block holds, at least 1."""
    return max(1, _VALUES // max(1, points))


def in_blocks(
    fill: Callable[[Array, Array, Array], None],
    strain: Array,
    parameters: Array,
    trailing: tuple[int, ...] = (),
) -> Array:
    """Fills an array of results block by block.

    Args:
      fill: called as `fill(strain, columns, out)` with strain [rows, points], columns [parameters, rows, 1]
        (so that `first, second = columns` broadcast against strain) and out [rows, points, *trailing] to write to.
        It must treat every value by itself, since blocks are cut anywhere. Floating-point warnings are off inside: a
        search may try an E of 69 MPa, and a power that overflows on the way to a root is no news to anybody.
      strain: [curves, points] or [1, points].
      parameters: [curves, parameters].
      trailing: further dimensions of the result.

    Returns:
      [curves, points, *trailing], float64.
    """
    parameters = np.asarray(parameters, np.float64)
    strain = np.asarray(strain, np.float64)
    curves, points = len(parameters), strain.shape[1]
    strain = np.broadcast_to(strain, (curves, points))
    out = np.empty((curves, points, *trailing))
    rows = rows_in_block(points)
    with np.errstate(all="ignore"):
        for first in range(0, curves, rows):
            block = slice(first, min(first + rows, curves))
            fill(strain[block], parameters[block].T[:, :, None], out[block])
    return out


class BlockLaw(Law):
    """A law that fills blocks of stresses and of their derivatives; arguments as of the `fill` of `in_blocks`."""

    def stress(self, strain: Array, parameters: Array) -> Array:
        return in_blocks(self.fill_stress, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        trailing = (len(self.parameters),)
        return in_blocks(self.fill_derivatives, strain, parameters, trailing)

    @staticmethod
    @abc.abstractmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        """Writes the stress."""

    @staticmethod
    @abc.abstractmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        """Writes the derivatives by all parameters."""


class Specimens(Protocol):
    """Specimens of a law that remembers, taken through their histories side by side."""

    def advance(self, increment: Array, duration: Array) -> Array:
        """The recorded value after a further `increment` of the driven one, in `duration` seconds: [..., specimens].

        Both are [specimens] or [1]; the duration is 0 where the history tells no time.
        """


def in_steps(
    specimens: Callable[[Array], Specimens],
    history: History,
    parameters: Array,
    trailing: tuple[int, ...] = (),
    in_runs: bool = False,
) -> Array:
    """Takes blocks of virgin specimens through their histories, point by point or run by run.

    Args:
      specimens: makes a block of parameters [rows, parameters] into specimens at rest.
      history: of [curves, points] or [1, points].
      parameters: [curves, parameters].
      trailing: further dimensions of what `advance` returns, which stand before the specimens there.
      in_runs: `advance` takes several points at once, [points, specimens] or [points, 1], each as an increment since
        the call before; between them the driven value turns nowhere. It returns [points, ..., specimens].

    Returns:
      [curves, points, *trailing], float64.
    """
    parameters = np.asarray(parameters, np.float64)
    curves, points = len(parameters), history.driven.shape[1]
    out = np.empty((curves, points, *trailing))
    with np.errstate(all="ignore"):
        for first in range(0, curves, _SPECIMENS):
            block = slice(first, min(first + _SPECIMENS, curves))
            rows = history.rows(block)
            increments = np.diff(rows.driven.T.astype(np.float64), axis=0, prepend=0.0)
            durations = np.zeros((points, 1))
            if rows.time is not None:
                time = rows.time.T.astype(np.float64)
                durations = np.diff(time, axis=0, prepend=time[:1])
            stepped = specimens(parameters[block])
            found = np.empty((points, *trailing, len(parameters[block])))
            with _STEPPING:
                if in_runs:
                    driven = rows.driven.T.astype(np.float64)
                    for run in _runs(driven, len(parameters[block])):
                        before = driven[run.start - 1] if run.start else 0.0
                        found[run] = stepped.advance(driven[run] - before, durations[run])
                    out[block] = np.moveaxis(found, -1, 0)
                    continue
                for i, step in enumerate(zip(increments, durations, strict=True)):
                    found[i] = stepped.advance(*step)
            out[block] = np.moveaxis(found, -1, 0)
    return out


def _runs(driven: Array, count: int) -> list[slice]:
    """Parts of histories [points, rows] between whose points none of them turns; so long that `count` fill a cache."""
    points = len(driven)
    bounds = np.arange(1, points)
    if (driven == driven[:, :1]).all():
        way = np.sign(np.diff(driven[:, 0], prepend=0.0))
        way = way[np.maximum.accumulate(np.where(way != 0.0, np.arange(points), 0))]
        bounds = np.flatnonzero(way[1:] != way[:-1]) + 1
    longest = max(1, _SPECIMENS // count)
    return [
        slice(start, min(start + longest, stop))
        for first, stop in itertools.pairwise([0, *bounds.tolist(), points])
        for start in range(first, stop, longest)
    ]


def bisected(is_above: Callable[[Array], NDArray[np.bool_]], high: Array) -> Array:
    """The root between 0 and `high` of a rising function, for many points at once.

    Args:
      is_above: [curves, points] -> whether the function is positive there, infinity included.
      high: [curves, points], where it is positive or zero.

    Returns:
      [curves, points].
    """
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = is_above(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)


# --------------------------------------------------------------------------------------------------
# Levenberg-Marquardt for many curves at once, inside the box 0-1 of the labels. NumPy only.
#
# K. Levenberg, Quart. Appl. Math. 2 (1944) 164-168; D. W. Marquardt, J. SIAM 11 (1963) 431-441. A label is damped by
# the size of what Gauss-Newton leaves out, the sum of r d²r/dlabel², which is at most |r| |d²r/dlabel²|: by |r|
# |dr/dlabel|, since a model that bends within its range has second derivatives as large as its first ones (|r| alone:
# J. Fan, Y. Yuan, Computing 74 (2005) 23-39). In the long, bent valleys of laws that remember searches go on where
# damping by the diagonal of the normal equations ends them early. A factor follows the gain (H. B. Nielsen, Damping
# parameter in Marquardt's method, IMM-REP-1999-05, DTU).
#
# A search that goes on for long is in such a valley, whose bend ends each straight step: geodesic acceleration follows
# it (M. K. Transtrum, J. P. Sethna, Improvements to the Levenberg-Marquardt algorithm for nonlinear least-squares
# minimization, 2012, arXiv:1201.5885). Swift's and Voce's mixture needs 50 steps for what 700 straight ones reach.
#
# Bounds by an active set: a label that stands at its bound and is pushed outwards is held there for the step, one
# that the step would carry out stops at the bound, and the others are solved for again.


# A step that promises to lower the sum of squares by less than this fraction is the last one. It is still taken,
# and convergence is nearly quadratic: what remains is far smaller.
TOLERANCE = 1e-8
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 0.03, 1e-9, 1e12
_FIRST_RISE = 2.0
# _STRAIGHT_STEPS: steps of a search before the others are bent. Most have ended by then; a bent one costs a half more.
_STRAIGHT_STEPS = 12
# _BEND_AT: share of a step at which its bend is measured; _MOST_BENT: the acceleration over the step, at most. Both are
# the values of the paper.
_BEND_AT, _MOST_BENT = 0.1, 0.75
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
      bends: whether long searches follow the bend of a valley.
    """

    bends: ClassVar[bool] = True

    law: Law
    strain: Array | TestSet
    stress: Array
    weights: Array
    _found: tuple[Array, Array] | None = None  # labels, and the derivatives of the residuals there

    def __post_init__(self) -> None:
        # Nothing to multiply by where every point counts alike; that saves a tenth of the time.
        self._plain = bool(np.all(self.weights == 1.0))

    def __len__(self) -> int:
        return len(self.stress)

    def rows(self, rows: NDArray[np.integer] | Flags | slice) -> Self:
        """Some of the curves."""
        found = self._found and (self._found[0][rows], self._found[1][rows])
        given = (self.strain[rows], self.stress[rows], self.weights[rows])
        return type(self)(self.law, *given, found)

    def values(self, labels: Array, and_jacobian: bool = False) -> Array:
        """Residuals at labels [curves, identified]: [curves, points].

        Where the jacobian is likely to be asked for next, a law that solves for its stress gives both at once.
        """
        if and_jacobian and self.law.solves:
            values, jacobian = self.law.label_expansion(self.strain, labels)
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
        return _products(self.jacobian(labels), values)

    def jacobian(self, labels: Array) -> Array:
        """J at labels [curves, identified]: [curves, points, identified]."""
        if self._found is not None and np.array_equal(self._found[0], labels):
            jacobian = self._found[1]
        else:
            jacobian = self._weighted(self.law.label_derivatives(self.strain, labels))
        if not np.isfinite(jacobian).all():
            # Points without a derivative lead nowhere; the answer is checked for them.
            jacobian = np.where(np.isfinite(jacobian), jacobian, 0.0)
        return jacobian

    def _weighted(self, jacobian: Array) -> Array:
        if not self._plain:
            jacobian *= self.weights[:, :, None]
        return jacobian


def _products(jacobian: Array, values: Array) -> tuple[Array, Array]:
    """JᵀJ [curves, p, p] and Jᵀr [curves, p] of J [curves, points, p] and residuals r [curves, points]."""
    transposed = np.swapaxes(jacobian, 1, 2)
    return transposed @ jacobian, (transposed @ values[:, :, None])[:, :, 0]


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
            residuals.rows(rows),
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
    values = residuals.values(found.labels, and_jacobian=True)
    found.cost[:] = _half_square(values)
    found.normal[:], gradient = residuals.normal_equations(found.labels, values)
    damping = np.full(len(found.cost), _FIRST_DAMPING)
    rise = np.full(len(found.cost), _FIRST_RISE)
    active, part = np.arange(len(found.cost)), residuals
    bend: _Bend | None = None
    for step_number in range(1, max_iterations + 1):
        labels, normal, slope = found.labels[active], found.normal[active], gradient[active]
        damped = (damping * np.sqrt(2.0 * found.cost))[active, None] * _norms(normal)
        step = bounded_step(normal, slope, labels, damped, held[active])
        trial: Array = np.clip(labels + step, 0.0, 1.0)
        if part.bends and step_number > _STRAIGHT_STEPS:
            bend = bend or _Bend(part.values(labels, True), part.jacobian(labels))
            trial = bend.followed(part, labels, step, normal, damped, held[active])
        values = part.values(trial, and_jacobian=True)
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
            rows, some = active[moved], part.rows(moved)
            if bend is None:
                products = some.normal_equations(found.labels[rows], values[moved])
            else:
                bend.values[moved] = values[moved]
                bend.jacobian[moved] = some.jacobian(found.labels[rows])
                products = _products(bend.jacobian[moved], values[moved])
            found.normal[rows], gradient[rows] = products
        active = active[stays]
        if not len(active):
            break
        if not stays.all():
            part = part.rows(stays)
            bend = bend and _Bend(bend.values[stays], bend.jacobian[stays])


@dataclasses.dataclass
class _Bend:
    """Residuals [curves, points] and derivatives [curves, points, p] where searches stand, for steps along a bend."""

    values: Array
    jacobian: Array

    def followed(
        self,
        residuals: Residuals,
        labels: Array,
        step: Array,
        normal: Array,
        damping: Array,
        held: Flags,
    ) -> Array:
        """The labels [curves, p] after a step and half its acceleration, where that is small beside it.

        Args:
          step, normal, damping, held: as of `bounded_step`.
        """
        ahead = residuals.values(np.clip(labels + _BEND_AT * step, 0.0, 1.0)) - self.values
        straight = (self.jacobian @ step[:, :, None])[:, :, 0]
        second = (2.0 / _BEND_AT) * (ahead / _BEND_AT - straight)
        pull = np.einsum("cnp,cn->cp", self.jacobian, second)
        trial = labels + step
        stays = held | (labels <= 0.0) | (labels >= 1.0) | (trial <= 0.0) | (trial >= 1.0)
        pull = np.where(np.isfinite(pull), pull, 0.0)
        acceleration = bounded_step(normal, pull, trial, damping, stays)
        small = 2.0 * np.linalg.norm(acceleration, axis=1) <= _MOST_BENT * np.linalg.norm(
            step, axis=1
        )
        return np.clip(trial + np.where(small[:, None], 0.5 * acceleration, 0.0), 0.0, 1.0)


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


def even_labels(count: int, parameters: int) -> Array:
    """`count` labels that fill the unit box evenly: [count, parameters].

    The additive recurrence of M. Roberts (The unreasonable effectiveness of quasirandom sequences, 2018), whose step
    is the inverse of the generalised golden ratio.
    """
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (parameters + 1))
    steps = ratio ** -np.arange(1.0, parameters + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0


# --------------------------------------------------------------------------------------------------
# Modes of the posteriors of a law's parameters, and how sharp they are, for many records at once. NumPy only.
#
# The search takes place in y = logit(label), where ranges have no ends. A label's uniform prior is a logistic
# distribution there: a parameter that a record does not tell stays in the middle, as wide as its range.


# The logits that the search may take, as one unit of its box, and when it ends: steps, promised share of the cost.
_WIDTH = 16.0
_MOST_STEPS, _TOLERANCE = 40, 3e-4
# _MORE_LEFT: standard deviations of a sum of squares beyond its expectation, from which there is another search.
_MORE_LEFT = 0.5
# _FAR_MORE_LEFT: the same, from which two further searches must end alike.
_FAR_MORE_LEFT = 3.0
# _ALIKE: nats by which such ends differ at most.
_ALIKE = 0.2
# _SEARCHES: the most searches.
_SEARCHES = 4
# Labels that are tried before each, and how far inside their ranges.
_TRIES, _EDGE = 4, 0.01
# Records whose derivatives are in memory at a time.
_TOGETHER = 512
# Cost of records whose law has overflowed.
_NO_FIT = 1e12
_TINY = 1e-9
# Damping of steps uphill from labels near a largest density; they end where none gains as many nats.
_CLIMBING_DAMPING, _LEAST_GAIN = 1e-6, 1e-3

Expansion = tuple[Array, Array, Array]


class LogitResiduals(Residuals):
    """Residuals over logits y = 16 (u - 1/2) of labels, u in the unit box, and one more for each label: its prior.

    Labels are uniform, so that y has the density of a logistic distribution. Half the square of the residual of y is
    minus its logarithm, but for a constant: the least sum of squares is the mode of the posterior of y.
    """

    bends = False

    def values(self, labels: Array, and_jacobian: bool = False) -> Array:
        """See `Residuals`; [curves, points + labels]."""
        residuals = super().values(labels_at(labels), and_jacobian)
        return np.concatenate([residuals, _prior(_WIDTH * (labels - 0.5))[0]], axis=1)

    def normal_equations(self, labels: Array, values: Array | None = None) -> tuple[Array, Array]:
        values = self.values(labels) if values is None else values
        if len(labels) > _TOGETHER:
            parts = [slice(i, i + _TOGETHER) for i in range(0, len(labels), _TOGETHER)]
            found = [self.rows(part).normal_equations(labels[part], values[part]) for part in parts]
            normals, gradients = zip(*found, strict=True)
            return np.concatenate(normals), np.concatenate(gradients)
        known, count = labels_at(labels), labels.shape[1]
        normal, gradient = super().normal_equations(known, values[:, :-count])
        slopes = _WIDTH * known * (1.0 - known)
        prior, rise = _prior(_WIDTH * (labels - 0.5))
        rise = _WIDTH * rise
        normal = normal * slopes[:, :, None] * slopes[:, None, :]
        np.einsum("cii->ci", normal)[:] += rise**2
        return normal, gradient * slopes + rise * prior


def labels_at(places: Array) -> Array:
    """Labels of places u in the box of `LogitResiduals`."""
    return 1.0 / (1.0 + np.exp(-_WIDTH * (places - 0.5)))


def _prior(logits: Array) -> tuple[Array, Array]:
    """The residual of a logit's prior, and its slope."""
    half = np.abs(logits) / 2.0
    log_cosh = half + np.log1p(np.exp(-2.0 * half)) - math.log(2.0)
    residual = np.sign(logits) * np.sqrt(4.0 * log_cosh)
    near = half < 1e-4
    slope = np.where(near, math.sqrt(0.5), np.tanh(logits / 2.0) / np.where(near, 1.0, residual))
    return residual, slope


def _place(labels: Array) -> Array:
    return 0.5 + np.log(labels / (1.0 - labels)) / _WIDTH


def likely_modes(
    residuals: LogitResiduals, start: Array, spread: Array
) -> tuple[Array, Array, Array]:
    """The modes that searches find, interchangeable terms in their order, and Laplace's approximation about them.

    Where more is left than noise leaves, searches begin anew, each at the best of a few labels: some about the start,
    some about the mode and some from anywhere. They go on until another one or two have ended alike, because a kink
    between two points, or two terms that stand for one, make modes of little probability. More labels would choose the
    same valley each time.

    Args:
      residuals: in units of the noise, so that the sum of squares of a right fit is known.
      start: labels [n, p] inside 0-1.
      spread: standard deviation of their errors, [p].

    Returns:
      Logits [n, p], their covariances [n, p, p], and the sums of squares that are left, [n].
    """
    with np.errstate(all="ignore"):
        found = _mode(residuals, start)
        _search_again(residuals, found, start, spread)
        # A search has the curvature at its last place but one.
        found.normal = residuals.normal_equations(found.labels)[0]
    return _laplace(found)


def residuals_at(residuals: LogitResiduals, logits: Array) -> Array:
    """Residuals [n, points] at the logits [n, p] of labels, in units of the noise; 0 where the law overflows."""
    with np.errstate(all="ignore"):
        values = Residuals.values(residuals, 1.0 / (1.0 + np.exp(-logits)))
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


def _search_again(residuals: LogitResiduals, found: Minimum, start: Array, spread: Array) -> None:
    """Puts better modes into `found` where more is left there than the noise leaves; see `likely_modes`."""
    points, count = (residuals.weights > 0).sum(axis=1), start.shape[1]
    alike = np.zeros(len(start), np.int64)
    # The one generator of NumPy whose numbers stay the same in every version.
    generator = np.random.RandomState(0)
    for _ in range(1, _SEARCHES):
        left = (2.0 * found.cost - points + count) / np.sqrt(2.0 * points)
        wrong = np.flatnonzero(~((left <= _MORE_LEFT) | (alike > (left > _FAR_MORE_LEFT))))
        if not len(wrong):
            return
        part, before = residuals.rows(wrong), found.cost[wrong]
        tried = list(generator.uniform(size=(_TRIES, 1, count)))
        for place in (start[wrong], labels_at(found.labels[wrong])):
            tried.extend(place + spread * generator.standard_normal((_TRIES, 1, count)))
        again = _mode(part, _best(part, tried))
        better = again.cost < before
        for name, value in vars(again).items():
            getattr(found, name)[wrong[better]] = value[better]
        # The residual is the size of the noise where nobody has told it.
        nat = np.maximum(2.0 * found.cost[wrong] / points[wrong], 1.0)
        alike[wrong] += np.abs(again.cost - before) <= _ALIKE * nat


def _best(residuals: LogitResiduals, labels: list[Array]) -> Array:
    """The best of some labels, each [n, p] or [1, p]: [n, p]."""
    best, least = (
        np.full((len(residuals), labels[0].shape[1]), 0.5),
        np.full(len(residuals), np.inf),
    )
    for each in labels:
        tried = np.broadcast_to(np.clip(each, _EDGE, 1.0 - _EDGE), best.shape)
        tried = residuals.law.sorted_labels(tried)
        cost = np.square(residuals.values(_place(tried))).sum(axis=1)
        best = np.where((cost < least)[:, None], tried, best)
        least = np.fmin(cost, least)
    return best


def _mode(residuals: LogitResiduals, labels: Array) -> Minimum:
    """Where a search from labels [n, p] ends."""
    found = minimise(
        residuals, _place(residuals.law.sorted_labels(labels)), _MOST_STEPS, _TOLERANCE
    )
    unique = residuals.law.sorted_labels(labels_at(found.labels))
    found.labels = _place(np.clip(unique, _TINY, 1.0 - _TINY))
    return found


def _laplace(found: Minimum) -> tuple[Array, Array, Array]:
    """See `likely_modes`; where a law has overflowed it is the prior, with a sum of squares that nothing else has."""
    logits = _WIDTH * (found.labels - 0.5)
    normal = found.normal / _WIDTH**2
    failed = ~(np.isfinite(normal).all(axis=(1, 2)) & np.isfinite(found.cost))
    logits[failed], normal[failed] = 0.0, 0.5 * np.eye(logits.shape[1])
    found.cost[failed] = _NO_FIT
    scale = 1.0 / np.sqrt(np.einsum("cii->ci", normal))
    over = scale[:, :, None] * scale[:, None, :]
    regular = normal * over + 1e-10 * np.eye(logits.shape[1])
    left = 2.0 * found.cost - np.square(_prior(logits)[0]).sum(axis=1)
    return logits, np.linalg.inv(regular) * over, left


def climb(
    expand: Callable[[Array], Expansion],
    start: Array,
    columns: NDArray[np.intp],
    steps: int,
    held: Flags | None = None,
) -> tuple[Array, Expansion]:
    """At most so many damped Gauss-Newton steps of many densities inside 0-1, each taken where the density grows.

    Args:
      expand: log density [k], gradient [k, p] and information [k, p, p] of labels, of which `columns` [k, m] move.
      held: [k, m], those that do not move all the same.

    Returns:
      The columns where the steps end, and the expansion there.
    """
    best, (density, gradient, information) = start, expand(start)
    damping = np.full(len(best), _CLIMBING_DAMPING)
    held = np.zeros(best.shape, np.bool_) if held is None else held
    for _ in range(steps):
        normal, slope = information[:, columns[:, None], columns], -gradient[:, columns]
        damped = damping[:, None] * np.einsum("cii->ci", normal)
        trial = np.clip(best + bounded_step(normal, slope, best, damped, held), 0.0, 1.0)
        found = expand(trial)
        better = found[0] >= density
        settled = better & (found[0] < density + _LEAST_GAIN)
        damping = np.where(better, 0.1 * damping, 30.0 * np.maximum(damping, 1e-4))
        best = np.where(better[:, None], trial, best)
        density = np.where(better, found[0], density)
        gradient = np.where(better[:, None], found[1], gradient)
        information = np.where(better[:, None, None], found[2], information)
        if settled.all():
            break
    return best, (density, gradient, information)
