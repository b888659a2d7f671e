"""A run of seconds: what the files beside this were made with."""

from tfmat.config import default_config
from tfmat.tuning import Choice, Float, Search


def get_config():
    """Sixteen points a curve and a network of some hundred weights."""
    config = default_config()
    config.data.num_curves = 160
    config.data.num_test = 10
    config.data.num_validation = 40
    config.data.num_points = 16
    config.global_batch_size = 20
    config.train_for = "4epochs"
    config.steps_per_call = 2
    config.checkpoint.keep = 1
    config.checkpoint.every = "4steps"
    config.model.conv_filters = (2,)
    config.model.kernel_sizes = (3,)
    config.model.hidden_units = (4,)
    return config


def get_search():
    """Two trials at random."""
    return Search(
        space={
            "optimizer.learning_rate": Float(3e-4, 3e-3, scale="log"),
            "model.hidden_units": Choice((3,), (4,)),
        },
        algorithm="random",
        max_trials=2,
    )
