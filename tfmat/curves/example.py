"""Curves to try the program on: the ones that are shipped, and one simulated on the spot for any other law."""

import csv
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from tfmat.errors import InputError, nearest
from tfmat.files import atomic_write
from tfmat.materials.law import Law

_FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples"


def example_curve(law_name: str) -> pathlib.Path | None:
    """The CSV file that is shipped for a law, or None. README.md beside it says how each was made."""
    return next(iter(sorted(_FOLDER.glob(f"{law_name}_simulated_*.csv"))), None)


def write_example_curve(
    law: Law,
    path: str | os.PathLike,
    *,
    parameters: Mapping[str, float] | None = None,
    max_strain: float | None = None,
    noise_mpa: float | None = None,
    num_points: int = 150,
    seed: int = 0,
) -> pathlib.Path:
    """Simulates one noisy curve, as a testing machine might have exported it, into a CSV file.

    Args:
      parameters: values in the parameters' units; those not named stand in the middle of their range, on its scale.
      max_strain: end of the curve; by default the middle of the law's own range, or before it where a law with a
        strength cut-off exceeds the middle of its range of strengths, or a tension specimen would neck.
      noise_mpa: standard deviation of the stress noise; by default the law's own.

    Returns:
      `path`.
    """
    values = _values(law, parameters or {})
    random = np.random.default_rng(seed)
    end = float(np.mean(law.max_strain)) if max_strain is None else max_strain
    # Unevenly spaced, as a machine that samples in time and does not run at constant speed.
    share = np.cumsum(random.uniform(0.4, 1.6, num_points))
    strain = end * (share / share[-1]) ** law.strain_spacing
    stress = law.stress(strain[None], np.array([values]))[0]
    if law.strength_mpa is not None and max_strain is None:
        unbroken = stress <= np.mean(law.strength_mpa)
        strain, stress = strain[unbroken], stress[unbroken]
    if law.stress_measure == "true" and max_strain is None:
        # A specimen necks where stress over stretch, the load, has its maximum; the record of a test ends there.
        before = np.arange(len(strain)) <= int((stress * np.exp(-strain)).argmax())
        strain, stress = strain[before], stress[before]
    stress = stress + random.normal(
        0.0, law.noise_mpa if noise_mpa is None else noise_mpa, len(stress)
    )
    kind = {"engineering shear": "shear"}.get(law.strain_measure, law.strain_measure)
    with atomic_write(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f"{kind}_strain [-]", f"{law.stress_measure}_stress [MPa]"])
        writer.writerows((f"{e:.6g}", f"{s:.5g}") for e, s in zip(strain, stress, strict=True))
    return pathlib.Path(path)


def _values(law: Law, given: Mapping[str, float]) -> list[float]:
    """A value for every parameter of the law: given, fixed, or the middle of its range."""
    known = [parameter.name for parameter in law.parameters]
    for name in given:
        if name not in known:
            raise InputError(f"law {law.name} has no parameter '{name}'{nearest(name, known)}")
    middle = [
        p.fixed if p.fixed is not None else float(p.from_unit_interval(0.5)) for p in law.parameters
    ]
    return [given.get(name, value) for name, value in zip(known, middle, strict=True)]
