"""Re-tunes the quickstart for batch 750: learning rate, optimizer, warm-up and dropout, at equal epochs.

    tfmat tune --config=configs/tune.py --workdir=runs/tune --num_workers=2
    tfmat tune --status --workdir=runs/tune
    tfmat train --config=runs/tune/best.py

The start of all trials can be trained by itself: the quickstart at batch 750, not tuned.

    tfmat train --config=configs/tune.py

Copy it and change it: docs/tuning.md says what the space may hold.
"""

from tfmat.config import Config, default_config
from tfmat.tuning import Choice, Float, Search


def get_config() -> Config:
    """The start of every trial: the quickstart's problem, batch 750, two epochs."""
    config = default_config()
    config.data.num_curves = 600_000
    config.global_batch_size = 750
    config.train_for = "2epochs"
    config.model.uncertainty = "gaussian"
    return config


def get_search() -> Search:
    """Twelve trials of Bayesian optimisation."""
    adaptive = ("adam", "adamw", "lamb")
    return Search(
        space={
            "optimizer.name": Choice(*adaptive, "sgd"),
            "optimizer.learning_rate": Float(5e-4, 2e-2, scale="log"),
            "optimizer.momentum": Float(0.8, 0.99, only_if={"optimizer.name": ("sgd",)}),
            "optimizer.weight_decay": Float(
                1e-6, 1e-2, scale="log", only_if={"optimizer.name": ("adamw", "lamb")}
            ),
            "optimizer.warmup": Choice("0steps", "100steps", "300steps"),
            "optimizer.final_fraction": Choice(0.0, 0.05),
        },
        algorithm="bayesian",
        max_trials=12,
        initial_points=6,
    )
