"""The posterior of a curve's labels: draws, their weights and density, and what they are worth. NumPy only.

Weighted draws are worth what the tail of their weights says: averages can be relied on where Pareto's k of it is at
most 0.7 (A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry, Pareto smoothed importance sampling, J. Mach. Learn. Res.
25 (2024) 72). The largest weights are smoothed by the tail that was fitted.
"""

import dataclasses
import functools
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

import tfmat
from tfmat.errors import InputError
from tfmat.files import atomic_write
from tfmat.identification.results import Sampled, SampledPosterior
from tfmat.materials.law import PRIOR_VARIANCE, Array, Parameter

Status = Literal["amortised", "corrected", "resampled", "chains", "do not trust"]

# LARGEST_K: the largest Pareto k of weights that have converged.
LARGEST_K = 0.7
# LARGEST_R_HAT: the largest R-hat of chains that have converged (A. Vehtari et al., Bayesian Anal. 16 (2021) 667-718).
LARGEST_R_HAT = 1.01
# FEWEST_SAMPLES: the fewest independent draws that a posterior which has converged is worth.
FEWEST_SAMPLES = 100.0
# _HOPELESS: stands for a k that is not finite.
_HOPELESS = 99.0
# _FEWEST_DRAWS: fewer weights have no tail.
_FEWEST_DRAWS = 50
# _NARROWEST: least standard deviation of a label. Networks draw no nearer to the ends of a range (`models.flow`).
_NARROWEST = 1e-6
# _PLACES: places at which a shortest interval may begin.
_PLACES = 65
# _WIDER: how much wider the second half of the draws is that are to be weighed.
_WIDER = 1.5
# _TOGETHER: draws whose responses are made at once, for the memory's sake.
_TOGETHER = 64
# _PACKAGES: ArviZ's package of data, and the package that writes its files.
_PACKAGES = ("arviz_base", "h5netcdf")


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far the draws of one curve's posterior can be relied on.

    Attributes:
      status: `amortised`, the network's own, which are right on average only; `corrected` with the law's likelihood;
        `resampled` by sampling that went on from them; `chains` where Markov chains went on from that; `do not trust`,
        then `reason` says why. Without a network the same begins at draws from the normal distribution that least
        squares says.
      reason: why they are no better; empty for corrected and resampled ones, and for chains.
      pareto_k: of the weights, 99 at the most, to be at most 0.7; r_hat: of the worst label of chains, at most 1.01,
        None where there are none; effective_draws: Kish's number of independent draws that they are worth. None where
        nothing was weighted.
      posterior_predictive_p: how probable errors are, given the posterior, that are as unlike those of the likelihood.
      independent_noise_p: the same where errors are but independent noise of the size that the points show: a small one
        says that the law does not hold up to its noise, and the intervals are wider for it.
    """

    status: Status
    reason: str = ""
    pareto_k: float | None = None
    effective_draws: float | None = None
    posterior_predictive_p: float | None = None
    independent_noise_p: float | None = None
    r_hat: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the draws are of the law's posterior, as far as their weights tell."""
        return self.status in ("corrected", "resampled", "chains")

    @property
    def shortcoming(self) -> str:
        """Why moments of weighted draws, or of chains, are not to be relied on; empty where they are."""
        k, r_hat, worth = self.pareto_k, self.r_hat, self.effective_draws
        if r_hat is None and k is not None and not k <= LARGEST_K:
            return f"Pareto k {k:.2g} (at most {LARGEST_K:g})"
        if r_hat is not None and not r_hat <= LARGEST_R_HAT:
            return f"R-hat {r_hat:.3g} of chains (at most {LARGEST_R_HAT:g})"
        if worth is not None and worth < FEWEST_SAMPLES:
            return f"worth {worth:.0f} draws (at least {FEWEST_SAMPLES:g})"
        return ""


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Draws from the joint posterior of one curve's p identified parameters, or of many curves at once.

    Arrays of many curves have the curves as their first axis, and `posterior[i]` is the posterior of one of them.

    Attributes:
      labels: [draws, p], the parameters on the scale of their ranges, 0-1.
      label_log_density: logarithm of the posterior density on that scale, [draws]; None where it was not kept, because
        errors were integrated over.
      certificate: what the draws are worth.
      parameters: p; empty where nobody asks for values in their units.
      log_weights: [draws], of weights whose sum is 1; None where all draws count alike.
      log_evidence: logarithm of the mean likelihood over the prior, up to the constant of the likelihood; NaN where it
        is not known.
      proposed: logarithm of the density that draws come from which are to be weighed, [draws]; None: their own.
      errors: labels of what was integrated over, [draws, e]; None where there is nothing.
      starts: labels [starts, p] in or near the mass, where further sampling begins beside the draws.
      chains: the ensemble of walkers that each draw is from, [draws]; None where no chains were sampled.
    """

    labels: Array
    label_log_density: Array | None = None
    certificate: Certificate = Certificate("amortised")
    parameters: tuple[Parameter, ...] = ()
    log_weights: Array | None = None
    log_evidence: float = np.nan
    proposed: Array | None = None
    errors: Array | None = None
    starts: Array | None = None
    chains: NDArray[np.intp] | None = None

    @classmethod
    def weighted(
        cls,
        labels: Array,
        log_ratios: Array,
        *,
        proposals: float = np.nan,
        errors: int = 0,
        log_likelihood: Array | None = None,
        status: Status = "corrected",
    ) -> "Posterior":
        """Weighs draws [draws, p] by the logarithms [draws] of posterior over proposal density, up to a constant.

        Args:
          proposals: draws over the factor by which the proposal density was too large, those outside of the ranges
            included, where the evidence is to be known.
          errors: so many of the last labels are those of errors, and no part of the answer.
          log_likelihood: of each draw, where the density is to be kept.
        """
        possible = np.isfinite(log_ratios)
        labels, log_ratios = labels[possible], log_ratios[possible]
        labels, nuisances = np.split(labels, [labels.shape[1] - errors], axis=1)
        if len(labels) < _FEWEST_DRAWS:
            hopeless = Certificate(status, pareto_k=_HOPELESS, effective_draws=0.0)
            return cls(labels, None, hopeless, log_weights=log_ratios, errors=nuisances)
        # It takes densities that are left out, in cross-validation: the negatives of the logarithms of the weights.
        with np.errstate(all="ignore"):  # a tail without hope, which its k says
            smoothed, pareto_k = import_statistics().psislw(-log_ratios)
        smoothed = smoothed - scipy.special.logsumexp(smoothed)
        tail = float(np.nan_to_num(np.minimum(pareto_k, _HOPELESS), nan=_HOPELESS))
        effective = float(np.nan_to_num(1.0 / np.exp(2.0 * smoothed).sum()))
        evidence = float(scipy.special.logsumexp(log_ratios) - np.log(proposals))
        density = None
        if not errors and log_likelihood is not None:
            density = log_likelihood[possible] - evidence
        certificate = Certificate(status, pareto_k=tail, effective_draws=effective)
        return cls(
            labels,
            density,
            certificate,
            log_weights=smoothed,
            log_evidence=evidence,
            errors=nuisances,
        )

    def __getitem__(self, curve: int) -> "Posterior":
        """The posterior of one of many curves."""
        arrays = ("labels", "label_log_density", "log_weights", "proposed", "errors", "starts")
        known = {name: getattr(self, name) for name in arrays}
        return dataclasses.replace(
            self, **{name: each[curve] for name, each in known.items() if each is not None}
        )

    @property
    def samples(self) -> "Posterior":
        """The draws, which are the posterior itself."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, p."""
        return tuple(p.name for p in self.parameters)

    @property
    def units(self) -> tuple[str, ...]:
        """The parameters' units, p."""
        return tuple(p.unit for p in self.parameters)

    @functools.cached_property
    def values(self) -> Array:
        """The draws in the parameters' units, [draws, p]."""
        columns = enumerate(self.parameters)
        return np.stack([p.from_unit_interval(self.labels[..., i]) for i, p in columns], axis=-1)

    @functools.cached_property
    def log_density(self) -> Array:
        """Logarithm of the posterior density over the parameters in their units, [draws]."""
        assert self.label_log_density is not None
        slopes = [p.slope(self.values[..., i]) for i, p in enumerate(self.parameters)]
        return np.asarray(self.label_log_density - np.log(slopes).sum(axis=0))

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a draw; the columns are the parameters with their units, `E [MPa]`."""
        import pandas

        names = [f"{name} [{unit}]" for name, unit in zip(self.names, self.units, strict=True)]
        return pandas.DataFrame(self.values, columns=names)

    @property
    def effective_draws(self) -> float:
        """Independent draws that the weighted ones are worth; 0 where none is possible, or nothing was weighted."""
        return self.certificate.effective_draws or 0.0

    @property
    def converged(self) -> bool:
        """Whether moments of weighted draws, or of chains, can be relied on."""
        return not self.certificate.shortcoming

    def is_worth(self, draws: float) -> bool:
        """Whether it has converged to so many independent draws, or more."""
        return self.converged and self.effective_draws >= draws

    @property
    def mean(self) -> Array:
        """Mean of each label, [p]; the prior's where no draw is possible."""
        if self.log_weights is None:
            return np.asarray(self.labels.mean(axis=-2))
        if self.certificate.effective_draws == 0.0:
            return np.full(self.labels.shape[1], 0.5)
        return np.exp(self.log_weights) @ self.labels

    @property
    def variance(self) -> Array:
        """Variance of each label, [p]; the prior's where no draw is possible.

        Its relative standard error is about sqrt(2 / effective draws) for a posterior that is near a normal one.
        """
        if self.log_weights is None:
            return np.asarray(self.labels.var(axis=-2))
        if self.certificate.effective_draws == 0.0:
            return np.full(self.labels.shape[1], PRIOR_VARIANCE)
        squares = np.exp(self.log_weights) @ (self.labels - self.mean) ** 2
        # The squares around the draws' own mean are too small by 1 / effective.
        samples = self.effective_draws
        return np.asarray(squares * samples / max(samples - 1.0, 1e-3))

    @functools.cached_property
    def std(self) -> Array:
        """[p], of draws of one weight, cut to the middle 99 %; never 0, also where all draws are at an end.

        A network leaves a few thousandths of the density far from where it belongs, which would make the most of it.
        """
        ends = np.quantile(self.labels, [0.005, 0.995], axis=-2, keepdims=True)
        return np.maximum(np.clip(self.labels, *ends).std(axis=-2), _NARROWEST)

    @functools.cached_property
    def interval(self) -> Array:
        """The shortest interval of each label that holds 95 % of draws of one weight, [p, 2]."""
        return self.intervals((0.95,))[0]

    def intervals(self, coverages: Sequence[float]) -> Array:
        """The shortest intervals that hold these shares of draws of one weight: [coverages, p, 2].

        Many curves have [coverages, curves, p, 2].
        """
        if self.labels.ndim == 2:
            return Posterior(self.labels[None]).intervals(coverages)[:, 0]
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

    def resampled(self, count: int, generator: np.random.Generator) -> NDArray[np.intp]:
        """Places [count] of draws that count alike, each as often as its weight says (systematic draws)."""
        assert self.log_weights is not None
        sums = np.cumsum(np.exp(self.log_weights))
        places = (np.arange(count) + generator.random()) / count
        chosen = np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)
        return generator.permutation(chosen)

    @property
    def with_errors(self) -> Array:
        """Labels of parameters and errors, [draws, p + e]."""
        if self.errors is None:
            return self.labels
        return np.concatenate([self.labels, self.errors], axis=1)

    def summary(self) -> SampledPosterior:
        """The certificate, and what the draws say of each parameter."""
        of_parameters = {
            parameter.name: Sampled(
                unit=parameter.unit,
                mean=float(self.values[:, i].mean()),
                std=float(self.values[:, i].std()),
                ci95=tuple(parameter.from_unit_interval(self.interval[i]).tolist()),
            )
            for i, parameter in enumerate(self.parameters)
        }
        return SampledPosterior(**dataclasses.asdict(self.certificate), parameters=of_parameters)


def import_statistics() -> Any:
    """ArviZ's statistics of arrays: smoothing, R-hat; the first call takes a second."""
    from arviz_stats.base import array_stats

    return array_stats


def normal_proposals(mean: Array, covariance: Array, samples: int) -> Posterior:
    """Draws from a normal distribution of one curve's labels, and behind them as many wider ones.

    They may leave the ranges, and the density does not know of these.

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
    return Posterior(labels, density, proposed=density + over_normal)[0]


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


def independent_normal(labels: Array, std: Array, samples: int, seed: int) -> Posterior:
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
    return Posterior(drawn, density.sum(axis=2))


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


def check_arviz() -> None:
    """InputError where ArviZ's package of data, or what writes its files, is not installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"ArviZ's data need {' and '.join(missing)}; run `{sys.executable} -m pip install 'arviz-base[h5netcdf]'`, "
            "or save the samples as .npz"
        )


def inference_data(answers: Sequence[Any]) -> Any:
    """The samples of answers (`Identification`) for one law as an `xarray.DataTree`, ArviZ's InferenceData.

    Groups and variables have the names of its schema (R. Kumar, C. Carroll, A. Hartikainen, O. Martin, ArviZ, a
    unified library for exploratory analysis of Bayesian models, J. Open Source Software 4 (2019) 1143).

    Group `posterior` has a variable for each parameter with its `units`, over `chain`, `draw` and `curve` (the curves'
    names). Its attribute `certificate` has an entry for each curve. `sample_stats` has `lp`, the logarithm of the
    posterior density in these units. Curves without samples are NaN.

    A single answer has a `chain` for each ensemble of walkers where chains were sampled; all others have one chain. It
    also has `observed_data`, the measured `response` with the dimension `point`, and `posterior_predictive`, the law's
    response to each draw. Its noise is independent, and as large as the recommended answer's residuals in each test.

    Raises:
      InputError: no answer has samples, or ArviZ is not installed.
    """
    check_arviz()
    import arviz_base

    known = next((answer.samples for answer in answers if answer.samples is not None), None)
    if known is None:
        raise InputError(
            "no answer has samples; ask for them (samples=1000), and of a network for curves that it knows"
        )
    nothing = np.full_like(known.values, np.nan), np.full_like(known.log_density, np.nan)
    drawn = [
        nothing if a.samples is None else (a.samples.values, a.samples.log_density) for a in answers
    ]
    places = (
        _chains_of(answers[0].samples) if len(answers) == 1 else np.arange(len(known.values))[None]
    )
    # [chain, draw, curve], of each parameter.
    values = np.stack([each[0][places] for each in drawn], axis=2)
    density = np.stack([each[1][places] for each in drawn], axis=2)
    variables = {name: values[..., i] for i, name in enumerate(known.names)}
    law = next((answer.law.name for answer in answers if answer.law), None)
    groups = {"posterior": variables, "sample_stats": {"lp": density}}
    if len(answers) == 1 and answers[0].law is not None:
        groups |= _predicted(answers[0], places)
    tree = arviz_base.from_dict(
        groups,
        coords={"curve": [answer.curve.name for answer in answers]},
        dims={**{name: ["curve"] for name in (*variables, "lp")}, "response": ["point"]},
        attrs={
            "/": {
                "inference_library": "tfmat",
                "inference_library_version": tfmat.__version__,
                "law": str(law),
            }
        },
    )
    for name, unit in zip(known.names, known.units, strict=True):
        tree["posterior"][name].attrs["units"] = unit
    certificates = ["" if a.posterior is None else a.posterior.certificate.status for a in answers]
    tree["posterior"].attrs["certificate"] = certificates
    return tree


def _chains_of(samples: Posterior) -> NDArray[np.intp]:
    """The places of the draws of each chain, [chains, draws]; chains are cut to the shortest."""
    if samples.chains is None:
        return np.arange(len(samples.labels))[None]
    of_each = [np.flatnonzero(samples.chains == chain) for chain in np.unique(samples.chains)]
    return np.stack([places[: min(map(len, of_each))] for places in of_each])


def _predicted(answer: Any, places: NDArray[np.intp]) -> dict[str, dict[str, Array]]:
    """The measured response [points], and each draw's with noise, [chains, draws, points]."""
    record, law = answer.curve, answer.law
    residuals = record.split(record.response - answer.resimulated_mpa)
    noise = np.concatenate([np.full(len(of), np.sqrt(np.mean(of**2))) for of in residuals])
    normal = np.random.default_rng(0)
    predicted = np.empty((*places.shape, len(noise)))
    for chain, draws in zip(predicted, places, strict=True):
        for part in np.array_split(np.arange(len(draws)), -(-len(draws) // _TOGETHER)):
            labels = answer.samples.labels[draws[part]]
            chain[part] = law.label_stress(record.driven, labels)
    predicted += noise * normal.standard_normal(predicted.shape)
    return {
        "observed_data": {"response": record.response},
        "posterior_predictive": {"response": predicted},
    }


def write_inference_data(answers: Sequence[Any], path: str | os.PathLike) -> None:
    """Writes `inference_data` as a netCDF file, whole or not at all."""
    content = inference_data(answers).to_netcdf(engine="h5netcdf")
    with atomic_write(path, "wb") as file:
        file.write(content)
