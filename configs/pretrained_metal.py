"""The networks for metals: trained on curves as tests of metals show them.

    tfmat train --config=configs/pretrained_metal.py

given a metal's law (--law=voce); tools/make_pretrained does it for each. The sizes come from 16 tension tests of 304L
and 6061-T6. Their noise is 0.03 to 0.5 % of the largest stress, 3 to 100 of their 30 to 300 points are elastic, and
their zero is up to 10 MPa off. The knee begins at half the yield stress, and the law's best fit is 0.3 to 2 % away.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """One million curves, batch 250, each by its shape and extent, 20 epochs, a variance beside each mean."""
    config = default_config()
    with config.data.ignore_type():
        config.data.noise_mpa = 0.0
        config.data.noise_of_maximum = (3e-4, 5e-3)
        config.data.measured_points = (15, 400)
        config.data.strain_offset = (5e-6, 2e-4)
        config.data.misfit = (1e-3, 0.02)
        config.data.yield_spread = (0.05, 0.7)
    config.data.num_curves = 1_000_000
    config.global_batch_size = 250
    config.train_for = "20epochs"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup = "1000steps"
    config.model.input_scaling = "curve"
    config.model.conv_filters = (10,)
    config.model.kernel_sizes = (7,)
    config.model.pool_size = 4
    config.model.hidden_units = (256, 128)
    config.model.uncertainty = "gaussian"
    return config
