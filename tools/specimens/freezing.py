"""What all methods are given, made once from stored runs of a described simulation: see `frozen`."""

import dataclasses
import pathlib

import numpy as np

from specimens.frozen import Runs
from tfmat.curves.apparatus import log_uniform
from tfmat.curves.observation import Observation, recorded_strain
from tfmat.errors import InputError
from tfmat.files import atomic_write
from tfmat.specimens.campaign import draw
from tfmat.specimens.description import Description
from tfmat.specimens.runs import RUNS, Solver, load

# The laboratory's options that chains know.
_KNOWN = ("noise_of_maximum", "measured_points", "strain_offset", "machine_stiffness", "max_strain")
# Points of a record where the laboratory says nothing of them; of the runs' common grid, at most.
_POINTS, _MOST_POINTS = 200, 400
_END_STREAM, _MACHINE_STREAM, _NOISE_STREAM = 101, 102, 103


def freeze(
    description: Description,
    stored: pathlib.Path,
    folder: pathlib.Path,
    *,
    num_runs: int,
    test_from: int,
    sizes: list[int],
    seed: int,
) -> None:
    """Writes the runs of each size and the records into the folder, unless they are there.

    Args:
      stored: folder of the runs, which are only read.
      num_runs: that were made; test_from: number of the first that judges.
      sizes: of the runs 0 to so many learn the methods.
      seed: that the runs were drawn with; of the records.
    """
    options = description.laboratory.to_json()
    for name in options:
        if name not in _KNOWN:
            raise InputError(f"the chains do not know the laboratory's {name}; take it out")
    if "noise_of_maximum" not in options:
        raise InputError(
            "the laboratory has no noise_of_maximum, without which nothing is to be told"
        )
    files = [folder / f"runs-{size}.npz" for size in sizes]
    judging = folder / "records.npz"
    if judging.is_file() and all(file.is_file() for file in files):
        return
    drawn, solver = draw(description, seed, num_runs), Solver(description)
    found = {}
    for i in range(num_runs):
        path = stored / RUNS / f"{solver.deck(drawn[i]).key}.npz"
        if path.is_file():
            found[i] = load(path)
    tests = [i for i in found if i >= test_from]
    if not tests or not any(i < min(sizes) for i in found):
        raise InputError(
            f"{stored} holds {len(found)} of these runs, {len(tests)} of which judge; were they made with another "
            "--seed or description?"
        )
    shares = [p.to_unit_interval(drawn[:, i]) for i, p in enumerate(description.drawn)]
    units = np.stack(shares, axis=1)
    end = min(float(found[i].curve()[0][-1]) for i in found if i < test_from)
    for size, file in zip(sizes, files, strict=True):
        numbers = [i for i in found if i < size]
        curves = [found[i].curve(end) for i in numbers]
        runs = Runs(
            curves[0][0],
            np.stack([stress for _, stress in curves]),
            units[numbers],
            np.array([p.low for p in description.drawn]),
            np.array([p.high for p in description.drawn]),
            np.array([p.scale == "log" for p in description.drawn]),
            len(description.parameters),
            options,
            float(sum(found[i].seconds for i in numbers)),
        )
        with atomic_write(file) as out:
            np.savez(out, **runs.arrays())
    # Missing runs have a stand-in, so that a record is the same however many others there are.
    judges = [found.get(i, found[tests[0]]) for i in range(test_from, num_runs)]
    everyone = noisy_records(description, [one.curve() for one in judges], seed)
    arrays = {name: array[np.array(tests) - test_from] for name, array in everyone.items()}
    truth = units[tests, : len(description.parameters)]
    with atomic_write(judging) as out:
        np.savez(out, **arrays, truth=truth, run=np.array(tests))


def noisy_records(description: Description, curves: list, seed: int) -> dict[str, np.ndarray]:
    """One record of each curve (strain, stress): what the laboratory adds, at the points that its machine records.

    Returns:
      strain (-) and stress (MPa), [records, most points], and counts, how many points of each row are there.
    """
    laboratory, count = description.laboratory, len(curves)

    def generator(stream: int) -> np.random.Generator:
        return np.random.default_rng([seed, stream])

    ends = np.array([strain[-1] for strain, _ in curves])
    if laboratory.max_strain is not None:
        ends = np.minimum(ends, generator(_END_STREAM).uniform(*laboratory.max_strain, count))
    compliance: np.ndarray = np.zeros(count)
    if (limits := laboratory.machine_stiffness) is not None:
        compliance = 1.0 / log_uniform(limits, generator(_MACHINE_STREAM).random(count))
    # The machine is exact below, where the observation model would have to search.
    observation = Observation.draw(
        dataclasses.replace(laboratory, machine_stiffness=None), generator, count
    )
    counts, spacing = observation.counts, observation.spacing
    if counts is None or spacing is None:
        counts, spacing = np.full(count, _POINTS), np.ones(count)
    at = recorded_strain(ends, counts, spacing)

    def answer(strain: np.ndarray, _: np.ndarray) -> np.ndarray:
        rows = []
        for row, (places, stress), gives in zip(strain, curves, compliance, strict=True):
            further = (
                stress[-1] + (stress[-1] - stress[-2]) / (places[-1] - places[-2]) * places[-1]
            )
            places, stress = np.append(places, 2 * places[-1]), np.append(stress, further)
            rows.append(np.interp(row, places + gives * stress, stress))
        return np.stack(rows)

    # Not put on a network's points: a machine knows nothing of these.
    observation = dataclasses.replace(observation, counts=None, spacing=None)
    everyone = np.arange(count)
    noise, none = generator(_NOISE_STREAM), np.empty((count, 0))
    stress = observation.stress(answer, at, none, everyone, noise, np.empty(0))
    return {"strain": at, "stress": stress, "counts": counts}
