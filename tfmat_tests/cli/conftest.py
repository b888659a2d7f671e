"""The trained runs and the test of a refusal that these tests share."""

from tfmat_tests.refused import refused
from tfmat_tests.trained_run import posterior_run, trained_run, uncertain_run

__all__ = ["posterior_run", "refused", "trained_run", "uncertain_run"]
