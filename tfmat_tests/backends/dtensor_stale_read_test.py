"""The trap: on a mesh with a batch axis a variable that is assigned and then read again gives its old value.

That DTensorBackend does not fall into it is what dtensor_equality_test shows: Nesterov momentum on batch:2 would be off
from the second step on, by far more than the 1e-9 that are allowed there.
"""

PROGRAM = """
from tfmat.launch.runtime import prepare_tensorflow
prepare_tensorflow(virtual_devices=2)
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor
mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
random = np.random.default_rng(0)
x, y = random.random((8, 3)), random.random((8, 1))
starts = [random.random(shape) for shape in ((3, 4), (4, 4), (4, 1))]
whole = dtensor.Layout.replicated(mesh, rank=2)

def shard(array):
    return dtensor.pack([tf.constant(part) for part in np.split(array, 2)],
                        dtensor.Layout.batch_sharded(mesh, "batch", rank=2))

def train(assign_first):
    weights = [dtensor.DVariable(dtensor.copy_to_mesh(tf.constant(start), whole)) for start in starts]
    momenta = [dtensor.DVariable(dtensor.copy_to_mesh(tf.zeros_like(start), whole)) for start in starts]

    def step(x, y):
        with tf.GradientTape() as tape:
            hidden = x
            for weight in weights:
                hidden = hidden @ weight
            loss = tf.reduce_mean((hidden - y) ** 2)
        for weight, momentum, gradient in zip(weights, momenta, tape.gradient(loss, weights)):
            if assign_first:  # what optimizers do that update in place
                momentum.assign(0.9 * momentum + gradient)
                weight.assign_sub(0.01 * momentum)
            else:
                new = 0.9 * momentum + gradient
                weight.assign_sub(0.01 * new)
                momentum.assign(new)

    function = tf.function(step, autograph=False)
    for _ in range(3):
        function(shard(x), shard(y))
    return [dtensor.unpack(weight.read_value())[0].numpy() for weight in weights]

def by_numpy():
    weights, momenta = [start.copy() for start in starts], [0.0] * 3
    for _ in range(3):
        first, second, third = weights
        error = 2 * (x @ first @ second @ third - y) / len(x)
        gradients = [x.T @ error @ (second @ third).T, (x @ first).T @ error @ third.T, (x @ first @ second).T @ error]
        momenta = [0.9 * momentum + gradient for momentum, gradient in zip(momenta, gradients)]
        weights = [weight - 0.01 * momentum for weight, momentum in zip(weights, momenta)]
    return weights

def error(found):
    return max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, by_numpy()))

print(error(train(True)), error(train(False)))
"""


def test_compute_first_assign_last_is_right_and_the_naive_order_is_not(programs):
    naive, ours = map(float, programs.python("-c", PROGRAM).split())
    assert ours < 1e-12
    assert naive > 1e-4, "the trap is gone: this TensorFlow reads after an assign what was assigned"
