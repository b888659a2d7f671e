"""Meshes of virtual CPU devices against the single backend: time a step, bytes a device, exchanges.

Four devices on two processors are more than the machine has: such rows show what a mesh costs, not what it gains.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks import rounds as lab
from benchmarks.ranks import make_data, steps_spec
from tfmat.config import Config, default_config
from tfmat.launch.processes import Processes
from tfmat.scaling.laboratory import Launch

# mesh: devices
MESHES = {"single": 1, "batch:1": 1, "batch:2": 2, "model:2": 2, "batch:2,model:2": 4}
# network: batch sizes
NETWORKS = {"default": (75, 750), "wide": (64,)}
HELD = ("weights", "slots", "gradients")
_CURVES = 4_000


def cases(networks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What is measured, by its name: meshes, then ZeRO stages, then the unfolded convolution."""
    found = {}
    for network in networks:
        shapes = [(mesh, 0, "direct") for mesh in MESHES]
        shapes += [("batch:2", stage, "direct") for stage in (1, 2, 3)]
        if network == "default":
            shapes += [("single", 0, "unfolded"), ("model:2", 0, "unfolded")]
        for mesh, stage, convolution in shapes:
            name = f"{network}, {mesh}" + (f", ZeRO {stage}" if stage else "")
            name += ", unfolded" if convolution == "unfolded" else ""
            found[name] = {
                "network": network,
                "mesh": mesh,
                "zero_stage": stage,
                "convolution": convolution,
            }
    return found


def measure_meshes(
    folder: pathlib.Path, networks: Sequence[str], rounds: int, seconds: float
) -> dict[str, Any]:
    """Samples of every case, and their summary; see rounds.py."""
    dataset = make_data(folder, _CURVES)

    def of_round(number: int) -> list[Launch]:
        found = []
        for name, case in cases(networks).items():
            single = case["mesh"] == "single"
            tasks = [
                {"batch_a_worker": b, "global_batch_size": b} for b in NETWORKS[case["network"]]
            ]
            spec = steps_spec(
                _config(case),
                dataset,
                seconds,
                tasks,
                backend="single" if single else "dtensor",
                workers=MESHES[case["mesh"]],
                mesh="" if single else case["mesh"],
                zero_stage=case["zero_stage"],
            )
            found.append(lab.launch(name, number, folder, "benchmarks.meshes:measure", **spec))
        return found

    samples, skipped = lab.measure_variants(of_round, rounds)
    return {"skipped": skipped, "samples": samples, "summary": summarize_meshes(samples)}


def _config(case: dict[str, Any]) -> Config:
    config = default_config()
    # As configs/wide.py; and the default network with units that two devices can divide.
    config.model.hidden_units = (4096, 4096, 4096) if case["network"] == "wide" else (124,)
    config.model.convolution = case["convolution"]
    return config


def summarize_meshes(samples: Sequence[lab.Sample]) -> list[lab.Row]:
    """One row a case and batch size, `times` the step of its network on `single`; bytes, which no round changes."""
    rows = []
    for network in dict.fromkeys(sample["variant"].partition(",")[0] for sample in samples):
        own = [sample for sample in samples if sample["variant"].startswith(f"{network},")]
        rows += lab.summarize(own, slower_than=f"{network}, single")
    first = {(s["batch_size"], s["variant"]): s for s in reversed(samples)}
    keys = ("held", "exchanges", "peak_bytes")
    return [
        {**row, **{key: first[row["batch_size"], row["variant"]].get(key) for key in keys}}
        for row in rows
    ]


def meshes_table(rows: Sequence[lab.Row]) -> Table:
    """One row a case and batch size."""

    def megabytes(part: str, name: str) -> Any:
        return lambda row: f"{row[part][name] / 1e6:.2f} MB" if row[part] else ""

    columns = {
        "<network, mesh": lambda row: row["variant"],
        "batch": lambda row: str(row["batch_size"]),
        "ms a step": lab.milliseconds,
        "times single": lambda row: lab.spread(row.get("times")),
        **{name: megabytes("held", name) for name in HELD},
        "tensors": lambda row: str(row["exchanges"]["tensors"]) if row["exchanges"] else "",
        "bytes": megabytes("exchanges", "bytes"),
        "peak, whole process": lambda row: f"{row['peak_bytes'] / 1e6:,.0f} MB",
    }
    return lab.rows_table("meshes; median (95 % interval) over the rounds", rows, columns)


def measure(spec: dict[str, Any], processes: Processes, folder: pathlib.Path) -> dict[str, Any]:
    """Called by the processes, see tfmat.scaling.worker: steps, and by arithmetic what a mesh holds and exchanges."""
    from tfmat.scaling.step_times import measure_steps

    answer = measure_steps(spec, processes, folder)
    if not spec["variant"]["mesh"]:
        return answer
    from tfmat.backends import BackendOptions
    from tfmat.backends.layouts import collectives_of_step
    from tfmat.backends.planning import plan_of_config

    mesh, stage = spec["variant"]["mesh"], spec["variant"]["zero_stage"]
    options = BackendOptions.on_mesh(mesh, zero_stage=stage)
    plan, parts = plan_of_config(Config(spec["config"]), options, num_outputs=2, inputs={})
    held = {name: sum(getattr(part, name) for part in parts) for name in HELD}
    for task, found in zip(spec["tasks"], answer["tasks"], strict=True):
        exchanged = collectives_of_step(plan, task["global_batch_size"])
        tensors, sent = (sum(getattr(e, key) for e in exchanged) for key in ("tensors", "bytes"))
        found["mesh"] = {"held": held, "exchanges": {"tensors": tensors, "bytes": sent}}
    return answer
