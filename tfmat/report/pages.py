"""The pages of a report: of a training and of a search."""

import base64
import dataclasses
import datetime
import functools
import hashlib
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import tfmat
from tfmat.files import atomic_write, make_folder
from tfmat.identification.results import (
    Bin,
    Coverage,
    CoverageCurve,
    CurvePicture,
    ReferenceScores,
    Score,
    SpreadBin,
    TestsPicture,
)
from tfmat.report import tables
from tfmat.report.figures import (
    BAND,
    INK,
    MEASURED,
    MODEL,
    SECOND,
    Array,
    Picture,
    answer_figure,
    curve_figure,
    draw_tests,
    finish,
    groups_of_tests,
    importance,
    inline_svg,
    logarithmic,
    picture,
    pictures,
    save_figure,
    save_grid,
    uniformity,
)
from tfmat.report.run_files import (
    ParameterAnswers,
    RunFiles,
    coverage_gap,
    equal_bins,
    error_bins,
    more_accurate,
    parameter_answers,
    read_run,
)
from tfmat.report.tables import (
    BIN_TITLES,
    SearchSummary,
    TrialRow,
    best_first,
    busy,
    exact_lines,
    format_value,
    overview_lines,
    value_cell,
    with_unit,
)
from tfmat.training.run_folder import MetricsLine

# --------------------------------------------------------------------------------------------------
# HTML pages: a template of `templates/` filled with plain data, in one file that loads nothing.
#
# Every text is escaped, so that a file or a law may have any name. A page runs nothing but the one script that its
# template names, if it names one, for what a reader can move.


_TEMPLATES = pathlib.Path(__file__).parent / "templates"
# Errors that impossible numbers of the right type cause in arithmetic, pictures and templates.
SENSELESS = (ArithmeticError, LookupError, ValueError, jinja2.UndefinedError)


def _flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(`model.filters`, value) of everything in a config."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@functools.cache
def templates() -> jinja2.Environment:
    """The folder of templates, with what they may call."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": tables.bytes_text,
        "count": "{:,.0f}".format,
        "duration": tables.duration_text,
        "flatten": _flatten,
        "percent": tables.percent_text,
        "seconds": tables.seconds_text,
        "spread": tables.spread_text,
        "unbroken": tables.unbroken,
        "value": tables.format_value,
        "with_error": tables.with_error,
        "with_unit": tables.with_unit,
    }
    return environment


@dataclasses.dataclass(frozen=True)
class Finding:
    """One sentence with its level: `good`, `note`, `warn` or `bad`."""

    level: str
    text: str


def render_page(template: str, *, guarded: bool = False, **content: Any) -> str:
    """The whole file.

    A page's template sets `title`, `subtitle`, `badge` (level and word) and `source` (the page's input). It lists its
    macros, each of which is a section, as `sections`; `script` may name a file of `templates/`.
    An empty section is left out.

    Args:
      template: name of a file in `templates/`.
      guarded: a section whose numbers make no sense becomes a note; the first, the verdict, always raises.
      content: what the template draws.
    """
    page: Any = templates().get_template(template).make_module(content)
    first, *others = page.sections
    script = source = ""
    if name := getattr(page, "script", ""):
        script = (_TEMPLATES / name).read_text("utf-8").strip()
        # The browser runs this script and no other (Content Security Policy Level 3, hash sources).
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        source = f"; script-src 'sha256-{digest}'"
    sections = [first(), *(_whole_or_note(each) if guarded else each() for each in others)]
    return (
        templates()
        .get_template("base.html")
        .render(
            page=page,
            script=script,
            script_source=source,
            sections=[section for section in sections if section.strip()],
            version=tfmat.__version__,
            now=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )


def _whole_or_note(section: Any) -> str:
    try:
        return section()
    except SENSELESS as error:
        note: Any = templates().get_template("parts.html").module
        return note.left_out(section.name.replace("_", " "), f"{type(error).__name__}: {error}")


# --------------------------------------------------------------------------------------------------
# The verdict on a run in plain words, from its numbers by stated rules.


# η = mean squared error / Bayes risk: up to here nothing is left to gain, and up to here little.
ETA_PERFECT, ETA_GOOD = 1.3, 3.0
# Distance of the re-simulated curve over the noise, which is 1 for the true parameters.
NOISE_GOOD = 1.1
# The same distance over the maximum stress: beyond it an answer is no start even for least squares.
RMSE_POOR_PERCENT = 5.0
# R² up to which a parameter can hardly be told from the curves, and from which it is told well (imported curves).
R2_POOR, R2_GOOD = 0.5, 0.99
# Validation loss that the last quarter of the training took away; validation loss over training loss.
STILL_FALLING, OVERFITTED = 0.1, 1.5
# Distance of the network's curve from the measured one over the distance of least squares.
CLEARLY_WORSE = 1.5
# Percentage points by which the network's intervals may hold the truth more or less often than they say.
COVERAGE_GOOD = 2.0
# A loss of so many nats is as bad as any.
_MOST_NATS = 700.0
START = "A good start, but take the least-squares values:"

RULES = (
    (
        "Accuracy, where the best possible one is known: η is the network's mean squared error over the Bayes risk, "
        "the least that any method can reach on average; the worst parameter counts. "
        f"η up to {ETA_PERFECT:g}: as good as any method can be; up to {ETA_GOOD:g}: good; "
        "above: use least squares on top."
    ),
    (
        "Accuracy, where it is not known: the distance of the re-simulated from the measured test curve over the "
        f"noise. Up to {NOISE_GOOD:g}: good (1 is perfect); above: use least squares on top. Without a law or without "
        f"noise R² decides: from {R2_GOOD:g} good."
    ),
    f"In both cases: not usable where that distance is more than {RMSE_POOR_PERCENT:g} % of the maximum stress.",
    (
        "Still improving: the last quarter of the training lowered the best validation loss by more than "
        f"{100 * STILL_FALLING:.0f} %. Overfitted: at the end the validation loss is more than {OVERFITTED:g} times "
        "the training loss. For a posterior of P parameters exp(2 · loss/P) counts, the square of a typical width."
    ),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict for a reader.

    Attributes:
      level: `good`, `note`, `warn` or `bad`.
      state: of the run, in one or two words.
      headline: one sentence.
      findings: the sentences behind it, the most important first.
    """

    level: str
    state: str
    headline: str
    findings: tuple[Finding, ...]


def judge(run: RunFiles) -> Verdict:
    """The verdict on a run."""
    stopped = _stopped(run)
    found = _accuracy(run)
    findings = [*_errors(run), *_training(run), *_example(run)]
    if stopped is not None:
        level, state, headline, remedy = stopped
        return Verdict(level, state, headline, (Finding(level, remedy), *findings))
    if found is None:
        headline = "Trained, but its accuracy has not been measured yet."
        advice = Finding("warn", f"Measure it with: tfmat evaluate --workdir={run.workdir}")
        return Verdict("note", "finished", headline, (advice, *findings))
    return Verdict(found.level, "finished", found.text, tuple(findings))


def _stopped(run: RunFiles) -> tuple[str, str, str, str] | None:
    """(level, state, headline, advice) of a run that did not come to its end; None for one that did."""
    state, total, reason = run.status.state or "done", run.config.total_steps, run.status.reason
    step = run.metrics[-1].step if run.metrics else 0
    done = f"{step:,} of {total:,} steps" if total else f"{step:,} steps"
    again = f"Make this page again later: tfmat report --workdir={run.workdir}"
    resume = "The same command goes on from"
    cure = "A lower optimizer.learning_rate or a longer optimizer.warmup is the usual cure."
    dead = "the process was killed or the machine failed."
    found = {
        "alive": ("note", "running", f"Still training: {done} are done.", again),
        "running": (
            "warn", "stopped", f"Stopped without a word after {done}: {dead}", f"{resume} the last checkpoint.",
        ),
        "interrupted": (
            "warn", state, f"Interrupted after {done}; this is not the final network.", f"{resume} there ({reason}).",
        ),
        "diverged": (
            "bad", state, f"The training diverged after {done}: this network is of no use.", f"{reason}. {cure}",
        ),
        "failed": ("bad", state, f"The run failed after {done}.", reason or "log.txt may say why."),
    }  # fmt: skip
    return found.get("alive" if state == "running" and run.running else state)


def _accuracy(run: RunFiles) -> Finding | None:
    """The headline for a finished run; None without an evaluation."""
    evaluation = run.evaluation
    if not evaluation or not evaluation.parameters:
        return None
    percent = evaluation.rmse_percent
    off = f"{format_value(percent, 2)} % of the maximum stress"
    if percent is not None and percent > RMSE_POOR_PERCENT:
        text = f"on average the curves of its answers lie {off} away from the measured ones."
        return Finding("bad", f"Not usable yet: {text}")
    if run.reference:
        return _by_eta(*worst_eta(run.reference))
    noise = evaluation.rmse_over_noise
    if noise is not None and noise <= NOISE_GOOD:
        return Finding(
            "good", "Good: the curves of its answers follow the measured ones to within the noise."
        )
    if noise is not None:
        text = (
            f"{START} the curves of the network's own answers lie {off} ({format_value(noise, 2)} times the noise) "
            "away from the measured ones."
        )
        return Finding("warn", text)
    name, r2 = min(
        ((n, s.r2 or 0.0) for n, s in evaluation.parameters.items()), key=lambda pair: pair[1]
    )
    if r2 >= R2_GOOD:
        return Finding("good", "Good: its answers explain nearly all that the parameters vary.")
    return Finding("warn", f"Limited: its answers explain {100 * r2:.0f} % of what {name} varies.")


def worst_eta(reference: ReferenceScores) -> tuple[str, float]:
    """The parameter that the network is worst at, and its η."""
    etas = {name: entry.eta for name, entry in reference.parameters.items()}
    name = max(etas, key=lambda each: etas[each])
    return name, etas[name]


def _by_eta(name: str, eta: float) -> Finding:
    times = f"{format_value(eta, 2)} times the least that any method can reach"
    if eta <= ETA_PERFECT:
        text = "Excellent: the network is about as accurate as any method can be on such curves."
        return Finding("good", text)
    if eta <= ETA_GOOD:
        return Finding("good", f"Good: at its worst (for {name}) the squared error is {times}.")
    text = f"{START} the network's own squared error is at its worst (for {name}) {times}."
    return Finding("warn", text)


def _errors(run: RunFiles) -> list[Finding]:
    """How far off the answers are, in physical terms."""
    evaluation = run.evaluation
    if not evaluation or not evaluation.parameters:
        return []
    parameters = evaluation.parameters
    errors = ", ".join(f"{name} {error_text(score)}" for name, score in parameters.items())
    text = (
        f"Mean error on {evaluation.num_curves:,} test curves that no training has seen: {errors}."
    )
    findings = [Finding("note", text)]
    if evaluation.rmse_percent is not None:
        off = f"{format_value(evaluation.rmse_percent, 2)} % of the maximum stress"
        text = f"The curve of an answer lies {off} away from the measured one"
        noise = evaluation.rmse_over_noise
        if noise is not None:
            text += f", {format_value(noise, 3)} times the noise (1 is perfect)"
        level = "note" if noise is None else "good" if noise <= NOISE_GOOD else "warn"
        if level != "warn" or run.reference:  # else the headline says it
            findings.append(Finding(level, f"{text}."))
    for name, score in parameters.items():
        if score.r2 is not None and score.r2 < R2_POOR:
            text = f"{name} can hardly be told from these curves (R² {format_value(score.r2, 2)})"
            findings.append(Finding("warn", f"{text}: do not rely on it."))
    for name, entry in run.reference.parameters.items() if run.reference else ():
        if entry.unidentifiable_share > 0.05:
            share = f"{100 * entry.unidentifiable_share:.0f} % of the curves"
            findings.append(Finding("note", f"{share} say nothing of {name}, whatever the method."))
    return findings


def error_text(score: Score) -> str:
    """A parameter's mean absolute error: `0.89 %`, `× 1.09 (0.037 decades)`, or in its unit."""
    decades, percent = score.mae_decades, score.mae_percent
    if decades is not None:
        return f"× {format_value(10**decades, 3)} ({format_value(decades, 2)} decades)"
    if percent is not None:
        return f"{format_value(percent, 2)} %"
    unit = "" if score.unit == "-" else f" {score.unit}"
    return f"{format_value(score.mae, 2)}{unit}"


def last_quarter(metrics: Sequence[MetricsLine]) -> float | None:
    """Share by which the last quarter of the steps lowered the best validation loss; None for too few lines."""
    losses = [(line.step, line.val_loss) for line in metrics if line.val_loss is not None]
    if len(losses) < 2:
        return None
    before = [loss for step, loss in losses if step <= 0.75 * losses[-1][0]]
    return 1.0 - min(loss for _, loss in losses) / min(before) if before else None


def _squares(run: RunFiles) -> list[MetricsLine]:
    """The lines of a posterior's training with losses as squared errors, which the rules are about.

    Minus the log density of p labels that are known to s is p log s and a constant.
    """
    count = max(len(run.evaluation.parameters) if run.evaluation else 0, 1)

    def square(loss: float | None) -> float | None:
        return math.exp(min(2 * loss / count, _MOST_NATS)) if loss else loss

    return [
        msgspec.structs.replace(line, loss=square(line.loss), val_loss=square(line.val_loss))
        for line in run.metrics
    ]


def _training(run: RunFiles) -> list[Finding]:
    findings = []
    lines = _squares(run) if run.config.model.uncertainty == "flow" else run.metrics
    gain = last_quarter(lines)
    if gain is not None and run.status.state == "done":
        brought = (
            f"the last quarter of the training lowered the validation loss by {100 * gain:.0f} %"
        )
        if gain <= STILL_FALLING:
            findings.append(Finding("note", f"It had nearly stopped improving: {brought}."))
        elif run.config.optimizer.schedule == "constant":
            text = f"It was still improving at the end: {brought}. A longer train_for will help."
            findings.append(Finding("warn", text))
        else:
            text = (
                f"It improved to the end: {brought}, as it does when the learning rate falls to zero. Whether more is "
                "to be had, only a longer train_for can show."
            )
            findings.append(Finding("note", text))
    training, validation = (lines[-1].loss, lines[-1].val_loss) if lines else (None, None)
    if training and validation and validation > OVERFITTED * training:
        times = format_value(validation / training, 2)
        text = (
            f"It overfits: the validation loss is {times} times the training loss. More curves "
            "(data.num_curves) help."
        )
        findings.append(Finding("warn", text))
    return findings


def _example(run: RunFiles) -> list[Finding]:
    picture = run.example_picture
    if picture is None or picture.rmse_percent is None:
        return []
    own, refined = picture.rmse_percent, picture.refined
    what = "tests" if picture.is_of_tests else "curve"
    text = f"On the example {what} the network alone is {format_value(own, 2)} % of the maximum stress off"
    if refined is None:
        return [Finding("note", f"{text}.")]
    better = refined.rmse_percent
    text += f", least squares from its answer {format_value(better, 2)} %"
    if own > CLEARLY_WORSE * better:
        advice = "take the least-squares values, which identify gives beside its own."
        return [Finding("warn", f"{text}: {advice}")]
    return [Finding("note", f"{text}.")]


# --------------------------------------------------------------------------------------------------
# The pictures of a run, panel by panel: its accuracy, its error bars, which curves are hard, its losses.


# More scattered points than this only make a picture slow and black.
MAX_SCATTER = 5000
# Bins of true values, in each of which the errors' limits are drawn, and the fewest curves in each.
_BINS, _FEWEST = 10, 20
_TWO_SIDED_95 = 1.96
_LINES = (
    ("network_mse", "network", MODEL, "o", "-"),
    ("least_squares_mse", "least squares", SECOND, "s", "-"),
    ("bayes_risk", "best possible (Bayes risk)", INK, "", "--"),
)

Rows = list[list[Picture]]


def predicted_against_true(answers: Sequence[ParameterAnswers]) -> Rows:
    """One row a parameter: identified over true value with the line where they are equal; the error over it."""
    rows = []
    for i, each in enumerate(answers):
        compared, error = f"identified against true {each.name}", f"error of {each.name}"
        rows.append(
            [
                picture(f"predicted-{i}", compared, draw_predicted, answers=each),
                picture(f"error-{i}", f"{error} over its true value", draw_errors, answers=each),
            ]
        )
    return rows


def kinds_of_curves(bins: Mapping[str, Sequence[Bin]]) -> Rows:
    """One row a parameter, one column a quantity that curves are binned by: mean squared errors of scaled labels.

    With a single quantity two parameters share a row, as a picture alone would take its whole width.

    Args:
      bins: quantity of `BIN_TITLES` -> its bins; of the errors only the network's must be known.
    """
    if not bins:
        return []
    size = (3.3, 2.9) if len(bins) > 2 else (4.3, 3.3)
    rows = []
    for i, name in enumerate(next(iter(bins.values()))[0].parameters):
        row = []
        for j, (quantity, entries) in enumerate(bins.items()):
            text = f"mean squared error of {name} over {BIN_TITLES[quantity]}"
            shown = {"bins": entries, "quantity": quantity, "legend": j == 0}
            row.append(picture(f"kind-{i}-{j}", text, draw_bins, size, name=name, **shown))
        rows.append(row)
    if len(bins) == 1:
        return [
            [picture for row in rows[i : i + 2] for picture in row] for i in range(0, len(rows), 2)
        ]
    return rows


def calibration(coverage: Mapping[str, Coverage]) -> Rows:
    """One row a parameter: observed over nominal coverage, and error over predicted std in groups of curves."""
    rows = []
    for i, (name, scores) in enumerate(coverage.items()):
        parts: tuple[tuple[str, Any, Callable[..., None], str], ...] = (
            ("curve", scores.curve, draw_coverage, f"{name}: intervals that hold the truth (%)"),
            ("bins", scores.bins, draw_spread, f"error of {name} (root mean square)"),
        )
        rows.append(
            [
                picture(f"calibration-{key}-{i}", label, draw, found=found, label=label)
                for key, found, draw, label in parts
                if found
            ]
        )
    return [row for row in rows if row]


def losses(metrics: Sequence[MetricsLine]) -> Rows:
    """Training and validation loss over time and over epochs."""
    text = "training and validation loss over"
    return [
        [
            picture(f"losses-{over}", f"{text} {over}", draw_losses, metrics=metrics, over=over)
            for over in ("seconds", "epoch")
        ]
    ]


# Name -> its panels, row by row; none where there is nothing to draw.
# _SCATTERED: points that a panel of true and identified values shows well where they hardly overlap.
_SCATTERED = 450
FIGURES: dict[str, Callable[[RunFiles], Rows]] = {
    "predicted_against_true": lambda run: predicted_against_true(parameter_answers(run)),
    "kinds_of_curves": lambda run: kinds_of_curves(error_bins(run)),
    "losses": lambda run: losses(run.metrics) if run.metrics else [],
    "calibration": lambda run: calibration((run.evaluation and run.evaluation.coverage) or {}),
    "posterior": lambda run: uniformity(run.evaluation.posterior if run.evaluation else None),
}


def draw_predicted(panel: Axes, answers: ParameterAnswers) -> None:
    """Identified over true value, with the line where they are equal."""
    true, identified = answers.true[:MAX_SCATTER], answers.identified[:MAX_SCATTER]
    low, high = float(min(true.min(), identified.min())), float(max(true.max(), identified.max()))
    if answers.logarithmic:
        margin = (high / low) ** 0.04 if high > low else 1.5
        limits = low / margin, high * margin
    else:
        margin = 0.04 * (high - low) or 0.5
        limits = low - margin, high + margin
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.yaxis.set_major_locator(MaxNLocator(5))
    # Few points are as plain to see as many, also on a dark page.
    alpha = float(np.clip(_SCATTERED / len(true), 0.3, 0.9))
    panel.plot(true, identified, ".", ms=3, color="#3b82f6", alpha=alpha, mew=0, rasterized=True)
    panel.plot(limits, limits, "-", color=INK, lw=0.9)
    panel.set_xlim(limits)
    panel.set_ylim(limits)
    panel.set_box_aspect(1)
    label = with_unit(answers.name, answers.unit)
    log = "xy" if answers.logarithmic else ""
    finish(panel, f"true {label}", f"identified {label}", log)


def draw_errors(panel: Axes, answers: ParameterAnswers) -> None:
    """The middle 95 % of the errors over the true value, and, where it is known, the least that is possible."""
    errors = answers.errors
    count = int(np.clip(len(answers.true) // _FEWEST, 1, _BINS))
    edges, bins = equal_bins(answers.true, count)
    middle = (
        np.sqrt(edges[1:] * edges[:-1]) if answers.logarithmic else (edges[1:] + edges[:-1]) / 2
    )
    panel.axhline(0.0, color=INK, lw=0.8)
    if answers.floor is not None:
        of_bins = [answers.floor[bins[: len(answers.floor)] == i] for i in range(len(middle))]
        width = np.array(
            [_TWO_SIDED_95 * np.sqrt(np.mean(f**2)) if len(f) else np.nan for f in of_bins]
        )
        label = "95 %, best possible"
        panel.fill_between(middle, -width, width, color=BAND, alpha=0.45, lw=0, label=label)
    limits = np.array(
        [np.percentile(errors[bins == i], [2.5, 50, 97.5]) for i in range(len(middle))]
    )
    panel.plot(middle, limits[:, 0], "-", color=MODEL, lw=1.6, label="95 %, network")
    panel.plot(middle, limits[:, 2], "-", color=MODEL, lw=1.6)
    panel.plot(middle, limits[:, 1], ":", color=SECOND, lw=1.4, label="median, network")
    unit = "decades" if answers.logarithmic else "%" if answers.in_percent else answers.unit
    true = f"true {with_unit(answers.name, answers.unit)}"
    finish(panel, true, f"error of {answers.name} ({unit})")
    if answers.logarithmic:
        # So that an end that is a power of ten has its tick.
        panel.set_xlim(edges[0] / 1.05, edges[-1] * 1.05)
        logarithmic(panel.xaxis)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    low, high = panel.get_ylim()
    panel.set_ylim(low, high + 0.34 * (high - low))  # room for the legend
    panel.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)


def draw_bins(panel: Axes, bins: Sequence[Bin], quantity: str, name: str, legend: bool) -> None:
    """Mean squared errors of one parameter over the bins of one quantity, each in the middle of its bin."""
    skewed = quantity == "noise_to_signal"
    limits = [(entry.low, entry.high) for entry in bins]
    places = [math.sqrt(low * high) if skewed else (low + high) / 2 for low, high in limits]
    for key, label, color, marker, style in _LINES:
        values = [getattr(entry.parameters[name], key) for entry in bins]
        if not all(map(math.isnan, values)):
            panel.plot(places, values, style, marker=marker, ms=4, lw=1.5, color=color, label=label)
    finish(panel, BIN_TITLES[quantity], f"MSE of {name} (scaled 0–1)", "yx" if skewed else "y")
    if not skewed:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    if legend and len(panel.lines) > 1:
        low, high = panel.get_ylim()
        panel.set_ylim(low, high * (high / low) ** 0.4)  # room for the legend
        panel.legend(frameon=False, fontsize=8, loc="upper center")


def draw_coverage(panel: Axes, found: CoverageCurve, label: str) -> None:
    """The share of the intervals that hold the truth over the share that should."""
    nominal, observed = ([100 * s for s in shares] for shares in (found.nominal, found.observed))
    panel.plot([0, 100], [0, 100], "--", lw=1.2, color=INK, label="perfect")
    panel.plot(nominal, observed, "-", marker="o", ms=4, lw=1.5, color=MODEL, label="network")
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 100)
    panel.legend(frameon=False, loc="upper left")
    finish(panel, "as they say (%)", label)


def draw_spread(panel: Axes, found: Sequence[SpreadBin], label: str) -> None:
    """Errors over the errors that the network expects."""
    predicted, errors = [one.mean_std for one in found], [one.rms_error for one in found]
    ends = [min([*predicted, *errors]), max([*predicted, *errors])]
    panel.plot(ends, ends, "--", lw=1.2, color=INK)
    panel.plot(predicted, errors, "-", marker="o", ms=4, lw=1.5, color=MODEL)
    log = "xy" if ends[0] > 0 else ""
    finish(panel, "standard deviation that it gives (0–1)", label, log)


def draw_losses(panel: Axes, metrics: Sequence[MetricsLine], over: str) -> None:
    """Training and validation loss over `seconds` or `epoch`, as `losses` says."""
    label, divisor = "epoch", 1.0
    if over == "seconds":
        longest = max((line.seconds or 0.0 for line in metrics), default=0.0)
        scales = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
        unit, divisor = next((scale for scale in scales if longest >= 2 * scale[1]), scales[-1])
        label = f"training time ({unit})"
    # No squared error is negative.
    of_density = any((loss or 0.0) < 0 for line in metrics for loss in (line.loss, line.val_loss))
    for quantity, name, color in (
        ("loss", "training", MEASURED),
        ("val_loss", "validation", MODEL),
    ):
        points = _points(metrics, over, quantity, positive=not of_density)
        if len(points):
            marker = "o" if len(points) < 60 else ""
            x, y = points[:, 0] / divisor, points[:, 1]
            panel.plot(x, y, marker=marker, ms=3.5, lw=1.5, color=color, label=name)
    panel.set_xlim(left=0.0)
    if of_density:
        finish(panel, label, "minus log density of the labels (nats)")
    else:
        finish(panel, label, "MSE of scaled labels (–)", "y")
    if over == "epoch":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.lines:
        panel.legend(frameon=False)


def _points(metrics: Sequence[MetricsLine], key: str, quantity: str, *, positive: bool) -> Array:
    """[lines, 2]: (key, quantity) of the lines that hold both, on a log axis the `positive` ones."""
    least = 0.0 if positive else -np.inf
    pairs = [(getattr(line, key), getattr(line, quantity)) for line in metrics]
    return np.array(
        [(x, y) for x, y in pairs if x is not None and y is not None and least < y < np.inf], float
    )


# --------------------------------------------------------------------------------------------------
# The report on one run: `report.html` and `figures/`, from the files in its folder.


# Name -> what makes its panels, as in `FIGURES`.
Figures = dict[str, Callable[[], Rows]]


def write_training_report(workdir: str | os.PathLike) -> pathlib.Path:
    """Writes report.html, and its pictures as PNG into figures/, into a run's folder; returns the page's path.

    Raises:
      InputError: the folder is no run's, or cannot be written.
    """
    run = read_run(workdir)
    figures = _figures(run)
    page = training_page(run, figures)
    folder = make_folder(run.workdir / "figures")
    for name in (*figures, "example", "example_posterior"):
        path = folder / f"{name}.png"
        if not _is_saved(run, figures, name, path):
            path.unlink(missing_ok=True)  # an earlier one would belong to other numbers
    path = run.workdir / "report.html"
    with atomic_write(path, "w") as file:
        file.write(page)
    return path


def _figures(run: RunFiles) -> Figures:
    """Each is drawn when it is first asked for, once for the page and for its file."""
    return {name: functools.cache(functools.partial(make, run)) for name, make in FIGURES.items()}


def _is_saved(run: RunFiles, figures: Figures, name: str, path: pathlib.Path) -> bool:
    """Saves a picture; False where the run has none of this name, or one that makes no sense, which the page says."""
    try:
        if name == "example" and run.example_picture:
            save_figure(answer_figure(run.example_picture), path)
        elif name == "example_posterior" and run.example_posterior:
            save_figure(run.example_posterior.figure, path)
        elif name in figures and (rows := figures[name]()):
            save_grid(rows, path)
        else:
            return False
    except SENSELESS:
        return False
    return True


def training_page(run: RunFiles, figures: Figures | None = None) -> str:
    """The page on a run; without its evaluation where that is of the right type and still tells nothing."""
    try:
        return _page(run, figures or _figures(run))
    except SENSELESS as error:
        note = f"{run.workdir / 'evaluation.json'} is damaged ({type(error).__name__}: {error})"
        damaged = (*run.damaged, note)
        bare = dataclasses.replace(run, evaluation=None, answers=None, damaged=damaged)
        return _page(bare, _figures(bare))


def _page(run: RunFiles, figures: Figures) -> str:
    verdict = judge(run)
    return render_page(
        "run.html",
        guarded=True,
        run=run,
        verdict=verdict,
        findings=[*(Finding("warn", f"Left out: {w}.") for w in run.damaged), *verdict.findings],
        rules=RULES,
        figures=figures,
        panels=_panels(run),
        coverage_gap=coverage_gap,
        coverage_good=COVERAGE_GOOD,
        clearly_worse=CLEARLY_WORSE,
        exact_lines=exact_lines,
        more_accurate=more_accurate,
        error_text=error_text,
        worst_eta=worst_eta,
    )


def _panels(run: RunFiles) -> list["_ExampleCurve | Picture"]:
    """The example's pictures: of its curve, or of its tests, a panel each."""
    example = run.example_picture
    if not isinstance(example, TestsPicture):
        return [_ExampleCurve(example)] if example else []
    labels = {"strain_label": example.strain_label, "stress_label": example.stress_label}
    return [
        picture(
            f"example-{i}",
            f"measured and re-simulated answer to {group[0].title}",
            draw_tests,
            (4.3, 3.6),
            tests=group,
            **labels,
        )
        for i, group in enumerate(groups_of_tests(example.tests))
    ]


@dataclasses.dataclass(frozen=True)
class _ExampleCurve:
    """The example's curves, without the title and the values, which stand beside them on the page."""

    picture: CurvePicture

    @property
    def svg(self) -> str:
        bare = msgspec.structs.replace(
            self.picture, name="", law_title="", parameters={}, assumed=[]
        )
        figure = curve_figure(bare, width=5.6)
        description = "measured and re-simulated stress over strain, with residuals"
        return inline_svg(figure, "example", description)


# --------------------------------------------------------------------------------------------------
# The page on a search: `tuning.html`, in the look of the training report.


def write_tuning_report(
    workdir: str | os.PathLike,
    summary: SearchSummary,
    rows: Sequence[TrialRow],
    names: Mapping[str, str],
    importances: Mapping[str, float],
) -> pathlib.Path:
    """Writes tuning.html into a search's folder; returns its path.

    Args:
      workdir: of the search.
      summary, rows: the search, and its trials.
      names: hyper-parameter -> linear or log.
      importances: hyper-parameter -> share, largest first; {} where there are too few trials.

    Raises:
      InputError: the folder cannot be written.
    """
    path = pathlib.Path(workdir) / "tuning.html"
    best = next((row for row in rows if row.trial == summary.best), None)
    page = render_page(
        "tuning.html",
        summary=summary,
        rows=rows,
        ordered=best_first(rows, summary.direction),
        names=names,
        best=best,
        findings=_findings(summary, len(rows), names, best),
        overview=overview_lines(summary),
        figures=pictures(rows, names, summary.objective, summary.direction),
        importance_picture=importance(importances),
        value_cell=value_cell,
        busy=busy,
    )
    with atomic_write(path, "w") as file:
        file.write(page)
    return path


def _findings(
    summary: SearchSummary,
    num_trials: int,
    names: Mapping[str, str],
    best: TrialRow | None,
) -> list[Finding]:
    found = []
    if summary.failed:
        found.append(Finding("bad", f"The search ended early: {summary.ended}."))
    if best is not None:
        values = ", ".join(
            f"{name} {value_cell(best.values[name])}"
            for name in names
            if best.values.get(name) is not None
        )
        found.append(Finding("good", f"The best trial is {summary.best}: {values}."))
        found.append(Finding("note", f"To train with it: {summary.best_command}"))
    for state, words in (("failed", "failed; their log.txt says why"), ("diverged", "diverged")):
        count = summary.counts[state]
        if count and not summary.failed:
            found.append(Finding("warn", f"{count} of {num_trials} trials {words}."))
    return found
