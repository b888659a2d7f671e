"""What the watchdog concludes from what it knows of the ranks, and the line that says so."""

from collections.abc import Mapping

import pytest

from tfmat.launch.watchdog import AGAIN, Evidence, Member, deadlock, describe, name_ranks


def members(*positions: tuple) -> Mapping[int, Member]:
    """(phase, step, collective, since) of each rank, as of time 100."""
    return {rank: Member(rank, "a", 100.0, *position) for rank, position in enumerate(positions)}


@pytest.mark.parametrize(
    ("positions", "is_deadlock"),
    [
        ([("training", 1, True, 0), ("training", 2, True, 0)], True),
        ([("training", 1, True, 0), ("hashing", 1, True, 0)], True),
        ([("training", 1, True, 0), ("training", 1, True, 0)], False),  # slow
        ([("training", 1, True, 0), ("hashing", 1, True, 95)], False),  # not for long enough
        ([("training", 1, True, 0), ("writing", 1, False, 0)], False),
        ([("training", 1, True, 0), ("training", 2, True, 0, True)], False),  # it has left
    ],
)
def test_deadlock(positions: list, is_deadlock: bool) -> None:
    assert (deadlock(members(*positions).values(), 100.0, 10.0) is not None) == is_deadlock


def test_the_surest_cause_is_told() -> None:
    """A death makes others fail, at times before its connection is seen to close."""
    known = members(*[("training", 7, True, 0)] * 4)
    evidence = [
        Evidence("failed", (1,), "a collective failed"),
        Evidence("dead", (3,), "its process ended"),
        Evidence("failed", (2,), "a collective failed"),
    ]
    verdict = describe(evidence, known, 4)
    line = verdict.line
    assert verdict.blamed == (3,)
    assert (
        line
        == f"rank 3 of 4 was lost (host a, its process ended) in phase training at step 7; {AGAIN}"
    )


def test_the_ranks_of_a_lost_node_are_told_together() -> None:
    known = members(*[("training", 7, True, 0)] * 4)
    known[3].host = "b"
    evidence = [Evidence("silent", (rank,), "no heartbeat for 20 s") for rank in (1, 2, 3)]
    verdict = describe(evidence, known, 4)
    line = verdict.line
    assert verdict.blamed == (1, 2)
    assert line.startswith("ranks 1-2 of 4 were lost (host a, no heartbeat for 20 s) in phase")


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ([3], "rank 3"),
        ([2, 0, 1, 7], "ranks 0-2, 7"),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, ..."),
    ],
)
def test_names_of_ranks(ranks, name: str) -> None:
    assert name_ranks(list(ranks)) == name
