"""Compressed sums of gradients as their papers define them, in NumPy, with all workers in one place.

Written from the papers' algorithms, not from tfmat's code: it holds all residuals in one list and sends nothing.
"""

import numpy as np

SMALLEST = 4_096
# A convolution, a wide and a high matrix, and two tensors that are not compressed.
SHAPES = [(7, 16, 40), (40,), (200, 60), (60, 90), (90, 2)]


def some_gradients(steps, workers):
    """gradients[step][worker][i]: a part that all workers share, as of one problem, and noise of each."""
    random = np.random.default_rng(1)
    common = [random.normal(size=shape) for shape in SHAPES]
    return [
        [[c + random.normal(size=c.shape) for c in common] for _ in range(workers)]
        for _ in range(steps)
    ]


class NumpyExchange:
    """`sum(gradients)`: gradients[worker][i] -> totals[i]; `residuals[worker][i]` of the compressed ones."""

    def __init__(self, name, shapes, workers, rank=4, fraction=0.01):
        self.name, self.workers, self.rank, self.fraction = name, workers, rank, fraction
        self.large = [i for i, shape in enumerate(shapes) if np.prod(shape) >= SMALLEST]
        self.residuals = [{i: np.zeros(shapes[i]) for i in self.large} for _ in range(workers)]
        generator = np.random.default_rng(0)
        # PowerSGD's factors start at random; the same start is the one thing taken over.
        self.factors = {i: generator.normal(size=(shapes[i][-1], rank)) for i in self.large}
        self.largest = dict.fromkeys(self.large, 0.0)

    def sum(self, gradients):
        """The totals that every worker gets."""
        totals = [np.sum([own[i] for own in gradients], axis=0) for i in range(len(gradients[0]))]
        for i in self.large:
            wanted = [own[i] + res[i] for own, res in zip(gradients, self.residuals, strict=True)]
            sent, totals[i] = getattr(self, self.name)(i, wanted)
            for residual, want, part in zip(self.residuals, wanted, sent, strict=True):
                residual[i] = want - part
        return totals

    def int8(self, i, wanted):
        """Levels 127 // workers of the largest number in the step before."""
        levels = 127 // self.workers
        unit = self.largest[i] / levels
        self.largest[i] = np.mean([abs(want).max() for want in wanted])
        if not unit:
            return [0 * want for want in wanted], 0 * wanted[0]
        sent = [np.clip(np.rint(want / unit), -levels, levels) * unit for want in wanted]
        return sent, sum(sent)

    def sign(self, i, wanted):
        """EF-signSGD, arXiv:1901.09847, algorithm 1 with its scaled sign."""
        sent = [np.where(want >= 0, 1.0, -1.0) * abs(want).mean() for want in wanted]
        return sent, sum(sent)

    def topk(self, i, wanted):
        """The largest numbers by their absolute value."""
        count, sent = round(self.fraction * wanted[0].size), []
        for want in wanted:
            least = np.sort(abs(want).ravel())[-count]
            sent.append(np.where(abs(want) >= least, want, 0.0))
        return sent, sum(sent)

    def powersgd(self, i, wanted):
        """arXiv:1905.13727, algorithm 1, by Gram-Schmidt, with the workers' own products as what they sent."""
        matrices = [want.reshape(-1, want.shape[-1]) for want in wanted]
        basis = sum(matrices) @ self.factors[i]
        for column in range(self.rank):
            for before in range(column):
                basis[:, column] -= basis[:, before] @ basis[:, column] * basis[:, before]
            basis[:, column] /= np.linalg.norm(basis[:, column])
        own = [matrix.T @ basis for matrix in matrices]
        self.factors[i] = sum(own)
        shape = wanted[0].shape
        return [(basis @ o.T).reshape(shape) for o in own], (basis @ sum(own).T).reshape(shape)
