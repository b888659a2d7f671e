"""`profile.json`: where the time of a run went, rank by rank; and the table of it.

    {"format": 1, "split": true, "backend": "horovod", "first_step": 0, "ranks": [{
       "rank": 0, "node": "n1", "steps": 4000, "timed_steps": 3800, "step_seconds": 0.0031,
       "seconds": {"graph": 12.1, "first_call": 2.2, "input": 0.1, "agreement": 0.2, "validation": 1.1,
                   "checkpoint": 0.3, "host": 0.4},
       "use": {"input": 1e-4, "forward_backward": 2e-3, …, "cpu_utilisation": 0.97, "memory_bytes": 900000000},
       "parts": {"input": {"low_quartile": …, "median": …, "high_quartile": …}, …},
       "sample": {"input": [the last steps], …}, "clock": {"seconds": 0.0, "error": 0.0}}]}

The process that ended the run measured all this from `first_step` on. `seconds` are sums; everything else is per step,
or a share, without the first call of the graph, which compiles. `use` has the names of the scaling study's RankUse, in
seconds per step on average; what was not measured is missing, as are `parts` and `sample` without profile=true.
"""

import collections
import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.backends import Backend
from tfmat.backends.step_times import PARTS, StepTimes
from tfmat.files import write_json

FILE = "profile.json"
_FORMAT = 1
_SHOWN_RANKS = 8
_SAMPLED_RANKS = 16
_TOO_SHORT = (
    "where a step's time goes was not measured: the run had one call of the graph, which compiles; train longer, or "
    "give a smaller steps_per_call"
)
_TITLES = {"forward_backward": "fwd+bwd"}
# The quartiles are those of this many steps, the latest.
_KEPT_STEPS = 50_000
_SAMPLE_STEPS = 100


class StepProfile:
    """Seconds of the parts of steps on one worker, over many blocks: all of them add up to the time of the steps.

    A block is what happens from the end of one call of the graph to the end of the next, without validation and files.
    What is between the calls is shared out evenly over the block's steps: waiting for the source of examples is input,
    waiting for the other workers counts as that, all else is host. The process's first call, which compiles, is not to
    be given.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._sums = dict.fromkeys(("block", "input", "agreement"), 0.0)
        # [steps, parts] of each block; and [steps], from a step's start until it is ready to sum.
        self._blocks: collections.deque[NDArray] = collections.deque()
        self._alone: collections.deque[NDArray] = collections.deque()

    def add(self, steps: int, block: float, source: float, agreement: float) -> None:
        """Counts a block whose inside is not known.

        Args:
          steps: in it.
          block: seconds of all of it.
          source: of these, waiting for the source of examples.
          agreement: of these, with the other workers between two calls.
        """
        self._steps += steps
        for name, seconds in (("block", block), ("input", source), ("agreement", agreement)):
            self._sums[name] += seconds

    def add_times(
        self, times: StepTimes, latest: NDArray, block: float, source: float, agreement: float
    ) -> None:
        """Counts a block with the times of its steps.

        Args:
          times: of this worker.
          latest: see StepTimes.parts.
          block, source, agreement: see `add`.
        """
        parts = times.parts(latest)
        steps = len(times.moments)
        in_steps = sum(seconds.sum() for seconds in parts.values())
        outside = block - source - agreement - in_steps - times.between.sum()
        parts["input"] += source / steps
        parts["waiting"] += agreement / steps
        parts["host"] = np.append(times.between, 0.0) + outside / steps
        self._blocks.append(np.stack([parts[name] for name in PARTS], axis=1))
        self._alone.append(times.ready[:, -1] - times.moments[:, 0])
        self.add(steps, block, source, agreement)
        while sum(map(len, self._blocks)) - len(self._blocks[0]) > _KEPT_STEPS:
            self._blocks.popleft()
            self._alone.popleft()

    def means(self) -> dict[str, float]:
        """Seconds of a step on average, by part; without the times in the graph, of `input` alone."""
        if self._blocks:
            means = np.concatenate(self._blocks).mean(axis=0)
            deviation = float(np.std(np.concatenate(self._alone)))
            return {
                **dict(zip(PARTS, map(float, means), strict=True)),
                "step_deviation": deviation,
            }
        return {"input": self._sums["input"] / self._steps} if self._steps else {}

    def details(self) -> dict[str, Any]:
        """`step_seconds`, the mean; and with the times in the graph `parts`, their quartiles, and a `sample`."""
        if not self._steps:
            return {}
        found: dict[str, Any] = {"timed_steps": self._steps}
        found["step_seconds"] = self._sums["block"] / self._steps
        if not self._blocks:
            return found
        parts = np.concatenate(self._blocks)
        quartiles = np.quantile(parts, [0.25, 0.5, 0.75], axis=0).T
        found["parts"] = {
            name: dict(
                zip(("low_quartile", "median", "high_quartile"), map(float, row), strict=True)
            )
            for name, row in zip(PARTS, quartiles, strict=True)
        }
        sample = np.round(parts[-_SAMPLE_STEPS:], 7)
        found["sample"] = {
            name: column.tolist() for name, column in zip(PARTS, sample.T, strict=True)
        }
        return found


def write_profile(
    workdir: str | os.PathLike | None,
    summary: Mapping[str, Any],
    backend: Backend,
    first_step: int,
) -> list[str]:
    """Gathers what every rank's Meter says; rank 0 writes the file and gets the table's lines. Every rank calls it.

    Args:
      workdir: of the run; None leaves no file.
      summary: of this rank.
      backend: of the run.
      first_step: at which this process began.

    Returns:
      No line where the steps were not split.
    """
    mine = {**summary, "node": platform.node()}
    if backend.rank >= _SAMPLED_RANKS:
        mine.pop("sample", None)
    ranks = backend.collectives.gather(mine)
    split = backend.timed_calls > 0
    # A process that found all steps done leaves what the one before it wrote.
    stays = not summary["steps"] and workdir and (pathlib.Path(workdir) / FILE).exists()
    if backend.rank == 0 and workdir is not None and not stays:
        content = {
            "format": _FORMAT,
            "split": split,
            "backend": backend.name,
            "first_step": first_step,
            "ranks": ranks,
        }
        write_json(pathlib.Path(workdir) / FILE, content)
    if backend.rank or not split or not summary["steps"]:
        return []
    return table(ranks)


def table(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of text: milliseconds and shares of a step for each part, one line a rank."""
    measured = [rank for rank in ranks if "parts" in rank]
    if not measured:
        return [_TOO_SHORT]
    titles = [_TITLES.get(name, name) for name in PARTS]
    lines = [
        f"where a step's time goes, ms (mean of {measured[0]['timed_steps']:,} steps)",
        "rank      step  " + "".join(f"{title:>16}" for title in titles),
    ]
    for rank in measured[:_SHOWN_RANKS]:
        seconds = rank["step_seconds"]
        parts = [rank["use"][name] for name in PARTS]
        cells = [f"{1e3 * part:.3f} ({part / seconds:4.0%})" for part in parts]
        row = "".join(f"{cell:>16}" for cell in cells)
        lines.append(f"{rank['rank']:4d}  {1e3 * seconds:8.3f}  {row}")
    if len(measured) > _SHOWN_RANKS:
        lines.append(f"and {len(measured) - _SHOWN_RANKS} more ranks: {FILE}")
    return lines
