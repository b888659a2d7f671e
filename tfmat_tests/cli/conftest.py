"""The trained runs and the curve that these tests share."""

import pathlib
import shutil

import pytest

from tfmat.records.files import example_curve
from tfmat_tests.trained_run import posterior_run, trained_run, uncertain_run

__all__ = ["posterior_run", "trained_run", "uncertain_run"]


@pytest.fixture
def curve(tmp_path, monkeypatch):
    """An example of hahn_tsai in the folder that commands are called in."""
    monkeypatch.chdir(tmp_path)
    return pathlib.Path(shutil.copy(example_curve("hahn_tsai"), tmp_path / "curve.csv"))
