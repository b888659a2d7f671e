"""The reference: a network's errors beside the best that is possible, and beside classical fitting. NumPy only."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.records import observed
from tfmat.curves.settings import CurveSettings
from tfmat.data.dataset import BAYES_RISK, PackedDataset
from tfmat.errors import InputError
from tfmat.identification.bayes_risk import cached_bayes_risk
from tfmat.identification.cramer_rao import cramer_rao_bound
from tfmat.identification.fits_with_errors import fit_with_errors
from tfmat.identification.least_squares import LeastSquaresFit, fit_with_noise
from tfmat.identification.likelihood import PRIOR_VARIANCE, NoiseModel, unknown_likelihood
from tfmat.identification.scores import bins_of
from tfmat.materials.law import Array, Parameter, TestSet

Progress = Callable[[int, int], None]
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

    def to_json(self) -> dict[str, Any]:
        """The entry `reference` of evaluation.json.

        `num_curves` that all numbers are of; `num_left_out`, whose posterior has not converged; `method`;
        `fewest_effective_samples` (None for quadrature); `least_squares_curves_per_second`;
        `parameters`: name -> `bayes_risk` and its standard error `bayes_risk_error`, `cramer_rao`, `network_mse`,
        `least_squares_mse`, `eta` (network) and `least_squares_eta` = expected MSE / Bayes risk with standard errors
        `eta_error` and `least_squares_eta_error` (see `_eta`), `posterior_calibration` (1 where the reference is right:
        mean squared error of the posterior mean over its variance), `interval_coverage` (share of the fit's 95 %
        intervals that hold the truth), `unidentifiable_share`; `bins`: `max_strain`, `noise_to_signal`, `num_points` ->
        list of `low`, `high`, `num_curves` and `parameters` as above, of which only the risk and the two MSE and eta.
        """
        samples = self.effective_samples
        by_parameter = {}
        for i, name in enumerate(self.parameters):
            by_parameter[name] = {
                **self._scores(i, np.ones(len(self.network), bool)),
                "cramer_rao": None
                if self.cramer_rao is None
                else float(self.cramer_rao[:, i].mean()),
                "posterior_calibration": float(
                    (self.bayes[:, i] / self.bayes_variance[:, i]).mean()
                ),
                "interval_coverage": float(self.inside[:, i].mean()),
                "unidentifiable_share": float(self.unidentifiable[:, i].mean()),
            }
        return {
            "num_curves": len(self.network),
            "num_left_out": self.num_left_out,
            "method": self.method,
            "fewest_effective_samples": None if samples is None else float(samples.min()),
            "least_squares_curves_per_second": self.least_squares_curves_per_second,
            "parameters": by_parameter,
            "bins": {
                name: self._binned(getattr(self, name))
                for name in ("max_strain", "noise_to_signal", "num_points")
            },
        }

    def _binned(self, quantity: Array) -> list[dict[str, Any]]:
        return [
            {
                "low": low,
                "high": high,
                "num_curves": int(inside.sum()),
                "parameters": {
                    name: self._scores(i, inside) for i, name in enumerate(self.parameters)
                },
            }
            for low, high, inside in bins_of(quantity)
        ]

    def _scores(self, column: int, rows: Flags) -> dict[str, float | None]:
        """The numbers of one parameter over some of the curves."""
        variance = self.bayes_variance[rows, column]
        network, fitted = self.network[rows, column], self.least_squares[rows, column]
        eta, eta_error = _eta(self.network_excess[rows, column], variance)
        fitted_eta, fitted_error = _eta(self.least_squares_excess[rows, column], variance)
        count = len(variance)
        return {
            "bayes_risk": float(variance.mean()),
            "bayes_risk_error": float(variance.std(ddof=1) / np.sqrt(count)) if count > 1 else None,
            "network_mse": float(network.mean()),
            "least_squares_mse": float(fitted.mean()),
            "eta": eta,
            "eta_error": eta_error,
            "least_squares_eta": fitted_eta,
            "least_squares_eta_error": fitted_error,
        }


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
    fitted, seconds = _timed_fit(settings, strain, stress, valid)
    risk = cached_bayes_risk(
        dataset.folder / BAYES_RISK,
        settings,
        features,
        seed=dataset.manifest["seed"],
        start=fitted.labels,
        truth=true,
        progress=progress,
    )
    good = risk.converged
    if (few := good.sum()) < 2:
        raise InputError(
            f"no reference: the posteriors of only {few} of {count} curves have converged"
        )
    scale = _scale(dataset.parameters, parameters)
    sampled = risk.effective_samples
    # What the error of a sampled posterior mean adds to a distance from it.
    luck = 0.0 if sampled is None else risk.variance * scale / np.maximum(sampled[:, None], 1.0)
    from_mean = network_labels - _rescaled(risk.mean, dataset.parameters, parameters)
    network_error = network_labels - _rescaled(true, dataset.parameters, parameters)
    low, high = fitted.interval_labels[:, :, 0], fitted.interval_labels[:, :, 1]
    bound = _bound(settings, strain, true, valid)
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
        noise_to_signal=_noise_to_signal(settings, stress, valid)[good],
        num_points=valid[good].sum(axis=1),
        least_squares_curves_per_second=count / seconds,
    )


def _bound(
    settings: CurveSettings, strain: Array | TestSet, labels: Array, valid: Flags
) -> Array | None:
    """Cramér-Rao bound at the true labels, where it is smaller than the prior's variance: [curves, p]."""
    noise = NoiseModel.of(settings)
    if noise.unknown is not None:
        return None
    bound = cramer_rao_bound(
        settings.build_law(), strain, labels, noise.noise_mpa, noise.noise_relative, valid
    )
    return np.minimum(bound.label_variance, PRIOR_VARIANCE)


def _noise_to_signal(settings: CurveSettings, stress: Array, valid: Flags) -> Array:
    noise = NoiseModel.of(settings)
    largest = np.abs(np.where(valid, stress, 0.0)).max(axis=1)
    return np.hypot(noise.noise_mpa / largest, noise.noise_relative)


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
    settings: CurveSettings, strain: Array | TestSet, stress: Array, valid: Flags
) -> tuple[LeastSquaresFit, float]:
    """The fits, and how long they took in seconds."""
    law, noise = settings.build_law(), NoiseModel.of(settings)

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


def _scale(of_dataset: tuple[Parameter, ...], of_network: tuple[Parameter, ...]) -> Array:
    """Squared ratio of the label scales, [p]: from the data set's to the network's."""
    pairs = zip(of_dataset, of_network, strict=True)
    return np.array([(one.width / other.width) ** 2 for one, other in pairs])
