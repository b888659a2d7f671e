"""The trained run that these tests share."""

from tfmat_tests.trained_run import trained_run, uncertain_run

__all__ = ["trained_run", "uncertain_run"]
