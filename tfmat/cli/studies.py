"""Studies of runs: `tfmat scale`, `lr_range`, `batch_sweep`, `learning_curve`, `noise_scale` and `landscape`."""

import dataclasses
import math
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import (
    DATA_DIR,
    LAUNCHER,
    check_output_folder,
    choice,
    command,
    config_flags,
    given,
    given_to,
    job_of_flags,
    listed,
    number,
    output_folder,
    overrides,
    read_config,
    refuse,
    site_of_flags,
    switch,
    text,
    wants_slurm,
    whole,
)
from tfmat.errors import InputError
from tfmat.files import make_folder

if TYPE_CHECKING:
    from tfmat.large_batch.landscape import EndedRun, LandscapeOptions
    from tfmat.large_batch.sweeps import Estimate, LearningCurve
    from tfmat.launch.slurm import Site, SlurmJob

# --------------------------------------------------------------------------------------------------
# `tfmat scale`.

# As in `tfmat report`.
_ASSUMPTIONS = (
    number("price_per_hour", None, "of one worker's device, in any currency, for the report"),
    number("watts_a_worker", None, "electric power of one worker, for the report"),
    number(
        "target_val_loss", None,
        "accuracy up to which time, energy and money are counted [what all trained points reached]",
    ),
)  # fmt: skip


@command(
    {
        "study": (
            *config_flags(
                "configs/scaling.py",
                "file with get_config() and get_scaling(); --config.KEY=VALUE changes a key of the former",
            ),
            text("workdir", None, "folder of the study [runs/<config name>]"),
            switch("quick", False, "a small study, for trying"),
            DATA_DIR,
            text(
                "hosts",
                None,
                "machines that mpirun reaches, and workers of each: server1:2,server2:2 [this one]",
            ),
        ),
        "report": _ASSUMPTIONS,
        "on a cluster": LAUNCHER,
    },
    no_argument="; flags look like --workdir=runs/scaling",
)
def scale(flag_values: FlagValues, arguments: list[str]) -> None:
    """Measures what parallelism buys: many runs, interleaved and repeated, and a page about them.

      tfmat scale                                    # on this machine; it says how long that takes
      tfmat scale --quick --workdir=runs/try         # a few minutes, to see how it works
      tfmat scale --config=my_scaling.py --workdir=runs/mine --price_per_hour=0.05 --watts_a_worker=12
      tfmat scale --hosts=server1:2,server2:2        # over several machines, by mpirun
      tfmat scale --launcher=slurm --nodes=4 --exclusive --time_limit=20   # one job a point, on up to four nodes

    The config file has get_scaling() beside get_config(): backends, workers, batches, libraries,
    meshes, networks and data sizes. configs/scaling.py is an example; tfmat/scaling/study.py
    explains every key. One worker without any parallel library is measured beside the others, on as
    many processors a worker. Every result is on disk before the next run begins
    (measurements.jsonl). A study that was interrupted or killed goes on when the same command is
    given again; new points of the config are added to it. Points that cannot be had here (no NCCL,
    say) are left out, with the reason. Failures are told at the end, with their logs. Runs beyond
    the processors of the machine are marked oversubscribed. With --launcher=slurm the command waits
    for its jobs, and cancels what is left of them when it is stopped. The page is
    scaling_report.html in --workdir; `tfmat report --workdir=…` makes it again.
    """
    from tfmat.launch.mpirun import missing_hosts, parse_hosts
    from tfmat.scaling.measure import scale
    from tfmat.scaling.study import Assumptions, load_matrix

    config, matrix = load_matrix(flag_values.config, overrides(flag_values))
    if flag_values.quick:
        matrix = matrix.quick()
    workdir = output_folder(flag_values)
    assumptions = Assumptions(**given(flag_values, *(flag.name for flag in _ASSUMPTIONS)))
    slurm = _jobs_of_study(flag_values, workdir) if wants_slurm(flag_values) else None
    hosts = parse_hosts(flag_values.hosts) if flag_values.hosts else ()
    if slurm and hosts:
        raise InputError("--hosts is for mpirun; under SLURM say --nodes")
    # Or every launch of the study would fail, one after the other.
    if not flag_values.dry_run:
        for host, why in missing_hosts(hosts).items():
            raise InputError(f"--hosts={flag_values.hosts}: {host.name} cannot take workers: {why}")
    if slurm:
        matrix = dataclasses.replace(matrix, share_processes=False)
    scale(
        config,
        matrix,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        assumptions=assumptions,
        slurm=slurm,
        hosts=hosts,
        dry_run=flag_values.dry_run,
    )


def _jobs_of_study(flag_values: FlagValues, workdir: str) -> "tuple[SlurmJob, Site]":
    """The part that all jobs have in common."""
    why = ": the config's get_scaling() says it for each point; leave it out"
    refuse(("ranks", "cpus_per_rank", "gpus"), flag_values, why)
    site = site_of_flags(flag_values)
    job = job_of_flags(
        flag_values,
        name="scale",
        folder=pathlib.Path(workdir),
        site=site,
        command=(site.python or sys.executable,),
    )
    return job, site


# --------------------------------------------------------------------------------------------------
# `tfmat lr_range`.

_WHERE_OPEN = {
    "": "",
    "low": " (the loss was lowest at the first of these rates: give a lower --low)",
    "high": " (the loss was lowest at the last of these rates: give a higher --high)",
}


@command(
    {
        "input": (*config_flags("configs/quickstart.py"), DATA_DIR),
        "range test": (
            listed("batches", [], "global batches [the config's]"),
            number("low", 1e-5, "first learning rate"),
            number("high", 10.0, "last learning rate"),
            whole("steps", 300, "steps from --low to --high"),
        ),
        "output": (text("workdir", None, "folder of the results [runs/lr_range-<config name>]"),),
    },
    no_argument="",
)
def lr_range(flag_values: FlagValues, arguments: list[str]) -> None:
    """Learning-rate range test: the rate rises step by step until the loss does; says where to begin.

      tfmat lr_range                                        # batch of configs/quickstart.py, less than a minute
      tfmat lr_range --batches=75,750,5000 --config.optimizer.name=lamb
      tfmat lr_range --low=1e-3 --high=100 --steps=1000 --config.optimizer.name=lars

    For each batch a CSV, and lr_range.json, lr_range.png, lr_range.svg in --workdir. A batch that
    was tested with the same settings is not tested again. Each test begins with the config's
    initial weights and is thrown away.
    """
    config = read_config(flag_values)
    workdir = output_folder(flag_values, "lr_range-")
    from tfmat.console import progress_bar
    from tfmat.large_batch.sweeps import lr_range

    batches = _parse_batches(flag_values.batches) or [config.global_batch_size]
    with progress_bar("range test", "steps") as progress:
        found = lr_range(
            config,
            workdir=workdir,
            batches=batches,
            progress=progress,
            **given(flag_values, "data_dir", "low", "high", "steps"),
        )
    for test in found:
        print(
            f"batch {test.batch}: loss falls fastest at {test.steepest:.2g}, is lowest at {test.lowest:.2g}; "
            f"begin with a peak of {test.suggested:.2g}{_WHERE_OPEN[test.open_end]}"
        )
    print(pathlib.Path(workdir) / "lr_range.png")


def _parse_batches(texts: list[str]) -> list[int]:
    """Positive whole numbers; InputError names the first that is none."""
    for batch in texts:
        if not (batch.strip().isdecimal() and int(batch) > 0):
            raise InputError(
                f"--batches: '{batch}' is no batch size; give whole numbers, such as 75,750"
            )
    return [int(batch) for batch in texts]


# --------------------------------------------------------------------------------------------------
# `tfmat batch_sweep`.


@command(
    {
        "input": (*config_flags("configs/quickstart.py"), DATA_DIR),
        "sweep": (
            listed(
                "batches", ["75", "150", "300", "600", "1200", "2500", "5000"], "global batches"
            ),
            number("epochs", 2.0, "of the runs at equal epochs"),
            text("equal_time", "60s", "of the runs at equal time"),
        ),
        "output": (
            text("workdir", None, "folder of the results [runs/batch_sweep-<config name>]"),
        ),
    },
    no_argument="",
)
def batch_sweep(flag_values: FlagValues, arguments: list[str]) -> None:
    """Batch-size sweep: time an epoch, curves/s, use of the processors, accuracy at equal epochs and
    at equal time.

      tfmat batch_sweep --config=configs/baseline.py --epochs=1 --equal_time=60s
      tfmat batch_sweep --batches=75,300,1200 --config.optimizer.scaling=sqrt --config.optimizer.schedule=cosine

    Each batch is trained twice: for --epochs, and for --equal_time (0s leaves that out). Every
    point is an ordinary run in a folder of its own under --workdir. The same command again goes on
    where it was stopped; what is done is not repeated. Results: batch_sweep.csv, batch_sweep.png,
    batch_sweep.svg.
    """
    config = read_config(flag_values)
    workdir = output_folder(flag_values, "batch_sweep-")
    batches = _parse_batches(flag_values.batches)
    from tfmat.large_batch.sweeps import batch_sweep

    table = batch_sweep(
        config,
        workdir=workdir,
        batches=batches,
        **given(flag_values, "data_dir", "epochs", "equal_time"),
    )
    print(_shown(table.drop(columns="workdir")))
    print(pathlib.Path(workdir) / "batch_sweep.png")


# --------------------------------------------------------------------------------------------------
# `tfmat learning_curve`.

# Beyond so many times the largest measured number an answer is told to be a guess.
_FAR = 10.0
# Beyond so many times it there is none.
_OUT_OF_REACH = 1000


@command(
    {
        "input": (*config_flags("configs/quickstart.py"), DATA_DIR),
        "study": (
            number("wanted", 1.2, "error that you want: eta, or % of the range where eta is not known"),
            listed("curves", ["5000", "10000", "20000", "40000", "80000"], "training curves, four numbers or more"),
            listed("widths", ["1"], "times the config's dense units: one, or three or more"),
            whole("seeds", 2, "runs of each point", 1),
        ),
        "output": (text("workdir", None, "folder of the results [runs/learning_curve-<config name>]"),),
    },
    no_argument="",
)  # fmt: skip
def learning_curve(flag_values: FlagValues, arguments: list[str]) -> None:
    """Learning curve: how many curves, and how large a network, the accuracy that you want takes;
    before a long run.

      tfmat learning_curve                               # five numbers of curves, two seeds: some minutes
      tfmat learning_curve --widths=0.5,1,2 --wanted=1.2   # also what a narrower and a wider network would reach
      tfmat learning_curve --config=my.py --curves=20000,40000,80000,160000
      tfmat learning_curve --data_dir=data/my_own_set    # on the first curves of a data set of your own

    Every point is an ordinary run of the config in a folder of its own under --workdir. With
    `train_for` in epochs all curves are seen as often, and the answer is for more curves and as
    much longer a run. With steps or a time each run is as long, and fewer curves are seen more
    often. The errors on test curves, which are the same for all, are fitted by error = limit + A *
    curves^-alpha + B * parameters^-beta, one law for each material parameter, with 90 % intervals.
    The error is eta, expected squared error over the smallest possible, where that is known, else
    the root mean square in % of the parameter's range. The same command again goes on where it was
    stopped, also with more numbers of curves, widths or seeds; what is done is not repeated.
    Results: learning_curve.json, .csv, .png, .svg.
    """
    config = read_config(flag_values)
    workdir = output_folder(flag_values, "learning_curve-")
    curves = [int(value) for value in _numbers("curves", flag_values.curves, whole=True)]
    widths = _numbers("widths", flag_values.widths)
    from tfmat.large_batch.sweeps import learning_curve

    content = learning_curve(
        config,
        workdir=workdir,
        curves=curves,
        widths=widths,
        **given(flag_values, "data_dir", "seeds", "wanted"),
    )
    for name in content.laws:
        for line in learning_curve_lines(name, content):
            print(line)
    print(pathlib.Path(workdir) / "learning_curve.png")


def learning_curve_lines(name: str, content: "LearningCurve") -> list[str]:
    """The answers for the parameter of that name in plain words."""
    law, points = content.laws[name], content.points
    wanted = f"{content.quantity} ≤ {content.wanted:g}"
    falls = [
        f"{what}^-{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"
        for one, what in ((law.alpha, "curves"), (law.beta, "parameters"))
        if one
    ]
    misfit = f"runs are {100 * law.misfit:.0f} % off the fit"
    said = [f"{name}: falls as {' and '.join(falls)}; {misfit}"]
    if not law.falls:
        said.append(
            "  note: the error does not surely fall with the curves; add --curves or --seeds"
        )
    if below := [one for one in law.networks if one.reached < one.limit.value]:
        widths = ", ".join(f"{one.width:g}" for one in below)
        said.append(
            f"  note: width {widths} already came below the limit of the fit, which runs do not follow; do not rely "
            "on limits and sizes"
        )
    for network in law.networks:
        who = f"width {network.width:g} ({network.parameters:,} parameters)"
        answer = _curves_needed(network.curves, [point.curves for point in points], wanted)
        limit = network.limit
        said.append(
            f"  {who}: {answer}; limit {limit.value:.3g} ({limit.low:.3g} to {limit.high:.3g})"
        )
    for size in law.sizes:
        who = "endless curves" if size.curves is None else f"{size.curves:,} curves"
        needed, width = size.parameters.value, size.width
        answer = f"no width gives {wanted}"
        if math.isfinite(width.value):
            doubt = _doubt(needed, [point.parameters for point in points], "parameters")
            answer = (
                f"{wanted} takes about width {width.value:.2g} ({_about(width.low)} to {_about(width.high)}), "
                f"{_about(needed)} parameters{doubt}"
            )
        said.append(f"  with {who}: {answer}")
    return said


def _curves_needed(needed: "Estimate", measured: list[int], wanted: str) -> str:
    value = needed.value
    if math.isinf(value):
        if math.isinf(needed.low):
            return f"no number of curves gives {wanted}; try a longer training or a larger network"
        return f"by the fit no number of curves gives {wanted}, by its interval {_about(needed.low)} or more"
    if value > _OUT_OF_REACH * max(measured):
        return f"no number of curves within {_OUT_OF_REACH:,} times those measured gives {wanted}"
    count = int(float(f"{value:.2g}"))
    return (
        f"{wanted} takes about {_about(value)} training curves ({_about(needed.low)} to {_about(needed.high)}), "
        f"data.num_curves={count + count // 3}{_doubt(value, measured, 'curves')}"
    )


def _about(value: float) -> str:
    """Two digits of a number; an interval's end that is infinite has none."""
    if math.isinf(value):
        return "no end"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if 10 <= rounded < 1e9 else f"{rounded:.2g}"


def _doubt(value: float, measured: list[int], unit: str) -> str:
    if value > _FAR * max(measured):
        return (
            f" - a guess, more than {_FAR:g} times the {max(measured):,} {unit} that were measured"
        )
    if value < min(measured) / _FAR:
        return f" - a guess, less than a tenth of the {min(measured):,} {unit} that were measured"
    return ""


def _numbers(flag: str, texts: list[str], whole: bool = False) -> list[float]:
    try:
        values = [float(each) for each in texts]
    except ValueError:
        values = []
    sound = values and all(0 < value < math.inf for value in values)
    if not sound or (whole and any(value % 1 for value in values)):
        kind = "positive whole numbers" if whole else "positive numbers"
        raise InputError(f"--{flag}={','.join(texts)}: give {kind} with commas between them")
    return values


# --------------------------------------------------------------------------------------------------
# `tfmat noise_scale`.


@command(
    {
        "run": (text("workdir", "runs/quickstart", "folder of the run"),),
        "measurement": (
            whole("small", 100, "curves of a small batch"),
            whole("big", 4000, "curves of a big one"),
            whole("groups", 40, "big batches a checkpoint"),
            whole("seed", 0, "of the choice of curves"),
        ),
    },
    no_argument="; name the run with --workdir={}",
)
def noise_scale(flag_values: FlagValues, arguments: list[str]) -> None:
    """Measures the gradient noise scale of a run: up to which batch a larger one still saves steps.

      tfmat noise_scale --workdir=runs/quickstart
      tfmat noise_scale --workdir=runs/quickstart --big=20000 --groups=20   # a narrower band late in a run

    At each checkpoint of the run (--config.checkpoint.keep=10 keeps more of them) the squared norm
    of the gradient is measured with two batch sizes. Their difference tells signal from noise
    (McCandlish et al. 2018, appendix A). It prints a table, and writes noise_scale.json and
    figures/noise_scale.png and .svg into the run's folder, which may still train.

    Around the noise scale B the batch trades time for work: at batch b a run needs 1 + B/b times
    the fewest steps and 1 + b/B times the fewest curves. It is a rule for plain gradient descent;
    with Adam take it as an order of magnitude.
    """
    from tfmat.console import progress_bar
    from tfmat.launch.processes import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    from tfmat.large_batch.sweeps import describe_noise, noise_scale_of_run

    with progress_bar("measuring gradients", "groups") as progress:
        found = noise_scale_of_run(
            flag_values.workdir,
            progress=progress,
            **given(flag_values, "small", "big", "groups", "seed"),
        )
    print(describe_noise(found))


# --------------------------------------------------------------------------------------------------
# `tfmat landscape`.

# Where standard error is no terminal, a line of progress comes every so many seconds.
_LINE_EVERY = 30.0


@command(
    {
        "landscape": (
            switch("between", False, "between the minima of two runs, instead of around each"),
            whole("points", 25, "of an axis: odd; 4 k + 1 with --between", 3),
            number("extent", 1.0, "how far an axis goes, in norms of the filters"),
            whole("dimensions", None, "1 or 2 [2; of several runs 1]"),
            whole("eigenvalues", 5, "of the Hessian; 0 leaves the curvature out", 0),
            number("sam_rho", 0.05, "radius in which the loss is to rise"),
            whole("num_curves", 10_000, "curves of the training set, and of the test set"),
            choice("precision", ("float32", "float64"), "of all that is computed"),
            whole("seed", 0, "of the directions, the choice of curves and the trace"),
        ),
        "input and output": (
            text("data_dir", None, "the data set, where it has moved"),
            text(
                "workdir",
                None,
                "folder of what is about several runs [that the first run lies in; between: the first run]",
            ),
        ),
    }
)
def landscape(flag_values: FlagValues, arguments: list[str]) -> None:
    """The shape of the loss around a run's minimum: surfaces, the Hessian's largest eigenvalues,
    sharpness.

      tfmat landscape runs/quickstart                     # 25 x 25 points around its minimum, and the curvature
      tfmat landscape runs/a runs/b runs/c                # one cut and the curvature of each, and a table of all
      tfmat landscape --between runs/a runs/b             # the plane that holds the line between two minima
      mpirun -np 2 -bind-to none tfmat landscape runs/quickstart  # the ranks share the points

    The network of final.keras is moved along random directions, each filter by its own norm (Li et
    al. 2018, arXiv:1712.09913). Biases, and scales and shifts of normalisation layers, stay. Its
    loss is measured on training and on test curves. The largest eigenvalues of the Hessian of the
    training loss come from Lanczos iteration, its trace from Hutchinson's estimate, each with a 95
    % interval. The sharpness is how far the loss rises in a ball of radius --sam_rho (Foret et al.
    2021), and in one that is measured in the filters' own norms (Kwon et al. 2021).

    Written into each run's folder: landscape.json, landscape.csv, figures/landscape.png and .svg;
    the run's report shows it. Several runs also give landscapes.csv, .png and .svg in --workdir;
    two with --between landscape_between.json and its table and pictures there. Nothing is measured
    twice; a call that was stopped goes on.
    """
    from tfmat.large_batch.landscape import LandscapeOptions, read_runs

    if not arguments:
        raise InputError("name the folder of a run, or of several: tfmat landscape runs/quickstart")
    between = flag_values.between
    several = len(arguments) > 1 and not between
    if flag_values.workdir is not None and len(arguments) == 1:
        raise InputError(
            "--workdir is for what is about several runs; one run's stays in its own folder"
        )
    dimensions = flag_values.dimensions or (1 if several else 2)
    own = given_to(LandscapeOptions, flag_values, "dimensions")
    options = LandscapeOptions(dimensions=dimensions, **own)
    check_output_folder("workdir", flag_values.workdir)
    runs = read_runs(arguments, flag_values.data_dir, options, between)
    first = runs[0].folder
    folder = pathlib.Path(flag_values.workdir or (first if between else first.resolve().parent))
    for content in _measure_landscapes(runs, options, folder, between):
        print(content)


def _measure_landscapes(
    runs: "list[EndedRun]", options: "LandscapeOptions", folder: pathlib.Path, between: bool
) -> list[str]:
    """The lines that rank 0 prints; none on the others."""
    from tfmat.launch.processes import find_processes, prepare_tensorflow, processors_per_rank

    processes = find_processes()
    several = processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=True,
        processors=processors_per_rank(processes) if several else None,
        gpu=processes.local_rank if several else None,
        own_program=True,
    )
    from tfmat.backends.base import StarCollectives
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
    return str(table.to_string(index=False, float_format=_in_four_digits, na_rep="-"))


def _in_four_digits(value: float) -> str:
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


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
