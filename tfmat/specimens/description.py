"""The description of a simulation: its parameters, its program, and how its results are read."""

import importlib.util
import itertools
import json
import math
import pathlib
import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tfmat.errors import InputError, nearest
from tfmat.files import what_is_invalid
from tfmat.materials import find_law
from tfmat.materials.law import Array, Parameter, Scale
from tfmat.records.laboratory import Laboratory

# --------------------------------------------------------------------------------------------------
# A specimen's simulation as a user describes it: a folder with `simulator.toml`, templates, and perhaps Python.


DESCRIPTION, FUNCTIONS = "simulator.toml", "simulator.py"
# Lists in the file, for who writes something else.
_EXAMPLES = {
    "command": ["ccx", "bar"], "version": ["ccx", "-v"], "templates": ["bar.inp"], "files": ["bar.inp"],
}  # fmt: skip
# Names that a template may use beside the parameters: the number of the run's processors.
RESERVED = ("threads",)

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Drawn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is drawn for every run, within its range."""

    low: float
    high: float
    unit: str = "-"
    scale: Scale = "linear"
    description: str = ""


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run's curve stands, and how it becomes nominal strain and stress.

    Attributes:
      reader: `table`: a text file with a line of names; `calculix`: total forces in a `.dat` file; `python`: the
        function `parse` of the user's.
      displacement: column of a table, or, for CalculiX, the displacement in mm at the time 1, in proportion to time.
      force: column of a table, or, for CalculiX, which component of the force: 1, 2 or 3.
      node_set: whose total force CalculiX printed; needed where it printed several.
      displacement_factor, force_factor: from the model to the specimen: 2 and 1 for half of it, 180 for the force of
        CalculiX's axisymmetric sector of 2 degrees.
      gauge_length: mm, by which the displacement is divided; area: mm², by which the force is.
      end: the displacement of the specimen, in mm, that a run has to reach; 0 for any.
    """

    gauge_length: Positive
    area: Positive
    reader: Literal["table", "calculix", "python"] = "table"
    file: str = ""
    displacement: str | float = "displacement"
    force: str | int = "force"
    node_set: str = ""
    displacement_factor: float = 1.0
    force_factor: float = 1.0
    end: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class _AsTold(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of `simulator.toml` that mean what they say.

    Attributes:
      command: a list of arguments, which no shell sees; its first is looked up in the folder, then as a program.
      templates: files of the folder that hold names in double braces; files: copied as they are.
      material: the law whose parameters are drawn, or are constants, by their names; None where there is none.
      constants: further names that templates may use.
      environment: variables that runs have beside those of tfmat; `OMP_NUM_THREADS` is `threads` unless it is given.
      version: a command whose output says which solver it is; part of what makes two runs the same.
      finished: a text that the program prints at its end; without it a run has failed.
      time_limit: seconds; threads: processors of one run; retries: of a run that failed.
    """

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    templates: tuple[str, ...]
    curve: Curve
    title: str = ""
    material: str | None = None
    constants: dict[str, float] = {}
    files: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    version: tuple[str, ...] = ()
    finished: str = ""
    time_limit: Positive = 600.0
    threads: Annotated[int, msgspec.Meta(ge=1)] = 1
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


class _Content(_AsTold, frozen=True, kw_only=True):
    """All keys of `simulator.toml`."""

    parameters: dict[str, Drawn]
    nuisances: dict[str, Drawn] = {}
    laboratory: dict[str, float | tuple[float, float]] = {}


class Description(_AsTold, frozen=True, kw_only=True):
    """The description of a simulation in its folder.

    Attributes:
      folder: of the description; its name is the simulator's.
      parameters: what networks learn to tell; nuisances: drawn too, and told by nobody.
      derive: values of a run -> further names for its templates; parse: (folder of a run, its values) ->
        (displacement in mm, force in N) of the model; None where the user gave no such function.
      laboratory: what copies of a run's curve have beside it.
    """

    folder: pathlib.Path
    parameters: tuple[Parameter, ...]
    nuisances: tuple[Parameter, ...]
    derive: Callable[[dict[str, float]], Mapping[str, Any]] | None
    parse: Callable[[pathlib.Path, dict[str, float]], Any] | None
    laboratory: Laboratory

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def drawn(self) -> tuple[Parameter, ...]:
        """Everything that is drawn for a run, in the order of its numbers."""
        return self.parameters + self.nuisances

    @property
    def middle(self) -> Array:
        """The middle of the ranges on their scales, [drawn]."""
        return np.array([parameter.from_unit_interval(0.5) for parameter in self.drawn])


def read_description(folder: str | pathlib.Path) -> Description:
    """Reads and checks `simulator.toml` and `simulator.py` of a folder; runs nothing but what the latter defines.

    Raises:
      InputError: a file is missing, a key is unknown, missing or of another type, a range is empty, or a name stands
        twice.
    """
    folder = pathlib.Path(folder).absolute()
    path = folder / DESCRIPTION
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} describes no simulation: there is no {DESCRIPTION}; docs/finite_elements.md has one"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error
    try:
        content = msgspec.convert(told, _Content)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {_complaint(error, told)}") from error
    functions = _functions(folder / FUNCTIONS)
    try:
        laboratory = Laboratory.of(content.laboratory)
    except InputError as error:
        raise InputError(
            f"{path}: {str(error).replace('--config.data.', 'laboratory.')}"
        ) from error
    description = Description(
        folder=folder,
        parameters=_parameters(path, "parameters", content.parameters),
        nuisances=_parameters(path, "nuisances", content.nuisances),
        derive=functions.get("derive"),
        parse=functions.get("parse"),
        laboratory=laboratory,
        **{name: getattr(content, name) for name in _AsTold.__struct_fields__},
    )
    _check(path, description)
    return description


def _complaint(error: msgspec.ValidationError, told: Mapping[str, Any]) -> str:
    """A complaint of msgspec, in the words of the file."""
    key, what = what_is_invalid(error, told, _Content)
    section = f"{key}: " if key else ""
    first, last = key.partition(".")[0], key.rpartition(".")[2]
    kind = {"curve": Curve, "parameters": Drawn, "nuisances": Drawn}.get(first, _Content)
    if what.startswith("Invalid enum value"):
        words = ", ".join(typing.get_args(typing.get_type_hints(kind)[last]))
        return (
            f"{section}{what.removeprefix('Invalid enum value ')} is not known; give one of {words}"
        )
    if (missing := re.search(r"missing required field `(\w+)`", what)) is not None:
        return f"{section}{missing[1]} is missing; docs/finite_elements.md says what it is"
    if (unknown := re.search(r"unknown field `(\w+)`", what)) is not None:
        return f"{section}there is no key {unknown[1]}{nearest(unknown[1], kind.__struct_fields__)}"
    if key in _EXAMPLES:
        return f"{section}{what}; write a list, {json.dumps(_EXAMPLES[key])}"
    return f"{section}{what}"


def _parameters(
    path: pathlib.Path, section: str, drawn: Mapping[str, Drawn]
) -> tuple[Parameter, ...]:
    found = []
    for name, one in drawn.items():
        floor = 0.0 if one.scale == "log" else -math.inf
        if not floor < one.low < one.high < math.inf:
            raise InputError(
                f"{path}: {section}.{name}: the range is {one.low:g} to {one.high:g} {one.unit}; give "
                f"{'0 < ' if one.scale == 'log' else ''}low < high"
            )
        if not name.isidentifier():
            raise InputError(
                f"{path}: {section}.{name}: letters, digits and _ make a name; call it otherwise"
            )
        found.append(Parameter(name, one.unit, one.low, one.high, one.scale, one.description))
    return tuple(found)


def _check(path: pathlib.Path, description: Description) -> None:
    names = [parameter.name for parameter in description.drawn]
    names += [*description.constants, *RESERVED]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: the name {name} stands twice; call one of them otherwise")
    if not description.parameters:
        raise InputError(f"{path}: parameters: there is none to be told; give one at least")
    if not description.templates:
        raise InputError(
            f"{path}: templates: there is none, so all runs would be the same; give one at least"
        )
    for name in (*description.templates, *description.files):
        if pathlib.PurePath(name).name != name:
            raise InputError(f"{path}: '{name}' is in another folder; put it beside {DESCRIPTION}")
        if not (description.folder / name).is_file():
            raise InputError(f"{path} names the file {name}, which is not in {description.folder}")
    for name in description.templates:
        try:
            (description.folder / name).read_text("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{description.folder / name}, line {line}: this is no UTF-8; save the file in that encoding"
            ) from error
    if description.material is not None:
        for parameter in find_law(description.material).parameters:
            if parameter.name not in names:
                raise InputError(
                    f"{path}: material: law {description.material} has {parameter.name}, which is neither drawn nor a "
                    "constant; call it by that name, or leave material out"
                )
    curve = description.curve
    if curve.reader == "python" and description.parse is None:
        raise InputError(
            f"{path}: curve.reader is python, and {FUNCTIONS} defines no parse(folder, values)"
        )
    if curve.reader != "python" and not curve.file:
        raise InputError(f"{path}: curve.file: say which file of a run holds its curve")
    if curve.reader == "calculix" and (
        isinstance(curve.displacement, str) or curve.force not in (1, 2, 3)
    ):
        raise InputError(
            f"{path}: curve: for CalculiX displacement is the one at time 1, in mm, and force is 1, 2 or 3, the "
            "component"
        )


def _functions(path: pathlib.Path) -> dict[str, Callable]:
    """`derive` and `parse` of the user's file, if there is one and it defines them."""
    if not path.is_file():
        return {}
    spec = importlib.util.spec_from_file_location(f"tfmat_simulator_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path}: {type(error).__name__}: {error}") from error
    return {
        name: function
        for name in ("derive", "parse")
        if callable(function := getattr(module, name, None))
    }


# --------------------------------------------------------------------------------------------------
# The curve of a finished run, from the files that solvers write, as nominal strain and stress.


# CalculiX: ` total force (fx,fy,fz) for set TOP and time  0.1000000E+00`, an empty line, and three numbers.
_TOTAL_FORCE = re.compile(
    r"^ total force \(fx,fy,fz\) for set (\S+) and time\s+(\S+)\s*\n\s*\n\s*(\S+)\s+(\S+)\s+(\S+)",
    re.MULTILINE,
)
# Share of the displacement that a run has to reach: solvers write few digits.
_REACHED = 1.0 - 1e-4
# Nominal strain; MPa. Rubber reaches 10, a whisker some 2e4 MPa, diamond has 1.2e6 MPa: more is another unit.
_MOST_STRAIN, _MOST_STRESS, _MOST_MODULUS = 20.0, 1e5, 1e7
# Share of the largest component of a force; smaller components come from symmetry and rounding.
_LEAST_SHARE = 0.01
# Characters of what a solver says, and how many of its last lines.
_TOLD, _LAST_LINES = 200, 3


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
    """The cause of a failure in a solver's output: the first error that it names, or else its last lines."""
    last = [line.strip() for line in log.splitlines() if line.strip(" _\t")][-_LAST_LINES:]
    return named_error(log) or " / ".join(last)[-_TOLD:]
