"""Numbers that pictures of a run are drawn from: answers parameter by parameter, and errors by the kind of curve."""

import math

import numpy as np

from tfmat.report.accuracy_figures import ParameterAnswers
from tfmat.report.kinds_of_curves import Bins, bins_of_answers, bins_of_yardstick
from tfmat.report.run_files import RunFiles


def parameter_answers(run: RunFiles) -> list[ParameterAnswers]:
    """The network's answers to the test curves; [] where they are not on disk or not those of this network."""
    entries, answers = run.sidecar.get("parameters", []), run.answers
    if answers is None or answers.true.shape[1] != len(entries) or not len(answers.true):
        return []
    widths, found = label_widths(run), []
    for i, entry in enumerate(entries):
        logarithmic = entry.get("scale") == "log"
        true = answers.true[:, i]
        floor = None
        if len(answers.floor_variance):
            floor = np.sqrt(answers.floor_variance[:, i]) * widths[entry["name"]]
            # To the units of the errors that it is drawn behind.
            if logarithmic:
                floor = floor / math.log(10.0)
            elif np.all(true > 0):
                floor = 100 * floor / true[: len(floor)]
        found.append(
            ParameterAnswers(
                entry["name"], entry["unit"], logarithmic, true, answers.identified[:, i], floor
            )
        )
    return found


def label_widths(run: RunFiles) -> dict[str, float]:
    """Parameter name -> width of its range, which is 1 on the scale of the labels; logarithmic ones in e-folds."""
    return {
        entry["name"]: math.log(entry["high"] / entry["low"])
        if entry.get("scale") == "log"
        else entry["high"] - entry["low"]
        for entry in run.sidecar.get("parameters", [])
    }


def error_bins(run: RunFiles) -> Bins:
    """Errors by the kind of curve: of network, least squares and best possible, or of the network alone; or {}."""
    yardstick = run.evaluation.get("yardstick")
    if yardstick:
        return bins_of_yardstick(yardstick)
    answers = parameter_answers(run)
    if run.answers is None or not answers:
        return {}
    curves = run.sidecar.get("curves") or {}
    noise = float(curves.get("noise_mpa") or 0.0), float(curves.get("noise_relative") or 0.0)
    return bins_of_answers(run.answers, answers, label_widths(run), noise)
