"""sbi: neural posterior estimation, a neural spline flow behind its convolutions, in the training loop of its guide.

Given fits, it sees their numbers, without convolutions, and learns where labels lie around them. The guide: https://sbi.readthedocs.io/en/latest/how_to_guide/04_training_interface.html
"""

import numpy as np
import torch
from sbi.inference.posteriors import DirectPosterior
from sbi.neural_nets import posterior_nn
from sbi.neural_nets.embedding_nets import CNNEmbedding
from sbi.utils import BoxUniform

from posteriors.frozen import EPOCHS, SAMPLES, Answer, Clock, Fits, Task, main

# The batch, the rate and the clipping of its `train`.
BATCH, RATE, CLIP_NORM = 200, 2e-3, 5.0


def train(task: Task, clock: Clock, seed: int):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    if task.fits is not None:
        return _around(task.fits, task, clock)
    num_labels = task.labels.shape[1]
    prior = BoxUniform(torch.zeros(num_labels), torch.ones(num_labels))

    def records(features: np.ndarray) -> torch.Tensor:
        scaled = task.scaled(features).transpose(0, 2, 1)
        return torch.from_numpy(np.ascontiguousarray(scaled, np.float32))

    x, theta = records(task.features), torch.from_numpy(task.labels)
    # As documented: labels lose their bounds by a transform of the prior's support, records are scaled as time series.
    estimator = posterior_nn(
        model="zuko_nsf",
        z_score_theta="transform_to_unconstrained",
        z_score_x="structured",
        x_dist=prior,
        embedding_net=CNNEmbedding(
            input_shape=(x.shape[2],), in_channels=x.shape[1], output_dim=16 + num_labels
        ),
    )(theta, x)
    _train(estimator, theta, x, clock)
    posterior = DirectPosterior(estimator, prior)

    @torch.no_grad()
    def answer() -> Answer:
        tests, truths = records(task.test_features), torch.from_numpy(task.test_labels)
        draws = posterior.sample_batched((SAMPLES,), x=tests, show_progress_bars=False)
        scores = posterior.log_prob_batched(truths[None], x=tests, norm_posterior=False)
        return Answer(draws.permute(1, 0, 2).numpy(), scores[0].numpy())

    return answer


def _around(fits: Fits, task: Task, clock: Clock):
    x, theta = torch.from_numpy(fits.numbers), torch.from_numpy(fits.targets(task.labels))
    estimator = posterior_nn(model="zuko_nsf")(theta, x)
    clock.most_steps = EPOCHS * len(x) // BATCH
    _train(estimator, theta, x, clock)

    @torch.no_grad()
    def answer() -> Answer:
        tests = torch.from_numpy(fits.test_numbers)
        truths, slopes = fits.test_targets(task.test_labels)
        draws = estimator.sample((SAMPLES,), condition=tests).permute(1, 0, 2).numpy()
        scores = estimator.log_prob(torch.from_numpy(truths)[None], condition=tests)[0].numpy()
        return Answer(fits.test_labels(draws), scores + slopes)

    return answer


def _train(estimator: torch.nn.Module, theta: torch.Tensor, x: torch.Tensor, clock: Clock) -> None:
    optimizer = torch.optim.Adam(estimator.parameters(), lr=RATE)
    over = False
    while not over:
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.param_groups[0]["lr"] = clock.rate(RATE)
            optimizer.zero_grad()
            estimator.loss(theta[rows], condition=x[rows]).mean().backward()
            torch.nn.utils.clip_grad_norm_(estimator.parameters(), CLIP_NORM)
            optimizer.step()
            if over := clock.step_is_over():
                break
    estimator.eval()


if __name__ == "__main__":
    main(train)
