"""Measures training: curves a second of the default network against other ways, or the whole job around it.

Or identification: how fast arrays are answered, and whether curves of other laws are told apart.

  tools/benchmark                                       every way at batch 75 and 750, five rounds: about ten minutes
  tools/benchmark --with_torch --with_jax --json=a.json PyTorch and JAX too (installs them), and every raw sample
  tools/benchmark --quick                               one minute, to see that it works; the numbers mean little
  tools/benchmark --part=job                            a million curves: generation, first step, epochs, memory
  tools/benchmark --part=horovod --with_mpi4py          two ranks against two processes alone: three minutes
  tools/benchmark --part=counters --rounds=300          what measuring itself adds to a step: some minutes
  tools/benchmark --part=dtensor                        meshes of CPU devices against one: ten minutes a round
  tools/benchmark --part=identify                       curves a second of tfmat.network_answers: half a minute
  tools/benchmark --part=other_laws                     AUROC for other shear laws and false alarms: half a minute

In each round every way runs once, one after the other, each in a process of its own that holds the same curves; ratios
are computed within a round. Compare only what one call measured, on a machine that does nothing else.
"""

import pathlib
import signal
import sys
import tempfile
from typing import Any

import numpy as np
from absl import app, flags
from rich.console import Console

from benchmarks import machine
from benchmarks.rounds import BenchmarkFailed, measure, summarize
from benchmarks.tables import DESCRIPTIONS, job_table, step_table
from tfmat.errors import TfmatError
from tfmat.files import write_json

_PART = flags.DEFINE_enum(
    "part",
    "step",
    ["step", "job", "identify", "other_laws", "horovod", "counters", "dtensor"],
    "what to measure",
)
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes", ["75", "750"], "examples a step; for job the first one"
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "rounds in which every way runs once", lower_bound=1)
_SECONDS = flags.DEFINE_float(
    "seconds", 5.0, "about how long a way runs in a round", lower_bound=0.01
)
_WAYS = flags.DEFINE_list("ways", list(DESCRIPTIONS), f"which ways: {', '.join(DESCRIPTIONS)}")
_NUM_CURVES = flags.DEFINE_integer(
    "num_curves",
    None,
    "curves (default: step 150,000; job 1,000,000; identify 100,000; other_laws 4,000)",
    lower_bound=1_000,
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "job: folder for data sets that stays (default: a temporary one)"
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "identify: folder of the run that answers (default: what tfmat identify takes)"
)
_EPOCHS = flags.DEFINE_integer("epochs", 3, "job: epochs, the first does not count", lower_bound=2)
_ALL_WAYS = flags.DEFINE_bool(
    "all_ways", False, "horovod: also the settings and ways of summing that are not the default"
)
_QUICK = flags.DEFINE_bool("quick", False, "short, with few curves: only to see that it works")
_JSON = flags.DEFINE_string("json", None, "file for every raw sample, versions and hardware")

# batch size, way: (quantity, at least)
GOALS = {
    (75, "fit"): ("ratio", 1.7),
    (75, "torch"): ("ratio", 1.6),
    (750, "fit"): ("ratio", 2.5),
    (750, "torch"): ("ratio", 2.5),
    (750, "ours"): ("share", 0.6),
}


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        return _refuse(f"takes no argument '{arguments[1]}'; see tools/benchmark --help")
    unknown = [name for name in _WAYS.value if name not in DESCRIPTIONS]
    if unknown:
        return _refuse(f"--ways: there is no '{unknown[0]}'; valid: {', '.join(DESCRIPTIONS)}")
    if not all(size.isdecimal() and int(size) for size in _BATCH_SIZES.value):
        return _refuse(
            f"--batch_sizes={','.join(_BATCH_SIZES.value)}: give whole numbers, e.g. 75,750"
        )
    before = machine.describe()
    _say(
        f"{before['processors']} × {before['processor']}, {before['memory_gb']} GB; "
        f"load {before['load'][0]:.2f}; {before['versions']}"
    )
    signal.signal(signal.SIGTERM, _end)
    try:
        measure_part = {
            "step": _measure_steps,
            "job": _measure_job,
            "horovod": _measure_horovod,
            "dtensor": _measure_dtensor,
            "counters": _measure_counters,
        }
        content = measure_part.get(_PART.value, _measure_identification)()
    except (BenchmarkFailed, TfmatError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        _say("tools/benchmark: interrupted; nothing is written")
        return 130
    if _JSON.value:
        write_json(
            _JSON.value, {"format": 1, "machine": before, "arguments": sys.argv[1:], **content}
        )
        _say(f"raw samples: {_JSON.value}")
    return 0


def _measure_steps() -> dict[str, Any]:
    batch_sizes = [int(size) for size in _BATCH_SIZES.value]
    rounds, seconds = (2, 0.2) if _QUICK.value else (_ROUNDS.value, _SECONDS.value)
    num_curves = _NUM_CURVES.value or (12_000 if _QUICK.value else 150_000)
    # A multiple of every batch size: no way meets a partial batch.
    multiple = int(np.lcm.reduce(batch_sizes))
    num_curves = -(-num_curves // multiple) * multiple
    samples: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tfmat_benchmark_") as name:
        folder = pathlib.Path(name)
        _say(f"simulating {num_curves:,} curves")
        operations = _prepare(folder, num_curves)
        for batch_size in batch_sizes:
            _say(f"batch {batch_size}: starting {len(_WAYS.value)} processes")
            names = [way for way in _WAYS.value if way not in skipped]
            measured = measure(names, batch_size, folder, rounds, seconds, _say)
            samples += measured["samples"]
            skipped |= measured["skipped"]
    rows = summarize(samples, operations)
    checks = _step_checks(rows)
    console = _console()
    console.print(step_table(rows, checks))
    others = max((row["processors_of_others"]["median"] for row in rows), default=0.0)
    if others > 0.1:
        console.print(
            f"Other programs used up to {others:.1f} processors meanwhile: do not trust this."
        )
    return {
        "part": "step",
        "num_curves": num_curves,
        "rounds": rounds,
        "seconds_a_run": seconds,
        "operations_a_curve": operations,
        "skipped": skipped,
        "samples": samples,
        "summary": rows,
        "goals": checks,
    }


def _prepare(folder: pathlib.Path, num_curves: int) -> float:
    """Writes the arrays of `ways.Data`; returns floating-point operations of a training step per curve."""
    from tfmat.curves.settings import CurveSettings
    from tfmat.curves.simulate import Simulator

    curves = Simulator(CurveSettings(), seed=0).curves(0, num_curves)
    scale = np.array([*curves.features[:1024, :, :2].max(axis=(0, 1)), 1.0], np.float32)
    for name, array in (("features", curves.features), ("labels", curves.labels), ("scale", scale)):
        np.save(folder / f"{name}.npy", array)
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    from benchmarks.ways import training_operations
    from tfmat.config import default_config
    from tfmat.models import build_model

    return training_operations(
        build_model(default_config().model, num_outputs=curves.labels.shape[1])
    )


def _step_checks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    checks = []
    for row in rows:
        name, goal = GOALS.get((row["batch_size"], row["way"]), ("", 0.0))
        if name in row:
            value = row[name]["median"]
            checks.append(
                {
                    "batch_size": row["batch_size"],
                    "way": row["way"],
                    "what": name,
                    "value": value,
                    "relation": "≥",
                    "goal": goal,
                    "reached": value >= goal,
                }
            )
    return checks


def _measure_job() -> dict[str, Any]:
    from benchmarks.job import measure_job

    num_curves = _NUM_CURVES.value or (20_000 if _QUICK.value else 1_000_000)
    with tempfile.TemporaryDirectory(prefix="tfmat_benchmark_") as temporary:
        content = measure_job(
            num_curves=num_curves,
            batch_sizes=[int(size) for size in _BATCH_SIZES.value],
            epochs=_EPOCHS.value,
            folder=pathlib.Path(temporary),
            data_dir=pathlib.Path(_DATA_DIR.value or temporary),
            say=_say,
        )
    _console().print(job_table(content["quantities"]))
    return {"part": "job", **content}


def _measure_horovod() -> dict[str, Any]:
    from benchmarks.parallel import DESCRIPTIONS as DESCRIPTIONS_OF_RANKS
    from benchmarks.parallel import SHORT, measure_parallel, parallel_table

    ways = list(DESCRIPTIONS_OF_RANKS) if _ALL_WAYS.value else list(SHORT)
    rounds, seconds = (1, 0.5) if _QUICK.value else (_ROUNDS.value, _SECONDS.value)
    content = measure_parallel(
        ways, [int(size) for size in _BATCH_SIZES.value], rounds, seconds, _say
    )
    _console().print(parallel_table(content["summary"]))
    return {"part": "horovod", **content}


def _measure_counters() -> dict[str, Any]:
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(one_thread_an_operation=True)
    from benchmarks.counters import counters_table, measure_counters

    rounds, steps = (2, 10) if _QUICK.value else (_ROUNDS.value, 50)
    batch_sizes = [int(size) for size in _BATCH_SIZES.value]
    content = measure_counters(batch_sizes, rounds, steps, _say)
    _console().print(counters_table(content["summary"]))
    return {"part": "counters", "rounds": rounds, "steps_a_block": steps, **content}


def _measure_dtensor() -> dict[str, Any]:
    from benchmarks.meshes import NETWORKS, measure_meshes, meshes_table

    rounds, seconds = (1, 0.1) if _QUICK.value else (_ROUNDS.value, _SECONDS.value)
    networks = ["default"] if _QUICK.value else list(NETWORKS)
    content = measure_meshes(networks, rounds, seconds, _say)
    _console().print(meshes_table(content["summary"]))
    return {"part": "dtensor", **content}


def _measure_identification() -> dict[str, Any]:
    from benchmarks.identification import measure_other_laws, measure_rate
    from tfmat.launch.runtime import prepare_tensorflow

    if _PART.value == "other_laws":
        content = measure_other_laws(_NUM_CURVES.value or (1_000 if _QUICK.value else 4_000))
    else:
        prepare_tensorflow()
        workdir = pathlib.Path(_WORKDIR.value) if _WORKDIR.value else None
        num_curves = _NUM_CURVES.value or (5_000 if _QUICK.value else 100_000)
        content = measure_rate(num_curves, _ROUNDS.value, workdir)
    _console().print(job_table(content["quantities"], _PART.value.replace("_", " ")))
    return {"part": _PART.value, **content}


def _end(number: int, frame: Any) -> None:
    """Ended by a time limit it still stops its processes and removes its files; `timeout` sends the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _refuse(message: str) -> int:
    _say(f"tools/benchmark: error: {message}")
    return 2


if __name__ == "__main__":
    app.run(main)
