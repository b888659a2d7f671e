"""A network too wide for one device to be cheap: three dense layers of 4,096 units, which 2, 4 or 8 devices divide.

tfmat train --config=configs/wide.py
tfmat layouts --config=configs/wide.py --config.mesh=model:2
tfmat train --config=configs/wide.py --backend=dtensor --config.mesh=model:2
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """39 million parameters; 100,000 curves, batch 64."""
    config = default_config()
    config.data.num_curves = 100_000
    config.global_batch_size = 64
    config.train_for = "1epochs"
    config.model.hidden_units = (4096, 4096, 4096)
    config.optimizer.learning_rate = 1e-4
    return config
