"""Disks that are full or cannot be written, for the data and for the run: one line, nothing half-written."""

import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tfmat_tests.end_to_end.runs import SMALL_RUN, status
from tfmat_tests.processes import ForkServer
from tfmat_tests.refused import Refuse

# Its checkpoints take 2 MB.
WIDE_RUN = (*SMALL_RUN, "--config.model.hidden_units=400,350", "--noreport")


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[Callable[[str], pathlib.Path]]:
    """Mounts a small file system of the size that it is given; skips where that is not allowed."""
    mounted: list[pathlib.Path] = []

    def mount(size: str) -> pathlib.Path:
        folder = tmp_path / "disk"
        folder.mkdir()
        if not _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
            pytest.skip("mounting a small file system is not allowed here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_for_the_data(refused: Refuse, disk: Callable[[str], pathlib.Path]) -> None:
    folder = disk("64k")
    line = refused(*SMALL_RUN, f"--data_dir={folder}/data")
    assert "needs 0.3 MB and only 0.1 MB are free; free some space or choose another folder" in line


def test_folders_that_cannot_be_written(refused, disk):
    folder = disk("20m")
    assert _mount("-o", "remount,ro", str(folder))
    line = refused(*SMALL_RUN, f"--data_dir={folder}/data")
    assert "Read-only file system; choose a folder that can be written" in line
    line = refused(*SMALL_RUN, f"--workdir={folder}/run")
    assert f"--workdir={folder}/run: the folder {folder} cannot be written; choose another" == line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folders_of_others(refused: Refuse, tmp_path: pathlib.Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o555)
    assert "cannot be written" in refused(*SMALL_RUN, "--workdir=theirs/run")
    assert "cannot be written" in refused(*SMALL_RUN, "--workdir=theirs")


@pytest.mark.parametrize(
    "size",
    [
        "64k",
        "3m",
        *(pytest.param(s, marks=pytest.mark.large) for s in ("4k", "16k", "1m", "2m", "6m", "9m")),
    ],
)
def test_a_full_disk_for_the_run(programs, tmp_path, disk, size):
    """Too small for the first files, for a checkpoint, for the best model, for the second checkpoint, ..."""
    folder = disk(size)
    ended = programs.run(
        *WIDE_RUN, f"--workdir={folder}/run", "--config.checkpoint.keep=30", cwd=tmp_path
    )
    assert ended.status == 2, ended.err
    line = ended.err.splitlines()[-1]
    assert line.startswith(f"tfmat: cannot write {folder}/run/"), ended.err
    assert line.endswith("No space left on device; free some space or choose another folder")
    assert "Traceback" not in ended.err
    assert not [path.name for path in folder.rglob(".*") if path.name != ".lock"]
    if size == "64k":
        return
    # With more space the same command ends well.
    assert _mount("-o", "remount,size=60m", str(folder))
    ended = programs.run(
        *WIDE_RUN, f"--workdir={folder}/run", "--config.checkpoint.keep=30", cwd=tmp_path
    )
    assert ended.status == 0, ended.err
    assert status(folder / "run")["state"] == "done"


def test_a_limit_on_the_size_of_files(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    """Works without root: the data set fits, a checkpoint does not."""
    assert programs.run("generate", "--num_curves=300", "--num_test=5", cwd=tmp_path).status == 0
    (folder,) = (tmp_path / "data").iterdir()
    ended = programs.run(*WIDE_RUN, f"--data_dir={folder}", cwd=tmp_path, file_limit=900_000)
    assert ended.status == 2, ended.err
    line = ended.err.splitlines()[-1]
    assert line.startswith("tfmat: cannot write run/"), ended.err
    assert "File too large; raise the file size limit" in line
    assert "Traceback" not in ended.err
