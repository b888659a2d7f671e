"""From what the processes of a launch say to lines of measurements.jsonl.

`rank-N.json` of a process holds `tasks`, one a batch size, with `steps`, `seconds`, `use` (see RankUse) and, on rank 0
of a training, `training`; or `sums`, one a size, with `bytes` and `seconds`, a list. A parameter server's chief alone
says something.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.errors import InputError
from tfmat.files import read_json
from tfmat.scaling.measurements import AllReduce, Point, RankUse, Repetition, TrainingLine
from tfmat.scaling.worker import answer_file

Answers = list[dict[str, Any]]


def read_answers(folder: pathlib.Path, num_processes: int) -> Answers | None:
    """Of every process; None where one is missing or broken."""
    try:
        return [read_json(answer_file(folder, rank)) for rank in range(num_processes)]
    except InputError:
        return None


def repetitions_of(
    answers: Answers, points: Sequence[Point], round_number: int, session: int, started: str
) -> list[Repetition]:
    """One a task: the slowest process says how long the steps took."""
    spoken = [answer["tasks"] for answer in answers if answer.get("tasks")]
    found = []
    for i, point in enumerate(points):
        of_ranks = [tasks[i] for tasks in spoken]
        slowest = max(of_ranks, key=lambda answer: answer["seconds"] / answer["steps"])
        ranks = tuple(
            RankUse(rank=rank, **answer["use"])
            for rank, answer in enumerate(of_ranks)
            if "use" in answer
        )
        memory = [rank.memory_bytes for rank in ranks if rank.memory_bytes is not None]
        found.append(
            Repetition(
                point,
                round_number,
                int(slowest["steps"]),
                float(slowest["seconds"]),
                session=session,
                started=started,
                ranks=ranks,
                training=tuple(TrainingLine(**line) for line in of_ranks[0].get("training", [])),
                peak_memory_bytes=sum(memory) if len(memory) == len(of_ranks) else None,
            )
        )
    return found


def allreduces_of(answers: Answers, **where: Any) -> list[AllReduce]:
    """One a size: a sum has ended when the last process has it.

    Args:
      where: the other attributes of AllReduce.
    """
    found = []
    for sizes in zip(*(answer["sums"] for answer in answers), strict=True):
        seconds = np.max([each["seconds"] for each in sizes], axis=0)
        low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        found.append(
            AllReduce(
                bytes=sizes[0]["bytes"],
                median_seconds=float(median),
                low_seconds=float(low),
                high_seconds=float(high),
                repetitions=len(seconds),
                **where,
            )
        )
    return found
