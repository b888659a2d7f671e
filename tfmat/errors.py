"""The few exceptions a caller can act on; each carries the exit status that the command line returns for it."""

import difflib
from collections.abc import Iterable


class TfmatError(Exception):
    """Base of every error that is not a defect of tfmat. Its message is one line: what is wrong, what to do.

    Attributes:
      exit_status: of the command.
      said_elsewhere: all workers of a run raise it, and another one says it.
    """

    exit_status = 1
    said_elsewhere = False


class InputError(TfmatError, ValueError):
    """Something that the user gave cannot be used: a flag, a config, a file, a folder."""

    exit_status = 2


class DivergedError(TfmatError):
    """The loss became NaN or infinite."""

    exit_status = 3


class WorkerLostError(TfmatError):
    """A process of a parallel run ended before the others."""

    exit_status = 4


class Interrupted(TfmatError):
    """A signal asked the run to stop; its state is saved, and the same command goes on."""

    exit_status = 75


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"` for the valid name most like `name`, or all valid names if none is like it."""
    valid = list(valid)
    # A dotted name without its section is meant more surely than one that is spelled alike.
    close = [other for other in valid if other.endswith(f".{name}")]
    close = close or difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; valid: {', '.join(sorted(valid))}" if valid else ""
