"""Losses against time: compiling left out, the work of the call that compiles counted."""

import numpy as np
import pytest

from tfmat.scaling.model import training_lines

STEP = 0.005


def records(steps, compiling):
    """An epoch of so many steps a record; each step takes 5 ms, and compiling what is given beyond that."""
    ends = np.cumsum(steps)
    return [
        {
            "step": int(end), "epoch": float(i + 1), "loss": 1.0,
            "training_seconds": end * STEP + sum(compiling[: i + 1]),
            "use": {"first_call_seconds": compiling[i] + (steps[i] * STEP if compiling[i] else 0.0)},
        }
        for i, end in enumerate(ends)
    ]  # fmt: skip


def seconds(lines):
    return [line["seconds"] for line in lines]


def test_an_epoch_within_the_first_call_takes_as_long_as_the_others():
    lines = training_lines(records([100, 100, 100], [20.0, 0.0, 0.0]), 100, STEP)
    assert seconds(lines) == pytest.approx([0.5, 1.0, 1.5])
    assert [lines[0][name] for name in ("epoch", "loss", "val_loss")] == [1.0, 1.0, None]


def test_the_median_of_the_later_records_is_taken():
    """One that something disturbed, and a mean that says so."""
    disturbed = records([100, 100, 100, 100], [20.0, 0.0, 0.0, 0.0])
    for record in disturbed[3:]:
        record["training_seconds"] += 7.0
    lines = training_lines(disturbed, 100, 0.03)
    assert seconds(lines) == pytest.approx([0.5, 1.0, 1.5, 9.0])


def test_part_of_an_epoch_in_the_first_call():
    """400 steps an epoch, 100 of them in the call that compiles."""
    found = records([400, 400], [20.0, 0.0])
    found[0]["use"]["first_call_seconds"] = 20.0 + 100 * STEP
    assert seconds(training_lines(found, 100, STEP)) == pytest.approx([2.0, 4.0])


def test_a_single_epoch_has_the_mean_of_its_timed_steps():
    found = records([400], [20.0])
    found[0]["use"]["first_call_seconds"] = 20.0 + 100 * STEP
    assert seconds(training_lines(found, 100, 0.006)) == pytest.approx([300 * STEP + 0.6])


def test_nothing_compiled_in_a_run_leaves_its_times_alone():
    assert seconds(training_lines(records([100, 100], [0.0, 0.0]), 0, STEP)) == pytest.approx([0.5, 1.0])  # fmt: skip
