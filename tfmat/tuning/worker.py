"""One worker: takes a trial, runs it, records its end, until the search has ended."""

import os
import pathlib
import signal
import time
from types import FrameType

from tfmat.console import log
from tfmat.errors import Interrupted
from tfmat.tuning.claims import Claims
from tfmat.tuning.results import record_end
from tfmat.tuning.state import TrialRecord, read_state, state_path
from tfmat.tuning.status import WorkerName
from tfmat.tuning.trial import TrialLostError, TrialRun

# An idle worker looks whether search.json is another one: 20 times a second at first, once a second later. A look costs
# some microseconds.
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0


class Worker:
    """One worker of a search that was opened.

    Args:
      workdir: of the search.
      name: no other living worker has it; the same again after a restart.
      lease: seconds without a sign of life after which others take its trial, if they cannot see its process.
    """

    def __init__(self, workdir: str | os.PathLike, name: str, lease: float):
        self._workdir = pathlib.Path(workdir)
        self._name, self._lease = name, lease
        self._beat = max(0.1, min(lease / 6, 5.0))
        self._stop = 0

    def run(self) -> None:
        """Works until the search has ended.

        Raises:
          Interrupted: a signal came; the trial is saved and given back.
          InputError: another worker has this name.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._note)
        self._alive = WorkerName(self._workdir, self._name, self._lease)
        self._claims = Claims(self._workdir, self._name, self._lease)
        self._unrecorded: list[str] = []
        record = self._claims.claim()
        while not self._stop:
            if record is not None:
                record = self._run(record)
            elif read_state(self._workdir).ended:
                self._record_ends()
                return
            else:
                self._record_ends()
                self._wait()
                record = self._claims.claim()
        self._record_ends()
        if record is not None:
            self._claims.release(record, "not begun")
        raise Interrupted(f"{signal.Signals(self._stop).name} received")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._stop = number

    def _run(self, record: TrialRecord) -> TrialRecord | None:
        """Runs a trial and records its end; returns the next one, claimed in the same step."""
        _log(f"trial {record.trial_id}: {record.values}")
        state = read_state(self._workdir)
        run = TrialRun(
            workdir=self._workdir,
            state=state,
            record=record,
            still_mine=lambda: self._still_mine(record),
            stop=lambda: bool(self._stop),
            beat=self._beat,
        )
        try:
            outcome = run.run()
        except TrialLostError as error:
            _log(f"trial {record.trial_id}: {error}")
            if error.mine:
                self._claims.release(record, str(error), lost=True)
            return None if self._stop else self._claims.claim()
        if outcome is None:
            self._claims.release(record, "saved; goes on when the search does")
            return None
        _log(f"trial {record.trial_id}: {outcome.state} {outcome.value} {outcome.reason}")
        counted, following = self._claims.end(record, outcome, claim_next=not self._stop)
        if counted:
            self._unrecorded.append(record.trial_id)
        return following

    def _record_ends(self) -> None:
        """best.py and TensorBoard's files, for which no trial has to wait: the next one trains meanwhile."""
        while self._unrecorded:
            record_end(self._workdir, self._unrecorded.pop())

    def _still_mine(self, record: TrialRecord) -> bool:
        self._record_ends()
        self._alive.beat()
        return self._claims.still_mine(record)

    def _wait(self) -> None:
        """Returns when another worker changed the search, or one may have died."""
        path, look = state_path(self._workdir), _FIRST_LOOK
        seen, until = path.stat().st_mtime_ns, time.monotonic() + max(self._beat, 1.0)
        while not self._stop and time.monotonic() < until and path.stat().st_mtime_ns == seen:
            time.sleep(look)
            look = min(1.5 * look, _LONGEST_LOOK)
        self._alive.beat()


def _log(line: str) -> None:
    """Adds a line to the worker's own log."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    log(f"{now} {line}")
