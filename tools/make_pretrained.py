"""Trains the networks that come with tfmat and puts them into tfmat/pretrained/.

  tools/make_pretrained                           every law that a network comes with
  tools/make_pretrained swift                     this one
  tools/make_pretrained voce --data_dir=data --config.train_for=40epochs

For each law: `tfmat train --config=configs/pretrained.py` into runs/pretrained_LAW (where an interrupted run goes on),
`tfmat evaluate`, and then model.keras, model.json, evaluation.json and a README.md with the command and the accuracy
into tfmat/pretrained/LAW/. Flags go to `tfmat train`. A law that is named and has no network yet gets one.
"""

import datetime
import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from tfmat.errors import InputError
from tfmat.files import atomic_write, make_folder
from tfmat.materials.registry import law_class
from tfmat.report.formatting import format_unit, format_value

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# Swift is the metal law whose least squares follow the 304L tension tests best: 0.3 to 1 % of the maximum stress, Voce
# 0.4 to 1, Ramberg-Osgood 5 to 10.
LAWS = ("hahn_tsai", "swift")
FILES = ("model.keras", "model.json", "evaluation.json")


def main(arguments: list[str]) -> int:
    if any(argument in ("--help", "-h") for argument in arguments):
        print(__doc__)
        return 0
    flags = [argument for argument in arguments if argument.startswith("-")]
    laws = [argument for argument in arguments if not argument.startswith("-")] or list(LAWS)
    try:
        for flag in flags:
            if flag.startswith(("--workdir", "--law", "--config=")) or "=" not in flag:
                raise InputError(f"{flag} cannot be given here; --config.KEY=VALUE can")
        names = [law_class(law).name for law in laws]
    except InputError as error:
        print(f"tools/make_pretrained: {error}", file=sys.stderr)
        return error.exit_status
    for name in names:
        status = make(name, flags)
        if status:
            return status
    return 0


def make(law: str, flags: list[str]) -> int:
    """Trains, evaluates and copies one; returns the exit status."""
    workdir = pathlib.Path("runs") / f"pretrained_{law}"
    config = PROJECT / "configs" / "pretrained.py"
    tfmat = [sys.executable, "-P", "-m", "tfmat"]
    for command in (
        ["train", f"--config={config}", f"--law={law}", f"--workdir={workdir}", *flags],
        ["evaluate", f"--workdir={workdir}"],
    ):
        status = subprocess.run([*tfmat, *command], check=False).returncode
        if status:
            return status
    folder = make_folder(PROJECT / "tfmat" / "pretrained" / law)
    for name in FILES:
        shutil.copyfile(workdir / name, folder / name)
    with atomic_write(folder / "README.md", "w") as file:
        file.write(readme(law, flags, workdir))
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.2f} MB")
    return 0


def readme(law: str, flags: list[str], workdir: pathlib.Path) -> str:
    """What made a network, on what, and how good it is."""
    config, sidecar, evaluation = (
        json.loads((workdir / name).read_text("utf-8"))
        for name in ("config.json", "model.json", "evaluation.json")
    )
    curves = sidecar["curves"]
    ranges = ", ".join(
        f"{p['name']} {p['low']:g}–{p['high']:g} {format_unit(p['unit'])}".rstrip()
        + (" (log-uniform)" if p["scale"] == "log" else "")
        for p in sidecar["parameters"]
    )
    strength = curves["strength_mpa"]
    relative = curves["noise_relative"]
    also = f" and {100 * relative:g} % of the stress" if relative else ""
    cut = f", cut off at a strength of {strength[0]:g}–{strength[1]:g} MPa" if strength else ""
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("tensorflow", "keras"))
    count, seed, steps = config["data"]["num_curves"], config["seed"], config["total_steps"]
    low, high = curves["max_strain"]
    # Where data sets lie changes no number.
    given = [flag for flag in flags if not flag.startswith("--data_dir")]
    data = (
        f"{count:,} simulated curves (seed {seed}), three quarters of them for training; {ranges}; largest strain "
        f"{low:g}–{high:g}; {curves['num_points']} points; noise {curves['noise_mpa']:g} MPa{also}{cut}"
    )
    training = (
        f"{config['train_for']} at batch {config['global_batch_size']}, {steps:,} steps; {versions}; "
        f"{datetime.datetime.now(datetime.UTC).date()}"
    )
    lines = [
        f"# Network for the law {law}",
        "",
        "Answers `tfmat identify` where no run of your own does. Made with",
        "",
        f"    {' '.join(['tools/make_pretrained', law, *given])}",
        "",
        f"* Data: {data}.",
        f"* Training: {training}.",
        "",
        *_accuracy(evaluation),
    ]
    return "\n".join(lines) + "\n"


def _accuracy(evaluation: dict[str, Any]) -> list[str]:
    lines = [
        f"On {evaluation['num_curves']:,} test curves with the same noise:",
        "",
        "| parameter | mean absolute error | R² | η = MSE / Bayes risk | 50 / 90 / 95 % intervals hold the truth |",
        "|---|---|---|---|---|",
    ]
    yardstick = evaluation["yardstick"]
    for name, score in evaluation["parameters"].items():
        error = f"{format_value(score['mae'], 3)} {format_unit(score['unit'])}".strip()
        if score["mae_decades"] is not None:
            error += f" ({format_value(score['mae_decades'], 3)} decades)"
        elif score["mae_percent"] is not None:
            error += f" ({format_value(score['mae_percent'], 3)} %)"
        eta = "–"
        if yardstick:
            entry = yardstick["parameters"][name]
            eta = f"{entry['eta']:.2f} ± {entry['eta_error']:.2f}"
        coverage = evaluation["coverage"][name]
        held = " / ".join(f"{100 * coverage[percent]:.1f}" for percent in ("50", "90", "95"))
        lines.append(f"| {name} | {error} | {score['r2']:.4f} | {eta} | {held} % |")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
