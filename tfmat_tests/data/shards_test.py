"""Mapped shards: right values, no copy, given back when nobody looks any more, files never changed."""

import gc
import mmap
import pathlib

import numpy as np
import pytest

from tfmat.data.dataset import map_shards
from tfmat.errors import InputError

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
    assert (
        float(tensor[-1, -1]) == (2 * PAGE + 40) // 4 - 1
    )  # the tensor alone keeps the mapping alive


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
