"""The whole main job in less than 20 seconds, for tests. Its network is no good.

tfmat train --config=configs/smoke.py
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """Four thousand curves, two epochs."""
    config = default_config()
    config.data.num_curves = 4_000
    config.data.num_test = 500
    config.data.num_validation = 500
    config.global_batch_size = 50
    config.train_for = "2epochs"
    return config
