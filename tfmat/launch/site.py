"""What a cluster wants of every job, read from one small file that a user or an administrator writes once."""

import dataclasses
import os
import pathlib
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any

from tfmat.errors import InputError, nearest

LAUNCHERS = ("srun", "mpirun")
EXAMPLE = "docs/slurm.md has one with all keys"


@dataclasses.dataclass(frozen=True)
class Site:
    """The keys of a site file, all of them optional.

    Attributes:
      modules: loaded at the start of each job, in this order.
      setup: lines of shell, run after that.
      container: command line in front of every rank's own, say `apptainer exec --nv tfmat.sif`.
      python: the interpreter that has tfmat on the nodes; None for the one that submits.
      environment: variables of every rank.
      offline: the nodes have no network; nothing then waits for one.
      local_disk: a folder on each node's own disk, to which the data set is copied first; may hold `$TMPDIR`.
      memory: of a node, as `--mem` takes it ("16G"; "0" for all of it).
      cores_per_node, gpus_per_node: of the nodes that jobs run on, for whoever asks for GPUs and no processors.
      account, partition: where the command line gives none.
      options: further options of sbatch, say `--qos=long`.
      launcher: what starts several ranks: "srun" or "mpirun".
      mpi: the kind of MPI that srun prepares, see `srun --mpi=list`.
    """

    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    container: str | None = None
    python: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    offline: bool = False
    local_disk: str | None = None
    memory: str | None = None
    cores_per_node: int | None = None
    gpus_per_node: int | None = None
    account: str | None = None
    partition: str | None = None
    options: tuple[str, ...] = ()
    launcher: str = "srun"
    mpi: str = "pmix"


def read_site(path: str | os.PathLike | None = None) -> Site:
    """The site of a TOML file; without one, of `~/.config/tfmat/site.toml`; without that, one that wants nothing.

    Raises:
      InputError: the file is missing or no TOML, or has a key or a value that a site cannot have.
    """
    file = pathlib.Path(path) if path is not None else _default_path()
    if path is None and not file.exists():
        return Site()
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"site file {file}: {error.strerror}; {EXAMPLE}") from error
    except ValueError as error:
        raise InputError(f"site file {file} is not valid TOML ({error}); {EXAMPLE}") from error
    hints = typing.get_type_hints(Site)
    for key in content:
        if key not in hints:
            raise InputError(f"site file {file}: unknown key '{key}'{nearest(key, hints)}")
    site = Site(**{key: _value(file, key, value, hints[key]) for key, value in content.items()})
    if site.launcher not in LAUNCHERS:
        raise InputError(
            f"site file {file}: launcher is '{site.launcher}'; valid: {', '.join(LAUNCHERS)}"
        )
    if site.local_disk and set('"`\\\n') & set(site.local_disk):
        raise InputError(f"site file {file}: local_disk is '{site.local_disk}'; give a plain path")
    return site


def _default_path() -> pathlib.Path:
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return pathlib.Path(home).expanduser() / "tfmat" / "site.toml"


def _value(file: pathlib.Path, key: str, value: Any, hint: Any) -> Any:
    """The value in the type of its key."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if tuple[str, ...] in kinds and isinstance(value, list) and all(map(_is_text, value)):
        return tuple(value)
    if bool in kinds and isinstance(value, bool):
        return value
    if int in kinds and isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if str in kinds and _is_text(value):
        return value
    if hint == Mapping[str, str] and isinstance(value, dict):
        # NAME = 4 is as clear as NAME = "4".
        plain = (str, int, float)
        if all(
            name.isidentifier() and isinstance(each, plain) and not isinstance(each, bool)
            for name, each in value.items()
        ):
            return {name: str(each) for name, each in value.items()}
    wanted = {
        tuple[str, ...]: 'a list of texts, ["…", "…"]',
        bool: "true or false",
        int: "a whole number from 1",
        str: 'a text, "…"',
        Mapping[str, str]: "a table of NAME = VALUE",
    }[kinds[0]]
    raise InputError(f"site file {file}: {key} is {value!r}; give {wanted}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)
