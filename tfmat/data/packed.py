"""Packed data sets: a few large shards that are mapped, not read, and a manifest that says what they are."""

import dataclasses
import math
import os
import pathlib
from typing import Any

import numpy as np

from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import SIMULATION_VERSION, Simulator
from tfmat.data.kept import Kept
from tfmat.data.manifest import (
    MANIFEST,
    SHARD_SIZE,
    Layout,
    digest,
    input_scale,
    new_manifest,
    parameters_of,
    plain_name,
    read_manifest,
    settings_of,
)
from tfmat.data.memory import available_threads, check_memory
from tfmat.data.shards import find_damage, map_shards
from tfmat.data.writing import Floats, Progress, write_dataset
from tfmat.errors import InputError
from tfmat.materials.parameter import Parameter

# Row r >= num_curves of a data set is curve number TEST_START + r - num_curves: the test curves are the same however
# many curves train, and no larger data set ever trains on them.
TEST_START = 1 << 40
MAX_ROWS = 2**31 - 1  # what the int32 indices of a batch can address
_SCALE_CURVES = 1024  # curves that the input scale is taken from
# _LOOKED_AT: records among which the largest strain and stress are compared with the input scale; a quick look.
_LOOKED_AT = 64
# _FAR: ratio of both at which the scale cannot be right. Own records may begin with small ones.
_FAR = 1e4
_COUNTS = ("num_train", "num_validation", "num_test", "shard_size")


@dataclasses.dataclass(frozen=True)
class PackedDataset:
    """A packed data set, opened to be read.

    Attributes:
      folder: where it lies.
      manifest: what `manifest.json` says.
      features: [num_curves + num_test, points, 3], float32: strain (-), stress (MPa), flag (1 = padding); for tests of
        other kinds see `RecordForm`. Mapped over all shards in one piece; see `map_shards` for handing it to TensorFlow
        without a copy.
      labels: [num_curves + num_test, identified parameters], float32, scaled to 0-1.
      num_train, num_validation, num_test: rows come in this order.
      shard_size: rows in a shard.
      parameters: the identified parameters, in the order of the label columns.
      settings: what the curves were simulated with; None for imported curves that have no law.
      input_scale: (largest strain, largest stress, 1, ...): features divided by it are about 0-1.
    """

    folder: pathlib.Path
    manifest: dict[str, Any]
    features: Floats
    labels: Floats
    num_train: int
    num_validation: int
    num_test: int
    shard_size: int
    parameters: tuple[Parameter, ...]
    settings: CurveSettings | None
    input_scale: tuple[float, ...]

    @property
    def kept(self) -> Kept:
        """Where that is kept which takes long to compute of these records."""
        return Kept(self.folder)

    @property
    def form(self) -> RecordForm:
        """What the points and channels of `features` are."""
        return RecordForm.of(self.settings) if self.settings else RecordForm(self.features.shape[1])

    @classmethod
    def open(cls, folder: str | pathlib.Path, verify: bool = True) -> "PackedDataset":
        """Opens the data set in `folder`.

        Its shards are read from a copy of it in the folder TFMAT_LOCAL_DATA, where a SLURM job has put one on the node.

        Args:
          folder: holds `manifest.json`.
          verify: reads every shard once and compares checksums; without it only names and sizes are checked.

        Raises:
          InputError: no data set, from a newer tfmat, or a shard is missing, incomplete or damaged; names the first
            one and says how to make it again.
        """
        folder = pathlib.Path(folder)
        manifest = read_manifest(folder)
        copy = _local_copy(folder, manifest)
        damage = find_damage(copy, manifest, available_threads(), read=verify)
        if damage:
            what = damage[min(damage)]
            others = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
            raise InputError(
                f"{copy}: {what}{others}; run `tfmat generate --data_dir={folder}` to make what is wrong again"
            )
        dataset = cls._mapped(folder, manifest, copy)
        dataset._check_scale()
        return dataset

    def _check_scale(self) -> None:
        """InputError where a network that divides by `input_scale` would see nothing of the features."""
        some = np.abs(self.features[:: max(1, len(self.features) // _LOOKED_AT), :, :2])
        largest, scale = some.max(axis=(0, 1)), np.array(self.input_scale[:2])
        if np.any((largest > 0) & ((largest * _FAR < scale) | (largest > scale * _FAR))):
            raise InputError(
                f"{self.folder / MANIFEST} is damaged: input_scale is {list(self.input_scale)}, the largest strain and "
                f"stress of some records are {', '.join(f'{value:g}' for value in largest)}; delete the folder "
                f"{self.folder} and run `tfmat generate` again"
            )

    @classmethod
    def _mapped(
        cls, folder: pathlib.Path, manifest: dict[str, Any], copy: pathlib.Path
    ) -> "PackedDataset":
        layout = Layout.of(manifest)

        def array(name: str, shape: tuple[int, ...]) -> Floats:
            paths = [layout.path(copy, name, shard) for shard in range(layout.num_shards)]
            return map_shards(paths, layout.shard_bytes(name, 0)).reshape(shape)

        settings = manifest["settings"]
        return cls(
            folder=folder,
            manifest=manifest,
            features=array("features", (layout.num_rows, layout.num_points, layout.num_channels)),
            labels=array("labels", (layout.num_rows, layout.num_labels)),
            **{name: manifest[name] for name in _COUNTS},
            parameters=parameters_of(manifest),
            settings=None if settings is None else settings_of(folder, settings),
            input_scale=tuple(manifest["input_scale"]),
        )


def is_dataset(folder: str | pathlib.Path) -> bool:
    """Whether `folder` itself is a data set (finished or not)."""
    return (pathlib.Path(folder) / MANIFEST).is_file()


def is_complete(folder: str | pathlib.Path) -> bool:
    """Whether every shard of the data set in `folder` was written once; `PackedDataset.open` says if they still are."""
    return is_dataset(folder) and None not in read_manifest(pathlib.Path(folder))["shards"]


def _local_copy(folder: pathlib.Path, manifest: dict[str, Any]) -> pathlib.Path:
    """The same data set in TFMAT_LOCAL_DATA, or `folder` itself."""
    local = os.environ.get("TFMAT_LOCAL_DATA")
    copy = pathlib.Path(local or "") / folder.resolve().name
    return copy if local and is_dataset(copy) and read_manifest(copy) == manifest else folder


def dataset_folder(
    data_dir: str | pathlib.Path,
    settings: CurveSettings,
    seed: int,
    num_curves: int,
    num_test: int,
    shard_size: int = SHARD_SIZE,
) -> pathlib.Path:
    """Where such a data set lies: `data_dir/<law>-<num_curves>-<8 digits that stand for all settings>`."""
    identity = _identity(settings, seed, num_curves, num_test, shard_size)
    return (
        pathlib.Path(data_dir) / f"{plain_name(settings.build_law().name)}-{num_curves}-{identity}"
    )


def find_dataset(
    data_dir: str | pathlib.Path, settings: CurveSettings, seed: int, num_curves: int, num_test: int
) -> pathlib.Path:
    """`data_dir` where that is a data set itself (whatever its settings), else `dataset_folder`."""
    if is_dataset(data_dir):
        return pathlib.Path(data_dir)
    return dataset_folder(data_dir, settings, seed, num_curves, num_test)


def generate_dataset(
    settings: CurveSettings,
    *,
    seed: int,
    num_curves: int,
    num_test: int,
    data_dir: str | pathlib.Path,
    progress: Progress | None = None,
    num_threads: int | None = None,
    shard_size: int = SHARD_SIZE,
) -> PackedDataset:
    """Simulates and packs curves, or goes on where an earlier call stopped; a complete data set is only checked.

    Every row is a pure function of (settings, seed, curve number), so a shard that was lost or damaged is made again
    as it was. Two processes that ask for the same data set wait for each other.

    Args:
      settings: law, ranges, noise and so on.
      seed: of all random numbers.
      num_curves: training and validation curves together (75 % and 25 %), at least 4.
      num_test: further curves that never train.
      data_dir: holds one folder for each data set.
      progress: called with (rows done, rows in all).
      num_threads: default: one for each processor. Changes nothing in the data.
      shard_size: rows in a shard, a multiple of 1024; for tests.

    Raises:
      InputError: impossible numbers, not enough space, or a folder that cannot be written.
    """
    folder = dataset_folder(data_dir, settings, seed, num_curves, num_test, shard_size)
    return _generate(
        folder, settings, seed, num_curves, num_test, shard_size, progress, num_threads
    )


def repair_simulated(
    folder: str | pathlib.Path, progress: Progress | None = None, num_threads: int | None = None
) -> PackedDataset:
    """Makes what is missing or damaged in the simulated data set in `folder`, from its own manifest."""
    folder = pathlib.Path(folder)
    manifest = read_manifest(folder)
    version = manifest["simulation_version"]
    if version != SIMULATION_VERSION:
        raise InputError(
            f"{folder} was simulated by version {version} of the simulation and this tfmat has {SIMULATION_VERSION}; "
            "generate the data set again in another folder"
        )
    settings = settings_of(folder, manifest["settings"] or {})
    counts = (manifest["num_curves"], manifest["num_test"], manifest["shard_size"])
    return _generate(folder, settings, manifest["seed"], *counts, progress, num_threads)


def _generate(
    folder: pathlib.Path,
    settings: CurveSettings,
    seed: int,
    num_curves: int,
    num_test: int,
    shard_size: int,
    progress: Progress | None,
    num_threads: int | None,
) -> PackedDataset:
    _check_counts(seed, num_curves, num_test)
    first_block, form = min(num_curves, _SCALE_CURVES), RecordForm.of(settings)
    check_memory(
        f"curves of {form.num_points:,} points (data.num_points), of which {first_block:,} are simulated at once,",
        first_block * math.prod(form.shape) * 4,
        "take fewer points",
    )
    simulator = Simulator(settings, seed)

    def fill(start: int, stop: int, features: Floats, labels: Floats) -> None:
        for first, last, number in curve_numbers(start, stop, num_curves):
            rows = slice(first - start, last - start)
            simulator.fill(number, number + last - first, features[rows], labels[rows])

    first_curves = simulator.curves(0, first_block).features
    manifest = new_manifest(
        identity=_identity(settings, seed, num_curves, num_test, shard_size),
        num_curves=num_curves,
        num_test=num_test,
        num_points=form.num_points,
        shard_size=shard_size,
        seed=seed,
        parameters=simulator.law.identified,
        input_scale=input_scale(first_curves),
    )
    manifest |= {
        "simulation_version": SIMULATION_VERSION,
        "law": settings.law,
        "settings": settings.to_json(),
    }
    write_dataset(folder, manifest, fill, progress=progress, num_threads=num_threads)
    return PackedDataset.open(folder, verify=False)


def curve_numbers(start: int, stop: int, num_curves: int) -> list[tuple[int, int, int]]:
    """Rows `start` to `stop` as (first row, row after the last, number of the first curve) without a jump inside."""
    parts = []
    if start < num_curves:
        parts.append((start, min(stop, num_curves), start))
    if stop > num_curves:
        first = max(start, num_curves)
        parts.append((first, stop, TEST_START + first - num_curves))
    return parts


def _check_counts(seed: int, num_curves: int, num_test: int) -> None:
    if num_curves < 4:
        raise InputError(f"num_curves is {num_curves}; give at least 4 (75 % train, 25 % validate)")
    if num_curves + num_test > MAX_ROWS:
        raise InputError(f"{num_curves + num_test} curves are too many; give at most {MAX_ROWS}")
    if num_test < 0:
        raise InputError(f"num_test is {num_test}; give 0 or more")
    if seed < 0:
        raise InputError(f"seed is {seed}; give 0 or a positive number")


def _identity(
    settings: CurveSettings, seed: int, num_curves: int, num_test: int, shard_size: int
) -> str:
    """8 hexadecimal digits that differ as soon as any curve would; the settings tell a user law's edits apart."""
    return digest(
        {
            "simulation_version": SIMULATION_VERSION,
            "settings": settings.to_json(),
            "seed": seed,
            "num_curves": num_curves,
            "num_test": num_test,
            "shard_size": shard_size,
        }
    )
