"""Measures training: curves a second of the default network against other ways to train it, or the job around it.

Or identification: how fast arrays and cold commands are answered.

  tools/benchmark                                       all variants at batch 75 and 750, five rounds: 15 minutes
  tools/benchmark --with_torch --with_jax --json=a.json PyTorch and JAX too (installs them), and every raw sample
  tools/benchmark --quick                               two minutes, to see that it works; the numbers mean little
  tools/benchmark --part=job                            a million curves: generation, first step, epochs, memory
  tools/benchmark --part=horovod --with_mpi4py          two ranks against two processes alone: ten minutes
  tools/benchmark --part=horovod --ranks=4              the same with four
  tools/benchmark --part=tf_distribute                  TensorFlow's own strategies against one worker: ten minutes
  tools/benchmark --part=identify                       curves a second of tfmat.network_answers: half a minute
  tools/benchmark --part=cold                           processor seconds of one cold command: five minutes
  tools/benchmark --part=proofs                         what proofs of messages between processes cost: ten seconds

In each round every variant runs once, one after the other, each in processes of its own; ratios are computed within a
round. Compare only what one call measured, on a machine that does nothing else.
"""

import importlib.metadata
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from typing import Any

from absl import app, flags

from benchmarks import cold, job, proofs, step, workers
from benchmarks.rounds import quantities_table
from tfmat.console import log, open_console
from tfmat.errors import InputError, TfmatError
from tfmat.files import write_json

_PARTS = ("step", "job", "identify", "cold", "proofs", "horovod", "tf_distribute")
_PART = flags.DEFINE_enum("part", "step", _PARTS, "what to measure")
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes", ["75", "750"], "examples a step; for job the first one"
)
_ROUNDS = flags.DEFINE_integer(
    "rounds", 5, "rounds in which every variant runs once", lower_bound=1
)
_SECONDS = flags.DEFINE_float(
    "seconds", 5.0, "about how long a variant runs in a round", lower_bound=0.01
)
_VARIANTS = flags.DEFINE_list(
    "variants", list(step.VARIANTS), f"step: which: {', '.join(step.VARIANTS)}"
)
_RANKS = flags.DEFINE_integer("ranks", 2, "horovod, tf_distribute: how many workers")
_NUM_CURVES = flags.DEFINE_integer(
    "num_curves",
    None,
    "curves (default: step 150,000; job 1,000,000; identify 100,000)",
    lower_bound=1_000,
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "job: folder for data sets that stays (default: a temporary one)"
)
_HIDDEN_UNITS = flags.DEFINE_list(
    "hidden_units", ["125"], "step: of the dense layers of tfmat's own network, e.g. 2048,2048"
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "identify: folder of the run that answers (default: what tfmat identify takes)"
)
_EPOCHS = flags.DEFINE_integer("epochs", 3, "job: epochs, the first does not count", lower_bound=2)
_QUICK = flags.DEFINE_bool("quick", False, "short, with few curves: only to see that it works")
_JSON = flags.DEFINE_string("json", None, "file for every raw sample, versions and hardware")


def main(arguments: list[str]) -> int:
    try:
        _check(arguments)
        before = _machine()
        log(
            f"{before['usable_processors']} × {before['processor']}, {before['memory_gib']} GiB; "
            f"load {before['load'][0]:.2f}; {before['versions']}"
        )
        signal.signal(signal.SIGTERM, _end)
        with tempfile.TemporaryDirectory(prefix="tfmat_benchmark_") as name:
            content = _measure(pathlib.Path(name))
        if _JSON.value:
            told = {"format": 2, "machine": before, "arguments": sys.argv[1:], "part": _PART.value}
            write_json(_JSON.value, {**told, **content})
            log(f"raw samples: {_JSON.value}")
    except TfmatError as error:
        log(f"tools/benchmark: error: {error}")
        return 2
    except KeyboardInterrupt:
        log("tools/benchmark: interrupted; nothing is written")
        return 130
    return 0


def _check(arguments: list[str]) -> None:
    if len(arguments) > 1:
        raise InputError(f"takes no argument '{arguments[1]}'; see tools/benchmark --help")
    unknown = [name for name in _VARIANTS.value if name not in step.VARIANTS]
    if unknown:
        raise InputError(
            f"--variants: there is no '{unknown[0]}'; valid: {', '.join(step.VARIANTS)}"
        )
    if not all(size.isdecimal() and int(size) for size in _BATCH_SIZES.value):
        raise InputError(
            f"--batch_sizes={','.join(_BATCH_SIZES.value)}: give whole numbers, e.g. 75,750"
        )
    if not all(units.isdecimal() and int(units) for units in _HIDDEN_UNITS.value):
        raise InputError(
            f"--hidden_units={','.join(_HIDDEN_UNITS.value)}: give whole numbers, e.g. 2048,2048"
        )
    others = [
        name for name in _VARIANTS.value if not name.startswith(("ours", "fit_our", "matmul"))
    ]
    if _HIDDEN_UNITS.value != ["125"] and others:
        raise InputError(
            f"--hidden_units is not for the variant '{others[0]}', whose network is the default one; name others, e.g. "
            "--variants=ours,ours_bfloat16,fit_our_model"
        )
    if _RANKS.value < 2:
        raise InputError(f"--ranks={_RANKS.value}: give 2 or more")
    if _PART.value in ("horovod", "tf_distribute") and not shutil.which("mpirun"):
        raise InputError("there is no mpirun; ./tools/setup horovod gets it")


def _machine() -> dict[str, Any]:
    """The machine and the versions."""
    from tfmat.launch.machine import describe_session

    session = describe_session()
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    others = {name: installed[name] for name in ("torch", "jax", "jaxlib") if name in installed}
    return {
        **session["machine"],
        "date": session["started"],
        "load": list(os.getloadavg()),
        "versions": {**session["versions"], **others},
    }


def _measure(folder: pathlib.Path) -> dict[str, Any]:
    """Measures the part and prints its table."""
    console = open_console()
    batch_sizes = [int(size) for size in _BATCH_SIZES.value]
    quick, rounds, seconds = _QUICK.value, _ROUNDS.value, _SECONDS.value

    def curves(usual: int, few: int) -> int:
        return int(_NUM_CURVES.value or (few if quick else usual))

    content: dict[str, Any]
    if _PART.value == "step":
        timed = (2, 0.2) if quick else (rounds, seconds)
        content = step.measure_steps(
            folder,
            _VARIANTS.value,
            batch_sizes,
            curves(150_000, 12_000),
            *timed,
            hidden_units=tuple(int(units) for units in _HIDDEN_UNITS.value),
        )
        console.print(step.steps_table(content["summary"]))
        others = content["processors_of_others"]
        if others > 0.1:
            console.print(
                f"Other programs used up to {others:.1f} processors meanwhile: do not trust this."
            )
    elif _PART.value in ("horovod", "tf_distribute"):
        timed = (1, 0.5) if quick else (rounds, seconds)
        content = workers.measure_workers(_PART.value, folder, _RANKS.value, batch_sizes, *timed)
        console.print(workers.workers_table(_PART.value, content))
    elif _PART.value == "cold":
        content = cold.measure_cold(folder, 1 if quick else rounds, 2 if quick else cold.NUM_FILES)
        console.print(quantities_table("one cold command", content["quantities"]))
    elif _PART.value == "proofs":
        content = proofs.measure_proofs(1 if quick else rounds)
        console.print(quantities_table("proofs of messages", content["quantities"]))
    elif _PART.value == "job":
        content = job.measure_job(
            num_curves=curves(1_000_000, 20_000),
            batch_sizes=batch_sizes,
            epochs=_EPOCHS.value,
            folder=folder,
            data_dir=pathlib.Path(_DATA_DIR.value or folder),
        )
        console.print(quantities_table("the whole job", content["quantities"]))
    else:
        from benchmarks.identification import measure_rate
        from tfmat.launch.processes import prepare_tensorflow

        prepare_tensorflow(one_thread_an_operation=True)
        workdir = pathlib.Path(_WORKDIR.value) if _WORKDIR.value else None
        content = measure_rate(curves(100_000, 5_000), _ROUNDS.value, workdir)
        console.print(quantities_table("identification", content["quantities"]))
    return content


def _end(number: int, frame: Any) -> None:
    """Ended by a time limit it still stops its processes and removes its files; `timeout` sends the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    app.run(main)
