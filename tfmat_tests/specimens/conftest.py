"""The description that these tests share."""

import pytest

from tfmat_tests.specimens.bar import bar_folder


@pytest.fixture
def bar(tmp_path):
    """The folder of a description."""
    return bar_folder(tmp_path)
