"""Least squares with the program in the loop: every step runs it, for every record anew.

Parameters are fitted with the machine and the zero, where the laboratory has these, and other nuisances are held in the
middle of their ranges. The intervals are those of the linearised fit.
"""

import pathlib
import time

import numpy as np
import scipy.optimize

from specimens.frozen import Records, answer_path, keep
from tfmat.errors import InputError
from tfmat.specimens.campaign import run_campaign
from tfmat.specimens.description import Description

# Shares of the ranges: the program's curves are not smooth below this.
_STEP = 5e-3
_NORMAL_95 = 1.96


def answer(description: Description, records: Records, folder: pathlib.Path, count: int) -> None:
    """Fits the first `count` records, a few dozen runs each; runs are stored in `folder`, and made once."""
    for number in range(min(count, len(records))):
        if not answer_path(folder, number).is_file():
            keep(
                answer_path(folder, number),
                **_fitted(description, *records.one(number), folder / f"{number:05}.runs"),
            )


def _fitted(
    description: Description, strain: np.ndarray, stress: np.ndarray, folder: pathlib.Path
) -> dict:
    told, laboratory = len(description.parameters), description.laboratory
    runs, seconds = 0, 0.0
    seen: set[bytes] = set()
    machine, zeros = laboratory.machine_stiffness, laboratory.strain_offset

    def residuals(point: np.ndarray) -> np.ndarray:
        nonlocal runs, seconds
        shares = np.append(point[:told], np.full(len(description.nuisances), 0.5))
        drawn = np.array(
            [p.from_unit_interval(s) for p, s in zip(description.drawn, shares, strict=True)]
        )
        (outcome,) = run_campaign(
            description, folder, range(1), drawn[None], processes=1, retry=True
        ).outcomes
        if outcome is None or outcome.failure:
            raise InputError("a run of the fit failed")
        # A run that was made before, for the machine's slope say, costs nothing.
        if drawn.tobytes() not in seen:
            seen.add(drawn.tobytes())
            runs, seconds = runs + 1, seconds + outcome.seconds
        (places, answer), column = outcome.curve(), told
        if machine:
            low, high = 1.0 / machine[1], 1.0 / machine[0]
            places = places + (low + point[column] * (high - low)) * answer
            column += 1
        at = strain if not zeros else strain + zeros[1] * 6.0 * (point[column] - 0.5)
        return np.interp(at, places, answer) - stress

    unknowns = told + bool(machine) + bool(zeros)
    started = time.perf_counter()
    fit = scipy.optimize.least_squares(
        residuals, np.full(unknowns, 0.5), bounds=(0.0, 1.0), diff_step=_STEP, xtol=1e-4, ftol=1e-4
    )
    variance = 2.0 * fit.cost / max(1, len(strain) - unknowns)
    spread = np.sqrt(variance * np.diag(np.linalg.pinv(fit.jac.T @ fit.jac)))[:told]
    best = fit.x[:told]
    return {
        "mean": best,
        "low": best - _NORMAL_95 * spread,
        "high": best + _NORMAL_95 * spread,
        "runs": runs,
        "seconds": seconds,
        "elapsed": time.perf_counter() - started,
    }
