"""What an evaluation leaves in a run's folder."""

import json

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.report.evaluation import write_evaluation
from tfmat_tests.report.yardstick import YARDSTICK

SCORE = {
    "unit": "MPa",
    "mse": 1e-4,
    "mae": 45.67,
    "mae_percent": 1.2,
    "mae_decades": None,
    "r2": 0.99,
}
EVALUATION = {"format": 1, "mse": 1e-4, "parameters": {"G0": SCORE}}
VALUES = np.linspace(2000.0, 8000.0, 20)[:, None]


def test_numbers_and_pictures_are_written(tmp_path):
    write_evaluation(tmp_path, EVALUATION, VALUES, VALUES + 50)
    assert json.loads((tmp_path / "evaluation.json").read_text()) == EVALUATION
    assert [file.name for file in (tmp_path / "figures").iterdir()] == [
        "predicted_against_true.png"
    ]
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "seconds": 2, "epoch": 1, "loss": 0.1, "val_loss": 0.2}\n'
    )
    write_evaluation(tmp_path, EVALUATION, VALUES, VALUES + 50)
    assert (tmp_path / "figures" / "losses.png").is_file()


def test_a_yardstick_has_a_picture_that_goes_when_it_goes(tmp_path):
    write_evaluation(tmp_path, EVALUATION | {"yardstick": YARDSTICK}, VALUES, VALUES + 50)
    picture = tmp_path / "figures" / "yardstick.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    write_evaluation(tmp_path, EVALUATION | {"yardstick": None}, VALUES, VALUES + 50)
    assert not picture.exists()


def test_nothing_is_written_where_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "figures").write_text("a file in the way")
    with pytest.raises(InputError, match="cannot write"):
        write_evaluation(tmp_path, EVALUATION, VALUES, VALUES)
    assert [file.name for file in tmp_path.iterdir()] == ["figures"]
