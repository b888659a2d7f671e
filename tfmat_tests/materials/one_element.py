"""A unit cube of one C3D8 element with a card's material, pulled in the real CalculiX."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Sequence

import numpy as np
import pytest

_NODES = "000 100 110 010 001 101 111 011"
# Faces x=0, x=1, y=0, y=1, z=0.
_FACES = {"X0": "1,4,5,8", "X1": "2,3,6,7", "Y0": "1,2,5,6", "Y1": "3,4,7,8", "Z0": "1,2,3,4"}
_PATIENCE = 120  # seconds; the run takes about one


@dataclasses.dataclass(frozen=True)
class Pulled:
    """What CalculiX answers at each increment.

    Attributes:
      stretch: of the pulled direction, [increments].
      true_stress, nominal_stress: in that direction, [increments], MPa.
    """

    stretch: np.ndarray
    true_stress: np.ndarray
    nominal_stress: np.ndarray


def need_calculix() -> None:
    """Skips a test where CalculiX is not installed; CI must have it."""
    if shutil.which("ccx") is None:
        message = "CalculiX is not installed (ccx); tools/system_packages calculix gets it"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)


def pull(
    folder: pathlib.Path,
    card: str,
    stretches: Sequence[float],
    mode: str = "uniaxial",
    *,
    steps: int = 40,
    seconds: Sequence[float] | None = None,
    temperature: float | None = None,
) -> Pulled:
    """Pulls the cube to each of the stretches, in `steps` equal increments each; NLGEOM, always.

    Args:
      card: the text, which defines one material.
      mode: uniaxial, equibiaxial (both x and y are pulled) or planar (y is held).
      temperature: °C, of a card that depends on it.
      seconds: that each stretch takes, in a calculation with creep; None: time does not matter.
    """
    match = re.search(r"^\*MATERIAL, NAME=(\w+)$", card, re.MULTILINE)
    assert match is not None
    nodes = [f"{i},{','.join(at)}" for i, at in enumerate(_NODES.split(), start=1)]
    lines = ["*NODE, NSET=ALL", *nodes, "*ELEMENT, TYPE=C3D8, ELSET=CUBE", "1,1,2,3,4,5,6,7,8"]
    for name, members in _FACES.items():
        lines += [f"*NSET, NSET={name}", members]
    lines += [card, f"*SOLID SECTION, ELSET=CUBE, MATERIAL={match[1]}"]
    if temperature is not None:
        lines += ["*INITIAL CONDITIONS, TYPE=TEMPERATURE", f"ALL,{temperature:g}"]
    lines += ["*BOUNDARY", "X0,1,1", "Y0,2,2", "Z0,3,3", *(["Y1,2,2"] if mode == "planar" else [])]
    static = "*STATIC, DIRECT" if seconds is None else "*VISCO, DIRECT, CETOL=1."
    for stretch, time in zip(stretches, seconds or [1.0] * len(stretches), strict=True):
        pulled = [f"{face},{d},{d},{stretch - 1:.12g}" for face, d in (("X1", 1), ("Y1", 2))]
        lines += ["*STEP, NLGEOM, INC=10000", static, f"{time / steps:.12g},{time:.12g}"]
        lines += ["*BOUNDARY", *pulled[: 2 if mode == "equibiaxial" else 1]]
        lines += ["*NODE PRINT, NSET=X0, TOTALS=ONLY", "RF", "*NODE PRINT, NSET=X1", "U"]
        lines += ["*EL PRINT, ELSET=CUBE", "S", "*END STEP"]
    (folder / "cube.inp").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        ["ccx", "cube"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    assert "Job finished" in done.stdout, done.stdout[-1000:]
    return _read((folder / "cube.dat").read_text())


def _read(text: str) -> Pulled:
    """Blocks of the .dat file: a heading, an empty line, and a line for each node or integration point."""
    found: dict[str, list[list[float]]] = {"total force": [], "displacements": [], "stresses": []}
    for block in re.split(r"\n (?=total force|displacements|stresses)", text):
        kind = next((kind for kind in found if block.startswith(kind)), None)
        if kind:
            found[kind].append([float(part) for part in block.splitlines()[2].split()])
    return Pulled(
        stretch=1.0 + np.array(found["displacements"])[:, 1],
        true_stress=np.array(found["stresses"])[:, 2],
        nominal_stress=-np.array(found["total force"])[:, 0],
    )
