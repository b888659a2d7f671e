"""A study of seconds: one worker and two."""

from tfmat.config import default_config
from tfmat.scaling.matrix import AllReduces, Matrix, Runs


def get_config():
    """The default network on a small data set."""
    config = default_config()
    config.data.num_test = 20
    config.data.num_validation = 50
    return config


def get_scaling():
    """Two rounds each, and one of two libraries' all-reduces."""
    return Matrix(
        rounds=2,
        seconds=0.1,
        split_rounds=1,
        dataset_size=400,
        runs=[
            Runs("single", batch_a_worker=25),
            Runs("horovod", workers=2, batch_a_worker=25),
        ],
        allreduces=[AllReduces(("mpi", "tensorflow"), sizes=(1024, 1048576), rounds=1)],
    )
