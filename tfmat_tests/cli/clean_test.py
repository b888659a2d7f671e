"""`tfmat clean`: what it lists, what it deletes, and all that it must leave alone."""

import fcntl
import json
import os
import pathlib
import pty
import shutil

import pytest

from tfmat.cli.main import main
from tfmat.data.dataset import generate_dataset
from tfmat.records.simulation import CurveSettings

Capture = pytest.CaptureFixture[str]
FILES = ("manifest.json", "shard-00000-of-00001.features", "shard-00000-of-00001.labels", ".lock")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Three data sets in data/: used by a finished run, used by nothing, and an unfinished one; beside other things."""
    monkeypatch.chdir(tmp_path)
    found = []
    for seed in range(3):
        dataset = generate_dataset(
            CurveSettings(), seed=seed, num_curves=40, num_test=2, data_dir="data"
        )
        found.append(dataset.folder.name)
    manifest = tmp_path / "data" / found[2] / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"shards": [None]}))
    for path, content in {
        "runs/deep/first/config.json": {"data_dir": str(tmp_path / "data" / found[0])},
        "runs/strange/config.json": ["not a run's"],
        "data/extension/manifest.json": {"name": "not a data set"},
        "data/notes/todo.json": {},
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content))
    (tmp_path / "data" / "empty").mkdir()
    (tmp_path / "data" / "link").symlink_to(found[1])
    return found


def _left() -> set[str]:
    return set(os.listdir("data")) - {"extension", "notes", "empty", "link"}


def _clean(capsys: Capture, *arguments: str) -> tuple[int, str]:
    status = main(["clean", *arguments])
    captured = capsys.readouterr()
    assert bool(captured.err) == bool(status) and captured.err.count("\n") <= 1
    return status, captured.out + captured.err


def test_lists_size_age_state_and_users(names, capsys):
    hours = 3 * 3600
    manifest = pathlib.Path("data", names[1], "manifest.json")
    os.utime(manifest, (manifest.stat().st_mtime - hours,) * 2)
    status, out = _clean(capsys)
    assert status == 0
    header, *rows, total = out.splitlines()
    assert header.split() == ["size", "age", "data", "set", "used", "by"]
    by_name = {row.split("data/")[1].split()[0]: row for row in rows}
    assert list(by_name) == sorted(names)
    # 42 curves of 200 points and 3 channels, 2 labels, float32: 0.1 MB.
    assert by_name[names[0]].split() == ["0.1", "MB", "now", f"data/{names[0]}", "runs/deep/first"]
    assert by_name[names[1]].split() == ["0.1", "MB", "3", "hours", f"data/{names[1]}", "-"]
    assert by_name[names[2]].split()[3:] == [f"data/{names[2]}", "(unfinished)", "-"]
    assert total == (
        "3 in all, 0.3 MB; no run in runs uses 2 of them, 0.2 MB: tfmat clean --unused"
    )
    assert _left() == set(names)


def test_a_name_deletes_what_no_run_uses(names, capsys):
    assert _clean(capsys, names[1]) == (0, f"deleted data/{names[1]} (0.1 MB)\n")
    assert _left() == {names[0], names[2]}
    assert _clean(capsys, f"data/{names[2]}/")[0] == 0
    assert _left() == {names[0]}


def test_what_a_run_uses_needs_more_than_its_name(names, capsys):
    status, said = _clean(capsys, names[0])
    assert status == 2 and "used by runs/deep/first); add --yes to do it" in said
    assert _left() == set(names)
    assert _clean(capsys, names[0], "--yes")[0] == 0
    assert _left() == set(names[1:])


def test_all_that_is_unused(names, capsys):
    status, said = _clean(capsys, "--unused")
    assert status == 2 and "0.2 MB" in said and said.endswith("; add --yes to do it\n")
    assert _left() == set(names)
    status, said = _clean(capsys, "--unused", "--yes")
    assert status == 0 and said.count("deleted data/") == 2
    assert _left() == {names[0]}
    # Other folders are as they were, and the link leads nowhere now.
    assert {"extension", "notes", "empty", "link"} <= set(os.listdir("data"))
    assert os.listdir("data/notes") == ["todo.json"]
    assert _clean(capsys, "--unused", "--yes") == (
        0,
        "a run uses each of the data sets in data; nothing deleted\n",
    )


def test_a_study_uses_its_data_set_too(names, capsys):
    folder = pathlib.Path("runs/scaling/launches/0-one")
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"dataset": os.path.abspath(f"data/{names[1]}")}))
    assert "runs/scaling\n" in _clean(capsys)[1]
    assert _clean(capsys, "--unused", "--yes")[0] == 0
    assert _left() == set(names[:2])


@pytest.mark.parametrize(("answer", "deleted"), [("y", True), ("n", False), ("", False)])
def test_at_a_terminal_it_asks(names, capsys, monkeypatch, answer, deleted):
    ours, its = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with open(its) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        status, said = _clean(capsys, "--unused")
    os.close(ours)
    assert status == 0 and "(0.2 MB)? [y/N] " in said
    assert _left() == ({names[0]} if deleted else set(names))


@pytest.mark.parametrize("holder", ["data/{}", "runs/deep/first"])
def test_what_is_written_or_trained_on_is_never_deleted(names, capsys, holder):
    with open(pathlib.Path(holder.format(names[0]), ".lock"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        status, said = _clean(capsys, names[0], "--yes")
    assert status == 2 and "wait for it, or end it" in said
    assert _left() == set(names)


def test_a_folder_that_holds_something_else_too(names, capsys):
    pathlib.Path("data", names[1], "notes.txt").write_text("mine")
    status, said = _clean(capsys, names[1])
    assert status == 2 and "holds notes.txt, which is no part of a data set" in said
    assert set(os.listdir(f"data/{names[1]}")) >= {*FILES[:3], "notes.txt"}


def test_what_is_kept_beside_the_records_goes_with_them(names, capsys):
    folder = pathlib.Path("data", names[1])
    for name in ("bayes_risk.json", f"fits-{32 * 'a'}.npz", f".fits-{32 * 'b'}.npz.x1.tmp"):
        (folder / name).write_text("{}")
    assert _clean(capsys, names[1], "--yes")[0] == 0
    assert not folder.exists()


def test_what_a_killed_writer_leaves(names, capsys):
    """Right after the folder was made; amid a first shard; amid the deletion; and a damaged manifest."""
    for digit, file in enumerate(
        (".lock", ".shard-00000-of-00002.labels.a1b2.tmp", FILES[1], "manifest.json")
    ):
        folder = pathlib.Path(f"data/voce-900-0000000{digit}")
        folder.mkdir()
        (folder / file).write_text("{")
    _, out = _clean(capsys)
    assert out.count("(unfinished)") == 4 and out.count("(unreadable)") == 1
    assert _clean(capsys, "--unused", "--yes")[0] == 0
    assert _left() == {names[0]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hahn_tsai-40"], "hahn_tsai-40 is no data set in data; did you mean 'hahn_tsai-40-"),
        (["notes"], "notes is no data set in data; valid: hahn_tsai-40-"),
        (["link"], "link is no data set in data"),
        (["runs/deep/first"], "no data set in data; --data_dir says where to look"),
        (["--data_dir=elsewhere"], "there is no folder elsewhere; give the folder of data sets"),
        (["--unused", "hahn_tsai"], "give names of data sets or --unused, not both"),
        (["--yes"], "--yes deletes nothing by itself"),
        (["--unused", "--yes", "--runs_dir=none"], "there is no folder none, whose runs could"),
    ],
)
def test_mistakes(names, capsys, arguments, message):
    status, said = _clean(capsys, *arguments)
    assert status == 2 and message in said
    assert _left() == set(names)


def test_a_data_set_instead_of_its_folder(names, capsys):
    status, said = _clean(capsys, f"--data_dir=data/{names[0]}")
    assert status == 2 and f"tfmat clean --data_dir=data {names[0]}" in said


def test_nothing_there(tmp_path, capsys):
    assert _clean(capsys, f"--data_dir={tmp_path}") == (0, f"no data sets in {tmp_path}\n")


def test_a_deleted_data_set_is_made_again(names, capsys):
    shutil.copytree(f"data/{names[0]}", "before")
    assert _clean(capsys, names[0], "--yes")[0] == 0
    generate_dataset(CurveSettings(), seed=0, num_curves=40, num_test=2, data_dir="data")
    for file in FILES[1:3]:
        before = pathlib.Path("before", file).read_bytes()
        assert pathlib.Path("data", names[0], file).read_bytes() == before
