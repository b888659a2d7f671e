"""Numbers as people read them, and tables of answers, scores and trials."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from rich import box
from rich.table import Table
from rich.text import Text

from tfmat.identification.results import (
    Answer,
    AnsweredTest,
    BesideExact,
    Coverage,
    Evaluation,
    Narrowing,
    NextTest,
    PosteriorScores,
    Ranked,
    ReferenceScores,
    SampledPosterior,
    Score,
    TensileValue,
    Uniformity,
    Value,
    Warned,
)

# --------------------------------------------------------------------------------------------------
# Numbers as people read them, in tables, pictures and sentences.

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SECONDS = (
    (5400.0, 3600.0, "h"), (90.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"),
)  # fmt: skip
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
# Quantities that errors are binned by, in evaluation.json's own words and for people.
BIN_TITLES = {
    "max_strain": "maximum strain (–)",
    "noise_to_signal": "noise over maximum stress (–)",
    "num_points": "points",
}


def format_value(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits, plain where that is readable: 6964, 193000, 0.0123, 2.44e-8; `–` for None."""
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if -4 < exponent < 6:
        return f"{rounded:.{max(digits - 1 - exponent, 0)}f}"
    mantissa, _, power = f"{rounded:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def format_power(value: float) -> str:
    """A place on a logarithmic axis: 0.01, 500, 10⁻⁵, 2·10⁶."""
    if 0.005 <= value < 20000:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1.0" else f"{mantissa.removesuffix('.0')}·{power}"


def format_limits(quantity: str, low: float, high: float) -> str:
    """The limits of a bin of a quantity of `BIN_TITLES`: `0.01 – 0.02`, or one number where they are the same."""
    if quantity == "num_points":
        texts = [f"{limit:.0f}" for limit in (low, high)]
    else:
        texts = [format_value(limit, 3) for limit in (low, high)]
    return texts[0] if low == high else " – ".join(texts)


def format_unit(unit: str) -> str:
    """`MPa^-3` as MPa⁻³; nothing for a pure number."""
    if unit == "-":
        return ""
    return re.sub(r"\^(-?\d+)", lambda power: power[1].translate(_SUPERSCRIPT), unit)


def with_unit(name: str, unit: str) -> str:
    """`G0 (MPa)`; a pure number has no brackets."""
    unit = format_unit(unit)
    return f"{name} ({unit})" if unit else name


def with_error(value: float | None, error: float | None) -> str:
    """`2.41 ± 0.13`; the value alone where its error is not known."""
    if error is None:
        return format_value(value, 3)
    return f"{format_value(value, 3)} ± {format_value(error, 2)}"


class Spread(Protocol):
    """A value and the limits between which it lies."""

    @property
    def low(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def high(self) -> float: ...


def spread_text(spread: Spread | None, scale: float = 1.0) -> str:
    """`2.31 (2.20 – 2.44)`; without brackets where there is no spread; `–` for None."""
    if spread is None:
        return "–"
    low, value, high = (
        format_value(scale * number, 3) for number in (spread.low, spread.value, spread.high)
    )
    return value if low == high else f"{value} ({low} – {high})"


def duration_text(seconds: float) -> str:
    """A waiting time for people: `58 s`, `3 min 12 s`, `2 h 5 min`."""
    seconds = round(seconds)
    if seconds < 100:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def seconds_text(seconds: float) -> str:
    """A measured time: `12.3 ms`, `45.1 µs`, `2.10 h`."""
    _, divisor, unit = next(each for each in _SECONDS if seconds >= each[0])
    return f"{format_value(seconds / divisor, 3)} {unit}"


def bytes_text(number: float) -> str:
    """`614 kB`: powers of a thousand."""
    divisor, unit = next((each for each in _BYTES if number >= each[0]), _BYTES[-1])
    return f"{number / divisor:.3g} {unit}"


def percent_text(share: float) -> str:
    """`87 %`; one decimal below 10 %."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 10 or percent == 0 else f"{percent:.1f} %"


def unbroken(name: str) -> str:
    """A name that breaks only after its commas, so that a narrow table does not stack single words."""
    return name.replace(" ", "\u00a0").replace(",\u00a0", ", ")


# --------------------------------------------------------------------------------------------------
# Tables for the terminal, made from what the JSON files hold.


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


def evaluation_table(evaluation: Evaluation) -> Table:
    """One row a parameter: mean squared error of the scaled label, mean absolute error, R²."""
    law = f"law {evaluation.law}, " if evaluation.law else ""
    rows = [
        [
            name,
            f"{score.mse:.3e}",
            _mean_absolute_error(score),
            "–" if score.r2 is None else f"{score.r2:.5f}",
        ]
        for name, score in evaluation.parameters.items()
    ]
    return text_table(
        f"{law}{evaluation.num_curves:,} test curves",
        ["parameter", "MSE\n(scaled 0–1)", "mean absolute error", "R²"],
        [*rows, [], ["all", f"{evaluation.mse:.3e}", "", ""]],
        caption=_curve_errors(evaluation),
    )


def coverage_table(coverage: Mapping[str, Coverage], has_posterior: bool) -> Table:
    """One row a parameter: how often the network's own intervals hold the truth, and how wide they are."""
    rows = [
        [
            name, *("–" if share is None else f"{100 * share:.1f} %" for share in scores.held.values()),
            f"{scores.z_std:.3f}", f"{scores.nll:.3f}", format_value(scores.mean_std, 3),
            format_value(scores.mean_width_95, 3),
        ]
        for name, scores in coverage.items()
    ]  # fmt: skip
    headings = [
        "parameter", *(f"{percent} % intervals\nhold the truth" for percent in (50, 90, 95)),
        "error / std\n(root mean square)", "negative log\nlikelihood", "mean std", "mean width of\nthe 95 % interval",
    ]  # fmt: skip
    source = "those of highest density" if has_posterior else "calibrated on validation curves"
    caption = f"{source}, measured on test curves; widths on the scale of the labels, 0–1"
    return text_table("the network's own intervals", headings, rows, caption=caption)


def posterior_table(found: PosteriorScores) -> Table:
    """One row a parameter: whether the truth's ranks among the draws are evenly spread, and TARP's for all."""
    rows = [
        [
            name,
            *_uniformity(entry),
            f"{found.z_score[name].mean:+.3f}",
            f"{found.z_score[name].rms:.3f}",
            f"{found.contraction[name]:.4f}",
        ]
        for name, entry in found.ranks.items()
    ]
    if found.tarp:
        rows += [[], ["all (TARP)", *_uniformity(found.tarp), "", "", ""]]
    shares = ", ".join(f"{p} %: {100 * held:.1f} %" for p, held in found.joint_coverage.items())
    error = found.log_score_error
    caption = (
        f"log score {found.log_score:.3f} ± {'–' if error is None else f'{error:.3f}'} nats (worst curve "
        f"{found.worst_log_score:.2f}); joint regions of highest density hold the truth: {shares}"
    )
    headings = [
        "parameter", "largest difference of the\ntruth's ranks from uniform", "inside the\n95 % band",
        "z-score\nmean", "z-score\nrms", "contraction of\nthe prior's variance",
    ]  # fmt: skip
    title = f"the joint posterior, {found.num_curves:,} test curves"
    return text_table(title, headings, rows, caption=caption)


def _uniformity(entry: Uniformity) -> tuple[str, str]:
    return f"{100 * entry.largest_difference:+.1f} %", "yes" if entry.inside_band else "no"


def exact_table(found: BesideExact) -> Table:
    """One row a parameter: how far the network's posterior is from the exact one."""
    rows = [
        [name, f"{entry.mean_error:.3f}", f"{entry.std_ratio:.3f}"]
        for name, entry in found.parameters.items()
    ]
    caption = "\n".join(f"{name}: {value}" for name, value in exact_lines(found))
    headings = ["parameter", "mean off by\n(exact std, median)", "std over exact std\n(median)"]
    title = f"beside exact posteriors, {found.num_curves:,} test curves"
    return text_table(title, headings, rows, caption=caption)


def exact_lines(found: BesideExact) -> list[tuple[str, str]]:
    """The comparison with exact posteriors."""
    best, tails, c2st = found.best_classifier, found.pareto_k, found.c2st
    told = lost = "–"
    if c2st:
        told = f"median {c2st.median:.3f}, 95 % of {c2st.num_curves} curves below {c2st.p95:.3f}"
        lost = f"{found.log_score_gap:.3f} ± {found.log_score_gap_error:.3f} nats"
    above = f"above 0.7 for {100 * tails.share_above:.1f} % of the curves"
    return [
        ("C2ST (0.5 is perfect)", told),
        ("best possible classifier", f"median {best.median:.3f}, 95 % below {best.p95:.3f}"),
        ("log score lost", lost),
        ("Pareto's k of the exact weights", f"median {tails.median:.2f}, {above}"),
        ("draws that 100 weighted ones are worth", f"{100 * found.effective_share:.0f} (median)"),
    ]


def reference_table(reference: ReferenceScores, curves_per_second: float | None) -> Table:
    """One row a parameter: the Bayes risk, and how many times that error the network and least squares make.

    Args:
      curves_per_second: of the network.
    """
    rows = [
        [
            name,
            f"{entry.bayes_risk:.2e} ± {entry.bayes_risk_error or 0.0:.1e}",
            f"{entry.network_mse:.2e}",
            with_error(entry.eta, entry.eta_error),
            f"{entry.least_squares_mse:.2e}",
            with_error(entry.least_squares_eta, entry.least_squares_eta_error),
            f"{100 * entry.interval_coverage:.1f} %",
            f"{100 * entry.unidentifiable_share:.1f} %",
        ]
        for name, entry in reference.parameters.items()
    ]
    headings = [
        "parameter", "Bayes risk\n(best possible MSE)", "network\nMSE", "network\nη = MSE / Bayes risk",
        "least squares\nMSE", "least squares\nη", "least squares\n95 % intervals hold", "unidentifiable\ncurves",
    ]  # fmt: skip
    fewest = reference.fewest_effective_samples
    sampled = "" if fewest is None else f", at least {fewest:,.0f} effective samples a curve"
    if reference.num_left_out:
        sampled += f"; {reference.num_left_out:,} more curves, whose posteriors have not converged, are left out"
    caption = (
        f"network alone {curves_per_second or 0.0:,.0f} curves/s, least squares (Levenberg–Marquardt, one core) "
        f"{reference.least_squares_curves_per_second:,.0f} curves/s; Bayes risk by {reference.method}{sampled}"
    )
    title = f"reference, {reference.num_curves:,} test curves"
    return text_table(title, headings, rows, caption=caption)


def reference_bins_table(reference: ReferenceScores) -> Table:
    """One row a bin of maximum strain, noise and number of points: η of the network and of least squares."""
    rows: list[list[str]] = []
    for quantity, title in BIN_TITLES.items():
        rows.append([])
        for i, entry in enumerate(reference.bins[quantity]):
            etas = [
                f"{format_value(scores.eta, 3)} / {format_value(scores.least_squares_eta, 3)}"
                for scores in entry.parameters.values()
            ]
            limits = format_limits(quantity, entry.low, entry.high)
            rows.append(["" if i else title, limits, f"{entry.num_curves:,}", *etas])
    names = [f"{name}: network\n/ least squares" for name in reference.parameters]
    return text_table(
        "η by the kind of curve", ["curves with", "from – to", "curves", *names], rows
    )


def evaluation_tables(evaluation: Evaluation, *, bins: bool = False) -> list[Table]:
    """All that is known of a network's accuracy; `bins`: also by the kind of curve."""
    tables = [evaluation_table(evaluation)]
    posterior, reference = evaluation.posterior, evaluation.reference
    if evaluation.coverage:
        tables.append(coverage_table(evaluation.coverage, posterior is not None))
    if posterior:
        tables.append(posterior_table(posterior))
        if posterior.exact:
            tables.append(exact_table(posterior.exact))
    if reference:
        tables.append(reference_table(reference, evaluation.curves_per_second))
        tables += [reference_bins_table(reference)] if bins else []
    return tables


def _mean_absolute_error(score: Score) -> str:
    physical = f"{format_value(score.mae, 3)} {format_unit(score.unit)}".strip()
    if score.mae_decades is not None:
        return f"{physical} ({format_value(score.mae_decades, 3)} decades)"
    if score.mae_percent is not None:
        return f"{physical} ({format_value(score.mae_percent, 3)} %)"
    return physical


def _curve_errors(evaluation: Evaluation) -> str | None:
    if evaluation.rmse_percent is None:
        return None
    text = (
        f"re-simulated curves: {format_value(evaluation.rmse_percent, 3)} % of the maximum stress "
        f"(95 % of them below {format_value(evaluation.rmse_percent_p95, 3)} %)"
    )
    if evaluation.rmse_over_noise is not None:
        text += f", {format_value(evaluation.rmse_over_noise, 3)} × the noise (1 is perfect)"
    return text


def next_test_table(curve: str, found: NextTest) -> Table:
    """One row a test that could come next, those that tell most first: how it narrows each prediction.

    Args:
      curve: name of the specimen.
    """
    predictions = [one for one in found.quantities if one.is_prediction]
    parameters = [one.name for one in found.quantities if not one.is_prediction]
    headings = ["test", "gain (nats)"]
    headings += [f"{one.name.replace(':', chr(10))}\ninterval ×" for one in predictions]
    headings += ["parameter that it narrows most", "by", "notes"]
    rows = []
    for test in found.tests:
        ratios = test.interval_ratio
        known = {name: ratio for name in parameters if (ratio := ratios[name].ratio) is not None}
        most = min(known, key=lambda name: known[name], default=None)
        total = test.records + test.failed
        notes = [
            f"{count} of {total} {what}"
            for count, what in (
                (test.doubtful, "did not quite converge"),
                (test.failed, "left out"),
            )
            if count
        ]
        rows.append(
            [
                test.titled,
                with_error(test.gain_nats, test.gain_error),
                *(_ratio(ratios[one.name]) for one in predictions),
                "–" if most is None else f"{most} × {_ratio(ratios[most])}",
                test.by,
                ", ".join(notes),
            ]
        )
    now = "; ".join(
        f"{one.name} {' … '.join(format_value(end, 3) for end in one.ci95)} {format_unit(one.unit)}".rstrip()
        for one in predictions
    )
    caption = (
        f"95 % intervals now, by independent noise alone: {now}; ×: the share of its width that a test is expected to "
        f"leave, ± the Monte Carlo error; tests of {found.num_points} points; by: sampling where weights stand on few "
        "draws (Pareto k > 0.7)"
    )
    title = f"which test of {curve} next"
    return text_table(
        title, headings, rows, caption=caption, left=(0, len(headings) - 3, len(headings) - 2)
    )


def _ratio(entry: Narrowing) -> str:
    known = entry.ratio is not None and entry.error is not None
    return with_error(entry.ratio, entry.error) if known else "–"


# --------------------------------------------------------------------------------------------------
# Tables of answers for the terminal.


METHODS = {
    "least_squares": "least squares",
    "network": "network",
    "given": "given",
    "mean of specimens": "mean of specimens",
}
# Tensile properties: symbol -> factor and unit that people read them in.
_READ_IN = {"E": (1e-3, "GPa"), **dict.fromkeys(("Ag", "Agt", "A", "At"), (100.0, "%"))}
# Properties that stand in the table; the JSON file holds all.
_SHOWN = ("E", "Rp0.2", "ReH", "ReL", "Rm", "Ag")
# The properties that few materials have: symbol -> name.
_RARE = {"ReH": "upper yield strength", "ReL": "lower yield strength"}
_MOST_NAMES = 6
# Letters that all names of curves begin with are left out from this number on.
_WORTH_LEAVING_OUT = 5


@dataclasses.dataclass(frozen=True)
class Note:
    """One kind of warning, told once for all curves that it is true of.

    Attributes:
      mark: letter that stands in the table.
      kind, advice: as the warnings have them; example: the sentence of the first curve.
      curves: names, in order.
    """

    mark: str
    kind: str
    advice: str
    example: str
    curves: tuple[str, ...]


def notes_of(results: Iterable[Answer]) -> list[Note]:
    """Every kind of warning once, the most frequent first."""
    found: dict[str, list[tuple[str, Warned]]] = {}
    for result in results:
        for warning in result.warnings:
            found.setdefault(warning.kind, []).append((result.curve, warning))
    by_count = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        Note(
            _mark(i), kind, each[0][1].advice, each[0][1].text,
            tuple(dict.fromkeys(curve for curve, _ in each)),
        )
        for i, (kind, each) in enumerate(by_count)
    ]  # fmt: skip


def _mark(i: int) -> str:
    letter = chr(ord("a") + i % 26)
    return letter if i < 26 else f"{letter}{i // 26 + 1}"


def identification_table(results: Sequence[Answer], notes: Sequence[Note] | None = None) -> Table:
    """One row per curve: the recommended values, the error of their curve, and whether they may be used.

    Args:
      notes: kinds of warnings whose marks stand in the last column; None finds them.
    """
    notes = notes_of(results) if notes is None else notes
    law = next((result.law for result in results), None)
    table = _batch_table(f"law {law}" if law else None)
    table.add_column("curve", overflow="fold")
    shared = shared_beginning([result.curve for result in results])
    for name, value in results[0].parameters.items() if results else ():
        given = "\ngiven" if value.fixed else ""
        table.add_column(with_unit(name, value.unit) + given, justify="right", no_wrap=True)
    table.add_column("error\n%", justify="right", no_wrap=True)
    methods = {result.method for result in results}
    if len(methods) > 1:
        table.add_column("got by")
    certified = any(result.posterior for result in results)
    if certified:
        table.add_column("posterior", overflow="fold")
    assumed = any(result.assumed for result in results)
    if assumed:
        table.add_column("assumed", overflow="fold")
    table.add_column("use", overflow="fold")
    table.add_column("notes")
    for result in results:
        cells = [format_value(value.value) for value in result.parameters.values()]
        cells.append(format_value(result.rmse_percent, 3))
        cells += [METHODS[result.method]] if len(methods) > 1 else []
        cells += [result.posterior.status if result.posterior else "–"] if certified else []
        cells += [_assumed(result.assumed)] if assumed else []
        marks = [note.mark for note in notes if result.curve in note.curves]
        # As Text, so that a file called `[a].csv` is not taken for a style.
        table.add_row(
            Text(result.curve.removeprefix(shared)), *cells, _use(result), " ".join(marks)
        )
    if shared:
        table.caption = f"curves without '{shared}', with which every name begins"
    return table


def _batch_table(title: str | None) -> Table:
    """A table with one row per curve, as narrow as can be."""
    return Table(
        title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )  # fmt: skip


def shared_beginning(names: Sequence[str]) -> str:
    """The beginning of all names, up to the last mark between words, where leaving it out makes them much shorter."""
    if len(names) < 2:
        return ""
    # Both ends of the alphabet share what all share.
    first, last = min(names), max(names)
    length = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    shared = first[:length]
    while shared and (shared[-1].isalnum() or shared in names):
        shared = shared[:-1]
    return shared if len(shared) >= _WORTH_LEAVING_OUT else ""


def _assumed(texts: Sequence[str]) -> str:
    """The assumptions, in as few words as possible: `mm/mm, MPa`."""
    short = [text.removeprefix("strain in ").removeprefix("stress in ") for text in texts]
    return ", ".join(short) or "–"


def _use(result: Answer) -> Text:
    if result.do_not_use:
        return Text(f"NO: {', '.join(result.reasons)}", style="bold red")
    return Text("yes")


def parameter_table(result: Answer, details: bool = False) -> Table:
    """One row per parameter of one answer: the recommended value, its interval, and how it was got.

    Args:
      details: also the network's answer and the best fit.
    """
    title = f"{result.curve}, law {result.law}" if result.law else result.curve
    pooled = result.is_pooled
    of_mean = " of the mean" if pooled else ""
    headings = ["parameter", "value", "scatter (std)" if pooled else "± std"]
    headings += [f"95 % interval{of_mean}", "got by"]
    if pooled:
        headings.append("next specimen, 95 %")
    together = "all together" if pooled else "least squares"
    if details:
        headings += [
            "network",
            "network's 95 % interval",
            together,
            "its 95 % interval",
        ]
    elif pooled:
        headings.append(f"least squares,\n{together}")
    rows: list[list[str | Text]] = []
    for name, value in result.parameters.items():
        row: list[str | Text] = [
            with_unit(name, value.unit), Text(format_value(value.value), "bold"),
            format_value(value.std if pooled else _told_std(value), 3), _interval(value.ci95),
            METHODS[value.method],
        ]  # fmt: skip
        if pooled:
            row.append(_interval(value.next_specimen_ci95 or None))
        if details:
            row += [
                format_value(value.network), _interval(value.network_ci95),
                format_value(value.least_squares), _interval(value.least_squares_ci95),
            ]  # fmt: skip
        elif pooled:
            row.append(format_value(value.least_squares))
        rows.append(row)
    return text_table(title, headings, rows, caption=quality_of(result), left=(0, 4))


def _told_std(value: Value) -> float | None:
    """A value's standard deviation; None where its interval, which follows the profile, is narrower."""
    if value.std is None or value.ci95 is None or value.std <= value.ci95[1] - value.ci95[0]:
        return value.std
    return None


def verdict_of(place: int, ranked: Ranked) -> str:
    """The word on a law at this place of a ranking, 0 being the first."""
    if ranked.do_not_use:
        return "do not use"
    return "best" if place == 0 else "as good" if ranked.near_tie else ""


def ranking_table(
    ranking: Sequence[Ranked], kind: str = "", not_needed: Sequence[str] = ()
) -> Table:
    """One row a law, the best first: its error, its evidence, and whether the first one is clearly better.

    Args:
      kind: what was tested.
      not_needed: laws that were not fitted, since one above them comes to the noise.
    """
    rows = [
        [
            each.law,
            format_value(each.rmse_percent, 3),
            "0" if place == 0 else f"{each.evidence:,.0f}",
            verdict_of(place, each),
        ]
        for place, each in enumerate(ranking)
    ]
    tied = [each.law for each in ranking[1:] if each.near_tie and not each.do_not_use]
    caption = "--law=NAME answers by another one"
    if tied:
        first = ranking[0].law
        caption = (
            f"as good as {first}, by evidence within 20 or an error at most a sixth larger: "
            f"{', '.join(tied)}; {caption}"
        )
    if not_needed:
        caption += f"; not fitted, as the error is already the noise: {', '.join(not_needed)}"
    title = f"laws for {kind}" if kind else "laws"
    return text_table(title, ["law", "error %", "evidence", ""], rows, caption=caption, left=(0, 3))


def tensile_table(results: Sequence[Answer]) -> Table | None:
    """One row per curve: the conditions of its test and its tensile properties; None where there are neither."""
    conditions = list(dict.fromkeys(key for result in results for key in result.conditions))
    tensile = [result.tensile for result in results if result.tensile]
    if not conditions and not tensile:
        return None
    table = _batch_table("tests")
    table.add_column("curve", overflow="fold")
    shared = shared_beginning([result.curve for result in results])
    for key in conditions:
        table.add_column(Text(key), justify="right", overflow="fold")
    known = {one.symbol for each in tensile for one in each.values() if one.value is not None}
    absent = _RARE.keys() - known
    entries = tensile[0].values() if tensile else ()
    shown = [one for one in entries if one.symbol in _SHOWN and one.symbol not in absent]
    for entry in shown:
        table.add_column(_property_title(entry), justify="right", no_wrap=True)
    if tensile:
        rare = "".join(f"{symbol} {name}, " for symbol, name in _RARE.items() if symbol in known)
        table.caption = (
            f"E chord modulus, Rp0.2 proof stress, {rare}Rm tensile strength, Ag plastic strain at maximum load "
            "(ISO 6892-1); ≥: the record tells no more; the JSON file has more, and how each was got"
        )
        differ = [
            k for k in ("rate", "temperature") if len({r.conditions.get(k) for r in results}) > 1
        ]
        if differ and "rate" in conditions:
            said = f"the curves differ in {' and '.join(differ)}; --law=johnson_cook fits them as one material"
            table.caption = f"{said}; {table.caption}"
    for result in results:
        cells = [Text(result.conditions.get(key, "–")) for key in conditions]
        by_symbol = {one.symbol: one for one in (result.tensile or {}).values()}
        values = [_property(by_symbol.get(entry.symbol)) for entry in shown]
        table.add_row(Text(result.curve.removeprefix(shared)), *cells, *values)
    return table


def tests_table(curve: str, tests: Sequence[AnsweredTest]) -> Table:
    """One row per test of one answer: what it is, its settings, and how far the answer is from it."""
    headings = ["file", "test", "settings", "half cycles", "points", "error", "% of largest"]
    rows: list[list[str | Text]] = [
        [
            Text(test.name),
            test.test,
            ", ".join(
                f"{name} {with_unit(format_value(entry.value, 3), entry.unit)}"
                for name, entry in test.settings.items()
            ),
            str(test.half_cycles),
            str(test.num_points),
            with_unit(format_value(test.rmse, 3), test.rmse_unit),
            format_value(test.rmse_percent, 3),
        ]
        for test in tests
    ]
    return text_table(f"tests of {curve}", headings, rows, left=(0, 1, 2))


def tensile_texts(properties: Mapping[str, TensileValue]) -> dict[str, str]:
    """Tensile properties of a test: `Ag (%)` -> `14.54`; what few materials have only where this one has it."""
    shown = (one for one in properties.values() if one.value is not None or one.symbol not in _RARE)
    return {_property_title(each): _property(each) for each in shown}


def _property_title(entry: TensileValue) -> str:
    return with_unit(entry.symbol, _READ_IN.get(entry.symbol, (1.0, entry.unit))[1])


def _property(entry: TensileValue | None) -> str:
    if entry is None or entry.value is None:
        return "–"
    factor = _READ_IN.get(entry.symbol, (1.0, ""))[0]
    return f"{'≥ ' if entry.at_least else ''}{format_value(factor * entry.value)}"


def note_lines(note: Note, num_curves: int, shared: str = "") -> list[str]:
    """A note in two or three lines: what and whose, an example, and what to do.

    Args:
      shared: beginning of all curves' names, which is left out.
    """
    names = ", ".join(name.removeprefix(shared) for name in note.curves[:_MOST_NAMES])
    if len(note.curves) > _MOST_NAMES:
        names += f" and {len(note.curves) - _MOST_NAMES} more"
    whose = "all"
    if len(note.curves) < num_curves:
        whose = f"{len(note.curves)} of {num_curves}: {names}"
    lines = [f"{note.mark}  {note.kind} ({whose})", f"   e.g. {note.example}"]
    return [*lines, f"   → {note.advice}"] if note.advice else lines


def _interval(ends: Sequence[float] | None) -> str:
    return f"{format_value(ends[0])} … {format_value(ends[1])}" if ends else "–"


def _certificate(posterior: SampledPosterior) -> str:
    """The words on a posterior: `; posterior corrected (Pareto k 0.21, worth 800 draws)`."""
    said = [posterior.reason] if posterior.reason else []
    k, r_hat = posterior.pareto_k, posterior.r_hat
    if (k is not None or r_hat is not None) and not said:
        tells = f"Pareto k {k:.2g}" if r_hat is None else f"R-hat {r_hat:.4g}"
        said = [f"{tells}, worth {posterior.effective_draws:.0f} draws"]
    if (p := posterior.posterior_predictive_p) is not None:
        said.append(f"posterior predictive p {p:.2g}")
    return f"; posterior {posterior.status} ({', '.join(said)})"


def quality_of(result: Answer) -> str:
    """How far the curve of an answer is from the points, how many they are, and what was assumed to read them."""
    error = result.rmse_percent
    text = "" if error is None else f"error of its curve {error:.3g} % of the maximum stress, "
    text += f"{result.num_points} points"
    text += _certificate(result.posterior) if result.posterior else ""
    return text + (f"; assumed: {', '.join(result.assumed)}" if result.assumed else "")


# --------------------------------------------------------------------------------------------------
# A search for hyper-parameters, as `tfmat.tuning.search` finds it, and the tables of `tfmat tune --status`.


class SearchWorker(Struct, kw_only=True):
    """A worker of a search.

    Attributes:
      name, host: of the process, and of its machine.
      alive: whether it still works, on the trial `trial` ("": none).
      busy_seconds, alive_seconds: in trials, and in all.
      starts: how often it has started.
    """

    name: str
    host: str
    alive: bool
    busy_seconds: float
    alive_seconds: float
    starts: int
    trial: str


class SearchSummary(Struct, kw_only=True):
    """A search in a few numbers.

    Attributes:
      name: of the search's folder.
      algorithm, objective, direction, seeds, train_for: what it does.
      counts: state -> number of trials.
      max_trials: how many there are to be; None where only the oracle knows.
      ended: why no further trial starts, or "".
      failed: it ended because too many trials failed.
      best, best_value: id and value of the best trial, None before there is one.
      best_command: what trains with its values.
      median_seconds: how long a trial takes.
      seconds_left: estimate; None where there is nothing to go by.
      seconds: from the first trial's start to the last one's end, or to now.
      utilization: share of the workers' lives in which they ran trials; None before there is any.
    """

    name: str
    algorithm: str
    objective: str
    direction: str
    seeds: int
    train_for: str
    counts: dict[str, int]
    max_trials: int | None
    ended: str
    failed: bool
    best: str | None
    best_value: float | None
    best_command: str
    median_seconds: float | None
    seconds_left: float | None
    seconds: float
    workers: list[SearchWorker]
    utilization: float | None


class TrialRow(Struct, kw_only=True):
    """A trial of a search, as a row of its tables.

    Attributes:
      trial, state: its number, and what became of it.
      value: of the objective, None before there is one.
      values: hyper-parameter -> value, tuples as text.
      fraction: of the whole length of a trial.
      seconds: that it took; started: seconds since 1970.
      worker, times_lost: that ran it, and how many were lost over it.
      folder, reason: of the trial's run, and why it ended.
    """

    trial: str
    state: str
    value: float | None
    values: dict[str, str | float | None]
    fraction: float
    seconds: float
    started: float | None
    worker: str
    times_lost: int
    folder: str
    reason: str


_STYLES = {"done": "green", "running": "blue", "failed": "red", "diverged": "yellow"}
# _MOST_ROWS: trials that are printed.
_MOST_ROWS = 40


def tuning_tables(summary: SearchSummary, rows: Sequence[TrialRow]) -> list[Table]:
    """The search in a few lines, its workers, and its trials, the best first."""
    overview = Table(title=f"search {summary.name}", title_justify="left", show_header=False)
    for what, text in overview_lines(summary):
        overview.add_row(what, Text(text))
    return [overview, *_workers(summary), *_trials(summary, rows)]


def overview_lines(summary: SearchSummary) -> list[tuple[str, str]]:
    """(what, how much) of a search, for the table and the page."""
    counts = {state: count for state, count in summary.counts.items() if count}
    of = "" if summary.max_trials is None else f" of {summary.max_trials}"
    total = sum(counts.values())
    mean = f", mean of {summary.seeds} seeds" if summary.seeds > 1 else ""
    lines = [
        (
            "algorithm",
            f"{summary.algorithm}, each trial {summary.train_for}{mean}",
        ),
        ("trials", f"{total}{of}: " + ", ".join(f"{n} {state}" for state, n in counts.items())),
    ]
    if summary.best is not None:
        value = format_value(summary.best_value)
        lines.append(("best", f"trial {summary.best}, {summary.objective} {value}"))
    if summary.median_seconds is not None:
        lines.append(("a trial takes", f"{duration_text(summary.median_seconds)} (median)"))
    if summary.utilization is not None:
        share = f"{100 * summary.utilization:.0f} % of their time in trials"
        alive = sum(worker.alive for worker in summary.workers)
        lines.append(("workers", f"{alive} at work; {share}"))
    lines.append(("search time", duration_text(summary.seconds)))
    if summary.ended:
        lines.append(("ended", summary.ended))
    elif summary.seconds_left is not None:
        lines.append(("left", f"about {duration_text(summary.seconds_left)}"))
    elif not any(worker.alive for worker in summary.workers):
        lines.append(("stands still", "no worker; the same tfmat tune command goes on"))
    return lines


def best_first(rows: Sequence[TrialRow], direction: str) -> list[TrialRow]:
    """The trials, those without a value last."""
    sign = -1.0 if direction == "max" else 1.0
    return sorted(rows, key=lambda row: (row.value is None, sign * (row.value or 0.0)))


def busy(worker: SearchWorker) -> str:
    """Share of its life that a worker spent in trials."""
    return f"{100 * worker.busy_seconds / max(worker.alive_seconds, 1e-9):.0f} %"


def _workers(summary: SearchSummary) -> list[Table]:
    if not summary.workers:
        return []
    rows = [
        [each.name, each.host, _now(each), busy(each), str(each.starts)] for each in summary.workers
    ]
    headings = ["worker", "machine", "now", "busy", "starts"]
    return [text_table("workers", headings, rows, left=(1, 2))]


def _now(worker: SearchWorker) -> str:
    if not worker.alive:
        return "gone"
    return f"trial {worker.trial}" if worker.trial else "idle"


def _trials(summary: SearchSummary, rows: Sequence[TrialRow]) -> list[Table]:
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    lines: list[list[str | Text]] = [
        [
            row.trial,
            Text(row.state, style=_STYLES.get(row.state, "")),
            format_value(row.value),
            *(value_cell(row.values.get(name)) for name in names),
            duration_text(row.seconds),
        ]
        for row in best_first(rows, summary.direction)[:_MOST_ROWS]
    ]
    headings = [
        "trial",
        "state",
        summary.objective,
        *(n.replace(".", ".\n") for n in names),
        "time",
    ]
    more = f" (first {_MOST_ROWS} of {len(rows)})" if rows[_MOST_ROWS:] else ""
    return [text_table(f"trials, the best first{more}", headings, lines, left=(0, 1))]


def value_cell(value: Any) -> str:
    """A hyper-parameter's value; – where it does not exist for this trial."""
    if value is None:
        return "–"
    return format_value(value, 3) if isinstance(value, float) else str(value)
