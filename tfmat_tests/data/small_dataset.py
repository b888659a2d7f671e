"""A packed data set of five small shards that tests generate, and what lies in its folder."""

import pathlib

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.records.simulation import CurveSettings

SETTINGS = CurveSettings(num_points=16)
# 5 shards of 2048 rows, the last with 8 curves and the test rows.
COUNTS = {"seed": 3, "num_curves": 8200, "num_test": 300}


def generate(data_dir: pathlib.Path, **changes: object) -> PackedDataset:
    arguments = {
        "settings": SETTINGS,
        "data_dir": data_dir,
        "shard_size": 2048,
        **COUNTS,
        **changes,
    }
    return generate_dataset(**arguments)  # type: ignore[arg-type]


def shard_bytes(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*"))}
