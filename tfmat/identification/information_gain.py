"""How much a further test of a specimen is expected to tell, by simulating it at draws from the specimen's posterior.

The expected information gain of a test is the mean of ln p(y | parameters) - ln p(y | what is known) over parameters
drawn from the posterior and records y simulated at them (D. V. Lindley, On a measure of the information provided by an
experiment, Ann. Math. Statist. 27 (1956) 986-1005). The second density is the mean of the first over all draws (nested
Monte Carlo: K. J. Ryan, Estimating expected information gains for experimental designs with application to the random
fatigue-limit model, J. Comput. Graph. Statist. 12 (2003) 585-603): with the draw that the record was simulated at among
them it is too large, without it too small, so that the truth lies between. The same weights give the intervals that are
left. Where they stand on few draws, the posterior with the simulated record is sampled anew.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.identification.posterior import Posterior
from tfmat.identification.sampling import adaptive_of_many
from tfmat.identification.specimen import (
    Specimen,
    generators_of,
    intervals,
    target_of,
)
from tfmat.materials.law import Array, TestSet

# Records that are simulated of each test; of those whose posteriors have to be sampled anew.
_SIMULATED, _SAMPLED = 192, 24
# Weights are not trusted where they fail for more than this share of the simulated records.
_MOST_FAILING = 0.1
# Draws of largest weight that sampling starts from, beside the one that the record was simulated at.
_STARTS = 5
# Fewer draws tell no interval.
_FEWEST_EFFECTIVE = 30.0

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Gain:
    """The information that a further test is expected to give; q quantities.

    Attributes:
      nats, nats_error: expected information gain, and its standard error.
      log_ratio, log_ratio_error: mean of ln(width of the 95 % interval with the test / without it), [q] each.
      sampled: whether posteriors were sampled anew, because weights stood on few draws.
      pareto_k: median over the simulated records of Pareto's k of their weights.
      records: simulated and answered; doubtful: those of them whose sampled posterior did not quite converge; failed:
        those left out, whose weights or sampling stand on too few draws.
    """

    nats: float
    nats_error: float
    log_ratio: Array
    log_ratio_error: Array
    sampled: bool
    pareto_k: float
    records: int
    failed: int
    doubtful: int = 0


class Gains:
    """The information that further tests of one specimen are expected to give of some quantities."""

    def __init__(
        self,
        specimen: Specimen,
        known: Posterior,
        replicate: NDArray[np.intp],
        quantities: Callable[[Array], Array],
        seed: int = 0,
    ):
        """Takes `known` and `replicate` as `known_of` gives them.

        Args:
          quantities: the function labels [k, p] -> quantities [k, q], each on the scale that widths are compared on.
        """
        self._specimen, self._known, self._quantities = specimen, known, quantities
        self._seed = seed
        assert known.log_weights is not None
        self._log_weights = known.log_weights
        self._weights = np.exp(known.log_weights)
        self._values = quantities(known.labels)
        self.before = intervals(self._values, self._weights)
        self._log_width = _log_width(self.before)
        own = np.stack(
            [
                _log_width(intervals(self._values[part], self._weights[part]))
                for part in (replicate == i for i in range(replicate.max() + 1))
            ]
        )
        # Standard error of the widths without a further test, as the replicates scatter.
        self._error = own.std(axis=0, ddof=1) / np.sqrt(len(own)) if len(own) > 1 else 0.0 * own[0]
        # All tests are simulated at the same draws, so that chance does not order them.
        generator = np.random.default_rng(seed)
        places = (np.arange(_SIMULATED) + generator.random()) / _SIMULATED
        sums = np.cumsum(self._weights)
        chosen = np.searchsorted(sums, places * sums[-1])
        self._at = generator.permutation(np.minimum(chosen, len(sums) - 1))

    def of(self, test: TestSet, progress: Progress | None = None) -> Gain:
        """The information that a test is expected to give.

        Args:
          test: one row, of `points` points; its unit is the noise of a further test.
          progress: called with (done, total) records of those that are sampled anew.
        """
        response, valid, density, linear = self._simulated(test)
        log_weights = self._log_weights + density
        rows = np.arange(_SIMULATED)
        own = density[rows, self._at]
        with_it = scipy.special.logsumexp(log_weights, axis=1)
        log_weights[rows, self._at] = -np.inf
        without_it = scipy.special.logsumexp(log_weights, axis=1)
        # Between both lies the logarithm of the mean density.
        found = [
            Posterior.weighted(self._values, row) if np.isfinite(row).sum() else None
            for row in log_weights
        ]
        tails = np.array([99.0 if one is None else one.certificate.pareto_k for one in found])
        trusted = [one is not None and one.converged for one in found]
        if np.mean(trusted) < 1.0 - _MOST_FAILING:
            records = response, valid, density, linear
            return self._sampled(test, records, float(np.median(tails)), progress)
        good = [one for one, is_good in zip(found, trusted, strict=True) if is_good and one]
        gains = own - 0.5 * (with_it + np.maximum(without_it, with_it - 1.0))
        gap = 0.5 * float(np.mean(with_it - np.maximum(without_it, with_it - 1.0)))
        widths = np.stack([_log_width(_weighted_intervals(g, g.labels)) for g in good])
        failed = len(rows) - len(good)
        return self._gain(gains, linear, widths, False, float(np.median(tails)), failed, gap)

    def _sampled(
        self,
        test: TestSet,
        records: tuple[Array, NDArray[np.bool_], Array, Array],
        pareto_k: float,
        progress: Progress | None,
    ) -> Gain:
        specimen, known = self._specimen, self._known
        response, valid, density, linear = records
        part = slice(0, _SAMPLED)
        both = TestSet(
            (*specimen.tests.histories, *test.histories),
            np.concatenate(
                [_units(specimen.tests, specimen.response.size), _units(test, response.shape[1])]
            ),
        )
        measured = np.tile(specimen.response, (_SAMPLED, 1))
        target = target_of(
            specimen.law,
            both,
            np.concatenate([measured, response[part]], axis=1),
            np.concatenate([np.ones(measured.shape, np.bool_), valid[part]], axis=1),
        )
        likely = np.argsort(-(self._log_weights + density[part]), axis=1)[:, :_STARTS]
        starts = known.labels[np.concatenate([self._at[part, None], likely], axis=1)]
        generators = generators_of(self._seed + 1, _SAMPLED)
        found = adaptive_of_many(target, starts, generators, progress)
        # To leave out all that did not quite converge, the sharpest mostly, would make the mean of the others wrong.
        rows = np.array(
            [i for i, one in enumerate(found) if one.effective_draws >= _FEWEST_EFFECTIVE],
            np.intp,
        )
        doubtful = sum(not found[i].converged for i in rows)
        own = density[rows, self._at[rows]]
        evidence = np.array([found[i].log_evidence for i in rows])
        gains = own - (evidence - known.log_evidence)
        widths = [
            _log_width(_weighted_intervals(found[i], self._quantities(found[i].labels)))
            for i in rows
        ]
        shape = (0, len(self._log_width))
        joined = np.stack(widths) if widths else np.empty(shape)
        failed = _SAMPLED - len(rows)
        gain = self._gain(gains, linear[rows], joined, True, pareto_k, failed, 0.0)
        return dataclasses.replace(gain, doubtful=doubtful)

    def _gain(
        self,
        gains: Array,
        linear: Array,
        log_widths: Array,
        sampled: bool,
        pareto_k: float,
        failed: int,
        gap: float,
    ) -> Gain:
        if len(log_widths) < 2:
            nothing = np.full(len(self._log_width), np.nan)
            return Gain(np.nan, np.nan, nothing, nothing, sampled, pareto_k, 0, failed)
        # The gain that a linear law would make of each record by chance has a mean of zero, and much of the scatter.
        spread = linear.var()
        share = np.mean(linear * (gains - gains.mean())) / spread if spread > 0 else 0.0
        gains = gains - share * linear
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        spread = log_widths.std(axis=0, ddof=1) / np.sqrt(len(log_widths))
        return Gain(
            float(gains.mean()),
            float(np.hypot(error, gap)),
            log_widths.mean(axis=0) - self._log_width,
            np.hypot(spread, self._error),
            sampled,
            pareto_k,
            len(log_widths),
            failed,
        )

    def _simulated(self, test: TestSet) -> tuple[Array, NDArray[np.bool_], Array, Array]:
        """Records of a test at the chosen draws, [records, points], what is there, and their log density at all draws.

        The last is each one's gain but for its mean, if the law were linear and the posterior normal, [records].

        A machine ends a test where its response passes what the specimen has borne: that the record says itself, so
        that its density is that of the points up to there.
        """
        specimen = self._specimen
        (history,) = test.histories
        with np.errstate(all="ignore"):
            answers = specimen.law.label_stress(test, self._known.labels)
        generator = np.random.default_rng(self._seed + 2)
        response = answers[self._at]
        noise = generator.standard_normal(response.shape)
        response = response + noise
        largest = specimen.largest[0 if history.stress is None else 1]
        beyond = np.abs(response * _units(test, response.shape[1])) > largest
        ended = np.cumsum(beyond, axis=1) > beyond
        valid: NDArray[np.bool_] = np.asarray(~ended & np.isfinite(response))
        response = np.where(valid, response, 0.0)
        density = np.empty((len(response), len(answers)))
        for i, (row, there) in enumerate(zip(response, valid, strict=True)):
            with np.errstate(all="ignore"):
                difference = answers[:, there] - row[there]
                density[i] = -0.5 * np.einsum("kn,kn->k", difference, difference)
        linear = self._linear(test, noise, np.asarray(valid.all(axis=0)))
        return response, valid, np.where(np.isfinite(density), density, -np.inf), linear

    def _linear(self, test: TestSet, noise: Array, there: NDArray[np.bool_]) -> Array:
        """-ε'ε/2 + (Jδ + ε)'(JCJ' + 1)⁻¹(Jδ + ε)/2 of each record, at its points that are always there: [records].

        ε is its noise, δ its draw less the mean, C the covariance of the draws, and J the slopes at their mean.
        """
        labels, weights = self._known.labels, self._weights
        mean = weights @ labels / weights.sum()
        centred = labels - mean
        covariance = (centred * weights[:, None]).T @ centred / weights.sum()
        with np.errstate(all="ignore"):
            slopes = self._specimen.law.label_derivatives(test, mean[None])[0][there]
        noise = noise[:, there]
        seen = centred[self._at] @ slopes.T + noise
        spread = slopes @ covariance @ slopes.T + np.eye(len(slopes))
        if not np.isfinite(spread).all():
            return np.zeros(len(noise))
        explained = np.einsum("kn,nk->k", seen, np.linalg.solve(spread, seen.T))
        return np.asarray(0.5 * (explained - np.einsum("kn,kn->k", noise, noise)))


def _weighted_intervals(posterior: Posterior, values: Array) -> Array:
    """95 % intervals [q, 2] of values [draws, q] at the posterior's weighted draws."""
    assert posterior.log_weights is not None
    return intervals(values, np.exp(posterior.log_weights))


def _units(tests: TestSet, points: int) -> Array:
    return np.broadcast_to(np.asarray(tests.unit, np.float64), (points,))


def _log_width(ends: Array) -> Array:
    return np.asarray(np.log(np.maximum(ends[..., 1] - ends[..., 0], 1e-300)))
