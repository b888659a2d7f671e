"""What the methods of `tools/compare_specimens` are given: runs, noisy records, what is known of the laboratory."""

import dataclasses
import json
import pathlib

import numpy as np

# Of each posterior that is kept.
SAMPLES = 400
_ARRAYS = ("strain", "curves", "drawn", "low", "high", "logarithmic")
_RECORDS = ("strain", "stress", "counts")


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs that methods learn from.

    Attributes:
      strain: [points], nominal, -; curves: [runs, points], nominal stress, MPa.
      drawn: [runs, drawn], shares 0-1 of the ranges on their scales: parameters first, then nuisances.
      low, high: [drawn], the ranges; logarithmic: [drawn], whether on a log scale.
      parameters: how many of those drawn are told.
      laboratory: options of the description's section of that name.
      seconds: that the runs took, each alone.
    """

    strain: np.ndarray
    curves: np.ndarray
    drawn: np.ndarray
    low: np.ndarray
    high: np.ndarray
    logarithmic: np.ndarray
    parameters: int
    laboratory: dict
    seconds: float

    @classmethod
    def open(cls, path: pathlib.Path) -> "Runs":
        with np.load(path) as file:
            arrays = {name: file[name] for name in _ARRAYS}
            about = json.loads(str(file["about"]))
        return cls(**arrays, **about)

    def arrays(self) -> dict:
        """What `open` reads, as numpy.savez takes it."""
        about = {
            "parameters": self.parameters,
            "laboratory": self.laboratory,
            "seconds": self.seconds,
        }
        return {name: getattr(self, name) for name in _ARRAYS} | {
            "about": np.array(json.dumps(about))
        }


@dataclasses.dataclass(frozen=True)
class Records:
    """Noisy records of runs that no method learned from, at the points that the machine recorded.

    Attributes:
      strain, stress: [records, most points], - and MPa; of each row the first `counts` are there.
      counts: [records].
    """

    strain: np.ndarray
    stress: np.ndarray
    counts: np.ndarray

    @classmethod
    def open(cls, path: pathlib.Path) -> "Records":
        with np.load(path) as file:
            return cls(*(file[name] for name in _RECORDS))

    def __len__(self) -> int:
        return len(self.counts)

    def one(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Strain (-) and stress (MPa) of one record."""
        count = self.counts[number]
        return self.strain[number, :count], self.stress[number, :count]


def answer_path(folder: pathlib.Path, number: int) -> pathlib.Path:
    """Where a method stores its answer to one record."""
    return folder / f"{number:05}.npz"


def keep(path: pathlib.Path, **numbers) -> None:
    """Stores one answer, whole or not at all."""
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        np.savez(file, **numbers)
    part.replace(path)
