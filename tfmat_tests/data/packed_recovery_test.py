"""Packed data sets that were damaged or ended early: whole or absent, resumed, damage named and repaired."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.data.imported import repair_dataset
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.records.simulation import CurveSettings
from tfmat_tests.data.small_dataset import generate, shard_bytes


def _temporary(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.rglob(".*.tmp")]


def _flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[1234] ^= 1
    path.write_bytes(content)


def _truncate(path: pathlib.Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(1000)


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (_flip, "shard-00001-of-00005.features", "shard-00001-of-00005.features is damaged"),
        (_flip, "shard-00004-of-00005.labels", "shard-00004-of-00005.labels is damaged"),
        (
            _truncate,
            "shard-00002-of-00005.features",
            r"00002-of-00005.features is incomplete \(1000 of 393216 ",
        ),
        (
            pathlib.Path.unlink,
            "shard-00000-of-00005.labels",
            "shard-00000-of-00005.labels is missing",
        ),
    ],
)
def test_damage_is_named_and_only_that_shard_made_again(
    tmp_path: pathlib.Path, damage: object, name: str, message: str
) -> None:
    folder = generate(tmp_path).folder
    whole = shard_bytes(folder)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("shard-*")}
    damage(folder / name)  # type: ignore[operator]
    with pytest.raises(InputError, match=rf"{message}.*run `tfmat generate --data_dir={folder}`"):
        PackedDataset.open(folder)
    repair_dataset(folder)
    PackedDataset.open(folder)
    assert shard_bytes(folder) == whole
    shard = name.split(".")[0]
    kept = {path.name for path in folder.glob("shard-*") if path.stat().st_ino == inodes[path.name]}
    assert {other for other in inodes if not other.startswith(shard)} <= kept


def test_the_same_call_repairs_too(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = generate(tmp_path).folder
    whole = shard_bytes(folder)
    _flip(folder / "shard-00001-of-00005.features")
    (folder / "shard-00003-of-00005.labels").unlink()
    with pytest.raises(
        InputError, match=r"shard-00001-of-00005.features is damaged .*\(and 1 more\)"
    ):
        PackedDataset.open(folder)
    generate(tmp_path)
    assert shard_bytes(folder) == whole
    assert "shard-00001-of-00005.features is damaged" in caplog.text


def test_without_verifying_only_sizes_are_looked_at(tmp_path: pathlib.Path) -> None:
    folder = generate(tmp_path).folder
    _flip(folder / "shard-00001-of-00005.features")
    PackedDataset.open(folder, verify=False)
    _truncate(folder / "shard-00001-of-00005.features")
    with pytest.raises(InputError, match="incomplete"):
        PackedDataset.open(folder, verify=False)


def test_manifests_that_cannot_be_used(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="holds no data set"):
        PackedDataset.open(tmp_path)
    folder = generate(tmp_path).folder
    path = folder / "manifest.json"
    manifest = read_json(path)
    for change, message in [
        ({"format": 2}, "written by a newer tfmat .format 2; this one reads up to 1.*upgrade"),
        ({"format": None}, "manifest.json is damaged: it has no 'format'"),
        ({"num_curves": "many"}, "manifest.json is damaged: num_curves: Expected `int`, got `str`"),
        ({"shards": []}, "manifest.json is damaged: it lists 0 shards"),
        (
            {"parameters": [{"nom": "G0"}, {"nom": "a"}]},
            "damaged: parameters.0.: Object missing required field `name`",
        ),
    ]:
        write_json(path, manifest | change)
        with pytest.raises(InputError, match=message):
            PackedDataset.open(folder)
    write_json(path, {name: value for name, value in manifest.items() if name != "seed"})
    with pytest.raises(InputError, match="damaged: Object missing required field `seed`"):
        PackedDataset.open(folder)
    path.write_text("{")
    with pytest.raises(
        InputError, match="manifest.json is damaged: it is not valid JSON; delete the folder"
    ):
        PackedDataset.open(folder)
    write_json(path, manifest | {"id": "00000000"})
    with pytest.raises(InputError, match="holds another data set"):
        generate(tmp_path)
    write_json(path, manifest | {"simulation_version": 0})
    with pytest.raises(InputError, match="simulated by version 0"):
        repair_dataset(folder)


def test_an_interrupt_keeps_finished_shards(tmp_path: pathlib.Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 3 * 2048:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "a", progress=interrupt)
    (folder,) = (tmp_path / "a").iterdir()
    assert not _temporary(folder)
    finished = [
        shard
        for shard, checksums in enumerate(read_json(folder / "manifest.json")["shards"])
        if checksums
    ]
    assert finished == [0, 1, 2]
    assert len(shard_bytes(folder)) == 6
    with pytest.raises(InputError, match=r"shard-00003-of-00005 was not finished \(and 1 more\)"):
        PackedDataset.open(folder)
    calls: list[int] = []
    generate(tmp_path / "a", progress=lambda done, total: calls.append(done))
    assert calls[0] == 3 * 2048
    assert shard_bytes(folder) == shard_bytes(generate(tmp_path / "b").folder)


_CHILD = """
import sys, time
from tfmat.records.simulation import CurveSettings
from tfmat.data.dataset import generate_dataset
calls = []
def progress(done, total):
    calls.append(done)
    time.sleep(float(sys.argv[2]))
generate_dataset(CurveSettings(), seed=0, num_curves=30000, num_test=100, data_dir=sys.argv[1], shard_size=2048,
                 num_threads=2, progress=progress)
print(calls[-1] - calls[0] if calls else 0)
"""


def _child(data_dir: pathlib.Path, seconds_a_piece: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(data_dir), str(seconds_a_piece)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )


def test_killed_and_started_again_is_byte_identical(tmp_path: pathlib.Path) -> None:
    child = _child(tmp_path / "killed", seconds_a_piece=0.1)
    # Kill it as soon as two shards are finished: another is half written then.
    deadline = time.monotonic() + 300
    while (
        len(list((tmp_path / "killed").glob("*/shard-*.labels"))) < 2
        and time.monotonic() < deadline
    ):
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    assert child.communicate()[0] == "" and child.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "killed").iterdir()
    (folder / ".shard-00009-of-00015.features.left.tmp").write_bytes(
        b"half"
    )  # in case it was killed in between
    with pytest.raises(InputError, match="was not finished"):
        PackedDataset.open(folder)
    arguments = {"seed": 0, "num_curves": 30_000, "num_test": 100, "shard_size": 2048}
    resumed = generate_dataset(CurveSettings(), data_dir=tmp_path / "killed", **arguments)  # type: ignore[arg-type]
    assert resumed.folder == folder and not _temporary(folder)
    straight = generate_dataset(CurveSettings(), data_dir=tmp_path / "straight", **arguments)  # type: ignore[arg-type]
    assert shard_bytes(folder) == shard_bytes(straight.folder)
    same = [dataset.manifest | {"created": None} for dataset in (resumed, straight)]
    assert same[0] == same[1]


def test_two_at_once_share_the_work_of_one(tmp_path: pathlib.Path) -> None:
    children = [_child(tmp_path) for _ in range(2)]
    made = [int(child.communicate(timeout=300)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(made) == [0, 30_100]
    (folder,) = tmp_path.iterdir()
    PackedDataset.open(folder)
    assert not _temporary(folder)
