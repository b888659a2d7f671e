"""Packing a user's own labelled curves into the form that everything after works on."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.copies import NoisyCopies
from tfmat.curves.laboratory import Laboratory
from tfmat.curves.records import features_of
from tfmat.curves.settings import CurveSettings
from tfmat.data.curves_of_law import as_of_law
from tfmat.data.labelled import NUM_POINTS, PARTS, LabelledCurves, read_labelled
from tfmat.data.manifest import (
    CHANNELS,
    SHARD_SIZE,
    digest,
    input_scale,
    new_manifest,
    plain_name,
    read_manifest,
)
from tfmat.data.order import ExampleOrder
from tfmat.data.packed import PackedDataset, repair_simulated
from tfmat.data.writing import Floats, Progress, write_dataset
from tfmat.errors import InputError

MAX_TEST_CURVES = 10_000
_SCALE_ROWS = 1024  # copies that the input scale is taken from


def import_dataset(
    source: str | pathlib.Path,
    *,
    data_dir: str | pathlib.Path,
    law: str | None = None,
    fixed: Mapping[str, float] | None = None,
    copies: int | None = None,
    laboratory: Laboratory | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    num_threads: int | None = None,
) -> PackedDataset:
    """Packs the labelled curves of `source` (`read_labelled` says in which form) into a folder of `data_dir`.

    The curves are shuffled, since such files are often sorted. Then the last tenth, at most 10,000, are test curves
    and the others train (75 %) and validate (25 %), unless the file says which do what. A curve of 200 points is kept
    as it is, NaN at its end becoming padding; any other is resampled to 200 even points over its own strains.

    Curves without noise may be copied, each copy with what a laboratory adds: all copies of a curve are in the same
    part, and a test curve has one.

    Args:
      source: `.npz` or `.parquet`.
      data_dir: holds one folder for each data set.
      law: spec of the law that the parameters belong to, so that answers can be simulated again; None for none.
      fixed: values of the parameters of `law` that the file does not hold.
      copies: of each curve; None: one where there is a laboratory, else the curves as they are.
      laboratory: what is added to copies.
      seed: of the shuffling, and of what is added.
      progress: called with (rows done, rows in all).
      num_threads: default: one for each processor.

    Raises:
      InputError: the file is malformed, does not fit the law, or the data set cannot be written.
    """
    laboratory = laboratory or Laboratory()
    adds = bool(laboratory.to_json())
    if copies:
        refuse_equal_copies(laboratory)
    if adds and law is not None:
        raise InputError(
            "what a laboratory adds is for curves of no law; leave --law out, or add noise to the curves yourself"
        )
    copied = _Copied(copies or 1, laboratory) if adds else None
    return _import(
        pathlib.Path(source),
        data_dir,
        None,
        law,
        dict(fixed or {}),
        copied,
        seed,
        progress,
        num_threads,
    )


def refuse_equal_copies(laboratory: Laboratory) -> None:
    """Raises InputError where a laboratory adds nothing, so that all copies of a curve would be the same."""
    if not laboratory.to_json():
        raise InputError(
            "copies of a curve are alike where a laboratory adds nothing; give its noise, "
            "--config.data.noise_of_maximum=0.0005,0.005"
        )


def repair_dataset(
    folder: str | pathlib.Path, progress: Progress | None = None, num_threads: int | None = None
) -> PackedDataset:
    """Makes what is missing or damaged in the data set in `folder`, simulated or imported, from its own manifest.

    Raises:
      InputError: no data set, or what it was made from (the law, the imported file) is gone or has changed.
    """
    folder = pathlib.Path(folder)
    manifest = read_manifest(folder)
    if manifest["source"] is None:
        return repair_simulated(folder, progress, num_threads)
    source = pathlib.Path(manifest["source"]["path"])
    if not source.is_file():
        raise InputError(
            f"{folder} was made from {source}, which is not there any more; put it back and try again"
        )
    if _sha256(source) != manifest["source"]["sha256"]:
        raise InputError(
            f"{source} has changed since {folder} was made from it; pack it anew with --from={source}"
        )
    fixed = (manifest["settings"] or {}).get("fixed", {})
    copied = None
    if "copies" in manifest:
        copied = _Copied(manifest["copies"], Laboratory.of(manifest["laboratory"]))
    return _import(
        source,
        None,
        folder,
        manifest["law"],
        fixed,
        copied,
        manifest["seed"],
        progress,
        num_threads,
    )


@dataclasses.dataclass(frozen=True)
class _Copied:
    """How many copies of each curve there are, and what is added to them."""

    count: int
    laboratory: Laboratory


def _import(
    source: pathlib.Path,
    data_dir: str | pathlib.Path | None,
    folder: pathlib.Path | None,
    law: str | None,
    fixed: Mapping[str, float],
    copied: _Copied | None,
    seed: int,
    progress: Progress | None,
    num_threads: int | None,
) -> PackedDataset:
    """Packs `source` into `folder`, or into the folder of `data_dir` that its content decides."""
    curves = read_labelled(source)
    settings = None
    if law is not None:
        curves, settings = as_of_law(source, curves, law, fixed)
    elif fixed:
        raise InputError("--fix gives values of a law's parameters; say with --law which law")
    of_row, counts = _rows_of(curves, copied.count if copied else 1, seed)
    labels = _labels(curves)
    if copied is None:
        features = _features(curves)
        scale = input_scale(features)
    else:
        noisy = NoisyCopies(
            curves.strain,
            curves.stress,
            of_row,
            copied.laboratory,
            seed=seed,
            num_points=NUM_POINTS,
        )
        first = np.empty((min(len(of_row), _SCALE_ROWS), NUM_POINTS, CHANNELS), np.float32)
        noisy.fill(0, len(first), first)
        scale = input_scale(first)
    manifest = _manifest(source, curves, law, settings, copied, counts, seed, scale)

    def fill(start: int, stop: int, features_out: Floats, labels_out: Floats) -> None:
        if copied is None:
            features_out[:] = features[of_row[start:stop]]
        else:
            noisy.fill(start, stop, features_out)
        labels_out[:] = labels[of_row[start:stop]]

    if folder is None:
        name = f"{plain_name(source.stem)}-{manifest['num_curves']}-{manifest['id']}"
        folder = pathlib.Path(data_dir or ".") / name
    write_dataset(folder, manifest, fill, progress=progress, num_threads=num_threads)
    return PackedDataset.open(folder, verify=False)


def _rows_of(
    curves: LabelledCurves, copies: int, seed: int
) -> tuple[NDArray[np.int64], tuple[int, int, int]]:
    """Which curve each row is, and how many rows train, validate and test, in this order."""
    count = len(curves.values)
    order = ExampleOrder(count, seed, shard_size=count, window=count)
    shuffled = np.asarray(order.indices(0, 0, count))
    if curves.parts is None:
        num_test = min(count // 10, MAX_TEST_CURVES)
        num_validation = (count - num_test) // 4
        parts = np.split(shuffled, [count - num_test - num_validation, count - num_test])
    else:
        parts = [shuffled[curves.parts[shuffled] == part] for part in range(len(PARTS))]
    # Copies of a curve stand far apart, so that any stretch of rows holds many curves; test curves are told once.
    rows = [np.tile(part, copies) for part in parts[:2]] + [parts[2]]
    return np.concatenate(rows), (len(rows[0]), len(rows[1]), len(rows[2]))


def _manifest(
    source: pathlib.Path,
    curves: LabelledCurves,
    law: str | None,
    settings: CurveSettings | None,
    copied: _Copied | None,
    counts: tuple[int, int, int],
    seed: int,
    scale: tuple[float, ...],
) -> dict[str, Any]:
    content = _sha256(source)
    recorded = None if settings is None else settings.to_json()
    # Curves that are not copied are called as ever.
    copies = {}
    if copied is not None:
        copies = {"copies": copied.count, "laboratory": copied.laboratory.to_json()}
    num_train, num_validation, num_test = counts
    manifest = new_manifest(
        identity=digest({"content": content, "settings": recorded, "seed": seed, **copies}),
        num_curves=num_train + num_validation,
        num_test=num_test,
        num_points=NUM_POINTS,
        shard_size=SHARD_SIZE,
        seed=seed,
        parameters=curves.parameters,
        input_scale=scale,
        num_validation=num_validation,
    )
    return manifest | {
        **copies,
        "law": law,
        "settings": recorded,
        "source": {"path": str(source.absolute()), "sha256": content},
    }


def _sha256(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _labels(curves: LabelledCurves) -> Floats:
    """[curves, parameters], 0-1."""
    labels = [
        parameter.to_unit_interval(curves.values[:, i])
        for i, parameter in enumerate(curves.parameters)
    ]
    return np.stack(labels, axis=1).astype(np.float32)


def _features(curves: LabelledCurves) -> Floats:
    """[curves, 200, 3], of labelled curves as they are."""
    count = len(curves.values)
    strain, stress = np.empty((count, NUM_POINTS)), np.empty((count, NUM_POINTS))
    keep = curves.num_points == NUM_POINTS
    if keep.any():
        strain[keep] = curves.strain[keep, :NUM_POINTS]
        stress[keep] = curves.stress[keep, :NUM_POINTS]
    for i in np.flatnonzero(~keep):
        valid = ~(np.isnan(curves.strain[i]) | np.isnan(curves.stress[i]))
        own_strain = curves.strain[i, valid]
        strain[i] = np.linspace(own_strain[0], own_strain[-1], NUM_POINTS)
        stress[i] = np.interp(strain[i], own_strain, curves.stress[i, valid])
    valid = ~(np.isnan(strain) | np.isnan(stress))
    strain, stress = np.where(valid, strain, 0.0), np.where(valid, stress, 0.0)
    return features_of(strain, stress, valid)
