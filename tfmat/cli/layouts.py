"""shows how --backend=dtensor would lay a config's network out on a mesh, and what its devices must exchange.

Nothing is trained, and the mesh may be larger than this machine. For each variable: shape, layout (for each dimension
the axis of the mesh that divides it, - where it is whole), and the bytes of weights, gradients and optimizer slots on
each device. Below: the exchanges of one training step, by arithmetic. docs/dtensor.md explains both.

Examples:
  tfmat layouts --config.mesh=batch:2,model:2
  tfmat layouts --config=configs/wide.py --config.mesh=model:2
  tfmat layouts --config=configs/wide.py --config.mesh=batch:4 --config.zero_stage=3 --json
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfmat.cli.flags import FlagValues, config_flags, config_help, read_config, switch

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tfmat.backends.collectives_of_step import Collective
    from tfmat.backends.layouts import Plan
    from tfmat.backends.planning import Footprint

FLAGS = (
    *config_flags("configs/quickstart.py"),
    switch("json", False, "print JSON instead of tables"),
)
NO_ARGUMENT = "; flags look like --config.mesh=batch:2,model:2"
extra_help = config_help
_PARTS = ("weights", "gradients", "slots")


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Prints both tables."""
    config = read_config(flag_values)
    from tfmat.backends.planning import backend_options
    from tfmat.curves.records import RecordForm
    from tfmat.workflow import curve_settings

    options = backend_options(config)
    settings = curve_settings(config)
    num_outputs = len(settings.build_law().identified)
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    from tfmat.backends.collectives_of_step import collectives_of_step
    from tfmat.backends.planning import check_dtensor, plan_of_config

    check_dtensor(config)
    plan, footprints = plan_of_config(
        config, options, num_outputs=num_outputs, inputs=RecordForm.of(settings).network()
    )
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


def _print_json(
    plan: "Plan",
    footprints: Sequence["Footprint"],
    collectives: Sequence["Collective"],
    notices: list[str],
) -> None:
    content = {
        "mesh": str(plan.mesh),
        "zero_stage": plan.zero_stage,
        "variables": [dataclasses.asdict(footprint) for footprint in footprints],
        "collectives": [
            {**dataclasses.asdict(collective), "sent_in_ring": collective.sent_in_ring}
            for collective in collectives
        ],
        "notices": notices,
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))


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
    _print_variables(console, plan, footprints)
    console.print(f"\nexchanges of one step of {batch_size} examples, bytes on each device:")
    if collectives:
        _print_collectives(console, collectives)
    else:
        console.print("  none")
    for notice in notices:
        console.print(f"note: {notice}", markup=False, soft_wrap=True)


def _print_variables(console: "Console", plan: "Plan", footprints: Sequence["Footprint"]) -> None:
    from tfmat.backends.layouts import format_spec

    zero = [("slots' layout", "left")] if plan.zero_stage else []
    table = _table(
        console,
        ("variable", "left"), ("shape", "left"), ("layout", "left"), *zero,
        *((part, "right") for part in _PARTS),
    )  # fmt: skip
    for footprint in footprints:
        table.add_row(
            footprint.path.removeprefix("curve_to_parameters/"),
            " × ".join(map(str, footprint.shape)) or "number",
            format_spec(footprint.layout),
            *([format_spec(footprint.slots_layout)] if zero else []),
            *(f"{getattr(footprint, part):,}" for part in _PARTS),
        )
    sums = (f"{sum(getattr(footprint, part) for footprint in footprints):,}" for part in _PARTS)
    table.add_row("together", "", "", *([""] if zero else []), *sums)
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
