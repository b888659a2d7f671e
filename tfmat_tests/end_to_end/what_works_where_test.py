"""Each cell of the table "What works where", tried by `tfmat train`: it trains, or it is refused in one line."""

import pytest

from tfmat_tests.end_to_end.runs import status
from tfmat_tests.mpi import mpirun
from tfmat_tests.what_works import what_works

CELLS = [(name, *cell) for name, cells in what_works()[0].items() for cell in cells.items()]
STEPS = 16  # of local_steps=16, one meeting
SMALL = (
    "--config=configs/smoke.py",
    "--config.data.num_curves=810",
    "--config.data.num_test=20",
    "--config.data.num_validation=160",
    "--config.data.num_points=32",
    "--config.global_batch_size=20",
    f"--config.train_for={STEPS}steps",
    "--config.model.conv_filters=2",
    "--config.model.kernel_sizes=3",
    "--config.model.hidden_units=6",
    "--noreport",
)


def command(extra, backend):
    """`tfmat train` with that extra, as a user asks for it."""
    asked = ["mesh=stage:2" if extra == "pipeline stages" else extra]
    asked += ["mesh=batch:2"] if backend == "dtensor" and extra != "pipeline stages" else []
    return ["train", f"--backend={backend}", *(f"--config.{each}" for each in asked), *SMALL]


@pytest.mark.parametrize(("extra", "backend"), [cell[:2] for cell in CELLS if cell[2] == "refused"])
def test_what_is_refused(extra, backend, monkeypatch, refused):
    """By the first of two ranks, before anything is made."""
    if backend not in ("single", "dtensor"):
        for name, value in (("RANK", 0), ("SIZE", 2), ("LOCAL_RANK", 0), ("LOCAL_SIZE", 2)):
            monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    line = refused(*command(extra, backend), "--workdir=run", "--data_dir=data")
    assert backend in line or "asynchronous" in line


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data set, which the first run makes."""
    return tmp_path_factory.mktemp("data")


# Other tests run each backend, and most extras on one of them; here are all cells.
@pytest.mark.large
@pytest.mark.parametrize(("extra", "backend"), [cell[:2] for cell in CELLS if cell[2] != "refused"])
def test_what_trains(extra, backend, tmp_path, data_dir):
    """Two ranks, or two devices of a process."""
    ranks = 1 if backend in ("single", "dtensor") else 2
    folders = (f"--workdir={tmp_path}", f"--data_dir={data_dir}")
    done = mpirun(ranks, "-m", "tfmat", *command(extra, backend), *folders)
    assert done.returncode == 0, done.stderr
    assert status(tmp_path)["state"] == "done" and status(tmp_path)["step"] == STEPS
