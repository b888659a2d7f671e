"""The runs of tools/large_batch_study.py: recipes, and what each run brought and cost."""

import dataclasses
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np
import pandas as pd

from tfmat.config import Config, apply_override, check_config, load_config
from tfmat.files import atomic_write, make_folder, read_json, write_json
from tfmat.large_batch.batch_sweep import ENDED, run_once, state_of
from tfmat.large_batch.settings import prepare_data
from tfmat.report.metrics import read_metrics

BATCHES = (75, 150, 300, 750, 1500, 3000, 6000)
REFERENCE = 75  # the batch that the recipes' rates are for
# Until which share of the budget a stage may begin runs.
SHARES = {"screen": 0.42, "second": 0.57, "lengths": 0.75, "finals": 1.0}


def say(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Optimizer, peak rate at the reference batch, rule and weight decay; a cosine to 0 after a short warm-up."""

    optimizer: str
    learning_rate: float
    scaling: str
    weight_decay: float = 0.0
    growth: str = ""


# In the order of hope: what the budget does not reach is left out. The rates of NovoGrad, LARS and SGD are those of
# `tfmat lr_range`.
RECIPES = (
    Recipe("lamb", 5e-3, "sqrt"),
    Recipe("adam", 2e-3, "sqrt"),
    Recipe("lamb", 1e-2, "none"),
    Recipe("adam", 1e-3, "sqrt"),
    Recipe("novograd", 9e-3, "sqrt"),
    Recipe("lamb", 5e-3, "sqrt", 0.01),
    Recipe("adamw", 2e-3, "sqrt", 0.05),
    Recipe("lamb", 5e-3, "none"),
    Recipe("lars", 0.14, "none"),
    Recipe("sgd", 0.03, "none"),
    Recipe("adam", 1e-3, "linear"),
    Recipe("lamb", 2.5e-3, "sqrt"),
    Recipe("adam", 4e-3, "none"),
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
