"""What a packed data set says about itself: `manifest.json`."""

import dataclasses
import datetime
import hashlib
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.files import check_json, read_json
from tfmat.materials.parameter import Parameter

FORMAT = 1
MANIFEST = "manifest.json"
BAYES_RISK = "bayes_risk.json"  # beside it, once a network was evaluated
SHARD_SIZE = 131_072  # curves in a shard: 315 MB of features at 200 points
ARRAYS = ("features", "labels")
CHANNELS = 3  # strain, stress, flag: what is there where the manifest says nothing
# Rows that are written at once and have one CRC-32; the checksum of a shard is the CRC-32 of these. Changing it
# changes the format.
PIECE = 4096


class _Source(TypedDict):
    path: str
    sha256: str


class _Content(TypedDict):
    """What is read of a manifest."""

    num_curves: int
    num_train: int
    num_validation: int
    num_test: int
    num_points: int
    shard_size: int
    seed: int
    parameters: list[Parameter]
    num_channels: NotRequired[int]
    input_scale: list[float]
    shards: list[dict[str, str] | None]
    settings: dict[str, Any] | None
    source: _Source | None
    copies: NotRequired[int]
    laboratory: NotRequired[dict[str, Any]]
    law: NotRequired[str | None]
    simulation_version: NotRequired[int | None]
    id: NotRequired[str]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each row of a packed data set lies: raw little-endian float32, no header, shard after shard."""

    num_rows: int
    num_points: int
    num_labels: int
    shard_size: int
    num_channels: int = CHANNELS

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "Layout":
        return cls(
            num_rows=manifest["num_curves"] + manifest["num_test"],
            num_points=manifest["num_points"],
            num_labels=len(manifest["parameters"]),
            shard_size=manifest["shard_size"],
            num_channels=manifest.get("num_channels", CHANNELS),
        )

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self.shard_size)

    def rows(self, shard: int) -> tuple[int, int]:
        """First row of a shard and the row after its last."""
        start = shard * self.shard_size
        return start, min(start + self.shard_size, self.num_rows)

    def pieces(self, shard: int) -> list[tuple[int, int]]:
        """The rows (start, stop) of each piece of a shard."""
        start, stop = self.rows(shard)
        return [(first, min(first + PIECE, stop)) for first in range(start, stop, PIECE)]

    def row_bytes(self, name: str) -> int:
        return 4 * (self.num_points * self.num_channels if name == "features" else self.num_labels)

    def shard_bytes(self, name: str, shard: int) -> int:
        start, stop = self.rows(shard)
        return (stop - start) * self.row_bytes(name)

    def path(self, folder: pathlib.Path, name: str, shard: int) -> pathlib.Path:
        return folder / f"shard-{shard:05d}-of-{self.num_shards:05d}.{name}"


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """Reads and checks `manifest.json`; InputError where it is missing, damaged, or from a newer tfmat."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{folder} holds no data set (there is no {MANIFEST}); make one with `tfmat generate`"
        )
    try:
        manifest = read_json(path)
    except InputError as error:
        if not isinstance(error.__cause__, ValueError):
            raise
        raise InputError(_damaged(path, "it is not valid JSON")) from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(version, int):
        raise InputError(_damaged(path, "it has no 'format'"))
    if version > FORMAT:
        raise InputError(
            f"{folder} was written by a newer tfmat (format {version}; this one reads up to {FORMAT}); "
            "upgrade tfmat, or generate the data set again in another folder"
        )
    try:
        check_json(manifest, _Content, path)
        _check_sense(manifest)
    except InputError as error:
        what = str(error).removeprefix(f"{path} is damaged: ")
        raise InputError(_damaged(path, what)) from error
    return manifest


def _check_sense(manifest: dict[str, Any]) -> None:
    """InputError where the entries, each of the right type, do not belong together."""
    for name in ("num_points", "shard_size", "num_curves"):
        if not 0 < manifest[name] < 2**48:
            raise InputError(f"{name} is {manifest[name]}")
    parts = [manifest[f"num_{part}"] for part in ("train", "validation", "test")]
    if min(parts) < 0 or parts[0] + parts[1] != manifest["num_curves"]:
        raise InputError(f"num_train, num_validation and num_test are {parts}")
    if len(manifest["shards"]) != Layout.of(manifest).num_shards:
        raise InputError(f"it lists {len(manifest['shards'])} shards")
    names = [entry["name"] for entry in manifest["parameters"]]
    if not names or len(set(names)) < len(names):
        raise InputError(f"parameters: {', '.join(names) or 'none'}")
    for entry in manifest["parameters"]:
        low = 0.0 if entry.get("scale") == "log" else -math.inf
        if not low < entry["low"] < entry["high"]:
            raise InputError(f"parameters.{entry['name']}: {entry['low']} to {entry['high']}")
    channels = manifest.get("num_channels", CHANNELS)
    if not 3 <= channels <= 16:
        raise InputError(f"num_channels is {channels}")
    if len(manifest["input_scale"]) != channels or min(manifest["input_scale"]) <= 0:
        raise InputError(f"input_scale is {manifest['input_scale']}")


def _damaged(path: pathlib.Path, what: str) -> str:
    return (
        f"{path} is damaged: {what}; delete the folder {path.parent} and run `tfmat generate` again"
    )


def new_manifest(
    *,
    identity: str,
    num_curves: int,
    num_test: int,
    num_points: int,
    shard_size: int,
    seed: int,
    parameters: tuple[Parameter, ...],
    input_scale: tuple[float, ...],
    num_validation: int | None = None,
) -> dict[str, Any]:
    """The manifest of a data set of which nothing is written yet; law, settings and source are empty."""
    num_rows = num_curves + num_test
    if num_validation is None:
        num_validation = num_curves // 4
    return {
        "format": FORMAT,
        "id": identity,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "numpy_version": np.__version__,
        "simulation_version": None,
        "law": None,
        "settings": None,
        "source": None,
        "seed": seed,
        "num_curves": num_curves,
        "num_train": num_curves - num_validation,
        "num_validation": num_validation,
        "num_test": num_test,
        "num_points": num_points,
        "shard_size": shard_size,
        "dtype": "<f4",
        "features_shape": [num_rows, num_points, len(input_scale)],
        # Data sets of three channels are written as ever.
        **({} if len(input_scale) == CHANNELS else {"num_channels": len(input_scale)}),
        "labels_shape": [num_rows, len(parameters)],
        "parameters": [dataclasses.asdict(parameter) for parameter in parameters],
        "input_scale": list(input_scale),
        "shards": [],
    }


def input_scale(features: NDArray[np.floating]) -> tuple[float, ...]:
    """(largest strain, largest stress, 1, ...) of some curves [curves, points, channels], never zero."""
    strain, stress = (float(np.abs(features[..., channel]).max()) or 1.0 for channel in (0, 1))
    return (strain, stress, *[1.0] * (features.shape[-1] - 2))


def parameters_of(manifest: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The identified parameters, in the order of the label columns."""
    return tuple(check_json(manifest["parameters"], list[Parameter], MANIFEST))


def settings_of(folder: pathlib.Path, content: dict[str, Any]) -> CurveSettings:
    """What the curves of a data set were simulated with, from its manifest; InputError where they are damaged."""
    kinds = {field.name: field.type for field in dataclasses.fields(CurveSettings)}
    for name, kind in kinds.items():
        if name in content:
            check_json(content[name], kind, f"{folder / MANIFEST}, settings.{name},")
    try:
        return CurveSettings.from_json(content)
    except InputError as error:
        raise InputError(f"{folder / MANIFEST}: settings: {error}") from error


def digest(content: Mapping[str, Any]) -> str:
    """8 hexadecimal digits of the SHA-256 of `content`; 1 and 1.0 are the same."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(value[key]) for key in sorted(value)}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value).hex()
        return value

    return hashlib.sha256(json.dumps(plain(content)).encode()).hexdigest()[:8]


def plain_name(name: str) -> str:
    """A name that is good in a path."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("._") or "curves"
