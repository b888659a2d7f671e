"""Files are whole or absent, whatever happens while they are written."""

import builtins
import csv
import errno
import json
import math
import os
import pathlib
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tfmat import files
from tfmat.errors import InputError
from tfmat.files import (
    as_json,
    atomic_write,
    first_difference,
    flatten,
    is_locked,
    literal,
    locked,
    make_folder,
    read_json,
    spreadsheet_row,
    spreadsheet_text,
    write_error,
    write_json,
)


def test_a_file_appears_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.bin"
    with atomic_write(path) as file:
        file.write(b"12")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"12"
    with atomic_write(path, "w") as file:
        file.write("ε")
        assert path.read_bytes() == b"12"
    assert path.read_bytes() == "ε".encode()
    assert list(tmp_path.iterdir()) == [path]


def _fail_while_writing(path: pathlib.Path, error: type[BaseException]) -> None:
    with atomic_write(path) as file:
        file.write(b"new")
        raise error


def test_a_failure_leaves_what_was_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error):
            _fail_while_writing(path, error)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_signal_while_the_file_is_made_leaves_none(tmp_path, monkeypatch):
    """On a slow disk it comes during the call, and Python hears it when that has returned: the file is there."""
    for owner, original in ((files, builtins.open), (os, os.open)):

        def slow(*arguments: Any, original: Callable[..., Any] = original, **options: Any) -> None:
            original(*arguments, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, "open", slow, raising=False)
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "a", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_rights_are_those_of_any_new_file(tmp_path: pathlib.Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_json(tmp_path / "a", 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~mask


def test_a_process_that_is_killed_leaves_no_half_file(tmp_path: pathlib.Path) -> None:
    program = f"""
import os, signal
from tfmat.files import atomic_write
with atomic_write({str(tmp_path / "a")!r}) as file:
    file.write(b"x" * 100_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=pathlib.Path(__file__).parents[1])
    assert done.returncode == -9
    assert not (tmp_path / "a").exists()


def test_what_the_operating_system_refuses_is_an_input_error(tmp_path: pathlib.Path) -> None:
    said = "cannot write .*none/a: No such file or directory; check the path"
    with pytest.raises(InputError, match=said):
        write_json(tmp_path / "none" / "a", 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write .*: Not a directory; choose another folder"):
        write_json(tmp_path / "file" / "a", 1)
    with pytest.raises(InputError, match="cannot write .*: File exists; choose another folder"):
        make_folder(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write .*folder: Is a directory"):
        write_json(tmp_path / "folder", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "file size limit"),
        (errno.EROFS, "a folder that can be written"),
        (errno.EACCES, "a folder that can be written"),
        (errno.EIO, "check the path"),
    ],
)
def test_every_refusal_says_what_to_do(number: int, remedy: str) -> None:
    line = str(write_error("a/b", OSError(number, os.strerror(number))))
    assert line.startswith(f"cannot write a/b: {os.strerror(number)}; ")
    assert remedy in line and "\n" not in line


def test_make_folder_makes_parents_and_may_find_it_there(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        assert make_folder(tmp_path / "a" / "b").is_dir()


def test_json_comes_back(tmp_path: pathlib.Path) -> None:
    content = {"ε": [1, 2.5, None, True], "nested": {"a": "b"}}
    write_json(tmp_path / "a.json", content)
    assert (
        read_json(tmp_path / "a.json") == content == json.loads((tmp_path / "a.json").read_text())
    )
    assert (tmp_path / "a.json").read_text().endswith("}\n")


def test_no_json_that_other_programs_cannot_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", math.nan)
    assert not list(tmp_path.iterdir())


def test_json_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="cannot read .*a.json: No such file or directory"):
        read_json(tmp_path / "a.json")
    for content in (b"", b"{", b"\xff\xfe"):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(InputError, match="a.json is not valid JSON .*; it may be damaged"):
            read_json(tmp_path / "a.json")


def test_a_folder_has_one_holder(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "new"
    with locked(folder, "held") as held:
        assert held and is_locked(folder)
        with pytest.raises(InputError, match="^held$"), locked(folder, "held"):
            pass
    assert not is_locked(folder) and not is_locked(tmp_path / "nowhere")


def test_content_is_the_same_after_writing_and_reading(tmp_path: pathlib.Path) -> None:
    content = {"a": (1, 2.5), "b": {"c": np.float32(0.5), "d": np.arange(2)}, 3: {"x"}}
    plain = as_json(content)
    assert plain == {"a": [1, 2.5], "b": {"c": 0.5, "d": [0, 1]}, "3": ["x"]}
    write_json(tmp_path / "a", plain)
    assert read_json(tmp_path / "a") == plain


def test_the_first_difference() -> None:
    before = flatten({"model": {"filters": 8, "free": {}}, "seed": 1, "keep": 3})
    now = flatten({"model": {"filters": 9}, "seed": 2, "keep": 3, "new": None})
    assert before == {"model.filters": 8, "seed": 1, "keep": 3}
    assert first_difference(before, now) == "model.filters"
    assert first_difference(before, now, {"model.filters", "seed"}) is None


@pytest.mark.parametrize("text", ["-" * 5000 + "1", "(" * 5000, "{[]: 1}", "1 +", "x"])
def test_no_text_is_too_long_to_be_no_literal(text: str) -> None:
    assert literal("(1, 'a')") == (1, "a")
    with pytest.raises(ValueError, match="it is no literal|malformed node"):
        literal(text)


def test_a_spreadsheet_runs_no_cell() -> None:
    evil = '=HYPERLINK("http://a.b")'
    cells = [evil, "@SUM(1)", "+1+cmd|x", "-2+3", "\tx", "-0.5", "+1e3", "-", "a=b", -3, None]
    assert spreadsheet_row(cells) == [*(f"'{cell}" for cell in cells[:5]), *cells[5:]]
    table = pd.DataFrame({evil: [1, 2], "text": [evil, None], "mixed": [1, None], "x": [0.1, -2.0]})
    table["mixed"] = table["mixed"].astype(object)
    found = list(csv.reader(spreadsheet_text(table).splitlines()))
    plain = list(csv.reader(table.to_csv(index=False).splitlines()))
    assert [found[0][0], found[1][1]] == [f"'{evil}"] * 2
    found[0][0] = found[1][1] = evil
    assert found == plain
