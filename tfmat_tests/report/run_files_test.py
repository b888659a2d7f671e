"""Reading metrics.jsonl, also of a run that was killed and went on."""

import json

import pytest

from tfmat.errors import InputError
from tfmat.training.run_folder import read_metrics


def test_lines_come_back_in_order_and_the_later_of_a_step_counts(tmp_path):
    file = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 10, "loss": 3.0},
        {"step": 20, "loss": 2.0},
        {"step": 20, "loss": 1.0},
        {"step": 15, "loss": 9.0},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + '\n{"step": 30, "lo')
    assert [(line["step"], line["loss"]) for line in read_metrics(file)] == [
        (10, 3.0),
        (15, 9.0),
        (20, 1.0),
    ]


def test_missing_file_is_no_lines_and_a_folder_is_refused(tmp_path):
    assert read_metrics(tmp_path / "none.jsonl") == []
    with pytest.raises(InputError, match="cannot read"):
        read_metrics(tmp_path)
