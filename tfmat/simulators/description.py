"""A specimen's simulation as a user describes it: a folder with `simulator.toml`, templates, and perhaps Python."""

import dataclasses
import importlib.util
import json
import math
import pathlib
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from tfmat.curves.laboratory import Laboratory
from tfmat.errors import InputError, nearest
from tfmat.files import what_is_invalid
from tfmat.materials import find_law
from tfmat.materials.parameter import Parameter, Scale

DESCRIPTION, FUNCTIONS = "simulator.toml", "simulator.py"
# What a template may use beside the parameters: the number of the run's processors.
RESERVED = ("threads",)

Values = Mapping[str, float]
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
      file: in the run's folder.
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


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of `simulator.toml`."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    templates: tuple[str, ...]
    parameters: dict[str, Drawn]
    curve: Curve
    title: str = ""
    material: str | None = None
    nuisances: dict[str, Drawn] = {}
    constants: dict[str, float] = {}
    files: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    version: tuple[str, ...] = ()
    finished: str = ""
    time_limit: Positive = 600.0
    threads: Annotated[int, msgspec.Meta(ge=1)] = 1
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    laboratory: dict[str, float | tuple[float, float]] = {}


@dataclasses.dataclass(frozen=True)
class Description:
    """What a folder says about its simulation.

    Attributes:
      folder: of the description; its name is the simulator's.
      parameters: what networks learn to tell; nuisances: drawn too, and told by nobody.
      constants: further names that templates may use.
      command: a list of arguments, which no shell sees; its first is looked up in the folder, then as a program.
      templates: files of the folder that hold names in double braces; files: copied as they are.
      environment: variables that runs have beside those of tfmat; `OMP_NUM_THREADS` is `threads` unless it is given.
      version: a command whose output says which solver it is; part of what makes two runs the same.
      finished: a text that the program prints at its end; without it a run has failed.
      time_limit: seconds; threads: processors of one run; retries: of a run that failed.
      derive: values of a run -> further names for its templates; parse: (folder of a run, its values) ->
        (displacement in mm, force in N) of the model; None where the user gave no such function.
      material: the law whose parameters are drawn, or are constants, by their names; None where there is none.
      laboratory: what copies of a run's curve have beside it.
    """

    folder: pathlib.Path
    parameters: tuple[Parameter, ...]
    nuisances: tuple[Parameter, ...]
    constants: Mapping[str, float]
    command: tuple[str, ...]
    templates: tuple[str, ...]
    files: tuple[str, ...]
    environment: Mapping[str, str]
    version: tuple[str, ...]
    finished: str
    time_limit: float
    threads: int
    retries: int
    curve: Curve
    title: str
    material: str | None
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
    fields = {
        name: getattr(content, name)
        for name in content.__struct_fields__
        if name not in ("parameters", "nuisances", "laboratory")
    }
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
        **fields,
    )
    _check(path, description)
    return description


def _complaint(error: msgspec.ValidationError, told: Mapping[str, Any]) -> str:
    """What msgspec complains of, in the words of the file."""
    key, what = what_is_invalid(error, told, _Content)
    section = f"{key}: " if key else ""
    if (missing := re.search(r"missing required field `(\w+)`", what)) is not None:
        return f"{section}{missing[1]} is missing; docs/finite_elements.md says what it is"
    if (unknown := re.search(r"unknown field `(\w+)`", what)) is not None:
        first = key.split(".")[0]
        kind = {"curve": Curve, "parameters": Drawn, "nuisances": Drawn}.get(first, _Content)
        return f"{section}there is no key {unknown[1]}{nearest(unknown[1], kind.__struct_fields__)}"
    if key in ("command", "version", "templates", "files"):
        example = (
            ("ccx", "bar")
            if key == "command"
            else ("ccx", "-v")
            if key == "version"
            else ("bar.inp",)
        )
        return f"{section}{what}; write a list, {json.dumps(example)}"
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
