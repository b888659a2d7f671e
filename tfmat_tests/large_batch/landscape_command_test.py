"""`tfmat landscape` as a user calls it, on two small runs of a batch sweep."""

import json
import shutil
import signal

import keras
import numpy as np
import pandas as pd
import pytest

from tfmat.backends.base import Collectives
from tfmat.cli.main import main
from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError, Interrupted
from tfmat.large_batch.landscape import LandscapeOptions, measure_landscape, pick_rows, read_runs
from tfmat_tests.mpi import mpirun

MEASURED = ["--points=5", "--num_curves=200", "--eigenvalues=1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sweep):
    """Folders of two runs."""
    folder = tmp_path_factory.mktemp("runs")
    names = "epochs-batch-000100", "epochs-batch-000300"
    return [shutil.copytree(sweep[0] / name, folder / name) for name in names]


@pytest.fixture(scope="module")
def measured(runs):
    assert main(["landscape", *map(str, runs), *MEASURED]) == 0
    return [json.loads((run / "landscape.json").read_text()) for run in runs]


def loss_by_keras(run, content, x, part):
    """The mean squared error at x along the first direction, of the saved network, moved by a loop over its filters."""
    model = keras.models.load_model(run / "final.keras", compile=False)
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        weight = np.asarray(variable)
        drawn = random.standard_normal(weight.shape)
        if weight.ndim == 1:
            continue
        for output in range(weight.shape[-1]):
            d, w = drawn[..., output], weight[..., output]
            weight[..., output] = w + x * d / np.linalg.norm(d) * np.linalg.norm(w)
        variable.assign(weight)
    dataset = PackedDataset.open(json.loads((run / "config.json").read_text())["data_dir"])
    held = dataset.num_train + dataset.num_validation
    place = {"train": (0, dataset.num_train), "test": (held, dataset.num_test)}[part]
    rows = pick_rows(*place, 200, 0).ravel()
    assert len(set(rows)) == content["curves"][part] == 200
    # Called, as a graph for each of a few points would take longer.
    outputs = np.asarray(model(dataset.features[rows]))[:, : dataset.labels.shape[1]]
    return float(np.mean((outputs - dataset.labels[rows]) ** 2))


@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize("part", ["train", "test"])
def test_losses_are_those_of_the_saved_network_moved_by_hand(runs, measured, place, part):
    content = measured[0]
    assert content["x"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    expected = loss_by_keras(runs[0], content, content["x"][place], part)
    np.testing.assert_allclose(content["loss"][part][0][place], expected, rtol=1e-4)


@pytest.mark.pictures
def test_several_runs_give_a_table_by_batch_and_pictures(runs, measured, capsys):
    before = (runs[0] / "landscape.json").stat().st_mtime_ns
    assert main(["landscape", *map(str, runs), *MEASURED]) == 0  # measured already
    assert (runs[0] / "landscape.json").stat().st_mtime_ns == before
    table = pd.read_csv(runs[0].parent / "landscapes.csv")
    assert table.batch.tolist() == [100, 300]
    shown = capsys.readouterr().out
    for row, content in zip(table.itertuples(), measured, strict=True):
        assert row.train_loss == content["loss"]["train"][0][2]
        assert row.eigenvalue == content["curvature"]["eigenvalues"][0]["value"] > 0
        assert row.eigenvalue_error > 0 and row.sharpness > 0
        assert f"{row.eigenvalue:.4g}" in shown
    for file in ("landscapes.png", "landscapes.svg", "epochs-batch-000100/figures/landscape.png"):
        assert (runs[0].parent / file).stat().st_size > 5_000
    points = pd.read_csv(runs[0] / "landscape.csv")
    assert points.test_loss.tolist() == measured[0]["loss"]["test"][0]
    assert "data-surface" in (runs[0] / "report.html").read_text()


@pytest.mark.pictures
def test_between_two_minima_the_ends_are_the_minima(runs, measured, tmp_path):
    arguments = ["--between", "--points=5", "--num_curves=200", f"--workdir={tmp_path}"]
    assert main(["landscape", *map(str, runs), *arguments]) == 0
    content = json.loads((tmp_path / "landscape_between.json").read_text())
    assert content["x"] == [-0.5, 0.0, 0.5, 1.0, 1.5] and content["y"][2] == 0.0
    for part in ("train", "test"):
        row = content["loss"][part][2]
        for place, other in ((1, measured[0]), (3, measured[1])):
            np.testing.assert_allclose(row[place], other["loss"][part][0][2], rtol=1e-4)
    assert (tmp_path / "figures" / "landscape_between.png").stat().st_size > 5_000


def test_one_run_has_no_folder_of_several(runs, tmp_path, refused):
    assert "--workdir is for what is about several runs" in refused(
        "landscape", runs[0], f"--workdir={tmp_path}"
    )


def test_two_ranks_measure_the_same(runs, measured, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(runs[0], copy)
    (copy / "landscape.json").unlink()
    arguments = ["-m", "tfmat", "landscape", str(copy), "--dimensions=1", *MEASURED]
    done = mpirun(2, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    content = json.loads((copy / "landscape.json").read_text())
    for part in ("train", "test"):
        np.testing.assert_allclose(content["loss"][part], measured[0]["loss"][part], rtol=1e-5)
    found, alone = (each["curvature"]["eigenvalues"][0] for each in (content, measured[0]))
    np.testing.assert_allclose(found["value"], alone["value"], rtol=1e-3)


def test_a_call_that_was_stopped_keeps_its_rows_and_goes_on(runs, tmp_path):
    options = LandscapeOptions(points=3, num_curves=200, eigenvalues=0)
    opened, file = read_runs([str(runs[0])], None, options, False), tmp_path / "landscape.json"
    calls = iter([0, signal.SIGTERM])

    def measure(**more):
        return measure_landscape(opened, options, file, Collectives(), **more)

    with pytest.raises(Interrupted, match="SIGTERM received"):
        measure(stopped=lambda: next(calls))
    unfinished = tmp_path / "landscape.unfinished.json"
    parts = json.loads(unfinished.read_text())["parts"]
    assert list(parts) == ["row 0", "row 1"] and not file.exists()
    whole = measure()
    assert not unfinished.exists() and file.exists()
    assert whole.loss.train[0] == [point[0][0] for point in parts["row 0"]["points"]]
    file.unlink()
    assert measure().loss == whole.loss


def test_what_cannot_be_measured_is_refused_in_one_line(runs, tmp_path):
    def message(*folders, between=False, data_dir=None, **options):
        with pytest.raises(InputError) as refusal:
            read_runs(list(map(str, folders)), data_dir, LandscapeOptions(**options), between)
        return str(refusal.value)

    first, second = runs
    assert "is not there" in message(tmp_path / "none")
    assert "config.json does not exist" in message(tmp_path)
    assert "named twice" in message(first, first)
    assert "for two runs, not for 1" in message(first, between=True)
    assert "odd" in message(first, points=4)
    assert "5, 9, 13" in message(first, second, between=True, points=7)
    assert "give 1 or 2" in message(first, dimensions=3)
    assert "give 100 or more" in message(first, num_curves=20)
    assert "must be positive" in message(first, extent=0.0)
    copy = tmp_path / "run"
    shutil.copytree(first, copy)
    for file, change, told in (
        ("config.json", {"data_dir": str(tmp_path / "gone")}, "is not there; give its folder"),
        ("status.json", {"state": "running"}, "is running, not done"),
        ("model.json", {"law": "swift"}, "law in model.json differs"),
    ):
        before = (copy / file).read_text()
        (copy / file).write_text(json.dumps({**json.loads(before), **change}))
        assert told in message(copy, second, between=True)
        (copy / file).write_text(before)
    content = json.loads((copy / "config.json").read_text())
    content["model"]["hidden_units"] = [7]
    (copy / "config.json").write_text(json.dumps(content))
    assert "different networks: model.hidden_units" in message(copy, second, between=True)
