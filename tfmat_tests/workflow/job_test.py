"""The size of a network before it is built, against Keras; sizes that cannot be, on the command line."""

import numpy as np
import pytest

from tfmat.cli.main import main
from tfmat.config import apply_override, check_config, default_config
from tfmat.networks.factory import build_model
from tfmat.records.simulation import RecordForm
from tfmat.workflow import count_parameters


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.hidden_units": "7,5"},
        {"model.conv_filters": "4", "model.kernel_sizes": "3", "model.pool_size": "3"},
        {"model.pool_size": "1"},
        {"model.representation": "plastic_spectrum"},
        {"model.representation": "fit"},
    ],
)
def test_parameters_are_as_many_as_keras_makes(changes):
    config = default_config()
    for key, text in changes.items():
        apply_override(config, key, text)
    check_config(config)
    model = build_model(config.model, num_outputs=2, num_points=31)
    assert count_parameters(config, num_outputs=2, form=RecordForm(31)) == model.count_params()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.num_points=1000000000000000000", "would need at least"),
        ("model.hidden_units=100000000", "a network of 120,300,003,"),
        ("model.hidden_units=1000000,1000000", "of memory, and this machine"),
        ("global_batch_size=4000000000", "a batch of 4,000,000,000 curves of 200 points would need"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused_at_once(change, message, tmp_path, refused):
    flags = ["--workdir=run", "--data_dir=data", f"--config.{change}"]
    if "batch" in change:
        flags.append("--config.data.num_curves=8000000000")
    assert message in refused("train", *flags)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--law=prony", "--config.tests=creep"], "not for records that tell time; give"),
        (
            ["--law=voce_chaboche", "--config.model.input_scaling=curve"],
            "scales for itself; leave out model.input_scaling",
        ),
    ],
)
def test_a_plastic_spectrum_is_for_driven_strain_alone(changes, message, refused):
    assert message in refused("train", *changes, "--config.model.representation=plastic_spectrum")


def test_a_fit_needs_the_law_of_the_records(tmp_path, refused):
    modulus = np.random.default_rng(0).uniform(1.0, 2.0, (40, 1))
    strain, data = np.linspace(0.0, 0.05, 20), tmp_path / "own.npz"
    np.savez(
        data,
        strain=strain,
        stress=1e3 * strain * modulus,
        parameters=modulus,
        names=["K"],
        units=["MPa"],
        scale=["linear"],
    )
    assert main(["generate", f"--from={data}", f"--data_dir={tmp_path / 'data'}"]) == 0
    (folder,) = (tmp_path / "data").iterdir()
    flags = [f"--workdir={tmp_path / 'run'}", f"--data_dir={folder}"]
    said = refused("train", "--config.model.representation=fit", *flags)
    assert "needs the law that made the records" in said
