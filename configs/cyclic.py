"""Cyclic tests of steel: Voce-Chaboche with two backstresses, from strain cycles of any amplitude, mean and order.

    tfmat train --config=configs/cyclic.py

The records hold the turning points of their histories, so that a measured record of up to 24 half cycles can be told
as it was driven. Steel alone has these ranges; --config.ranges.sigma0=50,300 and the like narrow or move them.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """200,000 records of 400 points, batch 200, each scaled by the largest strain and stress of the set."""
    config = default_config()
    config.law = "voce_chaboche"
    config.data.num_points = 400
    config.data.num_curves = 200_000
    config.data.num_test = 2_000
    config.global_batch_size = 200
    config.train_for = "8epochs"
    config.optimizer.learning_rate = 1.5e-3
    config.optimizer.warmup = "500steps"
    config.model.conv_filters = (24, 32)
    config.model.kernel_sizes = (7, 7)
    config.model.pool_size = 4
    config.model.hidden_units = (256, 128)
    config.model.uncertainty = "gaussian"
    return config
