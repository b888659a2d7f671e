"""The study's accuracy in a fraction of its time: LAMB with a cosine that ends where the run ends.

    tfmat train --config=configs/large_batch.py
    mpirun -np 4 -bind-to none tfmat train --config=configs/large_batch.py \
        --config.global_batch_size=300 --config.train_for=2epochs

The first was the fastest on two CPU cores, which gain little from larger batches. The learning rate follows the batch.
docs/benchmark.md has the comparison, configs/baseline.py the study's own recipe.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """One million Hahn-Tsai curves, batch 75, LAMB, cosine from 5e-3 (times the root of batch / 75), 0.75 epochs."""
    config = default_config()
    config.data.num_curves = 1_000_000
    config.global_batch_size = 75
    config.train_for = "0.75epochs"
    config.optimizer.name = "lamb"
    config.optimizer.learning_rate = 5e-3
    config.optimizer.scaling = "sqrt"
    config.optimizer.reference_batch_size = 75
    config.optimizer.warmup = "0.05epochs"
    return config
