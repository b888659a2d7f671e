"""Lengths of training as people write them: `20steps`, `8epochs`, `90s`, `10m`, `2h`."""

import dataclasses
import math
import re
from typing import Literal

from tfmat.errors import InputError

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_ALSO = {"step": "steps", "epoch": "epochs", "min": "m", "sec": "s"}


@dataclasses.dataclass(frozen=True)
class Duration:
    """A number with a unit."""

    value: float
    unit: Literal["steps", "epochs", "s", "m", "h"]

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Reads a number with a unit; InputError says which units there are."""
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]+)\s*", str(text))
        if match:
            value, unit = float(match[1]), _ALSO.get(match[2], match[2])
            known = unit in ("steps", "epochs", *_SECONDS)
            if known and math.isfinite(value) and (unit != "steps" or value == int(value)):
                return cls(value, unit)  # type: ignore[arg-type]
        raise InputError(
            f"'{text}' is not a duration; give a number with a unit: 20steps, 8epochs, 90s, 10m or 2h"
        )

    @property
    def seconds(self) -> float | None:
        """Seconds for a duration in time; None for one in steps or epochs."""
        return self.value * _SECONDS[self.unit] if self.unit in _SECONDS else None

    def steps(self, steps_per_epoch: int) -> int:
        """Steps for a duration in steps or epochs."""
        if self.seconds is not None:
            raise ValueError(f"{self} is a time; its steps follow from a measured rate")
        return round(self.value * (steps_per_epoch if self.unit == "epochs" else 1))

    def __str__(self) -> str:
        return f"{self.value:g}{self.unit}"
