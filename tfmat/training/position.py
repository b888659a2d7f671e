"""Where a run stands."""

import dataclasses
import math
from typing import Any


@dataclasses.dataclass
class Position:
    """Where a run stands; saved with every checkpoint, so that nothing about the run is lost by stopping."""

    step: int = 0
    epoch_sums: list[float] = dataclasses.field(default_factory=list)
    epoch_examples: float = 0.0
    best_val_loss: float = math.inf
    seconds: float = 0.0
    training_seconds: float = 0.0
    validation_seconds: float = 0.0
    last_record: dict[str, Any] = dataclasses.field(default_factory=dict)
    end_reason: str = ""  # why training ended, once it has
