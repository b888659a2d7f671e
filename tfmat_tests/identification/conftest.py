"""The trained run that these tests share, and its network."""

import pytest

from tfmat_tests.trained_run import posterior_run, trained_run, uncertain_run

__all__ = ["identifier", "posterior_run", "trained_run", "uncertain_run"]


@pytest.fixture(scope="module")
def identifier(trained_run):
    from tfmat.identification.networks import Identifier  # some of these tests need no TensorFlow

    return Identifier.open(trained_run.workdir)
