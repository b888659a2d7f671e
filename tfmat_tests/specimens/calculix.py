"""What tests of decks share: they want a real CalculiX, and the examples of the docs."""

import shutil

import pytest

from tfmat_tests.mpi import PROJECT

EXAMPLES = PROJECT / "docs" / "examples"

needs_ccx = pytest.mark.skipif(
    shutil.which("ccx") is None, reason="CalculiX (ccx) is not installed"
)
