"""Meshes of virtual CPU devices against the single backend: time a step, bytes a device, exchanges.

Each mesh runs in a process of its own, one after the other, in every round; a ratio is that to `single` within a round.
Four devices on two processors are more than the machine has: such rows show what a mesh costs, not what it gains.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from benchmarks.rounds import BenchmarkFailed

WORKER = pathlib.Path(__file__).with_name("mesh_worker.py")
MESHES = ("single", "batch:1", "batch:2", "model:2", "batch:2,model:2")
# network: batch sizes
NETWORKS = {"default": (75, 750), "wide": (64,)}


def cases(networks: Sequence[str]) -> list[dict[str, Any]]:
    """What is measured: meshes, then ZeRO stages, then the unfolded convolution."""
    found = []
    for network in networks:
        shapes = [(mesh, 0, "direct") for mesh in MESHES]
        shapes += [("batch:2", stage, "direct") for stage in (1, 2, 3)]
        if network == "default":
            shapes += [("single", 0, "unfolded"), ("model:2", 0, "unfolded")]
        found += [
            {"network": network, "mesh": mesh, "zero_stage": stage, "convolution": convolution}
            for mesh, stage, convolution in shapes
        ]
    return found


def measure_meshes(
    networks: Sequence[str], rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Runs all cases `rounds` times; returns samples and a summary, one row a case and batch size."""
    samples = []
    for i in range(rounds):
        for case in cases(networks):
            say(f"round {i + 1}/{rounds}: {_name(case)}")
            batch_sizes = NETWORKS[case["network"]]
            answer = _run({**case, "batch_sizes": batch_sizes, "seconds": seconds})
            samples.append({**case, "round": i, **answer})
    return {"samples": samples, "summary": summarize_meshes(samples)}


def _run(spec: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(WORKER), json.dumps(spec)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if done.returncode:
        end = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise BenchmarkFailed(f"{_name(spec)} ended with status {done.returncode}: {end}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def summarize_meshes(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a case and batch size: milliseconds and ratios of all rounds; bytes, which no round changes."""
    times = {
        (_name(s), size, s["round"]): value
        for s in samples
        for size, value in s["milliseconds"].items()
    }
    rows = []
    for first in [s for s in samples if s["round"] == samples[0]["round"]]:
        name = _name(first)
        own = [s for s in samples if _name(s) == name]
        reference = _name({**first, "mesh": "single", "zero_stage": 0, "convolution": "direct"})
        for size in first["milliseconds"]:
            rows.append(
                {
                    "name": name,
                    "network": first["network"],
                    "batch_size": int(size),
                    "milliseconds": [times[name, size, s["round"]] for s in own],
                    "ratio": [
                        times[name, size, s["round"]] / times[reference, size, s["round"]]
                        for s in own
                        if (reference, size, s["round"]) in times
                    ],
                    "peak_bytes": [s["peak_bytes"] for s in own],
                    "bytes_per_device": first.get("bytes_per_device"),
                    "gradient_bytes": first.get("gradient_bytes"),
                    "exchanges": first["exchanges"].get(size),
                }
            )
    return sorted(rows, key=lambda row: (row["network"], row["batch_size"]))


def meshes_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Medians (lowest - highest) over the rounds."""
    table = Table(title="meshes; median (lowest – highest) over the rounds")
    for name in (
        "network, mesh", "batch", "ms a step", "times single", "weights", "slots", "gradients", "tensors", "bytes",
        "peak, whole process",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name == "network, mesh" else "right")
    for row in rows:
        held, exchanges = row["bytes_per_device"], row["exchanges"]
        table.add_row(
            row["name"],
            str(row["batch_size"]),
            _spread(row["milliseconds"], "{:.1f}"),
            _spread(row["ratio"], "{:.2f}"),
            *([_megabytes(held["weights"]), _megabytes(held["slots"])] if held else ["", ""]),
            _megabytes(row["gradient_bytes"]) if held else "",
            *([str(exchanges["tensors"]), _megabytes(exchanges["bytes"])] if held else ["", ""]),
            _megabytes(statistics.median(row["peak_bytes"])),
        )
    return table


def _name(case: dict[str, Any]) -> str:
    zero = f", ZeRO {case['zero_stage']}" if case["zero_stage"] else ""
    unfolded = ", unfolded" if case["convolution"] == "unfolded" else ""
    return f"{case['network']}, {case['mesh']}{zero}{unfolded}"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:.2f} MB"


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return ""
    parts = (statistics.median(values), min(values), max(values))
    middle, low, high = (form.format(value) for value in parts)
    return middle if len(values) == 1 else f"{middle} ({low} – {high})"
