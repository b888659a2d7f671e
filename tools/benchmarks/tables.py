"""What the benchmark found, as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

DESCRIPTIONS = {
    "ours": "tfmat, data in memory",
    "ours_streamed": "tfmat, streamed",
    "fit": "Keras fit, tf.data",
    "fit_100": "Keras fit, tf.data, steps_per_execution=100",
    "fit_arrays": "Keras fit on arrays",
    "fit_our_model": "Keras fit, tf.data, tfmat's model",
    "torch": "PyTorch eager, fused Adam",
    "torch_compiled": "PyTorch compiled, fused Adam",
    "jax": "JAX jit, one step a call",
    "matmul": "TensorFlow matmul 2048, float32",
}


def step_table(rows: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of `summarize`: median (lowest - highest over the rounds)."""
    goals = {(check["batch_size"], check["way"]): check for check in checks}
    table = Table(title="curves a second, training; median (lowest – highest) over the rounds")
    for name in (
        "batch",
        "way",
        "curves/s",
        "ms a step",
        "tfmat is faster by",
        "of matmul's rate",
        "goal",
    ):
        table.add_column(name, justify="left" if name == "way" else "right")
    previous = None
    for row in rows:
        batch_size, way, rate = row["batch_size"], row["way"], row["rate"]
        if previous not in (None, batch_size):
            table.add_section()
        previous = batch_size
        trains = way != "matmul"
        check = goals.get((batch_size, way))
        table.add_row(
            str(batch_size),
            DESCRIPTIONS[way],
            _spread(rate, "{:,.0f}") if trains else f"{_spread(rate, '{:,.0f}', 1e-9)} GFLOP/s",
            f"{1e3 * batch_size / rate['median']:.2f}" if trains else "",
            f"{_spread(row['ratio'], '{:.2f}')} ×" if "ratio" in row and way != "ours" else "",
            _spread(row["share"], "{:.0f}", 100) + " %" if "share" in row else "",
            goal_text(check) if check else "",
        )
    return table


def job_table(checks: Sequence[Mapping[str, Any]], title: str = "the whole job") -> Table:
    """One row a measured quantity."""
    table = Table(title=title)
    for name in ("what", "measured", "goal"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for check in checks:
        value = f"{check['value']:.3g} {check['unit']}"
        table.add_row(check["what"], value, goal_text(check) if "goal" in check else "")
    return table


def goal_text(check: Mapping[str, Any]) -> str:
    """`≥ 1.7 ok`, in colour."""
    colour, word = ("green", "ok") if check["reached"] else ("red", "missed")
    return f"{check['relation']} {check['goal']:.4g} [{colour}]{word}[/]"


def _spread(values: Mapping[str, float], form: str, scale: float = 1.0) -> str:
    median, low, high = (form.format(values[key] * scale) for key in ("median", "low", "high"))
    return f"{median} ({low} – {high})"
