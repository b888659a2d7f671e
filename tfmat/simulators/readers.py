"""The curve of a finished run, from the files that solvers write, as nominal strain and stress."""

import itertools
import pathlib
import re
from collections.abc import Mapping

import numpy as np

from tfmat.materials.law import Array
from tfmat.simulators.description import Curve, Description

# CalculiX: ` total force (fx,fy,fz) for set TOP and time  0.1000000E+00`, an empty line, and three numbers.
_TOTAL_FORCE = re.compile(
    r"^ total force \(fx,fy,fz\) for set (\S+) and time\s+(\S+)\s*\n\s*\n\s*(\S+)\s+(\S+)\s+(\S+)",
    re.MULTILINE,
)
# Of the displacement that a run has to reach: solvers write few digits.
_REACHED = 1.0 - 1e-4
# Nominal strain; MPa. Rubber reaches 10, a whisker some 2e4 MPa, diamond has 1.2e6 MPa: more is another unit.
_MOST_STRAIN, _MOST_STRESS, _MOST_MODULUS = 20.0, 1e5, 1e7
# Of the largest component of a force: one that is smaller is what symmetry and rounding leave of it.
_LEAST_SHARE = 0.01
# Characters of what a solver says.
_TOLD = 200


class FailedRunError(Exception):
    """A run has no curve; the message says why."""


def read_curve(
    description: Description, folder: pathlib.Path, values: Mapping[str, float]
) -> tuple[Array, Array]:
    """The curve of a run that ended in `folder`: nominal strain (-) and stress (MPa), each [points].

    Raises:
      FailedRunError: there is no such curve, it has a number that is not finite, it does not rise in strain, or it
        ends before `curve.end`.
    """
    curve = description.curve
    if curve.reader == "python":
        displacement, force = _by_user(description, folder, dict(values))
    else:
        path = folder / curve.file
        if not path.is_file():
            raise FailedRunError(f"the run wrote no {curve.file}")
        read = _table if curve.reader == "table" else _calculix
        displacement, force = read(curve, path.read_text("utf-8", errors="replace"))
    displacement = displacement * curve.displacement_factor
    force = force * curve.force_factor
    if not (np.isfinite(displacement).all() and np.isfinite(force).all()):
        raise FailedRunError("the curve has a number that is not finite")
    if len(displacement) < 2 or (np.diff(displacement) <= 0).any():
        raise FailedRunError(
            "the curve has fewer than two points, or its displacement does not rise"
        )
    if displacement[-1] < _REACHED * curve.end:
        raise FailedRunError(f"ended at {displacement[-1]:.4g} mm, before {curve.end:g} mm")
    strain, stress = displacement / curve.gauge_length, force / curve.area
    _refuse_implausible(curve, strain, stress)
    return strain, stress


def _refuse_implausible(curve: Curve, strain: Array, stress: Array) -> None:
    """A curve that no specimen has tells that signs, components or units are wrong."""
    work = np.trapezoid(stress, strain)
    if not np.abs(stress).max() > 0:
        raise FailedRunError("the force is zero throughout; look at curve.force and at the deck")
    if work < 0:
        raise FailedRunError(
            "the force pulls against the displacement: give curve.force_factor the other sign"
        )
    units = "are lengths in mm, forces in N and moduli in MPa, in the deck and in simulator.toml?"
    if (most := strain.max()) > _MOST_STRAIN:
        raise FailedRunError(
            f"the nominal strain reaches {most:.3g}, with a gauge length of {curve.gauge_length:g} mm: {units}"
        )
    if (most := np.abs(stress).max()) > _MOST_STRESS:
        raise FailedRunError(
            f"the nominal stress reaches {most:.3g} MPa, with an area of {curve.area:g} mm²: {units}"
        )
    rises = strain > 0
    if (most := np.abs(stress[rises] / strain[rises]).max()) > _MOST_MODULUS:
        raise FailedRunError(f"the nominal curve rises with {most:.3g} MPa: {units}")


def _by_user(
    description: Description, folder: pathlib.Path, values: dict[str, float]
) -> tuple[Array, Array]:
    assert description.parse is not None
    try:
        displacement, force = description.parse(folder, values)
        found = np.asarray(displacement, np.float64), np.asarray(force, np.float64)
    except Exception as error:
        raise FailedRunError(f"parse: {type(error).__name__}: {error}") from error
    if found[0].ndim != 1 or found[0].shape != found[1].shape:
        raise FailedRunError(
            f"parse gave shapes {list(found[0].shape)} and {list(found[1].shape)}; it has to give two rows of "
            "equally many numbers"
        )
    return found


def _table(curve: Curve, text: str) -> tuple[Array, Array]:
    """Columns, separated by commas, semicolons or blanks, below the first line that names both."""
    lines = [re.split(r"[,;]\s*|\s+", line.strip().lstrip("# ")) for line in text.splitlines()]
    wanted = str(curve.displacement), str(curve.force)
    for number, names in enumerate(lines):
        if not set(wanted) <= set(names):
            continue
        columns = [names.index(name) for name in wanted]
        rows = [line for line in lines[number + 1 :] if any(line)]
        try:
            found = np.array([[float(row[column]) for column in columns] for row in rows])
        except (ValueError, IndexError):
            raise FailedRunError(
                f"{curve.file}: a line below the names {' and '.join(wanted)} holds no numbers for them"
            ) from None
        found = found.reshape(-1, 2)
        return found[:, 0], found[:, 1]
    raise FailedRunError(f"{curve.file}: no line names the columns {' and '.join(wanted)}")


def _calculix(curve: Curve, text: str) -> tuple[Array, Array]:
    """Total forces over the time of a step in which the displacement grows in proportion; the start is added.

    CalculiX CrunchiX User's Manual, *NODE PRINT with TOTALS=ONLY and RF.
    """
    blocks = _TOTAL_FORCE.findall(text)
    found = sorted({name for name, *_ in blocks})
    if not found:
        node_set = curve.node_set or "a set of nodes"
        raise FailedRunError(
            f"{curve.file} holds no total forces; the deck's step needs *NODE PRINT, NSET={node_set}, TOTALS=ONLY "
            "and RF in the line below"
        )
    wanted = curve.node_set.upper() or (found[0] if len(found) == 1 else "")
    if wanted not in found:
        raise FailedRunError(
            f"{curve.file} holds the total forces of {', '.join(found)}; curve.node_set is '{curve.node_set}'"
        )
    rows = [tuple(map(float, row[1:])) for row in blocks if row[0] == wanted]
    time, *forces = np.concatenate([[(0.0,) * 4], rows]).T
    if time[-1] > 2.0 - _REACHED:
        raise FailedRunError(
            f"the time goes to {time[-1]:g}; curve.displacement is the one at the time 1: let the steps last 1 in all"
        )
    component = int(curve.force)
    largest = [np.abs(force).max() for force in forces]
    most = int(np.argmax(largest))
    if largest[component - 1] < _LEAST_SHARE * largest[most]:
        raise FailedRunError(
            f"component {component} of the total force of {wanted} stays below {_LEAST_SHARE:.0%} of component "
            f"{most + 1}, so that it is not the one of the test; give curve.force = {most + 1}"
        )
    return time * float(curve.displacement), forces[component - 1]


def named_error(log: str) -> str:
    """The first error that a solver's output names, in one line; empty where it names none."""
    lines = [line.strip() for line in log.splitlines()]
    for number, line in enumerate(lines):
        if re.search(r"\berror\b", line, re.IGNORECASE):
            # CalculiX breaks its messages; an empty line or the star of the next one ends them.
            rest = itertools.takewhile(lambda one: one and one[0] != "*", lines[number + 1 :])
            return " ".join(" ".join([line, *rest]).split())[:_TOLD]
    return ""


def telling_line(log: str) -> str:
    """What a solver's output says of its failure: the first error that it names, or else its last words."""
    last = (line.strip() for line in reversed(log.splitlines()) if line.strip(" _\t"))
    return named_error(log) or next(last, "")[:_TOLD]
