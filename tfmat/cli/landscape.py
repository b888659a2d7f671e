"""The shape of the loss around a run's minimum: surfaces, the Hessian's largest eigenvalues, sharpness.

    tfmat landscape runs/quickstart                       25 x 25 points around its minimum, and the curvature
    tfmat landscape runs/a runs/b runs/c                  one cut and the curvature of each, and a table of all
    tfmat landscape --between runs/a runs/b               the plane that holds the line between two minima
    mpirun -np 2 tfmat landscape runs/quickstart          the ranks share the points

The network of final.keras is moved along random directions, each filter by its own norm (Li et al. 2018,
arXiv:1712.09913; biases, and scales and shifts of normalisation layers, stay), and its loss is measured on training and
on test curves. The largest eigenvalues of the Hessian of the training loss come from Lanczos iteration, its trace from
Hutchinson's estimate, each with a 95 % interval; the sharpness is how far the loss rises in a ball of radius --sam_rho
(Foret et al. 2021), and in one that is measured in the filters' own norms (Kwon et al. 2021).

Written into each run's folder: landscape.json, landscape.csv, figures/landscape.png and .svg; the run's report shows
it. Several runs also give landscapes.csv, .png and .svg in --workdir; two with --between landscape_between.json and its
table and pictures there. What is measured is not measured again; a call that was stopped goes on.
"""

import pathlib
import time
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import check_output_folder, choice, number, switch, text, whole
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.large_batch.landscape import LandscapeOptions
    from tfmat.large_batch.losses import EndedRun

FLAGS = (
    text(
        "workdir",
        None,
        "folder of what is about several runs [that the first run lies in; between: the first run]",
    ),
    text("data_dir", None, "the data set, where it has moved"),
    switch("between", False, "between the minima of two runs, instead of around each"),
    whole("points", 25, "of an axis: odd; 4 k + 1 with --between", 3),
    number("extent", 1.0, "how far an axis goes, in norms of the filters"),
    whole("dimensions", None, "1 or 2 [2; of several runs 1]"),
    whole("num_curves", 10_000, "curves of the training set, and of the test set"),
    whole("eigenvalues", 5, "of the Hessian; 0 leaves the curvature out", 0),
    number("sam_rho", 0.05, "radius in which the loss is to rise"),
    choice("precision", ("float32", "float64"), "of all that is computed"),
    whole("seed", 0, "of the directions, the choice of curves and the trace"),
)
# Where standard error is no terminal, a line of progress comes every so many seconds.
_LINE_EVERY = 30.0


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Measures and prints; returns the exit status."""
    from tfmat.large_batch.landscape import LandscapeOptions, read_runs

    if not arguments:
        raise InputError("name the folder of a run, or of several: tfmat landscape runs/quickstart")
    between = flag_values.between
    several = len(arguments) > 1 and not between
    options = LandscapeOptions(
        num_curves=flag_values.num_curves,
        points=flag_values.points,
        extent=flag_values.extent,
        dimensions=flag_values.dimensions or (1 if several else 2),
        eigenvalues=flag_values.eigenvalues,
        sam_rho=flag_values.sam_rho,
        precision=flag_values.precision,
        seed=flag_values.seed,
    )
    check_output_folder("workdir", flag_values.workdir)
    runs = read_runs(arguments, flag_values.data_dir, options, between)
    first = runs[0].folder
    folder = pathlib.Path(flag_values.workdir or (first if between else first.resolve().parent))
    for content in _measure(runs, options, folder, between):
        print(content)
    return 0


def _measure(
    runs: "list[EndedRun]", options: "LandscapeOptions", folder: pathlib.Path, between: bool
) -> list[str]:
    """What rank 0 prints; nothing on the others."""
    from tfmat.files import make_folder
    from tfmat.launch.processes import find_processes, processors_per_rank
    from tfmat.launch.runtime import prepare_tensorflow

    processes = find_processes()
    several = processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=True,
        processors=processors_per_rank(processes) if several else None,
        gpu=processes.local_rank if several else None,
        own_program=True,
    )
    from tfmat.backends.asynchronous import StarCollectives
    from tfmat.large_batch.landscape import (
        comparison_table,
        describe_landscape,
        measure_landscape,
        write_comparison,
        write_results,
    )
    from tfmat.report.pages import write_training_report
    from tfmat.training.run import StopRequest

    lines: list[str] = []
    contents = []
    calls = (
        [(runs, folder / "landscape_between.json")]
        if between
        else [([one], one.folder / "landscape.json") for one in runs]
    )
    with (
        StarCollectives(processes, str(make_folder(folder))) as collectives,
        StopRequest() as request,
    ):
        for measured, file in calls:
            content = measure_landscape(
                measured,
                options,
                file,
                collectives,
                progress=_Progress(measured) if collectives.rank == 0 else None,
                stopped=lambda: request.received,
            )
            contents.append(content)
            if collectives.rank == 0:
                files = write_results(content, file)
                lines += [*(f"{one.folder}" for one in measured), describe_landscape(content)]
                lines += map(str, [file, *files])
                if file.parent == measured[0].folder:
                    lines.append(f"report: {write_training_report(file.parent)}")
        if collectives.rank == 0 and len(contents) > 1:
            lines.append(_shown(comparison_table(contents)))
            lines += map(str, write_comparison(contents, folder))
    return lines


def _shown(table: Any) -> str:
    return str(table.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="-"))


class _Progress:
    """Lines with the rate and, where it is known, the time that is left."""

    def __init__(self, runs: "list[EndedRun]"):
        self._name = " and ".join(run.folder.name for run in runs)
        self._what, self._first, self._started, self._told = "", 0, 0.0, 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """See `measure_landscape`."""
        from tfmat.console import clock_text, log, rate_text

        now = time.monotonic()
        if what != self._what:
            self._what, self._first, self._started, self._told = what, done, now, now
            return
        if now - self._told < _LINE_EVERY and done != total:
            return
        self._told = now
        rate = (done - self._first) / max(now - self._started, 1e-9)
        if total:
            left = clock_text((total - done) / rate) if rate else "?"
            log(f"{self._name}: {done} of {total} {what}, {rate_text(rate)} {what}/s, {left} left")
        else:
            log(f"{self._name}: {done} {what} with the Hessian, {rate_text(rate)} {what}/s")
