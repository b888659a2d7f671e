"""A training that is started again by itself where ranks or hosts are lost, and goes on with those that are left.

Each start is an ordinary `mpirun … tfmat train …`, which goes on from the last checkpoint of the run's folder. A start
that ends in any other way than done, refused, diverged or interrupted is a loss: hosts that do not answer any more are
left out, and the rest starts at once. While hosts are missing they are asked again and again; when one is back, the
ranks save, and all start again with it.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfmat.console import clock_text
from tfmat.errors import DivergedError, InputError, Interrupted, WorkerLostError
from tfmat.files import is_locked, make_folder
from tfmat.launch.hosts import Host, count_ranks, missing_hosts, ranks_text
from tfmat.launch.incidents import History, Incident
from tfmat.launch.mpirun import Launch
from tfmat.ranks.verdict import name_ranks

_LOOK = 0.2  # seconds between two looks
_TO_SAVE = 120.0  # seconds: the present block of steps, then the checkpoint, on a busy machine
_LONGEST_PAUSE = 30.0  # seconds before a start that follows several without progress
_REFUSED = (InputError.exit_status, DivergedError.exit_status)
_SAVED = (Interrupted.exit_status, 138)  # the latter: asked by SIGUSR1 before it could take signals


@dataclasses.dataclass(frozen=True)
class Policy:
    """How long a run is started again.

    Attributes:
      min_ranks: with fewer nothing is started.
      restarts: how often it is started again without a new checkpoint in between.
      probe_every: seconds between two questions to a host that is missing.
      wait_for_hosts: seconds to wait where the hosts that answer have fewer than `min_ranks` ranks.
    """

    min_ranks: int = 1
    restarts: int = 5
    probe_every: float = 30.0
    wait_for_hosts: float = 600.0


@dataclasses.dataclass(frozen=True)
class RunState:
    """Where a run stands, as its folder tells.

    Attributes:
      start: a number that grows with every start that found an earlier one.
      under_way: the run's clock (seconds) after the first block of steps of this start; None before that.
      over: whether nothing trains any more.
    """

    start: int = 0
    under_way: float | None = None
    over: bool = False


@dataclasses.dataclass(frozen=True)
class Progress:
    """How to look at a run's folder.

    Attributes:
      state: as above.
      saved: step of the newest checkpoint and the run's clock (seconds) in it; zeros where there is none.
    """

    state: Callable[[], RunState]
    saved: Callable[[], tuple[int, float]]


class Restarts:
    """The supervisor of one run.

    Args:
      hosts: in the order of the ranks.
      command: of one rank.
      folder: of the run.
      progress: how far it has come.
      log: takes a line for people.

    Raises InputError where the folder's history is damaged.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        command: Sequence[str],
        policy: Policy,
        folder: pathlib.Path,
        progress: Progress,
        log: Callable[[str], None],
    ):
        self._hosts, self._command, self._policy = tuple(hosts), command, policy
        self._folder, self._progress, self._log = make_folder(folder), progress, log
        self._history = History(self._folder)
        self._missing: Mapping[Host, str] = {}
        self._used: tuple[Host, ...] = ()
        self._incident: Incident | None = None  # until training goes on
        self._noticed_at = 0.0
        self._under_way: float | None = None
        self._over_at: float | None = None
        self._asked: concurrent.futures.Future[Mapping[Host, str]] | None = None
        self._productive = 0.0

    def run(self) -> int:
        """Trains to the end; returns the exit status of the ranks: done, refused, diverged or interrupted.

        Raises:
          WorkerLostError: too many losses without progress, or too few hosts for too long.
          Interrupted, KeyboardInterrupt: after the ranks have saved.
        """
        self._started = time.monotonic()
        self._counts = not self._progress.state().over  # else nothing trains, and the history stays
        (reached, _), failures = self._progress.saved(), 0
        with concurrent.futures.ThreadPoolExecutor(2) as self._pool, self._told_history():
            self._missing = missing_hosts(self._hosts)
            while True:
                self._wait_for_hosts()
                status, cause = self._train()
                if status in (0, *_REFUSED, *_SAVED):
                    return Interrupted.exit_status if status in _SAVED else int(status or 0)
                step, _ = self._progress.saved()
                if step > reached:
                    reached, failures = step, 0
                if status is None:
                    self._note("hosts back", cause, step)
                    continue
                failures += 1
                self._note("loss", cause, step)
                if failures > self._policy.restarts:
                    raise WorkerLostError(
                        f"{failures} loss{'es' if failures > 1 else ''} without progress beyond step {step}, more than "
                        f"--restarts={self._policy.restarts}; the last: {cause}; mend it, then start the same command "
                        "again to go on"
                    )
                time.sleep(min(2.0 ** (failures - 2), _LONGEST_PAUSE) if failures > 1 else 0.0)

    def _train(self) -> tuple[int | None, str]:
        """One start; returns its exit status, or None where it saved to start again with hosts that are back, and why.

        Interrupted, it waits until the ranks have saved.
        """
        if self._incident is not None:
            self._incident["ranks"] = count_ranks(self._used)
            self._log(
                f"starting again from step {self._incident['step']} with {ranks_text(self._used)}"
            )
            self._wait_for_folder()
        self._asked = None
        self._before, self._under_way = self._progress.state(), None
        launch = Launch(self._used, self._command)
        try:
            status, back = self._watch(launch)
        except (KeyboardInterrupt, Interrupted):
            launch.save()
            if launch.wait_for_save(_TO_SAVE) == 0:  # it was done before it could hear
                return 0, ""
            raise
        finally:
            ended_at = time.monotonic()
            launch.end()
            # Where Ctrl-C came between two looks, what was trained before it counts all the same.
            self._look(ended_at)
            self._count_productive()
        if back and status in _SAVED:
            return None, back
        if status not in (0, *_REFUSED, *_SAVED):
            self._noticed_at = launch.lost_at or time.monotonic()
        return status, launch.cause

    def _watch(self, launch: Launch) -> tuple[int, str]:
        """Waits for the end of mpirun; returns its status, and for which hosts that are back it saved, or ""."""
        back, asked_at, silent = "", 0.0, set[Host]()
        probe: concurrent.futures.Future[Mapping[Host, str]] | None = None
        probe_at = time.monotonic() + self._policy.probe_every
        while (status := launch.wait(_LOOK)) is None:
            now = time.monotonic()
            self._look(now)
            if back and now - asked_at > _TO_SAVE:
                return launch.end(), back
            if launch.lost_at is not None:
                self._asked = self._asked or self._pool.submit(missing_hosts, self._hosts)
                if now > launch.deadline:
                    return launch.end(grace=0), back
                continue
            if self._over_at or back:
                continue
            starts = self._under_way is None
            if probe is None and (starts or self._missing) and now > probe_at:
                probe = self._pool.submit(missing_hosts, self._hosts)
            elif probe is not None and probe.done():
                gone, probe, probe_at = probe.result(), None, now + self._policy.probe_every
                found = [host for host in self._missing if host not in gone]
                before, silent = silent, {host for host in self._used if host in gone}
                if starts and before & silent:  # mpirun waits forever for a daemon that never calls
                    return launch.end(grace=0, cause="a host fell silent before the ranks met"), ""
                if found and not starts:
                    back, asked_at = (
                        f"{', '.join(host.name for host in found)} answer{'s' * (len(found) == 1)} again",
                        now,
                    )
                    self._log(f"{back}: saving, to start again with more ranks")
                    self._noticed_at = now
                    launch.save()
        return status, back

    def _look(self, now: float) -> None:
        """Notices that training goes on, and that it is over."""
        state = self._progress.state()
        if self._under_way is None and state != self._before and state.under_way is not None:
            self._under_way = state.under_way
            if self._incident is not None:
                seconds = now - self._noticed_at
                self._incident["seconds"] = round(seconds, 1)
                self._log(
                    f"training goes on after {seconds:.1f} s, from step {self._incident['step']} with "
                    f"{ranks_text(self._used)}"
                )
                self._incident = None
        if state.over and self._over_at is None:
            self._over_at = now

    def _note(self, kind: str, cause: str, step: int) -> None:
        """Tells and keeps what happened, and finds out who is left."""
        before = self._missing
        self._missing = self._asked.result() if self._asked else missing_hosts(self._hosts)
        lost = [host for host in self._used if host in self._missing]
        first, numbers = 0, {}
        for host in self._used:
            numbers[host] = name_ranks(range(first, first + host.slots))
            first += host.slots
        if kind == "loss":
            self._log(f"lost: {cause}")
            for host in lost:
                self._log(f"lost: host {host.name} with {numbers[host]}: {self._missing[host]}")
            for host in before.keys() - self._missing.keys():
                self._log(f"{host.name} answers again")
        self._incident = self._history.add(kind, cause, [host.name for host in lost])
        self._incident["step"] = step
        self._history.count(self._wall, self._productive)

    def _wait_for_hosts(self) -> None:
        """Chooses the hosts that answer, once they have `min_ranks` ranks.

        Raises:
          WorkerLostError: they do not in time.
        """
        deadline, told = time.monotonic() + self._policy.wait_for_hosts, False
        while True:
            self._used = tuple(host for host in self._hosts if host not in self._missing)
            left, least = count_ranks(self._used), self._policy.min_ranks
            if not told and self._missing and self._incident is None:
                for host, why in self._missing.items():
                    self._log(f"{host.name} takes no ranks now ({why}); it is asked again")
            if left >= least:
                return
            missing = ", ".join(f"{host.name} ({why})" for host, why in self._missing.items())
            if time.monotonic() > deadline:
                raise WorkerLostError(
                    f"{left} rank{'' if left == 1 else 's'} left, --min_ranks={least}, and nobody came back within "
                    f"{self._policy.wait_for_hosts:g} s; missing: {missing}; start the same command again to go on"
                )
            if not told:
                self._log(
                    f"{left} rank{'' if left == 1 else 's'} left, --min_ranks={least}: waiting for "
                    f"{clock_text(self._policy.wait_for_hosts)} for {missing}"
                )
            told = True
            time.sleep(min(self._policy.probe_every, max(0.0, deadline - time.monotonic())))
            self._missing = missing_hosts(self._hosts)

    def _wait_for_folder(self) -> None:
        """A rank of the start before may hold the folder until it notices that it is lost: then it ends by itself."""
        deadline = time.monotonic() + _TO_SAVE
        while is_locked(self._folder) and time.monotonic() < deadline:
            time.sleep(_LOOK)

    def _count_productive(self) -> None:
        if self._under_way is not None:
            self._productive += max(0.0, self._progress.saved()[1] - self._under_way)

    @property
    def _wall(self) -> float:
        return (self._over_at or time.monotonic()) - self._started

    @contextlib.contextmanager
    def _told_history(self) -> Iterator[None]:
        """However it ends, the history is kept and told in a line."""
        try:
            yield
        finally:
            if self._counts and (self._productive or self._history.grew):
                self._history.count(self._wall, self._productive)
                self._log(self._history.summary())
