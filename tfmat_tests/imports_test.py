"""The layers of the house: every import goes down, in no circle, and the BUILD files say the same as this table."""

import ast
import graphlib
import pathlib
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "tfmat"

# The table of the layers is written for Bazel, whose language is a part of Python.
RULES: list[dict[str, Any]] = []
ROOMS_BZL: dict[str, Any] = {
    "load": lambda *names: None,
    "native": types.SimpleNamespace(glob=lambda patterns: patterns),
    "py_library": lambda **attributes: RULES.append(attributes),
}
exec((PACKAGE / "rooms.bzl").read_text("utf-8"), ROOMS_BZL)
LEAVES = set(ROOMS_BZL["LEAVES"])
LAYERS: dict[str, set[str]] = {leaf: set() for leaf in LEAVES} | {
    room: set(below) for room, below in ROOMS_BZL["LAYERS"].items()
}

# Modules beside the rooms that are parts of one.
PARTS = {"config_schema": "config", "durations": "config"}

# Third-party packages that only these files or rooms may import.
OWNERS = {
    "horovod": ("backends/horovod.py", "horovod/"),
    # Beside the backend: a study times MPI's sums by themselves.
    "mpi4py": ("backends/mpi.py", "scaling/allreduce.py"),
    "dtensor": ("backends/dtensor.py", "backends/clients.py", "backends/mesh_tensors.py"),
}
NO_TENSORFLOW = {"cards", "console", "errors", "files", "config", "materials", "curves", "report"}
TENSORFLOW = {"tensorflow", "keras", "tensorflow_datasets", "keras_tuner", "horovod"}


def allowed(room: str) -> set[str]:
    return LAYERS[room] | (LEAVES if room not in LEAVES else {"errors"} - {room})


def room_of(module: str) -> str:
    """`tfmat.data.order` -> `data`; `tfmat.durations` -> `config`; `tfmat` itself -> ''."""
    parts = module.split(".")
    name = parts[1] if len(parts) > 1 else ""
    return PARTS.get(name, name)


def module_of(path: pathlib.Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, also inside functions."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)


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
    room = tmp_path / "tfmat" / "curves"
    room.mkdir(parents=True)
    (room / "tests.py").write_text("from . import records\n")
    (room / "records.py").write_text("def f():\n    from tfmat.curves.tests import Test\n")
    imports = {module_of(path): imported_files(path) for path in room.iterdir()}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(imports).prepare()


def test_every_room_is_in_the_table():
    rooms = {room_of(module_of(path)) for path in sources()} - {"", "__main__"}
    assert rooms <= set(LAYERS)


def test_imports_go_down():
    assert [line for path in sources() for line in wrong_imports(path)] == []


def test_an_arrow_upwards_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROJECT", tmp_path)
    file = tmp_path / "tfmat" / "materials" / "law.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from ..curves import simulate\nfrom . import registry\nfrom .. import errors, training\n"
        "def f():\n    import tfmat.cli.main\n"
    )
    assert wrong_imports(file) == [
        "tfmat/materials/law.py:1 imports tfmat.curves.simulate",
        "tfmat/materials/law.py:3 imports tfmat.training",
        "tfmat/materials/law.py:5 imports tfmat.cli.main",
    ]


def test_only_its_backend_imports_a_parallel_library():
    found = []
    for path in sources():
        inside = path.relative_to(PACKAGE).as_posix()
        uses = {name for _, name in imported_modules(path) if not name.startswith("tfmat.")}
        attributes = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
        }
        packages = {name.split(".")[0] for name in uses}
        found += [
            f"{inside}: {package}"
            for package in ("horovod", "mpi4py")
            if package in packages and not inside.startswith(OWNERS[package])
        ]
        # tf.experimental.dtensor is used without an import of its own.
        dtensor = "dtensor" in attributes or any("dtensor" in name.split(".") for name in uses)
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
    """The package, the light rooms and every module of the command line (a command loads only what it needs)."""
    modules = [module_of(path) for path in sources() if path.name != "__main__.py"]
    return [name for name in modules if room_of(name) in {"", *NO_TENSORFLOW, "cli"}]


def test_importing_light_rooms_and_commands_loads_no_tensorflow():
    program = (
        "import importlib, sys\n"
        f"for name in {importable()!r}:\n"
        "    importlib.import_module(name)\n"
        f"    loaded = set({sorted(TENSORFLOW)!r}) & set(sys.modules)\n"
        "    assert not loaded, f'{name} loads {sorted(loaded)}'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def label(room: str) -> str:
    return f"//tfmat/{room}" if (PACKAGE / room).is_dir() else f"//tfmat:{room}"


def present_rooms() -> list[str]:
    return sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "BUILD").exists())


def test_every_room_has_a_build_file():
    rooms = {path.parent.name for path in PACKAGE.glob("*/*.py")} - {"configs"}
    assert rooms == set(present_rooms())
    tests = {path.parent for path in (PROJECT / "tfmat_tests").glob("*/*_test.py")}
    assert [str(folder) for folder in tests if not (folder / "BUILD").exists()] == []


@pytest.mark.parametrize("room", present_rooms())
def test_build_file_states_the_layers(room):
    assert f'\nroom(name = "{room}")\n' in (PACKAGE / room / "BUILD").read_text("utf-8")
    ROOMS_BZL["room"](room)
    rule = RULES.pop()
    exists = {*present_rooms(), *(path.stem for path in PACKAGE.glob("*.py"))}
    assert set(rule["deps"]) == {label(other) for other in allowed(room) & exists}

    users = {other for other in exists & set(LAYERS) if room in LAYERS[other]}
    packages = {
        f"//tfmat/{user}:__pkg__" if (PACKAGE / user).is_dir() else "//tfmat:__pkg__"
        for user in users
    }
    # //tfmat:tfmat and //tfmat:main stand above all rooms.
    assert set(rule["visibility"]) == packages | {
        "//tfmat:__pkg__",
        "//tfmat_tests:__subpackages__",
    }
