"""Draws from a posterior of labels: means, intervals of highest density, densities in units. NumPy only."""

import dataclasses
import functools
from collections.abc import Collection, Sequence

import numpy as np
import scipy.special

from tfmat.errors import InputError
from tfmat.identification.likelihood import PRIOR_VARIANCE
from tfmat.materials.law import Array, Parameter

# Networks draw no nearer to the ends of a range (`models.flow`): draws that all stand there tell a label this well.
_NARROWEST = 1e-6
# Intervals are told to this share of a draw.
_PLACES = 65
# How much wider the second half of the draws is that are to be weighed.
_WIDER = 1.5


@dataclasses.dataclass(frozen=True)
class Samples:
    """Samples of the posterior of one curve's p identified parameters.

    Attributes:
      names, units: of the parameters, p each.
      values: [samples, p], in the units.
      log_density: [samples], logarithm of the posterior density over the parameters in their units.
      labels, label_log_density: the same on the scale of the parameters' ranges, 0-1.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    values: Array
    log_density: Array
    labels: Array
    label_log_density: Array


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws from the posterior of the labels of curves.

    Attributes:
      labels: [curves, draws, p], within 0-1.
      log_density: [curves, draws], logarithm of the posterior density there, on the labels' scale.
      proposed: [curves, draws], logarithm of the density that they were drawn from, where that is another one.
    """

    labels: Array
    log_density: Array
    proposed: Array | None = None

    @property
    def mean(self) -> Array:
        """[curves, p]."""
        return self.labels.mean(axis=1)

    @property
    def std(self) -> Array:
        """[curves, p], of draws that are cut to the middle 99 %; never 0, also where all draws are at an end.

        A network leaves a few thousandths of the density far from where it belongs, which would make the most of it.
        """
        ends = np.quantile(self.labels, [0.005, 0.995], axis=1, keepdims=True)
        return np.maximum(np.clip(self.labels, *ends).std(axis=1), _NARROWEST)

    def intervals(self, coverages: Sequence[float]) -> Array:
        """The shortest interval of each label that holds this share of its draws: [coverages, curves, p, 2]."""
        count = self.labels.shape[1]
        ordered = np.sort(self.labels, axis=1)
        found = np.empty((len(coverages), *self.labels.shape[::2], 2))
        for i, coverage in enumerate(coverages):
            begins = np.linspace(0.0, 1.0 - coverage, _PLACES)
            low, high = (_quantiles(ordered, q * count - 0.5) for q in (begins, begins + coverage))
            shortest = np.argmin(high - low, axis=1)[:, None]
            for side, ends in enumerate((low, high)):
                found[i, :, :, side] = np.take_along_axis(ends, shortest, axis=1)[:, 0]
        return found

    def samples(self, parameters: Sequence[Parameter], curve: int) -> Samples:
        """The draws of one curve, also in the units of its parameters."""
        labels, density = self.labels[curve], self.log_density[curve]
        values = [p.from_unit_interval(labels[:, i]) for i, p in enumerate(parameters)]
        slopes = [p.slope(column) for p, column in zip(parameters, values, strict=True)]
        return Samples(
            tuple(p.name for p in parameters),
            tuple(p.unit for p in parameters),
            np.stack(values, axis=1),
            density - np.log(slopes).sum(axis=0),
            labels,
            density,
        )


def normal_proposals(mean: Array, covariance: Array, samples: int) -> Draws:
    """Draws from a normal distribution of one curve's labels, and behind them as many wider ones.

    They may leave the ranges; the density is that of all, beyond the ranges too.

    Args:
      mean: [p]; covariance: [p, p], which may be infinite or singular; no label is less known than by its range.
    """
    count = len(mean)
    if not np.isfinite(covariance).all():
        covariance = np.diag(np.full(count, PRIOR_VARIANCE))
    variances, axes = np.linalg.eigh(covariance)
    deviations = np.sqrt(np.clip(variances, _NARROWEST**2, count * PRIOR_VARIANCE))
    normal = np.random.default_rng(0).standard_normal((1, 2 * samples, count))
    numbers, over_normal = with_wider_half(normal)
    labels = np.clip(mean, 0.0, 1.0) + (numbers * deviations) @ axes.T
    density = _log_normal(numbers).sum(axis=2) - np.log(deviations).sum()
    return Draws(labels, density, density + over_normal)


def with_wider_half(normal: np.ndarray) -> tuple[np.ndarray, Array]:
    """Numbers to propose draws from, which reach further than a network that is too sure of its tails.

    The second half of the draws is wider than the first, and each counts as one of the mixture of both (T. Hesterberg,
    Weighted average importance sampling and defensive mixture distributions, Technometrics 37 (1995) 185-194; the
    weights: A. Owen, Y. Zhou, Safe and effective importance sampling, J. American Statistical Association 95 (2000)).

    Args:
      normal: [curves, draws, p], from a standard normal distribution.

    Returns:
      The numbers, and [curves, draws], logarithm of the mixture's density over the standard normal one.
    """
    half = normal.shape[1] // 2
    numbers = np.concatenate(
        [normal[:, :half], normal.dtype.type(_WIDER) * normal[:, half:]], axis=1
    )
    squares = np.sum(np.square(numbers), axis=2, dtype=np.float64)
    wide = 0.5 * (1.0 - _WIDER**-2) * squares - normal.shape[2] * np.log(_WIDER)
    share = half / normal.shape[1]
    return numbers, np.logaddexp(np.log(share), np.log1p(-share) + wide)


def _quantiles(ordered: Array, places: Array) -> Array:
    """Values at places between the ordered draws [curves, draws, p], 0 being the first: [curves, places, p]."""
    places = np.clip(places, 0, ordered.shape[1] - 1)
    below = np.minimum(places.astype(int), ordered.shape[1] - 2)
    part = (places - below)[:, None]
    return ordered[:, below] * (1.0 - part) + ordered[:, below + 1] * part


def check_samples(
    samples: int,
    uncertainty: str,
    fixed: Collection[str] = (),
    *,
    is_sampled: bool = False,
) -> None:
    """InputError where there is no posterior to draw from.

    Args:
      samples: that are asked for.
      uncertainty: the network's head, `none` where there is no network.
      fixed: parameters that are given, about which no network was asked.
      is_sampled: whether a law's likelihood is sampled about the fit of least squares where no network answers.
    """
    if samples < 1:
        raise InputError(f"samples is {samples}; give 1 or more")
    if (fixed or uncertainty == "none") and not is_sampled:
        raise InputError(
            "samples need least squares of a known law, corrected (leave --noleast_squares and --nocorrect out), or a "
            "network that says how sure it is and knows all parameters; train one with model.uncertainty=flow"
        )


def independent_normal(labels: Array, std: Array, samples: int, seed: int) -> Draws:
    """Draws from independent Gaussians, cut to the ranges: what mean and std [curves, p] say of each label alone."""
    shape = (len(labels), samples, labels.shape[1])
    ends = [(end - labels) / std for end in (0.0, 1.0)]
    low, high = (scipy.special.ndtr(end) for end in ends)
    mass = (high - low)[:, None]
    uniform = np.random.default_rng(seed).uniform(size=shape)
    drawn = labels[:, None] + std[:, None] * scipy.special.ndtri(low[:, None] + uniform * mass)
    drawn = np.clip(drawn, 0.0, 1.0)
    standard = (drawn - labels[:, None]) / std[:, None]
    density = _log_normal(standard) - np.log(std[:, None]) - np.log(mass)
    return Draws(drawn, density.sum(axis=2))


def _log_normal(numbers: Array) -> Array:
    """Logarithm of the density of the standard normal distribution."""
    return -0.5 * np.square(numbers) - 0.5 * np.log(2.0 * np.pi)


@functools.lru_cache(maxsize=8)
def even_normal(samples: int, num_labels: int) -> Array:
    """[samples, num_labels] spread evenly over a standard normal distribution: a power of 2 of Sobol's points.

    A. B. Owen, Scrambled net variance for integrals of smooth functions, Annals of Statistics 25 (1997) 1541-1562.
    """
    import scipy.stats  # half a second, and least squares needs none of it

    points = scipy.stats.qmc.Sobol(num_labels, rng=0).random(samples)
    return scipy.special.ndtri(np.clip(points, 1e-9, 1.0 - 1e-9))
