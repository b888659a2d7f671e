"""Files that are whole or absent, folders that one process holds, and JSON that is what it should be. For any room."""

import ast
import contextlib
import errno
import fcntl
import json
import logging
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any

from tfmat.errors import InputError

_LOG = logging.getLogger(__name__)

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

# Signs that a formula begins with in Excel, LibreOffice and Google Sheets.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file, whole or not at all; see `atomic_write`."""
    with atomic_write(path, "w") as file:
        file.write(text)


def sync_folder(folder: str | os.PathLike) -> None:
    """Makes renames inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(
    folder: pathlib.Path, busy: str, wait: bool = False, shared: bool = False
) -> Iterator[bool]:
    """Makes the folder and holds its lock: the file `.lock` in it, which a process loses however it ends.

    Args:
      folder: to hold.
      busy: what is said where another process holds it: the error, or, where this one is to `wait`, a warning.
      shared: beside others who share it, and nobody who does not.

    Yields:
      Whether the lock is held: False on file systems that have no locks.

    Raises:
      InputError: the folder cannot be written or locked, or another process holds it.
    """
    path = make_folder(folder) / ".lock"
    try:
        file = open(path, "a+")  # noqa: SIM115 - closed below, which is what releases the lock
    except OSError as error:
        raise write_error(path, error) from error
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with file:
        try:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise InputError(busy) from None
                _LOG.warning(busy)
                fcntl.flock(file, kind)
            held = True
        except OSError as error:
            held = False
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise InputError(
                    f"cannot lock {folder}: {error.strerror}; choose another folder"
                ) from error
        yield held


def is_locked(folder: pathlib.Path) -> bool:
    """Whether a process holds the lock of a folder (see `locked`)."""
    try:
        with open(folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_json(path: str | os.PathLike, content: Any, *, infinite_is_null: bool = False) -> None:
    """Writes `content`, which may hold msgspec's structs, as indented JSON, whole or not at all.

    JSON has no infinite numbers: ValueError, unless they are to be null.
    """
    if infinite_is_null:
        content = parse_json(json.dumps(content, default=plain), nan_is_none=True)
    with atomic_write(path, "w") as file:
        json.dump(content, file, indent=2, ensure_ascii=False, allow_nan=False, default=plain)
        file.write("\n")


def plain(struct: Any) -> Any:
    """A struct of msgspec's, or a number or an array of NumPy's, as JSON holds it."""
    import msgspec

    return msgspec.to_builtins(struct, enc_hook=lambda number: number.tolist())


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file; raises InputError where it is missing or not JSON, or holds a number that is not finite."""
    try:
        return parse_json(pathlib.Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); it may be damaged") from error


def parse_json(text: str, nan_is_none: bool = False) -> Any:
    """The content of a JSON text; ValueError where it is none, or holds NaN or a whole number beyond 64 bits.

    Args:
      nan_is_none: NaN and infinite numbers, which Python's own writer puts into JSON, are None instead.
    """

    def finite(text: str) -> float | None:
        value = float(text)
        if math.isfinite(value) or nan_is_none:
            return value if math.isfinite(value) else None
        raise ValueError(f"{text[:30]} is no finite number")

    def whole(text: str) -> int:
        value = int(text)
        if -(2**63) <= value < 2**63:
            return value
        raise ValueError(f"{text[:30]} is more than a whole number of 64 bits holds")

    try:
        return json.loads(text, parse_constant=finite, parse_float=finite, parse_int=whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def literal(text: str) -> Any:
    """The value of a Python literal such as `(1, 2)`; ValueError for every other text, however long."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("it is no literal") from None


def spreadsheet_row(cells: Iterable[Any]) -> list[Any]:
    """Cells of a CSV file; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    return [f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell for cell in cells]


def _is_formula(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return len(text) > 1 and text.startswith(_FORMULA)
    return False


def spreadsheet_text(table: Any) -> str:
    """A pandas table as CSV; see `spreadsheet_row`."""
    safe = table.set_axis(spreadsheet_row(table.columns), axis=1)
    for place in range(safe.shape[1]):
        column = list(safe.iloc[:, place])
        if spreadsheet_row(column) != column and safe.dtypes.iloc[place].kind not in "biufcmM":
            safe.isetitem(place, spreadsheet_row(column))
    text: str = safe.to_csv(index=False)
    return text


def as_json(content: Any) -> Any:
    """The content after it was written and read: lists, dictionaries, Python's own numbers."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else list(value)

    return json.loads(json.dumps(content, default=plain))


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    """`{"model": {"filters": 32}}` -> `{"model.filters": 32}`; an empty dictionary leaves nothing."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= (
            flatten(value, f"{prefix}{key}.") if hasattr(value, "items") else {prefix + key: value}
        )
    return flat


def first_difference(
    before: Mapping[str, Any], now: Mapping[str, Any], changeable: Collection[str] = ()
) -> str | None:
    """The first key, of both and by name, whose values differ; None where all but the `changeable` are the same."""
    keys = sorted((before.keys() | now.keys()) - set(changeable))
    return next((key for key in keys if before.get(key) != now.get(key)), None)


def check_json(content: Any, kind: Any, where: str | os.PathLike) -> Any:
    """Checks what was read from JSON against a type, and makes an object of it.

    Args:
      content: dictionaries, lists, strings, numbers, True, False, None.
      kind: a dataclass, a TypedDict, or a type such as `dict[str, float]`; msgspec says what is understood. Other keys
        than a dataclass or TypedDict names are left out: a later tfmat may write them.
      where: the file, for the message.

    Raises:
      InputError: naming the file and the key.
    """
    import msgspec  # where nothing is read, the command need not wait for it: 30 ms

    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        key, what = what_is_invalid(error, content, kind)
        raise InputError(f"{where} is damaged: {f'{key}: ' if key else ''}{what}") from error


def what_is_invalid(error: Exception, content: Any, kind: Any) -> tuple[str, str]:
    """The key of `content` that msgspec complains of in `error`, `a.b.c`, and its complaint in one line."""
    what, _, key = " ".join(str(error).split()).partition(" - at `$")
    return _with_names(content, kind, key.rstrip("`")).removeprefix("."), what


def _with_names(content: Any, kind: Any, key: str) -> str:
    """msgspec's `.trials[...].lost` as `.trials.0003.lost`: it does not say which entry of a dictionary it means."""
    import msgspec

    path, place, found = "", content, content
    for part in re.findall(r"\[\d+\]|\[\.\.\.\]|\.[^.\[]+", key):
        if part == "[...]" and isinstance(place, dict):
            whole = dict(place)
            for name, value in whole.items():
                place.clear()
                place[name] = value
                try:
                    msgspec.convert(content, kind)
                except msgspec.ValidationError:
                    part, found = f".{name}", value
                    break
            place.clear()
            place.update(whole)
        else:
            try:
                found = place[int(part[1:-1])] if part[0] == "[" else place[part[1:]]
            except (KeyError, IndexError, TypeError, ValueError):
                found = None
        path, place = path + part, found
    return path
