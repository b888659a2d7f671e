"""What an evaluation leaves in a run's folder: its numbers, and the answers that they were computed from."""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.files import atomic_write, make_folder, write_json

Array = NDArray[np.floating]

ANSWERS_FILE = "test_answers.npz"


@dataclasses.dataclass(frozen=True)
class ScoredAnswers:
    """The network's answers to the test curves beside the truth: `test_answers.npz`.

    Attributes:
      true, identified: [curves, parameters], in the parameters' units.
      max_strain, max_stress_mpa: of each curve, [curves], - and MPa.
      floor_variance: variance of the scaled label that is left when all that a curve says is used (the posterior's, of
        which the Bayes risk is the mean), [first curves, parameters]; empty where it was not worked out.
    """

    true: Array
    identified: Array
    max_strain: Array
    max_stress_mpa: Array
    floor_variance: Array


def write_evaluation(
    workdir: str | os.PathLike,
    evaluation: Mapping[str, Any],
    true_values: Array,
    identified_values: Array,
    features: Array,
    floor_variance: Array | None = None,
) -> None:
    """Writes evaluation.json, and beside it the answers, from which the report draws its pictures.

    Args:
      evaluation: the content of evaluation.json.
      true_values, identified_values: [curves, parameters], in the parameters' units.
      features: the test curves, [curves, points, 3]: strain (-), stress (MPa), flag of padded points, which are 0.
      floor_variance: see `ScoredAnswers`.
    """
    workdir = make_folder(workdir)
    arrays = {
        "true": true_values,
        "identified": identified_values,
        "max_strain": np.max(features[:, :, 0], axis=1),
        "max_stress_mpa": np.max(features[:, :, 1], axis=1),
        "floor_variance": np.empty((0, true_values.shape[1]))
        if floor_variance is None
        else floor_variance,
    }
    with atomic_write(workdir / ANSWERS_FILE) as file:
        kept: dict[str, Any] = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
        np.savez(file, **kept)
    write_json(workdir / "evaluation.json", evaluation)


def read_answers(workdir: str | os.PathLike) -> ScoredAnswers | None:
    """What `write_evaluation` left; None where it is missing or damaged."""
    try:
        with np.load(pathlib.Path(workdir) / ANSWERS_FILE, allow_pickle=False) as arrays:
            found = {
                field.name: arrays[field.name].astype(np.float64)
                for field in dataclasses.fields(ScoredAnswers)
            }
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return ScoredAnswers(**found)
