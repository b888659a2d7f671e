"""A sweep of two batches as `tfmat batch_sweep` leaves it."""

import pytest

from tfmat.cli.main import main
from tfmat_tests.pictures import BLANK
from tfmat_tests.trained_run import alone

SMALL = [
    "--config=smoke", "--config.data.num_curves=1200", "--config.data.num_test=200", "--config.data.num_points=50",
    "--config.model.conv_filters=3", "--config.model.kernel_sizes=5", "--config.model.hidden_units=8",
]  # fmt: skip


@pytest.fixture(scope="session")
def sweep(session_folder):
    """Its folder, without pictures, and the arguments that made it; only the same ones may write into it."""
    with alone(session_folder / "batch_sweep") as own, pytest.MonkeyPatch.context() as patch:
        patch.setenv(BLANK, "1")
        patch.setattr("tfmat.training.run._PROBE_SECONDS", 0.1)
        folder = own / "sweep"
        arguments = [
            "batch_sweep", *SMALL, f"--workdir={folder}", f"--data_dir={own / 'data'}", "--batches=100,300",
            "--epochs=2", "--equal_time=0.2s", "--config.optimizer.scaling=sqrt",
        ]  # fmt: skip
        if not (folder / "batch_sweep.csv").exists():
            assert main(arguments) == 0
        return folder, arguments
