"""What a reader of the page may add to the measurements: prices, power, a target. Kept beside the measurements."""

import dataclasses
import os
import pathlib

from tfmat.errors import InputError
from tfmat.files import check_json, read_json, write_json

FILE = "assumptions.json"


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """None where nothing is assumed.

    Attributes:
      price_per_hour: of one worker's device, in any currency.
      watts_a_worker: electric power of one worker; measured power goes before it.
      target_val_loss: accuracy up to which time and money are counted; by default the best that every trained point
        reached.
      baseline_hardware: divide by the single-worker speed of this hardware instead of the point's own.
      ranks_per_node: workers that a node takes, for predictions; by default the most that were measured.
      network_latency, network_bytes_per_second: of the network between nodes, for predictions beyond one node where no
        all-reduce between nodes was measured.
      device_memory_bytes: of one worker's device.
    """

    price_per_hour: float | None = None
    watts_a_worker: float | None = None
    target_val_loss: float | None = None
    baseline_hardware: str | None = None
    ranks_per_node: int | None = None
    network_latency: float | None = None
    network_bytes_per_second: float | None = None
    device_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name == "baseline_hardware":
                if not isinstance(value, str):
                    raise InputError(f"baseline_hardware is {value!r}; expected a name")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InputError(f"{field.name} is {value}; expected a number above 0")


def read_assumptions(workdir: str | os.PathLike) -> Assumptions:
    """The assumptions of a folder; the defaults where it has none. Raises InputError for a damaged file."""
    path = pathlib.Path(workdir) / FILE
    if not path.exists():
        return Assumptions()
    found: Assumptions = check_json(read_json(path), Assumptions, path)
    return found


def write_assumptions(workdir: str | os.PathLike, assumptions: Assumptions) -> None:
    """Keeps them for the next page."""
    write_json(pathlib.Path(workdir) / FILE, dataclasses.asdict(assumptions))
