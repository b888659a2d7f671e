"""Looks for the recipe of a batch: optimizer, rate, rule and weight decay, by successive halving over one epoch.

    for batch in 75 150 300 750; do
        tfmat tune --config=configs/large_batch_search.py --config.global_batch_size=$batch --workdir=runs/batch_$batch
    done

docs/benchmark.md has recipes that were timed against the study's own. The start of all trials can be trained by itself:

    tfmat train --config=configs/large_batch_search.py
"""

from tfmat.config import Config, default_config
from tfmat.tuning import Choice, Float, Search


def get_config() -> Config:
    """A million curves for an epoch, a cosine to 0 after a short warm-up; rates are for batch 75."""
    config = default_config()
    config.data.num_curves = 1_000_000
    config.global_batch_size = 75
    config.train_for = "1epochs"
    config.optimizer.reference_batch_size = 75
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup = "0.05epochs"
    config.checkpoint.keep = 1
    return config


def get_search() -> Search:
    """Hyperband; each optimizer with the range of rates in which its first rate lies (docs/large_batch.md)."""
    return Search(
        space={
            "optimizer.name": Choice("lamb", "adam", "adamw", "novograd"),
            "optimizer.learning_rate": Float(5e-4, 2e-2, scale="log"),
            "optimizer.scaling": Choice("none", "sqrt"),
            "optimizer.weight_decay": Float(
                1e-3, 1e-1, scale="log", only_if={"optimizer.name": ("lamb", "adamw")}
            ),
        },
        algorithm="hyperband",
        max_trials=None,
        rungs=4,
    )
