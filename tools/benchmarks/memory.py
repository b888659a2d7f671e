"""Memory and time of a step whose activations, gradients or slots are not all kept: tools/benchmark --part=memory.

Each variant trains in a process of its own, first with memory enough, then within a control group of a gigabyte.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from benchmarks import rounds as lab
from tfmat.console import log

# What BackendOptions are told.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulate, 4 parts": {"accumulate": 4},
    "recompute": {"recompute": "sum.*"},
    "offload": {"offload": "slots"},
    "recompute and offload": {"recompute": "sum.*", "offload": "slots"},
    "accumulate and offload": {"accumulate": 4, "offload": "slots"},
}
GOAL = 1.5  # of the plain step with memory enough
LIMIT = 2**30
_WIDTH, _BLOCKS, _BATCH = 1024, 12, 1536
_GROUPS = pathlib.Path("/sys/fs/cgroup")


def measure_memory(folder: pathlib.Path, steps: int, small: bool = False) -> dict[str, Any]:
    """A row for each variant: bytes at the peak, seconds and processor seconds of a step, without and within the limit.

    Args:
      folder: for files of slots.
      steps: that are timed, after two.
      small: a network that only shows that it works.
    """
    sizes = (64, 3, 64) if small else (_WIDTH, _BLOCKS, _BATCH)
    rows: list[dict[str, Any]] = []
    for name, options in VARIANTS.items():
        spec = {"options": {**options, "folder": str(folder)}, "sizes": sizes, "steps": steps}
        row: dict[str, Any] = {"variant": name, "free": _run(spec, None)}
        with _group(LIMIT) as group:
            row["limited"] = _run(spec, group) if group else None
        log(f"{name}: {row['free']}, in {LIMIT / 2**20:,.0f} MiB {row['limited']}")
        rows.append(row)
    plain = rows[0]["free"]
    for found in (row[kind] for row in rows for kind in ("free", "limited")):
        if found and "seconds" in found:
            found["times"] = found["seconds"] / plain["seconds"]
            found["processor_times"] = found["processor_seconds"] / plain["processor_seconds"]
    return {"summary": rows, "sizes": sizes, "limit": LIMIT}


def memory_table(rows: list[lab.Row]) -> Table:
    """One row a variant."""

    def limited(row: lab.Row) -> str:
        if not row["limited"]:
            return "not measured: no control group can be made here"
        found = row["limited"]
        if "killed" in found:
            return "killed"
        return f"{found['times']:.2f}, processor time {found['processor_times']:.2f}"

    columns = {
        "<variant": lambda row: row["variant"],
        "peak, whole process": lambda row: f"{row['free']['peak_bytes'] / 2**20:,.0f} MiB",
        "more than before the first step": lambda row: (
            f"{row['free']['added_bytes'] / 2**20:,.0f} MiB"
        ),
        "s a step": lambda row: f"{row['free']['seconds']:.2f}",
        "times plain": lambda row: f"{row['free']['times']:.2f}",
        "processor time": lambda row: f"{row['free']['processor_times']:.2f}",
        f"times plain, in {LIMIT / 2**20:,.0f} MiB": limited,
    }
    return lab.rows_table("memory and time of a step", rows, columns)


def _run(spec: dict[str, Any], group: pathlib.Path | None) -> dict[str, Any]:
    """What the process printed; how it ended where it was killed."""
    program = [sys.executable, "-P", __file__, json.dumps(spec)]
    if group:  # the shell enters the group, and becomes the program
        program = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *program]
    tools = str(pathlib.Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": tools}
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    if group and done.returncode in (-9, 137):
        return {"killed": True}
    raise RuntimeError(done.stderr[-2000:])


@contextlib.contextmanager
def _group(limit: int) -> Iterator[pathlib.Path | None]:
    """A control group with so much memory, of either version; None where this user cannot make one."""
    first = (_GROUPS / "memory").is_dir()
    group = _GROUPS / ("memory" if first else "") / f"tfmat_benchmark_{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
    except OSError as error:
        log(f"no control group: {error}")
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def _train(spec: dict[str, Any]) -> dict[str, Any]:
    """In the process of a variant: residual blocks, Adam, random examples."""
    import resource
    import statistics

    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    import keras
    import numpy as np

    from tfmat.backends import BackendOptions, make_backend
    from tfmat.backends.losses import per_example_function
    from tfmat.optimizers import make_functional

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    width, blocks, batch = spec["sizes"]
    layers = keras.layers
    x = inputs = layers.Input((width,))
    for i in range(blocks):
        y = layers.Dense(width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add(name=f"sum{i}")([x, layers.Dense(width)(y)])
    model = keras.Model(inputs, layers.Dense(1)(x))
    backend = make_backend("single", BackendOptions(**spec["options"]))
    backend.build(model, make_functional("adam"), per_example_function("mse"), {})
    random = np.random.default_rng(0)
    data = backend.place((random.normal(size=(batch, width)).astype("f"), np.ones((batch, 1), "f")))
    block = np.arange(batch, dtype=np.int32)[None], np.ones((1, batch), "f"), np.full(1, batch, "f")
    before, seconds, worked = peak(), [], []
    for _ in range(spec["steps"] + 2):
        begin, busy = time.perf_counter(), time.process_time()
        backend.train(data, *block)
        seconds.append(time.perf_counter() - begin)
        worked.append(time.process_time() - busy)
    found = {"peak_bytes": peak(), "added_bytes": peak() - before}
    times = {"seconds": seconds, "processor_seconds": worked}
    return {**found, **{key: statistics.median(values[2:]) for key, values in times.items()}}


if __name__ == "__main__":
    print(json.dumps(_train(json.loads(sys.argv[1]))))
