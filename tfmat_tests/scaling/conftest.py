"""The test of a refusal, for all tests of this folder."""

from tfmat_tests.refused import refused

__all__ = ["refused"]
