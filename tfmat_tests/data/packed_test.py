"""Packed data sets: the right rows, whole or absent, resumed, damage named and repaired."""

import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.data.importing import repair_dataset
from tfmat.data.packed import (
    TEST_START,
    PackedDataset,
    dataset_folder,
    find_dataset,
    generate_dataset,
    is_dataset,
)
from tfmat.errors import InputError
from tfmat.files import read_json, write_json

SETTINGS = CurveSettings(num_points=16)
# 5 shards of 2048 rows, the last with 8 curves and the test rows.
COUNTS = {"seed": 3, "num_curves": 8200, "num_test": 300}


def _generate(data_dir: pathlib.Path, **changes: object) -> PackedDataset:
    arguments = {
        "settings": SETTINGS,
        "data_dir": data_dir,
        "shard_size": 2048,
        **COUNTS,
        **changes,
    }
    return generate_dataset(**arguments)  # type: ignore[arg-type]


def _shard_bytes(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*"))}


def _temporary(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.rglob(".*.tmp")]


def test_rows_are_the_simulated_curves(tmp_path: pathlib.Path) -> None:
    dataset = _generate(tmp_path)
    assert len(list(dataset.folder.glob("shard-*-of-00005.features"))) == 5
    simulator = Simulator(SETTINGS, 3)
    train, test = simulator.curves(0, 8200), simulator.curves(TEST_START, TEST_START + 300)
    assert dataset.features.shape == (8500, 16, 3) and dataset.labels.shape == (8500, 2)
    np.testing.assert_array_equal(dataset.features[:8200], train.features)
    np.testing.assert_array_equal(dataset.labels[:8200], train.labels)
    np.testing.assert_array_equal(dataset.features[8200:], test.features)
    np.testing.assert_array_equal(dataset.labels[8200:], test.labels)
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (6150, 2050, 300)
    assert dataset.parameters == SETTINGS.build_law().identified
    assert dataset.settings is not None and dataset.settings.to_json() == SETTINGS.to_json()
    first = train.features[:1024]
    assert dataset.input_scale == (first[..., 0].max(), np.abs(first[..., 1]).max(), 1.0)


def test_a_small_set_is_one_small_shard(tmp_path: pathlib.Path) -> None:
    dataset = generate_dataset(SETTINGS, seed=0, num_curves=4, num_test=0, data_dir=tmp_path)
    assert [path.name for path in sorted(dataset.folder.glob("shard-*"))] == [
        "shard-00000-of-00001.features",
        "shard-00000-of-00001.labels",
    ]
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (3, 1, 0)


def test_threads_change_nothing(tmp_path: pathlib.Path) -> None:
    one = _generate(tmp_path / "one", num_threads=1)
    three = _generate(tmp_path / "three", num_threads=3)
    assert _shard_bytes(one.folder) == _shard_bytes(three.folder)
    assert one.manifest["shards"] == three.manifest["shards"]


def test_curve_123456_is_the_same_in_every_set(tmp_path: pathlib.Path) -> None:
    settings = CurveSettings(num_points=8)
    sets = [
        generate_dataset(settings, seed=0, num_curves=count, num_test=100, data_dir=tmp_path)
        for count in (123_457, 140_000)
    ]
    np.testing.assert_array_equal(sets[0].features[123_456], sets[1].features[123_456])
    np.testing.assert_array_equal(sets[0].labels[123_456], sets[1].labels[123_456])
    # The test curves too are the same ones, and none of them trains in the larger set.
    np.testing.assert_array_equal(sets[0].features[-100:], sets[1].features[-100:])
    trained = {row.tobytes() for row in sets[1].labels[:140_000]}
    assert not any(row.tobytes() in trained for row in sets[1].labels[-100:])


def test_a_complete_set_is_only_checked(tmp_path: pathlib.Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in _generate(tmp_path).folder.iterdir()}
    calls: list[tuple[int, int]] = []
    dataset = _generate(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert not calls
    assert {path: path.stat().st_mtime_ns for path in dataset.folder.iterdir()} == before


def test_progress_counts_rows(tmp_path: pathlib.Path) -> None:
    calls: list[tuple[int, int]] = []
    folder = _generate(tmp_path, progress=lambda done, total: calls.append((done, total))).folder
    assert calls[0] == (0, 8500) and calls[-1] == (8500, 8500)
    assert calls == sorted(calls)
    (folder / "shard-00004-of-00005.labels").unlink()
    calls.clear()
    _generate(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(8192, 8500), (8500, 8500)]


def test_the_folder_stands_for_all_settings(tmp_path: pathlib.Path) -> None:
    def folder(
        settings: CurveSettings = SETTINGS, seed: int = 0, curves: int = 10, test: int = 1
    ) -> str:
        return dataset_folder(tmp_path, settings, seed, curves, test).name

    others = [
        folder(),
        folder(seed=1),
        folder(curves=11),
        folder(test=2),
        *(
            folder(CurveSettings(num_points=16, **change))
            for change in (
                {"law": "voce"},
                {"noise_mpa": 2.0},
                {"noise_relative": 0.01},
                {"ranges": {"G0": (1000, 2000)}},
                {"fixed": {"a": 1e-8}},
                {"max_strain": (0.01, 0.02)},
                {"strength_cut_off": False},
            )
        ),
    ]
    assert len(set(others)) == len(others)
    assert folder().startswith("hahn_tsai-10-") and folder(CurveSettings("voce")).startswith(
        "voce-10-"
    )
    # What is written out is what the law says anyway.
    assert (
        folder(CurveSettings(num_points=16, noise_mpa=1, ranges={"G0": (2000, 8000)})) == folder()
    )


def test_find_dataset(tmp_path: pathlib.Path) -> None:
    arguments = (SETTINGS, 3, 10, 0)
    assert find_dataset(tmp_path, *arguments) == dataset_folder(tmp_path, *arguments)
    folder = _generate(tmp_path).folder
    assert is_dataset(folder) and not is_dataset(tmp_path)
    assert find_dataset(folder, *arguments) == folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_curves": 3}, "num_curves is 3"),
        ({"num_test": -1}, "num_test is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_numbers(tmp_path: pathlib.Path, change: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _generate(tmp_path, **change)
    assert not list(tmp_path.iterdir())


# Damage


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
    folder = _generate(tmp_path).folder
    whole = _shard_bytes(folder)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("shard-*")}
    damage(folder / name)  # type: ignore[operator]
    with pytest.raises(InputError, match=rf"{message}.*run `tfmat generate --data_dir={folder}`"):
        PackedDataset.open(folder)
    repair_dataset(folder)
    PackedDataset.open(folder)
    assert _shard_bytes(folder) == whole
    shard = name.split(".")[0]
    kept = {path.name for path in folder.glob("shard-*") if path.stat().st_ino == inodes[path.name]}
    assert {other for other in inodes if not other.startswith(shard)} <= kept


def test_the_same_call_repairs_too(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _generate(tmp_path).folder
    whole = _shard_bytes(folder)
    _flip(folder / "shard-00001-of-00005.features")
    (folder / "shard-00003-of-00005.labels").unlink()
    with pytest.raises(
        InputError, match=r"shard-00001-of-00005.features is damaged .*\(and 1 more\)"
    ):
        PackedDataset.open(folder)
    _generate(tmp_path)
    assert _shard_bytes(folder) == whole
    assert "shard-00001-of-00005.features is damaged" in caplog.text


def test_without_verifying_only_sizes_are_looked_at(tmp_path: pathlib.Path) -> None:
    folder = _generate(tmp_path).folder
    _flip(folder / "shard-00001-of-00005.features")
    PackedDataset.open(folder, verify=False)
    _truncate(folder / "shard-00001-of-00005.features")
    with pytest.raises(InputError, match="incomplete"):
        PackedDataset.open(folder, verify=False)


def test_manifests_that_cannot_be_used(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="holds no data set"):
        PackedDataset.open(tmp_path)
    folder = _generate(tmp_path).folder
    path = folder / "manifest.json"
    manifest = read_json(path)
    for change, message in [
        ({"format": 2}, "written by a newer tfmat .format 2; this one reads up to 1.*upgrade"),
        ({"format": None}, "manifest.json is damaged: it has no 'format'"),
        ({"num_curves": "many"}, "manifest.json is damaged: 'num_curves' is 'many'"),
        ({"shards": []}, "manifest.json is damaged: it lists 0 shards"),
        ({"parameters": [{"nom": "G0"}, {"nom": "a"}]}, "damaged: 'parameters'"),
    ]:
        write_json(path, manifest | change)
        with pytest.raises(InputError, match=message):
            PackedDataset.open(folder)
    write_json(path, {name: value for name, value in manifest.items() if name != "seed"})
    with pytest.raises(InputError, match="damaged: it has no 'seed'"):
        PackedDataset.open(folder)
    path.write_text("{")
    with pytest.raises(
        InputError, match="manifest.json is damaged: it is not valid JSON; delete the folder"
    ):
        PackedDataset.open(folder)
    write_json(path, manifest | {"id": "00000000"})
    with pytest.raises(InputError, match="holds another data set"):
        _generate(tmp_path)
    write_json(path, manifest | {"simulation_version": 0})
    with pytest.raises(InputError, match="simulated by version 0"):
        repair_dataset(folder)


# Ended early


def test_an_interrupt_keeps_finished_shards(tmp_path: pathlib.Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 3 * 2048:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _generate(tmp_path / "a", progress=interrupt)
    (folder,) = (tmp_path / "a").iterdir()
    assert not _temporary(folder)
    finished = [
        shard
        for shard, checksums in enumerate(read_json(folder / "manifest.json")["shards"])
        if checksums
    ]
    assert finished == [0, 1, 2]
    assert len(_shard_bytes(folder)) == 6
    with pytest.raises(InputError, match=r"shard-00003-of-00005 was not finished \(and 1 more\)"):
        PackedDataset.open(folder)
    calls: list[int] = []
    _generate(tmp_path / "a", progress=lambda done, total: calls.append(done))
    assert calls[0] == 3 * 2048
    assert _shard_bytes(folder) == _shard_bytes(_generate(tmp_path / "b").folder)


_CHILD = """
import sys, time
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import generate_dataset
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
    deadline = time.monotonic() + 60
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
    assert _shard_bytes(folder) == _shard_bytes(straight.folder)
    same = [dataset.manifest | {"created": None} for dataset in (resumed, straight)]
    assert same[0] == same[1]


def test_two_at_once_share_the_work_of_one(tmp_path: pathlib.Path) -> None:
    children = [_child(tmp_path) for _ in range(2)]
    made = [int(child.communicate(timeout=60)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(made) == [0, 30_100]
    (folder,) = tmp_path.iterdir()
    PackedDataset.open(folder)
    assert not _temporary(folder)
