"""What a study's points are called: short, and only what tells one from the study's most common network and data."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tfmat.scaling.measurements import Point

INDEPENDENT = "independent processes"
# What is named where it is not the study's most common, and how.
_USUAL: tuple[tuple[str, str], ...] = (
    ("model", "{} network"), ("dataset_size", "{:,} examples"), ("processors_a_worker", "{} processors a worker"),
)  # fmt: skip
# What tells points apart that would still be called the same.
_FURTHER: tuple[Callable[[Point], str], ...] = (
    lambda point: point.mesh,
    lambda point: f"{point.nodes} nodes",
    lambda point: f"{point.ranks_per_node} on a node",
)


def variant_name(point: Point) -> str:
    """How its workers compute together, or do not: `horovod mpi`, `dtensor batch, tensorflow`."""
    kind = INDEPENDENT if point.exchanges_nothing else point.backend.replace("_", " ")
    if point.mesh:
        kind += f" {re.sub(r':[0-9]+', '', point.mesh)}"
    if point.zero_stage:
        kind += f" ZeRO {point.zero_stage}"
    if point.exchange:
        kind += f" {point.exchange.replace(',', ', ')}"
    library = "" if point.backend == "mpi" else point.collectives
    joint = " " if point.backend == "horovod" else ", "
    return joint.join(part for part in (kind, library) if part)


class Labels:
    """Names of one study's points; `usual` has the most common value of each attribute of `_USUAL`."""

    def __init__(self, points: Iterable[Point]):
        points = list(points)
        self.usual = {
            name: Counter(_value(point, name) for point in points).most_common(1)[0][0]
            for name, _ in (_USUAL if points else ())
        }
        self._machines = len({point.hardware for point in points}) > 1
        # A library over more than one transport: names must tell which.
        variants = {(point.backend, point.collectives, point.transport) for point in points}
        self._transports = len({variant[:2] for variant in variants}) < len(variants)
        self._names = _told_apart({point: self._name(point) for point in points})

    def __getitem__(self, point: Point) -> str:
        """What points that differ only in their number of workers share: `horovod mpi, 75 a worker, large network`."""
        return self._names[point]

    def order(self, point: Point) -> tuple:
        """Sorts as a reader looks: the usual network and data first, then batch, baseline, variant and workers."""
        unusual = [
            (_value(point, name) != usual, _value(point, name))
            for name, usual in self.usual.items()
        ]
        weak = point.scaling == "weak"
        batch = point.batch_a_worker if weak else point.global_batch_size
        last = (not point.is_baseline, variant_name(point), point.workers)
        return *unusual, point.hardware, not weak, batch, *last  # fmt: skip

    def _name(self, point: Point) -> str:
        weak = point.scaling == "weak"
        parts = [variant_name(point), point.transport if self._transports else "", point.placement]
        parts.append(
            f"{point.batch_a_worker:,} a worker" if weak else f"{point.global_batch_size:,} in all"
        )
        for name, text in _USUAL:
            value = _value(point, name)
            parts.append(text.format(value) if value != self.usual[name] else "")
        parts.append(point.hardware if self._machines else "")
        return ", ".join(part for part in parts if part)


def _value(point: Point, name: str) -> Any:
    return point.model.name if name == "model" else getattr(point, name)


def _told_apart(names: dict[Point, str]) -> dict[Point, str]:
    for further in _FURTHER:
        counts = Counter((point.workers, name) for point, name in names.items())
        names = {
            point: f"{name}, {further(point)}" if counts[point.workers, name] > 1 and further(point) else name
            for point, name in names.items()
        }  # fmt: skip
    return names
