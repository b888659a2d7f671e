"""Keeps what users get in a file before a refactoring, and compares with it afterwards.

    tools/frozen write before.json      on the commit before: some minutes
    tools/frozen compare before.json    afterwards, on the same machine: a line for each difference, and status 1 if any

Parts are real (answers for the measured curves in $TFMAT_REAL_CURVES), laws (answers for a simulated record of each),
commands (their files and texts), data (generated sets) and training (six steps).
Modules may be renamed, because only commands and public names are used. Times and paths are left out.
"""

import argparse
import concurrent.futures
import contextlib
import csv
import functools
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

# One thread for linear algebra: the same sums on every machine, and no turns lost on a busy one.
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
import h5py
import numpy as np

import tfmat

POOL = functools.partial(
    concurrent.futures.ProcessPoolExecutor, 2, multiprocessing.get_context("spawn")
)
PARTS = ("real", "laws", "commands", "data", "training")
PACKAGE = pathlib.Path(tfmat.__file__).parent
REAL = pathlib.Path(os.environ.get("TFMAT_REAL_CURVES", "/nowhere"))
# VOLATILE: names of values that differ from run to run.
VOLATILE = re.compile(r"seconds$|_per_second$|^(started|use|folder)$")
# UNSAMPLED: laws whose posteriors take minutes; the other laws' samples come from the same code.
UNSAMPLED = ("voce_chaboche_1", "voce_chaboche_3", "ladeveze_shear", "perzyna", "norton")
# FEW and SMALL: flags of a data set of six curves, and of a training of six steps.
FEW = ("--num_curves=4", "--num_test=2", "--num_points=80", "--data_dir=data")
SMALL = (
    *("--data_dir=data", "--workdir=run", "--config.train_for=6steps", "--config.data.num_test=20"),
    *("--config.data.num_curves=40", "--config.global_batch_size=8"),
)


def command(*words: Any) -> str:
    """The output of a command of tfmat, or the error that ended it."""
    line = [sys.executable, "-P", "-m", "tfmat", *map(str, words)]
    ended = subprocess.run(line, capture_output=True, text=True)
    return f"status {ended.returncode}: {ended.stderr}" if ended.returncode else ended.stdout


def files(patterns: str, *words: Any) -> dict[str, Any]:
    """The files that a command writes, or its error: shards and weights as digests."""
    said = command(*words)
    found: dict[str, Any] = {}
    for path in sorted(path for each in patterns.split() for path in pathlib.Path().glob(each)):
        if path.suffix == ".keras":
            found[path.name] = weights(path)
        elif path.name.startswith("shard-"):
            found[path.name] = digest(np.fromfile(path, dtype="<f4"))
        elif path.suffix == ".jsonl":
            found[path.name] = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            found[path.name] = path.read_text()
    return found or {"failed": said}


def digest(values: Any) -> dict[str, Any]:
    """A digest shows any change of an array, its mean size how large the change is."""
    array = np.asarray(values)
    sha256 = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return {"sha256": sha256, "size": float(np.abs(array).astype(np.float64).mean())}


def weights(file: pathlib.Path) -> dict[str, Any]:
    """Every variable in a .keras file."""
    found: dict[str, Any] = {}

    def keep(name: str, each: Any) -> None:
        if isinstance(each, h5py.Dataset):
            found[name] = digest(each[()])

    with h5py.File(io.BytesIO(zipfile.ZipFile(file).read("model.weights.h5"))) as variables:
        variables.visititems(keep)
    return found


def answers(*curves: Any, **options: Any) -> list[Any]:
    """The answers of `tfmat.identify`, with means and standard deviations of their samples."""
    found, kept = tfmat.identify(*curves, **options), []
    for answer in found if isinstance(found, list) else [found]:
        kept.append(answer.to_json())
        if options.get("details"):
            kept[-1]["network"] = [value.network for value in answer.parameters.values()]
        if answer.samples is not None:
            drawn = np.column_stack([answer.samples.values, answer.samples.log_density])
            kept[-1]["samples"] = [drawn.mean(axis=0).tolist(), drawn.std(axis=0).tolist()]
    return kept


def law(name: str, **options: Any) -> dict[str, Any]:
    """A law's data set and the answers for its first record, without samples and with them."""
    found = files("data/*/shard-*", "generate", f"--law={name}", *FEW)
    (folder,) = pathlib.Path("data").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    tests = manifest["settings"].get("tests")
    values = np.fromfile(next(folder.glob("*.features")), "<f4").astype(np.float64)
    record = values.reshape(manifest["features_shape"])[0]
    # A point whose third number is 1 is none.
    parts = [part[part[:, 2] == 0].T for part in np.split(record, len(tests or [name]))]
    curves: Any = parts[0][:2]
    if tests:
        curves = [{test: [] for test in tests}]
        for test, (strain, stress, _, *more) in zip(tests, parts, strict=True):
            told: dict[str, Any] = {"time": more[0]} if len(more) == 1 else {}
            if len(more) == 2:
                told = {"rate": float(more[0][0]), "temperature": float(more[1][0])}
            curves[0][test].append({"strain": strain, "stress": stress, **told})
    for samples in (0,) if name in UNSAMPLED else (0, 200):
        found[f"samples={samples}"] = answers(*curves, law=name, samples=samples, **options)
    return found


def labelled() -> dict[str, Any]:
    """A data set of curves of the user's own."""
    labels = np.array([[4000.0, 80.0], [5000.0, 70.0], [3000.0, 90.0]] * 4)
    strain = np.tile(np.linspace(0.0, 0.05, 60), (12, 1))
    stress = labels[:, 1:] * np.tanh(labels[:, :1] * strain / labels[:, 1:])
    own = {"strain": strain, "stress": stress, "parameters": labels}
    np.savez("own.npz", names=["G0", "S"], units=["MPa", "MPa"], **own)
    flags = ("--copies=3", "--noise_of_maximum=0.001,0.01", "--data_dir=data")
    return files("data/*/shard-*", "generate", "--from=own.npz", *flags)


def evaluated(network: str) -> dict[str, Any]:
    """The measured accuracy of a shipped network."""
    shutil.copytree(PACKAGE / "pretrained" / network, "run")
    command("generate", f"--law={network}", *FEW, "--num_test=20", "--num_points=200")
    (data,) = pathlib.Path("data").iterdir()
    flags = ("--workdir=run", f"--data_dir={data}", "--num_reference=20", "--json=out.json")
    return files("out.json", "evaluate", *flags)


def tasks() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Part, key and what is kept of it; the longest come first, so that processes end together."""

    def task(part: str, key: str, function: Callable[..., Any], *given: Any, **options: Any) -> Any:
        return part, key, functools.partial(function, *given, **options)

    tension = sorted(str(file) for file in REAL.glob("*/cleaned_*"))
    for file in sorted(REAL.glob("resspylab_cyclic_steel/*.csv")):
        yield task("real", file.stem, answers, {"cyclic": str(file)}, law="voce_chaboche")
    for name in ("voce", "swift", "ramberg_osgood", "ludwik"):
        yield task("real", f"tension {name}", answers, tension, law=name, stress_unit="ksi")
    yield task("real", "sampled", answers, tension[:6], law="voce", stress_unit="ksi", samples=200)
    rubbers = ("rubber_treloar_1944", "rubber_meunier_2008")
    for rubber, name in itertools.product(rubbers, ("ogden", "yeoh", "neo_hooke")):
        modes = {"uniaxial": "UT.txt", "equibiaxial": "ET.txt", "planar": "PS.txt"}
        paths = {mode: str(REAL / rubber / file) for mode, file in modes.items()}
        yield task("real", f"{rubber} {name}", answers, paths, law=name, samples=200)
        paths = {"uniaxial": paths["uniaxial"]}
        yield task("real", f"{rubber} {name} uniaxial", answers, paths, law=name)
    for each in json.loads(command("laws", "--json"))["laws"]:
        measures = {key: each[key] for key in ("strain_measure", "stress_measure")}
        true = measures if "true" in measures.values() else {}
        yield task("laws", each["law"], law, each["law"], **true)
    for flags in (
        (),
        ("--law=voce", "--config.model.uncertainty=flow", "--config.optimizer.name=lamb"),
    ):
        line = ("train", "--report=false", *flags, *SMALL)
        yield task("training", " ".join(line), files, "run/*.keras run/metrics.jsonl", *line)
    line = ("tune", f"--config={PACKAGE.parent / 'configs' / 'tune.py'}", "--max_trials=1", *SMALL)
    yield task("commands", "tune", files, "run/best.py run/trials.csv", *line)
    yield task("commands", "evaluate", evaluated, "hahn_tsai")
    for example in sorted(PACKAGE.glob("examples/*.csv")):
        name = example.name.split("_simulated")[0]
        for told in ({"details": True}, {"samples": 200}):
            yield task("laws", f"example {name}, {told}", answers, str(example), law=name, **told)
        line = ("identify", example, f"--law={name}", "--json=out.json", "--csv=out.csv")
        yield task("commands", f"identify {name}", files, "out.*", *line)
        yield task("commands", f"identify {name}, printed", command, *line[:3], "--details")
        line = ("identify", example, f"--law={name}", "--card=ls_dyna", "--card_variants")
        yield task("commands", f"cards {name}", files, "cards/*", *line)
    yield task("data", "labelled", labelled)
    for words in (
        "--law=voce --laboratory",
        "--law=hahn_tsai --noise_relative=0.01 --fix=G0=5000",
        "--law=voce_chaboche --noise_told --noise_of_maximum=0.0005,0.005",
        "--law=ogden --tests=uniaxial,planar --missing_tests=0.3",
        "--law=perzyna --laboratory --seed=3",
    ):
        yield task("data", words, files, "data/*/shard-*", "generate", *FEW, *words.split())
    for words in (
        "laws --json",
        "laws --tests",
        "laws voce",
        "layouts --config.mesh=batch:2,model:2 --json",
        "layouts --backend=mpi --config.mesh=batch:2 --config.zero_stage=2 --json",
        "train --launcher=slurm --dry_run --time_limit=2:00:00 --gpus=1",
        "tune --launcher=slurm --dry_run --num_workers=2 --time_limit=30",
        *(f"{name} --help" for name in re.findall(r"(?m)^  ([a-z_]+)  ", command("--help"))),
    ):
        yield task("commands", words, command, *words.split())


def done(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a task, or its error, and its seconds. It has a folder of its own."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            value = function()
        except Exception as error:
            value = f"{type(error).__name__}: {error}"
        places = {os.path.realpath(folder): "HERE", str(REAL): "REAL", str(PACKAGE.parent): "TFMAT"}
        return plain(value, places), time.monotonic() - start


def plain(value: Any, places: dict[str, str]) -> Any:
    """The value without times and paths. Texts of JSON and CSV become values, other texts lines."""
    if isinstance(value, dict):
        return {str(k): plain(v, places) for k, v in value.items() if not VOLATILE.search(str(k))}
    if isinstance(value, list | tuple):
        return [plain(each, places) for each in value]
    if not isinstance(value, str):
        return value.item() if isinstance(value, np.generic) else value
    for place, name in places.items():
        value = value.replace(place, name)
    lines = value.splitlines()
    with contextlib.suppress(ValueError):
        return plain(json.loads(value), places) if len(lines) > 1 else float(value)
    if len(lines) > 1 and len(set(next(csv.reader(lines)))) > 3:
        return plain(list(csv.DictReader(lines, restkey="more")), places)
    return lines if len(lines) > 1 else value


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value with its path."""
    if isinstance(value, dict | list) and value:
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(each, f"{key}/{name}" if key else str(name))
    else:
        yield key, value


def differences(before: Any, after: Any, rtol: float) -> Iterator[str]:
    """A line for each value that differs: key, before, after, and for numbers the relative size."""
    old, new = dict(flat(before)), dict(flat(after))
    for key in dict.fromkeys((*old, *new)):
        was, now, size = old.get(key, "(none)"), new.get(key, "(none)"), ""
        if {type(was), type(now)} <= {int, float}:
            if np.isclose(was, now, rtol, atol=0.0, equal_nan=True):
                continue
            size = f" ({abs(was - now) / max(abs(was), abs(now)):.2g})"
        if was != now:
            yield f"{key}: {was} -> {now}{size}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "tools/frozen", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--part", help="parts, with commas between them (all, or the file's)")
    parser.add_argument("--rtol", type=float, default=1e-9, help="of numbers (%(default)s)")
    given = parser.parse_args(arguments)
    before = json.loads(given.file.read_text()) if given.action == "compare" else {}
    parts = given.part.split(",") if given.part else list(before or PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(unknown)}; valid: {', '.join(PARTS)}")
    if "real" in parts and not REAL.is_dir():
        parser.error("part real: set TFMAT_REAL_CURVES to the folder of measured curves")
    after: dict[str, dict[str, Any]] = {part: {} for part in parts}
    with POOL() as pool:
        chosen = [task for task in tasks() if task[0] in parts]
        running = {pool.submit(done, function): (part, key) for part, key, function in chosen}
        for number, each in enumerate(concurrent.futures.as_completed(running), 1):
            part, key = running[each]
            after[part][key], seconds = each.result()
            said = f"{number} of {len(running)}: {part}, {key}: {seconds:.1f} s"
            print(said, file=sys.stderr, flush=True)
    if given.action == "write":
        given.file.write_text(json.dumps(after, indent=1, sort_keys=True))
        return 0
    found = list(differences({part: before.get(part) for part in parts}, after, given.rtol))
    print("\n".join(found) or "no difference")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
