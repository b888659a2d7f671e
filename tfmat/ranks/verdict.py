"""What the watchdog concludes from what it knows of each rank, in one line."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfmat.errors import InputError, WorkerLostError

AGAIN = "start the same command again to go on from the last checkpoint"


@dataclasses.dataclass
class Member:
    """What is known of one rank. Times are those of the monotonic clock here, in seconds."""

    rank: int
    host: str
    heard: float
    phase: str = "starting"
    step: int | None = None
    collective: bool = False
    since: float = 0.0
    left: bool = False  # in order: it said goodbye

    def position(self) -> str:
        """`in phase training at step 1200`."""
        return f"in phase {self.phase}" + ("" if self.step is None else f" at step {self.step}")

    def update(self, message: list[Any], now: float) -> None:
        """Takes in a message that came `now`: that it came, and what a `state` says."""
        self.heard = now
        match message:
            case [
                "state",
                str(phase),
                int() | None as step,
                bool(collective),
                float() | int() as age,
            ]:
                self.phase, self.step, self.collective = phase, step, collective
                self.since = now - age


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One thing that went wrong: `kind` is one of KINDS, `text` says more, `ranks` are those it went wrong on."""

    kind: str
    ranks: tuple[int, ...]
    text: str
    status: int = WorkerLostError.exit_status


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is written, the ranks that it blames, and the exit status of all."""

    line: str
    blamed: tuple[int, ...] = ()
    status: int = WorkerLostError.exit_status


# The surest cause first. A process that dies makes others fail or wait, so its death is told and not their complaint;
# one that failed has said so before it ends, and is never counted as dead.
KINDS = ("dead", "failed", "silent", "deadlock")


def describe(evidence: Iterable[Evidence], members: Mapping[int, Member], size: int) -> Verdict:
    """What follows from several pieces of evidence: the surest kind counts, and the first piece of it.

    Args:
      evidence: in the order in which it came; at least one.
      members: rank -> what is known of it; those that the evidence names.
      size: how many ranks there are.
    """
    pieces = list(evidence)
    first = min(pieces, key=lambda piece: KINDS.index(piece.kind))
    if first.kind == "deadlock":
        return Verdict(f"the ranks wait for each other forever: {first.text}; {AGAIN}", first.ranks)
    member = members[first.ranks[0]]
    if first.kind == "failed":
        who = f"{name_ranks(first.ranks)} of {size}"
        if first.status == InputError.exit_status:  # a user's mistake, which all ranks may have met
            line = first.text if 0 in first.ranks else f"{who} (host {member.host}): {first.text}"
        else:
            line = f"{who} failed (host {member.host}) {member.position()}: {first.text}"
        return Verdict(line, first.ranks, first.status)
    # A node that goes takes all its ranks along.
    same = [piece for piece in pieces if (piece.kind, piece.text) == (first.kind, first.text)]
    lost = {rank for piece in same for rank in piece.ranks if members[rank].host == member.host}
    who = f"{name_ranks(tuple(lost))} of {size} {'was' if len(lost) == 1 else 'were'} lost"
    line = f"{who} (host {member.host}, {first.text}) {member.position()}; {AGAIN}"
    return Verdict(line, tuple(lost))


def deadlock(members: Iterable[Member], now: float, seconds: float) -> Evidence | None:
    """All ranks that are still there wait in collectives, none has moved for `seconds`, and not at the same place.

    At the same place a rank is only slow; outside a collective it has work of its own, such as a checkpoint on a slow
    disk. Neither is a fault.
    """
    groups: dict[str, list[int]] = {}
    for member in members:
        if member.left:
            continue
        if not member.collective or now - member.since < seconds:
            return None
        groups.setdefault(member.position(), []).append(member.rank)
    if len(groups) < 2:
        return None
    places = [f"{name_ranks(ranks)} {position}" for position, ranks in groups.items()]
    more = f" and {len(places) - 4} other places" if len(places) > 4 else ""
    ranks = tuple(sorted(rank for group in groups.values() for rank in group))
    return Evidence("deadlock", ranks, f"{', '.join(places[:4])}{more}, for {seconds:g} s")


def name_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 7`; the first eight pieces where there are more."""
    pieces: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if pieces and rank == pieces[-1][1] + 1:
            pieces[-1] = (pieces[-1][0], rank)
        else:
            pieces.append((rank, rank))
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in pieces]
    shown = ", ".join(texts[:8]) + (", ..." if len(texts) > 8 else "")
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}"
