"""Loss and metrics over many examples, whatever the backend."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends import Backend
from tfmat.backends.metrics import Summary
from tfmat.data.pipeline import sequential_blocks

EVALUATION_BATCH_SIZE = 500


def evaluate_all(backend: Backend, data: Any, count: int, summary: Summary) -> dict[str, float]:
    """Loss and metrics over the first `count` examples, in inference mode, by name.

    Args:
      backend: built; every worker calls this.
      data: placed (features, labels), or with weights behind them.
      count: of examples.
      summary: of what the backend sums.
    """
    sums = np.zeros(summary.num_sums)
    batch_size = min(EVALUATION_BATCH_SIZE * backend.world_size, max(count, backend.world_size))
    columns = backend.columns(batch_size)
    for block in sequential_blocks(data, 0, count, batch_size, columns=columns):
        sums += backend.evaluate(*block).sum(axis=0, dtype=np.float64)
    return summary.values(sums, count)


def num_examples(data: Any) -> int:
    """Of a structure of arrays or tensors with the same first axis."""
    return len(tf.nest.flatten(data)[0])
