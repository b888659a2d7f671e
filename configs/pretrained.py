"""The networks that come with tfmat, with intervals of their own.

tfmat train --config=configs/pretrained.py

tools/make_pretrained [LAW ...] does it for each law, with configs/pretrained_metal.py for metals, evaluates, and puts
the network in its place. tfmat/pretrained/LAW/README.md has its accuracy.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """One million curves, batch 150, cosine from 1.5e-3 after a warm-up, 20 epochs, a variance beside each mean."""
    config = default_config()
    config.data.num_curves = 1_000_000
    config.global_batch_size = 150
    config.train_for = "20epochs"
    config.optimizer.learning_rate = 1.5e-3
    config.optimizer.warmup = "1000steps"
    config.model.uncertainty = "gaussian"
    return config
