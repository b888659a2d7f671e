"""Tables: every value with its unit; the recommended value leads, and a warning is told once."""

import io

import msgspec
from msgspec import convert
from rich.console import Console

from tfmat.identification.results import Answer, Coverage, Evaluation, ReferenceScores, Warned
from tfmat.report.tables import (
    coverage_table,
    evaluation_table,
    identification_table,
    note_lines,
    notes_of,
    parameter_table,
    reference_bins_table,
    reference_table,
    shared_beginning,
    tensile_table,
)
from tfmat_tests.report.run_folder import COVERAGE_OF_ONE, REFERENCE, evaluation


def text_of(table, width=160) -> str:
    text = io.StringIO()
    Console(file=text, width=width, highlight=False).print(table)
    return text.getvalue()


def test_evaluation_table_has_a_row_a_parameter():
    content = evaluation(num_curves=25000, rmse_percent=0.812, rmse_over_noise=1.07)
    content["parameters"]["a"]["r2"] = None
    text = text_of(evaluation_table(convert(content, Evaluation)))
    for expected in (
        "25,000 test curves",
        "1.000e-04",
        "45.7 MPa (0.900 %)",
        "0.99900",
        "0.0400 decades",
        "5.000e-04",
    ):
        assert expected in text
    assert "0.812 % of the maximum stress" in text
    assert "1.07 × the noise" in text
    without = content | {"law": None, "rmse_percent": None, "rmse_over_noise": None}
    assert "re-simulated" not in text_of(evaluation_table(convert(without, Evaluation)))


def test_reference_tables_hold_every_number_with_its_error():
    reference = convert(REFERENCE, ReferenceScores)
    text = text_of(reference_table(reference, 123456.7), 200)
    for expected in (
        "60 test curves",
        "4.00e-05 ± 1.0e-06",
        "2.50 ± 0.10",
        "1.25",
        "95.0 %",
        "2.0 %",
        "123,457 curves/s",
        "25,000 curves/s",
        "quadrature",
    ):
        assert expected in text
    sampled = msgspec.structs.replace(
        reference, method="importance sampling", fewest_effective_samples=213.7
    )
    text = text_of(reference_table(sampled, 1.0), 200)
    assert "importance sampling, at least 214 effective samples" in " ".join(text.split())
    text = text_of(reference_bins_table(reference), 200)
    for expected in ("maximum strain (–)", "0.0100 – 0.0200", "2.50 / 1.25", "noise", "points"):
        assert expected in text


def test_coverage_table_has_a_row_a_parameter():
    text = text_of(coverage_table({"G0": convert(COVERAGE_OF_ONE, Coverage)}, False))
    for expected in ("G0", "51.0 %", "90.5 %", "94.0 %", "1.010", "-3.000", "0.0100", "0.0400"):
        assert expected in text


def entry(value, unit, **changes):
    content = {
        "value": value,
        "unit": unit,
        "method": "least_squares",
        "std": None,
        "ci95": None,
        "network": None,
        "network_ci95": None,
        "least_squares": value,
        "least_squares_ci95": None,
    }
    return content | changes


def result(name, modulus, **changes):
    content = {
        "curve": name,
        "law": "hahn_tsai",
        "do_not_use": False,
        "reasons": [],
        "method": "least_squares",
        "parameters": {
            "G0": entry(modulus, "MPa", std=12.5, ci95=[6900.0, 7030.0], network=6543.0),
            "a": entry(2.44e-8, "MPa^-3", method="given"),
        },
        "rmse_percent": 1.234,
        "rmse_percent_of": {"least_squares": 1.234},
        "conditions": {},
        "tensile": None,
        "assumed": [],
        "num_points": 150,
        "steps": [],
        "warnings": [],
    }
    return convert(content | changes, Answer)


def warning(kind, text):
    return {"kind": kind, "text": text, "advice": f"mend {kind}"}


def test_a_batch_has_a_row_per_curve_with_the_recommended_values():
    refused = result("two", 5123.4, do_not_use=True, reasons=["stress in ksi?"])
    text = text_of(
        identification_table(
            [result("[red]one.csv", 6964.2, assumed=["stress in MPa"]), refused, result("three", 1)]
        )
    )
    for expected in (
        *("G0 (MPa)", "a (MPa⁻³)", "given", "[red]one.csv", "6964", "5123", "2.440e-8", "1.23"),
        *("NO: stress in ksi?", "yes", "assumed", " MPa ", "law hahn_tsai"),
    ):
        assert expected in text
    assert "6543" not in text
    assert text_of(identification_table([]))


def test_who_answered_is_told_where_not_all_answers_were_got_alike():
    text = text_of(identification_table([result("a", 1.0), result("b", 2.0, method="network")]))
    assert "got by" in text and "network" in text
    assert "got by" not in text_of(identification_table([result("a", 1.0), result("b", 2.0)]))


def test_a_kind_of_warning_is_told_once_with_its_curves():
    each = [result(str(i), 1.0, warnings=[warning("necking", f"necks at 0.{i}")]) for i in range(8)]
    each[3].warnings.append(Warned(**warning("toe", "a toe")))
    each[4].warnings *= 2
    first, second = notes_of(each)
    assert (first.mark, first.kind, len(first.curves)) == ("a", "necking", 8)
    assert (second.mark, second.curves) == ("b", ("3",))
    assert note_lines(first, 8) == ["a  necking (all)", "   e.g. necks at 0.0", "   → mend necking"]
    assert note_lines(first, 20)[0] == "a  necking (8 of 20: 0, 1, 2, 3, 4, 5 and 2 more)"
    rows = text_of(identification_table(each)).splitlines()
    assert next(row for row in rows if row.strip().startswith("3")).rstrip().endswith("a b")


def test_one_answer_shows_value_interval_and_method_and_the_rest_on_request():
    answer = result("one", 6964.2, assumed=["stress in MPa"])
    text = text_of(parameter_table(answer))
    for expected in ("6964", "12.5", "6900 … 7030", "least squares", "given", "150 points"):
        assert expected in text
    assert "assumed: stress in MPa" in text
    assert "6543" not in text and "network" not in text
    assert "6543" in text_of(parameter_table(answer, details=True))
    wide = entry(6964.2, "MPa", std=131.0, ci95=[6900.0, 7030.0])
    contradicted = text_of(parameter_table(result("one", 1.0, parameters={"G0": wide})))
    assert "131" not in contradicted and "6900 … 7030" in contradicted
    pooled = text_of(parameter_table(result("pooled", 1.0, method="mean of specimens")))
    assert "scatter (std)" in pooled and "of the mean" in pooled and "together" in pooled


def test_conditions_and_tensile_properties_stand_in_a_table_of_their_own():
    assert tensile_table([result("a", 1.0)]) is None

    def tensile(modulus, strength, **changes):
        symbols = {"modulus_mpa": ("E", "MPa"), "tensile_strength_mpa": ("Rm", "MPa")}
        values = dict(zip(symbols, (modulus, strength), strict=True))
        return {
            name: {"symbol": symbol, "unit": unit, "value": values[name], "how": "measured"}
            | changes.get(name, {})
            for name, (symbol, unit) in symbols.items()
        }

    bound = {"tensile_strength_mpa": {"at_least": True}}
    table = tensile_table(
        [
            result("a", 1.0, conditions={"temperature": "200 °C"}, tensile=tensile(69500.0, 310.2)),
            result("b", 1.0, tensile=tensile(None, 287.0, **bound)),
            result("c", 1.0, conditions={"direction": "L"}),
        ]
    )
    text = text_of(table)
    for expected in ("temperature", "200 °C", "direction", "E (GPa)", "69.50", "310.2", "≥ 287.0"):
        assert expected in text


def test_what_all_names_begin_with_is_left_out():
    names = ["cleaned_6061-01-13-200C-L", "cleaned_6061-03-15-100C-ST"]
    assert shared_beginning(names) == "cleaned_6061-"
    assert shared_beginning([*names, "other"]) == ""
    assert shared_beginning(names[:1]) == ""
    # A name that is itself the beginning of another stays whole.
    assert shared_beginning(["specimen", "specimen_2"]) == ""
    text = text_of(identification_table([result(name, 1.0) for name in names]))
    assert "01-13-200C-L" in text and text.count("cleaned_6061-") == 1
    assert (
        max(
            map(
                len, text_of(identification_table([result(n, 1.0) for n in names]), 80).splitlines()
            )
        )
        <= 80
    )
