"""Compares answers for specimens that a program simulates: tfmat, emulators with Markov chains, least squares.

    tools/compare_specimens --simulator=docs/examples/notched_bar --runs=data/notched_bar.runs --num_runs=3300 \\
        --test_from=2700 --train=2700,1000

All methods have the same stored runs (of `tfmat generate --simulator`, which are only read) and are judged on the same
noisy records of the runs from --test_from on, which nothing learns from; what is random about them is drawn once, from
the description's laboratory. The methods:

    network       tfmat's network, trained on noisy copies of the runs by configs/specimen.py
    forward       tfmat's network, trained on curves of the forward network that `tfmat emulate` makes of the runs
    corrected     what `tfmat identify` answers: the draws of `forward`, corrected with the forward network's likelihood
    polynomials   polynomials of values for principal components of the curves, and Markov chains by emcee with machine,
                  zero, noise level and all nuisances unknown, each with its prior; its error in the likelihood
    processes     the same with Gaussian processes (scikit-learn), whose chains take some ten times as long
    solver        least squares with a run of the program for every step, nuisances held in the middle

Told are the squared error of the posterior mean (labels 0-1, mean over the parameters), how often 95 % intervals hold
the truth, the energy score, processor seconds of training and of a specimen, how many times as long `solver` takes, and
after how many specimens the network is ahead, the seconds of the runs included. Wanted, with 3,000 runs and written
down before any was compared: an error of the network of at most 1.3 times that of the chains; 95 % intervals that hold
93-97 % of 500 records; a specimen in a thousandth of the time of `solver`.

Every answer is stored in --workdir when it is there, so that a comparison that was interrupted goes on. `table.md` and
`results.json` hold all that there are. Remove the folder of a method to have it anew.
"""

import argparse
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

import compare_posteriors
from specimens.freezing import freeze
from specimens.frozen import Records, Runs, answer_path
from tfmat.console import log
from tfmat.errors import InputError, TfmatError
from tfmat.files import atomic_write, make_folder, write_json
from tfmat.specimens.description import Description, read_description

_TOLD_BESIDE = ("squared_error", "median_squared_error", "energy_score", "coverage_95_each")
METHODS = ("network", "forward", "corrected", "polynomials", "processes", "solver")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulator", type=pathlib.Path, required=True, help="the description")
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="data/NAME.runs")
    parser.add_argument("--num_runs", type=int, required=True, help="that were made")
    parser.add_argument(
        "--test_from", type=int, required=True, help="number of the first that judges"
    )
    parser.add_argument("--train", required=True, help="numbers of runs that train: 2700,1000")
    parser.add_argument("--methods", default=",".join(METHODS), help="default: %(default)s")
    parser.add_argument("--specimens", type=int, default=500, help="that chains answer (500)")
    parser.add_argument("--fits", type=int, default=4, help="specimens of `solver` (4)")
    parser.add_argument("--seed", type=int, default=0, help="of runs, records and networks (0)")
    parser.add_argument(
        "--workdir", type=pathlib.Path, default=pathlib.Path("runs/compare_specimens")
    )
    given, flags = parser.parse_known_args()
    given.workdir = make_folder(given.workdir.resolve())
    try:
        methods, sizes = given.methods.split(","), [int(size) for size in given.train.split(",")]
        for name in methods:
            if name not in METHODS:
                raise InputError(f"there is no {name}; choose of {', '.join(METHODS)}")
        for flag in flags:
            if not flag.startswith("--config."):
                raise InputError(f"there is no {flag}; --help lists all flags")
        if not 0 < max(sizes) <= given.test_from < given.num_runs:
            raise InputError("wanted is 0 < --train <= --test_from < --num_runs")
        description = read_description(given.simulator)
        freeze(
            description,
            given.runs,
            given.workdir,
            num_runs=given.num_runs,
            test_from=given.test_from,
            sizes=sizes,
            seed=given.seed,
        )
        for name in methods:
            for size in sizes if name != "solver" else sizes[:1]:
                answered(description, given, name, size, flags)
                log(table(given.workdir))
    except (TfmatError, ValueError) as error:
        print(f"tools/compare_specimens: {error}", file=sys.stderr)
        return 2
    return 0


def answered(
    description: Description, given: argparse.Namespace, name: str, size: int, flags: list[str]
) -> None:
    """Has a method answer the records that it has not answered yet."""
    folder = make_folder(given.workdir / f"{name}-{size}")
    runs_file, records_file = given.workdir / f"runs-{size}.npz", given.workdir / "records.npz"
    records = Records.open(records_file)
    if name in ("network", "forward"):
        from specimens import tfmat_network

        train = tfmat_network.train if name == "network" else tfmat_network.train_by_law
        train(description, Runs.open(runs_file), folder, flags, given.seed)
        tfmat_network.answer(records, folder, len(description.parameters), given.seed)
    elif name == "corrected":
        from specimens import tfmat_network

        trained = given.workdir / f"forward-{size}"
        if not (trained / "trained.npz").is_file():
            raise InputError("corrected takes the network of forward; name both, forward first")
        tfmat_network.answer_corrected(
            records, trained, folder, len(description.parameters), given.specimens
        )
    elif name == "solver":
        from specimens import least_squares

        least_squares.answer(description, records, folder, given.fits)
    else:
        _in_a_process(given, name, runs_file, records_file, folder)


def _in_a_process(
    given: argparse.Namespace,
    name: str,
    runs_file: pathlib.Path,
    records_file: pathlib.Path,
    folder: pathlib.Path,
) -> None:
    module = "specimens.emulator_chains"
    command = [sys.executable, "-m", module, name, str(runs_file), str(records_file)]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    tools = str(pathlib.Path(__file__).resolve().parent)
    with open(folder / "chains.log", "a", encoding="utf-8") as file:
        status = subprocess.run(
            [*command, str(folder), str(given.specimens)],
            env={**os.environ, **one, "PYTHONPATH": tools},
            check=False,
            stdout=file,
            stderr=file,
        ).returncode
    if status:
        raise InputError(f"{name} failed with status {status}; see {folder / 'chains.log'}")


def answers(folder: pathlib.Path, count: int) -> dict[str, np.ndarray]:
    """What a method stored, [answered records, ...] each, with `number`, which records these are."""
    numbers = [i for i in range(count) if answer_path(folder, i).is_file()]
    rows = []
    for i in numbers:
        with np.load(answer_path(folder, i)) as file:
            rows.append({name: file[name] for name in file.files})
    arrays = {name: np.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    return {"number": np.array(numbers, int), **arrays}


def scores(found: dict[str, np.ndarray], truths: np.ndarray) -> dict[str, float | list[float]]:
    """Of the answers of one method to records with these true labels [records, p]."""
    off = ((found["mean"] - truths) ** 2).mean(axis=1)
    inside = (found["low"] <= truths) & (truths <= found["high"])
    told: dict[str, float | list[float]] = {
        "records": len(truths),
        "squared_error": float(off.mean()),
        "squared_error_error": float(off.std() / np.sqrt(len(off))),
        "median_squared_error": float(np.median(off)),
        "coverage_95": float(inside.mean()),
        "coverage_95_each": inside.mean(axis=0).tolist(),
        "width_95_each": (found["high"] - found["low"]).mean(axis=0).tolist(),
        "seconds_a_specimen": float(found["seconds"].mean()),
    }
    if "draws" in found:
        told["energy_score"] = float(
            compare_posteriors.energy_scores(found["draws"], truths).mean()
        )
    for name in ("alone", "runs", "elapsed", "autocorrelation", "r_hat"):
        if name in found:
            told[name] = float(found[name].mean())
    if "r_hat" in found:
        told["highest_r_hat"] = float(found["r_hat"].max())
    return told


def results(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """All methods that answered something, each beside the network that learned from the same runs."""
    with np.load(workdir / "records.npz") as file:
        truths = file["truth"]
    found = {
        (name, size): answers(folder, len(truths))
        for folder in sorted(workdir.glob("*-*"))
        for name, _, size in [folder.name.rpartition("-")]
        if name in METHODS and folder.is_dir()
    }
    rows = []
    for (name, size), one in found.items():
        if not len(one["number"]):
            continue
        row: dict[str, Any] = {"method": name, "runs_that_train": int(size)}
        row |= scores(one, truths[one["number"]])
        row["seconds_of_runs"] = Runs.open(workdir / f"runs-{size}.npz").seconds
        trained = workdir / f"{name}-{size}" / "trained.npz"
        if trained.is_file():
            with np.load(trained) as file:
                row |= {
                    "training_seconds": float(file["training_seconds"]),
                    "told": str(file["told"]),
                }
        network, own = found.get(("network", size)), workdir / f"network-{size}" / "trained.npz"
        if name != "network" and network is not None and own.is_file():
            same = np.isin(network["number"], one["number"])
            if same.sum() == len(one["number"]):
                beside = scores({k: v[same] for k, v in network.items()}, truths[one["number"]])
                with np.load(own) as file:
                    training = float(file["training_seconds"])
                row |= {f"network_{k}": beside[k] for k in _TOLD_BESIDE if k in beside}
                row["error_of_network_over_this"] = beside["squared_error"] / row["squared_error"]
                # The runs are the emulator's as well.
                ahead = training + (row["seconds_of_runs"] if name == "solver" else 0.0)
                ahead -= row.get("training_seconds", 0.0)
                quicker = row["seconds_a_specimen"] - beside["seconds_a_specimen"]
                row["times_quicker"] = row["seconds_a_specimen"] / beside["seconds_a_specimen"]
                row["break_even_specimens"] = max(0.0, ahead / quicker)
        rows.append(row)
    in_the_loop = [row["seconds_a_specimen"] for row in rows if row["method"] == "solver"]
    for row in rows:
        if in_the_loop and row["method"] != "solver":
            row["solver_over_this"] = in_the_loop[0] / row["seconds_a_specimen"]
    return rows


def table(workdir: pathlib.Path) -> str:
    """All results so far as a Markdown table, written beside them."""
    rows = results(workdir)
    write_json(workdir / "results.json", {"results": rows})
    lines = [
        (
            "| method | runs | records | squared error (1e-4) | network's on these | network / this | 95 % hold, each "
            "| energy score | training (s) | a specimen (s) | solver's time / this | network is ahead from |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        each = ", ".join(f"{100 * share:.1f}" for share in row["coverage_95_each"])

        def number(name: str, form: str, factor: float = 1.0, row: dict[str, Any] = row) -> str:
            return f"{factor * row[name]:{form}}" if name in row else "-"

        lines.append(
            f"| {row['method']} | {row['runs_that_train'] if row['method'] != 'solver' else '-'} | {row['records']} "
            f"| {number('squared_error', '.2f', 1e4)} ± {number('squared_error_error', '.2f', 1e4)} "
            f"| {number('network_squared_error', '.2f', 1e4)} "
            f"| {number('error_of_network_over_this', '.2f')} | {each} % | {number('energy_score', '.4f')} "
            f"| {number('training_seconds', ',.0f')} | {number('seconds_a_specimen', '.3g')} "
            f"| {number('solver_over_this', ',.0f')} | {number('break_even_specimens', ',.0f')} |"
        )
    with atomic_write(workdir / "table.md", "w") as file:
        file.write("\n".join(lines) + "\n")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
