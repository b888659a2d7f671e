"""A user's simulation: its program, one run of it, and campaigns of many.

Runs are started, stored and resumed. They make data sets, checked answers and a network.
"""

import asyncio
import collections
import contextlib
import csv
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import tomllib
import typing
import zipfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import jinja2
import jinja2.meta
import msgspec
import numpy as np
import scipy.optimize
from scipy.interpolate import PchipInterpolator
from scipy.stats import qmc

from tfmat.data.dataset import PackedDataset, plain_name
from tfmat.data.imported import PARTS, import_dataset
from tfmat.errors import InputError, nearest
from tfmat.files import (
    atomic_write,
    check_json,
    is_locked,
    locked,
    make_folder,
    read_json,
    spreadsheet_row,
    what_is_invalid,
    write_arrays,
    write_error,
    write_json,
)
from tfmat.materials import find_law
from tfmat.materials.law import Array, Parameter, Scale
from tfmat.records.laboratory import Laboratory
from tfmat.specimens.emulator import Facts, ForwardNetwork, inputs_of, write_law

if TYPE_CHECKING:
    import keras


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


# --------------------------------------------------------------------------------------------------
# Programs that end at a limit of time, and with the process that started them, with all that they have started.


# The first member of the group: its input ends when this process does, also by SIGKILL. The signal at a parent's
# death (PR_SET_PDEATHSIG) would reach the program only, and commands of solvers are often scripts that start them.
_GUARD = "read -r line; kill -s KILL -- -$$"
# Seconds that a killed process is waited for; a file system that has fallen silent may hold it for longer.
_DYING = 1.0


async def run_program(*command: str, time_limit: float, **options: Any) -> int | None:
    """Runs a program in a process group of its own, which is ended with it, at the limit, and with this process.

    Args:
      time_limit: seconds.
      options: as `subprocess.Popen` takes them.

    Returns:
      The exit status, minus the number of the signal that ended the program; None at the limit of time.
    """
    theirs, ours = os.pipe()
    members: list[subprocess.Popen[bytes]] = []
    try:
        # Not asyncio's processes: cancelled while they start, they are reaped twice, and it complains on the screen.
        guard = subprocess.Popen(
            ["sh", "-c", _GUARD],
            stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        members.append(guard)
        members.append(subprocess.Popen(command, process_group=guard.pid, **options))
        # Not `wait_for`, which swallows a cancellation that comes when the program has just ended.
        async with asyncio.timeout(time_limit):
            return await _status(members[-1])
    except TimeoutError:
        return None
    finally:
        os.close(theirs)
        os.close(ours)
        if members:
            # Nobody has waited for the guard yet, so its number is still the group's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(members[0].pid, signal.SIGKILL)
        # Not awaited: a cancellation that comes now would leave them to nobody.
        for process in members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DYING)


async def _status(process: subprocess.Popen[bytes]) -> int:
    """The exit status, when a process has ended: a hundredth of its time later at most, and no more than 50 ms."""
    clock = asyncio.get_running_loop().time
    started = clock()
    while (status := process.poll()) is None:
        await asyncio.sleep(min(max((clock() - started) / 100, 0.001), 0.05))
    return status


# --------------------------------------------------------------------------------------------------
# One run of a solver: strict templates, a fresh folder, a limit of time that ends all of its processes.


# Goes up where the same run would give another curve, so that stored ones are not taken for it.
_RUN_FORM = 1
LOG = "log.txt"
# Points of a curve, which are dense where the strain is small, as knees are.
_POINTS, _SPACING = 401, 2.0
# Characters of the log that a failed run keeps.
_KEPT = 2000
_VERSION_PATIENCE = 60.0  # seconds
# Seconds within which a process hears that its job ends, where a program of the job was told first.
_END_OF_JOB = 2.0
# Statuses of a program that was told, and of a script whose program was.
_TOLD_TO_END = [
    status
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    for status in (-number, 128 + number)
]


@dataclasses.dataclass(frozen=True)
class Deck:
    """The input of one run.

    Attributes:
      values: everything drawn, and the constants.
      texts: file name -> content, the templates filled in.
      key: 16 hexadecimal digits that two runs share where their files, command, solver and reading are the same.
    """

    values: Mapping[str, float]
    texts: Mapping[str, str]
    key: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run: its curve, nominal strain (-) and stress (MPa), each [points]; or why there is none.

    Attributes:
      seconds: that the run took.
      failure: one line; empty where the curve is there.
      log: the end of what the solver printed, of a failed run.
    """

    seconds: float
    strain: Array | None = None
    stress: Array | None = None
    failure: str = ""
    log: str = ""

    def curve(self, end: float | None = None) -> tuple[Array, Array]:
        """Strain and stress, [points] each, from zero to `end`, or to the run's end; only where there is a curve.

        Between the increments of a run its curve bends: cubics that keep to its rises and falls (Fritsch and Butland
        1984) are nearer than lines, which cut its knee.
        """
        assert self.strain is not None and self.stress is not None
        last = float(self.strain[-1]) if end is None else end
        strain = last * np.linspace(0.0, 1.0, _POINTS) ** _SPACING
        return strain, np.asarray(PchipInterpolator(self.strain, self.stress)(strain))


class Solver:
    """Fills in the decks of a description and runs them."""

    def __init__(self, description: Description):
        """Raises InputError where templates and values do not fit, or the command is not there."""
        self.description = description
        self._environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
        )
        self._sources = {
            name: (description.folder / name).read_text("utf-8") for name in description.templates
        }
        self._command = (_program(description), *description.command[1:])
        self._templates = {
            name: self._template(name, source) for name, source in self._sources.items()
        }
        self._check_names()
        self._same = self._what_is_the_same()

    def deck(self, drawn: Array) -> Deck:
        """The deck of one run.

        Args:
          drawn: [drawn], the values in the order of `Description.drawn`.

        Raises:
          InputError: `derive` failed, or a template does.
        """
        description, values = self.description, self._values(drawn)
        names = {**values, **self._derived(values), "threads": description.threads}
        texts = {}
        for name, template in self._templates.items():
            try:
                texts[name] = template.render(names)
            except Exception as error:
                raise InputError(f"{description.folder / name}: {error}") from error
        # Values count only as the files have them, unless a function reads them.
        read = values if description.parse else {}
        content = json.dumps([_RUN_FORM, self._same, texts, read], sort_keys=True)
        return Deck(values, texts, hashlib.sha256(content.encode()).hexdigest()[:16])

    async def run(self, deck: Deck, folder: pathlib.Path) -> Outcome:
        """Runs a deck in a fresh folder inside of `folder`, which is gone afterwards, however this ends."""
        clock = asyncio.get_running_loop().time
        started = clock()
        place = pathlib.Path(tempfile.mkdtemp(prefix=f"{deck.key}-", dir=folder))
        try:
            try:
                self._write(deck, place)
            except OSError as error:
                raise write_error(place, error) from error
            failure = await self._execute(place)
            if not failure:
                try:
                    strain, stress = read_curve(self.description, place, deck.values)
                    return Outcome(clock() - started, strain, stress)
                except FailedRunError as error:
                    failure = str(error)
            return Outcome(clock() - started, failure=failure, log=_end_of(place / LOG))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _values(self, drawn: Array) -> dict[str, float]:
        names = [parameter.name for parameter in self.description.drawn]
        return dict(zip(names, map(float, drawn), strict=True)) | self.description.constants

    def _write(self, deck: Deck, place: pathlib.Path) -> None:
        for name, text in deck.texts.items():
            (place / name).write_text(text, "utf-8")
        for name in self.description.files:
            shutil.copy2(self.description.folder / name, place / name)

    async def _execute(self, place: pathlib.Path) -> str:
        """Runs the command; why it failed, or nothing."""
        description = self.description
        threads = str(description.threads)
        with (place / LOG).open("w+b") as log, tempfile.TemporaryFile() as errors:
            status = await run_program(
                *self._command,
                time_limit=description.time_limit,
                cwd=place,
                env={**os.environ, "OMP_NUM_THREADS": threads, **description.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
            )
            # A program's buffers would bring its last words before its errors.
            log.seek(0, os.SEEK_END)
            errors.seek(0)
            shutil.copyfileobj(errors, log)
        if status is None:
            return f"not finished after {description.time_limit:g} s"
        if status:
            if status in _TOLD_TO_END:
                # The end of a job reaches all of its processes. Then this one is cancelled here, and nothing is kept.
                await asyncio.sleep(_END_OF_JOB)
            if status < 0:
                return f"ended by {signal.Signals(-status).name}"
            return f"exit status {status}"
        text = (place / LOG).read_text("utf-8", errors="replace")
        if description.finished and description.finished not in text:
            return f"did not print '{description.finished}'"
        return ""

    def _template(self, name: str, source: str) -> jinja2.Template:
        try:
            return self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InputError(
                f"{self.description.folder / name}, line {error.lineno}: {error.message}"
            ) from error

    def _check_names(self) -> None:
        """An unknown or an unused name is refused before anything runs."""
        description = self.description
        middle = self._values(description.middle)
        derived = self._derived(middle)
        known = {*middle, *derived, "threads"}
        used: set[str] = set()
        for name, source in self._sources.items():
            names = jinja2.meta.find_undeclared_variables(self._environment.parse(source))
            for wanted in sorted(names - known):
                raise InputError(
                    f"{description.folder / name} wants '{wanted}', which nothing gives{nearest(wanted, known)}"
                )
            used |= names
        # A value that `derive` or `parse` takes may stand in no template: what they read cannot be seen.
        taken = set(middle) if description.derive or description.parse else set()
        for name in sorted((set(middle) | set(derived)) - used - taken):
            raise InputError(
                f"no template uses '{name}'; write {{{{ {name} }}}} into one of "
                f"{', '.join(description.templates)}, or leave it out"
            )

    def _derived(self, values: Mapping[str, float]) -> dict[str, object]:
        derive = self.description.derive
        if derive is None:
            return {}
        path = self.description.folder / FUNCTIONS
        try:
            found = dict(derive(dict(values)))
        except Exception as error:
            at = ", ".join(f"{name}={value:g}" for name, value in values.items())
            raise InputError(
                f"{path}: derive: {type(error).__name__}: {error} (at {at})"
            ) from error
        for name in found:
            if name in values or name == "threads":
                raise InputError(f"{path}: derive gives '{name}' anew; call it otherwise")
        return found

    def _what_is_the_same(self) -> dict[str, object]:
        """All that runs share and that decides their curves."""
        description = self.description
        files = {
            name: hashlib.sha256((description.folder / name).read_bytes()).hexdigest()
            for name in description.files
        }
        if description.parse:
            content = (description.folder / FUNCTIONS).read_bytes()
            files[FUNCTIONS] = hashlib.sha256(content).hexdigest()
        return {
            "command": description.command,
            "files": files,
            "environment": description.environment,
            "version": self._version(),
            "curve": msgspec.structs.asdict(description.curve),
            "threads": description.threads,
        }

    def _version(self) -> str:
        command = self.description.version
        if not command:
            return ""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_VERSION_PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                f"the command `{' '.join(command)}` for the version: {error}"
            ) from error
        return done.stdout + done.stderr


def _program(description: Description) -> str:
    """The command's first word as a path: a file of the folder, or a program."""
    name = description.command[0]
    own = description.folder / name
    if pathlib.PurePath(name).name == name and own.is_file() and os.access(own, os.X_OK):
        return str(own)
    found = shutil.which(name)
    if found is None:
        hint = "; apt-get install calculix-ccx brings CalculiX" if name == "ccx" else ""
        if " " in name:
            hint = f"; each argument stands by itself: {json.dumps(name.split())}"
        raise InputError(
            f"{description.folder}: the command '{name}' is no program here and no executable file of the folder{hint}"
        )
    return found


def _end_of(path: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", errors="replace")[-_KEPT:]
    return ""


# --------------------------------------------------------------------------------------------------
# The stored runs of a simulator, and who makes which of them: one process all, or several workers a share each.


RUNS, _RUNNING, _FIRST = "runs", "running", "first"
# A failure on a disk with less than this is the disk's, not the model's: bytes.
_LEAST_SPACE = 50_000_000


@dataclasses.dataclass(frozen=True)
class Share:
    """The share of one of several workers: every `workers`-th run from number `worker` on, however many there are."""

    worker: int
    workers: int

    @property
    def folder(self) -> str:
        """The name of the folder in which its runs have theirs."""
        return f"{self.worker}_of_{self.workers}"

    def numbers(self, num_runs: int) -> range:
        """Numbers of its runs, of the runs 0 to `num_runs` - 1."""
        return range(self.worker, num_runs, self.workers)


@dataclasses.dataclass(frozen=True)
class FailedRun:
    """The stored record of a run without a curve."""

    failure: str
    log: str
    seconds: float
    values: dict[str, float]


class Store:
    """The runs of one simulator on disk, by the key of their deck: a curve, or why there is none.

    A maker of runs holds the lock of the folder, alone or, with a share, beside other workers. Each worker also holds
    the lock of its share. A process loses its locks however it ends, so that what a dead one left can be told and
    removed.
    """

    def __init__(self, folder: pathlib.Path, description: Description):
        self._folder = make_folder(folder / RUNS)
        self._running = make_folder(folder / _RUNNING)
        self._name = description.name

    @contextlib.contextmanager
    def held(self, share: Share | None = None) -> Iterator[pathlib.Path]:
        """Nobody else runs what this process runs; yields the folder in which each run has its own.

        Args:
          share: what is to be run; None for anything, with no other process beside this one.

        Raises:
          InputError: another process runs this simulator, and not a share of as many.
        """
        if share is None:
            with locked(self._folder.parent, busy(self._name, self._folder.parent)):
                _clear(self._running)
                yield self._running
            return
        with self._part(share.folder, f"share {share.worker} of {share.workers}") as place:
            # Each locks its own before it looks at the others, so that one of two sees the other.
            for other in sorted(self._running.glob("*_of_*")):
                workers = int(re.sub(r".*_of_", "", other.name))
                if workers != share.workers and is_locked(other):
                    raise InputError(
                        f"another worker makes a share of {workers} of {self._name}, which is not one of "
                        f"{share.workers}; give --num_workers={workers}, or end it first"
                    )
            yield place

    @contextlib.contextmanager
    def held_for_first(self, share: Share | None) -> Iterator[tuple[pathlib.Path, bool]]:
        """As `held`, for the run in the middle, which all workers want: one makes it, and the others wait.

        Yields:
          The folder in which the run has its own; whether another worker was at it just now.
        """
        if share is None:
            with self.held() as place:
                yield place, False
            return
        waits = is_locked(self._running / _FIRST)
        with self._part(_FIRST, "the run in the middle of the ranges") as place:
            yield place, waits

    @contextlib.contextmanager
    def _part(self, name: str, told: str) -> Iterator[pathlib.Path]:
        """The lock of a folder in `running`, beside others; only what a dead owner left in it is removed."""
        store = self._folder.parent
        with locked(store, busy(self._name, store), shared=True) as has_locks:
            if not has_locks:
                raise InputError(
                    f"the file system of {store} has no locks, by which workers know of each other; choose another "
                    "--data_dir, or leave out --num_workers"
                )
            place = self._running / name
            with locked(place, f"another process makes {told} of {self._name}; waiting", wait=True):
                _clear(place)
                yield place

    def find(self, deck: Deck) -> Outcome | None:
        """The outcome of a run; None where it was not made yet."""
        curve, failed = self._folder / f"{deck.key}.npz", self._folder / f"{deck.key}.json"
        if curve.is_file():
            return load(curve)
        if failed.is_file():
            one = check_json(read_json(failed), FailedRun, failed)
            return Outcome(one.seconds, failure=one.failure, log=one.log)
        return None

    def keep(self, deck: Deck, outcome: Outcome) -> None:
        """Stores what came of a run; InputError where the disk is full, also where that is why the run failed."""
        failed = self._folder / f"{deck.key}.json"
        if not outcome.failure:
            save(self._folder / f"{deck.key}.npz", outcome)
            failed.unlink(missing_ok=True)
            return
        free = shutil.disk_usage(self._folder).free
        if free < _LEAST_SPACE:
            raise InputError(
                f"a run failed ({outcome.failure}) with {free // 1_000_000} MB left on the disk of {self._folder}; "
                "free some space, and the same command goes on"
            )
        one = FailedRun(outcome.failure, outcome.log, outcome.seconds, dict(deck.values))
        write_json(failed, dataclasses.asdict(one))


def save(path: pathlib.Path, outcome: Outcome) -> None:
    """Writes a run's curve, whole or not at all; see `load`."""
    assert outcome.strain is not None and outcome.stress is not None
    write_arrays(path, strain=outcome.strain, stress=outcome.stress, seconds=outcome.seconds)


def load(path: pathlib.Path) -> Outcome:
    """The curve of a run; InputError where the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Outcome(float(file["seconds"]), file["strain"], file["stress"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is damaged ({error}); delete it, and its run comes again"
        ) from error


def busy(name: str, folder: pathlib.Path) -> str:
    """The line for who finds another process at the runs of a simulator."""
    return f"another process, here or in a job, runs {name} in {folder}; wait for it or end it"


def _clear(folder: pathlib.Path) -> None:
    """Removes the folders of runs that a killed process left; the lock beside them stays."""
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)


# --------------------------------------------------------------------------------------------------
# Findings of a description's first run: values without effect, and why the run failed.


# The beginning of a failure -> what to do about it: failures of the program, then of its curve.
_OF_PROGRAM = {
    "exit status": "",
    "ended by": "",
    "not finished after": "; raise time_limit, or make the model smaller",
    "did not print": "; `finished` is a text that the program prints at its end, and only there",
}
_OF_CURVE = {
    "the run wrote no": "; curve.file is the file in which the program leaves its curve",
    "ended at": "; curve.end is what a whole run reaches, curve.displacement what the deck prescribes, both in mm",
}
_NO_FILE = re.compile(r"cannot open file (\S+)|no such file", re.IGNORECASE)


def why_it_failed(description: Description, outcome: Outcome) -> str:
    """The failure of a run, what its program said of it, and what to do, in one line."""
    failure = outcome.failure
    for start, remedy in _OF_CURVE.items():
        if failure.startswith(start):
            return failure + remedy
    for start, remedy in _OF_PROGRAM.items():
        if not failure.startswith(start):
            continue
        said = telling_line(outcome.log)
        if _NO_FILE.search(said):
            has = ", ".join((*description.templates, *description.files))
            remedy = f"; a run has the files that `templates` and `files` name: {has}"
        elif said and said == named_error(outcome.log):
            remedy = ""  # the program knows better
        return f"{failure}{remedy}" + (f"; its output says: {said}" if said else "")
    return failure


def refuse_without_effect(solver: Solver) -> None:
    """Raises InputError where a drawn value or a constant changes no file that a run is given.

    `Solver` finds values that no template names. Where `derive` takes them, only what it makes of them tells; what a
    `parse` reads cannot be seen here.
    """
    description = solver.description
    if description.derive is None or description.parse is not None:
        return
    middle = description.middle
    texts = solver.deck(middle).texts
    for i, parameter in enumerate(description.drawn):
        moved = middle.copy()
        moved[i] = parameter.from_unit_interval(0.75)
        if solver.deck(moved).texts == texts:
            _refuse(solver, parameter.name, "has the same value in every run")
    for name in description.constants:
        if _texts_without(solver, name, middle) == texts:
            _refuse(solver, name, "is a constant that nobody uses")


def _texts_without(solver: Solver, name: str, drawn: Array) -> object:
    """The texts of a run without one of the constants; None where it cannot be made then."""
    description = solver.description
    others = {one: value for one, value in description.constants.items() if one != name}
    fewer = msgspec.structs.replace(description, constants=others, version=())
    try:
        return Solver(fewer).deck(drawn).texts
    except InputError:
        return None


def _refuse(solver: Solver, name: str, what: str) -> None:
    description = solver.description
    raise InputError(
        f"{description.folder}: no file of a run depends on '{name}', so that it {what}; use it in "
        f"{', '.join(description.templates)} or in derive, or leave it out"
    )


# --------------------------------------------------------------------------------------------------
# Many runs of a described simulation: run i is the same however many are made; what was run is not run again.


# Ends a campaign whose first runs all failed: the model is wrong, and a thousand more would say the same.
_HOPELESS = 20

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

Progress = Callable[[int, int, int], None]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Campaign:
    """The runs that there are of those asked for.

    Attributes:
      drawn: [runs, drawn], the values of all runs that were asked for, in the order of `Description.drawn`.
      outcomes: of each; None for one that was not run yet.
      new: runs that were made by this call; seconds: that they took, each alone.
    """

    description: Description
    drawn: Array
    outcomes: tuple[Outcome | None, ...]
    new: int

    @property
    def missing(self) -> int:
        """How many runs were not made yet: shares of other workers."""
        return self.outcomes.count(None)

    @property
    def failed(self) -> list[int]:
        """Numbers of the runs without a curve."""
        return [i for i, one in enumerate(self.outcomes) if one is not None and one.failure]

    @property
    def complete(self) -> list[int]:
        """Numbers of the runs with a curve."""
        return [i for i, one in enumerate(self.outcomes) if one is not None and not one.failure]


def draw(description: Description, seed: int, count: int) -> Array:
    """Values of the runs 0 to `count` - 1, [runs, drawn], uniform on each scale; more runs leave the first as they are.

    Scrambled Sobol points (Owen 1998) fill the ranges more evenly than independent numbers do.
    """
    sampler = qmc.Sobol(len(description.drawn), scramble=True, rng=np.random.default_rng(seed))
    # The generator wants a power of two, and says so; the points are a sequence all the same.
    points = sampler.random_base2(max(0, int(np.ceil(np.log2(max(count, 1))))))[:count]
    columns = [
        parameter.from_unit_interval(points[:, i]) for i, parameter in enumerate(description.drawn)
    ]
    return np.stack(columns, axis=1)


def try_once(description: Description, folder: pathlib.Path, share: Share | None = None) -> Outcome:
    """Runs the simulation in the middle of its ranges, unless that was done; InputError with the log where it fails."""
    solver = Solver(description)
    refuse_without_effect(solver)
    store = Store(folder, description)
    with store.held_for_first(share) as (place, just_made):
        deck = solver.deck(description.middle)
        outcome = store.find(deck)
        if outcome is None or (outcome.failure and not just_made):
            outcome = _interruptible(solver.run(deck, place))
            store.keep(deck, outcome)
    if outcome.failure:
        at = ", ".join(f"{name}={value:.4g}" for name, value in deck.values.items())
        raise InputError(
            f"{description.name}: the run in the middle of the ranges has no curve: "
            f"{why_it_failed(description, outcome)} (at {at})"
        )
    return outcome


def run_campaign(
    description: Description,
    folder: pathlib.Path,
    numbers: Sequence[int],
    drawn: Array,
    *,
    processes: int,
    share: Share | None = None,
    retry: bool = False,
    progress: Progress | None = None,
) -> Campaign:
    """Makes what is missing of some runs, `processes` of them at once; each is stored when it ends.

    Args:
      folder: of the stored runs, for all campaigns of this simulator.
      numbers: which of the runs are to be made; the others are looked up.
      drawn: [runs, drawn], see `draw`.
      share: whose runs `numbers` are, where other workers make the other shares at the same time; None: nobody does.
      retry: also those that failed before.
      progress: called with (runs that are there, of those failed, all of `numbers`).

    Raises:
      InputError: the first runs all failed, the disk is full, another process runs this simulator in `folder`,
        and no other share of as many.
    """
    solver, store = Solver(description), Store(folder, description)
    with store.held(share) as place:
        decks = {i: solver.deck(drawn[i]) for i in numbers}
        stored = {i: store.find(deck) for i, deck in decks.items()}
        there = {i: one for i, one in stored.items() if one and not (retry and one.failure)}
        missing = collections.deque((i, deck) for i, deck in decks.items() if i not in there)
        new, failed = len(missing), sum(bool(one.failure) for one in there.values())

        async def one_after_the_other() -> None:
            nonlocal failed
            while missing:
                number, deck = missing.popleft()
                for _ in range(description.retries + 1):
                    outcome = await solver.run(deck, place)
                    if not outcome.failure:
                        break
                store.keep(deck, outcome)
                there[number] = outcome
                failed += bool(outcome.failure)
                if progress:
                    progress(len(there), failed, len(decks))
                if failed == len(there) == _HOPELESS:
                    ((often, _),) = collections.Counter(
                        one.failure for one in there.values()
                    ).most_common(1)
                    raise InputError(f"the first {_HOPELESS} runs all failed, most with: {often}")

        if progress:
            progress(len(there), failed, len(decks))
        _interruptible(_at_once(one_after_the_other, min(processes, new)))
    # The others only now: of several workers, the last to end sees all runs.
    outcomes = (there.get(i) or store.find(solver.deck(drawn[i])) for i in range(len(drawn)))
    return Campaign(description, drawn, tuple(outcomes), new)


async def _at_once(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """So many of the same at once; the first InputError or OSError ends all."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    # Not except*: Python 3.11.2, which Debian 12 has, makes a group of what is raised in it.
    except ExceptionGroup as errors:
        expected, others = errors.split((InputError, OSError))
        if expected is None or others is not None:
            raise
        raise expected.exceptions[0] from None


def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, ended in order by the signals that the program handles; then it handles them as ever.

    A handler that raises would do so anywhere in the loop, which swallows what its callbacks raise.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)
    handlers = {number: signal.getsignal(number) for number in _ENDS}
    handled = {number: one for number, one in handlers.items() if callable(one)}
    received: list[int] = []

    async def run() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in handled:
            loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        for one in handled:
            signal.signal(one, handled[one])
        for number in received:
            handled[signal.Signals(number)](number, None)
        raise
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


# --------------------------------------------------------------------------------------------------
# From a described simulation to a data set: runs, noisy copies of them, and where in the ranges runs failed.


# FEWEST_RUNS: with a curve, which a data set needs. COPIES: of each curve, with other noise.
FEWEST_RUNS = 10
COPIES = 50
FAILURES = "failures.csv"
# One run of ten tests, two validate.
_TEST, _VALIDATION, _OF = 1, 2, 10


@dataclasses.dataclass(frozen=True)
class FailedShare:
    """How many runs failed, of how many, in the low, middle and high third of a parameter's range, on its scale."""

    name: str
    failed: tuple[int, ...]
    made: tuple[int, ...]


def runs_folder(description: Description, data_dir: str | pathlib.Path) -> pathlib.Path:
    """Where the runs of a simulator are stored, beside its data sets."""
    return pathlib.Path(data_dir) / f"{plain_name(description.name)}.runs"


def make_runs(
    description: Description,
    data_dir: str | pathlib.Path,
    num_runs: int,
    *,
    seed: int = 0,
    processes: int = 1,
    retry: bool = False,
    progress: Progress | None = None,
    first: Callable[[Outcome], None] | None = None,
    share: Share | None = None,
) -> Campaign:
    """Makes the runs that are missing of `num_runs`, after one in the middle of the ranges, which tells a wrong deck.

    Run i has the same values, and is in the same part of data sets, however many there are.

    Args:
      data_dir: beside whose data sets the runs are stored.
      seed: of the values.
      first: called with the run in the middle, before the others begin.
      processes, retry, progress, share: see `run_campaign`.

    Raises:
      InputError: a wrong description, the run in the middle or the first runs fail, nothing can be written.
    """
    folder = runs_folder(description, data_dir)
    outcome = try_once(description, folder, share)
    if first is not None:
        first(outcome)
    campaign = run_campaign(
        description,
        folder,
        share.numbers(num_runs) if share else range(num_runs),
        draw(description, seed, num_runs),
        processes=processes,
        share=share,
        retry=retry,
        progress=progress,
    )
    if not campaign.missing:
        write_failures(folder / FAILURES, campaign)
    return campaign


def pack_runs(
    campaign: Campaign,
    data_dir: str | pathlib.Path,
    *,
    seed: int = 0,
    copies: int = COPIES,
    laboratory: Laboratory | None = None,
    num_threads: int | None = None,
) -> PackedDataset:
    """A data set of runs that are all there: noisy copies, parted by run; of ten runs one tests and two validate.

    Args:
      seed: of the parts and the noise.
      copies: of each run that trains or validates; one that tests has one.
      laboratory: what copies have beside the run's curve; None: what the description says.

    Raises:
      InputError: too few runs have a curve, copies would be equal, or nothing can be written.
    """
    if len(campaign.complete) < FEWEST_RUNS:
        raise InputError(
            f"{len(campaign.complete)} of {len(campaign.outcomes)} runs have a curve; at least {FEWEST_RUNS} are needed"
        )
    return import_dataset(
        _write_curves(runs_folder(campaign.description, data_dir), campaign, seed),
        data_dir=data_dir,
        copies=copies,
        laboratory=laboratory or campaign.description.laboratory,
        seed=seed,
        num_threads=num_threads,
    )


def parts_of(count: int, seed: int) -> list[str]:
    """The purpose of each of the first runs: one of PARTS."""
    found: list[str] = []
    for block in range(-(-count // _OF)):
        places = np.random.default_rng([seed, block]).permutation(_OF)
        found += [
            PARTS[2] if place < _TEST else PARTS[1] if place < _TEST + _VALIDATION else PARTS[0]
            for place in places
        ]
    return found[:count]


def _write_curves(folder: pathlib.Path, campaign: Campaign, seed: int) -> pathlib.Path:
    """The complete runs as a file of labelled curves (see `read_labelled`), in a folder that its content names."""
    parameters, parts = campaign.description.parameters, parts_of(len(campaign.outcomes), seed)
    complete = campaign.complete
    curves = [one.curve() for i in complete if (one := campaign.outcomes[i]) is not None]
    arrays = {
        "strain": np.stack([strain for strain, _ in curves]),
        "stress": np.stack([stress for _, stress in curves]),
        "parameters": campaign.drawn[complete, : len(parameters)],
        "names": np.array([parameter.name for parameter in parameters]),
        "units": np.array([parameter.unit for parameter in parameters]),
        "scale": np.array([parameter.scale for parameter in parameters]),
        "low": np.array([parameter.low for parameter in parameters]),
        "high": np.array([parameter.high for parameter in parameters]),
        "part": np.array([parts[i] for i in complete]),
        "run": np.array(complete),
    }
    content = hashlib.sha256()
    for array in arrays.values():
        content.update(array.tobytes())
    place = make_folder(folder / "curves" / content.hexdigest()[:8])
    path = place / f"{plain_name(campaign.description.name)}_{len(campaign.outcomes)}.npz"
    if not path.exists():
        write_arrays(path, **arrays)
    return path


def failed_shares(campaign: Campaign) -> list[FailedShare]:
    """Where in its range each parameter's runs failed."""
    made = sorted([*campaign.failed, *campaign.complete])
    failed = np.isin(made, campaign.failed)
    shares = []
    for column, parameter in enumerate(campaign.description.drawn):
        share = parameter.to_unit_interval(campaign.drawn[made, column])
        third = np.clip((3 * share).astype(int), 0, 2)
        counts = (np.bincount(third[failed], minlength=3), np.bincount(third, minlength=3))
        shares.append(FailedShare(parameter.name, *(tuple(map(int, one)) for one in counts)))
    return shares


def write_failures(path: pathlib.Path, campaign: Campaign) -> None:
    """A table of the failed runs, one a row: number, values, reason, what the program said of it."""
    names = [parameter.name for parameter in campaign.description.drawn]
    with atomic_write(path, "w") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *names, "failure", "said"])
        for number in campaign.failed:
            outcome = campaign.outcomes[number]
            assert outcome is not None
            values = [f"{value:.6g}" for value in campaign.drawn[number]]
            said = telling_line(outcome.log)
            writer.writerow(spreadsheet_row([number, *values, outcome.failure, said]))


# --------------------------------------------------------------------------------------------------
# Runs of the simulation at draws from a specimen's posterior, laid over what was measured of it.


# A zero is normally distributed; it is looked for within so many standard deviations.
_DEVIATIONS = 3.0


@dataclasses.dataclass(frozen=True)
class VerifiedRun:
    """A run at one draw, as the laboratory would have recorded it.

    Attributes:
      values: of all parameters and nuisances.
      failure: why there is no curve; empty where there is one.
      stress: at the measured strains, MPa, with the machine and the zero that fit best.
      rmse_percent: root mean square distance from the measured stress, % of its maximum.
    """

    values: dict[str, float]
    failure: str
    stress: Array | None
    rmse_percent: float | None


def verify(
    description: Description,
    folder: pathlib.Path,
    strain: Array,
    stress: Array,
    samples: Mapping[str, Array],
    *,
    processes: int = 1,
    progress: Progress | None = None,
) -> list[VerifiedRun]:
    """Runs the simulation at the samples; what these do not tell is drawn from its range, the same in every call.

    A measured curve has the machine and the zero of its laboratory in it, and a run has neither. Machines and zeroes of
    the description are fitted to each run, within its ranges.

    Args:
      folder: where runs are stored, so that none is made twice.
      strain, stress: measured, [points], - and MPa.
      samples: of the posterior, name -> values [runs] in the unit; all parameters, and nuisances where they are told.
    """
    runs = len(next(iter(samples.values())))
    shares = np.random.default_rng(0).random((runs, len(description.nuisances)))
    nuisances = {
        p.name: p.from_unit_interval(share)
        for p, share in zip(description.nuisances, shares.T, strict=True)
    }
    columns = {**nuisances, **samples}
    drawn = np.column_stack([columns[parameter.name] for parameter in description.drawn])
    campaign = run_campaign(
        description, folder, range(len(drawn)), drawn, processes=processes, progress=progress
    )
    names = [parameter.name for parameter in description.drawn]
    found = []
    for row, outcome in zip(drawn, campaign.outcomes, strict=True):
        if outcome is None:
            continue
        values = dict(zip(names, map(float, row), strict=True))
        if outcome.strain is None:
            found.append(VerifiedRun(values, outcome.failure, None, None))
            continue
        near = _as_recorded(*outcome.curve(), description.laboratory, strain, stress)
        rmse = float(np.sqrt(np.mean((near - stress) ** 2)) / np.abs(stress).max())
        found.append(VerifiedRun(values, "", near, 100 * rmse))
    return found


def _as_recorded(
    run_strain: Array, run_stress: Array, laboratory: Laboratory, strain: Array, stress: Array
) -> Array:
    """A run's stress at the measured strains with the best machine and zero, where the laboratory has these."""
    ranges: list[Sequence[float]] = [(0.0, 0.0), (0.0, 0.0)]
    if laboratory.machine_stiffness is not None:
        low, high = laboratory.machine_stiffness
        ranges[0] = (1.0 / high, 1.0 / low)
    if laboratory.strain_offset is not None:
        most = _DEVIATIONS * laboratory.strain_offset[1]
        ranges[1] = (-most, most)
    lower, upper = np.array(ranges).T
    free = np.flatnonzero(upper > lower)

    def recorded(shares: Array) -> Array:
        fitted = lower.copy()
        fitted[free] += shares * (upper - lower)[free]
        compliance, zero = fitted
        return np.interp(strain, run_strain + compliance * run_stress + zero, run_stress)

    if not len(free):
        return recorded(np.empty(0))
    fit = scipy.optimize.least_squares(
        lambda shares: recorded(shares) - stress,
        np.full(len(free), 0.5),
        bounds=(0.0, 1.0),
        diff_step=1e-3,
    )
    return recorded(fit.x)


# --------------------------------------------------------------------------------------------------
# The forward network of a simulation, learned from its runs by the loop that trains everything, and written as a law.

# FEWEST_TO_LEARN: runs from which a forward network is learned. TRAIN_FOR: its default length.
FEWEST_TO_LEARN = 50
TRAIN_FOR = "24000steps"
# Principal components until they leave this share of the curves, root mean square, and no more than so many.
_LEFT, _MOST_COMPONENTS = 1e-4, 24
_MEMBERS, _UNITS, _BATCH, _RATE = 4, 128, 64, 8e-3
# Another form is another run.
_NETWORK_FORM = (_MEMBERS, _UNITS, _BATCH, _RATE, "gelu")
# An epoch has so many steps at least, so that validation takes little.
_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A forward network and how far it is off, as shares of each run's largest stress.

    Attributes:
      law: its file and class, as --law takes them.
      runs: that trained; error: root mean square on the runs that validate; test_error: on those that test, and
        worst: the largest error of any point of these.
    """

    law: str
    network: ForwardNetwork
    runs: int
    error: float
    test_error: float
    worst: float


def emulate(
    campaign: Campaign,
    data_dir: str | pathlib.Path,
    *,
    seed: int = 0,
    train_for: str = TRAIN_FOR,
    quiet: bool = False,
) -> Emulator:
    """Trains the forward network of a simulation on its runs, and writes it as a law into `data_dir`.

    Args:
      campaign: the runs; which of them train, validate and test is what `generate --simulator` makes of them.
      seed: that the runs were drawn with; of the networks' weights too.
      train_for: a duration, as everywhere.
    """
    import keras

    from tfmat.training.run import Trainer

    description = campaign.description
    numbers = campaign.complete
    if len(numbers) < FEWEST_TO_LEARN:
        raise InputError(
            f"{len(numbers)} runs have a curve; a forward network needs {FEWEST_TO_LEARN} at least, and hundreds to be "
            "good (--num_runs)"
        )
    strain, stress = _on_grid(campaign)
    inputs = inputs_of(description.drawn, campaign.drawn[numbers])
    part = np.array(parts_of(len(campaign.outcomes), seed))[numbers]
    train, validate, test = (part == name for name in PARTS)
    mean, components, targets = _principal(stress, train)

    content = hashlib.sha256(
        inputs.tobytes() + stress.tobytes() + f"{seed} {train_for} {_NETWORK_FORM}".encode()
    )
    folder = runs_folder(description, data_dir) / "forward" / content.hexdigest()[:8]
    model = _model(inputs.shape[1], targets.shape[1], seed)
    trainer = Trainer(
        model,
        loss="mean_squared_error",
        optimizer=lambda steps, _: keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(_RATE, steps)
        ),
        workdir=str(folder),
        seed=seed,
        checkpoint_every="3000steps",
        keep_checkpoints=1,
        quiet=quiet,
    )
    features, labels = (
        array.astype(np.float32) for array in (inputs, np.tile(targets, (1, _MEMBERS)))
    )
    repeats = -(-_STEPS * _BATCH // int(train.sum()))
    trainer.fit(
        np.tile(features[train], (repeats, 1)),
        np.tile(labels[train], (repeats, 1)),
        global_batch_size=_BATCH,
        train_for=train_for,
        validation=(features[validate], labels[validate]),
    )
    network = _network(model, strain, mean, components)
    off = (network.curves(inputs) - stress) / np.abs(stress).max(axis=1, keepdims=True)
    error, test_error = (float(np.sqrt(np.mean(off[rows] ** 2))) for rows in (validate, test))
    facts = Facts(
        name=plain_name(description.name),
        title=description.title or description.name,
        source=f"{int(train.sum())} runs of {' '.join(description.command)}",
        error=error,
        peak=float(np.median(np.abs(stress).max(axis=1))),
        max_strain=description.laboratory.max_strain or (0.5 * strain[-1], float(strain[-1])),
        material=description.material,
        constants=description.constants,
    )
    # A network of more runs is another law: what was trained with this one goes on with it.
    path = pathlib.Path(data_dir) / f"{facts.name}_{len(campaign.outcomes)}.py"
    law = write_law(path, network, description.drawn, description.laboratory, facts)
    return Emulator(
        law, network, int(train.sum()), error, test_error, float(np.abs(off[test]).max())
    )


def _on_grid(campaign: Campaign) -> tuple[Array, Array]:
    """The curves on one grid of strain that all of them reach: [points], and [runs, points] in MPa."""
    runs = [one for i in campaign.complete if (one := campaign.outcomes[i]) is not None]
    end = min(float(one.strain[-1]) for one in runs if one.strain is not None)
    curves = [one.curve(end) for one in runs]
    return curves[0][0], np.stack([stress for _, stress in curves])


def _principal(stress: Array, train: Array) -> tuple[Array, Array, Array]:
    """Mean [points], components [outputs, points] in MPa, and the curves' targets [runs, outputs].

    The squared error of targets is the squared error of stresses, but for a factor, where a component is large. It
    counts somewhat more where a component is small: stress / sqrt(deviation) of a component.
    """
    mean = stress[train].mean(axis=0)
    _, sizes, directions = np.linalg.svd(stress[train] - mean, full_matrices=False)
    left = np.sqrt(np.append(np.cumsum(sizes[::-1] ** 2)[::-1], 0.0))
    enough = int(np.argmax(left <= _LEFT * np.linalg.norm(stress[train])))
    count = min(max(enough, 1), _MOST_COMPONENTS, len(sizes))
    scale = np.sqrt(sizes[:count] * sizes[0] / train.sum())
    return mean, directions[:count] * scale[:, None], (stress - mean) @ directions[:count].T / scale


def _model(inputs: int, outputs: int, seed: int) -> "keras.Model":
    """The members side by side, which get the same examples and share nothing."""
    import keras

    given = keras.Input((inputs,))
    found = []
    for member in range(_MEMBERS):
        values = given
        for layer, units in enumerate((_UNITS, _UNITS, outputs)):
            start = keras.initializers.GlorotUniform(seed=1000 * seed + 10 * member + layer)
            activation = _gelu if layer < 2 else None
            dense = keras.layers.Dense(
                units, activation, kernel_initializer=start, name=_name(member, layer)
            )
            values = dense(values)
        found.append(values)
    return keras.Model(given, keras.layers.Concatenate()(found))


def _gelu(values: Any) -> Any:
    import keras

    return keras.activations.gelu(values, approximate=True)


def _name(member: int, layer: int) -> str:
    return f"member{member}_layer{layer}"


def _network(model: "keras.Model", strain: Array, mean: Array, components: Array) -> ForwardNetwork:
    kernels, biases = (
        tuple(
            np.stack(
                [
                    np.asarray(getattr(model.get_layer(_name(member, layer)), name), np.float64)
                    for member in range(_MEMBERS)
                ]
            )
            for layer in range(3)
        )
        for name in ("kernel", "bias")
    )
    return ForwardNetwork(kernels, biases, strain, mean, components)
