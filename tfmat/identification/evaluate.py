"""How good answers are on records whose parameters are known: errors, the best possible ones, posteriors."""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import scipy
from numpy.typing import NDArray

from tfmat.config import read_run_details
from tfmat.data.dataset import BAYES_RISK, PackedDataset, is_dataset
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.identification.least_squares import (
    LeastSquaresFit,
    covariance_of,
    cramer_rao_bound,
    fit_with_noise,
)
from tfmat.identification.likelihood import (
    DrawnErrors,
    NoiseModel,
    SimulatedErrors,
    has_known_errors,
    has_unknown_errors,
    unknown_likelihood,
)
from tfmat.identification.networks import Identifier
from tfmat.identification.posterior import FEWEST_SAMPLES, LARGEST_K, Posterior
from tfmat.identification.results import (
    COVERAGE,
    BesideExact,
    BestPossible,
    Bin,
    C2st,
    Closeness,
    Coverage,
    CoverageCurve,
    ErrorScores,
    Evaluation,
    PosteriorScores,
    ReferenceScores,
    Score,
    ScoredAnswers,
    Spread,
    SpreadBin,
    Tails,
    Uniformity,
    ZScore,
)
from tfmat.identification.sampling import Progress, adaptive_of_many
from tfmat.materials.law import PRIOR_VARIANCE, Array, History, Law, Parameter, TestSet
from tfmat.records.laboratory import Apparatus
from tfmat.records.simulation import SIMULATION_VERSION, CurveSettings, observed, split_features

# --------------------------------------------------------------------------------------------------
# How good answers are: parameters beside the truth, curves beside the measured ones, and what intervals hold.


# Curves that callers with very many hand over at a time: enough to keep the cores busy, small in memory.
CURVES_PER_CALL = 4096
# Nominal coverage, %.
_REPORTED = (50, 90, 95)
_DRAWN = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98)
COVERAGES = tuple(percent / 100 for percent in _DRAWN)
_BINS = 8
MOST_BINS = 5


def score_parameter(parameter: Parameter, true: Array, identified: Array, label: Array) -> Score:
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
    # A share of a value that may be 0 tells nothing.
    positive = bool(np.all(true > 0)) and parameter.low > 0 and not logarithmic
    percent = float(100 * np.mean(np.abs(identified / true - 1.0))) if positive else None
    return Score(
        unit=parameter.unit,
        mse=float(np.mean(error**2)),
        mae=float(np.mean(np.abs(identified - true))),
        mae_percent=percent,
        mae_decades=decades,
        r2=float(1 - np.mean(error**2) / spread) if spread > 0 else None,
    )


def rmse_percent(stress: Array, resimulated: Array, valid: np.ndarray) -> Array:
    """Root mean square of the residual over the curve's maximum stress, in percent.

    Args:
      stress, resimulated: [curves, points], MPa; valid: [curves, points], False where padded.

    Returns:
      [curves], %.
    """
    largest = np.abs(np.where(valid, stress, 0.0)).max(axis=1)
    return 100.0 * _root_mean_square(stress - resimulated, valid) / largest


def rmse_over_noise(
    stress: Array, resimulated: Array, valid: np.ndarray, noise_mpa: float, noise_relative: float
) -> Array | None:
    """Root mean square of the residual over the noise's standard deviation at each point; 1 is perfect.

    Same arguments and result as `rmse_percent`; None where the curves have no noise. `noise_mpa` is the standard
    deviation in MPa, `noise_relative` adds a fraction of the point's own stress in quadrature. Points that have no
    noise (relative noise at no stress) are left out.
    """
    if noise_mpa == 0 and noise_relative == 0:
        return None
    deviation = np.hypot(noise_mpa, noise_relative * resimulated)
    # Purely relative noise vanishes at the origin, where the ratio says nothing.
    counted = valid & (deviation > 1e-6 * deviation.max(axis=1, keepdims=True))
    return _root_mean_square((stress - resimulated) / np.where(counted, deviation, 1.0), counted)


def _root_mean_square(values: Array, counted: np.ndarray) -> Array:
    return np.sqrt((np.where(counted, values, 0.0) ** 2).sum(axis=1) / counted.sum(axis=1))


def coverage(
    names: Sequence[str], true_labels: Array, labels: Array, std: Array, limits: Array
) -> dict[str, Coverage]:
    """Parameter -> how often its intervals hold the truth.

    Args:
      true_labels, labels, std: [curves, p], labels cut to 0-1, std calibrated.
      limits: [coverages, curves, p, 2], of the intervals of the coverages COVERAGES.
    """
    error = true_labels - labels
    held = dict(zip(_DRAWN, _held(true_labels, limits), strict=True))
    width = (limits[..., 1] - limits[..., 0])[_DRAWN.index(95)]
    scores = {}
    for i, name in enumerate(names):
        z, log_std = error[:, i] / std[:, i], np.log(std[:, i])
        scores[name] = Coverage(
            **{f"of_{percent}": float(held[percent][i]) for percent in _REPORTED},
            z_std=float(np.sqrt(np.mean(z**2))),
            nll=float(np.mean(log_std + 0.5 * z**2) + 0.5 * np.log(2 * np.pi)),
            mean_std=float(std[:, i].mean()),
            mean_width_95=float(width[:, i].mean()),
            curve=CoverageCurve(list(COVERAGES), [float(held[p][i]) for p in _DRAWN]),
            bins=[
                SpreadBin(
                    mean_std=float(std[rows, i].mean()),
                    rms_error=float(np.sqrt(np.mean(error[rows, i] ** 2))),
                    num_curves=int(rows.sum()),
                )
                for _, _, rows in bins_of(std[:, i], _BINS)
            ],
        )
    return scores


def _held(true_labels: Array, limits: Array) -> Array:
    """Share of the intervals that hold the truth: [coverages, p]."""
    # The true labels of stored curves are float32: one at the end of its range may lie a rounding outside.
    inside = (limits[..., 0] <= true_labels + 1e-6) & (true_labels - 1e-6 <= limits[..., 1])
    return inside.mean(axis=1)


def bins_of(
    quantity: Array, count: int = MOST_BINS
) -> list[tuple[float, float, NDArray[np.bool_]]]:
    """Bins of a quantity: (low, high, which curves), low <= quantity < high, in the last one <= high.

    Quantiles set the limits, so that every bin holds about as many curves. A largest value that many curves share (all
    points of a curve are valid) has a bin of its own, low = high.

    Args:
      quantity: [curves].
      count: bins at the most.
    """
    quantity = np.asarray(quantity, np.float64)
    largest = float(quantity.max())
    at_largest = quantity == largest
    alone = bool(at_largest.mean() > 1.0 / count)
    others = quantity[~at_largest] if alone else quantity
    bins: list[tuple[float, float, NDArray[np.bool_]]] = []
    if len(others):
        edges = np.unique(np.quantile(others, np.linspace(0.0, 1.0, count + 1 - alone)))
        for low, high in itertools.pairwise(edges):
            below = quantity <= high if high == edges[-1] else quantity < high
            inside = (quantity >= low) & below
            if inside.any():  # limits between a few curves may hold none
                bins.append((float(low), float(high), inside))
        if len(edges) == 1:
            bins.append((float(edges[0]), float(edges[0]), quantity == edges[0]))
    if alone:
        bins.append((largest, largest, at_largest))
    return bins


# --------------------------------------------------------------------------------------------------
# Least squares for simulated records whose zeroes are off, with slack, and whose machine gives way. NumPy only.
#
# The fit knows nothing of such errors, as one of measured tests does not; its intervals do.


def fit_with_errors(
    settings: CurveSettings, tests: TestSet, response: Array, valid: NDArray[np.bool_]
) -> LeastSquaresFit:
    """`fit` of records; covariance and intervals hold correlated residuals and what `covariance_by_errors` adds.

    Args:
      settings: resolved; tests, response, valid: as `observed` gives them.
    """
    law = settings.build_law()
    found = fit_with_noise(
        law, tests, response, valid, 1.0, settings.noise_relative, correlated=True
    )
    added = covariance_by_errors(settings, law, tests, valid, found.labels)
    covariance = found.label_covariance + added
    label_std = np.sqrt(np.einsum("cii->ci", covariance))
    half = scipy.special.ndtri(0.5 + COVERAGE / 2) * label_std
    low, high = np.moveaxis(found.interval_labels, 2, 0)
    limits = np.stack(
        [np.minimum(low, found.labels - half), np.maximum(high, found.labels + half)], axis=2
    )
    limits = np.clip(limits, 0.0, 1.0)
    ends = [law.identified_values(limits[:, :, side]) for side in (0, 1)]
    return dataclasses.replace(
        found,
        label_covariance=covariance,
        std=label_std * law.label_slopes(law.from_labels(found.labels)),
        interval_labels=limits,
        interval=np.stack(ends, axis=2),
        unidentifiable=found.unidentifiable | ~(half < 0.5),
    )


def covariance_by_errors(
    settings: CurveSettings,
    law: Law,
    tests: TestSet,
    valid: NDArray[np.bool_],
    labels: Array,
) -> Array:
    """The part of zeroes that are off and a machine in the covariance of a fit without them: [records, p, p].

    To first order an error δ whose effect on the responses is D moves a fit with the slopes J by (JᵀJ)⁻¹JᵀD δ. Errors
    are independent; of the machine's compliance, which a fit takes for zero, the mean square counts.

    Args:
      settings: resolved; tests, valid: as `observed` gives them; labels: of the fit, [records, p].
    """
    points = valid.shape[1] // len(tests.histories)
    slopes = law.label_derivatives(tests, labels) * valid[:, :, None]
    transposed = np.swapaxes(slopes, 1, 2)
    to_labels = covariance_of(transposed @ slopes) @ transposed
    unit = np.broadcast_to(tests.unit, valid.shape)
    parameters = law.from_labels(labels)
    effects: list[Array] = []

    def moved(history: History, **errors: float) -> Array:
        apparatus = Apparatus(**{name: np.full(len(labels), size) for name, size in errors.items()})
        answer = apparatus.answer(history, lambda seen: law.respond(seen, parameters))
        return apparatus.shown(history, answer)

    machine = np.zeros(valid.shape)
    for test, history in enumerate(tests.histories):
        part = slice(test * points, (test + 1) * points)
        rows = history.changed(
            lambda array: np.broadcast_to(array, (len(labels), *array.shape[1:]))
        )
        plain = moved(rows)
        for name, limits in (
            ("strain_offset", settings.strain_offset),
            ("stress_offset", settings.stress_offset),
            ("slack", settings.toe),
        ):
            if limits is not None and (name == "stress_offset" or rows.strain is not None):
                effect = np.zeros(valid.shape)
                effect[:, part] = moved(rows, **{name: np.sqrt(_mean_square(limits))}) - plain
                effects.append(effect)
        if (limits := settings.machine_stiffness) is not None:
            compliance = np.sqrt(_mean_square((1.0 / limits[1], 1.0 / limits[0])))
            machine[:, part] = moved(rows, stiffness=1.0 / compliance) - plain
    effects.append(machine)
    whole = np.stack(effects, axis=2) / unit[:, :, None] * valid[:, :, None]
    shifts = to_labels @ whole
    return np.asarray(shifts @ np.swapaxes(shifts, 1, 2))


def _mean_square(limits: tuple[float, float]) -> float:
    """The mean square of numbers that are log-uniform between the limits."""
    low, high = limits
    return low**2 if low == high else (high**2 - low**2) / (2.0 * np.log(high / low))


# --------------------------------------------------------------------------------------------------
# Bayes risk: the mean squared error that no method can beat on average, curve by curve, kept in a file. NumPy only.
#
# The curves come with their law, ranges and noise, so that the posterior of each curve's labels is known
# (`likelihood` says what it is conditioned on; the prior is uniform in 0-1). Its mean is the estimate with the least
# mean squared error of scaled labels, and the mean of its variance over the curves is that error: the Bayes risk.
#
# One or two labels are integrated by quadrature on a grid that follows the mass; more are sampled. The integral is
# nested: Gauss-Legendre nodes over the first label, and for each of them over the second label, on an interval of its
# own. A first, coarse pass finds where the mass lies; the second one puts its nodes there. Every interval ends
# exactly at the prior's bounds, so that a mass that they cut off is integrated as accurately as any other. Where that
# does not resolve the mass (what the place of a cut tells has kinks and hard ends), an even grid over the whole prior
# is refined step by step.


# Goes up with every change that moves the numbers.
BAYES_RISK_VERSION = 3
# Up to this many identified parameters the posterior is integrated, beyond it is sampled.
_MOST_INTEGRATED = 2
# Curves between two calls of `progress`.
_CHUNK = 50
# _COARSE_NODES, _FINE_NODES: quadrature nodes of the first pass and of the second, a direction.
_COARSE_NODES, _FINE_NODES = 16, 28
# _COARSE_REACH, _FINE_REACH: half-width of the intervals of both passes, in standard deviations.
_COARSE_REACH, _FINE_REACH = 8.0, 7.0
# _PROFILE_STEPS: Gauss-Newton steps to the best second label for each first one.
_PROFILE_STEPS = 4
# _MOST_COARSE_PASSES: the coarse pass is repeated, wider, until it holds all of the mass, at most so often.
_MOST_COARSE_PASSES = 8
# _FEWEST_NODES: nodes that share the mass (1 / the sum of their squared shares); fewer do not resolve it.
_FEWEST_NODES = 3.0
# _EVEN_NODES: nodes a direction of the grid that is refined.
_EVEN_NODES = {1: 1000, 2: 100}
# _CUTS: log densities below the largest at which that grid is cut away, step by step.
_CUTS = (5000.0, 500.0, 60.0, 25.0, None)
# _PART: rows of labels of that grid that a law answers together.
_PART = 500
_ARRAYS = ("mean", "variance", "effective_samples", "pareto_k")


@dataclasses.dataclass(frozen=True)
class BayesRisk:
    """The posterior of each curve, on the scale of the labels (0-1).

    Attributes:
      method: `quadrature` (relative error of the risk below 0.001) or `importance sampling`.
      mean, variance: [curves, p].
      effective_samples, pareto_k: [curves], see `Certificate`; None for quadrature.
    """

    method: str
    mean: Array
    variance: Array
    effective_samples: Array | None
    pareto_k: Array | None

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Whether the posterior of each curve can be relied on, [curves]."""
        if self.pareto_k is None or self.effective_samples is None:
            return np.ones(len(self.mean), np.bool_)
        return (self.pareto_k <= LARGEST_K) & (self.effective_samples >= FEWEST_SAMPLES)

    @property
    def risk(self) -> Array:
        """Mean of the posterior variance, [p]: MSE of scaled labels that no method can beat on average.

        Curves count whose posterior has converged, here and below.
        """
        return self.variance[self.converged].mean(axis=0)

    def calibration(self, labels: Array) -> Array:
        """Mean of (true label - mean)² / variance, [p]; 1 where the posterior is right. `labels`: [curves, p]."""
        squares = (labels - self.mean) ** 2 / self.variance
        return squares[self.converged].mean(axis=0)

    def first(self, count: int) -> "BayesRisk":
        """The same of the first `count` curves."""
        arrays: list[Any] = [getattr(self, name) for name in _ARRAYS]
        arrays = [each if each is None else each[:count] for each in arrays]
        return BayesRisk(self.method, *arrays)


def bayes_risk(
    settings: CurveSettings,
    features: NDArray[np.floating],
    *,
    start: Array | None = None,
    truth: Array | None = None,
    progress: Progress | None = None,
) -> BayesRisk:
    """The posterior of curves that were simulated with `settings`.

    Args:
      features: [curves, points, 3], as simulated: strain (-), noisy stress (MPa), flag.
      start: labels [curves, p] of the least squares fit, where it is at hand.
      truth: true labels [curves, p], where a sampled posterior begins too. The posterior does not depend on them, but
        they lie in its mass, which a fit that ended in another valley does not.
      progress: called with (done, total) curves.

    Raises:
      InputError: the curves have no noise, or an observation model whose likelihood is not known.
    """
    law, noise = settings.build_law(), NoiseModel.of(settings)
    strain, stress, valid = observed(settings, features)
    if start is None:
        start = fit_with_noise(
            law, strain, stress, valid, noise.noise_mpa, noise.noise_relative
        ).labels
    kind: type[SimulatedErrors] = SimulatedErrors if noise.unknown is None else DrawnErrors
    target = kind(law, noise, strain, stress, valid)
    if len(law.identified) <= _MOST_INTEGRATED and noise.unknown is None:
        moments = []
        for i, one in enumerate(target.each()):
            moments.append(posterior_moments(one, start[i]))
            if progress and (i + 1) % _CHUNK == 0:
                progress(i + 1, len(start))
        mean, variance = map(np.array, zip(*moments, strict=True))
        return BayesRisk("quadrature", mean, variance, None, None)
    # A generator a curve: the answer to curve i is the same however many curves there are.
    posteriors = adaptive_of_many(
        target,
        np.stack([start] if truth is None else [truth, start], axis=1),
        [np.random.default_rng([BAYES_RISK_VERSION, i]) for i in range(len(start))],
        progress,
    )
    names = ("mean", "variance", "effective_draws")
    mean, variance, worth = (np.array([getattr(one, name) for one in posteriors]) for name in names)
    tails = np.array([one.certificate.pareto_k for one in posteriors], np.float64)
    return BayesRisk("importance sampling", mean, variance, worth, tails)


def cached_bayes_risk(
    file: str | os.PathLike,
    settings: CurveSettings,
    features: NDArray[np.floating],
    *,
    seed: int,
    start: Array | None = None,
    truth: Array | None = None,
    progress: Progress | None = None,
) -> BayesRisk:
    """`bayes_risk`, read from `file` where that holds it for these settings, this seed and at least as many curves.

    Otherwise it is worked out and written there, whole or not at all. Where the folder cannot be written to, the next
    call works it out again.

    Args:
      features: the first curves of a frozen set that `settings` and `seed` fix.
    """
    key = {
        "version": BAYES_RISK_VERSION,
        "simulation_version": SIMULATION_VERSION,
        "settings": settings.to_json(),
        "seed": seed,
    }
    path = pathlib.Path(file)
    known = _read(path, key)
    if known is not None and len(known.mean) >= len(features):
        return known.first(len(features))
    found = bayes_risk(settings, features, start=start, truth=truth, progress=progress)
    content = {**key, "num_curves": len(features), **vars(found)}
    with contextlib.suppress(InputError, OSError):
        for stale in path.parent.glob(f".{path.name}.*.tmp"):  # of a killed writer
            stale.unlink(missing_ok=True)
        write_json(path, content)
    return found


def _read(file: pathlib.Path, key: dict[str, Any]) -> BayesRisk | None:
    """Reads what the file holds for this key; None where there is no file, or one of something else."""
    if not file.is_file():
        return None
    try:
        content = read_json(file)
        if any(content[name] != value for name, value in key.items()):
            return None
        arrays: list[Any] = [content[name] for name in _ARRAYS]
        arrays = [each if each is None else np.array(each, np.float64) for each in arrays]
        return BayesRisk(content["method"], *arrays)
    except (InputError, KeyError, TypeError, ValueError):
        # A file that someone else wrote or damaged is no reason to stop; it is made again.
        return None


class Moments(NamedTuple):
    """Posterior of one curve: mean and variance of each label, [p]."""

    mean: Array
    variance: Array


class _NotResolved(Exception):
    """The nodes miss the mass, or it stands on too few of them."""


@dataclasses.dataclass
class _Pass:
    """One quadrature: nodes of the first label and its density there; mean and variance of the second one for each."""

    nodes: Array
    mass: Array
    inner_mean: Array
    inner_variance: Array

    def moments(self) -> Moments:
        mean, variance = _mean_and_variance(self.nodes, self.mass)
        inner = float(self.mass @ self.inner_mean)
        spread = float(self.mass @ (self.inner_variance + (self.inner_mean - inner) ** 2))
        return Moments(np.array([mean, inner]), np.array([variance, spread]))


def posterior_moments(
    target: SimulatedErrors, mode: Array, fine_nodes: int = _FINE_NODES
) -> Moments:
    """Mean and variance of the labels of one curve.

    Args:
      target: of one curve, and a law with one or two identified parameters.
      mode: labels of the maximum likelihood, [p], or near it.
      fine_nodes: nodes a direction of the second pass.
    """
    try:
        if len(mode) == 1:
            return _one_label(target, mode, fine_nodes)
        return _two_labels(target, mode, fine_nodes)
    except _NotResolved:
        return _refined(target, len(mode))


def _two_labels(target: SimulatedErrors, mode: Array, fine_nodes: int) -> Moments:
    *_, information = target.expansion(mode[None])
    regular = information[0] + np.eye(2) / PRIOR_VARIANCE
    deviation = np.sqrt(regular[1, 1] / np.linalg.det(regular))
    first, second = (float(label) for label in mode)
    reach = _COARSE_REACH * float(deviation)
    for _ in range(_MOST_COARSE_PASSES):
        low, high = max(first - reach, 0.0), min(first + reach, 1.0)
        coarse = _profiled_pass(target, low, high, second)
        mean, variance = _mean_and_variance(coarse.nodes, coarse.mass)
        # Where the prior goes on, the outermost nodes hold no mass.
        if (low == 0.0 or coarse.mass[0] <= 1e-7) and (high == 1.0 or coarse.mass[-1] <= 1e-7):
            break
        reach *= 1.5
    reach = _FINE_REACH * np.sqrt(variance)
    low, high = max(mean - reach, low), min(mean + reach, high)
    nodes, weights = _legendre(low, high, fine_nodes)
    centre = np.interp(nodes, coarse.nodes, coarse.inner_mean)
    half = _FINE_REACH * np.interp(nodes, coarse.nodes, np.sqrt(coarse.inner_variance))
    return _integrate(target, nodes, weights, centre, half, fine_nodes).moments()


def _one_label(target: SimulatedErrors, mode: Array, fine_nodes: int) -> Moments:
    *_, information = target.expansion(mode[None])
    centre = float(mode[0])
    half = _COARSE_REACH / np.sqrt(information[0, 0, 0] + 1.0 / PRIOR_VARIANCE)
    for count in (2 * _COARSE_NODES, 2 * fine_nodes):
        nodes, weights = _legendre(max(centre - half, 0.0), min(centre + half, 1.0), count)
        mass = _normalised(target.log_density(nodes[:, None]), weights)
        mean, variance = _mean_and_variance(nodes, mass)
        centre, half = mean, _FINE_REACH * np.sqrt(variance)
    return Moments(np.array([mean]), np.array([variance]))


def _profiled_pass(target: SimulatedErrors, low: float, high: float, second: float) -> _Pass:
    """The coarse pass over the first label from `low` to `high`; the second one around its best value for each."""
    nodes, weights = _legendre(low, high, _COARSE_NODES)
    best = np.full(len(nodes), second)
    for _ in range(_PROFILE_STEPS):
        _, slope, information = target.expansion(np.stack([nodes, best], axis=1))
        curvature = information[:, 1, 1] + 1.0 / PRIOR_VARIANCE
        # Not more than half the range at once: far from the best value the curvature misleads.
        best = np.clip(best + np.clip(slope[:, 1] / curvature, -0.5, 0.5), 0.0, 1.0)
    *_, information = target.expansion(np.stack([nodes, best], axis=1))
    half = _COARSE_REACH / np.sqrt(information[:, 1, 1] + 1.0 / PRIOR_VARIANCE)
    return _integrate(target, nodes, weights, best, half, _COARSE_NODES)


def _integrate(
    target: SimulatedErrors,
    nodes: Array,
    weights: Array,
    centre: Array,
    half: Array,
    inner_count: int,
) -> _Pass:
    """Integrates over the second label on centre ± half [nodes], cut to the prior, for each node of the first one."""
    low = np.maximum(centre - half, 0.0)
    high = np.minimum(centre + half, 1.0)
    unit, unit_weights = _unit_legendre(inner_count)
    inner = low[:, None] + 0.5 * (high - low)[:, None] * (1.0 + unit)
    inner_weights = 0.5 * (high - low)[:, None] * unit_weights
    labels = np.stack([np.repeat(nodes, inner_count), inner.ravel()], axis=1)
    log_density = target.log_density(labels).reshape(inner.shape)
    mass = _normalised(log_density, weights[:, None] * inner_weights)
    # The conditional moments come from each row's own largest value: far rows would vanish beside the largest of all.
    largest = log_density.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise _NotResolved
    row = np.exp(log_density - largest) * inner_weights
    total = row.sum(axis=1, keepdims=True)
    if not (total > 0).all():  # a cut so sharp that the first pass saw a single node of it
        raise _NotResolved
    row /= total
    mean = (row * inner).sum(axis=1)
    variance = (row * (inner - mean[:, None]) ** 2).sum(axis=1)
    return _Pass(nodes, mass.sum(axis=1), mean, variance)


@functools.lru_cache
def _unit_legendre(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def _legendre(low: float, high: float, count: int) -> tuple[Array, Array]:
    unit, weights = _unit_legendre(count)
    return low + 0.5 * (high - low) * (1.0 + unit), 0.5 * (high - low) * weights


def _normalised(log_density: Array, weights: Array) -> Array:
    """The share of the mass that stands on each node; raises _NotResolved where a few nodes hold all of it."""
    largest = log_density.max()
    if not np.isfinite(largest):
        raise _NotResolved
    mass: Array = np.exp(log_density - largest) * weights
    mass /= mass.sum()
    # In nearly normal masses a hundredth of the nodes and more count; an empty interval gives NaN.
    if not 1.0 / float((mass**2).sum()) >= _FEWEST_NODES:
        raise _NotResolved
    return mass


def _refined(target: SimulatedErrors, num_labels: int) -> Moments:
    """The moments by the midpoint rule on an even grid: over the whole prior, then where the density is not too small.

    The first grids are too coarse to show the largest density, so that little is cut away after them. A thin band that
    bends through the whole prior (little but the place of the cut is known) has a variance to 10 % only.
    """
    count = _EVEN_NODES[num_labels]
    low, high = np.zeros(num_labels), np.ones(num_labels)
    for cut in _CUTS:
        axes = [
            a + (b - a) * (np.arange(count) + 0.5) / count for a, b in zip(low, high, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, num_labels)
        parts = np.array_split(points, -(-len(points) // _PART))
        density = np.concatenate([target.log_density(part) for part in parts])
        if not np.isfinite(density.max()):
            return Moments(np.full(num_labels, 0.5), np.full(num_labels, PRIOR_VARIANCE))
        if cut is not None:
            kept, width = points[density > density.max() - cut], (high - low) / count
            low = np.maximum(kept.min(axis=0) - 2 * width, 0.0)
            high = np.minimum(kept.max(axis=0) + 2 * width, 1.0)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    mean = mass @ points
    return Moments(mean, mass @ (points - mean) ** 2)


def _mean_and_variance(nodes: Array, mass: Array) -> tuple[float, float]:
    mean = float(mass @ nodes)
    return mean, float(mass @ (nodes - mean) ** 2)


# --------------------------------------------------------------------------------------------------
# The reference: a network's errors beside the best that is possible, and beside classical fitting. NumPy only.


Flags = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Reference:
    """Errors of the first test curves whose posterior is known, one row a curve. Labels are on the network's scale.

    Attributes:
      parameters: their names.
      method: of the Bayes risk, `quadrature` or `importance sampling`.
      num_left_out: curves whose sampled posterior has not converged.
      network, least_squares, bayes: squared error of scaled labels, [curves, p]; `bayes` is that of the posterior mean.
      bayes_variance: posterior variance; its mean is the Bayes risk.
      network_excess, least_squares_excess: squared distance from the posterior mean, [curves, p].
      cramer_rao: Cramér-Rao bound at the true labels, not above the prior's variance; None where errors are unknown.
      inside: whether the least squares fit's 95 % interval holds the truth, [curves, p].
      unidentifiable: what the least squares fit calls so, [curves, p].
      effective_samples: of the sampled posteriors, [curves], or None.
      max_strain, noise_to_signal, num_points: [curves]: largest strain, noise over the largest stress, true points.
      least_squares_curves_per_second: from nothing, on one core.
    """

    parameters: tuple[str, ...]
    method: str
    num_left_out: int
    network: Array
    least_squares: Array
    bayes: Array
    bayes_variance: Array
    network_excess: Array
    least_squares_excess: Array
    cramer_rao: Array | None
    inside: Flags
    unidentifiable: Flags
    effective_samples: Array | None
    max_strain: Array
    noise_to_signal: Array
    num_points: NDArray[np.int64]
    least_squares_curves_per_second: float

    def scores(self) -> ReferenceScores:
        """The means over all curves and over groups of them; η: see `_eta`."""
        samples = self.effective_samples
        by_parameter = {}
        for i, name in enumerate(self.parameters):
            by_parameter[name] = BestPossible(
                **msgspec.structs.asdict(self._scores(i, np.ones(len(self.network), bool))),
                cramer_rao=None if self.cramer_rao is None else float(self.cramer_rao[:, i].mean()),
                posterior_calibration=float((self.bayes[:, i] / self.bayes_variance[:, i]).mean()),
                interval_coverage=float(self.inside[:, i].mean()),
                unidentifiable_share=float(self.unidentifiable[:, i].mean()),
            )
        return ReferenceScores(
            num_curves=len(self.network),
            num_left_out=self.num_left_out,
            method=self.method,
            fewest_effective_samples=None if samples is None else float(samples.min()),
            least_squares_curves_per_second=self.least_squares_curves_per_second,
            parameters=by_parameter,
            bins={
                name: self._binned(getattr(self, name))
                for name in ("max_strain", "noise_to_signal", "num_points")
            },
        )

    def _binned(self, quantity: Array) -> list[Bin]:
        return [
            Bin(
                low=low,
                high=high,
                num_curves=int(inside.sum()),
                parameters={
                    name: self._scores(i, inside) for i, name in enumerate(self.parameters)
                },
            )
            for low, high, inside in bins_of(quantity)
        ]

    def _scores(self, column: int, rows: Flags) -> ErrorScores:
        """The numbers of one parameter over some of the curves."""
        variance = self.bayes_variance[rows, column]
        network, fitted = self.network[rows, column], self.least_squares[rows, column]
        eta, eta_error = _eta(self.network_excess[rows, column], variance)
        fitted_eta, fitted_error = _eta(self.least_squares_excess[rows, column], variance)
        count = len(variance)
        return ErrorScores(
            bayes_risk=float(variance.mean()),
            bayes_risk_error=float(variance.std(ddof=1) / np.sqrt(count)) if count > 1 else None,
            network_mse=float(network.mean()),
            least_squares_mse=float(fitted.mean()),
            eta=eta,
            eta_error=eta_error,
            least_squares_eta=fitted_eta,
            least_squares_eta_error=fitted_error,
        )


def _eta(excess: Array, variance: Array) -> tuple[float, float | None]:
    """Expected MSE over the Bayes risk, and its standard error.

    Given a curve, the squared error of an answer is on average the posterior variance plus the answer's squared
    distance from the posterior mean. Taking that average, instead of the one true label that each curve happens to
    have, leaves the luck of the draw out: a few thousand curves then tell 1.1 from 1.2.
    """
    ratio, error = ratio_of_means(excess, variance)
    return 1.0 + ratio, error


def ratio_of_means(above: Array, below: Array) -> tuple[float, float | None]:
    """mean(above) / mean(below) of paired values, and its standard error.

    Curves that are hard for one are hard for the other, so that the ratio of paired means is known much better than
    either mean (W. G. Cochran, Sampling Techniques, 3rd ed. (1977), eq. 6.13). None for a single curve.
    """
    ratio = float(above.mean() / below.mean())
    if len(above) < 2:
        return ratio, None
    rest = above - ratio * below
    return ratio, float(rest.std(ddof=1) / np.sqrt(len(rest)) / below.mean())


def check_reference(dataset: PackedDataset) -> None:
    """Raises InputError, saying why, where there can be no reference for this data set."""
    if dataset.settings is None:
        raise InputError(
            "no reference: the data set's curves were not simulated here, so their law and noise are not known"
        )
    settings = dataset.settings.resolved()
    if (why := unknown_likelihood(settings)) is None:
        return
    if settings.is_observed:
        raise InputError(
            "no reference: the data set's curves depart from their law (the observation model's options), "
            f"and the best possible error on such curves is not known: {why}"
        )
    raise InputError("no reference: the data set's curves have no noise, the best error is 0")


def measure(
    dataset: PackedDataset,
    parameters: tuple[Parameter, ...],
    network_labels: Array,
    progress: Progress | None = None,
) -> Reference:
    """Least squares and the Bayes risk on the first test curves, beside a network's answers to them.

    Args:
      dataset: simulated, with noise (see `check_reference`); the Bayes risk is kept in a file in its folder.
      parameters: of the network, whose ranges are the scale of all errors.
      network_labels: [curves, p], of the first test curves, clipped to 0-1.
      progress: called with (done, total) curves.
    """
    settings = dataset.settings
    assert settings is not None
    start, count = dataset.num_train + dataset.num_validation, len(network_labels)
    features = np.asarray(dataset.features[start : start + count])
    true = np.asarray(dataset.labels[start : start + count], np.float64)
    strain, stress, valid = observed(settings, features)
    law, noise = settings.build_law(), NoiseModel.of(settings)
    fitted, seconds = _timed_fit(law, noise, strain, stress, valid)
    risk = cached_bayes_risk(
        dataset.folder / BAYES_RISK,
        settings,
        features,
        seed=dataset.manifest.seed,
        start=fitted.labels,
        truth=true,
        progress=progress,
    )
    good = risk.converged
    if (few := good.sum()) < 2:
        raise InputError(
            f"no reference: the posteriors of only {few} of {count} curves have converged"
        )
    pairs = zip(dataset.parameters, parameters, strict=True)
    # Squares of labels, from the data set's scale to the network's.
    scale = np.array([(own.width / other.width) ** 2 for own, other in pairs])
    sampled = risk.effective_samples
    # The error of a sampled posterior mean adds this to a distance from it.
    luck = 0.0 if sampled is None else risk.variance * scale / np.maximum(sampled[:, None], 1.0)
    from_mean = network_labels - _rescaled(risk.mean, dataset.parameters, parameters)
    network_error = network_labels - _rescaled(true, dataset.parameters, parameters)
    low, high = fitted.interval_labels[:, :, 0], fitted.interval_labels[:, :, 1]
    bound = None
    if noise.unknown is None:
        sizes = noise.noise_mpa, noise.noise_relative
        variance = np.einsum("cii->ci", cramer_rao_bound(law, strain, true, *sizes, valid))
        bound = np.minimum(variance, PRIOR_VARIANCE)
    largest = np.abs(np.where(valid, stress, 0.0)).max(axis=1)
    return Reference(
        parameters=tuple(parameter.name for parameter in parameters),
        method=risk.method,
        num_left_out=int((~good).sum()),
        network=network_error[good] ** 2,
        least_squares=(fitted.labels - true)[good] ** 2 * scale,
        bayes=(risk.mean - true)[good] ** 2 * scale,
        bayes_variance=risk.variance[good] * scale,
        network_excess=(from_mean**2 - luck)[good],
        least_squares_excess=((fitted.labels - risk.mean) ** 2 * scale - luck)[good],
        cramer_rao=None if bound is None else bound[good] * scale,
        inside=((low <= true) & (true <= high))[good],
        unidentifiable=fitted.unidentifiable[good],
        effective_samples=None if sampled is None else sampled[good],
        max_strain=np.abs(features[good, :, 0]).max(axis=1).astype(np.float64),
        noise_to_signal=np.hypot(noise.noise_mpa / largest, noise.noise_relative)[good],
        num_points=valid[good].sum(axis=1),
        least_squares_curves_per_second=count / seconds,
    )


def _rescaled(
    labels: Array, of_dataset: tuple[Parameter, ...], of_network: tuple[Parameter, ...]
) -> Array:
    """Labels on the data set's scale -> on the network's, [curves, p]."""
    pairs = zip(of_dataset, of_network, strict=True)
    columns = [
        other.to_unit_interval(one.from_unit_interval(labels[:, i]))
        for i, (one, other) in enumerate(pairs)
    ]
    return np.stack(columns, axis=1)


def _timed_fit(
    law: Law, noise: NoiseModel, strain: Array | TestSet, stress: Array, valid: Flags
) -> tuple[LeastSquaresFit, float]:
    """The fits, and how long they took in seconds."""

    def fitted(rows: slice) -> LeastSquaresFit:
        part = strain[rows]
        if noise.unknown is not None and isinstance(part, TestSet):
            return fit_with_errors(noise.unknown, part, stress[rows], valid[rows])
        return fit_with_noise(
            law, part, stress[rows], valid[rows], noise.noise_mpa, noise.noise_relative
        )

    # The first call of everything loads and reserves; it is no part of the rate.
    fitted(slice(0, 8))
    started = time.perf_counter()
    found = fitted(slice(None))
    return found, time.perf_counter() - started


# --------------------------------------------------------------------------------------------------
# Whether a network's posterior is right on average, and how near it is to the exact one, curve by curve. NumPy only.
#
# Test curves whose parameters are known tell the first.
#
# Log score: I. J. Good, Rational decisions, J. Royal Statistical Society B 14 (1952) 107-114. Ranks: S. Talts et al.,
# Validating Bayesian inference algorithms with simulation-based calibration, 2018, arXiv:1804.06788; the band around
# their distribution: T. Säilynoja, P.-C. Bürkner, A. Vehtari, Graphical test for discrete uniformity and its
# applications in goodness-of-fit evaluation and multiple sample comparison, 2022, arXiv:2103.10522. Coverage of
# regions around random points (TARP): P. Lemos, A. Coogan, Y. Hezaveh, L. Perreault-Levasseur, Sampling-based
# accuracy testing of posterior estimators for general inference, ICML 2023, arXiv:2302.03026. z-score beside
# contraction: M. Betancourt, Towards a principled Bayesian workflow, 2020.
#
# The law's likelihood, where it is known, tells the second. The network's draws are weighed by the exact posterior
# over the network's density, which tells without any other sampler how heavy the weights' tail is, and how well the
# best possible classifier could tell the two posteriors apart. A few curves' exact posteriors are also sampled
# (`sampling.adaptive_of_many`) and compared with the network's: by their moments, by the log densities of the truth,
# and by a classifier that is given draws of both (C2ST, of the nearest neighbours: D. Lopez-Paz, M. Oquab, Revisiting
# classifier two-sample tests, ICLR 2017, arXiv:1610.06545).


# _CURVES: test curves; _DRAWS: draws of each.
_CURVES, _DRAWS = 5000, 200
# _REGIONS: shares of the posterior in the joint regions of highest density, %.
_REGIONS = (50, 90, 95)
# _PLACES: places at which a distribution is compared with the uniform one; _SETS: simulated sets that make the band.
_PLACES, _SETS = 100, 1000
# _COMPARED_DRAWS: draws of the network of each curve that is compared.
_COMPARED_DRAWS = 1000
# _ENOUGH: independent draws that draws of the exact posterior are worth at least.
_ENOUGH = 1000.0
# _SAMPLED: curves whose exact posteriors are sampled; _TOGETHER: curves weighed between two calls of `progress`.
_SAMPLED, _TOGETHER = 100, 20
# _FOLDS: parts of the draws that the classifier is tested on in turn.
_FOLDS = 5


def check_posterior(
    identifier: Identifier, features: np.ndarray, true_labels: Array
) -> PosteriorScores | None:
    """The numbers of `posterior_scores` for the first of these curves; None for a network without a whole posterior."""
    if identifier.uncertainty != "flow":
        return None
    features, true = features[:_CURVES], true_labels[:_CURVES]
    names = [parameter.name for parameter in identifier.parameters]
    draws = identifier.draws(features, _DRAWS)
    return posterior_scores(names, draws, true, identifier.log_density(features, true))


def posterior_scores(
    names: Sequence[str], draws: Posterior, true_labels: Array, log_density: Array
) -> PosteriorScores:
    """How right posteriors are on average.

    Args:
      draws: [curves, samples], of those curves.
      true_labels: [curves, p].
      log_density: [curves], at the true labels.
    """
    curves = len(true_labels)
    assert draws.label_log_density is not None
    denser = np.mean(draws.label_log_density > log_density[:, None], axis=1)
    random = np.random.default_rng(0)
    below = np.sum(draws.labels < true_labels[:, None], axis=1)
    ranks = _uniform(below, draws, random)
    band = _band(curves)
    contraction = 1.0 - np.mean(draws.std**2, axis=0) / PRIOR_VARIANCE
    z = (draws.mean - true_labels) / draws.std
    error = float(np.std(log_density, ddof=1) / np.sqrt(curves)) if curves > 1 else None
    return PosteriorScores(
        num_curves=curves,
        log_score=float(np.mean(log_density)),
        log_score_error=error,
        worst_log_score=float(np.min(log_density)),
        joint_coverage={
            str(percent): float(np.mean(denser <= percent / 100)) for percent in _REGIONS
        },
        ranks={name: _against_uniform(ranks[:, i], band) for i, name in enumerate(names)},
        tarp=_against_uniform(_uniform(_nearer(draws, true_labels), draws, random), band),
        band=band,
        contraction={name: float(contraction[i]) for i, name in enumerate(names)},
        z_score={
            name: ZScore(float(z[:, i].mean()), float(np.sqrt(np.mean(z[:, i] ** 2))))
            for i, name in enumerate(names)
        },
    )


def _uniform(counts: Array, draws: Posterior, random: np.random.Generator) -> Array:
    """Counts of a curve's draws as shares, anywhere between two draws: of a right posterior uniform and not steps."""
    return (counts + random.uniform(size=counts.shape)) / (draws.labels.shape[1] + 1)


def _nearer(draws: Posterior, true_labels: Array) -> Array:
    """How many draws of each curve lie nearer to a random point than the truth does: [curves].

    The points are normally distributed with each posterior's own mean and standard deviations. Distances are measured
    in these standard deviations: then balls around the points cut through the posterior wherever it is, and every label
    counts, not the widest alone.
    """
    mean, std = draws.mean, draws.std
    # A generator of its own, so that ranks do not depend on the number of labels.
    points = np.random.default_rng(1).standard_normal(mean.shape)
    of_truth = np.sum(((true_labels - mean) / std - points) ** 2, axis=1)
    away = (draws.labels - mean[:, None]) / std[:, None] - points[:, None]
    return np.sum(np.sum(away**2, axis=2) < of_truth[:, None], axis=1)


def _against_uniform(values: Array, band: float) -> Uniformity:
    """The distribution of values [curves] between 0 and 1."""
    places = np.arange(1, _PLACES) / _PLACES
    difference = np.mean(values[:, None] <= places, axis=0) - places
    scaled = np.abs(difference) / np.sqrt(places * (1 - places) / len(values))
    return Uniformity(
        largest_difference=float(difference[np.argmax(np.abs(difference))]),
        inside_band=bool(scaled.max() <= band),
        difference=difference.round(5).tolist(),
    )


def _band(curves: int) -> float:
    """Standard errors that the distribution of `curves` uniform numbers stays within, at all places, 19 of 20 times."""
    random, places = np.random.default_rng(0), np.arange(1, _PLACES) / _PLACES
    counts = random.multinomial(curves, np.full(_PLACES, 1 / _PLACES), _SETS)
    shares = np.cumsum(counts[:, :-1], axis=1) / curves
    scaled = np.abs(shares - places) / np.sqrt(places * (1 - places) / curves)
    return float(np.percentile(scaled.max(axis=1), 95))


def compare_posteriors(
    identifier: Identifier,
    dataset: "PackedDataset",
    num_curves: int,
    progress: Progress | None = None,
) -> BesideExact:
    """A network's posteriors of the first test curves beside exact ones.

    `effective_share`: median share of independent draws that the weighted ones are worth; `best_classifier`: the
    accuracy with which the two posteriors could be told apart at best, (1 + total variation) / 2. For curves among the
    first 100 whose sampled posterior has converged: `c2st`; `log_score_gap`, mean of log exact density - log network
    density at the truth, nats, 0 is perfect. None for these, and no parameters, where none has converged.

    Args:
      num_curves: at most as many as there are test curves.
      progress: called with (done, total) curves.

    Raises:
      InputError: there is no exact posterior: the curves were not simulated here, have no noise, errors that are drawn
        and not told, or other ranges than the network's.
    """
    target, features, true = _known(identifier, dataset, num_curves)
    count = len(true)
    draws = identifier.draws(features, _COMPARED_DRAWS, seed=1)
    ratios = np.empty(draws.labels.shape[:2])
    for first in range(0, count, _TOGETHER):
        rows = slice(first, first + _TOGETHER)
        ratios[rows] = _log_ratios(target, np.arange(count)[rows], draws)
        if progress:
            progress(min(first + _TOGETHER, count), count)
    weighed = [Posterior.weighted(*each) for each in zip(draws.labels, ratios, strict=True)]
    tails = np.array([each.certificate.pareto_k for each in weighed])
    evidence = scipy.special.logsumexp(ratios, axis=1) - np.log(_COMPARED_DRAWS)
    with np.errstate(all="ignore"):  # where no draw is possible, the weights are NaN
        weights = np.nan_to_num(np.exp(ratios - evidence[:, None]), nan=0.0)
    apart = 0.5 + 0.5 * np.mean(np.maximum(1.0 - weights, 0.0), axis=1)
    few = slice(0, min(count, _SAMPLED))
    said = identifier.log_density(features[few], true[few])
    found = BesideExact(
        num_curves=count,
        pareto_k=Tails(
            median=float(np.median(tails)), share_above=float(np.mean(tails > LARGEST_K))
        ),
        effective_share=float(
            np.median([one.effective_draws for one in weighed]) / _COMPARED_DRAWS
        ),
        best_classifier=Spread(**_spread(apart)),
    )
    _add_sampled(found, identifier, target, draws, true[few], said)
    return found


def _log_ratios(target: SimulatedErrors, records: NDArray[np.integer], draws: Posterior) -> Array:
    """Logarithms of the exact posterior over the density of the draws of some records, up to a constant of the record.

    Args:
      target: without errors that are integrated over.
      records: [k], places in both `target` and `draws`.

    Returns:
      [k, draws]; -inf where a draw is impossible.
    """
    assert draws.label_log_density is not None
    labels = draws.labels[records]
    rows = np.repeat(records, labels.shape[1])
    density = target.log_density(labels.reshape(len(rows), -1), rows)
    return np.asarray(density.reshape(labels.shape[:2]) - draws.label_log_density[records])


def _known(
    identifier: Identifier, dataset: "PackedDataset", num_curves: int
) -> tuple[SimulatedErrors, np.ndarray, Array]:
    """The likelihoods of the first test curves, these themselves, and their true labels."""
    check_reference(dataset)
    settings = dataset.settings
    assert settings is not None
    noise = NoiseModel.of(settings)
    if noise.unknown is not None:
        raise InputError(
            "the network's posteriors are not compared with exact ones: the records' errors are not told, and the "
            "network answers without them"
        )
    if dataset.parameters != identifier.parameters:
        raise InputError(
            "the network's posteriors are not compared with exact ones: the data set was drawn from other ranges, so "
            "that its prior is another one"
        )
    start = dataset.num_train + dataset.num_validation
    rows = slice(start, start + min(num_curves, dataset.num_test))
    features = np.asarray(dataset.features[rows])
    target = SimulatedErrors(settings.build_law(), noise, *observed(settings, features))
    return target, features, np.asarray(dataset.labels[rows], np.float64)


def _add_sampled(
    found: BesideExact,
    identifier: Identifier,
    target: SimulatedErrors,
    draws: Posterior,
    true: Array,
    said: Array,
) -> None:
    """Compares draws, and the density `said` of the truth, with sampled exact posteriors of the first curves."""
    count = len(true)
    few = slice(0, count)
    first = target[few]
    posteriors = adaptive_of_many(
        first,
        np.stack([true, draws.mean[few]], axis=1),
        [np.random.default_rng([2, i]) for i in range(count)],
        enough=_ENOUGH,
    )
    good = [i for i, one in enumerate(posteriors) if one.converged]
    if not good:
        return
    mean, variance = (
        np.array([getattr(posteriors[i], name) for i in good]) for name in ("mean", "variance")
    )
    deviation = np.sqrt(variance)
    evidence = np.array([posteriors[i].log_evidence for i in good])
    gap = first.log_density(true[good], np.array(good)) - evidence - said[good]
    far = np.abs(draws.mean[good] - mean) / deviation
    wide = draws.std[good] / deviation
    accuracy = np.array([c2st(draws.labels[i], posteriors[i]) for i in good])
    found.c2st = C2st(num_curves=len(good), **_spread(accuracy))
    found.log_score_gap = float(gap.mean())
    found.log_score_gap_error = float(gap.std() / np.sqrt(len(gap)))
    found.parameters = {
        p.name: Closeness(
            mean_error=float(np.median(far[:, i])), std_ratio=float(np.median(wide[:, i]))
        )
        for i, p in enumerate(identifier.parameters)
    }


def c2st(labels: Array, exact: Posterior) -> float:
    """Accuracy with which a classifier tells draws of a network, [draws, p], from draws of the exact posterior.

    Both kinds count as much. Each draw is told by its nearest ones among four fifths of all, itself left out. Distances
    are in coordinates in which the exact posterior has unit covariance. 0.5 where they cannot be told apart.
    """
    weights = np.ones(len(exact.labels))
    if exact.log_weights is not None:
        weights = np.exp(exact.log_weights)
    weights = weights / weights.sum()
    points = np.concatenate([labels, exact.labels]) - exact.mean
    centred = points[len(labels) :]
    variance = np.diag(np.maximum(exact.variance, 1e-24))
    covariance = (centred * weights[:, None]).T @ centred + 1e-6 * variance
    points = np.linalg.solve(np.linalg.cholesky(covariance), points.T).T
    shares = np.concatenate([np.full(len(labels), 1.0 / len(labels)), -weights])
    fold = np.random.default_rng(0).permutation(len(points)) % _FOLDS
    right = np.empty(len(points), np.bool_)
    for i in range(_FOLDS):
        train, test = fold != i, fold == i
        tree = scipy.spatial.KDTree(points[train])
        _, near = tree.query(points[test], k=int(np.sqrt(train.sum())))
        right[test] = (shares[train][near].sum(axis=1) > 0) == (shares[test] > 0)
    return float(0.5 * np.abs(shares) @ right)


def _spread(values: Array) -> dict[str, float]:
    return {"median": float(np.median(values)), "p95": float(np.quantile(values, 0.95))}


# --------------------------------------------------------------------------------------------------
# How good a network's answers are on the frozen noisy test curves of its data set.


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """A network's accuracy on the test curves, and what it was worked out from.

    Attributes:
      scores: what `evaluation.json` holds.
      answers: to each curve, for pictures.
      reference: the best that is possible and least squares, curve by curve (`add_reference`); None without it.
    """

    scores: Evaluation
    answers: ScoredAnswers
    reference: Reference | None = None


def evaluate(
    identifier: Identifier,
    dataset: PackedDataset,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluated:
    """Compares the network with the truth on the data set's test curves, which no training has seen.

    Answers are clipped to their range, as `identify` does. The truth goes from the data set's label scale to the
    network's, so that a network can be judged on curves that were drawn from other ranges.

    Args:
      progress: called with (done, total) curves.

    Raises:
      InputError: the data set has no test curves, or other parameters than the network.
    """
    check_same_task(identifier, dataset)
    start = dataset.num_train + dataset.num_validation
    total = dataset.num_test
    noise = _noise(dataset)
    labels, known, errors, largest = [], list[tuple[Array, Array]](), [], []
    for first in range(0, total, CURVES_PER_CALL):
        rows = slice(start + first, start + min(first + CURVES_PER_CALL, total))
        features = dataset.features[rows]
        raw, std, limits = identifier.answers(features, COVERAGES)
        labels.append(np.clip(raw, 0.0, 1.0))
        largest.append(features[:, :, :2].max(axis=1))
        known += [] if std is None or limits is None else [(std, limits)]
        errors.append(_curve_errors(identifier, dataset, features, labels[-1], noise))
        if progress:
            progress(min(first + CURVES_PER_CALL, total), total)
    stored = np.asarray(dataset.labels[start : start + total], np.float64)
    true_values = np.stack(
        [p.from_unit_interval(stored[:, i]) for i, p in enumerate(dataset.parameters)], axis=1
    )
    true = _true_labels(identifier, true_values)
    checked = check_posterior(identifier, dataset.features[start:], true)
    rate = _network_rate(identifier, dataset.features[start : start + CURVES_PER_CALL])
    every = np.concatenate(labels)
    values = identifier.values(every)
    scores = {
        parameter.name: score_parameter(parameter, true_values[:, i], values[:, i], every[:, i])
        for i, parameter in enumerate(identifier.parameters)
    }
    of_curves = [error for error in errors if error is not None]
    percent = np.concatenate([error[0] for error in of_curves]) if of_curves else None
    over_noise = [error[1] for error in of_curves if error[1] is not None]
    found = Evaluation(
        law=identifier.law.name if identifier.law else None,
        num_curves=total,
        mse=float(np.mean([score.mse for score in scores.values()])),
        rmse_percent=None if percent is None else float(percent.mean()),
        rmse_percent_p95=None if percent is None else float(np.percentile(percent, 95)),
        rmse_over_noise=float(np.concatenate(over_noise).mean()) if over_noise else None,
        curves_per_second=rate,
        coverage=_coverage(identifier, true, every, known),
        posterior=checked,
        parameters=scores,
    )
    strain, stress = np.concatenate(largest).T
    answers = ScoredAnswers(true_values, values, strain, stress, np.empty((0, values.shape[1])))
    return Evaluated(found, answers)


def add_reference(
    evaluation: Evaluated,
    identifier: Identifier,
    dataset: PackedDataset,
    num_curves: int,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluated:
    """The evaluation with the reference, worked out for the first `num_curves` test curves.

    The first time takes about 5 ms a curve for two parameters, 0.2 s for more and 1 to 2 s for laws with memory; the
    data set's folder keeps the Bayes risk.

    Args:
      evaluation: what `evaluate` returned for this network and data set.
      progress: called with (done, total) curves, the first time.

    Raises:
      InputError: the data set's curves were not simulated, have no noise, or an observation model without a likelihood.
    """
    check_reference(dataset)
    values = evaluation.answers.identified[:num_curves]
    labels = [p.to_unit_interval(values[:, i]) for i, p in enumerate(identifier.parameters)]
    measured = measure(dataset, identifier.parameters, np.stack(labels, axis=1), progress)
    scores = msgspec.structs.replace(evaluation.scores, reference=measured.scores())
    answers = dataclasses.replace(evaluation.answers, floor_variance=measured.bayes_variance)
    return Evaluated(scores, answers, measured)


def reference_is_quick(dataset: PackedDataset) -> bool:
    """Whether the Bayes risk is integrated, once a data set: 4 s of one processor for 2,000 curves.

    A sampled risk takes a minute or so; `tfmat evaluate` adds it.
    """
    settings = dataset.settings
    is_sampled = settings is not None and has_unknown_errors(settings)
    return len(dataset.parameters) <= _MOST_INTEGRATED and not is_sampled


def find_test_data(
    workdir: str | os.PathLike, data_dir: str | os.PathLike | None = None
) -> pathlib.Path:
    """The folder of the data set to evaluate a run on; raises InputError where there is none.

    Args:
      workdir: the run's folder; its config.json names the data set that it was trained on.
      data_dir: another data set, or a folder that holds the run's own under its name.
    """
    if data_dir is not None and is_dataset(os.fspath(data_dir)):
        return pathlib.Path(data_dir)
    config_file = pathlib.Path(workdir) / "config.json"
    own = read_run_details(config_file).data_dir
    if own is None:
        raise InputError(f"{config_file} does not name the run's data set; give it with --data_dir")
    folder = (
        pathlib.Path(own) if data_dir is None else pathlib.Path(data_dir) / pathlib.Path(own).name
    )
    if not is_dataset(folder):
        raise InputError(
            f"the run's data set {folder} is not there; give its folder with --data_dir, or generate it"
        )
    return folder


def _network_rate(identifier: Identifier, features: np.ndarray) -> float:
    """Curves a second of the network alone, the best of three calls (it was traced before)."""
    if identifier.uncertainty == "flow":  # which takes as long for fifty times fewer
        features = features[: CURVES_PER_CALL // 50]
    fastest = np.inf
    for _ in range(3):
        with identifier.afresh():
            started = time.perf_counter()
            identifier.predict(features)
            fastest = min(fastest, time.perf_counter() - started)
    return len(features) / fastest


def check_same_task(identifier: Identifier, dataset: PackedDataset) -> None:
    """InputError where the data set has no test curves, or others than the network answers."""
    if dataset.num_test == 0:
        raise InputError(
            f"the data set {dataset.folder} holds no test curves; generate it with --num_test=25000"
        )
    told = [[(p.name, p.unit) for p in one.parameters] for one in (identifier, dataset)]
    if told[0] != told[1]:
        raise InputError(
            f"the model identifies {_listed(identifier.parameters)}, the data set {dataset.folder} holds "
            f"{_listed(dataset.parameters)}; give the data set of the same law with --data_dir"
        )
    if dataset.form.shape != identifier.form.shape:
        raise InputError(
            f"the model takes {identifier.form.num_points} points a curve, the data set {dataset.folder} has "
            f"{dataset.features.shape[1]}; give another with --data_dir"
        )
    tests = [[programme.name for programme in one.form.programmes] for one in (identifier, dataset)]
    if tests[0] != tests[1]:
        raise InputError(
            f"the model was trained on {', '.join(tests[0])} tests, the data set {dataset.folder} holds "
            f"{', '.join(tests[1])}; give another with --data_dir"
        )


def _listed(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(f"{p.name} ({p.unit})" for p in parameters)


def _noise(dataset: PackedDataset) -> tuple[float, float]:
    """The test curves' noise: standard deviation in MPa, and as a fraction of the stress; 0 where it is not known."""
    settings = dataset.settings
    # An observation model's noise differs from curve to curve, and is not all that parts a curve from its law.
    if settings is None or (settings.is_observed and not has_known_errors(settings.resolved())):
        return 0.0, 0.0
    if dataset.form.programmes:  # see `records.simulation.observed`
        known = settings.noise_told or dataset.form.noise(settings).all()
        return float(known), settings.noise_relative
    default = settings.build_law().noise_mpa
    return (default if settings.noise_mpa is None else settings.noise_mpa), settings.noise_relative


def _curve_errors(
    identifier: Identifier,
    dataset: PackedDataset,
    features: np.ndarray,
    labels: Array,
    noise: tuple[float, float],
) -> tuple[Array, Array | None] | None:
    """Distance of each re-simulated curve: in % of its maximum stress, and over its noise; each [curves]."""
    if identifier.law is None:
        return None
    settings = dataset.settings
    strain, stress, valid = observed(settings, features) if settings else split_features(features)
    resimulated = identifier.law.label_stress(strain, labels)
    return rmse_percent(stress, resimulated, valid), rmse_over_noise(
        stress, resimulated, valid, *noise
    )


def _true_labels(identifier: Identifier, true_values: Array) -> Array:
    """[curves, parameters], on the scale of the network's ranges."""
    columns = zip(identifier.parameters, true_values.T, strict=True)
    return np.stack([p.to_unit_interval(column) for p, column in columns], axis=1)


def _coverage(
    identifier: Identifier, true: Array, labels: Array, known: list[tuple[Array, Array]]
) -> dict[str, Coverage] | None:
    if not known:
        return None
    std = np.concatenate([block[0] for block in known])
    limits = np.concatenate([block[1] for block in known], axis=1)
    names = [parameter.name for parameter in identifier.parameters]
    return coverage(names, true, labels, std, limits)
