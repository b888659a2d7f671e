"""Simulates labelled stress-strain curves, or packs your own, into a data set to train on.

Curve number i is always the same for the same settings and seed, however many are made. Interrupted, the same command
goes on where it stopped; on a finished data set it checks every shard and makes a damaged one again.

A specimen whose curve takes a program, a finite-element solver say, is a folder with simulator.toml: --simulator runs
it --num_runs times, as many at once as there are processors (--num_threads), and makes a data set of noisy copies of
the runs. Runs are stored: what was run is not run again, and a larger --num_runs adds to it (docs/finite_elements.md).
With --launcher=slurm they are made by a job array, each of whose --num_workers elements makes a share.

Examples:
  tfmat generate --law=hahn_tsai --num_curves=1000000 --noise_mpa=1.0 --seed=0
  tfmat generate --law=voce --range=Q=50,1600 --fix=E=193000 --max_strain=0.1,0.5
  tfmat generate --law=ogden --tests=uniaxial,planar --test_range=max_strain=1,4 --missing_tests=0.3
  tfmat generate --from=curves.npz --law=voce
  tfmat generate --from=curves.npz --copies=20 --noise_of_maximum=0.0005,0.005
  tfmat generate --simulator=docs/examples/notched_bar --num_runs=1000 --num_threads=2
  tfmat generate --simulator=my_model --num_runs=3000 --launcher=slurm --num_workers=30 --time_limit=2:00:00
  tfmat generate --data_dir=data/hahn_tsai-1000000-1a2b3c4d     (checks and repairs this data set)

Your own curves: a .npz file with the arrays strain and stress [curves, points] (stress in MPa, NaN after a curve's
end), parameters [curves, P], names [P], units [P], and optionally low, high and scale ('linear' or 'log') [P]; or a
.parquet file with one row a curve, list columns strain and stress, and columns named like 'G0 [MPa]'. With --law the
names are that law's, and answers can be simulated again. Curves that do not have 200 points are resampled. Without
--law they may be copied, each copy with what a laboratory adds: noise, wrong zeroes, slack, a machine that gives way.
"""

import pathlib
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import number, repeated, switch, text, whole
from tfmat.cli.launcher_flags import LAUNCHER, LAUNCHER_FLAGS, wants_slurm
from tfmat.errors import InputError, Interrupted

if TYPE_CHECKING:
    from tfmat.curves.settings import CurveSettings
    from tfmat.data.dataset import PackedDataset

# Options of the observation model, each LOW,HIGH, as `--config.data.NAME` of `train`.
_OBSERVATION = {
    "noise_of_maximum": "noise as a fraction of the largest stress",
    "noise_correlation": "correlation of neighbouring points' noise",
    "measured_points": "number of points that the machine records",
    "strain_offset": "error of the strain's zero (standard deviation)",
    "stress_offset": "error of the stress's zero (standard deviation), MPa",
    "toe": "slack that a strain takes up which rises from zero",
    "machine_stiffness": "apparent modulus of what gives way beside the specimen, MPa",
    "misfit": "smooth deviation from the law as a fraction of the stress (standard deviation)",
    "yield_spread": "half the spread of ln(yield stress) in the specimen",
}
_NOISE = ("noise_mpa", "noise_relative")
# What copies of curves take; what an import, a simulator, and a data set that is there already. All other flags decide
# about simulated curves of a law.
_COPIES = ("copies", "seed", "max_strain", *_NOISE, *_OBSERVATION)
_IMPORT, _REPAIR = ("from", "law", "fix", *_COPIES), ("data_dir", "num_threads")
_ONLY_SIMULATOR = ("num_runs", "retry_failed", "num_workers", "worker", *LAUNCHER_FLAGS)
_SIMULATOR = ("simulator", *_ONLY_SIMULATOR, *_COPIES)

Progress = Callable[[int, int], None]
FLAGS = (
    text("law", None, "material law, see `tfmat laws` (default hahn_tsai); or path/to/file.py:ClassName"),
    text("data_dir", "data", "folder that holds the data sets; or one data set, to check and repair it"),
    text("from", None, ".npz or .parquet file with labelled curves of your own"),
    text("simulator", None, "folder with simulator.toml: a specimen that a program simulates"),
    whole("num_runs", None, "runs of the simulator (default 1000); a larger number adds to those that are there", 10),
    switch("retry_failed", False, "run again what failed before"),
    whole("num_workers", None, "shares of the runs; slurm: elements of the job array [one for 100 runs]", 1),
    whole("worker", None, "make this share only, from 0; slurm: an element of the array has its number", 0),
    whole("copies", None, "noisy copies of each curve of --from (default 1) or --simulator (default 50)", 1),
    text("max_strain", None, "LOW,HIGH: range that the end of a curve is drawn from (default: the law's)"),
    text("strength_mpa", None, "LOW,HIGH: stress at which a curve breaks off, or none (default: the law's)"),
    whole("num_curves", 1_000_000, "curves to train (75 %) and validate (25 %) on", 4),
    whole("num_test", 10_000, "further curves that never train", 0),
    whole("seed", 0, "seed of all random numbers", 0),
    whole("num_threads", None, "threads (default: one for each processor); changes nothing in the data", 1),
    number("noise_mpa", None, "standard deviation of the stress noise in MPa (default: the law's)", 0.0),
    number("noise_relative", None, "standard deviation as a fraction of the stress, added in quadrature", 0.0),
    repeated("range", "NAME=LOW,HIGH: range of a parameter in its unit; may be given several times"),
    text("tests", None, "NAME,NAME: test programmes of a record, see `tfmat laws --tests` (default: the law's)"),
    repeated("test_range", "SETTING=LOW,HIGH: range of a setting of the tests; may be given several times"),
    number("missing_tests", None, "probability that a test of several is missing in a record (default 0)", 0.0),
    whole("num_points", None, "points of a curve, or of each test (default 200)", 8),
    repeated("fix", "NAME=VALUE: a parameter that is known and not identified; may be given several times"),
    *(
        text(name, None, f"LOW,HIGH: {meaning}, drawn log-uniformly for each curve (default: none)")
        for name, meaning in _OBSERVATION.items()
    ),
    switch("noise_told", False, "records of tests tell how large each test's noise is"),
    switch("laboratory", False, "everything that a laboratory adds, by the law's family (docs/tests.md)"),
    *LAUNCHER,
)  # fmt: skip
NO_ARGUMENT = "; see `tfmat generate --help`"


def run(flag_values: FlagValues, arguments: list[str]) -> int | None:
    """Makes, goes on with, or checks one data set and says where it is; returns the exit status."""
    from tfmat.console import progress_bar

    if flag_values.simulator is not None:
        _simulate(flag_values)
        return None
    made: list[int] = []
    start = time.perf_counter()
    try:
        make = _choose(flag_values)
        with progress_bar("generating", "curves") as show:

            def progress(done: int, total: int) -> None:
                made.append(done)
                if show is not None:
                    show(done, total)

            dataset = make(progress)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished shards are kept, and the same command goes on"
        ) from None
    except InputError as error:
        raise InputError(_in_own_flags(str(error))) from error
    _report(dataset, _written(made, time.perf_counter() - start))
    return None


def _simulate(flag_values: FlagValues) -> None:
    """Runs a user's program, and makes the data set of its runs."""
    _refuse_flags_but(_SIMULATOR + _REPAIR, flag_values, "--simulator runs a program")
    from tfmat.cli.simulations import simulate, submit_shares
    from tfmat.data.dataset import is_dataset

    if is_dataset(flag_values.data_dir):
        raise InputError(f"{flag_values.data_dir} is a data set itself; leave out --simulator")
    try:
        if wants_slurm(flag_values):
            submit_shares(flag_values, _laboratory(flag_values))
            return
        dataset = simulate(flag_values, _laboratory(flag_values))
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished runs are stored, and the same command goes on"
        ) from None
    except InputError as error:
        raise InputError(_in_own_flags(str(error))) from error
    if dataset is not None:
        _report(dataset, "")


def _laboratory(flag_values: FlagValues) -> dict[str, Any]:
    """The options that copies take, of those that are given."""
    given: dict[str, Any] = {
        name: flag_values[name].value for name in _NOISE if flag_values[name].present
    }
    for name in ("max_strain", *_OBSERVATION):
        if (text := flag_values[name].value) is not None:
            given[name] = None if text == "none" else _limits(name, text)
    return given


def _choose(flag_values: FlagValues) -> "Callable[[Progress], PackedDataset]":
    """What is to be done: repair one data set, pack a user's curves, or simulate."""
    from tfmat.curves.laboratory import Laboratory
    from tfmat.data.dataset import generate_dataset, is_dataset
    from tfmat.data.imported import import_dataset, repair_dataset

    data_dir, num_threads = pathlib.Path(flag_values.data_dir), flag_values.num_threads
    fixed = dict(_pair("fix", text) for text in flag_values.fix)
    if is_dataset(data_dir):
        _refuse_flags_but(_REPAIR, flag_values, f"{data_dir} is a data set itself")
        return lambda progress: repair_dataset(data_dir, progress, num_threads)
    source = flag_values["from"].value
    if source is not None:
        _refuse_flags_but(_IMPORT + _REPAIR, flag_values, "--from packs curves that exist already")
        laboratory = Laboratory.of(_laboratory(flag_values))
        return lambda progress: import_dataset(
            source,
            data_dir=data_dir,
            law=flag_values.law,
            copies=flag_values.copies,
            laboratory=laboratory,
            fixed={name: _number("fix", value) for name, value in fixed.items()},
            seed=flag_values.seed,
            progress=progress,
            num_threads=num_threads,
        )
    for name in (*_ONLY_SIMULATOR, "copies"):
        if flag_values[name].present:
            of = "--simulator or --from" if name == "copies" else "--simulator"
            raise InputError(f"--{name} is of {of}; give that too, or leave --{name} out")
    settings = _settings(flag_values, fixed)
    return lambda progress: generate_dataset(
        settings,
        seed=flag_values.seed,
        num_curves=flag_values.num_curves,
        num_test=flag_values.num_test,
        data_dir=data_dir,
        progress=progress,
        num_threads=num_threads,
    )


def _refuse_flags_but(taken: tuple[str, ...], flag_values: FlagValues, why: str) -> None:
    for name in flag_values:
        if name not in taken and flag_values[name].present:
            raise InputError(f"{why}; leave out --{name}")


def _settings(flag_values: FlagValues, fixed: dict[str, str]) -> "CurveSettings":
    from tfmat.curves.settings import CurveSettings

    strength, cut_off = None, flag_values.strength_mpa != "none"
    if flag_values.strength_mpa is not None and cut_off:
        strength = _limits("strength_mpa", flag_values.strength_mpa)
    ranges = dict(_pair("range", text) for text in flag_values.range)
    test_ranges = dict(_pair("test_range", text) for text in flag_values.test_range)
    return CurveSettings(
        law=flag_values.law or "hahn_tsai",
        ranges={name: _limits("range", text) for name, text in ranges.items()},
        fixed={name: _number("fix", text) for name, text in fixed.items()},
        max_strain=None
        if flag_values.max_strain is None
        else _limits("max_strain", flag_values.max_strain),
        strength_mpa=strength,
        strength_cut_off=cut_off,
        noise_mpa=flag_values.noise_mpa,
        noise_relative=flag_values.noise_relative or 0.0,
        num_points=flag_values.num_points or CurveSettings.num_points,
        tests=tuple((flag_values.tests or "").split(",")) if flag_values.tests else (),
        test_ranges={name: _limits("test_range", text) for name, text in test_ranges.items()},
        missing_tests=flag_values.missing_tests or 0.0,
        noise_told=flag_values.noise_told,
        laboratory=flag_values.laboratory,
        **{
            name: None if given is None else _limits(name, given)
            for name in _OBSERVATION
            if (given := flag_values[name].value) != "none"
        },  # type: ignore[arg-type]
    )


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise InputError(
            f"--{flag}={text}: give --{flag}=NAME={'VALUE' if flag == 'fix' else 'LOW,HIGH'}"
        )
    return name.strip(), value


def _limits(flag: str, text: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2:
        raise InputError(f"--{flag}: '{text}' is not LOW,HIGH")
    return _number(flag, parts[0]), _number(flag, parts[1])


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{flag}: '{text}' is not a number") from None


def _in_own_flags(message: str) -> str:
    """Settings name flags as `train` has them; says the same in this command's flags."""
    message = re.sub(r"--config\.ranges\.(\w+)", r"--range=\1", message)
    message = re.sub(r"--config\.test_ranges\.(\w+)", r"--test_range=\1", message)
    message = re.sub(r"--config\.fixed\.(\w+)", r"--fix=\1", message)
    return message.replace("--config.data.", "--").replace("--config.tests", "--tests")


def _written(made: list[int], seconds: float) -> str:
    if not made:
        return f"complete already; every shard checked in {seconds:.1f} s"
    num_made = made[-1] - made[0]
    return f"{num_made:,} curves written in {seconds:.1f} s, {num_made / seconds:,.0f} curves/s"


def _report(dataset: "PackedDataset", did: str) -> None:
    from tfmat.data.dataset import size_text

    num_curves = dataset.num_train + dataset.num_validation
    names = ", ".join(f"{parameter.name} ({parameter.unit})" for parameter in dataset.parameters)
    size = size_text(dataset.features.nbytes + dataset.labels.nbytes)
    num_shards = len(dataset.manifest["shards"])
    print(f"data set  {dataset.folder}")
    print(
        f"curves    {num_curves:,} ({dataset.num_train:,} train, {dataset.num_validation:,} validate)",
        end="",
    )
    print(f" and {dataset.num_test:,} to test, {dataset.features.shape[1]} points each")
    print(f"labels    {names}")
    print(f"size      {size} in {num_shards} shard{'s' if num_shards > 1 else ''}")
    if did:
        print(f"done      {did}")
    # A folder of its own: runs/quickstart is the first try's.
    workdir = f"runs/{dataset.folder.name}"
    print(f"use it    tfmat train --data_dir={dataset.folder} --workdir={workdir}")
