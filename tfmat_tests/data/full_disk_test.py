"""Disks that are full or cannot be written: one clear line, nothing half-written, finished shards kept."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.errors import InputError
from tfmat.files import read_json
from tfmat.records.simulation import CurveSettings

SETTINGS = CurveSettings(num_points=16)
# 10 shards of 2048 rows of 200 bytes: 4.1 MB.
COUNTS = {"seed": 0, "num_curves": 20_000, "num_test": 480, "shard_size": 2048}
DISK_BYTES = 6 << 20


def _generate(data_dir: pathlib.Path, **changes: object) -> PackedDataset:
    return generate_dataset(SETTINGS, data_dir=data_dir, **{**COUNTS, **changes})  # type: ignore[arg-type]


def _mount(*arguments: str) -> bool:
    try:
        return (
            subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        return False


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A real file system of 6 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not _mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)):
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    # Lazily, since the data set may still be mapped.
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill_up(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _whole_or_absent(folder: pathlib.Path) -> int:
    """The number of finished shards; fails on anything half-written."""
    assert not list(folder.rglob(".*.tmp"))
    features = list(folder.rglob("shard-*.features"))
    assert len(features) == len(list(folder.rglob("shard-*.labels")))
    return len(features)


def test_too_little_space_is_said_before_starting(small_disk: pathlib.Path) -> None:
    with pytest.raises(
        InputError, match=r"needs 20\.0 MB and only 6\.3 MB are free; free some space"
    ):
        _generate(small_disk / "data", num_curves=100_000 - 480)
    assert not list(small_disk.iterdir())


def test_a_disk_that_fills_up_on_the_way(small_disk: pathlib.Path) -> None:
    # 6 shards of 0.8 MB of a law that takes its time, so that most are still to come when the disk is full.
    settings = CurveSettings(law="ramberg_osgood", num_points=64)
    counts = {"seed": 0, "num_curves": 6000, "num_test": 144, "shard_size": 1024, "num_threads": 1}
    ballast = small_disk / "ballast"

    def fill_the_disk(done: int, total: int) -> None:
        if done == 2 * 1024:
            while read_json(next(small_disk.glob("data/*/manifest.json")))["shards"][0] is None:
                time.sleep(0.001)  # the first shard is on its way to the disk
            _fill_up(ballast)

    with pytest.raises(
        InputError, match=r"cannot write .*: No space left on device; free some space"
    ):
        generate_dataset(settings, data_dir=small_disk / "data", progress=fill_the_disk, **counts)
    assert _whole_or_absent(small_disk / "data") < 6
    ballast.unlink()
    calls: list[int] = []
    dataset = generate_dataset(
        settings,
        data_dir=small_disk / "data",
        progress=lambda done, total: calls.append(done),
        **counts,
    )
    assert calls[0] >= 1024  # what was finished was kept
    PackedDataset.open(dataset.folder)
    assert _whole_or_absent(small_disk / "data") == 6


def test_a_complete_set_needs_no_right_to_write(small_disk: pathlib.Path) -> None:
    folder = _generate(small_disk).folder
    assert _mount("-o", "remount,ro", str(small_disk))
    assert _generate(small_disk).folder == folder
    with pytest.raises(
        InputError, match=r"cannot write .*: Read-only file system; choose a folder that can be"
    ):
        _generate(small_disk, seed=1, num_curves=1000)


def test_a_limit_on_file_size(tmp_path: pathlib.Path) -> None:
    # Works without root: the second write beyond 300,000 bytes fails in the middle of the first shard.
    child = f"""
import resource
from tfmat_tests.data import full_disk_test as test
import pathlib
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    test._generate(pathlib.Path({str(tmp_path)!r}))
except test.InputError as error:
    print(error)
"""
    answer = subprocess.run(
        [sys.executable, "-c", child],
        capture_output=True,
        text=True,
        check=True,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert ".features: File too large; raise the file size limit" in answer.stdout, answer.stderr
    assert _whole_or_absent(tmp_path) == 0
    _generate(tmp_path)
    assert _whole_or_absent(tmp_path) == 10


def test_a_file_in_the_way(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(
        InputError, match=r"cannot write .*data.*: (Not a directory|File exists); choose another"
    ):
        _generate(tmp_path / "data")
    assert (tmp_path / "data").read_text() == "not a folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir(mode=0o555)
    with pytest.raises(InputError, match="Permission denied; choose a folder that can be written"):
        _generate(tmp_path / "data")
