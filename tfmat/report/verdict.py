"""The verdict on a run in plain words, from its numbers by stated rules."""

import dataclasses
import math
from typing import Any

from tfmat.report.formatting import format_value
from tfmat.report.page import Finding
from tfmat.report.run_files import RunFiles

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
# Distance of the network's curve from the measured one over that of least squares.
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
        "the training loss. For a posterior the squares of the widths count that its log densities mean."
    ),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a reader should take away.

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
    state = run.status.get("state", "done")
    total = run.config.get("total_steps")
    step = run.metrics[-1]["step"] if run.metrics else 0
    done = f"{step:,} of {total:,} steps" if isinstance(total, int) else f"{step:,} steps"
    reason = str(run.status.get("reason", ""))
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
    parameters = evaluation.get("parameters")
    if not parameters:
        return None
    percent = evaluation.get("rmse_percent")
    off = f"{format_value(percent, 2)} % of the maximum stress"
    if percent is not None and percent > RMSE_POOR_PERCENT:
        text = f"on average the curves of its answers lie {off} away from the measured ones."
        return Finding("bad", f"Not usable yet: {text}")
    if run.reference:
        return _by_eta(*worst_eta(run.reference))
    noise = evaluation.get("rmse_over_noise")
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
        ((n, s.get("r2") or 0.0) for n, s in parameters.items()), key=lambda pair: pair[1]
    )
    if r2 >= R2_GOOD:
        return Finding("good", "Good: its answers explain nearly all that the parameters vary.")
    return Finding("warn", f"Limited: its answers explain {100 * r2:.0f} % of what {name} varies.")


def worst_eta(reference: dict[str, Any]) -> tuple[str, float]:
    """The parameter that the network is worst at, and its η."""
    etas = {name: float(entry["eta"]) for name, entry in reference["parameters"].items()}
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
    parameters = evaluation.get("parameters")
    if not parameters:
        return []
    errors = ", ".join(f"{name} {error_text(score)}" for name, score in parameters.items())
    text = f"Mean error on {evaluation['num_curves']:,} test curves that no training has seen: {errors}."
    findings = [Finding("note", text)]
    if evaluation.get("rmse_percent") is not None:
        off = f"{format_value(evaluation['rmse_percent'], 2)} % of the maximum stress"
        text = f"The curve of an answer lies {off} away from the measured one"
        noise = evaluation.get("rmse_over_noise")
        if noise is not None:
            text += f", {format_value(noise, 3)} times the noise (1 is perfect)"
        level = "note" if noise is None else "good" if noise <= NOISE_GOOD else "warn"
        if level != "warn" or run.reference:  # else the headline says it
            findings.append(Finding(level, f"{text}."))
    for name, score in parameters.items():
        if score.get("r2") is not None and score["r2"] < R2_POOR:
            text = (
                f"{name} can hardly be told from these curves (R² {format_value(score['r2'], 2)})"
            )
            findings.append(Finding("warn", f"{text}: do not rely on it."))
    for name, entry in (run.reference or {"parameters": {}})["parameters"].items():
        if entry["unidentifiable_share"] > 0.05:
            share = f"{100 * entry['unidentifiable_share']:.0f} % of the curves"
            findings.append(Finding("note", f"{share} say nothing of {name}, whatever the method."))
    return findings


def error_text(score: dict[str, Any]) -> str:
    """A parameter's mean absolute error: `0.89 %`, `× 1.09 (0.037 decades)`, or in its unit."""
    decades, percent = score.get("mae_decades"), score.get("mae_percent")
    if decades is not None:
        return f"× {format_value(10**decades, 3)} ({format_value(decades, 2)} decades)"
    if percent is not None:
        return f"{format_value(percent, 2)} %"
    unit = "" if score["unit"] == "-" else f" {score['unit']}"
    return f"{format_value(score['mae'], 2)}{unit}"


def last_quarter(metrics: list[dict[str, Any]]) -> float | None:
    """Share by which the last quarter of the steps lowered the best validation loss; None for too few lines."""
    lines = [line for line in metrics if line.get("val_loss") is not None]
    if len(lines) < 2:
        return None
    turn = 0.75 * lines[-1]["step"]
    before = [line["val_loss"] for line in lines if line["step"] <= turn]
    if not before:
        return None
    return 1.0 - min(line["val_loss"] for line in lines) / min(before)


def _squares(run: RunFiles) -> list[dict[str, Any]]:
    """The lines of a posterior's training with losses as squared errors, which the rules are about.

    Minus the log density of p labels that are known to s is p log s and a constant.
    """
    count = max(len(run.evaluation.get("parameters", {})), 1)
    return [
        {
            key: math.exp(min(2 * value / count, _MOST_NATS))
            if key in ("loss", "val_loss") and value
            else value
            for key, value in line.items()
        }
        for line in run.metrics
    ]


def _training(run: RunFiles) -> list[Finding]:
    findings = []
    lines = (
        _squares(run) if run.config.get("model", {}).get("uncertainty") == "flow" else run.metrics
    )
    gain = last_quarter(lines)
    if gain is not None and run.status.get("state") == "done":
        brought = (
            f"the last quarter of the training lowered the validation loss by {100 * gain:.0f} %"
        )
        schedule = run.config.get("optimizer", {}).get("schedule")
        if gain <= STILL_FALLING:
            findings.append(Finding("note", f"It had nearly stopped improving: {brought}."))
        elif schedule == "constant":
            text = f"It was still improving at the end: {brought}. A longer train_for will help."
            findings.append(Finding("warn", text))
        else:
            text = (
                f"It improved to the end: {brought}, as it does when the learning rate falls to zero. Whether more is "
                "to be had, only a longer train_for can show."
            )
            findings.append(Finding("note", text))
    last = lines[-1] if lines else {}
    training, validation = last.get("loss"), last.get("val_loss")
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
    if picture is None or picture.get("rmse_percent") is None:
        return []
    own, refined = picture["rmse_percent"], picture["refined"]
    what = "tests" if "tests" in picture else "curve"
    text = f"On the example {what} the network alone is {format_value(own, 2)} % of the maximum stress off"
    if refined is None:
        return [Finding("note", f"{text}.")]
    better = refined["rmse_percent"]
    text += f", least squares from its answer {format_value(better, 2)} %"
    if own > CLEARLY_WORSE * better:
        advice = "take the least-squares values, which identify gives beside its own."
        return [Finding("warn", f"{text}: {advice}")]
    return [Finding("note", f"{text}.")]
