"""One way of training in a process of its own: `worker.py WAY BATCH_SIZE FOLDER SECONDS`.

Says `{"ready": ...}` when built, then for each line that it reads runs once and answers with one JSON line.
"""

import importlib
import json
import math
import os
import pathlib
import sys
import time
from typing import Any

LOSS_EXAMPLES = 1_000
# TensorFlow's part of the ways; the others stand in modules of their own.
TENSORFLOW_WAYS = {
    "ours": "Ours",
    "ours_streamed": "OursStreamed",
    "fit": "Fit",
    "fit_100": "FitExecutions",
    "fit_arrays": "FitArrays",
    "fit_our_model": "FitOurModel",
    "matmul": "MatrixProduct",
}


# The other libraries' ways: module and class. Their processes never load TensorFlow: PyTorch's Triton and TensorFlow
# each bring an LLVM, and the two end a process that has both.
OTHER_WAYS = {
    "torch": ("torch_way", "TorchEager"),
    "torch_compiled": ("torch_way", "TorchCompiled"),
    "jax": ("jax_way", "JaxJit"),
}


def make_way(name: str, folder: pathlib.Path, batch_size: int) -> tuple[Any, Any]:
    """The way and its data."""
    import numpy as np

    from benchmarks.data import Data

    data = Data(*(np.load(folder / f"{part}.npy") for part in Data._fields))
    if name in OTHER_WAYS:
        module, kind = OTHER_WAYS[name]
        found = importlib.import_module(f"benchmarks.{module}")
        return getattr(found, kind)(data, batch_size), data
    from tfmat.launch.runtime import prepare_tensorflow

    # As `tfmat train` does; everybody else gets TensorFlow as it comes.
    prepare_tensorflow(one_thread_an_operation=name.startswith("ours"))
    from benchmarks import ways

    return getattr(ways, TENSORFLOW_WAYS[name])(data, batch_size), data


def busy_seconds() -> float:
    """Processor seconds that this machine has spent on all processes together."""
    fields = pathlib.Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def main(name: str, batch_size: int, folder: pathlib.Path, seconds: float) -> None:
    # What a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        way, data = make_way(name, folder, batch_size)
    except ImportError as error:
        answers.write(json.dumps({"missing": str(error)}) + "\n")
        return
    examples = data.features[:LOSS_EXAMPLES], data.labels[:LOSS_EXAMPLES]
    answers.write(json.dumps({"ready": name, "loss": way.loss(*examples)}) + "\n")
    steps = way.least_steps
    for _ in sys.stdin:
        cpu, busy, started = time.process_time(), busy_seconds(), time.perf_counter()
        timing = way.run(steps)
        elapsed = time.perf_counter() - started
        cpu, busy = time.process_time() - cpu, busy_seconds() - busy
        answer = {
            "work": timing.work,
            "seconds": timing.seconds,
            "steps": steps,
            "processors": cpu / elapsed,
            "processors_of_others": max(0.0, busy - cpu) / elapsed,
            "loss": way.loss(*examples),
        }
        answers.write(json.dumps(answer) + "\n")
        # The first run warms up and is short; each one sets the length of the next.
        steps_a_second = timing.work / way.work_a_step / timing.seconds
        steps = max(way.least_steps, math.ceil(seconds * steps_a_second))


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]), float(sys.argv[4]))
