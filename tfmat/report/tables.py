"""Tables for the terminal, made from what the JSON files hold."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from tfmat.report.formatting import (
    BIN_TITLES,
    format_limits,
    format_unit,
    format_value,
)


def evaluation_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: mean squared error of the scaled label, mean absolute error, R².

    Args:
      evaluation: what `evaluation.json` holds.
    """
    curves = f"{evaluation['num_curves']:,} test curves"
    title = f"law {evaluation['law']}, {curves}" if evaluation["law"] else curves
    table = Table(
        title=title, title_justify="left", caption=_curve_errors(evaluation), caption_justify="left"
    )
    table.add_column("parameter")
    table.add_column("MSE\n(scaled 0–1)", justify="right")
    table.add_column("mean absolute error", justify="right")
    table.add_column("R²", justify="right")
    for name, score in evaluation["parameters"].items():
        table.add_row(
            Text(name), f"{score['mse']:.3e}", _mean_absolute_error(score), _r2(score["r2"])
        )
    table.add_section()
    table.add_row("all", f"{evaluation['mse']:.3e}", "", "")
    return table


def coverage_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: how often the network's own intervals hold the truth, and how wide they are.

    Args:
      evaluation: what `evaluation.json` holds, with its coverage.
    """
    table = Table(
        title="the network's own intervals",
        title_justify="left",
        caption="calibrated on validation curves, measured on test curves; widths on the scale of the labels, 0–1",
        caption_justify="left",
    )
    table.add_column("parameter")
    for percent in (50, 90, 95):
        table.add_column(f"{percent} % intervals\nhold the truth", justify="right")
    for heading in (
        "error / std\n(root mean square)",
        "negative log\nlikelihood",
        "mean std",
        "mean width of\nthe 95 % interval",
    ):
        table.add_column(heading, justify="right")
    for name, scores in evaluation["coverage"].items():
        table.add_row(
            Text(name),
            *(f"{100 * scores[percent]:.1f} %" for percent in ("50", "90", "95")),
            f"{scores['z_std']:.3f}",
            f"{scores['nll']:.3f}",
            format_value(scores["mean_std"], 3),
            format_value(scores["mean_width_95"], 3),
        )
    return table


def reference_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: the Bayes risk, and how many times that error the network and least squares make.

    Args:
      evaluation: what `evaluation.json` holds, with its reference.
    """
    reference = evaluation["reference"]
    table = Table(
        title=f"reference, {reference['num_curves']:,} test curves",
        title_justify="left",
        caption=_reference_caption(evaluation),
        caption_justify="left",
    )
    table.add_column("parameter")
    for heading in (
        "Bayes risk\n(best possible MSE)",
        "network\nMSE",
        "network\nη = MSE / Bayes risk",
        "least squares\nMSE",
        "least squares\nη",
        "least squares\n95 % intervals hold",
        "unidentifiable\ncurves",
    ):
        table.add_column(heading, justify="right")
    for name, entry in reference["parameters"].items():
        table.add_row(
            Text(name),
            f"{entry['bayes_risk']:.2e} ± {entry['bayes_risk_error'] or 0.0:.1e}",
            f"{entry['network_mse']:.2e}",
            _with_error(entry["eta"], entry["eta_error"]),
            f"{entry['least_squares_mse']:.2e}",
            _with_error(entry["least_squares_eta"], entry["least_squares_eta_error"]),
            f"{100 * entry['interval_coverage']:.1f} %",
            f"{100 * entry['unidentifiable_share']:.1f} %",
        )
    return table


def reference_bins_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a bin of maximum strain, noise and number of points: η of the network and of least squares."""
    reference = evaluation["reference"]
    table = Table(title="η by the kind of curve", title_justify="left")
    table.add_column("curves with")
    table.add_column("from – to", justify="right")
    table.add_column("curves", justify="right")
    for name in reference["parameters"]:
        table.add_column(Text(f"{name}: network\n/ least squares"), justify="right")
    for quantity, title in BIN_TITLES.items():
        table.add_section()
        for i, entry in enumerate(reference["bins"][quantity]):
            etas = [
                f"{format_value(scores['eta'], 3)} / {format_value(scores['least_squares_eta'], 3)}"
                for scores in entry["parameters"].values()
            ]
            limits = format_limits(quantity, entry["low"], entry["high"], " – ", 3)
            table.add_row("" if i else title, limits, f"{entry['num_curves']:,}", *etas)
    return table


def _reference_caption(evaluation: Mapping[str, Any]) -> str:
    reference = evaluation["reference"]
    fewest = reference["fewest_effective_samples"]
    sampled = "" if fewest is None else f", at least {fewest:,.0f} effective samples a curve"
    return (
        f"network alone {evaluation['curves_per_second']:,.0f} curves/s, least squares (Levenberg–Marquardt, one core) "
        f"{reference['least_squares_curves_per_second']:,.0f} curves/s; Bayes risk by {reference['method']}{sampled}"
    )


def _with_error(value: float, error: float | None) -> str:
    if error is None:
        return format_value(value, 3)
    return f"{format_value(value, 3)} ± {format_value(error, 2)}"


def _mean_absolute_error(score: Mapping[str, Any]) -> str:
    physical = f"{format_value(score['mae'], 3)} {format_unit(score['unit'])}".strip()
    if score["mae_decades"] is not None:
        return f"{physical} ({format_value(score['mae_decades'], 3)} decades)"
    if score["mae_percent"] is not None:
        return f"{physical} ({format_value(score['mae_percent'], 3)} %)"
    return physical


def _curve_errors(evaluation: Mapping[str, Any]) -> str | None:
    if evaluation["rmse_percent"] is None:
        return None
    text = (
        f"re-simulated curves: {format_value(evaluation['rmse_percent'], 3)} % of the maximum stress "
        f"(95 % of them below {format_value(evaluation['rmse_percent_p95'], 3)} %)"
    )
    if evaluation["rmse_over_noise"] is not None:
        text += f", {format_value(evaluation['rmse_over_noise'], 3)} × the noise (1 is perfect)"
    return text


def _r2(r2: float | None) -> str:
    return "–" if r2 is None else f"{r2:.5f}"
