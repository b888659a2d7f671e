"""Packing a user's own labelled curves into the form that everything after works on."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfmat.curves.records import features_of
from tfmat.curves.settings import CurveSettings
from tfmat.data.labelled import NUM_POINTS, LabelledCurves, read_labelled
from tfmat.data.manifest import (
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
from tfmat.materials.law import Law
from tfmat.materials.parameter import Parameter
from tfmat.materials.registry import law_class

MAX_TEST_CURVES = 10_000


def import_dataset(
    source: str | pathlib.Path,
    *,
    data_dir: str | pathlib.Path,
    law: str | None = None,
    fixed: Mapping[str, float] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    num_threads: int | None = None,
) -> PackedDataset:
    """Packs the labelled curves of `source` (`read_labelled` says in which form) into a folder of `data_dir`.

    The curves are shuffled, since such files are often sorted. Then the last tenth, at most 10,000, are test curves
    and the others train (75 %) and validate (25 %). A curve of 200 points is kept as it is, NaN at its end becoming
    padding; any other is resampled to 200 even points over its own strains.

    Args:
      source: `.npz` or `.parquet`.
      data_dir: holds one folder for each data set.
      law: spec of the law that the parameters belong to, so that answers can be simulated again; None for none.
      fixed: values of the parameters of `law` that the file does not hold.
      seed: of the shuffling.
      progress: called with (rows done, rows in all).
      num_threads: default: one for each processor.

    Raises:
      InputError: the file is malformed, does not fit the law, or the data set cannot be written.
    """
    return _import(
        pathlib.Path(source), data_dir, None, law, dict(fixed or {}), seed, progress, num_threads
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
    return _import(
        source, None, folder, manifest["law"], fixed, manifest["seed"], progress, num_threads
    )


def _import(
    source: pathlib.Path,
    data_dir: str | pathlib.Path | None,
    folder: pathlib.Path | None,
    law: str | None,
    fixed: Mapping[str, float],
    seed: int,
    progress: Progress | None,
    num_threads: int | None,
) -> PackedDataset:
    """Packs `source` into `folder`, or into the folder of `data_dir` that its content decides."""
    curves = read_labelled(source)
    settings = None
    if law is not None:
        curves, settings = _as_of_law(source, curves, law, fixed)
    elif fixed:
        raise InputError("--fix gives values of a law's parameters; say with --law which law")
    features, labels = _rows(curves)
    order = ExampleOrder(len(labels), seed, shard_size=len(labels), window=len(labels))
    shuffled = order.indices(0, 0, len(labels))
    manifest = _manifest(source, curves, law, settings, seed, input_scale(features))

    def fill(start: int, stop: int, features_out: Floats, labels_out: Floats) -> None:
        features_out[:] = features[shuffled[start:stop]]
        labels_out[:] = labels[shuffled[start:stop]]

    if folder is None:
        name = f"{plain_name(source.stem)}-{manifest['num_curves']}-{manifest['id']}"
        folder = pathlib.Path(data_dir or ".") / name
    write_dataset(folder, manifest, fill, progress=progress, num_threads=num_threads)
    return PackedDataset.open(folder, verify=False)


def _manifest(
    source: pathlib.Path,
    curves: LabelledCurves,
    law: str | None,
    settings: CurveSettings | None,
    seed: int,
    scale: tuple[float, ...],
) -> dict[str, Any]:
    content = _sha256(source)
    recorded = None if settings is None else settings.to_json()
    num_test = min(len(curves.values) // 10, MAX_TEST_CURVES)
    manifest = new_manifest(
        identity=digest({"content": content, "settings": recorded, "seed": seed}),
        num_curves=len(curves.values) - num_test,
        num_test=num_test,
        num_points=NUM_POINTS,
        shard_size=SHARD_SIZE,
        seed=seed,
        parameters=curves.parameters,
        input_scale=scale,
    )
    return manifest | {
        "law": law,
        "settings": recorded,
        "source": {"path": str(source.absolute()), "sha256": content},
    }


def _sha256(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(curves: LabelledCurves) -> tuple[Floats, Floats]:
    """Features [curves, 200, 3] and labels [curves, parameters] of labelled curves."""
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
    labels = [
        parameter.to_unit_interval(curves.values[:, i])
        for i, parameter in enumerate(curves.parameters)
    ]
    strain, stress = np.where(valid, strain, 0.0), np.where(valid, stress, 0.0)
    return features_of(strain, stress, valid), np.stack(labels, axis=1).astype(np.float32)


def _as_of_law(
    source: pathlib.Path, curves: LabelledCurves, spec: str, fixed: Mapping[str, float]
) -> tuple[LabelledCurves, CurveSettings]:
    """The curves with their columns in the order of the law, on its scales, and the settings to simulate them again."""
    law = law_class(spec)
    wanted = [parameter for parameter in law.parameters if parameter.name not in fixed]
    given = {parameter.name: i for i, parameter in enumerate(curves.parameters)}
    _check_names(source, law, given, fixed)
    columns, parameters = [], []
    for parameter in wanted:
        column = given[parameter.name]
        parameters.append(
            _merged(source, law, parameter, curves.parameters[column], curves.has_scale)
        )
        columns.append(column)
    ordered = dataclasses.replace(
        curves, values=curves.values[:, columns], parameters=tuple(parameters)
    )
    settings = CurveSettings(
        law=spec,
        ranges={parameter.name: (parameter.low, parameter.high) for parameter in parameters},
        fixed=fixed,
        max_strain=_end_strains(curves),
    )
    return ordered, settings


def _check_names(
    source: pathlib.Path, law: type[Law], given: Mapping[str, int], fixed: Mapping[str, float]
) -> None:
    names = [parameter.name for parameter in law.parameters]
    for name in given:
        if name not in names:
            raise InputError(
                f"{source}: law {law.name} has no parameter '{name}'; its parameters are {', '.join(names)}"
            )
        if name in fixed:
            raise InputError(
                f"{source} holds values of {name}, which --fix gives too; leave out one of them"
            )
    for name in names:
        if name not in given and name not in fixed:
            raise InputError(
                f"{source} has no values of {name}, a parameter of law {law.name}; add it or give --fix {name}=VALUE"
            )


def _merged(
    source: pathlib.Path, law: type[Law], parameter: Parameter, given: Parameter, has_scale: bool
) -> Parameter:
    """The law's parameter with the range of the file; unit and scale must agree."""
    if given.unit != parameter.unit:
        raise InputError(
            f"{source}: {given.name} is in {given.unit}, law {law.name} has it in {parameter.unit}; convert it"
        )
    if has_scale and given.scale != parameter.scale:
        raise InputError(
            f"{source}: scale of {given.name} is {given.scale}, law {law.name} has {parameter.scale}; leave scale out"
        )
    if parameter.scale == "log" and given.low <= 0:
        raise InputError(
            f"{source}: {given.name} goes down to {given.low:g} {given.unit}; its log scale in law {law.name} "
            "needs positive values"
        )
    return dataclasses.replace(parameter, low=given.low, high=given.high)


def _end_strains(curves: LabelledCurves) -> tuple[float, float] | None:
    """Smallest and largest last strain of the curves, or None where the law's own range has to do."""
    ends = np.nanmax(curves.strain, axis=1)
    low, high = float(ends.min()), float(ends.max())
    return (low, high) if 0 < low < high else None
