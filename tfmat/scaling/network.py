"""Non-negative terms fitted to times, robust, on relative errors, with the covariance of what was found.

All-reduces as measured: latency and bandwidth of each library and worker count, and how both grow with workers.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from tfmat.scaling.collective_costs import ALGORITHMS, Link
from tfmat.scaling.measurements import AllReduce

# Relative error beyond which a time counts less: one run that another program disturbed does not bend the fit.
_OUTLIER = 0.1


@dataclasses.dataclass(frozen=True)
class Fit:
    """Seconds = design @ values.

    Attributes:
      values: [terms], none negative.
      covariance: [terms, terms].
      error: root mean square of the relative residuals.
    """

    values: NDArray
    covariance: NDArray
    error: float

    @property
    def errors(self) -> NDArray:
        """[terms]: standard errors."""
        return np.sqrt(np.diag(self.covariance))

    def draw(self, random: np.random.Generator) -> NDArray:
        """[terms]: values as far off as the data allow, none negative."""
        known = self.errors > 0
        found = self.values.copy()
        # By Cholesky, which is the same on every machine; a fixed term has no spread.
        part = self.covariance[np.ix_(known, known)]
        root = np.linalg.cholesky(part * (1 + 1e-9 * np.eye(len(part))))
        found[known] += root @ random.standard_normal(len(part))
        return np.maximum(found, 0.0)


def fit_times(design: NDArray, seconds: NDArray) -> Fit:
    """Least squares of log(design @ values / seconds) with soft absolute loss (scipy `least_squares`, soft_l1).

    Args:
      design: [times, terms], none negative, and no row zero. The term of a column of zeros is 0, without error.
      seconds: [times], positive.
    """
    design, seconds = np.asarray(design, float), np.asarray(seconds, float)
    used = (design != 0).sum(axis=0) > 0
    if not used.all():
        part = fit_times(design[:, used], seconds)
        values, covariance = np.zeros(len(used)), np.zeros((len(used), len(used)))
        values[used], covariance[np.ix_(used, used)] = part.values, part.covariance
        return Fit(values, covariance, part.error)
    # Each term begins with its share of the mean; scaling makes all of them numbers near one.
    scale = np.array([np.median(seconds[c > 0] / c[c > 0]) for c in design.T])
    scaled = design * scale / seconds[:, None]

    def residuals(values: NDArray) -> NDArray:
        return np.log(np.maximum(scaled @ values, 1e-12))

    start = np.full(design.shape[1], 1.0 / design.shape[1])
    found = optimize.least_squares(
        residuals, start, bounds=(0, np.inf), loss="soft_l1", f_scale=_OUTLIER, xtol=1e-12
    )
    values = found.x
    relative = scaled @ values - 1
    free = values > 1e-9  # a term at its bound is not there
    spare = max(len(seconds) - int(free.sum()), 1)
    jacobian = scaled[:, free] / (scaled @ values)[:, None]
    covariance = np.zeros((len(values), len(values)))
    # The spread by the median, which outliers do not widen (Rousseeuw and Croux, 1993).
    deviation = 1.4826 * float(np.median(np.abs(relative))) * np.sqrt(len(seconds) / spare)
    covariance[np.ix_(free, free)] = deviation**2 * np.linalg.pinv(jacobian.T @ jacobian)
    values = np.where(free, values, 0.0)
    error = float(np.sqrt(np.mean(relative**2)))
    return Fit(values * scale, covariance * np.outer(scale, scale), error)


def left_out_errors(design: NDArray, seconds: NDArray, groups: Sequence[object]) -> NDArray:
    """[times]: relative error of each time as predicted by a fit without its group; NaN where none is possible."""
    found = np.full(len(seconds), np.nan)
    for group in dict.fromkeys(groups):
        out = np.array([each == group for each in groups])
        rest = design[~out]
        if len(rest) and np.linalg.matrix_rank(rest) == np.linalg.matrix_rank(design):
            values = fit_times(rest, seconds[~out]).values
            found[out] = design[out] @ values / seconds[out] - 1
    return found


# Of one worker count the growth of the latency cannot be told: these are the limits, and what lies between.
GROWTHS = ("constant", "logarithmic", "linear")


@dataclasses.dataclass(frozen=True)
class LineFit:
    """Time = latency + bytes × seconds a byte, for one library and one number of workers.

    Attributes:
      lines: what was measured.
      fit: [latency (s), seconds a byte].
      left_out: [lines], relative error of each size as predicted by a line through the other sizes.
      left_out_between: [sizes - 2], of each size but the first and the last as predicted from its two neighbours.
    """

    lines: tuple[AllReduce, ...]
    fit: Fit
    left_out: NDArray
    left_out_between: NDArray

    @property
    def name(self) -> str:
        """`mpi, 4 workers`."""
        first = self.lines[0]
        nodes = f" on {first.nodes} nodes" if first.nodes > 1 else ""
        return f"{library_name(first)}, {first.workers} workers{nodes}"

    def on_line(self, num_bytes: float) -> float:
        """Seconds of one all-reduce of that many bytes, by the fit."""
        return float(self.fit.values @ [1.0, num_bytes])

    def seconds(self, num_bytes: float) -> float:
        """The same as measured, and beyond the smallest and the largest size by the fit.

        Between two sizes it is the line through both: a library changes its algorithm with the size: each stretch
        has a latency and a bandwidth of its own.
        """
        sizes, seconds = _medians(self.lines)
        if sizes[0] <= num_bytes <= sizes[-1]:
            return float(np.interp(num_bytes, sizes, seconds))
        return self.on_line(num_bytes)


def _medians(lines: Sequence[AllReduce]) -> tuple[NDArray, NDArray]:
    """[sizes] in rising order, and the median time of each."""
    sizes = sorted({line.bytes for line in lines})
    groups = [[line.median_seconds for line in lines if line.bytes == size] for size in sizes]
    return np.array(sizes, float), np.array([np.median(group) for group in groups])


def library_name(line: AllReduce) -> str:
    """`mpi over shared memory`."""
    return f"{line.library} over {line.transport}" if line.transport else line.library


def line_fits(lines: Sequence[AllReduce]) -> list[LineFit]:
    """One fit for each library, transport, hardware, worker count and number of nodes."""
    groups: dict[tuple, list[AllReduce]] = {}
    for line in lines:
        key = (line.hardware, line.library, line.transport, line.nodes, line.workers)
        groups.setdefault(key, []).append(line)
    return [_line_fit(group) for group in groups.values() if len({e.bytes for e in group}) > 1]


def _line_fit(lines: list[AllReduce]) -> LineFit:
    lines = sorted(lines, key=lambda line: line.bytes)
    sizes = np.array([line.bytes for line in lines], float)
    design = np.stack([np.ones(len(sizes)), sizes], axis=1)
    seconds = np.array([line.median_seconds for line in lines])
    left_out = left_out_errors(design, seconds, [line.bytes for line in lines])
    between = _errors_between(*_medians(lines))
    return LineFit(tuple(lines), fit_times(design, seconds), left_out, between)


def _errors_between(sizes: NDArray, seconds: NDArray) -> NDArray:
    """[sizes - 2]: relative errors of all but the first and the last, each left out."""
    inner = range(1, len(sizes) - 1)
    predicted = [np.interp(sizes[i], np.delete(sizes, i), np.delete(seconds, i)) for i in inner]
    return np.array(predicted) / seconds[1:-1] - 1


@dataclasses.dataclass(frozen=True)
class Network:
    """An all-reduce for any number of workers: seconds = own + messages × latency + volume × bytes × seconds a byte.

    Attributes:
      algorithm: of `ALGORITHMS`, the one that fits best.
      fit: [own (s), latency (s), seconds a byte]; own is the library's, whatever the message.
      workers: counts that were measured.
      growth: how the latency grows; `as measured` where two counts or more tell it.
    """

    algorithm: str
    fit: Fit
    workers: tuple[int, ...]
    growth: str

    @property
    def values(self) -> NDArray:
        """The values of the fit."""
        return self.fit.values

    @property
    def link(self) -> Link:
        """What a single message takes."""
        return Link(float(self.values[1]), float(self.values[2]))

    def seconds(self, workers: int, num_bytes: float, algorithm: str | None = None) -> float:
        """The time of one all-reduce, also by another algorithm than the measured one."""
        if workers == 1:
            return 0.0
        law = ALGORITHMS[algorithm or self.algorithm]
        own, latency, byte_seconds = self.values
        if self.growth == "as measured" or algorithm is not None:
            return float(own) + law.seconds(workers, num_bytes, latency, byte_seconds)
        measured = self.workers[0]
        growth = {
            "constant": 1.0,
            "logarithmic": np.log2(workers) / np.log2(measured),
            "linear": (workers - 1) / (measured - 1),
        }[self.growth]
        transfer = law.volume(workers) * num_bytes * byte_seconds
        return float(own + law.messages(measured) * latency * growth + transfer)

    def draw(self, random: np.random.Generator) -> "Network":
        """One as far off as the measurements allow."""
        growth = str(random.choice(GROWTHS)) if self.growth != "as measured" else self.growth
        drawn = dataclasses.replace(self.fit, values=self.fit.draw(random))
        return dataclasses.replace(self, fit=drawn, growth=growth)


def fit_network(lines: Sequence[AllReduce]) -> Network | None:
    """The law of one library on one hardware, over all its worker counts; None for less than two message sizes.

    Of ring, halving and doubling, and tree the one with the smallest error on sizes left out is taken. With one
    worker count they cannot be told apart: the ring's volume, which is the least possible, and a latency that grows
    as the logarithm.
    """
    counts = tuple(sorted({line.workers for line in lines}))
    if len({line.bytes for line in lines}) < 2:
        return None
    several = len(counts) > 1
    seconds = np.array([line.median_seconds for line in lines])
    sizes = [line.bytes for line in lines]
    found: dict[str, tuple[float, Fit]] = {}
    for name in ["ring", "halving", "tree"] if several else ["ring"]:
        law = ALGORITHMS[name]
        # One count cannot tell the library's own time from the latency.
        rows = [[several, law.messages(e.workers), law.volume(e.workers) * e.bytes] for e in lines]
        design, fit = np.array(rows, float), fit_times(np.array(rows, float), seconds)
        errors = left_out_errors(design, seconds, sizes)
        known = errors[np.isfinite(errors)]
        found[name] = float(np.sqrt(np.mean(known**2))) if len(known) else fit.error, fit
    best = min(found, key=lambda name: found[name][0])
    return Network(best, found[best][1], counts, "as measured" if several else "logarithmic")
