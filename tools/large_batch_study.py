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
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfmat.config import Config, apply_override, check_config, load_config
from tfmat.durations import Duration
from tfmat.errors import InputError, TfmatError
from tfmat.files import atomic_write, make_folder, read_json, write_json
from tfmat.large_batch.batch_sweep import ENDED, run_once, state_of
from tfmat.large_batch.settings import prepare_data
from tfmat.report.metrics import read_metrics

BATCHES = (75, 150, 300, 750, 1500, 3000, 6000)
REFERENCE = 75  # the batch that the recipes' rates are for
SCREEN, SECOND = "0.5epochs", "1epochs"
SHORTER = ("0.625epochs", "0.75epochs", "0.875epochs")
LONGER = ("1.5epochs", "2epochs", "3epochs", "4epochs", "6epochs", "8epochs")
KEPT = 3  # candidates of a batch that go from half an epoch to a whole one
FINALISTS, SEEDS = 3, (0, 1, 2)
# Until which share of the budget a stage may begin runs.
SHARES = {"screen": 0.42, "second": 0.57, "lengths": 0.75, "finals": 1.0}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Optimizer, peak rate at the reference batch, rule and weight decay; a cosine to 0 after a short warm-up."""

    optimizer: str
    learning_rate: float
    scaling: str
    weight_decay: float = 0.0
    growth: str = ""


# In the order of hope: what the budget does not reach is left out.
RECIPES = (
    Recipe("lamb", 5e-3, "sqrt"),
    Recipe("adam", 2e-3, "sqrt"),
    Recipe("lamb", 1e-2, "none"),
    Recipe("adam", 1e-3, "sqrt"),
    Recipe("lamb", 2.5e-3, "sqrt"),
    Recipe("adam", 1e-3, "linear"),
    Recipe("adam", 4e-3, "none"),
    Recipe("lamb", 5e-3, "sqrt", 0.01),
    Recipe("adamw", 2e-3, "sqrt", 0.05),
    Recipe("novograd", 1e-3, "sqrt"),
    Recipe("lars", 1.0, "sqrt"),
    Recipe("sgd", 0.05, "linear"),
)


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: `recipe` None is the study's own."""

    batch: int
    recipe: Recipe | None
    train_for: str
    seed: int = 0

    @property
    def name(self) -> str:
        """Of its folder."""
        if self.recipe is None:
            return f"study-seed{self.seed}"
        r = self.recipe
        decay = f"-decay{r.weight_decay:g}" if r.weight_decay else ""
        return (
            f"b{self.batch:04d}-{r.optimizer}-{r.scaling}-{r.learning_rate:g}{decay}-{self.train_for}"
            f"-seed{self.seed}"
        )

    def config(self, base: Config, target: float | None) -> Config:
        """The run's config."""
        keys: dict[str, Any] = {"seed": self.seed, "data.seed": 0, "checkpoint.keep": 1}
        if self.recipe is not None:
            r = self.recipe
            keys |= {
                "global_batch_size": self.batch,
                "train_for": self.train_for,
                "optimizer.name": r.optimizer,
                "optimizer.learning_rate": r.learning_rate,
                "optimizer.scaling": r.scaling,
                "optimizer.reference_batch_size": REFERENCE,
                "optimizer.weight_decay": r.weight_decay,
                "optimizer.schedule": "cosine",
                "optimizer.warmup": "0.05epochs",
                "batch_growth": r.growth,
            }
        if target is not None:
            keys["target_val_loss"] = target
        config = load_config("configs/baseline.py")
        with config.ignore_type():
            config.data = base.data
        for key, value in keys.items():
            apply_override(config, key, str(value))
        return check_config(config)


class Study:
    """The runs that are done, and what they cost."""

    def __init__(
        self,
        workdir: pathlib.Path,
        output: pathlib.Path,
        base: Config,
        data_dir: str,
        budget: float,
    ):
        self.workdir, self.output = make_folder(workdir), make_folder(output)
        self.base, self.budget = base, budget
        self.dataset = prepare_data(base, data_dir, max(BATCHES))
        self._ledger = self.workdir / "seconds.json"
        self.seconds: dict[str, float] = read_json(self._ledger) if self._ledger.exists() else {}
        self.rows: dict[Run, dict[str, Any]] = {}
        self.target: float | None = None

    @property
    def spent(self) -> float:
        """Seconds of all runs so far, also of earlier calls."""
        return sum(self.seconds.values())

    def run(self, stage: str, run: Run) -> dict[str, Any] | None:
        """The run's row; None where the budget of its stage is used up. A finished run costs nothing."""
        path = self.workdir / run.name
        if state_of(path) not in ENDED:
            if self.spent >= SHARES[stage] * self.budget:
                return None
            left = max(self.budget - self.spent, 0.0) / 60
            say(f"[{stage}] {run.name}; {self.spent / 60:.1f} min used, at most {left:.1f} left")
            self._train(run, path)
        self.rows[run] = {"stage": stage, **self._read(run, path)}
        self.write()
        return self.rows[run]

    def _train(self, run: Run, path: pathlib.Path) -> None:
        before = self.seconds.get(run.name, 0.0)
        started = time.monotonic()
        # The target of a run that went on must be the one that it began with.
        saved = path / "config.json"
        target = read_json(saved)["target_val_loss"] if saved.exists() else self.target
        try:
            run_once(run.config(self.base, target), self.dataset, path)
        finally:
            self.seconds[run.name] = before + time.monotonic() - started
            write_json(self._ledger, self.seconds)

    def _read(self, run: Run, path: pathlib.Path) -> dict[str, Any]:
        lines = read_metrics(path / "metrics.jsonl")
        recipe = dataclasses.asdict(run.recipe) if run.recipe else {"optimizer": "study"}
        row: dict[str, Any] = {
            "batch": run.batch, **recipe, "train_for": run.train_for, "seed": run.seed,
            "state": state_of(path), "run": run.name,
        }  # fmt: skip
        if not lines or row["state"] != "done":
            return row
        last = lines[-1]
        hits = [n for n in lines if self.target is not None and n["val_loss"] <= self.target]
        return {
            **row,
            "reached": bool(hits),
            "seconds_to_target": hits[0]["training_seconds"] if hits else None,
            "epochs_to_target": hits[0]["epoch"] if hits else None,
            "training_seconds": last["training_seconds"],
            "epochs": last["epoch"],
            "curves_per_second": float(np.median([n["curves_per_second"] for n in lines])),
            "loss": last["loss"],
            "val_loss": last["val_loss"],
            "gap": last["val_loss"] - last["loss"],
        }

    def write(self) -> None:
        """CSV and JSON of what there is."""
        with atomic_write(self.output / "study.csv", "w") as file:
            pd.DataFrame(list(self.rows.values())).to_csv(file, index=False)
        content = {
            "target_val_loss": self.target,
            "seconds": self.spent,
            "runs": list(self.rows.values()),
        }
        write_json(self.output / "study.json", json.loads(pd.Series(content).to_json()))


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
    from tfmat.report.figures import MEASURED, MODEL, finish, logarithmic, new_figure

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


def say(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
