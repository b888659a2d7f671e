"""What is done to a specimen: how it is loaded, and the strain or the stress that it is driven through."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
# Planar tension is a wide, short strip, which cannot become narrower; rubber laboratories call it pure shear.
Mode = Literal["uniaxial", "equibiaxial", "planar", "shear"]
MODES: tuple[Mode, ...] = ("uniaxial", "equibiaxial", "planar", "shear")


@dataclasses.dataclass(frozen=True)
class History:
    """The loading history of a test, for one or many curves.

    A machine drives either the strain or the stress; the law answers with the other. Point 0 need not be unloaded: what
    lies before it is a virgin specimen at rest.

    Attributes:
      mode: how the specimen is loaded.
      strain: [curves, points], -, in the law's strain measure; None where the stress is driven.
      stress: [curves, points], MPa, in the law's stress measure; None where the strain is driven.
      time: [curves, points], s, not falling; None where the law asks for none.
      rate: [curves, 1], strain rate, 1/s; None where the law asks for none.
      temperature: [curves, 1], °C; None where the law asks for none.
    """

    mode: Mode = "uniaxial"
    strain: Array | None = None
    stress: Array | None = None
    time: Array | None = None
    rate: Array | None = None
    temperature: Array | None = None

    def __post_init__(self) -> None:
        if (self.strain is None) == (self.stress is None):
            raise ValueError("a history drives the strain or the stress: give one of them")

    @property
    def driven(self) -> Array:
        """The strain (-) or the stress (MPa) that the machine drives, [curves, points]."""
        driven = self.stress if self.strain is None else self.strain
        assert driven is not None
        return driven

    def __len__(self) -> int:
        return len(self.driven)

    def rows(self, chosen: Any) -> "History":
        """The history of some of the curves: an index array or a slice. Arrays of one row are shared by all."""
        return self.changed(lambda array: array if len(array) == 1 else array[chosen])

    def changed(self, change: Callable[[Array], Array]) -> "History":
        """The same history with `change` applied to each of its arrays."""
        arrays: dict[str, Any] = {
            field.name: change(value)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **arrays)


class Solver(Protocol):
    """What answers one history many times, for parameters that change little from one time to the next."""

    def rows(self, chosen: Any) -> "Solver":
        """That of some of the specimens: an index array or a slice."""

    def expand(self, parameters: Array) -> tuple[Array, Array]:
        """What `Law.respond` and `Law.sensitivities` give."""


@dataclasses.dataclass(frozen=True)
class TestSet:
    """The tests of each material: histories whose points stand one test after the other.

    An index picks materials, as it does for an array of strains, in whose place fits take a test set.

    Attributes:
      histories: one for each test, all of the same materials.
      unit: what responses are divided by, [points], [materials, points] or one number: tests that answer with stress
        and tests that answer with strain can be compared in units of their noise.
    """

    __test__ = False  # no case of pytest's

    histories: tuple[History, ...]
    unit: Array | float = 1.0

    def __len__(self) -> int:
        return max(map(len, self.histories))

    def __getitem__(self, chosen: Any) -> "TestSet":
        histories = tuple(history.rows(chosen) for history in self.histories)
        unit = np.asarray(self.unit)
        own = unit.ndim == 2 and len(unit) > 1
        return dataclasses.replace(self, histories=histories, unit=unit[chosen] if own else unit)

    def joined(self, answer: Callable[[History], Array]) -> Array:
        """What `answer` gives for each test, [materials, points of the test, ...], joined along the points."""
        return self._in_units(np.concatenate([answer(each) for each in self.histories], axis=1))

    def expanded(self, solvers: Sequence[Solver], parameters: Array) -> tuple[Array, Array]:
        """Responses and sensitivities of all tests by their solvers, joined along the points."""
        answers = [solver.expand(parameters) for solver in solvers]
        response, sensitivities = (
            self._in_units(np.concatenate(parts, axis=1)) for parts in zip(*answers, strict=True)
        )
        return response, sensitivities

    def _in_units(self, joined: Array) -> Array:
        unit = np.asarray(self.unit)
        if unit.ndim:
            unit = unit.reshape(*unit.shape, *[1] * (joined.ndim - 2))
        return joined / unit


def driven_where(driven: Array | TestSet, valid: NDArray[np.bool_]) -> Array | TestSet:
    """What was driven, with zeros for points that are not valid; a test set holds its last point there already."""
    return driven if isinstance(driven, TestSet) else np.where(valid, driven, 0.0)
