"""The table "What works where" of docs/parallel.md, as the site shows it."""

import importlib.util
import pathlib

PROJECT = pathlib.Path(__file__).resolve().parents[1]


def what_works() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Extra -> backend -> `yes`, `refused` or `no effect`; extra -> what it does not go together with."""
    spec = importlib.util.spec_from_file_location("docs_hook", PROJECT / "tools" / "docs_hook.py")
    assert spec and spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    works, apart = hook.what_works_where().split("\n\n")
    _, *columns = _cells(works.splitlines()[0])
    found = {
        name: dict(zip(columns, cells, strict=True))
        for name, *cells in map(_cells, works.splitlines()[2:])
    }
    return found, dict(map(_cells, apart.splitlines()[2:]))


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.split("|")[1:-1]]
