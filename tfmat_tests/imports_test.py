"""The layers of the house: every import goes down, in no circle, and the BUILD files say the same as this table."""

import ast
import functools
import graphlib
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tfmat_tests.processes import real_python

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "tfmat"
TESTS_FOLDER = PROJECT / "tfmat_tests"


def build_file(folder: pathlib.Path) -> dict[str, Any]:
    """The rules of a BUILD file, and the tables that it loads. Bazel's language is a part of Python."""
    rules: dict[str, dict[str, Any]] = {}
    said: dict[str, Any] = {"rules": rules}

    def load(label: str, *names: str) -> None:
        table = folder / label.removeprefix(f"//{folder.name}:")
        if table.is_file():
            exec(table.read_text("utf-8"), said)

    def rule(**attributes: Any) -> None:
        rules[attributes["name"]] = {"srcs": [], "deps": [], **attributes}

    def glob(include: list[str], exclude: Iterable[str] = ()) -> list[str]:
        found = {path for pattern in include for path in folder.glob(pattern) if path.is_file()}
        found -= {path for pattern in exclude for path in folder.glob(pattern)}
        return sorted(path.relative_to(folder).as_posix() for path in found)

    said |= {"load": load, "glob": glob, "package": lambda **attributes: None}
    said |= dict.fromkeys(("py_library", "py_binary", "py_test"), rule)
    exec((folder / "BUILD").read_text("utf-8"), said)
    return said


# The tables of the layers, and of what tests use, are written for Bazel.
HOUSE = build_file(PACKAGE)
TESTS = build_file(TESTS_FOLDER)
LEAVES = set(HOUSE["LEAVES"])
LAYERS: dict[str, set[str]] = {leaf: set() for leaf in LEAVES} | {
    room: set(below) for room, below in HOUSE["LAYERS"].items()
}

# Modules beside the rooms that are parts of one.
PARTS: dict[str, str] = {}

# Third-party packages that only these files or rooms may import.
OWNERS = {
    "horovod": ("backends/transports.py", "horovod/"),
    # Beside the backend: a study times MPI's sums by themselves.
    "mpi4py": ("backends/transports.py", "scaling/measure.py"),
    "dtensor": ("backends/dtensor.py",),
}
NO_TENSORFLOW = {"console", "errors", "files", "config", "materials", "records", "report"}
# Modules of other rooms that check what is asked for, or watch those that work, before or without TensorFlow.
LIGHT = {
    "tfmat.backends.layouts", "tfmat.data.dataset", "tfmat.identification.api", "tfmat.launch.mpirun",
    "tfmat.launch.watchdog", "tfmat.scaling.measure", "tfmat.scaling.model", "tfmat.scaling.report",
    "tfmat.scaling.study", "tfmat.training.run_folder", "tfmat.tuning", "tfmat.tuning.trials", "tfmat.workflow",
}  # fmt: skip
TENSORFLOW = {"tensorflow", "keras", "tensorflow_datasets", "keras_tuner", "horovod"}


def allowed(room: str) -> set[str]:
    return LAYERS[room] | (LEAVES if room not in LEAVES else {"errors"} - {room})


def room_of(module: str) -> str:
    """`tfmat.data.order` -> `data`; `tfmat.config` -> `config`; `tfmat` itself -> ''."""
    parts = module.split(".")
    name = parts[1] if len(parts) > 1 else ""
    return PARTS.get(name, name)


def module_of(path: pathlib.Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imported_modules(path: pathlib.Path) -> list[tuple[int, str]]:
    """Line and full name of everything that a file imports, also inside functions."""
    return list(_imported_modules(path))


def _imported_modules(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All of a file's statements; `ast.walk` takes most of its time for the expressions in them."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def sources() -> list[pathlib.Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "configs" not in path.parts)


def wrong_imports(path: pathlib.Path) -> list[str]:
    room = room_of(module_of(path))
    wrong = []
    for line, name in imported_modules(path):
        target = room_of(name)
        if not name.startswith("tfmat.") or name.startswith("tfmat.__") or target == room:
            continue
        # The package itself and __main__ are doors to the whole house (lazily: see the next tests).
        if room not in {"", "__main__"} and target not in allowed(room):
            wrong.append(f"{path.relative_to(PROJECT)}:{line} imports {name}")
    return wrong


def test_table_has_no_circle():
    graphlib.TopologicalSorter(LAYERS).prepare()


def imported_files(path: pathlib.Path) -> set[str]:
    """The modules of the project that a file imports, also inside functions and for types alone."""
    found = set()
    for _, name in imported_modules(path):
        module = name if is_file(name) else name.rpartition(".")[0]
        if is_file(module) and module != module_of(path):
            found.add(module)
    return found


def is_file(module: str) -> bool:
    return (PROJECT / module.replace(".", "/")).with_suffix(".py").is_file()


def test_files_have_no_circle():
    paths = [path for top in ("tfmat", "tfmat_tests") for path in (PROJECT / top).rglob("*.py")]
    graphlib.TopologicalSorter({module_of(path): imported_files(path) for path in paths}).prepare()


def test_a_circle_of_files_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROJECT", tmp_path)
    room = tmp_path / "tfmat" / "records"
    room.mkdir(parents=True)
    (room / "tests.py").write_text("from . import records\n")
    (room / "records.py").write_text("def f():\n    from tfmat.records.tests import Test\n")
    imports = {module_of(path): imported_files(path) for path in room.iterdir()}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports).prepare()


def test_table_has_every_room_and_no_other():
    rooms = {room_of(module_of(path)) for path in sources()} - {"", "__main__"}
    assert rooms == set(LAYERS)


def test_imports_go_down():
    assert [line for path in sources() for line in wrong_imports(path)] == []


def test_an_arrow_upwards_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROJECT", tmp_path)
    file = tmp_path / "tfmat" / "materials" / "law.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from ..records import simulation\nfrom . import registry\nfrom .. import errors, training\n"
        "def f():\n    import tfmat.cli.main\n"
    )
    assert wrong_imports(file) == [
        "tfmat/materials/law.py:1 imports tfmat.records.simulation",
        "tfmat/materials/law.py:3 imports tfmat.training",
        "tfmat/materials/law.py:5 imports tfmat.cli.main",
    ]


def test_only_its_backend_imports_a_parallel_library():
    found = []
    for path in sources():
        inside = path.relative_to(PACKAGE).as_posix()
        uses = {name for _, name in imported_modules(path) if not name.startswith("tfmat.")}
        packages = {name.split(".")[0] for name in uses}
        found += [
            f"{inside}: {package}"
            for package in ("horovod", "mpi4py")
            if package in packages and not inside.startswith(OWNERS[package])
        ]
        # tf.experimental.dtensor is used without an import of its own.
        text = path.read_text("utf-8")
        dtensor = "dtensor" in text and any(
            isinstance(node, ast.Attribute) and node.attr == "dtensor"
            for node in ast.walk(ast.parse(text))
        )
        dtensor = dtensor or any("dtensor" in name.split(".") for name in uses)
        if dtensor and inside not in OWNERS["dtensor"]:
            found.append(f"{inside}: dtensor")
    assert found == []


def test_rooms_without_tensorflow_do_not_import_it():
    found = [
        f"{path.relative_to(PROJECT)}:{line} imports {name}"
        for path in sources()
        if room_of(module_of(path)) in NO_TENSORFLOW
        for line, name in imported_modules(path)
        if name.split(".")[0] in TENSORFLOW
    ]
    assert found == []


def importable() -> list[str]:
    """The package, light rooms and modules, and all of the command line (a command loads only what it needs)."""
    modules = [module_of(path) for path in sources() if path.name != "__main__.py"]
    rooms = {"", *NO_TENSORFLOW, "cli"}
    assert set(modules) >= LIGHT
    return [name for name in modules if room_of(name) in rooms or name in LIGHT]


def test_importing_light_rooms_and_commands_loads_no_tensorflow():
    program = (
        "import importlib, sys, tfmat\n"
        "assert {'Trainer', 'identify'} <= set(dir(tfmat))\n"
        f"for name in {importable()!r}:\n"
        "    importlib.import_module(name)\n"
        f"    loaded = set({sorted(TENSORFLOW)!r}) & set(sys.modules)\n"
        "    assert not loaded, f'{name} loads {sorted(loaded)}'\n"
    )
    done = real_python("-c", program)
    assert done.returncode == 0, done.stderr[-2000:]


def targets_of(build: dict[str, Any], attribute: str) -> dict[str, list[str]]:
    """File -> the targets that name it in this attribute."""
    found: dict[str, list[str]] = {}
    for name, rule in build["rules"].items():
        for file in rule.get(attribute, []):
            found.setdefault(file, []).append(name)
    return found


def test_every_module_has_one_target():
    rooms = {path.relative_to(PACKAGE).as_posix(): [room_of(module_of(path))] for path in sources()}
    named = {"__init__.py": ["package"], "__main__.py": ["main"]}
    assert targets_of(HOUSE, "srcs") == rooms | named


def test_every_test_has_one_target():
    files = {path.relative_to(TESTS_FOLDER) for path in TESTS_FOLDER.rglob("*_test.py")}
    files -= {pathlib.Path(name) for name in TESTS["WHOLE_PROJECT"]}
    rooms = {
        f"$(rootpath {file})": [f"{file.parent.name or 'outside_rooms'}_tests"] for file in files
    }
    assert targets_of(TESTS, "args") == rooms
    assert len(TESTS["ROOMS"]) == len({name for (name,) in rooms.values()})


@pytest.mark.parametrize("room", LAYERS)
def test_build_file_states_the_layers(room):
    assert set(HOUSE["rules"][room]["deps"]) - {":package"} == {
        f":{name}" for name in allowed(room)
    }


def laid_out(target: str) -> set[str]:
    """The targets of tfmat/ that Bazel lays out for one of them."""
    deps = HOUSE["rules"][target]["deps"]
    return {target}.union(*(laid_out(name.removeprefix(":")) for name in deps))


def imports_of_tests(room: str) -> list[str]:
    """Imports of a room's tests, also through each other, that Bazel does not lay out for them."""
    rule = TESTS["rules"][f"{room}_tests"]
    files = {TESTS_FOLDER / file for file in rule["srcs"] + TESTS["rules"]["shared"]["srcs"]}
    labels = {name.removeprefix("//tfmat:") for name in rule["deps"]} - {":shared"}
    rooms = set().union(*(laid_out(name) for name in labels))
    folder = "" if room == "outside_rooms" else room
    # Grows by what these files import.
    waiting = [TESTS_FOLDER / file for file in rule["srcs"] if file.rpartition("/")[0] == folder]
    wrong = []
    for path in waiting:
        for line, name in imported_modules(path):
            place = f"{path.relative_to(PROJECT)}:{line} imports {name}"
            if name.startswith("tfmat.") and not name.startswith("tfmat.__"):
                wrong += [place] if room_of(name) not in rooms else []
            module = name if is_file(name) else name.rpartition(".")[0]
            if module.startswith("tfmat_tests.") and is_file(module):
                file = (PROJECT / module.replace(".", "/")).with_suffix(".py")
                wrong += [place] if file not in files else []
                waiting += [file] if file not in waiting else []
    return wrong


@pytest.mark.parametrize("room", TESTS["ROOMS"])
def test_tests_import_what_bazel_lays_out(room):
    assert imports_of_tests(room) == []


def test_what_is_not_laid_out_is_found(monkeypatch):
    rule = TESTS["rules"]["networks_tests"]
    monkeypatch.setitem(rule, "deps", [":shared", "//tfmat:networks"])
    wrong = imports_of_tests("networks")
    assert wrong and all("imports tfmat." in line for line in wrong)
    rule = TESTS["rules"]["cli_tests"]
    own = [file for file in rule["srcs"] if file.startswith("cli/")]
    monkeypatch.setitem(rule, "srcs", own)
    wrong = imports_of_tests("cli")
    assert wrong and all("imports tfmat_tests." in line for line in wrong)
