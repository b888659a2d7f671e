"""The section of the report on a run that compares the network with classical fitting."""

from collections.abc import Mapping
from typing import Any

from tfmat.report.formatting import format_value
from tfmat.report.page import Paragraph, Section, Table
from tfmat.report.run_files import RunFiles
from tfmat.report.verdict import CLEARLY_WORSE


def classical(run: RunFiles) -> Section:
    """The table against least squares, and when to use which."""
    title = "Network or classical fitting?"
    yardstick = run.evaluation.get("yardstick")
    if not yardstick:
        return Section(
            title, [Paragraph(text) for text in (no_yardstick(run), _from_example(run)) if text]
        )
    names = list(yardstick["parameters"])
    rate, classical_rate = (
        run.evaluation["curves_per_second"],
        yardstick["least_squares_curves_per_second"],
    )
    rows = []
    for label, key, speed, hold in (
        ("network", "", f"{rate:,.0f}", "–"),
        ("least squares", "least_squares_", f"{classical_rate:,.0f}", None),
    ):
        entries = [yardstick["parameters"][name] for name in names]
        etas = [with_error(entry[f"{key}eta"], entry[f"{key}eta_error"]) for entry in entries]
        if hold is None:
            hold = " / ".join(f"{100 * entry['interval_coverage']:.1f} %" for entry in entries)
        rows.append([label, *etas, speed, hold])
    rows.append(["best possible", *("1" for _ in names), "–", "95 %"])
    headings = [
        "method",
        *(f"η of {name}" for name in names),
        "curves/s",
        "95 % intervals\nhold the truth",
    ]
    note = (
        f"On {yardstick['num_curves']:,} test curves. η is the squared error over the least possible "
        "one. Least squares: "
        "Levenberg–Marquardt from its own start values, many curves at once, on one core; the network uses all cores."
    )
    advice = when_to_use_which(yardstick, rate)
    return Section(title, [Paragraph(advice), Table(headings, rows, note)])


def when_to_use_which(yardstick: Mapping[str, Any], curves_per_second: float) -> str:
    """One honest sentence, from the numbers."""
    behind = [
        n
        for n, entry in yardstick["parameters"].items()
        if _clearly_above(entry, "", "least_squares_")
    ]
    ahead = [
        n
        for n, entry in yardstick["parameters"].items()
        if _clearly_above(entry, "least_squares_", "")
    ]
    if behind and not ahead:
        who = f"least squares is the more accurate ({', '.join(behind)})"
    elif ahead and not behind:
        who = f"the network is the more accurate ({', '.join(ahead)})"
    elif ahead and behind:
        who = f"least squares is more accurate for {', '.join(behind)}, the network for {', '.join(ahead)}"
    else:
        who = "the two are equally accurate"
    times = curves_per_second / yardstick["least_squares_curves_per_second"]
    if times >= 1.5:
        speed = f"the network answers {format_value(times, 2)} times as many curves per second"
    else:
        speed = "the network is not faster"
    return (
        f"On these curves {who}, and {speed}. So for a few curves of a law that can be written down, "
        "take the least-squares "
        "values that tfmat identify gives beside the network's; the network pays off for very many "
        "curves, where no start "
        "values are known, or for laws that are slow to simulate."
    )


def _clearly_above(entry: Mapping[str, Any], one: str, other: str) -> bool:
    """Whether the first η is above the second by more than twice its standard error."""
    error = (
        (entry[f"{one}eta_error"] or 0.0) ** 2 + (entry[f"{other}eta_error"] or 0.0) ** 2
    ) ** 0.5
    return bool(entry[f"{one}eta"] - entry[f"{other}eta"] > 2 * error)


def no_yardstick(run: RunFiles) -> str:
    """Why there is no comparison with the best possible and with least squares."""
    if not run.evaluation.get("parameters"):
        return f"The comparison comes with the evaluation: tfmat evaluate --workdir={run.workdir}"
    if run.sidecar and not run.sidecar.get("curves"):
        return (
            "There is no comparison with the best possible answer and with least squares: the curves "
            "were not simulated "
            "here, so that neither their law nor their noise is known."
        )
    observed = {"noise_of_maximum", "measured_points", "strain_offset", "misfit", "yield_spread"}
    if observed & set(run.sidecar.get("curves") or ()):
        return (
            "There is no comparison with the best possible answer: the curves depart from their law as measured ones "
            "do, and the best possible error on such curves is not known."
        )
    if run.evaluation.get("rmse_over_noise") is None:
        return (
            "There is no comparison with the best possible answer: the test curves have no noise, "
            "and without noise the "
            "least possible error is zero."
        )
    return (
        "The best possible answer and least squares were left out because they take a minute or more for this law. Add "
        f"them with: tfmat evaluate --workdir={run.workdir}"
    )


def _from_example(run: RunFiles) -> str:
    """What one curve tells where many were not compared."""
    picture = run.example_picture
    if picture is None or not picture["refined"] or picture["rmse_percent"] is None:
        return ""
    own, refined = picture["rmse_percent"], picture["refined"]["rmse_percent"]
    text = (
        f"On the example curve alone: the network is {format_value(own, 2)} % of the maximum stress off, least squares "
        f"from its answer {format_value(refined, 2)} %."
    )
    if own > CLEARLY_WORSE * refined:
        text += (
            " Use the network for a first answer without start values, and least squares for the number "
            "that counts."
        )
    return text


def with_error(value: float, error: float | None) -> str:
    """`2.41 ± 0.13`."""
    if error is None:
        return format_value(value, 3)
    return f"{format_value(value, 3)} ± {format_value(error, 2)}"
