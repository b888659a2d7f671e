"""Time to the study recipe's accuracy, of recipes that searches found: one seed to find the lengths, three to compare.

    .venv/bin/python tools/large_batch_study.py runs/batch_75 runs/batch_150

takes the best recipe of each search (configs/large_batch_search.py). The study's own recipe (batch 75, Adam at a
constant 4.7331e-4, 8 epochs) sets the target: the lowest val_loss of its epochs. Each recipe runs for more and more
epochs until the shortest run that reaches it is found; the fastest ones and the study's own run for two further seeds,
interleaved.

    .venv/bin/python tools/large_batch_study.py --finalists_of=docs/large_batch/study.json \\
        --workdir=runs/finalists --output=docs/large_batch/finalists

runs only an earlier study's fastest recipes and the study's own again, all seeds interleaved, to that study's target.

Each run is an ordinary one (`tfmat train`) in a folder of its own under --workdir; times are seconds of training,
validation left out. The same command goes on after a kill or Ctrl-C. Results: study.json, study.csv, study.png and
table.md in --output.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfmat.config import Config, apply_override, check_config, load_config
from tfmat.console import log
from tfmat.errors import InputError, TfmatError
from tfmat.files import make_folder, read_json, write_json, write_text
from tfmat.large_batch.figures import save_png_and_svg
from tfmat.large_batch.runs import ENDED, prepare_data, run_once, state_of
from tfmat.report.figures import MEASURED, MODEL, finish, logarithmic, new_figure
from tfmat.report.run_files import read_metrics

OWN = "study"  # the optimizer's name in the rows of the study's own recipe
REFERENCE = 75  # the batch that the recipes' rates are for
LENGTHS = tuple(f"{n}epochs" for n in (0.625, 0.75, 0.875, 1, 1.5, 2, 3, 4, 6, 8))
FINALISTS, SEEDS = 3, (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a run is made with; a cosine to 0 after a short warm-up, unless it is the study's OWN."""

    batch: int
    optimizer: str
    learning_rate: float = 0.0
    scaling: str = "none"
    weight_decay: float = 0.0
    train_for: str = "8epochs"
    seed: int = 0

    @property
    def name(self) -> str:
        """The folder's."""
        if self.optimizer == OWN:
            return f"study-seed{self.seed}"
        decay = f"-decay{self.weight_decay:g}" if self.weight_decay else ""
        rule = f"{self.optimizer}-{self.scaling}-{self.learning_rate:g}{decay}"
        return f"b{self.batch:04d}-{rule}-{self.train_for}-seed{self.seed}"

    def config(self, base: Config, target: float | None) -> Config:
        """The run's config."""
        keys: dict[str, Any] = {"seed": self.seed, "data.seed": 0, "checkpoint.keep": 1}
        if self.optimizer != OWN:
            keys |= {
                "global_batch_size": self.batch,
                "train_for": self.train_for,
                "optimizer.name": self.optimizer,
                "optimizer.learning_rate": self.learning_rate,
                "optimizer.scaling": self.scaling,
                "optimizer.reference_batch_size": REFERENCE,
                "optimizer.weight_decay": self.weight_decay,
                "optimizer.schedule": "cosine",
                "optimizer.warmup": "0.05epochs",
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
    """The runs that are done: recipe -> row."""

    def __init__(self, options: argparse.Namespace, base: Config, largest_batch: int):
        self.workdir, self.output = map(make_folder, (options.workdir, options.output))
        self.base = base
        self.target: float | None = None
        self.dataset = prepare_data(base, options.data_dir, largest_batch)
        self.rows: dict[Recipe, dict[str, Any]] = {}

    def run(self, recipe: Recipe) -> dict[str, Any]:
        """The recipe's row; one that is done costs nothing."""
        path = self.workdir / recipe.name
        if state_of(path) not in ENDED:
            log(recipe.name)
            saved = path / "config.json"
            # A run goes on with the target that it began with.
            target = read_json(saved)["target_val_loss"] if saved.exists() else self.target
            run_once(recipe.config(self.base, target), self.dataset, path)
        row = dataclasses.asdict(recipe) | {"state": state_of(path), "run": recipe.name}
        lines = read_metrics(path / "metrics.jsonl")
        if lines and row["state"] == "done":
            last = lines[-1]
            hits = [n for n in lines if self.target is not None and n["val_loss"] <= self.target]
            row |= {key: last[key] for key in ("training_seconds", "loss", "val_loss")}
            row |= {
                "lowest_val_loss": min(n["val_loss"] for n in lines),
                "reached": bool(hits),
                "seconds_to_target": hits[0]["training_seconds"] if hits else None,
                "epochs_to_target": hits[0]["epoch"] if hits else None,
                "curves_per_second": float(np.median([n["curves_per_second"] for n in lines])),
                "gap": last["val_loss"] - last["loss"],
            }
        self.rows[recipe] = row
        return row

    def write(self) -> None:
        """JSON, CSV, table and picture of what there is."""
        rows = pd.DataFrame(list(self.rows.values()))
        for name, text in (
            ("study.csv", rows.to_csv(index=False)),
            ("table.md", self._table(rows)),
        ):
            write_text(self.output / name, text)
        runs = json.loads(rows.to_json(orient="records"))
        write_json(self.output / "study.json", {"target_val_loss": self.target, "runs": runs})
        figure = new_figure(8.0, 4.5)
        panel = figure.subplots()
        done = rows[rows.state == "done"]
        hits = done[done.reached.eq(True)]
        for x, y, color, label in (
            (done.training_seconds, done.val_loss, MEASURED, "a run"),
            (hits.seconds_to_target, hits.val_loss, MODEL, "reached the target"),
        ):
            panel.plot(x, y, "o", ms=5, mfc="none", color=color, label=label)
        panel.axhline(self.target or np.nan, color=MODEL, lw=1.0, ls="--")
        finish(panel)
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)
        panel.set(xlabel="training time (s)", ylabel="validation loss")
        panel.legend(frameon=False)
        save_png_and_svg(figure, self.output / "study")
        log(f"{self._table(rows)}results: {self.output}")

    def _table(self, rows: pd.DataFrame) -> str:
        """The recipes that reached the target with seed 0; a seed that did not counts with all of its time."""
        own = rows[rows.optimizer == OWN]
        reference = own.seconds_to_target.fillna(own.training_seconds).median()
        lines = [
            f"Target: val_loss {self.target:.4g}, the lowest of the study recipe's eight epochs (seed 0).",
            "",
            "| batch | recipe | epochs | s to the target (each seed) | times faster | val_loss | gap |",
            "|---|---|---|---|---|---|---|",
        ]
        keys = ["batch", "optimizer", "scaling", "learning_rate", "weight_decay", "train_for"]
        for _, same in rows.groupby(keys, sort=True):
            first = same[same.seed == 0].iloc[0]
            if first.state != "done" or not first.reached:
                continue
            recipe = "the study's" if first.optimizer == OWN else (
                f"{first.optimizer}, {first.scaling} from {first.learning_rate:g}"
                + (f", decay {first.weight_decay:g}" if first.weight_decay else "")
            )  # fmt: skip
            seconds = [f"{s:.0f}" if pd.notna(s) else "not reached" for s in same.seconds_to_target]
            median = same.seconds_to_target.fillna(same.training_seconds).median()
            lines.append(
                f"| {first.batch} | {recipe} | {first.epochs_to_target:g} | {', '.join(seconds)} "
                f"| {reference / median:.1f} | {same.val_loss.mean():.3g} | {same.gap.mean():.1g} |"
            )
        return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("searches", nargs="*", help="folders of finished searches")
    parser.add_argument(
        "--finalists_of", help="study.json of an earlier study: its finalists again"
    )
    parser.add_argument("--workdir", default="runs/large_batch_study")
    parser.add_argument("--output", default="docs/large_batch", help="results go here")
    parser.add_argument("--data_dir", default="data")
    parser.add_argument("--num_curves", type=int, help="a smaller set, to try the command")
    options = parser.parse_args(arguments)
    try:
        if bool(options.searches) == bool(options.finalists_of):
            raise InputError("give folders of searches, or --finalists_of=study.json")
        base = load_config("configs/baseline.py")
        if options.num_curves:
            base.data.num_curves = options.num_curves
        target, recipes = None, [_found(folder) for folder in options.searches]
        if options.finalists_of:
            target, recipes = _earlier(options.finalists_of)
        study = Study(options, base, max(recipe.batch for recipe in recipes))
        study.target = target
        _compare(study, recipes)
    except TfmatError as error:
        log(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        log("interrupted; start the same command again to go on")
        return 75
    return 0


def _found(folder: str) -> Recipe:
    """The best recipe of a search."""
    path = pathlib.Path(folder) / "best.py"
    if not path.exists():
        raise InputError(f"{path} is missing; wait for the end of tfmat tune --workdir={folder}")
    config = load_config(str(path))
    o = config.optimizer
    return Recipe(config.global_batch_size, o.name, o.learning_rate, o.scaling, o.weight_decay)


def _earlier(path: str) -> tuple[float, list[Recipe]]:
    """Target and finalists of an earlier study: the fastest of each batch and optimizer."""
    earlier = read_json(path)
    if not isinstance(earlier, dict) or not {"target_val_loss", "runs"} <= set(earlier):
        raise InputError(f"{path} is no study.json; give one that an earlier study has written")
    fields = [field.name for field in dataclasses.fields(Recipe)]
    found: dict[tuple[int, str], Recipe] = {}
    for row in sorted(
        (row for row in earlier["runs"] if row.get("reached") and row["seed"] == 0),
        key=lambda row: row["seconds_to_target"],
    ):
        if row["optimizer"] != OWN:
            recipe = Recipe(**{name: row[name] for name in fields})
            found.setdefault((recipe.batch, recipe.optimizer), recipe)
    return earlier["target_val_loss"] * (1 + 1e-6), list(found.values())[:FINALISTS]  # ten digits


def _compare(study: Study, recipes: Sequence[Recipe]) -> None:
    own = Recipe(REFERENCE, OWN)
    finalists = list(recipes)
    if study.target is None:
        study.target = study.run(own)["lowest_val_loss"]
        log(f"target: val_loss {study.target:.4g}")
        hits = [hit for hit in (_shortest(study, recipe) for recipe in recipes) if hit]
        finalists = sorted(hits, key=lambda hit: study.rows[hit]["seconds_to_target"])[:FINALISTS]
    for seed in SEEDS:
        for recipe in (own, *finalists):
            study.run(dataclasses.replace(recipe, seed=seed))
    study.write()


def _shortest(study: Study, recipe: Recipe) -> Recipe | None:
    """The shortest run that reaches the target; None where none does."""
    runs = (dataclasses.replace(recipe, train_for=length) for length in LENGTHS)
    return next((run for run in runs if study.run(run).get("reached")), None)


if __name__ == "__main__":
    sys.exit(main())
