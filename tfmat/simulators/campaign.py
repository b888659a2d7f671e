"""Many runs of a described simulation: run i is the same however many are made; what was run is not run again."""

import asyncio
import collections
import dataclasses
import pathlib
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.stats import qmc

from tfmat.errors import InputError
from tfmat.materials.law import Array
from tfmat.simulators.description import Description
from tfmat.simulators.first_run import refuse_without_effect, why_it_failed
from tfmat.simulators.runs import Deck, Outcome, Solver
from tfmat.simulators.store import Share, Store

# Ends a campaign whose first runs all failed: the model is wrong, and a thousand more would say the same.
_HOPELESS = 20

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

Progress = Callable[[int, int, int], None]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Campaign:
    """The runs that there are of those asked for.

    Attributes:
      drawn: [runs, drawn], the values of all runs that were asked for, in the order of `Description.drawn`.
      outcomes: of each; None for one that was not run yet.
      new: runs that were made by this call; seconds: that they took, each alone.
    """

    description: Description
    drawn: Array
    outcomes: tuple[Outcome | None, ...]
    new: int

    @property
    def missing(self) -> int:
        """How many runs were not made yet: shares of other workers."""
        return self.outcomes.count(None)

    @property
    def failed(self) -> list[int]:
        """Numbers of the runs without a curve."""
        return [i for i, one in enumerate(self.outcomes) if one is not None and one.failure]

    @property
    def complete(self) -> list[int]:
        """Numbers of the runs with a curve."""
        return [i for i, one in enumerate(self.outcomes) if one is not None and not one.failure]


def draw(description: Description, seed: int, count: int) -> Array:
    """Values of the runs 0 to `count` - 1, [runs, drawn], uniform on each scale; more runs leave the first as they are.

    Scrambled Sobol points (Owen 1998) fill the ranges more evenly than independent numbers do.
    """
    sampler = qmc.Sobol(len(description.drawn), scramble=True, rng=np.random.default_rng(seed))
    # The generator wants a power of two, and says so; the points are a sequence all the same.
    points = sampler.random_base2(max(0, int(np.ceil(np.log2(max(count, 1))))))[:count]
    columns = [
        parameter.from_unit_interval(points[:, i]) for i, parameter in enumerate(description.drawn)
    ]
    return np.stack(columns, axis=1)


def try_once(description: Description, folder: pathlib.Path, share: Share | None = None) -> Outcome:
    """Runs the simulation in the middle of its ranges, unless that was done; InputError with the log where it fails."""
    solver = Solver(description)
    refuse_without_effect(solver)
    middle = np.array([parameter.from_unit_interval(0.5) for parameter in description.drawn])
    store = Store(folder, description)
    with store.held_for_first(share) as (place, just_made):
        deck = solver.deck(middle)
        outcome = store.find(deck)
        if outcome is None or (outcome.failure and not just_made):
            outcome = _interruptible(solver.run(deck, place))
            store.keep(deck, outcome)
    if outcome.failure:
        at = ", ".join(f"{name}={value:.4g}" for name, value in deck.values.items())
        raise InputError(
            f"{description.name}: the run in the middle of the ranges has no curve: "
            f"{why_it_failed(description, outcome)} (at {at})"
        )
    return outcome


def run_campaign(
    description: Description,
    folder: pathlib.Path,
    numbers: Sequence[int],
    drawn: Array,
    *,
    processes: int,
    share: Share | None = None,
    retry: bool = False,
    progress: Progress | None = None,
) -> Campaign:
    """Makes what is missing of some runs, as many at once as `processes`; each is stored as soon as it is there.

    Args:
      folder: of the stored runs, for all campaigns of this simulator.
      numbers: which of the runs are to be made; the others are looked up.
      drawn: [runs, drawn], see `draw`.
      share: whose runs `numbers` are, where other workers make the other shares at the same time; None: nobody does.
      retry: also those that failed before.
      progress: called with (runs that are there, of those failed, all of `numbers`).

    Raises:
      InputError: the first runs all failed, the disk is full, another process runs this simulator in `folder`,
        and no other share of as many.
    """
    solver, store = Solver(description), Store(folder, description)
    with store.held(share) as place:
        decks = {i: solver.deck(drawn[i]) for i in numbers}
        found = {i: store.find(deck) for i, deck in decks.items()}
        known = {i: one for i, one in found.items() if one and not (retry and one.failure)}
        missing = {i: deck for i, deck in decks.items() if i not in known}
        work = _Work(solver, store, place, missing, progress)
        work.done, work.failed = len(known), sum(bool(one.failure) for one in known.values())
        work.total = len(decks)
        _interruptible(work.all(processes))
    # The others only now: of several workers, the last to end sees all runs.
    there = known | work.outcomes
    outcomes = (there.get(i) or store.find(solver.deck(drawn[i])) for i in range(len(drawn)))
    return Campaign(description, drawn, tuple(outcomes), len(work.outcomes))


def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, ended in order by the signals that the program handles; then it handles them as ever.

    A handler that raises would do so anywhere in the loop, which swallows what its callbacks raise.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)
    handlers = {number: signal.getsignal(number) for number in _ENDS}
    handled = {number: one for number, one in handlers.items() if callable(one)}
    received: list[int] = []

    async def run() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in handled:
            loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        for one in handled:
            signal.signal(one, handled[one])
        for number in received:
            handled[signal.Signals(number)](number, None)
        raise
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


class _Work:
    """Runs some decks, several at once."""

    def __init__(
        self,
        solver: Solver,
        store: Store,
        place: pathlib.Path,
        decks: dict[int, Deck],
        progress: Progress | None,
    ):
        self._solver, self._store, self._place, self._progress = solver, store, place, progress
        self._decks = collections.deque(decks.items())
        self.outcomes: dict[int, Outcome] = {}
        self.done = self.failed = self.total = 0

    async def all(self, processes: int) -> None:
        if self._progress:
            self._progress(self.done, self.failed, self.total)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(processes, len(self._decks))):
                    group.create_task(self._some())
        # Not except*: Python 3.11.2, which Debian 12 has, makes a group of what is raised in it.
        except ExceptionGroup as errors:
            expected, others = errors.split((InputError, OSError))
            if expected is None or others is not None:
                raise
            raise expected.exceptions[0] from None

    async def _some(self) -> None:
        while self._decks:
            number, deck = self._decks.popleft()
            for _ in range(self._solver.description.retries + 1):
                outcome = await self._solver.run(deck, self._place)
                if not outcome.failure:
                    break
            self._store.keep(deck, outcome)
            self.outcomes[number] = outcome
            self.done += 1
            self.failed += bool(outcome.failure)
            if self._progress:
                self._progress(self.done, self.failed, self.total)
            if self.failed == self.done == _HOPELESS:
                reasons = collections.Counter(one.failure for one in self.outcomes.values())
                often = reasons.most_common(1)[0][0] if reasons else outcome.failure
                raise InputError(f"the first {_HOPELESS} runs all failed, most with: {often}")
