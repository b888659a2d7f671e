"""Few simulations of a specimen, each copied with noise: a posterior from the curve's moduli and hardening.

tfmat train --config=configs/specimen.py

The data set is one of `tfmat generate --simulator`: --data_dir=data/NAME. docs/finite_elements.md has an example.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """Three dense layers behind a plastic spectrum, batch 300, a whole posterior."""
    config = default_config()
    config.global_batch_size = 300
    config.train_for = "50epochs"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup = "500steps"
    config.model.representation = "plastic_spectrum"
    config.model.hidden_units = (128, 128, 64)
    config.model.activation = "gelu"
    # Copies of a run differ by their noise alone, and a network could learn the runs by heart.
    config.model.dropout = 0.01
    config.model.uncertainty = "flow"
    return config
