"""Lists the material laws: formula, parameters with units and ranges, source; or the test programmes.

A name shows one law in detail and tries it out at the corners of its ranges;
a file shows a law of your own, before you make a million curves with it.
--plot draws some simulated records of it, test by test.

Examples:
  tfmat laws
  tfmat laws voce
  tfmat laws ogden --plot=ogden.png
  tfmat laws my_law.py:MyLaw
  tfmat laws --tests
  tfmat laws --json
"""

import collections
import json
import sys
from typing import Any

from absl.flags import FlagValues

from tfmat.cli.flags import check_output_file, switch, text
from tfmat.errors import InputError

# Enough for every cycle of the longest cyclic history.
_FEWEST_POINTS = 200

FLAGS = (
    switch("json", False, "Print JSON instead of text."),
    switch(
        "tests",
        False,
        "List the test programmes that records are simulated of, with their settings.",
    ),
    text("plot", None, "picture of some simulated records of the law: a PNG or SVG file"),
)


def run(flag_values: FlagValues, arguments: list[str]) -> int | None:
    """Prints all laws, or the one that the argument names. Status 2 where a law fails its checks."""
    from tfmat.materials import LAWS, law_class

    if len(arguments) > 1:
        raise InputError(
            f"tfmat laws takes one law, and got {len(arguments)}: {' '.join(arguments)}"
        )
    if flag_values.tests:
        if arguments or flag_values.json or flag_values.plot:
            raise InputError("tfmat laws --tests stands alone; leave the rest out")
        _print_tests()
        return None
    check_output_file("plot", flag_values.plot)
    if flag_values.plot is not None and not arguments:
        raise InputError("--plot draws one law; name it, as in: tfmat laws voce --plot=voce.png")
    if not arguments:
        laws = {name: law() for name, law in LAWS.items()}
        if flag_values.json:
            _print_json([describe(spec, law) for spec, law in laws.items()])
        else:
            _print_laws(laws)
        return None
    status = _run_one(arguments[0], law_class(arguments[0])(), flag_values.json)
    if flag_values.plot is not None and status == 0:
        from tfmat.cli.laws_picture import draw_records

        draw_records(arguments[0], flag_values.plot)
    return status


def describe(spec: str, law: Any) -> dict[str, Any]:
    """Everything that a law says of itself, as plain JSON values; `spec` is what `--law` takes."""
    return {
        "law": spec,
        "title": law.title,
        "formula": law.formula,
        "source": law.source,
        "strain_measure": law.strain_measure,
        "stress_measure": law.stress_measure,
        "tests": list(law.tests),
        "max_strain": list(law.max_strain) if hasattr(law, "max_strain") else None,
        "strain_spacing": law.strain_spacing,
        "strength_mpa": list(law.strength_mpa) if law.strength_mpa else None,
        "noise_mpa": law.noise_mpa,
        "laboratory": {name: list(limits) for name, limits in law.laboratory.items()},
        "parameters": [
            {
                "name": parameter.name,
                "unit": parameter.unit,
                "low": parameter.low,
                "high": parameter.high,
                "scale": parameter.scale,
                "description": parameter.description,
                **({} if parameter.fixed is None else {"fixed": parameter.fixed}),
            }
            for parameter in law.parameters
        ],
    }


def _run_one(spec: str, law: Any, as_json: bool) -> int:
    findings = _findings(law)
    passed = all(finding.passed for finding in findings)
    if as_json:
        checks = [
            {"check": finding.check, "passed": finding.passed, "detail": finding.detail}
            for finding in findings
        ]
        _print_json([{**describe(spec, law), "checks": checks}])
    else:
        from tfmat.console import open_console

        console = open_console(100)
        _print_law(console, spec, law)
        console.print(_details(law))
        for finding in findings:
            mark = "[green]passed[/]" if finding.passed else "[red]FAILED[/]"
            console.print(f"  check {mark}  {finding.check}: ", end="")
            console.print(finding.detail, markup=False)
        if passed:
            console.print(f"\nUse it: tfmat train --law={spec}", markup=False)
    return 0 if passed else InputError.exit_status


def _findings(law: Any) -> list[Any]:
    """The checks of the law over a rising strain, or over each kind of test that its records hold."""
    from tfmat.materials.law import check_law

    if law.tests == ("monotonic",):
        return check_law(law)
    import dataclasses

    return [
        dataclasses.replace(finding, check=f"{test}, {finding.check}")
        for test, draw in _histories(law).items()
        for finding in check_law(law, draw)
    ]


def _histories(law: Any) -> dict[str, Any]:
    """Each test of the law's records -> what draws histories of it."""
    import numpy as np

    from tfmat.curves.programmes import find_programmes

    def drawn_by(programme: Any) -> Any:
        return lambda curves, points: programme.draw(
            np.random.default_rng(0), curves, max(points, _FEWEST_POINTS)
        )

    programmes = find_programmes(tuple(dict.fromkeys(law.tests)))
    return {programme.name: drawn_by(programme) for programme in programmes}


def _print_json(laws: list[dict[str, Any]]) -> None:
    json.dump({"laws": laws}, sys.stdout, indent=2, ensure_ascii=False)
    print()


def _print_laws(laws: dict[str, Any]) -> None:
    from tfmat.console import open_console
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


def _print_tests() -> None:
    from rich.text import Text

    from tfmat.console import open_console
    from tfmat.curves.programmes import PROGRAMMES
    from tfmat.materials import LAWS

    console = open_console(100)
    console.print(
        "monotonic: one curve of rising strain; its settings are data.max_strain and data.strength_mpa.\n"
    )
    for name, programme in PROGRAMMES.items():
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
