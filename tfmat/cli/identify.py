"""Identifies the material parameters of measured stress-strain curves.

    tfmat identify curve.csv --law=voce
    tfmat identify lab/ --law=swift --stress_unit=ksi --json=out.json --csv=out.csv --plot_dir=plots
    tfmat identify "lab/*.xlsx" --workdir=runs/voce --fix=E=193000 --pool_by=temperature,direction
    tfmat identify curve.csv --law=voce --card=abaqus,ls_dyna --card_variants
    tfmat identify uniaxial=UT.txt equibiaxial=ET.txt planar=PS.txt --law=ogden
    tfmat identify cyclic_1.csv --law=voce_chaboche --plot_dir=plots
    tfmat identify machine.txt --law=voce --area=24.5 --gauge_length=50 --strain_column=Extension --stress_column=Load

Curves are text files (comma, semicolon, tab or blanks; decimal point or comma; lines and units before the numbers) and
Excel sheets; files, folders and patterns may be mixed. Columns and units are found where only one reading is possible,
and what was found or assumed is said; what the flags say wins. Then a curve is cleaned (failure, necking, noise of the
strain, toe; each step is said and can be switched off).

Each curve gets one recommended answer: the parameters that fit it best, found by least squares from many starts, with
95 % intervals that hold the noise, the misfit between law and curve, and 2 % of the extensometer. Neither a network nor
samples change it. A parameter that the curve bounds on one side only is named. "use" says NO where an answer must not
be used, and every kind of warning is explained once, with its files. --details shows two answers side by side: the
network's (of --workdir, of runs/quickstart, or one that comes with tfmat) and the best fit. A network is loaded, which
takes seconds, only where it has a part in what is told: with --details, --workdir, --samples or --noleast_squares.

A tension test of a metal also gets what needs no law: chord modulus, Rp0.2, Rm and uniform elongation. Temperature,
direction, rate and specimen are taken from the heads and names of the files.

A law that takes tests (tfmat laws shows which) is identified from all tests of a material at once: TEST=FILE for each
test, or a table tests.csv (columns file, test, rate in 1/s, temperature in °C, material) or its folder. Where the law
takes one kind of test, plain files are a material each. A parameter that the tests cannot tell is named, with the test
that would tell it.

--samples writes samples of the joint posterior, and the logarithms of their densities, into --samples_file: arrays
samples [curves, samples, parameters] in the units that units names, log_density [curves, samples], parameters, curves,
certificate. A network's draws (those that come with tfmat and model.uncertainty=flow know how parameters trade against
each other, gaussian one at a time) are corrected with the law's likelihood, and each answer says what that came to;
--nocorrect leaves it out. Without such a network, and with --fix, they start from least squares. A name that ends in
.nc gives them as ArviZ's InferenceData, in a netCDF file.

--next_test ranks the tests of a specimen that could come next by what they are expected to tell: the information
gained, and how each narrows the 95 % intervals of the parameters and of predictions. Records of every test are
simulated at draws from the specimen's posterior. --predict=equibiaxial:max_strain=1 says what is to be predicted,
--candidate the same way which tests to choose from; both may be repeated.

With --fix a known parameter is given and the others are identified; with --pool all curves are specimens of one
material, and the last answer is theirs together (--pool_by: one answer for each temperature, direction, ...). Of a law
that takes tests, each material of a table is then a specimen.

--verify=8 --simulator=FOLDER makes eight runs at draws from the posterior of a specimen that a program simulates
(docs/finite_elements.md) and says how far they are from the measured curve; --plot_dir shows them over it.

--card writes material cards for solvers (abaqus, ls_dyna, ansys, calculix, code_aster) into --card_dir, in mm, t, s,
MPa, with the parameters, their intervals and what is assumed in their comments; --card_variants also a soft and a
stiff one.

If one file cannot be read, each bad file is named, nothing is written, and the exit status is 2 (--skip_bad_files
goes on with the others).
"""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfmat.cli.flags import (
    FlagValues,
    check_output_file,
    check_output_folder,
    known_parameters,
    listed,
    number,
    repeated,
    switch,
    text,
    whole,
)
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.curves.measured import MeasuredCurve
    from tfmat.curves.measured_tests import MeasuredRecord
    from tfmat.identification.answers import Identification
    from tfmat.identification.networks import Sidecar
    from tfmat.simulators.description import Description

FLAGS = (
    text(
        "workdir", None,
        "folder of the run whose network is asked too; if not given, where a network has a part, runs/quickstart or "
        "one that comes with tfmat",
    ),
    text(
        "law", None,
        "the law: voce or swift for metals, hahn_tsai for the shear of plies; if not given the network's, or hahn_tsai",
    ),
    text("strain_column", None, "name of the strain column, or its number from 1"),
    text("stress_column", None, "name of the stress column, or its number from 1"),
    text("specimen_column", None, "column that tells specimens apart; none: all rows are one curve"),
    text("sheet", None, "sheet of an Excel file; all that hold a curve if not given"),
    text("strain_unit", None, "-, %, ‰, mm/mm, microstrain, stretch; of a displacement mm, um, m, in"),
    text("stress_unit", None, "MPa, GPa, kPa, Pa, psi, ksi, bar, N/mm2, kgf/mm2; of a load N, kN, kgf, lbf, kip"),
    text("strain_measure", None, "engineering or true"),
    text("stress_measure", None, "engineering or true"),
    text("shear_strain", None, "engineering (gamma) or tensor (eps12 = gamma / 2)"),
    text("time_column", None, "name of the time column of a test, or its number from 1"),
    text("time_unit", None, "s, ms, min, h, d"),
    text("decimal", None, "point or comma"),
    text("toe", "auto", "auto: take off toe, strain offset and preload; off: never"),
    text("window", None, "LOW,HIGH: strains between which points count, e.g. 0,0.05; either may be empty"),
    text("json", None, "file to write the results to"),
    text("csv", None, "file to write the results to, one row per curve"),
    whole("samples", None, "samples of the posterior of each curve, written to --samples_file", 1),
    switch("correct", True, "correct a network's posterior with the law's likelihood; off: as the network gives it"),
    text("samples_file", "samples.npz", "file for the samples and the logarithms of their densities; x.nc: for ArviZ"),
    text("plot_dir", None, "folder for one picture per curve: measured against the law's curve, and its samples"),
    listed("card", (), "material cards to write: abaqus, ls_dyna, ansys, calculix, code_aster; several with commas"),
    text("card_dir", "cards", "folder for the material cards"),
    switch("card_variants", False, "also cards of the 5 % and 95 % quantile of the mean stress"),
    number("poisson_ratio", None, "of the material cards; if not given 0.3 for metals, 0.4995 for rubber"),
    text("pool_by", None, "as --pool, one answer for each temperature, direction, rate, specimen, ..."),
    number("area", None, "cross-section in mm2, makes a load a stress"),
    number("gauge_length", None, "in mm, makes a displacement a strain"),
    switch("cut_after_failure", True, "cut where the load drops for good, metals at the maximum load"),
    switch("envelope", True, "make the strain of noisy curves rise by averaging"),
    switch("least_squares", True, "fit by least squares and compare with other laws; off: network only"),
    switch("details", False, "also show the network's and the least-squares values"),
    switch("pool", False, "all curves are specimens of one material: one answer more, with scatter"),
    switch("skip_bad_files", False, "name files that cannot be read and go on with the others"),
    switch("next_test", False, "for laws of tests: which test to do next, and what it is expected to tell"),
    repeated("predict", "what --next_test is to narrow: the end of TEST:SETTING=VALUE,...; may be repeated"),
    repeated("candidate", "a test that --next_test chooses from, TEST:SETTING=VALUE,...; may be repeated"),
    text("simulator", None, "folder with simulator.toml; its area and gauge length hold for displacement and force"),
    whole("verify", None, "runs of the simulator at draws from each posterior, beside the measured curve", 1),
    repeated("fix", "a known parameter, E=193000; may be repeated"),
)  # fmt: skip


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Identifies every curve named on the command line; returns the exit status."""
    if not arguments:
        raise InputError("no curve given; say: tfmat identify curve.csv [more.csv, folder ...]")
    fixed = known_parameters(flag_values.fix)
    for name in ("json", "csv", "samples_file"):
        check_output_file(name, flag_values[name].value)
    check_output_folder("plot_dir", flag_values.plot_dir)
    # Files are read before TensorFlow is loaded: a bad one is named at once.
    from tfmat.cli.identification_input import (
        check_next_test,
        check_samples,
        read_curves,
        read_tests,
        solvers_of,
    )
    from tfmat.cli.verification import specimen_of
    from tfmat.curves.raw_files import find_files
    from tfmat.curves.record_files import find_records, refuse_tests, takes_tests
    from tfmat.identification.networks import (
        find_network,
        law_alone,
        needs_network,
        read_sidecar,
    )

    posterior = flag_values.samples is not None and not fixed
    network = find_network(flag_values.workdir, flag_values.law, posterior=posterior)
    sidecar = law_alone(flag_values.law) if network is None else read_sidecar(network)
    if not needs_network(
        sidecar,
        named=flag_values.workdir is not None,
        least_squares=flag_values.least_squares,
        samples=posterior or flag_values.verify is not None,
        details=flag_values.details,
    ):
        network = None
    solvers = solvers_of(flag_values, sidecar)
    check_samples(flag_values, sidecar, fixed)
    check_next_test(flag_values, sidecar)
    specimen = specimen_of(flag_values, sidecar)
    if fixed and sidecar.law is not None:
        from tfmat.identification.classical import conditioned

        conditioned(sidecar.law, fixed)
    law = sidecar.law
    curves: Sequence[MeasuredCurve | MeasuredRecord]
    if law is not None and takes_tests(law):
        curves, bad = read_tests(flag_values, find_records(arguments, law), law)
    else:
        refuse_tests(arguments, law)
        curves, bad = read_curves(flag_values, find_files(arguments), sidecar.target)
    if not curves or (bad and not flag_values.skip_bad_files):
        return InputError.exit_status
    if (flag_values.pool or flag_values.pool_by) and len(curves) < 2:
        hint = (
            "; each material of a table of tests is a specimen" if law and takes_tests(law) else ""
        )
        raise InputError(f"--pool needs at least two curves; one was given{hint}")
    _identify(flag_values, network, sidecar, curves, fixed, solvers, specimen)
    return 0


def _identify(
    flag_values: FlagValues,
    network: pathlib.Path | None,
    sidecar: "Sidecar",
    curves: "Sequence[MeasuredCurve | MeasuredRecord]",
    fixed: dict[str, float],
    solvers: list[str],
    specimen: "Description | None",
) -> None:
    from tfmat.cli.identification_output import (
        print_results,
        write_cards,
        write_csv,
        write_plots,
        write_samples,
    )
    from tfmat.console import progress_bar
    from tfmat.identification.record_answers import identify_all

    source: Any = sidecar
    if network is not None:
        from tfmat.launch.runtime import prepare_tensorflow

        prepare_tensorflow(one_thread_an_operation=True)
        from tfmat.identification.identifier import Identifier

        source = Identifier.open(network)
    with progress_bar("identifying", "curves") as progress:
        results = identify_all(
            source,
            curves,
            fixed=fixed,
            least_squares=flag_values.least_squares,
            samples=flag_values.samples or 0,
            correct=flag_values.correct,
            progress=progress,
        )
    if flag_values.next_test:
        results = [_with_next_test(flag_values, sidecar, result) for result in results]
    pooled = _pooled(flag_values, results)
    every = [*results, *pooled]
    content = [result.to_json() for result in every]
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
        from tfmat.cli.verification import verify_all

        cards += verify_all(flag_values, specimen, network, results, content)
    if flag_values.json is not None:
        from tfmat.files import write_json

        write_json(flag_values.json, content)
    details = flag_values.details
    if flag_values.csv is not None:
        write_csv(flag_values.csv, content, details=details)
    print_results(content, network=network, details=details, cards=cards)


def _with_next_test(
    flag_values: FlagValues, sidecar: "Sidecar", result: "Identification"
) -> "Identification":
    from tfmat.console import progress_bar

    assert sidecar.settings is not None
    with progress_bar(f"next test of {result.curve.name}", "tests") as progress:
        return result.with_next_test(
            sidecar.settings,
            predict=flag_values.predict,
            candidate=flag_values.candidate,
            progress=progress,
        )


def _pooled(flag_values: FlagValues, results: "list[Identification]") -> "list[Identification]":
    if not flag_values.pool and not flag_values.pool_by:
        return []
    from tfmat.identification.pooling import pool

    keys = [key.strip() for key in (flag_values.pool_by or "").split(",") if key.strip()]
    return pool(results, keys)
