"""The trial cluster that these tests share."""

from tfmat_tests.slurm import trial_slurm

__all__ = ["trial_slurm"]
