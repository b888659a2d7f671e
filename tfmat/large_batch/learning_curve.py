"""Learning curve: how the error falls with the training curves and the network's width, before a long run."""

import copy
import dataclasses
import math
import pathlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfmat.config import Config, Duration, Settings, apply_override, check_config
from tfmat.console import log
from tfmat.errors import DivergedError, InputError
from tfmat.files import make_folder, spreadsheet_text, write_json, write_text
from tfmat.large_batch.figures import (
    FEWEST_NETWORKS,
    FEWEST_SIZES,
    Estimate,
    PowerLaw,
    fit_power_law,
    learning_figure,
    save_png_and_svg,
)
from tfmat.large_batch.runs import StudyRun, run_all, state_of

ETA, RMSE = "η", "error, % of the range"
# Compilation and evaluation take about as long as the training on so many examples.
_BESIDE = 50_000
# A fall that is not surely more than this part of the error cannot be told from chance.
_LEAST_FALL = 0.02
_WIDTHS = (1e-3, 1e3)

SizeOf = Callable[[float], int]


def learning_curve(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    curves: Sequence[int],
    widths: Sequence[float] = (1.0,),
    seeds: int = 2,
    wanted: float = 1.2,
) -> dict[str, Any]:
    """Trains every network on every number of curves; writes learning_curve.csv, .json, .png and .svg.

    Args:
      config: of all runs, but for the number of curves, the dense units and the seed.
      workdir: folder of the results and of the runs.
      data_dir: as for `tfmat train`; of a data set, runs train on its first curves.
      curves: training curves; four numbers or more.
      widths: times the config's dense units; three or more to learn what a larger network would gain.
      seeds: runs of each point.
      wanted: error that is asked for: η where the best possible is known, else root mean square in % of the range.

    Returns:
      The content of learning_curve.json: `quantity` (η or error), `wanted`, `points` (each `curves`, `width`, `seed`,
      `parameters` of the network and `errors`: parameter of the law -> number), `diverged` (names of runs), and `laws`:
      parameter of the law -> see `answers`.

    Raises:
      InputError: before the first run begins.
      Interrupted.
      DivergedError: so many runs diverged that nothing can be fitted.
    """
    _check(config, curves, widths, seeds, wanted)
    folder = make_folder(workdir)
    runs = [
        _study_run(config, count, width, seed, data_dir)
        for seed in range(seeds)
        for count in sorted(set(curves))
        for width in sorted(set(widths))
    ]
    points, diverged = [], []
    for run, job, path in run_all(runs, workdir, data_dir):
        if state_of(path) == "diverged":
            log(f"{run.name} diverged and is left out")
            diverged.append(run.name)
            continue
        points.append({**run.key, "parameters": job.num_weights, **_scores(path)})
        write_text(folder / "learning_curve.csv", spreadsheet_text(_table(points)))
    _check_enough(points, diverged, widths)
    quantity = ETA if all(point["eta"] for point in points) else RMSE
    for point in points:
        eta, rmse = point.pop("eta"), point.pop("rmse")
        point["errors"] = eta if quantity == ETA else rmse

    def size_of(width: float) -> int:
        return dataclasses.replace(job, config=_at(config, width=width)).num_weights

    laws = {name: law_of(points, name, quantity) for name in points[0]["errors"]}
    content = {
        "quantity": quantity,
        "wanted": wanted,
        "points": points,
        "diverged": diverged,
        "laws": {name: answers(law, points, name, wanted, size_of) for name, law in laws.items()},
    }
    save_png_and_svg(learning_figure(points, laws, quantity, wanted), folder / "learning_curve")
    write_json(folder / "learning_curve.json", content)
    return content


def law_of(points: Sequence[dict[str, Any]], name: str, quantity: str) -> PowerLaw:
    """The power law of the errors of one parameter."""
    return fit_power_law(
        np.array([point["curves"] for point in points], float),
        np.array([point["parameters"] for point in points], float),
        np.array([point["errors"][name] for point in points]),
        floor=1.0 if quantity == ETA else 0.0,
    )


def answers(
    law: PowerLaw, points: Sequence[dict[str, Any]], name: str, wanted: float, size_of: SizeOf
) -> dict[str, Any]:
    """What the law of one parameter says; every estimate has `value`, `low` and `high` (90 %), None for infinity.

    Returns:
      `alpha`, `beta` (None with one network), `misfit` (root mean square of the logarithms), `falls` (whether the
      errors surely fall with the curves), `networks`: for each measured one `width`, `parameters`, `limit` (its error
      with endless curves), `reached` (geometric mean of its errors with the most curves) and `curves` (that give the
      wanted error); and `sizes`: for the largest measured number of
      `curves` and for endless ones (None) the `parameters` and the `width` that give the wanted error.
    """
    counts = [point["curves"] for point in points]
    networks = sorted({(point["parameters"], point["width"]) for point in points})
    exponents = law.exponents()
    found: dict[str, Any] = {
        "alpha": exponents[0].to_json(),
        "beta": exponents[1].to_json() if len(exponents) > 1 else None,
        "misfit": law.misfit,
        "falls": law.fall(min(counts), max(counts)).low > _LEAST_FALL,
        "networks": [
            {
                "width": width,
                "parameters": parameters,
                "limit": law.error(parameters=parameters).to_json(),
                "reached": _reached(points, name, width),
                "curves": law.examples_for(wanted, parameters).to_json(),
            }
            for parameters, width in networks
        ],
        "sizes": [],
    }
    for count in (max(counts), None) if len(exponents) > 1 else ():
        needed = law.parameters_for(wanted, math.inf if count is None else count)
        ends = (needed.value, needed.low, needed.high)
        width = Estimate(*(_width_for(parameters, size_of) for parameters in ends))
        found["sizes"].append(
            {"curves": count, "parameters": needed.to_json(), "width": width.to_json()}
        )
    return found


def _reached(points: Sequence[dict[str, Any]], name: str, width: float) -> float:
    own = [point for point in points if point["width"] == width]
    most = max(point["curves"] for point in own)
    errors = [point["errors"][name] for point in own if point["curves"] == most]
    return float(np.exp(np.log(errors).mean()))


def _check(
    config: Config, curves: Sequence[int], widths: Sequence[float], seeds: int, wanted: float
) -> None:
    if len(set(curves)) < FEWEST_SIZES:
        raise InputError(
            f"--curves has {len(set(curves))} different numbers; a fit takes {FEWEST_SIZES} or more, such as "
            "10000,20000,40000,80000"
        )
    if min(curves) < max(6, config.global_batch_size):
        raise InputError(
            f"--curves has {min(curves)}, fewer than global_batch_size={config.global_batch_size}; give more, or a "
            "smaller batch"
        )
    shown = ",".join(f"{width:g}" for width in widths)
    if 1 < len(set(widths)) < FEWEST_NETWORKS or min(widths) <= 0:
        raise InputError(
            f"--widths={shown}: give one positive number, or {FEWEST_NETWORKS} or more, such as 0.5,1,2"
        )
    units = Counter(_units(config, width) for width in set(widths))
    if max(units.values()) > 1:
        same = ",".join(map(str, units.most_common(1)[0][0]))
        raise InputError(
            f"--widths={shown}: two of them make the same network, model.hidden_units={same}; give others"
        )
    if seeds < 1:
        raise InputError(f"--seeds={seeds}: give a positive number")
    if not (wanted > 0 and math.isfinite(wanted)):
        raise InputError(f"--wanted={wanted:g}: give a positive number")


def _check_enough(
    points: Sequence[dict[str, Any]], diverged: Sequence[str], widths: Sequence[float]
) -> None:
    counts, left = ({point[key] for point in points} for key in ("curves", "width"))
    if len(counts) < FEWEST_SIZES or len(left) < min(len(set(widths)), FEWEST_NETWORKS):
        raise DivergedError(
            f"{len(diverged)} of {len(diverged) + len(points)} runs diverged, which leaves {len(counts)} numbers of "
            f"curves and {len(left)} networks: too few for a fit; take a lower optimizer.learning_rate and another "
            "--workdir"
        )


def _units(config: Config, width: float) -> tuple[int, ...]:
    return tuple(max(1, round(width * units)) for units in config.model.hidden_units)


def _at(config: Config, width: float, **keys: Any) -> Config:
    """A checked copy with so many times the dense units, and other values of keys such as `data__seed`."""
    changed = copy.deepcopy(config)
    keys["model__hidden_units"] = ",".join(map(str, _units(config, width)))
    for key, value in keys.items():
        apply_override(changed, key.replace("__", "."), str(value))
    return check_config(changed)


def _study_run(config: Config, count: int, width: float, seed: int, data_dir: str) -> StudyRun:
    """A run on so many curves: the first ones of a data set, or of a simulated set of that size."""
    from tfmat.data.dataset import is_dataset

    # A quarter of a simulated set validates.
    size = (
        {"data__num_train": count}
        if is_dataset(data_dir)
        else {"data__num_curves": count + count // 3}
    )
    changed = _at(
        config,
        width,
        data__seed=config.seed if config.data.seed is None else config.data.seed,
        seed=config.seed + seed,
        **size,
    )
    return StudyRun(
        name=f"curves-{count:07d}-width-{width:g}-seed-{seed}",
        about=f"{count:,} curves, {width:g} times the units, seed {seed}",
        config=changed,
        key={"curves": count, "width": width, "seed": seed},
        work=_BESIDE + count * _passes(Settings.of(config).train_for),
    )


def _passes(train_for: Duration) -> float:
    """Epochs; 0 for runs that are all as long."""
    return train_for.value if train_for.unit == "epochs" else 0.0


def _scores(path: pathlib.Path) -> dict[str, Any]:
    """`eta` and `rmse` (% of the range) of a run on the test curves, parameter -> number; `eta` None where unknown."""
    from tfmat.workflow.job import evaluation_of

    found = evaluation_of(str(path))
    reference = found.reference
    return {
        "eta": reference and {name: one.eta for name, one in reference.parameters.items()},
        "rmse": {name: 100 * math.sqrt(one.mse) for name, one in found.parameters.items()},
    }


def _table(points: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A row a run; `eta_NAME` where that is known, and `rmse_NAME`."""
    return pd.DataFrame(
        [
            {
                **{key: value for key, value in point.items() if key not in ("eta", "rmse")},
                **{
                    f"{kind}_{name}": one
                    for kind in ("eta", "rmse")
                    for name, one in (point[kind] or {}).items()
                },
            }
            for point in points
        ]
    )


def _width_for(parameters: float, size_of: SizeOf) -> float:
    """Times the config's dense units that make the smallest network of so many parameters; infinite for none."""
    low, high = _WIDTHS
    if size_of(high) < parameters:
        return math.inf
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if size_of(middle) >= parameters else (middle, high)
    return high
