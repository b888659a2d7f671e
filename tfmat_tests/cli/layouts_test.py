"""`tfmat layouts`: both tables, JSON, and what is refused."""

import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends.base import Collectives
from tfmat.backends.losses import per_example_function
from tfmat.backends.single import SingleBackend
from tfmat.config import Settings, default_config
from tfmat.networks.factory import build_model
from tfmat.optimizers import build_optimizer

_WIDE = str(pathlib.Path(__file__).parents[2] / "configs" / "wide.py")


def _json(done, *arguments):
    return json.loads(done("layouts", "--json", *arguments))


def test_wide_network_by_hand(done):
    found = _json(done, f"--config={_WIDE}", "--config.mesh=model:2")
    held = {v["path"].removeprefix("curve_to_parameters/"): v for v in found["variables"]}
    # Columns, rows, columns, rows: half of each kernel on either device, four bytes a number, two slots of Adam.
    for path, numbers in (
        ("hidden1/kernel", 1200 * 4096), ("hidden2/kernel", 4096**2), ("hidden3/kernel", 4096**2),
        ("hidden3/bias", 4096), ("labels/kernel", 4096 * 2),
    ):  # fmt: skip
        assert held[path]["weights"] == held[path]["gradients"] == 2 * numbers
        assert held[path]["slots"] == 4 * numbers
    assert held["hidden2/bias"]["weights"] == 4 * 4096  # after the rows: whole
    exchanges = {(c["kind"], c["what"]): (c["tensors"], c["bytes"]) for c in found["collectives"]}
    assert exchanges == {
        ("all-reduce", "activations, forward"): (2, 4 * 64 * (4096 + 2)),
        ("all-reduce", "activations, backward"): (2, 4 * 64 * (1200 + 4096)),
    }
    assert found["notices"] == []


def test_zero_divides_slots_then_gradients_then_weights(done):
    sums = []
    for stage in range(4):
        found = _json(
            done, f"--config={_WIDE}", "--config.mesh=batch:4", f"--config.zero_stage={stage}"
        )
        sums.append(
            [sum(v[part] for v in found["variables"]) for part in ("weights", "gradients", "slots")]
        )
    # Of 38,493,178 numbers the filters, 336 + 2,688, and the bias of two labels do not divide by four.
    whole, parts = 4 * 38_493_178, 4 * (3_026 + (38_493_178 - 3_026) // 4)
    iterations = 8
    assert sums == [
        [whole, whole, 2 * whole + iterations],
        [whole, whole, 2 * parts + iterations],
        [whole, parts, 2 * parts + iterations],
        [parts, parts, 2 * parts + iterations],
    ]


class Three(Collectives):
    """The first of three processes, of which the others do as it does."""

    size = 3

    def _sum(self, tensors):
        return [3 * tensor for tensor in tensors]

    def _collect(self, tensors):
        return [tf.stack([tensor] * 3) for tensor in tensors]

    def _scatter(self, tensors):
        return [3 * tensor[0] for tensor in tensors]


@pytest.mark.parametrize("stage", [0, 2])
def test_processes_hold_and_send_what_the_backend_counts(stage, done):
    """What each sends of its loss the plan leaves out."""
    arguments = ("--config=configs/smoke.py", "--config.mesh=batch:3", "--backend=mpi")
    found = _json(done, *arguments, f"--config.zero_stage={stage}")
    assert (found["backend"], found["processes"], found["zero_stage"]) == ("mpi", 3, stage)
    config = default_config()
    model = build_model(config.model, num_outputs=2)
    backend = SingleBackend(Settings.with_keys(zero_stage=stage), Three(), "mpi")
    optimizer = build_optimizer(config.optimizer)
    backend.build(model, optimizer, per_example_function("mse"), {})
    data = backend.place((np.ones((6, *model.input_shape[1:]), "f"), np.ones((6, 2), "f")))
    backend.train(
        data, np.arange(6, dtype=np.int32)[None], np.ones((1, 6), "f"), np.full(1, 6, "f")
    )
    sent = sum(one["sent_in_ring"] for one in found["collectives"])
    of_loss = 4 * 2 * (1 if stage else 2 / 3)
    assert sent == pytest.approx(backend.bytes_per_step - of_loss, abs=1)
    for part, variables in (("weights", model.variables), ("slots", optimizer.variables)):
        held = sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables)
        assert sum(v[part] for v in found["variables"]) == held


def test_processes_in_words(done):
    arguments = ("--config.mesh=batch:2", "--backend=horovod", "--config.zero_stage=2")
    shown = done("layouts", *arguments, "--config.offload=none")
    assert "2 processes of --backend=horovod, zero_stage=2; bytes in each process:" in shown
    assert "reduce-scatter  batch:2  gradients" in shown and "layout" not in shown


def test_tables(done):
    text = done("layouts", "--config.mesh=batch:2,model:2", "--config.model.uncertainty=none")
    rows = [line.split() for line in text.splitlines()]
    shape = ["1200", "×", "125"]
    assert ["hidden/kernel", *shape, "replicated", "600,000", "600,000", "1,200,000"] in rows
    assert ["all-reduce", "batch:2", "gradients", "8", "613,764", "613,764"] in rows
    assert "its 125 units do not divide by model:2 (the nearest that do: 124 and 126)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.mesh=batch"], "'batch' is no axis"),
        (["--config.layouts=hidden/kernl=-,batch"], "matches no variable"),
        (["--config.accumulate=2"], "accumulate=2 is for --backend=horovod"),
        (["--config.offload=slots"], "offload=slots is for --backend=single"),
        (["--config.data.sharding=independent"], "data.sharding=independent is for --backend=horovod"),
        (["--config.compression=fp16"], "compression=fp16 is for --backend=horovod"),
        (["--backend=mpi", "--config.mesh=batch:2,model:2"], "mesh batch:2,model:2: the processes of"),
        (["--backend=mpi", "--config.mesh=batch:2", "--config.zero_stage=3"], "zero_stage=3 divides"),
        (["--backend=mpi", "--config.compression=topk"], "compression=topk is not planned"),
        (["--config.jit_compile=true"], "jit_compile does not work"),
        (["--config.precision=auto"], "precision=auto does not work"),
        (["--config.model.batch_normalization=local"], "use synchronized"),
    ],
)  # fmt: skip
def test_refusals(arguments, message, refused):
    assert message in refused("layouts", *arguments)


def test_stages_of_the_wide_network_by_hand(done):
    found = _json(
        done, f"--config={_WIDE}", "--config.mesh=batch:2,stage:2", "--config.micro_batches=8"
    )
    first, last = found["stages"]
    assert (found["micro_batch_size"], found["bubble"]) == (4, pytest.approx(1 / 9))
    assert first["layers"][-2:] == ["hidden2", "hidden2_activation"]
    # hidden3 and the labels: kernels and biases, four bytes a number, two slots of Adam.
    numbers = 4096**2 + 4096 + 2 * 4096 + 2
    assert last["weights"] == last["gradients"] == last["summed"] == 4 * numbers
    assert 8 * numbers <= last["slots"] <= 8 * numbers + 16
    for stage in (first, last):
        # 32 examples of 4,096 numbers, one message for each micro-batch.
        assert (stage["messages"], stage["sent"]) == (8, 4 * 32 * 4096)
    assert first["activations"]["gpipe"] == 4 * first["activations"]["1f1b"]
    assert last["activations"]["gpipe"] == 8 * last["activations"]["1f1b"]
    assert "behind hidden2_activation" in found["notices"][0]


def test_stages_that_are_computed_again_and_slots_on_disk(done):
    """Of each micro-batch what the stage gives is kept, 4 examples of 4,096 numbers; the rest is there once."""
    arguments = (f"--config={_WIDE}", "--config.mesh=batch:2,stage:2", "--config.micro_batches=8")
    whole, again = (
        _json(done, *arguments, f"--config.model.recompute={where}")["stages"][0]["activations"]
        for where in ("none", "every:100")
    )
    assert whole["gpipe"] == 8 * whole["1f1b"] / 2
    assert again["gpipe"] - again["1f1b"] == (8 - 2) * 4 * 4 * 4096
    assert again["1f1b"] == 2 * 4 * 4 * 4096 + whole["1f1b"] / 2


def test_stages_in_words(done):
    shown = done("layouts", "--config.mesh=stage:2", "--config.stages=hidden_activation")
    assert "bubble in theory: 11.1 % of a step" in shown
    assert "note" not in shown
