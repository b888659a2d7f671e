"""What an evaluation leaves in a run's folder."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.identification.results import Evaluation
from tfmat.report.run_files import read_answers, read_evaluation, write_evaluation

EVALUATION = Evaluation(num_curves=20, mse=1e-4, parameters={})
VALUES = np.linspace(2000.0, 8000.0, 20)[:, None]
FEATURES = np.zeros((20, 5, 3), np.float32)
FEATURES[:, :3, 0] = [0.0, 0.01, 0.02]  # two padded points
FEATURES[:, :3, 1] = [0.0, 50.0, 80.0]


def test_numbers_and_answers_come_back(tmp_path):
    write_evaluation(tmp_path, EVALUATION, VALUES, VALUES + 50, FEATURES)
    assert read_evaluation(tmp_path / "evaluation.json") == EVALUATION
    answers = read_answers(tmp_path)
    np.testing.assert_allclose(answers.true, VALUES, rtol=1e-6)
    np.testing.assert_allclose(answers.identified, VALUES + 50, rtol=1e-6)
    np.testing.assert_allclose(answers.max_strain, np.full(20, 0.02), rtol=1e-6)
    np.testing.assert_allclose(answers.max_stress_mpa, np.full(20, 80.0), rtol=1e-6)
    assert answers.floor_variance.shape == (0, 1)

    write_evaluation(tmp_path, EVALUATION, VALUES, VALUES, FEATURES, np.full((7, 1), 1e-4))
    np.testing.assert_allclose(
        read_answers(tmp_path).floor_variance, np.full((7, 1), 1e-4), rtol=1e-6
    )
    assert {file.name for file in tmp_path.iterdir()} == {"evaluation.json", "test_answers.npz"}


@pytest.mark.parametrize("content", [None, b"", b"not an archive"])
def test_answers_that_are_missing_or_damaged_are_none(tmp_path, content):
    if content is not None:
        (tmp_path / "test_answers.npz").write_bytes(content)
    assert read_answers(tmp_path) is None


def test_nothing_is_written_where_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "run").write_text("a file in the way")
    with pytest.raises(InputError, match="cannot write"):
        write_evaluation(tmp_path / "run", EVALUATION, VALUES, VALUES, FEATURES)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
