"""A user's own labelled curves (from finite elements, say): reading and checking `.npz` and `.parquet` files."""

import dataclasses
import pathlib
import re
import sys
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.data.labelled_checks import check_points, parameters_of_columns
from tfmat.errors import InputError
from tfmat.materials.parameter import Parameter

NUM_POINTS = 200
PARTS = ("train", "validation", "test")
_REQUIRED = ("strain", "stress", "parameters", "names", "units")

Array = NDArray[np.float64]


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


def _parts(path: pathlib.Path, arrays: dict[str, Any], count: int) -> NDArray[np.int64] | None:
    if "part" not in arrays:
        return None
    given = _strings(path, arrays, "part", count, "curves")
    if not set(PARTS[:2]) <= set(given) <= set(PARTS):
        raise InputError(
            f"{path}: part says {', '.join(sorted(set(given)))}; give each curve one of {', '.join(PARTS)}"
        )
    return np.array([PARTS.index(name) for name in given])


def _floats(path: pathlib.Path, arrays: dict[str, Any], name: str, dimensions: int) -> Array:
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
    path: pathlib.Path, arrays: dict[str, Any], name: str, count: int, of: str = "parameters"
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
