"""A specimen by its forward network (`tfmat emulate`): a posterior from as many simulated records as one likes.

    tfmat train --config=configs/forward.py

given the law that `tfmat emulate` wrote: --law=data/notched_bar_1000.py:NotchedBar. docs/finite_elements.md has an
example.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """Three dense layers behind a plastic spectrum, 300,000 curves as a laboratory records them, a whole posterior."""
    config = default_config()
    config.data.laboratory = True
    config.data.num_curves = 300_000
    config.global_batch_size = 300
    config.train_for = "25epochs"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup = "500steps"
    config.model.representation = "plastic_spectrum"
    config.model.hidden_units = (128, 128, 64)
    config.model.activation = "gelu"
    config.model.uncertainty = "flow"
    return config
