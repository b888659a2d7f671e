"""The whole job: making the data, the first step, what an epoch costs beside its training, and memory."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarks.rounds import quantity
from tfmat.console import log
from tfmat.errors import InputError
from tfmat.scaling.laboratory import end_of_log

GENERATION_SECONDS, FIRST_STEP_SECONDS = 20.0, 15.0
OVERHEAD_PERCENT = 3.0
TRAINING_MEMORY, GENERATION_MEMORY = 1.5e9, 1e9
_POLL_SECONDS = 0.02


class Watched:
    """A `tfmat` command as a process, its memory looked at until it ends.

    Attributes:
      peak_rss: bytes, resident memory with mapped files.
      peak_own: bytes, resident memory without pages of files, which the system can take back at any time.
      seconds: from start to end, or so far.
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
            memory = _memory_of(self.process.pid)
            self.peak_rss = max(self.peak_rss, memory.get("VmHWM", 0))
            self.peak_own = max(self.peak_own, memory.get("RssAnon", 0) + memory.get("RssShmem", 0))
            time.sleep(_POLL_SECONDS)
        self.seconds = time.monotonic() - self.started


def _memory_of(pid: int) -> dict[str, int]:
    """Bytes by the names of /proc/PID/status; empty where the process is gone."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.startswith(("VmHWM", "Rss")))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def measure_job(
    *,
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

    Returns:
      {"quantities": [{"what", "value", "unit", and "relation", "goal", "reached" where there is a goal}], "records":
      {batch size: lines of metrics.jsonl}}.
    """
    quantities: list[dict[str, Any]] = []
    log(f"generating {num_curves:,} curves")
    made_before = set(data_dir.glob("*/manifest.json"))
    generation = Watched(
        ["generate", f"--num_curves={num_curves}", f"--data_dir={data_dir}"],
        folder / "generate.log",
    ).wait()
    (dataset,) = _datasets(data_dir, num_curves)
    num_bytes = sum(path.stat().st_size for path in dataset.iterdir())
    quantities.append(_quantity("size of the data", num_bytes / 1e9, "GB"))
    # The goals are those of a million curves.
    scale = num_curves / 1e6
    if dataset / "manifest.json" not in made_before:
        seconds = generation.seconds
        quantities.append(
            _quantity("generating the data", seconds, "s", GENERATION_SECONDS * max(scale, 0.2))
        )
        own, limit = generation.peak_own, GENERATION_MEMORY
        quantities.append(_quantity("its peak memory, own", own / 1e9, "GB", limit / 1e9))
        quantities.append(
            _quantity("its peak memory, with mapped files", generation.peak_rss / 1e9, "GB")
        )
    for attempt in ("first", "second"):
        log(f"starting tfmat train, {attempt} time")
        seconds = _first_step(dataset, folder / f"start_{attempt}", batch_sizes[0])
        what = f"from tfmat train to a checkpoint after the first step, {attempt} time"
        quantities.append(_quantity(what, seconds, "s", FIRST_STEP_SECONDS))
    records = {}
    for batch_size in batch_sizes:
        log(f"training {epochs} epochs at batch {batch_size}")
        run = folder / f"run_{batch_size}"
        training = _train(dataset, run, batch_size, f"--config.train_for={epochs}epochs").wait()
        lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
        records[batch_size] = [json.loads(line) for line in lines]
        quantities += _epoch_quantities(records[batch_size], batch_size)
        limit = (num_bytes + TRAINING_MEMORY) / 1e9
        for what, value in (("with mapped files", training.peak_rss), ("own", training.peak_own)):
            quantities.append(
                _quantity(f"peak memory at batch {batch_size}, {what}", value / 1e9, "GB", limit)
            )
    return {"num_curves": num_curves, "quantities": quantities, "records": records}


def epoch_times(records: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Seconds of each epoch but the first: `all`, `training`, `validation`, and `overhead`, which is the rest.

    A record is written at an epoch's end before its checkpoint, so each difference holds all that an epoch needs.
    """
    times = []
    for before, after in itertools.pairwise(records):
        whole, training, validation = (
            after[name] - before[name]
            for name in ("seconds", "training_seconds", "validation_seconds")
        )
        times.append(
            {
                "all": whole,
                "training": training,
                "validation": validation,
                "overhead": whole - training - validation,
            }
        )
    return times


def _epoch_quantities(records: list[dict[str, Any]], batch_size: int) -> list[dict[str, Any]]:
    times = epoch_times(records)
    sums = {name: sum(time[name] for time in times) for name in times[0]}
    at = f"at batch {batch_size}"
    share = 100 * sums["overhead"] / sums["all"]
    return [
        _quantity(f"curves a second {at}", records[-1]["curves_per_second"], "curves/s"),
        _quantity(f"an epoch {at}", sums["all"] / len(times), "s"),
        _quantity(
            f"validation {at}, share of an epoch", 100 * sums["validation"] / sums["all"], "%"
        ),
        _quantity(f"overhead {at}, share of an epoch", share, "%", OVERHEAD_PERCENT),
    ]


def _quantity(what: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    return quantity(what, value, unit, "≤", goal)


def _datasets(data_dir: pathlib.Path, num_curves: int) -> list[pathlib.Path]:
    return [path.parent for path in data_dir.glob(f"*-{num_curves}-*/manifest.json")]


def _first_step(dataset: pathlib.Path, run: pathlib.Path, batch_size: int) -> float:
    watched = _train(
        dataset, run, batch_size, "--config.train_for=1epochs", "--config.checkpoint.every=1steps"
    )
    return watched.wait_for("step-*.npz", run / "checkpoints")


def _train(dataset: pathlib.Path, run: pathlib.Path, batch_size: int, *further: str) -> Watched:
    run.parent.mkdir(parents=True, exist_ok=True)
    arguments = [
        "train",
        "--config=configs/baseline.py",
        f"--data_dir={dataset}",
        f"--workdir={run}",
        f"--config.global_batch_size={batch_size}",
        *further,
    ]
    return Watched(arguments, run.with_suffix(".log"))
