"""When a batch comes in pieces: in a process of its own, since TensorFlow fixes its threads when it starts."""

from tfmat_tests import graphs

PROGRAM = """
import os
os.sched_getaffinity = lambda _: {0, 1}
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(one_thread_an_operation=True)
import keras
from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.optimizers import make_functional
for rate in (0.0, 0.5):
    layers = [keras.layers.Input((4,)), keras.layers.Dropout(rate, seed=1), keras.layers.Dense(1)]
    backend = make_backend("single")
    backend.build(keras.Sequential(layers if rate else [layers[0], layers[2]]), make_functional("adam"),
                  per_example_function("mse"), {})
    print([backend._num_pieces(width) for width in (10, 75, 750, 6000)])
"""


def test_one_a_processor_unless_the_model_has_state(programs):
    """On two processors: two pieces, more for large batches; one where there is nothing to share or dropout's seed."""
    assert programs.python("-c", PROGRAM).splitlines() == ["[1, 2, 4, 8]", "[1, 1, 1, 1]"]


FUSED = """
import os
os.sched_getaffinity = lambda _: {0, 1}
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(one_thread_an_operation=True)
import keras
import numpy as np
from tensorflow.python.eager import context
import tfmat
layers = keras.layers
model = keras.Sequential(
    [layers.Input((20, 3)), layers.Conv1D(8, 3, name="convolution"), layers.Flatten(), layers.Dense(1)]
)
context.context().enable_run_metadata()
trainer = tfmat.Trainer(model, quiet=True)
trainer.fit(np.ones((64, 20, 3)), np.ones((64, 1)), global_batch_size=64, train_for="2steps")
run = context.context().export_run_metadata().partition_graphs
print(*(node.op for graph in run for node in graph.node if node.name.endswith("/convolution")))
"""


def test_a_convolution_adds_its_biases_itself(programs):
    """TensorFlow fuses them where it knows how wide a piece is; names of operations are TensorFlow's."""
    kernels = programs.python("-c", FUSED, **{graphs.PLAIN: ""}).split()
    assert len(kernels) == 2  # pieces
    assert set(kernels) <= {"_FusedConv2D", "_MklNativeFusedConv2D"}
