"""Compares whole posteriors at equal seconds of training: tfmat, BayesFlow, sbi, and least squares with its covariance.

    tools/compare_posteriors                                   every task and method, two minutes each, one seed
    tools/compare_posteriors --seconds=600 --seeds=0,1,2,3,4 --tasks=voce
    tools/compare_posteriors --methods=tfmat_flow,sbi_npe      these

All learn from the same simulated records: bayesflow_npe and sbi_npe from the records themselves, tfmat_flow,
bayesflow_fits and sbi_fits from the law's own fits of them, the same for all three, whose seconds are part of theirs.
All are judged on the same 1,000 other records: by the log score (mean logarithm of the posterior density at the true
parameters, on the scale of their ranges; higher is better), the energy score (lower is better), and how often central
95 % intervals hold the truth. For the first --num_reference of them the exact posterior
is sampled by tfmat's adaptive sampler, once for each task: how many nats a method loses to it, and the accuracy of a
classifier that is given draws of both (C2ST; 0.5 is perfect). Every training has one thread and is stopped by the same
clock of its processor seconds, by which its learning rate falls; what is compiled before the end of the first step is
not counted and told beside it. Each result is kept as TASK/METHOD-SECONDS-SEED.json in --workdir, beside the log of its
run, so that a comparison that was interrupted goes on. `table.md` holds all of them. Remove what is to be run again.
"""

import argparse
import itertools
import os
import pathlib
import subprocess
import sys
import venv
from collections.abc import Mapping
from typing import Any

import numpy as np

from posteriors.exact import exact_posteriors
from posteriors.frozen import Task
from tfmat.config import default_config
from tfmat.console import log
from tfmat.errors import InputError, TfmatError
from tfmat.files import atomic_write, make_folder, read_json, write_json
from tfmat.identification.posterior_comparison import c2st
from tfmat.identification.weighted_draws import SampledPosterior
from tfmat.workflow.dataset import curve_settings, make_dataset

# What each task simulates.
TASKS: dict[str, dict[str, Any]] = {
    "hahn_tsai": {"law": "hahn_tsai"},
    "voce": {"law": "voce"},
    "voce_chaboche": {"law": "voce_chaboche", "data.num_points": 400},
    # Six cycles of one amplitude, begun in tension or in compression.
    "voce_chaboche_fixed": {
        "law": "voce_chaboche",
        "data.num_points": 400,
        "test_ranges.amplitude": (0.015, 0.015),
        "test_ranges.cycles": (6.0, 6.0),
        "test_ranges.first": (1.0, 1.0),
        "test_ranges.irregularity": (0.0, 0.0),
        "test_ranges.mean": (0.0, 0.0),
    },
    "ogden": {"law": "ogden", "data.num_points": 64, "data.missing_tests": 0.35},
}
RECORDS, TESTS = 200_000, 1_000
# What each method's environment holds; the others run in tfmat's own.
REQUIREMENTS = {
    "bayesflow_npe": ("bayesflow==2.0.12", "jax==0.10.*"),
    "sbi_npe": ("sbi==0.27.*",),
}
# Columns of the table that show how far seeds are apart.
_BETWEEN = {"log_score": ".2f", "energy_score": ".4f", "lost": ".2f", "c2st": ".3f"}
METHODS = ("tfmat_flow", "bayesflow_fits", "sbi_fits", "bayesflow_npe", "sbi_npe", "laplace")
# These are given the law's own fit of each record in place of the record, whose seconds are part of theirs.
BEHIND_FITS = ("tfmat_flow", "bayesflow_fits", "sbi_fits")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(TASKS), help="default: %(default)s")
    parser.add_argument("--methods", default=",".join(METHODS), help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="of training, of one processor (120)"
    )
    parser.add_argument("--seeds", default="0", help="of weights and order, such as 0,1,2 (0)")
    parser.add_argument(
        "--num_reference", type=int, default=50, help="exact posteriors to compare with (50)"
    )
    parser.add_argument(
        "--workdir", type=pathlib.Path, default=pathlib.Path("runs/compare_posteriors")
    )
    given = parser.parse_args()
    given.workdir = given.workdir.resolve()
    try:
        tasks, methods = given.tasks.split(","), given.methods.split(",")
        for name, known in [
            *((task, TASKS) for task in tasks),
            *((method, METHODS) for method in methods),
        ]:
            if name not in known:
                raise InputError(f"there is no {name}; choose of {', '.join(known)}")
        # In turns, so that whoever else is on the machine is in the way of all methods alike.
        turns = list(itertools.product(tasks, map(int, given.seeds.split(",")), methods))
        for done, (name, seed, method) in enumerate(turns, start=1):
            folder = frozen_task(given.workdir / name, name)
            make_reference(folder, given.num_reference)
            found = answered(folder, method, given.seconds, seed)
            log(
                f"{done} of {len(turns)}: {name}, {method}, seed {seed}: {found['log_score']:.2f} nats"
            )
        log(table(given.workdir))
    except (TfmatError, ValueError) as error:
        print(f"tools/compare_posteriors: {error}", file=sys.stderr)
        return 2
    return 0


def frozen_task(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The task's folder, made if it is not there."""
    if (folder / "task.json").is_file():
        return folder
    config = default_config()
    config.update_from_flattened_dict(TASKS[name])
    config.data.num_curves, config.data.num_test = RECORDS, TESTS
    make_folder(folder)
    dataset = make_dataset(config, curve_settings(config), str(folder))
    (folder / "dataset").unlink(missing_ok=True)
    (folder / "dataset").symlink_to(dataset.folder.name)
    features, labels = dataset.features, dataset.labels
    known = slice(dataset.num_train)
    tests = slice(-TESTS, None)
    Task(folder, features[known], labels[known], features[tests], labels[tests]).save()
    write_json(folder / "task.json", {"tests": dataset.form.num_tests})
    return folder


def answered(folder: pathlib.Path, method: str, seconds: float, seed: int) -> dict[str, Any]:
    """What a method scores on a task, from its file if it was run before."""
    result = folder / f"{method}-{seconds:g}-{seed}.json"
    if result.is_file():
        return read_json(result)
    draws, log_file = result.with_suffix(".npz"), result.with_suffix(".log")
    given = [draws, seconds, seed]
    if method in BEHIND_FITS:
        fits = folder / f"fits-{seconds:g}.npz"
        if not fits.is_file():
            log(f"{folder.name}: fits for {seconds:g} s")
            run(sys.executable, "fits", folder, [fits, seconds], fits.with_suffix(".log"))
        given.append(f"--fits={fits}")
    python, module = interpreter(folder.parent, method), method.replace("_fits", "_npe")
    run(python, module, folder, given, log_file)
    with np.load(draws) as found:
        about = {"method": method, "task": folder.name, "asked_seconds": seconds, "seed": seed}
        answer = {**about, **scores(found, np.load(folder / "test_labels.npy"))}
        if (reference := folder / "exact.npz").is_file():
            answer |= beside_exact(found, np.load(reference))
    if not np.isfinite(answer["log_score"]):
        raise InputError(f"{method} answered no finite density on {folder.name}; see {log_file}")
    write_json(result, answer)
    draws.unlink()
    return answer


def run(
    python: str, module: str, folder: pathlib.Path, arguments: list[Any], log_file: pathlib.Path
) -> None:
    """Runs `posteriors.MODULE TASK ARGUMENTS` with one thread; InputError where it fails."""
    one = dict.fromkeys(
        ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
    )
    tools = str(pathlib.Path(__file__).resolve().parent)
    with open(log_file, "w", encoding="utf-8") as file:
        status = subprocess.run(
            [python, "-m", f"posteriors.{module}", str(folder), *map(str, arguments)],
            cwd=folder,
            env={**os.environ, **one, "PYTHONPATH": tools},
            check=False,
            stdout=file,
            stderr=file,
        ).returncode
    if status:
        raise InputError(f"{module} failed on {folder.name} with status {status}; see {log_file}")


def interpreter(workdir: pathlib.Path, method: str) -> str:
    """Python of the method's environment, which is made if it is not there."""
    method = method.replace("_fits", "_npe")
    if method not in REQUIREMENTS:
        return sys.executable
    folder = workdir / "environments" / method
    python = folder / "bin" / "python"
    if not (folder / "ready").is_file():
        log(f"installing {', '.join(REQUIREMENTS[method])} into {folder}")
        venv.create(folder, clear=True, with_pip=True)
        if subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *REQUIREMENTS[method]], check=False
        ).returncode:
            raise InputError(f"{method} could not be installed; leave it out of --methods")
        (folder / "ready").touch()
    return str(python)


def scores(found: Mapping[str, np.ndarray], truths: np.ndarray) -> dict[str, Any]:
    """Means over the test records and their standard errors, of what `posteriors.frozen.main` wrote."""
    draws, log_score = found["draws"], found["log_score"]
    energy = energy_scores(draws, truths)
    low, high = np.quantile(draws, [0.025, 0.975], axis=1)
    inside = ((low <= truths) & (truths <= high)).mean()
    count = np.sqrt(len(truths))
    numbers = {
        "log_score": log_score.mean(), "log_score_error": log_score.std() / count,
        "lowest_log_score": log_score.min(), "median_log_score": np.median(log_score),
        "energy_score": energy.mean(), "energy_score_error": energy.std() / count, "coverage_95": inside,
        **{name: found[name] for name in found if name.endswith("_seconds") or name == "steps"},
    }  # fmt: skip
    return {name: float(number) for name, number in numbers.items()}


def make_reference(folder: pathlib.Path, count: int) -> None:
    """Writes exact.npz with the exact posteriors of the first test records, if it is not there."""
    file = folder / "exact.npz"
    if file.is_file() or not count:
        return
    log(f"{folder.name}: sampling {count} exact posteriors")
    with atomic_write(file, "wb") as out:
        np.savez(out, **exact_posteriors(folder, count))


def beside_exact(
    found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """What a method loses to the exact posteriors, mean nats and its standard error, and the median C2ST."""
    records = np.flatnonzero(exact["converged"])
    lost = exact["log_score"][records] - found["log_score"][records]
    count = exact["draws"].shape[1]
    alike = np.full(count, -np.log(count))
    apart = [
        c2st(found["draws"][i], SampledPosterior(exact["draws"][i], alike, 0.0, count))
        for i in records
    ]
    return {
        "num_exact": len(records),
        "lost": float(lost.mean()),
        "lost_error": float(lost.std() / np.sqrt(len(lost))),
        "c2st": float(np.median(apart)),
    }


def energy_scores(draws: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """E|X - t| - E|X - X'| / 2 (Gneiting and Raftery, J. Am. Stat. Assoc. 102 (2007) 359-378), [records].

    Args:
      draws: [records, samples, p]; truths: [records, p].
    """
    half = draws.shape[1] // 2
    to_truth = np.linalg.norm(draws - truths[:, None], axis=2).mean(axis=1)
    apart = np.linalg.norm(draws[:, :half] - draws[:, half : 2 * half], axis=2).mean(axis=1)
    return np.asarray(to_truth - 0.5 * apart)


def table(workdir: pathlib.Path) -> str:
    """All results so far as a Markdown table, written beside them: means over the seeds, their lowest and highest."""
    files = [file for file in sorted(workdir.glob("*/*.json")) if file.name != "task.json"]
    rows = [read_json(file) for file in files]
    write_json(workdir / "results.json", {"results": rows})
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["asked_seconds"], row["method"]), []).append(row)
    lines = [
        (
            "| task | method | seeds | training (s) | steps | log score (nats) | its median | energy score | 95 % hold "
            "| lost to exact (nats) | C2ST | preparing, answering (s) |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (task, _, method), group in sorted(groups.items()):
        columns = {
            key: np.array([row[key] for row in group], float)
            for key in group[0]
            if key not in ("task", "method") and all(key in row for row in group)
        }
        mean = {key: column.mean() for key, column in columns.items()}
        between = {
            key: f"{mean[key]:{form}} ({columns[key].min():{form}} to {columns[key].max():{form}})"
            if key in mean
            else "–"
            for key, form in _BETWEEN.items()
        }
        lines.append(
            f"| {task} | {method} | {len(group)} | {mean['training_seconds']:.0f} | {mean['steps']:,.0f} "
            f"| {between['log_score']} | {mean['median_log_score']:.2f} | {between['energy_score']} "
            f"| {100 * mean['coverage_95']:.1f} % | {between['lost']} | {between['c2st']} "
            f"| {mean['preparing_seconds']:.0f}, {mean['answering_seconds']:.0f} |"
        )
    with atomic_write(workdir / "table.md", "w") as file:
        file.write("\n".join(lines) + "\n")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
