"""`tfmat identify`: files and flags in, answers out."""

import collections
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import (
    check_output_file,
    check_output_folder,
    command,
    given,
    given_to,
    known_parameters,
    listed,
    number,
    refuse,
    repeated,
    switch,
    text,
    whole,
)
from tfmat.console import printable, progress_bar, run_progress
from tfmat.errors import InputError, Interrupted
from tfmat.files import atomic_write, make_folder, write_arrays, write_json

if TYPE_CHECKING:
    import numpy as np

    from tfmat.identification.answer import Identification
    from tfmat.identification.api import Asked, Chosen
    from tfmat.identification.networks import Sidecar
    from tfmat.identification.results import Answer
    from tfmat.records.cleaning import CleaningOptions
    from tfmat.records.files import RecordFiles
    from tfmat.records.reading import ReadingOptions
    from tfmat.records.record import CurveTarget, MeasuredRecord
    from tfmat.specimens.campaign import Description

# --------------------------------------------------------------------------------------------------
# The command.


# DO_NOT_USE: exit status of --strict where an answer must not be used; no error of `tfmat.errors` has it.
DO_NOT_USE = 5


@command(
    {
        "answer": (
            text(
                "law", None,
                "voce or swift for metals, hahn_tsai for the shear of plies, ... (`tfmat laws`); auto, as if none is "
                "given: all for the kind of test, ranked; with --workdir the network's",
            ),
            repeated("fix", "a known parameter, E=193000; may be repeated"),
            switch("pool", False, "all curves are specimens of one material: one answer more, with scatter"),
            text("pool_by", None, "as --pool, one answer for each temperature, direction, rate, specimen, ..."),
            switch("strict", False, "exit status 5 where an answer must not be used; files are written all the same"),
            switch("details", False, "also show the network's and the least-squares values"),
            text(
                "workdir", None,
                "folder of the run whose network is asked too; if not given, where a network has a part, "
                "runs/quickstart or one that comes with tfmat",
            ),
            switch("least_squares", True, "fit by least squares and compare with other laws; off: network only"),
            whole("samples", None, "samples of the posterior of each curve, written to --samples_file", 1),
            switch("correct", True, "correct a network's posterior with the law's likelihood; off: leave it unchecked"),
        ),
        "output": (
            text("csv", None, "file to write the results to, one row per curve"),
            text("excel", None, "workbook (.xlsx) to write the results to, and the points of each curve"),
            text("json", None, "file to write the results to"),
            text("plot_dir", None, "folder for a picture per curve, measured against the law's, and its samples"),
            listed("card", (), "material cards: abaqus, ls_dyna, ansys, calculix, code_aster; several with commas"),
            text("card_dir", "cards", "folder for the material cards"),
            switch("card_variants", False, "also cards of the 5 % and 95 % quantile of the mean stress"),
            number("poisson_ratio", None, "of the material cards; if not given 0.3 for metals, 0.4995 for rubber"),
            text("samples_file", "samples.npz", "file for samples and logarithms of their densities; x.nc: for ArviZ"),
        ),
        "input": (
            text("strain_column", None, "name of the strain column, or its number from 1"),
            text("stress_column", None, "name of the stress column, or its number from 1"),
            text("strain_unit", None, "-, %, ‰, mm/mm, microstrain, stretch; of a displacement mm, um, m, in"),
            text(
                "stress_unit", None,
                "MPa, GPa, kPa, Pa, psi, ksi, bar, N/mm2, kgf/mm2; of a load N, kN, kgf, lbf, kip",
            ),
            text("strain_measure", None, "engineering or true"),
            text("stress_measure", None, "engineering or true"),
            text("shear_strain", None, "engineering (gamma) or tensor (eps12 = gamma / 2)"),
            number("area", None, "cross-section in mm2, makes a load a stress"),
            number("gauge_length", None, "in mm, makes a displacement a strain"),
            text("time_column", None, "name of the time column of a test, or its number from 1"),
            text("time_unit", None, "s, ms, min, h, d"),
            text("specimen_column", None, "column that tells specimens apart; none: all rows are one curve"),
            text("sheet", None, "sheet of an Excel file; all that hold a curve if not given"),
            text("decimal", None, "point or comma"),
            switch("skip_bad_files", False, "name files that cannot be read and go on with the others"),
        ),
        "cleaning": (
            text("window", None, "LOW,HIGH: strains between which points count, e.g. 0,0.05; either may be empty"),
            text("toe", "auto", "auto: take off toe, strain offset and preload; off: never"),
            switch("cut_after_failure", True, "cut where the load drops for good, metals at the maximum load"),
            switch("envelope", True, "make the strain of noisy curves rise by averaging"),
        ),
        "the next test (laws of tests)": (
            switch("next_test", False, "which test to do next, and what it is expected to tell"),
            repeated("predict", "what it is to narrow: the end of TEST:SETTING=VALUE,...; may be repeated"),
            repeated("candidate", "a test that it chooses from, TEST:SETTING=VALUE,...; may be repeated"),
        ),
        "specimens that a program simulates": (
            text("simulator", None, "folder with simulator.toml; its area and gauge length hold for the files"),
            whole("verify", None, "runs of it at draws from each posterior, beside the measured curve", 1),
        ),
    }
)  # fmt: skip
def identify(flag_values: FlagValues, arguments: list[str]) -> int:
    """Material parameters of measured stress-strain curves, with 95 % intervals.

      tfmat identify curve.csv
      tfmat identify lab/ --law=swift --stress_unit=ksi --json=out.json --csv=out.csv --plot_dir=plots
      tfmat identify "lab/*.xlsx" --workdir=runs/voce --fix=E=193000 --pool_by=temperature,direction
      tfmat identify curve.csv --law=voce --card=abaqus,ls_dyna --card_variants
      tfmat identify uniaxial=UT.txt equibiaxial=ET.txt planar=PS.txt --law=ogden
      tfmat identify cyclic_1.csv --law=voce_chaboche --plot_dir=plots
      tfmat identify machine.txt --law=voce --area=24.5 --gauge_length=50 --stress_column=Load

    Files, folders and patterns may be mixed: text files (any separator, decimal point or comma) and
    Excel sheets. Columns and units are found where only one reading is possible, and what was found
    or assumed is said; what the flags say wins. Each step of cleaning is said. If one file cannot be
    read, each bad file is named, nothing is written, and the exit status is 2.

    Without --law the kind of test is found by columns and points: tension, cycles, rubber, shear of a
    ply, ... Its laws are fitted, ranked for all files together, and the best one answers. Laws that are
    as good are named. An answer that must not be used comes after the others.

    Each curve gets one answer: the parameters that fit it best, by least squares from many starts.
    Neither a network nor samples change it. A parameter that is bounded on one side only is named.
    "use" says NO where an answer must not be used, and every kind of warning is explained once. A
    network is loaded, which takes seconds, only where it has a part: with --details, --workdir,
    --samples or --noleast_squares. A tension test of a metal also gets what needs no law: chord
    modulus, Rp0.2, Rm and uniform elongation.

    A law that takes tests (see `tfmat laws`) wants all tests of a material at once: TEST=FILE for
    each, or a table tests.csv (columns file, test, rate in 1/s, temperature in °C, material). A
    parameter that the tests cannot tell is named, with the test that would tell it.

    --samples writes the arrays samples [curves, samples, parameters] and log_density [curves,
    samples] with their parameters, units, curves and certificate.

    More: docs/measured_curves.md, tests.md (--next_test), posteriors.md (--samples), cards.md, and
    finite_elements.md (--simulator).
    """
    if not arguments:
        raise InputError("no curve given; say: tfmat identify curve.csv [more.csv, folder ...]")
    for name in ("json", "csv", "excel", "samples_file"):
        check_output_file(name, flag_values[name].value)
    check_output_folder("plot_dir", flag_values.plot_dir)
    check_flags(flag_values)
    # Files are read before TensorFlow is loaded: a bad one is named at once.
    from tfmat.identification.api import Asked
    from tfmat.records.files import find_records
    from tfmat.records.programmes import takes_tests

    said = given_to(Asked, flag_values, "fixed", "samples")
    fixed = known_parameters(flag_values.fix)
    asked = Asked(**said, samples=flag_values.samples or 0, fixed=fixed)
    unread: list[tuple[list[MeasuredRecord], list[InputError]]] = []

    def read(source: "Sidecar") -> "list[MeasuredRecord]":
        found, errors = read_records(
            flag_values, find_records(arguments, source.law), source.target
        )
        if not found or (errors and not flag_values.skip_bad_files):
            raise UnreadableError(errors)
        unread.append((found, errors))
        return found

    chosen = None
    try:
        if asked.is_auto and flag_values.simulator is None:
            chosen = choose(flag_values, arguments, asked, read)
            asked = asked.by(chosen)
        sidecar, network = asked.source(samples=flag_values.verify is not None)
        solvers = solvers_of(flag_values, sidecar)
        specimen = specimen_of(flag_values, sidecar)
        curves = chosen.records if chosen else read(sidecar)
    except UnreadableError as error:
        say_unread(error.errors)
        return error.exit_status
    say_unread(next(errors for found, errors in unread if found is curves))
    if (flag_values.pool or flag_values.pool_by) and len(curves) < 2:
        hint = (
            "; each material of a table of tests is a specimen" if takes_tests(sidecar.law) else ""
        )
        raise InputError(f"--pool needs at least two curves; one was given{hint}")
    source: Any = sidecar
    if network is not None:
        from tfmat.launch.processes import prepare_tensorflow

        prepare_tensorflow(one_thread_an_operation=True, own_program=True)
        from tfmat.identification.networks import Identifier

        source = Identifier.open(network)
    with progress_bar("identifying", "curves") as progress:
        results = asked.answers(source, curves, chosen, progress)
    for i, result in enumerate(results) if flag_values.next_test else ():
        assert sidecar.settings is not None
        with progress_bar(f"next test of {result.curve.name}", "tests") as progress:
            of_tests = given(flag_values, "predict", "candidate")
            results[i] = result.with_next_test(sidecar.settings, progress=progress, **of_tests)
    every = [*results]
    if flag_values.pool or flag_values.pool_by:
        from tfmat.identification.answer import pool

        keys = [key.strip() for key in (flag_values.pool_by or "").split(",") if key.strip()]
        every += pool(results, keys)
    content = [result.entry() for result in every]
    cards = []
    if solvers:
        cards = write_cards(
            every,
            solvers,
            flag_values.card_dir,
            poisson_ratio=flag_values.poisson_ratio,
            variants=flag_values.card_variants,
        )
    if flag_values.samples is not None:
        cards += write_samples(results, flag_values.samples_file, sidecar.uncertainty)
    if flag_values.plot_dir is not None:
        write_plots(every, flag_values.plot_dir)
    if flag_values.verify is not None and specimen is not None and network is not None:
        cards += verify_all(flag_values, specimen, network, results, content)
    if flag_values.json is not None:
        write_json(flag_values.json, content)
    details = flag_values.details
    from tfmat.identification.networks import name_of
    from tfmat.report.answers import csv_text, print_results, workbook

    if flag_values.csv is not None:
        with atomic_write(flag_values.csv, "w") as file:
            file.write(csv_text(content, details))
    if flag_values.excel is not None:
        with atomic_write(flag_values.excel) as file:
            file.write(workbook(every, details))
    print_results(
        content,
        network=name_of(network) if network else None,
        details=details,
        cards=cards,
        kind=chosen.kind.title if chosen else "",
        not_needed=chosen.not_needed if chosen else (),
    )
    if flag_values.strict and any(result.do_not_use for result in every):
        return DO_NOT_USE
    return 0


# --------------------------------------------------------------------------------------------------
# Reading and refusing: the curves or the tests of all files, by the flags that say how.


class UnreadableError(InputError):
    """Files that cannot be read, an error each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


def say_unread(errors: Sequence[InputError]) -> None:
    """Names the files that cannot be read."""
    for error in errors:
        print(f"tfmat: {printable(error)}", file=sys.stderr)


def read_records(
    flag_values: FlagValues, records: "list[RecordFiles]", target: "CurveTarget"
) -> "tuple[list[MeasuredRecord], list[InputError]]":
    """The records whose files are all good, and why others are not."""
    from tfmat.records.files import load_records

    options, cleaning = reading_of(flag_values)
    with progress_bar("reading", "files") as progress:
        return load_records(records, target, options, progress, cleaning)


def reading_of(flag_values: FlagValues) -> "tuple[ReadingOptions, CleaningOptions]":
    """How files are read and cleaned, by the flags that have the names of the options."""
    from tfmat.records.cleaning import CleaningOptions
    from tfmat.records.reading import ReadingOptions

    reading = ReadingOptions(**given_to(ReadingOptions, flag_values))
    return reading, CleaningOptions(**given_to(CleaningOptions, flag_values))


def choose(
    flag_values: FlagValues,
    arguments: list[str],
    asked: "Asked",
    read: "Callable[[Sidecar], list[MeasuredRecord]]",
) -> "Chosen":
    """The best law for the files, where none is named."""
    from tfmat.identification.api import choose_law, kind_of_files

    kind = kind_of_files(arguments, *reading_of(flag_values))
    with progress_bar(f"comparing laws for {kind.title}", "fits") as progress:
        return choose_law(kind, read, fixed=asked.fixed, progress=progress)


def solvers_of(flag_values: FlagValues, sidecar: "Sidecar") -> list[str]:
    """The solvers that cards are asked for; InputError where one has none for the law."""
    solvers = list(dict.fromkeys(solver.strip() for solver in flag_values.card))
    if not solvers:
        return []
    from tfmat.materials.cards import check_card

    for solver in solvers:
        check_card(sidecar.law, solver, flag_values.poisson_ratio)
    check_output_folder("card_dir", flag_values.card_dir)
    return solvers


def check_flags(flag_values: FlagValues) -> None:
    """InputError for flags that say how something is done which is not asked for, or which lack a package."""
    if not flag_values.card:
        why = " says how cards are written; say which: --card=abaqus"
        refuse(("card_dir", "card_variants", "poisson_ratio"), flag_values, why)
    if flag_values.samples is None and flag_values["samples_file"].present:
        raise InputError("--samples_file says where samples go; say how many: --samples=1000")
    asks_network = flag_values.workdir or flag_values.verify or flag_values.details
    if not (flag_values.correct or flag_values.samples or asks_network):
        raise InputError("--nocorrect is of samples; say how many: --samples=1000")
    if flag_values.samples is not None and flag_values.samples_file.endswith(".nc"):
        from tfmat.identification.posterior import check_arviz

        check_arviz()
    if not flag_values.next_test:
        why = " is of --next_test; give that too, or leave --{} out"
        refuse(("predict", "candidate"), flag_values, why)


# --------------------------------------------------------------------------------------------------
# Results: tables on the terminal, a CSV file, and a picture per curve.


def write_plots(results: "Sequence[Identification]", plot_dir: str) -> None:
    """One PNG per curve, and one each of its next test and of its samples where these were asked for."""
    from tfmat.report.figures import Corner, answer_figure, next_test_figure, save_figure

    folder = make_folder(plot_dir)
    with progress_bar("drawing", "curves") as progress:
        for done, (name, result) in enumerate(file_names(results), start=1):
            save_figure(answer_figure(result.picture()), folder / f"{name}.png")
            if result.next_test is not None:
                figure = next_test_figure(result.curve.name, result.next_test.entry())
                save_figure(figure, folder / f"{name}.next_test.png")
            if (samples := result.posterior_picture()) is not None:
                save_figure(Corner(samples).figure, folder / f"{name}.posterior.png")
            if progress:
                progress(done, len(results))


def file_names(results: "Sequence[Identification]") -> "Iterator[tuple[str, Identification]]":
    """Each answer with a name for its files; different curves may become one name, and none overwrites another."""
    taken: collections.Counter[str] = collections.Counter()
    for result in results:
        name = re.sub(r"[^\w.+=-]+", "_", result.curve.name).strip("_")
        taken[name] += 1
        yield name + (f"-{taken[name]}" if taken[name] > 1 else ""), result


def write_cards(
    results: "Sequence[Identification]",
    solvers: Sequence[str],
    card_dir: str,
    *,
    poisson_ratio: float | None = None,
    variants: bool = False,
) -> list[tuple[str, str]]:
    """A material card per answer and solver, NAME.SOLVER.inp, and its 5 % and 95 % variants; all, or none is written.

    Returns:
      (style, line) for the terminal: what was written, and what the user should know of it.
    """
    from tfmat.materials.cards import SOLVERS, card_warnings

    texts: dict[str, str] = {}
    said: list[tuple[str, str]] = []

    def add(stem: str, result: "Identification", quantile: float | None = None) -> None:
        for solver in solvers:
            text = result.card(solver, poisson_ratio=poisson_ratio, quantile=quantile)
            texts[f"{stem}.{solver}.{SOLVERS[solver].suffix}"] = text
            card = f"the {SOLVERS[solver].title} card of {stem}"
            for warning in card_warnings(solver, *result.card_values(quantile)):
                said.append(("yellow", f"warning: {card}: {warning}"))

    for name, result in file_names(results):
        add(name, result)
        if result.do_not_use:
            reasons = ", ".join(result.do_not_use)
            said.append(("bold red", f"DO NOT USE THE CARDS OF {name}: {reasons}"))
        if variants:
            try:
                add(f"{name}_5", result, 0.05)
                add(f"{name}_95", result, 0.95)
            except InputError as error:
                said.append(("yellow", f"warning: {error}"))
    folder = make_folder(card_dir)
    for file_name, content in texts.items():
        with atomic_write(folder / file_name, "w") as file:
            file.write(content)
    shown = ", ".join(texts) if len(texts) <= 6 else f"{len(texts)} files"
    return [("", f"cards in {folder}: {shown}"), *said]


def write_samples(
    results: "Sequence[Identification]", path: str, uncertainty: str
) -> list[tuple[str, str]]:
    """The samples of all answers as a .npz file, or .nc for ArviZ; NaN for a curve that the network does not know.

    Returns:
      (style, line) for the terminal: what was written, and what the user should know of it.
    """
    import numpy as np

    drawn = [result.samples for result in results]
    known = next((each for each in drawn if each is not None), None)
    if known is None:
        raise InputError("the network knows none of these curves; there is nothing to draw from")
    replaced = ", instead of the file that was there" if pathlib.Path(path).exists() else ""
    if path.endswith(".nc"):
        from tfmat.identification.posterior import write_inference_data

        write_inference_data(results, path)
    else:
        write_arrays(
            path,
            samples=[known.values * np.nan if each is None else each.values for each in drawn],
            log_density=[
                known.log_density * np.nan if each is None else each.log_density for each in drawn
            ],
            parameters=known.names,
            units=known.units,
            curves=[result.curve.name for result in results],
            certificate=[
                "" if result.posterior is None else result.posterior.certificate.status
                for result in results
            ],
        )
    lines = [("", f"{len(known.values):,} samples of each curve: {path}{replaced}")]
    own = any(each.posterior and not each.posterior.certificate.is_exact for each in results)
    if uncertainty == "gaussian" and own:
        text = "this network gives a Gaussian of each parameter alone; how they trade is not in the samples"
        lines.append(
            ("yellow", f"warning: {text} (model.uncertainty=flow gives the whole posterior)")
        )
    missing = sum(each is None for each in drawn)
    if missing:
        lines.append(
            (
                "yellow",
                f"warning: no samples (NaN) of {missing} curves, which the network does not know",
            )
        )
    return lines


# --------------------------------------------------------------------------------------------------
# `tfmat identify --verify`: runs of a user's program at draws from the posterior, and how near they come.


# RUNS: the folder in a run's folder where the runs of its verifications are stored.
RUNS = "verified.runs"


def specimen_of(flag_values: FlagValues, sidecar: "Sidecar") -> "Description | None":
    """The simulation that --simulator names; its area and gauge length become the flags' where these are not given.

    Raises:
      InputError: it is not that of the network, or there is no posterior to verify.
    """
    if flag_values.simulator is None:
        if flag_values.verify is not None:
            raise InputError("--verify runs a program; say which: --simulator=FOLDER")
        return None
    from tfmat.specimens.campaign import read_description

    description = read_description(flag_values.simulator)
    wanted, given = ([p.name for p in of.parameters] for of in (description, sidecar))
    if not set(wanted) <= set(given):
        raise InputError(
            f"{description.folder} has the parameters {', '.join(wanted)}, the network {', '.join(given)}; "
            "name the simulator that it was trained on"
        )
    if flag_values.verify is not None and sidecar.uncertainty != "flow":
        raise InputError(
            "--verify draws from a posterior, which this network lacks; train one with --config.model.uncertainty=flow"
        )
    for name in ("area", "gauge_length"):
        if flag_values[name].value is None:
            flag_values[name].value = getattr(description.curve, name)
    return description


def verify_all(
    flag_values: FlagValues,
    description: "Description",
    network: pathlib.Path,
    results: "Sequence[Identification]",
    content: "list[Answer]",
) -> list[tuple[str, str]]:
    """Runs the program for each answer; adds `verification` to its entry, and a picture where these are asked for.

    Returns:
      (style, line) for the terminal, one an answer.
    """
    import numpy as np

    from tfmat.identification.results import Verified
    from tfmat.launch.processes import available_threads
    from tfmat.report.figures import save_figure, verification_figure
    from tfmat.specimens.campaign import verify

    said = []
    for (name, result), entry in zip(file_names(results), content, strict=False):
        posterior, curve = result.posterior, result.curve
        assert posterior is not None
        values = _values(result, flag_values.verify)
        others = [p.name for p in description.nuisances if p.name not in values]
        ranges = "its range" if len(others) == 1 else "their ranges"
        also = f", with {', '.join(others)} drawn from {ranges}," if others else ""
        try:
            with run_progress() as progress:
                runs = verify(
                    description,
                    network / RUNS,
                    curve.strain,
                    curve.stress_mpa,
                    values,
                    processes=max(1, available_threads() // description.threads),
                    progress=progress,
                )
        except KeyboardInterrupt:
            raise Interrupted(
                "interrupted; finished runs are stored, and the same command goes on"
            ) from None
        entry.verification = [Verified(run.values, run.failure, run.rmse_percent) for run in runs]
        far = [run.rmse_percent for run in runs if run.rmse_percent is not None]
        failed = f"; {len(runs) - len(far)} failed" if len(far) < len(runs) else ""
        if not far:
            said.append(("yellow", f"verified: none of {len(runs)} runs has a curve"))
            continue
        line = (
            f"verified: {len(far)} runs at draws from the posterior of {curve.name}{also} are {np.median(far):.2g} % "
            f"({min(far):.2g} to {max(far):.2g} %) of the maximum stress from the measured curve{failed}"
        )
        said.append(("", line))
        if flag_values.plot_dir is not None:
            figure = verification_figure(
                curve.name,
                curve.strain,
                curve.stress_mpa,
                [run.stress for run in runs if run.stress is not None],
            )
            save_figure(figure, pathlib.Path(flag_values.plot_dir) / f"{name}.verified.png")
    return said


def _values(result: "Identification", count: int) -> "dict[str, np.ndarray]":
    """The first draws from an answer's posterior, by name, with what was given for the specimen."""
    import numpy as np

    assert result.posterior is not None
    samples = result.posterior
    drawn = dict(zip(samples.names, samples.values[:count].T, strict=True))
    given = {name: np.full(count, each.value) for name, each in result.parameters.items()}
    return {**given, **drawn}
