"""The table and the picture of tools/large_batch_study.py."""

import numpy as np
import pandas as pd

from large_batch_runs import Study, say
from tfmat.files import atomic_write


def summarize(study: Study) -> None:
    """The table of the fastest of each batch and of the finalists, and the picture."""
    rows = pd.DataFrame(list(study.rows.values()))
    lines = [
        f"Target: val_loss {study.target:.4g}, the lowest of the study recipe's eight epochs (seed 0).",
        "",
        "| batch | recipe | epochs | s to the target (each seed) | times faster | val_loss | gap |",
        "|---|---|---|---|---|---|---|",
    ]
    reached = rows[rows.reached.eq(True)]
    first = reached[reached.seed == 0].sort_values("seconds_to_target")
    fastest = first.groupby(["batch", first.optimizer == "study"]).head(1)
    reference = _median_seconds(rows)
    for _, row in fastest.sort_values("batch").iterrows():
        same = rows[(rows.batch == row.batch) & (rows.optimizer == row.optimizer)]
        for key in ("scaling", "learning_rate", "weight_decay", "train_for"):
            if pd.notna(row.get(key)):
                same = same[same[key] == row[key]]
        seconds = [f"{s:.0f}" if pd.notna(s) else "not reached" for s in same.seconds_to_target]
        is_own = row.optimizer == "study"
        median = reference if is_own else same.seconds_to_target.median()
        recipe = "the study's" if is_own else (
            f"{row.optimizer}, {row.scaling} from {row.learning_rate:g}"
            + (f", decay {row.weight_decay:g}" if row.weight_decay else "")
        )  # fmt: skip
        lines.append(
            f"| {row.batch} | {recipe} | {row.epochs_to_target:g} | {', '.join(seconds)} | {reference / median:.1f} "
            f"| {same.val_loss.mean():.3g} | {same.gap.mean():.1g} |"
        )
    missing = sorted(set(rows.batch) - set(fastest.batch))
    if missing:
        lines.append(f"\nNot reached within the budget: batch {', '.join(map(str, missing))}.")
    text = "\n".join(lines) + "\n"
    with atomic_write(study.output / "table.md", "w") as file:
        file.write(text)
    _draw(study, rows, reference)
    study.write()
    say(text + f"results: {study.output}; {study.spent / 60:.1f} min used")


def _median_seconds(rows: pd.DataFrame) -> float:
    """Of the study's recipe to the target; a seed that did not reach it counts with all of its time."""
    part = rows[rows.optimizer == "study"]
    return float(part.seconds_to_target.fillna(part.training_seconds).median())


def _draw(study: Study, rows: pd.DataFrame, reference: float) -> None:
    from tfmat.large_batch.figures import save_png_and_svg
    from tfmat.report.drawing import MEASURED, MODEL, finish, logarithmic, new_figure

    figure = new_figure(8.0, 4.5)
    panel = figure.subplots()
    done = rows[rows.state == "done"]
    panel.plot(
        done.training_seconds, done.val_loss, "o", ms=4, mfc="none", color=MEASURED, label="a run"
    )
    hits = done[done.reached.eq(True)]
    panel.plot(
        hits.seconds_to_target, hits.val_loss, "o", ms=6, color=MODEL, label="reached the target"
    )
    panel.axhline(study.target or np.nan, color=MODEL, lw=1.0, ls="--")
    panel.axvline(reference, color=MEASURED, lw=1.0, ls="--", label="the study's recipe")
    finish(panel)
    logarithmic(panel.xaxis)
    logarithmic(panel.yaxis)
    panel.set_xlabel("training time (s)")
    panel.set_ylabel("validation loss")
    panel.legend(frameon=False)
    save_png_and_svg(figure, study.output / "study")
