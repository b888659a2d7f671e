"""Small studies for tests: config files, and what a machine may have."""

import pathlib

from tfmat.config import default_config
from tfmat.scaling.measure import Machine, Study
from tfmat.scaling.study import Matrix, Model

START = """
from tfmat.config import default_config
from tfmat.scaling.study import AllReduces, Matrix, Runs


def get_config():
    config = default_config()
    config.data.update(num_test=100, num_validation=200)
    config.model.update(conv_filters=(4,), kernel_sizes=(7,), hidden_units=(40,))
    return config


def get_scaling():
    return """

TINY = """Matrix(
        rounds=2, seconds=0.2, split_rounds=1, dataset_size=1500,
        runs=[Runs("single", batch_a_worker=75), Runs("horovod", workers=2, batch_a_worker=75, rounds=1)],
        allreduces=[AllReduces(("mpi", "tensorflow"), sizes=(1024, 65536, 1048576, 16777216), rounds=1)],
    )
"""
LOCAL = Machine("test", 2, 2, sums_with=frozenset({"mpi", "gloo"}), mpirun=True, infiniband=False)


def write_config(folder: pathlib.Path, matrix: str = TINY) -> pathlib.Path:
    """A config file with that matrix."""
    path = folder / "study.py"
    path.write_text(START + matrix)
    return path


MODELS = {"default": Model("default", 1000, 4000), "large": Model("large", 9000, 36000)}


def study(matrix: Matrix) -> Study:
    """That matrix on this machine."""
    return Study(default_config(), matrix, LOCAL, MODELS, pathlib.Path("/data"))


def points(matrix: Matrix) -> list:
    """What it measures here."""
    about = study(matrix)
    groups, _ = about.groups()
    return [about.point(group.variant, task) for group in groups for task in group.tasks]
