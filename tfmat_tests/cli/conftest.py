"""The trained runs that these tests share."""

from tfmat_tests.trained_run import posterior_run, trained_run, uncertain_run

__all__ = ["posterior_run", "trained_run", "uncertain_run"]
