"""The main job's parts; whole runs are in end_to_end/."""

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest

from tfmat.backends import make_backend
from tfmat.cli.main import main
from tfmat.config import apply_override, default_config
from tfmat.data.dataset import PackedDataset, dataset_folder, generate_dataset
from tfmat.errors import InputError
from tfmat.files import plain
from tfmat.records.simulation import CurveSettings
from tfmat.training import run
from tfmat.workflow import (
    calibrate_run,
    curve_settings,
    main_job,
    make_dataset,
    seed_and_counts,
    sidecar,
)


def _config(**changes: str):
    config = default_config()
    for key, text in {
        "data.num_curves": "400", "data.num_test": "20", "data.num_validation": "50",
        "data.num_points": "48", "model.conv_filters": "4", "model.kernel_sizes": "5", "model.hidden_units": "30",
        "global_batch_size": "50", "train_for": "2epochs", **{k.replace("__", "."): v for k, v in changes.items()},
    }.items():  # fmt: skip
        apply_override(config, key, text)
    return config


def test_the_config_says_what_is_simulated(tmp_path, capsys):
    config = _config(
        law="voce", ranges__Q="50,1600", fixed__E="193000", data__noise_mpa="2",
        data__max_strain="0.1,0.4", data__num_points="64", data__noise_relative="0.01",
    )  # fmt: skip
    expected = CurveSettings(
        law="voce", ranges={"Q": (50.0, 1600.0)}, fixed={"E": 193_000.0}, noise_mpa=2.0,
        max_strain=(0.1, 0.4), num_points=64, noise_relative=0.01,
    )  # fmt: skip
    assert curve_settings(config).to_json() == expected.to_json()
    dataset = make_dataset(config, curve_settings(config), str(tmp_path))
    assert dataset.folder == dataset_folder(tmp_path, expected, 0, 400, 20)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("simulated in ")
    # Complete: checked, and not a word.
    again = make_dataset(config, curve_settings(config), str(tmp_path))
    assert again.folder == dataset.folder and capsys.readouterr().err == ""


def test_the_curves_may_have_a_seed_of_their_own() -> None:
    configs = _config(seed="5"), _config(seed="1", data__seed="5"), _config(seed="1")
    assert [seed_and_counts(config)["seed"] for config in configs] == [5, 5, 1]


def test_the_sidecar_gives_the_numbers_a_meaning(tmp_path: pathlib.Path) -> None:
    config = _config(law="voce", fixed__E="193000")
    dataset = make_dataset(config, curve_settings(config), str(tmp_path))
    content = plain(sidecar(config, dataset))
    assert content["format"] == 1 and content["law"] == "voce" and content["num_points"] == 48
    assert [p["name"] for p in content["parameters"]] == ["sigma0", "Q", "b"]
    assert CurveSettings.from_json(content["curves"]).to_json() == curve_settings(config).to_json()
    assert content["input_scale"] == dataset.input_scale


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch_size": "301"}, "data.num_curves=400 leaves 300 for training"),
        ({"train_for": "0.001epochs"}, "less than one step"),
        ({"ranges.a": "5,1"}, "range of a"),
        ({"model.uncertainty": "flow", "loss_weights": "8,1"}, "loss_weights weigh squared errors"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_made(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        main_job(_config(**changes), workdir=str(tmp_path / "run"), data_dir=str(tmp_path / "data"))
    assert not list(tmp_path.iterdir())


def test_the_trial_that_measures_the_rate_is_longer_than_every_schedule(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of some seconds knows the number of its steps only after it: before, no warm-up is told to be cut."""

    def measured(*_: Any) -> float:
        raise InputError("the trial is over")

    monkeypatch.setattr(run, "measure_steps_per_second", measured)
    config = _config(train_for="2s", optimizer__warmup="1000000000steps")
    with pytest.raises(InputError, match="the trial is over"):
        main_job(config, workdir=str(tmp_path / "run"), data_dir=str(tmp_path / "data"))
    assert "warm-up" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a run on a data set that was named itself: its settings replace the config's."""
    folder = tmp_path_factory.mktemp("finished")
    settings = CurveSettings(law="voce", fixed={"E": 193_000.0}, ranges={"Q": (50.0, 1600.0)})
    dataset = generate_dataset(
        settings, seed=3, num_curves=800, num_test=40, data_dir=folder / "data"
    )
    main_job(_config(), workdir=str(folder / "run"), data_dir=str(dataset.folder))
    return folder / "run"


def test_files_of_a_run(finished: pathlib.Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {
        "config.json", "status.json", "metrics.jsonl", "checkpoints", "model.keras", "final.keras", "model.json",
        "tensorboard", "figures", "log.txt", "evaluation.json", "example.json", "example_curve.csv",
        "test_answers.npz", "example_picture.json", "provenance.json", "report.html",
    } <= names  # fmt: skip
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [12, 24]
    told = {"epoch", "seconds", "curves_per_second", "loss", "val_loss", "mse_Q", "val_mse_b"}
    for line in lines:
        assert told <= set(line)
        parts = [line[f"val_mse_{name}"] for name in ("sigma0", "Q", "b")]
        assert line["val_loss"] == pytest.approx(np.mean(parts), rel=1e-5)


def test_a_run_on_tests_ends_with_an_example_that_can_be_identified_again(tmp_path, capsys):
    config = _config(law="mooney_rivlin", data__num_points="32", data__missing_tests="0.3")
    main_job(config, workdir=str(tmp_path / "run"), data_dir=str(tmp_path / "data"))
    said = capsys.readouterr().err
    (line,) = re.findall(r"identify your own as this one: tfmat (.*)", said)
    (example,) = json.loads((tmp_path / "run" / "example.json").read_text())
    assert main([*line.split(), f"--json={tmp_path / 'again.json'}"]) == 0
    (again,) = json.loads((tmp_path / "again.json").read_text())
    assert again["parameters"] == example["parameters"]
    assert [test["test"] for test in again["tests"]] == ["uniaxial", "equibiaxial", "planar"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") >= 3 and "One example: tests of one material" in page


def test_a_named_data_set_replaces_the_settings(finished: pathlib.Path) -> None:
    config = json.loads((finished / "config.json").read_text())
    assert config["law"] == "voce" and config["data"]["num_curves"] == 800
    assert config["fixed"] == {"E": 193_000.0} and config["ranges"]["Q"] == [50.0, 1600.0]
    assert config["num_examples"] == 600 and config["total_steps"] == 24
    PackedDataset.open(config["data_dir"])


def test_the_best_model_is_the_one_of_the_best_epoch(finished: pathlib.Path) -> None:
    """Computed here, by Keras, over the validation examples that were used."""

    config = json.loads((finished / "config.json").read_text())
    dataset = PackedDataset.open(config["data_dir"])
    model = keras.saving.load_model(finished / "model.keras")
    rows = slice(dataset.num_train, dataset.num_train + 50)
    outputs = model.predict(np.array(dataset.features[rows]), verbose=0)
    loss = float(np.mean((outputs - dataset.labels[rows]) ** 2))
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert loss == pytest.approx(min(line["val_loss"] for line in lines), rel=1e-4)


def test_a_variance_head_is_trained_calibrated_once_and_evaluated(tmp_path, capsys):
    """In a run that is shorter than its warm-up, and says that it cuts it."""
    config = _config(
        data__num_curves="800",
        train_for="20steps",
        model__uncertainty="gaussian",
        optimizer__warmup="500steps",
    )
    folders: dict[str, Any] = {"workdir": str(tmp_path / "run"), "data_dir": str(tmp_path / "data")}
    main_job(config, **folders)
    note = (
        "note: optimizer.warmup=500steps takes 500 steps, the whole run 20; "
        "the warm-up is cut to a tenth of the run (steps: 2)"
    )
    assert [line for line in capsys.readouterr().err.splitlines() if "warmup" in line] == [note]
    sidecar_file = tmp_path / "run" / "model.json"
    content = json.loads(sidecar_file.read_text())
    assert content["format"] == 2 and content["uncertainty"] == "gaussian"
    # All validation curves, the test curves never.
    assert content["calibration"]["num_curves"] == 200
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    record = json.loads(lines[-1])
    assert record["val_loss"] == pytest.approx(
        (record["val_mse_G0"] + record["val_mse_a"]) / 2, rel=1e-5
    )
    assert {"nll", "val_nll"} <= set(record)
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert set(evaluation["coverage"]) == {"G0", "a"}
    before = sidecar_file.read_bytes()
    # Interrupted before it was calibrated: what follows every training makes up for it, and then leaves it alone.
    del content["calibration"]
    sidecar_file.write_text(json.dumps(content))
    (folder,) = (tmp_path / "data").iterdir()
    for _ in range(2):
        calibrate_run(folders["workdir"], PackedDataset.open(folder))
        assert sidecar_file.read_bytes() == before


def test_a_posterior_is_trained_and_judged(tmp_path: pathlib.Path) -> None:
    config = _config(
        data__num_curves="800", train_for="40steps", model__uncertainty="flow", model__couplings="1"
    )
    folder = tmp_path / "run"
    main_job(config, workdir=str(folder), data_dir=str(tmp_path / "data"))
    content = json.loads((folder / "model.json").read_text())
    assert content["format"] == 3 and content["uncertainty"] == "flow"
    # All validation curves, the test curves never.
    assert content["spread"]["num_curves"] == 200 and content["spread"]["value"] > 0
    record = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    evaluation = json.loads((folder / "evaluation.json").read_text())
    found = evaluation["posterior"]
    assert found["log_score"] == pytest.approx(-record["val_loss"], abs=0.5)
    assert set(found["ranks"]) == set(found["contraction"]) == set(evaluation["coverage"])
    assert set(found["joint_coverage"]) == {"50", "90", "95"}
    assert (folder / "report.html").stat().st_size > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accumulate": "2"}, "accumulate=2 is for --backend=horovod"),
        ({"local_steps": "4"}, "local_steps=4 is for --backend=horovod"),
        ({"local_steps": "4", "outer_momentum": "0.5"}, "outer_momentum=0.5 with local_steps=4 diverges"),
        ({"data__sharding": "independent"}, "data.sharding=independent is for --backend=horovod"),
        ({"mesh": "batch"}, "'batch' is no axis"),
        ({"layouts": "hidden/kernl=-,batch"}, "matches no variable"),
        ({"mesh": "batch:4096"}, "mesh batch:4096 needs 4096 devices, there are"),
    ],
)  # fmt: skip
def test_what_a_mesh_cannot_do_is_refused_before_anything_is_made(changes, message, tmp_path):
    make_backend("single")  # TensorFlow has started: no more devices can be had
    with pytest.raises(InputError, match=message):
        main_job(
            _config(**changes),
            workdir=str(tmp_path / "run"),
            data_dir=str(tmp_path / "data"),
            backend="dtensor",
        )
    assert list(tmp_path.iterdir()) == []


def test_an_asynchronous_job_is_refused_without_tensorflow_and_pictures():
    """As everything that is refused before a run; on a login node, too, which may have no TensorFlow to spare."""
    program = (
        "import sys\n"
        "from tfmat.config import default_config\n"
        "from tfmat.errors import InputError\n"
        "from tfmat.workflow import main_job\n"
        "config = default_config()\n"
        "config.quorum = 2\n"
        "try:\n"
        "    main_job(config, workdir='run', data_dir='data', backend='asynchronous')\n"
        "except InputError as error:\n"
        "    print(error, {'tensorflow', 'matplotlib'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("of which there are 1; give at most 1 set()\n"), done.stderr
