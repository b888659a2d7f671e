"""What has no weights runs once, before the first step, and is saved with what trains behind it."""

import json
import pathlib

import keras
import numpy as np
import pytest

from tfmat import workflow
from tfmat.backends import make_backend
from tfmat.backends.base import Collectives
from tfmat.config import Settings, apply_override, default_config
from tfmat.data.dataset import Kept, PackedDataset
from tfmat.errors import InputError
from tfmat.identification.networks import Identifier
from tfmat.launch import processes
from tfmat.networks.factory import build_for, parted
from tfmat.networks.law_fit import LawFit
from tfmat.workflow import curve_settings, main_job, make_dataset, train


def _config(**changes: str):
    config = default_config()
    small = {"data.num_curves": "400", "data.num_test": "20", "data.num_validation": "50"}
    small |= {"global_batch_size": "50", "train_for": "2epochs"}
    for key, text in {**small, **{k.replace("__", "."): v for k, v in changes.items()}}.items():
        apply_override(config, key, text)
    return config


def _train(config, folder: pathlib.Path) -> PackedDataset:
    """What `main_job` begins with; what follows a training is not asked about here."""
    dataset = make_dataset(config, curve_settings(config), str(folder / "data"))
    with make_backend("single", Settings.of(config)) as backend:
        train(dataset, workdir=str(folder / "run"), backend=backend)
    return dataset


@pytest.mark.parametrize(
    "simulated",
    [
        pytest.param({"law": "voce"}, marks=pytest.mark.large),
        pytest.param({"law": "voce_chaboche_1"}, marks=pytest.mark.large),
        {"law": "voce_chaboche_1", "tests": "cyclic,cyclic", "data__missing_tests": "0.3"},
    ],
)
def test_what_has_no_weights_runs_once_and_is_saved_with_the_rest(simulated, tmp_path, capsys):
    config = _config(data__num_points="64", model__representation="plastic_spectrum", **simulated)
    dataset = _train(config, tmp_path)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    rows = slice(dataset.num_train, dataset.num_train + config.data.num_validation)
    # In the blocks of the training: which points count as elastic is a matter of rounding for a few records.
    model = build_for(config, dataset)
    model.load_weights(tmp_path / "run" / "final.keras")
    front, behind = parted(model)
    assert front is not None
    seen = workflow.represented(front, dataset.features[: rows.stop], Collectives(), Kept(None))
    outputs = behind.predict(seen[rows], verbose=0)
    assert last["val_loss"] == pytest.approx(
        np.mean((outputs - dataset.labels[rows]) ** 2), rel=1e-4
    )
    saved = keras.saving.load_model(tmp_path / "run" / "final.keras", compile=False)
    # All that the file holds is the same, so that only rounding may differ where it is asked for these records alone.
    assert [each.get_config() for each in saved.layers] == [
        each.get_config() for each in model.layers
    ]
    for one, other in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    # Called and not asked to predict, so that no further graph is made of it.
    apart = np.abs(np.asarray(saved(dataset.features[rows])) - outputs).max(axis=1)
    assert np.mean(apart < 1e-5) > 0.8 and apart.max() < 0.2
    assert "prepared 400 records" in capsys.readouterr().err
    # The run is done: nothing is left to prepare for.
    _train(config, tmp_path)
    said = capsys.readouterr().err
    assert "is done" in said and "prepared" not in said


def test_a_network_around_fits_starts_where_they_end(tmp_path, monkeypatch):
    """After forty steps over 300 curves means are nearly the best possible; the loss is that of the saved file."""
    config = _config(
        model__representation="fit", model__uncertainty="flow", train_for="40steps",
        optimizer__learning_rate="1e-3", data__num_test="60", data__num_points="64", model__couplings="2",
    )  # fmt: skip
    main_job(config, workdir=str(tmp_path / "run"), data_dir=str(tmp_path / "data"))
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    for found in evaluation["reference"]["parameters"].values():
        assert found["eta"] < 1.3
    assert found["eta"] < found["least_squares_eta"]
    (record,) = (
        line for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1:]
    )
    model = keras.saving.load_model(tmp_path / "run" / "final.keras", compile=False)
    (manifest,) = (tmp_path / "data").glob("*/manifest.json")
    dataset = PackedDataset.open(manifest.parent)
    rows = slice(dataset.num_train, dataset.num_train + config.data.num_validation)
    outputs = np.asarray(model(dataset.features[rows]))
    density = model.get_layer("posterior").log_density(dataset.labels[rows], outputs)
    assert json.loads(record)["val_loss"] == pytest.approx(-np.mean(density), rel=1e-4)
    # Many are fitted by forks, and then known.
    best = keras.saving.load_model(tmp_path / "run" / "model.keras", compile=False)
    known = Identifier.open(tmp_path / "run").around_fits
    assert known is not None
    expected = np.asarray(best(dataset.features[:150]))
    for _ in range(2):
        found = known.outputs(dataset.features[:150])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    _check_that_records_are_fitted_once(tmp_path / "run", dataset, monkeypatch)


def test_fits_are_kept_with_the_records_and_interrupted_ones_go_on(tmp_path, monkeypatch):
    """Blocks of fits that are there are not made again, by the same run or another one, whose weights are the same."""
    config = _config(model__representation="fit", data__num_test="8", train_for="4steps")
    monkeypatch.setattr(workflow, "_LEAST_IN_BLOCK", 50)
    blocks: list[slice] = []
    in_processes, write = processes.in_processes, Kept.write

    def counted(work, items):
        items = list(items)
        given = [item[0] for item in items if isinstance(item, tuple)]
        blocks.extend(one for one in given if isinstance(one, slice))
        return in_processes(work, items)

    def interrupted(self: Kept, key: str, found) -> None:
        write(self, key, found)
        if np.shape(found) and len(list((tmp_path / "data").glob("*/fits-*"))) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "in_processes", counted)
    monkeypatch.setattr(processes, "available_threads", lambda: 2)
    monkeypatch.setattr(Kept, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main_job(config, workdir=str(tmp_path / "run"), data_dir=str(tmp_path / "data"))
    monkeypatch.setattr(Kept, "write", write)
    del blocks[:]
    main_job(config, workdir=str(tmp_path / "run"), data_dir=str(tmp_path / "data"))
    # Eight blocks, of which three and the start were there; then that of the test records.
    assert [block.start for block in blocks] == [150, 200, 250, 300, 350, 0]
    del blocks[:]
    main_job(config, workdir=str(tmp_path / "other"), data_dir=str(tmp_path / "data"))
    assert not blocks
    first, second = (
        keras.saving.load_model(tmp_path / name / "final.keras", compile=False).get_weights()
        for name in ("run", "other")
    )
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def _check_that_records_are_fitted_once(
    run: pathlib.Path, dataset: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is asked of the answers to them."""
    fitted: list[int] = []
    fits = LawFit.fits

    def counted(self: LawFit, records: np.ndarray, spectra: np.ndarray) -> np.ndarray:
        fitted.append(len(records))
        return fits(self, records, spectra)

    monkeypatch.setattr(LawFit, "fits", counted)
    network = Identifier.open(run)
    features, labels = dataset.features[:40], dataset.labels[:40]
    density, draws = network.log_density(features, labels), network.draws(features, 5)
    np.testing.assert_array_equal(network.log_density(features, labels), density)
    assert fitted == [40]
    network.predict(dataset.features[30:50])
    assert fitted == [40, 10]
    with network.afresh():
        np.testing.assert_array_equal(network.draws(features, 5).labels, draws.labels)
    assert fitted == [40, 10, 40]
    # Those that were kept are not fitted again, and the answers are the same.
    other = Identifier.open(run)
    del fitted[:]
    workflow.know_fits(other, dataset, slice(20, 60))
    found = other.log_density(dataset.features[20:60], dataset.labels[20:60])
    assert not fitted
    np.testing.assert_allclose(found[:20], density[20:], rtol=1e-4, atol=1e-3)
    # Records that the network does not take are refused before anything is fitted.
    config = _config(data__num_points="40")
    shorter = make_dataset(config, curve_settings(config), str(run.parent / "shorter"))
    with pytest.raises(InputError, match="points a curve, the data set .* has 40; give another"):
        workflow.know_fits(other, shorter)
