"""What an evaluation leaves in a run's folder."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.identification.results import Evaluation, ScoredAnswers
from tfmat.report.run_files import read_answers, read_evaluation, write_evaluation

EVALUATION = Evaluation(num_curves=20, mse=1e-4, parameters={})
VALUES = np.linspace(2000.0, 8000.0, 20)[:, None]
ANSWERS = ScoredAnswers(
    VALUES, VALUES + 50, np.full(20, 0.02), np.full(20, 80.0), np.full((7, 1), 1e-4)
)


def test_numbers_and_answers_come_back(tmp_path):
    write_evaluation(tmp_path, EVALUATION, ANSWERS)
    assert read_evaluation(tmp_path / "evaluation.json") == EVALUATION
    for name, array in vars(read_answers(tmp_path)).items():
        np.testing.assert_allclose(array, getattr(ANSWERS, name), rtol=1e-6)
    assert {file.name for file in tmp_path.iterdir()} == {"evaluation.json", "test_answers.npz"}


@pytest.mark.parametrize("content", [None, b"", b"not an archive"])
def test_answers_that_are_missing_or_damaged_are_none(tmp_path, content):
    if content is not None:
        (tmp_path / "test_answers.npz").write_bytes(content)
    assert read_answers(tmp_path) is None


def test_nothing_is_written_where_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "run").write_text("a file in the way")
    with pytest.raises(InputError, match="cannot write"):
        write_evaluation(tmp_path / "run", EVALUATION, ANSWERS)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
