"""Making the network's own intervals true, after the training."""

import numpy as np

from tfmat.data.packed import PackedDataset
from tfmat.identification.identifier import Identifier
from tfmat.identification.uncertainty import Calibration

# With 50,000 errors the place of a 95 % interval's end is known to 0.1 % of coverage.
MOST_CURVES = 50_000
# Fewer say nothing of such an end.
FEWEST_CURVES = 200


def calibrate(identifier: Identifier, dataset: PackedDataset) -> Calibration | None:
    """The calibration of the network's std on the last validation curves.

    They never train and, but for the choice of the best epoch on the first of them, are as good as new; the test curves
    stay untouched.

    Returns:
      None where the network has no uncertainty head, or the validation curves are too few.
    """
    count = min(dataset.num_validation, MOST_CURVES)
    if identifier.calibration is None or count < FEWEST_CURVES:
        return None
    end = dataset.num_train + dataset.num_validation
    rows = slice(end - count, end)
    labels, std = identifier.predict_with_std(dataset.features[rows])
    assert std is not None
    true_labels = np.asarray(dataset.labels[rows], np.float64)
    return Calibration.measured(true_labels, np.clip(labels, 0.0, 1.0), std)
