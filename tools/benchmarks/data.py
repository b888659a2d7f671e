"""What every way of training gets and gives; without TensorFlow, with which not every library can share a process."""

from typing import NamedTuple

import numpy as np

LEARNING_RATE = 1e-3


class Data(NamedTuple):
    """features: float32 [curves, 200, 3], physical units; labels: float32 [curves, 2]; scale: divides the features."""

    features: np.ndarray
    labels: np.ndarray
    scale: np.ndarray

    def scaled(self) -> np.ndarray:
        """Features as a textbook feeds them: brought to about 1 before the training, which costs no step anything."""
        return self.features / self.scale


class Timing(NamedTuple):
    """What one run took: work is examples, or floating-point operations where nothing is trained."""

    work: float
    seconds: float
