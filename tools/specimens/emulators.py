"""Emulators of runs: values -> curve, with how far they are off. NumPy and scikit-learn only."""

import itertools
import warnings
from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

# Principal components until they leave this share of the curves, root mean square.
_LEFT, _MOST_COMPONENTS = 5e-5, 16
# Of five runs one tells how far the emulator is off; then it is fitted anew to all.
_HELD_OUT = 5
_DEGREES = range(2, 11)
# The kernels' parameters are looked for on so many runs: each look costs their number cubed.
_KERNEL_RUNS = 300
_LENGTHS = (0.3, 1.0)  # from which the kernels' are looked for

Predict = Callable[[np.ndarray], np.ndarray]


class Emulator:
    """Curves of values [runs, drawn] (shares 0-1), by a method fitted to principal components of the runs' curves.

    Attributes:
      error: [points, directions], MPa; its product with its transpose is the covariance of the curves' errors, by runs
        that it was not fitted to.
      share: root mean square of these errors as a share of each run's largest stress.
      told: what was chosen, in words.
    """

    def __init__(self, kind: str, drawn: np.ndarray, curves: np.ndarray):
        self._mean = curves.mean(axis=0)
        _, singular, directions = np.linalg.svd(curves - self._mean, full_matrices=False)
        left = np.sqrt(np.maximum(0.0, 1.0 - np.cumsum(singular**2) / (singular**2).sum()))
        count = min(int((left > _LEFT).sum()) + 1, _MOST_COMPONENTS, len(singular))
        self._components = directions[:count]
        weights = (curves - self._mean) @ self._components.T
        held = np.arange(len(drawn)) % _HELD_OUT == 0
        fit, self.told = (_polynomials if kind == "polynomials" else _processes)(
            drawn[~held], weights[~held]
        )
        self._predict: Predict = fit(drawn[~held], weights[~held])
        off = self.curves(drawn[held]) - curves[held]
        self.share = float(np.sqrt(((off / curves[held].max(axis=1)[:, None]) ** 2).mean()))
        _, size, along = np.linalg.svd(off / np.sqrt(held.sum()), full_matrices=False)
        self.error = (size[:, None] * along)[:_MOST_COMPONENTS].T
        self._predict = fit(drawn, weights)

    def curves(self, drawn: np.ndarray) -> np.ndarray:
        return self._predict(drawn) @ self._components + self._mean


def _polynomials(drawn: np.ndarray, weights: np.ndarray):
    """Legendre polynomials of the total degree that is best for a fifth of the runs."""
    held = np.arange(len(drawn)) % _HELD_OUT == 1
    found = {}
    for degree in _DEGREES:
        exponents = _exponents(drawn.shape[1], degree)
        if 2 * len(exponents) > (~held).sum():
            break
        predict = _least_squares(exponents, drawn[~held], weights[~held])
        found[degree] = float(((predict(drawn[held]) - weights[held]) ** 2).sum())
    best = min(found, key=found.__getitem__)
    exponents = _exponents(drawn.shape[1], best)
    told = f"polynomials of degree {best}, {len(exponents)} terms"
    return lambda values, at: _least_squares(exponents, values, at), told


def _exponents(variables: int, degree: int) -> np.ndarray:
    powers = itertools.product(range(degree + 1), repeat=variables)
    return np.array([power for power in powers if sum(power) <= degree])


def _least_squares(exponents: np.ndarray, drawn: np.ndarray, weights: np.ndarray) -> Predict:
    def terms(values: np.ndarray) -> np.ndarray:
        single = legendre.legvander(2.0 * values - 1.0, int(exponents.max()))
        product = single[:, 0, exponents[:, 0]]
        for i in range(1, exponents.shape[1]):
            product = product * single[:, i, exponents[:, i]]
        return product

    coefficients = np.linalg.lstsq(terms(drawn), weights, rcond=None)[0]
    return lambda values: terms(values) @ coefficients


def _processes(drawn: np.ndarray, weights: np.ndarray):
    """A Gaussian process for each component, with a length for each value drawn, and white noise."""
    some = np.random.default_rng(0).permutation(len(drawn))[:_KERNEL_RUNS]
    scale = weights.std(axis=0)
    kernels = []
    for of_run, size in zip(weights.T, scale, strict=True):
        fits = []
        # The likelihood has more than one peak, at some of which all is noise.
        for length in _LENGTHS:
            kernel = ConstantKernel(10.0) * RBF(length * np.ones(drawn.shape[1]), (1e-2, 1e3))
            process = GaussianProcessRegressor(kernel + WhiteKernel(1e-6, (1e-8, 1.0)))
            with warnings.catch_warnings():
                # A length at its bound says that the component does not depend on this value.
                warnings.simplefilter("ignore")
                fits.append(process.fit(drawn[some], of_run[some] / size))
        kernels.append(max(fits, key=lambda one: one.log_marginal_likelihood_value_).kernel_)

    def fit(values: np.ndarray, at: np.ndarray) -> Predict:
        known, answers = [], []
        for kernel, of_run, size in zip(kernels, at.T, scale, strict=True):
            process = GaussianProcessRegressor(kernel, optimizer=None).fit(values, of_run / size)
            signal, length = kernel.k1.k1.constant_value, kernel.k1.k2.length_scale
            known.append((values / length, length))
            answers.append(signal * size * process.alpha_)

        def predict(asked: np.ndarray) -> np.ndarray:
            found = np.empty((len(asked), len(known)))
            for i, ((points, length), answer) in enumerate(zip(known, answers, strict=True)):
                scaled = asked / length
                # |x - y|² / 2 by its three parts: one product of matrices in place of all differences.
                near = scaled @ points.T
                near -= 0.5 * (scaled**2).sum(axis=1)[:, None] + 0.5 * (points**2).sum(axis=1)
                found[:, i] = np.exp(near) @ answer
            return found

        return predict

    return fit, f"Gaussian processes for {weights.shape[1]} components"
