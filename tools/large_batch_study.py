"""Time to the study recipe's accuracy over batches, rules, optimizers and weight decays: one command, one budget.

    nice -n 0 .venv/bin/python tools/large_batch_study.py --budget=40m

First the study's own recipe (batch 75, Adam at a constant 4.7331e-4, 8 epochs) sets the target: the lowest val_loss of
its epochs. Then successive halving over one seed: every candidate for half an epoch, the three best of each batch for
one epoch, the best of each batch for less or ever more epochs, until the shortest that reaches the target is found.
The fastest ones and the study's recipe run for two further seeds, interleaved. Each run is an ordinary one
(`tfmat train`) with target_val_loss, in a folder of its own under --workdir; times are seconds of training, validation
left out, for all.

The same command goes on after a kill or Ctrl-C; runs that are done are not repeated, and a larger --budget goes on
from where the smaller one ended. Results: study.csv, study.json, study.png, table.md in --output.

    .venv/bin/python tools/large_batch_study.py --finalists_of=docs/large_batch/study.json \\
        --workdir=runs/finalists --output=docs/large_batch/finalists

runs only an earlier study's fastest recipes and the study's own again, all seeds interleaved, to that study's target.
"""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from large_batch_results import summarize
from large_batch_runs import BATCHES, RECIPES, REFERENCE, Recipe, Run, Study, say
from tfmat.config import load_config
from tfmat.durations import Duration
from tfmat.errors import InputError, TfmatError
from tfmat.files import read_json
from tfmat.report.metrics import read_metrics

SCREEN, SECOND = "0.5epochs", "1epochs"
SHORTER = ("0.625epochs", "0.75epochs", "0.875epochs")
LONGER = ("1.5epochs", "2epochs", "3epochs", "4epochs", "6epochs", "8epochs")
KEPT = 3  # candidates of a batch that go from half an epoch to a whole one
FINALISTS, SEEDS = 3, (0, 1, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--budget", default="40m", help="time for all runs, also of earlier calls [40m]"
    )
    parser.add_argument("--workdir", default="runs/large_batch_study")
    parser.add_argument(
        "--output", default="docs/large_batch", help="CSV, JSON, PNG and table go here"
    )
    parser.add_argument(
        "--finalists_of", help="study.json of an earlier study: its finalists again, nothing else"
    )
    parser.add_argument("--data_dir", default="data")
    parser.add_argument("--num_curves", type=int, help="a smaller set, to try the command")
    options = parser.parse_args(arguments)
    try:
        seconds = Duration.parse(options.budget).seconds
        if seconds is None:
            raise InputError(
                f"--budget={options.budget} is no time; give minutes or hours, such as 40m"
            )
        base = load_config("configs/baseline.py")
        if options.num_curves:
            base.data.num_curves = options.num_curves
        study = Study(
            pathlib.Path(options.workdir), pathlib.Path(options.output), base, options.data_dir, seconds
        )  # fmt: skip
        if options.finalists_of:
            run_again(study, options.finalists_of)
        else:
            go_through(study)
    except TfmatError as error:
        say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        say("interrupted; start the same command again to go on")
        return 75
    return 0


def go_through(study: Study) -> None:
    """All stages; each keeps what the next one needs."""
    own = Run(75, None, "8epochs")
    if study.run("finals", own) is None:
        raise InputError("the budget is used up; give a larger --budget")
    study.target = min(
        n["val_loss"] for n in read_metrics(study.workdir / own.name / "metrics.jsonl")
    )
    study.run("finals", own)  # read again: now there is a target
    say(f"target: val_loss {study.target:.4g}")
    limit = study.dataset.num_train
    batches = [batch for batch in BATCHES if batch <= limit // 4]
    screened = _stage(study, "screen", [Run(b, r, SCREEN) for r in RECIPES for b in batches])
    second = [
        dataclasses.replace(run, train_for=SECOND) for run in _best_of_each_batch(screened, KEPT)
    ]
    third = _best_of_each_batch(_stage(study, "second", second), 1)
    hits = _lengthen(study, third)
    finalists = sorted(hits, key=lambda run: study.rows[run]["seconds_to_target"])[:FINALISTS]
    for seed in SEEDS[1:]:
        for run in [own, *finalists]:
            study.run("finals", dataclasses.replace(run, seed=seed))
    summarize(study)


def run_again(study: Study, path: str) -> None:
    """An earlier study's finalists and its own recipe, seed after seed, to the target of then."""
    earlier = read_json(path)
    if not isinstance(earlier, dict) or not {"target_val_loss", "runs"} <= set(earlier):
        raise InputError(f"{path} is no study.json; give one that an earlier study has written")
    study.target = earlier["target_val_loss"] * (1 + 1e-6)  # written with ten digits
    finalists: dict[tuple[int, str], Run] = {}  # the fastest of each batch and optimizer
    for row in sorted(
        (row for row in earlier["runs"] if row.get("reached") and row["seed"] == 0),
        key=lambda row: row["seconds_to_target"],
    ):
        if row["optimizer"] != "study":
            recipe = Recipe(*(row[field.name] for field in dataclasses.fields(Recipe)))
            run = Run(row["batch"], recipe, row["train_for"])
            finalists.setdefault((run.batch, recipe.optimizer), run)
    runs = [Run(REFERENCE, None, "8epochs"), *list(finalists.values())[:FINALISTS]]
    for seed in SEEDS:
        for run in runs:
            study.run("finals", dataclasses.replace(run, seed=seed))
    summarize(study)


def _stage(study: Study, stage: str, runs: Sequence[Run]) -> dict[Run, float]:
    """Run -> val_loss, of those that the budget allowed and that did not diverge."""
    found = {}
    for run in runs:
        row = study.run(stage, run)
        if row is not None and row["state"] == "done":
            found[run] = row["val_loss"]
    return found


def _best_of_each_batch(losses: dict[Run, float], count: int) -> list[Run]:
    """The `count` best runs of each batch, all first ones first."""
    ranked: dict[int, list[Run]] = {}
    for run in sorted(losses, key=losses.__getitem__):
        ranked.setdefault(run.batch, []).append(run)
    places = range(count)
    return [
        runs[place] for place in places for _, runs in sorted(ranked.items()) if place < len(runs)
    ]


def _lengthen(study: Study, runs: Sequence[Run]) -> list[Run]:
    """Of each the shortest run that reaches the target, where there is one."""
    hits, waiting = [], []
    for run in runs:
        if study.rows[run]["reached"]:
            shorter = (dataclasses.replace(run, train_for=length) for length in SHORTER)
            hits.append(next((r for r in shorter if _reaches(study, r)), run))
        else:
            waiting.append(run)
    for length in LONGER:
        for run in list(waiting):
            longer = dataclasses.replace(run, train_for=length)
            if _reaches(study, longer):
                hits.append(longer)
                waiting.remove(run)
    return hits


def _reaches(study: Study, run: Run) -> bool:
    row = study.run("lengths", run)
    return bool(row and row.get("reached"))


if __name__ == "__main__":
    sys.exit(main())
