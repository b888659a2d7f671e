"""shows how a config's network would lie on a mesh of devices, in stages or over processes, and what is exchanged.

Nothing is trained, and the mesh may be larger than this machine. For each variable: shape, layout (for each dimension
the axis of the mesh that divides it, - where it is whole), and the bytes of weights, gradients and optimizer slots on
each device. Below: the exchanges of one training step, by arithmetic. docs/dtensor.md explains both. For a mesh with
the axis `stage` (docs/large_networks.md): the layers of each stage, what a process holds, and what it sends in a step.
With --backend=horovod or mpi, which share batches over as many processes as the axis `batch` says: the same for each
process, with config.zero_stage.

Examples:
  tfmat layouts --config.mesh=batch:2,model:2
  tfmat layouts --config=configs/wide.py --config.mesh=model:2
  tfmat layouts --config=configs/wide.py --config.mesh=batch:4 --config.zero_stage=3 --json
  tfmat layouts --config=configs/wide.py --config.mesh=batch:2,stage:2 --config.micro_batches=8
  tfmat layouts --config=configs/wide.py --backend=mpi --config.mesh=batch:4 --config.zero_stage=2
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import choice, config_flags, config_help, read_config, switch
from tfmat.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tfmat.backends.layouts import Collective, Plan
    from tfmat.backends.options import BackendOptions
    from tfmat.backends.planning import Footprint
    from tfmat.config import Config

FLAGS = (
    *config_flags("configs/quickstart.py"),
    choice("backend", ("dtensor", "horovod", "mpi"), "whose devices or processes these are"),
    switch("json", False, "print JSON instead of tables"),
)
NO_ARGUMENT = "; flags look like --config.mesh=batch:2,model:2"
extra_help = config_help
_PARTS = ("weights", "gradients", "slots")


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Prints both tables."""
    config = read_config(flag_values)
    from tfmat.backends.options import backend_options, has_stages
    from tfmat.curves.records import RecordForm
    from tfmat.workflow import curve_settings

    options = backend_options(config)
    settings = curve_settings(config)
    num_outputs = len(settings.build_law().identified)
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    network: dict[str, Any] = {
        "num_outputs": num_outputs,
        "inputs": RecordForm.of(settings).network(),
    }
    if has_stages(options.mesh):
        return _show_stages(config, options, network, flag_values.json)
    if flag_values.backend != "dtensor":
        return _show_processes(config, options, flag_values.backend, network, flag_values.json)
    from tfmat.backends.layouts import collectives_of_step
    from tfmat.backends.options import check_dtensor
    from tfmat.backends.planning import plan_of_config

    check_dtensor(config, options)
    plan, footprints = plan_of_config(config, options, **network)
    notices = list(plan.notices)
    if config.layouts:
        notices.append(
            "the exchanges of activations are an estimate here: DTensor chooses some layouts between layers itself"
        )
    collectives = collectives_of_step(plan, config.global_batch_size)
    if flag_values.json:
        _print_json(plan, footprints, collectives, notices)
    else:
        _print_tables(plan, footprints, collectives, notices, config.global_batch_size)
    return 0


def _show_stages(
    config: "Config", options: "BackendOptions", network: dict[str, Any], as_json: bool
) -> int:
    from tfmat.backends.options import check_stages
    from tfmat.backends.pipeline import plan_stages
    from tfmat.console import open_console

    # As on a machine with as many processes.
    processes = dataclasses.replace(options.processes, size=options.mesh.num_devices)
    check_stages(config, dataclasses.replace(options, processes=processes), "mpi")
    plan = plan_stages(config, options, **network)
    if as_json:
        content = {"mesh": str(options.mesh), **dataclasses.asdict(plan)}
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return 0
    console = open_console(100)
    console.print(
        f"mesh {options.mesh}; a batch of {config.global_batch_size} examples in {plan.micro_batches} micro-batches of "
        f"{plan.micro_batch_size}; bytes in each process:",
        markup=False,
    )
    table = _table(
        console, ("stage", "right"), ("layers", "left"), *((part, "right") for part in _PARTS),
        ("activations, gpipe", "right"), ("1f1b", "right"),
    )  # fmt: skip
    exchanges = _table(
        console, ("stage", "right"), ("messages a step", "right"), ("bytes sent", "right"),
        ("bytes of gradients summed over batch", "right"),
    )  # fmt: skip
    for i, stage in enumerate(plan.stages, start=1):
        held = (getattr(stage, part) for part in _PARTS)
        numbers = (f"{number:,}" for number in (*held, *stage.activations.values()))
        table.add_row(str(i), f"{stage.layers[0]} to {stage.layers[-1]}", *numbers)
        sent = (stage.messages, stage.sent, stage.summed)
        exchanges.add_row(str(i), *(f"{number:,}" for number in sent))
    console.print(table)
    console.print(exchanges)
    console.print(
        f"bubble in theory: {100 * plan.bubble:.1f} % of a step, (stages - 1) / (micro_batches + stages - 1), where "
        "all stages take equally long",
        markup=False,
        soft_wrap=True,
    )
    for notice in plan.notices:
        console.print(f"note: {notice}", markup=False, soft_wrap=True)
    return 0


def _show_processes(
    config: "Config",
    options: "BackendOptions",
    backend: str,
    network: dict[str, Any],
    as_json: bool,
) -> int:
    from tfmat.backends.options import BATCH, check_config_for
    from tfmat.backends.planning import plan_processes
    from tfmat.console import open_console

    mesh = options.mesh
    workers = mesh.size(BATCH)
    if mesh.num_devices != workers:
        raise InputError(
            f"mesh {mesh}: the processes of --backend={backend} share batches, and stages; give {BATCH}:NUMBER, or "
            "use --backend=dtensor"
        )
    if config.compression not in ("none", "fp16"):
        raise InputError(
            f"compression={config.compression} is not planned, since what it sends depends on the gradients' shapes; "
            "metrics.jsonl of a run tells bytes_sent_per_step"
        )
    # As on a machine with as many processes.
    processes = dataclasses.replace(options.processes, size=workers)
    check_config_for(backend, config, dataclasses.replace(options, processes=processes))
    footprints, collectives = plan_processes(config, options, workers, **network)
    notices = []
    if config.local_steps > 1:
        notices.append(f"the workers exchange once in {config.local_steps} steps")
    if config.offload != "none":
        notices.append("the slots are on the disk of each process, not in its memory")
    if config.model.batch_normalization == "synchronized" and workers > 1:
        notices.append("the sums of batch normalisation over the processes are left out")
    if as_json:
        content = {
            "backend": backend,
            "processes": workers,
            "zero_stage": config.zero_stage,
            **_contents(footprints, collectives, notices),
        }
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return 0
    console = open_console(100)
    console.print(
        f"{workers} process{'es' if workers > 1 else ''} of --backend={backend}, zero_stage={config.zero_stage}; bytes "
        "in each process:",
        markup=False,
        soft_wrap=True,
    )
    _print_variables(console, footprints)
    _print_exchanges(console, collectives, notices, config.global_batch_size, "in each process")
    return 0


def _print_json(
    plan: "Plan",
    footprints: Sequence["Footprint"],
    collectives: Sequence["Collective"],
    notices: list[str],
) -> None:
    content = {
        "mesh": str(plan.mesh),
        "zero_stage": plan.zero_stage,
        **_contents(footprints, collectives, notices),
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _contents(
    footprints: Sequence["Footprint"], collectives: Sequence["Collective"], notices: list[str]
) -> dict[str, Any]:
    return {
        "variables": [dataclasses.asdict(footprint) for footprint in footprints],
        "collectives": [
            {**dataclasses.asdict(collective), "sent_in_ring": collective.sent_in_ring}
            for collective in collectives
        ],
        "notices": notices,
    }


def _print_tables(
    plan: "Plan",
    footprints: Sequence["Footprint"],
    collectives: Sequence["Collective"],
    notices: list[str],
    batch_size: int,
) -> None:
    from tfmat.console import open_console

    console = open_console(100)
    devices = plan.mesh.num_devices
    console.print(
        f"mesh {plan.mesh}, {devices} device{'s' if devices > 1 else ''}, zero_stage={plan.zero_stage}; "
        "bytes on each device:",
        markup=False,
    )
    _print_variables(console, footprints, plan)
    _print_exchanges(console, collectives, notices, batch_size, "on each device")


def _print_exchanges(
    console: "Console",
    collectives: Sequence["Collective"],
    notices: list[str],
    batch_size: int,
    place: str,
) -> None:
    console.print(f"\nexchanges of one step of {batch_size} examples, bytes {place}:")
    if collectives:
        _print_collectives(console, collectives)
    else:
        console.print("  none")
    for notice in notices:
        console.print(f"note: {notice}", markup=False, soft_wrap=True)


def _print_variables(
    console: "Console", footprints: Sequence["Footprint"], plan: "Plan | None" = None
) -> None:
    """A row for each; with layouts where there is a plan of them."""
    from tfmat.backends.layouts import format_spec

    headings = ["layout"] if plan else []
    if plan and plan.zero_stage:
        headings.append("slots' layout")
    table = _table(
        console,
        *((heading, "left") for heading in ("variable", "shape", *headings)),
        *((part, "right") for part in _PARTS),
    )
    for footprint in footprints:
        table.add_row(
            footprint.path.removeprefix("curve_to_parameters/"),
            " × ".join(map(str, footprint.shape)) or "number",
            *[format_spec(footprint.layout), format_spec(footprint.slots_layout)][: len(headings)],
            *(f"{getattr(footprint, part):,}" for part in _PARTS),
        )
    sums = (f"{sum(getattr(footprint, part) for footprint in footprints):,}" for part in _PARTS)
    table.add_row("together", "", *[""] * len(headings), *sums)
    console.print(table)


def _print_collectives(console: "Console", collectives: Sequence["Collective"]) -> None:
    table = _table(
        console,
        ("exchange", "left"), ("over", "left"), ("what", "left"), ("tensors", "right"), ("bytes", "right"),
        ("sent in a ring", "right"),
    )  # fmt: skip
    for one in collectives:
        over = f"{one.axis}:{one.devices}"
        numbers = (f"{number:,}" for number in (one.tensors, one.bytes, one.sent_in_ring))
        table.add_row(one.kind, over, one.what, *numbers)
    console.print(table)


def _table(console: "Console", *columns: tuple[str, str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for heading, side in columns:
        table.add_column(heading, justify="right" if side == "right" else "left")
    return table
