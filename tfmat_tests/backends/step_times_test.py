"""Graphs of steps, and moments of steps into parts, against numbers that are known."""

import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends.base import StepTimes
from tfmat.backends.step import Block, compiled


def test_parts_of_steps_with_two_meetings():
    """Two workers; each second of either is written down by hand. The first step meets twice, say for statistics."""
    first = StepTimes(np.array([[100.0, 101.0, 103.0, 108.0, 110.0, 115.0, 116.0]]))
    second = StepTimes(np.array([[100.0, 100.5, 106.0, 108.0, 114.0, 115.0, 117.0]]))
    latest = np.maximum(first.ready, second.ready)
    np.testing.assert_array_equal(latest, [[106.0, 114.0]])
    parts = {
        "input": 1.0,
        "forward_backward": 2.0 + 2.0,
        "waiting": 3.0 + 4.0,
        "moving": 2.0 + 1.0,
        "optimizer": 1.0,
    }
    assert {name: value.tolist() for name, value in first.parts(latest).items()} == {
        name: [value] for name, value in parts.items()
    }
    parts = {
        "input": 0.5,
        "forward_backward": 5.5 + 6.0,
        "waiting": 0.0,
        "moving": 2.0 + 1.0,
        "optimizer": 2.0,
    }
    assert {name: value.tolist() for name, value in second.parts(latest).items()} == {
        name: [value] for name, value in parts.items()
    }


def test_what_lies_between_exchanges_of_the_optimizer_is_its_own():
    """Gradients are summed from 103 to 108, weights collected from 110 to 115."""
    times = StepTimes(np.array([[100.0, 101.0, 103.0, 108.0, 110.0, 115.0, 116.0]]), num_updating=1)
    parts = times.parts(times.ready)
    assert parts["forward_backward"] == [2.0] and parts["optimizer"] == [2.0 + 1.0]
    assert parts["moving"] == [5.0 + 5.0] and parts["waiting"] == [0.0]


def test_trainers_after_one_another_are_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """TensorFlow warns from the fifth graph of one function on, which a notebook that tries eight settings makes."""
    rows = np.arange(4, dtype=np.int32).reshape(2, 2)
    for _ in range(8):

        def steps(block):
            return tf.reduce_sum(tf.gather(block.data, block.indices))

        run = compiled(steps, tf.range(10.0), [None, 2])
        ones = np.ones((2, 2), np.float32)
        sums = run(Block(tf.range(10.0), rows, ones, ones[0]))
        assert float(sums) == 6.0
    assert [record for record in caplog.records if record.name == "tensorflow"] == []
