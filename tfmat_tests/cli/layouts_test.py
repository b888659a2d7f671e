"""`tfmat layouts`: both tables, JSON, and what is refused."""

import json
import pathlib

import pytest

from tfmat.cli.main import main

_WIDE = str(pathlib.Path(__file__).parents[2] / "configs" / "wide.py")


def _json(capsys, *arguments):
    assert main(["layouts", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_wide_network_by_hand(capsys):
    found = _json(capsys, f"--config={_WIDE}", "--config.mesh=model:2")
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


def test_zero_divides_slots_then_gradients_then_weights(capsys):
    sums = []
    for stage in range(4):
        found = _json(
            capsys, f"--config={_WIDE}", "--config.mesh=batch:4", f"--config.zero_stage={stage}"
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


def test_tables(capsys):
    assert (
        main(["layouts", "--config.mesh=batch:2,model:2", "--config.model.uncertainty=none"]) == 0
    )
    text = capsys.readouterr().out
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
        (["--config.jit_compile=true"], "jit_compile does not work"),
        (["--config.precision=auto"], "precision=auto does not work"),
        (["--config.model.batch_normalization=local"], "use synchronized"),
        (["extra"], "takes no argument 'extra'"),
    ],
)  # fmt: skip
def test_refusals(arguments, message, capsys):
    assert main(["layouts", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_stages_of_the_wide_network_by_hand(capsys):
    found = _json(
        capsys, f"--config={_WIDE}", "--config.mesh=batch:2,stage:2", "--config.micro_batches=8"
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


def test_stages_in_words(capsys):
    assert main(["layouts", "--config.mesh=stage:2", "--config.stages=hidden_activation"]) == 0
    shown = capsys.readouterr().out
    assert "bubble in theory: 11.1 % of a step" in shown
    assert "note" not in shown
