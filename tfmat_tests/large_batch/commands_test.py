"""The three commands as a user calls them, on a set of 1,200 curves."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from tfmat.cli.main import main
from tfmat.large_batch import sweeps
from tfmat.large_batch.sweeps import read_rates, smooth
from tfmat_tests.large_batch.conftest import SMALL


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.mark.pictures
def test_a_sweep_has_a_row_a_run_and_repeats_none(sweep):
    folder, arguments = sweep
    table = pd.read_csv(folder / "batch_sweep.csv")
    assert list(zip(table.kind, table.batch, strict=True)) == [
        ("epochs", 100), ("epochs", 300), ("time", 100), ("time", 300),
    ]  # fmt: skip
    assert (table.state == "done").all()
    equal = table[table.kind == "epochs"]
    assert equal.steps.tolist() == [18, 6] and (equal.epochs == 2).all()
    assert (table.training_seconds > 0).all() and np.isfinite(table.val_loss).all()
    # Equal time: the number of steps was fixed from the rate of each batch.
    for _, row in table[table.kind == "time"].iterrows():
        config = json.loads((folder / f"time-batch-{row.batch:06d}" / "config.json").read_text())
        assert config["total_steps"] == row.steps
    written = (folder / "epochs-batch-000100" / "metrics.jsonl").stat().st_mtime_ns
    assert main(arguments) == 0
    assert (folder / "epochs-batch-000100" / "metrics.jsonl").stat().st_mtime_ns == written
    pd.testing.assert_frame_equal(pd.read_csv(folder / "batch_sweep.csv"), table)
    assert (folder / "batch_sweep.png").stat().st_size > 10_000
    assert (folder / "batch_sweep.svg").read_text().startswith("<?xml")


@pytest.mark.pictures
def test_noise_scale_of_a_run(sweep, done, tmp_path):
    run = shutil.copytree(sweep[0] / "epochs-batch-000100", tmp_path / "run")
    shown = done("noise_scale", f"--workdir={run}", "--small=10", "--big=200", "--groups=8")
    content = json.loads((run / "noise_scale.json").read_text())
    assert [point["step"] for point in content["points"]] == [9, 18]
    assert [point["epoch"] for point in content["points"]] == [1.0, 2.0]
    assert all(point["variance"] > 0 for point in content["points"])
    assert "noise scale" in shown and str(run / "figures" / "noise_scale.png") in shown
    assert (run / "figures" / "noise_scale.png").stat().st_size > 10_000


def test_range_test_of_two_batches(tmp_path, data_dir, capsys):
    arguments = [
        "lr_range", *SMALL, f"--workdir={tmp_path}", f"--data_dir={data_dir}", "--batches=50,300",
        "--steps=40", "--low=1e-4", "--high=1",
    ]  # fmt: skip
    assert main(arguments) == 0
    table = pd.read_csv(tmp_path / "batch-000050.csv")
    assert table.learning_rate[0] == pytest.approx(1e-4)
    # The rate that the steps had: an equal factor from one to the next, 1 at the last of all 40.
    np.testing.assert_allclose(np.diff(np.log(table.learning_rate)), np.log(1e4) / 39, rtol=1e-6)
    assert capsys.readouterr().out.startswith("batch 50: loss falls fastest at ")
    written = (tmp_path / "batch-000050.csv").stat().st_mtime_ns
    assert main(arguments) == 0
    assert (tmp_path / "batch-000050.csv").stat().st_mtime_ns == written


def test_a_range_test_of_another_data_set_is_another(tmp_path):
    """The config says nothing of imported curves; the table of the first data set was shown for the second."""
    strain = np.linspace(0.0, 0.05, 50)
    slopes = np.linspace(1000.0, 2000.0, 200)
    tables = []
    for name, labels in (("a", slopes), ("b", np.random.default_rng(0).permutation(slopes))):
        np.savez(
            tmp_path / f"{name}.npz", strain=strain, stress=slopes[:, None] * strain,
            parameters=labels[:, None], names=["E"], units=["MPa"],
        )  # fmt: skip
        folder = tmp_path / name
        assert main(["generate", f"--from={folder}.npz", f"--data_dir={folder}"]) == 0
        (data,) = folder.iterdir()
        arguments = [each for each in SMALL if not each.startswith("--config.data.")]
        arguments += [f"--data_dir={data}", f"--workdir={tmp_path / 'range'}"]
        assert main(["lr_range", *arguments, "--batches=50", "--steps=20"]) == 0
        tables.append(pd.read_csv(tmp_path / "range" / "batch-000050.csv"))
    assert not np.allclose(tables[0].loss, tables[1].loss, rtol=1e-3)


def test_a_range_test_takes_its_steps_as_a_run_does(tmp_path, data_dir, capsys):
    """In parts, computed again and with slots on disk the losses are the same; in bfloat16 others, and near."""
    common = [
        "lr_range",
        *SMALL,
        f"--data_dir={data_dir}",
        "--batches=60",
        "--steps=20",
        "--high=1e-2",
        "--config.model.hidden_units=64",  # wide enough for bfloat16
    ]
    slow = ["--config.accumulate=3", "--config.model.recompute=every:1", "--config.offload=slots"]
    losses = {}
    for name, how in (("plain", []), ("slow", slow), ("half", ["--config.precision=bfloat16"])):
        assert main([*common, f"--workdir={tmp_path / name}", *how]) == 0
        losses[name] = pd.read_csv(tmp_path / name / "batch-000060.csv").loss
    np.testing.assert_allclose(losses["slow"], losses["plain"], rtol=1e-4)
    np.testing.assert_allclose(losses["half"], losses["plain"], rtol=0.05)
    assert (losses["half"] != losses["plain"]).any()
    capsys.readouterr()
    for how, line in (
        (["--config.accumulate=3", "--config.model.batch_normalization=synchronized"], "accumulate=3"),
        (["--config.model.recompute=every:100"], "recompute=every:100 leaves the model in one piece"),
        (["--config.offload=slots", "--config.optimizer.name=sgd", "--config.optimizer.momentum=0"], "has no slots"),
    ):  # fmt: skip
        assert main([*common, f"--workdir={tmp_path / 'refused'}", *how]) == 2
        assert line in capsys.readouterr().err


def test_a_range_test_of_a_posterior_stays_above_zero(tmp_path, data_dir):
    arguments = [
        "lr_range", *SMALL, f"--workdir={tmp_path}", f"--data_dir={data_dir}", "--batches=300",
        "--steps=20", "--low=1e-4", "--high=1e-2", "--config.model.uncertainty=flow", "--config.model.couplings=2",
    ]  # fmt: skip
    assert main(arguments) == 0
    assert (pd.read_csv(tmp_path / "batch-000300.csv").loss > 0).all()


def test_a_range_test_around_fits_begins_at_losses_of_thousands(tmp_path, data_dir, capsys):
    arguments = [
        "lr_range", *SMALL, f"--workdir={tmp_path}", f"--data_dir={data_dir}", "--batches=60",
        "--steps=20", "--low=1e-6", "--high=1e-4", "--config.law=voce", "--config.data.num_curves=80",
        "--config.model.representation=fit", "--config.model.uncertainty=flow", "--config.model.couplings=2",
    ]  # fmt: skip
    assert main(arguments) == 0
    assert capsys.readouterr().err.count("prepared 60 records") == 1
    losses = pd.read_csv(tmp_path / "batch-000060.csv").loss
    assert len(losses) == 20 and (losses > 0).all() and np.isfinite(losses).all()


def test_the_noise_scale_of_a_network_around_fits(tmp_path, data_dir, capsys, done):
    arguments = [
        "train", *SMALL, "--noreport", f"--workdir={tmp_path}", f"--data_dir={data_dir}", "--config.data.num_curves=80",
        "--config.data.num_test=20", "--config.global_batch_size=10", "--config.train_for=6steps",
        "--config.model.representation=fit",
    ]  # fmt: skip
    done(*arguments)
    assert (
        main(["noise_scale", f"--workdir={tmp_path}", "--small=2", "--big=10", "--groups=6"]) == 0
    )
    assert "prepared 60 records" in capsys.readouterr().err
    (point,) = json.loads((tmp_path / "noise_scale.json").read_text())["points"]
    assert point["step"] == 6 and point["variance"] > 0


def test_rates_of_a_loss_with_a_known_minimum():
    """log loss = (log10 rate + 2)² - 3: lowest at 0.01, steepest at the first rate that counts."""
    rates = np.geomspace(1e-5, 1.0, 501)
    table = pd.DataFrame(
        {"learning_rate": rates, "smoothed_loss": np.exp((np.log10(rates) + 2) ** 2 - 3)}
    )
    found = read_rates(75, table)
    assert found.lowest == pytest.approx(0.01, rel=0.02)
    assert found.suggested == pytest.approx(0.01 / 3, rel=0.02)
    assert found.steepest == pytest.approx(rates[20]) and found.open_end == ""


@pytest.mark.parametrize(("slope", "end"), [(-0.3, "high"), (0.3, "low")])
def test_a_loss_that_only_falls_or_rises_says_too_little(slope, end):
    rates = np.geomspace(1e-4, 1.0, 100)
    table = pd.DataFrame({"learning_rate": rates, "smoothed_loss": rates**slope})
    assert read_rates(75, table).open_end == end


def test_a_loss_that_is_no_number_from_the_start(tmp_path, data_dir, monkeypatch, refused):
    def without_labels(*given):
        dataset = prepare_data(*given)
        return dataclasses.replace(dataset, labels=np.full_like(dataset.labels, np.nan))

    prepare_data = sweeps.prepare_data
    monkeypatch.setattr(sweeps, "prepare_data", without_labels)
    arguments = ["lr_range", *SMALL, f"--workdir={tmp_path}", f"--data_dir={data_dir}"]
    assert "batch 300: the loss of the first step is nan" in refused(
        *arguments, "--batches=300", "--steps=20"
    )


def test_smoothing_is_unbiased():
    np.testing.assert_allclose(smooth([3.0] * 5), 3.0)
    expected = (0.95 * 0.05 * 1 + 0.05 * 2) / (1 - 0.95**2)
    assert smooth([1.0, 2.0])[1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["noise_scale", "--workdir=none"], "none/config.json does not exist"),
        (["lr_range", "--batches=75,x"], "'x' is no batch size"),
        (["batch_sweep", *SMALL, "--equal_time=3epochs"], "--equal_time=3epochs is no time"),
        (["lr_range", "--low=1", "--high=0.1"], "--low=1.0 --high=0.1: give two positive rates"),
        (["lr_range", *SMALL, "--batches=5000"], "batch 5000 is larger than the 900 training curves"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(arguments, line, refused):
    assert line in refused(*arguments)
