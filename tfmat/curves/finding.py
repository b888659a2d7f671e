"""Which files are meant by what a user names: files, folders and patterns."""

import glob
import os
import pathlib
from collections.abc import Sequence

from tfmat.errors import InputError

# What is taken for a curve inside a folder.
CURVE_FILES = (".csv", ".tsv", ".txt", ".dat", ".asc", ".xlsx", ".xlsm")


def find_files(arguments: Sequence[str]) -> list[str]:
    """The files that the arguments mean, in order: a file itself, a folder's curves, or what a pattern matches.

    Raises:
      InputError: a folder without curves, or a pattern that matches nothing.
    """
    found: list[str] = []
    for argument in arguments:
        if os.path.isdir(argument):
            files = sorted(
                str(path)
                for path in pathlib.Path(argument).rglob("*")
                if path.is_file()
                and path.suffix.lower() in CURVE_FILES
                and not path.name.startswith((".", "~$"))
            )
            if not files:
                raise InputError(
                    f"folder {argument} holds no curves (files that end in {', '.join(CURVE_FILES)})"
                )
            found += files
        elif not os.path.exists(argument) and glob.has_magic(argument):
            files = sorted(
                path for path in glob.glob(argument, recursive=True) if os.path.isfile(path)
            )
            if not files:
                raise InputError(f"no file matches '{argument}'")
            found += files
        else:
            found.append(argument)
    # A file that two arguments mean is read once.
    return list(dict.fromkeys(found))
