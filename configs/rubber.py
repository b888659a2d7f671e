"""Rubber from any of three tests: Ogden's law with two terms, uniaxial, equibiaxial and planar, each of them optional.

    tfmat train --config=configs/rubber.py
    tfmat train --config=configs/rubber.py --law=yeoh

Each test but one, drawn at random, is missing in 35 % of the records. So the network answers whatever tests there are,
and says how much wider its intervals are then.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """300,000 records of up to three tests of 64 points, batch 200, each test by its shape and extent."""
    config = default_config()
    config.law = "ogden"
    config.data.num_points = 64
    config.data.missing_tests = 0.35
    config.data.num_curves = 300_000
    config.data.num_test = 5_000
    config.global_batch_size = 200
    config.train_for = "8epochs"
    config.optimizer.learning_rate = 1.5e-3
    config.optimizer.warmup = "500steps"
    config.model.input_scaling = "curve"
    config.model.conv_filters = (16,)
    config.model.kernel_sizes = (7,)
    config.model.pool_size = 4
    config.model.hidden_units = (192, 128)
    config.model.uncertainty = "gaussian"
    return config
