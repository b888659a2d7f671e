"""What the site's pages take from the program itself, so that it is written once.

MkDocs calls `on_page_markdown` for every page; `<!-- generated: NAME -->` in it becomes what the function NAME returns.
"""

import collections
import concurrent.futures
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import tfmat
from tfmat.backends.registry import BACKENDS, EXTRAS, Asked, Extra, check
from tfmat.cli.main import COMMANDS, find_command
from tfmat.config import OPTIONS, Option, Parallelism, Settings
from tfmat.errors import InputError
from tfmat.launch.processes import Processes
from tfmat.materials import DEFAULT_LAW, LAWS, Law, Parameter

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# What the guides import beside the names of `tfmat` itself.
FURTHER_NAMES = {
    "tfmat.materials": ("Law", "Parameter"),
    "tfmat.config": ("default_config",),
    "tfmat.tuning": ("Search", "Choice", "Float", "Int"),
    "tfmat.optimizers": (
        "LARS", "LARC", "NovoGrad", "LAMB",
        "WarmupConstant", "WarmupCosine", "WarmupPolynomial", "WarmupSteps",
    ),
    "tfmat.networks.factory": ("ExampleWeightedBatchNormalization",),
}  # fmt: skip


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the gallery, whose programs run now, two at a time."""
    scripts = sorted((PROJECT / "docs" / "gallery").glob("*.py"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def run(script: pathlib.Path) -> None:
            place = folder / "work" / script.stem  # what the program writes
            place.mkdir(parents=True)
            program = PROJECT / "tools" / "gallery.py"
            command = [sys.executable, *map(str, (program, script, folder))]
            programs = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PATH": programs}
            done = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                raise PluginError(f"{script.name} failed:\n{done.stderr[-3000:]}")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(run, scripts))
        for path in folder.glob("*.*"):
            files.append(File.generated(config, f"gallery/{path.name}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with its generated parts; a link to a program of the gallery leads to its page."""
    markdown = re.sub(r"\]\((gallery/\w+)\.py\)", r"](\1.md)", markdown)
    return re.sub(r"<!-- generated: (\w+) -->", lambda found: PARTS[found[1]](), markdown)


def commands() -> str:
    """A list of all commands, and what `tfmat COMMAND --help` says of each."""
    rows = [(f"[`tfmat {name}`](#tfmat-{name})", text) for name, (_, text) in COMMANDS.items()]
    return "\n\n".join([table(("command", ""), rows), *map(_command, COMMANDS)])


def _command(name: str) -> str:
    command = find_command(name)
    tables = [
        table((title, ""), [(f"`{flag}`", escaped(meaning)) for flag, meaning in rows])
        for title, rows in command.meanings(command.define())
    ]
    return "\n\n".join([f"## tfmat {name}", *_paragraphs(command.about()), *tables])


def _paragraphs(text: str) -> Iterator[str]:
    """The prose of a command's help without its line breaks; indented lines are shown as they stand."""
    for shown, group in itertools.groupby(
        text.splitlines(), lambda line: line[:2] == "  " or not line
    ):
        lines = list(group)
        if shown and any(lines):
            yield textwrap.indent(textwrap.dedent("\n".join(lines)).strip("\n"), " " * 4)
        elif not shown:
            sentences = " ".join(lines)
            yield escaped(sentences[0].upper() + sentences[1:])


def config_keys() -> str:
    """Tables of the keys of a config, one for each section."""
    sections: dict[str, list[Option]] = {}
    for name, option in OPTIONS.items():
        sections.setdefault(name.partition(".")[0] if "." in name else "", []).append(option)
    return "\n\n".join(
        f"## {section or 'The run'}\n\n" + table(("key", "default", "meaning"), map(_key, options))
        for section, options in sections.items()
    )


def _key(option: Option) -> tuple[str, str, str]:
    choices = "; one of " + ", ".join(f"`{choice}`" for choice in option.choices)
    default = option.default
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return (
        f"`{option.name}`",
        "" if text == "" else f"`{text.lower() if default in (None, True, False) else text}`",
        escaped(option.meaning) + (choices if option.choices else ""),
    )


def what_works_where() -> str:
    """Extras of training by backend, and those that do not go with each other, as the program refuses them."""
    extras: dict[str, Extra] = {}
    for extra in EXTRAS:  # some backends have the same in a way of their own
        backends = extras[extra.key].backends if extra.key in extras else ()
        extras[extra.key] = extra._replace(backends=(*backends, *extra.backends))

    def cell(extra: Extra, backend: str) -> str:
        if _is_refused(backend, extra):
            return "refused"
        return "yes" if backend in extra.backends else "no effect"

    rows = [(_shown(e), *(cell(e, backend) for backend in BACKENDS)) for e in extras.values()]
    header = ("", *BACKENDS)
    apart = []
    for one in extras.values():
        others = [
            _shown(other)
            for other in extras.values()
            if (both := set(one.backends) & set(other.backends)) and one is not other
            if all(_is_refused(backend, one, other) for backend in both)
        ]
        apart.append((_shown(one), ", ".join(others)))
    return "\n\n".join(
        [table(header, rows), table(("", "not together with"), (row for row in apart if row[1]))]
    )


def _is_refused(backend: str, *extras: Extra) -> bool:
    """Whether two processes cannot have these extras."""
    keys = {extra.key: extra.example for extra in extras}
    options = {key: value for key, value in keys.items() if hasattr(Parallelism, key)}
    if keys.pop("pipeline stages", False):
        options["mesh"] = "stage:2"
    processes = Processes(size=2, local_size=2)
    try:
        check(Asked(backend, Settings.with_keys(**options), processes, keys))
    except InputError:
        return True
    return False


def _shown(extra: Extra) -> str:
    """As a user asks for it."""
    if extra.key not in OPTIONS:
        return extra.key
    return f"`{extra.key}={str(extra.example).lower()}`"


def laws() -> str:
    """Every law with its formula, ranges and source."""
    return "\n\n".join(_law(name, law()) for name, law in LAWS.items())


def _law(name: str, law: Law) -> str:
    rows = [(f"`{one.name}`", one.unit, *_range(one), one.description) for one in law.parameters]
    if law.tests == ("monotonic",):
        low, high = law.max_strain
        simulated = f"Simulated curves end at a strain of {low:g} to {high:g}"
    else:
        counts = collections.Counter(law.tests)
        tests = [f"{count} × {test}" if count > 1 else test for test, count in counts.items()]
        simulated = f"Simulated records hold the tests {', '.join(tests)}"
    return "\n\n".join(
        [
            f"## {name}",
            f"{law.title}{' (the default law)' if name == DEFAULT_LAW else ''}: `{law.formula}`",
            table(("parameter", "unit", "from", "to", "scale", "meaning"), rows),
            f"Strain: {law.strain_measure}; stress: {law.stress_measure}.",
            f"{simulated}; the noise of their stress is {law.noise_mpa:g} MPa.",
            f"Source: {law.source}.",
        ]
    )


def _range(one: Parameter) -> tuple[str, str, str]:
    if one.fixed is not None:
        return f"{one.fixed:g}", "", "fixed"
    return f"{one.low:g}", f"{one.high:g}", one.scale


def api() -> str:
    """One mkdocstrings block for every public name."""
    names = [(f"tfmat.{name}", f"{module}.{name}") for name, module in tfmat._PUBLIC.items()]
    for module, further in FURTHER_NAMES.items():
        names += [(f"{module}.{name}", f"{module}.{name}") for name in further]
    return "\n\n".join(
        f"::: {path}\n    options:\n      heading: {shown}\n      toc_label: {shown}"
        for shown, path in names
    )


def changelog() -> str:
    """CHANGELOG.md, which stands at the top of the project."""
    return (PROJECT / "CHANGELOG.md").read_text("utf-8")


def contributing() -> str:
    """CONTRIBUTING.md, with its links as they are from docs/."""
    return (PROJECT / "CONTRIBUTING.md").read_text("utf-8").replace("](docs/", "](")


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """`text` with what Markdown or HTML would read as its own."""
    return re.sub(r"([|*_])", r"\\\1", text.replace("<", "&lt;"))


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (commands, config_keys, what_works_where, laws, api, changelog, contributing)
}
