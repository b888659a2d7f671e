"""`tfmat.identify`: parameters of curves that are already arrays.

    import tfmat

    answer = tfmat.identify(strain, stress, workdir="runs/quickstart")   # [points] or [curves, points], - and MPa
    answer.values["G0"], answer.units["G0"]

Arrays are taken as they are: the strain and stress measure of the network's law (`answer.law`), rising strain, no toe.
Files, with all that can be wrong with them, are for `tfmat identify`.
"""

import dataclasses
import functools
import os
import pathlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.curves.resampling import CurveTarget, resample
from tfmat.curves.simulate import features_of
from tfmat.curves.tables import MINIMUM_POINTS
from tfmat.errors import InputError
from tfmat.materials.law import Array, Law
from tfmat.materials.registry import law_class

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

DEFAULT_WORKDIR = "runs/quickstart"
# Curves that are prepared and answered together: their features stay around 10 MB.
_BLOCK = 4096


@dataclasses.dataclass(frozen=True)
class ArrayAnswer:
    """The network's answers, without least squares.

    Attributes:
      law: with its fixed parameters, or None where the network was trained on curves of no known law.
      values: parameter name -> value in its unit, an array [curves], or a number for a single curve.
      units: parameter name -> unit.
      labels: [curves, identified], scaled to 0-1; 0 and 1 are the ends of the trained ranges.
    """

    law: Law | None
    values: dict[str, Array | float]
    units: dict[str, str]
    labels: Array

    def stress(self, strain: ArrayLike) -> Array:
        """The re-simulated stress, MPa, at strains [points] or [curves, points].

        Returns:
          [curves, points], or [points] for a single curve.
        """
        if self.law is None:
            raise InputError(
                "the network was trained on curves of no known law; nothing can be re-simulated"
            )
        strain = np.atleast_2d(np.asarray(strain, np.float64))
        single = any(np.ndim(value) == 0 for value in self.values.values())
        stress = self.law.stress(strain, self.law.from_labels(self.labels))
        return stress[0] if single else stress


def identify(
    strain: ArrayLike,
    stress: ArrayLike,
    *,
    law: str | None = None,
    workdir: str | os.PathLike | None = None,
) -> ArrayAnswer:
    """Identifies the parameters of one curve or of many at once, with the network alone.

    Args:
      strain: [points] (of one curve, or the same for all) or [curves, points], -, rising.
      stress: [points] or [curves, points], MPa. Shorter curves of a set end in NaN.
      law: name of the law that is expected; an error where the network is of another. None takes any.
      workdir: folder of the run whose network answers; None is runs/quickstart.

    Raises:
      InputError: no network there, another law, or arrays that are no curves.
    """
    identifier = _identifier_of(law, workdir)
    strain, stress = _arrays(strain, stress)
    single = stress.ndim == 1
    labels = _labels(identifier, strain, np.atleast_2d(stress))
    columns = identifier.values(labels)
    parameters = identifier.parameters
    return ArrayAnswer(
        law=identifier.law,
        values={
            p.name: float(columns[0, i]) if single else columns[:, i]
            for i, p in enumerate(parameters)
        },
        units={p.name: p.unit for p in parameters},
        labels=labels,
    )


def _identifier_of(law: str | None, workdir: str | os.PathLike | None) -> "Identifier":
    workdir = pathlib.Path(DEFAULT_WORKDIR if workdir is None else workdir)
    identifier = _identifier(workdir, _changed(workdir))
    found = identifier.law.name if identifier.law else None
    if law is not None and law_class(law).name != found:
        raise InputError(
            f"the network in {workdir} is of law {found}, not {law}; name another run with workdir=..."
        )
    return identifier


def _labels(identifier: "Identifier", strain: Array, stress: Array) -> Array:
    """The network's answers, cut to 0-1: [curves, identified]."""
    strain = np.broadcast_to(strain, stress.shape)
    labels = np.empty((len(stress), len(identifier.parameters)))
    for start in range(0, len(stress), _BLOCK):
        rows = slice(start, start + _BLOCK)
        valid = _valid(strain[rows], stress[rows])
        features = _features(strain[rows], stress[rows], valid, identifier.target)
        labels[rows] = identifier.predict(features)
    if not np.isfinite(labels).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    return np.clip(labels, 0.0, 1.0, out=labels)


def _arrays(strain: ArrayLike, stress: ArrayLike) -> tuple[Array, Array]:
    """Both as floating point arrays; InputError for shapes that are no curves."""
    strain, stress = np.asarray(strain), np.asarray(stress)
    for name, array in (("strain", strain), ("stress", stress)):
        if array.dtype.kind not in "fiu":
            raise InputError(f"{name} has type {array.dtype}; give numbers")
    if stress.ndim not in (1, 2) or strain.shape not in (stress.shape, stress.shape[-1:]):
        raise InputError(
            f"strain has shape {strain.shape}, stress {stress.shape}; give [points] or [curves, points]"
        )
    if stress.shape[-1] < MINIMUM_POINTS:
        raise InputError(f"a curve needs at least {MINIMUM_POINTS} points")
    if strain.dtype.kind != "f" or stress.dtype.kind != "f":
        return strain.astype(np.float64), stress.astype(np.float64)
    return strain, stress


def _valid(strain: Array, stress: Array) -> NDArray[np.bool_]:
    """False behind the end of a curve, [curves, points]; InputError for values that are no curves."""
    valid = np.isfinite(strain + stress)
    if not valid.all():
        if (valid[:, 1:] > valid[:, :-1]).any() or not valid[:, 0].all():
            raise InputError("strain or stress holds NaN or infinity before the end of a curve")
        if (valid.sum(axis=1) < MINIMUM_POINTS).any():
            raise InputError(f"a curve needs at least {MINIMUM_POINTS} points")
    if (np.diff(strain, axis=1) < 0).any() or np.any(strain[:, 0] < 0):
        raise InputError(
            "strain must rise from zero or more; clean the curves first (tfmat identify does)"
        )
    return valid


def _features(strain: Array, stress: Array, valid: NDArray[np.bool_], target: CurveTarget) -> Array:
    """[curves, num_points, 3] on the points of the trained curves."""
    ready = _on_the_grid(strain, stress, valid, target)
    if ready is not None:
        return ready
    points = []
    for e, s, kept in zip(strain, stress, valid.copy(), strict=True):
        if target.max_strain is not None:
            kept &= e <= target.max_strain[1] * (1 + 1e-12)
        if target.max_stress_mpa is not None and (s[kept] > target.max_stress_mpa).any():
            kept[np.flatnonzero(kept & (s > target.max_stress_mpa))[0] + 1 :] = False
        if np.count_nonzero(kept) < 2:
            raise InputError(
                "a curve has fewer than two points in the trained range; are the units - and MPa?"
            )
        points.append(resample(e[kept], s[kept], target))
    return features_of(*(np.stack(arrays) for arrays in zip(*points, strict=True)))


def _on_the_grid(
    strain: Array, stress: Array, valid: NDArray[np.bool_], target: CurveTarget
) -> Array | None:
    """The features at once where every curve stands on the trained points already; otherwise None."""
    if target.max_strain is None or strain.shape[1] != target.num_points:
        return None
    low, high = target.max_strain
    grid = np.linspace(0.0, 1.0, target.num_points) ** target.strain_spacing
    grid = grid.astype(strain.dtype)
    # An early point tells the end that the grid was made for: a curve that broke off is padded behind.
    at = max(target.num_points // 16, 1)
    end = strain[:, at] / grid[at]
    if not (
        valid[:, at].all() and (end >= low * (1 - 1e-6)).all() and (end <= high * (1 + 1e-6)).all()
    ):
        return None
    difference = np.abs(strain - end[:, None] * grid)
    if np.any((difference > 1e-5 * end[:, None]) & valid):
        return None
    if target.max_stress_mpa is not None and np.any(stress[valid] > 1.1 * target.max_stress_mpa):
        return None
    return features_of(np.where(valid, strain, 0.0), np.where(valid, stress, 0.0), valid)


def _changed(workdir: pathlib.Path) -> int:
    """Changes when the run's model does; a run without one is refused later, with a reason."""
    file = workdir / "model.keras"
    return file.stat().st_mtime_ns if file.is_file() else 0


@functools.lru_cache(maxsize=4)
def _identifier(workdir: pathlib.Path, changed: int) -> "Identifier":
    # TensorFlow is loaded when the first curve comes, not by `import tfmat`.
    from tfmat.identification.identifier import Identifier

    return Identifier.open(workdir)
