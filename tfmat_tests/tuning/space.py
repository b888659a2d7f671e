"""The search space of the tests: a bowl over two numbers, with a word, a tuple and a condition beside them."""

import os

from tfmat.config import Config, default_config
from tfmat.tuning import Choice, Float, Search


def get_config() -> Config:
    """Four epochs, as the synthetic trial has."""
    config = default_config()
    config.train_for = "4epochs"
    return config


def get_search() -> Search:
    """The algorithm is the test's."""
    return Search(
        space={
            "optimizer.learning_rate": Float(1e-5, 1.0, scale="log"),
            "model.dropout": Float(0.0, 0.5),
            "optimizer.name": Choice("adam", "sgd"),
            "optimizer.momentum": Float(0.5, 0.9, only_if={"optimizer.name": ("sgd",)}),
            "model.hidden_units": Choice((125,), (125, 125)),
        },
        algorithm=os.environ.get("SEARCH_ALGORITHM", "random"),
        max_trials=None if os.environ.get("SEARCH_ALGORITHM") == "hyperband" else 6,
        initial_points=4,
        iterations=int(os.environ.get("SEARCH_ITERATIONS", "1")),
        stop_hopeless=bool(os.environ.get("SEARCH_STOPS_HOPELESS")),
    )
