"""The laws that tfmat ships, and those in a user's own file: found by name, and in one line what is wrong with one."""

import contextlib
import functools
import hashlib
import importlib.util
import math
import os
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Mapping

from tfmat.console import log
from tfmat.errors import InputError, nearest
from tfmat.materials.cyclic import (
    ExponentialShear,
    HahnTsai,
    LadevezeShear,
    RambergOsgoodShear,
    TanhShear,
    VoceChaboche,
    VoceChaboche1,
    VoceChaboche3,
)
from tfmat.materials.law import HistoryLaw, Law, Parameter, Scale
from tfmat.materials.metals import (
    ElasticPlasticLaw,
    HockettSherby,
    Hognestad,
    Hollomon,
    JohnsonCook,
    Ludwik,
    RambergOsgood,
    Swift,
    SwiftVoce,
    Voce,
)
from tfmat.materials.rubber import (
    ArrudaBoyce,
    MooneyRivlin,
    NeoHooke,
    Ogden1,
    Ogden2,
    Ogden3,
    Prony,
    Yeoh,
)
from tfmat.materials.viscous import Norton, Perzyna

GUIDE = "docs/adding_a_law.md shows a complete one"

# Resolved path -> (digest of the file, module): a file is run once, and again only when it has changed.
_modules: dict[pathlib.Path, tuple[str, types.ModuleType]] = {}
# _MEASURES: what a law's strain and stress may be.
_MEASURES = {
    "strain": ("true", "engineering", "engineering shear", "nominal"),
    "stress": ("true", "engineering", "shear", "nominal"),
}
# SHA-256 of the files that `trust` was told of in this process -> where each is.
_named: dict[str, pathlib.Path] = {}
DEFAULT_LAW = "hahn_tsai"
LAWS: dict[str, type[Law]] = {
    law.name: law
    for law in (
        HahnTsai, TanhShear, ExponentialShear, RambergOsgood, Voce, Swift, HockettSherby, SwiftVoce, Ludwik, Hollomon,
        Hognestad,
        VoceChaboche1, VoceChaboche, VoceChaboche3, RambergOsgoodShear, LadevezeShear,
        NeoHooke, MooneyRivlin, Yeoh, ArrudaBoyce, Ogden1, Ogden2, Ogden3, JohnsonCook,
        Perzyna, Norton, Prony,
    )
}  # fmt: skip
# Laws that one curve of rising strain identifies.
MONOTONIC_LAWS = {name: law for name, law in LAWS.items() if law.tests == ("monotonic",)}


def is_file(spec: str) -> bool:
    """Whether `spec` means a file (`path/to/file.py:ClassName`) and not a registered name."""
    return ":" in spec or spec.endswith(".py")


def trust(file_name: str) -> None:
    """Remembers a file with its present content as one that this user has named, here and in later processes.

    A run or a data set may come from anybody, and what it names must not run because of that alone.

    Raises:
      InputError: there is no such file.
    """
    digest = hashlib.sha256(_read(file_name, "law")).hexdigest()
    is_known = digest in _trusted()
    _named[digest] = pathlib.Path(file_name).resolve()
    if is_known:
        return
    with contextlib.suppress(
        OSError, RuntimeError
    ):  # without a home folder it holds for this process
        store = _trusted_file()
        store.parent.mkdir(parents=True, exist_ok=True)
        with store.open("a", encoding="ascii") as file:
            file.write(f"{digest}\n")


def stored_spec(
    spec: str, digest: str | None, what: str, folder: str | os.PathLike | None = None
) -> str:
    """The law or test that a stored run or data set names, with the place where its file is now.

    The file is looked for in the current folder, among those that the user named in this process, and from `folder`
    upwards.

    Args:
      spec: a registered name, which stays, or `path/to/file.py:ClassName`.
      digest: SHA-256 of the file, as it was stored; None in what was stored before digests were.
      what: it is called in messages: `law` or `test`.
      folder: of the run or data set.

    Raises:
      InputError: there is no such file, or its user has not named it, or it changed since.
    """
    if not is_file(spec):
        return spec
    file_name, _, class_name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    here = pathlib.Path(file_name)
    places = [
        here,
        *(path for known, path in _named.items() if known == digest or path.name == here.name),
    ]
    if folder is not None:
        home = pathlib.Path(folder).resolve()
        places += [parent / here for parent in (home, *home.parents)]
    there = [(place, _digest_at(place)) for place in places if place.is_file()]
    if not there:
        above = "" if folder is None else f", nor in {folder} or a folder above it"
        raise InputError(
            f"there is no {what} file {file_name} in the current folder{above}; "
            f"say where it is: --trust=path/to/{here.name}"
        )
    place, now = next((each for each in there if each[1] == digest), there[0])
    if now not in _trusted():
        raise InputError(
            f"the {what} file {place} is named by what is stored and not by you, or it has changed since you named "
            f"it; read it, and if it may run as you, add --trust={place}"
        )
    if digest and now != digest:
        _tell_change(
            f"warning: the {what} file {place} has changed since {folder or 'this'} was made"
        )
    return spec if place == here else f"{place}:{class_name}"


@functools.cache
def _tell_change(line: str) -> None:
    """Once, however often the run is read."""
    log(line)


def _digest_at(path: pathlib.Path) -> str | None:
    """SHA-256 of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _trusted() -> set[str]:
    """SHA-256 of every file that `trust` remembers."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        return set(_named).union(_trusted_file().read_text("ascii").split())
    return set(_named)


def _trusted_file() -> pathlib.Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return pathlib.Path(home).expanduser() / "tfmat" / "trusted_files"


def user_class(spec: str, base: type, what: str, flag: str, guide: str) -> type:
    """The class that `path/to/file.py:ClassName` names; raises InputError where there is no such class.

    Relative paths are looked up in the current folder.

    Args:
      base: what the class must be a subclass of.
      what: it is called in messages: `law` or `test`.
      flag: that `spec` was given with.
      guide: where a complete one is shown.
    """
    file_name, _, class_name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    module = _load(file_name, what)
    classes = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
    ]
    if not class_name:
        example = f"{flag}={file_name}:{classes[0] if classes else f'My{what.capitalize()}'}"
        raise InputError(f"{what} '{spec}' names a file but no class; write {example}")
    found = getattr(module, class_name, None)
    home = f"{base.__module__.rpartition('.')[0] if what == 'law' else base.__module__}.{base.__name__}"
    if found is None:
        hint = nearest(class_name, classes) or f"; it defines no subclass of {home}, {guide}"
        raise InputError(f"{file_name} has no class '{class_name}'{hint}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(f"{class_name} in {file_name} is not a subclass of {home}; {guide}")
    return found


def user_law_class(spec: str) -> type[Law]:
    """The law that `path/to/file.py:ClassName` names; InputError where there is none, or it is not whole."""
    found = user_class(spec, Law, "law", "--law", GUIDE)
    check_definition(found, spec)
    return found


def file_digest(spec: str) -> str:
    """SHA-256 of the file that `spec` names: data simulated with another version of a law or test are other data."""
    return hashlib.sha256(_read(spec.rpartition(":")[0], "law")).hexdigest()


def check_definition(law: type[Law], spec: str) -> None:
    """Raises InputError unless the class attributes and methods that `Law` asks for are there and make sense."""
    missing = [
        name
        for name in (
            "name",
            "title",
            "formula",
            "source",
            "parameters",
            "strain_measure",
            "stress_measure",
            *(() if issubclass(law, HistoryLaw) else ("max_strain",)),
        )
        if not hasattr(law, name)
    ]
    if issubclass(law, HistoryLaw) and law.tests == Law.tests:
        missing.append("tests (the programmes of its records)")
    missing += [f"{name}()" for name in sorted(getattr(law, "__abstractmethods__", ()))]
    if missing:
        raise InputError(f"law {spec} does not define {', '.join(missing)}; {GUIDE}")
    if law.name in LAWS and law is not LAWS[law.name]:
        raise InputError(
            f"law {spec}: its name is '{law.name}', which is a law that comes with tfmat; give it another name"
        )
    if not (isinstance(law.name, str) and re.fullmatch(r"[A-Za-z0-9_-]+", law.name)):
        raise InputError(
            f"law {spec}: name is {law.name!r}; give letters, digits, _ and -, since folders carry it"
        )
    for kind, measure in _MEASURES.items():
        said = getattr(law, f"{kind}_measure")
        if said not in measure:
            raise InputError(
                f"law {spec}: {kind}_measure is {said!r}; give one of {', '.join(map(repr, measure))}"
            )
    parameters = law.parameters
    if not (
        isinstance(parameters, tuple)
        and parameters
        and all(isinstance(one, Parameter) for one in parameters)
    ):
        raise InputError(
            f"law {spec}: parameters must be a tuple of Parameter(name, unit, low, high); {GUIDE}"
        )
    names = [parameter.name for parameter in parameters]
    if len(set(names)) < len(names):
        raise InputError(f"law {spec}: two parameters have the same name ({', '.join(names)})")
    for parameter in parameters:
        _check_parameter(parameter, spec)
    if issubclass(law, ElasticPlasticLaw) and parameters[0].unit != "MPa":
        raise InputError(
            f"law {spec}: its first parameter, {parameters[0].name}, has the unit {parameters[0].unit}; "
            "give Young's modulus and its range in MPa"
        )
    if hasattr(law, "max_strain"):
        _check_pair(law.max_strain, f"law {spec}: max_strain", above=0.0)
    if law.max_strain_scale not in ("linear", "log"):
        raise InputError(
            f"law {spec}: max_strain_scale is {law.max_strain_scale!r}; give 'linear' or 'log'"
        )
    if law.strength_mpa is not None:
        _check_pair(law.strength_mpa, f"law {spec}: strength_mpa", above=0.0)


def _check_parameter(parameter: Parameter, spec: str) -> None:
    label = f"law {spec}: parameter {parameter.name}"
    if not (
        isinstance(parameter.name, str)
        and parameter.name.isidentifier()
        and parameter.name.isascii()
    ):
        raise InputError(
            f"{label} needs a name of ASCII letters, digits and _, as in --config.ranges.NAME"
        )
    if parameter.scale not in ("linear", "log"):
        raise InputError(f"{label} has scale '{parameter.scale}'; give 'linear' or 'log'")
    _check_pair(
        (parameter.low, parameter.high),
        f"{label}: range",
        above=0.0 if parameter.scale == "log" else -math.inf,
        equal=False,
    )


def _check_pair(pair: object, label: str, above: float, equal: bool = True) -> None:
    try:
        low, high = (float(value) for value in pair)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InputError(f"{label} is {pair!r}; give two numbers (low, high)") from None
    if not (above < low <= high < math.inf and (equal or low < high)):
        floor = "" if above == -math.inf else f"{above:g} < "
        raise InputError(
            f"{label} is {low:g} to {high:g}; give {floor}low {'<=' if equal else '<'} high"
        )


def _read(file_name: str, what: str) -> bytes:
    try:
        return pathlib.Path(file_name).read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {what} file {file_name}: {error.strerror}; "
            "give path/to/file.py:ClassName, relative to the current folder"
        ) from error


def _load(file_name: str, what: str) -> types.ModuleType:
    """Runs the file as a module of its own; raises InputError with its error and line."""
    content = _read(file_name, what)
    digest = hashlib.sha256(content).hexdigest()
    path = pathlib.Path(file_name).resolve()
    known = _modules.get(path)
    if known is not None and known[0] == digest:
        return known[1]
    trust(file_name)
    name = f"tfmat_user_law_{digest[:16]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up here
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"cannot import {file_name}: {_one_line(error, str(path))}") from error
    _modules[path] = (digest, module)
    return module


def _one_line(error: BaseException, path: str) -> str:
    """Type, first line of the message, and the line in the user's file that it came from."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if isinstance(error, SyntaxError):
        return text  # holds the line already
    numbers = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path
    ]
    return f"{text} (line {numbers[-1]})" if numbers else text


def users_error(error: BaseException) -> InputError | None:
    """An error within a law or test file of the user's, with its line there; None for any other."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if pathlib.Path(frame.filename) in _modules:
            return InputError(f"{frame.filename}: {_one_line(error, frame.filename)}")
    return None


def law_class(spec: str) -> type[Law]:
    """The class of a registered name (`voce`) or of `path/to/file.py:ClassName`; InputError if there is none."""
    several = spec.split(",")
    if len(several) > 1 and any(name in LAWS for name in several):
        raise InputError(
            f"'{spec}' names {len(several)} laws; give one: "
            "`tfmat identify` without --law ranks all for the kind of test"
        )
    if is_file(spec):
        return user_law_class(spec)
    if spec not in LAWS:
        raise InputError(
            f"there is no law '{spec}'{nearest(spec, LAWS)} "
            "(`tfmat laws` lists them; path/to/file.py:ClassName is one of your own)"
        )
    return LAWS[spec]


def find_law(
    spec: str,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    fixed: Mapping[str, float] | None = None,
    scales: Mapping[str, Scale] | None = None,
) -> Law:
    """The law that `spec` names, with some ranges or scales replaced and parameters fixed (see `Law.__init__`).

    Examples:
      find_law("voce", ranges={"Q": (100, 800)}, fixed={"E": 193e3}).identified  # sigma0, Q, b
    """
    return law_class(spec)(ranges=ranges, fixed=fixed, scales=scales)
