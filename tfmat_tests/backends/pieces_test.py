"""When a batch comes in pieces: in a process of its own, since TensorFlow fixes its threads when it starts."""

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
