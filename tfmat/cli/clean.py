"""lists the data sets on the disk, and deletes those that are named or that no run uses.

  tfmat clean                                      what there is: size, age, and the runs that use it
  tfmat clean hahn_tsai-600000-1a2b3c4d            deletes this one
  tfmat clean --unused --yes                       deletes all that no run in --runs_dir uses, unfinished ones too

A data set that a run uses is deleted only with --yes: without it the run cannot go on or be evaluated again, until
`tfmat train` or `tfmat generate` makes the same one again. One that is being written or trained on is never deleted,
nor anything that is not a data set of tfmat. At a terminal it asks instead of wanting --yes.
"""

import datetime
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from tfmat.cli.flags import switch, text
from tfmat.console import printable
from tfmat.errors import InputError, nearest
from tfmat.files import read_json

if TYPE_CHECKING:
    from tfmat.data.dataset import StoredDataset

    Users = dict[pathlib.Path, list[pathlib.Path]]

# Files that name a data set, the key that does, and how far up from there the run's or study's folder is.
_RECORDS = (("config.json", "data_dir", 0), ("spec.json", "dataset", 2))


FLAGS = (
    text("data_dir", "data", "folder of data sets"),
    text("runs_dir", "runs", "folder that holds the runs"),
    switch("unused", False, "delete all data sets that no run uses"),
    switch("yes", False, "delete without a question"),
)


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Lists, or deletes what the arguments name, or what is not used."""
    from tfmat.data.dataset import is_dataset, stored_datasets

    data_dir, runs_dir = pathlib.Path(flag_values.data_dir), pathlib.Path(flag_values.runs_dir)
    if is_dataset(data_dir):
        raise InputError(
            f"--data_dir={data_dir} is a data set itself; give its folder, and its name to delete it: "
            f"tfmat clean --data_dir={data_dir.parent} {data_dir.name}"
        )
    if arguments and flag_values.unused:
        raise InputError("give names of data sets or --unused, not both")
    datasets, users = stored_datasets(data_dir), _users(runs_dir)
    if not arguments and not flag_values.unused:
        if flag_values.yes:
            raise InputError("--yes deletes nothing by itself; name data sets, or add --unused")
        _show(datasets, users, data_dir, runs_dir)
        return 0
    if flag_values.unused:
        if not runs_dir.is_dir():
            raise InputError(
                f"there is no folder {runs_dir}, whose runs could use a data set; give --runs_dir, or name data sets"
            )
        chosen = [each for each in datasets if not _runs_of(each, users)]
        confirm = True
    else:
        chosen = _named(arguments, datasets, data_dir)
        confirm = any(_runs_of(each, users) for each in chosen)
    if not chosen:
        print(f"a run uses each of the data sets in {data_dir}; nothing deleted")
        return 0
    _refuse_busy(chosen, users)
    if confirm and not flag_values.yes and not _confirmed(chosen, users):
        print("nothing deleted")
        return 0
    _delete(chosen)
    return 0


def _users(runs_dir: pathlib.Path) -> "Users":
    """Folder of a data set, all links resolved -> the runs and studies anywhere in `runs_dir` that train on it."""
    found: dict[pathlib.Path, set[pathlib.Path]] = {}
    for folder, _, files in os.walk(runs_dir):
        for file, key, up in _RECORDS:
            if file not in files:
                continue
            path = pathlib.Path(folder)
            try:
                content = read_json(path / file)
            except InputError:
                continue  # not a run's
            dataset = content.get(key) if isinstance(content, dict) else None
            if isinstance(dataset, str):
                owner = path.joinpath(*[".."] * up)
                found.setdefault(pathlib.Path(dataset).resolve(), set()).add(
                    pathlib.Path(os.path.normpath(owner))
                )
    return {dataset: sorted(runs) for dataset, runs in found.items()}


def _runs_of(dataset: "StoredDataset", users: "Users") -> list[pathlib.Path]:
    return users.get(dataset.folder.resolve(), [])


def _named(
    names: Sequence[str], datasets: Sequence["StoredDataset"], data_dir: pathlib.Path
) -> list["StoredDataset"]:
    """The data sets of these names; a path to one is a name too."""
    by_name = {each.folder.name: each for each in datasets}
    chosen = {}
    for name in names:
        path = pathlib.Path(name)
        inside = path.name == name or path.parent.resolve() == data_dir.resolve()
        if not inside or path.name not in by_name:
            hint = nearest(path.name, by_name) if inside else "; --data_dir says where to look"
            raise InputError(f"{name} is no data set in {data_dir}{hint}")
        chosen[path.name] = by_name[path.name]
    return list(chosen.values())


def _refuse_busy(chosen: Sequence["StoredDataset"], users: "Users") -> None:
    from tfmat.files import is_locked

    for each in chosen:
        if is_locked(each.folder):
            raise InputError(f"another process is writing {each.folder}; wait for it, or end it")
        for run_folder in _runs_of(each, users):
            if is_locked(run_folder):
                raise InputError(
                    f"{run_folder} is training on {each.folder}; wait for it, or end it"
                )


def _confirmed(chosen: Sequence["StoredDataset"], users: "Users") -> bool:
    from tfmat.data.dataset import size_text

    total = size_text(sum(each.num_bytes for each in chosen))
    used = [path for each in chosen for path in _runs_of(each, users)]
    uses = f"; used by {_list_of(used)}" if used else ""
    what = f"{_list_of([each.folder for each in chosen])} ({total}{uses})"
    if not sys.stdin.isatty():
        raise InputError(f"this would delete {what}; add --yes to do it")
    print(f"delete {what}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _delete(chosen: Sequence["StoredDataset"]) -> None:
    from tfmat.data.dataset import delete_dataset, size_text

    for each in chosen:
        delete_dataset(each)
        print(printable(f"deleted {each.folder} ({size_text(each.num_bytes)})"))


def _show(
    datasets: Sequence["StoredDataset"],
    users: "Users",
    data_dir: pathlib.Path,
    runs_dir: pathlib.Path,
) -> None:
    from tfmat.data.dataset import size_text

    if not datasets:
        print(f"no data sets in {data_dir}")
        return
    now = datetime.datetime.now(datetime.UTC)
    rows = [("size", "age", "data set", "used by")]
    for each in datasets:
        state = "" if each.state == "complete" else f" ({each.state})"
        used = _list_of(_runs_of(each, users)) or "-"
        age = _age((now - each.written).total_seconds())
        rows.append(
            (size_text(each.num_bytes), age, printable(f"{each.folder}{state}"), printable(used))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for size, age, name, used in rows:
        print(f"{size:>{widths[0]}}  {age:>{widths[1]}}  {name:{widths[2]}}  {used}")
    unused = [each for each in datasets if not _runs_of(each, users)]
    total = size_text(sum(each.num_bytes for each in datasets))
    print(f"{len(datasets)} in all, {total}", end="")
    if unused:
        size = size_text(sum(each.num_bytes for each in unused))
        print(
            f"; no run in {runs_dir} uses {len(unused)} of them, {size}: tfmat clean --unused",
            end="",
        )
    print()


def _list_of(paths: Sequence[pathlib.Path], most: int = 3) -> str:
    shown = ", ".join(map(str, paths[:most]))
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown


def _age(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "now"
