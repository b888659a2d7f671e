"""Data sets of a user's own: labelled records that are read, checked and written as data sets."""

import dataclasses
import hashlib
import pathlib
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfmat.console import log
from tfmat.data.dataset import (
    CHANNELS,
    SHARD_SIZE,
    Floats,
    Manifest,
    PackedDataset,
    Progress,
    Source,
    digest,
    input_scale,
    plain_name,
    read_manifest,
    repair_simulated,
    write_dataset,
)
from tfmat.data.order import ExampleOrder
from tfmat.errors import InputError
from tfmat.materials.law import Law, Parameter
from tfmat.materials.registry import law_class
from tfmat.records.laboratory import Laboratory
from tfmat.records.simulation import CurveSettings, NoisyCopies, features_of

# --------------------------------------------------------------------------------------------------
# Refusals of a user's own labelled curves, each in one line that names the file and the first place.


# MIN_CURVES: below which nothing can be learned and tested.
MIN_CURVES = 10

Array = NDArray[np.float64]


def parameters_of_columns(
    path: pathlib.Path,
    values: Array,
    names: Sequence[str],
    units: Sequence[str],
    scales: Sequence[str],
    low: Array | None,
    high: Array | None,
) -> tuple[Parameter, ...]:
    """Name, unit, range and scale of each column, checked against the values."""
    if len(values) < MIN_CURVES:
        raise InputError(f"{path} holds {len(values)} curves; at least {MIN_CURVES} are needed")
    if not names:
        raise InputError(f"{path} holds no parameters; there is nothing to identify")
    if len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"{path}: parameter names must differ and not be empty; they are: {', '.join(names)}"
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InputError(f"{path}: {names[bad[0, 1]]} of curve {bad[0, 0]} is not a finite number")
    smallest, largest = values.min(axis=0), values.max(axis=0)
    low, high = smallest if low is None else low, largest if high is None else high
    parameters = []
    for i, (name, unit, scale) in enumerate(zip(names, units, scales, strict=True)):
        if smallest[i] == largest[i]:
            raise InputError(
                f"{path}: {name} is {smallest[i]:g} {unit} in every curve; leave out a parameter that does not vary"
            )
        if scale not in ("linear", "log"):
            raise InputError(f"{path}: scale of {name} is '{scale}'; give linear or log")
        if scale == "log" and low[i] <= 0:
            raise InputError(
                f"{path}: {name} goes down to {low[i]:g} {unit}; a log scale needs positive values"
            )
        if not low[i] <= smallest[i] < largest[i] <= high[i] < np.inf:
            raise InputError(
                f"{path}: {name} goes from {smallest[i]:g} to {largest[i]:g} {unit}, "
                f"outside its range low = {low[i]:g} to high = {high[i]:g}"
            )
        kind: Literal["linear", "log"] = "log" if scale == "log" else "linear"
        parameters.append(Parameter(name, unit or "-", float(low[i]), float(high[i]), kind))
    return tuple(parameters)


def check_points(path: pathlib.Path, strain: Array, stress: Array) -> None:
    """Every curve: finite up to its end, NaN after it, at least two points, strain rising; not all the same."""
    for name, array in (("strain", strain), ("stress", stress)):
        infinite = np.argwhere(np.isinf(array))
        if len(infinite):
            raise InputError(
                f"{path}: {name} of curve {infinite[0, 0]} is infinite at point {infinite[0, 1]}"
            )
    valid = ~(np.isnan(strain) | np.isnan(stress))
    again = np.argwhere(valid[:, 1:] & ~valid[:, :-1])
    if len(again):
        curve, point = again[0]
        raise InputError(
            f"{path}: curve {curve} has NaN at point {point}, before its end; leave such points out"
        )
    short = np.flatnonzero(valid.sum(axis=1) < 2)
    if len(short):
        raise InputError(f"{path}: curve {short[0]} has fewer than two points")
    with np.errstate(invalid="ignore"):
        falls = np.argwhere((np.diff(strain, axis=1) <= 0) & valid[:, 1:])
    if len(falls):
        curve, point = falls[0]
        raise InputError(
            f"{path}: strain of curve {curve} does not rise from point {point} to {point + 1} "
            f"({strain[curve, point]:g} to {strain[curve, point + 1]:g}); only monotonic loading can be used"
        )
    if all(
        np.array_equal(each, np.broadcast_to(each[0], each.shape), equal_nan=True)
        for each in (strain, stress)
    ):
        raise InputError(f"{path}: all curves are the same; nothing tells their parameters")


# --------------------------------------------------------------------------------------------------
# A user's own labelled curves (from finite elements, say): reading and checking `.npz` and `.parquet` files.


# NUM_POINTS: points onto which imported curves are resampled, as many as simulated curves have.
NUM_POINTS = 200
PARTS = ("train", "validation", "test")
_REQUIRED = ("strain", "stress", "parameters", "names", "units")


@dataclasses.dataclass(frozen=True)
class LabelledCurves:
    """Curves with the parameters they belong to.

    Attributes:
      strain: [curves, points], -; NaN beyond the end of a curve.
      stress: [curves, points], MPa; NaN beyond the end of a curve.
      num_points: [curves], points that the file gives for each curve (its padding included).
      values: [curves, parameters], in their units.
      parameters: name, unit, range and scale of each column of `values`.
      has_scale: whether the file itself said `scale`.
      parts: [curves], which of PARTS each belongs to; None where the file leaves that open.
    """

    strain: Array
    stress: Array
    num_points: NDArray[np.int64]
    values: Array
    parameters: tuple[Parameter, ...]
    has_scale: bool
    parts: NDArray[np.int64] | None = None


def read_labelled(path: str | pathlib.Path) -> LabelledCurves:
    """Reads labelled curves.

    A `.npz` file holds the arrays
      strain      [curves, points] or [points] (the same for all curves), -
      stress      [curves, points], MPa; NaN from where a curve has ended
      parameters  [curves, P], in their units
      names       [P] strings, e.g. G0
      units       [P] strings, e.g. MPa, or - for a pure number
      low, high   [P], optional: the range that is scaled to 0-1; default: smallest and largest value
      scale       [P] strings, optional: linear or log; default: linear
      part        [curves] strings, optional: train, validation or test
    A `.parquet` file holds one row a curve: list columns `strain` and `stress`, and one number column for each
    parameter, named with its unit: `G0 [MPa]`. Lists may differ in length from row to row.

    Raises:
      InputError: names what is missing, misshapen, not finite, not rising, or constant.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file")
    if path.suffix == ".npz":
        curves = _from_npz(path)
    elif path.suffix == ".parquet":
        curves = _from_parquet(path)
    else:
        raise InputError(
            f"{path} is neither .npz nor .parquet; save the curves in one of these forms"
        )
    check_points(path, curves.strain, curves.stress)
    return curves


def _from_npz(path: pathlib.Path) -> LabelledCurves:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"cannot read {path} as .npz: {error}; save it with numpy.savez"
        ) from error
    for name in _REQUIRED:
        if name not in arrays:
            known = ", ".join(sorted(arrays)) or "none"
            raise InputError(
                f"{path} has no array '{name}' (it has: {known}); needed: {', '.join(_REQUIRED)}"
            )
    stress, values = _floats(path, arrays, "stress", 2), _floats(path, arrays, "parameters", 2)
    strain = _floats(
        path, arrays, "strain", arrays["strain"].ndim if arrays["strain"].ndim == 1 else 2
    )
    if strain.shape != stress.shape and strain.shape != stress.shape[1:]:
        raise InputError(
            f"{path}: strain is {list(strain.shape)} and stress is {list(stress.shape)}; "
            "give both as [curves, points]"
        )
    if len(values) != len(stress):
        raise InputError(
            f"{path}: {len(stress)} curves but parameters for {len(values)}; give one row a curve"
        )
    count = values.shape[1]
    names, units = _strings(path, arrays, "names", count), _strings(path, arrays, "units", count)
    scales = _strings(path, arrays, "scale", count) if "scale" in arrays else ["linear"] * count
    limits = {name: _floats(path, arrays, name, 1) for name in ("low", "high") if name in arrays}
    for name, limit in limits.items():
        if len(limit) != count:
            raise InputError(f"{path}: {name} has {len(limit)} entries for {count} parameters")
    return LabelledCurves(
        strain=np.broadcast_to(strain, stress.shape),
        stress=stress,
        num_points=np.full(len(stress), stress.shape[1]),
        values=values,
        parameters=parameters_of_columns(
            path, values, names, units, scales, limits.get("low"), limits.get("high")
        ),
        has_scale="scale" in arrays,
        parts=_parts(path, arrays, len(stress)),
    )


def _parts(
    path: pathlib.Path, arrays: dict[str, NDArray[Any]], count: int
) -> NDArray[np.int64] | None:
    if "part" not in arrays:
        return None
    given = _strings(path, arrays, "part", count, "curves")
    if not set(PARTS[:2]) <= set(given) <= set(PARTS):
        raise InputError(
            f"{path}: part says {', '.join(sorted(set(given)))}; give each curve one of {', '.join(PARTS)}"
        )
    return np.array([PARTS.index(name) for name in given])


def _floats(
    path: pathlib.Path, arrays: dict[str, NDArray[Any]], name: str, dimensions: int
) -> Array:
    array = arrays[name]
    if array.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name} holds {array.dtype}, not numbers")
    if array.ndim != dimensions:
        axes = {
            1: "[parameters]",
            2: "[curves, points]" if name != "parameters" else "[curves, parameters]",
        }
        raise InputError(f"{path}: {name} is {list(array.shape)}; give {axes[dimensions]}")
    return array.astype(np.float64)


def _strings(
    path: pathlib.Path,
    arrays: dict[str, NDArray[Any]],
    name: str,
    count: int,
    of: str = "parameters",
) -> list[str]:
    array = arrays[name]
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind != "U" or array.shape != (count,):
        raise InputError(
            f"{path}: {name} is {array.dtype} {list(array.shape)}; give one string for each of the {count} {of}"
        )
    return [str(entry).strip() for entry in array]


def _from_parquet(path: pathlib.Path) -> LabelledCurves:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"reading .parquet needs pyarrow; run `{sys.executable} -m pip install pyarrow`, or save the curves as .npz"
        ) from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot read {path} as .parquet: {str(error).splitlines()[0]}") from error
    for name in ("strain", "stress"):
        if name not in table.column_names:
            raise InputError(
                f"{path} has no column '{name}' (it has: {', '.join(table.column_names) or 'none'})"
            )
    columns = [name for name in table.column_names if name not in ("strain", "stress")]
    names, units, values = [], [], []
    for column in columns:
        match = re.fullmatch(r"\s*(.*?)\s*\[\s*(.*?)\s*\]\s*", column)
        if not match:
            raise InputError(
                f"{path}: column '{column}' says no unit; name it like 'G0 [MPa]', or 'n [-]'"
            )
        try:
            values.append(np.asarray(table[column].to_numpy(), np.float64))
        except (TypeError, ValueError, pyarrow.ArrowException) as error:
            raise InputError(f"{path}: column '{column}' does not hold numbers") from error
        names.append(match[1])
        units.append(match[2])
    strain, lengths = _lists(path, table, "strain")
    stress, stress_lengths = _lists(path, table, "stress")
    unequal = np.flatnonzero(lengths != stress_lengths)
    if len(unequal):
        curve = unequal[0]
        raise InputError(
            f"{path}: curve {curve} has {lengths[curve]} strains and {stress_lengths[curve]} stresses"
        )
    stacked = np.stack(values, axis=1) if values else np.empty((len(lengths), 0))
    return LabelledCurves(
        strain=_padded(strain, lengths),
        stress=_padded(stress, lengths),
        num_points=lengths,
        values=stacked,
        parameters=parameters_of_columns(
            path, stacked, names, units, ["linear"] * len(names), None, None
        ),
        has_scale=False,
    )


def _lists(path: pathlib.Path, table: Any, name: str) -> tuple[Array, NDArray[np.int64]]:
    """The rows of a list column one after the other, null as NaN, and the length of each row."""
    import pyarrow
    import pyarrow.compute

    try:
        column = table[name].combine_chunks()
        lengths = pyarrow.compute.fill_null(pyarrow.compute.list_value_length(column), 0).to_numpy()
        values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float64)
    except (TypeError, ValueError, AttributeError, pyarrow.ArrowException) as error:
        raise InputError(
            f"{path}: column '{name}' does not hold a list of numbers in each row"
        ) from error
    return values, lengths.astype(np.int64)


def _padded(values: Array, lengths: NDArray[np.int64]) -> Array:
    """Rows of different lengths -> [rows, longest], NaN beyond the end of each."""
    padded = np.full((len(lengths), max(lengths, default=0)), np.nan)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = values
    return padded


# --------------------------------------------------------------------------------------------------
# A user's own labelled curves as curves of a law: names, units and scales must agree.


def as_of_law(
    source: pathlib.Path, curves: LabelledCurves, spec: str, fixed: Mapping[str, float]
) -> tuple[LabelledCurves, CurveSettings]:
    """The curves with their columns in the order of the law, on its scales, and the settings to simulate them again."""
    law = law_class(spec)
    wanted = [parameter for parameter in law.parameters if parameter.name not in fixed]
    given = {parameter.name: i for i, parameter in enumerate(curves.parameters)}
    _check_names(source, law, given, fixed)
    _check_follows(source, law(fixed=fixed), curves, given)
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


# _FAR: distance of a typical curve from the law at its parameters, over its largest stress, that no noise explains.
# Engineering values where true ones are wanted make 8 % up to a strain of 0.2.
_FAR = 0.05
# _TRIED: curves that are compared with the law.
_TRIED = 200


def _check_follows(
    source: pathlib.Path, law: Law, curves: LabelledCurves, given: Mapping[str, int]
) -> None:
    """InputError where curves are far from the law at their own parameters: another unit, or mixed-up rows."""
    if law.tests != ("monotonic",):
        return
    rows = np.linspace(0, len(curves.values) - 1, min(len(curves.values), _TRIED)).astype(int)
    strain, stress = curves.strain[rows], curves.stress[rows]
    valid = ~(np.isnan(strain) | np.isnan(stress)) & (strain >= 0.0)
    columns = [
        np.full(len(rows), p.fixed) if p.fixed is not None else curves.values[rows, given[p.name]]
        for p in law.parameters
    ]
    with np.errstate(all="ignore"):
        expected = law.stress(np.where(valid, strain, 0.0), np.stack(columns, axis=1))
        misfit = np.where(valid, expected - stress, 0.0)
        size = np.abs(np.where(valid, stress, 0.0)).max(axis=1)
        away = np.sqrt(np.square(misfit).sum(axis=1) / valid.sum(axis=1)) / size
    typical = float(np.median(np.where(np.isnan(away), np.inf, away)))
    if not typical <= _FAR:
        raise InputError(
            f"{source}: a typical curve is {100 * typical:.3g} % of its largest stress away from law {law.name} at "
            f"its own parameters; check that strain is {law.strain_measure} and has no unit, that stress is "
            f"{law.stress_measure} and in MPa, and that parameters stand in the order of the curves; or leave --law out"
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


# --------------------------------------------------------------------------------------------------
# Packing a user's own labelled curves into the form that everything after works on.


# MAX_TEST_CURVES: that are kept back from training, a tenth of the set at most.
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

    The curves are shuffled, since such files are often sorted. Then the last tenth, at most 10,000, are test curves and
    the others train (75 %) and validate (25 %), unless the file says which do what. A curve of 200 points keeps its
    points, and NaN at its end becomes padding; any other is resampled to 200 even points over its own strains.

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
    source, fixed = pathlib.Path(source), dict(fixed or {})
    return _import(source, law, fixed, copied, seed, progress, num_threads, data_dir=data_dir)


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
    if manifest.source is None:
        return repair_simulated(folder, progress, num_threads)
    source = pathlib.Path(manifest.source.path)
    if not source.is_file():
        raise InputError(
            f"{folder} was made from {source}, which is not there any more; put it back and try again"
        )
    if _sha256(source) != manifest.source.sha256:
        raise InputError(
            f"{source} has changed since {folder} was made from it; pack it anew with --from={source}"
        )
    fixed = (manifest.settings or {}).get("fixed", {})
    copied = None
    if manifest.copies is not None:
        copied = _Copied(manifest.copies, Laboratory.of(manifest.laboratory or {}))
    what = manifest.law, fixed, copied, manifest.seed
    return _import(source, *what, progress, num_threads, folder=folder)


@dataclasses.dataclass(frozen=True)
class _Copied:
    """How many copies of each curve there are, and what is added to them."""

    count: int
    laboratory: Laboratory


def _import(
    source: pathlib.Path,
    law: str | None,
    fixed: Mapping[str, float],
    copied: _Copied | None,
    seed: int,
    progress: Progress | None,
    num_threads: int | None,
    *,
    data_dir: str | pathlib.Path = ".",
    folder: pathlib.Path | None = None,
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
        name = f"{plain_name(source.stem)}-{manifest.num_curves}-{manifest.id}"
        folder = pathlib.Path(data_dir) / name
    write_dataset(folder, manifest, fill, progress=progress, num_threads=num_threads)
    return PackedDataset.open(folder, verify=False)


def _rows_of(
    curves: LabelledCurves, copies: int, seed: int
) -> tuple[NDArray[np.int64], tuple[int, int, int]]:
    """The curve of each row, and how many rows train, validate and test, in this order."""
    count = len(curves.values)
    order = ExampleOrder(count, seed, shard_size=count, window=count)
    shuffled = np.asarray(order.indices(0, 0, count))
    if curves.parts is None:
        alike = count - len(np.unique(curves.values, axis=0))
        if alike:
            log(
                f"warning: {alike} of {count} curves have the same parameters as others; such test curves are not new, "
                "and their accuracy flatters: give each once, with --copies, or say which `part` a curve is of"
            )
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
) -> Manifest:
    content = _sha256(source)
    recorded = None if settings is None else settings.to_json()
    # Curves that are not copied are called as ever.
    laboratory = copied.laboratory.to_json() if copied else None
    copies = {"copies": copied.count, "laboratory": laboratory} if copied else {}
    num_train, num_validation, num_test = counts
    return Manifest(
        id=digest({"content": content, "settings": recorded, "seed": seed, **copies}),
        law=law,
        settings=recorded,
        source=Source(str(source.absolute()), content),
        seed=seed,
        num_curves=num_train + num_validation,
        num_train=num_train,
        num_validation=num_validation,
        num_test=num_test,
        num_points=NUM_POINTS,
        shard_size=SHARD_SIZE,
        parameters=curves.parameters,
        input_scale=scale,
        shards=[],
        copies=copied.count if copied else None,
        laboratory=laboratory,
    )


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
