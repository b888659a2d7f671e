"""tools/benchmark: what it computes from samples, and one short real run. Never how fast anything is."""

import functools
import json
import os
import statistics
import subprocess
import sys

import pytest

from tfmat.errors import InputError
from tfmat.scaling import measure
from tfmat_tests.processes import forked_python
from tfmat_tests.tools.conftest import TOOLS


@pytest.fixture
def rounds(part):
    return part("rounds")


def sample(variant, number, rate):
    return {"batch_size": 10, "round": number, "variant": variant, "rate": rate}


def test_ratios_are_those_within_a_round(rounds):
    """The machine is twice as slow in the second round: rates spread, ratios do not."""
    samples = [sample("ours", 0, 200.0), sample("fit", 0, 100.0), sample("matmul", 0, 4e3)]
    samples += [sample("fit", 1, 50.0), sample("matmul", 1, 2e3), sample("ours", 1, 100.0)]
    found = rounds.summarize(samples, slower_than="ours", share_of="matmul", scale=10.0)
    rows = {row["variant"]: row for row in found}
    assert rows["fit"]["rate"] == {"value": 75.0, "low": 50.0, "high": 100.0}
    assert rows["fit"]["times"] == {"value": 2.0, "low": 2.0, "high": 2.0}
    assert rows["ours"]["share"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    # 150 examples in all at 75 a second: 133 ms a step of 10, 100 to 200 by the rates.
    assert rounds.milliseconds(rows["fit"]) == "133.33 (100.00 – 200.00)"


def test_a_variant_that_was_not_measured_in_a_round_has_no_ratio_there(rounds):
    samples = [sample("ours", 0, 200.0), sample("fit", 0, 100.0), sample("fit", 1, 50.0)]
    rows = {row["variant"]: row for row in rounds.summarize(samples, slower_than="ours")}
    assert rows["fit"]["times"]["high"] == rows["fit"]["times"]["low"] == 2.0
    assert "share" not in rows["fit"]


def test_overhead_is_what_is_left_of_an_epoch(rounds):
    from benchmarks.job import epoch_times

    names = ("seconds", "training_seconds", "validation_seconds")
    records = [dict(zip(names, values, strict=True)) for values in [(9, 5, 1), (20, 14, 2)]]
    assert epoch_times(records) == [{"all": 11, "training": 9, "validation": 1, "overhead": 1}]


def write_data(folder):
    import numpy as np

    random = np.random.default_rng(0)
    for name, shape in (("features", (16, 20, 3)), ("labels", (16, 2)), ("scale", (3,))):
        np.save(folder / f"{name}.npy", random.uniform(0.1, 1, shape).astype(np.float32))
    np.save(folder / "hidden_units.npy", [125])


def measured(rounds, folder, names):
    from benchmarks import step

    told = {"data": str(folder), "batch_sizes": [8], "seconds": 0.01}
    launches = [
        rounds.launch(
            name, 0, folder / "launches", "benchmarks.step:measure", {"variant": name, **told}
        )
        for name in names
    ]
    return rounds.measure_variants(lambda _: launches, samples_of=step._samples_of)


def test_a_failing_variant_is_left_out_and_says_why(rounds, tmp_path, capsys, monkeypatch):
    command = functools.partial(measure.worker_command, python=forked_python())
    monkeypatch.setattr(measure, "worker_command", command)
    write_data(tmp_path)
    samples, skipped = measured(rounds, tmp_path, ["matmul", "no_such_variant"])
    assert [sample["variant"] for sample in samples] == ["matmul"]
    assert skipped["no_such_variant"] == "ended with status 1: KeyError: 'no_such_variant'"
    assert "no_such_variant is left out: ended with status 1" in capsys.readouterr().err


def test_nothing_that_can_be_measured(rounds, tmp_path):
    """There is no data in the folder."""
    with pytest.raises(InputError, match=r"no variant could be measured: .*features.npy"):
        measured(rounds, tmp_path, ["matmul"])


def test_the_other_libraries_variants_load_no_tensorflow():
    """PyTorch's Triton and TensorFlow end a process that loads both."""
    program = f"""
import sys
sys.path.insert(0, {str(TOOLS)!r})
import benchmarks.step, tfmat.scaling.measure
modules = {{program.partition(":")[0] for _, program, _ in benchmarks.step.VARIANTS.values()}}
for module in modules - {{"keras_variants"}}:
    try:
        __import__("benchmarks." + module)
    except ImportError as error:  # the library is not installed
        assert error.name in ("torch", "jax"), error
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.large
def test_a_quick_run(tmp_path):
    path = tmp_path / "benchmark.json"
    command = [forked_python(), str(TOOLS / "benchmark_training.py"), "--quick", f"--json={path}"]
    command += ["--variants=ours,fit,matmul", "--batch_sizes=5", "--num_curves=1000"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(path.read_text())
    # By hand: 7 × 3 × 16 at 200 points, 7 × 16 × 24 at 100, 1200 × 125, 125 × 2; two operations, three passes.
    assert content["operations_a_curve"] == 6 * (67_200 + 268_800 + 150_000 + 250)
    samples = content["samples"]
    assert [s["round"] for s in samples] == [0, 0, 0, 1, 1, 1]
    for row in content["summary"]:
        own = [s["work"] / s["seconds"] for s in samples if s["variant"] == row["variant"]]
        assert len(own) == 2 and row["rate"]["value"] == pytest.approx(statistics.median(own))
        scale = 1e-9 if row["variant"] == "matmul" else 1
        low, value, high = (f"{row['rate'][key] * scale:,.0f}" for key in ("low", "value", "high"))
        shown = value if low == high else f"{value} ({low} – {high})"  # Two quiet rounds are equal.
        assert f" {shown} " in done.stdout
    (fit,) = [row for row in content["summary"] if row["variant"] == "fit"]
    rates = {(s["variant"], s["round"]): s["rate"] for s in samples}
    ratios = [rates["ours", i] / rates["fit", i] for i in range(2)]
    assert fit["times"]["value"] == pytest.approx(statistics.median(ratios))
    assert content["machine"]["versions"]["tensorflow"] and content["rounds"] == 2
    assert sorted(os.listdir(tmp_path)) == ["benchmark.json"]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--variants=fits", "--variants: there is no 'fits'; valid: ours, "),
        ("--ranks=1", "--ranks: 1 is no whole number from 2 on"),
        ("--batch_sizes=0", "--batch_sizes: 0 is no whole number from 1 on"),
        ("stray", "unrecognized arguments: stray"),
    ],
)
def test_a_wrong_flag_is_refused_at_once(flag, message):
    command = [forked_python(), str(TOOLS / "benchmark_training.py"), flag]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
