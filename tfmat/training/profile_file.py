"""`profile.json`: where the time of a run went, rank by rank; and the table of it.

    {"format": 1, "split": true, "backend": "horovod", "first_step": 0, "ranks": [{
       "rank": 0, "node": "n1", "steps": 4000, "timed_steps": 3800, "step_seconds": 0.0031,
       "seconds": {"graph": 12.1, "first_call": 2.2, "input": 0.1, "agreement": 0.2, "validation": 1.1,
                   "checkpoint": 0.3, "host": 0.4},
       "use": {"input": 1e-4, "forward_backward": 2e-3, …, "cpu_utilisation": 0.97, "memory_bytes": 900000000},
       "parts": {"input": {"low_quartile": …, "median": …, "high_quartile": …}, …},
       "sample": {"input": [the last steps], …}, "clock": {"seconds": 0.0, "error": 0.0}}]}

Of the process that ended the run, from `first_step` on; `seconds` in all of it, everything else a step or a share,
without the first call of the graph, which compiles. `use` has the names of the scaling study's RankUse, seconds of a
step on average; what was not measured is missing, as are `parts` and `sample` without profile=true.
"""

import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from tfmat.backends import Backend
from tfmat.files import write_json
from tfmat.training.step_profile import ALL_PARTS

FILE = "profile.json"
_FORMAT = 1
_SHOWN_RANKS = 8
_SAMPLED_RANKS = 16
_TOO_SHORT = (
    "where a step's time goes was not measured: the run had one call of the graph, which compiles; train longer, or "
    "give a smaller steps_per_call"
)
_TITLES = {"forward_backward": "fwd+bwd"}


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
    titles = [_TITLES.get(name, name) for name in ALL_PARTS]
    lines = [
        f"where a step's time goes, ms (mean of {measured[0]['timed_steps']:,} steps)",
        "rank      step  " + "".join(f"{title:>16}" for title in titles),
    ]
    for rank in measured[:_SHOWN_RANKS]:
        seconds = rank["step_seconds"]
        parts = [rank["use"][name] for name in ALL_PARTS]
        cells = [f"{1e3 * part:.3f} ({part / seconds:4.0%})" for part in parts]
        row = "".join(f"{cell:>16}" for cell in cells)
        lines.append(f"{rank['rank']:4d}  {1e3 * seconds:8.3f}  {row}")
    if len(measured) > _SHOWN_RANKS:
        lines.append(f"and {len(measured) - _SHOWN_RANKS} more ranks: {FILE}")
    return lines
