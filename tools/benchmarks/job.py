"""The whole job: making the data, the first step, what an epoch costs beside its training, and memory."""

import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

import psutil

from benchmarks.rounds import quantity
from tfmat.console import log
from tfmat.errors import InputError
from tfmat.scaling.measure import end_of_log

GENERATION_SECONDS, FIRST_STEP_SECONDS = 20.0, 15.0
OVERHEAD_PERCENT = 3.0
TRAINING_MEMORY, GENERATION_MEMORY = 1.5e9, 1e9
_POLL_SECONDS = 0.02


class Watched:
    """A `tfmat` command as a process, its memory looked at until it ends.

    Attributes:
      peak_rss, peak_own: bytes, resident memory with pages of files and without them, which the system can take back.
      seconds: from start to end.
    """

    def __init__(self, arguments: list[str], log: pathlib.Path):
        self._log = log
        self.started = time.monotonic()
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tfmat", *arguments],
                stdout=file,
                stderr=file,
                # Some are killed, and TensorFlow then leaves generated files behind.
                env={**os.environ, "TMPDIR": str(log.parent)},
            )
        self.peak_rss = self.peak_own = 0
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def wait(self) -> "Watched":
        """Until it ends; InputError with what it said last where it failed."""
        try:
            self._thread.join()
        finally:
            self.process.kill()
        if self.process.returncode != 0:
            end = end_of_log(self._log).splitlines()[-3:]
            raise InputError(
                f"tfmat ended with status {self.process.returncode}: {' | '.join(end)}"
            )
        return self

    def wait_for(self, pattern: str, folder: pathlib.Path) -> float:
        """Seconds until a file of that name is there; then ends the process."""
        try:
            while self.process.poll() is None:
                if any(folder.glob(pattern)):
                    return time.monotonic() - self.started
                time.sleep(_POLL_SECONDS)
        finally:
            self.process.kill()
            self._thread.join()
        self.wait()
        raise InputError(f"tfmat ended without {folder}/{pattern}")

    def _watch(self) -> None:
        while self.process.poll() is None:
            with contextlib.suppress(psutil.Error):
                memory = psutil.Process(self.process.pid).memory_info()
                self.peak_rss = max(self.peak_rss, memory.rss)
                self.peak_own = max(self.peak_own, memory.rss - memory.shared)
            time.sleep(_POLL_SECONDS)
        self.seconds = time.monotonic() - self.started


def measure_job(
    num_curves: int,
    batch_sizes: list[int],
    epochs: int,
    folder: pathlib.Path,
    data_dir: pathlib.Path,
) -> dict[str, Any]:
    """Generates (unless `data_dir` has it), starts twice, and trains some epochs at each batch size.

    Args:
      num_curves: to train and validate on.
      batch_sizes: one training run each.
      epochs: of each run; the first, which compiles, is left out of the overhead.
      folder: for logs and runs.
      data_dir: of data sets.
    """
    found: list[dict[str, Any]] = []

    def add(what: str, value: float, unit: str, goal: float | None = None) -> None:
        found.append(quantity(what, value, unit, "≤", goal))

    log(f"generating {num_curves:,} curves")
    made_before = set(data_dir.glob("*/manifest.json"))
    arguments = ["generate", f"--num_curves={num_curves}", f"--data_dir={data_dir}"]
    generation = Watched(arguments, folder / "generate.log").wait()
    (manifest,) = data_dir.glob(f"*-{num_curves}-*/manifest.json")
    dataset = manifest.parent
    num_bytes = sum(path.stat().st_size for path in dataset.iterdir())
    add("size of the data", num_bytes / 1e9, "GB")
    if manifest not in made_before:
        # The goal is that of a million curves.
        goal = GENERATION_SECONDS * max(num_curves / 1e6, 0.2)
        add("generating the data", generation.seconds, "s", goal)
        add("its peak memory, own", generation.peak_own / 1e9, "GB", GENERATION_MEMORY / 1e9)
        add("its peak memory, with mapped files", generation.peak_rss / 1e9, "GB")
    for attempt in ("first", "second"):
        log(f"starting tfmat train, {attempt} time")
        run = folder / f"start_{attempt}"
        told = ("--config.train_for=1epochs", "--config.checkpoint.every=1steps")
        started = _train(dataset, run, batch_sizes[0], *told)
        seconds = started.wait_for("step-*.npz", run / "checkpoints")
        what = f"from tfmat train to a checkpoint after the first step, {attempt} time"
        add(what, seconds, "s", FIRST_STEP_SECONDS)
    records = {}
    for batch_size in batch_sizes:
        log(f"training {epochs} epochs at batch {batch_size}")
        run, at = folder / f"run_{batch_size}", f"at batch {batch_size}"
        training = _train(dataset, run, batch_size, f"--config.train_for={epochs}epochs").wait()
        lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
        records[batch_size] = [json.loads(line) for line in lines]
        times = epoch_times(records[batch_size])
        sums = {name: sum(each[name] for each in times) for name in times[0]}
        add(f"curves a second {at}", records[batch_size][-1]["curves_per_second"], "curves/s")
        add(f"an epoch {at}", sums["all"] / len(times), "s")
        add(f"validation {at}, share of an epoch", 100 * sums["validation"] / sums["all"], "%")
        share = 100 * sums["overhead"] / sums["all"]
        add(f"overhead {at}, share of an epoch", share, "%", OVERHEAD_PERCENT)
        limit = (num_bytes + TRAINING_MEMORY) / 1e9
        add(f"peak memory {at}, with mapped files", training.peak_rss / 1e9, "GB", limit)
        add(f"peak memory {at}, own", training.peak_own / 1e9, "GB", limit)
    return {"num_curves": num_curves, "quantities": found, "records": records}


def epoch_times(records: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Seconds of each epoch but the first: `all`, `training`, `validation`, and `overhead`, which is the rest.

    A record is written at an epoch's end before its checkpoint, so each difference holds all that an epoch needs.
    """
    found = []
    for before, after in itertools.pairwise(records):
        names = ("seconds", "training_seconds", "validation_seconds")
        whole, training, validation = (after[name] - before[name] for name in names)
        rest = whole - training - validation
        found.append(
            {"all": whole, "training": training, "validation": validation, "overhead": rest}
        )
    return found


def _train(dataset: pathlib.Path, run: pathlib.Path, batch_size: int, *further: str) -> Watched:
    run.parent.mkdir(parents=True, exist_ok=True)
    told = ["--config=configs/baseline.py", f"--data_dir={dataset}", f"--workdir={run}"]
    told += [f"--config.global_batch_size={batch_size}", *further]
    return Watched(["train", *told], run.with_suffix(".log"))
