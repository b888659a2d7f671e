"""The study's own recipe: a million curves, batch 75, Adam at a constant learning rate.

tfmat train --config=configs/baseline.py
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """One million Hahn-Tsai curves, 1 MPa noise, batch 75, learning rate 4.7331e-4, constant."""
    config = default_config()
    config.data.num_curves = 1_000_000
    config.global_batch_size = 75
    config.train_for = "8epochs"
    config.optimizer.name = "adam"
    config.optimizer.learning_rate = 4.7331e-4
    config.optimizer.schedule = "constant"
    return config
