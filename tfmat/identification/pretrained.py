"""The networks that come with tfmat, and which network answers when nobody names one. No TensorFlow."""

import os
import pathlib

from tfmat.errors import InputError
from tfmat.identification.sidecar import read_sidecar
from tfmat.materials.registry import DEFAULT_LAW, law_class

DEFAULT_WORKDIR = "runs/quickstart"
_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "pretrained"


def pretrained_laws() -> list[str]:
    """Laws that a network comes with."""
    return sorted(file.parent.name for file in _FOLDER.glob("*/model.keras"))


def is_pretrained(folder: pathlib.Path) -> bool:
    """Whether this is the folder of a network that came with tfmat."""
    return folder.parent == _FOLDER


def find_network(workdir: str | os.PathLike | None, law: str | None = None) -> pathlib.Path | None:
    """The folder of the network that answers; None where there is none for the law, so that least squares answers.

    Args:
      workdir: a run's folder. None: runs/quickstart, where that holds a network of the law that is asked for;
        otherwise the network for the law that comes with tfmat.
      law: of the network, by name or `path/to/file.py:ClassName`; None: any, hahn_tsai of those that come with tfmat.

    Raises:
      InputError: no network in `workdir`, or one of another law.
    """
    name = None if law is None else law_class(law).name
    if workdir is not None:
        folder = pathlib.Path(workdir)
        found = _law_of(folder)
        if name not in (None, found):
            raise InputError(
                f"the network in {workdir} is of law {found}, not {name}; name another run's folder (workdir)"
            )
        return folder
    folder = pathlib.Path(DEFAULT_WORKDIR)
    if (folder / "model.keras").is_file() and name in (None, _law_of(folder)):
        return folder
    name = name or DEFAULT_LAW
    return _FOLDER / name if name in pretrained_laws() else None


def _law_of(folder: pathlib.Path) -> str | None:
    law = read_sidecar(folder).law
    return law.name if law else None
