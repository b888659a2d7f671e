"""Rounds in which every way runs once, each in a process of its own; and what follows from them."""

import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Say = Callable[[str], None]
Sample = dict[str, Any]

WORKER = pathlib.Path(__file__).with_name("worker.py")


class BenchmarkFailed(Exception):
    """What was to be measured did not run; the message holds the end of what it printed."""


class WayProcess:
    """A worker process that waits, without using a processor, until it is its turn."""

    def __init__(self, name: str, batch_size: int, folder: pathlib.Path, seconds: float):
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (open until stop)
        command = [sys.executable, str(WORKER), name, str(batch_size), str(folder), str(seconds)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            # It is killed in the end, and TensorFlow then leaves generated files behind.
            env={**os.environ, "TMPDIR": str(folder)},
        )

    def run(self) -> dict[str, Any]:
        """Runs once and returns the answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("run\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line that the worker says; BenchmarkFailed where it died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        end = self._errors.read().strip().splitlines()[-3:]
        raise BenchmarkFailed(
            f"{self.name} ended with status {self._process.returncode}: {' | '.join(end)}"
        )

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def leave_out(name: str, reason: str, skipped: dict[str, str], say: Say) -> None:
    """Notes a way that cannot be measured, and says why; the others go on."""
    skipped[name] = reason
    say(f"  {name} is left out: {reason}")


@contextlib.contextmanager
def started(
    names: Sequence[str], batch_size: int, folder: pathlib.Path, seconds: float, say: Say
) -> Iterator[tuple[list[WayProcess], dict[str, float], dict[str, str]]]:
    """(processes, first losses, reasons of those that are left out); all are stopped at the end."""
    processes: list[WayProcess] = []
    try:
        for name in names:
            processes.append(WayProcess(name, batch_size, folder, seconds))
        losses: dict[str, float] = {}
        skipped: dict[str, str] = {}
        for process in processes:
            try:
                answer = process.answer()
            except BenchmarkFailed as error:
                leave_out(process.name, str(error), skipped, say)
                continue
            if "missing" in answer:
                library = process.name.partition("_")[0]
                reason = f"{answer['missing']}; --with_{library} installs it"
                leave_out(process.name, reason, skipped, say)
            else:
                losses[process.name] = answer["loss"]
        yield [process for process in processes if process.name in losses], losses, skipped
    finally:
        for process in processes:
            process.stop()


def measure(
    names: Sequence[str],
    batch_size: int,
    folder: pathlib.Path,
    rounds: int,
    seconds: float,
    say: Say,
) -> dict[str, Any]:
    """Samples of every way in every round at one batch size.

    Args:
      names: ways, see worker.py.
      batch_size: examples a step.
      folder: holds the arrays of `Data`, one .npy file each.
      rounds: each way runs once in each, in an order that changes from round to round.
      seconds: about how long a way runs in a round.
      say: takes lines.

    Returns:
      {"samples": [...], "skipped": {name: reason}}.

    Raises:
      BenchmarkFailed: nothing is left. A way is left out that cannot be started, ends, or whose loss is not finite or
        does not fall: it would not be training.
    """
    order = random.Random(batch_size)
    samples: list[Sample] = []
    with started(names, batch_size, folder, seconds, say) as (processes, first_losses, skipped):
        for process in list(processes):
            try:
                process.run()  # compiles, and finds out how many steps fit into the time
            except BenchmarkFailed as error:
                leave_out(process.name, str(error), skipped, say)
                processes.remove(process)
        for i in range(rounds):
            for process in order.sample(processes, len(processes)):
                try:
                    answer = process.run()
                    _check_training(process.name, first_losses[process.name], answer["loss"])
                except BenchmarkFailed as error:
                    leave_out(process.name, str(error), skipped, say)
                    processes.remove(process)
                    continue
                rate = answer["work"] / answer["seconds"]
                samples.append(
                    {
                        "batch_size": batch_size,
                        "round": i,
                        "way": process.name,
                        "rate": rate,
                        **answer,
                    }
                )
            say(f"  batch {batch_size}: round {i + 1} of {rounds}")
    if not processes:
        raise BenchmarkFailed("no way could be measured: " + "; ".join(skipped.values()))
    # A ratio is formed within a round: a way that failed in one is left out of all.
    return {"samples": [s for s in samples if s["way"] not in skipped], "skipped": skipped}


def _check_training(name: str, before: float | None, after: float | None) -> None:
    if before is not None and after is not None and not (np.isfinite(after) and after < before):
        raise BenchmarkFailed(
            f"{name} does not train: the loss was {before:.4g} and is {after:.4g}"
        )


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summarize(
    samples: Sequence[Sample], operations: float, reference: str = "ours"
) -> list[dict[str, Any]]:
    """One row a batch size and way.

    Args:
      samples: of `measure`, any number of batch sizes.
      operations: floating-point operations of a training step per example.
      reference: the way that all are compared with.

    Returns:
      Rows with `rate` (examples/s; operations/s for matmul), `ratio` (reference's rate by this way's) and `share` (of
      the matrix product's rate): each a spread over the rounds, ratio and share computed within each round.
    """
    rates = {(s["batch_size"], s["way"], s["round"]): s["rate"] for s in samples}
    rows = []
    for batch_size in sorted({s["batch_size"] for s in samples}):
        of_batch = [s for s in samples if s["batch_size"] == batch_size]
        rounds = sorted({s["round"] for s in of_batch})
        for way in dict.fromkeys(s["way"] for s in sorted(of_batch, key=lambda s: -s["rate"])):
            own = [rates[batch_size, way, i] for i in rounds]
            row = {"batch_size": batch_size, "way": way, "rate": spread(own)}
            others = [s["processors_of_others"] for s in of_batch if s["way"] == way]
            row["processors_of_others"] = spread(others)
            if way != "matmul":
                for name, other, scale in (
                    ("ratio", reference, lambda mine, its: its / mine),
                    ("share", "matmul", lambda mine, its: mine * operations / its),
                ):
                    if (batch_size, other, rounds[0]) in rates:
                        theirs = [rates[batch_size, other, i] for i in rounds]
                        row[name] = spread([scale(m, t) for m, t in zip(own, theirs, strict=True)])
            rows.append(row)
    return rows
