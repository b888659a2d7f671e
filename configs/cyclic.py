"""Cyclic tests of steel: Voce-Chaboche with two backstresses, from strain cycles of any amplitude, mean and order.

    tfmat train --config=configs/cyclic.py

The records hold the turning points of their histories, so that a measured record of up to 24 half cycles can be told
as it was driven. Steel alone has these ranges; --config.ranges.sigma0=50,300 and the like narrow or move them.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """250,000 records of 400 points, batch 1000, each as its moduli, plastic path and spectrum of hardening."""
    config = default_config()
    config.law = "voce_chaboche"
    config.data.num_points = 400
    config.data.num_curves = 250_000
    config.data.num_test = 4_000
    config.global_batch_size = 1000
    config.train_for = "80epochs"
    # About one over the Bayes risks, so that a parameter which records tell sharply counts no more than the others.
    config.loss_weights = (300.0, 60.0, 4.0, 3.0, 4.0, 4.0, 4.0, 3.0)
    config.optimizer.learning_rate = 4e-3
    config.optimizer.warmup = "300steps"
    config.optimizer.clip_norm = 1.0
    config.model.representation = "plastic_spectrum"
    config.model.hidden_units = (256, 256, 128)
    config.model.activation = "gelu"
    config.model.uncertainty = "gaussian"
    return config
