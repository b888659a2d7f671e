"""Variants that take turns in rounds, what follows from their samples, and the table of it.

A sample says `batch_size`, `variant`, `round`, and `rate`: examples a second, or operations where nothing is trained.
"""

import dataclasses
import functools
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from tfmat.console import log
from tfmat.errors import InputError
from tfmat.scaling.measure import Answers, Launch, launch_here, measure, run_locally
from tfmat.scaling.model import median_with_interval

Sample = dict[str, Any]
Row = dict[str, Any]


# Their processes find `benchmarks` beside the tools.
launch = functools.partial(launch_here, path=(str(pathlib.Path(__file__).resolve().parents[1]),))


class _Samples:
    """Keeps samples, and why a variant has none."""

    def __init__(self, samples_of: Callable[[Launch, Answers], list[Sample]]):
        self._samples_of = samples_of
        self.samples: list[Sample] = []
        self.skipped: dict[str, str] = {}

    def add(self, launch: Launch, answers: Answers) -> str:
        """See tfmat.scaling.measure.Journal."""
        found = self._samples_of(launch, answers)
        self.samples += [{"variant": launch.name, "round": launch.round, **each} for each in found]
        return ", ".join(f"{each['batch_size']}: {each['rate']:,.0f}/s" for each in found)

    def leave_out(self, launch: Launch, reason: str, log: str) -> None:
        """See tfmat.scaling.measure.Journal."""
        end = " ".join(log.strip().splitlines()[-1:])
        self.skipped[launch.name] = f"{reason}: {end}" if end else reason


def samples_of_steps(launch: Launch, answers: Answers) -> list[Sample]:
    """Samples of steps as `tfmat.scaling.measure` measures them: a step takes as long as on the slowest rank."""
    found = []
    for task, *of_ranks in zip(launch.spec.order.group.tasks, *answers, strict=True):
        seconds = [each["seconds"] / each["steps"] for each in of_ranks]
        size = task.batch_a_worker
        found.append({"batch_size": size, "rate": size / max(seconds), "seconds_of_ranks": seconds})
    return found


def measure_variants(
    of_round: Callable[[int], Sequence[Launch]],
    rounds: int = 1,
    samples_of: Callable[[Launch, Answers], list[Sample]] = samples_of_steps,
) -> tuple[list[Sample], dict[str, str]]:
    """Samples of every variant in every round, and the reasons of those that are left out.

    Each round has an order of its own, the same in every call. A ratio is formed within a round: a variant that failed
    in one is left out of all.

    Raises:
      InputError: nothing is left.
    """
    journal = _Samples(samples_of)
    launches = [list(of_round(number)) for number in range(rounds)]
    for number, of_one in enumerate(launches):
        random.Random(number).shuffle(of_one)
    measure(launches, run_locally, journal)
    for name, reason in journal.skipped.items():
        log(f"{name} is left out: {reason}")
    samples = [each for each in journal.samples if each["variant"] not in journal.skipped]
    if not samples:
        told = "; ".join(f"{name}: {reason}" for name, reason in journal.skipped.items())
        raise InputError(f"no variant could be measured: {told}")
    return samples, journal.skipped


def estimate(values: Sequence[float]) -> dict[str, float]:
    """`low`, `value` and `high`: median and 95 % bootstrap interval, below three values the range."""
    return dataclasses.asdict(median_with_interval(values))


def summarize(
    samples: Sequence[Sample],
    *,
    slower_than: str | None = None,
    share_of: str | None = None,
    scale: float = 1.0,
) -> list[Row]:
    """One row a batch size and variant.

    Args:
      samples: of any number of batch sizes.
      slower_than: the variant whose rate is divided by each one's, as `times`.
      share_of: the variant by whose rate each one's is divided, as `share`, after it was multiplied by `scale`.

    Returns:
      Rows with `rate`, `times` and `share`, see `estimate`, the fastest of a batch first; ratios are formed within
      each round.
    """
    rates = {(s["batch_size"], s["variant"], s["round"]): s["rate"] for s in samples}
    rows = []
    for size, variant in dict.fromkeys((s["batch_size"], s["variant"]) for s in samples):
        own = {i: rate for (b, v, i), rate in rates.items() if (b, v) == (size, variant)}
        row: Row = {"batch_size": size, "variant": variant, "rate": estimate([*own.values()])}
        for name, other in (("times", slower_than), ("share", share_of)):
            theirs = {i: rates[size, other, i] for i in own if (size, other, i) in rates}
            ratios = [scale * own[i] / its for i, its in theirs.items()]
            if name == "times":
                ratios = [its / own[i] for i, its in theirs.items()]
            row |= {name: estimate(ratios)} if ratios else {}
        rows.append(row)
    return sorted(rows, key=lambda row: (row["batch_size"], -row["rate"]["value"]))


def spread(found: Mapping[str, float] | None, form: str = "{:.2f}", scale: float = 1.0) -> str:
    """`2.76 (2.19 – 2.84)`; nothing for None."""
    if found is None:
        return ""
    low, value, high = (form.format(found[key] * scale) for key in ("low", "value", "high"))
    return value if low == high else f"{value} ({low} – {high})"


def milliseconds(row: Row) -> str:
    """The time of a step."""
    seconds = {key: row["batch_size"] / rate for key, rate in row["rate"].items()}
    return spread(
        {"low": seconds["high"], "value": seconds["value"], "high": seconds["low"]}, scale=1e3
    )


def rows_table(
    title: str, rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]
) -> Table:
    """One row each; a heading that begins with `<` is of a column of words."""
    table = Table(title=title)
    for heading in columns:
        table.add_column(heading.lstrip("<"), justify="left" if heading[0] == "<" else "right")
    for before, row in zip([None, *rows], rows, strict=False):
        if before and before.get("batch_size") != row.get("batch_size"):
            table.add_section()
        table.add_row(*(text(row) for text in columns.values()))
    return table


def quantity(
    what: str, value: float, unit: str, relation: str = "", goal: float | None = None
) -> Row:
    """A measured number, and whether it is as it should be."""
    found: Row = {"what": what, "value": value, "unit": unit}
    if goal is not None:
        reached = value >= goal if relation == "≥" else value <= goal
        found |= {"relation": relation, "goal": goal, "reached": reached}
    return found


def quantities_table(title: str, quantities: Sequence[Row]) -> Table:
    """One row a quantity."""
    columns: dict[str, Callable[[Row], str]] = {
        "<what": lambda each: each["what"],
        "measured": lambda each: f"{each['value']:.3g} {each['unit']}",
        "goal": goal_text,
    }
    return rows_table(title, quantities, columns)


def goal_text(check: Mapping[str, Any] | None) -> str:
    """`≥ 1.7 ok`, in colour; nothing without a goal."""
    if not check or "goal" not in check:
        return ""
    colour, word = ("green", "ok") if check["reached"] else ("red", "missed")
    return f"{check['relation']} {check['goal']:.4g} [{colour}]{word}[/]"
