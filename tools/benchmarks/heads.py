"""What a head costs: trainings of the default network without one and with each, which take turns in one process."""

import pathlib
import random
import time
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import rounds as lab
from tfmat.launch.processes import Processes
from tfmat.scaling.laboratory import Answers, Launch

HEADS = {
    "none": "no head",
    "gaussian": "gaussian: a variance of each parameter",
    "flow": "flow: the joint posterior",
    "flow_by_operations": "flow, its loss not compiled",
}
GOAL = 0.4  # of a step with `gaussian`
_RECORDS, _LABELS = 20_000, 4


def measure_heads(
    folder: pathlib.Path, batch_sizes: list[int], rounds: int, steps: int
) -> dict[str, Any]:
    """What each head adds to a step with `gaussian`, in time of the processors.

    Args:
      folder: for the launch.
      batch_sizes: examples a step.
      rounds: in each of them every head trains on one block, the same for all, in an order by chance.
      steps: in a block.
    """
    spec: dict[str, Any] = {"batch_sizes": batch_sizes, "rounds": rounds, "steps": steps}
    one = lab.launch("heads", 0, folder, "benchmarks.heads:measure", **spec)
    samples, _ = lab.measure_variants(lambda _: [one], samples_of=_samples_of)
    rows = lab.summarize(samples, slower_than="gaussian")
    checks = []
    for row in rows:
        row["added"] = {key: value - 1 for key, value in row["times"].items()}
        if row["variant"] == "flow":
            what = f"flow at batch {row['batch_size']}, added"
            row["goal"] = lab.quantity(what, row["added"]["value"], "", "≤", GOAL)
            checks.append(row["goal"])
    return {"samples": samples, "summary": rows, "goals": checks}


def heads_table(rows: list[lab.Row]) -> Table:
    """One row a batch size and head."""
    columns = {
        "batch": lambda row: str(row["batch_size"]),
        "<head": lambda row: HEADS[row["variant"]],
        "processor ms a step": lab.milliseconds,
        "more than gaussian, %": lambda row: lab.spread(row["added"], "{:+.0f}", 100),
        "goal": lambda row: lab.goal_text(row.get("goal")),
    }
    title = (
        f"a step of the default network, {_LABELS} parameters; median (95 % interval) of the rounds"
    )
    return lab.rows_table(title, rows, columns)


def _samples_of(launch: Launch, answers: Answers) -> list[dict[str, Any]]:
    return list(answers[0]["samples"])


def _backend(head: str) -> Any:
    """A backend that trains the default network with this head, and the loss of `tfmat train`."""
    from tfmat.backends import make_backend
    from tfmat.backends.losses import per_example_function
    from tfmat.config import default_config
    from tfmat.networks import build_model
    from tfmat.networks.factory import negative_log_likelihood, squared_error_of_mean
    from tfmat.networks.flow import POSTERIOR
    from tfmat.optimizers import make_functional

    config, auxiliary = default_config(), None
    config.model.uncertainty = head.partition("_")[0]
    model = build_model(config.model, num_outputs=_LABELS, seed=1)
    if config.model.uncertainty == "flow":
        flow = model.get_layer(POSTERIOR)
        loss = flow.compiled_loss() if head == "flow" else flow.loss
    else:
        loss = squared_error_of_mean(_LABELS)
    if head == "gaussian":
        auxiliary = per_example_function(negative_log_likelihood(_LABELS))
    backend = make_backend("single")
    backend.build(
        model, make_functional("adam"), per_example_function(loss), {}, auxiliary_loss=auxiliary
    )
    return backend


def measure(spec: dict[str, Any], processes: Processes, folder: pathlib.Path) -> dict[str, Any]:
    """Called by the process, see tfmat.scaling.worker: a sample of each head, round and batch size."""
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(one_thread_an_operation=True)
    numbers, order = np.random.default_rng(1), random.Random(0)
    features = numbers.normal(size=(_RECORDS, 200, 3)).astype(np.float32)
    labels = numbers.uniform(0.05, 0.95, size=(_RECORDS, _LABELS)).astype(np.float32)
    samples = []
    for size in spec["batch_sizes"]:
        backends = {head: _backend(head) for head in HEADS}
        data = {head: backend.place((features, labels)) for head, backend in backends.items()}
        for number in range(-1, spec["rounds"]):
            rows = numbers.integers(0, _RECORDS, (spec["steps"], size), dtype=np.int32)
            weights = np.ones(rows.shape, np.float32), np.full(len(rows), size, np.float32)
            for head in order.sample(list(HEADS), len(HEADS)):
                began = time.process_time()
                backends[head].train(data[head], rows, *weights)
                seconds = (time.process_time() - began) / len(rows)
                if number >= 0:  # the first one compiles
                    sample = {"batch_size": size, "variant": head, "round": number}
                    samples.append({**sample, "rate": size / seconds})
    return {"samples": samples}
