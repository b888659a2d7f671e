"""Tables for the terminal, made from what the JSON files hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tfmat.report.formatting import (
    BIN_TITLES,
    format_limits,
    format_unit,
    format_value,
    with_error,
)


def text_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    caption: str | None = None,
    left: Sequence[int] = (0,),
) -> Table:
    """A table of texts as they are: a file called `[a].csv` is not taken for a style.

    Args:
      rows: a cell a heading; a row without cells draws a line.
      left: columns of words; numbers stand to the right.
    """
    table = Table(title_justify="left", caption_justify="left")
    table.title = Text(title, "table.title")
    table.caption = None if caption is None else Text(caption, "table.caption")
    for i, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if i in left else "right")
    for row in rows:
        if row:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
        else:
            table.add_section()
    return table


def evaluation_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: mean squared error of the scaled label, mean absolute error, R².

    Args:
      evaluation: what `evaluation.json` holds.
    """
    law = f"law {evaluation['law']}, " if evaluation["law"] else ""
    rows = [
        [name, f"{score['mse']:.3e}", _mean_absolute_error(score), _r2(score["r2"])]
        for name, score in evaluation["parameters"].items()
    ]
    return text_table(
        f"{law}{evaluation['num_curves']:,} test curves",
        ["parameter", "MSE\n(scaled 0–1)", "mean absolute error", "R²"],
        [*rows, [], ["all", f"{evaluation['mse']:.3e}", "", ""]],
        caption=_curve_errors(evaluation),
    )


def coverage_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: how often the network's own intervals hold the truth, and how wide they are.

    Args:
      evaluation: what `evaluation.json` holds, with its coverage.
    """
    rows = [
        [
            name, *(f"{100 * scores[percent]:.1f} %" for percent in ("50", "90", "95")), f"{scores['z_std']:.3f}",
            f"{scores['nll']:.3f}", format_value(scores["mean_std"], 3), format_value(scores["mean_width_95"], 3),
        ]
        for name, scores in evaluation["coverage"].items()
    ]  # fmt: skip
    headings = [
        "parameter", *(f"{percent} % intervals\nhold the truth" for percent in (50, 90, 95)),
        "error / std\n(root mean square)", "negative log\nlikelihood", "mean std", "mean width of\nthe 95 % interval",
    ]  # fmt: skip
    source = (
        "those of highest density"
        if evaluation.get("posterior")
        else "calibrated on validation curves"
    )
    caption = f"{source}, measured on test curves; widths on the scale of the labels, 0–1"
    return text_table("the network's own intervals", headings, rows, caption=caption)


def posterior_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: whether the truth's ranks among the posterior's draws are evenly spread, and TARP's for all.

    Args:
      evaluation: what `evaluation.json` holds, with its posterior.
    """
    found = evaluation["posterior"]
    rows = [
        [
            name,
            *_uniformity(entry),
            f"{found['z_score'][name]['mean']:+.3f}",
            f"{found['z_score'][name]['rms']:.3f}",
            f"{found['contraction'][name]:.4f}",
        ]
        for name, entry in found["ranks"].items()
    ]
    rows += [[], ["all (TARP)", *_uniformity(found["tarp"]), "", "", ""]]
    shares = ", ".join(f"{p} %: {100 * held:.1f} %" for p, held in found["joint_coverage"].items())
    error = found["log_score_error"]
    caption = (
        f"log score {found['log_score']:.3f} ± {'–' if error is None else f'{error:.3f}'} nats (worst curve "
        f"{found['worst_log_score']:.2f}); joint regions of highest density hold the truth: {shares}"
    )
    headings = [
        "parameter", "largest difference of the\ntruth's ranks from uniform", "inside the\n95 % band",
        "z-score\nmean", "z-score\nrms", "contraction of\nthe prior's variance",
    ]  # fmt: skip
    title = f"the joint posterior, {found['num_curves']:,} test curves"
    return text_table(title, headings, rows, caption=caption)


def _uniformity(entry: Mapping[str, Any]) -> tuple[str, str]:
    return f"{100 * entry['largest_difference']:+.1f} %", "yes" if entry["inside_band"] else "no"


def exact_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: how far the network's posterior is from the exact one.

    Args:
      evaluation: what `evaluation.json` holds, with its posterior compared with exact ones.
    """
    found = evaluation["posterior"]["exact"]
    rows = [
        [name, f"{entry['mean_error']:.3f}", f"{entry['std_ratio']:.3f}"]
        for name, entry in found["parameters"].items()
    ]
    caption = "\n".join(f"{name}: {value}" for name, value in exact_lines(found))
    headings = ["parameter", "mean off by\n(exact std, median)", "std over exact std\n(median)"]
    title = f"beside exact posteriors, {found['num_curves']:,} test curves"
    return text_table(title, headings, rows, caption=caption)


def exact_lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is compared with exact posteriors and what was found, for the entry `exact` of evaluation.json."""
    best, tails, c2st = found["best_classifier"], found["pareto_k"], found["c2st"]
    told = lost = "–"
    if c2st:
        told = f"median {c2st['median']:.3f}, 95 % of {c2st['num_curves']} curves below {c2st['p95']:.3f}"
        lost = f"{found['log_score_gap']:.3f} ± {found['log_score_gap_error']:.3f} nats"
    above = f"above 0.7 for {100 * tails['share_above']:.1f} % of the curves"
    return [
        ("C2ST (0.5 is perfect)", told),
        ("best possible classifier", f"median {best['median']:.3f}, 95 % below {best['p95']:.3f}"),
        ("log score lost", lost),
        ("Pareto's k of the exact weights", f"median {tails['median']:.2f}, {above}"),
        (
            "draws that 100 weighted ones are worth",
            f"{100 * found['effective_share']:.0f} (median)",
        ),
    ]


def reference_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a parameter: the Bayes risk, and how many times that error the network and least squares make.

    Args:
      evaluation: what `evaluation.json` holds, with its reference.
    """
    reference = evaluation["reference"]
    rows = [
        [
            name,
            f"{entry['bayes_risk']:.2e} ± {entry['bayes_risk_error'] or 0.0:.1e}",
            f"{entry['network_mse']:.2e}",
            with_error(entry["eta"], entry["eta_error"]),
            f"{entry['least_squares_mse']:.2e}",
            with_error(entry["least_squares_eta"], entry["least_squares_eta_error"]),
            f"{100 * entry['interval_coverage']:.1f} %",
            f"{100 * entry['unidentifiable_share']:.1f} %",
        ]
        for name, entry in reference["parameters"].items()
    ]
    headings = [
        "parameter", "Bayes risk\n(best possible MSE)", "network\nMSE", "network\nη = MSE / Bayes risk",
        "least squares\nMSE", "least squares\nη", "least squares\n95 % intervals hold", "unidentifiable\ncurves",
    ]  # fmt: skip
    title = f"reference, {reference['num_curves']:,} test curves"
    return text_table(title, headings, rows, caption=_reference_caption(evaluation))


def reference_bins_table(evaluation: Mapping[str, Any]) -> Table:
    """One row a bin of maximum strain, noise and number of points: η of the network and of least squares."""
    reference = evaluation["reference"]
    rows: list[list[str]] = []
    for quantity, title in BIN_TITLES.items():
        rows.append([])
        for i, entry in enumerate(reference["bins"][quantity]):
            etas = [
                f"{format_value(scores['eta'], 3)} / {format_value(scores['least_squares_eta'], 3)}"
                for scores in entry["parameters"].values()
            ]
            limits = format_limits(quantity, entry["low"], entry["high"], " – ", 3)
            rows.append(["" if i else title, limits, f"{entry['num_curves']:,}", *etas])
    names = [f"{name}: network\n/ least squares" for name in reference["parameters"]]
    return text_table(
        "η by the kind of curve", ["curves with", "from – to", "curves", *names], rows
    )


def _reference_caption(evaluation: Mapping[str, Any]) -> str:
    reference = evaluation["reference"]
    fewest = reference["fewest_effective_samples"]
    sampled = "" if fewest is None else f", at least {fewest:,.0f} effective samples a curve"
    if left_out := reference.get("num_left_out"):
        sampled += f"; {left_out:,} more curves, whose posteriors have not converged, are left out"
    return (
        f"network alone {evaluation['curves_per_second']:,.0f} curves/s, least squares (Levenberg–Marquardt, one core) "
        f"{reference['least_squares_curves_per_second']:,.0f} curves/s; Bayes risk by {reference['method']}{sampled}"
    )


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


def next_test_table(curve: str, found: Mapping[str, Any]) -> Table:
    """One row a test that could come next, those that tell most first: how it narrows each prediction.

    Args:
      curve: name of the specimen.
      found: the entry `next_test` that `tfmat identify --json` writes.
    """
    predictions = [one for one in found["quantities"] if one["is_prediction"]]
    parameters = [one["name"] for one in found["quantities"] if not one["is_prediction"]]
    headings = ["test", "gain (nats)"]
    headings += [f"{one['name'].replace(':', chr(10))}\ninterval ×" for one in predictions]
    headings += ["parameter that it narrows most", "by", "notes"]
    rows = []
    for test in found["tests"]:
        ratios = test["interval_ratio"]
        known = [name for name in parameters if ratios[name]["ratio"] is not None]
        most = min(known, key=lambda name: ratios[name]["ratio"], default=None)
        total = test["records"] + test["failed"]
        notes = [
            f"{test[key]} of {total} {what}"
            for key, what in (("doubtful", "did not quite converge"), ("failed", "left out"))
            if test[key]
        ]
        rows.append(
            [
                f"{test['title']}{' (again)' if test['again'] else ''}",
                with_error(test["gain_nats"], test["gain_error"]),
                *(_ratio(ratios[one["name"]]) for one in predictions),
                "–" if most is None else f"{most} × {_ratio(ratios[most])}",
                test["by"],
                ", ".join(notes),
            ]
        )
    now = "; ".join(
        f"{one['name']} {_interval(one['ci95'])} {format_unit(one['unit'])}".rstrip()
        for one in predictions
    )
    caption = (
        f"95 % intervals now: {now}; × what a test is expected to leave of the width, ± the Monte Carlo error; tests "
        f"of {found['num_points']} points; weights that stand on few draws (Pareto k > 0.7) give way to sampling"
    )
    title = f"which test of {curve} next"
    return text_table(
        title, headings, rows, caption=caption, left=(0, len(headings) - 3, len(headings) - 2)
    )


def _interval(ends: Sequence[float]) -> str:
    return " … ".join(format_value(end, 3) for end in ends)


def _ratio(entry: Mapping[str, float | None]) -> str:
    ratio, error = entry["ratio"], entry["error"]
    return "–" if ratio is None or error is None else with_error(ratio, error)
