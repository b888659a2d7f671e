"""Data sets on disk: the right rows, whole or absent, resumed, repaired, mapped without a copy."""

import contextlib
import dataclasses
import gc
import logging
import mmap
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tfmat.data import dataset
from tfmat.data.dataset import (
    TEST_START,
    Kept,
    PackedDataset,
    available_memory,
    check_memory,
    dataset_folder,
    find_dataset,
    generate_dataset,
    is_dataset,
    map_shards,
    size_text,
    total_memory,
)
from tfmat.data.imported import repair_dataset
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.records.simulation import CurveSettings, Simulator
from tfmat_tests.data.small_dataset import SETTINGS, generate, shard_bytes
from tfmat_tests.processes import PROJECT, real_python, wait_for

# Packed data sets: the right rows, the same in every set, in a folder that stands for all settings.


def test_rows_are_the_simulated_curves(tmp_path: pathlib.Path) -> None:
    dataset = generate(tmp_path)
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


def test_threads_change_nothing(tmp_path: pathlib.Path) -> None:
    one = generate(tmp_path / "one", num_threads=1)
    three = generate(tmp_path / "three", num_threads=3)
    assert shard_bytes(one.folder) == shard_bytes(three.folder)
    assert one.manifest.shards == three.manifest.shards


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


def test_progress_counts_rows_that_are_missing(tmp_path: pathlib.Path) -> None:
    """None of a complete set, which is only checked."""
    calls: list[tuple[int, int]] = []

    def generated() -> pathlib.Path:
        calls.clear()
        return generate(tmp_path, progress=lambda *counts: calls.append(counts)).folder

    folder = generated()
    assert calls[0] == (0, 8500) and calls[-1] == (8500, 8500)
    assert calls == sorted(calls)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    generated()
    assert not calls
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    (folder / "shard-00004-of-00005.labels").unlink()
    generated()
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
    folder = generate(tmp_path).folder
    assert is_dataset(folder) and not is_dataset(tmp_path)
    assert find_dataset(folder, *arguments) == folder


@pytest.mark.parametrize(("name", "number"), [("num_curves", 3), ("num_test", -1), ("seed", -1)])
def test_impossible_numbers(tmp_path, name, number):
    with pytest.raises(InputError, match=f"{name} is {number}"):
        generate(tmp_path, **{name: number})
    assert not list(tmp_path.iterdir())


def test_a_scale_that_hides_the_curves_is_refused(tmp_path: pathlib.Path) -> None:
    """Divided by 4.6e18, every stress is zero for a network."""
    dataset = generate_dataset(SETTINGS, seed=0, num_curves=4, num_test=0, data_dir=tmp_path)
    for channel, value in ((0, 4.6e18), (1, 4.6e18), (1, 1e-9)):
        scale = list(dataset.input_scale)
        scale[channel] = value
        write_json(
            dataset.folder / "manifest.json",
            read_json(dataset.folder / "manifest.json") | {"input_scale": scale},
        )
        with pytest.raises(InputError, match="is damaged: input_scale is"):
            PackedDataset.open(dataset.folder)


# Packed data sets that were damaged or ended early: whole or absent, resumed, damage named and repaired.


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
        (_truncate, "shard-00002-of-00005.features", r"00002-of-00005.features is incomplete \(1000 of 393216 "),
        (pathlib.Path.unlink, "shard-00000-of-00005.labels", "shard-00000-of-00005.labels is missing"),
    ],
)  # fmt: skip
def test_damage_is_named_and_only_that_shard_made_again(tmp_path, damage, name, message):
    folder = generate(tmp_path).folder
    whole = shard_bytes(folder)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("shard-*")}
    damage(folder / name)
    with pytest.raises(InputError, match=rf"{message}.*run `tfmat generate --data_dir={folder}`"):
        PackedDataset.open(folder)
    # Names and sizes are looked at without reading, too.
    unread = (
        pytest.raises(InputError, match=message)
        if damage is not _flip
        else contextlib.nullcontext()
    )
    with unread:
        PackedDataset.open(folder, verify=False)
    repair_dataset(folder)
    PackedDataset.open(folder)
    assert shard_bytes(folder) == whole
    shard = name.split(".")[0]
    kept = {path.name for path in folder.glob("shard-*") if path.stat().st_ino == inodes[path.name]}
    assert {other for other in inodes if not other.startswith(shard)} <= kept


def test_the_same_call_repairs_too(tmp_path, caplog):
    folder = generate(tmp_path).folder
    whole = shard_bytes(folder)
    _flip(folder / "shard-00001-of-00005.features")
    (folder / "shard-00003-of-00005.labels").unlink()
    said = r"shard-00001-of-00005.features is damaged .*\(and 1 more\)"
    with pytest.raises(InputError, match=said):
        PackedDataset.open(folder)
    generate(tmp_path)
    assert shard_bytes(folder) == whole
    assert "shard-00001-of-00005.features is damaged" in caplog.text


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
    said = "manifest.json is damaged: it is not valid JSON; delete the folder"
    with pytest.raises(InputError, match=said):
        PackedDataset.open(folder)
    write_json(path, manifest | {"id": "00000000"})
    with pytest.raises(InputError, match="holds another data set"):
        generate(tmp_path)
    write_json(path, manifest | {"simulation_version": 0})
    with pytest.raises(InputError, match="simulated by version 0"):
        repair_dataset(folder)


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
        cwd=PROJECT,
    )


def test_killed_and_started_again_is_byte_identical(tmp_path: pathlib.Path) -> None:
    child = _child(tmp_path / "killed", seconds_a_piece=0.3)
    # Kill it as soon as two shards are finished: another is half written then.
    wait_for(lambda: len(list((tmp_path / "killed").glob("*/shard-*.labels"))) >= 2)
    child.send_signal(signal.SIGKILL)
    assert child.communicate()[0] == "" and child.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "killed").iterdir()
    # In case it was killed in between.
    (folder / ".shard-00009-of-00015.features.left.tmp").write_bytes(b"half")
    with pytest.raises(InputError, match="was not finished"):
        PackedDataset.open(folder)
    arguments = {"seed": 0, "num_curves": 30_000, "num_test": 100, "shard_size": 2048}
    resumed = generate_dataset(CurveSettings(), data_dir=tmp_path / "killed", **arguments)  # type: ignore[arg-type]
    assert resumed.folder == folder and not _temporary(folder)
    straight = generate_dataset(CurveSettings(), data_dir=tmp_path / "straight", **arguments)  # type: ignore[arg-type]
    assert shard_bytes(folder) == shard_bytes(straight.folder)
    same = [dataclasses.replace(dataset.manifest, created="") for dataset in (resumed, straight)]
    assert same[0] == same[1]


def test_two_at_once_share_the_work_of_one(tmp_path: pathlib.Path) -> None:
    children = [_child(tmp_path) for _ in range(2)]
    made = [int(child.communicate(timeout=300)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(made) == [0, 30_100]
    (folder,) = tmp_path.iterdir()
    PackedDataset.open(folder)
    assert not _temporary(folder)


# Disks that are full or cannot be written: one clear line, nothing half-written, finished shards kept.


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

    said = r"cannot write .*: No space left on device; free some space"
    with pytest.raises(InputError, match=said):
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
    said = r"cannot write .*: Read-only file system; choose a folder that can be"
    with pytest.raises(InputError, match=said):
        _generate(small_disk, seed=1, num_curves=1000)


def test_a_limit_on_file_size(tmp_path: pathlib.Path) -> None:
    # Works without root: the second write beyond 300,000 bytes fails in the middle of the first shard.
    child = f"""
import resource
from tfmat_tests.data import dataset_test as test
import pathlib
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    test._generate(pathlib.Path({str(tmp_path)!r}))
except test.InputError as error:
    print(error)
"""
    answer = real_python("-c", child, check=True)
    assert ".features: File too large; raise the file size limit" in answer.stdout, answer.stderr
    assert _whole_or_absent(tmp_path) == 0
    _generate(tmp_path)
    assert _whole_or_absent(tmp_path) == 10


# Mapped shards: right values, no copy, given back when nobody looks any more, files never changed.


PAGE = mmap.PAGESIZE


def _shards(folder: pathlib.Path, *sizes: int) -> list[pathlib.Path]:
    """Files of consecutive float32 numbers, `sizes` in bytes."""
    paths, start = [], 0
    for i, size in enumerate(sizes):
        path = folder / f"shard-{i}"
        np.arange(start, start + size // 4, dtype="<f4").tofile(path)
        paths.append(path)
        start += size // 4
    return paths


def _mapped_lines(folder: pathlib.Path) -> int:
    return sum(
        str(folder) in line for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
    )


@pytest.mark.parametrize(
    "sizes", [(4,), (PAGE,), (PAGE, 12), (2 * PAGE, 2 * PAGE, 2 * PAGE), (PAGE, PAGE, PAGE - 4)]
)
def test_shards_lie_side_by_side(tmp_path: pathlib.Path, sizes: tuple[int, ...]) -> None:
    array = map_shards(_shards(tmp_path, *sizes), sizes[0])
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, np.arange(sum(sizes) // 4, dtype=np.float32))


def test_unmapped_when_the_last_view_is_gone(tmp_path: pathlib.Path) -> None:
    array = map_shards(_shards(tmp_path, PAGE, PAGE, 40), PAGE)
    view = array[3:].reshape(-1, 1)
    del array
    gc.collect()
    assert _mapped_lines(tmp_path) == 3
    assert view[0, 0] == 3.0
    del view
    gc.collect()
    assert _mapped_lines(tmp_path) == 0


def test_writing_stays_in_this_process(tmp_path: pathlib.Path) -> None:
    paths = _shards(tmp_path, PAGE, PAGE)
    before = [path.read_bytes() for path in paths]
    array = map_shards(paths, PAGE)
    array[:] = -1.0
    del array
    assert [path.read_bytes() for path in paths] == before


def test_tensorflow_takes_it_without_a_copy(tmp_path: pathlib.Path) -> None:
    tf = pytest.importorskip("tensorflow")
    array = map_shards(_shards(tmp_path, PAGE, PAGE, 40), PAGE)
    shared = array.reshape(-1, 2)
    with tf.device("CPU"):
        tensor = tf.experimental.dlpack.from_dlpack(shared.__dlpack__())
    assert tensor.shape == shared.shape
    array[0] = 42.0  # seen through the tensor only where both are the same memory
    assert float(tensor[0, 0]) == 42.0
    del array, shared
    gc.collect()
    # The tensor alone keeps the mapping alive.
    assert float(tensor[-1, -1]) == (2 * PAGE + 40) // 4 - 1


def test_wrong_files_are_named(tmp_path: pathlib.Path) -> None:
    paths = _shards(tmp_path, PAGE, PAGE, 40)
    with pytest.raises(InputError, match="not whole memory pages"):
        map_shards(paths, PAGE - 4)
    with pytest.raises(InputError, match=r"shard-2 has 40 bytes where"):
        map_shards([paths[2], paths[0]], PAGE)
    paths[1].unlink()
    with pytest.raises(InputError, match=r"cannot read .*shard-1: No such file"):
        map_shards(paths, PAGE)
    (tmp_path / "shard-1").touch()
    with pytest.raises(InputError, match="shard-1 has 0 bytes"):
        map_shards([paths[1]], PAGE)


# A data set's copy on a node's own disk, where a SLURM job has put one.


@pytest.fixture
def small(tmp_path):
    return generate_dataset(
        CurveSettings(), data_dir=tmp_path / "data", seed=0, num_curves=400, num_test=10
    )


def test_the_copy_is_read_and_the_data_set_keeps_its_name(small, tmp_path, monkeypatch):
    local = tmp_path / "local"
    shutil.copytree(small.folder, local / small.folder.name)
    monkeypatch.setenv("TFMAT_LOCAL_DATA", str(local))
    # Only the copy has shards any more.
    for shard in small.folder.glob("shard-*"):
        shard.unlink()
    opened = PackedDataset.open(small.folder)
    assert opened.folder == small.folder
    assert np.array_equal(opened.features, small.features)

    damaged = next((local / small.folder.name).glob("shard-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(InputError, match=str(local)):
        PackedDataset.open(small.folder)


def test_another_data_set_there_is_left_alone(small, tmp_path, monkeypatch):
    monkeypatch.setenv("TFMAT_LOCAL_DATA", str(tmp_path / "nothing"))
    assert np.array_equal(PackedDataset.open(small.folder).labels, small.labels)
    local = tmp_path / "local"
    other = generate_dataset(CurveSettings(), data_dir=local, seed=1, num_curves=400, num_test=10)
    other.folder.rename(local / small.folder.name)
    monkeypatch.setenv("TFMAT_LOCAL_DATA", str(local))
    assert np.array_equal(PackedDataset.open(small.folder).labels, small.labels)


# What is kept of records is found again by the same records, arguments and code alone, and whole or not at all.


FOUND = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_what_was_kept_is_found_again(tmp_path: pathlib.Path) -> None:
    key = Kept(tmp_path).key("fit", FOUND)
    assert Kept(tmp_path).read(key) is None
    Kept(tmp_path).write(key, FOUND)
    again = Kept(tmp_path).read(Kept(tmp_path).key("fit", FOUND.copy()))
    assert again is not None and again.dtype == np.float32
    np.testing.assert_array_equal(again, FOUND)
    assert [file.name for file in tmp_path.iterdir()] == [f"fits-{key}.npz"]


def test_another_cause_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Kept(None)
    keys = [
        place.key("fit", FOUND),
        place.key("fits", FOUND),
        place.key("fit", FOUND + 1e-6),
        place.key("fit", FOUND.astype(np.float64)),
        place.key("fit", FOUND.reshape(4, 3)),
        place.key("fit", FOUND[:2], FOUND[2:]),
    ]
    monkeypatch.setattr(dataset, "_code", lambda: "another law")
    assert len({*keys, place.key("fit", FOUND)}) == len(keys) + 1


@pytest.mark.parametrize("damage", ["cut", "empty", "changed"])
def test_what_is_damaged_counts_as_not_there(damage: str, tmp_path: pathlib.Path) -> None:
    place = Kept(tmp_path)
    place.write("0", FOUND)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[content.index(FOUND.tobytes()) + 5] ^= 1
    whole = {"cut": content[:-30], "empty": bytearray(), "changed": content}
    file.write_bytes(bytes(whole[damage]))
    assert place.read("0") is None


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path, caplog):
    place = Kept(tmp_path / "gone")
    with caplog.at_level(logging.WARNING, "tfmat"):
        for key in "01":
            place.write(key, FOUND)
    (line,) = (record.getMessage() for record in caplog.records)
    assert "fits are not kept for the next run: cannot write" in line
    Kept(None).write("0", FOUND)
    assert Kept(None).read("0") is None


# Sizes that cannot be are refused with the memory that they would need.


def test_memory_is_at_most_that_of_the_machine():
    text = pathlib.Path("/proc/meminfo").read_text()
    machine = 1024 * int(text.split("MemTotal:")[1].split()[0])
    assert 2**20 < available_memory() <= total_memory() <= machine


def test_what_does_not_fit_is_refused():
    check_memory("it", total_memory(), "leave it")
    with pytest.raises(InputError, match="it would need at least .* of memory.*; leave it"):
        check_memory("it", total_memory() + 1, "leave it")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(12_000_000, "12.0 MB"), (3_400_000_000, "3.4 GB"), (10**18, "1,000,000.0 TB")],
)
def test_sizes(num_bytes, text):
    assert size_text(num_bytes) == text


def test_curves_of_too_many_points(tmp_path):
    settings = CurveSettings(num_points=10**18)
    said = r"curves of 1,000,000,000,000,000,000 points .*fewer points"
    with pytest.raises(InputError, match=said):
        generate_dataset(settings, seed=0, num_curves=8, num_test=4, data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
