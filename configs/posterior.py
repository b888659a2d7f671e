"""The whole posterior of any law, told around the law's own fit of each record.

    tfmat train --config=configs/posterior.py
    tfmat train --config=configs/posterior.py --law=ogden --config.data.num_points=64 --config.data.missing_tests=0.35

Each record is fitted once before the first step: a curve takes half a millisecond to a millisecond of a processor, a
cyclic test of 400 points some ten. A few steps then bring the network near to the exact posterior. Fewer than some ten
thousand records are learnt by heart without --config.model.dropout=0.2, with which --config.train_for=50epochs pays.
For 40,000 to 150,000 cyclic tests of known noise 0.05 and 40 epochs did well, with misfit 0.1. For 150,000 a larger
flow knows more: --config.model.couplings=10 --config.model.coupling_units=64, two layers of 256 units.
"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    """160,000 records, batch 300, twelve epochs; two dense layers behind the fits, a posterior around them."""
    config = default_config()
    config.law = "voce"
    config.data.num_curves = 160_000
    config.data.num_test = 5_000
    config.global_batch_size = 300
    config.train_for = "12epochs"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup = "200steps"
    # Searches miss some modes, and losses of what they miss are large until the network has learnt to tell them.
    config.optimizer.clip_norm = 1.0
    config.model.representation = "fit"
    config.model.hidden_units = (128, 128)
    config.model.activation = "gelu"
    config.model.uncertainty = "flow"
    return config
