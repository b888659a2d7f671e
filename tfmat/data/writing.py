"""Writing the shards of a packed data set: several threads, each shard whole or absent, resumable."""

import collections
import concurrent.futures
import contextlib
import logging
import os
import pathlib
import shutil
import threading
import zlib
from collections.abc import Callable, Iterable
from typing import IO, Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from tfmat.data.manifest import ARRAYS, MANIFEST, PIECE, Layout, read_manifest
from tfmat.data.memory import available_threads, size_text
from tfmat.data.shards import combined_checksum, find_damage
from tfmat.errors import InputError
from tfmat.files import atomic_write, locked, write_error, write_json

Floats = NDArray[np.float32]
# fill(start, stop, features [rows, points, channels], labels [rows, labels]) writes rows start to stop into the arrays.
Fill = Callable[[int, int, Floats, Floats], None]
Progress = Callable[[int, int], None]

_LOG = logging.getLogger(__name__)


def write_dataset(
    folder: pathlib.Path,
    manifest: dict[str, Any],
    fill: Fill,
    *,
    progress: Progress | None = None,
    num_threads: int | None = None,
) -> None:
    """Makes the data set in `folder` that `manifest` describes, or what is missing or damaged of it.

    A complete data set is only checked, which needs no right to write. Whatever ends the writing early, finished
    shards stay and are in the manifest, and no temporary file is left (after a SIGKILL the next call removes them).

    Args:
      folder: of this one data set.
      manifest: of the data set; its `shards` are ignored where the folder already holds a manifest.
      fill: gives the rows; must be a pure function and safe to call from several threads.
      progress: called with (rows done, rows in all), first with what was there already.
      num_threads: default: one for each processor.

    Raises:
      InputError: the folder holds another data set, there is not enough space, or a write is refused.
    """
    num_threads = num_threads or available_threads()
    layout = Layout.of(manifest)
    if not (folder / MANIFEST).exists():
        # A billion curves are refused without looking at each of their shards.
        _check_space(folder, sum(layout.row_bytes(name) for name in ARRAYS) * layout.num_rows)
    current, damage = _compare(folder, manifest, num_threads, read=False)
    if not damage:
        current, damage = _compare(folder, manifest, num_threads, read=True)
    if not damage:
        return
    _check_space(folder, _missing_bytes(folder, layout, damage))  # before anything is made
    with locked(folder, f"another process is writing {folder}; waiting for it", wait=True) as held:
        if held:
            for stale in folder.glob(".*.tmp"):  # of a killed writer
                stale.unlink(missing_ok=True)
        current, damage = _compare(folder, manifest, num_threads, read=True)
        for shard, what in damage.items():
            if current["shards"][shard] is not None:
                _LOG.warning("%s: %s; making it again", folder, what)
        if damage:
            rows = sum(stop - start for start, stop in map(layout.rows, damage))
            size = size_text(rows * sum(map(layout.row_bytes, ARRAYS)))
            _LOG.info(
                "writing %s curves (%s) into %s; `tfmat clean` lists data sets and deletes them",
                f"{rows:,}",
                size,
                folder,
            )
            _write_shards(folder, current, sorted(damage), fill, num_threads, progress)


def _compare(
    folder: pathlib.Path, manifest: dict[str, Any], num_threads: int, read: bool
) -> tuple[dict[str, Any], dict[int, str]]:
    """The manifest that holds now, and which shards are missing or damaged."""
    if (folder / MANIFEST).exists():
        current = read_manifest(folder)
        if current.get("id") != manifest["id"]:
            raise InputError(
                f"{folder} holds another data set than the one asked for; choose another --data_dir"
            )
    else:
        current = manifest | {"shards": [None] * Layout.of(manifest).num_shards}
    return current, find_damage(folder, current, num_threads, read)


def _missing_bytes(folder: pathlib.Path, layout: Layout, shards: Iterable[int]) -> int:
    needed = 0
    for shard in shards:
        for name in ARRAYS:
            path = layout.path(folder, name, shard)
            # A damaged file makes room for its successor.
            needed += layout.shard_bytes(name, shard) - (
                path.stat().st_size if path.is_file() else 0
            )
    return needed


def _check_space(folder: pathlib.Path, needed: int) -> None:
    existing = folder.absolute()
    while not existing.is_dir() and existing != existing.parent:
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise InputError(
            f"{folder} needs {size_text(needed)} and only {size_text(free)} are free; "
            "free some space or choose another folder with --data_dir"
        )


def _write_shards(
    folder: pathlib.Path,
    manifest: dict[str, Any],
    shards: list[int],
    fill: Fill,
    num_threads: int,
    progress: Progress | None,
) -> None:
    """Writes `shards` and, after each, the manifest with its checksum."""
    layout = Layout.of(manifest)
    for shard in shards:
        manifest["shards"][shard] = None
    write_json(folder / MANIFEST, manifest)
    for shard in shards:
        for name in ARRAYS:
            layout.path(folder, name, shard).unlink(missing_ok=True)
    job = _Job(folder, manifest, layout, fill)
    with contextlib.ExitStack() as stack:
        # Left in reverse order: stop computing, let whole shards reach the disk, remove the unfinished ones.
        stack.callback(job.abandon)
        # Pieces are computed side by side already: a law with matrices would start threads in every one of them.
        stack.enter_context(threadpoolctl.threadpool_limits(1, "blas"))
        finisher = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        pool = concurrent.futures.ThreadPoolExecutor(num_threads)
        stack.callback(pool.shutdown, cancel_futures=True)
        job.run(shards, pool, finisher, progress)


class _Job:
    """One call of `write_shards`: pieces computed by a pool, shards finished in order by one more thread."""

    def __init__(self, folder: pathlib.Path, manifest: dict[str, Any], layout: Layout, fill: Fill):
        self._folder = folder
        self._manifest = manifest
        self._layout = layout
        self._fill = fill
        self._open: dict[int, _ShardFiles] = {}
        self._buffers = threading.local()

    def run(
        self,
        shards: list[int],
        pool: concurrent.futures.ThreadPoolExecutor,
        finisher: concurrent.futures.ThreadPoolExecutor,
        progress: Progress | None,
    ) -> None:
        total = self._layout.num_rows
        done = total - sum(stop - start for start, stop in map(self._layout.rows, shards))
        queue: collections.deque[tuple[int, int, int, concurrent.futures.Future[None]]] = (
            collections.deque()
        )
        finishing: collections.deque[concurrent.futures.Future[None]] = collections.deque()
        for shard in shards:
            files = _ShardFiles(self._folder, self._layout, shard)
            self._open[shard] = files
            for start, stop in self._layout.pieces(shard):
                queue.append((shard, start, stop, pool.submit(self._piece, files, start, stop)))
        if progress is not None:
            progress(done, total)
        while queue:
            shard, start, stop, future = queue.popleft()
            future.result()
            done += stop - start
            if progress is not None:
                progress(done, total)
            if stop == self._layout.rows(shard)[1]:
                finishing.append(finisher.submit(self._finish, shard))
            while finishing and finishing[0].done():
                finishing.popleft().result()
        for waiting in finishing:
            waiting.result()

    def _piece(self, files: "_ShardFiles", start: int, stop: int) -> None:
        layout = self._layout
        if not hasattr(self._buffers, "features"):
            # Reused by every piece of this thread: fresh pages would cost as much as the writing.
            self._buffers.features = np.empty(
                (PIECE, layout.num_points, layout.num_channels), "<f4"
            )
            self._buffers.labels = np.empty((PIECE, layout.num_labels), "<f4")
        features, labels = (
            self._buffers.features[: stop - start],
            self._buffers.labels[: stop - start],
        )
        self._fill(start, stop, features, labels)
        files.write("features", start, features)
        files.write("labels", start, labels)

    def _finish(self, shard: int) -> None:
        self._manifest["shards"][shard] = self._open[shard].finish()
        del self._open[shard]
        write_json(self._folder / MANIFEST, self._manifest)

    def abandon(self) -> None:
        for files in self._open.values():
            files.abandon()


class _AbandonedError(Exception):
    """Tells `atomic_write` to remove its temporary file."""


class _ShardFiles:
    """The two files of one shard while they are written under temporary names."""

    def __init__(self, folder: pathlib.Path, layout: Layout, shard: int):
        self._paths = {name: layout.path(folder, name, shard) for name in ARRAYS}
        self._first_row = layout.rows(shard)[0]
        self._row_bytes = {name: layout.row_bytes(name) for name in ARRAYS}
        self._checksums = {name: [0] * len(layout.pieces(shard)) for name in ARRAYS}
        self._lock = threading.Lock()
        self._stacks: dict[str, contextlib.ExitStack] = {}
        self._files: dict[str, IO[bytes]] = {}

    def write(self, name: str, start: int, values: Floats) -> None:
        """Writes one piece that begins at row `start`; pieces may come in any order and from any thread."""
        descriptor = self._descriptor(name)
        content = values.reshape(-1).view(np.uint8).data
        self._checksums[name][(start - self._first_row) // PIECE] = zlib.crc32(content)
        offset = (start - self._first_row) * self._row_bytes[name]
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], offset + written)
            # Sends the pages to the disk now, while other pieces are computed, so that the fsync at the end finds
            # little left to do.
            os.posix_fadvise(descriptor, offset, len(content), os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise write_error(self._paths[name], error) from error

    def _descriptor(self, name: str) -> int:
        with self._lock:
            if name not in self._files:
                stack = contextlib.ExitStack()
                self._files[name] = stack.enter_context(atomic_write(self._paths[name]))
                self._stacks[name] = stack
            return self._files[name].fileno()

    def finish(self) -> dict[str, str]:
        """Puts both files on the disk under their own names; returns their checksums."""
        for name in ARRAYS:
            self._stacks.pop(name).close()
        return {name: combined_checksum(self._checksums[name]) for name in ARRAYS}

    def abandon(self) -> None:
        """Removes the temporary files."""
        for stack in self._stacks.values():
            with contextlib.suppress(_AbandonedError), stack:
                raise _AbandonedError
        self._stacks.clear()
