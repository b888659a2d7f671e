"""Schedules, places and stages: against the papers' pictures and counts; refusals before anything starts."""

import itertools

import keras
import pytest
import tensorflow as tf
from keras import layers

from tfmat.backends.pipeline import (
    Ordered,
    Place,
    bubble,
    bytes_of,
    make_stages,
    most_held,
    order_of_work,
    slot_places,
)
from tfmat.config import MeshShape
from tfmat.errors import InputError
from tfmat.optimizers import LAMB, NovoGrad, make_functional, slots_of


def text(work):
    return " ".join(("F" if forward else "B") + str(i) for forward, i in work)


def test_schedules_of_the_papers():
    """GPipe, figure 2c; PipeDream-Flush (arXiv:2104.04473, figure 4 top) for four devices and eight micro-batches."""
    assert text(order_of_work("gpipe", 1, 3, 3)) == "F0 F1 F2 B0 B1 B2"
    assert text(order_of_work("1f1b", 0, 4, 8)) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert text(order_of_work("1f1b", 3, 4, 3)) == "F0 B0 F1 B1 F2 B2"
    assert text(order_of_work("1f1b", 0, 4, 2)) == "F0 F1 B0 B1"


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (3, 5), (4, 4), (4, 1)])
def test_time_and_memory_of_a_schedule(schedule, stages, micro_batches):
    """Played with passes of one unit each: the share of waiting is that of the papers, and nobody waits forever."""
    left = [order_of_work(schedule, p, stages, micro_batches) for p in range(stages)]
    held = [most_held(work) for work in left]
    expected = [min(micro_batches, stages - p) for p in range(stages)]
    assert held == (expected if schedule == "1f1b" else [micro_batches] * stages)
    done, time = {}, 0
    while any(left):
        time += 1
        assert time < 100
        for p, work in enumerate(left):
            if work:
                forward, i = work[0]
                before = p - 1 if forward else p + 1
                ready = done.get((before, forward, i), time) < time
                if not 0 <= before < stages:
                    ready = forward or done[p, True, i] < time
                if ready:
                    done[p, forward, i] = time
                    left[p] = work[1:]
    assert 1 - 2 * micro_batches / time == pytest.approx(bubble(stages, micro_batches))


def test_places():
    place = Place.of(MeshShape.parse("batch:2,stage:3"), 4)
    assert place == Place(1, 3, 1, 2, (3, 4, 5), (1, 4))
    place = Place.of(MeshShape.parse("stage:3,batch:2"), 4)
    assert place == Place(2, 3, 0, 2, (0, 2, 4), (4, 5))
    assert Place.of(MeshShape.parse("stage:2"), 1) == Place(1, 2, 0, 1, (0, 1), (1,))


def deep_model(units=(8, 32, 8, 8, 8)):
    x = inputs = layers.Input((6,))
    for i, count in enumerate(units):
        x = layers.Dense(count, name=f"dense{i}")(x)
        x = layers.Activation("relu", name=f"relu{i}")(x)
    return keras.Model(inputs, layers.Dense(2, name="last")(x))


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_automatic_cuts_balance_the_weights(num_stages):
    """Against all ways to cut."""
    model = deep_model()
    found = make_stages(model, num_stages)
    sizes = [bytes_of(layer.trainable_variables) for layer in model.layers if layer.weights]
    most = max(bytes_of(segment.trainable_variables) for segment in found.segments)
    assert most == min(
        max(sum(sizes[a:b]) for a, b in itertools.pairwise((0, *cuts, len(sizes))))
        for cuts in itertools.combinations(range(1, len(sizes)), num_stages - 1)
    )
    assert [spec.dtype for spec in found.between] == ["float32"] * (num_stages - 1)


def test_of_equally_large_stages_those_that_send_least():
    """The largest has one layer of 5,050 numbers; the first cut may be anywhere before it."""
    between = make_stages(deep_model((16, 4, 100, 50)), 4).between
    assert [spec.shape.as_list() for spec in between] == [[4], [100], [50]]


def test_rules_cut_behind_layers():
    segments = make_stages(deep_model(), 3, "relu1,relu3").segments
    assert [segment.layer_names[-1] for segment in segments] == ["relu1", "relu3", "last"]


@pytest.mark.parametrize(
    ("num_stages", "rules", "message"),
    [
        (2, "relu1,relu3", "into 3 stages, the mesh has 2"),
        (3, "dense0,relu0", "stage of relu0 has no weights"),
        (20, "", "into 11 stages at most, the mesh has 20: use fewer"),
        (8, "", "cannot be cut into 8 stages that all have weights"),
    ],
)
def test_cuts_that_cannot_be(num_stages, rules, message):
    with pytest.raises(InputError, match=message):
        make_stages(deep_model(), num_stages, rules)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: keras.optimizers.Adam(1e-3, amsgrad=True),
        lambda: keras.optimizers.Nadam(1e-3),
        lambda: keras.optimizers.Adafactor(1e-3),
        lambda: keras.optimizers.AdamW(1e-3, use_ema=True, ema_overwrite_frequency=3),
        lambda: LAMB(1e-3),
        lambda: NovoGrad(1e-3),
    ],
)
def test_slots_of_stages_among_all(make):
    """By names and shapes in optimizers that are built for each stage and for the whole model."""
    model = deep_model()
    whole = make_functional(make())
    whole.build(model.trainable_variables)
    assert [size for _, size in slots_of(make_functional(make()), model.trainable_variables)] == [
        bytes_of([variable]) for variable in whole.variables
    ]
    seen = set()
    for segment in make_stages(model, 3).segments:
        part = make_functional(make())
        places = slot_places(part, model.trainable_variables, segment.trainable_places)
        part.build(segment.trainable_variables)
        for place, variable in zip(places, part.variables, strict=True):
            assert variable.shape == whole.variables[place].shape
            if not variable.name.startswith(("second_moment", "variable")):  # which are numbered
                assert variable.name == whole.variables[place].name
        seen |= set(places)
    assert seen == set(range(len(whole.variables)))


def test_a_weight_of_two_stages_is_refused():
    class Tied(layers.Layer):
        def __init__(self, other):
            super().__init__()
            self.kernel = other.kernel

        def call(self, x):
            return x @ self.kernel

    first = layers.Dense(3, name="first")
    x = inputs = layers.Input((3,))
    x = layers.Dense(3, name="middle")(first(x))
    with pytest.raises(InputError, match="first/kernel belongs to 2 stages"):
        make_stages(keras.Model(inputs, Tied(first)(x)), 2, "first")


def test_nothing_that_a_message_is_for_begins_before_the_wait_for_it_is_noted():
    """Else computing counts as waiting where TensorFlow has one thread."""
    with tf.Graph().as_default():
        ordered = Ordered()
        tensor = ordered.receive(lambda: tf.constant(1.0))
        (noted,) = tensor.op.control_inputs
        after, _before = ordered.waited[0].op.inputs
        assert noted is after.op and noted.type == "Timestamp"
