"""What an evaluation leaves in a run's folder."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tfmat.files import make_folder, write_json
from tfmat.report.figures import Array, loss_figure, predicted_against_true_figure, save_figure
from tfmat.report.metrics import read_metrics
from tfmat.report.yardstick_figure import yardstick_figure


def write_evaluation(
    workdir: str | os.PathLike,
    evaluation: Mapping[str, Any],
    true_values: Array,
    identified_values: Array,
) -> None:
    """Writes the pictures and evaluation.json.

    Pictures, in figures/: predicted_against_true.png, losses.png (where the run kept metrics), yardstick.png (where
    the evaluation has one).

    Args:
      evaluation: the content of evaluation.json.
      true_values, identified_values: [curves, parameters], in the parameters' units.
    """
    workdir = pathlib.Path(workdir)
    figures = make_folder(workdir / "figures")
    parameters = [
        (name, score["unit"], "linear" if score["mae_decades"] is None else "log")
        for name, score in evaluation["parameters"].items()
    ]
    figure = predicted_against_true_figure(parameters, true_values, identified_values)
    save_figure(figure, figures / "predicted_against_true.png")
    metrics = read_metrics(workdir / "metrics.jsonl")
    if metrics:
        save_figure(loss_figure(metrics), figures / "losses.png")
    if evaluation.get("yardstick"):
        save_figure(yardstick_figure(evaluation["yardstick"]), figures / "yardstick.png")
    else:
        # One of an earlier evaluation would belong to other numbers.
        (figures / "yardstick.png").unlink(missing_ok=True)
    write_json(workdir / "evaluation.json", evaluation)
