"""What everybody has: least squares, and a Gaussian of its covariance, cut to the ranges. It learns nothing."""

import numpy as np
from scipy.stats import norm

from posteriors.frozen import SAMPLES, Answer, Clock, Task, main
from tfmat.curves.records import observed
from tfmat.data.dataset import PackedDataset
from tfmat.identification.least_squares import fit_with_noise
from tfmat.identification.likelihood import NoiseModel

# Drawn for each sample that is wanted, and the least standard deviation of a label.
_TRIES, _LEAST = 20, 1e-6


def train(task: Task, clock: Clock, seed: int):
    def answer() -> Answer:
        settings = PackedDataset.open(task.folder / "dataset").settings
        assert settings is not None
        noise = NoiseModel.of(settings)
        fit = fit_with_noise(
            settings.build_law(),
            *observed(settings, task.test_features),
            noise.noise_mpa,
            noise.noise_relative,
        )
        random = np.random.default_rng(seed)
        draws, scores = [], []
        for mean, covariance, truth in zip(
            fit.labels, fit.label_covariance, task.test_labels, strict=True
        ):
            kept, score = random.uniform(size=(SAMPLES, len(mean))), 0.0
            if np.isfinite(covariance).all():
                variance, axes = np.linalg.eigh(covariance)
                std = np.sqrt(np.maximum(variance, _LEAST**2))
                normal = random.standard_normal((_TRIES * SAMPLES, len(mean)))
                tried = mean + (normal * std) @ axes.T
                inside = tried[((tried >= 0.0) & (tried <= 1.0)).all(axis=1)]
                # What lies in the ranges hardly ever says nothing: the prior stands for it.
                if len(inside) >= SAMPLES:
                    kept = inside[:SAMPLES]
                    z = axes.T @ (truth - mean) / std
                    mass = len(inside) / len(tried)
                    score = float(norm.logpdf(z).sum() - np.log(std).sum() - np.log(mass))
            draws.append(kept)
            scores.append(score)
        return Answer(np.array(draws), np.array(scores))

    return answer


if __name__ == "__main__":
    main(train)
