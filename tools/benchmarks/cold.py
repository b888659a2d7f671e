"""A cold `tfmat identify`: processor seconds and memory of one command that answers by least squares."""

import csv
import os
import pathlib
import subprocess
import sys
from typing import Any

from benchmarks.rounds import quantity
from tfmat.console import progress_bar
from tfmat.materials import find_law
from tfmat.materials.registry import LAWS, MONOTONIC_LAWS
from tfmat.records.files import TABLE, write_example_curve, write_example_tests
from tfmat.records.simulation import CurveSettings

# Limits: an answer (processor seconds, MB), help (processor seconds), and a folder of files (seconds).
ANSWER_S, ANSWER_MB, HELP_S, FILES_S = 1.5, 200.0, 0.35, 15.0
# RANKED_S: processor seconds of an answer without --law, which fits all laws for the kind of test, by that kind.
RANKED_S = {"tension": 2.0, "cycles": 3.0, "eight specimens": 15.0}
# STEEL: parameters of 304L by the mixture of Swift's and Voce's laws, whose intervals take longest.
STEEL = {
    "E": 139400.0,
    "K": 664.0,
    "epsilon0": 1e-4,
    "n": 0.106,
    "Q": 1833.0,
    "b": 1.44,
    "alpha": 0.325,
}
NUM_FILES = 100
# Runs the command and leaves what Linux says of its memory; `wait4` tells the parent's where that is larger.
_PROGRAM = """
import pathlib, runpy, sys
status = pathlib.Path(sys.argv.pop(1))
try:
    runpy.run_module("tfmat", run_name="__main__", alter_sys=True)
finally:
    status.write_text(pathlib.Path("/proc/self/status").read_text())
"""


def measure_cold(folder: pathlib.Path, rounds: int, num_files: int = NUM_FILES) -> dict[str, Any]:
    """Every command once a round, in turns. The least of all rounds counts, for other work only adds."""
    commands = _commands(folder, num_files)
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    with progress_bar("cold commands", "commands") as progress:
        for done in range(rounds * len(commands)):
            name = list(commands)[done % len(commands)]
            samples[name].append(_run(commands[name], folder))
            if progress is not None:
                progress(done + 1, rounds * len(commands))
    quantities = []
    for name, found in samples.items():
        seconds, megabytes, wall = (min(column) for column in zip(*found, strict=True))
        if name.endswith("files"):
            quantities.append(quantity(name, wall, "s", "≤", FILES_S))
            continue
        limit = (
            HELP_S
            if name.endswith("help")
            else RANKED_S.get(name.removeprefix("laws ranked, "), ANSWER_S)
        )
        quantities.append(quantity(f"{name}, processor", seconds, "s", "≤", limit))
        quantities.append(quantity(f"{name}, memory", megabytes, "MB", "≤", ANSWER_MB))
    return {"quantities": quantities, "samples": samples}


def _run(arguments: list[str], folder: pathlib.Path) -> tuple[float, float, float]:
    """Processor seconds, largest memory in MB, and seconds of one command; CalledProcessError where it fails."""
    status, before = folder / "status", os.times().elapsed
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(status), *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    _, code, used = os.wait4(process.pid, 0)
    wall, process.returncode = os.times().elapsed - before, os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return used.ru_utime + used.ru_stime, float(peak.split()[1]) / 1000.0, wall


def _commands(folder: pathlib.Path, num_files: int) -> dict[str, list[str]]:
    """The arguments of each command, whose files are made."""
    commands = {"--help": ["--help"], "identify --help": ["identify", "--help"]}
    for name in MONOTONIC_LAWS:
        write_example_curve(find_law(name), folder / f"{name}.csv")
        commands[f"identify, {name}"] = ["identify", f"{name}.csv", f"--law={name}"]
    for name in [name for name in LAWS if name not in MONOTONIC_LAWS]:
        tests = write_example_tests(CurveSettings(law=name), folder / name)
        with open(tests / TABLE, newline="") as table:
            file_of = {row["test"]: f"{name}/{row['file']}" for row in csv.DictReader(table)}
        # Rate and temperature of a test stand in the table.
        if name == "johnson_cook":
            commands[f"identify, {name}"] = ["identify", f"{name}/{TABLE}", f"--law={name}"]
            continue
        for test, file in file_of.items():
            commands[f"identify, {name}, {test}"] = ["identify", f"{test}={file}", f"--law={name}"]
    law, specimens = find_law("swift_voce"), folder / "specimens"
    specimens.mkdir()
    for seed in range(8):
        write_example_curve(law, specimens / f"{seed}.csv", parameters=STEEL, seed=seed)
    commands["laws ranked, tension"] = ["identify", "specimens/0.csv"]
    commands["laws ranked, cycles"] = ["identify", "voce_chaboche/1_cyclic.csv"]
    commands["laws ranked, eight specimens"] = ["identify", "specimens", "--pool"]
    (folder / "many").mkdir()
    for seed in range(num_files):
        write_example_curve(find_law("voce"), folder / "many" / f"{seed}.csv", seed=seed)
    commands[f"identify, voce, {num_files} files"] = ["identify", "many", "--law=voce"]
    return commands
