"""Refusing output files that cannot be written before any work is done, so that nothing is left half-written."""

import os
import pathlib

from tfmat.errors import InputError


def check_output_file(flag: str, value: str | None) -> None:
    """Raises InputError unless a file can be made at `value`, the value of --`flag`; None is no file."""
    if value is None:
        return
    path = pathlib.Path(value)
    if path.is_dir():
        raise InputError(f"--{flag}={value} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise InputError(
            f"--{flag}={value}: there is no folder {path.parent}; make it or choose another"
        )
    if not os.access(path.parent, os.W_OK):
        raise InputError(
            f"--{flag}={value}: the folder {path.parent} cannot be written; choose another"
        )


def check_output_folder(flag: str, value: str | None) -> None:
    """Raises InputError where `value`, the value of --`flag`, cannot be a folder to write to; None is no folder."""
    if value is None:
        return
    path = pathlib.Path(value)
    while not path.exists() and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise InputError(f"--{flag}={value}: {path} is a file; give a folder")
    if not os.access(path, os.W_OK):
        raise InputError(f"--{flag}={value}: the folder {path} cannot be written; choose another")
