"""Groups of ranks that Horovod sums over, and the node of a rank as two of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# Ranks -> Horovod's set of them.
_SETS: dict[tuple[int, ...], Any] = {}


class Node(NamedTuple):
    """A node as one of its ranks sees it.

    Attributes:
      first: rank of the node that sums with the other nodes.
      here: Horovod's set of the node's ranks; None for a rank that has the node to itself.
      across: that of the nodes' first ranks.
    """

    first: int
    here: Any
    across: Any


def find_node(horovod: Any, nodes: Sequence[str], rank: int) -> Node | None:
    """The node of a rank; None where each rank or all ranks are by themselves, and one sum does it.

    Args:
      horovod: initialised for process sets that come later. Every rank calls this at the same time.
      nodes: name of each rank's node, however they are placed.
      rank: this one.
    """
    ranks_of: dict[str, list[int]] = {}
    for each, name in enumerate(nodes):
        ranks_of.setdefault(name, []).append(each)
    if len(ranks_of) in (1, len(nodes)):
        return None
    # Every rank makes all sets, in the same order; Horovod makes none twice, and stays for the life of the process.
    groups = [*ranks_of.values(), [ranks[0] for ranks in ranks_of.values()]]
    for group in map(tuple, groups):
        if len(group) > 1:
            process_set(horovod, group)
    mine = tuple(ranks_of[nodes[rank]])
    return Node(mine[0], _SETS.get(mine), _SETS[tuple(groups[-1])])


def process_set(horovod: Any, ranks: Sequence[int]) -> Any:
    """Horovod's set of some ranks, which it makes once; every rank calls this at the same time."""
    group = tuple(ranks)
    if group not in _SETS:
        everybody = len(group) == horovod.size()
        _SETS[group] = horovod.global_process_set if everybody else horovod.add_process_set(group)
    return _SETS[group]
