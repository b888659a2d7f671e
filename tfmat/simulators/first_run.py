"""What is told of a description by its first run: values without effect, and why the run failed."""

import dataclasses
import re

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.law import Array
from tfmat.simulators.description import Description
from tfmat.simulators.readers import named_error, telling_line
from tfmat.simulators.runs import Outcome, Solver

# By the beginning of a failure, what to do about it; those of the program, then those of its curve.
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
    middle = np.array([parameter.from_unit_interval(0.5) for parameter in description.drawn])
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
    """What a run is given without one of the constants; None where it cannot be made then."""
    description = solver.description
    others = {one: value for one, value in description.constants.items() if one != name}
    fewer = dataclasses.replace(description, constants=others, version=())
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
