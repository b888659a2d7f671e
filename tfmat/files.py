"""Files that are whole or absent, folders and locks that one process holds, and JSON that is what it should be."""

import ast
import contextlib
import errno
import fcntl
import functools
import json
import logging
import math
import os
import pathlib
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any, TypedDict

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
    # Its name is known before the file is made: a signal may come right after that.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(
            temporary, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8"
        ) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):  # it is gone where it was renamed
            temporary.unlink()


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file, whole or not at all; see `atomic_write`."""
    with atomic_write(path, "w") as file:
        file.write(text)


def write_arrays(path: str | os.PathLike, /, **arrays: Any) -> None:
    """Writes arrays of numbers and texts as an `.npz` file, whole or not at all."""
    import numpy as np  # as for msgspec

    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


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
    write_text(path, json_text(content) + "\n")


def json_text(content: Any) -> str:
    """Indented JSON of what `write_json` takes."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=plain)


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


# --------------------------------------------------------------------------------------------------
# One holder at a time, on any shared file system: no lock daemon, and a dead holder is told from a slow one.
#
# The n-th holder makes the file `n`, which can be made only once (O_EXCL). It gives the lock back by renaming that to
# `n.released`. The highest number says who holds; it is never removed before a higher one is there. So a process that
# was asleep while others came and went finds a higher number, or its own one released, and knows that it came too late.

_LONGEST_WAIT = 0.1  # seconds between two looks


class LockLostError(Exception):
    """Another process took the lock, since this one did not move for too long. Nothing must be written any more."""


class FileLock:
    """A lock in a folder of its own.

    Args:
      folder: made when it is not there.
      stale_after: seconds after which a holder on another machine that does not give back counts as dead. One on this
        machine counts as dead when its process is.
    """

    def __init__(self, folder: pathlib.Path, stale_after: float):
        self._folder = make_folder(folder)
        self._stale_after = stale_after

    @contextlib.contextmanager
    def held(self) -> Iterator["Held"]:
        """Waits for the lock and holds it for the block."""
        number = self._acquire()
        try:
            yield Held(self, number)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._folder / str(number), self._folder / f"{number}.released")

    def _acquire(self) -> int:
        watched, since, wait = -1, 0.0, 0.001
        while True:
            top, released = self._highest()
            if top != watched:
                watched, since = top, time.monotonic()
            late = time.monotonic() - since > self._stale_after
            if (released or late or self._holder_is_dead(top)) and self._take(top + 1):
                return top + 1
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _take(self, number: int) -> bool:
        """Makes the file of this number; False where another one came first."""
        path = self._folder / str(number)
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except OSError as error:
            raise write_error(path, error) from error
        with os.fdopen(descriptor, "w") as file:
            json.dump(this_process(), file)
        if not self.is_top(number):
            path.unlink(missing_ok=True)
            return False
        for other in self._folder.iterdir():
            if _number(other.name) < number:
                other.unlink(missing_ok=True)
        return True

    def is_top(self, number: int) -> bool:
        """Whether the holder of this number still holds."""
        return self._highest() == (number, False)

    def _highest(self) -> tuple[int, bool]:
        """(the highest number, whether it was given back); (0, True) at the very beginning."""
        names = os.listdir(self._folder)
        top = max(map(_number, names), default=0)
        return top, top <= 0 or f"{top}.released" in names

    def _holder_is_dead(self, number: int) -> bool:
        try:
            path = self._folder / str(number)
            return is_dead(check_json(parse_json(path.read_text()), Owner, path))
        except (OSError, ValueError):  # given back meanwhile, or not written yet
            return False


class Held:
    """The lock in the hands of its holder."""

    def __init__(self, lock: FileLock, number: int):
        self._lock, self._number = lock, number

    def check(self) -> None:
        """LockLostError where another process holds it now; call it right before writing."""
        if not self._lock.is_top(self._number):
            raise LockLostError


def _number(name: str) -> int:
    digits = name.removesuffix(".released")
    return int(digits) if digits.isdecimal() else -1


class Owner(TypedDict, total=False):
    """A process: host name, machine since its start and process namespace, number, clock ticks at its start."""

    host: str
    machine: str
    pid: int
    started: int


def this_process() -> Owner:
    """This process, unlike any other: machine since its start, process namespace, number, and time of its start."""
    return owner_of(os.getpid())


def owner_of(pid: int) -> Owner:
    """The same for another process of this machine."""
    return {
        "host": os.uname().nodename,
        "machine": _machine(),
        "pid": pid,
        "started": _start_time(pid),
    }


def is_here(owner: Owner) -> bool:
    """Whether the owner's life and death can be seen from here. A host name would not tell: containers share it."""
    return owner.get("machine") == _machine()


def is_dead(owner: Owner) -> bool:
    """True where the owner is known to have ended; False also where that cannot be known from here."""
    return is_here(owner) and _start_time(owner.get("pid", 0)) != owner.get("started")


@functools.cache
def _machine() -> str:
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _start_time(pid: int) -> int:
    """Clock ticks since the machine's start when the process began; 0 where there is none, or only its remains."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in ("Z", "X"):
            return int(fields[19])
    return 0
