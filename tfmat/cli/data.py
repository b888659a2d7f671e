"""Laws and data sets, from which networks learn: `tfmat laws`, `generate`, `emulate` and `clean`."""

import collections
import dataclasses
import datetime
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import (
    LAUNCHER,
    LAUNCHER_FLAGS,
    TRUST,
    check_output_file,
    check_output_folder,
    command,
    given,
    job_of_flags,
    launch,
    number,
    own_command,
    refuse,
    refuse_but,
    repeated,
    site_of_flags,
    switch,
    text,
    wants_slurm,
    whole,
)
from tfmat.console import (
    clock_text,
    log,
    open_console,
    printable,
    progress_bar,
    rate_text,
    run_progress,
)
from tfmat.errors import InputError, Interrupted, nearest
from tfmat.files import is_locked, json_text, read_json

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset, StoredDataset
    from tfmat.materials import Law
    from tfmat.records.laboratory import Laboratory
    from tfmat.records.simulation import CurveSettings
    from tfmat.report.figures import TestPanel
    from tfmat.specimens.campaign import Campaign, Description, Outcome, Share

    Progress = Callable[[int, int], None]
    Users = dict[pathlib.Path, list[pathlib.Path]]

# --------------------------------------------------------------------------------------------------
# `tfmat laws`.

# Of a picture.
_DRAWN_RECORDS = 6
# A driven value that stands still for this share of its points is held, and its test is one over time.
_HELD_SHARE = 0.5


@command(
    {
        "answer": (
            text("law", None, "the law, same as the argument; with --tests it is tried over the tests that are named"),
            switch("tests", False, "programmes that tests are simulated from, and their settings; all, or those named"),
        ),
        "output": (
            text("plot", None, "picture of some simulated records of the law: a PNG or SVG file"),
            switch("json", False, "print JSON instead of text"),
        ),
    }
)  # fmt: skip
def laws(flag_values: FlagValues, arguments: list[str]) -> int | None:
    """Lists the material laws: formula, parameters with units and ranges, source; or the
    programmes of simulated tests.

      tfmat laws
      tfmat laws voce
      tfmat laws ogden --plot=ogden.png
      tfmat laws my_law.py:MyLaw
      tfmat laws --tests
      tfmat laws --tests my_test.py:MyTest --law=voce_chaboche --plot=tests.png
      tfmat laws --json

    A name shows one law in detail and tries it out at the corners of its ranges. A file shows a law
    of your own, before you make a million curves with it. --plot draws some simulated records of
    it, test by test.
    """
    from tfmat.materials import LAWS, law_class

    tests = tuple(arguments) if flag_values.tests else ()
    named = [*(() if tests else arguments), *([flag_values.law] if flag_values.law else [])]
    if len(named) > 1:
        raise InputError(f"tfmat laws takes one law, and got {len(named)}: {' '.join(named)}")
    if flag_values.tests and not (tests and named):
        if named or flag_values.json or flag_values.plot:
            raise InputError(
                "tfmat laws --tests lists tests; name some and a law that answers them: "
                "tfmat laws --tests cyclic --law=voce_chaboche"
            )
        _print_tests(tests)
        return None
    check_output_file("plot", flag_values.plot)
    if flag_values.plot is not None and not named:
        raise InputError("--plot draws one law; name it, as in: tfmat laws voce --plot=voce.png")
    if not named:
        laws = {name: law() for name, law in LAWS.items()}
        if flag_values.json:
            print(json_text({"laws": [_describe(spec, law) for spec, law in laws.items()]}))
        else:
            _print_laws(laws)
        return None
    status = _one_law(named[0], law_class(named[0])(), flag_values.json, tests)
    if flag_values.plot is not None and status == 0:
        _draw_records(named[0], flag_values.plot, tests)
        # JSON stands alone on standard output.
        (log if flag_values.json else print)(f"picture: {printable(flag_values.plot)}")
    return status


# Attributes that a law says of itself; None where it has none.
_TOLD = (
    "title", "formula", "source", "strain_measure", "stress_measure", "tests", "max_strain", "strain_spacing",
    "strength_mpa", "noise_mpa", "laboratory",
)  # fmt: skip


def _describe(spec: str, law: Any) -> dict[str, Any]:
    """Everything that a law says of itself, for JSON; `spec` is what `--law` takes."""
    parameters = [
        {name: value for name, value in vars(parameter).items() if value is not None}
        for parameter in law.parameters
    ]
    told = {name: getattr(law, name, None) for name in _TOLD}
    return {"law": spec, **told, "parameters": parameters}


def _one_law(spec: str, law: Any, as_json: bool, tests: tuple[str, ...]) -> int:
    """Shows a law and tries it out; the exit status.

    Args:
      tests: to try it over, by name or file; none: its own.
    """
    from tfmat.records.programmes import check_answers, find_programmes, try_law

    programmes = find_programmes(tests) if tests else None
    for programme in programmes or ():
        check_answers(law, programme)
    findings = try_law(law, programmes)
    passed = all(finding.passed for finding in findings)
    if as_json:
        print(json_text({"laws": [{**_describe(spec, law), "checks": findings}]}))
    else:
        console = open_console(100)
        _print_law(console, spec, law)
        console.print(_details(law))
        for finding in findings:
            mark = "[green]passed[/]" if finding.passed else "[red]FAILED[/]"
            console.print(f"  check {mark}  {finding.check}: ", end="")
            console.print(finding.detail, markup=False)
        if passed:
            over = f" --config.tests={','.join(tests)}" if tests else ""
            named = (test for test in tests or law.tests if test != "monotonic")
            files = " ".join(f"{test}=FILE" for test in named) or "FILE"
            console.print(f"\nUse it: tfmat identify {files} --law={spec}", markup=False)
            console.print(f"        tfmat train --law={spec}{over}", markup=False)
    return 0 if passed else InputError.exit_status


def _print_laws(laws: "dict[str, Law]") -> None:
    from tfmat.materials import DEFAULT_LAW

    console = open_console(100)
    for spec, law in laws.items():
        _print_law(console, spec, law, " (default)" if spec == DEFAULT_LAW else "")
    console.print("tfmat laws NAME shows one in detail; --law=NAME trains on it.")
    console.print(
        "--config.ranges.PARAMETER=LOW,HIGH changes a range, --config.fixed.PARAMETER=VALUE fixes one.",
    )
    console.print("tfmat laws --tests lists the tests that a law of several tests is simulated in.")
    console.print(
        "A law of your own: --law=path/to/file.py:ClassName (docs/adding_a_law.md).",
    )


def _print_law(console: Any, spec: str, law: Any, remark: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text.assemble((spec, "bold cyan"), f"{remark}  ", (law.title, "bold")))
    console.print(Text(f"  {law.formula}"))
    _print_parameters(console, "parameter", law.parameters)
    console.print(Padding(Text(law.source, style="dim"), (0, 0, 0, 2), expand=False))
    console.print()


def _print_parameters(console: Any, header: str, parameters: Any) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=True, padding=(0, 1)
    )
    for name in (header, "unit", "from", "to", "scale", "meaning"):
        table.add_column(name, justify="right" if name in ("from", "to") else "left")
    for parameter in parameters:
        unit, meaning = Text(parameter.unit), Text(parameter.description)
        table.add_row(parameter.name, unit, *_range(parameter), meaning)
    console.print(table)


def _print_tests(specs: tuple[str, ...]) -> None:
    """The programmes that `specs` name, or all that come with tfmat."""
    from rich.text import Text

    from tfmat.materials import LAWS
    from tfmat.records.programmes import PROGRAMMES, find_programmes, programme_class

    find_programmes(specs)
    console = open_console(100)
    if not specs:
        console.print(
            "monotonic: one curve of rising strain; its settings are data.max_strain and data.strength_mpa.\n"
        )
    for name in specs or PROGRAMMES:
        programme = programme_class(name)
        console.print(Text.assemble((name, "bold cyan"), "  ", (programme.title, "bold")))
        summary = (programme.__doc__ or "").partition("\n")[0]
        told = (
            f" The record tells the {' and the '.join(programme.channels)}."
            if programme.channels
            else ""
        )
        console.print(Text(f"  {summary}{told}"))
        _print_parameters(console, "setting", programme.settings)
        laws = [law for law, known in LAWS.items() if name in known.tests]
        console.print(
            Text(f"  laws simulated in it by default: {', '.join(laws) or 'none'}\n", style="dim")
        )
    console.print(
        "--config.tests=NAME,NAME chooses the tests of a record (tfmat generate: --tests);"
    )
    console.print(
        "--config.test_ranges.SETTING=LOW,HIGH changes a range (tfmat generate: --test_range)."
    )
    console.print(
        "A test of your own: --config.tests=path/to/file.py:ClassName (docs/adding_a_law.md)."
    )


def _range(parameter: Any) -> tuple[str, str, str]:
    """From, to, and the scale; or the value of a parameter that the law takes as known."""
    if parameter.fixed is not None:
        return f"{parameter.fixed:g}", "", "fixed"
    return f"{parameter.low:g}", f"{parameter.high:g}", parameter.scale


def _details(law: Any) -> str:
    strength = law.strength_mpa
    rows = [("strain, stress", f"{law.strain_measure}; {law.stress_measure}")]
    if hasattr(law, "max_strain"):
        low, high = law.max_strain
        spacing = "even" if law.strain_spacing == 1 else f"as (i / (n - 1))^{law.strain_spacing:g}"
        rows += [
            ("end of a simulated curve", f"strain {low:g} to {high:g}, points spaced {spacing}")
        ]
    if law.tests != ("monotonic",):
        counts = collections.Counter(law.tests)
        tests = [f"{count} × {test}" if count > 1 else test for test, count in counts.items()]
        rows += [("tests of a record", ", ".join(tests))]
    rows += [
        ("strength cut-off", f"{strength[0]:g} to {strength[1]:g} MPa" if strength else "none"),
        ("noise", f"{law.noise_mpa:g} MPa"),
        *(
            ("" if i else "data.laboratory adds", f"{name} {low:g} to {high:g}")
            for i, (name, (low, high)) in enumerate(law.laboratory.items())
        ),
    ]
    if law.rupture_strain < float("inf"):
        rows += [("a creep record ends", f"before a strain of {law.rupture_strain:g}")]
    return "\n".join(f"  {name:<26}{value}" for name, value in rows)


def _draw_records(spec: str, path: str, tests: tuple[str, ...]) -> None:
    """Writes a picture of records of the law that `spec` names, as networks learn them; a panel for each test."""
    import numpy as np

    from tfmat.records.simulation import CurveSettings, Simulator
    from tfmat.report.figures import save_figure, tests_figure

    simulator = Simulator(CurveSettings(law=spec, tests=tests), seed=0)
    law, form = simulator.law, simulator.form
    features = simulator.curves(0, _DRAWN_RECORDS).features.astype(np.float64)
    labels = f"strain ({law.strain_measure})", f"{law.stress_measure} stress (MPa)"
    if not form.programmes:
        panels = [_panel("", features, labels, None, "strain")]
    else:
        names = [each.name for each in form.programmes]
        time = form.channels.index("time") if "time" in form.channels else None
        panels = [
            _panel(each.title, features[:, form.part(i)], labels, time, each.drives)
            for i, each in enumerate(form.programmes)
            if each.name not in names[:i]
        ]
    save_figure(tests_figure(f"{law.title}: {_DRAWN_RECORDS} simulated records", panels), path)


def _panel(
    title: str,
    features: Any,
    labels: tuple[str, str],
    time: int | None,
    drives: str,
) -> "TestPanel":
    """The records of one test; the answer over log time where the driven value is held, else stress over strain."""
    import numpy as np

    from tfmat.records.simulation import FLAG, STRAIN, STRESS
    from tfmat.report.figures import TestPanel

    records = [record[record[:, FLAG] == 0] for record in features]
    driven, answer = (STRAIN, STRESS) if drives == "strain" else (STRESS, STRAIN)
    still = [np.mean(np.diff(record[:, driven]) == 0.0) for record in records if len(record) > 1]
    if time is None or not still or np.median(still) < _HELD_SHARE:
        lines = [(record[:, STRAIN], record[:, STRESS]) for record in records]
        return TestPanel(title, lines, *labels)
    after = [record[(record[:, time] > 0) & (record[:, answer] > 0)] for record in records]
    lines = [(record[:, time], record[:, answer]) for record in after]
    # Creep goes over decades, as time does.
    return TestPanel(title, lines, "time (s)", labels[answer], "xy" if drives == "stress" else "x")


# --------------------------------------------------------------------------------------------------
# `tfmat generate`.

# Options of the observation model, each LOW,HIGH, as `--config.data.NAME` of `train`.
_OBSERVATION = {
    "noise_of_maximum": "noise as a fraction of the largest stress",
    "noise_correlation": "correlation of neighbouring points' noise",
    "measured_points": "number of points that the machine records",
    "strain_offset": "error of the strain's zero (standard deviation)",
    "stress_offset": "error of the stress's zero (standard deviation), MPa",
    "toe": "slack that a strain takes up which rises from zero",
    "machine_stiffness": "apparent modulus of what gives way beside the specimen, MPa",
    "misfit": "smooth deviation from the law as a fraction of the stress (standard deviation)",
    "yield_spread": "half the spread of ln(yield stress) in the specimen",
}
_NOISE = ("noise_mpa", "noise_relative")
# Flags that copies of curves take; an import, a simulator, and a data set that is there already. All others decide
# about simulated curves of a law.
_COPIES = ("copies", "seed", "max_strain", *_NOISE, *_OBSERVATION)
_IMPORT, _REPAIR = ("from", "law", "fix", *_COPIES), ("data_dir", "num_threads", "trust")
_ONLY_SIMULATOR = ("num_runs", "retry_failed", "num_workers", "worker", *LAUNCHER_FLAGS)
_SIMULATOR = ("simulator", *_ONLY_SIMULATOR, *_COPIES)


@command(
    {
        "input": (
            text("law", None, "material law, see `tfmat laws` (default hahn_tsai); or path/to/file.py:ClassName"),
            whole("num_curves", 1_000_000, "curves to train (75 %) and validate (25 %) on", 4),
            whole("num_test", 10_000, "further curves that never train", 0),
            repeated("range", "NAME=LOW,HIGH: range of a parameter in its unit; may be given several times"),
            repeated("fix", "NAME=VALUE: a parameter that is known and not identified; may be given several times"),
            text("max_strain", None, "LOW,HIGH: range that the end of a curve is drawn from (default: the law's)"),
            text("strength_mpa", None, "LOW,HIGH: stress at which a curve breaks off, or none (default: the law's)"),
            whole("num_points", None, "points of a curve, or of each test (default 200)", 8),
            whole("seed", 0, "seed of all random numbers", 0),
        ),
        "output": (
            text("data_dir", "data", "folder that holds the data sets; or one data set, to check and repair it"),
            whole("num_threads", None, "threads (default: one for each processor); changes nothing in the data", 1),
            TRUST,
        ),
        "records of several tests": (
            text("tests", None, "NAME,NAME: tests of a record, see `tfmat laws --tests` (default: the law's)"),
            repeated("test_range", "SETTING=LOW,HIGH: range of a setting of the tests; may be given several times"),
            number("missing_tests", None, "probability that a test of several is missing in a record (default 0)", 0.0),
            switch("noise_told", False, "records of tests tell how large each test's noise is"),
        ),
        "what a laboratory adds": (
            switch("laboratory", False, "everything that a laboratory adds, by the law's family (docs/tests.md)"),
            number("noise_mpa", None, "standard deviation of the stress noise in MPa (default: the law's)", 0.0),
            number("noise_relative", None, "standard deviation as a fraction of the stress, added in quadrature", 0.0),
            *(
                text(name, None, f"LOW,HIGH: {meaning}, drawn log-uniformly for each curve (default: none)")
                for name, meaning in _OBSERVATION.items()
            ),
        ),
        "curves of your own": (
            text("from", None, ".npz or .parquet file with labelled curves of your own"),
            whole("copies", None, "noisy copies of each curve of --from (default 1) or --simulator (default 50)", 1),
        ),
        "specimens that a program simulates": (
            text("simulator", None, "folder with simulator.toml: a specimen that a program simulates"),
            whole("num_runs", None, "runs of the simulator (default 1000); a larger number adds to what is there", 10),
            switch("retry_failed", False, "run again what failed before"),
            whole("num_workers", None, "shares of the runs; slurm: elements of the job array [one for 100 runs]", 1),
            whole("worker", None, "make this share only, from 0; slurm: an element of the array has its number", 0),
        ),
        "on a cluster": LAUNCHER,
    },
    no_argument="; see `tfmat generate --help`",
)  # fmt: skip
def generate(flag_values: FlagValues, arguments: list[str]) -> int | None:
    """Simulates labelled stress-strain curves, or packs your own, into a data set to train on.

      tfmat generate --law=hahn_tsai --num_curves=1000000 --noise_mpa=1.0 --seed=0
      tfmat generate --law=voce --range=Q=50,1600 --fix=E=193000 --max_strain=0.1,0.5
      tfmat generate --law=ogden --tests=uniaxial,planar --test_range=max_strain=1,4 --missing_tests=0.3
      tfmat generate --from=curves.npz --law=voce
      tfmat generate --from=curves.npz --copies=20 --noise_of_maximum=0.0005,0.005
      tfmat generate --simulator=docs/examples/notched_bar --num_runs=1000 --num_threads=2
      tfmat generate --simulator=my_model --num_runs=3000 --launcher=slurm --num_workers=30 --time_limit=2:00:00
      tfmat generate --data_dir=data/hahn_tsai-1000000-1a2b3c4d   # checks and repairs this data set

    Curve number i is always the same for the same settings and seed, however many are made.
    Interrupted, the same command goes on where it stopped; on a finished data set it checks every
    shard and makes a damaged one again.

    A specimen that a program simulates, such as a finite-element solver, is described by a folder
    with simulator.toml (docs/finite_elements.md). --simulator names it. The program runs --num_runs
    times, as often at once as there are processors (--num_threads), and the data set holds noisy
    copies. Runs are stored and not made again; a larger --num_runs adds to them. With
    --launcher=slurm a job array makes them; each of its --num_workers elements takes a share.

    Your own curves are a .npz or a .parquet file. A .npz file has the arrays strain and stress
    [curves, points] (stress in MPa, NaN after a curve's end), parameters [curves, P], names [P],
    units [P]; low, high and scale ('linear' or 'log') [P] may be left out. A .parquet file has a row
    for each curve, list columns strain and stress, and columns named like 'G0 [MPa]'. With --law the
    names are that law's, and answers can be simulated again. Curves that do not have 200 points are
    resampled. Without --law curves may be copied, each copy with what a laboratory adds: noise,
    wrong zeroes, slack, a machine that gives way.
    """
    if flag_values.simulator is not None:
        _generate_by_program(flag_values)
        return None
    made: list[int] = []
    start = time.perf_counter()
    try:
        make = _choose(flag_values)
        with progress_bar("generating", "curves") as show:

            def progress(done: int, total: int) -> None:
                made.append(done)
                if show is not None:
                    show(done, total)

            dataset = make(progress)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished shards are kept, and the same command goes on"
        ) from None
    except InputError as error:
        raise InputError(_in_own_flags(str(error))) from error
    _tell_dataset(dataset, _written(made, time.perf_counter() - start))
    return None


def _generate_by_program(flag_values: FlagValues) -> None:
    """Runs a user's program, and makes the data set of its runs."""
    refuse_but(_SIMULATOR + _REPAIR, flag_values, "--simulator runs a program")
    from tfmat.data.dataset import is_dataset

    if is_dataset(flag_values.data_dir):
        raise InputError(f"{flag_values.data_dir} is a data set itself; leave out --simulator")
    try:
        if wants_slurm(flag_values):
            _submit_shares(flag_values)
            return
        dataset = _simulate_dataset(flag_values)
    except InputError as error:
        raise InputError(_in_own_flags(str(error))) from error
    if dataset is not None:
        _tell_dataset(dataset, "", "--config=configs/specimen.py ")


def _laboratory(flag_values: FlagValues, own: "Laboratory | None" = None) -> "Laboratory":
    """The options that copies take; those that are given take the place of a description's `own`."""
    from tfmat.records.laboratory import Laboratory

    said: dict[str, Any] = own.to_json() if own else {}
    said |= {name: flag_values[name].value for name in _NOISE if flag_values[name].present}
    for name in ("max_strain", *_OBSERVATION):
        if (text := flag_values[name].value) is not None:
            said[name] = None if text == "none" else _limits(name, text)
    return Laboratory.of(said)


def _choose(flag_values: FlagValues) -> "Callable[[Progress], PackedDataset]":
    """Returns the task: repair one data set, pack a user's curves, or simulate."""
    from tfmat.data.dataset import generate_dataset, is_dataset
    from tfmat.data.imported import import_dataset, repair_dataset

    data_dir, num_threads = pathlib.Path(flag_values.data_dir), flag_values.num_threads
    fixed = dict(_pair("fix", text) for text in flag_values.fix)
    if is_dataset(data_dir):
        refuse_but(_REPAIR, flag_values, f"{data_dir} is a data set itself")
        return lambda progress: repair_dataset(data_dir, progress, num_threads)
    source = flag_values["from"].value
    if source is not None:
        refuse_but(_IMPORT + _REPAIR, flag_values, "--from packs curves that exist already")
        laboratory = _laboratory(flag_values)
        return lambda progress: import_dataset(
            source,
            data_dir=data_dir,
            laboratory=laboratory,
            fixed={name: _number("fix", value) for name, value in fixed.items()},
            progress=progress,
            **given(flag_values, "law", "copies", "seed", "num_threads"),
        )
    for names, of in ((_ONLY_SIMULATOR, ""), (("copies",), " or --from")):
        why = f" is of --simulator{of}; give that too, or leave --{{}} out"
        refuse(names, flag_values, why)
    settings = _settings(flag_values, fixed)
    return lambda progress: generate_dataset(
        settings,
        data_dir=data_dir,
        progress=progress,
        **given(flag_values, "seed", "num_curves", "num_test", "num_threads"),
    )


def _settings(flag_values: FlagValues, fixed: dict[str, str]) -> "CurveSettings":
    from tfmat.records.simulation import CurveSettings

    strength, cut_off = None, flag_values.strength_mpa != "none"
    if flag_values.strength_mpa is not None and cut_off:
        strength = _limits("strength_mpa", flag_values.strength_mpa)
    ranges = dict(_pair("range", text) for text in flag_values.range)
    test_ranges = dict(_pair("test_range", text) for text in flag_values.test_range)
    return CurveSettings(
        law=flag_values.law or "hahn_tsai",
        ranges={name: _limits("range", text) for name, text in ranges.items()},
        fixed={name: _number("fix", text) for name, text in fixed.items()},
        max_strain=None
        if flag_values.max_strain is None
        else _limits("max_strain", flag_values.max_strain),
        strength_mpa=strength,
        strength_cut_off=cut_off,
        noise_mpa=flag_values.noise_mpa,
        noise_relative=flag_values.noise_relative or 0.0,
        num_points=flag_values.num_points or CurveSettings.num_points,
        tests=tuple((flag_values.tests or "").split(",")) if flag_values.tests else (),
        test_ranges={name: _limits("test_range", text) for name, text in test_ranges.items()},
        missing_tests=flag_values.missing_tests or 0.0,
        noise_told=flag_values.noise_told,
        laboratory=flag_values.laboratory,
        **{
            name: None if said is None else _limits(name, said)
            for name, said in given(flag_values, *_OBSERVATION).items()
            if said != "none"
        },  # type: ignore[arg-type]
    )


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise InputError(
            f"--{flag}={text}: give --{flag}=NAME={'VALUE' if flag == 'fix' else 'LOW,HIGH'}"
        )
    return name.strip(), value


def _limits(flag: str, text: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2:
        raise InputError(f"--{flag}: '{text}' is not LOW,HIGH")
    return _number(flag, parts[0]), _number(flag, parts[1])


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{flag}: '{text}' is not a number") from None


def _in_own_flags(message: str) -> str:
    """Settings name flags as `train` has them; says the same in this command's flags."""
    message = re.sub(r"--config\.ranges\.(\w+)", r"--range=\1", message)
    message = re.sub(r"--config\.test_ranges\.(\w+)", r"--test_range=\1", message)
    message = re.sub(r"--config\.fixed\.(\w+)", r"--fix=\1", message)
    return message.replace("--config.data.", "--").replace("--config.tests", "--tests")


def _written(made: list[int], seconds: float) -> str:
    if not made:
        return f"complete already; every shard checked in {seconds:.1f} s"
    num_made = made[-1] - made[0]
    return f"{num_made:,} curves written in {seconds:.1f} s, {num_made / seconds:,.0f} curves/s"


def _tell_dataset(dataset: "PackedDataset", did: str, config: str = "") -> None:
    """Prints the data set's contents, and the command that trains on it, with the `config` that suits it."""
    from tfmat.data.dataset import size_text

    num_curves = dataset.num_train + dataset.num_validation
    names = ", ".join(f"{parameter.name} ({parameter.unit})" for parameter in dataset.parameters)
    size = size_text(dataset.features.nbytes + dataset.labels.nbytes)
    num_shards = len(dataset.manifest.shards)
    print(f"data set  {dataset.folder}")
    print(
        f"curves    {num_curves:,} ({dataset.num_train:,} train, {dataset.num_validation:,} validate)",
        end="",
    )
    print(f" and {dataset.num_test:,} to test, {dataset.features.shape[1]} points each")
    print(f"labels    {names}")
    print(f"size      {size} in {num_shards} shard{'s' if num_shards > 1 else ''}")
    if did:
        print(f"done      {did}")
    # A folder of its own: runs/quickstart is the first try's.
    workdir = f"runs/{dataset.folder.name}"
    print(f"use it    tfmat train {config}--data_dir={dataset.folder} --workdir={workdir}")


# --------------------------------------------------------------------------------------------------
# Runs of `tfmat generate --simulator` and `tfmat emulate`: shares of them, progress, and which failed.

_NUM_RUNS = 1000
_RUNS_A_WORKER = 100


def _simulate_dataset(flag_values: FlagValues) -> "PackedDataset | None":
    """Makes runs, or a share of them, and the data set; None where shares of other workers are missing."""
    from tfmat.data.imported import refuse_equal_copies
    from tfmat.specimens.campaign import COPIES, pack_runs, read_description

    share, description = _share(flag_values), read_description(flag_values.simulator)
    laboratory = _laboratory(flag_values, description.laboratory)
    refuse_equal_copies(laboratory)  # before hours of runs
    campaign = _make_runs(flag_values, description, share)
    if campaign.missing:
        return None
    return pack_runs(
        campaign,
        flag_values.data_dir,
        seed=flag_values.seed,
        copies=flag_values.copies or COPIES,
        laboratory=laboratory,
        num_threads=flag_values.num_threads,
    )


def _make_runs(
    flag_values: FlagValues, description: "Description", share: "Share | None" = None
) -> "Campaign":
    """Makes what is missing of the runs, or of a share of them, and tells of them."""
    from tfmat.launch.processes import available_threads
    from tfmat.specimens.campaign import make_runs

    num_runs = flag_values.num_runs or _NUM_RUNS
    threads = flag_values.num_threads or available_threads()
    processes = max(1, threads // description.threads)
    if flag_values.num_runs is None:
        log(f"making {num_runs:,} runs, {processes} at once; --num_runs=N makes more or fewer")
    started, seconds_of_one, told = time.monotonic(), 0.0, False

    def first(outcome: "Outcome") -> None:
        nonlocal seconds_of_one
        seconds_of_one = outcome.seconds

    try:
        with run_progress() as show:

            def progress(done: int, failed: int, total: int) -> None:
                nonlocal told
                if not told and done < total:
                    left = (total - done) * seconds_of_one / min(processes, total - done)
                    log(
                        f"{total - done:,} runs are to be made, {processes} at once: about {clock_text(left)}, since "
                        f"the one in the middle of the ranges took {seconds_of_one:.2g} s"
                    )
                told = True
                show(done, failed, total)

            campaign = make_runs(
                description,
                flag_values.data_dir,
                num_runs,
                seed=flag_values.seed,
                processes=processes,
                retry=flag_values.retry_failed,
                progress=progress,
                first=first,
                share=share,
            )
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished runs are stored, and the same command goes on"
        ) from None
    _tell_runs(campaign, time.monotonic() - started, pathlib.Path(flag_values.data_dir))
    return campaign


def _share(flag_values: FlagValues) -> "Share | None":
    """The share of `--worker`; None for all runs."""
    from tfmat.specimens.campaign import Share

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


def _submit_shares(flag_values: FlagValues) -> None:
    """The runs as a job array, worker i its element i; the last one to end makes the data set."""
    from tfmat.data.imported import refuse_equal_copies
    from tfmat.specimens.campaign import busy, read_description, runs_folder

    why = (
        ": an element of the array is one process; --num_workers says how many there are, and --cpus_per_rank how many "
        "processors each has for its runs"
    )
    refuse(("ranks", "nodes"), flag_values, why)
    why = ": each element of the array gets its own; leave it out"
    refuse(("worker",), flag_values, why)
    check_output_folder("data_dir", flag_values.data_dir)
    description, site = read_description(flag_values.simulator), site_of_flags(flag_values)
    refuse_equal_copies(_laboratory(flag_values, description.laboratory))
    num_runs = flag_values.num_runs or _NUM_RUNS
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


def _tell_runs(campaign: "Campaign", seconds: float, data_dir: pathlib.Path) -> None:
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


# --------------------------------------------------------------------------------------------------
# `tfmat emulate`.


@command(
    {
        "input": (
            text("simulator", None, "folder with simulator.toml: a specimen that a program simulates"),
            whole("num_runs", None, "runs of the simulation (default 1000); those that are missing are made", 50),
            switch("retry_failed", False, "run again what failed before"),
        ),
        "training": (
            text("train_for", "24000steps", "how long the network is trained, such as 20000steps or 5m"),
            whole("seed", 0, "seed of the runs' values and of the network's weights", 0),
            whole("num_threads", None, "threads (default: one for each processor)", 1),
        ),
        "output": (
            text("data_dir", "data", "folder of the stored runs, into which the law is written"),
        ),
    },
    no_argument="; see `tfmat emulate --help`",
)  # fmt: skip
def emulate(flag_values: FlagValues, arguments: list[str]) -> None:
    """Trains an emulator of a specimen's program: parameters -> the curve, as a law that every
    command takes.

      tfmat emulate --simulator=docs/examples/notched_bar --num_runs=1000 --num_threads=2
      tfmat laws data/notched_bar_1000.py:NotchedBar
      tfmat train --law=data/notched_bar_1000.py:NotchedBar --config=configs/forward.py --workdir=runs/notch
      tfmat identify specimen.csv --workdir=runs/notch --simulator=docs/examples/notched_bar --verify=8 --card=abaqus

    It shares its runs with `tfmat generate --simulator`: stored ones are taken, missing ones are
    made. The law stands in a Python file, DATA_DIR/NAME_RUNS.py, which needs NumPy and tfmat alone.
    It has the parameters and the nuisances of the simulation, and the machine's stiffness and the
    strain's zero where the description gives ranges of them. Any number of curves is simulated with
    it in seconds, measured records have a likelihood, and posteriors are corrected and certified.
    """
    if flag_values.simulator is None:
        raise InputError("say what to emulate: --simulator=FOLDER, with a simulator.toml in it")
    from tfmat.config import seconds_of

    seconds_of(flag_values.train_for)  # a wrong one is refused before hours of runs
    from tfmat.specimens.campaign import read_description

    campaign = _make_runs(flag_values, read_description(flag_values.simulator))
    from tfmat.launch.processes import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    from tfmat.specimens.campaign import emulate

    found = emulate(
        campaign, flag_values.data_dir, seed=flag_values.seed, train_for=flag_values.train_for
    )
    print(
        f"network   {found.runs:,} runs trained it; it is off by {100 * found.test_error:.2g} % of the largest stress "
        f"(root mean square over runs that did not), {100 * found.worst:.2g} % at the worst point"
    )
    print(f"law       {found.law}")
    workdir = f"runs/{pathlib.Path(found.law.rpartition(':')[0]).stem}"
    print(f"Next: tfmat train --law={found.law} --config=configs/forward.py --workdir={workdir}")


# --------------------------------------------------------------------------------------------------
# `tfmat clean`.

# Files that name a data set, the key that does, and how far up from there the run's or study's folder is.
_NAMING_FILES = (("config.json", "data_dir", 0), ("spec.json", "dataset", 2))


@command(
    {
        "input": (
            text("data_dir", "data", "folder of data sets"),
            text("runs_dir", "runs", "folder that holds the runs"),
        ),
        "what is deleted": (
            switch("unused", False, "delete all data sets that no run uses"),
            switch("yes", False, "delete without a question"),
        ),
    }
)
def clean(flag_values: FlagValues, arguments: list[str]) -> None:
    """Lists the data sets on the disk, and deletes those that are named or that no run uses.

      tfmat clean                                    # what there is: size, age, and the runs that use it
      tfmat clean hahn_tsai-600000-1a2b3c4d          # deletes this one
      tfmat clean --unused --yes                     # deletes all that no run in --runs_dir uses, unfinished ones too

    A data set that a run uses is deleted only with --yes. The run then cannot go on or be evaluated
    again, until `tfmat train` or `tfmat generate` makes the same one again. One that is being
    written or trained on is never deleted, nor anything that is not a data set of tfmat. At a
    terminal it asks instead of wanting --yes.
    """
    from tfmat.data.dataset import delete_dataset, is_dataset, size_text, stored_datasets

    data_dir, runs_dir = pathlib.Path(flag_values.data_dir), pathlib.Path(flag_values.runs_dir)
    if is_dataset(data_dir):
        raise InputError(
            f"--data_dir={data_dir} is a data set itself; give its folder, and its name to delete it: "
            f"tfmat clean --data_dir={data_dir.parent} {data_dir.name}"
        )
    if arguments and flag_values.unused:
        raise InputError("give names of data sets or --unused, not both")
    datasets, users = stored_datasets(data_dir), _users(runs_dir)
    if not arguments and not flag_values.unused:
        if flag_values.yes:
            raise InputError("--yes deletes nothing by itself; name data sets, or add --unused")
        _show_datasets(datasets, users, data_dir, runs_dir)
        return
    if flag_values.unused:
        if not runs_dir.is_dir():
            raise InputError(
                f"there is no folder {runs_dir}, whose runs could use a data set; give --runs_dir, or name data sets"
            )
        chosen = [each for each in datasets if not _runs_of(each, users)]
        confirm = True
    else:
        chosen = _named(arguments, datasets, data_dir)
        confirm = any(_runs_of(each, users) for each in chosen)
    if not chosen:
        print(f"a run uses each of the data sets in {data_dir}; nothing deleted")
        return
    _refuse_busy(chosen, users)
    if confirm and not flag_values.yes and not _confirmed(chosen, users):
        print("nothing deleted")
        return
    for each in chosen:
        delete_dataset(each)
        print(printable(f"deleted {each.folder} ({size_text(each.num_bytes)})"))


def _users(runs_dir: pathlib.Path) -> "Users":
    """Folder of a data set, all links resolved -> the runs and studies anywhere in `runs_dir` that train on it."""
    found: dict[pathlib.Path, set[pathlib.Path]] = {}
    for folder, _, files in os.walk(runs_dir):
        for file, key, up in _NAMING_FILES:
            if file not in files:
                continue
            path = pathlib.Path(folder)
            try:
                content = read_json(path / file)
            except InputError:
                continue  # not a run's
            dataset = content.get(key) if isinstance(content, dict) else None
            if isinstance(dataset, str):
                owner = path.joinpath(*[".."] * up)
                found.setdefault(pathlib.Path(dataset).resolve(), set()).add(
                    pathlib.Path(os.path.normpath(owner))
                )
    return {dataset: sorted(runs) for dataset, runs in found.items()}


def _runs_of(dataset: "StoredDataset", users: "Users") -> list[pathlib.Path]:
    return users.get(dataset.folder.resolve(), [])


def _named(
    names: Sequence[str], datasets: Sequence["StoredDataset"], data_dir: pathlib.Path
) -> list["StoredDataset"]:
    """The data sets of these names; a path to one is a name too."""
    by_name = {each.folder.name: each for each in datasets}
    chosen = {}
    for name in names:
        path = pathlib.Path(name)
        inside = path.name == name or path.parent.resolve() == data_dir.resolve()
        if not inside or path.name not in by_name:
            hint = nearest(path.name, by_name) if inside else "; --data_dir says where to look"
            raise InputError(f"{name} is no data set in {data_dir}{hint}")
        chosen[path.name] = by_name[path.name]
    return list(chosen.values())


def _refuse_busy(chosen: Sequence["StoredDataset"], users: "Users") -> None:
    for each in chosen:
        if is_locked(each.folder):
            raise InputError(f"another process is writing {each.folder}; wait for it, or end it")
        for run_folder in _runs_of(each, users):
            if is_locked(run_folder):
                raise InputError(
                    f"{run_folder} is training on {each.folder}; wait for it, or end it"
                )


def _confirmed(chosen: Sequence["StoredDataset"], users: "Users") -> bool:
    from tfmat.data.dataset import size_text

    total = size_text(sum(each.num_bytes for each in chosen))
    used = [path for each in chosen for path in _runs_of(each, users)]
    uses = f"; used by {_list_of(used)}" if used else ""
    what = f"{_list_of([each.folder for each in chosen])} ({total}{uses})"
    if not sys.stdin.isatty():
        raise InputError(f"this would delete {what}; add --yes to do it")
    print(f"delete {what}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show_datasets(
    datasets: Sequence["StoredDataset"],
    users: "Users",
    data_dir: pathlib.Path,
    runs_dir: pathlib.Path,
) -> None:
    from tfmat.data.dataset import size_text

    if not datasets:
        print(f"no data sets in {data_dir}")
        return
    now = datetime.datetime.now(datetime.UTC)
    rows = [("size", "age", "data set", "used by")]
    for each in datasets:
        state = "" if each.state == "complete" else f" ({each.state})"
        used = _list_of(_runs_of(each, users)) or "-"
        age = _age((now - each.written).total_seconds())
        rows.append(
            (size_text(each.num_bytes), age, printable(f"{each.folder}{state}"), printable(used))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for size, age, name, used in rows:
        print(f"{size:>{widths[0]}}  {age:>{widths[1]}}  {name:{widths[2]}}  {used}")
    unused = [each for each in datasets if not _runs_of(each, users)]
    total = size_text(sum(each.num_bytes for each in datasets))
    print(f"{len(datasets)} in all, {total}", end="")
    if unused:
        size = size_text(sum(each.num_bytes for each in unused))
        print(
            f"; no run in {runs_dir} uses {len(unused)} of them, {size}: tfmat clean --unused",
            end="",
        )
    print()


def _list_of(paths: Sequence[pathlib.Path]) -> str:
    shown = ", ".join(map(str, paths[:3]))
    return f"{shown} and {len(paths) - 3} more" if len(paths) > 3 else shown


def _age(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "now"
