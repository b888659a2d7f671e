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

import argparse
import importlib.metadata
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks import cold, job, proofs, step, workers
from benchmarks.rounds import quantities_table
from tfmat.console import log, open_console
from tfmat.errors import InputError, TfmatError
from tfmat.files import plain, write_json

_PARTS = ("step", "job", "identify", "cold", "proofs", "horovod", "tf_distribute")


def main(arguments: list[str]) -> int:
    given = _parsed(arguments)
    try:
        if given.part in ("horovod", "tf_distribute") and not shutil.which("mpirun"):
            raise InputError("there is no mpirun; ./tools/setup horovod gets it")
        before = _machine()
        log(
            f"{before['usable_processors']} × {before['processor']}, {before['memory_gib']} GiB; "
            f"load {before['load'][0]:.2f}; {before['versions']}"
        )
        signal.signal(signal.SIGTERM, _end)
        with tempfile.TemporaryDirectory(prefix="tfmat_benchmark_") as name:
            content = _measure(pathlib.Path(name), given)
        if given.json:
            told = {"format": 2, "machine": before, "arguments": arguments, "part": given.part}
            write_json(given.json, {**told, **content})
            log(f"raw samples: {given.json}")
    except TfmatError as error:
        log(f"tools/benchmark: error: {error}")
        return 2
    except KeyboardInterrupt:
        log("tools/benchmark: interrupted; nothing is written")
        return 130
    return 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "tools/benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def flag(name: str, kind: Callable[[str], Any], default: Any, meaning: str) -> None:
        parser.add_argument(f"--{name}", type=kind, default=default, help=meaning)

    numbers = _listed(_whole(1))
    parser.add_argument("--part", choices=_PARTS, default="step", help="what to measure")
    flag("batch_sizes", numbers, [75, 750], "examples a step; for job the first one [75,750]")
    flag("rounds", _whole(1), 5, "rounds in which every variant runs once [5]")
    flag("seconds", float, 5.0, "about how long a variant runs in a round [5]")
    flag("variants", _listed(_variant), list(step.VARIANTS), f"step: {', '.join(step.VARIANTS)}")
    flag("ranks", _whole(2), 2, "horovod, tf_distribute: how many workers [2]")
    flag("num_curves", _whole(1000), None, "[step 150000; job 1000000; identify 100000]")
    flag("data_dir", str, None, "job: folder for data sets that stays [a temporary one]")
    flag("hidden_units", numbers, [125], "step: of the dense layers of tfmat's own network [125]")
    flag("workdir", str, None, "identify: folder of the run that answers [tfmat identify's]")
    flag("epochs", _whole(2), 3, "job: epochs, the first does not count [3]")
    flag("json", str, None, "file for every raw sample, versions and hardware")
    meaning = "short, with few curves: only to see that it works"
    parser.add_argument("--quick", action="store_true", help=meaning)
    given = parser.parse_args(arguments)
    others = [name for name in given.variants if not name.startswith(("ours", "fit_our", "matmul"))]
    if given.hidden_units != [125] and others:
        parser.error(
            f"--hidden_units is not for the variant '{others[0]}', whose network is the default one; name others, e.g. "
            "--variants=ours,ours_bfloat16,fit_our_model"
        )
    return given


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is no whole number from {least} on")
        return int(text)

    return number


def _listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(word) for word in text.split(",")]


def _variant(name: str) -> str:
    if name not in step.VARIANTS:
        valid = ", ".join(step.VARIANTS)
        raise argparse.ArgumentTypeError(f"there is no '{name}'; valid: {valid}")
    return name


def _machine() -> dict[str, Any]:
    """The machine and the versions."""
    from tfmat.launch.machine import describe_session

    session = plain(describe_session())
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    others = {name: installed[name] for name in ("torch", "jax", "jaxlib") if name in installed}
    return {
        **session["machine"],
        "date": session["started"],
        "load": list(os.getloadavg()),
        "versions": {**session["versions"], **others},
    }


def _measure(folder: pathlib.Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measures the part and prints its table."""
    console = open_console()
    quick, rounds, sizes, seconds = given.quick, given.rounds, given.batch_sizes, given.seconds

    def curves(usual: int, few: int) -> int:
        return int(given.num_curves or (few if quick else usual))

    if given.part == "step":
        rounds, seconds = (2, 0.2) if quick else (rounds, seconds)
        told = curves(150_000, 12_000), rounds, seconds, tuple(given.hidden_units)
        content = step.measure_steps(folder, given.variants, sizes, *told)
        console.print(step.steps_table(content["summary"]))
        others = content["processors_of_others"]
        if others > 0.1:
            console.print(
                f"Other programs used up to {others:.1f} processors meanwhile: do not trust this."
            )
        return content
    if given.part in ("horovod", "tf_distribute"):
        rounds, seconds = (1, 0.5) if quick else (rounds, seconds)
        content = workers.measure_workers(given.part, folder, given.ranks, sizes, rounds, seconds)
        console.print(workers.workers_table(given.part, content))
        return content
    if given.part == "cold":
        content = cold.measure_cold(folder, 1 if quick else rounds, 2 if quick else cold.NUM_FILES)
    elif given.part == "proofs":
        content = proofs.measure_proofs(1 if quick else rounds)
    elif given.part == "job":
        data_dir = pathlib.Path(given.data_dir or folder)
        number = curves(1_000_000, 20_000)
        content = job.measure_job(number, sizes, given.epochs, folder, data_dir)
    else:
        from benchmarks.identification import measure_rate
        from tfmat.launch.processes import prepare_tensorflow

        prepare_tensorflow(one_thread_an_operation=True)
        workdir = pathlib.Path(given.workdir) if given.workdir else None
        content = measure_rate(curves(100_000, 5_000), rounds, workdir)
    console.print(quantities_table(given.part, content["quantities"]))
    return content


def _end(number: int, frame: Any) -> None:
    """Ended by a time limit it still stops its processes and removes its files; `timeout` sends the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
