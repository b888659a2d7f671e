"""A first network in a few minutes.

    tfmat train

Two CPU cores: see the table in README.md for the measured time and accuracy.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """Several hundred thousand Hahn-Tsai curves, batch 150, cosine; a variance beside each mean."""
    config = default_config()
    config.data.num_curves = 600_000
    config.global_batch_size = 150
    config.train_for = "12epochs"
    config.optimizer.learning_rate = 1.5e-3
    config.optimizer.warmup = "500steps"
    config.model.uncertainty = "gaussian"
    return config
