"""Exact posteriors of frozen records: tfmat's adaptive sampler with the likelihood that the records were drawn from."""

import pathlib
from typing import Any

import numpy as np

from tfmat.curves.records import observed
from tfmat.data.dataset import PackedDataset
from tfmat.identification.likelihood import Likelihoods, NoiseModel
from tfmat.identification.posterior_sampling import sample_posteriors
from tfmat.identification.side_by_side import in_processes, one_thread_a_product

# Draws of each, and how many independent ones they are made of at least. Records that are sampled together.
DRAWS, ENOUGH = 1000, 1000.0
_TOGETHER = 10


def exact_posteriors(folder: pathlib.Path, count: int) -> dict[str, Any]:
    """Those of the first test records of a frozen task; sampling starts from the truth, so that no mode is missed.

    Returns:
      `draws` [count, DRAWS, p], labels that count alike; `log_score` [count], logarithm of the posterior density at the
      true labels; `converged` [count].
    """
    settings = PackedDataset.open(folder / "dataset").settings
    assert settings is not None
    features, labels = (
        np.load(folder / f"test_{name}.npy")[:count] for name in ("features", "labels")
    )
    law, true = settings.build_law(), labels.astype(np.float64)
    many = Likelihoods(law, NoiseModel.of(settings), *observed(settings, features))
    generators = [np.random.default_rng([5, i]) for i in range(len(true))]

    def sampled(rows: range) -> list[tuple[np.ndarray, float, bool]]:
        found = sample_posteriors(many, true[:, None], generators, enough=ENOUGH, chosen=rows)
        densities = many.log_density(np.asarray(rows), true[rows.start : rows.stop])
        answers = []
        for i, density, one in zip(rows, densities, found, strict=True):
            chosen = one.resampled(DRAWS, generators[i]) if one.converged else np.zeros(DRAWS, int)
            drawn = one.labels[chosen] if one.converged else np.full((DRAWS, true.shape[1]), 0.5)
            answers.append((drawn, float(density - one.log_evidence), one.converged))
        return answers

    groups = [range(i, min(i + _TOGETHER, len(true))) for i in range(0, len(true), _TOGETHER)]
    with one_thread_a_product():
        answers = [each for group in in_processes(sampled, groups) for each in group]
    draws, log_score, converged = map(np.array, zip(*answers, strict=True))
    return {"draws": draws, "log_score": log_score, "converged": converged}
