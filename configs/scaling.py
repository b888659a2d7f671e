"""What do more workers buy on this machine? As many as it has processors: two take about a quarter of an hour if idle.

tfmat scale --config=configs/scaling.py
tfmat train --config=configs/scaling.py
"""

from typing import Any

from tfmat.config import Config, default_config
from tfmat.scaling.study import AllReduces, Matrix, Runs, worker_counts


def get_config() -> Config:
    """The default network; `get_scaling` says how large the data set is."""
    config = default_config()
    config.data.num_test = 500
    config.data.num_validation = 2_000
    # Larger batches get a larger learning rate, or the accuracies would compare nothing.
    config.optimizer.scaling = "sqrt"
    return config


def get_scaling() -> Matrix:
    """1, 2, 4 … workers with a processor each, and one repetition with more workers than processors."""
    workers = worker_counts()
    trained: dict[str, Any] = {"batch_a_worker": 150, "train_for": "4epochs", "rounds": 2}
    sweep = (75, 150, 300, 750)
    return Matrix(
        rounds=3,
        seconds=1.0,
        split_rounds=1,
        dataset_size=60_000,
        models={"large": {"conv_filters": (32, 48), "hidden_units": (500,)}},
        runs=[
            # One worker without any parallel library, several independent ones, and several that exchange gradients.
            Runs("single", batch_a_worker=sweep),
            Runs("single", workers=workers, batch_a_worker=(75, 750)),
            Runs("horovod", workers=workers, batch_a_worker=sweep, global_batch_size=750),
            Runs("horovod", workers=2, collectives="gloo", batch_a_worker=(75, 750), rounds=2),
            Runs("dtensor", mesh="batch:2", batch_a_worker=(75, 750), rounds=2),
            Runs("horovod", workers=2, model="large", batch_a_worker=(75, 750), rounds=2),
            # More workers than processors: marked so, since they say nothing of scaling.
            Runs("horovod", workers=2 * workers[-1], batch_a_worker=75, rounds=1),
            # Left out where it cannot be had.
            Runs("horovod", workers=2, collectives="nccl", batch_a_worker=75),
            # Accuracy, against the workers and against the size of the data set.
            Runs("horovod", workers=2, dataset_size=(15_000, 60_000), **trained),
        ],
        allreduces=[
            AllReduces(("mpi", "gloo", "tensorflow", "bare mpi"), workers=2, rounds=2),
            *(AllReduces("mpi", workers=count, rounds=2) for count in workers[1:]),
        ],
    )
