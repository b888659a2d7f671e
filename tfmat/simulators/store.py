"""The stored runs of a simulator, and who makes which of them: one process all, or several workers a share each."""

import contextlib
import dataclasses
import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterator

import numpy as np

from tfmat.errors import InputError
from tfmat.files import (
    atomic_write,
    check_json,
    is_locked,
    locked,
    make_folder,
    read_json,
    write_json,
)
from tfmat.simulators.description import Description
from tfmat.simulators.runs import Deck, Outcome

RUNS, _RUNNING, _FIRST = "runs", "running", "first"
# A failure on a disk with less than this is the disk's, not the model's: bytes.
_LEAST_SPACE = 50_000_000


@dataclasses.dataclass(frozen=True)
class Share:
    """What one of several workers makes: every `workers`-th run from number `worker` on, however many there are."""

    worker: int
    workers: int

    @property
    def folder(self) -> str:
        """The name of the folder in which its runs have theirs."""
        return f"{self.worker}_of_{self.workers}"

    def numbers(self, num_runs: int) -> range:
        """Numbers of its runs, of the runs 0 to `num_runs` - 1."""
        return range(self.worker, num_runs, self.workers)


@dataclasses.dataclass(frozen=True)
class FailedRun:
    """What is stored of a run without a curve."""

    failure: str
    log: str
    seconds: float
    values: dict[str, float]


class Store:
    """The runs of one simulator on disk, by the key of their deck: a curve, or why there is none.

    Who makes runs holds the lock of the folder, alone or, with a share, beside other workers; and each worker holds the
    one of its share. A process loses its locks however it ends, so that what a dead one left can be told and removed.
    """

    def __init__(self, folder: pathlib.Path, description: Description):
        self._folder = make_folder(folder / RUNS)
        self._running = make_folder(folder / _RUNNING)
        self._name = description.name

    @contextlib.contextmanager
    def held(self, share: Share | None = None) -> Iterator[pathlib.Path]:
        """Nobody else runs what this process runs; yields the folder in which each run has its own.

        Args:
          share: what is to be run; None for anything, with no other process beside this one.

        Raises:
          InputError: another process runs this simulator, and not a share of as many.
        """
        if share is None:
            with locked(self._folder.parent, busy(self._name, self._folder.parent)):
                _clear(self._running)
                yield self._running
            return
        with self._part(share.folder, f"share {share.worker} of {share.workers}") as place:
            # Each locks its own before it looks at the others, so that one of two sees the other.
            for other in sorted(self._running.glob("*_of_*")):
                workers = int(re.sub(r".*_of_", "", other.name))
                if workers != share.workers and is_locked(other):
                    raise InputError(
                        f"another worker makes a share of {workers} of {self._name}, which is not one of "
                        f"{share.workers}; give --num_workers={workers}, or end it first"
                    )
            yield place

    @contextlib.contextmanager
    def held_for_first(self, share: Share | None) -> Iterator[tuple[pathlib.Path, bool]]:
        """As `held`, for the run in the middle, which all workers want: one makes it, and the others wait.

        Yields:
          The folder in which the run has its own; whether another worker was at it just now.
        """
        if share is None:
            with self.held() as place:
                yield place, False
            return
        waits = is_locked(self._running / _FIRST)
        with self._part(_FIRST, "the run in the middle of the ranges") as place:
            yield place, waits

    @contextlib.contextmanager
    def _part(self, name: str, told: str) -> Iterator[pathlib.Path]:
        """The lock of a folder in `running`, beside others; only what a dead owner left in it is removed."""
        store = self._folder.parent
        with locked(store, busy(self._name, store), shared=True) as has_locks:
            if not has_locks:
                raise InputError(
                    f"the file system of {store} has no locks, by which workers know of each other; choose another "
                    "--data_dir, or leave out --num_workers"
                )
            place = self._running / name
            with locked(place, f"another process makes {told} of {self._name}; waiting", wait=True):
                _clear(place)
                yield place

    def find(self, deck: Deck) -> Outcome | None:
        """What came of a run; None where it was not made yet."""
        curve, failed = self._folder / f"{deck.key}.npz", self._folder / f"{deck.key}.json"
        if curve.is_file():
            return load(curve)
        if failed.is_file():
            one = check_json(read_json(failed), FailedRun, failed)
            return Outcome(one.seconds, failure=one.failure, log=one.log)
        return None

    def keep(self, deck: Deck, outcome: Outcome) -> None:
        """Stores what came of a run; InputError where the disk is full, also where that is why the run failed."""
        failed = self._folder / f"{deck.key}.json"
        if not outcome.failure:
            save(self._folder / f"{deck.key}.npz", outcome)
            failed.unlink(missing_ok=True)
            return
        free = shutil.disk_usage(self._folder).free
        if free < _LEAST_SPACE:
            raise InputError(
                f"a run failed ({outcome.failure}) with {free // 1_000_000} MB left on the disk of {self._folder}; "
                "free some space, and the same command goes on"
            )
        one = FailedRun(outcome.failure, outcome.log, outcome.seconds, dict(deck.values))
        write_json(failed, dataclasses.asdict(one))


def save(path: pathlib.Path, outcome: Outcome) -> None:
    """Writes a run's curve, whole or not at all; see `load`."""
    assert outcome.strain is not None and outcome.stress is not None
    with atomic_write(path) as file:
        np.savez(
            file, strain=outcome.strain, stress=outcome.stress, seconds=np.array(outcome.seconds)
        )


def load(path: pathlib.Path) -> Outcome:
    """The curve of a run; InputError where the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Outcome(float(file["seconds"]), file["strain"], file["stress"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is damaged ({error}); delete it, and its run comes again"
        ) from error


def busy(name: str, folder: pathlib.Path) -> str:
    """The line for who finds another process at the runs of a simulator."""
    return f"another process, here or in a job, runs {name} in {folder}; wait for it or end it"


def _clear(folder: pathlib.Path) -> None:
    """Removes the folders of runs that a killed process left; the lock beside them stays."""
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
