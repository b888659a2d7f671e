"""From a described simulation to a data set: runs, noisy copies of them, and where in the ranges runs failed."""

import csv
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmat.curves.laboratory import Laboratory
from tfmat.data.importing import import_dataset, refuse_equal_copies
from tfmat.data.labelled import PARTS
from tfmat.data.manifest import plain_name
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.files import atomic_write, make_folder, spreadsheet_row
from tfmat.simulators.campaign import Campaign, Progress, draw, run_campaign, try_once
from tfmat.simulators.description import Description
from tfmat.simulators.readers import telling_line
from tfmat.simulators.runs import Outcome
from tfmat.simulators.store import Share

FEWEST_RUNS = 10
COPIES = 50
FAILURES = "failures.csv"
# Of ten runs one tests and two validate.
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


def simulate_dataset(
    description: Description,
    *,
    data_dir: str | pathlib.Path,
    num_runs: int,
    seed: int = 0,
    copies: int = COPIES,
    laboratory: Laboratory | None = None,
    processes: int = 1,
    retry: bool = False,
    progress: Progress | None = None,
    made: Callable[[Campaign], None] | None = None,
    first: Callable[[Outcome], None] | None = None,
    share: Share | None = None,
    num_threads: int | None = None,
) -> PackedDataset | None:
    """Makes the runs that are missing of `num_runs`, and a data set of all: noisy copies, parted by run.

    Run i has the same values, and is in the same part, however many there are: of every ten runs one tests and two
    validate. A run in the middle of the ranges comes first, so that a deck that does not work is told at once.

    Args:
      data_dir: for the data set, and for the runs.
      seed: of the values, the parts and the noise.
      copies: of each run that trains or validates; one that tests has one.
      laboratory: what copies have beside the run's curve; None: what the description says.
      processes: runs at once.
      retry: also those runs that failed before.
      progress: of the runs, see `run_campaign`.
      made: called with the runs, before they are packed.
      first: called with the run in the middle, before the others begin.
      share: the runs that this process makes, while other workers make the other shares; None: all.

    Returns:
      The data set; None where shares of other workers are not made yet. The last of the workers makes it.

    Raises:
      InputError: a wrong description, a run in the middle, the first runs or too many fail, nothing can be written.
    """
    laboratory = laboratory or description.laboratory
    refuse_equal_copies(laboratory)
    campaign = make_runs(
        description,
        data_dir,
        num_runs,
        seed=seed,
        processes=processes,
        retry=retry,
        progress=progress,
        made=made,
        first=first,
        share=share,
    )
    if campaign.missing:
        return None
    return import_dataset(
        _write_curves(runs_folder(description, data_dir), campaign, seed),
        data_dir=data_dir,
        copies=copies,
        laboratory=laboratory,
        seed=seed,
        num_threads=num_threads,
    )


def make_runs(
    description: Description,
    data_dir: str | pathlib.Path,
    num_runs: int,
    *,
    seed: int = 0,
    processes: int = 1,
    retry: bool = False,
    progress: Progress | None = None,
    made: Callable[[Campaign], None] | None = None,
    first: Callable[[Outcome], None] | None = None,
    share: Share | None = None,
) -> Campaign:
    """Makes the runs that are missing of `num_runs`; arguments and errors are those of `simulate_dataset`."""
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
    if made is not None:
        made(campaign)
    if not campaign.missing and len(campaign.complete) < FEWEST_RUNS:
        raise InputError(
            f"{len(campaign.complete)} of {num_runs} runs have a curve; at least {FEWEST_RUNS} are needed"
        )
    return campaign


def parts_of(count: int, seed: int) -> list[str]:
    """What each of the first runs is for: one of PARTS."""
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
    arrays: dict[str, Any] = {
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
        with atomic_write(path) as file:
            np.savez(file, **arrays)
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
