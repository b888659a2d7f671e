"""README and the guides, to the letter: their first commands in a fresh clone, and every command that they show."""

import ast
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

import pytest

from tfmat.cli.main import COMMANDS, find_command
from tfmat.config import FREE_SECTIONS, OPTIONS, find_config_file

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").rglob("*.md")]
# One spelling works after every way of installing: `tfmat COMMAND`.
OTHER_SPELLINGS = re.compile(r"tools/tfmat|bin/tfmat|python\S* (-P )?-m tfmat(?!\.)")


def _texts() -> Iterator[tuple[str, str]]:
    """Where it stands -> a text that users read: pages, and each string in the program, its configs and its tools."""
    for page in PAGES:
        yield str(page.relative_to(PROJECT)), page.read_text("utf-8")
    sources = [*(PROJECT / "tfmat").rglob("*.py"), *(PROJECT / "configs").glob("*.py")]
    for path in [*sources, *(PROJECT / "docs" / "examples").glob("*.py")]:
        if path.name == "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}", node.value


def test_tfmat_is_spelled_in_one_way():
    wrong = [
        f"{where}: {line.strip()}"
        for where, text in _texts()
        for line in text.splitlines()
        # The link is what makes that spelling work in every shell.
        if OTHER_SPELLINGS.search(line.replace('ln -s "$PWD/tools/tfmat"', ""))
    ]
    assert wrong == []


def _shown_commands() -> Iterator[tuple[str, str, list[str]]]:
    """(where, command, its words) of each `tfmat COMMAND ...` in a block or in backticks of a page."""
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        fenced = "".join(re.findall(r"```.*?```", text, re.DOTALL))
        lines = re.findall(r"^ {4}(?:\$ )?((?:(?:mpirun|srun) .*)?\btfmat .*)$", text, re.MULTILINE)
        lines += re.findall(r"^(tfmat .*)$", fenced, re.MULTILINE)
        for line in [*lines, *re.findall(r"`(tfmat [^`]*)`", text.replace("\n", " "))]:
            shown = re.split(r"\btfmat ", line, maxsplit=1)[1]
            name, *words = shlex.split(shown.partition(" #")[0].replace("…", ""))
            yield page.name, name, words


def test_every_command_of_the_pages_exists():
    seen = set()
    for page, name, words in _shown_commands():
        seen.add(name)
        if name in ("COMMAND", "--help"):
            continue
        assert name in COMMANDS, (page, name)
        known = find_command(name).define()
        for word in words:
            flag, _, value = word.removeprefix("--").partition("=")
            if not word.startswith("--") or flag == "help":
                continue
            if flag.startswith("config."):
                key = flag.removeprefix("config.")
                assert key in OPTIONS or key.partition(".")[0] in FREE_SECTIONS, (page, word)
            else:
                assert flag in known, (page, name, word)
            if flag == "config" and value.startswith("configs/"):
                find_config_file(value)
    assert {"train", "identify", "generate", "clean", "tune", "scale", "--help"} <= seen


def test_readme_is_one_page():
    assert len((PROJECT / "README.md").read_text("utf-8").split()) <= 600


def _anchors(page: pathlib.Path) -> set[str]:
    """What a link may name behind `#`, as GitHub makes it from the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """The pages as they lie in the folder; docs_test.py builds the site, which is strict about its own."""
    broken = []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists():
            broken.append(link)
            continue
        generated = target.suffix == ".md" and "<!-- generated:" in target.read_text("utf-8")
        if anchor and not generated and anchor not in _anchors(target):
            broken.append(link)
    assert broken == []


def test_guides_that_the_program_names_exist():
    named = {
        (where, name) for where, text in _texts() for name in re.findall(r"docs/[\w/]+\.md", text)
    }
    assert [pair for pair in sorted(named) if not (PROJECT / pair[1]).is_file()] == []


def _exists(name: str) -> bool:
    """Whether a dotted name is a module of the package, or stands in the source of one (or of its room)."""
    parts = name.split(".")
    for known in range(len(parts), 0, -1):
        folder = PROJECT.joinpath(*parts[:known])
        sources = [folder.with_suffix(".py"), *folder.glob("*.py")]
        texts = [path.read_text("utf-8") for path in sources if path.is_file()]
        if texts:
            rest = parts[known:]
            return not rest or any(re.search(rf"\b{rest[0]}\b", text) for text in texts)
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_of_the_pages_exist(page):
    # A script of a finished study lies in the commit that is named with it.
    text = re.sub(r"`[^`]+` of\s+commit [0-9a-f]{7}", "", page.read_text("utf-8"))
    paths = re.findall(
        r"(?<![\w/.])(?:configs|docs|tfmat|tfmat_tests|tools)/[a-z_\d/]+(?:\.\w+)?(?![\w*])", text
    )
    # A module stands alone in its backticks, or is imported; `my_law.tfmat.json` is a file of a user's.
    names = re.findall(r"(?:`|from |import )(tfmat(?:\.\w+)+)", text)
    assert [path for path in paths if not (PROJECT / path).exists()] == []
    assert [name for name in names if not _exists(name)] == []


@pytest.fixture
def clone(tmp_path: pathlib.Path) -> pathlib.Path:
    """What `git clone` would give of the files as they are now."""
    done = None
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=PROJECT, capture_output=True, text=True,
        )  # fmt: skip
    if done is None or done.returncode:
        pytest.skip("the project does not lie in a git repository here")
    folder = tmp_path / "a clone"
    for name in filter(None, done.stdout.split("\0")):
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    return folder


def _same_but_for_rounding(printed: str, shown: str) -> bool:
    """Whether two texts have the same words, and numbers within 1 %."""
    number = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
    values = [[float(value) for value in number.findall(text)] for text in (printed, shown)]
    words = [number.sub("#", text).split() for text in (printed, shown)]
    return words[0] == words[1] and values[0] == pytest.approx(values[1], rel=0.01)


def test_the_commands_of_readme_in_a_fresh_clone(clone: pathlib.Path) -> None:
    """Every command in one shell, with this environment's packages; training only tells its help."""
    text = (clone / "README.md").read_text("utf-8")
    commands = re.findall(r"^ {4}(\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    assert commands[:2] == ["./tools/setup", ". .venv/bin/activate"]
    (training,) = (command for command in commands if command.startswith("tfmat train"))
    (identification,) = (command for command in commands if command.startswith("tfmat identify"))
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (clone / "program.py").write_text(program, "utf-8")
    commands[commands.index(training)] = f"{training} --help"
    commands[commands.index(identification)] = f"{identification} >printed.txt"
    environment = {
        **os.environ,
        "TFMAT_PYTHON": sys.executable,
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "false",  # pip's way to say that there is none
        "PATH": os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part),
    }  # fmt: skip
    script = "\n".join(["set -e", *commands, "python program.py", "command -v tfmat"])
    done = subprocess.run(
        ["bash", "-c", script], cwd=clone, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "`. .venv/bin/activate` makes `tfmat` a command of this shell" in done.stderr
    assert "law: material law" in done.stdout
    assert _same_but_for_rounding((clone / "printed.txt").read_text("utf-8"), shown)
    answer, verdict, path = done.stdout.splitlines()[-3:]
    assert f"{round(float(answer.split()[0]), -2):.0f}" in shown  # the table's E
    assert (verdict, path) == ("may be used", f"{clone}/.venv/bin/tfmat")
