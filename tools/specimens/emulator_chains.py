"""An emulator of the runs and Markov chains by emcee, as a careful user would do it. Nothing of tfmat is used.

Unknown are the values drawn for a run, and, where the laboratory has them, the machine's stiffness, the zero of strain
and the level of the noise, each with the prior that the laboratory draws from; for the zero, whose deviation is drawn
too, that is a mixture of normal distributions. The likelihood is normal: white noise and the emulator's own error,
whose covariance is that of runs that it was not fitted to. Chains start around the best fit; their moves are those by
differential evolution (C. J. F. ter Braak, Statistics and Computing 16 (2006) 239-249), and stretches.
"""

import argparse
import pathlib
import time

import numpy as np
import scipy.optimize

from specimens.emulators import Emulator
from specimens.frozen import SAMPLES, Records, Runs, answer_path, keep

WALKERS, STEPS, BURN_IN = 40, 1500, 500
_TRIED = 2000  # points of the prior, of which the best are fitted
_FITS = 3
_ZEROS = 6.0  # standard deviations within which zeros are looked for


class Posterior:
    """The unnormalised posterior of one record, for many points at once.

    A point is [drawn values, machine's compliance, zero, noise], shares 0-1 but for the zero, which is in units of the
    largest deviation; what the laboratory has not is left out.
    """

    def __init__(self, emulator: Emulator, runs: Runs, strain: np.ndarray, stress: np.ndarray):
        self._emulator, self._strain, self._stress = emulator, strain, stress
        # A record may begin and end beyond the run by its zero: the last line goes on.
        self._grid = np.append(runs.strain, 1.5 * runs.strain[-1])
        self._machine = runs.laboratory.get("machine_stiffness")
        self._offsets = runs.laboratory.get("strain_offset")
        self._levels = runs.laboratory["noise_of_maximum"]
        drawn = runs.drawn.shape[1]
        self.bounds = [(0.0, 1.0)] * drawn
        if self._machine:
            self.bounds.append((0.0, 1.0))
        if self._offsets:
            self.bounds.append((-_ZEROS, _ZEROS))
            self._zeros = np.linspace(0.0, _ZEROS, 2001)
            deviations = np.geomspace(self._offsets[0] / self._offsets[1], 1.0, 200)[:, None]
            density = np.exp(-0.5 * (self._zeros / deviations) ** 2) / deviations
            self._log_zero = np.log(np.maximum(density.mean(axis=0), 1e-300))
        self.bounds.append((0.0, 1.0))
        self._low, self._high = np.array(self.bounds).T
        self._drawn = drawn
        error = np.stack([np.interp(strain, runs.strain, one) for one in emulator.error.T], axis=1)
        self._along, size, _ = np.linalg.svd(error, full_matrices=False)
        self._variances = size**2

    def stress(self, points: np.ndarray) -> np.ndarray:
        """At the record's strains, [points, strains], MPa, without noise."""
        curves = self._emulator.curves(points[:, : self._drawn])
        slope = (curves[:, -1] - curves[:, -2]) / (self._grid[-2] - self._grid[-3])
        beyond = curves[:, -1] + slope * (self._grid[-1] - self._grid[-2])
        curves = np.column_stack([curves, beyond])
        places, column = np.broadcast_to(self._grid, curves.shape), self._drawn
        if self._machine:
            low, high = self._machine
            stiffness = low * (high / low) ** points[:, column]
            places = np.maximum.accumulate(places + curves / stiffness[:, None], axis=1)
            column += 1
        zeros = np.zeros(len(points))
        if self._offsets:
            zeros = self._offsets[1] * points[:, column]
        return np.stack(
            [
                np.interp(np.maximum(self._strain + zero, 0.0), at, curve)
                for zero, at, curve in zip(zeros, places, curves, strict=True)
            ]
        )

    def noise(self, points: np.ndarray, stress: np.ndarray) -> np.ndarray:
        """Standard deviation of the noise, [points], MPa."""
        low, high = self._levels
        return low * (high / low) ** points[:, -1] * np.abs(stress).max(axis=1)

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """[points, unknowns] -> [points]."""
        inside = ((points > self._low) & (points < self._high)).all(axis=1)
        found = np.full(len(points), -np.inf)
        if not inside.any():
            return found
        points = points[inside]
        stress = self.stress(points)
        off, variance = self._stress - stress, self.noise(points, stress)[:, None] ** 2
        # Woodbury's formula: the error's directions are few.
        shares = off @ self._along
        explained = (self._variances / (variance + self._variances) * shares**2).sum(axis=1)
        log_size = np.log(1.0 + self._variances / variance).sum(axis=1)
        log_size += len(self._strain) * np.log(variance[:, 0])
        found[inside] = -0.5 * (((off**2).sum(axis=1) - explained) / variance[:, 0] + log_size)
        if self._offsets:
            found[inside] += np.interp(np.abs(points[:, -2]), self._zeros, self._log_zero)
        return found

    def starts(self, walkers: int, random: np.random.Generator) -> np.ndarray:
        """Points around the best fit, spread as the fit's covariance says: [walkers, unknowns]."""
        tried = random.uniform(self._low, self._high, (_TRIED, len(self._low)))
        if self._offsets:
            tried[:, -2] = 0.5 * random.standard_normal(_TRIED)
        tried = tried[np.argsort(-self.log_density(tried))[:_FITS]]
        inner = 1e-6 * (self._high - self._low)
        best, value = tried[0], -np.inf
        for one in tried:
            level = one[-1]

            def residuals(values: np.ndarray, level: float = level) -> np.ndarray:
                point = np.append(values, level)[None]
                stress = self.stress(point)
                off = (self._stress - stress[0]) / self.noise(point, stress)
                # The zero's prior as that of its largest deviation.
                return np.append(off, values[-1]) if self._offsets else off

            for _ in range(2):
                fit = scipy.optimize.least_squares(
                    residuals,
                    one[:-1],
                    bounds=((self._low + inner)[:-1], (self._high - inner)[:-1]),
                    diff_step=1e-4,
                )
                low, high = self._levels
                rms = np.sqrt(2.0 * fit.cost / len(self._strain))
                level = float(np.clip(level + np.log(rms) / np.log(high / low), 0.02, 0.98))
                one = np.append(fit.x, level)
            reached = float(self.log_density(one[None])[0])
            if reached > value:
                best, value, jacobian = one, reached, fit.jac
        precision = jacobian.T @ jacobian + np.diag((2.0 / (self._high - self._low)[:-1]) ** 2)
        covariance = np.linalg.inv(precision)
        spread = random.multivariate_normal(np.zeros(len(best) - 1), covariance, walkers)
        starts = best + np.column_stack([spread, 0.03 * random.standard_normal(walkers)])
        return np.asarray(np.clip(starts, self._low + inner, self._high - inner))


def chains(posterior: Posterior, seed: int, steps: int = STEPS) -> dict[str, np.ndarray]:
    """Samples [steps, walkers, unknowns] after the burn-in, and how good they are."""
    import emcee  # a second or so, which nobody waits for who asks for no chains

    random = np.random.default_rng(seed)
    sampler = emcee.EnsembleSampler(
        WALKERS,
        len(posterior.bounds),
        posterior.log_density,
        vectorize=True,
        # Its snooker moves make variances too small (github.com/dfm/emcee/pull/531; 3.1.6 has that fault still).
        moves=[(emcee.moves.DEMove(), 0.8), (emcee.moves.StretchMove(), 0.2)],
    )
    sampler.random_state = np.random.RandomState(seed).get_state()
    burn_in = steps * BURN_IN // STEPS
    sampler.run_mcmc(posterior.starts(WALKERS, random), steps, skip_initial_state_check=True)
    samples = sampler.get_chain(discard=burn_in)
    times = emcee.autocorr.integrated_time(samples, quiet=True, tol=0)
    return {
        "samples": samples,
        "autocorrelation": np.asarray(times.max()),
        "r_hat": np.asarray(_r_hat(samples).max()),
    }


def _r_hat(samples: np.ndarray) -> np.ndarray:
    """Of split chains (Gelman et al., Bayesian Data Analysis, 3rd ed. (2013), 11.4): [unknowns]."""
    half = len(samples) // 2
    parts = np.concatenate([samples[:half], samples[half : 2 * half]], axis=1)
    within = parts.var(axis=0, ddof=1).mean(axis=0)
    between = parts.mean(axis=0).var(axis=0, ddof=1)
    return np.asarray(np.sqrt((half - 1) / half + between / within))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("polynomials", "processes"))
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("records", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    runs, records = Runs.open(given.runs), Records.open(given.records)
    start = time.process_time()
    emulator = Emulator(given.kind, runs.drawn, runs.curves)
    fitted = time.process_time() - start
    print(
        f"{emulator.told}: off by {emulator.share:.3%} of the largest stress, {fitted:.1f} s",
        flush=True,
    )
    keep(
        given.out / "trained.npz",
        training_seconds=fitted,
        told=f"{emulator.told}; off by {emulator.share:.3%} of the largest stress",
    )
    for number in range(min(given.count, len(records))):
        path = answer_path(given.out, number)
        if path.is_file():
            continue
        start = time.process_time()
        found = chains(Posterior(emulator, runs, *records.one(number)), seed=number)
        seconds = time.process_time() - start
        keep(path, seconds=seconds, **_answer(found, runs.parameters))
        print(f"{number}: {seconds:.1f} s, R-hat {found['r_hat']:.3f}", flush=True)


def _answer(found: dict[str, np.ndarray], parameters: int) -> dict[str, np.ndarray]:
    """Mean, 95 % interval and some draws of the parameters, as shares of their ranges, and the chains' numbers."""
    samples = found["samples"][..., :parameters].reshape(-1, parameters)
    low, high = np.quantile(samples, [0.025, 0.975], axis=0)
    some = np.linspace(0, len(samples) - 1, SAMPLES).astype(int)
    quality = {name: found[name] for name in ("autocorrelation", "r_hat")}
    return {
        "mean": samples.mean(axis=0),
        "low": low,
        "high": high,
        "draws": samples[some],
        **quality,
    }


if __name__ == "__main__":
    main()
