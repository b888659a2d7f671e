"""Trains the networks that come with tfmat and puts them into tfmat/pretrained/.

  tools/make_pretrained                           both networks of every law that comes with them
  tools/make_pretrained swift                     the quick one of this law, which answers with values and intervals
  tools/make_pretrained swift/posterior           the one with a whole posterior, where samples are asked for
  tools/make_pretrained voce --data_dir=data --config.train_for=40epochs

For each: `tfmat train --config=configs/pretrained.py` (for metals pretrained_metal.py, for laws of tests their own)
into runs/pretrained_LAW (where an interrupted run goes on), `tfmat evaluate`, and then model.keras, model.json,
evaluation.json and a README.md with the command and the accuracy into tfmat/pretrained/LAW/, or its folder posterior.
Flags go to `tfmat train`. A law that is named and has no network yet gets one. A posterior is told around fits of
records of the same kind, which takes minutes on two processors, and up to an hour for cyclic tests.
"""

import datetime
import importlib.metadata
import io
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from tfmat.errors import InputError
from tfmat.files import atomic_write, make_folder
from tfmat.materials.registry import law_class
from tfmat.report.run_files import read_evaluation
from tfmat.report.tables import evaluation_tables, format_unit

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# Swift and Voce are the metal laws whose least squares follow the 304L tension tests: 0.7 to 1.7 % of the maximum
# stress; Ramberg-Osgood 5 to 10.
LAWS = ("hahn_tsai", "ogden", "swift", "voce", "voce_chaboche")
# For metals the config that imitates their tests, and about the square root of how strongly a curve depends on each of
# its labels: what a curve says nothing of, such as E of a long one, would have most of the squared error otherwise.
METALS = {"swift": "1,40,6,12", "voce": "1,15,8,3"}


def _flags(curves: int, epochs: int, **model: float) -> tuple[str, ...]:
    keys = {"data.num_curves": curves, "train_for": f"{epochs}epochs"}
    keys |= {f"model.{key}": value for key, value in model.items()}
    return tuple(f"--config.{key}={value}" for key, value in keys.items())


# Laws of tests: their config, with more records and with what a laboratory adds to them.
_LABORATORY = "--config.data.laboratory=true"
TESTS = {
    "ogden": ("rubber.py", _LABORATORY, *_flags(600_000, 10)),
    "voce_chaboche": (
        "cyclic.py",
        _LABORATORY,
        # No steel follows the law to its noise: the best fits of measured tests leave one to five per cent.
        "--config.data.misfit=0.003,0.05",
        # One record in a hundred makes the squared error of E and sigma0.
        "--config.data.num_test=20000",
        *_flags(400_000, 40),
    ),
}
# What a network with a whole posterior is called, after its law, and its config, whatever the law: around fits.
_KIND = "/posterior"
_POSTERIOR = (
    "--config.model.uncertainty=flow",
    "--config.model.representation=fit",
    "--config.model.input_scaling=data_set",
    "--config.loss_weights=none",
    "--config.model.hidden_units=256,256",
    "--config.model.activation=gelu",
    "--config.optimizer.learning_rate=2e-3",
    "--config.optimizer.clip_norm=1",
    "--config.global_batch_size=300",
    # More are only fitted, and learnt from by nobody.
    "--config.data.num_test=5000",
)
# Records, how much is forgotten where they are few for what there is to learn, and a larger flow where there is more.
POSTERIORS = {
    "hahn_tsai": _flags(200_000, 12),
    "ogden": _flags(400_000, 25, dropout=0.05),
    "swift": _flags(600_000, 20, dropout=0.02),
    "voce": _flags(600_000, 20, dropout=0.02),
    "voce_chaboche": _flags(200_000, 40, dropout=0.05, couplings=10, coupling_units=64),
}
FILES = ("model.keras", "model.json", "evaluation.json")


def main(arguments: list[str]) -> int:
    if any(argument in ("--help", "-h") for argument in arguments):
        print(__doc__)
        return 0
    flags = [argument for argument in arguments if argument.startswith("-")]
    every = [*LAWS, *(law + _KIND for law in POSTERIORS)]
    asked = [argument for argument in arguments if not argument.startswith("-")] or every
    try:
        for flag in flags:
            if flag.startswith(("--workdir", "--law", "--config=")) or "=" not in flag:
                raise InputError(f"{flag} cannot be given here; --config.KEY=VALUE can")
        names = [_checked(name) for name in asked]
    except InputError as error:
        print(f"tools/make_pretrained: {error}", file=sys.stderr)
        return error.exit_status
    for name in names:
        status = make(name, flags)
        if status:
            return status
    return 0


def _checked(name: str) -> str:
    """The network's name, LAW or LAW/posterior; InputError where there is no such law, or no recipe."""
    law = law_class(name.removesuffix(_KIND)).name
    if not name.endswith(_KIND):
        return law
    if law not in POSTERIORS:
        known = ", ".join(each + _KIND for each in POSTERIORS)
        raise InputError(f"there is no recipe for {name}; give one of {known}, or a law")
    return law + _KIND


def make(network: str, flags: list[str]) -> int:
    """Trains, evaluates and copies one; returns the exit status."""
    law, posterior = network.removesuffix(_KIND), network.endswith(_KIND)
    workdir = pathlib.Path("runs") / f"pretrained_{network.replace('/', '_')}"
    name, *changes = TESTS.get(law, ("pretrained.py",))
    if law in METALS:
        name, changes = "pretrained_metal.py", [f"--config.loss_weights={METALS[law]}"]
    if posterior:
        changes = [*changes, *_POSTERIOR, *POSTERIORS[law]]
    config = PROJECT / "configs" / name
    tfmat = [sys.executable, "-P", "-m", "tfmat"]
    for command in (
        ["train", f"--config={config}", f"--law={law}", f"--workdir={workdir}", *changes, *flags],
        # What a laboratory adds and does not tell makes the best possible error a matter of hours.
        ["evaluate", f"--workdir={workdir}", *(["--reference=false"] if law in TESTS else [])],
    ):
        status = subprocess.run([*tfmat, *command], check=False).returncode
        if status:
            return status
    folder = make_folder(PROJECT / "tfmat" / "pretrained" / network)
    for name in FILES:
        shutil.copyfile(workdir / name, folder / name)
    with atomic_write(folder / "README.md", "w") as file:
        file.write(readme(network, flags, workdir))
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.2f} MB")
    return 0


def readme(network: str, flags: list[str], workdir: pathlib.Path) -> str:
    """What made a network, on what, and how good it is."""
    config, sidecar = (
        json.loads((workdir / name).read_text("utf-8")) for name in ("config.json", "model.json")
    )
    curves = sidecar["curves"]
    ranges = ", ".join(
        f"{p['name']} {p['low']:g}–{p['high']:g} {format_unit(p['unit'])}".rstrip()
        + (" (log-uniform)" if p["scale"] == "log" else "")
        for p in sidecar["parameters"]
    )
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("tensorflow", "keras"))
    count, seed, steps = config["data"]["num_curves"], config["seed"], config["total_steps"]
    # Where data sets lie changes no number.
    given = [flag for flag in flags if not flag.startswith("--data_dir")]
    kind = "records" if curves.get("tests") else "curves"
    rows = {
        "data": f"{count:,} simulated {kind} (seed {seed}), three quarters of them for training",
        "ranges": ranges,
        "settings": "; ".join(_settings(curves)),
        "training": f"{config['train_for']} at batch {config['global_batch_size']}, {steps:,} steps; {versions}; "
        f"{datetime.datetime.now(datetime.UTC).date()}",
    }
    law, posterior = network.removesuffix(_KIND), network.endswith(_KIND)
    asked = " and samples of the posterior are asked for" if posterior else ""
    said = io.StringIO()
    Console(file=said, width=160).print(
        *evaluation_tables(read_evaluation(workdir / "evaluation.json")), sep="\n"
    )
    lines = [
        f"# {'Posterior' if posterior else 'Network'} for the law {law}",
        "",
        f"Answers `tfmat identify` where no run of your own does{asked}. Made with",
        "",
        f"    {' '.join(['tools/make_pretrained', network, *given])}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in rows.items()),
        "",
        "`tfmat evaluate` says of other curves of the same kind:",
        "",
        *(f"    {line}".rstrip() for line in said.getvalue().splitlines()),
    ]
    return "\n".join(lines) + "\n"


def _settings(curves: dict[str, Any]) -> Iterator[str]:
    """How far specimens are strained and what parts curves from their law: keys of a config's section `data`."""
    for name, value in curves.items():
        if not value or name in ("law", "ranges", "scales"):
            continue
        is_range = isinstance(value, list) and not isinstance(value[0], str)
        text = "–".join(f"{end:g}" for end in value) if is_range else str(value)
        yield f"{name} {', '.join(value) if name == 'tests' else text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
