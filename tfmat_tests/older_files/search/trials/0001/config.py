"""Trial 0001 of the search in search."""

from tfmat.config import Config, default_config


def get_config() -> Config:
    config = default_config()
    with config.ignore_type():
        config.checkpoint.every = '4steps'
        config.checkpoint.keep = 1
        config.data.num_curves = 160
        config.data.num_points = 16
        config.data.num_test = 10
        config.data.num_validation = 40
        config.data.seed = 0
        config.global_batch_size = 20
        config.model.conv_filters = (2,)
        config.model.kernel_sizes = (3,)
        config.steps_per_call = 2
        config.train_for = '4epochs'
        # Found by the search:
        config.optimizer.learning_rate = 0.000518902641874088
        config.model.hidden_units = (3,)
    return config
