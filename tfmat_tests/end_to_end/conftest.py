"""The test of a refusal, which these tests share."""

from tfmat_tests.refused import refused

__all__ = ["refused"]
