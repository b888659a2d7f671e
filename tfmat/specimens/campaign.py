"""Campaigns of simulations: the first run, many of them, and what they make: data sets, checked answers, a network."""

import asyncio
import collections
import csv
import dataclasses
import hashlib
import pathlib
import re
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import scipy.optimize
from scipy.stats import qmc

from tfmat.data.dataset import PackedDataset, plain_name
from tfmat.data.imported import PARTS, import_dataset
from tfmat.errors import InputError
from tfmat.files import atomic_write, make_folder, spreadsheet_row, write_arrays
from tfmat.materials.law import Array
from tfmat.records.laboratory import Laboratory
from tfmat.specimens.emulator import Facts, ForwardNetwork, inputs_of, write_law
from tfmat.specimens.program import (
    Description,
    Outcome,
    Share,
    Solver,
    Store,
    named_error,
    telling_line,
)

if TYPE_CHECKING:
    import keras

# --------------------------------------------------------------------------------------------------
# Findings of a description's first run: values without effect, and why the run failed.


# The beginning of a failure -> what to do about it: failures of the program, then of its curve.
_OF_PROGRAM = {
    "exit status": "",
    "ended by": "",
    "not finished after": "; raise time_limit, or make the model smaller",
    "did not print": "; `finished` is a text that the program prints at its end, and only there",
}
_OF_CURVE = {
    "the run wrote no": "; curve.file is the file in which the program leaves its curve",
    "ended at": "; curve.end is what a whole run reaches, curve.displacement what the deck prescribes, both in mm",
}
_NO_FILE = re.compile(r"cannot open file (\S+)|no such file", re.IGNORECASE)


def why_it_failed(description: Description, outcome: Outcome) -> str:
    """The failure of a run, what its program said of it, and what to do, in one line."""
    failure = outcome.failure
    for start, remedy in _OF_CURVE.items():
        if failure.startswith(start):
            return failure + remedy
    for start, remedy in _OF_PROGRAM.items():
        if not failure.startswith(start):
            continue
        said = telling_line(outcome.log)
        if _NO_FILE.search(said):
            has = ", ".join((*description.templates, *description.files))
            remedy = f"; a run has the files that `templates` and `files` name: {has}"
        elif said and said == named_error(outcome.log):
            remedy = ""  # the program knows better
        return f"{failure}{remedy}" + (f"; its output says: {said}" if said else "")
    return failure


def refuse_without_effect(solver: Solver) -> None:
    """Raises InputError where a drawn value or a constant changes no file that a run is given.

    `Solver` finds values that no template names. Where `derive` takes them, only what it makes of them tells; what a
    `parse` reads cannot be seen here.
    """
    description = solver.description
    if description.derive is None or description.parse is not None:
        return
    middle = description.middle
    texts = solver.deck(middle).texts
    for i, parameter in enumerate(description.drawn):
        moved = middle.copy()
        moved[i] = parameter.from_unit_interval(0.75)
        if solver.deck(moved).texts == texts:
            _refuse(solver, parameter.name, "has the same value in every run")
    for name in description.constants:
        if _texts_without(solver, name, middle) == texts:
            _refuse(solver, name, "is a constant that nobody uses")


def _texts_without(solver: Solver, name: str, drawn: Array) -> object:
    """The texts of a run without one of the constants; None where it cannot be made then."""
    description = solver.description
    others = {one: value for one, value in description.constants.items() if one != name}
    fewer = msgspec.structs.replace(description, constants=others, version=())
    try:
        return Solver(fewer).deck(drawn).texts
    except InputError:
        return None


def _refuse(solver: Solver, name: str, what: str) -> None:
    description = solver.description
    raise InputError(
        f"{description.folder}: no file of a run depends on '{name}', so that it {what}; use it in "
        f"{', '.join(description.templates)} or in derive, or leave it out"
    )


# --------------------------------------------------------------------------------------------------
# Many runs of a described simulation: run i is the same however many are made; what was run is not run again.


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
    store = Store(folder, description)
    with store.held_for_first(share) as (place, just_made):
        deck = solver.deck(description.middle)
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
    """Makes what is missing of some runs, `processes` of them at once; each is stored when it ends.

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
        stored = {i: store.find(deck) for i, deck in decks.items()}
        there = {i: one for i, one in stored.items() if one and not (retry and one.failure)}
        missing = collections.deque((i, deck) for i, deck in decks.items() if i not in there)
        new, failed = len(missing), sum(bool(one.failure) for one in there.values())

        async def one_after_the_other() -> None:
            nonlocal failed
            while missing:
                number, deck = missing.popleft()
                for _ in range(description.retries + 1):
                    outcome = await solver.run(deck, place)
                    if not outcome.failure:
                        break
                store.keep(deck, outcome)
                there[number] = outcome
                failed += bool(outcome.failure)
                if progress:
                    progress(len(there), failed, len(decks))
                if failed == len(there) == _HOPELESS:
                    ((often, _),) = collections.Counter(
                        one.failure for one in there.values()
                    ).most_common(1)
                    raise InputError(f"the first {_HOPELESS} runs all failed, most with: {often}")

        if progress:
            progress(len(there), failed, len(decks))
        _interruptible(_at_once(one_after_the_other, min(processes, new)))
    # The others only now: of several workers, the last to end sees all runs.
    outcomes = (there.get(i) or store.find(solver.deck(drawn[i])) for i in range(len(drawn)))
    return Campaign(description, drawn, tuple(outcomes), new)


async def _at_once(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """So many of the same at once; the first InputError or OSError ends all."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    # Not except*: Python 3.11.2, which Debian 12 has, makes a group of what is raised in it.
    except ExceptionGroup as errors:
        expected, others = errors.split((InputError, OSError))
        if expected is None or others is not None:
            raise
        raise expected.exceptions[0] from None


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


# --------------------------------------------------------------------------------------------------
# From a described simulation to a data set: runs, noisy copies of them, and where in the ranges runs failed.


# FEWEST_RUNS: with a curve, which a data set needs. COPIES: of each curve, with other noise.
FEWEST_RUNS = 10
COPIES = 50
FAILURES = "failures.csv"
# One run of ten tests, two validate.
_TEST, _VALIDATION, _OF = 1, 2, 10


@dataclasses.dataclass(frozen=True)
class FailedShare:
    """How many runs failed, of how many, in the low, middle and high third of a parameter's range, on its scale."""

    name: str
    failed: tuple[int, ...]
    made: tuple[int, ...]


def runs_folder(description: Description, data_dir: str | pathlib.Path) -> pathlib.Path:
    """Where the runs of a simulator are stored, beside its data sets."""
    return pathlib.Path(data_dir) / f"{plain_name(description.name)}.runs"


def make_runs(
    description: Description,
    data_dir: str | pathlib.Path,
    num_runs: int,
    *,
    seed: int = 0,
    processes: int = 1,
    retry: bool = False,
    progress: Progress | None = None,
    first: Callable[[Outcome], None] | None = None,
    share: Share | None = None,
) -> Campaign:
    """Makes the runs that are missing of `num_runs`, after one in the middle of the ranges, which tells a wrong deck.

    Run i has the same values, and is in the same part of data sets, however many there are.

    Args:
      data_dir: beside whose data sets the runs are stored.
      seed: of the values.
      first: called with the run in the middle, before the others begin.
      processes, retry, progress, share: see `run_campaign`.

    Raises:
      InputError: a wrong description, the run in the middle or the first runs fail, nothing can be written.
    """
    folder = runs_folder(description, data_dir)
    outcome = try_once(description, folder, share)
    if first is not None:
        first(outcome)
    campaign = run_campaign(
        description,
        folder,
        share.numbers(num_runs) if share else range(num_runs),
        draw(description, seed, num_runs),
        processes=processes,
        share=share,
        retry=retry,
        progress=progress,
    )
    if not campaign.missing:
        write_failures(folder / FAILURES, campaign)
    return campaign


def pack_runs(
    campaign: Campaign,
    data_dir: str | pathlib.Path,
    *,
    seed: int = 0,
    copies: int = COPIES,
    laboratory: Laboratory | None = None,
    num_threads: int | None = None,
) -> PackedDataset:
    """A data set of runs that are all there: noisy copies, parted by run; of ten runs one tests and two validate.

    Args:
      seed: of the parts and the noise.
      copies: of each run that trains or validates; one that tests has one.
      laboratory: what copies have beside the run's curve; None: what the description says.

    Raises:
      InputError: too few runs have a curve, copies would be equal, or nothing can be written.
    """
    if len(campaign.complete) < FEWEST_RUNS:
        raise InputError(
            f"{len(campaign.complete)} of {len(campaign.outcomes)} runs have a curve; at least {FEWEST_RUNS} are needed"
        )
    return import_dataset(
        _write_curves(runs_folder(campaign.description, data_dir), campaign, seed),
        data_dir=data_dir,
        copies=copies,
        laboratory=laboratory or campaign.description.laboratory,
        seed=seed,
        num_threads=num_threads,
    )


def parts_of(count: int, seed: int) -> list[str]:
    """The purpose of each of the first runs: one of PARTS."""
    found: list[str] = []
    for block in range(-(-count // _OF)):
        places = np.random.default_rng([seed, block]).permutation(_OF)
        found += [
            PARTS[2] if place < _TEST else PARTS[1] if place < _TEST + _VALIDATION else PARTS[0]
            for place in places
        ]
    return found[:count]


def _write_curves(folder: pathlib.Path, campaign: Campaign, seed: int) -> pathlib.Path:
    """The complete runs as a file of labelled curves (see `read_labelled`), in a folder that its content names."""
    parameters, parts = campaign.description.parameters, parts_of(len(campaign.outcomes), seed)
    complete = campaign.complete
    curves = [one.curve() for i in complete if (one := campaign.outcomes[i]) is not None]
    arrays = {
        "strain": np.stack([strain for strain, _ in curves]),
        "stress": np.stack([stress for _, stress in curves]),
        "parameters": campaign.drawn[complete, : len(parameters)],
        "names": np.array([parameter.name for parameter in parameters]),
        "units": np.array([parameter.unit for parameter in parameters]),
        "scale": np.array([parameter.scale for parameter in parameters]),
        "low": np.array([parameter.low for parameter in parameters]),
        "high": np.array([parameter.high for parameter in parameters]),
        "part": np.array([parts[i] for i in complete]),
        "run": np.array(complete),
    }
    content = hashlib.sha256()
    for array in arrays.values():
        content.update(array.tobytes())
    place = make_folder(folder / "curves" / content.hexdigest()[:8])
    path = place / f"{plain_name(campaign.description.name)}_{len(campaign.outcomes)}.npz"
    if not path.exists():
        write_arrays(path, **arrays)
    return path


def failed_shares(campaign: Campaign) -> list[FailedShare]:
    """Where in its range each parameter's runs failed."""
    made = sorted([*campaign.failed, *campaign.complete])
    failed = np.isin(made, campaign.failed)
    shares = []
    for column, parameter in enumerate(campaign.description.drawn):
        share = parameter.to_unit_interval(campaign.drawn[made, column])
        third = np.clip((3 * share).astype(int), 0, 2)
        counts = (np.bincount(third[failed], minlength=3), np.bincount(third, minlength=3))
        shares.append(FailedShare(parameter.name, *(tuple(map(int, one)) for one in counts)))
    return shares


def write_failures(path: pathlib.Path, campaign: Campaign) -> None:
    """A table of the failed runs, one a row: number, values, reason, what the program said of it."""
    names = [parameter.name for parameter in campaign.description.drawn]
    with atomic_write(path, "w") as file:
        writer = csv.writer(file)
        writer.writerow(["run", *names, "failure", "said"])
        for number in campaign.failed:
            outcome = campaign.outcomes[number]
            assert outcome is not None
            values = [f"{value:.6g}" for value in campaign.drawn[number]]
            said = telling_line(outcome.log)
            writer.writerow(spreadsheet_row([number, *values, outcome.failure, said]))


# --------------------------------------------------------------------------------------------------
# Runs of the simulation at draws from a specimen's posterior, laid over what was measured of it.


# A zero is normally distributed; it is looked for within so many standard deviations.
_DEVIATIONS = 3.0


@dataclasses.dataclass(frozen=True)
class VerifiedRun:
    """A run at one draw, as the laboratory would have recorded it.

    Attributes:
      values: of all parameters and nuisances.
      failure: why there is no curve; empty where there is one.
      stress: at the measured strains, MPa, with the machine and the zero that fit best.
      rmse_percent: root mean square distance from the measured stress, % of its maximum.
    """

    values: dict[str, float]
    failure: str
    stress: Array | None
    rmse_percent: float | None


def verify(
    description: Description,
    folder: pathlib.Path,
    strain: Array,
    stress: Array,
    samples: Mapping[str, Array],
    *,
    processes: int = 1,
    progress: Progress | None = None,
) -> list[VerifiedRun]:
    """Runs the simulation at the samples; what these do not tell is drawn from its range, the same in every call.

    A measured curve has the machine and the zero of its laboratory in it, and a run has neither. Machines and zeroes of
    the description are fitted to each run, within its ranges.

    Args:
      folder: where runs are stored, so that none is made twice.
      strain, stress: measured, [points], - and MPa.
      samples: of the posterior, name -> values [runs] in the unit; all parameters, and nuisances where they are told.
    """
    runs = len(next(iter(samples.values())))
    shares = np.random.default_rng(0).random((runs, len(description.nuisances)))
    nuisances = {
        p.name: p.from_unit_interval(share)
        for p, share in zip(description.nuisances, shares.T, strict=True)
    }
    columns = {**nuisances, **samples}
    drawn = np.column_stack([columns[parameter.name] for parameter in description.drawn])
    campaign = run_campaign(
        description, folder, range(len(drawn)), drawn, processes=processes, progress=progress
    )
    names = [parameter.name for parameter in description.drawn]
    found = []
    for row, outcome in zip(drawn, campaign.outcomes, strict=True):
        if outcome is None:
            continue
        values = dict(zip(names, map(float, row), strict=True))
        if outcome.strain is None:
            found.append(VerifiedRun(values, outcome.failure, None, None))
            continue
        near = _as_recorded(*outcome.curve(), description.laboratory, strain, stress)
        rmse = float(np.sqrt(np.mean((near - stress) ** 2)) / np.abs(stress).max())
        found.append(VerifiedRun(values, "", near, 100 * rmse))
    return found


def _as_recorded(
    run_strain: Array, run_stress: Array, laboratory: Laboratory, strain: Array, stress: Array
) -> Array:
    """A run's stress at the measured strains with the best machine and zero, where the laboratory has these."""
    ranges: list[Sequence[float]] = [(0.0, 0.0), (0.0, 0.0)]
    if laboratory.machine_stiffness is not None:
        low, high = laboratory.machine_stiffness
        ranges[0] = (1.0 / high, 1.0 / low)
    if laboratory.strain_offset is not None:
        most = _DEVIATIONS * laboratory.strain_offset[1]
        ranges[1] = (-most, most)
    lower, upper = np.array(ranges).T
    free = np.flatnonzero(upper > lower)

    def recorded(shares: Array) -> Array:
        fitted = lower.copy()
        fitted[free] += shares * (upper - lower)[free]
        compliance, zero = fitted
        return np.interp(strain, run_strain + compliance * run_stress + zero, run_stress)

    if not len(free):
        return recorded(np.empty(0))
    fit = scipy.optimize.least_squares(
        lambda shares: recorded(shares) - stress,
        np.full(len(free), 0.5),
        bounds=(0.0, 1.0),
        diff_step=1e-3,
    )
    return recorded(fit.x)


# --------------------------------------------------------------------------------------------------
# The forward network of a simulation, learned from its runs by the loop that trains everything, and written as a law.

# FEWEST_TO_LEARN: runs from which a forward network is learned. TRAIN_FOR: its default length.
FEWEST_TO_LEARN = 50
TRAIN_FOR = "24000steps"
# Principal components until they leave this share of the curves, root mean square, and no more than so many.
_LEFT, _MOST_COMPONENTS = 1e-4, 24
_MEMBERS, _UNITS, _BATCH, _RATE = 4, 128, 64, 8e-3
# Another form is another run.
_FORM = (_MEMBERS, _UNITS, _BATCH, _RATE, "gelu")
# An epoch has so many steps at least, so that validation takes little.
_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A forward network and how far it is off, as shares of each run's largest stress.

    Attributes:
      law: its file and class, as --law takes them.
      runs: that trained; error: root mean square on the runs that validate; test_error: on those that test, and
        worst: the largest error of any point of these.
    """

    law: str
    network: ForwardNetwork
    runs: int
    error: float
    test_error: float
    worst: float


def emulate(
    campaign: Campaign,
    data_dir: str | pathlib.Path,
    *,
    seed: int = 0,
    train_for: str = TRAIN_FOR,
    quiet: bool = False,
) -> Emulator:
    """Trains the forward network of a simulation on its runs, and writes it as a law into `data_dir`.

    Args:
      campaign: the runs; which of them train, validate and test is what `generate --simulator` makes of them.
      seed: that the runs were drawn with; of the networks' weights too.
      train_for: a duration, as everywhere.
    """
    import keras

    from tfmat.training.run import Trainer

    description = campaign.description
    numbers = campaign.complete
    if len(numbers) < FEWEST_TO_LEARN:
        raise InputError(
            f"{len(numbers)} runs have a curve; a forward network needs {FEWEST_TO_LEARN} at least, and hundreds to be "
            "good (--num_runs)"
        )
    strain, stress = _on_grid(campaign)
    inputs = inputs_of(description.drawn, campaign.drawn[numbers])
    part = np.array(parts_of(len(campaign.outcomes), seed))[numbers]
    train, validate, test = (part == name for name in PARTS)
    mean, components, targets = _principal(stress, train)

    content = hashlib.sha256(
        inputs.tobytes() + stress.tobytes() + f"{seed} {train_for} {_FORM}".encode()
    )
    folder = runs_folder(description, data_dir) / "forward" / content.hexdigest()[:8]
    model = _model(inputs.shape[1], targets.shape[1], seed)
    trainer = Trainer(
        model,
        loss="mean_squared_error",
        optimizer=lambda steps, _: keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(_RATE, steps)
        ),
        workdir=str(folder),
        seed=seed,
        checkpoint_every="3000steps",
        keep_checkpoints=1,
        quiet=quiet,
    )
    features, labels = (
        array.astype(np.float32) for array in (inputs, np.tile(targets, (1, _MEMBERS)))
    )
    repeats = -(-_STEPS * _BATCH // int(train.sum()))
    trainer.fit(
        np.tile(features[train], (repeats, 1)),
        np.tile(labels[train], (repeats, 1)),
        global_batch_size=_BATCH,
        train_for=train_for,
        validation=(features[validate], labels[validate]),
    )
    network = _network(model, strain, mean, components)
    off = (network.curves(inputs) - stress) / np.abs(stress).max(axis=1, keepdims=True)
    error, test_error = (float(np.sqrt(np.mean(off[rows] ** 2))) for rows in (validate, test))
    facts = Facts(
        name=plain_name(description.name),
        title=description.title or description.name,
        source=f"{int(train.sum())} runs of {' '.join(description.command)}",
        error=error,
        peak=float(np.median(np.abs(stress).max(axis=1))),
        max_strain=description.laboratory.max_strain or (0.5 * strain[-1], float(strain[-1])),
        material=description.material,
        constants=description.constants,
    )
    # A network of more runs is another law: what was trained with this one goes on with it.
    path = pathlib.Path(data_dir) / f"{facts.name}_{len(campaign.outcomes)}.py"
    law = write_law(path, network, description.drawn, description.laboratory, facts)
    return Emulator(
        law, network, int(train.sum()), error, test_error, float(np.abs(off[test]).max())
    )


def _on_grid(campaign: Campaign) -> tuple[Array, Array]:
    """The curves on one grid of strain that all of them reach: [points], and [runs, points] in MPa."""
    runs = [one for i in campaign.complete if (one := campaign.outcomes[i]) is not None]
    end = min(float(one.strain[-1]) for one in runs if one.strain is not None)
    curves = [one.curve(end) for one in runs]
    return curves[0][0], np.stack([stress for _, stress in curves])


def _principal(stress: Array, train: Array) -> tuple[Array, Array, Array]:
    """Mean [points], components [outputs, points] in MPa, and the curves' targets [runs, outputs].

    The squared error of targets is the squared error of stresses, but for a factor, where a component is large. It
    counts somewhat more where a component is small: stress / sqrt(deviation) of a component.
    """
    mean = stress[train].mean(axis=0)
    _, sizes, directions = np.linalg.svd(stress[train] - mean, full_matrices=False)
    left = np.sqrt(np.append(np.cumsum(sizes[::-1] ** 2)[::-1], 0.0))
    enough = int(np.argmax(left <= _LEFT * np.linalg.norm(stress[train])))
    count = min(max(enough, 1), _MOST_COMPONENTS, len(sizes))
    scale = np.sqrt(sizes[:count] * sizes[0] / train.sum())
    return mean, directions[:count] * scale[:, None], (stress - mean) @ directions[:count].T / scale


def _model(inputs: int, outputs: int, seed: int) -> "keras.Model":
    """The members side by side, which get the same examples and share nothing."""
    import keras

    given = keras.Input((inputs,))
    found = []
    for member in range(_MEMBERS):
        values = given
        for layer, units in enumerate((_UNITS, _UNITS, outputs)):
            start = keras.initializers.GlorotUniform(seed=1000 * seed + 10 * member + layer)
            activation = _gelu if layer < 2 else None
            dense = keras.layers.Dense(
                units, activation, kernel_initializer=start, name=_name(member, layer)
            )
            values = dense(values)
        found.append(values)
    return keras.Model(given, keras.layers.Concatenate()(found))


def _gelu(values: Any) -> Any:
    import keras

    return keras.activations.gelu(values, approximate=True)


def _name(member: int, layer: int) -> str:
    return f"member{member}_layer{layer}"


def _network(model: "keras.Model", strain: Array, mean: Array, components: Array) -> ForwardNetwork:
    kernels, biases = (
        tuple(
            np.stack(
                [
                    np.asarray(getattr(model.get_layer(_name(member, layer)), name), np.float64)
                    for member in range(_MEMBERS)
                ]
            )
            for layer in range(3)
        )
        for name in ("kernel", "bias")
    )
    return ForwardNetwork(kernels, biases, strain, mean, components)
