"""Two ranks with one processor each: what summing the gradients costs, way by way, interleaved.

The yardstick is the machine itself: the same two processes with nothing to sum ("alone"). Each round starts every way
once; a ratio is that of the rates of the slower rank, within a round.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from benchmarks.ranks import WAYS
from benchmarks.rounds import BenchmarkFailed

RANKS = pathlib.Path(__file__).with_name("ranks.py")
DESCRIPTIONS = {
    "alone": "two processes, nothing summed",
    "mpi": "bare MPI_Allreduce in Horovod's place",
    "tfmat": "tfmat: one flat buffer, its own settings",
    "silent": "Horovod started, nothing summed",
    "grouped": "Horovod's grouped_allreduce",
    "each": "one collective a variable",
    "halves": "--config.compression=fp16",
    "cycle 0.1": "HOROVOD_CYCLE_TIME=0.1",
    "cycle 0.25": "HOROVOD_CYCLE_TIME=0.25",
    "cycle 0.5": "HOROVOD_CYCLE_TIME=0.5",
    "cycle 1": "HOROVOD_CYCLE_TIME=1",
    "cycle 2": "HOROVOD_CYCLE_TIME=2",
    "cycle 10": "HOROVOD_CYCLE_TIME=10",
    "no yield": "without yielding",
    "untuned": "Horovod's own settings",
    "no cache": "HOROVOD_CACHE_CAPACITY=0",
    "gloo": "Gloo instead of MPI",
    "single thread": "HOROVOD_MPI_THREADS_DISABLE=1",
    "textbook": "Horovod's textbook loop",
}
SHORT = ("alone", "mpi", "tfmat", "silent", "untuned", "textbook")
# batch size: (way, ratio to "alone" at least)
GOALS = {75: 0.90, 750: 0.97}


def measure_parallel(
    ways: Sequence[str],
    batch_sizes: Sequence[int],
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Runs all ways `rounds` times; returns samples and, for each way and batch size, times and ratios."""
    samples: list[dict[str, Any]] = []
    for i in range(rounds):
        for way in ways:
            say(f"round {i + 1}/{rounds}: {DESCRIPTIONS[way]}")
            ranks = _run(way, batch_sizes, seconds)
            samples.append({"round": i, "way": way, "ranks": ranks})
    return {"samples": samples, "summary": _summarize(samples, ways, batch_sizes)}


def _run(way: str, batch_sizes: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    command = ["mpirun", "-np", "2", "--bind-to", "core", "--oversubscribe", sys.executable]
    command += [str(RANKS), way, ",".join(map(str, batch_sizes)), str(seconds)]
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # mpirun sets it by itself where it counts more ranks than processors.
        "OMPI_MCA_mpi_yield_when_idle": (WAYS[way][0] or {}).get(
            "OMPI_MCA_mpi_yield_when_idle", "1"
        ),
    }
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except FileNotFoundError as error:
        raise BenchmarkFailed("there is no mpirun; ./tools/setup horovod gets it") from error
    # mpirun may put what two ranks say on one line.
    answers = [json.loads("{" + text.strip()) for text in done.stdout.split("{")[1:]]
    if done.returncode or len(answers) != 2:
        raise BenchmarkFailed(f"{way}: {' '.join(done.stderr.strip().splitlines()[-3:])}")
    return answers


def _summarize(
    samples: Sequence[dict[str, Any]], ways: Sequence[str], batch_sizes: Sequence[int]
) -> list[dict[str, Any]]:
    # The step time of a run: the slower rank's median over its calls.
    times = {
        (s["round"], s["way"], size): max(statistics.median(r[str(size)]) for r in s["ranks"])
        for s in samples
        for size in batch_sizes
    }
    rounds = sorted({s["round"] for s in samples})
    rows = []
    for size in batch_sizes:
        for way in ways:
            own = [times[i, way, size] for i in rounds]
            row: dict[str, Any] = {"batch_size": size, "way": way, "milliseconds": own}
            if "alone" in ways:
                row["ratio"] = [times[i, "alone", size] / times[i, way, size] for i in rounds]
            if "silent" in ways and way == "tfmat":
                row["waiting"] = [
                    1 - times[i, "silent", size] / times[i, way, size] for i in rounds
                ]
            rows.append(row)
    return rows


def parallel_table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row a way and batch size: median (lowest - highest round)."""
    table = Table(title="two ranks, one processor each; median (lowest – highest) over the rounds")
    for name in ("batch a rank", "way", "ms a step", "of the machine's own rate", "waiting"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for row in rows:
        table.add_row(
            str(row["batch_size"]),
            DESCRIPTIONS[row["way"]],
            _spread(row["milliseconds"]),
            _spread(row["ratio"]) if "ratio" in row else "",
            _spread(row["waiting"]) if "waiting" in row else "",
        )
    return table


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} – {max(values):.2f})"
