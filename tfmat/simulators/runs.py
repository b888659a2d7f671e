"""One run of a solver: strict templates, a fresh folder, a limit of time that ends all of its processes."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping

import jinja2
import jinja2.meta
import numpy as np
from scipy.interpolate import PchipInterpolator

from tfmat.errors import InputError, nearest
from tfmat.files import write_error
from tfmat.materials.law import Array
from tfmat.simulators.description import FUNCTIONS, Description
from tfmat.simulators.processes import run_program
from tfmat.simulators.readers import FailedRunError, read_curve

# Goes up where the same run would give another curve, so that stored ones are not taken for it.
_FORM = 1
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
    """What one run is given.

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
    """What came of a run: its curve, nominal strain (-) and stress (MPa), each [points]; or why there is none.

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
        """Strain and stress, [points] each, from zero to `end`, or to that of the run; only where there is a curve.

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
        description = self.description
        values = {
            parameter.name: float(value)
            for parameter, value in zip(description.drawn, drawn, strict=True)
        } | dict(description.constants)
        names = {**values, **self._derived(values), "threads": description.threads}
        texts = {}
        for name, template in self._templates.items():
            try:
                texts[name] = template.render(names)
            except Exception as error:
                raise InputError(f"{description.folder / name}: {error}") from error
        # Of the values only what the files say counts, unless a function reads them.
        read = values if description.parse else {}
        content = json.dumps([_FORM, self._same, texts, read], sort_keys=True)
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

    def _write(self, deck: Deck, place: pathlib.Path) -> None:
        for name, text in deck.texts.items():
            (place / name).write_text(text, "utf-8")
        for name in self.description.files:
            shutil.copy2(self.description.folder / name, place / name)

    async def _execute(self, place: pathlib.Path) -> str:
        """Runs the command; why it failed, or nothing."""
        description = self.description
        threads = str(description.threads)
        with (place / LOG).open("wb") as log:
            status = await run_program(
                *self._command,
                time_limit=description.time_limit,
                cwd=place,
                env={**os.environ, "OMP_NUM_THREADS": threads, **description.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if status is None:
            return f"not finished after {description.time_limit:g} s"
        if status:
            if status in _TOLD_TO_END:
                # Who ends a job tells all of its processes. Then this one is cancelled here, and nothing is kept.
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
        middle = {
            parameter.name: float(parameter.from_unit_interval(0.5))
            for parameter in description.drawn
        } | dict(description.constants)
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
        """What all runs share and decides their curves."""
        description = self.description
        files = {
            name: hashlib.sha256((description.folder / name).read_bytes()).hexdigest()
            for name in description.files
        }
        if description.parse:
            content = (description.folder / FUNCTIONS).read_bytes()
            files[FUNCTIONS] = hashlib.sha256(content).hexdigest()
        curve = description.curve
        reading = {name: getattr(curve, name) for name in curve.__struct_fields__}
        return {
            "command": description.command,
            "files": files,
            "environment": dict(description.environment),
            "version": self._version(),
            "curve": reading,
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
