"""The terminal's tables hold every value with its unit."""

import io

import msgspec
from msgspec import convert
from rich.console import Console

from tfmat.identification.results import Coverage, Evaluation, ReferenceScores
from tfmat.report.tables import (
    coverage_table,
    evaluation_table,
    reference_bins_table,
    reference_table,
)
from tfmat_tests.report.reference import REFERENCE

COVERAGE = {
    "50": 0.512,
    "90": 0.898,
    "95": 0.953,
    "z_std": 1.0123,
    "nll": -3.4567,
    "mean_std": 0.00812,
    "mean_width_95": 0.0345,
}


def text_of(table, width=160) -> str:
    text = io.StringIO()
    Console(file=text, width=width, highlight=False).print(table)
    return text.getvalue()


def test_evaluation_table_has_a_row_a_parameter():
    score = {
        "unit": "MPa",
        "mse": 1e-4,
        "mae": 45.67,
        "mae_percent": 1.234,
        "mae_decades": None,
        "r2": 0.99876,
    }
    logarithmic = {
        "unit": "-",
        "mse": 2e-3,
        "mae": 0.5,
        "mae_percent": None,
        "mae_decades": 0.0345,
        "r2": None,
    }
    content = {
        "law": "voce",
        "num_curves": 25000,
        "mse": 1.05e-3,
        "parameters": {"sigma0": score, "b": logarithmic},
        "rmse_percent": 0.812,
        "rmse_percent_p95": 2.5,
        "rmse_over_noise": 1.07,
    }
    text = text_of(evaluation_table(convert(content, Evaluation)))
    for expected in (
        "25,000 test curves",
        "1.000e-04",
        "45.7 MPa (1.23 %)",
        "0.99876",
        "0.0345 decades",
        "1.050e-03",
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
    text = text_of(coverage_table({"G0": convert(COVERAGE, Coverage)}, False))
    for expected in ("G0", "51.2 %", "89.8 %", "95.3 %", "1.012", "-3.457", "0.00812", "0.0345"):
        assert expected in text
