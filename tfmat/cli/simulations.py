"""What `tfmat generate --simulator` shows of its runs: progress, and which failed."""

import collections
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import check_output_folder
from tfmat.cli.launcher_flags import job_of_flags, launch, own_command, site_of_flags
from tfmat.console import clock_text, log, open_console, progress_bar, rate_text
from tfmat.errors import InputError
from tfmat.files import is_locked

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.specimens.campaign import Campaign
    from tfmat.specimens.runs import Outcome, Share

# Where standard error is no terminal, a line of progress comes every so many seconds.
_LINE_EVERY = 60.0
NUM_RUNS = 1000
_RUNS_A_WORKER = 100
_ONE_PROCESS = ("ranks", "nodes")


def simulate(flag_values: FlagValues, laboratory: Mapping[str, Any]) -> "PackedDataset | None":
    """Makes runs, or a share of them, and the data set; None where shares of other workers are missing.

    Args:
      laboratory: options that take the place of the description's.
    """
    from tfmat.curves.laboratory import Laboratory
    from tfmat.data.dataset import available_threads
    from tfmat.specimens.campaign import COPIES, simulate_dataset
    from tfmat.specimens.description import read_description

    share, description = _share(flag_values), read_description(flag_values.simulator)
    laboratory_of_copies = Laboratory.of({**description.laboratory.to_json(), **laboratory})
    num_runs = flag_values.num_runs or NUM_RUNS
    threads = flag_values.num_threads or available_threads()
    processes = max(1, threads // description.threads)
    if flag_values.num_runs is None:
        log(f"making {num_runs:,} runs, {processes} at once; --num_runs=N makes more or fewer")
    started, seconds_of_one = time.monotonic(), 0.0

    def first(outcome: "Outcome") -> None:
        nonlocal seconds_of_one
        seconds_of_one = outcome.seconds

    with run_progress() as show:
        told = False

        def progress(done: int, failed: int, total: int) -> None:
            nonlocal told
            if not told and done < total:
                left = clock_text((total - done) * seconds_of_one / min(processes, total - done))
                log(
                    f"{total - done:,} runs are to be made, {processes} at once: about {left}, since the one in the "
                    f"middle of the ranges took {seconds_of_one:.2g} s"
                )
            told = True
            show(done, failed, total)

        def made(campaign: "Campaign") -> None:
            seconds = time.monotonic() - started
            tell_runs(campaign, seconds, pathlib.Path(flag_values.data_dir))

        return simulate_dataset(
            description,
            data_dir=flag_values.data_dir,
            num_runs=num_runs,
            seed=flag_values.seed,
            copies=flag_values.copies or COPIES,
            laboratory=laboratory_of_copies,
            processes=processes,
            retry=flag_values.retry_failed,
            progress=progress,
            made=made,
            first=first,
            share=share,
            num_threads=flag_values.num_threads,
        )


def _share(flag_values: FlagValues) -> "Share | None":
    """The share of `--worker`; None for all runs."""
    from tfmat.specimens.runs import Share

    worker, workers = flag_values.worker, flag_values.num_workers
    if worker is None and workers is None:
        return None
    if worker is None:
        raise InputError(
            "--num_workers is for a job array: add --launcher=slurm, or --worker=K for one share; here as many runs go "
            "at once as --num_threads says"
        )
    if workers is None:
        raise InputError(f"--worker={worker}: of how many? Give --num_workers too")
    if worker >= workers:
        raise InputError(
            f"--worker={worker}: with --num_workers={workers} they are 0 to {workers - 1}"
        )
    return Share(worker, workers)


def submit_shares(flag_values: FlagValues, laboratory: Mapping[str, Any]) -> None:
    """The runs as a job array, worker i its element i; the last one to end makes the data set."""
    from tfmat.curves.laboratory import Laboratory
    from tfmat.data.imported import refuse_equal_copies
    from tfmat.specimens.campaign import runs_folder
    from tfmat.specimens.description import read_description
    from tfmat.specimens.runs import busy

    for name in _ONE_PROCESS:
        if flag_values[name].present:
            raise InputError(
                f"--{name}: an element of the array is one process; --num_workers says how many there are, and "
                "--cpus_per_rank how many processors each has for its runs"
            )
    if flag_values.worker is not None:
        raise InputError("--worker: each element of the array gets its own; leave it out")
    check_output_folder("data_dir", flag_values.data_dir)
    description, site = read_description(flag_values.simulator), site_of_flags(flag_values)
    refuse_equal_copies(Laboratory.of({**description.laboratory.to_json(), **laboratory}))
    num_runs = flag_values.num_runs or NUM_RUNS
    workers = flag_values.num_workers or -(-num_runs // _RUNS_A_WORKER)
    if workers > num_runs:
        raise InputError(
            f"--num_workers={workers} are more than {num_runs} runs; some would do nothing"
        )
    # A process sees all processors of its node, also where its job may use some of them only.
    threads = flag_values.num_threads or flag_values.cpus_per_rank
    threads = threads or (None if flag_values.exclusive else description.threads)
    own = ("--num_workers=", "--num_threads=")
    command = own_command("generate", flag_values, site.python)
    command = tuple(word for word in command if not word.startswith(own))
    command += (f"--num_workers={workers}", "--worker={array_index}")
    if threads is not None:
        command += (f"--num_threads={threads}",)
    store = runs_folder(description, flag_values.data_dir)
    if is_locked(store):
        raise InputError(busy(description.name, store))
    job = job_of_flags(
        flag_values,
        name=f"tfmat-{store.stem}",
        folder=store / "jobs",
        site=site,
        command=command,
        array=workers,
    )
    job = dataclasses.replace(job, cpus_per_rank=flag_values.cpus_per_rank or threads)
    launch(job, site, dry_run=flag_values.dry_run)
    if not flag_values.dry_run:
        at_once = max(1, (threads or description.threads) // description.threads)
        each = -(-num_runs // workers)
        print(
            f"  {num_runs:,} runs, {each} an element, {at_once} at once; the last element to end makes the data set"
        )


@contextmanager
def run_progress() -> Iterator[Callable[[int, int, int], None]]:
    """A bar with rate and remaining time, or, where nobody sees one, a line now and then."""
    with progress_bar("running", "runs") as bar:
        started = last = time.monotonic()
        first: int | None = None

        def show(done: int, failed: int, total: int) -> None:
            nonlocal first, last
            if bar is not None:
                bar(done, total)
                return
            first, now = done if first is None else first, time.monotonic()
            if now - last < _LINE_EVERY or done == first:
                return
            last, rate = now, (done - first) / (now - started)
            log(
                f"{done:,} of {total:,} runs ({failed} failed), {rate_text(rate)} runs/s, "
                f"{clock_text((total - done) / rate)} left"
            )

        yield show


def tell_runs(campaign: "Campaign", seconds: float, data_dir: pathlib.Path) -> None:
    """How many runs there are, and, where some failed, why and where in the ranges."""
    from rich.table import Table

    from tfmat.specimens.campaign import FAILURES, failed_shares, runs_folder

    total, failed = len(campaign.outcomes), len(campaign.failed)
    did = "all were there already"
    if campaign.new:
        did = f"{campaign.new:,} made in {clock_text(seconds)}, {rate_text(campaign.new / seconds)} runs/s"
    folder = runs_folder(campaign.description, data_dir)
    if campaign.missing:
        did = did if campaign.new else "this share was there already"
        print(f"runs      {total - campaign.missing:,} of {total:,} are there, in {folder}; {did}")
        print("          other workers make the others, and the last one the data set")
        return
    print(f"runs      {total:,} of {campaign.description.name}, in {folder}; {did}")
    if not failed:
        return
    reasons = collections.Counter(
        outcome.failure for i in campaign.failed if (outcome := campaign.outcomes[i]) is not None
    )
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
    print(
        f"failed    {failed:,} ({failed / total:.1%}): {told}; each stands in {folder / FAILURES}"
    )
    print("          what failed is missing in the ranges that the network learns")
    table = Table("failed of made, by thirds of the range", "low", "middle", "high", box=None)
    for one in failed_shares(campaign):
        cells = (f"{bad} of {made}" for bad, made in zip(one.failed, one.made, strict=True))
        table.add_row(one.name, *cells)
    open_console(100).print(table)
