"""What exchanges cost by theory, and so whether data, tensor or sharded parallelism suits a model.

Pure functions of workers, bytes, latency α (s) and inverse bandwidth β (s/byte).
A message of n bytes takes α + nβ (Hockney, 1994). N is the size of the gradient, P the number of workers. Adding
numbers up is left out: it is in β as it is measured.

Sources: Thakur, Rabenseifner and Gropp (2005), Optimization of collective communication operations in MPICH, sections
4.4 and 4.5; Patarasu and Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations; Cho et al.
(2017), PowerAI DDL, arXiv:1708.02188, for rings within and between nodes.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from tfmat.backends.collectives_of_step import Collective, collectives_of_step
from tfmat.backends.layouts import Plan, make_plan
from tfmat.backends.mesh import MeshShape
from tfmat.report.formatting import bytes_text, seconds_text
from tfmat.scaling.measurements import Model

# Of an optimizer such as Adam.
_SLOTS = 2


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An algorithm that sums over all workers: it takes `messages` α + `volume` N β.

    Attributes:
      title: for people.
      messages: of P, one after the other.
      volume: of P, gradients that pass the busiest link, one after the other.
    """

    title: str
    messages: Callable[[int], float]
    volume: Callable[[int], float]

    def seconds(self, workers: int, num_bytes: float, latency: float, byte_seconds: float) -> float:
        """The time of one all-reduce."""
        return self.messages(workers) * latency + self.volume(workers) * num_bytes * byte_seconds


def _rounds(workers: int) -> int:
    return math.ceil(math.log2(workers))


ALGORITHMS = {
    # Reduce-scatter and all-gather in a ring: P - 1 messages of N/P each.
    "ring": Algorithm("ring", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p),
    # Rabenseifner's: reduce-scatter by halving, all-gather by doubling.
    "halving": Algorithm("halving and doubling", lambda p: 2 * _rounds(p), lambda p: 2 * (p - 1) / p),
    # Reduce to one, then broadcast, both along a binomial tree, the whole message each time.
    "tree": Algorithm("tree", lambda p: 2 * _rounds(p), lambda p: 2 * _rounds(p)),
    # One of the P serves: it gets N from each of the others and sends N to each, all over its own link.
    "server": Algorithm("parameter server", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
}  # fmt: skip


def server_bytes(gradient_bytes: float, workers: int) -> float:
    """2N(P - 1): bytes that pass a parameter server in a step, one of the P workers being the server."""
    return gradient_bytes * ALGORITHMS["server"].volume(workers)


def ring_bytes(gradient_bytes: float, workers: int) -> float:
    """2N(P - 1)/P: bytes that each worker of a ring sends in a step (Patarasu and Yuan, 2009: none can send less)."""
    return gradient_bytes * ALGORITHMS["ring"].volume(workers)


@dataclasses.dataclass(frozen=True)
class Link:
    """Latency of a message (s) and seconds that a byte takes."""

    latency: float
    byte_seconds: float


def hierarchical_seconds(
    num_bytes: float, nodes: int, ranks_per_node: int, inside: Link, between: Link
) -> float:
    """All-reduce in rings: within each node to parts, of each part between nodes, within each node again.

    Each of the L workers of a node then has N/L bytes to sum over the M nodes; they share the node's one link outwards,
    so that this takes as long as N bytes would: 2(L - 1)α + 2(L - 1)/L Nβ inside, 2(M - 1)α' + 2(M - 1)/M Nβ' between.
    """
    ring = ALGORITHMS["ring"]
    return ring.seconds(
        ranks_per_node, num_bytes, inside.latency, inside.byte_seconds
    ) + ring.seconds(nodes, num_bytes, between.latency, between.byte_seconds)


def collective_seconds(collective: Collective, link: Link) -> float:
    """The time of a step's exchanges of one kind, in rings.

    Gradients and weights are joined to one message; activations of one layer wait for those of the layer before.
    """
    rounds = 2 if collective.kind == "all-reduce" else 1
    tensors = collective.tensors if collective.what.startswith("activations") else 1
    messages = rounds * (collective.devices - 1) * tensors
    return messages * link.latency + collective.sent_in_ring * link.byte_seconds


@dataclasses.dataclass(frozen=True)
class Option:
    """One form of parallelism, which divides the work of a step over the workers.

    Attributes:
      name: `data`, `tensor` or `sharded` parallelism.
      divides: whether there is anything that it can divide.
      exchange_seconds: what its exchanges take in a step, in rings.
      sent_bytes: what each worker sends in a step.
      memory_bytes: weights, gradients and two slots a weight on each worker, without activations.
    """

    name: str
    divides: bool
    exchange_seconds: float
    sent_bytes: int
    memory_bytes: int


def options(model: Model, workers: int, batch_a_worker: int, link: Link) -> list[Option]:
    """Data, tensor and sharded parallelism (ZeRO stage 3) of the default layouts, all with the same global batch.

    Empty where the model's weights are not known. Arithmetic from layouts; see tfmat.backends.collectives_of_step.
    """
    if not model.weights or workers < 2:
        return []
    batch = workers * batch_a_worker
    found = []
    for name, axis, stage in (
        ("data", "batch", 0),
        ("tensor", "model", 0),
        ("sharded", "batch", 3),
    ):
        plan = make_plan(model.weights, MeshShape(((axis, workers),)), zero_stage=stage)
        exchanges = collectives_of_step(plan, batch)
        divides = name == "data" or any(any(e.slots) or any(e.compute) for e in plan.layouts)
        seconds = sum(collective_seconds(each, link) for each in exchanges)
        sent = sum(each.sent_in_ring for each in exchanges)
        found.append(Option(name, divides, seconds, sent, _memory(plan)))
    return found


def _memory(plan: Plan) -> int:
    return sum(
        layout.bytes(layout.stored, plan.mesh)
        + layout.bytes(layout.gradient, plan.mesh)
        + _SLOTS * layout.bytes(layout.slots, plan.mesh)
        for layout in plan.layouts
    )


def choose(
    found: Sequence[Option], workers: int, batch_a_worker: int, device_memory_bytes: int | None
) -> str:
    """One sentence: the shortest exchange among those that divide and fit, and why."""
    of = {option.name: option for option in found if option.divides}
    fitting = [
        option
        for option in of.values()
        if device_memory_bytes is None or option.memory_bytes <= device_memory_bytes
    ]
    place = f"with {workers:,} workers of {batch_a_worker:,} examples"
    if not fitting:
        least = min(of.values(), key=lambda option: option.memory_bytes)
        return (
            f"None of data, tensor and sharded parallelism fits {place}: {least.name} parallelism needs least, "
            f"{bytes_text(least.memory_bytes)} a worker; take more workers or larger devices."
        )
    best = min(fitting, key=lambda option: option.exchange_seconds)
    others = [
        f"{seconds_text(option.exchange_seconds)} {option.name}"
        for option in of.values()
        if option is not best
    ]
    beside = f", against {' and '.join(others)}" if others else ""
    fits = "needs" if device_memory_bytes is None else "fits, with"
    return (
        f"Choose {best.name} parallelism {place}: by the measured latency and bandwidth its exchanges take "
        f"{seconds_text(best.exchange_seconds)} a step{beside}, and it {fits} {bytes_text(best.memory_bytes)} a "
        "worker for weights, gradients and optimizer."
    )
