"""Flags as data, those that several commands share, and what those say: files that are refused early, a SLURM job."""

import dataclasses
import functools
import math
import operator
import os
import pathlib
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from absl import flags
from absl.flags import FlagValues

from tfmat.errors import InputError
from tfmat.files import check_json, make_folder, read_json, write_json, write_text

if TYPE_CHECKING:
    from tfmat.config import Config
    from tfmat.launch.slurm import Site, SlurmJob

_PREFIX = "--config."


@dataclasses.dataclass(frozen=True)
class Flag:
    """A line of a command's table; `define` makes absl's flag of it."""

    name: str
    define: Callable[[FlagValues], object]


def text(name: str, default: str | None, meaning: str) -> Flag:
    """`--name=TEXT`."""
    return Flag(name, lambda to: flags.DEFINE_string(name, default, meaning, to))


def whole(
    name: str, default: int | None, meaning: str, least: int | None = None, most: int | None = None
) -> Flag:
    """`--name=NUMBER`, a whole one from `least` to `most`; the help tells `least` where it is more than 1."""
    told = f"{meaning}; at least {least}" if least is not None and least > 1 else meaning
    return Flag(
        name, lambda to: flags.DEFINE_integer(name, default, told, least, most, flag_values=to)
    )


def number(name: str, default: float | None, meaning: str, least: float | None = None) -> Flag:
    """`--name=NUMBER` of at least `least`."""
    return Flag(name, lambda to: flags.DEFINE_float(name, default, meaning, least, flag_values=to))


def switch(name: str, default: bool, meaning: str) -> Flag:
    """`--name` or `--noname`."""
    return Flag(name, lambda to: flags.DEFINE_bool(name, default, meaning, to))


def choice(name: str, choices: Sequence[str], meaning: str) -> Flag:
    """One of `choices`, by default the first."""
    return Flag(name, lambda to: flags.DEFINE_enum(name, choices[0], choices, meaning, to))


def listed(name: str, default: Sequence[str], meaning: str) -> Flag:
    """`--name=ONE,TWO`."""
    return Flag(name, lambda to: flags.DEFINE_list(name, list(default), meaning, to))


def repeated(name: str, meaning: str) -> Flag:
    """A text that may be given several times."""
    return Flag(name, lambda to: flags.DEFINE_multi_string(name, [], meaning, to))


def alias(name: str, other: str) -> Flag:
    """An older name of a flag that stands before it in the table."""
    return Flag(name, lambda to: flags.DEFINE_alias(name, other, to))


@dataclasses.dataclass(frozen=True)
class Command:
    """A table of flags and a function.

    Args:
      run: takes the flags and the other arguments, returns the exit status or None for 0; its docstring is the help.
      flags: the table, in groups; `tfmat COMMAND --help` shows titles and flags in this order.
      no_argument: for a command without arguments: what follows the refusal of one; {} in it becomes the argument.
      shows_config: whether the help of a command with --config shows the file's keys, for which the file is loaded.
    """

    run: Callable[[FlagValues, list[str]], int | None]
    flags: Mapping[str, Sequence[Flag]]
    no_argument: str | None = None
    shows_config: bool = True

    def define(self) -> FlagValues:
        """The flags with their defaults."""
        values = FlagValues()
        for group in self.flags.values():
            for flag in group:
                flag.define(values)
        return values

    def about(self) -> str:
        """The help before the flags."""
        first, _, rest = (self.run.__doc__ or "").partition("\n")
        return f"{first}\n{textwrap.dedent(rest)}".strip()

    def meanings(self, values: FlagValues) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Each title with (--flag, meaning and default) of its flags; without those that are made for the program."""
        for title, group in self.flags.items():
            rows = ((flag.name, _meaning(values[flag.name])) for flag in group)
            yield title, [(f"--{name}", meaning) for name, meaning in rows if meaning]


def command(
    groups: Mapping[str, Sequence[Flag]],
    no_argument: str | None = None,
    shows_config: bool = True,
) -> Callable[[Callable[[FlagValues, list[str]], int | None]], Command]:
    """Makes a command of the function below it.

    A command with the folder of a run, which may be a stranger's, has --trust, too.
    """
    table = {
        title: (*group, *(TRUST for flag in group if flag.name == "workdir"))
        for title, group in groups.items()
    }
    return lambda run: Command(run, table, no_argument, shows_config)


def _meaning(flag: flags.Flag) -> str:
    """A flag's meaning, with its default in brackets; empty where it has no help."""
    # absl adds a sentence of its own for repeated flags, on a line of its own.
    said = flag.help.partition(";\n")[0]
    if said.startswith("(no help"):
        return ""
    default: object = flag.default
    if default in (None, [], "", False):
        return said
    shown = ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    return f"{said} [{shown}]"


TRUST = repeated(
    "trust", "file of a law or test that a stored run or data set may run; may be repeated"
)
DATA_DIR = text("data_dir", "data", "folder of data sets, or one data set")
_CONFIG = (
    "config file, your own or, in any folder, one that comes with tfmat (configs/NAME.py); "
    "--config.KEY=VALUE changes a key"
)


def config_flags(default: str, meaning: str = _CONFIG) -> tuple[Flag, Flag]:
    """`--config`, and what `rewrite` turns `--config.KEY=VALUE` into.

    ml_collections' own flags read sys.argv and know only the keys that a file declares. Here `ranges.NAME` and
    `fixed.NAME` depend on the law, and an unknown key is to be answered with the nearest valid one.
    """
    return text("config", default, meaning), repeated("config_override", "")


def rewrite(arguments: list[str]) -> list[str]:
    """`--config.KEY=VALUE` and `--config.KEY VALUE` as `--config_override=KEY=VALUE`, which absl can parse."""
    rewritten, rest = [], list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith(_PREFIX):
            if "=" not in argument:
                if not rest or rest[0].startswith("--"):
                    raise InputError(f"{argument} has no value; write {argument}=VALUE")
                argument += f"={rest.pop(0)}"
            argument = f"--config_override={argument.removeprefix(_PREFIX)}"
        rewritten.append(argument)
    return rewritten


def overrides(values: FlagValues) -> list[tuple[str, str]]:
    """(key, text) of each `--config.KEY=TEXT`."""
    return [override.partition("=")[::2] for override in values.config_override]


def read_config(values: FlagValues) -> "Config":
    """The config file with `--law`, where the command has that flag, and the command line's overrides; checked."""
    from tfmat.config import apply_override, check_config, load_config

    config = load_config(values.config)
    law = values.law if "law" in values else None
    for key, value in [*([] if law is None else [("law", law)]), *overrides(values)]:
        apply_override(config, key, value)
    return check_config(config)


def config_help(values: FlagValues) -> str:
    """The keys of a config, one a line, with meaning and the value that a run with these flags would have."""
    from tfmat.config import OPTIONS

    config = read_config(values)
    lines = ["", f"config keys (--config.KEY=VALUE) [as in {values.config}]:"]
    for option in OPTIONS.values():
        value = functools.reduce(operator.getitem, option.name.split("."), config)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        shown = shown.lower() if isinstance(value, bool | None) else shown
        choices = f" ({', '.join(option.choices)})" if option.choices else ""
        lines.append(f"  {option.name}: {option.meaning}{choices} [{shown}]")
    lines.append("  ranges.NAME: LOW,HIGH, range of a law's parameter (see `tfmat laws`)")
    lines.append(
        "  fixed.NAME: value of a law's parameter that is known and not identified, e.g. fixed.E=193000"
    )
    lines.append(
        "  test_ranges.SETTING: LOW,HIGH, range of a setting of the tests (see `tfmat laws --tests`)"
    )
    return "\n".join(lines)


def output_folder(values: FlagValues, prefix: str = "") -> str:
    """`--workdir`, by default `runs/` and the config file's name behind `prefix`; InputError where it cannot be one."""
    folder = values.workdir or f"runs/{prefix}{pathlib.Path(values.config).stem}"
    check_output_folder("workdir", folder)
    return str(folder)


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


def given(flag_values: FlagValues, *names: str) -> dict[str, Any]:
    """The values of flags, for arguments of the same names."""
    return {name: flag_values[name].value for name in names}


def given_to(kind: Any, flag_values: FlagValues, *others: str) -> dict[str, Any]:
    """The values of the flags that have the names of a dataclass's fields, but for `others`."""
    names = (field.name for field in dataclasses.fields(kind))
    return given(flag_values, *(name for name in names if name not in others))


def refuse(names: Iterable[str], flag_values: FlagValues, why: str) -> None:
    """Raises InputError where one of these flags is given; `why` follows its name, which {} in it becomes."""
    for name in names:
        if flag_values[name].present:
            raise InputError(f"--{name}{why.format(name)}")


def refuse_but(taken: Collection[str], flag_values: FlagValues, why: str) -> None:
    """Raises InputError where a flag is given that is not among those `taken`; `why` says what takes no others."""
    for name in flag_values:
        if name not in taken and flag_values[name].present:
            shown = "config.KEY" if name == "config_override" else name
            raise InputError(f"{why}; leave out --{shown}")


def known_parameters(texts: list[str]) -> dict[str, float]:
    """`["E=193000", "b=12"]` -> values; InputError for anything else."""
    known: dict[str, float] = {}
    for pair in ",".join(texts).split(",") if texts else []:
        name, equals, value = pair.partition("=")
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not equals or not name.strip() or not math.isfinite(found):
            raise InputError(
                f"--fix={pair} is not understood; write a name and a number, --fix=E=193000"
            )
        known[name.strip()] = found
    return known


# PAGE_FLAGS: of a command that serves a page.
PAGE_FLAGS = (
    whole("port", 0, "port of the page on this machine; 0: a free one", 0, 65535),
    switch("browser", True, "open the page in the browser"),
)


# --------------------------------------------------------------------------------------------------
# `--launcher=slurm`: the flags, the job that they describe, and handing it to SLURM.

_JOB_FILE = "job.json"
JOB = (
    text(
        "time_limit", None,
        "of the job: minutes (90), hours (1:30:00) or days (2-12); shortly before it the job saves and goes into the "
        "queue again",
    ),
    whole("nodes", None, "number of nodes [as many as the GPUs fill, or SLURM's choice]", 1),
    whole("ranks", None, "number of processes [with backends of several processes one for each GPU, else 1]", 1),
    whole("cpus_per_rank", None, "processors of each process [with GPUs, their share of the node's]", 1),
    whole("gpus", None, "GPUs of the whole job, taken node by node", 0),
    text("account", None, "account that pays for the job"),
    text("partition", None, "partition (queue) of the cluster"),
    switch("exclusive", False, "share no node"),
    repeated("sbatch", "KEY=VALUE: a further option of sbatch, such as qos=long or mail-type=END; may be repeated"),
    text("site", None, "file on what a cluster wants of every job (docs/slurm.md) [~/.config/tfmat/site.toml]"),
    switch("dry_run", False, "print the job instead of submitting it"),
)  # fmt: skip
_JOB_FLAGS = tuple(flag.name for flag in JOB)
# Flags that a `SlurmJob` takes as they are.
_OF_JOB = ("nodes", "cpus_per_rank", "account", "partition", "time_limit", "exclusive")
LAUNCHER_FLAGS = ("launcher", *_JOB_FLAGS)
LAUNCHER = (
    choice("launcher", ["local", "slurm"], "where it runs: in this process, or as a job of a SLURM cluster"),
    *JOB,
)  # fmt: skip


def wants_slurm(flag_values: FlagValues) -> bool:
    """Whether `--launcher=slurm` was given; InputError where a flag of a job was given without it."""
    if flag_values.launcher == "slurm":
        return True
    refuse(_JOB_FLAGS, flag_values, " describes a SLURM job; add --launcher=slurm")
    return False


def number_of_ranks(flag_values: FlagValues, backend: str) -> int:
    """`--ranks`, or one a GPU where the backend has a process for each."""
    if flag_values.ranks is not None:
        return int(flag_values.ranks)
    return 1 if backend in ("single", "dtensor") else max(1, flag_values.gpus or 0)


def job_of_flags(
    flag_values: FlagValues,
    *,
    name: str,
    folder: pathlib.Path,
    site: "Site",
    command: tuple[str, ...],
    ranks: int = 1,
    data: pathlib.Path | None = None,
    array: int | None = None,
    starts_ranks: bool = False,
) -> "SlurmJob":
    """The job of the command line's flags; it starts where this command was started."""
    from tfmat.launch.slurm import SlurmJob, sbatch_options

    return SlurmJob(
        name=name,
        command=command,
        folder=folder.resolve(),
        start_in=pathlib.Path.cwd(),
        data=data.resolve() if data else None,
        ranks=ranks,
        starts_ranks=starts_ranks,
        gpus=flag_values.gpus or 0,
        options=sbatch_options(flag_values.sbatch),
        array=array,
        **given(flag_values, *_OF_JOB),
    )


def site_of_flags(flag_values: FlagValues) -> "Site":
    """The site of `--site`, or the user's own; what it does not say about nodes with GPUs is asked of SLURM."""
    from tfmat.launch.slurm import read_site, with_size_of_nodes

    site = read_site(flag_values.site)
    if flag_values.gpus and not (site.cores_per_node and site.gpus_per_node):
        return with_size_of_nodes(site, flag_values.partition or site.partition)
    return site


def own_command(
    command: str,
    flag_values: FlagValues,
    python: str | None = None,
    left_out: Collection[str] = LAUNCHER_FLAGS,
) -> tuple[str, ...]:
    """`tfmat COMMAND` with the flags of this command line, without those that describe the job."""
    arguments = []
    for name in sorted(flag_values):
        if not flag_values[name].present or name in left_out:
            continue
        if name == "config_override":
            arguments += [f"--config.{key}={value}" for key, value in overrides(flag_values)]
        else:
            arguments.append(flag_values[name].serialize())
    return (python or sys.executable, "-P", "-m", "tfmat", command, *arguments)


def launch(job: "SlurmJob", site: "Site", *, dry_run: bool) -> None:
    """Writes job.sh and submits it, and says how to watch it; with `dry_run` it prints the script only.

    Where some elements of an array wait or run already, the others are submitted.

    Raises:
      InputError: no cluster can run the job, SLURM refuses it, or all of it waits or runs in this folder already.
    """
    from tfmat.launch.slurm import job_script, submit

    script = job_script(job, site)
    if dry_run:
        print(script, end="")
        return
    living = _living(job.folder)
    elements = _missing_elements(job, living)
    make_folder(job.folder)
    path = job.folder / "job.sh"
    write_text(path, script)
    job_id = submit(path, elements)
    others = sorted({state.partition("_")[0] for state in living})
    write_json(job.folder / _JOB_FILE, {"format": 1, "job": job_id, "others": others})
    first = elements[0] if elements else 0
    output = f"job-{job_id}.out" if job.array is None else f"job-{job_id}_{first}.out"
    print(f"job {job_id}: {job.name}, submitted with {os.path.relpath(path)}")
    if elements:
        again = ", ".join(map(str, elements))
        print(f"  element {again} of {job.array} starts again; {', '.join(sorted(living))} go on")
    print(f"  watch   squeue --jobs={job_id}; tail -F {os.path.relpath(job.folder / output)}")
    print(f"  cancel  scancel {job_id}     (the same command then goes on where it was)")


class _JobRecord(TypedDict):
    """job.json: the last job of a folder, and those before it of which elements lived when it was submitted."""

    job: str
    others: NotRequired[list[str]]


def _living(folder: pathlib.Path) -> dict[str, str]:
    """Job or element (`12`, `12_0`) of this folder -> its state, of those that are not over."""
    from tfmat.launch.slurm import ENDED, job_states

    path = folder / _JOB_FILE
    if not path.exists():
        return {}
    record: _JobRecord = check_json(read_json(path), _JobRecord, path)
    states = job_states([record["job"], *record.get("others", [])])
    return {job: state for job, state in states.items() if state not in ENDED}


def _missing_elements(job: "SlurmJob", living: dict[str, str]) -> list[int]:
    """The elements of an array of which no job waits or runs; [] where none lives, so that all are submitted.

    Raises:
      InputError: nothing is missing, or the folder's job is no array.
    """
    if not living:
        return []
    numbers = {int(job_id.partition("_")[2] or -1) for job_id in living}
    missing = [] if job.array is None or -1 in numbers else [
        number for number in range(job.array) if number not in numbers
    ]  # fmt: skip
    if missing:
        return missing
    job_id, state = next(iter(living.items()))
    raise InputError(
        f"job {job_id} is {state} in {os.path.relpath(job.folder)} already; watch it with squeue, or end it first: "
        f"scancel {' '.join(sorted({each.partition('_')[0] for each in living}))}"
    )
