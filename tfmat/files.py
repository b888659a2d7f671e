"""Files that are whole or absent: temporary name, fsync, rename. Any room may use this one."""

import contextlib
import errno
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from tfmat.errors import InputError

_REMEDIES = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some of your quota or choose another folder",
    errno.EFBIG: "raise the file size limit or choose another folder",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that can be written",
    errno.EPERM: "choose a folder that can be written",
    errno.ENOTDIR: "choose another folder",
    errno.EEXIST: "choose another folder",
}


def write_error(path: str | os.PathLike, error: OSError) -> InputError:
    """Turns an operating-system error while writing `path` into the one line that a user can act on."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "check the path and its folder")
    return InputError(f"cannot write {path}: {reason}; {remedy}")


def make_folder(path: str | os.PathLike) -> pathlib.Path:
    """Makes `path` and its parents; raises InputError where that cannot be done."""
    folder = pathlib.Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return folder


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Opens a temporary file beside `path` and renames it to `path` when the block ends without an exception.

    Whatever happens, `path` is either what it was before or the whole new content. Raises InputError for
    what the operating system refuses (full disk, read-only folder).
    """
    path = pathlib.Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".tmp", dir=path.parent
        )
        with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner can read; data sets and runs are shared like any other file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
        temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def sync_folder(folder: str | os.PathLike) -> None:
    """Makes renames inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Writes `content` as indented JSON, whole or not at all."""
    with atomic_write(path, "w") as file:
        json.dump(content, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file; raises InputError where it is missing or not JSON."""
    try:
        return json.loads(pathlib.Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); it may be damaged") from error
